//! A loaded method: checks inputs, runs instructions, shows outputs and state.
//!
//! ```text
//!   execute(inputs):  check all ─► copy or borrow all ─► run ─► Outputs (borrowed from the method)
//! ```
//!
//! Until every input is checked nothing is touched, so that a refused call leaves state and arenas as they
//! were. After loading, a run allocates nothing on the host.
//!
//! Deliberately absent: threads. A method runs one call at a time; whoever shares it brings a lock.

use super::check::{check_frozen, check_tensor};
use super::device;
use super::error::{ExecError, InputProblem};
use super::graph::Graph;
use super::input::{Input, TensorInput};
use super::load::LoadOptions;
use super::memory::{Tables, Temp};
use super::outputs::Outputs;
use super::planned::Planned;
use super::report::MemoryReport;
use super::resident::{Ends, Resident};
use super::state::Roles;
use super::step::Step;
use crate::delegate::{DelegateCall, LoadedDelegate, StateSpec};
use crate::kernel::{KernelCall, KernelError, Scratch};
use crate::program::{Instruction, MethodPlan, Program, Storage};
use crate::space::SpaceId;
use crate::tensor::{Bool, DType, Tensor};
use crate::value::{Value, ValueId};
use core::ptr::NonNull;
use std::sync::Arc;

/// The most instructions that one run may take.
///
/// # Source
/// `kMaxInstructions` of the ExecuTorch runtime.
pub const INSTRUCTIONS_MAX: u64 = 10_000_000;

/// What a method is made of.
pub(super) struct Parts {
    pub(super) program: Arc<Program>,
    pub(super) index: usize,
    pub(super) tables: Tables,
    pub(super) planned: Planned,
    pub(super) temp: Temp,
    pub(super) delegates: Vec<Box<dyn LoadedDelegate>>,
    pub(super) changes_values: bool,
    pub(super) roles: Roles,
    pub(super) options: LoadOptions,
}

/// A method of a program, with its memory.
///
/// Dropping it gives all memory back, but for state that other methods share.
pub struct Method {
    delegates: Vec<Box<dyn LoadedDelegate>>,
    pub(super) tables: Tables,
    pub(super) planned: Planned,
    /// The device work of a run as a graph, where that is wanted.
    pub(super) graph: Graph,
    temp: Temp,
    roles: Roles,
    changes_values: bool,
    /// Tensors without planned memory: bound for one run.
    supplied: Box<[usize]>,
    /// Outputs that stay on a device.
    pub(super) resident: Resident,
    index: usize,
    options: LoadOptions,
    program: Arc<Program>,
}

impl Drop for Method {
    fn drop(&mut self) {
        // Work that a run left to a device uses memory which goes back to the set next, first that of delegates.
        // There is nobody to tell of a failure.
        drop(self.planned.holdings.synchronize());
    }
}

impl core::fmt::Debug for Method {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Method")
            .field("name", &self.name())
            .field("program", &self.program.label())
            .finish_non_exhaustive()
    }
}

impl Method {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { program, index, tables, planned, temp, delegates, changes_values, roles, options } =
            parts;
        let queues = planned.holdings.queues.len();
        let specs = program.methods()[index].tensors.iter().enumerate();
        let supplied =
            specs.filter(|(_, spec)| spec.storage == Storage::Supplied).map(|(index, _)| index).collect();
        Self {
            delegates,
            tables,
            planned,
            graph: Graph::after(options.capture_after, queues),
            temp,
            roles,
            changes_values,
            supplied,
            resident: Resident::default(),
            index,
            options,
            program,
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.plan().name
    }

    /// The program it is of.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What the file says of it.
    pub fn plan(&self) -> &MethodPlan {
        &self.program.methods()[self.index]
    }

    /// What it was loaded with.
    pub fn options(&self) -> &LoadOptions {
        &self.options
    }

    pub(super) fn delegates(&self) -> &[Box<dyn LoadedDelegate>] {
        &self.delegates
    }

    /// Where its bytes are.
    pub fn memory_report(&self) -> MemoryReport {
        MemoryReport::of_method(self)
    }

    /// Host bytes of the method's own tables, and the most that a kernel's scratch took so far, in any method that
    /// it is lent to.
    pub fn overhead_bytes(&self) -> (usize, usize) {
        let lent = self.planned.lent_temp.as_ref();
        let temp_bytes = lent.map_or(self.temp.peak_bytes(), |temp| temp.lock().peak_bytes());
        (self.tables.size_bytes(), temp_bytes)
    }

    /// Runs the method.
    ///
    /// # Errors
    /// [`ExecError::InputCount`] and [`ExecError::Input`] before anything is touched; the others while
    /// running, and then planned memory and state are as far as the run came.
    ///
    /// # Examples
    /// ```no_run
    /// # fn f(mut method: arenite::exec::Method) -> Result<(), Box<dyn std::error::Error>> {
    /// use arenite::exec::{Input, Output, TensorInput};
    /// let (x, mut strides) = ([1.0_f32; 64], [0; 2]);
    /// let input = Input::Tensor(TensorInput::row_major(&x, &[4, 16], &mut strides).unwrap());
    /// let inputs = [input];
    /// let outputs = method.execute(&inputs)?;
    /// if let Output::Tensor(y) = outputs.get(0) {
    ///     println!("{:?}", y.sizes());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn execute<'a>(&'a mut self, inputs: &'a [Input<'a>]) -> Result<Outputs<'a>, ExecError> {
        self.execute_between(inputs, Ends::Host)
    }

    /// As [`Method::execute`], for tensors that stay on a device: [`Outputs::take_device`] gives an output's own
    /// memory away. With a stream, device work goes there, and is not waited for where the host takes no part in
    /// it: neither inputs nor outputs are in host memory, and the method shares nothing with others.
    ///
    /// # Safety
    /// * `stream` is the driver's handle of a stream of the method's device, or 0 for the default one.
    /// * What device inputs name stays valid until the work is done, also after this returned; work that writes it
    ///   is done, or queued on `stream` before.
    ///
    /// # Errors
    /// As [`Method::execute`].
    pub unsafe fn execute_on<'a>(
        &'a mut self,
        stream: Option<usize>,
        inputs: &'a [Input<'a>],
    ) -> Result<Outputs<'a>, ExecError> {
        self.execute_between(inputs, Ends::Device(stream))
    }

    fn execute_between<'a>(
        &'a mut self,
        inputs: &'a [Input<'a>],
        ends: Ends,
    ) -> Result<Outputs<'a>, ExecError> {
        let program = Arc::clone(&self.program);
        let plan = &program.methods()[self.index];
        self.check_inputs(plan, inputs)?;
        let (shared, scratch) = (self.planned.shared.clone(), self.planned.scratch.clone());
        let _running = shared.as_ref().map(|shared| shared.running.lock());
        let _borrowing = scratch.as_ref().map(|scratch| scratch.running().lock());
        if self.changes_values {
            self.tables.parts().0.copy_from_slice(&plan.values);
        }
        let lent_temp = self.planned.lent_temp.clone();
        let mut lent_temp = lent_temp.as_ref().map(|temp| temp.lock());
        // Outputs unbinds what the caller lent, also where a run fails.
        let outputs = Outputs { method: self };
        let method = &mut *outputs.method;
        if let Some(temp) = &mut lent_temp {
            // Gone only where a kernel panicked in another method's run.
            if !temp.is_there()
                && let Ok(fresh) = Temp::take(&method.options.arenas, "scratch lent to kernels")
            {
                **temp = fresh;
            }
            core::mem::swap(&mut method.temp, temp);
        }
        method.planned.holdings.leaves = ends.stream().is_some() && shared.is_none() && scratch.is_none();
        let begun = method.begin_resident(plan, ends);
        let done = begun
            .and_then(|()| method.give_inputs(plan, inputs))
            .and_then(|()| method.run_recorded(plan, ends))
            .and_then(|()| method.copy_outputs(plan));
        if done.is_err() {
            // Device work may still use the memory that the next run writes.
            let _ = outputs.method.planned.holdings.synchronize();
        }
        outputs.method.temp.reset();
        if let Some(temp) = &mut lent_temp {
            core::mem::swap(&mut outputs.method.temp, temp);
        }
        done?;
        outputs.method.end_resident(plan, ends)?;
        Ok(outputs)
    }

    /// Copies the outputs that others may write over once this run is over.
    fn copy_outputs(&mut self, plan: &MethodPlan) -> Result<(), ExecError> {
        let Planned { copies, holdings, .. } = &mut self.planned;
        copies.fill(holdings, self.tables.tensors()).map_err(|problem| ExecError::Output {
            method: plan.name.to_string(),
            index: 0,
            problem,
        })
    }

    /// The driver's handle of the stream that work in a device space goes to unless a caller's is passed.
    pub fn stream(&mut self, space: SpaceId) -> Option<usize> {
        self.planned.holdings.queue(space).map(|queue| queue.raw_stream())
    }

    /// What the last run left, once more. What was in memory of the caller is there no longer.
    pub fn outputs(&mut self) -> Outputs<'_> {
        Outputs { method: self }
    }

    pub(super) fn name_owned(&self) -> String {
        self.name().to_string()
    }

    fn check_inputs(&self, plan: &MethodPlan, inputs: &[Input<'_>]) -> Result<(), ExecError> {
        let (expected, got) = (plan.inputs.len(), inputs.len());
        if expected != got {
            return Err(ExecError::InputCount { method: self.name_owned(), expected, got });
        }
        for (index, (&id, input)) in plan.inputs.iter().zip(inputs).enumerate() {
            self.check_input(plan, id, input).map_err(|problem| ExecError::Input {
                method: self.name_owned(),
                index,
                problem: *problem,
            })?;
        }
        Ok(())
    }

    /// Whether one input fits what the file declares.
    #[inline]
    fn check_input(
        &self,
        plan: &MethodPlan,
        id: ValueId,
        input: &Input<'_>,
    ) -> Result<(), Box<InputProblem>> {
        match (plan.value(id), input) {
            (Value::Tensor(at), Input::Tensor(tensor)) => {
                check_tensor(&self.tables.tensors()[at as usize], tensor)
            }
            (value, input) => check_frozen(plan, value, input).map_err(Box::new),
        }
    }

    /// Copies inputs into planned memory, or binds unplanned ones to the caller's.
    fn give_inputs(&mut self, plan: &MethodPlan, inputs: &[Input<'_>]) -> Result<(), ExecError> {
        for (index, (&id, input)) in plan.inputs.iter().zip(inputs).enumerate() {
            let (Value::Tensor(at), Input::Tensor(source)) = (plan.value(id), input) else { continue };
            let at = at as usize;
            let (_, tensors, _) = self.tables.parts();
            let target = &mut tensors[at];
            let wrong =
                |problem: InputProblem| ExecError::Input { method: plan.name.to_string(), index, problem };
            target.resize(source.sizes()).map_err(|error| {
                wrong(InputProblem::Kind { expected: "sizes that fit".into(), got: error.to_string() })
            })?;
            let planned = !matches!(plan.tensors[at].storage, Storage::Supplied);
            if !planned && may_borrow(target, source, &self.planned, at) {
                let address = NonNull::new(source.address().cast_mut()).unwrap_or(NonNull::dangling());
                let size_bytes = target.size_bytes();
                // SAFETY:
                // * the elements lie gapless from `address` on, readable for the life of the inputs (terms of
                //   `TensorInput::new`), which `Outputs` borrows; its drop unbinds;
                // * they are bound read-only.
                unsafe { target.bind(address, size_bytes, source.space(), false) };
                continue;
            }
            if !planned {
                // The last call may have lent its own memory here.
                self.planned.bind(&self.program, plan, (self.index, at), target);
            }
            device::copy_input(&mut self.planned.holdings, target, source).map_err(|reason| {
                wrong(InputProblem::Kind { expected: "a copy into place".into(), got: reason })
            })?;
        }
        Ok(())
    }

    /// Runs every instruction, and waits for the devices.
    pub(super) fn run(&mut self, plan: &MethodPlan) -> Result<(), ExecError> {
        self.run_steps(plan)?;
        self.finish(plan)
    }

    /// Waits for the devices, or leaves the work to them.
    pub(super) fn finish(&mut self, plan: &MethodPlan) -> Result<(), ExecError> {
        let last = plan.instructions.len().saturating_sub(1);
        self.planned.holdings.finish().map_err(|error| queue_error(plan, last, &error))
    }

    /// Runs every instruction.
    pub(super) fn run_steps(&mut self, plan: &MethodPlan) -> Result<(), ExecError> {
        let (values, tensors, steps) = self.tables.parts();
        let mut at = 0_usize;
        let mut left = INSTRUCTIONS_MAX;
        let mut downloading = false;
        while let Some(&step) = steps.get(at) {
            left = left.checked_sub(1).ok_or_else(|| ExecError::Endless {
                method: plan.name.to_string(),
                limit: INSTRUCTIONS_MAX,
            })?;
            if downloading
                && !matches!(step, Step::Upload { .. } | Step::Download { .. } | Step::Delegate { .. })
            {
                self.planned.holdings.synchronize().map_err(|error| queue_error(plan, at, &error))?;
                downloading = false;
            }
            match step {
                Step::Kernel { run, args } => {
                    let args = args.of(&plan.lists.ids);
                    let scratch = Scratch::new(&self.temp);
                    let mut call = KernelCall::new(values, tensors, &plan.lists, args, scratch);
                    if let Err(source) = run(&mut call) {
                        return Err(kernel_error(plan, at, self.roles.first_state_write < at, source));
                    }
                    self.temp.reset();
                }
                Step::Upload { .. } => {
                    at = device::upload(&mut self.planned.holdings, plan, values, tensors, steps, at)
                        .map_err(|source| kernel_error(plan, at, false, source))?;
                    continue;
                }
                Step::Download { args } => {
                    device::download(&mut self.planned.holdings, plan, values, tensors, args)
                        .map_err(|source| kernel_error(plan, at, false, source))?;
                    downloading = true;
                }
                Step::Delegate { delegate, args } => {
                    let args = args.of(&plan.lists.ids);
                    let space = device::space_of(values, tensors, args);
                    let queue = self.planned.holdings.queue(space).map(|queue| queue as _);
                    let mut call = DelegateCall::new(values, tensors, args, queue);
                    self.delegates[delegate as usize].execute(&mut call).map_err(|error| {
                        ExecError::Delegate {
                            method: plan.name.to_string(),
                            instruction: at,
                            id: plan.delegates[delegate as usize].id.to_string(),
                            reason: error.to_string(),
                        }
                    })?;
                }
                Step::Move { from, to } => values[to.index()] = values[from.index()],
                Step::JumpFalse { condition, target } => {
                    let truth = is_true(values[condition.index()], tensors).map_err(|got| {
                        ExecError::Condition { method: plan.name.to_string(), instruction: at, got }
                    })?;
                    if !truth {
                        at = target as usize;
                        continue;
                    }
                }
                Step::Free { value } => {
                    // Only an alias has nothing to come back to; planned tensors keep their place.
                    if let Value::Tensor(tensor) = values[value.index()]
                        && tensors[tensor as usize].is_alias()
                    {
                        tensors[tensor as usize].unbind();
                    }
                }
            }
            at += 1;
        }
        Ok(())
    }

    /// Whether tensors without planned memory are on a device.
    pub(super) fn has_device_ends(&self) -> bool {
        let on_device =
            |&tensor: &usize| self.planned.staged(tensor).is_some_and(|block| !block.space.is_host());
        self.supplied.iter().any(on_device)
    }

    /// Takes back what the caller lent and what views named.
    pub(super) fn unbind_lent(&mut self) {
        self.resident.fresh.clear();
        if self.supplied.is_empty() {
            return;
        }
        let plan = &self.program.methods()[self.index];
        let (_, tensors, _) = self.tables.parts();
        for &index in &self.supplied {
            tensors[index].unbind();
            self.planned.bind(&self.program, plan, (self.index, index), &mut tensors[index]);
        }
    }

    /// The tensors that live from run to run.
    pub fn state(&self) -> impl Iterator<Item = StateSpec> {
        let plan = self.plan();
        self.state_indices().map(move |index| {
            let tensor = &self.tables.tensors()[index];
            StateSpec {
                name: state_name(plan, index).into(),
                dtype: tensor.dtype(),
                sizes: tensor.sizes().into(),
                space: tensor.space(),
            }
        })
    }

    fn state_indices(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.roles.state.len()).filter(|&index| self.roles.state[index])
    }

    fn state_index(&self, name: &str) -> Result<usize, ExecError> {
        let plan = self.plan();
        self.state_indices().find(|&index| state_name(plan, index) == name).ok_or_else(|| {
            ExecError::NoSuchState {
                method: self.name_owned(),
                name: name.into(),
                present: self.state_indices().map(|index| state_name(plan, index)).collect(),
            }
        })
    }

    /// Copies the state of this name, row-major, into `target`, which must be just as long.
    ///
    /// # Errors
    /// [`ExecError::NoSuchState`], [`ExecError::State`].
    pub fn read_state(&mut self, name: &str, target: &mut [u8]) -> Result<(), ExecError> {
        let index = self.state_index(name)?;
        let shared = self.planned.shared.clone();
        let _running = shared.as_ref().map(|shared| shared.running.lock());
        let tensor = &self.tables.tensors()[index];
        device::copy_output(&mut self.planned.holdings, tensor, target).map_err(|got| ExecError::State {
            method: self.program.methods()[self.index].name.to_string(),
            name: name.into(),
            problem: InputProblem::Kind { expected: "a copy".into(), got },
        })
    }

    /// Makes the state of this name what `source` holds.
    ///
    /// # Errors
    /// [`ExecError::NoSuchState`], [`ExecError::State`]; nothing changed then.
    pub fn write_state(&mut self, name: &str, source: &TensorInput<'_>) -> Result<(), ExecError> {
        let index = self.state_index(name)?;
        let method = self.name_owned();
        let wrong = |problem| ExecError::State { method, name: name.into(), problem };
        let shared = self.planned.shared.clone();
        let _running = shared.as_ref().map(|shared| shared.running.lock());
        let tensor = &self.tables.tensors()[index];
        if let Err(problem) = check_tensor(tensor, source) {
            return Err(wrong(*problem));
        }
        device::copy_input(&mut self.planned.holdings, tensor, source)
            .and_then(|()| self.planned.holdings.synchronize().map_err(|error| error.to_string()))
            .map_err(|got| wrong(InputProblem::Kind { expected: "a copy".into(), got }))
    }

    /// Makes all state, shared state too, what it was when the method was loaded.
    ///
    /// # Errors
    /// [`ExecError::Delegate`] where a device or delegate refuses.
    pub fn reset_state(&mut self) -> Result<(), ExecError> {
        let program = Arc::clone(&self.program);
        let plan = &program.methods()[self.index];
        let failed = |id: &str, reason: String| ExecError::Delegate {
            method: plan.name.to_string(),
            instruction: 0,
            id: id.into(),
            reason,
        };
        if let Some(shared) = self.planned.shared.clone() {
            let _running = shared.running.lock();
            shared.reset(&program).map_err(|error| failed("state", error.to_string()))?;
        }
        self.planned
            .reset_state(&program, plan, &self.roles, &self.tables)
            .map_err(|error| failed("state", error.to_string()))?;
        for (delegate, spec) in self.delegates.iter_mut().zip(&plan.delegates) {
            let queue = self.planned.holdings.queues.first_mut().map(|queue| &mut **queue as _);
            delegate.reset_state(queue).map_err(|error| failed(&spec.id, error.to_string()))?;
        }
        self.planned.holdings.synchronize().map_err(|error| failed("state", error.to_string()))
    }
}

/// The name of a state tensor: the file's, or its index where the file has none.
pub(super) fn state_name(plan: &MethodPlan, tensor: usize) -> String {
    plan.tensor_name(&plan.tensors[tensor]).map_or_else(|| format!("tensor_{tensor}"), str::to_string)
}

/// Whether an unplanned input may name the caller's bytes: same space, gapless in order, aligned.
fn may_borrow(target: &Tensor, source: &TensorInput<'_>, planned: &Planned, tensor: usize) -> bool {
    let same_space = planned.staged(tensor).is_none_or(|block| {
        block.space == source.space() || (block.space.is_host() && source.space().is_host())
    });
    let width = target.dtype().size_bytes();
    same_space
        && source.address().addr().is_multiple_of(width.min(8))
        && source.lies_as(&target.strides())
        && !source.address().is_null()
}

/// Whether a condition holds: every element of a tensor of `bool`, or a `Bool`.
fn is_true(value: Value, tensors: &[Tensor]) -> Result<bool, String> {
    match value {
        Value::Bool(truth) => Ok(truth),
        Value::Tensor(at) if tensors[at as usize].dtype() == DType::Bool => {
            let elements = tensors[at as usize].read::<Bool>().map_err(|error| error.to_string())?;
            Ok(elements.iter().all(|element| element.get().get()))
        }
        Value::Tensor(at) => Err(format!("a tensor of {}", tensors[at as usize].dtype())),
        other => Err(other.kind().into()),
    }
}

#[cold]
fn kernel_error(plan: &MethodPlan, at: usize, state_written: bool, source: KernelError) -> ExecError {
    let operator = match plan.instructions.get(at) {
        Some(&Instruction::Kernel { operator, .. }) => plan.operator(operator),
        _ => "",
    };
    ExecError::Kernel {
        method: plan.name.to_string(),
        instruction: at,
        operator: operator.into(),
        state_written,
        source,
    }
}

#[cold]
pub(super) fn queue_error(plan: &MethodPlan, at: usize, error: &crate::space::QueueError) -> ExecError {
    ExecError::Delegate {
        method: plan.name.to_string(),
        instruction: at,
        id: error.space.to_string(),
        reason: error.to_string(),
    }
}
