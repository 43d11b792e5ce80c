//! Arena sets and what they are made of, and figures over all of them.
//!
//! Deliberately absent: allocation from Python. An arena set is given to `load_method`, which takes from it.

use crate::error::{self, Class, Facts};
use crate::own_space::{OwnSpace, is_provider};
use crate::report::SetReport;
use crate::spaces;
use arenite::exec::{ArenaRow, LoadOptions, Share, SharedScratch};
use arenite::space::cuda;
use arenite::{ArenaSet as Set, ArenaSetBuilder, Meter, SpaceId};
use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyMapping, PyString};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

/// An arena set that methods keep, so that figures count it as long as anybody does.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) options: LoadOptions,
    /// Whether a caller can come back to it without keeping it: the default set, or one per remapping.
    named: bool,
}

/// The most spaces that a set is made of.
const DEVICES_MAX: usize = 64;
/// ExecuTorch's `MemoryAllocationFailed`.
pub(crate) const MEMORY_ALLOCATION_FAILED: u32 = 0x21;

static SETS: Mutex<Vec<Weak<Handle>>> = Mutex::new(Vec::new());

impl Handle {
    fn new(set: Set, share: Share, named: bool) -> Arc<Self> {
        let mut options = base().clone();
        options.arenas = set;
        options.share = share;
        options.scratch = SharedScratch::default();
        let handle = Arc::new(Self { options, named });
        let mut sets = SETS.lock();
        sets.retain(|known| known.strong_count() > 0);
        sets.push(Arc::downgrade(&handle));
        handle
    }

    /// The set of those who name none: host memory without a limit.
    pub(crate) fn default_set() -> &'static Arc<Self> {
        static DEFAULT: OnceLock<Arc<Handle>> = OnceLock::new();
        DEFAULT.get_or_init(|| Self::new(machine().build(), Share::default(), true))
    }

    /// Whether a caller can come back to it without keeping it.
    pub(crate) fn is_named(&self) -> bool {
        self.named
    }
}

/// What all sets of this process take together.
fn meter() -> &'static Meter {
    static METER: OnceLock<Meter> = OnceLock::new();
    METER.get_or_init(Meter::default)
}

/// The builder of a set with everything this machine has, counted with all others.
fn machine() -> ArenaSetBuilder {
    Set::machine().meter(meter().clone())
}

/// Built-in kernels and delegates, made once.
fn base() -> &'static LoadOptions {
    static BASE: OnceLock<LoadOptions> = OnceLock::new();
    BASE.get_or_init(LoadOptions::default)
}

/// A number of bytes that the caller gave.
pub(crate) fn size(bytes: &Bound<'_, PyAny>) -> PyResult<usize> {
    whole(bytes, "a number of bytes", usize::MAX)
}

/// A limit in bytes that the caller gave, or none.
pub(crate) fn limit(bytes: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if bytes.is_none() { Ok(None) } else { size(bytes).map(Some) }
}

/// The ordinal of a device.
fn ordinal(index: &Bound<'_, PyAny>) -> PyResult<u16> {
    whole(index, "a device index", u16::MAX)
}

/// A whole number in range.
fn whole<'py, T>(number: &Bound<'py, PyAny>, what: &str, most: T) -> PyResult<T>
where
    T: core::fmt::Display + for<'a> FromPyObject<'a, 'py>,
{
    number.extract().map_err(|_| {
        let shown = number.repr().map_or_else(|_| "?".into(), |text| text.to_string());
        let text = format!("{what} is an int from 0 to {most}, got {shown}");
        if number.is_instance_of::<PyInt>() {
            PyValueError::new_err(text)
        } else {
            PyTypeError::new_err(text)
        }
    })
}

/// Ordinary host memory.
#[pyclass(frozen, name = "Host", module = "arenite")]
pub(crate) struct Host {
    /// The most bytes to take.
    #[pyo3(get)]
    limit: Option<usize>,
}

#[pymethods]
impl Host {
    #[new]
    #[pyo3(signature = (*, limit=None))]
    fn new(#[pyo3(from_py_with = limit)] limit: Option<usize>) -> Self {
        Self { limit }
    }

    /// Its name in plans: ``host``.
    #[getter]
    fn name(&self) -> &'static str {
        "host"
    }

    fn __repr__(&self) -> String {
        format!("Host({})", limited(self.limit))
    }
}

/// Page-locked host memory.
#[pyclass(frozen, name = "Pinned", module = "arenite")]
pub(crate) struct Pinned {
    /// The most bytes to take.
    #[pyo3(get)]
    limit: Option<usize>,
}

#[pymethods]
impl Pinned {
    #[new]
    #[pyo3(signature = (*, limit=None))]
    fn new(#[pyo3(from_py_with = limit)] limit: Option<usize>) -> Self {
        Self { limit }
    }

    /// Its name in plans: ``pinned``.
    #[getter]
    fn name(&self) -> &'static str {
        "pinned"
    }

    fn __repr__(&self) -> String {
        format!("Pinned({})", limited(self.limit))
    }
}

/// Memory of one CUDA device, from the driver or from `pool`: an object with alloc(bytes, align) -> address and
/// free(address, bytes) in memory of that device.
#[pyclass(frozen, name = "Cuda", module = "arenite")]
pub(crate) struct Cuda {
    /// The ordinal of the device.
    #[pyo3(get)]
    index: u16,
    /// The most bytes to take.
    #[pyo3(get)]
    limit: Option<usize>,
    /// What hands out the memory; None for the driver.
    #[pyo3(get)]
    pool: Option<Py<PyAny>>,
}

#[pymethods]
impl Cuda {
    #[new]
    #[pyo3(signature = (index=0, limit=None, pool=None))]
    fn new(
        #[pyo3(from_py_with = ordinal)] index: u16,
        #[pyo3(from_py_with = limit)] limit: Option<usize>,
        pool: Option<Py<PyAny>>,
    ) -> Self {
        Self { index, limit, pool }
    }

    /// Its name in plans: ``cuda:0``.
    #[getter]
    fn name(&self) -> String {
        SpaceId::cuda(self.index).to_string()
    }

    fn __repr__(&self) -> String {
        let limit = limited(self.limit);
        format!("Cuda({}{}{limit})", self.index, if limit.is_empty() { "" } else { ", " })
    }
}

fn limited(limit: Option<usize>) -> String {
    limit.map(|limit| format!("limit={limit}")).unwrap_or_default()
}

/// Some bytes of a space, held ready for methods: ``Arena(Host(), 1 << 20)``.
///
/// ``Method.arenas`` gives those that a plan asks for.
#[pyclass(frozen, name = "Arena", module = "arenite")]
pub(crate) struct Arena {
    id: SpaceId,
    /// How many bytes.
    #[pyo3(get)]
    bytes: usize,
    /// The most bytes to take.
    #[pyo3(get)]
    limit: Option<usize>,
    /// The alignment of its first byte.
    #[pyo3(get)]
    align: usize,
    /// The memory id in the plan, from 1; None for one that no plan asked for.
    #[pyo3(get)]
    index: Option<usize>,
}

impl Arena {
    /// The arena of a row in a memory report.
    pub(crate) fn of_row(row: &ArenaRow) -> Self {
        Self { id: row.space, bytes: row.size_bytes, limit: None, align: 64, index: Some(row.index) }
    }
}

#[pymethods]
impl Arena {
    #[new]
    #[pyo3(signature = (space, bytes, *, limit=None, align=64))]
    fn new(
        space: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = size)] bytes: usize,
        #[pyo3(from_py_with = limit)] limit: Option<usize>,
        #[pyo3(from_py_with = size)] align: usize,
    ) -> PyResult<Self> {
        if !align.is_power_of_two() {
            return Err(PyValueError::new_err(format!("align is a power of two, got {align}")));
        }
        let (id, space_limit) = space_of(space)?;
        Ok(Self { id, bytes, limit: limit.or(space_limit), align, index: None })
    }

    /// The space, as plans spell it.
    #[getter]
    fn space(&self) -> String {
        self.id.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Arena(space={}, bytes={})", self.id, self.bytes)
    }
}

/// The space whose memory a Python object hands out, where an argument names one.
fn own_space(space: &Bound<'_, PyAny>) -> PyResult<Option<OwnSpace>> {
    if let Ok(cuda) = space.cast::<Cuda>() {
        let Some(pool) = &cuda.get().pool else { return Ok(None) };
        let id = SpaceId::cuda(cuda.get().index);
        let device = cuda::open(id).map_err(|reason| missing(space.py(), id, &reason))?;
        return OwnSpace::new(id, pool.bind(space.py()), Some(device)).map(Some);
    }
    let own =
        [space.is_instance_of::<Host>(), space.is_instance_of::<Pinned>(), space.is_instance_of::<Arena>()];
    if own.contains(&true) || !is_provider(space) {
        return Ok(None);
    }
    OwnSpace::new(SpaceId::HOST, space, None).map(Some)
}

/// The space that an argument names, and its limit.
pub(crate) fn space_of(space: &Bound<'_, PyAny>) -> PyResult<(SpaceId, Option<usize>)> {
    if let Ok(host) = space.cast::<Host>() {
        return Ok((SpaceId::HOST, host.get().limit));
    }
    if let Ok(pinned) = space.cast::<Pinned>() {
        return Ok((SpaceId::PINNED, pinned.get().limit));
    }
    if let Ok(cuda) = space.cast::<Cuda>() {
        return Ok((SpaceId::cuda(cuda.get().index), cuda.get().limit));
    }
    if let Ok(arena) = space.cast::<Arena>() {
        return Ok((arena.get().id, arena.get().limit));
    }
    if is_provider(space) {
        return Ok((SpaceId::HOST, None));
    }
    match space.extract::<String>() {
        Ok(name) => parse(&name).map(|id| (id, None)),
        Err(_) => Err(PyTypeError::new_err(format!(
            "expected Host(), Pinned(), Cuda(0), an Arena or a name, got {}",
            crate::input::type_name(space)
        ))),
    }
}

fn parse(name: &str) -> PyResult<SpaceId> {
    name.parse().map_err(|reason| PyValueError::new_err(format!("{name:?} is no memory space: {reason}")))
}

/// Where methods take their memory from: one pool of arenas per space.
///
/// Args:
///     host: Host(limit=…), an Arena that is held ready, or an object with alloc(bytes, align) -> address and
///         free(address, bytes) that hands out host memory; plain host memory unless given.
///     cuda: Cuda(index, limit=…), or a list of them; every device that is there unless given.
///     staging: "pageable" or "pinned" memory for copies to devices.
///     share: "state" lets methods of a program share named state as their file plans it; "scratch" also lends
///         what a run needs only while it runs to all methods of the set by turns; "none" nothing.
///     remap: spaces to use instead of those in plans, as {"cuda:0": "host"}.
#[pyclass(frozen, weakref, name = "ArenaSet", module = "arenite")]
pub(crate) struct ArenaSet {
    pub(crate) handle: Arc<Handle>,
}

#[pymethods]
impl ArenaSet {
    #[new]
    #[pyo3(signature = (host=None, cuda=None, staging="pageable", share="state", remap=None))]
    fn new(
        py: Python<'_>,
        host: Option<&Bound<'_, PyAny>>,
        cuda: Option<&Bound<'_, PyAny>>,
        staging: &str,
        share: &str,
        remap: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut wanted: Vec<Bound<'_, PyAny>> = host.into_iter().cloned().collect();
        if let Some(cuda) = cuda {
            match cuda.try_iter() {
                Ok(items) if !cuda.is_instance_of::<PyString>() => {
                    // One more than there can be is enough to refuse.
                    wanted.extend(items.take(DEVICES_MAX + 1).collect::<PyResult<Vec<_>>>()?);
                    if wanted.len() > DEVICES_MAX {
                        return Err(PyValueError::new_err(format!("cuda has more than {DEVICES_MAX} items")));
                    }
                }
                _ => wanted.push(cuda.clone()),
            }
        }
        let share = match share {
            "state" => Share::State,
            "scratch" => Share::Scratch,
            "none" => Share::Nothing,
            other => {
                return Err(PyValueError::new_err(format!(
                    "share is 'state', 'scratch' or 'none', got {other:?}"
                )));
            }
        };
        let mut builder = machine();
        match staging {
            "pageable" => {}
            "pinned" => {
                if let Some(reason) = spaces::absence(SpaceId::PINNED) {
                    return Err(missing(py, SpaceId::PINNED, &reason));
                }
            }
            other => {
                return Err(PyValueError::new_err(format!(
                    "staging is 'pageable' or 'pinned', got {other:?}"
                )));
            }
        }
        let mut ready = Vec::new();
        for space in &wanted {
            let (id, limit) = space_of(space)?;
            if let Some(reason) = spaces::absence(id) {
                return Err(missing(py, id, &reason));
            }
            if let Some(limit) = limit {
                builder = builder.limit(id, limit);
            }
            if let Some(own) = own_space(space)? {
                // What it hands out goes back as soon as nobody holds it.
                builder = builder.space(Arc::new(own)).keep(id, 0);
            }
            if let Ok(arena) = space.cast::<Arena>() {
                builder = builder.keep(id, arena.get().bytes.max(256 << 20));
                ready.push((id, arena.get().bytes));
            }
        }
        for (from, to) in remap.filter(|remap| !remap.is_none()).map_or(Ok(BTreeMap::new()), names)? {
            builder = builder.remap(parse(&from)?, parse(&to)?);
        }
        let set = builder.build();
        for (id, bytes) in ready {
            // Taken and given back, an arena keeps its memory for the next taker.
            set.take(id, bytes, "held ready").map_err(|failure| {
                let details = vec![("space", id.to_string()), ("needed_bytes", bytes.to_string())];
                let facts = Facts { code: MEMORY_ALLOCATION_FAILED, method: None, details };
                error::new(py, Class::ArenaMemoryError, &failure.to_string(), facts)
            })?;
        }
        Ok(Self { handle: Handle::new(set, share, false) })
    }

    /// What each space of this set holds, and who.
    fn report(&self) -> SetReport {
        SetReport(self.handle.options.arenas.report())
    }

    /// Gives idle memory back to the spaces; says how many bytes.
    fn trim(&self, py: Python<'_>) -> usize {
        py.detach(|| self.handle.options.arenas.trim())
    }

    /// Gives idle memory back and takes no more requests; loaded methods go on.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.handle.options.arenas.close());
    }

    /// The names of the spaces in this set.
    #[getter]
    fn spaces(&self) -> Vec<String> {
        self.handle.options.arenas.present().map(|id| id.to_string()).collect()
    }

    fn __enter__<'a, 'py>(slf: &'a Bound<'py, Self>) -> &'a Bound<'py, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("ArenaSet({})", self.spaces().join(", "))
    }
}

pub(crate) fn missing(py: Python<'_>, id: SpaceId, reason: &str) -> PyErr {
    let facts = Facts { code: 0x20, method: None, details: vec![("space", id.to_string())] };
    error::new(py, Class::MemorySpaceError, &format!("{id} is not there: {reason}"), facts)
}

/// A mapping of names of spaces.
fn names(remap: &Bound<'_, PyAny>) -> PyResult<BTreeMap<String, String>> {
    let wrong = || {
        let got = crate::input::type_name(remap);
        PyTypeError::new_err(format!("spaces are remapped by a mapping like {{'cuda:0': 'host'}}, got {got}"))
    };
    let items = remap.cast::<PyMapping>().map_err(|_| wrong())?.items()?;
    items.extract::<Vec<(String, String)>>().map(|items| items.into_iter().collect()).map_err(|_| wrong())
}

/// The set that an `arenas=` argument means: a set, a remapping, or nothing.
pub(crate) fn handle_of(arenas: Option<&Bound<'_, PyAny>>) -> PyResult<Arc<Handle>> {
    let Some(arenas) = arenas.filter(|arenas| !arenas.is_none()) else {
        return Ok(Arc::clone(Handle::default_set()));
    };
    if let Ok(set) = arenas.cast::<ArenaSet>() {
        return Ok(Arc::clone(&set.get().handle));
    }
    let remap = names(arenas)?;
    remapped(remap)
}

/// The set behind a remapping: the same one as long as somebody keeps it, so that methods of a program that
/// name the same remapping share their state.
fn remapped(remap: BTreeMap<String, String>) -> PyResult<Arc<Handle>> {
    type Known = (BTreeMap<String, String>, Weak<Handle>);
    static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock();
    known.retain(|(_, handle)| handle.strong_count() > 0);
    let found = known.iter().find(|(names, _)| *names == remap);
    if let Some(handle) = found.and_then(|(_, handle)| handle.upgrade()) {
        return Ok(handle);
    }
    let mut builder = machine();
    for (from, to) in &remap {
        builder = builder.remap(parse(from)?, parse(to)?);
    }
    let handle = Handle::new(builder.build(), Share::default(), true);
    known.push((remap, Arc::downgrade(&handle)));
    Ok(handle)
}

/// What all arena sets of this process hold, by space.
///
/// Returns:
///     {space: {"current_bytes", "peak_bytes", "limit", "live_arenas"}}: the peak is of all sets together, also
///     of sets that are gone; the limit is the sum of theirs, None where one has none.
#[pyfunction]
pub(crate) fn memory_stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let spaces: Vec<_> =
        live().into_iter().flat_map(|handle| handle.options.arenas.report().spaces).collect();
    let stats = PyDict::new(py);
    for id in meter().spaces() {
        let of_space = || spaces.iter().filter(|space| space.id == id);
        let sum = |a: usize, b: usize| a.saturating_add(b);
        let limit = of_space().map(|space| space.limit_bytes).reduce(|a, b| a.zip(b).map(|(a, b)| sum(a, b)));
        let usage = meter().usage(id);
        let space = PyDict::new(py);
        space.set_item("current_bytes", usage.current_bytes)?;
        space.set_item("peak_bytes", usage.peak_bytes)?;
        space.set_item("limit", limit.flatten())?;
        space.set_item("live_arenas", of_space().map(|space| space.live_arenas).sum::<usize>())?;
        stats.set_item(id.to_string(), space)?;
    }
    Ok(stats)
}

/// Starts every peak anew from what is taken now.
#[pyfunction]
pub(crate) fn reset_peak() {
    meter().reset_peak();
    for handle in live() {
        handle.options.arenas.reset_peak();
    }
}

fn live() -> Vec<Arc<Handle>> {
    let _ = Handle::default_set();
    SETS.lock().iter().filter_map(Weak::upgrade).collect()
}
