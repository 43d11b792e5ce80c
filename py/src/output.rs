//! Outputs of a run as Python objects, in the framework of the inputs.
//!
//! While a method is locked only memory moves ([`collect`]); what needs Python code, PyTorch's conversion,
//! comes after ([`finish`]).
//!
//! Deliberately absent: views of arenas; see [`crate::tensor::Tensor`] for borrowed outputs.

use crate::error;
use crate::memory::Memory;
use crate::ndarray;
use crate::tensor::Tensor;
use crate::torch;
use arenite::exec::{Output, Outputs};
use arenite::tensor::Dims;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

/// An output, copied out of the method.
pub(crate) enum Made<'py> {
    /// Ready.
    Object(Bound<'py, PyAny>),
    /// For PyTorch.
    Torch(Tensor),
    /// For NumPy in a kind that it lacks, or on a device.
    Own(Tensor),
}

/// Takes output `index` from its device where it is on one; copies it else.
pub(crate) fn take<'py>(
    py: Python<'py>,
    outputs: &mut Outputs<'_>,
    index: usize,
    torch: bool,
) -> PyResult<Made<'py>> {
    match outputs.take_device(index).map_err(|failure| error::exec(py, &failure))? {
        Some(tensor) => {
            let tensor = Tensor::on_device(tensor);
            Ok(if torch { Made::Torch(tensor) } else { Made::Own(tensor) })
        }
        None => collect(py, outputs, index, torch),
    }
}

/// Copies output `index` to the host; `torch` says for whom.
pub(crate) fn collect<'py>(
    py: Python<'py>,
    outputs: &mut Outputs<'_>,
    index: usize,
    torch: bool,
) -> PyResult<Made<'py>> {
    let (dtype, sizes) = match outputs.get(index) {
        Output::Tensor(tensor) => (tensor.dtype(), Dims::new(tensor.sizes()).unwrap_or_else(Dims::empty)),
        Output::Int(value) => return value.into_bound_py_any(py).map(Made::Object),
        Output::Bool(value) => return value.into_bound_py_any(py).map(Made::Object),
        Output::Double(value) => return value.into_bound_py_any(py).map(Made::Object),
        Output::Text(text) => return text.into_bound_py_any(py).map(Made::Object),
        _ => return Ok(Made::Object(py.None().into_bound(py))),
    };
    let size_bytes = sizes.iter().product::<usize>() * dtype.size_bytes();
    let number = if torch { None } else { ndarray::number(py, dtype) };
    if let Some(number) = number {
        let array = ndarray::Empty::new(py, number, &sizes)?;
        return array
            .fill(size_bytes, |bytes| outputs.copy_to(index, bytes))
            .map(Made::Object)
            .map_err(|failure| error::exec(py, &failure));
    }
    let memory = Memory::filled(size_bytes, |bytes| outputs.copy_to(index, bytes))
        .map_err(|failure| error::exec(py, &failure))?;
    let tensor = Tensor::owned(dtype, sizes, memory);
    Ok(if torch { Made::Torch(tensor) } else { Made::Own(tensor) })
}

/// The Python object.
pub(crate) fn finish<'py>(py: Python<'py>, made: Made<'py>) -> PyResult<Bound<'py, PyAny>> {
    match made {
        Made::Object(object) => Ok(object),
        Made::Torch(tensor) => torch::from_tensor(py, tensor),
        Made::Own(tensor) => Ok(Bound::new(py, tensor)?.into_any()),
    }
}
