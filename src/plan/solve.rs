#![forbid(unsafe_code)]
//! One call for every strategy: check, choose spaces and reuses, reduce, plan each space, verify.

use std::collections::BTreeMap;

use super::bound::{culprits, lower_bound};
use super::error::{CULPRITS_MAX, PlanError};
use super::exact::Best;
use super::instance::{Instance, NONE};
use super::reduce::{Reduced, check};
use super::spec::{Alias, Problem};
use super::spill::spill;
use super::verify::verify;
use super::{Plan, SpaceReport, Status};

/// How a strategy plans one space, given the lower bound.
pub(crate) type PlanSpace<'a> = dyn FnMut(&Instance, u64) -> Best + 'a;

/// Plans a problem with a strategy for each space.
pub(crate) fn solve(problem: &Problem, plan_space: &mut PlanSpace<'_>) -> Result<Plan, PlanError> {
    check(problem)?;
    let chooses = problem.buffers.iter().any(|spec| spec.permitted_spaces().len() > 1);
    let plan = if chooses {
        spill(problem, &mut |spaces| solve_spaces(problem, spaces, plan_space))?
    } else {
        solve_spaces(problem, &[], plan_space)?
    };
    verify(problem, &plan)?;
    Ok(plan)
}

/// Plans with each buffer's space given; takes offered reuses if they lower the peak.
fn solve_spaces(
    problem: &Problem,
    spaces: &[u32],
    plan_space: &mut PlanSpace<'_>,
) -> Result<Plan, PlanError> {
    let apart = Reduced::new(problem, spaces, |_| false)?;
    let offers = problem.buffers.iter().any(|spec| matches!(spec.alias(), Some(Alias::May { .. })));
    if !offers {
        return plan_reduced(problem, spaces, &apart, plan_space);
    }
    let merged = Reduced::new(problem, spaces, |_| true)?;
    let first = plan_reduced(problem, spaces, &apart, plan_space);
    let second = plan_reduced(problem, spaces, &merged, plan_space);
    match (first, second) {
        (Ok(first), Ok(second)) if total_peak(&second) < total_peak(&first) => Ok(second),
        (Err(_), Ok(second)) => Ok(second),
        (first, _) => first,
    }
}

/// Plans with spaces and reuses given.
pub(crate) fn solve_with(
    problem: &Problem,
    spaces: &[u32],
    reuse: impl Fn(u32) -> bool,
    plan_space: &mut PlanSpace<'_>,
) -> Result<Plan, PlanError> {
    check(problem)?;
    plan_reduced(problem, spaces, &Reduced::new(problem, spaces, reuse)?, plan_space)
}

fn total_peak(plan: &Plan) -> u128 {
    plan.reports.iter().map(|report| u128::from(report.peak_bytes)).sum()
}

fn plan_reduced(
    problem: &Problem,
    spaces: &[u32],
    reduced: &Reduced,
    plan_space: &mut PlanSpace<'_>,
) -> Result<Plan, PlanError> {
    let spaces: Vec<u32> = match spaces {
        [] => problem.buffers.iter().map(|spec| spec.space).collect(),
        given => given.to_vec(),
    };
    let mut offsets = vec![NONE; problem.buffers.len()];
    let mut reports = Vec::with_capacity(reduced.instances.len());
    for (space, instance) in reduced.instances.iter().enumerate() {
        check_pins(instance)?;
        let bound = bound_of(problem, instance)?;
        if bound > instance.capacity {
            return Err(does_not_fit(problem, &spaces, space, instance.capacity, bound, None));
        }
        let best = plan_space(instance, bound);
        let peak = instance.peak(&best.offsets)?;
        if peak > instance.capacity {
            let proven = (best.bound <= instance.capacity).then_some(peak);
            return Err(does_not_fit(problem, &spaces, space, instance.capacity, best.bound, proven));
        }
        reduced.scatter(space, &best.offsets, &mut offsets);
        let status = if peak <= best.bound { Status::Optimal } else { Status::Feasible };
        let capacity_bytes = problem.spaces[space].capacity_bytes;
        let bound_bytes = best.bound.min(peak);
        reports.push(SpaceReport { peak_bytes: peak, bound_bytes, capacity_bytes, status });
    }
    reduced.finish(problem, &mut offsets);
    Ok(Plan { offsets, spaces, shared: reduced.shared.clone(), reports })
}

fn does_not_fit(
    problem: &Problem,
    spaces: &[u32],
    space: usize,
    capacity_bytes: u64,
    bound_bytes: u64,
    peak: Option<u64>,
) -> PlanError {
    let mut most = culprits(problem, spaces, u32::try_from(space).unwrap_or(u32::MAX));
    most.buffers.truncate(CULPRITS_MAX);
    let (step, culprits) = (most.step, most.buffers);
    match peak {
        None => PlanError::Infeasible { space, capacity_bytes, bound_bytes, step, culprits },
        Some(peak_bytes) => {
            PlanError::DoesNotFit { space, capacity_bytes, peak_bytes, bound_bytes, step, culprits }
        }
    }
}

/// The least bytes that any plan of each space needs, as far as is known without a search.
///
/// Buffers count in the spaces they name first; offered reuses do not count.
///
/// # Errors
/// [`PlanError`] if the problem contradicts itself.
///
/// # Examples
/// ```
/// use arenite::plan::{BufferSpec, Lifespan, Problem, lower_bounds};
/// let spans = [(0, 2), (1, 3), (3, 4)];
/// let buffers = spans.map(|(first, last)| BufferSpec::new(8, Lifespan::new(first, last)));
/// assert_eq!(lower_bounds(&Problem::new(buffers.to_vec()))?, vec![16]);
/// # Ok::<(), arenite::plan::PlanError>(())
/// ```
pub fn lower_bounds(problem: &Problem) -> Result<Vec<u64>, PlanError> {
    check(problem)?;
    let reduced = Reduced::new(problem, &[], |_| false)?;
    reduced.instances.iter().map(|instance| bound_of(problem, instance)).collect()
}

fn bound_of(problem: &Problem, instance: &Instance) -> Result<u64, PlanError> {
    let size = |&buffer: &u32| problem.buffers[buffer as usize].size_bytes;
    lower_bound(instance).ok_or_else(|| {
        let buffer = instance.source.iter().copied().max_by_key(size).unwrap_or(0);
        PlanError::Overflow { buffer: buffer as usize, size_bytes: size(&buffer) }
    })
}

/// Two pins on the same bytes at the same time are an input error.
fn check_pins(instance: &Instance) -> Result<(), PlanError> {
    let mut live: BTreeMap<u64, (u64, u32, usize)> = BTreeMap::new();
    let pinned = (0..instance.pins.len()).filter(|&item| instance.pin(item).is_some());
    let mut parts: Vec<(u32, u32, u64, u64, usize)> = Vec::new();
    for item in pinned {
        let pin = instance.pin(item).unwrap_or(0);
        let part =
            |s: super::instance::Segment| (s.lower, s.upper, pin + s.bytes_lower, pin + s.bytes_upper, item);
        parts.extend(instance.segments_of(item).map(part));
    }
    parts.sort_unstable();
    let mut ends: Vec<(u32, u64)> = parts.iter().map(|part| (part.1, part.2)).collect();
    ends.sort_unstable();
    let mut ended = 0;
    for &(lower, upper, from, to, item) in &parts {
        while ends[ended].0 <= lower {
            live.remove(&ends[ended].1);
            ended += 1;
        }
        let below = live.range(..to).next_back();
        if let Some((_, &(end, _, other))) = below.filter(|(_, (end, _, _))| *end > from) {
            let (a, b) = (instance.source[other] as usize, instance.source[item] as usize);
            let start = from.max(instance.pin(other).unwrap_or(0));
            return Err(PlanError::PinConflict { a, b, bytes: start..end.min(to), step: u64::from(lower) });
        }
        live.insert(from, (to, upper, item));
    }
    Ok(())
}
