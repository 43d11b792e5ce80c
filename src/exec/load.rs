#![forbid(unsafe_code)]
//! Loading a method: from a plan to bound memory, all or nothing.
//!
//! In order: every space is resolved, every operator and delegate found, every argument checked against the
//! kernel's schema, the plan proved free of overlaps; only then is memory taken, zeroed, and given to tensors.
//!
//! Deliberately absent: running; see [`super::method`].

use super::delegates::Payloads;
use super::error::LoadError;
use super::flow;
use super::memory::{Tables, Temp};
use super::method::{Method, Parts};
use super::placement::{Placement, Replan};
use super::planned::Planned;
use super::shared::{SharedScratch, SharedState};
use super::state::{Roles, for_each_tensor};
use super::step::Step;
use crate::arena::ArenaSet;
use crate::delegate::DelegateRegistry;
use crate::kernel::{Arg, Kernel, KernelRegistry};
use crate::program::{Instruction, MethodPlan, Program, Storage};
use crate::space::SpaceId;
use crate::tensor::Tensor;
use crate::value::ValueId;
use std::sync::Arc;

/// The most bytes that the plan of one method may ask for, unless the caller says otherwise: 64 GiB.
pub const MAX_PLANNED_BYTES: usize = 64 << 30;

/// What the methods of one program share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Share {
    /// State with a name that the file plans at one place in several methods; nothing else.
    #[default]
    State,
    /// That, and scratch: what a run needs only while it runs is lent to the methods by turns, one arena per space,
    /// in [`LoadOptions::scratch`]. Such methods run one at a time; those with jumps keep memory of their own.
    Scratch,
    /// Nothing.
    Nothing,
}

/// What a program's methods are loaded with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Operators by name.
    pub kernels: Arc<KernelRegistry>,
    /// Delegates by name.
    pub delegates: Arc<DelegateRegistry>,
    /// Where memory comes from.
    pub arenas: ArenaSet,
    /// What methods share.
    pub share: Share,
    /// What methods lend each other with [`Share::Scratch`], of all programs that are loaded with clones of these
    /// options.
    pub scratch: SharedScratch,
    /// The most bytes that the plan of one method may ask for, over all spaces.
    pub max_planned_bytes: usize,
    /// Which memory plan methods are loaded with.
    pub replan: Replan,
    /// The most bytes that a tensor may have to lie in pinned memory, where a device reads or writes it over
    /// the bus, instead of being copied to or from it.
    pub max_mapped_bytes: usize,
    /// The runs after which device work is recorded as a graph by itself, where it can be, and later runs between
    /// host memory launch the record; `None`: only where [`Method::capture`] asks for it.
    pub capture_after: Option<u32>,
}

/// [`LoadOptions::capture_after`] unless told otherwise: what recording takes is gained again by then, if as many more
/// runs come.
pub const CAPTURE_AFTER: u32 = 8;

/// [`LoadOptions::max_mapped_bytes`] unless told otherwise. Measured on an H200: 16 KiB that one kernel reads travel as
/// fast either way, and 64 KiB that 18 kernels read and write take 14 us more than their copies.
pub const MAX_MAPPED_BYTES: usize = 16 << 10;

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            kernels: Arc::default(),
            delegates: Arc::default(),
            arenas: ArenaSet::default(),
            share: Share::default(),
            scratch: SharedScratch::default(),
            max_planned_bytes: MAX_PLANNED_BYTES,
            replan: Replan::default(),
            max_mapped_bytes: MAX_MAPPED_BYTES,
            capture_after: Some(CAPTURE_AFTER),
        }
    }
}

impl LoadOptions {
    /// Built-in kernels and delegates, and memory from this arena set.
    pub fn new(arenas: ArenaSet) -> Self {
        Self { arenas, ..Self::default() }
    }
}

/// Loads methods of one program, and holds the state that they share.
///
/// # Examples
/// ```no_run
/// use arenite::exec::{LoadOptions, Loader};
/// use arenite::program::{Program, ProgramOptions};
/// let program = Program::open("seed_net.pte", &ProgramOptions::default())?;
/// let method = Loader::new(program.into(), LoadOptions::default()).load("forward")?;
/// println!("{}", method.memory_report());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Loader {
    program: Arc<Program>,
    options: LoadOptions,
    shared: parking_lot::Mutex<Option<Arc<SharedState>>>,
}

impl Loader {
    /// A loader for this program.
    pub fn new(program: Arc<Program>, options: LoadOptions) -> Self {
        Self { program, options, shared: parking_lot::Mutex::default() }
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What methods are loaded with.
    pub fn options(&self) -> &LoadOptions {
        &self.options
    }

    /// Loads a method: finds its kernels and delegates, checks its plan, takes its memory.
    ///
    /// # Errors
    /// [`LoadError`]; then no memory is held.
    pub fn load(&self, name: &str) -> Result<Method, LoadError> {
        self.load_with(name, self.options.replan)
    }

    /// As [`Loader::load`], with this memory plan.
    ///
    /// # Errors
    /// [`LoadError`]; [`LoadError::CannotReplan`] where a new plan cannot be made.
    pub fn load_with(&self, name: &str, replan: Replan) -> Result<Method, LoadError> {
        let program = &self.program;
        let plan = program.method(name)?;
        let index = program.methods().iter().position(|method| core::ptr::eq(method, plan)).unwrap_or(0);
        let fitting = Fitting { program, plan, options: &self.options };
        let spaces = fitting.resolve_spaces()?;
        fitting.check_delegates()?;
        let payloads = Payloads::new(program, plan, &self.options, &spaces);
        std::thread::scope(|scope| {
            let coming = payloads.prepare(scope);
            let kernels = find_kernels(plan, &self.options)?;
            fitting.check_arguments(&kernels, &spaces)?;
            let roles = Roles::of(plan, &kernels);
            let placement = fitting.place(&kernels, &roles, &spaces, replan)?;
            let mut planned = Planned::take(program, index, placement, &self.options)?;
            // Last, since it stays with the loader.
            planned.shared = self.shared_state(plan, index)?;
            let tables = fitting.make_tables(index, &kernels, &planned)?;
            planned.initialise(program, plan, &tables)?;
            let temp = fitting.take_temp(&planned)?;
            let delegates = payloads.load(coming, self.sharing(), &mut planned)?;
            crate::kernel::warm_up();
            Ok(Method::new(Parts {
                program: Arc::clone(program),
                index,
                tables,
                planned,
                temp,
                delegates,
                changes_values: changes_values(plan, &kernels),
                roles,
                options: self.options.clone(),
            }))
        })
    }

    /// The block of shared state, made when a method first wants it; `None` where `plan` shares nothing.
    fn shared_state(&self, plan: &MethodPlan, index: usize) -> Result<Option<Arc<SharedState>>, LoadError> {
        let wants = |shared: &crate::program::SharedState| {
            shared.members.iter().any(|member| member.method as usize == index)
        };
        if self.options.share == Share::Nothing || !self.program.shared_state().iter().any(wants) {
            return Ok(None);
        }
        let mut slot = self.shared.lock();
        if slot.is_none() {
            *slot = Some(Arc::new(SharedState::take(&self.program, plan, &self.options)?));
        }
        Ok(slot.clone())
    }

    /// A number equal for methods that share state.
    fn sharing(&self) -> usize {
        match self.options.share {
            Share::State | Share::Scratch => core::ptr::from_ref(self).addr(),
            Share::Nothing => 0,
        }
    }
}

/// Per tensor, whether its bytes must outlive a run: state, what the file gives a value, and what is read without
/// being written.
fn kept(plan: &MethodPlan, roles: &Roles, unwritten: &[bool]) -> Vec<bool> {
    let has_value = |storage: Storage| matches!(storage, Storage::Planned { initial: Some(_), .. });
    let tensors = plan.tensors.iter().enumerate();
    tensors.map(|(at, spec)| roles.state[at] || unwritten[at] || has_value(spec.storage)).collect()
}

/// The kernel of each operator of a method.
///
/// # Errors
/// [`LoadError::MissingOperators`] with all that there are none of.
pub(super) fn find_kernels(plan: &MethodPlan, options: &LoadOptions) -> Result<Vec<Kernel>, LoadError> {
    let count = u32::try_from(plan.operators.len()).unwrap_or(u32::MAX);
    let mut missing: Vec<String> = Vec::new();
    let mut kernels = Vec::with_capacity(plan.operators.len());
    for operator in 0..count {
        let name = plan.operator(operator);
        match options.kernels.get(name) {
            Some(kernel) => kernels.push(kernel),
            None if missing.iter().all(|known| known != name) => missing.push(name.into()),
            None => {}
        }
    }
    if missing.is_empty() {
        return Ok(kernels);
    }
    Err(LoadError::MissingOperators { method: plan.name.to_string(), names: missing })
}

/// A method on its way to being loaded.
struct Fitting<'a> {
    program: &'a Arc<Program>,
    plan: &'a MethodPlan,
    options: &'a LoadOptions,
}

impl Fitting<'_> {
    fn method(&self) -> String {
        self.plan.name.to_string()
    }

    /// The space of each planned buffer, after remapping; all must be there, and fit the limit.
    fn resolve_spaces(&self) -> Result<Vec<SpaceId>, LoadError> {
        let mut planned_bytes = 0_usize;
        let mut spaces = Vec::with_capacity(self.plan.buffers.len());
        for (index, buffer) in self.plan.buffers.iter().enumerate() {
            planned_bytes = planned_bytes.saturating_add(buffer.size_bytes);
            if index == 0 && buffer.size_bytes == 0 {
                // Reserved: nothing lies there, so no space need be there for it.
                spaces.push(buffer.space);
                continue;
            }
            let space =
                self.options.arenas.resolve(buffer.space).map_err(|missing| LoadError::MissingSpace {
                    method: self.method(),
                    buffer: index,
                    needed_bytes: buffer.size_bytes,
                    space: missing.id,
                    present: missing.to_string(),
                })?;
            spaces.push(space);
        }
        let limit_bytes = self.options.max_planned_bytes;
        if planned_bytes > limit_bytes {
            return Err(LoadError::PlanTooLarge { method: self.method(), planned_bytes, limit_bytes });
        }
        Ok(spaces)
    }

    fn check_delegates(&self) -> Result<(), LoadError> {
        for (index, delegate) in self.plan.delegates.iter().enumerate() {
            let reason = match self.options.delegates.get(&delegate.id) {
                None => {
                    let ids = self.options.delegates.ids();
                    let known = if ids.is_empty() { "none".into() } else { ids.join(", ") };
                    format!("is not registered (registered: {known})")
                }
                Some(backend) => match backend.absence() {
                    None => continue,
                    Some(reason) => format!("cannot run here: {reason}"),
                },
            };
            let id = delegate.id.to_string();
            return Err(LoadError::UnsupportedDelegate { method: self.method(), index, id, reason });
        }
        Ok(())
    }

    /// Every kernel call has the arguments that its kernel takes, and those it writes may be written.
    fn check_arguments(&self, kernels: &[Kernel], spaces: &[SpaceId]) -> Result<(), LoadError> {
        let on_device = spaces.iter().any(|space| !space.is_host());
        for (at, instruction) in self.plan.instructions.iter().enumerate() {
            let Instruction::Kernel { operator, args } = *instruction else { continue };
            let kernel = &kernels[operator as usize];
            let ids = args.of(&self.plan.lists.ids);
            let wrong = |expected: String, got: String| LoadError::Arguments {
                method: self.method(),
                instruction: at,
                operator: kernel.name.into(),
                expected,
                got,
            };
            if !kernel.accepts_count(ids.len()) {
                let (expected, got) = (kernel.args.len(), ids.len());
                let expected = format!("{expected} arguments and a return slot");
                return Err(wrong(expected, format!("{got} in all")));
            }
            for (index, (&id, kind)) in ids.iter().zip(kernel.args).enumerate() {
                let value = self.plan.value(id);
                if !kind.accepts(&value) {
                    let (expected, got) = (kind.expected(), value.kind());
                    return Err(wrong(
                        format!("argument {index} {expected}"),
                        format!("argument {index} {got}"),
                    ));
                }
                if kind.is_written() {
                    self.check_written(index, id, &wrong)?;
                }
            }
            if on_device && !is_copy(kernel.name) {
                self.check_on_host(at, kernel, ids, spaces)?;
            }
        }
        Ok(())
    }

    fn check_written(
        &self,
        index: usize,
        id: ValueId,
        wrong: &dyn Fn(String, String) -> LoadError,
    ) -> Result<(), LoadError> {
        let mut constant = false;
        for_each_tensor(self.plan, id, |tensor, _| {
            constant |= matches!(self.plan.tensors[tensor].storage, Storage::Constant(_));
        });
        if constant {
            let (expected, got) = ("a tensor to write", "a constant");
            return Err(wrong(format!("argument {index} {expected}"), format!("argument {index} {got}")));
        }
        Ok(())
    }

    /// No argument of a host kernel lies where the CPU cannot reach it.
    fn check_on_host(
        &self,
        instruction: usize,
        kernel: &Kernel,
        ids: &[ValueId],
        spaces: &[SpaceId],
    ) -> Result<(), LoadError> {
        for (argument, &id) in ids.iter().enumerate() {
            let mut found = None;
            for_each_tensor(self.plan, id, |tensor, _| {
                if let Storage::Planned { buffer, .. } = self.plan.tensors[tensor].storage {
                    found = found.or(Some(buffer as usize).filter(|&buffer| !spaces[buffer].is_host()));
                }
            });
            if let Some(buffer) = found {
                return Err(LoadError::HostKernelOnDevice {
                    method: self.method(),
                    instruction,
                    operator: kernel.name.into(),
                    argument,
                    buffer,
                    size_bytes: self.plan.buffers[buffer].size_bytes,
                    space: spaces[buffer],
                });
            }
        }
        Ok(())
    }

    /// Where every tensor goes: a plan that was proved to be free of overlaps.
    fn place(
        &self,
        kernels: &[Kernel],
        roles: &Roles,
        spaces: &[SpaceId],
        replan: Replan,
    ) -> Result<Placement, LoadError> {
        let plan = self.plan;
        let mut placement = Placement::of_file(plan, spaces);
        let mut unwritten = flow::check(plan, kernels, roles, &placement)?;
        if replan != Replan::File {
            placement = placement.replanned(plan, kernels, roles, replan)?;
            unwritten = flow::check(plan, kernels, roles, &placement)?;
        }
        if self.options.share == Share::Scratch && !flow::jumps(plan) {
            placement = placement.apart(plan, &kept(plan, roles, &unwritten));
            flow::check(plan, kernels, roles, &placement)?;
        }
        Ok(placement)
    }

    /// Scratch for kernels, unless it is lent.
    fn take_temp(&self, planned: &Planned) -> Result<Temp, LoadError> {
        if planned.lent_temp.is_some() {
            return Ok(Temp::default());
        }
        let owner = format!("kernels of {} of {}", self.plan.name, self.program.file_name());
        Temp::take(&self.options.arenas, &owner)
            .map_err(|error| LoadError::refused(self.plan, "scratch", (SpaceId::HOST, 0, error.to_string())))
    }

    fn make_tables(&self, method: usize, kernels: &[Kernel], planned: &Planned) -> Result<Tables, LoadError> {
        let plan = self.plan;
        let mut chain_start = 0;
        let mut chains = plan.chains.iter().peekable();
        Tables::new(
            &plan.values,
            plan.tensors.len(),
            |index| Ok(self.make_tensor(method, index, planned)),
            plan.instructions.len(),
            |at| {
                while chains.peek().is_some_and(|chain| at >= (chain.start + chain.len) as usize) {
                    chains.next();
                }
                if let Some(chain) = chains.peek() {
                    chain_start = chain.start;
                }
                Ok(make_step(&plan.instructions[at], kernels, chain_start))
            },
        )
    }

    fn make_tensor(&self, method: usize, index: usize, planned: &Planned) -> Tensor {
        let spec = &self.plan.tensors[index];
        let (sizes, order) = (self.plan.sizes(spec), self.plan.order(spec));
        let mut tensor = Tensor::new(spec.dtype, sizes, order, spec.dynamic)
            .expect("the reader checked sizes and orders of every tensor");
        planned.bind(self.program, self.plan, (method, index), &mut tensor);
        tensor
    }
}

/// Whether an operator copies between spaces; the executor does it itself.
fn is_copy(operator: &str) -> bool {
    matches!(operator, "et_copy::_h2d_copy.out" | "et_copy::_d2h_copy.out")
}

fn make_step(instruction: &Instruction, kernels: &[Kernel], chain_start: u32) -> Step {
    match *instruction {
        Instruction::Kernel { operator, args } => match &kernels[operator as usize] {
            Kernel { name: "et_copy::_h2d_copy.out", .. } => Step::Upload { args },
            Kernel { name: "et_copy::_d2h_copy.out", .. } => Step::Download { args },
            kernel => Step::Kernel { run: kernel.run, args },
        },
        Instruction::Delegate { delegate, args } => Step::Delegate { delegate, args },
        Instruction::Move { from, to } => Step::Move { from, to },
        Instruction::JumpFalse { condition, target } => {
            Step::JumpFalse { condition, target: chain_start + target }
        }
        Instruction::Free { value } => Step::Free { value },
    }
}

/// Whether a run may change the value table: by a move, or by a primitive operator's result.
fn changes_values(plan: &MethodPlan, kernels: &[Kernel]) -> bool {
    plan.instructions.iter().any(|instruction| match *instruction {
        Instruction::Move { .. } => true,
        Instruction::Kernel { operator, .. } => {
            kernels[operator as usize].args.iter().any(|kind| matches!(kind, Arg::Result))
        }
        _ => false,
    })
}
