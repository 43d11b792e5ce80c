#![forbid(unsafe_code)]
//! The static orders of a search: which of two items that could start equally low goes first.

/// What static order ties are broken by: keys, most significant first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Largest section total, life, area.
    TotalWidthArea,
    /// Largest section total, area, life.
    TotalAreaWidth,
    /// Life, area, largest section total.
    WidthAreaTotal,
    /// As the first, with the totals of items scattered by up to an eighth: another order for every number.
    /// Its order is not kept by parts, so that it proves nothing.
    Scattered(u64),
}

impl Rank {
    /// What items are sorted by, largest first.
    pub(super) fn key(self, item: u32, total: u128, width: u128, area: u128) -> [u128; 3] {
        match self {
            Self::TotalWidthArea => [total, width, area],
            Self::TotalAreaWidth => [total, area, width],
            Self::WidthAreaTotal => [width, area, total],
            Self::Scattered(seed) => [total * scatter(seed, item), width, area],
        }
    }
}

/// A factor between 896 and 1023, from the seed and the item.
fn scatter(seed: u64, item: u32) -> u128 {
    let mixed = (seed << 32 ^ u64::from(item)).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    u128::from(896 + (mixed >> 57))
}
