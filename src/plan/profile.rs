#![forbid(unsafe_code)]
//! Numbers in a row, the largest of which is always at hand, while stretches of them grow and shrink.
//!
//! ```text
//! numbers   3 5 4 | 9 7 8 | 2 2 1      a stretch is changed one by one at its ends,
//! largest       5 |     9 |     2      and a block at a time between them
//! ```

use core::ops::Range;

/// How many numbers make a block.
const BLOCK: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Profile {
    /// Each number, less what its block as a whole was raised by.
    values: Vec<u64>,
    blocks: Vec<Block>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    most: u64,
    /// What was added to all of its numbers, modulo 2^64.
    raised: u64,
}

impl Profile {
    pub(super) fn new(values: Vec<u64>) -> Self {
        let mut profile = Self { blocks: vec![Block::default(); values.len().div_ceil(BLOCK)], values };
        (0..profile.blocks.len()).for_each(|block| profile.look(block));
        profile
    }

    /// The largest number; 0 if there is none.
    pub(super) fn most(&self) -> u64 {
        self.blocks.iter().fold(0, |most, block| most.max(block.most))
    }

    /// Takes `old`, which each number of a range contains, out of it and adds `new`. `None` where that goes beyond
    /// 64 bits; then the numbers are of no use any more.
    pub(super) fn exchange(&mut self, range: Range<usize>, old: u64, new: u64) -> Option<()> {
        let by = new.wrapping_sub(old);
        let mut at = range.start;
        while at < range.end {
            let (number, end) = (at / BLOCK, (at / BLOCK + 1) * BLOCK);
            let block = &mut self.blocks[number];
            if new > old {
                block.most.checked_add(by)?;
            }
            if at.is_multiple_of(BLOCK) && end <= range.end {
                block.raised = block.raised.wrapping_add(by);
                block.most = block.most.wrapping_add(by);
            } else {
                for value in &mut self.values[at..end.min(range.end)] {
                    *value = value.wrapping_add(by);
                }
                self.look(number);
            }
            at = end;
        }
        Some(())
    }

    /// Gives one number another value.
    pub(super) fn set(&mut self, at: usize, value: u64) {
        let block = at / BLOCK;
        self.values[at] = value.wrapping_sub(self.blocks[block].raised);
        self.look(block);
    }

    /// Finds the largest number of a block.
    fn look(&mut self, block: usize) {
        let numbers = &self.values[block * BLOCK..self.values.len().min((block + 1) * BLOCK)];
        let Block { most, raised } = &mut self.blocks[block];
        *most = numbers.iter().fold(0, |most, value| most.max(value.wrapping_add(*raised)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_is_that_of_plain_arithmetic() {
        let mut plain: Vec<u64> = (0..150).map(|at| 1_000 + at * 37 % 101).collect();
        let mut profile = Profile::new(plain.clone());
        for round in 0..500_usize {
            let (from, to) = (round * 29 % 150, round * 71 % 151);
            let (old, new) = (round as u64 % 13, round as u64 * 7 % 17);
            for value in &mut plain[from.min(to)..to.max(from)] {
                *value = *value - old + new;
            }
            profile.exchange(from.min(to)..to.max(from), old, new).unwrap();
            plain[from] = 900 + round as u64;
            profile.set(from, 900 + round as u64);
            assert_eq!(profile.most(), plain.iter().copied().max().unwrap());
        }
        assert_eq!(profile.exchange(0..150, 0, u64::MAX - 10), None);
        assert_eq!(Profile::new(Vec::new()).most(), 0);
    }
}
