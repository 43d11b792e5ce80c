#![forbid(unsafe_code)]
//! Arithmetic of two operands: `add`, `mul`, `div`, `pow` and their like, with a tensor or a number.
#![expect(clippy::float_cmp, reason = "special cases of a number are those it equals")]

use super::convert::{Compute, Wide};
use super::engine::{map1, map2, run, run_quick, wide1, wide2};
use super::real::{Real, Ring};
use super::rules::{
    by_class, by_class_or_complex, check_factor, check_float, check_not_bool, check_out, float_of,
    promote_scalar, promote_tensors, rounded_to,
};
use super::{TENSOR_SCALAR, TENSOR_TENSOR, row};
use crate::kernel::{Arg, Kernel, KernelCall, KernelError, Scalar, fail};
use crate::tensor::{DType, Element};
use core::cell::Cell;

const WITH_ALPHA: &[Arg] = &[Arg::Tensor, Arg::Tensor, Arg::Scalar, Arg::Out];
const SCALAR_ALPHA: &[Arg] = &[Arg::Tensor, Arg::Scalar, Arg::Scalar, Arg::Out];
const WITH_MODE: &[Arg] = &[Arg::Tensor, Arg::Tensor, Arg::OptionalText, Arg::Out];
const SCALAR_MODE: &[Arg] = &[Arg::Tensor, Arg::Scalar, Arg::OptionalText, Arg::Out];
const SCALAR_TENSOR: &[Arg] = &[Arg::Scalar, Arg::Tensor, Arg::Out];

/// The kernels of this family.
pub(in crate::kernel) const KERNELS: &[Kernel] = &[
    row("aten::add.out", WITH_ALPHA, add),
    row("aten::add.Scalar_out", SCALAR_ALPHA, add_scalar),
    row("aten::sub.out", WITH_ALPHA, sub),
    row("aten::sub.Scalar_out", SCALAR_ALPHA, sub_scalar),
    row("aten::rsub.Scalar_out", SCALAR_ALPHA, rsub_scalar),
    row("aten::mul.out", TENSOR_TENSOR, mul),
    row("aten::mul.Scalar_out", TENSOR_SCALAR, mul_scalar),
    row("aten::div.out", TENSOR_TENSOR, div),
    row("aten::div.Scalar_out", TENSOR_SCALAR, div_scalar),
    row("aten::div.out_mode", WITH_MODE, div_mode),
    row("aten::div.Scalar_mode_out", SCALAR_MODE, div_scalar_mode),
    row("aten::floor_divide.out", TENSOR_TENSOR, |call| tensors(call, FloorDiv, 2)),
    row("aten::fmod.Tensor_out", TENSOR_TENSOR, |call| tensors(call, Fmod, 2)),
    row("aten::fmod.Scalar_out", TENSOR_SCALAR, |call| right_scalar(call, Fmod, 2)),
    row("aten::remainder.Tensor_out", TENSOR_TENSOR, |call| tensors(call, Remainder, 2)),
    row("aten::remainder.Scalar_out", TENSOR_SCALAR, |call| right_scalar(call, Remainder, 2)),
    row("aten::maximum.out", TENSOR_TENSOR, |call| tensors(call, Maximum, 2)),
    row("aten::minimum.out", TENSOR_TENSOR, |call| tensors(call, Minimum, 2)),
    row("aten::pow.Tensor_Tensor_out", TENSOR_TENSOR, |call| tensors(call, Pow, 2)),
    row("aten::pow.Tensor_Scalar_out", TENSOR_SCALAR, pow_tensor_scalar),
    row("aten::pow.Scalar_out", SCALAR_TENSOR, pow_scalar),
    row("aten::atan2.out", TENSOR_TENSOR, atan2),
];

/// An operator of two real operands of one kind.
trait Binary: Copy {
    const NAME: &'static str;
    /// Whether an integer 0 on the right is an error.
    const DIVIDES: bool = false;
    /// Whether truth values are taken.
    const TAKES_BOOL: bool = false;
    fn of<C: Real>(self, a: C, b: C) -> C;
}

macro_rules! operator {
    ($name:ident, $text:literal, $a:ident, $b:ident => $value:expr $(, $constant:ident)?) => {
        #[derive(Clone, Copy)]
        struct $name;
        impl Binary for $name {
            const NAME: &'static str = $text;
            $(const $constant: bool = true;)?
            #[inline(always)]
            fn of<C: Real>(self, $a: C, $b: C) -> C {
                $value
            }
        }
    };
}

operator!(FloorDiv, "floor division", a, b => a.divided_down(b), DIVIDES);
operator!(TruncDiv, "truncating division", a, b => a.divided_toward_zero(b), DIVIDES);
operator!(Fmod, "fmod", a, b => a.remainder_toward_zero(b), DIVIDES);
operator!(Remainder, "remainder", a, b => a.remainder_down(b), DIVIDES);
operator!(Maximum, "maximum", a, b => a.larger(b), TAKES_BOOL);
operator!(Minimum, "minimum", a, b => a.smaller(b), TAKES_BOOL);
operator!(Pow, "pow", a, b => a.power(b));

fn zero_divisor(operator: &str) -> KernelError {
    KernelError::Range(format!("{operator} of integers by 0"))
}

/// `out ← op(self, other)` in the kind that both combine to.
fn tensors<Op: Binary>(call: &mut KernelCall<'_>, op: Op, out: usize) -> Result<(), KernelError> {
    let common = promote_tensors(call, 0, 1)?;
    if !Op::TAKES_BOOL {
        check_not_bool(common, Op::NAME)?;
    }
    check_out(call, common, out)?;
    let divided_by_zero = Cell::new(false);
    by_class!(common, C => run::<C, 2>(call, [0, 1], out, common, map2(|a: C, b: C| {
        // Floats divide by 0; for integers the flag turns into an error.
        if Op::DIVIDES && C::DTYPE == DType::Int64 && b == C::ZERO {
            divided_by_zero.set(true);
            return C::ZERO;
        }
        op.of(a, b)
    })))?;
    if divided_by_zero.get() { Err(zero_divisor(Op::NAME)) } else { Ok(()) }
}

/// `out ← op(self, scalar)`, with the number as argument 1.
fn right_scalar<Op: Binary>(call: &mut KernelCall<'_>, op: Op, out: usize) -> Result<(), KernelError> {
    let scalar = call.scalar(1)?;
    let common = promote_scalar(call.tensor(0)?.dtype(), scalar);
    if !Op::TAKES_BOOL {
        check_not_bool(common, Op::NAME)?;
    }
    check_out(call, common, out)?;
    let scalar = rounded_to(common, scalar);
    by_class!(common, C => {
        let b = C::of_scalar(scalar);
        if Op::DIVIDES && C::DTYPE == DType::Int64 && b == C::ZERO {
            return Err(zero_divisor(Op::NAME));
        }
        run::<C, 1>(call, [0], out, common, map1(move |a: C| op.of(a, b)))
    })
}

/// `self + alpha · other`; complex operands only where all are of one kind.
fn add(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let alpha = call.scalar(2)?;
    if alpha == Scalar::Int(1) && run_quick(call, [0, 1], 3, |a, b| a + b)? {
        return Ok(());
    }
    let common = sum_kind(call, alpha)?;
    if alpha.to_f64() == 1.0 {
        return by_class_or_complex!(common, C => run::<C, 2>(call, [0, 1], 3, common, wide2(C::plus)));
    }
    by_class_or_complex!(common, C => {
        let alpha = C::of_scalar(alpha);
        run::<C, 2>(call, [0, 1], 3, common, map2(move |a: C, b: C| a.plus(alpha.times(b))))
    })
}

fn sub(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let alpha = call.scalar(2)?;
    if alpha == Scalar::Int(1) && run_quick(call, [0, 1], 3, |a, b| a - b)? {
        return Ok(());
    }
    let common = sum_kind(call, alpha)?;
    check_not_bool(common, "subtraction")?;
    if alpha.to_f64() == 1.0 {
        return by_class_or_complex!(common, C => run::<C, 2>(call, [0, 1], 3, common, wide2(C::minus)));
    }
    by_class_or_complex!(common, C => {
        let alpha = C::of_scalar(alpha);
        run::<C, 2>(call, [0, 1], 3, common, map2(move |a: C, b: C| a.minus(alpha.times(b))))
    })
}

fn sum_kind(call: &KernelCall<'_>, alpha: Scalar) -> Result<DType, KernelError> {
    let common = promote_tensors(call, 0, 1)?;
    check_factor(alpha, common, "alpha")?;
    check_out(call, common, 3)?;
    Ok(common)
}

/// The kind of `self ∘ alpha · scalar`, and the two numbers.
fn scalar_sum(call: &KernelCall<'_>) -> Result<(DType, Scalar, Scalar), KernelError> {
    let (scalar, alpha) = (call.scalar(1)?, call.scalar(2)?);
    let common = promote_scalar(call.tensor(0)?.dtype(), scalar);
    check_factor(alpha, common, "alpha")?;
    check_out(call, common, 3)?;
    Ok((common, scalar, alpha))
}

fn add_scalar(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (common, scalar, alpha) = scalar_sum(call)?;
    by_class_or_complex!(common, C => {
        let b = C::of_scalar(alpha).times(C::of_scalar(scalar));
        run::<C, 1>(call, [0], 3, common, wide1(move |a: C| a.plus(b)))
    })
}

fn sub_scalar(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (common, scalar, alpha) = scalar_sum(call)?;
    check_not_bool(common, "subtraction")?;
    by_class_or_complex!(common, C => {
        let b = C::of_scalar(alpha).times(C::of_scalar(scalar));
        run::<C, 1>(call, [0], 3, common, wide1(move |a: C| a.minus(b)))
    })
}

/// `scalar − alpha · self`.
fn rsub_scalar(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (common, scalar, alpha) = scalar_sum(call)?;
    check_not_bool(common, "subtraction")?;
    by_class_or_complex!(common, C => {
        let (b, alpha) = (C::of_scalar(scalar), C::of_scalar(alpha));
        run::<C, 1>(call, [0], 3, common, map1(move |a: C| b.minus(alpha.times(a))))
    })
}

fn mul(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    if run_quick(call, [0, 1], 2, |a, b| a * b)? {
        return Ok(());
    }
    let common = promote_tensors(call, 0, 1)?;
    check_out(call, common, 2)?;
    by_class_or_complex!(common, C => run::<C, 2>(call, [0, 1], 2, common, wide2(C::times)))
}

fn mul_scalar(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let scalar = call.scalar(1)?;
    let common = promote_scalar(call.tensor(0)?.dtype(), scalar);
    check_out(call, common, 2)?;
    by_class_or_complex!(common, C => {
        let b = C::of_scalar(scalar);
        run::<C, 1>(call, [0], 2, common, wide1(move |a: C| a.times(b)))
    })
}

/// Runs a body for each float kind that is computed in.
macro_rules! by_float {
    ($dtype:expr, $C:ident => $body:expr) => {
        match $dtype {
            DType::Float64 => {
                type $C = f64;
                $body
            }
            DType::Complex32 | DType::Complex64 | DType::Complex128 => {
                type $C = Wide;
                $body
            }
            _ => {
                type $C = f32;
                $body
            }
        }
    };
}

/// True division: integers are divided as `float32`, and the output may be any float kind.
fn div(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    if run_quick(call, [0, 1], 2, |a, b| a / b)? {
        return Ok(());
    }
    let common = float_of(promote_tensors(call, 0, 1)?);
    true_division_out(call, common, 2)?;
    by_float!(common, C => run::<C, 2>(call, [0, 1], 2, common, wide2(|a: C, b: C| a / b)))
}

fn div_scalar(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    true_div_scalar(call, 2)
}

fn true_div_scalar(call: &mut KernelCall<'_>, out: usize) -> Result<(), KernelError> {
    let scalar = call.scalar(1)?;
    let common = float_of(promote_scalar(call.tensor(0)?.dtype(), scalar));
    true_division_out(call, common, out)?;
    by_float!(common, C => {
        let b = C::of_scalar(scalar);
        run::<C, 1>(call, [0], out, common, wide1(move |a: C| a / b))
    })
}

fn true_division_out(call: &KernelCall<'_>, common: DType, out: usize) -> Result<(), KernelError> {
    if common.is_complex() { check_out(call, common, out) } else { check_float(call, out) }
}

/// What `rounding_mode` asks for.
enum Rounding {
    None,
    Floor,
    Trunc,
}

fn rounding(call: &KernelCall<'_>) -> Result<Rounding, KernelError> {
    if call.value(2) == crate::value::Value::None {
        return Ok(Rounding::None);
    }
    match call.text(2)? {
        "floor" => Ok(Rounding::Floor),
        "trunc" => Ok(Rounding::Trunc),
        other => fail!(Range, "rounding mode \"{other}\", expected \"floor\", \"trunc\" or None"),
    }
}

fn div_mode(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    match rounding(call)? {
        Rounding::Floor => tensors(call, FloorDiv, 3),
        Rounding::Trunc => tensors(call, TruncDiv, 3),
        Rounding::None => {
            let common = float_of(promote_tensors(call, 0, 1)?);
            true_division_out(call, common, 3)?;
            by_float!(common, C => run::<C, 2>(call, [0, 1], 3, common, wide2(|a: C, b: C| a / b)))
        }
    }
}

fn div_scalar_mode(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    match rounding(call)? {
        Rounding::Floor => right_scalar(call, FloorDiv, 3),
        Rounding::Trunc => right_scalar(call, TruncDiv, 3),
        Rounding::None => true_div_scalar(call, 3),
    }
}

/// Squares, cubes, roots and reciprocals are computed as such.
fn pow_tensor_scalar(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let exponent = call.scalar(1)?;
    let common = promote_scalar(call.tensor(0)?.dtype(), exponent);
    check_not_bool(common, Pow::NAME)?;
    check_out(call, common, 2)?;
    let exponent = exponent.to_f64();
    if exponent == 2.0 {
        return by_class!(common, C => run::<C, 1>(call, [0], 2, common, wide1(|a: C| a.times(a))));
    }
    if exponent == 3.0 {
        return by_class!(common, C => run::<C, 1>(call, [0], 2, common, map1(|a: C| a.times(a).times(a))));
    }
    if common.is_float() && [0.5, -0.5, -1.0].contains(&exponent) {
        return by_float_power(call, common, exponent);
    }
    right_scalar(call, Pow, 2)
}

fn by_float_power(call: &mut KernelCall<'_>, common: DType, exponent: f64) -> Result<(), KernelError> {
    macro_rules! real {
        ($C:ty) => {
            match exponent {
                0.5 => run::<$C, 1>(call, [0], 2, common, map1(|a: $C| a.sqrt())),
                -0.5 => run::<$C, 1>(call, [0], 2, common, map1(|a: $C| 1.0 / a.sqrt())),
                _ => run::<$C, 1>(call, [0], 2, common, map1(|a: $C| 1.0 / a)),
            }
        };
    }
    if common == DType::Float64 { real!(f64) } else { real!(f32) }
}

/// `scalar` to the power of `exponent`, a tensor.
fn pow_scalar(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let base = call.scalar(0)?;
    let common = promote_scalar(call.tensor(1)?.dtype(), base);
    check_not_bool(common, Pow::NAME)?;
    check_out(call, common, 2)?;
    by_class!(common, C => {
        let base = C::of_scalar(base);
        run::<C, 1>(call, [1], 2, common, map1(move |exponent: C| base.power(exponent)))
    })
}

fn atan2(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let common = float_of(promote_tensors(call, 0, 1)?);
    check_float(call, 2)?;
    match common {
        DType::Float64 => run::<f64, 2>(call, [0, 1], 2, common, map2(f64::atan2)),
        _ if common.is_complex() => Err(super::rules::refused(common)),
        _ => run::<f32, 2>(call, [0, 1], 2, common, map2(f32::atan2)),
    }
}
