#![forbid(unsafe_code)]
//! Placing items in order of start between a floor and a ceiling.
//!
//! ```text
//! ceiling - - - - - - - - - - - - -     Each goes into the smallest gap that holds it, and there to the side that
//!      +--b--+       +--d--+            stays longer: the floor, the ceiling, or the neighbour that ends last. So
//!   free     |  free |     |            what two short lives leave is one gap, and a chain of any sizes needs no
//!   +--a--+--+--c-+--+--e--+- floor     more than the two largest in a row.
//! ```
//!
//! For few items alive at once: each new one looks at all of them. Deliberately absent: pins and idle gaps.

use super::instance::{Instance, Item, align_up};

/// What is alive, by offset.
#[derive(Clone, Copy)]
struct Live {
    from: u64,
    to: u64,
    upper: u32,
}

/// Offsets that stay below the ceiling where this order leads there.
pub(crate) fn place_between(instance: &Instance, ceiling: u64) -> Vec<u64> {
    let mut live: Vec<Live> = Vec::new();
    let place = |(item, own): (usize, &Item)| {
        live.retain(|other| other.upper > own.lower);
        let align = instance.align_of(item);
        let (offset, at) = lowest_waste(&live, ceiling, own.size, align);
        live.insert(at, Live { from: offset, to: offset.saturating_add(own.size), upper: own.upper });
        offset
    };
    instance.items.iter().enumerate().map(place).collect()
}

/// The offset in the smallest gap and who it comes before; above all where there is no gap.
fn lowest_waste(live: &[Live], ceiling: u64, size: u64, align: u64) -> (u64, usize) {
    let floor = Live { from: 0, to: 0, upper: u32::MAX };
    let roof = Live { from: ceiling, to: ceiling, upper: u32::MAX };
    let below = core::iter::once(&floor).chain(live);
    let above = live.iter().chain([&roof]);
    let room = |(at, (below, above)): (usize, (&Live, &Live))| {
        let (from, end) = (align_up(below.to, align), above.from);
        let room = end.checked_sub(from).filter(|&room| room >= size)?;
        let high = (end - size) & !(align - 1);
        Some((room, at, if below.upper >= above.upper { from } else { high }))
    };
    let best = below.zip(above).enumerate().filter_map(room).min();
    let top = live.last().map_or(0, |last| last.to);
    best.map_or((align_up(top, align), live.len()), |(_, at, offset)| (offset, at))
}
