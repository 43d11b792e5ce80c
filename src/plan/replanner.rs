#![forbid(unsafe_code)]
//! A plan kept up to date while its buffers change.
//!
//! What changes of size is compared with its neighbours only, and placed again among them; everything else
//! stays where it is without being looked at. What moved or changed is verified against all that live with it;
//! the rest was before. Deliberately absent: trust.

use super::Plan;
use super::error::PlanError;
use super::fit::{Crowd, Fit, Key, place_around, sort_by};
use super::instance::{Instance, NONE};
use super::reduce::{Reduced, check, check_buffer};
use super::replan::{Replanned, replan};
use super::result::{SpaceReport, Status};
use super::spec::{BufferSpec, Problem};
use super::verify_near::Watch;
use super::{bound::lower_bound, budget::Clock};

/// A problem and its plan, for changes one after another: much faster than [`replan`] where few sizes change.
///
/// # Examples
/// ```
/// use arenite::plan::{BufferSpec, GreedyBySize, Lifespan, Planner, Problem, Replanner};
/// let problem = Problem::new((0..8).map(|s| BufferSpec::new(64, Lifespan::new(s, s + 2))).collect());
/// let plan = GreedyBySize.plan(&problem)?;
/// let mut live = Replanner::new(problem, plan)?;
/// live.set(3, BufferSpec::new(96, Lifespan::new(3, 5)))?;
/// live.push(BufferSpec::new(32, Lifespan::new(6, 9)))?;
/// assert!(live.replan(50)? <= 2);
/// assert_eq!(live.plan().peak_bytes(0), 160);
/// # Ok::<(), arenite::plan::PlanError>(())
/// ```
#[derive(Debug)]
pub struct Replanner {
    problem: Problem,
    plan: Plan,
    index: Option<Index>,
    /// Buffers whose size or alignment changed since the last plan, if nothing else did.
    changed: Vec<u32>,
    /// Whether something else changed.
    stale: bool,
}

/// One space of plain buffers, ready to be asked who is alive with whom.
#[derive(Debug)]
struct Index {
    reduced: Reduced,
    crowd: Crowd,
    /// Which item a buffer is; `u32::MAX` if it is none.
    item_of: Vec<u32>,
    /// Each item's offset in the plan.
    offsets: Vec<u64>,
    watch: Watch,
}

impl Index {
    /// `None` where spaces, pins, aliases, gaps or wishes are in play, or too many are alive at once.
    fn new(problem: &Problem, plan: &Plan) -> Result<Option<Self>, PlanError> {
        let is_plain = |spec: &BufferSpec| spec.is_plain() && spec.pinned_bytes.is_none();
        if problem.spaces.len() != 1 || !problem.buffers.iter().all(is_plain) {
            return Ok(None);
        }
        let reduced = Reduced::new(problem, &[], |_| false)?;
        let crowd = Crowd::new(&reduced.instances[0]);
        if crowd.neighbours(&reduced.instances[0]).is_none() {
            return Ok(None);
        }
        let mut item_of = vec![u32::MAX; problem.buffers.len()];
        let source = &reduced.instances[0].source;
        for (&source, item) in source.iter().zip(0..) {
            item_of[source as usize] = item;
        }
        let offsets = source.iter().map(|&source| plan.offsets[source as usize]).collect();
        Ok(Some(Self { reduced, crowd, item_of, offsets, watch: Watch::new(problem) }))
    }
}

impl Replanner {
    /// Takes a problem and a plan that holds for it.
    ///
    /// # Errors
    /// [`PlanError`] if the problem contradicts itself or the plan does not hold.
    pub fn new(problem: Problem, plan: Plan) -> Result<Self, PlanError> {
        let plan = plan.reported(&problem)?;
        let index = Index::new(&problem, &plan)?;
        Ok(Self { problem, plan, index, changed: Vec::new(), stale: false })
    }

    /// The problem with all changes.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The plan as of the last [`Replanner::replan`].
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Changes a buffer.
    ///
    /// # Errors
    /// [`PlanError`] if the buffer contradicts itself; then nothing has changed.
    ///
    /// # Panics
    /// If there is no such buffer.
    pub fn set(&mut self, buffer: usize, spec: BufferSpec) -> Result<(), PlanError> {
        check_buffer(&self.problem, buffer, &spec)?;
        let old = &mut self.problem.buffers[buffer];
        let kind =
            |spec: &BufferSpec| (spec.is_plain(), spec.pinned_bytes, spec.align_bytes, spec.size_bytes == 0);
        if kind(old) == kind(&spec) && old.lifespan == spec.lifespan && old.space == spec.space {
            self.changed.push(u32::try_from(buffer).unwrap_or(u32::MAX));
        } else {
            self.stale = true;
        }
        *old = spec;
        Ok(())
    }

    /// Adds a buffer and gives its index.
    ///
    /// # Errors
    /// [`PlanError`] if the buffer contradicts itself; then nothing has changed.
    pub fn push(&mut self, spec: BufferSpec) -> Result<usize, PlanError> {
        let buffer = self.problem.buffers.len();
        check_buffer(&self.problem, buffer, &spec)?;
        self.problem.buffers.push(spec);
        self.stale = true;
        Ok(buffer)
    }

    /// Brings the plan up to date, as [`replan`] does, and says how many buffers have moved.
    ///
    /// # Errors
    /// As for [`replan`]; the plan then is the one before.
    pub fn replan(&mut self, slack_percent: u64) -> Result<usize, PlanError> {
        if !self.stale {
            if let Some(moved) = self.mend(slack_percent) {
                self.changed.clear();
                return Ok(moved);
            }
            self.stale = true;
        }
        check(&self.problem)?;
        let Replanned { plan, moved } = replan(&self.problem, &self.plan, slack_percent)?;
        self.index = Index::new(&self.problem, &plan)?;
        (self.plan, self.stale) = (plan, false);
        self.changed.clear();
        Ok(moved)
    }

    /// Places again what no longer fits among its neighbours. `None` where that is not enough: then the index is
    /// of no use any more.
    fn mend(&mut self, slack_percent: u64) -> Option<usize> {
        let Index { reduced, crowd, item_of, offsets, watch } = self.index.as_mut()?;
        let instance = &mut reduced.instances[0];
        let mut changed: Vec<u32> = Vec::with_capacity(self.changed.len());
        for &buffer in &self.changed {
            let item = item_of[buffer as usize];
            if let Some(own) = instance.items.get_mut(item as usize) {
                own.size = self.problem.buffers[buffer as usize].size_bytes;
                changed.push(item);
            }
        }
        changed.sort_unstable();
        changed.dedup();
        let mut homeless = displaced(instance, crowd, &changed, offsets);
        homeless.sort_unstable();
        sort_by(instance, Key::Size, &mut homeless);
        place_around(instance, crowd, &homeless, Fit::First, offsets, &Clock::endless());
        let bound = lower_bound(instance)?;
        let peak = instance.peak(offsets).ok()?;
        let limit = u128::from(bound) * u128::from(slack_percent.saturating_add(100)) / 100;
        if u128::from(peak) > limit || peak > instance.capacity {
            return None;
        }
        let buffer_of = |item: &u32| instance.source[*item as usize];
        let mut before: Vec<(u32, u64)> = Vec::with_capacity(homeless.len());
        for &item in &homeless {
            let buffer = instance.source[item as usize];
            let offset = &mut self.plan.offsets[buffer as usize];
            before.push((buffer, std::mem::replace(offset, offsets[item as usize])));
        }
        let mut touched: Vec<u32> = changed.iter().chain(&homeless).map(buffer_of).collect();
        touched.sort_unstable();
        touched.dedup();
        if watch.check(&self.problem, &self.plan, &touched).is_err() {
            for &(buffer, offset) in &before {
                self.plan.offsets[buffer as usize] = offset;
            }
            return None;
        }
        let status = if peak == bound { Status::Optimal } else { Status::Feasible };
        let capacity_bytes = self.problem.spaces[0].capacity_bytes;
        self.plan.reports =
            vec![SpaceReport { peak_bytes: peak, bound_bytes: bound, capacity_bytes, status }];
        Some(before.iter().filter(|&&(buffer, offset)| self.plan.offsets[buffer as usize] != offset).count())
    }
}

/// Takes the offsets of items that share bytes with a changed one, or of the changed one: the smaller gives way.
fn displaced(instance: &Instance, crowd: &Crowd, changed: &[u32], offsets: &mut [u64]) -> Vec<u32> {
    let mut homeless = Vec::new();
    let mut meets = Vec::new();
    let Some(neighbours) = crowd.neighbours(instance) else { return homeless };
    for &item in changed {
        let at = item as usize;
        let (offset, size) = (offsets[at], instance.items[at].size);
        let Some(end) = offset.checked_add(size).filter(|_| offset != NONE) else { continue };
        meets.clear();
        neighbours.each(instance, at, |other| {
            let from = offsets[other];
            if from != NONE && from < end && offset < from.saturating_add(instance.items[other].size) {
                meets.push(u32::try_from(other).unwrap_or(u32::MAX));
            }
        });
        if end > instance.capacity || meets.iter().any(|&other| instance.items[other as usize].size >= size) {
            meets.clear();
            meets.push(item);
        }
        for &loser in &meets {
            offsets[loser as usize] = NONE;
            homeless.push(loser);
        }
    }
    homeless
}
