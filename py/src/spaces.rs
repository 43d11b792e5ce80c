//! What memory this machine has, and why a space is absent.
//!
//! Deliberately absent: arenas; see [`crate::arenas`].

use arenite::SpaceId;
use arenite::space::cuda::{self, Device};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Why a space is absent; `None` where it is there. Opens no device.
pub(crate) fn absence(id: SpaceId) -> Option<String> {
    match id.name() {
        "host" => None,
        // Page-locked memory comes from the driver, with any device.
        "pinned" => cuda::absence(0),
        "cuda" => cuda::absence(id.index()),
        _ => Some("nobody registered it".into()),
    }
}

/// A memory space of this machine.
#[pyclass(frozen, name = "Space", module = "arenite")]
pub(crate) struct Space {
    id: SpaceId,
    reason: Option<String>,
}

/// Every space that is known, by name: the host, pinned memory, and each device or at least the first.
pub(crate) fn all() -> Vec<Space> {
    let devices = cuda::device_count().unwrap_or(0).max(1);
    let ids = [SpaceId::HOST, SpaceId::PINNED].into_iter().chain((0..devices).map(SpaceId::cuda));
    ids.map(|id| Space { id, reason: absence(id) }).collect()
}

/// Total and available bytes of host memory, where the system says.
fn host_memory() -> (Option<u64>, Option<u64>) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let find = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
    };
    (find("MemTotal"), find("MemAvailable"))
}

impl Space {
    /// The device behind it; asking opens it.
    fn device(&self) -> Option<&'static Device> {
        self.reason.is_none().then(|| Device::open(self.id.index()).ok()).flatten()
    }
}

#[pymethods]
impl Space {
    /// Its name, as plans spell it.
    #[getter]
    pub(crate) fn name(&self) -> String {
        self.id.to_string()
    }

    /// Whether it is there.
    #[getter]
    fn available(&self) -> bool {
        self.reason.is_none()
    }

    /// Why it is not there; None where it is.
    #[getter]
    fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// All its bytes, where the system says.
    #[getter]
    fn total(&self) -> Option<u64> {
        match self.id.name() {
            "cuda" => self.device().and_then(|device| u64::try_from(device.total_bytes()).ok()),
            _ => host_memory().0,
        }
    }

    /// The bytes that are free, where the system says.
    #[getter]
    fn free(&self) -> Option<u64> {
        match self.id.name() {
            "cuda" => self.device().and_then(Device::free_bytes).and_then(|bytes| u64::try_from(bytes).ok()),
            _ => host_memory().1,
        }
    }

    /// All of it as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("available", self.available())?;
        dict.set_item("reason", self.reason())?;
        dict.set_item("total", self.total())?;
        dict.set_item("free", self.free())?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        match &self.reason {
            None => format!("Space({})", self.id),
            Some(reason) => format!("Space({}, absent: {reason})", self.id),
        }
    }
}
