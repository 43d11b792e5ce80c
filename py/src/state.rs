//! `State`: the named mutable buffers of a method, as a mapping.
//!
//! Deliberately absent: views that write. Assigning copies in, reading copies out, each under the method's lock.

use crate::error::{self, Class, Facts};
use crate::method::Method;
use crate::tensor::Tensor;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList};

/// The state of a method by name: `method.state["cache"]` reads, assigning writes.
#[pyclass(frozen, mapping, name = "State", module = "arenite")]
pub(crate) struct State {
    method: Py<Method>,
}

impl State {
    /// The state of `method`.
    pub(crate) fn of(method: Py<Method>) -> Self {
        Self { method }
    }

    fn find(&self, py: Python<'_>, name: &str) -> Option<Tensor> {
        let entries = self.method.get().state_entries(py);
        let entry = entries.into_iter().find(|entry| entry.name == name)?;
        Some(Tensor::state(self.method.clone_ref(py), &entry.name, entry.dtype, entry.sizes, entry.space))
    }
}

#[pymethods]
impl State {
    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Tensor> {
        self.find(py, name).ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(name.to_owned()))
    }

    fn __setitem__(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.method.get().write_state(py, name, value)
    }

    fn __delitem__(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let text = format!("state {name} cannot be removed; reset_state() gives it its initial value");
        Err(error::new(py, Class::InputError, &text, Facts::default()))
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.method.get().state_entries(py).len()
    }

    fn __contains__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<String>().is_ok_and(|name| self.find(py, &name).is_some())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.keys(py))?.try_iter()
    }

    /// The names.
    fn keys(&self, py: Python<'_>) -> Vec<String> {
        self.method.get().state_entries(py).into_iter().map(|entry| entry.name).collect()
    }

    /// The tensors.
    fn values(&self, py: Python<'_>) -> Vec<Tensor> {
        self.items(py).into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// The names with their tensors.
    fn items(&self, py: Python<'_>) -> Vec<(String, Tensor)> {
        let entries = self.method.get().state_entries(py).into_iter();
        let tensor = |entry: crate::method::StateEntry| {
            let method = self.method.clone_ref(py);
            (entry.name.clone(), Tensor::state(method, &entry.name, entry.dtype, entry.sizes, entry.space))
        };
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
            Some(tensor) => Ok(Some(Bound::new(py, tensor)?.into_any())),
            None => Ok(default),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("State({})", self.keys(py).join(", "))
    }
}
