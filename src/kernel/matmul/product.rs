#![forbid(unsafe_code)]
//! Products of matrices of one type: which micro-kernel, in what blocks, packed or in place.
//!
//! ```text
//!        b: inner × cols                 for each INNER_BLOCK of inner
//!        ┌────┬────┬────┐                  for each COLS_BLOCK of cols   (in L2; packed if it must be)
//!        │ p0 │ p1 │ p2 │ panels             for each strip of rows      (in L1)
//!        └────┴────┴────┘                      for each panel: one tile
//!  a: strips of rows  →  out
//! ```
//!
//! A factor that is row-major is read in place. Packing space comes from the caller, who asks
//! [`pack_len`] first: nothing here allocates.
//!
//! Deliberately absent: threads, and kinds other than `f32` and `f64`.

use super::gemm::{Gemm, MicroKernels, dot_tile, tile};
use crate::kernel::cells::scratch_cells;
use crate::tensor::{Element, ReadCell};
use core::cell::Cell;

/// The inner dimension of a block; a strip of rows of it stays in the first-level cache.
const INNER_BLOCK: usize = 256;
/// The most columns of a block; `INNER_BLOCK × COLS_BLOCK` elements stay in the second-level cache.
const COLS_BLOCK: usize = 256;
/// Strips of rows from which on packing pays for itself, where rows of `b` lie far apart.
const PACK_STRIPS: usize = 12;

/// A matrix that is read: cells and two strides, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T> {
    /// From element `[0, 0]` on.
    pub(crate) cells: &'a [ReadCell<T>],
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row_step: usize,
    pub(crate) col_step: usize,
}

impl<'a, T: Element> Matrix<'a, T> {
    /// A row-major matrix.
    pub(crate) fn row_major(cells: &'a [ReadCell<T>], rows: usize, cols: usize) -> Self {
        Self { cells, rows, cols, row_step: cols, col_step: 1 }
    }

    /// The same cells, rows and columns exchanged.
    #[inline]
    pub(crate) fn transposed(self) -> Self {
        Self {
            cells: self.cells,
            rows: self.cols,
            cols: self.rows,
            row_step: self.col_step,
            col_step: self.row_step,
        }
    }

    /// Whether every element lies in the cells.
    #[inline(always)]
    pub(crate) fn is_inside(&self) -> bool {
        self.rows == 0 || self.cols == 0 || self.offset(self.rows - 1, self.cols - 1) < self.cells.len()
    }

    #[inline(always)]
    fn offset(&self, row: usize, col: usize) -> usize {
        row.saturating_mul(self.row_step).saturating_add(col.saturating_mul(self.col_step))
    }

    /// The element at `[row, col]`.
    #[inline(always)]
    pub(crate) fn get(&self, row: usize, col: usize) -> T {
        self.cells[row * self.row_step + col * self.col_step].get()
    }

    /// A part that begins at `[row, col]`.
    #[inline(always)]
    pub(crate) fn part(&self, row: usize, col: usize, rows: usize, cols: usize) -> Self {
        let cells = self.cells.get(self.offset(row, col)..).unwrap_or_default();
        Self { cells, rows, cols, ..*self }
    }
}

/// Where a product goes: cells and two strides, in elements.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a, T> {
    /// From element `[0, 0]` on.
    pub(crate) cells: &'a [Cell<T>],
    pub(crate) row_step: usize,
    pub(crate) col_step: usize,
}

impl<'a, T> Target<'a, T> {
    /// A row-major target.
    pub(crate) fn row_major(cells: &'a [Cell<T>], cols: usize) -> Self {
        Self { cells, row_step: cols, col_step: 1 }
    }

    fn from(&self, row: usize, col: usize) -> &'a [Cell<T>] {
        self.cells.get(row * self.row_step + col * self.col_step..).unwrap_or_default()
    }
}

/// How a product is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Dot products of contiguous rows of `a` and columns of `b`.
    Dots,
    /// Tiles; panels of `b` are packed where they must be.
    Tiles { pack_all: bool },
    /// Tiles of the transposed product, since `out` is column-major.
    Transposed,
    /// Single elements: `out` is neither.
    Elements,
}

fn way<T: Gemm>(
    kernels: &MicroKernels<T>,
    a: &Matrix<'_, T>,
    b: &Matrix<'_, T>,
    out_steps: (usize, usize),
) -> Way {
    let few = a.rows.min(b.cols) <= kernels.dots_max;
    if few && a.col_step == 1 && b.row_step == 1 && (b.col_step != 1 || b.cols == 1) {
        return Way::Dots;
    }
    match out_steps {
        (_, 1) => {
            let far = b.row_step > COLS_BLOCK && a.rows >= PACK_STRIPS * kernels.rows_max;
            Way::Tiles { pack_all: b.col_step != 1 || far }
        }
        (1, _) => Way::Transposed,
        _ => Way::Elements,
    }
}

/// Columns of a block: whole panels.
fn cols_block<T: Gemm>(kernels: &MicroKernels<T>) -> usize {
    COLS_BLOCK / kernels.cols_max * kernels.cols_max
}

/// Whether the panel of `width` columns is packed.
fn is_packed<T: Gemm>(kernels: &MicroKernels<T>, pack_all: bool, width: usize) -> bool {
    pack_all || !width.is_multiple_of(kernels.lanes)
}

/// How many elements of packing space [`product`] needs for such factors and target.
pub(crate) fn pack_len<T: Gemm>(a: &Matrix<'_, T>, b: &Matrix<'_, T>, out_steps: (usize, usize)) -> usize {
    let kernels = T::kernels();
    match way(kernels, a, b, out_steps) {
        Way::Dots | Way::Elements => 0,
        Way::Transposed => pack_len(&b.transposed(), &a.transposed(), (out_steps.1, out_steps.0)),
        Way::Tiles { pack_all } => {
            let inner = b.rows.min(INNER_BLOCK);
            if pack_all {
                b.cols.min(cols_block(kernels)).next_multiple_of(kernels.lanes) * inner
            } else if b.cols.is_multiple_of(kernels.lanes) {
                0
            } else {
                (b.cols % kernels.cols_max).next_multiple_of(kernels.lanes) * inner
            }
        }
    }
}

/// Copies columns of `b` into a panel `stride` wide; what lies right of them stays as it is: a tile never
/// stores it.
#[inline]
fn pack<T: Gemm>(b: Matrix<'_, T>, panel: &mut [T], stride: usize) {
    if b.col_step == 1 {
        for (row, line) in panel.chunks_exact_mut(stride).take(b.rows).enumerate() {
            let source = &b.cells[row * b.row_step..][..b.cols];
            for (slot, cell) in line.iter_mut().zip(source) {
                *slot = cell.get();
            }
        }
    } else {
        for row in (0..b.rows).step_by(BLOCK) {
            let lines = &mut panel[row * stride..];
            for col in (0..b.cols).step_by(BLOCK) {
                let part = b.part(row, col, (b.rows - row).min(BLOCK), (b.cols - col).min(BLOCK));
                transpose(part, &mut lines[col..], stride);
            }
        }
    }
}

/// Rows and columns of a block that is transposed in registers.
const BLOCK: usize = 8;

/// As [`pack`], for at most `BLOCK` rows and columns.
#[inline]
fn transpose<T: Gemm>(b: Matrix<'_, T>, panel: &mut [T], stride: usize) {
    if b.rows == BLOCK && b.cols == BLOCK && b.row_step == 1 {
        let mut block = [[T::default(); BLOCK]; BLOCK];
        for (col, column) in block.iter_mut().enumerate() {
            let source = &b.cells[col * b.col_step..][..BLOCK];
            for (slot, cell) in column.iter_mut().zip(source) {
                *slot = cell.get();
            }
        }
        for row in 0..BLOCK {
            let line = &mut panel[row * stride..][..BLOCK];
            for (slot, column) in line.iter_mut().zip(&block) {
                *slot = column[row];
            }
        }
    } else {
        for row in 0..b.rows {
            for col in 0..b.cols {
                panel[row * stride + col] = b.get(row, col);
            }
        }
    }
}

/// `out = alpha · a · b`, added to what `out` holds where `accumulate`.
///
/// `packed` has at least [`pack_len`] elements. With an inner dimension of 0, `out` is zeroed unless
/// `accumulate`. The factors must not share bytes with `out`: the numbers would be wrong.
///
/// # Panics
/// Where something lies outside its cells: a bug of the caller.
pub(crate) fn product<T: Gemm>(
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    out: Target<'_, T>,
    alpha: T,
    accumulate: bool,
    packed: &mut [T],
) {
    let kernels = T::kernels();
    if a.rows == 0 || b.cols == 0 {
        return;
    }
    if b.rows == 0 && !accumulate {
        for row in 0..a.rows {
            for col in 0..b.cols {
                out.from(row, col)[0].set(T::default());
            }
        }
        return;
    }
    match way(kernels, &a, &b, (out.row_step, out.col_step)) {
        Way::Transposed => {
            let out = Target { cells: out.cells, row_step: out.col_step, col_step: out.row_step };
            product(b.transposed(), a.transposed(), out, alpha, accumulate, packed);
        }
        Way::Dots => dots(kernels, a, b, out, alpha, accumulate),
        Way::Elements => elements(a, b, out, alpha, accumulate),
        Way::Tiles { pack_all } => tiles(kernels, a, b, out, alpha, accumulate, (pack_all, packed)),
    }
}

fn dots<T: Gemm>(
    kernels: &MicroKernels<T>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    out: Target<'_, T>,
    alpha: T,
    accumulate: bool,
) {
    let most = kernels.dots_max;
    let steps = (out.row_step, out.col_step);
    for row in (0..a.rows).step_by(most) {
        let a = a.part(row, 0, (a.rows - row).min(most), a.cols);
        for col in (0..b.cols).step_by(most) {
            let b = b.part(0, col, b.rows, (b.cols - col).min(most));
            dot_tile(kernels, a, b, out.from(row, col), steps, alpha, accumulate);
        }
    }
}

fn elements<T: Gemm>(a: Matrix<'_, T>, b: Matrix<'_, T>, out: Target<'_, T>, alpha: T, accumulate: bool) {
    for row in 0..a.rows {
        for col in 0..b.cols {
            let cell = &out.from(row, col)[0];
            let before = if accumulate { cell.get() } else { T::default() };
            let sum =
                (0..a.cols).fold(T::default(), |sum, inner| sum + a.get(row, inner) * b.get(inner, col));
            cell.set(before + alpha * sum);
        }
    }
}

fn tiles<T: Gemm>(
    kernels: &MicroKernels<T>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    out: Target<'_, T>,
    alpha: T,
    accumulate: bool,
    (pack_all, packed): (bool, &mut [T]),
) {
    let (wide, high, block) = (kernels.cols_max, kernels.rows_max, cols_block(kernels));
    for inner in (0..b.rows).step_by(INNER_BLOCK) {
        let depth = (b.rows - inner).min(INNER_BLOCK);
        let accumulate = accumulate || inner > 0;
        for first in (0..b.cols).step_by(block) {
            let last = (first + block).min(b.cols);
            for col in (first..last).step_by(wide) {
                let width = (last - col).min(wide);
                if is_packed(kernels, pack_all, width) {
                    let at = if pack_all { (col - first) * depth } else { 0 };
                    let stride = width.next_multiple_of(kernels.lanes);
                    pack(b.part(inner, col, depth, width), &mut packed[at..][..depth * stride], stride);
                }
            }
            let packed = scratch_cells(packed);
            for row in (0..a.rows).step_by(high) {
                let a = a.part(row, inner, (a.rows - row).min(high), depth);
                for col in (first..last).step_by(wide) {
                    let width = (last - col).min(wide);
                    let panel = if is_packed(kernels, pack_all, width) {
                        let at = if pack_all { (col - first) * depth } else { 0 };
                        let row_step = width.next_multiple_of(kernels.lanes);
                        Matrix { cells: &packed[at..], rows: depth, cols: width, row_step, col_step: 1 }
                    } else {
                        b.part(inner, col, depth, width)
                    };
                    tile(kernels, a, panel, out.from(row, col), out.row_step, alpha, accumulate);
                }
            }
        }
    }
}
