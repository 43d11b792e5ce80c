#![forbid(unsafe_code)]
//! Depth-first search for a plan of at most a given height.
//!
//! Plans are built from the bottom: each step places one more item as low as the placed ones allow, in an
//! order that never goes down, so that every pushed-down plan is met once. What prunes:
//!
//! - *dominance*: no item goes where another would fit wholly below it;
//! - *sections*: the bytes still to come in a section must fit above its lowest remaining start;
//! - *hatless*: where nothing can lie above an item, only its lowest place is tried;
//! - *classes*: of items with the same sections stacked directly, or of equal ones, one order is tried;
//! - *parts*: where no remaining item crosses a boundary, the two sides are solved on their own.
//!
//! The stack is explicit and the state is kept between calls, so that searches in different orders can take
//! turns. Nothing here reads a clock.
//!
//! # Source
//! Moffitt, "`MiniMalloc`: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning",
//! ASPLOS 2023, volume 4.

use super::Outcome;
use super::net::{Net, Units};
use super::rank::Rank;

/// How many candidates of a node are picked one by one before the rest is sorted.
const SELECTED: usize = 3;

#[derive(Clone, Copy)]
struct Node<T> {
    /// The part's items in rank order: a range of `items`, placed ones among them.
    items: (usize, usize),
    /// The candidate tried first: its start and its place in `items`.
    first: (T, u32),
    /// No candidate starts as high as this.
    top: T,
    /// The other candidates, from the second try on: where they begin in `candidates`, and the next.
    rest: Option<(usize, usize)>,
    tried: bool,
    /// The part's sections.
    sections: (u32, u32),
    /// Length of the placement stack when the node was entered.
    placed: usize,
    /// The item being tried had nothing that could lie above it.
    hatless: bool,
    unplaced: usize,
    /// No section of the part has a larger total.
    most: T,
    /// Length of `items` when the node was entered.
    items_end: usize,
}

#[derive(Clone, Copy)]
struct Split {
    /// Parts not entered yet: a range of `parts`.
    parts: (usize, usize),
    /// Length of `items` before the parts' lists.
    items_end: usize,
}

#[derive(Clone, Copy)]
enum Frame<T> {
    Node(Node<T>),
    Split(Split),
}

/// A part that waits: its items in rank order, and its sections.
#[derive(Clone, Copy)]
struct Part {
    items: (usize, usize),
    sections: (u32, u32),
}

#[derive(Clone, Copy)]
struct Entry<T> {
    items: (usize, usize),
    sections: (u32, u32),
    offset: T,
    position: usize,
    unplaced: usize,
    most: T,
}

enum Step<T> {
    Enter(Entry<T>),
    Try,
    NextPart,
    Solved,
    Failed,
}

/// What placing one item led to.
struct Fate {
    fits: bool,
    hatless: bool,
    splits: bool,
}

/// A search that can be continued.
pub(crate) struct Search<'n, T> {
    net: &'n Net<T>,
    height: T,
    rank: Rank,
    /// Lowest start of each unplaced item, `BIG` once placed.
    lowest: Vec<T>,
    /// The highest start allowed.
    limit: Vec<T>,
    offset: Vec<T>,
    /// Bytes of unplaced items by section, less the top's padding.
    total: Vec<T>,
    /// Unplaced items that cross from a section to the next.
    cuts: Vec<u32>,
    /// By section, an unplaced item known to start low enough.
    witness: Vec<u32>,
    /// Each item's place in the rank order as far as it never changes: that of items of one class.
    standing: Vec<u32>,
    raised: Vec<(u32, T)>,
    placed: Vec<(u32, usize)>,
    items: Vec<u32>,
    candidates: Vec<(T, u32)>,
    parts: Vec<Part>,
    frames: Vec<Frame<T>>,
    keyed: Vec<([u128; 3], u32)>,
    next: Option<Step<T>>,
    pub nodes: u64,
    pub failures: u64,
    /// Items and sections looked at.
    pub work: u64,
    /// The work granted.
    work_end: u64,
}

impl<'n, T: Units> Search<'n, T> {
    pub(crate) fn new(net: &'n Net<T>, height: T, rank: Rank) -> Self {
        let count = net.len();
        let limit =
            |item: usize| if net.pin[item] == T::BIG { height - net.size[item] } else { net.pin[item] };
        let mut search = Self {
            net,
            height,
            rank,
            lowest: net.pin.iter().map(|&pin| if pin == T::BIG { T::ZERO } else { pin }).collect(),
            limit: (0..count).map(limit).collect(),
            offset: vec![T::ZERO; count],
            total: net.pad.iter().map(|&pad| T::ZERO - pad).collect(),
            cuts: vec![0; net.sections],
            witness: (0..net.sections).map(|section| net.members.get(section)[0]).collect(),
            standing: vec![0; count],
            raised: Vec::new(),
            placed: Vec::with_capacity(count),
            items: Vec::new(),
            candidates: Vec::new(),
            parts: Vec::new(),
            frames: Vec::new(),
            keyed: Vec::new(),
            next: None,
            nodes: 0,
            failures: 0,
            work: 0,
            work_end: 0,
        };
        let all = 0..u32::try_from(count).unwrap_or(u32::MAX);
        search.rank_items(all.clone());
        for (standing, item) in search.items.drain(..).zip(0..).map(|(item, at)| (at, item)) {
            search.standing[item as usize] = standing;
        }
        for item in 0..count {
            for &(from, to) in net.spans_of(item) {
                search.total[from as usize..to as usize].iter_mut().for_each(|t| *t += net.weight[item]);
            }
            let (from, to) = net.hull[item];
            search.cuts[from as usize..to as usize - 1].iter_mut().for_each(|cut| *cut += 1);
        }
        let items = search.rank_items(all);
        let sections = (0, u32::try_from(net.sections).unwrap_or(u32::MAX));
        let fits = (0..count)
            .all(|item| search.lowest[item] <= search.limit[item] && net.size[item] <= height)
            && search.total.iter().all(|&total| total <= height)
            && (0..net.sections).all(|section| search.has_low_start(section));
        search.next = Some(match (count, fits) {
            (0, _) => Step::Solved,
            (_, false) => Step::Failed,
            _ => Step::Enter(Entry {
                items,
                sections,
                offset: T::ZERO,
                position: 0,
                unplaced: count,
                most: T::BIG,
            }),
        });
        search
    }

    /// The plan found, in units; valid after `Solved`.
    pub(crate) fn offsets(&self) -> &[T] {
        &self.offset
    }

    /// The bytes of what grows with the depth.
    pub(crate) fn memory_bytes(&self) -> usize {
        let candidates = self.candidates.capacity() * size_of::<(T, u32)>();
        let lists = self.items.capacity() * size_of::<u32>() + self.raised.capacity() * size_of::<(u32, T)>();
        candidates + lists
    }

    /// Goes on for about this many nodes, or this much work.
    pub(crate) fn run(&mut self, nodes: u64, work: u64) -> Outcome {
        let end = self.nodes.saturating_add(nodes);
        self.work_end = self.work.saturating_add(work);
        loop {
            let Some(step) = self.next.take() else { return Outcome::Exhausted };
            let pauses = match step {
                Step::Enter(_) => self.nodes >= end || self.work >= self.work_end,
                Step::Try => self.work >= self.work_end,
                _ => false,
            };
            if pauses {
                self.next = Some(step);
                return Outcome::Paused;
            }
            let next = match step {
                Step::Enter(entry) => self.enter(entry),
                Step::Try => self.try_next(),
                Step::NextPart => self.next_part(),
                Step::Solved => {
                    if self.solved() {
                        self.next = Some(Step::Solved);
                        return Outcome::Solved;
                    }
                    Step::NextPart
                }
                Step::Failed => {
                    if self.failed() {
                        return Outcome::Exhausted;
                    }
                    Step::Try
                }
            };
            self.next = Some(next);
        }
    }

    /// Leaves the nodes of a solved part; true if that was the whole.
    fn solved(&mut self) -> bool {
        while let Some(&Frame::Node(node)) = self.frames.last() {
            self.pop_node(node);
        }
        self.frames.is_empty()
    }

    /// Goes back to the last node with a choice left; true if there is none.
    fn failed(&mut self) -> bool {
        self.failures += 1;
        while let Some(frame) = self.frames.last() {
            match *frame {
                Frame::Split(split) => {
                    self.parts.truncate(split.parts.1);
                    self.items.truncate(split.items_end);
                    self.frames.pop();
                }
                Frame::Node(node) => {
                    self.undo_to(node.placed);
                    if !node.hatless {
                        return false;
                    }
                    self.pop_node(node);
                    self.failures += 1;
                }
            }
        }
        true
    }

    fn pop_node(&mut self, node: Node<T>) {
        if let Some((from, _)) = node.rest {
            self.candidates.truncate(from);
        }
        self.items.truncate(node.items_end);
        self.frames.pop();
    }

    /// Lists a node's candidates: what may be placed next.
    fn enter(&mut self, entry: Entry<T>) -> Step<T> {
        self.nodes += 1;
        let Entry { items, sections, offset, position, unplaced, most } = entry;
        if unplaced == 0 {
            return Step::Solved;
        }
        let items_end = self.items.len();
        self.work += (items.1 - items.0) as u64;
        let (items, position) = self.compact(items, position, unplaced);
        let (mut top, mut first) = (T::BIG, (T::BIG, 0));
        for (at, &item) in self.items[items.0..items.1].iter().enumerate() {
            let start = self.lowest[item as usize];
            if start == T::BIG {
                continue;
            }
            top = top.min(start + self.net.size[item as usize]);
            if start < first.0 && (start > offset || (start == offset && at >= position)) {
                first = (start, u32::try_from(at).unwrap_or(u32::MAX));
            }
        }
        if first.0 >= top {
            self.items.truncate(items_end);
            return Step::Failed;
        }
        // Where most nodes fail, most try several candidates.
        let eager = self.failures * 4 > self.nodes;
        let rest = eager.then(|| self.gather(items, first, top));
        self.frames.push(Frame::Node(Node {
            items,
            first,
            top,
            rest,
            tried: false,
            sections,
            placed: self.placed.len(),
            hatless: false,
            unplaced,
            most,
            items_end,
        }));
        Step::Try
    }

    /// Copies a list without its placed items once those are many.
    fn compact(
        &mut self,
        items: (usize, usize),
        position: usize,
        unplaced: usize,
    ) -> ((usize, usize), usize) {
        let count = items.1 - items.0;
        if unplaced * 4 > count * 3 {
            return (items, position);
        }
        let start = self.items.len();
        let mut moved = 0;
        for at in 0..count {
            if at == position {
                moved = self.items.len() - start;
            }
            let item = self.items[items.0 + at];
            if self.lowest[item as usize] != T::BIG {
                self.items.push(item);
            }
        }
        if position >= count {
            moved = self.items.len() - start;
        }
        ((start, self.items.len()), moved)
    }

    /// Whether placing the item there repeats a plan with two items of its class the other way round.
    fn is_swapped(&self, item: u32, start: T) -> bool {
        let net = self.net;
        let class = net.classes.get(net.class[item as usize] as usize);
        if class.len() < 2 || !net.plain || net.pin[item as usize] != T::BIG {
            return false;
        }
        class.iter().any(|&other| {
            let at = other as usize;
            if other == item || net.pin[at] != T::BIG {
                return false;
            }
            let ranks_later = self.standing[at] > self.standing[item as usize];
            if self.lowest[at] == T::BIG {
                ranks_later && self.offset[at] + net.size[at] == start
            } else {
                !ranks_later && net.size[at] == net.size[item as usize]
            }
        })
    }

    fn try_next(&mut self) -> Step<T> {
        let depth = self.frames.len() - 1;
        let Frame::Node(mut node) = self.frames[depth] else { return Step::Failed };
        loop {
            let mut most = node.most;
            let Some((start, position)) = self.next_candidate(&mut node) else {
                self.pop_node(node);
                return Step::Failed;
            };
            let item = self.items[node.items.0 + position as usize];
            if self.is_swapped(item, start) {
                if self.work >= self.work_end {
                    self.frames[depth] = Frame::Node(node);
                    return Step::Try;
                }
                continue;
            }
            let fate = self.place(item as usize, start, &mut most, node.sections);
            node.hatless = fate.hatless;
            if fate.fits {
                self.frames[depth] = Frame::Node(node);
                if fate.splits {
                    return self.split(node, item as usize);
                }
                return Step::Enter(Entry {
                    items: node.items,
                    sections: node.sections,
                    offset: start,
                    position: position as usize,
                    unplaced: node.unplaced - 1,
                    most,
                });
            }
            self.undo_to(node.placed);
            if fate.hatless {
                self.pop_node(node);
                return Step::Failed;
            }
            if self.work >= self.work_end {
                self.frames[depth] = Frame::Node(node);
                return Step::Try;
            }
        }
    }

    /// The candidates in order: the lowest start first, then by rank. Most nodes try one or two, so the
    /// others are gathered at the second try and sorted late.
    fn next_candidate(&mut self, node: &mut Node<T>) -> Option<(T, u32)> {
        if !node.tried {
            node.tried = true;
            return Some(node.first);
        }
        let (from, next) = node.rest.unwrap_or_else(|| self.gather(node.items, node.first, node.top));
        node.rest = Some((from, next + 1));
        let rest = &mut self.candidates[next..];
        if next - from == SELECTED {
            rest.sort_unstable();
        } else if next - from < SELECTED {
            let least = rest.iter().enumerate().min_by_key(|(_, candidate)| **candidate);
            let at = least.map_or(0, |(at, _)| at);
            if at > 0 {
                rest.swap(0, at);
            }
        }
        self.candidates.get(next).copied()
    }

    /// Adds the candidates after the first.
    fn gather(&mut self, items: (usize, usize), first: (T, u32), top: T) -> (usize, usize) {
        let from = self.candidates.len();
        self.work += (items.1 - items.0) as u64;
        for (at, &item) in self.items[items.0..items.1].iter().enumerate() {
            let candidate = (self.lowest[item as usize], u32::try_from(at).unwrap_or(u32::MAX));
            if candidate.0 < top && candidate > first {
                self.candidates.push(candidate);
            }
        }
        (from, from)
    }

    fn place(&mut self, item: usize, start: T, most: &mut T, sections: (u32, u32)) -> Fate {
        let net = self.net;
        self.placed.push((u32::try_from(item).unwrap_or(u32::MAX), self.raised.len()));
        self.offset[item] = start;
        self.lowest[item] = T::BIG;
        for &(from, to) in net.spans_of(item) {
            self.total[from as usize..to as usize].iter_mut().for_each(|t| *t -= net.weight[item]);
        }
        let (mut from, mut to) = net.hull[item];
        let mut splits = false;
        for cut in &mut self.cuts[from as usize..to as usize - 1] {
            *cut -= 1;
            splits |= *cut == 0;
        }
        let end = start + net.size[item];
        let (mut hatless, mut fits) = (true, true);
        for &other in net.near.get(item) {
            let other_at = other as usize;
            let before = self.lowest[other_at];
            if before >= end {
                hatless &= before == T::BIG;
                continue;
            }
            hatless = false;
            let raised = end.round_up(net.align[other_at]);
            self.raised.push((other, before));
            self.lowest[other_at] = raised;
            if raised > self.limit[other_at] {
                fits = false;
                break;
            }
            let hull = net.hull[other_at];
            from = from.min(hull.0);
            to = to.max(hull.1);
        }
        self.work += net.near.get(item).len() as u64 + u64::from(to - from);
        let room = self.height - start;
        fits = fits && (from..to).all(|section| self.has_low_start(section as usize));
        if fits && *most > room {
            let totals = &self.total[sections.0 as usize..sections.1 as usize];
            *most = totals.iter().fold(T::ZERO, |most, &total| if total > most { total } else { most });
            fits = *most <= room;
        }
        Fate { fits, hatless, splits }
    }

    /// Whether some unplaced item of the section starts low enough for all of them to fit.
    #[inline]
    fn has_low_start(&mut self, section: usize) -> bool {
        let total = self.total[section];
        if total <= T::ZERO {
            return true;
        }
        let room = self.height - total;
        if self.lowest[self.witness[section] as usize] <= room {
            return true;
        }
        let members = self.net.members.get(section);
        let low = members.iter().position(|&item| self.lowest[item as usize] <= room);
        self.work += low.unwrap_or(members.len()) as u64;
        low.is_some_and(|at| {
            self.witness[section] = members[at];
            true
        })
    }

    fn undo_to(&mut self, placed: usize) {
        let net = self.net;
        while self.placed.len() > placed {
            let Some((item, raised)) = self.placed.pop() else { return };
            let item = item as usize;
            while self.raised.len() > raised {
                let Some((other, before)) = self.raised.pop() else { break };
                self.lowest[other as usize] = before;
            }
            self.lowest[item] = self.offset[item];
            for &(from, to) in net.spans_of(item) {
                self.total[from as usize..to as usize].iter_mut().for_each(|t| *t += net.weight[item]);
            }
            let (from, to) = net.hull[item];
            self.cuts[from as usize..to as usize - 1].iter_mut().for_each(|cut| *cut += 1);
        }
    }

    /// Cuts the node's part where nothing unplaced crosses any more.
    fn split(&mut self, node: Node<T>, item: usize) -> Step<T> {
        let (from, to) = self.net.hull[item];
        let first = self.parts.len();
        let zeros = (from..to - 1).filter(|&s| self.cuts[s as usize] == 0).map(|s| s + 1);
        let ends: Vec<u32> = zeros.chain([node.sections.1]).collect();
        let split_items_end = self.items.len();
        let mut within: Vec<Vec<u32>> = vec![Vec::new(); ends.len()];
        for &other in &self.items[node.items.0..node.items.1] {
            if self.lowest[other as usize] != T::BIG {
                let from = self.net.hull[other as usize].0;
                within[ends.partition_point(|&end| end <= from)].push(other);
            }
        }
        self.work += (node.items.1 - node.items.0) as u64;
        let starts = core::iter::once(node.sections.0).chain(ends.iter().copied());
        for (sections, within) in
            starts.zip(ends.iter().copied()).zip(within).filter(|part| !part.1.is_empty())
        {
            let items = self.rank_items(within.into_iter());
            self.parts.push(Part { items, sections });
        }
        // The smallest part first: if it fails, the others need not be tried. Taken from the end.
        self.parts[first..].sort_by_key(|part| core::cmp::Reverse(part.items.1 - part.items.0));
        self.frames
            .push(Frame::Split(Split { parts: (self.parts.len(), first), items_end: split_items_end }));
        Step::NextPart
    }

    fn next_part(&mut self) -> Step<T> {
        let depth = self.frames.len() - 1;
        let Frame::Split(split) = &mut self.frames[depth] else { return Step::Failed };
        if split.parts.0 == split.parts.1 {
            self.parts.truncate(split.parts.1);
            self.frames.pop();
            return Step::Solved;
        }
        split.parts.0 -= 1;
        let Part { items, sections } = self.parts[split.parts.0];
        let unplaced = items.1 - items.0;
        Step::Enter(Entry { items, sections, offset: T::ZERO, position: 0, unplaced, most: T::BIG })
    }

    /// Adds items in the order of the search's rank.
    fn rank_items(&mut self, items: impl Iterator<Item = u32>) -> (usize, usize) {
        let net = self.net;
        let mut keyed = std::mem::take(&mut self.keyed);
        keyed.clear();
        keyed.extend(items.map(|item| {
            let at = item as usize;
            let spans =
                net.spans_of(at).iter().flat_map(|&(from, to)| &self.total[from as usize..to as usize]);
            let total = u128::from(spans.max().map_or(0, |&total| total.to_u64()));
            let (width, area) = (u128::from(net.width[at]), net.area[at]);
            (self.rank.key(item, total, width, area), item)
        }));
        keyed.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let start = self.items.len();
        self.items.extend(keyed.iter().map(|&(_, item)| item));
        self.keyed = keyed;
        (start, self.items.len())
    }
}
