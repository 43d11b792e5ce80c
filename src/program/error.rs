#![forbid(unsafe_code)]
//! Why a program is refused: where, and with which numbers.
//!
//! [`ProgramError`] says whether a file could not be reached, lacks the method, or is not valid;
//! [`Fault`] holds every reason for the last; [`Place`] says where in the file.
//!
//! Deliberately absent: errors of running. A program that is loaded has none of these.

use super::code::ErrorCode;
use super::header::FileKind;
use crate::space::SpaceId;
use crate::tensor::DType;
use crate::tensor::shape::display_sizes;
use core::fmt;
use std::path::PathBuf;

/// Why a program cannot be loaded, or a method not be found in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// A file cannot be reached.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says; a missing file is [`std::io::ErrorKind::NotFound`].
        source: std::io::Error,
    },
    /// The program has no method of this name.
    #[error("no method {name:?}; the program has {}", Listed(present))]
    MethodNotFound {
        /// The name that was asked for.
        name: Box<str>,
        /// The names there are.
        present: Box<[Box<str>]>,
    },
    /// A file is not valid, not supported, or does not fit the others.
    #[error("{at}: {fault}")]
    Invalid {
        /// Where.
        at: Place,
        /// Why.
        fault: Fault,
    },
}

/// The sort of a [`ProgramError`], for those who turn it into an error of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProgramErrorKind {
    /// The file is not a program, or is broken.
    Format,
    /// The memory plan in the file cannot be carried out.
    Plan,
    /// A data file is broken, missing, or of another program.
    ExternalData,
    /// No method of this name.
    MethodNotFound,
    /// Legal, and not done here.
    Unsupported,
    /// A file cannot be reached.
    Io,
}

/// Where in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The path, or `<bytes>`.
    pub file: Box<str>,
    /// The method, where it is known.
    pub method: Option<Box<str>>,
    /// The part of it.
    pub part: Part,
    /// Whether the file is a data file (`.ptd`).
    pub is_data_file: bool,
}

/// The part of a file or method that is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Part {
    /// The whole.
    #[default]
    Whole,
    /// A value, by index.
    Value(u32),
    /// An input, by position.
    Input(u32),
    /// An output, by position.
    Output(u32),
    /// A planned buffer, by memory id.
    Buffer(u32),
    /// A row of the operator table.
    Operator(u32),
    /// A delegate, by index.
    Delegate(u32),
    /// A row of the table of named data.
    NamedData(u32),
    /// A segment, by index.
    Segment(u32),
    /// An instruction, by chain and position in it.
    Instruction {
        /// The chain.
        chain: u32,
        /// The position.
        index: u32,
    },
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Value(index) => write!(f, "value {index}"),
            Self::Input(index) => write!(f, "input {index}"),
            Self::Output(index) => write!(f, "output {index}"),
            Self::Buffer(index) => write!(f, "planned buffer {index}"),
            Self::Operator(index) => write!(f, "operator {index}"),
            Self::Delegate(index) => write!(f, "delegate {index}"),
            Self::NamedData(index) => write!(f, "named data {index}"),
            Self::Segment(index) => write!(f, "segment {index}"),
            Self::Instruction { chain: 0, index } => write!(f, "instruction {index}"),
            Self::Instruction { chain, index } => write!(f, "chain {chain}, instruction {index}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        match (&self.method, self.part) {
            (None, Part::Whole) => Ok(()),
            (None, part) => write!(f, ": {part}"),
            (Some(method), Part::Whole) => write!(f, ": {method}"),
            (Some(method), part) => write!(f, ": {method}, {part}"),
        }
    }
}

/// Element kind, sizes and dimension order, as a data file and a program each state them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The element kind.
    pub dtype: DType,
    /// Sizes in elements.
    pub sizes: Box<[usize]>,
    /// The dimension stored at each position, outermost first.
    pub order: Box<[u8]>,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in order {}", self.dtype, display_sizes(&self.sizes), display_sizes(&self.order))
    }
}

/// Why a file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant is its documentation")]
pub enum Fault {
    // The file as a whole.
    #[error("{found}; expected an ExecuTorch program (.pte){}", found.advice())]
    NotAProgram { found: FileKind },
    #[error("{found}; expected an ExecuTorch data file (.ptd){}", found.advice())]
    NotADataFile { found: FileKind },
    #[error(
        "the file ends at byte {held_bytes} and says that it has {needed_bytes}: it was cut short; copy it again"
    )]
    Cut { needed_bytes: u64, held_bytes: u64 },
    #[error("header: {field} {value}; expected {rule} {bound}")]
    Header { field: &'static str, value: u64, rule: &'static str, bound: u64 },
    #[error("schema version {version}; this reader knows version 0")]
    Version { version: u32 },
    #[error("{table} table at byte {byte_offset}, field {field}: {reason}")]
    Table { table: &'static str, field: &'static str, byte_offset: usize, reason: &'static str },
    #[error("its tables name one another so often that they unfold to more than {limit_bytes} bytes")]
    Unfolds { limit_bytes: usize },
    #[error("{field} is missing")]
    Missing { field: &'static str },
    #[error("{what} {index} does not exist; there are {count}")]
    Index { what: &'static str, index: i64, count: usize },
    #[error("unknown {what} {tag}")]
    Tag { what: &'static str, tag: i64 },
    #[error("it takes {size_bytes} bytes from byte {offset} on; the file has {held_bytes}")]
    SegmentOutside { offset: u64, size_bytes: u64, held_bytes: u64 },
    #[error("it has {size_bytes} bytes and the header does not say where segments begin")]
    SegmentWithoutBase { size_bytes: u64 },
    #[error("constants lie both in the tables and in a segment")]
    ConstantsTwice,
    #[error("two methods are called {name:?}")]
    MethodTwice { name: Box<str> },
    #[error("two entries of named data have the key {key:?}")]
    KeyTwice { key: Box<str> },

    // Values.
    #[error("item {item} names value {value}, which is {got}; expected {expected}")]
    Item { item: usize, value: i64, expected: &'static str, got: &'static str },
    #[error("element kind {code} does not exist")]
    DType { code: i64 },
    #[error("{rank} dimensions; at most {limit} are possible")]
    Rank { rank: usize, limit: usize },
    #[error("dim {dim} is {size}")]
    Size { dim: usize, size: i64 },
    #[error("dimension order {} is no permutation of {rank} dimensions", display_sizes(order))]
    Order { order: Box<[u8]>, rank: usize },
    #[error("sizes {} of {dtype} overflow", display_sizes(sizes))]
    TensorOverflow { dtype: DType, sizes: Box<[usize]> },
    #[error("its sizes have no upper bound; export it with a bounded Dim")]
    Unbounded,
    #[error("it begins {offset} elements into its storage; only 0 is supported")]
    StorageOffset { offset: i64 },
    #[error(
        "device type {device_type}, index {device_index}; known are 0 (CPU) and 1 (CUDA) from index 0 on"
    )]
    Device { device_type: i8, device_index: i8 },
    #[error("constant {index} takes {size_bytes} bytes from byte {offset} on; its segment has {held_bytes}")]
    ConstantOutside { index: u32, offset: u64, size_bytes: usize, held_bytes: usize },
    #[error("a constant in {space}; constants are on the host")]
    ConstantSpace { space: SpaceId },
    #[error("it has initial value {index} and the program has no segment of initial values")]
    NoInitials { index: u32 },

    // The signature and the code.
    #[error("a constant cannot be an input")]
    ConstantInput,
    #[error("{kind} cannot be passed in or out; a tensor, int, bool, float, str or None can")]
    Signature { kind: &'static str },
    #[error("it jumps to instruction {target}; its chain has {count}")]
    JumpTarget { target: i64, count: usize },
    #[error("its name has {len} characters; at most {limit} are possible")]
    OperatorName { len: usize, limit: usize },

    // The memory plan.
    #[error("memory id {memory_id} does not exist; ids are 1 to {last}")]
    MemoryId { memory_id: u32, last: usize },
    #[error(
        "it takes {size_bytes} bytes from byte {offset_bytes} of planned buffer {buffer} on, which has {buffer_bytes}"
    )]
    PlannedOutside { buffer: u32, offset_bytes: u64, size_bytes: usize, buffer_bytes: usize },
    #[error(
        "it lies at byte {offset_bytes} of planned buffer {buffer}, which is no multiple of its element size {alignment}"
    )]
    PlannedMisaligned { buffer: u32, offset_bytes: u64, alignment: usize },
    #[error("it is in {space} and planned buffer {buffer} is in {buffer_space}")]
    PlannedSpace { space: SpaceId, buffer: u32, buffer_space: SpaceId },
    #[error("{size} bytes")]
    BufferSize { size: i64 },
    #[error("the device list names planned buffer {index}; buffers are 1 to {last}")]
    BufferDevice { index: i64, last: usize },
    #[error("the device list puts it in {first} and in {second}")]
    BufferDeviceTwice { first: SpaceId, second: SpaceId },
    #[error("the sizes of its planned buffers overflow")]
    BufferOverflow,

    // Data files.
    #[error("data outside the program, and no name to find it by")]
    ExternalUnnamed,
    #[error("{}", MissingData { keys, files })]
    MissingData { keys: Box<[Box<str>]>, files: Box<[Box<str>]> },
    #[error("data {key:?}: the program wants {wanted}, the data file has {found}; it is of another export")]
    DataLayout { key: Box<str>, wanted: Box<Layout>, found: Box<Layout> },
    #[error("data {key:?} has no layout in the data file and the program wants a tensor")]
    NoDataLayout { key: Box<str> },
    #[error("data {key:?} has {held_bytes} bytes; {needed_bytes} are needed")]
    DataShort { key: Box<str>, needed_bytes: usize, held_bytes: usize },
    #[error("data {key:?} is also in {first}; give the data files of one program only")]
    DataTwice { key: Box<str>, first: Box<str> },
}

impl Fault {
    /// The sort of this fault.
    pub fn kind(&self) -> ProgramErrorKind {
        use ProgramErrorKind::{ExternalData, Format, Plan, Unsupported};
        match self {
            Self::Unbounded | Self::StorageOffset { .. } | Self::Device { .. } | Self::Version { .. } => {
                Unsupported
            }
            Self::ConstantSpace { .. } | Self::Signature { .. } => Unsupported,
            Self::MemoryId { .. }
            | Self::PlannedOutside { .. }
            | Self::PlannedMisaligned { .. }
            | Self::PlannedSpace { .. }
            | Self::BufferSize { .. }
            | Self::BufferDevice { .. }
            | Self::BufferDeviceTwice { .. }
            | Self::BufferOverflow => Plan,
            Self::NotADataFile { .. }
            | Self::MissingData { .. }
            | Self::DataLayout { .. }
            | Self::NoDataLayout { .. }
            | Self::DataShort { .. }
            | Self::DataTwice { .. } => ExternalData,
            _ => Format,
        }
    }

    /// The number that ExecuTorch's runtime gives to the same failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Unbounded | Self::StorageOffset { .. } | Self::Device { .. } => ErrorCode::NotSupported,
            Self::ConstantSpace { .. } => ErrorCode::NotSupported,
            Self::Item { .. } => ErrorCode::InvalidType,
            Self::Order { .. } | Self::OperatorName { .. } => ErrorCode::Internal,
            Self::ConstantOutside { .. } | Self::MemoryId { .. } => ErrorCode::InvalidArgument,
            Self::Signature { .. } | Self::ConstantInput => ErrorCode::InvalidArgument,
            Self::PlannedOutside { .. } => ErrorCode::MemoryAllocationFailed,
            Self::NoInitials { .. } => ErrorCode::NotFound,
            Self::MissingData { files, .. } if files.is_empty() => ErrorCode::InvalidState,
            Self::MissingData { .. } => ErrorCode::NotFound,
            Self::DataTwice { .. } => ErrorCode::InvalidArgument,
            Self::Index { what: "constant" | "initial value", .. } => ErrorCode::InvalidArgument,
            Self::Index { what: "inline delegate data" | "segment of delegate data", .. } => {
                ErrorCode::NotFound
            }
            Self::Index { what: "delegate", .. } => ErrorCode::Internal,
            Self::Tag { what: "location of delegate data", .. } => ErrorCode::Internal,
            _ if self.kind() == ProgramErrorKind::ExternalData => ErrorCode::InvalidExternalData,
            _ => ErrorCode::InvalidProgram,
        }
    }
}

impl ProgramError {
    /// The sort of this error.
    pub fn kind(&self) -> ProgramErrorKind {
        match self {
            Self::Io { .. } => ProgramErrorKind::Io,
            Self::MethodNotFound { .. } => ProgramErrorKind::MethodNotFound,
            Self::Invalid { at, fault } => match fault.kind() {
                ProgramErrorKind::Format if at.is_data_file => ProgramErrorKind::ExternalData,
                kind => kind,
            },
        }
    }

    /// The number that ExecuTorch's runtime gives to the same failure.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Io { .. } => ErrorCode::AccessFailed,
            Self::MethodNotFound { .. } => ErrorCode::InvalidArgument,
            Self::Invalid { at, fault } => match fault.code() {
                ErrorCode::InvalidProgram if at.is_data_file => ErrorCode::InvalidExternalData,
                code => code,
            },
        }
    }

    /// The method that is at fault, where there is one.
    pub fn method(&self) -> Option<&str> {
        match self {
            Self::Invalid { at, .. } => at.method.as_deref(),
            Self::MethodNotFound { name, .. } => Some(name),
            Self::Io { .. } => None,
        }
    }
}

/// Names as a list: `"a", "b" and "c"`, or `none`.
struct Listed<'a>(&'a [Box<str>]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 8;
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, name) in self.0.iter().take(SHOWN_MAX).enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            write!(f, "{name:?}")?;
        }
        match self.0.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

struct MissingData<'a> {
    keys: &'a [Box<str>],
    files: &'a [Box<str>],
}

impl fmt::Display for MissingData<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = Listed(self.keys);
        if self.files.is_empty() {
            return write!(
                f,
                "data {keys} lies outside the program; give its data file (.ptd) with data_path"
            );
        }
        write!(
            f,
            "data {keys} is not in {}; give the data file (.ptd) of this export with data_path",
            Listed(self.files)
        )
    }
}

/// A fault and its part of a method, before the file and the method are known to the code at hand.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) part: Part,
    pub(super) fault: Fault,
}

impl Refusal {
    /// The error, once file and method are known.
    #[cold]
    pub(super) fn into_error(self, file: &str, method: Option<&str>, is_data_file: bool) -> ProgramError {
        let at = Place { file: file.into(), method: method.map(Into::into), part: self.part, is_data_file };
        ProgramError::Invalid { at, fault: self.fault }
    }
}

impl<F: Into<Fault>> From<F> for Refusal {
    #[cold]
    fn from(fault: F) -> Self {
        Self { part: Part::Whole, fault: fault.into() }
    }
}

impl From<planus::Error> for Fault {
    #[cold]
    fn from(error: planus::Error) -> Self {
        use planus::errors::ErrorKind;
        let reason = match error.error_kind {
            ErrorKind::InvalidOffset => "an offset leads outside of the tables",
            ErrorKind::InvalidLength => "a length leads outside of the tables",
            ErrorKind::InvalidVtableLength { .. } => "the list of its fields is broken",
            ErrorKind::InvalidUtf8 { .. } => "the text is not UTF-8",
            _ => "it cannot be read",
        };
        let place = error.source_location;
        Self::Table { table: place.type_, field: place.method, byte_offset: place.byte_offset, reason }
    }
}

/// Adds the part of a method to a fault.
pub(super) trait At<T> {
    fn at(self, part: Part) -> Result<T, Refusal>;
}

impl<T, F: Into<Fault>> At<T> for Result<T, F> {
    #[inline]
    fn at(self, part: Part) -> Result<T, Refusal> {
        self.map_err(|fault| Refusal { part, fault: fault.into() })
    }
}
