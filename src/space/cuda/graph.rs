//! Work of a queue, recorded as a graph and launched again.
//!
//! The graph is built node by node, from what the queue is asked to do. The driver's own way, to capture a stream,
//! concerns the whole process: while it lasts, every other thread that waits for the device is refused, and the
//! capture fails.
//!
//! Every piece that crosses the bus keeps its place in the graph's own staging; a launch puts the new bytes there
//! and takes the results from there, but for memory that callers come with each time, which is copied in place.
//! Deliberately absent: changing a graph.

use super::context::Device;
use super::copy::CopyKernel;
use super::driver::{Driver, Failure, done};
use super::pinned::PinnedSpace;
use super::queue::{Arrival, CudaQueue, bits, error};
use super::staging::Staging;
use crate::space::{GraphId, Launch, Piece, Queue, QueueError};
use core::ffi::c_uint;
use core::ops::Range;
use core::ptr::NonNull;
use cudarc::driver::sys;

/// Calls, for messages.
const CAPTURING: &str = "capturing a graph";
const REPLAYING: &str = "replaying a graph";

/// Where one piece passes through in a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// The host's end: staging, or memory that callers come with each time.
    pub(super) host: NonNull<u8>,
    pub(super) device: NonNull<u8>,
    pub(super) size_bytes: usize,
    /// Whether callers come with the host's end each time.
    pub(super) held: bool,
}

// SAFETY: as for `Arrival`.
unsafe impl Send for Slot {}

impl Slot {
    /// Of no bytes.
    pub(super) const BLANK: Self =
        Self { host: NonNull::dangling(), device: NonNull::dangling(), size_bytes: 0, held: false };
}

/// What is being captured.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) nodes: Nodes,
    pub(super) crossings: Crossings,
    /// Addresses of pinned memory that callers come with each time.
    held: Vec<Range<usize>>,
}

impl Recording {
    /// Whether a piece's host end is there in every replay.
    pub(super) fn holds(&self, host: NonNull<u8>, size_bytes: usize) -> bool {
        let start = host.addr().get();
        let inside = |range: &Range<usize>| range.start <= start && start + size_bytes <= range.end;
        self.held.iter().any(inside)
    }
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
        if CopyKernel::does(&piece)
            && let Some(kernel) = self.device.copy_kernel()
        {
            return kernel.with_launch(&piece, |launch| self.add_kernel(launch));
        }
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
        if self.device.is_usable()
            && let Ok(_entered) = self.device.enter()
        {
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
        if self.device.is_usable()
            && let Ok(_entered) = self.device.enter()
        {
            // SAFETY: a live executable graph, destroyed once; its work is done.
            super::context::note_free(done(unsafe { (self.device.driver.graph_exec_destroy)(self.graph) }));
        }
    }
}

impl CudaQueue {
    pub(super) fn begin_recording(&mut self, held: &[NonNull<[u8]>]) -> Result<(), QueueError> {
        // One that was never ended, as where a delegate panicked, is of no use.
        self.recording = None;
        self.synchronize()?;
        let _entered = self.enter(CAPTURING)?;
        let nodes = Nodes::new(self.device).map_err(|failure| error(self.device, CAPTURING, failure))?;
        let staging = Staging::new(PinnedSpace::on(self.device));
        let crossings = Crossings { uploads: Vec::new(), downloads: Vec::new(), staging };
        let range = |held: &NonNull<[u8]>| {
            let start = held.addr().get();
            start..start + held.len()
        };
        self.recording = Some(Recording { nodes, crossings, held: held.iter().map(range).collect() });
        Ok(())
    }

    pub(super) fn end_recording(&mut self) -> Result<GraphId, QueueError> {
        let _entered = self.enter(CAPTURING)?;
        let Some(Recording { nodes, crossings, .. }) = self.recording.take() else {
            let reason = "nothing is being captured".into();
            return Err(QueueError { space: self.device.space_id(), call: CAPTURING, reason });
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
        let _entered = self.enter(REPLAYING)?;
        let crosses = !uploads.is_empty() || !downloads.is_empty();
        if crosses {
            self.settle()?;
        }
        let device = self.device;
        let refuse = |reason| QueueError { space: device.space_id(), call: REPLAYING, reason };
        let Some(Graph { executable, crossings }) = self.graphs.get(&graph.0) else {
            return Err(refuse("the graph is of another queue".into()));
        };
        let Crossings { uploads: sent, downloads: fetched, .. } = crossings;
        check_slots(sent, uploads, "uploads", |piece| (piece.source, piece.target)).map_err(refuse)?;
        check_slots(fetched, downloads, "downloads", |piece| (piece.target, piece.source)).map_err(refuse)?;
        for (slot, piece) in sent.iter().zip(uploads).filter(|(slot, piece)| slot.host != piece.source) {
            // SAFETY: the source is readable, by the caller; the slot has just this size (compared above), and
            // no copy from it is going on: the last replay was waited for.
            unsafe { slot.host.copy_from(piece.source, piece.size_bytes) };
        }
        let before = self.arrivals.len();
        let arrivals = fetched.iter().zip(downloads).map(|(slot, piece)| Arrival {
            staged: slot.host,
            target: piece.target,
            size_bytes: piece.size_bytes,
        });
        self.arrivals.extend(arrivals);
        let executable = executable.graph;
        self.busy.set(true);
        self.note_host(crosses);
        // SAFETY: a live executable graph and a live stream; the memory it uses is there, by the caller.
        let launched = done(unsafe { (device.driver.graph_launch)(executable, self.stream()) });
        if launched.is_err() {
            self.arrivals.truncate(before);
        }
        launched.map_err(|failure| error(device, REPLAYING, failure))
    }
}

/// Compares pieces with those that were captured. `ends` gives the host's and the device's.
fn check_slots(
    slots: &[Slot],
    pieces: &[Piece],
    what: &str,
    ends: impl Fn(&Piece) -> (NonNull<u8>, NonNull<u8>),
) -> Result<(), String> {
    if slots.len() != pieces.len() {
        return Err(format!("{} {what}, captured with {}", pieces.len(), slots.len()));
    }
    for (slot, piece) in slots.iter().zip(pieces) {
        let (host, device) = ends(piece);
        let moved = slot.device != device || (slot.held && slot.host != host);
        if slot.size_bytes != piece.size_bytes || (moved && slot.size_bytes > 0) {
            return Err(format!(
                "{what} of {} bytes, captured with {} or another place",
                piece.size_bytes, slot.size_bytes
            ));
        }
    }
    Ok(())
}
