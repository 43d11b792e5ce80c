//! Planning: time a strategy, on programs, packings and long sparse programs. `plan_table` has the targets.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

#[path = "../tests/all/plan_data.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests")]
mod plan_data;

use arenite::plan::{BestFit, Exact, FirstFit, GreedyBySize, Naive, Planner, Portfolio, Problem, verify};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::hint::black_box;

fn strategies(c: &mut Criterion) {
    let planners: [(&str, &dyn Planner); 6] = [
        ("naive", &Naive),
        ("first_fit", &FirstFit),
        ("best_fit", &BestFit),
        ("greedy_by_size", &GreedyBySize),
        ("portfolio", &Portfolio),
        ("exact", &Exact::default()),
    ];
    let named = ["mlp", "lm4", "resnet50", "llama12_prefill", "nas800", "train_resnet18"];
    let programs =
        plan_data::programs(false).into_iter().filter(|known| named.contains(&known.name.as_str()));
    for known in programs {
        let problem = plan_data::rounded(&known.problem, 16);
        let mut group = c.benchmark_group(format!("plan/{}", known.name));
        for (name, planner) in planners {
            let plan = planner.plan(&problem).unwrap();
            verify(&problem, &plan).unwrap();
            group.bench_function(name, |b| b.iter(|| planner.plan(black_box(&problem)).unwrap()));
        }
    }
}

fn scale(c: &mut Criterion) {
    let mut group = c.benchmark_group("plan/sparse");
    group.sample_size(10);
    for count in [100, 1_000, 10_000, 100_000, 1_000_000] {
        let problem: Problem = plan_data::sparse(count, 1);
        let plan = GreedyBySize.plan(&problem).unwrap();
        let mut bench = |name: &str, call: &dyn Fn()| {
            group.bench_function(BenchmarkId::new(name, count), |b| b.iter(call));
        };
        bench("greedy_by_size", &|| drop(black_box(GreedyBySize.plan(&problem))));
        bench("best_fit", &|| drop(black_box(BestFit.plan(&problem))));
        bench("verify", &|| verify(&problem, &plan).unwrap());
    }
}

criterion_group!(benches, strategies, scale);
criterion_main!(benches);
