#![forbid(unsafe_code)]
//! Which items are alive with which: an index over items sorted by start.
//!
//! Items are cut into runs of equal length; each run lists the items that are alive when it begins.
//! An item's neighbours are then its run's list, the run up to it, and those that start within its life.

use super::instance::Instance;

/// Neighbours in O(run + neighbours) without a tree.
#[derive(Debug)]
pub(crate) struct Neighbours {
    run: usize,
    starts: Vec<u32>,
    carried: Vec<u32>,
}

impl Neighbours {
    pub(crate) fn new(instance: &Instance, live_mean: usize) -> Self {
        let items = &instance.items;
        let run = live_mean.clamp(8, 4096);
        let (mut starts, mut carried) = (vec![0], Vec::new());
        let mut alive: Vec<u32> = Vec::new();
        for at in (0..items.len()).step_by(run) {
            let time = items[at].lower;
            alive.retain(|&item| items[item as usize].upper > time);
            carried.extend_from_slice(&alive);
            starts.push(u32::try_from(carried.len()).unwrap_or(u32::MAX));
            let end = (at + run).min(items.len());
            alive.extend((at..end).map(|item| u32::try_from(item).unwrap_or(u32::MAX)));
        }
        Self { run, starts, carried }
    }

    /// Calls `visit` with each item that is alive together with `item`.
    #[inline]
    pub(crate) fn each(&self, instance: &Instance, item: usize, mut visit: impl FnMut(usize)) {
        let items = &instance.items;
        let own = items[item];
        let run = item / self.run;
        let carried = self.starts[run] as usize..self.starts[run + 1] as usize;
        for &other in &self.carried[carried] {
            if items[other as usize].upper > own.lower {
                visit(other as usize);
            }
        }
        let from = run * self.run;
        for (other, candidate) in items[from..item].iter().enumerate() {
            if candidate.upper > own.lower {
                visit(from + other);
            }
        }
        for (other, candidate) in items[item + 1..].iter().enumerate() {
            if candidate.lower >= own.upper {
                break;
            }
            visit(item + 1 + other);
        }
    }
}
