#![forbid(unsafe_code)]
//! The least bytes that any plan needs, and the buffers that make it so.
//!
//! Live bytes are summed at every start; with one alignment throughout, sizes count rounded up, less the
//! padding that the topmost buffer may leave off. Deliberately absent: bounds that need a search.

use core::ops::Range;

use super::instance::{Instance, Item, Segment, align_up};
use super::profile::Profile;
use super::spec::{Lifespan, Problem};
use super::stream::sort_by_end;

/// The lower bound of one instance, or `None` if it does not fit in 64 bits.
pub(crate) fn lower_bound(instance: &Instance) -> Option<u64> {
    let rounds = instance.shifts.is_empty() && instance.align > 1;
    let live = if rounds && instance.items.iter().any(|item| item.size % instance.align != 0) {
        rounded_live(instance)?
    } else {
        max_live(instance, |size| size)?
    };
    let largest = instance.items.iter().map(|item| item.size).max().unwrap_or(0);
    Some(live.max(largest).max(least_end(instance)))
}

/// How high an instance reaches by what has its place already.
fn least_end(instance: &Instance) -> u64 {
    let pinned =
        (0..instance.pins.len()).filter_map(|item| Some(instance.pin(item)? + instance.items[item].size));
    pinned.max().unwrap_or(0).max(instance.floor)
}

/// With one alignment, what is live counts rounded up, except the top one's padding.
fn rounded_live(instance: &Instance) -> Option<u64> {
    let pad = |size: u64| align_up(size, instance.align) - size;
    let most = instance.items.iter().map(|item| pad(item.size)).max().unwrap_or(0);
    let rounded = max_live(instance, |size| align_up(size, instance.align))?;
    Some((rounded - most).max(max_live(instance, |size| size)?))
}

/// The largest sum of weights alive at once. Items are in order of start.
fn max_live(instance: &Instance, weight: impl Fn(u64) -> u64) -> Option<u64> {
    if instance.segments.is_some() {
        let segments = (0..instance.len()).flat_map(|item| instance.segments_of(item));
        let part = |s: Segment| (s.lower, s.upper, weight(s.bytes_upper) - s.bytes_lower);
        let mut parts: Vec<_> = segments.map(part).collect();
        parts.sort_unstable();
        return sweep(parts.len(), |at| parts[at]);
    }
    let items = &instance.items;
    sweep(items.len(), |at| (items[at].lower, items[at].upper, weight(items[at].size)))
}

/// The largest running sum over spans `(lower, upper, weight)` given in order of `lower`.
fn sweep(count: usize, span: impl Fn(usize) -> (u32, u32, u64)) -> Option<u64> {
    if count == 0 {
        return Some(0);
    }
    let first = span(0).0;
    let last = (0..count).map(|at| span(at).1).max().unwrap_or(0);
    let steps = (last - first) as usize;
    if steps <= 4 * count + 1024 {
        return sweep_counting(count, steps, first, span);
    }
    let mut ends: Vec<(u32, u64)> = (0..count).map(|at| (span(at).1, span(at).2)).collect();
    ends.sort_unstable();
    let (mut live, mut most, mut ended) = (0_u128, 0_u128, 0);
    for at in 0..count {
        let (lower, _, weight) = span(at);
        while ended < count && ends[ended].0 <= lower {
            live -= u128::from(ends[ended].1);
            ended += 1;
        }
        live += u128::from(weight);
        most = most.max(live);
    }
    u64::try_from(most).ok()
}

/// The same for dense steps: freed bytes are counted by step.
fn sweep_counting(
    count: usize,
    steps: usize,
    first: u32,
    span: impl Fn(usize) -> (u32, u32, u64),
) -> Option<u64> {
    // Sums wrap at 2^64 alike on both sides; a live sum beyond it shows as overflow of one addition.
    let mut freed = vec![0_u64; steps + 1];
    let (mut live, mut most, mut next) = (0_u64, 0_u64, 0);
    for at in 0..count {
        let (lower, upper, weight) = span(at);
        while next <= (lower - first) as usize {
            live = live.wrapping_sub(freed[next]);
            next += 1;
        }
        live = live.checked_add(weight)?;
        most = most.max(live);
        let end = &mut freed[(upper - first) as usize];
        *end = end.wrapping_add(weight);
    }
    Some(most)
}

/// The bytes alive when each item starts, itself and those before it included.
pub(crate) fn live_at_starts(instance: &Instance) -> Vec<u64> {
    weights_at_starts(instance, |size| size)
}

/// The same with other weights than sizes.
fn weights_at_starts(instance: &Instance, weight: impl Fn(u64) -> u64) -> Vec<u64> {
    let mut by_end: Vec<u32> = (0..u32::try_from(instance.len()).unwrap_or(u32::MAX)).collect();
    sort_by_end(instance, &mut by_end);
    let mut ends = by_end.iter().map(|&item| &instance.items[item as usize]).peekable();
    let mut live = 0_u64;
    let start = |item: &Item| {
        while let Some(ended) = ends.next_if(|ended| ended.upper <= item.lower) {
            live -= weight(ended.size);
        }
        live = live.saturating_add(weight(item.size));
        live
    };
    instance.items.iter().map(start).collect()
}

/// The lower bound of an instance without gaps, kept up to date while sizes change.
#[derive(Debug)]
pub(crate) struct LiveBound {
    live: Profile,
    /// With one alignment: the same for sizes rounded up to it, and by how much each is.
    rounded: Option<(Profile, Profile)>,
}

impl LiveBound {
    /// `None` if it does not fit in 64 bits.
    pub(crate) fn new(instance: &Instance) -> Option<Self> {
        lower_bound(instance)?;
        let up = |size: u64| align_up(size, instance.align);
        let pads = || instance.items.iter().map(|item| up(item.size) - item.size).collect();
        let rounded = || (Profile::new(weights_at_starts(instance, up)), Profile::new(pads()));
        Some(Self {
            live: Profile::new(live_at_starts(instance)),
            rounded: (instance.shifts.is_empty() && instance.align > 1).then(rounded),
        })
    }

    /// Takes in that an item, of a life with these starts in it, had another size before. `None` if the bound does not
    /// fit in 64 bits any more.
    pub(crate) fn resized(&mut self, instance: &Instance, life: Range<usize>, old: u64) -> Option<()> {
        let (item, size) = (life.start, instance.items[life.start].size);
        let up = |size: u64| align_up(size, instance.align);
        if let Some((live, pads)) = &mut self.rounded {
            live.exchange(life.clone(), up(old), up(size))?;
            pads.set(item, up(size) - size);
        }
        self.live.exchange(life, old, size)
    }

    /// The bound, as [`lower_bound`] has it.
    pub(crate) fn get(&self, instance: &Instance) -> u64 {
        let rounded = self.rounded.as_ref().map_or(0, |(live, pads)| live.most() - pads.most());
        rounded.max(self.live.most()).max(least_end(instance))
    }
}

/// The buffers that are alive when the most bytes are, and what that says about the peak.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Culprits {
    /// The first step with the most live bytes.
    pub step: u64,
    /// The bytes alive there.
    pub live_bytes: u64,
    /// The buffers alive there, largest first.
    pub buffers: Vec<usize>,
    /// The most bytes alive at any step that shares no buffer with these: the peak cannot fall below it
    /// however these shrink.
    pub rest_bytes: u64,
}

/// Which buffers of a space make its peak, counted by their own sizes.
///
/// `spaces` gives each buffer's space, as [`super::Plan::spaces`] does.
///
/// # Examples
/// ```
/// use arenite::plan::{BufferSpec, Lifespan, Problem, culprits};
/// let problem = Problem::new(vec![
///     BufferSpec::new(10, Lifespan::new(0, 2)),
///     BufferSpec::new(30, Lifespan::new(1, 3)),
///     BufferSpec::new(5, Lifespan::new(3, 4)),
/// ]);
/// let peak = culprits(&problem, &[0, 0, 0], 0);
/// assert_eq!((peak.step, peak.live_bytes, peak.buffers), (1, 40, vec![1, 0]));
/// assert_eq!(peak.rest_bytes, 5);
/// ```
pub fn culprits(problem: &Problem, spaces: &[u32], space: u32) -> Culprits {
    let of_space = |buffer: &usize| spaces.get(*buffer).is_none_or(|&s| s == space);
    let parts = |buffer: usize| active_parts(problem, buffer);
    let mut events: Vec<(u64, bool, u64, usize)> = (0..problem.buffers.len())
        .filter(of_space)
        .flat_map(|buffer| parts(buffer).into_iter().map(move |part| (buffer, part)))
        .flat_map(|(buffer, (span, bytes))| {
            [(span.first, true, bytes, buffer), (span.last, false, bytes, buffer)]
        })
        .collect();
    events.sort_unstable();
    let (mut live, mut most, mut step) = (0_u128, 0_u128, 0);
    for &(at, starts, bytes, _) in &events {
        live = if starts { live + u128::from(bytes) } else { live - u128::from(bytes) };
        if live > most {
            (most, step) = (live, at);
        }
    }
    let alive =
        |buffer: &usize| parts(*buffer).iter().any(|(span, _)| span.first <= step && step < span.last);
    let mut buffers: Vec<usize> = (0..problem.buffers.len()).filter(of_space).filter(alive).collect();
    buffers.sort_by_key(|&buffer| (core::cmp::Reverse(problem.buffers[buffer].size_bytes), buffer));
    let mut among = vec![false; problem.buffers.len()];
    for &buffer in &buffers {
        among[buffer] = true;
    }
    let (mut rest, mut rest_most) = (0_u128, 0_u128);
    for &(_, starts, bytes, _) in events.iter().filter(|event| !among[event.3]) {
        rest = if starts { rest + u128::from(bytes) } else { rest - u128::from(bytes) };
        rest_most = rest_most.max(rest);
    }
    let fit = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
    Culprits { step, live_bytes: fit(most), buffers, rest_bytes: fit(rest_most) }
}

/// When a buffer holds how many bytes, a view those of its own size.
pub(crate) fn active_parts(problem: &Problem, buffer: usize) -> Vec<(Lifespan, u64)> {
    let spec = &problem.buffers[buffer];
    if spec.size_bytes == 0 || spec.lifespan.is_empty() {
        return Vec::new();
    }
    let mut out = Vec::new();
    let mut from = spec.lifespan.first;
    for gap in spec.gaps() {
        out.push((Lifespan::new(from, gap.span.first), spec.size_bytes));
        let used = gap.used_bytes.as_ref().map_or(0, |bytes| bytes.end - bytes.start);
        out.push((gap.span, used));
        from = gap.span.last;
    }
    out.push((Lifespan::new(from, spec.lifespan.last), spec.size_bytes));
    out.retain(|(span, bytes)| !span.is_empty() && *bytes > 0);
    out
}
