//! The run that is going on on this thread: what the shims ask for memory, copies and the stream.
//!
//! Compiled code calls the shims with nothing but its own arguments, so the run is found through the thread.
//! Deliberately absent: any device. A [`Backend`] is the host, CUDA, or a test's.

use super::handle::{Origin, Storage};
use crate::space::Launch;
use core::cell::{Cell, RefCell};
use core::ffi::c_void;
use core::ptr::NonNull;
use std::sync::Arc;

/// What a run needs of the device it is on.
pub(crate) trait Backend {
    /// Device type and index, as PyTorch numbers them.
    fn device(&self) -> (i32, i32);

    /// Scratch of this size, aligned to 64 bytes or better, until the run's owner resets it.
    fn allocate(&mut self, size_bytes: usize) -> Result<NonNull<u8>, String>;

    /// Copies between ranges that the device reaches, in the order of its other work.
    ///
    /// # Safety
    /// * Both ranges are valid for `size_bytes` until the work is done. They may overlap only on the host.
    unsafe fn copy(
        &mut self,
        target: NonNull<u8>,
        source: NonNull<u8>,
        size_bytes: usize,
    ) -> Result<(), String>;

    /// Sets a range to zero, in the order of the device's other work.
    ///
    /// # Safety
    /// * The range is valid until the work is done.
    unsafe fn zero(&mut self, target: NonNull<u8>, size_bytes: usize) -> Result<(), String>;

    /// Starts a kernel, in the order of the device's other work.
    ///
    /// # Safety
    /// * The kernel is one of the device, with the arguments that it takes.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "code for the host launches no kernels"))]
    unsafe fn launch(&mut self, launch: &Launch) -> Result<(), String>;

    /// Waits for the work so far.
    fn wait(&mut self) -> Result<(), String>;

    /// Waits for the work so far and copies to the host.
    ///
    /// # Safety
    /// * `source` is valid for as many bytes as `target` has.
    unsafe fn read(&mut self, target: &mut [u8], source: NonNull<u8>) -> Result<(), String>;

    /// The stream, as the device's driver names it; null where there is none.
    fn stream(&self) -> *mut c_void;
}

/// An allocation that is known to become an output: it is served from the output's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Which allocation of the run.
    pub(crate) call: u32,
    /// The memory of the output.
    pub(crate) address: NonNull<u8>,
    /// The exact size that must be asked for.
    pub(crate) size_bytes: usize,
}

/// One run of compiled code.
pub(crate) struct Run<'a> {
    pub(crate) backend: &'a mut dyn Backend,
    pub(crate) placements: &'a [Placement],
    /// Allocations so far.
    calls: u32,
    scope: Arc<()>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(backend: &'a mut dyn Backend, placements: &'a [Placement], scope: Arc<()>) -> Self {
        Self { backend, placements, calls: 0, scope }
    }

    /// Memory for a new tensor on the run's device.
    pub(super) fn storage(&mut self, size_bytes: usize) -> Result<Storage, String> {
        let call = self.calls;
        self.calls += 1;
        let placed = |place: &&Placement| place.call == call && place.size_bytes == size_bytes;
        let address = match self.placements.iter().find(placed) {
            Some(place) => place.address,
            None => self.backend.allocate(size_bytes)?,
        };
        let (device_type, device_index) = self.backend.device();
        let origin = Origin::Scratch { call, _scope: Arc::clone(&self.scope) };
        Ok(Storage { address, size_bytes, device_type, device_index, origin })
    }
}

thread_local! {
    static CURRENT: Cell<Option<NonNull<RefCell<Run<'static>>>>> = const { Cell::new(None) };
    static ERROR: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work` with `run` as the run of this thread.
pub(crate) fn during<R>(run: Run<'_>, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<NonNull<RefCell<Run<'static>>>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let cell = RefCell::new(run);
    let _restore = Restore(CURRENT.replace(Some(NonNull::from(&cell).cast())));
    work()
}

/// Calls `use_run` with the run of this thread.
pub(super) fn with_run<R>(use_run: impl FnOnce(&mut Run<'_>) -> Result<R, String>) -> Result<R, String> {
    let current = CURRENT.get().ok_or("no run is going on on this thread")?;
    // SAFETY: `during` keeps the cell alive and in place while the pointer is set, on this thread only; the
    // lifetime of what the run borrows is longer still, and `use_run` cannot keep it: it is generic in it.
    let cell = unsafe { current.as_ref() };
    let mut run = cell.try_borrow_mut().map_err(|_| "the run is in use by this thread")?;
    use_run(&mut run)
}

/// Keeps why a shim failed; the first reason counts.
pub(super) fn set_error(text: String) {
    ERROR.with_borrow_mut(|error| {
        error.get_or_insert(text);
    });
}

/// Takes the reason that was kept.
pub(crate) fn take_error() -> Option<String> {
    ERROR.take()
}
