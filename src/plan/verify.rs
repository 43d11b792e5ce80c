#![forbid(unsafe_code)]
//! Checks a plan against its problem. Shares no code with what makes plans.
//!
//! ```text
//! for each buffer in order of start:     what it covers must have ended before it starts;
//!   look at what lies on its bytes       what it does not cover cannot touch it
//!   put it there instead
//! ```

use std::collections::BTreeMap;

use super::Plan;
use super::error::Violation;
use super::spec::{Alias, BufferSpec, Problem};
use super::verify_few::{self, Narrow, Sweep};

/// Checks that every offset is aligned and within its space, that pins and views lie where they must, and
/// that no two buffers of one space that are alive together share a byte, unless they share storage.
///
/// Takes O(n log n) steps. Buffers without bytes or without life conflict with nothing.
///
/// # Errors
/// The first [`Violation`] found, naming the buffers.
///
/// # Examples
/// ```
/// use arenite::plan::{BufferSpec, Lifespan, Plan, Problem, Violation, verify};
/// let problem = Problem::new(vec![
///     BufferSpec::new(8, Lifespan::new(0, 2)),
///     BufferSpec::new(8, Lifespan::new(1, 3)),
/// ]);
/// let given = Plan::from_offsets(&problem, vec![0, 4]);
/// assert!(matches!(verify(&problem, &given), Err(Violation::Conflict { a: 0, b: 1, .. })));
/// ```
pub fn verify(problem: &Problem, plan: &Plan) -> Result<(), Violation> {
    let (expected, got) = (problem.buffers.len(), plan.offsets.len());
    if got != expected || plan.spaces.len() != expected {
        return Err(Violation::Count { expected, got: got.min(plan.spaces.len()) });
    }
    for (buffer, spec) in problem.buffers.iter().enumerate() {
        check_alone(problem, plan, buffer, spec)?;
    }
    if matches!(sweep_plain(problem, plan), Sweep::Apart) {
        return Ok(());
    }
    let storages = Storages::new(problem, plan)?;
    let mut by_space: Vec<Vec<Rect>> = vec![Vec::new(); problem.spaces.len()];
    storages.rects(problem, plan, &mut by_space);
    by_space.into_iter().try_for_each(sweep)
}

pub(super) fn check_alone(
    problem: &Problem,
    plan: &Plan,
    buffer: usize,
    spec: &BufferSpec,
) -> Result<(), Violation> {
    let (offset_bytes, space) = (plan.offsets[buffer], plan.spaces[buffer]);
    let permitted = spec.permitted_spaces();
    let allowed = if permitted.is_empty() { space == spec.space } else { permitted.contains(&space) };
    let home = problem.spaces.get(space as usize).filter(|_| allowed);
    let home = home.ok_or(Violation::WrongSpace { buffer, space })?;
    let is_view = matches!(spec.alias(), Some(Alias::Must { .. }));
    let align_bytes = if is_view { spec.align_bytes } else { spec.align_bytes.max(home.align_bytes) };
    if offset_bytes & align_bytes.wrapping_sub(1) != 0 {
        return Err(Violation::Misaligned { buffer, offset_bytes, align_bytes });
    }
    if let Some(pinned_bytes) = spec.pinned_bytes.filter(|&pin| pin != offset_bytes) {
        return Err(Violation::PinMoved { buffer, offset_bytes, pinned_bytes });
    }
    let end = offset_bytes.checked_add(spec.size_bytes);
    let capacity_bytes = home.capacity_bytes.unwrap_or(u64::MAX);
    if end.is_none_or(|end| end > capacity_bytes) {
        let end_bytes = end.unwrap_or(u64::MAX);
        return Err(Violation::OverCapacity { buffer, space, end_bytes, capacity_bytes });
    }
    Ok(())
}

/// What one storage or buffer covers in time and memory.
#[derive(Clone, Copy)]
struct Rect {
    first: u64,
    last: u64,
    offset: u64,
    end: u64,
    buffer: usize,
    space: u32,
}

/// Which buffers share storage; empty if none do.
struct Storages {
    leader: Vec<usize>,
}

impl Storages {
    fn new(problem: &Problem, plan: &Plan) -> Result<Self, Violation> {
        let count = problem.buffers.len();
        let mut leader: Vec<usize> = Vec::new();
        if problem.buffers.iter().any(|spec| spec.alias().is_some()) || !plan.shared.is_empty() {
            leader = (0..count).collect();
        }
        for (buffer, spec) in problem.buffers.iter().enumerate() {
            if let Some(Alias::Must { of, inner_offset_bytes }) = spec.alias() {
                let offset_bytes = plan.offsets[buffer];
                let base = plan.offsets.get(of).and_then(|base| base.checked_add(inner_offset_bytes));
                if base != Some(offset_bytes) || plan.spaces[buffer] != plan.spaces[of] {
                    return Err(Violation::ViewMoved { buffer, of, inner_offset_bytes, offset_bytes });
                }
                join(&mut leader, buffer, of);
            }
        }
        let mut storages = Self { leader };
        storages.share(problem, plan)?;
        Ok(storages)
    }

    /// Joins what the plan lets share, after checking that each reuse was offered and comes after its source.
    fn share(&mut self, problem: &Problem, plan: &Plan) -> Result<(), Violation> {
        let mut spans: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        if !plan.shared.is_empty() {
            for (buffer, spec) in problem.buffers.iter().enumerate().filter(|(_, s)| !s.lifespan.is_empty()) {
                let span = spans.entry(find(&self.leader, buffer)).or_insert((u64::MAX, 0));
                *span = (span.0.min(spec.lifespan.first), span.1.max(spec.lifespan.last));
            }
        }
        let (mut writers, mut sources) = (Vec::new(), Vec::new());
        let mut pairs = Vec::new();
        for &(buffer, of) in &plan.shared {
            let (buffer, of) = (buffer as usize, of as usize);
            let fault = Violation::SharingNotAllowed { buffer, of };
            let offered =
                problem.buffers.get(buffer).is_some_and(|spec| spec.alias() == Some(Alias::May { of }));
            if !offered || of >= problem.buffers.len() || plan.spaces[buffer] != plan.spaces[of] {
                return Err(fault);
            }
            let (writer, source) = (find(&self.leader, buffer), find(&self.leader, of));
            let (after, before) = (spans.get(&writer).copied(), spans.get(&source).copied());
            let follows = after.zip(before).is_none_or(|(w, s)| s.0 < w.0 && s.1 <= w.0.saturating_add(1));
            if writer == source || !follows || plan.offsets[buffer] != plan.offsets[of] {
                return Err(fault);
            }
            writers.push(writer);
            sources.push(source);
            pairs.push((writer, source, fault));
        }
        // Each storage is written over once and writes over one: the reuses form chains in time.
        for ends in [&mut writers, &mut sources] {
            ends.sort_unstable();
            if let Some(twice) = ends.windows(2).find(|pair| pair[0] == pair[1]) {
                let again = pairs.iter().rfind(|(w, s, _)| *w == twice[0] || *s == twice[0]);
                return Err(again.map_or(Violation::Count { expected: 0, got: 0 }, |(_, _, f)| f.clone()));
            }
        }
        for (writer, source, _) in pairs {
            join(&mut self.leader, writer, source);
        }
        Ok(())
    }

    fn rects(&self, problem: &Problem, plan: &Plan, by_space: &mut [Vec<Rect>]) {
        let mut shared: BTreeMap<usize, Rect> = BTreeMap::new();
        for (buffer, spec) in problem.buffers.iter().enumerate() {
            if spec.size_bytes == 0 || spec.lifespan.is_empty() {
                continue;
            }
            let (offset, space) = (plan.offsets[buffer], plan.spaces[buffer]);
            let whole = Rect {
                first: spec.lifespan.first,
                last: spec.lifespan.last,
                offset,
                end: offset + spec.size_bytes,
                buffer,
                space,
            };
            if self.leader.is_empty() {
                push_active(spec, whole, &mut by_space[space as usize]);
                continue;
            }
            let rect = shared.entry(find(&self.leader, buffer)).or_insert(whole);
            if rect.buffer == buffer && !spec.gaps().is_empty() {
                rect.last = rect.first;
                push_active(spec, whole, &mut by_space[space as usize]);
                continue;
            }
            rect.first = rect.first.min(whole.first);
            rect.last = rect.last.max(whole.last);
            rect.offset = rect.offset.min(whole.offset);
            rect.end = rect.end.max(whole.end);
        }
        for rect in shared.into_values().filter(|rect| rect.first < rect.last) {
            by_space[rect.space as usize].push(rect);
        }
    }
}

/// The parts of a buffer's life between its gaps, and what stays in use during them.
fn push_active(spec: &BufferSpec, whole: Rect, out: &mut Vec<Rect>) {
    let mut from = whole.first;
    for gap in spec.gaps() {
        if from < gap.span.first {
            out.push(Rect { first: from, last: gap.span.first, ..whole });
        }
        if let Some(used) = gap.used_bytes.as_ref().filter(|used| !used.is_empty()) {
            let (offset, end) = (whole.offset + used.start, whole.offset + used.end);
            out.push(Rect { first: gap.span.first, last: gap.span.last, offset, end, ..whole });
        }
        from = gap.span.last;
    }
    if from < whole.last {
        out.push(Rect { first: from, ..whole });
    }
}

fn find(leader: &[usize], mut at: usize) -> usize {
    while leader.get(at).is_some_and(|&up| up != at) {
        at = leader[at];
    }
    at
}

fn join(leader: &mut [usize], a: usize, b: usize) {
    let (a, b) = (find(leader, a), find(leader, b));
    leader[a.max(b)] = a.min(b);
}

/// What lies where: disjoint byte ranges by offset, in runs short enough to shift. A range stays after its
/// life until a later one covers it.
#[derive(Default)]
struct Shelf {
    runs: Vec<Vec<Range>>,
}

#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    end: u64,
    last: u64,
    rect: usize,
}

const RUN_LEN_MAX: usize = 128;

impl Shelf {
    /// Puts a range there from step `first` on. What it covers must have ended: else gives that one.
    fn put(&mut self, range: Range, first: u64) -> Option<usize> {
        let mut run =
            self.runs.partition_point(|run| run.last().is_some_and(|last| last.end <= range.offset));
        if run == self.runs.len() {
            match self.runs.last_mut() {
                Some(last) if last.len() < RUN_LEN_MAX => last.push(range),
                _ => self.runs.push(vec![range]),
            }
            return None;
        }
        let at = self.runs[run].partition_point(|other| other.end <= range.offset);
        let mut placed = false;
        // Everything from here on ends above the range's start: it is covered until one begins at its end.
        while let Some(here) = self.runs.get_mut(run) {
            let from = if placed { 0 } else { at };
            let covered = here[from..].iter().take_while(|other| other.offset < range.end);
            let (mut count, mut alive) = (0, None);
            for other in covered {
                count += 1;
                alive = alive.or((other.last > first).then_some(other.rect));
            }
            if alive.is_some() {
                return alive;
            }
            let to_the_end = from + count == here.len();
            match (placed, count) {
                (false, 1) => here[from] = range,
                (false, _) => drop(here.splice(from..from + count, [range])),
                (true, _) => drop(here.drain(..count)),
            }
            if here.is_empty() {
                self.runs.remove(run);
            } else if here.len() > RUN_LEN_MAX {
                let upper = here.split_off(RUN_LEN_MAX / 2);
                self.runs.insert(run + 1, upper);
                run += 2;
            } else {
                run += 1;
            }
            placed = true;
            if !to_the_end {
                break;
            }
        }
        None
    }
}

fn sweep(mut rects: Vec<Rect>) -> Result<(), Violation> {
    if !rects.is_sorted_by_key(|rect| rect.first) {
        rects.sort_by_key(|rect| rect.first);
    }
    let mut shelf = Shelf::default();
    for (at, rect) in rects.iter().enumerate() {
        let range = Range { offset: rect.offset, end: rect.end, last: rect.last, rect: at };
        if let Some(other) = shelf.put(range, rect.first) {
            let other = &rects[other];
            return Err(Violation::Conflict {
                a: other.buffer.min(rect.buffer),
                b: other.buffer.max(rect.buffer),
                space: rect.space,
                bytes: other.offset.max(rect.offset)..other.end.min(rect.end),
                steps: rect.first..other.last.min(rect.last),
            });
        }
    }
    Ok(())
}

/// The fast sweep, for whole buffers of one space given in order of start, if steps and bytes fit in its
/// numbers: bytes in units that divide every start and end. Whatever it finds is left to the other to report.
fn sweep_plain(problem: &Problem, plan: &Plan) -> Sweep {
    let is_whole = |spec: &BufferSpec| spec.gaps().is_empty() && spec.alias().is_none();
    let in_order = problem.buffers.is_sorted_by_key(|spec| spec.lifespan.first);
    if problem.spaces.len() != 1
        || !in_order
        || !plan.shared.is_empty()
        || !problem.buffers.iter().all(is_whole)
    {
        return Sweep::Crowded;
    }
    let (mut steps, mut bytes) = (0, 0);
    for (spec, offset) in problem.buffers.iter().zip(&plan.offsets) {
        steps |= spec.lifespan.last;
        bytes |= offset | (offset + spec.size_bytes);
    }
    let shift = bytes.trailing_zeros().min(63);
    let most = u64::from(i32::MAX.cast_unsigned());
    if steps > most || bytes >> shift > most {
        return Sweep::Crowded;
    }
    let small = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
    let real = problem.buffers.iter().zip(&plan.offsets);
    let real = real.filter(|(spec, _)| spec.size_bytes > 0 && !spec.lifespan.is_empty());
    verify_few::sweep(real.map(|(spec, offset)| Narrow {
        first: small(spec.lifespan.first),
        last: small(spec.lifespan.last),
        offset: small(offset >> shift),
        end: small((offset + spec.size_bytes) >> shift),
    }))
}
