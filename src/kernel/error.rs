#![forbid(unsafe_code)]
//! Why a kernel could not run.

use crate::tensor::TensorError;

/// Why a kernel could not run. Arguments are numbered as in the operator's schema, from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// An argument is missing or of the wrong kind.
    #[error("argument {index} is {got}, expected {expected}")]
    Argument {
        /// Which argument.
        index: usize,
        /// The kind that the schema wants.
        expected: &'static str,
        /// The kind that came.
        got: &'static str,
    },
    /// A tensor argument cannot be used.
    #[error("argument {index}: {source}")]
    Tensor {
        /// Which argument.
        index: usize,
        /// Why.
        source: TensorError,
    },
    /// Element kinds do not fit together or are not supported; the text names them.
    #[error("{0}")]
    DType(String),
    /// Sizes do not fit together; the text names both.
    #[error("{0}")]
    Shape(String),
    /// Elements do not lie as the kernel needs; the text names the orders.
    #[error("{0}")]
    Layout(String),
    /// A number is outside its range: an index, a dimension, an option; the text names both.
    #[error("{0}")]
    Range(String),
    /// The scratch arena could not give what the kernel asked for.
    #[error("scratch of {asked_bytes} bytes: {reason}")]
    Scratch {
        /// Bytes asked for.
        asked_bytes: usize,
        /// What the arena said.
        reason: String,
    },
    /// The kernel does not do this; the text says what.
    #[error("{0}")]
    Unsupported(String),
}

/// Returns early with a [`KernelError`] of the named variant and a formatted text.
macro_rules! fail {
    ($variant:ident, $($text:tt)+) => {
        return Err($crate::kernel::KernelError::$variant(format!($($text)+)))
    };
}
pub(crate) use fail;
