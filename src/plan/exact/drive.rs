#![forbid(unsafe_code)]
//! The anytime driver: from a heuristic plan down to the lowest one the budget allows, bound upwards too.
//!
//! Parts of the program that share no buffer are searched on their own, and only while they hold the peak.
//! First the bound itself is probed: a lower height can be easier, since more is pruned. Then heights
//! between the best and the bound are tried for a slice each, and the slices grow.

use core::time::Duration;

use super::Outcome;
use super::net::{Net, Units, unit_of};
use super::rank::Rank;
use super::turns::Turns;
use crate::plan::budget::Clock;
use crate::plan::instance::Instance;

/// What the search knows of one space.
pub(crate) struct Best {
    pub offsets: Vec<u64>,
    pub peak: u64,
    pub bound: u64,
}

/// Improves `best` until it meets its bound or `enough`, or the clock stops. `improved` hears of each better plan.
pub(crate) fn improve(
    instance: &Instance,
    best: &mut Best,
    enough: u64,
    clock: &mut Clock,
    improved: &mut dyn FnMut(&Best),
) {
    if best.peak <= best.bound.max(enough) || clock.is_over() {
        return;
    }
    let parts = parts_of(instance);
    let mut nets: Vec<AnyNet> = Vec::new();
    for items in parts {
        let peak = peak_of(instance, &items, &best.offsets);
        if peak > best.bound.max(enough) && !clock.is_over() {
            nets.extend(AnyNet::new(instance, items, peak, clock));
        }
    }
    let mut descents: Vec<AnyDescent<'_>> = nets.iter().map(|net| net.descent(best.bound)).collect();
    let mut slice = 1;
    while best.peak > best.bound.max(enough) && !descents.is_empty() && !clock.is_over() {
        for descent in &mut descents {
            descent.advance(instance, slice, best, clock, improved);
        }
        // The peak of the whole is that of its worst part, so a bound of one part is a bound of all.
        let proven = descents.iter().map(AnyDescent::bound).max().unwrap_or(0);
        best.bound = best.bound.max(proven).min(best.peak);
        descents.retain(|descent| descent.peak() > best.bound.max(descent.bound()));
        slice = slice.saturating_mul(2);
    }
}

/// The nodes of a dive, in eighths of its buffers.
const DIVE_NODES: u64 = 10;

/// The most buffers of a part that is better searched in full.
const SMALL: usize = 512;

/// The nodes that each height gets in the first round: eight a buffer for some hundred buffers; for many, each
/// of which costs more, a descent and a little more.
fn slice_nodes(buffers: u64) -> u64 {
    (8 * 512 * 512 / buffers).clamp(buffers + buffers / 4, 8 * buffers)
}

/// A part, in the smallest integers that hold its heights.
enum AnyNet {
    Small(Net<i32>, Vec<u32>, u64),
    Large(Net<i64>, Vec<u32>, u64),
}

impl AnyNet {
    fn new(instance: &Instance, items: Vec<u32>, peak: u64, clock: &mut Clock) -> Option<Self> {
        // Each pair stands in two lists of conflicts, and at most twice in the lists of sections.
        let pairs = pairs_of(instance, &items);
        let bytes = pairs.saturating_mul(16).saturating_add(items.len() as u64 * 400);
        let too_large = usize::try_from(bytes).unwrap_or(usize::MAX) > clock.memory_max_bytes;
        if too_large {
            return None;
        }
        // Giving much memory back takes time too.
        clock.keep_back(Duration::from_nanos(bytes / 10));
        let unit = unit_of(instance, &items);
        clock.afford(pairs.saturating_mul(3), || match peak / unit {
            0..0x800_0000 => Some(Self::Small(Net::new(instance, &items, unit), items, peak)),
            0x800_0000..0x800_0000_0000_0000 => {
                Some(Self::Large(Net::new(instance, &items, unit), items, peak))
            }
            _ => None,
        })?
    }

    fn descent(&self, bound: u64) -> AnyDescent<'_> {
        match self {
            Self::Small(net, items, peak) => AnyDescent::Small(Descent::new(net, items, *peak, bound)),
            Self::Large(net, items, peak) => AnyDescent::Large(Descent::new(net, items, *peak, bound)),
        }
    }
}

enum AnyDescent<'n> {
    Small(Descent<'n, i32>),
    Large(Descent<'n, i64>),
}

impl AnyDescent<'_> {
    fn advance(
        &mut self,
        instance: &Instance,
        slice: u64,
        best: &mut Best,
        clock: &mut Clock,
        improved: &mut dyn FnMut(&Best),
    ) {
        match self {
            Self::Small(descent) => descent.advance(instance, slice, best, clock, improved),
            Self::Large(descent) => descent.advance(instance, slice, best, clock, improved),
        }
    }

    fn bound(&self) -> u64 {
        match self {
            Self::Small(descent) => descent.bound,
            Self::Large(descent) => descent.bound,
        }
    }

    fn peak(&self) -> u64 {
        match self {
            Self::Small(descent) => descent.peak,
            Self::Large(descent) => descent.peak,
        }
    }
}

/// The search of one part: its height is at least `bound` and at most `peak`.
struct Descent<'n, T> {
    net: &'n Net<T>,
    items: &'n [u32],
    peak: u64,
    bound: u64,
    /// Goes on at the bound.
    low: Option<Turns<'n, T>>,
    /// Goes on right below the peak.
    high: Option<Turns<'n, T>>,
    /// The highest height at which a plain dive found nothing, once that was asked.
    undived: Option<u64>,
    /// How many dives in scattered orders there were.
    dives: u64,
}

impl<'n, T: Units> Descent<'n, T> {
    fn new(net: &'n Net<T>, items: &'n [u32], peak: u64, bound: u64) -> Self {
        // Every end in this part is a whole number of units; the bound, which may come from elsewhere, need not be.
        let bound = bound / net.unit * net.unit;
        Self { net, items, peak, bound, low: None, high: None, undived: None, dives: 0 }
    }

    fn turns(&self, height: u64) -> Turns<'n, T> {
        Turns::new(self.net, T::of(height / self.net.unit))
    }

    /// Tries the bound, heights between, and the least improvement, for a slice each.
    fn advance(
        &mut self,
        instance: &Instance,
        slice: u64,
        best: &mut Best,
        clock: &mut Clock,
        improved: &mut dyn FnMut(&Best),
    ) {
        let nodes = slice.saturating_mul(slice_nodes(self.net.len() as u64));
        while self.peak > self.bound.max(best.bound) && !clock.is_over() {
            let mut low = self.low.take().unwrap_or_else(|| self.turns(self.bound));
            // Half of the time: what has no gaps is found nowhere else.
            let share = if self.net.len() <= SMALL { 3 } else { 1 };
            match low.run(nodes.saturating_mul(share), clock) {
                Outcome::Solved => return self.accept(instance, &low, best, improved),
                Outcome::Exhausted if sees_all(instance) => {
                    self.bound += self.net.unit;
                    continue;
                }
                Outcome::Exhausted => {}
                Outcome::Paused => self.low = Some(low),
            }
            if self.undived.is_none() {
                self.bisect(instance, best, clock, improved);
            } else if !self.scatter(instance, nodes, best, clock, improved)
                && !self.between(instance, nodes, best, clock, improved)
            {
                return;
            }
        }
    }

    /// Halves the stretch between a height where a dive finds a plan and one where it finds none.
    fn bisect(
        &mut self,
        instance: &Instance,
        best: &mut Best,
        clock: &mut Clock,
        improved: &mut dyn FnMut(&Best),
    ) {
        let unit = self.net.unit;
        let mut fails = self.bound;
        while (self.peak - fails) / unit > 1 + self.peak / unit / 256 && !clock.is_over() {
            let height = fails + (self.peak - fails) / unit / 2 * unit;
            let nodes = DIVE_NODES * self.net.len() as u64 / 8;
            let orders = [Rank::TotalWidthArea, Rank::TotalAreaWidth];
            if !orders.iter().any(|&rank| self.dive(instance, height, rank, nodes, best, clock, improved)) {
                fails = height;
            }
        }
        self.undived = Some(fails);
    }

    /// Dives in scattered orders, below the peak by little and by much in turn; says whether one found a plan.
    fn scatter(
        &mut self,
        instance: &Instance,
        nodes: u64,
        best: &mut Best,
        clock: &mut Clock,
        improved: &mut dyn FnMut(&Best),
    ) -> bool {
        let unit = self.net.unit;
        let each = DIVE_NODES * self.net.len() as u64 / 8;
        // Small parts are better searched in full: dives get a small share there.
        let share = if self.net.len() <= SMALL { 4 } else { 1 };
        for _ in 0..(nodes / each / share).max(1) {
            let gap = (self.peak - self.bound) / unit;
            let height = self.peak - (gap >> (1 + self.dives % 6)).max(1) * unit;
            self.dives += 1;
            if clock.is_over() || height <= self.bound {
                return false;
            }
            if self.dive(instance, height, Rank::Scattered(self.dives), each, best, clock, improved) {
                return true;
            }
        }
        false
    }

    /// Searches at a height in one order, from the start, for about this many nodes.
    #[expect(clippy::too_many_arguments, reason = "the question, and what every step of a search is given")]
    fn dive(
        &mut self,
        instance: &Instance,
        height: u64,
        rank: Rank,
        nodes: u64,
        best: &mut Best,
        clock: &mut Clock,
        improved: &mut dyn FnMut(&Best),
    ) -> bool {
        let mut turns = Turns::of_one(self.net, T::of(height / self.net.unit), rank);
        let found = turns.run(nodes, clock) == Outcome::Solved;
        if found {
            self.accept(instance, &turns, best, improved);
        }
        found
    }

    /// Tries to go below the peak; says whether it did.
    fn between(
        &mut self,
        instance: &Instance,
        nodes: u64,
        best: &mut Best,
        clock: &mut Clock,
        improved: &mut dyn FnMut(&Best),
    ) -> bool {
        let unit = self.net.unit;
        let gap = (self.peak - self.bound) / unit;
        let fits = Some(instance.capacity).filter(|&c| c < self.peak && c > self.bound);
        let halves = (1..6).map(|shift| self.peak - (gap >> shift) * unit);
        let heights: Vec<u64> = fits.into_iter().chain(halves).collect();
        for height in heights {
            if height < self.peak - unit && height > self.bound {
                let mut turns = self.turns(height);
                if turns.run(nodes / 2, clock) == Outcome::Solved {
                    self.accept(instance, &turns, best, improved);
                    return true;
                }
            }
        }
        if self.peak - unit <= self.bound {
            return false;
        }
        let mut high = self.high.take().unwrap_or_else(|| self.turns(self.peak - unit));
        match high.run(nodes, clock) {
            Outcome::Solved => {
                self.accept(instance, &high, best, improved);
                return true;
            }
            Outcome::Exhausted if sees_all(instance) => self.bound = self.peak,
            Outcome::Exhausted => {}
            Outcome::Paused => self.high = Some(high),
        }
        false
    }

    /// Takes over a plan that was found.
    fn accept(
        &mut self,
        instance: &Instance,
        turns: &Turns<'_, T>,
        best: &mut Best,
        improved: &mut dyn FnMut(&Best),
    ) {
        for (&item, offset) in self.items.iter().zip(turns.offsets()) {
            best.offsets[item as usize] = offset;
        }
        self.peak = peak_of(instance, self.items, &best.offsets);
        self.high = None;
        let peak = instance.peak_saturating(&best.offsets);
        if peak < best.peak {
            best.peak = peak;
            improved(best);
        }
    }
}

/// Whether the search sees every plan: it takes buffers as whole where a gap leaves part of one in use.
fn sees_all(instance: &Instance) -> bool {
    instance.segments.as_ref().is_none_or(|segments| !segments.windowed)
}

fn peak_of(instance: &Instance, items: &[u32], offsets: &[u64]) -> u64 {
    items
        .iter()
        .map(|&item| offsets[item as usize].saturating_add(instance.items[item as usize].size))
        .max()
        .unwrap_or(0)
}

/// The items of each stretch of time that no life crosses.
fn parts_of(instance: &Instance) -> Vec<Vec<u32>> {
    let (mut parts, mut end) = (Vec::<Vec<u32>>::new(), 0);
    for (item, own) in instance.items.iter().enumerate() {
        if own.lower >= end || parts.is_empty() {
            parts.push(Vec::new());
        }
        end = end.max(own.upper);
        if let Some(part) = parts.last_mut() {
            part.push(u32::try_from(item).unwrap_or(u32::MAX));
        }
    }
    parts
}

fn pairs_of(instance: &Instance, items: &[u32]) -> u64 {
    let part = Instance {
        items: items.iter().map(|&item| instance.items[item as usize]).collect(),
        ..Instance::default()
    };
    part.pair_count()
}
