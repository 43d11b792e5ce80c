//! In-order work on a CUDA device: [`CudaQueue`].
//!
//! ```text
//!   upload:    caller's bytes ─memcpy─► pinned staging ─one copy per run of neighbours─► device
//!   download:  device ─copy─► pinned staging ─memcpy at synchronize─► caller's bytes
//! ```
//!
//! Pinned ranges are copied directly. So are large pageable ones: the driver's own staging overlaps with its
//! copies and beats copying twice. Deliberately absent: more than one stream. Work of one queue is ordered by
//! the stream alone; other streams are joined by events.
//!
//! # Invariants
//! * **Q1** Staging given out since the last synchronize is neither reused nor freed before the next one.
//! * **Q2** Staging of a graph lives as long as the graph.

use super::context::Device;
use super::driver::{DevicePtr, Failure, done};
use super::event::CudaEvent;
use super::pinned::{PinnedSpace, is_pinned};
use super::staging::Staging;
use crate::space::{GraphId, Piece, Queue, QueueError, SpaceId};
use core::ffi::c_void;
use core::ptr::NonNull;
use cudarc::driver::sys;
use std::collections::HashMap;

/// Above this, pageable bytes are left to the driver, in bytes. Measured on an H200: 64 KiB travel as fast
/// either way, 1 MiB is faster by the driver.
const STAGED_BYTES_MAX: usize = 256 << 10;

/// In-order work on one CUDA device, on a stream of its own.
#[derive(Debug)]
pub struct CudaQueue {
    device: &'static Device,
    stream: Stream,
    staging: Staging,
    arrivals: Vec<Arrival>,
    order: Vec<usize>,
    recording: Option<Recording>,
    graphs: HashMap<u32, Graph>,
    graphs_made: u32,
    /// Whether a graph was launched since the last synchronize: its staging is on its way.
    replaying: bool,
}

/// A stream of the driver.
#[derive(Debug)]
struct Stream(sys::CUstream);

// SAFETY: a handle of the driver, which may be used from any thread.
unsafe impl Send for Stream {}

/// Bytes in staging that belong to a caller after the next synchronize.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    staged: NonNull<u8>,
    target: NonNull<u8>,
    size_bytes: usize,
}

// SAFETY: two addresses; reaching the bytes takes `unsafe`, which argues for itself.
unsafe impl Send for Arrival {}

/// A place in a graph's staging that one piece goes through.
#[derive(Clone, Copy, Debug)]
struct Slot {
    staged: NonNull<u8>,
    device: NonNull<u8>,
    size_bytes: usize,
}

// SAFETY: as for `Arrival`.
unsafe impl Send for Slot {}

/// What is being captured.
#[derive(Debug)]
struct Recording {
    uploads: Vec<Slot>,
    downloads: Vec<Slot>,
    staging: Staging,
}

/// What was captured.
#[derive(Debug)]
struct Graph {
    executable: GraphHandle,
    recording: Recording,
}

/// An executable graph of the driver.
#[derive(Debug)]
struct GraphHandle(sys::CUgraphExec);

// SAFETY: a handle of the driver, used by one thread at a time: its owner is not `Sync` here.
unsafe impl Send for GraphHandle {}

fn bits(address: NonNull<u8>) -> DevicePtr {
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
            stream: Stream(stream),
            staging: Staging::new(PinnedSpace::on(device)),
            arrivals: Vec::new(),
            order: Vec::new(),
            recording: None,
            graphs: HashMap::new(),
            graphs_made: 0,
            replaying: false,
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
        CudaEvent::record(self.device, self.stream.0)
    }

    /// Lets what is queued from now on wait for a mark, also one of another device.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    pub fn wait(&mut self, event: &CudaEvent) -> Result<(), QueueError> {
        let _entered = self.enter("waiting for an event")?;
        // SAFETY: a live stream and a live event; the flags must be 0.
        done(unsafe { (self.device.driver.stream_wait)(self.stream.0, event.raw(), 0) })
            .map_err(|failure| error(self.device, "waiting for an event", failure))
    }

    /// Lets what is queued from now on wait for what another stream of this device was given so far, as a
    /// caller's `stream=` argument or a producer of a shared tensor wants.
    ///
    /// # Safety
    /// * `stream` is null (the default stream) or a live stream of this device.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    pub unsafe fn join(&mut self, stream: *mut c_void) -> Result<(), QueueError> {
        let event = CudaEvent::record(self.device, stream.cast())?;
        self.wait(&event)
    }

    /// Lets another stream of this device wait for what this queue was given so far.
    ///
    /// # Safety
    /// * `stream` is null (the default stream) or a live stream of this device.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    pub unsafe fn release_to(&mut self, stream: *mut c_void) -> Result<(), QueueError> {
        let event = self.record()?;
        let _entered = self.enter("ordering a stream")?;
        // SAFETY: a live stream, by the caller, and a live event; the flags must be 0.
        done(unsafe { (self.device.driver.stream_wait)(stream.cast(), event.raw(), 0) })
            .map_err(|failure| error(self.device, "ordering a stream", failure))
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
        let _entered = self.enter("a copy between devices")?;
        // SAFETY: valid ranges, by the caller; contexts that live as long as the process.
        done(unsafe {
            (self.device.driver.copy_peer_async)(
                bits(piece.target),
                self.device.context.0,
                bits(piece.source),
                from.context.0,
                piece.size_bytes,
                self.stream.0,
            )
        })
        .map_err(|failure| error(self.device, "a copy between devices", failure))
    }

    fn enter(&self, call: &'static str) -> Result<super::context::Entered, QueueError> {
        if !self.device.is_usable() {
            let reason = "CUDA cannot be used in a forked process".into();
            return Err(QueueError { space: self.device.space_id(), call, reason });
        }
        self.device.enter().map_err(|failure| error(self.device, call, failure))
    }

    /// Staging that nothing else uses until the next synchronize, or the end of the graph being captured.
    fn stage(&mut self, size_bytes: usize) -> Result<NonNull<u8>, QueueError> {
        let staging = self.recording.as_mut().map_or(&mut self.staging, |recording| &mut recording.staging);
        staging.take(size_bytes).map_err(|refused| QueueError {
            space: self.device.space_id(),
            call: "staging",
            reason: refused.to_string(),
        })
    }

    /// Fills `order` with the pieces sorted by what `key` says, empty ones left out.
    fn sort(&mut self, pieces: &[Piece], key: impl Fn(&Piece) -> NonNull<u8>) -> Vec<usize> {
        let mut order = core::mem::take(&mut self.order);
        order.clear();
        order.extend((0..pieces.len()).filter(|&index| pieces[index].size_bytes > 0));
        order.sort_unstable_by_key(|&index| key(&pieces[index]).addr());
        order
    }

    fn to_device(
        &self,
        target: NonNull<u8>,
        source: NonNull<u8>,
        size_bytes: usize,
    ) -> Result<(), QueueError> {
        // SAFETY: a device range and a host range, valid until the copy is done: staging by Q1 and Q2, the
        // caller's by the contract of `upload`.
        done(unsafe {
            (self.device.driver.upload_async)(bits(target), source.as_ptr().cast(), size_bytes, self.stream.0)
        })
        .map_err(|failure| error(self.device, "a copy to the device", failure))
    }

    fn to_host(&self, target: NonNull<u8>, source: NonNull<u8>, size_bytes: usize) -> Result<(), QueueError> {
        // SAFETY: as in `to_device`, by the contract of `download`.
        done(unsafe {
            (self.device.driver.download_async)(
                target.as_ptr().cast(),
                bits(source),
                size_bytes,
                self.stream.0,
            )
        })
        .map_err(|failure| error(self.device, "a copy to the host", failure))
    }

    /// Uploads pieces whose targets follow each other without a gap.
    fn upload_run(&mut self, pieces: &[Piece], run: &[usize], size_bytes: usize) -> Result<(), QueueError> {
        let direct = |piece: &Piece| is_pinned(piece.source, piece.size_bytes);
        let recording = self.recording.is_some();
        if !recording && (size_bytes > STAGED_BYTES_MAX || run.iter().all(|&index| direct(&pieces[index]))) {
            return run.iter().try_for_each(|&index| {
                let piece = pieces[index];
                self.to_device(piece.target, piece.source, piece.size_bytes)
            });
        }
        let staged = self.stage(size_bytes)?;
        let mut at = staged;
        for &index in run {
            let piece = pieces[index];
            // SAFETY: the source is readable, by the contract of `upload`; the staging is as long as the run's
            // pieces together and used by nobody else (Q1, Q2).
            unsafe { at.copy_from_nonoverlapping(piece.source, piece.size_bytes) };
            if let Some(recording) = &mut self.recording {
                recording.uploads[index] =
                    Slot { staged: at, device: piece.target, size_bytes: piece.size_bytes };
            }
            // SAFETY: still inside the staging, or at its end.
            at = unsafe { at.add(piece.size_bytes) };
        }
        self.to_device(pieces[run[0]].target, staged, size_bytes)
    }

    /// Downloads pieces whose sources follow each other without a gap.
    fn download_run(&mut self, pieces: &[Piece], run: &[usize], size_bytes: usize) -> Result<(), QueueError> {
        let direct = |piece: &Piece| is_pinned(piece.target, piece.size_bytes);
        let recording = self.recording.is_some();
        if !recording && (size_bytes > STAGED_BYTES_MAX || run.iter().all(|&index| direct(&pieces[index]))) {
            return run.iter().try_for_each(|&index| {
                let piece = pieces[index];
                self.to_host(piece.target, piece.source, piece.size_bytes)
            });
        }
        let staged = self.stage(size_bytes)?;
        let mut at = staged;
        for &index in run {
            let Piece { target, source, size_bytes } = pieces[index];
            match &mut self.recording {
                Some(recording) => {
                    recording.downloads[index] = Slot { staged: at, device: source, size_bytes }
                }
                None => self.arrivals.push(Arrival { staged: at, target, size_bytes }),
            }
            // SAFETY: inside the staging, which is as long as the run's pieces together, or at its end.
            at = unsafe { at.add(size_bytes) };
        }
        self.to_host(staged, pieces[run[0]].source, size_bytes)
    }

    fn wait_for_work(&mut self) -> Result<(), QueueError> {
        let _entered = self.enter("waiting for the queue")?;
        // SAFETY: a live stream.
        done(unsafe { (self.device.driver.stream_synchronize)(self.stream.0) })
            .map_err(|failure| error(self.device, "waiting for the queue", failure))
    }

    fn drop_graph(&self, graph: &Graph) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: a live executable graph, destroyed once; its work is done: callers synchronize first.
            super::context::note_free(done(unsafe {
                (self.device.driver.graph_exec_destroy)(graph.executable.0)
            }));
        }
    }

    fn instantiate(&mut self) -> Result<GraphHandle, QueueError> {
        let driver = self.device.driver;
        let mut graph = core::ptr::null_mut();
        // SAFETY: a live stream that captures, and a place for the result.
        done(unsafe { (driver.end_capture)(self.stream.0, &raw mut graph) })
            .map_err(|failure| error(self.device, "capturing a graph", failure))?;
        let mut executable = core::ptr::null_mut();
        // SAFETY: a place for the result and a live graph.
        let made = done(unsafe { (driver.graph_instantiate)(&raw mut executable, graph, 0) });
        // SAFETY: a live graph, destroyed once; the executable one is independent of it.
        unsafe { (driver.graph_destroy)(graph) };
        made.map_err(|failure| error(self.device, "preparing a graph", failure))?;
        Ok(GraphHandle(executable))
    }

    fn refuse_replay(&self, reason: String) -> QueueError {
        QueueError { space: self.device.space_id(), call: "replaying a graph", reason }
    }

    fn check_slots(
        &self,
        slots: &[Slot],
        pieces: &[Piece],
        what: &str,
        upload: bool,
    ) -> Result<(), QueueError> {
        if slots.len() != pieces.len() {
            return Err(self.refuse_replay(format!(
                "{} {what}, captured with {}",
                pieces.len(),
                slots.len()
            )));
        }
        for (slot, piece) in slots.iter().zip(pieces) {
            let device = if upload { piece.target } else { piece.source };
            if slot.size_bytes != piece.size_bytes || (slot.device != device && slot.size_bytes > 0) {
                return Err(self.refuse_replay(format!(
                    "{what} of {} bytes, captured with {} or another place",
                    piece.size_bytes, slot.size_bytes
                )));
            }
        }
        Ok(())
    }
}

fn error(device: &Device, call: &'static str, failure: Failure) -> QueueError {
    QueueError { space: device.space_id(), call, reason: failure.to_string() }
}

/// Calls `each` with runs of `order` in which every piece follows the one before, and the run's size.
fn for_each_run(
    pieces: &[Piece],
    order: &[usize],
    key: impl Fn(&Piece) -> NonNull<u8>,
    mut each: impl FnMut(&[usize], usize) -> Result<(), QueueError>,
) -> Result<(), QueueError> {
    let mut start = 0;
    while start < order.len() {
        let first = &pieces[order[start]];
        let mut size_bytes = first.size_bytes;
        let mut end = start + 1;
        while end < order.len()
            && size_bytes < STAGED_BYTES_MAX
            && key(&pieces[order[end]]).addr().get() == key(first).addr().get() + size_bytes
        {
            size_bytes += pieces[order[end]].size_bytes;
            end += 1;
        }
        each(&order[start..end], size_bytes)?;
        start = end;
    }
    Ok(())
}

impl Queue for CudaQueue {
    fn space(&self) -> SpaceId {
        self.device.space_id()
    }

    fn raw_stream(&self) -> usize {
        self.stream.0.addr()
    }

    unsafe fn upload(&mut self, pieces: &[Piece]) -> Result<(), QueueError> {
        let _entered = self.enter("a copy to the device")?;
        if let Some(recording) = &mut self.recording {
            let blank = Slot { staged: NonNull::dangling(), device: NonNull::dangling(), size_bytes: 0 };
            recording.uploads.extend(core::iter::repeat_n(blank, pieces.len()));
            // Slots of this call are the last ones; runs index them from the front.
            recording.uploads.rotate_right(pieces.len());
        }
        let order = self.sort(pieces, |piece| piece.target);
        let copied = for_each_run(
            pieces,
            &order,
            |piece| piece.target,
            |run, size| self.upload_run(pieces, run, size),
        );
        self.order = order;
        if let Some(recording) = &mut self.recording {
            recording.uploads.rotate_left(pieces.len());
        }
        copied
    }

    unsafe fn download(&mut self, pieces: &[Piece]) -> Result<(), QueueError> {
        let _entered = self.enter("a copy to the host")?;
        if let Some(recording) = &mut self.recording {
            let blank = Slot { staged: NonNull::dangling(), device: NonNull::dangling(), size_bytes: 0 };
            recording.downloads.extend(core::iter::repeat_n(blank, pieces.len()));
            recording.downloads.rotate_right(pieces.len());
        }
        let order = self.sort(pieces, |piece| piece.source);
        let copied = for_each_run(
            pieces,
            &order,
            |piece| piece.source,
            |run, size| self.download_run(pieces, run, size),
        );
        self.order = order;
        if let Some(recording) = &mut self.recording {
            recording.downloads.rotate_left(pieces.len());
        }
        copied
    }

    unsafe fn copy(&mut self, piece: Piece) -> Result<(), QueueError> {
        if piece.size_bytes == 0 {
            return Ok(());
        }
        let _entered = self.enter("a copy on the device")?;
        // SAFETY: two ranges that the device reaches, valid until it is done, by the caller.
        done(unsafe {
            (self.device.driver.copy_async)(
                bits(piece.target),
                bits(piece.source),
                piece.size_bytes,
                self.stream.0,
            )
        })
        .map_err(|failure| error(self.device, "a copy on the device", failure))
    }

    unsafe fn fill(&mut self, target: NonNull<u8>, size_bytes: usize, byte: u8) -> Result<(), QueueError> {
        if size_bytes == 0 {
            return Ok(());
        }
        let _entered = self.enter("a fill on the device")?;
        // SAFETY: a device range, valid until the work is done, by the caller.
        done(unsafe { (self.device.driver.fill_async)(bits(target), byte, size_bytes, self.stream.0) })
            .map_err(|failure| error(self.device, "a fill on the device", failure))
    }

    fn synchronize(&mut self) -> Result<(), QueueError> {
        let waited = self.wait_for_work();
        if waited.is_ok() {
            for arrival in &self.arrivals {
                let Arrival { staged, target, size_bytes } = *arrival;
                // SAFETY: the copy into the staging is done; the target is writable, by the contract of
                // `download`; staging and targets are different memory.
                unsafe { target.copy_from_nonoverlapping(staged, size_bytes) };
            }
        }
        self.arrivals.clear();
        self.staging.reset();
        self.replaying = false;
        waited
    }

    fn begin_capture(&mut self) -> Result<(), QueueError> {
        self.synchronize()?;
        let _entered = self.enter("capturing a graph")?;
        let relaxed = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED as u32;
        // SAFETY: a live stream that does not capture: a second call fails.
        done(unsafe { (self.device.driver.begin_capture)(self.stream.0, relaxed) })
            .map_err(|failure| error(self.device, "capturing a graph", failure))?;
        let staging = Staging::new(PinnedSpace::on(self.device));
        self.recording = Some(Recording { uploads: Vec::new(), downloads: Vec::new(), staging });
        Ok(())
    }

    fn end_capture(&mut self) -> Result<GraphId, QueueError> {
        let _entered = self.enter("capturing a graph")?;
        let Some(recording) = self.recording.take() else {
            return Err(self.refuse_replay("nothing is being captured".into()));
        };
        let executable = self.instantiate()?;
        self.graphs_made += 1;
        self.graphs.insert(self.graphs_made, Graph { executable, recording });
        Ok(GraphId(self.graphs_made))
    }

    unsafe fn replay(
        &mut self,
        graph: GraphId,
        uploads: &[Piece],
        downloads: &[Piece],
    ) -> Result<(), QueueError> {
        let _entered = self.enter("replaying a graph")?;
        let Some(known) = self.graphs.get(&graph.0) else {
            return Err(self.refuse_replay("the graph is of another queue".into()));
        };
        self.check_slots(&known.recording.uploads, uploads, "uploads", true)?;
        self.check_slots(&known.recording.downloads, downloads, "downloads", false)?;
        if self.replaying {
            self.synchronize()?;
        }
        let Some(known) = self.graphs.get(&graph.0) else { return Ok(()) };
        for (slot, piece) in known.recording.uploads.iter().zip(uploads) {
            // SAFETY: the source is readable, by the caller; the slot has just this size (compared above), and
            // no copy from it is going on: the last replay was waited for.
            unsafe { slot.staged.copy_from_nonoverlapping(piece.source, piece.size_bytes) };
        }
        // SAFETY: a live executable graph and a live stream; the memory it uses is there, by the caller.
        done(unsafe { (self.device.driver.graph_launch)(known.executable.0, self.stream.0) })
            .map_err(|failure| error(self.device, "replaying a graph", failure))?;
        self.replaying = true;
        for (slot, piece) in known.recording.downloads.iter().zip(downloads) {
            let (staged, target, size_bytes) = (slot.staged, piece.target, piece.size_bytes);
            self.arrivals.push(Arrival { staged, target, size_bytes });
        }
        Ok(())
    }

    fn discard(&mut self, graph: GraphId) {
        if let Some(known) = self.graphs.remove(&graph.0) {
            // The staging goes with it, so its work must be done. A failure shows at the next call.
            drop(self.wait_for_work());
            self.drop_graph(&known);
        }
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        // Whoever drops a queue frees its memory next: wait. There is nobody to tell of a failure.
        drop(self.wait_for_work());
        for graph in self.graphs.values() {
            self.drop_graph(graph);
        }
        if let Ok(_entered) = self.device.enter()
            && self.device.is_usable()
        {
            // SAFETY: a live stream, destroyed once.
            super::context::note_free(done(unsafe { (self.device.driver.stream_destroy)(self.stream.0) }));
        }
    }
}
