#![forbid(unsafe_code)]
//! The Rust type of each element kind.
//!
//! Deliberately absent: arithmetic. Kernels say how they compute; this says only what bytes mean.

use super::dtype::DType;
use bytemuck::{Pod, Zeroable};

/// A Rust type that one [`DType`] stores.
pub trait Element: Pod {
    /// The kind this type stores.
    const DTYPE: DType;
}

/// A stored truth value: any byte but 0 is true, so that no byte a file holds is invalid.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool(u8);

impl Bool {
    /// The truth value.
    #[inline]
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    #[inline]
    fn from(value: bool) -> Self {
        Self(u8::from(value))
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

macro_rules! element {
    ($($kind:ty => $dtype:ident),+ $(,)?) => {
        $(impl Element for $kind { const DTYPE: DType = DType::$dtype; })+
    };
}

element! {
    u8 => UInt8, i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    u16 => UInt16, u32 => UInt32, u64 => UInt64,
    half::f16 => Float16, half::bf16 => BFloat16, f32 => Float32, f64 => Float64,
    num_complex::Complex<half::f16> => Complex32,
    num_complex::Complex<f32> => Complex64, num_complex::Complex<f64> => Complex128,
    Bool => Bool,
}
