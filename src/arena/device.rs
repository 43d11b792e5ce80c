#![forbid(unsafe_code)]
//! Typed ranges of memory that the CPU may not reach.
//!
//! Deliberately absent: reading and writing. A range is an address, a count and an element type, for a launch or
//! a copy; it does not dereference.

use super::head::Head;
use super::{Arena, Scope};
use crate::align::checked_range;
use crate::space::{AllocError, MemorySpace};
use core::alloc::Layout;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;

/// `len` elements of type `T` somewhere in a memory space; the address is a number.
///
/// It lives as long as the borrow of its arena or scope, and cannot be read by mistake:
/// ```compile_fail,E0614
/// use arenite::{Arena, HostSpace};
/// let arena = Arena::new(HostSpace::new());
/// let range = arena.alloc_device::<f32>(8).unwrap();
/// let first = *range;
/// ```
#[doc(alias = "device pointer")]
pub struct DevicePtr<'a, T> {
    address: u64,
    len: usize,
    of: PhantomData<&'a mut [T]>,
}

impl<T> DevicePtr<'_, T> {
    /// Where it starts.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// How many elements.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its size in bytes.
    pub const fn size_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Elements `range` of it; `None` where they do not lie within it.
    ///
    /// # Examples
    /// ```
    /// use arenite::{Arena, HostSpace};
    /// let arena = Arena::new(HostSpace::new());
    /// let range = arena.alloc_device::<f32>(8)?;
    /// assert_eq!(range.part(2..6).unwrap().address(), range.address() + 8);
    /// assert!(range.part(2..9).is_none());
    /// # Ok::<(), arenite::AllocError>(())
    /// ```
    pub fn part(&self, range: Range<usize>) -> Option<DevicePtr<'_, T>> {
        let range = checked_range(range.start, range.end.checked_sub(range.start)?, self.len)?;
        let address = self.address + (range.start * size_of::<T>()) as u64;
        Some(DevicePtr { address, len: range.len(), of: PhantomData })
    }
}

impl<T> fmt::Debug for DevicePtr<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, len, .. } = self;
        write!(f, "DevicePtr({address:#x}, {len} × {})", core::any::type_name::<T>())
    }
}

/// Room for `len` elements.
fn take<T, S: MemorySpace>(head: Head<'_, S, false>, len: usize) -> Result<DevicePtr<'_, T>, AllocError> {
    let size_bytes = len.saturating_mul(size_of::<T>());
    let layout = Layout::array::<T>(len)
        .map_err(|_| AllocError::too_large(head.arena.space().id(), size_bytes, align_of::<T>()))?;
    let block = head.by_own(|arena| arena.allocate(layout))?;
    Ok(DevicePtr { address: block.address_bits(), len, of: PhantomData })
}

impl<S: MemorySpace> Arena<S> {
    /// A range of `len` elements in any space, uninitialised.
    ///
    /// # Errors
    /// [`AllocError`], as [`allocate`](Self::allocate).
    pub fn alloc_device<T>(&self, len: usize) -> Result<DevicePtr<'_, T>, AllocError> {
        take(self.any_head(), len)
    }
}

impl<'a, S: MemorySpace> Scope<'a, S> {
    /// A range of `len` elements in any space, uninitialised.
    ///
    /// # Errors
    /// [`AllocError`], as [`allocate`](Arena::allocate).
    pub fn alloc_device<T>(&self, len: usize) -> Result<DevicePtr<'a, T>, AllocError> {
        take(self.head, len)
    }
}
