#![forbid(unsafe_code)]
//! Alignment and range arithmetic on offsets and addresses, nothing that wraps.
//!
//! ```
//! use arenite::align::{checked_align_up, checked_range};
//! assert_eq!(checked_align_up(13, 8), Some(16));
//! assert_eq!(checked_align_up(usize::MAX, 8), None);
//! assert_eq!(checked_range(4, 8, 16), Some(4..12));
//! assert_eq!(checked_range(usize::MAX, 8, 16), None);
//! ```
//!
//! Deliberately absent: pointers. Callers turn offsets into addresses.

use core::ops::Range;

/// The smallest multiple of `align` that is at least `value`, or `None` where it does not fit a `usize`
/// or `align` is no power of two.
#[inline]
pub const fn checked_align_up(value: usize, align: usize) -> Option<usize> {
    if !align.is_power_of_two() {
        return None;
    }
    match value.checked_add(align - 1) {
        Some(sum) => Some(sum & !(align - 1)),
        None => None,
    }
}

/// The largest multiple of `align`, a power of two, that is at most `value`.
#[inline]
pub const fn align_down(value: usize, align: usize) -> usize {
    debug_assert!(align.is_power_of_two());
    value & !(align - 1)
}

/// Whether `value` is a multiple of `align`, a power of two.
#[inline]
pub const fn is_aligned(value: usize, align: usize) -> bool {
    debug_assert!(align.is_power_of_two());
    value & (align - 1) == 0
}

/// The range of `len` from `offset` on, or `None` where it does not lie within `0..total`.
#[inline]
pub const fn checked_range(offset: usize, len: usize, total: usize) -> Option<Range<usize>> {
    match offset.checked_add(len) {
        Some(end) if end <= total => Some(offset..end),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligning_up_gives_the_next_multiple_and_never_wraps() {
        for align in [1, 2, 8, 64, 4096] {
            for value in [0, 1, 7, 8, 9, 63, 64, 65, 4095, 4096, 5000] {
                let up = checked_align_up(value, align).unwrap();
                assert!(up >= value && up - value < align && is_aligned(up, align));
                assert_eq!(align_down(up, align), up);
            }
        }
        assert_eq!(checked_align_up(usize::MAX, 2), None);
        assert_eq!(checked_align_up(1, 1 << 63), Some(1 << 63));
        assert_eq!(checked_align_up(8, 3), None);
        assert_eq!(checked_align_up(8, 0), None);
    }

    #[test]
    fn a_range_lies_within_its_total() {
        assert_eq!(checked_range(0, 0, 0), Some(0..0));
        assert_eq!(checked_range(16, 0, 16), Some(16..16));
        assert_eq!(checked_range(16, 1, 16), None);
        assert_eq!(checked_range(1, usize::MAX, usize::MAX), None);
    }
}
