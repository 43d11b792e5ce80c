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
//! * **C3** A chunk's last address is at most `ADDRESS_MAX`.
//! * **C4** Where the space gives zeroes, bytes of a chunk from `dirty_bytes` on read as zero.

use super::bump::{ADDRESS_MAX, place};
use crate::align::checked_align_up;
use crate::space::{AllocError, AllocErrorKind, Block, MemorySpace};
use core::alloc::Layout;

/// The first memory an arena takes, and the least it grows by, in bytes.
const STEP_BYTES_MIN: usize = 64 << 10;
/// The least that a chunk of exact blocks is, in bytes: blocks of a few bytes are not asked for one by one.
const EXACT_BYTES_MIN: usize = 4 << 10;

/// How an arena grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// In place within a reserved range of so many bytes, where the space can; else by chunks.
    Reserve(usize),
    /// By exact blocks.
    Chunks,
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
}

impl Chunk {
    /// The address of its first byte.
    pub(super) fn base(&self) -> usize {
        self.block.address().addr().get()
    }

    /// The address after its last committed byte.
    pub(super) fn end(&self) -> usize {
        self.base() + self.committed_bytes
    }

    /// How many bytes from its start on a block for `layout` needs, placed at the cursor or later.
    fn needed_bytes(&self, cursor: usize, layout: Layout) -> usize {
        place(cursor, layout).next - self.base()
    }

    /// Whether it can hold the block, by growing in place if need be.
    fn can_hold(&self, cursor: usize, layout: Layout) -> bool {
        let limit = if self.is_reserved { self.block.size_bytes() } else { self.committed_bytes };
        self.needed_bytes(cursor, layout) <= limit
    }
}

/// The chunks of one arena, in the order they were taken; `current` is the one the cursor is in.
#[derive(Debug)]
pub(super) struct Chunks {
    pub(super) list: Vec<Chunk>,
    pub(super) current: usize,
    pub(super) growth: Growth,
}

impl Chunks {
    pub(super) const fn new(growth: Growth) -> Self {
        Self { list: Vec::new(), current: 0, growth }
    }

    /// Memory held, in bytes.
    pub(super) fn capacity_bytes(&self) -> usize {
        self.list.iter().map(|chunk| chunk.committed_bytes).sum()
    }

    /// Addresses held, in bytes.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.list.iter().map(|chunk| chunk.block.size_bytes()).sum()
    }

    /// The current chunk, if there is one.
    pub(super) fn current(&mut self) -> Option<&mut Chunk> {
        self.list.get_mut(self.current)
    }

    /// Makes room for `layout`: in the current chunk at `cursor`, in a later one at its start, or in a
    /// new one. The chunk with the room is current afterwards.
    pub(super) fn make_room(
        &mut self,
        space: &impl MemorySpace,
        cursor: usize,
        layout: Layout,
    ) -> Result<(), AllocError> {
        let from = self.current;
        let mut failure = None;
        for index in from..self.list.len() {
            let cursor = if index == from { cursor } else { self.list[index].base() };
            if !self.list[index].can_hold(cursor, layout) {
                continue;
            }
            match self.commit_for(space, index, cursor, layout) {
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
        let chunk = self.take(space, layout)?;
        self.list.push(chunk);
        let index = self.list.len() - 1;
        let cursor = self.list[index].base();
        if let Err(error) = self.commit_for(space, index, cursor, layout) {
            if let Some(chunk) = self.list.pop() {
                give_back(space, &chunk);
            }
            return Err(error);
        }
        self.enter(index);
        Ok(())
    }

    /// Makes a later chunk current; those passed over are left empty.
    fn enter(&mut self, index: usize) {
        for chunk in &mut self.list[self.current + 1..=index.max(self.current)] {
            chunk.left_bytes = 0;
        }
        self.current = index;
    }

    /// Puts memory behind the block's place in chunk `index`, and some more if there is more.
    fn commit_for(
        &mut self,
        space: &impl MemorySpace,
        index: usize,
        cursor: usize,
        layout: Layout,
    ) -> Result<(), AllocError> {
        let capacity_bytes = self.capacity_bytes();
        let fixed = self.growth == Growth::Fixed;
        let chunk = &mut self.list[index];
        let needed_bytes = chunk.needed_bytes(cursor, layout);
        if needed_bytes <= chunk.committed_bytes {
            return Ok(());
        }
        // An error is large: it is made where it is needed.
        let never_fits = || AllocError::new(space.id(), layout, AllocErrorKind::NeverFits);
        let reserve = space.as_reserve().ok_or_else(never_fits)?;
        let unit = reserve.granularity_bytes();
        let least_bytes = checked_align_up(needed_bytes, unit).ok_or_else(never_fits)?;
        let step_bytes = if fixed { 0 } else { STEP_BYTES_MIN.max(capacity_bytes / 8) };
        let ample_bytes = checked_align_up(chunk.committed_bytes.saturating_add(step_bytes), unit)
            .unwrap_or(least_bytes)
            .clamp(least_bytes, chunk.block.size_bytes());
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
    fn take(&self, space: &impl MemorySpace, layout: Layout) -> Result<Chunk, AllocError> {
        let capacity_bytes = self.capacity_bytes();
        let refused = |kind| AllocError::new(space.id(), layout, kind).with_live(capacity_bytes);
        let never_fits = || refused(AllocErrorKind::NeverFits);
        if let (Growth::Reserve(reserve_bytes), Some(reserve)) = (self.growth, space.as_reserve()) {
            let padded_bytes = layout.size().checked_add(layout.align()).ok_or_else(never_fits)?;
            // Each further range is as large as all so far, so that their number stays small.
            let size_bytes = padded_bytes.saturating_mul(2).max(reserve_bytes).max(self.reserved_bytes());
            for size_bytes in [size_bytes, padded_bytes] {
                if let Ok(block) = reserve.reserve(size_bytes)
                    && let Some(chunk) = adopt(space, block, true)
                {
                    return Ok(chunk);
                }
            }
        }
        if self.growth == Growth::Fixed && !self.list.is_empty() {
            let fits_empty = layout.size() <= capacity_bytes;
            let kind = if fits_empty { AllocErrorKind::NotNow } else { AllocErrorKind::NeverFits };
            return Err(refused(kind));
        }
        let step_bytes = match self.growth {
            Growth::Fixed => 0,
            Growth::Chunks => EXACT_BYTES_MIN.max(capacity_bytes / 8),
            // A small arena stays small; it doubles until that would be noticed.
            Growth::Reserve(_) => {
                (64 * space.base_align()).max(capacity_bytes).min(STEP_BYTES_MIN).max(capacity_bytes / 8)
            }
        };
        let align = layout.align().max(space.base_align());
        for size_bytes in [step_bytes.max(layout.size()), layout.size()] {
            let exact = Layout::from_size_align(size_bytes, align).map_err(|_| never_fits())?;
            match space.allocate(exact) {
                Ok(block) => return adopt(space, block, false).ok_or_else(never_fits),
                Err(error) if size_bytes == layout.size() => return Err(error),
                Err(_) => {}
            }
        }
        Err(never_fits())
    }

    /// Gives back memory until no more than `keep_bytes`, or what is in use, is held.
    pub(super) fn trim(&mut self, space: &impl MemorySpace, cursor: usize, keep_bytes: usize) {
        let mut surplus_bytes = self.capacity_bytes().saturating_sub(keep_bytes);
        while self.list.len() > self.current + 1 {
            let index = self.list.len() - 1;
            if self.list[index].committed_bytes > surplus_bytes {
                surplus_bytes -= self.shrink(space, index, 0, surplus_bytes);
                break;
            }
            surplus_bytes -= self.list[index].committed_bytes;
            if let Some(chunk) = self.list.pop() {
                give_back(space, &chunk);
            }
        }
        let Some(base) = self.current().map(|chunk| chunk.base()) else { return };
        let used_bytes = cursor - base;
        if self.current == 0 && used_bytes == 0 && self.list.len() == 1 && keep_bytes == 0 {
            if let Some(chunk) = self.list.pop() {
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
        let chunk = &mut self.list[index];
        let (true, Some(reserve)) = (chunk.is_reserved, space.as_reserve()) else { return 0 };
        let least_bytes = used_bytes.max(chunk.committed_bytes.saturating_sub(surplus_bytes));
        let Some(target_bytes) = checked_align_up(least_bytes, reserve.granularity_bytes()) else { return 0 };
        if target_bytes >= chunk.committed_bytes {
            return 0;
        }
        let given_bytes = chunk.committed_bytes - target_bytes;
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

    /// Gives every chunk back. Nothing uses them any more.
    pub(super) fn clear(&mut self, space: &impl MemorySpace) {
        while let Some(chunk) = self.list.pop() {
            give_back(space, &chunk);
        }
        self.current = 0;
    }
}

/// Makes a chunk of a fresh block; one that lies too high is given back.
fn adopt(space: &impl MemorySpace, block: Block, is_reserved: bool) -> Option<Chunk> {
    let committed_bytes = if is_reserved { 0 } else { block.size_bytes() };
    let dirty_bytes = if space.gives_zeroed() { 0 } else { block.size_bytes() };
    let chunk = Chunk { block, committed_bytes, dirty_bytes, left_bytes: 0, is_reserved };
    match chunk.base().checked_add(block.size_bytes()) {
        Some(end) if end <= ADDRESS_MAX => Some(chunk),
        _ => {
            give_back(space, &chunk);
            None
        }
    }
}

/// Gives a chunk back. The caller has removed it from its list, and nothing uses its bytes.
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
