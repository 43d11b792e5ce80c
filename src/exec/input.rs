//! What goes into a run, and what comes out.
//!
//! ```text
//!   Input ──checked──► planned bytes (copied) or the caller's own bytes (borrowed) ──run──► Output
//! ```
//!
//! Deliberately absent: frameworks. A binding turns its arrays into a [`TensorInput`].

use crate::space::SpaceId;
use crate::tensor::{DType, Element, Tensor};
use core::marker::PhantomData;

/// One input of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Input<'a> {
    /// Nothing.
    None,
    /// A whole number; must equal the one frozen at export.
    Int(i64),
    /// A truth value; must equal the one frozen at export.
    Bool(bool),
    /// A real number; must be close to the one frozen at export.
    Double(f64),
    /// Text; must equal the one frozen at export.
    Text(&'a str),
    /// A tensor, of any strides.
    Tensor(TensorInput<'a>),
}

impl Input<'_> {
    /// The kind, as error messages name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Int(_) => "int",
            Self::Bool(_) => "bool",
            Self::Double(_) => "float",
            Self::Text(_) => "str",
            Self::Tensor(_) => "tensor",
        }
    }
}

/// A borrowed tensor of any strides. Sizes are in elements, strides in bytes.
#[derive(Clone, Copy, Debug)]
pub struct TensorInput<'a> {
    address: *const u8,
    dtype: DType,
    sizes: &'a [usize],
    strides_bytes: &'a [isize],
    space: SpaceId,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> TensorInput<'a> {
    /// A tensor at `address`, whose element `i, j, …` is at `address + i·strides[0] + j·strides[1] + …`.
    ///
    /// # Safety
    /// * Each element named by `sizes` and `strides_bytes` is valid for reads and initialised for `'a`;
    ///   in host memory unless `space` is a space that the CPU does not reach.
    /// * No element is written while `'a` lasts.
    /// * `sizes` and `strides_bytes` have one entry per dimension.
    pub unsafe fn new(
        address: *const u8,
        dtype: DType,
        sizes: &'a [usize],
        strides_bytes: &'a [isize],
        space: SpaceId,
    ) -> Self {
        debug_assert_eq!(sizes.len(), strides_bytes.len(), "one stride per dimension");
        Self { address, dtype, sizes, strides_bytes, space, bytes: PhantomData }
    }

    /// A row-major host tensor over a slice; `None` unless `sizes` name just its elements and
    /// `strides_bytes`, a place for the strides, has one entry per dimension.
    ///
    /// # Examples
    /// ```
    /// use arenite::exec::TensorInput;
    /// let (values, mut strides) = ([1.0_f32, 2.0, 3.0], [0]);
    /// let input = TensorInput::row_major(&values, &[3], &mut strides).unwrap();
    /// assert_eq!(input.sizes(), [3]);
    /// ```
    pub fn row_major<T: Element>(
        values: &'a [T],
        sizes: &'a [usize],
        strides_bytes: &'a mut [isize],
    ) -> Option<Self> {
        if sizes.len() != strides_bytes.len() || crate::tensor::shape::numel(sizes)? != values.len() {
            return None;
        }
        let mut step = isize::try_from(size_of::<T>()).ok()?;
        for (stride, &size) in strides_bytes.iter_mut().zip(sizes).rev() {
            *stride = step;
            step = step.checked_mul(isize::try_from(size.max(1)).ok()?)?;
        }
        // SAFETY: the strides are those of a gapless tensor of `values.len()` elements, all inside `values`,
        // which is borrowed for `'a`.
        Some(unsafe {
            Self::new(values.as_ptr().cast::<u8>(), T::DTYPE, sizes, strides_bytes, SpaceId::HOST)
        })
    }

    /// Where the element at index 0, 0, … is.
    pub fn address(&self) -> *const u8 {
        self.address
    }

    /// The element kind.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Counts per dimension.
    pub fn sizes(&self) -> &'a [usize] {
        self.sizes
    }

    /// Steps per dimension, in bytes; may be negative or zero.
    pub fn strides_bytes(&self) -> &'a [isize] {
        self.strides_bytes
    }

    /// Where the elements are.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Whether the elements lie gapless in the order of `target`'s current dimensions.
    pub(crate) fn lies_as(&self, target_strides: &[usize]) -> bool {
        let width = self.dtype.size_bytes();
        self.sizes.iter().zip(self.strides_bytes).zip(target_strides).all(|((&size, &stride), &wanted)| {
            size <= 1 || usize::try_from(stride).is_ok_and(|stride| stride == wanted * width)
        })
    }
}

/// One output of a run. Tensors are borrowed; copy what must outlast the next run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Output<'a> {
    /// Nothing.
    None,
    /// A whole number.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A real number.
    Double(f64),
    /// Text.
    Text(&'a str),
    /// A tensor.
    Tensor(&'a Tensor),
}
