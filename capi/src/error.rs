//! What a call came to: a number, and a sentence that is written when it is asked for.

use arenite::{AllocError, AllocErrorKind};
use core::cell::Cell;
use core::ffi::c_char;
use core::fmt::{self, Write};

/// `arenite_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// No state of the space could ever serve this.
    NeverFits = 1,
    /// It would fit if other blocks were given back.
    NotNow = 2,
    /// A limit is in the way.
    OverLimit = 3,
    /// The system or driver said no.
    Refused = 4,
    /// The key stands for no live block of this pool.
    Stale = 5,
    /// A null handle, or an alignment that is no power of two.
    Invalid = 6,
}

#[derive(Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "kept in place, so that failing allocates nothing")]
enum Last {
    Nothing,
    Alloc(AllocError),
    Invalid,
}

thread_local!(static LAST: Cell<Last> = const { Cell::new(Last::Nothing) });

pub(crate) fn failed(error: &AllocError) -> Status {
    LAST.set(Last::Alloc(*error));
    match error.kind() {
        AllocErrorKind::NeverFits => Status::NeverFits,
        AllocErrorKind::NotNow => Status::NotNow,
        AllocErrorKind::OverLimit { .. } => Status::OverLimit,
        _ => Status::Refused,
    }
}

pub(crate) fn invalid() -> Status {
    LAST.set(Last::Invalid);
    Status::Invalid
}

/// Writes as much as fits, counts all.
struct Text {
    next: *mut c_char,
    room: usize,
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.len += text.len();
        for byte in text.bytes().take(self.room) {
            // SAFETY: there is room for one more, and the zero after it.
            unsafe { self.next.write(byte.cast_signed() as c_char) };
            // SAFETY: as above: at most the place of the zero.
            self.next = unsafe { self.next.add(1) };
            self.room -= 1;
        }
        Ok(())
    }
}

/// `arenite_last_error`.
///
/// # Safety
/// * `text` is null, or has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn arenite_last_error(text: *mut c_char, len: usize) -> usize {
    let has_room = !text.is_null() && len > 0;
    let mut out = Text { next: text, room: if has_room { len - 1 } else { 0 }, len: 0 };
    // Writing to `Text` does not fail.
    let _ = match LAST.get() {
        Last::Nothing => Ok(()),
        Last::Alloc(error) => write!(out, "{error}"),
        Last::Invalid => out.write_str("a handle is null, or the alignment is no power of two, or too large"),
    };
    if has_room {
        // SAFETY: the place of the zero is within `len`.
        unsafe { out.next.write(0) };
    }
    out.len
}
