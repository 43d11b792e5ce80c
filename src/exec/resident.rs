//! Tensors that stay on a device: outputs taken from a run, and bytes brought there for one.
//!
//! ```text
//!   Shelf (one per output, one arena):   │ block in use │ free, last used on stream 7 │ …
//!      take for a run on stream 7  ─► the free one, in stream order    drop of a DeviceTensor ─► back on the shelf
//! ```
//!
//! Nobody waits where one stream produces, consumes and produces again. A block that was last used on another
//! stream is taken only after the whole device was waited for: that stream may be gone by then. Deliberately
//! absent: views and strides. Elements are row-major.

use super::error::ExecError;
use super::method::{Method, queue_error};
use crate::arena::{ArenaSet, PooledArena};
use crate::program::{MethodPlan, Storage};
use crate::space::{Mark, Piece, QueueError, SpaceId};
use crate::tensor::shape::numel;
use crate::tensor::{DType, Dims};
use crate::value::Value;
use core::alloc::Layout;
use core::ptr::NonNull;
use parking_lot::Mutex;
use std::sync::Arc;

/// The alignment of a block, in bytes: what CUDA's own allocator gives.
const ALIGN_BYTES: usize = 256;
/// So many blocks are taken before the device is waited for to use one again.
const BLOCKS_MIN: usize = 4;

/// Who used a block last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastUse {
    /// Nobody whose work is not done.
    Done,
    /// Work of one stream.
    Stream(usize),
    /// Work of several.
    Several,
}

impl LastUse {
    fn and(self, stream: usize) -> Self {
        match self {
            Self::Done => Self::Stream(stream),
            Self::Stream(known) if known == stream => self,
            _ => Self::Several,
        }
    }
}

#[derive(Debug)]
struct Shelved {
    address: NonNull<u8>,
    last: LastUse,
}

#[derive(Debug)]
struct Stock {
    arena: PooledArena,
    free: Vec<Shelved>,
    blocks: usize,
    /// Any mark of the device: it can wait for all work.
    device: Option<Arc<dyn Mark>>,
}

/// Blocks of one size on one device.
#[derive(Debug)]
pub(super) struct Shelf {
    space: SpaceId,
    size_bytes: usize,
    stock: Mutex<Stock>,
}

// SAFETY: blocks are memory of the arena held here; reaching their bytes takes `unsafe`, which argues for itself.
unsafe impl Send for Shelf {}
// SAFETY: as above; the stock is behind a lock.
unsafe impl Sync for Shelf {}

impl Shelf {
    /// An empty shelf for blocks of this size.
    pub(super) fn new(
        arenas: &ArenaSet,
        space: SpaceId,
        size_bytes: usize,
        owner: &str,
    ) -> Result<Arc<Self>, String> {
        let arena = arenas.take(space, 0, owner).map_err(|error| error.to_string())?;
        let stock = Stock { arena, free: Vec::new(), blocks: 0, device: None };
        Ok(Arc::new(Self { space, size_bytes: size_bytes.max(1), stock: Mutex::new(stock) }))
    }

    /// A block for work on `stream`, behind whatever used it last.
    pub(super) fn take(self: &Arc<Self>, stream: usize) -> Result<Lease, String> {
        let mut stock = self.stock.lock();
        let usable = |shelved: &Shelved| {
            matches!(shelved.last, LastUse::Done) || shelved.last == LastUse::Stream(stream)
        };
        if !stock.free.iter().any(usable)
            && stock.blocks >= BLOCKS_MIN
            && !stock.free.is_empty()
            && let Some(device) = stock.device.clone()
        {
            device.synchronize_device().map_err(|error| error.to_string())?;
            stock.free.iter_mut().for_each(|shelved| shelved.last = LastUse::Done);
        }
        let address = if let Some(index) = stock.free.iter().position(usable) {
            stock.free.swap_remove(index).address
        } else {
            let layout = Layout::from_size_align(self.size_bytes, ALIGN_BYTES)
                .map_err(|_| "more than can be addressed".to_string())?;
            let block = stock.arena.allocate(layout).map_err(|error| error.to_string())?;
            stock.blocks += 1;
            block.address()
        };
        Ok(Lease { shelf: Arc::clone(self), address, last: Mutex::new(LastUse::Stream(stream)) })
    }

    /// Tells the shelf a mark of its device.
    pub(super) fn know(&self, mark: &Arc<dyn Mark>) {
        self.stock.lock().device.get_or_insert_with(|| Arc::clone(mark));
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        // The arena goes to whoever asks next, on any stream.
        let stock = self.stock.get_mut();
        if stock.free.iter().any(|shelved| shelved.last != LastUse::Done)
            && let Some(device) = &stock.device
        {
            // There is nobody to tell of a failure.
            drop(device.synchronize_device());
        }
    }
}

/// A block, until it goes back on its shelf.
#[derive(Debug)]
pub(super) struct Lease {
    shelf: Arc<Shelf>,
    address: NonNull<u8>,
    last: Mutex<LastUse>,
}

// SAFETY: an address; reaching the bytes takes `unsafe`, which argues for itself.
unsafe impl Send for Lease {}
// SAFETY: as above.
unsafe impl Sync for Lease {}

impl Drop for Lease {
    fn drop(&mut self) {
        let shelved = Shelved { address: self.address, last: *self.last.get_mut() };
        self.shelf.stock.lock().free.push(shelved);
    }
}

/// Between what a run goes on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ends {
    /// Inputs and outputs pass through host memory.
    Host,
    /// They stay on their device, on the caller's stream where there is one.
    Device(Option<usize>),
}

impl Ends {
    /// The caller's stream.
    pub(super) fn stream(self) -> Option<usize> {
        if let Self::Device(stream) = self { stream } else { None }
    }
}

/// What a method keeps for outputs that stay on their device.
#[derive(Debug, Default)]
pub(super) struct Resident {
    /// A shelf per tensor that was an output on a device.
    shelves: Vec<(usize, Arc<Shelf>)>,
    /// The blocks that outputs of the run at hand were bound to, by tensor.
    pub(super) fresh: Vec<(usize, Lease)>,
}

impl Method {
    fn shelf(&mut self, tensor: usize, space: SpaceId, size_bytes: usize) -> Result<Arc<Shelf>, String> {
        if let Some((_, shelf)) = self.resident.shelves.iter().find(|(known, _)| *known == tensor) {
            return Ok(Arc::clone(shelf));
        }
        let owner = format!("outputs of {}", self.name());
        let shelf = Shelf::new(&self.options().arenas, space, size_bytes, &owner)?;
        self.resident.shelves.push((tensor, Arc::clone(&shelf)));
        Ok(shelf)
    }

    /// Sends work to the caller's stream, and gives outputs without planned memory blocks of their own.
    pub(super) fn begin_resident(&mut self, plan: &MethodPlan, ends: Ends) -> Result<(), ExecError> {
        let Ends::Device(stream) = ends else { return Ok(()) };
        let failed = |index: usize, problem: String| ExecError::Output {
            method: plan.name.to_string(),
            index,
            problem,
        };
        for queue in &mut self.planned.holdings.queues {
            // SAFETY: a live stream of the device, by the caller of `execute_on`; it lives until the run's end.
            unsafe { queue.switch(stream) }.map_err(|error| failed(0, error.to_string()))?;
        }
        for (index, &id) in plan.outputs.iter().enumerate() {
            let (Value::Tensor(at), Some(spec)) = (plan.value(id), plan.tensor(id)) else { continue };
            let at = at as usize;
            let Some(staged) = self.planned.staged(at).filter(|block| !block.space.is_host()) else {
                continue;
            };
            if spec.storage != Storage::Supplied || plan.inputs.contains(&id) {
                continue;
            }
            let shelf =
                self.shelf(at, staged.space, staged.size_bytes).map_err(|problem| failed(index, problem))?;
            let raw = self.planned.holdings.queue(staged.space).map_or(0, |queue| queue.raw_stream());
            let lease = shelf.take(raw).map_err(|problem| failed(index, problem))?;
            let (_, tensors, _) = self.tables.parts();
            // SAFETY: a block of the staged size that nobody else uses in stream order; `fresh` or whoever takes it
            // keeps it, and the tensor is bound anew when the outputs are dropped.
            unsafe { tensors[at].bind(lease.address, staged.size_bytes, staged.space, true) };
            self.resident.fresh.push((at, lease));
        }
        Ok(())
    }

    /// Lets the caller's stream wait for work that went to the queue's own: whoever waits for a queue in a run, as a
    /// recording does, sends it back there.
    pub(super) fn end_resident(&mut self, plan: &MethodPlan, ends: Ends) -> Result<(), ExecError> {
        let (Some(stream), Some(mark)) = (ends.stream(), &self.planned.holdings.mark) else { return Ok(()) };
        if self.planned.holdings.left_on == stream {
            return Ok(());
        }
        // SAFETY: a live stream of the device, by the caller of `execute_on`.
        unsafe { mark.order(stream) }.map_err(|error| queue_error(plan, 0, &error))
    }

    /// Takes an output with its memory.
    pub(super) fn take_resident(&mut self, index: usize) -> Result<Option<DeviceTensor>, ExecError> {
        let program = Arc::clone(self.program());
        let plan = self.plan();
        let name = plan.name.to_string();
        let failed = |problem: String| ExecError::Output { method: name.clone(), index, problem };
        let Some(&id) = plan.outputs.get(index) else { return Ok(None) };
        let Value::Tensor(at) = self.tables.values()[id.index()] else { return Ok(None) };
        let at = at as usize;
        // What others may write over was copied while they could not.
        let tensor = self.planned.copies.of(at).unwrap_or(&self.tables.tensors()[at]);
        let (dtype, space) = (tensor.dtype(), tensor.space());
        let sizes = Dims::new(tensor.sizes()).unwrap_or_else(Dims::empty);
        if space.is_host() {
            return Ok(None);
        }
        if !tensor.is_row_major() {
            return Err(failed(format!("elements in {space} that are not row-major")));
        }
        if let Some(fresh) = self.resident.fresh.iter().position(|(tensor, _)| *tensor == at) {
            let (_, lease) = self.resident.fresh.swap_remove(fresh);
            return Ok(Some(DeviceTensor::new(lease, dtype, sizes, self.planned.holdings.mark.clone())));
        }
        let (source, size_bytes) = (tensor.address(), tensor.size_bytes());
        let capacity = program
            .methods()
            .iter()
            .find(|method| *method.name == *name)
            .map_or(0, |plan| plan.tensors.get(at).map_or(size_bytes, |spec| spec.size_bytes));
        let shelf = self.shelf(at, space, capacity.max(size_bytes)).map_err(&failed)?;
        let queue =
            self.planned.holdings.queue(space).ok_or_else(|| failed(format!("no queue of {space}")))?;
        let lease = shelf.take(queue.raw_stream()).map_err(&failed)?;
        let text = |error: QueueError| failed(error.to_string());
        if let Some(source) = source.filter(|_| size_bytes > 0) {
            // SAFETY: the output's memory, held by this method, and a block at least as large; what the method is
            // given later comes behind the copy in queue order.
            unsafe { queue.copy(Piece { target: lease.address, source, size_bytes }) }.map_err(text)?;
        }
        let ready = queue.leave().map_err(text)?;
        Ok(Some(DeviceTensor::new(lease, dtype, sizes, Some(ready))))
    }
}

/// A row-major tensor in device memory of its own, which goes back when this is dropped.
///
/// Work that produced it may still be going on; [`DeviceTensor::order`] and [`DeviceTensor::wait`] see to that.
#[derive(Debug)]
pub struct DeviceTensor {
    lease: Lease,
    dtype: DType,
    sizes: Dims,
    /// Done once the tensor is; `None` where it was waited for.
    ready: Option<Arc<dyn Mark>>,
}

impl DeviceTensor {
    pub(super) fn new(lease: Lease, dtype: DType, sizes: Dims, ready: Option<Arc<dyn Mark>>) -> Self {
        if let Some(mark) = &ready {
            lease.shelf.know(mark);
        }
        Self { lease, dtype, sizes, ready }
    }

    /// Brings row-major elements to a device, and waits for them.
    ///
    /// # Errors
    /// A sentence where the space is not there, is no device, or has no memory left, or `bytes` are not as many
    /// as the elements have.
    pub fn upload(
        arenas: &ArenaSet,
        space: SpaceId,
        (dtype, sizes): (DType, &[usize]),
        bytes: &[u8],
    ) -> Result<Self, String> {
        let space = arenas.resolve(space).map_err(|missing| missing.to_string())?;
        let dims = Dims::new(sizes).ok_or("more dimensions than a tensor can have")?;
        let wanted = numel(sizes).and_then(|count| count.checked_mul(dtype.size_bytes()));
        if wanted != Some(bytes.len()) {
            return Err(format!("{} bytes for elements of {wanted:?} bytes", bytes.len()));
        }
        let text = |error: QueueError| error.to_string();
        let queue = arenas.space(space).map_or(Ok(None), |space| space.open_queue()).map_err(text)?;
        let mut queue = queue.ok_or_else(|| format!("{space} is no device"))?;
        let lease = Shelf::new(arenas, space, bytes.len(), "tensor")?.take(queue.raw_stream())?;
        if !bytes.is_empty() {
            let (target, source) = (lease.address, NonNull::from(bytes).cast());
            // SAFETY: a block of this size on the queue's device; the source is borrowed, and the next line waits.
            unsafe { queue.upload(&[Piece { target, source, size_bytes: bytes.len() }]) }.map_err(text)?;
        }
        queue.synchronize().map_err(text)?;
        lease.shelf.know(&queue.leave().map_err(text)?);
        *lease.last.lock() = LastUse::Done;
        Ok(Self { lease, dtype, sizes: dims, ready: None })
    }

    /// Where the first element is, on the device.
    pub fn address(&self) -> NonNull<u8> {
        self.lease.address
    }

    /// The element kind.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Counts per dimension.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Where it is.
    pub fn space(&self) -> SpaceId {
        self.lease.shelf.space
    }

    /// The bytes of all elements.
    pub fn size_bytes(&self) -> usize {
        self.sizes.iter().product::<usize>() * self.dtype.size_bytes()
    }

    /// Lets a stream use the tensor from now on: what it is given waits for the elements, and the memory goes to
    /// nobody else before the stream's work at the time of dropping is done.
    ///
    /// # Safety
    /// * `stream` is the driver's handle of a live stream of this device, or 0 for the default one.
    ///
    /// # Errors
    /// [`QueueError`]: what the driver said.
    pub unsafe fn order(&self, stream: usize) -> Result<(), QueueError> {
        let mut last = self.lease.last.lock();
        let same = *last == LastUse::Stream(stream);
        *last = last.and(stream);
        match &self.ready {
            // SAFETY: by the caller.
            Some(mark) if !same => unsafe { mark.order(stream) },
            _ => Ok(()),
        }
    }

    /// Waits until the elements are there.
    ///
    /// # Errors
    /// [`QueueError`]: what failed of the work that produces them.
    pub fn wait(&self) -> Result<(), QueueError> {
        self.ready.as_ref().map_or(Ok(()), |mark| mark.synchronize())
    }

    /// Copies the elements to `target`, which must be just as long, and waits for them.
    ///
    /// # Errors
    /// A sentence: lengths differ, or what the driver said.
    pub fn download(&self, target: &mut [u8]) -> Result<(), String> {
        if target.len() != self.size_bytes() {
            return Err(format!("{} bytes into a place of {}", self.size_bytes(), target.len()));
        }
        let text = |error: QueueError| error.to_string();
        self.wait().map_err(text)?;
        let space = Arc::clone(self.lease.shelf.stock.lock().arena.space());
        let mut queue = space.open_queue().map_err(text)?.ok_or("its space is no device")?;
        if !target.is_empty() {
            let piece = Piece {
                target: NonNull::from(&mut *target).cast(),
                source: self.lease.address,
                size_bytes: target.len(),
            };
            // SAFETY: the target is borrowed until the next line has waited; the source is this tensor's memory.
            unsafe { queue.download(&[piece]) }.map_err(text)?;
        }
        queue.synchronize().map_err(text)
    }
}
