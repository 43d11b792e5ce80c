//! Chunks taken from a space: the list behind an arena, and every call an arena makes to its space.
//!
//! ```text
//!   chunk of a reserved range    │ committed ▓▓▓▓▓▓▓▓▓▓ │ addresses only ········ │   grows in place
//!   chunk of an exact block      │ committed ▓▓▓▓▓▓▓▓▓▓ │                             joined by further chunks
//! ```
//!
//! Deliberately absent: the cursor. Chunks know how much of them was ever used, not what is live.
//!
//! # Invariants
//! * **C1** Every chunk's block came from `reserve` (where `is_reserved`) or `allocate` of the arena's space
//!   and was not given back.
//! * **C2** The first `committed_bytes` of a chunk, at most its size, are memory; of an exact block, all are.
//! * **C3** A chunk starts at 2 or later and ends before `ADDRESS_MAX`.
//! * **C4** Of a chunk that others may follow, the cursor never stands at the end: where its last byte is given out,
//!   it stands one before. So a cursor tells its chunk, also where two of them touch.
//! * **C5** Where the space gives zeroes, bytes of a chunk from `dirty_bytes` on read as zero.

use super::bump::{ADDRESS_MAX, place};
use crate::align::{align_down, checked_align_up};
use crate::space::{AllocError, AllocErrorKind, Block, MemorySpace, ask, ask_range};
use core::alloc::Layout;

/// The first memory an arena takes, and the least it grows by, in bytes.
const STEP_BYTES_MIN: usize = 64 << 10;
/// The least that the first chunk is, where it is an exact block and the arena may stay small, in bytes.
const FIRST_BYTES_MIN: usize = 1 << 10;
/// The least that a chunk of exact blocks is, in bytes: blocks of a few bytes are not asked for one by one.
const EXACT_BYTES_MIN: usize = 4 << 10;

/// How an arena grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// In place within a reserved range of so many bytes, where the space can; else by chunks.
    Reserve(usize),
    /// By exact blocks.
    Chunks,
    /// By exact blocks of just what is asked for.
    Exact,
    /// Not at all.
    Fixed,
}

/// One chunk. Its methods that call the space are on [`Chunks`].
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) block: Block,
    pub(super) committed_bytes: usize,
    /// Ever handed out, from the start on.
    pub(super) dirty_bytes: usize,
    /// In use when the arena went on to a later chunk.
    pub(super) left_bytes: usize,
    is_reserved: bool,
    /// Whether no other chunk follows.
    is_sole: bool,
}

impl Chunk {
    /// A chunk of a fresh block, of which nothing is used.
    #[inline]
    fn new(space: &impl MemorySpace, block: Block, is_reserved: bool, is_sole: bool) -> Self {
        let committed_bytes = if is_reserved { 0 } else { block.size_bytes() };
        let dirty_bytes = if space.gives_zeroed() { 0 } else { block.size_bytes() };
        Self { block, committed_bytes, dirty_bytes, left_bytes: 0, is_reserved, is_sole }
    }

    /// The address of its first byte.
    pub(super) fn base(&self) -> usize {
        self.block.address().addr().get()
    }

    /// How many of its bytes the cursor may stand after (C4).
    pub(super) fn reach_bytes(&self) -> usize {
        if self.is_sole {
            self.committed_bytes
        } else {
            self.committed_bytes.min(self.block.size_bytes().saturating_sub(1))
        }
    }

    /// The bytes before the cursor, which stands `offset_bytes` after the start: the last byte is counted where it
    /// may have been given out.
    pub(super) fn bytes_at(&self, offset_bytes: usize) -> usize {
        if offset_bytes == self.reach_bytes() { self.committed_bytes } else { offset_bytes }
    }

    /// How many bytes from its start on a block for `layout` needs, placed after the first `used_bytes`.
    fn needed_bytes(&self, used_bytes: usize, layout: Layout) -> usize {
        place(self.base() + used_bytes, layout).next - self.base()
    }

    /// Whether it can hold the block, by growing in place if need be.
    fn can_hold(&self, used_bytes: usize, layout: Layout) -> bool {
        let limit_bytes = if self.is_reserved { self.block.size_bytes() } else { self.committed_bytes };
        self.needed_bytes(used_bytes, layout) <= limit_bytes
    }
}

/// The chunks of one arena, in the order they were taken; `current` is the one the cursor is in.
#[derive(Debug)]
pub(super) struct Chunks {
    pub(super) list: List,
    pub(super) current: usize,
    /// The sum of what the chunks have committed.
    capacity_bytes: usize,
}

/// Chunks in order. The first one lies in the arena itself: an arena of one chunk needs no list on the heap.
#[derive(Debug)]
pub(super) struct List {
    first: Option<Chunk>,
    /// Empty where there is no first.
    rest: Vec<Chunk>,
}

impl List {
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.rest.len()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Chunk> {
        if index == 0 { self.first.as_ref() } else { self.rest.get(index - 1) }
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut Chunk> {
        if index == 0 { self.first.as_mut() } else { self.rest.get_mut(index - 1) }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.first.iter().chain(&self.rest)
    }

    fn push(&mut self, chunk: Chunk) {
        if self.first.is_none() {
            self.first = Some(chunk);
        } else {
            self.rest.push(chunk);
        }
    }

    fn pop(&mut self) -> Option<Chunk> {
        self.rest.pop().or_else(|| self.first.take())
    }
}

impl Chunks {
    pub(super) const fn new() -> Self {
        Self { list: List { first: None, rest: Vec::new() }, current: 0, capacity_bytes: 0 }
    }

    /// The chunk in which a cursor stood here, and how many of its bytes were given out; none for one from before all
    /// chunks.
    pub(super) fn place_of(&self, address: usize) -> Option<(usize, usize)> {
        self.list.iter().enumerate().find_map(|(index, chunk)| {
            let offset_bytes = address.checked_sub(chunk.base())?;
            (offset_bytes <= chunk.reach_bytes()).then(|| (index, chunk.bytes_at(offset_bytes)))
        })
    }

    fn push(&mut self, chunk: Chunk) {
        self.capacity_bytes += chunk.committed_bytes;
        self.list.push(chunk);
    }

    fn pop(&mut self) -> Option<Chunk> {
        let chunk = self.list.pop()?;
        self.capacity_bytes -= chunk.committed_bytes;
        Some(chunk)
    }

    /// Memory held, in bytes.
    pub(super) fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Addresses held, in bytes.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.list.iter().map(|chunk| chunk.block.size_bytes()).sum()
    }

    /// The current chunk, if there is one.
    pub(super) fn current(&mut self) -> Option<&mut Chunk> {
        self.list.get_mut(self.current)
    }

    /// Takes the first chunk into the books, a block of [`first_block`].
    #[cold]
    pub(super) fn book_first(&mut self, space: &impl MemorySpace, block: Block) {
        self.push(Chunk::new(space, block, false, false));
    }

    /// Whether the last byte of the current chunk is there, beyond where the cursor stands (C4).
    pub(super) fn has_last_byte(&self) -> bool {
        self.list.get(self.current).is_some_and(|chunk| chunk.reach_bytes() < chunk.committed_bytes)
    }

    /// Makes room for `layout`: in the current chunk after its first `used_bytes`, in a later one at its start, or
    /// in a new one. The chunk with the room is current afterwards.
    pub(super) fn make_room(
        &mut self,
        space: &impl MemorySpace,
        growth: Growth,
        used_bytes: usize,
        layout: Layout,
    ) -> Result<(), AllocError> {
        let from = self.current;
        let mut failure = None;
        for index in from..self.list.len() {
            let Some(chunk) = self.list.get(index) else { break };
            let used_bytes = if index == from { used_bytes } else { 0 };
            if !chunk.can_hold(used_bytes, layout) {
                continue;
            }
            match self.commit_for(space, growth, index, used_bytes, layout) {
                Ok(()) => {
                    self.enter(index);
                    return Ok(());
                }
                Err(error) => failure = Some(error),
            }
        }
        // Where memory itself is refused, another chunk would be refused as well.
        if let Some(error) = failure {
            return Err(error);
        }
        let chunk = self.take(space, growth, layout)?;
        let is_reserved = chunk.is_reserved;
        self.push(chunk);
        let index = self.list.len() - 1;
        // An exact chunk has all its memory.
        if is_reserved && let Err(error) = self.commit_for(space, growth, index, 0, layout) {
            if let Some(chunk) = self.pop() {
                give_back(space, &chunk);
            }
            return Err(error);
        }
        self.enter(index);
        Ok(())
    }

    /// Makes a later chunk current; those passed over are left empty.
    fn enter(&mut self, index: usize) {
        for passed in self.current + 1..=index {
            if let Some(chunk) = self.list.get_mut(passed) {
                chunk.left_bytes = 0;
            }
        }
        self.current = index;
    }

    /// Puts memory behind the block's place in chunk `index`, and some more if there is more.
    fn commit_for(
        &mut self,
        space: &impl MemorySpace,
        growth: Growth,
        index: usize,
        used_bytes: usize,
        layout: Layout,
    ) -> Result<(), AllocError> {
        let capacity_bytes = self.capacity_bytes();
        let fixed = growth == Growth::Fixed;
        let never_fits = || AllocError::new(space.id(), layout, AllocErrorKind::NeverFits);
        let chunk = self.list.get_mut(index).ok_or_else(never_fits)?;
        let needed_bytes = chunk.needed_bytes(used_bytes, layout);
        if needed_bytes <= chunk.committed_bytes {
            return Ok(());
        }
        let reserve = space.as_reserve().ok_or_else(never_fits)?;
        let unit = reserve.granularity_bytes();
        let limit_bytes = chunk.block.size_bytes();
        let least_bytes = checked_align_up(needed_bytes, unit)
            .filter(|&bytes| bytes <= limit_bytes)
            .ok_or_else(never_fits)?;
        let step_bytes = if fixed { 0 } else { STEP_BYTES_MIN.max(capacity_bytes / 8) };
        let ample_bytes = checked_align_up(chunk.committed_bytes.saturating_add(step_bytes), unit)
            .unwrap_or(least_bytes)
            .clamp(least_bytes, align_down(limit_bytes, unit));
        // A step refused is retried with no more than what is needed.
        for target_bytes in [ample_bytes, least_bytes] {
            let range = chunk.committed_bytes..target_bytes;
            // SAFETY:
            // * C1: the region is reserved and not released; only reserved chunks get here, since an exact
            //   one cannot need more than is committed (C2, `can_hold`);
            // * C2: nothing from `committed_bytes` on is committed; both ends are multiples of the unit, as
            //   commits only ever moved it by multiples.
            let result = unsafe { reserve.commit(chunk.block, range) };
            match result {
                Ok(()) => {
                    self.capacity_bytes += target_bytes - chunk.committed_bytes;
                    chunk.committed_bytes = target_bytes;
                    return Ok(());
                }
                Err(error) if target_bytes == least_bytes => return Err(error),
                Err(_) => {}
            }
        }
        Err(never_fits())
    }

    /// A new chunk in which `layout` fits once memory is committed.
    fn take(&self, space: &impl MemorySpace, growth: Growth, layout: Layout) -> Result<Chunk, AllocError> {
        let capacity_bytes = self.capacity_bytes();
        let refused = |kind| AllocError::new(space.id(), layout, kind).with_live(capacity_bytes);
        let never_fits = || refused(AllocErrorKind::NeverFits);
        if let (Growth::Reserve(reserve_bytes), Some(reserve)) = (growth, space.as_reserve()) {
            let padded_bytes = layout.size().checked_add(layout.align()).ok_or_else(never_fits)?;
            // Each further range is as large as all so far, so that their number stays small.
            let size_bytes = padded_bytes.saturating_mul(2).max(reserve_bytes).max(self.reserved_bytes());
            for size_bytes in [size_bytes, padded_bytes] {
                if let Some(block) = ask_range(reserve, size_bytes)
                    && let Some(block) = in_reach(space, block, true)
                {
                    return Ok(Chunk::new(space, block, true, false));
                }
            }
        }
        if growth == Growth::Fixed && self.list.len() > 0 {
            let fits_empty = layout.size() <= capacity_bytes;
            let kind = if fits_empty { AllocErrorKind::NotNow } else { AllocErrorKind::NeverFits };
            return Err(refused(kind));
        }
        let step_bytes = match growth {
            Growth::Fixed | Growth::Exact => 0,
            Growth::Chunks => EXACT_BYTES_MIN.max(capacity_bytes / 8),
            // A small arena stays small; it grows fourfold until that would be noticed.
            Growth::Reserve(_) if capacity_bytes < STEP_BYTES_MIN => {
                (capacity_bytes * 3).clamp(first_bytes(space), STEP_BYTES_MIN)
            }
            Growth::Reserve(_) => STEP_BYTES_MIN + capacity_bytes / 8,
        };
        let align = layout.align().max(space.base_align());
        let is_sole = growth == Growth::Fixed;
        // Of one byte, a chunk that others may follow would have no place for the cursor but its start (C4).
        let least_bytes = layout.size().max(if is_sole { 1 } else { 2 });
        let mut size_bytes = step_bytes.max(least_bytes);
        loop {
            let exact = Layout::from_size_align(size_bytes, align).map_err(|_| never_fits())?;
            match ask(space, exact) {
                Ok(block) => {
                    let block = in_reach(space, block, false).ok_or_else(never_fits)?;
                    return Ok(Chunk::new(space, block, false, is_sole));
                }
                Err(error) if size_bytes == least_bytes => return Err(error),
                // Half as much, and half again: the end of a space is used up in few chunks, not block by block.
                Err(_) => size_bytes = (size_bytes / 2).max(least_bytes),
            }
        }
    }

    /// Gives back memory until no more than `keep_bytes`, or what is in use, is held.
    pub(super) fn trim(&mut self, space: &impl MemorySpace, used_bytes: usize, keep_bytes: usize) {
        let mut surplus_bytes = self.capacity_bytes().saturating_sub(keep_bytes);
        while self.list.len() > self.current + 1 {
            let index = self.list.len() - 1;
            let Some(committed_bytes) = self.list.get(index).map(|chunk| chunk.committed_bytes) else {
                break;
            };
            if committed_bytes > surplus_bytes {
                surplus_bytes -= self.shrink(space, index, 0, surplus_bytes);
                break;
            }
            surplus_bytes -= committed_bytes;
            if let Some(chunk) = self.pop() {
                give_back(space, &chunk);
            }
        }
        if self.current == 0 && used_bytes == 0 && self.list.len() == 1 && keep_bytes == 0 {
            if let Some(chunk) = self.pop() {
                give_back(space, &chunk);
            }
            return;
        }
        self.shrink(space, self.current, used_bytes, surplus_bytes);
    }

    /// Decommits up to `surplus_bytes` of a reserved chunk behind its first `used_bytes`; says how many.
    fn shrink(
        &mut self,
        space: &impl MemorySpace,
        index: usize,
        used_bytes: usize,
        surplus_bytes: usize,
    ) -> usize {
        let Some(chunk) = self.list.get_mut(index) else { return 0 };
        let (true, Some(reserve)) = (chunk.is_reserved, space.as_reserve()) else { return 0 };
        let least_bytes = used_bytes.max(chunk.committed_bytes.saturating_sub(surplus_bytes));
        let Some(target_bytes) = checked_align_up(least_bytes, reserve.granularity_bytes()) else { return 0 };
        if target_bytes >= chunk.committed_bytes {
            return 0;
        }
        let given_bytes = chunk.committed_bytes - target_bytes;
        self.capacity_bytes -= given_bytes;
        // SAFETY:
        // * C1 and C2: the region is live and committed up to `committed_bytes`;
        // * nothing is in use from `used_bytes` on, and `target_bytes` is at least that, a multiple of the unit.
        unsafe { reserve.decommit(chunk.block, target_bytes..chunk.committed_bytes) };
        chunk.committed_bytes = target_bytes;
        if space.gives_zeroed() {
            chunk.dirty_bytes = chunk.dirty_bytes.min(target_bytes);
        }
        given_bytes
    }

    /// Gives every chunk back. Nothing uses them any more, nor these books.
    #[inline]
    pub(super) fn clear(&mut self, space: &impl MemorySpace) {
        if !self.list.rest.is_empty() {
            self.clear_rest(space);
        }
        if let Some(chunk) = self.list.first.take() {
            give_back(space, &chunk);
        }
    }

    #[inline(never)]
    fn clear_rest(&mut self, space: &impl MemorySpace) {
        while let Some(chunk) = self.list.rest.pop() {
            give_back(space, &chunk);
        }
    }
}

/// What the first chunk of exact blocks is, in bytes.
#[inline]
fn first_bytes(space: &impl MemorySpace) -> usize {
    space.base_align().saturating_mul(16).clamp(FIRST_BYTES_MIN, STEP_BYTES_MIN)
}

/// The layout of a first chunk, which is of so many bytes.
#[inline]
pub(super) fn first_layout(space: &impl MemorySpace, size_bytes: usize) -> Layout {
    let layout = Layout::from_size_align(size_bytes, space.base_align());
    // A space that now names another alignment breaks its terms.
    layout.or_else(|_| Layout::from_size_align(size_bytes, 1)).unwrap_or(Layout::new::<()>())
}

/// The quick way to the block of a first chunk, exact and small, in which `layout` leaves something free; `None` where
/// another chunk is needed.
#[inline(always)]
pub(super) fn first_block(space: &impl MemorySpace, growth: Growth, layout: Layout) -> Option<Block> {
    let align = space.base_align();
    let size_bytes = first_bytes(space);
    let is_usual = matches!(growth, Growth::Reserve(_)) && space.as_reserve().is_none();
    let fits = layout.size() < size_bytes && layout.align() <= align;
    let (true, true, Ok(first)) = (is_usual, fits, Layout::from_size_align(size_bytes, align)) else {
        return None;
    };
    in_reach(space, ask(space, first).ok()?, false)
}

/// Gives back the block of a first chunk that was never booked. Nothing uses it.
#[inline]
pub(super) fn give_back_first(space: &impl MemorySpace, block: Block) {
    // SAFETY: it came from `allocate`, by `first_block`, and was not deallocated.
    unsafe { space.deallocate(block) };
}

/// A fresh block where an arena can manage it; one that lies out of reach is given back.
#[inline]
fn in_reach(space: &impl MemorySpace, block: Block, is_reserved: bool) -> Option<Block> {
    let past_two = block.address().addr().get().wrapping_sub(2);
    if past_two < (ADDRESS_MAX - 2).saturating_sub(block.size_bytes()) {
        return Some(block);
    }
    give_back(space, &Chunk::new(space, block, is_reserved, false));
    None
}

/// Gives a chunk back. The caller has removed it from its list, and nothing uses its bytes.
#[inline]
fn give_back(space: &impl MemorySpace, chunk: &Chunk) {
    match (chunk.is_reserved, space.as_reserve()) {
        // SAFETY: C1: the region came from `reserve` and was not released; C2: so much is committed.
        (true, Some(reserve)) => unsafe { reserve.release(chunk.block, chunk.committed_bytes) },
        // A space that no longer reserves breaks its terms; its range is left alone.
        (true, None) => {}
        // SAFETY: C1: the block came from `allocate` and was not deallocated.
        (false, _) => unsafe { space.deallocate(chunk.block) },
    }
}
