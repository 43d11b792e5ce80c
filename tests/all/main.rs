//! Every integration test, in one binary.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

mod support;

#[cfg(feature = "exec")]
mod kernel_elementwise;
#[cfg(feature = "exec")]
mod kernel_matmul;
#[cfg(feature = "exec")]
mod program_broken;
#[cfg(feature = "exec")]
mod program_data_files;
#[cfg(feature = "exec")]
mod program_reads;
#[cfg(feature = "exec")]
mod program_rejects;
