//! Pinned memory that copies pass through, given out in order and taken back as a whole.
//!
//! Deliberately absent: knowing when copies are done. The queue resets it after waiting.

use super::context::Device;
use super::pinned::PinnedSpace;
use crate::space::{AllocError, Block, MemorySpace};
use core::alloc::Layout;
use core::ptr::NonNull;
use parking_lot::Mutex;

/// The first block in bytes: page-locking has a large fixed cost.
const FIRST_BYTES: usize = 64 << 10;
/// Where each piece starts, in bytes: what copy engines like.
const ALIGN_BYTES: usize = 256;

/// The most first blocks that are kept for later queues.
const IDLE_MAX: usize = 8;

/// First blocks of queues that are gone: page-locking one takes longer than loading a method.
static IDLE: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// Takes a first block for later queues: a process's first page-locked memory costs a millisecond, which is
/// better spent while a device is opened.
pub(super) fn warm_up(device: &'static Device) {
    let mut staging = Staging::new(PinnedSpace::on(device));
    // Where that fails, the first queue that needs it says so.
    let _ = staging.take(1);
}

/// Gives back the pinned memory that is kept for later queues, and says how many bytes that was.
pub fn trim_staging() -> usize {
    let idle = core::mem::take(&mut *IDLE.lock());
    let Some(space) = idle.first().and_then(|_| PinnedSpace::new().ok()) else { return 0 };
    for block in &idle {
        // SAFETY: blocks of pinned memory belong to every pinned space alike; nothing uses these.
        unsafe { space.deallocate(*block) };
    }
    idle.len() * FIRST_BYTES
}

/// A bump over pinned blocks.
#[derive(Debug)]
pub(super) struct Staging {
    space: PinnedSpace,
    /// The last is in use, the ones before are full.
    blocks: Vec<Block>,
    used_bytes: usize,
}

impl Staging {
    pub(super) fn new(space: PinnedSpace) -> Self {
        Self { space, blocks: Vec::new(), used_bytes: 0 }
    }

    /// Memory of this size until the next reset.
    pub(super) fn take(&mut self, size_bytes: usize) -> Result<NonNull<u8>, AllocError> {
        let id = self.space.id();
        let too_large = || AllocError::too_large(id, size_bytes, ALIGN_BYTES);
        let rounded = size_bytes.checked_next_multiple_of(ALIGN_BYTES).ok_or_else(too_large)?;
        let held = self.blocks.last().map_or(0, Block::size_bytes);
        if held - self.used_bytes < rounded {
            self.add_block(rounded.max(FIRST_BYTES).max(held.saturating_mul(2)))?;
        }
        let block = self.blocks.last().ok_or_else(too_large)?;
        // SAFETY: `used_bytes` is at most the block's size less `rounded`.
        let address = unsafe { block.address().add(self.used_bytes) };
        self.used_bytes += rounded;
        Ok(address)
    }

    fn add_block(&mut self, size_bytes: usize) -> Result<(), AllocError> {
        let layout = Layout::from_size_align(size_bytes, ALIGN_BYTES)
            .map_err(|_| AllocError::too_large(self.space.id(), size_bytes, ALIGN_BYTES))?;
        let idle = if size_bytes == FIRST_BYTES { IDLE.lock().pop() } else { None };
        self.blocks.push(match idle {
            Some(block) => block,
            None => self.space.allocate(layout)?,
        });
        self.used_bytes = 0;
        Ok(())
    }

    /// Takes everything back; keeps the largest block.
    pub(super) fn reset(&mut self) {
        self.used_bytes = 0;
        let keep = self.blocks.len().saturating_sub(1);
        for block in self.blocks.drain(..keep) {
            give_back(&self.space, block);
        }
    }
}

/// Keeps a first block for a later queue, or gives it to the driver. The copies through it are done: whoever
/// drops or resets staging waited.
fn give_back(space: &PinnedSpace, block: Block) {
    let mut idle = IDLE.lock();
    if block.size_bytes() == FIRST_BYTES && idle.len() < IDLE_MAX {
        idle.push(block);
        return;
    }
    drop(idle);
    // SAFETY: it came from a pinned space of this process, and nothing uses it.
    unsafe { space.deallocate(block) };
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.reset();
        for block in self.blocks.drain(..) {
            give_back(&self.space, block);
        }
    }
}
