#![forbid(unsafe_code)]
//! The cursor: where the next block of a chunk starts and ends.
//!
//! ```text
//!   base            cursor   start        next        end
//!    │ given out ▓▓▓▓▓│ padding │ the block │ free ·····│
//! ```
//!
//! Deliberately absent: pointers and state. Addresses are numbers here, at most [`ADDRESS_MAX`], so that no
//! sum can wrap and one comparison decides.

use core::alloc::Layout;

/// The highest address that an arena manages: two of them, or one and a size, never wrap.
pub(super) const ADDRESS_MAX: usize = isize::MAX.unsigned_abs();

/// A cursor and end in which nothing fits, not even a block of no bytes.
pub(super) const NOWHERE: (usize, usize) = (1, 0);

/// Where a block lies and where the cursor stands after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    pub(super) start: usize,
    pub(super) next: usize,
}

/// The place of a block for `layout` from `cursor` on, without asking for an end.
///
/// `cursor` is at most [`ADDRESS_MAX`] and a layout's size and alignment are, so nothing wraps:
/// the start is at most `ADDRESS_MAX + 1`, the next at most `2 * ADDRESS_MAX + 1 = usize::MAX`.
#[inline(always)]
pub(super) const fn place(cursor: usize, layout: Layout) -> Fit {
    debug_assert!(cursor <= ADDRESS_MAX);
    let mask = layout.align() - 1;
    let start = (cursor + mask) & !mask;
    Fit { start, next: start + layout.size() }
}

/// The place of a block for `layout` within `cursor..end`, where it fits.
#[inline(always)]
pub(super) const fn fit(cursor: usize, end: usize, layout: Layout) -> Option<Fit> {
    let fit = place(cursor, layout);
    if fit.next <= end { Some(fit) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn a_block_starts_at_the_next_multiple_of_its_alignment() {
        assert_eq!(fit(0x1001, 0x2000, layout(8, 8)), Some(Fit { start: 0x1008, next: 0x1010 }));
        assert_eq!(fit(0x1008, 0x2000, layout(0, 8)), Some(Fit { start: 0x1008, next: 0x1008 }));
        assert_eq!(fit(0x1008, 0x1010, layout(8, 8)), Some(Fit { start: 0x1008, next: 0x1010 }));
        assert_eq!(fit(0x1009, 0x1010, layout(8, 8)), None);
    }

    #[test]
    fn nothing_fits_nowhere() {
        let (cursor, end) = NOWHERE;
        assert_eq!(fit(cursor, end, layout(0, 1)), None);
        assert_eq!(fit(cursor, end, layout(ADDRESS_MAX, 1)), None);
    }

    #[test]
    fn the_largest_sizes_and_alignments_do_not_wrap() {
        for align in [1, 2, 4096, 1 << 62] {
            let size = ADDRESS_MAX - (align - 1);
            assert_eq!(fit(ADDRESS_MAX, ADDRESS_MAX, layout(size, align)), None);
        }
        assert_eq!(fit(1, ADDRESS_MAX, layout(0, 1 << 63)), None);
    }
}
