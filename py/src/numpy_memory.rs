//! Arrays of NumPy in memory of a pool, by NumPy's data-allocation handler (NEP 49).
//!
//! ```text
//!   set ─► capsule "mem_handler" ─► NumPy: new arrays of this context call malloc, calloc, realloc, free here
//! ```
//!
//! Each array keeps the capsule of the handler that made it, and the capsule keeps the pool, so that arrays may outlive
//! whoever set the handler. Deliberately absent: memory that the CPU does not reach.

use crate::pool::{Heap, PyPool};
use core::alloc::Layout;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::sync::Arc;

/// What NumPy aligns the data of arrays to at most, in bytes; a cache line serves vector units too.
const ALIGN: usize = 64;
/// The place of `PyDataMem_SetHandler` in NumPy's table of functions.
const SET_HANDLER: usize = 304;
const CAPSULE: &CStr = c"mem_handler";

/// `PyDataMem_Handler` of NumPy's headers, version 1.
#[repr(C)]
struct Handler {
    name: [c_char; 127],
    version: u8,
    context: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

fn address_of(heap: &Heap, size: usize) -> *mut c_void {
    let layout = Layout::from_size_align(size, ALIGN);
    let address = layout.ok().and_then(|layout| heap.take(layout, 0).ok());
    address.map_or(core::ptr::null_mut(), core::ptr::with_exposed_provenance_mut)
}

/// # Safety
/// `context` is that of a handler made here.
unsafe extern "C" fn malloc(context: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the context is a heap that the capsule of the handler keeps.
    let heap = unsafe { &*context.cast::<Heap>() };
    address_of(heap, size)
}

/// # Safety
/// As for [`malloc`].
unsafe extern "C" fn calloc(context: *mut c_void, count: usize, width: usize) -> *mut c_void {
    let Some(size) = count.checked_mul(width) else { return core::ptr::null_mut() };
    // SAFETY: the caller's promise.
    let address = unsafe { malloc(context, size) };
    if let Some(address) = NonNull::new(address.cast::<u8>()) {
        // SAFETY: a block of this size was taken just now.
        unsafe { address.write_bytes(0, size) };
    }
    address
}

/// # Safety
/// As for [`malloc`]; `address` is null or came from this context and is used no more where the result is not null.
unsafe extern "C" fn realloc(context: *mut c_void, address: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    let target = unsafe { malloc(context, size) };
    if address.is_null() || target.is_null() {
        return target;
    }
    // SAFETY: as in `malloc`.
    let heap = unsafe { &*context.cast::<Heap>() };
    let kept = heap.size_bytes(address.addr()).unwrap_or(0).min(size);
    // SAFETY: both blocks are at least that long, and apart.
    unsafe { target.cast::<u8>().copy_from_nonoverlapping(address.cast(), kept) };
    heap.give_back(address.addr());
    target
}

/// # Safety
/// As for [`malloc`]; `address` is null or came from this context, and is used no more.
unsafe extern "C" fn free(context: *mut c_void, address: *mut c_void, _size: usize) {
    // SAFETY: as in `malloc`.
    let heap = unsafe { &*context.cast::<Heap>() };
    heap.give_back(address.addr());
}

/// # Safety
/// `capsule` is one made by [`capsule_of`]; Python calls this once, when it is dropped.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule holds a handler under this name.
    let handler = unsafe { ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr()) };
    if handler.is_null() {
        return;
    }
    // SAFETY: it came from `Box::into_raw`, and goes back once.
    let handler = unsafe { Box::from_raw(handler.cast::<Handler>()) };
    // SAFETY: the context came from `Arc::into_raw`, and goes back once.
    drop(unsafe { Arc::from_raw(handler.context.cast_const().cast::<Heap>()) });
}

fn capsule_of<'py>(py: Python<'py>, heap: &Arc<Heap>) -> PyResult<Bound<'py, PyAny>> {
    let mut name = [0; 127];
    for (place, &byte) in name.iter_mut().zip(b"arenite") {
        *place = byte.cast_signed();
    }
    let context = Arc::into_raw(Arc::clone(heap)).cast_mut().cast();
    let handler = Box::new(Handler { name, version: 1, context, malloc, calloc, realloc, free });
    let handler = Box::into_raw(handler);
    // SAFETY: a live handler under a static name; the destructor takes it back.
    let capsule = unsafe { ffi::PyCapsule_New(handler.cast(), CAPSULE.as_ptr(), Some(drop_capsule)) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// Makes NumPy take the memory of new arrays of this context from `pool`, or, given what an earlier call returned, from
/// where it took it before. Returns the handler that served until now.
#[pyfunction(name = "_set_numpy_memory")]
pub(crate) fn set_numpy_memory<'py>(pool: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = pool.py();
    let handler = if let Ok(pool) = pool.cast::<PyPool>() {
        let heap = &pool.get().heap;
        if !heap.is_host() {
            return Err(PyValueError::new_err(
                "arrays of NumPy lie in host memory; give a Pool(\"host\") or Pool(\"pinned\")",
            ));
        }
        capsule_of(py, heap)?
    } else {
        pool.clone()
    };
    let core =
        py.import("numpy._core._multiarray_umath").or_else(|_| py.import("numpy.core._multiarray_umath"))?;
    let table = core.getattr("_ARRAY_API")?;
    // SAFETY: an object of Python; null with an exception set where it is no such capsule.
    let table = unsafe { ffi::PyCapsule_GetPointer(table.as_ptr(), core::ptr::null()) }.cast::<*mut c_void>();
    if table.is_null() {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: NumPy 1.22 and later have this place in their table.
    let place = unsafe { table.add(SET_HANDLER) };
    // SAFETY: as above.
    let function = unsafe { place.read() };
    // SAFETY: that place holds `PyDataMem_SetHandler`, which is of this type.
    let set = unsafe {
        core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject>(
            function,
        )
    };
    // SAFETY: a capsule that holds a handler; NumPy looks at its name and keeps it.
    let before = unsafe { set(handler.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, before) }
}
