#![forbid(unsafe_code)]
//! Element by element along one dimension: `out[i][index[i][j]][k]` and the other way round.

use super::super::number::element;
use super::super::view::{View, same_dtype, wrap_dim};
use super::super::walk::{Source, Target, by_width, each, first_bytes};
use super::super::{KernelCall, KernelError, fail};
use super::Indices;
use super::advanced::sum_into;
use crate::tensor::Dims;
use crate::tensor::Tensor;
use crate::tensor::shape::display_sizes;

/// Sizes and strides of at least one dimension.
fn lines(tensor: &Tensor) -> (Dims, Dims<isize>) {
    let mut view = View::of(tensor);
    if view.sizes.is_empty() {
        // There is room: no dimension yet.
        let _ = (view.sizes.push(1), view.strides.push(1));
    }
    (view.sizes, view.strides)
}

/// Checks what all of these operators want of `index` (argument 2) against `whole` (argument 0).
/// Gives the dimension and its size.
fn check(call: &KernelCall<'_>, sources: Option<usize>) -> Result<(usize, usize), KernelError> {
    let (whole, places) = (call.tensor(0)?, call.tensor(2)?);
    let dim = wrap_dim(call.int(1)?, whole.rank())?;
    let ((sizes, _), (asked, _)) = (lines(whole), lines(places));
    let indices = Indices::of(2, places)?;
    if places.numel() == 0 {
        return Ok((dim, sizes[dim]));
    }
    let fits = |sizes: &[usize], free: Option<usize>| {
        sizes.len() == asked.len()
            && asked.iter().zip(sizes).enumerate().all(|(at, (a, b))| Some(at) == free || a <= b)
    };
    if !fits(&sizes, Some(dim)) {
        fail!(
            Shape,
            "indices of sizes {} leave a tensor of sizes {}",
            display_sizes(places.sizes()),
            display_sizes(whole.sizes())
        );
    }
    if let Some(argument) = sources {
        let tensor = call.tensor(argument)?;
        if !fits(&lines(tensor).0, None) {
            fail!(
                Shape,
                "indices of sizes {} leave a source of sizes {}",
                display_sizes(places.sizes()),
                display_sizes(tensor.sizes())
            );
        }
    }
    indices.check(sizes[dim])?;
    Ok((dim, sizes[dim]))
}

/// Strides with that of `dim` taken out.
fn without(strides: &Dims<isize>, dim: usize) -> (Dims<isize>, isize) {
    let mut rest = *strides;
    let step = core::mem::take(&mut rest.as_mut_slice()[dim]);
    (rest, step)
}

pub(super) fn gather(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (dim, bound) = check(call, None)?;
    same_dtype(call, 0, 4)?;
    let sizes = View::of(call.tensor(2)?).sizes;
    call.resize(4, &sizes)?;
    let (source, target) = (Source::of(call, 0)?, Target::of(call, 4)?);
    let places = call.tensor(2)?;
    if places.numel() == 0 {
        return Ok(());
    }
    let indices = Indices::of(2, places)?;
    let (sizes, steps) = lines(places);
    let (from, step) = without(&lines(source.tensor).1, dim);
    by_width!(target.tensor.dtype().size_bytes(), W => {
        let (input, out) = (source.words::<W>(), target.words::<W>());
        each(&sizes, [&lines(target.tensor).1, &steps, &from], |[to, at, from]| {
            let index = indices.below(at, bound)?;
            out[to].set(input[from + index * step as usize].get());
            Ok(())
        })
    })
}

/// Copies argument 0 to argument 4, then calls `act` with the place in it of every index, and the offset
/// that `strides` gives for that index.
fn scattered(
    call: &mut KernelCall<'_>,
    (dim, bound): (usize, usize),
    source: Option<usize>,
    act: impl Fn(
        &KernelCall<'_>,
        &Target<'_>,
        &mut dyn FnMut(Place<'_>) -> Result<(), KernelError>,
    ) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    same_dtype(call, 0, 4)?;
    let sizes = View::of(call.tensor(0)?).sizes;
    call.resize(4, &sizes)?;
    let target = Target::of(call, 4)?;
    target.assign(&Source::of(call, 0)?)?;
    let places = call.tensor(2)?;
    if places.numel() == 0 {
        return Ok(());
    }
    let indices = Indices::of(2, places)?;
    let (sizes, steps) = lines(places);
    let (to, step) = without(&lines(target.tensor).1, dim);
    let from = match source {
        Some(argument) => lines(call.tensor(argument)?).1,
        None => Dims::filled(0, sizes.len()).unwrap_or_else(Dims::empty),
    };
    act(call, &target, &mut |place| {
        each(&sizes, [&to, &steps, &from], |[to, at, from]| {
            place(to + indices.below(at, bound)? * step as usize, from)
        })
    })
}

/// What is done with a place and the offset of its source.
type Place<'a> = &'a mut dyn FnMut(usize, usize) -> Result<(), KernelError>;

pub(super) fn scatter(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let at = check(call, Some(3))?;
    same_dtype(call, 0, 3)?;
    scattered(call, at, Some(3), |call, target, run| {
        let source = Source::of(call, 3)?;
        by_width!(target.tensor.dtype().size_bytes(), W => {
            let (input, out) = (source.words::<W>(), target.words::<W>());
            run(&mut |to, from| {
                out[to].set(input[from].get());
                Ok(())
            })
        })
    })
}

pub(super) fn scatter_value(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let at = check(call, None)?;
    let value = element(call.scalar(3)?, call.tensor(0)?.dtype())?;
    scattered(call, at, None, |_, target, run| {
        by_width!(target.tensor.dtype().size_bytes(), W => {
            let (word, out) = (first_bytes::<W>(value), target.words::<W>());
            run(&mut |to, _| {
                out[to].set(word);
                Ok(())
            })
        })
    })
}

pub(super) fn scatter_add(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let at = check(call, Some(3))?;
    same_dtype(call, 0, 3)?;
    scattered(call, at, Some(3), |call, target, run| sum_into((4, target.tensor), (3, call.tensor(3)?), run))
}
