//! A space from an address, a length and a way to release it: memory that somebody else allocated.
//!
//! ```text
//!   shared memory, a mapped file, a static array, another runtime's buffer ──► Region ──► arenas, pools
//! ```
//!
//! Deliberately absent: growing.
//!
//! # Invariants
//! * **R1** The range is valid memory until `release` is called, by `Drop`, once.

use super::{AllocError, AllocErrorKind, Block, HostAccessible, LimitSource, MemorySpace, SpaceId};
use crate::align::{align_down, checked_align_up};
use crate::tlsf::{READY, Tlsf};
use core::alloc::Layout;
use core::fmt;
use core::mem::MaybeUninit;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use parking_lot::Mutex;
use std::collections::HashMap;

/// The unit that ranges are cut in, in bytes.
const GRANULE: usize = 16;

/// What is called with the address and the size when the space is dropped.
type Release = Box<dyn FnOnce(NonNull<u8>, usize) + Send + Sync>;

/// A range of memory as a space: blocks are cut out of it, in any order.
///
/// `HOST` says whether the CPU reaches it; use [`HostRegion`] and [`DeviceRegion`].
pub struct Region<const HOST: bool> {
    id: SpaceId,
    address: NonNull<u8>,
    size_bytes: usize,
    release: Option<Release>,
    state: Mutex<State>,
}

/// A range of memory that the CPU reads and writes.
///
/// [`Arena::exact`](crate::Arena::exact) takes all of it as one chunk; other arenas take it piece by piece.
///
/// # Examples
/// ```
/// use arenite::{Arena, HostRegion, SpaceId};
/// use core::mem::MaybeUninit;
///
/// let buffer = Box::new([MaybeUninit::uninit(); 4096]);
/// let space = HostRegion::from_box(SpaceId::new("buffer", 0)?, buffer);
/// let arena = Arena::new(&space);
/// assert_eq!(arena.alloc_str("in the buffer"), "in the buffer");
/// assert!(arena.try_alloc([0u8; 5000]).is_err());
/// # Ok::<(), arenite::ParseSpaceIdError>(())
/// ```
pub type HostRegion = Region<true>;

/// A range of memory that the CPU does not reach.
pub type DeviceRegion = Region<false>;

#[derive(Debug)]
struct State {
    tlsf: Tlsf,
    live: HashMap<u64, u32>,
    live_bytes: usize,
}

// SAFETY: the range is memory that any thread may use (R1); `release` may be called from any.
unsafe impl<const HOST: bool> Send for Region<HOST> {}
// SAFETY: as above; the books are locked.
unsafe impl<const HOST: bool> Sync for Region<HOST> {}

impl<const HOST: bool> Region<HOST> {
    fn with(id: SpaceId, address: NonNull<u8>, size_bytes: usize, release: Release) -> Self {
        let mut tlsf = Tlsf::new(GRANULE);
        let start = checked_align_up(address.addr().get(), GRANULE);
        let end = address.addr().get().checked_add(size_bytes).filter(|&end| isize::try_from(end).is_ok());
        if let (Some(start), Some(end)) = (start, end) {
            let size = align_down(end.saturating_sub(start), GRANULE);
            if size > 0 {
                tlsf.add_extent(start, size, 0);
            }
        }
        let state = Mutex::new(State { tlsf, live: HashMap::new(), live_bytes: 0 });
        Self { id, address, size_bytes, release: Some(release), state }
    }

    /// The bytes in blocks now, padding included.
    pub fn live_bytes(&self) -> usize {
        self.state.lock().live_bytes
    }

    /// The size of the range in bytes.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}

impl HostRegion {
    /// The `size_bytes` from `address` on.
    ///
    /// # Safety
    /// * The range is valid for reads and writes from any thread, and used by nobody else, until `release` is
    ///   called.
    pub unsafe fn from_raw(
        id: SpaceId,
        address: NonNull<u8>,
        size_bytes: usize,
        release: impl FnOnce(NonNull<u8>, usize) + Send + Sync + 'static,
    ) -> Self {
        Self::with(id, address, size_bytes, Box::new(release))
    }

    /// The bytes of a box.
    pub fn from_box(id: SpaceId, bytes: Box<[MaybeUninit<u8>]>) -> Self {
        let size_bytes = bytes.len();
        let bytes = NonNull::from(Box::leak(bytes)).cast::<u8>();
        let release = |address: NonNull<u8>, size_bytes| {
            let bytes = core::ptr::slice_from_raw_parts_mut(address.as_ptr().cast(), size_bytes);
            // SAFETY: the very box that was leaked, of that many bytes, which nobody uses any more.
            drop(unsafe { Box::<[MaybeUninit<u8>]>::from_raw(bytes) });
        };
        Self::with(id, bytes, size_bytes, Box::new(release))
    }
}

impl DeviceRegion {
    /// Addresses that lead nowhere: to replay a trace, or to try a pool's parameters, without the device.
    ///
    /// # Examples
    /// ```
    /// use arenite::{DeviceRegion, MemorySpace, SpaceId};
    /// use core::alloc::Layout;
    /// let space = DeviceRegion::imaginary(SpaceId::cuda(0), 80 << 30);
    /// let block = space.allocate(Layout::from_size_align(8 << 30, 256)?)?;
    /// assert_eq!(space.live_bytes(), 8 << 30);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn imaginary(id: SpaceId, size_bytes: usize) -> Self {
        // Above what a CPU maps, at a multiple of every sensible alignment.
        const START: NonZeroUsize = NonZeroUsize::new(1 << 60).unwrap();
        Self::with(id, NonNull::without_provenance(START), size_bytes, Box::new(|_, _| {}))
    }

    /// The `size_bytes` from a device's `address` on; `None` for address 0 or one over `usize::MAX`.
    ///
    /// # Safety
    /// * The range is memory of the device called `id`, and used by nobody else, until `release` is called.
    pub unsafe fn from_raw_device(
        id: SpaceId,
        address: u64,
        size_bytes: usize,
        release: impl FnOnce(NonNull<u8>, usize) + Send + Sync + 'static,
    ) -> Option<Self> {
        let address = NonNull::without_provenance(NonZeroUsize::new(usize::try_from(address).ok()?)?);
        Some(Self::with(id, address, size_bytes, Box::new(release)))
    }
}

// SAFETY:
// * blocks are live nodes, disjoint, aligned as asked, within the range, which stays until the space is dropped
//   (R1); their addresses carry its provenance;
// * the CPU reaches them if `HOST`, which the constructors ask for.
unsafe impl<const HOST: bool> MemorySpace for Region<HOST> {
    fn id(&self) -> SpaceId {
        self.id
    }

    fn host_accessible(&self) -> bool {
        HOST
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        if layout.size() == 0 {
            return Ok(Block::empty(layout));
        }
        let mut state = self.state.lock();
        let size = checked_align_up(layout.size(), GRANULE);
        let Some(at) = size.and_then(|size| state.tlsf.take(READY, size, layout.align())) else {
            let kind = if layout.size() <= self.size_bytes {
                AllocErrorKind::NotNow
            } else {
                AllocErrorKind::OverLimit { limit_bytes: self.size_bytes, source: LimitSource::Space }
            };
            return Err(AllocError::new(self.id, layout, kind)
                .with_live(state.live_bytes)
                .with_largest_free(state.tlsf.largest_free(READY)));
        };
        let start = state.tlsf.node(at).start;
        state.live_bytes += state.tlsf.node(at).size;
        state.live.insert(start as u64, at);
        let address = NonZeroUsize::new(start).unwrap_or(NonZeroUsize::MIN);
        Ok(Block::new(self.address.with_addr(address), layout))
    }

    unsafe fn deallocate(&self, block: Block) {
        let mut state = self.state.lock();
        if block.size_bytes() > 0
            && let Some(at) = state.live.remove(&block.address_bits())
        {
            state.live_bytes -= state.tlsf.node(at).size;
            state.tlsf.give(at, READY, 0);
        }
    }
}

// SAFETY: `HOST` is what `host_accessible` answers.
unsafe impl HostAccessible for Region<true> {}

impl<const HOST: bool> Drop for Region<HOST> {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release(self.address, self.size_bytes);
        }
    }
}

impl<const HOST: bool> fmt::Debug for Region<HOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({}, {:#x}, {} bytes)", self.id, self.address.addr(), self.size_bytes)
    }
}
