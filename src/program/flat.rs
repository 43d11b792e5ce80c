#![forbid(unsafe_code)]
//! Flatbuffer tables, as `planus` reads them: bounds are checked at each access.
//!
//! Deliberately absent: names and meaning of fields; see [`super::schema`].

use planus::errors::ErrorKind;
use planus::table_reader::Table;
use planus::{SliceWithStartOffset, TableRead};

/// A table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tab<'a>(Table<'a>);

impl<'a> Tab<'a> {
    /// The root table of a buffer.
    pub(super) fn root(bytes: &'a [u8], name: &'static str) -> planus::Result<Self> {
        let buffer = SliceWithStartOffset { buffer: bytes, offset_from_start: 0 };
        Table::from_buffer(buffer, 0).map(Self).map_err(|kind| kind.with_error_location(name, "root", 0))
    }

    /// The field in this slot, or `None` where the file leaves it out.
    #[inline]
    pub(super) fn field<T: TableRead<'a>>(
        &self,
        slot: usize,
        table: &'static str,
        name: &'static str,
    ) -> planus::Result<Option<T>> {
        self.0.access(slot, table, name)
    }
}

impl<'a> TableRead<'a> for Tab<'a> {
    #[inline]
    fn from_buffer(buffer: SliceWithStartOffset<'a>, offset: usize) -> Result<Self, ErrorKind> {
        Table::from_buffer(buffer, offset).map(Self)
    }
}

/// A table of a known type.
pub(super) trait Row<'a>: TableRead<'a> {
    /// What errors call it.
    const NAME: &'static str;
}

/// A vector of tables of one type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables<'a> {
    /// From the first offset on; at least `4 * len` bytes.
    buffer: SliceWithStartOffset<'a>,
    len: usize,
}

impl<'a> Tables<'a> {
    /// How many.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The table at `index`.
    #[inline]
    pub(super) fn get<T: Row<'a>>(&self, index: usize) -> planus::Result<T> {
        let table = if index < self.len {
            T::from_buffer(self.buffer, index * 4)
        } else {
            Err(ErrorKind::InvalidOffset)
        };
        table.map_err(|kind| {
            kind.with_error_location(T::NAME, "(element)", self.buffer.offset_from_start + index * 4)
        })
    }
}

impl<'a> TableRead<'a> for Tables<'a> {
    #[inline]
    fn from_buffer(buffer: SliceWithStartOffset<'a>, offset: usize) -> Result<Self, ErrorKind> {
        let relative = u32::from_buffer(buffer, offset)?;
        let start = offset.checked_add(relative as usize).ok_or(ErrorKind::InvalidOffset)?;
        let buffer = buffer.advance(start)?;
        let len = u32::from_buffer(buffer, 0)? as usize;
        let buffer = buffer.advance(4)?;
        if len > buffer.len() / 4 {
            return Err(ErrorKind::InvalidLength);
        }
        Ok(Self { buffer, len })
    }
}
