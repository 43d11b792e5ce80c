#![forbid(unsafe_code)]
//! Sizes, dimension orders and strides: small, inline, checked.
//!
//! Deliberately absent: element kinds and memory. Counts here are elements, never bytes.

use core::fmt;
use core::ops::Deref;

/// The most dimensions a tensor may have.
///
/// # Source
/// `kTensorDimensionLimit` of the ExecuTorch runtime.
pub const RANK_MAX: usize = 16;

/// Up to [`RANK_MAX`] counts, stored inline: sizes or strides in elements.
#[derive(Clone, Copy)]
pub struct Dims<T = usize> {
    len: u8,
    items: [T; RANK_MAX],
}

/// A dimension order: the dimension stored at each position, outermost first.
pub type DimOrder = Dims<u8>;

impl<T: Copy + Default> Dims<T> {
    /// No dimensions: the shape of a scalar.
    pub fn empty() -> Self {
        Self { len: 0, items: [T::default(); RANK_MAX] }
    }

    /// A copy of `items`, or `None` where there are more than [`RANK_MAX`].
    pub fn new(items: &[T]) -> Option<Self> {
        let mut dims = Self::empty();
        dims.items.get_mut(..items.len())?.copy_from_slice(items);
        dims.len = u8::try_from(items.len()).ok()?;
        Some(dims)
    }

    /// `len` copies of `value`, or `None` where `len` is more than [`RANK_MAX`].
    pub fn filled(value: T, len: usize) -> Option<Self> {
        if len > RANK_MAX {
            return None;
        }
        Some(Self { len: u8::try_from(len).ok()?, items: [value; RANK_MAX] })
    }

    /// Appends one item, or gives `None` at [`RANK_MAX`].
    pub fn push(&mut self, item: T) -> Option<()> {
        *self.items.get_mut(usize::from(self.len))? = item;
        self.len += 1;
        Some(())
    }

    /// Removes the item at `index` and moves the rest down. Out of range changes nothing.
    pub fn remove(&mut self, index: usize) {
        let len = usize::from(self.len);
        if index < len {
            self.items.copy_within(index + 1..len, index);
            self.len -= 1;
        }
    }

    /// Inserts `item` before `index`, or gives `None` where there is no room or no such place.
    pub fn insert(&mut self, index: usize, item: T) -> Option<()> {
        let len = usize::from(self.len);
        if index > len || len == RANK_MAX {
            return None;
        }
        self.items.copy_within(index..len, index + 1);
        self.items[index] = item;
        self.len += 1;
        Some(())
    }

    /// The items, mutably.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }
}

impl<T> Deref for Dims<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }
}

impl<T: PartialEq> PartialEq for Dims<T> {
    // A loop: the few items are compared sooner than a block comparison is called.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().zip(&**other).all(|(a, b)| a == b)
    }
}

impl<T: Eq> Eq for Dims<T> {}

impl<T: fmt::Debug> fmt::Debug for Dims<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The number of elements, or `None` where it does not fit. No dimensions are one element.
pub fn numel(sizes: &[usize]) -> Option<usize> {
    // A zero anywhere makes the whole zero, also where the other sizes alone would overflow.
    if sizes.contains(&0) {
        return Some(0);
    }
    sizes.iter().try_fold(1_usize, |product, &size| product.checked_mul(size))
}

/// The order of a row-major tensor: `0, 1, …, rank − 1`. `None` past [`RANK_MAX`].
pub fn contiguous_order(rank: usize) -> Option<DimOrder> {
    let mut order = DimOrder::filled(0, rank)?;
    for (position, slot) in order.as_mut_slice().iter_mut().enumerate() {
        *slot = u8::try_from(position).ok()?;
    }
    Some(order)
}

/// Whether `order` names each of its positions once.
pub fn is_permutation(order: &[u8]) -> bool {
    let mut seen = [false; RANK_MAX];
    order.len() <= RANK_MAX
        && order.iter().all(|&dim| {
            usize::from(dim) < order.len() && !core::mem::replace(&mut seen[usize::from(dim)], true)
        })
}

/// Strides in elements of a gapless tensor in this order; a size of 0 counts as 1.
///
/// `order` must be a permutation of the dimensions ([`is_permutation`]); sizes whose product
/// overflows give saturated strides.
///
/// # Source
/// `dim_order_to_stride` of the ExecuTorch runtime.
pub fn strides(sizes: &[usize], order: &[u8]) -> Dims {
    let mut strides = Dims::filled(1, sizes.len().min(RANK_MAX)).unwrap_or_else(Dims::empty);
    let out = strides.as_mut_slice();
    let mut step = 1_usize;
    for &dim in order.iter().rev() {
        let dim = usize::from(dim);
        if let (Some(slot), Some(&size)) = (out.get_mut(dim), sizes.get(dim)) {
            *slot = step;
            step = step.saturating_mul(size.max(1));
        }
    }
    strides
}

/// Whether two orders put elements at the same places: only dimensions larger than 1 count.
pub fn same_places(sizes: &[usize], a: &[u8], b: &[u8]) -> bool {
    if a == b {
        return true;
    }
    let larger = |order: &&u8| sizes.get(usize::from(**order)).is_some_and(|&size| size > 1);
    a.iter().filter(larger).eq(b.iter().filter(larger))
}

/// Whether `order` is channels-last: `0, 2, 3, 1` or `0, 2, 3, 4, 1`.
pub fn is_channels_last(order: &[u8]) -> bool {
    matches!(order, [0, 2, 3, 1] | [0, 2, 3, 4, 1])
}

/// Sizes as Python prints a tuple: `(4, 16)`, `(3,)`, `()`.
pub fn display_sizes<T: fmt::Display>(sizes: &[T]) -> impl fmt::Display + '_ {
    fmt::from_fn(move |f| {
        f.write_str("(")?;
        for (index, size) in sizes.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{size}")?;
        }
        f.write_str(if sizes.len() == 1 { ",)" } else { ")" })
    })
}
