#![forbid(unsafe_code)]
//! Who holds the bytes of an arena: a name, and a path of named scopes.
//!
//! ```text
//!   │ forward ▓▓▓▓ │ attention ▓▓ │ softmax ▓ │ free ··        bytes count for the scope that is open
//!                                  forward/attention/softmax
//! ```
//!
//! A named scope notes where it starts; what lies between two starts is the first one's. Allocation does not
//! know of it, so names cost nothing there.
//!
//! Deliberately absent: names of single blocks; a [`Pool`](crate::pool::Pool) has tags for those.

use super::{Arena, Scope};
use crate::space::{AllocError, MemorySpace, Owner, Tag};
use core::alloc::Layout;

/// The name of an arena and of its open scopes, with the live bytes at their starts. Most arenas have none, and
/// carry one word for that.
#[derive(Debug, Default)]
pub(super) struct Names {
    arena: Tag,
    open: Vec<(Tag, usize)>,
}

impl Names {
    /// What each holds of `live_bytes`, the arena itself first.
    fn owners(&self, live_bytes: usize) -> impl Iterator<Item = Owner> {
        let root = if self.arena.is_empty() { Tag::new("arena") } else { self.arena };
        let starts = core::iter::once((root, 0)).chain(self.open.iter().copied());
        let ends = self.open.iter().map(|&(_, start)| start).chain([live_bytes]);
        starts.zip(ends).map(|((tag, start), end)| Owner { tag, bytes: end - start })
    }

    fn path(&self) -> Tag {
        self.open.iter().fold(Tag::NONE, |path, &(tag, _)| path.join(tag))
    }
}

/// Closes a named scope, also where its function panics.
struct Close<'a, S: MemorySpace>(&'a Arena<S>);

impl<S: MemorySpace> Drop for Close<'_, S> {
    fn drop(&mut self) {
        if let Some(names) = &mut *self.0.names.borrow_mut() {
            names.open.pop();
        }
    }
}

impl<S: MemorySpace> Arena<S> {
    /// Names it, for errors and reports.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Tag>) -> Self {
        self.names.get_mut().get_or_insert_default().arena = name.into();
        self
    }

    /// [`scoped`](Self::scoped) with a name: what the scope allocates counts for it, and errors name the path of
    /// scopes that are open.
    ///
    /// # Examples
    /// ```
    /// use arenite::{Arena, HostSpace};
    /// let mut arena = Arena::new(HostSpace::new()).with_name("forward");
    /// arena.scoped_as("attention", |mut scope| {
    ///     scope.alloc([0u8; 100]);
    ///     scope.scoped_as("softmax", |mut inner| {
    ///         inner.alloc([0u8; 30]);
    ///         let owners: Vec<_> = inner.arena().tags().iter().map(|o| (o.tag.to_string(), o.bytes)).collect();
    ///         assert_eq!(owners, [("forward".into(), 0), ("attention".into(), 100), ("softmax".into(), 30)]);
    ///     });
    /// });
    /// ```
    pub fn scoped_as<R>(&mut self, name: impl Into<Tag>, f: impl FnOnce(Scope<'_, S>) -> R) -> R {
        let _close = self.open(name.into());
        super::scope::run_scoped(self.head(), f)
    }

    fn open(&self, name: Tag) -> Close<'_, S> {
        self.names.borrow_mut().get_or_insert_default().open.push((name, self.live_bytes()));
        Close(self)
    }

    /// Who holds how much of [`live_bytes`](Self::live_bytes): the arena itself, then its open scopes with a
    /// name, outermost first. The sum is exact.
    pub fn tags(&self) -> Vec<Owner> {
        match &*self.names.borrow() {
            Some(names) => names.owners(self.live_bytes()).collect(),
            None => Names::default().owners(self.live_bytes()).collect(),
        }
    }

    /// The same error, knowing what this arena knows, for the request that it stood for. Allocates nothing.
    #[cold]
    pub(super) fn explain(&self, error: AllocError, layout: Layout) -> AllocError {
        let (names, live_bytes) = (self.names.borrow(), self.live_bytes());
        let error = error.with_live(live_bytes).with_request(layout);
        let Some(names) = names.as_ref().filter(|names| !names.arena.is_empty() || !names.open.is_empty())
        else {
            return error;
        };
        error.with_place(names.arena, names.path()).with_owners(Owner::largest(names.owners(live_bytes)))
    }
}

impl<S: MemorySpace> Scope<'_, S> {
    /// [`scoped`](Self::scoped) with a name, as [`Arena::scoped_as`].
    pub fn scoped_as<R>(&mut self, name: impl Into<Tag>, f: impl FnOnce(Scope<'_, S>) -> R) -> R {
        let _close = self.head.by_own(|arena| arena.open(name.into()));
        super::scope::run_scoped(self.head, f)
    }
}
