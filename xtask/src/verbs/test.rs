#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line program talks on standard output")]
//! `test`: every Rust and Python test, cheap ones first, with one count at the end.
//!
//! `default` is `exec`, so four feature sets cover all: none, exec, cuda, all. The wheel is compiled with
//! checks on and shares the library that the last set built.
//!
//! Deliberately absent: lints and formatting, which `.ci/run` checks before.

use super::Outcome;
use crate::python::{Build, Environment};
use crate::shell::{self, cargo, root, target};
use std::process::Command;

const FEATURE_SETS: [&[&str]; 4] =
    [&["--no-default-features"], &[], &["--no-default-features", "--features", "cuda"], &["--all-features"]];

/// Runs all tests.
pub(crate) fn run(_words: &[String]) -> Outcome {
    let mut count = Count::default();
    for features in FEATURE_SETS {
        count.run(cargo(&["test", "--quiet", "--package", "arenite"]).args(features))?;
    }
    for package in ["arenite-capi", "xtask"] {
        count.run(&mut cargo(&["test", "--quiet", "--package", package]))?;
    }
    shell::run(&mut cargo(&["run", "--quiet", "--package", "arenite-races"]))?;
    super::sanitize::run(&[])?;
    for example in examples()? {
        shell::run(&mut cargo(&[
            "run",
            "--quiet",
            "--package",
            "arenite",
            "--all-features",
            "--example",
            &example,
        ]))?;
    }
    a_diverging_replay_ends_with_1()?;
    let packages = ["maturin>=1.9,<2", "numpy", "ml_dtypes", "pytest", "pytest-timeout", "mypy"];
    let environment = Environment::ready("test", &packages)?;
    environment.install_wheel(Build::Checked)?;
    count.run(&mut environment.command(&["-m", "pytest", "-c", "py/pyproject.toml", "py/tests"]))?;
    println!("\n{} passed, {} failed", count.passed, count.failed);
    Ok(())
}

/// A trace that asks for more than there is: the example that replays it ends with 1 and names the event.
fn a_diverging_replay_ends_with_1() -> Outcome {
    let path = target().join("diverges.csv");
    let log = "Thread,Time,Action,Pointer,Size,Stream\n1,0,allocate,0x7f0000000000,1048576,0\n";
    std::fs::write(&path, log).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut example = cargo(&["run", "--quiet", "--package", "arenite", "--all-features", "--example"]);
    let output = example.args(["08_trace", "--"]).arg(&path).arg("4096").output();
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(1) && said.contains("event 0") {
        return Ok(());
    }
    Err(format!("a replay that diverges ended with {} and said: {said}", output.status))
}

/// The examples that need no argument and no special hardware.
fn examples() -> Result<Vec<String>, String> {
    let folder = root().join("examples");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| Some(name.strip_suffix(".rs")?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Tests seen so far.
#[derive(Default)]
struct Count {
    passed: u64,
    failed: u64,
}

impl Count {
    /// Runs a test command and adds what its summary lines say.
    fn run(&mut self, command: &mut Command) -> Outcome {
        shell::run_lines(command, |line| self.add(line))
    }

    fn add(&mut self, line: &str) {
        // `test result: ok. 12 passed; 0 failed; …` and `==== 12 passed, 1 failed in 3.45s ====`.
        let is_summary =
            line.starts_with("test result:") || (line.contains(" in ") && line.contains("passed"));
        if !is_summary {
            return;
        }
        let words: Vec<&str> = line.split([' ', ',', ';', '=']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let number = pair[0].parse::<u64>().unwrap_or(0);
            match pair[1] {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Count;

    #[test]
    fn summaries_of_both_runners_are_added_up() {
        let mut count = Count::default();
        count.add("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; finished in 0.1s");
        count.add("test all::method_runs::seed_net ... ok");
        count.add("======== 3 passed, 1 failed, 2 skipped in 3.45s ========");
        assert_eq!((count.passed, count.failed), (15, 1));
    }
}
