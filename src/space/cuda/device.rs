//! Device memory: [`CudaSpace`].
//!
//! ```text
//!   reserve    │ addresses, nothing behind them ····························│
//!   commit     │ physical memory ▓▓▓▓▓▓▓▓│ ··································│   in steps, as an arena grows
//! ```
//!
//! Where the device can map memory, arenas grow in place and addresses never change; else every block is one
//! allocation of the driver. Deliberately absent: reuse. Arenas and pools above decide that, in queue order.
//!
//! # Invariants
//! * **C1** `regions` has an entry for each reserved region; its pieces are mapped, disjoint, within it.

use super::context::{Device, Entered, absence, note_free};
use super::driver::{DevicePtr, Failure, done};
use super::queue::CudaQueue;
use crate::space::{AllocError, AllocErrorKind, Block, MemorySpace, Queue, QueueError, Reserve, SpaceId};
use core::alloc::Layout;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

/// The alignment of every block, in bytes: what the driver's own allocator gives.
const BASE_ALIGN: usize = 256;
/// The largest piece of physical memory that is taken at once, in bytes; it is also what trimming can keep.
const PIECE_BYTES_MAX: usize = 64 << 20;

/// The memory of one CUDA device.
///
/// # Examples
/// ```no_run
/// use arenite::Arena;
/// use arenite::space::cuda::CudaSpace;
/// use core::alloc::Layout;
/// let arena = Arena::new(CudaSpace::new(0)?);
/// let block = arena.allocate(Layout::from_size_align(768, 256)?)?;
/// assert_eq!(block.address_bits() % 256, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CudaSpace {
    id: SpaceId,
    /// Opened when memory is first asked for: a context costs time and device memory.
    device: OnceLock<Result<&'static Device, String>>,
    live_bytes: AtomicUsize,
    /// Per region address: piece offset to physical memory and its size.
    regions: Mutex<HashMap<u64, BTreeMap<usize, Piece>>>,
}

/// Mapped physical memory.
#[derive(Clone, Copy, Debug)]
struct Piece {
    handle: u64,
    size_bytes: usize,
}

impl CudaSpace {
    /// The memory of device `index`. The device itself is opened when memory is first asked for.
    ///
    /// # Errors
    /// A sentence that says why there is no such device.
    pub fn new(index: u16) -> Result<Self, String> {
        match absence(index) {
            None => Ok(Self {
                id: SpaceId::cuda(index),
                device: OnceLock::new(),
                live_bytes: AtomicUsize::new(0),
                regions: Mutex::default(),
            }),
            Some(reason) => Err(reason),
        }
    }

    /// The device, opened now if it was not yet.
    ///
    /// # Errors
    /// A sentence that says why it cannot be used.
    pub fn device(&self) -> Result<&'static Device, String> {
        self.device.get_or_init(|| Device::open(self.id.index())).clone()
    }

    /// The device, to take memory from.
    fn opened(&self, layout: Layout) -> Result<&'static Device, AllocError> {
        let reason = match self.device() {
            Ok(device) if device.is_usable() => return Ok(device),
            Ok(_) => "CUDA cannot be used in a forked process",
            Err(_) => "the device cannot be opened",
        };
        Err(AllocError::new(self.id, layout, AllocErrorKind::Refused { reason }))
    }

    /// The device, to give memory back to: `None` where nothing can be given back.
    fn returning(&self) -> Option<(&'static Device, Entered)> {
        let device = self.device().ok().filter(|device| device.is_usable())?;
        match device.enter() {
            Ok(entered) => Some((device, entered)),
            Err(failure) => {
                note_free(Err(failure));
                None
            }
        }
    }

    /// The bytes taken from the driver and not given back.
    pub fn live_bytes(&self) -> usize {
        self.live_bytes.load(Ordering::Relaxed)
    }

    fn refused(&self, layout: Layout, failure: Failure) -> AllocError {
        let kind = if failure == Failure::OUT_OF_MEMORY {
            AllocErrorKind::NotNow
        } else {
            AllocErrorKind::Refused { reason: failure.text() }
        };
        let error = AllocError::new(self.id(), layout, kind).with_live(self.live_bytes());
        match self.device().ok().and_then(Device::free_bytes) {
            Some(free) if failure == Failure::OUT_OF_MEMORY => error.with_largest_free(free),
            _ => error,
        }
    }

    fn refused_bytes(&self, size_bytes: usize, failure: Failure) -> AllocError {
        match Layout::from_size_align(size_bytes, BASE_ALIGN) {
            Ok(layout) => self.refused(layout, failure),
            Err(_) => AllocError::too_large(self.id(), size_bytes, BASE_ALIGN),
        }
    }

    /// Puts one piece of physical memory behind `address`.
    fn map(&self, device: &Device, address: DevicePtr, size_bytes: usize) -> Result<Piece, Failure> {
        let driver = device.driver;
        let properties = device.properties();
        let mut handle = 0;
        // SAFETY: a place for the result and a filled structure; the flags must be 0.
        done(unsafe { (driver.mem_create)(&raw mut handle, size_bytes, &raw const properties, 0) })?;
        let piece = Piece { handle, size_bytes };
        // SAFETY: reserved addresses with nothing behind them, and physical memory of just this size.
        let mapped = done(unsafe { (driver.mem_map)(address, size_bytes, 0, handle, 0) });
        if let Err(failure) = mapped {
            // SAFETY: it was created above and is not mapped.
            unsafe { (driver.mem_release)(handle) };
            return Err(failure);
        }
        if let Err(failure) = device.let_all(address, size_bytes) {
            Self::unmap(device, address, piece);
            return Err(failure);
        }
        self.live_bytes.fetch_add(size_bytes, Ordering::Relaxed);
        Ok(piece)
    }

    /// Takes the memory behind `address` away.
    fn unmap(device: &Device, address: DevicePtr, piece: Piece) {
        let driver = device.driver;
        device.forget_mapped(address);
        // SAFETY: the range was mapped as one piece (C1), and nothing uses it.
        note_free(done(unsafe { (driver.mem_unmap)(address, piece.size_bytes) }));
        // SAFETY: the handle is live and was just unmapped.
        note_free(done(unsafe { (driver.mem_release)(piece.handle) }));
    }

    fn unmap_counted(&self, device: &Device, address: DevicePtr, piece: Piece) {
        Self::unmap(device, address, piece);
        self.live_bytes.fetch_sub(piece.size_bytes, Ordering::Relaxed);
    }
}

// SAFETY:
// * `allocate` gives blocks of the driver's allocator, which are disjoint, aligned to 256 bytes (more is refused) and
//   stay until freed; the driver may be called from any thread; a context that outlives the process' use of
//   it is entered before each call;
// * the CPU does not reach the blocks, and nothing is said of their contents.
unsafe impl MemorySpace for CudaSpace {
    fn id(&self) -> SpaceId {
        self.id
    }

    fn host_accessible(&self) -> bool {
        false
    }

    fn open_queue(&self) -> Result<Option<Box<dyn Queue>>, QueueError> {
        Ok(Some(Box::new(CudaQueue::new(self.id.index())?)))
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        if layout.align() > BASE_ALIGN {
            return Err(AllocError::new(self.id(), layout, AllocErrorKind::NeverFits));
        }
        if layout.size() == 0 {
            return Block::device(BASE_ALIGN as u64, layout)
                .ok_or_else(|| AllocError::new(self.id(), layout, AllocErrorKind::NeverFits));
        }
        let device = self.opened(layout)?;
        let _entered = device.enter().map_err(|failure| self.refused(layout, failure))?;
        let mut address = 0;
        // SAFETY: a place for the result; the context is current.
        done(unsafe { (device.driver.alloc)(&raw mut address, layout.size()) })
            .map_err(|failure| self.refused(layout, failure))?;
        self.live_bytes.fetch_add(layout.size(), Ordering::Relaxed);
        Block::device(address, layout).ok_or_else(|| {
            AllocError::new(self.id(), layout, AllocErrorKind::Refused { reason: "a null address" })
        })
    }

    unsafe fn deallocate(&self, block: Block) {
        if block.size_bytes() == 0 {
            return;
        }
        self.live_bytes.fetch_sub(block.size_bytes(), Ordering::Relaxed);
        if let Some((device, _entered)) = self.returning() {
            // SAFETY: it came from `alloc` and nothing uses it, by the caller.
            note_free(done(unsafe { (device.driver.free)(block.address_bits()) }));
        }
    }

    fn base_align(&self) -> usize {
        BASE_ALIGN
    }

    fn as_reserve(&self) -> Option<&dyn Reserve> {
        self.device().ok()?.granularity_bytes().map(|_| self as &dyn Reserve)
    }
}

// SAFETY:
// * the driver gives address ranges that overlap nothing and stay until freed, aligned as asked;
// * a committed part is mapped to physical memory with read and write access until unmapped, which
//   happens only in `decommit` and `release` (C1).
unsafe impl Reserve for CudaSpace {
    fn granularity_bytes(&self) -> usize {
        self.device().ok().and_then(Device::granularity_bytes).unwrap_or(2 << 20)
    }

    fn reserve(&self, size_bytes: usize) -> Result<Block, AllocError> {
        let granularity = self.granularity_bytes();
        let too_large = || AllocError::too_large(self.id(), size_bytes, granularity);
        let size_bytes = size_bytes.max(1).checked_next_multiple_of(granularity).ok_or_else(too_large)?;
        let layout = Layout::from_size_align(size_bytes, granularity).map_err(|_| too_large())?;
        let device = self.opened(layout)?;
        let _entered = device.enter().map_err(|failure| self.refused(layout, failure))?;
        let mut address = 0;
        // SAFETY: a place for the result; no address is wished for, the flags must be 0.
        done(unsafe { (device.driver.address_reserve)(&raw mut address, size_bytes, granularity, 0, 0) })
            .map_err(|failure| self.refused(layout, failure))?;
        self.regions.lock().insert(address, BTreeMap::new());
        Block::device(address, layout).ok_or_else(|| {
            AllocError::new(self.id(), layout, AllocErrorKind::Refused { reason: "a null address" })
        })
    }

    unsafe fn commit(&self, region: Block, range: Range<usize>) -> Result<(), AllocError> {
        let refused = |failure| self.refused_bytes(range.len(), failure);
        let device = self.opened(region.layout())?;
        let _entered = device.enter().map_err(refused)?;
        let base = region.address_bits();
        let mut regions = self.regions.lock();
        let pieces = regions.entry(base).or_default();
        let mut made = Vec::new();
        let mut at = range.start;
        while at < range.end {
            // What a decommit in the middle of a piece had to leave is still there.
            let covering = pieces.range(..=at).next_back().map(|(&start, piece)| start + piece.size_bytes);
            if let Some(end) = covering.filter(|&end| end > at) {
                at = end;
                continue;
            }
            let next = pieces.range(at..).next().map_or(range.end, |(&start, _)| start.min(range.end));
            let size_bytes = (next - at).min(PIECE_BYTES_MAX);
            match self.map(device, base + at as u64, size_bytes) {
                Ok(piece) => pieces.insert(at, piece),
                Err(failure) => {
                    for offset in made {
                        if let Some(piece) = pieces.remove(&offset) {
                            self.unmap_counted(device, base + offset as u64, piece);
                        }
                    }
                    drop(regions);
                    return Err(refused(failure));
                }
            };
            made.push(at);
            at += size_bytes;
        }
        Ok(())
    }

    unsafe fn decommit(&self, region: Block, range: Range<usize>) {
        let Some((device, _entered)) = self.returning() else { return };
        let base = region.address_bits();
        if let Some(pieces) = self.regions.lock().get_mut(&base) {
            let whole: Vec<(usize, Piece)> = pieces
                .range(range.clone())
                .filter(|(start, piece)| *start + piece.size_bytes <= range.end)
                .map(|(&start, &piece)| (start, piece))
                .collect();
            for (offset, piece) in whole {
                pieces.remove(&offset);
                self.unmap_counted(device, base + offset as u64, piece);
            }
        }
    }

    unsafe fn release(&self, region: Block, _committed_bytes: usize) {
        let base = region.address_bits();
        let pieces = self.regions.lock().remove(&base).unwrap_or_default();
        let Some((device, _entered)) = self.returning() else { return };
        for (offset, piece) in pieces {
            self.unmap_counted(device, base + offset as u64, piece);
        }
        // SAFETY: the range came from `reserve` of this size, and nothing is mapped in it any more.
        note_free(done(unsafe { (device.driver.address_free)(base, region.size_bytes()) }));
    }
}
