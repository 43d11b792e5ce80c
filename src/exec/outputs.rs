#![forbid(unsafe_code)]
//! What a run left, until it is copied out.
//!
//! Deliberately absent: owned results. A binding copies into arrays of its own.

use super::device;
use super::error::ExecError;
use super::input::Output;
use super::method::Method;
use super::planned::Planned;
use super::resident::DeviceTensor;
use crate::space::Mark;
use crate::value::Value;
use std::sync::Arc;

/// What a run left: borrows the method and what the caller lent it.
#[derive(Debug)]
pub struct Outputs<'a> {
    pub(super) method: &'a mut Method,
}

impl Outputs<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        self.method.plan().outputs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Output `index`; [`Output::None`] past the last.
    pub fn get(&self, index: usize) -> Output<'_> {
        let plan = self.method.plan();
        let Some(&id) = plan.outputs.get(index) else { return Output::None };
        match self.method.tables.values()[id.index()] {
            Value::Int(value) => Output::Int(value),
            Value::Bool(value) => Output::Bool(value),
            Value::Double(value) => Output::Double(value),
            Value::Text(span) => Output::Text(plan.lists.text(span)),
            Value::Tensor(tensor) => {
                let tensor = tensor as usize;
                let copy = self.method.planned.copies.of(tensor);
                Output::Tensor(copy.unwrap_or(&self.method.tables.tensors()[tensor]))
            }
            _ => Output::None,
        }
    }

    /// Copies the elements of tensor output `index`, row-major, to `target`, which must be just as long.
    ///
    /// # Errors
    /// [`ExecError::Output`] where the output is no tensor or the lengths differ.
    pub fn copy_to(&mut self, index: usize, target: &mut [u8]) -> Result<(), ExecError> {
        let wrong = |method: &Method, problem: String| ExecError::Output {
            method: method.name_owned(),
            index,
            problem,
        };
        let method = &mut *self.method;
        let value = method.plan().outputs.get(index).map(|id| method.tables.values()[id.index()]);
        let Some(Value::Tensor(at)) = value else {
            return Err(wrong(method, "not a tensor".into()));
        };
        let at = at as usize;
        let Planned { holdings, copies, .. } = &mut method.planned;
        let tensor = copies.of(at).unwrap_or(&method.tables.tensors()[at]);
        device::copy_output(holdings, tensor, target).map_err(|problem| wrong(self.method, problem))
    }
}

impl Outputs<'_> {
    /// The mark behind the run's work, where that was left to the device.
    pub fn mark(&self) -> Option<Arc<dyn Mark>> {
        self.method.planned.holdings.mark.clone()
    }

    /// Takes tensor output `index` with its memory on the device; `None` for what is not on a device.
    ///
    /// After [`Method::execute_on`] nothing is copied where the output was not planned and runs are not captured.
    ///
    /// # Errors
    /// [`ExecError::Output`] where the device has no memory left, or the elements are not row-major.
    pub fn take_device(&mut self, index: usize) -> Result<Option<DeviceTensor>, ExecError> {
        self.method.take_resident(index)
    }
}

impl Drop for Outputs<'_> {
    fn drop(&mut self) {
        self.method.unbind_lent();
    }
}
