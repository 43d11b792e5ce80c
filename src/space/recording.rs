//! Counts over any space.

use super::{AllocError, Block, HostAccessible, MemorySpace, Reserve, SpaceId};
use core::alloc::Layout;
use core::ops::Range;
use parking_lot::Mutex;

/// What a [`Recording`] space has seen. Bytes are those of exact blocks and committed ranges together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceCounts {
    /// In use now.
    pub live_bytes: usize,
    /// The most ever in use.
    pub peak_bytes: usize,
    /// Addresses reserved.
    pub reserved_bytes: usize,
    /// Exact blocks and reserved ranges not yet given back.
    pub live_blocks: usize,
    /// Calls that asked for something: allocate, reserve, commit.
    pub asks: u64,
    /// Of those, how many failed.
    pub failures: u64,
}

/// A space that counts what goes through it.
///
/// # Examples
/// ```
/// use arenite::{Arena, HostSpace, Recording};
/// let space = Recording::new(HostSpace::new());
/// Arena::new(&space).alloc(7u32);
/// assert_eq!(space.counts().live_bytes, 0); // the arena is gone
/// assert!(space.counts().peak_bytes >= 4);
/// ```
#[derive(Debug)]
pub struct Recording<S> {
    inner: S,
    counts: Mutex<SpaceCounts>,
}

impl<S: MemorySpace> Recording<S> {
    /// Counts over `inner`.
    pub fn new(inner: S) -> Self {
        Self { inner, counts: Mutex::default() }
    }

    /// The space within.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The counts now.
    pub fn counts(&self) -> SpaceCounts {
        *self.counts.lock()
    }

    fn count<T>(
        &self,
        result: Result<T, AllocError>,
        add: impl FnOnce(&mut SpaceCounts, &T),
    ) -> Result<T, AllocError> {
        let mut counts = self.counts.lock();
        counts.asks += 1;
        match &result {
            Ok(value) => {
                add(&mut counts, value);
                counts.peak_bytes = counts.peak_bytes.max(counts.live_bytes);
            }
            Err(_) => counts.failures += 1,
        }
        result
    }
}

// SAFETY: blocks come from the space within, which keeps the terms.
unsafe impl<S: MemorySpace> MemorySpace for Recording<S> {
    fn id(&self) -> SpaceId {
        self.inner.id()
    }

    fn host_accessible(&self) -> bool {
        self.inner.host_accessible()
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        self.count(self.inner.allocate(layout), |counts, _| {
            counts.live_bytes += layout.size();
            counts.live_blocks += 1;
        })
    }

    unsafe fn deallocate(&self, block: Block) {
        // SAFETY: the block came from the space within by way of `allocate`.
        unsafe { self.inner.deallocate(block) };
        let mut counts = self.counts.lock();
        counts.live_bytes -= block.size_bytes();
        counts.live_blocks -= 1;
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
unsafe impl<S: HostAccessible> HostAccessible for Recording<S> {}

// SAFETY: ranges come from the space within, which keeps the terms.
unsafe impl<S: MemorySpace> Reserve for Recording<S> {
    fn granularity_bytes(&self) -> usize {
        self.inner.as_reserve().map_or(1, Reserve::granularity_bytes)
    }

    fn reserve(&self, size_bytes: usize) -> Result<Block, AllocError> {
        let result = match self.inner.as_reserve() {
            Some(reserve) => reserve.reserve(size_bytes),
            None => Err(AllocError::too_large(self.id(), size_bytes, 1)),
        };
        self.count(result, |counts, region| {
            counts.reserved_bytes += region.size_bytes();
            counts.live_blocks += 1;
        })
    }

    unsafe fn commit(&self, region: Block, range: Range<usize>) -> Result<(), AllocError> {
        let size_bytes = range.len();
        let result = match self.inner.as_reserve() {
            // SAFETY: the region came from the space within; the caller keeps the terms of this very call.
            Some(reserve) => unsafe { reserve.commit(region, range) },
            None => Err(AllocError::too_large(self.id(), size_bytes, 1)),
        };
        self.count(result, |counts, ()| counts.live_bytes += size_bytes)
    }

    unsafe fn decommit(&self, region: Block, range: Range<usize>) {
        let size_bytes = range.len();
        if let Some(reserve) = self.inner.as_reserve() {
            // SAFETY: the region came from the space within; the caller keeps the terms of this very call.
            unsafe { reserve.decommit(region, range) };
            self.counts.lock().live_bytes -= size_bytes;
        }
    }

    unsafe fn release(&self, region: Block, committed_bytes: usize) {
        if let Some(reserve) = self.inner.as_reserve() {
            // SAFETY: the region came from the space within; the caller keeps the terms of this very call.
            unsafe { reserve.release(region, committed_bytes) };
            let mut counts = self.counts.lock();
            counts.live_bytes -= committed_bytes;
            counts.reserved_bytes -= region.size_bytes();
            counts.live_blocks -= 1;
        }
    }
}
