#![forbid(unsafe_code)]
//! The cells of a call's tensors: for reading, for writing, and apart from what is written.
//!
//! Deliberately absent: sizes and strides.

use super::{KernelError, Scratch};
use crate::tensor::{Element, ReadCell, Tensor, TensorError};
use core::cell::Cell;

fn named(index: usize) -> impl FnOnce(TensorError) -> KernelError {
    move |source| KernelError::Tensor { index, source }
}

/// The elements of argument `index`, in memory order.
pub(crate) fn cells_of<T: Element>(tensor: &Tensor, index: usize) -> Result<&[ReadCell<T>], KernelError> {
    tensor.read::<T>().map_err(named(index))
}

/// The elements of argument `index`, in memory order, for writing.
pub(crate) fn cells_to_write<T: Element>(tensor: &Tensor, index: usize) -> Result<&[Cell<T>], KernelError> {
    tensor.write::<T>().map_err(named(index))
}

/// Whether both name some of the same bytes.
pub(crate) fn meet(a: &Tensor, b: &Tensor) -> bool {
    let range = |tensor: &Tensor| tensor.address().map(|at| (at.addr().get(), tensor.size_bytes()));
    range(a).zip(range(b)).is_some_and(|((a, a_bytes), (b, b_bytes))| a < b + b_bytes && b < a + a_bytes)
}

/// The elements of argument `index`, in memory order: a copy in scratch where they share bytes with `out`.
pub(crate) fn apart<'a, T: Element>(
    tensor: &'a Tensor,
    index: usize,
    out: &Tensor,
    scratch: Scratch<'a>,
) -> Result<&'a [ReadCell<T>], KernelError> {
    let cells = cells_of::<T>(tensor, index)?;
    if !meet(tensor, out) {
        return Ok(cells);
    }
    let copy = scratch.zeroed::<T>(cells.len())?;
    for (slot, cell) in copy.iter_mut().zip(cells) {
        *slot = cell.get();
    }
    Ok(scratch_cells(copy))
}

/// Scratch as cells, for reading.
pub(crate) fn scratch_cells<T: Element>(scratch: &mut [T]) -> &[ReadCell<T>] {
    ReadCell::from_cells(Cell::from_mut(scratch).as_slice_of_cells())
}
