#![forbid(unsafe_code)]
//! Reads a method: its buffers, values, signature and delegates.
//!
//! Deliberately absent: tensors and instructions; see [`super::tensor`] and [`super::steps`].

use super::error::{At, Fault, Part, Refusal};
use super::method::{CompileSpec, DelegateSpec, MethodPlan, PlannedBuffer, Storage};
use super::schema::required;
use super::schema::{self, EValue, ExecutionPlan, NonConstBufferDevice};
use super::source::Source;
use super::steps::row;
use super::tensor::space_of;
use crate::space::SpaceId;
use crate::value::{Span, Value, ValueId};

impl Source<'_> {
    /// Reads the method of this name.
    pub(super) fn read_method(&mut self, file: ExecutionPlan<'_>, name: &str) -> Result<MethodPlan, Refusal> {
        self.budget.charge::<MethodPlan>(1)?;
        self.budget.charge::<u8>(name.len())?;
        let mut plan = MethodPlan { name: name.into(), ..MethodPlan::default() };
        self.read_buffers(file, &mut plan)?;
        self.read_values(file, &mut plan)?;
        self.check_items(&mut plan)?;
        self.read_signature(file, &mut plan)?;
        self.read_operators(file, &mut plan)?;
        self.read_delegates(file, &mut plan)?;
        self.read_chains(file, &mut plan)?;
        Ok(plan)
    }

    fn read_buffers(&mut self, file: ExecutionPlan<'_>, plan: &mut MethodPlan) -> Result<(), Refusal> {
        let sizes = required(file.non_const_buffer_sizes()?, "non_const_buffer_sizes")?;
        self.budget.charge::<PlannedBuffer>(sizes.len())?;
        plan.buffers.reserve_exact(sizes.len());
        let mut total_bytes = 0_usize;
        for (index, size) in sizes.iter().enumerate() {
            // Entry 0 is reserved, whatever it says.
            let size = if index == 0 { 0 } else { size };
            let part = Part::Buffer(self.budget.index(index)?);
            let size_bytes = usize::try_from(size).map_err(|_| Fault::BufferSize { size }).at(part)?;
            total_bytes = total_bytes.checked_add(size_bytes).ok_or(Fault::BufferOverflow).at(part)?;
            plan.buffers.push(PlannedBuffer { size_bytes, space: SpaceId::HOST });
        }
        let Some(devices) = file.non_const_buffer_device()? else {
            return Ok(());
        };
        self.budget.charge::<Option<SpaceId>>(plan.buffers.len())?;
        self.budget.charge::<i32>(devices.len())?;
        let mut named = vec![None; plan.buffers.len()];
        for row in 0..devices.len() {
            let device: NonConstBufferDevice<'_> = devices.get(row)?;
            let index = device.buffer_idx()?;
            let last = plan.buffers.len().saturating_sub(1);
            let slot = usize::try_from(index)
                .ok()
                .filter(|&slot| slot > 0 && slot <= last)
                .ok_or(Fault::BufferDevice { index: index.into(), last })?;
            let part = Part::Buffer(self.budget.index(slot)?);
            let space = space_of(device.device_type()?, device.device_index()?).at(part)?;
            match named[slot].replace(space) {
                Some(first) if first != space => {
                    return Err(Refusal { part, fault: Fault::BufferDeviceTwice { first, second: space } });
                }
                _ => plan.buffers[slot].space = space,
            }
        }
        Ok(())
    }

    fn read_values(&mut self, file: ExecutionPlan<'_>, plan: &mut MethodPlan) -> Result<(), Refusal> {
        let values = required(file.values()?, "values")?;
        self.budget.charge::<Value>(values.len())?;
        plan.values.reserve_exact(values.len());
        for index in 0..values.len() {
            let part = Part::Value(self.budget.index(index)?);
            let value: EValue<'_> = values.get(index).at(part)?;
            let value = self.read_value(value, values.len(), plan).at(part)?;
            plan.values.push(value);
        }
        Ok(())
    }

    fn read_value(&mut self, value: EValue<'_>, count: usize, plan: &mut MethodPlan) -> Result<Value, Fault> {
        let missing = || Fault::Missing { field: "val" };
        Ok(match value.val_type()? {
            0 => return Err(missing()),
            1 => {
                value.null()?.ok_or_else(missing)?;
                Value::None
            }
            2 => Value::Int(value.int()?.ok_or_else(missing)?.int_val()?),
            3 => Value::Bool(value.bool()?.ok_or_else(missing)?.bool_val()?),
            4 => Value::Double(value.double()?.ok_or_else(missing)?.double_val()?),
            5 => Value::Tensor(self.read_tensor(value.tensor()?.ok_or_else(missing)?, plan)?),
            6 => Value::Text(
                self.text(required(value.string()?.ok_or_else(missing)?.string_val()?, "string_val")?, plan)?,
            ),
            7 => {
                let items = required(value.int_list()?.ok_or_else(missing)?.items()?, "items")?;
                Value::IntList(self.items(items.len(), items.iter(), count, plan)?)
            }
            8 => {
                let items = required(value.double_list()?.ok_or_else(missing)?.items()?, "items")?;
                self.budget.charge::<f64>(items.len())?;
                let span = self.budget.span(plan.lists.doubles.len(), items.len())?;
                plan.lists.doubles.extend(items.iter());
                Value::DoubleList(span)
            }
            9 => {
                let items = required(value.bool_list()?.ok_or_else(missing)?.items()?, "items")?;
                self.budget.charge::<bool>(items.len())?;
                let span = self.budget.span(plan.lists.bools.len(), items.len())?;
                plan.lists.bools.extend(items.iter().map(|&item| item != 0));
                Value::BoolList(span)
            }
            10 => {
                let items = required(value.tensor_list()?.ok_or_else(missing)?.items()?, "items")?;
                Value::TensorList(self.items(items.len(), items.iter().map(i64::from), count, plan)?)
            }
            11 => {
                let items = required(value.tensor_list()?.ok_or_else(missing)?.items()?, "items")?;
                self.budget.charge::<ValueId>(items.len())?;
                let span = self.budget.span(plan.lists.ids.len(), items.len())?;
                for item in items {
                    let id = if item == -1 { ValueId::ABSENT } else { ValueId(row("value", item, count)?) };
                    plan.lists.ids.push(id);
                }
                Value::OptionalTensorList(span)
            }
            tag => return Err(Fault::Tag { what: "kind of value", tag: tag.into() }),
        })
    }

    /// Appends the ids of list items to the pool; `count` is the number of values. What they name is known
    /// once all values are read; see [`Source::check_items`].
    fn items(
        &mut self,
        len: usize,
        items: impl Iterator<Item = i64>,
        count: usize,
        plan: &mut MethodPlan,
    ) -> Result<Span, Fault> {
        self.budget.charge::<ValueId>(len)?;
        let span = self.budget.span(plan.lists.ids.len(), len)?;
        for index in items {
            let id = u32::try_from(index).ok().filter(|&id| (id as usize) < count);
            plan.lists.ids.push(ValueId(id.ok_or(Fault::Index { what: "value", index, count })?));
        }
        Ok(span)
    }

    /// Checks what list items name, and turns optional items that name `None` into absent ones.
    fn check_items(&self, plan: &mut MethodPlan) -> Result<(), Refusal> {
        let (values, ids) = (&plan.values, &mut plan.lists.ids);
        for (index, value) in values.iter().enumerate() {
            let (span, expected) = match *value {
                Value::IntList(span) => (span, "int"),
                Value::TensorList(span) => (span, "tensor"),
                Value::OptionalTensorList(span) => (span, "tensor or None"),
                _ => continue,
            };
            let start = span.start as usize;
            for (item, id) in ids[start..start + span.len as usize].iter_mut().enumerate() {
                let fault = match (value, values.get(id.index())) {
                    (Value::IntList(_), Some(Value::Int(_))) => continue,
                    (Value::TensorList(_) | Value::OptionalTensorList(_), Some(Value::Tensor(_))) => continue,
                    (Value::OptionalTensorList(_), Some(Value::None)) => {
                        *id = ValueId::ABSENT;
                        continue;
                    }
                    (_, Some(other)) => Fault::Item { item, value: id.0.into(), expected, got: other.kind() },
                    // Only an absent item names no value, and only here may items be absent.
                    (_, None) => continue,
                };
                return Err(Refusal { part: Part::Value(self.budget.index(index)?), fault });
            }
        }
        Ok(())
    }

    fn read_signature(&mut self, file: ExecutionPlan<'_>, plan: &mut MethodPlan) -> Result<(), Refusal> {
        let inputs = required(file.inputs()?, "inputs")?;
        let outputs = required(file.outputs()?, "outputs")?;
        self.budget.charge::<ValueId>(inputs.len())?;
        self.budget.charge::<ValueId>(outputs.len())?;
        plan.inputs.reserve_exact(inputs.len());
        for (position, id) in inputs.iter().enumerate() {
            let part = Part::Input(self.budget.index(position)?);
            let id = signature_value(plan, id).at(part)?;
            let storage = plan.tensor(id).map(|tensor| tensor.storage);
            if matches!(storage, Some(Storage::Constant(_) | Storage::Missing)) {
                return Err(Refusal { part, fault: Fault::ConstantInput });
            }
            plan.inputs.push(id);
        }
        plan.outputs.reserve_exact(outputs.len());
        for (position, id) in outputs.iter().enumerate() {
            let part = Part::Output(self.budget.index(position)?);
            let id = signature_value(plan, id).at(part)?;
            plan.outputs.push(id);
        }
        Ok(())
    }

    fn read_operators(&mut self, file: ExecutionPlan<'_>, plan: &mut MethodPlan) -> Result<(), Refusal> {
        /// As the runtime that programs are written for has it.
        const NAME_LEN_MAX: usize = 99;
        let Some(operators) = file.operators()? else {
            return Ok(());
        };
        self.budget.charge::<Span>(operators.len())?;
        plan.operators.reserve_exact(operators.len());
        for index in 0..operators.len() {
            let part = Part::Operator(self.budget.index(index)?);
            let operator: schema::Operator<'_> = operators.get(index).at(part)?;
            let name = required(operator.name().at(part)?, "name").at(part)?;
            let overload = operator.overload().at(part)?.unwrap_or_default();
            let len = name.len() + if overload.is_empty() { 0 } else { 1 + overload.len() };
            if len > NAME_LEN_MAX {
                return Err(Refusal { part, fault: Fault::OperatorName { len, limit: NAME_LEN_MAX } });
            }
            let mut span = self.text(name, plan).at(part)?;
            if !overload.is_empty() {
                let dot = self.text(".", plan).at(part)?;
                span.len += dot.len + self.text(overload, plan).at(part)?.len;
            }
            plan.operators.push(span);
        }
        Ok(())
    }

    fn read_delegates(&mut self, file: ExecutionPlan<'_>, plan: &mut MethodPlan) -> Result<(), Refusal> {
        let delegates = required(file.delegates()?, "delegates")?;
        self.budget.charge::<DelegateSpec>(delegates.len())?;
        plan.delegates.reserve_exact(delegates.len());
        for index in 0..delegates.len() {
            let part = Part::Delegate(self.budget.index(index)?);
            let delegate: schema::BackendDelegate<'_> = delegates.get(index).at(part)?;
            let spec = self.read_delegate(delegate).at(part)?;
            plan.delegates.push(spec);
        }
        Ok(())
    }

    fn read_delegate(&mut self, delegate: schema::BackendDelegate<'_>) -> Result<DelegateSpec, Fault> {
        let id = required(delegate.id()?, "id")?;
        let reference = required(delegate.processed()?, "processed")?;
        let processed = self.blob(reference.location()?, reference.index()?)?;
        let mut compile_specs = Vec::new();
        if let Some(rows) = delegate.compile_specs()? {
            self.budget.charge::<CompileSpec>(rows.len())?;
            compile_specs.reserve_exact(rows.len());
            for row in 0..rows.len() {
                let spec: schema::CompileSpec<'_> = rows.get(row)?;
                let key = required(spec.key()?, "key")?;
                self.budget.charge::<u8>(key.len())?;
                let value = self.inline(spec.value()?.unwrap_or_default());
                compile_specs.push(CompileSpec { key: key.into(), value });
            }
        }
        self.budget.charge::<u8>(id.len())?;
        Ok(DelegateSpec { id: id.into(), processed, compile_specs })
    }
}

/// The value that an input or output names.
fn signature_value(plan: &MethodPlan, id: i32) -> Result<ValueId, Fault> {
    let id = ValueId(row("value", id, plan.values.len())?);
    match plan.value(id) {
        Value::None
        | Value::Int(_)
        | Value::Bool(_)
        | Value::Double(_)
        | Value::Text(_)
        | Value::Tensor(_) => Ok(id),
        value => Err(Fault::Signature { kind: value.kind() }),
    }
}
