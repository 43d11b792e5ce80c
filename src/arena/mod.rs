//! Arenas: blocks that are given out in order and taken back together.
//!
//! ```text
//!            live                          free
//!   │ block │ block │ pad │ block │····················│
//!   base                         cursor               end       reset: back to base, memory kept
//! ```
//!
//! An arena keeps its books beside the memory, never in it, so that the same arena serves memory the CPU
//! cannot reach. Where the space reserves address space, an arena is one address range that grows in place;
//! else it is a list of exact blocks. No block ever moves.
//!
//! Deliberately absent: freeing one block, and running destructors. What needs either belongs in a
//! [`Pool`](crate::pool::Pool) or a `Box`.
//!
//! # Invariants
//! * **A1** What lies between the cursor, at `depth`, and `end` is within the committed part of the current chunk,
//!   or nothing fits there.
//! * **A2** `base` is the pointer to the current chunk, with its provenance, which was exposed.
//! * **A3** Nothing from the cursor to the end of the current chunk, nor in later chunks, is given out. Where the
//!   cursor is `NOWHERE`, nothing is given out at all, whatever chunks are there.
//! * **A4** In the first chunk, `high` or `depth` is the least deep that the cursor was since the chunk was entered,
//!   and every point to go back to is in this chunk or before it. Anywhere else `high` is deeper than any cursor:
//!   whoever goes back takes the careful way.
//! * **A5** At the start of a later chunk `end` is the cursor, as if nothing were free: a block of a chunk that touches
//!   this one ends there, and must not grow into it.

#[cfg(feature = "allocator-api2")]
mod allocator;
mod bump;
mod chunk;
mod device;
mod lender;
mod meter;
mod names;
mod scope;
mod set;
mod shared;
mod slices;
mod stats;
mod typed;

pub use device::DevicePtr;
pub use meter::{Meter, Usage};
pub use scope::{Checkpoint, Scope, ScopeGuard};
pub use set::{
    ArenaSet, ArenaSetBuilder, ArenaSetReport, MissingSpace, OpenSpace, OwnerReport, PooledArena, SpaceReport,
};
pub use shared::SharedArena;
pub use stats::ArenaStats;

use crate::space::{AllocError, AllocErrorKind, Block, MemorySpace, Poison, dangling};
use bump::{Fit, NOWHERE, depth, fit, place};
use chunk::{Chunks, Growth};
use core::alloc::Layout;
use core::cell::{Cell, RefCell};
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use names::Names;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("arenas need 64-bit addresses: their arithmetic relies on the upper half being free");

/// The addresses an arena reserves unless told otherwise, in bytes. Addresses cost nothing until used, and
/// a process has thousands of times as many.
const RESERVE_BYTES: usize = 64 << 30;

/// A bump arena over any memory space.
///
/// # Examples
/// ```
/// use arenite::{Arena, HostSpace};
/// use core::alloc::Layout;
///
/// let mut arena = Arena::new(HostSpace::new());
/// let name = arena.alloc_str("conv1");      // typed, in host memory
/// assert_eq!(name, "conv1");
/// let block = arena.allocate(Layout::from_size_align(768, 256)?)?; // untyped, in any memory
/// assert_eq!(block.address_bits() % 256, 0);
/// arena.reset();                            // O(1), keeps the memory
/// assert_eq!(arena.stats().live_bytes, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
/// One thread at a time allocates from an arena; it may be sent to another, not shared:
/// ```compile_fail,E0277
/// let arena = arenite::Arena::new(arenite::HostSpace::new());
/// std::thread::scope(|threads| {
///     threads.spawn(|| { arena.alloc(7); });
/// });
/// ```
#[doc(alias = "region")]
#[doc(alias = "zone")]
#[derive(Debug)]
pub struct Arena<S: MemorySpace> {
    depth: Cell<usize>,
    end: Cell<usize>,
    base: Cell<NonNull<u8>>,
    high: Cell<usize>,
    /// Live bytes in the chunks before the current one.
    before_bytes: Cell<usize>,
    /// The peak, as far as `high` does not say more.
    peak_bytes: Cell<usize>,
    padding_bytes: Cell<usize>,
    chunks: RefCell<Chunks>,
    blocks: Cell<u64>,
    names: RefCell<Option<Box<Names>>>,
    space: S,
}

// SAFETY: the arena owns its chunks alone and its pointers lead nowhere else; the space may be sent, and
// gives memory that any thread may use. What was given out borrows the arena or is reached by `unsafe`.
unsafe impl<S: MemorySpace + Send> Send for Arena<S> {}

impl<S: MemorySpace> Arena<S> {
    /// An arena that takes memory from `space` when it first needs some.
    pub const fn new(space: S) -> Self {
        Self::with_growth(space, Growth::Reserve(RESERVE_BYTES))
    }

    /// The same, reserving at least `reserve_bytes` of addresses to grow in, where the space can.
    pub const fn with_reserve(space: S, reserve_bytes: usize) -> Self {
        Self::with_growth(space, Growth::Reserve(reserve_bytes))
    }

    /// An arena that grows by exact blocks even where the space could reserve addresses.
    pub const fn with_chunks(space: S) -> Self {
        Self::with_growth(space, Growth::Chunks)
    }

    /// An arena of one exact block of `size_bytes` at the space's base alignment, that never grows.
    ///
    /// # Errors
    /// [`AllocError`] where the space does not give the block.
    pub fn exact(space: S, size_bytes: usize) -> Result<Self, AllocError> {
        let arena = Self::with_growth(space, Growth::Fixed);
        arena.make_room(size_bytes)?;
        Ok(arena)
    }

    const fn with_growth(space: S, growth: Growth) -> Self {
        Self {
            depth: Cell::new(NOWHERE),
            end: Cell::new(usize::MAX),
            base: Cell::new(NonNull::dangling()),
            high: Cell::new(usize::MAX),
            before_bytes: Cell::new(0),
            peak_bytes: Cell::new(0),
            padding_bytes: Cell::new(0),
            blocks: Cell::new(0),
            chunks: RefCell::new(Chunks::new(growth)),
            names: RefCell::new(None),
            space,
        }
    }

    /// The space its memory is from.
    pub fn space(&self) -> &S {
        &self.space
    }

    /// A block for `layout`. It stays valid and unmoved until the arena is reset, rewound past it or dropped.
    ///
    /// # Errors
    /// [`AllocError`] where the space gives no more memory; then nothing has changed.
    #[inline]
    pub fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        match self.bump_counted(layout) {
            Some(address) => Ok(Block::new(address, layout)),
            None => self.grow_and_allocate(layout),
        }
    }

    #[cold]
    #[inline(never)]
    fn grow_and_allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        if layout.size() == 0 {
            return Ok(Block::empty(layout));
        }
        self.grow(layout)?;
        let before = self.depth.get();
        let address = self.bump_to_the_end(layout).ok_or_else(|| self.never_fits(layout))?;
        self.count(before, address);
        Ok(Block::new(address, layout))
    }

    #[inline(always)]
    fn bump_counted(&self, layout: Layout) -> Option<NonNull<u8>> {
        let before = self.depth.get();
        let address = self.bump(layout)?;
        self.count(before, address);
        Some(address)
    }

    #[inline(always)]
    fn count(&self, before: usize, address: NonNull<u8>) {
        self.blocks.set(self.blocks.get() + 1);
        self.padding_bytes.set(self.padding_bytes.get() + (before - depth(address.addr().get())));
    }

    /// A block for `layout`, and how many bytes from its start on may hold old data: where the space gives
    /// zeroes, the rest reads as zero.
    ///
    /// # Errors
    /// [`AllocError`], as [`allocate`](Self::allocate).
    pub fn allocate_stale(&self, layout: Layout) -> Result<(Block, usize), AllocError> {
        let block = self.allocate(layout)?;
        if layout.size() == 0 {
            return Ok((block, 0));
        }
        let start = block.address().addr().get();
        let stale_bytes = match self.chunks.borrow_mut().current() {
            Some(chunk) => {
                let clean_from = depth(self.high.get()).max(chunk.base() + chunk.dirty_bytes);
                clean_from.saturating_sub(start).min(layout.size())
            }
            None => layout.size(),
        };
        Ok((block, stale_bytes))
    }

    /// A block for `layout` that reads as zero; only stale bytes are written.
    ///
    /// # Errors
    /// [`AllocError`], as [`allocate`](Self::allocate), or because the CPU does not reach the space.
    pub fn allocate_zeroed(&self, layout: Layout) -> Result<Block, AllocError> {
        if !self.space.host_accessible() {
            let kind = AllocErrorKind::Refused { reason: "the CPU cannot zero memory of this space" };
            return Err(AllocError::new(self.space.id(), layout, kind));
        }
        let (block, stale_bytes) = self.allocate_stale(layout)?;
        // SAFETY: the space is host-accessible, `stale_bytes` is at most the block's size, and nobody else
        // knows the block yet.
        unsafe { block.address().write_bytes(0, stale_bytes) };
        Ok(block)
    }

    /// Makes sure that one block of `size_bytes` at the space's base alignment can be allocated.
    ///
    /// # Errors
    /// [`AllocError`] where the space gives no more memory; then nothing has changed.
    pub fn make_room(&self, size_bytes: usize) -> Result<(), AllocError> {
        let align = self.space.base_align();
        let layout = Layout::from_size_align(size_bytes, align)
            .map_err(|_| AllocError::too_large(self.space.id(), size_bytes, align))?;
        if size_bytes == 0 || fit(self.depth.get(), self.end.get(), layout).is_some() {
            return Ok(());
        }
        self.grow(layout)?;
        self.close();
        Ok(())
    }

    /// Takes one exact chunk of `size_bytes`, where there is none yet.
    fn make_exact_room(&self, size_bytes: usize) -> Result<(), AllocError> {
        let growth = core::mem::replace(&mut self.chunks.borrow_mut().growth, Growth::Exact);
        let result = self.make_room(size_bytes);
        self.chunks.borrow_mut().growth = growth;
        result
    }

    /// Memory held, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.chunks.borrow().capacity_bytes()
    }

    /// Addresses held, in bytes.
    fn reserved_bytes(&self) -> usize {
        self.chunks.borrow().reserved_bytes()
    }

    /// Takes every block back at once and keeps the memory. O(1).
    #[inline]
    pub fn reset(&mut self) {
        if let Some(poison) = self.space.as_poison() {
            self.poison_from(poison, NOWHERE);
        }
        self.padding_bytes.set(0);
        self.blocks.set(0);
        if self.depth.get() >= self.high.get() {
            self.depth.set(depth(self.base.get().addr().get()));
        } else {
            self.rewind_with_care(NOWHERE);
        }
    }

    /// Gives back the memory that is not in use, as far as the space can take parts of it.
    pub fn trim(&mut self) {
        self.trim_to(0);
    }

    /// Gives back memory that is not in use, as far as the space can take parts of it, until about
    /// `keep_bytes` are held.
    pub fn trim_to(&mut self, keep_bytes: usize) {
        self.note_high();
        let used_bytes = self.used_bytes();
        let mut chunks = self.chunks.borrow_mut();
        chunks.trim(&self.space, used_bytes, keep_bytes);
        self.stand(&mut chunks, used_bytes);
    }

    /// What is held and given out.
    pub fn stats(&self) -> ArenaStats {
        let chunks = self.chunks.borrow();
        ArenaStats {
            live_bytes: self.live_bytes(),
            peak_bytes: self.peak_bytes.get().max(self.high_bytes()),
            capacity_bytes: chunks.capacity_bytes(),
            reserved_bytes: chunks.reserved_bytes(),
            padding_bytes: self.padding_bytes.get(),
            blocks: self.blocks.get(),
            chunks: chunks.list.len(),
        }
    }

    /// Given out now, padding included, in bytes.
    pub fn live_bytes(&self) -> usize {
        self.before_bytes.get() + self.used_bytes()
    }

    /// What [`live_bytes`](Self::live_bytes) will be after a block for `layout`, if it fits where it stands.
    fn live_bytes_after(&self, layout: Layout) -> usize {
        // A reserved range continues after its end; a new chunk starts aligned.
        match self.depth.get() {
            NOWHERE => layout.size(),
            from => self.live_bytes() + (from - place(from, layout).next),
        }
    }

    /// Given out in the current chunk, in bytes.
    fn used_bytes(&self) -> usize {
        self.bytes_at(self.depth.get())
    }

    /// Given out in the current chunk where the cursor stands at this depth, in bytes.
    fn bytes_at(&self, cursor: usize) -> usize {
        if cursor == NOWHERE {
            return 0;
        }
        let offset_bytes = depth(cursor) - self.base.get().addr().get();
        let chunks = self.chunks.borrow();
        chunks.list.get(chunks.current).map_or(0, |chunk| chunk.bytes_at(offset_bytes))
    }

    /// The most given out in the current chunk at a time, as far as `high` and the cursor know.
    fn most_used_bytes(&self) -> usize {
        let high = self.high.get();
        let high_bytes = if high == usize::MAX { 0 } else { self.bytes_at(high) };
        high_bytes.max(self.used_bytes())
    }

    fn high_bytes(&self) -> usize {
        self.before_bytes.get() + self.most_used_bytes()
    }

    /// The address of a block for `layout`, off the cursor. The hot path.
    #[inline(always)]
    fn bump(&self, layout: Layout) -> Option<NonNull<u8>> {
        let Fit { start, next } = fit(self.depth.get(), self.end.get(), layout)?;
        self.depth.set(next);
        Some(self.address(start))
    }

    /// The same, the last byte of the chunk included (C4). The chunk has room for it.
    fn bump_to_the_end(&self, layout: Layout) -> Option<NonNull<u8>> {
        let Fit { start, next } = place(self.depth.get(), layout);
        if next + 1 < self.end.get() {
            return None;
        }
        self.depth.set(next.max(self.end.get()));
        Some(self.address(start))
    }

    /// The pointer to the byte at this depth, which lies in the current chunk.
    #[inline(always)]
    fn address(&self, start: usize) -> NonNull<u8> {
        // SAFETY: A1: it fits, so there is a current chunk, and the start is at least its base, which is not 0.
        let start = unsafe { NonZeroUsize::new_unchecked(depth(start)) };
        // A2. Compiled, the base would be read and subtracted again.
        if cfg!(miri) { self.base.get().with_addr(start) } else { NonNull::with_exposed_provenance(start) }
    }

    #[inline(always)]
    fn bump_or_grow(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        match self.bump(layout) {
            Some(address) => Ok(address),
            None => self.grow_and_bump(layout),
        }
    }

    #[cold]
    #[inline(never)]
    fn grow_and_bump(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if layout.size() == 0 {
            return Ok(dangling(layout.align()));
        }
        self.grow(layout)?;
        self.bump_to_the_end(layout).ok_or_else(|| self.never_fits(layout))
    }

    fn never_fits(&self, layout: Layout) -> AllocError {
        AllocError::new(self.space.id(), layout, AllocErrorKind::NeverFits).with_live(self.live_bytes())
    }

    /// The first block of an arena that is small at first, in few steps: for arenas that come and go.
    #[inline(always)]
    fn start(&self, layout: Layout) -> Option<NonNull<u8>> {
        if self.end.get() != usize::MAX || layout.size() == 0 {
            return None;
        }
        let mut chunks = self.chunks.borrow_mut();
        let chunk = chunks.start(&self.space, layout)?;
        let base = chunk.block.address();
        base.expose_provenance();
        self.base.set(base);
        self.end.set(depth(chunk.base() + chunk.reach_bytes()));
        self.high.set(depth(chunk.base()));
        // The block is at the start, which is aligned, and leaves something free.
        self.depth.set(depth(chunk.base() + layout.size()));
        Some(base)
    }

    /// Makes room for `layout` and stands where it is, for the caller to give out (A5).
    #[cold]
    #[inline(never)]
    fn grow(&self, layout: Layout) -> Result<(), AllocError> {
        let (cursor, end) = (self.depth.get(), self.end.get());
        let needs_last_byte = cursor > end && place(cursor, layout).next + 1 == end;
        if needs_last_byte && self.chunks.borrow().has_last_byte() {
            return Ok(());
        }
        self.note_high();
        let used_bytes = self.used_bytes();
        let mut chunks = self.chunks.borrow_mut();
        let from = chunks.current;
        let is_first = chunks.list.len() == 0;
        if let Some(chunk) = chunks.current() {
            chunk.left_bytes = used_bytes;
        }
        if let Err(error) = chunks.make_room(&self.space, used_bytes, layout) {
            drop(chunks);
            return Err(self.explain(error));
        }
        if is_first || chunks.current != from {
            self.before_bytes.set(self.before_bytes.get() + used_bytes);
            self.stand_open(&mut chunks, 0);
        } else {
            self.stand_open(&mut chunks, used_bytes);
        }
        Ok(())
    }

    /// Keeps what `high` knows: the peak, and how far the current chunk was ever used.
    fn note_high(&self) {
        self.peak_bytes.set(self.peak_bytes.get().max(self.high_bytes()));
        let used_bytes = self.most_used_bytes();
        if let Some(chunk) = self.chunks.borrow_mut().current() {
            chunk.dirty_bytes = chunk.dirty_bytes.max(used_bytes);
        }
    }

    /// Spoils what was given out since `mark`, which the caller is about to take back.
    #[cold]
    #[inline(never)]
    fn poison_from(&self, poison: &dyn Poison, mark: usize) {
        let chunks = self.chunks.borrow();
        // A mark from before the first chunk is the start of the first chunk.
        let (first, kept_bytes) = chunks.place_of(mark).unwrap_or((0, 0));
        for (index, chunk) in chunks.list.iter().enumerate().take(chunks.current + 1).skip(first) {
            let used_bytes = if index == chunks.current { self.used_bytes() } else { chunk.left_bytes };
            let kept_bytes = if index == first { kept_bytes } else { 0 };
            if let Some(part) = chunk.block.part(kept_bytes..used_bytes) {
                // SAFETY: a part of a chunk (C1) that was given out and is taken back just now: callers hold
                // the arena mutably, or own the block that they give back, so that nothing uses it.
                unsafe { poison.poison(part) };
            }
        }
    }

    /// Stands after the first `used_bytes` of the current chunk.
    fn stand(&self, chunks: &mut Chunks, used_bytes: usize) {
        self.stand_open(chunks, used_bytes);
        self.close();
    }

    /// Keeps A5 where nothing is given out of the current chunk.
    fn close(&self) {
        let cursor = self.depth.get();
        if self.high.get() == usize::MAX && cursor == depth(self.base.get().addr().get()) {
            self.end.set(cursor);
        }
    }

    /// The same, not keeping A5: the caller gives out what is there.
    #[inline]
    fn stand_open(&self, chunks: &mut Chunks, used_bytes: usize) {
        let is_first = chunks.current == 0;
        let (base, cursor, end) = match chunks.current() {
            Some(chunk) => {
                let reach_bytes = chunk.reach_bytes();
                let cursor = chunk.base() + used_bytes.min(reach_bytes);
                (chunk.block.address(), depth(cursor), depth(chunk.base() + reach_bytes))
            }
            None => (NonNull::dangling(), NOWHERE, usize::MAX),
        };
        base.expose_provenance();
        self.base.set(base);
        self.depth.set(cursor);
        self.end.set(end);
        self.high.set(if is_first && cursor != NOWHERE { cursor } else { usize::MAX });
    }
}

impl<S: MemorySpace> Drop for Arena<S> {
    #[inline]
    fn drop(&mut self) {
        self.chunks.get_mut().clear(&self.space);
    }
}
