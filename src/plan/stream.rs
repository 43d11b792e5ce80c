#![forbid(unsafe_code)]
//! Placing items in order of start, as a dynamic allocator would: no question about neighbours is ever asked.
//!
//! The free ranges are kept by offset; items whose life ends give their range back before the next start.

use super::fit::Fit;
use super::instance::{Instance, NONE, align_up};

/// Offsets for any instance: above all pins, and as if there were neither gaps nor wishes.
pub(crate) fn place_streaming(instance: &Instance, fit: Fit) -> Vec<u64> {
    let items = &instance.items;
    let mut offsets = vec![NONE; items.len()];
    let pinned = (0..items.len()).filter_map(|item| Some(instance.pin(item)? + items[item].size));
    let mut free = FreeList { ranges: Vec::new(), top: pinned.max().unwrap_or(0) };
    let mut by_end: Vec<u32> = (0..u32::try_from(items.len()).unwrap_or(u32::MAX)).collect();
    sort_by_end(instance, &mut by_end);
    let mut ended = 0;
    for (item, own) in items.iter().enumerate() {
        while let Some(&other) = by_end.get(ended) {
            if items[other as usize].upper > own.lower {
                break;
            }
            if instance.pin(other as usize).is_none() {
                let offset = offsets[other as usize];
                free.give(offset, offset.saturating_add(items[other as usize].size));
            }
            ended += 1;
        }
        let pin = instance.pin(item);
        offsets[item] = pin.unwrap_or_else(|| free.take(own.size, instance.align_of(item), fit));
    }
    offsets
}

/// Places the items without an offset into the lowest gaps. `placed` are those with one, in order: who lives while
/// one of them begins stays away from it.
pub(crate) fn place_around_streaming(instance: &Instance, placed: &[u32], offsets: &mut [u64]) {
    let items = &instance.items;
    let mut free = FreeList { ranges: Vec::new(), top: 0 };
    let mut by_end: Vec<u32> = (0..u32::try_from(items.len()).unwrap_or(u32::MAX)).collect();
    sort_by_end(instance, &mut by_end);
    let (mut ended, mut begun) = (0, 0);
    let mut ahead: Vec<(u64, u64)> = Vec::new();
    for (item, own) in items.iter().enumerate() {
        while let Some(&other) = by_end.get(ended).filter(|&&other| items[other as usize].upper <= own.lower)
        {
            let offset = offsets[other as usize];
            free.give(offset, offset.saturating_add(items[other as usize].size));
            ended += 1;
        }
        if placed.get(begun).is_some_and(|&next| next as usize == item) {
            free.claim(offsets[item], offsets[item].saturating_add(own.size));
            begun += 1;
            continue;
        }
        let begins = |other: &&u32| items[**other as usize].lower < own.upper;
        if !placed.get(begun).is_some_and(|other| begins(&other)) {
            offsets[item] = free.take(own.size, instance.align, Fit::First);
            continue;
        }
        ahead.clear();
        ahead.extend(placed[begun..].iter().take_while(begins).map(|&other| {
            let offset = offsets[other as usize];
            (offset, offset.saturating_add(items[other as usize].size))
        }));
        ahead.sort_unstable();
        offsets[item] = free.gap_beside(&ahead, own.size, instance.align);
        free.claim(offsets[item], offsets[item].saturating_add(own.size));
    }
}

/// Sorts by end: by counting where ends are dense.
pub(super) fn sort_by_end(instance: &Instance, by_end: &mut [u32]) {
    let items = &instance.items;
    let last = items.iter().map(|item| item.upper).max().unwrap_or(0) as usize;
    if last > 4 * items.len() + 1024 {
        by_end.sort_by_key(|&item| items[item as usize].upper);
        return;
    }
    let mut starts = vec![0_u32; last + 2];
    for item in items {
        starts[item.upper as usize + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    for (item, own) in items.iter().enumerate() {
        let slot = &mut starts[own.upper as usize];
        by_end[*slot as usize] = u32::try_from(item).unwrap_or(u32::MAX);
        *slot += 1;
    }
}

/// Free ranges below the top, by offset; everything from `top` up is free too.
struct FreeList {
    ranges: Vec<(u64, u64)>,
    top: u64,
}

impl FreeList {
    fn take(&mut self, size: u64, align: u64, fit: Fit) -> u64 {
        let mut best: Option<(usize, u64, u64)> = None;
        for (at, &(from, to)) in self.ranges.iter().enumerate() {
            let offset = align_up(from, align);
            if offset <= to && to - offset >= size {
                let room = to - offset;
                if best.is_none_or(|(_, _, least)| room < least) {
                    best = Some((at, offset, room));
                }
                if fit == Fit::First || room == size {
                    break;
                }
            }
        }
        if let Some((at, offset, _)) = best {
            self.cut(at, offset, offset + size);
            return offset;
        }
        self.extend(size, align)
    }

    /// Takes a range that is free.
    fn claim(&mut self, from: u64, to: u64) {
        if to > self.top {
            let below = (self.top, from.max(self.top));
            self.top = to;
            if below.0 < below.1 {
                self.give(below.0, below.1);
            }
        }
        let at = self.ranges.partition_point(|range| range.1 <= from);
        if self.ranges.get(at).is_some_and(|range| range.0 < to) {
            self.cut(at, from, to);
        }
    }

    /// Takes a part of one range out.
    fn cut(&mut self, at: usize, from: u64, to: u64) {
        let (start, end) = self.ranges[at];
        match (start < from, to < end) {
            (false, false) => drop(self.ranges.remove(at)),
            (false, true) => self.ranges[at].0 = to,
            (true, false) => self.ranges[at].1 = from,
            (true, true) => {
                self.ranges[at].1 = from;
                self.ranges.insert(at + 1, (to, end));
            }
        }
    }

    /// The lowest free place that meets none of these ranges, which are in order.
    fn gap_beside(&self, ahead: &[(u64, u64)], size: u64, align: u64) -> u64 {
        let (mut next, mut past) = (0, 0);
        for &(from, to) in self.ranges.iter().chain([&(self.top, u64::MAX)]) {
            let mut offset = align_up(from.max(past), align);
            while let Some(&(start, end)) = ahead.get(next) {
                if end <= offset {
                    next += 1;
                } else if start < offset.saturating_add(size) {
                    past = end;
                    offset = align_up(end, align);
                    next += 1;
                } else {
                    break;
                }
            }
            if offset <= to && to - offset >= size {
                return offset;
            }
        }
        u64::MAX
    }

    /// Takes from the top, and from the free range right below it.
    fn extend(&mut self, size: u64, align: u64) -> u64 {
        let from = match self.ranges.last() {
            Some(&(from, to)) if to == self.top => {
                self.ranges.pop();
                from
            }
            _ => self.top,
        };
        let offset = align_up(from, align);
        if offset > from {
            self.ranges.push((from, offset));
        }
        self.top = offset.saturating_add(size);
        offset
    }

    fn give(&mut self, from: u64, to: u64) {
        let at = self.ranges.partition_point(|range| range.0 < from);
        let below = at > 0 && self.ranges[at - 1].1 == from;
        let above = self.ranges.get(at).is_some_and(|range| range.0 == to);
        match (below, above) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].1 = to,
            (false, true) => self.ranges[at].0 = from,
            (false, false) => self.ranges.insert(at, (from, to)),
        }
    }
}
