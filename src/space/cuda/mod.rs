//! CUDA memory: devices, their memory, page-locked host memory, and queues of work.
//!
//! ```text
//!   Device::open(0) ─┬─ CudaSpace     cuda:0    addresses reserved once, memory mapped as arenas grow
//!                    ├─ PinnedSpace   pinned    host memory that the device copies to and from
//!                    └─ CudaQueue     copies, fills, events, graphs, in order
//! ```
//!
//! The driver is looked for at run time: where there is none, [`absence`] says so and nothing else fails.
//! Device memory is reused only in queue order; whoever hands it to another queue waits for a [`CudaEvent`].
//!
//! Deliberately absent: kernels. Those come with programs, through a delegate.

mod context;
mod copy;
mod crossing;
mod device;
pub(crate) mod driver;
mod event;
mod graph;
mod peers;
mod pinned;
mod queue;
mod staging;

#[cfg(feature = "exec")]
pub(crate) use context::Entered;
pub use context::{Device, absence, device_count, frees_after_shutdown};
pub use device::CudaSpace;
pub use event::CudaEvent;
pub use pinned::{PinnedSpace, is_pinned};
pub use queue::CudaQueue;
pub use staging::trim_staging;

use super::{MemorySpace, SpaceId};
use core::ops::Range;
use std::sync::Arc;

/// The ordinals of devices that an arena set of this machine knows by name.
pub(crate) const DEVICES: Range<u16> = 0..16;

/// Opens a space of this module by its id.
///
/// # Errors
/// A sentence that says why it cannot be used.
pub fn open(id: SpaceId) -> Result<Arc<dyn MemorySpace>, String> {
    if id == SpaceId::PINNED {
        return Ok(Arc::new(PinnedSpace::new()?));
    }
    if id == SpaceId::cuda(id.index()) {
        return Ok(Arc::new(CudaSpace::new(id.index())?));
    }
    Err(format!("{id} is no CUDA space"))
}
