#![forbid(unsafe_code)]
//! Softmax and its logarithm along one dimension.
//!
//! ```text
//! softmax: e^(x − max) / Σ e^(x − max)          log: x − max − ln Σ e^(x − max)
//! ```
//!
//! Each line of the dimension is gathered into scratch, computed there, and written: so any order of
//! elements is taken, in and out, and `out` may be the input. 16-bit floats are computed in `f32`.
//!
//! Deliberately absent: `half_to_float`, which exporters never set on a CPU.

use super::cells::{apart, cells_to_write};
use super::elementwise::exp;
use super::numeric::{Float, Numeric, vectorised, with_numeric};
use super::reduce::{Plan, Reduced, wrap};
use super::{Arg, Kernel, KernelCall, KernelError, fail};
use crate::tensor::Dims;

/// The kernels of this family.
pub(super) const KERNELS: &[Kernel] = &[
    Kernel {
        name: "aten::_softmax.out",
        args: &[Arg::Tensor, Arg::Int, Arg::Bool, Arg::Out],
        run: |call| softmax::<false>(call, "softmax"),
    },
    Kernel {
        name: "aten::_log_softmax.out",
        args: &[Arg::Tensor, Arg::Int, Arg::Bool, Arg::Out],
        run: |call| softmax::<true>(call, "log_softmax"),
    },
];

/// A type with an exponential function.
trait Exponential: Float {
    fn exponential(self) -> Self;
    fn logarithm(self) -> Self;
}

impl Exponential for f32 {
    #[inline(always)]
    fn exponential(self) -> Self {
        exp(self)
    }
    fn logarithm(self) -> Self {
        self.ln()
    }
}

impl Exponential for f64 {
    #[inline(always)]
    fn exponential(self) -> Self {
        self.exp()
    }
    fn logarithm(self) -> Self {
        self.ln()
    }
}

fn softmax<const LOG: bool>(call: &mut KernelCall<'_>, name: &'static str) -> Result<(), KernelError> {
    let rank = call.tensor(0)?.rank();
    let dim = wrap(name, call.int(1)?, rank)?;
    let reduced = Reduced::one(name, call.int(1)?, rank)?;
    if call.bool(2)? {
        fail!(Unsupported, "{name}: half_to_float is not supported");
    }
    let sizes = Dims::new(call.tensor(0)?.sizes()).unwrap_or_else(Dims::empty);
    call.resize(3, &sizes)?;
    let (input, out) = (call.tensor(0)?, call.tensor(3)?);
    if input.dtype() != out.dtype() {
        fail!(DType, "{name}: input is {} and out {}, expected one kind", input.dtype(), out.dtype());
    }
    with_numeric!(float, input.dtype(), name, T => compute::<T, LOG>(call, reduced, dim))
}

fn compute<T, const LOG: bool>(call: &KernelCall<'_>, reduced: Reduced, dim: usize) -> Result<(), KernelError>
where
    T: Numeric<Acc: Exponential>,
{
    let (input, out) = (call.tensor(0)?, call.tensor(3)?);
    let plan = Plan::new(input, out, reduced, true, true);
    let len = plan.group_len();
    if out.numel() == 0 {
        return Ok(());
    }
    let to_cells = cells_to_write::<T>(out, 3)?;
    let step = out.strides().get(dim).copied().unwrap_or(1);
    // Lines are written where they were read, if both lie alike; else a copy is read.
    let cells = if input.address() == out.address() && input.matches_layout(out) {
        super::cells::cells_of::<T>(input, 0)?
    } else {
        apart::<T>(input, 0, out, call.scratch())?
    };
    let line = call.scratch().zeroed::<T::Acc>(len)?;
    vectorised(
        #[inline(always)]
        || {
            plan.groups(|from, to| {
                let mut filled = 0;
                plan.runs(from, |from, len, step| {
                    let slots = &mut line[filled..filled + len];
                    filled += len;
                    if step == 1 {
                        let source = &cells[from..from + len];
                        slots.iter_mut().zip(source).for_each(|(slot, cell)| *slot = cell.get().widen());
                    } else {
                        let source = cells[from..].iter().step_by(step);
                        slots.iter_mut().zip(source).for_each(|(slot, cell)| *slot = cell.get().widen());
                    }
                });
                normalise::<T::Acc, LOG>(line);
                if step == 1 {
                    let target = &to_cells[to..to + len];
                    target.iter().zip(&*line).for_each(|(cell, value)| cell.set(T::narrow(*value)));
                } else {
                    let target = to_cells[to..].iter().step_by(step);
                    target.zip(&*line).for_each(|(cell, value)| cell.set(T::narrow(*value)));
                }
            });
        },
    );
    Ok(())
}

/// Values kept side by side, so that sums and maxima need no order.
const LANES: usize = 16;

#[inline(always)]
fn normalise<T: Exponential, const LOG: bool>(line: &mut [T]) {
    let larger = |a: T, b: T| if b > a || Numeric::is_nan(b) { b } else { a };
    let most = fold(line, T::LOWEST, larger, |value| *value);
    if LOG {
        let sum = fold(line, T::default(), |a, b| a + b, |value| (*value - most).exponential());
        // x − max first: near the maximum nothing is lost.
        let log = sum.logarithm();
        for value in line {
            *value = (*value - most) - log;
        }
    } else {
        let sum = fold(
            line,
            T::default(),
            |a, b| a + b,
            |value| {
                *value = (*value - most).exponential();
                *value
            },
        );
        let scale = T::ONE / sum;
        for value in line {
            *value = *value * scale;
        }
    }
}

#[inline(always)]
fn fold<T: Float>(line: &mut [T], start: T, join: impl Fn(T, T) -> T, map: impl Fn(&mut T) -> T) -> T {
    let mut lanes = [start; LANES];
    let (chunks, rest) = line.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = join(*lane, map(value));
        }
    }
    let mut total = start;
    for value in rest {
        total = join(total, map(value));
    }
    lanes.into_iter().fold(total, join)
}
