//! A queue: work on one device, done in the order it was given.
//!
//! ```text
//!   host ──upload──► device ──(delegate's kernels)──► device ──download──► host     synchronize: all done
//! ```
//!
//! One method owns one queue; everything that touches the method's device memory goes through it, so that
//! memory is reused in queue order and the host waits once per run. Work that nothing of the host takes part in can
//! be left to the device, behind a [`Mark`]. Deliberately absent: which addresses
//! are valid; the caller says so where it binds them.

use super::SpaceId;
use core::ffi::c_void;
use core::fmt::Debug;
use core::ptr::NonNull;
use std::sync::Arc;

/// One range to copy. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where the bytes go.
    pub target: NonNull<u8>,
    /// Where they come from.
    pub source: NonNull<u8>,
    /// How many.
    pub size_bytes: usize,
}

// SAFETY: two addresses and a size; reaching the bytes takes `unsafe`, which argues for itself.
unsafe impl Send for Piece {}
// SAFETY: as above; a shared piece cannot be changed.
unsafe impl Sync for Piece {}

/// One launch of a kernel, as the driver of a device takes it.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// The driver's handle of the kernel.
    pub kernel: *mut c_void,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of each block along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of each block.
    pub shared_bytes: u32,
    /// The addresses of the arguments, which are read before the call returns.
    pub arguments: *mut *mut c_void,
    /// In the place of `arguments`: the driver's list of settings, where it is not null.
    pub extra: *mut *mut c_void,
}

/// Why work on a device could not be queued, or failed. The text names the call and what the driver said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{space}: {call} failed: {reason}")]
pub struct QueueError {
    /// The device.
    pub space: SpaceId,
    /// What was asked for.
    pub call: &'static str,
    /// What the driver said.
    pub reason: String,
}

/// Captured work, to be done again as one launch. Made by [`Queue::end_capture`], used on the same queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphId(pub u32);

/// A place in a queue's work: done once everything that was queued before it is.
pub trait Mark: Debug + Send + Sync {
    /// Whether the work before it is done.
    ///
    /// # Errors
    /// [`QueueError`]: what failed of that work.
    fn is_done(&self) -> Result<bool, QueueError>;

    /// Waits until the work before it is done.
    ///
    /// # Errors
    /// [`QueueError`]: what failed of that work.
    fn synchronize(&self) -> Result<(), QueueError>;

    /// Waits until all work of the device is done, whoever queued it.
    ///
    /// # Errors
    /// [`QueueError`]: what failed of that work.
    fn synchronize_device(&self) -> Result<(), QueueError>;

    /// Lets what a stream of this device is given from now on wait for it.
    ///
    /// # Safety
    /// * `stream` is the driver's handle of a live stream, or 0 for the default one.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    unsafe fn order(&self, stream: usize) -> Result<(), QueueError>;
}

fn one_stream(space: SpaceId, call: &'static str) -> QueueError {
    QueueError { space, call, reason: "this queue has no streams but its own".into() }
}

/// In-order work on one device.
///
/// Uploads take their source bytes before they return, unless the source is pinned; downloads write their
/// targets at the next [`Queue::synchronize`] at the latest. Neighbouring pieces of one call travel in one
/// copy where that is faster.
pub trait Queue: Send {
    /// The device.
    fn space(&self) -> SpaceId;

    /// The driver's handle of the stream, for delegates that give it work themselves; 0 where there is none. What
    /// it is given goes past a capture.
    fn raw_stream(&self) -> usize;

    /// Sends work to a stream of the caller's from now on, or with `None` to the queue's own again, in either case
    /// behind all that the queue was given before.
    ///
    /// # Safety
    /// * `stream` is the driver's handle of a stream of this device, or 0 for the default one, and lives until
    ///   [`Queue::synchronize`] or [`Queue::leave`].
    ///
    /// # Errors
    /// [`QueueError`] where the device has no such streams.
    unsafe fn switch(&mut self, stream: Option<usize>) -> Result<(), QueueError> {
        if stream.is_none() { Ok(()) } else { Err(one_stream(self.space(), "switch")) }
    }

    /// Whether bytes of the host take part in what was queued since the last [`Queue::synchronize`]: only where they
    /// do not may [`Queue::leave`] take its place. A queue without streams says yes.
    fn crosses_host(&self) -> bool {
        true
    }

    /// Leaves the work so far to the device, in the place of [`Queue::synchronize`], and goes back to the queue's own
    /// stream. Ranges of host memory must not take part in it.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    fn leave(&mut self) -> Result<Arc<dyn Mark>, QueueError> {
        Err(one_stream(self.space(), "leave"))
    }

    /// Queues copies from host to device.
    ///
    /// # Safety
    /// * Sources are readable host ranges, targets are device ranges of this queue's space.
    /// * Pinned sources stay unchanged, and all ranges valid, until [`Queue::synchronize`] returns.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    unsafe fn upload(&mut self, pieces: &[Piece]) -> Result<(), QueueError>;

    /// Queues copies from device to host.
    ///
    /// # Safety
    /// * Sources are device ranges of this queue's space, targets are writable host ranges.
    /// * All ranges stay valid, and targets are not read or written, until [`Queue::synchronize`] returns.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    unsafe fn download(&mut self, pieces: &[Piece]) -> Result<(), QueueError>;

    /// Queues a copy between ranges of this device.
    ///
    /// # Safety
    /// * Both are device ranges of this queue's space, valid until [`Queue::synchronize`] returns.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    unsafe fn copy(&mut self, piece: Piece) -> Result<(), QueueError>;

    /// Queues setting a device range to one byte.
    ///
    /// # Safety
    /// * `target` is a device range of this queue's space, valid until [`Queue::synchronize`] returns.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    unsafe fn fill(&mut self, target: NonNull<u8>, size_bytes: usize, byte: u8) -> Result<(), QueueError>;

    /// Queues a kernel.
    ///
    /// # Safety
    /// * The kernel is one of this device, and its arguments are what it takes.
    /// * All memory that it reaches stays valid until [`Queue::synchronize`] returns.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said; a queue without kernels.
    unsafe fn launch(&mut self, launch: &Launch) -> Result<(), QueueError> {
        let _ = launch;
        Err(QueueError {
            space: self.space(),
            call: "a launch",
            reason: "this queue launches no kernels".into(),
        })
    }

    /// Waits until everything queued is done and every download has arrived.
    ///
    /// # Errors
    /// [`QueueError`]: what failed, also of work queued long before. The queue is then of no further use.
    fn synchronize(&mut self) -> Result<(), QueueError>;

    /// Starts recording what is queued instead of doing it, until [`Queue::end_capture`]; anew where that goes on
    /// already. Other work of the process, on whatever stream and thread, goes on as always. `held` are ranges of pinned
    /// memory that every replay comes with again where it was captured: they are copied in place, all others by way of
    /// the graph's own memory.
    ///
    /// # Errors
    /// [`QueueError`] where the device has no graphs.
    fn begin_capture(&mut self, held: &[NonNull<[u8]>]) -> Result<(), QueueError>;

    /// Ends recording. After an error nothing is kept.
    ///
    /// # Errors
    /// [`QueueError`] where something that was queued cannot be recorded.
    fn end_capture(&mut self) -> Result<GraphId, QueueError>;

    /// Does recorded work again, with these pieces in the place of those uploaded and downloaded while it was
    /// recorded: same order, same sizes, same device ranges.
    ///
    /// # Safety
    /// As for [`Queue::upload`] and [`Queue::download`]; all device memory used while recording is still there, and the
    /// memory that was held.
    ///
    /// # Errors
    /// [`QueueError`] where the pieces differ in number or size, or the launch fails.
    unsafe fn replay(
        &mut self,
        graph: GraphId,
        uploads: &[Piece],
        downloads: &[Piece],
    ) -> Result<(), QueueError>;

    /// Forgets recorded work.
    fn discard(&mut self, graph: GraphId);
}
