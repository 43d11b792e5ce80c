#![forbid(unsafe_code)]
//! A space that fails on purpose, so that every path behind a failure can be run.

use super::{AllocError, AllocErrorKind, Ask, MemorySpace, SpaceHooks, SpaceId, Wrapped};
use core::alloc::Layout;
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
pub type FailNth<S> = Wrapped<S, Failure>;

/// Which call of a [`FailNth`] space fails, and how many there were.
#[derive(Debug)]
pub struct Failure {
    nth: u64,
    asks: AtomicU64,
}

impl<S: MemorySpace> FailNth<S> {
    /// Fails the `nth` of all calls to allocate, reserve and commit, counted from 1; 0 never fails.
    pub fn new(inner: S, nth: u64) -> Self {
        Self::around(inner, Failure { nth, asks: AtomicU64::new(0) })
    }

    /// How many calls asked for memory so far.
    pub fn asks(&self) -> u64 {
        self.hooks.asks.load(Ordering::Relaxed)
    }
}

impl SpaceHooks for Failure {
    fn before(&self, space: SpaceId, _ask: Ask, layout: Layout) -> Result<(), AllocError> {
        if self.asks.fetch_add(1, Ordering::Relaxed) + 1 == self.nth {
            let kind = AllocErrorKind::Refused { reason: "made to fail" };
            return Err(AllocError::new(space, layout, kind));
        }
        Ok(())
    }
}
