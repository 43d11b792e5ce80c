#![forbid(unsafe_code)]
//! Proves that a memory plan keeps every value until it is read.
//!
//! The plan in a file says where tensors lie, and lets them share bytes over time. This walks the
//! instructions with a map from bytes to the tensor that wrote them last. A read must find its own bytes:
//!
//! ```text
//!   0: a ─► [0,64)      a a a a
//!   1: b ─► [64,128)    a a a a b b b b
//!   2: c ─► [32,96)     a a c c c c b b      a and b are gone
//!   3: reads a          refused: instruction 2 wrote c over bytes of a
//! ```
//!
//! Branches and loops are followed until nothing changes, and where paths meet, bytes that differ belong to
//! several: reading them is refused too. A tensor that no instruction writes is a view of what lies there.
//!
//! Deliberately absent: a better plan; see [`crate::plan`]. And delegates: which of their arguments they write
//! is their secret, so an argument whose bytes belong to another is taken as written.

use super::error::LoadError;
use super::placement::Placement;
use super::state::{Roles, for_each_tensor};
use crate::kernel::Kernel;
use crate::program::{Instruction, MethodPlan, TensorSpec};
use crate::value::{Value, ValueId};

/// The most interval steps that checking one method may take; a hostile file could ask for billions.
const STEPS_MAX: u64 = 1 << 28;

/// The bytes of one buffer, and the tensor that wrote them last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: usize,
    end: usize,
    owner: u32,
    /// Whether another path leaves another owner here.
    mixed: bool,
    /// The instruction that wrote.
    writer: u32,
}

/// Which tensor a value names: itself, or, after a move, one of several.
const MOVED: u32 = u32::MAX;

/// What is known before an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// Per buffer, runs in rising order, without overlap.
    buffers: Vec<Vec<Run>>,
    /// Values that a move redirected, in rising order: the tensor each names now, or [`MOVED`].
    moved: Vec<(ValueId, u32)>,
}

/// The bytes that a tensor occupies.
#[derive(Clone, Copy, Debug)]
struct Place {
    buffer: usize,
    start: usize,
    end: usize,
}

/// Checks a method's plan against its instructions, and says which tensors are read where nothing has written:
/// they find what was there before the run.
///
/// # Errors
/// [`LoadError::Overwritten`] naming both tensors and both instructions; [`LoadError::TooComplex`].
pub(super) fn check(
    plan: &MethodPlan,
    kernels: &[Kernel],
    roles: &Roles,
    placement: &Placement,
) -> Result<Vec<bool>, LoadError> {
    let mut checker = Checker::new(plan, kernels, roles, placement);
    let mut entry = State { buffers: vec![Vec::new(); placement.buffers.len()], moved: Vec::new() };
    for tensor in (0..plan.tensors.len()).filter(|&tensor| roles.state[tensor]) {
        checker.claim(&mut entry, tensor, u32::MAX);
    }
    for &input in &plan.inputs {
        if let Some(tensor) = checker.tensor(&entry, input) {
            checker.claim(&mut entry, tensor, u32::MAX);
        }
    }
    let mut state = entry;
    for chain in &plan.chains {
        state = checker.chain(chain.start as usize..chain.start as usize + chain.len as usize, state)?;
    }
    for &output in &plan.outputs {
        checker.read(&state, output, u32::MAX)?;
    }
    for (id, value) in plan.values.iter().enumerate() {
        if let Value::Tensor(tensor) = *value
            && roles.state[tensor as usize]
        {
            checker.read(&state, ValueId(u32::try_from(id).unwrap_or(u32::MAX)), u32::MAX)?;
        }
    }
    Ok(checker.unwritten)
}

/// Whether the order of instructions, or what a value names, depends on the run.
pub(super) fn jumps(plan: &MethodPlan) -> bool {
    plan.instructions
        .iter()
        .any(|instruction| matches!(instruction, Instruction::JumpFalse { .. } | Instruction::Move { .. }))
}

struct Checker<'a> {
    plan: &'a MethodPlan,
    /// Per operator of the method, what it does to its arguments.
    kernels: &'a [Kernel],
    roles: &'a Roles,
    places: Vec<Option<Place>>,
    buffer_count: usize,
    /// Per tensor, whether some read of it found bytes that no instruction had written.
    unwritten: Vec<bool>,
    steps: u64,
}

impl<'a> Checker<'a> {
    fn new(plan: &'a MethodPlan, kernels: &'a [Kernel], roles: &'a Roles, placement: &Placement) -> Self {
        let place = |(index, tensor): (usize, &TensorSpec)| {
            let (buffer, start) = placement.place(index).filter(|_| tensor.size_bytes > 0)?;
            Some(Place { buffer, start, end: start + tensor.size_bytes })
        };
        Self {
            plan,
            kernels,
            roles,
            places: plan.tensors.iter().enumerate().map(place).collect(),
            buffer_count: placement.buffers.len(),
            unwritten: vec![false; plan.tensors.len()],
            steps: 0,
        }
    }

    /// The tensor that a value names now; `None` where it names none, or one of several.
    fn tensor(&self, state: &State, id: ValueId) -> Option<usize> {
        match state.moved.binary_search_by_key(&id, |entry| entry.0) {
            Ok(at) => Some(state.moved[at].1).filter(|&tensor| tensor != MOVED).map(|tensor| tensor as usize),
            Err(_) => match self.plan.value(id) {
                Value::Tensor(tensor) => Some(tensor as usize),
                _ => None,
            },
        }
    }

    /// Follows one chain from `entry` and gives the state at its end.
    fn chain(&mut self, range: core::ops::Range<usize>, entry: State) -> Result<State, LoadError> {
        let instructions = &self.plan.instructions[range.clone()];
        if !instructions.iter().any(|instruction| matches!(instruction, Instruction::JumpFalse { .. })) {
            let mut state = entry;
            for (offset, instruction) in instructions.iter().enumerate() {
                self.step(&mut state, instruction, range.start + offset)?;
            }
            return Ok(state);
        }
        self.graph(range, entry)
    }

    /// As [`Self::chain`], with branches: states at block heads grow until nothing changes.
    fn graph(&mut self, range: core::ops::Range<usize>, entry: State) -> Result<State, LoadError> {
        let plan = self.plan;
        let count = range.len();
        let mut is_head = vec![false; count + 1];
        is_head[0] = true;
        is_head[count] = true;
        for (offset, instruction) in plan.instructions[range.clone()].iter().enumerate() {
            if let Instruction::JumpFalse { target, .. } = *instruction {
                is_head[(target as usize).min(count)] = true;
                is_head[offset + 1] = true;
            }
        }
        let mut heads: Vec<Option<State>> = vec![None; count + 1];
        heads[0] = Some(entry);
        let mut waiting = vec![0];
        while let Some(head) = waiting.pop() {
            let Some(mut state) = heads[head].clone() else { continue };
            let mut at = head;
            while at < count {
                let instruction = &plan.instructions[range.start + at];
                self.step(&mut state, instruction, range.start + at)?;
                at += 1;
                if let Instruction::JumpFalse { target, .. } = *instruction {
                    self.arrive(&mut heads, &mut waiting, (target as usize).min(count), &state)?;
                }
                if is_head[at] {
                    break;
                }
            }
            if at > head {
                self.arrive(&mut heads, &mut waiting, at, &state)?;
            }
        }
        // A chain that never ends leaves nothing to read.
        Ok(heads[count]
            .take()
            .unwrap_or_else(|| State { buffers: vec![Vec::new(); self.buffer_count], moved: Vec::new() }))
    }

    fn arrive(
        &mut self,
        heads: &mut [Option<State>],
        waiting: &mut Vec<usize>,
        head: usize,
        state: &State,
    ) -> Result<(), LoadError> {
        let changed = match &mut heads[head] {
            Some(known) => {
                self.spend(known.buffers.iter().map(Vec::len).sum())?;
                join(known, state, &self.plan.values)
            }
            empty => {
                *empty = Some(state.clone());
                true
            }
        };
        if changed && !waiting.contains(&head) {
            waiting.push(head);
        }
        Ok(())
    }

    fn spend(&mut self, steps: usize) -> Result<(), LoadError> {
        self.steps += 1 + steps as u64;
        if self.steps > STEPS_MAX {
            return Err(LoadError::TooComplex { method: self.plan.name.to_string() });
        }
        Ok(())
    }

    fn step(&mut self, state: &mut State, instruction: &Instruction, at: usize) -> Result<(), LoadError> {
        let plan = self.plan;
        let number = u32::try_from(at).unwrap_or(u32::MAX);
        self.spend(state.buffers.iter().map(Vec::len).sum::<usize>() / 64)?;
        match *instruction {
            Instruction::Kernel { operator, args } => {
                let kernel = self.kernels[operator as usize];
                let ids = args.of(&plan.lists.ids);
                for (&id, kind) in ids.iter().zip(kernel.args) {
                    if kind.is_read() {
                        let mut result = Ok(());
                        for_each_tensor(plan, id, |_, id| {
                            if result.is_ok() {
                                result = self.read(state, id, number);
                            }
                        });
                        result?;
                    }
                }
                if kernel.name == "executorch_prim::et_view.default"
                    && let [from, _, to, ..] = *ids
                {
                    self.redirect(state, from, to);
                }
                for (&id, kind) in ids.iter().zip(kernel.args) {
                    if kind.is_written() {
                        for_each_tensor(plan, id, |_, id| self.write(state, id, number));
                    }
                }
            }
            Instruction::Delegate { args, .. } => {
                for &id in args.of(&plan.lists.ids) {
                    if !matches!(self.find(state, id, number), Ok(Bytes::Own)) {
                        self.write(state, id, number);
                    }
                }
            }
            Instruction::Move { from, to } => self.redirect(state, from, to),
            Instruction::JumpFalse { condition, .. } => self.read(state, condition, number)?,
            Instruction::Free { .. } => {}
        }
        Ok(())
    }

    fn redirect(&self, state: &mut State, from: ValueId, to: ValueId) {
        if let Value::Tensor(_) = self.plan.value(from) {
            let tensor =
                self.tensor(state, from).and_then(|tensor| u32::try_from(tensor).ok()).unwrap_or(MOVED);
            match state.moved.binary_search_by_key(&to, |entry| entry.0) {
                Ok(at) => state.moved[at].1 = tensor,
                Err(at) => state.moved.insert(at, (to, tensor)),
            }
        }
    }

    fn write(&self, state: &mut State, id: ValueId, at: u32) {
        if let Some(tensor) = self.tensor(state, id) {
            self.claim(state, tensor, at);
        }
    }

    /// Makes `tensor` the owner of its bytes.
    fn claim(&self, state: &mut State, tensor: usize, writer: u32) {
        let Some(place) = self.places[tensor] else { return };
        let runs = &mut state.buffers[place.buffer];
        let first = runs.partition_point(|run| run.end <= place.start);
        let last = first + runs[first..].partition_point(|run| run.start < place.end);
        let owner = u32::try_from(tensor).unwrap_or(MOVED);
        let new = Run { start: place.start, end: place.end, owner, mixed: false, writer };
        let before = runs[first..last].first().filter(|run| run.start < place.start);
        let before = before.map(|run| Run { end: place.start, ..*run });
        let after = runs[first..last].last().filter(|run| run.end > place.end);
        let after = after.map(|run| Run { start: place.end, ..*run });
        runs.splice(first..last, before.into_iter().chain([new]).chain(after));
    }

    /// Checks that the bytes of the tensor that `id` names are its own, or as they were before the run.
    fn read(&mut self, state: &State, id: ValueId, at: u32) -> Result<(), LoadError> {
        if matches!(self.find(state, id, at)?, Bytes::Unwritten)
            && let Some(tensor) = self.tensor(state, id)
        {
            self.unwritten[tensor] = true;
        }
        Ok(())
    }

    /// What a read of the tensor that `id` names finds in its bytes.
    fn find(&self, state: &State, id: ValueId, at: u32) -> Result<Bytes, LoadError> {
        let Some(tensor) = self.tensor(state, id) else { return Ok(Bytes::Own) };
        let Some(place) = self.places[tensor] else { return Ok(Bytes::Own) };
        let runs = &state.buffers[place.buffer];
        let first = runs.partition_point(|run| run.end <= place.start);
        let mut written_to = place.start;
        let mut gap = false;
        for run in runs[first..].iter().take_while(|run| run.start < place.end) {
            let own = run.owner as usize == tensor || !self.roles.written[tensor];
            if run.mixed || !own {
                return Err(LoadError::Overwritten {
                    method: self.plan.name.to_string(),
                    value: id.0,
                    reader: at,
                    writer: run.writer,
                    other: run.owner,
                    buffer: u32::try_from(place.buffer).unwrap_or(u32::MAX),
                    start_bytes: run.start.max(place.start),
                    end_bytes: run.end.min(place.end),
                });
            }
            gap |= run.start > written_to;
            written_to = run.end;
        }
        Ok(if gap || written_to < place.end { Bytes::Unwritten } else { Bytes::Own })
    }
}

/// What a read finds.
enum Bytes {
    /// What the tensor, or the one that it views, wrote.
    Own,
    /// Some that nothing wrote in this run.
    Unwritten,
}

/// Adds what `state` knows to `known`; says whether that changed it.
fn join(known: &mut State, state: &State, values: &[Value]) -> bool {
    let mut changed = false;
    for (ours, theirs) in known.buffers.iter_mut().zip(&state.buffers) {
        let merged = join_runs(ours, theirs);
        if merged != *ours {
            changed = true;
            *ours = merged;
        }
    }
    let named = |moved: &[(ValueId, u32)], id: ValueId| match moved.binary_search_by_key(&id, |entry| entry.0)
    {
        Ok(at) => moved[at].1,
        Err(_) => match values.get(id.index()) {
            Some(&Value::Tensor(tensor)) => tensor,
            _ => MOVED,
        },
    };
    let ids: Vec<ValueId> = known.moved.iter().chain(&state.moved).map(|entry| entry.0).collect();
    for id in ids {
        let (ours, theirs) = (named(&known.moved, id), named(&state.moved, id));
        let joined = if ours == theirs { ours } else { MOVED };
        match known.moved.binary_search_by_key(&id, |entry| entry.0) {
            Ok(at) if known.moved[at].1 != joined => known.moved[at].1 = joined,
            Ok(_) => continue,
            Err(at) => known.moved.insert(at, (id, joined)),
        }
        changed = true;
    }
    changed
}

/// The union of two maps: bytes that one alone knows stay as they are, bytes that differ become mixed.
fn join_runs(ours: &[Run], theirs: &[Run]) -> Vec<Run> {
    let mut edges: Vec<usize> = ours.iter().chain(theirs).flat_map(|run| [run.start, run.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    let covering = |runs: &[Run], start: usize| {
        let at = runs.partition_point(|run| run.end <= start);
        runs.get(at).filter(|run| run.start <= start).copied()
    };
    let mut out: Vec<Run> = Vec::new();
    for edge in edges.windows(2) {
        let (start, end) = (edge[0], edge[1]);
        let run = match (covering(ours, start), covering(theirs, start)) {
            (None, None) => continue,
            (Some(run), None) | (None, Some(run)) => run,
            (Some(a), Some(b)) => Run { mixed: a.mixed || b.mixed || a.owner != b.owner, ..a },
        };
        let run = Run { start, end, ..run };
        match out.last_mut() {
            Some(last)
                if last.end == start && Run { start: last.start, end, ..run } == Run { end, ..*last } =>
            {
                last.end = end;
            }
            _ => out.push(run),
        }
    }
    out
}
