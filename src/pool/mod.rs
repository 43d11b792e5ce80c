//! Pools: blocks that are taken and given back one by one, in any order, from any thread.
//!
//! ```text
//!   extent of the space   │ live ▓▓ │ free │ live ▓ │ free ······│      merged when given back
//!   books, beside it      size classes ─► free ranges; live, peak and count, for each tag
//! ```
//!
//! A pool takes large extents from a space and cuts blocks out of them, in constant time and without a word
//! written into them, so that it serves memory the CPU cannot reach. What a thread gave back last it has again
//! without a lock. A [`PoolBlock`] gives its block back when
//! it is dropped; where an owner cannot be kept, [`PoolKey`] stands for one, and is refused when it is used
//! twice or on another pool.
//!
//! # Streams
//!
//! Work on a device ends later than the call that started it. A block can be given back *after a mark*: a
//! stream and a number on it, which only grow ([`PoolBlock::release_after`]). The same stream may have the
//! block again at once, since its work is in order; any other gets it when [`Pool::advance`] said that the mark
//! was reached, or, if it can wait, together with the mark to wait for ([`Readiness::NeedsWait`]).
//!
//! Deliberately absent: events. A mark is a number; which event of a driver stands for it is the caller's.

// Invariants:
// * **P1** Every live node is held by one [`PoolBlock`], by one block of the pool as a space, or kept in a
//   magazine; every keyed one by a [`PoolKey`].
// * **P2** `live_bytes` is the sum of the tags' live bytes, and of the sizes of the live nodes.
// * **P3** An extent in the list came from `allocate` of the space and was not given back.

mod barrier;
mod extents;
mod handle;
mod ledger;
mod magazine;
mod observer;
mod request;
mod slow;
mod space;

pub use handle::{PoolBlock, PoolKey, PoolKeyError, PoolRef};
pub use ledger::{PoolStats, PoolTagStats};
pub use observer::PoolObserver;
pub use request::{Acquired, Mark, PoolTag, Readiness, Request, Stream};

use crate::align::checked_align_up;
use crate::space::{AllocError, AllocErrorKind, Block, MemorySpace, Tag};
use crate::tlsf::{NONE, READY, State as NodeState, Tlsf};
use core::alloc::Layout;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use extents::Extents;
use ledger::Ledger;
use magazine::Magazines;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

/// The least a pool takes from its space at a time unless told otherwise, in bytes.
const STEP_BYTES: usize = 64 << 10;

/// Frees memory elsewhere when a pool finds none; says how many bytes, 0 to give up.
type Rescue = Box<dyn Fn(&AllocError) -> usize + Send + Sync>;

/// A pool over any memory space: blocks of any size, taken and given back in any order from any thread.
///
/// # Examples
/// ```
/// use arenite::{HostSpace, Pool};
/// use core::alloc::Layout;
///
/// let pool = Pool::new(HostSpace::new()).with_name("scratch").with_limit(1 << 20);
/// let first = pool.allocate(Layout::from_size_align(1000, 64)?)?;
/// let second = pool.allocate(Layout::from_size_align(300, 256)?)?;
/// assert_eq!(second.block().address_bits() % 256, 0);
/// drop(first); // in any order
/// assert_eq!(pool.stats().blocks, 1);
///
/// let error = pool.allocate(Layout::from_size_align(2 << 20, 64)?).unwrap_err();
/// assert_eq!(error.limit_bytes(), Some(1 << 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "caching allocator")]
#[doc(alias = "suballocator")]
pub struct Pool<S: MemorySpace> {
    id: u32,
    name: Tag,
    limit_bytes: usize,
    step_bytes: usize,
    granule: usize,
    rescue: Option<Rescue>,
    observer: Option<Box<dyn PoolObserver>>,
    magazines: Magazines,
    state: Mutex<State>,
    space: S,
}

#[derive(Debug)]
struct State {
    tlsf: Tlsf,
    extents: Extents,
    ledger: Ledger,
    /// For each lane, the mark that was reached.
    reached: Vec<u64>,
    /// Bytes that threads are asking the space for just now.
    growing_bytes: usize,
    /// Live nodes by address, of blocks that were taken through [`MemorySpace`].
    addresses: HashMap<u64, u32>,
}

/// A node that was taken, and how it may be used.
type Taken = (u32, Readiness);

impl<S: MemorySpace> Pool<S> {
    /// A pool that takes memory from `space` when it first needs some.
    pub fn new(space: S) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let align = space.base_align().max(16);
        let granule = align.checked_next_power_of_two().unwrap_or(1 << (usize::BITS - 1));
        let state = State {
            tlsf: Tlsf::new(granule),
            extents: Extents::default(),
            ledger: Ledger::new(),
            reached: vec![u64::MAX],
            growing_bytes: 0,
            addresses: HashMap::new(),
        };
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name: Tag::NONE,
            limit_bytes: usize::MAX,
            step_bytes: STEP_BYTES,
            granule,
            rescue: None,
            observer: None,
            magazines: Magazines::new(),
            state: Mutex::new(state),
            space,
        }
    }

    /// Names it, for errors and reports.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Tag>) -> Self {
        self.name = name.into();
        self
    }

    /// Holds at most `limit_bytes` of the space, blocks and free ranges together.
    #[must_use]
    pub fn with_limit(mut self, limit_bytes: usize) -> Self {
        self.limit_bytes = limit_bytes;
        self
    }

    /// Takes at least `step_bytes` from the space at a time where it has them; 64 KiB unless said.
    #[must_use]
    pub fn with_step(mut self, step_bytes: usize) -> Self {
        self.step_bytes = step_bytes;
        self
    }

    /// Calls `rescue` when nothing else helped: it frees what it can, says how many bytes, and the request is
    /// tried once more.
    ///
    /// # Examples
    /// ```
    /// use arenite::{HostSpace, Pool};
    /// use core::alloc::Layout;
    /// use parking_lot::{Mutex, MutexGuard};
    /// use std::sync::Arc;
    ///
    /// let cache = Arc::new(Mutex::new(Vec::new()));
    /// let spare = Arc::clone(&cache);
    /// let pool = Pool::new(HostSpace::new())
    ///     .with_limit(64 << 10)
    ///     .with_rescue(move |_| std::mem::take(&mut *spare.lock()).len());
    /// let pool = Arc::new(pool);
    /// cache.lock().push(pool.allocate_owned(Layout::new::<[u8; 60_000]>())?);
    /// assert!(pool.allocate(Layout::new::<[u8; 60_000]>()).is_ok()); // the cache gave way
    /// # Ok::<(), arenite::AllocError>(())
    /// ```
    #[must_use]
    pub fn with_rescue(mut self, rescue: impl Fn(&AllocError) -> usize + Send + Sync + 'static) -> Self {
        self.rescue = Some(Box::new(rescue));
        self
    }

    /// Tells `observer` of every request and every block given back.
    #[must_use]
    pub fn with_observer(mut self, observer: impl PoolObserver + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// The space its memory is from.
    pub fn space(&self) -> &S {
        &self.space
    }

    /// A block for `layout`, that no work of any stream uses.
    ///
    /// # Errors
    /// [`AllocError`] where neither the pool nor its space has room, or a limit is in the way.
    #[inline]
    pub fn allocate(&self, layout: Layout) -> Result<PoolBlock<&Self>, AllocError> {
        match self.take_kept(layout) {
            Some((block, at)) => Ok(PoolBlock::new(self, block, at, 0)),
            None => self.allocate_locked(layout),
        }
    }

    /// The same, with the books. What is not inlined writes the answer where it belongs.
    #[inline(never)]
    fn allocate_locked(&self, layout: Layout) -> Result<PoolBlock<&Self>, AllocError> {
        let (block, at) = self.take(layout)?;
        Ok(PoolBlock::new(self, block, at, 0))
    }

    /// The same, that keeps the pool alive.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn allocate_owned(self: &Arc<Self>, layout: Layout) -> Result<PoolBlock<Arc<Self>>, AllocError> {
        let (block, at) = self.take(layout)?;
        Ok(PoolBlock::new(Arc::clone(self), block, at, 0))
    }

    /// A block as `request` says: for a tag, on a stream, without growing.
    ///
    /// # Examples
    /// ```
    /// use arenite::{HostSpace, Mark, Pool, Readiness, Request};
    /// use core::alloc::Layout;
    ///
    /// let pool = Pool::new(HostSpace::new());
    /// let (compute, copies) = (pool.add_stream()?, pool.add_stream()?);
    /// let layout = Layout::from_size_align(60_000, 64)?;
    ///
    /// let first = pool.acquire(&Request::new(layout).on(compute))?;
    /// assert_eq!(first.readiness, Readiness::Fresh);
    /// let done = Mark { stream: compute, value: 7 };
    /// first.block.release_after(done); // work up to 7 may still use it
    ///
    /// let other = pool.acquire(&Request::new(layout).on(copies).without_growth())?;
    /// assert_eq!(other.readiness, Readiness::NeedsWait(done));
    /// drop(other);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AllocError`]: its kind tells *exhausted* ([`AllocErrorKind::NotNow`]) from *over budget*
    /// ([`AllocErrorKind::OverLimit`]).
    pub fn acquire(&self, request: &Request) -> Result<Acquired<&Self>, AllocError> {
        let (block, at, owner, readiness) = self.take_for(request)?;
        Ok(Acquired { block: PoolBlock::new(self, block, at, owner), readiness })
    }

    /// The same, that keeps the pool alive.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn acquire_owned(self: &Arc<Self>, request: &Request) -> Result<Acquired<Arc<Self>>, AllocError> {
        let (block, at, owner, readiness) = self.take_for(request)?;
        Ok(Acquired { block: PoolBlock::new(Arc::clone(self), block, at, owner), readiness })
    }

    /// Gives back what a key stands for.
    ///
    /// # Errors
    /// [`PoolKeyError`] where the key is of another pool, or was used before. Nothing has changed then.
    pub fn free(&self, key: PoolKey) -> Result<(), PoolKeyError> {
        self.free_in(key, READY, 0)
    }

    /// Gives back what a key stands for, once a mark is reached.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn free_after(&self, key: PoolKey, mark: Mark) -> Result<(), PoolKeyError> {
        let lane = mark.stream.lane_of(self.id).ok_or(PoolKeyError::Foreign)?;
        self.free_in(key, lane, mark.value)
    }

    fn free_in(&self, key: PoolKey, lane: u16, mark: u64) -> Result<(), PoolKeyError> {
        if key.pool != self.id {
            return Err(PoolKeyError::Foreign);
        }
        if key.node == NONE {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.tlsf.keyed(key.node, key.generation).ok_or(PoolKeyError::Stale)?;
        self.tell_giving_back(&state, key.node);
        state.give(key.node, lane, mark);
        Ok(())
    }

    /// A stream of work: memory that it gave back it may have again without waiting.
    ///
    /// # Errors
    /// [`AllocError`] where there are 65,535 already.
    pub fn add_stream(&self) -> Result<Stream, AllocError> {
        let mut state = self.state.lock();
        let kind = AllocErrorKind::Refused { reason: "a pool has at most 65535 streams" };
        let lane = state.tlsf.add_lane();
        let lane = lane.ok_or_else(|| AllocError::new(self.space.id(), Layout::new::<()>(), kind))?;
        state.reached.push(0);
        Ok(Stream { pool: self.id, lane })
    }

    /// Says that all work up to `mark` is done. A mark of another pool, or one passed before, says nothing.
    pub fn advance(&self, mark: Mark) {
        if let Some(lane) = mark.stream.lane_of(self.id)
            && let Some(reached) = self.state.lock().reached.get_mut(usize::from(lane))
        {
            *reached = (*reached).max(mark.value);
        }
    }

    /// A tag, to count for; the same name gives the same tag.
    ///
    /// # Errors
    /// [`AllocError`] where there are 65,535 already.
    pub fn tag(&self, name: impl Into<Tag>) -> Result<PoolTag, AllocError> {
        let owner = self.state.lock().ledger.owner(name.into());
        let kind = AllocErrorKind::Refused { reason: "a pool has at most 65535 tags" };
        let owner = owner.ok_or_else(|| AllocError::new(self.space.id(), Layout::new::<()>(), kind))?;
        Ok(PoolTag { pool: self.id, owner })
    }

    /// At most `limit_bytes` are live for this tag at a time.
    ///
    /// # Errors
    /// As [`tag`](Self::tag).
    pub fn tag_with_limit(&self, name: impl Into<Tag>, limit_bytes: usize) -> Result<PoolTag, AllocError> {
        let tag = self.tag(name)?;
        self.state.lock().ledger.limit(tag.owner, limit_bytes);
        Ok(tag)
    }

    /// What is held and given out.
    pub fn stats(&self) -> PoolStats {
        let state = self.settled();
        let mut stats = state.ledger.stats;
        stats.capacity_bytes = state.extents.bytes();
        stats.extents = state.extents.len();
        stats
    }

    /// What is live for each tag, the untagged first.
    pub fn tags(&self) -> Vec<PoolTagStats> {
        self.settled().ledger.owners().to_vec()
    }

    /// Starts every peak anew from what is live now.
    pub fn reset_peak(&self) {
        self.settled().ledger.reset_peak();
    }

    /// Joins what can be joined, and gives whole unused extents back to the space; says how many bytes.
    pub fn trim(&self) -> usize {
        self.trim_to(0)
    }

    /// The same, until about `keep_bytes` are held.
    pub fn trim_to(&self, keep_bytes: usize) -> usize {
        let surplus_bytes = {
            let mut state = self.settled();
            state.drain();
            state.extents.bytes().saturating_sub(keep_bytes)
        };
        let (mut from, mut given_bytes) = (0, 0);
        // One by one: a list of them would take memory where there is none. The space is called outside the lock.
        loop {
            let gone = self.state.lock().whole_extent(&mut from, surplus_bytes - given_bytes);
            let Some(block) = gone else { return given_bytes };
            given_bytes += block.size_bytes();
            self.give_extent_back(block);
        }
    }

    /// The size that `layout` takes: a multiple of the granule. `None` where none can.
    #[inline(always)]
    fn rounded(&self, layout: Layout) -> Option<usize> {
        checked_align_up(layout.size(), self.granule)
    }

    /// The books, with nothing kept beside them.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        self.magazines.empty(|at| state.give(at, READY, 0));
        state
    }

    /// What this thread gave back last, if it fits. The hot path.
    #[inline(always)]
    fn take_kept(&self, layout: Layout) -> Option<(Block, u32)> {
        if self.observer.is_some() {
            return None;
        }
        let (address, at) = self.magazines.take(0, layout.size(), layout.align())?;
        Some((Block::new(address, layout), at))
    }

    /// A block without a stream.
    fn take(&self, layout: Layout) -> Result<(Block, u32), AllocError> {
        let (block, at, ..) = self.take_for(&Request::new(layout))?;
        Ok((block, at))
    }

    /// A free range that needs no wait, booked.
    fn take_ready(&self, layout: Layout, lane: Option<u16>, owner: u16) -> Option<(Block, u32)> {
        let size = self.rounded(layout).filter(|&size| size > 0)?;
        let mut state = self.state.lock();
        if !state.ledger.may(owner, size) {
            return None;
        }
        let at = state.take_ready(lane, size, layout.align())?;
        Some((state.hand_out(at, layout, owner), at))
    }

    fn take_for(&self, request: &Request) -> Result<(Block, u32, u16, Readiness), AllocError> {
        let layout = request.layout;
        let other = || {
            let kind = AllocErrorKind::Refused { reason: "the stream or tag is of another pool" };
            AllocError::new(self.space.id(), layout, kind)
        };
        let lane = request.stream.map(|stream| stream.lane_of(self.id).ok_or_else(other)).transpose()?;
        let owner = match request.tag {
            Some(tag) if tag.pool != self.id => return Err(other()),
            Some(tag) => tag.owner,
            None => 0,
        };
        let answer = self.take_in(request, lane, owner);
        if let Some(observer) = &self.observer {
            let tag = self.state.lock().ledger.of(owner).tag;
            let told = answer.as_ref().map(|&(block, ..)| block);
            observer.taken(self.space.id(), self.name, tag, lane.unwrap_or(0), layout, told);
        }
        answer
    }

    fn take_in(
        &self,
        request: &Request,
        lane: Option<u16>,
        owner: u16,
    ) -> Result<(Block, u32, u16, Readiness), AllocError> {
        let layout = request.layout;
        if lane.is_none()
            && let Some((address, at)) = self.magazines.take(owner, layout.size(), layout.align())
        {
            return Ok((Block::new(address, layout), at, owner, Readiness::Ready));
        }
        match self.take_ready(layout, lane, owner) {
            Some((block, at)) => Ok((block, at, owner, Readiness::Ready)),
            None => self.take_slowly(request, lane, owner),
        }
    }

    /// A block of no bytes: nothing stands behind it.
    fn empty(layout: Layout) -> (Block, u32, u16, Readiness) {
        (Block::empty(layout), NONE, 0, Readiness::Ready)
    }

    /// Takes back what nothing uses any more.
    #[inline]
    fn give(&self, block: Block, at: u32, owner: u16) {
        if at != NONE
            && let Some(observer) = &self.observer
        {
            observer.giving_back(self.space.id(), block.address_bits());
        }
        if at != NONE && !self.magazines.keep(block.address(), at, owner, block.size_bytes()) {
            self.give_locked(at);
        }
    }

    /// The same under the lock. Out of line, so that dropping a block that a magazine keeps is a few steps in place.
    #[inline(never)]
    fn give_locked(&self, at: u32) {
        self.state.lock().give(at, READY, 0);
    }

    /// Takes back what work up to a mark may still use.
    fn give_after(&self, at: u32, lane: u16, mark: u64) {
        if at != NONE {
            let mut state = self.state.lock();
            self.tell_giving_back(&state, at);
            state.give(at, lane, mark);
        }
    }

    fn tell_giving_back(&self, state: &State, at: u32) {
        if let Some(observer) = &self.observer {
            observer.giving_back(self.space.id(), state.tlsf.node(at).start as u64);
        }
    }

    /// A key for a live block.
    fn key(&self, at: u32) -> PoolKey {
        let mut generation = 0;
        if at != NONE {
            let mut state = self.state.lock();
            let node = state.tlsf.node_mut(at);
            node.state = NodeState::Keyed;
            generation = node.generation;
        }
        PoolKey { pool: self.id, node: at, generation }
    }
}

impl State {
    /// A free range that needs no wait: of the stream itself, or of nobody.
    fn take_ready(&mut self, lane: Option<u16>, size: usize, align: usize) -> Option<u32> {
        let own = lane.and_then(|lane| self.tlsf.take(lane, size, align));
        own.or_else(|| self.tlsf.take(READY, size, align))
    }

    /// Books a node that was taken, and says where it is.
    #[inline(always)]
    fn hand_out(&mut self, at: u32, layout: Layout, owner: u16) -> Block {
        let node = self.tlsf.node_mut(at);
        node.mark = layout.size() as u64;
        node.owner = owner;
        let (start, size, extent) = (node.start, node.size, node.extent);
        self.ledger.add(owner, size, layout.size());
        Block::new(self.extents.address(extent, start), layout)
    }

    /// Takes a live node back.
    #[inline(always)]
    fn give(&mut self, at: u32, lane: u16, mark: u64) {
        let node = self.tlsf.node(at);
        let asked_bytes = usize::try_from(node.mark).unwrap_or(0);
        self.ledger.remove(node.owner, node.size, asked_bytes);
        self.tlsf.give(at, lane, mark);
    }

    /// Makes ready whatever marks were reached; says how many bytes.
    fn drain(&mut self) -> usize {
        let reached = &self.reached;
        self.tlsf.drain(|lane| reached.get(usize::from(lane)).copied().unwrap_or(0))
    }
}

impl<S: MemorySpace> fmt::Debug for Pool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Pool");
        out.field("name", &self.name)
            .field("space", &self.space)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<S: MemorySpace> Drop for Pool<S> {
    fn drop(&mut self) {
        let all = self.state.get_mut().extents.take_all();
        all.for_each(|block| self.give_extent_back(block));
    }
}
