//! Delegates whose payload is code compiled by PyTorch's AOTInductor: a shared object inside the program.
//!
//! ```text
//!   payload ──► named data ──► Object (checked private copy, edited) ──► Library (loaded once per process)
//!                              shims bound in                             └► Container (one per delegate)
//!   execute:  handles on planned buffers ──► Container::run ──► shims ──► Backend: scratch, copies, stream
//! ```
//!
//! Deliberately absent: unloading, and operators: a program that needs one is refused by its name.

mod container;
mod elf;
#[cfg(feature = "cuda")]
mod fatbin;
mod handle;
mod library;
mod load;
mod loaded;
mod operands;
mod payload;
mod platform;
mod run;
mod shims;
mod unwind;
mod weights;
mod working;

#[cfg(feature = "cuda")]
mod cudart;

use super::{Delegate, DelegateError, DelegateLoad, DelegatePayload, LoadedDelegate, Preparation};

/// Runs code compiled for the CPU. Programs are exported for it by tests only; it shares everything but the
/// device with `CudaBackend`, so it is how that is tested without one. Not in a registry unless added.
#[derive(Clone, Copy, Debug, Default)]
pub struct AotiCpuBackend;

impl Delegate for AotiCpuBackend {
    fn id(&self) -> &'static str {
        "AotiCpuBackend"
    }

    fn prepare<'a>(&self, payload: &DelegatePayload<'a>) -> Option<Preparation<'a>> {
        load::prepare(payload)
    }

    fn load(&self, load: &mut DelegateLoad<'_>) -> Result<Box<dyn LoadedDelegate>, DelegateError> {
        if !load.payload.space.is_host() {
            let reason =
                format!("its code runs on the host, its arguments are planned in {}", load.payload.space);
            return Err(DelegateError::Incompatible { reason });
        }
        Ok(Box::new(load::load(load)?))
    }
}

/// Runs the parts of a program that ExecuTorch's CUDA partitioner compiled.
#[cfg(feature = "cuda")]
#[derive(Clone, Copy, Debug, Default)]
pub struct CudaBackend;

#[cfg(feature = "cuda")]
impl Delegate for CudaBackend {
    fn id(&self) -> &'static str {
        "CudaBackend"
    }

    fn absence(&self) -> Option<String> {
        crate::space::cuda::absence(0)
    }

    fn prepare<'a>(&self, payload: &DelegatePayload<'a>) -> Option<Preparation<'a>> {
        load::prepare(payload)
    }

    fn load(&self, load: &mut DelegateLoad<'_>) -> Result<Box<dyn LoadedDelegate>, DelegateError> {
        if let Some(reason) = self.absence() {
            return Err(DelegateError::Unavailable { reason });
        }
        if load.payload.space.name() != "cuda" {
            let reason = format!(
                "its code runs on a CUDA device, its arguments are planned in {}",
                load.payload.space
            );
            return Err(DelegateError::Incompatible { reason });
        }
        Ok(Box::new(load::load(load)?))
    }
}
