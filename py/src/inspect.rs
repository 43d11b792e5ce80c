//! Every fact of a file as Python dicts: what `arenite inspect --json` prints.
//!
//! Deliberately absent: judgement. What is missing on this machine is added by the caller.

use arenite::program::{MethodPlan, Placement, Program, Storage, TensorMeta, ValueMeta};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// The facts of a program and of the methods at `indices`; with `tensors`, of every tensor too.
pub(crate) fn program<'py>(
    py: Python<'py>,
    file: &Program,
    indices: &[usize],
    tensors: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("file", file.label())?;
    facts.set_item("bytes", file.size_bytes())?;
    facts.set_item("schema_version", file.schema_version())?;
    let methods = PyDict::new(py);
    for &index in indices {
        let plan = &file.methods()[index];
        let facts = method(py, file, index, tensors)?;
        methods.set_item(&*plan.name, facts)?;
    }
    facts.set_item("methods", methods)?;
    let constants = PyDict::new(py);
    constants.set_item("count", file.constants().count)?;
    constants.set_item("bytes", file.constants().size_bytes)?;
    constants.set_item("mapped", file.is_mapped())?;
    facts.set_item("constants", constants)?;
    let named = PyList::empty(py);
    for blob in file.named_data() {
        let entry = PyDict::new(py);
        entry.set_item("key", blob.key)?;
        entry.set_item("bytes", blob.size_bytes)?;
        entry.set_item("source", blob.file)?;
        named.append(entry)?;
    }
    facts.set_item("named_data", named)?;
    Ok(facts)
}

fn method<'py>(py: Python<'py>, file: &Program, index: usize, tensors: bool) -> PyResult<Bound<'py, PyDict>> {
    let plan = &file.methods()[index];
    let facts = PyDict::new(py);
    facts.set_item("inputs", values(py, plan.describe_inputs())?)?;
    facts.set_item("outputs", values(py, plan.describe_outputs())?)?;
    let arenas = PyList::empty(py);
    for (id, buffer) in plan.planned_buffers() {
        let arena = PyDict::new(py);
        arena.set_item("index", id)?;
        arena.set_item("bytes", buffer.size_bytes)?;
        arena.set_item("space", buffer.space.to_string())?;
        arenas.append(arena)?;
    }
    facts.set_item("arenas", arenas)?;
    let operators: Vec<String> = plan.operator_names().into_iter().map(with_overload).collect();
    facts.set_item("operators", operators)?;
    let delegates: Vec<&str> = plan.delegates.iter().map(|delegate| &*delegate.id).collect();
    facts.set_item("delegates", delegates)?;
    facts.set_item("instructions", plan.instructions.len())?;
    facts.set_item("state", state(py, file, index)?)?;
    facts.set_item("missing_data", plan.missing_data().collect::<Vec<_>>())?;
    if tensors {
        let all = plan.tensors.iter().map(|spec| ValueMeta::Tensor(plan.describe_tensor(spec)));
        facts.set_item("tensors", values(py, all)?)?;
    }
    Ok(facts)
}

fn state<'py>(py: Python<'py>, file: &Program, index: usize) -> PyResult<Bound<'py, PyList>> {
    let plan = &file.methods()[index];
    let list = PyList::empty(py);
    for state in plan.state() {
        let Some(spec) = plan.tensors.get(state.tensor as usize) else { continue };
        let entry = PyDict::new(py);
        entry.set_item("name", state.name)?;
        entry.set_item("dtype", spec.dtype.name())?;
        entry.set_item("sizes", plan.sizes(spec))?;
        entry.set_item("arena", state.buffer)?;
        entry.set_item("offset", state.offset_bytes)?;
        entry.set_item("initial", state.initial.is_some())?;
        entry.set_item("shared_with", shared_with(file, index, plan, state.tensor))?;
        list.append(entry)?;
    }
    Ok(list)
}

/// An operator as `name.overload`, the two fields of the file; an empty overload leaves the dot.
fn with_overload(name: &str) -> String {
    if name.contains('.') { name.to_owned() } else { format!("{name}.") }
}

/// The other methods that share a state.
fn shared_with<'a>(file: &'a Program, index: usize, plan: &MethodPlan, tensor: u32) -> Vec<&'a str> {
    debug_assert!(
        matches!(plan.tensors[tensor as usize].storage, Storage::Planned { .. }),
        "state is planned"
    );
    let own =
        |member: &arenite::program::StateMember| member.method as usize == index && member.tensor == tensor;
    let shared = file.shared_state().iter().filter(|shared| shared.members.iter().any(own));
    let others = shared.flat_map(|shared| &shared.members).filter(|member| member.method as usize != index);
    others.map(|member| &*file.methods()[member.method as usize].name).collect()
}

fn values<'py, 'a>(
    py: Python<'py>,
    values: impl Iterator<Item = ValueMeta<'a>>,
) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for value in values {
        list.append(self::value(py, &value)?)?;
    }
    Ok(list)
}

fn value<'py>(py: Python<'py>, value: &ValueMeta<'_>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let kind = match value {
        ValueMeta::Int(value) => {
            dict.set_item("int_val", value)?;
            "int"
        }
        ValueMeta::Bool(value) => {
            dict.set_item("bool_val", value)?;
            "bool"
        }
        ValueMeta::Double(value) => {
            dict.set_item("double_val", value)?;
            "double"
        }
        ValueMeta::Text(text) => {
            dict.set_item("string_val", text)?;
            "string"
        }
        ValueMeta::Tensor(meta) => {
            tensor(py, &dict, meta)?;
            "tensor"
        }
        _ => "none",
    };
    dict.set_item("kind", kind)?;
    Ok(dict)
}

fn tensor(py: Python<'_>, dict: &Bound<'_, PyDict>, meta: &TensorMeta<'_>) -> PyResult<()> {
    dict.set_item("dtype", meta.dtype.name())?;
    dict.set_item("sizes", meta.sizes)?;
    let order: Vec<u32> = meta.order.iter().map(|&dim| u32::from(dim)).collect();
    dict.set_item("dim_order", order)?;
    dict.set_item("dynamic", if meta.dynamic { "dynamic_bound" } else { "static" })?;
    dict.set_item("bytes", meta.size_bytes)?;
    dict.set_item("space", meta.space.to_string())?;
    dict.set_item("name", meta.name)?;
    dict.set_item("constant", matches!(meta.placement, Placement::Constant | Placement::Missing))?;
    match meta.placement {
        Placement::Planned { buffer, offset_bytes } => {
            let planned = PyDict::new(py);
            planned.set_item("arena", buffer)?;
            planned.set_item("offset", offset_bytes)?;
            dict.set_item("planned", planned)
        }
        _ => dict.set_item("planned", py.None()),
    }
}
