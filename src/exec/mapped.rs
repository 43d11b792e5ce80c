#![forbid(unsafe_code)]
//! Small tensors that cross between the host and a device: in pinned memory, which both reach.
//!
//! ```text
//!   upload ─► x ─► delegate ─► y ─► download        x, y: a few hundred bytes, read and written once
//! ```
//!
//! A copy of 256 bytes takes longer to start than the device takes to read them over the bus. Tensors that
//! only an upload writes, or only a download reads, and that are small, are therefore bound to pinned memory;
//! their place in the plan stays empty. Deliberately absent: larger tensors, and those that a device keeps.

use super::holdings::{Carved, Holdings, Want};
use super::load::LoadOptions;
use super::placement::Placement;
use super::state::for_each_tensor;
use crate::program::{Instruction, MethodPlan, Storage, TensorSpec};
use crate::space::SpaceId;
use crate::value::{Value, ValueId};

/// The tensors in pinned memory.
#[derive(Debug)]
pub(super) struct Mapped {
    /// Tensor indices, and the memory of each, under the name of the device that reaches it.
    tensors: Vec<(usize, Carved)>,
    /// Owns that memory.
    _pinned: Holdings,
}

impl Mapped {
    /// Takes pinned memory for the tensors of a plan that cross the bus; for none where there is none to be had.
    pub(super) fn take(plan: &MethodPlan, placement: &Placement, options: &LoadOptions, owner: &str) -> Self {
        let tensors = candidates(plan, &placement.buffers, options.max_mapped_bytes);
        let size_bytes = |index: usize| plan.tensors[index].size_bytes;
        let wants: Vec<Want> = tensors
            .iter()
            .map(|&(index, _)| Want { space: SpaceId::PINNED, size_bytes: size_bytes(index) })
            .collect();
        let there = !wants.is_empty() && options.arenas.resolve(SpaceId::PINNED).is_ok();
        let taken = there.then(|| Holdings::take(&options.arenas, &wants, owner).ok()).flatten();
        let (pinned, blocks) = taken.unwrap_or_default();
        let tensors = tensors.into_iter().zip(blocks);
        let tensors = tensors.filter_map(|((index, space), block)| Some((index, Carved { space, ..block? })));
        Self { tensors: tensors.collect(), _pinned: pinned }
    }

    /// The memory of a tensor, where it is pinned.
    pub(super) fn of(&self, tensor: usize) -> Option<Carved> {
        self.tensors.iter().find(|(index, _)| *index == tensor).map(|(_, block)| *block)
    }
}

/// How a method uses one tensor.
#[derive(Clone, Copy, Default)]
struct Uses {
    uploads: u32,
    downloads: u32,
    others: u32,
}

/// The tensors of a plan that are read or written once across the bus and have at most `max_bytes`, each with
/// the space of its device. `buffers` are the plan's, with their spaces.
fn candidates(plan: &MethodPlan, buffers: &[(SpaceId, usize)], max_bytes: usize) -> Vec<(usize, SpaceId)> {
    if max_bytes == 0 || buffers.iter().all(|(space, _)| space.name() != "cuda") {
        return Vec::new();
    }
    let Some(uses) = count_uses(plan) else { return Vec::new() };
    let crossing = |(index, spec): (usize, &TensorSpec)| {
        let Storage::Planned { buffer, initial: None, .. } = spec.storage else { return None };
        let (space, _) = buffers.get(buffer as usize).filter(|(space, _)| space.name() == "cuda")?;
        let uses = uses[index];
        let once = uses.others == 0 && uses.uploads + uses.downloads == 1;
        (once && spec.name.is_none() && spec.size_bytes <= max_bytes).then_some((index, *space))
    };
    plan.tensors.iter().enumerate().filter_map(crossing).collect()
}

/// `None` where values change or control jumps: what a tensor is then is not known beforehand.
fn count_uses(plan: &MethodPlan) -> Option<Vec<Uses>> {
    let mut uses = vec![Uses::default(); plan.tensors.len()];
    let mut count = |id: ValueId, add: fn(&mut Uses)| {
        for_each_tensor(plan, id, |tensor, _| {
            if let Some(uses) = uses.get_mut(tensor) {
                add(uses);
            }
        });
    };
    for instruction in &plan.instructions {
        match *instruction {
            Instruction::Kernel { operator, args } => {
                let ids = args.of(&plan.lists.ids);
                match (plan.operator(operator), ids) {
                    ("et_copy::_h2d_copy.out", [source, target, ..]) => {
                        count(*source, |uses| uses.others += 1);
                        count(*target, |uses| uses.uploads += 1);
                    }
                    ("et_copy::_d2h_copy.out", [source, target, ..]) => {
                        count(*source, |uses| uses.downloads += 1);
                        count(*target, |uses| uses.others += 1);
                    }
                    _ => ids.iter().for_each(|id| count(*id, |uses| uses.others += 1)),
                }
            }
            // What a delegate reads and writes it may: that is the use.
            Instruction::Delegate { args, .. } => {
                let single = |id: &ValueId| matches!(plan.value(*id), Value::Tensor(_));
                let lists = args.of(&plan.lists.ids).iter().filter(|id| !single(id));
                lists.for_each(|id| count(*id, |uses| uses.others += 1));
            }
            _ => return None,
        }
    }
    plan.inputs.iter().chain(&plan.outputs).for_each(|id| count(*id, |uses| uses.others += 1));
    Some(uses)
}
