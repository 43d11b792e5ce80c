#![forbid(unsafe_code)]
//! Runs an operator over its operands: at once where all lie alike, block by block otherwise.
#![expect(clippy::type_complexity, reason = "a function of blocks is spelled out where it is taken")]

use super::at;
use super::convert::{Compute, Load, loader, storer, wrap};
use super::walk::{Walk, broadcast};
use crate::kernel::numeric::vectorised;
use crate::kernel::{KernelCall, KernelError};
use crate::tensor::{DType, Dims, ReadCell, Tensor};
use core::cell::Cell;

/// Up to this many elements the call costs more than its vectors.
const QUICK_LEN_MAX: usize = 512;

/// Elements per block: a few kilobytes, within the first cache.
const BLOCK: usize = 512;

/// Elements per block of a small output, whose time goes to preparing blocks.
const BLOCK_SMALL: usize = 64;

/// What is applied to blocks of operands.
type Apply<'a, C, const N: usize> = dyn Fn([&[ReadCell<C>]; N], &[Cell<C>]) + 'a;

/// Applies `f` to each element.
pub(super) fn map1<C: Copy>(f: impl Fn(C) -> C) -> impl Fn([&[ReadCell<C>]; 1], &[Cell<C>]) {
    move |[a], out| out.iter().zip(a).for_each(|(out, a)| out.set(f(a.get())))
}

/// Applies `f` to each pair of elements.
pub(super) fn map2<C: Copy>(f: impl Fn(C, C) -> C) -> impl Fn([&[ReadCell<C>]; 2], &[Cell<C>]) {
    move |[a, b], out| out.iter().zip(a).zip(b).for_each(|((out, a), b)| out.set(f(a.get(), b.get())))
}

/// Applies `f` to each three elements.
pub(super) fn map3<C: Copy>(f: impl Fn(C, C, C) -> C) -> impl Fn([&[ReadCell<C>]; 3], &[Cell<C>]) {
    move |[a, b, c], out| {
        let inputs = a.iter().zip(b).zip(c);
        out.iter().zip(inputs).for_each(|(out, ((a, b), c))| out.set(f(a.get(), b.get(), c.get())));
    }
}

/// As [`map1`], compiled for the widest vectors too. `f` is inlined.
pub(super) fn wide1<C: Copy>(f: impl Fn(C) -> C) -> impl Fn([&[ReadCell<C>]; 1], &[Cell<C>]) {
    move |[a], out| vectorised(|| out.iter().zip(a).for_each(|(out, a)| out.set(f(a.get()))))
}

/// As [`map2`], compiled for the widest vectors too. `f` is inlined.
pub(super) fn wide2<C: Copy>(f: impl Fn(C, C) -> C) -> impl Fn([&[ReadCell<C>]; 2], &[Cell<C>]) {
    move |[a, b], out| {
        vectorised(|| out.iter().zip(a).zip(b).for_each(|((out, a), b)| out.set(f(a.get(), b.get()))));
    }
}

/// Writes `f` of the tensors of the arguments `inputs`, broadcast, to that of argument `out`, which gets
/// their sizes. Results are first cut to what `common` can hold.
#[inline]
pub(super) fn run<C: Compute, const N: usize>(
    call: &mut KernelCall<'_>,
    inputs: [usize; N],
    out: usize,
    common: DType,
    f: impl Fn([&[ReadCell<C>]; N], &[Cell<C>]),
) -> Result<(), KernelError> {
    if run_alike(call, inputs, out, &f)? { Ok(()) } else { run_any(call, inputs, out, common, &f) }
}

/// Runs where every tensor is of `C` and laid out as the output is; gives `false` elsewhere.
#[inline(always)]
fn run_alike<C: Compute, const N: usize>(
    call: &KernelCall<'_>,
    inputs: [usize; N],
    out: usize,
    f: &impl Fn([&[ReadCell<C>]; N], &[Cell<C>]),
) -> Result<bool, KernelError> {
    let target = call.tensor(out)?;
    if target.dtype() != C::DTYPE {
        return Ok(false);
    }
    let mut cells: [&[ReadCell<C>]; N] = [&[]; N];
    for (slot, index) in cells.iter_mut().zip(inputs) {
        let tensor = call.tensor(index)?;
        if tensor.dtype() != C::DTYPE || !tensor.matches_layout(target) {
            return Ok(false);
        }
        *slot = tensor.read().map_err(at(index))?;
    }
    f(cells, target.write().map_err(at(out))?);
    Ok(true)
}

/// `out ← f(a, b)` for what small programs are full of: `float32` throughout, both operands laid out as the
/// output, or one of them a single number. Gives `false`, and has done nothing, elsewhere.
#[inline(always)]
pub(super) fn run_quick(
    call: &KernelCall<'_>,
    [a, b]: [usize; 2],
    out: usize,
    f: impl Fn(f32, f32) -> f32,
) -> Result<bool, KernelError> {
    let (left, right, target) = (call.tensor(a)?, call.tensor(b)?, call.tensor(out)?);
    let kinds = [left.dtype(), right.dtype(), target.dtype()];
    if kinds != [DType::Float32; 3] || target.numel() > QUICK_LEN_MAX {
        return Ok(false);
    }
    let (left_fits, right_fits) = (left.matches_layout(target), right.matches_layout(target));
    let single = |tensor: &Tensor| tensor.numel() == 1 && tensor.rank() <= target.rank();
    if !(left_fits || single(left)) || !(right_fits || single(right)) || !(left_fits || right_fits) {
        return Ok(false);
    }
    let left = left.read::<f32>().map_err(at(a))?;
    let right = right.read::<f32>().map_err(at(b))?;
    let target = target.write::<f32>().map_err(at(out))?;
    match (left, right) {
        ([single], right) if !left_fits => {
            let left = single.get();
            target.iter().zip(right).for_each(|(out, right)| out.set(f(left, right.get())));
        }
        (left, [single]) if !right_fits => {
            let right = single.get();
            target.iter().zip(left).for_each(|(out, left)| out.set(f(left.get(), right)));
        }
        _ => {
            let inputs = left.iter().zip(right);
            target.iter().zip(inputs).for_each(|(out, (left, right))| out.set(f(left.get(), right.get())));
        }
    }
    Ok(true)
}

/// Runs whatever the kinds, sizes and orders are.
#[inline(never)]
fn run_any<C: Compute, const N: usize>(
    call: &mut KernelCall<'_>,
    inputs: [usize; N],
    out: usize,
    common: DType,
    f: &Apply<'_, C, N>,
) -> Result<(), KernelError> {
    if !has_result_sizes(call, inputs, out)? {
        let mut sizes = Dims::empty();
        for index in inputs {
            sizes = broadcast(&sizes, call.tensor(index)?.sizes())?;
        }
        call.resize(out, &sizes)?;
    }
    run_sized(call, inputs, out, common, f)
}

/// Whether it is plain that the output has the sizes of the result: it has those of an operand, and every
/// other operand has them too or is one element.
fn has_result_sizes<const N: usize>(
    call: &KernelCall<'_>,
    inputs: [usize; N],
    out: usize,
) -> Result<bool, KernelError> {
    let target = call.tensor(out)?;
    let mut found = false;
    for index in inputs {
        let tensor = call.tensor(index)?;
        if tensor.sizes() == target.sizes() {
            found = true;
        } else if !is_single(tensor, target) {
            return Ok(false);
        }
    }
    Ok(found)
}

fn is_single(tensor: &Tensor, target: &Tensor) -> bool {
    tensor.numel() == 1 && tensor.rank() <= target.rank()
}

/// Runs with the operands broadcast to the sizes that the output has.
pub(super) fn run_sized<C: Compute, const N: usize>(
    call: &KernelCall<'_>,
    inputs: [usize; N],
    out: usize,
    common: DType,
    f: &Apply<'_, C, N>,
) -> Result<(), KernelError> {
    let target = call.tensor(out)?;
    let mut operands = [Operand::of(target, out, Places::Flat)?; N];
    for (slot, index) in operands.iter_mut().zip(inputs) {
        let tensor = call.tensor(index)?;
        let places = if tensor.matches_layout(target) {
            Places::Flat
        } else if is_single(tensor, target) {
            Places::Single
        } else {
            return run_strided(call, inputs, out, common, f);
        };
        *slot = Operand::of(tensor, index, places)?;
    }
    run_blocks(operands, target, out, common, f)
}

#[inline(never)]
fn run_strided<C: Compute, const N: usize>(
    call: &KernelCall<'_>,
    inputs: [usize; N],
    out: usize,
    common: DType,
    f: &Apply<'_, C, N>,
) -> Result<(), KernelError> {
    let target = call.tensor(out)?;
    let mut walks = [Walk::new(target, target.sizes(), target.order()); N];
    for (walk, index) in walks.iter_mut().zip(inputs) {
        *walk = Walk::new(call.tensor(index)?, target.sizes(), target.order());
    }
    let mut operands = [Operand::of(target, out, Places::Flat)?; N];
    for ((slot, index), walk) in operands.iter_mut().zip(inputs).zip(&walks) {
        let places = if walk.is_contiguous() {
            Places::Flat
        } else if walk.is_single() {
            Places::Single
        } else {
            Places::Strided(walk)
        };
        *slot = Operand::of(call.tensor(index)?, index, places)?;
    }
    run_blocks(operands, target, out, common, f)
}

/// Where the elements of an operand lie, in the order of the output.
#[derive(Clone, Copy, Debug)]
pub(super) enum Places<'a> {
    /// One after the other.
    Flat,
    /// All are the first.
    Single,
    /// Wherever the walk leads.
    Strided(&'a Walk),
}

/// A tensor that is read, where its elements lie, and how they are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand<'a, C> {
    tensor: &'a Tensor,
    index: usize,
    places: Places<'a>,
    load: Load<C>,
}

impl<'a, C: Compute> Operand<'a, C> {
    pub(super) fn of(tensor: &'a Tensor, index: usize, places: Places<'a>) -> Result<Self, KernelError> {
        let load = loader::<C>(tensor.dtype()).ok_or_else(|| no_arithmetic(tensor.dtype()))?;
        Ok(Self { tensor, index, places, load })
    }

    /// Reads the elements `first..first + block.len()` of the output's order.
    fn load(&self, first: usize, block: &[Cell<C>]) -> Result<(), KernelError> {
        match self.places {
            Places::Flat => (self.load)(self.tensor, first, 1, block),
            Places::Single => (self.load)(self.tensor, 0, 0, block),
            Places::Strided(walk) => walk.runs(first, block.len(), |place, run| {
                let part = block.get(place..place + run.len).unwrap_or_default();
                (self.load)(self.tensor, run.start, run.stride, part)
            }),
        }
        .map_err(at(self.index))
    }

    /// The elements themselves, where they need no loading.
    fn cells(&self) -> Result<Option<&'a [ReadCell<C>]>, KernelError> {
        match self.places {
            Places::Flat if self.tensor.dtype() == C::DTYPE => {
                self.tensor.read().map(Some).map_err(at(self.index))
            }
            _ => Ok(None),
        }
    }
}

fn no_arithmetic(dtype: DType) -> KernelError {
    KernelError::DType(format!("{dtype} elements have no arithmetic"))
}

/// Applies `f` block by block, in the order of the output's memory.
pub(super) fn run_blocks<C: Compute, const N: usize>(
    operands: [Operand<'_, C>; N],
    target: &Tensor,
    out: usize,
    common: DType,
    f: &Apply<'_, C, N>,
) -> Result<(), KernelError> {
    if target.numel() <= BLOCK_SMALL {
        run_blocks_of::<C, N, BLOCK_SMALL>(&operands, target, out, common, f)
    } else {
        run_blocks_of::<C, N, BLOCK>(&operands, target, out, common, f)
    }
}

#[inline(never)]
fn run_blocks_of<C: Compute, const N: usize, const LEN: usize>(
    operands: &[Operand<'_, C>; N],
    target: &Tensor,
    out: usize,
    common: DType,
    f: &Apply<'_, C, N>,
) -> Result<(), KernelError> {
    let blocks: [[Cell<C>; LEN]; N] = core::array::from_fn(|_| [const { Cell::new(C::ZERO) }; LEN]);
    let result: [Cell<C>; LEN] = [const { Cell::new(C::ZERO) }; LEN];
    let store = storer::<C>(target.dtype()).ok_or_else(|| no_arithmetic(target.dtype()))?;
    let wraps = common != target.dtype() && common != C::DTYPE;
    let direct_out =
        if target.dtype() == C::DTYPE && !wraps { Some(target.write::<C>().map_err(at(out))?) } else { None };
    let mut direct: [Option<&[ReadCell<C>]>; N] = [None; N];
    for (slot, operand) in direct.iter_mut().zip(operands) {
        *slot = operand.cells()?;
    }
    let count = target.numel();
    let mut first = 0;
    while first < count {
        let len = LEN.min(count - first);
        let mut views: [&[ReadCell<C>]; N] = [&[]; N];
        for (((view, operand), block), direct) in views.iter_mut().zip(operands).zip(&blocks).zip(direct) {
            *view = if let Some(cells) = direct {
                cells.get(first..first + len).unwrap_or_default()
            } else {
                // One element for all: the block of the round before still holds it.
                if first == 0 || !matches!(operand.places, Places::Single) {
                    operand.load(first, &block[..len])?;
                }
                ReadCell::from_cells(&block[..len])
            };
        }
        if let Some(cells) = direct_out {
            f(views, cells.get(first..first + len).unwrap_or_default());
        } else {
            f(views, &result[..len]);
            if wraps {
                wrap(common, &result[..len]);
            }
            store(target, first, &result[..len]).map_err(at(out))?;
        }
        first += len;
    }
    Ok(())
}
