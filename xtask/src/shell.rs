#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command line program talks on standard output")]
//! Running programs: where, with what said, and what came of it.
//!
//! Deliberately absent: a shell. Arguments are passed as they are.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The top of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Where builds and environments go.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A program to run at the top of the repository.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Cargo, the one that runs this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), arguments)
}

/// Says what is run, runs it, and fails where it fails.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    announce(command);
    let status = command.status().map_err(|error| format!("{}: {error}", show(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", show(command))) }
}

/// As [`run`], and gives every line of standard output to `each` in the place of printing it.
pub(crate) fn run_lines(command: &mut Command, mut each: impl FnMut(&str)) -> Result<(), String> {
    announce(command);
    let failed = |error: std::io::Error| error.to_string();
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            each(&line.map_err(failed)?);
        }
    }
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", show(command))) }
}

fn announce(command: &Command) {
    println!("\n$ {}", show(command));
}

fn show(command: &Command) -> String {
    let root = root();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let relative = |word: &std::ffi::OsStr| {
        let path = Path::new(word);
        path.strip_prefix(&root).unwrap_or(path).display().to_string()
    };
    words.map(relative).collect::<Vec<_>>().join(" ")
}
