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
    /// The size of each buffer, kept together.
    sizes: Vec<u64>,
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
        let sizes = problem.buffers.iter().map(|spec| spec.size_bytes).collect();
        Self { lives, last: [blocks, large], sizes }
    }

    /// Checks these buffers, whose sizes or offsets changed, alone and against every other.
    pub(super) fn check(&mut self, problem: &Problem, plan: &Plan, changed: &[u32]) -> Result<(), Violation> {
        for &buffer in changed {
            self.sizes[buffer as usize] = problem.buffers[buffer as usize].size_bytes;
        }
        for &buffer in changed {
            let spec = &problem.buffers[buffer as usize];
            check_alone(problem, plan, buffer as usize, spec)?;
            if spec.size_bytes > 0
                && !spec.lifespan.is_empty()
                && let Some(other) = self.meets(spec.lifespan, plan, buffer)
            {
                return Err(self.conflict(problem, plan, buffer, other));
            }
        }
        Ok(())
    }

    /// A buffer that lives with this one and shares a byte with it, if there is one.
    fn meets(&self, life: Lifespan, plan: &Plan, buffer: u32) -> Option<u32> {
        let Lifespan { first, last } = life;
        let (from, to) = self.bytes(plan, buffer);
        let meets = |other: &u32| {
            let bytes = self.bytes(plan, *other);
            bytes.0 < to && from < bytes.1 && *other != buffer
        };
        let begun = self.lives.partition_point(|(life, _)| life.first < first);
        let later = self.lives[begun..].iter().take_while(|(life, _)| life.first < last);
        if let Some((_, other)) = { later }.find(|(_, other)| meets(other)) {
            return Some(*other);
        }
        let ends_later = |level: usize, at: &usize| self.last[level][*at] > first;
        for large in (0..begun.div_ceil(BLOCK * BLOCK)).filter(|at| ends_later(1, at)) {
            let blocks = large * BLOCK..begun.div_ceil(BLOCK).min((large + 1) * BLOCK);
            for block in blocks.filter(|at| ends_later(0, at)) {
                let lives = &self.lives[block * BLOCK..begun.min((block + 1) * BLOCK)];
                let earlier = lives.iter().filter(|(life, _)| life.last > first);
                if let Some((_, other)) = { earlier }.find(|(_, other)| meets(other)) {
                    return Some(*other);
                }
            }
        }
        None
    }

    fn bytes(&self, plan: &Plan, buffer: u32) -> (u64, u64) {
        let offset = plan.offsets[buffer as usize];
        (offset, offset.saturating_add(self.sizes[buffer as usize]))
    }

    fn conflict(&self, problem: &Problem, plan: &Plan, a: u32, b: u32) -> Violation {
        let (one, other) = (self.bytes(plan, a), self.bytes(plan, b));
        let (a, b) = (a.min(b) as usize, a.max(b) as usize);
        let lives = (problem.buffers[a].lifespan, problem.buffers[b].lifespan);
        let steps = lives.0.first.max(lives.1.first)..lives.0.last.min(lives.1.last);
        let bytes = one.0.max(other.0)..one.1.min(other.1);
        Violation::Conflict { a, b, space: plan.spaces[a], bytes, steps }
    }
}
