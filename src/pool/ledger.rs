#![forbid(unsafe_code)]
//! The books of a pool: live, peak and count, in all and for each tag.

use crate::space::{Owner, Tag};

/// What a [`Pool`](super::Pool) holds and has given out, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Given out now, padding included.
    pub live_bytes: usize,
    /// The most ever given out at a time, or since [`Pool::reset_peak`](super::Pool::reset_peak).
    pub peak_bytes: usize,
    /// Of the live bytes, those that were not asked for: sizes are rounded up to the granule.
    pub padding_bytes: usize,
    /// Memory held: live, and free for the next blocks.
    pub capacity_bytes: usize,
    /// How many blocks are out.
    pub blocks: usize,
    /// How many blocks of the space the memory is in.
    pub extents: usize,
    /// How many requests were served only after something was given back to the space or by the callback.
    pub rescued: u64,
}

/// What is live for one tag of a [`Pool`](super::Pool).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolTagStats {
    /// Its name; empty for blocks without a tag.
    pub tag: Tag,
    /// Given out now, padding included, in bytes.
    pub live_bytes: usize,
    /// The most ever given out at a time, in bytes.
    pub peak_bytes: usize,
    /// How many blocks are out.
    pub blocks: usize,
    /// The most that may be live, in bytes; `usize::MAX` where no limit is set.
    pub limit_bytes: usize,
}

/// The books. Sums are kept, never computed.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Without what the extents know.
    pub(super) stats: PoolStats,
    owners: Vec<PoolTagStats>,
}

impl Ledger {
    pub(super) fn new() -> Self {
        let mut ledger = Self { stats: PoolStats::default(), owners: Vec::new() };
        ledger.push(Tag::NONE);
        ledger
    }

    fn push(&mut self, tag: Tag) {
        let limit_bytes = usize::MAX;
        self.owners.push(PoolTagStats { tag, live_bytes: 0, peak_bytes: 0, blocks: 0, limit_bytes });
    }

    /// The number of this tag, entered if it is new.
    pub(super) fn owner(&mut self, tag: Tag) -> Option<u16> {
        let known = self.owners.iter().position(|owner| owner.tag == tag);
        let owner = u16::try_from(known.unwrap_or(self.owners.len())).ok()?;
        if known.is_none() {
            self.push(tag);
        }
        Some(owner)
    }

    pub(super) fn limit(&mut self, owner: u16, limit_bytes: usize) {
        self.owners[usize::from(owner)].limit_bytes = limit_bytes;
    }

    pub(super) fn owners(&self) -> &[PoolTagStats] {
        &self.owners
    }

    pub(super) fn of(&self, owner: u16) -> &PoolTagStats {
        &self.owners[usize::from(owner)]
    }

    /// Whether so much more may be live for this tag.
    #[inline(always)]
    pub(super) fn may(&self, owner: u16, bytes: usize) -> bool {
        let owner = self.of(owner);
        bytes <= owner.limit_bytes.saturating_sub(owner.live_bytes)
    }

    #[inline(always)]
    pub(super) fn add(&mut self, owner: u16, bytes: usize, asked_bytes: usize) {
        let stats = &mut self.stats;
        stats.live_bytes += bytes;
        stats.padding_bytes += bytes - asked_bytes;
        stats.blocks += 1;
        stats.peak_bytes = stats.peak_bytes.max(stats.live_bytes);
        let owner = &mut self.owners[usize::from(owner)];
        owner.live_bytes += bytes;
        owner.blocks += 1;
        owner.peak_bytes = owner.peak_bytes.max(owner.live_bytes);
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, owner: u16, bytes: usize, asked_bytes: usize) {
        self.stats.live_bytes -= bytes;
        self.stats.padding_bytes -= bytes - asked_bytes;
        self.stats.blocks -= 1;
        let owner = &mut self.owners[usize::from(owner)];
        owner.live_bytes -= bytes;
        owner.blocks -= 1;
    }

    pub(super) fn reset_peak(&mut self) {
        self.stats.peak_bytes = self.stats.live_bytes;
        for owner in &mut self.owners {
            owner.peak_bytes = owner.live_bytes;
        }
    }

    /// The tags that hold most.
    pub(super) fn largest(&self) -> [Owner; Owner::NAMED] {
        let named = |owner: &PoolTagStats| {
            let tag = if owner.tag.is_empty() { Tag::new("no tag") } else { owner.tag };
            Owner { tag, bytes: owner.live_bytes }
        };
        Owner::largest(self.owners.iter().map(named))
    }
}
