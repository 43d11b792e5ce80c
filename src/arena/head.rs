#![forbid(unsafe_code)]
//! Where blocks are given out: an arena and a cursor, its own or that of a scope.
//!
//! ```text
//!   the arena's own    │ outer ▓▓▓▓▓ ▲
//!   a scope's                        ▲ inner ▓▓▓ ▲ free ··········│      the arena's stays where the scope began
//! ```
//!
//! A scope has a cursor of its own, a local value of its caller: it lies in registers where calls are inlined, and going
//! back is forgetting it. The arena's own is brought to where the scope stands before anybody looks at it, and the scope
//! follows it afterwards.
//!
//! Deliberately absent: what to do where nothing fits. That is the arena's, which is given no reference to a scope's cursor:
//! a value whose address is known elsewhere lies in memory.

use super::Arena;
use super::bump::{Fit, NOWHERE, place, place_slice, place_whole};
use crate::space::MemorySpace;
use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::NonNull;

/// Where the next block may start, and where it must end at the latest.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    pub(super) position: Cell<usize>,
    pub(super) end: Cell<usize>,
    /// Of a scope: how far it may come before its end is looked at, the arena's `high` when this cursor was parted from its
    /// own; 0 where the arena's own has moved since.
    pub(super) limit: Cell<usize>,
}

impl Cursor {
    /// One before all chunks.
    pub(super) const fn nowhere() -> Self {
        Self { position: Cell::new(NOWHERE), end: Cell::new(0), limit: Cell::new(0) }
    }
}

/// An arena and the cursor that blocks are taken from: its own, or, where not `IS_OWN`, any. One at a time for an arena.
#[derive(Debug)]
pub(super) struct Head<'a, S: MemorySpace, const IS_OWN: bool> {
    pub(super) arena: &'a Arena<S>,
    pub(super) cursor: &'a Cursor,
}

impl<S: MemorySpace, const IS_OWN: bool> Clone for Head<'_, S, IS_OWN> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: MemorySpace, const IS_OWN: bool> Copy for Head<'_, S, IS_OWN> {}

impl<'a, S: MemorySpace, const IS_OWN: bool> Head<'a, S, IS_OWN> {
    /// The cursor of a scope that begins here.
    #[inline(always)]
    pub(super) fn part(self) -> Cursor {
        let Cursor { position, end, .. } = self.cursor.clone();
        Cursor { position, end, limit: self.arena.high.clone() }
    }

    /// Brings the arena's own cursor to where this one stands.
    #[inline(always)]
    pub(super) fn meet(self) {
        if IS_OWN {
            return;
        }
        self.cursor.limit.set(0);
        // Nowhere, it has been handed over, or there is nothing yet.
        if self.cursor.position.get() != NOWHERE {
            self.arena.cursor.position.set(self.cursor.position.get());
        }
    }

    /// Stands where the arena's own cursor does, which has moved.
    #[inline(always)]
    pub(super) fn follow(self) {
        if !IS_OWN {
            self.cursor.limit.set(0);
            self.cursor.position.set(self.arena.cursor.position.get());
            self.cursor.end.set(self.arena.cursor.end.get());
        }
    }

    /// Does something by the arena's own cursor, and stands where that does then, also where the work panics. The cursor
    /// itself is shown to nobody, so that it may stay in registers.
    #[inline(always)]
    pub(super) fn by_own<R>(self, work: impl FnOnce(&'a Arena<S>) -> R) -> R {
        self.meet();
        let _follow = Follow(self);
        work(self.arena)
    }

    /// Lets the arena's own cursor serve, whoever asks: from now on nothing fits here, until it is followed.
    #[inline(always)]
    pub(super) fn hand_over(self) -> &'a Arena<S> {
        self.meet();
        if !core::ptr::eq(self.cursor, &raw const self.arena.cursor) {
            self.cursor.position.set(NOWHERE);
            self.cursor.end.set(0);
        }
        self.arena
    }

    /// Takes a place that ends at `end` or before; says where it starts.
    #[inline(always)]
    pub(super) fn take(self, fit: Fit, end: usize) -> Option<usize> {
        if fit.next > end {
            return None;
        }
        self.cursor.position.set(fit.next);
        Some(fit.start)
    }

    /// Where a block for `layout` starts, off the cursor.
    #[inline(always)]
    pub(super) fn bump(self, layout: Layout) -> Option<usize> {
        self.take(place(self.cursor.position.get(), layout), self.cursor.end.get())
    }

    /// The same for a slice.
    #[inline(always)]
    pub(super) fn bump_slice(self, layout: Layout) -> Option<usize> {
        self.take(place_slice(self.cursor.position.get(), layout), self.cursor.end.get())
    }

    /// The same for a size that its alignment divides. The hot path.
    #[inline(always)]
    pub(super) fn bump_whole(self, layout: Layout) -> Option<usize> {
        self.take(place_whole(self.cursor.position.get(), layout), self.cursor.end.get())
    }

    /// The pointer to this byte, which lies in the current chunk.
    #[inline(always)]
    pub(super) fn address(self, start: usize) -> NonNull<u8> {
        self.arena.address(start)
    }
}

/// Stands, when dropped, where the arena's own cursor does.
pub(super) struct Follow<'a, S: MemorySpace, const IS_OWN: bool>(pub(super) Head<'a, S, IS_OWN>);

impl<S: MemorySpace, const IS_OWN: bool> Drop for Follow<'_, S, IS_OWN> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.follow();
    }
}

impl<S: MemorySpace> Arena<S> {
    /// The arena by its own cursor.
    #[inline(always)]
    pub(super) fn head(&self) -> Head<'_, S, true> {
        Head { arena: self, cursor: &self.cursor }
    }

    /// The arena as the head of a scope, by its own cursor.
    #[inline(always)]
    pub(super) fn any_head(&self) -> Head<'_, S, false> {
        Head { arena: self, cursor: &self.cursor }
    }
}
