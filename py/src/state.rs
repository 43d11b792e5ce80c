//! `State`: the named mutable buffers of a method, as a mapping.
//!
//! Deliberately absent: views that write. Assigning copies in, reading copies out, each under the method's lock.

use crate::error;
use crate::method::Method;
use crate::tensor::Tensor;
use arenite::delegate::StateSpec;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList};

/// The state of a method by name: `method.state["cache"]` reads, assigning writes.
///
/// What it gives are views of the state as it is when they are read; `.numpy()` copies, to be assigned later.
#[pyclass(frozen, mapping, name = "State", module = "arenite")]
pub(crate) struct State {
    method: Py<Method>,
}

impl State {
    /// The state of `method`.
    pub(crate) fn of(method: Py<Method>) -> Self {
        Self { method }
    }

    fn find(&self, py: Python<'_>, name: &str) -> PyResult<Tensor> {
        let mut specs = self.method.get().state_specs(py);
        if let Some(at) = specs.iter().position(|spec| &*spec.name == name) {
            return Ok(Tensor::state(self.method.clone_ref(py), specs.swap_remove(at)));
        }
        let names: Vec<&str> = specs.iter().map(|spec| &*spec.name).collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let text = format!("{}: no state {name:?}; there is: {there}", self.method.get().name());
        Err(PyKeyError::new_err(text))
    }
}

#[pymethods]
impl State {
    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Tensor> {
        self.find(py, name)
    }

    fn __setitem__(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.find(py, name)?;
        self.method.get().write_state(py, name, value)
    }

    fn __delitem__(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let problem = "it cannot be removed; reset_state() gives it its initial value";
        Err(error::input(py, self.method.get().name(), ("state", name), problem))
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.method.get().state_specs(py).len()
    }

    fn __contains__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<String>().is_ok_and(|name| self.find(py, &name).is_ok())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.keys(py))?.try_iter()
    }

    /// The names.
    fn keys(&self, py: Python<'_>) -> Vec<String> {
        self.method.get().state_specs(py).into_iter().map(|spec| spec.name.into()).collect()
    }

    /// The tensors.
    fn values(&self, py: Python<'_>) -> Vec<Tensor> {
        self.items(py).into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// The names with their tensors.
    fn items(&self, py: Python<'_>) -> Vec<(String, Tensor)> {
        let entries = self.method.get().state_specs(py).into_iter();
        let tensor =
            |spec: StateSpec| (spec.name.to_string(), Tensor::state(self.method.clone_ref(py), spec));
        entries.map(tensor).collect()
    }

    /// The tensor of this name, or `default`.
    #[pyo3(signature = (name, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.find(py, name) {
            Ok(tensor) => Ok(Some(Bound::new(py, tensor)?.into_any())),
            Err(_) => Ok(default),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("State({})", self.keys(py).join(", "))
    }
}
