#![forbid(unsafe_code)]
//! From a problem to one instance a space, and from its offsets back to a plan's.
//!
//! Input errors are found here; views and reused inputs become one storage; buffers that conflict with
//! nothing leave. Deliberately absent: any choice of an offset.

use std::collections::BTreeMap;

use super::error::{AliasFault, PlanError};
use super::instance::{Instance, Item, NONE, Segment, Segments};
use super::spec::{Alias, BufferSpec, Lifespan, Problem};

/// The largest alignment; larger ones are surely mistakes.
const ALIGN_MAX: u64 = 1 << 31;

/// A problem taken apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reduced {
    pub instances: Vec<Instance>,
    /// The storage each buffer belongs to; empty if each has its own.
    root: Vec<u32>,
    /// Where in its storage each buffer begins; empty like `root`.
    inner: Vec<u64>,
    /// The merged storages, by root.
    merged: BTreeMap<u32, BufferSpec>,
    /// Which offered reuses took place: (buffer, the buffer it is written over).
    pub shared: Vec<(u32, u32)>,
}

/// Checks everything that does not depend on how spaces and reuses are chosen.
pub(crate) fn check(problem: &Problem) -> Result<(), PlanError> {
    let limit = u32::MAX as usize - 1;
    if problem.buffers.len() > limit {
        return Err(PlanError::TooManyBuffers { buffers: problem.buffers.len(), limit });
    }
    for (space, spec) in problem.spaces.iter().enumerate() {
        let align_bytes = spec.align_bytes;
        if !align_bytes.is_power_of_two() || align_bytes > ALIGN_MAX {
            return Err(PlanError::SpaceAlign { space, align_bytes });
        }
    }
    for (buffer, spec) in problem.buffers.iter().enumerate() {
        check_buffer(problem, buffer, spec)?;
    }
    Ok(())
}

pub(crate) fn check_buffer(problem: &Problem, buffer: usize, spec: &BufferSpec) -> Result<(), PlanError> {
    let Lifespan { first, last } = spec.lifespan;
    if first > last {
        return Err(PlanError::ReversedLifespan { buffer, first, last });
    }
    let align_bytes = spec.align_bytes;
    if !align_bytes.is_power_of_two() || align_bytes > ALIGN_MAX {
        return Err(PlanError::BufferAlign { buffer, align_bytes });
    }
    let spaces = problem.spaces.len();
    if let Some(&space) =
        spec.permitted_spaces().iter().chain([&spec.space]).find(|space| **space as usize >= spaces)
    {
        return Err(PlanError::UnknownSpace { buffer, space, spaces });
    }
    let size_bytes = spec.size_bytes;
    if size_bytes == u64::MAX {
        return Err(PlanError::Overflow { buffer, size_bytes });
    }
    if let Some(offset_bytes) = spec.pinned_bytes {
        if offset_bytes.checked_add(size_bytes).is_none_or(|end| end == u64::MAX) {
            return Err(PlanError::Overflow { buffer, size_bytes });
        }
        let align_bytes = align_bytes.max(problem.spaces[spec.space as usize].align_bytes);
        if offset_bytes % align_bytes != 0 {
            return Err(PlanError::MisalignedPin { buffer, offset_bytes, align_bytes });
        }
    }
    check_gaps(buffer, spec)
}

fn check_gaps(buffer: usize, spec: &BufferSpec) -> Result<(), PlanError> {
    let mut from = spec.lifespan.first;
    for gap in spec.gaps() {
        let bytes = gap.used_bytes.clone().unwrap_or(0..0);
        let in_time = gap.span.first >= from && !gap.span.is_empty() && gap.span.last <= spec.lifespan.last;
        if !in_time || bytes.start > bytes.end || bytes.end > spec.size_bytes {
            return Err(PlanError::Gap { buffer, span: gap.span.first..gap.span.last });
        }
        from = gap.span.last;
    }
    Ok(())
}

impl Reduced {
    /// Takes a checked problem apart. `spaces` gives each buffer's space (empty: as in the problem);
    /// `reuse` says for which buffers an offered reuse is taken if it can be.
    pub(crate) fn new(
        problem: &Problem,
        spaces: &[u32],
        reuse: impl Fn(u32) -> bool,
    ) -> Result<Self, PlanError> {
        let mut reduced = Self::default();
        if problem.buffers.iter().any(|spec| spec.alias().is_some()) {
            reduced.merge_views(problem, spaces)?;
            reduced.merge_reuses(problem, spaces, reuse)?;
        }
        reduced.fill(problem, spaces);
        Ok(reduced)
    }

    fn space_of(problem: &Problem, spaces: &[u32], buffer: usize) -> u32 {
        spaces.get(buffer).copied().unwrap_or(problem.buffers[buffer].space)
    }

    /// Points every view at the storage at the end of its chain.
    fn merge_views(&mut self, problem: &Problem, spaces: &[u32]) -> Result<(), PlanError> {
        let count = problem.buffers.len();
        self.inner = vec![0; count];
        self.root = (0..u32::try_from(count).unwrap_or(u32::MAX)).collect();
        for (buffer, spec) in problem.buffers.iter().enumerate() {
            let (Some(Alias::Must { of, .. } | Alias::May { of }), gaps) = (spec.alias(), spec.gaps()) else {
                continue;
            };
            let fault = |reason| PlanError::Alias { buffer, of, reason };
            let other = problem.buffers.get(of).ok_or(fault(AliasFault::Unknown))?;
            if of == buffer {
                return Err(fault(AliasFault::Circle));
            }
            if !gaps.is_empty() || !other.gaps().is_empty() {
                return Err(fault(AliasFault::Gaps));
            }
        }
        for buffer in 0..count {
            if self.inner_of(problem, buffer)? {
                self.merge_view(problem, spaces, buffer)?;
            }
        }
        Ok(())
    }

    /// Follows the chain of views from a buffer; says whether there is one.
    fn inner_of(&mut self, problem: &Problem, buffer: usize) -> Result<bool, PlanError> {
        let (mut at, mut inner, mut steps) = (buffer, 0_u64, 0);
        while let Some(Alias::Must { of, inner_offset_bytes }) = problem.buffers[at].alias() {
            let fault = |reason| PlanError::Alias { buffer, of, reason };
            inner = inner.checked_add(inner_offset_bytes).ok_or(fault(AliasFault::Bounds))?;
            steps += 1;
            if steps > problem.buffers.len() {
                return Err(fault(AliasFault::Circle));
            }
            // A view that was resolved before, lower in index, ends the walk.
            if of < buffer && self.root[of] as usize != of {
                inner = inner.checked_add(self.inner[of]).ok_or(fault(AliasFault::Bounds))?;
                at = self.root[of] as usize;
                break;
            }
            at = of;
        }
        self.root[buffer] = u32::try_from(at).unwrap_or(u32::MAX);
        self.inner[buffer] = inner;
        Ok(at != buffer)
    }

    fn merge_view(&mut self, problem: &Problem, spaces: &[u32], buffer: usize) -> Result<(), PlanError> {
        let (of, inner, view) = (self.root[buffer] as usize, self.inner[buffer], &problem.buffers[buffer]);
        let fault = |reason| PlanError::Alias { buffer, of, reason };
        if Self::space_of(problem, spaces, buffer) != Self::space_of(problem, spaces, of) {
            return Err(fault(AliasFault::Space));
        }
        if !inner.is_multiple_of(view.align_bytes) {
            return Err(fault(AliasFault::Align));
        }
        let end = inner.checked_add(view.size_bytes).filter(|&end| end != u64::MAX);
        let end = end.ok_or(fault(AliasFault::Bounds))?;
        let pin = match view.pinned_bytes {
            Some(pin) => Some(pin.checked_sub(inner).ok_or(fault(AliasFault::Pin))?),
            None => None,
        };
        let storage = self.merged.entry(self.root[buffer]).or_insert_with(|| problem.buffers[of].clone());
        if pin.is_some() && storage.pinned_bytes.is_some() && pin != storage.pinned_bytes {
            return Err(fault(AliasFault::Pin));
        }
        storage.pinned_bytes = storage.pinned_bytes.or(pin);
        storage.size_bytes = storage.size_bytes.max(end);
        storage.align_bytes = storage.align_bytes.max(view.align_bytes);
        storage.lifespan = storage.lifespan.hull(view.lifespan);
        let too_high =
            storage.pinned_bytes.is_some_and(|pin| pin.checked_add(end).is_none_or(|e| e == u64::MAX));
        if too_high { Err(fault(AliasFault::Bounds)) } else { Ok(()) }
    }

    /// Takes the offered reuses that are wanted and possible, in order of the writing step.
    fn merge_reuses(
        &mut self,
        problem: &Problem,
        spaces: &[u32],
        reuse: impl Fn(u32) -> bool,
    ) -> Result<(), PlanError> {
        let mut offers = Vec::new();
        for (buffer, spec) in problem.buffers.iter().enumerate() {
            let Some(Alias::May { of }) = spec.alias() else { continue };
            let source = &problem.buffers[of];
            let fault = |reason| PlanError::Alias { buffer, of, reason };
            if Self::space_of(problem, spaces, buffer) != Self::space_of(problem, spaces, of) {
                if spaces.is_empty() {
                    return Err(fault(AliasFault::Space));
                }
                continue;
            }
            if !may_follow(source.lifespan, spec.lifespan) {
                return Err(fault(AliasFault::Alive));
            }
            offers.push((spec.lifespan.first, buffer, of));
        }
        offers.sort_unstable();
        for (_, buffer, of) in offers {
            let (buffer, of) = (index(buffer), index(of));
            if reuse(buffer) {
                self.merge_reuse(problem, buffer, of);
            }
        }
        if !self.shared.is_empty() {
            self.flatten();
        }
        Ok(())
    }

    fn merge_reuse(&mut self, problem: &Problem, buffer: u32, of: u32) {
        let (mut from, mut onto) = (self.root[buffer as usize], self.root[of as usize]);
        if self.inner[buffer as usize] != 0 || self.inner[of as usize] != 0 {
            return;
        }
        while self.root[onto as usize] != onto {
            onto = self.root[onto as usize];
        }
        while self.root[from as usize] != from {
            from = self.root[from as usize];
        }
        let get = |root: u32| self.merged.get(&root).unwrap_or(&problem.buffers[root as usize]);
        let (writer, source) = (get(from), get(onto));
        let pins_agree = writer.pinned_bytes.is_none()
            || source.pinned_bytes.is_none()
            || writer.pinned_bytes == source.pinned_bytes;
        let sized = source.size_bytes > 0 && writer.size_bytes > 0;
        if from == onto || !sized || !pins_agree || !may_follow(source.lifespan, writer.lifespan) {
            return;
        }
        let mut storage = source.clone();
        storage.size_bytes = storage.size_bytes.max(writer.size_bytes);
        storage.align_bytes = storage.align_bytes.max(writer.align_bytes);
        storage.pinned_bytes = storage.pinned_bytes.or(writer.pinned_bytes);
        storage.lifespan = storage.lifespan.hull(writer.lifespan);
        let end = storage.pinned_bytes.map_or(Some(0), |pin| pin.checked_add(storage.size_bytes));
        let aligned = storage.pinned_bytes.is_none_or(|pin| pin % storage.align_bytes == 0);
        if end.is_none_or(|end| end == u64::MAX) || !aligned {
            return;
        }
        self.merged.remove(&from);
        self.merged.insert(onto, storage);
        self.root[from as usize] = onto;
        self.shared.push((buffer, of));
    }

    /// Makes every buffer point straight at its storage.
    fn flatten(&mut self) {
        for buffer in 0..self.root.len() {
            let mut at = self.root[buffer];
            while self.root[at as usize] != at {
                at = self.root[at as usize];
            }
            self.root[buffer] = at;
        }
    }

    fn storage<'a>(&'a self, problem: &'a Problem, buffer: usize) -> &'a BufferSpec {
        self.merged.get(&index(buffer)).unwrap_or(&problem.buffers[buffer])
    }

    fn fill(&mut self, problem: &Problem, spaces: &[u32]) {
        self.instances = problem
            .spaces
            .iter()
            .map(|space| Instance {
                align: space.align_bytes,
                capacity: space.capacity_bytes.unwrap_or(NONE),
                ..Instance::default()
            })
            .collect();
        let count = problem.buffers.len();
        let is_root = |buffer: usize| self.root.get(buffer).is_none_or(|&root| root as usize == buffer);
        let times = Times::new(problem);
        let mut order: Vec<Vec<u32>> = vec![Vec::new(); self.instances.len()];
        let mut floors = vec![0; self.instances.len()];
        for buffer in (0..count).filter(|&buffer| is_root(buffer)) {
            let spec = self.storage(problem, buffer);
            let space = Self::space_of(problem, spaces, buffer) as usize;
            if spec.size_bytes == 0 || spec.lifespan.is_empty() {
                floors[space] = floors[space].max(spec.pinned_bytes.unwrap_or(0) + spec.size_bytes);
            } else {
                order[space].push(index(buffer));
            }
        }
        let mut instances = std::mem::take(&mut self.instances);
        for ((instance, mut source), floor) in instances.iter_mut().zip(order).zip(floors) {
            let first = |&buffer: &u32| self.storage(problem, buffer as usize).lifespan.first;
            if !source.is_sorted_by_key(first) {
                source.sort_by_key(first);
            }
            instance.floor = floor;
            fill_instance(instance, source, |buffer| self.storage(problem, buffer as usize), &times);
        }
        self.instances = instances;
    }

    /// Writes one space's offsets into the plan's.
    pub(crate) fn scatter(&self, space: usize, offsets: &[u64], out: &mut [u64]) {
        let instance = &self.instances[space];
        for (&source, &offset) in instance.source.iter().zip(offsets) {
            out[source as usize] = offset;
        }
    }

    /// Gives views, reusers and buffers that are never alive their offsets, once all spaces are scattered.
    pub(crate) fn finish(&self, problem: &Problem, out: &mut [u64]) {
        for (buffer, spec) in problem.buffers.iter().enumerate() {
            let root = self.root.get(buffer).map_or(buffer, |&root| root as usize);
            if root == buffer && out[buffer] == NONE {
                out[buffer] = self.storage(problem, buffer).pinned_bytes.or(spec.pinned_bytes).unwrap_or(0);
            }
        }
        for buffer in 0..self.root.len() {
            let root = self.root[buffer] as usize;
            out[buffer] = out[root] + self.inner[buffer];
        }
    }
}

/// Whether a buffer that lives `source` may be overwritten by one that lives `writer`.
pub(super) fn may_follow(source: Lifespan, writer: Lifespan) -> bool {
    source.is_empty()
        || writer.is_empty()
        || (source.first < writer.first && source.last <= writer.first.saturating_add(1))
}

fn index(buffer: usize) -> u32 {
    u32::try_from(buffer).unwrap_or(u32::MAX)
}

/// Steps as 32-bit numbers: themselves if they fit, else their ranks.
struct Times(Option<Vec<u64>>);

impl Times {
    fn new(problem: &Problem) -> Self {
        let last = problem.buffers.iter().map(|spec| spec.lifespan.last).max().unwrap_or(0);
        if last < u64::from(u32::MAX) {
            return Self(None);
        }
        let spans = problem.buffers.iter().flat_map(|b| b.gaps().iter().map(|g| g.span).chain([b.lifespan]));
        let mut all: Vec<u64> = spans.flat_map(|span| [span.first, span.last]).collect();
        all.sort_unstable();
        all.dedup();
        Self(Some(all))
    }

    fn get(&self, step: u64) -> u32 {
        let rank = match &self.0 {
            None => step,
            Some(all) => all.partition_point(|&time| time < step) as u64,
        };
        u32::try_from(rank).unwrap_or(u32::MAX)
    }
}

fn fill_instance<'a>(
    instance: &mut Instance,
    source: Vec<u32>,
    storage: impl Fn(u32) -> &'a BufferSpec,
    times: &Times,
) {
    let base = instance.align;
    let (mut least, mut most) = (u64::MAX, base);
    let (mut pinned, mut wished, mut gapped) = (false, false, false);
    for &buffer in &source {
        let spec = storage(buffer);
        least = least.min(spec.align_bytes.max(base));
        most = most.max(spec.align_bytes);
        pinned |= spec.pinned_bytes.is_some();
        wished |= spec.hint_bytes().is_some();
        gapped |= !spec.gaps().is_empty();
    }
    instance.align = most;
    instance.items = source
        .iter()
        .map(|&buffer| {
            let spec = storage(buffer);
            let Lifespan { first, last } = spec.lifespan;
            Item { size: spec.size_bytes, lower: times.get(first), upper: times.get(last) }
        })
        .collect();
    if least != most {
        let shift = |spec: &BufferSpec| spec.align_bytes.max(base).trailing_zeros().to_le_bytes()[0];
        instance.shifts = source.iter().map(|&buffer| shift(storage(buffer))).collect();
    }
    if pinned {
        instance.pins = source.iter().map(|&buffer| storage(buffer).pinned_bytes.unwrap_or(NONE)).collect();
    }
    if wished {
        instance.hints = source.iter().map(|&buffer| storage(buffer).hint_bytes().unwrap_or(NONE)).collect();
    }
    if gapped {
        instance.segments = Some(segments(&source, storage, times));
    }
    instance.source = source;
}

fn segments<'a>(source: &[u32], storage: impl Fn(u32) -> &'a BufferSpec, times: &Times) -> Segments {
    let mut out = Segments { starts: vec![0], ..Segments::default() };
    for &buffer in source {
        let spec = storage(buffer);
        let mut from = spec.lifespan.first;
        let mut push = |span: Lifespan, bytes: core::ops::Range<u64>| {
            if !span.is_empty() && !bytes.is_empty() {
                out.all.push(Segment {
                    lower: times.get(span.first),
                    upper: times.get(span.last),
                    bytes_lower: bytes.start,
                    bytes_upper: bytes.end,
                });
            }
        };
        for gap in spec.gaps() {
            push(Lifespan::new(from, gap.span.first), 0..spec.size_bytes);
            push(gap.span, gap.used_bytes.clone().unwrap_or(0..0));
            out.windowed |= gap.used_bytes.as_ref().is_some_and(|bytes| !bytes.is_empty());
            from = gap.span.last;
        }
        push(Lifespan::new(from, spec.lifespan.last), 0..spec.size_bytes);
        out.starts.push(index(out.all.len()));
    }
    out
}
