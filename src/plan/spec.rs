#![forbid(unsafe_code)]
//! What is planned: buffers with sizes, alignments and lifespans, and the spaces that hold them.
//!
//! ```text
//! bytes ^   +-----+
//!       |   |  b  |+-----+      a buffer is a rectangle: its place in time is given,
//!       |  +------+|  c  |      its place in memory is what a plan decides
//!       |  |  a   |+-----+
//!       +--+------+-------> steps
//! ```
//!
//! Deliberately absent: pointers, element types, what a buffer is for.

/// The steps at which a buffer is alive: half-open, `[first, last)`.
///
/// # Examples
/// ```
/// use arenite::plan::Lifespan;
/// assert_eq!(Lifespan::of_uses(2, 4), Lifespan::new(2, 5));
/// assert!(Lifespan::new(0, 3).overlaps(Lifespan::new(2, 5)));
/// assert!(!Lifespan::new(0, 2).overlaps(Lifespan::new(2, 5)));
/// ```
#[doc(alias = "lifetime")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lifespan {
    /// The first step at which the buffer is alive.
    #[doc(alias = "lower")]
    pub first: u64,
    /// One past the last step at which it is alive.
    #[doc(alias = "upper")]
    pub last: u64,
}

impl Lifespan {
    /// The steps `first..last`. A reversed span is reported when it is planned.
    pub const fn new(first: u64, last: u64) -> Self {
        Self { first, last }
    }

    /// From the first to the last use, both included: the inputs and outputs of a step live at it together.
    pub const fn of_uses(first_use: u64, last_use: u64) -> Self {
        Self { first: first_use, last: last_use.saturating_add(1) }
    }

    /// Whether no step is in it.
    pub const fn is_empty(self) -> bool {
        self.first >= self.last
    }

    /// Whether a step is in both.
    pub const fn overlaps(self, other: Self) -> bool {
        !self.is_empty() && !other.is_empty() && self.first < other.last && other.first < self.last
    }

    /// The smallest span that covers both; an empty one adds nothing.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        match (self.is_empty(), other.is_empty()) {
            (_, true) => self,
            (true, false) => other,
            _ => Self { first: self.first.min(other.first), last: self.last.max(other.last) },
        }
    }
}

/// Steps within a lifespan at which only part of the buffer, or nothing of it, is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleGap {
    /// The idle steps: inside the buffer's lifespan, after the gap before.
    pub span: Lifespan,
    /// The bytes still in use meanwhile, counted from the buffer's start; `None` if none are.
    pub used_bytes: Option<core::ops::Range<u64>>,
}

/// How a buffer shares another's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Alias {
    /// A view: it lies `inner_offset_bytes` into the storage of buffer `of`.
    Must {
        /// The index of the other buffer.
        of: usize,
        /// Where in it this one begins, in bytes.
        inner_offset_bytes: u64,
    },
    /// A result that may be written over buffer `of`, which dies at the step that first writes this one.
    May {
        /// The index of the other buffer.
        of: usize,
    },
}

/// One buffer to be planned.
///
/// # Examples
/// ```
/// use arenite::plan::{BufferSpec, Lifespan};
/// let cache = BufferSpec::new(4096, Lifespan::new(0, 10)).align_bytes(64).pinned_at(0);
/// let view = BufferSpec::new(1024, Lifespan::new(3, 5)).must_alias(0, 1024);
/// # let _ = (cache, view);
/// ```
#[doc(alias = "buffer")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferSpec {
    /// Size in bytes; 0 is allowed, conflicts with nothing and gets offset 0.
    pub size_bytes: u64,
    /// Every offset is a multiple of this power of two.
    pub align_bytes: u64,
    /// When it is alive. An empty span conflicts with nothing.
    pub lifespan: Lifespan,
    /// Index of its space in [`Problem::spaces`].
    pub space: u32,
    /// The offset it must have.
    pub pinned_bytes: Option<u64>,
    extras: Option<Box<Extras>>,
}

/// What few buffers have, kept out of line so that a million plain ones stay small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Extras {
    hint_bytes: Option<u64>,
    alias: Option<Alias>,
    gaps: Vec<IdleGap>,
    permitted: Vec<u32>,
    accesses: u64,
}

impl BufferSpec {
    /// A buffer in space 0 that may lie at any offset.
    pub const fn new(size_bytes: u64, lifespan: Lifespan) -> Self {
        Self { size_bytes, align_bytes: 1, lifespan, space: 0, pinned_bytes: None, extras: None }
    }

    /// With offsets that are multiples of a power of two.
    #[must_use]
    pub fn align_bytes(mut self, align_bytes: u64) -> Self {
        self.align_bytes = align_bytes;
        self
    }

    /// In the space with this index.
    #[must_use]
    pub fn in_space(mut self, space: u32) -> Self {
        self.space = space;
        self
    }

    /// At this offset and no other.
    #[must_use]
    pub fn pinned_at(mut self, offset_bytes: u64) -> Self {
        self.pinned_bytes = Some(offset_bytes);
        self
    }

    /// At this offset if that is free when its turn comes.
    #[must_use]
    pub fn wished_at(mut self, offset_bytes: u64) -> Self {
        self.extras_mut().hint_bytes = Some(offset_bytes);
        self
    }

    /// A view that lies `inner_offset_bytes` into the storage of buffer `of`.
    #[must_use]
    pub fn must_alias(mut self, of: usize, inner_offset_bytes: u64) -> Self {
        self.extras_mut().alias = Some(Alias::Must { of, inner_offset_bytes });
        self
    }

    /// Allowed to be written over buffer `of`, of which this step is the last use.
    #[must_use]
    pub fn may_alias(mut self, of: usize) -> Self {
        self.extras_mut().alias = Some(Alias::May { of });
        self
    }

    /// With steps at which it is idle, in order.
    #[must_use]
    pub fn idle(mut self, gaps: Vec<IdleGap>) -> Self {
        self.extras_mut().gaps = gaps;
        self
    }

    /// Allowed in these spaces, best first, with the bytes it moves over its life: the planner picks the space.
    #[must_use]
    pub fn permitted(mut self, spaces: Vec<u32>, accesses: u64) -> Self {
        if let Some(&first) = spaces.first() {
            self.space = first;
        }
        let extras = self.extras_mut();
        extras.permitted = spaces;
        extras.accesses = accesses;
        self
    }

    /// The offset it wishes for.
    pub fn hint_bytes(&self) -> Option<u64> {
        self.extras.as_ref()?.hint_bytes
    }

    /// Whose storage it shares.
    pub fn alias(&self) -> Option<Alias> {
        self.extras.as_ref()?.alias
    }

    /// When it is idle.
    pub fn gaps(&self) -> &[IdleGap] {
        self.extras.as_ref().map_or(&[], |extras| &extras.gaps)
    }

    /// The spaces it may go to, best first; empty if its space is given.
    pub fn permitted_spaces(&self) -> &[u32] {
        self.extras.as_ref().map_or(&[], |extras| &extras.permitted)
    }

    /// The accesses that a better space would speed up.
    pub fn accesses(&self) -> u64 {
        self.extras.as_ref().map_or(0, |extras| extras.accesses)
    }

    /// Whether it has neither wish, alias, gaps nor a choice of spaces.
    pub(crate) fn is_plain(&self) -> bool {
        self.extras.is_none()
    }

    fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }
}

/// A place that buffers are planned into.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceSpec {
    /// The most bytes it holds; `None` for as many as it takes.
    pub capacity_bytes: Option<u64>,
    /// Every offset in it is a multiple of this power of two, or of the buffer's own if that is larger.
    pub align_bytes: u64,
}

impl Default for SpaceSpec {
    fn default() -> Self {
        Self { capacity_bytes: None, align_bytes: 1 }
    }
}

impl SpaceSpec {
    /// A space of this many bytes.
    pub fn with_capacity(capacity_bytes: u64) -> Self {
        Self { capacity_bytes: Some(capacity_bytes), align_bytes: 1 }
    }

    /// With a base alignment for all its buffers.
    #[must_use]
    pub fn align_bytes(mut self, align_bytes: u64) -> Self {
        self.align_bytes = align_bytes;
        self
    }
}

/// All that one call plans: buffers, and the spaces that they name.
///
/// # Examples
/// ```
/// use arenite::plan::{BufferSpec, Lifespan, Planner, Portfolio, Problem};
/// let problem = Problem::new(vec![
///     BufferSpec::new(64, Lifespan::new(0, 2)),
///     BufferSpec::new(32, Lifespan::new(1, 3)),
///     BufferSpec::new(64, Lifespan::new(2, 4)),
/// ]);
/// let plan = Portfolio.plan(&problem)?;
/// assert_eq!(plan.peak_bytes(0), 96);
/// # Ok::<(), arenite::plan::PlanError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    /// The buffers; plans give their offsets in this order.
    pub buffers: Vec<BufferSpec>,
    /// The spaces, by index.
    pub spaces: Vec<SpaceSpec>,
}

impl Problem {
    /// Buffers of one space without a limit (or of as many as they name).
    pub fn new(buffers: Vec<BufferSpec>) -> Self {
        let named = buffers.iter().flat_map(|b| b.permitted_spaces().iter().copied().chain([b.space])).max();
        // More spaces than buffers is a mistake that planning reports; it must not cost memory here.
        let count = named.map_or(1, |space| (space as usize).saturating_add(1)).min(buffers.len().max(1));
        Self { buffers, spaces: vec![SpaceSpec::default(); count] }
    }

    /// The same buffers, in spaces with these limits.
    #[must_use]
    pub fn with_spaces(mut self, spaces: Vec<SpaceSpec>) -> Self {
        self.spaces = spaces;
        self
    }

    /// The same buffers in one space of this many bytes.
    #[must_use]
    pub fn with_capacity(self, capacity_bytes: u64) -> Self {
        self.with_spaces(vec![SpaceSpec::with_capacity(capacity_bytes)])
    }
}
