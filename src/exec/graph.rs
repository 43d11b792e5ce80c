#![forbid(unsafe_code)]
//! Captured methods: the device work of a run, recorded once and launched as one.
//!
//! ```text
//!   capture() ─► eager, eager ─► recorded ─► launched, launched, …      other sizes: eager, as before
//! ```
//!
//! The eager runs settle what happens only at first: kernels are loaded, scratch finds its size, outputs find
//! their place. Nothing but uploads, delegates and downloads can be recorded: what the host computes in
//! between would be left out. Deliberately absent: freeing memory that a graph uses; arenas never move.

use super::device::pieces;
use super::error::ExecError;
use super::method::Method;
use super::step::Step;
use crate::program::MethodPlan;
use crate::space::{GraphId, Piece, QueueError, SpaceId};

/// Runs before recording.
const EAGER_RUNS: u8 = 2;

/// What is known of a method's graph.
#[derive(Debug, Default)]
pub(super) enum Graph {
    /// None is wanted.
    #[default]
    Off,
    /// So many eager runs are left before one is recorded.
    Warming(u8),
    /// Recorded.
    Ready(Recorded),
}

/// A recorded graph and the pieces that its copies take.
#[derive(Debug)]
pub(super) struct Recorded {
    id: GraphId,
    space: SpaceId,
    uploads: Vec<Piece>,
    downloads: Vec<Piece>,
    sizes_bytes: Vec<usize>,
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
        if matches!(self.graph, Graph::Off) {
            self.graph = Graph::Warming(EAGER_RUNS);
        }
        Ok(())
    }

    /// Whether runs launch a recorded graph.
    pub fn is_captured(&self) -> bool {
        matches!(self.graph, Graph::Ready(_))
    }

    /// Forgets the graph; runs are eager again.
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

    /// Runs, by the graph where there is one.
    pub(super) fn run_recorded(&mut self, plan: &MethodPlan) -> Result<(), ExecError> {
        match &mut self.graph {
            Graph::Off => return self.run(plan),
            Graph::Warming(left @ 1..) => {
                *left -= 1;
                return self.run(plan);
            }
            Graph::Warming(0) => {
                if let Err(error) = self.record(plan) {
                    self.graph = Graph::Off;
                    return Err(error);
                }
            }
            Graph::Ready(_) => {}
        }
        self.launch(plan)
    }

    fn graph_error(&self, error: &QueueError) -> ExecError {
        ExecError::Graph { method: self.name().to_string(), reason: error.to_string() }
    }

    fn record(&mut self, plan: &MethodPlan) -> Result<(), ExecError> {
        if let Some(reason) = self.delegates().iter().find_map(|delegate| delegate.refuses_capture()) {
            return Err(ExecError::Graph { method: self.name().to_string(), reason });
        }
        let Some(queue) = self.planned.holdings.queues.first_mut() else { return Ok(()) };
        let space = queue.space();
        let begun = queue.begin_capture();
        begun.map_err(|error| self.graph_error(&error))?;
        let done = self.run_steps(plan);
        let Some(queue) = self.planned.holdings.queues.first_mut() else { return Ok(()) };
        let ended = queue.end_capture();
        done?;
        let id = ended.map_err(|error| self.graph_error(&error))?;
        let mut recorded =
            Recorded { id, space, uploads: Vec::new(), downloads: Vec::new(), sizes_bytes: Vec::new() };
        self.fill_pieces(plan, &mut recorded)?;
        recorded.sizes_bytes = recorded.sizes().collect();
        self.graph = Graph::Ready(recorded);
        Ok(())
    }

    fn fill_pieces(&mut self, plan: &MethodPlan, recorded: &mut Recorded) -> Result<(), ExecError> {
        let (values, tensors, steps) = self.tables.parts();
        let (uploads, downloads) = (&mut recorded.uploads, &mut recorded.downloads);
        pieces(plan, values, tensors, steps, uploads, downloads)
            .map_err(|source| ExecError::Graph { method: plan.name.to_string(), reason: source.to_string() })
    }

    /// Launches the graph; where sizes are others than the recorded ones, runs as always.
    fn launch(&mut self, plan: &MethodPlan) -> Result<(), ExecError> {
        let Graph::Ready(mut recorded) = core::mem::take(&mut self.graph) else { return self.run(plan) };
        let filled = self.fill_pieces(plan, &mut recorded);
        let same = recorded.sizes().eq(recorded.sizes_bytes.iter().copied());
        let done = match filled {
            Err(error) => Err(error),
            Ok(()) if !same => self.run(plan),
            Ok(()) => self
                .planned
                .holdings
                .replay(recorded.space, recorded.id, &recorded.uploads, &recorded.downloads)
                .map_err(|error| self.graph_error(&error)),
        };
        self.graph = Graph::Ready(recorded);
        done
    }
}

impl Recorded {
    fn sizes(&self) -> impl Iterator<Item = usize> + '_ {
        self.uploads.iter().chain(&self.downloads).map(|piece| piece.size_bytes)
    }
}
