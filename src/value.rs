#![forbid(unsafe_code)]
//! The values of a method: what its instructions read and write by index.
//!
//! A value is small and `Copy`; what does not fit (list items, text) lies in [`Lists`], beside the
//! table of values, and a value holds the span.
//!
//! Deliberately absent: tensors themselves. A tensor value is an index into the method's tensors, so
//! that two values can name one tensor, as a move instruction wants.

/// The index of a value in its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The absent item of an optional tensor list.
    pub const ABSENT: Self = Self(u32::MAX);

    /// As an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A run of items in one of the [`Lists`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first item.
    pub start: u32,
    /// How many.
    pub len: u32,
}

impl Span {
    /// The items of this run.
    #[inline]
    pub fn of<T>(self, items: &[T]) -> &[T] {
        items.get(self.start as usize..self.start as usize + self.len as usize).unwrap_or_default()
    }
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing.
    None,
    /// A whole number; also a variable, since primitive operators write it.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A real number.
    Double(f64),
    /// Text, in [`Lists::text`].
    Text(Span),
    /// An index into the method's tensors.
    Tensor(u32),
    /// Value ids in [`Lists::ids`]; each names an `Int`, read anew at each use.
    IntList(Span),
    /// Numbers in [`Lists::doubles`].
    DoubleList(Span),
    /// Truth values in [`Lists::bools`].
    BoolList(Span),
    /// Value ids in [`Lists::ids`]; each names a `Tensor`.
    TensorList(Span),
    /// Value ids in [`Lists::ids`]; each names a `Tensor` or is [`ValueId::ABSENT`].
    OptionalTensorList(Span),
}

impl Value {
    /// The kind, as error messages name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Int(_) => "int",
            Self::Bool(_) => "bool",
            Self::Double(_) => "float",
            Self::Text(_) => "str",
            Self::Tensor(_) => "tensor",
            Self::IntList(_) => "list of int",
            Self::DoubleList(_) => "list of float",
            Self::BoolList(_) => "list of bool",
            Self::TensorList(_) => "list of tensor",
            Self::OptionalTensorList(_) => "list of optional tensor",
        }
    }
}

/// The items of every list value of a method, and its text.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// Items of integer and tensor lists, and the arguments of instructions.
    pub ids: Vec<ValueId>,
    /// Items of `DoubleList`s.
    pub doubles: Vec<f64>,
    /// Items of `BoolList`s.
    pub bools: Vec<bool>,
    /// The bytes of all text.
    pub text: String,
}

impl Lists {
    /// The text of a span; empty where the span is not on character boundaries.
    pub fn text(&self, span: Span) -> &str {
        self.text.get(span.start as usize..span.start as usize + span.len as usize).unwrap_or_default()
    }
}

const _: () = assert!(size_of::<Value>() == 16, "a value stays two words");
