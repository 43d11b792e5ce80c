#![forbid(unsafe_code)]
//! Where the elements of an operand lie, in the order in which the output's elements lie.
//!
//! ```text
//!   out   (2, 3), row-major:   0 1 2 3 4 5
//!   (2, 1) broadcast:          0 0 0 1 1 1     sizes [2, 3]  strides [1, 0]
//!   (2, 3) column-major:       0 2 4 1 3 5     sizes [2, 3]  strides [1, 2]
//!   (2, 3) row-major:          0 1 2 3 4 5     sizes [6]     strides [1]
//!   ()     broadcast:          0 0 0 0 0 0     sizes [6]     strides [0]
//! ```

use crate::kernel::{KernelError, fail};
use crate::tensor::shape::display_sizes;
use crate::tensor::{Dims, Tensor};

/// The sizes that both broadcast to, trailing dimensions aligned.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Result<Dims, KernelError> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut out = Dims::new(long).unwrap_or_else(Dims::empty);
    let skipped = long.len() - short.len();
    for (size, &other) in out.as_mut_slice().iter_mut().skip(skipped).zip(short) {
        if *size == 1 {
            *size = other;
        } else if other != 1 && other != *size {
            fail!(Shape, "sizes {} and {} do not broadcast", display_sizes(a), display_sizes(b));
        }
    }
    Ok(out)
}

/// A run of elements the same distance apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) start: usize,
    pub(super) stride: usize,
    pub(super) len: usize,
}

/// The places of an operand's elements. Dimensions that one stride can step over are joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    base: usize,
    sizes: Dims,
    strides: Dims,
}

impl Walk {
    /// The places of `tensor`, broadcast to `sizes`, in the memory order `order` of the output.
    pub(super) fn new(tensor: &Tensor, sizes: &[usize], order: &[u8]) -> Self {
        Self::part(tensor, tensor.sizes(), 0, sizes, order)
    }

    /// As [`Walk::new`], for the part of `tensor` that has the sizes `own` and begins at element `base`.
    pub(super) fn part(tensor: &Tensor, own: &[usize], base: usize, sizes: &[usize], order: &[u8]) -> Self {
        let strides = tensor.strides();
        let skipped = sizes.len() - own.len().min(sizes.len());
        let mut walk = Self { base, sizes: Dims::empty(), strides: Dims::empty() };
        for &dim in order {
            let dim = usize::from(dim);
            let size = sizes.get(dim).copied().unwrap_or(1);
            let own_dim = dim.checked_sub(skipped);
            let stride = match own_dim.and_then(|dim| Some((own.get(dim)?, strides.get(dim)?))) {
                Some((&own_size, &stride)) if own_size != 1 => stride,
                _ => 0,
            };
            walk.push(size, stride);
        }
        walk
    }

    /// Adds an inner dimension, joined with the one before where one stride steps over both.
    fn push(&mut self, size: usize, stride: usize) {
        if size == 1 {
            return;
        }
        if let (Some(last_size), Some(last_stride)) =
            (self.sizes.as_mut_slice().last_mut(), self.strides.as_mut_slice().last_mut())
            && *last_stride == stride * size
        {
            *last_size *= size;
            *last_stride = stride;
            return;
        }
        // A walk has at most as many dimensions as the output.
        let _ = self.sizes.push(size);
        let _ = self.strides.push(stride);
    }

    /// Whether the elements lie as those of the output do.
    pub(super) fn is_contiguous(&self) -> bool {
        self.base == 0 && matches!(*self.strides, [] | [1])
    }

    /// Whether all elements are one.
    pub(super) fn is_single(&self) -> bool {
        self.base == 0 && self.strides.iter().all(|&stride| stride == 0)
    }

    /// Calls `visit` with the runs that make up the elements `first..first + count` of the output, and
    /// with the place of each run among these.
    pub(super) fn runs<E>(
        &self,
        first: usize,
        count: usize,
        mut visit: impl FnMut(usize, Run) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((&inner, outer)) = self.sizes.split_last() else {
            return visit(0, Run { start: self.base, stride: 0, len: count });
        };
        let inner_stride = self.strides[outer.len()];
        let mut index: Dims = self.sizes;
        let index = index.as_mut_slice();
        let (mut rest, mut start) = (first, self.base);
        for ((slot, &size), &stride) in index.iter_mut().zip(&*self.sizes).zip(&*self.strides).rev() {
            *slot = rest % size.max(1);
            rest /= size.max(1);
            start += *slot * stride;
        }
        let mut done = 0;
        while done < count {
            let at = index[outer.len()];
            let len = (inner - at).min(count - done);
            visit(done, Run { start, stride: inner_stride, len })?;
            done += len;
            // Back to the beginning of the run, then on to the next index of the outer dimensions.
            start -= at * inner_stride;
            index[outer.len()] = 0;
            for dim in (0..outer.len()).rev() {
                index[dim] += 1;
                start += self.strides[dim];
                if index[dim] < self.sizes[dim] {
                    break;
                }
                start -= index[dim] * self.strides[dim];
                index[dim] = 0;
            }
        }
        Ok(())
    }
}
