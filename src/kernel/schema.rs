#![forbid(unsafe_code)]
//! What a kernel takes: the kinds of its arguments, checked once at load.
//!
//! Deliberately absent: default values. The exporter writes every argument.

use crate::value::Value;

/// The kind of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arg {
    /// A tensor that is read.
    Tensor,
    /// A tensor that is read, or `None`.
    OptionalTensor,
    /// A tensor that is written whole; what it held before does not matter.
    Out,
    /// A tensor that is read and written.
    InOut,
    /// Tensors that are read.
    TensorList,
    /// Tensors that are read, some of them absent.
    OptionalTensorList,
    /// Tensors that are written whole.
    OutList,
    /// `Int`, `Double` or `Bool`.
    Scalar,
    /// `Int`, `Double`, `Bool` or `None`.
    OptionalScalar,
    /// `Int`.
    Int,
    /// `Int` or `None`.
    OptionalInt,
    /// `Double`; an `Int` is taken too.
    Float,
    /// `Double`, `Int` or `None`.
    OptionalFloat,
    /// `Bool`.
    Bool,
    /// Text.
    Text,
    /// Text or `None`.
    OptionalText,
    /// A list of `Int`.
    IntList,
    /// A list of `Int`, or `None`.
    OptionalIntList,
    /// A list of numbers, or `None`.
    OptionalFloatList,
    /// A list of truth values.
    BoolList,
    /// A value that is written: `Int`, `Double` or `Bool` (primitive operators).
    Result,
}

impl Arg {
    /// What a message calls this kind.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Tensor | Self::Out | Self::InOut => "tensor",
            Self::OptionalTensor => "tensor or None",
            Self::TensorList | Self::OutList => "list of tensor",
            Self::OptionalTensorList => "list of optional tensor",
            Self::Scalar => "int, float or bool",
            Self::OptionalScalar => "int, float, bool or None",
            Self::Int => "int",
            Self::OptionalInt => "int or None",
            Self::Float => "float",
            Self::OptionalFloat => "float or None",
            Self::Bool => "bool",
            Self::Text => "str",
            Self::OptionalText => "str or None",
            Self::IntList => "list of int",
            Self::OptionalIntList => "list of int or None",
            Self::OptionalFloatList => "list of float or None",
            Self::BoolList => "list of bool",
            Self::Result => "int, float or bool to write",
        }
    }

    /// Whether a value of this kind fits.
    pub fn accepts(self, value: &Value) -> bool {
        use Value as V;
        match self {
            Self::Tensor | Self::Out | Self::InOut => matches!(value, V::Tensor(_)),
            Self::OptionalTensor => matches!(value, V::Tensor(_) | V::None),
            Self::TensorList | Self::OutList => matches!(value, V::TensorList(_)),
            Self::OptionalTensorList => matches!(value, V::OptionalTensorList(_) | V::TensorList(_)),
            Self::Scalar => matches!(value, V::Int(_) | V::Double(_) | V::Bool(_)),
            Self::OptionalScalar => matches!(value, V::Int(_) | V::Double(_) | V::Bool(_) | V::None),
            Self::Int => matches!(value, V::Int(_)),
            Self::OptionalInt => matches!(value, V::Int(_) | V::None),
            Self::Float => matches!(value, V::Double(_) | V::Int(_)),
            Self::OptionalFloat => matches!(value, V::Double(_) | V::Int(_) | V::None),
            Self::Bool => matches!(value, V::Bool(_)),
            Self::Text => matches!(value, V::Text(_)),
            Self::OptionalText => matches!(value, V::Text(_) | V::None),
            Self::IntList => matches!(value, V::IntList(_)),
            Self::OptionalIntList => matches!(value, V::IntList(_) | V::None),
            Self::OptionalFloatList => matches!(value, V::DoubleList(_) | V::None),
            Self::BoolList => matches!(value, V::BoolList(_)),
            Self::Result => matches!(value, V::Int(_) | V::Double(_) | V::Bool(_) | V::None),
        }
    }

    /// Whether the kernel writes the tensor or tensors of this argument.
    pub fn is_written(self) -> bool {
        matches!(self, Self::Out | Self::InOut | Self::OutList)
    }

    /// Whether the kernel reads the tensor or tensors of this argument.
    pub fn is_read(self) -> bool {
        matches!(
            self,
            Self::Tensor | Self::OptionalTensor | Self::InOut | Self::TensorList | Self::OptionalTensorList
        )
    }
}
