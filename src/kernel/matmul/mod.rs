#![deny(unsafe_code)]
//! Matrix products: `mm`, `bmm`, `addmm`, `linear`.
//!
//! ```text
//! out[b, r, c] = beta · self[r, c] + alpha · Σ mat1[b, r, i] · mat2[b, i, c]
//! ```
//!
//! All four are one batched product with a start value. `f32` and `f64` run on micro-kernels
//! ([`product`]); `f16` and `bf16` are widened in blocks, summed in `f32` and rounded once; integers wrap.
//! Factors may lie in any order, and over `out`: a factor that shares bytes with it is copied first.
//!
//! Deliberately absent: threads, mixed kinds, and `bool`.

pub(crate) mod gemm;
pub(crate) mod product;
mod widened;

pub(crate) use gemm::{Gemm, warm_up};
pub(crate) use product::{Matrix, Target, pack_len, product};

use super::cells::{apart, cells_of, cells_to_write};
use super::numeric::{Accumulator, Numeric, with_numeric};
use super::{Arg, Kernel, KernelCall, KernelError, Scratch, fail};
use crate::tensor::shape::display_sizes;
use crate::tensor::{ReadCell, Tensor};
use core::cell::Cell;

/// The kernels of this family.
pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "aten::mm.out", args: &[Arg::Tensor, Arg::Tensor, Arg::Out], run: mm },
    Kernel { name: "aten::bmm.out", args: &[Arg::Tensor, Arg::Tensor, Arg::Out], run: bmm },
    Kernel {
        name: "aten::addmm.out",
        args: &[Arg::Tensor, Arg::Tensor, Arg::Tensor, Arg::Scalar, Arg::Scalar, Arg::Out],
        run: addmm,
    },
    Kernel {
        name: "aten::linear.out",
        args: &[Arg::Tensor, Arg::Tensor, Arg::OptionalTensor, Arg::Out],
        run: linear,
    },
];

fn mm(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let (&[rows, inner], &[b_inner, cols]) = (a.sizes(), b.sizes()) else {
        fail!(Shape, "mm: ranks {} and {}, expected 2 and 2", a.rank(), b.rank());
    };
    if inner != b_inner {
        return Err(mismatch("mm", a, b));
    }
    call.resize(2, &[rows, cols])?;
    let (a, b, out) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let steps = [a.strides(), b.strides(), out.strides()].map(|s| [0, s[0], s[1]]);
    run(
        "mm",
        Problem { a, b, out, indices: [0, 1, 2], start: None, sizes: [1, rows, inner, cols], steps },
        call.scratch(),
    )
}

fn bmm(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let (&[batch, rows, inner], &[b_batch, b_inner, cols]) = (a.sizes(), b.sizes()) else {
        fail!(Shape, "bmm: ranks {} and {}, expected 3 and 3", a.rank(), b.rank());
    };
    if inner != b_inner || batch != b_batch {
        return Err(mismatch("bmm", a, b));
    }
    call.resize(2, &[batch, rows, cols])?;
    let (a, b, out) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let steps = [a.strides(), b.strides(), out.strides()].map(|s| [s[0], s[1], s[2]]);
    run(
        "bmm",
        Problem { a, b, out, indices: [0, 1, 2], start: None, sizes: [batch, rows, inner, cols], steps },
        call.scratch(),
    )
}

fn addmm(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (bias, a, b) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let (&[rows, inner], &[b_inner, cols]) = (a.sizes(), b.sizes()) else {
        fail!(Shape, "addmm: ranks {} and {}, expected 2 and 2", a.rank(), b.rank());
    };
    if inner != b_inner {
        return Err(mismatch("addmm", a, b));
    }
    let bias_steps = broadcast("addmm", bias, rows, cols)?;
    let (beta, alpha) = (call.scalar(3)?.to_f64(), call.scalar(4)?.to_f64());
    call.resize(5, &[rows, cols])?;
    let (bias, a, b, out) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?, call.tensor(5)?);
    let steps = [a.strides(), b.strides(), out.strides()].map(|s| [0, s[0], s[1]]);
    let start = Some(Start { bias, index: 0, steps: bias_steps, beta, alpha });
    run(
        "addmm",
        Problem { a, b, out, indices: [1, 2, 5], start, sizes: [1, rows, inner, cols], steps },
        call.scratch(),
    )
}

fn linear(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (input, weight, bias) = (call.tensor(0)?, call.tensor(1)?, call.optional_tensor(2)?);
    let (Some((&inner, lead)), &[cols, weight_inner]) = (input.sizes().split_last(), weight.sizes()) else {
        fail!(Shape, "linear: ranks {} and {}, expected at least 1, and 2", input.rank(), weight.rank());
    };
    if inner != weight_inner {
        return Err(mismatch("linear", input, weight));
    }
    if !input.is_row_major() {
        fail!(Layout, "linear: the input is in order {}, expected row-major", display_sizes(input.order()));
    }
    let rows = lead.iter().product();
    let bias_steps = bias.map(|bias| broadcast("linear", bias, rows, cols)).transpose()?;
    let mut sizes = crate::tensor::Dims::new(lead).unwrap_or_else(crate::tensor::Dims::empty);
    let _ = sizes.push(cols);
    call.resize(3, &sizes)?;
    let (a, b, bias, out) = (call.tensor(0)?, call.tensor(1)?, call.optional_tensor(2)?, call.tensor(3)?);
    if !out.is_row_major() {
        fail!(Layout, "linear: out is in order {}, expected row-major", display_sizes(out.order()));
    }
    let weight_steps = b.strides();
    let steps = [[0, inner, 1], [0, weight_steps[1], weight_steps[0]], [0, cols, 1]];
    let start =
        bias.zip(bias_steps).map(|(bias, steps)| Start { bias, index: 2, steps, beta: 1.0, alpha: 1.0 });
    run(
        "linear",
        Problem { a, b, out, indices: [0, 1, 3], start, sizes: [1, rows, inner, cols], steps },
        call.scratch(),
    )
}

#[cold]
fn mismatch(name: &str, a: &Tensor, b: &Tensor) -> KernelError {
    KernelError::Shape(format!(
        "{name}: sizes {} and {} do not fit together",
        display_sizes(a.sizes()),
        display_sizes(b.sizes())
    ))
}

/// The row and column strides that stretch `bias` over `rows × cols`.
fn broadcast(name: &str, bias: &Tensor, rows: usize, cols: usize) -> Result<[usize; 2], KernelError> {
    let strides = bias.strides();
    let step = |size: usize, stride: usize, wanted: usize| match size {
        _ if size == wanted => Some(stride),
        1 => Some(0),
        _ => None,
    };
    match *bias.sizes() {
        [] => Some([0, 0]),
        [size] => step(size, strides[0], cols).map(|col| [0, col]),
        [high, wide] => {
            step(high, strides[0], rows).zip(step(wide, strides[1], cols)).map(<[usize; 2]>::from)
        }
        _ => None,
    }
    .ok_or_else(|| {
        KernelError::Shape(format!(
            "{name}: sizes {} do not stretch over {}",
            display_sizes(bias.sizes()),
            display_sizes(&[rows, cols])
        ))
    })
}

/// What a product is added to, and the factors of both.
#[derive(Clone, Copy)]
struct Start<'a> {
    bias: &'a Tensor,
    /// Which argument that is.
    index: usize,
    /// Row and column strides; 0 stretches.
    steps: [usize; 2],
    beta: f64,
    alpha: f64,
}

/// A batched product with a start value, sizes checked.
#[derive(Clone, Copy)]
struct Problem<'a> {
    a: &'a Tensor,
    b: &'a Tensor,
    out: &'a Tensor,
    /// Which arguments these are.
    indices: [usize; 3],
    start: Option<Start<'a>>,
    /// Batch, rows, inner, columns.
    sizes: [usize; 4],
    /// Batch, row and column strides of `a`, `b` and `out`.
    steps: [[usize; 3]; 3],
}

/// A problem whose cells are at hand: no factor shares bytes with `out`.
struct Cells<'a, T> {
    a: &'a [ReadCell<T>],
    b: &'a [ReadCell<T>],
    out: &'a [Cell<T>],
    start: Option<(&'a [ReadCell<T>], Start<'a>)>,
    sizes: [usize; 4],
    steps: [[usize; 3]; 3],
}

/// How each kind of element computes a problem.
trait Product: Numeric {
    fn compute(cells: &Cells<'_, Self>, scratch: Scratch<'_>) -> Result<(), KernelError>;
}

fn run(name: &'static str, problem: Problem<'_>, scratch: Scratch<'_>) -> Result<(), KernelError> {
    let dtype = problem.out.dtype();
    let others = [Some(problem.a), Some(problem.b), problem.start.map(|start| start.bias)];
    if let Some(other) = others.into_iter().flatten().find(|other| other.dtype() != dtype) {
        fail!(DType, "{name}: elements are {} and {dtype}, expected one kind", other.dtype());
    }
    with_numeric!(real, dtype, name, T => compute::<T>(&problem, scratch))
}

fn compute<T: Product>(problem: &Problem<'_>, scratch: Scratch<'_>) -> Result<(), KernelError> {
    let (target, [a, b, out]) = (problem.out, problem.indices);
    let start = match problem.start {
        None => None,
        // Elements at the same places are read just before they are written.
        Some(start) if start.bias.address() == target.address() && start.steps == problem.steps[2][1..] => {
            Some((cells_of::<T>(start.bias, start.index)?, start))
        }
        Some(start) => Some((apart::<T>(start.bias, start.index, target, scratch)?, start)),
    };
    let (a, b) = (apart(problem.a, a, target, scratch)?, apart(problem.b, b, target, scratch)?);
    let out = cells_to_write(target, out)?;
    T::compute(&Cells { a, b, out, start, sizes: problem.sizes, steps: problem.steps }, scratch)
}

impl<T: Numeric> Cells<'_, T> {
    fn batch(&self, at: usize) -> (Matrix<'_, T>, Matrix<'_, T>, Target<'_, T>) {
        let [_, rows, inner, cols] = self.sizes;
        let [a, b, out] = self.steps;
        let cells = |cells: &'_ [ReadCell<T>], step: usize| at * step..cells.len().max(at * step);
        (
            Matrix {
                cells: self.a.get(cells(self.a, a[0])).unwrap_or_default(),
                rows,
                cols: inner,
                row_step: a[1],
                col_step: a[2],
            },
            Matrix {
                cells: self.b.get(cells(self.b, b[0])).unwrap_or_default(),
                rows: inner,
                cols,
                row_step: b[1],
                col_step: b[2],
            },
            Target {
                cells: self.out.get(at * out[0]..).unwrap_or_default(),
                row_step: out[1],
                col_step: out[2],
            },
        )
    }

    /// What the product at `[row, col]` is added to, already scaled.
    fn start_at(&self, row: usize, col: usize) -> Option<T::Acc> {
        self.start.map(|(cells, start)| {
            let value = cells[row * start.steps[0] + col * start.steps[1]].get().widen();
            T::Acc::from_f64(start.beta).times(value)
        })
    }

    fn alpha(&self) -> T::Acc {
        self.start.map_or(T::Acc::ONE, |(_, start)| T::Acc::from_f64(start.alpha))
    }
}

macro_rules! with_kernels {
    ($($kind:ty),+) => {$(
        impl Product for $kind {
            fn compute(cells: &Cells<'_, Self>, scratch: Scratch<'_>) -> Result<(), KernelError> {
                let [batches, rows, _, cols] = cells.sizes;
                if cells.out.is_empty() {
                    return Ok(());
                }
                let (a, b, out) = cells.batch(0);
                let packed = scratch.zeroed(pack_len(&a, &b, (out.row_step, out.col_step)))?;
                fill_start(cells, rows, cols);
                for at in 0..batches {
                    let (a, b, out) = cells.batch(at);
                    product(a, b, out, cells.alpha(), cells.start.is_some(), packed);
                }
                Ok(())
            }
        }
    )+};
}
with_kernels!(f32, f64);

/// Writes the start values to `out`, which a product then adds to.
fn fill_start<T: Numeric<Acc = T> + Accumulator>(cells: &Cells<'_, T>, rows: usize, cols: usize) {
    let Some((source, start)) = cells.start else { return };
    let [_, row_step, col_step] = cells.steps[2];
    let plain = start.beta.to_bits() == 1.0_f64.to_bits();
    for row in 0..rows {
        if plain && col_step == 1 && start.steps[1] == 1 {
            let line = cells.out[row * row_step..][..cols].iter();
            line.zip(&source[row * start.steps[0]..]).for_each(|(slot, cell)| slot.set(cell.get()));
            continue;
        }
        for col in 0..cols {
            let slot = &cells.out[row * row_step + col * col_step];
            slot.set(cells.start_at(row, col).unwrap_or_default());
        }
    }
}

macro_rules! with_loops {
    ($($kind:ty),+) => {$(
        impl Product for $kind {
            fn compute(cells: &Cells<'_, Self>, _: Scratch<'_>) -> Result<(), KernelError> {
                let [batches, rows, inner, cols] = cells.sizes;
                for at in 0..batches {
                    let (a, b, out) = cells.batch(at);
                    for row in 0..rows {
                        for col in 0..cols {
                            let sum = (0..inner).fold(0_i64, |sum, at| {
                                sum.plus(a.get(row, at).widen().times(b.get(at, col).widen()))
                            });
                            let sum = sum.times(cells.alpha()).plus(cells.start_at(row, col).unwrap_or(0));
                            out.cells[row * out.row_step + col * out.col_step].set(<$kind>::narrow(sum));
                        }
                    }
                }
                Ok(())
            }
        }
    )+};
}
with_loops!(u8, i8, i16, i32, i64);

macro_rules! with_widening {
    ($($kind:ty),+) => {$(
        impl Product for $kind {
            fn compute(cells: &Cells<'_, Self>, scratch: Scratch<'_>) -> Result<(), KernelError> {
                widened::compute(cells, scratch)
            }
        }
    )+};
}
with_widening!(half::f16, half::bf16);
