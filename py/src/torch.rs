//! PyTorch, where the caller already uses it; it is never imported here.
//!
//! Deliberately absent: everything else about PyTorch. Tensors cross through DLPack.

use crate::tensor::Tensor;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

/// PyTorch's tensor class, once the caller has imported it.
fn tensor_class(py: Python<'_>) -> Option<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if let Some(class) = CLASS.get(py) {
        return Some(class.bind(py));
    }
    let modules = py.import("sys").ok()?.getattr("modules").ok()?.cast_into::<PyDict>().ok()?;
    let class = modules.get_item("torch").ok()??.getattr("Tensor").ok()?.cast_into::<PyType>().ok()?;
    Some(CLASS.get_or_init(py, || class.unbind()).bind(py))
}

/// Whether `object` is a tensor of PyTorch, or of a subclass.
pub(crate) fn is_tensor(object: &Bound<'_, PyAny>) -> bool {
    tensor_class(object.py()).is_some_and(|class| object.is_instance(class).unwrap_or(false))
}

/// `tensor` as one of PyTorch, over the same bytes.
///
/// # Errors
/// What `torch.from_dlpack` raised.
pub(crate) fn from_tensor<'py>(py: Python<'py>, tensor: Tensor) -> PyResult<Bound<'py, PyAny>> {
    static FROM_DLPACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    FROM_DLPACK.import(py, "torch", "from_dlpack")?.call1((Bound::new(py, tensor)?,))
}
