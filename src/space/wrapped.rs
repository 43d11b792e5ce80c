//! A space around a space: what every wrapper shares.
//!
//! ```text
//!   Wrapped<S, Hooks>    ask ──► hooks.before ──► S ──► hooks.after ──► answer
//! ```
//!
//! [`Limited`](super::Limited), [`Recording`](super::Recording) and [`FailNth`](super::FailNth) are hooks; a
//! third party writes its own without unsafe code. Deliberately absent: changing what is asked or answered; a
//! wrapper that does is a space of its own.

use super::{
    AllocError, Block, HostAccessible, MemorySpace, Poison, Queue, QueueError, Reserve, SpaceId, ask,
};
use core::alloc::Layout;
use core::fmt;
use core::ops::Range;

/// What is asked of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ask {
    /// An exact block.
    Allocate,
    /// Addresses without memory.
    Reserve,
    /// Memory behind reserved addresses.
    Commit,
}

/// What is given back to a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GiveBack {
    /// An exact block.
    Block(Block),
    /// The memory behind this part of a range.
    Decommit(Block),
    /// A range, of which so many bytes from its start have memory.
    Release(Block, usize),
}

/// What a wrapper does around the calls to a space.
///
/// # Examples
/// ```
/// use arenite::space::{Ask, SpaceHooks, Wrapped};
/// use arenite::{AllocError, AllocErrorKind, HostSpace, MemorySpace, SpaceId};
/// use core::alloc::Layout;
///
/// /// Nothing larger than a page.
/// #[derive(Debug)]
/// struct SmallOnly;
///
/// impl SpaceHooks for SmallOnly {
///     fn before(&self, space: SpaceId, _: Ask, layout: Layout) -> Result<(), AllocError> {
///         let kind = AllocErrorKind::Refused { reason: "larger than a page" };
///         if layout.size() > 4096 { Err(AllocError::new(space, layout, kind)) } else { Ok(()) }
///     }
/// }
///
/// let space = Wrapped::around(HostSpace::new(), SmallOnly);
/// assert!(space.allocate(Layout::new::<[u8; 5000]>()).is_err());
/// ```
pub trait SpaceHooks: Send + Sync + fmt::Debug {
    /// Before the space is asked.
    ///
    /// # Errors
    /// [`AllocError`]: then the space is not asked, and [`after`](Self::after) not called.
    fn before(&self, space: SpaceId, ask: Ask, layout: Layout) -> Result<(), AllocError> {
        let _ = (space, ask, layout);
        Ok(())
    }

    /// After the space answered.
    fn after(&self, space: SpaceId, ask: Ask, layout: Layout, answer: Result<Block, &AllocError>) {
        let _ = (space, ask, layout, answer);
    }

    /// Before something is given back, so that nobody has its address yet.
    fn giving_back(&self, space: SpaceId, what: GiveBack) {
        let _ = (space, what);
    }

    /// After something was given back.
    fn given_back(&self, space: SpaceId, what: GiveBack) {
        let _ = (space, what);
    }
}

/// A space with hooks around it; host-accessible exactly where what it wraps is.
#[derive(Debug)]
pub struct Wrapped<S, H> {
    inner: S,
    pub(super) hooks: H,
}

impl<S: MemorySpace, H: SpaceHooks> Wrapped<S, H> {
    /// `inner`, with these hooks around every call.
    pub const fn around(inner: S, hooks: H) -> Self {
        Self { inner, hooks }
    }

    /// The space within.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The hooks.
    pub fn hooks(&self) -> &H {
        &self.hooks
    }

    /// The reserving face of the space within, for a call of `size_bytes`.
    fn reserving(&self, size_bytes: usize) -> Result<(&dyn Reserve, Layout), AllocError> {
        let too_large = || AllocError::too_large(self.id(), size_bytes, 1);
        let layout = Layout::from_size_align(size_bytes, 1).map_err(|_| too_large())?;
        Ok((self.inner.as_reserve().ok_or_else(too_large)?, layout))
    }

    fn around_ask(
        &self,
        ask: Ask,
        layout: Layout,
        call: impl FnOnce() -> Result<Block, AllocError>,
    ) -> Result<Block, AllocError> {
        let space = self.id();
        self.hooks.before(space, ask, layout)?;
        let answer = call();
        self.hooks.after(space, ask, layout, answer.as_ref().copied());
        answer
    }
}

// SAFETY: blocks come from the space within, which keeps the terms; hooks see them and cannot change them.
unsafe impl<S: MemorySpace, H: SpaceHooks> MemorySpace for Wrapped<S, H> {
    fn id(&self) -> SpaceId {
        self.inner.id()
    }

    fn host_accessible(&self) -> bool {
        self.inner.host_accessible()
    }

    fn open_queue(&self) -> Result<Option<Box<dyn Queue>>, QueueError> {
        self.inner.open_queue()
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        self.around_ask(Ask::Allocate, layout, || ask(&self.inner, layout))
    }

    unsafe fn deallocate(&self, block: Block) {
        self.hooks.giving_back(self.id(), GiveBack::Block(block));
        // SAFETY: the block came from the space within by way of `allocate`.
        unsafe { self.inner.deallocate(block) };
        self.hooks.given_back(self.id(), GiveBack::Block(block));
    }

    fn base_align(&self) -> usize {
        self.inner.base_align()
    }

    fn gives_zeroed(&self) -> bool {
        self.inner.gives_zeroed()
    }

    fn as_reserve(&self) -> Option<&dyn Reserve> {
        self.inner.as_reserve().map(|_| self as &dyn Reserve)
    }

    #[inline(always)]
    fn as_poison(&self) -> Option<&dyn Poison> {
        self.inner.as_poison()
    }
}

// SAFETY: as the space within.
unsafe impl<S: HostAccessible, H: SpaceHooks> HostAccessible for Wrapped<S, H> {}

// SAFETY: ranges come from the space within, which keeps the terms.
unsafe impl<S: MemorySpace, H: SpaceHooks> Reserve for Wrapped<S, H> {
    fn granularity_bytes(&self) -> usize {
        self.inner.as_reserve().map_or(1, Reserve::granularity_bytes)
    }

    fn reserve(&self, size_bytes: usize) -> Result<Block, AllocError> {
        let (reserve, layout) = self.reserving(size_bytes)?;
        self.around_ask(Ask::Reserve, layout, || reserve.reserve(size_bytes))
    }

    unsafe fn commit(&self, region: Block, range: Range<usize>) -> Result<(), AllocError> {
        let (reserve, layout) = self.reserving(range.len())?;
        let part = region.part(range.clone()).unwrap_or(region);
        self.around_ask(Ask::Commit, layout, || {
            // SAFETY: the region came from the space within; the caller keeps the terms of this very call.
            unsafe { reserve.commit(region, range) }.map(|()| part)
        })?;
        Ok(())
    }

    unsafe fn decommit(&self, region: Block, range: Range<usize>) {
        let Some(reserve) = self.inner.as_reserve() else { return };
        let part = region.part(range.clone()).unwrap_or(region);
        self.hooks.giving_back(self.id(), GiveBack::Decommit(part));
        // SAFETY: the region came from the space within; the caller keeps the terms of this very call.
        unsafe { reserve.decommit(region, range) };
        self.hooks.given_back(self.id(), GiveBack::Decommit(part));
    }

    unsafe fn release(&self, region: Block, committed_bytes: usize) {
        let Some(reserve) = self.inner.as_reserve() else { return };
        self.hooks.giving_back(self.id(), GiveBack::Release(region, committed_bytes));
        // SAFETY: the region came from the space within; the caller keeps the terms of this very call.
        unsafe { reserve.release(region, committed_bytes) };
        self.hooks.given_back(self.id(), GiveBack::Release(region, committed_bytes));
    }
}
