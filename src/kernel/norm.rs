#![forbid(unsafe_code)]
//! Normalisation: batch, layer, group.
//!
//! ```text
//! y = (x − mean) · rstd · weight + bias,   rstd = 1 / √(variance + eps), variance without correction
//!
//!   batch: one mean a channel      layer: one a row of the last dimensions      group: one a group of channels
//! ```
//!
//! Means and variances are summed in `f64`. An input that shares bytes with a result is copied first,
//! unless both lie alike.
//!
//! Deliberately absent: training with running statistics.

use super::cells::{apart, cells_of, cells_to_write, meet};
use super::numeric::{Float, Numeric, vectorised, with_numeric};
use super::reduce::{Spread, Sum, fold_run};
use super::{Arg, Kernel, KernelCall, KernelError, Scratch, fail};
use crate::tensor::shape::display_sizes;
use crate::tensor::{DType, Dims, Element, ReadCell, Tensor};
use core::cell::Cell;

/// The kernels of this family.
pub(super) const KERNELS: &[Kernel] = &[
    Kernel {
        name: "aten::_native_batch_norm_legit_no_training.out",
        args: &[
            Arg::Tensor,
            Arg::OptionalTensor,
            Arg::OptionalTensor,
            Arg::Tensor,
            Arg::Tensor,
            Arg::Float,
            Arg::Float,
            Arg::Out,
            Arg::Out,
            Arg::Out,
        ],
        run: batch_norm_no_training,
    },
    Kernel {
        name: "aten::_native_batch_norm_legit.out",
        args: &[
            Arg::Tensor,
            Arg::OptionalTensor,
            Arg::OptionalTensor,
            Arg::Tensor,
            Arg::Tensor,
            Arg::Bool,
            Arg::Float,
            Arg::Float,
            Arg::Out,
            Arg::Out,
            Arg::Out,
        ],
        run: batch_norm,
    },
    Kernel {
        name: "aten::_native_batch_norm_legit.no_stats_out",
        args: &[
            Arg::Tensor,
            Arg::OptionalTensor,
            Arg::OptionalTensor,
            Arg::Bool,
            Arg::Float,
            Arg::Float,
            Arg::Out,
            Arg::Out,
            Arg::Out,
        ],
        run: batch_norm_no_stats,
    },
    Kernel {
        name: "aten::native_layer_norm.out",
        args: &[
            Arg::Tensor,
            Arg::IntList,
            Arg::OptionalTensor,
            Arg::OptionalTensor,
            Arg::Float,
            Arg::Out,
            Arg::Out,
            Arg::Out,
        ],
        run: layer_norm,
    },
    Kernel {
        name: "aten::native_group_norm.out",
        args: &[
            Arg::Tensor,
            Arg::OptionalTensor,
            Arg::OptionalTensor,
            Arg::Int,
            Arg::Int,
            Arg::Int,
            Arg::Int,
            Arg::Float,
            Arg::Out,
            Arg::Out,
            Arg::Out,
        ],
        run: group_norm,
    },
];

/// Checks that every tensor has the kind of argument 0.
fn check_kinds(name: &str, call: &KernelCall<'_>, others: &[usize]) -> Result<DType, KernelError> {
    let dtype = call.tensor(0)?.dtype();
    for &index in others {
        if let Some(other) = call.optional_tensor(index)?
            && other.dtype() != dtype
        {
            fail!(
                DType,
                "{name}: input is {dtype} and argument {index} {}, expected one kind",
                other.dtype()
            );
        }
    }
    Ok(dtype)
}

/// Checks the sizes of a parameter, and that it is row-major.
fn check_parameter(
    name: &str,
    call: &KernelCall<'_>,
    index: usize,
    sizes: &[usize],
) -> Result<(), KernelError> {
    let Some(tensor) = call.optional_tensor(index)? else { return Ok(()) };
    if tensor.sizes() != sizes {
        fail!(
            Shape,
            "{name}: argument {index} is {}, expected {}",
            display_sizes(tensor.sizes()),
            display_sizes(sizes)
        );
    }
    check_row_major(name, call, index)
}

fn check_row_major(name: &str, call: &KernelCall<'_>, index: usize) -> Result<(), KernelError> {
    match call.optional_tensor(index)? {
        Some(tensor) if !tensor.is_row_major() => fail!(
            Layout,
            "{name}: argument {index} is in order {}, expected row-major",
            display_sizes(tensor.order())
        ),
        _ => Ok(()),
    }
}

fn copied(sizes: &[usize]) -> Dims {
    Dims::new(sizes).unwrap_or_else(Dims::empty)
}

/// The elements of argument 0: as they are where `out` lies alike, else apart from it; never over `others`.
fn input_apart<'a, T: Element>(
    call: &'a KernelCall<'_>,
    out: usize,
    others: &[usize],
) -> Result<&'a [ReadCell<T>], KernelError> {
    let (input, target) = (call.tensor(0)?, call.tensor(out)?);
    let mut alike = input.address() == target.address() && input.matches_layout(target);
    for &other in others {
        alike &= !meet(input, call.tensor(other)?);
    }
    let hit = others.iter().filter_map(|&other| call.tensor(other).ok()).find(|other| meet(input, other));
    if alike { cells_of(input, 0) } else { apart(input, 0, hit.unwrap_or(target), call.scratch()) }
}

/// The elements of an optional parameter, apart from what is written.
fn parameter<'a, T: Element>(
    call: &'a KernelCall<'_>,
    index: usize,
    outs: &[usize],
) -> Result<Option<&'a [ReadCell<T>]>, KernelError> {
    let Some(tensor) = call.optional_tensor(index)? else { return Ok(None) };
    for &out in outs {
        let out = call.tensor(out)?;
        if meet(tensor, out) {
            return apart(tensor, index, out, call.scratch()).map(Some);
        }
    }
    cells_of(tensor, index).map(Some)
}

fn at<T: Numeric>(cells: Option<&[ReadCell<T>]>, index: usize, default: f64) -> f64 {
    cells.map_or(default, |cells| cells[index].get().to_f64())
}

/// Writes `x · scale + shift` for a run.
#[inline(always)]
fn affine<T: Numeric<Acc: Float>>(
    from: &[ReadCell<T>],
    to: &[Cell<T>],
    mean: T::Acc,
    scale: T::Acc,
    shift: T::Acc,
) {
    for (slot, cell) in to.iter().zip(from) {
        slot.set(T::narrow((cell.get().widen() - mean) * scale + shift));
    }
}

/// The size of the channel dimension, 1, and the step from one channel to the next.
fn channels(name: &str, input: &Tensor) -> Result<(usize, usize), KernelError> {
    match (input.sizes(), &*input.strides()) {
        ([], _) => Ok((1, 1)),
        ([size], [step]) => Ok((*size, *step)),
        ([_, size, ..], [_, step, ..]) => Ok((*size, *step)),
        _ => fail!(Shape, "{name}: rank {}", input.rank()),
    }
}

fn check_alike(name: &str, call: &KernelCall<'_>, out: usize) -> Result<(), KernelError> {
    let (input, out) = (call.tensor(0)?, call.tensor(out)?);
    if !input.matches_layout(out) {
        fail!(
            Layout,
            "{name}: input is in order {} and out in {}, expected one order",
            display_sizes(input.order()),
            display_sizes(out.order())
        );
    }
    Ok(())
}

fn batch_norm_no_training(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let eps = call.float(6)?;
    batch_norm_fixed(call, eps, [7, 8, 9])
}

fn batch_norm(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    if call.bool(5)? {
        fail!(Unsupported, "batch_norm: training with running statistics is not supported");
    }
    let eps = call.float(7)?;
    batch_norm_fixed(call, eps, [8, 9, 10])
}

/// With given means and variances, arguments 3 and 4.
fn batch_norm_fixed(call: &mut KernelCall<'_>, eps: f64, outs: [usize; 3]) -> Result<(), KernelError> {
    const NAME: &str = "batch_norm";
    let dtype = check_kinds(NAME, call, &[1, 2, 3, 4, outs[0]])?;
    let (count, step) = channels(NAME, call.tensor(0)?)?;
    for index in 1..=4 {
        check_parameter(NAME, call, index, &[count])?;
    }
    let sizes = copied(call.tensor(0)?.sizes());
    call.resize(outs[0], &sizes)?;
    call.resize(outs[1], &[0])?;
    call.resize(outs[2], &[0])?;
    check_alike(NAME, call, outs[0])?;
    with_numeric!(float, dtype, NAME, T => {
        let written = &outs[..1];
        let [weight, bias, mean, var] = [1, 2, 3, 4].map(|index| parameter::<T>(call, index, written));
        let (weight, bias, mean, var) = (weight?, bias?, mean?, var?);
        let from = input_apart::<T>(call, outs[0], &[])?;
        let to = cells_to_write::<T>(call.tensor(outs[0])?, outs[0])?;
        let scales = Channels::<<T as Numeric>::Acc>::new(count, call.scratch(), |channel| {
            let scale = at(weight, channel, 1.0) / (at(var, channel, 1.0) + eps).sqrt();
            (at(mean, channel, 0.0), scale, at(bias, channel, 0.0))
        })?;
        by_channel(from, to, &scales, step);
        Ok(())
    })
}

/// Mean, scale and shift of each channel.
struct Channels<'a, A> {
    means: &'a [A],
    scales: &'a [A],
    shifts: &'a [A],
}

impl<'a, A: Float> Channels<'a, A> {
    fn new(
        count: usize,
        scratch: Scratch<'a>,
        of: impl Fn(usize) -> (f64, f64, f64),
    ) -> Result<Self, KernelError> {
        let [means, scales, shifts] =
            [scratch.zeroed::<A>(count), scratch.zeroed(count), scratch.zeroed(count)];
        let (means, scales, shifts) = (means?, scales?, shifts?);
        for channel in 0..count {
            let (mean, scale, shift) = of(channel);
            means[channel] = Numeric::from_f64(mean);
            scales[channel] = Numeric::from_f64(scale);
            shifts[channel] = Numeric::from_f64(shift);
        }
        Ok(Self { means, scales, shifts })
    }
}

/// Normalises in memory order: runs of `step` elements belong to one channel, then comes the next.
fn by_channel<T: Numeric<Acc: Float>>(
    from: &[ReadCell<T>],
    to: &[Cell<T>],
    channels: &Channels<'_, T::Acc>,
    step: usize,
) {
    let count = channels.means.len();
    if count == 0 || step == 0 {
        return;
    }
    vectorised(
        #[inline(always)]
        || {
            if step == 1 {
                for (from, to) in from.chunks(count).zip(to.chunks(count)) {
                    let values = channels.means.iter().zip(channels.scales).zip(channels.shifts);
                    for ((slot, cell), ((mean, scale), shift)) in to.iter().zip(from).zip(values) {
                        slot.set(T::narrow((cell.get().widen() - *mean) * *scale + *shift));
                    }
                }
            } else {
                for (run, (from, to)) in from.chunks(step).zip(to.chunks(step)).enumerate() {
                    let channel = run % count;
                    affine(
                        from,
                        to,
                        channels.means[channel],
                        channels.scales[channel],
                        channels.shifts[channel],
                    );
                }
            }
        },
    );
}

fn batch_norm_no_stats(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    const NAME: &str = "batch_norm";
    let dtype = check_kinds(NAME, call, &[1, 2, 6, 7, 8])?;
    let (count, step) = channels(NAME, call.tensor(0)?)?;
    check_parameter(NAME, call, 1, &[count])?;
    check_parameter(NAME, call, 2, &[count])?;
    if !call.bool(3)? {
        fail!(Unsupported, "batch_norm: without running statistics only training is supported");
    }
    let eps = call.float(5)?;
    let sizes = copied(call.tensor(0)?.sizes());
    call.resize(6, &sizes)?;
    call.resize(7, &[count])?;
    call.resize(8, &[count])?;
    check_alike(NAME, call, 6)?;
    with_numeric!(float, dtype, NAME, T => {
        let from = input_apart::<T>(call, 6, &[7, 8])?;
        let to = cells_to_write::<T>(call.tensor(6)?, 6)?;
        let (means, rstds) = (cells_to_write::<T>(call.tensor(7)?, 7)?, cells_to_write::<T>(call.tensor(8)?, 8)?);
        let (weight, bias) = (parameter::<T>(call, 1, &[6, 7, 8])?, parameter::<T>(call, 2, &[6, 7, 8])?);
        let runs = |channel: usize| from.chunks(step.max(1)).skip(channel).step_by(count.max(1));
        let members = (from.len() / count.max(1)) as f64;
        let scales = Channels::<<T as Numeric>::Acc>::new(count, call.scratch(), |channel| {
            let mean = runs(channel).map(|run| fold_run(&Sum, run)).sum::<f64>() / members;
            let spread = runs(channel).map(|run| fold_run(&Spread { mean }, run)).sum::<f64>() / members;
            let rstd = 1.0 / (spread + eps).sqrt();
            means[channel].set(T::from_f64(mean));
            rstds[channel].set(T::from_f64(rstd));
            (mean, rstd * at(weight, channel, 1.0), at(bias, channel, 0.0))
        })?;
        by_channel(from, to, &scales, step);
        Ok(())
    })
}

fn layer_norm(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    const NAME: &str = "layer_norm";
    let dtype = check_kinds(NAME, call, &[2, 3, 5, 6, 7])?;
    let shape = call.ints(1)?;
    let sizes = copied(call.tensor(0)?.sizes());
    let lead = sizes.len().checked_sub(shape.len()).filter(|&lead| {
        !shape.is_empty()
            && sizes[lead..].iter().zip(&*shape).all(|(&size, &item)| i64::try_from(size) == Ok(item))
    });
    let Some(lead) = lead else {
        fail!(
            Shape,
            "{NAME}: normalized shape {} does not end the sizes {} of the input",
            display_sizes(&shape),
            display_sizes(&sizes)
        );
    };
    let (outer, inner) = sizes.split_at(lead);
    check_parameter(NAME, call, 2, inner)?;
    check_parameter(NAME, call, 3, inner)?;
    let eps = call.float(4)?;
    let mut kept = copied(outer);
    for _ in inner {
        let _ = kept.push(1);
    }
    call.resize(5, &sizes)?;
    call.resize(6, &kept)?;
    call.resize(7, &kept)?;
    for index in [0, 5, 6, 7] {
        check_row_major(NAME, call, index)?;
    }
    let len = inner.iter().product::<usize>();
    with_numeric!(float, dtype, NAME, T => {
        let from = input_apart::<T>(call, 5, &[6, 7])?;
        let to = cells_to_write::<T>(call.tensor(5)?, 5)?;
        let (means, rstds) = (cells_to_write::<T>(call.tensor(6)?, 6)?, cells_to_write::<T>(call.tensor(7)?, 7)?);
        let (weight, bias) = (parameter::<T>(call, 2, &[5, 6, 7])?, parameter::<T>(call, 3, &[5, 6, 7])?);
        if len == 0 {
            for (mean, rstd) in means.iter().zip(rstds) {
                mean.set(T::from_f64(0.0));
                rstd.set(T::from_f64(f64::NAN));
            }
            return Ok(());
        }
        vectorised(#[inline(always)] || {
            for (row, (from, to)) in from.chunks_exact(len).zip(to.chunks_exact(len)).enumerate() {
                let (mean, rstd) = moments(from, eps);
                means[row].set(T::from_f64(mean));
                rstds[row].set(T::from_f64(rstd));
                scaled_row(from, to, (mean, rstd), weight, bias);
            }
        });
        Ok(())
    })
}

/// The mean, and one over the root of the variance.
#[inline(always)]
fn moments<T: Numeric>(cells: &[ReadCell<T>], eps: f64) -> (f64, f64) {
    let count = cells.len() as f64;
    let mean = fold_run(&Sum, cells) / count;
    let spread = fold_run(&Spread { mean }, cells) / count;
    (mean, 1.0 / (spread + eps).sqrt())
}

/// Writes a row with a weight and a bias for each element.
#[inline(always)]
fn scaled_row<T: Numeric<Acc: Float>>(
    from: &[ReadCell<T>],
    to: &[Cell<T>],
    (mean, rstd): (f64, f64),
    weight: Option<&[ReadCell<T>]>,
    bias: Option<&[ReadCell<T>]>,
) {
    let (mean, rstd) = (<T::Acc as Numeric>::from_f64(mean), <T::Acc as Numeric>::from_f64(rstd));
    let rows = to.iter().zip(from);
    let normal = |cell: &ReadCell<T>| (cell.get().widen() - mean) * rstd;
    match (weight, bias) {
        (Some(weight), Some(bias)) => {
            for ((slot, cell), (weight, bias)) in rows.zip(weight.iter().zip(bias)) {
                slot.set(T::narrow(normal(cell) * weight.get().widen() + bias.get().widen()));
            }
        }
        (Some(weight), None) => {
            for ((slot, cell), weight) in rows.zip(weight) {
                slot.set(T::narrow(normal(cell) * weight.get().widen()));
            }
        }
        (None, Some(bias)) => {
            for ((slot, cell), bias) in rows.zip(bias) {
                slot.set(T::narrow(normal(cell) + bias.get().widen()));
            }
        }
        (None, None) => rows.for_each(|(slot, cell)| slot.set(T::narrow(normal(cell)))),
    }
}

fn group_norm(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    const NAME: &str = "group_norm";
    let dtype = check_kinds(NAME, call, &[1, 2, 8, 9, 10])?;
    let [batches, channels, area, groups] = [3, 4, 5, 6].map(|index| call.int(index).map(usize::try_from));
    let (Ok(batches), Ok(channels), Ok(area), Ok(groups)) = (batches?, channels?, area?, groups?) else {
        fail!(Range, "{NAME}: a size is negative");
    };
    let sizes = copied(call.tensor(0)?.sizes());
    let fits = groups > 0
        && channels.is_multiple_of(groups)
        && sizes.first() == Some(&batches)
        && sizes.get(1) == Some(&channels)
        && sizes.iter().skip(2).product::<usize>() == area;
    if !fits {
        fail!(
            Shape,
            "{NAME}: input is {}, said to be {batches} times {channels} channels of {area} in {groups} groups",
            display_sizes(&sizes)
        );
    }
    check_parameter(NAME, call, 1, &[channels])?;
    check_parameter(NAME, call, 2, &[channels])?;
    let eps = call.float(7)?;
    call.resize(8, &sizes)?;
    call.resize(9, &[batches, groups])?;
    call.resize(10, &[batches, groups])?;
    for index in [0, 8, 9, 10] {
        check_row_major(NAME, call, index)?;
    }
    let members = channels / groups;
    with_numeric!(float, dtype, NAME, T => {
        let from = input_apart::<T>(call, 8, &[9, 10])?;
        let to = cells_to_write::<T>(call.tensor(8)?, 8)?;
        let (means, rstds) = (cells_to_write::<T>(call.tensor(9)?, 9)?, cells_to_write::<T>(call.tensor(10)?, 10)?);
        let (weight, bias) = (parameter::<T>(call, 1, &[8, 9, 10])?, parameter::<T>(call, 2, &[8, 9, 10])?);
        let len = members * area;
        if len == 0 {
            for (mean, rstd) in means.iter().zip(rstds) {
                mean.set(T::from_f64(0.0));
                rstd.set(T::from_f64(f64::NAN));
            }
            return Ok(());
        }
        vectorised(#[inline(always)] || {
            for (row, (from, to)) in from.chunks_exact(len).zip(to.chunks_exact(len)).enumerate() {
                let (mean, rstd) = moments(from, eps);
                means[row].set(T::from_f64(mean));
                rstds[row].set(T::from_f64(rstd));
                for (member, (from, to)) in from.chunks_exact(area).zip(to.chunks_exact(area)).enumerate() {
                    let channel = row % groups * members + member;
                    let [mean, scale, shift] =
                        [mean, rstd * at(weight, channel, 1.0), at(bias, channel, 0.0)]
                            .map(<<T as Numeric>::Acc as Numeric>::from_f64);
                    affine(from, to, mean, scale, shift);
                }
            }
        });
        Ok(())
    })
}
