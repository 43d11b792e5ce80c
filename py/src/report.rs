//! Reports as Python objects: text for `print`, dicts for programs, HTML for notebooks.
//!
//! Deliberately absent: figures of their own; a report is taken from the crate as it is.

use arenite::ArenaSetReport;
use arenite::exec::{self, PlanPicture};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Where the bytes of one method, or of all methods of a program, are.
#[pyclass(frozen, name = "MemoryReport", module = "arenite")]
pub(crate) struct MemoryReport {
    methods: Vec<exec::MemoryReport>,
    /// Whether it is about a whole program.
    whole: bool,
}

impl MemoryReport {
    /// About one method.
    pub(crate) fn new(report: exec::MemoryReport) -> Self {
        Self { methods: vec![report], whole: false }
    }

    /// About every method of a program.
    pub(crate) fn of_program(methods: Vec<exec::MemoryReport>) -> Self {
        Self { methods, whole: true }
    }
}

#[pymethods]
impl MemoryReport {
    fn __str__(&self) -> String {
        self.methods.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n")
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.methods.iter().map(|report| &*report.method).collect();
        format!("MemoryReport({})", names.join(", "))
    }

    fn _repr_html_(&self) -> String {
        format!("<pre>{}</pre>", escape(&self.__str__()))
    }

    /// The figures: one dict, or for a whole program a dict of them by method.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if let ([report], false) = (&*self.methods, self.whole) {
            return method_dict(py, report);
        }
        let all = PyDict::new(py);
        for report in &self.methods {
            all.set_item(&report.method, method_dict(py, report)?)?;
        }
        Ok(all)
    }
}

fn method_dict<'py>(py: Python<'py>, report: &exec::MemoryReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("method", &report.method)?;
    dict.set_item("file", &report.file)?;
    let arenas = PyList::empty(py);
    for row in &report.arenas {
        let arena = PyDict::new(py);
        arena.set_item("index", row.index)?;
        arena.set_item("space", row.space.to_string())?;
        arena.set_item("bytes", row.size_bytes)?;
        arena.set_item("used_by", &row.used_by)?;
        arena.set_item("shared_with", &row.shared_with)?;
        arenas.append(arena)?;
    }
    dict.set_item("arenas", arenas)?;
    dict.set_item("constants_bytes", report.constants_bytes)?;
    dict.set_item("staging_bytes", report.staging_bytes)?;
    let state = PyList::empty(py);
    for (name, space, size_bytes) in &report.state {
        let entry = PyDict::new(py);
        entry.set_item("name", name)?;
        entry.set_item("space", space.to_string())?;
        entry.set_item("bytes", size_bytes)?;
        state.append(entry)?;
    }
    dict.set_item("state", state)?;
    let spaces = PyDict::new(py);
    for row in &report.spaces {
        let space = PyDict::new(py);
        space.set_item("planned_bytes", row.planned_bytes)?;
        space.set_item("peak_bytes", row.peak_bytes)?;
        space.set_item("lower_bound_bytes", row.lower_bound_bytes)?;
        space.set_item("file_bytes", row.file_bytes)?;
        spaces.set_item(row.space.to_string(), space)?;
    }
    dict.set_item("spaces", spaces)?;
    let needs = PyDict::new(py);
    for need in &report.needs {
        let space = need.space.to_string();
        let stages = match needs.get_item(&space)? {
            Some(stages) => stages.cast_into::<PyDict>()?,
            None => PyDict::new(py),
        };
        stages.set_item(need.stage.to_string(), need.size_bytes)?;
        needs.set_item(space, stages)?;
    }
    dict.set_item("needs", needs)?;
    Ok(dict)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What every space of an arena set holds, and who.
#[pyclass(frozen, name = "ArenaSetReport", module = "arenite")]
pub(crate) struct SetReport(pub(crate) ArenaSetReport);

#[pymethods]
impl SetReport {
    fn __str__(&self) -> String {
        self.0.to_string().trim_end().to_owned()
    }

    fn __repr__(&self) -> String {
        format!("ArenaSetReport({} spaces)", self.0.spaces.len())
    }

    fn _repr_html_(&self) -> String {
        format!("<pre>{}</pre>", escape(&self.__str__()))
    }

    /// The figures by space.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for report in &self.0.spaces {
            let space = PyDict::new(py);
            space.set_item("current_bytes", report.current_bytes)?;
            space.set_item("peak_bytes", report.peak_bytes)?;
            space.set_item("idle_bytes", report.idle_bytes)?;
            space.set_item("limit", report.limit_bytes)?;
            space.set_item("live_arenas", report.live_arenas)?;
            let owners = PyDict::new(py);
            for owner in &report.owners {
                owners.set_item(&owner.owner, owner.bytes)?;
            }
            space.set_item("owners", owners)?;
            dict.set_item(report.id.to_string(), space)?;
        }
        Ok(dict)
    }
}

/// A memory plan as a picture: instructions across, bytes up, a panel an arena.
#[pyclass(frozen, name = "PlanDrawing", module = "arenite")]
pub(crate) struct PlanDrawing(PlanPicture);

impl PlanDrawing {
    pub(crate) fn new(picture: PlanPicture) -> Self {
        Self(picture)
    }
}

#[pymethods]
impl PlanDrawing {
    /// A picture that stands alone; what a box is shows where the pointer rests.
    fn to_svg(&self) -> String {
        self.0.to_svg()
    }

    /// The picture in letters: `#` more than half in use, `+` some, `!` where two live buffers share bytes.
    #[pyo3(signature = (columns=78, rows=16))]
    fn to_text(&self, columns: usize, rows: usize) -> String {
        self.0.to_text(columns, rows)
    }

    /// Per arena that holds anything: what it is, its bytes, and the most bytes alive in it at once.
    #[getter]
    fn arenas(&self) -> Vec<(String, u64, u64)> {
        self.0.panels().map(|(name, size, most)| (name.to_owned(), size, most)).collect()
    }

    fn _repr_html_(&self) -> String {
        self.to_svg()
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.0.panels().map(|panel| panel.0).collect();
        format!("PlanDrawing({})", names.join("; "))
    }
}
