#![forbid(unsafe_code)]
//! Checks what changed in a plan that held before: each changed buffer against all that live with it.
//!
//! For whole buffers in one space. Shares no code with what makes plans. Deliberately absent: trust in an index
//! that was made for placing.

use super::Plan;
use super::error::Violation;
use super::spec::{Lifespan, Problem};
use super::verify::check_alone;

/// How many buffers make a block, and how many blocks a larger one.
const BLOCK: usize = 32;

/// The lives of a problem's buffers, ready to be asked who lives with whom.
#[derive(Debug)]
pub(super) struct Watch {
    /// Lives in order of start, with the buffers they belong to; those of no bytes or steps left out.
    lives: Vec<(Lifespan, u32)>,
    /// The last end in each block, and in each block of blocks.
    last: [Vec<u64>; 2],
}

impl Watch {
    pub(super) fn new(problem: &Problem) -> Self {
        let all = (0..).zip(&problem.buffers);
        let real = all.filter(|(_, spec)| spec.size_bytes > 0 && !spec.lifespan.is_empty());
        let mut lives: Vec<(Lifespan, u32)> = real.map(|(buffer, spec)| (spec.lifespan, buffer)).collect();
        if !lives.is_sorted_by_key(|(life, _)| life.first) {
            lives.sort_by_key(|(life, _)| life.first);
        }
        let most = |ends: &mut dyn Iterator<Item = u64>| ends.max().unwrap_or(0);
        let blocks = lives.chunks(BLOCK).map(|block| most(&mut block.iter().map(|(life, _)| life.last)));
        let blocks: Vec<u64> = blocks.collect();
        let large = blocks.chunks(BLOCK).map(|block| most(&mut block.iter().copied())).collect();
        Self { lives, last: [blocks, large] }
    }

    /// Checks these buffers, alone and against every other.
    pub(super) fn check(&self, problem: &Problem, plan: &Plan, changed: &[u32]) -> Result<(), Violation> {
        for &buffer in changed {
            let spec = &problem.buffers[buffer as usize];
            check_alone(problem, plan, buffer as usize, spec)?;
            if spec.size_bytes > 0 && !spec.lifespan.is_empty() {
                self.check_against_all(problem, plan, buffer)?;
            }
        }
        Ok(())
    }

    fn check_against_all(&self, problem: &Problem, plan: &Plan, buffer: u32) -> Result<(), Violation> {
        let Lifespan { first, last } = problem.buffers[buffer as usize].lifespan;
        let begun = self.lives.partition_point(|(life, _)| life.first < first);
        let ends_later = |level: usize, at: &usize| self.last[level][*at] > first;
        let large = (0..begun.div_ceil(BLOCK * BLOCK)).filter(|at| ends_later(1, at));
        for large in large {
            let blocks = large * BLOCK..begun.div_ceil(BLOCK).min((large + 1) * BLOCK);
            for block in blocks.filter(|at| ends_later(0, at)) {
                let lives = &self.lives[block * BLOCK..begun.min((block + 1) * BLOCK)];
                for (_, other) in lives.iter().filter(|(life, _)| life.last > first) {
                    check_pair(problem, plan, buffer, *other)?;
                }
            }
        }
        let later = self.lives[begun..].iter().take_while(|(life, _)| life.first < last);
        { later }
            .filter(|(_, other)| *other != buffer)
            .try_for_each(|(_, other)| check_pair(problem, plan, buffer, *other))
    }
}

/// Two that are alive together.
fn check_pair(problem: &Problem, plan: &Plan, a: u32, b: u32) -> Result<(), Violation> {
    let (a, b) = (a.min(b) as usize, a.max(b) as usize);
    let (one, other) = (&problem.buffers[a], &problem.buffers[b]);
    let bytes = plan.offsets[a].max(plan.offsets[b])
        ..plan.offsets[a]
            .saturating_add(one.size_bytes)
            .min(plan.offsets[b].saturating_add(other.size_bytes));
    if bytes.is_empty() {
        return Ok(());
    }
    let steps = one.lifespan.first.max(other.lifespan.first)..one.lifespan.last.min(other.lifespan.last);
    Err(Violation::Conflict { a, b, space: plan.spaces[a], bytes, steps })
}
