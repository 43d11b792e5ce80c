#![forbid(unsafe_code)]
//! Names of owners: pools, arenas, tags.
//!
//! Deliberately absent: a table of names. A tag is a value, so that an error can carry one without allocating.

use core::fmt;

/// A name of up to [`Tag::LEN_MAX`] bytes, kept in place.
///
/// # Examples
/// ```
/// use arenite::Tag;
/// assert_eq!(Tag::new("kv cache").as_str(), "kv cache");
/// assert_eq!(Tag::new("forward").join(Tag::new("softmax")).as_str(), "forward/softmax");
/// assert!(Tag::default().is_empty());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tag {
    bytes: [u8; Self::LEN_MAX],
    len: u8,
}

impl Tag {
    /// The most bytes of a name.
    pub const LEN_MAX: usize = 31;

    /// No name.
    pub const NONE: Self = Self { bytes: [0; Self::LEN_MAX], len: 0 };

    /// The first [`Tag::LEN_MAX`] bytes of `text`, less where a character would be cut.
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; Self::LEN_MAX];
        let len = text.floor_char_boundary(bytes.len());
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Self { bytes, len: u8::try_from(len).unwrap_or(0) }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }

    /// Whether there is no name.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The path `self/inner`; where that is too long, its end.
    #[must_use]
    pub fn join(self, inner: Self) -> Self {
        if self.is_empty() || inner.is_empty() {
            return if inner.is_empty() { self } else { inner };
        }
        let (outer, inner) = (self.as_str(), inner.as_str());
        let room = Self::LEN_MAX.saturating_sub(inner.len() + 1);
        let outer = &outer[outer.ceil_char_boundary(outer.len().saturating_sub(room))..];
        let mut bytes = [0; Self::LEN_MAX];
        let mut len = 0;
        for part in [outer, if outer.is_empty() { "" } else { "/" }, inner] {
            bytes[len..len + part.len()].copy_from_slice(part.as_bytes());
            len += part.len();
        }
        Self { bytes, len: u8::try_from(len).unwrap_or(0) }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl From<&str> for Tag {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}
