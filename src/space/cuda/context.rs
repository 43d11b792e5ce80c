//! A device and its primary context: what every call on it needs.
//!
//! A [`Device`] is made once per ordinal and lives as long as the process: other libraries in the process use
//! the same primary context, and none may take it away while memory of it is alive. Deliberately absent:
//! contexts of one's own, and flags of the primary one; both would surprise those other libraries.

use super::copy::CopyKernel;
use super::driver::{Driver, Failure, done, driver};
use super::peers::Mapped;
use crate::space::SpaceId;
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Once, OnceLock};

static DEVICES: Mutex<Option<HashMap<u16, Result<&'static Device, String>>>> = Mutex::new(None);
static FREES_AFTER_SHUTDOWN: AtomicU64 = AtomicU64::new(0);
/// Whether this is the child of a fork of a process that had opened a device: the driver does not work there.
static FORKED: AtomicBool = AtomicBool::new(false);

/// One CUDA device, with its primary context.
#[derive(Debug)]
pub struct Device {
    pub(super) driver: &'static Driver,
    pub(super) context: ContextHandle,
    index: u16,
    name: String,
    capability: (u32, u32),
    total_bytes: usize,
    /// The unit in which physical memory is mapped, where the device can do that.
    granularity_bytes: Option<usize>,
    /// Loaded when first wanted; `None` where it does not run on this device.
    copy_kernel: OnceLock<Option<CopyKernel>>,
    pub(super) mapped: Mutex<Mapped>,
}

/// A context that lives as long as the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContextHandle(pub(super) sys::CUcontext);

// SAFETY: a handle of the driver, which may be used from any thread.
unsafe impl Send for ContextHandle {}
// SAFETY: as above.
unsafe impl Sync for ContextHandle {}

/// Why device `index` cannot be used, as a sentence; `None` where it can.
///
/// Costs nothing where there is no driver, and is worked out once. It makes no context and takes no memory.
///
/// # Examples
/// ```
/// if let Some(reason) = arenite::space::cuda::absence(0) {
///     println!("cuda:0 absent: {reason}");
/// }
/// ```
pub fn absence(index: u16) -> Option<String> {
    match device_count() {
        Ok(count) if index < count => None,
        Ok(0) => Some("no CUDA device is visible (see CUDA_VISIBLE_DEVICES)".into()),
        Ok(count) => Some(format!("cuda:{index} is wanted, {count} device{} present", plural(count))),
        Err(reason) => Some(reason),
    }
}

fn plural(count: u16) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// How many CUDA devices this process sees.
///
/// # Errors
/// A sentence that says why there is no CUDA here: `NVIDIA driver not installed (libcuda.so.1 not found)`.
pub fn device_count() -> Result<u16, String> {
    let driver = driver()?;
    let mut count: c_int = 0;
    // SAFETY: a place for the result.
    done(unsafe { (driver.device_count)(&raw mut count) }).map_err(|failure| failure.to_string())?;
    Ok(u16::try_from(count).unwrap_or(0))
}

/// How many blocks were given back after the driver had shut down, as happens when a process ends; the driver
/// had freed them itself by then.
pub fn frees_after_shutdown() -> u64 {
    FREES_AFTER_SHUTDOWN.load(Ordering::Relaxed)
}

/// Has children of this process know that they are.
fn watch_forks() {
    unsafe extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    static WATCHED: Once = Once::new();
    // SAFETY: the handler lives as long as the process, and does nothing but store to a static. Where the C library has
    // no memory to note it, a child finds out from the driver's errors.
    WATCHED.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) });
}

/// Notes the outcome of a free: after the driver's end it has nothing left to do.
pub(super) fn note_free(outcome: Result<(), Failure>) {
    if matches!(outcome, Err(Failure::SHUT_DOWN | Failure::CONTEXT_DESTROYED)) {
        FREES_AFTER_SHUTDOWN.fetch_add(1, Ordering::Relaxed);
    }
}

impl Device {
    /// Device `index`, opened at the first call.
    ///
    /// # Errors
    /// A sentence that says why it cannot be used.
    pub fn open(index: u16) -> Result<&'static Self, String> {
        let mut devices = DEVICES.lock();
        let devices = devices.get_or_insert_default();
        let opened = devices.entry(index).or_insert_with(|| {
            let device: &'static Self = Box::leak(Box::new(Self::open_new(index)?));
            super::staging::warm_up(device);
            Ok(device)
        });
        let device = opened.clone()?;
        device.check_process()?;
        Ok(device)
    }

    fn open_new(index: u16) -> Result<Self, String> {
        if let Some(reason) = absence(index) {
            return Err(reason);
        }
        watch_forks();
        let driver = driver()?;
        let text = |failure: Failure| format!("cuda:{index} cannot be used: {failure}");
        let mut device = 0;
        // SAFETY: a place for the result; the ordinal was compared with the count.
        done(unsafe { (driver.device)(&raw mut device, index.into()) }).map_err(text)?;
        let mut name = [0_u8; 96];
        let length = c_int::try_from(name.len()).unwrap_or(0);
        // SAFETY: a place for `length` characters.
        done(unsafe { (driver.device_name)(name.as_mut_ptr().cast::<c_char>(), length, device) })
            .map_err(text)?;
        let mut total_bytes = 0;
        // SAFETY: a place for the result.
        done(unsafe { (driver.device_memory)(&raw mut total_bytes, device) }).map_err(text)?;
        let mut context = core::ptr::null_mut();
        // SAFETY: a place for the result. The context is never released: see the head of this file.
        done(unsafe { (driver.primary_retain)(&raw mut context, device) }).map_err(text)?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        let mut opened = Self {
            driver,
            context: ContextHandle(context),
            index,
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
            capability: (0, 0),
            total_bytes,
            granularity_bytes: None,
            copy_kernel: OnceLock::new(),
            mapped: Mutex::default(),
        };
        let attribute = |which: Attribute| opened.attribute(device, which as c_int).map_err(text);
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let maps = attribute(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? != 0;
        opened.capability = (major.unsigned_abs(), minor.unsigned_abs());
        if maps {
            opened.granularity_bytes = opened.granularity().ok().filter(|bytes| bytes.is_power_of_two());
        }
        Ok(opened)
    }

    fn attribute(&self, device: sys::CUdevice, which: c_int) -> Result<c_int, Failure> {
        let mut value = 0;
        // SAFETY: a place for the result.
        done(unsafe { (self.driver.device_attribute)(&raw mut value, which, device) })?;
        Ok(value)
    }

    /// What physical memory of this device is asked for with.
    pub(super) fn properties(&self) -> sys::CUmemAllocationProp {
        // SAFETY: a structure of numbers and a pointer, for all of which zero is a value.
        let mut properties: sys::CUmemAllocationProp = unsafe { core::mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = self.index.into();
        properties
    }

    fn granularity(&self) -> Result<usize, Failure> {
        let (mut bytes, properties) = (0, self.properties());
        // SAFETY: a place for the result and a filled structure; 1 asks for what is recommended.
        done(unsafe { (self.driver.granularity)(&raw mut bytes, &raw const properties, 1) })?;
        Ok(bytes)
    }

    /// The kernel that copies, where it runs on this device. The context is current.
    pub(super) fn copy_kernel(&self) -> Option<CopyKernel> {
        *self.copy_kernel.get_or_init(|| CopyKernel::load(self).ok())
    }

    /// The ordinal.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The space of its memory.
    pub fn space_id(&self) -> SpaceId {
        SpaceId::cuda(self.index)
    }

    /// The name, for example `NVIDIA H200`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The compute capability, for example `(9, 0)`.
    pub fn capability(&self) -> (u32, u32) {
        self.capability
    }

    /// All of its memory, in bytes.
    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// What is free of it now, in bytes; `None` where the driver does not say.
    pub fn free_bytes(&self) -> Option<usize> {
        let _entered = self.enter().ok()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: places for the results; the context is current.
        done(unsafe { (self.driver.memory_info)(&raw mut free, &raw mut total) }).ok()?;
        Some(free)
    }

    /// The unit in which memory is mapped, where the device can reserve addresses.
    pub(super) fn granularity_bytes(&self) -> Option<usize> {
        self.granularity_bytes
    }

    /// The address of any function of the driver, for compiled code that calls it.
    #[cfg(feature = "exec")]
    pub(crate) fn driver_function(&self, name: &str) -> Option<u64> {
        if name.starts_with("cu") { self.driver.address(name) } else { None }
    }

    /// The index of the device whose context is current on this thread.
    #[cfg(feature = "exec")]
    pub(crate) fn current_index() -> Option<u16> {
        let mut current = core::ptr::null_mut();
        // SAFETY: a place for the result.
        done(unsafe { (driver().ok()?.current)(&raw mut current) }).ok()?;
        let devices = DEVICES.lock();
        let mut opened = devices.as_ref()?.values().flatten();
        opened.find(|device| device.context.0 == current).map(|device| device.index)
    }

    fn check_process(&self) -> Result<(), String> {
        if self.is_usable() {
            Ok(())
        } else {
            Err("CUDA was opened before this process was forked and cannot be used in the child; use spawn"
                .into())
        }
    }

    /// Whether this process may call the driver: a forked child may not.
    #[expect(clippy::unused_self, reason = "a device is opened before this can be false")]
    pub(super) fn is_usable(&self) -> bool {
        !FORKED.load(Ordering::Relaxed)
    }

    /// Makes the context current on this thread until the result is dropped.
    pub(crate) fn enter(&self) -> Result<Entered, Failure> {
        let mut before = core::ptr::null_mut();
        // SAFETY: a place for the result.
        done(unsafe { (self.driver.current)(&raw mut before) })?;
        if before == self.context.0 {
            return Ok(Entered(None));
        }
        // SAFETY: the context lives as long as the process.
        done(unsafe { (self.driver.set_current)(self.context.0) })?;
        if before.is_null() && self.index == 0 {
            // Where no context is current, other libraries take this one for it: it may as well stay.
            return Ok(Entered(None));
        }
        Ok(Entered(Some((self.driver, before))))
    }
}

/// Restores the context that was current before.
pub(crate) struct Entered(Option<(&'static Driver, sys::CUcontext)>);

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some((driver, before)) = self.0 {
            // SAFETY: it was current on this thread before. Where it is gone by now, the driver says so, and
            // nothing can be done about it.
            unsafe { (driver.set_current)(before) };
        }
    }
}
