//! What several test modules share: a fake device, numbers, kernels by name, arrays of files.
#![allow(dead_code, unused_imports, reason = "each feature set uses a part")]

mod fake_device;
mod numbers;

#[cfg(feature = "exec")]
pub mod kernel;
#[cfg(feature = "exec")]
pub mod npz;

pub(crate) use fake_device::FakeDevice;
pub(crate) use numbers::Numbers;
