#![forbid(unsafe_code)]
//! Copies that may change the element kind, the dimension order or the space's side: `_to_copy`, `clone`,
//! `copy_`, the dim-order copies, and the two `et_copy` operators where both sides are the host.

use super::convert::{Wide, by_stored};
use super::engine::{map1, run_sized};
use super::rules::by_moved_class;
use super::walk::{Walk, broadcast};
use super::{TENSOR, at, row};
use crate::kernel::{Arg, Kernel, KernelCall, KernelError, fail};
use crate::tensor::shape::{contiguous_order, display_sizes, is_channels_last};
use crate::tensor::{DType, Dims, Element, Tensor, copy_cells};

/// `self, non_blocking, dim_order, out`.
const DIM_ORDER: &[Arg] = &[Arg::Tensor, Arg::Bool, Arg::OptionalIntList, Arg::Out];

/// The kernels of this family.
pub(in crate::kernel) const KERNELS: &[Kernel] = &[
    row("aten::_to_copy.out", &[Arg::Tensor, Arg::Bool, Arg::OptionalInt, Arg::Out], to_copy),
    row("aten::clone.out", &[Arg::Tensor, Arg::OptionalInt, Arg::Out], |call| copy_same(call, 2)),
    row("aten::alias_copy.out", TENSOR, |call| copy_same(call, 1)),
    row("aten::detach_copy.out", TENSOR, |call| copy_same(call, 1)),
    row("aten::lift_fresh_copy.out", TENSOR, |call| copy_same(call, 1)),
    row("aten::copy.out", &[Arg::Tensor, Arg::Tensor, Arg::Bool, Arg::Out], copy),
    row("aten::copy_", &[Arg::InOut, Arg::Tensor, Arg::Bool], copy_in_place),
    row("dim_order_ops::_to_dim_order_copy.out", DIM_ORDER, to_dim_order_copy),
    row("dim_order_ops::_clone_dim_order.out", DIM_ORDER, clone_dim_order),
    row("et_copy::_h2d_copy.out", TENSOR, host_copy),
    row("et_copy::_d2h_copy.out", TENSOR, host_copy),
];

/// Writes the elements of argument `from`, broadcast, over those of argument `to`, each converted.
/// The sizes of `to` are those wanted.
pub(super) fn convert(call: &KernelCall<'_>, from: usize, to: usize) -> Result<(), KernelError> {
    let (source, target) = (call.tensor(from)?, call.tensor(to)?);
    let (kind, into) = (source.dtype(), target.dtype());
    if kind == into && source.matches_layout(target) {
        copy_cells(target.write_bytes().map_err(at(to))?, source.read_bytes().map_err(at(from))?);
        return Ok(());
    }
    if kind == into && !has_arithmetic(kind) {
        return move_bytes(source, from, target, to);
    }
    // Unsigned 64-bit integers have no kind of their own that is computed in: those that become floats are
    // read as floats, the rest keep their bits.
    let through = if kind == DType::UInt64 && into.is_float() { into } else { kind };
    if kind == DType::UInt64 && into.is_complex() {
        return run_sized::<Wide, 1>(call, [from], to, into, &map1(|x| x));
    }
    by_moved_class!(through, C => run_sized::<C, 1>(call, [from], to, C::DTYPE, &map1(|x: C| x)))
}

fn has_arithmetic(dtype: DType) -> bool {
    by_stored!(dtype, S => size_of::<S>() > 0, false)
}

/// Moves elements that have no arithmetic, byte by byte.
fn move_bytes(source: &Tensor, from: usize, target: &Tensor, to: usize) -> Result<(), KernelError> {
    let width = source.dtype().size_bytes();
    let walk = Walk::new(source, target.sizes(), target.order());
    let (read, write) = (source.read_bytes().map_err(at(from))?, target.write_bytes().map_err(at(to))?);
    walk.runs(0, target.numel(), |place, run| {
        for step in 0..run.len {
            let (into, out_of) = ((place + step) * width, (run.start + step * run.stride) * width);
            let part = read.get(out_of..out_of + width).unwrap_or_default();
            copy_cells(write.get(into..into + width).unwrap_or_default(), part);
        }
        Ok(())
    })
}

/// Gives `out` the sizes of argument 0.
fn resize_as_input(call: &mut KernelCall<'_>, out: usize) -> Result<(), KernelError> {
    let sizes = call.tensor(0)?.sizes();
    if call.tensor(out)?.sizes() == sizes {
        return Ok(());
    }
    let sizes = Dims::new(sizes).unwrap_or_else(Dims::empty);
    call.resize(out, &sizes)
}

fn check_kinds_equal(call: &KernelCall<'_>, out: usize) -> Result<(), KernelError> {
    let (from, to) = (call.tensor(0)?.dtype(), call.tensor(out)?.dtype());
    if from != to {
        fail!(DType, "a copy of {from} elements into {to}, expected one kind");
    }
    Ok(())
}

fn check_blocking(call: &KernelCall<'_>, index: usize) -> Result<(), KernelError> {
    if call.bool(index)? {
        fail!(Unsupported, "argument {index}: a non-blocking copy was asked for, copies here block");
    }
    Ok(())
}

fn copy_same(call: &mut KernelCall<'_>, out: usize) -> Result<(), KernelError> {
    check_kinds_equal(call, out)?;
    resize_as_input(call, out)?;
    convert(call, 0, out)
}

fn to_copy(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    check_blocking(call, 1)?;
    resize_as_input(call, 3)?;
    convert(call, 0, 3)
}

/// `out ← src`, with the sizes of `self`.
fn copy(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    check_blocking(call, 2)?;
    check_broadcasts(call)?;
    resize_as_input(call, 3)?;
    convert(call, 1, 3)
}

/// `self ← src`.
fn copy_in_place(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    check_blocking(call, 2)?;
    check_broadcasts(call)?;
    convert(call, 1, 0)
}

/// Refuses a source that does not broadcast to the sizes of argument 0.
fn check_broadcasts(call: &KernelCall<'_>) -> Result<(), KernelError> {
    let (sizes, source) = (call.tensor(0)?.sizes(), call.tensor(1)?.sizes());
    if sizes != source && *broadcast(sizes, source)? != *sizes {
        fail!(Shape, "sizes {} do not broadcast to {}", display_sizes(source), display_sizes(sizes));
    }
    Ok(())
}

/// Refuses an output in another dimension order than argument 2 asks for: none asks for that of `self`.
fn check_order(call: &KernelCall<'_>) -> Result<(), KernelError> {
    let (source, target) = (call.tensor(0)?, call.tensor(3)?);
    let Some(asked) = call.optional_ints(2)? else {
        if source.order() != target.order() {
            fail!(
                Layout,
                "the output is stored in order {:?}, the input in {:?}, and no order was asked for",
                target.order(),
                source.order()
            );
        }
        return Ok(());
    };
    let asked_is = |order: &[u8]| asked.iter().copied().eq(order.iter().map(|&dim| i64::from(dim)));
    if !asked_is(target.order()) {
        fail!(Layout, "order {:?} was asked for, the output is stored in {:?}", &*asked, target.order());
    }
    let contiguous = contiguous_order(target.rank()).is_some_and(|order| asked_is(&order));
    if !contiguous && !is_channels_last(target.order()) {
        fail!(Layout, "order {:?} was asked for, expected row-major or channels-last", &*asked);
    }
    Ok(())
}

fn to_dim_order_copy(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    check_blocking(call, 1)?;
    check_order(call)?;
    resize_as_input(call, 3)?;
    convert(call, 0, 3)
}

fn clone_dim_order(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    check_kinds_equal(call, 3)?;
    to_dim_order_copy(call)
}

/// A copy between spaces that are both the host. An executor that has other spaces runs its own copy.
fn host_copy(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    for index in [0, 1] {
        let space = call.tensor(index)?.space();
        if !space.is_host() {
            fail!(Unsupported, "argument {index} is in {space}; this kernel copies within host memory");
        }
    }
    copy_same(call, 1)
}
