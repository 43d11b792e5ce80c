//! Writes `.pte` and `.ptd` files of any content, right or wrong.
//!
//! ```text
//!   Pte { root: Table, segments } ── bytes() ──► header │ tables │ pad │ segments
//! ```
//!
//! A [`Table`] maps slots to fields; slots are those of the schema. [`Pte::sample`] is a small valid
//! program with one of everything; a test breaks one field of it.
//!
//! Deliberately absent: any check.

use std::collections::BTreeMap;

/// A field of a table.
#[derive(Clone, Debug)]
pub enum Field {
    U8(u8),
    I8(i8),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F64(f64),
    Text(String),
    Bytes(Vec<u8>),
    I32s(Vec<i32>),
    I64s(Vec<i64>),
    U64s(Vec<u64>),
    F64s(Vec<f64>),
    Table(Table),
    Tables(Vec<Table>),
    /// One table, named this many times.
    Repeated(Box<Table>, usize),
    /// An offset or length that is what it is.
    Raw(u32),
}

/// A table: fields by slot.
#[derive(Clone, Debug, Default)]
pub struct Table(BTreeMap<usize, Field>);

/// An empty table.
pub fn table() -> Table {
    Table::default()
}

impl Table {
    /// This table with one more field.
    pub fn with(mut self, slot: usize, field: Field) -> Self {
        self.0.insert(slot, field);
        self
    }

    pub fn text(self, slot: usize, text: &str) -> Self {
        self.with(slot, Field::Text(text.into()))
    }

    pub fn set(&mut self, slot: usize, field: Field) {
        self.0.insert(slot, field);
    }

    pub fn remove(&mut self, slot: usize) {
        self.0.remove(&slot);
    }

    /// The table in `slot`.
    pub fn tab(&mut self, slot: usize) -> &mut Table {
        match self.0.get_mut(&slot) {
            Some(Field::Table(table)) => table,
            other => panic!("slot {slot} holds {other:?}"),
        }
    }

    /// The tables in `slot`.
    pub fn rows(&mut self, slot: usize) -> &mut Vec<Table> {
        match self.0.get_mut(&slot) {
            Some(Field::Tables(tables)) => tables,
            other => panic!("slot {slot} holds {other:?}"),
        }
    }

    pub fn row(&mut self, slot: usize, index: usize) -> &mut Table {
        &mut self.rows(slot)[index]
    }
}

/// Appends tables; children follow their parents, as planus wants.
struct Writer(Vec<u8>);

impl Writer {
    fn align(&mut self, alignment: usize, ahead: usize) {
        while !(self.0.len() + ahead).is_multiple_of(alignment) {
            self.0.push(0);
        }
    }

    fn patch(&mut self, at: usize, target: usize) {
        let relative = u32::try_from(target - at).unwrap();
        self.0[at..at + 4].copy_from_slice(&relative.to_le_bytes());
    }

    fn table(&mut self, table: &Table) -> usize {
        let slots = table.0.keys().max().map_or(0, |last| last + 1);
        let mut vtable = vec![0_u16; slots];
        let mut inline = vec![0_u8; 4];
        let mut children = Vec::new();
        // The table begins at a multiple of 8, so offsets in it are aligned as they are written.
        for (&slot, field) in &table.0 {
            let bytes = match field {
                Field::U8(value) => value.to_le_bytes().to_vec(),
                Field::I8(value) => value.to_le_bytes().to_vec(),
                Field::U32(value) | Field::Raw(value) => value.to_le_bytes().to_vec(),
                Field::I32(value) => value.to_le_bytes().to_vec(),
                Field::U64(value) => value.to_le_bytes().to_vec(),
                Field::I64(value) => value.to_le_bytes().to_vec(),
                Field::F64(value) => value.to_le_bytes().to_vec(),
                _ => vec![0; 4],
            };
            while !inline.len().is_multiple_of(bytes.len()) {
                inline.push(0);
            }
            vtable[slot] = u16::try_from(inline.len()).unwrap();
            if bytes == [0; 4] && !matches!(field, Field::U32(_) | Field::I32(_) | Field::Raw(_)) {
                children.push((inline.len(), field));
            }
            inline.extend(bytes);
        }
        let vtable_bytes = 4 + 2 * slots;
        self.align(8, vtable_bytes);
        let vtable_at = self.0.len();
        self.0.extend(u16::try_from(vtable_bytes).unwrap().to_le_bytes());
        self.0.extend(u16::try_from(inline.len()).unwrap().to_le_bytes());
        for slot in vtable {
            self.0.extend(slot.to_le_bytes());
        }
        let at = self.0.len();
        inline[..4].copy_from_slice(&i32::try_from(at - vtable_at).unwrap().to_le_bytes());
        self.0.extend(inline);
        for (offset, field) in children {
            let target = self.child(field);
            self.patch(at + offset, target);
        }
        at
    }

    fn vector(&mut self, len: usize, item_bytes: usize, bytes: impl IntoIterator<Item = u8>) -> usize {
        self.align(item_bytes.max(4), 4);
        let at = self.0.len();
        self.0.extend(u32::try_from(len).unwrap().to_le_bytes());
        self.0.extend(bytes);
        at
    }

    fn child(&mut self, field: &Field) -> usize {
        match field {
            Field::Text(text) => {
                let at = self.vector(text.len(), 1, text.bytes());
                self.0.push(0);
                at
            }
            Field::Bytes(bytes) => self.vector(bytes.len(), 16, bytes.iter().copied()),
            Field::I32s(items) => {
                self.vector(items.len(), 4, items.iter().flat_map(|item| item.to_le_bytes()))
            }
            Field::I64s(items) => {
                self.vector(items.len(), 8, items.iter().flat_map(|item| item.to_le_bytes()))
            }
            Field::U64s(items) => {
                self.vector(items.len(), 8, items.iter().flat_map(|item| item.to_le_bytes()))
            }
            Field::F64s(items) => {
                self.vector(items.len(), 8, items.iter().flat_map(|item| item.to_le_bytes()))
            }
            Field::Table(table) => self.table(table),
            Field::Tables(tables) => {
                let at = self.vector(tables.len(), 4, vec![0; 4 * tables.len()]);
                for (index, table) in tables.iter().enumerate() {
                    let target = self.table(table);
                    self.patch(at + 4 + 4 * index, target);
                }
                at
            }
            Field::Repeated(table, count) => {
                let at = self.vector(*count, 4, vec![0; 4 * count]);
                let target = self.table(table);
                for index in 0..*count {
                    self.patch(at + 4 + 4 * index, target);
                }
                at
            }
            scalar => panic!("{scalar:?} is no child"),
        }
    }
}

/// A program file.
#[derive(Clone, Debug)]
pub struct Pte {
    pub root: Table,
    /// Their bytes; the directory in the root is written from these when the file is.
    pub segments: Vec<Vec<u8>>,
    /// Whether there is an extended header.
    pub header: bool,
}

/// Slots that many tests name.
pub mod slot {
    pub const PLANS: usize = 1;
    pub const CONSTANT_BUFFER: usize = 2;
    pub const INLINE_BLOBS: usize = 3;
    pub const SEGMENTS: usize = 4;
    pub const CONSTANT_SEGMENT: usize = 5;
    pub const MUTABLE_SEGMENTS: usize = 6;
    pub const NAMED_DATA: usize = 7;

    pub const NAME: usize = 0;
    pub const VALUES: usize = 2;
    pub const INPUTS: usize = 3;
    pub const OUTPUTS: usize = 4;
    pub const CHAINS: usize = 5;
    pub const OPERATORS: usize = 6;
    pub const DELEGATES: usize = 7;
    pub const BUFFERS: usize = 8;
    pub const DEVICES: usize = 9;

    /// Of a tensor.
    pub const SIZES: usize = 2;
    pub const ORDER: usize = 3;
    pub const CONSTANT: usize = 5;
    pub const PLACE: usize = 6;
    pub const DYNAMISM: usize = 8;
    pub const EXTRA: usize = 9;
}

/// A float32 tensor of these sizes, in row-major order.
pub fn tensor(sizes: &[i32]) -> Table {
    let order = (0..sizes.len()).map(|dim| u8::try_from(dim).unwrap()).collect();
    table()
        .with(0, Field::I8(6))
        .with(slot::SIZES, Field::I32s(sizes.to_vec()))
        .with(slot::ORDER, Field::Bytes(order))
}

/// The place of a planned tensor.
pub fn place(memory_id: u32, offset: u32) -> Field {
    Field::Table(table().with(0, Field::U32(memory_id)).with(1, Field::U32(offset)))
}

/// A name, and whether the data is in a data file.
pub fn extra(name: &str, external: bool) -> Field {
    Field::Table(table().text(1, name).with(2, Field::I8(i8::from(external))))
}

/// A value with this union tag.
pub fn value(tag: u8, of: Table) -> Table {
    table().with(0, Field::U8(tag)).with(1, Field::Table(of))
}

/// An instruction with this union tag.
pub fn step(tag: u8, of: Table) -> Table {
    value(tag, of)
}

pub fn kernel_call(operator: i32, args: &[i32]) -> Table {
    step(1, table().with(0, Field::I32(operator)).with(1, Field::I32s(args.to_vec())))
}

pub fn chain(steps: Vec<Table>) -> Table {
    table().with(2, Field::Tables(steps))
}

pub fn operator(name: &str, overload: &str) -> Table {
    table().text(0, name).text(1, overload)
}

/// Value indices of [`Pte::sample`].
pub mod at {
    pub const INPUT: usize = 0;
    pub const CONSTANT: usize = 1;
    pub const OUTPUT: usize = 2;
    pub const INT: usize = 3;
    pub const INT_LIST: usize = 4;
    pub const NONE: usize = 5;
    pub const OPTIONAL_TENSORS: usize = 6;
    pub const BOOL: usize = 7;
    pub const TENSORS: usize = 8;
    pub const DOUBLE: usize = 9;
    pub const TEXT: usize = 10;
    pub const DOUBLES: usize = 11;
    pub const BOOLS: usize = 12;
    pub const STATE: usize = 13;
}

impl Pte {
    /// A valid program with one of everything: `forward` of one input and one output.
    pub fn sample() -> Self {
        let values = vec![
            value(5, tensor(&[2, 2]).with(slot::PLACE, place(1, 0))),
            value(5, tensor(&[2, 2]).with(slot::CONSTANT, Field::U32(1))),
            value(5, tensor(&[2, 2]).with(slot::PLACE, place(1, 16))),
            value(2, table().with(0, Field::I64(-7))),
            value(7, table().with(0, Field::I64s(vec![3, 3]))),
            value(1, table()),
            value(11, table().with(0, Field::I32s(vec![0, -1, 5]))),
            value(3, table().with(0, Field::U8(1))),
            value(10, table().with(0, Field::I32s(vec![0, 2]))),
            value(4, table().with(0, Field::F64(0.5))),
            value(6, table().text(0, "words")),
            value(8, table().with(0, Field::F64s(vec![1.5, -2.5]))),
            value(9, table().with(0, Field::Bytes(vec![1, 0, 1]))),
            value(
                5,
                tensor(&[2, 2])
                    .with(slot::CONSTANT, Field::U32(1))
                    .with(slot::PLACE, place(2, 0))
                    .with(slot::EXTRA, extra("state", false)),
            ),
        ];
        let steps = vec![
            kernel_call(0, &[0, 1, 2, 2]),
            step(3, table().with(0, Field::I32(3)).with(1, Field::I32(3))),
            step(4, table().with(0, Field::I32(7)).with(1, Field::I32(5))),
            step(2, table().with(0, Field::I32(0)).with(1, Field::I32s(vec![0, 2]))),
            step(5, table().with(0, Field::I32(0))),
        ];
        let delegate = table()
            .text(0, "TestBackend")
            .with(1, Field::Table(table()))
            .with(2, Field::Tables(vec![table().text(0, "mode").with(1, Field::Bytes(vec![1, 2]))]));
        let plan = table()
            .text(slot::NAME, "forward")
            .with(slot::VALUES, Field::Tables(values))
            .with(slot::INPUTS, Field::I32s(vec![0]))
            .with(slot::OUTPUTS, Field::I32s(vec![2]))
            .with(slot::CHAINS, Field::Tables(vec![chain(steps)]))
            .with(
                slot::OPERATORS,
                Field::Tables(vec![operator("aten::mul", "out"), table().text(0, "aten::copy_")]),
            )
            .with(slot::DELEGATES, Field::Tables(vec![delegate]))
            .with(slot::BUFFERS, Field::I64s(vec![0, 32, 16]));
        let offsets = |items: &[u64]| table().with(1, Field::U64s(items.to_vec()));
        let root = table()
            .with(slot::PLANS, Field::Tables(vec![plan]))
            .with(
                slot::INLINE_BLOBS,
                Field::Tables(vec![table().with(0, Field::Bytes(b"processed".to_vec()))]),
            )
            .with(slot::CONSTANT_SEGMENT, Field::Table(offsets(&[0, 0])))
            .with(slot::MUTABLE_SEGMENTS, Field::Tables(vec![offsets(&[0, 0]).with(0, Field::U32(1))]))
            .with(slot::NAMED_DATA, Field::Tables(vec![table().text(0, "blob").with(1, Field::U32(2))]));
        let floats = |items: [f32; 4]| items.iter().flat_map(|item| item.to_le_bytes()).collect();
        let segments = vec![floats([1.0, 2.0, 3.0, 4.0]), floats([5.0, 6.0, 7.0, 8.0]), b"named".to_vec()];
        Self { root, segments, header: true }
    }

    /// The first method.
    pub fn plan(&mut self) -> &mut Table {
        self.root.row(slot::PLANS, 0)
    }

    /// A value of the first method.
    pub fn value(&mut self, index: usize) -> &mut Table {
        self.plan().row(slot::VALUES, index)
    }

    /// What a value of the first method holds.
    pub fn inner(&mut self, index: usize) -> &mut Table {
        self.value(index).tab(1)
    }

    /// What an instruction of the first chain holds.
    pub fn step(&mut self, index: usize) -> &mut Table {
        self.plan().row(slot::CHAINS, 0).row(2, index).tab(1)
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut root = self.root.clone();
        let mut offset = 0;
        let directory = self.segments.iter().map(|segment| {
            let row = table().with(0, Field::U64(offset)).with(1, Field::U64(segment.len() as u64));
            offset += (segment.len() as u64).next_multiple_of(128);
            row
        });
        let directory = Field::Tables(directory.collect());
        root.0.entry(slot::SEGMENTS).or_insert(directory);
        let mut writer = Writer(b"\0\0\0\0ET12".to_vec());
        if self.header {
            writer.0.resize(40, 0);
        }
        let at = writer.table(&root);
        writer.patch(0, at);
        let mut file = writer.0;
        if self.header {
            let (tables, base) = (file.len(), file.len().next_multiple_of(128));
            for segment in &self.segments {
                file.resize(file.len().next_multiple_of(128), 0);
                file.extend(segment);
            }
            let data = if file.len() > base { file.len() - base } else { 0 };
            file[8..12].copy_from_slice(b"eh00");
            file[12..16].copy_from_slice(&32_u32.to_le_bytes());
            for (at, number) in [(16, tables), (24, base), (32, data)] {
                file[at..at + 8].copy_from_slice(&(number as u64).to_le_bytes());
            }
        }
        file
    }
}

/// A data file.
#[derive(Clone, Debug)]
pub struct Ptd {
    pub root: Table,
    pub segments: Vec<Vec<u8>>,
}

impl Ptd {
    /// A data file of float32 tensors `(key, sizes, elements)`.
    pub fn tensors(items: &[(&str, &[i32], &[f32])]) -> Self {
        let rows = items.iter().zip(0_u32..).map(|(&(key, sizes, _), index)| {
            let order = (0..sizes.len()).map(|dim| u8::try_from(dim).unwrap()).collect();
            let layout = table()
                .with(0, Field::I8(6))
                .with(1, Field::I32s(sizes.to_vec()))
                .with(2, Field::Bytes(order));
            table().text(0, key).with(1, Field::U32(index)).with(2, Field::Table(layout))
        });
        let root = table().with(2, Field::Tables(rows.collect()));
        let segments =
            items.iter().map(|(_, _, data)| data.iter().flat_map(|item| item.to_le_bytes()).collect());
        Self { root, segments: segments.collect() }
    }

    /// A row of the named data.
    pub fn row(&mut self, index: usize) -> &mut Table {
        self.root.row(2, index)
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut root = self.root.clone();
        let mut offset = 0;
        let directory = self.segments.iter().map(|segment| {
            let row = table().with(0, Field::U64(offset)).with(1, Field::U64(segment.len() as u64));
            offset += (segment.len() as u64).next_multiple_of(128);
            row
        });
        let directory = Field::Tables(directory.collect());
        root.0.entry(1).or_insert(directory);
        let mut writer = Writer(b"\0\0\0\0FT01".to_vec());
        writer.0.resize(48, 0);
        let at = writer.table(&root);
        writer.patch(0, at);
        let mut file = writer.0;
        let (tables, base) = (file.len(), file.len().next_multiple_of(128));
        for segment in &self.segments {
            file.resize(file.len().next_multiple_of(128), 0);
            file.extend(segment);
        }
        file.resize(file.len().max(base), 0);
        file[8..12].copy_from_slice(b"FH01");
        file[12..16].copy_from_slice(&40_u32.to_le_bytes());
        for (at, number) in [(16, 48), (24, tables - 48), (32, base), (40, file.len() - base)] {
            file[at..at + 8].copy_from_slice(&(number as u64).to_le_bytes());
        }
        file
    }
}
