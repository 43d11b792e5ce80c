//! What is read from sound files.

use super::support::program::{open, sample, visit};
use super::support::pte::{
    Field, Pte, Table, at, chain, extra, kernel_call, place, slot, step, table, tensor, value,
};
use arenite::SpaceId;
use arenite::program::{
    Instruction, MethodPlan, Placement, Program, ProgramErrorKind, ProgramOptions, Storage, ValueMeta,
};
use arenite::tensor::DType;
use arenite::value::{Span, Value, ValueId};
use serde_json::{Value as Json, json};

fn describe(meta: ValueMeta<'_>) -> Json {
    match meta {
        ValueMeta::Int(value) => json!({"kind": "int", "int_val": value}),
        ValueMeta::Bool(value) => json!({"kind": "bool", "bool_val": value}),
        ValueMeta::Double(value) => json!({"kind": "double", "double_val": value}),
        ValueMeta::Text(value) => json!({"kind": "string", "string_val": value}),
        ValueMeta::Tensor(tensor) => json!({
            "kind": "tensor",
            "dtype": tensor.dtype.name(),
            "sizes": tensor.sizes,
            "dim_order": tensor.order,
            "dynamic": if tensor.dynamic { "dynamic_bound" } else { "static" },
            "planned": match tensor.placement {
                Placement::Planned { buffer, offset_bytes } => json!({"arena": buffer, "offset": offset_bytes}),
                _ => Json::Null,
            },
        }),
        _ => json!({"kind": "none"}),
    }
}

fn facts(method: &MethodPlan) -> Json {
    let buffers = method.planned_buffers();
    json!({
        "inputs": method.describe_inputs().map(describe).collect::<Vec<_>>(),
        "outputs": method.describe_outputs().map(describe).collect::<Vec<_>>(),
        "arenas": buffers
            .map(|(id, buffer)| {
                json!({"index": id, "bytes": buffer.size_bytes, "space": buffer.space.to_string()})
            })
            .collect::<Vec<_>>(),
        "operators": method.operator_names(),
        "delegates": method.delegates.iter().map(|delegate| &*delegate.id).collect::<Vec<_>>(),
    })
}

/// `facts.json` was written by ExecuTorch's own reader.
#[test]
fn every_sample_is_read_as_executorch_reads_it() {
    let known: Json = serde_json::from_slice(&std::fs::read(sample("facts.json")).unwrap()).unwrap();
    let known = known.as_object().unwrap();
    assert!(known.len() >= 23);
    for (file, methods) in known {
        for mmap in [true, false] {
            let program = Program::open(sample(file), &ProgramOptions::new().with_mmap(mmap)).unwrap();
            visit(&program);
            let methods = methods.as_object().unwrap();
            assert_eq!(program.methods().len(), methods.len(), "{file}");
            for method in program.methods() {
                assert_eq!(facts(method), methods[&*method.name], "{file}, {}", method.name);
            }
        }
    }
}

#[test]
fn bytes_and_files_are_read_alike() {
    let bytes = std::fs::read(sample("mlp.pte")).unwrap();
    let program = open(&bytes).unwrap();
    assert_eq!(program.label(), "<bytes>");
    let file = Program::open(sample("mlp.pte"), &ProgramOptions::new()).unwrap();
    assert!(file.label().ends_with("mlp.pte"));
    let (a, b) = (program.method("forward").unwrap(), file.method("forward").unwrap());
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
}

#[test]
fn a_large_file_is_mapped_unless_told_otherwise() {
    let mut pte = Pte::sample();
    pte.segments[2] = vec![7; 100_000];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.pte");
    std::fs::write(&path, pte.bytes()).unwrap();
    let mapped = Program::open(&path, &ProgramOptions::new()).unwrap();
    let read = Program::open(&path, &ProgramOptions::new().with_mmap(false)).unwrap();
    assert!(mapped.is_mapped() && !read.is_mapped());
    assert_eq!(mapped.named("blob").unwrap(), read.named("blob").unwrap());
    assert_eq!(mapped.size_bytes(), read.size_bytes());
}

#[test]
fn a_program_crosses_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Program>();
}

#[test]
fn every_kind_of_value_is_read() {
    let program = open(&Pte::sample().bytes()).unwrap();
    visit(&program);
    let method = program.method("forward").unwrap();
    let value = |index: usize| method.values[index];
    let ids = |span: Span| span.of(&method.lists.ids).iter().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!(value(at::INT), Value::Int(-7));
    assert_eq!(value(at::BOOL), Value::Bool(true));
    assert_eq!(value(at::DOUBLE), Value::Double(0.5));
    assert_eq!(value(at::NONE), Value::None);
    match value(at::TEXT) {
        Value::Text(span) => assert_eq!(method.lists.text(span), "words"),
        other => panic!("{other:?}"),
    }
    match (value(at::INT_LIST), value(at::TENSORS), value(at::OPTIONAL_TENSORS)) {
        (Value::IntList(ints), Value::TensorList(tensors), Value::OptionalTensorList(optional)) => {
            assert_eq!(ids(ints), [3, 3]);
            assert_eq!(ids(tensors), [0, 2]);
            assert_eq!(ids(optional)[..2], [0, ValueId::ABSENT.0]);
        }
        other => panic!("{other:?}"),
    }
    match (value(at::DOUBLES), value(at::BOOLS)) {
        (Value::DoubleList(doubles), Value::BoolList(bools)) => {
            assert_eq!(doubles.of(&method.lists.doubles), [1.5, -2.5]);
            assert_eq!(bools.of(&method.lists.bools), [true, false, true]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_optional_item_that_names_none_is_absent() {
    let program = open(&Pte::sample().bytes()).unwrap();
    let method = program.method("forward").unwrap();
    match method.values[at::OPTIONAL_TENSORS] {
        Value::OptionalTensorList(span) => {
            assert_eq!(span.of(&method.lists.ids), [ValueId(0), ValueId::ABSENT, ValueId::ABSENT]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_kind_of_instruction_is_read() {
    let program = open(&Pte::sample().bytes()).unwrap();
    let method = program.method("forward").unwrap();
    let args = |span: Span| span.of(&method.lists.ids).iter().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!(method.chains, [Span { start: 0, len: 5 }]);
    match method.instructions[..] {
        [
            Instruction::Kernel { operator: 0, args: kernel },
            Instruction::Move { from: ValueId(3), to: ValueId(3) },
            Instruction::JumpFalse { condition: ValueId(7), target: 5 },
            Instruction::Delegate { delegate: 0, args: delegate },
            Instruction::Free { value: ValueId(0) },
        ] => {
            assert_eq!(args(kernel), [0, 1, 2, 2]);
            assert_eq!(args(delegate), [0, 2]);
        }
        ref other => panic!("{other:?}"),
    }
    assert_eq!(method.operator(0), "aten::mul.out");
    assert_eq!(method.operator(1), "aten::copy_");
}

#[test]
fn several_chains_follow_one_another() {
    let mut pte = Pte::sample();
    let jump = step(4, table().with(0, Field::I32(7)).with(1, Field::I32(1)));
    let chains = vec![chain(vec![kernel_call(0, &[0])]), chain(Vec::new()), chain(vec![jump])];
    pte.plan().set(slot::CHAINS, Field::Tables(chains));
    let program = open(&pte.bytes()).unwrap();
    let method = program.method("forward").unwrap();
    assert_eq!(
        method.chains.iter().map(|chain| (chain.start, chain.len)).collect::<Vec<_>>(),
        [(0, 1), (1, 0), (1, 1)]
    );
    assert!(matches!(method.instructions[1], Instruction::JumpFalse { target: 1, .. }));
}

fn initial(program: &Program, index: usize) -> Option<&[u8]> {
    let method = &program.methods()[0];
    match method.tensor(ValueId(u32::try_from(index).unwrap()))?.storage {
        Storage::Planned { initial, .. } => Some(program.data(initial?)),
        Storage::Constant(data) => Some(program.data(data)),
        _ => None,
    }
}

fn floats(items: [f32; 4]) -> Vec<u8> {
    items.iter().flat_map(|item| item.to_le_bytes()).collect()
}

#[test]
fn constants_and_initial_values_are_numbered_apart() {
    let program = open(&Pte::sample().bytes()).unwrap();
    assert_eq!(initial(&program, at::CONSTANT).unwrap(), floats([1.0, 2.0, 3.0, 4.0]));
    assert_eq!(initial(&program, at::STATE).unwrap(), floats([5.0, 6.0, 7.0, 8.0]));
    assert_eq!(initial(&program, at::INPUT), None);
}

#[test]
fn constants_inside_the_tables_are_read() {
    let mut pte = Pte::sample();
    pte.root.remove(slot::CONSTANT_SEGMENT);
    pte.root.remove(slot::MUTABLE_SEGMENTS);
    pte.root.remove(slot::NAMED_DATA);
    pte.inner(at::STATE).remove(slot::CONSTANT);
    pte.segments.clear();
    pte.header = false;
    let buffers = vec![table(), table().with(0, Field::Bytes(floats([9.0, 8.0, 7.0, 6.0])))];
    pte.root.set(slot::CONSTANT_BUFFER, Field::Tables(buffers));
    let program = open(&pte.bytes()).unwrap();
    visit(&program);
    assert_eq!(initial(&program, at::CONSTANT).unwrap(), floats([9.0, 8.0, 7.0, 6.0]));
}

#[test]
fn a_constant_that_lies_badly_is_copied_to_where_it_can_be_read() {
    let mut pte = Pte::sample();
    pte.segments[0] = [vec![0; 3], floats([1.0, 2.0, 3.0, 4.0])].concat();
    pte.root.tab(slot::CONSTANT_SEGMENT).set(1, Field::U64s(vec![0, 3]));
    let program = open(&pte.bytes()).unwrap();
    visit(&program);
    assert_eq!(initial(&program, at::CONSTANT).unwrap(), floats([1.0, 2.0, 3.0, 4.0]));
}

#[test]
fn a_tensor_without_elements_needs_no_bytes() {
    let mut pte = Pte::sample();
    *pte.inner(at::CONSTANT) = tensor(&[0, 4]).with(slot::CONSTANT, Field::U32(1));
    pte.segments[0].clear();
    *pte.inner(at::OUTPUT) = tensor(&[0]).with(slot::PLACE, place(1, 32));
    let program = open(&pte.bytes()).unwrap();
    visit(&program);
    assert_eq!(initial(&program, at::CONSTANT), Some(&[][..]));
}

#[test]
fn a_blob_in_a_segment_and_named_data_are_read() {
    let mut pte = Pte::sample();
    let reference = table().with(0, Field::I8(1)).with(1, Field::U32(2));
    pte.plan().row(slot::DELEGATES, 0).set(1, Field::Table(reference));
    let program = open(&pte.bytes()).unwrap();
    let delegate = &program.method("forward").unwrap().delegates[0];
    assert_eq!(program.data(delegate.processed), b"named");
    assert_eq!(
        (&*delegate.compile_specs[0].key, program.data(delegate.compile_specs[0].value)),
        ("mode", &[1, 2][..])
    );
    assert_eq!(program.named("blob"), Some(&b"named"[..]));
    assert_eq!(program.named("other"), None);
    let inline = open(&Pte::sample().bytes()).unwrap();
    assert_eq!(inline.data(inline.methods()[0].delegates[0].processed), b"processed");
}

#[test]
fn the_device_list_says_where_buffers_are_and_tensors_follow() {
    let mut pte = Pte::sample();
    let cuda = |buffer| table().with(0, Field::I32(buffer)).with(1, Field::I8(1)).with(2, Field::I8(3));
    pte.plan().set(slot::DEVICES, Field::Tables(vec![cuda(1)]));
    let says = table().with(3, Field::I8(1)).with(4, Field::I8(3));
    pte.inner(at::OUTPUT).set(slot::EXTRA, Field::Table(says));
    let program = open(&pte.bytes()).unwrap();
    visit(&program);
    let method = program.method("forward").unwrap();
    assert_eq!(method.buffers[1].space, SpaceId::cuda(3));
    assert_eq!(method.buffers[2].space, SpaceId::HOST);
    assert_eq!(method.tensor(ValueId(0)).unwrap().space, SpaceId::cuda(3));
    assert_eq!(method.tensor(ValueId(2)).unwrap().space, SpaceId::cuda(3));
}

#[test]
fn the_reserved_buffer_is_not_looked_at() {
    let mut pte = Pte::sample();
    pte.plan().set(slot::BUFFERS, Field::I64s(vec![-999, 32, 16]));
    let program = open(&pte.bytes()).unwrap();
    assert_eq!(program.methods()[0].buffers[0].size_bytes, 0);
    assert_eq!(program.methods()[0].planned_buffers().map(|(id, _)| id).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn offsets_above_four_gibibytes_are_read() {
    let mut pte = Pte::sample();
    pte.plan().set(slot::BUFFERS, Field::I64s(vec![0, (4 << 30) + 64, 16]));
    pte.inner(at::OUTPUT).tab(slot::PLACE).set(2, Field::U32(1));
    let program = open(&pte.bytes()).unwrap();
    let storage = program.methods()[0].tensor(ValueId(2)).unwrap().storage;
    assert_eq!(storage, Storage::Planned { buffer: 1, offset_bytes: (4 << 30) + 16, initial: None });
}

#[test]
fn an_unplanned_tensor_is_supplied_by_the_caller() {
    let program = Program::open(sample("cases/h09_unplanned_io.pte"), &ProgramOptions::new()).unwrap();
    let method = program.method("forward").unwrap();
    for id in method.inputs.iter().chain(&method.outputs) {
        assert_eq!(method.tensor(*id).unwrap().storage, Storage::Supplied);
    }
}

#[test]
fn state_is_what_is_planned_and_named() {
    let program = open(&Pte::sample().bytes()).unwrap();
    let state: Vec<_> = program.methods()[0].state().collect();
    assert_eq!(state.len(), 1);
    assert_eq!((state[0].name, state[0].buffer, state[0].offset_bytes), ("state", 2, 0));
    assert!(state[0].initial.is_some());
    assert!(program.shared_state().is_empty());
    let unnamed = Program::open(sample("kv.pte"), &ProgramOptions::new()).unwrap();
    assert_eq!(unnamed.state().count(), 0);
}

#[test]
fn state_at_one_place_in_several_methods_is_shared() {
    let program = Program::open(sample("cases/h02_shared_state.pte"), &ProgramOptions::new()).unwrap();
    let shared = program.shared_state();
    assert_eq!(shared.len(), 1);
    assert_eq!((&*shared[0].name, shared[0].buffer, shared[0].offset_bytes), ("state", 2, 0));
    assert_eq!((shared[0].size_bytes, shared[0].dtype), (16, DType::Float32));
    assert_eq!(shared[0].members.iter().map(|member| member.method).collect::<Vec<_>>(), [0, 1, 2]);
}

fn second_method(pte: &mut Pte, change: impl Fn(&mut Table)) {
    let mut other = pte.plan().clone();
    other.set(slot::NAME, Field::Text("other".into()));
    change(&mut other);
    pte.root.rows(slot::PLANS).push(other);
}

#[test]
fn state_of_another_name_or_size_is_not_shared() {
    let sharing = |change: &dyn Fn(&mut Table)| {
        let mut pte = Pte::sample();
        second_method(&mut pte, |plan| change(plan.row(slot::VALUES, at::STATE).tab(1)));
        open(&pte.bytes()).unwrap().shared_state().len()
    };
    assert_eq!(sharing(&|_| {}), 1);
    assert_eq!(sharing(&|state| state.set(slot::EXTRA, extra("another", false))), 0);
    assert_eq!(sharing(&|state| *state = tensor(&[2]).with(slot::PLACE, place(2, 0))), 0);
    assert_eq!(sharing(&|state| state.set(slot::PLACE, place(1, 0))), 0);
    assert_eq!(sharing(&|state| state.set(0, Field::I8(3))), 0);
}

#[test]
fn constants_that_methods_share_count_once() {
    let program = Program::open(sample("cases/h12_shared_constants.pte"), &ProgramOptions::new()).unwrap();
    let constants = program.constants();
    assert!(constants.size_bytes >= 16 << 10 && constants.size_bytes < program.size_bytes());
    let mut pte = Pte::sample();
    let once = open(&pte.bytes()).unwrap().constants();
    second_method(&mut pte, |_| {});
    let twice = open(&pte.bytes()).unwrap().constants();
    assert_eq!(once, twice);
    assert_eq!((once.count, once.size_bytes), (1, 16));
}

#[test]
fn an_unknown_method_is_refused_with_those_there_are() {
    let error = open(&Pte::sample().bytes()).unwrap().method("backward").map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ProgramErrorKind::MethodNotFound);
    assert_eq!(error.to_string(), "no method \"backward\"; the program has \"forward\"");
}

#[test]
fn every_element_kind_is_read() {
    for dtype in DType::all() {
        let mut pte = Pte::sample();
        let code = i8::try_from(dtype.code()).unwrap();
        let spec = tensor(&[1]).with(0, Field::I8(code)).with(slot::PLACE, place(1, 16));
        pte.plan().rows(slot::VALUES)[at::OUTPUT] = value(5, spec);
        let program = open(&pte.bytes()).unwrap();
        assert_eq!(program.methods()[0].tensor(ValueId(2)).unwrap().dtype, dtype);
    }
}
