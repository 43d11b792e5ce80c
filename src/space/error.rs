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
            Self::Limited => "the wrapper of this space",
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

/// Why memory was not given. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError {
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

impl AllocError {
    /// The failure of a request for `layout` in `space`.
    pub const fn new(space: SpaceId, layout: Layout, kind: AllocErrorKind) -> Self {
        Self::of(space, layout.size(), layout.align(), kind)
    }

    /// The failure of a request for a size that no layout can hold.
    pub const fn too_large(space: SpaceId, asked_bytes: usize, align: usize) -> Self {
        Self::of(space, asked_bytes, align, AllocErrorKind::NeverFits)
    }

    const fn of(space: SpaceId, asked_bytes: usize, align: usize, kind: AllocErrorKind) -> Self {
        let aligned_bytes = match checked_align_up(asked_bytes, align) {
            Some(bytes) => bytes,
            None => asked_bytes,
        };
        let none = Owner { tag: Tag::NONE, bytes: 0 };
        Self {
            space,
            kind,
            asked_bytes,
            aligned_bytes,
            align,
            live_bytes: 0,
            largest_free_bytes: None,
            arena: Tag::NONE,
            tag: Tag::NONE,
            owners: [none; Owner::NAMED],
            retries: None,
        }
    }

    /// The same, of another space: the one that was asked.
    #[must_use]
    pub const fn with_space(mut self, space: SpaceId) -> Self {
        self.space = space;
        self
    }

    /// The same, for the request that this one stood for.
    #[must_use]
    pub const fn with_request(mut self, layout: Layout) -> Self {
        self.aligned_bytes = self.asked_bytes;
        self.asked_bytes = layout.size();
        self.align = layout.align();
        self
    }

    /// The same, knowing the bytes in use.
    #[must_use]
    pub const fn with_live(mut self, live_bytes: usize) -> Self {
        self.live_bytes = live_bytes;
        self
    }

    /// The same, knowing the largest request that would be served now.
    #[must_use]
    pub const fn with_largest_free(mut self, largest_free_bytes: usize) -> Self {
        self.largest_free_bytes = Some(largest_free_bytes);
        self
    }

    /// The same, knowing what the request takes with padding.
    #[must_use]
    pub const fn with_aligned(mut self, aligned_bytes: usize) -> Self {
        self.aligned_bytes = aligned_bytes;
        self
    }

    /// The same, knowing in which arena or pool, and for whom.
    #[must_use]
    pub const fn with_place(mut self, arena: Tag, tag: Tag) -> Self {
        self.arena = arena;
        self.tag = tag;
        self
    }

    /// The same, knowing who holds most.
    #[must_use]
    pub const fn with_owners(mut self, owners: [Owner; Owner::NAMED]) -> Self {
        self.owners = owners;
        self
    }

    /// The same, knowing what was tried.
    #[must_use]
    pub const fn with_retries(mut self, retries: Retries) -> Self {
        self.retries = Some(retries);
        self
    }

    /// Where memory was asked for.
    pub const fn space(&self) -> SpaceId {
        self.space
    }

    /// The device, where the space is on one.
    pub fn device(&self) -> Option<u16> {
        (!self.space.is_host()).then(|| self.space.index())
    }

    /// The arena or pool that was asked; empty where it has no name.
    pub const fn arena(&self) -> Tag {
        self.arena
    }

    /// For whom: the path of scopes that were open, or the tag of the request.
    pub const fn tag(&self) -> Tag {
        self.tag
    }

    /// What stands behind it.
    pub const fn kind(&self) -> AllocErrorKind {
        self.kind
    }

    /// How much was asked for, in bytes.
    pub const fn asked_bytes(&self) -> usize {
        self.asked_bytes
    }

    /// How much that is with padding, in bytes.
    pub const fn aligned_bytes(&self) -> usize {
        self.aligned_bytes
    }

    /// At which alignment, in bytes.
    pub const fn align(&self) -> usize {
        self.align
    }

    /// The bytes in use when it was asked, as far as the refuser knows.
    pub const fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// The largest request that would have been served, where the refuser knows it.
    pub const fn largest_free_bytes(&self) -> Option<usize> {
        self.largest_free_bytes
    }

    /// Who holds most, the largest first, as far as the refuser knows.
    pub fn owners(&self) -> impl Iterator<Item = Owner> {
        self.owners.into_iter().filter(|owner| owner.bytes > 0)
    }

    /// What was tried first, if anything was.
    pub const fn retries(&self) -> Option<Retries> {
        self.retries
    }

    /// The limit that was in the way, if one was, in bytes.
    pub const fn limit_bytes(&self) -> Option<usize> {
        match self.kind {
            AllocErrorKind::OverLimit { limit_bytes, .. } => Some(limit_bytes),
            _ => None,
        }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { space, asked_bytes, aligned_bytes, align, live_bytes, arena, tag, .. } = self;
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
        match self.kind {
            AllocErrorKind::NeverFits => f.write_str("it can never fit")?,
            AllocErrorKind::NotNow => f.write_str("no room now")?,
            AllocErrorKind::OverLimit { limit_bytes, source } => {
                write!(f, "over the limit of {limit_bytes} bytes set by {source}")?;
            }
            AllocErrorKind::Refused { reason } => f.write_str(reason)?,
        }
        write!(f, "; {live_bytes} live")?;
        if let Some(free) = self.largest_free_bytes {
            write!(f, ", {free} free")?;
            if let Some(short) = asked_bytes.checked_sub(free).filter(|&short| short > 0) {
                write!(f, ", {short} short")?;
            }
        }
        for (index, Owner { tag, bytes }) in self.owners().enumerate() {
            let lead = if index == 0 { "; most held by" } else { "," };
            write!(f, "{lead} {tag} ({bytes})")?;
        }
        let Some(retries) = self.retries else { return Ok(()) };
        let Retries { drained_bytes, merged_bytes, trimmed_bytes, callback_bytes } = retries;
        write!(f, "; retried after drain {drained_bytes}, merge {merged_bytes}, ")?;
        write!(f, "trim {trimmed_bytes}, callback {callback_bytes}")
    }
}

impl core::error::Error for AllocError {}
