//! Work of a queue, recorded as a graph and launched again.
//!
//! The graph is built node by node, from what the queue is asked to do. The driver's own way, to capture a stream,
//! concerns the whole process: while it lasts, every other thread that waits for the device is refused, and the
//! capture fails.
//!
//! Every piece that crosses the bus keeps its place in the graph's own staging; a launch puts the new bytes there
//! and takes the results from there. Deliberately absent: changing a graph. Other sizes are recorded anew.

use super::context::Device;
use super::driver::{Driver, Failure, done};
use super::pinned::PinnedSpace;
use super::queue::{Arrival, CudaQueue, bits, error};
use super::staging::Staging;
use crate::space::{GraphId, Launch, Piece, Queue, QueueError};
use core::ffi::c_uint;
use core::ptr::NonNull;
use cudarc::driver::sys;

/// The call, for messages.
const CAPTURING: &str = "capturing a graph";

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
    pub(super) nodes: Nodes,
    pub(super) crossings: Crossings,
}

/// A graph of the driver that grows node by node, each behind the one before. Nothing of it runs.
#[derive(Debug)]
pub(super) struct Nodes {
    device: &'static Device,
    graph: sys::CUgraph,
    last: Option<sys::CUgraphNode>,
}

// SAFETY: handles of the driver, used by one thread at a time: their owner is not `Sync` here.
unsafe impl Send for Nodes {}

/// What crosses the bus in a graph, in the order in which it was queued.
#[derive(Debug)]
pub(super) struct Crossings {
    pub(super) uploads: Vec<Slot>,
    pub(super) downloads: Vec<Slot>,
    pub(super) staging: Staging,
}

impl Nodes {
    fn new(device: &'static Device) -> Result<Self, Failure> {
        let mut graph = core::ptr::null_mut();
        // SAFETY: a place for the result; the flags must be 0.
        done(unsafe { (device.driver.graph_create)(&raw mut graph, 0) })?;
        Ok(Self { device, graph, last: None })
    }

    /// Adds a node behind the last one: `add` gets where it goes, the graph, and what comes before it.
    fn add(
        &mut self,
        add: impl FnOnce(&Driver, *mut sys::CUgraphNode, sys::CUgraph, *const sys::CUgraphNode, usize) -> c_uint,
    ) -> Result<(), Failure> {
        let mut node = core::ptr::null_mut();
        let before = self.last.as_slice();
        done(add(self.device.driver, &raw mut node, self.graph, before.as_ptr(), before.len()))?;
        self.last = Some(node);
        Ok(())
    }

    /// Adds a copy between ranges that the device reaches.
    pub(super) fn add_copy(&mut self, piece: Piece) -> Result<(), Failure> {
        let null = core::ptr::null_mut();
        let copy = sys::CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            srcHost: null,
            srcDevice: bits(piece.source),
            srcArray: null.cast(),
            reserved0: null,
            srcPitch: 0,
            srcHeight: 0,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED,
            dstHost: null,
            dstDevice: bits(piece.target),
            dstArray: null.cast(),
            reserved1: null,
            dstPitch: 0,
            dstHeight: 0,
            WidthInBytes: piece.size_bytes,
            Height: 1,
            Depth: 1,
        };
        let context = self.device.context.0;
        // SAFETY: a place for the node, a live graph and its node, a filled structure; nothing runs yet.
        self.add(|driver, node, graph, before, count| unsafe {
            (driver.graph_add_copy)(node, graph, before, count, &raw const copy, context)
        })
    }

    /// Adds setting a range to one byte.
    pub(super) fn add_fill(
        &mut self,
        target: NonNull<u8>,
        size_bytes: usize,
        byte: u8,
    ) -> Result<(), Failure> {
        let fill = sys::CUDA_MEMSET_NODE_PARAMS {
            dst: bits(target),
            pitch: 0,
            value: byte.into(),
            elementSize: 1,
            width: size_bytes,
            height: 1,
        };
        let context = self.device.context.0;
        // SAFETY: as for a copy.
        self.add(|driver, node, graph, before, count| unsafe {
            (driver.graph_add_fill)(node, graph, before, count, &raw const fill, context)
        })
    }

    /// Adds a kernel, with a copy of its arguments.
    pub(super) fn add_kernel(&mut self, launch: &Launch) -> Result<(), Failure> {
        let kernel = sys::CUDA_KERNEL_NODE_PARAMS_v1 {
            func: launch.kernel.cast(),
            gridDimX: launch.grid[0],
            gridDimY: launch.grid[1],
            gridDimZ: launch.grid[2],
            blockDimX: launch.block[0],
            blockDimY: launch.block[1],
            blockDimZ: launch.block[2],
            sharedMemBytes: launch.shared_bytes,
            kernelParams: launch.arguments,
            extra: launch.extra,
        };
        // SAFETY: as for a copy; the arguments are the kernel's, by the contract of `Queue::launch`.
        self.add(|driver, node, graph, before, count| unsafe {
            (driver.graph_add_kernel)(node, graph, before, count, &raw const kernel)
        })
    }

    fn instantiate(&self) -> Result<Executable, Failure> {
        let mut executable = core::ptr::null_mut();
        // SAFETY: a place for the result and a live graph, of which the result is independent.
        done(unsafe { (self.device.driver.graph_instantiate)(&raw mut executable, self.graph, 0) })?;
        Ok(Executable { device: self.device, graph: executable })
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: a live graph, destroyed once.
            super::context::note_free(done(unsafe { (self.device.driver.graph_destroy)(self.graph) }));
        }
    }
}

/// What was captured. Its work is done when it is dropped: whoever drops it waits first.
#[derive(Debug)]
pub(super) struct Graph {
    executable: Executable,
    crossings: Crossings,
}

/// An executable graph of the driver.
#[derive(Debug)]
struct Executable {
    device: &'static Device,
    graph: sys::CUgraphExec,
}

// SAFETY: a handle of the driver, used by one thread at a time: its owner is not `Sync` here.
unsafe impl Send for Executable {}

impl Drop for Executable {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: a live executable graph, destroyed once; its work is done.
            super::context::note_free(done(unsafe { (self.device.driver.graph_exec_destroy)(self.graph) }));
        }
    }
}

impl CudaQueue {
    pub(super) fn begin_recording(&mut self) -> Result<(), QueueError> {
        self.synchronize()?;
        let _entered = self.enter(CAPTURING)?;
        let nodes = Nodes::new(self.device).map_err(|failure| error(self.device, CAPTURING, failure))?;
        let staging = Staging::new(PinnedSpace::on(self.device));
        let crossings = Crossings { uploads: Vec::new(), downloads: Vec::new(), staging };
        self.recording = Some(Recording { nodes, crossings });
        Ok(())
    }

    pub(super) fn end_recording(&mut self) -> Result<GraphId, QueueError> {
        let _entered = self.enter(CAPTURING)?;
        let Some(Recording { nodes, crossings }) = self.recording.take() else {
            return Err(self.refuse_replay("nothing is being captured".into()));
        };
        let executable = nodes.instantiate().map_err(|failure| error(self.device, CAPTURING, failure))?;
        self.graphs_made += 1;
        self.graphs.insert(self.graphs_made, Graph { executable, crossings });
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
        self.check_slots(&known.crossings.uploads, uploads, "uploads", true)?;
        self.check_slots(&known.crossings.downloads, downloads, "downloads", false)?;
        let crosses = !uploads.is_empty() || !downloads.is_empty();
        if crosses {
            self.settle()?;
        }
        let Some(known) = self.graphs.get(&graph.0) else { return Ok(()) };
        let elsewhere = |(slot, piece): &(&Slot, &Piece)| slot.staged != piece.source;
        for (slot, piece) in known.crossings.uploads.iter().zip(uploads).filter(elsewhere) {
            // SAFETY: the source is readable, by the caller; the slot has just this size (compared above), and
            // no copy from it is going on: the last replay was waited for.
            unsafe { slot.staged.copy_from(piece.source, piece.size_bytes) };
        }
        self.busy.set(true);
        self.note_host(crosses);
        // SAFETY: a live executable graph and a live stream; the memory it uses is there, by the caller.
        done(unsafe { (self.device.driver.graph_launch)(known.executable.graph, self.stream()) })
            .map_err(|failure| error(self.device, "replaying a graph", failure))?;
        for (slot, piece) in known.crossings.downloads.iter().zip(downloads) {
            let (staged, target, size_bytes) = (slot.staged, piece.target, piece.size_bytes);
            self.arrivals.push(Arrival { staged, target, size_bytes });
        }
        Ok(())
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
