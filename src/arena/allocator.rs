//! `&Arena` as an allocator of collections: hashbrown's maps, `allocator-api2`'s `Vec` and `Box`.
//!
//! Deliberately absent: freeing in any order. A block that is freed or grown serves again only if it is the last.

use super::bump::depth;
use super::{Arena, Scope};
use crate::space::HostAccessible;
use allocator_api2::alloc::{AllocError, Allocator};
use core::alloc::Layout;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

impl<S: HostAccessible> Arena<S> {
    /// Whether a block of the current chunk ends where the arena stands.
    #[inline(always)]
    fn is_last(&self, start: NonZeroUsize, size_bytes: usize) -> bool {
        depth(start.get() + size_bytes) == self.depth.get()
            && start >= self.base.get().addr()
            // There the last byte may be given out (C4).
            && self.depth.get() != self.end.get()
    }

    #[inline(always)]
    fn free(&self, start: NonZeroUsize, size_bytes: usize) {
        if self.is_last(start, size_bytes) {
            self.rewind_to(depth(start.get()));
        }
    }

    #[inline(always)]
    fn grown(&self, address: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let start = address.addr();
        // A layout's size and an address of this arena do not wrap (`ADDRESS_MAX`).
        let next = depth(start.get() + new.size());
        let is_aligned = start.get() & (new.align() - 1) == 0;
        if is_aligned && self.is_last(start, old.size()) && next >= self.end.get() {
            self.depth.set(next);
            return Ok(NonNull::slice_from_raw_parts(address, new.size()));
        }
        self.moved(address, old.size(), new)
    }

    #[inline(always)]
    fn shrunk(&self, address: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let start = address.addr();
        if start.get() & (new.align() - 1) != 0 {
            return self.moved(address, new.size(), new);
        }
        if self.is_last(start, old.size()) {
            self.rewind_to(depth(start.get() + new.size()));
        }
        Ok(NonNull::slice_from_raw_parts(address, new.size()))
    }

    /// A copy of the first `size_bytes` of a block, in one for `new`.
    #[inline]
    fn moved(
        &self,
        address: NonNull<u8>,
        size_bytes: usize,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let moved = self.bump_or_grow(new).map_err(|_| AllocError)?;
        // SAFETY: both are live blocks of host memory of at least so many bytes; the new one was never given
        // before (A3), so they do not overlap.
        unsafe { moved.copy_from_nonoverlapping(address, size_bytes) };
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
        self.free(address.addr(), layout.size());
    }

    #[inline]
    unsafe fn grow(
        &self,
        address: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        self.grown(address, old, new)
    }

    #[inline]
    unsafe fn shrink(
        &self,
        address: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        self.shrunk(address, old, new)
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
        self.arena.grown(address, old, new)
    }

    #[inline]
    unsafe fn shrink(
        &self,
        address: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        self.arena.shrunk(address, old, new)
    }
}
