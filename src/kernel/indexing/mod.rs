#![forbid(unsafe_code)]
//! Indexing: elements picked, placed or counted by tensors of indices or truth values.
//!
//! Every index is checked before anything is written; a message names the index and its bound. Only
//! `index` and `index_put` count negative indices from the end; elsewhere they are refused.
//!
//! Deliberately absent: gradients, so the flags that concern them change nothing.

mod advanced;
mod gather;
mod mask;
mod rows;

use super::{Arg, Kernel, KernelError, fail};
use crate::tensor::{DType, Dims, ReadCell, Tensor};

const T: Arg = Arg::Tensor;
const INT: Arg = Arg::Int;
const OUT: Arg = Arg::Out;
const BOOL: Arg = Arg::Bool;
const PLACES: Arg = Arg::OptionalTensorList;

/// The indexing operators.
pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "aten::embedding.out", args: &[T, T, INT, BOOL, BOOL, OUT], run: rows::embedding },
    Kernel { name: "aten::index_select.out", args: &[T, INT, T, OUT], run: rows::index_select },
    Kernel { name: "aten::index.Tensor_out", args: &[T, PLACES, OUT], run: advanced::index },
    Kernel { name: "aten::index_put.out", args: &[T, PLACES, T, BOOL, OUT], run: advanced::index_put },
    Kernel {
        name: "aten::index_put_",
        args: &[Arg::InOut, PLACES, T, BOOL],
        run: advanced::index_put_in_place,
    },
    Kernel { name: "aten::gather.out", args: &[T, INT, T, BOOL, OUT], run: gather::gather },
    Kernel { name: "aten::scatter.src_out", args: &[T, INT, T, T, OUT], run: gather::scatter },
    Kernel {
        name: "aten::scatter.value_out",
        args: &[T, INT, T, Arg::Scalar, OUT],
        run: gather::scatter_value,
    },
    Kernel { name: "aten::scatter_add.out", args: &[T, INT, T, T, OUT], run: gather::scatter_add },
    Kernel { name: "aten::select_scatter.out", args: &[T, T, INT, INT, OUT], run: rows::select_scatter },
    Kernel {
        name: "aten::slice_scatter.out",
        args: &[T, T, INT, Arg::OptionalInt, Arg::OptionalInt, INT, OUT],
        run: rows::slice_scatter,
    },
    Kernel { name: "aten::masked_scatter.out", args: &[T, T, T, OUT], run: mask::masked_scatter },
    Kernel { name: "aten::masked_select.out", args: &[T, T, OUT], run: mask::masked_select },
    Kernel { name: "aten::nonzero.out", args: &[T, OUT], run: mask::nonzero },
];

/// The elements of an index tensor, in memory order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Indices<'a> {
    Int(&'a [ReadCell<i32>]),
    Long(&'a [ReadCell<i64>]),
}

impl<'a> Indices<'a> {
    /// The elements of argument `index`.
    pub(super) fn of(index: usize, tensor: &'a Tensor) -> Result<Self, KernelError> {
        let read = match tensor.dtype() {
            DType::Int32 => tensor.read().map(Self::Int),
            DType::Int64 => tensor.read().map(Self::Long),
            other => fail!(DType, "argument {index} is {other}, indices are int32 or int64"),
        };
        read.map_err(|source| KernelError::Tensor { index, source })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Int(cells) => cells.len(),
            Self::Long(cells) => cells.len(),
        }
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> i64 {
        match self {
            Self::Int(cells) => cells[at].get().into(),
            Self::Long(cells) => cells[at].get(),
        }
    }

    /// The index at `at`, where it is below `bound`.
    #[inline]
    fn below(&self, at: usize, bound: usize) -> Result<usize, KernelError> {
        let index = self.get(at);
        match usize::try_from(index) {
            Ok(index) if index < bound => Ok(index),
            _ => fail!(Range, "index {index} is outside [0, {bound})"),
        }
    }

    /// Checks all of them.
    fn check(&self, bound: usize) -> Result<(), KernelError> {
        (0..self.len()).try_for_each(|at| self.below(at, bound).map(|_| ()))
    }
}

/// Strides of a tensor as if it had these larger sizes: 0 where it is stretched. `None` where it cannot be.
fn stretched(sizes: &[usize], strides: &[isize], to: &[usize]) -> Option<Dims<isize>> {
    let lead = to.len().checked_sub(sizes.len())?;
    let mut out = Dims::filled(0, to.len())?;
    for (at, (&size, &stride)) in sizes.iter().zip(strides).enumerate() {
        if size == to[lead + at] {
            out.as_mut_slice()[lead + at] = stride;
        } else if size != 1 {
            return None;
        }
    }
    Some(out)
}

/// The sizes that both stretch to. `None` where there are none.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Dims> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut out = Dims::new(long)?;
    let lead = long.len() - short.len();
    for (slot, &size) in out.as_mut_slice()[lead..].iter_mut().zip(short) {
        if *slot == 1 {
            *slot = size;
        } else if size != 1 && size != *slot {
            return None;
        }
    }
    Some(out)
}

/// Row-major strides of these sizes.
fn plain(sizes: &[usize]) -> Dims<isize> {
    let order = crate::tensor::shape::contiguous_order(sizes.len()).unwrap_or_else(Dims::empty);
    super::walk::signed(&crate::tensor::shape::strides(sizes, &order))
}
