//! A memory plan is carved as it says, or refused with the reason; nothing is held after a refusal.

use super::support::kernel::Data;
use super::support::method::{load, loader, loader_of, run, try_run};
use super::support::program::sample;
use super::support::pte::{
    Field, Pte, chain, kernel_call, operator, place, slot, step, table, tensor, value,
};
use arenite::exec::{ErrorKind, LoadError, LoadOptions};
use arenite::{ArenaSet, SpaceId};

/// `forward(x)`: values 0 the input, 1 to 3 planned, 4 the Bool false, and these instructions; output is value 3.
fn program(offsets: [u32; 4], steps: Vec<super::support::pte::Table>) -> Vec<u8> {
    let mut pte = Pte::sample();
    let planned = |offset| value(5, tensor(&[2, 2]).with(slot::PLACE, place(1, offset)));
    let mut values: Vec<_> = offsets.into_iter().map(planned).collect();
    values.push(value(3, table().with(0, Field::U8(0))));
    let plan = pte.plan();
    plan.set(slot::VALUES, Field::Tables(values));
    plan.set(slot::OUTPUTS, Field::I32s(vec![3]));
    plan.set(slot::CHAINS, Field::Tables(vec![chain(steps)]));
    plan.set(
        slot::OPERATORS,
        Field::Tables(vec![operator("aten::mul", "out"), operator("aten::neg", "out")]),
    );
    plan.set(slot::DELEGATES, Field::Tables(vec![]));
    plan.set(slot::BUFFERS, Field::I64s(vec![0, 64]));
    pte.bytes()
}

fn mul(a: i32, b: i32, out: i32) -> super::support::pte::Table {
    kernel_call(0, &[a, b, out, out])
}

fn neg(a: i32, out: i32) -> super::support::pte::Table {
    kernel_call(1, &[a, out, out])
}

fn jump_false(condition: i32, target: i32) -> super::support::pte::Table {
    step(4, table().with(0, Field::I32(condition)).with(1, Field::I32(target)))
}

fn x() -> Data {
    Data::new(&[2, 2], &[1.0_f32, 2.0, 3.0, 4.0])
}

#[test]
fn bytes_may_be_reused_once_their_tensor_is_dead() {
    let file = program([0, 16, 0, 32], vec![mul(0, 0, 1), neg(1, 2), mul(1, 2, 3)]);
    let out = run(&mut load(&file).unwrap(), &[&x()]);
    assert_eq!(out[0].get::<f32>(), [-1.0, -16.0, -81.0, -256.0]);
}

#[test]
fn reading_bytes_that_another_tensor_took_is_refused_by_name() {
    // Value 2 takes half of value 0's bytes before value 0 is read again.
    let file = program([0, 16, 8, 32], vec![neg(0, 1), neg(1, 2), mul(0, 2, 3)]);
    let error = load(&file).unwrap_err();
    let LoadError::Overwritten {
        value: 0,
        reader: 2,
        writer: 1,
        other: 2,
        buffer: 1,
        start_bytes,
        end_bytes,
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((start_bytes, end_bytes), (8, 16));
    assert_eq!(error.kind(), ErrorKind::Plan);
    assert!(error.to_string().contains("instruction 2 reads value 0"), "{error}");
}

#[test]
fn an_overlap_on_one_branch_alone_is_refused_too() {
    // Where the condition is false the first branch is skipped; where it is true value 2 takes value 1's bytes.
    let steps = vec![neg(0, 1), jump_false(4, 3), neg(0, 2), mul(1, 0, 3)];
    let kept_apart = program([0, 16, 48, 32], steps.clone());
    assert!(load(&kept_apart).is_ok());
    let error = load(&program([0, 16, 16, 32], steps)).unwrap_err();
    assert!(matches!(error, LoadError::Overwritten { value: 1, .. }), "{error}");
}

#[test]
fn branches_may_use_the_same_bytes() {
    // if: 2 <- -x, 3 <- 2 * x   else: 1 <- -x, 3 <- 1 * x, with values 1 and 2 at one place.
    let steps = vec![jump_false(4, 4), neg(0, 2), mul(2, 0, 3), jump_false(4, 6), neg(0, 1), mul(1, 0, 3)];
    let out = run(&mut load(&program([0, 16, 16, 32], steps)).unwrap(), &[&x()]);
    assert_eq!(out[0].get::<f32>(), [-1.0, -4.0, -9.0, -16.0]);
}

#[test]
fn a_loop_that_does_not_end_is_stopped() {
    let error =
        try_run(&mut load(&program([0, 16, 48, 32], vec![jump_false(4, 0)])).unwrap(), &[&x()]).unwrap_err();
    assert!(error.to_string().contains("still running after 10000000 instructions"), "{error}");
}

#[test]
fn a_constant_is_never_written() {
    let mut pte = Pte::sample();
    pte.step(0).set(1, Field::I32s(vec![0, 1, 1, 1]));
    let plan = pte.plan();
    plan.set(slot::DELEGATES, Field::Tables(vec![]));
    plan.set(slot::CHAINS, Field::Tables(vec![chain(vec![kernel_call(0, &[0, 1, 1, 1])])]));
    let error = load(&pte.bytes()).unwrap_err();
    assert!(matches!(error, LoadError::Arguments { .. }), "{error}");
    assert!(error.to_string().contains("a constant"), "{error}");
}

#[test]
fn an_operator_without_a_kernel_is_named_with_all_others() {
    let mut pte = Pte::sample();
    let plan = pte.plan();
    plan.set(slot::DELEGATES, Field::Tables(vec![]));
    plan.set(slot::OPERATORS, Field::Tables(vec![operator("my::one", "out"), operator("my::two", "out")]));
    plan.set(slot::CHAINS, Field::Tables(vec![chain(vec![kernel_call(0, &[0, 1, 2, 2])])]));
    let error = load(&pte.bytes()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingOperators);
    assert!(error.to_string().contains("my::one.out, my::two.out"), "{error}");
}

#[test]
fn a_delegate_that_is_not_registered_is_named() {
    let error = load(&Pte::sample().bytes()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDelegate, "{error}");
    assert!(error.to_string().contains("TestBackend"), "{error}");
}

#[test]
fn a_missing_space_is_refused_by_name_and_nothing_is_taken() {
    let loader = loader(&sample("cases/h16_planned_for_absent_cuda.pte"));
    let error = loader.load("forward").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MemorySpace);
    let text = error.to_string();
    for part in ["forward", "arena 1", "2816", "cuda:0", "this arena set has host"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let report = loader.options().arenas.report();
    assert!(report.spaces.iter().all(|space| space.peak_bytes == 0), "{report}");
}

#[test]
fn a_program_of_host_kernels_runs_where_its_space_is_remapped_to_the_host() {
    let path = sample("cases/h16_planned_for_absent_cuda.pte");
    let arenas = ArenaSet::builder()
        .space(std::sync::Arc::new(arenite::HostSpace::new()))
        .remap(SpaceId::cuda(0), SpaceId::HOST)
        .build();
    let loader = loader_of(&std::fs::read(&path).unwrap(), LoadOptions::new(arenas));
    let arrays = super::support::npz::read(path.with_extension("npz"));
    let out = run(&mut loader.load("forward").unwrap(), &[&arrays["a0"]]);
    let (got, want) = (out[0].get::<f32>(), arrays["a1"].get::<f32>());
    assert!(got.iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-5), "{got:?} {want:?}");
}

#[test]
fn a_limit_on_a_space_is_for_the_whole_plan() {
    let bytes = std::fs::read(sample("cases/h15_three_memory_ids.pte")).unwrap();
    let with_limit = |limit: usize| {
        let arenas = ArenaSet::builder()
            .space(std::sync::Arc::new(arenite::HostSpace::new()))
            .limit(SpaceId::HOST, limit)
            .build();
        loader_of(&bytes, LoadOptions::new(arenas)).load("forward")
    };
    assert!(with_limit(3200).is_ok());
    let error = with_limit(3199).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ArenaMemory);
    assert!(error.to_string().contains("3200 bytes") && error.to_string().contains("3199"), "{error}");
}

#[test]
fn a_plan_over_the_callers_limit_is_refused_before_memory_is_taken() {
    let mut options = LoadOptions::default();
    options.max_planned_bytes = 767;
    let bytes = std::fs::read(sample("seed_net.pte")).unwrap();
    let error = loader_of(&bytes, options).load("forward").unwrap_err();
    assert!(matches!(error, LoadError::PlanTooLarge { planned_bytes: 768, limit_bytes: 767, .. }), "{error}");
}

#[test]
fn memory_returns_when_methods_are_dropped_in_any_order() {
    let loader = loader(&sample("cases/h01_two_methods.pte"));
    let current = || loader.options().arenas.report().spaces[0].current_bytes;
    let (encode, decode) = (loader.load("encode").unwrap(), loader.load("decode").unwrap());
    let both = current();
    assert!(both >= 240 + 224);
    drop(encode);
    assert!(current() < both);
    let again = loader.load("encode").unwrap();
    assert_eq!(current(), both);
    drop(decode);
    drop(again);
    assert_eq!(current(), 0);
}
