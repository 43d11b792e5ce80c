//! Outcomes as C sees them: a status, and an error that the caller keeps.
//!
//! Deliberately absent: a last error of the thread. What failed is written where the caller says.

use arenite::{AllocError, AllocErrorKind};
use core::fmt::{self, Write};
use core::panic::AssertUnwindSafe;

/// How a call ended; `arenite_status` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// No state of the space could serve this size and alignment.
    NeverFits = 1,
    /// It would fit if other blocks were given back.
    NotNow = 2,
    /// A limit is in the way.
    OverLimit = 3,
    /// The system, the driver or the caller's function said no.
    Refused = 4,
    /// An argument is wrong.
    Invalid = 5,
}

/// Bytes of a message, the closing NUL included.
const MESSAGE_BYTES: usize = 272;

/// What failed; `arenite_error` of the header. Numbers that are not known are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CError {
    status: i32,
    reserved: u32,
    asked_bytes: u64,
    align_bytes: u64,
    limit_bytes: u64,
    live_bytes: u64,
    largest_free_bytes: u64,
    message: [u8; MESSAGE_BYTES],
}

/// A failure on its way to the caller.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Memory that was not given.
    Memory(AllocError),
    /// Anything else, in words.
    Told(Status, String),
}

impl Failure {
    /// An argument that cannot be.
    pub(crate) fn invalid(message: impl fmt::Display) -> Self {
        Self::Told(Status::Invalid, message.to_string())
    }

    /// What the system or a driver will not do.
    pub(crate) fn refused(message: impl fmt::Display) -> Self {
        Self::Told(Status::Refused, message.to_string())
    }

    /// A plan that cannot be.
    pub(crate) fn never_fits(message: impl fmt::Display) -> Self {
        Self::Told(Status::NeverFits, message.to_string())
    }

    fn status(&self) -> Status {
        match self {
            Self::Told(status, _) => *status,
            Self::Memory(error) => match error.kind() {
                AllocErrorKind::NeverFits => Status::NeverFits,
                AllocErrorKind::NotNow => Status::NotNow,
                AllocErrorKind::OverLimit { .. } => Status::OverLimit,
                _ => Status::Refused,
            },
        }
    }

    /// As C sees it.
    fn told(&self) -> CError {
        let mut text = Text { bytes: [0; MESSAGE_BYTES], len: 0 };
        // A message that does not fit is cut at a character.
        let _ = match self {
            Self::Told(_, message) => text.write_str(message),
            Self::Memory(error) => write!(text, "{error}"),
        };
        let known = match self {
            Self::Memory(error) => Some(error),
            Self::Told(..) => None,
        };
        let number = |get: fn(&AllocError) -> usize| known.map_or(0, |error| get(error) as u64);
        CError {
            status: self.status() as i32,
            reserved: 0,
            asked_bytes: number(AllocError::asked_bytes),
            align_bytes: number(AllocError::align),
            limit_bytes: number(|error| error.limit_bytes().unwrap_or(0)),
            live_bytes: number(AllocError::live_bytes),
            largest_free_bytes: number(|error| error.largest_free_bytes().unwrap_or(0)),
            message: text.bytes,
        }
    }
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Self {
        Self::Memory(error)
    }
}

/// Text in a fixed place, NUL-ended.
struct Text {
    bytes: [u8; MESSAGE_BYTES],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MESSAGE_BYTES - 1 - self.len;
        let len = text.floor_char_boundary(room);
        self.bytes[self.len..self.len + len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        if len < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Does `work`, and tells its failure (C2).
///
/// # Safety
/// `error` is null or valid for writes of an error.
pub(crate) unsafe fn guarded(error: *mut CError, work: impl FnOnce() -> Result<(), Failure>) -> Status {
    let done = std::panic::catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Failure::invalid("a function of the caller, or Arenite itself, panicked")));
    let Err(failure) = done else { return Status::Ok };
    // SAFETY: the caller's promise.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = failure.told();
    }
    failure.status()
}
