#![forbid(unsafe_code)]
//! Elements picked or placed by truth values, and the places of those that are not zero.

use super::super::view::{dims, same_dtype};
use super::super::walk::{Source, Target, by_width, each, signed};
use super::super::{KernelCall, KernelError, fail};
use super::{broadcast, plain, stretched};
use crate::tensor::shape::display_sizes;
use crate::tensor::{Bool, DType, Dims, ReadCell, Tensor};

/// A mask, and how it and the tensor it applies to stretch to their common sizes.
struct Masked<'a> {
    sizes: Dims,
    mask: &'a [ReadCell<Bool>],
    mask_strides: Dims<isize>,
    strides: Dims<isize>,
}

impl<'a> Masked<'a> {
    /// Argument 1 as a mask over argument 0.
    fn of(call: &'a KernelCall<'_>) -> Result<Self, KernelError> {
        let (tensor, mask) = (call.tensor(0)?, call.tensor(1)?);
        if mask.dtype() != DType::Bool {
            fail!(DType, "the mask is {}, expected bool", mask.dtype());
        }
        let stretch =
            |sizes: &[usize], tensor: &Tensor| stretched(tensor.sizes(), &signed(&tensor.strides()), sizes);
        let all = broadcast(tensor.sizes(), mask.sizes())
            .and_then(|sizes| Some((sizes, stretch(&sizes, mask)?, stretch(&sizes, tensor)?)));
        let Some((sizes, mask_strides, strides)) = all else {
            fail!(
                Shape,
                "a mask of sizes {} does not stretch to {}",
                display_sizes(mask.sizes()),
                display_sizes(tensor.sizes())
            );
        };
        let mask = mask.read().map_err(|source| KernelError::Tensor { index: 1, source })?;
        Ok(Self { sizes, mask, mask_strides, strides })
    }

    /// How many are true.
    fn count(&self) -> Result<usize, KernelError> {
        let mut count = 0;
        each(&self.sizes, [&self.mask_strides], |[at]| {
            count += usize::from(self.mask[at].get().get());
            Ok(())
        })?;
        Ok(count)
    }
}

pub(super) fn masked_select(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    same_dtype(call, 0, 2)?;
    let count = Masked::of(call)?.count()?;
    call.resize(2, &[count])?;
    let (masked, source, target) = (Masked::of(call)?, Source::of(call, 0)?, Target::of(call, 2)?);
    by_width!(target.tensor.dtype().size_bytes(), W => {
        let (input, mut out) = (source.words::<W>(), target.words::<W>().iter());
        each(&masked.sizes, [&masked.mask_strides, &masked.strides], |[at, from]| {
            if masked.mask[at].get().get() && let Some(cell) = out.next() {
                cell.set(input[from].get());
            }
            Ok(())
        })
    })
}

pub(super) fn masked_scatter(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    same_dtype(call, 0, 2)?;
    same_dtype(call, 0, 3)?;
    let masked = Masked::of(call)?;
    let (needed, held) = (masked.count()?, call.tensor(2)?.numel());
    if needed > held {
        fail!(Shape, "the mask places {needed} elements, the source has {held}");
    }
    let sizes = masked.sizes;
    call.resize(3, &sizes)?;
    let (whole, source, target) = (Source::of(call, 0)?, Source::of(call, 2)?, Target::of(call, 3)?);
    let masked = Masked::of(call)?;
    target.gather(&whole, 0, &masked.strides)?;
    let to = signed(&target.tensor.strides());
    // Places of the source in row-major order: found one by one where it lies otherwise.
    let (shape, steps) = (source.tensor.sizes(), signed(&source.tensor.strides()));
    let place = |nth: usize| {
        if source.tensor.is_row_major() { nth } else { nth_place(nth, shape, &steps) }
    };
    by_width!(target.tensor.dtype().size_bytes(), W => {
        let (input, out) = (source.words::<W>(), target.words::<W>());
        let mut taken = 0;
        each(&masked.sizes, [&masked.mask_strides, &to], |[at, to]| {
            if masked.mask[at].get().get() && taken < needed {
                out[to].set(input[place(taken)].get());
                taken += 1;
            }
            Ok(())
        })
    })
}

/// Where the `nth` element in row-major order lies.
fn nth_place(mut nth: usize, sizes: &[usize], strides: &[isize]) -> usize {
    let mut place = 0;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        place += nth % size * stride as usize;
        nth /= size;
    }
    place
}

/// The bits of an element that tell it from zero: all but the signs of floats.
fn zero_mask(dtype: DType) -> [u8; 16] {
    let mut mask = [0xff; 16];
    let part = if dtype.is_complex() { dtype.size_bytes() / 2 } else { dtype.size_bytes() };
    if dtype.is_float() || dtype.is_complex() {
        mask.iter_mut().skip(part - 1).step_by(part).for_each(|byte| *byte = 0x7f);
    }
    mask
}

/// Calls `act` with the row-major position of every element that is not zero.
fn each_nonzero(
    source: &Source<'_>,
    mut act: impl FnMut(usize) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let mask = zero_mask(source.tensor.dtype());
    let (sizes, strides) = (source.tensor.sizes(), signed(&source.tensor.strides()));
    by_width!(source.tensor.dtype().size_bytes(), W => {
        let words = source.words::<W>();
        each(sizes, [&strides, &plain(sizes)], |[at, position]| {
            let word = words[at].get();
            if word.iter().zip(&mask).any(|(byte, mask)| byte & mask != 0) { act(position) } else { Ok(()) }
        })
    })
}

pub(super) fn nonzero(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let out = call.tensor(1)?.dtype();
    if out != DType::Int64 {
        fail!(DType, "the output is {out}, expected int64");
    }
    let sizes = dims(call.tensor(0)?.sizes())?;
    let mut count = 0_usize;
    each_nonzero(&Source::of(call, 0)?, |_| {
        count += 1;
        Ok(())
    })?;
    call.resize(1, &[count, sizes.len()])?;
    let target = call.tensor(1)?;
    let cells = target.write::<i64>().map_err(|source| KernelError::Tensor { index: 1, source })?;
    let strides = target.strides();
    let mut row = 0;
    each_nonzero(&Source::of(call, 0)?, |mut position| {
        for (dim, &size) in sizes.iter().enumerate().rev() {
            // The input may lie under the output, so the count may have changed.
            if let Some(cell) = cells.get(row * strides[0] + dim * strides[1]) {
                cell.set((position % size) as i64);
            }
            position /= size;
        }
        row += 1;
        Ok(())
    })
}
