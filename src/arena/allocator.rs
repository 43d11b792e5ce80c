//! `&Arena` as an allocator of collections: hashbrown's maps, `allocator-api2`'s `Vec` and `Box`.
//!
//! ```text
//!    │ given out ▓▓▓▓▓│ the last block ▓▓▓ │ free, passed before ···· │ free, never passed ····│
//!                                          cursor                     high                    end
//! ```
//!
//! Blocks are taken quickly up to `high` only, and with care beyond, which each byte is once: so freeing the last one
//! (A5) is one comparison, and what was live at most is exact.
//!
//! Deliberately absent: freeing in any order. A block that is freed or grown serves again only if it is the last.

use super::bump::place;
use super::head::Head;
use super::{Arena, Scope};
use crate::space::{AllocError, HostAccessible, dangling};
use allocator_api2::alloc::{AllocError as Refused, Allocator};
use core::alloc::Layout;
use core::ptr::NonNull;

impl<S: HostAccessible, const IS_OWN: bool> Head<'_, S, IS_OWN> {
    /// A block that may be freed or grown alone.
    #[inline(always)]
    fn lend(self, layout: Layout) -> Result<NonNull<[u8]>, Refused> {
        let fit = place(self.cursor.position.get(), layout);
        match self.take(fit, self.arena.high.get()) {
            Some(start) => Ok(NonNull::slice_from_raw_parts(self.address(start), layout.size())),
            None => self.by_own(|arena| arena.lend_beyond(layout)),
        }
    }

    /// Whether a block ends where the arena stands, and it is this chunk's (A5).
    #[inline(always)]
    fn is_last(self, address: NonNull<u8>, size_bytes: usize) -> bool {
        address.addr().get() + size_bytes == self.cursor.position.get()
    }

    /// Takes back what is behind the first `keep_bytes` of a block, if it is the last.
    #[inline(always)]
    fn cut(self, address: NonNull<u8>, size_bytes: usize, keep_bytes: usize) {
        if !self.is_last(address, size_bytes) {
            return;
        }
        let mark = address.addr().get() + keep_bytes;
        // Known when compiled, for spaces that do not. Of no bytes, a block may lie nowhere.
        if self.arena.space.as_poison().is_some() && keep_bytes < size_bytes {
            self.by_own(|arena| arena.rewind_to(mark));
        } else {
            self.cursor.position.set(mark);
        }
    }

    #[inline(always)]
    fn grown(self, address: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, Refused> {
        let start = address.addr().get();
        // One branch for both.
        let in_the_way = (start + old.size()) ^ self.cursor.position.get() | (start & (new.align() - 1));
        if in_the_way != 0 {
            return self.moved(address, old.size(), new);
        }
        // A layout's size and an address of this arena do not wrap (`ADDRESS_MAX`).
        let next = start + new.size();
        if next > self.arena.high.get() {
            return self.by_own(|arena| arena.grow_beyond(address, old.size(), new));
        }
        self.cursor.position.set(next);
        Ok(NonNull::slice_from_raw_parts(address, new.size()))
    }

    #[inline(always)]
    fn shrunk(self, address: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, Refused> {
        if new.align() > old.align() && address.addr().get() & (new.align() - 1) != 0 {
            return self.by_own(|arena| arena.move_beyond(address, new.size(), new));
        }
        self.cut(address, old.size(), new.size());
        Ok(NonNull::slice_from_raw_parts(address, new.size()))
    }

    /// A copy of the first `size_bytes` of a block, in one for `new`.
    ///
    /// What young collections hold is copied here, in steps; all else is done by tail calls, so that nothing is saved.
    #[inline(always)]
    fn moved(self, address: NonNull<u8>, size_bytes: usize, new: Layout) -> Result<NonNull<[u8]>, Refused> {
        const STEP_BYTES: usize = 16;
        let fit = place(self.cursor.position.get(), new);
        let Some(moved) = self.take(fit, self.arena.high.get()) else {
            return self.by_own(|arena| arena.move_beyond(address, size_bytes, new));
        };
        let moved = self.address(moved);
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
}

/// The slow ways, by the arena's own cursor: higher than it ever stood in the current chunk, or in another.
impl<S: HostAccessible> Arena<S> {
    #[inline(never)]
    fn lend_beyond(&self, layout: Layout) -> Result<NonNull<[u8]>, Refused> {
        let address = self.bump_beyond(layout).map_err(|_| Refused)?;
        Ok(NonNull::slice_from_raw_parts(address, layout.size()))
    }

    /// Grows the last block where it is, if there is room.
    #[inline(never)]
    fn grow_beyond(
        &self,
        address: NonNull<u8>,
        old_bytes: usize,
        new: Layout,
    ) -> Result<NonNull<[u8]>, Refused> {
        let next = address.addr().get() + new.size();
        if next > self.cursor.end.get() {
            return self.move_beyond(address, old_bytes, new);
        }
        self.cursor.position.set(next);
        self.high.set(next);
        Ok(NonNull::slice_from_raw_parts(address, new.size()))
    }

    #[inline(never)]
    fn move_beyond(
        &self,
        address: NonNull<u8>,
        size_bytes: usize,
        new: Layout,
    ) -> Result<NonNull<[u8]>, Refused> {
        let moved = self.bump_beyond(new).map_err(|_| Refused)?;
        Ok(copied(address, moved, size_bytes, new.size()))
    }

    fn bump_beyond(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        let start = match self.head().bump(layout) {
            Some(start) => start,
            None if layout.size() == 0 => return Ok(dangling(layout.align())),
            None => {
                // With a byte behind it (A5).
                let roomy = layout.size().checked_add(1);
                let roomy = roomy.and_then(|size| Layout::from_size_align(size, layout.align()).ok());
                self.grow(roomy.ok_or_else(|| self.never_fits(layout))?)?;
                self.head().bump(layout).ok_or_else(|| self.never_fits(layout))?
            }
        };
        self.high.set(self.high.get().max(self.cursor.position.get()));
        Ok(self.address(start))
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

macro_rules! allocator {
    ($owner:ident $(<$scope:lifetime>)?, |$this:ident| $head:expr) => {
        // SAFETY:
        // * a block stays valid and unmoved while the arena or scope is borrowed, as every clone of the reference does;
        //   nothing is taken back meanwhile but what is given to `deallocate`;
        // * copies of the reference are the same arena or scope.
        unsafe impl<S: HostAccessible> Allocator for &$owner<$($scope,)? S> {
            #[inline]
            fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, Refused> {
                let $this = self;
                $head.lend(layout)
            }

            #[inline]
            unsafe fn deallocate(&self, address: NonNull<u8>, layout: Layout) {
                let $this = self;
                $head.cut(address, layout.size(), 0);
            }

            #[inline]
            unsafe fn grow(
                &self,
                address: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, Refused> {
                let $this = self;
                $head.grown(address, old, new)
            }

            #[inline]
            unsafe fn shrink(
                &self,
                address: NonNull<u8>,
                old: Layout,
                new: Layout,
            ) -> Result<NonNull<[u8]>, Refused> {
                let $this = self;
                $head.shrunk(address, old, new)
            }
        }
    };
}

allocator!(Arena, |arena| arena.head());
allocator!(Scope<'_>, |scope| scope.head);
