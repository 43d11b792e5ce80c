#![forbid(unsafe_code)]
//! Products of 16-bit floats: blocks are widened to `f32`, multiplied, and rounded once.
//!
//! Deliberately absent: kernels for 16-bit floats themselves; few machines have them.

use super::{Cells, Matrix, Target, pack_len, product};
use crate::kernel::cells::scratch_cells;
use crate::kernel::numeric::Numeric;
use crate::kernel::{KernelError, Scratch};
use core::cell::Cell;

/// The most elements of a widened block, where the inner dimension allows.
const BLOCK_LEN: usize = 1 << 18;

/// Copies a part of `from` into `to`, row-major, widened.
fn widen<T: Numeric<Acc = f32>>(from: Matrix<'_, T>, to: &mut [f32]) {
    for row in 0..from.rows {
        for (col, slot) in to[row * from.cols..][..from.cols].iter_mut().enumerate() {
            *slot = from.get(row, col).widen();
        }
    }
}

pub(super) fn compute<T: Numeric<Acc = f32>>(
    cells: &Cells<'_, T>,
    scratch: Scratch<'_>,
) -> Result<(), KernelError> {
    let [batches, rows, inner, cols] = cells.sizes;
    let most = (BLOCK_LEN / inner.max(1)).max(16);
    let (high, wide) = (most.min(rows).min(512), most.min(cols).min(512));
    let a_block = scratch.zeroed::<f32>(high * inner)?;
    let b_block = scratch.zeroed::<f32>(inner * wide)?;
    let out_block = scratch.zeroed::<f32>(high * wide)?;
    // Blocks at the edge are narrower, and may need a panel packed where whole ones do not.
    let widths = [wide, cols % wide.max(1)].into_iter();
    let packed_len = widths.map(|width| {
        let a = Matrix { cells: &[], rows: high, cols: inner, row_step: inner, col_step: 1 };
        let b = Matrix { cells: &[], rows: inner, cols: width, row_step: width, col_step: 1 };
        pack_len::<f32>(&a, &b, (width, 1))
    });
    let packed = scratch.zeroed::<f32>(packed_len.max().unwrap_or(0))?;
    for at in 0..batches {
        let (a, b, out) = cells.batch(at);
        for col in (0..cols).step_by(wide.max(1)) {
            let width = (cols - col).min(wide);
            widen(b.part(0, col, inner, width), b_block);
            let b = Matrix::row_major(scratch_cells(&mut *b_block), inner, width);
            for row in (0..rows).step_by(high.max(1)) {
                let height = (rows - row).min(high);
                widen(a.part(row, 0, height, inner), a_block);
                let a = Matrix::row_major(scratch_cells(&mut *a_block), height, inner);
                let block = Cell::from_mut(&mut *out_block).as_slice_of_cells();
                product(a, b, Target::row_major(block, width), cells.alpha(), false, packed);
                for r in 0..height {
                    for c in 0..width {
                        let sum = block[r * width + c].get();
                        let sum = cells.start_at(row + r, col + c).map_or(sum, |start| start + sum);
                        out.cells[(row + r) * out.row_step + (col + c) * out.col_step].set(T::narrow(sum));
                    }
                }
            }
        }
    }
    Ok(())
}
