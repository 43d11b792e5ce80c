#![forbid(unsafe_code)]
//! Counts over any space.

use super::{AllocError, Ask, Block, GiveBack, MemorySpace, SpaceHooks, SpaceId, Wrapped};
use core::alloc::Layout;
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
pub type Recording<S> = Wrapped<S, Counter>;

/// The counts of a [`Recording`] space.
#[derive(Debug, Default)]
pub struct Counter(Mutex<SpaceCounts>);

impl<S: MemorySpace> Recording<S> {
    /// Counts over `inner`.
    pub fn new(inner: S) -> Self {
        Self::around(inner, Counter::default())
    }

    /// The counts now.
    pub fn counts(&self) -> SpaceCounts {
        *self.hooks.0.lock()
    }
}

impl SpaceHooks for Counter {
    fn after(&self, _space: SpaceId, ask: Ask, layout: Layout, answer: Result<Block, &AllocError>) {
        let mut counts = self.0.lock();
        counts.asks += 1;
        match (answer, ask) {
            (Err(_), _) => counts.failures += 1,
            (Ok(region), Ask::Reserve) => {
                counts.reserved_bytes += region.size_bytes();
                counts.live_blocks += 1;
            }
            (Ok(_), Ask::Allocate) => {
                counts.live_bytes += layout.size();
                counts.live_blocks += 1;
            }
            (Ok(_), Ask::Commit) => counts.live_bytes += layout.size(),
        }
        counts.peak_bytes = counts.peak_bytes.max(counts.live_bytes);
    }

    fn given_back(&self, _space: SpaceId, what: GiveBack) {
        let mut counts = self.0.lock();
        match what {
            GiveBack::Block(block) => {
                counts.live_bytes -= block.size_bytes();
                counts.live_blocks -= 1;
            }
            GiveBack::Decommit(part) => counts.live_bytes -= part.size_bytes(),
            GiveBack::Release(region, committed_bytes) => {
                counts.live_bytes -= committed_bytes;
                counts.reserved_bytes -= region.size_bytes();
                counts.live_blocks -= 1;
            }
        }
    }
}
