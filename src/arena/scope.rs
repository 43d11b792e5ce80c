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
use super::bump::NOWHERE;
use super::head::{Cursor, Follow, Head};
use crate::space::{AllocError, Block, MemorySpace};
use core::alloc::Layout;
use core::cmp::Ordering;
use core::marker::PhantomData;

/// A point in the life of an arena to return to, by [`Arena::rewind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub(super) position: usize,
    /// The start of the chunk that it is in.
    pub(super) base: usize,
}

impl Checkpoint {
    /// The same as two numbers, for the far side of a C interface.
    pub const fn to_parts(self) -> [usize; 2] {
        [self.position, self.base]
    }

    /// A point that was taken apart. One where the arena never stood is refused when it is used.
    pub const fn from_parts([position, base]: [usize; 2]) -> Self {
        Self { position, base }
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
    pub(super) head: Head<'a, S, false>,
    only: PhantomData<&'a mut Arena<S>>,
}

/// Takes back, when dropped, what was allocated since it was made; forgotten, it leaves that to the scope around it.
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
    /// Its scope goes by this very cursor: a guard may be forgotten, and then nobody would know how far one of its own came.
    outer: Head<'a, S, false>,
    mark: usize,
    only: PhantomData<&'a mut Arena<S>>,
}

impl<S: MemorySpace> Arena<S> {
    /// Runs `f` with a scope; what it allocates is taken back when it returns or panics.
    #[inline(always)]
    pub fn scoped<R>(&mut self, f: impl FnOnce(Scope<'_, S>) -> R) -> R {
        run_scoped(self.head(), f)
    }

    /// A guard that takes back, when dropped, what is allocated through it.
    #[inline(always)]
    pub fn scope_guard(&mut self) -> ScopeGuard<'_, S> {
        ScopeGuard::new(self.any_head())
    }

    /// A scope as long as this borrow that takes nothing back: for allocations beside inner scopes.
    #[inline(always)]
    pub fn root_scope(&mut self) -> Scope<'_, S> {
        Scope { head: self.any_head(), only: PhantomData }
    }

    /// The point where the arena stands now.
    #[inline(always)]
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { position: self.cursor.position.get(), base: self.base.get().addr().get() }
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
            self.rewind_to(checkpoint.position);
            true
        }
    }

    /// Whether the arena stands at `checkpoint` or after it.
    fn stood_at(&self, checkpoint: Checkpoint) -> bool {
        let (position, base) = (self.cursor.position.get(), self.base.get().addr().get());
        let is_here = checkpoint.base == base && position != NOWHERE;
        if checkpoint.position == NOWHERE || is_here && (base..=position).contains(&checkpoint.position) {
            return true;
        }
        let here_bytes = self.used_bytes();
        let chunks = self.chunks();
        let Some((index, used_bytes)) = chunks.place_of(checkpoint.position) else { return false };
        let Some(chunk) = chunks.list.get(index).filter(|chunk| chunk.base() == checkpoint.base) else {
            return false;
        };
        match index.cmp(&chunks.current) {
            Ordering::Less => used_bytes <= chunk.left_bytes,
            Ordering::Equal => used_bytes <= here_bytes,
            Ordering::Greater => false,
        }
    }

    /// Stands at `mark` again, where the arena stood before. What was given out since must not be used any more: callers
    /// hold the arena mutably, so that nothing borrows it.
    #[inline(always)]
    pub(super) fn rewind_to(&self, mark: usize) {
        // Known when compiled, for spaces that do not.
        if let Some(poison) = self.space.as_poison() {
            self.poison_from(poison, mark);
        }
        let (base, high) = (self.base.get().addr().get(), self.high.get());
        // A mark from before all chunks is higher.
        if base <= mark && mark.max(self.cursor.position.get()) <= high {
            self.cursor.position.set(mark);
        } else {
            self.rewind_with_care(mark);
        }
    }

    /// The same where the arena stands higher than ever, the mark is in another chunk, or either is nowhere.
    #[cold]
    #[inline(never)]
    pub(super) fn rewind_with_care(&self, mark: usize) {
        let (base, position) = (self.base.get().addr().get(), self.cursor.position.get());
        if position != NOWHERE && (base..=position).contains(&mark) {
            self.high.set(self.high.get().max(position));
            self.cursor.position.set(mark);
            return;
        }
        self.note_high();
        let mut chunks = self.chunks();
        // A mark from before the first chunk is the start of the first chunk.
        let (index, used_bytes) = chunks.place_of(mark).unwrap_or((0, 0));
        if index < chunks.current {
            let before_bytes = chunks.list.iter().take(index).map(|chunk| chunk.left_bytes).sum();
            self.before_bytes.set(before_bytes);
            chunks.current = index;
        } else if position != NOWHERE {
            self.high.set(self.high.get().max(position));
            self.cursor.position.set(base);
            return;
        }
        self.stand(&mut chunks, used_bytes);
    }
}

impl<S: MemorySpace> Scope<'_, S> {
    /// Runs `f` with an inner scope; what it allocates is taken back when it returns or panics.
    #[inline(always)]
    pub fn scoped<R>(&mut self, f: impl FnOnce(Scope<'_, S>) -> R) -> R {
        self.reclaim();
        run_scoped(self.head, f)
    }

    /// A guard of an inner scope.
    #[inline(always)]
    pub fn scope_guard(&mut self) -> ScopeGuard<'_, S> {
        self.reclaim();
        ScopeGuard::new(self.head)
    }

    /// Stands where the arena does, if that was handed over.
    #[inline(always)]
    fn reclaim(&mut self) {
        if self.head.cursor.position.get() == NOWHERE {
            self.head.follow();
        }
    }

    /// A block for `layout`. It stays valid and unmoved until the scope ends.
    ///
    /// # Errors
    /// [`AllocError`] where the space gives no more memory; then nothing has changed.
    #[inline]
    pub fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        self.head.by_own(|arena| arena.allocate(layout))
    }

    /// The arena, to read figures of, or for calls that a scope has not.
    ///
    /// ```
    /// use arenite::{Arena, HostSpace};
    /// let mut arena = Arena::new(HostSpace::new());
    /// arena.scoped(|mut scope| {
    ///     scope.alloc([0u8; 100]);
    ///     assert_eq!(scope.arena().live_bytes(), 100);
    /// });
    /// ```
    #[inline]
    pub fn arena(&mut self) -> &Arena<S> {
        self.head.hand_over()
    }
}

impl<'a, S: MemorySpace> ScopeGuard<'a, S> {
    #[inline(always)]
    fn new(outer: Head<'a, S, false>) -> Self {
        Self { mark: outer.cursor.position.get(), outer, only: PhantomData }
    }

    /// The scope that this guard ends.
    #[inline(always)]
    pub fn scope(&mut self) -> Scope<'_, S> {
        Scope { head: self.outer, only: PhantomData }
    }
}

impl<S: MemorySpace> Drop for ScopeGuard<'_, S> {
    #[inline(always)]
    fn drop(&mut self) {
        self.outer.by_own(|arena| arena.rewind_to(self.mark));
    }
}

/// Runs `f` in a scope of `outer`, of which the caller holds the only right to allocate.
#[inline(always)]
pub(super) fn run_scoped<S: MemorySpace, R, const IS_OWN: bool>(
    outer: Head<'_, S, IS_OWN>,
    f: impl FnOnce(Scope<'_, S>) -> R,
) -> R {
    let mark = outer.cursor.position.get();
    let cursor = outer.part();
    let unwinding = Unwinding { outer, cursor: &cursor, mark };
    let result = f(Scope { head: Head { arena: outer.arena, cursor: &cursor }, only: PhantomData });
    #[expect(clippy::mem_forget, reason = "it acts only where `f` panics")]
    core::mem::forget(unwinding);
    end(outer, &cursor, mark);
    result
}

/// Ends a scope that began at `mark`, where the cursor of `outer` is.
#[inline(always)]
fn end<S: MemorySpace, const IS_OWN: bool>(outer: Head<'_, S, IS_OWN>, cursor: &Cursor, mark: usize) {
    let position = cursor.position.get();
    // Whether a space poisons is known when compiled.
    if position > cursor.limit.get() || outer.arena.space.as_poison().is_some() {
        let _follow = Follow(outer);
        rewind(outer.arena, position, mark);
    }
}

/// Takes back what was given out since `mark`, by the arena's own cursor: where it has moved since, or the scope, which
/// stood at `position`, came higher than ever.
#[cold]
#[inline(never)]
fn rewind<S: MemorySpace>(arena: &Arena<S>, position: usize, mark: usize) {
    if position != NOWHERE {
        arena.cursor.position.set(position);
    }
    arena.rewind_to(mark);
}

/// Ends a scope whose function panics: apart from the way of a return, which stays in registers.
struct Unwinding<'a, S: MemorySpace, const IS_OWN: bool> {
    outer: Head<'a, S, IS_OWN>,
    cursor: &'a Cursor,
    mark: usize,
}

impl<S: MemorySpace, const IS_OWN: bool> Drop for Unwinding<'_, S, IS_OWN> {
    #[inline(always)]
    fn drop(&mut self) {
        let _follow = Follow(self.outer);
        rewind(self.outer.arena, self.cursor.position.get(), self.mark);
    }
}
