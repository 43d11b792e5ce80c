#![forbid(unsafe_code)]
#![expect(clippy::cast_possible_truncation, reason = "checked numbers of elements; 64-bit addresses")]
//! Several index tensors at once, as `x[i, :, j]` means them.
//!
//! ```text
//!   x (5, 6, 7)   i (2, 1)   j (3,)         x[i, :, j]  ->  block (2, 3) first, then the rest (6,)
//!                                           x[:, i, j]  ->  the block where the indices stand
//! ```
//!
//! The indices stretch to a common block. Each place of the block is worked out first, as an offset in
//! scratch memory; then the rest is moved once for each.

use super::super::view::{View, same_dtype, wrap_index};
use super::super::walk::{Source, Target, Walk, each, signed};
use super::super::{KernelCall, KernelError, fail};
use super::{Indices, broadcast, plain, stretched};
use crate::tensor::shape::{display_sizes, numel};
use crate::tensor::{Bool, DType, Dims, Element, ReadCell, Tensor};
use half::{bf16, f16};
use num_complex::Complex;

/// What the indices pick, in a tensor of given strides.
struct Picked<'a> {
    /// Offsets of the block, row-major.
    offsets: &'a [i64],
    block: Dims,
    /// How many dimensions of the rest come before the block.
    lead: usize,
    rest_sizes: Dims,
    rest_strides: Dims<isize>,
}

fn is_mask(tensor: &Tensor) -> bool {
    matches!(tensor.dtype(), DType::Bool | DType::UInt8)
}

fn mask_bytes(index: usize, tensor: &Tensor) -> Result<&[ReadCell<u8>], KernelError> {
    tensor.read_bytes().map_err(|source| KernelError::Tensor { index, source })
}

fn stretch(tensor_sizes: &[usize], block: &[usize]) -> Result<Dims, KernelError> {
    match broadcast(tensor_sizes, block) {
        Some(block) => Ok(block),
        None => fail!(
            Shape,
            "indices of sizes {} and {} do not stretch to each other",
            display_sizes(tensor_sizes),
            display_sizes(block)
        ),
    }
}

impl<'s> Picked<'s> {
    /// What the indices of argument 1 pick of a tensor with this view.
    fn of(call: &KernelCall<'s>, whole: &View) -> Result<Self, KernelError> {
        let mut picked = Self {
            offsets: &[],
            block: Dims::empty(),
            lead: 0,
            rest_sizes: Dims::empty(),
            rest_strides: Dims::empty(),
        };
        picked.shape(call, whole)?;
        let Some(count) = numel(&picked.block) else { fail!(Range, "the indices pick too many places") };
        let offsets = call.scratch().zeroed::<i64>(count)?;
        let mut dim = 0;
        for item in 0..call.list_len(1)? {
            dim += match call.list_tensor(1, item)? {
                None => 1,
                Some(tensor) if is_mask(tensor) => picked.add_mask(call, offsets, tensor, whole, dim)?,
                Some(tensor) => picked.add_indices(offsets, tensor, whole, dim)?,
            };
        }
        picked.offsets = offsets;
        Ok(picked)
    }

    /// Works out the block and the rest.
    fn shape(&mut self, call: &KernelCall<'_>, whole: &View) -> Result<(), KernelError> {
        let rank = whole.sizes.len();
        let (mut dim, mut first, mut last, mut apart) = (0, None, None, false);
        let mut indexed = [false; crate::tensor::RANK_MAX];
        for item in 0..call.list_len(1)? {
            let Some(tensor) = call.list_tensor(1, item)? else {
                dim += 1;
                continue;
            };
            let taken = if is_mask(tensor) { tensor.rank() } else { 1 };
            if dim + taken > rank || taken == 0 {
                fail!(
                    Shape,
                    "more indices than dimensions of a tensor of sizes {}",
                    display_sizes(&whole.sizes)
                );
            }
            if is_mask(tensor) {
                if *tensor.sizes() != whole.sizes[dim..dim + taken] {
                    fail!(
                        Shape,
                        "a mask of sizes {} over dimensions of sizes {}",
                        display_sizes(tensor.sizes()),
                        display_sizes(&whole.sizes[dim..dim + taken])
                    );
                }
                let count = mask_bytes(1, tensor)?.iter().filter(|byte| byte.get() != 0).count();
                self.block = stretch(&[count], &self.block)?;
            } else {
                self.block = stretch(tensor.sizes(), &self.block)?;
            }
            apart |= last.is_some_and(|last| last != dim);
            first.get_or_insert(dim);
            indexed[dim..dim + taken].fill(true);
            dim += taken;
            last = Some(dim);
        }
        if dim > rank {
            fail!(Shape, "more indices than dimensions of a tensor of sizes {}", display_sizes(&whole.sizes));
        }
        self.lead = if apart { 0 } else { first.unwrap_or(0) };
        for dim in (0..rank).filter(|&dim| !indexed[dim]) {
            super::super::view::push(&mut self.rest_sizes, whole.sizes[dim])?;
            super::super::view::push(&mut self.rest_strides, whole.strides[dim])?;
        }
        Ok(())
    }

    /// Adds what one index tensor contributes to each offset.
    fn add_indices(
        &self,
        offsets: &mut [i64],
        tensor: &Tensor,
        whole: &View,
        dim: usize,
    ) -> Result<usize, KernelError> {
        let indices = Indices::of(1, tensor)?;
        let (size, stride) = (whole.sizes[dim], whole.strides[dim] as i64);
        let strides = self.strides_in_block(tensor.sizes(), &signed(&tensor.strides()))?;
        each(&self.block, [&plain(&self.block), &strides], |[to, at]| {
            let place = (wrap_index(indices.get(at), size)? as i64).wrapping_mul(stride);
            offsets[to] = offsets[to].wrapping_add(place);
            Ok(())
        })?;
        Ok(1)
    }

    /// Adds what one mask contributes: the places of its true elements, one after the other.
    fn add_mask(
        &self,
        call: &KernelCall<'_>,
        offsets: &mut [i64],
        tensor: &Tensor,
        whole: &View,
        dim: usize,
    ) -> Result<usize, KernelError> {
        let mask = mask_bytes(1, tensor)?;
        let count = mask.iter().filter(|byte| byte.get() != 0).count();
        let places = call.scratch().zeroed::<i64>(count)?;
        let mut slots = places.iter_mut();
        let rank = tensor.rank();
        each(
            tensor.sizes(),
            [&signed(&tensor.strides()), &whole.strides[dim..dim + rank]],
            |[at, place]| {
                if mask[at].get() != 0
                    && let Some(slot) = slots.next()
                {
                    *slot = place as i64;
                }
                Ok(())
            },
        )?;
        let strides = self.strides_in_block(&[count], &[1])?;
        each(&self.block, [&plain(&self.block), &strides], |[to, at]| {
            offsets[to] = offsets[to].wrapping_add(places[at]);
            Ok(())
        })?;
        Ok(rank)
    }

    fn strides_in_block(&self, sizes: &[usize], strides: &[isize]) -> Result<Dims<isize>, KernelError> {
        match stretched(sizes, strides, &self.block) {
            Some(strides) => Ok(strides),
            None => fail!(Shape, "indices do not stretch to {}", display_sizes(&self.block)),
        }
    }

    /// The sizes of the picked tensor: the rest with the block in it.
    fn sizes(&self) -> Result<Dims, KernelError> {
        let (before, after) = self.rest_sizes.split_at(self.lead);
        let mut sizes = super::super::view::dims(before)?;
        for &size in self.block.iter().chain(after) {
            super::super::view::push(&mut sizes, size)?;
        }
        Ok(sizes)
    }

    /// Strides over the picked tensor, split into those of the block and those of the rest.
    fn split(&self, strides: &[isize]) -> (Dims<isize>, Dims<isize>) {
        let (block, mut rest) = (self.lead..self.lead + self.block.len(), Dims::empty());
        for (at, &stride) in strides.iter().enumerate() {
            if !block.contains(&at) {
                // There is room: the rest is a part of `strides`.
                let _ = rest.push(stride);
            }
        }
        (Dims::new(&strides[block]).unwrap_or_else(Dims::empty), rest)
    }
}

pub(super) fn index(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    same_dtype(call, 0, 2)?;
    let picked = Picked::of(call, &View::of(call.tensor(0)?))?;
    call.resize(2, &picked.sizes()?)?;
    let (source, target) = (Source::of(call, 0)?, Target::of(call, 2)?);
    let (block, rest) = picked.split(&signed(&target.tensor.strides()));
    let mut walk = Walk::new();
    for ((&size, &to), &from) in picked.rest_sizes.iter().zip(rest.iter()).zip(picked.rest_strides.iter()) {
        walk.axis(size, to, from)?;
    }
    let width = target.tensor.dtype().size_bytes();
    each(&picked.block, [&block, &plain(&picked.block)], |[to, at]| {
        walk.copy(width, (target.bytes, to as isize), (source.bytes, picked.offsets[at] as isize))
    })
}

pub(super) fn index_put(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    same_dtype(call, 0, 4)?;
    let sizes = View::of(call.tensor(0)?).sizes;
    call.resize(4, &sizes)?;
    put(call, 4)
}

pub(super) fn index_put_in_place(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    put(call, 0)
}

/// Writes or adds argument 2 where the indices point in argument `out`.
fn put(call: &mut KernelCall<'_>, out: usize) -> Result<(), KernelError> {
    same_dtype(call, 0, 2)?;
    let accumulate = call.bool(3)?;
    let target = Target::of(call, out)?;
    let picked = Picked::of(call, &View::of(target.tensor))?;
    let (values, sizes) = (Source::of(call, 2)?, picked.sizes()?);
    let from = stretched(values.tensor.sizes(), &signed(&values.tensor.strides()), &sizes);
    let Some(from) = from else {
        fail!(
            Shape,
            "values of sizes {} do not stretch to the {} places that the indices pick",
            display_sizes(values.tensor.sizes()),
            display_sizes(&sizes)
        );
    };
    if out != 0 {
        target.assign(&Source::of(call, 0)?)?;
    }
    let (block, rest) = picked.split(&from);
    let places = plain(&picked.block);
    if accumulate {
        return sum_into((out, target.tensor), (2, values.tensor), &mut |add| {
            each(&picked.block, [&block, &places], |[from, at]| {
                let start = picked.offsets[at] as usize;
                each(&picked.rest_sizes, [&picked.rest_strides, &rest], |[to, inner]| {
                    add(start + to, from + inner)
                })
            })
        });
    }
    let mut walk = Walk::new();
    for ((&size, &to), &from) in picked.rest_sizes.iter().zip(picked.rest_strides.iter()).zip(rest.iter()) {
        walk.axis(size, to, from)?;
    }
    let width = target.tensor.dtype().size_bytes();
    each(&picked.block, [&block, &places], |[from, at]| {
        walk.copy(width, (target.bytes, picked.offsets[at] as isize), (values.bytes, from as isize))
    })
}

/// An element that can be added to another.
trait Sum: Element {
    fn plus(self, other: Self) -> Self;
}

macro_rules! sum {
    ($($kind:ty => |$a:ident, $b:ident| $sum:expr),+ $(,)?) => {
        $(impl Sum for $kind { #[inline] fn plus(self, other: Self) -> Self { let ($a, $b) = (self, other); $sum } })+
    };
}

sum! {
    u8 => |a, b| a.wrapping_add(b), i8 => |a, b| a.wrapping_add(b),
    u16 => |a, b| a.wrapping_add(b), i16 => |a, b| a.wrapping_add(b),
    u32 => |a, b| a.wrapping_add(b), i32 => |a, b| a.wrapping_add(b),
    u64 => |a, b| a.wrapping_add(b), i64 => |a, b| a.wrapping_add(b),
    f32 => |a, b| a + b, f64 => |a, b| a + b,
    f16 => |a, b| Self::from_f32(a.to_f32() + b.to_f32()),
    bf16 => |a, b| Self::from_f32(a.to_f32() + b.to_f32()),
    Complex<f32> => |a, b| a + b, Complex<f64> => |a, b| a + b,
    Bool => |a, b| Self::from(a.get() | b.get()),
}

/// What `run` calls for every place to add to, with the offset of what is added.
type Add<'a> = &'a mut dyn FnMut(usize, usize) -> Result<(), KernelError>;

/// Lets `run` add elements of `source` to elements of `target`, both named by offset.
pub(super) fn sum_into(
    target: (usize, &Tensor),
    source: (usize, &Tensor),
    run: &mut dyn FnMut(Add<'_>) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    fn typed<S: Sum>(
        target: (usize, &Tensor),
        source: (usize, &Tensor),
        run: &mut dyn FnMut(Add<'_>) -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        let cells =
            target.1.write::<S>().map_err(|error| KernelError::Tensor { index: target.0, source: error })?;
        let values =
            source.1.read::<S>().map_err(|error| KernelError::Tensor { index: source.0, source: error })?;
        run(&mut |to, from| {
            cells[to].set(cells[to].get().plus(values[from].get()));
            Ok(())
        })
    }
    match target.1.dtype() {
        DType::UInt8 => typed::<u8>(target, source, run),
        DType::Int8 => typed::<i8>(target, source, run),
        DType::UInt16 => typed::<u16>(target, source, run),
        DType::Int16 => typed::<i16>(target, source, run),
        DType::UInt32 => typed::<u32>(target, source, run),
        DType::Int32 => typed::<i32>(target, source, run),
        DType::UInt64 => typed::<u64>(target, source, run),
        DType::Int64 => typed::<i64>(target, source, run),
        DType::Float16 => typed::<f16>(target, source, run),
        DType::BFloat16 => typed::<bf16>(target, source, run),
        DType::Float32 => typed::<f32>(target, source, run),
        DType::Float64 => typed::<f64>(target, source, run),
        DType::Complex64 => typed::<Complex<f32>>(target, source, run),
        DType::Complex128 => typed::<Complex<f64>>(target, source, run),
        DType::Bool => typed::<Bool>(target, source, run),
        other => fail!(DType, "elements of {other} cannot be added"),
    }
}
