//! Calls one kernel by name over owned tensors, the way an executor would.
//!
//! ```text
//! let sum = Call::new("aten::add.out").tensor(&a).tensor(&b).int(1).out(DType::Float32, &[2, 3]).run()?;
//! assert_eq!(sum.tensor(0).get::<f32>(), [1.0, 2.0, …]);
//! ```
//!
//! Arguments are checked against the kernel's own table first, so a test also proves the table.
//! Deliberately absent: the return slots of a program file; a kernel never sees them.

use arenite::SpaceId;
use arenite::kernel::{Kernel, KernelCall, KernelError, KernelRegistry, Scratch, ScratchSource};
use arenite::tensor::shape::{contiguous_order, numel, strides};
use arenite::tensor::{DType, Element, Tensor};
use arenite::value::{Lists, Span, Value, ValueId};
use core::alloc::Layout;
use core::cell::RefCell;
use core::ptr::NonNull;

/// An owned tensor: its bytes lie in memory order.
#[derive(Clone, Debug)]
pub struct Data {
    pub dtype: DType,
    pub sizes: Vec<usize>,
    pub order: Vec<u8>,
    pub space: SpaceId,
    pub bytes: Vec<u8>,
}

fn row_major(rank: usize) -> Vec<u8> {
    contiguous_order(rank).unwrap().to_vec()
}

/// The place in memory of every element, in row-major reading order.
fn places(sizes: &[usize], order: &[u8]) -> Vec<usize> {
    let strides = strides(sizes, &arenite::tensor::DimOrder::new(order).unwrap());
    let mut out = vec![0];
    for (&size, &stride) in sizes.iter().zip(strides.iter()) {
        out = out.iter().flat_map(|&base| (0..size).map(move |i| base + i * stride)).collect();
    }
    out
}

impl Data {
    /// A row-major tensor of these values.
    pub fn new<T: Element>(sizes: &[usize], values: &[T]) -> Self {
        assert_eq!(numel(sizes), Some(values.len()), "as many values as the sizes say");
        let bytes = bytemuck::cast_slice(values).to_vec();
        let order = row_major(sizes.len());
        Self { dtype: T::DTYPE, sizes: sizes.to_vec(), order, space: SpaceId::HOST, bytes }
    }

    /// A row-major tensor of these bytes.
    pub fn of_bytes(dtype: DType, sizes: &[usize], bytes: &[u8]) -> Self {
        assert_eq!(numel(sizes).unwrap() * dtype.size_bytes(), bytes.len(), "as many bytes as the sizes say");
        let order = row_major(sizes.len());
        Self { dtype, sizes: sizes.to_vec(), order, space: SpaceId::HOST, bytes: bytes.to_vec() }
    }

    /// A tensor filled with a byte that no test expects as a result.
    pub fn stale(dtype: DType, sizes: &[usize]) -> Self {
        Self::of_bytes(dtype, sizes, &vec![0x5a; numel(sizes).unwrap() * dtype.size_bytes()])
    }

    /// The same values, stored in another dimension order.
    pub fn in_order(&self, order: &[u8]) -> Self {
        let width = self.dtype.size_bytes();
        let mut out = Self { order: order.to_vec(), ..self.clone() };
        let (from, to) = (places(&self.sizes, &self.order), places(&self.sizes, order));
        for (from, to) in from.into_iter().zip(to) {
            out.bytes[to * width..][..width].copy_from_slice(&self.bytes[from * width..][..width]);
        }
        out
    }

    /// The same, said to lie in another space.
    pub fn in_space(mut self, space: SpaceId) -> Self {
        self.space = space;
        self
    }

    /// The values in row-major reading order, whatever the dimension order.
    pub fn get<T: Element>(&self) -> Vec<T> {
        assert_eq!(self.dtype, T::DTYPE, "the element kind asked for");
        let plain = self.in_order(&row_major(self.sizes.len()));
        plain.bytes.chunks_exact(size_of::<T>().max(1)).map(bytemuck::pod_read_unaligned).collect()
    }
}

enum Item {
    /// A value as it is.
    Plain(Value),
    /// The tensor with this number, written or not.
    Tensor(usize),
    /// `None` stands for an absent item.
    Tensors(Vec<Option<usize>>, bool),
}

/// A call in the making.
pub struct Call {
    kernel: Kernel,
    items: Vec<Item>,
    data: Vec<Data>,
    /// Data that lies over the bytes of earlier data, from a byte on.
    over: Vec<Option<(usize, usize)>>,
    /// The largest sizes of dynamic tensors.
    bounds: Vec<Option<Vec<usize>>>,
    written: Vec<usize>,
    lists: Lists,
    list_values: Vec<Value>,
}

/// What a call gave.
#[derive(Debug)]
pub struct Outcome {
    tensors: Vec<Data>,
    /// The values of all arguments afterwards: primitive operators write theirs.
    pub values: Vec<Value>,
}

impl Outcome {
    /// Written tensor `index`, in argument order (list items one by one).
    pub fn tensor(&self, index: usize) -> &Data {
        &self.tensors[index]
    }

    /// The values of written tensor 0 in row-major reading order.
    pub fn get<T: Element>(&self) -> Vec<T> {
        self.tensors[0].get()
    }

    /// The sizes of written tensor 0.
    pub fn sizes(&self) -> &[usize] {
        &self.tensors[0].sizes
    }
}

impl Call {
    /// A call of the built-in kernel of this name.
    pub fn new(name: &str) -> Self {
        Self::of(KernelRegistry::new().get(name).unwrap_or_else(|| panic!("no kernel {name}")))
    }

    /// A call of this kernel.
    pub fn of(kernel: Kernel) -> Self {
        Self {
            kernel,
            items: vec![],
            data: vec![],
            over: vec![],
            bounds: vec![],
            written: vec![],
            lists: Lists::default(),
            list_values: vec![],
        }
    }

    fn keep(&mut self, data: &Data, over: Option<(usize, usize)>, bound: Option<&[usize]>) -> usize {
        self.data.push(data.clone());
        self.over.push(over);
        self.bounds.push(bound.map(<[usize]>::to_vec));
        self.data.len() - 1
    }

    fn plain(mut self, value: Value) -> Self {
        self.items.push(Item::Plain(value));
        self
    }

    pub fn none(self) -> Self {
        self.plain(Value::None)
    }

    pub fn int(self, value: i64) -> Self {
        self.plain(Value::Int(value))
    }

    pub fn bool(self, value: bool) -> Self {
        self.plain(Value::Bool(value))
    }

    pub fn double(self, value: f64) -> Self {
        self.plain(Value::Double(value))
    }

    /// Any value that holds no span.
    pub fn value(self, value: Value) -> Self {
        self.plain(value)
    }

    pub fn text(mut self, text: &str) -> Self {
        let span =
            Span { start: self.lists.text.len().try_into().unwrap(), len: text.len().try_into().unwrap() };
        self.lists.text.push_str(text);
        self.plain(Value::Text(span))
    }

    pub fn doubles(mut self, items: &[f64]) -> Self {
        let span = Span {
            start: self.lists.doubles.len().try_into().unwrap(),
            len: items.len().try_into().unwrap(),
        };
        self.lists.doubles.extend_from_slice(items);
        self.plain(Value::DoubleList(span))
    }

    pub fn bools(mut self, items: &[bool]) -> Self {
        let span =
            Span { start: self.lists.bools.len().try_into().unwrap(), len: items.len().try_into().unwrap() };
        self.lists.bools.extend_from_slice(items);
        self.plain(Value::BoolList(span))
    }

    /// A list of `Int`; each item gets a value of its own, as in a program.
    pub fn ints(mut self, items: &[i64]) -> Self {
        // Values of items come after those of all arguments; `run` moves the ids up.
        let start = self.lists.ids.len().try_into().unwrap();
        for &item in items {
            self.lists.ids.push(ValueId(self.list_values.len().try_into().unwrap()));
            self.list_values.push(Value::Int(item));
        }
        self.plain(Value::IntList(Span { start, len: items.len().try_into().unwrap() }))
    }

    /// A tensor that is read.
    pub fn tensor(mut self, data: &Data) -> Self {
        let at = self.keep(data, None, None);
        self.items.push(Item::Tensor(at));
        self
    }

    /// A tensor that is read, or `None`.
    pub fn optional(self, data: Option<&Data>) -> Self {
        match data {
            Some(data) => self.tensor(data),
            None => self.none(),
        }
    }

    pub fn tensors(mut self, items: &[Data]) -> Self {
        let items = items.iter().map(|data| Some(self.keep(data, None, None))).collect();
        self.items.push(Item::Tensors(items, false));
        self
    }

    pub fn optional_tensors(mut self, items: &[Option<Data>]) -> Self {
        let items = items.iter().map(|data| data.as_ref().map(|data| self.keep(data, None, None))).collect();
        self.items.push(Item::Tensors(items, true));
        self
    }

    /// A row-major tensor to write, of fixed sizes.
    pub fn out(self, dtype: DType, sizes: &[usize]) -> Self {
        self.out_like(&Data::stale(dtype, sizes))
    }

    /// A tensor to write, of fixed sizes, that holds `data` before: also an in-place argument.
    pub fn out_like(mut self, data: &Data) -> Self {
        let at = self.keep(data, None, None);
        self.written.push(at);
        self.items.push(Item::Tensor(at));
        self
    }

    /// A tensor to write that has `sizes` before and may take up to `bound`.
    pub fn out_dynamic(mut self, dtype: DType, sizes: &[usize], bound: &[usize]) -> Self {
        let at = self.keep(&Data::stale(dtype, sizes), None, Some(bound));
        self.written.push(at);
        self.items.push(Item::Tensor(at));
        self
    }

    /// A tensor to write whose bytes begin `offset_bytes` into those of the `nth` tensor so far.
    pub fn out_over(mut self, nth: usize, offset_bytes: usize, dtype: DType, sizes: &[usize]) -> Self {
        let at = self.keep(&Data::stale(dtype, sizes), Some((nth, offset_bytes)), None);
        self.written.push(at);
        self.items.push(Item::Tensor(at));
        self
    }

    /// A list of tensors to write.
    pub fn outs(mut self, items: &[Data]) -> Self {
        let items: Vec<_> = items.iter().map(|data| self.keep(data, None, None)).collect();
        self.written.extend(&items);
        self.items.push(Item::Tensors(items.into_iter().map(Some).collect(), false));
        self
    }

    /// Runs the kernel.
    ///
    /// # Panics
    /// Where the arguments are not those that the kernel's table lists.
    pub fn run(self) -> Result<Outcome, KernelError> {
        let Self { kernel, items, data, over, bounds, written, mut lists, list_values } = self;
        // Values: the arguments, then one per tensor, then the items of integer lists.
        let tensor_at = items.len();
        let list_at = tensor_at + data.len();
        let id = |at: usize| ValueId(at.try_into().unwrap());
        for item in &mut lists.ids {
            *item = id(list_at + item.index());
        }
        let mut values: Vec<Value> = Vec::new();
        for item in &items {
            values.push(match item {
                Item::Plain(value) => *value,
                Item::Tensor(at) => Value::Tensor((*at).try_into().unwrap()),
                Item::Tensors(list, optional) => {
                    let start = lists.ids.len().try_into().unwrap();
                    lists
                        .ids
                        .extend(list.iter().map(|at| at.map_or(ValueId::ABSENT, |at| id(tensor_at + at))));
                    let span = Span { start, len: list.len().try_into().unwrap() };
                    if *optional { Value::OptionalTensorList(span) } else { Value::TensorList(span) }
                }
            });
        }
        assert_eq!(values.len(), kernel.args.len(), "{}: number of arguments", kernel.name);
        for (index, (arg, value)) in kernel.args.iter().zip(&values).enumerate() {
            assert!(
                arg.accepts(value),
                "{}: argument {index} is {}, table says {arg:?}",
                kernel.name,
                value.kind()
            );
        }
        values.extend((0..data.len()).map(|at| Value::Tensor(at.try_into().unwrap())));
        values.extend(&list_values);

        let block_bytes = |at: usize| {
            let most = bounds[at].as_deref().unwrap_or(&data[at].sizes);
            let own = numel(most).unwrap() * data[at].dtype.size_bytes();
            let lent = over.iter().enumerate().filter_map(|(other, over)| match over {
                Some((nth, offset)) if *nth == at => Some(offset + data[other].bytes.len()),
                _ => None,
            });
            lent.chain([own]).max().unwrap_or(own)
        };
        let blocks: Vec<Block> = (0..data.len()).map(|at| Block::new(block_bytes(at))).collect();
        let mut tensors: Vec<Tensor> = Vec::new();
        for (at, owned) in data.iter().enumerate() {
            let (most, dynamic) = (bounds[at].as_deref().unwrap_or(&owned.sizes), bounds[at].is_some());
            let mut tensor = Tensor::new(owned.dtype, most, &owned.order, dynamic).unwrap();
            tensor.resize(&owned.sizes).unwrap();
            let (block, offset) = over[at].map_or((at, 0), |(nth, offset)| (nth, offset));
            let capacity = blocks[block].0.size() - offset;
            // SAFETY: offsets end inside the block, which `block_bytes` made long enough.
            let address = unsafe { blocks[block].1.add(offset) };
            if over[at].is_none() {
                let source = NonNull::from(&*owned.bytes).cast();
                // SAFETY: the block is at least as long as the data, and nothing else names it yet.
                unsafe { address.copy_from_nonoverlapping(source, owned.bytes.len()) };
            }
            // SAFETY: T1: the block is initialised, writable and outlives `tensors`; T2: one thread; no
            // Rust reference to a block is made.
            unsafe { tensor.bind(address, capacity, owned.space, written.contains(&at)) };
            tensors.push(tensor);
        }
        let args: Vec<ValueId> = (0..items.len()).map(id).collect();
        let source = Blocks(RefCell::default());
        (kernel.run)(&mut KernelCall::new(&mut values, &mut tensors, &lists, &args, Scratch::new(&source)))?;

        let read = |at: &usize| {
            let tensor = &tensors[*at];
            let mut bytes = vec![0; tensor.size_bytes()];
            if let Some(address) = tensor.address() {
                // SAFETY: the tensor's elements lie inside its block; the kernel is done with it.
                unsafe {
                    address.as_ptr().copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len());
                }
            }
            let (sizes, order) = (tensor.sizes().to_vec(), tensor.order().to_vec());
            Data { dtype: tensor.dtype(), sizes, order, space: tensor.space(), bytes }
        };
        let tensors_out = written.iter().map(read).collect();
        values.truncate(items.len());
        Ok(Outcome { tensors: tensors_out, values })
    }
}

/// A block of zeroed memory, aligned to 64 bytes.
struct Block(Layout, NonNull<u8>);

impl Block {
    fn new(size_bytes: usize) -> Self {
        Self::of(Layout::from_size_align(size_bytes.max(1), 64).unwrap())
    }

    fn of(layout: Layout) -> Self {
        // SAFETY: the layout's size is not 0: `new` and `Scratch` see to it.
        let address = unsafe { std::alloc::alloc_zeroed(layout) };
        Self(layout, NonNull::new(address).unwrap())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `of` with this layout, freed once.
        unsafe { std::alloc::dealloc(self.1.as_ptr(), self.0) };
    }
}

/// Scratch that keeps every block until the call ends.
struct Blocks(RefCell<Vec<Block>>);

// SAFETY: each block is a new allocation with the asked layout, freed only when the source is dropped.
unsafe impl ScratchSource for Blocks {
    fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, KernelError> {
        let layout = Layout::from_size_align(layout.size().max(1), layout.align()).unwrap();
        let block = Block::of(layout);
        let address = block.1;
        self.0.borrow_mut().push(block);
        Ok(address)
    }
}
