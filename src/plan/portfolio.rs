#![forbid(unsafe_code)]
//! Plans without a search: a few orders and fits, the best of them, and for the fast mode a short dive.

use super::budget::Clock;
use super::exact::{Best, dive};
use super::fit::{Crowd, Fit, Key, order_by, place};
use super::instance::{Instance, NONE};
use super::peaks::{enough, lower_peaks, place_by_peaks};
use super::skyline::{Favour, Skyline, Strict};
use super::stream::place_streaming;

/// The most pairs alive together for which more than one order is tried at any price.
const PAIRS_FEW: u64 = 2_000_000;

/// The most items that are placed by size whatever the clock says: about a millisecond.
const ITEMS_FEW: usize = 512;

/// The orders in which valleys are filled, the better one first.
const FAVOURS: [Favour; 2] = [Favour::Area, Favour::Life];

/// The most items that are placed in many scattered orders: some ten milliseconds each.
const ITEMS_SCATTERED: usize = 20_000;

/// The most items for a dive: its time grows with their square.
const DIVE_ITEMS_MAX: usize = 1024;

/// The most pairs alive together for which the fast mode tries other orders after a dive.
const PAIRS_FAST: u64 = 40_000;

/// Whether items can be placed in order of start without asking about neighbours.
fn can_stream(instance: &Instance) -> bool {
    instance.pins.is_empty() && !instance.is_general()
}

/// Places in order of start.
pub(crate) fn by_start(instance: &Instance, fit: Fit) -> Vec<u64> {
    if can_stream(instance) {
        return place_streaming(instance, fit);
    }
    by_key(instance, &Crowd::new(instance), Key::Start, fit)
}

/// Places in the order of a key.
pub(crate) fn by_key(instance: &Instance, crowd: &Crowd, key: Key, fit: Fit) -> Vec<u64> {
    place(instance, crowd, &order_by(instance, key), fit, &Clock::endless()).unwrap_or_default()
}

/// Takes over offsets where they are lower.
fn take(instance: &Instance, best: &mut Best, offsets: Vec<u64>) {
    let peak = instance.peak_saturating(&offsets);
    if peak < best.peak || best.offsets.is_empty() {
        (best.peak, best.offsets) = (peak, offsets);
    }
}

/// The largest first; long programs valley by valley, and again about the peaks that stand out.
fn place_large(instance: &Instance, crowd: &Crowd, bound: u64, clock: &Clock) -> Option<Vec<u64>> {
    if !crowd.sparse {
        return place(instance, crowd, &order_by(instance, Key::Size), Fit::First, clock);
    }
    let sky = Skyline::new(instance, bound);
    let mut filled: Option<Vec<u64>> = None;
    let scattered = if instance.len() <= ITEMS_SCATTERED { 8 } else { 2 };
    let favours = FAVOURS.into_iter().chain((0..scattered).map(Favour::Scattered));
    for favour in favours {
        let offsets = sky.as_ref().and_then(|sky| sky.descend(favour, bound, Strict::No, clock));
        let peak = |offsets: &Vec<u64>| instance.peak_saturating(offsets);
        if let Some(offsets) = offsets.filter(|o| filled.as_ref().is_none_or(|best| peak(o) < peak(best))) {
            if peak(&offsets) <= enough(bound) {
                return Some(offsets);
            }
            filled = Some(offsets);
        }
    }
    let neighbours = crowd.neighbours(instance)?;
    let mut offsets = match filled {
        Some(offsets) => offsets,
        None => place_by_peaks(instance, crowd, neighbours, clock)?,
    };
    lower_peaks(instance, crowd, neighbours, bound, &mut offsets, clock);
    Some(offsets)
}

/// The largest first.
pub(crate) fn by_size(instance: &Instance, crowd: &Crowd, bound: u64) -> Best {
    let offsets = place_large(instance, crowd, bound, &Clock::endless()).unwrap_or_default();
    Best { peak: instance.peak_saturating(&offsets), offsets, bound }
}

/// The best of the cheap plans that the clock allows. At least one is made, and that by size too if the first
/// one does not fit.
pub(crate) fn cheap(instance: &Instance, bound: u64, clock: &Clock) -> Best {
    let few = instance.len() <= ITEMS_FEW && !instance.is_general();
    let crowd = few.then(|| Crowd::new(instance));
    let first = if few { fill_valleys(instance, bound, &Clock::endless()) } else { None };
    let mut best = match (first, &crowd) {
        (Some(best), _) => return best,
        (None, Some(crowd)) => by_size(instance, crowd, bound),
        (None, None) => {
            let offsets = place_streaming(instance, Fit::Best);
            Best { peak: instance.peak_saturating(&offsets), offsets, bound }
        }
    };
    let fits = best.peak <= instance.capacity && best.peak < NONE;
    if best.peak <= bound || (fits && clock.is_late()) {
        return best;
    }
    if !few && let Some(best) = fill_valleys(instance, bound, clock) {
        return best;
    }
    let crowd = crowd.unwrap_or_else(|| Crowd::new(instance));
    if !few {
        let large = |clock: &Clock| place_large(instance, &crowd, bound, clock);
        let placed = large(clock).or_else(|| if fits { None } else { large(&Clock::endless()) });
        if let Some(offsets) = placed {
            take(instance, &mut best, offsets);
        }
    }
    if !crowd.sparse {
        fill_anyway(instance, &mut best, clock);
    }
    improve_cheaply(instance, &crowd, &mut best, clock);
    best
}

/// Tries other orders and fits until one meets the bound.
fn improve_cheaply(instance: &Instance, crowd: &Crowd, best: &mut Best, clock: &Clock) {
    let tries: [(Key, Fit); 4] =
        [(Key::Size, Fit::Best), (Key::Start, Fit::Best), (Key::Life, Fit::Best), (Key::Area, Fit::First)];
    let tries = if crowd.pairs <= PAIRS_FEW { &tries[..] } else { &[] };
    for &(key, fit) in tries {
        if best.peak <= best.bound || clock.is_late() {
            return;
        }
        let offsets = match key {
            Key::Start if can_stream(instance) => Some(place_streaming(instance, fit)),
            _ => place(instance, crowd, &order_by(instance, key), fit, clock),
        };
        if let Some(offsets) = offsets {
            take(instance, best, offsets);
        }
    }
}

/// Valley by valley, then the largest first, then a dive and the other cheap plans: until one meets the bound.
pub(crate) fn fast(instance: &Instance, bound: u64) -> Best {
    let clock = Clock::endless();
    if let Some(best) = fill_valleys(instance, bound, &clock) {
        return best;
    }
    let crowd = Crowd::new(instance);
    let mut best = by_size(instance, &crowd, bound);
    if best.peak > bound && !crowd.sparse {
        fill_anyway(instance, &mut best, &clock);
    }
    if crowd.pairs <= PAIRS_FAST {
        if best.peak > bound && best.peak < NONE && instance.len() <= DIVE_ITEMS_MAX {
            dive(instance, &mut best);
        }
        improve_cheaply(instance, &crowd, &mut best, &clock);
    }
    best
}

/// A plan at the bound, if filling valleys finds one.
fn fill_valleys(instance: &Instance, bound: u64, clock: &Clock) -> Option<Best> {
    let sky = Skyline::new(instance, bound)?;
    let plans = FAVOURS.iter().filter_map(|&favour| sky.descend(favour, bound, Strict::Yes, clock));
    plans
        .map(|offsets| Best { peak: instance.peak_saturating(&offsets), offsets, bound })
        .find(|best| best.peak <= bound)
}

/// Takes over what filling valleys gives, even if it stands out.
fn fill_anyway(instance: &Instance, best: &mut Best, clock: &Clock) {
    let Some(sky) = Skyline::new(instance, best.bound) else { return };
    for favour in FAVOURS {
        if best.peak > best.bound
            && let Some(offsets) = sky.descend(favour, best.bound, Strict::No, clock)
        {
            take(instance, best, offsets);
        }
    }
}
