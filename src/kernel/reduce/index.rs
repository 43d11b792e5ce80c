#![forbid(unsafe_code)]
//! Where the extremes are: `argmax`, `argmin`, `max.dim`, `min.dim`, `topk`.
//!
//! Of equal elements the first counts. A NaN is larger than every number for `topk` and wins `max` and
//! `min` alike.
//!
//! Deliberately absent: the extremes alone, see [`super::fold`].

use super::nothing_to_compare;
use super::plan::{Plan, Reduced, plan_of, wrap};
use crate::kernel::cells::{apart, cells_to_write, meet};
use crate::kernel::numeric::{Numeric, with_numeric};
use crate::kernel::{KernelCall, KernelError, Scratch, fail};
use crate::tensor::{DType, Dims, ReadCell, Tensor};
use core::cmp::Ordering;

/// The place in its group, and the value, of the extreme of the group at `base`.
fn extreme_of<T: Numeric, const LEAST: bool>(
    plan: &Plan,
    cells: &[ReadCell<T>],
    base: usize,
) -> Option<(usize, T)> {
    let mut best: Option<(usize, T)> = None;
    let mut at = 0;
    plan.runs(base, |from, len, step| {
        for cell in cells[from..].iter().step_by(step).take(len) {
            let value = cell.get();
            let wins = best.is_none_or(|(_, held)| {
                let (new, held_acc) = (value.widen(), held.widen());
                let beats = if LEAST { new < held_acc } else { new > held_acc };
                !held.is_nan() && (beats || value.is_nan())
            });
            if wins {
                best = Some((at, value));
            }
            at += 1;
        }
    });
    best
}

fn check_index(name: &str, out: &Tensor) -> Result<(), KernelError> {
    if out.dtype() != DType::Int64 {
        fail!(DType, "{name}: indices are {}, expected int64", out.dtype());
    }
    Ok(())
}

/// Places always fit: a tensor has fewer elements than `isize::MAX`.
fn place_of(at: usize) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}

pub(super) fn place<const LEAST: bool>(
    call: &mut KernelCall<'_>,
    name: &'static str,
) -> Result<(), KernelError> {
    let dim = call.optional_int(1)?;
    let (reduced, keep) = match dim {
        Some(dim) => (Reduced::one(name, dim, call.tensor(0)?.rank())?, call.bool(2)?),
        None => (Reduced::ALL, call.bool(2)?),
    };
    check_index(name, call.tensor(3)?)?;
    let plan = plan_of(call, 3, reduced, keep, true)?;
    let (input, out) = (call.tensor(0)?, call.tensor(3)?);
    if plan.group_len() == 0 && out.numel() > 0 {
        return Err(nothing_to_compare(name, input.sizes()));
    }
    let places = cells_to_write::<i64>(out, 3)?;
    with_numeric!(real, input.dtype(), name, T => {
        let cells = apart::<T>(input, 0, out, call.scratch())?;
        plan.groups(|from, to| {
            if let Some((at, _)) = extreme_of::<T, LEAST>(&plan, cells, from) {
                places[to].set(place_of(at));
            }
        });
    });
    Ok(())
}

pub(super) fn value_and_place<const LEAST: bool>(
    call: &mut KernelCall<'_>,
    name: &'static str,
) -> Result<(), KernelError> {
    let reduced = Reduced::one(name, call.int(1)?, call.tensor(0)?.rank())?;
    let keep = call.bool(2)?;
    let (input, out) = (call.tensor(0)?.dtype(), call.tensor(3)?.dtype());
    if input != out {
        fail!(DType, "{name}: input is {input} and out {out}, expected one kind");
    }
    check_index(name, call.tensor(4)?)?;
    let plan = plan_of(call, 3, reduced, keep, true)?;
    let place_plan = plan_of(call, 4, reduced, keep, true)?;
    let (input, out, place_out) = (call.tensor(0)?, call.tensor(3)?, call.tensor(4)?);
    if plan.group_len() == 0 && out.numel() > 0 {
        return Err(nothing_to_compare(name, input.sizes()));
    }
    let places = cells_to_write::<i64>(place_out, 4)?;
    with_numeric!(any, input.dtype(), name, T => {
        let values = cells_to_write::<T>(out, 3)?;
        let cells = apart_from_both::<T>(input, out, place_out, call.scratch())?;
        plan.groups(|from, to| {
            if let Some((_, value)) = extreme_of::<T, LEAST>(&plan, cells, from) {
                values[to].set(value);
            }
        });
        place_plan.groups(|from, to| {
            if let Some((at, _)) = extreme_of::<T, LEAST>(&place_plan, cells, from) {
                places[to].set(place_of(at));
            }
        });
    });
    Ok(())
}

fn apart_from_both<'a, T: Numeric>(
    input: &'a Tensor,
    a: &Tensor,
    b: &Tensor,
    scratch: Scratch<'a>,
) -> Result<&'a [ReadCell<T>], KernelError> {
    apart::<T>(input, 0, if meet(input, a) { a } else { b }, scratch)
}

/// The order of `topk`: what comes first.
fn compare<T: Numeric>(a: T, b: T, largest: bool) -> Ordering {
    let rising = match (a.is_nan(), b.is_nan()) {
        (false, false) => a.widen().partial_cmp(&b.widen()).unwrap_or(Ordering::Equal),
        (a, b) => a.cmp(&b),
    };
    if largest { rising.reverse() } else { rising }
}

pub(super) fn topk(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    const NAME: &str = "topk";
    let rank = call.tensor(0)?.rank();
    let dim = wrap(NAME, call.int(2)?, rank)?;
    let reduced = Reduced::one(NAME, call.int(2)?, rank)?;
    let mut sizes = Dims::new(call.tensor(0)?.sizes()).unwrap_or_else(Dims::empty);
    let len = sizes.get(dim).copied().unwrap_or(1);
    let asked = call.int(1)?;
    let Some(k) = usize::try_from(asked).ok().filter(|&k| k <= len) else {
        fail!(Range, "topk: k is {asked}, expected 0 to {len}, the size of dimension {dim}");
    };
    let (largest, sorted) = (call.bool(3)?, call.bool(4)?);
    let (input, out) = (call.tensor(0)?.dtype(), call.tensor(5)?.dtype());
    if input != out {
        fail!(DType, "topk: input is {input} and values {out}, expected one kind");
    }
    check_index(NAME, call.tensor(6)?)?;
    if let Some(size) = sizes.as_mut_slice().get_mut(dim) {
        *size = k;
    }
    call.resize(5, &sizes)?;
    call.resize(6, &sizes)?;
    let (input, out, place_out) = (call.tensor(0)?, call.tensor(5)?, call.tensor(6)?);
    let plan = Plan::new(input, out, reduced, true, true);
    let (step, place_step) = (step_of(out, dim), step_of(place_out, dim));
    let place_plan = Plan::new(input, place_out, reduced, true, true);
    let places = cells_to_write::<i64>(place_out, 6)?;
    let order = call.scratch().zeroed::<i64>(len)?;
    with_numeric!(any, input.dtype(), NAME, T => {
        let values = cells_to_write::<T>(out, 5)?;
        let cells = apart_from_both::<T>(input, out, place_out, call.scratch())?;
        let group = call.scratch().zeroed::<T>(len)?;
        plan.groups(|from, to| {
            rank_group(&plan, cells, from, group, order, (k, largest, sorted));
            for (at, &place) in order[..k].iter().enumerate() {
                values[to + at * step].set(group[index_of(place)]);
            }
        });
        place_plan.groups(|from, to| {
            rank_group(&place_plan, cells, from, group, order, (k, largest, sorted));
            for (at, &place) in order[..k].iter().enumerate() {
                places[to + at * place_step].set(place);
            }
        });
    });
    Ok(())
}

fn step_of(tensor: &Tensor, dim: usize) -> usize {
    tensor.strides().get(dim).copied().unwrap_or(1)
}

/// A place that was counted before.
fn index_of(place: i64) -> usize {
    usize::try_from(place).unwrap_or(0)
}

/// Copies a group to `group` and puts the places of its first `k` at the front of `order`.
fn rank_group<T: Numeric>(
    plan: &Plan,
    cells: &[ReadCell<T>],
    from: usize,
    group: &mut [T],
    order: &mut [i64],
    (k, largest, sorted): (usize, bool, bool),
) {
    let mut at = 0;
    plan.runs(from, |from, len, step| {
        for cell in cells[from..].iter().step_by(step).take(len) {
            group[at] = cell.get();
            order[at] = place_of(at);
            at += 1;
        }
    });
    let by = |a: &i64, b: &i64| compare(group[index_of(*a)], group[index_of(*b)], largest).then(a.cmp(b));
    if k > 0 && k < order.len() {
        order.select_nth_unstable_by(k - 1, by);
    }
    if sorted {
        order[..k].sort_unstable_by(by);
    }
}
