//! The device of a run: scratch from an arena, copies by a queue.
//!
//! Deliberately absent: CUDA. On the host there is no queue, and copies are the CPU's.

use super::run::Backend;
use crate::arena::PooledArena;
use crate::space::{Launch, Piece, Queue};
use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::NonNull;

/// The alignment of scratch, in bytes.
const ALIGN_BYTES: usize = 256;

/// What one run works with.
pub(super) struct Working<'a, 'q> {
    pub(super) device: (i32, i32),
    pub(super) scratch: &'a PooledArena,
    pub(super) queue: Option<&'a mut (dyn Queue + 'q)>,
}

impl Backend for Working<'_, '_> {
    fn device(&self) -> (i32, i32) {
        self.device
    }

    fn allocate(&mut self, size_bytes: usize) -> Result<NonNull<u8>, String> {
        let layout = Layout::from_size_align(size_bytes, ALIGN_BYTES)
            .map_err(|_| format!("scratch of {size_bytes} bytes cannot be addressed"))?;
        match self.scratch.allocate(layout) {
            Ok(block) => Ok(block.address()),
            Err(error) => Err(format!("scratch exhausted: {error}")),
        }
    }

    unsafe fn copy(
        &mut self,
        target: NonNull<u8>,
        source: NonNull<u8>,
        size_bytes: usize,
    ) -> Result<(), String> {
        let Some(queue) = &mut self.queue else {
            // SAFETY: valid host ranges, by the caller; they may overlap.
            unsafe { target.copy_from(source, size_bytes) };
            return Ok(());
        };
        // SAFETY: valid until the queue is waited for, by the caller.
        unsafe { queue.copy(Piece { target, source, size_bytes }) }.map_err(|error| error.to_string())
    }

    unsafe fn zero(&mut self, target: NonNull<u8>, size_bytes: usize) -> Result<(), String> {
        let Some(queue) = &mut self.queue else {
            // SAFETY: a valid host range, by the caller.
            unsafe { target.write_bytes(0, size_bytes) };
            return Ok(());
        };
        // SAFETY: valid until the queue is waited for, by the caller.
        unsafe { queue.fill(target, size_bytes, 0) }.map_err(|error| error.to_string())
    }

    unsafe fn launch(&mut self, launch: &Launch) -> Result<(), String> {
        let queue = self.queue.as_mut().ok_or("there is no device to launch a kernel on")?;
        // SAFETY: a kernel of the queue's device with its arguments, by the caller.
        unsafe { queue.launch(launch) }.map_err(|error| error.to_string())
    }

    fn wait(&mut self) -> Result<(), String> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        queue.synchronize().map_err(|error| error.to_string())
    }

    unsafe fn read(&mut self, target: &mut [u8], source: NonNull<u8>) -> Result<(), String> {
        let size_bytes = target.len();
        let target = NonNull::from(target).cast::<u8>();
        let Some(queue) = &mut self.queue else {
            // SAFETY: as long as the target, by the caller.
            unsafe { target.copy_from(source, size_bytes) };
            return Ok(());
        };
        // SAFETY: the source is valid, by the caller; the target is borrowed until the next line has waited.
        let copied = unsafe { queue.download(&[Piece { target, source, size_bytes }]) };
        copied.and_then(|()| queue.synchronize()).map_err(|error| error.to_string())
    }

    fn stream(&self) -> *mut c_void {
        let raw = self.queue.as_ref().map_or(0, |queue| queue.raw_stream());
        core::ptr::without_provenance_mut(raw)
    }
}
