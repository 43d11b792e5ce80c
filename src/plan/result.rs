#![forbid(unsafe_code)]
//! What planning gives: offsets, and how good they are.

use super::bound::lower_bound;
use super::reduce::Reduced;
use super::spec::Problem;

/// How good a plan of a space is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// No plan has a lower peak: proven.
    Optimal,
    /// The peak is at most `peak_bytes - bound_bytes` above the best.
    Feasible,
}

/// The plan of one space in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceReport {
    /// The end of its highest buffer.
    pub peak_bytes: u64,
    /// What any plan needs at least, as far as is proven.
    pub bound_bytes: u64,
    /// What the space holds, if that is limited.
    pub capacity_bytes: Option<u64>,
    /// Whether the peak is proven to be the lowest.
    pub status: Status,
}

/// Where every buffer lies.
#[doc(alias = "solution")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The offset of each buffer in its space.
    pub offsets: Vec<u64>,
    /// The space of each buffer.
    pub spaces: Vec<u32>,
    /// The offered reuses that were taken: (buffer, the buffer it is written over).
    pub shared: Vec<(u32, u32)>,
    /// Each space in numbers; empty for plans that were given, until [`Plan::reported`].
    pub reports: Vec<SpaceReport>,
}

impl Plan {
    /// A plan that was made elsewhere, in the spaces that the problem gives. Verify it before use.
    pub fn from_offsets(problem: &Problem, offsets: Vec<u64>) -> Self {
        let spaces = problem.buffers.iter().map(|spec| spec.space).collect();
        Self { offsets, spaces, shared: Vec::new(), reports: Vec::new() }
    }

    /// The peak of a space; 0 if there is no such space.
    pub fn peak_bytes(&self, space: usize) -> u64 {
        self.reports.get(space).map_or(0, |report| report.peak_bytes)
    }

    /// With each space's peak and lower bound computed anew.
    ///
    /// # Errors
    /// As for planning, if the problem contradicts itself; a [`super::Violation`] if the plan does not hold.
    pub fn reported(mut self, problem: &Problem) -> Result<Self, super::PlanError> {
        super::reduce::check(problem)?;
        super::verify(problem, &self)?;
        let taken = |buffer: u32| self.shared.iter().any(|&(writer, _)| writer == buffer);
        let reduced = Reduced::new(problem, &self.spaces, taken)?;
        let mut peaks = vec![0; problem.spaces.len()];
        for (buffer, spec) in problem.buffers.iter().enumerate() {
            let peak: &mut u64 = &mut peaks[self.spaces[buffer] as usize];
            let counts = spec.size_bytes > 0;
            *peak = (*peak).max(if counts { self.offsets[buffer] + spec.size_bytes } else { 0 });
        }
        let report = |(space, peak_bytes): (usize, u64)| {
            let bound_bytes = lower_bound(&reduced.instances[space]).unwrap_or(peak_bytes).min(peak_bytes);
            let status = if peak_bytes == bound_bytes { Status::Optimal } else { Status::Feasible };
            let capacity_bytes = problem.spaces[space].capacity_bytes;
            SpaceReport { peak_bytes, bound_bytes, capacity_bytes, status }
        };
        self.reports = peaks.into_iter().enumerate().map(report).collect();
        Ok(self)
    }
}
