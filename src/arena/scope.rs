#![forbid(unsafe_code)]
//! Scopes and checkpoints: taking back what was given out since a point.
//!
//! ```text
//!   │ outer ▓▓▓▓▓ │ inner ▓▓▓ │ free ··········│
//!                 ▲ mark                         end of the scope: back to the mark
//! ```
//!
//! What is allocated in a scope borrows the scope, so that nothing can leave it:
//!
//! ```compile_fail
//! # use arenite::{Arena, HostSpace};
//! let mut arena = Arena::new(HostSpace::new());
//! let escaped = arena.scoped(|scope| scope.alloc(7u32));
//! ```
//!
//! Deliberately absent: running destructors at the end of a scope.

use super::Arena;
use super::bump::{NOWHERE, depth};
use crate::space::MemorySpace;
use core::cmp::Ordering;
use core::marker::PhantomData;

/// A point in the life of an arena to return to, by [`Arena::rewind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub(super) depth: usize,
    /// The start of the chunk that it is in.
    pub(super) base: usize,
}

impl Checkpoint {
    /// The same as two numbers, for the far side of a C interface.
    pub const fn to_parts(self) -> [usize; 2] {
        [depth(self.depth), self.base]
    }

    /// A point that was taken apart. One where the arena never stood is refused when it is used.
    pub const fn from_parts([cursor, base]: [usize; 2]) -> Self {
        Self { depth: depth(cursor), base }
    }
}

/// The right to allocate in an arena for `'a`, which ends no later than its enclosing scope.
///
/// Made by [`Arena::scoped`], [`Arena::root_scope`] and [`ScopeGuard::scope`]. Scopes nest, and what an
/// outer scope holds stays usable while an inner one is open:
///
/// ```
/// use arenite::{Arena, HostSpace};
/// let mut arena = Arena::new(HostSpace::new());
/// let sum = arena.scoped(|mut scope| {
///     let kept = scope.alloc(40);
///     let short = scope.scoped(|inner| *inner.alloc(2));
///     *kept + short
/// });
/// assert_eq!((sum, arena.live_bytes()), (42, 0));
/// ```
#[derive(Debug)]
pub struct Scope<'a, S: MemorySpace> {
    pub(super) arena: &'a Arena<S>,
    only: PhantomData<&'a mut Arena<S>>,
}

/// Takes back, when dropped, what was allocated since it was made.
///
/// ```
/// use arenite::{Arena, HostSpace};
/// let mut arena = Arena::new(HostSpace::new());
/// let mut guard = arena.scope_guard();
/// let scope = guard.scope();
/// assert_eq!(scope.alloc_slice_copy(&[1, 2, 3]), &[1, 2, 3]);
/// drop(guard);
/// assert_eq!(arena.live_bytes(), 0);
/// ```
#[derive(Debug)]
pub struct ScopeGuard<'a, S: MemorySpace> {
    arena: &'a Arena<S>,
    mark: usize,
    only: PhantomData<&'a mut Arena<S>>,
}

impl<S: MemorySpace> Arena<S> {
    /// Runs `f` with a scope; what it allocates is taken back when it returns or panics.
    #[inline(always)]
    pub fn scoped<R>(&mut self, f: impl FnOnce(Scope<'_, S>) -> R) -> R {
        run_scoped(self, f)
    }

    /// A guard that takes back, when dropped, what is allocated through it.
    #[inline(always)]
    pub fn scope_guard(&mut self) -> ScopeGuard<'_, S> {
        ScopeGuard { mark: self.depth.get(), arena: self, only: PhantomData }
    }

    /// A scope as long as this borrow that takes nothing back: for allocations beside inner scopes.
    #[inline(always)]
    pub fn root_scope(&mut self) -> Scope<'_, S> {
        Scope { arena: self, only: PhantomData }
    }

    /// The point where the arena stands now.
    #[inline(always)]
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { depth: self.depth.get(), base: self.base.get().addr().get() }
    }

    /// Takes back what was allocated since `checkpoint` and keeps the memory; false, changing nothing,
    /// where the arena never stood there or was taken back further since.
    ///
    /// # Examples
    /// ```
    /// # use arenite::{Arena, HostSpace};
    /// let mut arena = Arena::new(HostSpace::new());
    /// let start = arena.checkpoint();
    /// arena.alloc([0u8; 100]);
    /// let later = arena.checkpoint();
    /// assert!(arena.rewind(start));
    /// assert!(!arena.rewind(later)); // that point is gone
    /// ```
    pub fn rewind(&mut self, checkpoint: Checkpoint) -> bool {
        self.stood_at(checkpoint) && {
            self.rewind_to(checkpoint.depth);
            true
        }
    }

    /// Whether the arena stands at `checkpoint` or after it.
    fn stood_at(&self, checkpoint: Checkpoint) -> bool {
        let (cursor, base) = (self.depth.get(), self.base.get().addr().get());
        let is_here = checkpoint.base == base && cursor != NOWHERE;
        if checkpoint.depth == NOWHERE || is_here && (cursor..=depth(base)).contains(&checkpoint.depth) {
            return true;
        }
        let chunks = self.chunks.borrow();
        let Some((index, used_bytes)) = chunks.place_of(checkpoint.depth) else { return false };
        let Some(chunk) = chunks.list.get(index).filter(|chunk| chunk.base() == checkpoint.base) else {
            return false;
        };
        match index.cmp(&chunks.current) {
            Ordering::Less => used_bytes <= chunk.left_bytes,
            Ordering::Equal => used_bytes <= self.used_bytes(),
            Ordering::Greater => false,
        }
    }

    /// Stands at the depth `mark` again, where the arena stood before. What was given out since must not be used
    /// any more: callers hold the arena mutably, so that nothing borrows it.
    #[inline(always)]
    pub(super) fn rewind_to(&self, mark: usize) {
        // Known when compiled, for spaces that do not.
        if let Some(poison) = self.space.as_poison() {
            self.poison_from(poison, mark);
        }
        // A4: no higher than `high` is in the first chunk, as the mark is; or the mark is from before it, where
        // nothing fits, and the next block finds out.
        if self.depth.get() >= self.high.get() {
            self.depth.set(mark);
        } else {
            self.rewind_with_care(mark);
        }
    }

    /// The same where the arena stands higher than ever, in a later chunk, or nowhere.
    #[cold]
    #[inline(never)]
    pub(super) fn rewind_with_care(&self, mark: usize) {
        if self.high.get() != usize::MAX {
            if self.depth.get() != NOWHERE {
                self.high.set(self.depth.get());
            }
            let start = depth(self.base.get().addr().get());
            self.depth.set(if mark == NOWHERE { start } else { mark });
            return;
        }
        self.note_high();
        let mut chunks = self.chunks.borrow_mut();
        // A mark from before the first chunk is the start of the first chunk.
        let (index, used_bytes) = chunks.place_of(mark).unwrap_or((0, 0));
        if index < chunks.current {
            let before_bytes = chunks.list.iter().take(index).map(|chunk| chunk.left_bytes).sum();
            self.before_bytes.set(before_bytes);
            chunks.current = index;
        }
        self.stand(&mut chunks, used_bytes);
    }
}

impl<S: MemorySpace> Scope<'_, S> {
    /// Runs `f` with an inner scope; what it allocates is taken back when it returns or panics.
    #[inline(always)]
    pub fn scoped<R>(&mut self, f: impl FnOnce(Scope<'_, S>) -> R) -> R {
        run_scoped(self.arena, f)
    }

    /// A guard of an inner scope.
    #[inline(always)]
    pub fn scope_guard(&mut self) -> ScopeGuard<'_, S> {
        ScopeGuard { mark: self.arena.depth.get(), arena: self.arena, only: PhantomData }
    }

    /// The arena, to allocate blocks from or read figures of.
    #[inline(always)]
    pub fn arena(&self) -> &Arena<S> {
        self.arena
    }
}

impl<S: MemorySpace> ScopeGuard<'_, S> {
    /// The scope that this guard ends.
    #[inline(always)]
    pub fn scope(&mut self) -> Scope<'_, S> {
        Scope { arena: self.arena, only: PhantomData }
    }
}

impl<S: MemorySpace> Drop for ScopeGuard<'_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        self.arena.rewind_to(self.mark);
    }
}

/// Runs `f` in a scope of `arena`, of which the caller holds the only right to allocate.
#[inline(always)]
pub(super) fn run_scoped<S: MemorySpace, R>(arena: &Arena<S>, f: impl FnOnce(Scope<'_, S>) -> R) -> R {
    let mark = arena.depth.get();
    let unwinding = Unwinding { arena, mark };
    let result = f(Scope { arena, only: PhantomData });
    #[expect(clippy::mem_forget, reason = "it acts only where `f` panics")]
    core::mem::forget(unwinding);
    arena.rewind_to(mark);
    result
}

/// Rewinds where the function of a scope panics: apart from the way of a return, which stays in registers.
struct Unwinding<'a, S: MemorySpace> {
    arena: &'a Arena<S>,
    mark: usize,
}

impl<S: MemorySpace> Drop for Unwinding<'_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        unwind_to(self.arena, self.mark);
    }
}

#[cold]
#[inline(never)]
fn unwind_to<S: MemorySpace>(arena: &Arena<S>, mark: usize) {
    arena.rewind_to(mark);
}
