#![forbid(unsafe_code)]
//! `peers alloc`: arenas and pools beside bumpalo, bump-scope and blink-alloc, in one run; then instruction counts.
//!
//! Deliberately absent: a verdict on times. The tables are printed; counts that grew fail.

use super::Outcome;
use crate::shell::{self, cargo};

/// Runs `benches/peers` and `benches/counts.rs`.
pub(crate) fn run(_words: &[String]) -> Outcome {
    for name in ["peers", "counts"] {
        let arguments = ["bench", "--quiet", "--package", "arenite", "--no-default-features"];
        shell::run(cargo(&arguments).args(["--features", "allocator-api2", "--bench", name]))?;
    }
    Ok(())
}
