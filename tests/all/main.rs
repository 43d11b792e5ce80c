//! Every integration test, in one binary.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

mod support;

mod arena_blocks;
mod arena_cases;
mod arena_compile_fail;
mod arena_out_of_memory;
mod arena_properties;
mod arena_set;
mod space_contract;

#[cfg(feature = "exec")]
mod kernel_elementwise;
#[cfg(feature = "exec")]
mod kernel_matmul;
#[cfg(feature = "exec")]
mod method_runs;
