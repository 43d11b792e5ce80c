#![forbid(unsafe_code)]
//! Which tensors of a method live from run to run.
//!
//! A named planned tensor is state, as is an unnamed one that is read before anything writes it and
//! written later (exporters drop the names of some caches). Everything else is scratch of one run.
//!
//! Deliberately absent: where state lies; see [`super::memory`].

use crate::kernel::Kernel;
use crate::program::{Instruction, MethodPlan, Storage};
use crate::value::{Value, ValueId};

/// What a method does with each of its tensors.
#[derive(Debug)]
pub(super) struct Roles {
    /// Whether an instruction, or the caller, writes the tensor.
    pub(super) written: Vec<bool>,
    /// Whether the tensor is state.
    pub(super) state: Vec<bool>,
    /// The first instruction that writes state; past the end where none does.
    pub(super) first_state_write: usize,
}

impl Roles {
    pub(super) fn of(plan: &MethodPlan, kernels: &[Kernel]) -> Self {
        let count = plan.tensors.len();
        let mut roles =
            Self { written: vec![false; count], state: vec![false; count], first_state_write: usize::MAX };
        let mut read_first = vec![false; count];
        let mut is_input = vec![false; count];
        for &id in &plan.inputs {
            for_each_tensor(plan, id, |tensor, _| {
                roles.written[tensor] = true;
                is_input[tensor] = true;
            });
        }
        for instruction in &plan.instructions {
            let Instruction::Kernel { operator, args } = *instruction else { continue };
            let ids = args.of(&plan.lists.ids);
            let kinds = kernels[operator as usize].args;
            for (&id, _) in ids.iter().zip(kinds).filter(|(_, kind)| kind.is_read()) {
                for_each_tensor(plan, id, |tensor, _| read_first[tensor] |= !roles.written[tensor]);
            }
            for (&id, _) in ids.iter().zip(kinds).filter(|(_, kind)| kind.is_written()) {
                for_each_tensor(plan, id, |tensor, _| roles.written[tensor] = true);
            }
        }
        for (tensor, spec) in plan.tensors.iter().enumerate() {
            let planned = matches!(spec.storage, Storage::Planned { .. });
            let carried = read_first[tensor] && roles.written[tensor];
            roles.state[tensor] = planned && !is_input[tensor] && (spec.name.is_some() || carried);
        }
        roles.first_state_write = roles.find_first_state_write(plan, kernels);
        roles
    }

    fn find_first_state_write(&self, plan: &MethodPlan, kernels: &[Kernel]) -> usize {
        if !self.state.contains(&true) {
            return usize::MAX;
        }
        let writes_state = |instruction: &Instruction| {
            let Instruction::Kernel { operator, args } = *instruction else { return false };
            let mut found = false;
            for (&id, kind) in args.of(&plan.lists.ids).iter().zip(kernels[operator as usize].args) {
                if kind.is_written() {
                    for_each_tensor(plan, id, |tensor, _| found |= self.state[tensor]);
                }
            }
            found
        };
        plan.instructions.iter().position(writes_state).unwrap_or(usize::MAX)
    }
}

/// Calls `each` with every tensor that a value names: its own, or those of its list.
pub(super) fn for_each_tensor(plan: &MethodPlan, id: ValueId, mut each: impl FnMut(usize, ValueId)) {
    match plan.value(id) {
        Value::Tensor(tensor) => each(tensor as usize, id),
        Value::TensorList(span) | Value::OptionalTensorList(span) => {
            for &item in span.of(&plan.lists.ids) {
                if let Value::Tensor(tensor) = plan.value(item) {
                    each(tensor as usize, item);
                }
            }
        }
        _ => {}
    }
}
