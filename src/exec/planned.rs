//! Planned memory: one arena per space, carved as the plan says.
//!
//! ```text
//!   arena of host      │ buffer 1 │ buffer 3 │ unplanned inputs and outputs │
//!   arena of cuda:0    │ buffer 2 │
//!   shared state       │ a named buffer that several methods keep          │   owned by all of them
//! ```
//!
//! Every byte is zero when a method is loaded, or what the file says it is initially.
//!
//! Deliberately absent: offsets of its own. They are the file's, proved free of overlaps by [`super::flow`].

use super::error::LoadError;
use super::load::LoadOptions;
use super::mapped;
use super::memory::Tables;
use super::placement::Placement;
use super::state::Roles;
use crate::arena::{ArenaSet, PooledArena};
use crate::program::{DataRef, MethodPlan, Program, StateMember, Storage};
use crate::space::{AllocError, GraphId, Piece, Queue, QueueError, SpaceId};
use crate::tensor::Tensor;
use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Arc;

/// The alignment of a planned buffer on the host, in bytes: a cache line.
const HOST_ALIGN: usize = 64;
/// The alignment of a planned buffer on a device, in bytes: what CUDA's own allocator gives.
const DEVICE_ALIGN: usize = 256;

/// Bytes wanted in one space, for a named use.
struct Want {
    space: SpaceId,
    size_bytes: usize,
}

/// Memory that was refused: the space, the bytes asked for, and what the space said.
pub(super) type Refusal = (SpaceId, usize, String);

/// A block that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carved {
    pub(super) address: NonNull<u8>,
    pub(super) size_bytes: usize,
    pub(super) space: SpaceId,
}

/// Arenas, and the device queues that order work on them.
#[derive(Default)]
pub(super) struct Holdings {
    /// Before the arenas: a queue waits for its work when dropped, and then memory may go.
    pub(super) queues: Vec<Box<dyn Queue>>,
    arenas: Vec<(SpaceId, PooledArena)>,
}

impl core::fmt::Debug for Holdings {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Holdings").field("arenas", &self.arenas).finish_non_exhaustive()
    }
}

impl Holdings {
    /// Takes one arena per space, large enough for all wants there, and carves a block for each.
    fn take(arenas: &ArenaSet, wants: &[Want], owner: &str) -> Result<(Self, Vec<Option<Carved>>), Refusal> {
        let mut holdings = Self::default();
        let mut blocks = vec![None; wants.len()];
        for (first, want) in wants.iter().enumerate() {
            let space = want.space;
            if want.size_bytes == 0 || holdings.arenas.iter().any(|(known, _)| *known == space) {
                continue;
            }
            let align = if space.is_host() { HOST_ALIGN } else { DEVICE_ALIGN };
            let mine = || {
                wants
                    .iter()
                    .enumerate()
                    .skip(first)
                    .filter(|(_, want)| want.space == space && want.size_bytes > 0)
            };
            let total = mine().try_fold(0_usize, |sum, (_, want)| {
                sum.checked_add(want.size_bytes)?.checked_next_multiple_of(align)
            });
            let total = total.ok_or((space, usize::MAX, "more than can be addressed".to_string()))?;
            let refused = |error: AllocError| (space, total, error.to_string());
            let arena = arenas.take(space, total, owner).map_err(refused)?;
            for (index, want) in mine() {
                let layout = Layout::from_size_align(want.size_bytes, align)
                    .map_err(|_| (space, want.size_bytes, "more than can be addressed".to_string()))?;
                // Host blocks are zero from the start; a queue zeroes the others.
                let block =
                    if space.is_host() { arena.allocate_zeroed(layout) } else { arena.allocate(layout) };
                let block = block.map_err(refused)?;
                blocks[index] = Some(Carved { address: block.address(), size_bytes: want.size_bytes, space });
            }
            holdings.arenas.push((space, arena));
            let queue = arenas.space(space).map_or(Ok(None), |space| space.open_queue());
            if let Some(queue) = queue.map_err(|error| (space, total, error.to_string()))? {
                holdings.queues.push(queue);
            }
        }
        Ok((holdings, blocks))
    }

    /// The queue of a device space.
    pub(super) fn queue(&mut self, space: SpaceId) -> Option<&mut (dyn Queue + 'static)> {
        self.queues.iter_mut().find(|queue| queue.space() == space).map(AsMut::as_mut)
    }

    /// Does recorded work again on the pieces, and waits for it.
    pub(super) fn replay(
        &mut self,
        space: SpaceId,
        graph: GraphId,
        uploads: &[Piece],
        downloads: &[Piece],
    ) -> Result<(), QueueError> {
        let Some(queue) = self.queue(space) else { return Ok(()) };
        // SAFETY: the pieces are bound memory of this method (T1), as long as they say; the graph uses arenas
        // held here and by the delegates, which neither move nor shrink; the next line waits.
        unsafe { queue.replay(graph, uploads, downloads) }?;
        queue.synchronize()
    }

    /// Waits until every queue has done its work.
    pub(super) fn synchronize(&mut self) -> Result<(), QueueError> {
        self.queues.iter_mut().try_for_each(|queue| queue.synchronize())
    }

    /// Makes a block all zero.
    fn zero(&mut self, block: Carved) -> Result<(), QueueError> {
        if let Some(queue) = self.queue(block.space) {
            // SAFETY: the block came from the arena of this space, held here, and nothing uses it now.
            return unsafe { queue.fill(block.address, block.size_bytes, 0) };
        }
        // SAFETY: an arena's block in a space without a queue is host memory, and writable; nothing uses it now.
        unsafe { block.address.write_bytes(0, block.size_bytes) };
        Ok(())
    }

    /// Makes the bytes at `target` what `source` holds.
    fn fill(&mut self, target: NonNull<u8>, space: SpaceId, source: &[u8]) -> Result<(), QueueError> {
        if let Some(queue) = self.queue(space) {
            let piece = Piece { target, source: NonNull::from(source).cast(), size_bytes: source.len() };
            // SAFETY: the target is inside a block held here; the source is borrowed until the queue has done
            // its work, which the next line waits for.
            unsafe { queue.upload(&[piece]) }?;
            return queue.synchronize();
        }
        // SAFETY: the target is inside a host block held here, at least as long as the source (the reader checked
        // initial values against their tensors); it overlaps no file.
        unsafe { target.copy_from_nonoverlapping(NonNull::from(source).cast(), source.len()) };
        Ok(())
    }
}

/// State that several methods of a program keep together.
pub(super) struct SharedState {
    holdings: parking_lot::Mutex<Holdings>,
    /// Per entry of [`Program::shared_state`].
    blocks: Vec<Option<Carved>>,
    /// Held by the method that runs.
    pub(super) running: parking_lot::Mutex<()>,
}

impl core::fmt::Debug for SharedState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedState").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

// SAFETY: the blocks are memory of arenas held here; their bytes are touched by the method that holds `running`.
unsafe impl Send for SharedState {}
// SAFETY: as above.
unsafe impl Sync for SharedState {}

impl SharedState {
    /// Takes a block for each shared buffer of the program, with its initial value.
    pub(super) fn take(
        program: &Program,
        plan: &MethodPlan,
        options: &LoadOptions,
    ) -> Result<Self, LoadError> {
        let entries = program.shared_state();
        let mut wants = Vec::with_capacity(entries.len());
        for entry in entries {
            let first =
                entry.members.first().and_then(|member| program.methods().get(member.method as usize));
            let space = first.and_then(|method| method.buffers.get(entry.buffer as usize));
            let space = space.map_or(SpaceId::HOST, |buffer| buffer.space);
            let space = options.arenas.resolve(space).unwrap_or(space);
            wants.push(Want { space, size_bytes: entry.size_bytes });
        }
        let label = format!("{} (shared state)", program.label());
        let (holdings, blocks) = Holdings::take(&options.arenas, &wants, &label)
            .map_err(|refused| LoadError::refused(plan, "shared state", refused))?;
        let state = Self { holdings: holdings.into(), blocks, running: parking_lot::Mutex::default() };
        state.reset(program).map_err(|error| LoadError::queue(plan, "shared state", &error))?;
        Ok(state)
    }

    /// Makes every shared buffer what the file says it is initially.
    pub(super) fn reset(&self, program: &Program) -> Result<(), QueueError> {
        let mut holdings = self.holdings.lock();
        for (entry, block) in program.shared_state().iter().zip(&self.blocks) {
            let Some(block) = *block else { continue };
            holdings.zero(block)?;
            let initial = entry.members.iter().find_map(|member| {
                let method = program.methods().get(member.method as usize)?;
                match method.tensors.get(member.tensor as usize)?.storage {
                    Storage::Planned { initial, .. } => initial,
                    _ => None,
                }
            });
            if let Some(initial) = initial {
                holdings.fill(block.address, block.space, program.data(initial))?;
            }
        }
        holdings.synchronize()
    }

    /// The block of a tensor, where it is shared.
    fn block(&self, program: &Program, member: (usize, usize)) -> Option<Carved> {
        let is_member = |known: &StateMember| (known.method as usize, known.tensor as usize) == member;
        let at = program.shared_state().iter().position(|entry| entry.members.iter().any(is_member))?;
        self.blocks.get(at).copied().flatten()
    }
}

/// The planned memory of a method.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) holdings: Holdings,
    pub(super) shared: Option<Arc<SharedState>>,
    pub(super) placement: Placement,
    /// Per memory id.
    buffers: Vec<Option<Carved>>,
    /// Tensor indices of unplanned inputs and outputs, and the memory they have unless the caller's is used.
    staged: Vec<(usize, Carved)>,
    /// Tensor indices of those in pinned memory, and that memory under the name of the device that reaches it.
    mapped: Vec<(usize, Carved)>,
    /// After the queues, whose work may use it.
    _pinned: Holdings,
}

// SAFETY: the blocks are memory of arenas held here or by `shared`; whoever holds the method touches them, and
// shared ones only while it holds `running`.
unsafe impl Send for Planned {}

impl Planned {
    /// Takes what a plan wants.
    pub(super) fn take(
        program: &Program,
        plan: &MethodPlan,
        placement: Placement,
        options: &LoadOptions,
    ) -> Result<Self, LoadError> {
        let mut wants: Vec<Want> =
            placement.buffers.iter().map(|&(space, size_bytes)| Want { space, size_bytes }).collect();
        let mut staged_tensors = Vec::new();
        for &id in plan.inputs.iter().chain(&plan.outputs) {
            let Some(spec) = plan.tensor(id) else { continue };
            let crate::value::Value::Tensor(index) = plan.value(id) else { continue };
            if spec.storage == Storage::Supplied && !staged_tensors.contains(&(index as usize)) {
                let space =
                    options.arenas.resolve(spec.space).map_err(|missing| LoadError::MissingSpace {
                        method: plan.name.to_string(),
                        buffer: 0,
                        needed_bytes: spec.size_bytes,
                        space: missing.id,
                        present: missing.to_string(),
                    })?;
                staged_tensors.push(index as usize);
                wants.push(Want { space, size_bytes: spec.size_bytes });
            }
        }
        let owner = format!("{} of {}", plan.name, program.label());
        let (holdings, mut blocks) = Holdings::take(&options.arenas, &wants, &owner)
            .map_err(|refused| LoadError::refused(plan, "its memory plan", refused))?;
        let staged_blocks = blocks.split_off(plan.buffers.len());
        let staged = staged_tensors.into_iter().zip(staged_blocks);
        let staged = staged.filter_map(|(tensor, block)| Some((tensor, block?))).collect();
        let (pinned, mapped) = take_mapped(plan, &placement, options, &owner);
        Ok(Self { holdings, shared: None, placement, buffers: blocks, staged, mapped, _pinned: pinned })
    }

    /// The memory of an unplanned input or output.
    pub(super) fn staged(&self, tensor: usize) -> Option<Carved> {
        self.staged.iter().find(|(index, _)| *index == tensor).map(|(_, block)| *block)
    }

    /// The block of a memory id.
    pub(super) fn buffer(&self, id: usize) -> Option<Carved> {
        self.buffers.get(id).copied().flatten()
    }

    /// Gives a tensor its memory, as its storage says.
    pub(super) fn bind(
        &self,
        program: &Program,
        plan: &MethodPlan,
        (method, index): (usize, usize),
        tensor: &mut Tensor,
    ) {
        let spec = &plan.tensors[index];
        let (address, size_bytes, space, writable) = match spec.storage {
            Storage::Constant(data) => {
                let bytes = program.data(data);
                (NonNull::from(bytes).cast(), bytes.len(), SpaceId::HOST, false)
            }
            Storage::Planned { .. } => {
                let mapped = self.mapped.iter().find(|(tensor, _)| *tensor == index).map(|(_, block)| *block);
                let shared = self.shared.as_ref().and_then(|shared| shared.block(program, (method, index)));
                let place =
                    self.placement.place(index).and_then(|(id, offset)| Some((self.buffer(id)?, offset)));
                match (mapped.or(shared), place) {
                    (Some(block), _) => (block.address, block.size_bytes, block.space, true),
                    (None, Some((block, offset_bytes))) => {
                        // A pointer that may be the device's: moved as an address, never read here.
                        let address = block.address.as_ptr().wrapping_add(offset_bytes);
                        let address = NonNull::new(address).unwrap_or(block.address);
                        (address, spec.size_bytes, block.space, true)
                    }
                    // An empty buffer holds empty tensors.
                    (None, None) => return,
                }
            }
            Storage::Supplied => match self.staged(index) {
                Some(block) => (block.address, block.size_bytes, block.space, true),
                None => return,
            },
            Storage::Missing => return,
        };
        // SAFETY:
        // * constants lie in the program, which the method keeps alive, and are bound read-only;
        // * the reader, or the planner's verifier, proved that `offset_bytes` and `size_bytes` lie inside the buffer,
        //   whose block is held here or by `shared` as long as the tensor, and is initialised before the first run;
        // * one thread at a time holds the method, and `running` where state is shared.
        unsafe { tensor.bind(address, size_bytes, space, writable) };
    }

    /// Makes every byte zero, then what the file says it is initially.
    pub(super) fn initialise(
        &mut self,
        program: &Program,
        plan: &MethodPlan,
        tables: &Tables,
    ) -> Result<(), LoadError> {
        let failed = |error: QueueError| LoadError::queue(plan, "its memory plan", &error);
        let blocks: Vec<Carved> =
            self.buffers.iter().flatten().copied().chain(self.staged.iter().map(|entry| entry.1)).collect();
        for block in blocks.into_iter().filter(|block| !block.space.is_host()) {
            self.holdings.zero(block).map_err(failed)?;
        }
        for (index, spec) in plan.tensors.iter().enumerate() {
            if let Storage::Planned { initial: Some(initial), .. } = spec.storage {
                self.set_initial(program, index, &tables.tensors()[index], initial).map_err(failed)?;
            }
        }
        self.holdings.synchronize().map_err(failed)
    }

    /// Sets the private state of a method as it was when loaded.
    pub(super) fn reset_state(
        &mut self,
        program: &Program,
        plan: &MethodPlan,
        roles: &Roles,
        tables: &Tables,
    ) -> Result<(), QueueError> {
        for (index, spec) in plan.tensors.iter().enumerate().filter(|(index, _)| roles.state[*index]) {
            let tensor = &tables.tensors()[index];
            let Storage::Planned { initial, .. } = spec.storage else { continue };
            let Some(address) = tensor.address().filter(|_| self.owns(index, tensor)) else { continue };
            let block = Carved { address, size_bytes: spec.size_bytes, space: tensor.space() };
            self.holdings.zero(block)?;
            if let Some(initial) = initial {
                self.set_initial(program, index, tensor, initial)?;
            }
        }
        self.holdings.synchronize()
    }

    /// Whether a tensor lies in this method's own buffer rather than in shared state.
    fn owns(&self, index: usize, tensor: &Tensor) -> bool {
        let block = self.placement.place(index).and_then(|(id, _)| self.buffer(id));
        let (Some(block), Some(address)) = (block, tensor.address()) else { return false };
        let start = block.address.addr().get();
        (start..start + block.size_bytes).contains(&address.addr().get())
    }

    fn set_initial(
        &mut self,
        program: &Program,
        index: usize,
        tensor: &Tensor,
        initial: DataRef,
    ) -> Result<(), QueueError> {
        match tensor.address() {
            Some(address) if self.owns(index, tensor) => {
                self.holdings.fill(address, tensor.space(), program.data(initial))
            }
            _ => Ok(()),
        }
    }
}

/// Pinned memory for the tensors that cross the bus; none where there is no pinned memory to be had.
fn take_mapped(
    plan: &MethodPlan,
    placement: &Placement,
    options: &LoadOptions,
    owner: &str,
) -> (Holdings, Vec<(usize, Carved)>) {
    let tensors = mapped::candidates(plan, &placement.buffers, options.max_mapped_bytes);
    let none = || (Holdings::default(), Vec::new());
    if tensors.is_empty() || options.arenas.resolve(SpaceId::PINNED).is_err() {
        return none();
    }
    let want = |(index, _): &(usize, SpaceId)| Want {
        space: SpaceId::PINNED,
        size_bytes: plan.tensors[*index].size_bytes,
    };
    let wants: Vec<Want> = tensors.iter().map(want).collect();
    let Ok((holdings, blocks)) = Holdings::take(&options.arenas, &wants, owner) else { return none() };
    let mapped = tensors.into_iter().zip(blocks);
    let mapped = mapped.filter_map(|((index, space), block)| Some((index, Carved { space, ..block? })));
    let mapped = mapped.collect();
    (holdings, mapped)
}
