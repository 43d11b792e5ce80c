//! The bytes of a file, mapped or owned.
//!
//! The address never changes and is a multiple of 64, so that constants are used where they lie.
//!
//! Deliberately absent: what the bytes mean.
//!
//! # Invariants
//! * **B1** A mapped file is not changed while it is mapped: [`ProgramBytes::open`] asks this of its caller.

use super::error::{Fault, Part, ProgramError, Refusal};
use super::header::FileKind;
use bytemuck::{Pod, Zeroable};
use core::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Files smaller than this are read: a map costs more than so few bytes.
const MAP_BYTES_MIN: u64 = 32 << 10;

/// A cache line, whose alignment the bytes take.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

enum Held {
    Mapped(memmap2::Mmap),
    Owned { lines: Vec<Line>, len: usize },
}

/// The bytes of a file.
pub(super) struct ProgramBytes(Held);

impl ProgramBytes {
    /// A copy of these bytes.
    pub(super) fn copy_of(bytes: &[u8]) -> Self {
        let mut copy = Self::zeroed(bytes.len());
        copy.owned_mut().copy_from_slice(bytes);
        copy
    }

    /// The bytes of a file: mapped where `mmap` and where it is large, else read.
    ///
    /// A mapped file must not be changed until the bytes are dropped; see [`super::Program::open`].
    pub(super) fn open(path: &Path, mmap: bool, is_data_file: bool) -> Result<Self, ProgramError> {
        let io = |source| ProgramError::Io { path: path.to_owned(), source };
        // Opening a pipe would wait for its writer.
        let kind = std::fs::metadata(path).map_err(io)?;
        if !kind.is_file() {
            let found = if kind.is_dir() { FileKind::Directory } else { FileKind::NoFile };
            let fault =
                if is_data_file { Fault::NotADataFile { found } } else { Fault::NotAProgram { found } };
            let refusal = Refusal { part: Part::Whole, fault };
            return Err(refusal.into_error(&path.to_string_lossy(), None, is_data_file));
        }
        let mut file = File::open(path).map_err(io)?;
        let size_bytes = file.metadata().map_err(io)?.len();
        if mmap && size_bytes >= MAP_BYTES_MIN {
            // SAFETY:
            // * B1: the file is not changed while mapped; the caller of `Program::open` promises it;
            // * the bytes are only read: as numbers, as text that is checked and then copied, and as
            //   elements, for which every bit pattern is valid.
            let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
            return Ok(Self(Held::Mapped(map)));
        }
        let len = usize::try_from(size_bytes).map_err(|_| io(std::io::ErrorKind::FileTooLarge.into()))?;
        let mut bytes = Self::zeroed(len);
        file.read_exact(bytes.owned_mut()).map_err(io)?;
        Ok(bytes)
    }

    fn zeroed(len: usize) -> Self {
        Self(Held::Owned { lines: bytemuck::zeroed_vec(len.div_ceil(size_of::<Line>())), len })
    }

    /// The bytes, if they are owned.
    fn owned_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Held::Mapped(_) => &mut [],
            Held::Owned { lines, len } => &mut bytemuck::cast_slice_mut(lines)[..*len],
        }
    }

    /// The bytes.
    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Held::Mapped(map) => map,
            Held::Owned { lines, len } => &bytemuck::cast_slice(lines)[..*len],
        }
    }

    /// Whether the bytes are a mapped file.
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.0, Held::Mapped(_))
    }
}

impl fmt::Debug for ProgramBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_mapped() { "mapped" } else { "owned" };
        write!(f, "ProgramBytes({} bytes, {how})", self.as_slice().len())
    }
}
