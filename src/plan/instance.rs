#![forbid(unsafe_code)]
//! One space's storages in flat arrays, sorted by start: what the strategies work on.

use super::error::PlanError;

/// "No offset", in arrays of offsets.
pub(crate) const NONE: u64 = u64::MAX;

/// A storage: zero sizes and empty lifespans are gone, views are merged into what they view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub size: u64,
    pub lower: u32,
    pub upper: u32,
}

/// Part of an item's life, with the bytes in use meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub lower: u32,
    pub upper: u32,
    pub bytes_lower: u64,
    pub bytes_upper: u64,
}

/// The lives of items that have idle gaps, as segments between the gaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segments {
    pub starts: Vec<u32>,
    pub all: Vec<Segment>,
    /// Whether some gap keeps part of its buffer in use.
    pub windowed: bool,
}

/// The storages of one space.
#[derive(Clone, Debug, Default)]
pub(crate) struct Instance {
    /// In order of start, then of buffer.
    pub items: Vec<Item>,
    /// The buffer each item stands for.
    pub source: Vec<u32>,
    /// The alignment of all items, or the largest if `shifts` tells each.
    pub align: u64,
    /// The logarithm of each item's alignment; empty if all have `align`.
    pub shifts: Vec<u8>,
    /// Where each item is pinned, or `NONE`; empty if none is.
    pub pins: Vec<u64>,
    /// Where each item wishes to be, or `NONE`; empty if none does.
    pub hints: Vec<u64>,
    /// Present if some item has idle gaps.
    pub segments: Option<Segments>,
    /// The capacity of the space; `NONE` if it has no limit.
    pub capacity: u64,
    /// The end of the highest buffer that is never alive but has a size.
    pub floor: u64,
}

/// The smallest multiple of a power of two that is at least `offset`, or the largest number if there is none.
#[inline]
pub(crate) fn align_up(offset: u64, align: u64) -> u64 {
    let mask = align - 1;
    offset.saturating_add(mask) & !mask | if offset > u64::MAX - mask { u64::MAX } else { 0 }
}

impl Instance {
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The alignment of one item.
    #[inline]
    pub(crate) fn align_of(&self, item: usize) -> u64 {
        self.shifts.get(item).map_or(self.align, |&shift| 1 << shift)
    }

    #[inline]
    pub(crate) fn pin(&self, item: usize) -> Option<u64> {
        self.pins.get(item).copied().filter(|&pin| pin != NONE)
    }

    #[inline]
    pub(crate) fn hint(&self, item: usize) -> Option<u64> {
        self.hints.get(item).copied().filter(|&hint| hint != NONE)
    }

    /// Whether the walk over whole rectangles is not enough: gaps or wishes are in play.
    pub(crate) fn is_general(&self) -> bool {
        self.segments.is_some() || !self.hints.is_empty()
    }

    /// The parts of an item's life.
    pub(crate) fn segments_of(&self, item: usize) -> impl Iterator<Item = Segment> + '_ {
        let whole = self.items[item];
        let range =
            self.segments.as_ref().map_or(0..0, |s| s.starts[item] as usize..s.starts[item + 1] as usize);
        let plain = range.is_empty().then_some(Segment {
            lower: whole.lower,
            upper: whole.upper,
            bytes_lower: 0,
            bytes_upper: whole.size,
        });
        let parts = self.segments.as_ref().map_or(&[][..], |s| &s.all[range]);
        plain.into_iter().chain(parts.iter().copied())
    }

    /// The end of the highest item, or an error naming the one that ends beyond 64 bits.
    pub(crate) fn peak(&self, offsets: &[u64]) -> Result<u64, PlanError> {
        let mut peak = self.floor;
        for (item, &offset) in offsets.iter().enumerate() {
            let size_bytes = self.items[item].size;
            let end = offset.checked_add(size_bytes).filter(|&end| end != u64::MAX);
            peak =
                peak.max(end.ok_or(PlanError::Overflow { buffer: self.source[item] as usize, size_bytes })?);
        }
        Ok(peak)
    }

    /// The same, for offsets known to be in range.
    pub(crate) fn peak_saturating(&self, offsets: &[u64]) -> u64 {
        offsets.iter().zip(&self.items).fold(self.floor, |p, (&o, item)| p.max(o.saturating_add(item.size)))
    }

    /// The items that overlap in time, counted once a pair.
    pub(crate) fn pair_count(&self) -> u64 {
        let Some(first) = self.items.first().map(|item| item.lower) else { return 0 };
        let last = self.items.iter().map(|item| item.upper).max().unwrap_or(first);
        let steps = (last - first) as usize;
        // Where steps are dense, ends are counted; else sorted.
        let dense = steps <= 4 * self.items.len() + 1024;
        let mut ends = vec![0_u32; if dense { steps + 1 } else { 0 }];
        let mut sorted: Vec<u32> = Vec::new();
        if dense {
            for item in &self.items {
                ends[(item.upper - first) as usize] += 1;
            }
        } else {
            sorted.extend(self.items.iter().map(|item| item.upper));
            sorted.sort_unstable();
        }
        let (mut ended, mut step, mut pairs) = (0_usize, 0, 0);
        for (started, item) in self.items.iter().enumerate() {
            if dense {
                while step <= (item.lower - first) as usize {
                    ended += ends[step] as usize;
                    step += 1;
                }
            } else {
                while ended < sorted.len() && sorted[ended] <= item.lower {
                    ended += 1;
                }
            }
            pairs += (started - ended) as u64;
        }
        pairs
    }
}
