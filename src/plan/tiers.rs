#![forbid(unsafe_code)]
//! Two tiers: what is large, or alive where most bytes are, is placed first; the rest follows in order of start.
//!
//! ```text
//! bytes ^        .---.             a long program needs its peak at few steps only. What is alive there
//!       |       /  a  \            is filled in valley by valley; elsewhere there is room enough for a
//!       |  .---'   b   '----.--    dynamic allocator, which minds where what is placed will begin.
//!       +-------------------------> steps
//! ```
//!
//! Deliberately absent: programs that are full most of the time, where nothing is left for the second tier.

use super::bound::live_at_starts;
use super::budget::Clock;
use super::instance::{Instance, NONE};
use super::skyline::{FAVOURS, Favour, Skyline, Strict};
use super::stream::place_around_streaming;

/// From how many 32nds of the bound on a step counts as full; the first of these that few enough items reach.
const FULL: [u64; 3] = [24, 28, 30];

/// What is this part of the bound is large.
const LARGE: u64 = 16;

/// At least this many buffers for each of the first tier.
const SHARE: usize = 3;

/// Offsets in two tiers, the first one in as many orders as are needed to come below `enough`, or allowed. `None`
/// where more than sizes is in play, where too much is full or large, or where the clock stops it.
pub(crate) fn place_in_tiers(
    instance: &Instance,
    bound: u64,
    enough: u64,
    orders: usize,
    clock: &Clock,
) -> Option<Vec<u64>> {
    if instance.is_general() || !instance.pins.is_empty() || !instance.shifts.is_empty() {
        return None;
    }
    let live = live_at_starts(instance);
    let firsts = FULL.iter().map(|share| first_tier(instance, &live, bound / 32 * share, bound / LARGE));
    let first = { firsts }.find(|items| items.len() <= instance.len() / SHARE)?;
    let part = Instance {
        items: first.iter().map(|&item| instance.items[item as usize]).collect(),
        align: instance.align,
        capacity: NONE,
        ..Instance::default()
    };
    let sky = Skyline::new(&part, bound)?;
    let mut best: Option<(u64, Vec<u64>)> = None;
    for favour in FAVOURS.into_iter().chain((0..).map(Favour::Scattered)).take(orders) {
        let Some(plan) = sky.descend(favour, bound, Strict::No, clock) else { continue };
        let peak = part.peak_saturating(&plan);
        if best.as_ref().is_none_or(|best| peak < best.0) {
            best = Some((peak, plan));
        }
        if peak <= enough || clock.is_late() {
            break;
        }
    }
    let mut offsets = vec![NONE; instance.len()];
    first.iter().zip(best?.1).for_each(|(&item, offset)| offsets[item as usize] = offset);
    place_around_streaming(instance, &first, &mut offsets);
    Some(offsets)
}

/// The items that are large, or alive at some start with this many live bytes; in order.
fn first_tier(instance: &Instance, live: &[u64], full: u64, large: u64) -> Vec<u32> {
    let mut next = u32::MAX;
    let mut first = Vec::new();
    for (item, own) in instance.items.iter().enumerate().rev() {
        if live[item] >= full {
            next = own.lower;
        }
        if next < own.upper || own.size >= large {
            first.push(u32::try_from(item).unwrap_or(u32::MAX));
        }
    }
    first.reverse();
    first
}
