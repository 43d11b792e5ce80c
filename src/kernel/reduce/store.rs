#![forbid(unsafe_code)]
//! Results of any kind, written from one computed type.
//!
//! Deliberately absent: vectors; a result is written once a group.

use crate::kernel::numeric::Numeric;
use crate::kernel::{KernelError, fail};
use crate::tensor::{Bool, DType, Tensor, TensorError};
use core::cell::Cell;
use half::{bf16, f16};

/// The elements of a result of any kind.
pub(crate) enum Store<'a> {
    F32(&'a [Cell<f32>]),
    F64(&'a [Cell<f64>]),
    F16(&'a [Cell<f16>]),
    BF16(&'a [Cell<bf16>]),
    U8(&'a [Cell<u8>]),
    I8(&'a [Cell<i8>]),
    I16(&'a [Cell<i16>]),
    I32(&'a [Cell<i32>]),
    I64(&'a [Cell<i64>]),
    Bool(&'a [Cell<Bool>]),
}

macro_rules! each {
    ($store:expr, $cells:ident => $body:expr) => {
        match $store {
            Store::F32($cells) => $body,
            Store::F64($cells) => $body,
            Store::F16($cells) => $body,
            Store::BF16($cells) => $body,
            Store::U8($cells) => $body,
            Store::I8($cells) => $body,
            Store::I16($cells) => $body,
            Store::I32($cells) => $body,
            Store::I64($cells) => $body,
            Store::Bool($cells) => $body,
        }
    };
}

#[inline(always)]
fn put_real<T: Numeric>(cells: &[Cell<T>], at: usize, value: f64) {
    cells[at].set(T::from_f64(value));
}

#[inline(always)]
fn put_whole<T: Numeric>(cells: &[Cell<T>], at: usize, value: i64) {
    cells[at].set(T::from_i64(value));
}

impl<'a> Store<'a> {
    /// The elements of `tensor`, argument `index`.
    pub(crate) fn new(name: &str, index: usize, tensor: &'a Tensor) -> Result<Self, KernelError> {
        let named = |source: TensorError| KernelError::Tensor { index, source };
        Ok(match tensor.dtype() {
            DType::Float32 => Self::F32(tensor.write().map_err(named)?),
            DType::Float64 => Self::F64(tensor.write().map_err(named)?),
            DType::Float16 => Self::F16(tensor.write().map_err(named)?),
            DType::BFloat16 => Self::BF16(tensor.write().map_err(named)?),
            DType::UInt8 => Self::U8(tensor.write().map_err(named)?),
            DType::Int8 => Self::I8(tensor.write().map_err(named)?),
            DType::Int16 => Self::I16(tensor.write().map_err(named)?),
            DType::Int32 => Self::I32(tensor.write().map_err(named)?),
            DType::Int64 => Self::I64(tensor.write().map_err(named)?),
            DType::Bool => Self::Bool(tensor.write().map_err(named)?),
            other => fail!(DType, "{name}: out is {other}, expected a float or integer kind or bool"),
        })
    }

    /// Writes a real number, rounded once.
    #[inline(always)]
    pub(crate) fn real(&self, at: usize, value: f64) {
        each!(self, cells => put_real(cells, at, value));
    }

    /// Writes a whole number; its low bits where `out` is narrower.
    #[inline(always)]
    pub(crate) fn whole(&self, at: usize, value: i64) {
        each!(self, cells => put_whole(cells, at, value));
    }
}
