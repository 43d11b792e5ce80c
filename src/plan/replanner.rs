#![forbid(unsafe_code)]
//! A plan kept up to date while its buffers change.
//!
//! What changes of size is compared with its neighbours only, and placed again among them; everything else
//! stays where it is without being looked at. What moved or changed is verified against all that live with it;
//! the rest was before. Deliberately absent: trust.

use super::Plan;
use super::bound::LiveBound;
use super::budget::Clock;
use super::error::PlanError;
use super::fit::{Fit, NOWHERE, Spot, place_indexed};
use super::instance::{Instance, Item, NONE};
use super::neighbours::Neighbours;
use super::profile::Profile;
use super::reduce::{Reduced, check, check_buffer};
use super::replan::{Replanned, replan};
use super::result::{SpaceReport, Status};
use super::spec::{BufferSpec, Problem};
use super::verify_near::Watch;

/// A problem and its plan, for changes one after another: much faster than [`replan`] where few sizes change.
///
/// That holds for whole buffers in any number of spaces, with pins and alignments. After any other change, and where
/// aliases, idle gaps, wishes or a choice of spaces are in play, it takes as long as [`replan`].
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
    /// What is known of each space; nothing where aliases, gaps, wishes or a choice of spaces are in play.
    spaces: Option<Vec<Watched>>,
    /// Buffers whose size changed since the last plan, if nothing else did.
    changed: Vec<u32>,
    /// Whether something else changed.
    stale: bool,
}

/// How many items of a space are placed again before those of later start.
const STRETCH: u32 = 1024;

/// A buffer and its new offset.
type Move = (u32, u64);

impl Replanner {
    /// Takes a problem and a plan that holds for it.
    ///
    /// # Errors
    /// [`PlanError`] if the problem contradicts itself or the plan does not hold.
    pub fn new(problem: Problem, plan: Plan) -> Result<Self, PlanError> {
        let plan = plan.reported(&problem)?;
        let spaces = Watched::all(&problem, &plan)?;
        Ok(Self { problem, plan, spaces, changed: Vec::new(), stale: false })
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
        let kind = |spec: &BufferSpec| {
            let is_real = spec.size_bytes > 0 && !spec.lifespan.is_empty();
            (is_real && spec.is_plain(), spec.pinned_bytes, spec.align_bytes, spec.lifespan, spec.space)
        };
        if kind(old) == kind(&spec) && kind(old).0 {
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
        self.spaces = Watched::all(&self.problem, &plan)?;
        (self.plan, self.stale) = (plan, false);
        self.changed.clear();
        Ok(moved)
    }

    /// Places again what no longer fits among its neighbours. `None` where that is not enough: then what is known of
    /// the spaces is of no use any more.
    fn mend(&mut self, slack_percent: u64) -> Option<usize> {
        self.changed.sort_unstable();
        self.changed.dedup();
        let mut moves: Vec<Move> = Vec::new();
        let mut reports = self.plan.reports.clone();
        for ((space, watched), report) in (0..).zip(self.spaces.as_mut()?).zip(&mut reports) {
            let here = |buffer: &&u32| self.problem.buffers[**buffer as usize].space == space;
            let changed: Vec<u32> = self.changed.iter().filter(here).copied().collect();
            if !changed.is_empty() {
                watched.mend(&self.problem, &changed, slack_percent, report, &mut moves)?;
            }
        }
        self.exchange(&mut moves);
        if self.verify(&moves).is_none() {
            self.exchange(&mut moves);
            return None;
        }
        self.plan.reports = reports;
        Some(moves.iter().filter(|(buffer, before)| self.plan.offsets[*buffer as usize] != *before).count())
    }

    /// Takes over offsets and leaves those before in their place.
    fn exchange(&mut self, moves: &mut [Move]) {
        for (buffer, offset) in moves {
            core::mem::swap(offset, &mut self.plan.offsets[*buffer as usize]);
        }
    }

    /// `None` if what changed or moved meets anything.
    fn verify(&mut self, moves: &[Move]) -> Option<()> {
        let mut touched: Vec<u32> =
            self.changed.iter().copied().chain(moves.iter().map(|own| own.0)).collect();
        touched.sort_unstable();
        touched.dedup();
        self.spaces
            .as_mut()?
            .iter_mut()
            .try_for_each(|space| space.watch.check(&self.problem, &self.plan, &touched))
            .ok()
    }
}

/// One space of whole buffers: who lives with whom, how much that is, and how high it reaches.
#[derive(Debug)]
struct Watched {
    instance: Instance,
    /// Which item a buffer is.
    item_of: Vec<u32>,
    neighbours: Neighbours,
    spots: Vec<Spot>,
    /// Each item's end.
    ends: Profile,
    bound: LiveBound,
    watch: Watch,
}

impl Watched {
    fn all(problem: &Problem, plan: &Plan) -> Result<Option<Vec<Self>>, PlanError> {
        if !problem.buffers.iter().all(BufferSpec::is_plain) {
            return Ok(None);
        }
        let instances = Reduced::new(problem, &[], |_| false)?.instances;
        let space = |(space, instance)| Self::new(problem, plan, space, instance);
        Ok((0..).zip(instances).map(space).collect())
    }

    fn new(problem: &Problem, plan: &Plan, space: u32, instance: Instance) -> Option<Self> {
        let mut item_of = vec![u32::MAX; problem.buffers.len()];
        (0..).zip(&instance.source).for_each(|(item, &buffer)| item_of[buffer as usize] = item);
        let spot = |(&buffer, item): (&u32, &Item)| {
            let offset = plan.offsets[buffer as usize];
            (offset, offset + item.size)
        };
        let spots: Vec<Spot> = instance.source.iter().zip(&instance.items).map(spot).collect();
        let mean = instance.pair_count() / instance.len().max(1) as u64;
        Some(Self {
            neighbours: Neighbours::new(&instance, usize::try_from(mean).unwrap_or(usize::MAX)),
            item_of,
            ends: Profile::new(spots.iter().map(|spot| spot.1).collect()),
            spots,
            bound: LiveBound::new(&instance)?,
            watch: Watch::new(problem, plan, space),
            instance,
        })
    }

    /// Gives these buffers their new sizes and makes room for them. `None` where that leads too high, or beyond 64 bits.
    fn mend(
        &mut self,
        problem: &Problem,
        changed: &[u32],
        slack_percent: u64,
        report: &mut SpaceReport,
        moves: &mut Vec<Move>,
    ) -> Option<()> {
        let changed: Vec<u32> = changed.iter().map(|&buffer| self.item_of[buffer as usize]).collect();
        for &item in &changed {
            let (at, buffer) = (item as usize, self.instance.source[item as usize]);
            let new = problem.buffers[buffer as usize].size_bytes;
            let old = core::mem::replace(&mut self.instance.items[at].size, new);
            self.bound.resized(&self.instance, self.neighbours.life(at), old)?;
            self.spots[at].1 = self.spots[at].0.checked_add(new)?;
        }
        let mut homeless = self.displaced(&changed)?;
        // Largest first, but one stretch of time after another: what is looked at is near what was.
        let Self { instance, neighbours, spots, ends, bound, .. } = self;
        let size = |item: u32| instance.items[item as usize].size;
        homeless.sort_unstable_by_key(|&item| (item / STRETCH, core::cmp::Reverse(size(item)), item));
        place_indexed(instance, neighbours, &homeless, Fit::First, spots, &Clock::endless());
        let spot = |item: &u32| spots[*item as usize];
        changed.iter().chain(&homeless).for_each(|item| ends.set(*item as usize, spot(item).1));
        moves.extend(homeless.iter().map(|item| (instance.source[*item as usize], spot(item).0)));
        let (peak_bytes, bound_bytes) = (ends.most().max(instance.floor), bound.get(instance));
        let limit = u128::from(bound_bytes) * u128::from(slack_percent.saturating_add(100)) / 100;
        let status = if peak_bytes == bound_bytes { Status::Optimal } else { Status::Feasible };
        *report = SpaceReport { peak_bytes, bound_bytes, status, ..report.clone() };
        let fits = peak_bytes <= instance.capacity && peak_bytes < NONE;
        (fits && u128::from(peak_bytes) <= limit).then_some(())
    }

    /// Takes the place of items that share bytes with a changed one, or that of the changed one: the smaller gives way,
    /// what is pinned never. `None` where two that are pinned meet, or one stands out.
    fn displaced(&mut self, changed: &[u32]) -> Option<Vec<u32>> {
        let Self { instance, neighbours, spots, .. } = self;
        let pinned = |item: u32| instance.pin(item as usize).is_some();
        let (mut homeless, mut meets) = (Vec::new(), Vec::<u32>::new());
        for &item in changed {
            let (from, to) = spots[item as usize];
            neighbours.each(item as usize, |other| {
                if spots[other].0 < to && from < spots[other].1 {
                    meets.push(u32::try_from(other).unwrap_or(u32::MAX));
                }
            });
            let size = instance.items[item as usize].size;
            let stays = |&other: &u32| pinned(other) || instance.items[other as usize].size >= size;
            if pinned(item) && (to > instance.capacity || meets.iter().any(|&other| pinned(other))) {
                return None;
            }
            if !pinned(item) && from != NONE && (to > instance.capacity || meets.iter().any(stays)) {
                meets.clear();
                meets.push(item);
            }
            for &loser in &meets {
                spots[loser as usize] = NOWHERE;
            }
            homeless.append(&mut meets);
        }
        Some(homeless)
    }
}
