#![forbid(unsafe_code)]
//! Why a tensor's elements cannot be reached or its sizes not changed.

use super::dtype::DType;
use super::shape::display_sizes;
use crate::space::SpaceId;

/// Why a tensor's elements cannot be reached or its sizes not changed. Sizes are in elements.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant is its documentation")]
pub enum TensorError {
    #[error("no memory was given to this tensor")]
    Unset,
    #[error("its memory is in {0}, which the CPU cannot reach")]
    NotHost(SpaceId),
    #[error("its memory is read-only")]
    ReadOnly,
    #[error("its elements are {got}, expected {expected}")]
    DType { expected: DType, got: DType },
    #[error("its address is not a multiple of {alignment}")]
    Misaligned { alignment: usize },
    #[error("it needs {needed_bytes} bytes and has {held_bytes}")]
    TooSmall { needed_bytes: usize, held_bytes: usize },
    #[error("sizes {}, fixed at {}", display_sizes(.got), display_sizes(.expected))]
    Static { expected: Box<[usize]>, got: Box<[usize]> },
    #[error("sizes {}, at most {} elements ({})", display_sizes(.got), .numel_max, display_sizes(.bound))]
    Bound { bound: Box<[usize]>, numel_max: usize, got: Box<[usize]> },
    #[error("rank {got}, expected {expected}")]
    Rank { expected: usize, got: usize },
}
