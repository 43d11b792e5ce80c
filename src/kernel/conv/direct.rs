#![forbid(unsafe_code)]
//! Convolution of integers by plain loops: each output element gathers its taps.
//!
//! Deliberately absent: speed. Programs convolve integers rarely.

use super::{Cells, Geometry};
use crate::kernel::numeric::{Accumulator, Numeric};
use crate::kernel::{KernelError, Scratch};

/// The input position of a tap, forward or transposed, or `None` where there is none.
fn source(
    shape: &Geometry,
    axis: super::geometry::Axis,
    at: usize,
    tap: usize,
    size: usize,
) -> Option<usize> {
    if !shape.transposed {
        return axis.source(at, tap, size);
    }
    let scaled = (at + axis.padding).checked_sub(tap * axis.dilation)?;
    (scaled.is_multiple_of(axis.stride) && scaled / axis.stride < size).then_some(scaled / axis.stride)
}

#[expect(clippy::unnecessary_wraps, reason = "one of several ways, which need scratch")]
pub(super) fn convolve<T: Numeric>(
    cells: &Cells<'_, T>,
    shape: &Geometry,
    _: Scratch<'_>,
) -> Result<(), KernelError> {
    let [batches, channels, rows, cols] = shape.out;
    for n in 0..batches {
        for o in 0..channels {
            let (group, member) = (o / shape.out_per_group, o % shape.out_per_group);
            let weight = group * shape.weight_group_step + member * shape.weight_steps[0];
            let input = n * shape.input_steps[0] + group * shape.in_per_group * shape.input_steps[1];
            for at in 0..rows * cols {
                let (y, x) = (at / cols, at % cols);
                let mut sum = cells.bias_at(o);
                for i in 0..shape.rows.taps {
                    let Some(from_y) = source(shape, shape.rows, y, i, shape.input[2]) else { continue };
                    for j in 0..shape.cols.taps {
                        let Some(from_x) = source(shape, shape.cols, x, j, shape.input[3]) else { continue };
                        let input = input + from_y * shape.input_steps[2] + from_x * shape.input_steps[3];
                        let weight = weight + i * shape.weight_steps[2] + j * shape.weight_steps[3];
                        for c in 0..shape.in_per_group {
                            let a = cells.input[input + c * shape.input_steps[1]].get().widen();
                            let b = cells.weight[weight + c * shape.weight_steps[1]].get().widen();
                            sum = sum.plus(a.times(b));
                        }
                    }
                }
                let to = n * shape.out_steps[0]
                    + o * shape.out_steps[1]
                    + y * shape.out_steps[2]
                    + x * shape.out_steps[3];
                cells.out[to].set(T::narrow(sum));
            }
        }
    }
    Ok(())
}
