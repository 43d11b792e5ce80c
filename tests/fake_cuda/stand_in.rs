//! Builds and opens the stand-in for the driver, once per process.

use core::ptr::NonNull;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

static LIBRARY: OnceLock<libloading::Library> = OnceLock::new();
static TURN: Mutex<()> = Mutex::new(());

/// The stand-in, for one test at a time: what it counts and fails is the process's.
pub struct StandIn {
    _turn: MutexGuard<'static, ()>,
}

fn open() -> libloading::Library {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libcuda-{}.so", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_cuda/fake_cuda.rs");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(compiler)
        .args(["--edition", "2024", "--crate-name", "fake_cuda", "--crate-type", "cdylib"])
        .args(["-C", "opt-level=1", "-C", "link-arg=-Wl,-soname,libcuda.so.1", "-o"])
        .arg(&target)
        .arg(source)
        .status()
        .unwrap();
    assert!(built.success(), "the stand-in compiles");
    // SAFETY: its initialisers do nothing. Opened under the driver's name, it is found in the driver's place.
    let library = unsafe { libloading::Library::new(&target) }.unwrap();
    std::fs::remove_file(target).unwrap();
    library
}

impl StandIn {
    /// Two devices of 64 GiB, no failures.
    pub fn take() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        LIBRARY.get_or_init(open);
        let stand_in = Self { _turn: turn };
        stand_in.reset(2, 64 << 30);
        stand_in
    }

    fn symbol<F: Copy>(name: &str) -> F {
        // SAFETY: each caller below names a function of the stand-in with its type.
        *unsafe { LIBRARY.get().unwrap().get::<F>(name.as_bytes()) }.unwrap()
    }

    /// So many devices, so many bytes on all together.
    pub fn reset(&self, devices: i32, capacity_bytes: usize) {
        Self::symbol::<extern "C" fn(i32, usize)>("fake_reset")(devices, capacity_bytes);
    }

    /// Lets the n-th call from now fail; 0 for none.
    pub fn fail_after(&self, calls: u64) {
        Self::symbol::<extern "C" fn(u64)>("fake_fail_after")(calls);
    }

    /// Whether the call that was to fail has been made.
    pub fn has_failed(&self) -> bool {
        Self::symbol::<extern "C" fn() -> bool>("fake_has_failed")()
    }

    /// Objects not given back, but for what is kept for later queues.
    pub fn live(&self) -> usize {
        arenite::space::cuda::trim_staging();
        Self::symbol::<extern "C" fn() -> usize>("fake_live")()
    }

    /// Device bytes in use.
    pub fn live_bytes(&self) -> usize {
        Self::symbol::<extern "C" fn() -> usize>("fake_live_bytes")()
    }

    /// Calls that took memory.
    pub fn allocations(&self) -> u64 {
        Self::symbol::<extern "C" fn() -> u64>("fake_allocations")()
    }

    /// Copies queued, on the device and across the bus.
    pub fn copies(&self) -> u64 {
        Self::symbol::<extern "C" fn() -> u64>("fake_copies")()
    }

    /// Whether a device was let reach the mapping that starts here.
    pub fn lets(&self, mapping: NonNull<u8>, device: i32) -> bool {
        Self::symbol::<extern "C" fn(usize, i32) -> bool>("fake_lets")(mapping.addr().get(), device)
    }

    /// Kernels launched.
    pub fn launches(&self) -> u64 {
        Self::symbol::<extern "C" fn() -> u64>("fake_launches")()
    }
}
