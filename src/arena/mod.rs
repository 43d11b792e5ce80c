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
//! Deliberately absent: freeing one block, and running destructors. A [`Pool`](crate::pool::Pool) frees; a `Box` in the
//! arena, by the feature `allocator-api2`, drops.

// Invariants:
// * **A1** What lies between the cursor and its `end` is within the committed part of the current chunk, or nothing fits
//   there.
// * **A2** `base` is the pointer to the current chunk, with its provenance, which was exposed.
// * **A3** Nothing from the cursor to the end of the current chunk, nor in later chunks, is given out. Where the cursor
//   is `NOWHERE`, nothing is given out at all, whatever chunks are there. While a scope is open its cursor is meant, and
//   it stands in the current chunk.
// * **A4** `high`, or the cursor where it is further, is as far as the cursor came since the current chunk was entered;
//   `high` is at most the cursor's end.
// * **A5** A block that may be freed or grown alone, of a collection, ends at `high` or before: freeing it need not look
//   how far the cursor came. It never ends at the end of a chunk that others may follow, where the next may start.

#[cfg(feature = "allocator-api2")]
mod allocator;
mod bump;
mod chunk;
mod device;
mod head;
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
use bump::{NOWHERE, place};
use chunk::{Chunks, Growth};
use core::alloc::Layout;
use core::cell::{Cell, RefCell, RefMut};
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use head::Cursor;
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
#[repr(C)]
pub struct Arena<S: MemorySpace> {
    // First, so that one register leads to both.
    cursor: Cursor,
    base: Cell<NonNull<u8>>,
    high: Cell<usize>,
    /// Live bytes in the chunks before the current one.
    before_bytes: Cell<usize>,
    /// The peak, as far as `high` does not say more.
    peak_bytes: Cell<usize>,
    // Apart from `blocks`: side by side, both are taken for a vector, which is slower.
    padding_bytes: Cell<usize>,
    growth: Cell<Growth>,
    blocks: Cell<u64>,
    /// Read by [`chunks`](Self::chunks), which knows of the first one in any case.
    books: RefCell<Chunks>,
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
            cursor: Cursor::nowhere(),
            base: Cell::new(NonNull::dangling()),
            high: Cell::new(0),
            before_bytes: Cell::new(0),
            peak_bytes: Cell::new(0),
            padding_bytes: Cell::new(0),
            growth: Cell::new(growth),
            blocks: Cell::new(0),
            books: RefCell::new(Chunks::new()),
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
        let before = self.cursor.position.get();
        let address = self.bump_to_the_end(layout).ok_or_else(|| self.never_fits(layout))?;
        self.count(before, address);
        Ok(Block::new(address, layout))
    }

    #[inline(always)]
    fn bump_counted(&self, layout: Layout) -> Option<NonNull<u8>> {
        let before = self.cursor.position.get();
        let address = self.address(self.head().bump(layout)?);
        self.count(before, address);
        Some(address)
    }

    #[inline(always)]
    fn count(&self, before: usize, address: NonNull<u8>) {
        self.blocks.set(self.blocks.get() + 1);
        self.padding_bytes.set(self.padding_bytes.get() + (address.addr().get() - before));
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
        let stale_bytes = match self.chunks().current() {
            Some(chunk) => {
                let base = chunk.base();
                let dirty_bytes = chunk.dirty_bytes.max(chunk.bytes_at(self.high.get() - base));
                (base + dirty_bytes).saturating_sub(start).min(layout.size())
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
            let reason = "the CPU cannot zero memory of this space: allocate, and zero it by a queue";
            let error = AllocError::new(self.space.id(), layout, AllocErrorKind::Refused { reason });
            return Err(self.explain(error, layout));
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
        let fits = place(self.cursor.position.get(), layout).next <= self.cursor.end.get();
        if size_bytes == 0 || fits { Ok(()) } else { self.grow(layout) }
    }

    /// Takes one exact chunk of `size_bytes`, where there is none yet.
    fn make_exact_room(&self, size_bytes: usize) -> Result<(), AllocError> {
        let growth = self.growth.replace(Growth::Exact);
        let result = self.make_room(size_bytes);
        self.growth.set(growth);
        result
    }

    /// Memory held, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.chunks().capacity_bytes()
    }

    /// Addresses held, in bytes.
    fn reserved_bytes(&self) -> usize {
        self.chunks().reserved_bytes()
    }

    /// Takes every block back at once and keeps the memory. O(1).
    #[inline]
    pub fn reset(&mut self) {
        if let Some(poison) = self.space.as_poison() {
            self.poison_from(poison, NOWHERE);
        }
        self.padding_bytes.set(0);
        self.blocks.set(0);
        if self.books.get_mut().current == 0 && self.cursor.position.get() <= self.high.get() {
            self.cursor.position.set(self.base.get().addr().get());
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
        let mut chunks = self.chunks();
        chunks.trim(&self.space, used_bytes, keep_bytes);
        self.stand(&mut chunks, used_bytes);
    }

    /// What is held and given out.
    pub fn stats(&self) -> ArenaStats {
        let (live_bytes, peak_bytes) = (self.live_bytes(), self.peak_bytes.get().max(self.high_bytes()));
        let chunks = self.chunks();
        ArenaStats {
            live_bytes,
            peak_bytes,
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
        match self.cursor.position.get() {
            NOWHERE => layout.size(),
            from => self.live_bytes() + (place(from, layout).next - from),
        }
    }

    /// Given out in the current chunk, in bytes.
    fn used_bytes(&self) -> usize {
        self.bytes_at(self.cursor.position.get())
    }

    /// Given out in the current chunk where the cursor stands here, in bytes.
    fn bytes_at(&self, position: usize) -> usize {
        if position == NOWHERE {
            return 0;
        }
        let offset_bytes = position - self.base.get().addr().get();
        self.chunks().current().map_or(0, |chunk| chunk.bytes_at(offset_bytes))
    }

    /// The most given out in the current chunk at a time, as far as `high` and the cursor know.
    fn most_used_bytes(&self) -> usize {
        let high = self.high.get();
        let high_bytes = if high == 0 { 0 } else { self.bytes_at(high) };
        high_bytes.max(self.used_bytes())
    }

    fn high_bytes(&self) -> usize {
        self.before_bytes.get() + self.most_used_bytes()
    }

    /// The chunks, the first one included where [`start`](Self::start) did not book it.
    fn chunks(&self) -> RefMut<'_, Chunks> {
        let mut chunks = self.books.borrow_mut();
        if let Some(block) = self.unbooked(chunks.list.len()) {
            chunks.book_first(&self.space, block);
        }
        chunks
    }

    /// The first chunk, where it is not among the `booked` ones.
    #[inline]
    fn unbooked(&self, booked: usize) -> Option<Block> {
        let end = self.cursor.end.get();
        if end == 0 || booked > 0 {
            return None;
        }
        let base = self.base.get();
        // C4: the cursor's end is one before the chunk's.
        Some(Block::new(base, chunk::first_layout(&self.space, end + 1 - base.addr().get())))
    }

    /// The pointer to this byte, which lies in the current chunk.
    #[inline(always)]
    fn address(&self, start: usize) -> NonNull<u8> {
        // SAFETY: A1: it fits, so there is a current chunk, and the start is at least its base, which is not 0.
        let start = unsafe { NonZeroUsize::new_unchecked(start) };
        // A2. Compiled, the base would be read and subtracted again.
        if cfg!(miri) { self.base.get().with_addr(start) } else { NonNull::with_exposed_provenance(start) }
    }

    /// The address of a block for `layout`, the last byte of the chunk included (C4). The chunk has room for it.
    fn bump_to_the_end(&self, layout: Layout) -> Option<NonNull<u8>> {
        let (fit, end) = (place(self.cursor.position.get(), layout), self.cursor.end.get());
        if fit.next > end + 1 {
            return None;
        }
        self.cursor.position.set(fit.next.min(end));
        Some(self.address(fit.start))
    }

    /// The address of a block for `layout`, where there may be no room.
    #[cold]
    #[inline(never)]
    fn grow_and_bump(&self, layout: Layout) -> Result<NonNull<u8>, AllocError> {
        if let Some(start) = self.head().bump(layout) {
            return Ok(self.address(start));
        }
        if layout.size() == 0 {
            return Ok(dangling(layout.align()));
        }
        self.grow(layout)?;
        self.bump_to_the_end(layout).ok_or_else(|| self.never_fits(layout))
    }

    fn never_fits(&self, layout: Layout) -> AllocError {
        AllocError::new(self.space.id(), layout, AllocErrorKind::NeverFits).with_live(self.live_bytes())
    }

    /// The first block of an arena that is small at first, in few steps: for arenas that come and go. Its chunk is booked
    /// when somebody asks for the books.
    #[inline(always)]
    fn start(&self, layout: Layout) -> Option<NonNull<u8>> {
        if self.cursor.end.get() != 0 || layout.size() == 0 {
            return None;
        }
        let chunk = chunk::first_block(&self.space, self.growth.get(), layout)?;
        let (base, start) = (chunk.address(), chunk.address().addr().get());
        base.expose_provenance();
        self.base.set(base);
        self.cursor.end.set(start + (chunk.size_bytes() - 1));
        self.high.set(start);
        // The block is at the start, which is aligned, and leaves something free.
        self.cursor.position.set(start + layout.size());
        Some(base)
    }

    /// Makes room for `layout` and stands where it is, for the caller to give out.
    #[cold]
    #[inline(never)]
    fn grow(&self, layout: Layout) -> Result<(), AllocError> {
        let (from, end) = (self.cursor.position.get(), self.cursor.end.get());
        let needs_last_byte = from < end && place(from, layout).next == end + 1;
        if needs_last_byte && self.chunks().has_last_byte() {
            return Ok(());
        }
        self.note_high();
        let used_bytes = self.used_bytes();
        let mut chunks = self.chunks();
        let from = chunks.current;
        let is_first = chunks.list.len() == 0;
        if let Some(chunk) = chunks.current() {
            chunk.left_bytes = used_bytes;
        }
        if let Err(error) = chunks.make_room(&self.space, self.growth.get(), used_bytes, layout) {
            drop(chunks);
            return Err(self.explain(error, layout));
        }
        if is_first || chunks.current != from {
            self.before_bytes.set(self.before_bytes.get() + used_bytes);
            self.stand(&mut chunks, 0);
        } else {
            self.stand(&mut chunks, used_bytes);
        }
        Ok(())
    }

    /// Keeps what `high` knows: the peak, and how far the current chunk was ever used.
    fn note_high(&self) {
        self.peak_bytes.set(self.peak_bytes.get().max(self.high_bytes()));
        let used_bytes = self.most_used_bytes();
        if let Some(chunk) = self.chunks().current() {
            chunk.dirty_bytes = chunk.dirty_bytes.max(used_bytes);
        }
    }

    /// Spoils what was given out since `mark`, which the caller is about to take back.
    #[cold]
    #[inline(never)]
    fn poison_from(&self, poison: &dyn Poison, mark: usize) {
        let here_bytes = self.used_bytes();
        let chunks = self.chunks();
        // A mark from before the first chunk is the start of the first chunk.
        let (first, kept_bytes) = chunks.place_of(mark).unwrap_or((0, 0));
        for (index, chunk) in chunks.list.iter().enumerate().take(chunks.current + 1).skip(first) {
            let used_bytes = if index == chunks.current { here_bytes } else { chunk.left_bytes };
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
        let (base, position, end) = match chunks.current() {
            Some(chunk) => {
                let reach_bytes = chunk.reach_bytes();
                let position = chunk.base() + used_bytes.min(reach_bytes);
                (chunk.block.address(), position, chunk.base() + reach_bytes)
            }
            None => (NonNull::dangling(), NOWHERE, 0),
        };
        base.expose_provenance();
        self.base.set(base);
        self.cursor.position.set(position);
        self.cursor.end.set(end);
        self.high.set(if end == 0 { 0 } else { position });
    }
}

impl<S: MemorySpace> Drop for Arena<S> {
    #[inline]
    fn drop(&mut self) {
        let booked = self.books.get_mut().list.len();
        match self.unbooked(booked) {
            Some(block) => chunk::give_back_first(&self.space, block),
            None => self.books.get_mut().clear(&self.space),
        }
    }
}
