//! A program planned anew gives the same numbers in fewer bytes, or says why it cannot be.

use super::support::method::{loader_of, run, zeros};
use super::support::npz;
use super::support::program::sample;
use arenite::exec::{ErrorKind, LoadOptions, Replan};
use std::path::{Path, PathBuf};

fn with_plan(path: &Path, replan: Replan) -> arenite::exec::Loader {
    let mut options = LoadOptions::default();
    options.replan = replan;
    loader_of(&std::fs::read(path).unwrap(), options)
}

/// Runs `forward` under each plan, compares every byte of the outputs, and gives (file, greedy, best, bound).
fn peaks(path: &Path) -> (usize, usize, usize, usize) {
    let arrays = npz::read(path.with_extension("npz"));
    let mut totals = Vec::new();
    let mut outputs = Vec::new();
    let mut bound = 0;
    for replan in [Replan::File, Replan::Greedy, Replan::Best] {
        let mut method = with_plan(path, replan).load("forward").unwrap();
        let stored: Vec<_> = (0..).map_while(|index| arrays.get(&format!("forward.in{index}"))).collect();
        let zeros = zeros(&method);
        let inputs = if stored.is_empty() { zeros.iter().collect() } else { stored };
        let mut both = run(&mut method, &inputs);
        both.extend(run(&mut method, &inputs));
        outputs.push(both.into_iter().map(|out| out.bytes).collect::<Vec<_>>());
        let report = method.memory_report();
        totals.push(report.spaces.iter().map(|space| space.planned_bytes).sum::<usize>());
        bound = report.spaces.iter().map(|space| space.lower_bound_bytes.unwrap()).sum();
        assert!(report.spaces.iter().all(|space| space.planned_bytes <= space.file_bytes));
        assert_eq!(report.to_string().contains("planned anew"), totals[totals.len() - 1] < totals[0]);
    }
    assert!(outputs.iter().all(|out| *out == outputs[0]), "{}", path.display());
    (totals[0], totals[1], totals[2], bound)
}

#[test]
fn a_new_plan_reaches_the_lower_bound_and_changes_no_output() {
    let mut paths: Vec<PathBuf> =
        ["seed_net", "mlp", "kv", "chain100"].iter().map(|name| sample(name).with_extension("pte")).collect();
    paths.push(sample("cases/h15_three_memory_ids.pte"));
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/programs/host");
    for name in ["lm", "resnet_small", "mv2_small"] {
        let path = programs.join(name).with_extension("pte");
        if path.exists() {
            paths.push(path);
        }
    }
    for path in paths {
        let (file, greedy, best, bound) = peaks(&path);
        assert!(best <= greedy && greedy <= file, "{}", path.display());
        assert_eq!(best, bound, "{}: the file holds {file}", path.display());
    }
}

#[test]
fn several_memory_ids_in_one_space_become_one_plan() {
    let (file, _, best, _) = peaks(&sample("cases/h15_three_memory_ids.pte"));
    assert_eq!(file, 640 + 2048 + 512);
    assert!(best < file);
}

#[test]
fn control_flow_is_not_planned_anew_and_says_so() {
    let error = with_plan(&sample("cases/h11_cond_and_map.pte"), Replan::Best).load("forward").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Plan);
    assert!(
        error.to_string().contains("forward: its memory cannot be planned anew: it has jumps"),
        "{error}"
    );
}

#[test]
fn state_survives_a_new_plan() {
    for replan in [Replan::Greedy, Replan::Best] {
        let loader = with_plan(&sample("cases/h02_shared_state.pte"), replan);
        let (mut forward, mut get) = (loader.load("forward").unwrap(), loader.load("get_state").unwrap());
        let before = run(&mut get, &[])[0].bytes.clone();
        let ones = super::support::kernel::Data::new(&[2, 2], &[1.0_f32; 4]);
        run(&mut forward, &[&ones]);
        assert_ne!(run(&mut get, &[])[0].bytes, before);
        get.reset_state().unwrap();
        assert_eq!(run(&mut get, &[])[0].bytes, before);
    }
}
