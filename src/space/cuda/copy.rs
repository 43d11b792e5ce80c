//! Copies by a kernel: [`CopyKernel`].
//!
//! In a graph, a copy engine and the kernels wait for each other, about 5 us each way on an H200; a kernel that copies
//! 64 KiB over the bus takes 3 in all. Deliberately absent: long copies, which gain nothing, and devices that the
//! compiled kernel does not know: copy engines serve them.

use super::context::Device;
use super::driver::{Failure, done};
use super::queue::bits;
use crate::space::{Launch, Piece};
use core::ffi::c_void;
use cudarc::driver::sys;

/// `copy.cu`, compiled.
static IMAGE: &[u8] = include_bytes!("copy.fatbin");
/// The longest copy by kernel, in bytes.
const SIZE_MAX: usize = 1 << 20;
/// What a thread copies, and where both ranges must start, in bytes.
const UNIT: usize = 16;
/// Threads of a block.
const THREADS: u32 = 256;

/// The kernel, loaded into a device's context for the life of the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyKernel(sys::CUfunction);

// SAFETY: a handle of the driver, which may be used from any thread.
unsafe impl Send for CopyKernel {}
// SAFETY: as above.
unsafe impl Sync for CopyKernel {}

impl CopyKernel {
    /// Loads the kernel. The device's context is current.
    pub(super) fn load(device: &Device) -> Result<Self, Failure> {
        let mut module = core::ptr::null_mut();
        // SAFETY: a place for the result, and an image of the toolkit's, which says itself how long it is.
        done(unsafe { (device.driver.module_load)(&raw mut module, IMAGE.as_ptr().cast()) })?;
        let mut kernel = core::ptr::null_mut();
        // SAFETY: a place for the result, a live module, and a name that ends in NUL.
        done(unsafe { (device.driver.module_kernel)(&raw mut kernel, module, c"arenite_copy".as_ptr()) })?;
        Ok(Self(kernel))
    }

    /// Whether the kernel does this copy.
    pub(super) fn does(piece: &Piece) -> bool {
        let starts = piece.target.addr().get() | piece.source.addr().get();
        starts.is_multiple_of(UNIT) && piece.size_bytes <= SIZE_MAX
    }

    /// Calls `launch` with the launch that does a copy which it does.
    pub(super) fn with_launch<R>(self, piece: &Piece, launch: impl FnOnce(&Launch) -> R) -> R {
        let threads = piece.size_bytes / UNIT + piece.size_bytes % UNIT;
        let blocks = u32::try_from(threads.div_ceil(THREADS as usize)).unwrap_or(u32::MAX);
        let (mut target, mut source, mut size_bytes) =
            (bits(piece.target), bits(piece.source), piece.size_bytes as u64);
        let mut arguments: [*mut c_void; 3] =
            [(&raw mut target).cast(), (&raw mut source).cast(), (&raw mut size_bytes).cast()];
        launch(&Launch {
            kernel: self.0.cast(),
            grid: [blocks, 1, 1],
            block: [THREADS, 1, 1],
            shared_bytes: 0,
            arguments: arguments.as_mut_ptr(),
            extra: core::ptr::null_mut(),
        })
    }
}
