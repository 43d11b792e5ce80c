//! Planned memory: one arena per space, carved as the plan says.
//!
//! ```text
//!   arena of host      │ buffer 1 │ buffer 3 │ unplanned inputs and outputs │ copies of outputs that others may write │
//!   arena of cuda:0    │ buffer 2 │
//!   shared             │ state that several methods keep │ scratch that they lend │      owned by all of them
//! ```
//!
//! Every byte but lent scratch is zero when a method is loaded, or what the file says it is initially.
//!
//! Deliberately absent: offsets of its own. They are the file's, proved free of overlaps by [`super::flow`].

use super::copies::{self, Copies};
use super::error::LoadError;
use super::holdings::{Carved, Holdings, Want};
use super::load::{LoadOptions, Share};
use super::memory::Tables;
use super::placement::Placement;
use super::shared::{Lent, SharedScratch, SharedState, shared_entry};
use super::state::Roles;
use crate::program::{DataRef, MethodPlan, Program, Storage};
use crate::space::{QueueError, SpaceId};
use crate::tensor::Tensor;
use crate::value::Value;
use core::ptr::NonNull;
use std::sync::Arc;

/// The planned memory of a method.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) holdings: Holdings,
    pub(super) shared: Option<Arc<SharedState>>,
    /// Scratch that this method uses in turn with others, and the blocks that keep it there.
    pub(super) scratch: Option<SharedScratch>,
    _lent: Vec<Arc<Lent>>,
    pub(super) placement: Placement,
    /// Per memory id.
    buffers: Vec<Option<Carved>>,
    /// Tensor indices of unplanned inputs and outputs, and the memory they have unless the caller's is used.
    staged: Vec<(usize, Carved)>,
    /// Of outputs that another method's run may write over.
    pub(super) copies: Copies,
}

impl Planned {
    /// Takes what the plan of method `index` wants.
    pub(super) fn take(
        program: &Program,
        index: usize,
        placement: Placement,
        options: &LoadOptions,
    ) -> Result<Self, LoadError> {
        let plan = &program.methods()[index];
        let lends = |id: usize| id < placement.lent_ids;
        let own_bytes =
            |(id, &(_, size_bytes)): (usize, &(SpaceId, usize))| if lends(id) { 0 } else { size_bytes };
        let want = |space: SpaceId, size_bytes: usize| Want { space, size_bytes };
        let mut wants: Vec<Want> =
            placement.buffers.iter().enumerate().map(|entry| want(entry.1.0, own_bytes(entry))).collect();
        let mut staged_tensors = Vec::new();
        for &id in plan.inputs.iter().chain(&plan.outputs) {
            let Some(spec) = plan.tensor(id) else { continue };
            let Value::Tensor(tensor) = plan.value(id) else { continue };
            if spec.storage == Storage::Supplied && !staged_tensors.contains(&(tensor as usize)) {
                staged_tensors.push(tensor as usize);
                wants.push(want(resolve(plan, options, spec.space, spec.size_bytes)?, spec.size_bytes));
            }
        }
        let others = |tensor: usize| {
            let shared = options.share != Share::Nothing && shared_entry(program, (index, tensor)).is_some();
            shared || placement.place(tensor).is_some_and(|(id, _)| lends(id))
        };
        let copied = copies::wanted(plan, &others);
        for &(tensor, of) in &copied {
            let space = placement.place(of).map_or(SpaceId::HOST, |(id, _)| placement.buffers[id].0);
            wants.push(want(space, plan.tensors[tensor].size_bytes));
        }
        let label = program.label();
        let owner = format!("{} of {}", plan.name, label.rsplit('/').next().unwrap_or(label));
        let refused = |refusal| LoadError::refused(plan, "its memory plan", refusal);
        let (mut holdings, mut blocks) = Holdings::take(&options.arenas, &wants, &owner).map_err(refused)?;
        let copy_blocks = blocks.split_off(wants.len() - copied.len());
        let staged_blocks = blocks.split_off(placement.buffers.len());
        let staged = staged_tensors.into_iter().zip(staged_blocks);
        let staged = staged.filter_map(|(tensor, block)| Some((tensor, block?))).collect();
        let copies = Copies::new(plan, copied.iter().map(|entry| entry.0).zip(copy_blocks));
        let mut lent = Vec::new();
        for id in 0..placement.lent_ids {
            let space = placement.buffers[id].0;
            let here = |&id: &usize| placement.buffers[id].0 == space && placement.buffers[id].1 > 0;
            if (0..placement.lent_ids).find(here) != Some(id) {
                continue;
            }
            let ids: Vec<usize> = (id..placement.lent_ids).filter(here).collect();
            let sizes: Vec<usize> = ids.iter().map(|&id| placement.buffers[id].1).collect();
            let (memory, carved) = options.scratch.lend(&options.arenas, space, &sizes).map_err(refused)?;
            lent.push(memory);
            holdings.open_queue(&options.arenas, space).map_err(refused)?;
            for (id, block) in ids.into_iter().zip(carved) {
                blocks[id] = Some(block);
            }
        }
        let scratch = (!lent.is_empty()).then(|| options.scratch.clone());
        Ok(Self { holdings, shared: None, scratch, _lent: lent, placement, buffers: blocks, staged, copies })
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
                let shared = self.shared.as_ref().and_then(|shared| shared.block(program, (method, index)));
                let place =
                    self.placement.place(index).and_then(|(id, offset)| Some((self.buffer(id)?, offset)));
                match (shared, place) {
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
        // * one thread at a time holds the method, and `running` where memory is shared or lent.
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
        let own = self.buffers.iter().skip(self.placement.lent_ids).flatten().copied();
        let blocks: Vec<Carved> = own.chain(self.staged.iter().map(|entry| entry.1)).collect();
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

/// The space of an unplanned tensor.
fn resolve(
    plan: &MethodPlan,
    options: &LoadOptions,
    space: SpaceId,
    needed_bytes: usize,
) -> Result<SpaceId, LoadError> {
    options.arenas.resolve(space).map_err(|missing| LoadError::MissingSpace {
        method: plan.name.to_string(),
        buffer: 0,
        needed_bytes,
        space: missing.id,
        present: missing.to_string(),
    })
}
