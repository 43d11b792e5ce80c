#![forbid(unsafe_code)]
//! Which items are alive with which: an index over items sorted by start.
//!
//! An item lives with those after it up to the first that starts when it has ended, and with those before it for
//! which it comes before theirs. Items are cut into runs of equal length; each lists who lives on when it begins,
//! so that nobody looks back further than to the beginning of a run.

use core::ops::Range;

use super::instance::Instance;
use super::stream::sort_by_end;

/// Neighbours in O(run + neighbours) without a tree.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// The first item after each that starts when it has ended.
    until: Vec<u32>,
    run: usize,
    starts: Vec<u32>,
    carried: Vec<u32>,
}

impl Neighbours {
    /// `live_mean`: how many are alive at a start.
    pub(crate) fn new(instance: &Instance, live_mean: usize) -> Self {
        // As many as live on when a run begins begin in it: the lists hold no more than there are items.
        let run = live_mean.max(8);
        let until = until(instance);
        let (mut starts, mut carried) = (vec![0], Vec::new());
        let mut alive: Vec<u32> = Vec::new();
        for at in (0..until.len()).step_by(run) {
            alive.retain(|&item| until[item as usize] as usize > at);
            carried.extend_from_slice(&alive);
            starts.push(u32::try_from(carried.len()).unwrap_or(u32::MAX));
            let end = (at + run).min(until.len());
            alive.extend((at..end).map(|item| u32::try_from(item).unwrap_or(u32::MAX)));
        }
        Self { until, run, starts, carried }
    }

    /// An item and those that start while it is alive.
    pub(crate) fn life(&self, item: usize) -> Range<usize> {
        item..self.until[item] as usize
    }

    /// Calls `visit` with each item that is alive together with `item`.
    #[inline]
    pub(crate) fn each(&self, item: usize, mut visit: impl FnMut(usize)) {
        let run = item / self.run;
        let carried = self.starts[run] as usize..self.starts[run + 1] as usize;
        for &other in &self.carried[carried] {
            if self.until[other as usize] as usize > item {
                visit(other as usize);
            }
        }
        let from = run * self.run;
        for (other, &until) in self.until[from..item].iter().enumerate() {
            if until as usize > item {
                visit(from + other);
            }
        }
        (item + 1..self.until[item] as usize).for_each(visit);
    }
}

/// For each item the first one that starts when it has ended, or the number of items.
fn until(instance: &Instance) -> Vec<u32> {
    let items = &instance.items;
    let mut by_end: Vec<u32> = (0..u32::try_from(items.len()).unwrap_or(u32::MAX)).collect();
    sort_by_end(instance, &mut by_end);
    let (mut until, mut next) = (vec![0; items.len()], 0_u32);
    for item in by_end {
        let upper = items[item as usize].upper;
        while items.get(next as usize).is_some_and(|other| other.lower < upper) {
            next += 1;
        }
        until[item as usize] = next;
    }
    until
}
