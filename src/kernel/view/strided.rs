#![forbid(unsafe_code)]
#![expect(clippy::cast_possible_truncation, reason = "checked numbers of elements; 64-bit addresses")]
//! Copies of a tensor seen through other strides.

use super::super::walk::{Source, Target, signed};
use super::super::{KernelCall, KernelError, fail};
use super::{count, dims, push, same_dtype, wrap_dim, wrap_index};
use crate::tensor::shape::display_sizes;
use crate::tensor::{DType, Dims, RANK_MAX, Tensor};

/// Sizes, strides and first element of a tensor as it is seen.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct View {
    pub(in super::super) sizes: Dims,
    pub(in super::super) strides: Dims<isize>,
    pub(in super::super) start: isize,
}

impl View {
    /// The whole of a tensor.
    #[inline]
    pub(in super::super) fn of(tensor: &Tensor) -> Self {
        let sizes = Dims::new(tensor.sizes()).unwrap_or_else(Dims::empty);
        Self { sizes, strides: signed(&tensor.strides()), start: 0 }
    }

    /// Every `step`th index of `dim` from `first` on, `length` of them.
    pub(in super::super) fn narrow(&mut self, dim: usize, first: usize, length: usize, step: usize) {
        let stride = self.strides[dim];
        self.start = self.start.wrapping_add((first as isize).wrapping_mul(stride));
        self.sizes.as_mut_slice()[dim] = length;
        self.strides.as_mut_slice()[dim] = stride.saturating_mul(step as isize);
    }

    /// Index `index` of `dim`, which goes.
    pub(in super::super) fn select(&mut self, dim: usize, index: usize) {
        self.start = self.start.wrapping_add((index as isize).wrapping_mul(self.strides[dim]));
        self.sizes.remove(dim);
        self.strides.remove(dim);
    }

    fn push(&mut self, size: usize, stride: isize) -> Result<(), KernelError> {
        push(&mut self.sizes, size)?;
        push(&mut self.strides, stride)
    }

    /// Copies what is seen of argument `input` into argument `out`.
    #[inline]
    pub(in super::super) fn copy(
        &self,
        call: &mut KernelCall<'_>,
        input: usize,
        out: usize,
    ) -> Result<(), KernelError> {
        same_dtype(call, input, out)?;
        call.resize(out, &self.sizes)?;
        Target::of(call, out)?.gather(&Source::of(call, input)?, self.start, &self.strides)
    }
}

/// The dimension of a tensor that must have some.
pub(in super::super) fn dim_of(dim: i64, sizes: &[usize]) -> Result<usize, KernelError> {
    if sizes.is_empty() {
        fail!(Shape, "a tensor without dimensions, expected at least one");
    }
    wrap_dim(dim, sizes.len())
}

pub(super) fn permute(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let whole = View::of(call.tensor(0)?);
    let wanted = call.ints(1)?;
    if wanted.len() != whole.sizes.len() {
        fail!(
            Shape,
            "dimensions {} do not permute a tensor of sizes {}",
            display_sizes(&wanted),
            display_sizes(&whole.sizes)
        );
    }
    let mut view = whole;
    let mut seen = [false; RANK_MAX];
    for (at, &dim) in wanted.iter().enumerate() {
        let from = wrap_dim(dim, whole.sizes.len())?;
        if core::mem::replace(&mut seen[from], true) {
            fail!(Range, "dimension {dim} is named twice in {}", display_sizes(&wanted));
        }
        view.sizes.as_mut_slice()[at] = whole.sizes[from];
        view.strides.as_mut_slice()[at] = whole.strides[from];
    }
    view.copy(call, 0, 2)
}

pub(super) fn transpose(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let mut view = View::of(call.tensor(0)?);
    let rank = view.sizes.len();
    let (a, b) = (wrap_dim(call.int(1)?, rank)?, wrap_dim(call.int(2)?, rank)?);
    if rank > 0 {
        view.sizes.as_mut_slice().swap(a, b);
        view.strides.as_mut_slice().swap(a, b);
    }
    view.copy(call, 0, 3)
}

pub(super) fn t(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let mut view = View::of(call.tensor(0)?);
    match view.sizes.len() {
        0 | 1 => {}
        2 => {
            view.sizes.as_mut_slice().swap(0, 1);
            view.strides.as_mut_slice().swap(0, 1);
        }
        _ => fail!(Shape, "a tensor of sizes {}, expected at most two", display_sizes(&view.sizes)),
    }
    view.copy(call, 0, 1)
}

pub(super) fn expand(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let own = View::of(call.tensor(0)?);
    let wanted = call.ints(1)?;
    let refused = || {
        KernelError::Shape(format!(
            "a tensor of sizes {} cannot be expanded to {}",
            display_sizes(&own.sizes),
            display_sizes(&wanted)
        ))
    };
    let lead = wanted.len().checked_sub(own.sizes.len()).ok_or_else(refused)?;
    let mut view = View { sizes: Dims::empty(), strides: Dims::empty(), start: 0 };
    for (at, &size) in wanted.iter().enumerate() {
        let held = at.checked_sub(lead).map(|dim| (own.sizes[dim], own.strides[dim]));
        let (size, stride) = match (held, usize::try_from(size)) {
            (Some((held, stride)), Err(_)) if size == -1 => (held, stride),
            (Some((held, stride)), Ok(size)) if size == held => (size, stride),
            (Some((1, _)) | None, Ok(size)) => (size, 0),
            _ => return Err(refused()),
        };
        view.push(size, stride)?;
    }
    view.copy(call, 0, 3)
}

pub(super) fn select(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let mut view = View::of(call.tensor(0)?);
    let dim = dim_of(call.int(1)?, &view.sizes)?;
    let index = wrap_index(call.int(2)?, view.sizes[dim])?;
    view.select(dim, index);
    view.copy(call, 0, 3)
}

/// First index and number of indices of a Python slice.
pub(in super::super) fn slice_range(
    size: usize,
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
) -> Result<(usize, usize, usize), KernelError> {
    let Some(step) = usize::try_from(step).ok().filter(|&step| step > 0) else {
        fail!(Range, "step {step}, expected at least 1");
    };
    let place = |index: i64| {
        let index = if index < 0 { index.saturating_add(size as i64) } else { index };
        index.clamp(0, size as i64) as usize
    };
    let (start, end) = (start.map_or(0, place), end.map_or(size, place));
    Ok((start, end.saturating_sub(start).div_ceil(step), step))
}

pub(super) fn slice(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let mut view = View::of(call.tensor(0)?);
    let dim = dim_of(call.int(1)?, &view.sizes)?;
    let (first, length, step) =
        slice_range(view.sizes[dim], call.optional_int(2)?, call.optional_int(3)?, call.int(4)?)?;
    view.narrow(dim, first, length, step);
    view.copy(call, 0, 5)
}

pub(super) fn narrow(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let mut view = View::of(call.tensor(0)?);
    let dim = dim_of(call.int(1)?, &view.sizes)?;
    let (start, length) = (call.int(2)?, call.int(3)?);
    let size = view.sizes[dim];
    // One past the last index is a place too, for a length of 0.
    let first = if start == size as i64 { size } else { wrap_index(start, size)? };
    let taken = count("length", length)?;
    if taken > size - first {
        fail!(Range, "start {start} and length {length} leave dimension {dim} of size {size}");
    }
    view.narrow(dim, first, taken, 1);
    view.copy(call, 0, 4)
}

pub(super) fn unfold(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let mut view = View::of(call.tensor(0)?);
    let dim = wrap_dim(call.int(1)?, view.sizes.len())?;
    let (window, step) = (count("size", call.int(2)?)?, call.int(3)?);
    let (size, stride) = (view.sizes.get(dim).copied().unwrap_or(1), view.strides.get(dim).copied());
    if window > size {
        fail!(Range, "a window of {window} is larger than dimension {dim} of size {size}");
    }
    let Some(hop) = usize::try_from(step).ok().filter(|&step| step > 0) else {
        fail!(Range, "step {step}, expected at least 1");
    };
    if stride.is_some() {
        view.narrow(dim, 0, (size - window) / hop + 1, hop);
    }
    view.push(window, stride.unwrap_or(1))?;
    view.copy(call, 0, 4)
}

pub(super) fn as_strided(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (sizes, strides) = (call.ints(1)?, call.ints(2)?);
    if sizes.len() != strides.len() {
        fail!(Shape, "{} sizes with {} strides", sizes.len(), strides.len());
    }
    let start = count("storage offset", call.optional_int(3)?.unwrap_or(0))? as isize;
    let mut view = View { sizes: Dims::empty(), strides: Dims::empty(), start };
    for (&size, &stride) in sizes.iter().zip(strides.iter()) {
        view.push(count("size", size)?, count("stride", stride)? as isize)?;
    }
    view.copy(call, 0, 4)
}

pub(super) fn diagonal(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let mut view = View::of(call.tensor(0)?);
    let offset = call.int(1)?;
    let (a, b) = (dim_of(call.int(2)?, &view.sizes)?, dim_of(call.int(3)?, &view.sizes)?);
    if a == b {
        fail!(Range, "a diagonal needs two dimensions, both are {a}");
    }
    let shift = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
    let (rows, columns) = (view.sizes[a], view.sizes[b]);
    let (stride_a, stride_b) = (view.strides[a], view.strides[b]);
    let (length, first) = if offset >= 0 {
        (rows.min(columns.saturating_sub(shift)), stride_b)
    } else {
        (rows.saturating_sub(shift).min(columns), stride_a)
    };
    if length > 0 {
        view.start = (shift as isize).wrapping_mul(first);
    }
    for dim in [a.max(b), a.min(b)] {
        view.sizes.remove(dim);
        view.strides.remove(dim);
    }
    view.push(length, stride_a.wrapping_add(stride_b))?;
    view.copy(call, 0, 4)
}

pub(super) fn view_as_real(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (input, out) = (call.tensor(0)?.dtype(), call.tensor(1)?.dtype());
    let part = match input {
        DType::Complex32 => DType::Float16,
        DType::Complex64 => DType::Float32,
        DType::Complex128 => DType::Float64,
        other => fail!(DType, "the input is {other}, expected a complex kind"),
    };
    if out != part {
        fail!(DType, "the output is {out}, the parts of {input} are {part}");
    }
    let mut view = View::of(call.tensor(0)?);
    for stride in view.strides.as_mut_slice() {
        *stride = stride.wrapping_mul(2);
    }
    view.push(2, 1)?;
    let sizes = dims(&view.sizes)?;
    call.resize(1, &sizes)?;
    Target::of(call, 1)?.gather(&Source::of(call, 0)?, 0, &view.strides)
}
