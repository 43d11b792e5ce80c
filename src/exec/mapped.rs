#![forbid(unsafe_code)]
//! Tensors that cross between the host and a device: in pinned memory, which both reach.
//!
//! ```text
//!   input ─► upload ─► x ─► delegate ─► y ─► download ─► output
//!   └────── one place ──┘               └────── one place ─────┘     small: a few KiB, read and written once
//!   └ pinned ┘                                       └ pinned ─┘     larger: copied by the device alone
//! ```
//!
//! A copy of 256 bytes takes longer to start than the device takes to read them over the bus, even several times:
//! kernels inside a delegate may use its inputs and outputs as often as they like. Tensors that only an upload
//! writes, or only a download reads, and that are small, are therefore bound to pinned memory; their place in the
//! plan stays empty. Where nothing else uses the other end of the copy, it is bound to the same bytes, and the copy is
//! none. Of larger tensors only that other end is: the device copies it without the CPU. Deliberately absent: ends so
//! large that page-locking them takes longer than a load, tensors that a device keeps, and views with what they view:
//! a tensor that nothing writes reads the bytes that another one left in the plan.

use super::holdings::{Carved, Holdings, Want};
use super::load::LoadOptions;
use super::placement::Placement;
use super::state::for_each_tensor;
use crate::program::{Instruction, MethodPlan, Storage, TensorSpec};
use crate::space::SpaceId;
use crate::value::{Value, ValueId};
use core::ptr::NonNull;

/// The largest host end of a copy that is pinned, in bytes: page-locking a mebibyte takes a third of a millisecond.
pub(super) const PINNED_END_MAX: usize = 1 << 20;

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
        let crossings = candidates(plan, &placement.buffers, options.max_mapped_bytes);
        let wants: Vec<Want> = crossings
            .iter()
            .map(|crossing| Want { space: SpaceId::PINNED, size_bytes: crossing.size_bytes })
            .collect();
        let there = !wants.is_empty() && options.arenas.resolve(SpaceId::PINNED).is_ok();
        let taken = there.then(|| Holdings::take(&options.arenas, &wants, owner).ok()).flatten();
        let (pinned, blocks) = taken.unwrap_or_default();
        let mut tensors = Vec::new();
        for (crossing, block) in crossings.into_iter().zip(blocks) {
            let Some(block) = block else { continue };
            tensors.extend(crossing.device.map(|(tensor, space)| (tensor, Carved { space, ..block })));
            tensors.extend(crossing.end.map(|end| (end, Carved { space: SpaceId::HOST, ..block })));
        }
        Self { tensors, _pinned: pinned }
    }

    /// The host ends of copies.
    pub(super) fn host_ends(&self) -> Vec<NonNull<[u8]>> {
        let ends = self.tensors.iter().filter(|(_, block)| block.space.is_host());
        ends.map(|(_, block)| NonNull::slice_from_raw_parts(block.address, block.size_bytes)).collect()
    }

    /// The memory of a tensor, where it is pinned.
    pub(super) fn of(&self, tensor: usize) -> Option<Carved> {
        self.tensors.iter().find(|(index, _)| *index == tensor).map(|(_, block)| *block)
    }
}

/// A copy across the bus, and what of it is to be in pinned memory.
struct Crossing {
    size_bytes: usize,
    /// The device's end, and the device, where it is small.
    device: Option<(usize, SpaceId)>,
    /// The host's end, where nothing else uses it.
    end: Option<usize>,
}

/// How a method uses one tensor.
#[derive(Clone, Copy, Default)]
struct Uses {
    /// As the target of an upload, and the source then.
    uploads: u32,
    uploaded_from: usize,
    /// As the source of a download, and the target then.
    downloads: u32,
    downloaded_to: usize,
    /// As the host's end of either, and of a download.
    host_ends: u32,
    fetched: u32,
    /// As an argument of a delegate, which may write it.
    delegated: u32,
    inputs: u32,
    outputs: u32,
    others: u32,
}

impl Uses {
    /// Whether nothing but one copy uses it, and the caller at the other end.
    fn is_end(&self) -> bool {
        self.host_ends == 1
            && self.inputs + self.outputs == 1
            && self.uploads + self.downloads + self.others == 0
    }

    /// Whether it is read and nothing writes it: it is a view of what lies where it is planned.
    fn is_view(&self) -> bool {
        self.inputs + self.uploads + self.fetched + self.delegated + self.others == 0
            && self.host_ends + self.downloads + self.outputs > 0
    }
}

/// The tensors of a plan that are sent or fetched once across the bus; those of at most `max_bytes` are small, and
/// where that is 0, there are none. `buffers` are the plan's, with their spaces.
fn candidates(plan: &MethodPlan, buffers: &[(SpaceId, usize)], max_bytes: usize) -> Vec<Crossing> {
    if max_bytes == 0 || buffers.iter().all(|(space, _)| space.name() != "cuda") {
        return Vec::new();
    }
    let Some((uses, host_computes)) = count_uses(plan) else { return Vec::new() };
    let space_of = |spec: &TensorSpec| match spec.storage {
        Storage::Planned { buffer, initial: None, .. } if spec.name.is_none() => {
            buffers.get(buffer as usize).map(|(space, _)| *space)
        }
        _ => None,
    };
    let range = |spec: &TensorSpec| match spec.storage {
        Storage::Planned { buffer, offset_bytes, .. } => Some((buffer, offset_bytes, spec.size_bytes)),
        _ => None,
    };
    let views: Vec<_> = plan.tensors.iter().zip(&uses).filter(|(_, uses)| uses.is_view()).collect();
    let is_viewed = |tensor: usize| {
        let Some((buffer, start, size_bytes)) = range(&plan.tensors[tensor]) else { return false };
        views.iter().filter_map(|(view, _)| range(view)).any(|(other, from, view_bytes)| {
            other == buffer && from < start + size_bytes && start < from + view_bytes
        })
    };
    // Kernels of the host make views while they run: without any, what is not viewed is a tensor's own.
    let is_end = |end: usize, size_bytes: usize| {
        let spec = &plan.tensors[end];
        let same = space_of(spec).is_some_and(|space| space.is_host()) && spec.size_bytes == size_bytes;
        !host_computes && same && uses[end].is_end() && !is_viewed(end)
    };
    let crossing = |(tensor, spec): (usize, &TensorSpec)| {
        let space = space_of(spec).filter(|space| space.name() == "cuda")?;
        let (own, size_bytes) = (uses[tensor], spec.size_bytes);
        let once = own.others + own.host_ends + own.inputs + own.outputs == 0;
        let end = match (own.uploads, own.downloads) {
            (1, 0) => own.uploaded_from,
            (0, 1) => own.downloaded_to,
            _ => return None,
        };
        let end = Some(end).filter(|&end| is_end(end, size_bytes));
        let device = (size_bytes <= max_bytes).then_some((tensor, space));
        let wanted = device.is_some() || (end.is_some() && size_bytes <= PINNED_END_MAX);
        (once && wanted && !is_viewed(tensor)).then_some(Crossing { size_bytes, device, end })
    };
    plan.tensors.iter().enumerate().filter_map(crossing).collect()
}

/// How each tensor is used, and whether kernels of the host run. `None` where values change or control jumps: what a
/// tensor is then is not known beforehand.
fn count_uses(plan: &MethodPlan) -> Option<(Vec<Uses>, bool)> {
    let mut uses = vec![Uses::default(); plan.tensors.len()];
    let mut count = |id: ValueId, add: &dyn Fn(&mut Uses)| {
        for_each_tensor(plan, id, |tensor, _| uses.get_mut(tensor).into_iter().for_each(add));
    };
    let tensor = |id: ValueId| match plan.value(id) {
        Value::Tensor(tensor) => tensor as usize,
        _ => usize::MAX,
    };
    let mut host_computes = false;
    for instruction in &plan.instructions {
        match *instruction {
            Instruction::Kernel { operator, args } => {
                let ids = args.of(&plan.lists.ids);
                match (plan.operator(operator), ids) {
                    ("et_copy::_h2d_copy.out", &[source, target, ..]) => {
                        let uploaded_from = tensor(source);
                        count(source, &|uses| uses.host_ends += 1);
                        count(target, &|uses| {
                            *uses = Uses { uploads: uses.uploads + 1, uploaded_from, ..*uses }
                        });
                    }
                    ("et_copy::_d2h_copy.out", &[source, target, ..]) => {
                        let downloaded_to = tensor(target);
                        count(source, &|uses| {
                            *uses = Uses { downloads: uses.downloads + 1, downloaded_to, ..*uses };
                        });
                        count(target, &|uses| {
                            *uses =
                                Uses { host_ends: uses.host_ends + 1, fetched: uses.fetched + 1, ..*uses };
                        });
                    }
                    _ => {
                        host_computes = true;
                        for &id in ids {
                            count(id, &|uses| uses.others += 1);
                        }
                    }
                }
            }
            Instruction::Delegate { args, .. } => {
                for &id in args.of(&plan.lists.ids) {
                    match plan.value(id) {
                        Value::Tensor(_) => count(id, &|uses| uses.delegated += 1),
                        _ => count(id, &|uses| uses.others += 1),
                    }
                }
            }
            _ => return None,
        }
    }
    plan.inputs.iter().for_each(|id| count(*id, &|uses| uses.inputs += 1));
    plan.outputs.iter().for_each(|id| count(*id, &|uses| uses.outputs += 1));
    Some((uses, host_computes))
}
