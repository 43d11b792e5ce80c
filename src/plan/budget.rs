#![forbid(unsafe_code)]
//! How long a search may go on, and who may stop it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a search may spend. Each limit stops it alone; the best plan so far is returned.
///
/// A limit in nodes gives the same plan on every machine, a limit in time does not.
///
/// # Examples
/// ```
/// use arenite::plan::Budget;
/// use std::time::Duration;
/// let patient = Budget::nodes(u64::MAX).and_time(Duration::from_secs(10));
/// # let _ = patient;
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Budget {
    /// The most search nodes; a node takes a few microseconds. One of a part of n buffers counts 1 + n/512.
    pub nodes_max: u64,
    /// The longest time, counted from the call.
    pub time_max: Option<Duration>,
    /// The most bytes for the search's lists; larger parts are planned by heuristics only.
    pub memory_max_bytes: usize,
}

impl Default for Budget {
    /// A million nodes (some seconds at most) and 1 GiB, without a clock.
    fn default() -> Self {
        Self::nodes(1_000_000)
    }
}

impl Budget {
    /// This many search nodes.
    pub fn nodes(nodes_max: u64) -> Self {
        Self { nodes_max, time_max: None, memory_max_bytes: 1 << 30 }
    }

    /// This long.
    pub fn time(time_max: Duration) -> Self {
        Self::nodes(u64::MAX).and_time(time_max)
    }

    /// No longer than this either.
    #[must_use]
    pub fn and_time(mut self, time_max: Duration) -> Self {
        self.time_max = Some(time_max);
        self
    }

    /// No more memory than this either.
    #[must_use]
    pub fn and_memory_bytes(mut self, memory_max_bytes: usize) -> Self {
        self.memory_max_bytes = memory_max_bytes;
        self
    }
}

/// Stops a search from another thread.
///
/// # Examples
/// ```
/// use arenite::plan::Cancel;
/// let cancel = Cancel::default();
/// let other = cancel.clone();
/// std::thread::spawn(move || other.cancel()).join().ok();
/// assert!(cancel.is_cancelled());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the search to return its best plan so far.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A budget being spent.
pub(crate) struct Clock {
    start: Instant,
    deadline: Option<Instant>,
    keeps_back: bool,
    /// What a step of preparation takes at most, as far as is known.
    step_nanos: u64,
    nodes: u64,
    cancel: Option<Cancel>,
    pub memory_max_bytes: usize,
}

impl Clock {
    pub(crate) fn new(budget: &Budget, cancel: Option<&Cancel>) -> Self {
        let start = Instant::now();
        Self {
            start,
            deadline: budget.time_max.and_then(|time| start.checked_add(time)),
            keeps_back: false,
            step_nanos: 10,
            nodes: budget.nodes_max,
            cancel: cancel.cloned(),
            memory_max_bytes: budget.memory_max_bytes,
        }
    }

    /// One that never stops.
    pub(crate) fn endless() -> Self {
        Self::new(&Budget::nodes(u64::MAX), None)
    }

    /// Whether no more may be spent on a search.
    pub(crate) fn is_over(&self) -> bool {
        self.nodes == 0 || self.is_late()
    }

    /// Whether it is time to return, whatever is at hand.
    pub(crate) fn is_late(&self) -> bool {
        self.cancel.as_ref().is_some_and(Cancel::is_cancelled)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Whether time is limited.
    pub(crate) fn is_timed(&self) -> bool {
        self.deadline.is_some()
    }

    /// Ends the search: the next thing to do would take too long.
    pub(crate) fn stop(&mut self) {
        self.nodes = 0;
    }

    /// Leaves this much time before the deadline for what follows the search.
    pub(crate) fn keep_back(&mut self, time: Duration) {
        self.deadline = self.deadline.map(|deadline| deadline.checked_sub(time).unwrap_or(self.start));
    }

    /// Leaves time to verify and hand over a plan of this many buffers, going by how long it took to get here.
    pub(crate) fn keep_back_for(&mut self, buffers: usize) {
        if !std::mem::replace(&mut self.keeps_back, true) && self.deadline.is_some() {
            let per_buffer = |nanos: u64| Duration::from_nanos(nanos.saturating_mul(buffers as u64));
            self.keep_back((self.start.elapsed() * 4).clamp(per_buffer(120), per_buffer(480)));
        }
    }

    pub(crate) fn spend(&mut self, nodes: u64) {
        self.nodes = self.nodes.saturating_sub(nodes);
    }

    /// Does something of this many steps if there is time for it, and learns how long a step takes.
    pub(crate) fn afford<R>(&mut self, steps: u64, work: impl FnOnce() -> R) -> Option<R> {
        let Some(deadline) = self.deadline else { return Some(work()) };
        let from = Instant::now();
        if from + Duration::from_nanos(steps.saturating_mul(self.step_nanos)) >= deadline {
            return None;
        }
        let done = work();
        let took = u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.step_nanos = self.step_nanos.max(took.saturating_mul(2) / steps.max(10_000));
        Some(done)
    }
}
