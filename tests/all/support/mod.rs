//! What tests share: a fake device, and a generator of numbers.

mod fake_device;
mod numbers;

pub(crate) use fake_device::FakeDevice;
pub(crate) use numbers::Numbers;
