#![forbid(unsafe_code)]
#![expect(clippy::cast_possible_truncation, reason = "checked numbers of elements; 64-bit addresses")]
//! Rearrangement: joining, repeating, turning and re-blocking tensors.
//!
//! ```text
//!   cat([a, b], 1)   a a | b        roll(x, 1)   3 0 1 2        pixel_shuffle: depth becomes area
//! ```
//!
//! Deliberately absent: arithmetic. Only `cat` and `stack` convert, where element kinds are mixed.

use super::indexing::Indices;
use super::number::place;
use super::view::{View, count, dim_of, insert, push, same_dtype, wrap_dim};
use super::walk::{Source, Target, Walk, cells, each, read_cells, signed};
use super::{Arg, Kernel, KernelCall, KernelError, fail};
use crate::tensor::shape::display_sizes;
use crate::tensor::{Dims, RANK_MAX, Tensor};

const T: Arg = Arg::Tensor;
const INT: Arg = Arg::Int;
const INTS: Arg = Arg::IntList;
const OUT: Arg = Arg::Out;

/// The rearrangements.
pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "aten::cat.out", args: &[Arg::TensorList, INT, OUT], run: cat },
    Kernel { name: "aten::stack.out", args: &[Arg::TensorList, INT, OUT], run: stack },
    Kernel { name: "aten::repeat.out", args: &[T, INTS, OUT], run: repeat },
    Kernel {
        name: "aten::repeat_interleave.Tensor_out",
        args: &[T, Arg::OptionalInt, OUT],
        run: repeat_interleave,
    },
    Kernel { name: "aten::flip.out", args: &[T, INTS, OUT], run: flip },
    Kernel { name: "aten::roll.out", args: &[T, INTS, INTS, OUT], run: roll },
    Kernel { name: "aten::pixel_shuffle.out", args: &[T, INT, OUT], run: pixel_shuffle },
    Kernel { name: "aten::pixel_unshuffle.out", args: &[T, INT, OUT], run: pixel_unshuffle },
    Kernel { name: "aten::tril.out", args: &[T, INT, OUT], run: tril },
];

fn check_casts(call: &KernelCall<'_>, out: usize) -> Result<(), KernelError> {
    let target = call.tensor(out)?.dtype();
    for (item, tensor) in call.tensors(0)?.enumerate() {
        if tensor.dtype() != target && !tensor.dtype().can_cast_to(target) {
            fail!(DType, "tensor {item} is {}, which cannot be stored as {target}", tensor.dtype());
        }
    }
    Ok(())
}

/// A one-dimensional tensor without elements joins with anything.
fn is_neutral(tensor: &Tensor) -> bool {
    tensor.sizes() == [0]
}

fn cat(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    check_casts(call, 2)?;
    let reference = match call.tensors(0)?.find(|tensor| !is_neutral(tensor)) {
        Some(tensor) => tensor,
        None => match call.tensors(0)?.next() {
            Some(tensor) => tensor,
            None => fail!(Shape, "no tensors to join"),
        },
    };
    let dim = dim_of(call.int(1)?, reference.sizes())?;
    let mut sizes = View::of(reference).sizes;
    let mut total = 0_usize;
    for (item, tensor) in call.tensors(0)?.enumerate().filter(|(_, tensor)| !is_neutral(tensor)) {
        let (a, b) = (tensor.sizes(), reference.sizes());
        if a.len() != b.len() || (0..a.len()).any(|at| at != dim && a[at] != b[at]) {
            fail!(
                Shape,
                "tensor {item} of sizes {} does not join one of {} along dimension {dim}",
                display_sizes(a),
                display_sizes(b)
            );
        }
        total = total.saturating_add(a[dim]);
    }
    sizes.as_mut_slice()[dim] = total;
    call.resize(2, &sizes)?;
    let target = Target::of(call, 2)?;
    let strides = signed(&target.tensor.strides());
    let mut start = 0;
    for tensor in call.tensors(0)?.filter(|tensor| !is_neutral(tensor)) {
        place(&target, &Source::new(0, tensor)?, start, &strides)?;
        start = (tensor.sizes()[dim] as isize).wrapping_mul(strides[dim]).wrapping_add(start);
    }
    Ok(())
}

fn stack(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    check_casts(call, 2)?;
    let Some(reference) = call.tensors(0)?.next() else { fail!(Shape, "no tensors to stack") };
    let mut sizes = View::of(reference).sizes;
    let dim = wrap_dim(call.int(1)?, sizes.len() + 1)?;
    let mut items = 0;
    for (item, tensor) in call.tensors(0)?.enumerate() {
        if tensor.sizes() != reference.sizes() {
            fail!(
                Shape,
                "tensor {item} of sizes {} does not stack with one of {}",
                display_sizes(tensor.sizes()),
                display_sizes(reference.sizes())
            );
        }
        items += 1;
    }
    insert(&mut sizes, dim, items)?;
    call.resize(2, &sizes)?;
    let target = Target::of(call, 2)?;
    let mut strides = signed(&target.tensor.strides());
    let step = strides[dim];
    strides.remove(dim);
    let mut start = 0;
    for tensor in call.tensors(0)? {
        place(&target, &Source::new(0, tensor)?, start, &strides)?;
        start = start.wrapping_add(step);
    }
    Ok(())
}

fn repeat(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (own, repeats) = (View::of(call.tensor(0)?), call.ints(1)?);
    let Some(lead) = repeats.len().checked_sub(own.sizes.len()) else {
        fail!(
            Shape,
            "repeats {} are fewer than the dimensions of a tensor of sizes {}",
            display_sizes(&repeats),
            display_sizes(&own.sizes)
        );
    };
    let mut view = View { sizes: Dims::empty(), strides: Dims::empty(), start: 0 };
    let mut sizes = Dims::empty();
    for (at, &times) in repeats.iter().enumerate() {
        let held = at.checked_sub(lead).map_or((1, 0), |dim| (own.sizes[dim], own.strides[dim]));
        let Some(size) = count("repeat", times)?.checked_mul(held.0) else {
            fail!(Range, "size {} repeated {times} times", held.0);
        };
        push(&mut view.sizes, held.0)?;
        push(&mut view.strides, held.1)?;
        push(&mut sizes, size)?;
    }
    same_dtype(call, 0, 2)?;
    call.resize(2, &sizes)?;
    let (source, target) = (Source::of(call, 0)?, Target::of(call, 2)?);
    let strides = target.tensor.strides();
    let mut walk = Walk::new();
    for &dim in target.tensor.order() {
        let dim = usize::from(dim);
        let (size, stride) = (view.sizes[dim], strides[dim] as isize);
        walk.axis(repeats[dim] as usize, stride.saturating_mul(size as isize), 0)?;
        walk.axis(size, stride, view.strides[dim])?;
    }
    walk.copy(target.tensor.dtype().size_bytes(), (target.bytes, 0), (source.bytes, 0))
}

fn repeat_interleave(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let repeats = call.tensor(0)?;
    if repeats.rank() != 1 {
        fail!(Shape, "repeats of sizes {}, expected one dimension", display_sizes(repeats.sizes()));
    }
    same_dtype(call, 0, 2)?;
    let indices = Indices::of(0, repeats)?;
    let mut total = 0_usize;
    for item in 0..indices.len() {
        total = total.saturating_add(count("repeat", indices.get(item))?);
    }
    if let Some(expected) = call.optional_int(1)?
        && i64::try_from(total) != Ok(expected)
    {
        fail!(Range, "repeats add up to {total}, output_size is {expected}");
    }
    call.resize(2, &[total])?;
    let (indices, target) = (Indices::of(0, call.tensor(0)?)?, Target::of(call, 2)?);
    let width = target.tensor.dtype().size_bytes();
    let mut at = 0;
    for item in 0..indices.len() {
        let times = indices.get(item) as usize;
        // The repeats lie in an input that the output may overlap, so the end is checked again.
        let Some(run) = target.bytes.get(at * width..at.saturating_add(times).saturating_mul(width)) else {
            fail!(Range, "repeats changed while they were written over");
        };
        let bytes = (item as i64).to_le_bytes();
        run.iter().enumerate().for_each(|(place, cell)| cell.set(bytes[place % width]));
        at += times;
    }
    Ok(())
}

fn flip(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let mut view = View::of(call.tensor(0)?);
    let mut seen = [false; RANK_MAX];
    for &dim in call.ints(1)?.iter() {
        let at = wrap_dim(dim, view.sizes.len())?;
        if core::mem::replace(&mut seen[at], true) {
            fail!(Range, "dimension {dim} is named twice");
        }
        if let (Some(&size), Some(&stride)) = (view.sizes.get(at), view.strides.get(at)) {
            let far = (size.saturating_sub(1) as isize).wrapping_mul(stride);
            view.start = view.start.wrapping_add(far);
            view.strides.as_mut_slice()[at] = -stride;
        }
    }
    view.copy(call, 0, 2)
}

fn roll(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let own = View::of(call.tensor(0)?);
    let (shifts, wanted) = (call.ints(1)?, call.ints(2)?);
    let flat = wanted.is_empty() && shifts.len() == 1;
    if !flat && shifts.len() != wanted.len() {
        fail!(Shape, "{} shifts for {} dimensions", shifts.len(), wanted.len());
    }
    // How far each dimension moves on, below its size.
    let mut moves = Dims::filled(0_usize, own.sizes.len().max(1)).unwrap_or_else(Dims::empty);
    for (&shift, &dim) in shifts.iter().zip(wanted.iter()) {
        let at = wrap_dim(dim, own.sizes.len())?;
        let size = own.sizes.get(at).copied().unwrap_or(1).max(1) as i64;
        let slot = &mut moves.as_mut_slice()[at];
        *slot = (*slot + shift.rem_euclid(size) as usize) % size as usize;
    }
    same_dtype(call, 0, 3)?;
    call.resize(3, &own.sizes)?;
    let (source, target) = (Source::of(call, 0)?, Target::of(call, 3)?);
    if !flat {
        return roll_parts(&source, &target, &moves);
    }
    let numel = source.tensor.numel();
    let shift = shifts[0].rem_euclid(numel.max(1) as i64) as usize;
    roll_flat(call, &source, &target, shift)
}

/// Rolls along every dimension: each moved one falls into two parts.
fn roll_parts(source: &Source<'_>, target: &Target<'_>, moves: &[usize]) -> Result<(), KernelError> {
    let sizes = source.tensor.sizes();
    let (from, to) = (source.tensor.strides(), target.tensor.strides());
    let mut moved: Dims<usize> = Dims::empty();
    for dim in (0..sizes.len()).filter(|&dim| moves[dim] > 0) {
        push(&mut moved, dim)?;
    }
    for parts in 0_u32..1 << moved.len() {
        let (mut walk, mut at_to, mut at_from) = (Walk::new(), 0, 0);
        for &dim in target.tensor.order() {
            let dim = usize::from(dim);
            let mut size = sizes[dim];
            if let Some(bit) = moved.iter().position(|&moved| moved == dim) {
                if parts >> bit & 1 == 0 {
                    at_from += (size - moves[dim]) * from[dim];
                    size = moves[dim];
                } else {
                    at_to += moves[dim] * to[dim];
                    size -= moves[dim];
                }
            }
            walk.axis(size, to[dim] as isize, from[dim] as isize)?;
        }
        let width = target.tensor.dtype().size_bytes();
        walk.copy(width, (target.bytes, at_to as isize), (source.bytes, at_from as isize))?;
    }
    Ok(())
}

/// Rolls the row-major sequence of elements.
fn roll_flat(
    call: &KernelCall<'_>,
    source: &Source<'_>,
    target: &Target<'_>,
    shift: usize,
) -> Result<(), KernelError> {
    let width = target.tensor.dtype().size_bytes();
    let rolled = |to: &[core::cell::Cell<u8>], from| {
        let numel = source.tensor.numel();
        for (size, at_to, at_from) in [(shift, 0, numel - shift), (numel - shift, shift, 0)] {
            let mut walk = Walk::new();
            walk.axis(size, 1, 1)?;
            walk.copy(width, (to, at_to as isize), (from, at_from as isize))?;
        }
        Ok(())
    };
    if source.tensor.is_row_major() && target.tensor.is_row_major() {
        return rolled(target.bytes, source.bytes);
    }
    // Through scratch: in row-major order, rolled, and back.
    let straight = signed(&crate::tensor::shape::strides(
        source.tensor.sizes(),
        &crate::tensor::shape::contiguous_order(source.tensor.rank()).unwrap_or_else(Dims::empty),
    ));
    let before = cells(call.scratch().zeroed::<u8>(source.bytes.len())?);
    let after = cells(call.scratch().zeroed::<u8>(source.bytes.len())?);
    Target { tensor: source.tensor, bytes: before }.scatter(source, 0, &straight)?;
    rolled(after, read_cells(before))?;
    target.gather(&Source { tensor: source.tensor, bytes: read_cells(after) }, 0, &straight)
}

/// The leading sizes of an image, and its depth, height and width.
fn image(sizes: &[usize]) -> Result<(&[usize], [usize; 3]), KernelError> {
    match sizes {
        [lead @ .., depth, height, width] => Ok((lead, [*depth, *height, *width])),
        _ => fail!(Shape, "sizes {}, expected at least three dimensions", display_sizes(sizes)),
    }
}

fn factor(call: &KernelCall<'_>) -> Result<usize, KernelError> {
    match usize::try_from(call.int(1)?) {
        Ok(factor) if (1..=1 << 31).contains(&factor) => Ok(factor),
        _ => fail!(Range, "a factor of {}, expected at least 1", call.int(1)?),
    }
}

/// Moves between `(…, c, h·r, w·r)` and `(…, c·r·r, h, w)`; `large` are the strides of the former.
fn blocks(
    lead: &[(usize, isize, isize)],
    r: usize,
    [c, h, w]: [usize; 3],
    large: &[isize],
    small: &[isize],
    to_large: bool,
) -> Result<Walk, KernelError> {
    let (large, small) = (&large[large.len() - 3..], &small[small.len() - 3..]);
    let r_step = r as isize;
    let inner = [
        (c, large[0], small[0].wrapping_mul(r_step.wrapping_mul(r_step))),
        (h, large[1].wrapping_mul(r_step), small[1]),
        (r, large[1], small[0].wrapping_mul(r_step)),
        (w, large[2].wrapping_mul(r_step), small[2]),
        (r, large[2], small[0]),
    ];
    let mut walk = Walk::new();
    for &(size, large, small) in lead.iter().chain(&inner) {
        let (to, from) = if to_large { (large, small) } else { (small, large) };
        walk.axis(size, to, from)?;
    }
    Ok(walk)
}

fn reblock(
    call: &mut KernelCall<'_>,
    sizes: &[usize],
    r: usize,
    inner: [usize; 3],
    to_large: bool,
) -> Result<(), KernelError> {
    same_dtype(call, 0, 2)?;
    call.resize(2, sizes)?;
    let (source, target) = (Source::of(call, 0)?, Target::of(call, 2)?);
    let (from, to) = (signed(&source.tensor.strides()), signed(&target.tensor.strides()));
    let (large, small) = if to_large { (&to, &from) } else { (&from, &to) };
    let mut lead = [(1, 0, 0); RANK_MAX];
    let rank = sizes.len() - 3;
    for (dim, slot) in lead[..rank].iter_mut().enumerate() {
        *slot = (sizes[dim], large[dim], small[dim]);
    }
    let walk = blocks(&lead[..rank], r, inner, large, small, to_large)?;
    walk.copy(target.tensor.dtype().size_bytes(), (target.bytes, 0), (source.bytes, 0))
}

fn pixel_shuffle(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (lead, [depth, height, width]) = image(call.tensor(0)?.sizes())?;
    let r = factor(call)?;
    if !depth.is_multiple_of(r * r) {
        fail!(Shape, "a depth of {depth} is no multiple of {r} squared");
    }
    let (Some(tall), Some(wide)) = (height.checked_mul(r), width.checked_mul(r)) else {
        fail!(Range, "an image of {height} by {width} enlarged {r} times");
    };
    let mut sizes = super::view::dims(lead)?;
    for size in [depth / (r * r), tall, wide] {
        push(&mut sizes, size)?;
    }
    reblock(call, &sizes, r, [depth / (r * r), height, width], true)
}

fn pixel_unshuffle(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (lead, [depth, height, width]) = image(call.tensor(0)?.sizes())?;
    let r = factor(call)?;
    if !height.is_multiple_of(r) || !width.is_multiple_of(r) {
        fail!(Shape, "an image of {height} by {width} cannot be cut into blocks of {r}");
    }
    let Some(deep) = depth.checked_mul(r * r) else { fail!(Range, "a depth of {depth} times {r} squared") };
    let mut sizes = super::view::dims(lead)?;
    for size in [deep, height / r, width / r] {
        push(&mut sizes, size)?;
    }
    reblock(call, &sizes, r, [depth, height / r, width / r], false)
}

fn tril(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (sizes, diagonal) = (View::of(call.tensor(0)?).sizes, call.int(1)?);
    let [.., _, columns] = *sizes else {
        fail!(Shape, "sizes {}, expected at least two dimensions", display_sizes(&sizes));
    };
    same_dtype(call, 0, 2)?;
    call.resize(2, &sizes)?;
    let target = Target::of(call, 2)?;
    target.assign(&Source::of(call, 0)?)?;
    let strides = signed(&target.tensor.strides());
    let mut zero = [0_u8; 16];
    let zero = read_cells(cells(&mut zero));
    let rank = sizes.len();
    // The row of each start: offsets of the row dimension count 1 in the second list.
    let mut row_of = Dims::filled(0_isize, rank - 1).unwrap_or_else(Dims::empty);
    row_of.as_mut_slice()[rank - 2] = 1;
    each(&sizes[..rank - 1], [&strides[..rank - 1], &row_of], |[start, row]| {
        let first = (row as i64).saturating_add(diagonal).saturating_add(1).clamp(0, columns as i64) as usize;
        let mut walk = Walk::new();
        walk.axis(columns - first, strides[rank - 1], 0)?;
        let start = start as isize + first as isize * strides[rank - 1];
        walk.copy(target.tensor.dtype().size_bytes(), (target.bytes, start), (zero, 0))
    })
}
