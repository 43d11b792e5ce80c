//! A pool as a space: arenas and arena sets may stand on it.

use super::Pool;
use crate::space::{AllocError, Block, HostAccessible, MemorySpace, Queue, QueueError, SpaceId};
use core::alloc::Layout;

// SAFETY:
// * blocks are live nodes, which are disjoint (F1), as large and aligned as asked, and lie in extents that came
//   from the space within and stay until the node is given back (P3);
// * the CPU reaches them where it reaches those of the space within;
// * the answers about the space are constants of the space within.
unsafe impl<S: MemorySpace> MemorySpace for Pool<S> {
    fn id(&self) -> SpaceId {
        self.space.id()
    }

    fn host_accessible(&self) -> bool {
        self.space.host_accessible()
    }

    fn open_queue(&self) -> Result<Option<Box<dyn Queue>>, QueueError> {
        self.space.open_queue()
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        let (block, at) = self.take(layout)?;
        if layout.size() > 0 {
            self.state.lock().addresses.insert(block.address_bits(), at);
        }
        Ok(block)
    }

    unsafe fn deallocate(&self, block: Block) {
        if block.size_bytes() == 0 {
            return;
        }
        let mut state = self.state.lock();
        if let Some(at) = state.addresses.remove(&block.address_bits()) {
            self.tell_giving_back(&state, at);
            state.give(at, 0, 0);
        }
    }

    fn base_align(&self) -> usize {
        self.space.base_align()
    }
}

// SAFETY: as the space within.
unsafe impl<S: HostAccessible> HostAccessible for Pool<S> {}
