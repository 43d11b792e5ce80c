#![forbid(unsafe_code)]
//! When each planned buffer of a method is alive.
//!
//! ```text
//!   instruction   0   1   2   3
//!   input  x      ████████            alive from the start to its last use
//!   temp   t          ████████        from its first write to its last use
//!   output y                  ████    from its first write to the end
//!   state  s      ████████████████    throughout
//! ```
//!
//! Exporters drop copies that only change the shape: a tensor that is read but never written names the bytes of
//! the tensor last written there, and one buffer stands for both.
//!
//! Deliberately absent: control flow. With jumps, "first" and "last" are not positions, and nothing is said.

use super::state::{Roles, for_each_tensor};
use crate::kernel::Kernel;
use crate::program::{Instruction, MethodPlan, Storage};
use crate::value::ValueId;

/// What a buffer is to the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BufferRole {
    /// Given by the caller.
    Input,
    /// Given to the caller.
    Output,
    /// Kept from run to run.
    State,
    /// Used within a run.
    Temp,
}

/// A planned buffer of a method: one tensor, and the views of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveBuffer {
    /// The tensors that name these bytes; the first is the one that is written.
    pub tensors: Vec<usize>,
    /// The memory id.
    pub buffer: usize,
    /// Where the file puts it, from the start of the memory id.
    pub offset_bytes: usize,
    /// How large it is at most.
    pub size_bytes: usize,
    /// The first instruction that touches it.
    pub first: u64,
    /// One past the last instruction that touches it.
    pub last: u64,
    /// What it is to the method.
    pub role: BufferRole,
}

/// The planned buffers of a method, or `None` where it jumps or runs delegates whose arguments are not copied
/// in and out by instructions.
pub(super) fn live_buffers(plan: &MethodPlan, kernels: &[Kernel], roles: &Roles) -> Option<Vec<LiveBuffer>> {
    if super::flow::jumps(plan) {
        return None;
    }
    let mut walk = Walk { plan, roles, buffers: Vec::new(), of_tensor: vec![None; plan.tensors.len()] };
    let end = plan.instructions.len().max(1) as u64;
    for tensor in 0..plan.tensors.len() {
        if roles.state[tensor] {
            walk.touch(tensor, 0, BufferRole::State);
            walk.touch(tensor, end - 1, BufferRole::State);
        }
    }
    for &id in &plan.inputs {
        for_each_tensor(plan, id, |tensor, _| walk.touch(tensor, 0, BufferRole::Input));
    }
    for (at, instruction) in plan.instructions.iter().enumerate() {
        let at = at as u64;
        match *instruction {
            Instruction::Kernel { operator, args } => {
                let ids = args.of(&plan.lists.ids);
                let kinds = kernels[operator as usize].args;
                let each = |written: bool| {
                    move |(_, kind): &(&ValueId, &crate::kernel::Arg)| {
                        if written { kind.is_written() } else { kind.is_read() }
                    }
                };
                for (&id, _) in ids.iter().zip(kinds).filter(each(false)) {
                    for_each_tensor(plan, id, |tensor, _| walk.touch(tensor, at, BufferRole::Temp));
                }
                for (&id, _) in ids.iter().zip(kinds).filter(each(true)) {
                    for_each_tensor(plan, id, |tensor, _| walk.touch(tensor, at, BufferRole::Temp));
                }
            }
            Instruction::Delegate { args, .. } => {
                for &id in args.of(&plan.lists.ids) {
                    for_each_tensor(plan, id, |tensor, _| walk.touch(tensor, at, BufferRole::Temp));
                }
            }
            Instruction::Free { .. } | Instruction::Move { .. } | Instruction::JumpFalse { .. } => {}
        }
    }
    for &id in &plan.outputs {
        for_each_tensor(plan, id, |tensor, _| walk.touch(tensor, end - 1, BufferRole::Output));
    }
    Some(walk.buffers)
}

struct Walk<'a> {
    plan: &'a MethodPlan,
    roles: &'a Roles,
    buffers: Vec<LiveBuffer>,
    /// The buffer that each tensor names.
    of_tensor: Vec<Option<usize>>,
}

impl Walk<'_> {
    fn touch(&mut self, tensor: usize, at: u64, role: BufferRole) {
        let spec = &self.plan.tensors[tensor];
        let Storage::Planned { buffer, offset_bytes, .. } = spec.storage else { return };
        let buffer = buffer as usize;
        let index = if let Some(index) = self.of_tensor[tensor] {
            index
        } else {
            let index = self.viewed(tensor, buffer, offset_bytes).unwrap_or(self.buffers.len());
            if index == self.buffers.len() {
                self.buffers.push(LiveBuffer {
                    tensors: Vec::new(),
                    buffer,
                    offset_bytes,
                    size_bytes: spec.size_bytes,
                    first: at,
                    last: at + 1,
                    role,
                });
            }
            self.buffers[index].tensors.push(tensor);
            self.of_tensor[tensor] = Some(index);
            index
        };
        let live = &mut self.buffers[index];
        live.last = live.last.max(at + 1);
        live.size_bytes = live.size_bytes.max(spec.size_bytes);
        if role == BufferRole::Output && live.role == BufferRole::Temp {
            live.role = role;
        }
    }

    /// The buffer that a tensor which nothing writes is a view of: the last one made at its place.
    fn viewed(&self, tensor: usize, buffer: usize, offset_bytes: usize) -> Option<usize> {
        if self.roles.written[tensor] || self.roles.state[tensor] {
            return None;
        }
        self.buffers.iter().rposition(|live| live.buffer == buffer && live.offset_bytes == offset_bytes)
    }
}

/// The most bytes alive at once among `buffers`, each rounded up to `align_bytes`: no plan needs fewer.
pub(super) fn live_bytes_max<'a>(buffers: impl Iterator<Item = &'a LiveBuffer>, align_bytes: usize) -> usize {
    let mut edges: Vec<(u64, bool, usize)> = Vec::new();
    for live in buffers {
        let size_bytes = live.size_bytes.next_multiple_of(align_bytes);
        edges.push((live.first, true, size_bytes));
        edges.push((live.last, false, size_bytes));
    }
    // Ends sort before starts at the same step.
    edges.sort_unstable();
    let (mut now, mut most) = (0_usize, 0);
    for (_, starts, size_bytes) in edges {
        now = if starts { now + size_bytes } else { now - size_bytes };
        most = most.max(now);
    }
    most
}
