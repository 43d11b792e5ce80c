#![forbid(unsafe_code)]
//! What a method asks of each space: the list that loading carves from, and that is shown before.
//!
//! ```text
//!   planned   a block per memory id, but for scratch that is lent
//!   staging   unplanned inputs and outputs
//!   copies    outputs that another method's run may write over
//!   lent      scratch, if no other method has brought as much already
//!   state     what methods share, once per loader
//! ```
//!
//! Deliberately absent: what a delegate or a kernel's scratch takes; only loading and running tell.

use super::copies;
use super::error::LoadError;
use super::holdings::{Want, block_align};
use super::load::{LoadOptions, Share};
use super::placement::Placement;
use super::shared::shared_entry;
use crate::program::{MethodPlan, Program, Storage};
use crate::space::SpaceId;
use crate::value::Value;
use core::fmt;

/// The blocks that a method wants of its own.
#[derive(Debug)]
pub(super) struct Wants {
    /// One per memory id, then one per staged tensor, then one per copied tensor.
    pub(super) blocks: Vec<Want>,
    /// Tensor indices of unplanned inputs and outputs.
    pub(super) staged: Vec<usize>,
    /// Tensor indices of outputs that others may write over.
    pub(super) copied: Vec<usize>,
}

impl Wants {
    /// What method `index` wants.
    ///
    /// # Errors
    /// [`LoadError::MissingSpace`] for an unplanned input or output.
    pub(super) fn of(
        program: &Program,
        index: usize,
        placement: &Placement,
        options: &LoadOptions,
    ) -> Result<Self, LoadError> {
        let plan = &program.methods()[index];
        let lends = |id: usize| id < placement.lent_ids;
        let own = placement.buffers.iter().enumerate().map(|(id, &(space, size_bytes))| Want {
            space,
            size_bytes: if lends(id) { 0 } else { size_bytes },
        });
        let mut wants = Self { blocks: own.collect(), staged: Vec::new(), copied: Vec::new() };
        for &id in plan.inputs.iter().chain(&plan.outputs) {
            let (Some(spec), Value::Tensor(tensor)) = (plan.tensor(id), plan.value(id)) else { continue };
            let tensor = tensor as usize;
            if spec.storage == Storage::Supplied && !wants.staged.contains(&tensor) {
                let space = resolve(plan, options, spec.space, spec.size_bytes)?;
                wants.staged.push(tensor);
                wants.blocks.push(Want { space, size_bytes: spec.size_bytes });
            }
        }
        let others = |tensor: usize| {
            let shared = options.share != Share::Nothing && shared_entry(program, (index, tensor)).is_some();
            shared || placement.place(tensor).is_some_and(|(id, _)| lends(id))
        };
        for (tensor, of) in copies::wanted(plan, &others) {
            let space = placement.place(of).map_or(SpaceId::HOST, |(id, _)| placement.buffers[id].0);
            wants.copied.push(tensor);
            wants.blocks.push(Want { space, size_bytes: plan.tensors[tensor].size_bytes });
        }
        Ok(wants)
    }

    /// The blocks of memory ids.
    fn planned(&self) -> &[Want] {
        &self.blocks[..self.blocks.len() - self.staged.len() - self.copied.len()]
    }

    /// The blocks of unplanned inputs and outputs.
    pub(super) fn staging(&self) -> &[Want] {
        &self.blocks[self.planned().len()..self.blocks.len() - self.copied.len()]
    }

    /// The blocks of copies.
    pub(super) fn copies(&self) -> &[Want] {
        &self.blocks[self.blocks.len() - self.copied.len()..]
    }

    /// The blocks of state that the methods of a program share.
    pub(super) fn shared_state(program: &Program, options: &LoadOptions) -> Vec<Want> {
        let want = |entry: &crate::program::SharedState| {
            let method =
                entry.members.first().and_then(|member| program.methods().get(member.method as usize));
            let buffer = method.and_then(|method| method.buffers.get(entry.buffer as usize));
            let space = buffer.map_or(SpaceId::HOST, |buffer| buffer.space);
            let space = options.arenas.resolve(space).unwrap_or(space);
            Want { space, size_bytes: entry.size_bytes }
        };
        program.shared_state().iter().map(want).collect()
    }
}

/// The space of an unplanned tensor.
fn resolve(
    plan: &MethodPlan,
    options: &LoadOptions,
    space: SpaceId,
    needed_bytes: usize,
) -> Result<SpaceId, LoadError> {
    options.arenas.resolve(space).map_err(|missing| LoadError::MissingSpace {
        method: plan.name.to_string(),
        buffer: 0,
        needed_bytes,
        space: missing.id,
        present: missing.to_string(),
    })
}

/// When a method takes memory, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Planned buffers of its own.
    Planned,
    /// Unplanned inputs and outputs.
    Staging,
    /// Outputs that another method's run may write over.
    Copies,
    /// Scratch that methods lend each other, if none has brought as much already.
    Lent,
    /// State that methods share, if none has brought it already.
    State,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Planned => "planned",
            Self::Staging => "staging",
            Self::Copies => "copies",
            Self::Lent => "lent",
            Self::State => "state",
        })
    }
}

/// Bytes that loading a method takes from one space for one purpose. A space whose limit leaves the sum of its rows
/// is enough, unless delegates or the scratch of kernels want more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Need {
    /// The space, after remapping.
    pub space: SpaceId,
    /// What for.
    pub stage: Stage,
    /// How many bytes, each block rounded up to the alignment of the space.
    pub size_bytes: usize,
}

/// What loading method `index` takes, as far as its file tells; rows of no bytes are left out.
pub(super) fn needs(
    program: &Program,
    index: usize,
    placement: &Placement,
    options: &LoadOptions,
    wants: &Wants,
) -> Vec<Need> {
    let lent = placement.buffers.iter().take(placement.lent_ids);
    let lent: Vec<Want> = lent.map(|&(space, size_bytes)| Want { space, size_bytes }).collect();
    let is_mine = |member: &crate::program::StateMember| member.method as usize == index;
    let shares = options.share != Share::Nothing
        && program.shared_state().iter().any(|entry| entry.members.iter().any(is_mine));
    let state = if shares { Wants::shared_state(program, options) } else { Vec::new() };
    let stages = [
        (Stage::Planned, wants.planned()),
        (Stage::Staging, wants.staging()),
        (Stage::Copies, wants.copies()),
        (Stage::Lent, &lent),
        (Stage::State, &state),
    ];
    let mut needs: Vec<Need> = Vec::new();
    for (stage, wants) in stages {
        for &Want { space, size_bytes } in wants.iter().filter(|want| want.size_bytes > 0) {
            let size_bytes = size_bytes.checked_next_multiple_of(block_align(space)).unwrap_or(usize::MAX);
            match needs.iter_mut().find(|need| (need.space, need.stage) == (space, stage)) {
                Some(need) => need.size_bytes = need.size_bytes.saturating_add(size_bytes),
                None => needs.push(Need { space, stage, size_bytes }),
            }
        }
    }
    needs
}
