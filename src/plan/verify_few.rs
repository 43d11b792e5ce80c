#![forbid(unsafe_code)]
//! The verifier's sweep where few buffers are alive at once: each new one is compared with all of them.
//!
//! Deliberately absent: crowds; [`super::verify`] has a sweep for those.

/// What one storage covers in time and memory, in numbers small enough to compare many at a time.
#[derive(Clone, Copy)]
pub(super) struct Narrow {
    pub first: i32,
    pub last: i32,
    pub offset: i32,
    pub end: i32,
}

/// The most that may be alive at once.
const SLOTS: usize = 128;

/// How many are compared in one go.
const LANES: usize = 16;

/// What is alive, or was: a slot whose life has ended is free.
struct Slots {
    last: [i32; SLOTS],
    offset: [i32; SLOTS],
    end: [i32; SLOTS],
    /// No slot from here on was ever taken, in groups.
    groups: usize,
}

/// What a sweep came to.
pub(super) enum Sweep {
    /// No two share a byte.
    Apart,
    /// Some two do.
    Meet,
    /// Too many are alive at once for this sweep.
    Crowded,
}

/// Compares what is given in order of `first`.
pub(super) fn sweep(spans: impl Iterator<Item = Narrow>) -> Sweep {
    let none = [i32::MIN; SLOTS];
    let mut slots = Slots { last: none, offset: none, end: none, groups: 1 };
    for own in spans {
        let mut free = None;
        for group in 0..slots.groups {
            let (meets, dead) = slots.compare(group, own);
            if meets != 0 {
                return Sweep::Meet;
            }
            if dead != 0 && free.is_none() {
                free = Some(group * LANES + dead.trailing_zeros() as usize);
            }
        }
        let Some(slot) = free.or_else(|| slots.grow()) else { return Sweep::Crowded };
        (slots.last[slot], slots.offset[slot], slots.end[slot]) = (own.last, own.offset, own.end);
    }
    Sweep::Apart
}

impl Slots {
    /// Which of a group are alive and share a byte with `own`, and which are dead.
    #[inline(always)]
    #[expect(clippy::needless_bitwise_bool, reason = "no branch, so that lanes become a vector")]
    fn compare(&self, group: usize, own: Narrow) -> (u32, u32) {
        let last = &self.last.as_chunks::<LANES>().0[group];
        let offset = &self.offset.as_chunks::<LANES>().0[group];
        let end = &self.end.as_chunks::<LANES>().0[group];
        let (mut meets, mut alive) = (0_u32, 0_u32);
        for lane in 0..LANES {
            let lives = last[lane] > own.first;
            alive |= u32::from(lives) << lane;
            meets |= u32::from(lives & (offset[lane] < own.end) & (own.offset < end[lane])) << lane;
        }
        (meets, !alive & 0xFFFF)
    }

    fn grow(&mut self) -> Option<usize> {
        let slot = self.groups * LANES;
        (slot < SLOTS).then(|| {
            self.groups += 1;
            slot
        })
    }
}
