#![forbid(unsafe_code)]
//! One element at a time, of any arithmetic kind: for the rare moves that also change the kind, and for
//! scalar arguments that become elements.
//!
//! Deliberately absent: speed. Kernels that compute on every element are typed instead.

use super::walk::{Source, Target, each, signed};
use super::{KernelError, Scalar, fail};
use crate::tensor::{DType, Element};
use half::{bf16, f16};
use num_complex::Complex;

/// The value of an element, exactly.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Int(i64),
    Unsigned(u64),
    Real(f64),
    Complex(f64, f64),
}

impl From<Scalar> for Number {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Bool(value) => Self::Int(value.into()),
            Scalar::Int(value) => Self::Int(value),
            Scalar::Double(value) => Self::Real(value),
        }
    }
}

impl Number {
    /// The number in the first bytes of an element of this kind; `None` for kinds without arithmetic.
    fn read(dtype: DType, bytes: [u8; 16]) -> Option<Self> {
        fn first<T: Element>(bytes: &[u8; 16]) -> T {
            bytemuck::pod_read_unaligned(&bytes[..size_of::<T>()])
        }
        let bytes = &bytes;
        Some(match dtype {
            DType::Bool => Self::Int(i64::from(bytes[0] != 0)),
            DType::UInt8 => Self::Int(bytes[0].into()),
            DType::Int8 => Self::Int(first::<i8>(bytes).into()),
            DType::UInt16 => Self::Int(first::<u16>(bytes).into()),
            DType::Int16 => Self::Int(first::<i16>(bytes).into()),
            DType::UInt32 => Self::Int(first::<u32>(bytes).into()),
            DType::Int32 => Self::Int(first::<i32>(bytes).into()),
            DType::Int64 => Self::Int(first(bytes)),
            DType::UInt64 => Self::Unsigned(first(bytes)),
            DType::Float16 => Self::Real(first::<f16>(bytes).into()),
            DType::BFloat16 => Self::Real(first::<bf16>(bytes).into()),
            DType::Float32 => Self::Real(first::<f32>(bytes).into()),
            DType::Float64 => Self::Real(first(bytes)),
            DType::Complex32 => {
                let value = first::<Complex<f16>>(bytes);
                Self::Complex(value.re.into(), value.im.into())
            }
            DType::Complex64 => {
                let value = first::<Complex<f32>>(bytes);
                Self::Complex(value.re.into(), value.im.into())
            }
            DType::Complex128 => {
                let value = first::<Complex<f64>>(bytes);
                Self::Complex(value.re, value.im)
            }
            _ => return None,
        })
    }

    fn to_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Unsigned(value) => value as f64,
            Self::Real(value) | Self::Complex(value, _) => value,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "rounding to float32 is what is asked for")]
    fn to_f32(self) -> f32 {
        match self {
            Self::Int(value) => value as f32,
            Self::Unsigned(value) => value as f32,
            Self::Real(value) | Self::Complex(value, _) => value as f32,
        }
    }

    fn imaginary(self) -> f64 {
        if let Self::Complex(_, imaginary) = self { imaginary } else { 0.0 }
    }

    /// The whole part, where it is finite and not far out.
    fn whole(self) -> Option<i128> {
        const FAR: f64 = 1e30;
        match self {
            Self::Int(value) => Some(value.into()),
            Self::Unsigned(value) => Some(value.into()),
            #[expect(clippy::cast_possible_truncation, reason = "the whole part of a number below 1e30")]
            Self::Real(value) | Self::Complex(value, _) => (value.abs() < FAR).then_some(value as i128),
        }
    }

    /// An element of this kind, real numbers cut off to whole ones; `None` where it does not fit.
    fn write(self, dtype: DType) -> Option<[u8; 16]> {
        fn bytes<T: Element>(value: T) -> [u8; 16] {
            let mut out = [0; 16];
            out[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
            out
        }
        fn int<T: Element + TryFrom<i128>>(whole: i128) -> Option<[u8; 16]> {
            T::try_from(whole).ok().map(bytes)
        }
        Some(match dtype {
            DType::Bool => bytes(u8::from(self.to_f64() != 0.0 || self.imaginary() != 0.0)),
            DType::UInt8 => return int::<u8>(self.whole()?),
            DType::Int8 => return int::<i8>(self.whole()?),
            DType::UInt16 => return int::<u16>(self.whole()?),
            DType::Int16 => return int::<i16>(self.whole()?),
            DType::UInt32 => return int::<u32>(self.whole()?),
            DType::Int32 => return int::<i32>(self.whole()?),
            DType::UInt64 => return int::<u64>(self.whole()?),
            DType::Int64 => return int::<i64>(self.whole()?),
            DType::Float16 => bytes(f16::from_f32(self.to_f32())),
            DType::BFloat16 => bytes(bf16::from_f32(self.to_f32())),
            DType::Float32 => bytes(self.to_f32()),
            DType::Float64 => bytes(self.to_f64()),
            DType::Complex32 => {
                bytes(Complex::new(f16::from_f32(self.to_f32()), f16::from_f64(self.imaginary())))
            }
            #[expect(clippy::cast_possible_truncation, reason = "rounding to float32 is what is asked for")]
            DType::Complex64 => bytes(Complex::new(self.to_f32(), self.imaginary() as f32)),
            DType::Complex128 => bytes(Complex::new(self.to_f64(), self.imaginary())),
            _ => return None,
        })
    }

    /// An element of a narrower or other integer kind, wrapped as a C conversion wraps.
    fn write_wrapped(self, dtype: DType) -> Option<[u8; 16]> {
        if dtype.is_integer() {
            return self.whole().map(i128::to_le_bytes);
        }
        self.write(dtype)
    }
}

/// The element that a scalar argument becomes, in the first bytes.
///
/// # Errors
/// [`KernelError::Range`] where the number does not fit, [`KernelError::DType`] for kinds without arithmetic.
pub(super) fn element(scalar: Scalar, dtype: DType) -> Result<[u8; 16], KernelError> {
    if Number::read(dtype, [0; 16]).is_none() {
        fail!(DType, "{scalar:?} cannot become an element of {dtype}");
    }
    match Number::from(scalar).write(dtype) {
        Some(element) => Ok(element),
        None => fail!(Range, "{scalar:?} does not fit {dtype}"),
    }
}

/// Converts one element.
///
/// # Errors
/// [`KernelError::DType`] where either kind has no arithmetic.
fn convert(source: &Source<'_>, from: usize, target: &Target<'_>, to: usize) -> Result<(), KernelError> {
    let (input, out) = (source.tensor.dtype(), target.tensor.dtype());
    let mut bytes = [0; 16];
    let cells = &source.bytes[from * input.size_bytes()..][..input.size_bytes()];
    bytes.iter_mut().zip(cells).for_each(|(byte, cell)| *byte = cell.get());
    let Some(bytes) = Number::read(input, bytes).and_then(|number| number.write_wrapped(out)) else {
        fail!(DType, "elements of {input} cannot become {out}");
    };
    let cells = &target.bytes[to * out.size_bytes()..][..out.size_bytes()];
    cells.iter().zip(bytes).for_each(|(cell, byte)| cell.set(byte));
    Ok(())
}

/// Writes `source` to `start + Σ index · strides` of `target`, converting where the kinds differ.
pub(super) fn place(
    target: &Target<'_>,
    source: &Source<'_>,
    start: isize,
    strides: &[isize],
) -> Result<(), KernelError> {
    if source.tensor.dtype() == target.tensor.dtype() {
        return target.scatter(source, start, strides);
    }
    let theirs = signed(&source.tensor.strides());
    each(source.tensor.sizes(), [strides, &theirs], |[to, from]| {
        convert(source, from, target, start as usize + to)
    })
}
