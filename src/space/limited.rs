//! A byte limit over any space.

use super::{AllocError, AllocErrorKind, Block, HostAccessible, LimitSource, MemorySpace, Reserve, SpaceId};
use core::alloc::Layout;
use core::ops::Range;
use parking_lot::Mutex;

/// A space that holds at most so many bytes of another: exact blocks and committed ranges together.
///
/// # Examples
/// ```
/// use arenite::{HostSpace, Limited, MemorySpace};
/// use core::alloc::Layout;
/// let space = Limited::new(HostSpace::new(), 512);
/// let error = space.allocate(Layout::new::<[u8; 768]>()).unwrap_err();
/// assert_eq!(error.limit_bytes(), Some(512));
/// ```
#[derive(Debug)]
pub struct Limited<S> {
    inner: S,
    limit_bytes: usize,
    live_bytes: Mutex<usize>,
}

impl<S: MemorySpace> Limited<S> {
    /// At most `limit_bytes` of `inner` at a time.
    pub fn new(inner: S, limit_bytes: usize) -> Self {
        Self { inner, limit_bytes, live_bytes: Mutex::new(0) }
    }

    /// The space within.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The limit in bytes.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// The bytes held now.
    pub fn live_bytes(&self) -> usize {
        *self.live_bytes.lock()
    }

    /// Runs `take` within the limit; a failure gives the claim back.
    fn claim<T>(
        &self,
        layout: Layout,
        take: impl FnOnce() -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        let size_bytes = layout.size();
        {
            let mut live_bytes = self.live_bytes.lock();
            let free_bytes = self.limit_bytes - *live_bytes;
            if size_bytes > free_bytes {
                let kind =
                    AllocErrorKind::OverLimit { limit_bytes: self.limit_bytes, source: LimitSource::Limited };
                return Err(AllocError::new(self.id(), layout, kind)
                    .with_live(*live_bytes)
                    .with_largest_free(free_bytes));
            }
            *live_bytes += size_bytes;
        }
        take().inspect_err(|_| *self.live_bytes.lock() -= size_bytes)
    }
}

// SAFETY: blocks come from the space within, which keeps the terms; refusing more changes none of them.
unsafe impl<S: MemorySpace> MemorySpace for Limited<S> {
    fn id(&self) -> SpaceId {
        self.inner.id()
    }

    fn host_accessible(&self) -> bool {
        self.inner.host_accessible()
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        self.claim(layout, || self.inner.allocate(layout))
    }

    unsafe fn deallocate(&self, block: Block) {
        // SAFETY: the block came from the space within by way of `allocate`.
        unsafe { self.inner.deallocate(block) };
        *self.live_bytes.lock() -= block.size_bytes();
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
unsafe impl<S: HostAccessible> HostAccessible for Limited<S> {}

// SAFETY: ranges come from the space within, which keeps the terms.
unsafe impl<S: MemorySpace> Reserve for Limited<S> {
    fn granularity_bytes(&self) -> usize {
        self.inner.as_reserve().map_or(1, Reserve::granularity_bytes)
    }

    fn reserve(&self, size_bytes: usize) -> Result<Block, AllocError> {
        match self.inner.as_reserve() {
            Some(reserve) => reserve.reserve(size_bytes),
            None => Err(AllocError::too_large(self.id(), size_bytes, 1)),
        }
    }

    unsafe fn commit(&self, region: Block, range: Range<usize>) -> Result<(), AllocError> {
        let layout = Layout::from_size_align(range.len(), 1).unwrap_or(region.layout());
        self.claim(layout, || match self.inner.as_reserve() {
            // SAFETY: the region came from the space within; the caller keeps the terms of this very call.
            Some(reserve) => unsafe { reserve.commit(region, range) },
            None => Err(AllocError::new(self.id(), layout, AllocErrorKind::NeverFits)),
        })
    }

    unsafe fn decommit(&self, region: Block, range: Range<usize>) {
        let size_bytes = range.len();
        if let Some(reserve) = self.inner.as_reserve() {
            // SAFETY: the region came from the space within; the caller keeps the terms of this very call.
            unsafe { reserve.decommit(region, range) };
            *self.live_bytes.lock() -= size_bytes;
        }
    }

    unsafe fn release(&self, region: Block, committed_bytes: usize) {
        if let Some(reserve) = self.inner.as_reserve() {
            // SAFETY: the region came from the space within; the caller keeps the terms of this very call.
            unsafe { reserve.release(region, committed_bytes) };
            *self.live_bytes.lock() -= committed_bytes;
        }
    }
}
