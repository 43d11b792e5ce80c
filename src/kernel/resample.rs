#![forbid(unsafe_code)]
//! Resampling of images: sizes change by a factor, values are picked or mixed.
//!
//! Deliberately absent: antialiasing, and anything but two spatial dimensions.
//!
//! # Source
//! Places and weights are those of PyTorch's CPU kernels, in the float kind that these compute in.

use super::view::{count, same_dtype};
use super::walk::{Source, Target, by_width, each, signed};
use super::{Arg, Kernel, KernelCall, KernelError, fail};
use crate::tensor::shape::display_sizes;
use crate::tensor::{DType, Dims, Element};
use half::{bf16, f16};

/// The resampling operators.
pub(super) const KERNELS: &[Kernel] = &[
    Kernel {
        name: "aten::upsample_nearest2d.vec_out",
        args: &[Arg::Tensor, Arg::OptionalIntList, Arg::OptionalFloatList, Arg::Out],
        run: nearest,
    },
    Kernel {
        name: "aten::upsample_bilinear2d.vec_out",
        args: &[Arg::Tensor, Arg::OptionalIntList, Arg::Bool, Arg::OptionalFloatList, Arg::Out],
        run: bilinear,
    },
];

/// The new height and width, and how far one step there is here. A factor that was given wins over the
/// ratio of the sizes.
struct Resized {
    sizes: Dims,
    scales: [f64; 2],
    given: bool,
}

impl Resized {
    /// Argument 0 resized as arguments `sizes` and `factors` say, of which one is `None`.
    fn of(call: &KernelCall<'_>, sizes: usize, factors: usize) -> Result<Self, KernelError> {
        let own = call.tensor(0)?.sizes();
        let &[batch, channels, height, width] = own else {
            fail!(Shape, "an image of sizes {}, expected four dimensions", display_sizes(own));
        };
        let image = [height, width];
        let (mut out, mut scales, mut given) = ([0; 2], [0.0; 2], false);
        match (call.optional_ints(sizes)?, call.optional_floats(factors)?) {
            (Some(wanted), None) if wanted.len() == 2 => {
                for at in 0..2 {
                    out[at] = count("output size", wanted[at])?;
                    scales[at] = image[at] as f64 / out[at] as f64;
                }
            }
            (None, Some(&[down, across])) => {
                given = true;
                for (at, factor) in [down, across].into_iter().enumerate() {
                    let size = (image[at] as f64 * factor).floor();
                    if !(factor > 0.0 && size < 2_147_483_648.0) {
                        fail!(Range, "a factor of {factor} for size {}", image[at]);
                    }
                    #[expect(clippy::cast_possible_truncation, reason = "just compared with 2^31")]
                    let size = size as usize;
                    out[at] = size;
                    scales[at] = 1.0 / factor;
                }
            }
            _ => fail!(Shape, "either two output sizes or two factors are wanted"),
        }
        if out.contains(&0) || image.contains(&0) {
            fail!(
                Shape,
                "an image of {} resized to {}, expected no size of 0",
                display_sizes(&image),
                display_sizes(&out)
            );
        }
        let sizes = Dims::new(&[batch, channels, out[0], out[1]]).unwrap_or_else(Dims::empty);
        Ok(Self { sizes, scales, given })
    }
}

fn nearest(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let resized = Resized::of(call, 1, 2)?;
    same_dtype(call, 0, 3)?;
    call.resize(3, &resized.sizes)?;
    let (source, target) = (Source::of(call, 0)?, Target::of(call, 3)?);
    let (from, to) = (signed(&source.tensor.strides()), signed(&target.tensor.strides()));
    let own = source.tensor.sizes();
    #[expect(clippy::cast_possible_truncation, reason = "the source computes in float32; a float clamps")]
    let place = |at: usize, index: usize| {
        let scale = if resized.given {
            resized.scales[at] as f32
        } else {
            own[2 + at] as f32 / resized.sizes[2 + at] as f32
        };
        ((index as f32 * scale) as usize).min(own[2 + at] - 1) * from[2 + at] as usize
    };
    by_width!(target.tensor.dtype().size_bytes(), W => {
        let (input, out) = (source.words::<W>(), target.words::<W>());
        let row_of = [0, 0, 1];
        each(&resized.sizes[..3], [&to[..3], &[from[0], from[1], 0], &row_of], |[start, image, row]| {
            let image = image + place(0, row);
            for column in 0..resized.sizes[3] {
                out[start + column * to[3] as usize].set(input[image + place(1, column)].get());
            }
            Ok(())
        })
    })
}

/// A float kind, and the kind it is mixed in.
trait Mix: Element {
    type In: Copy
        + core::ops::Mul<Output = Self::In>
        + core::ops::Add<Output = Self::In>
        + core::ops::Sub<Output = Self::In>
        + PartialOrd;
    fn widen(self) -> Self::In;
    fn round(mixed: Self::In) -> Self;
    fn real(value: f64) -> Self::In;
    fn whole(value: Self::In) -> usize;
}

macro_rules! mix {
    ($($kind:ty, $wide:ty: |$a:ident| $widen:expr, $round:expr);+ $(;)?) => {
        $(impl Mix for $kind {
            type In = $wide;
            fn widen(self) -> $wide { let $a = self; $widen }
            fn round($a: $wide) -> Self { $round }
            #[allow(clippy::cast_possible_truncation, reason = "weights are computed in this kind")]
            fn real(value: f64) -> $wide { value as $wide }
            #[allow(clippy::cast_possible_truncation, reason = "a float clamps; then it is an index below a size")]
            fn whole(value: $wide) -> usize { value as usize }
        })+
    };
}

mix! {
    f32, f32: |a| a, a;
    f64, f64: |a| a, a;
    f16, f32: |a| a.to_f32(), Self::from_f32(a);
    bf16, f32: |a| a.to_f32(), Self::from_f32(a);
}

/// The two source indices of one target index, and the weight of each.
#[inline]
fn neighbours<M: Mix>(index: usize, size: usize, scale: M::In, align: bool) -> [(usize, M::In); 2] {
    let (zero, half, one) = (M::real(0.0), M::real(0.5), M::real(1.0));
    let position = if align {
        scale * M::real(index as f64)
    } else {
        let position = scale * (M::real(index as f64) + half) - half;
        if position < zero { zero } else { position }
    };
    let low = M::whole(position).min(size - 1);
    let far = position - M::real(low as f64);
    let far = if far > one { one } else { far };
    [(low, one - far), ((low + 1).min(size - 1), far)]
}

fn bilinear(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let resized = Resized::of(call, 1, 3)?;
    same_dtype(call, 0, 4)?;
    match call.tensor(0)?.dtype() {
        DType::Float32 => mixed::<f32>(call, &resized),
        DType::Float64 => mixed::<f64>(call, &resized),
        DType::Float16 => mixed::<f16>(call, &resized),
        DType::BFloat16 => mixed::<bf16>(call, &resized),
        other => fail!(DType, "an image of {other}, expected a float kind"),
    }
}

fn mixed<M: Mix>(call: &mut KernelCall<'_>, resized: &Resized) -> Result<(), KernelError> {
    let align = call.bool(2)?;
    call.resize(4, &resized.sizes)?;
    let (source, target) = (call.tensor(0)?, call.tensor(4)?);
    let input = source.read::<M>().map_err(|source| KernelError::Tensor { index: 0, source })?;
    let out = target.write::<M>().map_err(|source| KernelError::Tensor { index: 4, source })?;
    let (from, to) = (signed(&source.strides()), signed(&target.strides()));
    let (own, sizes) = (source.sizes(), &resized.sizes);
    let scale = |at: usize| match (align, sizes[2 + at]) {
        (true, 1) => M::real(0.0),
        (true, size) => M::real((own[2 + at] - 1) as f64 / (size - 1) as f64),
        (false, _) => M::real(resized.scales[at]),
    };
    let (down, across) = (scale(0), scale(1));
    each(&sizes[..3], [&to[..3], &[from[0], from[1], 0], &[0, 0, 1]], |[start, image, row]| {
        let rows = neighbours::<M>(row, own[2], down, align);
        for column in 0..sizes[3] {
            let columns = neighbours::<M>(column, own[3], across, align);
            let line = |row: usize| {
                let at = |column: usize| {
                    input[image + row * from[2] as usize + column * from[3] as usize].get().widen()
                };
                columns[0].1 * at(columns[0].0) + columns[1].1 * at(columns[1].0)
            };
            let value = rows[0].1 * line(rows[0].0) + rows[1].1 * line(rows[1].0);
            out[start + column * to[3] as usize].set(M::round(value));
        }
        Ok(())
    })
}
