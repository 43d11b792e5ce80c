#![forbid(unsafe_code)]
//! Where a method's planned tensors lie: as its file says, or planned anew.
//!
//! ```text
//!   file      memory id 1: 640 B in host    memory id 2: 2048 B in host      offsets of the exporter
//!   anew      memory id 1: 768 B in host    memory id 2: –                   one plan per space
//! ```
//!
//! A new plan takes lifespans from the instructions ([`super::lifetimes`]) and is checked by the same walk as the
//! file's own ([`super::flow`]). Deliberately absent: memory; see [`super::planned`].

use super::error::LoadError;
use super::holdings::block_align;
use super::lifetimes::{LiveBuffer, live_buffers};
use super::state::Roles;
use crate::kernel::Kernel;
use crate::plan::{Budget, BufferSpec, Exact, GreedyBySize, Lifespan, Plan, PlanError, Planner, Problem};
use crate::program::{MethodPlan, Storage};
use crate::space::SpaceId;
use core::time::Duration;

/// Which memory plan a method is loaded with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replan {
    /// The one in the file.
    #[default]
    File,
    /// A new one, by size, in microseconds to milliseconds.
    Greedy,
    /// The best that can be found in two seconds.
    Best,
}

/// The alignment that a new plan gives every buffer, in bytes: what exporters give.
const ALIGN: usize = 16;

/// What [`Replan::Best`] may spend.
const BUDGET: Duration = Duration::from_secs(2);

/// Where every planned tensor lies.
#[derive(Debug)]
pub(super) struct Placement {
    /// Per memory id, the space after remapping and the bytes; empty where a new plan has no use for it.
    pub(super) buffers: Vec<(SpaceId, usize)>,
    /// Per tensor, the memory id and the offset in bytes; `None` for tensors that are not planned.
    places: Vec<Option<(usize, usize)>>,
    /// Per memory id, the bytes that the file asks for; past the file's own ids none.
    pub(super) file_bytes: Vec<usize>,
    /// Memory ids below this one are scratch that other methods use too.
    pub(super) lent_ids: usize,
}

impl Placement {
    /// The file's own.
    pub(super) fn of_file(plan: &MethodPlan, spaces: &[SpaceId]) -> Self {
        let place = |storage: Storage| match storage {
            Storage::Planned { buffer, offset_bytes, .. } => Some((buffer as usize, offset_bytes)),
            _ => None,
        };
        let file_bytes: Vec<usize> = plan.buffers.iter().map(|buffer| buffer.size_bytes).collect();
        Self {
            buffers: spaces.iter().copied().zip(file_bytes.iter().copied()).collect(),
            places: plan.tensors.iter().map(|tensor| place(tensor.storage)).collect(),
            file_bytes,
            lent_ids: 0,
        }
    }

    /// The place of a tensor: its memory id and the offset in bytes.
    pub(super) fn place(&self, tensor: usize) -> Option<(usize, usize)> {
        self.places.get(tensor).copied().flatten()
    }

    /// Plans anew, one plan per space; the file's own placement stays where it is no worse.
    ///
    /// # Errors
    /// [`LoadError::CannotReplan`] where control flow hides lifespans, or the planner refuses.
    pub(super) fn replanned(
        self,
        plan: &MethodPlan,
        kernels: &[Kernel],
        roles: &Roles,
        how: Replan,
    ) -> Result<Self, LoadError> {
        let refused = |reason: String| LoadError::CannotReplan { method: plan.name.to_string(), reason };
        let Some(live) = live_buffers(plan, kernels, roles) else {
            return Err(refused(
                "it has jumps or moves, so that what is alive when depends on the run".into(),
            ));
        };
        let problem = self.problem(&live);
        let found = match how {
            Replan::File => return Ok(self),
            Replan::Greedy => GreedyBySize.plan(&problem),
            Replan::Best => Exact::new(Budget::default().and_time(BUDGET)).plan(&problem),
        };
        let found = found.map_err(|error: PlanError| refused(error.to_string()))?;
        let better = self.by(&live, &found, &problem);
        let total = |layout: &Self| layout.buffers.iter().map(|buffer| buffer.1).sum::<usize>();
        Ok(if total(&better) < total(&self) { better } else { self })
    }

    /// Sets the tensors whose bytes must outlive a run apart from scratch, so that scratch can be lent.
    ///
    /// ```text
    ///   id 1: a a s s s b b c         id 1: a a · · · b b c    lent
    ///         (s is kept)             id 3: s s s              this method's own
    /// ```
    /// A kept tensor takes those that share bytes with it along: views of it.
    pub(super) fn apart(mut self, plan: &MethodPlan, is_kept: &[bool]) -> Self {
        let ids = self.buffers.len();
        for id in 0..ids {
            let space = self.buffers[id].0;
            let mut inside: Vec<(usize, usize, usize)> = Vec::new();
            for (tensor, spec) in plan.tensors.iter().enumerate() {
                if let Some((_, start)) = self.place(tensor).filter(|place| place.0 == id) {
                    inside.push((start, start + spec.size_bytes, tensor));
                }
            }
            inside.sort_unstable();
            let (mut lent_end, mut kept_end) = (0_usize, 0_usize);
            // Runs of tensors that share bytes, one with the next.
            let mut first = 0;
            while first < inside.len() {
                let (start, mut end, _) = inside[first];
                let mut past = first + 1;
                while past < inside.len() && inside[past].0 < end {
                    end = end.max(inside[past].1);
                    past += 1;
                }
                if inside[first..past].iter().any(|&(_, _, tensor)| is_kept[tensor]) {
                    // As aligned as before.
                    let align = block_align(space);
                    let base = kept_end.next_multiple_of(align) + start % align;
                    for &(offset, _, tensor) in &inside[first..past] {
                        self.places[tensor] = Some((self.buffers.len(), base + (offset - start)));
                    }
                    kept_end = base + (end - start);
                } else {
                    lent_end = end;
                }
                first = past;
            }
            self.buffers[id].1 = lent_end;
            if kept_end > 0 {
                self.buffers.push((space, kept_end));
                self.file_bytes.push(0);
            }
        }
        self.lent_ids = ids;
        self
    }

    /// The planning problem of some live buffers: each in the memory id that stands for its space.
    pub(super) fn problem(&self, live: &[LiveBuffer]) -> Problem {
        let spec = |buffer: &LiveBuffer| {
            let space = self.standing_for(buffer.buffer);
            let lifespan = Lifespan::new(buffer.first, buffer.last);
            BufferSpec::new(buffer.size_bytes as u64, lifespan)
                .align_bytes(ALIGN as u64)
                .in_space(u32::try_from(space).unwrap_or(u32::MAX))
        };
        Problem::new(live.iter().map(spec).collect())
            .with_spaces(vec![crate::plan::SpaceSpec::default(); self.buffers.len()])
    }

    /// The first memory id in the space of this one.
    fn standing_for(&self, buffer: usize) -> usize {
        let space = self.buffers[buffer].0;
        // Id 0 is reserved.
        (1..self.buffers.len()).find(|&id| self.buffers[id].0 == space).unwrap_or(buffer)
    }

    fn by(&self, live: &[LiveBuffer], plan: &Plan, problem: &Problem) -> Self {
        let mut places = vec![None; self.places.len()];
        let mut buffers: Vec<(SpaceId, usize)> = self.buffers.iter().map(|buffer| (buffer.0, 0)).collect();
        for (index, buffer) in live.iter().enumerate() {
            let id = problem.buffers[index].space as usize;
            let offset = usize::try_from(plan.offsets[index]).unwrap_or(usize::MAX);
            for &tensor in &buffer.tensors {
                places[tensor] = Some((id, offset));
            }
            let end = offset.saturating_add(buffer.size_bytes).next_multiple_of(ALIGN);
            buffers[id].1 = buffers[id].1.max(end);
        }
        Self { buffers, places, file_bytes: self.file_bytes.clone(), lent_ids: 0 }
    }
}
