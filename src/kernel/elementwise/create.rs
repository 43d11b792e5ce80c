#![forbid(unsafe_code)]
//! Tensors from nothing or from a number: `full`, `zeros`, `arange`, `fill` and their like.

use super::convert::{Stored, by_stored};
use super::{at, cast, row};
use crate::kernel::{Arg, Kernel, KernelCall, KernelError, Scalar, fail};
use crate::tensor::Dims;

/// The kernels of this family.
pub(in crate::kernel) const KERNELS: &[Kernel] = &[
    row("aten::full.out", &[Arg::IntList, Arg::Scalar, Arg::Out], full),
    row("aten::full_like.out", &[Arg::Tensor, Arg::Scalar, Arg::OptionalInt, Arg::Out], full_like),
    row("aten::ones.out", &[Arg::IntList, Arg::Out], |call| constant(call, 1)),
    row("aten::zeros.out", &[Arg::IntList, Arg::Out], |call| constant(call, 0)),
    row("aten::empty.out", &[Arg::IntList, Arg::OptionalInt, Arg::Out], |call| sized(call, 2)),
    row("dim_order_ops::_empty_dim_order.out", &[Arg::IntList, Arg::OptionalIntList, Arg::Out], |call| {
        sized(call, 2)
    }),
    row("aten::scalar_tensor.out", &[Arg::Scalar, Arg::Out], scalar_tensor),
    row("aten::fill.Scalar_out", &[Arg::Tensor, Arg::Scalar, Arg::Out], fill_scalar),
    row("aten::fill.Tensor_out", &[Arg::Tensor, Arg::Tensor, Arg::Out], fill_tensor),
    row("aten::arange.out", &[Arg::Scalar, Arg::Out], |call| {
        arange(call, Scalar::Int(0), call.scalar(0)?, Scalar::Int(1), 1)
    }),
    row("aten::arange.start_out", &[Arg::Scalar, Arg::Scalar, Arg::Scalar, Arg::Out], |call| {
        arange(call, call.scalar(0)?, call.scalar(1)?, call.scalar(2)?, 3)
    }),
];

/// A number as a stored element.
fn stored<S: Stored>(scalar: Scalar) -> S {
    match scalar {
        Scalar::Bool(value) => S::of_i64(i64::from(value)),
        Scalar::Int(value) => S::of_i64(value),
        Scalar::Double(value) => S::of_f64(value),
    }
}

/// Writes `scalar` to every element of argument `out`.
fn fill(call: &KernelCall<'_>, out: usize, scalar: Scalar) -> Result<(), KernelError> {
    let target = call.tensor(out)?;
    by_stored!(target.dtype(), S => {
        let value = stored::<S>(scalar);
        target.write::<S>().map_err(at(out))?.iter().for_each(|cell| cell.set(value));
        Ok(())
    }, Err(KernelError::DType(format!("{} elements have no arithmetic", target.dtype()))))
}

/// Gives argument `out` the sizes that argument 0 lists.
pub(super) fn sized(call: &mut KernelCall<'_>, out: usize) -> Result<(), KernelError> {
    let mut sizes = Dims::empty();
    for &size in &*call.ints(0)? {
        let Ok(size) = usize::try_from(size) else {
            fail!(Range, "a size of {size} was asked for, expected 0 or more");
        };
        if sizes.push(size).is_none() {
            fail!(Shape, "more dimensions were asked for than a tensor may have");
        }
    }
    call.resize(out, &sizes)
}

fn full(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    sized(call, 2)?;
    fill(call, 2, call.scalar(1)?)
}

fn constant(call: &mut KernelCall<'_>, value: i64) -> Result<(), KernelError> {
    sized(call, 1)?;
    fill(call, 1, Scalar::Int(value))
}

/// Gives argument `out` the sizes of argument 0.
fn sized_like(call: &mut KernelCall<'_>, out: usize) -> Result<(), KernelError> {
    let sizes = Dims::new(call.tensor(0)?.sizes()).unwrap_or_else(Dims::empty);
    call.resize(out, &sizes)
}

fn full_like(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    sized_like(call, 3)?;
    fill(call, 3, call.scalar(1)?)
}

fn scalar_tensor(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    call.resize(1, &[])?;
    fill(call, 1, call.scalar(0)?)
}

fn check_fill_kind(call: &KernelCall<'_>) -> Result<(), KernelError> {
    let (from, to) = (call.tensor(0)?.dtype(), call.tensor(2)?.dtype());
    if from != to {
        fail!(DType, "fill of a {from} tensor into {to}, expected one kind");
    }
    Ok(())
}

fn fill_scalar(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    check_fill_kind(call)?;
    sized_like(call, 2)?;
    fill(call, 2, call.scalar(1)?)
}

/// The number is the one element of argument 1.
fn fill_tensor(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    check_fill_kind(call)?;
    let count = call.tensor(1)?.numel();
    if count != 1 || call.tensor(1)?.rank() > call.tensor(0)?.rank() {
        fail!(Shape, "the value to fill with has {count} elements, expected 1");
    }
    sized_like(call, 2)?;
    cast::convert(call, 1, 2)
}

/// Writes `start, start + step, …` up to but without `end`.
fn arange(
    call: &mut KernelCall<'_>,
    start: Scalar,
    end: Scalar,
    step: Scalar,
    out: usize,
) -> Result<(), KernelError> {
    let count = count_steps(start, end, step)?;
    let rank = call.tensor(out)?.rank();
    if rank != 1 {
        fail!(Shape, "the output (argument {out}) has rank {rank}, expected 1");
    }
    call.resize(out, &[count])?;
    let target = call.tensor(out)?;
    by_stored!(target.dtype(), S => {
        let cells = target.write::<S>().map_err(at(out))?.iter().zip(0_i64..);
        if let (Scalar::Int(start), Scalar::Int(step)) = (start, step) {
            cells.for_each(|(cell, nth)| cell.set(S::of_i64(start.wrapping_add(nth.wrapping_mul(step)))));
        } else {
            let (start, step) = (start.to_f64(), step.to_f64());
            cells.for_each(|(cell, nth)| cell.set(S::of_f64(start + nth as f64 * step)));
        }
        Ok(())
    }, Err(KernelError::DType(format!("{} elements have no arithmetic", target.dtype()))))
}

fn count_steps(start: Scalar, end: Scalar, step: Scalar) -> Result<usize, KernelError> {
    let wrong = || {
        let [start, end, step] = [start, end, step].map(Scalar::to_f64);
        KernelError::Range(format!("no steps of {step} lead from {start} to {end}"))
    };
    if let (Scalar::Int(start), Scalar::Int(end), Scalar::Int(step)) = (start, end, step) {
        let (distance, step) = (i128::from(end) - i128::from(start), i128::from(step));
        if step == 0 || (distance != 0 && (distance < 0) != (step < 0)) {
            return Err(wrong());
        }
        let (distance, step) = (distance.unsigned_abs(), step.unsigned_abs());
        return usize::try_from(distance.div_ceil(step)).map_err(|_| wrong());
    }
    let steps = ((end.to_f64() - start.to_f64()) / step.to_f64()).ceil();
    // Comparisons that NaN fails.
    if !(step.to_f64() != 0.0 && (0.0..1e15).contains(&steps)) {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, reason = "just compared with both ends")]
    Ok(steps as usize)
}
