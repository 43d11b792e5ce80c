//! What a method needs is told before it is loaded, and is exactly what loading takes.

use super::support::method::{loader_of, run};
use super::support::npz;
use super::support::program::sample;
use super::support::pte::{Field, Pte, chain, kernel_call, slot};
use arenite::exec::{LoadOptions, MemoryReport, Stage};
use arenite::program::{Program, ProgramOptions};
use arenite::{ArenaSet, HostSpace, SpaceId};
use std::sync::Arc;

fn limited(bytes: usize) -> LoadOptions {
    LoadOptions::new(
        ArenaSet::builder().space(Arc::new(HostSpace::new())).limit(SpaceId::HOST, bytes).build(),
    )
}

/// The needs of a method, without loading it, and their sum.
fn needs(name: &str, method: &str) -> (Vec<(Stage, usize)>, usize) {
    let program = Program::open(sample(name), &ProgramOptions::default()).unwrap();
    let report = MemoryReport::of_plan(&program, method, &LoadOptions::new(ArenaSet::host())).unwrap();
    assert!(report.needs.iter().all(|need| need.space == SpaceId::HOST && need.size_bytes > 0));
    let stages: Vec<_> = report.needs.iter().map(|need| (need.stage, need.size_bytes)).collect();
    let sum = stages.iter().map(|need| need.1).sum();
    (stages, sum)
}

#[test]
fn a_limit_of_what_is_needed_is_enough_and_one_byte_less_is_not() {
    for (name, method) in [
        ("seed_net.pte", "forward"),
        ("mlp.pte", "forward"),
        ("kv.pte", "forward"),
        ("cases/h02_shared_state.pte", "get_state"),
        ("cases/h09_unplanned_io.pte", "forward"),
        ("cases/h15_three_memory_ids.pte", "forward"),
    ] {
        let (_, sum) = needs(name, method);
        let bytes = std::fs::read(sample(name)).unwrap();
        let exact = loader_of(&bytes, limited(sum));
        let loaded = exact.load(method).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(exact.options().arenas.report().spaces[0].current_bytes, sum, "{name}");
        assert_eq!(loaded.memory_report().needs, {
            let program = Program::open(sample(name), &ProgramOptions::default()).unwrap();
            MemoryReport::of_plan(&program, method, exact.options()).unwrap().needs
        });
        let short = loader_of(&bytes, limited(sum - 1)).load(method).unwrap_err().to_string();
        assert!(short.contains("its memory plan needs") || short.contains("shared state needs"), "{short}");
        assert!(short.contains(&format!("over the limit of {} bytes", sum - 1)), "{short}");
    }
}

#[test]
fn needs_are_told_by_purpose() {
    let (unplanned, _) = needs("cases/h09_unplanned_io.pte", "forward");
    assert_eq!(unplanned, [(Stage::Planned, 64), (Stage::Staging, 3 * 64)]);
    let (shared, _) = needs("cases/h02_shared_state.pte", "get_state");
    let stages: Vec<Stage> = shared.iter().map(|need| need.0).collect();
    assert_eq!(stages, [Stage::Planned, Stage::State]);
}

#[test]
fn an_exact_limit_lets_the_program_run() {
    let (_, sum) = needs("seed_net.pte", "forward");
    let arrays = npz::read(sample("seed_net.npz"));
    let mut method =
        loader_of(&std::fs::read(sample("seed_net.pte")).unwrap(), limited(sum)).load("forward").unwrap();
    let inputs = [&arrays["forward.in0"], &arrays["forward.in1"]];
    assert_eq!(run(&mut method, &inputs)[0].bytes, arrays["forward.out0"].bytes);
}

#[test]
fn h8_what_is_needed_is_told_first_and_the_error_names_owner_and_gap() {
    // Two memory ids of 4,000 and 2,000 bytes: more than 4,096 in all, less than 8,192.
    let mut pte = Pte::sample();
    let plan = pte.plan();
    plan.set(slot::DELEGATES, Field::Tables(vec![]));
    plan.set(slot::CHAINS, Field::Tables(vec![chain(vec![kernel_call(0, &[0, 1, 2, 2])])]));
    plan.set(slot::BUFFERS, Field::I64s(vec![0, 4000, 2000]));
    let bytes = pte.bytes();
    let program = Program::from_bytes(&bytes, &ProgramOptions::default()).unwrap();
    let report = MemoryReport::of_plan(&program, "forward", &LoadOptions::new(ArenaSet::host())).unwrap();
    let sum: usize = report.needs.iter().map(|need| need.size_bytes).sum();
    assert_eq!(sum, 4032 + 2048);
    let error = loader_of(&bytes, limited(4096)).load("forward").unwrap_err().to_string();
    assert!(error.starts_with("forward: its memory plan needs 6080 bytes in host"), "{error}");
    assert!(error.contains("0 live, 4096 free, 1984 short"), "{error}");
    assert!(loader_of(&bytes, limited(sum)).load("forward").is_ok());
}
