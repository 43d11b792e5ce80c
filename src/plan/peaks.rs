#![forbid(unsafe_code)]
//! Placing long programs: what is alive when the most bytes are comes first.
//!
//! ```text
//! bytes ^        |  c  |          at a peak those that live longest go to the bottom, one upon the other
//!       |     |    b    |         without a hole; away from it the top ones are gone first, and leave
//!       |  |       a        |     their bytes to what else is alive there
//!       +--------peak----------> steps
//! ```
//!
//! Where the plan still stands out above the bound, the fullest step below what stands out becomes a peak too,
//! and what is alive about it is placed again. Deliberately absent: crowds, where most is alive at most peaks.

use super::budget::Clock;
use super::fit::{Crowd, Fit, place, place_around};
use super::instance::{Instance, NONE};
use super::neighbours::Neighbours;

/// Steps with at least this many 256ths of the most bytes count as peaks from the beginning.
const FULL: u64 = 252;

/// How often what stands out is placed again.
const ROUNDS: usize = 5;

/// What decides among the items of a peak.
#[derive(Clone, Copy)]
enum Within {
    Life,
    Size,
    Start,
}

/// Offsets by peaks, and by size within and after them; `None` if the clock stops it.
pub(crate) fn place_by_peaks(
    instance: &Instance,
    crowd: &Crowd,
    neighbours: &Neighbours,
    clock: &Clock,
) -> Option<Vec<u64>> {
    let live = live_at_starts(instance);
    let all: Vec<u32> = (0..index(live.len())).collect();
    let order = order(instance, neighbours, &peaks(&live), Within::Life, all);
    place(instance, crowd, &order, Fit::First, clock)
}

/// Places what is alive about the highest items again, as long as they stand out far above the bound.
pub(crate) fn lower_peaks(
    instance: &Instance,
    crowd: &Crowd,
    neighbours: &Neighbours,
    bound: u64,
    offsets: &mut [u64],
    clock: &Clock,
) {
    let live = live_at_starts(instance);
    let mut peaks = peaks(&live);
    let near = Near { instance, crowd, neighbours, clock };
    for round in 0..ROUNDS {
        let ends = offsets.iter().zip(&instance.items).map(|(offset, item)| offset.saturating_add(item.size));
        let highest = ends.zip(0_usize..).max_by_key(|&(end, item)| (end, core::cmp::Reverse(item)));
        let highest = highest.filter(|&(peak, _)| peak > enough(bound) && peak < NONE);
        let Some((peak, item)) = highest.filter(|_| !clock.is_late()) else { return };
        let fullest = fullest_step(instance, &live, item);
        peaks.retain(|&peak| peak != fullest);
        peaks.insert(0, fullest);
        match round {
            // By size alone, as if nothing were a peak.
            1 => near.place_again(&[], Within::Life, fullest, peak, offsets),
            2 => near.place_again(&peaks[..1], Within::Life, fullest, peak, offsets),
            3 => near.place_again(&peaks, Within::Start, fullest, peak, offsets),
            4 => near.place_again(&peaks, Within::Size, fullest, peak, offsets),
            _ => near.place_again(&peaks, Within::Life, fullest, peak, offsets),
        }
    }
}

/// A hundredth above the bound is good enough for a long program.
pub(crate) fn enough(bound: u64) -> u64 {
    bound.saturating_add(bound / 100)
}

/// The items at whose start most bytes are alive, the fullest first.
fn peaks(live: &[u64]) -> Vec<u32> {
    let least = live.iter().max().map_or(0, |&most| most - most / 256 * (256 - FULL));
    let mut peaks: Vec<u32> = (0..index(live.len())).filter(|&item| live[item as usize] >= least).collect();
    peaks.sort_by_key(|&item| core::cmp::Reverse(live[item as usize]));
    peaks
}

/// Who is alive with whom, and how long there is to place them.
struct Near<'a> {
    instance: &'a Instance,
    crowd: &'a Crowd,
    neighbours: &'a Neighbours,
    clock: &'a Clock,
}

impl Near<'_> {
    /// Places what is alive about a peak again, if that takes it below `highest`.
    fn place_again(&self, peaks: &[u32], within: Within, fullest: u32, highest: u64, offsets: &mut [u64]) {
        let items = &self.instance.items;
        let start = items[fullest as usize].lower;
        let (mut lower, mut upper) = (start, start + 1);
        self.neighbours.alive_in(self.instance, start, start + 1, |item| {
            (lower, upper) = (lower.min(items[item].lower), upper.max(items[item].upper));
        });
        let mut around = Vec::new();
        self.neighbours.alive_in(self.instance, lower, upper, |item| around.push(index(item)));
        around.retain(|&item| self.instance.pin(item as usize).is_none());
        let kept: Vec<u64> = around.iter().map(|&item| offsets[item as usize]).collect();
        for &item in &around {
            offsets[item as usize] = NONE;
        }
        let order = order(self.instance, self.neighbours, peaks, within, around.clone());
        let in_time = place_around(self.instance, self.crowd, &order, Fit::First, offsets, self.clock);
        let end = |item: u32| offsets[item as usize].saturating_add(items[item as usize].size);
        if !in_time || around.iter().any(|&item| end(item) >= highest) {
            around.iter().zip(kept).for_each(|(&item, offset)| offsets[item as usize] = offset);
        }
    }
}

/// The items among some that are alive at the peaks, by life; then the others, by size.
fn order(
    instance: &Instance,
    neighbours: &Neighbours,
    peaks: &[u32],
    within: Within,
    mut among: Vec<u32>,
) -> Vec<u32> {
    let item = |at: u32| instance.items[at as usize];
    let mut waits = vec![false; instance.len()];
    for &item in &among {
        waits[item as usize] = true;
    }
    let mut order: Vec<u32> = Vec::with_capacity(among.len());
    for &peak in peaks {
        let (from, start) = (order.len(), item(peak).lower);
        neighbours.alive_in(instance, start, start + 1, |item| {
            if std::mem::take(&mut waits[item]) {
                order.push(index(item));
            }
        });
        let life = |at: u32| u64::from(item(at).upper - item(at).lower);
        let key = |at: u32| match within {
            Within::Life => (life(at), item(at).size),
            Within::Size => (item(at).size, life(at)),
            Within::Start => (u64::from(u32::MAX - item(at).lower), life(at)),
        };
        order[from..].sort_by_key(|&at| core::cmp::Reverse(key(at)));
    }
    among.retain(|&item| waits[item as usize]);
    among.sort_by_key(|&at| core::cmp::Reverse(item(at).size));
    order.append(&mut among);
    order
}

fn index(item: usize) -> u32 {
    u32::try_from(item).unwrap_or(u32::MAX)
}

/// The item of those that start in an item's life, or it itself, at whose start the most bytes are alive.
fn fullest_step(instance: &Instance, live: &[u64], item: usize) -> u32 {
    let end = instance.items[item].upper;
    let within = (item..live.len()).take_while(|&other| instance.items[other].lower < end);
    index(within.max_by_key(|&other| (live[other], core::cmp::Reverse(other))).unwrap_or(item))
}

/// The bytes alive when each item starts, itself and those before it included.
fn live_at_starts(instance: &Instance) -> Vec<u64> {
    let mut ends: Vec<(u32, u64)> = instance.items.iter().map(|item| (item.upper, item.size)).collect();
    ends.sort_unstable();
    let (mut ended, mut live) = (0, 0_u64);
    let start = |item: &super::instance::Item| {
        while ends[ended].0 <= item.lower {
            live -= ends[ended].1;
            ended += 1;
        }
        live = live.saturating_add(item.size);
        live
    };
    instance.items.iter().map(start).collect()
}
