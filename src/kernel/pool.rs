#![forbid(unsafe_code)]
//! Pooling over windows of two dimensions: averages and maxima.
//!
//! ```text
//! out[n, c, y, x] = average or maximum of input[n, c, window(y), window(x)]
//! ```
//!
//! Inputs have three dimensions (one image) or four, in any order. A NaN in a window is its maximum, as
//! in torch.
//!
//! Deliberately absent: windows of one or three dimensions, and unpooling.

use super::cells::{apart, cells_to_write, meet};
use super::numeric::{Accumulator, Numeric, with_numeric};
use super::{Arg, IntItems, Kernel, KernelCall, KernelError, fail};
use crate::tensor::shape::display_sizes;
use crate::tensor::{DType, Dims, Tensor};
use core::ops::Range;

/// The kernels of this family.
pub(super) const KERNELS: &[Kernel] = &[
    Kernel {
        name: "aten::avg_pool2d.out",
        args: &[
            Arg::Tensor,
            Arg::IntList,
            Arg::IntList,
            Arg::IntList,
            Arg::Bool,
            Arg::Bool,
            Arg::OptionalInt,
            Arg::Out,
        ],
        run: avg_pool2d,
    },
    Kernel {
        name: "aten::_adaptive_avg_pool2d.out",
        args: &[Arg::Tensor, Arg::IntList, Arg::Out],
        run: adaptive_avg_pool2d,
    },
    Kernel {
        name: "aten::max_pool2d_with_indices.out",
        args: &[
            Arg::Tensor,
            Arg::IntList,
            Arg::IntList,
            Arg::IntList,
            Arg::IntList,
            Arg::Bool,
            Arg::Out,
            Arg::Out,
        ],
        run: max_pool2d,
    },
];

/// The largest option taken, so that positions never overflow.
const OPTION_MAX: i64 = i32::MAX as i64;

/// An option for rows and for columns.
fn pair(name: &str, option: &str, items: &IntItems, least: i64) -> Result<[usize; 2], KernelError> {
    if let Some(item) = items.iter().find(|&&item| item < least || item > OPTION_MAX) {
        fail!(Range, "{name}: {option} is {item}, expected {least} to {OPTION_MAX}");
    }
    #[expect(clippy::cast_possible_truncation, reason = "just compared with OPTION_MAX")]
    match **items {
        [both] => Ok([both as usize; 2]),
        [row, col] => Ok([row as usize, col as usize]),
        _ => fail!(Range, "{name}: {option} has {} items, expected 1 or 2", items.len()),
    }
}

/// How windows move along one dimension.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    count: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
}

impl Axis {
    /// The window of an output position, with the padding that counts: from (maybe negative), to.
    fn window(&self, at: usize) -> (i64, i64) {
        let from = (at * self.stride) as i64 - self.padding as i64;
        let to = from + ((self.kernel - 1) * self.dilation) as i64 + 1;
        (from, to.min((self.size + self.padding) as i64))
    }

    /// The input positions of an output position whose window has no gaps.
    fn range(&self, at: usize) -> Range<usize> {
        let (from, to) = self.window(at);
        let (from, to) = (usize::try_from(from).unwrap_or(0), usize::try_from(to).unwrap_or(0));
        from.min(self.size)..to.min(self.size).max(from.min(self.size))
    }

    /// The input positions of an output position.
    fn inputs(&self, at: usize) -> impl Iterator<Item = usize> + Clone {
        let (from, to) = self.window(at);
        let skipped = usize::try_from(-from).unwrap_or(0).div_ceil(self.dilation);
        let first = usize::try_from(from + (skipped * self.dilation) as i64).unwrap_or(0);
        let last = usize::try_from(to).unwrap_or(0).min(self.size);
        (first..last).step_by(self.dilation)
    }
}

/// Reads the options of a pooling; argument 1 is the kernel, then stride and padding.
fn axes(
    name: &str,
    call: &KernelCall<'_>,
    dilation: Option<usize>,
    ceil: bool,
) -> Result<[Axis; 2], KernelError> {
    let kernel = pair(name, "kernel size", &call.ints(1)?, 1)?;
    let stride = call.ints(2)?;
    let stride = if stride.is_empty() { kernel } else { pair(name, "stride", &stride, 1)? };
    let padding = pair(name, "padding", &call.ints(3)?, 0)?;
    let dilation = match dilation {
        Some(index) => pair(name, "dilation", &call.ints(index)?, 1)?,
        None => [1, 1],
    };
    let sizes = image(name, call.tensor(0)?)?.sizes;
    let axis = |at: usize| -> Result<Axis, KernelError> {
        let (kernel, padding, stride) = (kernel[at], padding[at], stride[at]);
        if padding > kernel / 2 {
            fail!(Range, "{name}: padding {padding} is more than half of kernel size {kernel}");
        }
        let size = sizes[at + 2];
        let reach = (dilation[at] as i128) * (kernel as i128 - 1) + 1;
        let room = size as i128 + 2 * padding as i128 - reach;
        let round = if ceil { stride as i128 - 1 } else { 0 };
        let mut count = (room + round).div_euclid(stride as i128) + 1;
        // A last window that begins in the padding behind is left out.
        if ceil && (count - 1) * stride as i128 >= (size + padding) as i128 {
            count -= 1;
        }
        match usize::try_from(count) {
            Ok(count) if count > 0 => {
                Ok(Axis { size, count, kernel, stride, padding, dilation: dilation[at] })
            }
            _ => fail!(
                Shape,
                "{name}: {size} positions with kernel size {kernel}, stride {stride}, padding {padding} and \
                 dilation {} give {count}, expected at least 1",
                dilation[at]
            ),
        }
    };
    Ok([axis(0)?, axis(1)?])
}

/// Sizes and steps of batch, channel, row, column.
struct Image {
    sizes: [usize; 4],
    steps: [usize; 4],
}

fn image(name: &str, tensor: &Tensor) -> Result<Image, KernelError> {
    match (tensor.sizes(), &*tensor.strides()) {
        (&[c, y, x], &[c_step, y_step, x_step]) => {
            Ok(Image { sizes: [1, c, y, x], steps: [0, c_step, y_step, x_step] })
        }
        (&[n, c, y, x], &[n_step, c_step, y_step, x_step]) => {
            Ok(Image { sizes: [n, c, y, x], steps: [n_step, c_step, y_step, x_step] })
        }
        _ => fail!(Shape, "{name}: input is {}, expected rank 3 or 4", display_sizes(tensor.sizes())),
    }
}

/// The sizes of a result with these rows and columns.
fn out_sizes(input: &Tensor, rows: usize, cols: usize) -> Dims {
    let mut sizes = Dims::new(input.sizes()).unwrap_or_else(Dims::empty);
    if let [.., y, x] = sizes.as_mut_slice() {
        (*y, *x) = (rows, cols);
    }
    sizes
}

fn check_kinds(name: &str, input: &Tensor, out: &Tensor) -> Result<DType, KernelError> {
    if input.dtype() != out.dtype() {
        fail!(DType, "{name}: input is {} and out {}, expected one kind", input.dtype(), out.dtype());
    }
    Ok(out.dtype())
}

/// Calls `visit` with the input offset of each plane, the output offset of each of its positions, and where
/// that is.
fn positions(input: &Image, out: &Image, mut visit: impl FnMut(usize, usize, [usize; 2])) {
    let [batches, channels, rows, cols] = out.sizes;
    for n in 0..batches {
        for c in 0..channels {
            let from = n * input.steps[0] + c * input.steps[1];
            let to = n * out.steps[0] + c * out.steps[1];
            for y in 0..rows {
                for x in 0..cols {
                    visit(from, to + y * out.steps[2] + x * out.steps[3], [y, x]);
                }
            }
        }
    }
}

/// A sum divided, in the type of the sum.
trait Divide: Accumulator {
    fn divided(self, by: i64) -> Self;
}

macro_rules! divide {
    ($($kind:ty),+) => {$(
        impl Divide for $kind {
            #[inline]
            fn divided(self, by: i64) -> Self { self / by as $kind }
        }
    )+};
}
divide!(f32, f64);

impl Divide for i64 {
    #[inline]
    fn divided(self, by: i64) -> Self {
        self.wrapping_div(by)
    }
}

fn avg_pool2d(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    const NAME: &str = "avg_pool2d";
    const OUT: usize = 7;
    let [rows, cols] = axes(NAME, call, None, call.bool(4)?)?;
    let include = call.bool(5)?;
    let fixed = call.optional_int(6)?;
    if fixed == Some(0) {
        fail!(Range, "{NAME}: the divisor is 0");
    }
    let sizes = out_sizes(call.tensor(0)?, rows.count, cols.count);
    call.resize(OUT, &sizes)?;
    let dtype = check_kinds(NAME, call.tensor(0)?, call.tensor(OUT)?)?;
    with_numeric!(real, dtype, NAME, T => average::<T>(call, NAME, OUT, |[y, x]| {
        let (from_y, from_x) = (rows.range(y), cols.range(x));
        let length = |(from, to): (i64, i64)| to - from;
        let padded = length(rows.window(y)) * length(cols.window(x));
        let inside = (from_y.len() * from_x.len()) as i64;
        (from_y, from_x, fixed.unwrap_or(if include { padded } else { inside }))
    }))
}

fn adaptive_avg_pool2d(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    const NAME: &str = "adaptive_avg_pool2d";
    const OUT: usize = 2;
    let [rows, cols] = pair(NAME, "output size", &call.ints(1)?, 0)?;
    let input = image(NAME, call.tensor(0)?)?.sizes;
    let sizes = out_sizes(call.tensor(0)?, rows, cols);
    call.resize(OUT, &sizes)?;
    if call.tensor(OUT)?.numel() > 0 && (input[2] == 0 || input[3] == 0) {
        fail!(
            Shape,
            "{NAME}: input is {}, expected rows and columns",
            display_sizes(call.tensor(0)?.sizes())
        );
    }
    let dtype = check_kinds(NAME, call.tensor(0)?, call.tensor(OUT)?)?;
    // Windows that cover the input evenly, overlapping where they must.
    let window = |at: usize, size: usize, count: usize| at * size / count..((at + 1) * size).div_ceil(count);
    with_numeric!(real, dtype, NAME, T => average::<T>(call, NAME, OUT, |[y, x]| {
        let (y, x) = (window(y, input[2], rows), window(x, input[3], cols));
        let count = (y.len() * x.len()) as i64;
        (y, x, count)
    }))
}

/// Averages: `window` gives the rows, the columns and the divisor of a position.
fn average<T: Numeric<Acc: Divide>>(
    call: &KernelCall<'_>,
    name: &str,
    out: usize,
    window: impl Fn([usize; 2]) -> (Range<usize>, Range<usize>, i64),
) -> Result<(), KernelError> {
    let (source, target) = (call.tensor(0)?, call.tensor(out)?);
    let (input, result) = (image(name, source)?, image(name, target)?);
    let cells = apart::<T>(source, 0, target, call.scratch())?;
    let slots = cells_to_write::<T>(target, out)?;
    positions(&input, &result, |from, to, at| {
        let (rows, cols, divisor) = window(at);
        let mut sum = T::Acc::default();
        for y in rows {
            for x in cols.clone() {
                sum = sum.plus(cells[from + y * input.steps[2] + x * input.steps[3]].get().widen());
            }
        }
        // A window of padding alone, not counted, gives 0.
        slots[to].set(T::narrow(if divisor == 0 { T::Acc::default() } else { sum.divided(divisor) }));
    });
    Ok(())
}

fn max_pool2d(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    const NAME: &str = "max_pool2d";
    let [rows, cols] = axes(NAME, call, Some(4), call.bool(5)?)?;
    let sizes = out_sizes(call.tensor(0)?, rows.count, cols.count);
    call.resize(6, &sizes)?;
    call.resize(7, &sizes)?;
    let dtype = check_kinds(NAME, call.tensor(0)?, call.tensor(6)?)?;
    if call.tensor(7)?.dtype() != DType::Int64 {
        fail!(DType, "{NAME}: indices are {}, expected int64", call.tensor(7)?.dtype());
    }
    with_numeric!(real, dtype, NAME, T => maximum::<T>(call, NAME, [rows, cols]))
}

fn maximum<T: Numeric>(
    call: &KernelCall<'_>,
    name: &str,
    [rows, cols]: [Axis; 2],
) -> Result<(), KernelError> {
    let (source, target, places) = (call.tensor(0)?, call.tensor(6)?, call.tensor(7)?);
    let (input, result, place) = (image(name, source)?, image(name, target)?, image(name, places)?);
    let over = if meet(source, target) { target } else { places };
    let cells = apart::<T>(source, 0, over, call.scratch())?;
    let slots = cells_to_write::<T>(target, 6)?;
    let places = cells_to_write::<i64>(places, 7)?;
    let best = |from: usize, [y, x]: [usize; 2]| {
        let mut best: Option<(T, usize)> = None;
        for y in rows.inputs(y) {
            for x in cols.inputs(x) {
                let value = cells[from + y * input.steps[2] + x * input.steps[3]].get();
                if best.is_none_or(|(held, _)| value.widen() > held.widen() || value.is_nan()) {
                    best = Some((value, y * input.sizes[3] + x));
                }
            }
        }
        // Taps that all fall into the padding leave nothing to compare.
        best.unwrap_or((T::narrow(T::Acc::LOWEST), 0))
    };
    let place_at = |to: usize, flat: usize| places[to].set(i64::try_from(flat).unwrap_or(i64::MAX));
    if result.steps == place.steps {
        positions(&input, &result, |from, to, at| {
            let (value, flat) = best(from, at);
            slots[to].set(value);
            place_at(to, flat);
        });
    } else {
        positions(&input, &result, |from, to, at| slots[to].set(best(from, at).0));
        positions(&input, &place, |from, to, at| place_at(to, best(from, at).1));
    }
    Ok(())
}
