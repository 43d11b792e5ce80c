//! `Runtime`, the registries, and `load`: the verbs of `executorch.runtime`, and a shorter one.
//!
//! Deliberately absent: global state that a caller can change. The one runtime is a name for what is built in.

use crate::arenas::Handle;
use crate::method::Method;
use crate::program::{self, Program};
use crate::spaces;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// How much of a program is checked; everything always is, so this is taken and has no effect.
#[pyclass(frozen, eq, hash, name = "Verification", module = "arenite", from_py_object)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verification {
    /// As in `executorch.runtime`.
    Minimal,
    /// As in `executorch.runtime`.
    InternalConsistency,
}

/// Where programs are loaded: ``Runtime.get().load_program(…)``.
#[pyclass(frozen, name = "Runtime", module = "arenite")]
pub(crate) struct Runtime;

#[pymethods]
impl Runtime {
    /// The runtime of this process.
    #[staticmethod]
    fn get(py: Python<'_>) -> PyResult<Py<Self>> {
        static RUNTIME: PyOnceLock<Py<Runtime>> = PyOnceLock::new();
        RUNTIME.get_or_try_init(py, || Py::new(py, Self)).map(|runtime| runtime.clone_ref(py))
    }

    /// Loads a program.
    ///
    /// Args:
    ///     data: a path, the bytes of a program, or a binary file.
    ///     data_path: a data file (.ptd), its bytes, or a list of them.
    ///     mmap: map files rather than read them.
    ///     verify, verification, enable_etdump, debug_buffer_size: taken for `executorch.runtime`'s sake;
    ///         every program is checked in full, and no event trace is kept.
    ///     native_code: whether code inside the program may run when a method is loaded, with the rights of this
    ///         process: "allow", "deny", or the SHA-256 digests (hexadecimal) of the code that may.
    ///
    /// Raises:
    ///     ProgramFormatError, UnsupportedProgram, ExternalDataError, FileNotFoundError, TypeError.
    #[pyo3(signature = (data, *, data_path=None, mmap=true, verify=true, verification=None, enable_etdump=false, debug_buffer_size=0, native_code=None))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of executorch.runtime")]
    fn load_program(
        &self,
        data: &Bound<'_, PyAny>,
        data_path: Option<&Bound<'_, PyAny>>,
        mmap: bool,
        verify: bool,
        verification: Option<Verification>,
        enable_etdump: bool,
        debug_buffer_size: usize,
        native_code: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Program> {
        let _ = (verify, verification, enable_etdump, debug_buffer_size);
        program::open(data, data_path, mmap, native_code)
    }

    /// The memory spaces that are known, by name, also those that are absent.
    #[getter]
    fn spaces<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let spaces = PyDict::new(py);
        for space in spaces::all() {
            spaces.set_item(space.name(), Bound::new(py, space)?)?;
        }
        Ok(spaces)
    }

    /// The operators that programs may call.
    #[getter]
    fn operator_registry(&self) -> OperatorRegistry {
        OperatorRegistry
    }

    /// The delegates that programs may hand work to.
    #[getter]
    fn backend_registry(&self) -> BackendRegistry {
        BackendRegistry
    }
}

/// The operators that programs may call.
#[pyclass(frozen, name = "OperatorRegistry", module = "arenite")]
pub(crate) struct OperatorRegistry;

#[pymethods]
impl OperatorRegistry {
    /// Every operator name, sorted.
    #[getter]
    fn operator_names(&self) -> Vec<&'static str> {
        Handle::default_set().options.kernels.names()
    }
}

/// The delegates that programs may hand work to.
#[pyclass(frozen, name = "BackendRegistry", module = "arenite")]
pub(crate) struct BackendRegistry;

#[pymethods]
impl BackendRegistry {
    /// Every delegate name.
    #[getter]
    fn registered_backend_names(&self) -> Vec<&'static str> {
        Handle::default_set().options.delegates.ids()
    }

    /// Whether a delegate is registered and can run on this machine.
    fn is_available(&self, backend_name: &str) -> bool {
        let delegate = Handle::default_set().options.delegates.get(backend_name);
        delegate.is_some_and(|delegate| delegate.absence().is_none())
    }
}

/// Loads one method of a program.
///
/// Args:
///     data, data_path, mmap, native_code: as for ``Runtime.load_program``.
///     method: the method; unless given, the only one, or ``forward``.
///     arenas: as for ``Program.load_method``.
#[pyfunction]
#[pyo3(signature = (data, method=None, *, data_path=None, mmap=true, arenas=None, native_code=None))]
pub(crate) fn load<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    method: Option<&str>,
    data_path: Option<&Bound<'py, PyAny>>,
    mmap: bool,
    arenas: Option<&Bound<'py, PyAny>>,
    native_code: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, Method>> {
    let program = program::open(data, data_path, mmap, native_code)?;
    let name = match method {
        Some(name) => name.to_owned(),
        None => program.default_method(py)?,
    };
    program.load(py, &name, arenas, None, None)
}
