#![forbid(unsafe_code)]
//! Plans without a search: a few orders and fits, and the best of them.

use super::between::place_between;
use super::budget::Clock;
use super::exact::Best;
use super::fit::{Crowd, Fit, Key, order_by, place};
use super::instance::{Instance, NONE};
use super::skyline::{FAVOURS, Skyline, Strict};
use super::stream::place_streaming;
use super::tiers::place_in_tiers;

/// The most pairs alive together for which more than one order is tried at any price.
const PAIRS_FEW: u64 = 2_000_000;

/// The most items that are placed by size whatever the clock says: about a millisecond.
const ITEMS_FEW: usize = 512;

/// The most items for which a plan at the bound itself is tried first.
const ITEMS_LONG: usize = 4096;

/// How many looks at placed items placing may take: some seconds.
const LOOKS_MAX: u64 = 1 << 29;

/// In how many orders the first tier of a long program is placed until it comes near the bound.
const ORDERS: usize = 20;

/// The most pairs alive together for which the fast mode tries other heights.
const PAIRS_FAST: u64 = 40_000;

/// How many other heights those are.
const HALVINGS: usize = 3;

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

/// The largest first; long programs in tiers, or valley by valley.
fn place_large(instance: &Instance, crowd: &Crowd, bound: u64, clock: &Clock) -> Option<Vec<u64>> {
    if !crowd.sparse {
        return place_dense(instance, crowd, bound, clock);
    }
    let peak = |offsets: &Vec<u64>| instance.peak_saturating(offsets);
    let enough = bound.saturating_add(bound / 128);
    let mut best = place_in_tiers(instance, bound, enough, ORDERS, clock);
    let sky = Skyline::new(instance, bound).filter(|_| !is_too_much(instance, crowd));
    if best.is_none() && sky.is_none() {
        best = place_dense(instance, crowd, bound, clock);
    }
    let is_done = |best: &Option<Vec<u64>>| best.as_ref().is_some_and(|best| peak(best) <= enough);
    if !is_done(&best) && crowd.is_thin() && instance.pins.is_empty() {
        best = best.into_iter().chain([place_between(instance, bound)]).min_by_key(peak);
    }
    for favour in FAVOURS {
        if is_done(&best) {
            return best;
        }
        let offsets = sky.as_ref().and_then(|sky| sky.descend(favour, bound, Strict::No, clock));
        best = [best, offsets].into_iter().flatten().min_by_key(peak);
    }
    best.or_else(|| place_dense(instance, crowd, bound, clock))
}

/// Whether placing in any other order than that of start takes too long, by an index or by walking.
fn is_too_much(instance: &Instance, crowd: &Crowd) -> bool {
    let count = instance.len() as u64;
    crowd.pairs.min(count.saturating_mul(count) / 16) > LOOKS_MAX
}

/// The largest first, unless a plan that takes far less time is as low as can be, or too much is alive together.
fn place_dense(instance: &Instance, crowd: &Crowd, bound: u64, clock: &Clock) -> Option<Vec<u64>> {
    // Who minds the time has made that plan before.
    if clock.is_timed() && is_too_much(instance, crowd) {
        return None;
    }
    if instance.len() > ITEMS_LONG && can_stream(instance) && !clock.is_timed() {
        let offsets = place_streaming(instance, Fit::Best);
        if instance.peak_saturating(&offsets) <= bound || is_too_much(instance, crowd) {
            return Some(offsets);
        }
    }
    place(instance, crowd, &order_by(instance, Key::Size), Fit::First, clock)
}

/// In order of start, after what is large or alive where most bytes are.
pub(crate) fn in_tiers(instance: &Instance, bound: u64) -> Vec<u64> {
    let enough = bound.saturating_add(bound / 32);
    let clock = Clock::endless();
    let tiers = place_in_tiers(instance, bound, enough, FAVOURS.len(), &clock);
    tiers.or_else(|| place_dense(instance, &Crowd::new(instance), bound, &clock)).unwrap_or_default()
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
    if few && let Some(best) = fill_valleys(instance, bound, &Clock::endless()) {
        return best;
    }
    let first = if few {
        let crowd = Crowd::new(instance);
        let best = by_size(instance, &crowd, bound);
        (best, Some(crowd))
    } else {
        let offsets = place_streaming(instance, Fit::Best);
        (Best { peak: instance.peak_saturating(&offsets), offsets, bound }, None)
    };
    let (mut best, crowd) = first;
    let fits = best.peak <= instance.capacity && best.peak < NONE;
    if best.peak <= bound || (fits && clock.is_late()) {
        return best;
    }
    if !few
        && instance.len() <= ITEMS_LONG
        && let Some(best) = fill_valleys(instance, bound, clock)
    {
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
    // Ordering a large crowd takes long before the clock is looked at.
    let in_time = instance.len() <= ITEMS_LONG || !clock.is_timed();
    if in_time && !crowd.sparse && !is_too_much(instance, &crowd) {
        fill_anyway(instance, &mut best, clock);
    }
    improve_cheaply(instance, &crowd, &mut best, clock);
    if best.peak > bound && crowd.pairs <= PAIRS_FAST {
        bisect_valleys(instance, &mut best, clock);
    }
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

/// Valley by valley, then the largest first, then other cheap plans: until one meets the bound.
pub(crate) fn fast(instance: &Instance, bound: u64) -> Best {
    let clock = Clock::endless();
    if instance.len() <= ITEMS_LONG
        && let Some(best) = fill_valleys(instance, bound, &clock)
    {
        return best;
    }
    let crowd = Crowd::new(instance);
    let mut best = by_size(instance, &crowd, bound);
    if best.peak > bound && !crowd.sparse && !is_too_much(instance, &crowd) {
        fill_anyway(instance, &mut best, &clock);
    }
    if best.peak > bound && can_stream(instance) {
        take(instance, &mut best, place_streaming(instance, Fit::Best));
    }
    if best.peak > bound && crowd.pairs <= PAIRS_FAST {
        bisect_valleys(instance, &mut best, &clock);
    }
    best
}

/// Fills valleys up to heights between the bound and the best: halves the stretch a few times.
fn bisect_valleys(instance: &Instance, best: &mut Best, clock: &Clock) {
    let Some(sky) = Skyline::new(instance, best.bound) else { return };
    let mut fails = best.bound;
    for _ in 0..HALVINGS {
        if clock.is_late() {
            return;
        }
        let height = fails + (best.peak - fails) / 2;
        let found = FAVOURS.iter().find_map(|&favour| sky.descend(favour, height, Strict::Yes, clock));
        match found {
            Some(offsets) => take(instance, best, offsets),
            None => fails = height,
        }
    }
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
