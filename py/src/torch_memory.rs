//! Functions that PyTorch's pluggable allocator loads from this library by name.
//!
//! ```text
//!   torch.cuda.memory.CUDAPluggableAllocator(arenite.torch_library(), "arenite_torch_alloc", "arenite_torch_free")
//! ```
//!
//! Each device has a heap of its own for as long as the process lives; a block is used again in the order of the stream
//! that it was taken for. Deliberately absent: errors in words. PyTorch takes null for out of memory.

use crate::pool::Heap;
use arenite::SpaceId;
use arenite::space::cuda;
use core::alloc::Layout;
use core::ffi::{c_int, c_void};
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// The alignment that PyTorch's own allocator gives, in bytes.
const ALIGN: usize = 512;

static HEAPS: LazyLock<Mutex<HashMap<u16, Arc<Heap>>>> = LazyLock::new(Mutex::default);

fn heap(device: c_int) -> Option<Arc<Heap>> {
    let index = u16::try_from(device).ok()?;
    let mut heaps = HEAPS.lock();
    if let Some(heap) = heaps.get(&index) {
        return Some(Arc::clone(heap));
    }
    let space = cuda::open(SpaceId::cuda(index)).ok()?;
    let heap = Arc::new(Heap::new(space, None));
    heaps.insert(index, Arc::clone(&heap));
    Some(heap)
}

/// The address of `size` bytes of a device for work on a stream; null where there are none.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn arenite_torch_alloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let layout = usize::try_from(size).ok().and_then(|size| Layout::from_size_align(size, ALIGN).ok());
    let address = heap(device).zip(layout).and_then(|(heap, layout)| heap.take(layout, stream.addr()).ok());
    address.map_or(core::ptr::null_mut(), core::ptr::without_provenance_mut)
}

/// Takes a block back. What is not known here is left alone.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn arenite_torch_free(
    address: *mut c_void,
    _size: isize,
    device: c_int,
    _stream: *mut c_void,
) {
    if let Some(heap) = heap(device) {
        heap.give_back(address.addr());
    }
}

/// Bytes of blocks that PyTorch has, by device.
#[pyfunction(name = "_torch_memory")]
pub(crate) fn torch_memory() -> HashMap<u16, usize> {
    HEAPS.lock().iter().map(|(&device, heap)| (device, heap.live_bytes())).collect()
}
