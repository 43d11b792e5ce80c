//! Arenas: blocks that are given out in order and taken back together.
//!
//! ```text
//!            live                          free
//!   │ block │ block │ pad │ block │····················│
//!   base                          cursor               end      reset: cursor = base, memory kept
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
//! * **A1** `cursor..end` lies within the committed part of the current chunk, or nothing fits in it.
//! * **A2** `base` is the pointer to the current chunk, with its provenance.
//! * **A3** Nothing from `cursor` to the end of the current chunk, nor in later chunks, is given out.
//! * **A4** `high` or `cursor` is the highest the cursor stood since the current chunk was entered.

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
use bump::{Fit, NOWHERE, fit, place};
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
    cursor: Cell<usize>,
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
    names: RefCell<Names>,
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
            cursor: Cell::new(NOWHERE.0),
            end: Cell::new(NOWHERE.1),
            base: Cell::new(NonNull::dangling()),
            high: Cell::new(NOWHERE.0),
            before_bytes: Cell::new(0),
            peak_bytes: Cell::new(0),
            padding_bytes: Cell::new(0),
            blocks: Cell::new(0),
            chunks: RefCell::new(Chunks::new(growth)),
            names: RefCell::new(Names::new()),
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
        let address = self.bump_counted(layout).ok_or_else(|| self.never_fits(layout))?;
        Ok(Block::new(address, layout))
    }

    #[inline(always)]
    fn bump_counted(&self, layout: Layout) -> Option<NonNull<u8>> {
        let before = self.cursor.get();
        let address = self.bump(layout)?;
        self.blocks.set(self.blocks.get() + 1);
        self.padding_bytes.set(self.padding_bytes.get() + (address.addr().get() - before));
        Some(address)
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
                let used = self.high.get().max(chunk.base() + chunk.dirty_bytes);
                used.saturating_sub(start).min(layout.size())
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
        if size_bytes == 0 || fit(self.cursor.get(), self.end.get(), layout).is_some() {
            return Ok(());
        }
        self.grow(layout)
    }

    /// Takes one exact chunk of `size_bytes`, where there is none yet.
    fn make_exact_room(&self, size_bytes: usize) -> Result<(), AllocError> {
        let growth = core::mem::replace(&mut self.chunks.borrow_mut().growth, Growth::Fixed);
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
    pub fn reset(&mut self) {
        if let Some(poison) = self.space.as_poison() {
            self.poison_from(poison, Checkpoint::START);
        }
        self.note_high();
        let chunks = self.chunks.get_mut();
        chunks.current = 0;
        let base = chunks.current().map(|chunk| (chunk.block.address(), chunk.end()));
        self.before_bytes.set(0);
        self.padding_bytes.set(0);
        self.blocks.set(0);
        match base {
            Some((base, end)) => self.stand(base, base.addr().get(), end),
            None => self.stand(NonNull::dangling(), NOWHERE.0, NOWHERE.1),
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
        let chunks = self.chunks.get_mut();
        chunks.trim(&self.space, self.cursor.get(), keep_bytes);
        match chunks.current().map(|chunk| (chunk.block.address(), chunk.end())) {
            Some((base, end)) => self.stand(base, self.cursor.get(), end),
            None => self.stand(NonNull::dangling(), NOWHERE.0, NOWHERE.1),
        }
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
        self.before_bytes.get() + self.offset_of(self.cursor.get())
    }

    /// What [`live_bytes`](Self::live_bytes) will be after a block for `layout`, if it fits where it stands.
    fn live_bytes_after(&self, layout: Layout) -> usize {
        match fit(self.cursor.get(), self.end.get(), layout) {
            Some(fit) => self.before_bytes.get() + self.offset_of(fit.next),
            None if self.end.get() == NOWHERE.1 => layout.size(),
            // A reserved range continues after the cursor; a new chunk starts aligned.
            None => self.live_bytes() + (place(self.cursor.get(), layout).next - self.cursor.get()),
        }
    }

    fn offset_of(&self, address: usize) -> usize {
        if self.end.get() == NOWHERE.1 { 0 } else { address - self.base.get().addr().get() }
    }

    fn high_bytes(&self) -> usize {
        self.before_bytes.get() + self.offset_of(self.high.get().max(self.cursor.get()))
    }

    /// The address of a block for `layout`, off the cursor. The hot path.
    #[inline(always)]
    fn bump(&self, layout: Layout) -> Option<NonNull<u8>> {
        let Fit { start, next } = fit(self.cursor.get(), self.end.get(), layout)?;
        self.cursor.set(next);
        // SAFETY: A1: it fits, so there is a current chunk, and `start` is at least its base, which is not 0.
        let start = unsafe { NonZeroUsize::new_unchecked(start) };
        Some(self.base.get().with_addr(start))
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
        self.bump(layout).ok_or_else(|| self.never_fits(layout))
    }

    fn never_fits(&self, layout: Layout) -> AllocError {
        AllocError::new(self.space.id(), layout, AllocErrorKind::NeverFits).with_live(self.live_bytes())
    }

    /// Makes room for `layout` and stands where it is.
    #[cold]
    #[inline(never)]
    fn grow(&self, layout: Layout) -> Result<(), AllocError> {
        self.note_high();
        let mut chunks = self.chunks.borrow_mut();
        let from = chunks.current;
        let left_bytes = self.offset_of(self.cursor.get());
        if let Some(chunk) = chunks.current() {
            chunk.left_bytes = left_bytes;
        }
        chunks.make_room(&self.space, self.cursor.get(), layout).map_err(|error| self.explain(&error))?;
        let moved_on = chunks.current != from || self.end.get() == NOWHERE.1;
        if let Some(chunk) = chunks.current() {
            let base = chunk.block.address();
            let end = chunk.end();
            if moved_on {
                self.before_bytes.set(self.before_bytes.get() + left_bytes);
                self.stand(base, base.addr().get(), end);
            } else {
                self.stand(base, self.cursor.get(), end);
            }
        }
        Ok(())
    }

    /// Keeps what `high` knows: the peak, and how far the current chunk was ever used.
    fn note_high(&self) {
        self.peak_bytes.set(self.peak_bytes.get().max(self.high_bytes()));
        let used_bytes = self.offset_of(self.high.get().max(self.cursor.get()));
        if let Some(chunk) = self.chunks.borrow_mut().current() {
            chunk.dirty_bytes = chunk.dirty_bytes.max(used_bytes);
        }
    }

    /// Spoils what was given out since `mark`, which the caller is about to take back.
    #[cold]
    #[inline(never)]
    fn poison_from(&self, poison: &dyn Poison, mark: Checkpoint) {
        let chunks = self.chunks.borrow();
        let at = chunks.list.iter().position(|chunk| chunk.base() == mark.base);
        let first = at.unwrap_or(0);
        for (index, chunk) in chunks.list.iter().enumerate().take(chunks.current + 1).skip(first) {
            let used_bytes =
                if index == chunks.current { self.offset_of(self.cursor.get()) } else { chunk.left_bytes };
            let kept_bytes = if Some(index) == at { mark.cursor - chunk.base() } else { 0 };
            if let Some(part) = chunk.block.part(kept_bytes..used_bytes) {
                // SAFETY: a part of a chunk (C1) that was given out and is taken back just now: callers hold
                // the arena mutably, so that nothing uses it.
                unsafe { poison.poison(part) };
            }
        }
    }

    /// Stands at `cursor` in the chunk at `base`.
    fn stand(&self, base: NonNull<u8>, cursor: usize, end: usize) {
        self.base.set(base);
        self.cursor.set(cursor);
        self.end.set(end);
        self.high.set(cursor);
    }
}

impl<S: MemorySpace> Drop for Arena<S> {
    fn drop(&mut self) {
        self.chunks.get_mut().clear(&self.space);
    }
}
