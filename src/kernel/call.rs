#![forbid(unsafe_code)]
//! One call of a kernel: its arguments, read by position.
//!
//! A kernel first works out and sets the sizes of its outputs ([`KernelCall::resize`]), then takes its
//! tensors, all by shared reference, and writes through their cells.

use super::{KernelError, Scratch};
use crate::tensor::{DType, Dims, RANK_MAX, Tensor};
use crate::value::{Lists, Value, ValueId};
use core::ops::Deref;

/// The most items an integer-list argument may have: two per dimension, as padding wants.
pub const INT_LIST_MAX: usize = 2 * RANK_MAX;

/// A number argument, with the kind it came as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A real number.
    Double(f64),
}

impl Scalar {
    /// As a real number.
    #[expect(clippy::cast_precision_loss, reason = "as the reference runtime converts")]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Bool(value) => f64::from(u8::from(value)),
            Self::Int(value) => value as f64,
            Self::Double(value) => value,
        }
    }

    /// The element kind this scalar has by itself: `bool`, `int64` or `float32`.
    pub fn dtype(self) -> DType {
        match self {
            Self::Bool(_) => DType::Bool,
            Self::Int(_) => DType::Int64,
            Self::Double(_) => DType::Float32,
        }
    }
}

/// The items of an integer-list argument, inline.
#[derive(Clone, Copy, Debug)]
pub struct IntItems {
    len: usize,
    items: [i64; INT_LIST_MAX],
}

impl Deref for IntItems {
    type Target = [i64];
    fn deref(&self) -> &[i64] {
        &self.items[..self.len]
    }
}

/// One call of a kernel.
#[derive(Debug)]
pub struct KernelCall<'a> {
    values: &'a mut [Value],
    tensors: &'a mut [Tensor],
    lists: &'a Lists,
    args: &'a [ValueId],
    scratch: Scratch<'a>,
}

impl<'a> KernelCall<'a> {
    /// A call with these arguments over a method's values, tensors and lists.
    #[inline]
    pub fn new(
        values: &'a mut [Value],
        tensors: &'a mut [Tensor],
        lists: &'a Lists,
        args: &'a [ValueId],
        scratch: Scratch<'a>,
    ) -> Self {
        Self { values, tensors, lists, args, scratch }
    }

    /// How many arguments came.
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Whether no arguments came.
    pub fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    /// Temporary host memory, until this instruction ends.
    pub fn scratch(&self) -> Scratch<'a> {
        self.scratch
    }

    /// The value of argument `index`; `None` where there is none.
    #[inline]
    pub fn value(&self, index: usize) -> Value {
        self.args.get(index).and_then(|id| self.values.get(id.index())).copied().unwrap_or(Value::None)
    }

    fn unexpected(&self, index: usize, expected: &'static str) -> KernelError {
        KernelError::Argument { index, expected, got: self.value(index).kind() }
    }

    #[inline]
    fn tensor_at(&self, index: usize, value: Value) -> Result<&Tensor, KernelError> {
        match value {
            Value::Tensor(at) => self.tensors.get(at as usize),
            _ => None,
        }
        .ok_or_else(|| self.unexpected(index, "tensor"))
    }

    /// The tensor of argument `index`.
    ///
    /// # Errors
    /// [`KernelError::Argument`] where it is no tensor; as does each accessor below.
    #[inline]
    pub fn tensor(&self, index: usize) -> Result<&Tensor, KernelError> {
        self.tensor_at(index, self.value(index))
    }

    /// The tensor of argument `index`, or `None`.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn optional_tensor(&self, index: usize) -> Result<Option<&Tensor>, KernelError> {
        match self.value(index) {
            Value::None => Ok(None),
            value => self.tensor_at(index, value).map(Some),
        }
    }

    fn list(&self, index: usize, expected: &'static str) -> Result<&'a [ValueId], KernelError> {
        match self.value(index) {
            Value::TensorList(span) | Value::OptionalTensorList(span) => Ok(span.of(&self.lists.ids)),
            _ => Err(self.unexpected(index, expected)),
        }
    }

    /// How many tensors the list of argument `index` has.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn list_len(&self, index: usize) -> Result<usize, KernelError> {
        Ok(self.list(index, "list of tensor")?.len())
    }

    /// Tensor `item` of the list of argument `index`; `None` where that item is absent.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn list_tensor(&self, index: usize, item: usize) -> Result<Option<&Tensor>, KernelError> {
        let ids = self.list(index, "list of tensor")?;
        match ids.get(item).and_then(|id| self.values.get(id.index())) {
            Some(&value @ Value::Tensor(_)) => self.tensor_at(index, value).map(Some),
            _ => Ok(None),
        }
    }

    /// The tensors of the list of argument `index`, absent items left out.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn tensors(&self, index: usize) -> Result<impl Iterator<Item = &Tensor> + Clone, KernelError> {
        let ids = self.list(index, "list of tensor")?;
        let (values, tensors) = (&*self.values, &*self.tensors);
        Ok(ids.iter().filter_map(move |id| match values.get(id.index()) {
            Some(&Value::Tensor(at)) => tensors.get(at as usize),
            _ => None,
        }))
    }

    /// The number of argument `index`.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn scalar(&self, index: usize) -> Result<Scalar, KernelError> {
        self.optional_scalar(index)?.ok_or_else(|| self.unexpected(index, "int, float or bool"))
    }

    /// The number of argument `index`, or `None`.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn optional_scalar(&self, index: usize) -> Result<Option<Scalar>, KernelError> {
        match self.value(index) {
            Value::None => Ok(None),
            Value::Bool(value) => Ok(Some(Scalar::Bool(value))),
            Value::Int(value) => Ok(Some(Scalar::Int(value))),
            Value::Double(value) => Ok(Some(Scalar::Double(value))),
            _ => Err(self.unexpected(index, "int, float or bool")),
        }
    }

    /// The whole number of argument `index`.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn int(&self, index: usize) -> Result<i64, KernelError> {
        self.optional_int(index)?.ok_or_else(|| self.unexpected(index, "int"))
    }

    /// The whole number of argument `index`, or `None`.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn optional_int(&self, index: usize) -> Result<Option<i64>, KernelError> {
        match self.value(index) {
            Value::None => Ok(None),
            Value::Int(value) => Ok(Some(value)),
            _ => Err(self.unexpected(index, "int")),
        }
    }

    /// The real number of argument `index`.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn float(&self, index: usize) -> Result<f64, KernelError> {
        match self.value(index) {
            Value::Double(value) => Ok(value),
            #[expect(clippy::cast_precision_loss, reason = "as the reference runtime converts")]
            Value::Int(value) => Ok(value as f64),
            _ => Err(self.unexpected(index, "float")),
        }
    }

    /// The truth value of argument `index`.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn bool(&self, index: usize) -> Result<bool, KernelError> {
        match self.value(index) {
            Value::Bool(value) => Ok(value),
            _ => Err(self.unexpected(index, "bool")),
        }
    }

    /// The text of argument `index`.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn text(&self, index: usize) -> Result<&'a str, KernelError> {
        match self.value(index) {
            Value::Text(span) => Ok(self.lists.text(span)),
            _ => Err(self.unexpected(index, "str")),
        }
    }

    /// The whole numbers of argument `index`, read from their values now.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`], and [`KernelError::Range`] past [`INT_LIST_MAX`] items.
    pub fn ints(&self, index: usize) -> Result<IntItems, KernelError> {
        self.optional_ints(index)?.ok_or_else(|| self.unexpected(index, "list of int"))
    }

    /// The whole numbers of argument `index`, or `None`.
    ///
    /// # Errors
    /// As [`KernelCall::ints`].
    pub fn optional_ints(&self, index: usize) -> Result<Option<IntItems>, KernelError> {
        let span = match self.value(index) {
            Value::None => return Ok(None),
            Value::IntList(span) => span,
            _ => return Err(self.unexpected(index, "list of int")),
        };
        let ids = span.of(&self.lists.ids);
        if ids.len() > INT_LIST_MAX {
            return Err(KernelError::Range(format!(
                "argument {index} has {} items, at most {INT_LIST_MAX} are taken",
                ids.len()
            )));
        }
        let mut out = IntItems { len: ids.len(), items: [0; INT_LIST_MAX] };
        for (slot, id) in out.items.iter_mut().zip(ids) {
            match self.values.get(id.index()) {
                Some(&Value::Int(value)) => *slot = value,
                other => {
                    let got = other.map_or("nothing", Value::kind);
                    return Err(KernelError::Argument { index, expected: "list of int", got });
                }
            }
        }
        Ok(Some(out))
    }

    /// The real numbers of argument `index`, or `None`.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn optional_floats(&self, index: usize) -> Result<Option<&'a [f64]>, KernelError> {
        match self.value(index) {
            Value::None => Ok(None),
            Value::DoubleList(span) => Ok(Some(span.of(&self.lists.doubles))),
            _ => Err(self.unexpected(index, "list of float")),
        }
    }

    /// The truth values of argument `index`.
    ///
    /// # Errors
    /// As [`KernelCall::tensor`].
    pub fn bools(&self, index: usize) -> Result<&'a [bool], KernelError> {
        match self.value(index) {
            Value::BoolList(span) => Ok(span.of(&self.lists.bools)),
            _ => Err(self.unexpected(index, "list of bool")),
        }
    }

    /// Sets the sizes of the tensor of argument `index`.
    ///
    /// # Errors
    /// [`KernelError::Argument`], or [`KernelError::Tensor`] where the sizes are not within its bound.
    #[inline]
    pub fn resize(&mut self, index: usize, sizes: &[usize]) -> Result<(), KernelError> {
        let value = self.value(index);
        match value {
            Value::Tensor(at) => self.tensors.get_mut(at as usize),
            _ => None,
        }
        .ok_or(KernelError::Argument { index, expected: "tensor", got: value.kind() })?
        .resize(sizes)
        .map_err(|source| KernelError::Tensor { index, source })
    }

    /// Sets the sizes of tensor `item` of the list of argument `index`.
    ///
    /// # Errors
    /// As [`KernelCall::resize`].
    pub fn resize_item(&mut self, index: usize, item: usize, sizes: &[usize]) -> Result<(), KernelError> {
        let id = self.list(index, "list of tensor")?.get(item).copied().unwrap_or(ValueId::ABSENT);
        match self.values.get(id.index()) {
            Some(&Value::Tensor(at)) => self.tensors.get_mut(at as usize),
            _ => None,
        }
        .ok_or(KernelError::Argument { index, expected: "list of tensor", got: "an absent item" })?
        .resize(sizes)
        .map_err(|source| KernelError::Tensor { index, source })
    }

    /// Sets the value of argument `index`: primitive operators write their result so.
    ///
    /// # Errors
    /// [`KernelError::Argument`] where there is no such argument.
    pub fn set(&mut self, index: usize, value: Value) -> Result<(), KernelError> {
        let slot = self.args.get(index).and_then(|id| self.values.get_mut(id.index()));
        *slot.ok_or(KernelError::Argument { index, expected: "a value to write", got: "nothing" })? = value;
        Ok(())
    }

    /// Makes the tensor of argument `out` name the bytes of the tensor of argument `input`, with `sizes`.
    /// Gives `false` where `out` has memory of its own: copy then.
    ///
    /// # Errors
    /// As [`KernelCall::resize`].
    pub fn alias(&mut self, out: usize, input: usize, sizes: &Dims) -> Result<bool, KernelError> {
        self.resize(out, sizes)?;
        let (Value::Tensor(to), Value::Tensor(from)) = (self.value(out), self.value(input)) else {
            return Err(self.unexpected(input, "tensor"));
        };
        Ok(to == from
            || self
                .tensors
                .get_disjoint_mut([to as usize, from as usize])
                .is_ok_and(|[to, from]| to.alias(from)))
    }
}
