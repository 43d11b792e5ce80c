#![forbid(unsafe_code)]
//! The arithmetic of a cursor: where the next block starts and ends.
//!
//! ```text
//!   base               from      start   next         end
//!    │ given out ▓▓▓▓▓▓▓│ padding │ block │ free ······│
//! ```
//!
//! Deliberately absent: pointers and state. Addresses are numbers here, at most [`ADDRESS_MAX`], so that no sum can wrap
//! and one comparison decides.

use core::alloc::Layout;

/// The highest address that an arena manages.
pub(super) const ADDRESS_MAX: usize = isize::MAX.unsigned_abs();

/// Where a cursor stands from which on nothing fits, not even a block of no bytes: every end is before it.
pub(super) const NOWHERE: usize = ADDRESS_MAX + 1;

/// The addresses of a block's start and of the cursor after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    pub(super) start: usize,
    pub(super) next: usize,
}

/// The place of a block for `layout` from the cursor `from` on, without asking for an end.
///
/// `from` is [`NOWHERE`], which every alignment divides, or less, and so is the start; a size is less than `NOWHERE`, so
/// that nothing wraps.
#[inline(always)]
pub(super) const fn place(from: usize, layout: Layout) -> Fit {
    debug_assert!(from <= NOWHERE);
    // The byte before, its lower bits set, is the last before the start: one step less from one cursor to the next than a
    // sum and a mask, since both sums that follow are one.
    let start = (from.wrapping_sub(1) | (layout.align() - 1)).wrapping_add(1);
    Fit { start, next: start + layout.size() }
}

/// The same for a size that its alignment divides, as those of values and slices are: where the block ends is aligned as
/// well, and found in two steps instead of three.
///
/// A size rounded up to its alignment is less than `NOWHERE`, says `Layout`, so that nothing wraps here either.
#[inline(always)]
pub(super) const fn place_whole(from: usize, layout: Layout) -> Fit {
    debug_assert!(from <= NOWHERE && layout.size() & (layout.align() - 1) == 0);
    let next = (from + (layout.size() + (layout.align() - 1))) & layout.align().wrapping_neg();
    Fit { start: next - layout.size(), next }
}

/// The same for an alignment that is known when compiled and a size that is not, as those of slices: in as few
/// instructions.
#[inline(always)]
pub(super) const fn place_slice(from: usize, layout: Layout) -> Fit {
    debug_assert!(from <= NOWHERE);
    let start = (from + (layout.align() - 1)) & layout.align().wrapping_neg();
    Fit { start, next: start + layout.size() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    /// Start and next cursor where the block fits, the same by all ways that are open.
    fn fits(from: usize, end: usize, layout: Layout) -> Option<(usize, usize)> {
        let fit = place(from, layout);
        assert_eq!(place_slice(from, layout), fit);
        if layout.size().is_multiple_of(layout.align()) {
            assert_eq!(place_whole(from, layout), fit);
        }
        (fit.next <= end).then_some((fit.start, fit.next))
    }

    #[test]
    fn a_block_starts_at_the_next_multiple_of_its_alignment() {
        assert_eq!(fits(0x1001, 0x2000, layout(8, 8)), Some((0x1008, 0x1010)));
        assert_eq!(fits(0x1008, 0x2000, layout(0, 8)), Some((0x1008, 0x1008)));
        assert_eq!(fits(0x1008, 0x1010, layout(8, 8)), Some((0x1008, 0x1010)));
        assert_eq!(fits(0x1009, 0x1010, layout(8, 8)), None);
        assert_eq!(fits(0x1001, 0x2000, layout(3, 8)), Some((0x1008, 0x100b)));
        assert_eq!(fits(1, 16, layout(8, 8)), Some((8, 16)));
    }

    #[test]
    fn nothing_fits_nowhere() {
        for end in [0, 1, ADDRESS_MAX] {
            for align in [1, 64, 1 << 63] {
                assert_eq!(fits(NOWHERE, end, layout(0, align)), None);
            }
            assert_eq!(fits(NOWHERE, end, layout(ADDRESS_MAX, 1)), None);
        }
    }

    #[test]
    fn the_largest_sizes_and_alignments_do_not_wrap() {
        for align in [1, 2, 4096, 1 << 62] {
            let size = ADDRESS_MAX - (align - 1);
            for from in [1, ADDRESS_MAX, NOWHERE] {
                assert_eq!(fits(from, ADDRESS_MAX - 1, layout(size, align)), None);
            }
        }
        assert_eq!(fits(1, ADDRESS_MAX, layout(0, 1 << 63)), None);
    }
}
