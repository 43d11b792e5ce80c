#![expect(clippy::doc_markdown, reason = "documentation of classes and methods is read in Python")]
#![expect(clippy::unused_self, reason = "a property of a Python class takes the object")]
//! The Python binding of Arenite: the extension module `arenite._arenite`.
//!
//! ```text
//!   Runtime ─► Program ─► Method ── execute([…]) ──► input ─► exec::Method ─► output
//! ```
//!
//! It stands on the public API of the crate alone. Deliberately absent: logic of its own. What a program is
//! and whether a run may happen, the crate decides; here Python objects are turned over.

// A binding's items are private; Python sees the documentation of classes and methods.
mod arenas;
mod dlpack;
mod error;
mod input;
mod inspect;
mod memory;
mod meta;
mod method;
mod ndarray;
mod numpy_memory;
mod output;
mod own_space;
mod pool;
mod preallocated;
mod program;
mod report;
mod runtime;
mod spaces;
mod state;
mod tensor;
mod torch;
mod torch_memory;

use pyo3::prelude::*;
use pyo3::types::PyMapping;

/// Runs ExecuTorch programs out of arenas. Import `arenite`, not this module.
#[pymodule(gil_used = false)]
fn _arenite(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::register(module)?;
    module.add_class::<runtime::Runtime>()?;
    module.add_class::<runtime::OperatorRegistry>()?;
    module.add_class::<runtime::BackendRegistry>()?;
    module.add_class::<runtime::Verification>()?;
    module.add_class::<program::Program>()?;
    module.add_class::<program::Missing>()?;
    module.add_class::<method::Method>()?;
    module.add_class::<meta::MethodMeta>()?;
    module.add_class::<meta::TensorInfo>()?;
    module.add_class::<state::State>()?;
    PyMapping::register::<state::State>(module.py())?;
    module.add_class::<tensor::Tensor>()?;
    module.add_class::<arenas::ArenaSet>()?;
    module.add_class::<arenas::Arena>()?;
    module.add_class::<arenas::Host>()?;
    module.add_class::<arenas::Pinned>()?;
    module.add_class::<arenas::Cuda>()?;
    module.add_class::<spaces::Space>()?;
    module.add_class::<report::MemoryReport>()?;
    module.add_class::<report::SetReport>()?;
    module.add_class::<report::PlanDrawing>()?;
    module.add_class::<pool::PyPool>()?;
    module.add_function(wrap_pyfunction!(runtime::load, module)?)?;
    module.setattr("_set_numpy_memory", wrap_pyfunction!(numpy_memory::set_numpy_memory, module)?)?;
    module.setattr("_torch_memory", wrap_pyfunction!(torch_memory::torch_memory, module)?)?;
    module.add_function(wrap_pyfunction!(arenas::memory_stats, module)?)?;
    module.add_function(wrap_pyfunction!(arenas::reset_peak, module)?)?;
    Ok(())
}
