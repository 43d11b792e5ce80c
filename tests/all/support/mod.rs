//! What several test modules share.
#![allow(dead_code, reason = "each feature set uses a part")]

#[cfg(feature = "exec")]
pub mod golden;
#[cfg(feature = "exec")]
pub mod kernel;
#[cfg(feature = "exec")]
pub mod npz;
