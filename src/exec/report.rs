#![forbid(unsafe_code)]
//! Where a method's bytes are: a table for people, numbers for programs.
//!
//! ```text
//! forward   seed_net.pte
//! arena  space    bytes   used by                         shared with
//! 1      host       512   inputs 0,1; output 0            –
//! 2      cuda:0     768   3 tensors                       –
//! ```
//!
//! Deliberately absent: other methods' memory; the arena set reports over all.

use super::lifetimes::{BufferRole, LiveBuffer, live_buffers, live_bytes_max};
use super::load::{LoadOptions, find_kernels};
use super::placement::Placement;
use super::state::{Roles, for_each_tensor};
use super::wants::{Need, Wants, needs};
use crate::program::{MethodPlan, Program, StateMember, Storage};
use crate::space::SpaceId;
use core::fmt;

/// The alignment that lower bounds are rounded to, in bytes: the exporter's.
const BOUND_ALIGN: usize = 16;

/// One planned buffer of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArenaRow {
    /// The memory id; past the plan's own, what was set apart from lent scratch.
    pub index: usize,
    /// The space, after remapping.
    pub space: SpaceId,
    /// How many bytes.
    pub size_bytes: usize,
    /// What lies there, in words; "lent" where other methods use it by turns.
    pub used_by: String,
    /// The methods that share state of it.
    pub shared_with: Vec<String>,
}

/// Bytes of one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceRow {
    /// The space.
    pub space: SpaceId,
    /// Bytes of planned buffers.
    pub planned_bytes: usize,
    /// Bytes held while running: planned buffers, staging, copies of outputs, what delegates hold, and, once there
    /// was a run, the scratch of kernels.
    pub peak_bytes: usize,
    /// Bytes that the file's own plan asks for; planned anew, a method may hold fewer.
    pub file_bytes: usize,
    /// No plan of these instructions needs fewer planned bytes; `None` where that is not known (control flow).
    pub lower_bound_bytes: Option<usize>,
}

impl SpaceRow {
    /// Whether a new plan holds fewer bytes than the file's.
    fn is_replanned(&self) -> bool {
        self.planned_bytes < self.file_bytes
    }
}

/// Where a method's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryReport {
    /// The method.
    pub method: String,
    /// The file.
    pub file: String,
    /// Planned buffers, by memory id.
    pub arenas: Vec<ArenaRow>,
    /// Bytes of constants that this method reads in place; each range once.
    pub constants_bytes: usize,
    /// State: name, space, bytes.
    pub state: Vec<(String, SpaceId, usize)>,
    /// Bytes held for unplanned inputs and outputs.
    pub staging_bytes: usize,
    /// What loading takes, by space and purpose; what delegates take beside it is below.
    pub needs: Vec<Need>,
    /// What delegates hold for good: constants per space. Empty until the method is loaded.
    pub delegate_constants: Vec<(SpaceId, usize)>,
    /// What delegates hold for temporary values, per space. Empty until the method is loaded.
    pub delegate_scratch: Vec<(SpaceId, usize)>,
    /// Totals per space.
    pub spaces: Vec<SpaceRow>,
}

impl MemoryReport {
    /// What a method wants, without taking it: sizes as in its file, spaces as `options` map them, nothing lent.
    ///
    /// # Errors
    /// [`super::LoadError`] where there is no such method.
    pub fn of_plan(program: &Program, name: &str, options: &LoadOptions) -> Result<Self, super::LoadError> {
        let plan = program.method(name)?;
        let space_of = |space: SpaceId| options.arenas.resolve(space).unwrap_or(space);
        let spaces: Vec<SpaceId> = plan.buffers.iter().map(|buffer| space_of(buffer.space)).collect();
        Ok(Self::new(program, plan, options, &Placement::of_file(plan, &spaces)))
    }

    /// The report of a method that is loaded.
    pub(super) fn of_method(method: &super::Method) -> Self {
        let placement = &method.planned.placement;
        let mut report = Self::new(method.program(), method.plan(), method.options(), placement);
        for delegate in method.delegates() {
            let memory = delegate.memory();
            let state = delegate.state().iter();
            report.state.extend(state.map(|state| (state.name.to_string(), state.space, state.size_bytes())));
            report.delegate_constants.extend(memory.constants);
            report.delegate_scratch.extend(memory.scratch);
        }
        let scratch_bytes = method.overhead_bytes().1;
        let delegates = report.delegate_constants.iter().chain(&report.delegate_scratch).copied();
        let held: Vec<_> = delegates.chain([(SpaceId::HOST, scratch_bytes)]).collect();
        hold(&mut report.spaces, held.into_iter());
        report
    }

    /// Without every kernel nothing is known of what instructions write.
    fn new(program: &Program, plan: &MethodPlan, options: &LoadOptions, placement: &Placement) -> Self {
        let index = program.methods().iter().position(|method| core::ptr::eq(method, plan)).unwrap_or(0);
        let kernels = find_kernels(plan, options).ok();
        let kernels = kernels.as_deref();
        let roles = kernels.map(|kernels| Roles::of(plan, kernels));
        let live =
            kernels.zip(roles.as_ref()).and_then(|(kernels, roles)| live_buffers(plan, kernels, roles));
        let arenas: Vec<ArenaRow> = (placement.buffers.iter().enumerate().skip(1))
            // What a new plan, or lending, has emptied.
            .filter(|&(index, &(_, size_bytes))| size_bytes > 0 || placement.file_bytes[index] == 0)
            .map(|(index, &(space, size_bytes))| ArenaRow {
                index,
                space,
                size_bytes,
                used_by: used_by(plan, placement, index),
                shared_with: shared_with(program, plan, placement, index),
            })
            .collect();
        let state = roles.iter().flat_map(|roles| state_rows(plan, roles, &arenas)).collect();
        let mut spaces = space_rows(placement, live.as_deref());
        let wants = Wants::of(program, index, placement, options).ok();
        if let Some(wants) = &wants {
            let beside = wants.staging().iter().chain(wants.copies());
            hold(&mut spaces, beside.map(|want| (want.space, want.size_bytes)));
        }
        Self {
            method: plan.name.to_string(),
            file: program.file_name().into(),
            constants_bytes: constants_bytes(plan),
            staging_bytes: staging_bytes(plan),
            needs: wants.map_or_else(Vec::new, |wants| needs(program, index, placement, options, &wants)),
            delegate_constants: Vec::new(),
            delegate_scratch: Vec::new(),
            arenas,
            state,
            spaces,
        }
    }
}

fn state_rows<'a>(
    plan: &'a MethodPlan,
    roles: &'a Roles,
    arenas: &'a [ArenaRow],
) -> impl Iterator<Item = (String, SpaceId, usize)> + 'a {
    plan.tensors.iter().enumerate().filter(|(index, _)| roles.state[*index]).map(|(index, spec)| {
        let space = match spec.storage {
            Storage::Planned { buffer, .. } => arenas.iter().find(|row| row.index == buffer as usize),
            _ => None,
        };
        let space = space.map_or(spec.space, |row| row.space);
        (super::method::state_name(plan, index), space, spec.size_bytes)
    })
}

/// Adds what is held beside planned buffers.
fn hold(rows: &mut Vec<SpaceRow>, held: impl Iterator<Item = (SpaceId, usize)>) {
    for (space, bytes) in held.filter(|&(_, bytes)| bytes > 0) {
        if let Some(row) = rows.iter_mut().find(|row| row.space == space) {
            row.peak_bytes = row.peak_bytes.saturating_add(bytes);
        } else {
            let (planned_bytes, file_bytes, lower_bound_bytes) = (0, 0, None);
            rows.push(SpaceRow { space, planned_bytes, peak_bytes: bytes, file_bytes, lower_bound_bytes });
        }
    }
}

fn space_rows(placement: &Placement, live: Option<&[LiveBuffer]>) -> Vec<SpaceRow> {
    let mut rows: Vec<SpaceRow> = Vec::new();
    for (id, &(space, planned_bytes)) in placement.buffers.iter().enumerate().skip(1) {
        let file_bytes = placement.file_bytes[id];
        if let Some(row) = rows.iter_mut().find(|row| row.space == space) {
            row.planned_bytes += planned_bytes;
            row.file_bytes += file_bytes;
        } else {
            rows.push(SpaceRow { space, planned_bytes, peak_bytes: 0, file_bytes, lower_bound_bytes: None });
        }
    }
    for row in &mut rows {
        let here = |live: &&LiveBuffer| placement.buffers[live.buffer].0 == row.space;
        row.lower_bound_bytes = live.map(|live| live_bytes_max(live.iter().filter(here), BOUND_ALIGN));
        row.peak_bytes = row.planned_bytes;
    }
    rows
}

/// Bytes of the constants that a method names, each range once.
fn constants_bytes(plan: &MethodPlan) -> usize {
    let constant = |tensor: &crate::program::TensorSpec| match tensor.storage {
        Storage::Constant(data) => Some(data),
        _ => None,
    };
    let mut constants: Vec<_> = plan.tensors.iter().filter_map(constant).collect();
    constants.sort_unstable();
    constants.dedup();
    constants.iter().map(crate::program::DataRef::size_bytes).sum()
}

fn staging_bytes(plan: &MethodPlan) -> usize {
    let mut ids: Vec<_> = plan.inputs.iter().chain(&plan.outputs).collect();
    ids.sort_unstable();
    ids.dedup();
    let supplied = ids.into_iter().filter_map(|&id| plan.tensor(id));
    supplied.filter(|spec| spec.storage == Storage::Supplied).map(|spec| spec.size_bytes).sum()
}

/// What lies in a buffer, in words: `inputs 0,1; output 0`, or a count of tensors.
fn used_by(plan: &MethodPlan, placement: &Placement, buffer: usize) -> String {
    let here = |tensor: usize| placement.place(tensor).is_some_and(|(id, _)| id == buffer);
    let listed = |ids: &[crate::value::ValueId], word: &str| {
        let mut found: Vec<String> = Vec::new();
        for (index, &id) in ids.iter().enumerate() {
            for_each_tensor(plan, id, |tensor, _| {
                if here(tensor) {
                    found.push(index.to_string());
                }
            });
        }
        match found.len() {
            0 => None,
            1 => Some(format!("{word} {}", found[0])),
            _ => Some(format!("{word}s {}", found.join(","))),
        }
    };
    let parts: Vec<String> =
        [listed(&plan.inputs, "input"), listed(&plan.outputs, "output")].into_iter().flatten().collect();
    let lent = if buffer < placement.lent_ids { ", lent" } else { "" };
    if parts.is_empty() {
        let count = (0..plan.tensors.len()).filter(|&tensor| here(tensor)).count();
        let what = if buffer >= plan.buffers.len() { "state: " } else { "" };
        return format!("{what}{count} tensor{}{lent}", if count == 1 { "" } else { "s" });
    }
    format!("{}{lent}", parts.join("; "))
}

/// The other methods that share state of a buffer.
fn shared_with(program: &Program, plan: &MethodPlan, placement: &Placement, buffer: usize) -> Vec<String> {
    let mine = program.methods().iter().position(|method| core::ptr::eq(method, plan));
    let is_mine = |member: &&StateMember| Some(member.method as usize) == mine;
    let mut names: Vec<String> = Vec::new();
    for entry in program.shared_state() {
        let here = |member: &StateMember| {
            placement.place(member.tensor as usize).is_some_and(|(id, _)| id == buffer)
        };
        if !entry.members.iter().filter(is_mine).any(here) {
            continue;
        }
        for member in entry.members.iter().filter(|member| !is_mine(member)) {
            let name = program.methods()[member.method as usize].name.to_string();
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// Bytes as people read them: `512 B`, `16.4 KiB`.
fn readable(bytes: usize) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 || unit == "GiB" {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{bytes} B")
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}   {}", self.method, self.file)?;
        writeln!(f, "{:<6} {:<8} {:>8}   {:<31} shared with", "arena", "space", "bytes", "used by")?;
        for row in &self.arenas {
            let shared = if row.shared_with.is_empty() { "–".into() } else { row.shared_with.join(", ") };
            let space = row.space.to_string();
            writeln!(f, "{:<6} {space:<8} {:>8}   {:<31} {shared}", row.index, row.size_bytes, row.used_by)?;
        }
        let mut constants: Vec<String> = Vec::new();
        if self.constants_bytes > 0 {
            constants.push(format!("host {} mapped from {}", readable(self.constants_bytes), self.file));
        }
        let held = self.delegate_constants.iter().filter(|(_, bytes)| *bytes > 0);
        constants.extend(held.map(|(space, bytes)| format!("{space} {}", readable(*bytes))));
        let constants = if constants.is_empty() { "none".into() } else { constants.join(", ") };
        let entries = self.state.iter();
        let entries = entries.map(|(name, space, bytes)| format!("{name} {space} {}", readable(*bytes)));
        let state = entries.collect::<Vec<_>>().join(", ");
        let state = if state.is_empty() { "none".into() } else { state };
        let staging = match self.staging_bytes {
            0 => "none".into(),
            bytes => readable(bytes),
        };
        writeln!(f, "constants  {constants}     state  {state}     staging  {staging}")?;
        let list = |value: &dyn Fn(&SpaceRow) -> String| {
            let rows = self.spaces.iter().map(|row| format!("{} {}", row.space, value(row)));
            let text = rows.collect::<Vec<_>>().join(", ");
            if text.is_empty() { "none".into() } else { text }
        };
        let bound = |row: &SpaceRow| row.lower_bound_bytes.map_or_else(|| "unknown".into(), readable);
        write!(
            f,
            "peak while running: {}     lower bound for this graph: {}",
            list(&|row| readable(row.peak_bytes)),
            list(&bound)
        )?;
        if self.spaces.iter().any(SpaceRow::is_replanned) {
            write!(f, "\nplanned anew; the plan of the file: {}", list(&|row| readable(row.file_bytes)))?;
        }
        Ok(())
    }
}

/// What a buffer is, as the report and pictures name it.
impl fmt::Display for BufferRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::State => "state",
            Self::Temp => "temp",
        })
    }
}
