#![forbid(unsafe_code)]
//! The arenas of one space: who has which, what is idle, how much may be taken.
//!
//! The ledger is locked for arithmetic only; the space is always called outside the lock.
//!
//! Deliberately absent: blocks. What is lent here are whole arenas; blocks in any order are for a [`Pool`](crate::pool::Pool).
//!
//! # Invariants
//! * **L1** `claimed_bytes` is the sum of the owners' bytes.
//! * **L2** `idle_bytes` is the sum of the idle arenas' capacities.
//! * **L3** Where a limit is set, `claimed_bytes` never exceeds it.

use super::Arena;
use super::meter::{Gauge, Meter};
use super::set::{OwnerReport, SpaceReport};
use crate::space::{AllocError, AllocErrorKind, LimitSource, MemorySpace, Owner, Reserve, SpaceId, Tag};
use core::alloc::Layout;
use parking_lot::Mutex;
use std::sync::Arc;

/// Idle memory kept for the next taker unless told otherwise, in bytes.
const KEEP_BYTES: usize = 256 << 20;
/// The most arenas kept idle: a few methods' worth.
const IDLE_ARENAS_MAX: usize = 16;
/// The least addresses an arena reserves, in bytes: room to grow in place, at no cost.
const RESERVE_BYTES_MIN: usize = 1 << 30;

type SpaceArena = Arena<Arc<dyn MemorySpace>>;

#[derive(Debug, Default)]
struct Ledger {
    claimed_bytes: usize,
    peak_bytes: usize,
    idle_bytes: usize,
    idle: Vec<SpaceArena>,
    owners: Vec<Option<Owner>>,
    free_slots: Vec<usize>,
    closed: bool,
    /// Told of every claim, where several sets are counted together.
    gauge: Option<Arc<Gauge>>,
}

impl Ledger {
    fn live_arenas(&self) -> usize {
        self.owners.len() - self.free_slots.len()
    }

    fn claim(&mut self, bytes: usize) {
        self.claimed_bytes += bytes;
        if let Some(gauge) = &self.gauge {
            gauge.claim(bytes);
        }
    }

    /// Counts what is claimed now, since it was given: a claim that came to nothing is in no peak.
    fn settle(&mut self) {
        self.peak_bytes = self.peak_bytes.max(self.claimed_bytes);
        if let Some(gauge) = &self.gauge {
            gauge.settle();
        }
    }

    fn unclaim(&mut self, bytes: usize) {
        self.claimed_bytes -= bytes;
        if let Some(gauge) = &self.gauge {
            gauge.unclaim(bytes);
        }
    }

    fn enter(&mut self, owner: Owner) -> usize {
        self.claim(owner.bytes);
        if let Some(slot) = self.free_slots.pop() {
            self.owners[slot] = Some(owner);
            slot
        } else {
            self.owners.push(Some(owner));
            // Giving back must not allocate.
            self.free_slots.reserve(self.owners.len());
            self.owners.len() - 1
        }
    }

    fn leave(&mut self, slot: usize) {
        if let Some(owner) = self.owners[slot].take() {
            self.unclaim(owner.bytes);
            self.free_slots.push(slot);
        }
    }

    fn remove_idle(&mut self, index: usize) -> SpaceArena {
        let arena = self.idle.swap_remove(index);
        self.idle_bytes -= arena.capacity_bytes();
        arena
    }

    /// The idle arena that serves `bytes` best: the smallest that holds them without waste, else, where
    /// arenas grow in place, by `unit_bytes`, the largest that is too small. One unit is no waste: a new arena
    /// takes as much.
    fn pick(&mut self, bytes: usize, unit_bytes: Option<usize>) -> Option<SpaceArena> {
        let ample_bytes = bytes.saturating_add(bytes / 4).saturating_add(64 << 10);
        let ample_bytes = ample_bytes.max(unit_bytes.unwrap_or(0));
        let mut best: Option<(usize, usize)> = None;
        for (index, arena) in self.idle.iter().enumerate() {
            let capacity_bytes = arena.capacity_bytes();
            let holds_bytes = if unit_bytes.is_some() { arena.reserved_bytes() } else { capacity_bytes };
            let usable = capacity_bytes <= ample_bytes && holds_bytes >= bytes;
            let better = best.is_none_or(|(_, best_bytes)| {
                if best_bytes >= bytes {
                    capacity_bytes >= bytes && capacity_bytes < best_bytes
                } else {
                    capacity_bytes > best_bytes
                }
            });
            if usable && better {
                best = Some((index, capacity_bytes));
            }
        }
        best.map(|(index, _)| self.remove_idle(index))
    }

    /// The same error, knowing what this ledger knows.
    fn explain(&self, error: AllocError, tag: Tag) -> AllocError {
        let owners = Owner::largest(self.owners.iter().flatten().copied());
        error.with_place(Tag::NONE, tag).with_live(self.claimed_bytes).with_owners(owners)
    }

    /// Takes idle arenas out until `claimed + idle` is within the limit.
    fn surplus(&mut self, limit_bytes: Option<usize>) -> Vec<SpaceArena> {
        let mut surplus = Vec::new();
        let Some(limit_bytes) = limit_bytes else { return surplus };
        while self.claimed_bytes.saturating_add(self.idle_bytes) > limit_bytes && !self.idle.is_empty() {
            let index = self.idle.len() - 1;
            surplus.push(self.remove_idle(index));
        }
        surplus
    }

    fn take_idle(&mut self) -> Vec<SpaceArena> {
        self.idle_bytes = 0;
        core::mem::take(&mut self.idle)
    }
}

/// The arenas of one space.
#[derive(Debug)]
pub(super) struct Lender {
    id: SpaceId,
    space: Arc<dyn MemorySpace>,
    limit_bytes: Option<usize>,
    keep_bytes: usize,
    ledger: Mutex<Ledger>,
}

impl Lender {
    pub(super) fn new(
        space: Arc<dyn MemorySpace>,
        limit_bytes: Option<usize>,
        keep_bytes: Option<usize>,
        meter: Option<&Meter>,
    ) -> Self {
        let keep_bytes = keep_bytes.unwrap_or(KEEP_BYTES);
        let gauge = meter.map(|meter| meter.gauge(space.id()));
        let ledger = Ledger { gauge, ..Ledger::default() };
        Self { id: space.id(), space, limit_bytes, keep_bytes, ledger: Mutex::new(ledger) }
    }

    pub(super) fn id(&self) -> SpaceId {
        self.id
    }

    pub(super) fn space(&self) -> &Arc<dyn MemorySpace> {
        &self.space
    }

    /// An arena with room for `bytes`, and its owner's slot.
    pub(super) fn take(&self, bytes: usize, tag: Tag) -> Result<(SpaceArena, usize), AllocError> {
        let align = self.space.base_align();
        let layout = Layout::from_size_align(bytes, align)
            .map_err(|_| AllocError::too_large(self.id, bytes, align))?;
        let (slot, picked, surplus) = {
            let mut ledger = self.ledger.lock();
            if ledger.closed {
                let kind = AllocErrorKind::Refused { reason: "the arena set is closed" };
                return Err(ledger.explain(AllocError::new(self.id, layout, kind), tag));
            }
            self.check(&ledger, layout).map_err(|error| ledger.explain(error, tag))?;
            let picked = ledger.pick(bytes, self.unit_bytes());
            let slot = ledger.enter(Owner { tag, bytes });
            (slot, picked, ledger.surplus(self.limit_bytes))
        };
        drop(surplus);
        // A host arena that grows in place has its first chunk from the start, so that growing costs no heap. On a
        // device a chunk costs a tenth of a millisecond and some megabytes: what is not wanted is not taken.
        let grows_on_host = self.space.host_accessible() && self.unit_bytes().is_some();
        let room_bytes = if grows_on_host { bytes.max(1) } else { bytes };
        let result =
            picked.map_or_else(|| self.fresh(bytes), Ok).and_then(|arena| with_room(arena, room_bytes));
        let result = result.or_else(|_| {
            // What is idle may be what is missing.
            self.trim();
            with_room(self.fresh(bytes)?, room_bytes)
        });
        match result {
            Ok(arena) => {
                self.settle();
                Ok((arena, slot))
            }
            Err(error) => {
                let mut ledger = self.ledger.lock();
                ledger.leave(slot);
                Err(ledger.explain(error, tag))
            }
        }
    }

    /// The unit in which arenas grow in place, where they do.
    fn unit_bytes(&self) -> Option<usize> {
        self.space.as_reserve().map(Reserve::granularity_bytes)
    }

    fn fresh(&self, bytes: usize) -> Result<SpaceArena, AllocError> {
        let space = Arc::clone(&self.space);
        if self.space.as_reserve().is_some() {
            let reserve_bytes = bytes.saturating_mul(4).max(RESERVE_BYTES_MIN);
            return Ok(Arena::with_reserve(space, reserve_bytes));
        }
        let arena = Arena::with_chunks(space);
        arena.make_exact_room(bytes)?;
        Ok(arena)
    }

    /// Whether `layout` more may be claimed.
    fn check(&self, ledger: &Ledger, layout: Layout) -> Result<(), AllocError> {
        let Some(limit_bytes) = self.limit_bytes else { return Ok(()) };
        // L3: no underflow.
        let free_bytes = limit_bytes - ledger.claimed_bytes;
        if layout.size() <= free_bytes {
            return Ok(());
        }
        let kind = AllocErrorKind::OverLimit { limit_bytes, source: LimitSource::ArenaSet };
        Err(AllocError::new(self.id, layout, kind)
            .with_live(ledger.claimed_bytes)
            .with_largest_free(free_bytes))
    }

    /// Claims `more_bytes` for an arena that is out, to allocate `layout` in it; also of a closed set, whose
    /// arenas go on. The claim is settled, or taken back.
    pub(super) fn claim_more(
        &self,
        slot: usize,
        more_bytes: usize,
        layout: Layout,
    ) -> Result<(), AllocError> {
        let surplus = {
            let mut ledger = self.ledger.lock();
            let more = Layout::from_size_align(more_bytes, 1).unwrap_or(layout);
            let tag = ledger.owners[slot].map_or(Tag::NONE, |owner| owner.tag);
            self.check(&ledger, more).map_err(|error| ledger.explain(error, tag))?;
            ledger.claim(more_bytes);
            if let Some(owner) = &mut ledger.owners[slot] {
                owner.bytes += more_bytes;
            }
            ledger.surplus(self.limit_bytes)
        };
        drop(surplus);
        Ok(())
    }

    /// Counts what is claimed now.
    pub(super) fn settle(&self) {
        self.ledger.lock().settle();
    }

    /// Takes a claim back that came to nothing.
    pub(super) fn unclaim(&self, slot: usize, bytes: usize) {
        let mut ledger = self.ledger.lock();
        ledger.unclaim(bytes);
        if let Some(owner) = &mut ledger.owners[slot] {
            owner.bytes -= bytes;
        }
    }

    /// Takes an arena back; it is kept if there is room to keep it.
    pub(super) fn give_back(&self, arena: SpaceArena, slot: usize) {
        let capacity_bytes = arena.capacity_bytes();
        let dropped = {
            let mut ledger = self.ledger.lock();
            ledger.leave(slot);
            let idle_bytes = ledger.idle_bytes.saturating_add(capacity_bytes);
            let within_limit = self
                .limit_bytes
                .is_none_or(|limit_bytes| ledger.claimed_bytes.saturating_add(idle_bytes) <= limit_bytes);
            let room = ledger.idle.len() < IDLE_ARENAS_MAX && idle_bytes <= self.keep_bytes && within_limit;
            if ledger.closed || !room || capacity_bytes == 0 {
                Some(arena)
            } else {
                ledger.idle_bytes = idle_bytes;
                ledger.idle.push(arena);
                None
            }
        };
        drop(dropped);
    }

    pub(super) fn report(&self) -> SpaceReport {
        let ledger = self.ledger.lock();
        let mut owners: Vec<_> = ledger
            .owners
            .iter()
            .flatten()
            .map(|owner| OwnerReport { owner: owner.tag.as_str().to_owned(), bytes: owner.bytes })
            .collect();
        owners.sort_by_key(|owner| core::cmp::Reverse(owner.bytes));
        SpaceReport {
            id: self.id,
            limit_bytes: self.limit_bytes,
            current_bytes: ledger.claimed_bytes,
            peak_bytes: ledger.peak_bytes,
            idle_bytes: ledger.idle_bytes,
            live_arenas: ledger.live_arenas(),
            idle_arenas: ledger.idle.len(),
            reserves: self.space.as_reserve().is_some(),
            owners,
        }
    }

    pub(super) fn reset_peak(&self) {
        let mut ledger = self.ledger.lock();
        ledger.peak_bytes = ledger.claimed_bytes;
    }

    /// Gives idle memory back; says how many bytes.
    pub(super) fn trim(&self) -> usize {
        let (bytes, idle) = {
            let mut ledger = self.ledger.lock();
            (ledger.idle_bytes, ledger.take_idle())
        };
        drop(idle);
        bytes
    }

    pub(super) fn close(&self) {
        self.ledger.lock().closed = true;
        self.trim();
    }
}

/// The arena, once one block of `bytes` fits in it.
fn with_room(arena: SpaceArena, bytes: usize) -> Result<SpaceArena, AllocError> {
    arena.make_room(bytes)?;
    Ok(arena)
}
