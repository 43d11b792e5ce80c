#![forbid(unsafe_code)]
//! Figures over several arena sets: what all of them have taken of a space, and the most at one time.
//!
//! A set knows its own peak; the peaks of two sets cannot be added, since they may stand at different times. A
//! meter sees every claim of every set that carries it, and outlives them.
//!
//! Deliberately absent: limits. A set has its own.

use crate::space::SpaceId;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicUsize, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};
use parking_lot::Mutex;
use std::sync::Arc;

/// Counts what several arena sets have taken, by space. Cloning is cheap and gives the same meter.
///
/// # Examples
/// ```
/// use arenite::{ArenaSet, HostSpace, Meter, SpaceId, Usage};
/// use std::sync::Arc;
///
/// let meter = Meter::default();
/// let set = || ArenaSet::builder().space(Arc::new(HostSpace::new())).meter(meter.clone()).build();
/// drop(set().take(SpaceId::HOST, 1000, "first")?);
/// let arena = set().take(SpaceId::HOST, 600, "second")?;
/// assert_eq!(meter.usage(SpaceId::HOST), Usage { current_bytes: 600, peak_bytes: 1000 });
/// # drop(arena);
/// # Ok::<(), arenite::AllocError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<Mutex<Gauges>>);

type Gauges = Vec<(SpaceId, Arc<Gauge>)>;

/// What is taken of a space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes taken now.
    pub current_bytes: usize,
    /// The most bytes ever taken at a time, or since [`Meter::reset_peak`].
    pub peak_bytes: usize,
}

impl Meter {
    /// The spaces that were ever opened by a set that carries this meter.
    pub fn spaces(&self) -> Vec<SpaceId> {
        self.0.lock().iter().map(|(id, _)| *id).collect()
    }

    /// What is taken of a space by all sets together.
    pub fn usage(&self, id: SpaceId) -> Usage {
        self.gauge(id).usage()
    }

    /// Starts every peak anew from what is taken now.
    pub fn reset_peak(&self) {
        for (_, gauge) in &*self.0.lock() {
            gauge.reset_peak();
        }
    }

    /// The figures of one space.
    pub(super) fn gauge(&self, id: SpaceId) -> Arc<Gauge> {
        let mut gauges = self.0.lock();
        if let Some((_, gauge)) = gauges.iter().find(|(known, _)| *known == id) {
            return Arc::clone(gauge);
        }
        let gauge = Arc::<Gauge>::default();
        gauges.push((id, Arc::clone(&gauge)));
        gauge
    }
}

/// The figures of one space.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    current_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl Gauge {
    pub(super) fn claim(&self, bytes: usize) {
        self.current_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts what is claimed now.
    pub(super) fn settle(&self) {
        self.peak_bytes.fetch_max(self.current_bytes.load(Ordering::Relaxed), Ordering::Release);
    }

    pub(super) fn unclaim(&self, bytes: usize) {
        self.current_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn usage(&self) -> Usage {
        // The peak last: it is never below a current figure read before it.
        let current_bytes = self.current_bytes.load(Ordering::Relaxed);
        let peak_bytes = self.peak_bytes.load(Ordering::Relaxed).max(current_bytes);
        Usage { current_bytes, peak_bytes }
    }

    fn reset_peak(&self) {
        self.peak_bytes.swap(self.current_bytes.load(Ordering::Relaxed), Ordering::Acquire);
        // A claim that was counted before the exchange, and read after, is seen now; later ones count themselves.
        self.peak_bytes.fetch_max(self.current_bytes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test --release --no-default-features --lib every_order`
#[cfg(all(test, loom))]
mod every_order {
    use super::*;

    #[test]
    fn a_peak_is_never_below_what_is_held_nor_above_what_was() {
        loom::model(|| {
            let gauge = loom::sync::Arc::new(Gauge::default());
            let take = |gauge: &Gauge, bytes: usize| {
                gauge.claim(bytes);
                gauge.settle();
                assert!((bytes..=5).contains(&gauge.usage().peak_bytes));
                gauge.unclaim(bytes);
            };
            let other = {
                let gauge = loom::sync::Arc::clone(&gauge);
                loom::thread::spawn(move || take(&gauge, 2))
            };
            take(&gauge, 3);
            other.join().unwrap();
            let usage = gauge.usage();
            assert!(usage.current_bytes == 0 && (3..=5).contains(&usage.peak_bytes));
        });
    }

    #[test]
    fn a_peak_that_starts_anew_keeps_what_is_held() {
        loom::model(|| {
            let gauge = loom::sync::Arc::new(Gauge::default());
            let other = {
                let gauge = loom::sync::Arc::clone(&gauge);
                loom::thread::spawn(move || {
                    gauge.claim(2);
                    gauge.settle();
                })
            };
            gauge.reset_peak();
            other.join().unwrap();
            // Given back now: only the peak still knows.
            gauge.unclaim(2);
            assert_eq!(gauge.usage(), Usage { current_bytes: 0, peak_bytes: 2 });
        });
    }
}
