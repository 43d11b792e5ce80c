#![forbid(unsafe_code)]
//! Whoever wants to know what a pool is asked.

use crate::space::{AllocError, Block, SpaceId, Tag};
use core::alloc::Layout;
use core::fmt;

/// Is told of every request of a pool, and of every block given back. [`Trace`](crate::trace::Trace) is one.
pub trait PoolObserver: Send + Sync + fmt::Debug {
    /// After a request was answered. The stream is 0 for none.
    fn taken(
        &self,
        space: SpaceId,
        pool: Tag,
        tag: Tag,
        stream: u16,
        layout: Layout,
        answer: Result<Block, &AllocError>,
    );

    /// Before a block is given back, so that nobody has its address yet.
    fn giving_back(&self, space: SpaceId, address: u64);
}
