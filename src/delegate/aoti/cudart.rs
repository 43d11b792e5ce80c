//! The twelve functions of the CUDA runtime that compiled code calls, over the driver; and the driver's ways to
//! load kernels, kept to once per image, and to launch them, by the run's queue.
//!
//! Bound into the code by address, they make the runtime library unnecessary: neither its version nor where
//! it is installed matters, and no other library's allocations are touched. Deliberately absent: the rest.
//!
//! # Source
//! `cuda_runtime_api.h`, CUDA 12 and 13: numbers of errors are those of the driver.

use super::elf::Object;
use super::fatbin::{Target, targets};
use super::run::{set_error, with_run};
use crate::delegate::DelegateError;
use crate::space::Launch;
use crate::space::cuda::Device;
use crate::space::cuda::driver::{Driver, Failure, done, driver};
use core::ffi::{c_char, c_int, c_uint, c_void};
use cudarc::driver::sys::{CUevent, CUfunction, CUmodule, CUstream};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The runtime's number for "no device".
const NO_DEVICE: c_int = 100;
/// The runtime's number for what has none.
const UNKNOWN: c_int = 999;
/// The driver's number for a launch that failed.
const LAUNCH_FAILED: c_uint = 719;

/// Calls the driver; gives the runtime's number.
fn call(body: impl FnOnce(&'static Driver) -> Result<(), Failure>) -> c_int {
    let called = catch_unwind(AssertUnwindSafe(|| driver().map(body)));
    match called {
        Ok(Ok(Ok(()))) => 0,
        Ok(Ok(Err(failure))) => c_int::try_from(failure.0).unwrap_or(UNKNOWN),
        Ok(Err(_)) | Err(_) => NO_DEVICE,
    }
}

unsafe extern "C" fn get_device(out: *mut c_int) -> c_int {
    let running = with_run(|run| Ok(run.backend.device().1)).ok();
    let index = running.unwrap_or_else(|| Device::current_index().unwrap_or(0).into());
    // SAFETY: the C interface: a place for the result.
    unsafe { out.write(index.max(0)) };
    0
}

unsafe extern "C" fn set_device(index: c_int) -> c_int {
    // The caller of compiled code made the device current for this thread, and restores what was before.
    let is_current = with_run(|run| Ok(run.backend.device().1 == index)).unwrap_or(false);
    let is_there = || u16::try_from(index).is_ok_and(|index| Device::open(index).is_ok());
    if is_current || is_there() { 0 } else { 101 }
}

unsafe extern "C" fn malloc(out: *mut *mut c_void, size_bytes: usize) -> c_int {
    call(|driver| {
        let mut address = 0;
        // SAFETY: a place for the result; the context is current around compiled code.
        done(unsafe { (driver.alloc)(&raw mut address, size_bytes.max(1)) })?;
        let address = core::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0));
        // SAFETY: the C interface: a place for the result.
        unsafe { out.write(address) };
        Ok(())
    })
}

unsafe extern "C" fn free(address: *mut c_void) -> c_int {
    if address.is_null() {
        return 0;
    }
    // SAFETY: the C interface: it came from `malloc`.
    call(|driver| done(unsafe { (driver.free)(address.addr() as u64) }))
}

unsafe extern "C" fn memcpy(
    target: *mut c_void,
    source: *const c_void,
    size_bytes: usize,
    _kind: c_int,
) -> c_int {
    // The driver's own stream knows nothing of the run's work before.
    let waited = with_run(|run| Ok(run.backend.wait()));
    if let Ok(Err(reason)) = waited {
        set_error(reason);
        return UNKNOWN;
    }
    // SAFETY: the C interface: valid ranges; the driver finds out where they are.
    call(|driver| done(unsafe { (driver.copy_now)(target.addr() as u64, source.addr() as u64, size_bytes) }))
}

unsafe extern "C" fn event_create(out: *mut CUevent) -> c_int {
    // SAFETY: the C interface: a place for the result.
    call(|driver| done(unsafe { (driver.event_create)(out, 0) }))
}

unsafe extern "C" fn event_destroy(event: CUevent) -> c_int {
    // SAFETY: the C interface: a live event.
    call(|driver| done(unsafe { (driver.event_destroy)(event) }))
}

unsafe extern "C" fn event_query(event: CUevent) -> c_int {
    // SAFETY: the C interface: a live event.
    call(|driver| done(unsafe { (driver.event_query)(event) }))
}

unsafe extern "C" fn event_record(event: CUevent, stream: *mut c_void) -> c_int {
    // SAFETY: the C interface: a live event and a live stream.
    call(|driver| done(unsafe { (driver.event_record)(event, stream.cast()) }))
}

unsafe extern "C" fn event_synchronize(event: CUevent) -> c_int {
    // SAFETY: the C interface: a live event.
    call(|driver| done(unsafe { (driver.event_synchronize)(event) }))
}

extern "C" fn get_last_error() -> c_int {
    0
}

extern "C" fn get_error_string(code: c_int) -> *const c_char {
    let unknown: &CStr = c"CUDA error";
    if code == 0 {
        return c"no error".as_ptr();
    }
    let Ok(driver) = driver() else { return unknown.as_ptr() };
    let mut text = core::ptr::null();
    // SAFETY: a place for the result; any number may be asked for.
    unsafe { (driver.error_text)(code.unsigned_abs(), &raw mut text) };
    if text.is_null() { unknown.as_ptr() } else { text }
}

/// Modules by the context and the image they were loaded from. An image lies in a library, which is loaded
/// once and stays, so that one module serves every delegate with the same code, also after others are gone.
static MODULES: Mutex<Option<HashMap<(usize, usize), usize>>> = Mutex::new(None);

unsafe extern "C" fn module_load_data(out: *mut CUmodule, image: *const c_void) -> c_uint {
    let loaded = call(|driver| {
        let mut context = core::ptr::null_mut();
        // SAFETY: a place for the result.
        done(unsafe { (driver.current)(&raw mut context) })?;
        let mut modules = MODULES.lock();
        let modules = modules.get_or_insert_default();
        let key = (context.addr(), image.addr());
        let module = if let Some(module) = modules.get(&key) {
            core::ptr::with_exposed_provenance_mut(*module)
        } else {
            let mut module: CUmodule = core::ptr::null_mut();
            // SAFETY: a place for the result, and an image of the compiled code.
            done(unsafe { (driver.module_load)(&raw mut module, image) })?;
            modules.insert(key, module.expose_provenance());
            module
        };
        // SAFETY: the C interface: a place for the result.
        unsafe { out.write(module) };
        Ok(())
    });
    loaded.unsigned_abs()
}

extern "C" fn module_unload(_module: CUmodule) -> c_uint {
    0
}

/// Launches a kernel: in a run by its queue, which may be capturing a graph; on the stream outside of one.
unsafe extern "C" fn launch_kernel(
    kernel: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared_bytes: c_uint,
    stream: CUstream,
    arguments: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_uint {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let launch = Launch { kernel: kernel.cast(), grid, block, shared_bytes, arguments, extra };
    let launched = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the C interface: a kernel of the run's device, and its arguments.
        with_run(|run| Ok(unsafe { run.backend.launch(&launch) }))
    }));
    match launched {
        Ok(Ok(Ok(()))) => 0,
        Ok(Ok(Err(reason))) => {
            set_error(reason);
            LAUNCH_FAILED
        }
        // No run is going on on this thread.
        Ok(Err(_)) => call(|driver| {
            // SAFETY: the C interface, as the driver's own.
            done(unsafe {
                (driver.launch)(
                    kernel,
                    grid_x,
                    grid_y,
                    grid_z,
                    block_x,
                    block_y,
                    block_z,
                    shared_bytes,
                    stream,
                    arguments,
                    extra,
                )
            })
        })
        .unsigned_abs(),
        Err(_) => LAUNCH_FAILED,
    }
}

/// Whether a function of the driver gives a device work, so that a queue which captures a graph misses it.
pub(super) fn goes_past_the_queue(name: &str) -> bool {
    let asks = [
        "cuGet",
        "cuDevice",
        "cuCtxGet",
        "cuCtxSetCurrent",
        "cuModule",
        "cuFunc",
        "cuOccupancy",
        "cuTensorMap",
    ];
    address(name).is_none() && !asks.iter().any(|start| name.starts_with(start))
}

/// The address of the function of this name.
pub(super) fn address(name: &str) -> Option<u64> {
    let pointer: *const c_void = match name {
        "cudaGetDevice" => get_device as *const c_void,
        "cudaSetDevice" => set_device as *const c_void,
        "cudaMalloc" => malloc as *const c_void,
        "cudaFree" => free as *const c_void,
        "cudaMemcpy" => memcpy as *const c_void,
        "cudaEventCreate" => event_create as *const c_void,
        "cudaEventDestroy" => event_destroy as *const c_void,
        "cudaEventQuery" => event_query as *const c_void,
        "cudaEventRecord" => event_record as *const c_void,
        "cudaEventSynchronize" => event_synchronize as *const c_void,
        "cudaGetLastError" => get_last_error as *const c_void,
        "cudaGetErrorString" => get_error_string as *const c_void,
        "cuModuleLoadData" => module_load_data as *const c_void,
        "cuLaunchKernel" => launch_kernel as *const c_void,
        "cuModuleUnload" => module_unload as *const c_void,
        _ => return None,
    };
    Some(pointer.addr() as u64)
}

/// Refuses code none of whose kernels can run on this GPU.
pub(super) fn check_targets(object: &Object<'_>, capability: u32) -> Result<(), DelegateError> {
    let mut found = Vec::new();
    for (name, bytes) in object.defined("__") {
        if name.ends_with("_start") {
            found.extend(targets(bytes));
        }
    }
    // Machine code runs on its own major version from its own minor one on; portable code on anything newer.
    // Code for an architecture's special instructions is stricter, and then the driver says so.
    let runs = |target: &Target| match *target {
        Target::Binary(arch) => arch / 10 == capability / 10 && arch <= capability,
        Target::Portable(arch) => arch <= capability,
    };
    if found.is_empty() || found.iter().any(runs) {
        return Ok(());
    }
    let mut names: Vec<u32> = found
        .iter()
        .map(|target| match *target {
            Target::Binary(arch) | Target::Portable(arch) => arch,
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    let names: Vec<String> = names.iter().map(|arch| format!("sm_{arch}")).collect();
    Err(DelegateError::Incompatible {
        reason: format!(
            "compiled for {}, this GPU is sm_{capability}; export the program again for it",
            names.join(", ")
        ),
    })
}
