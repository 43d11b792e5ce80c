//! A value behind one word, without the heap: it lies in one of a number of places that are set aside.
//!
//! ```text
//!   places   │ held ▓▓ │ free    │ held ▓▓ │ free    │ ···     never moved, never taken from an allocator
//!                 ▲                   ▲
//!               Held                Held                       dropped, its place is free again
//! ```
//!
//! Deliberately absent: waiting for a place, and the heap where none is free. Whoever asks is out of memory already, and
//! shares a last place, whose value says so.
//!
//! # Invariants
//! * **P1** Of a place whose flag is up there is one [`Held`], and its value is there. Only whoever raised the flag
//!   touches the value, until it lowers it.
//! * **P2** A last place has its value from the start. Nobody writes to it.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::Deref;
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
    is_last: bool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: P1: the value is used through its one `Held`, which is sent and shared as a `T` is; P2: or it is only read.
unsafe impl<T: Send + Sync> Sync for Place<T> {}

/// A panic leaves no value half made: it is there before anybody has it.
impl<T> RefUnwindSafe for Place<T> {}

impl<T> Place<T> {
    /// A free one.
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        let flag = Flag(AtomicBool::new(false));
        Self { flag, is_last: false, value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// One that all share who find no other.
    #[cfg(not(loom))]
    pub(super) const fn last(value: T) -> Self {
        let flag = Flag(AtomicBool::new(false));
        Self { flag, is_last: true, value: UnsafeCell::new(MaybeUninit::new(value)) }
    }
}

/// The one owner of a value in a place, or one of those who share the last.
///
/// It is never null, and dropping it asks nothing: whoever drops a result that may be an error asks once whether it is.
pub(super) struct Held<T: Copy + 'static>(&'static Place<T>);

impl<T: Copy> Held<T> {
    /// Puts `value` into the first free place; where all are held, shares the `last`.
    #[cfg(not(loom))]
    pub(super) fn new(places: &'static [Place<T>], last: &'static Place<T>, value: T) -> Self {
        debug_assert!(last.is_last);
        let Some(place) = places.iter().find(|place| place.flag.raise()) else { return Self(last) };
        // SAFETY: P1: the flag was raised just now, here.
        unsafe { place.value.get().cast::<T>().write(value) };
        Self(place)
    }

    /// The value, to be changed; none where it is shared.
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        if self.0.is_last {
            return None;
        }
        // SAFETY: P1: this is the one `Held`, borrowed mutably; the value is there.
        Some(unsafe { &mut *self.0.value.get().cast::<T>() })
    }
}

impl<T: Copy> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: P1: this is the one `Held`, borrowed; or P2: nobody writes. The value is there.
        unsafe { &*self.0.value.get().cast::<T>() }
    }
}

impl<T: Copy> Drop for Held<T> {
    fn drop(&mut self) {
        // Of a last place the flag means nothing.
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
