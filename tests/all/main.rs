//! The tests of Arenite, one module per behaviour, through the public API.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

mod arena_blocks;
mod arena_set;
mod space_contract;
mod support;

#[cfg(all(feature = "exec", target_os = "linux"))]
mod delegate_aoti;
#[cfg(feature = "exec")]
mod kernel_conv;
#[cfg(feature = "exec")]
mod kernel_elementwise;
#[cfg(feature = "exec")]
mod kernel_matmul;
#[cfg(feature = "exec")]
mod method_runs;
