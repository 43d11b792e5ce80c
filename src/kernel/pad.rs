#![forbid(unsafe_code)]
#![expect(clippy::cast_possible_truncation, reason = "checked numbers of elements; 64-bit addresses")]
//! Padding: a border around the last dimensions, constant or made of the tensor itself.
//!
//! ```text
//!   constant     0 0 a b c 0        reflection   c b a b c b        replication   a a a b c c
//! ```
//!
//! Amounts come in pairs from the last dimension on: before, after. A negative amount crops.
//! Deliberately absent: circular padding, which exporters take apart.

use super::number::element;
use super::view::{dims, same_dtype};
use super::walk::{Source, Target, Walk, by_width, each, signed};
use super::{Arg, Kernel, KernelCall, KernelError, fail};
use crate::tensor::Dims;
use crate::tensor::shape::display_sizes;

const BORDER: &[Arg] = &[Arg::Tensor, Arg::IntList, Arg::Out];

/// The padding operators.
pub(super) const KERNELS: &[Kernel] = &[
    Kernel {
        name: "aten::constant_pad_nd.out",
        args: &[Arg::Tensor, Arg::IntList, Arg::Scalar, Arg::Out],
        run: constant,
    },
    Kernel { name: "aten::reflection_pad1d.out", args: BORDER, run: |call| border(call, 1, Border::Reflect) },
    Kernel { name: "aten::reflection_pad2d.out", args: BORDER, run: |call| border(call, 2, Border::Reflect) },
    Kernel { name: "aten::reflection_pad3d.out", args: BORDER, run: |call| border(call, 3, Border::Reflect) },
    Kernel { name: "aten::replication_pad1d.out", args: BORDER, run: |call| border(call, 1, Border::Repeat) },
    Kernel { name: "aten::replication_pad2d.out", args: BORDER, run: |call| border(call, 2, Border::Repeat) },
    Kernel { name: "aten::replication_pad3d.out", args: BORDER, run: |call| border(call, 3, Border::Repeat) },
];

/// What is added before and after each dimension.
type Amounts = Dims<(i64, i64)>;

/// The amounts of every dimension, and the sizes once they are added.
fn padded(sizes: &[usize], pad: &[i64]) -> Result<(Amounts, Dims), KernelError> {
    let refused = |why: &str| {
        KernelError::Shape(format!("padding {} of sizes {}: {why}", display_sizes(pad), display_sizes(sizes)))
    };
    if !pad.len().is_multiple_of(2) || pad.len() / 2 > sizes.len() {
        return Err(refused("one pair of amounts for each dimension at most"));
    }
    let mut out = dims(sizes)?;
    let mut amounts = Amounts::filled((0, 0), sizes.len()).unwrap_or_else(Dims::empty);
    for (at, pair) in pad.chunks_exact(2).enumerate() {
        let dim = sizes.len() - 1 - at;
        amounts.as_mut_slice()[dim] = (pair[0], pair[1]);
        let size = (sizes[dim] as i64).checked_add(pair[0]).and_then(|size| size.checked_add(pair[1]));
        out.as_mut_slice()[dim] = size
            .and_then(|size| usize::try_from(size).ok())
            .ok_or_else(|| refused("a size would be negative or too large"))?;
    }
    Ok((amounts, out))
}

fn constant(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (amounts, sizes) = padded(call.tensor(0)?.sizes(), &call.ints(1)?)?;
    let value = element(call.scalar(2)?, call.tensor(0)?.dtype())?;
    same_dtype(call, 0, 3)?;
    call.resize(3, &sizes)?;
    let (source, target) = (Source::of(call, 0)?, Target::of(call, 3)?);
    target.fill(value);
    let (from, to) = (signed(&source.tensor.strides()), signed(&target.tensor.strides()));
    let (mut walk, mut at_from, mut at_to) = (Walk::new(), 0_isize, 0_isize);
    for &dim in target.tensor.order() {
        let dim = usize::from(dim);
        let (before, after) = amounts[dim];
        let kept = (source.tensor.sizes()[dim] as i64) + before.min(0) + after.min(0);
        at_to = at_to.wrapping_add((before.max(0) as isize).wrapping_mul(to[dim]));
        at_from = at_from.wrapping_add(((-before).max(0) as isize).wrapping_mul(from[dim]));
        walk.axis(usize::try_from(kept).unwrap_or(0), to[dim], from[dim])?;
    }
    walk.copy(target.tensor.dtype().size_bytes(), (target.bytes, at_to), (source.bytes, at_from))
}

/// Where the elements of a border come from.
#[derive(Clone, Copy)]
enum Border {
    /// Mirrored at the outermost element, which is not repeated.
    Reflect,
    /// The outermost element again and again.
    Repeat,
}

impl Border {
    /// The index inside `size` for one that may lie outside.
    #[inline]
    fn inside(self, index: i64, size: usize) -> usize {
        let last = size as i64 - 1;
        let index = match self {
            Self::Reflect if index < 0 => -index,
            Self::Reflect if index > last => 2 * last - index,
            _ => index,
        };
        index.clamp(0, last) as usize
    }
}

/// Pads the last `count` dimensions.
fn border(call: &mut KernelCall<'_>, count: usize, border: Border) -> Result<(), KernelError> {
    let (own, pad) = (dims(call.tensor(0)?.sizes())?, call.ints(1)?);
    let rank = own.len();
    if pad.len() != 2 * count || !(rank == count + 1 || rank == count + 2) {
        fail!(
            Shape,
            "padding {} of sizes {}, expected {} amounts and {} or {} dimensions",
            display_sizes(&pad),
            display_sizes(&own),
            2 * count,
            count + 1,
            count + 2
        );
    }
    let (amounts, sizes) = padded(&own, &pad)?;
    for dim in rank - count..rank {
        let (before, after) = amounts[dim];
        let most = own[dim] as i64 - 1;
        let far = matches!(border, Border::Reflect) && before.max(after) > most;
        if far || (own[dim] == 0 && sizes[dim] > 0) {
            fail!(
                Shape,
                "padding {before} and {after} is more than dimension {dim} of size {} gives",
                own[dim]
            );
        }
    }
    same_dtype(call, 0, 2)?;
    call.resize(2, &sizes)?;
    let (source, target) = (Source::of(call, 0)?, Target::of(call, 2)?);
    let (from, to) = (signed(&source.tensor.strides()), signed(&target.tensor.strides()));
    let (line, last) = (rank - 1, own[rank - 1]);
    // Per row: its place in the target, the place of its image in the source, and its indices in the
    // padded dimensions above the last.
    let zero = Dims::filled(0_isize, line).unwrap_or_else(Dims::empty);
    let (mut lead, mut rows, mut planes) = (zero, zero, zero);
    lead.as_mut_slice()[..rank - count].copy_from_slice(&from[..rank - count]);
    if count > 1 {
        rows.as_mut_slice()[line - 1] = 1;
    }
    if count > 2 {
        planes.as_mut_slice()[line - 2] = 1;
    }
    let place = |index: usize, dim: usize| {
        border.inside(index as i64 - amounts[dim].0, own[dim]) * from[dim] as usize
    };
    by_width!(target.tensor.dtype().size_bytes(), W => {
        let (input, out) = (source.words::<W>(), target.words::<W>());
        each(&sizes[..line], [&to[..line], &lead, &rows, &planes], |[start, image, row, plane]| {
            let mut image = image;
            if count > 1 {
                image += place(row, line - 1);
            }
            if count > 2 {
                image += place(plane, line - 2);
            }
            for index in 0..sizes[line] {
                let at = border.inside(index as i64 - amounts[line].0, last) * from[line] as usize;
                out[start + index * to[line] as usize].set(input[image + at].get());
            }
            Ok(())
        })
    })
}
