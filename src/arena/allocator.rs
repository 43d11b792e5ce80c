//! `&Arena` as an allocator of collections: hashbrown's maps, `allocator-api2`'s `Vec` and `Box`.
//!
//! Deliberately absent: freeing in any order. A block that is freed or grown serves again only if it is the last.

use super::bump::depth;
use super::{Arena, Scope};
use crate::space::HostAccessible;
use allocator_api2::alloc::{AllocError, Allocator};
use core::alloc::Layout;
use core::ptr::NonNull;

impl<S: HostAccessible> Arena<S> {
    /// Whether a block of the current chunk ends where the arena stands.
    #[inline]
    fn is_last(&self, address: NonNull<u8>, size_bytes: usize) -> bool {
        let start = address.addr();
        start.get() + size_bytes == depth(self.depth.get())
            && size_bytes > 0
            && start >= self.base.get().addr()
            // There the last byte may be given out (C4).
            && self.depth.get() != self.end.get()
    }

    /// Moves the end of the last block, at `address`, to be `size_bytes` after its start; false where that is
    /// too far.
    #[inline]
    fn resize_last(&self, address: NonNull<u8>, size_bytes: usize) -> bool {
        // A layout's size and an address of this arena do not wrap (`ADDRESS_MAX`).
        let next = depth(address.addr().get() + size_bytes);
        if next < self.end.get() {
            return false;
        }
        if next > self.depth.get() {
            self.rewind_to(next);
        } else {
            self.depth.set(next);
        }
        true
    }

    fn resized(&self, address: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let is_aligned = address.addr().get() & (new.align() - 1) == 0;
        let in_place = if self.is_last(address, old.size()) {
            is_aligned && self.resize_last(address, new.size())
        } else {
            is_aligned && new.size() <= old.size()
        };
        if in_place {
            return Ok(NonNull::slice_from_raw_parts(address, new.size()));
        }
        let moved = self.bump_or_grow(new).map_err(|_| AllocError)?;
        // SAFETY: both are live blocks of host memory of at least so many bytes; the new one was never given
        // before (A3), so they do not overlap.
        unsafe { moved.copy_from_nonoverlapping(address, old.size().min(new.size())) };
        Ok(NonNull::slice_from_raw_parts(moved, new.size()))
    }
}

// SAFETY:
// * a block stays valid and unmoved while the arena is borrowed, as every clone of the reference does; the arena
//   takes nothing back meanwhile but what is given to `deallocate`;
// * copies of the reference are the same arena.
unsafe impl<S: HostAccessible> Allocator for &Arena<S> {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let address = self.bump_or_grow(layout).map_err(|_| AllocError)?;
        Ok(NonNull::slice_from_raw_parts(address, layout.size()))
    }

    #[inline]
    unsafe fn deallocate(&self, address: NonNull<u8>, layout: Layout) {
        if self.is_last(address, layout.size()) {
            self.resize_last(address, 0);
        }
    }

    #[inline]
    unsafe fn grow(
        &self,
        address: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        self.resized(address, old, new)
    }

    #[inline]
    unsafe fn shrink(
        &self,
        address: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        self.resized(address, old, new)
    }
}

// SAFETY: as for the arena, whose blocks live as long as the scope, which every clone of the reference borrows.
unsafe impl<S: HostAccessible> Allocator for &Scope<'_, S> {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        Allocator::allocate(&self.arena, layout)
    }

    #[inline]
    unsafe fn deallocate(&self, address: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller keeps the terms of this very call.
        unsafe { Allocator::deallocate(&self.arena, address, layout) };
    }

    #[inline]
    unsafe fn grow(
        &self,
        address: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        self.arena.resized(address, old, new)
    }

    #[inline]
    unsafe fn shrink(
        &self,
        address: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        self.arena.resized(address, old, new)
    }
}
