#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line program talks on standard output")]
//! `peers plan`: the planner beside its targets, and beside `MiniMalloc` where that can be had.
//!
//! `--minimalloc FOLDER` or the variable `MINIMALLOC_SOURCE` names a checkout of `MiniMalloc` with Abseil in
//! `external/abseil-cpp`. Without one it is fetched from its public address. From it and `xtask/minimalloc` a
//! program is built below the target folder that solves and times one problem after another; without git, cmake or
//! a network the table goes without its column. Deliberately absent: a verdict.

use super::Outcome;
use crate::shell;
use std::path::{Path, PathBuf};

/// Where `MiniMalloc` is published.
const SOURCE: &str = "https://github.com/google/minimalloc.git";

/// Prints the table; words choose rows (`hard`, `programs`, `scale`, …).
pub(crate) fn run(words: &[String]) -> Outcome {
    let mut rows = words.to_vec();
    let mut source = std::env::var_os("MINIMALLOC_SOURCE").map(PathBuf::from);
    if let Some(at) = rows.iter().position(|word| word == "--minimalloc") {
        let named = rows.drain(at..rows.len().min(at + 2)).nth(1);
        source =
            Some(named.ok_or("--minimalloc needs the folder of a checkout of MiniMalloc after it")?.into());
    }
    let mut bench = shell::cargo(&["bench", "--bench", "plan_table", "--"]);
    bench.args(rows);
    match timing_program(source) {
        Ok(program) => drop(bench.env("MINIMALLOC_TIME", program)),
        Err(why) => println!("without MiniMalloc: {why}"),
    }
    shell::run(&mut bench)
}

/// The program that times `MiniMalloc`, built once for each checkout.
fn timing_program(source: Option<PathBuf>) -> Result<PathBuf, String> {
    let home = shell::target().join("peers");
    let build = home.join(if source.is_some() { "minimalloc_time_given" } else { "minimalloc_time" });
    let source = match source {
        Some(given) => given.canonicalize().map_err(|error| format!("{}: {error}", given.display()))?,
        None => fetched(&home.join("minimalloc"))?,
    };
    let define = format!("-DMINIMALLOC_SOURCE={}", source.display());
    let (from, to) = (words_of(&shell::root().join("xtask/minimalloc")), words_of(&build));
    shell::run(&mut shell::command(
        "cmake",
        &["-S", &from, "-B", &to, "-DCMAKE_BUILD_TYPE=Release", &define],
    ))?;
    shell::run(&mut shell::command("cmake", &["--build", &to, "--parallel", "2"]))?;
    let program = build.join("minimalloc_time");
    if program.exists() { Ok(program) } else { Err("its build made no program of that name".into()) }
}

/// A checkout of `MiniMalloc` and the Abseil it names.
fn fetched(home: &Path) -> Result<PathBuf, String> {
    let folder = words_of(home);
    if !home.join("src").exists() {
        shell::run(&mut shell::command("git", &["clone", "--depth", "1", SOURCE, &folder]))?;
    }
    if !home.join("external/abseil-cpp/CMakeLists.txt").exists() {
        let update = ["-C", &folder, "submodule", "update", "--init", "--depth", "1", "external/abseil-cpp"];
        shell::run(&mut shell::command("git", &update))?;
    }
    Ok(home.to_path_buf())
}

fn words_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
