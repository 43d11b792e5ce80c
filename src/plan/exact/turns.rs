#![forbid(unsafe_code)]
//! Searches in several orders that take turns, each going on from where it stopped.
//!
//! On each hard instance some order is far faster than the others, and which one cannot be told before.

use super::Outcome;
use super::net::{Net, Units};
use super::rank::Rank;
use super::search::Search;
use crate::plan::budget::Clock;

/// The orders that take turns, with how many nodes each gets of a round.
const ORDERS: [(Rank, u64); 3] =
    [(Rank::TotalWidthArea, 4), (Rank::TotalAreaWidth, 1), (Rank::WidthAreaTotal, 1)];

/// How much a search does between two looks at the clock: about half a millisecond.
const WORK_A_LOOK: u64 = 300_000;

/// What an ordinary node looks at, at most.
pub(super) fn work_a_node<T: Units>(net: &Net<T>) -> u64 {
    16 * net.len() as u64
}

/// One question, "is there a plan of this height?", and how far it has been answered.
pub(crate) struct Turns<'n, T> {
    net: &'n Net<T>,
    height: T,
    orders: [(Rank, u64); 3],
    searches: Vec<Search<'n, T>>,
    turn: usize,
    left: u64,
    solved: Option<usize>,
}

impl<'n, T: Units> Turns<'n, T> {
    pub(crate) fn new(net: &'n Net<T>, height: T) -> Self {
        let left = Self::grant(net, 0);
        Self { net, height, orders: ORDERS, searches: Vec::new(), turn: 0, left, solved: None }
    }

    /// In this order alone.
    pub(crate) fn of_one(net: &'n Net<T>, height: T, rank: Rank) -> Self {
        Self { orders: [(rank, u64::MAX); 3], left: u64::MAX, ..Self::new(net, height) }
    }

    fn grant(net: &Net<T>, turn: usize) -> u64 {
        ORDERS[turn].1 * net.len() as u64
    }

    /// Goes on for about this many nodes, or until the clock stops it.
    pub(crate) fn run(&mut self, nodes: u64, clock: &mut Clock) -> Outcome {
        let mut nodes = nodes;
        // A node costs about as much as it has items: look at the clock every millisecond or so.
        let chunk = (60_000 / self.net.len() as u64).clamp(8, 1024);
        while nodes > 0 && !clock.is_over() {
            if self.searches.len() <= self.turn {
                let (net, height, rank) = (self.net, self.height, self.orders[self.turn].0);
                let Some(search) = clock.afford(net.begin_steps(), || Search::new(net, height, rank)) else {
                    clock.stop();
                    return Outcome::Paused;
                };
                self.searches.push(search);
            }
            let search = &mut self.searches[self.turn];
            let (before, work) = (search.nodes, search.work);
            let outcome = search.run(nodes.min(chunk).min(self.left), WORK_A_LOOK);
            if search.memory_bytes() > clock.memory_max_bytes {
                clock.stop();
            }
            // A node that tried very many candidates counts as several.
            let spent = (search.nodes - before).max((search.work - work) / work_a_node(self.net)).max(1);
            // A node of a large part takes longer.
            clock.spend(spent.saturating_mul(1 + self.net.len() as u64 / 512));
            nodes = nodes.saturating_sub(spent);
            self.left = self.left.saturating_sub(spent);
            if outcome != Outcome::Paused {
                self.solved = Some(self.turn);
                return outcome;
            }
            if self.left == 0 {
                self.turn = (self.turn + 1) % ORDERS.len();
                self.left = Self::grant(self.net, self.turn);
            }
        }
        Outcome::Paused
    }

    /// The plan found, in bytes.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        let found = self.solved.map_or(&[][..], |turn| self.searches[turn].offsets());
        found.iter().map(|offset| offset.to_u64() * self.net.unit)
    }
}
