#![forbid(unsafe_code)]
//! Functions of one operand: with a float result, with a result of the same kind, or with a truth value.

use super::convert::Wide;
use super::engine::{map1, run, wide1};
use super::math;
use super::real::Real;
use super::rules::{by_class, check_float, check_not_bool, check_same, float_of, refused};
use super::{TENSOR, row};
use crate::kernel::{Arg, Kernel, KernelCall, KernelError, fail};
use crate::tensor::{DType, Element, ReadCell};
use crate::value::Value;
use core::cell::Cell;

/// The kernels of this family.
pub(in crate::kernel) const KERNELS: &[Kernel] = &[
    row("aten::acos.out", TENSOR, |call| float(call, f32::acos, f64::acos)),
    row("aten::acosh.out", TENSOR, |call| float(call, |x| through_double(x, libm::acosh), libm::acosh)),
    row("aten::asin.out", TENSOR, |call| float(call, f32::asin, f64::asin)),
    row("aten::asinh.out", TENSOR, |call| float(call, |x| through_double(x, libm::asinh), libm::asinh)),
    row("aten::atan.out", TENSOR, |call| float(call, f32::atan, f64::atan)),
    row("aten::atanh.out", TENSOR, |call| float(call, |x| through_double(x, libm::atanh), libm::atanh)),
    row("aten::cos.out", TENSOR, |call| float(call, f32::cos, f64::cos)),
    row("aten::cosh.out", TENSOR, |call| float(call, f32::cosh, f64::cosh)),
    row("aten::erf.out", TENSOR, |call| float_wide(call, math::erf, libm::erf)),
    row("aten::exp.out", TENSOR, |call| float_wide(call, math::exp, f64::exp)),
    row("aten::expm1.out", TENSOR, |call| float(call, f32::exp_m1, f64::exp_m1)),
    row("aten::log.out", TENSOR, |call| float(call, f32::ln, f64::ln)),
    row("aten::log10.out", TENSOR, |call| float(call, f32::log10, f64::log10)),
    row("aten::log1p.out", TENSOR, |call| float(call, f32::ln_1p, f64::ln_1p)),
    row("aten::log2.out", TENSOR, |call| float(call, f32::log2, f64::log2)),
    row("aten::reciprocal.out", TENSOR, |call| float_wide(call, |x| 1.0 / x, |x| 1.0 / x)),
    row("aten::rsqrt.out", TENSOR, |call| float_wide(call, |x| 1.0 / x.sqrt(), |x| 1.0 / x.sqrt())),
    row("aten::sigmoid.out", TENSOR, |call| float_wide(call, math::sigmoid, |x| 1.0 / (1.0 + (-x).exp()))),
    row("aten::sin.out", TENSOR, |call| float(call, f32::sin, f64::sin)),
    row("aten::sinh.out", TENSOR, |call| float(call, f32::sinh, f64::sinh)),
    row("aten::sqrt.out", TENSOR, |call| float_wide(call, f32::sqrt, f64::sqrt)),
    row("aten::tan.out", TENSOR, |call| float(call, f32::tan, f64::tan)),
    row("aten::tanh.out", TENSOR, |call| float_wide(call, math::tanh, f64::tanh)),
    row("aten::logit.out", &[Arg::Tensor, Arg::OptionalFloat, Arg::Out], logit),
    row("aten::abs.out", TENSOR, abs),
    row("aten::ceil.out", TENSOR, |call| same(call, Ceil)),
    row("aten::floor.out", TENSOR, |call| same(call, Floor)),
    row("aten::round.out", TENSOR, |call| same(call, Round)),
    row("aten::sign.out", TENSOR, |call| same(call, Sign)),
    row("aten::trunc.out", TENSOR, |call| same(call, Trunc)),
    row("aten::neg.out", TENSOR, neg),
    row("aten::bitwise_not.out", TENSOR, bitwise_not),
    row("aten::logical_not.out", TENSOR, logical_not),
    row("aten::isinf.out", TENSOR, |call| test(call, IsInf)),
    row("aten::isnan.out", TENSOR, |call| test(call, IsNan)),
    row("aten::_conj_physical.out", TENSOR, conj_physical),
];

/// A float result: integers are computed as `float32`; the output may be any float kind.
#[inline(always)]
fn float(
    call: &mut KernelCall<'_>,
    single: impl Fn(f32) -> f32,
    double: impl Fn(f64) -> f64,
) -> Result<(), KernelError> {
    float_with(call, map1(single), map1(double))
}

/// As [`float`], for functions of `f32` that run on many lanes at once.
#[inline(always)]
fn float_wide(
    call: &mut KernelCall<'_>,
    single: impl Fn(f32) -> f32,
    double: impl Fn(f64) -> f64,
) -> Result<(), KernelError> {
    float_with(call, wide1(single), map1(double))
}

#[inline(always)]
fn float_with(
    call: &mut KernelCall<'_>,
    single: impl Fn([&[ReadCell<f32>]; 1], &[Cell<f32>]),
    double: impl Fn([&[ReadCell<f64>]; 1], &[Cell<f64>]),
) -> Result<(), KernelError> {
    let common = float_of(call.tensor(0)?.dtype());
    let out = call.len() - 1;
    check_float(call, out)?;
    match common {
        DType::Float64 => run::<f64, 1>(call, [0], out, common, double),
        DType::Float32 | DType::Float16 | DType::BFloat16 => run::<f32, 1>(call, [0], out, common, single),
        other => Err(refused(other)),
    }
}

/// A function of `f64`, rounded once.
#[expect(clippy::cast_possible_truncation, reason = "rounds once")]
fn through_double(x: f32, f: fn(f64) -> f64) -> f32 {
    f(f64::from(x)) as f32
}

/// `ln(x / (1 − x))`, with `x` held within `eps` of 0 and 1 where `eps` is given.
fn logit(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let eps = match call.value(1) {
        Value::None => None,
        _ => Some(call.float(1)?),
    };
    let (low, high) = eps.map_or((f64::NEG_INFINITY, f64::INFINITY), |eps| (eps, 1.0 - eps));
    // Held as `f32`s where that is what is computed in.
    #[expect(clippy::cast_possible_truncation, reason = "rounds once")]
    let (low_single, high_single) = (low as f32, high as f32);
    float(
        call,
        move |x| {
            let x = x.larger(low_single).smaller(high_single);
            (x / (1.0 - x)).ln()
        },
        move |x| {
            let x = x.larger(low).smaller(high);
            (x / (1.0 - x)).ln()
        },
    )
}

/// A function whose result has the kind of its operand.
trait Unary: Copy {
    fn of<C: Real>(self, a: C) -> C;
}

macro_rules! functions {
    ($($name:ident, $a:ident => $value:expr;)+) => {
        $(#[derive(Clone, Copy)]
        struct $name;
        impl Unary for $name {
            #[inline(always)]
            fn of<C: Real>(self, $a: C) -> C {
                $value
            }
        })+
    };
}

functions! {
    Ceil, a => a.ceil();
    Floor, a => a.floor();
    Round, a => a.round();
    Trunc, a => a.trunc();
    Sign, a => a.sign();
    Abs, a => a.absolute();
    Neg, a => a.negated();
    IsInf, a => C::truth(a.is_infinite());
    IsNan, a => C::truth(a.is_nan());
}

fn same<F: Unary>(call: &mut KernelCall<'_>, f: F) -> Result<(), KernelError> {
    let dtype = call.tensor(0)?.dtype();
    check_same(call, dtype, 1)?;
    by_class!(dtype, C => run::<C, 1>(call, [0], 1, dtype, map1(move |a: C| f.of(a))))
}

/// The magnitude; that of a complex kind is real.
fn abs(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let dtype = call.tensor(0)?.dtype();
    let magnitude = match dtype {
        DType::Complex32 => DType::Float16,
        DType::Complex64 => DType::Float32,
        DType::Complex128 => DType::Float64,
        _ => return same(call, Abs),
    };
    check_same(call, magnitude, 1)?;
    run::<Wide, 1>(call, [0], 1, dtype, map1(|a: Wide| Wide::new(a.re.hypot(a.im), 0.0)))
}

fn neg(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let dtype = call.tensor(0)?.dtype();
    check_not_bool(dtype, "negation")?;
    if dtype.is_complex() {
        check_same(call, dtype, 1)?;
        return run::<Wide, 1>(call, [0], 1, dtype, map1(|a: Wide| -a));
    }
    same(call, Neg)
}

/// Every bit turned over; a truth value becomes the other one.
fn bitwise_not(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let dtype = call.tensor(0)?.dtype();
    check_same(call, dtype, 1)?;
    if dtype == DType::Bool {
        run::<i64, 1>(call, [0], 1, dtype, map1(|a: i64| i64::from(a == 0)))
    } else if dtype.is_integer() {
        run::<i64, 1>(call, [0], 1, dtype, map1(|a: i64| !a))
    } else {
        fail!(DType, "{dtype} operands have no bits to turn over; expected bool or integers")
    }
}

/// 1 where the operand is 0; any real kinds in and out.
fn logical_not(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let dtype = call.tensor(0)?.dtype();
    by_class!(dtype, C => run::<C, 1>(call, [0], 1, C::DTYPE, map1(|a: C| C::truth(!a.is_true()))))
}

/// A property of each element, as `bool`.
fn test<F: Unary>(call: &mut KernelCall<'_>, f: F) -> Result<(), KernelError> {
    check_same(call, DType::Bool, 1)?;
    let dtype = call.tensor(0)?.dtype();
    by_class!(dtype, C => run::<C, 1>(call, [0], 1, C::DTYPE, map1(move |a: C| f.of(a))))
}

/// The conjugate of complex kinds; real kinds stay as they are.
fn conj_physical(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let dtype = call.tensor(0)?.dtype();
    check_same(call, dtype, 1)?;
    if dtype.is_complex() {
        return run::<Wide, 1>(call, [0], 1, dtype, map1(|a: Wide| a.conj()));
    }
    by_class!(dtype, C => run::<C, 1>(call, [0], 1, dtype, map1(|a: C| a)))
}
