#![forbid(unsafe_code)]
//! Reductions: sums, means, products, extremes, truth, variance, places of extremes, running sums, top k.
//!
//! ```text
//! input ──► Plan (plan.rs): groups of elements ──► Fold (fold.rs) ──► Store (store.rs): any kind
//! ```
//!
//! The input may lie in any order, and so may the result; an input that shares bytes with a result is
//! copied first. Sums of floating-point elements are kept in `f64` and rounded once. A NaN wins every
//! comparison, as in torch.
//!
//! Deliberately absent: sorting, complex numbers.

mod fold;
mod index;
mod plan;
mod scan;
mod store;

pub(super) use fold::{Spread, Sum, fold_run};
pub(super) use plan::{Plan, Reduced, wrap};

use super::cells::apart;
use super::numeric::with_numeric;
use super::{Arg, Kernel, KernelCall, KernelError, Scalar, fail};
use crate::tensor::shape::display_sizes;
use crate::tensor::{DType, Tensor};
use fold::{Extreme, Product, Truth, WholeProduct, WholeSum, fold_all};
use plan::plan_of;
use store::Store;

macro_rules! kernels {
    ($($name:literal [$($arg:ident)+] $run:expr;)+) => {
        &[$(Kernel { name: concat!("aten::", $name), args: &[$(Arg::$arg),+], run: $run }),+]
    };
}

/// The kernels of this family.
pub(super) const KERNELS: &[Kernel] = kernels! {
    "sum.IntList_out" [Tensor OptionalIntList Bool OptionalInt Out] sum;
    "mean.out" [Tensor OptionalIntList Bool OptionalInt Out] mean;
    "mean.dtype_out" [Tensor OptionalInt Out] mean_all;
    "prod.out" [Tensor OptionalInt Out] prod_all;
    "prod.int_out" [Tensor Int Bool OptionalInt Out] prod;
    "amax.out" [Tensor IntList Bool Out] |call| extremes::<false>(call, "amax");
    "amin.out" [Tensor IntList Bool Out] |call| extremes::<true>(call, "amin");
    "max.unary_out" [Tensor Out] |call| extreme_all::<false>(call, "max");
    "min.unary_out" [Tensor Out] |call| extreme_all::<true>(call, "min");
    "any.out" [Tensor Int Bool Out] |call| truth_one::<false>(call, "any");
    "any.dims_out" [Tensor OptionalIntList Bool Out] |call| truth_list::<false>(call, "any");
    "any.all_out" [Tensor Out] |call| truth::<false>(call, "any", Reduced::ALL, false, 1);
    "all.out" [Tensor Int Bool Out] |call| truth_one::<true>(call, "all");
    "all.dims_out" [Tensor OptionalIntList Bool Out] |call| truth_list::<true>(call, "all");
    "all.all_out" [Tensor Out] |call| truth::<true>(call, "all", Reduced::ALL, false, 1);
    "var.out" [Tensor OptionalIntList Bool Bool Out] var_unbiased;
    "var.correction_out" [Tensor OptionalIntList OptionalScalar Bool Out] var;
    "var_mean.correction_out" [Tensor OptionalIntList OptionalScalar Bool Out Out] var_mean;
    "argmax.out" [Tensor OptionalInt Bool Out] |call| index::place::<false>(call, "argmax");
    "argmin.out" [Tensor OptionalInt Bool Out] |call| index::place::<true>(call, "argmin");
    "max.dim_max" [Tensor Int Bool Out Out] |call| index::value_and_place::<false>(call, "max");
    "min.dim_min" [Tensor Int Bool Out Out] |call| index::value_and_place::<true>(call, "min");
    "topk.values" [Tensor Int Int Bool Bool Out Out] index::topk;
    "cumsum.out" [Tensor Int OptionalInt Out] scan::cumsum;
};

/// Checks that an element kind asked for, if any, is that of `out`.
fn check_dtype(name: &str, asked: Option<i64>, out: &Tensor) -> Result<(), KernelError> {
    match asked {
        Some(code) if code != i64::from(out.dtype().code()) => {
            let got =
                DType::from_code(code).map_or_else(|| format!("code {code}"), |dtype| dtype.to_string());
            fail!(DType, "{name}: dtype is {got} and out {}, expected one kind", out.dtype())
        }
        _ => Ok(()),
    }
}

fn check_float(name: &str, tensors: &[&Tensor]) -> Result<(), KernelError> {
    match tensors.iter().find(|tensor| !tensor.dtype().is_float()) {
        Some(tensor) => fail!(DType, "{name}: elements are {}, expected float kinds", tensor.dtype()),
        None => Ok(()),
    }
}

#[cold]
fn nothing_to_compare(name: &str, sizes: &[usize]) -> KernelError {
    KernelError::Shape(format!(
        "{name}: input is {}, expected an element in each group",
        display_sizes(sizes)
    ))
}

/// Folds argument 0 into argument `out`.
macro_rules! fold_into {
    ($name:expr, $call:expr, $plan:expr, $out:expr, $fold:expr, |$store:ident, $to:ident, $state:ident| $write:expr) => {{
        let (input, out) = ($call.tensor(0)?, $call.tensor($out)?);
        let $store = Store::new($name, $out, out)?;
        with_numeric!(any, input.dtype(), $name, T => {
            let cells = apart::<T>(input, 0, out, $call.scratch())?;
            fold_all(&$plan, cells, &$fold, #[inline(always)] |$to, $state| $write);
        });
        Ok(())
    }};
}

fn sum(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let dims = call.optional_ints(1)?;
    let reduced = Reduced::list("sum", dims.as_deref(), call.tensor(0)?.rank())?;
    check_dtype("sum", call.optional_int(3)?, call.tensor(4)?)?;
    let plan = plan_of(call, 4, reduced, call.bool(2)?, false)?;
    let dtype = call.tensor(4)?.dtype();
    if dtype.is_float() {
        fold_into!("sum", call, plan, 4, Sum, |store, to, state| store.real(to, state))
    } else {
        let fold = WholeSum { truth: dtype == DType::Bool };
        fold_into!("sum", call, plan, 4, fold, |store, to, state| store.whole(to, state))
    }
}

fn mean(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let dims = call.optional_ints(1)?;
    let reduced = Reduced::list("mean", dims.as_deref(), call.tensor(0)?.rank())?;
    mean_of(call, reduced, call.bool(2)?, call.optional_int(3)?, 4)
}

fn mean_all(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    mean_of(call, Reduced::ALL, false, call.optional_int(1)?, 2)
}

fn mean_of(
    call: &mut KernelCall<'_>,
    reduced: Reduced,
    keep: bool,
    dtype: Option<i64>,
    out: usize,
) -> Result<(), KernelError> {
    check_dtype("mean", dtype, call.tensor(out)?)?;
    check_float("mean", &[call.tensor(out)?])?;
    if dtype.is_none() {
        check_float("mean", &[call.tensor(0)?])?;
    }
    let plan = plan_of(call, out, reduced, keep, false)?;
    let count = plan.group_len() as f64;
    fold_into!("mean", call, plan, out, Sum, |store, to, state| store.real(to, state / count))
}

fn prod(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let reduced = Reduced::one("prod", call.int(1)?, call.tensor(0)?.rank())?;
    prod_of(call, reduced, call.bool(2)?, call.optional_int(3)?, 4)
}

fn prod_all(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    prod_of(call, Reduced::ALL, false, call.optional_int(1)?, 2)
}

fn prod_of(
    call: &mut KernelCall<'_>,
    reduced: Reduced,
    keep: bool,
    dtype: Option<i64>,
    out: usize,
) -> Result<(), KernelError> {
    check_dtype("prod", dtype, call.tensor(out)?)?;
    let plan = plan_of(call, out, reduced, keep, false)?;
    let dtype = call.tensor(out)?.dtype();
    if dtype.is_float() {
        fold_into!("prod", call, plan, out, Product, |store, to, state| store.real(to, state))
    } else {
        let fold = WholeProduct { truth: dtype == DType::Bool };
        fold_into!("prod", call, plan, out, fold, |store, to, state| store.whole(to, state))
    }
}

fn extremes<const LEAST: bool>(call: &mut KernelCall<'_>, name: &'static str) -> Result<(), KernelError> {
    let dims = call.ints(1)?;
    let reduced = Reduced::list(name, Some(&dims), call.tensor(0)?.rank())?;
    let (input, out) = (call.tensor(0)?.dtype(), call.tensor(3)?.dtype());
    if input != out {
        fail!(DType, "{name}: input is {input} and out {out}, expected one kind");
    }
    extreme::<LEAST>(call, name, reduced, call.bool(2)?, 3)
}

fn extreme_all<const LEAST: bool>(call: &mut KernelCall<'_>, name: &'static str) -> Result<(), KernelError> {
    let (input, out) = (call.tensor(0)?.dtype(), call.tensor(1)?.dtype());
    if !input.can_cast_to(out) {
        fail!(DType, "{name}: a result of {input} cannot be stored as {out}");
    }
    extreme::<LEAST>(call, name, Reduced::ALL, false, 1)
}

fn extreme<const LEAST: bool>(
    call: &mut KernelCall<'_>,
    name: &'static str,
    reduced: Reduced,
    keep: bool,
    at: usize,
) -> Result<(), KernelError> {
    let plan = plan_of(call, at, reduced, keep, false)?;
    let (input, out) = (call.tensor(0)?, call.tensor(at)?);
    if plan.group_len() == 0 && out.numel() > 0 {
        return Err(nothing_to_compare(name, input.sizes()));
    }
    let store = Store::new(name, at, out)?;
    with_numeric!(any, input.dtype(), name, T => {
        let cells = apart::<T>(input, 0, out, call.scratch())?;
        let fold = Extreme::<LEAST>;
        fold_all(&plan, cells, &fold, #[inline(always)] |to, state| {
            // Integers go as they are: f64 does not hold every i64.
            if input.dtype().is_float() {
                store.real(to, super::numeric::Numeric::to_f64(state));
            } else {
                store.whole(to, super::numeric::Numeric::to_i64(state));
            }
        });
    });
    Ok(())
}

fn truth_one<const EVERY: bool>(call: &mut KernelCall<'_>, name: &'static str) -> Result<(), KernelError> {
    let reduced = Reduced::one(name, call.int(1)?, call.tensor(0)?.rank())?;
    truth::<EVERY>(call, name, reduced, call.bool(2)?, 3)
}

fn truth_list<const EVERY: bool>(call: &mut KernelCall<'_>, name: &'static str) -> Result<(), KernelError> {
    let dims = call.optional_ints(1)?;
    let reduced = match dims.as_deref() {
        // As in torch, unlike sums: an empty list reduces nothing.
        Some([]) => Reduced::NONE,
        dims => Reduced::list(name, dims, call.tensor(0)?.rank())?,
    };
    truth::<EVERY>(call, name, reduced, call.bool(2)?, 3)
}

fn truth<const EVERY: bool>(
    call: &mut KernelCall<'_>,
    name: &'static str,
    reduced: Reduced,
    keep: bool,
    out: usize,
) -> Result<(), KernelError> {
    let dtype = call.tensor(out)?.dtype();
    if !matches!(dtype, DType::Bool | DType::UInt8) {
        fail!(DType, "{name}: out is {dtype}, expected bool or uint8");
    }
    let plan = plan_of(call, out, reduced, keep, false)?;
    fold_into!(name, call, plan, out, Truth::<EVERY>, |store, to, state| store.whole(to, i64::from(state)))
}

fn var_unbiased(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let correction = if call.bool(2)? { 1.0 } else { 0.0 };
    variance(call, "var", correction, false)
}

fn correction(call: &KernelCall<'_>) -> Result<f64, KernelError> {
    Ok(call.optional_scalar(2)?.map_or(1.0, Scalar::to_f64))
}

fn var(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let correction = correction(call)?;
    variance(call, "var", correction, false)
}

fn var_mean(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let correction = correction(call)?;
    variance(call, "var_mean", correction, true)
}

fn variance(
    call: &mut KernelCall<'_>,
    name: &'static str,
    correction: f64,
    with_mean: bool,
) -> Result<(), KernelError> {
    let dims = call.optional_ints(1)?;
    let reduced = Reduced::list(name, dims.as_deref(), call.tensor(0)?.rank())?;
    let keep = call.bool(3)?;
    check_float(name, &[call.tensor(0)?, call.tensor(4)?])?;
    let plan = plan_of(call, 4, reduced, keep, false)?;
    let mean_plan = if with_mean { Some(plan_of(call, 5, reduced, keep, false)?) } else { None };
    let (input, out) = (call.tensor(0)?, call.tensor(4)?);
    let store = Store::new(name, 4, out)?;
    let count = plan.group_len() as f64;
    let divisor = (count - correction).max(0.0);
    with_numeric!(float, input.dtype(), name, T => {
        let mut cells = apart::<T>(input, 0, out, call.scratch())?;
        if with_mean {
            // The means are written while the input is still read.
            if super::cells::meet(input, call.tensor(5)?) {
                cells = apart::<T>(input, 0, input, call.scratch())?;
            }
        }
        plan.groups(|from, to| {
            let mean = fold::fold_group(&plan, cells, from, &Sum) / count;
            let spread = fold::fold_group(&plan, cells, from, &Spread { mean });
            store.real(to, spread / divisor);
        });
        if let Some(plan) = mean_plan {
            let store = Store::new(name, 5, call.tensor(5)?)?;
            fold_all(&plan, cells, &Sum, |to, sum| store.real(to, sum / count));
        }
    });
    Ok(())
}
