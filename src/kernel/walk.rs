//! Moving elements between places that are given by strides, whatever the element kind.
//!
//! ```text
//!   axes (outermost first)        size   step in target   step in source
//!   permute (2, 3) -> (3, 2)        3          2                1
//!                                   2          1                3
//! ```
//!
//! A [`Walk`] is the list of axes that both sides share. Axes that run on in both are merged while they
//! are added, so that a plain copy ends as one axis and one block move; a transposition runs in square
//! tiles. Elements are moved as words of 1, 2, 4, 8 or 16 bytes: moving needs no element kind.
//!
//! Unsafe by design: bytes are viewed as words here, for every kernel that moves elements.
//! Deliberately absent: arithmetic on elements and allocation.

use super::{KernelCall, KernelError, fail};
use crate::tensor::{ReadCell, Tensor, copy_cells};
use core::cell::Cell;

/// The most axes a walk can have once merged: a dimension may be split in two.
const AXES_MAX: usize = 20;

/// The side of the square tiles of a transposition, in elements.
const TILE: usize = 8;

/// Runs `$body` with the constant `$W` as the element width.
macro_rules! by_width {
    ($width:expr, $W:ident => $body:expr) => {
        match $width {
            1 => {
                const $W: usize = 1;
                $body
            }
            2 => {
                const $W: usize = 2;
                $body
            }
            4 => {
                const $W: usize = 4;
                $body
            }
            8 => {
                const $W: usize = 8;
                $body
            }
            _ => {
                const $W: usize = 16;
                $body
            }
        }
    };
}
pub(crate) use by_width;

/// A tensor that is read, with its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) tensor: &'a Tensor,
    pub(crate) bytes: &'a [ReadCell<u8>],
}

/// A tensor that is written, with its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) tensor: &'a Tensor,
    pub(crate) bytes: &'a [Cell<u8>],
}

impl<'a> Source<'a> {
    #[inline]
    pub(crate) fn new(index: usize, tensor: &'a Tensor) -> Result<Self, KernelError> {
        let bytes = tensor.read_bytes().map_err(|source| KernelError::Tensor { index, source })?;
        Ok(Self { tensor, bytes })
    }

    /// Argument `index`, for reading.
    #[inline]
    pub(crate) fn of(call: &'a KernelCall<'_>, index: usize) -> Result<Self, KernelError> {
        Self::new(index, call.tensor(index)?)
    }

    /// The elements in memory order. `W` is the tensor's element width.
    #[inline]
    pub(crate) fn words<const W: usize>(&self) -> &'a [ReadCell<[u8; W]>] {
        words(self.bytes)
    }
}

impl<'a> Target<'a> {
    #[inline]
    pub(crate) fn new(index: usize, tensor: &'a Tensor) -> Result<Self, KernelError> {
        let bytes = tensor.write_bytes().map_err(|source| KernelError::Tensor { index, source })?;
        Ok(Self { tensor, bytes })
    }

    /// Argument `index`, for writing. Resize it before.
    #[inline]
    pub(crate) fn of(call: &'a KernelCall<'_>, index: usize) -> Result<Self, KernelError> {
        Self::new(index, call.tensor(index)?)
    }

    /// The elements in memory order. `W` is the tensor's element width.
    #[inline]
    pub(crate) fn words<const W: usize>(&self) -> &'a [Cell<[u8; W]>] {
        words_mut(self.bytes)
    }

    /// Writes what `source` holds at `start + Σ index · strides` to every index of this tensor.
    ///
    /// # Errors
    /// [`KernelError::Range`] where that leaves the source.
    #[inline]
    pub(crate) fn gather(
        &self,
        source: &Source<'_>,
        start: isize,
        strides: &[isize],
    ) -> Result<(), KernelError> {
        let own = self.tensor.strides();
        let sizes = self.tensor.sizes();
        let mut walk = Walk::new();
        for &dim in self.tensor.order() {
            let dim = usize::from(dim);
            walk.axis(sizes[dim], own[dim] as isize, strides[dim])?;
        }
        walk.copy(self.tensor.dtype().size_bytes(), (self.bytes, 0), (source.bytes, start))
    }

    /// Writes every element of `source` to `start + Σ index · strides` of this tensor.
    ///
    /// # Errors
    /// [`KernelError::Range`] where that leaves this tensor.
    #[inline]
    pub(crate) fn scatter(
        &self,
        source: &Source<'_>,
        start: isize,
        strides: &[isize],
    ) -> Result<(), KernelError> {
        let theirs = source.tensor.strides();
        let sizes = source.tensor.sizes();
        let mut walk = Walk::new();
        for &dim in source.tensor.order() {
            let dim = usize::from(dim);
            walk.axis(sizes[dim], strides[dim], theirs[dim] as isize)?;
        }
        walk.copy(self.tensor.dtype().size_bytes(), (self.bytes, start), (source.bytes, 0))
    }

    /// Copies a tensor of the same sizes and width, whatever the order of either.
    #[inline]
    pub(crate) fn assign(&self, source: &Source<'_>) -> Result<(), KernelError> {
        if self.tensor.matches_layout(source.tensor) {
            copy_cells(self.bytes, source.bytes);
            return Ok(());
        }
        let strides = signed(&source.tensor.strides());
        self.gather(source, 0, &strides)
    }

    /// Writes one element everywhere; only its first bytes count.
    pub(crate) fn fill(&self, element: [u8; 16]) {
        by_width!(self.tensor.dtype().size_bytes(), W => {
            let word = first_bytes::<W>(element);
            self.words::<W>().iter().for_each(|cell| cell.set(word));
        });
    }
}

/// The first `W` of 16 bytes.
pub(crate) fn first_bytes<const W: usize>(element: [u8; 16]) -> [u8; W] {
    core::array::from_fn(|index| element[index])
}

/// Strides that may become negative.
#[inline]
pub(crate) fn signed(strides: &[usize]) -> crate::tensor::Dims<isize> {
    let mut out = crate::tensor::Dims::filled(0, strides.len()).unwrap_or_else(crate::tensor::Dims::empty);
    for (slot, &stride) in out.as_mut_slice().iter_mut().zip(strides) {
        *slot = isize::try_from(stride).unwrap_or(isize::MAX);
    }
    out
}

#[inline]
fn words<const W: usize>(bytes: &[ReadCell<u8>]) -> &[ReadCell<[u8; W]>] {
    // SAFETY:
    // * `ReadCell` is transparent over `Cell` and that over its content, so `W` cells of a byte lie
    //   exactly as one cell of `[u8; W]`, which needs no alignment; the count is rounded down;
    // * the lifetime and the right to read stay those of `bytes`.
    unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / W) }
}

#[inline]
fn words_mut<const W: usize>(bytes: &[Cell<u8>]) -> &[Cell<[u8; W]>] {
    // SAFETY: as in `words`; `Cell` is transparent over its content.
    unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / W) }
}

/// Scratch bytes as the cells that moves are written to.
pub(crate) fn cells(bytes: &mut [u8]) -> &[Cell<u8>] {
    Cell::from_mut(bytes).as_slice_of_cells()
}

/// Scratch bytes as cells that are read.
pub(crate) fn read_cells(cells: &[Cell<u8>]) -> &[ReadCell<u8>] {
    // SAFETY: `ReadCell` is transparent over `Cell`; it only takes the right to write away.
    unsafe { core::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
}

/// One axis: how many steps, and how far each goes on both sides, in elements.
#[derive(Clone, Copy, Debug, Default)]
struct Axis {
    size: usize,
    to: isize,
    from: isize,
}

/// The axes of a move, outermost first.
#[derive(Debug)]
pub(crate) struct Walk {
    axes: [Axis; AXES_MAX],
    len: usize,
    empty: bool,
}

impl Walk {
    /// No axes: one element.
    #[inline]
    pub(crate) fn new() -> Self {
        Self { axes: [Axis { size: 0, to: 0, from: 0 }; AXES_MAX], len: 0, empty: false }
    }

    /// Adds an axis inside those added before.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] past [`AXES_MAX`] axes that cannot be merged.
    #[inline]
    pub(crate) fn axis(&mut self, size: usize, to: isize, from: isize) -> Result<(), KernelError> {
        if size == 1 {
            return Ok(());
        }
        self.empty |= size == 0;
        if let Some(outer) = self.len.checked_sub(1).and_then(|last| self.axes.get_mut(last))
            && outer.to == to.wrapping_mul(size as isize)
            && outer.from == from.wrapping_mul(size as isize)
        {
            *outer = Axis { size: outer.size.saturating_mul(size), to, from };
            return Ok(());
        }
        let Some(slot) = self.axes.get_mut(self.len) else {
            fail!(Unsupported, "a move over more than {AXES_MAX} axes");
        };
        *slot = Axis { size, to, from };
        self.len += 1;
        Ok(())
    }

    /// Moves the elements: from `from.1` on in `from.0` to `to.1` on in `to.0`, in elements of
    /// `width_bytes`.
    ///
    /// # Errors
    /// [`KernelError::Range`] where a side would be left. Nothing is written then.
    #[inline]
    pub(crate) fn copy(
        &self,
        width_bytes: usize,
        to: (&[Cell<u8>], isize),
        from: (&[ReadCell<u8>], isize),
    ) -> Result<(), KernelError> {
        if self.empty {
            return Ok(());
        }
        let axes = &self.axes[..self.len];
        check_reach("target", to.0.len() / width_bytes, to.1, axes.iter().map(|axis| (axis.size, axis.to)))?;
        check_reach(
            "source",
            from.0.len() / width_bytes,
            from.1,
            axes.iter().map(|axis| (axis.size, axis.from)),
        )?;
        by_width!(width_bytes, W => run(axes, (words_mut::<W>(to.0), to.1), (words::<W>(from.0), from.1)));
        Ok(())
    }
}

/// Whether the places `start + Σ index · step` are all below `count`.
#[inline]
fn check_reach(
    side: &str,
    count: usize,
    start: isize,
    steps: impl Iterator<Item = (usize, isize)>,
) -> Result<(), KernelError> {
    let reach = (|| {
        let (mut low, mut high) = (start, start);
        for (size, step) in steps {
            let far = isize::try_from(size - 1).ok()?.checked_mul(step)?;
            if far < 0 {
                low = low.checked_add(far)?;
            } else {
                high = high.checked_add(far)?;
            }
        }
        Some((low, high))
    })();
    match reach {
        Some((low, high)) if low >= 0 && (high as usize) < count => Ok(()),
        Some((low, high)) => {
            fail!(Range, "elements {low} to {high} of the {side} are asked for, it has {count}")
        }
        None => fail!(Range, "the strides leave the {side}, which has {count} elements"),
    }
}

type To<'a, const W: usize> = (&'a [Cell<[u8; W]>], isize);
type From<'a, const W: usize> = (&'a [ReadCell<[u8; W]>], isize);

/// Moves along checked axes.
fn run<const W: usize>(axes: &[Axis], to: To<'_, W>, from: From<'_, W>) {
    let Some((&last, outer)) = axes.split_last() else {
        to.0[to.1 as usize].set(from.0[from.1 as usize].get());
        return;
    };
    if last.to == 1 && last.from == 1 {
        rows(outer, to.1, from.1, |t, f| {
            copy_cells(&to.0[t as usize..][..last.size], &from.0[f as usize..][..last.size]);
        });
    } else if let Some(tiles) = Tiles::find(axes) {
        rows(&tiles.outer[..axes.len() - 2], to.1, from.1, |t, f| tiles.run((to.0, t), (from.0, f)));
    } else {
        rows(outer, to.1, from.1, |t, f| row(last, (to.0, t), (from.0, f)));
    }
}

/// Calls `act` with the offsets of every index of these axes.
#[inline]
fn rows(axes: &[Axis], mut to: isize, mut from: isize, mut act: impl FnMut(isize, isize)) {
    let Some((inner, outer)) = axes.split_last() else { return act(to, from) };
    let mut index = [0_usize; AXES_MAX];
    loop {
        let (mut t, mut f) = (to, from);
        for _ in 0..inner.size {
            act(t, f);
            t += inner.to;
            f += inner.from;
        }
        let mut at = outer.len();
        loop {
            let Some(next) = at.checked_sub(1) else { return };
            at = next;
            let axis = outer[at];
            index[at] += 1;
            to += axis.to;
            from += axis.from;
            if index[at] < axis.size {
                break;
            }
            index[at] = 0;
            to -= axis.to * axis.size as isize;
            from -= axis.from * axis.size as isize;
        }
    }
}

/// One run of elements that is not a block on both sides.
#[inline]
fn row<const W: usize>(axis: Axis, to: To<'_, W>, from: From<'_, W>) {
    let (mut t, mut f) = (to.1, from.1);
    if axis.to == 1 {
        let target = &to.0[t as usize..][..axis.size];
        if axis.from == 0 {
            let word = from.0[f as usize].get();
            for cell in target {
                cell.set(word);
            }
            return;
        }
        for cell in target {
            cell.set(from.0[f as usize].get());
            f += axis.from;
        }
        return;
    }
    for _ in 0..axis.size {
        to.0[t as usize].set(from.0[f as usize].get());
        t += axis.to;
        f += axis.from;
    }
}

/// A transposition: one axis is dense in the target, another in the source.
struct Tiles {
    outer: [Axis; AXES_MAX],
    /// Step 1 in the target.
    across: Axis,
    /// Step 1 in the source.
    down: Axis,
}

impl Tiles {
    fn find(axes: &[Axis]) -> Option<Self> {
        let across = axes.iter().rposition(|axis| axis.to == 1 && axis.from > 1)?;
        let down = axes.iter().rposition(|axis| axis.from == 1 && axis.to > 1)?;
        let mut outer = [Axis::default(); AXES_MAX];
        let rest = (0..axes.len()).filter(|&at| at != across && at != down);
        for (slot, at) in outer.iter_mut().zip(rest) {
            *slot = axes[at];
        }
        Some(Self { outer, across: axes[across], down: axes[down] })
    }

    fn run<const W: usize>(&self, to: To<'_, W>, from: From<'_, W>) {
        let (down, across) = (self.down.size, self.across.size);
        let (to_step, from_step) = (self.down.to as usize, self.across.from as usize);
        let target = &to.0[to.1 as usize..][..(down - 1) * to_step + across];
        let source = &from.0[from.1 as usize..][..(across - 1) * from_step + down];
        let (down_whole, across_whole) = (down - down % TILE, across - across % TILE);
        for i in (0..down_whole).step_by(TILE) {
            for j in (0..across_whole).step_by(TILE) {
                tile(&target[i * to_step + j..], to_step, &source[j * from_step + i..], from_step);
            }
        }
        let single = |i: usize, j: usize| target[i * to_step + j].set(source[j * from_step + i].get());
        for i in 0..down {
            let done = if i < down_whole { across_whole } else { 0 };
            (done..across).for_each(|j| single(i, j));
        }
    }
}

/// One whole tile: rows of the source become columns of the target.
#[inline]
fn tile<const W: usize>(
    target: &[Cell<[u8; W]>],
    to_step: usize,
    source: &[ReadCell<[u8; W]>],
    from_step: usize,
) {
    let mut words = [[[0_u8; W]; TILE]; TILE];
    for (j, line) in words.iter_mut().enumerate() {
        for (word, cell) in line.iter_mut().zip(&source[j * from_step..][..TILE]) {
            *word = cell.get();
        }
    }
    for i in 0..TILE {
        for (cell, line) in target[i * to_step..][..TILE].iter().zip(&words) {
            cell.set(line[i]);
        }
    }
}

/// Calls `act` with one offset per stride list for every index of `sizes`, the last dimension fastest.
///
/// # Errors
/// The first error of `act`.
#[inline]
pub(crate) fn each<const K: usize>(
    sizes: &[usize],
    strides: [&[isize]; K],
    mut act: impl FnMut([usize; K]) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    if sizes.contains(&0) {
        return Ok(());
    }
    let mut offsets = [0_isize; K];
    let Some((&inner, outer)) = sizes.split_last() else { return act([0; K]) };
    let mut index = [0_usize; crate::tensor::RANK_MAX];
    loop {
        let mut here = offsets;
        for _ in 0..inner {
            act(here.map(|offset| offset as usize))?;
            for (offset, stride) in here.iter_mut().zip(&strides) {
                *offset += stride[outer.len()];
            }
        }
        let mut at = outer.len();
        loop {
            let Some(next) = at.checked_sub(1) else { return Ok(()) };
            at = next;
            index[at] += 1;
            let wrap = index[at] == outer[at];
            for (offset, stride) in offsets.iter_mut().zip(&strides) {
                *offset += stride[at];
                if wrap {
                    *offset -= stride[at] * outer[at] as isize;
                }
            }
            if !wrap {
                break;
            }
            index[at] = 0;
        }
    }
}
