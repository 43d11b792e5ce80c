#![forbid(unsafe_code)]
//! Captured methods: the device work of a run, recorded once and launched as one.
//!
//! ```text
//!   capture() ─► eager, eager ─────► recorded ─► launched, launched, …      other sizes: eager, as before
//!   load ─► eager, … capture_after ─► recorded, where that can be ─► launched, …
//! ```
//!
//! The eager runs settle what happens only at first: kernels are loaded, scratch finds its size, outputs find
//! their place. Nothing but uploads, delegates and downloads can be recorded: what the host computes in
//! between would be left out. What was not asked for fails silently, and is for runs between host memory only: a
//! caller's stream may be in the middle of a capture of its own. Deliberately absent: freeing memory that a graph
//! uses; arenas never move.

use super::device::pieces;
use super::error::ExecError;
use super::mapped::PINNED_END_MAX;
use super::method::Method;
use super::resident::Ends;
use super::step::Step;
use crate::program::MethodPlan;
use crate::space::{GraphId, Piece, QueueError, SpaceId};
use crate::tensor::Dims;
use crate::value::{Span, Value};

/// Runs before a recording that was asked for.
const EAGER_RUNS: u32 = 2;

/// What is known of a method's graph.
#[derive(Debug, Default)]
pub(super) enum Graph {
    /// None is wanted.
    #[default]
    Off,
    /// So many eager runs are left before one is recorded.
    Warming { left: u32, asked: bool },
    /// Recorded.
    Ready(Recorded),
}

/// A recorded graph and the pieces that its copies take.
#[derive(Debug)]
pub(super) struct Recorded {
    id: GraphId,
    space: SpaceId,
    asked: bool,
    uploads: Vec<Piece>,
    downloads: Vec<Piece>,
    /// The sizes of every tensor in the recorded run.
    sizes: Vec<Dims>,
    /// Whether a run that may have had other sizes came since the last launch.
    others_since: bool,
}

impl Graph {
    /// Before the first run: recorded by itself after so many, where that is wanted and a device does the work.
    pub(super) fn after(runs: Option<u32>, queues: usize) -> Self {
        match runs {
            Some(left) if queues == 1 => Self::Warming { left, asked: false },
            _ => Self::Off,
        }
    }
}

impl Method {
    /// Wants the method's device work recorded as a graph: the next two runs are as always, the one after
    /// records, and later ones launch the record. Inputs and outputs are as always. Runs with other sizes than
    /// the recorded ones are as always too.
    ///
    /// # Errors
    /// [`ExecError::Graph`] with the reason, where the method cannot be recorded.
    pub fn capture(&mut self) -> Result<(), ExecError> {
        if let Some(reason) = self.refuses_graph() {
            return Err(ExecError::Graph { method: self.name().to_string(), reason });
        }
        match &mut self.graph {
            Graph::Ready(recorded) => recorded.asked = true,
            Graph::Warming { asked: true, .. } => {}
            graph => *graph = Graph::Warming { left: EAGER_RUNS, asked: true },
        }
        Ok(())
    }

    /// Whether runs launch a recorded graph.
    pub fn is_captured(&self) -> bool {
        matches!(self.graph, Graph::Ready(_))
    }

    /// Forgets the graph; runs are eager again, until [`Method::capture`].
    pub fn discard_graph(&mut self) {
        if let Graph::Ready(recorded) = core::mem::take(&mut self.graph)
            && let Some(queue) = self.planned.holdings.queue(recorded.space)
        {
            queue.discard(recorded.id);
        }
    }

    fn refuses_graph(&mut self) -> Option<String> {
        let mut delegates = 0;
        for (at, step) in self.tables.parts().2.iter().enumerate() {
            match step {
                Step::Upload { .. } | Step::Download { .. } => {}
                Step::Delegate { .. } => delegates += 1,
                _ => return Some(format!("instruction {at} runs on the host")),
            }
        }
        if self.has_device_ends() {
            return Some(
                "its inputs or outputs on the device have no planned memory: a graph would have to copy them, and \
                 runs are faster without"
                    .into(),
            );
        }
        match (delegates, self.planned.holdings.queues.len()) {
            (0, _) => Some("it has no work on a device".into()),
            (_, 1) => None,
            (_, queues) => Some(format!("its work is on {queues} devices, expected one")),
        }
    }

    /// Why a graph would gain nothing, where a copy is long: memory for it is not pinned, and would be copied by the CPU
    /// too.
    fn copies_much(&mut self, plan: &MethodPlan) -> Option<String> {
        let is_long = |args: Span| {
            let mut ends = args.of(&plan.lists.ids).iter().filter_map(|&id| plan.tensor(id));
            ends.any(|spec| spec.size_bytes > PINNED_END_MAX)
        };
        let long =
            |step: &Step| matches!(*step, Step::Upload { args } | Step::Download { args } if is_long(args));
        let reason = || format!("it copies more than {PINNED_END_MAX} bytes at a time");
        self.tables.parts().2.iter().any(long).then(reason)
    }

    /// Runs, by the graph where there is one.
    pub(super) fn run_recorded(&mut self, plan: &MethodPlan, ends: Ends) -> Result<(), ExecError> {
        let on_host = matches!(ends, Ends::Host);
        match &mut self.graph {
            Graph::Off => return self.run(plan),
            Graph::Warming { asked: false, .. } if !on_host => return self.run(plan),
            Graph::Ready(recorded) if !recorded.asked && !on_host => {
                recorded.others_since = true;
                return self.run(plan);
            }
            Graph::Warming { left: left @ 1.., .. } => {
                *left -= 1;
                return self.run(plan);
            }
            &mut Graph::Warming { asked, .. } => {
                if let Err(error) = self.record(plan, asked) {
                    self.graph = Graph::Off;
                    // Nothing ran yet.
                    return if asked { Err(error) } else { self.run(plan) };
                }
            }
            Graph::Ready(_) => {}
        }
        self.launch(plan)
    }

    fn graph_error(&self, error: &QueueError) -> ExecError {
        ExecError::Graph { method: self.name().to_string(), reason: error.to_string() }
    }

    fn record(&mut self, plan: &MethodPlan, asked: bool) -> Result<(), ExecError> {
        let refused = if asked { None } else { self.refuses_graph().or_else(|| self.copies_much(plan)) };
        let mut refusals = self.delegates().iter().filter_map(|delegate| delegate.refuses_capture());
        if let Some(reason) = refused.or_else(|| refusals.next()) {
            return Err(ExecError::Graph { method: self.name().to_string(), reason });
        }
        let Some(queue) = self.planned.holdings.queues.first_mut() else { return Ok(()) };
        let space = queue.space();
        let begun = queue.begin_capture(&self.planned.mapped.host_ends());
        begun.map_err(|error| self.graph_error(&error))?;
        let done = self.run_steps(plan);
        let Some(queue) = self.planned.holdings.queues.first_mut() else { return Ok(()) };
        let ended = queue.end_capture();
        if done.is_err()
            && let Ok(id) = ended
        {
            queue.discard(id);
        }
        done?;
        let id = ended.map_err(|error| self.graph_error(&error))?;
        let tensors = self.tables.tensors().iter();
        let sizes = tensors.map(|tensor| Dims::new(tensor.sizes()).unwrap_or_else(Dims::empty)).collect();
        let (uploads, downloads) = (Vec::new(), Vec::new());
        let mut recorded = Recorded { id, space, asked, uploads, downloads, sizes, others_since: false };
        let filled = self.fill_pieces(plan, &mut recorded);
        self.graph = Graph::Ready(recorded);
        filled.inspect_err(|_| self.discard_graph())
    }

    fn fill_pieces(&mut self, plan: &MethodPlan, recorded: &mut Recorded) -> Result<(), ExecError> {
        let (values, tensors, steps) = self.tables.parts();
        let (uploads, downloads) = (&mut recorded.uploads, &mut recorded.downloads);
        pieces(plan, values, tensors, steps, uploads, downloads)
            .map_err(|source| ExecError::Graph { method: plan.name.to_string(), reason: source.to_string() })
    }

    /// Whether inputs have the sizes that they had in the recorded run.
    fn fits(&self, plan: &MethodPlan, recorded: &Recorded) -> bool {
        plan.inputs.iter().all(|&id| match plan.value(id) {
            Value::Tensor(at) => self.tables.tensors()[at as usize].sizes() == &*recorded.sizes[at as usize],
            _ => true,
        })
    }

    /// Launches the graph; where inputs have other sizes than recorded ones, runs as always. So it does for good where
    /// a graph that nobody asked for cannot be launched.
    fn launch(&mut self, plan: &MethodPlan) -> Result<(), ExecError> {
        let Graph::Ready(mut recorded) = core::mem::take(&mut self.graph) else { return self.run(plan) };
        let asked = recorded.asked;
        let launched = self.fits(plan, &recorded).then(|| self.replay(plan, &mut recorded));
        recorded.others_since = launched.is_none();
        self.graph = Graph::Ready(recorded);
        match launched {
            Some(Ok(())) => self.finish(plan),
            Some(Err(error)) if asked => Err(error),
            Some(Err(_)) => {
                // Nothing of it ran.
                self.discard_graph();
                self.run(plan)
            }
            None => self.run(plan),
        }
    }

    fn replay(&mut self, plan: &MethodPlan, recorded: &mut Recorded) -> Result<(), ExecError> {
        if recorded.others_since {
            for (tensor, sizes) in self.tables.parts().1.iter_mut().zip(&recorded.sizes) {
                let resized = tensor.resize(sizes);
                debug_assert!(resized.is_ok(), "sizes that it had");
            }
        }
        self.fill_pieces(plan, recorded)?;
        let Recorded { space, id, uploads, downloads, .. } = recorded;
        let replayed = self.planned.holdings.replay(*space, *id, uploads, downloads);
        replayed.map_err(|error| self.graph_error(&error))
    }
}
