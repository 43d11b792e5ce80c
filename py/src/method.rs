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

use crate::arenas::{Arena, Handle};
use crate::dlpack::Foreign;
use crate::error::{self, Class, Facts};
use crate::input::{Args, Expectation, Seen};
use crate::memory::Memory;
use crate::meta::{MethodMeta, spell};
use crate::output::{self, Made};
use crate::preallocated::Targets;
use crate::report::MemoryReport;
use crate::state::State;
use crate::tensor::Tensor;
use arenite::SpaceId;
use arenite::delegate::StateSpec;
use arenite::exec::{self, Input, Loader, Output};
use arenite::program::{MethodPlan, Program, Storage};
use arenite::space::Mark;
use arenite::tensor::Dims;
use arenite::value::Value;
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyList, PyTuple};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A loaded method: ``execute(inputs)`` runs it, ``method(x, y)`` is shorter.
///
/// Runs of one method queue; methods with arenas of their own run at the same time.
#[pyclass(frozen, weakref, name = "Method", module = "arenite")]
pub(crate) struct Method {
    inner: Mutex<exec::Method>,
    program: Arc<Program>,
    index: usize,
    /// Which inputs are tensors.
    tensors: Box<[bool]>,
    /// The method's own stream on each device.
    streams: Vec<(SpaceId, usize)>,
    /// Tensors of other frameworks that device work left behind may still read.
    held: Mutex<Vec<Held>>,
    /// Keeps the state that methods share, and the arena set for figures.
    _keep: (Arc<Loader>, Arc<Handle>),
    /// How many runs began; borrowed outputs remember theirs.
    runs: AtomicU64,
}

/// Tensors to be kept until a mark is done.
type Held = (Arc<dyn Mark>, Vec<Foreign>);

/// Between what a run goes on.
#[derive(Clone, Copy)]
enum Ends {
    /// Inputs and outputs pass through host memory.
    Host,
    /// They stay on the device, on the method's own stream, which is waited for.
    Own,
    /// They stay on the device, on a stream of the caller's or PyTorch's.
    Stream(usize),
}

/// Lets a value that stays on this thread into a closure that runs without the interpreter.
struct OneThread<T>(T);

// SAFETY: `Python::detach` calls its closure on the calling thread and returns there; nothing crosses threads.
unsafe impl<T> Send for OneThread<T> {}

impl<T> OneThread<T> {
    /// The value. A method, so that a closure captures the whole wrapper.
    fn take(self) -> T {
        self.0
    }
}

/// What a run gives.
enum Wanted<'a, 'py> {
    /// Copies, for NumPy or PyTorch.
    Owned,
    /// Views, good until the next run.
    Borrowed(&'a Bound<'py, Method>),
    /// Copies into arrays of the caller.
    Into(Targets<'py>),
}

impl Method {
    /// Wraps a loaded method.
    pub(crate) fn new(mut method: exec::Method, loader: Arc<Loader>, handle: Arc<Handle>) -> Self {
        let present: Vec<SpaceId> =
            method.options().arenas.present().filter(|space| !space.is_host()).collect();
        let streams = present.into_iter().filter_map(|space| Some((space, method.stream(space)?))).collect();
        let (program, plan) = (method.program(), method.plan());
        let index = program.methods().iter().position(|known| core::ptr::eq(known, plan)).unwrap_or(0);
        let tensors = plan.inputs.iter().map(|&id| matches!(plan.value(id), Value::Tensor(_))).collect();
        Self {
            program: Arc::clone(program),
            index,
            tensors,
            streams,
            held: Mutex::default(),
            _keep: (loader, handle),
            inner: Mutex::new(method),
            runs: AtomicU64::new(0),
        }
    }

    fn plan(&self) -> &MethodPlan {
        &self.program.methods()[self.index]
    }

    /// Runs `action` on the method, alone and without the interpreter lock being waited for.
    fn locked<R>(&self, py: Python<'_>, action: impl FnOnce(&mut exec::Method) -> R) -> R {
        action(&mut self.inner.lock_py_attached(py))
    }

    /// The names, kinds and sizes of all state.
    pub(crate) fn state_specs(&self, py: Python<'_>) -> Vec<StateSpec> {
        self.locked(py, |method| method.state().collect())
    }

    /// A copy of a state of `size_bytes` bytes, row-major.
    pub(crate) fn copy_state(&self, py: Python<'_>, name: &str, size_bytes: usize) -> PyResult<Memory> {
        self.locked(py, |method| Memory::filled(size_bytes, |bytes| method.read_state(name, bytes)))
            .map_err(|failure| error::exec(py, &failure))
    }

    /// Makes a state what `value` holds.
    pub(crate) fn write_state(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let expected = StateTarget { method: &self.plan().name, name };
        let args = Args::collect(PyTuple::new(py, [value])?.as_any(), &expected)?;
        let done = args.with(|inputs| match inputs {
            [Input::Tensor(tensor)] => Some(self.locked(py, |method| method.write_state(name, tensor))),
            _ => None,
        })?;
        let Some(done) = done else {
            let problem = format!("expected a tensor, got {}", value.repr()?);
            return Err(error::input(py, &self.plan().name, ("state", name), &problem));
        };
        done.map_err(|failure| error::exec(py, &failure))
    }

    /// A copy of an output of run `run`, if no run began since.
    pub(crate) fn copy_output(
        &self,
        py: Python<'_>,
        (index, run): (usize, u64),
        size_bytes: usize,
    ) -> PyResult<Memory> {
        let copy = self.locked(py, |method| {
            let now = self.runs.load(Ordering::Relaxed);
            if now != run {
                return Err(now);
            }
            Ok(Memory::filled(size_bytes, |bytes| method.outputs().copy_to(index, bytes)))
        });
        match copy {
            Ok(copy) => copy.map_err(|failure| error::exec(py, &failure)),
            Err(now) => {
                let name = &self.plan().name;
                let text = format!(
                    "{name}, output {index}: borrowed from run {run}, and run {now} took its place. Copy it \
                     before the next run, or run without borrow_outputs"
                );
                let facts = Facts { code: 2, method: Some(name), details: Vec::new() };
                Err(error::new(py, Class::StaleOutput, &text, facts))
            }
        }
    }

    /// Where device work goes: to the stream that was named, or PyTorch's current one where that serves.
    fn ends_of(py: Python<'_>, seen: Seen, named: Option<usize>) -> PyResult<Ends> {
        match (named, seen.torch_stream) {
            (Some(stream), _) => Ok(Ends::Stream(stream)),
            (None, Some(stream)) if !seen.foreign => Ok(Ends::Stream(stream)),
            (None, Some(_)) => {
                // Tensors of two frameworks: nobody orders PyTorch's for the method's own stream.
                py.import("torch")?
                    .getattr("cuda")?
                    .call_method0("current_stream")?
                    .call_method0("synchronize")?;
                Ok(Ends::Own)
            }
            (None, None) => Ok(if seen.device { Ends::Own } else { Ends::Host }),
        }
    }

    /// Keeps what device work may still read, and lets go of what it is done with.
    fn hold(&self, mark: Arc<dyn Mark>, foreign: Vec<Foreign>) {
        const HELD_MAX: usize = 64;
        let mut held = self.held.lock();
        let mut done: Vec<_> = Vec::new();
        if held.len() >= HELD_MAX {
            // A failure shows at the next run.
            drop(held[0].0.synchronize());
        }
        while held.first().is_some_and(|(mark, _)| mark.is_done().unwrap_or(true)) {
            done.push(held.remove(0));
        }
        held.push((mark, foreign));
        drop(held);
        // Deleters of other frameworks run without the lock.
        drop(done);
    }

    fn run<'py>(
        &self,
        py: Python<'py>,
        args: Args<'py>,
        wanted: &Wanted<'_, 'py>,
        named: Option<usize>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let seen = args.seen;
        let ends = Self::ends_of(py, seen, named)?;
        let stream = match ends {
            Ends::Host => None,
            Ends::Own => self.streams.first().map(|(_, own)| *own),
            Ends::Stream(stream) => Some(stream),
        };
        if let Some(stream) = stream {
            // SAFETY: a live stream: the caller's by the terms of `stream=`, PyTorch's, or the method's.
            unsafe { args.order(stream) }.map_err(|failure| {
                error::new(py, Class::MemorySpaceError, &failure.to_string(), Facts::default())
            })?;
        }
        let mut left = None;
        let made = args.with(|inputs| {
            if let Wanted::Into(targets) = wanted {
                targets.check_apart(py, self.plan(), inputs)?;
            }
            let mut method = self.inner.lock_py_attached(py);
            // From here on what earlier runs lent is stale, also where this one fails.
            let run = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
            let work = OneThread((&mut *method, inputs));
            let done = py.detach(move || {
                let (method, inputs) = work.take();
                let stream = match ends {
                    Ends::Host => return OneThread(method.execute(inputs)),
                    Ends::Own => None,
                    Ends::Stream(stream) => Some(stream),
                };
                // SAFETY: a live stream, as above; device inputs are ordered for it, and kept below where their
                // memory does not come back in its order.
                OneThread(unsafe { method.execute_on(stream, inputs) })
            });
            let mut outputs = done.take().map_err(|failure| error::exec(py, &failure))?;
            if let Wanted::Into(targets) = wanted {
                targets.check_sizes(py, &outputs)?;
            }
            let made = |index| match wanted {
                Wanted::Owned if !matches!(ends, Ends::Host) => {
                    output::take(py, &mut outputs, index, seen.torch)
                }
                Wanted::Owned => output::collect(py, &mut outputs, index, seen.torch),
                Wanted::Borrowed(own) => self.borrow(own, &mut outputs, (index, run)),
                Wanted::Into(targets) => targets.fill(py, &mut outputs, index),
            };
            let made = (0..self.plan().outputs.len()).map(made).collect::<PyResult<Vec<Made<'py>>>>();
            left = outputs.mark();
            made
        })??;
        if let Some(mark) = left.filter(|_| seen.foreign) {
            self.hold(mark, args.into_foreign());
        }
        made.into_iter().map(|made| output::finish(py, made)).collect()
    }

    /// A view of an output. Scalars come as they are, and what has no place in an arena is copied: it may lie
    /// in memory that the caller lent for this run.
    fn borrow<'py>(
        &self,
        own: &Bound<'py, Self>,
        outputs: &mut exec::Outputs<'_>,
        (index, run): (usize, u64),
    ) -> PyResult<Made<'py>> {
        let plan = self.plan();
        let spec = plan.outputs.get(index).and_then(|&id| plan.tensor(id));
        match outputs.get(index) {
            Output::Tensor(tensor) if spec.is_some_and(|spec| spec.storage != Storage::Supplied) => {
                let sizes = Dims::new(tensor.sizes()).unwrap_or_else(Dims::empty);
                let method = own.clone().unbind();
                Ok(Made::Own(Tensor::borrowed(method, (index, run), tensor.dtype(), sizes, tensor.space())))
            }
            _ => output::collect(own.py(), outputs, index, false),
        }
    }
}

/// A call of a method, and the stream that the caller named.
struct Call<'a> {
    method: &'a Method,
    stream: Option<usize>,
}

impl Expectation for Call<'_> {
    fn method(&self) -> &str {
        &self.method.plan().name
    }

    fn is_tensor(&self, index: usize) -> bool {
        self.method.tensors.get(index).copied().unwrap_or(false)
    }

    fn stream(&self, space: SpaceId) -> Option<usize> {
        let own = || self.method.streams.iter().find(|(known, _)| *known == space).map(|(_, stream)| *stream);
        self.stream.or_else(own)
    }

    fn names_stream(&self) -> bool {
        self.stream.is_some()
    }

    fn describe(&self, index: usize) -> String {
        let plan = self.method.plan();
        plan.inputs.get(index).map_or_else(
            || format!("no more than {} inputs", plan.inputs.len()),
            |&id| spell(&plan.describe(id)),
        )
    }

    fn len(&self) -> usize {
        self.method.tensors.len()
    }
}

/// A state that is assigned to: one tensor.
struct StateTarget<'a> {
    method: &'a str,
    name: &'a str,
}

impl Expectation for StateTarget<'_> {
    fn method(&self) -> &str {
        self.method
    }

    fn is_tensor(&self, _index: usize) -> bool {
        true
    }

    fn describe(&self, _index: usize) -> String {
        format!("a tensor for state {}", self.name)
    }

    fn place(&self, _index: usize) -> (&'static str, String) {
        ("state", self.name.to_owned())
    }

    fn len(&self) -> usize {
        1
    }
}

/// The driver's handle of a stream: an int, or what PyTorch, CuPy or the CUDA stream protocol give.
fn handle_of_stream(stream: &Bound<'_, PyAny>) -> PyResult<usize> {
    if let Ok(protocol) = stream.getattr("__cuda_stream__") {
        return protocol.call0()?.extract::<(i64, usize)>().map(|(_, handle)| handle);
    }
    for name in ["cuda_stream", "ptr"] {
        if let Ok(handle) = stream.getattr(name) {
            return handle.extract();
        }
    }
    stream.extract()
}

#[pymethods]
impl Method {
    /// Runs the method on a list of inputs and gives the list of outputs.
    ///
    /// Args:
    ///     inputs: NumPy arrays of any layout, tensors with ``__dlpack__``, bool, int, float, str, None.
    ///     out: one writable, C-contiguous array per output (or None) that is filled and given back.
    ///     stream: the CUDA stream that device work goes to: a handle, or a stream of PyTorch or CuPy. Where inputs
    ///         and outputs stay on the device, nothing is waited for. Unless given, tensors of PyTorch are
    ///         used on its current stream, as by its own operators; others are waited for.
    ///     borrow_outputs: give views that cost no copy; using one after the next run raises StaleOutput.
    ///
    /// Raises:
    ///     InputError: before anything is touched.
    ///     KernelError: while running; state may be written then, and the message says so.
    #[pyo3(signature = (inputs, *, out=None, stream=None, borrow_outputs=false))]
    fn execute<'py>(
        slf: &Bound<'py, Self>,
        inputs: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        stream: Option<&Bound<'py, PyAny>>,
        borrow_outputs: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let (py, own) = (slf.py(), slf.get());
        let stream = stream.filter(|stream| !stream.is_none()).map(handle_of_stream).transpose()?;
        let args = Args::collect(inputs, &Call { method: own, stream })?;
        let wanted = match out {
            Some(_) if borrow_outputs => {
                return Err(PyValueError::new_err("out= and borrow_outputs=True ask for different outputs"));
            }
            Some(out) => Wanted::Into(Targets::new(out, own.plan())?),
            None if borrow_outputs => Wanted::Borrowed(slf),
            None => Wanted::Owned,
        };
        PyList::new(py, own.run(py, args, &wanted, stream)?)
    }

    /// Runs the method; one output is given bare, several as a tuple, none as None.
    #[pyo3(signature = (*inputs))]
    fn __call__<'py>(&self, py: Python<'py>, inputs: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let args = Args::collect(inputs.as_any(), &Call { method: self, stream: None })?;
        let mut outputs = self.run(py, args, &Wanted::Owned, None)?;
        match outputs.len() {
            0 => Ok(py.None().into_bound(py)),
            1 => Ok(outputs.remove(0)),
            _ => Ok(PyTuple::new(py, outputs)?.into_any()),
        }
    }

    /// What the file says of this method.
    #[getter]
    fn metadata(&self) -> MethodMeta {
        MethodMeta::new(Arc::clone(&self.program), self.index)
    }

    /// The name.
    #[getter]
    pub(crate) fn name(&self) -> &str {
        &self.plan().name
    }

    /// The named mutable buffers: a mapping that reads and writes.
    #[getter]
    fn state(slf: &Bound<'_, Self>) -> State {
        State::of(slf.clone().unbind())
    }

    /// Makes all state what it was when the method was loaded.
    fn reset_state(&self, py: Python<'_>) -> PyResult<()> {
        self.locked(py, exec::Method::reset_state).map_err(|failure| error::exec(py, &failure))
    }

    /// Wants the device work recorded as a graph: two more runs are as always, the next one records, and later
    /// ones launch the record, for inputs of the same sizes. Inputs and outputs are as always. Without
    /// it, runs between host memory are recorded by themselves after eight runs, where they can be.
    ///
    /// Raises:
    ///     KernelError: where the method cannot be recorded; the message says why.
    fn capture(&self, py: Python<'_>) -> PyResult<()> {
        self.locked(py, exec::Method::capture).map_err(|failure| error::exec(py, &failure))
    }

    /// Whether runs launch a recorded graph.
    #[getter]
    fn is_captured(&self, py: Python<'_>) -> bool {
        self.locked(py, |method| method.is_captured())
    }

    /// Forgets the recorded graph; runs are as always again.
    fn discard_graph(&self, py: Python<'_>) {
        self.locked(py, exec::Method::discard_graph);
    }

    /// Where this method's bytes are.
    fn memory_report(&self, py: Python<'_>) -> MemoryReport {
        MemoryReport::new(self.locked(py, |method| method.memory_report()))
    }

    /// The arenas that the plan asks for, by memory id.
    #[getter]
    fn arenas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.locked(py, |method| method.memory_report()).arenas.iter().map(Arena::of_row))
    }

    fn __repr__(&self) -> String {
        format!("Method({}, {})", self.plan().name, self.program.label())
    }
}
