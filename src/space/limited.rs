#![forbid(unsafe_code)]
//! A byte limit over any space.

use super::{
    AllocError, AllocErrorKind, Ask, Block, GiveBack, LimitSource, MemorySpace, SpaceHooks, SpaceId, Wrapped,
};
use core::alloc::Layout;
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
pub type Limited<S> = Wrapped<S, Limit>;

/// The limit of a [`Limited`] space, and what is held.
#[derive(Debug)]
pub struct Limit {
    limit_bytes: usize,
    live_bytes: Mutex<usize>,
}

impl<S: MemorySpace> Limited<S> {
    /// At most `limit_bytes` of `inner` at a time.
    pub fn new(inner: S, limit_bytes: usize) -> Self {
        Self::around(inner, Limit { limit_bytes, live_bytes: Mutex::new(0) })
    }

    /// The limit in bytes.
    pub fn limit_bytes(&self) -> usize {
        self.hooks.limit_bytes
    }

    /// The bytes held now.
    pub fn live_bytes(&self) -> usize {
        *self.hooks.live_bytes.lock()
    }
}

impl SpaceHooks for Limit {
    fn before(&self, space: SpaceId, ask: Ask, layout: Layout) -> Result<(), AllocError> {
        if ask == Ask::Reserve {
            return Ok(());
        }
        let mut live_bytes = self.live_bytes.lock();
        let free_bytes = self.limit_bytes - *live_bytes;
        if layout.size() > free_bytes {
            let kind =
                AllocErrorKind::OverLimit { limit_bytes: self.limit_bytes, source: LimitSource::Limited };
            let error = AllocError::new(space, layout, kind);
            return Err(error.with_live(*live_bytes).with_largest_free(free_bytes));
        }
        *live_bytes += layout.size();
        Ok(())
    }

    fn after(&self, _space: SpaceId, ask: Ask, layout: Layout, answer: Result<Block, &AllocError>) {
        if answer.is_err() && ask != Ask::Reserve {
            *self.live_bytes.lock() -= layout.size();
        }
    }

    fn given_back(&self, _space: SpaceId, what: GiveBack) {
        let bytes = match what {
            GiveBack::Block(block) | GiveBack::Decommit(block) => block.size_bytes(),
            GiveBack::Release(_, committed_bytes) => committed_bytes,
        };
        *self.live_bytes.lock() -= bytes;
    }
}
