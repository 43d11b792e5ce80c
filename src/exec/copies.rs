//! Copies of outputs that another method's run may write over.
//!
//! An output that lies in state which methods share, or in scratch that they lend each other, is this method's
//! only while it runs. Before the run lets go, it is copied to a block that nobody else uses, and is read there.
//!
//! Deliberately absent: all other outputs; they stay in place until the next run.

use super::device;
use super::holdings::{Carved, Holdings};
use crate::program::{Instruction, MethodPlan};
use crate::tensor::Tensor;
use crate::value::{Value, ValueId};

/// The operator that makes one tensor name another's bytes.
const VIEW: &str = "executorch_prim::et_view.default";

/// Tensor indices of outputs, and the tensors that hold copies of them.
#[derive(Debug, Default)]
pub(super) struct Copies(Vec<(usize, Tensor)>);

// SAFETY: the tensors' blocks are memory that the method holds beside them; whoever holds the method touches them.
unsafe impl Send for Copies {}

impl Copies {
    /// Copies of these tensors, each in a block of its own.
    pub(super) fn new(plan: &MethodPlan, blocks: impl Iterator<Item = (usize, Option<Carved>)>) -> Self {
        Self(blocks.map(|(tensor, block)| (tensor, copy_of(plan, tensor, block))).collect())
    }

    /// The copy of a tensor, where there is one.
    pub(super) fn of(&self, tensor: usize) -> Option<&Tensor> {
        self.0.iter().find(|(index, _)| *index == tensor).map(|(_, copy)| copy)
    }

    /// Makes every copy what its tensor holds.
    pub(super) fn fill(&mut self, holdings: &mut Holdings, tensors: &[Tensor]) -> Result<(), String> {
        let mut queued = false;
        for (index, copy) in &mut self.0 {
            let tensor = &tensors[*index];
            copy.resize(tensor.sizes()).map_err(|error| error.to_string())?;
            device::copy(holdings, tensor, copy)?;
            queued |= !tensor.space().is_host();
        }
        if queued { holdings.synchronize().map_err(|error| error.to_string()) } else { Ok(()) }
    }
}

/// The tensors that an output may be whose bytes `others` may write, each with such a tensor: itself, or the one
/// that it views.
pub(super) fn wanted(plan: &MethodPlan, others: &impl Fn(usize) -> bool) -> Vec<(usize, usize)> {
    let mut copied: Vec<(usize, usize)> = Vec::new();
    for &output in &plan.outputs {
        // Everything whose value or bytes may end up there.
        let mut ids: Vec<ValueId> = vec![output];
        let mut at = 0;
        while let Some(&id) = ids.get(at) {
            let sources = plan.instructions.iter().filter_map(|instruction| source_of(plan, instruction, id));
            for source in sources {
                if !ids.contains(&source) {
                    ids.push(source);
                }
            }
            at += 1;
        }
        let tensors = || {
            ids.iter().filter_map(|&id| match plan.value(id) {
                Value::Tensor(tensor) => Some(tensor as usize),
                _ => None,
            })
        };
        let Some(of) = tensors().find(|&tensor| others(tensor)) else { continue };
        for tensor in tensors() {
            if !copied.iter().any(|(known, _)| *known == tensor) {
                copied.push((tensor, if others(tensor) { tensor } else { of }));
            }
        }
    }
    copied
}

/// What an instruction makes the value `to` name: by a move, or as a view.
fn source_of(plan: &MethodPlan, instruction: &Instruction, to: ValueId) -> Option<ValueId> {
    match *instruction {
        Instruction::Move { from, to: target } if target == to => Some(from),
        Instruction::Kernel { operator, args } if plan.operator(operator) == VIEW => {
            match *args.of(&plan.lists.ids) {
                [from, _, target, ..] if target == to => Some(from),
                _ => None,
            }
        }
        _ => None,
    }
}

/// A tensor like one of the plan, in a block of its own.
fn copy_of(plan: &MethodPlan, tensor: usize, block: Option<Carved>) -> Tensor {
    let spec = &plan.tensors[tensor];
    let mut copy = Tensor::new(spec.dtype, plan.sizes(spec), plan.order(spec), spec.dynamic)
        .expect("the reader checked sizes and orders of every tensor");
    if let Some(block) = block {
        // SAFETY: the block came from an arena that the caller keeps beside the tensor, zero or a device's, as
        // large as the tensor at most; nothing else names it.
        unsafe { copy.bind(block.address, block.size_bytes, block.space, true) };
    }
    copy
}
