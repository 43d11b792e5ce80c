//! The program's own heap, as a space: for arenas that are small and come and go often.
//!
//! ```text
//!   what the global allocator gave   │ … │ its address │ the block, at a cache line ▓▓▓▓▓▓▓▓▓▓ │
//! ```
//!
//! Copies into memory that does not start at a cache line take a quarter longer, and the global allocator is quick
//! only where no such alignment is asked of it: blocks have a word before them that says where they came from.
//!
//! Deliberately absent: reserving, zeroes, figures. [`HostSpace`](super::HostSpace) has them; wrappers add them.

use super::{AllocError, AllocErrorKind, Block, HostAccessible, MemorySpace, SpaceId};
use core::alloc::Layout;
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;

/// Memory of the global allocator: exact blocks, nothing else.
///
/// Where [`HostSpace`](super::HostSpace) asks the system for addresses, this asks the heap for a chunk; in return a
/// large arena is in several pieces. Each thread keeps up to 256 KiB of what it gave back, so that arenas that come
/// and go one after another ask for little, and the heap does not return pages to the system in between.
///
/// # Examples
/// ```
/// use arenite::{Arena, HeapSpace};
/// let arena = Arena::new(HeapSpace);
/// assert_eq!(arena.alloc_str("short-lived"), "short-lived");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapSpace;

/// A cache line, in bytes.
const BASE_ALIGN: usize = 64;
/// What the global allocator gives at least, without being asked, in bytes.
const WORD_ALIGN: usize = align_of::<NonNull<u8>>();
/// The block that a thread keeps: the first chunk of an arena.
const SPARE: Layout = match Layout::from_size_align(1024, BASE_ALIGN) {
    Ok(layout) => layout,
    Err(_) => panic!("the size and alignment of a small chunk"),
};

/// What a thread keeps at most, in bytes and in blocks, and the least that is worth it.
const KEPT_BYTES_MAX: usize = 256 << 10;
const KEPT_BLOCKS_MAX: usize = 8;
const KEPT_BYTES_MIN: usize = 2 << 10;

/// What a thread keeps: a first chunk, which is taken and kept in a few steps, and later ones, the oldest first.
struct Kept {
    first: Cell<Option<NonNull<u8>>>,
    later: RefCell<[Option<Block>; KEPT_BLOCKS_MAX]>,
}

impl Kept {
    #[inline]
    fn keep_first(&self, address: NonNull<u8>) -> bool {
        let is_free = self.first.get().is_none();
        if is_free {
            self.first.set(Some(address));
        }
        is_free
    }

    fn take_later(&self, layout: Layout) -> Option<Block> {
        let mut later = self.later.try_borrow_mut().ok()?;
        later.iter_mut().find(|slot| slot.is_some_and(|block| block.layout() == layout))?.take()
    }

    /// Keeps a block instead of older ones; false where it is not worth it.
    fn keep_later(&self, block: Block) -> bool {
        let Ok(mut later) = self.later.try_borrow_mut() else { return false };
        if !(KEPT_BYTES_MIN..=KEPT_BYTES_MAX / 2).contains(&block.size_bytes()) {
            return false;
        }
        loop {
            let held_bytes: usize = later.iter().flatten().map(Block::size_bytes).sum();
            let free = later.iter().position(Option::is_none);
            if let Some(free) = free.filter(|_| held_bytes + block.size_bytes() <= KEPT_BYTES_MAX) {
                // In order of age, the holes in front.
                later[..=free].rotate_right(1);
                later.rotate_left(1);
                later[KEPT_BLOCKS_MAX - 1] = Some(block);
                return true;
            }
            if let Some(oldest) = later.iter_mut().find_map(Option::take) {
                // SAFETY: what is kept came from `take` with this layout and is nobody's.
                unsafe { give_back(oldest.address(), oldest.layout()) };
            }
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let first = self.first.take().map(|address| Block::new(address, SPARE));
        for block in self.later.get_mut().iter_mut().filter_map(Option::take).chain(first) {
            // SAFETY: what is kept came from `take` with this layout and is nobody's.
            unsafe { give_back(block.address(), block.layout()) };
        }
    }
}

thread_local!(static KEPT: Kept = const {
    Kept { first: Cell::new(None), later: RefCell::new([None; KEPT_BLOCKS_MAX]) }
});

/// What the global allocator is asked for, and whether the block starts later in it.
fn outer(layout: Layout) -> Option<(Layout, bool)> {
    if layout.align() > BASE_ALIGN {
        return Some((layout, false));
    }
    let size_bytes = layout.size().checked_add(BASE_ALIGN + WORD_ALIGN)?;
    Some((Layout::from_size_align(size_bytes, WORD_ALIGN).ok()?, true))
}

/// Memory for a layout, which has a size, from the global allocator.
fn take(layout: Layout) -> Option<NonNull<u8>> {
    let (outer, starts_later) = outer(layout)?;
    // SAFETY: the layout has a size.
    let start = NonNull::new(unsafe { std::alloc::alloc(outer) })?;
    if !starts_later {
        return Some(start);
    }
    let ahead_bytes = BASE_ALIGN - (start.addr().get() + WORD_ALIGN - 1) % BASE_ALIGN + WORD_ALIGN - 1;
    // SAFETY: at least a word and at most a word and a cache line, by which the outer block is larger.
    let block = unsafe { start.add(ahead_bytes) };
    // SAFETY: a word before the block lies in the outer one, as far from its start as alignment wants it.
    let place = unsafe { block.cast::<NonNull<u8>>().sub(1) };
    // SAFETY: as above, and nobody else knows it.
    unsafe { place.write(start) };
    Some(block)
}

/// Gives memory back to the global allocator.
///
/// # Safety
/// * It came from [`take`] with this layout, and nothing uses it.
unsafe fn give_back(block: NonNull<u8>, layout: Layout) {
    let Some((outer, starts_later)) = outer(layout) else { return };
    let mut start = block;
    if starts_later {
        // SAFETY: `take` wrote a word there.
        let place = unsafe { block.cast::<NonNull<u8>>().sub(1) };
        // SAFETY: as above; it is outside the block, whose users write within it.
        start = unsafe { place.read() };
    }
    // SAFETY: the global allocator gave this for this layout.
    unsafe { std::alloc::dealloc(start.as_ptr(), outer) };
}

// SAFETY: blocks come from the global allocator, which gives disjoint memory of the asked size and alignment,
// valid for reads and writes from any thread until given back; one that a thread keeps was given back to it and is
// given out once. The answers about the space are constants.
unsafe impl MemorySpace for HeapSpace {
    fn id(&self) -> SpaceId {
        SpaceId::HOST
    }

    fn host_accessible(&self) -> bool {
        true
    }

    #[inline]
    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        if layout.size() == 0 {
            return Ok(Block::empty(layout));
        }
        if layout == SPARE {
            if let Ok(Some(address)) = KEPT.try_with(|kept| kept.first.take()) {
                return Ok(Block::new(address, layout));
            }
        } else if layout.size() >= KEPT_BYTES_MIN
            && let Ok(Some(block)) = KEPT.try_with(|kept| kept.take_later(layout))
        {
            return Ok(block);
        }
        take(layout).map(|address| Block::new(address, layout)).ok_or_else(|| refused(layout))
    }

    #[inline]
    unsafe fn deallocate(&self, block: Block) {
        let is_kept = if block.layout() == SPARE {
            KEPT.try_with(|kept| kept.keep_first(block.address()))
        } else {
            KEPT.try_with(|kept| kept.keep_later(block))
        };
        if is_kept != Ok(true) && block.size_bytes() > 0 {
            // SAFETY: `allocate` took the block with this layout.
            unsafe { give_back(block.address(), block.layout()) };
        }
    }

    fn base_align(&self) -> usize {
        BASE_ALIGN
    }
}

#[cold]
fn refused(layout: Layout) -> AllocError {
    AllocError::new(SpaceId::HOST, layout, AllocErrorKind::Refused { reason: "the heap is out of memory" })
}

// SAFETY: `host_accessible` is true.
unsafe impl HostAccessible for HeapSpace {}
