#![forbid(unsafe_code)]
//! Choosing a space for each buffer that may lie in several: the one it names first, and where that overflows, what
//! gains least a byte moves on to its next.
//!
//! First by the bytes that are alive, step by step from the fullest; then, where a plan is still too high, by twice
//! as many buffers each time. So the number of plans made grows with the logarithm of the number of buffers.
//! Deliberately absent: moving back.

use std::collections::BTreeSet;

use super::Plan;
use super::bound::{active_parts, culprits};
use super::error::PlanError;
use super::spec::Problem;

/// How many of the fullest steps are relieved one by one, before all others in one sweep.
const ROUNDS: usize = 32;

/// Plans with the spaces that `plan` is given.
pub(crate) fn spill(
    problem: &Problem,
    plan: &mut dyn FnMut(&[u32]) -> Result<Plan, PlanError>,
) -> Result<Plan, PlanError> {
    let mut choices = Choices {
        problem,
        next: vec![1; problem.buffers.len()],
        spaces: problem.buffers.iter().map(|spec| spec.space).collect(),
    };
    let mut count = 1_usize;
    loop {
        choices.relieve_all();
        let failed = match plan(&choices.spaces) {
            Err(PlanError::Infeasible { space, .. } | PlanError::DoesNotFit { space, .. }) => space,
            other => return other,
        };
        let mut moved = 0;
        while moved < count {
            let most = culprits(problem, &choices.spaces, index(failed));
            let movable = choices.movable(most.buffers);
            if movable.is_empty() {
                break;
            }
            for buffer in movable.into_iter().take(count - moved) {
                choices.advance(buffer);
                moved += 1;
            }
        }
        if moved == 0 {
            return plan(&choices.spaces);
        }
        count = count.saturating_mul(2);
    }
}

/// Which space each buffer is in.
struct Choices<'a> {
    problem: &'a Problem,
    /// The place in its list that each buffer moves on to next.
    next: Vec<usize>,
    spaces: Vec<u32>,
}

impl Choices<'_> {
    /// Moves buffers until the live bytes of every space fit, as far as that goes.
    fn relieve_all(&mut self) {
        // Whoever leaves a space enters another, and does so less often than it has spaces to choose from.
        let most = self.problem.buffers.iter().map(|spec| spec.permitted_spaces().len()).max().unwrap_or(0);
        for _ in 0..most {
            let before = self.next.iter().sum::<usize>();
            (0..self.problem.spaces.len()).for_each(|space| self.relieve(space));
            if self.next.iter().sum::<usize>() == before {
                return;
            }
        }
    }

    fn relieve(&mut self, space: usize) {
        let Some(capacity) = self.problem.spaces[space].capacity_bytes else { return };
        for _ in 0..ROUNDS {
            let most = culprits(self.problem, &self.spaces, index(space));
            let mut live = most.live_bytes;
            if live <= capacity {
                return;
            }
            let movable = self.movable(most.buffers);
            if movable.is_empty() {
                break;
            }
            for buffer in movable {
                if live <= capacity {
                    break;
                }
                live = live.saturating_sub(self.problem.buffers[buffer].size_bytes);
                self.advance(buffer);
            }
        }
        self.sweep(space, capacity);
    }

    /// Goes through the steps once and moves what gains least whenever too much is alive.
    fn sweep(&mut self, space: usize, capacity: u64) {
        let within = (0..self.spaces.len()).filter(|&buffer| self.spaces[buffer] as usize == space);
        let mut events: Vec<(u64, bool, usize, u64)> = Vec::new();
        for buffer in within {
            for (span, bytes) in active_parts(self.problem, buffer) {
                events.extend([(span.first, true, buffer, bytes), (span.last, false, buffer, bytes)]);
            }
        }
        // Ends come before starts at the same step.
        events.sort_unstable();
        let (mut live, mut alive) = (0_u128, BTreeSet::new());
        for (_, starts, buffer, bytes) in events {
            if self.spaces[buffer] as usize != space {
                continue;
            }
            if !starts {
                live -= u128::from(bytes);
                alive.remove(&(self.gain(buffer), buffer, bytes));
                continue;
            }
            live += u128::from(bytes);
            if self.may_move(buffer) {
                alive.insert((self.gain(buffer), buffer, bytes));
            }
            while live > u128::from(capacity) {
                let Some((_, loser, bytes)) = alive.pop_first() else { break };
                live -= u128::from(bytes);
                self.advance(loser);
            }
        }
    }

    fn may_move(&self, buffer: usize) -> bool {
        let spec = &self.problem.buffers[buffer];
        spec.pinned_bytes.is_none() && self.next[buffer] < spec.permitted_spaces().len()
    }

    fn advance(&mut self, buffer: usize) {
        self.spaces[buffer] = self.problem.buffers[buffer].permitted_spaces()[self.next[buffer]];
        self.next[buffer] += 1;
    }

    /// Accesses a byte, then small size: what is least moves first.
    fn gain(&self, buffer: usize) -> (u128, core::cmp::Reverse<u64>) {
        let spec = &self.problem.buffers[buffer];
        let gain = (u128::from(spec.accesses()) << 64) / u128::from(spec.size_bytes.max(1));
        (gain, core::cmp::Reverse(spec.size_bytes))
    }

    /// Those that may move, what gains least first.
    fn movable(&self, mut buffers: Vec<usize>) -> Vec<usize> {
        buffers.retain(|&buffer| self.may_move(buffer));
        buffers.sort_by_key(|&buffer| (self.gain(buffer), buffer));
        buffers
    }
}

fn index(space: usize) -> u32 {
    u32::try_from(space).unwrap_or(u32::MAX)
}
