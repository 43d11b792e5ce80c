//! The CUDA driver, found at run time: its functions as a table, its results as [`Failure`]s.
//!
//! Functions give plain numbers here, and each number is matched against the names that are known: a newer
//! driver may answer what no header lists. Structures and constants are those of `cudarc`.
//!
//! Deliberately absent: any policy. Each function does what the driver's manual says.
//!
//! # Source
//! CUDA Driver API 12.8.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::fmt;
use cudarc::driver::sys;
use std::sync::OnceLock;

/// The name under which every driver installs itself on Linux.
const LIBRARY: &str = "libcuda.so.1";

/// An address on a device, as the driver takes it.
pub(crate) type DevicePtr = sys::CUdeviceptr;

macro_rules! driver {
    ($( $(#[$note:meta])* $field:ident = $symbol:literal ($($arg:ty),* $(,)?); )*) => {
        /// The driver's functions.
        #[cfg_attr(not(feature = "exec"), expect(dead_code, reason = "delegates use the rest"))]
        pub(crate) struct Driver {
            library: libloading::Library,
            $( $(#[$note])* pub(crate) $field: unsafe extern "C" fn($($arg),*) -> c_uint, )*
        }

        impl Driver {
            fn find(library: libloading::Library) -> Result<Self, String> {
                let mut missing: Vec<&str> = Vec::new();
                $(
                    // SAFETY: the type is that of the driver's manual for this symbol.
                    let $field = unsafe {
                        library.get::<unsafe extern "C" fn($($arg),*) -> c_uint>($symbol.as_bytes())
                    }
                    .map(|symbol| *symbol)
                    .map_err(|_| missing.push($symbol));
                )*
                match ($($field,)*) {
                    ($(Ok($field),)*) => Ok(Self { library, $($field,)* }),
                    _ => Err(format!("the NVIDIA driver is too old: it lacks {}", missing.join(", "))),
                }
            }
        }
    };
}

driver! {
    init = "cuInit"(c_uint);
    error_name = "cuGetErrorName"(c_uint, *mut *const c_char);
    error_text = "cuGetErrorString"(c_uint, *mut *const c_char);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device = "cuDeviceGet"(*mut sys::CUdevice, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, sys::CUdevice);
    device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_int, sys::CUdevice);
    device_memory = "cuDeviceTotalMem_v2"(*mut usize, sys::CUdevice);
    can_access_peer = "cuDeviceCanAccessPeer"(*mut c_int, sys::CUdevice, sys::CUdevice);
    primary_retain = "cuDevicePrimaryCtxRetain"(*mut sys::CUcontext, sys::CUdevice);
    current = "cuCtxGetCurrent"(*mut sys::CUcontext);
    set_current = "cuCtxSetCurrent"(sys::CUcontext);
    synchronize = "cuCtxSynchronize"();
    memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    alloc = "cuMemAlloc_v2"(*mut DevicePtr, usize);
    free = "cuMemFree_v2"(DevicePtr);
    host_alloc = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost"(*mut c_void);
    address_reserve = "cuMemAddressReserve"(*mut DevicePtr, usize, usize, DevicePtr, u64);
    address_free = "cuMemAddressFree"(DevicePtr, usize);
    mem_create = "cuMemCreate"(*mut u64, usize, *const sys::CUmemAllocationProp, u64);
    mem_release = "cuMemRelease"(u64);
    mem_map = "cuMemMap"(DevicePtr, usize, usize, u64, u64);
    mem_unmap = "cuMemUnmap"(DevicePtr, usize);
    set_access = "cuMemSetAccess"(DevicePtr, usize, *const sys::CUmemAccessDesc, usize);
    granularity = "cuMemGetAllocationGranularity"(*mut usize, *const sys::CUmemAllocationProp, c_uint);
    copy_async = "cuMemcpyAsync"(DevicePtr, DevicePtr, usize, sys::CUstream);
    upload_async = "cuMemcpyHtoDAsync_v2"(DevicePtr, *const c_void, usize, sys::CUstream);
    download_async = "cuMemcpyDtoHAsync_v2"(*mut c_void, DevicePtr, usize, sys::CUstream);
    copy_peer_async = "cuMemcpyPeerAsync"(
        DevicePtr,
        sys::CUcontext,
        DevicePtr,
        sys::CUcontext,
        usize,
        sys::CUstream,
    );
    copy_now = "cuMemcpy"(DevicePtr, DevicePtr, usize);
    fill_async = "cuMemsetD8Async"(DevicePtr, u8, usize, sys::CUstream);
    stream_create = "cuStreamCreate"(*mut sys::CUstream, c_uint);
    stream_destroy = "cuStreamDestroy_v2"(sys::CUstream);
    stream_synchronize = "cuStreamSynchronize"(sys::CUstream);
    stream_wait = "cuStreamWaitEvent"(sys::CUstream, sys::CUevent, c_uint);
    event_create = "cuEventCreate"(*mut sys::CUevent, c_uint);
    event_destroy = "cuEventDestroy_v2"(sys::CUevent);
    event_record = "cuEventRecord"(sys::CUevent, sys::CUstream);
    event_query = "cuEventQuery"(sys::CUevent);
    event_synchronize = "cuEventSynchronize"(sys::CUevent);
    module_load = "cuModuleLoadData"(*mut sys::CUmodule, *const c_void);
    module_kernel = "cuModuleGetFunction"(*mut sys::CUfunction, sys::CUmodule, *const c_char);
    launch = "cuLaunchKernel"(
        sys::CUfunction,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        sys::CUstream,
        *mut *mut c_void,
        *mut *mut c_void,
    );
    graph_create = "cuGraphCreate"(*mut sys::CUgraph, c_uint);
    graph_add_copy = "cuGraphAddMemcpyNode"(
        *mut sys::CUgraphNode,
        sys::CUgraph,
        *const sys::CUgraphNode,
        usize,
        *const sys::CUDA_MEMCPY3D,
        sys::CUcontext,
    );
    graph_add_fill = "cuGraphAddMemsetNode"(
        *mut sys::CUgraphNode,
        sys::CUgraph,
        *const sys::CUgraphNode,
        usize,
        *const sys::CUDA_MEMSET_NODE_PARAMS,
        sys::CUcontext,
    );
    graph_add_kernel = "cuGraphAddKernelNode"(
        *mut sys::CUgraphNode,
        sys::CUgraph,
        *const sys::CUgraphNode,
        usize,
        *const sys::CUDA_KERNEL_NODE_PARAMS_v1,
    );
    graph_instantiate = "cuGraphInstantiateWithFlags"(*mut sys::CUgraphExec, sys::CUgraph, u64);
    graph_launch = "cuGraphLaunch"(sys::CUgraphExec, sys::CUstream);
    graph_exec_destroy = "cuGraphExecDestroy"(sys::CUgraphExec);
    graph_destroy = "cuGraphDestroy"(sys::CUgraph);
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

/// What the driver answered in the place of success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) c_uint);

impl Failure {
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const SHUT_DOWN: Self = Self(4);
    pub(crate) const CONTEXT_DESTROYED: Self = Self(709);
    pub(crate) const NOT_READY: Self = Self(600);

    /// A sentence for those that users meet, without asking the driver.
    pub(crate) const fn text(self) -> &'static str {
        match self.0 {
            1 => "the driver was given an invalid value",
            2 => "the device is out of memory",
            3 => "the driver is not initialised",
            4 => "the driver has shut down",
            34 => "libcuda.so.1 is the stub library of the toolkit, not a driver",
            100 => "no CUDA device is visible (see CUDA_VISIBLE_DEVICES)",
            101 => "there is no such device",
            200 => "the kernel image is invalid",
            201 => "no context is current",
            209 => "no kernel image for this GPU; export the program again for it",
            218 => "the portable kernel code could not be compiled",
            222 => "the portable kernel code is newer than the driver",
            700 => "a kernel accessed an illegal address",
            709 => "the context was destroyed",
            716 => "a kernel accessed a misaligned address",
            719 => "a kernel failed",
            801 => "the device or driver does not support this",
            803 => "the driver is older than the CUDA library in use",
            900..=908 => "a stream of this process is being captured as a graph",
            _ => "the driver refused",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())?;
        let mut name = core::ptr::null();
        if let Ok(driver) = driver() {
            // SAFETY: a place for the result; any number may be asked for.
            unsafe { (driver.error_name)(self.0, &raw mut name) };
        }
        if name.is_null() {
            return write!(f, " (error {})", self.0);
        }
        // SAFETY: not null, so a text of the driver that lives for good.
        let name = unsafe { CStr::from_ptr(name) };
        write!(f, " ({})", name.to_string_lossy())
    }
}

/// A driver's answer as a result.
pub(crate) const fn done(status: c_uint) -> Result<(), Failure> {
    if status == 0 { Ok(()) } else { Err(Failure(status)) }
}

static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();

/// The driver, opened and initialised at the first call; why there is none otherwise.
pub(crate) fn driver() -> Result<&'static Driver, &'static str> {
    let opened = DRIVER.get_or_init(|| {
        // SAFETY: the driver's library has initialisers that any program with CUDA runs.
        let library = unsafe { libloading::Library::new(LIBRARY) }
            .map_err(|_| format!("NVIDIA driver not installed ({LIBRARY} not found)"))?;
        let driver = Driver::find(library)?;
        // SAFETY: the flags must be 0.
        done(unsafe { (driver.init)(0) }).map_err(|failure| match failure.0 {
            100 => failure.text().to_owned(),
            _ => format!("the NVIDIA driver cannot be used: {} (error {})", failure.text(), failure.0),
        })?;
        Ok(driver)
    });
    opened.as_ref().map_err(String::as_str)
}

impl Driver {
    /// The address of any of the driver's functions, for compiled code that calls it.
    #[cfg(feature = "exec")]
    pub(crate) fn address(&self, name: &str) -> Option<u64> {
        // SAFETY: the symbol is only turned into an address.
        let symbol = unsafe { self.library.get::<*const c_void>(name.as_bytes()) }.ok()?;
        Some((*symbol).addr() as u64)
    }
}
