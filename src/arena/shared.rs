//! One range for the arenas of several threads.
//!
//! ```text
//!   │ thread 1 ▓▓▓▓ │ thread 2 ▓▓ │ thread 1 ▓▓▓▓ │ free ··············│      slices off one atomic cursor
//! ```
//!
//! Each thread has an [`Arena`] of its own that takes slices of 4 KiB and more from the range, so that
//! allocating is what it is in any arena, and the threads meet once a slice.
//!
//! Deliberately absent: giving a slice back. All are taken back at once, when nobody has a view.
//!
//! # Invariants
//! * **H1** `block` came from `reserve` (where `is_reserved`) or `allocate` of the space and was not given back.
//! * **H2** No byte is in two slices (`slices`, I1); `reset` needs `&mut`.
//! * **H3** The first `committed_bytes` of the range are memory (I2). They grow by whole units.

use super::Arena;
use super::slices::Slices;
use crate::align::{align_down, checked_align_up};
use crate::space::{
    AllocError, AllocErrorKind, Block, HostAccessible, MemorySpace, Queue, QueueError, SpaceId, ask,
    ask_range,
};
use core::alloc::Layout;
use core::num::NonZeroUsize;

/// Memory is put behind reserved addresses in steps of at least so many bytes.
const STEP_BYTES: usize = 1 << 20;

/// A range of memory that arenas of several threads take slices of.
///
/// # Examples
/// ```
/// use arenite::{HostSpace, SharedArena};
///
/// let mut shared = SharedArena::new(HostSpace::new(), 1 << 30)?;
/// let sum: u64 = std::thread::scope(|threads| {
///     let work = |start: u64| {
///         let shared = &shared;
///         threads.spawn(move || {
///             let arena = shared.view(); // of this thread
///             arena.alloc_slice_with(100, |index| start + index as u64).iter().sum::<u64>()
///         })
///     };
///     [work(0), work(100)].map(|thread| thread.join().unwrap()).iter().sum()
/// });
/// assert_eq!(sum, (0..200).sum());
/// shared.reset();
/// # Ok::<(), arenite::AllocError>(())
/// ```
/// What a view gave cannot outlive the range, nor be there when it is reset:
/// ```compile_fail,E0502
/// # use arenite::{HostSpace, SharedArena};
/// let mut shared = SharedArena::new(HostSpace::new(), 1 << 30).unwrap();
/// let view = shared.view();
/// let kept = view.alloc(7);
/// shared.reset();
/// println!("{kept}");
/// ```
#[derive(Debug)]
pub struct SharedArena<S: MemorySpace> {
    space: S,
    block: Block,
    is_reserved: bool,
    slices: Slices,
}

impl<S: MemorySpace> SharedArena<S> {
    /// A range of `size_bytes`: addresses, with memory as it is used, where the space can; else one block.
    ///
    /// # Errors
    /// [`AllocError`] where the space does not give it.
    pub fn new(space: S, size_bytes: usize) -> Result<Self, AllocError> {
        let align = space.base_align();
        let layout = Layout::from_size_align(size_bytes.max(1), align)
            .map_err(|_| AllocError::too_large(space.id(), size_bytes, align))?;
        let reserved = space.as_reserve().and_then(|reserve| ask_range(reserve, layout.size()));
        let (block, is_reserved) = match reserved {
            Some(region) => (region, true),
            None => (ask(&space, layout)?, false),
        };
        let slices = Slices::new(if is_reserved { 0 } else { block.size_bytes() });
        Ok(Self { space, block, is_reserved, slices })
    }

    /// An arena for one thread: its chunks are slices of the range.
    pub fn view(&self) -> Arena<&Self> {
        Arena::with_chunks(self)
    }

    /// Taken by views so far, in bytes.
    pub fn used_bytes(&self) -> usize {
        self.slices.used_bytes()
    }

    /// The size of the range, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.block.size_bytes()
    }

    /// Takes all slices back and keeps the memory. No view is there any more.
    pub fn reset(&mut self) {
        self.slices.reset();
    }

    /// Puts memory behind the first `needed_bytes`, more than the `committed_bytes` that have some; says how far. One
    /// call at a time.
    #[cold]
    fn commit(
        &self,
        committed_bytes: usize,
        needed_bytes: usize,
        layout: Layout,
    ) -> Result<usize, AllocError> {
        let never_fits = || AllocError::new(self.space.id(), layout, AllocErrorKind::NeverFits);
        let reserve = self.space.as_reserve().ok_or_else(never_fits)?;
        let unit = reserve.granularity_bytes();
        let least_bytes = checked_align_up(needed_bytes, unit)
            .filter(|&bytes| bytes <= self.size_bytes())
            .ok_or_else(never_fits)?;
        let ample_bytes = checked_align_up(committed_bytes.saturating_add(STEP_BYTES), unit).unwrap_or(0);
        for target_bytes in [ample_bytes.clamp(least_bytes, align_down(self.size_bytes(), unit)), least_bytes]
        {
            // SAFETY: H1, H3: the range is reserved, nothing from `committed_bytes` on is committed, both ends
            // are multiples of the unit; the end is at most the range's.
            let result = unsafe { reserve.commit(self.block, committed_bytes..target_bytes) };
            match result {
                Ok(()) => return Ok(target_bytes),
                Err(error) if target_bytes == least_bytes => return Err(error),
                Err(_) => {}
            }
        }
        Err(never_fits())
    }

    fn refused(&self, layout: Layout, used_bytes: usize) -> AllocError {
        let fits = layout.size() <= self.size_bytes();
        let kind = if fits { AllocErrorKind::NotNow } else { AllocErrorKind::NeverFits };
        let free_bytes = self.size_bytes() - used_bytes;
        AllocError::new(self.space.id(), layout, kind).with_live(used_bytes).with_largest_free(free_bytes)
    }
}

// SAFETY:
// * slices are disjoint (H2), within the block (H1) and committed (H3) before they are given; they stay until
//   `reset`, for which nobody else may hold the space, and thereby no block of it;
// * the CPU reaches them where it reaches the space's; the answers are constants of the space within.
unsafe impl<S: MemorySpace> MemorySpace for SharedArena<S> {
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
        if layout.size() == 0 {
            return Ok(Block::empty(layout));
        }
        let base = self.block.address().addr().get();
        let align = layout.align().max(self.base_align());
        let place = |used: usize| {
            let start = checked_align_up(base.checked_add(used)?, align)? - base;
            let end = start.checked_add(layout.size())?;
            (end <= self.size_bytes()).then_some(start..end)
        };
        let slice = self.slices.take(
            |used| place(used).ok_or_else(|| self.refused(layout, used)),
            |committed_bytes, needed_bytes| self.commit(committed_bytes, needed_bytes, layout),
        )?;
        let address = NonZeroUsize::new(base + slice.start).unwrap_or(NonZeroUsize::MIN);
        Ok(Block::new(self.block.address().with_addr(address), layout))
    }

    /// Nothing: slices are taken back together.
    unsafe fn deallocate(&self, _block: Block) {}

    fn base_align(&self) -> usize {
        self.space.base_align()
    }
}

// SAFETY: as the space within.
unsafe impl<S: HostAccessible> HostAccessible for SharedArena<S> {}

impl<S: MemorySpace> Drop for SharedArena<S> {
    fn drop(&mut self) {
        match (self.is_reserved, self.space.as_reserve()) {
            // SAFETY: H1: reserved and not released; H3: so much is committed. Views borrow `self`.
            (true, Some(reserve)) => unsafe {
                reserve.release(self.block, self.slices.committed_bytes());
            },
            // A space that no longer reserves breaks its terms; its range is left alone.
            (true, None) => {}
            // SAFETY: H1: the block came from `allocate` and was not deallocated. Views borrow `self`.
            (false, _) => unsafe { self.space.deallocate(self.block) },
        }
    }
}
