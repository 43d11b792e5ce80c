//! Typed allocation, for spaces that the CPU reaches.
//!
//! Every call comes twice: on [`Arena`], where the result borrows the arena, and on [`Scope`], where it
//! lives as long as the scope. `try_` twins give the error where the plain form panics; both are one path.
//!
//! Deliberately absent: destructors. What is allocated here is never dropped, only taken back.

use super::head::Head;
use super::{Arena, Scope};
use crate::space::{AllocError, HostAccessible};
use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

impl<'a, S: HostAccessible, const IS_OWN: bool> Head<'a, S, IS_OWN> {
    /// What was found, or else a block for `layout`.
    #[track_caller]
    #[inline(always)]
    fn room(self, found: Option<usize>, layout: Layout) -> NonNull<u8> {
        match found {
            Some(start) => self.address(start),
            None => self.by_own(|arena| arena.grow_or_panic(layout)),
        }
    }

    /// The same for `fill` to write to, or why not. The error goes its own way: put together first and taken apart again,
    /// both ways would cost more.
    #[inline(always)]
    fn try_room<R>(
        self,
        found: Option<usize>,
        layout: Layout,
        fill: impl FnOnce(NonNull<u8>) -> R,
    ) -> Result<R, AllocError> {
        let address = match found {
            Some(start) => self.address(start),
            None => self.by_own(|arena| arena.grow_and_bump(layout))?,
        };
        Ok(fill(address))
    }

    /// Room for one `T`.
    #[inline(always)]
    #[track_caller]
    fn slot<T>(self) -> &'a mut MaybeUninit<T> {
        let layout = Layout::new::<T>();
        // SAFETY: a block for this layout, which nobody has.
        unsafe { slot(self.room(self.bump_whole(layout), layout)) }
    }

    /// Moves `value` in.
    ///
    /// The slow path takes a small value along, so that the fast one saves no register; a large one is
    /// mentioned once, so that it is made in place.
    #[inline(always)]
    #[track_caller]
    fn put<T>(self, value: T) -> &'a mut T {
        if size_of::<T>() > size_of::<[usize; 2]>() {
            return self.slot().write(value);
        }
        match self.bump_whole(Layout::new::<T>()) {
            // SAFETY: a block for this layout, which nobody has.
            Some(start) => unsafe { slot(self.address(start)) }.write(value),
            None => self.by_own(|arena| arena.grow_and_put(value)),
        }
    }

    /// Moves `value` in, or says why not. As [`put`](Self::put), and the slow path is a tail call.
    #[inline(always)]
    fn try_put<T>(self, value: T) -> Result<&'a mut T, AllocError> {
        if size_of::<T>() > size_of::<[usize; 2]>() {
            return self.try_put_with(|| value);
        }
        match self.bump_whole(Layout::new::<T>()) {
            // SAFETY: a block for this layout, which nobody has.
            Some(start) => Ok(unsafe { slot(self.address(start)) }.write(value)),
            None => self.by_own(|arena| arena.grow_and_try_put(value)),
        }
    }

    /// Makes a value in place, or says why not.
    #[inline(always)]
    fn try_put_with<T>(self, make: impl FnOnce() -> T) -> Result<&'a mut T, AllocError> {
        let layout = Layout::new::<T>();
        // SAFETY: a block for this layout, which nobody has.
        self.try_room(self.bump_whole(layout), layout, |address| unsafe { slot(address) }.write(make()))
    }

    /// Room for `len` times `T`.
    #[inline(always)]
    #[track_caller]
    fn slots<T>(self, len: usize) -> &'a mut [MaybeUninit<T>] {
        let Ok(layout) = Layout::array::<T>(len) else { self.arena.panic_too_large::<T>(len) };
        // SAFETY: a block for this layout, which nobody has.
        unsafe { slots(self.room(self.bump_slice(layout), layout), len) }
    }

    /// Room for `len` times `T` for `fill` to fill, or why not.
    #[inline(always)]
    fn try_slots<T: 'a, R>(
        self,
        len: usize,
        fill: impl FnOnce(&'a mut [MaybeUninit<T>]) -> R,
    ) -> Result<R, AllocError> {
        let layout = Layout::array::<T>(len).map_err(|_| self.arena.too_large::<T>(len))?;
        // SAFETY: a block for this layout, which nobody has.
        self.try_room(self.bump_slice(layout), layout, |address| fill(unsafe { slots(address, len) }))
    }

    /// A copy of a slice, whose size is known to be one.
    #[inline(always)]
    #[track_caller]
    fn copy<T: Copy>(self, items: &[T]) -> &'a mut [T] {
        let layout = Layout::for_value(items);
        let address = self.room(self.bump_slice(layout), layout);
        // SAFETY: a block for this layout, which nobody has.
        unsafe { slots(address, items.len()) }.write_copy_of_slice(items)
    }

    /// A copy of a slice, or why not. The slow path is a tail call.
    #[inline(always)]
    fn try_copy<T: Copy>(self, items: &[T]) -> Result<&'a mut [T], AllocError> {
        match self.bump_slice(Layout::for_value(items)) {
            // SAFETY: a block for this layout, which nobody has.
            Some(start) => Ok(unsafe { slots(self.address(start), items.len()) }.write_copy_of_slice(items)),
            None => self.by_own(|arena| arena.grow_and_try_copy(items)),
        }
    }

    /// `len` times `T`, zero, or why not.
    fn zeroed<T: bytemuck::Zeroable>(self, len: usize) -> Result<&'a mut [T], AllocError> {
        let layout = Layout::array::<T>(len).map_err(|_| self.arena.too_large::<T>(len))?;
        let address = self.by_own(|arena| arena.allocate_zeroed(layout))?.address();
        // SAFETY: a block for this layout, which nobody has.
        let slots = unsafe { slots(address, len) };
        // SAFETY: it reads as zero, which `T` may be.
        Ok(unsafe { slots.assume_init_mut() })
    }
}

/// A block as room for one `T`.
///
/// # Safety
/// * It is host memory of an arena (A1), of the size and alignment of `T`, and nobody has it (A3).
/// * It is not taken back for `'a`: the arena or scope is borrowed so long.
#[inline(always)]
unsafe fn slot<'a, T>(address: NonNull<u8>) -> &'a mut MaybeUninit<T> {
    // SAFETY: says the caller.
    unsafe { address.cast::<MaybeUninit<T>>().as_mut() }
}

/// A block as room for `len` times `T`.
///
/// # Safety
/// * It is host memory of an arena (A1), of the size and alignment of `[T; len]`, and nobody has it (A3).
/// * It is not taken back for `'a`: the arena or scope is borrowed so long.
#[inline(always)]
unsafe fn slots<'a, T>(address: NonNull<u8>, len: usize) -> &'a mut [MaybeUninit<T>] {
    // SAFETY: says the caller.
    unsafe { NonNull::slice_from_raw_parts(address.cast::<MaybeUninit<T>>(), len).as_mut() }
}

/// The slow ways, by the arena's own cursor.
#[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
impl<S: HostAccessible> Arena<S> {
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn grow_or_panic(&self, layout: Layout) -> NonNull<u8> {
        match self.grow_and_bump(layout) {
            Ok(address) => address,
            Err(error) => panic!("{error}"),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn grow_and_put<T>(&self, value: T) -> &mut T {
        let layout = Layout::new::<T>();
        let address = self.start(layout).unwrap_or_else(|| self.grow_or_panic(layout));
        // SAFETY: a block for this layout, which nobody has.
        unsafe { slot(address) }.write(value)
    }

    #[cold]
    #[inline(never)]
    fn grow_and_try_put<T>(&self, value: T) -> Result<&mut T, AllocError> {
        let address = self.grow_and_bump(Layout::new::<T>())?;
        // SAFETY: a block for this layout, which nobody has.
        Ok(unsafe { slot(address) }.write(value))
    }

    #[cold]
    #[inline(never)]
    fn grow_and_try_copy<T: Copy>(&self, items: &[T]) -> Result<&mut [T], AllocError> {
        let address = self.grow_and_bump(Layout::for_value(items))?;
        // SAFETY: a block for this layout, which nobody has.
        Ok(unsafe { slots(address, items.len()) }.write_copy_of_slice(items))
    }

    #[cold]
    fn too_large<T>(&self, len: usize) -> AllocError {
        AllocError::too_large(self.space.id(), len.saturating_mul(size_of::<T>()), align_of::<T>())
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn panic_too_large<T>(&self, len: usize) -> ! {
        panic!("{}", self.too_large::<T>(len))
    }
}

/// The typed calls, stamped on `Arena` (results borrow `self`) and on `Scope` (results live for `'a`).
macro_rules! typed_calls {
    ($owner:ident $(<$scope:lifetime>)?, $lifetime:lifetime, |$this:ident| $head:expr) => {
        #[allow(clippy::mut_from_ref, reason = "each call gives memory that was never given before")]
        impl<$($scope,)? S: HostAccessible> $owner<$($scope,)? S> {
            /// Moves `value` into the arena. It is never dropped, only taken back.
            ///
            /// # Panics
            /// Where the space gives no more memory; [`try_alloc`](Self::try_alloc) does not.
            #[inline(always)]
            #[track_caller]
            pub fn alloc<T>(&self, value: T) -> &$lifetime mut T {
                let $this = self;
                $head.put(value)
            }

            /// Moves `value` into the arena.
            ///
            /// # Errors
            /// [`AllocError`] where the space gives no more memory.
            #[inline(always)]
            pub fn try_alloc<T>(&self, value: T) -> Result<&$lifetime mut T, AllocError> {
                let $this = self;
                $head.try_put(value)
            }

            /// Makes a value in place; large ones are not copied from the stack. It is never dropped, only taken back.
            ///
            /// # Panics
            /// Where the space gives no more memory; [`try_alloc_with`](Self::try_alloc_with) does not.
            #[inline(always)]
            #[track_caller]
            pub fn alloc_with<T>(&self, make: impl FnOnce() -> T) -> &$lifetime mut T {
                let $this = self;
                $head.slot().write(make())
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
                $head.try_put_with(make)
            }

            /// A copy of a slice.
            ///
            /// # Panics
            /// Where the space gives no more memory; [`try_alloc_slice_copy`](Self::try_alloc_slice_copy)
            /// does not.
            #[inline(always)]
            #[track_caller]
            pub fn alloc_slice_copy<T: Copy>(&self, items: &[T]) -> &$lifetime mut [T] {
                let $this = self;
                $head.copy(items)
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
                $head.try_copy(items)
            }

            /// A clone of a slice. Its items are never dropped, only taken back.
            ///
            /// # Panics
            /// Where the space gives no more memory, or where `clone` does.
            #[inline(always)]
            #[track_caller]
            pub fn alloc_slice_clone<T: Clone>(&self, items: &[T]) -> &$lifetime mut [T] {
                let $this = self;
                $head.slots(items.len()).write_clone_of_slice(items)
            }

            /// `len` items, each made by `make` from its index.
            ///
            /// # Panics
            /// Where the space gives no more memory;
            /// [`try_alloc_slice_with`](Self::try_alloc_slice_with) does not.
            #[inline(always)]
            #[track_caller]
            pub fn alloc_slice_with<T>(
                &self,
                len: usize,
                make: impl FnMut(usize) -> T,
            ) -> &$lifetime mut [T] {
                let $this = self;
                fill($head.slots(len), make)
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
                $head.try_slots(len, |slots| fill(slots, make))
            }

            /// `len` copies of `value`.
            ///
            /// # Panics
            /// Where the space gives no more memory.
            #[inline(always)]
            #[track_caller]
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
                $head.zeroed(len)
            }

            /// A copy of a text.
            ///
            /// # Panics
            /// Where the space gives no more memory; [`try_alloc_str`](Self::try_alloc_str) does not.
            #[inline(always)]
            #[track_caller]
            pub fn alloc_str(&self, text: &str) -> &$lifetime mut str {
                as_str(self.alloc_slice_copy(text.as_bytes()))
            }

            /// A copy of a text.
            ///
            /// # Errors
            /// [`AllocError`] where the space gives no more memory.
            #[inline(always)]
            pub fn try_alloc_str(&self, text: &str) -> Result<&$lifetime mut str, AllocError> {
                self.try_alloc_slice_copy(text.as_bytes()).map(as_str)
            }

            /// Uninitialised memory for `layout`.
            ///
            /// # Panics
            /// Where the space gives no more memory; [`allocate`](Arena::allocate) does not.
            #[inline(always)]
            #[track_caller]
            pub fn alloc_layout(&self, layout: Layout) -> NonNull<u8> {
                let $this = self;
                $head.room($head.bump(layout), layout)
            }
        }
    };
}

typed_calls!(Arena, '_, |arena| arena.head());
typed_calls!(Scope<'a>, 'a, |scope| scope.head);

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
