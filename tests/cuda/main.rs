//! On a GPU: spaces, queues and every sample program, all in one process. Compiled everywhere, counted as
//! ignored; `cargo test --features cuda --test cuda -- --ignored` runs them where a driver is.
//!
//! `ARENITE_CUDA_PROGRAMS` names a folder of `NAME.pte`, `NAME.ptd` and `NAME.npz`; without it the tests have
//! the seed program alone, from `tests/data/cuda`.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests that print"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::multiple_unsafe_ops_per_block,
    reason = "several calls on the same valid ranges"
)]

#[path = "../all/support/mod.rs"]
mod support;

mod programs;
mod spaces;
