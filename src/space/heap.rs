//! The program's own heap, as a space: for arenas that are small and come and go often.
//!
//! Deliberately absent: reserving, zeroes, figures. [`HostSpace`](super::HostSpace) has them; wrappers add them.

use super::{AllocError, AllocErrorKind, Block, HostAccessible, MemorySpace, SpaceId};
use core::alloc::Layout;
use core::ptr::NonNull;

/// Memory of the global allocator: exact blocks, nothing else.
///
/// Making an arena over it costs two calls of `malloc`, where [`HostSpace`](super::HostSpace) asks the system for
/// addresses; in return a large arena is in several pieces.
///
/// # Examples
/// ```
/// use arenite::{Arena, HeapSpace};
/// let arena = Arena::new(HeapSpace);
/// assert_eq!(arena.alloc_str("short-lived"), "short-lived");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapSpace;

// SAFETY: blocks come from the global allocator, which gives disjoint memory of the asked size and alignment,
// valid for reads and writes from any thread until given back; the answers about the space are constants.
unsafe impl MemorySpace for HeapSpace {
    fn id(&self) -> SpaceId {
        SpaceId::HOST
    }

    fn host_accessible(&self) -> bool {
        true
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        if layout.size() == 0 {
            return Ok(Block::empty(layout));
        }
        let kind = AllocErrorKind::Refused { reason: "the heap is out of memory" };
        let wide =
            layout.align_to(self.base_align()).map_err(|_| AllocError::new(self.id(), layout, kind))?;
        // SAFETY: the layout has a size.
        match NonNull::new(unsafe { std::alloc::alloc(wide) }) {
            Some(address) => Ok(Block::new(address, layout)),
            None => Err(AllocError::new(self.id(), layout, kind)),
        }
    }

    unsafe fn deallocate(&self, block: Block) {
        if let (Ok(wide), true) = (block.layout().align_to(self.base_align()), block.size_bytes() > 0) {
            // SAFETY: `allocate` took the block from the global allocator with this layout.
            unsafe { std::alloc::dealloc(block.address().as_ptr(), wide) };
        }
    }
}

// SAFETY: `host_accessible` is true.
unsafe impl HostAccessible for HeapSpace {}
