#![forbid(unsafe_code)]
//! Element kinds: their codes in a file, their names, their widths, and how two of them combine.
//!
//! Deliberately absent: the element types themselves (see [`super::element`]) and quantisation parameters.

use core::fmt;

/// The kind of one element, with the code that program files use for it.
///
/// # Source
/// `ScalarType` of the ExecuTorch program schema, version 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each variant is its own documentation; names and widths follow below")]
pub enum DType {
    UInt8 = 0,
    Int8 = 1,
    Int16 = 2,
    Int32 = 3,
    Int64 = 4,
    Float16 = 5,
    Float32 = 6,
    Float64 = 7,
    Complex32 = 8,
    Complex64 = 9,
    Complex128 = 10,
    Bool = 11,
    QInt8 = 12,
    QUInt8 = 13,
    QInt32 = 14,
    BFloat16 = 15,
    QUInt4x2 = 16,
    QUInt2x4 = 17,
    Bits1x8 = 18,
    Bits2x4 = 19,
    Bits4x2 = 20,
    Bits8 = 21,
    Bits16 = 22,
    Float8E5M2 = 23,
    Float8E4M3FN = 24,
    Float8E5M2FNUZ = 25,
    Float8E4M3FNUZ = 26,
    UInt16 = 27,
    UInt32 = 28,
    UInt64 = 29,
}

/// The promotion category of an element kind, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// Truth values.
    Bool,
    /// Signed and unsigned integers.
    Integer,
    /// Real floating point.
    Float,
    /// Complex floating point.
    Complex,
    /// Quantised and raw-bit kinds, which take part in no arithmetic.
    Opaque,
}

/// Code order: code, name as NumPy (or `ml_dtypes`) spells it, bytes per element, category.
const TABLE: [(DType, &str, usize, Category); 30] = {
    use Category::{Bool, Complex, Float, Integer, Opaque};
    [
        (DType::UInt8, "uint8", 1, Integer),
        (DType::Int8, "int8", 1, Integer),
        (DType::Int16, "int16", 2, Integer),
        (DType::Int32, "int32", 4, Integer),
        (DType::Int64, "int64", 8, Integer),
        (DType::Float16, "float16", 2, Float),
        (DType::Float32, "float32", 4, Float),
        (DType::Float64, "float64", 8, Float),
        (DType::Complex32, "complex32", 4, Complex),
        (DType::Complex64, "complex64", 8, Complex),
        (DType::Complex128, "complex128", 16, Complex),
        (DType::Bool, "bool", 1, Bool),
        (DType::QInt8, "qint8", 1, Opaque),
        (DType::QUInt8, "quint8", 1, Opaque),
        (DType::QInt32, "qint32", 4, Opaque),
        (DType::BFloat16, "bfloat16", 2, Float),
        (DType::QUInt4x2, "quint4x2", 1, Opaque),
        (DType::QUInt2x4, "quint2x4", 1, Opaque),
        (DType::Bits1x8, "bits1x8", 1, Opaque),
        (DType::Bits2x4, "bits2x4", 1, Opaque),
        (DType::Bits4x2, "bits4x2", 1, Opaque),
        (DType::Bits8, "bits8", 1, Opaque),
        (DType::Bits16, "bits16", 2, Opaque),
        (DType::Float8E5M2, "float8_e5m2", 1, Float),
        (DType::Float8E4M3FN, "float8_e4m3fn", 1, Float),
        (DType::Float8E5M2FNUZ, "float8_e5m2fnuz", 1, Float),
        (DType::Float8E4M3FNUZ, "float8_e4m3fnuz", 1, Float),
        (DType::UInt16, "uint16", 2, Integer),
        (DType::UInt32, "uint32", 4, Integer),
        (DType::UInt64, "uint64", 8, Integer),
    ]
};

const _: () = {
    let mut code = 0;
    while code < TABLE.len() {
        assert!(TABLE[code].0 as usize == code, "the table is in code order");
        code += 1;
    }
};

impl DType {
    /// Every kind, in code order.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// The kind with this code, or `None` where no kind has it.
    pub const fn from_code(code: i64) -> Option<Self> {
        if code < 0 || code >= TABLE.len() as i64 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "just compared with a length of 30")]
        #[expect(clippy::cast_sign_loss, reason = "just compared with zero")]
        let index = code as usize;
        Some(TABLE[index].0)
    }

    /// The code that program files use.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind with this name, as [`DType::name`] spells it.
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// The name, as NumPy or `ml_dtypes` spells it.
    pub const fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Bytes per element.
    #[inline]
    pub const fn size_bytes(self) -> usize {
        TABLE[self as usize].2
    }

    /// The promotion category.
    #[inline]
    pub const fn category(self) -> Category {
        TABLE[self as usize].3
    }

    /// Whether this is a real floating-point kind.
    pub const fn is_float(self) -> bool {
        matches!(self.category(), Category::Float)
    }

    /// Whether this is an integer kind (`bool` is not).
    pub const fn is_integer(self) -> bool {
        matches!(self.category(), Category::Integer)
    }

    /// Whether this is a complex kind.
    pub const fn is_complex(self) -> bool {
        matches!(self.category(), Category::Complex)
    }

    /// The kind that two operands are computed in: the higher category wins, inside a category the
    /// wider, and an unsigned kind with a signed one
    /// gives the signed one that holds both. `None` for kinds without arithmetic, and where no kind holds both.
    pub const fn promote(self, other: Self) -> Option<Self> {
        use DType::{BFloat16, Float16, Float32, Int8, Int16, Int32, Int64, UInt8};
        if self as u8 == other as u8 {
            return Some(self);
        }
        let (low, high) =
            if (self.category() as u8) <= (other.category() as u8) { (self, other) } else { (other, self) };
        if matches!(high.category(), Category::Opaque) {
            return None;
        }
        if low.category() as u8 != high.category() as u8 {
            // A complex result must also be as wide as the real operand.
            return Some(match (low, high) {
                (DType::Float64, DType::Complex32 | DType::Complex64) => DType::Complex128,
                (Float32 | BFloat16, DType::Complex32) => DType::Complex64,
                _ => high,
            });
        }
        if low.size_bytes() != high.size_bytes() {
            let (narrow, wide) = if low.size_bytes() < high.size_bytes() { (low, high) } else { (high, low) };
            // An unsigned kind needs a wider signed one; the signed kind wins where it is wider.
            return Some(match (narrow, wide) {
                (Int8 | Int16 | Int32, DType::UInt16) => Int32,
                (Int8 | Int16 | Int32, DType::UInt32) => Int64,
                (Int8 | Int16 | Int32, DType::UInt64) => return None,
                _ => wide,
            });
        }
        Some(match (low, high) {
            (Float16, BFloat16) | (BFloat16, Float16) => Float32,
            (UInt8, Int8) | (Int8, UInt8) => Int16,
            (DType::UInt16, Int16) | (Int16, DType::UInt16) => Int32,
            (DType::UInt32, Int32) | (Int32, DType::UInt32) => Int64,
            _ => return None,
        })
    }

    /// Whether a result of this kind may be stored as `target`: not complex as real, not float as
    /// integer, and nothing but `bool` as `bool`.
    pub const fn can_cast_to(self, target: Self) -> bool {
        (self.category() as u8) <= (target.category() as u8)
            || (matches!(self.category(), Category::Integer)
                && matches!(target.category(), Category::Integer))
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
