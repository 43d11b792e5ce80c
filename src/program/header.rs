#![forbid(unsafe_code)]
//! The first bytes of a file: what it is, and where its tables and segments lie.
//!
//! ```text
//!   byte 0                                        tables end       segments begin
//!   | root u32 | "ET12" | header, optional | tables ... | pad | segment 0 | segment 1 ... |
//! ```
//!
//! Deliberately absent: the tables themselves.

use super::error::Fault;
use core::fmt;

/// What a file is that is not what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the text of each variant is its documentation")]
pub enum FileKind {
    Directory,
    NoFile,
    Empty,
    Program,
    OtherProgram([u8; 2]),
    BundledProgram,
    DataFile,
    Zip,
    Elf,
    LfsPointer,
    Safetensors,
    Gzip,
    Text,
    Unknown,
}

impl FileKind {
    /// What the file with these bytes is.
    pub fn of(bytes: &[u8]) -> Self {
        let starts = |magic: &[u8]| bytes.starts_with(magic);
        let has_id = |id: &[u8]| bytes.get(4..4 + id.len()) == Some(id);
        if bytes.is_empty() {
            Self::Empty
        } else if has_id(b"ET12") {
            Self::Program
        } else if has_id(b"BP") {
            Self::BundledProgram
        } else if has_id(b"FT01") {
            Self::DataFile
        } else if let [_, _, _, _, b'E', b'T', a, b, ..] = *bytes {
            Self::OtherProgram([a, b])
        } else if starts(b"PK\x03\x04") || starts(b"PK\x05\x06") {
            Self::Zip
        } else if starts(b"\x7fELF") {
            Self::Elf
        } else if starts(b"version https://git-lfs") {
            Self::LfsPointer
        } else if starts(b"\x1f\x8b") {
            Self::Gzip
        } else if matches!(*bytes, [_, _, _, _, _, 0, 0, 0, b'{', ..]) {
            Self::Safetensors
        } else if is_text(bytes) {
            Self::Text
        } else {
            Self::Unknown
        }
    }

    /// What to do about it, to be put behind a message.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::LfsPointer => "; fetch the real file with `git lfs pull`",
            Self::BundledProgram => "; give the program that it was bundled from",
            Self::DataFile => "; give it with data_path, beside its program",
            Self::Program => "; give it as the program",
            Self::Zip => "; export it to .pte first, if it is a .pt2",
            Self::OtherProgram(_) => "; export it anew",
            _ => "",
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::NoFile => "a device or pipe",
            Self::Empty => "an empty file",
            Self::Program => "an ExecuTorch program (.pte)",
            Self::OtherProgram(id) => {
                let [a, b] = id.map(|byte| if byte.is_ascii_graphic() { char::from(byte) } else { '?' });
                return write!(f, "a program of another format, ET{a}{b} instead of ET12");
            }
            Self::BundledProgram => "a bundled program with test data (.bpte)",
            Self::DataFile => "an ExecuTorch data file (.ptd)",
            Self::Zip => "a zip archive (.pt2, .pt or .zip)",
            Self::Elf => "a shared object or executable (ELF)",
            Self::LfsPointer => "a Git LFS pointer, not the file itself",
            Self::Safetensors => "a safetensors file",
            Self::Gzip => "a gzip file",
            Self::Text => "a text file",
            Self::Unknown => "a file of unknown kind",
        })
    }
}

/// Whether the first bytes are printable ASCII.
fn is_text(bytes: &[u8]) -> bool {
    const LOOKED_AT: usize = 64;
    bytes.iter().take(LOOKED_AT).all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

/// Where the tables end and the segments begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extents {
    /// The length of the tables, from byte 0.
    pub(super) tables: usize,
    /// Where segments begin; `None` where the file has none.
    pub(super) segments: Option<usize>,
}

/// The little-endian number at `at`, or the fault that the file is too short for it.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u64, Fault> {
    let end = at + N;
    let field =
        bytes.get(at..end).ok_or(Fault::Cut { needed_bytes: end as u64, held_bytes: bytes.len() as u64 })?;
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(field);
    Ok(u64::from_le_bytes(wide))
}

/// `value`, once it is known to be at most the length of the file.
fn inside(value: u64, bytes: &[u8]) -> Result<usize, Fault> {
    usize::try_from(value)
        .ok()
        .filter(|&value| value <= bytes.len())
        .ok_or(Fault::Cut { needed_bytes: value, held_bytes: bytes.len() as u64 })
}

/// The extents of a program.
///
/// # Source
/// `ExtendedHeader::Parse` and `Program::load` of the ExecuTorch runtime.
pub(super) fn program_extents(bytes: &[u8]) -> Result<Extents, Fault> {
    const MAGIC: &[u8] = b"eh00";
    const LENGTH_MIN: u64 = 24;
    const LENGTH_WITH_DATA_SIZE: u64 = 32;
    let found = FileKind::of(bytes);
    if found != FileKind::Program {
        return Err(Fault::NotAProgram { found });
    }
    if bytes.get(8..12) != Some(MAGIC) {
        return Ok(Extents { tables: bytes.len(), segments: None });
    }
    let length = number::<4>(bytes, 12)?;
    if length < LENGTH_MIN {
        return Err(Fault::Header { field: "length", value: length, rule: "at least", bound: LENGTH_MIN });
    }
    let (tables, base) = (number::<8>(bytes, 16)?, number::<8>(bytes, 24)?);
    let data = if length < LENGTH_WITH_DATA_SIZE { 0 } else { number::<8>(bytes, 32)? };
    let end = base.checked_add(data).ok_or(Fault::Header {
        field: "size of segments",
        value: data,
        rule: "at most",
        bound: u64::MAX - base,
    })?;
    inside(end, bytes)?;
    let tables = inside(tables, bytes)?;
    if (tables as u64) < 8 + length {
        let (value, bound) = (tables as u64, 8 + length);
        return Err(Fault::Header { field: "end of tables", value, rule: "at least", bound });
    }
    if base == 0 {
        if data > 0 {
            return Err(Fault::SegmentWithoutBase { size_bytes: data });
        }
        return Ok(Extents { tables, segments: None });
    }
    if base < tables as u64 {
        let bound = tables as u64;
        return Err(Fault::Header { field: "begin of segments", value: base, rule: "at least", bound });
    }
    Ok(Extents { tables, segments: Some(inside(base, bytes)?) })
}

/// The extents of a data file.
///
/// # Source
/// `FlatTensorHeader::Parse` of the ExecuTorch runtime.
pub(super) fn data_extents(bytes: &[u8]) -> Result<Extents, Fault> {
    const MAGIC: &[u8] = b"FH01";
    const LENGTH_MIN: u64 = 40;
    let found = FileKind::of(bytes);
    if found != FileKind::DataFile {
        return Err(Fault::NotADataFile { found });
    }
    if bytes.get(8..12).is_some_and(|magic| magic != MAGIC) {
        return Err(Fault::Missing { field: "its header (FH01)" });
    }
    let length = number::<4>(bytes, 12)?;
    if length < LENGTH_MIN {
        return Err(Fault::Header { field: "length", value: length, rule: "at least", bound: LENGTH_MIN });
    }
    let (offset, size) = (number::<8>(bytes, 16)?, number::<8>(bytes, 24)?);
    let (base, data) = (number::<8>(bytes, 32)?, number::<8>(bytes, 40)?);
    let tables = inside(offset.saturating_add(size), bytes)?;
    inside(base.saturating_add(data), bytes)?;
    if base < tables as u64 && (base > 0 || data > 0) {
        let bound = tables as u64;
        return Err(Fault::Header { field: "begin of segments", value: base, rule: "at least", bound });
    }
    Ok(Extents { tables, segments: if base == 0 { None } else { Some(inside(base, bytes)?) } })
}

/// The range of a segment in its file.
pub(super) fn segment_range(
    extents: Extents,
    offset: u64,
    size_bytes: u64,
    held: usize,
) -> Result<core::ops::Range<usize>, Fault> {
    if size_bytes == 0 {
        return Ok(0..0);
    }
    let base = extents.segments.ok_or(Fault::SegmentWithoutBase { size_bytes })?;
    let start = offset.checked_add(base as u64);
    let end = start.and_then(|start| start.checked_add(size_bytes)).filter(|&end| end <= held as u64);
    match (start.map(usize::try_from), end.map(usize::try_from)) {
        (Some(Ok(start)), Some(Ok(end))) => Ok(start..end),
        _ => Err(Fault::SegmentOutside {
            offset: offset.saturating_add(base as u64),
            size_bytes,
            held_bytes: held as u64,
        }),
    }
}
