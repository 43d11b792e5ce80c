#![forbid(unsafe_code)]
//! Whole rows, slices and selections, picked or placed.

use super::super::number::place;
use super::super::view::{View, dim_of, push, same_dtype, slice_range, wrap_dim, wrap_index};
use super::super::walk::{Source, Target, Walk, each, signed};
use super::super::{KernelCall, KernelError, fail};
use super::Indices;
use crate::tensor::copy_cells;
use crate::tensor::shape::display_sizes;

/// Copies rows of a table.
///
/// # Source
/// `embedding` of the ExecuTorch portable library refuses negative indices; the flags change nothing.
pub(super) fn embedding(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (weight, places) = (call.tensor(0)?, call.tensor(1)?);
    let &[rows, columns] = weight.sizes() else {
        fail!(Shape, "a table of sizes {}, expected two dimensions", display_sizes(weight.sizes()));
    };
    Indices::of(1, places)?.check(rows)?;
    let mut sizes = super::super::view::dims(places.sizes())?;
    push(&mut sizes, columns)?;
    same_dtype(call, 0, 5)?;
    call.resize(5, &sizes)?;
    let (table, target) = (Source::of(call, 0)?, Target::of(call, 5)?);
    let places = call.tensor(1)?;
    let indices = Indices::of(1, places)?;
    let width = target.tensor.dtype().size_bytes();
    if table.tensor.is_row_major() && target.tensor.is_row_major() && places.is_row_major() {
        let row_bytes = columns * width;
        if row_bytes == 0 {
            return Ok(());
        }
        for (at, row) in target.bytes.chunks_exact(row_bytes).enumerate() {
            let index = indices.below(at, rows)?;
            copy_cells(row, &table.bytes[index * row_bytes..][..row_bytes]);
        }
        return Ok(());
    }
    let (from, to) = (signed(&table.tensor.strides()), signed(&target.tensor.strides()));
    let rank = places.rank();
    let mut walk = Walk::new();
    walk.axis(columns, to[rank], from[1])?;
    each(places.sizes(), [&to[..rank], &signed(&places.strides())], |[start, at]| {
        let index = indices.below(at, rows)? as isize;
        walk.copy(width, (target.bytes, start as isize), (table.bytes, index.wrapping_mul(from[0])))
    })
}

pub(super) fn index_select(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let mut sizes = View::of(call.tensor(0)?).sizes;
    let (dim, places) = (wrap_dim(call.int(1)?, sizes.len())?, call.tensor(2)?);
    if places.rank() > 1 {
        fail!(Shape, "indices of sizes {}, expected one dimension", display_sizes(places.sizes()));
    }
    let bound = sizes.get(dim).copied().unwrap_or(1);
    Indices::of(2, places)?.check(bound)?;
    match sizes.as_mut_slice().get_mut(dim) {
        Some(size) => *size = places.numel(),
        None if places.numel() != 1 => {
            fail!(Shape, "{} indices into a tensor without dimensions, expected 1", places.numel())
        }
        None => {}
    }
    same_dtype(call, 0, 3)?;
    call.resize(3, &sizes)?;
    let (source, target) = (Source::of(call, 0)?, Target::of(call, 3)?);
    let (from, to) = (signed(&source.tensor.strides()), signed(&target.tensor.strides()));
    let mut walk = Walk::new();
    for &other in target.tensor.order().iter().filter(|&&other| usize::from(other) != dim) {
        let other = usize::from(other);
        walk.axis(sizes[other], to[other], from[other])?;
    }
    let (to_step, from_step) = (to.get(dim).copied().unwrap_or(0), from.get(dim).copied().unwrap_or(0));
    let indices = Indices::of(2, call.tensor(2)?)?;
    let width = target.tensor.dtype().size_bytes();
    for at in 0..indices.len() {
        let index = indices.below(at, bound)? as isize;
        let start = (at as isize).wrapping_mul(to_step);
        walk.copy(width, (target.bytes, start), (source.bytes, index.wrapping_mul(from_step)))?;
    }
    Ok(())
}

/// Copies argument 0 into argument `out`, then argument 1 over what `view` shows of it.
fn scatter_view(call: &mut KernelCall<'_>, out: usize, view: impl Fn(&mut View)) -> Result<(), KernelError> {
    let (own, src) = (call.tensor(0)?, call.tensor(1)?);
    let sizes = View::of(own).sizes;
    let mut seen = View::of(own);
    view(&mut seen);
    if *seen.sizes != *src.sizes() {
        fail!(
            Shape,
            "the source has sizes {}, the part of {} that it goes to has {}",
            display_sizes(src.sizes()),
            display_sizes(&sizes),
            display_sizes(&seen.sizes)
        );
    }
    same_dtype(call, 0, out)?;
    call.resize(out, &sizes)?;
    let target = Target::of(call, out)?;
    target.assign(&Source::of(call, 0)?)?;
    let mut seen = View::of(target.tensor);
    view(&mut seen);
    place(&target, &Source::of(call, 1)?, seen.start, &seen.strides)
}

pub(super) fn select_scatter(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let sizes = call.tensor(0)?.sizes();
    let dim = dim_of(call.int(2)?, sizes)?;
    let index = wrap_index(call.int(3)?, sizes[dim])?;
    scatter_view(call, 4, |view| view.select(dim, index))
}

pub(super) fn slice_scatter(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let sizes = call.tensor(0)?.sizes();
    let dim = dim_of(call.int(2)?, sizes)?;
    let (first, length, step) =
        slice_range(sizes[dim], call.optional_int(3)?, call.optional_int(4)?, call.int(5)?)?;
    scatter_view(call, 6, |view| view.narrow(dim, first, length, step))
}
