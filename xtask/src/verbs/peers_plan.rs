#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line program talks on standard output")]
//! `peers plan`: the planner beside its targets, and beside `MiniMalloc` where that can be had.
//!
//! `MiniMalloc` is fetched from its public address and built below the target folder; without git, cmake or a
//! network the table goes without its column. Deliberately absent: a verdict.

use super::Outcome;
use crate::shell;
use std::path::{Path, PathBuf};

/// Where `MiniMalloc` is published.
const SOURCE: &str = "https://github.com/google/minimalloc.git";

/// Prints the table; words choose rows (`hard`, `programs`, `scale`, …).
pub(crate) fn run(words: &[String]) -> Outcome {
    let mut bench = shell::cargo(&["bench", "--bench", "plan_table", "--"]);
    bench.args(words);
    match minimalloc() {
        Ok(program) => drop(bench.env("MINIMALLOC", program)),
        Err(why) => println!("without MiniMalloc: {why}"),
    }
    shell::run(&mut bench)
}

/// The program `minimalloc`, fetched and built once.
fn minimalloc() -> Result<PathBuf, String> {
    let home = shell::target().join("peers").join("minimalloc");
    let program = home.join("build").join("minimalloc");
    if program.exists() {
        return Ok(program);
    }
    if !home.join("CMakeLists.txt").exists() {
        let folder = words_of(&home);
        shell::run(&mut shell::command(
            "git",
            &["clone", "--depth", "1", "--recurse-submodules", SOURCE, &folder],
        ))?;
    }
    let (source, build) = (words_of(&home), words_of(&home.join("build")));
    shell::run(&mut shell::command("cmake", &["-S", &source, "-B", &build, "-DCMAKE_BUILD_TYPE=Release"]))?;
    shell::run(&mut shell::command(
        "cmake",
        &["--build", &build, "--parallel", "2", "--target", "minimalloc"],
    ))?;
    if program.exists() { Ok(program) } else { Err("its build made no program of that name".into()) }
}

fn words_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
