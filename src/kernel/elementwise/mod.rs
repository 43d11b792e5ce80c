#![forbid(unsafe_code)]
//! Elementwise kernels: each element of the output comes from one element of each input.
//!
//! ```text
//!            operands: any kind, any order, broadcast             output
//!   [f16 …] ──load──► block of C ─┐                        ┌─► block of C ──store──► [i8 …]
//!   [u8  …] ──load──► block of C ─┴─ apply: C × C → C ─────┘
//!   all C and laid out alike:  ──────── apply, in place of all this ───────►
//! ```
//!
//! `C`, the kind that is computed in, is one of four: `i64` for integers and truth values (which wrap to
//! their own width when stored), `f32` for `float32` and the 16-bit floats (which round once, when stored),
//! `f64`, and a complex of `f64`. An operator is thus compiled for what it computes in, not for what it
//! reads and writes.
//!
//! # Source
//! Kinds, promotion and checks follow the portable kernels of ExecuTorch; where these refuse operands in
//! different dimension orders, the kernels here compute the right elements instead.

mod activation;
mod binary;
mod bitwise;
mod cast;
mod compare;
mod convert;
mod create;
mod engine;
mod math;
mod random;
mod real;
mod rules;
mod select;
mod unary;
mod walk;

use super::{Arg, Kernel, KernelError, KernelFn};
use crate::tensor::TensorError;

pub(super) use activation::KERNELS as ACTIVATION;
pub(super) use binary::KERNELS as BINARY;
pub(super) use bitwise::KERNELS as BITWISE;
pub(super) use cast::KERNELS as CAST;
pub(super) use compare::KERNELS as COMPARE;
pub(super) use create::KERNELS as CREATE;
pub(super) use math::exp;
pub(super) use random::KERNELS as RANDOM;
pub(super) use select::KERNELS as SELECT;
pub(super) use unary::KERNELS as UNARY;

const TENSOR: &[Arg] = &[Arg::Tensor, Arg::Out];
const TENSOR_TENSOR: &[Arg] = &[Arg::Tensor, Arg::Tensor, Arg::Out];
const TENSOR_SCALAR: &[Arg] = &[Arg::Tensor, Arg::Scalar, Arg::Out];

/// A row of a family's table.
const fn row(name: &'static str, args: &'static [Arg], run: KernelFn) -> Kernel {
    Kernel { name, args, run }
}

/// Says which argument a tensor's error is about.
fn at(index: usize) -> impl FnOnce(TensorError) -> KernelError {
    move |source| KernelError::Tensor { index, source }
}
