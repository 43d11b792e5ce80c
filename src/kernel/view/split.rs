#![forbid(unsafe_code)]
#![expect(clippy::cast_possible_truncation, reason = "checked numbers of elements; 64-bit addresses")]
//! Copies of consecutive parts of a tensor into a list of outputs.

use super::super::walk::{Source, Target};
use super::super::{KernelCall, KernelError, fail};
use super::strided::{View, dim_of};
use super::{count, wrap_dim};
use crate::tensor::shape::display_sizes;

/// Copies part after part of argument 0 along `dim` into the list of argument `outs`; `length` gives the
/// size of each part. `drop` takes the dimension away.
fn parts(
    call: &mut KernelCall<'_>,
    outs: usize,
    dim: usize,
    drop: bool,
    length: impl Fn(usize) -> usize,
) -> Result<(), KernelError> {
    let whole = View::of(call.tensor(0)?);
    let dtype = call.tensor(0)?.dtype();
    let part = |item: usize, first: usize| {
        let mut view = whole;
        if drop {
            view.select(dim, first);
        } else {
            view.narrow(dim, first, length(item), 1);
        }
        view
    };
    let items = call.list_len(outs)?;
    let mut first = 0;
    for item in 0..items {
        match call.list_tensor(outs, item)?.map(crate::tensor::Tensor::dtype) {
            Some(got) if got != dtype => fail!(DType, "output {item} is {got}, the input is {dtype}"),
            _ => call.resize_item(outs, item, &part(item, first).sizes)?,
        }
        first += length(item);
    }
    let source = Source::of(call, 0)?;
    first = 0;
    for item in 0..items {
        if let Some(out) = call.list_tensor(outs, item)? {
            let view = part(item, first);
            Target::new(outs, out)?.gather(&source, view.start, &view.strides)?;
        }
        first += length(item);
    }
    Ok(())
}

fn check_items(call: &KernelCall<'_>, outs: usize, expected: usize) -> Result<(), KernelError> {
    let got = call.list_len(outs)?;
    if got == expected {
        Ok(())
    } else {
        fail!(Shape, "{got} outputs for {expected} parts of sizes {}", display_sizes(call.tensor(0)?.sizes()))
    }
}

pub(super) fn split(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let sizes = call.tensor(0)?.sizes();
    let (wanted, dim) = (count("split size", call.int(1)?)?, dim_of(call.int(2)?, sizes)?);
    let size = sizes[dim];
    if wanted == 0 && size != 0 {
        fail!(Range, "split size 0 of dimension {dim} of size {size}");
    }
    let items = if size == 0 { 1 } else { size.div_ceil(wanted) };
    check_items(call, 3, items)?;
    parts(call, 3, dim, false, |item| if item + 1 == items { size - wanted * (items - 1) } else { wanted })
}

pub(super) fn split_with_sizes(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let sizes = call.tensor(0)?.sizes();
    let (wanted, dim) = (call.ints(1)?, dim_of(call.int(2)?, sizes)?);
    let mut sum = 0_usize;
    for &part in wanted.iter() {
        sum = sum.saturating_add(count("part of size", part)?);
    }
    if sum != sizes[dim] {
        fail!(
            Shape,
            "parts {} do not add up to dimension {dim} of sizes {}",
            display_sizes(&wanted),
            display_sizes(sizes)
        );
    }
    check_items(call, 3, wanted.len())?;
    parts(call, 3, dim, false, |item| wanted[item] as usize)
}

pub(super) fn unbind(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let sizes = call.tensor(0)?.sizes();
    let dim = wrap_dim(call.int(1)?, sizes.len())?;
    let Some(&size) = sizes.get(dim) else { fail!(Shape, "a tensor without dimensions has no parts") };
    check_items(call, 2, size)?;
    parts(call, 2, dim, true, |_| 1)
}
