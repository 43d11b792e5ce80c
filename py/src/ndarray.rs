//! NumPy arrays, read and made through NumPy's C structures: no Python call, no reference to a dtype object.
//!
//! Deliberately absent: copies. A view says where the elements are, an array is made empty, and others
//! move the bytes.

use arenite::tensor::{DType, Dims, RANK_MAX};
use numpy::npyffi::{self, PY_ARRAY_API};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicI32, Ordering};

/// Where the elements of an array are, and what they are. Good while the array is kept, as it is.
#[derive(Debug)]
pub(crate) struct View {
    /// The first element.
    pub(crate) address: *mut u8,
    /// The element kind.
    pub(crate) dtype: DType,
    /// Elements in each dimension.
    pub(crate) sizes: Dims,
    /// Bytes from one element to the next in each dimension; may be negative or 0.
    pub(crate) strides_bytes: Dims<isize>,
    /// Whether elements lie row-major without gaps.
    pub(crate) row_major: bool,
    /// Whether elements may be written.
    pub(crate) writable: bool,
}

impl View {
    /// Lets `write` fill the elements, which lie row-major and may be written; the caller looked.
    pub(crate) fn fill<E>(&self, write: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<(), E> {
        debug_assert!(self.writable && self.row_major, "looked at before");
        let size_bytes = self.sizes.iter().product::<usize>() * self.dtype.size_bytes();
        if size_bytes == 0 {
            return write(&mut []);
        }
        // SAFETY: NumPy keeps this many bytes there while the array, which is kept beside its view, lives, and
        // the interpreter is attached; who else writes them meanwhile races as with any other C extension.
        write(unsafe { core::slice::from_raw_parts_mut(self.address, size_bytes) })
    }
}

/// Why an array cannot be read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refused {
    /// Its element kind has no counterpart here.
    Kind,
    /// Its bytes are in the order of another machine.
    ByteOrder,
    /// It has more than [`RANK_MAX`] dimensions.
    Rank,
}

/// NumPy's number of this kind, `-1` for those that NumPy itself does not have.
const fn type_number(dtype: DType) -> c_int {
    match dtype {
        DType::Bool => 0,
        DType::Int8 => 1,
        DType::UInt8 => 2,
        DType::Int16 => 3,
        DType::UInt16 => 4,
        DType::Int32 => 5,
        DType::UInt32 => 6,
        DType::Int64 => {
            if size_of::<c_long>() == 8 {
                7
            } else {
                9
            }
        }
        DType::UInt64 => {
            if size_of::<c_long>() == 8 {
                8
            } else {
                10
            }
        }
        DType::Float32 => 11,
        DType::Float64 => 12,
        DType::Complex64 => 14,
        DType::Complex128 => 15,
        DType::Float16 => 23,
        _ => -1,
    }
}

/// The kind of NumPy's own type numbers.
const fn dtype_of(type_number: c_int) -> Option<DType> {
    let long = size_of::<c_long>() == 8;
    Some(match type_number {
        0 => DType::Bool,
        1 => DType::Int8,
        2 => DType::UInt8,
        3 => DType::Int16,
        4 => DType::UInt16,
        5 => DType::Int32,
        6 => DType::UInt32,
        7 => {
            if long {
                DType::Int64
            } else {
                DType::Int32
            }
        }
        8 => {
            if long {
                DType::UInt64
            } else {
                DType::UInt32
            }
        }
        9 => DType::Int64,
        10 => DType::UInt64,
        11 => DType::Float32,
        12 => DType::Float64,
        14 => DType::Complex64,
        15 => DType::Complex128,
        23 => DType::Float16,
        _ => return None,
    })
}

/// Type numbers that `ml_dtypes` got for kinds that NumPy lacks; 0 where not asked yet, -1 where absent.
static EXTENSION: [AtomicI32; 5] = [const { AtomicI32::new(0) }; 5];
const EXTENSION_KINDS: [DType; 5] =
    [DType::BFloat16, DType::Float8E5M2, DType::Float8E4M3FN, DType::Float8E5M2FNUZ, DType::Float8E4M3FNUZ];

/// Looks an extension's type number up, once per kind and process.
fn extension_number(py: Python<'_>, dtype: DType) -> Option<c_int> {
    let slot = &EXTENSION[EXTENSION_KINDS.iter().position(|&kind| kind == dtype)?];
    match slot.load(Ordering::Relaxed) {
        0 => {
            let number = ml_dtypes_number(py, dtype).unwrap_or(-1);
            slot.store(number, Ordering::Relaxed);
            (number > 0).then_some(number)
        }
        number => (number > 0).then_some(number),
    }
}

fn ml_dtypes_number(py: Python<'_>, dtype: DType) -> PyResult<c_int> {
    let kind = py.import("ml_dtypes")?.getattr(dtype.name())?;
    py.import("numpy")?.getattr("dtype")?.call1((kind,))?.getattr("num")?.extract()
}

/// What `array` is.
///
/// # Errors
/// [`Refused`] where its elements are of a kind or in a form that a program cannot hold.
pub(crate) fn view(array: &Bound<'_, PyUntypedArray>) -> Result<View, Refused> {
    // SAFETY: the interpreter is attached (`Bound`) and the pointer is that of a live array.
    let fields = unsafe { npyffi::_PyArray_GET_ITEM_DATA(array.as_array_ptr()) };
    // SAFETY: the fields of a live array are valid; nothing changes them before the last read below.
    let fields = unsafe { &*fields };
    // SAFETY: as above; an array always has a dtype.
    let descr = unsafe { npyffi::_PyDataType_GET_ITEM_DATA(fields.descr) };
    // SAFETY: the dtype lives as long as its array.
    let descr = unsafe { &*descr };
    let dtype = match dtype_of(descr.type_num) {
        Some(dtype) => dtype,
        None => extension_dtype(array, descr.type_num).ok_or(Refused::Kind)?,
    };
    let foreign = if cfg!(target_endian = "little") { b'>' } else { b'<' };
    if descr.byteorder.cast_unsigned() == foreign {
        return Err(Refused::ByteOrder);
    }
    let rank = usize::try_from(fields.nd).unwrap_or(RANK_MAX + 1);
    let mut sizes = Dims::filled(0, rank).ok_or(Refused::Rank)?;
    let mut strides_bytes = Dims::filled(0, rank).ok_or(Refused::Rank)?;
    for dim in 0..rank {
        // SAFETY: an array of this rank has as many sizes.
        let size = unsafe { *fields.dimensions.wrapping_add(dim) };
        sizes.as_mut_slice()[dim] = size.cast_unsigned();
        // SAFETY: and as many strides.
        strides_bytes.as_mut_slice()[dim] = unsafe { *fields.strides.wrapping_add(dim) };
    }
    Ok(View {
        address: fields.data.cast::<u8>(),
        dtype,
        sizes,
        strides_bytes,
        row_major: fields.flags & npyffi::NPY_ARRAY_C_CONTIGUOUS != 0,
        writable: fields.flags & npyffi::NPY_ARRAY_WRITEABLE != 0,
    })
}

/// The kind behind a type number that NumPy gave to an extension; the extension is loaded, since an
/// array of its kind is here.
#[cold]
fn extension_dtype(array: &Bound<'_, PyUntypedArray>, number: c_int) -> Option<DType> {
    EXTENSION_KINDS
        .into_iter()
        .find(|&kind| extension_number(array.py(), kind) == Some(number))
        .filter(|kind| array.dtype().name_is(kind.name()))
}

/// Whether a dtype has a name.
trait NameIs {
    fn name_is(&self, name: &str) -> bool;
}

impl NameIs for Bound<'_, numpy::PyArrayDescr> {
    fn name_is(&self, name: &str) -> bool {
        self.getattr("name").and_then(|own| own.extract::<String>()).is_ok_and(|own| own == name)
    }
}

/// NumPy's number for `dtype`, its own or that of `ml_dtypes`. `None` where neither has the kind.
pub(crate) fn number(py: Python<'_>, dtype: DType) -> Option<c_int> {
    match type_number(dtype) {
        -1 => extension_number(py, dtype),
        number => Some(number),
    }
}

/// A new row-major array whose elements nobody has seen yet.
pub(crate) struct Empty<'py> {
    array: Bound<'py, PyAny>,
    address: *mut u8,
}

impl<'py> Empty<'py> {
    /// An array with these sizes. Its elements are not initialised.
    pub(crate) fn new(py: Python<'py>, number: c_int, sizes: &[usize]) -> PyResult<Self> {
        let (array, address) = make(py, number, sizes, core::ptr::null_mut(), 0)?;
        Ok(Self { array, address })
    }

    /// The array, once `write` filled its `size_bytes` bytes.
    pub(crate) fn fill<E>(
        self,
        size_bytes: usize,
        write: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Bound<'py, PyAny>, E> {
        // SAFETY: NumPy made the array with this many bytes, it is referenced from nowhere else, and bytes
        // are only written: `u8` has no invalid values, and a failed `write` drops the array unseen.
        write(unsafe { core::slice::from_raw_parts_mut(self.address, size_bytes) })?;
        Ok(self.array)
    }
}

/// An array over bytes that `owner` keeps: row-major, writable.
///
/// # Safety
/// * `address` is aligned for the kind and valid for reads and writes of the array's bytes for as long
///   as `owner` lives;
/// * nothing that Rust holds a reference to covers those bytes.
pub(crate) unsafe fn over<'py>(
    owner: &Bound<'py, PyAny>,
    number: c_int,
    sizes: &[usize],
    address: *mut u8,
) -> PyResult<Bound<'py, PyAny>> {
    let (array, _) = make(owner.py(), number, sizes, address.cast(), npyffi::NPY_ARRAY_CARRAY)?;
    let owned = owner.clone().into_ptr();
    // SAFETY: the array is new, and takes over the reference to `owner` that was just counted.
    let status = unsafe { PY_ARRAY_API.PyArray_SetBaseObject(owner.py(), array.as_ptr().cast(), owned) };
    if status < 0 { Err(PyErr::fetch(owner.py())) } else { Ok(array) }
}

fn make<'py>(
    py: Python<'py>,
    number: c_int,
    sizes: &[usize],
    data: *mut std::ffi::c_void,
    flags: c_int,
) -> PyResult<(Bound<'py, PyAny>, *mut u8)> {
    let mut dims = [0_isize; RANK_MAX];
    for (dim, &size) in dims.iter_mut().zip(sizes) {
        *dim = size.cast_signed();
    }
    let rank = c_int::try_from(sizes.len().min(RANK_MAX)).unwrap_or(0);
    let class = PyUntypedArray::type_object_raw(py);
    let none = core::ptr::null_mut();
    // SAFETY: `dims` holds `rank` sizes; with `data` null NumPy allocates, else the caller of `over` vouches.
    let array = unsafe {
        PY_ARRAY_API.PyArray_New(
            py,
            class,
            rank,
            dims.as_mut_ptr(),
            number,
            none,
            data,
            0,
            flags,
            none.cast(),
        )
    };
    // SAFETY: NumPy gives a new reference, or null with an exception set.
    let array = unsafe { Bound::from_owned_ptr_or_err(py, array)? };
    // SAFETY: what `PyArray_New` makes is an array, and the interpreter is attached.
    let fields = unsafe { npyffi::_PyArray_GET_ITEM_DATA(array.as_ptr().cast()) };
    // SAFETY: the fields of the new array are valid.
    let address = unsafe { (*fields).data };
    Ok((array, address.cast()))
}

/// Whether `object` is a scalar of NumPy (`numpy.float32(1)`), which Python's own numbers are not.
pub(crate) fn is_scalar(object: &Bound<'_, PyAny>) -> bool {
    static GENERIC: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let generic = GENERIC.import(object.py(), "numpy", "generic");
    generic.is_ok_and(|generic| object.is_instance(generic).unwrap_or(false))
}
