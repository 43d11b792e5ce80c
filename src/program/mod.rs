//! Programs exported by ExecuTorch: `.pte` files and their `.ptd` data files.
//!
//! ```text
//!   m.pte ──┐  check once, at the door          ┌── methods: values, tensors, instructions, buffers
//!           ├──────────────────────► Program ───┤
//!   w.ptd ──┘                                   └── bytes of constants, where they lie in the files
//! ```
//!
//! Every offset, index, size and key is checked when a program is opened, with checked arithmetic. Past
//! that door types imply validity: an index in a [`MethodPlan`] is in range, an extent inside its buffer,
//! a constant inside its file and aligned for its elements.
//!
//! ```
//! use arenite::program::{Program, ProgramOptions};
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/seed_net.pte");
//! let program = Program::open(path, &ProgramOptions::new())?;
//! let forward = program.method("forward")?;
//! assert_eq!(forward.inputs.len(), 2);
//! assert_eq!(forward.buffers[1].size_bytes, 768);
//! # Ok::<(), arenite::program::ProgramError>(())
//! ```
//!
//! Deliberately absent: memory and execution. Opening a program runs nothing and claims nothing.

mod budget;
mod bytes;
mod code;
mod data;
mod error;
mod flat;
mod header;
mod meta;
mod method;
mod options;
mod plan;
mod schema;
mod source;
mod state;
mod steps;
mod tensor;

pub use code::ErrorCode;
pub use error::{Fault, Layout, Part, Place, ProgramError, ProgramErrorKind};
pub use header::FileKind;
pub use meta::{Constants, NamedBlob, Placement, TensorMeta, ValueMeta};
pub use method::{
    CompileSpec, DataRef, DelegateSpec, Instruction, MethodPlan, PlannedBuffer, Storage, TensorSpec,
};
pub use options::{DataSource, ProgramOptions};
pub use state::{SharedState, State, StateMember};

use bytes::ProgramBytes;
use data::DataFile;
use error::{At, Refusal};
use source::Source;
use std::path::Path;

/// A program: its methods, and the files their bytes lie in.
///
/// Opened once and shared behind an `Arc`; nothing in it changes.
#[derive(Debug)]
pub struct Program {
    label: Box<str>,
    bytes: ProgramBytes,
    data_files: Vec<DataFile>,
    /// Copies of constants that lie badly in their file; mostly empty.
    realigned: ProgramBytes,
    methods: Vec<MethodPlan>,
    /// The program's own named data, in order of keys.
    named: Vec<(Box<str>, DataRef)>,
    shared_state: Vec<SharedState>,
}

/// What checking a program gives.
struct Checked {
    methods: Vec<MethodPlan>,
    named: Vec<(Box<str>, DataRef)>,
    realigned: Vec<u8>,
}

impl Program {
    /// Opens a program file and its data files, and checks them.
    ///
    /// Large files are mapped unless [`ProgramOptions::with_mmap`] says otherwise, and constants are used
    /// where they lie. A mapped file must not be changed or cut while the program lives: its constants
    /// would change with it, and a read past its new end kills the process.
    ///
    /// # Errors
    /// [`ProgramError::Io`] where a file cannot be reached; [`ProgramError::Invalid`] where one is not what
    /// it should be. A data file that is missing altogether is [`Program::method`]'s to say.
    ///
    /// # Source
    /// `Program::load` and `Method::init` of the ExecuTorch runtime, version 1.5, and stricter.
    pub fn open(path: impl AsRef<Path>, options: &ProgramOptions<'_>) -> Result<Self, ProgramError> {
        let path = path.as_ref();
        let bytes = ProgramBytes::open(path, options.mmap, false)?;
        Self::new(path.to_string_lossy().into(), bytes, options)
    }

    /// Copies these bytes and checks them as [`Program::open`] does.
    ///
    /// # Errors
    /// As [`Program::open`].
    pub fn from_bytes(bytes: &[u8], options: &ProgramOptions<'_>) -> Result<Self, ProgramError> {
        Self::new("<bytes>".into(), ProgramBytes::copy_of(bytes), options)
    }

    fn new(label: Box<str>, bytes: ProgramBytes, options: &ProgramOptions<'_>) -> Result<Self, ProgramError> {
        let data_files = options.open_data_files()?;
        let checked = check(bytes.as_slice(), &label, &data_files)?;
        let shared_state = state::shared(&checked.methods);
        Ok(Self {
            label,
            bytes,
            data_files,
            realigned: ProgramBytes::copy_of(&checked.realigned),
            methods: checked.methods,
            named: checked.named,
            shared_state,
        })
    }

    /// What messages call this program: its path, or `<bytes>`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The last part of [`label`](Self::label): the name of its file.
    pub fn file_name(&self) -> &str {
        self.label.rsplit('/').next().unwrap_or(&self.label)
    }

    /// Every method, in the order of the file; also those whose data file was not given.
    pub fn methods(&self) -> &[MethodPlan] {
        &self.methods
    }

    /// The method of this name, ready to be carried out.
    ///
    /// # Errors
    /// [`ProgramError::MethodNotFound`]; [`Fault::MissingData`] where it has tensors in a data file that was
    /// not given.
    pub fn method(&self, name: &str) -> Result<&MethodPlan, ProgramError> {
        let method = self.methods.iter().find(|method| *method.name == *name).ok_or_else(|| {
            let present = self.methods.iter().map(|method| method.name.clone()).collect();
            ProgramError::MethodNotFound { name: name.into(), present }
        })?;
        if method.missing.is_empty() {
            return Ok(method);
        }
        let keys = method.missing_data().map(Into::into).collect();
        let files = self.data_files.iter().map(|file| file.label.clone()).collect();
        Err(Refusal::from(Fault::MissingData { keys, files }).into_error(&self.label, Some(name), false))
    }

    /// The bytes of a constant, an initial value or a delegate's blob.
    ///
    /// Their address stays the same for as long as the program lives. A reference of another program gives
    /// other bytes, or none.
    #[inline]
    pub fn data(&self, data: DataRef) -> &[u8] {
        let file = match data.source as usize {
            0 => &self.bytes,
            number => self.data_files.get(number - 1).map_or(&self.realigned, |file| &file.bytes),
        };
        let end = data.offset.saturating_add(data.len);
        file.as_slice().get(data.offset..end).unwrap_or_default()
    }

    /// The bytes that a delegate knows by this key: of a data file, or else of the program.
    pub fn named(&self, key: &str) -> Option<&[u8]> {
        let external = self.data_files.iter().find_map(|file| file.get(key)).map(|entry| entry.data);
        let own = || {
            let found = self.named.binary_search_by(|(name, _)| (**name).cmp(key)).ok()?;
            self.named.get(found).map(|&(_, data)| data)
        };
        external.or_else(own).map(|data| self.data(data))
    }

    /// Named mutable buffers that several methods place alike, and so hold in common.
    pub fn shared_state(&self) -> &[SharedState] {
        &self.shared_state
    }
}

/// Checks a program against its data files.
fn check(bytes: &[u8], label: &str, data_files: &[DataFile]) -> Result<Checked, ProgramError> {
    let whole = |refusal: Refusal| refusal.into_error(label, None, false);
    let (root, mut source) = open_source(bytes, data_files).map_err(whole)?;
    let plans = method_tables(root).map_err(whole)?;
    let mut methods = Vec::new();
    for index in 0..plans.len() {
        let (plan, name) = method_table(plans, index).map_err(whole)?;
        let read = source.read_method(plan, name);
        methods.push(read.map_err(|refusal| refusal.into_error(label, Some(name), false))?);
    }
    check_names(&methods).map_err(whole)?;
    let named = source.named_data(root).map_err(whole)?;
    Ok(Checked { methods, named, realigned: source.into_realigned() })
}

/// The root table, and what all methods read from.
fn open_source<'a>(
    bytes: &'a [u8],
    data_files: &'a [DataFile],
) -> Result<(schema::Program<'a>, Source<'a>), Refusal> {
    let extents = header::program_extents(bytes)?;
    let root = schema::Program::root(&bytes[..extents.tables])?;
    let version = root.version()?;
    if version > 0 {
        return Err(Fault::Version { version }.into());
    }
    Ok((root, Source::new(root, bytes, extents, data_files)?))
}

fn method_tables(root: schema::Program<'_>) -> Result<flat::Tables<'_>, Refusal> {
    Ok(schema::required(root.execution_plan()?, "execution_plan")?)
}

/// A method's table and its name.
fn method_table(plans: flat::Tables<'_>, index: usize) -> Result<(schema::ExecutionPlan<'_>, &str), Refusal> {
    let plan: schema::ExecutionPlan<'_> = plans.get(index)?;
    let name = schema::required(plan.name()?, "name")?;
    Ok((plan, name))
}

/// Refuses two methods of one name.
fn check_names(methods: &[MethodPlan]) -> Result<(), Refusal> {
    let mut names: Vec<&str> = methods.iter().map(|method| &*method.name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Fault::MethodTwice { name: pair[0].into() }).at(Part::Whole),
        None => Ok(()),
    }
}
