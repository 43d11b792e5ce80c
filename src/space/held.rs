//! A value behind one word, without the heap: it lies in one of a number of places that are set aside.
//!
//! ```text
//!   places   │ held ▓▓ │ free    │ held ▓▓ │ free    │ ···     never moved, never taken from an allocator
//!                 ▲                   ▲
//!               Held                Held                       dropped, its place is free again
//! ```
//!
//! Deliberately absent: waiting for a place, and the heap where none is free. Whoever asks is out of memory already.
//!
//! # Invariants
//! * **P1** Of a place whose flag is up there is one [`Held`], and its value is there. Only whoever raised the flag
//!   touches the value, until it lowers it.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
#[cfg(not(loom))]
use core::sync::atomic::{AtomicBool, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering};
use std::panic::RefUnwindSafe;

/// Whether a place is held.
#[derive(Debug)]
struct Flag(AtomicBool);

impl Flag {
    /// Raises it; false where it is up.
    fn raise(&self) -> bool {
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Lowers it, for the one that raised it.
    fn lower(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Room for one value.
pub(super) struct Place<T> {
    flag: Flag,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: P1: the value is used through its one `Held`, which is sent and shared as a `T` is.
unsafe impl<T: Send + Sync> Sync for Place<T> {}

/// A panic leaves no value half made: it is there before anybody has it.
impl<T> RefUnwindSafe for Place<T> {}

impl<T> Place<T> {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self { flag: Flag(AtomicBool::new(false)), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }
}

/// The one owner of a value in a place.
pub(super) struct Held<T: Copy + 'static>(&'static Place<T>);

impl<T: Copy> Held<T> {
    /// Puts `value` into the first free place; `None` where all are held.
    pub(super) fn new(places: &'static [Place<T>], value: T) -> Option<Self> {
        let place = places.iter().find(|place| place.flag.raise())?;
        // SAFETY: P1: the flag was raised just now, here.
        unsafe { place.value.get().cast::<T>().write(value) };
        Some(Self(place))
    }
}

impl<T: Copy> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: P1: this is the one `Held`, borrowed; the value is there.
        unsafe { &*self.0.value.get().cast::<T>() }
    }
}

impl<T: Copy> DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: P1: this is the one `Held`, borrowed mutably; the value is there.
        unsafe { &mut *self.0.value.get().cast::<T>() }
    }
}

impl<T: Copy> Drop for Held<T> {
    fn drop(&mut self) {
        self.0.flag.lower();
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test --release --no-default-features --lib every_order`
#[cfg(all(test, loom))]
mod every_order {
    use super::*;
    use loom::sync::Arc;

    /// The value of a place is a cell that no two threads may touch at once, nor one before the other is seen.
    #[test]
    fn a_place_is_held_by_one() {
        loom::model(|| {
            let place = Arc::new((Flag(AtomicBool::new(false)), loom::cell::UnsafeCell::new(0_u8)));
            let hold = |place: &(Flag, loom::cell::UnsafeCell<u8>)| {
                let is_held = place.0.raise();
                if is_held {
                    // SAFETY: the flag was raised here; loom fails where another thread is inside.
                    place.1.with_mut(|value| unsafe { *value += 1 });
                    place.0.lower();
                }
                u8::from(is_held)
            };
            let other = {
                let place = Arc::clone(&place);
                loom::thread::spawn(move || hold(&place) + hold(&place))
            };
            let times = hold(&place) + other.join().unwrap();
            assert!(place.0.raise(), "free again");
            // SAFETY: the flag was raised here.
            assert_eq!(place.1.with(|value| unsafe { *value }), times);
        });
    }
}
