//! Planning: how long each strategy takes on each data set, and how far it ends above the bound; how long it takes
//! to take memory for a plan and carve it. `plan_table` has the targets.
//!
//! The data sets are the 33 exported programs and 18 perfect packings of `tests/data/plan`, public instances that
//! are not in this repository (left out without them), and generated sparse programs of 10² to 10⁶ buffers.
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark")]

#[path = "../tests/all/plan_data.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests")]
mod plan_data;

use arenite::plan::{
    BestFit, Budget, Exact, FirstFit, GreedyBySize, Naive, Plan, Planner, Portfolio, Problem, Tiered,
    lower_bounds, verify,
};
use arenite::{Arena, Block, HostSpace};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::alloc::Layout;
use std::hint::black_box;
use std::time::Duration;

fn strategies() -> Vec<(&'static str, Box<dyn Planner>)> {
    vec![
        ("naive", Box::new(Naive)),
        ("first_fit", Box::new(FirstFit)),
        ("best_fit", Box::new(BestFit)),
        ("tiered", Box::new(Tiered)),
        ("greedy_by_size", Box::new(GreedyBySize)),
        ("portfolio", Box::new(Portfolio)),
        ("exact_2000_nodes", Box::new(Exact::new(Budget::nodes(2_000)))),
    ]
}

/// Each data set: its name, and its problems.
fn data_sets() -> Vec<(&'static str, Vec<Problem>)> {
    let hard = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K"];
    let hard = hard.map(|name| format!("minimalloc/{name}.1048576.csv"));
    let large = ["somas_resnet50", "somas_pangu_2.6B", "iopddl_G_1", "iopddl_S_1", "iopddl_Y_1"];
    let large = large.map(|name| format!("large/{name}.csv"));
    let beside = |paths: &[String]| {
        paths.iter().filter_map(|path| plan_data::beside(path)).map(|table| table.problem).collect()
    };
    let programs = plan_data::programs(false).into_iter();
    vec![
        ("programs", programs.map(|known| plan_data::rounded(&known.problem, 16)).collect()),
        ("perfect", plan_data::perfect().into_iter().map(|known| known.problem).collect()),
        ("hard", beside(&hard)),
        ("large", beside(&large)),
    ]
}

/// The mean and the worst of the peaks over the bounds.
fn ratios(problems: &[Problem], planner: &dyn Planner) -> (f64, f64) {
    let ratio = |problem: &Problem| {
        let plan = planner.plan(problem).unwrap();
        verify(problem, &plan).unwrap();
        plan.peak_bytes(0) as f64 / lower_bounds(problem).unwrap()[0].max(1) as f64
    };
    let all: Vec<f64> = problems.iter().map(ratio).collect();
    let mean = (all.iter().map(|ratio| ratio.ln()).sum::<f64>() / all.len() as f64).exp();
    (mean, all.into_iter().fold(0.0, f64::max))
}

fn sets(c: &mut Criterion) {
    for (set, problems) in data_sets().into_iter().filter(|(_, problems)| !problems.is_empty()) {
        let mut group = c.benchmark_group(format!("plan/{set}"));
        group.sample_size(10).warm_up_time(Duration::from_millis(200));
        group.measurement_time(Duration::from_secs(1));
        for (name, planner) in strategies() {
            let (mean, worst) = ratios(&problems, &*planner);
            println!(
                "plan/{set}/{name}: peak over bound {mean:.4} (mean of {}), {worst:.4} (worst)",
                problems.len()
            );
            let all = || problems.iter().for_each(|problem| drop(black_box(planner.plan(problem).unwrap())));
            group.bench_function(name, |b| b.iter(all));
        }
    }
}

fn scale(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan/sparse");
    group.sample_size(10).warm_up_time(Duration::from_millis(200));
    group.measurement_time(Duration::from_secs(1));
    for count in [100, 1_000, 10_000, 100_000, 1_000_000] {
        let problem = plan_data::sparse(count, 1);
        for (name, planner) in strategies() {
            let (ratio, _) = ratios(std::slice::from_ref(&problem), &*planner);
            println!("plan/sparse/{name}/{count}: peak over bound {ratio:.4}");
            let id = BenchmarkId::new(name, count);
            group.bench_function(id, |b| b.iter(|| planner.plan(black_box(&problem)).unwrap()));
        }
        let plan = GreedyBySize.plan(&problem).unwrap();
        group
            .bench_function(BenchmarkId::new("bound", count), |b| b.iter(|| lower_bounds(&problem).unwrap()));
        group.bench_function(BenchmarkId::new("verify", count), |b| {
            b.iter(|| verify(&problem, &plan).unwrap());
        });
    }
}

/// Takes an arena as large as the plan's peak and gives each buffer its block there.
fn carve(problem: &Problem, plan: &Plan) -> Vec<Block> {
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap();
    let peak = bytes(plan.peak_bytes(0));
    let arena = Arena::exact(HostSpace::new(), peak).unwrap();
    let whole = arena.allocate(Layout::from_size_align(peak, 64).unwrap()).unwrap();
    let place = |(offset, size): (u64, u64)| whole.part(bytes(offset)..bytes(offset + size)).unwrap();
    let sizes = problem.buffers.iter().map(|spec| spec.size_bytes);
    plan.offsets.iter().copied().zip(sizes).map(place).collect()
}

fn carving(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan/carve");
    let named = ["mlp", "resnet50", "llama12_prefill", "nas800", "train_resnet18"];
    for known in plan_data::programs(false).into_iter().filter(|known| named.contains(&known.name.as_str())) {
        let problem = plan_data::rounded(&known.problem, 64);
        let plan = Portfolio.plan(&problem).unwrap();
        group.bench_function(known.name, |b| b.iter(|| carve(&problem, black_box(&plan))));
    }
}

criterion_group!(benches, sets, scale, carving);
criterion_main!(benches);
