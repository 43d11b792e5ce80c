#![forbid(unsafe_code)]
//! Which part of one range is whose, decided by several threads at once.
//!
//! ```text
//!   │ slice │ slice │ slice │ committed ······· │ addresses only ·············│
//!   0                       used                committed                    size
//! ```
//!
//! Deliberately absent: giving a slice back, and memory. Ranges are numbers; who commits is the caller.
//!
//! # Invariants
//! * **I1** `used_bytes` moves forward only, by exchanges, so that no byte is in two slices; `reset` needs `&mut`.
//! * **I2** What is below `committed_bytes` was committed before it was stored. It grows under the lock `commit`.

use core::ops::Range;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicUsize, Ordering};
#[cfg(loom)]
use loom::sync::Mutex;
#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};
#[cfg(not(loom))]
use parking_lot::Mutex;

/// How much of a range is used and committed.
#[derive(Debug)]
pub(super) struct Slices {
    used_bytes: AtomicUsize,
    committed_bytes: AtomicUsize,
    commit: Mutex<()>,
}

impl Slices {
    pub(super) fn new(committed_bytes: usize) -> Self {
        Self {
            used_bytes: AtomicUsize::new(0),
            committed_bytes: AtomicUsize::new(committed_bytes),
            commit: Mutex::new(()),
        }
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Takes everything back and keeps what is committed.
    pub(super) fn reset(&mut self) {
        self.used_bytes = AtomicUsize::new(0);
    }

    /// How much is committed, when nobody takes any more.
    pub(super) fn committed_bytes(&self) -> usize {
        self.committed_bytes.load(Ordering::Acquire)
    }

    /// Takes a slice: `place` says where it lies if so much is used, `commit` puts memory behind so much of the
    /// range, given what is committed already, and says how far it came.
    pub(super) fn take<E>(
        &self,
        place: impl Fn(usize) -> Result<Range<usize>, E>,
        commit: impl Fn(usize, usize) -> Result<usize, E>,
    ) -> Result<Range<usize>, E> {
        let mut used_bytes = self.used_bytes.load(Ordering::Relaxed);
        loop {
            let slice = place(used_bytes)?;
            if slice.end > self.committed_bytes() {
                self.grow(slice.end, &commit)?;
            }
            let order = Ordering::Relaxed;
            match self.used_bytes.compare_exchange_weak(used_bytes, slice.end, order, order) {
                Ok(_) => return Ok(slice),
                Err(now) => used_bytes = now,
            }
        }
    }

    #[cold]
    fn grow<E>(
        &self,
        needed_bytes: usize,
        commit: impl Fn(usize, usize) -> Result<usize, E>,
    ) -> Result<(), E> {
        #[cfg(not(loom))]
        let _one_at_a_time = self.commit.lock();
        #[cfg(loom)]
        let _one_at_a_time = self.commit.lock().unwrap();
        let committed_bytes = self.committed_bytes.load(Ordering::Relaxed);
        if needed_bytes > committed_bytes {
            let now_bytes = commit(committed_bytes, needed_bytes)?;
            self.committed_bytes.store(now_bytes, Ordering::Release);
        }
        Ok(())
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test --release --no-default-features --lib every_order`
#[cfg(all(test, loom))]
mod every_order {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU8;

    const COMMITTED: u8 = 10;

    /// A range of four bytes, committed two at a time: each taker sees its byte committed, and nobody else's.
    #[test]
    fn slices_are_committed_and_nobody_elses() {
        loom::model(|| {
            let slices = Arc::new(Slices::new(0));
            let bytes: Arc<[AtomicU8; 4]> = Arc::new(core::array::from_fn(|_| AtomicU8::new(0)));
            let take = |slices: &Slices, bytes: &[AtomicU8; 4], by: u8| {
                let place = |used: usize| if used < 4 { Ok(used..used + 1) } else { Err(()) };
                let commit = |from: usize, to: usize| {
                    let to = to.next_multiple_of(2);
                    for byte in &bytes[from..to] {
                        assert_eq!(byte.swap(COMMITTED, Ordering::Relaxed), 0, "committed once");
                    }
                    Ok(to)
                };
                let slice = slices.take(place, commit).unwrap();
                // A load may see what is old, unless the commit happened before.
                assert_eq!(bytes[slice.start].load(Ordering::Relaxed), COMMITTED);
                assert_eq!(bytes[slice.start].swap(by, Ordering::Relaxed), COMMITTED, "nobody's yet");
            };
            let other = {
                let (slices, bytes) = (Arc::clone(&slices), Arc::clone(&bytes));
                loom::thread::spawn(move || {
                    take(&slices, &bytes, 1);
                    take(&slices, &bytes, 1);
                })
            };
            take(&slices, &bytes, 2);
            other.join().unwrap();
            assert_eq!((slices.used_bytes(), slices.committed_bytes()), (3, 4));
        });
    }
}
