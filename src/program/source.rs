#![forbid(unsafe_code)]
//! What the methods of a program read from: its constants, initial values, blobs and data files.
//!
//! Deliberately absent: methods; see [`super::plan`], [`super::tensor`] and [`super::steps`].

use super::budget::Budget;
use super::data::DataFile;
use super::error::{At, Fault, Layout, Part, Refusal};
use super::header::{Extents, segment_range};
use super::method::{DataRef, MethodPlan, TensorSpec};
use super::schema::{Buffer, DataSegment, NamedData, Program, SubsegmentOffsets, required};
use crate::tensor::DType;
use crate::value::Span;
use planus::Vector;
use std::collections::BTreeMap;

/// Where constants lie.
enum Constants<'a> {
    /// In a segment, each from its offset on.
    Segment { segment: DataRef, offsets: Vector<'a, u64> },
    /// In the tables, as files of 2024 have them.
    Inline(super::flat::Tables<'a>),
}

/// What the methods of a program read from.
pub(super) struct Source<'a> {
    pub(super) budget: Budget,
    file: &'a [u8],
    constants: Option<Constants<'a>>,
    initials: Option<(DataRef, Vector<'a, u64>)>,
    segments: Vec<DataRef>,
    inline_blobs: Option<super::flat::Tables<'a>>,
    data_files: &'a [DataFile],
    /// Constants that lie badly in their file, and where their copies go.
    realigned: BTreeMap<DataRef, usize>,
    realigned_bytes: usize,
}

/// The source number of the program itself.
const PROGRAM: u32 = 0;

impl<'a> Source<'a> {
    /// Reads what all methods share.
    pub(super) fn new(
        root: Program<'a>,
        file: &'a [u8],
        extents: Extents,
        data_files: &'a [DataFile],
    ) -> Result<Self, Refusal> {
        let mut budget = Budget::new(extents.tables);
        let segments = read_segments(root, file, extents, &mut budget)?;
        let constants = read_constants(root, &segments, extents)?;
        let initials = match root.mutable_data_segments()? {
            Some(list) if list.len() > 0 => {
                let first: SubsegmentOffsets<'_> = list.get(0)?;
                let offsets = required(first.offsets()?, "offsets")?;
                if offsets.is_empty() {
                    None
                } else {
                    Some((segment_at(&segments, first.segment_index()?)?, offsets))
                }
            }
            _ => None,
        };
        Ok(Self {
            budget,
            file,
            constants,
            initials,
            segments,
            inline_blobs: root.backend_delegate_data()?,
            data_files,
            realigned: BTreeMap::new(),
            realigned_bytes: 0,
        })
    }

    /// Copies text into the pool of `plan`.
    #[inline]
    pub(super) fn text(&mut self, text: &str, plan: &mut MethodPlan) -> Result<Span, Fault> {
        self.budget.charge::<u8>(text.len())?;
        let span = self.budget.span(plan.lists.text.len(), text.len())?;
        plan.lists.text.push_str(text);
        Ok(span)
    }

    /// A range of the program, given as the bytes that the tables hold.
    pub(super) fn inline(&self, bytes: &[u8]) -> DataRef {
        let offset = bytes.as_ptr().addr().saturating_sub(self.file.as_ptr().addr());
        DataRef { source: PROGRAM, offset, len: bytes.len() }
    }

    /// Constant `index`, for this tensor.
    pub(super) fn constant(&mut self, index: u32, spec: &TensorSpec) -> Result<DataRef, Fault> {
        let unknown = |count| Fault::Index { what: "constant", index: index.into(), count };
        let found = match self.constants {
            None => return Err(unknown(0)),
            Some(Constants::Segment { segment, offsets }) => {
                let offset = offsets.get(index as usize).ok_or_else(|| unknown(offsets.len()))?;
                part_of(segment, index, offset, spec.size_bytes)?
            }
            Some(Constants::Inline(buffers)) => {
                if index as usize >= buffers.len() {
                    return Err(unknown(buffers.len()));
                }
                let buffer: Buffer<'_> = buffers.get(index as usize)?;
                let held = self.inline(buffer.storage()?.unwrap_or_default());
                part_of(held, index, 0, spec.size_bytes)?
            }
        };
        self.aligned(found, spec.dtype)
    }

    /// The initial value `index` of a mutable buffer.
    pub(super) fn initial(&self, index: u32, size_bytes: usize) -> Result<DataRef, Fault> {
        let (segment, offsets) = self.initials.ok_or(Fault::NoInitials { index })?;
        let unknown = || Fault::Index { what: "initial value", index: index.into(), count: offsets.len() };
        let offset = offsets.get(index as usize).ok_or_else(unknown)?;
        part_of(segment, index, offset, size_bytes)
    }

    /// The bytes of a named tensor in the data files; `None` where none has it.
    pub(super) fn external(
        &self,
        name: &str,
        spec: &TensorSpec,
        plan: &MethodPlan,
    ) -> Result<Option<DataRef>, Fault> {
        let Some(entry) = self.data_files.iter().find_map(|file| file.get(name)) else {
            return Ok(None);
        };
        let key = || name.into();
        let found = entry.layout.as_ref().ok_or_else(|| Fault::NoDataLayout { key: key() })?;
        let (sizes, order) = (plan.sizes(spec), plan.order(spec));
        if found.dtype != spec.dtype || *found.sizes != *sizes || *found.order != *order {
            let wanted = Layout { dtype: spec.dtype, sizes: sizes.into(), order: order.into() };
            let (wanted, found) = (Box::new(wanted), Box::new(found.clone()));
            return Err(Fault::DataLayout { key: key(), wanted, found });
        }
        // The layout is the tensor's, and the data file's reader compared it with the length.
        Ok(Some(DataRef { len: spec.size_bytes, ..entry.data }))
    }

    /// A delegate's blob.
    pub(super) fn blob(&self, location: i8, index: u32) -> Result<DataRef, Fault> {
        match location {
            0 => {
                let count = self.inline_blobs.map_or(0, |blobs| blobs.len());
                match self.inline_blobs {
                    Some(blobs) if (index as usize) < count => {
                        let blob: Buffer<'_> = blobs.get(index as usize)?;
                        Ok(self.inline(blob.storage()?.unwrap_or_default()))
                    }
                    _ => Err(Fault::Index { what: "inline delegate data", index: index.into(), count }),
                }
            }
            1 => self.segments.get(index as usize).copied().ok_or(Fault::Index {
                what: "segment of delegate data",
                index: index.into(),
                count: self.segments.len(),
            }),
            tag => Err(Fault::Tag { what: "location of delegate data", tag: tag.into() }),
        }
    }

    /// The program's own named data, in order of keys.
    pub(super) fn named_data(&mut self, root: Program<'a>) -> Result<Vec<(Box<str>, DataRef)>, Refusal> {
        let Some(rows) = root.named_data()? else {
            return Ok(Vec::new());
        };
        self.budget.charge::<(Box<str>, DataRef)>(rows.len())?;
        let mut named: Vec<(Box<str>, DataRef)> = Vec::with_capacity(rows.len());
        for index in 0..rows.len() {
            let part = Part::NamedData(self.budget.index(index)?);
            let row: NamedData<'_> = rows.get(index).at(part)?;
            let key = required(row.key().at(part)?, "key").at(part)?;
            self.budget.charge::<u8>(key.len()).at(part)?;
            named.push((key.into(), segment_at(&self.segments, row.segment_index().at(part)?).at(part)?));
        }
        named.sort_unstable();
        if let Some(pair) = named.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Fault::KeyTwice { key: pair[0].0.clone() }.into());
        }
        Ok(named)
    }

    /// The range, or where a copy of it will be if it does not lie as its elements must.
    ///
    /// The exporter aligns constants to 16 unless told otherwise; the format does not ask for it.
    pub(super) fn aligned(&mut self, data: DataRef, dtype: DType) -> Result<DataRef, Fault> {
        if data.offset.is_multiple_of(dtype.size_bytes()) {
            return Ok(data);
        }
        let source = self.budget.index(self.data_files.len() + 1)?;
        if let Some(&offset) = self.realigned.get(&data) {
            return Ok(DataRef { source, offset, len: data.len });
        }
        let offset = self.realigned_bytes.next_multiple_of(ALIGNMENT);
        let held =
            self.file.len() + self.data_files.iter().map(|file| file.bytes.as_slice().len()).sum::<usize>();
        let limit_bytes = held.saturating_mul(2);
        if offset.saturating_add(data.len) > limit_bytes {
            return Err(Fault::Unfolds { limit_bytes });
        }
        self.realigned_bytes = offset + data.len;
        self.realigned.insert(data, offset);
        Ok(DataRef { source, offset, len: data.len })
    }

    /// The copies that [`Source::aligned`] promised.
    pub(super) fn into_realigned(self) -> Vec<u8> {
        let mut copies = vec![0; self.realigned_bytes];
        for (data, offset) in self.realigned {
            let file = match data.source {
                PROGRAM => self.file,
                number => self.data_files[number as usize - 1].bytes.as_slice(),
            };
            copies[offset..offset + data.len].copy_from_slice(&file[data.offset..data.offset + data.len]);
        }
        copies
    }
}

/// The alignment of a copied constant.
const ALIGNMENT: usize = 64;

/// `size_bytes` from `offset` on in what holds constant `index`.
fn part_of(held: DataRef, index: u32, offset: u64, size_bytes: usize) -> Result<DataRef, Fault> {
    if size_bytes == 0 {
        return Ok(DataRef { len: 0, offset: 0, ..held });
    }
    let start = usize::try_from(offset).ok();
    let end = start.and_then(|start| start.checked_add(size_bytes)).filter(|&end| end <= held.len);
    match (start, end) {
        (Some(start), Some(_)) => Ok(DataRef { offset: held.offset + start, len: size_bytes, ..held }),
        _ => Err(Fault::ConstantOutside { index, offset, size_bytes, held_bytes: held.len }),
    }
}

fn segment_at(segments: &[DataRef], index: u32) -> Result<DataRef, Fault> {
    let unknown = || Fault::Index { what: "segment", index: index.into(), count: segments.len() };
    segments.get(index as usize).copied().ok_or_else(unknown)
}

fn read_segments(
    root: Program<'_>,
    file: &[u8],
    extents: Extents,
    budget: &mut Budget,
) -> Result<Vec<DataRef>, Refusal> {
    let Some(rows) = root.segments()? else {
        return Ok(Vec::new());
    };
    budget.charge::<DataRef>(rows.len())?;
    let mut segments = Vec::with_capacity(rows.len());
    for index in 0..rows.len() {
        let part = Part::Segment(budget.index(index)?);
        let row: DataSegment<'_> = rows.get(index).at(part)?;
        let range =
            segment_range(extents, row.offset().at(part)?, row.size().at(part)?, file.len()).at(part)?;
        segments.push(DataRef { source: PROGRAM, offset: range.start, len: range.len() });
    }
    Ok(segments)
}

fn read_constants<'a>(
    root: Program<'a>,
    segments: &[DataRef],
    extents: Extents,
) -> Result<Option<Constants<'a>>, Fault> {
    let inline = root.constant_buffer()?.filter(|buffers| buffers.len() > 0);
    let offsets = match root.constant_segment()? {
        Some(place) => place.offsets()?.filter(|offsets| !offsets.is_empty()).map(|offsets| (place, offsets)),
        None => None,
    };
    let Some((place, offsets)) = offsets else {
        return Ok(inline.map(Constants::Inline));
    };
    if inline.is_some() {
        return Err(Fault::ConstantsTwice);
    }
    let segment = segment_at(segments, place.segment_index()?)?;
    if offsets.len() > 1 && segment.len > 0 && extents.segments.is_none() {
        return Err(Fault::SegmentWithoutBase { size_bytes: segment.len as u64 });
    }
    Ok(Some(Constants::Segment { segment, offsets }))
}
