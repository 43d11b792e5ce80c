//! What several test modules share: a fake device, numbers, kernels by name, arrays of files, program files, memory that touches.
#![allow(dead_code, unused_imports, reason = "each feature set uses a part")]

pub mod fake_device;
pub mod memory;
pub mod numbers;
pub mod touching;

#[cfg(feature = "exec")]
pub mod golden;
#[cfg(feature = "exec")]
pub mod kernel;
#[cfg(feature = "exec")]
pub mod method;
#[cfg(feature = "exec")]
pub mod npz;
#[cfg(feature = "exec")]
pub mod program;
#[cfg(feature = "exec")]
pub mod pte;

pub(crate) use fake_device::FakeDevice;
pub(crate) use numbers::Numbers;
