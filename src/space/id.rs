#![forbid(unsafe_code)]
//! The name of a memory space: `host`, `pinned`, `cuda:0`, or a third party's `name:index`.
//!
//! Deliberately absent: what a space can do. Ids are values: small, `Copy`, never allocated, so that
//! an out-of-memory error can carry them.

use core::fmt;
use core::str::FromStr;

/// The most bytes a space's name may have.
pub const NAME_LEN_MAX: usize = 14;

/// Which memory space: a name and an index.
///
/// # Examples
/// ```
/// use arenite::SpaceId;
/// assert_eq!(SpaceId::HOST.to_string(), "host");
/// assert_eq!("cuda:1".parse::<SpaceId>()?, SpaceId::cuda(1));
/// assert_eq!("shm:3".parse::<SpaceId>()?.index(), 3);
/// # Ok::<(), arenite::ParseSpaceIdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId {
    name: [u8; NAME_LEN_MAX],
    index: u16,
}

impl SpaceId {
    /// Ordinary host memory.
    pub const HOST: Self = Self::from_static("host", 0);
    /// Page-locked host memory.
    pub const PINNED: Self = Self::from_static("pinned", 0);

    /// No space in particular.
    pub(super) const UNKNOWN: Self = Self::from_static("unknown", 0);

    /// Memory of the CUDA device with this ordinal.
    pub const fn cuda(index: u16) -> Self {
        Self::from_static("cuda", index)
    }

    /// A space with this name and index.
    ///
    /// # Errors
    /// [`ParseSpaceIdError`] unless the name is 1 to [`NAME_LEN_MAX`] of `a`–`z`, `0`–`9`, `_`, `-`.
    pub const fn new(name: &str, index: u16) -> Result<Self, ParseSpaceIdError> {
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.len() > NAME_LEN_MAX {
            return Err(ParseSpaceIdError::Name);
        }
        let mut out = [0; NAME_LEN_MAX];
        let mut at = 0;
        while at < bytes.len() {
            if !matches!(bytes[at], b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-') {
                return Err(ParseSpaceIdError::Name);
            }
            out[at] = bytes[at];
            at += 1;
        }
        Ok(Self { name: out, index })
    }

    const fn from_static(name: &str, index: u16) -> Self {
        match Self::new(name, index) {
            Ok(id) => id,
            Err(_) => panic!("the name of a built-in space is valid"),
        }
    }

    /// The name, without the index.
    pub fn name(&self) -> &str {
        let len = self.name.iter().position(|&byte| byte == 0).unwrap_or(NAME_LEN_MAX);
        core::str::from_utf8(&self.name[..len]).unwrap_or_default()
    }

    /// The index; 0 for `host` and `pinned`.
    pub const fn index(&self) -> u16 {
        self.index
    }

    /// Whether the CPU reads and writes this space directly: `host` and `pinned` do.
    pub fn is_host(&self) -> bool {
        *self == Self::HOST || *self == Self::PINNED
    }
}

impl fmt::Display for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if self.is_host() { Ok(()) } else { write!(f, ":{}", self.index) }
    }
}

impl fmt::Debug for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for SpaceId {
    type Err = ParseSpaceIdError;

    /// Reads `name:index`; a missing index is 0.
    fn from_str(text: &str) -> Result<Self, ParseSpaceIdError> {
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, index.parse().map_err(|_| ParseSpaceIdError::Index)?),
            None => (text, 0),
        };
        Self::new(name, index)
    }
}

/// Why a text is not the id of a memory space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseSpaceIdError {
    /// The part before the colon.
    #[error("the name of a memory space is 1 to {NAME_LEN_MAX} of a-z, 0-9, '_' and '-'")]
    Name,
    /// The part after the colon.
    #[error("the index of a memory space is a number from 0 to 65535")]
    Index,
}
