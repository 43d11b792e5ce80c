//! In-order work on a CUDA device: [`CudaQueue`].
//!
//! Everything that it is asked to do goes to a stream, or while a graph is captured to that. Deliberately absent: more
//! than one stream at a time. Work of one queue is ordered by the stream alone; other streams are joined by events.
//!
//! # Invariants
//! * **Q1** Staging given out since the last synchronize is neither reused nor freed before the next one.
//! * **Q2** Staging of a graph lives as long as the graph.

use super::context::Device;
use super::driver::{DevicePtr, Driver, Failure, done};
use super::event::{CudaEvent, DefaultStream};
use super::graph::{Graph, Nodes, Recording};
use super::pinned::PinnedSpace;
use super::staging::Staging;
use crate::space::{GraphId, Launch, Mark, Piece, Queue, QueueError, SpaceId};
use core::cell::Cell;
use core::ffi::c_uint;
use core::ptr::NonNull;
use cudarc::driver::sys;
use std::collections::HashMap;
use std::sync::Arc;

/// In-order work on one CUDA device, on a stream of its own.
#[derive(Debug)]
pub struct CudaQueue {
    pub(super) device: &'static Device,
    own: Stream,
    /// The stream of a caller that work goes to at present.
    lent: Option<Stream>,
    /// Where work was left to the device, and the stream it is on, until it was waited for.
    left: Option<Left>,
    mark: Option<Arc<CudaEvent>>,
    default_mark: Option<Arc<DefaultStream>>,
    staging: Staging,
    pub(super) arrivals: Vec<Arrival>,
    /// Pieces in the order of their places, kept for its memory.
    pub(super) order: Vec<usize>,
    pub(super) recording: Option<Recording>,
    pub(super) graphs: HashMap<u32, Graph>,
    pub(super) graphs_made: u32,
    /// Whether work may be going on: something was queued, or could have been, since the last synchronize.
    pub(super) busy: Cell<bool>,
    crosses_host: Cell<bool>,
}

/// Work that was left to the device.
#[derive(Debug)]
enum Left {
    /// On a default stream.
    Default(DefaultStream),
    /// On a stream that may be gone by now.
    Marked(Arc<CudaEvent>),
}

/// A stream of the driver.
#[derive(Clone, Copy, Debug)]
struct Stream(sys::CUstream);

// SAFETY: a handle of the driver, which may be used from any thread.
unsafe impl Send for Stream {}

/// Bytes in staging that belong to a caller after the next synchronize.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) staged: NonNull<u8>,
    pub(super) target: NonNull<u8>,
    pub(super) size_bytes: usize,
}

// SAFETY: two addresses; reaching the bytes takes `unsafe`, which argues for itself.
unsafe impl Send for Arrival {}

pub(super) fn bits(address: NonNull<u8>) -> DevicePtr {
    address.addr().get() as DevicePtr
}

impl CudaQueue {
    /// A queue on device `index`.
    ///
    /// # Errors
    /// [`QueueError`] where there is no such device, or it gives no stream.
    pub fn new(index: u16) -> Result<Self, QueueError> {
        let space = SpaceId::cuda(index);
        let device =
            Device::open(index).map_err(|reason| QueueError { space, call: "opening a queue", reason })?;
        Self::on(device)
    }

    pub(super) fn on(device: &'static Device) -> Result<Self, QueueError> {
        let mut stream = core::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        let opened = device.enter().and_then(|_entered| {
            // SAFETY: a place for the result; the context is current.
            done(unsafe { (device.driver.stream_create)(&raw mut stream, flags) })
        });
        opened.map_err(|failure| error(device, "opening a queue", failure))?;
        Ok(Self {
            device,
            own: Stream(stream),
            lent: None,
            left: None,
            mark: None,
            default_mark: None,
            staging: Staging::new(PinnedSpace::on(device)),
            arrivals: Vec::new(),
            order: Vec::new(),
            recording: None,
            graphs: HashMap::new(),
            graphs_made: 0,
            busy: Cell::new(false),
            crosses_host: Cell::new(false),
        })
    }

    /// The device.
    pub fn device(&self) -> &'static Device {
        self.device
    }

    /// A mark in the queue's work, which other queues and the host can wait for.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    pub fn record(&mut self) -> Result<CudaEvent, QueueError> {
        CudaEvent::record(self.device, self.stream())
    }

    /// Lets what is queued from now on wait for a mark, also one of another device.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    pub fn wait(&mut self, event: &CudaEvent) -> Result<(), QueueError> {
        let _entered = self.enter_unrecorded("waiting for an event")?;
        // SAFETY: a live stream and a live event; the flags must be 0.
        done(unsafe { (self.device.driver.stream_wait)(self.stream(), event.raw(), 0) })
            .map_err(|failure| error(self.device, "waiting for an event", failure))
    }

    /// Queues a copy from another device's memory to this one's.
    ///
    /// # Safety
    /// * The target is a range of this device, the source one of `from`; both are valid until
    ///   [`Queue::synchronize`] returns, and work on the source is done or waited for.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    pub unsafe fn copy_from_peer(&mut self, piece: Piece, from: &Device) -> Result<(), QueueError> {
        let _entered = self.enter_unrecorded("a copy between devices")?;
        from.let_reach(self.device);
        self.busy.set(true);
        // SAFETY: valid ranges, by the caller; contexts that live as long as the process.
        done(unsafe {
            (self.device.driver.copy_peer_async)(
                bits(piece.target),
                self.device.context.0,
                bits(piece.source),
                from.context.0,
                piece.size_bytes,
                self.stream(),
            )
        })
        .map_err(|failure| error(self.device, "a copy between devices", failure))
    }

    /// Notes whether bytes of the host take part in work.
    pub(super) fn note_host(&self, crosses: bool) {
        self.crosses_host.set(self.crosses_host.get() || crosses);
    }

    /// The stream that work goes to.
    pub(super) fn stream(&self) -> sys::CUstream {
        self.lent.unwrap_or(self.own).0
    }

    /// Before what a graph cannot hold.
    fn enter_unrecorded(&mut self, call: &'static str) -> Result<super::context::Entered, QueueError> {
        if self.recording.is_some() {
            let reason = "it cannot be part of a graph, and one is being captured".into();
            return Err(QueueError { space: self.device.space_id(), call, reason });
        }
        self.enter(call)
    }

    /// Does work now, or adds it to the graph that is being captured.
    pub(super) fn work(
        &mut self,
        call: &'static str,
        now: impl FnOnce(&Driver, sys::CUstream) -> c_uint,
        node: impl FnOnce(&mut Nodes) -> Result<(), Failure>,
    ) -> Result<(), QueueError> {
        let outcome = if let Some(recording) = &mut self.recording {
            node(&mut recording.nodes)
        } else {
            self.busy.set(true);
            done(now(self.device.driver, self.stream()))
        };
        outcome.map_err(|failure| error(self.device, call, failure))
    }

    /// Before every call on the stream. What was left on another one comes first.
    pub(super) fn enter(&mut self, call: &'static str) -> Result<super::context::Entered, QueueError> {
        if !self.device.is_usable() {
            let reason = "CUDA cannot be used in a forked process".into();
            return Err(QueueError { space: self.device.space_id(), call, reason });
        }
        let entered = self.device.enter().map_err(|failure| error(self.device, call, failure))?;
        if let Some(left) = self.left.take() {
            let here = self.stream().addr();
            let mark: &dyn Mark = match &left {
                Left::Default(stream) => stream,
                Left::Marked(mark) => &**mark,
            };
            // SAFETY: the stream that work goes to is live.
            unsafe { mark.order(here) }?;
        }
        Ok(entered)
    }

    /// Staging that nothing else uses until the next synchronize, or the end of the graph being captured.
    pub(super) fn stage(&mut self, size_bytes: usize) -> Result<NonNull<u8>, QueueError> {
        let staging =
            self.recording.as_mut().map_or(&mut self.staging, |recording| &mut recording.crossings.staging);
        staging.take(size_bytes).map_err(|refused| QueueError {
            space: self.device.space_id(),
            call: "staging",
            reason: refused.to_string(),
        })
    }

    /// Waits for what may still use staging, and stays on the same stream.
    pub(super) fn settle(&mut self) -> Result<(), QueueError> {
        let lent = self.lent;
        let waited = if self.busy.get() { self.synchronize() } else { Ok(()) };
        self.lent = lent;
        waited
    }

    pub(super) fn wait_for_work(&mut self) -> Result<(), QueueError> {
        let _entered = self.enter("waiting for the queue")?;
        // SAFETY: a live stream.
        done(unsafe { (self.device.driver.stream_synchronize)(self.stream()) })
            .map_err(|failure| error(self.device, "waiting for the queue", failure))
    }
}

pub(super) fn error(device: &Device, call: &'static str, failure: Failure) -> QueueError {
    QueueError { space: device.space_id(), call, reason: failure.to_string() }
}

impl Queue for CudaQueue {
    fn space(&self) -> SpaceId {
        self.device.space_id()
    }

    unsafe fn switch(&mut self, stream: Option<usize>) -> Result<(), QueueError> {
        let next = stream.map(|raw| Stream(core::ptr::with_exposed_provenance_mut(raw)));
        if next.unwrap_or(self.own).0 == self.stream() {
            return Ok(());
        }
        if self.left.is_none() && self.busy.get() {
            self.leave()?;
        }
        self.lent = next;
        Ok(())
    }

    fn crosses_host(&self) -> bool {
        self.crosses_host.get()
    }

    fn leave(&mut self) -> Result<Arc<dyn Mark>, QueueError> {
        let _entered = self.enter_unrecorded("leaving work to the device")?;
        let stream = self.stream().addr();
        if DefaultStream::is(stream) {
            let device = self.device;
            self.left = Some(Left::Default(DefaultStream { device, stream }));
            self.lent = None;
            let mark = self.default_mark.get_or_insert_with(|| Arc::new(DefaultStream { device, stream }));
            if mark.stream != stream {
                *mark = Arc::new(DefaultStream { device, stream });
            }
            return Ok(Arc::clone(mark) as _);
        }
        let mark = match &self.mark {
            Some(mark) => Arc::clone(mark),
            None => Arc::clone(self.mark.insert(Arc::new(CudaEvent::new(self.device)?))),
        };
        mark.record_again(self.stream())?;
        self.left = Some(Left::Marked(Arc::clone(&mark)));
        self.lent = None;
        Ok(mark)
    }

    fn raw_stream(&self) -> usize {
        // Whoever asks may queue work.
        self.busy.set(true);
        self.stream().addr()
    }

    unsafe fn upload(&mut self, pieces: &[Piece]) -> Result<(), QueueError> {
        // SAFETY: by the caller.
        unsafe { self.upload_pieces(pieces) }
    }

    unsafe fn download(&mut self, pieces: &[Piece]) -> Result<(), QueueError> {
        // SAFETY: by the caller.
        unsafe { self.download_pieces(pieces) }
    }

    unsafe fn copy(&mut self, piece: Piece) -> Result<(), QueueError> {
        if piece.size_bytes == 0 {
            return Ok(());
        }
        let Piece { target, source, size_bytes } = piece;
        let _entered = self.enter("a copy on the device")?;
        self.work(
            "a copy on the device",
            // SAFETY: two ranges that the device reaches, valid until it is done, by the caller.
            |driver, stream| unsafe { (driver.copy_async)(bits(target), bits(source), size_bytes, stream) },
            |nodes| nodes.add_copy(piece),
        )
    }

    unsafe fn fill(&mut self, target: NonNull<u8>, size_bytes: usize, byte: u8) -> Result<(), QueueError> {
        if size_bytes == 0 {
            return Ok(());
        }
        let _entered = self.enter("a fill on the device")?;
        self.work(
            "a fill on the device",
            // SAFETY: a device range, valid until the work is done, by the caller.
            |driver, stream| unsafe { (driver.fill_async)(bits(target), byte, size_bytes, stream) },
            |nodes| nodes.add_fill(target, size_bytes, byte),
        )
    }

    unsafe fn launch(&mut self, launch: &Launch) -> Result<(), QueueError> {
        let _entered = self.enter("a launch")?;
        let Launch { kernel, grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes, arguments, extra } =
            *launch;
        self.work(
            "a launch",
            // SAFETY: a kernel of this device with its arguments, and what it reaches is valid, by the caller.
            |driver, stream| unsafe {
                let kernel = kernel.cast();
                (driver.launch)(kernel, gx, gy, gz, bx, by, bz, shared_bytes, stream, arguments, extra)
            },
            |nodes| nodes.add_kernel(launch),
        )
    }

    fn synchronize(&mut self) -> Result<(), QueueError> {
        if self.recording.is_some() {
            return self.enter_unrecorded("waiting for the queue").map(drop);
        }
        let waited = self.wait_for_work();
        if waited.is_ok() {
            for arrival in &self.arrivals {
                let Arrival { staged, target, size_bytes } = *arrival;
                if staged == target {
                    continue;
                }
                // SAFETY: the copy into the staging is done; the target is writable, by the contract of
                // `download`; they are apart or overlap.
                unsafe { target.copy_from(staged, size_bytes) };
            }
        }
        self.arrivals.clear();
        self.staging.reset();
        self.busy.set(false);
        self.crosses_host.set(false);
        self.lent = None;
        waited
    }

    fn begin_capture(&mut self, held: &[NonNull<[u8]>]) -> Result<(), QueueError> {
        self.begin_recording(held)
    }

    fn end_capture(&mut self) -> Result<GraphId, QueueError> {
        self.end_recording()
    }

    unsafe fn replay(
        &mut self,
        graph: GraphId,
        uploads: &[Piece],
        downloads: &[Piece],
    ) -> Result<(), QueueError> {
        // SAFETY: by the caller.
        unsafe { self.replay_graph(graph, uploads, downloads) }
    }

    fn discard(&mut self, graph: GraphId) {
        if let Some(known) = self.graphs.remove(&graph.0) {
            // The staging goes with it, so its work must be done. A failure shows at the next call.
            drop(self.wait_for_work());
            drop(known);
        }
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        // Whoever drops a queue frees its memory next: wait. There is nobody to tell of a failure.
        drop(self.wait_for_work());
        if let Ok(_entered) = self.device.enter()
            && self.device.is_usable()
        {
            // SAFETY: a live stream, destroyed once.
            super::context::note_free(done(unsafe { (self.device.driver.stream_destroy)(self.own.0) }));
        }
    }
}
