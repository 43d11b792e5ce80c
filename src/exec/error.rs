#![forbid(unsafe_code)]
//! Why a method could not be loaded or run.
//!
//! Every message is a sentence: what failed, in which method and value, what was expected, what came, and
//! what to do. [`ErrorKind`] is for those who match, [`ErrorCode`] for those who know ExecuTorch's numbers.

use crate::kernel::KernelError;
use crate::program::{ErrorCode, MethodPlan, ProgramError, ProgramErrorKind};
use crate::space::{QueueError, SpaceId};
use crate::tensor::DType;
use crate::tensor::shape::display_sizes;
use core::fmt;

/// What went wrong, in the words of the Python classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each kind is the name of its Python class")]
pub enum ErrorKind {
    ProgramFormat,
    UnsupportedProgram,
    MissingOperators,
    UnsupportedDelegate,
    Plan,
    MemorySpace,
    ArenaMemory,
    ExternalData,
    Input,
    Kernel,
    MethodNotFound,
    Io,
}

/// Why a method could not be loaded. Nothing is held then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant is its documentation")]
pub enum LoadError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(
        "{method}: arena {buffer} needs {needed_bytes} bytes in {space}; {present}. \
         Load it with an arena set that has {space}, or remap {space} to a space that is there if all its \
         operators run in that space"
    )]
    MissingSpace { method: String, buffer: usize, needed_bytes: usize, space: SpaceId, present: String },
    #[error("{method}: {owner} needs {needed_bytes} bytes in {space}: {reason}")]
    Memory { method: String, owner: String, needed_bytes: usize, space: SpaceId, reason: String },
    #[error(
        "{method}: the memory plan adds up to {planned_bytes} bytes, more than max_planned_bytes = {limit_bytes}. \
         Raise the limit if the file is trusted"
    )]
    PlanTooLarge { method: String, planned_bytes: usize, limit_bytes: usize },
    #[error(
        "{method}: no kernel for {}. Register one, or re-export without {}",
        .names.join(", "), if .names.len() == 1 { "it" } else { "them" }
    )]
    MissingOperators { method: String, names: Vec<String> },
    #[error("{method}: delegate {index} is {id}, which {reason}")]
    UnsupportedDelegate { method: String, index: usize, id: String, reason: String },
    #[error("{method}: delegate {index} ({id}) could not be loaded: {reason}")]
    Delegate { method: String, index: usize, id: String, reason: String },
    #[error("{method}: instruction {instruction} calls {operator} with {got}, expected {expected}")]
    Arguments { method: String, instruction: usize, operator: String, expected: String, got: String },
    #[error(
        "{method}: instruction {instruction} calls {operator}, which runs on the host, with argument {argument} in {space} \
         (arena {buffer}, {size_bytes} bytes). Export it for that space, or remap {space} to host"
    )]
    HostKernelOnDevice {
        method: String,
        instruction: usize,
        operator: String,
        argument: usize,
        buffer: usize,
        size_bytes: usize,
        space: SpaceId,
    },
    #[error(
        "{method}: the memory plan overlaps: {} reads value {value}, whose bytes {start_bytes} to {end_bytes} \
         of arena {buffer} {} gave to tensor {other}. Re-export with a memory plan that keeps them apart",
        At(*.reader), At(*.writer)
    )]
    Overwritten {
        method: String,
        value: u32,
        reader: u32,
        writer: u32,
        other: u32,
        buffer: u32,
        start_bytes: usize,
        end_bytes: usize,
    },
    #[error("{method}: its memory cannot be planned anew: {reason}. Load it with the plan of its file")]
    CannotReplan { method: String, reason: String },
    #[error("{method}: its memory plan cannot be drawn: {reason}")]
    CannotDraw { method: String, reason: String },
    #[error("{method}: its branches are too many to check its memory plan")]
    TooComplex { method: String },
}

/// An instruction number; the largest means the caller.
struct At(u32);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == u32::MAX { f.write_str("the caller") } else { write!(f, "instruction {}", self.0) }
    }
}

impl LoadError {
    /// Memory that was refused: the space, the bytes asked for, and what the space said.
    pub(super) fn refused(
        plan: &MethodPlan,
        owner: &str,
        (space, needed_bytes, reason): (SpaceId, usize, String),
    ) -> Self {
        Self::Memory { method: plan.name.to_string(), owner: owner.into(), needed_bytes, space, reason }
    }

    /// Device work that failed while loading.
    pub(super) fn queue(plan: &MethodPlan, owner: &str, error: &QueueError) -> Self {
        Self::refused(plan, owner, (error.space, 0, error.to_string()))
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Program(error) => match error.kind() {
                ProgramErrorKind::Format => ErrorKind::ProgramFormat,
                ProgramErrorKind::Plan => ErrorKind::Plan,
                ProgramErrorKind::ExternalData => ErrorKind::ExternalData,
                ProgramErrorKind::MethodNotFound => ErrorKind::MethodNotFound,
                ProgramErrorKind::Unsupported => ErrorKind::UnsupportedProgram,
                ProgramErrorKind::Io => ErrorKind::Io,
            },
            Self::MissingSpace { .. } | Self::HostKernelOnDevice { .. } => ErrorKind::MemorySpace,
            Self::Memory { .. } => ErrorKind::ArenaMemory,
            Self::PlanTooLarge { .. }
            | Self::Overwritten { .. }
            | Self::CannotReplan { .. }
            | Self::CannotDraw { .. }
            | Self::TooComplex { .. } => ErrorKind::Plan,
            Self::MissingOperators { .. } => ErrorKind::MissingOperators,
            Self::UnsupportedDelegate { .. } | Self::Delegate { .. } => ErrorKind::UnsupportedDelegate,
            Self::Arguments { .. } => ErrorKind::ProgramFormat,
        }
    }

    /// The number ExecuTorch's runtime gives to this failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Program(error) => error.code(),
            Self::MissingSpace { .. } | Self::UnsupportedDelegate { .. } => ErrorCode::NotFound,
            Self::Memory { .. } | Self::PlanTooLarge { .. } => ErrorCode::MemoryAllocationFailed,
            Self::MissingOperators { .. } => ErrorCode::OperatorMissing,
            Self::Delegate { .. } => ErrorCode::Internal,
            Self::CannotReplan { .. } | Self::CannotDraw { .. } => ErrorCode::NotSupported,
            Self::HostKernelOnDevice { .. } => ErrorCode::InvalidArgument,
            Self::Arguments { .. } | Self::Overwritten { .. } | Self::TooComplex { .. } => {
                ErrorCode::InvalidProgram
            }
        }
    }

    /// The method, where one is concerned.
    pub fn method(&self) -> Option<&str> {
        match self {
            Self::Program(_) => None,
            Self::MissingSpace { method, .. }
            | Self::Memory { method, .. }
            | Self::PlanTooLarge { method, .. }
            | Self::MissingOperators { method, .. }
            | Self::UnsupportedDelegate { method, .. }
            | Self::Delegate { method, .. }
            | Self::Arguments { method, .. }
            | Self::HostKernelOnDevice { method, .. }
            | Self::Overwritten { method, .. }
            | Self::CannotReplan { method, .. }
            | Self::CannotDraw { method, .. }
            | Self::TooComplex { method } => Some(method),
        }
    }
}

/// What is wrong with one input. Sizes are in elements.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant is its documentation")]
pub enum InputProblem {
    #[error("expected {expected}, got {got}")]
    Kind { expected: String, got: String },
    #[error("expected dtype {expected}, got {got}. Convert it, or re-export for {got}")]
    DType { expected: DType, got: DType },
    #[error(
        "expected {} dimensions, shape {}, got {}",
        .expected.len(), display_sizes(.expected), display_sizes(.got)
    )]
    Rank { expected: Box<[usize]>, got: Box<[usize]> },
    #[error(
        "expected shape {}, got {}. The shape is fixed; re-export with a dynamic Dim to vary it",
        display_sizes(.expected), display_sizes(.got)
    )]
    Shape { expected: Box<[usize]>, got: Box<[usize]> },
    #[error(
        "dim {dim} is {got}, the exported maximum is {maximum} (bounds {}, got {}). \
         Re-export with a larger Dim, or pass a smaller tensor",
        display_sizes(.bounds), display_sizes(.sizes)
    )]
    Bound { dim: usize, maximum: usize, got: usize, bounds: Box<[usize]>, sizes: Box<[usize]> },
    #[error("expected {expected}, got {got}. The value was frozen when the program was exported")]
    Frozen { expected: String, got: String },
    #[error("its elements are in {got}; this method takes it in {expected}")]
    Space { expected: SpaceId, got: SpaceId },
}

/// Why a method could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant is its documentation")]
pub enum ExecError {
    #[error("{method}: expected {expected} input{}, got {got}", if *.expected == 1 { "" } else { "s" })]
    InputCount { method: String, expected: usize, got: usize },
    #[error("{method}, input {index}: {problem}")]
    Input { method: String, index: usize, problem: InputProblem },
    #[error(
        "{method}, instruction {instruction}, {operator}: {source}{}",
        if *.state_written { ". State was already written in this run; reset_state() starts anew" } else { "" }
    )]
    Kernel { method: String, instruction: usize, operator: String, state_written: bool, source: KernelError },
    #[error("{method}, instruction {instruction}, delegate {id}: {reason}")]
    Delegate { method: String, instruction: usize, id: String, reason: String },
    #[error("{method}: cannot be captured as a graph, or launched as one: {reason}")]
    Graph { method: String, reason: String },
    #[error("{method}, instruction {instruction}: the condition is {got}, expected a truth value")]
    Condition { method: String, instruction: usize, got: String },
    #[error("{method}: still running after {limit} instructions; its loop does not end")]
    Endless { method: String, limit: u64 },
    #[error("{method}: no state named {name}; there is {}", if .present.is_empty() { "none".into() } else { .present.join(", ") })]
    NoSuchState { method: String, name: String, present: Vec<String> },
    #[error("{method}, state {name}: {problem}")]
    State { method: String, name: String, problem: InputProblem },
    #[error("{method}, output {index}: {problem}")]
    Output { method: String, index: usize, problem: String },
}

impl ExecError {
    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InputCount { .. }
            | Self::Input { .. }
            | Self::NoSuchState { .. }
            | Self::State { .. }
            | Self::Output { .. } => ErrorKind::Input,
            Self::Kernel { source: KernelError::Scratch { .. }, .. } => ErrorKind::ArenaMemory,
            Self::Kernel { .. }
            | Self::Delegate { .. }
            | Self::Graph { .. }
            | Self::Condition { .. }
            | Self::Endless { .. } => ErrorKind::Kernel,
        }
    }

    /// The number ExecuTorch's runtime gives to this failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Input { problem: InputProblem::Shape { .. } | InputProblem::Bound { .. }, .. } => {
                ErrorCode::NotSupported
            }
            Self::NoSuchState { .. } => ErrorCode::NotFound,
            Self::Kernel { source: KernelError::Scratch { .. }, .. } => ErrorCode::MemoryAllocationFailed,
            Self::Condition { .. } | Self::Endless { .. } => ErrorCode::InvalidProgram,
            Self::Delegate { .. } => ErrorCode::Internal,
            Self::Graph { .. } => ErrorCode::NotSupported,
            _ => ErrorCode::InvalidArgument,
        }
    }

    /// The method.
    pub fn method(&self) -> &str {
        match self {
            Self::InputCount { method, .. }
            | Self::Input { method, .. }
            | Self::Kernel { method, .. }
            | Self::Delegate { method, .. }
            | Self::Graph { method, .. }
            | Self::Condition { method, .. }
            | Self::Endless { method, .. }
            | Self::NoSuchState { method, .. }
            | Self::State { method, .. }
            | Self::Output { method, .. } => method,
        }
    }
}
