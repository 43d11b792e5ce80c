#![forbid(unsafe_code)]
//! Where compiled code runs: the host, or a CUDA device.
//!
//! Deliberately absent: memory and copies. Arenas and queues have those.

use super::elf::Object;
use super::handle::CPU;
use crate::delegate::DelegateError;
use crate::space::SpaceId;
use std::ffi::CString;

/// Where compiled code runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Platform {
    /// The CPU.
    Host,
    /// A CUDA device.
    #[cfg(feature = "cuda")]
    Cuda(&'static crate::space::cuda::Device),
}

/// Keeps a platform current on a thread.
pub(super) enum Entered {
    /// Nothing was to be done.
    Host,
    /// A context is current.
    #[cfg(feature = "cuda")]
    Cuda(#[expect(dead_code, reason = "held for its drop")] crate::space::cuda::Entered),
}

impl Platform {
    /// The platform of a space.
    pub(super) fn of(space: SpaceId) -> Result<Self, DelegateError> {
        if space.is_host() {
            return Ok(Self::Host);
        }
        #[cfg(feature = "cuda")]
        if space.name() == "cuda" {
            return crate::space::cuda::Device::open(space.index())
                .map(Self::Cuda)
                .map_err(|reason| DelegateError::Unavailable { reason });
        }
        Err(DelegateError::Unavailable { reason: format!("compiled code cannot run in {space} here") })
    }

    /// Device type and index, as PyTorch numbers them.
    pub(super) fn device(self) -> (i32, i32) {
        match self {
            Self::Host => (CPU, -1),
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => (super::handle::CUDA, device.index().into()),
        }
    }

    /// The device, as compiled code reads it.
    pub(super) fn name(self) -> CString {
        match self {
            Self::Host => c"cpu".into(),
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => CString::new(format!("cuda:{}", device.index())).unwrap_or_default(),
        }
    }

    /// The compute capability, as major * 10 + minor; 0 on the host.
    pub(super) fn capability(self) -> u32 {
        match self {
            Self::Host => 0,
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => device.capability().0 * 10 + device.capability().1,
        }
    }

    /// Makes the platform current on this thread until the result is dropped.
    #[cfg_attr(not(feature = "cuda"), expect(clippy::unnecessary_wraps, reason = "a device may refuse"))]
    pub(super) fn enter(self) -> Result<Entered, DelegateError> {
        match self {
            Self::Host => Ok(Entered::Host),
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => device
                .enter()
                .map(Entered::Cuda)
                .map_err(|failure| DelegateError::Unavailable { reason: failure.to_string() }),
        }
    }

    /// The address of a function of the platform that compiled code calls.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "the host has nothing to look at"))]
    pub(super) fn resolve(self, name: &str) -> Option<u64> {
        match self {
            Self::Host => None,
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => super::cudart::address(name).or_else(|| device.driver_function(name)),
        }
    }

    /// Whether compiled code gives the device work by this function, past the run's queue.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "the host has nothing to look at"))]
    pub(super) fn goes_past_the_queue(self, name: &str) -> bool {
        match self {
            Self::Host => false,
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => name.starts_with("cu") && super::cudart::goes_past_the_queue(name),
        }
    }

    /// Refuses code that was compiled for other GPUs only.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "the host has nothing to look at"))]
    #[cfg_attr(not(feature = "cuda"), expect(clippy::unnecessary_wraps, reason = "a device may refuse"))]
    pub(super) fn check(self, object: &Object<'_>) -> Result<(), DelegateError> {
        match self {
            Self::Host => Ok(()),
            #[cfg(feature = "cuda")]
            Self::Cuda(_) => super::cudart::check_targets(object, self.capability()),
        }
    }
}
