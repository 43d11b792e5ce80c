//! The CUDA spaces, queues and the delegate's host path on a stand-in for the driver. None of this is CUDA.
#![allow(
    clippy::cast_possible_truncation,
    clippy::multiple_unsafe_ops_per_block,
    clippy::print_stdout,
    clippy::pedantic,
    reason = "several calls on the same valid ranges"
)]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

#[path = "../all/support/mod.rs"]
mod support;

mod programs;
mod recorded;
mod resident;
mod spaces;
mod stand_in;
