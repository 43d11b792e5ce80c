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
    /// How far before the cursor a block ends, in bytes; 0 for the last one, and for one of a chunk that touches the start
    /// of the current chunk, where the cursor is there (A5).
    #[inline(always)]
    fn bytes_behind(&self, address: NonNull<u8>, size_bytes: usize) -> usize {
        self.depth.get().wrapping_add(address.addr().get() + size_bytes)
    }

    /// Takes back what is behind the first `keep_bytes` of a block, if it is the last.
    #[inline(always)]
    fn cut(&self, address: NonNull<u8>, size_bytes: usize, keep_bytes: usize) {
        if self.bytes_behind(address, size_bytes) != 0 {
            return;
        }
        let cursor = self.depth.get();
        if cursor >= self.high.get() && self.space.as_poison().is_none() {
            // A4: in the first chunk, before which nothing is live.
            self.depth.set(cursor + (size_bytes - keep_bytes));
        } else {
            self.cut_with_care(address, keep_bytes);
        }
    }

    /// The same for a block that ends where the arena stands, and may be in another chunk.
    #[cold]
    #[inline(never)]
    fn cut_with_care(&self, address: NonNull<u8>, keep_bytes: usize) {
        let start = address.addr();
        if start >= self.base.get().addr() {
            self.rewind_to(depth(start.get() + keep_bytes));
        }
    }

    #[inline(always)]
    fn grown(&self, address: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let start = address.addr().get();
        // A layout's size and an address of this arena do not wrap (`ADDRESS_MAX`).
        let next = depth(start + new.size());
        // One branch for both.
        let in_the_way = self.bytes_behind(address, old.size()) | (start & (new.align() - 1));
        if in_the_way != 0 {
            return self.moved(address, old.size(), new);
        }
        // Where the block is of another chunk, nothing is free here (A5).
        if next < self.end.get() {
            return self.moved_on(address, old.size(), new);
        }
        self.depth.set(next);
        Ok(NonNull::slice_from_raw_parts(address, new.size()))
    }

    #[inline(always)]
    fn shrunk(&self, address: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if new.align() > old.align() && address.addr().get() & (new.align() - 1) != 0 {
            return self.moved_on(address, new.size(), new);
        }
        self.cut(address, old.size(), new.size());
        Ok(NonNull::slice_from_raw_parts(address, new.size()))
    }

    /// A copy of the first `size_bytes` of a block, in one for `new`.
    ///
    /// What young collections hold is copied here, in steps; all else is done by tail calls, so that nothing is saved.
    #[inline(always)]
    fn moved(
        &self,
        address: NonNull<u8>,
        size_bytes: usize,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        const STEP_BYTES: usize = 16;
        let Some(moved) = self.bump(new) else { return self.moved_on(address, size_bytes, new) };
        if !(STEP_BYTES..=4 * STEP_BYTES).contains(&size_bytes) {
            return Ok(copied(address, moved, size_bytes, new.size()));
        }
        let step = |at: usize| {
            // SAFETY: the block is of `size_bytes` at least; from `at` on there is a step of it.
            let from = unsafe { address.add(at) };
            // SAFETY: the new block is of `size_bytes` at least.
            let to = unsafe { moved.add(at) };
            // SAFETY: as in `copied`.
            unsafe { to.copy_from_nonoverlapping(from, STEP_BYTES) };
        };
        let last = size_bytes - STEP_BYTES;
        step(0);
        if last > STEP_BYTES {
            step(STEP_BYTES);
            step(last - STEP_BYTES);
        }
        step(last);
        Ok(NonNull::slice_from_raw_parts(moved, new.size()))
    }

    /// The same, where there may be no room.
    #[cold]
    #[inline(never)]
    fn moved_on(
        &self,
        address: NonNull<u8>,
        size_bytes: usize,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        let moved = self.bump_or_grow(new).map_err(|_| AllocError)?;
        Ok(copied(address, moved, size_bytes, new.size()))
    }
}

/// A new block of `new_bytes`, with a copy of `size_bytes`.
#[inline(never)]
fn copied(from: NonNull<u8>, to: NonNull<u8>, size_bytes: usize, new_bytes: usize) -> NonNull<[u8]> {
    // SAFETY: both are live blocks of host memory of at least so many bytes; the new one was never given before (A3),
    // so they do not overlap.
    unsafe { to.copy_from_nonoverlapping(from, size_bytes) };
    NonNull::slice_from_raw_parts(to, new_bytes)
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
        self.cut(address, layout.size(), 0);
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
