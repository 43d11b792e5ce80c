//! Ordinary host memory.
//!
//! ```text
//!   reserve:  │ committed ▓▓▓▓▓▓ │ addresses only, nothing behind them ······· │     one arena
//!   allocate: │ ▓▓▓ │   exact: the system allocator when small, pages of its own when large
//! ```
//!
//! Where address space is limited (`RLIMIT_AS`, systems without `mmap`), nothing is reserved: arenas fall
//! back to exact blocks, and [`HostSpace::stats`] says so.
//!
//! Deliberately absent: caching. A block given back goes back; arenas and arena sets keep memory.

use super::{AllocError, AllocErrorKind, Block, HostAccessible, MemorySpace, Reserve, SpaceId, pages};
use crate::align::checked_align_up;
use core::alloc::Layout;
use core::num::NonZeroUsize;
use core::ops::Range;
use core::ptr::NonNull;
use parking_lot::Mutex;

/// Blocks of this size and more get pages of their own, in bytes: the system allocator would do the same,
/// after zeroing or keeping what we want fresh and returned.
const MAPPED_FROM_BYTES: usize = 64 << 10;
/// A cache line, and what vector instructions want, in bytes.
const BASE_ALIGN: usize = 64;
/// The size of a huge page in bytes.
const HUGE_BYTES: usize = 2 << 20;
/// What a system that is out of memory or mappings answers.
const OUT_OF_MEMORY: &str = "the system is out of memory";

/// Ordinary host memory: address ranges with memory on demand, or exact blocks.
///
/// # Examples
/// ```
/// use arenite::{Arena, HostSpace};
/// let arena = Arena::new(HostSpace::new().with_huge_pages());
/// let numbers = arena.alloc([1u32, 2, 3]);
/// numbers[0] = 7;
/// assert_eq!(numbers, &[7, 2, 3]);
/// ```
#[derive(Debug)]
pub struct HostSpace {
    reserves: bool,
    huge_pages: bool,
    prefault: bool,
    stats: Mutex<HostStats>,
}

/// What a [`HostSpace`] holds, in bytes, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStats {
    /// Whether address ranges are reserved; false where exact blocks are used instead.
    pub reserves: bool,
    /// Addresses reserved, with or without memory behind them.
    pub reserved_bytes: usize,
    /// Memory put behind reserved addresses.
    pub committed_bytes: usize,
    /// Memory in exact blocks.
    pub exact_bytes: usize,
    /// Reservations that the system refused, each answered by exact blocks.
    pub refused_reservations: u64,
}

impl HostSpace {
    /// Host memory on ordinary pages, reserving address space where that is not limited.
    pub fn new() -> Self {
        let reserves = pages::address_space_is_free();
        Self { reserves, huge_pages: false, prefault: false, stats: Mutex::default() }
    }

    /// Asks for huge pages: the first touch of large memory is several times faster, and up to 2 MiB more
    /// is held for each arena. With [`with_prefault`](Self::with_prefault) it is faster still.
    #[must_use]
    pub fn with_huge_pages(mut self) -> Self {
        self.huge_pages = true;
        self
    }

    /// Faults memory in when it is committed, so that no first touch stalls a run; 16 MiB and more by up to four threads,
    /// which last as long as the call.
    #[must_use]
    pub fn with_prefault(mut self) -> Self {
        self.prefault = true;
        self
    }

    /// Reserves nothing: every arena is made of exact blocks, as where address space is limited.
    #[must_use]
    pub fn with_exact_blocks(mut self) -> Self {
        self.reserves = false;
        self
    }

    /// What is held, and whether address space is reserved.
    pub fn stats(&self) -> HostStats {
        HostStats { reserves: self.reserves, ..*self.stats.lock() }
    }

    fn unit_bytes(&self) -> usize {
        if self.huge_pages { HUGE_BYTES } else { pages::page_bytes() }
    }

    fn refused(layout: Layout) -> AllocError {
        AllocError::new(SpaceId::HOST, layout, AllocErrorKind::Refused { reason: OUT_OF_MEMORY })
    }

    /// `size_bytes` of new addresses at a multiple of `align`, both multiples of the page size.
    fn map_aligned(size_bytes: usize, align: usize, committed: bool) -> Option<NonNull<u8>> {
        let slack_bytes = align.saturating_sub(pages::page_bytes());
        let mapped_bytes = size_bytes.checked_add(slack_bytes)?;
        let start = pages::map(mapped_bytes, committed)?;
        let Some(aligned) = checked_align_up(start.addr().get(), align).and_then(NonZeroUsize::new) else {
            // SAFETY: the whole of a mapping just made.
            unsafe { pages::unmap(start, mapped_bytes) };
            return None;
        };
        let head_bytes = aligned.get() - start.addr().get();
        let block = start.with_addr(aligned);
        if head_bytes > 0 {
            // SAFETY: the part of the mapping before the block, page-aligned as both ends are.
            unsafe { pages::unmap(start, head_bytes) };
        }
        if slack_bytes > head_bytes {
            // SAFETY: `head + size <= size + slack`, so the end of the block lies within the mapping.
            let tail = unsafe { block.add(size_bytes) };
            // SAFETY: the part of the mapping after the block, page-aligned as both ends are.
            unsafe { pages::unmap(tail, slack_bytes - head_bytes) };
        }
        Some(block)
    }

    /// Whether a block of this layout has pages of its own: then their size and alignment.
    fn own_pages(layout: Layout) -> Option<(usize, usize)> {
        let page_bytes = pages::page_bytes();
        if cfg!(not(unix)) || cfg!(miri) {
            return None;
        }
        if layout.size() < MAPPED_FROM_BYTES && layout.align() <= page_bytes {
            return None;
        }
        Some((checked_align_up(layout.size(), page_bytes)?, layout.align().max(page_bytes)))
    }

    fn allocate_pages(&self, size_bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let block = Self::map_aligned(size_bytes, align, true)?;
        // SAFETY: the range was just mapped, committed, and is ours alone.
        unsafe { self.settle(block, size_bytes) };
        Some(block)
    }

    /// Huge pages and faulting in, as configured.
    ///
    /// # Safety
    /// * The range is page-aligned, committed, and nothing else uses it.
    unsafe fn settle(&self, address: NonNull<u8>, size_bytes: usize) {
        if self.huge_pages && size_bytes >= HUGE_BYTES {
            // SAFETY: the caller's range.
            unsafe { pages::prefer_huge(address, size_bytes) };
        }
        if self.prefault {
            // SAFETY: the caller's range, which is committed and unused.
            unsafe { pages::prefault(address, size_bytes) };
        }
    }
}

impl Default for HostSpace {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY:
// * blocks come from `mmap` or the global allocator, which give disjoint memory of the asked size and
//   alignment, valid for reads and writes from any thread until given back;
// * both ways give zeroes: anonymous pages, and `alloc_zeroed`;
// * the answers about the space are constants.
unsafe impl MemorySpace for HostSpace {
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
        let address = if let Some((size_bytes, align)) = Self::own_pages(layout) {
            self.allocate_pages(size_bytes, align)
        } else {
            let wider = layout.align_to(BASE_ALIGN).map_err(|_| Self::refused(layout))?;
            // SAFETY: the layout has a size.
            NonNull::new(unsafe { std::alloc::alloc_zeroed(wider) })
        };
        let address = address.ok_or_else(|| Self::refused(layout))?;
        self.stats.lock().exact_bytes += layout.size();
        Ok(Block::new(address, layout))
    }

    unsafe fn deallocate(&self, block: Block) {
        let layout = block.layout();
        if layout.size() == 0 {
            return;
        }
        self.stats.lock().exact_bytes -= layout.size();
        if let Some((size_bytes, _)) = Self::own_pages(layout) {
            // SAFETY: `allocate` mapped exactly this range for this layout, and the caller gives it back.
            unsafe { pages::unmap(block.address(), size_bytes) };
        } else if let Ok(wider) = layout.align_to(BASE_ALIGN) {
            // SAFETY: `allocate` took the block from the global allocator with this layout.
            unsafe { std::alloc::dealloc(block.address().as_ptr(), wider) };
        }
    }

    fn base_align(&self) -> usize {
        BASE_ALIGN
    }

    fn gives_zeroed(&self) -> bool {
        true
    }

    fn as_reserve(&self) -> Option<&dyn Reserve> {
        self.reserves.then_some(self)
    }
}

// SAFETY: `host_accessible` is true.
unsafe impl HostAccessible for HostSpace {}

// SAFETY:
// * a range comes from `mmap`, aligned to the unit by `map_aligned`, and stays until `release`;
// * committed parts are anonymous pages, readable and writable, zero when new.
unsafe impl Reserve for HostSpace {
    fn granularity_bytes(&self) -> usize {
        self.unit_bytes()
    }

    fn reserve(&self, size_bytes: usize) -> Result<Block, AllocError> {
        let unit = self.unit_bytes();
        let layout = checked_align_up(size_bytes, unit)
            .and_then(|size| Layout::from_size_align(size, unit).ok())
            .filter(|layout| layout.size() > 0)
            .ok_or_else(|| AllocError::too_large(SpaceId::HOST, size_bytes, unit))?;
        if let Some(address) = Self::map_aligned(layout.size(), unit, false) {
            self.stats.lock().reserved_bytes += layout.size();
            Ok(Block::new(address, layout))
        } else {
            self.stats.lock().refused_reservations += 1;
            Err(Self::refused(layout))
        }
    }

    unsafe fn commit(&self, region: Block, range: Range<usize>) -> Result<(), AllocError> {
        debug_assert!(range.start <= range.end && range.end <= region.size_bytes());
        let size_bytes = range.len();
        // SAFETY: the range lies within the region, says the caller.
        let address = unsafe { region.address().add(range.start) };
        // SAFETY: page-aligned, within a mapping, not committed, says the caller.
        if !unsafe { pages::commit(address, size_bytes) } {
            let layout = Layout::from_size_align(size_bytes, 1).unwrap_or(region.layout());
            return Err(Self::refused(layout).with_live(self.stats.lock().committed_bytes));
        }
        self.stats.lock().committed_bytes += size_bytes;
        // SAFETY: the range was just committed and nobody knows it yet.
        unsafe { self.settle(address, size_bytes) };
        Ok(())
    }

    unsafe fn decommit(&self, region: Block, range: Range<usize>) {
        debug_assert!(range.start <= range.end && range.end <= region.size_bytes());
        self.stats.lock().committed_bytes -= range.len();
        // SAFETY: the range lies within the region, says the caller.
        let address = unsafe { region.address().add(range.start) };
        // SAFETY: page-aligned, within a mapping, no longer used, says the caller.
        unsafe { pages::decommit(address, range.len()) };
    }

    unsafe fn release(&self, region: Block, committed_bytes: usize) {
        {
            let mut stats = self.stats.lock();
            stats.reserved_bytes -= region.size_bytes();
            stats.committed_bytes -= committed_bytes;
        }
        // SAFETY: the whole of a reserved range, no longer used, says the caller.
        unsafe { pages::unmap(region.address(), region.size_bytes()) };
    }
}
