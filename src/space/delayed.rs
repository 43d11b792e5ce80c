//! A device made of host memory, whose work ends later than the call that queued it.
//!
//! Programs that free or reuse memory too early go wrong here, on any machine, as they would on a device.
//!
//! Deliberately absent: threads. Work is done, in order, by the first call to its queue after it is due.
//!
//! # Invariants
//! * **D1** The ranges of a piece of work are valid until it is done, says who queued it.

use super::{
    AllocError, Block, HostAccessible, MemorySpace, Queue, QueueError, SpaceId,
    queue::{GraphId, Piece},
};
use core::alloc::Layout;
use core::ptr::NonNull;
use core::time::Duration;
use std::collections::VecDeque;
use std::time::Instant;

/// A space as a device: the CPU does not reach it, and copies to and from it are queued and late.
///
/// # Examples
/// ```
/// use arenite::space::{Delayed, Piece, Queue};
/// use arenite::{HostSpace, MemorySpace, SpaceId};
/// use core::{alloc::Layout, ptr::NonNull, time::Duration};
///
/// let device = Delayed::new(HostSpace::new(), SpaceId::cuda(0), Duration::from_millis(5));
/// let block = device.allocate(Layout::new::<[u8; 4]>())?;
/// let mut queue = device.queue();
/// let (target, source) = (block.address(), NonNull::from(&[1u8, 2, 3, 4]).cast());
/// // SAFETY: four bytes each; the block lives until the queue was waited for.
/// unsafe { queue.upload(&[Piece { target, source, size_bytes: 4 }]) }?;
/// assert_eq!((queue.queued(), queue.done()), (1, 0)); // not yet
/// queue.synchronize()?;
/// assert_eq!(queue.done(), 1);
/// # // SAFETY: allocated above, the queue is done.
/// # unsafe { device.deallocate(block) };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Delayed<S> {
    inner: S,
    id: SpaceId,
    delay: Duration,
}

impl<S: HostAccessible> Delayed<S> {
    /// Memory of `inner` as a device called `id`, whose work takes `delay`.
    pub fn new(inner: S, id: SpaceId, delay: Duration) -> Self {
        Self { inner, id, delay }
    }

    /// The space within.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// A queue, as [`open_queue`](MemorySpace::open_queue) gives.
    pub fn queue(&self) -> DelayedQueue {
        DelayedQueue { space: self.id, delay: self.delay, waiting: VecDeque::new(), queued: 0 }
    }
}

// SAFETY: blocks come from the space within, which keeps the terms; that the CPU reaches them is not told.
unsafe impl<S: HostAccessible> MemorySpace for Delayed<S> {
    fn id(&self) -> SpaceId {
        self.id
    }

    fn host_accessible(&self) -> bool {
        false
    }

    fn open_queue(&self) -> Result<Option<Box<dyn Queue>>, QueueError> {
        Ok(Some(Box::new(self.queue())))
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        self.inner.allocate(layout).map_err(|error| error.with_space(self.id))
    }

    unsafe fn deallocate(&self, block: Block) {
        // SAFETY: the block came from the space within by way of `allocate`.
        unsafe { self.inner.deallocate(block) };
    }

    fn base_align(&self) -> usize {
        self.inner.base_align()
    }
}

/// One piece of work.
#[derive(Debug)]
enum Work {
    Upload { target: NonNull<u8>, bytes: Vec<u8> },
    Copy(Piece),
    Fill { target: NonNull<u8>, size_bytes: usize, byte: u8 },
}

/// In-order work of a [`Delayed`] space.
#[derive(Debug)]
pub struct DelayedQueue {
    space: SpaceId,
    delay: Duration,
    waiting: VecDeque<(Instant, Work)>,
    queued: u64,
}

// SAFETY: the queue owns its work; the addresses in it are reached by `unsafe` calls that argued for them.
unsafe impl Send for DelayedQueue {}

impl DelayedQueue {
    /// How many pieces of work were queued so far: a mark that [`done`](Self::done) reaches when all of them are.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// Does what is due; says how many pieces of work are done.
    pub fn done(&mut self) -> u64 {
        let now = Instant::now();
        while let Some((_, work)) = self.waiting.pop_front_if(|(due, _)| *due <= now) {
            perform(work);
        }
        self.queued - self.waiting.len() as u64
    }

    fn push(&mut self, work: Work) {
        self.waiting.push_back((Instant::now() + self.delay, work));
        self.queued += 1;
    }

    fn no_graphs(&self, call: &'static str) -> QueueError {
        QueueError { space: self.space, call, reason: "this device has no graphs".into() }
    }
}

fn perform(work: Work) {
    match work {
        Work::Upload { target, bytes } => {
            for (index, byte) in bytes.into_iter().enumerate() {
                // SAFETY: D1: the target has as many bytes as were taken.
                let place = unsafe { target.add(index) };
                // SAFETY: as above.
                unsafe { place.write(byte) };
            }
        }
        // SAFETY: D1: both ranges are valid; they may overlap.
        Work::Copy(Piece { target, source, size_bytes }) => unsafe { target.copy_from(source, size_bytes) },
        // SAFETY: D1: the range is valid.
        Work::Fill { target, size_bytes, byte } => unsafe { target.write_bytes(byte, size_bytes) },
    }
}

impl Queue for DelayedQueue {
    fn space(&self) -> SpaceId {
        self.space
    }

    fn raw_stream(&self) -> usize {
        0
    }

    unsafe fn upload(&mut self, pieces: &[Piece]) -> Result<(), QueueError> {
        for piece in pieces {
            // SAFETY: a readable host range, says the caller.
            let source = unsafe { core::slice::from_raw_parts(piece.source.as_ptr(), piece.size_bytes) };
            self.push(Work::Upload { target: piece.target, bytes: source.to_vec() });
        }
        Ok(())
    }

    unsafe fn download(&mut self, pieces: &[Piece]) -> Result<(), QueueError> {
        for &piece in pieces {
            self.push(Work::Copy(piece));
        }
        Ok(())
    }

    unsafe fn copy(&mut self, piece: Piece) -> Result<(), QueueError> {
        self.push(Work::Copy(piece));
        Ok(())
    }

    unsafe fn fill(&mut self, target: NonNull<u8>, size_bytes: usize, byte: u8) -> Result<(), QueueError> {
        self.push(Work::Fill { target, size_bytes, byte });
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), QueueError> {
        while let Some((due, work)) = self.waiting.pop_front() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            perform(work);
        }
        Ok(())
    }

    fn begin_capture(&mut self, _: &[NonNull<[u8]>]) -> Result<(), QueueError> {
        Err(self.no_graphs("begin_capture"))
    }

    fn end_capture(&mut self) -> Result<GraphId, QueueError> {
        Err(self.no_graphs("end_capture"))
    }

    unsafe fn replay(&mut self, _: GraphId, _: &[Piece], _: &[Piece]) -> Result<(), QueueError> {
        Err(self.no_graphs("replay"))
    }

    fn discard(&mut self, _graph: GraphId) {}
}
