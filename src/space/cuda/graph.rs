//! Work of a queue, recorded as a graph and launched again.
//!
//! Every piece that crosses the bus keeps its place in the graph's own staging; a launch puts the new bytes there
//! and takes the results from there. Deliberately absent: changing a graph. Other sizes are recorded anew.

use super::driver::done;
use super::pinned::PinnedSpace;
use super::queue::{Arrival, CudaQueue, error};
use super::staging::Staging;
use crate::space::{GraphId, Piece, Queue, QueueError};
use core::ptr::NonNull;
use cudarc::driver::sys;

/// A place in a graph's staging that one piece goes through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) staged: NonNull<u8>,
    pub(super) device: NonNull<u8>,
    pub(super) size_bytes: usize,
}

// SAFETY: as for `Arrival`.
unsafe impl Send for Slot {}

/// What is being captured.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) uploads: Vec<Slot>,
    pub(super) downloads: Vec<Slot>,
    pub(super) staging: Staging,
}

/// What was captured.
#[derive(Debug)]
pub(super) struct Graph {
    executable: GraphHandle,
    recording: Recording,
}

/// An executable graph of the driver.
#[derive(Debug)]
struct GraphHandle(sys::CUgraphExec);

// SAFETY: a handle of the driver, used by one thread at a time: its owner is not `Sync` here.
unsafe impl Send for GraphHandle {}

impl CudaQueue {
    pub(super) fn begin_recording(&mut self) -> Result<(), QueueError> {
        self.synchronize()?;
        let _entered = self.enter("capturing a graph")?;
        let relaxed = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED as u32;
        // SAFETY: a live stream that does not capture: a second call fails.
        done(unsafe { (self.device.driver.begin_capture)(self.stream(), relaxed) })
            .map_err(|failure| error(self.device, "capturing a graph", failure))?;
        let staging = Staging::new(PinnedSpace::on(self.device));
        self.recording = Some(Recording { uploads: Vec::new(), downloads: Vec::new(), staging });
        Ok(())
    }

    pub(super) fn end_recording(&mut self) -> Result<GraphId, QueueError> {
        let _entered = self.enter("capturing a graph")?;
        let Some(recording) = self.recording.take() else {
            return Err(self.refuse_replay("nothing is being captured".into()));
        };
        let executable = self.instantiate()?;
        self.graphs_made += 1;
        self.graphs.insert(self.graphs_made, Graph { executable, recording });
        Ok(GraphId(self.graphs_made))
    }

    /// As [`crate::space::Queue::replay`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn replay_graph(
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
        let crosses = !uploads.is_empty() || !downloads.is_empty();
        if crosses {
            self.settle()?;
        }
        let Some(known) = self.graphs.get(&graph.0) else { return Ok(()) };
        let elsewhere = |(slot, piece): &(&Slot, &Piece)| slot.staged != piece.source;
        for (slot, piece) in known.recording.uploads.iter().zip(uploads).filter(elsewhere) {
            // SAFETY: the source is readable, by the caller; the slot has just this size (compared above), and
            // no copy from it is going on: the last replay was waited for.
            unsafe { slot.staged.copy_from(piece.source, piece.size_bytes) };
        }
        self.busy.set(true);
        self.note_host(crosses);
        // SAFETY: a live executable graph and a live stream; the memory it uses is there, by the caller.
        done(unsafe { (self.device.driver.graph_launch)(known.executable.0, self.stream()) })
            .map_err(|failure| error(self.device, "replaying a graph", failure))?;
        for (slot, piece) in known.recording.downloads.iter().zip(downloads) {
            let (staged, target, size_bytes) = (slot.staged, piece.target, piece.size_bytes);
            self.arrivals.push(Arrival { staged, target, size_bytes });
        }
        Ok(())
    }

    pub(super) fn drop_graph(&self, graph: &Graph) {
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
        done(unsafe { (driver.end_capture)(self.stream(), &raw mut graph) })
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
