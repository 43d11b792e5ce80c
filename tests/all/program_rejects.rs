//! Every reason for refusing a program, each caused once.

use super::support::program::open;
use super::support::pte::{Field, Pte, at, kernel_call, place, slot, step, table, tensor, value};
use arenite::SpaceId;
use arenite::program::ProgramErrorKind::{Format, Plan, Unsupported};
use arenite::program::{
    ErrorCode, Fault, FileKind, Part, Program, ProgramError, ProgramErrorKind, ProgramOptions,
};
use arenite::tensor::DType;
use std::io::ErrorKind;

/// The fault of these bytes, and where.
fn refusal(bytes: &[u8]) -> (ProgramError, Part, Fault) {
    let error = open(bytes).map(|_| ()).unwrap_err();
    match &error {
        ProgramError::Invalid { at, fault } => {
            let (part, fault) = (at.part, fault.clone());
            (error, part, fault)
        }
        other => panic!("{other}"),
    }
}

fn refuses(break_it: impl Fn(&mut Pte), part: Part, fault: &Fault, kind: ProgramErrorKind, code: u32) {
    let mut pte = Pte::sample();
    assert!(open(&pte.bytes()).is_ok(), "the sample is sound before it is broken");
    break_it(&mut pte);
    let (error, at, got) = refusal(&pte.bytes());
    assert_eq!((&at, &got), (&part, fault), "{error}");
    assert_eq!((error.kind(), error.code().number()), (kind, code), "{error}");
    assert!(error.to_string().starts_with("<bytes>: "), "{error}");
}

/// One test a line: what is broken, where it is noticed, the fault, its sort and ExecuTorch's number.
macro_rules! refused {
    ($($name:ident: |$pte:ident| $break_it:expr => $part:expr, $fault:expr, $kind:expr, $code:literal;)+) => {
        $(#[test] fn $name() {
            refuses(|$pte: &mut Pte| { $break_it; }, $part, &$fault, $kind, $code);
        })+
    };
}

const fn missing(field: &'static str) -> Fault {
    Fault::Missing { field }
}

const fn index(what: &'static str, index: i64, count: usize) -> Fault {
    Fault::Index { what, index, count }
}

const fn val(index: usize) -> Part {
    #[expect(clippy::cast_possible_truncation, reason = "a dozen values")]
    Part::Value(index as u32)
}

const fn instruction(index: u32) -> Part {
    Part::Instruction { chain: 0, index }
}

refused! {
    // The whole.
    a_newer_version: |p| p.root.set(0, Field::U32(1)) => Part::Whole, Fault::Version { version: 1 }, Unsupported, 0x23;
    no_methods: |p| p.root.remove(slot::PLANS) => Part::Whole, missing("execution_plan"), Format, 0x23;
    a_method_without_name: |p| p.plan().remove(slot::NAME) => Part::Whole, missing("name"), Format, 0x23;
    two_methods_of_one_name: |p| { let plan = p.plan().clone(); p.root.rows(slot::PLANS).push(plan) }
        => Part::Whole, Fault::MethodTwice { name: "forward".into() }, Format, 0x23;
    constants_in_two_places: |p| p.root.set(slot::CONSTANT_BUFFER, Field::Tables(vec![table(), table()]))
        => Part::Whole, Fault::ConstantsTwice, Format, 0x23;
    a_constant_segment_that_is_not_there: |p| p.root.tab(slot::CONSTANT_SEGMENT).set(0, Field::U32(9))
        => Part::Whole, index("segment", 9, 3), Format, 0x23;
    named_data_without_key: |p| p.root.row(slot::NAMED_DATA, 0).remove(0) => Part::NamedData(0), missing("key"), Format, 0x23;
    named_data_twice: |p| { let row = p.root.row(slot::NAMED_DATA, 0).clone(); p.root.rows(slot::NAMED_DATA).push(row) }
        => Part::Whole, Fault::KeyTwice { key: "blob".into() }, Format, 0x23;
    named_data_in_no_segment: |p| p.root.row(slot::NAMED_DATA, 0).set(1, Field::U32(3))
        => Part::NamedData(0), index("segment", 3, 3), Format, 0x23;
    segments_without_a_base: |p| p.header = false
        => Part::Segment(0), Fault::SegmentWithoutBase { size_bytes: 16 }, Format, 0x23;

    // Buffers.
    no_buffers: |p| p.plan().remove(slot::BUFFERS) => Part::Whole, missing("non_const_buffer_sizes"), Format, 0x23;
    a_negative_buffer: |p| p.plan().set(slot::BUFFERS, Field::I64s(vec![0, 32, -16]))
        => Part::Buffer(2), Fault::BufferSize { size: -16 }, Plan, 0x23;
    buffers_that_overflow: |p| p.plan().set(slot::BUFFERS, Field::I64s(vec![0, i64::MAX, i64::MAX, i64::MAX]))
        => Part::Buffer(3), Fault::BufferOverflow, Plan, 0x23;
    a_device_for_no_buffer: |p| p.plan().set(slot::DEVICES, Field::Tables(vec![table().with(0, Field::I32(3))]))
        => Part::Whole, Fault::BufferDevice { index: 3, last: 2 }, Plan, 0x23;
    a_device_for_the_reserved_buffer: |p| p.plan().set(slot::DEVICES, Field::Tables(vec![table()]))
        => Part::Whole, Fault::BufferDevice { index: 0, last: 2 }, Plan, 0x23;
    an_unknown_device: |p| {
        let row = table().with(0, Field::I32(1)).with(1, Field::I8(7));
        p.plan().set(slot::DEVICES, Field::Tables(vec![row]));
    } => Part::Buffer(1), Fault::Device { device_type: 7, device_index: 0 }, Unsupported, 0x10;
    a_negative_device: |p| {
        let row = table().with(0, Field::I32(1)).with(1, Field::I8(1)).with(2, Field::I8(-1));
        p.plan().set(slot::DEVICES, Field::Tables(vec![row]));
    } => Part::Buffer(1), Fault::Device { device_type: 1, device_index: -1 }, Unsupported, 0x10;
    two_devices_for_one_buffer: |p| {
        let row = |index| table().with(0, Field::I32(1)).with(1, Field::I8(1)).with(2, Field::I8(index));
        p.plan().set(slot::DEVICES, Field::Tables(vec![row(0), row(1)]));
    } => Part::Buffer(1), Fault::BufferDeviceTwice { first: SpaceId::cuda(0), second: SpaceId::cuda(1) }, Plan, 0x23;

    // Values.
    no_values: |p| p.plan().remove(slot::VALUES) => Part::Whole, missing("values"), Format, 0x23;
    a_value_of_no_kind: |p| p.value(at::INT).remove(0) => val(at::INT), missing("val"), Format, 0x23;
    a_value_without_content: |p| p.value(at::INT).remove(1) => val(at::INT), missing("val"), Format, 0x23;
    a_none_without_content: |p| p.value(at::NONE).remove(1) => val(at::NONE), missing("val"), Format, 0x23;
    a_value_of_unknown_kind: |p| p.value(at::INT).set(0, Field::U8(12))
        => val(at::INT), Fault::Tag { what: "kind of value", tag: 12 }, Format, 0x23;
    text_that_is_missing: |p| p.inner(at::TEXT).remove(0) => val(at::TEXT), missing("string_val"), Format, 0x23;
    ints_that_are_missing: |p| p.inner(at::INT_LIST).remove(0) => val(at::INT_LIST), missing("items"), Format, 0x23;
    doubles_that_are_missing: |p| p.inner(at::DOUBLES).remove(0) => val(at::DOUBLES), missing("items"), Format, 0x23;
    bools_that_are_missing: |p| p.inner(at::BOOLS).remove(0) => val(at::BOOLS), missing("items"), Format, 0x23;
    an_int_item_out_of_range: |p| p.inner(at::INT_LIST).set(0, Field::I64s(vec![3, 14]))
        => val(at::INT_LIST), index("value", 14, 14), Format, 0x23;
    an_int_item_below_zero: |p| p.inner(at::INT_LIST).set(0, Field::I64s(vec![3, -1]))
        => val(at::INT_LIST), index("value", -1, 14), Format, 0x23;
    an_int_item_beyond_32_bits: |p| p.inner(at::INT_LIST).set(0, Field::I64s(vec![1 << 32]))
        => val(at::INT_LIST), index("value", 1 << 32, 14), Format, 0x23;
    an_int_item_that_is_a_tensor: |p| p.inner(at::INT_LIST).set(0, Field::I64s(vec![3, 0])) => val(at::INT_LIST),
        Fault::Item { item: 1, value: 0, expected: "int", got: "tensor" }, Format, 0x13;
    a_tensor_item_that_is_an_int: |p| p.inner(at::TENSORS).set(0, Field::I32s(vec![3])) => val(at::TENSORS),
        Fault::Item { item: 0, value: 3, expected: "tensor", got: "int" }, Format, 0x13;
    a_tensor_item_that_is_absent: |p| p.inner(at::TENSORS).set(0, Field::I32s(vec![-1]))
        => val(at::TENSORS), index("value", -1, 14), Format, 0x23;
    an_optional_item_that_is_an_int: |p| p.inner(at::OPTIONAL_TENSORS).set(0, Field::I32s(vec![3]))
        => val(at::OPTIONAL_TENSORS),
        Fault::Item { item: 0, value: 3, expected: "tensor or None", got: "int" }, Format, 0x13;
    an_optional_item_below_minus_one: |p| p.inner(at::OPTIONAL_TENSORS).set(0, Field::I32s(vec![-2]))
        => val(at::OPTIONAL_TENSORS), index("value", -2, 14), Format, 0x23;

    // Tensors.
    an_unknown_element_kind: |p| p.inner(at::INPUT).set(0, Field::I8(30)) => val(at::INPUT), Fault::DType { code: 30 }, Format, 0x23;
    a_negative_element_kind: |p| p.inner(at::INPUT).set(0, Field::I8(-1)) => val(at::INPUT), Fault::DType { code: -1 }, Format, 0x23;
    a_storage_offset: |p| p.inner(at::INPUT).set(1, Field::I32(4)) => val(at::INPUT), Fault::StorageOffset { offset: 4 }, Unsupported, 0x10;
    sizes_without_bound: |p| p.inner(at::INPUT).set(slot::DYNAMISM, Field::I8(2)) => val(at::INPUT), Fault::Unbounded, Unsupported, 0x10;
    an_unknown_dynamism: |p| p.inner(at::INPUT).set(slot::DYNAMISM, Field::I8(3))
        => val(at::INPUT), Fault::Tag { what: "shape dynamism", tag: 3 }, Format, 0x23;
    sizes_that_are_missing: |p| p.inner(at::INPUT).remove(slot::SIZES) => val(at::INPUT), missing("sizes"), Format, 0x23;
    an_order_that_is_missing: |p| p.inner(at::INPUT).remove(slot::ORDER) => val(at::INPUT), missing("dim_order"), Format, 0x23;
    a_negative_size: |p| p.inner(at::INPUT).set(slot::SIZES, Field::I32s(vec![2, -2]))
        => val(at::INPUT), Fault::Size { dim: 1, size: -2 }, Format, 0x23;
    seventeen_dimensions: |p| *p.inner(at::INPUT) = tensor(&[1; 17]) => val(at::INPUT), Fault::Rank { rank: 17, limit: 16 }, Format, 0x23;
    an_order_of_another_length: |p| p.inner(at::INPUT).set(slot::ORDER, Field::Bytes(vec![0]))
        => val(at::INPUT), Fault::Order { order: [0].into(), rank: 2 }, Format, 0x01;
    an_order_that_repeats: |p| p.inner(at::INPUT).set(slot::ORDER, Field::Bytes(vec![1, 1]))
        => val(at::INPUT), Fault::Order { order: [1, 1].into(), rank: 2 }, Format, 0x01;
    sizes_that_overflow: |p| *p.inner(at::INPUT) = tensor(&[i32::MAX; 3]) => val(at::INPUT),
        Fault::TensorOverflow { dtype: DType::Float32, sizes: [i32::MAX as usize; 3].into() }, Format, 0x23;
    an_unknown_location: |p| p.inner(at::STATE).tab(slot::EXTRA).set(2, Field::I8(2))
        => val(at::STATE), Fault::Tag { what: "location of tensor data", tag: 2 }, Format, 0x23;
    external_data_without_a_name: |p| p.inner(at::CONSTANT).set(slot::EXTRA, Field::Table(table().with(2, Field::I8(1))))
        => val(at::CONSTANT), Fault::ExternalUnnamed, Format, 0x23;
    a_constant_that_is_not_there: |p| p.inner(at::CONSTANT).set(slot::CONSTANT, Field::U32(2))
        => val(at::CONSTANT), index("constant", 2, 2), Format, 0x12;
    a_constant_without_constants: |p| p.root.remove(slot::CONSTANT_SEGMENT) => val(at::CONSTANT), index("constant", 1, 0), Format, 0x12;
    a_constant_past_its_segment: |p| p.root.tab(slot::CONSTANT_SEGMENT).set(1, Field::U64s(vec![0, 4])) => val(at::CONSTANT),
        Fault::ConstantOutside { index: 1, offset: 4, size_bytes: 16, held_bytes: 16 }, Format, 0x12;
    a_constant_at_an_absurd_offset: |p| p.root.tab(slot::CONSTANT_SEGMENT).set(1, Field::U64s(vec![0, u64::MAX])) => val(at::CONSTANT),
        Fault::ConstantOutside { index: 1, offset: u64::MAX, size_bytes: 16, held_bytes: 16 }, Format, 0x12;
    a_constant_on_a_device: |p| p.inner(at::CONSTANT).set(slot::EXTRA, Field::Table(table().with(3, Field::I8(1))))
        => val(at::CONSTANT), Fault::ConstantSpace { space: SpaceId::cuda(0) }, Unsupported, 0x10;
    an_initial_value_without_any: |p| p.root.remove(slot::MUTABLE_SEGMENTS) => val(at::STATE), Fault::NoInitials { index: 1 }, Format, 0x20;
    an_initial_value_that_is_not_there: |p| p.inner(at::STATE).set(slot::CONSTANT, Field::U32(5))
        => val(at::STATE), index("initial value", 5, 2), Format, 0x12;
    an_initial_value_past_its_segment: |p| p.root.row(slot::MUTABLE_SEGMENTS, 0).set(1, Field::U64s(vec![0, 1])) => val(at::STATE),
        Fault::ConstantOutside { index: 1, offset: 1, size_bytes: 16, held_bytes: 16 }, Format, 0x12;

    // The memory plan.
    memory_id_zero: |p| p.inner(at::OUTPUT).set(slot::PLACE, place(0, 0)) => val(at::OUTPUT), Fault::MemoryId { memory_id: 0, last: 2 }, Plan, 0x12;
    memory_id_three_of_two: |p| p.inner(at::OUTPUT).set(slot::PLACE, place(3, 0))
        => val(at::OUTPUT), Fault::MemoryId { memory_id: 3, last: 2 }, Plan, 0x12;
    a_tensor_past_its_buffer: |p| p.inner(at::OUTPUT).set(slot::PLACE, place(1, 20)) => val(at::OUTPUT),
        Fault::PlannedOutside { buffer: 1, offset_bytes: 20, size_bytes: 16, buffer_bytes: 32 }, Plan, 0x21;
    a_tensor_at_an_absurd_offset: |p| p.inner(at::OUTPUT).tab(slot::PLACE).set(2, Field::U32(u32::MAX)) => val(at::OUTPUT),
        Fault::PlannedOutside { buffer: 1, offset_bytes: 0xFFFF_FFFF_0000_0010, size_bytes: 16, buffer_bytes: 32 }, Plan, 0x21;
    a_tensor_between_elements: |p| p.inner(at::OUTPUT).set(slot::PLACE, place(1, 2)) => val(at::OUTPUT),
        Fault::PlannedMisaligned { buffer: 1, offset_bytes: 2, alignment: 4 }, Plan, 0x23;
    a_tensor_on_another_device_than_its_buffer: |p| p.inner(at::OUTPUT).set(slot::EXTRA, Field::Table(table().with(3, Field::I8(1))))
        => val(at::OUTPUT), Fault::PlannedSpace { space: SpaceId::cuda(0), buffer: 1, buffer_space: SpaceId::HOST }, Plan, 0x23;

    // The signature.
    no_inputs: |p| p.plan().remove(slot::INPUTS) => Part::Whole, missing("inputs"), Format, 0x23;
    no_outputs: |p| p.plan().remove(slot::OUTPUTS) => Part::Whole, missing("outputs"), Format, 0x23;
    an_input_that_is_not_there: |p| p.plan().set(slot::INPUTS, Field::I32s(vec![0, 14])) => Part::Input(1), index("value", 14, 14), Format, 0x23;
    an_output_that_is_not_there: |p| p.plan().set(slot::OUTPUTS, Field::I32s(vec![-1])) => Part::Output(0), index("value", -1, 14), Format, 0x23;
    a_constant_as_input: |p| p.plan().set(slot::INPUTS, Field::I32s(vec![1])) => Part::Input(0), Fault::ConstantInput, Format, 0x12;
    a_list_as_output: |p| p.plan().set(slot::OUTPUTS, Field::I32s(vec![4]))
        => Part::Output(0), Fault::Signature { kind: "list of int" }, Unsupported, 0x12;

    // Operators and delegates.
    an_operator_without_name: |p| p.plan().row(slot::OPERATORS, 1).remove(0) => Part::Operator(1), missing("name"), Format, 0x23;
    a_name_of_a_hundred_characters: |p| p.plan().row(slot::OPERATORS, 0).set(0, Field::Text("a".repeat(96)))
        => Part::Operator(0), Fault::OperatorName { len: 100, limit: 99 }, Format, 0x01;
    no_delegates: |p| p.plan().remove(slot::DELEGATES) => Part::Whole, missing("delegates"), Format, 0x23;
    a_delegate_without_id: |p| p.plan().row(slot::DELEGATES, 0).remove(0) => Part::Delegate(0), missing("id"), Format, 0x23;
    a_delegate_without_blob: |p| p.plan().row(slot::DELEGATES, 0).remove(1) => Part::Delegate(0), missing("processed"), Format, 0x23;
    a_blob_at_an_unknown_location: |p| p.plan().row(slot::DELEGATES, 0).tab(1).set(0, Field::I8(2))
        => Part::Delegate(0), Fault::Tag { what: "location of delegate data", tag: 2 }, Format, 0x01;
    an_inline_blob_that_is_not_there: |p| p.plan().row(slot::DELEGATES, 0).tab(1).set(1, Field::U32(1))
        => Part::Delegate(0), index("inline delegate data", 1, 1), Format, 0x20;
    a_blob_in_no_segment: |p| {
        let reference = table().with(0, Field::I8(1)).with(1, Field::U32(3));
        p.plan().row(slot::DELEGATES, 0).set(1, Field::Table(reference));
    } => Part::Delegate(0), index("segment of delegate data", 3, 3), Format, 0x20;
    an_option_without_key: |p| p.plan().row(slot::DELEGATES, 0).row(2, 0).remove(0) => Part::Delegate(0), missing("key"), Format, 0x23;

    // Instructions.
    no_chains: |p| p.plan().remove(slot::CHAINS) => Part::Whole, missing("chains"), Format, 0x23;
    an_empty_list_of_chains: |p| p.plan().set(slot::CHAINS, Field::Tables(Vec::new())) => Part::Whole, missing("chains"), Format, 0x23;
    a_chain_without_instructions: |p| p.plan().row(slot::CHAINS, 0).remove(2) => Part::Whole, missing("instructions"), Format, 0x23;
    an_instruction_of_no_kind: |p| p.plan().row(slot::CHAINS, 0).row(2, 1).remove(0) => instruction(1), missing("instr_args"), Format, 0x23;
    an_instruction_without_content: |p| p.plan().row(slot::CHAINS, 0).row(2, 1).remove(1) => instruction(1), missing("instr_args"), Format, 0x23;
    an_unknown_instruction: |p| p.plan().row(slot::CHAINS, 0).row(2, 1).set(0, Field::U8(6))
        => instruction(1), Fault::Tag { what: "instruction", tag: 6 }, Format, 0x23;
    an_operator_that_is_not_there: |p| p.step(0).set(0, Field::I32(2)) => instruction(0), index("operator", 2, 2), Format, 0x23;
    an_operator_below_zero: |p| p.step(0).set(0, Field::I32(-1)) => instruction(0), index("operator", -1, 2), Format, 0x23;
    a_call_without_arguments: |p| p.step(0).remove(1) => instruction(0), missing("args"), Format, 0x23;
    an_argument_that_is_not_there: |p| p.step(0).set(1, Field::I32s(vec![0, 14])) => instruction(0), index("value", 14, 14), Format, 0x23;
    an_argument_below_zero: |p| p.step(0).set(1, Field::I32s(vec![0, -1])) => instruction(0), index("value", -1, 14), Format, 0x23;
    a_move_from_nowhere: |p| p.step(1).set(0, Field::I32(14)) => instruction(1), index("value", 14, 14), Format, 0x23;
    a_move_to_nowhere: |p| p.step(1).set(1, Field::I32(-3)) => instruction(1), index("value", -3, 14), Format, 0x23;
    a_condition_that_is_not_there: |p| p.step(2).set(0, Field::I32(99)) => instruction(2), index("value", 99, 14), Format, 0x23;
    a_jump_past_the_end: |p| p.step(2).set(1, Field::I32(6)) => instruction(2), Fault::JumpTarget { target: 6, count: 5 }, Format, 0x23;
    a_jump_before_the_begin: |p| p.step(2).set(1, Field::I32(-1)) => instruction(2), Fault::JumpTarget { target: -1, count: 5 }, Format, 0x23;
    a_delegate_that_is_not_there: |p| p.step(3).set(0, Field::I32(1)) => instruction(3), index("delegate", 1, 1), Format, 0x01;
    a_delegate_call_without_arguments: |p| p.step(3).remove(1) => instruction(3), missing("args"), Format, 0x23;
    freeing_what_is_not_there: |p| p.step(4).set(0, Field::I32(14)) => instruction(4), index("value", 14, 14), Format, 0x23;
}

fn whole(bytes: &[u8]) -> Fault {
    let (_, part, fault) = refusal(bytes);
    assert_eq!(part, Part::Whole);
    fault
}

#[test]
fn a_second_chain_is_named() {
    let mut pte = Pte::sample();
    let chain =
        table().with(2, Field::Tables(vec![kernel_call(0, &[0]), step(5, table().with(0, Field::I32(50)))]));
    pte.plan().rows(slot::CHAINS).push(chain);
    let (error, ..) = refusal(&pte.bytes());
    assert_eq!(
        error.to_string(),
        "<bytes>: forward, chain 1, instruction 1: value 50 does not exist; there are 14"
    );
    assert_eq!(error.method(), Some("forward"));
}

#[test]
fn a_foreign_file_is_named_for_what_it_is() {
    let cases: &[(&[u8], FileKind, &str)] = &[
        (b"", FileKind::Empty, "an empty file"),
        (b"\x10\0\0\0BP08rest", FileKind::BundledProgram, "bundled program"),
        (b"\x44\0\0\0FT01FH01", FileKind::DataFile, "(.ptd)"),
        (b"\x1c\0\0\0ET13rest", FileKind::OtherProgram(*b"13"), "ET13 instead of ET12"),
        (b"PK\x03\x04and so on", FileKind::Zip, "zip archive"),
        (b"\x7fELF\x02\x01\x01\0", FileKind::Elf, "ELF"),
        (b"version https://git-lfs.github.com/spec/v1\n", FileKind::LfsPointer, "git lfs pull"),
        (b"\x1f\x8b\x08\0\0\0\0\0", FileKind::Gzip, "gzip"),
        (b"\x40\0\0\0\0\0\0\0{\"a\"", FileKind::Safetensors, "safetensors"),
        (b"{\"version\": 0, \"execution_plan\": []}", FileKind::Text, "a text file"),
        (b"\0\x01\x02\x03\x04\x05\x06\x07", FileKind::Unknown, "unknown kind"),
        (b"\x1c\0\0\0ET1", FileKind::Unknown, "unknown kind"),
    ];
    for &(bytes, found, says) in cases {
        let (error, _, fault) = refusal(bytes);
        assert_eq!(fault, Fault::NotAProgram { found });
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!((error.kind(), error.code()), (Format, ErrorCode::InvalidProgram));
    }
}

#[test]
fn a_directory_is_named_and_a_missing_file_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let open =
        |name: &str| Program::open(dir.path().join(name), &ProgramOptions::new()).map(|_| ()).unwrap_err();
    match open("") {
        ProgramError::Invalid { fault, .. } => {
            assert_eq!(fault, Fault::NotAProgram { found: FileKind::Directory });
        }
        other => panic!("{other}"),
    }
    let missing = open("no_such.pte");
    assert!(missing.to_string().contains("no_such.pte"));
    assert_eq!((missing.kind(), missing.code()), (ProgramErrorKind::Io, ErrorCode::AccessFailed));
    assert!(matches!(missing, ProgramError::Io { source, .. } if source.kind() == ErrorKind::NotFound));
}

#[cfg(unix)]
#[test]
fn a_device_is_refused_without_waiting() {
    let error = Program::open("/dev/null", &ProgramOptions::new()).map(|_| ()).unwrap_err();
    assert!(matches!(
        error,
        ProgramError::Invalid { fault: Fault::NotAProgram { found: FileKind::NoFile }, .. }
    ));
}

fn patched(at: usize, number: u64) -> Vec<u8> {
    let mut file = Pte::sample().bytes();
    file[at..at + 8].copy_from_slice(&number.to_le_bytes());
    file
}

#[test]
fn a_header_that_contradicts_itself_is_refused() {
    let file = Pte::sample().bytes();
    let field = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let (tables, base, data) = (field(16), field(24), field(32));
    let held = file.len() as u64;
    let header = |field, value, rule, bound| Fault::Header { field, value, rule, bound };
    assert_eq!(whole(&patched(16, held + 1)), Fault::Cut { needed_bytes: held + 1, held_bytes: held });
    assert_eq!(whole(&patched(16, 39)), header("end of tables", 39, "at least", 40));
    assert_eq!(whole(&patched(24, tables - 1)), header("begin of segments", tables - 1, "at least", tables));
    assert_eq!(whole(&patched(24, 0)), Fault::SegmentWithoutBase { size_bytes: data });
    assert_eq!(whole(&patched(32, data + 1)), Fault::Cut { needed_bytes: held + 1, held_bytes: held });
    assert_eq!(
        whole(&patched(32, u64::MAX)),
        header("size of segments", u64::MAX, "at most", u64::MAX - base)
    );
    let mut short = file.clone();
    short[12] = 23;
    assert_eq!(whole(&short), header("length", 23, "at least", 24));
    let mut cut = file;
    cut.truncate(20);
    assert!(matches!(whole(&cut), Fault::Cut { needed_bytes: 24, held_bytes: 20 }));
}

#[test]
fn a_header_without_the_size_of_segments_is_read() {
    let mut file = Pte::sample().bytes();
    file[12] = 24;
    file[32..40].fill(0xFF);
    assert!(open(&file).is_ok());
}

#[test]
fn a_header_that_was_destroyed_is_refused_rather_than_read_as_garbage() {
    let mut file = Pte::sample().bytes();
    file[8] = b'x';
    let (_, part, fault) = refusal(&file);
    assert_eq!((part, fault), (Part::Segment(0), Fault::SegmentWithoutBase { size_bytes: 16 }));
}

#[test]
fn a_segment_past_the_file_is_refused() {
    let mut pte = Pte::sample();
    let row = |offset, size| table().with(0, Field::U64(offset)).with(1, Field::U64(size));
    pte.root.set(slot::SEGMENTS, Field::Tables(vec![row(0, 16), row(128, 16), row(256, 6)]));
    let file = pte.bytes();
    let (_, part, fault) = refusal(&file);
    let held_bytes = file.len() as u64;
    assert_eq!(part, Part::Segment(2));
    assert_eq!(fault, Fault::SegmentOutside { offset: held_bytes - 5, size_bytes: 6, held_bytes });
    pte.root.set(slot::SEGMENTS, Field::Tables(vec![row(u64::MAX, 16)]));
    assert!(matches!(
        refusal(&pte.bytes()).2,
        Fault::SegmentOutside { offset: u64::MAX, size_bytes: 16, .. }
    ));
}

#[test]
fn an_offset_out_of_the_tables_is_refused_with_its_place() {
    let mut pte = Pte::sample();
    pte.plan().set(slot::VALUES, Field::Raw(u32::MAX));
    match refusal(&pte.bytes()).2 {
        Fault::Table { table: "ExecutionPlan", field: "values", byte_offset, .. } => assert!(byte_offset > 0),
        other => panic!("{other}"),
    }
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    let mut file = Pte::sample().bytes();
    let at = file.windows(5).position(|bytes| bytes == b"words").unwrap();
    file[at] = 0xFF;
    let (_, part, fault) = refusal(&file);
    assert_eq!(part, val(at::TEXT));
    assert!(matches!(fault, Fault::Table { field: "string_val", reason: "the text is not UTF-8", .. }));
}

#[test]
fn tables_that_name_one_table_many_times_are_refused() {
    let mut pte = Pte::sample();
    let list = value(8, table().with(0, Field::F64s(vec![0.5; 1000])));
    pte.plan().set(slot::VALUES, Field::Repeated(Box::new(list), 1000));
    let file = pte.bytes();
    assert!(file.len() < 20_000);
    assert!(matches!(refusal(&file).2, Fault::Unfolds { limit_bytes } if limit_bytes < 200_000));
}

#[test]
fn faults_of_several_sorts_read_well() {
    let say = |change: &dyn Fn(&mut Pte)| {
        let mut pte = Pte::sample();
        change(&mut pte);
        refusal(&pte.bytes()).0.to_string()
    };
    assert_eq!(
        say(&|pte| pte.inner(at::OUTPUT).set(slot::PLACE, place(1, 20))),
        "<bytes>: forward, value 2: it takes 16 bytes from byte 20 of planned buffer 1 on, which has 32"
    );
    assert_eq!(
        say(&|pte| pte.inner(at::INPUT).set(slot::DYNAMISM, Field::I8(2))),
        "<bytes>: forward, value 0: its sizes have no upper bound; export it with a bounded Dim"
    );
    let mut cut = Pte::sample().bytes();
    cut.pop();
    assert_eq!(
        refusal(&cut).0.to_string(),
        format!(
            "<bytes>: the file ends at byte {} and says that it has {}: it was cut short; copy it again",
            cut.len(),
            cut.len() + 1
        )
    );
}
