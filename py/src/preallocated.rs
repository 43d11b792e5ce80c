//! Arrays of the caller that outputs are written to (`out=`).
//!
//! Kinds, shapes and layouts are checked before the run; the sizes of dynamic outputs are known only after it.
//!
//! Deliberately absent: layouts other than row-major.

use crate::error::{self, Class, Facts, INVALID_ARGUMENT};
use crate::ndarray::{self, View};
use crate::output::{self, Made};
use arenite::exec::{Input, Output, Outputs, TensorInput};
use arenite::program::{MethodPlan, Storage, ValueMeta};
use arenite::tensor::shape::display_sizes;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::ops::Range;

/// One array, or none, for each output.
pub(crate) struct Targets<'py> {
    method: String,
    items: Vec<Option<(View, Bound<'py, PyAny>)>>,
}

impl<'py> Targets<'py> {
    /// Takes `out`, a sequence, for the outputs of `plan`.
    ///
    /// # Errors
    /// `InputError` unless each item is None or a fitting array.
    pub(crate) fn new(out: &Bound<'py, PyAny>, plan: &MethodPlan) -> PyResult<Self> {
        let py = out.py();
        let items: Vec<Bound<'py, PyAny>> = match out.try_iter() {
            Ok(items) if !out.is_instance_of::<PyString>() && out.cast::<PyUntypedArray>().is_err() => {
                // One more than there can be is enough to refuse.
                items.take(plan.outputs.len() + 1).collect::<PyResult<_>>()?
            }
            _ => return Err(refuse(py, plan, "expected a list with one array or None per output")),
        };
        if items.len() != plan.outputs.len() {
            let got = out.len().unwrap_or(items.len());
            let text = format!("expected {} items, got {got}", plan.outputs.len());
            return Err(refuse(py, plan, &text));
        }
        let mut targets = Vec::with_capacity(items.len());
        for (index, (item, value)) in items.into_iter().zip(plan.describe_outputs()).enumerate() {
            let checked = check(&item, &value);
            targets.push(checked.map_err(|text| refuse(py, plan, &format!("item {index}: {text}")))?);
        }
        let targets = Self { method: plan.name.to_string(), items: targets };
        if let Some((first, second)) = targets.overlap() {
            let text =
                format!("items {first} and {second} share bytes; give each output an array of its own");
            return Err(refuse(py, plan, &text));
        }
        Ok(targets)
    }

    /// Two items that share bytes.
    fn overlap(&self) -> Option<(usize, usize)> {
        let ranges = || {
            let items = self.items.iter().enumerate();
            items.filter_map(|(index, item)| Some((index, bytes_of(&item.as_ref()?.0))))
        };
        ranges().find_map(|(first, a)| {
            let (second, _) = ranges().find(|(second, b)| *second > first && meet(&a, b))?;
            Some((first, second))
        })
    }

    /// Refuses arrays that share bytes with an input that the method reads in place: it may still be read when
    /// the first output is written.
    ///
    /// # Errors
    /// `InputError` naming both.
    pub(crate) fn check_apart(
        &self,
        py: Python<'_>,
        plan: &MethodPlan,
        inputs: &[Input<'_>],
    ) -> PyResult<()> {
        for (index, (&id, input)) in plan.inputs.iter().zip(inputs).enumerate() {
            let in_place = plan.tensor(id).is_some_and(|spec| spec.storage == Storage::Supplied);
            let (true, Input::Tensor(tensor)) = (in_place, input) else { continue };
            let read = extent_of(tensor);
            let meets = |item: &Option<(View, _)>| {
                item.as_ref().is_some_and(|(view, _)| meet(&bytes_of(view), &read))
            };
            if let Some(item) = self.items.iter().position(meets) {
                let text = format!(
                    "item {item} shares bytes with input {index}, which is read in place; pass a copy"
                );
                return Err(refuse(py, plan, &text));
            }
        }
        Ok(())
    }

    /// Compares the sizes of all outputs with their arrays before any is written.
    ///
    /// # Errors
    /// `InputError`; the run itself is done.
    pub(crate) fn check_sizes(&self, py: Python<'_>, outputs: &Outputs<'_>) -> PyResult<()> {
        for (index, item) in self.items.iter().enumerate() {
            if let (Some((view, _)), Output::Tensor(tensor)) = (item, outputs.get(index))
                && *tensor.sizes() != *view.sizes
            {
                let (got, sizes) = (display_sizes(&view.sizes), display_sizes(tensor.sizes()));
                let text = format!(
                    "{}, out: item {index}: the output has shape {sizes}, the array {got}. The run is done: \
                     state was written, outputs were not",
                    self.method
                );
                let facts = Facts { code: INVALID_ARGUMENT, method: Some(&self.method), details: Vec::new() };
                return Err(error::new(py, Class::InputError, &text, facts));
            }
        }
        Ok(())
    }

    /// Writes output `index` to its array, where one was given.
    pub(crate) fn fill(
        &self,
        py: Python<'py>,
        outputs: &mut Outputs<'_>,
        index: usize,
    ) -> PyResult<Made<'py>> {
        let Some((view, array)) = self.items.get(index).and_then(Option::as_ref) else {
            return output::collect(py, outputs, index, false);
        };
        view.fill(|bytes| outputs.copy_to(index, bytes)).map_err(|failure| error::exec(py, &failure))?;
        Ok(Made::Object(array.clone()))
    }
}

/// The bytes of a row-major array.
fn bytes_of(view: &View) -> Range<usize> {
    let start = view.address.addr();
    start..start + view.sizes.iter().product::<usize>() * view.dtype.size_bytes()
}

/// The bytes between the lowest and the highest that an input names.
fn extent_of(input: &TensorInput<'_>) -> Range<usize> {
    let start = input.address().addr();
    if input.sizes().contains(&0) {
        return start..start;
    }
    let (mut low, mut high) = (start, start + input.dtype().size_bytes());
    for (&size, &stride) in input.sizes().iter().zip(input.strides_bytes()) {
        let reach = stride.unsigned_abs().saturating_mul(size - 1);
        if stride < 0 {
            low = low.saturating_sub(reach);
        } else {
            high = high.saturating_add(reach);
        }
    }
    low..high
}

fn meet(a: &Range<usize>, b: &Range<usize>) -> bool {
    !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
}

fn refuse(py: Python<'_>, plan: &MethodPlan, text: &str) -> PyErr {
    let facts = Facts { code: INVALID_ARGUMENT, method: Some(&plan.name), details: Vec::new() };
    error::new(py, Class::InputError, &format!("{}, out: {text}", plan.name), facts)
}

fn check<'py>(
    item: &Bound<'py, PyAny>,
    value: &ValueMeta<'_>,
) -> Result<Option<(View, Bound<'py, PyAny>)>, String> {
    if item.is_none() {
        return Ok(None);
    }
    let ValueMeta::Tensor(meta) = value else {
        return Err(format!("the output is {}; pass None", crate::meta::spell(value)));
    };
    let wanted = crate::meta::spell(value);
    let array = item
        .cast::<PyUntypedArray>()
        .map_err(|_| format!("expected {wanted} as a NumPy array, got {}", crate::input::type_name(item)))?;
    let view =
        ndarray::view(array).map_err(|_| format!("expected {wanted}, got an array of another kind"))?;
    if view.dtype != meta.dtype {
        return Err(format!("expected {wanted}, got {}", view.dtype));
    }
    let within = |bound: &[usize], sizes: &[usize]| {
        bound.len() == sizes.len() && bound.iter().zip(sizes).all(|(bound, size)| size <= bound)
    };
    let fits = if meta.dynamic { within(meta.sizes, &view.sizes) } else { *view.sizes == *meta.sizes };
    if !fits {
        return Err(format!("expected {wanted}, got shape {}", display_sizes(&view.sizes)));
    }
    if !view.writable || !view.row_major {
        return Err("expected an array that is writable and C-contiguous".into());
    }
    Ok(Some((view, item.clone())))
}
