//! `Tensor`: an output that NumPy has no kind for, a state, or a borrowed output.
//!
//! Owned tensors share their bytes (`numpy()` and `__dlpack__` copy nothing), also those on a device, which
//! DLPack gives there; NumPy gets a copy of them. State and borrowed outputs lie in their method's arenas, which
//! later runs write: they are copied on every use.
//!
//! Deliberately absent: arithmetic. A tensor is a way to NumPy, PyTorch and others.

use crate::arenas::Handle;
use crate::dlpack::{self, ManagedVersioned, Offer};
use crate::error::{self, Class, Facts};
use crate::input::Arg;
use crate::memory::Memory;
use crate::method::Method;
use crate::ndarray::{self, View};
use arenite::SpaceId;
use arenite::delegate::StateSpec;
use arenite::exec::DeviceTensor;
use arenite::tensor::shape::{contiguous_order, display_sizes, strides};
use arenite::tensor::{DType, Dims};
use numpy::PyUntypedArray;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;

/// A tensor: element kind, sizes, and bytes in a memory space.
///
/// NumPy reads it with ``numpy.asarray(t)`` or ``t.numpy()``, other frameworks through ``__dlpack__``.
#[pyclass(frozen, name = "Tensor", module = "arenite")]
pub(crate) struct Tensor {
    dtype: DType,
    sizes: Dims,
    space: SpaceId,
    bytes: Bytes,
}

enum Bytes {
    /// Our own, row-major.
    Owned(Memory),
    /// Our own, row-major on a device.
    Device(Arc<DeviceTensor>),
    /// A state of a method.
    State { method: Py<Method>, name: String },
    /// An output of a method, good until its next run.
    Output { method: Py<Method>, index: usize, run: u64 },
}

impl Tensor {
    /// A row-major tensor over bytes of its own.
    pub(crate) fn owned(dtype: DType, sizes: Dims, memory: Memory) -> Self {
        Self { dtype, sizes, space: SpaceId::HOST, bytes: Bytes::Owned(memory) }
    }

    /// A tensor on a device.
    pub(crate) fn on_device(tensor: DeviceTensor) -> Self {
        let sizes = Dims::new(tensor.sizes()).unwrap_or_else(Dims::empty);
        let (dtype, space) = (tensor.dtype(), tensor.space());
        Self { dtype, sizes, space, bytes: Bytes::Device(Arc::new(tensor)) }
    }

    /// Its memory, where that is on a device.
    pub(crate) fn device(&self) -> Option<&Arc<DeviceTensor>> {
        if let Bytes::Device(tensor) = &self.bytes { Some(tensor) } else { None }
    }

    /// A view of a state.
    pub(crate) fn state(method: Py<Method>, spec: StateSpec) -> Self {
        let StateSpec { name, dtype, sizes, space } = spec;
        let sizes = Dims::new(&sizes).unwrap_or_else(Dims::empty);
        Self { dtype, sizes, space, bytes: Bytes::State { method, name: name.into() } }
    }

    /// A view of an output of the run numbered `run`.
    pub(crate) fn borrowed(
        method: Py<Method>,
        (index, run): (usize, u64),
        dtype: DType,
        sizes: Dims,
        space: SpaceId,
    ) -> Self {
        Self { dtype, sizes, space, bytes: Bytes::Output { method, index, run } }
    }

    /// The bytes, row-major on the host: shared where they are ours, else a copy of what is there now.
    fn memory(&self, py: Python<'_>) -> PyResult<Memory> {
        match &self.bytes {
            Bytes::Owned(memory) => Ok(memory.clone()),
            Bytes::Device(tensor) => {
                let copied =
                    py.detach(|| Memory::filled(tensor.size_bytes(), |bytes| tensor.download(bytes)));
                copied.map_err(|reason| {
                    error::new(
                        py,
                        Class::MemorySpaceError,
                        &format!("{}: {reason}", self.space),
                        Facts::default(),
                    )
                })
            }
            Bytes::State { method, name } => method.get().copy_state(py, name, self.nbytes()),
            Bytes::Output { method, index, run } => {
                method.get().copy_output(py, (*index, *run), self.nbytes())
            }
        }
    }

    fn is_owned(&self) -> bool {
        matches!(self.bytes, Bytes::Owned(_))
    }

    /// As an input of a method; bytes that are not ours are copied first, so that a method can read its own state.
    pub(crate) fn as_arg<'py>(&self, py: Python<'py>, own: &Bound<'py, PyAny>) -> PyResult<Arg<'py>> {
        let width = self.dtype.size_bytes();
        let mut strides_bytes = Dims::empty();
        for &stride in self.row_major_strides().iter() {
            let _ = strides_bytes.push((stride * width).cast_signed());
        }
        if let Bytes::Device(tensor) = &self.bytes {
            return Ok(Arg::Device(Arc::clone(tensor), strides_bytes));
        }
        if !self.is_owned() {
            let copy = Self::owned(self.dtype, self.sizes, self.memory(py)?);
            let copy = Bound::new(py, copy)?;
            return copy.get().as_arg(py, copy.as_any());
        }
        let memory = self.memory(py)?;
        let view = View {
            address: memory.address(),
            dtype: self.dtype,
            sizes: self.sizes,
            strides_bytes,
            row_major: true,
            writable: true,
        };
        Ok(Arg::Array(view, own.clone()))
    }

    fn offer<'a>(&'a self, memory: Memory, copied: bool, strides: &'a [usize]) -> Offer<'a> {
        Offer {
            address: memory.address(),
            dtype: self.dtype,
            sizes: &self.sizes,
            strides,
            space: SpaceId::HOST,
            copied,
            keep: Box::new(memory),
        }
    }

    fn offer_device<'a>(&'a self, tensor: &Arc<DeviceTensor>, strides: &'a [usize]) -> Offer<'a> {
        Offer {
            address: tensor.address().as_ptr(),
            dtype: self.dtype,
            sizes: &self.sizes,
            strides,
            space: self.space,
            copied: false,
            keep: Box::new(Arc::clone(tensor)),
        }
    }

    /// The tensor as DLPack's structure, for a function that takes it over. Device work is not ordered.
    pub(crate) fn manage(&self, py: Python<'_>) -> PyResult<*mut ManagedVersioned> {
        if let Bytes::Device(tensor) = &self.bytes {
            return dlpack::manage(self.offer_device(tensor, &self.row_major_strides()));
        }
        dlpack::manage(self.offer(self.memory(py)?, !self.is_owned(), &self.row_major_strides()))
    }

    fn row_major_strides(&self) -> Dims {
        contiguous_order(self.sizes.len()).map_or_else(Dims::empty, |order| strides(&self.sizes, &order))
    }

    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let memory = self.memory(py)?;
        let bits = match self.dtype.size_bytes() {
            1 => DType::UInt8,
            2 => DType::UInt16,
            4 => DType::UInt32,
            8 => DType::UInt64,
            _ => DType::Complex128,
        };
        let number = ndarray::number(py, self.dtype).or_else(|| ndarray::number(py, bits)).unwrap_or(2);
        let (sizes, address) = (self.sizes, memory.address());
        let owner = Bound::new(py, Self::owned(self.dtype, sizes, memory))?;
        // SAFETY: `owner` keeps the memory, which is aligned for every kind and held by no Rust reference.
        unsafe { ndarray::over(owner.as_any(), number, &sizes, address) }
    }
}

#[pymethods]
impl Tensor {
    /// A tensor on the host with a copy of an array's elements; ``copy_to`` brings it to a device.
    #[new]
    fn new(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = array.py();
        let options = PyDict::new(py);
        options.set_item("order", "C")?;
        let copied = py.import("numpy")?.getattr("array")?.call((array,), Some(&options))?;
        let copied = copied.cast::<PyUntypedArray>()?;
        let view = ndarray::view(copied).map_err(|_| {
            PyValueError::new_err("the array's elements are of a kind or byte order that no tensor has")
        })?;
        let mut made = None;
        view.fill(|source| {
            let memory = Memory::filled(source.len(), |bytes| {
                bytes.copy_from_slice(source);
                Ok::<(), PyErr>(())
            })?;
            made = Some(Self::owned(view.dtype, view.sizes, memory));
            Ok::<(), PyErr>(())
        })?;
        made.ok_or_else(|| PyValueError::new_err("the array gave no elements"))
    }

    /// The sizes, in elements.
    #[getter]
    pub(crate) fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.sizes.iter())
    }

    /// The element kind, as NumPy or ml_dtypes spells it.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    /// The memory space, such as ``host`` or ``cuda:0``.
    #[getter]
    fn space(&self) -> String {
        self.space.to_string()
    }

    /// Elements from one to the next in each dimension.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.row_major_strides().iter())
    }

    /// The bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.sizes.iter().product::<usize>() * self.dtype.size_bytes()
    }

    /// As a NumPy array: over the same bytes where they are the tensor's own, else a copy.
    ///
    /// Kinds that NumPy lacks come in the dtypes of ml_dtypes, or as unsigned integers where it is absent.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.to_numpy(py)
    }

    /// What ``numpy.asarray`` calls.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) && !self.is_owned() {
            return Err(PyValueError::new_err(
                "state, borrowed outputs and device tensors can only be copied to the host",
            ));
        }
        let array = self.to_numpy(py)?;
        match dtype {
            Some(dtype) if !array.getattr("dtype")?.eq(&dtype)? => {
                if copy == Some(false) {
                    return Err(PyValueError::new_err("another dtype needs a copy"));
                }
                array.call_method1("astype", (dtype,))
            }
            _ if copy == Some(true) && self.is_owned() => array.call_method0("copy"),
            _ => Ok(array),
        }
    }

    /// The tensor as a DLPack capsule.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        if let Bytes::Device(tensor) = &self.bytes
            && dl_device.is_none_or(|device| device == dlpack::device_pair(self.space))
        {
            if copy == Some(true) {
                return Err(PyBufferError::new_err("copy a device tensor with copy_to(space)"));
            }
            if let Some(stream) = dlpack::consumer_stream(stream)? {
                // SAFETY: the consumer's stream, by DLPack's terms.
                let ordered = unsafe { tensor.order(stream) };
                ordered.map_err(|failure| PyBufferError::new_err(failure.to_string()))?;
            }
            return dlpack::give(py, self.offer_device(tensor, &self.row_major_strides()), versioned);
        }
        // Host memory is ready at once.
        if dl_device.is_some_and(|device| device != dlpack::device_pair(SpaceId::HOST)) {
            let text = format!(
                "this tensor can be given on the host{} only",
                if self.device().is_some() { " and its own device" } else { "" }
            );
            return Err(PyBufferError::new_err(text));
        }
        if copy == Some(false) && !self.is_owned() {
            return Err(PyBufferError::new_err(
                "state, borrowed outputs and device tensors can only be copied to the host",
            ));
        }
        let strides = self.row_major_strides();
        let mut memory = self.memory(py)?;
        if copy == Some(true) && self.is_owned() {
            memory = memory.duplicate();
        }
        let copied = copy == Some(true) || !self.is_owned();
        let offer = self.offer(memory, copied, &strides);
        dlpack::give(py, offer, versioned)
    }

    /// DLPack's pair of device kind and index: the tensor's own device, the host for state and borrowed outputs.
    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::device_pair(self.device().map_or(SpaceId::HOST, |tensor| tensor.space()))
    }

    /// A copy in another memory space, named like ``host`` or ``cuda:0``.
    fn copy_to(&self, py: Python<'_>, space: &str) -> PyResult<Self> {
        if space != "host" {
            let refused = |reason: String| {
                let text = format!("a tensor cannot be copied to {space}: {reason}");
                error::new(py, Class::MemorySpaceError, &text, Facts { code: 0x20, ..Facts::default() })
            };
            let id: SpaceId = space.parse().map_err(|reason| refused(format!("{reason}")))?;
            let memory = self.memory(py)?;
            let arenas = &Handle::default_set().options.arenas;
            let copied =
                py.detach(|| DeviceTensor::upload(arenas, id, (self.dtype, &self.sizes), memory.bytes()));
            return copied.map(Self::on_device).map_err(refused);
        }
        let memory = self.memory(py)?;
        let memory = if self.is_owned() { memory.duplicate() } else { memory };
        Ok(Self::owned(self.dtype, self.sizes, memory))
    }

    fn __len__(&self) -> PyResult<usize> {
        let none = || pyo3::exceptions::PyTypeError::new_err("a tensor without dimensions has no length");
        self.sizes.first().copied().ok_or_else(none)
    }

    fn __repr__(&self) -> String {
        format!("Tensor(shape={}, dtype={}, space={})", display_sizes(&self.sizes), self.dtype, self.space)
    }
}
