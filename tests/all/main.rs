//! Every integration test, in one binary.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "tests")]

mod support;

#[cfg(feature = "exec")]
mod golden;
#[cfg(feature = "exec")]
mod kernel_conv;
#[cfg(feature = "exec")]
mod kernel_matmul;
#[cfg(feature = "exec")]
mod kernel_norm;
#[cfg(feature = "exec")]
mod kernel_pool;
#[cfg(feature = "exec")]
mod kernel_reduce;
#[cfg(feature = "exec")]
mod kernel_softmax;
