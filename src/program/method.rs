#![forbid(unsafe_code)]
//! A method as its program describes it: values, tensors, instructions, and the memory they want.
//!
//! ```text
//!   MethodPlan ── values ──► Value::Tensor(i) ──► tensors[i] ── storage ──► Constant(DataRef)
//!              ── chains ──► instructions ──► operators / delegates         Planned { buffer, offset }
//!              ── buffers[memory id]                                        Supplied
//! ```
//!
//! What varies in length lies in a few pools per method, so that a plan is read with a handful of
//! allocations. A `MethodPlan` is made by the reader only: every index in it is in range, every planned
//! extent lies inside its buffer, every constant inside its file.
//!
//! Deliberately absent: memory. A plan says what is wanted; the executor carves it.

use crate::space::SpaceId;
use crate::tensor::DType;
use crate::value::{Lists, Span, Value, ValueId};

/// A range of bytes of a program or of one of its data files; see [`super::Program::data`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DataRef {
    /// 0 is the program, `n` the n-th data file, and the last one the realigned copies.
    pub(super) source: u32,
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl DataRef {
    /// How many bytes.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.len
    }
}

/// Where a tensor's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In a file, read-only, always on the host.
    Constant(DataRef),
    /// In a planned buffer.
    Planned {
        /// The memory id: an index into [`MethodPlan::buffers`], from 1.
        buffer: u32,
        /// From the start of the buffer; a multiple of the element size.
        offset_bytes: usize,
        /// What the bytes are when the method is loaded; of exactly [`TensorSpec::size_bytes`].
        initial: Option<DataRef>,
    },
    /// Wherever the caller says: an unplanned input or output.
    Supplied,
    /// In a data file that was not given. [`super::Program::method`] never gives a method that has one.
    Missing,
}

/// A tensor of a method.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TensorSpec {
    /// The element kind.
    pub dtype: DType,
    /// Whether the sizes may change from run to run; they are then the most it may have.
    pub dynamic: bool,
    /// The sizes and the dimension order; see [`MethodPlan::sizes`] and [`MethodPlan::order`].
    pub dims: Span,
    /// The bytes of all elements at the sizes in the file.
    pub size_bytes: usize,
    /// Where the bytes are.
    pub storage: Storage,
    /// The space of the bytes.
    pub space: SpaceId,
    /// The fully qualified name of a parameter or buffer, in [`Lists::text`].
    pub name: Option<Span>,
}

/// A planned buffer of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedBuffer {
    /// How many bytes.
    pub size_bytes: usize,
    /// In which space.
    pub space: SpaceId,
}

/// One step of a method. Argument spans lie in [`Lists::ids`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Calls a kernel.
    Kernel {
        /// An index for [`MethodPlan::operator`].
        operator: u32,
        /// Every argument; outputs again at the end.
        args: Span,
    },
    /// Runs a delegate.
    Delegate {
        /// An index into [`MethodPlan::delegates`].
        delegate: u32,
        /// Inputs, then outputs.
        args: Span,
    },
    /// Makes `to` what `from` is.
    Move {
        /// The value that is read.
        from: ValueId,
        /// The value that is replaced.
        to: ValueId,
    },
    /// Goes on at `target` where `condition` is false.
    JumpFalse {
        /// A `Bool` or a tensor of `bool`.
        condition: ValueId,
        /// An instruction of the same chain, counted from its first; its length means the end.
        target: u32,
    },
    /// Ends the use of a tensor's memory.
    Free {
        /// The tensor.
        value: ValueId,
    },
}

/// A part of a method that a back end runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DelegateSpec {
    /// The name of the back end.
    pub id: Box<str>,
    /// What the back end made of the part when the program was exported.
    pub processed: DataRef,
    /// Options for the back end.
    pub compile_specs: Vec<CompileSpec>,
}

/// One option for a back end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompileSpec {
    /// The name of the option.
    pub key: Box<str>,
    /// Its value, for the back end to read.
    pub value: DataRef,
}

/// A method of a program.
///
/// # Source
/// `ExecutionPlan` of the ExecuTorch program schema, version 0.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct MethodPlan {
    /// The name.
    pub name: Box<str>,
    /// The value table; everything refers to it by index.
    pub values: Vec<Value>,
    /// List items, instruction arguments and text.
    pub lists: Lists,
    /// The tensors that values name.
    pub tensors: Vec<TensorSpec>,
    /// What the caller gives, in order.
    pub inputs: Vec<ValueId>,
    /// What the caller gets, in order; a value may repeat.
    pub outputs: Vec<ValueId>,
    /// Runs of [`MethodPlan::instructions`], executed one after the other.
    pub chains: Vec<Span>,
    /// The instructions of all chains.
    pub instructions: Vec<Instruction>,
    /// Full operator names, in [`Lists::text`]; see [`MethodPlan::operator`].
    pub operators: Vec<Span>,
    /// Parts that back ends run.
    pub delegates: Vec<DelegateSpec>,
    /// Planned buffers by memory id; entry 0 is reserved and empty.
    pub buffers: Vec<PlannedBuffer>,
    /// Tensors whose data file was not given.
    pub(super) missing: Vec<u32>,
    pub(super) sizes: Vec<usize>,
    pub(super) orders: Vec<u8>,
}

impl MethodPlan {
    /// The sizes of a tensor in elements; of a dynamic one, the most it may have.
    #[inline]
    pub fn sizes(&self, tensor: &TensorSpec) -> &[usize] {
        tensor.dims.of(&self.sizes)
    }

    /// The dimension stored at each position, outermost first.
    #[inline]
    pub fn order(&self, tensor: &TensorSpec) -> &[u8] {
        tensor.dims.of(&self.orders)
    }

    /// The name of a tensor, where it is a named parameter or buffer.
    pub fn tensor_name(&self, tensor: &TensorSpec) -> Option<&str> {
        tensor.name.map(|name| self.lists.text(name))
    }

    /// The full name of an operator: `aten::add.out`, `aten::copy_`. Empty where there is none.
    pub fn operator(&self, index: u32) -> &str {
        self.operators.get(index as usize).map_or("", |&name| self.lists.text(name))
    }

    /// The value with this id.
    #[inline]
    pub fn value(&self, id: ValueId) -> Value {
        self.values.get(id.index()).copied().unwrap_or(Value::None)
    }

    /// The tensor that a value names, if it names one.
    #[inline]
    pub fn tensor(&self, id: ValueId) -> Option<&TensorSpec> {
        match self.values.get(id.index()) {
            Some(&Value::Tensor(index)) => self.tensors.get(index as usize),
            _ => None,
        }
    }
}
