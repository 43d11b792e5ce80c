#![forbid(unsafe_code)]
//! Sizes, strides and options of a convolution, checked.
//!
//! Deliberately absent: elements.

use crate::kernel::{IntItems, KernelCall, KernelError, fail};
use crate::tensor::shape::display_sizes;
use crate::tensor::{Dims, Tensor};

/// The largest option taken, so that positions never overflow.
const OPTION_MAX: i64 = i32::MAX as i64;

/// One dimension of a window: how it moves over the input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) taps: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
    pub(super) dilation: usize,
}

impl Axis {
    /// The input position of a tap for an output position, or `None` in the padding.
    #[inline(always)]
    pub(super) fn source(&self, at: usize, tap: usize, size: usize) -> Option<usize> {
        (at * self.stride + tap * self.dilation).checked_sub(self.padding).filter(|&source| source < size)
    }

    /// The output positions, out of `0..count`, whose input for `tap` is not padding.
    #[inline]
    pub(super) fn inside(&self, tap: usize, size: usize, count: usize) -> core::ops::Range<usize> {
        let shift = tap * self.dilation;
        let first = self.padding.saturating_sub(shift).div_ceil(self.stride).min(count);
        let last = (size + self.padding).saturating_sub(shift).div_ceil(self.stride).min(count);
        first..last.max(first)
    }
}

/// A checked convolution; sizes and strides are those of batch, channel, row, column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) input: [usize; 4],
    pub(super) input_steps: [usize; 4],
    /// Strides of the weight: output channel in its group, input channel in its group, row, column.
    pub(super) weight_steps: [usize; 4],
    /// From the weight of one group to the next.
    pub(super) weight_group_step: usize,
    pub(super) out: [usize; 4],
    pub(super) out_steps: [usize; 4],
    pub(super) rows: Axis,
    pub(super) cols: Axis,
    pub(super) transposed: bool,
    pub(super) groups: usize,
    pub(super) in_per_group: usize,
    pub(super) out_per_group: usize,
    pub(super) rank: usize,
}

/// Sizes or strides of three or four dimensions as four; `row` stands for the missing row.
fn four(items: &[usize], row: usize) -> Option<[usize; 4]> {
    match *items {
        [n, c, x] => Some([n, c, row, x]),
        [n, c, y, x] => Some([n, c, y, x]),
        _ => None,
    }
}

/// An option for rows and for columns.
fn option(name: &str, items: &IntItems, least: i64, rank: usize) -> Result<[usize; 2], KernelError> {
    if let Some(item) = items.iter().find(|&&item| item < least || item > OPTION_MAX) {
        fail!(Range, "convolution: {name} is {item}, expected {least} to {OPTION_MAX}");
    }
    #[expect(clippy::cast_possible_truncation, reason = "just compared with OPTION_MAX")]
    match (**items).iter().map(|&item| item as usize).collect::<Items>().0 {
        [Some(both), None] if rank == 3 => Ok([usize::from(least == 1), both]),
        [Some(both), None] => Ok([both, both]),
        [Some(row), Some(col)] if rank == 4 => Ok([row, col]),
        _ => fail!(
            Range,
            "convolution: {name} has {} items, expected 1 or one for each of {} dimensions",
            items.len(),
            rank - 2
        ),
    }
}

struct Items([Option<usize>; 2]);

impl FromIterator<usize> for Items {
    fn from_iter<I: IntoIterator<Item = usize>>(items: I) -> Self {
        let mut items = items.into_iter();
        let pair = [items.next(), items.next()];
        if items.next().is_some() { Self([None, None]) } else { Self(pair) }
    }
}

impl Geometry {
    /// Reads and checks the arguments of `convolution`.
    pub(super) fn of(call: &KernelCall<'_>) -> Result<Self, KernelError> {
        let (input, weight) = (call.tensor(0)?, call.tensor(1)?);
        let rank = input.rank();
        let shapes = four(input.sizes(), 1).zip(four(weight.sizes(), 1));
        let Some((input_sizes, weight_sizes)) = shapes.filter(|_| rank == weight.rank()) else {
            fail!(
                Shape,
                "convolution: input has rank {rank} and weight {}, expected both 3 or both 4",
                weight.rank()
            );
        };
        let stride = option("stride", &call.ints(3)?, 1, rank)?;
        let padding = option("padding", &call.ints(4)?, 0, rank)?;
        let dilation = option("dilation", &call.ints(5)?, 1, rank)?;
        let transposed = call.bool(6)?;
        let groups = call.int(8)?;
        let Some(groups) = usize::try_from(groups).ok().filter(|&groups| groups >= 1) else {
            fail!(Range, "convolution: groups is {groups}, expected at least 1");
        };
        let channels = input_sizes[1];
        let [first, second, high, wide] = weight_sizes;
        let (from, per_group) =
            if transposed { (first, channels / groups) } else { (second, channels / groups) };
        let out_channels = if transposed { second.saturating_mul(groups) } else { first };
        let fits = channels.is_multiple_of(groups)
            && out_channels.is_multiple_of(groups)
            && if transposed { from == channels } else { from == per_group };
        if !fits {
            fail!(
                Shape,
                "convolution: input {} and weight {} do not fit together in {groups} groups",
                display_sizes(input.sizes()),
                display_sizes(weight.sizes())
            );
        }
        if let Some(bias) = call.optional_tensor(2)?
            && *bias.sizes() != [out_channels]
        {
            fail!(
                Shape,
                "convolution: bias is {}, expected {}",
                display_sizes(bias.sizes()),
                display_sizes(&[out_channels])
            );
        }
        let axis =
            |at: usize, taps| Axis { taps, stride: stride[at], padding: padding[at], dilation: dilation[at] };
        let steps = four(&weight.strides(), 0).unwrap_or_default();
        let out_per_group = out_channels / groups;
        let weight_steps = if transposed { [steps[1], steps[0], steps[2], steps[3]] } else { steps };
        let mut geometry = Self {
            input: input_sizes,
            input_steps: four(&input.strides(), 0).unwrap_or_default(),
            weight_steps,
            weight_group_step: steps[0] * if transposed { per_group } else { out_per_group },
            out: [input_sizes[0], out_channels, 1, 1],
            out_steps: [0; 4],
            rows: axis(0, high),
            cols: axis(1, wide),
            transposed,
            groups,
            in_per_group: per_group,
            out_per_group,
            rank,
        };
        // A row that one dimension lacks gets no padding of its own.
        let extra = if transposed { option("output padding", &call.ints(7)?, 0, rank)? } else { [0; 2] };
        geometry.out[2] = geometry.extent("rows", geometry.rows, input_sizes[2], extra[0])?;
        geometry.out[3] = geometry.extent("columns", geometry.cols, input_sizes[3], extra[1])?;
        Ok(geometry)
    }

    /// How many output positions one axis has.
    fn extent(&self, name: &str, axis: Axis, size: usize, extra: usize) -> Result<usize, KernelError> {
        if self.transposed && extra >= axis.stride && extra >= axis.dilation {
            fail!(
                Range,
                "convolution: output padding {extra} is not less than stride {} or dilation {}",
                axis.stride,
                axis.dilation
            );
        }
        let [size, taps, stride, padding, dilation, extra] =
            [size, axis.taps, axis.stride, axis.padding, axis.dilation, extra].map(|item| item as i128);
        let reach = dilation * (taps - 1);
        let extent = if self.transposed {
            (size - 1) * stride - 2 * padding + reach + extra + 1
        } else {
            (size + 2 * padding - reach - 1).div_euclid(stride) + 1
        };
        match usize::try_from(extent) {
            Ok(extent) if extent > 0 && taps > 0 => Ok(extent),
            _ => fail!(
                Shape,
                "convolution: {size} {name} with {taps} taps, stride {stride}, padding {padding} and dilation \
                 {dilation} give {extent}, expected at least 1"
            ),
        }
    }

    /// The sizes of `out`.
    pub(super) fn out_sizes(&self) -> Result<Dims, KernelError> {
        let [n, c, y, x] = self.out;
        let sizes = if self.rank == 3 { Dims::new(&[n, c, x]) } else { Dims::new(&self.out) };
        debug_assert!(self.rank == 4 || y == 1, "one dimension has one row");
        sizes.ok_or_else(|| KernelError::Shape(format!("convolution: rank {}", self.rank)))
    }

    /// Takes the strides of `out`, once it has its sizes.
    pub(super) fn set_out_strides(&mut self, out: &Tensor) {
        self.out_steps = four(&out.strides(), 0).unwrap_or_default();
    }
}
