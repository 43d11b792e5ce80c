#![forbid(unsafe_code)]
//! Copies that keep the row-major sequence of elements and change only the sizes.

use super::super::walk::{Source, Target, cells, read_cells, signed};
use super::super::{KernelCall, KernelError, fail};
use super::{dims, insert, push, same_dtype, wrap_dim};
use crate::tensor::shape::{contiguous_order, display_sizes, numel, strides};
use crate::tensor::{DimOrder, Dims, Tensor, copy_cells};

/// The sizes that `view` asks for: at most one −1 stands for what is left.
pub(in super::super) fn target_sizes(tensor: &Tensor, wanted: &[i64]) -> Result<Dims, KernelError> {
    let mut sizes = dims(&[0; crate::tensor::RANK_MAX][..wanted.len().min(crate::tensor::RANK_MAX)])?;
    let mut open = None;
    let mut known = 1_usize;
    let mut overflow = wanted.len() > sizes.len();
    for (at, (&item, slot)) in wanted.iter().zip(sizes.as_mut_slice()).enumerate() {
        match usize::try_from(item) {
            Ok(size) => {
                *slot = size;
                let product = known.checked_mul(size);
                // A zero elsewhere may still make the whole small.
                known = product.unwrap_or(0);
                overflow |= product.is_none();
            }
            Err(_) if item == -1 && open.is_none() => open = Some(at),
            Err(_) => {
                fail!(Shape, "sizes {} hold a negative size or more than one -1", display_sizes(wanted))
            }
        }
    }
    if let Some(at) = open {
        if known == 0 && tensor.numel() == 0 {
            fail!(Shape, "the -1 in {} can be any size, since there are no elements", display_sizes(wanted));
        }
        if known > 0 && tensor.numel().is_multiple_of(known) {
            sizes.as_mut_slice()[at] = tensor.numel() / known;
        } else {
            overflow = true;
        }
    }
    if overflow || numel(&sizes) != Some(tensor.numel()) {
        fail!(
            Shape,
            "a tensor of sizes {} cannot be viewed as {}",
            display_sizes(tensor.sizes()),
            display_sizes(wanted)
        );
    }
    Ok(sizes)
}

/// Row-major strides of these sizes.
fn plain(sizes: &[usize]) -> Dims<isize> {
    signed(&strides(sizes, &contiguous_order(sizes.len()).unwrap_or_else(DimOrder::empty)))
}

/// Copies argument `input` into argument `out` as a tensor of `sizes`, element after element.
pub(in super::super) fn reshape(
    call: &mut KernelCall<'_>,
    input: usize,
    out: usize,
    sizes: &[usize],
) -> Result<(), KernelError> {
    same_dtype(call, input, out)?;
    call.resize(out, sizes)?;
    let (from, to) = (Source::of(call, input)?, Target::of(call, out)?);
    if from.tensor.numel() != to.tensor.numel() {
        fail!(
            Shape,
            "a tensor of sizes {} has not as many elements as one of {}",
            display_sizes(from.tensor.sizes()),
            display_sizes(sizes)
        );
    }
    match (from.tensor.is_row_major(), to.tensor.is_row_major()) {
        (true, true) => copy_cells(to.bytes, from.bytes),
        _ if from.tensor.sizes() == to.tensor.sizes() => return to.assign(&from),
        (true, false) => return to.gather(&from, 0, &plain(sizes)),
        (false, true) => return to.scatter(&from, 0, &plain(from.tensor.sizes())),
        (false, false) => {
            let middle = cells(call.scratch().zeroed::<u8>(from.bytes.len())?);
            let straight = Target { tensor: from.tensor, bytes: middle };
            straight.scatter(&from, 0, &plain(from.tensor.sizes()))?;
            let straight = Source { tensor: from.tensor, bytes: read_cells(middle) };
            return to.gather(&straight, 0, &plain(sizes));
        }
    }
    Ok(())
}

pub(super) fn view(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let sizes = target_sizes(call.tensor(0)?, &call.ints(1)?)?;
    reshape(call, 0, 2, &sizes)
}

pub(super) fn squeeze(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let mut sizes = dims(call.tensor(0)?.sizes())?;
    let dim = wrap_dim(call.int(1)?, sizes.len())?;
    if sizes.get(dim) == Some(&1) {
        sizes.remove(dim);
    }
    reshape(call, 0, 2, &sizes)
}

pub(super) fn squeeze_dims(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let whole = dims(call.tensor(0)?.sizes())?;
    let mut dropped = [false; crate::tensor::RANK_MAX];
    for &dim in call.ints(1)?.iter() {
        let at = wrap_dim(dim, whole.len())?;
        if core::mem::replace(&mut dropped[at], true) {
            fail!(Range, "dimension {dim} is named twice");
        }
    }
    let mut sizes = Dims::empty();
    for (at, &size) in whole.iter().enumerate() {
        if size != 1 || !dropped[at] {
            push(&mut sizes, size)?;
        }
    }
    reshape(call, 0, 2, &sizes)
}

pub(super) fn unsqueeze(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let mut sizes = dims(call.tensor(0)?.sizes())?;
    let dim = wrap_dim(call.int(1)?, sizes.len() + 1)?;
    insert(&mut sizes, dim, 1)?;
    reshape(call, 0, 2, &sizes)
}
