#![forbid(unsafe_code)]
//! Elements that kernels do arithmetic on: the type each is computed in, and the way there and back.
//!
//! ```text
//! u8 i8 i16 i32 i64 bool ──► i64, wrapping      f16 bf16 f32 ──► f32      f64 ──► f64
//! ```
//!
//! Deliberately absent: complex numbers and quantised kinds.

use crate::tensor::{Bool, Element};
use core::ops::{Add, Div, Mul, Sub};
use half::{bf16, f16};

/// The type that elements are computed in; integers wrap.
pub(crate) trait Accumulator: Copy + PartialOrd + Default + 'static {
    /// Not larger than any value: −∞ or the least integer.
    const LOWEST: Self;
    /// Not less than any value.
    const HIGHEST: Self;
    /// One.
    const ONE: Self;
    /// The sum.
    fn plus(self, other: Self) -> Self;
    /// The product.
    fn times(self, other: Self) -> Self;
}

/// An element that kernels do arithmetic on.
pub(crate) trait Numeric: Element {
    /// The type it is computed in.
    type Acc: Accumulator + Numeric<Acc = Self::Acc>;
    /// The value to compute with.
    fn widen(self) -> Self::Acc;
    /// The element nearest to a computed value; integers keep their low bits.
    fn narrow(value: Self::Acc) -> Self;
    /// The value as a real number.
    fn to_f64(self) -> f64;
    /// From a real number, rounded once.
    fn from_f64(value: f64) -> Self;
    /// The value as a whole number, cut where it is real.
    fn to_i64(self) -> i64;
    /// From a whole number; its low bits, or the nearest.
    fn from_i64(value: i64) -> Self;
    /// Whether this is no number.
    fn is_nan(self) -> bool {
        false
    }
}

/// `f32` or `f64`: what floating-point elements are computed in.
pub(crate) trait Float:
    Numeric<Acc = Self>
    + Accumulator
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
}

macro_rules! float {
    ($($kind:ty),+) => {$(
        impl Accumulator for $kind {
            const ONE: Self = 1.0;
            const LOWEST: Self = <$kind>::NEG_INFINITY;
            const HIGHEST: Self = <$kind>::INFINITY;
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self * other }
        }
        impl Numeric for $kind {
            type Acc = Self;
            #[inline(always)]
            fn widen(self) -> Self { self }
            #[inline(always)]
            fn narrow(value: Self) -> Self { value }
            #[inline(always)]
            fn to_f64(self) -> f64 { self.into() }
            #[inline(always)]
            #[expect(clippy::allow_attributes, reason = "f64 needs no cast, f32 does")]
            #[allow(clippy::cast_possible_truncation, reason = "rounds to the nearest")]
            fn from_f64(value: f64) -> Self { value as $kind }
            #[inline(always)]
            #[expect(clippy::cast_possible_truncation, reason = "cuts, and saturates outside the range")]
            fn to_i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { value as $kind }
            #[inline(always)]
            fn is_nan(self) -> bool { self != self }
        }
        impl Float for $kind {}
    )+};
}
float!(f32, f64);

macro_rules! half {
    ($($kind:ty),+) => {$(
        impl Numeric for $kind {
            type Acc = f32;
            #[inline(always)]
            fn widen(self) -> f32 { self.to_f32() }
            #[inline(always)]
            fn narrow(value: f32) -> Self { <$kind>::from_f32(value) }
            #[inline(always)]
            fn to_f64(self) -> f64 { self.to_f32().into() }
            #[inline(always)]
            fn from_f64(value: f64) -> Self { <$kind>::from_f64(value) }
            #[inline(always)]
            fn to_i64(self) -> i64 { self.to_f32().to_i64() }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { <$kind>::from_f64(value as f64) }
            #[inline(always)]
            fn is_nan(self) -> bool { self.to_f32().is_nan() }
        }
    )+};
}
half!(f16, bf16);

impl Accumulator for i64 {
    const ONE: Self = 1;
    const LOWEST: Self = Self::MIN;
    const HIGHEST: Self = Self::MAX;
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
}

macro_rules! integer {
    ($($kind:ty),+) => {$(
        impl Numeric for $kind {
            type Acc = i64;
            #[inline(always)]
            fn widen(self) -> i64 { i64::from(self) }
            #[inline(always)]
            #[expect(clippy::allow_attributes, reason = "i64 needs no cast, the others do")]
            #[allow(clippy::cast_possible_truncation, reason = "integers wrap, as those of torch do")]
            fn narrow(value: i64) -> Self { value as $kind }
            #[inline(always)]
            #[expect(clippy::allow_attributes, reason = "only wide integers lose bits")]
            #[allow(clippy::cast_lossless, reason = "i64 has no lossless way")]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn from_f64(value: f64) -> Self { Self::narrow(value.to_i64()) }
            #[inline(always)]
            fn to_i64(self) -> i64 { self.widen() }
            #[inline(always)]
            fn from_i64(value: i64) -> Self { Self::narrow(value) }
        }
    )+};
}
integer!(u8, i8, i16, i32, i64);

impl Numeric for Bool {
    type Acc = i64;
    #[inline(always)]
    fn widen(self) -> i64 {
        i64::from(self.get())
    }
    #[inline(always)]
    fn narrow(value: i64) -> Self {
        (value != 0).into()
    }
    #[inline(always)]
    fn to_f64(self) -> f64 {
        f64::from(u8::from(self.get()))
    }
    #[inline(always)]
    fn from_f64(value: f64) -> Self {
        (value != 0.0).into()
    }
    #[inline(always)]
    fn to_i64(self) -> i64 {
        self.widen()
    }
    #[inline(always)]
    fn from_i64(value: i64) -> Self {
        Self::narrow(value)
    }
}

/// Runs an expression with a type name standing for the element type of a [`DType`](crate::tensor::DType):
/// `with_numeric!(float, dtype, "mm", T => run::<T>(call))`. Other kinds end the function with an error.
/// Classes: `float` (f16, bf16, f32, f64), `real` (those and integers), `any` (those and bool).
macro_rules! with_numeric {
    (float, $dtype:expr, $name:expr, $T:ident => $body:expr) => {
        $crate::kernel::numeric::with_numeric!(@ $dtype, $name, "float kinds", $T => $body,
            Float32 f32, Float64 f64, Float16 half::f16, BFloat16 half::bf16)
    };
    (real, $dtype:expr, $name:expr, $T:ident => $body:expr) => {
        $crate::kernel::numeric::with_numeric!(@ $dtype, $name, "float and integer kinds", $T => $body,
            Float32 f32, Float64 f64, Float16 half::f16, BFloat16 half::bf16,
            UInt8 u8, Int8 i8, Int16 i16, Int32 i32, Int64 i64)
    };
    (any, $dtype:expr, $name:expr, $T:ident => $body:expr) => {
        $crate::kernel::numeric::with_numeric!(@ $dtype, $name, "float and integer kinds and bool", $T => $body,
            Float32 f32, Float64 f64, Float16 half::f16, BFloat16 half::bf16,
            UInt8 u8, Int8 i8, Int16 i16, Int32 i32, Int64 i64, Bool $crate::tensor::Bool)
    };
    (@ $dtype:expr, $name:expr, $kinds:literal, $T:ident => $body:expr, $($variant:ident $kind:ty),+) => {
        match $dtype {
            $($crate::tensor::DType::$variant => { type $T = $kind; $body })+
            other => $crate::kernel::fail!(DType, "{}: elements are {}, expected {}", $name, other, $kinds),
        }
    };
}
pub(crate) use with_numeric;

/// Runs `work` compiled for the widest vectors of this machine. `work` and what it calls must be inlined.
#[inline]
pub(crate) fn vectorised<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}
