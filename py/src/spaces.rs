//! What memory this machine has, and why a space is absent.
//!
//! Deliberately absent: arenas; see [`crate::arenas`].

use arenite::{ArenaSet, ArenaSetBuilder, SpaceId};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Why a space is absent; `None` where it is there.
pub(crate) fn absence(id: SpaceId) -> Option<String> {
    match id.name() {
        "host" => None,
        "pinned" => arenite::space::cuda::absence(0),
        "cuda" => arenite::space::cuda::absence(id.index()),
        _ => Some("nobody registered it".into()),
    }
}

/// A set of every space that this machine may have, with reasons for the others.
pub(crate) fn builder() -> ArenaSetBuilder {
    ArenaSet::machine()
}

/// A memory space of this machine.
#[pyclass(frozen, name = "Space", module = "arenite")]
pub(crate) struct Space {
    id: SpaceId,
    reason: Option<String>,
    total: Option<u64>,
    free: Option<u64>,
}

/// Every space that is known, by name.
pub(crate) fn all() -> Vec<Space> {
    let (total, free) = host_memory();
    let space = |id| Space { id, reason: absence(id), total: None, free: None };
    vec![Space { total, free, ..space(SpaceId::HOST) }, space(SpaceId::PINNED), space(SpaceId::cuda(0))]
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
        self.total
    }

    /// The bytes that are free, where the system says.
    #[getter]
    fn free(&self) -> Option<u64> {
        self.free
    }

    /// All of it as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("available", self.available())?;
        dict.set_item("reason", self.reason())?;
        dict.set_item("total", self.total)?;
        dict.set_item("free", self.free)?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        match &self.reason {
            None => format!("Space({})", self.id),
            Some(reason) => format!("Space({}, absent: {reason})", self.id),
        }
    }
}
