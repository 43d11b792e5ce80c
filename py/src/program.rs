//! `Program`: a file, opened and checked, whose methods can be loaded.
//!
//! Deliberately absent: memory for methods. A program holds its file; a method its arenas.

use crate::arenas::{self, Handle};
use crate::error::{self, Class, Facts};
use crate::inspect;
use crate::meta::MethodMeta;
use crate::method::Method;
use crate::report::{MemoryReport, PlanDrawing};
use crate::spaces;
use arenite::delegate::NativeCode;
use arenite::exec::{self, Loader, Replan};
use arenite::program::{MethodPlan, Program as File, ProgramOptions};
use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyDict, PyMemoryView, PySet, PyString, PyWeakrefMethods, PyWeakrefReference,
};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// The most digests that are listed.
const DIGESTS_MAX: usize = 1 << 16;
/// The most data files of a program.
const DATA_FILES_MAX: usize = 1024;

/// A program: ``load_method("forward")`` makes a method that runs.
///
/// Methods keep what they need of the file; a program may be closed or dropped while they run.
#[pyclass(frozen, weakref, name = "Program", module = "arenite")]
pub(crate) struct Program {
    opened: Mutex<Option<Opened>>,
    /// Which native code in the file may run.
    native_code: NativeCode,
}

/// What an open program holds. The lock around it is held for look-ups only, never while Python code runs.
struct Opened {
    file: Arc<File>,
    /// One loader per arena set: it holds the state that methods share.
    loaders: Vec<(Arc<Handle>, Arc<Loader>)>,
    /// Methods of the default set, while they live.
    methods: Vec<(String, Py<PyWeakrefReference>)>,
}

/// Where a program or data file comes from.
enum Source<'py> {
    Path(PathBuf),
    Bytes(Bound<'py, PyBytes>),
}

/// Opens a program.
///
/// # Errors
/// `TypeError` for what is no path, bytes or file; else as the crate says.
pub(crate) fn open(
    data: &Bound<'_, PyAny>,
    data_path: Option<&Bound<'_, PyAny>>,
    mmap: bool,
    native_code: Option<&Bound<'_, PyAny>>,
) -> PyResult<Program> {
    let py = data.py();
    let native_code = rule(native_code)?;
    let source = source(data, "data")?;
    let mut extra = Vec::new();
    if let Some(data_path) = data_path.filter(|data_path| !data_path.is_none()) {
        let single = data_path.is_instance_of::<PyString>()
            || data_path.is_instance_of::<PyBytes>()
            || data_path.hasattr("__fspath__")?
            || data_path.hasattr("read")?;
        if single {
            extra.push(self::source(data_path, "data_path")?);
        } else {
            let items = data_path.try_iter().map_err(|_| wrong_type(data_path, "data_path"))?;
            for item in items {
                if extra.len() == DATA_FILES_MAX {
                    let text = format!("data_path has more than {DATA_FILES_MAX} items");
                    return Err(PyValueError::new_err(text));
                }
                extra.push(self::source(&item?, "data_path")?);
            }
        }
    }
    let mut options = ProgramOptions::new().with_mmap(mmap);
    for source in &extra {
        options = match source {
            Source::Path(path) => options.with_data_file(path),
            Source::Bytes(bytes) => options.with_data_bytes(bytes.as_bytes()),
        };
    }
    let opened = match &source {
        Source::Path(path) => py.detach(|| File::open(path, &options)),
        Source::Bytes(bytes) => {
            let bytes = bytes.as_bytes();
            py.detach(|| File::from_bytes(bytes, &options))
        }
    };
    let file = Arc::new(opened.map_err(|failure| error::program(py, failure))?);
    let opened = Opened { file, loaders: Vec::new(), methods: Vec::new() };
    Ok(Program { opened: Mutex::new(Some(opened)), native_code })
}

/// Which native code may run: all unless told, none, or that with one of the digests listed.
fn rule(native_code: Option<&Bound<'_, PyAny>>) -> PyResult<NativeCode> {
    let wrong = |got: &str| {
        PyValueError::new_err(format!(
            "native_code is \"allow\", \"deny\" or a list of SHA-256 digests of 64 hexadecimal digits, got {got}"
        ))
    };
    let Some(native_code) = native_code.filter(|native_code| !native_code.is_none()) else {
        return Ok(NativeCode::Allowed);
    };
    if let Ok(word) = native_code.cast::<PyString>() {
        return match word.to_str()? {
            "allow" => Ok(NativeCode::Allowed),
            "deny" => Ok(NativeCode::Denied),
            other => Err(wrong(&format!("{other:?}"))),
        };
    }
    let items = native_code.try_iter().map_err(|_| wrong(&crate::input::type_name(native_code)))?;
    let mut listed = BTreeSet::new();
    // One more than there can be is enough to refuse.
    for (count, item) in items.enumerate() {
        if count == DIGESTS_MAX {
            return Err(PyValueError::new_err(format!("native_code has more than {DIGESTS_MAX} items")));
        }
        let text: String = item?.extract()?;
        listed.insert(digest(&text).ok_or_else(|| wrong(&format!("{text:?}")))?);
    }
    Ok(NativeCode::Only(listed))
}

fn digest(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(digest)
}

fn source<'py>(data: &Bound<'py, PyAny>, argument: &str) -> PyResult<Source<'py>> {
    let py = data.py();
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(Source::Bytes(bytes.clone()));
    }
    if data.is_instance_of::<PyString>() || data.hasattr("__fspath__")? {
        return Ok(Source::Path(data.extract()?));
    }
    if data.hasattr("read")? {
        let bytes = data.call_method0("read")?;
        let text =
            || PyTypeError::new_err(format!("{argument}: the file gives text; open it with mode 'rb'"));
        return bytes.cast_into::<PyBytes>().map(Source::Bytes).map_err(|_| text());
    }
    if data.is_instance_of::<PyByteArray>() || data.is_instance_of::<PyMemoryView>() {
        let copy = py.get_type::<PyBytes>().call1((data,))?;
        return Ok(Source::Bytes(copy.cast_into::<PyBytes>()?));
    }
    Err(wrong_type(data, argument))
}

fn wrong_type(data: &Bound<'_, PyAny>, argument: &str) -> PyErr {
    let got = crate::input::type_name(data);
    PyTypeError::new_err(format!("{argument}: expected a path, bytes or a binary file, got {got}"))
}

/// Which memory plan an argument asks for.
fn replan_of(replan: Option<&str>) -> PyResult<Replan> {
    match replan {
        None => Ok(Replan::File),
        Some("greedy") => Ok(Replan::Greedy),
        Some("best") => Ok(Replan::Best),
        Some(other) => {
            let text = format!("replan: expected \"best\", \"greedy\" or None, got {other:?}");
            Err(PyValueError::new_err(text))
        }
    }
}

impl Program {
    fn file(&self, py: Python<'_>) -> PyResult<Arc<File>> {
        let file = self.opened.lock().as_ref().map(|opened| Arc::clone(&opened.file));
        file.ok_or_else(|| {
            error::new(py, Class::Busy, "the program is closed", Facts { code: 2, ..Facts::default() })
        })
    }

    /// The only method, or the one named forward.
    pub(crate) fn default_method(&self, py: Python<'_>) -> PyResult<String> {
        let file = self.file(py)?;
        match file.methods() {
            [only] => Ok(only.name.to_string()),
            methods if methods.iter().any(|method| &*method.name == "forward") => Ok("forward".into()),
            methods => {
                let names: Vec<&str> = methods.iter().map(|method| &*method.name).collect();
                let text = format!("no method named; the program has {}", names.join(", "));
                Err(error::new(py, Class::MethodNotFound, &text, Facts { code: 0x12, ..Facts::default() }))
            }
        }
    }

    /// Loads a method, or gives the one that is loaded.
    pub(crate) fn load<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        arenas: Option<&Bound<'py, PyAny>>,
        replan: Option<&str>,
        graph: Option<bool>,
    ) -> PyResult<Bound<'py, Method>> {
        // NumPy's functions are looked up now: the first look-up must not happen inside a run, where a collector may
        // call back. Importing arenite alone does not import NumPy.
        numpy::dtype::<f32>(py);
        let handle = arenas::handle_of(arenas)?;
        let replan = replan_of(replan)?;
        let is_default =
            Arc::ptr_eq(&handle, Handle::default_set()) && replan == Replan::File && graph.is_none();
        if is_default && let Some(loaded) = self.cached(py, name) {
            return Ok(loaded);
        }
        let loader = self.loader(py, &handle)?;
        let mut loaded =
            py.detach(|| loader.load_with(name, replan)).map_err(|failure| error::load(py, &failure))?;
        match graph {
            Some(true) => loaded.capture().map_err(|failure| error::exec(py, &failure))?,
            Some(false) => loaded.discard_graph(),
            None => {}
        }
        let method = Bound::new(py, Method::new(loaded, loader, handle))?;
        if !is_default {
            return Ok(method);
        }
        // Another thread may have loaded it meanwhile; the first one counts.
        if let Some(loaded) = self.cached(py, name) {
            return Ok(loaded);
        }
        let weak = PyWeakrefReference::new(&method)?.unbind();
        if let Some(opened) = self.opened.lock().as_mut() {
            opened.methods.retain(|(known, _)| known != name);
            opened.methods.push((name.to_owned(), weak));
        }
        Ok(method)
    }

    fn cached<'py>(&self, py: Python<'py>, name: &str) -> Option<Bound<'py, Method>> {
        let weak = {
            let opened = self.opened.lock();
            let (_, weak) = opened.as_ref()?.methods.iter().find(|(known, _)| known == name)?;
            weak.clone_ref(py)
        };
        weak.bind(py).upgrade_as::<Method>().ok()?
    }

    fn loader(&self, py: Python<'_>, handle: &Arc<Handle>) -> PyResult<Arc<Loader>> {
        let file = self.file(py)?;
        let mut opened = self.opened.lock();
        let loaders = &mut opened
            .get_or_insert_with(|| Opened {
                file: Arc::clone(&file),
                loaders: Vec::new(),
                methods: Vec::new(),
            })
            .loaders;
        if let Some((_, loader)) = loaders.iter().find(|(known, _)| Arc::ptr_eq(known, handle)) {
            return Ok(Arc::clone(loader));
        }
        // A set that only this list still knows, and that no method uses, is of no use to anybody.
        let used = |(handle, loader): &(Arc<Handle>, Arc<Loader>)| {
            handle.is_named() || Arc::strong_count(handle) > 1 || Arc::strong_count(loader) > 1
        };
        loaders.retain(used);
        let mut options = handle.options.clone();
        if self.native_code != NativeCode::Allowed {
            let delegates = (*options.delegates).clone();
            options.delegates = Arc::new(delegates.with_native_code(self.native_code.clone()));
        }
        let loader = Arc::new(Loader::new(file, options));
        loaders.push((Arc::clone(handle), Arc::clone(&loader)));
        Ok(loader)
    }
}

fn names(file: &File, name: Option<&str>, py: Python<'_>) -> PyResult<Vec<usize>> {
    let Some(name) = name else { return Ok((0..file.methods().len()).collect()) };
    position(file, name, py).map(|index| vec![index])
}

fn position(file: &File, name: &str, py: Python<'_>) -> PyResult<usize> {
    match file.methods().iter().position(|method| &*method.name == name) {
        Some(index) => Ok(index),
        None => match file.method(name) {
            Err(failure) => Err(error::program(py, failure)),
            Ok(_) => Ok(0),
        },
    }
}

#[pymethods]
impl Program {
    /// The names of the methods.
    #[getter]
    fn method_names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PySet>> {
        let file = self.file(py)?;
        PySet::new(py, file.methods().iter().map(|method| &*method.name))
    }

    /// Loads a method: checks its plan, and takes its memory from an arena set.
    ///
    /// The same object is given as long as it lives, unless ``arenas`` names a set, ``replan`` a plan, or ``graph`` is
    /// not None.
    ///
    /// Args:
    ///     name: the method.
    ///     arenas: an ArenaSet, or spaces to use instead of those in the plan, as {"cuda:0": "host"}.
    ///
    ///     replan: None for the memory plan of the file, "greedy" for a new one in no time, "best" for the best that
    ///         two seconds find; memory_report() then shows the new plan, the file's and the lower bound.
    ///     graph: whether a device's work is recorded and then launched as one, which takes less time: None after
    ///         eight runs, where it can be; True after two, or raises; False never. See Method.capture().
    ///
    /// Raises:
    ///     MethodNotFound, MissingOperators, UnsupportedDelegate, MemorySpaceError, ArenaMemoryError,
    ///     PlanError, ExternalDataError, and KernelError for graph=True. Nothing is held then.
    #[pyo3(signature = (name, *, arenas=None, replan=None, graph=None))]
    fn load_method<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        arenas: Option<&Bound<'py, PyAny>>,
        replan: Option<&str>,
        graph: Option<bool>,
    ) -> PyResult<Bound<'py, Method>> {
        self.load(py, name, arenas, replan, graph)
    }

    /// What the file says of a method; no memory is claimed.
    fn metadata(&self, name: &str, py: Python<'_>) -> PyResult<MethodMeta> {
        let file = self.file(py)?;
        let index = position(&file, name, py)?;
        Ok(MethodMeta::new(file, index))
    }

    /// What a method, or every method, would hold; no memory is claimed.
    #[pyo3(signature = (name=None))]
    fn memory_report(&self, py: Python<'_>, name: Option<&str>) -> PyResult<MemoryReport> {
        let file = self.file(py)?;
        let options = &Handle::default_set().options;
        let mut reports = Vec::new();
        for index in names(&file, name, py)? {
            let report = exec::MemoryReport::of_plan(&file, &file.methods()[index].name, options);
            reports.push(report.map_err(|failure| error::load(py, &failure))?);
        }
        Ok(match name {
            Some(_) => MemoryReport::new(reports.remove(0)),
            None => MemoryReport::of_program(reports),
        })
    }

    /// The memory plan of a method, to be drawn: the file's own, or a new one. No memory is claimed.
    ///
    /// Args:
    ///     replan: "best" or "greedy" for a plan made anew; None for that of the file.
    ///
    /// Raises:
    ///     PlanError: where what is alive when depends on the run (control flow).
    #[pyo3(signature = (name, *, replan=None))]
    fn draw_plan(&self, py: Python<'_>, name: &str, replan: Option<&str>) -> PyResult<PlanDrawing> {
        let file = self.file(py)?;
        let replan = replan_of(replan)?;
        let options = &Handle::default_set().options;
        let drawn = py.detach(|| exec::PlanPicture::of(&file, name, options, replan));
        drawn.map(PlanDrawing::new).map_err(|failure| error::load(py, &failure))
    }

    /// What a method, or any method, needs and this machine lacks; falsy where nothing.
    #[pyo3(signature = (name=None))]
    fn missing(&self, py: Python<'_>, name: Option<&str>) -> PyResult<Missing> {
        let file = self.file(py)?;
        let mut missing = Missing::default();
        for index in names(&file, name, py)? {
            missing.add(&file.methods()[index]);
        }
        Ok(missing)
    }

    /// Every fact of the file as a dict; `arenite inspect --json` prints it.
    #[pyo3(signature = (name=None, *, tensors=false))]
    fn inspect<'py>(
        &self,
        py: Python<'py>,
        name: Option<&str>,
        tensors: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let file = self.file(py)?;
        let indices = names(&file, name, py)?;
        let facts = inspect::program(py, &file, &indices, tensors)?;
        facts.set_item("missing", self.missing(py, name)?.to_dict(py)?)?;
        Ok(facts)
    }

    /// Gives the file up. Loaded methods go on.
    fn close(&self) {
        let opened = self.opened.lock().take();
        drop(opened);
    }

    fn __enter__<'a, 'py>(slf: &'a Bound<'py, Self>) -> &'a Bound<'py, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyAny>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        match &*self.opened.lock() {
            Some(opened) => format!("Program({})", opened.file.label()),
            None => "Program(closed)".into(),
        }
    }
}

/// What a program needs and this machine lacks: falsy where nothing.
#[pyclass(frozen, name = "Missing", module = "arenite", get_all)]
#[derive(Default)]
pub(crate) struct Missing {
    /// Operators without a kernel.
    operators: Vec<String>,
    /// Delegates that are not registered or cannot run here.
    delegates: Vec<String>,
    /// Memory spaces that are not there.
    spaces: Vec<String>,
    /// Keys of data files that were not given.
    data: Vec<String>,
}

impl Missing {
    fn add(&mut self, plan: &MethodPlan) {
        let options = &Handle::default_set().options;
        let add = |list: &mut Vec<String>, name: &str| {
            if !list.iter().any(|known| known == name) {
                list.push(name.to_owned());
            }
        };
        for name in plan.operator_names() {
            if options.kernels.get(name).is_none() {
                add(&mut self.operators, name);
            }
        }
        for delegate in &plan.delegates {
            let known = options.delegates.get(&delegate.id);
            if known.is_none_or(|known| known.absence().is_some()) {
                add(&mut self.delegates, &delegate.id);
            }
        }
        for (_, buffer) in plan.planned_buffers() {
            if spaces::absence(buffer.space).is_some() {
                add(&mut self.spaces, &buffer.space.to_string());
            }
        }
        for key in plan.missing_data() {
            add(&mut self.data, key);
        }
    }
}

#[pymethods]
impl Missing {
    fn __bool__(&self) -> bool {
        [&self.operators, &self.delegates, &self.spaces, &self.data].iter().any(|list| !list.is_empty())
    }

    /// The four lists by name.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("operators", &self.operators)?;
        dict.set_item("delegates", &self.delegates)?;
        dict.set_item("spaces", &self.spaces)?;
        dict.set_item("data", &self.data)?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        format!(
            "Missing(operators={:?}, delegates={:?}, spaces={:?}, data={:?})",
            self.operators, self.delegates, self.spaces, self.data
        )
    }
}
