#![forbid(unsafe_code)]
//! Scopes and checkpoints: taking back what was given out since a point.
//!
//! ```text
//!   │ outer ▓▓▓▓▓ │ inner ▓▓▓ │ free ··········│
//!                 ▲ mark                         end of the scope: cursor = mark
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
use super::bump::NOWHERE;
use crate::space::MemorySpace;
use core::marker::PhantomData;

/// A point in the life of an arena to return to, by [`Arena::rewind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub(super) cursor: usize,
    pub(super) base: usize,
}

impl Checkpoint {
    /// The same as two numbers, for the far side of a C interface.
    pub const fn to_parts(self) -> [usize; 2] {
        [self.cursor, self.base]
    }

    /// A point that was taken apart. One where the arena never stood is refused when it is used.
    pub const fn from_parts([cursor, base]: [usize; 2]) -> Self {
        Self { cursor, base }
    }

    /// Before everything.
    pub(super) const START: Self = Self { cursor: NOWHERE.0, base: 0 };
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
    mark: Checkpoint,
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
        ScopeGuard { mark: self.checkpoint(), arena: self, only: PhantomData }
    }

    /// A scope as long as this borrow that takes nothing back: for allocations beside inner scopes.
    #[inline(always)]
    pub fn root_scope(&mut self) -> Scope<'_, S> {
        Scope { arena: self, only: PhantomData }
    }

    /// The point where the arena stands now.
    #[inline(always)]
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { cursor: self.cursor.get(), base: self.base.get().addr().get() }
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
            self.rewind_to(checkpoint);
            true
        }
    }

    /// Whether the arena stands at `checkpoint` or after it.
    fn stood_at(&self, checkpoint: Checkpoint) -> bool {
        let chunks = self.chunks.borrow();
        let Some(index) = chunks.list.iter().position(|chunk| chunk.base() == checkpoint.base) else {
            // From before the first chunk, or from elsewhere.
            return checkpoint.cursor == NOWHERE.0;
        };
        let used_bytes = match index {
            _ if index > chunks.current => return false,
            _ if index == chunks.current => self.offset_of(self.cursor.get()),
            _ => chunks.list[index].left_bytes,
        };
        (checkpoint.base..=checkpoint.base + used_bytes).contains(&checkpoint.cursor)
    }

    /// Stands at `mark` again, where the arena stood before. What was given out since must not be used
    /// any more: callers hold the arena mutably, so that nothing borrows it.
    #[inline(always)]
    fn rewind_to(&self, mark: Checkpoint) {
        // Known when compiled, for spaces that do not.
        if let Some(poison) = self.space.as_poison() {
            self.poison_from(poison, mark);
        }
        if self.base.get().addr().get() == mark.base {
            if self.cursor.get() > self.high.get() {
                core::hint::cold_path();
                self.high.set(self.cursor.get());
            }
            self.cursor.set(mark.cursor);
        } else {
            self.rewind_to_chunk(mark);
        }
    }

    #[cold]
    #[inline(never)]
    fn rewind_to_chunk(&self, mark: Checkpoint) {
        self.note_high();
        let mut chunks = self.chunks.borrow_mut();
        let at = chunks.list.iter().position(|chunk| chunk.base() == mark.base);
        // A mark from before the first chunk is the start of the first chunk.
        let index = at.unwrap_or(0);
        chunks.current = index;
        let before_bytes = chunks.list[..index].iter().map(|chunk| chunk.left_bytes).sum();
        if let Some(chunk) = chunks.current() {
            let base = chunk.block.address();
            let cursor = if at.is_some() { mark.cursor } else { chunk.base() };
            self.before_bytes.set(before_bytes);
            self.stand(base, cursor, chunk.end());
        }
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
        ScopeGuard { mark: self.arena.checkpoint(), arena: self.arena, only: PhantomData }
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
    let mark = arena.checkpoint();
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
    mark: Checkpoint,
}

impl<S: MemorySpace> Drop for Unwinding<'_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        unwind_to(self.arena, self.mark);
    }
}

#[cold]
#[inline(never)]
fn unwind_to<S: MemorySpace>(arena: &Arena<S>, mark: Checkpoint) {
    arena.rewind_to(mark);
}
