#![forbid(unsafe_code)]
//! `demo`: from a fresh clone to a program that runs from Python.
//!
//! Deliberately absent: figures on speed; `peers` takes those.

use super::Outcome;
use crate::python::{Build, Environment};
use crate::shell;

/// Makes an environment, builds and installs the wheel, and runs `examples/demo.py` with it.
pub(crate) fn run(_words: &[String]) -> Outcome {
    let environment = Environment::ready("demo", &["maturin>=1.9,<2", "numpy"])?;
    environment.install_wheel(Build::Release)?;
    shell::run(&mut environment.command(&["-W", "error", "examples/demo.py"]))
}
