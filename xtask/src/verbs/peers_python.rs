#![forbid(unsafe_code)]
//! `peers python`: Arenite and ExecuTorch's own wheel, side by side in one run.
//!
//! Deliberately absent: a verdict. The script prints ratios and checks answers; a reader judges.

use super::Outcome;
use crate::python::{Build, Environment};
use crate::shell;

/// Makes an environment with both, and runs `py/benches/side_by_side.py`; words go on to it.
pub(crate) fn run(words: &[String]) -> Outcome {
    let environment = Environment::ready(
        "peers",
        &["maturin>=1.9,<2", "numpy", "ml_dtypes", "executorch==1.5.1", "torch"],
    )?;
    environment.install_wheel(Build::Release)?;
    shell::run(environment.command(&["py/benches/side_by_side.py"]).args(words))
}
