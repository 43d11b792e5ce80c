//! DLPack: taking tensors of other frameworks, and giving ours.
//!
//! ```text
//! object.__dlpack__() ─► capsule "dltensor[_versioned]" ─► Foreign: owns it, calls its deleter once
//! Exported ─► capsule; whoever renames it to "used_…" owns it, else the capsule's destructor frees it
//! ```
//!
//! Device producers are told the stream that the tensor is used on, and order it themselves; what is given is
//! ordered here. Deliberately absent: waiting. Only the device does.
//!
//! # Source
//! `dlpack.h` 1.1, and the array API standard's `__dlpack__`.

use arenite::SpaceId;
use arenite::tensor::{DType, Dims};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::ffi::{CStr, c_void};

const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const CUDA_MANAGED: i32 = 13;

const UNVERSIONED: &CStr = c"dltensor";
const UNVERSIONED_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

/// The version this file speaks.
const VERSION: Version = Version { major: 1, minor: 1 };

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Version {
    major: u32,
    minor: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Device {
    kind: i32,
    index: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Kind {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Described {
    data: *mut c_void,
    device: Device,
    rank: i32,
    kind: Kind,
    sizes: *mut i64,
    strides: *mut i64,
    offset_bytes: u64,
}

#[repr(C)]
#[derive(Debug)]
struct Managed {
    tensor: Described,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// DLPack's tensor with an owner, of version 1.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ManagedVersioned {
    version: Version,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Described,
}

/// Flag: the tensor is a copy that nobody else sees.
const IS_COPIED: u64 = 1 << 1;

const fn kind_of(dtype: DType) -> Option<Kind> {
    let (code, bits) = match dtype {
        DType::Int8 => (0, 8),
        DType::Int16 => (0, 16),
        DType::Int32 => (0, 32),
        DType::Int64 => (0, 64),
        DType::UInt8 => (1, 8),
        DType::UInt16 => (1, 16),
        DType::UInt32 => (1, 32),
        DType::UInt64 => (1, 64),
        DType::Float16 => (2, 16),
        DType::Float32 => (2, 32),
        DType::Float64 => (2, 64),
        DType::BFloat16 => (4, 16),
        DType::Complex32 => (5, 32),
        DType::Complex64 => (5, 64),
        DType::Complex128 => (5, 128),
        DType::Bool => (6, 8),
        DType::Float8E4M3FN => (10, 8),
        DType::Float8E4M3FNUZ => (11, 8),
        DType::Float8E5M2 => (12, 8),
        DType::Float8E5M2FNUZ => (13, 8),
        _ => return None,
    };
    Some(Kind { code, bits, lanes: 1 })
}

fn dtype_of(kind: Kind) -> Option<DType> {
    DType::all().find(|&dtype| {
        kind_of(dtype)
            .is_some_and(|own| (own.code, own.bits, own.lanes) == (kind.code, kind.bits, kind.lanes))
    })
}

fn space_of(device: Device) -> Option<SpaceId> {
    match device.kind {
        CPU => Some(SpaceId::HOST),
        CUDA_HOST => Some(SpaceId::PINNED),
        CUDA | CUDA_MANAGED => u16::try_from(device.index).ok().map(SpaceId::cuda),
        _ => None,
    }
}

/// DLPack's pair for a space, as `__dlpack_device__` gives it.
pub(crate) fn device_pair(space: SpaceId) -> (i32, i32) {
    match space.name() {
        "pinned" => (CUDA_HOST, 0),
        "cuda" => (CUDA, i32::from(space.index())),
        _ => (CPU, 0),
    }
}

/// A tensor of another framework, owned until dropped.
#[derive(Debug)]
pub(crate) struct Foreign {
    #[expect(dead_code, reason = "kept for its drop, which tells the producer")]
    owner: Owner,
    /// The first element.
    pub(crate) address: *const u8,
    /// The element kind.
    pub(crate) dtype: DType,
    /// Elements in each dimension.
    pub(crate) sizes: Dims,
    /// Bytes from one element to the next in each dimension.
    pub(crate) strides_bytes: Dims<isize>,
    /// The space of the memory.
    pub(crate) space: SpaceId,
}

#[derive(Debug)]
enum Owner {
    Unversioned(*mut Managed),
    Versioned(*mut ManagedVersioned),
    /// The object itself.
    Object(#[expect(dead_code, reason = "kept for its drop")] Py<PyAny>),
}

// SAFETY: DLPack lets a deleter run on any thread; the elements are reached through `unsafe` that argues for itself.
unsafe impl Send for Foreign {}

impl Drop for Owner {
    fn drop(&mut self) {
        match *self {
            Self::Object(_) => {}
            Self::Unversioned(managed) => {
                // SAFETY: taken from a capsule, so valid until its deleter runs, which is here, once.
                if let Some(deleter) = unsafe { (*managed).deleter } {
                    // SAFETY: as above; this is the one call.
                    unsafe { deleter(managed) };
                }
            }
            Self::Versioned(managed) => {
                // SAFETY: taken from a capsule, so valid until its deleter runs, which is here, once.
                if let Some(deleter) = unsafe { (*managed).deleter } {
                    // SAFETY: as above; this is the one call.
                    unsafe { deleter(managed) };
                }
            }
        }
    }
}

/// The space of an object with `__dlpack_device__`; the host where that says nothing.
fn space_of_object(object: &Bound<'_, PyAny>) -> SpaceId {
    let pair = object.call_method0("__dlpack_device__").and_then(|pair| pair.extract::<(i32, i32)>());
    pair.ok().and_then(|(kind, index)| space_of(Device { kind, index })).unwrap_or(SpaceId::HOST)
}

/// A stream as DLPack spells it: the default one is 1.
fn spell_stream(stream: usize) -> usize {
    stream.max(1)
}

/// The stream that a consumer means by `stream=`; `None` where it wants no ordering.
///
/// # Errors
/// `TypeError` for what is no int.
pub(crate) fn consumer_stream(stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<usize>> {
    match stream {
        // Consumers that name none are on the default stream.
        None => Ok(Some(0)),
        Some(stream) => Ok(usize::try_from(stream.extract::<i64>()?).ok()),
    }
}

/// Asks `object` for its tensor, ready for work on the stream that `stream` gives for its device.
///
/// # Errors
/// What `__dlpack__` raised; `BufferError` for tensors that no program can hold.
pub(crate) fn take(
    object: &Bound<'_, PyAny>,
    stream: &dyn Fn(SpaceId) -> Option<usize>,
) -> PyResult<Foreign> {
    let py = object.py();
    let options = PyDict::new(py);
    options.set_item("max_version", (VERSION.major, VERSION.minor))?;
    let space = space_of_object(object);
    if let Some(stream) = Some(space).filter(|space| !space.is_host()).and_then(stream) {
        options.set_item("stream", spell_stream(stream))?;
    }
    let capsule = match object.call_method("__dlpack__", (), Some(&options)) {
        // Producers older than DLPack 1.0 take no version.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__")?,
        other => other?,
    };
    let capsule = capsule.cast_into::<PyCapsule>().map_err(PyErr::from)?;
    let (owner, tensor) = own(&capsule)?;
    foreign(owner, tensor)
}

/// The tensor of an object, by its framework's description; the object is kept.
///
/// # Safety
/// * `tensor` describes the object as it is: its sizes, strides and elements are those that the object holds now.
pub(crate) unsafe fn borrow(object: &Bound<'_, PyAny>, tensor: &Described) -> PyResult<Foreign> {
    foreign(Owner::Object(object.clone().unbind()), tensor)
}

fn foreign(owner: Owner, tensor: *const Described) -> PyResult<Foreign> {
    // SAFETY: `tensor` lies inside what `owner` keeps.
    let tensor = unsafe { &*tensor };
    let dtype = dtype_of(tensor.kind).ok_or_else(|| {
        PyBufferError::new_err(format!(
            "DLPack element kind (code {}, {} bits, {} lanes) has no counterpart here",
            tensor.kind.code, tensor.kind.bits, tensor.kind.lanes
        ))
    })?;
    let space = space_of(tensor.device).ok_or_else(|| {
        PyBufferError::new_err(format!("DLPack device kind {} is not known here", tensor.device.kind))
    })?;
    let (sizes, strides_bytes) = extents(tensor, dtype.size_bytes())?;
    let offset = usize::try_from(tensor.offset_bytes)
        .map_err(|_| PyBufferError::new_err("the DLPack offset does not fit into memory"))?;
    if tensor.data.is_null() && !sizes.contains(&0) {
        return Err(PyBufferError::new_err("the tensor has no memory behind its elements"));
    }
    let address = tensor.data.cast::<u8>().wrapping_add(offset).cast_const();
    Ok(Foreign { owner, address, dtype, sizes, strides_bytes, space })
}

/// Takes what a capsule holds, and marks the capsule used.
fn own(capsule: &Bound<'_, PyCapsule>) -> PyResult<(Owner, *const Described)> {
    let raw = capsule.as_ptr();
    for (name, used) in [(VERSIONED, VERSIONED_USED), (UNVERSIONED, UNVERSIONED_USED)] {
        // SAFETY: `raw` is a live capsule, the name a C string.
        if unsafe { ffi::PyCapsule_IsValid(raw, name.as_ptr()) } == 0 {
            continue;
        }
        // SAFETY: valid under this name, as just asked.
        let pointer = unsafe { ffi::PyCapsule_GetPointer(raw, name.as_ptr()) };
        // SAFETY: a static name outlives the capsule. From here on the tensor is ours.
        if unsafe { ffi::PyCapsule_SetName(raw, used.as_ptr()) } != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        if name == UNVERSIONED {
            let managed = pointer.cast::<Managed>();
            // SAFETY: a capsule of this name holds this structure.
            let tensor = unsafe { &raw const (*managed).tensor };
            return Ok((Owner::Unversioned(managed), tensor));
        }
        let managed = pointer.cast::<ManagedVersioned>();
        let owner = Owner::Versioned(managed);
        // SAFETY: version, context and deleter lie at the same place in every version.
        let version = unsafe { (*managed).version };
        if version.major != VERSION.major {
            return Err(PyBufferError::new_err(format!(
                "DLPack {}.{} is not understood here, only {}.x",
                version.major, version.minor, VERSION.major
            )));
        }
        // SAFETY: a capsule of this name and major version holds this structure.
        let tensor = unsafe { &raw const (*managed).tensor };
        return Ok((owner, tensor));
    }
    Err(PyBufferError::new_err("__dlpack__ gave a capsule that is used, or none of DLPack's"))
}

fn extents(tensor: &Described, element_bytes: usize) -> PyResult<(Dims, Dims<isize>)> {
    let bad = |what: &str| PyBufferError::new_err(format!("DLPack tensor with {what}"));
    let rank = usize::try_from(tensor.rank).map_err(|_| bad("a negative rank"))?;
    let mut sizes = Dims::filled(0_usize, rank).ok_or_else(|| bad("more than 16 dimensions"))?;
    let mut strides = Dims::filled(0_isize, rank).ok_or_else(|| bad("more than 16 dimensions"))?;
    let mut step = element_bytes.cast_signed();
    for dim in (0..rank).rev() {
        // SAFETY: a tensor of this rank has as many sizes.
        let size = unsafe { *tensor.sizes.wrapping_add(dim) };
        sizes.as_mut_slice()[dim] = usize::try_from(size).map_err(|_| bad("a negative size"))?;
        strides.as_mut_slice()[dim] = if tensor.strides.is_null() {
            step
        } else {
            // SAFETY: where strides are given, there is one per dimension.
            let stride = unsafe { *tensor.strides.wrapping_add(dim) };
            isize::try_from(stride)
                .ok()
                .and_then(|stride| stride.checked_mul(element_bytes.cast_signed()))
                .ok_or_else(|| bad("a stride beyond memory"))?
        };
        step = step.saturating_mul(isize::try_from(size.max(1)).unwrap_or(isize::MAX));
    }
    Ok((sizes, strides))
}

/// What an exported tensor keeps until its consumer is done.
struct Exported {
    extents: Vec<i64>,
    #[expect(dead_code, reason = "kept for its drop: it owns the memory")]
    keep: Box<dyn Send>,
}

/// A tensor to give away: its memory is owned by `keep`.
pub(crate) struct Offer<'a> {
    /// The first element.
    pub(crate) address: *mut u8,
    /// The element kind.
    pub(crate) dtype: DType,
    /// Elements in each dimension.
    pub(crate) sizes: &'a [usize],
    /// Elements from one to the next in each dimension.
    pub(crate) strides: &'a [usize],
    /// The space of the memory.
    pub(crate) space: SpaceId,
    /// Owns the memory.
    pub(crate) keep: Box<dyn Send>,
    /// Whether the bytes were copied for this export alone.
    pub(crate) copied: bool,
}

/// Puts a tensor into a capsule, of DLPack 1 where `versioned`.
///
/// # Errors
/// `BufferError` for kinds that DLPack does not have.
pub(crate) fn give<'py>(py: Python<'py>, offer: Offer<'_>, versioned: bool) -> PyResult<Bound<'py, PyAny>> {
    let (pointer, name, destructor): (*mut c_void, &CStr, ffi::PyCapsule_Destructor) = if versioned {
        (manage(offer)?.cast(), VERSIONED, destroy_versioned)
    } else {
        let (tensor, context) = describe(offer)?;
        let managed = Managed { tensor, context, deleter: Some(delete) };
        (Box::into_raw(Box::new(managed)).cast(), UNVERSIONED, destroy)
    };
    // SAFETY: pointer and name are not null, and the name is static.
    let capsule = unsafe { ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor)) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// A tensor for whoever takes the pointer, and calls the deleter once.
///
/// # Errors
/// `BufferError` for kinds that DLPack does not have.
pub(crate) fn manage(offer: Offer<'_>) -> PyResult<*mut ManagedVersioned> {
    let flags = if offer.copied { IS_COPIED } else { 0 };
    let (tensor, context) = describe(offer)?;
    let managed =
        ManagedVersioned { version: VERSION, context, deleter: Some(delete_versioned), flags, tensor };
    Ok(Box::into_raw(Box::new(managed)))
}

/// The description of a tensor, and what keeps it: an [`Exported`].
fn describe(offer: Offer<'_>) -> PyResult<(Described, *mut c_void)> {
    let kind = kind_of(offer.dtype)
        .ok_or_else(|| PyBufferError::new_err(format!("DLPack has no kind for {}", offer.dtype)))?;
    let (kind_number, index) = device_pair(offer.space);
    let rank = offer.sizes.len();
    let both = offer.sizes.iter().chain(offer.strides);
    let extents: Vec<i64> = both.map(|&count| i64::try_from(count).unwrap_or(i64::MAX)).collect();
    let mut context = Box::new(Exported { extents, keep: offer.keep });
    let sizes = context.extents.as_mut_ptr();
    let tensor = Described {
        data: offer.address.cast(),
        device: Device { kind: kind_number, index },
        rank: i32::try_from(rank).unwrap_or(0),
        kind,
        sizes,
        strides: sizes.wrapping_add(rank),
        offset_bytes: 0,
    };
    Ok((tensor, Box::into_raw(context).cast::<c_void>()))
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: made by `give`, and a deleter is called once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: the context was made by `give` from such a box.
    drop(unsafe { Box::from_raw(managed.context.cast::<Exported>()) });
}

unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: made by `give`, and a deleter is called once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: the context was made by `give` from such a box.
    drop(unsafe { Box::from_raw(managed.context.cast::<Exported>()) });
}

unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls a destructor with its capsule.
    if unsafe { ffi::PyCapsule_IsValid(capsule, UNVERSIONED.as_ptr()) } == 1 {
        // SAFETY: not renamed, so nobody took it.
        let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, UNVERSIONED.as_ptr()) };
        // SAFETY: made by `give`; this is the one call.
        unsafe { delete(pointer.cast()) };
    }
}

unsafe extern "C" fn destroy_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls a destructor with its capsule.
    if unsafe { ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) } == 1 {
        // SAFETY: not renamed, so nobody took it.
        let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()) };
        // SAFETY: made by `give`; this is the one call.
        unsafe { delete_versioned(pointer.cast()) };
    }
}
