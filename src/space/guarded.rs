//! A space that finds misuse: writes past a block's ends or after it was given back, blocks given back twice,
//! blocks never given back.
//!
//! ```text
//!   │ canary c5 c5 … │ the block: cd cd … │ canary c5 c5 … │       checked when it is given back
//!                      dd dd … once given back, kept for a while, checked before it goes
//! ```
//!
//! Over an arena it watches chunks: what a rewind, a reset or the end of a scope took back reads as `dd`, but a write
//! there, or from one block into the next, is no fault. Take a [`Pool`](crate::Pool) for that.
//!
//! On a device, bytes are written and read through a queue of the space; where it has none, only who holds what
//! is watched. Deliberately absent: speed.
//!
//! # Invariants
//! * **G1** An entry's `outer` came from `allocate` of the space within and was not given back.
//! * **G2** An entry's canaries and payload lie within its `outer`.

use super::{
    AllocError, Block, HostAccessible, MemorySpace, Poison, Queue, QueueError, SpaceId, Tag, queue::Piece,
};
use crate::align::checked_align_up;
use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};

/// The least bytes watched on either side of a block.
const CANARY_BYTES: usize = 64;
/// What stands around a block.
const CANARY: u8 = 0xc5;
/// What a new block is filled with.
const NEW: u8 = 0xcd;
/// What a block that was given back is filled with.
const GONE: u8 = 0xdd;
/// How much memory that was given back is kept and watched, in bytes.
const KEEP_BYTES: usize = 16 << 20;

/// What was done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// Bytes before the block were written.
    WrittenBefore,
    /// Bytes after the block were written.
    WrittenAfter,
    /// The block was written after it was given back.
    WrittenWhenGone,
    /// A block that is not live was given back: twice, or from elsewhere.
    NotLive,
    /// The device did not let the bytes be read or written.
    Unreadable,
}

/// Misuse that a [`Guarded`] space found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// Where.
    pub space: SpaceId,
    /// What was done.
    pub kind: FaultKind,
    /// The address of the block.
    pub address: u64,
    /// Its size in bytes.
    pub size_bytes: usize,
    /// Whose it is or was.
    pub tag: Tag,
    /// The first byte that was written, counted from the start of the block.
    pub offset_bytes: isize,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { space, address, size_bytes, offset_bytes, .. } = self;
        write!(f, "{space}: block of {size_bytes} bytes at {address:#x}")?;
        if !self.tag.is_empty() {
            write!(f, " of {}", self.tag)?;
        }
        match self.kind {
            FaultKind::WrittenBefore | FaultKind::WrittenAfter => {
                write!(f, " was written outside its bounds, at its byte {offset_bytes}")
            }
            FaultKind::WrittenWhenGone => {
                write!(f, " was written after it was given back, at its byte {offset_bytes}")
            }
            FaultKind::NotLive => f.write_str(" was given back, and is not live"),
            FaultKind::Unreadable => f.write_str(" cannot be watched: the device refused"),
        }
    }
}

/// A block that was never given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leak {
    /// Whose.
    pub tag: Tag,
    /// How many blocks of it.
    pub blocks: usize,
    /// Their bytes together.
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    outer: Block,
    block: Block,
    tag: Tag,
}

#[derive(Debug, Default)]
struct Watched {
    live: HashMap<u64, Entry>,
    gone: VecDeque<Entry>,
    gone_bytes: usize,
    faults: Vec<Fault>,
}

/// A space that watches the blocks it gives.
///
/// # Examples
/// ```
/// use arenite::{Arena, Guarded, HostSpace, MemorySpace};
/// use core::alloc::Layout;
///
/// let space = Guarded::new(HostSpace::new());
/// let block = space.tagged("logits").allocate(Layout::new::<[u8; 100]>())?;
/// // SAFETY: too far by one byte, which is what the guard is for; it lies within memory of the guard.
/// unsafe { block.address().add(100).write(1) };
/// // SAFETY: allocated above.
/// unsafe { space.deallocate(block) };
/// let fault = space.take_faults()[0];
/// assert!(fault.to_string().ends_with("of logits was written outside its bounds, at its byte 100"));
/// # Ok::<(), arenite::AllocError>(())
/// ```
pub struct Guarded<S: MemorySpace> {
    inner: S,
    keep_bytes: usize,
    queue: Mutex<Option<Box<dyn Queue>>>,
    watched: Mutex<Watched>,
}

impl<S: MemorySpace> Guarded<S> {
    /// Watches the blocks of `inner`.
    pub fn new(inner: S) -> Self {
        let queue = if inner.host_accessible() { None } else { inner.open_queue().ok().flatten() };
        Self { inner, keep_bytes: KEEP_BYTES, queue: Mutex::new(queue), watched: Mutex::default() }
    }

    /// Keeps up to `keep_bytes` that were given back from being used again, 16 MiB unless said.
    #[must_use]
    pub fn with_delayed_reuse(mut self, keep_bytes: usize) -> Self {
        self.keep_bytes = keep_bytes;
        self
    }

    /// The space within.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The same space, whose blocks count for `tag` in faults and leaks.
    pub fn tagged(&self, tag: impl Into<Tag>) -> GuardedFor<'_, S> {
        GuardedFor { space: self, tag: tag.into() }
    }

    /// What was found since this was last asked, the oldest first; blocks that are live or kept are checked now.
    pub fn take_faults(&self) -> Vec<Fault> {
        let mut watched = self.watched.lock();
        let live: Vec<Entry> = watched.live.values().copied().collect();
        for entry in live {
            self.check_bounds(&mut watched.faults, entry);
        }
        let gone: Vec<Entry> = watched.gone.iter().copied().collect();
        for entry in gone {
            self.check_gone(&mut watched.faults, entry);
        }
        core::mem::take(&mut watched.faults)
    }

    /// What was not given back so far, by tag, the largest first.
    pub fn leaks(&self) -> Vec<Leak> {
        let mut leaks: Vec<Leak> = Vec::new();
        for entry in self.watched.lock().live.values() {
            let bytes = entry.block.size_bytes();
            match leaks.iter_mut().find(|leak| leak.tag == entry.tag) {
                Some(leak) => {
                    leak.blocks += 1;
                    leak.bytes += bytes;
                }
                None => leaks.push(Leak { tag: entry.tag, blocks: 1, bytes }),
            }
        }
        leaks.sort_by_key(|leak| (core::cmp::Reverse(leak.bytes), leak.tag.as_str().to_owned()));
        leaks
    }

    fn allocate_for(&self, layout: Layout, tag: Tag) -> Result<Block, AllocError> {
        let never_fits =
            || AllocError::too_large(self.id(), layout.size(), layout.align()).with_place(Tag::NONE, tag);
        let align = layout.align().max(self.inner.base_align());
        let lead = checked_align_up(CANARY_BYTES, align).ok_or_else(never_fits)?;
        let outer_bytes = lead.checked_add(layout.size()).and_then(|end| end.checked_add(CANARY_BYTES));
        let outer = outer_bytes.and_then(|bytes| Layout::from_size_align(bytes, layout.align()).ok());
        let refused = |error: AllocError| {
            let arena = error.arena();
            error.with_request(layout).with_place(arena, tag)
        };
        let outer = self.inner.allocate(outer.ok_or_else(never_fits)?).map_err(refused)?;
        let part = outer.part(lead..lead + layout.size()).ok_or_else(never_fits)?;
        let entry = Entry { outer, block: Block::new(part.address(), layout), tag };
        let mut watched = self.watched.lock();
        for part in around(entry) {
            self.fill(&mut watched.faults, entry, part, CANARY);
        }
        self.fill(&mut watched.faults, entry, Some(entry.block), NEW);
        watched.live.insert(entry.block.address_bits(), entry);
        Ok(entry.block)
    }

    fn fault(&self, entry: Entry, kind: FaultKind, offset_bytes: isize) -> Fault {
        let Entry { block, tag, .. } = entry;
        let (address, size_bytes) = (block.address_bits(), block.size_bytes());
        Fault { space: self.id(), kind, address, size_bytes, tag, offset_bytes }
    }

    /// Writes `byte` over a part of an entry.
    fn fill(&self, faults: &mut Vec<Fault>, entry: Entry, part: Option<Block>, byte: u8) {
        let Some(part) = part.filter(|part| part.size_bytes() > 0) else { return };
        let (address, size_bytes) = (part.address(), part.size_bytes());
        if self.inner.host_accessible() {
            // SAFETY: G1, G2: host memory of a live block of the space within, and its user has no part in it.
            unsafe { address.write_bytes(byte, size_bytes) };
        } else if let Some(queue) = &mut *self.queue.lock() {
            // SAFETY: G1, G2: as above, of the device; the next line waits.
            let filled = unsafe { queue.fill(address, size_bytes, byte) };
            if filled.and_then(|()| queue.synchronize()).is_err() {
                faults.push(self.fault(entry, FaultKind::Unreadable, 0));
            }
        }
    }

    /// Where a part of an entry first differs from `byte`.
    fn differs(&self, faults: &mut Vec<Fault>, entry: Entry, part: Option<Block>, byte: u8) -> Option<usize> {
        let part = part.filter(|part| part.size_bytes() > 0)?;
        let (source, size_bytes) = (part.address(), part.size_bytes());
        let mut bytes = vec![0_u8; size_bytes];
        let target = NonNull::new(bytes.as_mut_ptr())?;
        if self.inner.host_accessible() {
            // SAFETY: G1, G2: host memory of a live block of the space within; `bytes` is as long, and new.
            unsafe { target.copy_from_nonoverlapping(source, size_bytes) };
        } else if let Some(queue) = &mut *self.queue.lock() {
            // SAFETY: G1, G2: as above, of the device; the next line waits.
            let queued = unsafe { queue.download(&[Piece { target, source, size_bytes }]) };
            if queued.and_then(|()| queue.synchronize()).is_err() {
                faults.push(self.fault(entry, FaultKind::Unreadable, 0));
                return None;
            }
        } else {
            return None;
        }
        bytes.iter().position(|&held| held != byte)
    }

    fn check_bounds(&self, faults: &mut Vec<Fault>, entry: Entry) {
        let [before, after] = around(entry);
        if let Some(at) = self.differs(faults, entry, before, CANARY) {
            let offset = at.cast_signed() - CANARY_BYTES.cast_signed();
            faults.push(self.fault(entry, FaultKind::WrittenBefore, offset));
        }
        if let Some(at) = self.differs(faults, entry, after, CANARY) {
            let offset = (entry.block.size_bytes() + at).cast_signed();
            faults.push(self.fault(entry, FaultKind::WrittenAfter, offset));
        }
    }

    fn check_gone(&self, faults: &mut Vec<Fault>, entry: Entry) {
        if let Some(at) = self.differs(faults, entry, Some(entry.block), GONE) {
            faults.push(self.fault(entry, FaultKind::WrittenWhenGone, at.cast_signed()));
        }
    }

    /// Lets go of what was kept, the oldest first, until no more than `keep_bytes` are.
    fn let_go(&self, mut watched: MutexGuard<'_, Watched>, keep_bytes: usize) {
        let mut outers = Vec::new();
        while watched.gone_bytes > keep_bytes
            && let Some(entry) = watched.gone.pop_front()
        {
            watched.gone_bytes -= entry.outer.size_bytes();
            self.check_gone(&mut watched.faults, entry);
            outers.push(entry.outer);
        }
        drop(watched);
        for outer in outers {
            // SAFETY: G1; its entry is gone just now, and its user gave the block back.
            unsafe { self.inner.deallocate(outer) };
        }
    }
}

// SAFETY:
// * a block lies within one of the space within, between its canaries, aligned: the lead is a multiple of the
//   alignment; that one stays until the block was given back and let go;
// * the CPU reaches it where it reaches those of the space within.
unsafe impl<S: MemorySpace> MemorySpace for Guarded<S> {
    fn id(&self) -> SpaceId {
        self.inner.id()
    }

    fn host_accessible(&self) -> bool {
        self.inner.host_accessible()
    }

    fn open_queue(&self) -> Result<Option<Box<dyn Queue>>, QueueError> {
        self.inner.open_queue()
    }

    fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        self.allocate_for(layout, Tag::NONE)
    }

    unsafe fn deallocate(&self, block: Block) {
        let mut watched = self.watched.lock();
        let Some(entry) = watched.live.remove(&block.address_bits()) else {
            let entry = Entry { outer: block, block, tag: Tag::NONE };
            let known = watched.gone.iter().find(|gone| gone.block.address_bits() == block.address_bits());
            let fault = self.fault(known.copied().unwrap_or(entry), FaultKind::NotLive, 0);
            watched.faults.push(fault);
            return;
        };
        self.check_bounds(&mut watched.faults, entry);
        self.fill(&mut watched.faults, entry, Some(entry.block), GONE);
        watched.gone_bytes += entry.outer.size_bytes();
        watched.gone.push_back(entry);
        self.let_go(watched, self.keep_bytes);
    }

    fn base_align(&self) -> usize {
        self.inner.base_align()
    }

    fn as_poison(&self) -> Option<&dyn Poison> {
        Some(self)
    }
}

// SAFETY: as the space within.
unsafe impl<S: HostAccessible> HostAccessible for Guarded<S> {}

// SAFETY: `fill` writes the block and nothing else.
unsafe impl<S: MemorySpace> Poison for Guarded<S> {
    unsafe fn poison(&self, block: Block) {
        let entry = Entry { outer: block, block, tag: Tag::NONE };
        self.fill(&mut self.watched.lock().faults, entry, Some(block), GONE);
    }
}

impl<S: MemorySpace> Drop for Guarded<S> {
    fn drop(&mut self) {
        self.let_go(self.watched.lock(), 0);
    }
}

impl<S: MemorySpace> fmt::Debug for Guarded<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = self.watched.lock();
        let mut out = f.debug_struct("Guarded");
        out.field("inner", &self.inner).field("live", &watched.live.len()).finish_non_exhaustive()
    }
}

/// The bytes watched before and after a block.
fn around(entry: Entry) -> [Option<Block>; 2] {
    let start = entry.block.address().addr().get() - entry.outer.address().addr().get();
    let end = start + entry.block.size_bytes();
    [entry.outer.part(start - CANARY_BYTES..start), entry.outer.part(end..end + CANARY_BYTES)]
}

/// A [`Guarded`] space for one tag.
#[derive(Debug)]
pub struct GuardedFor<'a, S: MemorySpace> {
    space: &'a Guarded<S>,
    tag: Tag,
}

// SAFETY: every call goes to the guarded space, which keeps the terms.
unsafe impl<S: MemorySpace> MemorySpace for GuardedFor<'_, S> {
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
        self.space.allocate_for(layout, self.tag)
    }

    unsafe fn deallocate(&self, block: Block) {
        // SAFETY: the caller keeps the terms of this very call.
        unsafe { self.space.deallocate(block) };
    }

    fn base_align(&self) -> usize {
        self.space.base_align()
    }

    fn as_poison(&self) -> Option<&dyn Poison> {
        self.space.as_poison()
    }
}

// SAFETY: as the space within.
unsafe impl<S: HostAccessible> HostAccessible for GuardedFor<'_, S> {}
