#![forbid(unsafe_code)]
//! Convolution, in one or two dimensions, forward and transposed.
//!
//! ```text
//! out[n, o, y, x] = bias[o] + Σ weight[o, c, i, j] · input[n, c, y·stride − pad + i·dilation, …]
//!
//!   1 × 1               the planes are the factors of a product
//!   one channel a group direct sums                                  (depthwise.rs)
//!   else                patches become columns, then a product       (patches.rs)
//!   transposed          a product, then its columns become patches   (patches.rs)
//!   integers            plain loops                                  (direct.rs)
//! ```
//!
//! One dimension is two with a height of 1. Input, weight and `out` may lie in any order. 16-bit floats
//! are widened whole and rounded once. Scratch is bounded: patches are made in blocks.
//!
//! Deliberately absent: three dimensions, mixed kinds (but for the bias).

mod depthwise;
mod direct;
mod geometry;
mod patches;

use super::cells::{apart, cells_of, cells_to_write, scratch_cells};
use super::matmul::Gemm;
use super::numeric::{Numeric, with_numeric};
use super::{Arg, Kernel, KernelCall, KernelError, Scratch, fail};
use crate::tensor::ReadCell;
use core::cell::Cell;
use geometry::Geometry;

/// The kernels of this family.
pub(super) const KERNELS: &[Kernel] = &[Kernel {
    name: "aten::convolution.out",
    args: &[
        Arg::Tensor,
        Arg::Tensor,
        Arg::OptionalTensor,
        Arg::IntList,
        Arg::IntList,
        Arg::IntList,
        Arg::Bool,
        Arg::IntList,
        Arg::Int,
        Arg::Out,
    ],
    run: convolution,
}];

const OUT: usize = 9;

fn convolution(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let mut geometry = Geometry::of(call)?;
    call.resize(OUT, &geometry.out_sizes()?)?;
    geometry.set_out_strides(call.tensor(OUT)?);
    let (input, weight, out) = (call.tensor(0)?, call.tensor(1)?, call.tensor(OUT)?);
    let dtype = out.dtype();
    if input.dtype() != dtype || weight.dtype() != dtype {
        fail!(
            DType,
            "convolution: input is {}, weight {} and out {dtype}, expected one kind",
            input.dtype(),
            weight.dtype()
        );
    }
    with_numeric!(real, dtype, "convolution", T => compute::<T>(call, &geometry))
}

/// A convolution whose cells are at hand: neither input nor weight shares bytes with `out`.
struct Cells<'a, T: Numeric> {
    input: &'a [ReadCell<T>],
    weight: &'a [ReadCell<T>],
    /// One value for each output channel, where there is a bias.
    bias: Option<&'a [T::Acc]>,
    out: &'a [Cell<T>],
}

impl<T: Numeric> Cells<'_, T> {
    fn bias_at(&self, channel: usize) -> T::Acc {
        self.bias.map_or(T::Acc::default(), |bias| bias[channel])
    }
}

/// How each kind of element is convolved.
trait Convolve: Numeric {
    fn convolve(cells: &Cells<'_, Self>, shape: &Geometry, scratch: Scratch<'_>) -> Result<(), KernelError>;
}

fn compute<T: Convolve>(call: &KernelCall<'_>, shape: &Geometry) -> Result<(), KernelError> {
    let scratch = call.scratch();
    let target = call.tensor(OUT)?;
    let out = cells_to_write::<T>(target, OUT)?;
    if out.is_empty() {
        return Ok(());
    }
    let bias = match call.optional_tensor(2)? {
        None => None,
        Some(tensor) => {
            let values = scratch.zeroed::<T::Acc>(tensor.numel())?;
            with_numeric!(any, tensor.dtype(), "convolution: bias", B => {
                for (slot, cell) in values.iter_mut().zip(cells_of::<B>(tensor, 2)?) {
                    *slot = T::Acc::from_f64(cell.get().to_f64());
                }
            });
            Some(&*values)
        }
    };
    let input = apart::<T>(call.tensor(0)?, 0, target, scratch)?;
    let weight = apart::<T>(call.tensor(1)?, 1, target, scratch)?;
    T::convolve(&Cells { input, weight, bias, out }, shape, scratch)
}

/// Convolves `f32` or `f64` by the fastest way that fits.
fn fastest<T: Gemm>(cells: &Cells<'_, T>, shape: &Geometry, scratch: Scratch<'_>) -> Result<(), KernelError> {
    if cells.input.is_empty() {
        // Nothing but padding.
        fill_bias(cells, shape);
        Ok(())
    } else if shape.transposed {
        patches::transposed(cells, shape, scratch)
    } else if shape.in_per_group == 1 && depthwise::suits(shape) {
        depthwise::planes(cells, shape, scratch)
    } else {
        patches::forward(cells, shape, scratch)
    }
}

macro_rules! convolve {
    ($($kind:ty, $way:path);+ $(;)?) => {$(
        impl Convolve for $kind {
            fn convolve(cells: &Cells<'_, Self>, shape: &Geometry, scratch: Scratch<'_>) -> Result<(), KernelError> {
                $way(cells, shape, scratch)
            }
        }
    )+};
}
convolve! {
    f32, fastest;
    f64, fastest;
    half::f16, widened;
    half::bf16, widened;
    u8, direct::convolve;
    i8, direct::convolve;
    i16, direct::convolve;
    i32, direct::convolve;
    i64, direct::convolve;
}

/// Convolves 16-bit floats in `f32`, rounding once.
fn widened<T: Numeric<Acc = f32>>(
    cells: &Cells<'_, T>,
    shape: &Geometry,
    scratch: Scratch<'_>,
) -> Result<(), KernelError> {
    let widen = |from: &[ReadCell<T>]| -> Result<_, KernelError> {
        let to = scratch.zeroed::<f32>(from.len())?;
        to.iter_mut().zip(from).for_each(|(slot, cell)| *slot = cell.get().widen());
        Ok(scratch_cells(to))
    };
    let out = Cell::from_mut(scratch.zeroed::<f32>(cells.out.len())?).as_slice_of_cells();
    let wide = Cells { input: widen(cells.input)?, weight: widen(cells.weight)?, bias: cells.bias, out };
    fastest(&wide, shape, scratch)?;
    cells.out.iter().zip(out).for_each(|(slot, cell)| slot.set(T::narrow(cell.get())));
    Ok(())
}

/// Writes the bias, or zeros, over `out`.
fn fill_bias<T: Numeric>(cells: &Cells<'_, T>, shape: &Geometry) {
    let [batches, channels, rows, cols] = shape.out;
    let [n_step, c_step, y_step, x_step] = shape.out_steps;
    if c_step == 1 {
        // Channels last: a position holds one value of each.
        for n in 0..batches {
            for at in 0..rows * cols {
                let first = n * n_step + at / cols * y_step + at % cols * x_step;
                for (channel, slot) in cells.out[first..][..channels].iter().enumerate() {
                    slot.set(T::narrow(cells.bias_at(channel)));
                }
            }
        }
        return;
    }
    for n in 0..batches {
        for channel in 0..channels {
            let value = T::narrow(cells.bias_at(channel));
            for y in 0..rows {
                let first = n * n_step + channel * c_step + y * y_step;
                cells.out[first..].iter().step_by(x_step).take(cols).for_each(|slot| slot.set(value));
            }
        }
    }
}
