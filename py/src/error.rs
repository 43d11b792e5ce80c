//! The exception classes, and how Rust errors become them.
//!
//! ```text
//! Error(RuntimeError) ── ProgramFormatError, UnsupportedProgram ── MissingOperators, UnsupportedDelegate,
//!    PlanError, MemorySpaceError, ArenaMemoryError(+MemoryError), ExternalDataError,
//!    InputError(+ValueError), KernelError, MethodNotFound(+KeyError), StaleOutput, Busy
//! ```
//!
//! Deliberately absent: wording. A Rust error prints its own sentence; here it only finds its class.

use crate::own_space;
use arenite::exec::{ErrorKind, ExecError, LoadError};
use arenite::program::ProgramError;
use pyo3::PyTypeInfo;
use pyo3::exceptions::{
    PyBaseException, PyFileNotFoundError, PyKeyError, PyMemoryError, PyOSError, PyRuntimeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::ffi::CStr;

/// The classes, in the order that they are made: a class comes after its bases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Error,
    ProgramFormatError,
    UnsupportedProgram,
    MissingOperators,
    UnsupportedDelegate,
    PlanError,
    MemorySpaceError,
    ArenaMemoryError,
    ExternalDataError,
    InputError,
    KernelError,
    MethodNotFound,
    StaleOutput,
    Busy,
}

/// Class, qualified name, documentation, base in this table, base of Python's own.
type Row = (Class, &'static CStr, &'static CStr, Option<Class>, Option<fn(Python<'_>) -> Bound<'_, PyType>>);

/// A class of Python's own.
fn own<T: PyTypeInfo>(py: Python<'_>) -> Bound<'_, PyType> {
    py.get_type::<T>()
}

const TABLE: [Row; 14] = [
    (
        Class::Error,
        c"arenite.Error",
        c"The base of every error of this package.\n\nAttributes: kind (the class name), code (ExecuTorch's error number), method, details (dict).",
        None,
        Some(own::<PyRuntimeError>),
    ),
    (
        Class::ProgramFormatError,
        c"arenite.ProgramFormatError",
        c"A file is damaged, or is no program.",
        Some(Class::Error),
        None,
    ),
    (
        Class::UnsupportedProgram,
        c"arenite.UnsupportedProgram",
        c"A sound program asks for something that this build cannot do.",
        Some(Class::Error),
        None,
    ),
    (
        Class::MissingOperators,
        c"arenite.MissingOperators",
        c"A method calls operators that no kernel is registered for; all are named.",
        Some(Class::UnsupportedProgram),
        None,
    ),
    (
        Class::UnsupportedDelegate,
        c"arenite.UnsupportedDelegate",
        c"A method hands work to a back end that this build lacks.",
        Some(Class::UnsupportedProgram),
        None,
    ),
    (
        Class::PlanError,
        c"arenite.PlanError",
        c"A memory plan contradicts itself, or is larger than allowed.",
        Some(Class::Error),
        None,
    ),
    (
        Class::MemorySpaceError,
        c"arenite.MemorySpaceError",
        c"A plan names a memory space that is not there.",
        Some(Class::Error),
        None,
    ),
    (
        Class::ArenaMemoryError,
        c"arenite.ArenaMemoryError",
        c"A space or an arena has no room; the message carries both numbers.",
        Some(Class::Error),
        Some(own::<PyMemoryError>),
    ),
    (
        Class::ExternalDataError,
        c"arenite.ExternalDataError",
        c"Data outside the program is missing or does not fit.",
        Some(Class::Error),
        None,
    ),
    (
        Class::InputError,
        c"arenite.InputError",
        c"An input is not what the method was exported for.",
        Some(Class::Error),
        Some(own::<PyValueError>),
    ),
    (
        Class::KernelError,
        c"arenite.KernelError",
        c"An operator refused its arguments during a run.",
        Some(Class::Error),
        None,
    ),
    (
        Class::MethodNotFound,
        c"arenite.MethodNotFound",
        c"A program has no method of that name; the message lists those it has.",
        Some(Class::Error),
        Some(own::<PyKeyError>),
    ),
    (
        Class::StaleOutput,
        c"arenite.StaleOutput",
        c"A borrowed output was used after a later run of its method.",
        Some(Class::Error),
        None,
    ),
    (Class::Busy, c"arenite.Busy", c"Something is in use, or closed already.", Some(Class::Error), None),
];

static CLASSES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();

fn make(py: Python<'_>) -> PyResult<Vec<Py<PyType>>> {
    let mut made: Vec<Py<PyType>> = Vec::with_capacity(TABLE.len());
    for (class, name, doc, base, foreign) in TABLE {
        let mut bases = Vec::new();
        bases.extend(base.map(|base| made[base as usize].bind(py).clone()));
        bases.extend(foreign.map(|get| get(py)));
        let namespace = PyDict::new(py);
        if class == Class::Error {
            // `KeyError` prints the repr of its argument; a sentence must come out as it went in.
            namespace.set_item("__str__", py.get_type::<PyBaseException>().getattr("__str__")?)?;
            namespace.set_item("code", 1)?;
            namespace.set_item("method", py.None())?;
            namespace.set_item("details", PyDict::new(py))?;
        }
        let name_text = name.to_str().unwrap_or_default();
        namespace.set_item("kind", name_text.trim_start_matches("arenite."))?;
        namespace.set_item("__module__", "arenite")?;
        namespace.set_item("__doc__", doc.to_str().unwrap_or_default())?;
        let arguments = (name_text.trim_start_matches("arenite."), PyTuple::new(py, bases)?, namespace);
        made.push(py.get_type::<PyType>().call1(arguments)?.cast_into::<PyType>()?.unbind());
    }
    Ok(made)
}

fn classes(py: Python<'_>) -> PyResult<&Vec<Py<PyType>>> {
    CLASSES.get_or_try_init(py, || make(py))
}

/// Puts every class into the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for class in classes(module.py())? {
        let class = class.bind(module.py());
        module.add(class.name()?.to_str()?, class)?;
    }
    Ok(())
}

/// What an exception carries besides its text.
#[derive(Debug, Default)]
pub(crate) struct Facts<'a> {
    /// ExecuTorch's error number.
    pub(crate) code: u32,
    /// The method it happened in.
    pub(crate) method: Option<&'a str>,
    /// Names and values, as the message has them.
    pub(crate) details: Vec<(&'static str, String)>,
}

/// An exception of `class` that says `text`.
pub(crate) fn new(py: Python<'_>, class: Class, text: &str, facts: Facts<'_>) -> PyErr {
    build(py, class, text, facts).unwrap_or_else(|broken| broken)
}

fn build(py: Python<'_>, class: Class, text: &str, facts: Facts<'_>) -> PyResult<PyErr> {
    let value = classes(py)?[class as usize].bind(py).call1((text,))?;
    value.setattr("code", facts.code)?;
    value.setattr("method", facts.method)?;
    let details = PyDict::new(py);
    for (name, detail) in facts.details {
        details.set_item(name, detail)?;
    }
    value.setattr("details", details)?;
    Ok(PyErr::from_value(value))
}

/// ExecuTorch's `InvalidArgument`.
pub(crate) const INVALID_ARGUMENT: u32 = 0x12;

/// An [`Class::InputError`] about a value given to `method`: its role, as `input`, and its name or index.
pub(crate) fn input(
    py: Python<'_>,
    method: &str,
    (role, name): (&'static str, &str),
    problem: &str,
) -> PyErr {
    let details = vec![(role, name.to_owned()), ("problem", problem.to_owned())];
    let facts = Facts { code: INVALID_ARGUMENT, method: Some(method), details };
    new(py, Class::InputError, &format!("{method}, {role} {name}: {problem}"), facts)
}

/// The error of the operating system about `path`, as `open` in Python gives it.
fn io(path: &std::path::Path, source: &std::io::Error) -> PyErr {
    let arguments = |number: i32| (number, describe(source), path.display().to_string());
    match (source.raw_os_error(), source.kind()) {
        // `OSError` picks its subclass, `FileNotFoundError` among them, by number.
        (Some(number), _) => PyOSError::new_err(arguments(number)),
        (None, std::io::ErrorKind::NotFound) => PyFileNotFoundError::new_err(arguments(2)),
        (None, _) => PyOSError::new_err(format!("{}: {source}", path.display())),
    }
}

/// The operating system's words, without the number that Rust appends.
fn describe(source: &std::io::Error) -> String {
    let text = source.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

impl Class {
    const fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::ProgramFormat => Self::ProgramFormatError,
            ErrorKind::UnsupportedProgram => Self::UnsupportedProgram,
            ErrorKind::MissingOperators => Self::MissingOperators,
            ErrorKind::UnsupportedDelegate => Self::UnsupportedDelegate,
            ErrorKind::Plan => Self::PlanError,
            ErrorKind::MemorySpace => Self::MemorySpaceError,
            ErrorKind::ArenaMemory => Self::ArenaMemoryError,
            ErrorKind::ExternalData => Self::ExternalDataError,
            ErrorKind::Input => Self::InputError,
            ErrorKind::Kernel => Self::KernelError,
            ErrorKind::MethodNotFound => Self::MethodNotFound,
            _ => Self::Error,
        }
    }
}

/// A refused program as an exception.
pub(crate) fn program(py: Python<'_>, error: ProgramError) -> PyErr {
    load(py, &LoadError::from(error))
}

/// A method that could not be loaded as an exception.
pub(crate) fn load(py: Python<'_>, error: &LoadError) -> PyErr {
    if let LoadError::Program(ProgramError::Io { path, source }) = error {
        return io(path, source);
    }
    let details = match error {
        LoadError::MissingSpace { buffer, needed_bytes, space, .. } => vec![
            ("arena", buffer.to_string()),
            ("needed_bytes", needed_bytes.to_string()),
            ("space", space.to_string()),
        ],
        LoadError::Memory { owner, needed_bytes, space, .. } => vec![
            ("owner", owner.clone()),
            ("needed_bytes", needed_bytes.to_string()),
            ("space", space.to_string()),
        ],
        LoadError::MissingOperators { names, .. } => vec![("operators", names.join(", "))],
        LoadError::UnsupportedDelegate { id, .. } | LoadError::Delegate { id, .. } => {
            vec![("delegate", id.clone())]
        }
        LoadError::Program(ProgramError::MethodNotFound { name, present }) => {
            vec![("name", name.to_string()), ("present", present.join(", "))]
        }
        _ => Vec::new(),
    };
    let method = match error {
        LoadError::Program(error) => error.method(),
        other => other.method(),
    };
    let facts = Facts { code: error.code().number(), method, details };
    own_space::explain(py, new(py, Class::of(error.kind()), &error.to_string(), facts))
}

/// A run that failed as an exception.
pub(crate) fn exec(py: Python<'_>, error: &ExecError) -> PyErr {
    let details = match error {
        ExecError::InputCount { expected, got, .. } => {
            vec![("expected", expected.to_string()), ("got", got.to_string())]
        }
        ExecError::Input { index, problem, .. } => {
            vec![("input", index.to_string()), ("problem", problem.to_string())]
        }
        ExecError::Kernel { instruction, operator, state_written, .. } => vec![
            ("instruction", instruction.to_string()),
            ("operator", operator.clone()),
            ("state_written", state_written.to_string()),
        ],
        ExecError::State { name, .. } | ExecError::NoSuchState { name, .. } => vec![("state", name.clone())],
        _ => Vec::new(),
    };
    let facts = Facts { code: error.code().number(), method: Some(error.method()), details };
    own_space::explain(py, new(py, Class::of(error.kind()), &error.to_string(), facts))
}
