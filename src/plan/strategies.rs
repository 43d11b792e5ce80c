#![forbid(unsafe_code)]
//! The strategies, each a [`Planner`].

use std::sync::Arc;

use super::Plan;
use super::budget::{Budget, Cancel, Clock};
use super::error::PlanError;
use super::exact::{Best, improve};
use super::fit::{Crowd, Fit};
use super::instance::{Instance, align_up};
use super::portfolio::{by_size, by_start, cheap, fast, in_tiers};
use super::solve::solve;
use super::spec::Problem;

/// Makes a plan for a problem.
///
/// # Examples
/// ```
/// use arenite::plan::{BufferSpec, GreedyBySize, Lifespan, Naive, Planner, Problem};
/// let problem = Problem::new((0..4).map(|step| BufferSpec::new(100, Lifespan::new(step, step + 2))).collect());
/// let planners: [&dyn Planner; 2] = [&Naive, &GreedyBySize];
/// let peaks = planners.map(|planner| planner.plan(&problem).map(|plan| plan.peak_bytes(0)));
/// assert_eq!(peaks, [Ok(400), Ok(200)]);
/// ```
pub trait Planner {
    /// A verified plan: every offset aligned and in range, no two live buffers on one byte.
    ///
    /// # Errors
    /// [`PlanError`] if the problem contradicts itself, or if no plan that fits was found.
    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError>;
}

fn with_peak(instance: &Instance, offsets: Vec<u64>, bound: u64) -> Best {
    Best { peak: instance.peak_saturating(&offsets), offsets, bound }
}

/// No sharing: every buffer has bytes of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Naive;

impl Planner for Naive {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        solve(problem, &mut |instance, bound| {
            // Pinned buffers may lie anywhere; the others start above all of them.
            let pinned =
                (0..instance.len()).filter_map(|item| Some(instance.pin(item)? + instance.items[item].size));
            let mut top = pinned.max().unwrap_or(0);
            let offsets = (0..instance.len()).map(|item| {
                instance.pin(item).unwrap_or_else(|| {
                    let offset = align_up(top, instance.align_of(item));
                    top = offset.saturating_add(instance.items[item].size);
                    offset
                })
            });
            let offsets = offsets.collect();
            with_peak(instance, offsets, bound)
        })
    }
}

/// In order of start, each buffer into the lowest gap: what a dynamic allocator does.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstFit;

impl Planner for FirstFit {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        solve(problem, &mut |instance, bound| with_peak(instance, by_start(instance, Fit::First), bound))
    }
}

/// In order of start, each buffer into the smallest gap that holds it.
#[derive(Clone, Copy, Debug, Default)]
pub struct BestFit;

impl Planner for BestFit {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        solve(problem, &mut |instance, bound| with_peak(instance, by_start(instance, Fit::Best), bound))
    }
}

/// What is large, or alive where most bytes are, first; then the others in order of start around it.
///
/// For very long programs: about as tight as [`GreedyBySize`], in little more time than [`BestFit`]. Where most
/// of a program is full, the largest go first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tiered;

impl Planner for Tiered {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        solve(problem, &mut |instance, bound| {
            let offsets = in_tiers(instance, bound);
            with_peak(instance, offsets, bound)
        })
    }
}

/// The largest buffer first, each into the lowest gap. In long programs the others follow in tiers: see [`Tiered`].
///
/// Where those stand out above the bound, more is tried until the peak is within a hundredth of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct GreedyBySize;

impl Planner for GreedyBySize {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        solve(problem, &mut |instance, bound| by_size(instance, &Crowd::new(instance), bound))
    }
}

/// The best of several orders and fits: the fast mode. First it fills the valleys of the skyline one by one, which
/// leads to the least peak for most programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Portfolio;

impl Planner for Portfolio {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        solve(problem, &mut fast)
    }
}

/// Told of each better plan of a space: its peak and the best bound, in bytes.
pub type OnImproved = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// The best plan a budget finds, with a proof where it ends: optimal, or how far it can be from it.
///
/// A larger budget never gives a worse plan; an empty one gives that of the cheap strategies.
///
/// # Examples
/// ```
/// use arenite::plan::{Budget, BufferSpec, Exact, Lifespan, Planner, Problem, Status};
/// let problem = Problem::new(vec![
///     BufferSpec::new(3, Lifespan::new(0, 2)),
///     BufferSpec::new(5, Lifespan::new(1, 4)),
///     BufferSpec::new(4, Lifespan::new(3, 5)),
/// ]);
/// let plan = Exact::new(Budget::nodes(1_000)).plan(&problem)?;
/// assert_eq!((plan.peak_bytes(0), plan.reports[0].status), (9, Status::Optimal));
/// # Ok::<(), arenite::plan::PlanError>(())
/// ```
#[derive(Clone, Default)]
pub struct Exact {
    budget: Budget,
    cancel: Option<Cancel>,
    on_improved: Option<OnImproved>,
    goal: Goal,
}

/// When a search is content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Only at the lowest peak.
    #[default]
    Least,
    /// As soon as every space fits its capacity.
    Fits,
}

impl core::fmt::Debug for Exact {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Exact").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl Exact {
    /// Searches as long as the budget lasts.
    pub fn new(budget: Budget) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Stops early when asked to.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: Cancel) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Stops at the first plan that fits the capacities, instead of going on to the lowest peak.
    #[must_use]
    pub fn stops_when_it_fits(mut self) -> Self {
        self.goal = Goal::Fits;
        self
    }

    /// Calls back at each improvement with the new peak and the bound.
    #[must_use]
    pub fn on_improved(mut self, call: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.on_improved = Some(Arc::new(call));
        self
    }
}

impl Planner for Exact {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
        let mut clock = Clock::new(&self.budget, self.cancel.as_ref());
        let tell = |best: &Best| {
            if let Some(call) = &self.on_improved {
                call(best.peak, best.bound);
            }
        };
        solve(problem, &mut |instance, bound| {
            clock.keep_back_for(problem.buffers.len());
            let mut best = cheap(instance, bound, &clock);
            tell(&best);
            let enough = if self.goal == Goal::Fits { instance.capacity } else { 0 };
            improve(instance, &mut best, enough, &mut clock, &mut |best| tell(best));
            best
        })
    }
}
