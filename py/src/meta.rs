//! `MethodMeta` and `TensorInfo`: what a file says of a method, with the members of `executorch.runtime`.
//!
//! Deliberately absent: memory. Nothing here loads a method.

use crate::ndarray;
use arenite::program::{MethodPlan, Placement, Program, TensorMeta, ValueMeta};
use arenite::tensor::shape::display_sizes;
use arenite::value::ValueId;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;

/// What a program says about one of its methods.
#[pyclass(frozen, name = "MethodMeta", module = "arenite")]
pub(crate) struct MethodMeta {
    program: Arc<Program>,
    index: usize,
}

impl MethodMeta {
    /// The facts of method `index`.
    pub(crate) fn new(program: Arc<Program>, index: usize) -> Self {
        Self { program, index }
    }

    fn plan(&self) -> &MethodPlan {
        &self.program.methods()[self.index]
    }

    fn info(&self, ids: &[ValueId], role: &str, index: &Bound<'_, PyAny>) -> PyResult<TensorInfo> {
        let at = at(index, role)?;
        let name = &self.plan().name;
        let id = ids.get(at).ok_or_else(|| {
            PyIndexError::new_err(format!("{name} has {} {role}s, no {role} {at}", ids.len()))
        })?;
        match self.plan().describe(*id) {
            ValueMeta::Tensor(meta) => Ok(TensorInfo::new(&meta)),
            other => {
                Err(PyIndexError::new_err(format!("{name}: {role} {at} is {}, not a tensor", spell(&other))))
            }
        }
    }

    fn attributes(&self) -> impl Iterator<Item = TensorMeta<'_>> {
        let plan = self.plan();
        let named = plan.tensors.iter().filter(|spec| spec.name.is_some());
        named.map(|spec| plan.describe_tensor(spec))
    }
}

/// An index as `executorch.runtime` takes it: whole and not negative.
fn at(index: &Bound<'_, PyAny>, role: &str) -> PyResult<usize> {
    index
        .extract::<usize>()
        .map_err(|_| PyTypeError::new_err(format!("the index of an {role} is an int from 0 up, got {index}")))
}

/// A value in words: `float32 tensor of shape (4, 16)`, `int 3`.
pub(crate) fn spell(value: &ValueMeta<'_>) -> String {
    match value {
        ValueMeta::Int(value) => format!("int {value}"),
        ValueMeta::Bool(value) => format!("bool {}", if *value { "True" } else { "False" }),
        ValueMeta::Double(value) => format!("float {value}"),
        ValueMeta::Text(text) => format!("str {text:?}"),
        ValueMeta::Tensor(meta) => {
            let most = if meta.dynamic { "at most " } else { "" };
            let dtype = meta.dtype.to_string();
            let article = if dtype.starts_with('i') { "an" } else { "a" };
            format!("{article} {dtype} tensor of shape {most}{}", display_sizes(meta.sizes))
        }
        _ => "None".into(),
    }
}

#[pymethods]
impl MethodMeta {
    /// The name of the method.
    fn name(&self) -> &str {
        &self.plan().name
    }

    /// How many inputs.
    fn num_inputs(&self) -> usize {
        self.plan().inputs.len()
    }

    /// How many outputs.
    fn num_outputs(&self) -> usize {
        self.plan().outputs.len()
    }

    /// How many tensors have a name in the file.
    fn num_attributes(&self) -> usize {
        self.attributes().count()
    }

    /// Facts of input `index`; IndexError where it is out of range or no tensor.
    fn input_tensor_meta(&self, index: &Bound<'_, PyAny>) -> PyResult<TensorInfo> {
        self.info(&self.plan().inputs, "input", index)
    }

    /// Facts of output `index`; IndexError where it is out of range or no tensor.
    fn output_tensor_meta(&self, index: &Bound<'_, PyAny>) -> PyResult<TensorInfo> {
        self.info(&self.plan().outputs, "output", index)
    }

    /// Facts of the named tensor `index`.
    fn attribute_tensor_meta(&self, index: &Bound<'_, PyAny>) -> PyResult<TensorInfo> {
        let at = at(index, "attribute")?;
        let missing = || PyIndexError::new_err(format!("{} has no attribute {at}", self.plan().name));
        self.attributes().nth(at).map(|meta| TensorInfo::new(&meta)).ok_or_else(missing)
    }

    /// A value that input `index` takes: zeros of its largest shape, or the scalar frozen at export.
    fn example_input<'py>(&self, py: Python<'py>, index: &Bound<'_, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let index = at(index, "input")?;
        let plan = self.plan();
        let id = plan.inputs.get(index).ok_or_else(|| {
            PyIndexError::new_err(format!("{} has {} inputs, no input {index}", plan.name, plan.inputs.len()))
        })?;
        match plan.describe(*id) {
            ValueMeta::Int(value) => value.into_bound_py_any(py),
            ValueMeta::Bool(value) => value.into_bound_py_any(py),
            ValueMeta::Double(value) => value.into_bound_py_any(py),
            ValueMeta::Text(text) => text.into_bound_py_any(py),
            ValueMeta::Tensor(meta) => {
                let number = ndarray::number(py, meta.dtype).ok_or_else(|| {
                    PyTypeError::new_err(format!(
                        "NumPy has no {}: pip install ml_dtypes, which adds it",
                        meta.dtype
                    ))
                })?;
                let zeros = |bytes: &mut [u8]| {
                    bytes.fill(0);
                    Ok::<(), PyErr>(())
                };
                ndarray::Empty::new(py, number, meta.sizes)?.fill(meta.size_bytes, zeros)
            }
            _ => Ok(py.None().into_bound(py)),
        }
    }

    fn __repr__(&self) -> String {
        let plan = self.plan();
        let list = |values: Vec<String>| values.join(", ");
        let inputs = plan.describe_inputs().map(|value| spell(&value)).collect();
        let outputs = plan.describe_outputs().map(|value| spell(&value)).collect();
        format!("MethodMeta({}: ({}) -> ({}))", plan.name, list(inputs), list(outputs))
    }
}

/// What a program says about one tensor. Dynamic tensors are given at their largest.
#[pyclass(frozen, name = "TensorInfo", module = "arenite")]
pub(crate) struct TensorInfo {
    sizes: Vec<usize>,
    order: Vec<u8>,
    dtype: arenite::tensor::DType,
    planned: bool,
    dynamic: bool,
    size_bytes: usize,
    name: Option<String>,
}

impl TensorInfo {
    fn new(meta: &TensorMeta<'_>) -> Self {
        Self {
            sizes: meta.sizes.to_vec(),
            order: meta.order.to_vec(),
            dtype: meta.dtype,
            planned: matches!(meta.placement, Placement::Planned { .. }),
            dynamic: meta.dynamic,
            size_bytes: meta.size_bytes,
            name: meta.name.map(str::to_owned),
        }
    }
}

#[pymethods]
impl TensorInfo {
    /// The sizes, in elements; upper bounds where the shape is dynamic.
    fn sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.sizes)
    }

    /// ExecuTorch's number of the element kind (6 is float32).
    fn dtype(&self) -> u8 {
        self.dtype.code()
    }

    /// The element kind, as NumPy or ml_dtypes spells it.
    fn dtype_name(&self) -> &'static str {
        self.dtype.name()
    }

    /// The dimension stored at each position, outermost first.
    fn dim_order<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.order)
    }

    /// Whether the file gives it a place in an arena.
    fn is_memory_planned(&self) -> bool {
        self.planned
    }

    /// Whether the shape may vary from run to run, up to the sizes.
    fn is_dynamic(&self) -> bool {
        self.dynamic
    }

    /// The bytes of all elements at these sizes.
    fn nbytes(&self) -> usize {
        self.size_bytes
    }

    /// The name of the parameter or buffer, if the file has one.
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn __repr__(&self) -> String {
        let planned = if self.planned { "True" } else { "False" };
        format!(
            "TensorInfo(sizes={}, dtype={}, is_memory_planned={planned}, nbytes={})",
            display_sizes(&self.sizes),
            self.dtype,
            self.size_bytes
        )
    }
}
