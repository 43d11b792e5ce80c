#![forbid(unsafe_code)]
//! Why memory was not given, with every number a reader needs.
//!
//! ```text
//! host: 768 bytes at alignment 64 refused: over the limit of 512 bytes set by the arena set; 0 live, 512 free,
//!   256 short
//! cuda:0: 700 bytes (768 with padding) at alignment 256 for kv: forward/softmax refused: no room now; 9216 live,
//!   512 free, 188 short; most held by weights (8192), forward (1024); retried after drain 0, merge 0, trim 4096, callback 0
//! ```
//!
//! Deliberately absent: anything on the heap. Building the value allocates nothing.

use super::held::Held;
#[cfg(not(loom))]
use super::held::Place;
use super::id::SpaceId;
use super::tag::Tag;
use crate::align::checked_align_up;
use core::alloc::Layout;
use core::fmt;

/// Who set a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitSource {
    /// [`Limited`](super::Limited).
    Limited,
    /// `ArenaSet`.
    ArenaSet,
    /// `Pool`, for all that it holds.
    Pool,
    /// `Pool`, for one tag.
    Tag,
    /// The space itself: the size of the device or region.
    Space,
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Limited => "`Limited`",
            Self::ArenaSet => "the arena set",
            Self::Pool => "the pool",
            Self::Tag => "the pool for this tag",
            Self::Space => "the space",
        })
    }
}

/// What stands behind an [`AllocError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocErrorKind {
    /// No state of the space could ever serve this size and alignment.
    NeverFits,
    /// It would fit if other blocks were given back.
    NotNow,
    /// A limit that somebody set is in the way.
    OverLimit {
        /// The limit in bytes.
        limit_bytes: usize,
        /// Who set it.
        source: LimitSource,
    },
    /// The operating system or driver said no.
    Refused {
        /// What it said.
        reason: &'static str,
    },
}

/// Who holds how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Its name.
    pub tag: Tag,
    /// What it holds, in bytes.
    pub bytes: usize,
}

impl Owner {
    /// How many owners an [`AllocError`] names.
    pub const NAMED: usize = 3;

    /// The owners that hold most, the largest first; the rest are empty.
    pub fn largest(owners: impl IntoIterator<Item = Self>) -> [Self; Self::NAMED] {
        let mut largest = [Self::default(); Self::NAMED];
        for owner in owners {
            if let Some(at) = largest.iter().position(|other| owner.bytes > other.bytes) {
                largest[at..].rotate_right(1);
                largest[at] = owner;
            }
        }
        largest
    }
}

/// What was tried before a request was refused, or served after all: each step and the bytes it made free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retries {
    /// Waiting ranges whose work was done.
    pub drained_bytes: usize,
    /// Free neighbours joined: by how much the largest free range grew.
    pub merged_bytes: usize,
    /// Unused memory given back to the space.
    pub trimmed_bytes: usize,
    /// What the callback said that it freed.
    pub callback_bytes: usize,
}

/// Where the facts of errors lie. Untouched, these pages take addresses only.
#[cfg(not(loom))]
static PLACES: [Place<Facts>; 1024] = [const { Place::new() }; 1024];
/// Where those who find no other place look.
#[cfg(not(loom))]
static LOST: Place<Facts> =
    Place::last(Facts { kind: AllocErrorKind::Refused { reason: TOO_MANY }, ..Facts::NONE });
/// What they read there.
#[cfg(not(loom))]
const TOO_MANY: &str = "1024 other errors are held, drop some to learn what was asked";

/// Why memory was not given. Nothing has changed.
///
/// It is one word, so that a call which may fail answers in registers: its facts lie in one of 1,024 places that are set
/// aside in the program, never on the heap. Whoever holds more errors than that at a time gets further ones that say so,
/// and no more.
pub struct AllocError(Held<Facts>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    space: SpaceId,
    kind: AllocErrorKind,
    asked_bytes: usize,
    aligned_bytes: usize,
    align: usize,
    live_bytes: usize,
    largest_free_bytes: Option<usize>,
    arena: Tag,
    tag: Tag,
    owners: [Owner; Owner::NAMED],
    retries: Option<Retries>,
}

impl Facts {
    const NONE: Self = Self {
        space: SpaceId::UNKNOWN,
        kind: AllocErrorKind::NeverFits,
        asked_bytes: 0,
        aligned_bytes: 0,
        align: 1,
        live_bytes: 0,
        largest_free_bytes: None,
        arena: Tag::NONE,
        tag: Tag::NONE,
        owners: [Owner { tag: Tag::NONE, bytes: 0 }; Owner::NAMED],
        retries: None,
    };

    /// An error with these facts.
    #[cfg(not(loom))]
    fn into_error(self) -> AllocError {
        AllocError(Held::new(&PLACES, &LOST, self))
    }

    /// A model of threads makes its own atomics; there no request is refused.
    #[cfg(loom)]
    fn into_error(self) -> AllocError {
        panic!("refused: {self:?}")
    }
}

impl AllocError {
    /// The failure of a request for `layout` in `space`.
    #[cold]
    pub fn new(space: SpaceId, layout: Layout, kind: AllocErrorKind) -> Self {
        Self::of(space, layout.size(), layout.align(), kind)
    }

    /// The failure of a request for a size that no layout can hold.
    #[cold]
    pub fn too_large(space: SpaceId, asked_bytes: usize, align: usize) -> Self {
        Self::of(space, asked_bytes, align, AllocErrorKind::NeverFits)
    }

    fn of(space: SpaceId, asked_bytes: usize, align: usize, kind: AllocErrorKind) -> Self {
        let aligned_bytes = checked_align_up(asked_bytes, align).unwrap_or(asked_bytes);
        Facts { space, kind, asked_bytes, aligned_bytes, align, ..Facts::NONE }.into_error()
    }

    fn facts(&self) -> &Facts {
        &self.0
    }

    fn with(mut self, learn: impl FnOnce(&mut Facts)) -> Self {
        if let Some(facts) = self.0.get_mut() {
            learn(facts);
        }
        self
    }

    /// The same, of another space: the one that was asked.
    #[must_use]
    pub fn with_space(self, space: SpaceId) -> Self {
        self.with(|facts| facts.space = space)
    }

    /// The same, for the request that this one stood for.
    #[must_use]
    pub fn with_request(self, layout: Layout) -> Self {
        self.with(|facts| {
            facts.aligned_bytes = facts.asked_bytes;
            facts.asked_bytes = layout.size();
            facts.align = layout.align();
        })
    }

    /// The same, knowing the bytes in use.
    #[must_use]
    pub fn with_live(self, live_bytes: usize) -> Self {
        self.with(|facts| facts.live_bytes = live_bytes)
    }

    /// The same, knowing the largest request that would be served now.
    #[must_use]
    pub fn with_largest_free(self, largest_free_bytes: usize) -> Self {
        self.with(|facts| facts.largest_free_bytes = Some(largest_free_bytes))
    }

    /// The same, knowing what the request takes with padding.
    #[must_use]
    pub fn with_aligned(self, aligned_bytes: usize) -> Self {
        self.with(|facts| facts.aligned_bytes = aligned_bytes)
    }

    /// The same, knowing in which arena or pool, and for whom.
    #[must_use]
    pub fn with_place(self, arena: Tag, tag: Tag) -> Self {
        self.with(|facts| (facts.arena, facts.tag) = (arena, tag))
    }

    /// The same, knowing who holds most.
    #[must_use]
    pub fn with_owners(self, owners: [Owner; Owner::NAMED]) -> Self {
        self.with(|facts| facts.owners = owners)
    }

    /// The same, knowing what was tried.
    #[must_use]
    pub fn with_retries(self, retries: Retries) -> Self {
        self.with(|facts| facts.retries = Some(retries))
    }

    /// Where memory was asked for.
    pub fn space(&self) -> SpaceId {
        self.facts().space
    }

    /// The device, where the space is on one.
    pub fn device(&self) -> Option<u16> {
        (!self.space().is_host()).then(|| self.space().index())
    }

    /// The arena or pool that was asked; empty where it has no name.
    pub fn arena(&self) -> Tag {
        self.facts().arena
    }

    /// For whom: the path of scopes that were open, or the tag of the request.
    pub fn tag(&self) -> Tag {
        self.facts().tag
    }

    /// What stands behind it.
    pub fn kind(&self) -> AllocErrorKind {
        self.facts().kind
    }

    /// How much was asked for, in bytes.
    pub fn asked_bytes(&self) -> usize {
        self.facts().asked_bytes
    }

    /// How much that is with padding, in bytes.
    pub fn aligned_bytes(&self) -> usize {
        self.facts().aligned_bytes
    }

    /// At which alignment, in bytes.
    pub fn align(&self) -> usize {
        self.facts().align
    }

    /// The bytes in use when it was asked, as far as the refuser knows.
    pub fn live_bytes(&self) -> usize {
        self.facts().live_bytes
    }

    /// The largest request that would have been served, where the refuser knows it.
    pub fn largest_free_bytes(&self) -> Option<usize> {
        self.facts().largest_free_bytes
    }

    /// Who holds most, the largest first, as far as the refuser knows.
    pub fn owners(&self) -> impl Iterator<Item = Owner> {
        self.facts().owners.into_iter().filter(|owner| owner.bytes > 0)
    }

    /// What was tried first, if anything was.
    pub fn retries(&self) -> Option<Retries> {
        self.facts().retries
    }

    /// The limit that was in the way, if one was, in bytes.
    pub fn limit_bytes(&self) -> Option<usize> {
        match self.facts().kind {
            AllocErrorKind::OverLimit { limit_bytes, .. } => Some(limit_bytes),
            _ => None,
        }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.facts();
        let Facts { space, asked_bytes, aligned_bytes, align, live_bytes, arena, tag, .. } = facts;
        write!(f, "{space}: {asked_bytes} bytes ")?;
        if aligned_bytes.wrapping_sub(*asked_bytes) >= *align {
            write!(f, "({aligned_bytes} with padding) ")?;
        }
        write!(f, "at alignment {align} ")?;
        match (arena.is_empty(), tag.is_empty()) {
            (true, true) => {}
            (false, true) => write!(f, "for {arena} ")?,
            (true, false) => write!(f, "for {tag} ")?,
            (false, false) => write!(f, "for {arena}: {tag} ")?,
        }
        f.write_str("refused: ")?;
        match facts.kind {
            AllocErrorKind::NeverFits => f.write_str("it can never fit")?,
            AllocErrorKind::NotNow => f.write_str("no room now")?,
            AllocErrorKind::OverLimit { limit_bytes, source } => {
                write!(f, "over the limit of {limit_bytes} bytes set by {source}")?;
            }
            AllocErrorKind::Refused { reason } => f.write_str(reason)?,
        }
        write!(f, "; {live_bytes} live")?;
        if let Some(free) = facts.largest_free_bytes {
            write!(f, ", {free} free")?;
            if let Some(short) = asked_bytes.checked_sub(free).filter(|&short| short > 0) {
                write!(f, ", {short} short")?;
            }
        }
        for (index, Owner { tag, bytes }) in self.owners().enumerate() {
            let lead = if index == 0 { "; most held by" } else { "," };
            write!(f, "{lead} {tag} ({bytes})")?;
        }
        let Some(retries) = facts.retries else { return Ok(()) };
        let Retries { drained_bytes, merged_bytes, trimmed_bytes, callback_bytes } = retries;
        write!(f, "; retried after drain {drained_bytes}, merge {merged_bytes}, ")?;
        write!(f, "trim {trimmed_bytes}, callback {callback_bytes}")
    }
}

impl Clone for AllocError {
    fn clone(&self) -> Self {
        self.facts().into_error()
    }
}

impl PartialEq for AllocError {
    fn eq(&self, other: &Self) -> bool {
        self.facts() == other.facts()
    }
}

impl Eq for AllocError {}

impl fmt::Debug for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AllocError").field(self.facts()).finish()
    }
}

impl core::error::Error for AllocError {}
