//! Planned memory: one arena per space, carved as the plan says.
//!
//! ```text
//!   arena of host      │ buffer 1 │ buffer 3 │ unplanned inputs and outputs │ copies of outputs that others may write │
//!   arena of cuda:0    │ buffer 2 │
//!   arena of pinned    │ small tensors that cross between host and device, instead of their place in a buffer │
//!   shared             │ state that several methods keep │ scratch that they lend │      owned by all of them
//! ```
//!
//! Every byte but lent scratch is zero when a method is loaded, or what the file says it is initially.
//!
//! Deliberately absent: offsets of its own. They are the file's, proved free of overlaps by [`super::flow`].

use super::copies::Copies;
use super::error::LoadError;
use super::holdings::{Carved, Holdings, Refusal};
use super::load::LoadOptions;
use super::mapped::Mapped;
use super::memory::{Tables, Temp};
use super::placement::Placement;
use super::shared::{Lent, SharedScratch, SharedState};
use super::state::Roles;
use super::wants::Wants;
use crate::program::{DataRef, MethodPlan, Program, Storage};
use crate::space::{QueueError, SpaceId};
use crate::tensor::Tensor;
use core::ptr::NonNull;
use parking_lot::Mutex;
use std::sync::Arc;

/// The planned memory of a method.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) holdings: Holdings,
    pub(super) shared: Option<Arc<SharedState>>,
    /// Scratch that this method uses by turns with others, the blocks that keep it there, and that of kernels.
    pub(super) scratch: Option<SharedScratch>,
    lent: Vec<Arc<Lent>>,
    pub(super) lent_temp: Option<Arc<Mutex<Temp>>>,
    pub(super) placement: Placement,
    /// Per memory id.
    buffers: Vec<Option<Carved>>,
    /// Tensor indices of unplanned inputs and outputs, and the memory they have unless the caller's is used.
    staged: Vec<(usize, Carved)>,
    /// Of outputs that another method's run may write over.
    pub(super) copies: Copies,
    /// After the queues, whose work may use it.
    pub(super) mapped: Mapped,
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
        let wants = Wants::of(program, index, &placement, options)?;
        let owner = format!("{} of {}", plan.name, program.file_name());
        let refused = |refusal| LoadError::refused(plan, "its memory plan", refusal);
        let (holdings, mut blocks) =
            Holdings::take(&options.arenas, &wants.blocks, &owner).map_err(refused)?;
        let copies = blocks.split_off(blocks.len() - wants.copied.len());
        let staged = blocks.split_off(placement.buffers.len());
        let staged = wants.staged.into_iter().zip(staged);
        let staged = staged.filter_map(|(tensor, block)| Some((tensor, block?))).collect();
        let copies = Copies::new(plan, wants.copied.into_iter().zip(copies));
        let (shared, scratch, lent, lent_temp) = (None, None, Vec::new(), None);
        let mapped = Mapped::take(plan, &placement, options, &owner);
        let mut planned = Self {
            holdings,
            shared,
            scratch,
            lent,
            lent_temp,
            placement,
            buffers: blocks,
            staged,
            copies,
            mapped,
        };
        planned.borrow_scratch(options).map_err(refused)?;
        Ok(planned)
    }

    /// Takes the blocks of memory ids that other methods use too: those of each space at once.
    fn borrow_scratch(&mut self, options: &LoadOptions) -> Result<(), Refusal> {
        if self.placement.lent_ids > 0 {
            self.lent_temp = Some(options.scratch.lend_temp(&options.arenas)?);
            self.scratch = Some(options.scratch.clone());
        }
        let is_lent = |&id: &usize| self.placement.buffers[id].1 > 0;
        let mut ids: Vec<usize> = (0..self.placement.lent_ids).filter(is_lent).collect();
        while let Some(&first) = ids.first() {
            let space = self.placement.buffers[first].0;
            let (here, others): (Vec<usize>, Vec<usize>) =
                ids.into_iter().partition(|&id| self.placement.buffers[id].0 == space);
            let sizes: Vec<usize> = here.iter().map(|&id| self.placement.buffers[id].1).collect();
            let (memory, blocks) = options.scratch.lend(&options.arenas, space, &sizes)?;
            self.holdings.open_queue(&options.arenas, space)?;
            self.lent.push(memory);
            for (id, block) in here.into_iter().zip(blocks) {
                self.buffers[id] = Some(block);
            }
            ids = others;
        }
        Ok(())
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
                let mapped = self.mapped.of(index);
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
