#![forbid(unsafe_code)]
//! Data files (`.ptd`): named bytes outside a program, some with the layout of a tensor.
//!
//! ```text
//!   key ──► segment of the file (several keys may share one)
//!       └─► layout: element kind, sizes, dimension order (tensors only)
//! ```
//!
//! Deliberately absent: which program a file belongs to. The caller pairs them; keys and layouts tell.
//!
//! # Source
//! `flat_tensor.fbs` and `FlatTensorDataMap` of ExecuTorch, schema version 0.

use super::budget::Budget;
use super::bytes::ProgramBytes;
use super::error::{At, Fault, Layout, Part, ProgramError, Refusal};
use super::header::{data_extents, segment_range};
use super::method::DataRef;
use super::schema::{DataSegment, FlatTensor, NamedData, TensorLayout, required};
use super::tensor::{check_sizes, check_tensor_bytes};
use crate::tensor::DType;

/// A data file.
#[derive(Debug)]
pub(super) struct DataFile {
    pub(super) label: Box<str>,
    pub(super) bytes: ProgramBytes,
    /// In order of keys.
    entries: Vec<Entry>,
}

/// One key of a data file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Box<str>,
    pub(super) data: DataRef,
    pub(super) layout: Option<Layout>,
}

impl DataFile {
    /// Reads and checks a file. `source` is what its [`DataRef`]s name.
    pub(super) fn new(label: Box<str>, bytes: ProgramBytes, source: u32) -> Result<Self, ProgramError> {
        let entries =
            entries(bytes.as_slice(), source).map_err(|refusal| refusal.into_error(&label, None, true))?;
        Ok(Self { label, bytes, entries })
    }

    /// The keys, in order.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What this key names.
    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        let found = self.entries.binary_search_by(|entry| (*entry.key).cmp(key)).ok()?;
        self.entries.get(found)
    }
}

fn entries(file: &[u8], source: u32) -> Result<Vec<Entry>, Refusal> {
    let extents = data_extents(file)?;
    let tables = &file[..extents.tables];
    let mut budget = Budget::new(tables.len());
    let root = FlatTensor::root(tables)?;
    let version = root.version()?;
    if version > 0 {
        return Err(Fault::Version { version }.into());
    }
    let segments = required(root.segments()?, "segments")?;
    let named = required(root.named_data()?, "named_data")?;
    budget.charge::<Entry>(named.len())?;
    let mut entries = Vec::with_capacity(named.len());
    for index in 0..named.len() {
        let part = Part::NamedData(budget.index(index)?);
        let row: NamedData<'_> = named.get(index).at(part)?;
        let key = required(row.key().at(part)?, "key").at(part)?;
        budget.charge::<u8>(key.len()).at(part)?;
        let segment = row.segment_index().at(part)?;
        if segment as usize >= segments.len() {
            let fault = Fault::Index { what: "segment", index: segment.into(), count: segments.len() };
            return Err(Refusal { part, fault });
        }
        let place: DataSegment<'_> = segments.get(segment as usize).at(part)?;
        let (offset, size) = (place.offset().at(part)?, place.size().at(part)?);
        let range = segment_range(extents, offset, size, file.len()).at(Part::Segment(segment))?;
        let data = DataRef { source, offset: range.start, len: range.len() };
        let layout = match row.tensor_layout().at(part)? {
            Some(layout) => Some(read_layout(layout, key, data.len, &mut budget).at(part)?),
            None => None,
        };
        entries.push(Entry { key: key.into(), data, layout });
    }
    entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    if let Some(pair) = entries.windows(2).find(|pair| pair[0].key == pair[1].key) {
        return Err(Fault::KeyTwice { key: pair[0].key.clone() }.into());
    }
    Ok(entries)
}

fn read_layout(
    layout: TensorLayout<'_>,
    key: &str,
    held_bytes: usize,
    budget: &mut Budget,
) -> Result<Layout, Fault> {
    let code = i64::from(layout.scalar_type()?);
    let dtype = DType::from_code(code).ok_or(Fault::DType { code })?;
    let sizes = required(layout.sizes()?, "sizes")?;
    let order = required(layout.dim_order()?, "dim_order")?;
    budget.charge::<usize>(sizes.len())?;
    let mut owned = Vec::with_capacity(sizes.len());
    check_sizes(sizes, order, &mut owned)?;
    let needed_bytes = check_tensor_bytes(dtype, &owned)?;
    if held_bytes < needed_bytes {
        return Err(Fault::DataShort { key: key.into(), needed_bytes, held_bytes });
    }
    Ok(Layout { dtype, sizes: owned.into(), order: order.into() })
}
