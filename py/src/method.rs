//! `Method`: runs, state, report.
//!
//! ```text
//!   execute: take inputs ─► lock ─► run without the interpreter ─► copy outputs out ─► unlock ─► list
//! ```
//!
//! Nobody waits for a method while holding the interpreter: the lock is tried, and waited for detached. No
//! Python code runs while a method is locked, so a finaliser cannot come back to it.
//!
//! Deliberately absent: checks of inputs, which the executor makes before it touches memory.

use crate::error::{self, Class, Facts};
use crate::input::{Args, Expectation, type_name};
use crate::memory::Memory;
use crate::meta::MethodMeta;
use crate::ndarray;
use crate::output::{self, Made};
use crate::report::MemoryReport;
use crate::state::State;
use arenite::exec;
use arenite::program::MethodPlan;
use arenite::value::Value;
use numpy::PyUntypedArray;
use parking_lot::{Mutex, MutexGuard};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyList, PyTuple};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A loaded method. Runs queue; methods with arenas of their own run at the same time.
#[pyclass(frozen, weakref, name = "Method", module = "arenite")]
pub(crate) struct Method {
    inner: Mutex<exec::Method>,
    program: Arc<arenite::program::Program>,
    name: String,
    /// Which inputs are tensors.
    tensors: Box<[bool]>,
    /// How many runs began; outputs that were borrowed remember theirs.
    runs: AtomicU64,
}

/// Lets a value that is used on this thread alone into a closure that runs without the interpreter.
struct OneThread<T>(T);

// SAFETY: `Python::detach` calls its closure on the calling thread and returns there; nothing crosses threads.
unsafe impl<T> Send for OneThread<T> {}

impl<T> OneThread<T> {
    /// The value. A method, so that a closure captures the whole wrapper.
    fn take(self) -> T {
        self.0
    }
}

impl Method {
    /// Wraps a loaded method.
    pub(crate) fn new(method: exec::Method) -> Self {
        let plan = method.plan();
        let tensors = plan.inputs.iter().map(|&id| matches!(plan.value(id), Value::Tensor(_))).collect();
        Self {
            program: Arc::clone(method.program()),
            name: method.name().to_owned(),
            tensors,
            inner: Mutex::new(method),
            runs: AtomicU64::new(0),
        }
    }

    /// What the program says about this method.
    pub(crate) fn plan(&self) -> PyResult<&MethodPlan> {
        self.program.method(&self.name).map_err(crate::error::program)
    }

    /// Waits for the method, without the interpreter where somebody else has it.
    fn lock<'a>(&'a self, py: Python<'_>) -> MutexGuard<'a, exec::Method> {
        self.inner.lock_py_attached(py)
    }

    fn failed(&self, failure: &exec::ExecError) -> PyErr {
        error::exec(failure)
    }

    /// A copy of a state, row-major.
    pub(crate) fn copy_state(&self, py: Python<'_>, name: &str) -> PyResult<Memory> {
        let method = self.lock(py);
        let tensor = method.read_state(name).map_err(error::exec)?;
        output::copy_tensor(tensor)
    }

    /// A copy of an output, if no run began since.
    pub(crate) fn copy_output(&self, py: Python<'_>, index: usize, run: u64) -> PyResult<Memory> {
        let method = self.lock(py);
        if self.runs.load(Ordering::Relaxed) != run {
            let text = format!(
                "{}, output {index}: borrowed from run {run}, and run {} took its place. Copy it before, \
                 or run without borrow_outputs",
                self.name,
                self.runs.load(Ordering::Relaxed)
            );
            drop(method);
            let facts = Facts { code: 2, method: Some(&self.name), details: Vec::new() };
            return Err(error::new(py, Class::StaleOutput, &text, facts));
        }
        todo!()
    }
}
