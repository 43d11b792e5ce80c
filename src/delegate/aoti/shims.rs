//! The functions that compiled code calls back: `aoti_torch_*`.
//!
//! They are bound into each loaded object by address ([`Object::bind`](super::elf::Object::bind)), so none is
//! visible to other libraries. All but the plain constants return 0, or 1 after keeping the reason for
//! [`take_error`](super::run::take_error). No panic leaves them.
//!
//! Deliberately absent: operators. A program that calls one is refused at load by the operator's name.
//!
//! # Source
//! `torch/csrc/inductor/aoti_torch/c/shim.h`, PyTorch 2.11 and 2.13.

#![expect(non_snake_case, reason = "the names of the C interface")]

use super::handle::{CPU, CUDA, Handle, dense_strides, is_dense};
use super::operands::{
    Result, Tensor, checked_span, clone_tensor, copy_tensor, dims, dtype, give, item, new_owning, view,
};
use super::run::{set_error, with_run};
use super::unwind::aoti_torch_check;
use crate::tensor::DType;
use core::ffi::{c_char, c_void};
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs a shim's body: 0, or 1 with the reason kept.
fn status(body: impl FnOnce() -> Result<()>) -> i32 {
    let reason = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return 0,
        Ok(Err(reason)) => reason,
        Err(_) => "a function called by compiled code panicked".into(),
    };
    set_error(reason);
    1
}

/// Defines shims and the function that finds them by name.
macro_rules! shims {
    (
        status { $( fn $name:ident($($arg:ident: $kind:ty),* $(,)?) $body:block )* }
        plain { $( fn $plain:ident($($plain_arg:ident: $plain_kind:ty),*) -> $ret:ty $plain_body:block )* }
        void { $( fn $void:ident($($void_kind:ty),*); )* }
        codes { $( $code:ident = $value:expr; )* }
    ) => {
        $( unsafe extern "C" fn $name($($arg: $kind),*) -> i32 { status(|| $body) } )*
        $( extern "C" fn $plain($($plain_arg: $plain_kind),*) -> $ret $plain_body )*
        $( extern "C" fn $void($(_: $void_kind),*) {} )*
        $( extern "C" fn $code() -> i32 { $value } )*

        /// The address of the shim of this name.
        pub(super) fn address(name: &str) -> Option<u64> {
            let pointer: *const c_void = match name {
                $( stringify!($name) => $name as *const c_void, )*
                $( stringify!($plain) => $plain as *const c_void, )*
                $( stringify!($void) => $void as *const c_void, )*
                $( stringify!($code) => $code as *const c_void, )*
                "aoti_torch_check" => aoti_torch_check as *const c_void,
                _ => return None,
            };
            Some(pointer.addr() as u64)
        }
    };
}

// In each body, the safety of reading `tensor`, `out` and lists is the contract of the C interface: handles
// are null or live, result pointers are null or valid, lists are as long as the call says.
shims! {
    status {
        fn aoti_torch_empty_strided(rank: i64, sizes: *const i64, strides: *const i64, kind: i32, device: i32, _index: i32, out: *mut Tensor) {
            // SAFETY: the C interface.
            let sizes = unsafe { dims(sizes, rank) }?;
            let dense;
            let strides = if strides.is_null() {
                dense = dense_strides(sizes);
                &*dense
            } else {
                // SAFETY: the C interface.
                unsafe { dims(strides, rank) }?
            };
            let made = new_owning(sizes, strides, dtype(kind)?, device)?;
            // SAFETY: the C interface.
            unsafe { give(out, made) }
        }
        fn aoti_torch_delete_tensor_object(tensor: Tensor) {
            // SAFETY: the C interface.
            unsafe { Handle::end(tensor) }
        }
        fn aoti_torch_new_tensor_handle(tensor: Tensor, out: *mut Tensor) {
            // The same handle, counted once more: code that binds constants never ends the handle it makes.
            // SAFETY: the C interface.
            unsafe { Handle::get(tensor) }?.count_again();
            // SAFETY: the C interface.
            unsafe { give(out, tensor) }
        }
        fn aoti_torch_assign_tensors_out(tensor: Tensor, out: *mut Tensor) {
            // SAFETY: the C interface.
            unsafe { Handle::get(tensor) }?.count_again();
            // SAFETY: the C interface.
            unsafe { give(out, tensor) }
        }
        fn aoti_torch__reinterpret_tensor(tensor: Tensor, rank: i64, sizes: *const i64, strides: *const i64, offset: i64, out: *mut Tensor) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            let (sizes, strides) = (unsafe { dims(sizes, rank) }?, strides);
            // SAFETY: the C interface.
            let strides = unsafe { dims(strides, rank) }?;
            let made = view(&tensor.storage, sizes, strides, offset, tensor.dtype)?;
            // SAFETY: the C interface.
            unsafe { give(out, made) }
        }
        fn aoti_torch_as_strided(tensor: Tensor, sizes: *const i64, strides: *const i64, out: *mut Tensor) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            let rank = tensor.sizes.len() as i64;
            // SAFETY: the C interface.
            let sizes = unsafe { dims(sizes, rank) }?;
            // SAFETY: the C interface.
            let strides = unsafe { dims(strides, rank) }?;
            let made = view(&tensor.storage, sizes, strides, tensor.offset, tensor.dtype)?;
            // SAFETY: the C interface.
            unsafe { give(out, made) }
        }
        fn aoti_torch__alloc_from_pool(tensor: Tensor, offset_bytes: i64, kind: i32, rank: i64, sizes: *const i64, strides: *const i64, out: *mut Tensor) {
            // SAFETY: the C interface.
            let pool = unsafe { Handle::get(tensor) }?;
            let kind = dtype(kind)?;
            let width = kind.size_bytes() as i64;
            if offset_bytes < 0 || offset_bytes % width != 0 {
                return Err(format!("a tensor at byte {offset_bytes} of a pool, elements of {width} bytes"));
            }
            // SAFETY: the C interface.
            let sizes = unsafe { dims(sizes, rank) }?;
            // SAFETY: the C interface.
            let strides = unsafe { dims(strides, rank) }?;
            let made = view(&pool.storage, sizes, strides, offset_bytes / width, kind)?;
            // SAFETY: the C interface.
            unsafe { give(out, made) }
        }
        fn aoti_torch_create_tensor_from_blob(data: *mut c_void, rank: i64, sizes: *const i64, strides: *const i64, offset: i64, kind: i32, device: i32, index: i32, out: *mut Tensor) {
            // SAFETY: the C interface.
            let sizes = unsafe { dims(sizes, rank) }?;
            // SAFETY: the C interface.
            let strides = unsafe { dims(strides, rank) }?;
            let kind = dtype(kind)?;
            let span = checked_span(sizes, strides, kind)?;
            let before = usize::try_from(offset).ok().and_then(|offset| offset.checked_mul(kind.size_bytes()));
            let before = before.ok_or_else(|| format!("a tensor at element {offset} of its storage"))?;
            let address = match NonNull::new(data.cast::<u8>()) {
                Some(address) => address,
                None if span == 0 => NonNull::<u128>::dangling().cast(),
                None => return Err("a tensor over null memory".into()),
            };
            let made = Handle::borrow((address, before.saturating_add(span)), (device, index), sizes, strides, offset, kind);
            // SAFETY: the C interface.
            unsafe { give(out, made) }
        }
        fn aoti_torch_create_tensor_from_blob_v2(data: *mut c_void, rank: i64, sizes: *const i64, strides: *const i64, offset: i64, kind: i32, device: i32, index: i32, out: *mut Tensor, layout: i32, _opaque: *const u8, _opaque_size: i64) {
            if layout != 0 {
                return Err(format!("a tensor of layout {layout}, expected 0 (strided)"));
            }
            // SAFETY: the C interface.
            match unsafe { aoti_torch_create_tensor_from_blob(data, rank, sizes, strides, offset, kind, device, index, out) } {
                0 => Ok(()),
                _ => Err("a tensor over memory could not be made".into()),
            }
        }
        fn aoti_torch_clone(tensor: Tensor, out: *mut Tensor) {
            // SAFETY: the C interface.
            unsafe { clone_tensor(tensor, out) }
        }
        fn aoti_torch_clone_preserve_strides(tensor: Tensor, out: *mut Tensor) {
            // SAFETY: the C interface.
            unsafe { clone_tensor(tensor, out) }
        }
        fn aoti_torch_copy_(target: Tensor, source: Tensor, _non_blocking: i32) {
            // SAFETY: the C interface.
            unsafe { copy_tensor(target, source) }
        }
        fn aoti_torch_zero_(tensor: Tensor) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            let size_bytes = tensor.span_bytes();
            if usize::try_from(tensor.numel()).ok() != Some(size_bytes / tensor.dtype.size_bytes()) {
                return Err("a tensor with gaps was to be set to zero".into());
            }
            if tensor.storage.device_type == CPU {
                // SAFETY: the span lies in a live host storage.
                unsafe { tensor.address().write_bytes(0, size_bytes) };
                return Ok(());
            }
            // SAFETY: the span lies in a live storage; the owner of the run keeps it until the device is done.
            with_run(|run| unsafe { run.backend.zero(tensor.address(), size_bytes) })
        }
        fn aoti_torch_cuda_view_dtype(tensor: Tensor, kind: i32, out: *mut Tensor) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            let kind = dtype(kind)?;
            if kind.size_bytes() != tensor.dtype.size_bytes() {
                return Err(format!("{} elements viewed as {kind}, which differ in width", tensor.dtype));
            }
            let made = Handle::give(Arc::clone(&tensor.storage), &tensor.sizes, &tensor.strides, tensor.offset, kind);
            // SAFETY: the C interface.
            unsafe { give(out, made) }
        }
        fn aoti_torch_get_data_ptr(tensor: Tensor, out: *mut *mut c_void) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, tensor.address().as_ptr().cast()) }
        }
        fn aoti_torch_get_sizes(tensor: Tensor, out: *mut *const i64) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, tensor.sizes.as_ptr()) }
        }
        fn aoti_torch_get_strides(tensor: Tensor, out: *mut *const i64) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, tensor.strides.as_ptr()) }
        }
        fn aoti_torch_get_size(tensor: Tensor, dim: i64, out: *mut i64) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, at_dim(&tensor.sizes, dim)?) }
        }
        fn aoti_torch_get_stride(tensor: Tensor, dim: i64, out: *mut i64) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, at_dim(&tensor.strides, dim)?) }
        }
        fn aoti_torch_get_dim(tensor: Tensor, out: *mut i64) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, tensor.sizes.len() as i64) }
        }
        fn aoti_torch_get_numel(tensor: Tensor, out: *mut i64) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, tensor.numel()) }
        }
        fn aoti_torch_get_storage_offset(tensor: Tensor, out: *mut i64) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, tensor.offset) }
        }
        fn aoti_torch_get_storage_size(tensor: Tensor, out: *mut i64) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, tensor.storage.size_bytes as i64) }
        }
        fn aoti_torch_get_storage_numel(tensor: Tensor, out: *mut i64) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, (tensor.storage.size_bytes / tensor.dtype.size_bytes()) as i64) }
        }
        fn aoti_torch_get_dtype(tensor: Tensor, out: *mut i32) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, i32::from(tensor.dtype as u8)) }
        }
        fn aoti_torch_get_device_type(tensor: Tensor, out: *mut i32) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, tensor.storage.device_type) }
        }
        fn aoti_torch_get_device_index(tensor: Tensor, out: *mut i32) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, tensor.storage.device_index) }
        }
        fn aoti_torch_get_layout(tensor: Tensor, out: *mut i32) {
            // SAFETY: the C interface.
            unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, 0) }
        }
        fn aoti_torch_is_contiguous(tensor: Tensor, out: *mut bool) {
            // SAFETY: the C interface.
            let tensor = unsafe { Handle::get(tensor) }?;
            // SAFETY: the C interface.
            unsafe { give(out, is_dense(&tensor.sizes, &tensor.strides)) }
        }
        fn aoti_torch_is_defined(tensor: Tensor, out: *mut bool) {
            // SAFETY: the C interface.
            unsafe { give(out, !tensor.is_null()) }
        }
        fn aoti_torch_item_bool(tensor: Tensor, out: *mut bool) {
            // SAFETY: the C interface.
            let [byte] = unsafe { item(tensor, DType::Bool) }?;
            // SAFETY: the C interface.
            unsafe { give(out, byte != 0) }
        }
        fn aoti_torch_item_uint8(tensor: Tensor, out: *mut u8) {
            // SAFETY: the C interface.
            let bytes = unsafe { item(tensor, DType::UInt8) }?;
            // SAFETY: the C interface.
            unsafe { give(out, u8::from_ne_bytes(bytes)) }
        }
        fn aoti_torch_item_int8(tensor: Tensor, out: *mut i8) {
            // SAFETY: the C interface.
            let bytes = unsafe { item(tensor, DType::Int8) }?;
            // SAFETY: the C interface.
            unsafe { give(out, i8::from_ne_bytes(bytes)) }
        }
        fn aoti_torch_item_int16(tensor: Tensor, out: *mut i16) {
            // SAFETY: the C interface.
            let bytes = unsafe { item(tensor, DType::Int16) }?;
            // SAFETY: the C interface.
            unsafe { give(out, i16::from_ne_bytes(bytes)) }
        }
        fn aoti_torch_item_int32(tensor: Tensor, out: *mut i32) {
            // SAFETY: the C interface.
            let bytes = unsafe { item(tensor, DType::Int32) }?;
            // SAFETY: the C interface.
            unsafe { give(out, i32::from_ne_bytes(bytes)) }
        }
        fn aoti_torch_item_int64(tensor: Tensor, out: *mut i64) {
            // SAFETY: the C interface.
            let bytes = unsafe { item(tensor, DType::Int64) }?;
            // SAFETY: the C interface.
            unsafe { give(out, i64::from_ne_bytes(bytes)) }
        }
        fn aoti_torch_item_float16(tensor: Tensor, out: *mut u16) {
            // SAFETY: the C interface.
            let bytes = unsafe { item(tensor, DType::Float16) }?;
            // SAFETY: the C interface.
            unsafe { give(out, u16::from_ne_bytes(bytes)) }
        }
        fn aoti_torch_item_bfloat16(tensor: Tensor, out: *mut u16) {
            // SAFETY: the C interface.
            let bytes = unsafe { item(tensor, DType::BFloat16) }?;
            // SAFETY: the C interface.
            unsafe { give(out, u16::from_ne_bytes(bytes)) }
        }
        fn aoti_torch_item_float32(tensor: Tensor, out: *mut f32) {
            // SAFETY: the C interface.
            let bytes = unsafe { item(tensor, DType::Float32) }?;
            // SAFETY: the C interface.
            unsafe { give(out, f32::from_ne_bytes(bytes)) }
        }
        fn aoti_torch_item_float64(tensor: Tensor, out: *mut f64) {
            // SAFETY: the C interface.
            let bytes = unsafe { item(tensor, DType::Float64) }?;
            // SAFETY: the C interface.
            unsafe { give(out, f64::from_ne_bytes(bytes)) }
        }
        fn aoti_torch_create_cuda_stream_guard(_stream: *mut c_void, _index: i32, out: *mut *mut c_void) {
            // Device and stream are already the run's: whoever starts the run makes them so.
            // SAFETY: the C interface.
            unsafe { give(out, NonNull::<u128>::dangling().as_ptr().cast()) }
        }
        fn aoti_torch_delete_cuda_stream_guard(_guard: *mut c_void) {
            Ok(())
        }
        fn aoti_torch_create_cuda_guard(index: i32, out: *mut *mut c_void) {
            same_device(index)?;
            // SAFETY: the C interface.
            unsafe { give(out, NonNull::<u128>::dangling().as_ptr().cast()) }
        }
        fn aoti_torch_delete_cuda_guard(_guard: *mut c_void) {
            Ok(())
        }
        fn aoti_torch_cuda_guard_set_index(_guard: *mut c_void, index: i32) {
            same_device(index)
        }
        fn aoti_torch_get_current_cuda_stream(index: i32, out: *mut *mut c_void) {
            same_device(index)?;
            let stream = with_run(|run| Ok(run.backend.stream()))?;
            // SAFETY: the C interface.
            unsafe { give(out, stream) }
        }
        fn aoti_torch_proxy_executor_call_function(_executor: *mut c_void, _node: i32, _ints_len: i32, _ints: *mut i64, _tensors_len: i32, _tensors: *mut Tensor) {
            Err("a custom operator was called; custom operators are not provided".into())
        }
    }
    plain {
        fn aoti_torch_grad_mode_is_enabled() -> bool { false }
        fn aoti_torch_dtype_element_size(code: i32) -> usize {
            DType::from_code(code.into()).map_or(0, DType::size_bytes)
        }
    }
    void {
        fn aoti_torch_grad_mode_set_enabled(bool);
        fn aoti_torch_warn(*const c_char, *const c_char, u32, *const c_char);
    }
    codes {
        aoti_torch_device_type_cpu = CPU;
        aoti_torch_device_type_cuda = CUDA;
        aoti_torch_device_type_meta = 14;
        aoti_torch_device_type_xpu = 12;
        aoti_torch_device_type_mps = 13;
        aoti_torch_device_type_privateuse1 = 20;
        aoti_torch_dtype_uint8 = 0;
        aoti_torch_dtype_int8 = 1;
        aoti_torch_dtype_int16 = 2;
        aoti_torch_dtype_int32 = 3;
        aoti_torch_dtype_int64 = 4;
        aoti_torch_dtype_float16 = 5;
        aoti_torch_dtype_float32 = 6;
        aoti_torch_dtype_float64 = 7;
        aoti_torch_dtype_complex32 = 8;
        aoti_torch_dtype_complex64 = 9;
        aoti_torch_dtype_complex128 = 10;
        aoti_torch_dtype_bool = 11;
        aoti_torch_dtype_bfloat16 = 15;
        aoti_torch_dtype_float8_e5m2 = 23;
        aoti_torch_dtype_float8_e4m3fn = 24;
        aoti_torch_dtype_float8_e5m2fnuz = 25;
        aoti_torch_dtype_float8_e4m3fnuz = 26;
        aoti_torch_dtype_uint16 = 27;
        aoti_torch_dtype_uint32 = 28;
        aoti_torch_dtype_uint64 = 29;
        aoti_torch_layout_strided = 0;
        aoti_torch_layout_sparse_coo = 1;
        aoti_torch_layout_sparse_csr = 2;
        aoti_torch_layout_sparse_csc = 4;
        aoti_torch_layout_sparse_bsr = 5;
        aoti_torch_layout_sparse_bsc = 6;
        aoti_torch_layout__mkldnn = 3;
        aoti_torch_layout_jagged = 7;
        aoti_torch_memory_format_contiguous_format = 0;
        aoti_torch_memory_format_preserve_format = 1;
        aoti_torch_memory_format_channels_last = 2;
        aoti_torch_memory_format_channels_last_3d = 3;
    }
}

fn at_dim(items: &[i64], dim: i64) -> Result<i64> {
    let rank = items.len() as i64;
    let index = if dim < 0 { dim + rank } else { dim };
    let found = usize::try_from(index).ok().and_then(|index| items.get(index));
    found.copied().ok_or_else(|| format!("dimension {dim} of a tensor of {rank} was asked for"))
}

fn same_device(index: i32) -> Result<()> {
    let (_, here) = with_run(|run| Ok(run.backend.device()))?;
    if index == here || index < 0 {
        Ok(())
    } else {
        Err(format!("device {index} was asked for in a run on device {here}"))
    }
}
