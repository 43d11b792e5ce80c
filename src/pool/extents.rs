//! The memory behind a pool: blocks of its space, each cut by the pool.

use super::{Pool, State};
use crate::align::checked_align_up;
use crate::space::{AllocError, AllocErrorKind, Block, MemorySpace, ask};
use core::alloc::Layout;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

/// The highest address that a pool manages, so that no sum wraps.
const ADDRESS_MAX: usize = isize::MAX.unsigned_abs();

/// The extents, by number; the numbers of those given back are used again.
#[derive(Debug, Default)]
pub(super) struct Extents {
    list: Vec<Option<Block>>,
    bytes: usize,
}

impl Extents {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.list.iter().flatten().count()
    }

    fn add(&mut self, block: Block) -> Option<u32> {
        let free = self.list.iter().position(Option::is_none);
        let at = free.unwrap_or(self.list.len());
        let number = u32::try_from(at).ok()?;
        if free.is_none() {
            self.list.push(None);
        }
        self.list[at] = Some(block);
        self.bytes += block.size_bytes();
        Some(number)
    }

    fn remove(&mut self, number: u32) -> Option<Block> {
        let block = self.list.get_mut(number as usize)?.take()?;
        self.bytes -= block.size_bytes();
        Some(block)
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Block> + use<> {
        self.bytes = 0;
        core::mem::take(&mut self.list).into_iter().flatten()
    }

    /// The pointer to an address within an extent, with the provenance of its block.
    #[inline(always)]
    pub(super) fn address(&self, number: u32, start: usize) -> NonNull<u8> {
        let base = self.list[number as usize].map_or(NonNull::dangling(), |block| block.address());
        base.with_addr(NonZeroUsize::new(start).unwrap_or(NonZeroUsize::MIN))
    }
}

impl State {
    /// Takes an extent of which nothing is live, and that is no larger than `bytes_max`, off the books. `from` is 0 at
    /// first, and says where to go on.
    pub(super) fn whole_extent(&mut self, from: &mut u32, bytes_max: usize) -> Option<Block> {
        let number = self.tlsf.remove_whole_extent(from, |_, size_bytes| size_bytes <= bytes_max)?;
        self.extents.remove(number)
    }
}

impl<S: MemorySpace> Pool<S> {
    /// Takes an extent in which `size` at `align` fits: an ample one if `ample`, else one no larger than needed.
    pub(super) fn grow(&self, layout: Layout, size: usize, ample: bool) -> Result<(), AllocError> {
        let never_fits = || AllocError::new(self.space.id(), layout, AllocErrorKind::NeverFits);
        let slack = layout.align().saturating_sub(self.granule);
        let least_bytes = size.checked_add(slack).ok_or_else(never_fits)?;
        let extent_bytes = {
            let mut state = self.state.lock();
            let held_bytes = state.extents.bytes() + state.growing_bytes;
            let left_bytes = self.limit_bytes.saturating_sub(held_bytes);
            if least_bytes > left_bytes {
                return Err(self.over_limit(layout));
            }
            let step_bytes = if ample { self.step_bytes.max(held_bytes / 8) } else { 0 };
            let bytes = checked_align_up(step_bytes.min(left_bytes), self.granule).unwrap_or(0);
            let bytes = if bytes > left_bytes { least_bytes } else { bytes.max(least_bytes) };
            state.growing_bytes += bytes;
            bytes
        };
        // The space is called outside the lock.
        let extent = Layout::from_size_align(extent_bytes, self.granule).map_err(|_| never_fits());
        let answer = extent.and_then(|extent| ask(&self.space, extent));
        let mut state = self.state.lock();
        state.growing_bytes -= extent_bytes;
        let block = answer?;
        if state.adopt(block) {
            return Ok(());
        }
        drop(state);
        self.give_extent_back(block);
        Err(never_fits())
    }

    /// Gives an extent back to the space. It is off the books, and nothing uses it.
    pub(super) fn give_extent_back(&self, block: Block) {
        // SAFETY: P3: it came from `allocate`; it left the list just now, with no live node in it, or with
        // the pool, which every holder of a block outlives or borrows.
        unsafe { self.space.deallocate(block) };
    }
}

impl State {
    /// Enters an extent; false where it lies too high, or there are too many.
    fn adopt(&mut self, block: Block) -> bool {
        let start = block.address().addr().get();
        let in_reach = start.checked_add(block.size_bytes()).is_some_and(|end| end <= ADDRESS_MAX);
        if !in_reach {
            return false;
        }
        let Some(number) = self.extents.add(block) else { return false };
        let added = self.tlsf.add_extent(start, block.size_bytes(), number).is_some();
        if !added {
            self.extents.remove(number);
        }
        added
    }
}
