#![forbid(unsafe_code)]
//! Why a delegate could not be loaded or run.

use crate::space::{QueueError, SpaceId};

/// Why a delegate could not be loaded or run. The executor adds the method and the delegate's index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DelegateError {
    /// The payload or the code in the program is damaged.
    #[error("the program is corrupt: {reason}")]
    Corrupt {
        /// What is wrong with it.
        reason: String,
    },
    /// The payload is of a form that this version does not read.
    #[error("payload format {format} is not supported by this version; it reads {supported}")]
    Format {
        /// The form, as the payload names itself.
        format: String,
        /// The forms that can be read.
        supported: &'static str,
    },
    /// The caller's rule forbids this code.
    #[error("native code {sha256} may not run here; allow it, or add its key to the list of allowed ones")]
    Denied {
        /// The digest of the code, in hexadecimal.
        sha256: String,
    },
    /// Named data that the delegate needs was given by no file.
    #[error("{what} (key {key:?}{}) not found in {searched}; {advice}", display_size(*.size_bytes))]
    DataMissing {
        /// What it is for.
        what: String,
        /// Its name.
        key: String,
        /// Its size, where known.
        size_bytes: Option<u64>,
        /// The files that were searched.
        searched: String,
        /// What to do.
        advice: &'static str,
    },
    /// Named data is there, and of another size than the program says.
    #[error(
        "{what} (key {key:?}) has {got_bytes} bytes, expected {expected_bytes}; the data file does not belong to this program"
    )]
    DataSize {
        /// What it is for.
        what: String,
        /// Its name.
        key: String,
        /// The size that the program states.
        expected_bytes: u64,
        /// The size that is there.
        got_bytes: u64,
    },
    /// The code needs operators or functions that are not provided.
    #[error("operators not provided: {}", .names.join(", "))]
    MissingOperators {
        /// Their names.
        names: Vec<String>,
    },
    /// This machine cannot run it; the text says why and what to do.
    #[error("{reason}")]
    Unavailable {
        /// Why, as a sentence.
        reason: String,
    },
    /// The code was made for another machine; the text says which, what this one is, and what to do.
    #[error("{reason}")]
    Incompatible {
        /// Why, as a sentence.
        reason: String,
    },
    /// The delegate's constants do not match the program's list of them.
    #[error("constant {name:?}: {reason}")]
    Constant {
        /// Its name in the exported model.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// A call has another number of arguments than the code takes.
    #[error("takes {inputs} inputs and {outputs} outputs, the program passes {got} arguments")]
    ArgumentCount {
        /// Inputs of the code.
        inputs: usize,
        /// Outputs of the code.
        outputs: usize,
        /// Arguments in the program.
        got: usize,
    },
    /// An argument is no tensor.
    #[error("argument {index} is {got}, expected tensor")]
    Argument {
        /// Which.
        index: usize,
        /// What it is.
        got: &'static str,
    },
    /// A tensor argument cannot be used; the text says why.
    #[error("argument {index}: {reason}")]
    Tensor {
        /// Which.
        index: usize,
        /// Why.
        reason: String,
    },
    /// A space could not give memory.
    #[error("{space}: {what} of {asked_bytes} bytes: {reason}")]
    Memory {
        /// The space.
        space: SpaceId,
        /// What it was for.
        what: &'static str,
        /// Bytes asked for.
        asked_bytes: usize,
        /// What the space said.
        reason: String,
    },
    /// Work on the device could not be queued or failed.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The code ran and failed; the text is its own.
    #[error("{reason}")]
    Failed {
        /// What happened.
        reason: String,
    },
}

fn display_size(size_bytes: Option<u64>) -> String {
    size_bytes.map(|size| format!(", {size} bytes")).unwrap_or_default()
}
