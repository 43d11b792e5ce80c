//! Tensor handles: what compiled code holds of a tensor.
//!
//! ```text
//!   *mut Handle ── count, sizes, strides, offset, element kind ──► Storage (shared) ──► bytes
//! ```
//!
//! The code never looks inside a handle; every handle it is given it ends with one delete. A storage borrows
//! planned memory, or came from the scratch of the run that made it. Deliberately absent: freeing scratch; the
//! run's owner takes it back as a whole, once [`Storage`]s of that run are gone.
//!
//! # Invariants
//! * **H1** A pointer that was given out and not ended as often as it was given points to a live `Handle`.
//! * **H2** `sizes` and `strides` of a handle never move nor change: it lives in a box.

use crate::tensor::{DType, Dims};
use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// The device type of host memory, as PyTorch numbers it.
pub(super) const CPU: i32 = 0;
/// The device type of CUDA memory.
pub(super) const CUDA: i32 = 1;

const MAGIC: u32 = 0x4172_656e;

/// What a handle points to.
#[derive(Debug)]
pub(super) struct Handle {
    magic: u32,
    count: AtomicU32,
    pub(super) storage: Arc<Storage>,
    pub(super) sizes: Dims<i64>,
    pub(super) strides: Dims<i64>,
    /// In elements from the start of the storage.
    pub(super) offset: i64,
    pub(super) dtype: DType,
}

/// The bytes behind one or more handles.
#[derive(Debug)]
pub(super) struct Storage {
    pub(super) address: NonNull<u8>,
    pub(super) size_bytes: usize,
    pub(super) device_type: i32,
    pub(super) device_index: i32,
    pub(super) origin: Origin,
}

/// Where a storage's bytes come from.
#[derive(Debug)]
pub(super) enum Origin {
    /// Somebody else's memory: planned buffers, constants.
    Borrowed,
    /// The scratch of a run.
    Scratch {
        /// Which of the run's allocations it is.
        call: u32,
        /// Alive as long as any storage of the run.
        _scope: Arc<()>,
    },
    /// The heap: host memory that a run on another device asked for.
    Heap(Layout),
}

// SAFETY: a storage is an address and a size; reaching the bytes takes `unsafe`, which argues for itself.
// Heap memory may be freed by any thread.
unsafe impl Send for Storage {}
// SAFETY: as above; nothing in it changes.
unsafe impl Sync for Storage {}

impl Drop for Storage {
    fn drop(&mut self) {
        if let Origin::Heap(layout) = self.origin {
            // SAFETY: `address` came from `alloc` with this layout, and the last handle is gone.
            unsafe { std::alloc::dealloc(self.address.as_ptr(), layout) };
        }
    }
}

impl Storage {
    /// Heap memory of this size.
    pub(super) fn heap(size_bytes: usize) -> Result<Self, String> {
        let layout = Layout::from_size_align(size_bytes.max(1), 64)
            .map_err(|_| format!("host memory of {size_bytes} bytes cannot be addressed"))?;
        // SAFETY: the layout has a size.
        let address = NonNull::new(unsafe { std::alloc::alloc(layout) })
            .ok_or_else(|| format!("host memory of {size_bytes} bytes was refused"))?;
        Ok(Self { address, size_bytes, device_type: CPU, device_index: -1, origin: Origin::Heap(layout) })
    }
}

impl Handle {
    /// A new handle, counted once. There are no more sizes and strides than a tensor can have.
    pub(super) fn give(
        storage: Arc<Storage>,
        sizes: &[i64],
        strides: &[i64],
        offset: i64,
        dtype: DType,
    ) -> *mut Self {
        let (count, none) = (AtomicU32::new(1), Dims::empty());
        let handle = Self { magic: MAGIC, count, storage, sizes: none, strides: none, offset, dtype };
        // Filled where it stays: copies of so many dimensions are what a run costs.
        let mut handle = Box::new(handle);
        for (target, items) in [(&mut handle.sizes, sizes), (&mut handle.strides, strides)] {
            for &item in items {
                _ = target.push(item);
            }
        }
        Box::into_raw(handle)
    }

    /// A new handle on memory of somebody else.
    pub(super) fn borrow(
        (address, size_bytes): (NonNull<u8>, usize),
        (device_type, device_index): (i32, i32),
        sizes: &[i64],
        strides: &[i64],
        offset: i64,
        dtype: DType,
    ) -> *mut Self {
        let storage = Storage { address, size_bytes, device_type, device_index, origin: Origin::Borrowed };
        Self::give(Arc::new(storage), sizes, strides, offset, dtype)
    }

    /// What a pointer from compiled code points to.
    ///
    /// # Safety
    /// * `handle` is null, or was given out here and not ended since (H1).
    /// * The result is not used after the handle is ended.
    pub(super) unsafe fn get<'a>(handle: *mut Self) -> Result<&'a Self, String> {
        // SAFETY: null or live, by the caller; a live handle is only ever borrowed shared.
        let found = unsafe { handle.as_ref() }.ok_or("a null tensor was passed")?;
        if found.magic == MAGIC { Ok(found) } else { Err("a tensor of another library was passed".into()) }
    }

    /// Counts the handle once more: it then takes one more delete to end it.
    pub(super) fn count_again(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends a handle; null is nothing.
    ///
    /// # Safety
    /// * `handle` is null, or was given out here and not ended as often as it was given (H1).
    /// * Where this ends it for good, nothing uses it any more.
    pub(super) unsafe fn end(handle: *mut Self) -> Result<(), String> {
        if handle.is_null() {
            return Ok(());
        }
        // SAFETY: live, by the caller.
        let found = unsafe { Self::get(handle) }?;
        if found.count.fetch_sub(1, Ordering::Release) == 1 {
            core::sync::atomic::fence(Ordering::Acquire);
            // SAFETY: it came from `Box::into_raw` in `give`, and this was its last count.
            let mut handle = unsafe { Box::from_raw(handle) };
            handle.magic = 0;
        }
        Ok(())
    }

    /// Ends a handle for good, however often it was counted.
    ///
    /// # Safety
    /// * `handle` was given out here and is live (H1); nothing uses it any more.
    pub(super) unsafe fn end_all(handle: *mut Self) {
        // SAFETY: it came from `Box::into_raw` in `give`, and nothing else names it, by the caller.
        drop(unsafe { Box::from_raw(handle) });
    }

    /// Where the first element is.
    pub(super) fn address(&self) -> NonNull<u8> {
        let offset = usize::try_from(self.offset).unwrap_or(0).wrapping_mul(self.dtype.size_bytes());
        NonNull::new(self.storage.address.as_ptr().wrapping_add(offset)).unwrap_or(self.storage.address)
    }

    /// The number of elements.
    pub(super) fn numel(&self) -> i64 {
        self.sizes.iter().product()
    }

    /// Whether the elements lie row-major without gaps.
    pub(super) fn is_contiguous(&self) -> bool {
        self.numel() == 0 || is_dense(&self.sizes, &self.strides)
    }

    /// The bytes from the first element to the end of the last one.
    pub(super) fn span_bytes(&self) -> usize {
        span_bytes(&self.sizes, &self.strides, self.dtype).unwrap_or(0)
    }
}

/// Whether strides are those of a row-major tensor; dimensions of size 1 do not count.
pub(super) fn is_dense(sizes: &[i64], strides: &[i64]) -> bool {
    let mut step = 1_i64;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        if size != 1 && stride != step {
            return false;
        }
        step = step.saturating_mul(size);
    }
    true
}

/// Row-major strides.
pub(super) fn dense_strides(sizes: &[i64]) -> Dims<i64> {
    let mut strides = Dims::filled(1, sizes.len()).unwrap_or_else(Dims::empty);
    let mut step = 1_i64;
    for (slot, &size) in strides.as_mut_slice().iter_mut().zip(sizes).rev() {
        *slot = step;
        step = step.saturating_mul(size.max(1));
    }
    strides
}

/// The bytes from the first element to the end of the last one, or `None` where a size or stride is negative
/// or they overflow.
pub(super) fn span_bytes(sizes: &[i64], strides: &[i64], dtype: DType) -> Option<usize> {
    if sizes.contains(&0) {
        return Some(0);
    }
    let mut last = 0_i64;
    for (&size, &stride) in sizes.iter().zip(strides) {
        if size < 0 || stride < 0 {
            return None;
        }
        last = (size - 1).checked_mul(stride)?.checked_add(last)?;
    }
    usize::try_from(last).ok()?.checked_add(1)?.checked_mul(dtype.size_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_checked() {
        assert_eq!(span_bytes(&[4, 16], &[16, 1], DType::Float32), Some(256));
        assert_eq!(span_bytes(&[], &[], DType::Int64), Some(8));
        assert_eq!(span_bytes(&[0, i64::MAX], &[i64::MAX, 1], DType::Int64), Some(0));
        assert_eq!(span_bytes(&[2, 2], &[i64::MAX, 1], DType::Int64), None);
        assert_eq!(span_bytes(&[-1], &[1], DType::Int64), None);
        assert!(is_dense(&[2, 1, 3], &[3, 77, 1]) && !is_dense(&[2, 3], &[1, 2]));
        assert_eq!(&*dense_strides(&[2, 3, 4]), [12, 4, 1]);
    }

    #[test]
    fn a_handle_ends_with_its_last_count() {
        let storage = Arc::new(Storage::heap(64).unwrap());
        let handle = Handle::give(Arc::clone(&storage), &[], &[], 0, DType::Float32);
        // SAFETY: `handle` was just given.
        unsafe { Handle::get(handle) }.unwrap().count_again();
        // SAFETY: it was counted twice.
        unsafe { Handle::end(handle) }.unwrap();
        assert_eq!(Arc::strong_count(&storage), 2);
        // SAFETY: one count is left.
        unsafe { Handle::end(handle) }.unwrap();
        assert_eq!(Arc::strong_count(&storage), 1);
    }
}
