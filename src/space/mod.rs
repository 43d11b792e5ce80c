//! Memory spaces: the places that blocks come from.
//!
//! ```text
//!   MemorySpace ── allocate(layout) ──► Block          every space
//!        └─ as_reserve() ─► Reserve ─► one address range, memory behind it on demand     where it can
//! ```
//!
//! Behaviour is added by wrapping: [`Limited`] caps bytes, [`Recording`] counts, [`Guarded`] finds misuse,
//! [`FailNth`] fails on purpose, [`Delayed`] is a device whose work is late. Each wrapper is itself a space; hooks
//! of one's own go around any with [`Wrapped`]. A [`Region`] is a space from an address and a length.
//!
//! Deliberately absent: bookkeeping inside blocks. Neither spaces nor arenas write into memory they hand
//! out, so that the same code serves memory the CPU cannot reach.

mod block;
#[cfg(feature = "cuda")]
pub mod cuda;
mod delayed;
mod error;
mod fail_nth;
mod forward;
mod guarded;
mod heap;
mod held;
mod host;
mod id;
mod limited;
mod pages;
mod queue;
mod recording;
mod region;
mod tag;
mod wrapped;

pub use block::Block;
pub(crate) use block::dangling;
pub use delayed::{Delayed, DelayedQueue};
pub use error::{AllocError, AllocErrorKind, LimitSource, Owner, Retries};
pub use fail_nth::{FailNth, Failure};
pub use guarded::{Fault, FaultKind, Guarded, GuardedFor, Leak};
pub use heap::HeapSpace;
pub use host::{HostSpace, HostStats};
pub use id::{NAME_LEN_MAX, ParseSpaceIdError, SpaceId};
pub use limited::{Limit, Limited};
pub use queue::{GraphId, Launch, Mark, Piece, Queue, QueueError};
pub use recording::{Counter, Recording, SpaceCounts};
pub use region::{DeviceRegion, HostRegion, Region};
pub use tag::Tag;
pub use wrapped::{Ask, GiveBack, SpaceHooks, Wrapped};

use crate::align::{checked_align_up, is_aligned};
use core::alloc::Layout;
use core::fmt;
use core::ops::Range;
use core::ptr::NonNull;

/// A place that blocks come from: host memory, pinned memory, a device.
///
/// Four methods are needed, some 30 lines; `examples/03_own_space.rs` is one. Where the CPU reaches the memory, implement
/// [`HostAccessible`] too: there are no typed calls without.
///
/// # Safety
/// * A block from [`allocate`](Self::allocate) is as large and aligned as asked, overlaps no other live
///   block, and stays valid and unmoved until it is deallocated or the space is dropped. Clones and
///   references of one space (`Arc<S>`, `&S`) are one space.
/// * Blocks may be used and deallocated from any thread.
/// * No method uses an arena or pool that takes its memory from this very space.
/// * Where [`host_accessible`](Self::host_accessible) is true, blocks are valid for CPU reads and writes,
///   and their address carries the provenance to do so.
/// * Where [`gives_zeroed`](Self::gives_zeroed) is true, new blocks and newly committed ranges read as zero.
/// * [`id`](Self::id), `host_accessible`, `base_align` and `gives_zeroed` always answer the same.
#[doc(alias = "memory resource")]
#[doc(alias = "device allocator")]
pub unsafe trait MemorySpace: Send + Sync + fmt::Debug {
    /// Its name, as plans and messages spell it.
    fn id(&self) -> SpaceId;

    /// Whether the CPU reads and writes its blocks directly.
    fn host_accessible(&self) -> bool;

    /// A queue for work on this space's memory; `None` where the CPU does such work itself.
    ///
    /// # Errors
    /// [`QueueError`] where the device refuses.
    fn open_queue(&self) -> Result<Option<Box<dyn Queue>>, QueueError> {
        Ok(None)
    }

    /// An exact block for `layout`. A layout of no bytes is allowed and costs nothing.
    ///
    /// # Errors
    /// [`AllocError`]; then nothing has changed.
    fn allocate(&self, layout: Layout) -> Result<Block, AllocError>;

    /// Takes a block back.
    ///
    /// # Safety
    /// * `block` came from `allocate` of this space, exactly so, and was not deallocated before;
    /// * nothing uses its bytes any more.
    unsafe fn deallocate(&self, block: Block);

    /// The alignment that every block has at least, whatever was asked, in bytes.
    fn base_align(&self) -> usize {
        16
    }

    /// Whether a new block, or a range just committed, reads as zero.
    fn gives_zeroed(&self) -> bool {
        false
    }

    /// The same space as one that reserves address space, where it can: arenas then grow in place.
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        None
    }

    /// The same space as one that wants to know which bytes an arena took back, to spoil them.
    #[inline(always)]
    fn as_poison(&self) -> Option<&dyn Poison> {
        None
    }
}

/// A space whose blocks the CPU reads and writes: only these yield references, by typed calls. Device spaces are none: use
/// [`Arena::alloc_device`](crate::Arena::alloc_device) or [`Arena::allocate`](crate::Arena::allocate) there.
///
/// # Safety
/// [`MemorySpace::host_accessible`] is true.
pub unsafe trait HostAccessible: MemorySpace {}

/// A space that hands out address ranges first and puts memory behind them later.
///
/// # Safety
/// * A range from [`reserve`](Self::reserve) is at least as large and aligned as asked, overlaps nothing
///   live, and stays where it is until it is released.
/// * A committed part is valid memory in the sense of [`MemorySpace`] until it is decommitted or released.
pub unsafe trait Reserve {
    /// The unit of [`commit`](Self::commit) and [`decommit`](Self::decommit) in bytes, a power of two.
    fn granularity_bytes(&self) -> usize;

    /// An address range with no memory behind it, aligned to the granularity or better.
    ///
    /// # Errors
    /// [`AllocError`]; then nothing has changed.
    fn reserve(&self, size_bytes: usize) -> Result<Block, AllocError>;

    /// Puts memory behind `range`, in bytes from the start of `region`.
    ///
    /// # Errors
    /// [`AllocError`]; then no part of `range` is committed.
    ///
    /// # Safety
    /// * `region` came from `reserve` of this space and was not released;
    /// * `range` lies within it, both ends multiples of the granularity, and no part of it is committed.
    unsafe fn commit(&self, region: Block, range: Range<usize>) -> Result<(), AllocError>;

    /// Gives the memory behind `range` back and keeps the addresses.
    ///
    /// # Safety
    /// As for [`commit`](Self::commit), but all of `range` is committed, and nothing uses its bytes.
    unsafe fn decommit(&self, region: Block, range: Range<usize>);

    /// Gives the range back.
    ///
    /// # Safety
    /// * `region` came from `reserve` of this space and was not released;
    /// * `committed_bytes` from its start on, and nothing else, are committed; nothing uses them.
    unsafe fn release(&self, region: Block, committed_bytes: usize);
}

/// A space that spoils memory which nobody may read any more, so that a read by mistake shows.
///
/// # Safety
/// [`poison`](Self::poison) writes nothing but the bytes it is told.
pub unsafe trait Poison {
    /// Spoils a block, or a part of one.
    ///
    /// # Safety
    /// * `block` lies within a live block of this space; nothing uses its bytes.
    unsafe fn poison(&self, block: Block);
}

/// An exact block of a space, looked at: one that is not as asked is given back, and refused.
#[inline]
pub(crate) fn ask<S: MemorySpace + ?Sized>(space: &S, layout: Layout) -> Result<Block, AllocError> {
    let block = space.allocate(layout)?;
    if block.size_bytes() == layout.size() && is_aligned(block.address().addr().get(), layout.align()) {
        return Ok(block);
    }
    Err(wrong_block(space, block.address(), block.layout(), layout))
}

/// Gives a block back that is not what was asked for. In pieces, so that on the way of a right one it lies nowhere.
#[cold]
#[inline(never)]
fn wrong_block<S: MemorySpace + ?Sized>(
    space: &S,
    address: NonNull<u8>,
    given: Layout,
    asked: Layout,
) -> AllocError {
    // SAFETY: it came from `allocate` just now, and nobody else knows it.
    unsafe { space.deallocate(Block::new(address, given)) };
    let kind = AllocErrorKind::Refused { reason: "the space gave a block other than the one asked for" };
    AllocError::new(space.id(), asked, kind)
}

/// A range of at least so many bytes, looked at; none where the space has none, or gives another than asked.
pub(crate) fn ask_range(reserve: &dyn Reserve, size_bytes: usize) -> Option<Block> {
    let unit = reserve.granularity_bytes();
    let size_bytes = checked_align_up(size_bytes, unit)?;
    let region = reserve.reserve(size_bytes).ok()?;
    if region.size_bytes() >= size_bytes && is_aligned(region.address().addr().get(), unit) {
        return Some(region);
    }
    // SAFETY: it came from `reserve` just now, nothing of it is committed, and nobody else knows it.
    unsafe { reserve.release(region, 0) };
    None
}

const _: Option<&dyn MemorySpace> = None;
const _: Option<&dyn Poison> = None;
const _: Option<&dyn Reserve> = None;
