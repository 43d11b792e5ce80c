#![forbid(unsafe_code)]
//! Two-level segregated fit: which range of numbers is free, found and merged in constant time.
//!
//! ```text
//!   extent   │ live ▓▓▓ │ free │ live ▓ │ held ░ │ free ··········│    nodes, linked in order of address
//!   lane     class of size ─► list of free nodes                        one lane for each stream
//! ```
//!
//! A free node is in the list of its class: a power of two, split in sixteen. Two words of bits say which
//! lists have a node, so that the smallest sufficient class is found without a walk. The node that was freed
//! last is *held* first: a request for the same size takes it as it is, any other merges it.
//!
//! Deliberately absent: memory. Ranges are numbers; [`pool`](crate::pool) and spaces give them a meaning.
//!
//! # Invariants
//! * **F1** The nodes of an extent cover it without gap or overlap, in order of address.
//! * **F2** A node is in exactly one list if it is free, else in none; a list's bit is set if it has a node.
//! * **F3** No two neighbours are free in the same lane; sizes and starts are multiples of the granule.

use crate::align::checked_align_up;

/// No node.
pub(crate) const NONE: u32 = u32::MAX;
/// The lane of ranges that anybody may use at once.
pub(crate) const READY: u16 = 0;

const SPLIT_LOG2: u32 = 4;
const SPLIT: usize = 1 << SPLIT_LOG2;
const CLASSES: usize = 60;
/// How many nodes of the class just below are looked at before giving up.
const PROBES: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Live,
    /// Live, and a key stands for it.
    Keyed,
    Free,
    /// Free, not yet merged.
    Held,
    /// Not a range at all.
    Spare,
}

/// One range. A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Node {
    pub(crate) start: usize,
    pub(crate) size: usize,
    /// Of a live node: what was asked for. Of a free one: the mark of its lane from which on it is ready.
    pub(crate) mark: u64,
    /// The neighbours in order of address.
    before: u32,
    after: u32,
    /// The neighbours in the list.
    prev: u32,
    next: u32,
    /// How often the node was given: a key of an earlier use is told from the present one.
    pub(crate) generation: u32,
    pub(crate) extent: u32,
    /// Of a live node: whose it is.
    pub(crate) owner: u16,
    pub(crate) lane: u16,
    pub(crate) state: State,
}

/// The free lists of one lane.
#[derive(Debug)]
struct Lane {
    classes: u64,
    splits: [u16; CLASSES],
    heads: [[u32; SPLIT]; CLASSES],
}

impl Lane {
    fn new() -> Self {
        Self { classes: 0, splits: [0; CLASSES], heads: [[NONE; SPLIT]; CLASSES] }
    }
}

/// Free and live ranges of any number of extents.
#[derive(Debug)]
pub(crate) struct Tlsf {
    nodes: Vec<Node>,
    lanes: Vec<Lane>,
    spare: u32,
    held: u32,
    granule_log2: u32,
}

/// The class of a number of granules: the power of two, and the part of it.
#[inline(always)]
const fn class(units: usize) -> (usize, usize) {
    if units < SPLIT {
        return (0, units);
    }
    let log2 = usize::BITS - 1 - units.leading_zeros();
    let class = (log2 - SPLIT_LOG2 + 1) as usize;
    (class, (units >> (log2 - SPLIT_LOG2)) & (SPLIT - 1))
}

/// The smallest class of which every node has so many granules.
#[inline(always)]
const fn class_above(units: usize) -> (usize, usize) {
    if units < SPLIT {
        return (0, units);
    }
    let log2 = usize::BITS - 1 - units.leading_zeros();
    class(units + (1 << (log2 - SPLIT_LOG2)) - 1)
}

impl Tlsf {
    /// No extents yet; every size is a multiple of the granule, a power of two.
    pub(crate) fn new(granule: usize) -> Self {
        debug_assert!(granule.is_power_of_two() && granule >= 16);
        let granule_log2 = granule.trailing_zeros();
        Self { nodes: Vec::new(), lanes: vec![Lane::new()], spare: NONE, held: NONE, granule_log2 }
    }

    pub(crate) fn granule(&self) -> usize {
        1 << self.granule_log2
    }

    /// One more lane.
    pub(crate) fn add_lane(&mut self) -> Option<u16> {
        let lane = u16::try_from(self.lanes.len()).ok()?;
        self.lanes.push(Lane::new());
        Some(lane)
    }

    #[inline(always)]
    pub(crate) fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    #[inline(always)]
    pub(crate) fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    /// The node, if there is one with this number and generation, and a key stands for it.
    pub(crate) fn keyed(&self, at: u32, generation: u32) -> Option<&Node> {
        let node = self.nodes.get(at as usize)?;
        (node.state == State::Keyed && node.generation == generation).then_some(node)
    }

    /// A new extent, free for anybody. Start and size are multiples of the granule; `None` where there are
    /// as many nodes as can be numbered.
    pub(crate) fn add_extent(&mut self, start: usize, size: usize, extent: u32) -> Option<()> {
        let at = self.fresh_node(start, size, extent)?;
        self.link(at, READY, 0);
        Some(())
    }

    /// An extent of which nothing is live, and to whose number and size `wanted` says yes: its number. Its node is
    /// gone afterwards. `from` is 0 at first, and says where to go on.
    pub(crate) fn remove_whole_extent(
        &mut self,
        from: &mut u32,
        wanted: impl Fn(u32, usize) -> bool,
    ) -> Option<u32> {
        self.settle();
        while (*from as usize) < self.nodes.len() {
            let at = *from;
            *from += 1;
            let node = *self.node(at);
            let is_whole = node.state == State::Free && node.before == NONE && node.after == NONE;
            if is_whole && node.lane == READY && wanted(node.extent, node.size) {
                self.unlink(at);
                self.discard(at);
                return Some(node.extent);
            }
        }
        None
    }

    /// Makes a node ready for anybody where its mark was reached, and merges it; says how many bytes.
    pub(crate) fn drain(&mut self, reached: impl Fn(u16) -> u64) -> usize {
        self.settle();
        if self.lanes.len() == 1 {
            return 0;
        }
        let mut drained = 0;
        for at in 0..u32::try_from(self.nodes.len()).unwrap_or(NONE) {
            let node = *self.node(at);
            if node.state == State::Free && node.lane != READY && node.mark <= reached(node.lane) {
                drained += node.size;
                self.unlink(at);
                self.merge(at, READY, 0);
            }
        }
        drained
    }

    /// The size of the largest free node of a lane: exact, by a walk of one list.
    pub(crate) fn largest_free(&self, lane: u16) -> usize {
        let held = if self.held == NONE { 0 } else { self.node(self.held).size };
        let lists = &self.lanes[usize::from(lane)];
        if lists.classes == 0 {
            return held;
        }
        let class = (u64::BITS - 1 - lists.classes.leading_zeros()) as usize;
        let split = (u16::BITS - 1 - lists.splits[class].leading_zeros()) as usize;
        let mut at = lists.heads[class][split];
        let mut largest = held;
        while at != NONE {
            largest = largest.max(self.node(at).size);
            at = self.node(at).next;
        }
        largest
    }

    /// Takes a range of `size`, a multiple of the granule and not 0, at `align`, from a lane.
    #[inline]
    pub(crate) fn take(&mut self, lane: u16, size: usize, align: usize) -> Option<u32> {
        if self.held != NONE {
            let held = self.held;
            let node = &mut self.nodes[held as usize];
            if node.size == size && node.lane == lane && node.start & (align - 1) == 0 {
                node.state = State::Live;
                self.held = NONE;
                return Some(held);
            }
            self.settle();
        }
        let at = self.find(lane, size, align)?;
        self.unlink(at);
        self.carve(at, size, align)
    }

    /// Gives a live range back to a lane, ready from `mark` on.
    #[inline]
    pub(crate) fn give(&mut self, at: u32, lane: u16, mark: u64) {
        self.settle();
        let node = &mut self.nodes[at as usize];
        node.state = State::Held;
        node.lane = lane;
        node.mark = mark;
        node.generation = node.generation.wrapping_add(1);
        self.held = at;
    }

    /// Merges the node that is held.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.held != NONE {
            let at = core::mem::replace(&mut self.held, NONE);
            let node = self.node(at);
            let (lane, mark) = (node.lane, node.mark);
            self.merge(at, lane, mark);
        }
    }

    /// A free node of a lane in which so much fits.
    #[inline]
    fn find(&self, lane: u16, size: usize, align: usize) -> Option<u32> {
        let lists = &self.lanes[usize::from(lane)];
        let units = size >> self.granule_log2;
        // The class just below has nodes that suffice and fit better, if one is at its head.
        let (class_below, split_below) = class(units);
        let head = lists.heads[class_below][split_below];
        if head != NONE && self.fits(head, size, align) {
            return Some(head);
        }
        let slack = align.saturating_sub(self.granule());
        let (mut class, split) = class_above(size.checked_add(slack)? >> self.granule_log2);
        if class < CLASSES {
            let mut splits = lists.splits[class] & (u16::MAX << split);
            if splits == 0 {
                let classes = lists.classes & (u64::MAX << class << 1);
                class = classes.trailing_zeros() as usize;
                splits = if classes == 0 { 0 } else { lists.splits[class] };
            }
            if splits != 0 {
                return Some(lists.heads[class][splits.trailing_zeros() as usize]);
            }
        }
        self.probe(lists, units, size, align)
    }

    /// Looks at some nodes of the classes from the one just below on.
    #[cold]
    fn probe(&self, lists: &Lane, units: usize, size: usize, align: usize) -> Option<u32> {
        let mut left = PROBES;
        let (first_class, first_split) = class(units);
        for class in first_class..CLASSES {
            let mask = if class == first_class { u16::MAX << first_split } else { u16::MAX };
            let mut splits = lists.splits[class] & mask;
            while splits != 0 {
                let mut at = lists.heads[class][splits.trailing_zeros() as usize];
                splits &= splits - 1;
                while at != NONE {
                    if self.fits(at, size, align) {
                        return Some(at);
                    }
                    left -= 1;
                    if left == 0 {
                        return None;
                    }
                    at = self.node(at).next;
                }
            }
        }
        None
    }

    #[inline(always)]
    fn fits(&self, at: u32, size: usize, align: usize) -> bool {
        let node = self.node(at);
        let Some(start) = checked_align_up(node.start, align) else { return false };
        let lead = start - node.start;
        lead <= node.size && size <= node.size - lead
    }

    /// Cuts a range out of an unlinked node; what is left before and after it is free in the same lane.
    #[inline]
    fn carve(&mut self, mut at: u32, size: usize, align: usize) -> Option<u32> {
        let node = *self.node(at);
        let lead = checked_align_up(node.start, align)? - node.start;
        if lead > 0 {
            let Some(second) = self.split(at, lead) else {
                self.link(at, node.lane, node.mark);
                return None;
            };
            self.link(at, node.lane, node.mark);
            at = second;
        }
        if self.node(at).size > size {
            let Some(rest) = self.split(at, size) else {
                self.merge(at, node.lane, node.mark);
                return None;
            };
            self.link(rest, node.lane, node.mark);
        }
        self.node_mut(at).mark = node.mark;
        self.node_mut(at).lane = node.lane;
        self.node_mut(at).state = State::Live;
        Some(at)
    }

    /// Cuts a node in two; gives the second.
    #[inline]
    fn split(&mut self, at: u32, size: usize) -> Option<u32> {
        let node = *self.node(at);
        let second = self.fresh_node(node.start + size, node.size - size, node.extent)?;
        self.node_mut(second).before = at;
        self.node_mut(second).after = node.after;
        if node.after != NONE {
            self.node_mut(node.after).before = second;
        }
        self.node_mut(at).after = second;
        self.node_mut(at).size = size;
        Some(second)
    }

    /// Joins an unlinked node with the free neighbours of its lane, and puts it in its list.
    #[inline]
    fn merge(&mut self, mut at: u32, lane: u16, mut mark: u64) {
        let Node { before, after, .. } = *self.node(at);
        if after != NONE && self.is_free_in(after, lane) {
            mark = mark.max(self.node(after).mark);
            self.unlink(after);
            self.absorb(at, after);
        }
        if before != NONE && self.is_free_in(before, lane) {
            mark = mark.max(self.node(before).mark);
            self.unlink(before);
            self.absorb(before, at);
            at = before;
        }
        self.link(at, lane, mark);
    }

    #[inline(always)]
    fn is_free_in(&self, at: u32, lane: u16) -> bool {
        let node = self.node(at);
        node.state == State::Free && node.lane == lane
    }

    /// Adds `second`, the neighbour after, to `first`.
    #[inline(always)]
    fn absorb(&mut self, first: u32, second: u32) {
        let Node { size, after, .. } = *self.node(second);
        self.node_mut(first).size += size;
        self.node_mut(first).after = after;
        if after != NONE {
            self.node_mut(after).before = first;
        }
        self.discard(second);
    }

    #[inline(always)]
    fn link(&mut self, at: u32, lane: u16, mark: u64) {
        let (class, split) = class(self.node(at).size >> self.granule_log2);
        let lists = &mut self.lanes[usize::from(lane)];
        let head = core::mem::replace(&mut lists.heads[class][split], at);
        lists.classes |= 1 << class;
        lists.splits[class] |= 1 << split;
        if head != NONE {
            self.nodes[head as usize].prev = at;
        }
        let node = &mut self.nodes[at as usize];
        node.prev = NONE;
        node.next = head;
        node.lane = lane;
        node.mark = mark;
        node.state = State::Free;
    }

    #[inline(always)]
    fn unlink(&mut self, at: u32) {
        let Node { prev, next, size, lane, .. } = *self.node(at);
        if next != NONE {
            self.node_mut(next).prev = prev;
        }
        if prev != NONE {
            self.node_mut(prev).next = next;
            return;
        }
        let (class, split) = class(size >> self.granule_log2);
        let lists = &mut self.lanes[usize::from(lane)];
        lists.heads[class][split] = next;
        if next == NONE {
            lists.splits[class] &= !(1 << split);
            if lists.splits[class] == 0 {
                lists.classes &= !(1 << class);
            }
        }
    }

    #[inline(always)]
    fn discard(&mut self, at: u32) {
        let spare = self.spare;
        let node = self.node_mut(at);
        node.state = State::Spare;
        node.next = spare;
        self.spare = at;
    }

    /// A node in no list; its generation goes on from its last use.
    #[inline(always)]
    fn fresh_node(&mut self, start: usize, size: usize, extent: u32) -> Option<u32> {
        if self.spare == NONE {
            return self.push_node(start, size, extent);
        }
        let at = self.spare;
        let node = self.node_mut(at);
        let spare = node.next;
        node.start = start;
        node.size = size;
        node.extent = extent;
        node.before = NONE;
        node.after = NONE;
        self.spare = spare;
        Some(at)
    }

    #[cold]
    fn push_node(&mut self, start: usize, size: usize, extent: u32) -> Option<u32> {
        let at = u32::try_from(self.nodes.len()).ok().filter(|&at| at != NONE)?;
        self.nodes.push(Node {
            start,
            size,
            mark: 0,
            before: NONE,
            after: NONE,
            prev: NONE,
            next: NONE,
            generation: 0,
            extent,
            owner: 0,
            lane: READY,
            state: State::Spare,
        });
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Tlsf {
        /// Fails where F1 to F3 do not hold.
        fn check(&self) {
            let mut in_lists = vec![false; self.nodes.len()];
            for (lane, lists) in self.lanes.iter().enumerate() {
                for fl in 0..CLASSES {
                    assert_eq!(lists.classes >> fl & 1 == 1, lists.splits[fl] != 0);
                    for sl in 0..SPLIT {
                        let mut at = lists.heads[fl][sl];
                        assert_eq!(lists.splits[fl] >> sl & 1 == 1, at != NONE);
                        let mut prev = NONE;
                        while at != NONE {
                            let node = self.node(at);
                            assert_eq!((node.state, usize::from(node.lane)), (State::Free, lane));
                            assert_eq!((node.prev, class(node.size >> self.granule_log2)), (prev, (fl, sl)));
                            assert!(!core::mem::replace(&mut in_lists[at as usize], true));
                            (prev, at) = (at, node.next);
                        }
                    }
                }
            }
            for (at, node) in self.nodes.iter().enumerate() {
                assert_eq!(in_lists[at], node.state == State::Free);
                if node.state == State::Spare || node.after == NONE {
                    continue;
                }
                let after = self.node(node.after);
                assert_eq!((after.before, after.start), (u32::try_from(at).unwrap(), node.start + node.size));
                let both_free = node.state == State::Free && after.state == State::Free;
                assert!(!both_free || node.lane != after.lane, "neighbours are merged");
            }
        }
    }

    #[test]
    fn classes_grow_with_sizes_and_round_up_as_said() {
        let mut last = (0, 0);
        for units in 1..5000 {
            let (floor, above) = (class(units), class_above(units));
            assert!(floor >= last && above >= floor);
            assert!(class_above(units) == floor || class(units + 1) <= above);
            last = floor;
        }
        assert!(class(usize::MAX >> 4).0 < CLASSES);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Take { size: usize, align_log2: u32, lane: u16 },
        Give { which: usize, lane: u16 },
        Drain,
        Trim,
    }

    fn trim(tlsf: &mut Tlsf, wanted: impl Fn(u32) -> bool) {
        let mut from = 0;
        while let Some(extent) = tlsf.remove_whole_extent(&mut from, |extent, size| {
            assert_eq!(size, 16_384);
            wanted(extent)
        }) {
            assert!(wanted(extent));
        }
    }

    fn step() -> impl Strategy<Value = Step> {
        let size = prop_oneof![4 => 1usize..20, 2 => 20usize..400];
        prop_oneof![
            5 => (size, 4u32..10, 0u16..3).prop_map(|(units, align_log2, lane)| Step::Take {
                size: units * 16,
                align_log2,
                lane
            }),
            4 => (any::<usize>(), 0u16..3).prop_map(|(which, lane)| Step::Give { which, lane }),
            1 => Just(Step::Drain),
            1 => Just(Step::Trim),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

        #[test]
        fn ranges_are_disjoint_and_merge_again(steps in prop::collection::vec(step(), 1..150)) {
            let mut tlsf = Tlsf::new(16);
            assert_eq!((tlsf.add_lane(), tlsf.add_lane()), (Some(1), Some(2)));
            let mut extents = 0;
            let mut live: Vec<u32> = Vec::new();
            for step in steps {
                match step {
                    Step::Take { size, align_log2, lane } => {
                        let align = 1 << align_log2;
                        let mut taken = tlsf.take(lane, size, align);
                        if taken.is_none() && lane == READY {
                            extents += 1;
                            tlsf.add_extent(extents as usize * 0x10_0000, 16_384, extents).unwrap();
                            taken = Some(tlsf.take(lane, size, align).expect("a new extent has room"));
                        }
                        let Some(at) = taken else { continue };
                        let node = *tlsf.node(at);
                        assert_eq!((node.size, node.start % align, node.lane), (size, 0, lane));
                        for &other in &live {
                            let other = tlsf.node(other);
                            assert!(node.start + size <= other.start
                                || other.start + other.size <= node.start);
                        }
                        live.push(at);
                    }
                    Step::Give { which, lane } if !live.is_empty() => {
                        let at = live.swap_remove(which % live.len());
                        tlsf.give(at, lane, which as u64 % 8);
                    }
                    Step::Give { .. } => {}
                    Step::Drain => { tlsf.drain(|_| 4); }
                    Step::Trim => trim(&mut tlsf, |extent| extent % 2 == 0),
                }
                tlsf.check();
            }
            for at in live {
                tlsf.give(at, READY, 0);
            }
            tlsf.drain(|_| u64::MAX);
            trim(&mut tlsf, |_| true);
            tlsf.check();
            assert!(tlsf.nodes.iter().all(|node| node.state == State::Spare));
        }
    }
}
