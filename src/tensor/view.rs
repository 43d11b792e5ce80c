//! A tensor: element kind, sizes, order, and the bytes it names.
//!
//! ```text
//!   Tensor ── dtype, sizes (now), bound (most), dim order
//!      └────► address ──► [ bytes of a planned buffer │ of a mapped file │ of the caller ]
//! ```
//!
//! Planned memory overlaps by design: two tensors may name the same bytes at different times, and a
//! hostile plan may make them overlap at the same time. Elements are therefore read and written through
//! [`Cell`]s, for which overlap is well defined; no `&mut` to planned memory is ever made here.
//!
//! Deliberately absent: ownership. Who holds the memory says so where it binds it.
//!
//! # Invariants
//! * **T1** Where `address` is set and `space` is host-accessible, it is valid for reads of
//!   `capacity_bytes` initialised bytes for as long as it stays bound, and for writes where `writable`.
//! * **T2** No other thread touches those bytes while this tensor is borrowed.
//! * **T3** `numel` is the product of `sizes` and at most the product of `bound`.
//! * **T4** An alias names bytes that another tensor's owner keeps valid until it is unbound.

use super::dtype::DType;
use super::element::Element;
use super::error::TensorError;
use super::shape::{DimOrder, Dims, contiguous_order, is_permutation, numel, same_places, strides};
use crate::space::SpaceId;
use core::cell::Cell;
use core::ptr::NonNull;

/// An element that may be read, never written: constants are mapped read-only.
#[repr(transparent)]
pub struct ReadCell<T>(Cell<T>);

impl<T: Copy + core::fmt::Debug> core::fmt::Debug for ReadCell<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.get().fmt(f)
    }
}

impl<T: Copy> ReadCell<T> {
    /// The element.
    #[inline(always)]
    pub fn get(&self) -> T {
        self.0.get()
    }
}

impl<T> ReadCell<T> {
    /// The same cells, for reading.
    #[inline]
    pub fn from_cells(cells: &[Cell<T>]) -> &[Self] {
        // SAFETY: `ReadCell` is transparent over `Cell`, and gives away less.
        unsafe { core::slice::from_raw_parts(cells.as_ptr().cast::<Self>(), cells.len()) }
    }
}

/// Element kind, sizes and order of some bytes, and where they are.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is read alone in the hot path of a kernel")]
pub struct Tensor {
    address: Option<NonNull<u8>>,
    capacity_bytes: usize,
    numel: usize,
    numel_max: usize,
    dtype: DType,
    writable: bool,
    host: bool,
    dynamic: bool,
    row_major: bool,
    is_alias: bool,
    space: SpaceId,
    sizes: Dims,
    bound: Dims,
    order: DimOrder,
}

impl Tensor {
    /// A tensor without memory. `sizes` are its sizes now and, where `dynamic`, the most it may have.
    /// `None` where the sizes overflow or `order` is no permutation of the dimensions.
    pub fn new(dtype: DType, sizes: &[usize], order: &[u8], dynamic: bool) -> Option<Self> {
        if sizes.len() != order.len() || !is_permutation(order) {
            return None;
        }
        let count = numel(sizes)?;
        count.checked_mul(dtype.size_bytes())?;
        let sizes = Dims::new(sizes)?;
        let mut tensor = Self {
            address: None,
            capacity_bytes: 0,
            numel: count,
            numel_max: count,
            dtype,
            writable: false,
            host: true,
            dynamic,
            row_major: false,
            is_alias: false,
            space: SpaceId::HOST,
            sizes,
            bound: sizes,
            order: DimOrder::new(order)?,
        };
        tensor.row_major = tensor.is_laid_out_as(&contiguous_order(sizes.len())?);
        Some(tensor)
    }

    /// Gives the tensor memory: `capacity_bytes` from `address` on, in `space`.
    ///
    /// # Safety
    /// Until the tensor is bound anew, unbound or dropped:
    /// * where the CPU reaches `space`, the range is valid for reads, and for writes if `writable`,
    ///   and its bytes are initialised;
    /// * while bytes are reached through `self`, no other thread writes the range, nor reads it if `writable`;
    /// * no Rust reference other than through [`Tensor`]s covers the range while `self` is borrowed.
    pub unsafe fn bind(
        &mut self,
        address: NonNull<u8>,
        capacity_bytes: usize,
        space: SpaceId,
        writable: bool,
    ) {
        self.is_alias = false;
        self.address = Some(address);
        self.capacity_bytes = capacity_bytes;
        self.space = space;
        self.host = space.is_host();
        self.writable = writable;
    }

    /// Names the bytes that `other` names, as a view does, with the same rights, until
    /// [`Tensor::unbind`]. Gives `false`, and changes nothing, where this tensor has memory of its own.
    ///
    /// Whoever owns the memory unbinds aliases before it ends: the executor does so after each run (T4).
    pub(crate) fn alias(&mut self, other: &Self) -> bool {
        if self.address.is_some() && !self.is_alias {
            return false;
        }
        self.is_alias = true;
        self.address = other.address;
        self.capacity_bytes = other.capacity_bytes;
        self.space = other.space;
        self.host = other.host;
        self.writable = other.writable;
        true
    }

    /// Whether this names bytes of another tensor.
    pub(crate) fn is_alias(&self) -> bool {
        self.is_alias
    }

    /// Takes the memory away.
    pub fn unbind(&mut self) {
        self.is_alias = false;
        self.address = None;
        self.capacity_bytes = 0;
    }

    /// The element kind.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes now.
    #[inline]
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The most each dimension may have; equal to the sizes of a static tensor.
    pub fn bound(&self) -> &[usize] {
        &self.bound
    }

    /// Whether the sizes may change from run to run.
    pub fn is_dynamic(&self) -> bool {
        self.dynamic
    }

    /// The number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// The dimension stored at each position, outermost first.
    pub fn order(&self) -> &[u8] {
        &self.order
    }

    /// Strides in elements.
    pub fn strides(&self) -> Dims {
        strides(&self.sizes, &self.order)
    }

    /// The number of elements now.
    #[inline]
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// The bytes of the elements now.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.numel * self.dtype.size_bytes()
    }

    /// The most bytes the elements may take.
    pub fn size_bytes_max(&self) -> usize {
        self.numel_max * self.dtype.size_bytes()
    }

    /// Whether elements lie in row-major order; dimensions of size 1 do not count.
    #[inline]
    pub fn is_row_major(&self) -> bool {
        self.row_major
    }

    /// Whether elements lie where a tensor of this order would have them.
    pub fn is_laid_out_as(&self, order: &[u8]) -> bool {
        order.len() == self.order.len() && same_places(&self.sizes, &self.order, order)
    }

    /// Whether both have the same sizes and put elements at the same places.
    #[inline]
    pub fn matches_layout(&self, other: &Self) -> bool {
        self.sizes == other.sizes
            && ((self.row_major && other.row_major) || self.is_laid_out_as(&other.order))
    }

    /// Where the first element is, if memory was given. Not necessarily readable by the CPU.
    #[inline]
    pub fn address(&self) -> Option<NonNull<u8>> {
        self.address
    }

    /// The bytes that were given.
    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// The space of the memory.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Whether elements may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Changes the sizes, within what was declared.
    ///
    /// # Errors
    /// [`TensorError::Rank`], [`TensorError::Static`], [`TensorError::Bound`]. Nothing changed then.
    ///
    /// # Source
    /// `resize_tensor` of the ExecuTorch runtime: a bounded tensor is bounded by its element count.
    #[inline]
    pub fn resize(&mut self, sizes: &[usize]) -> Result<(), TensorError> {
        if *self.sizes == *sizes { Ok(()) } else { self.resize_to_other(sizes) }
    }

    #[cold]
    fn resize_to_other(&mut self, sizes: &[usize]) -> Result<(), TensorError> {
        if sizes.len() != self.sizes.len() {
            return Err(TensorError::Rank { expected: self.sizes.len(), got: sizes.len() });
        }
        let got = Dims::new(sizes).unwrap_or_else(Dims::empty);
        if !self.dynamic {
            return Err(TensorError::Static { expected: (*self.sizes).into(), got: sizes.into() });
        }
        let count = numel(sizes).filter(|&count| count <= self.numel_max).ok_or_else(|| {
            TensorError::Bound { bound: (*self.bound).into(), numel_max: self.numel_max, got: sizes.into() }
        })?;
        self.sizes = got;
        self.numel = count;
        self.row_major = contiguous_order(got.len()).is_some_and(|order| self.is_laid_out_as(&order));
        Ok(())
    }

    /// The elements in memory order, for reading.
    ///
    /// # Errors
    /// [`TensorError`] unless the elements are `T`, in host memory that was given, aligned, and inside it.
    #[inline]
    pub fn read<T: Element>(&self) -> Result<&[ReadCell<T>], TensorError> {
        self.check_kind::<T>()?;
        let address = self.checked_address(core::mem::align_of::<T>())?;
        // SAFETY:
        // * `checked_address` proved that `numel` elements lie inside the bound range, that the CPU
        //   reaches it and that it is aligned; T1 makes it readable and initialised, `T: Pod` makes any
        //   bytes valid;
        // * `ReadCell` is transparent over `Cell`, so writes through other tensors are allowed meanwhile;
        // * T2 rules out other threads; the result borrows `self`.
        Ok(unsafe { core::slice::from_raw_parts(address.cast::<ReadCell<T>>().as_ptr(), self.numel) })
    }

    /// The elements in memory order, for reading and writing.
    ///
    /// # Errors
    /// As [`Tensor::read`], and [`TensorError::ReadOnly`].
    #[inline]
    pub fn write<T: Element>(&self) -> Result<&[Cell<T>], TensorError> {
        self.check_kind::<T>()?;
        if !self.writable {
            return Err(TensorError::ReadOnly);
        }
        let address = self.checked_address(core::mem::align_of::<T>())?;
        // SAFETY: as in `read`; T1 makes the range writable, since `writable` is set.
        Ok(unsafe { core::slice::from_raw_parts(address.cast::<Cell<T>>().as_ptr(), self.numel) })
    }

    /// The bytes of the elements in memory order, for reading.
    ///
    /// # Errors
    /// As [`Tensor::read`], whatever the kind.
    pub fn read_bytes(&self) -> Result<&[ReadCell<u8>], TensorError> {
        let address = self.checked_address(1)?;
        // SAFETY: as in `read`, for bytes.
        Ok(unsafe { core::slice::from_raw_parts(address.cast::<ReadCell<u8>>().as_ptr(), self.size_bytes()) })
    }

    /// The bytes of the elements in memory order, for reading and writing.
    ///
    /// # Errors
    /// As [`Tensor::write`], whatever the kind.
    pub fn write_bytes(&self) -> Result<&[Cell<u8>], TensorError> {
        if !self.writable {
            return Err(TensorError::ReadOnly);
        }
        let address = self.checked_address(1)?;
        // SAFETY: as in `write`, for bytes.
        Ok(unsafe { core::slice::from_raw_parts(address.cast::<Cell<u8>>().as_ptr(), self.size_bytes()) })
    }

    #[inline]
    fn check_kind<T: Element>(&self) -> Result<(), TensorError> {
        if self.dtype == T::DTYPE {
            Ok(())
        } else {
            Err(TensorError::DType { expected: T::DTYPE, got: self.dtype })
        }
    }

    /// The address, once the elements are known to be in reach, aligned and inside the bound range.
    #[inline]
    fn checked_address(&self, alignment: usize) -> Result<NonNull<u8>, TensorError> {
        if !self.host {
            return Err(TensorError::NotHost(self.space));
        }
        if self.numel == 0 {
            return Ok(NonNull::<u128>::dangling().cast());
        }
        let address = self.address.ok_or(TensorError::Unset)?;
        if self.size_bytes() > self.capacity_bytes {
            return Err(TensorError::TooSmall {
                needed_bytes: self.size_bytes(),
                held_bytes: self.capacity_bytes,
            });
        }
        if !address.addr().get().is_multiple_of(alignment) {
            return Err(TensorError::Misaligned { alignment });
        }
        Ok(address)
    }
}

/// Copies `source` over `target`, element by element in memory order; both may name the same bytes.
/// The shorter length decides.
#[inline]
pub fn copy_cells<T: Copy>(target: &[Cell<T>], source: &[ReadCell<T>]) {
    let count = target.len().min(source.len());
    // SAFETY:
    // * both slices hold at least `count` initialised elements of `T`, and a `Cell` may be written
    //   through a shared reference on this thread;
    // * `copy` allows the ranges to overlap; `ReadCell` and `Cell` are transparent over `T`.
    unsafe {
        core::ptr::copy(source.as_ptr().cast::<T>(), target.as_ptr().cast::<T>().cast_mut(), count);
    }
}
