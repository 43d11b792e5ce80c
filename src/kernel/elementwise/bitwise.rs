#![forbid(unsafe_code)]
//! Bits of integers and truth values: and, or, xor, shifts.

use super::convert::Compute;
use super::engine::{map1, map2, run};
use super::rules::{check_out, promote_scalar, promote_tensors};
use super::{TENSOR_SCALAR, TENSOR_TENSOR, row};
use crate::kernel::{Kernel, KernelCall, KernelError, fail};
use crate::tensor::DType;

/// The kernels of this family.
pub(in crate::kernel) const KERNELS: &[Kernel] = &[
    row("aten::bitwise_and.Tensor_out", TENSOR_TENSOR, |call| tensors(call, true, |_| |a, b| a & b)),
    row("aten::bitwise_and.Scalar_out", TENSOR_SCALAR, |call| scalar(call, true, |_| |a, b| a & b)),
    row("aten::bitwise_or.Tensor_out", TENSOR_TENSOR, |call| tensors(call, true, |_| |a, b| a | b)),
    row("aten::bitwise_or.Scalar_out", TENSOR_SCALAR, |call| scalar(call, true, |_| |a, b| a | b)),
    row("aten::bitwise_xor.Tensor_out", TENSOR_TENSOR, |call| tensors(call, true, |_| |a, b| a ^ b)),
    row("aten::bitwise_xor.Scalar_out", TENSOR_SCALAR, |call| scalar(call, true, |_| |a, b| a ^ b)),
    row("aten::bitwise_left_shift.Tensor_out", TENSOR_TENSOR, |call| tensors(call, false, left)),
    row("aten::bitwise_left_shift.Tensor_Scalar_out", TENSOR_SCALAR, |call| scalar(call, false, left)),
    row("aten::bitwise_right_shift.Tensor_out", TENSOR_TENSOR, |call| tensors(call, false, right)),
    row("aten::bitwise_right_shift.Tensor_Scalar_out", TENSOR_SCALAR, |call| scalar(call, false, right)),
];

/// Shifts by a negative count, or by the width and more, leave 0.
fn left(bits: i64) -> impl Fn(i64, i64) -> i64 + Copy {
    move |a, by| if (0..bits).contains(&by) { a << by } else { 0 }
}

/// Shifts by a negative count, or by the width and more, leave the sign.
fn right(bits: i64) -> impl Fn(i64, i64) -> i64 + Copy {
    move |a, by| a >> if (0..bits).contains(&by) { by } else { 63 }
}

/// The width in bits, where the operator takes the kind.
fn bits(common: DType, takes_bool: bool) -> Result<i64, KernelError> {
    let taken = (common.is_integer() && (takes_bool || common != DType::UInt64))
        || (takes_bool && common == DType::Bool);
    if !taken {
        fail!(DType, "{common} operands have no bits to combine; expected integers");
    }
    Ok(8 * common.size_bytes() as i64)
}

fn tensors<F: Fn(i64, i64) -> i64 + Copy>(
    call: &mut KernelCall<'_>,
    takes_bool: bool,
    of: impl Fn(i64) -> F,
) -> Result<(), KernelError> {
    let common = promote_tensors(call, 0, 1)?;
    let f = of(bits(common, takes_bool)?);
    check_out(call, common, 2)?;
    run::<i64, 2>(call, [0, 1], 2, common, map2(f))
}

fn scalar<F: Fn(i64, i64) -> i64 + Copy>(
    call: &mut KernelCall<'_>,
    takes_bool: bool,
    of: impl Fn(i64) -> F,
) -> Result<(), KernelError> {
    let b = call.scalar(1)?;
    let common = promote_scalar(call.tensor(0)?.dtype(), b);
    let f = of(bits(common, takes_bool)?);
    check_out(call, common, 2)?;
    let b = i64::of_scalar(b);
    run::<i64, 1>(call, [0], 2, common, map1(move |a| f(a, b)))
}
