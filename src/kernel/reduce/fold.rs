#![forbid(unsafe_code)]
//! Folding groups of elements, side by side where they are contiguous.
//!
//! Floating-point sums and products are kept in `f64`, so that no order of elements matters.
//!
//! Deliberately absent: folds that need to know where an element was, see `index.rs`.

use super::plan::Plan;
use crate::kernel::numeric::{Accumulator, Numeric, vectorised};
use crate::tensor::{DType, ReadCell};

/// States kept side by side.
const LANES: usize = 16;

/// What becomes of the elements of a group.
pub(crate) trait Fold<T> {
    /// What is known so far.
    type State: Copy;
    /// Before the first element.
    fn start(&self) -> Self::State;
    /// After one more.
    fn step(&self, state: Self::State, value: T) -> Self::State;
    /// Of two parts of a group.
    fn join(&self, a: Self::State, b: Self::State) -> Self::State;
}

/// Sums in `f64`.
pub(crate) struct Sum;
impl<T: Numeric> Fold<T> for Sum {
    type State = f64;
    #[inline(always)]
    fn start(&self) -> f64 {
        0.0
    }
    #[inline(always)]
    fn step(&self, state: f64, value: T) -> f64 {
        state + value.to_f64()
    }
    #[inline(always)]
    fn join(&self, a: f64, b: f64) -> f64 {
        a + b
    }
}

/// Sums of squared distances from a mean, in `f64`.
pub(crate) struct Spread {
    pub(crate) mean: f64,
}
impl<T: Numeric> Fold<T> for Spread {
    type State = f64;
    #[inline(always)]
    fn start(&self) -> f64 {
        0.0
    }
    #[inline(always)]
    fn step(&self, state: f64, value: T) -> f64 {
        let distance = value.to_f64() - self.mean;
        state + distance * distance
    }
    #[inline(always)]
    fn join(&self, a: f64, b: f64) -> f64 {
        a + b
    }
}

/// Sums of whole numbers, wrapping. Real numbers are cut first; truth values too where `truth`.
pub(super) struct WholeSum {
    pub(super) truth: bool,
}

/// An element as a whole number.
#[inline(always)]
pub(super) fn whole<T: Numeric>(value: T, truth: bool) -> i64 {
    if truth { i64::from(value.to_f64() != 0.0) } else { value.to_i64() }
}

impl<T: Numeric> Fold<T> for WholeSum {
    type State = i64;
    #[inline(always)]
    fn start(&self) -> i64 {
        0
    }
    #[inline(always)]
    fn step(&self, state: i64, value: T) -> i64 {
        state.wrapping_add(whole(value, self.truth))
    }
    #[inline(always)]
    fn join(&self, a: i64, b: i64) -> i64 {
        a.wrapping_add(b)
    }
}

/// Products in `f64`.
pub(super) struct Product;
impl<T: Numeric> Fold<T> for Product {
    type State = f64;
    #[inline(always)]
    fn start(&self) -> f64 {
        1.0
    }
    #[inline(always)]
    fn step(&self, state: f64, value: T) -> f64 {
        state * value.to_f64()
    }
    #[inline(always)]
    fn join(&self, a: f64, b: f64) -> f64 {
        a * b
    }
}

/// Products of whole numbers, as [`WholeSum`].
pub(super) struct WholeProduct {
    pub(super) truth: bool,
}
impl<T: Numeric> Fold<T> for WholeProduct {
    type State = i64;
    #[inline(always)]
    fn start(&self) -> i64 {
        1
    }
    #[inline(always)]
    fn step(&self, state: i64, value: T) -> i64 {
        state.wrapping_mul(whole(value, self.truth))
    }
    #[inline(always)]
    fn join(&self, a: i64, b: i64) -> i64 {
        a.wrapping_mul(b)
    }
}

/// The largest element or, where `LEAST`, the smallest; a NaN wins.
pub(super) struct Extreme<const LEAST: bool>;
impl<const LEAST: bool, T: Numeric> Fold<T> for Extreme<LEAST> {
    type State = T::Acc;
    #[inline(always)]
    fn start(&self) -> T::Acc {
        if LEAST { T::Acc::HIGHEST } else { T::Acc::LOWEST }
    }
    #[inline(always)]
    fn step(&self, state: T::Acc, value: T) -> T::Acc {
        Fold::<T>::join(self, state, value.widen())
    }
    #[inline(always)]
    fn join(&self, a: T::Acc, b: T::Acc) -> T::Acc {
        let beats = if LEAST { b < a } else { b > a };
        if beats | b.is_nan() { b } else { a }
    }
}

/// Whether any element is not zero or, where `EVERY`, whether all are.
pub(super) struct Truth<const EVERY: bool>;
impl<const EVERY: bool, T: Numeric> Fold<T> for Truth<EVERY> {
    type State = bool;
    #[inline(always)]
    fn start(&self) -> bool {
        EVERY
    }
    #[inline(always)]
    fn step(&self, state: bool, value: T) -> bool {
        Fold::<T>::join(self, state, value.to_f64() != 0.0)
    }
    #[inline(always)]
    fn join(&self, a: bool, b: bool) -> bool {
        if EVERY { a & b } else { a | b }
    }
}

/// Folds contiguous elements.
#[inline(always)]
pub(crate) fn fold_run<T: Numeric, F: Fold<T>>(fold: &F, cells: &[ReadCell<T>]) -> F::State {
    let mut total = fold.start();
    let (chunks, rest) = cells.as_chunks::<LANES>();
    if !chunks.is_empty() {
        let mut states = [fold.start(); LANES];
        for chunk in chunks {
            for (state, cell) in states.iter_mut().zip(chunk) {
                *state = fold.step(*state, cell.get());
            }
        }
        // In pairs, halving.
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                states[lane] = fold.join(states[lane], states[lane + width]);
            }
            width /= 2;
        }
        total = states[0];
    }
    for cell in rest {
        total = fold.step(total, cell.get());
    }
    total
}

/// Folds the group at `base`.
#[inline(always)]
pub(super) fn fold_group<T: Numeric, F: Fold<T>>(
    plan: &Plan,
    cells: &[ReadCell<T>],
    base: usize,
    fold: &F,
) -> F::State {
    let mut total = fold.start();
    plan.runs(base, |from, len, step| {
        if step == 1 {
            total = fold.join(total, fold_run(fold, &cells[from..from + len]));
        } else {
            for cell in cells[from..].iter().step_by(step).take(len) {
                total = fold.step(total, cell.get());
            }
        }
    });
    total
}

/// Folds every group; `store` takes the place in the result and the state.
pub(super) fn fold_all<T: Numeric, F: Fold<T>>(
    plan: &Plan,
    cells: &[ReadCell<T>],
    fold: &F,
    store: impl FnMut(usize, F::State),
) {
    if matches!(T::DTYPE, DType::Float32 | DType::Float64) {
        vectorised(
            #[inline(always)]
            || fold_groups(plan, cells, fold, store),
        );
    } else {
        fold_groups(plan, cells, fold, store);
    }
}

#[inline(always)]
fn fold_groups<T: Numeric, F: Fold<T>>(
    plan: &Plan,
    cells: &[ReadCell<T>],
    fold: &F,
    mut store: impl FnMut(usize, F::State),
) {
    let Some(lanes) = plan.lanes() else {
        plan.groups(|from, to| store(to, fold_group(plan, cells, from, fold)));
        return;
    };
    // Groups lie side by side: fold sixteen at a time, the rest one by one.
    plan.lines(|from, to| {
        let whole = lanes.size / LANES * LANES;
        for first in (0..whole).step_by(LANES) {
            let mut states = [fold.start(); LANES];
            plan.runs(from + first, |from, len, step| {
                for at in 0..len {
                    let line = &cells[from + at * step..][..LANES];
                    for (state, cell) in states.iter_mut().zip(line) {
                        *state = fold.step(*state, cell.get());
                    }
                }
            });
            for (lane, state) in states.into_iter().enumerate() {
                store(to + (first + lane) * lanes.out_step, state);
            }
        }
        for at in whole..lanes.size {
            store(to + at * lanes.out_step, fold_group(plan, cells, from + at, fold));
        }
    });
}
