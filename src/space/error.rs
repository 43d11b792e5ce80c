#![forbid(unsafe_code)]
//! Why memory was not given, with every number a reader needs.
//!
//! ```text
//! host: 768 bytes at alignment 64 refused: over the limit of 512 bytes set by the arena set; 0 live, 512 free
//! ```
//!
//! Deliberately absent: anything on the heap. Building the value allocates nothing.

use super::id::SpaceId;
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
    /// The space itself: the size of the device or region.
    Space,
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Limited => "the wrapper of this space",
            Self::ArenaSet => "the arena set",
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

/// Why memory was not given. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError {
    space: SpaceId,
    kind: AllocErrorKind,
    asked_bytes: usize,
    align: usize,
    live_bytes: usize,
    largest_free_bytes: Option<usize>,
}

impl AllocError {
    /// The failure of a request for `layout` in `space`.
    pub const fn new(space: SpaceId, layout: Layout, kind: AllocErrorKind) -> Self {
        let (asked_bytes, align) = (layout.size(), layout.align());
        Self { space, kind, asked_bytes, align, live_bytes: 0, largest_free_bytes: None }
    }

    /// The failure of a request for a size that no layout can hold.
    pub const fn too_large(space: SpaceId, asked_bytes: usize, align: usize) -> Self {
        let kind = AllocErrorKind::NeverFits;
        Self { space, kind, asked_bytes, align, live_bytes: 0, largest_free_bytes: None }
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

    /// Where memory was asked for.
    pub const fn space(&self) -> SpaceId {
        self.space
    }

    /// What stands behind it.
    pub const fn kind(&self) -> AllocErrorKind {
        self.kind
    }

    /// How much was asked for, in bytes.
    pub const fn asked_bytes(&self) -> usize {
        self.asked_bytes
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
        let Self { space, asked_bytes, align, live_bytes, .. } = self;
        write!(f, "{space}: {asked_bytes} bytes at alignment {align} refused: ")?;
        match self.kind {
            AllocErrorKind::NeverFits => f.write_str("it can never fit")?,
            AllocErrorKind::NotNow => f.write_str("no room now")?,
            AllocErrorKind::OverLimit { limit_bytes, source } => {
                write!(f, "over the limit of {limit_bytes} bytes set by {source}")?;
            }
            AllocErrorKind::Refused { reason } => f.write_str(reason)?,
        }
        write!(f, "; {live_bytes} live")?;
        match self.largest_free_bytes {
            Some(free) => write!(f, ", {free} free"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for AllocError {}
