#![forbid(unsafe_code)]
//! Which elements of an input fall together into one element of a result.
//!
//! ```text
//! dims of the input:   kept: one group each     reduced: the elements of a group
//!                      (size, in, out steps)    (size, in step) → runs along the innermost
//! ```
//!
//! Neighbouring dimensions that lie without a gap are joined, so that a plan of any layout has few.
//!
//! Deliberately absent: elements and arithmetic.

use crate::kernel::{KernelCall, KernelError, fail};
use crate::tensor::shape::display_sizes;
use crate::tensor::{Dims, RANK_MAX, Tensor};

/// The dimensions that are reduced, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reduced(u16);

impl Reduced {
    /// Every dimension.
    pub(crate) const ALL: Self = Self(u16::MAX);
    /// No dimension: each element is a group.
    pub(crate) const NONE: Self = Self(0);

    /// The dimension that `dim` names, from the end where negative.
    pub(crate) fn one(name: &str, dim: i64, rank: usize) -> Result<Self, KernelError> {
        Ok(Self(1 << wrap(name, dim, rank)?))
    }

    /// The dimensions of a list; all where there is none or it is empty.
    pub(crate) fn list(name: &str, dims: Option<&[i64]>, rank: usize) -> Result<Self, KernelError> {
        let dims = dims.unwrap_or_default();
        let mut bits = 0;
        for &dim in dims {
            let bit = 1 << wrap(name, dim, rank)?;
            if bits & bit != 0 {
                fail!(Range, "{name}: dimension {dim} comes twice in {}", display_sizes(dims));
            }
            bits |= bit;
        }
        Ok(if dims.is_empty() { Self::ALL } else { Self(bits) })
    }

    fn has(self, dim: usize) -> bool {
        self.0 >> dim & 1 == 1
    }

    /// The sizes of the result.
    pub(crate) fn sizes(self, input: &[usize], keep: bool) -> Dims {
        let mut sizes = Dims::empty();
        for (dim, &size) in input.iter().enumerate() {
            // As many items as the input has always fit.
            let _ = match self.has(dim) {
                false => sizes.push(size),
                true if keep => sizes.push(1),
                true => Some(()),
            };
        }
        sizes
    }
}

/// The dimension that `dim` names; a scalar has one for this purpose.
pub(crate) fn wrap(name: &str, dim: i64, rank: usize) -> Result<usize, KernelError> {
    let rank = rank.max(1) as i64;
    let wrapped = if dim < 0 { dim + rank } else { dim };
    match usize::try_from(wrapped) {
        Ok(wrapped_dim) if wrapped < rank => Ok(wrapped_dim),
        _ => fail!(Range, "{name}: dimension {dim} is outside {} to {}", -rank, rank - 1),
    }
}

/// One or more joined dimensions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Axis {
    pub(crate) size: usize,
    /// Step in the input.
    pub(crate) step: usize,
    /// Step in the result.
    pub(crate) out_step: usize,
}

/// Dimensions, outermost first.
#[derive(Clone, Copy, Debug, Default)]
struct Axes {
    len: usize,
    items: [Axis; RANK_MAX],
}

impl Axes {
    fn push(&mut self, axis: Axis) {
        if axis.size != 1 {
            self.items[self.len] = axis;
            self.len += 1;
        }
    }

    fn as_slice(&self) -> &[Axis] {
        &self.items[..self.len]
    }

    /// Joins neighbours that lie without a gap, in the input and in the result.
    fn join(&mut self) {
        let mut joined = Self::default();
        for &axis in self.as_slice() {
            match joined.items[..joined.len].last_mut() {
                Some(outer)
                    if outer.step == axis.size * axis.step && outer.out_step == axis.size * axis.out_step =>
                {
                    *outer = Axis { size: outer.size * axis.size, ..axis };
                }
                _ => joined.push(axis),
            }
        }
        *self = joined;
    }

    fn sort(&mut self) {
        self.items[..self.len].sort_unstable_by_key(|axis| core::cmp::Reverse(axis.step));
    }

    fn count(&self) -> usize {
        self.as_slice().iter().map(|axis| axis.size).product()
    }
}

/// Calls `visit` with the input and output offset of each combination of `axes`.
#[inline(always)]
fn walk(axes: &[Axis], base: usize, mut visit: impl FnMut(usize, usize)) {
    let mut at = [0_usize; RANK_MAX];
    let (mut from, mut to) = (base, 0);
    if axes.iter().any(|axis| axis.size == 0) {
        return;
    }
    loop {
        visit(from, to);
        let mut dim = axes.len();
        loop {
            if dim == 0 {
                return;
            }
            dim -= 1;
            let axis = axes[dim];
            at[dim] += 1;
            from += axis.step;
            to += axis.out_step;
            if at[dim] < axis.size {
                break;
            }
            at[dim] = 0;
            from -= axis.size * axis.step;
            to -= axis.size * axis.out_step;
        }
    }
}

/// How an input is reduced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    kept: Axes,
    reduced: Axes,
}

impl Plan {
    /// The plan for a result that already has its sizes. `ordered` keeps the elements of a group in
    /// row-major order; else they come as they lie.
    pub(crate) fn new(input: &Tensor, out: &Tensor, reduced: Reduced, keep: bool, ordered: bool) -> Self {
        let (steps, out_steps) = (input.strides(), out.strides());
        let mut plan = Self { kept: Axes::default(), reduced: Axes::default() };
        let mut out_dim = 0;
        for (dim, (&size, &step)) in input.sizes().iter().zip(steps.iter()).enumerate() {
            if reduced.has(dim) {
                plan.reduced.push(Axis { size, step, out_step: 0 });
                out_dim += usize::from(keep);
            } else {
                plan.kept.push(Axis { size, step, out_step: out_steps[out_dim] });
                out_dim += 1;
            }
        }
        plan.kept.sort();
        plan.kept.join();
        if !ordered {
            plan.reduced.sort();
        }
        plan.reduced.join();
        plan
    }

    /// How many elements a group has.
    pub(crate) fn group_len(&self) -> usize {
        self.reduced.count()
    }

    /// The innermost reduced dimension.
    #[inline(always)]
    fn run(&self) -> Axis {
        self.reduced.as_slice().last().copied().unwrap_or(Axis { size: 1, step: 1, out_step: 0 })
    }

    /// The innermost kept dimension, where its elements are contiguous and those of a group are not.
    pub(crate) fn lanes(&self) -> Option<Axis> {
        self.kept.as_slice().last().copied().filter(|axis| axis.step == 1 && self.run().step != 1)
    }

    /// Calls `visit` with the offset of each group in the input and its place in the result.
    #[inline(always)]
    pub(crate) fn groups(&self, visit: impl FnMut(usize, usize)) {
        walk(self.kept.as_slice(), 0, visit);
    }

    /// As [`Plan::groups`], for each line of groups along [`Plan::lanes`].
    #[inline(always)]
    pub(crate) fn lines(&self, visit: impl FnMut(usize, usize)) {
        let kept = self.kept.as_slice();
        walk(&kept[..kept.len().saturating_sub(1)], 0, visit);
    }

    /// Calls `visit` with each run of the group at `base`: its offset, length and step.
    #[inline(always)]
    pub(crate) fn runs(&self, base: usize, mut visit: impl FnMut(usize, usize, usize)) {
        let (run, reduced) = (self.run(), self.reduced.as_slice());
        if run.size > 0 {
            walk(&reduced[..reduced.len().saturating_sub(1)], base, |from, _| {
                visit(from, run.size, run.step);
            });
        }
    }
}

/// Sets the sizes of the result at `out`, and gives the plan.
pub(crate) fn plan_of(
    call: &mut KernelCall<'_>,
    out: usize,
    reduced: Reduced,
    keep: bool,
    ordered: bool,
) -> Result<Plan, KernelError> {
    let sizes = reduced.sizes(call.tensor(0)?.sizes(), keep);
    call.resize(out, &sizes)?;
    Ok(Plan::new(call.tensor(0)?, call.tensor(out)?, reduced, keep, ordered))
}
