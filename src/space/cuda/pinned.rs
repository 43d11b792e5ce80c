//! Page-locked host memory: [`PinnedSpace`].
//!
//! Devices copy to and from it directly, at full speed and without the CPU. Blocks have exactly the size asked
//! for: page-locking costs a third of a millisecond per mebibyte, so arenas above keep what they have.
//!
//! Deliberately absent: reserved ranges. A copy across separately locked ranges is refused by drivers.

use super::context::{Device, absence, note_free};
use super::driver::{Failure, done};
use crate::space::{AllocError, AllocErrorKind, Block, HostAccessible, MemorySpace, SpaceId};
use core::alloc::Layout;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The alignment of every block, in bytes. Drivers give small blocks out of shared pages, at 512 bytes or so, and say
/// nothing of alignment: it is looked at.
const BASE_ALIGN: usize = 256;
/// The largest alignment that is served, in bytes: a page.
const ALIGN_MAX: usize = 4096;
/// Usable from every context, and mapped into the devices' addresses.
const PORTABLE_AND_MAPPED: u32 =
    cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE | cudarc::driver::sys::CU_MEMHOSTALLOC_DEVICEMAP;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Every live pinned block of this process, by its start.
static PINNED: RwLock<BTreeMap<usize, Pinned>> = RwLock::new(BTreeMap::new());

/// A live block.
#[derive(Clone, Copy, Debug)]
struct Pinned {
    /// The address after its last byte.
    end: usize,
    /// What the driver gave, at the block's start or before, and how much.
    given: usize,
    given_bytes: usize,
}

/// Whether a host range lies in pinned memory, so that a device may copy it while the host goes on.
pub fn is_pinned(address: NonNull<u8>, size_bytes: usize) -> bool {
    let start = address.addr().get();
    let pinned = PINNED.read();
    let block = pinned.range(..=start).next_back();
    block.is_some_and(|(_, block)| start.checked_add(size_bytes).is_some_and(|last| last <= block.end))
}

/// Page-locked host memory, for all devices.
#[derive(Debug)]
pub struct PinnedSpace {
    /// Opened when memory is first asked for.
    device: OnceLock<Result<&'static Device, String>>,
}

impl PinnedSpace {
    /// Pinned memory. Any one device is enough to lock pages for all.
    ///
    /// # Errors
    /// A sentence that says why there is no CUDA here.
    pub fn new() -> Result<Self, String> {
        match absence(0) {
            None => Ok(Self { device: OnceLock::new() }),
            Some(reason) => Err(reason),
        }
    }

    pub(super) fn on(device: &'static Device) -> Self {
        Self { device: OnceLock::from(Ok(device)) }
    }

    fn device(&self) -> Option<&'static Device> {
        let device = self.device.get_or_init(|| Device::open(0));
        device.as_ref().ok().copied().filter(|device| device.is_usable())
    }

    /// The bytes locked and not given back, by all pinned spaces of this process: they are one.
    pub fn live_bytes(&self) -> usize {
        LIVE_BYTES.load(Ordering::Relaxed)
    }

    /// Page-locks so many bytes.
    fn lock_pages(device: &Device, size_bytes: usize) -> Result<NonNull<u8>, Failure> {
        let mut address: *mut c_void = core::ptr::null_mut();
        // SAFETY: a place for the result; the context is current.
        done(unsafe { (device.driver.host_alloc)(&raw mut address, size_bytes, PORTABLE_AND_MAPPED) })?;
        NonNull::new(address.cast()).ok_or(Failure::OUT_OF_MEMORY)
    }

    fn refused(&self, layout: Layout, failure: Failure) -> AllocError {
        let kind = if failure == Failure::OUT_OF_MEMORY {
            AllocErrorKind::Refused { reason: "no more pages can be locked" }
        } else {
            AllocErrorKind::Refused { reason: failure.text() }
        };
        AllocError::new(SpaceId::PINNED, layout, kind).with_live(self.live_bytes())
    }
}

// SAFETY: the driver gives disjoint host memory that stays until freed, reachable by the CPU from any thread; blocks are
// cut from it at their alignment (more than a page is refused).
unsafe impl MemorySpace for PinnedSpace {
    fn id(&self) -> SpaceId {
        SpaceId::PINNED
    }

    fn host_accessible(&self) -> bool {
        true
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        if layout.align() > ALIGN_MAX {
            return Err(AllocError::new(SpaceId::PINNED, layout, AllocErrorKind::NeverFits));
        }
        if layout.size() == 0 {
            let align = core::num::NonZeroUsize::new(layout.align()).unwrap_or(core::num::NonZeroUsize::MIN);
            return Ok(Block::new(NonNull::without_provenance(align), layout));
        }
        let Some(device) = self.device() else {
            let reason = "the device cannot be opened, or this is a forked process";
            return Err(AllocError::new(SpaceId::PINNED, layout, AllocErrorKind::Refused { reason }));
        };
        let _entered = device.enter().map_err(|failure| self.refused(layout, failure))?;
        let refused = |failure| self.refused(layout, failure);
        let mut given = Self::lock_pages(device, layout.size()).map_err(refused)?;
        let mut given_bytes = layout.size();
        if !given.addr().get().is_multiple_of(layout.align()) {
            // SAFETY: it was just given, and nothing uses it.
            note_free(done(unsafe { (device.driver.host_free)(given.as_ptr().cast()) }));
            // No overflow: a layout's size, rounded up to its alignment, is below `isize::MAX`.
            given_bytes += layout.align();
            given = Self::lock_pages(device, given_bytes).map_err(refused)?;
        }
        let before = given.addr().get().wrapping_neg() & (layout.align() - 1);
        // SAFETY: less than the alignment, which was asked for beside the size unless it is 0.
        let address = unsafe { given.add(before) };
        // Bytes of a space are initialised memory: the driver says nothing of what it gives.
        // SAFETY: the block is new and as large as asked.
        unsafe { address.write_bytes(0, layout.size()) };
        let start = address.addr().get();
        let block = Pinned { end: start + layout.size(), given: given.addr().get(), given_bytes };
        PINNED.write().insert(start, block);
        LIVE_BYTES.fetch_add(given_bytes, Ordering::Relaxed);
        Ok(Block::new(address, layout))
    }

    unsafe fn deallocate(&self, block: Block) {
        if block.size_bytes() == 0 {
            return;
        }
        let Some(pinned) = PINNED.write().remove(&block.address().addr().get()) else { return };
        LIVE_BYTES.fetch_sub(pinned.given_bytes, Ordering::Relaxed);
        let Some(device) = self.device() else { return };
        let freed = device.enter().and_then(|_entered| {
            let given = block.address().as_ptr().with_addr(pinned.given);
            // SAFETY: it came from `host_alloc` and nothing uses it, by the caller.
            done(unsafe { (device.driver.host_free)(given.cast()) })
        });
        note_free(freed);
    }

    fn base_align(&self) -> usize {
        BASE_ALIGN
    }

    fn gives_zeroed(&self) -> bool {
        true
    }
}

// SAFETY: the CPU reaches page-locked memory.
unsafe impl HostAccessible for PinnedSpace {}
