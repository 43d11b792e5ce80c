#![forbid(unsafe_code)]
//! Which kind an operator computes in, and where its result may go.

use crate::kernel::{KernelCall, KernelError, Scalar, fail};
use crate::tensor::DType;
use half::{bf16, f16};

/// The kind that two operands combine to.
pub(super) fn promote(a: DType, b: DType) -> Result<DType, KernelError> {
    a.promote(b).ok_or_else(|| KernelError::DType(format!("{a} and {b} have no common kind")))
}

/// The kind that the tensors of two arguments combine to.
pub(super) fn promote_tensors(call: &KernelCall<'_>, a: usize, b: usize) -> Result<DType, KernelError> {
    promote(call.tensor(a)?.dtype(), call.tensor(b)?.dtype())
}

/// The kind that a tensor and a number combine to: a number counts only by its category.
pub(super) fn promote_scalar(tensor: DType, scalar: Scalar) -> DType {
    match scalar {
        Scalar::Double(_) if tensor.is_integer() || tensor == DType::Bool => DType::Float32,
        Scalar::Int(_) if tensor == DType::Bool => DType::Int64,
        _ => tensor,
    }
}

/// The kind itself where it is a real or complex float kind, else `float32`.
pub(super) fn float_of(dtype: DType) -> DType {
    if dtype.is_float() || dtype.is_complex() { dtype } else { DType::Float32 }
}

/// Refuses a result that may not be stored in the tensor of argument `out`.
#[inline]
pub(super) fn check_out(call: &KernelCall<'_>, common: DType, out: usize) -> Result<(), KernelError> {
    let target = call.tensor(out)?.dtype();
    if !common.can_cast_to(target) {
        fail!(DType, "a result of {common} cannot be stored in the {target} output (argument {out})");
    }
    Ok(())
}

/// Refuses an output of another kind than `expected`.
#[inline]
pub(super) fn check_same(call: &KernelCall<'_>, expected: DType, out: usize) -> Result<(), KernelError> {
    let target = call.tensor(out)?.dtype();
    if target != expected {
        fail!(DType, "the output (argument {out}) is {target}, expected {expected}");
    }
    Ok(())
}

/// Refuses an output that is no real float kind.
#[inline]
pub(super) fn check_float(call: &KernelCall<'_>, index: usize) -> Result<(), KernelError> {
    let dtype = call.tensor(index)?.dtype();
    if !dtype.is_float() {
        fail!(DType, "argument {index} is {dtype}, expected a float kind");
    }
    Ok(())
}

/// Refuses truth values, for which the operator is not defined.
#[inline]
pub(super) fn check_not_bool(common: DType, operator: &str) -> Result<(), KernelError> {
    if common == DType::Bool {
        fail!(DType, "{operator} is not defined for bool operands");
    }
    Ok(())
}

/// Refuses a real factor for integers and truth values.
#[inline]
pub(super) fn check_factor(factor: Scalar, common: DType, name: &str) -> Result<(), KernelError> {
    if matches!(factor, Scalar::Double(_)) && !common.is_float() && !common.is_complex() {
        fail!(DType, "{name} is a real number, which does not fit {common} operands");
    }
    Ok(())
}

/// A number as the 16-bit kinds hold it, so that a stored 0.1 equals 0.1; of other kinds, as it is.
pub(super) fn rounded_to(common: DType, scalar: Scalar) -> Scalar {
    match common {
        DType::Float16 => Scalar::Double(f16::from_f64(scalar.to_f64()).to_f64()),
        DType::BFloat16 => Scalar::Double(bf16::from_f64(scalar.to_f64()).to_f64()),
        _ => scalar,
    }
}

/// The error for a kind that the operator does not take.
pub(super) fn refused(dtype: DType) -> KernelError {
    KernelError::DType(format!("{dtype} operands are not taken; expected bool, integer or float kinds"))
}

/// Runs `$body` with `$C` as the type that a real kind is computed in.
macro_rules! by_class {
    ($dtype:expr, $C:ident => $body:expr) => {{
        use $crate::tensor::DType as D;
        match $dtype {
            D::Float32 | D::Float16 | D::BFloat16 => {
                type $C = f32;
                $body
            }
            D::Bool | D::UInt8 | D::Int8 | D::Int16 | D::UInt16 | D::Int32 | D::UInt32 | D::Int64 => {
                type $C = i64;
                $body
            }
            D::Float64 => {
                type $C = f64;
                $body
            }
            other => Err($crate::kernel::elementwise::rules::refused(other)),
        }
    }};
}
pub(super) use by_class;

/// As [`by_class`], for operators that only move elements: complex kinds and `uint64` are taken too.
macro_rules! by_moved_class {
    ($dtype:expr, $C:ident => $body:expr) => {{
        use $crate::tensor::DType as D;
        match $dtype {
            D::Complex32 | D::Complex64 | D::Complex128 => {
                type $C = $crate::kernel::elementwise::convert::Wide;
                $body
            }
            D::UInt64 => {
                type $C = i64;
                $body
            }
            other => $crate::kernel::elementwise::rules::by_class!(other, $C => $body),
        }
    }};
}
pub(super) use by_moved_class;

/// As [`by_class`], with the complex kinds.
macro_rules! by_class_or_complex {
    ($dtype:expr, $C:ident => $body:expr) => {{
        use $crate::tensor::DType as D;
        match $dtype {
            D::Complex32 | D::Complex64 | D::Complex128 => {
                type $C = $crate::kernel::elementwise::convert::Wide;
                $body
            }
            other => $crate::kernel::elementwise::rules::by_class!(other, $C => $body),
        }
    }};
}
pub(super) use by_class_or_complex;
