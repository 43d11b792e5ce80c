#![forbid(unsafe_code)]
//! Reads the instructions of a method.
//!
//! Deliberately absent: what arguments an operator takes. The executor knows the operators.

use super::error::{At, Fault, Part, Refusal};
use super::method::{Instruction, MethodPlan};
use super::schema::{self, Chain, ExecutionPlan, required};
use super::source::Source;
use crate::value::{Span, ValueId};
use planus::Vector;

impl Source<'_> {
    /// Reads all chains.
    pub(super) fn read_chains(
        &mut self,
        file: ExecutionPlan<'_>,
        plan: &mut MethodPlan,
    ) -> Result<(), Refusal> {
        let chains = required(file.chains()?, "chains")?;
        if chains.len() == 0 {
            return Err(Fault::Missing { field: "chains" }.into());
        }
        self.budget.charge::<Span>(chains.len())?;
        plan.chains.reserve_exact(chains.len());
        for chain in 0..chains.len() {
            let number = self.budget.index(chain)?;
            let table: Chain<'_> = chains.get(chain)?;
            let steps = required(table.instructions()?, "instructions")?;
            self.budget.charge::<Instruction>(steps.len())?;
            let span = self.budget.span(plan.instructions.len(), steps.len())?;
            plan.instructions.reserve_exact(steps.len());
            for index in 0..steps.len() {
                let part = Part::Instruction { chain: number, index: self.budget.index(index)? };
                let step: schema::Instruction<'_> = steps.get(index).at(part)?;
                let step = self.read_step(step, span.len, plan).at(part)?;
                plan.instructions.push(step);
            }
            plan.chains.push(span);
        }
        Ok(())
    }

    fn read_step(
        &mut self,
        step: schema::Instruction<'_>,
        chain_len: u32,
        plan: &mut MethodPlan,
    ) -> Result<Instruction, Fault> {
        let missing = || Fault::Missing { field: "instr_args" };
        Ok(match step.instr_args_type()? {
            0 => return Err(missing()),
            1 => {
                let call = step.kernel()?.ok_or_else(missing)?;
                let operator = row("operator", call.op_index()?, plan.operators.len())?;
                Instruction::Kernel { operator, args: self.args(required(call.args()?, "args")?, plan)? }
            }
            2 => {
                let call = step.delegate()?.ok_or_else(missing)?;
                let delegate = row("delegate", call.delegate_index()?, plan.delegates.len())?;
                Instruction::Delegate { delegate, args: self.args(required(call.args()?, "args")?, plan)? }
            }
            3 => {
                let call = step.move_()?.ok_or_else(missing)?;
                let from = ValueId(row("value", call.move_from()?, plan.values.len())?);
                Instruction::Move { from, to: ValueId(row("value", call.move_to()?, plan.values.len())?) }
            }
            4 => {
                let call = step.jump_false()?.ok_or_else(missing)?;
                let condition = ValueId(row("value", call.cond_value_index()?, plan.values.len())?);
                let target = call.destination_instruction()?;
                let inside = u32::try_from(target).ok().filter(|&target| target <= chain_len);
                let target =
                    inside.ok_or(Fault::JumpTarget { target: target.into(), count: chain_len as usize })?;
                Instruction::JumpFalse { condition, target }
            }
            5 => {
                let call = step.free()?.ok_or_else(missing)?;
                Instruction::Free { value: ValueId(row("value", call.value_index()?, plan.values.len())?) }
            }
            tag => return Err(Fault::Tag { what: "instruction", tag: tag.into() }),
        })
    }

    /// Appends arguments to the pool.
    fn args(&mut self, args: Vector<'_, i32>, plan: &mut MethodPlan) -> Result<Span, Fault> {
        self.budget.charge::<ValueId>(args.len())?;
        let span = self.budget.span(plan.lists.ids.len(), args.len())?;
        let count = plan.values.len();
        for id in args {
            plan.lists.ids.push(ValueId(row("value", id, count)?));
        }
        Ok(span)
    }
}

/// An index of a table with `count` rows.
#[inline]
pub(super) fn row(what: &'static str, index: i32, count: usize) -> Result<u32, Fault> {
    match u32::try_from(index) {
        Ok(row) if (row as usize) < count => Ok(row),
        _ => Err(Fault::Index { what, index: index.into(), count }),
    }
}
