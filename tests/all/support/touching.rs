//! A space of the host whose blocks touch, and that never has one again.

use arenite::{AllocError, AllocErrorKind, Block, HostAccessible, MemorySpace, SpaceId};
use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::Mutex;

/// Zeroed memory of the host in blocks that touch: each the neighbour of the one before, above or below it.
#[derive(Debug)]
pub struct Touching {
    memory: Vec<u64>,
    /// What is taken, from the start or from the end on.
    taken_bytes: Mutex<usize>,
    upwards: bool,
}

impl Touching {
    pub fn new(upwards: bool) -> Self {
        Self { memory: vec![0; 1 << 20], taken_bytes: Mutex::new(0), upwards }
    }
}

// SAFETY: blocks never overlap, since `taken_bytes` only moves on; they lie in memory that stays as long as the space,
// and that nobody else uses; it was zero and is given once.
unsafe impl MemorySpace for Touching {
    fn id(&self) -> SpaceId {
        SpaceId::HOST
    }
    fn host_accessible(&self) -> bool {
        true
    }
    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        let mut taken_bytes = self.taken_bytes.lock().unwrap();
        let base = NonNull::new(self.memory.as_ptr().cast_mut().cast::<u8>()).unwrap();
        let (first, size_bytes) = (base.addr().get(), self.memory.len() * 8);
        let start = if self.upwards {
            (first + *taken_bytes).next_multiple_of(layout.align())
        } else {
            (first + size_bytes - *taken_bytes).saturating_sub(layout.size()) & !(layout.align() - 1)
        };
        let taken = if self.upwards {
            start + layout.size() - first
        } else {
            (first + size_bytes).saturating_sub(start)
        };
        if taken > size_bytes {
            return Err(AllocError::new(self.id(), layout, AllocErrorKind::NotNow));
        }
        *taken_bytes = taken;
        // SAFETY: within the memory, as was checked just now.
        Ok(Block::new(unsafe { base.add(start - first) }, layout))
    }
    unsafe fn deallocate(&self, _block: Block) {}
    fn base_align(&self) -> usize {
        1
    }
    fn gives_zeroed(&self) -> bool {
        true
    }
}

// SAFETY: as said above.
unsafe impl HostAccessible for Touching {}
