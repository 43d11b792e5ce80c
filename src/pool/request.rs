#![forbid(unsafe_code)]
//! What is asked of a pool, and what it answers.

use super::{PoolBlock, PoolRef};
use core::alloc::Layout;
use core::fmt;

/// A stream of work whose memory is reused in its order. Made by [`Pool::add_stream`](super::Pool::add_stream).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    pub(super) pool: u32,
    pub(super) lane: u16,
}

impl Stream {
    /// Its lane, if it is of this pool.
    pub(super) fn lane_of(self, pool: u32) -> Option<u16> {
        (self.pool == pool).then_some(self.lane)
    }
}

/// A point of a stream: all work queued before it is done once it is reached. Later points have larger values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The stream.
    pub stream: Stream,
    /// How far.
    pub value: u64,
}

/// Whom a block counts for. Made by [`Pool::tag`](super::Pool::tag).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolTag {
    pub(super) pool: u32,
    pub(super) owner: u16,
}

/// What is asked of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub(super) layout: Layout,
    pub(super) stream: Option<Stream>,
    pub(super) tag: Option<PoolTag>,
    pub(super) may_grow: bool,
}

impl Request {
    /// A block for `layout`.
    pub const fn new(layout: Layout) -> Self {
        Self { layout, stream: None, tag: None, may_grow: true }
    }

    /// For work of this stream: it may have what it gave back itself, and can wait for what others did.
    #[must_use]
    pub const fn on(mut self, stream: Stream) -> Self {
        self.stream = Some(stream);
        self
    }

    /// Counts for this tag.
    #[must_use]
    pub const fn tagged(mut self, tag: PoolTag) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Takes nothing more from the space.
    #[must_use]
    pub const fn without_growth(mut self) -> Self {
        self.may_grow = false;
        self
    }
}

/// How a block may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// At once, by the stream it was asked for.
    Ready,
    /// At once, by anybody: it was just taken from the space.
    Fresh,
    /// By work that waits for this mark of another stream.
    NeedsWait(Mark),
}

/// A block, and how it may be used.
pub struct Acquired<P: PoolRef> {
    /// The block.
    pub block: PoolBlock<P>,
    /// How it may be used.
    pub readiness: Readiness,
}

impl<P: PoolRef> fmt::Debug for Acquired<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Acquired");
        out.field("block", &self.block).field("readiness", &self.readiness).finish()
    }
}
