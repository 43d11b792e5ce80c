//! What the shims do with tensors, sizes and results.
//!
//! Deliberately absent: names that compiled code calls; see [`super::shims`].

use super::handle::{CPU, Handle, Storage, span_bytes};
use super::run::with_run;
use crate::tensor::{DType, Dims};
use core::ptr::NonNull;
use std::sync::Arc;

pub(super) type Result<T> = core::result::Result<T, String>;
pub(super) type Tensor = *mut Handle;

/// Writes a result.
///
/// # Safety
/// * `out` is null or valid for writing a `T`.
pub(super) unsafe fn give<T>(out: *mut T, value: T) -> Result<()> {
    let out = NonNull::new(out).ok_or("a null result pointer was passed")?;
    // SAFETY: not null, so valid, by the caller.
    unsafe { out.write(value) };
    Ok(())
}

/// Sizes or strides: no more than a tensor can have.
///
/// # Safety
/// * `items` is valid for reading `count` numbers, or null, and stays so while the result is used.
pub(super) unsafe fn dims<'a>(items: *const i64, count: i64) -> Result<&'a [i64]> {
    let len = usize::try_from(count).map_err(|_| format!("a tensor of {count} dimensions was asked for"))?;
    if len == 0 {
        return Ok(&[]);
    }
    let items = NonNull::new(items.cast_mut()).ok_or("a null list of sizes was passed")?;
    if len > crate::tensor::RANK_MAX {
        return Err(format!(
            "a tensor of {len} dimensions was asked for, at most {}",
            crate::tensor::RANK_MAX
        ));
    }
    // SAFETY: valid for `len` numbers, by the caller.
    Ok(unsafe { core::slice::from_raw_parts(items.as_ptr(), len) })
}

pub(super) fn dtype(code: i32) -> Result<DType> {
    DType::from_code(code.into()).ok_or_else(|| format!("the element kind {code} is unknown"))
}

pub(super) fn checked_span(sizes: &[i64], strides: &[i64], dtype: DType) -> Result<usize> {
    span_bytes(sizes, strides, dtype)
        .ok_or_else(|| format!("sizes {sizes:?} with strides {strides:?} overflow"))
}

/// A new tensor with memory of its own on a device.
pub(super) fn new_owning(sizes: &[i64], strides: &[i64], dtype: DType, device: i32) -> Result<Tensor> {
    let size_bytes = checked_span(sizes, strides, dtype)?;
    let here = with_run(|run| Ok(run.backend.device().0));
    let storage = match here {
        Ok(here) if here == device => with_run(|run| run.storage(size_bytes))?,
        _ if device == CPU => Storage::heap(size_bytes)?,
        Ok(_) => return Err(format!("memory on device type {device} was asked for")),
        Err(reason) => return Err(reason),
    };
    Ok(Handle::give(Arc::new(storage), sizes, strides, 0, dtype))
}

/// A view of a storage, checked to lie inside it.
pub(super) fn view(
    storage: &Arc<Storage>,
    sizes: &[i64],
    strides: &[i64],
    offset: i64,
    dtype: DType,
) -> Result<Tensor> {
    let span = checked_span(sizes, strides, dtype)?;
    let start = usize::try_from(offset).ok().and_then(|offset| offset.checked_mul(dtype.size_bytes()));
    let end = start.and_then(|start| start.checked_add(span));
    if end.is_none_or(|end| span > 0 && end > storage.size_bytes) {
        return Err(format!(
            "a view of sizes {sizes:?} at element {offset} reaches outside its storage of {} bytes",
            storage.size_bytes
        ));
    }
    Ok(Handle::give(Arc::clone(storage), sizes, strides, offset, dtype))
}

/// Copies bytes between two tensors' memory, wherever it is.
///
/// # Safety
/// * Both ranges are valid for `size_bytes`.
pub(super) unsafe fn copy_bytes(
    target: (&Storage, NonNull<u8>),
    source: (&Storage, NonNull<u8>),
    size_bytes: usize,
) -> Result<()> {
    if size_bytes == 0 {
        return Ok(());
    }
    if target.0.device_type == CPU && source.0.device_type == CPU {
        // SAFETY: both are host ranges, valid by the caller; they may overlap.
        unsafe { core::ptr::copy(source.1.as_ptr(), target.1.as_ptr(), size_bytes) };
        return Ok(());
    }
    with_run(|run| {
        if target.0.device_type != source.0.device_type {
            // The host's part is done, and may be gone, before a graph that holds this copy is launched: a queue that
            // captures one refuses to wait.
            run.backend.wait()?;
        }
        // SAFETY: valid by the caller; the owner of the run keeps them until the device is done.
        unsafe { run.backend.copy(target.1, source.1, size_bytes) }
    })
}

/// A new tensor with a copy of the same bytes and the same strides.
///
/// # Safety
/// * `tensor` is null or live.
pub(super) unsafe fn clone_tensor(tensor: Tensor, out: *mut Tensor) -> Result<()> {
    // SAFETY: null or live, by the caller.
    let source = unsafe { Handle::get(tensor) }?;
    let device = source.storage.device_type;
    let made = new_owning(&source.sizes, &source.strides, source.dtype, device)?;
    // SAFETY: just made.
    let target = unsafe { Handle::get(made) }?;
    let (to, from) = ((&*target.storage, target.address()), (&*source.storage, source.address()));
    // SAFETY: both hold the span of these sizes and strides.
    unsafe { copy_bytes(to, from, source.span_bytes()) }?;
    // SAFETY: valid or null, by the shim's caller.
    unsafe { give(out, made) }
}

/// Copies elements in index order between host tensors of equal sizes.
///
/// # Safety
/// * Both are live tensors in host memory, inside their storages.
pub(super) unsafe fn copy_strided(target: &Handle, source: &Handle) {
    let width = target.dtype.size_bytes();
    let mut index = Dims::filled(0_i64, target.sizes.len()).unwrap_or_else(Dims::empty);
    for _ in 0..target.numel() {
        let at = |strides: &[i64]| {
            let elements: i64 = index.iter().zip(strides).map(|(&index, &stride)| index * stride).sum();
            usize::try_from(elements).unwrap_or(0) * width
        };
        let from = source.address().as_ptr().wrapping_add(at(&source.strides));
        let to = target.address().as_ptr().wrapping_add(at(&target.strides));
        // SAFETY: each index is below its size, so both elements lie in the tensors' spans.
        unsafe { core::ptr::copy(from, to, width) };
        for (slot, &size) in index.as_mut_slice().iter_mut().zip(target.sizes.iter()).rev() {
            *slot += 1;
            if *slot < size {
                break;
            }
            *slot = 0;
        }
    }
}

/// Copies `source` over `target`.
///
/// # Safety
/// * Both are null or live.
pub(super) unsafe fn copy_tensor(target: Tensor, source: Tensor) -> Result<()> {
    // SAFETY: null or live, by the caller.
    let target = unsafe { Handle::get(target) }?;
    // SAFETY: null or live, by the caller.
    let source = unsafe { Handle::get(source) }?;
    if target.sizes != source.sizes || target.dtype != source.dtype {
        return Err(format!(
            "a copy of {} {:?} into {} {:?}",
            source.dtype, &*source.sizes, target.dtype, &*target.sizes
        ));
    }
    let gapless = |tensor: &Handle| {
        usize::try_from(tensor.numel())
            .is_ok_and(|count| count * tensor.dtype.size_bytes() == tensor.span_bytes())
    };
    let same = target.strides == source.strides || (target.is_contiguous() && source.is_contiguous());
    if same && gapless(target) && gapless(source) {
        let (to, from) = ((&*target.storage, target.address()), (&*source.storage, source.address()));
        // SAFETY: both hold the span of these sizes and strides.
        return unsafe { copy_bytes(to, from, source.span_bytes()) };
    }
    if target.storage.device_type != CPU || source.storage.device_type != CPU {
        return Err("a copy between tensors of different strides on a device".into());
    }
    // SAFETY: both are live and on the host.
    unsafe { copy_strided(target, source) };
    Ok(())
}

/// The only element of a tensor, as bytes.
///
/// # Safety
/// * `tensor` is null or live.
pub(super) unsafe fn item<const N: usize>(tensor: Tensor, expected: DType) -> Result<[u8; N]> {
    // SAFETY: null or live, by the caller.
    let tensor = unsafe { Handle::get(tensor) }?;
    if tensor.numel() != 1 || tensor.dtype != expected || tensor.dtype.size_bytes() != N {
        return Err(format!(
            "the only element of a {} tensor of sizes {:?} was asked for as {expected}",
            tensor.dtype, &*tensor.sizes
        ));
    }
    let mut bytes = [0; N];
    if tensor.storage.device_type == CPU {
        // SAFETY: one element lies at the address of a live host tensor.
        unsafe { core::ptr::copy_nonoverlapping(tensor.address().as_ptr(), bytes.as_mut_ptr(), N) };
    } else {
        // SAFETY: one element lies at the address of a live tensor.
        with_run(|run| unsafe { run.backend.read(&mut bytes, tensor.address()) })?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::handle::CUDA;
    use super::super::run::{Backend, Run, during};
    use super::*;
    use crate::space::Launch;
    use core::ffi::c_void;

    /// A queue that captures a graph: it does everything but wait.
    #[derive(Default)]
    struct Capturing {
        copies: u32,
    }

    impl Backend for Capturing {
        fn device(&self) -> (i32, i32) {
            (CUDA, 0)
        }

        fn allocate(&mut self, _: usize) -> Result<NonNull<u8>> {
            Err("no scratch".into())
        }

        unsafe fn copy(&mut self, _: NonNull<u8>, _: NonNull<u8>, _: usize) -> Result<()> {
            self.copies += 1;
            Ok(())
        }

        unsafe fn zero(&mut self, _: NonNull<u8>, _: usize) -> Result<()> {
            Ok(())
        }

        unsafe fn launch(&mut self, _: &Launch) -> Result<()> {
            Ok(())
        }

        fn wait(&mut self) -> Result<()> {
            Err("a graph is being captured".into())
        }

        unsafe fn read(&mut self, _: &mut [u8], _: NonNull<u8>) -> Result<()> {
            self.wait()
        }

        fn stream(&self) -> *mut c_void {
            core::ptr::null_mut()
        }
    }

    #[test]
    fn a_graph_holds_copies_on_the_device_and_none_with_the_host() {
        let mut backend = Capturing::default();
        let storage = |device_type| {
            let mut storage = Storage::heap(64).unwrap();
            storage.device_type = device_type;
            storage
        };
        let on = |device_type| Handle::give(Arc::new(storage(device_type)), &[16], &[1], 0, DType::Float32);
        let [host, here, there] = [CPU, CUDA, CUDA].map(on);
        during(Run::new(&mut backend, &[], Arc::new(())), || {
            // SAFETY: live tensors.
            let copy = |target, source| unsafe { copy_tensor(target, source) };
            copy(here, there).unwrap();
            assert!(copy(here, host).unwrap_err().contains("being captured"));
            assert!(copy(host, here).unwrap_err().contains("being captured"));
        });
        assert_eq!(backend.copies, 1);
        // SAFETY: made here, and nobody else was told.
        [host, here, there].into_iter().for_each(|handle| unsafe { Handle::end_all(handle) });
    }
}
