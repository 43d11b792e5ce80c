#![forbid(unsafe_code)]
//! Convolution as a product: patches of the input become columns of a matrix, or the other way round.
//!
//! ```text
//!            positions                                    taps = channel, row, column
//!          ┌───────────┐                                  (or row, column, channel where channels lie last)
//!     taps │  patches  │   out[channel, position] = weight[channel, taps] · patches
//!          └───────────┘   a block of positions at a time
//! ```
//!
//! Deliberately absent: caching of reordered weights from one run to the next.

use super::{Cells, Geometry, fill_bias};
use crate::kernel::cells::scratch_cells;
use crate::kernel::matmul::{Gemm, Matrix, Target, pack_len, product};
use crate::kernel::{KernelError, Scratch};
use crate::tensor::ReadCell;
use core::cell::Cell;

/// Elements of a block of patches, where one position is not larger: it stays in the second-level cache.
const BLOCK_LEN: usize = 1 << 17;

/// How taps are ordered in a row of the weight matrix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taps {
    ChannelFirst,
    ChannelLast,
}

/// The weight as matrices of `out_per_group × taps`, one after the other; copied only where it lies otherwise.
struct Weight<'a, T> {
    cells: &'a [ReadCell<T>],
    group_step: usize,
    row_step: usize,
    taps: usize,
    rows: usize,
}

impl<'a, T: Gemm> Weight<'a, T> {
    fn new(
        cells: &'a [ReadCell<T>],
        shape: &Geometry,
        order: Taps,
        scratch: Scratch<'a>,
    ) -> Result<Self, KernelError> {
        let [o_step, c_step, i_step, j_step] = shape.weight_steps;
        let (channels, high, wide) = (shape.in_per_group, shape.rows.taps, shape.cols.taps);
        let taps = channels * high * wide;
        let dims = match order {
            Taps::ChannelFirst => [(channels, c_step), (high, i_step), (wide, j_step)],
            Taps::ChannelLast => [(high, i_step), (wide, j_step), (channels, c_step)],
        };
        let mut step = 1;
        let in_place = dims.iter().rev().all(|&(size, stride)| {
            let fits = size == 1 || stride == step;
            step *= size;
            fits
        });
        let rows = shape.out_per_group;
        if in_place {
            return Ok(Self { cells, group_step: shape.weight_group_step, row_step: o_step, taps, rows });
        }
        let copy = scratch.zeroed::<T>(shape.groups * rows * taps)?;
        for (row, line) in copy.chunks_exact_mut(taps).enumerate() {
            let first = row / rows * shape.weight_group_step + row % rows * o_step;
            let mut slots = line.iter_mut();
            for a in 0..dims[0].0 {
                for b in 0..dims[1].0 {
                    let first = first + a * dims[0].1 + b * dims[1].1;
                    for (c, slot) in slots.by_ref().take(dims[2].0).enumerate() {
                        *slot = cells[first + c * dims[2].1].get();
                    }
                }
            }
        }
        Ok(Self { cells: scratch_cells(copy), group_step: rows * taps, row_step: taps, taps, rows })
    }

    fn group(&self, group: usize) -> Matrix<'a, T> {
        let cells = &self.cells[group * self.group_step..];
        Matrix { cells, rows: self.rows, cols: self.taps, row_step: self.row_step, col_step: 1 }
    }
}

/// The step from one position to the next, where rows follow each other without a gap.
fn position_step(sizes: [usize; 4], steps: [usize; 4]) -> Option<usize> {
    (sizes[2] == 1 || steps[2] == sizes[3] * steps[3]).then_some(steps[3])
}

fn is_pointwise(shape: &Geometry) -> bool {
    let plain = |axis: super::geometry::Axis| axis.taps == 1 && axis.stride == 1 && axis.padding == 0;
    plain(shape.rows) && plain(shape.cols)
}

/// Positions that a block holds: whole rows where rows follow each other, else a part of one row.
fn block_positions(shape: &Geometry, positions: usize, taps: usize, follow: bool) -> usize {
    let most = (BLOCK_LEN / taps.max(1)).max(64);
    if follow { most.min(positions) } else { most.min(shape.out[3]) }
}

pub(super) fn forward<T: Gemm>(
    cells: &Cells<'_, T>,
    shape: &Geometry,
    scratch: Scratch<'_>,
) -> Result<(), KernelError> {
    let accumulate = cells.bias.is_some();
    if accumulate {
        fill_bias(cells, shape);
    }
    let out_step = position_step(shape.out, shape.out_steps);
    let in_step = position_step(shape.input, shape.input_steps);
    if is_pointwise(shape)
        && let Some((out_step, in_step)) = out_step.zip(in_step)
    {
        return pointwise(cells, shape, accumulate, [in_step, out_step], scratch);
    }
    let last = shape.input_steps[1] == 1 && shape.in_per_group > 1 && shape.input_steps[3] != 1;
    let order = if last { Taps::ChannelLast } else { Taps::ChannelFirst };
    let weight = Weight::new(cells.weight, shape, order, scratch)?;
    let positions = shape.out[2] * shape.out[3];
    let most = block_positions(shape, positions, weight.taps, out_step.is_some());
    let block = scratch.zeroed::<T>(most * weight.taps)?;
    // What is left at the end of the plane, or of each row, is narrower.
    let whole = if out_step.is_some() { positions } else { shape.out[3] };
    let len_of = |count| {
        let factor = weight.group(0);
        let patches = patches_of(&[], order, weight.taps, count);
        pack_len(&factor, &patches, (shape.out_steps[1], shape.out_steps[3]))
    };
    let packed = scratch.zeroed::<T>(len_of(most).max(len_of(whole % most)))?;
    for n in 0..shape.input[0] {
        for group in 0..shape.groups {
            let first = n * shape.input_steps[0] + group * shape.in_per_group * shape.input_steps[1];
            let input = &cells.input[first..];
            let to = n * shape.out_steps[0] + group * shape.out_per_group * shape.out_steps[1];
            let mut at = 0;
            while at < positions {
                let rest = if out_step.is_some() { positions - at } else { shape.out[3] - at % shape.out[3] };
                let count = rest.min(most);
                match order {
                    Taps::ChannelFirst => {
                        gather_planes(input, shape, at, &mut block[..count * weight.taps], count);
                    }
                    Taps::ChannelLast => gather_pixels(input, shape, at, &mut block[..count * weight.taps]),
                }
                let patches = patches_of(scratch_cells(&mut *block), order, weight.taps, count);
                let (y, x) = (at / shape.out[3], at % shape.out[3]);
                let to = to + y * shape.out_steps[2] + x * shape.out_steps[3];
                let target = Target {
                    cells: &cells.out[to..],
                    row_step: shape.out_steps[1],
                    col_step: shape.out_steps[3],
                };
                product(weight.group(group), patches, target, T::ONE, accumulate, packed);
                at += count;
            }
        }
    }
    Ok(())
}

/// A block of patches as the right factor.
fn patches_of<T: Gemm>(cells: &[ReadCell<T>], order: Taps, taps: usize, count: usize) -> Matrix<'_, T> {
    match order {
        Taps::ChannelFirst => Matrix::row_major(cells, taps, count),
        Taps::ChannelLast => Matrix::row_major(cells, count, taps).transposed(),
    }
}

/// `1 × 1`: the input planes are the right factor as they lie.
fn pointwise<T: Gemm>(
    cells: &Cells<'_, T>,
    shape: &Geometry,
    accumulate: bool,
    [in_step, out_step]: [usize; 2],
    scratch: Scratch<'_>,
) -> Result<(), KernelError> {
    let weight = |group: usize| Matrix {
        cells: &cells.weight[group * shape.weight_group_step..],
        rows: shape.out_per_group,
        cols: shape.in_per_group,
        row_step: shape.weight_steps[0],
        col_step: shape.weight_steps[1],
    };
    let input = |n: usize, group: usize| {
        let first = n * shape.input_steps[0] + group * shape.in_per_group * shape.input_steps[1];
        Matrix {
            cells: &cells.input[first..],
            rows: shape.in_per_group,
            cols: shape.out[2] * shape.out[3],
            row_step: shape.input_steps[1],
            col_step: in_step,
        }
    };
    let out_steps = (shape.out_steps[1], out_step);
    let packed = scratch.zeroed::<T>(pack_len(&weight(0), &input(0, 0), out_steps))?;
    for n in 0..shape.input[0] {
        for group in 0..shape.groups {
            let to = n * shape.out_steps[0] + group * shape.out_per_group * shape.out_steps[1];
            let target = Target { cells: &cells.out[to..], row_step: out_steps.0, col_step: out_steps.1 };
            product(weight(group), input(n, group), target, T::ONE, accumulate, packed);
        }
    }
    Ok(())
}

/// Fills `block` with the patches at `count` positions from `at` on: a row for each tap.
fn gather_planes<T: Gemm>(input: &[ReadCell<T>], shape: &Geometry, at: usize, block: &mut [T], count: usize) {
    let [_, c_step, y_step, x_step] = shape.input_steps;
    let (rows, cols, wide) = (shape.rows, shape.cols, shape.out[3]);
    for (tap, line) in block.chunks_exact_mut(count).enumerate() {
        let (c, i, j) = (tap / cols.taps / rows.taps, tap / cols.taps % rows.taps, tap % cols.taps);
        let inside = cols.inside(j, shape.input[3], wide);
        let mut position = at;
        let mut rest = line;
        while !rest.is_empty() {
            let (y, x) = (position / wide, position % wide);
            let (segment, tail) = rest.split_at_mut(rest.len().min(wide - x));
            position += segment.len();
            rest = tail;
            let Some(from_y) = rows.source(y, i, shape.input[2]) else {
                segment.fill(T::default());
                continue;
            };
            let first = inside.start.clamp(x, x + segment.len()) - x;
            let last = inside.end.clamp(x + first, x + segment.len()) - x;
            segment[..first].fill(T::default());
            segment[last..].fill(T::default());
            if first == last {
                continue;
            }
            let from_x = (x + first) * cols.stride + j * cols.dilation - cols.padding;
            let source = &input[c * c_step + from_y * y_step + from_x * x_step..];
            let slots = &mut segment[first..last];
            if cols.stride * x_step == 1 {
                slots.iter_mut().zip(source).for_each(|(slot, cell)| *slot = cell.get());
            } else {
                let source = source.iter().step_by(cols.stride * x_step);
                slots.iter_mut().zip(source).for_each(|(slot, cell)| *slot = cell.get());
            }
        }
    }
}

/// As [`gather_planes`], for channels that lie last: a row for each position.
fn gather_pixels<T: Gemm>(input: &[ReadCell<T>], shape: &Geometry, at: usize, block: &mut [T]) {
    let [_, _, y_step, x_step] = shape.input_steps;
    let (rows, cols, channels) = (shape.rows, shape.cols, shape.in_per_group);
    let lines = block.chunks_exact_mut(channels * rows.taps * cols.taps);
    for (position, line) in (at..).zip(lines) {
        let (y, x) = (position / shape.out[3], position % shape.out[3]);
        for (tap, segment) in line.chunks_exact_mut(channels).enumerate() {
            let from_y = rows.source(y, tap / cols.taps, shape.input[2]);
            match from_y.zip(cols.source(x, tap % cols.taps, shape.input[3])) {
                Some((from_y, from_x)) => {
                    let source = &input[from_y * y_step + from_x * x_step..][..channels];
                    segment.iter_mut().zip(source).for_each(|(slot, cell)| *slot = cell.get());
                }
                None => segment.fill(T::default()),
            }
        }
    }
}

/// Transposed: `patches[taps, position] = weightᵀ · input`, each added to `out` where its tap points.
pub(super) fn transposed<T: Gemm>(
    cells: &Cells<'_, T>,
    shape: &Geometry,
    scratch: Scratch<'_>,
) -> Result<(), KernelError> {
    fill_bias(cells, shape);
    let (high, wide) = (shape.rows.taps, shape.cols.taps);
    let taps = shape.out_per_group * high * wide;
    let positions = shape.input[2] * shape.input[3];
    let step = position_step(shape.input, shape.input_steps);
    // Seen from the input, each of its channels has one row of taps: output channel, row, column.
    let seen = Geometry {
        weight_steps: [
            shape.weight_steps[1],
            shape.weight_steps[0],
            shape.weight_steps[2],
            shape.weight_steps[3],
        ],
        in_per_group: shape.out_per_group,
        out_per_group: shape.in_per_group,
        ..*shape
    };
    let weight = Weight::new(cells.weight, &seen, Taps::ChannelFirst, scratch)?;
    let most = {
        let most = (BLOCK_LEN / taps.max(1)).max(64);
        if step.is_some() { most.min(positions) } else { most.min(shape.input[3]) }
    };
    let block = Cell::from_mut(scratch.zeroed::<T>(taps * most)?).as_slice_of_cells();
    let input_of = |n: usize, group: usize, at: usize, count: usize| {
        let (y, x) = (at / shape.input[3], at % shape.input[3]);
        let first = n * shape.input_steps[0]
            + group * shape.in_per_group * shape.input_steps[1]
            + y * shape.input_steps[2]
            + x * shape.input_steps[3];
        Matrix {
            cells: &cells.input[first..],
            rows: shape.in_per_group,
            cols: count,
            row_step: shape.input_steps[1],
            col_step: shape.input_steps[3],
        }
    };
    let whole = if step.is_some() { positions } else { shape.input[3] };
    let len_of =
        |count: usize| pack_len(&weight.group(0).transposed(), &input_of(0, 0, 0, count), (count, 1));
    let packed = scratch.zeroed::<T>(len_of(most).max(len_of(whole % most)))?;
    for n in 0..shape.input[0] {
        for group in 0..shape.groups {
            let to = n * shape.out_steps[0] + group * shape.out_per_group * shape.out_steps[1];
            let mut at = 0;
            while at < positions {
                let rest = if step.is_some() { positions - at } else { shape.input[3] - at % shape.input[3] };
                let count = rest.min(most);
                let target = Target::row_major(block, count);
                let input = input_of(n, group, at, count);
                product(weight.group(group).transposed(), input, target, T::ONE, false, packed);
                scatter(block, shape, at, count, &cells.out[to..]);
                at += count;
            }
        }
    }
    Ok(())
}

/// Adds `count` patches, from input position `at` on, to `out`.
fn scatter<T: Gemm>(patches: &[Cell<T>], shape: &Geometry, at: usize, count: usize, out: &[Cell<T>]) {
    let [_, c_step, y_step, x_step] = shape.out_steps;
    let (rows, cols, wide) = (shape.rows, shape.cols, shape.input[3]);
    let taps = shape.out_per_group * rows.taps * cols.taps;
    for (tap, line) in patches.chunks_exact(count).take(taps).enumerate() {
        let (o, i, j) = (tap / cols.taps / rows.taps, tap / cols.taps % rows.taps, tap % cols.taps);
        for (position, cell) in (at..).zip(line) {
            // The window at an input position lies where a forward one would read.
            let to_y = rows.source(position / wide, i, shape.out[2]);
            let to_x = cols.source(position % wide, j, shape.out[3]);
            if let Some((to_y, to_x)) = to_y.zip(to_x) {
                let slot = &out[o * c_step + to_y * y_step + to_x * x_step];
                slot.set(slot.get() + cell.get());
            }
        }
    }
}
