//! Planning measured against its targets, as a table: `cargo xtask peers plan`, or
//! `cargo bench --bench plan_table [-- ROW]`.
//!
//! Times are processor time of this thread, the least of several runs. What is timed is the call of the
//! planner, its verification included.
#![allow(
    unreachable_pub,
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a table on standard output"
)]

#[path = "../tests/all/plan_data.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests")]
mod plan_data;

use arenite::plan::{
    BestFit, Budget, BufferSpec, Exact, FirstFit, GreedyBySize, Lifespan, Plan, PlanError, Planner,
    Portfolio, Problem, Replanner, Status, Tiered, culprits, lower_bounds, replan, verify,
};
use plan_data::{beside, perfect, programs, rounded, sparse};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Processor time of this thread in seconds; wall time where the system does not tell.
fn now() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let told = told.and_then(|text| text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()));
    // A yield makes the kernel bring its count up to date.
    told.map_or_else(|| START.with(|start| start.elapsed().as_secs_f64()), |ns| ns * 1e-9)
}

thread_local! {
    static START: Instant = Instant::now();
}

fn timed<T>(runs: usize, mut call: impl FnMut() -> T) -> (f64, T) {
    let mut best = f64::INFINITY;
    let mut last = None;
    for _ in 0..runs.max(1) {
        std::thread::yield_now();
        let from = now();
        last = Some(std::hint::black_box(call()));
        std::thread::yield_now();
        best = best.min(now() - from);
    }
    (best, last.unwrap())
}

fn ms(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

fn row(target: &str, what: &str, bar: &str, measured: &str) {
    println!("| {target} | {what} | {bar} | {measured} |");
}

fn ratio(plan: &Plan) -> f64 {
    plan.reports[0].peak_bytes as f64 / plan.reports[0].bound_bytes.max(1) as f64
}

/// `MiniMalloc` with one problem, ready to solve it again and again: see `cargo xtask peers plan`.
struct MiniMalloc {
    child: std::process::Child,
    answers: BufReader<std::process::ChildStdout>,
    _folder: tempfile::TempDir,
}

impl MiniMalloc {
    /// `None` unless the environment says where the program is that times it.
    fn new(problem: &Problem, capacity: u64) -> Option<Self> {
        let program = std::env::var_os("MINIMALLOC_TIME")?;
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("problem.csv");
        let mut text = String::from("id,lower,upper,size\n");
        for (id, spec) in problem.buffers.iter().enumerate() {
            let Lifespan { first, last } = spec.lifespan;
            writeln!(text, "{id},{first},{last},{}", spec.size_bytes).unwrap();
        }
        std::fs::write(&input, text).unwrap();
        let mut command = Command::new(program);
        command.arg(capacity.to_string()).arg(&input).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Some(Self { child, answers, _folder: folder })
    }

    /// Solves the problem once: the processor time of the call.
    fn solve(&mut self) -> f64 {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let (time, height) = line.trim().split_once(' ').unwrap();
        assert_ne!(height, "-1", "MiniMalloc found no plan");
        time.parse().unwrap()
    }
}

impl Drop for MiniMalloc {
    fn drop(&mut self) {
        // Without input it ends.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The least times of ours and of `MiniMalloc`'s, five runs of each, taking turns.
fn side_by_side<T>(problem: &Problem, capacity: u64, mut call: impl FnMut() -> T) -> (f64, Option<f64>, T) {
    let mut peer = MiniMalloc::new(problem, capacity);
    let (mut time, mut theirs, mut last) = (f64::INFINITY, f64::INFINITY, None);
    for _ in 0..5 {
        let (ours, made) = timed(1, &mut call);
        (time, last) = (time.min(ours), Some(made));
        if let Some(peer) = &mut peer {
            theirs = theirs.min(peer.solve());
        }
    }
    (time, peer.map(|_| theirs), last.unwrap())
}

/// A ratio to `MiniMalloc`'s time, in words.
fn against(time: f64, theirs: Option<f64>) -> String {
    theirs.map_or(String::new(), |theirs| format!("; MiniMalloc {}, ratio {:.3}", ms(theirs), time / theirs))
}

const HARD: [&str; 11] = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K"];

fn hard(only: &[String]) {
    let (mut total, mut all_theirs) = (0.0, Some(0.0));
    let named = HARD.iter().any(|name| only.iter().any(|word| word == name));
    for name in HARD.into_iter().filter(|name| !named || only.iter().any(|word| word == name)) {
        let Some(table) = beside(&format!("minimalloc/{name}.1048576.csv")) else { return };
        let problem = table.problem.with_capacity(1_048_576);
        let planner = Exact::new(Budget::nodes(20_000_000)).stops_when_it_fits();
        let (time, theirs, plan) = side_by_side(&problem, 1_048_576, || planner.plan(&problem));
        total += time;
        all_theirs = all_theirs.zip(theirs).map(|(all, one)| all + one);
        let peak = plan.map_or_else(|error| error.to_string(), |plan| plan.peak_bytes(0).to_string());
        row(
            "1, 2",
            &format!("{name} at 1,048,576"),
            "fits",
            &format!("{peak}, {}{}", ms(time), against(time, theirs)),
        );
    }
    row("2", "A to K together", "0.2 times", &format!("{}{}", ms(total), against(total, all_theirs)));
}

fn least(seconds: u64) {
    for (name, bar) in [("C", 1_039_360), ("D", 1_024_000), ("J", 1_035_264)] {
        let Some(table) = beside(&format!("minimalloc/{name}.1048576.csv")) else { return };
        let plan = Exact::new(Budget::time(Duration::from_secs(seconds))).plan(&table.problem).unwrap();
        let report = &plan.reports[0];
        let measured = format!("{}, bound {}, {:?}", report.peak_bytes, report.bound_bytes, report.status);
        row("3", &format!("{name}, least memory in {seconds} s"), &bar.to_string(), &measured);
    }
}

fn exported() {
    for to in [16, 64] {
        let (mut optimal, mut total, mut worst) = (0, 0.0, (0.0, String::new()));
        let mut all_theirs = Some(0.0);
        for known in programs(false) {
            let problem = rounded(&known.problem, to);
            let bound = lower_bounds(&problem).unwrap()[0];
            let (time, theirs, plan) =
                side_by_side(&problem, bound, || Exact::default().plan(&problem).unwrap());
            optimal += usize::from(plan.reports[0].status == Status::Optimal);
            total += time;
            all_theirs = all_theirs.zip(theirs).map(|(all, one)| all + one);
            if time > worst.0 {
                worst = (time, known.name);
            }
        }
        let ratio = against(total, all_theirs);
        let measured = format!("{optimal} of 33, {} (worst {} {}){ratio}", ms(total), worst.1, ms(worst.0));
        row("4, 5", &format!("33 programs ({to}), exact"), "33 optimal", &measured);
    }
    let (mut log, mut worst, mut total, mut high) = (0.0, (0.0, String::new()), 0.0, 0);
    for known in programs(false) {
        let problem = rounded(&known.problem, 16);
        let (time, plan) = timed(7, || Portfolio.plan(&problem).unwrap());
        let bound = culprits(&problem, &[], 0).live_bytes;
        log += (plan.peak_bytes(0) as f64 / bound as f64).ln();
        total += time;
        if time > worst.0 {
            worst = (time, known.name.clone());
        }
        let sizes = known.problem.buffers.iter().map(|spec| spec.size_bytes.next_multiple_of(16));
        let theirs = known.offsets.iter().zip(sizes).map(|(offset, size)| offset + size).max().unwrap();
        high += usize::from(plan.peak_bytes(0) > theirs);
    }
    let mean = (log / 33.0_f64).exp();
    row(
        "6",
        "33 programs, fast: mean over bound, above the exporter's",
        "1.012, 0",
        &format!("{mean:.4}, {high}"),
    );
    let measured = format!("{} ({}), all {}", ms(worst.0), worst.1, ms(total));
    row("7", "33 programs, fast: slowest", "2 ms", &measured);
}

fn scale() {
    for (count, runs) in [(10_000, 9), (100_000, 5), (1_000_000, 3)] {
        let problem = sparse(count, 1);
        let (time, plan) = timed(runs, || GreedyBySize.plan(&problem).unwrap());
        row(
            "8",
            &format!("sparse {count}, by size"),
            "1.015; 10/150/2500 ms",
            &format!("{:.4}, {}", ratio(&plan), ms(time)),
        );
        let (time, plan) = timed(runs, || BestFit.plan(&problem).unwrap());
        row(
            "",
            &format!("sparse {count}, by start, best"),
            "",
            &format!("{:.4}, {}", ratio(&plan), ms(time)),
        );
        let (time, plan) = timed(runs, || FirstFit.plan(&problem).unwrap());
        row(
            "",
            &format!("sparse {count}, by start, first"),
            "",
            &format!("{:.4}, {}", ratio(&plan), ms(time)),
        );
        let (time, plan) = timed(runs, || Tiered.plan(&problem).unwrap());
        row(
            "9",
            &format!("sparse {count}, by start in tiers"),
            "1.15; 4/40/400 ms",
            &format!("{:.4}, {}", ratio(&plan), ms(time)),
        );
        let (time, ()) = timed(runs, || verify(&problem, &plan).unwrap());
        row("10", &format!("sparse {count}, verify"), "150 ms at 10^6", &ms(time));
        let (time, bound) = timed(runs, || lower_bounds(&problem).unwrap());
        row("10", &format!("sparse {count}, bound {}", bound[0]), "120 ms at 10^6", &ms(time));
    }
}

fn dense() {
    let files = [
        ("somas_pangu_2.6B", "1.008; 100 ms"),
        ("iopddl_S_1", "1.017; 200 ms"),
        ("iopddl_Y_1", "1.004; 1000 ms"),
    ];
    for (name, bar) in files {
        let Some(table) = beside(&format!("large/{name}.csv")) else { return };
        let (time, plan) = timed(3, || GreedyBySize.plan(&table.problem).unwrap());
        row("11", &format!("{name}, by size"), bar, &format!("{:.4}, {}", ratio(&plan), ms(time)));
    }
}

fn packings(seconds: u64) {
    for known in perfect() {
        let count = known.problem.buffers.len();
        let runs = if count <= 100 { 5 } else { 1 };
        let budget = Budget::time(Duration::from_secs(seconds));
        let (time, plan) = timed(runs, || Exact::new(budget.clone()).plan(&known.problem).unwrap());
        let bar = match count {
            20 | 60 | 100 => "1; 5 ms",
            200 => "1; 2 s",
            _ => "1.30",
        };
        row("12, 13", &known.name, bar, &format!("{:.4}, {}", plan.peak_bytes(0) as f64 / 1024.0, ms(time)));
    }
}

/// Instances of every kind, so that each way to spend time meets the clock.
fn many_kinds() -> Vec<(String, Problem)> {
    let mut all: Vec<(String, Problem)> =
        perfect().into_iter().rev().step_by(4).map(|known| (known.name, known.problem)).collect();
    all.extend([1_000, 10_000, 100_000].map(|count| (format!("sparse {count}"), sparse(count, 2))));
    for name in ["somas_pangu_2.6B", "somas_resnet50", "iopddl_G_1", "iopddl_S_1", "iopddl_Y_1"] {
        all.extend(beside(&format!("large/{name}.csv")).map(|table| (name.to_owned(), table.problem)));
    }
    for (gaps, pins) in [(true, false), (false, true)] {
        let problem = plan_data::crowded(3_000, 600, 5, gaps, pins);
        all.push((format!("crowded{}", if gaps { ", gaps" } else { ", pins" }), problem));
    }
    all
}

fn anytime() {
    let (mut late, mut worse) = ((f64::NEG_INFINITY, String::new()), 0);
    for (name, problem) in many_kinds() {
        let mut before = u64::MAX;
        let wall = |budget: Duration| {
            let from = Instant::now();
            let plan = Exact::new(Budget::time(budget)).plan(&problem).unwrap();
            (from.elapsed().as_secs_f64(), plan)
        };
        let floor = (0..3).map(|_| wall(Duration::ZERO).0).fold(f64::INFINITY, f64::min);
        let mut most = f64::NEG_INFINITY;
        for budget_ms in [1, 3, 10, 30, 100, 300, 1_000] {
            let least = floor * 1e3;
            // Of three, the one that other work on the machine delayed least.
            let runs: Vec<(f64, Plan)> = (0..3).map(|_| wall(Duration::from_millis(budget_ms))).collect();
            let fastest = runs.iter().map(|run| run.0).fold(f64::INFINITY, f64::min);
            most = most.max(fastest * 1e3 - least.max(budget_ms as f64));
            let peak = runs.iter().map(|run| run.1.peak_bytes(0)).min().unwrap();
            worse += usize::from(peak > before);
            before = peak;
        }
        println!("| | anytime, {name}: least {}, latest | | {most:.2} ms |", ms(floor));
        if most > late.0 {
            late = (most, name);
        }
    }
    let measured = format!("{:.2} ms ({}); worse with more budget: {worse}", late.0, late.1);
    row("14", "anytime: latest return after the budget or the cheapest plan (wall)", "5 ms", &measured);
}

fn mending() -> Result<(), PlanError> {
    let mut problem = sparse(100_000, 1);
    let (anew, old) = timed(5, || GreedyBySize.plan(&problem).unwrap());
    let before = problem.clone();
    for buffer in problem.buffers.iter_mut().step_by(100) {
        buffer.size_bytes += buffer.size_bytes / 4 / 64 * 64 + 64;
    }
    let (time, new) = timed(9, || replan(&problem, &old, 25).unwrap());
    let measured = |moved: usize, time: f64, plan: &Plan| {
        format!(
            "{:.1} times ({}, anew {}), {:.1} % kept, peak over bound {:.3}",
            anew / time,
            ms(time),
            ms(anew),
            100.0 - moved as f64 / 1e3,
            ratio(plan)
        )
    };
    let what = "1 % of 100,000 sizes changed";
    row("16", &format!("re-plan once, {what}"), "", &measured(new.moved, time, &new.plan));
    let (mut best, mut moved) = (f64::INFINITY, 0);
    for _ in 0..9 {
        let mut live = Replanner::new(before.clone(), old.clone())?;
        let (time, count) = timed(1, || {
            for at in (0..problem.buffers.len()).step_by(100) {
                live.set(at, problem.buffers[at].clone()).unwrap();
            }
            live.replan(25).unwrap()
        });
        (best, moved) = (best.min(time), count);
        verify(&problem, live.plan()).unwrap();
    }
    row(
        "16",
        &format!("re-plan kept up to date, {what}"),
        "10 times; 90 %",
        &measured(moved, best, &new.plan),
    );
    let chain = |n| Problem::new((0..n).map(|s| BufferSpec::new(64, Lifespan::new(s, s + 2))).collect());
    assert_eq!(GreedyBySize.plan(&chain(1_000))?.peak_bytes(0), 128);
    Ok(())
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|word| word == name);
    println!("| target | what | bar | measured |\n|---|---|---|---|");
    let parts: [(&str, &dyn Fn()); 8] = [
        ("hard", &|| hard(&only)),
        ("programs", &exported),
        ("scale", &scale),
        ("dense", &dense),
        ("perfect", &|| packings(10)),
        ("anytime", &anytime),
        ("replan", &|| mending().unwrap()),
        ("least", &|| least(60)),
    ];
    parts.iter().filter(|(name, _)| wanted(name)).for_each(|(_, part)| part());
}
