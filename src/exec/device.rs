//! Copies between the host and device spaces, in queue order.
//!
//! Consecutive uploads go to the queue together, so that neighbours travel in one copy; downloads are waited
//! for before the host reads, or once at the end. Deliberately absent: any driver; a [`Queue`] has it.

use super::holdings::Holdings;
use super::input::TensorInput;
use super::step::Step;
use super::transfer::{copy_in, copy_out};
use crate::kernel::{KernelError, fail};
use crate::program::MethodPlan;
use crate::space::{Piece, SpaceId};
use crate::tensor::{Tensor, TensorError};
use crate::value::{Span, Value, ValueId};
use core::ptr::NonNull;

/// The most uploads that go to a queue in one call.
const PIECES_MAX: usize = 16;

/// The space of the first tensor among `args` that is on a device; the host where none is.
pub(super) fn space_of(values: &[Value], tensors: &[Tensor], args: &[ValueId]) -> SpaceId {
    args.iter()
        .filter_map(|id| match values[id.index()] {
            Value::Tensor(at) => Some(tensors[at as usize].space()),
            _ => None,
        })
        .find(|space| !space.is_host())
        .unwrap_or(SpaceId::HOST)
}

/// Copies an input into `target`, whatever space each is in. Sizes and kinds are equal.
pub(super) fn copy_input(
    holdings: &mut Holdings,
    target: &Tensor,
    source: &TensorInput<'_>,
) -> Result<(), String> {
    if target.space().is_host() && source.space().is_host() {
        copy_in(target, source);
        return Ok(());
    }
    if !source.lies_as(&target.strides()) {
        return Err(format!(
            "elements in {} that are not gapless in the order of the input; make them contiguous",
            source.space()
        ));
    }
    let Some(address) = target.address().filter(|_| target.numel() > 0) else { return Ok(()) };
    let space = if target.space().is_host() { source.space() } else { target.space() };
    let piece = Piece {
        target: address,
        source: NonNull::new(source.address().cast_mut()).ok_or("a null address")?,
        size_bytes: target.size_bytes(),
    };
    let queue = holdings.queue(space).ok_or_else(|| {
        format!("elements in {}; this method's memory is in {}", source.space(), target.space())
    })?;
    let done = if source.space().is_host() {
        // SAFETY: the target is bound memory (T1); the source is readable for the inputs' life, and is staged
        // before this returns or in pinned memory that the caller keeps until the run ends.
        unsafe { queue.upload(&[piece]) }
    } else if target.space().is_host() {
        // SAFETY: likewise; the run waits for the queue before the host reads the target.
        unsafe { queue.download(&[piece]) }
    } else {
        // SAFETY: both are device memory, valid until the run ends.
        unsafe { queue.copy(piece) }
    };
    let done = done.and_then(|()| if target.space().is_host() { queue.synchronize() } else { Ok(()) });
    done.map_err(|error| error.to_string())
}

/// Copies a tensor to another of its sizes, kind and order, both on the host or on one device. On a device the
/// copy is queued.
pub(super) fn copy(holdings: &mut Holdings, source: &Tensor, target: &Tensor) -> Result<(), String> {
    let size_bytes = source.size_bytes();
    if size_bytes == 0 {
        return Ok(());
    }
    let (Some(from), Some(to)) = (source.address(), target.address()) else {
        return Err("no memory was given to this tensor".into());
    };
    if source.space() != target.space() || target.capacity_bytes() < size_bytes {
        return Err(format!(
            "{size_bytes} bytes in {} to {} bytes in {}",
            source.space(),
            target.capacity_bytes(),
            target.space()
        ));
    }
    let piece = Piece { target: to, source: from, size_bytes };
    if source.space().is_host() {
        copy_on_host(&piece);
        return Ok(());
    }
    let queue = holdings.queue(source.space()).ok_or_else(|| format!("no queue of {}", source.space()))?;
    // SAFETY: both are bound device memory (T1), as long as the piece, valid while the method is.
    unsafe { queue.copy(piece) }.map_err(|error| error.to_string())
}

/// Copies the elements of `tensor`, row-major, to `target`, which must be just as long.
pub(super) fn copy_output(holdings: &mut Holdings, tensor: &Tensor, target: &mut [u8]) -> Result<(), String> {
    if target.len() != tensor.size_bytes() {
        return Err(format!("{} bytes into a place of {}", tensor.size_bytes(), target.len()));
    }
    let target = NonNull::from(target).cast::<u8>();
    if tensor.size_bytes() == 0 {
        return Ok(());
    }
    let Some(source) = tensor.address() else {
        return Err("no memory was given to this tensor".into());
    };
    if tensor.space().is_host() {
        // SAFETY: the target is borrowed exclusively and just as long, which was compared.
        unsafe { copy_out(target, tensor) };
        return Ok(());
    }
    if !tensor.is_row_major() {
        return Err(format!("elements in {} that are not row-major", tensor.space()));
    }
    let piece = Piece { target, source, size_bytes: tensor.size_bytes() };
    let queue = holdings.queue(tensor.space()).ok_or_else(|| format!("no queue of {}", tensor.space()))?;
    // SAFETY: the target is borrowed until the queue has written it, which the next line waits for.
    unsafe { queue.download(&[piece]) }.and_then(|()| queue.synchronize()).map_err(|error| error.to_string())
}

/// Does the uploads from step `at` on that follow each other, and gives the step after them.
pub(super) fn upload(
    holdings: &mut Holdings,
    plan: &MethodPlan,
    values: &[Value],
    tensors: &mut [Tensor],
    steps: &[Step],
    mut at: usize,
) -> Result<usize, KernelError> {
    let mut pieces = [None; PIECES_MAX];
    let mut count = 0;
    let mut space = None;
    while let Some(&Step::Upload { args }) = steps.get(at)
        && count < PIECES_MAX
    {
        let (to, piece) = piece_of(plan, values, tensors, args, Side::Source)?;
        if space.is_some_and(|space| space != to) {
            break;
        }
        space = Some(to);
        pieces[count] = piece;
        count += 1;
        at += 1;
    }
    let mut list =
        [Piece { target: NonNull::dangling(), source: NonNull::dangling(), size_bytes: 0 }; PIECES_MAX];
    let mut len = 0;
    for piece in pieces.iter().flatten() {
        list[len] = *piece;
        len += 1;
    }
    let space = space.unwrap_or(SpaceId::HOST);
    if space.is_host() {
        for piece in &list[..len] {
            copy_on_host(piece);
        }
        return Ok(at);
    }
    let Some(queue) = holdings.queue(space) else {
        fail!(Unsupported, "a copy to {space}, which has no queue here");
    };
    // SAFETY: both sides are bound memory of this method (T1) of at least the piece's size; sources are staged
    // before this returns, targets are used in queue order.
    match unsafe { queue.upload(&list[..len]) } {
        Ok(()) => Ok(at),
        Err(error) => Err(KernelError::Unsupported(error.to_string())),
    }
}

/// Does one copy to the host.
pub(super) fn download(
    holdings: &mut Holdings,
    plan: &MethodPlan,
    values: &[Value],
    tensors: &mut [Tensor],
    args: Span,
) -> Result<(), KernelError> {
    let from = match args.of(&plan.lists.ids).first().map(|id| values[id.index()]) {
        Some(Value::Tensor(at)) => tensors[at as usize].space(),
        _ => SpaceId::HOST,
    };
    let (_, Some(piece)) = piece_of(plan, values, tensors, args, Side::Target)? else { return Ok(()) };
    if from.is_host() {
        copy_on_host(&piece);
        return Ok(());
    }
    let Some(queue) = holdings.queue(from) else {
        fail!(Unsupported, "a copy from {from}, which has no queue here");
    };
    // SAFETY: both sides are bound memory of this method (T1) of at least the piece's size; the host reads the
    // target after the queue was waited for.
    unsafe { queue.download(&[piece]) }.map_err(|error| KernelError::Unsupported(error.to_string()))
}

/// The pieces of every upload and download of a method without jumps, in order.
pub(super) fn pieces(
    plan: &MethodPlan,
    values: &[Value],
    tensors: &mut [Tensor],
    steps: &[Step],
    uploads: &mut Vec<Piece>,
    downloads: &mut Vec<Piece>,
) -> Result<(), KernelError> {
    uploads.clear();
    downloads.clear();
    for step in steps {
        match *step {
            Step::Upload { args } => {
                uploads.extend(piece_of(plan, values, tensors, args, Side::Source)?.1);
            }
            Step::Download { args } => {
                downloads.extend(piece_of(plan, values, tensors, args, Side::Target)?.1);
            }
            _ => {}
        }
    }
    Ok(())
}

/// The side of a copy that must be in host memory.
#[derive(Clone, Copy)]
enum Side {
    Source,
    Target,
}

/// Sets the sizes of the target of a copy, and gives its space and the bytes to copy, if any.
fn piece_of(
    plan: &MethodPlan,
    values: &[Value],
    tensors: &mut [Tensor],
    args: Span,
    host: Side,
) -> Result<(SpaceId, Option<Piece>), KernelError> {
    let ids = args.of(&plan.lists.ids);
    let tensor_at = |index: usize| match ids.get(index).map(|id| values[id.index()]) {
        Some(Value::Tensor(at)) => Ok(at as usize),
        other => {
            let got = other.as_ref().map_or("missing", Value::kind);
            Err(KernelError::Argument { index, expected: "tensor", got })
        }
    };
    let (from, to) = (tensor_at(0)?, tensor_at(1)?);
    if from == to {
        return Ok((tensors[to].space(), None));
    }
    let Ok([source, target]) = tensors.get_disjoint_mut([from, to]) else {
        fail!(Range, "a copy of a tensor that is not there");
    };
    if source.dtype() != target.dtype() {
        fail!(DType, "copies {} to {}", source.dtype(), target.dtype());
    }
    let (index, on_host) = match host {
        Side::Source => (0, source.space()),
        Side::Target => (1, target.space()),
    };
    if !on_host.is_host() {
        return Err(KernelError::Tensor { index, source: TensorError::NotHost(on_host) });
    }
    target.resize(source.sizes()).map_err(|source| KernelError::Tensor { index: 1, source })?;
    if !source.matches_layout(target) {
        fail!(Layout, "copies dimension order {:?} to {:?}", source.order(), target.order());
    }
    let size_bytes = source.size_bytes();
    if size_bytes == 0 {
        return Ok((target.space(), None));
    }
    let side = |index: usize, tensor: &Tensor| match tensor.address() {
        Some(address) if tensor.capacity_bytes() >= size_bytes => Ok(address),
        _ => Err(KernelError::Tensor { index, source: TensorError::Unset }),
    };
    let piece = Piece { target: side(1, target)?, source: side(0, source)?, size_bytes };
    if !target.is_writable() {
        return Err(KernelError::Tensor { index: 1, source: TensorError::ReadOnly });
    }
    Ok((target.space(), Some(piece)))
}

fn copy_on_host(piece: &Piece) {
    // SAFETY: both sides are bound host memory (T1) of at least `size_bytes`, as the callers compared; overlap is
    // allowed.
    unsafe { core::ptr::copy(piece.source.as_ptr(), piece.target.as_ptr(), piece.size_bytes) };
}
