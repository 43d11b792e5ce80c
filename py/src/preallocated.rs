//! Arrays of the caller that outputs are written to (`out=`).
//!
//! Kinds, shapes and layouts are checked before the run; the sizes of dynamic outputs are known only after it.
//!
//! Deliberately absent: layouts other than row-major.

use crate::error::{self, Class, Facts, INVALID_ARGUMENT};
use crate::ndarray::{self, View};
use crate::output::{self, Made};
use arenite::exec::{Output, Outputs};
use arenite::program::{MethodPlan, ValueMeta};
use arenite::tensor::shape::display_sizes;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::PyString;

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
                items.collect::<PyResult<_>>()?
            }
            _ => return Err(refuse(py, plan, "expected a list with one array or None per output")),
        };
        if items.len() != plan.outputs.len() {
            let text = format!("expected {} items, got {}", plan.outputs.len(), items.len());
            return Err(refuse(py, plan, &text));
        }
        let mut targets = Vec::with_capacity(items.len());
        for (index, (item, value)) in items.into_iter().zip(plan.describe_outputs()).enumerate() {
            let checked = check(&item, &value);
            targets.push(checked.map_err(|text| refuse(py, plan, &format!("item {index}: {text}")))?);
        }
        Ok(Self { method: plan.name.to_string(), items: targets })
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
        if let Output::Tensor(tensor) = outputs.get(index)
            && *tensor.sizes() != *view.sizes
        {
            let (got, sizes) = (display_sizes(&view.sizes), display_sizes(tensor.sizes()));
            let text =
                format!("{}, out: item {index}: the output has shape {sizes}, the array {got}", self.method);
            let facts = Facts { code: INVALID_ARGUMENT, method: Some(&self.method), details: Vec::new() };
            return Err(error::new(py, Class::InputError, &text, facts));
        }
        view.fill(|bytes| outputs.copy_to(index, bytes)).map_err(|failure| error::exec(py, &failure))?;
        Ok(Made::Object(array.clone()))
    }
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
    if !meta.dynamic && *view.sizes != *meta.sizes {
        return Err(format!("expected {wanted}, got shape {}", display_sizes(&view.sizes)));
    }
    if !view.writable || !view.row_major {
        return Err("expected an array that is writable and C-contiguous".into());
    }
    Ok(Some((view, item.clone())))
}
