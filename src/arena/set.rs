#![forbid(unsafe_code)]
//! Arena sets: arenas of every memory space, lent and kept, with limits and figures.
//!
//! ```text
//!   ArenaSet ─┬─ host    limit, current, peak    idle arenas ▓ ▓    taken ▓ (forward: arena 1)
//!             ├─ cuda:0  limit, current, peak    idle arenas ▓      taken ▓ (forward: arena 2)
//!             └─ absent  cuda:1: no such device
//! ```
//!
//! A method takes the arenas its plan asks for when it is loaded and gives them back when it is dropped,
//! in any order. An arena given back keeps its memory for the next taker, so that a load makes no system
//! call; what is idle never stands in the way of a limit.
//!
//! Deliberately absent: a global set. Sets are values, passed to whoever loads.

use super::Arena;
use super::lender::Lender;
use super::meter::Meter;
use crate::space::{AllocError, AllocErrorKind, Block, HostSpace, MemorySpace, SpaceId, Tag};
use core::alloc::Layout;
use core::cell::Cell;
use core::fmt;
use std::sync::{Arc, OnceLock};

/// Lends arenas of every memory space it has, and keeps those given back. Cloning is cheap and gives the same set.
///
/// # Examples
/// ```
/// use arenite::{ArenaSet, HostSpace, SpaceId};
/// use core::alloc::Layout;
/// use std::sync::Arc;
///
/// let arenas = ArenaSet::builder()
///     .space(Arc::new(HostSpace::new()))
///     .limit(SpaceId::HOST, 1 << 20)
///     .absent(SpaceId::cuda(0), "libcuda.so.1 not found")
///     .build();
/// let missing = arenas.resolve(SpaceId::cuda(0)).unwrap_err();
/// assert_eq!(missing.to_string(), "this arena set has host (cuda:0: libcuda.so.1 not found)");
///
/// let arena = arenas.take(SpaceId::HOST, 768, "forward: arena 1")?;
/// let block = arena.allocate_zeroed(Layout::from_size_align(768, 64)?)?;
/// assert_eq!((block.size_bytes(), arenas.report().spaces[0].current_bytes), (768, 768));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ArenaSet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    slots: Vec<Slot>,
    absent: Vec<(SpaceId, String)>,
    remap: Vec<(SpaceId, SpaceId)>,
}

/// Opens a space when it is first asked for, or says why it cannot.
pub type OpenSpace = fn(SpaceId) -> Result<Arc<dyn MemorySpace>, String>;

/// A space of a set: there from the start, or opened when it is first asked for.
#[derive(Debug)]
struct Slot {
    id: SpaceId,
    lender: OnceLock<Lender>,
    open: Option<OpenSpace>,
    limit_bytes: Option<usize>,
    keep_bytes: Option<usize>,
    meter: Option<Meter>,
}

impl Slot {
    /// The lender, opened now if need be.
    fn lender(&self) -> Result<&Lender, String> {
        if let (None, Some(open)) = (self.lender.get(), self.open) {
            let lender = Lender::new(open(self.id)?, self.limit_bytes, self.keep_bytes, self.meter.as_ref());
            // Where two threads open it at once, the first one's stays.
            let _ = self.lender.set(lender);
        }
        self.lender.get().ok_or_else(|| "it was never opened".into())
    }
}

/// Says what an [`ArenaSet`] consists of. Where a space, limit or reason is named twice, the last counts.
#[derive(Debug, Default)]
pub struct ArenaSetBuilder {
    spaces: Vec<Arc<dyn MemorySpace>>,
    on_demand: Vec<(SpaceId, OpenSpace)>,
    limits: Vec<(SpaceId, usize)>,
    keeps: Vec<(SpaceId, usize)>,
    meter: Option<Meter>,
    absent: Vec<(SpaceId, String)>,
    remap: Vec<(SpaceId, SpaceId)>,
}

impl ArenaSetBuilder {
    /// Adds a space.
    #[must_use]
    pub fn space(mut self, space: Arc<dyn MemorySpace>) -> Self {
        self.spaces.retain(|known| known.id() != space.id());
        self.spaces.push(space);
        self
    }

    /// Adds a space that is opened when it is first asked for: a device that most runs never touch.
    /// A space added as such wins.
    #[must_use]
    pub fn on_demand(mut self, id: SpaceId, open: OpenSpace) -> Self {
        self.on_demand.retain(|(known, _)| *known != id);
        self.on_demand.push((id, open));
        self
    }

    /// At most `limit_bytes` of a space are taken at a time.
    #[must_use]
    pub fn limit(mut self, id: SpaceId, limit_bytes: usize) -> Self {
        self.limits.push((id, limit_bytes));
        self
    }

    /// At most `keep_bytes` of a space stay idle for the next taker; 256 MiB unless said.
    #[must_use]
    pub fn keep(mut self, id: SpaceId, keep_bytes: usize) -> Self {
        self.keeps.push((id, keep_bytes));
        self
    }

    /// Counts what this set takes together with that of other sets.
    #[must_use]
    pub fn meter(mut self, meter: Meter) -> Self {
        self.meter = Some(meter);
        self
    }

    /// Why a space is not in this set; errors say so.
    #[must_use]
    pub fn absent(mut self, id: SpaceId, reason: impl Into<String>) -> Self {
        self.absent.retain(|(known, _)| *known != id);
        self.absent.push((id, reason.into()));
        self
    }

    /// What asks for `from` gets `to`.
    #[must_use]
    pub fn remap(mut self, from: SpaceId, to: SpaceId) -> Self {
        self.remap.retain(|(known, _)| *known != from);
        self.remap.push((from, to));
        self
    }

    /// The set.
    pub fn build(self) -> ArenaSet {
        let last = |list: &[(SpaceId, usize)], id| {
            list.iter().rev().find(|(known, _)| *known == id).map(|&(_, bytes)| bytes)
        };
        let slot = |id: SpaceId, open: Option<OpenSpace>| {
            let (limit_bytes, keep_bytes) = (last(&self.limits, id), last(&self.keeps, id));
            Slot { id, lender: OnceLock::new(), open, limit_bytes, keep_bytes, meter: self.meter.clone() }
        };
        let mut slots: Vec<Slot> = Vec::with_capacity(self.spaces.len() + self.on_demand.len());
        for space in self.spaces {
            let slot = slot(space.id(), None);
            let _ =
                slot.lender.set(Lender::new(space, slot.limit_bytes, slot.keep_bytes, slot.meter.as_ref()));
            slots.push(slot);
        }
        for (id, open) in self.on_demand {
            if slots.iter().all(|known| known.id != id) {
                slots.push(slot(id, Some(open)));
            }
        }
        ArenaSet(Arc::new(Inner { slots, absent: self.absent, remap: self.remap }))
    }
}

impl ArenaSet {
    /// A set of nothing but host memory, without a limit.
    pub fn host() -> Self {
        Self::builder().space(Arc::new(HostSpace::new())).build()
    }

    /// A builder with every kind of memory that this machine may have: the host, and with the feature `cuda`
    /// page-locked memory and CUDA devices, which are opened when they are first asked for.
    pub fn machine() -> ArenaSetBuilder {
        let builder = Self::builder().space(Arc::new(HostSpace::new()));
        #[cfg(feature = "cuda")]
        let builder = crate::space::cuda::DEVICES
            .map(SpaceId::cuda)
            .fold(builder, |builder, id| builder.on_demand(id, crate::space::cuda::open))
            .on_demand(SpaceId::PINNED, crate::space::cuda::open);
        #[cfg(not(feature = "cuda"))]
        let builder = [SpaceId::PINNED, SpaceId::cuda(0)]
            .into_iter()
            .fold(builder, |builder, id| builder.absent(id, "arenite was built without the feature `cuda`"));
        builder
    }

    /// A set made to measure.
    pub fn builder() -> ArenaSetBuilder {
        ArenaSetBuilder::default()
    }

    /// The ids of the spaces that are open in this set.
    pub fn present(&self) -> impl Iterator<Item = SpaceId> {
        self.lenders().map(Lender::id)
    }

    /// The lenders whose spaces are open.
    fn lenders(&self) -> impl Iterator<Item = &Lender> {
        self.0.slots.iter().filter_map(|slot| slot.lender.get())
    }

    /// The space that serves `id`: itself, or what it is remapped to.
    ///
    /// # Errors
    /// [`MissingSpace`] where that space is not in this set.
    pub fn resolve(&self, id: SpaceId) -> Result<SpaceId, MissingSpace> {
        let target = self.0.remap.iter().find(|(from, _)| *from == id).map_or(id, |&(_, to)| to);
        let slot = self.0.slots.iter().find(|slot| slot.id == target);
        let refused = match slot.map(Slot::lender) {
            Some(Ok(_)) => return Ok(target),
            Some(Err(reason)) => Some((target, reason)),
            None => None,
        };
        let absent = &self.0.absent;
        let known = || absent.iter().find(|(known, _)| *known == target);
        let like = || absent.iter().find(|(known, _)| known.name() == target.name());
        let reason = refused.or_else(|| known().or_else(like).cloned());
        Err(MissingSpace { id: target, present: self.present().collect(), reason })
    }

    /// The space with this id, as [`resolve`](Self::resolve) gives it.
    pub fn space(&self, id: SpaceId) -> Option<&Arc<dyn MemorySpace>> {
        self.lender(id).map(Lender::space)
    }

    /// An arena of space `id`, as [`resolve`](Self::resolve) gives it, in which one block of `bytes` at the
    /// space's base alignment can surely be allocated. `owner` names it in reports.
    ///
    /// The limit is checked for the whole request before anything is allocated. Dropping the arena gives
    /// it back; arenas are taken and given back in any order, from any thread.
    ///
    /// # Errors
    /// [`AllocError`]: over the limit, refused by the space, or no such space in this set.
    pub fn take(&self, id: SpaceId, bytes: usize, owner: &str) -> Result<PooledArena, AllocError> {
        let at = self.0.slots.iter().position(|slot| slot.id == id);
        let Some((at, lender)) = at.and_then(|at| Some((at, self.0.slots[at].lender().ok()?))) else {
            let reason =
                "this arena set has no such space: give it one when it is built (`report` lists what it has)";
            let layout = Layout::from_size_align(bytes, 1).unwrap_or(Layout::new::<()>());
            let error = AllocError::new(id, layout, AllocErrorKind::Refused { reason });
            return Err(error.with_place(Tag::NONE, Tag::new(owner)));
        };
        let (arena, slot) = lender.take(bytes, Tag::new(owner))?;
        Ok(PooledArena { arena: Some(arena), claimed_bytes: Cell::new(bytes), slot, at, set: self.clone() })
    }

    /// Whether both are the same set: clones of one.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What every space of this set holds and has given out.
    pub fn report(&self) -> ArenaSetReport {
        let spaces = self.lenders().map(Lender::report).collect();
        ArenaSetReport { spaces, absent: self.0.absent.clone() }
    }

    /// Starts every peak anew from what is taken now.
    pub fn reset_peak(&self) {
        self.lenders().for_each(Lender::reset_peak);
    }

    /// Gives all idle memory back to the spaces; says how many bytes.
    pub fn trim(&self) -> usize {
        self.lenders().map(Lender::trim).sum()
    }

    /// Gives all idle memory back and takes no more requests. Arenas out stay valid until given back.
    pub fn close(&self) {
        self.lenders().for_each(Lender::close);
    }

    fn lender(&self, id: SpaceId) -> Option<&Lender> {
        self.0.slots.iter().find(|slot| slot.id == id)?.lender().ok()
    }
}

impl Default for ArenaSet {
    /// Every kind of memory that this machine may have, without limits.
    fn default() -> Self {
        Self::machine().build()
    }
}

/// An arena on loan from an [`ArenaSet`]; dropping it gives it back.
///
/// It may grow beyond what was taken; what it grows by counts against the limit of its space.
#[derive(Debug)]
pub struct PooledArena {
    /// Always there until dropped.
    arena: Option<Arena<Arc<dyn MemorySpace>>>,
    claimed_bytes: Cell<usize>,
    slot: usize,
    at: usize,
    set: ArenaSet,
}

impl PooledArena {
    #[inline]
    fn arena(&self) -> &Arena<Arc<dyn MemorySpace>> {
        self.arena.as_ref().expect("the arena is there until the loan is dropped")
    }

    fn lender(&self) -> &Lender {
        self.set.0.slots[self.at].lender.get().expect("an arena was taken from it")
    }

    /// The space its memory is from.
    pub fn space(&self) -> &Arc<dyn MemorySpace> {
        self.arena().space()
    }

    /// The id of that space.
    pub fn space_id(&self) -> SpaceId {
        self.lender().id()
    }

    /// The bytes it counts for against the limit of its space.
    pub fn claimed_bytes(&self) -> usize {
        self.claimed_bytes.get()
    }

    /// A block for `layout`, valid and unmoved until the arena is reset or given back.
    ///
    /// # Errors
    /// [`AllocError`] where the limit or the space is in the way; then nothing has changed.
    pub fn allocate(&self, layout: Layout) -> Result<Block, AllocError> {
        self.within_claim(layout, |arena| arena.allocate(layout))
    }

    /// A block for `layout`, and how many bytes from its start on may hold old data: the rest reads as zero.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    pub fn allocate_stale(&self, layout: Layout) -> Result<(Block, usize), AllocError> {
        self.within_claim(layout, |arena| arena.allocate_stale(layout))
    }

    /// A block for `layout` that reads as zero; only stale bytes are written.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate), or because the CPU does not reach the space.
    pub fn allocate_zeroed(&self, layout: Layout) -> Result<Block, AllocError> {
        self.within_claim(layout, |arena| arena.allocate_zeroed(layout))
    }

    fn within_claim<T>(
        &self,
        layout: Layout,
        allocate: impl FnOnce(&Arena<Arc<dyn MemorySpace>>) -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        let arena = self.arena();
        let more_bytes = arena.live_bytes_after(layout).saturating_sub(self.claimed_bytes.get());
        if more_bytes == 0 {
            return allocate(arena);
        }
        self.lender().claim_more(self.slot, more_bytes, layout)?;
        let result = allocate(arena);
        match result {
            Ok(_) => {
                self.claimed_bytes.set(self.claimed_bytes.get() + more_bytes);
                self.lender().settle();
            }
            Err(_) => self.lender().unclaim(self.slot, more_bytes),
        }
        result
    }

    /// Takes every block back at once and keeps the memory and the claim. O(1).
    pub fn reset(&mut self) {
        if let Some(arena) = &mut self.arena {
            arena.reset();
        }
    }

    /// What is held and given out.
    pub fn stats(&self) -> super::ArenaStats {
        self.arena().stats()
    }
}

impl Drop for PooledArena {
    fn drop(&mut self) {
        if let Some(mut arena) = self.arena.take() {
            arena.reset();
            self.lender().give_back(arena, self.slot);
        }
    }
}

/// No such space in an arena set.
///
/// Prints as `this arena set has host (cuda:0: libcuda.so.1 not found)`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingSpace {
    /// What was looked for, after remapping.
    pub id: SpaceId,
    /// What is there.
    pub present: Vec<SpaceId>,
    /// Why it, or its like, is not, where that is known.
    pub reason: Option<(SpaceId, String)>,
}

impl fmt::Display for MissingSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this arena set has ")?;
        for (index, id) in self.present.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{id}")?;
        }
        if self.present.is_empty() {
            f.write_str("no space")?;
        }
        match &self.reason {
            Some((id, reason)) => write!(f, " ({id}: {reason})"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for MissingSpace {}

/// Who holds how much.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnerReport {
    /// As given to [`ArenaSet::take`], the first 31 bytes.
    pub owner: String,
    /// The bytes it counts for.
    pub bytes: usize,
}

/// What one space of an arena set holds and has given out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceReport {
    /// The space.
    pub id: SpaceId,
    /// The limit, if one is set.
    pub limit_bytes: Option<usize>,
    /// Taken now.
    pub current_bytes: usize,
    /// The most ever taken at a time, or since [`ArenaSet::reset_peak`].
    pub peak_bytes: usize,
    /// Kept for the next taker.
    pub idle_bytes: usize,
    /// Arenas out.
    pub live_arenas: usize,
    /// Arenas kept.
    pub idle_arenas: usize,
    /// Whether arenas grow in place in reserved addresses.
    pub reserves: bool,
    /// Who holds the arenas that are out, the largest first.
    pub owners: Vec<OwnerReport>,
}

/// What every space of an arena set holds; prints as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaSetReport {
    /// One for each space.
    pub spaces: Vec<SpaceReport>,
    /// The spaces that are not there, and why.
    pub absent: Vec<(SpaceId, String)>,
}

impl fmt::Display for ArenaSetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "space         current bytes    peak bytes    idle bytes         limit  arenas")?;
        for space in &self.spaces {
            let SpaceReport { current_bytes, peak_bytes, idle_bytes, live_arenas, .. } = space;
            let limit = space.limit_bytes.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string());
            let id = space.id.to_string();
            let figures = format_args!("{current_bytes:>13} {peak_bytes:>13} {idle_bytes:>13} {limit:>13}");
            writeln!(f, "{id:<13} {figures} {live_arenas:>7}")?;
            for owner in &space.owners {
                writeln!(f, "  {:<32} {:>13}", owner.owner, owner.bytes)?;
            }
        }
        for (id, reason) in &self.absent {
            writeln!(f, "{:<13} absent: {reason}", id.to_string())?;
        }
        Ok(())
    }
}
