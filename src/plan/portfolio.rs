#![forbid(unsafe_code)]
//! The fast mode: a few orders and fits, the best of them, and a short dive of the search if none meets the bound.

use super::budget::{Budget, Clock};
use super::exact::{Best, improve};
use super::fit::{Crowd, Fit, Key, order_by, place};
use super::instance::{Instance, NONE};
use super::stream::place_streaming;

/// The most pairs alive together for which more than one order is tried at any price.
const PAIRS_FEW: u64 = 2_000_000;

/// Whether items can be placed in order of start without asking about neighbours.
fn can_stream(instance: &Instance) -> bool {
    instance.pins.is_empty() && !instance.is_general()
}

/// Places in order of start.
pub(crate) fn by_start(instance: &Instance, fit: Fit) -> Vec<u64> {
    if can_stream(instance) {
        return place_streaming(instance, fit);
    }
    place(instance, &Crowd::new(instance), &order_by(instance, Key::Start), fit)
}

/// The most items for a dive: its time grows with their square.
const DIVE_ITEMS_MAX: usize = 2048;

fn by_size(instance: &Instance, crowd: &Crowd, bound: u64) -> Best {
    let offsets = place(instance, crowd, &order_by(instance, Key::Size), Fit::First);
    Best { peak: instance.peak_saturating(&offsets), offsets, bound }
}

/// The best of the cheap plans.
pub(crate) fn cheap(instance: &Instance, bound: u64) -> Best {
    let crowd = Crowd::new(instance);
    let mut best = by_size(instance, &crowd, bound);
    improve_cheaply(instance, &crowd, &mut best);
    best
}

fn improve_cheaply(instance: &Instance, crowd: &Crowd, best: &mut Best) {
    let tries: [(Key, Fit); 4] =
        [(Key::Size, Fit::Best), (Key::Start, Fit::Best), (Key::Life, Fit::Best), (Key::Area, Fit::First)];
    let tries = if crowd.pairs <= PAIRS_FEW { &tries[..] } else { &[] };
    for &(key, fit) in tries {
        if best.peak <= best.bound {
            return;
        }
        let offsets = match key {
            Key::Start => by_start(instance, fit),
            _ => place(instance, crowd, &order_by(instance, key), fit),
        };
        let peak = instance.peak_saturating(&offsets);
        if peak < best.peak {
            (best.peak, best.offsets) = (peak, offsets);
        }
    }
}

/// The largest first, then a dive, then the other cheap plans: until one meets the bound.
pub(crate) fn fast(instance: &Instance, bound: u64) -> Best {
    let crowd = Crowd::new(instance);
    let mut best = by_size(instance, &crowd, bound);
    if best.peak > bound && best.peak < NONE && crowd.pairs <= PAIRS_FEW && instance.len() <= DIVE_ITEMS_MAX {
        // One order, hardly more nodes than items: what the first descent finds.
        let mut clock = Clock::new(
            &Budget::nodes((instance.len() as u64 + 32) * (1 + instance.len() as u64 / 512)),
            None,
        );
        improve(instance, &mut best, 0, &mut clock, &mut |_| {});
        // What a dive says about the bound is left to the search: this mode promises no proof.
        best.bound = bound;
    }
    improve_cheaply(instance, &crowd, &mut best);
    best
}
