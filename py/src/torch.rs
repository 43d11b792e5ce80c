//! PyTorch, where the caller already uses it; it is never imported here.
//!
//! Recent releases carry DLPack's C exchange functions, which cost a tenth of `__dlpack__` and
//! `torch.from_dlpack`. They order nothing: device tensors are used on PyTorch's current stream then.
//!
//! Deliberately absent: everything else about PyTorch.
//!
//! # Source
//! `DLPackExchangeAPI` of `dlpack.h` 1.3; `torch.Tensor.__dlpack_c_exchange_api__`.

use crate::dlpack::{self, Described, Foreign, ManagedVersioned};
use crate::tensor::Tensor;
use arenite::SpaceId;
use core::mem::MaybeUninit;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict, PyString, PyType};
use std::ffi::{c_int, c_void};

/// The head of DLPack's table of exchange functions.
#[repr(C)]
struct Exchange {
    major: u32,
    minor: u32,
    previous: usize,
    allocate: usize,
    from_object: usize,
    to_object: Option<unsafe extern "C" fn(*mut ManagedVersioned, *mut *mut c_void) -> c_int>,
    describe_object: Option<unsafe extern "C" fn(*mut c_void, *mut Described) -> c_int>,
    current_stream: Option<unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int>,
}

/// PyTorch's tensor class, and its exchange functions.
struct Torch {
    class: Py<PyType>,
    /// Points into the library, which is never unloaded; the class is kept.
    exchange: Option<&'static Exchange>,
}

/// PyTorch, once the caller has imported it.
fn torch(py: Python<'_>) -> Option<&Torch> {
    static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
    if let Some(torch) = TORCH.get(py) {
        return Some(torch);
    }
    let modules = py.import("sys").ok()?.getattr("modules").ok()?.cast_into::<PyDict>().ok()?;
    let class = modules.get_item("torch").ok()??.getattr("Tensor").ok()?.cast_into::<PyType>().ok()?;
    Some(TORCH.get_or_init(py, || Torch { exchange: exchange(&class), class: class.unbind() }))
}

fn exchange(class: &Bound<'_, PyType>) -> Option<&'static Exchange> {
    let capsule = class.getattr("__dlpack_c_exchange_api__").ok()?.cast_into::<PyCapsule>().ok()?;
    let pointer = capsule.pointer_checked(Some(c"dlpack_exchange_api")).ok()?;
    // SAFETY: a capsule of this name holds the table, which lives as long as its library.
    let exchange = unsafe { pointer.cast::<Exchange>().as_ref() };
    (exchange.major == 1).then_some(exchange)
}

/// Whether `object` is a tensor of PyTorch, or of a subclass: by its type, since a mock may claim any class and
/// its bytes are about to be read as a tensor's.
pub(crate) fn is_tensor(object: &Bound<'_, PyAny>) -> bool {
    torch(object.py()).is_some_and(|torch| {
        // SAFETY: both are live type objects, and the interpreter is attached.
        unsafe { ffi::PyType_IsSubtype(object.get_type().as_type_ptr(), torch.class.as_ptr().cast()) != 0 }
    })
}

/// PyTorch's current stream of a device.
pub(crate) fn current_stream(py: Python<'_>, space: SpaceId) -> Option<usize> {
    let current = torch(py)?.exchange?.current_stream?;
    let (kind, index) = dlpack::device_pair(space);
    let mut stream = core::ptr::null_mut();
    // SAFETY: numbers, and a place for the result; the interpreter is attached.
    let status = unsafe { current(kind, index, &raw mut stream) };
    if status != 0 {
        drop(PyErr::take(py));
        return None;
    }
    Some(stream.addr())
}

/// The tensor behind a PyTorch object, and PyTorch's current stream where the tensor is ready on that alone;
/// else it is ready on the stream that `stream` gives for its device, `named` by the caller or not.
///
/// # Errors
/// What `__dlpack__` raised.
pub(crate) fn take(
    object: &Bound<'_, PyAny>,
    stream: &dyn Fn(SpaceId) -> Option<usize>,
    named: bool,
) -> PyResult<(Foreign, Option<usize>)> {
    // A view may say that its numbers are negated or, if complex, conjugated when read; DLPack has no word for it.
    let py = object.py();
    let says = |name: &Bound<'_, PyString>| object.call_method0(name)?.is_truthy();
    let foreign = take_fast(object);
    let may_conjugate = foreign.as_ref().is_none_or(|foreign| foreign.dtype.is_complex());
    if says(intern!(py, "is_neg"))? || (may_conjugate && says(intern!(py, "is_conj"))?) {
        let plain = object.call_method0("resolve_conj")?.call_method0("resolve_neg")?;
        return take(&plain, stream, named);
    }
    if let Some(foreign) = foreign {
        if foreign.space.is_host() {
            return Ok((foreign, None));
        }
        let current = current_stream(py, foreign.space);
        if current.is_some() && (!named || current == stream(foreign.space)) {
            return Ok((foreign, current));
        }
    }
    // A gradient's history is no part of a value; `__dlpack__` would refuse it.
    let foreign = if object.getattr("requires_grad")?.is_truthy()? {
        dlpack::take(&object.call_method0("detach")?, stream)
    } else {
        dlpack::take(object, stream)
    };
    foreign.map(|foreign| (foreign, None))
}

/// By the exchange function, which orders no device work.
fn take_fast(object: &Bound<'_, PyAny>) -> Option<Foreign> {
    let describe = torch(object.py())?.exchange?.describe_object?;
    let mut described = MaybeUninit::uninit();
    // SAFETY: the object is a live tensor of the class that the function belongs to, the interpreter is
    // attached, and there is a place for the result.
    let status = unsafe { describe(object.as_ptr().cast(), described.as_mut_ptr()) };
    if status != 0 {
        drop(PyErr::take(object.py()));
        return None;
    }
    // SAFETY: the function filled it, as its status says.
    let described = unsafe { described.assume_init() };
    // SAFETY: the object was just asked, and nothing of Python ran since.
    unsafe { dlpack::borrow(object, &described) }.ok()
}

/// `tensor` as one of PyTorch, over the same bytes.
///
/// # Errors
/// What PyTorch raised.
pub(crate) fn from_tensor(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyAny>> {
    static FROM_DLPACK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let Some(to_object) = torch(py).and_then(|torch| torch.exchange?.to_object) else {
        let from_dlpack = FROM_DLPACK.import(py, "torch", "from_dlpack")?;
        return from_dlpack.call1((Bound::new(py, tensor)?,));
    };
    if let Some(device) = tensor.device()
        && let Some(stream) = current_stream(py, device.space())
    {
        // SAFETY: PyTorch's current stream lives as long as PyTorch.
        unsafe { device.order(stream) }.map_err(|failure| PyBufferError::new_err(failure.to_string()))?;
    }
    let managed = tensor.manage(py)?;
    let mut object = core::ptr::null_mut();
    // SAFETY: the tensor is whole and handed over; the interpreter is attached; there is a place for the
    // result. Where the function fails, who frees the tensor is not said, so nobody does.
    let status = unsafe { to_object(managed, &raw mut object) };
    if status != 0 {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, object.cast()) }
}
