#![forbid(unsafe_code)]
//! What people ask of a program: signature, sizes, constants, names. Nothing is run or claimed for it.
//!
//! Deliberately absent: text. Printing is for the command line and for Python.
//!
//! # Source
//! `MethodMeta` of the ExecuTorch runtime, version 1.5.

use super::method::{DataRef, MethodPlan, Storage, TensorSpec};
use super::{Program, State};
use crate::space::SpaceId;
use crate::tensor::DType;
use crate::value::{Value, ValueId};

/// An input or output, as the file describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ValueMeta<'a> {
    /// Nothing.
    None,
    /// A whole number: an input must equal it.
    Int(i64),
    /// A truth value: an input must equal it.
    Bool(bool),
    /// A real number: an input must equal it, nearly.
    Double(f64),
    /// Text: an input must equal it.
    Text(&'a str),
    /// A tensor.
    Tensor(TensorMeta<'a>),
}

/// A tensor, as the file describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorMeta<'a> {
    /// The element kind.
    pub dtype: DType,
    /// Sizes in elements; the most there may be where `dynamic`.
    pub sizes: &'a [usize],
    /// The dimension stored at each position, outermost first.
    pub order: &'a [u8],
    /// Whether the sizes may change from run to run.
    pub dynamic: bool,
    /// The bytes of all elements at these sizes.
    pub size_bytes: usize,
    /// Where the bytes are.
    pub placement: Placement,
    /// In which space.
    pub space: SpaceId,
    /// The fully qualified name, where it has one.
    pub name: Option<&'a str>,
}

/// Where the bytes of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// In a file.
    Constant,
    /// In a planned buffer.
    Planned {
        /// The memory id, from 1.
        buffer: u32,
        /// From the start of the buffer.
        offset_bytes: usize,
    },
    /// Wherever the caller says.
    Supplied,
    /// In a data file that was not given.
    Missing,
}

/// A blob that delegates know by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedBlob<'a> {
    /// The key.
    pub key: &'a str,
    /// How many bytes.
    pub size_bytes: usize,
    /// The file it is in.
    pub file: &'a str,
}

/// The constants of a program; what several tensors share counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Constants {
    /// How many.
    pub count: usize,
    /// Their bytes.
    pub size_bytes: usize,
}

impl MethodPlan {
    /// What a value is.
    pub fn describe(&self, id: ValueId) -> ValueMeta<'_> {
        match self.value(id) {
            Value::Int(value) => ValueMeta::Int(value),
            Value::Bool(value) => ValueMeta::Bool(value),
            Value::Double(value) => ValueMeta::Double(value),
            Value::Text(span) => ValueMeta::Text(self.lists.text(span)),
            Value::Tensor(index) => match self.tensors.get(index as usize) {
                Some(spec) => ValueMeta::Tensor(self.describe_tensor(spec)),
                None => ValueMeta::None,
            },
            _ => ValueMeta::None,
        }
    }

    /// What a tensor is.
    pub fn describe_tensor<'a>(&'a self, spec: &TensorSpec) -> TensorMeta<'a> {
        TensorMeta {
            dtype: spec.dtype,
            sizes: self.sizes(spec),
            order: self.order(spec),
            dynamic: spec.dynamic,
            size_bytes: spec.size_bytes,
            placement: match spec.storage {
                Storage::Constant(_) => Placement::Constant,
                Storage::Planned { buffer, offset_bytes, .. } => Placement::Planned { buffer, offset_bytes },
                Storage::Supplied => Placement::Supplied,
                Storage::Missing => Placement::Missing,
            },
            space: spec.space,
            name: spec.name.map(|name| self.lists.text(name)),
        }
    }

    /// Every input, in order.
    pub fn describe_inputs(&self) -> impl ExactSizeIterator<Item = ValueMeta<'_>> {
        self.inputs.iter().map(|&id| self.describe(id))
    }

    /// Every output, in order.
    pub fn describe_outputs(&self) -> impl ExactSizeIterator<Item = ValueMeta<'_>> {
        self.outputs.iter().map(|&id| self.describe(id))
    }

    /// The planned buffers with their memory ids, from 1.
    pub fn planned_buffers(&self) -> impl Iterator<Item = (u32, super::PlannedBuffer)> {
        (0_u32..).zip(self.buffers.iter().copied()).skip(1)
    }

    /// The names of the operators, sorted, each once.
    pub fn operator_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.operators.iter().map(|&name| self.lists.text(name)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The names of tensors that lie in a data file that was not given.
    pub fn missing_data(&self) -> impl Iterator<Item = &str> {
        let specs = self.missing.iter().filter_map(|&index| self.tensors.get(index as usize));
        specs.filter_map(|spec| self.tensor_name(spec))
    }
}

impl Program {
    /// The version of the schema that the file is written in; only 0 is accepted.
    pub fn schema_version(&self) -> u32 {
        0
    }

    /// The constants of all methods.
    pub fn constants(&self) -> Constants {
        let specs = self.methods.iter().flat_map(|method| &method.tensors);
        let mut ranges: Vec<DataRef> = specs
            .filter_map(|spec| match spec.storage {
                Storage::Constant(data) => Some(data),
                _ => None,
            })
            .collect();
        ranges.sort_unstable();
        ranges.dedup();
        let (mut size_bytes, mut last) = (0, (0, 0));
        for range in &ranges {
            // Ranges may overlap: count what lies past the furthest end so far.
            let end = range.offset + range.len;
            let from = if last.0 == range.source { range.offset.max(last.1) } else { range.offset };
            size_bytes += end.saturating_sub(from);
            last = (range.source, if last.0 == range.source { end.max(last.1) } else { end });
        }
        Constants { count: ranges.len(), size_bytes }
    }

    /// The named mutable buffers of all methods, with the method's index.
    pub fn state(&self) -> impl Iterator<Item = (usize, State<'_>)> {
        let methods = self.methods.iter().enumerate();
        methods.flat_map(|(index, method)| method.state().map(move |state| (index, state)))
    }

    /// Every key that delegates may ask for, those of data files first.
    pub fn named_data(&self) -> impl Iterator<Item = NamedBlob<'_>> {
        let external = self.data_files.iter().flat_map(|file| {
            let blob = |entry: &'_ super::data::Entry| (entry.data.size_bytes(), &*file.label);
            file.entries().iter().map(move |entry| {
                let (size_bytes, file) = blob(entry);
                NamedBlob { key: &entry.key, size_bytes, file }
            })
        });
        let own = self.named.iter().map(|(key, data)| NamedBlob {
            key,
            size_bytes: data.size_bytes(),
            file: &self.label,
        });
        external.chain(own)
    }

    /// Whether the program file is mapped into memory.
    pub fn is_mapped(&self) -> bool {
        self.bytes.is_mapped()
    }

    /// The length of the program file.
    pub fn size_bytes(&self) -> usize {
        self.bytes.as_slice().len()
    }
}
