#![forbid(unsafe_code)]
//! Mending a plan after a change: what still fits stays, the rest is placed around it.

use std::collections::BTreeSet;

use super::budget::Clock;
use super::error::PlanError;
use super::exact::Best;
use super::fit::{Crowd, Fit, Key, place_around, sort_by};
use super::instance::{Instance, NONE};
use super::portfolio::fast;
use super::solve::solve_with;
use super::spec::Problem;
use super::{Plan, verify};

/// A mended plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replanned {
    /// The plan.
    pub plan: Plan,
    /// How many of the buffers that were planned before have another offset or space now.
    pub moved: usize,
}

/// Plans a changed problem with as many offsets of an old plan as still hold.
///
/// The old plan is for the first `old.offsets.len()` buffers, in any sizes and lifespans; buffers after those
/// are new. What conflicts is placed again, largest first, around the rest. If the peak of a space then is more
/// than `slack_percent` above its lower bound, the space is planned anew, and that plan taken if it is lower.
///
/// # Errors
/// As for [`super::Planner::plan`].
///
/// # Examples
/// ```
/// use arenite::plan::{BufferSpec, GreedyBySize, Lifespan, Planner, Problem, replan};
/// let mut problem = Problem::new((0..8).map(|s| BufferSpec::new(64, Lifespan::new(s, s + 2))).collect());
/// let old = GreedyBySize.plan(&problem)?;
/// problem.buffers.push(BufferSpec::new(32, Lifespan::new(0, 8)));
/// let new = replan(&problem, &old, 10)?;
/// assert_eq!((new.moved, new.plan.peak_bytes(0)), (0, 160));
/// # Ok::<(), arenite::plan::PlanError>(())
/// ```
pub fn replan(problem: &Problem, old: &Plan, slack_percent: u64) -> Result<Replanned, PlanError> {
    let spaces: Vec<u32> = problem
        .buffers
        .iter()
        .enumerate()
        .map(|(buffer, spec)| {
            let before = old.spaces.get(buffer).copied();
            before.filter(|space| spec.permitted_spaces().contains(space)).unwrap_or(spec.space)
        })
        .collect();
    let taken: BTreeSet<u32> = old.shared.iter().map(|&(buffer, _)| buffer).collect();
    let plan = solve_with(problem, &spaces, |buffer| taken.contains(&buffer), &mut |instance, bound| {
        mend(instance, bound, old, slack_percent)
    })?;
    verify(problem, &plan)?;
    let before = old.offsets.iter().zip(&old.spaces);
    let moved = before.zip(plan.offsets.iter().zip(&plan.spaces)).zip(&problem.buffers);
    let moved = moved.filter(|((before, after), spec)| before != after && spec.size_bytes > 0).count();
    Ok(Replanned { plan, moved })
}

fn mend(instance: &Instance, bound: u64, old: &Plan, slack_percent: u64) -> Best {
    let mut offsets = keep(instance, old);
    let homeless = offsets.iter().zip(0..).filter(|(offset, _)| **offset == NONE);
    let mut order: Vec<u32> = homeless.map(|(_, item)| item).collect();
    if !order.is_empty() {
        sort_by(instance, Key::Size, &mut order);
        place_around(instance, &Crowd::new(instance), &order, Fit::First, &mut offsets, &Clock::endless());
    }
    let peak = instance.peak_saturating(&offsets);
    let limit = u128::from(bound) * u128::from(slack_percent.saturating_add(100)) / 100;
    let mended = Best { offsets, peak, bound };
    if u128::from(peak) <= limit && peak <= instance.capacity {
        return mended;
    }
    let anew = fast(instance, bound);
    if anew.peak < mended.peak { anew } else { mended }
}

/// The old offsets that still hold together; of two in conflict the smaller gives way.
fn keep(instance: &Instance, old: &Plan) -> Vec<u64> {
    let wished = |item: usize| {
        let offset = *old.offsets.get(instance.source[item] as usize)?;
        let end = offset.checked_add(instance.items[item].size)?;
        let holds = offset % instance.align_of(item) == 0 && end <= instance.capacity && end < u64::MAX;
        holds.then_some(offset)
    };
    let mut offsets: Vec<u64> =
        (0..instance.len()).map(|item| instance.pin(item).or_else(|| wished(item)).unwrap_or(NONE)).collect();
    // What lies where, by offset, disjoint; a range stays after its life until a later one covers it.
    let mut shelf: Vec<(u64, u64, u32)> = Vec::new();
    let mut covered: Vec<u32> = Vec::new();
    for item in 0..instance.len() {
        let (own, offset) = (instance.items[item], offsets[item]);
        if offset == NONE {
            continue;
        }
        let from = shelf.partition_point(|range| range.1 <= offset);
        let count = shelf[from..].iter().take_while(|range| range.0 < offset + own.size).count();
        covered.clear();
        covered.extend(shelf[from..from + count].iter().map(|range| range.2));
        let alive = |&other: &u32| instance.items[other as usize].upper > own.lower;
        let pinned = instance.pin(item).is_some();
        let stays = |&other: &u32| {
            instance.pin(other as usize).is_some()
                || (!pinned && instance.items[other as usize].size >= own.size)
        };
        if covered.iter().any(|other| alive(other) && stays(other)) {
            offsets[item] = NONE;
            continue;
        }
        for &other in covered.iter().filter(|other| alive(other)) {
            offsets[other as usize] = NONE;
        }
        let range = (offset, offset + own.size, u32::try_from(item).unwrap_or(u32::MAX));
        if count == 1 {
            shelf[from] = range;
        } else {
            shelf.splice(from..from + count, [range]);
        }
    }
    offsets
}
