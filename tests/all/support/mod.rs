//! What several test modules share.
#![allow(dead_code, reason = "each feature set uses a part")]

pub mod fake_device;
#[cfg(feature = "exec")]
pub mod kernel;
pub mod memory;
#[cfg(feature = "exec")]
pub mod npz;
pub mod numbers;
