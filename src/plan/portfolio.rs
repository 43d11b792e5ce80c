#![forbid(unsafe_code)]
//! The fast mode: a few orders and fits, the best of them, and a short dive of the search if none meets the bound.

use super::budget::{Budget, Clock};
use super::exact::{Best, improve};
use super::fit::{Crowd, Fit, Key, order_by, place};
use super::instance::{Instance, NONE};
use super::stream::place_streaming;

/// The most pairs alive together for which more than one order is tried at any price.
const PAIRS_FEW: u64 = 2_000_000;

/// How many times as many nodes as items a dive may take.
const DIVE_NODES: u64 = 2;

/// Whether items can be placed in order of start without asking about neighbours.
pub(crate) fn can_stream(instance: &Instance) -> bool {
    instance.pins.is_empty() && !instance.is_general()
}

/// Places in order of start.
pub(crate) fn by_start(instance: &Instance, fit: Fit) -> Vec<u64> {
    if can_stream(instance) {
        return place_streaming(instance, fit);
    }
    place(instance, &Crowd::new(instance), &order_by(instance, Key::Start), fit)
}

/// The best of the cheap plans.
pub(crate) fn cheap(instance: &Instance, bound: u64) -> Best {
    let crowd = Crowd::new(instance);
    let offsets = place(instance, &crowd, &order_by(instance, Key::Size), Fit::First);
    let mut best = Best { peak: instance.peak_saturating(&offsets), offsets, bound };
    let few = crowd.pairs <= PAIRS_FEW;
    let take = |best: &mut Best, offsets: Vec<u64>| {
        let peak = instance.peak_saturating(&offsets);
        if peak < best.peak {
            (best.peak, best.offsets) = (peak, offsets);
        }
        best.peak <= bound
    };
    if best.peak <= bound || !few {
        return best;
    }
    let tries: [(Key, Fit); 4] =
        [(Key::Size, Fit::Best), (Key::Life, Fit::Best), (Key::Area, Fit::First), (Key::Start, Fit::Best)];
    for (key, fit) in tries {
        let offsets = match key {
            Key::Start => by_start(instance, fit),
            _ => place(instance, &crowd, &order_by(instance, key), fit),
        };
        if take(&mut best, offsets) {
            return best;
        }
    }
    best
}

/// The cheap plans, then a dive.
pub(crate) fn fast(instance: &Instance, bound: u64) -> Best {
    let mut best = cheap(instance, bound);
    if best.peak > bound && best.peak < NONE && Crowd::new(instance).pairs <= PAIRS_FEW {
        let nodes = DIVE_NODES * instance.len() as u64 + 64;
        let mut clock = Clock::new(&Budget::nodes(nodes), None);
        improve(instance, &mut best, 0, &mut clock, &mut |_| {});
        // What a dive says about the bound is left to the search: this mode promises no proof.
        best.bound = best.bound.min(best.peak);
    }
    best
}
