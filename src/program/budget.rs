#![forbid(unsafe_code)]
//! A limit on what the tables of a file may unfold to.
//!
//! Offsets let many tables share one, so that a small file can describe a model of any size. Real files
//! share nothing that is large; each part of the model is therefore charged before it is made.
//!
//! Deliberately absent: planned memory, which the executor limits.

use super::error::Fault;
use crate::value::Span;

/// How many times its tables' length a file may unfold to.
const UNFOLD_MAX: usize = 8;
/// What a file of any length may unfold to.
const UNFOLD_BYTES_MIN: usize = 16 << 10;

/// Bytes of the model that may still be made.
#[derive(Debug)]
pub(super) struct Budget {
    left_bytes: usize,
    limit_bytes: usize,
}

impl Budget {
    /// The budget of a file whose tables have this length.
    pub(super) fn new(tables_bytes: usize) -> Self {
        let limit_bytes = tables_bytes.saturating_mul(UNFOLD_MAX).max(UNFOLD_BYTES_MIN);
        Self { left_bytes: limit_bytes, limit_bytes }
    }

    /// Charges `count` items of type `T`.
    #[inline]
    pub(super) fn charge<T>(&mut self, count: usize) -> Result<(), Fault> {
        match count.checked_mul(size_of::<T>()).and_then(|bytes| self.left_bytes.checked_sub(bytes)) {
            Some(left) => {
                self.left_bytes = left;
                Ok(())
            }
            None => Err(Fault::Unfolds { limit_bytes: self.limit_bytes }),
        }
    }

    /// The span of `len` items that follow `start` others.
    #[inline]
    pub(super) fn span(&self, start: usize, len: usize) -> Result<Span, Fault> {
        match (u32::try_from(start), u32::try_from(len)) {
            (Ok(start), Ok(len)) if start.checked_add(len).is_some() => Ok(Span { start, len }),
            _ => Err(Fault::Unfolds { limit_bytes: self.limit_bytes }),
        }
    }

    /// An index as files and spans hold it.
    #[inline]
    pub(super) fn index(&self, index: usize) -> Result<u32, Fault> {
        u32::try_from(index).map_err(|_| Fault::Unfolds { limit_bytes: self.limit_bytes })
    }
}
