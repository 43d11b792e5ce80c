#![forbid(unsafe_code)]
//! Checks what changed in a plan that held before: each changed buffer against all that live with it.
//!
//! ```text
//! in order of start:   . a . . . . | . . . x . . | . . . . . .     who may live with x: those who lived on when its
//!                        +---------------------+                  run began, such as a, and those who begin from
//!                                  run     +---- x ----+          there on until x ends
//! ```
//!
//! For whole buffers of one space. Shares no code with what makes plans. Deliberately absent: trust in an index
//! that was made for placing.

use super::Plan;
use super::error::Violation;
use super::spec::Problem;
use super::verify::check_alone;

/// The least buffers of a run.
const RUN: usize = 16;

/// How many are compared in one go.
const GROUP: usize = 16;

/// What the buffers of a space cover, ready to be asked who shares a byte with whom.
#[derive(Debug)]
pub(super) struct Watch {
    /// Who they are, in order of start; those of no bytes or steps left out.
    buffers: Vec<u32>,
    /// How many begin before each has ended.
    until: Vec<u32>,
    /// Where each begins and ends in memory.
    bytes: Vec<(u64, u64)>,
    /// Where the buffers of the problem stand among these: run and place; the largest numbers if they do not.
    places: Vec<(u32, u32)>,
    /// Each run's first buffer, and where its list begins of those who lived on. A run is as long as that list, so
    /// that all lists together are about as long as there are buffers.
    runs: Vec<(u32, u32)>,
    lived_on: Vec<u32>,
}

impl Watch {
    pub(super) fn new(problem: &Problem, plan: &Plan, space: u32) -> Self {
        let life = |buffer: u32| problem.buffers[buffer as usize].lifespan;
        let is_here = |buffer: &u32| {
            let spec = &problem.buffers[*buffer as usize];
            spec.space == space && spec.size_bytes > 0 && !spec.lifespan.is_empty()
        };
        let all = 0..number(problem.buffers.len());
        let mut buffers: Vec<u32> = all.filter(is_here).collect();
        buffers.sort_by_key(|&buffer| life(buffer).first);
        let begin_before = |step: u64| buffers.partition_point(|&other| life(other).first < step);
        let until: Vec<u32> = buffers.iter().map(|&own| number(begin_before(life(own).last))).collect();
        let (mut places, mut runs) = (vec![(u32::MAX, u32::MAX); problem.buffers.len()], Vec::new());
        let (mut alive, mut lived_on, mut full) = (Vec::<u32>::new(), Vec::new(), 0);
        for (at, &buffer) in (0..).zip(&buffers) {
            if at as usize == full {
                alive.retain(|&other| until[other as usize] > at);
                runs.push((at, number(lived_on.len())));
                lived_on.extend_from_slice(&alive);
                full += alive.len().max(RUN);
            }
            places[buffer as usize] = (number(runs.len() - 1), at);
            alive.push(at);
        }
        runs.push((number(buffers.len()), number(lived_on.len())));
        let bytes = buffers.iter().map(|&buffer| bytes_of(problem, plan, buffer)).collect();
        Self { buffers, until, bytes, places, runs, lived_on }
    }

    /// Checks these buffers, whose sizes or offsets changed, alone and against every other.
    pub(super) fn check(&mut self, problem: &Problem, plan: &Plan, changed: &[u32]) -> Result<(), Violation> {
        for &buffer in changed {
            check_alone(problem, plan, buffer as usize, &problem.buffers[buffer as usize])?;
            if let Some(bytes) = self.bytes.get_mut(self.places[buffer as usize].1 as usize) {
                *bytes = bytes_of(problem, plan, buffer);
            }
        }
        let places = changed.iter().map(|&buffer| self.places[buffer as usize]);
        for (run, own) in places.filter(|place| place.0 < u32::MAX) {
            if let Some(other) = self.meets(run as usize, own) {
                return Err(self.conflict(problem, plan, own, other));
            }
        }
        Ok(())
    }

    /// One that lives with the one that stands at this place of this run, and shares a byte with it.
    #[expect(clippy::needless_bitwise_bool, reason = "no branch: either is as likely as not")]
    fn meets(&self, run: usize, own: u32) -> Option<u32> {
        let (from, to) = self.bytes[own as usize];
        let shares = |bytes: &(u64, u64)| (bytes.0 < to) & (from < bytes.1);
        let [(begin, list), (_, list_end)] = [self.runs[run], self.runs[run + 1]];
        let lived_on = self.lived_on[list as usize..list_end as usize].iter().copied();
        let is_met = |other: u32| self.until[other as usize] > own && shares(&self.bytes[other as usize]);
        if let Some(other) = lived_on.chain(begin..own).find(|&other| is_met(other)) {
            return Some(other);
        }
        // A few at a time without a branch: hardly ever does any share.
        let any = |bytes: &[(u64, u64)]| bytes.iter().fold(false, |any, bytes| any | shares(bytes));
        let later = &self.bytes[own as usize + 1..self.until[own as usize] as usize];
        let group = later.chunks(GROUP).position(any)? * GROUP;
        let at = later[group..].iter().position(shares)?;
        Some(own + 1 + number(group + at))
    }

    fn conflict(&self, problem: &Problem, plan: &Plan, own: u32, other: u32) -> Violation {
        let [a, b] = [own, other].map(|at| self.buffers[at as usize]);
        let [life, their_life] = [a, b].map(|buffer| problem.buffers[buffer as usize].lifespan);
        let [bytes, their_bytes] = [a, b].map(|buffer| bytes_of(problem, plan, buffer));
        Violation::Conflict {
            a: a.min(b) as usize,
            b: a.max(b) as usize,
            space: plan.spaces[a as usize],
            bytes: bytes.0.max(their_bytes.0)..bytes.1.min(their_bytes.1),
            steps: life.first.max(their_life.first)..life.last.min(their_life.last),
        }
    }
}

/// Where a buffer begins and ends.
fn bytes_of(problem: &Problem, plan: &Plan, buffer: u32) -> (u64, u64) {
    let offset = plan.offsets[buffer as usize];
    (offset, offset.saturating_add(problem.buffers[buffer as usize].size_bytes))
}

/// Buffers are counted in 32 bits.
fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{BufferSpec, Lifespan, verify};

    #[test]
    fn a_buffer_moved_anywhere_is_judged_as_by_the_whole_verifier() {
        let life = |at: u64| Lifespan::new(at, at + 1 + if at.is_multiple_of(7) { 90 } else { at % 5 });
        let problem = Problem::new((0..300).map(|at| BufferSpec::new(8 + at % 24, life(at))).collect());
        // Buffers alive together lie apart: far more than live at once fit below each other.
        let good = Plan::from_offsets(&problem, (0..300).map(|at| at % 100 * 32).collect());
        verify(&problem, &good).unwrap();
        let mut watch = Watch::new(&problem, &good, 0);
        let (mut met, mut plan) = (0, good.clone());
        for round in 0..6_000_usize {
            let at = round * 131 % 300;
            plan.offsets[at] = (round as u64 * 53) % 3_500;
            let (near, whole) = (watch.check(&problem, &plan, &[number(at)]), verify(&problem, &plan));
            assert_eq!(near.is_ok(), whole.is_ok(), "{near:?} {whole:?}");
            met += usize::from(near.is_err());
            plan.offsets[at] = good.offsets[at];
            watch.check(&problem, &plan, &[number(at)]).unwrap();
        }
        assert!((1_000..5_000).contains(&met), "{met}");
    }
}
