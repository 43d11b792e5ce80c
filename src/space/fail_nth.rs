//! A space that fails on purpose, so that every path behind a failure can be run.

use super::{AllocError, AllocErrorKind, Block, HostAccessible, MemorySpace, Reserve, SpaceId};
use core::alloc::Layout;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// A space whose `n`-th call for memory fails, once; the calls before and after go through.
///
/// # Examples
/// ```
/// use arenite::{FailNth, HostSpace, MemorySpace};
/// use core::alloc::Layout;
/// let space = FailNth::new(HostSpace::new(), 1);
/// assert!(space.allocate(Layout::new::<u64>()).is_err());
/// let block = space.allocate(Layout::new::<u64>())?;
/// // SAFETY: just allocated there, not used.
/// unsafe { space.deallocate(block) };
/// # Ok::<(), arenite::AllocError>(())
/// ```
#[derive(Debug)]
pub struct FailNth<S> {
    inner: S,
    nth: u64,
    asks: AtomicU64,
}

impl<S: MemorySpace> FailNth<S> {
    /// Fails the `nth` of all calls to allocate, reserve and commit, counted from 1; 0 never fails.
    pub fn new(inner: S, nth: u64) -> Self {
        Self { inner, nth, asks: AtomicU64::new(0) }
    }

    /// The space within.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// How many calls asked for memory so far.
    pub fn asks(&self) -> u64 {
        self.asks.load(Ordering::Relaxed)
    }

    fn pass(&self, layout: Layout) -> Result<(), AllocError> {
        if self.asks.fetch_add(1, Ordering::Relaxed) + 1 == self.nth {
            let kind = AllocErrorKind::Refused { reason: "made to fail" };
            return Err(AllocError::new(self.id(), layout, kind));
        }
        Ok(())
    }
}

// SAFETY: blocks come from the space within, which keeps the terms.
unsafe impl<S: MemorySpace> MemorySpace for FailNth<S> {
    fn id(&self) -> SpaceId {
        self.inner.id()
    }

    fn host_accessible(&self) -> bool {
        self.inner.host_accessible()
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        self.pass(layout)?;
        self.inner.allocate(layout)
    }

    unsafe fn deallocate(&self, block: Block) {
        // SAFETY: the block came from the space within by way of `allocate`.
        unsafe { self.inner.deallocate(block) };
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
}

// SAFETY: as the space within.
unsafe impl<S: HostAccessible> HostAccessible for FailNth<S> {}

// SAFETY: ranges come from the space within, which keeps the terms.
unsafe impl<S: MemorySpace> Reserve for FailNth<S> {
    fn granularity_bytes(&self) -> usize {
        self.inner.as_reserve().map_or(1, Reserve::granularity_bytes)
    }

    fn reserve(&self, size_bytes: usize) -> Result<Block, AllocError> {
        let too_large = AllocError::too_large(self.id(), size_bytes, 1);
        self.pass(Layout::from_size_align(size_bytes, 1).map_err(|_| too_large)?)?;
        self.inner.as_reserve().ok_or(too_large)?.reserve(size_bytes)
    }

    unsafe fn commit(&self, region: Block, range: Range<usize>) -> Result<(), AllocError> {
        let too_large = AllocError::too_large(self.id(), range.len(), 1);
        self.pass(Layout::from_size_align(range.len(), 1).map_err(|_| too_large)?)?;
        let reserve = self.inner.as_reserve().ok_or(too_large)?;
        // SAFETY: the region came from the space within; the caller keeps the terms of this very call.
        unsafe { reserve.commit(region, range) }
    }

    unsafe fn decommit(&self, region: Block, range: Range<usize>) {
        if let Some(reserve) = self.inner.as_reserve() {
            // SAFETY: the region came from the space within; the caller keeps the terms of this very call.
            unsafe { reserve.decommit(region, range) };
        }
    }

    unsafe fn release(&self, region: Block, committed_bytes: usize) {
        if let Some(reserve) = self.inner.as_reserve() {
            // SAFETY: the region came from the space within; the caller keeps the terms of this very call.
            unsafe { reserve.release(region, committed_bytes) };
        }
    }
}
