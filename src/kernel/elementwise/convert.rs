#![forbid(unsafe_code)]
//! Between the kinds that are stored and the four that are computed in.
//!
//! Conversions are those of C where C defines them. Floats beyond an integer's range go to the nearest
//! 64-bit integer first and are then cut to the width of the target; NaN becomes 0.

use crate::kernel::Scalar;
use crate::kernel::numeric::vectorised;
use crate::tensor::{Bool, DType, Element, ReadCell, Tensor, TensorError};
use core::cell::Cell;
use half::{bf16, f16};
use num_complex::Complex;

/// The complex kind that is computed in.
pub(super) type Wide = Complex<f64>;

/// A stored element, to and from each kind that is computed in.
pub(super) trait Stored: Element {
    fn to_i64(self) -> i64;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    fn to_wide(self) -> Wide;
    fn of_i64(value: i64) -> Self;
    fn of_f32(value: f32) -> Self;
    fn of_f64(value: f64) -> Self;
    fn of_wide(value: Wide) -> Self;
}

/// A kind that is computed in.
pub(super) trait Compute: Stored + Default + PartialEq {
    /// Zero, to fill blocks with.
    const ZERO: Self;
    fn of<S: Stored>(stored: S) -> Self;
    fn store_as<S: Stored>(self) -> S;

    fn of_scalar(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Bool(value) => Self::of(i64::from(value)),
            Scalar::Int(value) => Self::of(value),
            Scalar::Double(value) => Self::of(value),
        }
    }
}

macro_rules! compute {
    ($($kind:ty, $zero:expr, $to:ident, $of:ident;)+) => {
        $(impl Compute for $kind {
            const ZERO: Self = $zero;
            #[inline(always)]
            fn of<S: Stored>(stored: S) -> Self {
                stored.$to()
            }
            #[inline(always)]
            fn store_as<S: Stored>(self) -> S {
                S::$of(self)
            }
        })+
    };
}

compute! {
    i64, 0, to_i64, of_i64;
    f32, 0.0, to_f32, of_f32;
    f64, 0.0, to_f64, of_f64;
    Wide, Wide::new(0.0, 0.0), to_wide, of_wide;
}

/// The conversions of one kind, as expressions of `v`.
macro_rules! stored {
    ($kind:ty, |$v:ident| to ($i:expr, $s:expr, $d:expr, $c:expr), of ($oi:expr, $os:expr, $od:expr, $oc:expr)) => {
        #[allow(clippy::cast_possible_truncation, reason = "conversions are those of C")]
        #[allow(clippy::cast_lossless, clippy::unnecessary_cast, reason = "one text for all kinds")]
        #[allow(clippy::float_cmp, reason = "only 0 is false")]
        impl Stored for $kind {
            #[inline(always)]
            fn to_i64(self) -> i64 {
                let $v = self;
                $i
            }
            #[inline(always)]
            fn to_f32(self) -> f32 {
                let $v = self;
                $s
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                let $v = self;
                $d
            }
            #[inline(always)]
            fn to_wide(self) -> Wide {
                let $v = self;
                $c
            }
            #[inline(always)]
            fn of_i64($v: i64) -> Self {
                $oi
            }
            #[inline(always)]
            fn of_f32($v: f32) -> Self {
                $os
            }
            #[inline(always)]
            fn of_f64($v: f64) -> Self {
                $od
            }
            #[inline(always)]
            fn of_wide($v: Wide) -> Self {
                $oc
            }
        }
    };
}

macro_rules! integers {
    ($($kind:ty)+) => {
        $(stored!($kind, |v|
            to (v as i64, v as f32, v as f64, Wide::new(v as f64, 0.0)),
            of (v as $kind, v as i64 as $kind, v as i64 as $kind, v.re as i64 as $kind));)+
    };
}

integers! { u8 i8 i16 u16 i32 u32 i64 }
stored!(
    u64,
    |v| to(v as i64, v as f32, v as f64, Wide::new(v as f64, 0.0)),
    of(
        v as u64,
        Self::of_f64(f64::from(v)),
        if v < 0.0 { v as i64 as u64 } else { v as u64 },
        Self::of_f64(v.re)
    )
);
stored!(f32, |v| to(v as i64, v, v as f64, Wide::new(v as f64, 0.0)), of(v as f32, v, v as f32, v.re as f32));
stored!(f64, |v| to(v as i64, v as f32, v, Wide::new(v, 0.0)), of(v as f64, v as f64, v, v.re));
stored!(
    f16,
    |v| to(half_to_f32(v) as i64, half_to_f32(v), v.to_f64(), Wide::new(v.to_f64(), 0.0)),
    of(f32_to_half(v as f32), f32_to_half(v), Self::from_f64(v), Self::from_f64(v.re))
);
stored!(
    bf16,
    |v| to(brain_to_f32(v) as i64, brain_to_f32(v), v.to_f64(), Wide::new(v.to_f64(), 0.0)),
    of(f32_to_brain(v as f32), f32_to_brain(v), Self::from_f64(v), Self::from_f64(v.re))
);
stored!(
    Bool,
    |v| to(
        v.get() as i64,
        f32::from(u8::from(v.get())),
        f64::from(u8::from(v.get())),
        Wide::new(f64::from(u8::from(v.get())), 0.0)
    ),
    of((v != 0).into(), (v != 0.0).into(), (v != 0.0).into(), (v != Wide::ZERO).into())
);
stored!(
    Complex<f16>,
    |v| to(v.re.to_f32() as i64, v.re.to_f32(), v.re.to_f64(), Wide::new(v.re.to_f64(), v.im.to_f64())),
    of(
        Self::new(f16::from_f32(v as f32), f16::ZERO),
        Self::new(f16::from_f32(v), f16::ZERO),
        Self::new(f16::from_f64(v), f16::ZERO),
        Self::new(f16::from_f64(v.re), f16::from_f64(v.im))
    )
);
stored!(
    Complex<f32>,
    |v| to(v.re as i64, v.re, v.re as f64, Wide::new(v.re as f64, v.im as f64)),
    of(
        Self::new(v as f32, 0.0),
        Self::new(v, 0.0),
        Self::new(v as f32, 0.0),
        Self::new(v.re as f32, v.im as f32)
    )
);
stored!(
    Wide,
    |v| to(v.re as i64, v.re as f32, v.re, v),
    of(Self::new(v as f64, 0.0), Self::new(v as f64, 0.0), Self::new(v, 0.0), v)
);

// The conversions of the 16-bit floats below have no branches and no calls, so that loops of them run on
// many lanes at once, which those of the `half` crate do not.

/// The value of a `float16`: its bits, moved to their places in a `f32`, are 2¹¹² times too small.
#[inline(always)]
fn half_to_f32(half: f16) -> f32 {
    const SCALE: f32 = f32::from_bits((127 + 112) << 23);
    let bits = u32::from(half.to_bits());
    let value = (f32::from_bits((bits & 0x7fff) << 13) * SCALE).to_bits();
    // All exponent bits set: infinite or NaN in both.
    let value = if bits & 0x7c00 == 0x7c00 { value | 0x7f80_0000 } else { value };
    f32::from_bits(value | ((bits & 0x8000) << 16))
}

/// The `float16` nearest to a value, ties to even.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "sixteen bits are left")]
fn f32_to_half(value: f32) -> f16 {
    /// From here on the result is infinite: 2¹⁶, since what rounds up to it carries over below.
    const INFINITE: u32 = (127 + 16) << 23;
    /// Below here the result is subnormal: 2⁻¹⁴.
    const NORMAL: u32 = (127 - 14) << 23;
    /// Adding this moves the last bit of a subnormal result to the last bit of a `f32`.
    const ALIGN: u32 = (127 - 14 + 23 - 10) << 23;
    let bits = value.to_bits();
    let (sign, bits) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
    let special = if bits > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    let subnormal = (f32::from_bits(bits) + f32::from_bits(ALIGN)).to_bits().wrapping_sub(ALIGN);
    let rounded = bits.wrapping_add(0xfff + ((bits >> 13) & 1)).wrapping_sub((127 - 15) << 23) >> 13;
    let finite = if bits < NORMAL { subnormal } else { rounded };
    let half = if bits >= INFINITE { special } else { finite };
    f16::from_bits((half | sign) as u16)
}

/// The value of a `bfloat16`: the upper half of a `f32`.
#[inline(always)]
fn brain_to_f32(brain: bf16) -> f32 {
    f32::from_bits(u32::from(brain.to_bits()) << 16)
}

/// The `bfloat16` nearest to a value, ties to even.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "sixteen bits are left")]
fn f32_to_brain(value: f32) -> bf16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    bf16::from_bits((if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { rounded }) as u16)
}

/// Runs `$some` with `$S` as the Rust type of a kind, or gives `$none` where the kind has no arithmetic.
macro_rules! by_stored {
    ($dtype:expr, $S:ident => $some:expr, $none:expr) => {
        match $dtype {
            $crate::tensor::DType::UInt8 => {
                type $S = u8;
                $some
            }
            $crate::tensor::DType::Int8 => {
                type $S = i8;
                $some
            }
            $crate::tensor::DType::Int16 => {
                type $S = i16;
                $some
            }
            $crate::tensor::DType::Int32 => {
                type $S = i32;
                $some
            }
            $crate::tensor::DType::Int64 => {
                type $S = i64;
                $some
            }
            $crate::tensor::DType::UInt16 => {
                type $S = u16;
                $some
            }
            $crate::tensor::DType::UInt32 => {
                type $S = u32;
                $some
            }
            $crate::tensor::DType::UInt64 => {
                type $S = u64;
                $some
            }
            $crate::tensor::DType::Float16 => {
                type $S = half::f16;
                $some
            }
            $crate::tensor::DType::BFloat16 => {
                type $S = half::bf16;
                $some
            }
            $crate::tensor::DType::Float32 => {
                type $S = f32;
                $some
            }
            $crate::tensor::DType::Float64 => {
                type $S = f64;
                $some
            }
            $crate::tensor::DType::Bool => {
                type $S = $crate::tensor::Bool;
                $some
            }
            $crate::tensor::DType::Complex32 => {
                type $S = num_complex::Complex<half::f16>;
                $some
            }
            $crate::tensor::DType::Complex64 => {
                type $S = num_complex::Complex<f32>;
                $some
            }
            $crate::tensor::DType::Complex128 => {
                type $S = num_complex::Complex<f64>;
                $some
            }
            _ => $none,
        }
    };
}
pub(super) use by_stored;

/// Reads elements of a tensor, from one on and a stride apart, into a block.
pub(super) type Load<C> = fn(&Tensor, usize, usize, &[Cell<C>]) -> Result<(), TensorError>;

/// Writes a block over the elements of a tensor, from one on.
pub(super) type Store<C> = fn(&Tensor, usize, &[Cell<C>]) -> Result<(), TensorError>;

/// How elements of this kind are read.
pub(super) fn loader<C: Compute>(dtype: DType) -> Option<Load<C>> {
    by_stored!(dtype, S => Some(load::<C, S>), None)
}

/// How elements of this kind are written.
pub(super) fn storer<C: Compute>(dtype: DType) -> Option<Store<C>> {
    by_stored!(dtype, S => Some(store::<C, S>), None)
}

fn load<C: Compute, S: Stored>(
    tensor: &Tensor,
    start: usize,
    stride: usize,
    block: &[Cell<C>],
) -> Result<(), TensorError> {
    let from: &[ReadCell<S>] = tensor.read::<S>()?.get(start..).unwrap_or_default();
    match (stride, from.first()) {
        (0, Some(first)) => {
            let value = C::of(first.get());
            for cell in block {
                cell.set(value);
            }
        }
        (1, _) if size_of::<S>() == 2 => {
            vectorised(|| block.iter().zip(from).for_each(|(cell, item)| cell.set(C::of(item.get()))));
        }
        (1, _) => block.iter().zip(from).for_each(|(cell, item)| cell.set(C::of(item.get()))),
        (_, Some(_)) => {
            block
                .iter()
                .zip(from.iter().step_by(stride))
                .for_each(|(cell, item)| cell.set(C::of(item.get())));
        }
        (_, None) => {}
    }
    Ok(())
}

fn store<C: Compute, S: Stored>(tensor: &Tensor, start: usize, block: &[Cell<C>]) -> Result<(), TensorError> {
    let to = tensor.write::<S>()?.get(start..).unwrap_or_default();
    // The 16-bit kinds gain most, and elsewhere the code is not worth its size.
    if size_of::<S>() == 2 {
        vectorised(|| to.iter().zip(block).for_each(|(cell, item)| cell.set(item.get().store_as::<S>())));
    } else {
        to.iter().zip(block).for_each(|(cell, item)| cell.set(item.get().store_as::<S>()));
    }
    Ok(())
}

/// Cuts values to what a kind can hold: integers wrap, floats stay.
pub(super) fn wrap<C: Compute>(dtype: DType, block: &[Cell<C>]) {
    if dtype.is_integer() || dtype == DType::Bool {
        by_stored!(dtype, S => for cell in block {
            cell.set(C::of(cell.get().store_as::<S>()));
        }, ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bit_floats_convert_as_the_half_crate_does() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert!(half.is_nan() || half_to_f32(half).to_bits() == half.to_f32().to_bits(), "{bits:#x}");
            assert!(!half.is_nan() || half_to_f32(half).is_nan(), "{bits:#x}");
            assert_eq!(brain_to_f32(brain).to_bits(), u32::from(bits) << 16);
        }
    }

    #[test]
    fn floats_round_to_sixteen_bits_as_the_half_crate_does() {
        // Every upper half, with lower halves around the ties of both kinds.
        for upper in 0..=u32::from(u16::MAX) {
            for lower in
                [0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xf000, 0xffff]
            {
                let value = f32::from_bits((upper << 16) | lower);
                let (half, brain) = (f32_to_half(value), f32_to_brain(value));
                if value.is_nan() {
                    assert!(half.is_nan() && brain.is_nan(), "{value:?}");
                } else {
                    assert_eq!(half.to_bits(), f16::from_f32(value).to_bits(), "{value:?}");
                    assert_eq!(brain.to_bits(), bf16::from_f32(value).to_bits(), "{value:?}");
                }
            }
        }
    }
}
