#![forbid(unsafe_code)]
//! Filling valleys: one descent from the bottom up, without a step back.
//!
//! ```text
//! height - - - - - - - - - - - - - - - - -     What is placed has a skyline over time. Its valleys are
//!            +-----+         +-----------+     filled one after another, with the item of the best rank
//!   +--------+  b  |         |     c     |     that fits between the walls, unless it would leave a
//!   |   a    +-----+ valley  +-----------+     narrower valley that nothing fits into, under bytes that
//!   +--------------+---------+-----------+     then no longer fit under the height.
//! ```
//!
//! A valley that nothing fits into is filled up to its lower wall. The rules are those of the exact search; where
//! they lead to a plan of that height at once, this finds it in far less time, since nobody is asked who is alive
//! with whom. Deliberately absent: pins, gaps, alignments of single items; and second thoughts.

use core::ops::Range;

use super::budget::Clock;
use super::exact::Units;
use super::instance::{Instance, Item, align_up};
use super::stream::sort_by_end;

/// The orders in which valleys are filled, the better one first.
pub(crate) const FAVOURS: [Favour; 2] = [Favour::Area, Favour::Life];

/// Whether a plan above the height is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strict {
    Yes,
    No,
}

/// How many items share a remembered best rank.
const BLOCK: usize = 64;

/// Which of two items goes first into a valley; every key descending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Favour {
    /// Largest section total, then area, then life.
    Area,
    /// Largest section total, then life, then area.
    Life,
    /// As the first, with the areas scattered by up to a factor of five: another order for every number.
    Scattered(u32),
}

/// How many items are tried for a floor: where so many leave no room beside them, hardly any does.
const TRIES: usize = 8;

/// How many steps are made between two looks at the clock.
const LOOK: usize = 64;

/// A plan this many times as high as it should be is given up.
const HIGHER: u64 = 4;

/// An instance ready to be built up in any order, in the smallest integers that hold its heights.
pub(crate) enum Skyline<'a> {
    Small(Outline<'a, i32>),
    Large(Outline<'a, i64>),
}

impl<'a> Skyline<'a> {
    /// `None` where something else than sizes and one alignment is in play, or heights are out of range.
    pub(crate) fn new(instance: &'a Instance, bound: u64) -> Option<Self> {
        if instance.is_general() || !instance.pins.is_empty() || !instance.shifts.is_empty() {
            return None;
        }
        let rounded = |size: u64| align_up(size, instance.align);
        let unit = instance.items.iter().fold(0, |unit, item| gcd(unit, rounded(item.size))).max(1);
        match bound / unit {
            0 => None,
            1..0x400_0000 => Some(Self::Small(Outline::new(instance, unit))),
            0x400_0000..0x400_0000_0000_0000 => Some(Self::Large(Outline::new(instance, unit))),
            _ => None,
        }
    }

    /// Offsets of a plan that stays below `height` if this order leads there; else none, or a plan that stands out
    /// where it must. None too if the clock stops it.
    pub(crate) fn descend(
        &self,
        favour: Favour,
        height: u64,
        strict: Strict,
        clock: &Clock,
    ) -> Option<Vec<u64>> {
        match self {
            Self::Small(outline) => outline.descend(favour, height, strict, clock),
            Self::Large(outline) => outline.descend(favour, height, strict, clock),
        }
    }
}

/// An instance in units and sections, ready to be built up in any order.
pub(crate) struct Outline<'a, T> {
    instance: &'a Instance,
    unit: u64,
    size: Vec<T>,
    /// The first section an item covers, by item.
    from: Vec<u32>,
    /// One past the last.
    to: Vec<i32>,
    /// The first item of each section that was in none before, and the number of items.
    first_of: Vec<u32>,
    /// The units alive in each section.
    totals: Vec<T>,
}

/// How far a descent has come.
struct Descent<'a, T> {
    sky: &'a Outline<'a, T>,
    height: T,
    /// Each item's place in the order; the largest number once placed.
    rank: Vec<i32>,
    item_of: Vec<u32>,
    /// The best rank in each block of items.
    least: Vec<i32>,
    /// Units still to come in each section.
    total: Vec<T>,
    /// By the first section of each level stretch of the skyline: how high it is, and where its neighbours begin.
    level: Vec<T>,
    before: Vec<u32>,
    after: Vec<u32>,
    /// The best rank that fits into the stretch, where it is known.
    first: Vec<i32>,
}

/// No rank: nothing is left that fits.
const NOTHING: i32 = i32::MAX;

/// Which rank is best is not known.
const UNKNOWN: i32 = -1;

/// An item that goes onto a floor, and the best ranks that fit to the left and to the right of it.
struct Choice {
    item: usize,
    left: i32,
    right: i32,
}

/// A stretch of the skyline between two higher ones.
#[derive(Clone, Copy)]
struct Valley<T> {
    from: usize,
    to: usize,
    floor: T,
    left: T,
    right: T,
}

impl<'a, T: Units> Outline<'a, T> {
    fn new(instance: &'a Instance, unit: u64) -> Self {
        let units = |item: &Item| T::of(align_up(item.size, instance.align) / unit);
        let size: Vec<T> = instance.items.iter().map(units).collect();
        let (from, to, first_of) = sections(instance);
        let mut totals = vec![T::ZERO; first_of.len()];
        for ((&from, &to), &size) in from.iter().zip(&to).zip(&size) {
            totals[from as usize] += size;
            totals[to.unsigned_abs() as usize] -= size;
        }
        let mut live = T::ZERO;
        for total in &mut totals {
            live += *total;
            *total = live;
        }
        totals.pop();
        Self { instance, unit, size, from, to, first_of, totals }
    }

    fn descend(&self, favour: Favour, height: u64, strict: Strict, clock: &Clock) -> Option<Vec<u64>> {
        let mut descent = Descent::new(self, favour, T::of(height.div_ceil(self.unit)));
        let mut offsets = vec![0; self.size.len()];
        let highest = T::of(HIGHER.saturating_mul(height / self.unit));
        let (mut at, mut left, mut steps) = (0, offsets.len(), 0_usize);
        while left > 0 {
            let valley = descent.valley(at);
            if valley.floor > highest || (steps.is_multiple_of(LOOK) && clock.is_late()) {
                return None;
            }
            steps += 1;
            let chosen = match descent.choose(&valley) {
                None if !descent.may_fill(&valley) => {
                    if strict == Strict::Yes {
                        return None;
                    }
                    descent.choose_anyway(&valley)
                }
                chosen => chosen,
            };
            at = match chosen {
                Some(choice) => {
                    offsets[choice.item] = valley.floor.to_u64() * self.unit;
                    left -= 1;
                    descent.place(&choice, &valley)
                }
                None => descent.fill(&valley)?,
            };
        }
        Some(offsets)
    }

    /// The items in order.
    fn ordered(&self, favour: Favour) -> Vec<u32> {
        let key = |item: usize| {
            let sections = self.from[item] as usize..self.to[item].unsigned_abs() as usize;
            let total = rounded_off(most(&self.totals[sections]).to_u64());
            let life = self.instance.items[item].upper - self.instance.items[item].lower;
            let size = self.size[item].to_u64();
            let (second, third) = match favour {
                Favour::Area => (rounded_off(u64::from(life).saturating_mul(size)), life),
                Favour::Scattered(seed) => (
                    rounded_off(u64::from(life).saturating_mul(size).saturating_mul(scatter(seed, item))),
                    life,
                ),
                Favour::Life => (life, rounded_off(size)),
            };
            (!(u64::from(total) << 32 | u64::from(second)), !third)
        };
        let items = 0..u32::try_from(self.size.len()).unwrap_or(u32::MAX);
        let mut keyed: Vec<(u64, u32, u32)> = items
            .map(|item| {
                let (first, second) = key(item as usize);
                (first, second, item)
            })
            .collect();
        keyed.sort_unstable();
        keyed.iter().map(|keyed| keyed.2).collect()
    }
}

impl<'a, T: Units> Descent<'a, T> {
    fn new(sky: &'a Outline<'a, T>, favour: Favour, height: T) -> Self {
        let item_of = sky.ordered(favour);
        let mut rank = vec![0; item_of.len()];
        (0..).zip(&item_of).for_each(|(at, &item)| rank[item as usize] = at);
        let sections = sky.totals.len();
        let mut after = vec![0; sections];
        after[0] = u32::try_from(sections).unwrap_or(u32::MAX);
        Self {
            sky,
            height,
            least: rank.chunks(BLOCK).map(|ranks| ranks.iter().copied().min().unwrap_or(NOTHING)).collect(),
            rank,
            item_of,
            total: sky.totals.clone(),
            level: vec![T::ZERO; sections],
            before: vec![0; sections],
            first: vec![UNKNOWN; sections],
            after,
        }
    }

    /// Walks down from a stretch of the skyline to a valley.
    fn valley(&mut self, mut from: usize) -> Valley<T> {
        loop {
            let (floor, to) = (self.level[from], self.after[from] as usize);
            let left = if from == 0 { T::BIG } else { self.level[self.before[from] as usize] };
            let right = self.level.get(to).copied().unwrap_or(T::BIG);
            if left < floor {
                from = self.before[from] as usize;
            } else if right < floor {
                from = to;
            } else if left == floor {
                from = self.before[from] as usize;
                self.join(from, to, UNKNOWN);
            } else if right == floor {
                self.join(from, self.after[to] as usize, UNKNOWN);
            } else {
                return Valley { from, to, floor, left, right };
            }
        }
    }

    /// Makes one stretch of all from here to there, where this is the best rank that fits.
    fn join(&mut self, from: usize, to: usize, first: i32) {
        self.first[from] = first;
        self.after[from] = u32::try_from(to).unwrap_or(u32::MAX);
        if let Some(before) = self.before.get_mut(to) {
            *before = u32::try_from(from).unwrap_or(u32::MAX);
        }
    }

    /// The best rank after `last` of what lives within these sections; the largest number if nothing does.
    fn best(&self, sections: Range<usize>, last: i32) -> i32 {
        let items = self.sky.first_of[sections.start] as usize..self.sky.first_of[sections.end] as usize;
        let end = i32::try_from(sections.end).unwrap_or(i32::MAX);
        let blocks = items.start.div_ceil(BLOCK)..items.end / BLOCK;
        if blocks.len() < 2 {
            return self.best_of(items, end, last);
        }
        let head = self.best_of(items.start..blocks.start * BLOCK, end, last);
        let mut best = head.min(self.best_of(blocks.end * BLOCK..items.end, end, last));
        for block in blocks {
            if self.least[block] < best {
                best = best.min(self.best_of(block * BLOCK..(block + 1) * BLOCK, end, last));
            }
        }
        best
    }

    /// The best rank after `last` of these items, if they live no longer than this.
    fn best_of(&self, items: Range<usize>, end: i32, last: i32) -> i32 {
        let (rank, to) = (&self.rank[items.clone()], &self.sky.to[items]);
        let fits = |rank: i32, to: i32| if to <= end && rank > last { rank } else { NOTHING };
        rank.iter().zip(to).fold(NOTHING, |best, (&rank, &to)| best.min(fits(rank, to)))
    }

    fn item_at(&self, rank: i32) -> Option<usize> {
        let item = self.item_of.get(usize::try_from(rank).ok()?);
        item.map(|&item| item as usize)
    }

    /// The item that goes onto the floor of a valley next, if any can; and the best ranks that fit beside it.
    fn choose(&self, valley: &Valley<T>) -> Option<Choice> {
        let mut rank = match self.first[valley.from] {
            UNKNOWN => self.best(valley.from..valley.to, -1),
            known => known,
        };
        for _ in 0..TRIES {
            let item = self.item_at(rank)?;
            let (from, to) = (self.sky.from[item] as usize, self.sky.to[item].unsigned_abs() as usize);
            let end = valley.floor + self.sky.size[item];
            if let Some(left) = self.beside(valley.from..from, end.min(valley.left))
                && let Some(right) = self.beside(to..valley.to, end.min(valley.right))
            {
                return Some(Choice { item, left, right });
            }
            rank = self.best(valley.from..valley.to, rank);
        }
        None
    }

    /// The item of the best rank, whatever follows.
    fn choose_anyway(&self, valley: &Valley<T>) -> Option<Choice> {
        let item = self.item_at(self.best(valley.from..valley.to, -1))?;
        Some(Choice { item, left: UNKNOWN, right: UNKNOWN })
    }

    /// The best rank that fits into what is left of a valley; `None` if there is none and it must not be filled.
    fn beside(&self, sections: Range<usize>, wall: T) -> Option<i32> {
        if sections.is_empty() {
            return Some(NOTHING);
        }
        let best = self.best(sections.clone(), -1);
        (best != NOTHING || most(&self.total[sections]) <= self.height - wall).then_some(best)
    }

    /// Puts an item onto the floor; says where to go on.
    fn place(&mut self, choice: &Choice, valley: &Valley<T>) -> usize {
        let item = choice.item;
        let (from, to) = (self.sky.from[item] as usize, self.sky.to[item].unsigned_abs() as usize);
        self.rank[item] = NOTHING;
        let block = item / BLOCK;
        let items = block * BLOCK..self.rank.len().min((block + 1) * BLOCK);
        self.least[block] = self.rank[items].iter().fold(NOTHING, |least, &rank| least.min(rank));
        self.total[from..to].iter_mut().for_each(|total| *total -= self.sky.size[item]);
        self.level[from] = valley.floor + self.sky.size[item];
        if valley.from < from {
            self.join(valley.from, from, choice.left);
        }
        if to < valley.to {
            self.level[to] = valley.floor;
            self.join(to, valley.to, choice.right);
        }
        self.join(from, to, UNKNOWN);
        if valley.from < from {
            valley.from
        } else if to < valley.to {
            to
        } else {
            from
        }
    }

    /// Whether what is still to come fits above the lower wall of a valley.
    fn may_fill(&self, valley: &Valley<T>) -> bool {
        most(&self.total[valley.from..valley.to]) <= self.height - valley.left.min(valley.right)
    }

    /// Fills a valley up to its lower wall, which wastes what lies between; says where to go on. `None` if there
    /// is no wall, or none in range.
    fn fill(&mut self, valley: &Valley<T>) -> Option<usize> {
        let level = valley.left.min(valley.right);
        self.level[valley.from] = level;
        self.first[valley.from] = UNKNOWN;
        Some(valley.from).filter(|_| level < T::BIG)
    }
}

/// A factor between 8 and 39, from the seed and the item.
fn scatter(seed: u32, item: usize) -> u64 {
    let mixed = (u64::from(seed) << 32 ^ item as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    8 + (mixed >> 59)
}

/// A number in the same order, to six digits or so.
#[expect(clippy::cast_possible_truncation, reason = "digits are what is given up")]
fn rounded_off(number: u64) -> u32 {
    (number as f64 as f32).to_bits()
}

fn most<T: Units>(units: &[T]) -> T {
    units.iter().fold(T::ZERO, |most, &units| most.max(units))
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The sections each item covers, from and to, and by section the first item that begins in it or later. A section
/// is a stretch of steps in which the same items live as at one of its steps: a largest set of items alive together.
fn sections(instance: &Instance) -> (Vec<u32>, Vec<i32>, Vec<u32>) {
    let items = &instance.items;
    let mut by_end: Vec<u32> = (0..u32::try_from(items.len()).unwrap_or(u32::MAX)).collect();
    sort_by_end(instance, &mut by_end);
    let (mut from, mut to) = (Vec::with_capacity(items.len()), vec![0; items.len()]);
    let mut first_of = vec![0];
    let (mut ended, mut opened, mut section) = (0, false, 0_i32);
    for (item, own) in (0..).zip(items) {
        while let Some(&other) = by_end.get(ended).filter(|&&other| items[other as usize].upper <= own.lower)
        {
            if std::mem::take(&mut opened) {
                first_of.push(item);
                section += 1;
            }
            to[other as usize] = section;
            ended += 1;
        }
        from.push(section.unsigned_abs());
        opened = true;
    }
    first_of.push(u32::try_from(items.len()).unwrap_or(u32::MAX));
    by_end[ended..].iter().for_each(|&other| to[other as usize] = section + 1);
    (from, to, first_of)
}
