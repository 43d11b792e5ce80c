#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line program talks on standard output")]
//! The project's commands.
//!
//! ```text
//! cargo xtask demo            build the wheel, run a program from Python, show the report
//! cargo xtask gpu-bundle      one folder for a machine with a GPU
//! cargo xtask sanitize        what threads do at once, under sanitizers
//! cargo xtask test            every Rust and Python test
//! cargo xtask peers alloc     arenas and pools beside their peers in Rust
//! cargo xtask peers plan      the planner beside its targets and MiniMalloc
//! cargo xtask peers python    Arenite beside ExecuTorch's own wheel
//! ```
//!
//! A verb is a file in `verbs/` and a row in [`verbs::TABLE`]. Deliberately absent: dependencies; a fresh
//! clone needs Rust and Python 3.10 or later, nothing else.

mod python;
mod shell;
mod verbs;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((verb, rest)) = verbs::find(&words) else {
        println!("cargo xtask VERB\n");
        for verb in verbs::TABLE {
            println!("  {:16} {}", verb.name, verb.about);
        }
        return ExitCode::from(2);
    };
    match (verb.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("\ncargo xtask {}: {failure}", verb.name);
            ExitCode::FAILURE
        }
    }
}
