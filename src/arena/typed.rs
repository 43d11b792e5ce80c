//! Typed allocation, for spaces that the CPU reaches.
//!
//! Every call comes twice: on [`Arena`], where the result borrows the arena, and on [`Scope`], where it
//! lives as long as the scope. `try_` twins give the error where the plain form panics; both are one path.
//!
//! Deliberately absent: destructors. What is allocated here is never dropped, only taken back.

use super::{Arena, Scope};
use crate::space::{AllocError, HostAccessible};
use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

impl<S: HostAccessible> Arena<S> {
    /// Room for one `T`.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
    fn slot<T>(&self) -> &mut MaybeUninit<T> {
        let address = self.bump_or_panic(Layout::new::<T>());
        // SAFETY:
        // * the block has the size and alignment of `T` and is valid memory (A1, `HostAccessible`);
        // * it is given out once (A3), and not taken back while `self` is borrowed.
        unsafe { address.cast::<MaybeUninit<T>>().as_mut() }
    }

    /// Moves `value` in.
    ///
    /// The slow path takes a small value along, so that the fast one saves no register; a large one is
    /// mentioned once, so that it is made in place.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
    fn put<T>(&self, value: T) -> &mut T {
        if size_of::<T>() > size_of::<[usize; 2]>() {
            return self.slot().write(value);
        }
        match self.bump(Layout::new::<T>()) {
            // SAFETY: as in `slot`.
            Some(address) => unsafe { address.cast::<MaybeUninit<T>>().as_mut() }.write(value),
            None => self.grow_and_put(value),
        }
    }

    /// Moves `value` in, or says why not. As [`put`](Self::put), and the slow path is a tail call.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
    fn try_put<T>(&self, value: T) -> Result<&mut T, AllocError> {
        if size_of::<T>() > size_of::<[usize; 2]>() {
            return Ok(self.try_slot()?.write(value));
        }
        match self.bump(Layout::new::<T>()) {
            // SAFETY: as in `slot`.
            Some(address) => Ok(unsafe { address.cast::<MaybeUninit<T>>().as_mut() }.write(value)),
            None => self.grow_and_try_put(value),
        }
    }

    #[cold]
    #[inline(never)]
    #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
    fn grow_and_try_put<T>(&self, value: T) -> Result<&mut T, AllocError> {
        Ok(self.try_slot()?.write(value))
    }

    #[cold]
    #[inline(never)]
    #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
    fn grow_and_put<T>(&self, value: T) -> &mut T {
        let layout = Layout::new::<T>();
        let address = self.start(layout).unwrap_or_else(|| self.grow_or_panic(layout));
        // SAFETY: as in `slot`.
        unsafe { address.cast::<MaybeUninit<T>>().as_mut() }.write(value)
    }

    /// Room for one `T`, or why not.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
    fn try_slot<T>(&self) -> Result<&mut MaybeUninit<T>, AllocError> {
        let address = self.bump_or_grow(Layout::new::<T>())?;
        // SAFETY: as in `slot`.
        Ok(unsafe { address.cast::<MaybeUninit<T>>().as_mut() })
    }

    /// Room for `len` times `T`.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
    fn slots<T>(&self, len: usize) -> &mut [MaybeUninit<T>] {
        let Ok(layout) = Layout::array::<T>(len) else { self.panic_too_large::<T>(len) };
        let address = self.bump_or_panic(layout);
        // SAFETY:
        // * the block has the size and alignment of `[T; len]` and is valid memory (A1, `HostAccessible`);
        // * it is given out once (A3), and not taken back while `self` is borrowed.
        unsafe { NonNull::slice_from_raw_parts(address.cast::<MaybeUninit<T>>(), len).as_mut() }
    }

    /// Room for `len` times `T`, or why not.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
    fn try_slots<T>(&self, len: usize) -> Result<&mut [MaybeUninit<T>], AllocError> {
        let layout = Layout::array::<T>(len).map_err(|_| self.too_large::<T>(len))?;
        let address = self.bump_or_grow(layout)?;
        // SAFETY: as in `slots`.
        Ok(unsafe { NonNull::slice_from_raw_parts(address.cast::<MaybeUninit<T>>(), len).as_mut() })
    }

    /// Room for a copy of a slice, whose size is known to be one.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
    fn slots_for<T>(&self, items: &[T]) -> &mut [MaybeUninit<T>] {
        let address = self.bump_or_panic(Layout::for_value(items));
        // SAFETY: as in `slots`.
        unsafe { NonNull::slice_from_raw_parts(address.cast::<MaybeUninit<T>>(), items.len()).as_mut() }
    }

    /// Room for a copy of a slice, or why not.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
    fn try_slots_for<T>(&self, items: &[T]) -> Result<&mut [MaybeUninit<T>], AllocError> {
        let address = self.bump_or_grow(Layout::for_value(items))?;
        // SAFETY: as in `slots`.
        Ok(unsafe { NonNull::slice_from_raw_parts(address.cast::<MaybeUninit<T>>(), items.len()).as_mut() })
    }

    /// `len` times `T`, zero, or why not.
    #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
    fn zeroed<T: bytemuck::Zeroable>(&self, len: usize) -> Result<&mut [T], AllocError> {
        let layout = Layout::array::<T>(len).map_err(|_| self.too_large::<T>(len))?;
        let address = self.allocate_zeroed(layout)?.address();
        // SAFETY:
        // * the block has the size and alignment of `[T; len]`, is valid memory and zero, which `T` may be;
        // * it is given out once (A3), and not taken back while `self` is borrowed.
        Ok(unsafe { NonNull::slice_from_raw_parts(address.cast::<T>(), len).as_mut() })
    }

    #[inline(always)]
    fn bump_or_panic(&self, layout: Layout) -> NonNull<u8> {
        match self.bump(layout) {
            Some(address) => address,
            None => self.grow_or_panic(layout),
        }
    }

    #[cold]
    #[inline(never)]
    fn grow_or_panic(&self, layout: Layout) -> NonNull<u8> {
        match self.grow_and_bump(layout) {
            Ok(address) => address,
            Err(error) => panic!("{error}"),
        }
    }

    fn too_large<T>(&self, len: usize) -> AllocError {
        AllocError::too_large(self.space().id(), len.saturating_mul(size_of::<T>()), align_of::<T>())
    }

    #[cold]
    #[inline(never)]
    fn panic_too_large<T>(&self, len: usize) -> ! {
        panic!("{}", self.too_large::<T>(len))
    }
}

/// The typed calls, stamped on `Arena` (results borrow `self`) and on `Scope` (results live for `'a`).
macro_rules! typed_calls {
    ($owner:ident $(<$scope:lifetime>)?, $lifetime:lifetime, |$this:ident| $arena:expr) => {
        #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
        impl<$($scope,)? S: HostAccessible> $owner<$($scope,)? S> {
            /// Moves `value` into the arena.
            ///
            /// # Panics
            /// Where the space gives no more memory; [`try_alloc`](Self::try_alloc) does not.
            #[inline(always)]
            pub fn alloc<T>(&self, value: T) -> &$lifetime mut T {
                let $this = self;
                $arena.put(value)
            }

            /// Moves `value` into the arena.
            ///
            /// # Errors
            /// [`AllocError`] where the space gives no more memory.
            #[inline(always)]
            pub fn try_alloc<T>(&self, value: T) -> Result<&$lifetime mut T, AllocError> {
                let $this = self;
                $arena.try_put(value)
            }

            /// Makes a value in place; large ones are not copied from the stack.
            ///
            /// # Panics
            /// Where the space gives no more memory; [`try_alloc_with`](Self::try_alloc_with) does not.
            #[inline(always)]
            pub fn alloc_with<T>(&self, make: impl FnOnce() -> T) -> &$lifetime mut T {
                let $this = self;
                $arena.slot().write(make())
            }

            /// Makes a value in place.
            ///
            /// # Errors
            /// [`AllocError`] where the space gives no more memory; `make` is not called then.
            #[inline(always)]
            pub fn try_alloc_with<T>(
                &self,
                make: impl FnOnce() -> T,
            ) -> Result<&$lifetime mut T, AllocError> {
                let $this = self;
                Ok($arena.try_slot()?.write(make()))
            }

            /// A copy of a slice.
            ///
            /// # Panics
            /// Where the space gives no more memory; [`try_alloc_slice_copy`](Self::try_alloc_slice_copy)
            /// does not.
            #[inline(always)]
            pub fn alloc_slice_copy<T: Copy>(&self, items: &[T]) -> &$lifetime mut [T] {
                let $this = self;
                $arena.slots_for(items).write_copy_of_slice(items)
            }

            /// A copy of a slice.
            ///
            /// # Errors
            /// [`AllocError`] where the space gives no more memory.
            #[inline(always)]
            pub fn try_alloc_slice_copy<T: Copy>(
                &self,
                items: &[T],
            ) -> Result<&$lifetime mut [T], AllocError> {
                let $this = self;
                Ok($arena.try_slots_for(items)?.write_copy_of_slice(items))
            }

            /// A clone of a slice.
            ///
            /// # Panics
            /// Where the space gives no more memory, or where `clone` does.
            #[inline(always)]
            pub fn alloc_slice_clone<T: Clone>(&self, items: &[T]) -> &$lifetime mut [T] {
                let $this = self;
                $arena.slots_for(items).write_clone_of_slice(items)
            }

            /// `len` items, each made by `make` from its index.
            ///
            /// # Panics
            /// Where the space gives no more memory;
            /// [`try_alloc_slice_with`](Self::try_alloc_slice_with) does not.
            #[inline(always)]
            pub fn alloc_slice_with<T>(
                &self,
                len: usize,
                make: impl FnMut(usize) -> T,
            ) -> &$lifetime mut [T] {
                let $this = self;
                fill($arena.slots(len), make)
            }

            /// `len` items, each made by `make` from its index.
            ///
            /// # Errors
            /// [`AllocError`] where the space gives no more memory; `make` is not called then.
            #[inline(always)]
            pub fn try_alloc_slice_with<T>(
                &self,
                len: usize,
                make: impl FnMut(usize) -> T,
            ) -> Result<&$lifetime mut [T], AllocError> {
                let $this = self;
                Ok(fill($arena.try_slots(len)?, make))
            }

            /// `len` copies of `value`.
            ///
            /// # Panics
            /// Where the space gives no more memory.
            #[inline(always)]
            pub fn alloc_slice_fill<T: Copy>(&self, len: usize, value: T) -> &$lifetime mut [T] {
                self.alloc_slice_with(len, |_| value)
            }

            /// `len` items of zeroes; memory that is zero already is not written.
            ///
            /// # Examples
            /// ```
            /// use arenite::{Arena, HostSpace};
            /// let arena = Arena::new(HostSpace::new());
            /// assert_eq!(arena.try_alloc_slice_zeroed::<f32>(3)?, &[0.0; 3]);
            /// # Ok::<(), arenite::AllocError>(())
            /// ```
            ///
            /// # Errors
            /// [`AllocError`] where the space gives no more memory.
            pub fn try_alloc_slice_zeroed<T: bytemuck::Zeroable>(
                &self,
                len: usize,
            ) -> Result<&$lifetime mut [T], AllocError> {
                let $this = self;
                $arena.zeroed(len)
            }

            /// A copy of a text.
            ///
            /// # Panics
            /// Where the space gives no more memory; [`try_alloc_str`](Self::try_alloc_str) does not.
            #[inline(always)]
            pub fn alloc_str(&self, text: &str) -> &$lifetime mut str {
                as_str(self.alloc_slice_copy(text.as_bytes()))
            }

            /// A copy of a text.
            ///
            /// # Errors
            /// [`AllocError`] where the space gives no more memory.
            #[inline(always)]
            pub fn try_alloc_str(&self, text: &str) -> Result<&$lifetime mut str, AllocError> {
                Ok(as_str(self.try_alloc_slice_copy(text.as_bytes())?))
            }

            /// Uninitialised memory for `layout`.
            ///
            /// # Panics
            /// Where the space gives no more memory; [`allocate`](Arena::allocate) does not.
            #[inline(always)]
            pub fn alloc_layout(&self, layout: Layout) -> NonNull<u8> {
                let $this = self;
                $arena.bump_or_panic(layout)
            }
        }
    };
}

typed_calls!(Arena, '_, |arena| arena);
typed_calls!(Scope<'a>, 'a, |scope| scope.arena);

/// Fills every slot.
#[inline(always)]
fn fill<T>(slots: &mut [MaybeUninit<T>], mut make: impl FnMut(usize) -> T) -> &mut [T] {
    for (index, slot) in slots.iter_mut().enumerate() {
        slot.write(make(index));
    }
    // SAFETY: every slot was written.
    unsafe { slots.assume_init_mut() }
}

/// Bytes that were copied from a text.
#[inline(always)]
fn as_str(bytes: &mut [u8]) -> &mut str {
    // SAFETY: callers pass an exact copy of a `str`.
    unsafe { core::str::from_utf8_unchecked_mut(bytes) }
}
