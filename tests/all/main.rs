//! Every integration test, in one binary.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

mod support;

#[cfg(feature = "exec")]
mod kernel_elementwise;
#[cfg(feature = "exec")]
mod kernel_indexing;
#[cfg(feature = "exec")]
mod kernel_matmul;
#[cfg(feature = "exec")]
mod kernel_pad;
#[cfg(feature = "exec")]
mod kernel_prim;
#[cfg(feature = "exec")]
mod kernel_rearrange;
#[cfg(feature = "exec")]
mod kernel_view;
#[cfg(feature = "exec")]
mod method_runs;
