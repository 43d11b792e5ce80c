#![forbid(unsafe_code)]
//! Placing items one by one in a given order, each into the first or the smallest gap that holds it.
//!
//! Three ways to find the gaps: a walk over all placed items by offset (dense programs), the placed
//! neighbours from an index, sorted (sparse ones), and forbidden ranges (idle gaps and wishes).

use std::sync::OnceLock;

use super::budget::Clock;
use super::instance::{Instance, Item, NONE, align_up};
use super::neighbours::Neighbours;

/// How many are alive at a start where few are.
const THIN: usize = 128;

/// Which gap an item takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The lowest.
    First,
    /// The smallest; the lowest of equals.
    Best,
}

/// What is known of an instance before its items are placed: how crowded it is.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// Pairs of items alive together.
    pub pairs: u64,
    /// Whether an index of neighbours beats the walk.
    pub sparse: bool,
    /// How many are alive when an item begins.
    mean: usize,
    neighbours: OnceLock<Neighbours>,
}

impl Crowd {
    pub(crate) fn new(instance: &Instance) -> Self {
        let pairs = instance.pair_count();
        let count = instance.len().max(1) as u64;
        let mean = pairs / count;
        // A neighbour that is listed and sorted costs as much as many that a walk passes, and first fit ends early.
        let sparse = !instance.is_general() && mean * 128 < count;
        let mean = usize::try_from(mean).unwrap_or(usize::MAX);
        Self { pairs, sparse, mean, neighbours: OnceLock::new() }
    }

    /// Whether few enough are alive that each new one may look at all of them.
    pub(crate) fn is_thin(&self) -> bool {
        self.sparse && self.mean <= THIN
    }

    /// The index; made when it is first asked for.
    fn neighbours(&self, instance: &Instance) -> &Neighbours {
        self.neighbours.get_or_init(|| Neighbours::new(instance, self.mean))
    }
}

/// Places the items in this order; pinned ones first. `None` if the clock stops it.
pub(crate) fn place(
    instance: &Instance,
    crowd: &Crowd,
    order: &[u32],
    fit: Fit,
    clock: &Clock,
) -> Option<Vec<u64>> {
    let mut offsets = vec![NONE; instance.len()];
    place_around(instance, crowd, order, fit, &mut offsets, clock).then_some(offsets)
}

/// Places the items in this order around those that have an offset already; says whether time allowed it.
pub(crate) fn place_around(
    instance: &Instance,
    crowd: &Crowd,
    order: &[u32],
    fit: Fit,
    offsets: &mut [u64],
    clock: &Clock,
) -> bool {
    if instance.is_general() {
        place_general(instance, crowd.neighbours(instance), order, fit, offsets, clock)
    } else if crowd.sparse {
        let sized = offsets.iter().zip(&instance.items);
        let mut spots: Vec<Spot> = sized.map(|(&at, item)| (at, at.saturating_add(item.size))).collect();
        let done = place_indexed(instance, crowd.neighbours(instance), order, fit, &mut spots, clock);
        offsets.iter_mut().zip(spots).for_each(|(offset, spot)| *offset = spot.0);
        done
    } else {
        place_walking(instance, order, fit, offsets, clock)
    }
}

/// How many items are placed between two looks at the clock.
const LOOK: usize = 32;

/// The items of `order`, those with a pin before those without.
fn pins_first<'a>(instance: &'a Instance, order: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
    let pinned = if instance.pins.is_empty() { &[][..] } else { order };
    let is_pinned = |item: &usize| instance.pin(*item).is_some();
    let first = pinned.iter().map(|&item| item as usize).filter(is_pinned);
    first.chain(order.iter().map(|&item| item as usize).filter(move |item| !is_pinned(item)))
}

/// Follows the gaps from the bottom up.
struct Gaps {
    size: u64,
    align: u64,
    fit: Fit,
    cursor: u64,
    best: u64,
    best_room: u64,
}

impl Gaps {
    fn new(size: u64, align: u64, fit: Fit) -> Self {
        Self { size, align, fit, cursor: 0, best: NONE, best_room: u64::MAX }
    }

    /// Passes an obstacle; true once no later gap can be better.
    #[inline]
    fn pass(&mut self, offset: u64, end: u64) -> bool {
        let at = align_up(self.cursor, self.align);
        if offset >= at && offset - at >= self.size {
            let room = offset - at;
            if self.fit == Fit::First || room == self.size {
                self.best = at;
                return true;
            }
            if room < self.best_room {
                (self.best, self.best_room) = (at, room);
            }
        }
        self.cursor = self.cursor.max(end);
        false
    }

    /// Rises above what leaves no room at the cursor, as often as that is quicker than to sort it. True once there is
    /// room; else what still lies above the cursor is to be passed in order.
    #[expect(clippy::needless_bitwise_bool, reason = "no branch: either is as likely as not")]
    fn rise(&mut self, obstacles: &mut Vec<Spot>) -> bool {
        for _ in 0..RISES {
            let at = align_up(self.cursor, self.align);
            let end = at.saturating_add(self.size);
            let way = |spot: &Spot| if (spot.0 < end) & (at < spot.1) { spot.1 } else { 0 };
            let (quads, rest) = obstacles.as_chunks::<4>();
            let highest = |tops: [u64; 4], quad: &[Spot; 4]| {
                core::array::from_fn(|lane| tops[lane].max(way(&quad[lane])))
            };
            let tops: [u64; 4] = quads.iter().fold([0; 4], highest);
            let top = rest.iter().map(way).chain(tops).fold(0, u64::max);
            if top == 0 {
                return true;
            }
            self.cursor = top;
            if obstacles.len() > MANY {
                obstacles.retain(|spot| spot.1 > top);
            }
        }
        false
    }

    fn offset(&self) -> u64 {
        if self.best == NONE { align_up(self.cursor, self.align) } else { self.best }
    }
}

/// How often a cursor rises above what is in its way before that is sorted.
const RISES: usize = 16;

/// How many obstacles are more than are looked at again without sorting out those below.
const MANY: usize = 128;

/// How many placed items a walk looks at in one go.
const LANES: usize = 16;

/// How many placed items a block holds.
const BLOCK: usize = 256;

/// A run of the placed items by offset; lives apart from bytes, so that strangers are passed many at a time.
struct Block {
    len: usize,
    /// From the first start to the last end of all: who misses these misses every one.
    hull: (i32, i32),
    lower: [i32; BLOCK],
    upper: [i32; BLOCK],
    bytes: [(u64, u64); BLOCK],
}

/// A step as a signed number in the same order: comparing those many at a time is cheaper.
const fn signed(step: u32) -> i32 {
    (step ^ (1 << 31)).cast_signed()
}

impl Block {
    /// Without items; free places look as if they lived never.
    fn new() -> Box<Self> {
        let never = (i32::MAX, i32::MIN);
        Box::new(Self {
            len: 0,
            hull: never,
            lower: [never.0; BLOCK],
            upper: [never.1; BLOCK],
            bytes: [(0, 0); BLOCK],
        })
    }

    fn insert(&mut self, at: usize, life: (i32, i32), bytes: (u64, u64)) {
        self.lower.copy_within(at..self.len, at + 1);
        self.upper.copy_within(at..self.len, at + 1);
        self.bytes.copy_within(at..self.len, at + 1);
        (self.lower[at], self.upper[at]) = life;
        self.bytes[at] = bytes;
        self.len += 1;
        self.hull = (self.hull.0.min(life.0), self.hull.1.max(life.1));
    }

    /// Takes the upper half away.
    fn split(&mut self) -> Box<Self> {
        let (mut upper, half) = (Self::new(), self.len / 2);
        let (len, mut lower) = (self.len, Self::new());
        for at in 0..len {
            let to = if at < half { &mut lower } else { &mut upper };
            to.insert(to.len, (self.lower[at], self.upper[at]), self.bytes[at]);
        }
        *self = *lower;
        upper
    }

    /// Passes all that are alive in `life`; true once `gaps` has what it wants.
    #[expect(clippy::needless_bitwise_bool, reason = "no branch, so that lanes become a vector")]
    fn walk(&self, life: (i32, i32), gaps: &mut Gaps) -> bool {
        let (lower, upper) = (self.lower.as_chunks::<LANES>().0, self.upper.as_chunks::<LANES>().0);
        for at in 0..self.len.div_ceil(LANES) {
            let (lower, upper) = (&lower[at], &upper[at]);
            let mut alive = 0_u32;
            for lane in 0..LANES {
                alive |= u32::from((lower[lane] < life.1) & (life.0 < upper[lane])) << lane;
            }
            while alive != 0 {
                let lane = alive.trailing_zeros() as usize;
                alive &= alive - 1;
                let (offset, end) = self.bytes[at * LANES + lane];
                if gaps.pass(offset, end) {
                    return true;
                }
            }
        }
        false
    }
}

/// The placed items by offset.
struct Placed {
    blocks: Vec<Box<Block>>,
}

impl Placed {
    fn new() -> Self {
        Self { blocks: vec![Block::new()] }
    }

    fn enter(&mut self, own: &Item, offset: u64) {
        // The last block that begins no higher; the first if none does.
        let block = self.blocks.partition_point(|block| block.bytes[0].0 <= offset).saturating_sub(1);
        if self.blocks[block].len == BLOCK {
            let upper = self.blocks[block].split();
            self.blocks.insert(block + 1, upper);
            return self.enter(own, offset);
        }
        let block = &mut self.blocks[block];
        let at = block.bytes[..block.len].partition_point(|other| other.0 <= offset);
        let life = (signed(own.lower), signed(own.upper));
        block.insert(at, life, (offset, offset.saturating_add(own.size)));
    }

    /// Places one more item.
    fn fit(&mut self, instance: &Instance, item: usize, fit: Fit) -> u64 {
        let own = &instance.items[item];
        let offset = instance.pin(item).unwrap_or_else(|| {
            let mut gaps = Gaps::new(own.size, instance.align_of(item), fit);
            let life = (signed(own.lower), signed(own.upper));
            let near = self.blocks.iter().filter(|block| block.hull.0 < life.1 && life.0 < block.hull.1);
            let _ = { near }.any(|block| block.walk(life, &mut gaps));
            gaps.offset()
        });
        self.enter(own, offset);
        offset
    }
}

fn place_walking(instance: &Instance, order: &[u32], fit: Fit, offsets: &mut [u64], clock: &Clock) -> bool {
    let mut placed = Placed::new();
    let mut given: Vec<(u64, usize)> =
        offsets.iter().copied().zip(0..).filter(|(at, _)| *at != NONE).collect();
    given.sort_unstable();
    for (offset, item) in given {
        placed.enter(&instance.items[item], offset);
    }
    for (at, item) in pins_first(instance, order).enumerate() {
        if at % LOOK == 0 && clock.is_late() {
            return false;
        }
        offsets[item] = placed.fit(instance, item, fit);
    }
    true
}

/// Where an item begins and ends.
pub(crate) type Spot = (u64, u64);

/// That of an item that has no place yet.
pub(crate) const NOWHERE: Spot = (NONE, NONE);

/// The same by an index of who is alive with whom, for whole items.
pub(crate) fn place_indexed(
    instance: &Instance,
    neighbours: &Neighbours,
    order: &[u32],
    fit: Fit,
    spots: &mut [Spot],
    clock: &Clock,
) -> bool {
    let mut near: Vec<Spot> = Vec::new();
    for (at, item) in pins_first(instance, order).enumerate() {
        if at % LOOK == 0 && clock.is_late() {
            return false;
        }
        let size = instance.items[item].size;
        let offset = instance.pin(item).unwrap_or_else(|| {
            near.clear();
            neighbours.each(item, |other| {
                if spots[other].0 != NONE {
                    near.push(spots[other]);
                }
            });
            let mut gaps = Gaps::new(size, instance.align_of(item), fit);
            if fit == Fit::Best || !gaps.rise(&mut near) {
                near.sort_unstable_by_key(|spot| spot.0);
                let _ = near.iter().any(|&(offset, end)| gaps.pass(offset, end));
            }
            gaps.offset()
        });
        spots[item] = (offset, offset.saturating_add(size));
    }
    true
}

/// Whole rectangles are not enough: every pair of segments alive together forbids a range of offsets.
fn place_general(
    instance: &Instance,
    neighbours: &Neighbours,
    order: &[u32],
    fit: Fit,
    offsets: &mut [u64],
    clock: &Clock,
) -> bool {
    let mut forbidden: Vec<(u64, u64)> = Vec::new();
    for item in pins_first(instance, order) {
        if clock.is_late() {
            return false;
        }
        forbidden.clear();
        neighbours.each(item, |other| {
            if offsets[other] != NONE {
                forbid(instance, item, other, offsets[other], &mut forbidden);
            }
        });
        forbidden.sort_unstable();
        let free = |at: u64| forbidden.iter().all(|&(from, to)| at < from || to <= at);
        let hint = instance.hint(item).filter(|hint| hint % instance.align_of(item) == 0 && free(*hint));
        offsets[item] = instance.pin(item).or(hint).unwrap_or_else(|| {
            // Ranges forbid the item's offset, so a gap holds it if a multiple of the alignment is left.
            let mut gaps = Gaps::new(1, instance.align_of(item), fit);
            let _ = forbidden.iter().any(|&(from, to)| gaps.pass(from, to));
            gaps.offset()
        });
    }
    true
}

/// The offsets that `item` cannot have because `other`, which lives with it, lies at `offset`.
fn forbid(instance: &Instance, item: usize, other: usize, offset: u64, out: &mut Vec<(u64, u64)>) {
    for theirs in instance.segments_of(other) {
        for mine in instance.segments_of(item) {
            if mine.lower < theirs.upper && theirs.lower < mine.upper {
                let from = offset.saturating_add(theirs.bytes_lower + 1).saturating_sub(mine.bytes_upper);
                let to = offset.saturating_add(theirs.bytes_upper).saturating_sub(mine.bytes_lower);
                if from < to {
                    out.push((from, to));
                }
            }
        }
    }
}

/// The sort keys that orders are made of; all descending, ties by start and then by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Size,
    Life,
    Area,
    Start,
}

/// The items in the order of a key. Items are numbered by start already.
pub(crate) fn order_by(instance: &Instance, key: Key) -> Vec<u32> {
    let mut order: Vec<u32> = (0..u32::try_from(instance.len()).unwrap_or(u32::MAX)).collect();
    sort_by(instance, key, &mut order);
    order
}

/// Sorts items, given by start, in the order of a key.
pub(crate) fn sort_by(instance: &Instance, key: Key, order: &mut [u32]) {
    let life =
        |item: u32| u64::from(instance.items[item as usize].upper - instance.items[item as usize].lower);
    let size = |item: u32| instance.items[item as usize].size;
    match key {
        Key::Start => {}
        Key::Size => order.sort_by_key(|&item| core::cmp::Reverse(size(item))),
        Key::Life => order.sort_by_key(|&item| core::cmp::Reverse((life(item), size(item)))),
        Key::Area => {
            order.sort_by_key(|&item| core::cmp::Reverse(u128::from(life(item)) * u128::from(size(item))));
        }
    }
}
