#![forbid(unsafe_code)]
//! View-like copies: an output that is its input seen through other sizes and strides.
//!
//! ```text
//!   x[1:, 2]   sizes (3, 4) strides (4, 1) start 0   ->   sizes (2,) strides (4,) start 6
//! ```
//!
//! A [`View`] is worked out like that and then copied. Copies that keep the row-major sequence of
//! elements (`view_copy`, `squeeze_copy`, …) need no view: [`reshape`] moves them.
//!
//! Deliberately absent: views without a copy, but for `executorch_prim::et_view`.

mod reshape;
mod split;
mod strided;

pub(super) use reshape::{reshape, target_sizes};
pub(super) use strided::{View, dim_of, slice_range};

use super::{Arg, Kernel, KernelCall, KernelError, fail};
use crate::tensor::Dims;

const T: Arg = Arg::Tensor;
const INT: Arg = Arg::Int;
const INTS: Arg = Arg::IntList;
const OUT: Arg = Arg::Out;
const OUTS: Arg = Arg::OutList;

/// The view-like copies.
pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "aten::view_copy.out", args: &[T, INTS, OUT], run: reshape::view },
    Kernel { name: "aten::squeeze_copy.dim_out", args: &[T, INT, OUT], run: reshape::squeeze },
    Kernel { name: "aten::squeeze_copy.dims_out", args: &[T, INTS, OUT], run: reshape::squeeze_dims },
    Kernel { name: "aten::unsqueeze_copy.out", args: &[T, INT, OUT], run: reshape::unsqueeze },
    Kernel { name: "aten::permute_copy.out", args: &[T, INTS, OUT], run: strided::permute },
    Kernel { name: "aten::transpose_copy.int_out", args: &[T, INT, INT, OUT], run: strided::transpose },
    Kernel { name: "aten::t_copy.out", args: &[T, OUT], run: strided::t },
    Kernel { name: "aten::expand_copy.out", args: &[T, INTS, Arg::Bool, OUT], run: strided::expand },
    Kernel { name: "aten::select_copy.int_out", args: &[T, INT, INT, OUT], run: strided::select },
    Kernel {
        name: "aten::slice_copy.Tensor_out",
        args: &[T, INT, Arg::OptionalInt, Arg::OptionalInt, INT, OUT],
        run: strided::slice,
    },
    Kernel { name: "aten::narrow_copy.out", args: &[T, INT, INT, INT, OUT], run: strided::narrow },
    Kernel { name: "aten::unfold_copy.out", args: &[T, INT, INT, INT, OUT], run: strided::unfold },
    Kernel {
        name: "aten::as_strided_copy.out",
        args: &[T, INTS, INTS, Arg::OptionalInt, OUT],
        run: strided::as_strided,
    },
    Kernel { name: "aten::diagonal_copy.out", args: &[T, INT, INT, INT, OUT], run: strided::diagonal },
    Kernel { name: "aten::view_as_real_copy.out", args: &[T, OUT], run: strided::view_as_real },
    Kernel { name: "aten::split_copy.Tensor_out", args: &[T, INT, INT, OUTS], run: split::split },
    Kernel {
        name: "aten::split_with_sizes_copy.out",
        args: &[T, INTS, INT, OUTS],
        run: split::split_with_sizes,
    },
    Kernel { name: "aten::unbind_copy.int_out", args: &[T, INT, OUTS], run: split::unbind },
];

/// A dimension, negative ones counted from the end. A tensor without dimensions takes 0 and −1.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "just compared with a rank")]
pub(super) fn wrap_dim(dim: i64, rank: usize) -> Result<usize, KernelError> {
    let rank = rank.max(1) as i64;
    let wrapped = if dim < 0 { dim + rank } else { dim };
    if (0..rank).contains(&wrapped) {
        Ok(wrapped as usize)
    } else {
        fail!(Range, "dimension {dim} is outside [{}, {})", -rank, rank)
    }
}

/// An index along a dimension of this size, negative ones counted from the end.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "just compared with a size")]
pub(super) fn wrap_index(index: i64, size: usize) -> Result<usize, KernelError> {
    let count = size as i64;
    let wrapped = if index < 0 { index.wrapping_add(count) } else { index };
    if (0..count).contains(&wrapped) {
        Ok(wrapped as usize)
    } else {
        fail!(Range, "index {index} is outside [-{size}, {size})")
    }
}

/// A size or count that must not be negative; `what` names it.
#[inline]
pub(super) fn count(what: &str, value: i64) -> Result<usize, KernelError> {
    match usize::try_from(value) {
        Ok(value) => Ok(value),
        Err(_) => fail!(Range, "{what} {value} is negative"),
    }
}

/// That arguments `a` and `b` have one element kind.
#[inline]
pub(super) fn same_dtype(call: &KernelCall<'_>, a: usize, b: usize) -> Result<(), KernelError> {
    let (first, second) = (call.tensor(a)?.dtype(), call.tensor(b)?.dtype());
    if first == second {
        Ok(())
    } else {
        fail!(DType, "argument {a} is {first} and argument {b} is {second}, they must be of one kind")
    }
}

/// Sizes of at most 16 dimensions.
pub(super) fn dims<T: Copy + Default>(items: &[T]) -> Result<Dims<T>, KernelError> {
    match Dims::new(items) {
        Some(dims) => Ok(dims),
        None => fail!(Shape, "{} dimensions, at most {} are taken", items.len(), crate::tensor::RANK_MAX),
    }
}

/// Adds a dimension before `at`.
pub(super) fn insert<T: Copy + Default>(dims: &mut Dims<T>, at: usize, item: T) -> Result<(), KernelError> {
    match dims.insert(at, item) {
        Some(()) => Ok(()),
        None => fail!(Shape, "more than {} dimensions", crate::tensor::RANK_MAX),
    }
}

/// Adds a dimension after the others.
pub(super) fn push<T: Copy + Default>(dims: &mut Dims<T>, item: T) -> Result<(), KernelError> {
    let rank = dims.len();
    insert(dims, rank, item)
}
