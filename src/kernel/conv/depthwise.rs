#![forbid(unsafe_code)]
//! Convolution with one input channel a group, by direct sums.
//!
//! ```text
//! plane, padded, columns sorted by phase (x mod stride):     so that each tap reads contiguous lanes,
//!   row y: │ 0 2 4 6 … │ 1 3 5 7 … │                         whatever stride and dilation
//! ```
//!
//! Where channels lie last, lanes are channels instead, and the planes stay where they are.
//!
//! Deliberately absent: products of matrices; one channel leaves nothing to share.

use super::{Cells, Geometry};
use crate::kernel::matmul::Gemm;
use crate::kernel::numeric::vectorised;
use crate::kernel::{KernelError, Scratch};
use crate::tensor::ReadCell;
use core::cell::Cell;

/// Sums computed side by side.
const LANES: usize = 16;
/// The most elements of a padded plane, and the most taps; larger ones take another way.
const PLANE_LEN_MAX: usize = 1 << 20;
const TAPS_MAX: usize = 64;

/// The padded plane: rows, and columns of one phase.
fn padded(shape: &Geometry) -> (usize, usize) {
    let rows = (shape.out[2] - 1) * shape.rows.stride + (shape.rows.taps - 1) * shape.rows.dilation + 1;
    let reach = (shape.cols.taps - 1) * shape.cols.dilation / shape.cols.stride;
    (rows, shape.out[3].next_multiple_of(LANES) + reach)
}

/// Whether a padded plane and its taps stay small.
pub(super) fn suits(shape: &Geometry) -> bool {
    let (rows, phase) = padded(shape);
    shape.rows.taps.saturating_mul(shape.cols.taps) <= TAPS_MAX
        && rows.saturating_mul(phase).saturating_mul(shape.cols.stride) <= PLANE_LEN_MAX
}

pub(super) fn planes<T: Gemm>(
    cells: &Cells<'_, T>,
    shape: &Geometry,
    scratch: Scratch<'_>,
) -> Result<(), KernelError> {
    if shape.input_steps[1] == 1
        && shape.out_steps[1] == 1
        && shape.out_per_group == 1
        && shape.groups >= LANES
    {
        return channels_last(cells, shape, scratch);
    }
    let (rows, phase) = padded(shape);
    let plane = scratch.zeroed::<T>(rows * phase * shape.cols.stride)?;
    let taps = scratch.zeroed::<T>(shape.rows.taps * shape.cols.taps)?;
    for n in 0..shape.input[0] {
        for group in 0..shape.groups {
            let from = &cells.input[n * shape.input_steps[0] + group * shape.input_steps[1]..];
            pad(from, shape, plane, phase);
            for member in 0..shape.out_per_group {
                let o = group * shape.out_per_group + member;
                load_taps(cells, shape, o, taps);
                let to = &cells.out[n * shape.out_steps[0] + o * shape.out_steps[1]..];
                let bias = cells.bias_at(o);
                vectorised(
                    #[inline(always)]
                    || plane_of(plane, phase, taps, bias, shape, to),
                );
            }
        }
    }
    Ok(())
}

fn load_taps<T: Gemm>(cells: &Cells<'_, T>, shape: &Geometry, o: usize, taps: &mut [T]) {
    let group = o / shape.out_per_group;
    let first = group * shape.weight_group_step + o % shape.out_per_group * shape.weight_steps[0];
    for (at, slot) in taps.iter_mut().enumerate() {
        let (i, j) = (at / shape.cols.taps, at % shape.cols.taps);
        *slot = cells.weight[first + i * shape.weight_steps[2] + j * shape.weight_steps[3]].get();
    }
}

/// Copies an input plane to its places in the padded one; the padding stays zero.
fn pad<T: Gemm>(from: &[ReadCell<T>], shape: &Geometry, plane: &mut [T], phase: usize) {
    let [_, _, high, wide] = shape.input;
    let (stride, padding) = (shape.cols.stride, shape.cols.padding);
    let row_len = phase * stride;
    for (row, line) in plane.chunks_exact_mut(row_len).enumerate() {
        let Some(y) = row.checked_sub(shape.rows.padding).filter(|&y| y < high) else { continue };
        let source = &from[y * shape.input_steps[2]..];
        for (q, lanes) in line.chunks_exact_mut(phase).enumerate() {
            // Column c of phase q is input column c · stride + q − padding.
            let skipped = padding.saturating_sub(q).div_ceil(stride);
            let first = skipped * stride + q - padding;
            if first < wide && skipped < lanes.len() {
                let step = shape.input_steps[3];
                let source = source[first * step..].iter().step_by(stride * step);
                let count = (wide - first).div_ceil(stride);
                lanes[skipped..]
                    .iter_mut()
                    .zip(source.take(count))
                    .for_each(|(slot, cell)| *slot = cell.get());
            }
        }
    }
}

/// One output plane from one padded plane.
#[inline(always)]
fn plane_of<T: Gemm>(plane: &[T], phase: usize, taps: &[T], bias: T, shape: &Geometry, to: &[Cell<T>]) {
    let (rows, cols) = (shape.rows, shape.cols);
    let row_len = phase * cols.stride;
    let width = shape.out[3].next_multiple_of(LANES);
    // Where each tap begins: its row, its phase, and its column there.
    let mut shifts = [0; TAPS_MAX];
    for (at, shift) in shifts[..taps.len()].iter_mut().enumerate() {
        let reach = at % cols.taps * cols.dilation;
        *shift = at / cols.taps * rows.dilation * row_len + reach % cols.stride * phase + reach / cols.stride;
    }
    let mut lines: [&[T]; TAPS_MAX] = [&[]; TAPS_MAX];
    for y in 0..shape.out[2] {
        for (line, shift) in lines.iter_mut().zip(&shifts[..taps.len()]) {
            *line = &plane[y * rows.stride * row_len + shift..][..width];
        }
        let to = &to[y * shape.out_steps[2]..];
        match (lines.first_chunk::<9>(), <&[T; 9]>::try_from(taps)) {
            (Some(lines), Ok(taps)) => row_of(lines, taps, bias, shape, to),
            _ => row_of(&lines[..taps.len()], taps, bias, shape, to),
        }
    }
}

/// One output row from the input row of each tap.
#[inline(always)]
fn row_of<T: Gemm>(lines: &[&[T]], taps: &[T], bias: T, shape: &Geometry, to: &[Cell<T>]) {
    let (width, step) = (shape.out[3], shape.out_steps[3]);
    for x in (0..width).step_by(LANES) {
        let mut sums = [bias; LANES];
        for (line, &tap) in lines.iter().zip(taps) {
            for (sum, &value) in sums.iter_mut().zip(&line[x..x + LANES]) {
                *sum = *sum + value * tap;
            }
        }
        if step == 1 && x + LANES <= width {
            to[x..x + LANES].iter().zip(sums).for_each(|(slot, sum)| slot.set(sum));
        } else {
            let slots = to[x * step..].iter().step_by(step);
            slots.zip(&sums[..LANES.min(width - x)]).for_each(|(slot, sum)| slot.set(*sum));
        }
    }
}

fn channels_last<T: Gemm>(
    cells: &Cells<'_, T>,
    shape: &Geometry,
    scratch: Scratch<'_>,
) -> Result<(), KernelError> {
    // Taps of all channels side by side.
    let taps = scratch.zeroed::<T>(shape.rows.taps * shape.cols.taps * shape.groups)?;
    for (at, line) in taps.chunks_exact_mut(shape.groups).enumerate() {
        let (i, j) = (at / shape.cols.taps, at % shape.cols.taps);
        let first = i * shape.weight_steps[2] + j * shape.weight_steps[3];
        for (channel, slot) in line.iter_mut().enumerate() {
            *slot = cells.weight[first + channel * shape.weight_group_step].get();
        }
    }
    vectorised(
        #[inline(always)]
        || {
            for n in 0..shape.out[0] {
                for y in 0..shape.out[2] {
                    for x in 0..shape.out[3] {
                        position(cells, shape, taps, [n, y, x]);
                    }
                }
            }
        },
    );
    Ok(())
}

/// The output of all channels at one position.
#[inline(always)]
fn position<T: Gemm>(cells: &Cells<'_, T>, shape: &Geometry, taps: &[T], [n, y, x]: [usize; 3]) {
    let channels = shape.groups;
    let to =
        &cells.out[n * shape.out_steps[0] + y * shape.out_steps[2] + x * shape.out_steps[3]..][..channels];
    for first in (0..channels).step_by(LANES) {
        // The last lanes overlap those before: the same sums, written twice.
        let first = first.min(channels - LANES);
        let mut sums = [T::default(); LANES];
        if let Some(bias) = cells.bias {
            sums.copy_from_slice(&bias[first..][..LANES]);
        }
        for i in 0..shape.rows.taps {
            let Some(from_y) = shape.rows.source(y, i, shape.input[2]) else { continue };
            for j in 0..shape.cols.taps {
                let Some(from_x) = shape.cols.source(x, j, shape.input[3]) else { continue };
                let at =
                    n * shape.input_steps[0] + from_y * shape.input_steps[2] + from_x * shape.input_steps[3];
                let source = &cells.input[at + first..][..LANES];
                let line = &taps[(i * shape.cols.taps + j) * channels + first..][..LANES];
                for ((sum, cell), &tap) in sums.iter_mut().zip(source).zip(line) {
                    *sum = *sum + cell.get() * tap;
                }
            }
        }
        to[first..][..LANES].iter().zip(sums).for_each(|(slot, sum)| slot.set(sum));
    }
}
