#![forbid(unsafe_code)]
//! The cursor: where the next block of a chunk starts and ends.
//!
//! ```text
//!                                       ◄───────────── depth ─────────────►
//!   base              cursor  start  next         end                     top of the address space
//!    │ given out ▓▓▓▓▓▓│ padding │ block │ free ···│
//! ```
//!
//! What is kept of a cursor is its *depth*, how far it is below the top of the address space. Aligning an address
//! upwards is then clearing the lower bits of its depth, so that from one block to the next there are two steps, a
//! mask and a difference; aligning the address itself takes two more.
//!
//! Deliberately absent: pointers and state. Addresses are numbers here, at most [`ADDRESS_MAX`], so that no
//! difference can wrap and one comparison decides.

use core::alloc::Layout;

/// The highest address that an arena manages.
pub(super) const ADDRESS_MAX: usize = isize::MAX.unsigned_abs();

/// The depth of a cursor from which on nothing fits, not even a block of no bytes: every end is deeper.
pub(super) const NOWHERE: usize = depth(ADDRESS_MAX + 1);

/// How far an address, which is not 0, is below the top of the address space; and back.
#[inline(always)]
pub(super) const fn depth(address: usize) -> usize {
    address.wrapping_neg()
}

/// The depths of a block's start and of the cursor after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    pub(super) start: usize,
    pub(super) next: usize,
}

/// The place of a block for `layout` from the cursor at depth `from` on, without asking for an end.
///
/// `from` is [`NOWHERE`] or deeper, a power of two that every alignment divides, and a layout's size is less, so
/// nothing wraps: the start is `NOWHERE` or deeper, the next cursor at least 1 deep.
#[inline(always)]
pub(super) const fn place(from: usize, layout: Layout) -> Fit {
    debug_assert!(from >= NOWHERE);
    let start = from & layout.align().wrapping_neg();
    Fit { start, next: start - layout.size() }
}

/// The place of a block for `layout` between the cursor at depth `from` and the end at depth `end`, where it fits.
#[inline(always)]
pub(super) const fn fit(from: usize, end: usize, layout: Layout) -> Option<Fit> {
    let fit = place(from, layout);
    if fit.next >= end { Some(fit) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    /// Start and next cursor as addresses, from and to addresses.
    fn fits(cursor: usize, end: usize, layout: Layout) -> Option<(usize, usize)> {
        fit(depth(cursor), depth(end), layout).map(|fit| (depth(fit.start), depth(fit.next)))
    }

    #[test]
    fn a_block_starts_at_the_next_multiple_of_its_alignment() {
        assert_eq!(fits(0x1001, 0x2000, layout(8, 8)), Some((0x1008, 0x1010)));
        assert_eq!(fits(0x1008, 0x2000, layout(0, 8)), Some((0x1008, 0x1008)));
        assert_eq!(fits(0x1008, 0x1010, layout(8, 8)), Some((0x1008, 0x1010)));
        assert_eq!(fits(0x1009, 0x1010, layout(8, 8)), None);
        assert_eq!(fits(1, 16, layout(8, 8)), Some((8, 16)));
    }

    #[test]
    fn nothing_fits_nowhere() {
        for end in [1, ADDRESS_MAX] {
            for align in [1, 64, 1 << 63] {
                assert_eq!(fit(NOWHERE, depth(end), layout(0, align)), None);
            }
            assert_eq!(fit(NOWHERE, depth(end), layout(ADDRESS_MAX, 1)), None);
        }
    }

    #[test]
    fn the_largest_sizes_and_alignments_do_not_wrap() {
        for align in [1, 2, 4096, 1 << 62] {
            let size = ADDRESS_MAX - (align - 1);
            assert_eq!(fits(ADDRESS_MAX, ADDRESS_MAX, layout(size, align)), None);
        }
        assert_eq!(fits(1, ADDRESS_MAX, layout(0, 1 << 63)), None);
    }
}
