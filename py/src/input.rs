//! Python objects as inputs: what each is, and what keeps it while a method reads it.
//!
//! ```text
//!   ndarray ──C structure──► View ┐
//!   __dlpack__ ──capsule──► Foreign ├─► Arg (keeps the object) ─► exec::Input
//!   bool, int, float, str, None ────┘
//! ```
//!
//! Deliberately absent: what a method expects. Its executor checks kinds, shapes and layouts; here only
//! objects that are no input of any method are refused.

use crate::dlpack::{self, Foreign};
use crate::error::{self, Class, Facts, INVALID_ARGUMENT};
use crate::ndarray::{self, Refused, View};
use crate::tensor::Tensor;
use arenite::SpaceId;
use arenite::exec::{DeviceTensor, ExecError, Input, TensorInput};
use arenite::space::QueueError;
use arenite::tensor::Dims;
use numpy::PyUntypedArray;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyIterator, PyList, PySequence, PyString, PyTuple};
use std::sync::Arc;

/// One input, with whatever keeps its elements in place.
pub(crate) enum Arg<'py> {
    /// `None`.
    None,
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `float`.
    Double(f64),
    /// `str`.
    Text(Bound<'py, PyString>),
    /// An array of NumPy, or a tensor of ours.
    Array(View, #[expect(dead_code, reason = "keeps the elements in place")] Bound<'py, PyAny>),
    /// A tensor of another framework.
    Foreign(Foreign),
    /// A tensor of ours on a device.
    Device(Arc<DeviceTensor>, Dims<isize>),
}

/// The inputs of one run.
pub(crate) struct Args<'py> {
    items: Vec<Arg<'py>>,
    /// What was seen among them.
    pub(crate) seen: Seen,
}

/// What was seen among inputs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// A tensor of PyTorch.
    pub(crate) torch: bool,
    /// A tensor on a device.
    pub(crate) device: bool,
    /// PyTorch's current stream, where a tensor is ready on that alone.
    pub(crate) torch_stream: Option<usize>,
    /// A device tensor whose producer does not order its memory by PyTorch's current stream.
    pub(crate) foreign: bool,
}

/// What a method takes, for messages and for scalars of NumPy.
pub(crate) trait Expectation {
    /// The method's name.
    fn method(&self) -> &str;
    /// Whether input `index` is a tensor.
    fn is_tensor(&self, index: usize) -> bool;
    /// Input `index` in words.
    fn describe(&self, index: usize) -> String;
    /// How many inputs.
    fn len(&self) -> usize;
    /// What messages call input `index`: its role, and its name or index.
    fn place(&self, index: usize) -> (&'static str, String) {
        ("input", index.to_string())
    }
    /// The stream that device tensors of a space are used on, unless PyTorch's current one serves.
    fn stream(&self, space: SpaceId) -> Option<usize> {
        let _ = space;
        None
    }
    /// Whether the caller named that stream.
    fn names_stream(&self) -> bool {
        false
    }
}

impl<'py> Args<'py> {
    /// Takes every item of `inputs`, a sequence.
    ///
    /// # Errors
    /// `InputError` for what is no sequence, and for items that are no input of any method.
    pub(crate) fn collect(inputs: &Bound<'py, PyAny>, expected: &impl Expectation) -> PyResult<Self> {
        let mut args = Self { items: Vec::with_capacity(expected.len()), seen: Seen::default() };
        let too_many = |got: usize| {
            let (method, expected) = (expected.method().to_owned(), expected.len());
            error::exec(inputs.py(), &ExecError::InputCount { method, expected, got })
        };
        if let Ok(list) = inputs.cast_exact::<PyList>() {
            if list.len() > expected.len() {
                return Err(too_many(list.len()));
            }
            for item in list {
                args.push(item, expected)?;
            }
        } else if let Ok(tuple) = inputs.cast_exact::<PyTuple>() {
            if tuple.len() > expected.len() {
                return Err(too_many(tuple.len()));
            }
            for item in tuple {
                args.push(item, expected)?;
            }
        } else {
            for item in sequence(inputs, expected)? {
                if args.items.len() == expected.len() {
                    // It may have no end.
                    return Err(too_many(inputs.len().unwrap_or(0).max(expected.len() + 1)));
                }
                args.push(item?, expected)?;
            }
        }
        Ok(args)
    }

    fn push(&mut self, item: Bound<'py, PyAny>, expected: &impl Expectation) -> PyResult<()> {
        let index = self.items.len();
        let arg = take(item, index, expected, &mut self.seen)?;
        self.items.push(arg);
        Ok(())
    }

    /// Lets a stream wait for device tensors of ours.
    ///
    /// # Safety
    /// * `stream` is a live stream of the tensors' device, or 0.
    pub(crate) unsafe fn order(&self, stream: usize) -> Result<(), QueueError> {
        self.items.iter().try_for_each(|item| match item {
            // SAFETY: by the caller.
            Arg::Device(tensor, _) => unsafe { tensor.order(stream) },
            _ => Ok(()),
        })
    }

    /// The tensors of other frameworks, which keep their memory as long as they live.
    pub(crate) fn into_foreign(self) -> Vec<Foreign> {
        let foreign = |item| if let Arg::Foreign(foreign) = item { Some(foreign) } else { None };
        self.items.into_iter().filter_map(foreign).collect()
    }

    /// Calls `run` with the inputs as a method takes them.
    pub(crate) fn with<R>(&self, run: impl FnOnce(&[Input<'_>]) -> R) -> PyResult<R> {
        const INLINE: usize = 8;
        let mut inline = [Input::None; INLINE];
        let mut spilled = Vec::new();
        let inputs = if let Some(inline) = inline.get_mut(..self.items.len()) {
            inline
        } else {
            spilled.resize(self.items.len(), Input::None);
            &mut spilled[..]
        };
        for (input, arg) in inputs.iter_mut().zip(&self.items) {
            *input = arg.as_input()?;
        }
        Ok(run(inputs))
    }
}

impl Arg<'_> {
    /// As a method takes it.
    pub(crate) fn as_input(&self) -> PyResult<Input<'_>> {
        Ok(match self {
            Self::None => Input::None,
            Self::Bool(value) => Input::Bool(*value),
            Self::Int(value) => Input::Int(*value),
            Self::Double(value) => Input::Double(*value),
            Self::Text(text) => Input::Text(text.to_str()?),
            Self::Array(view, _) => {
                // SAFETY: the array is kept beside its view, so its elements stay valid and initialised; NumPy
                // holds no lock on elements, so a caller who writes them during a run has a race of their own,
                // as with any other C extension that reads arrays.
                Input::Tensor(unsafe {
                    TensorInput::new(
                        view.address,
                        view.dtype,
                        &view.sizes,
                        &view.strides_bytes,
                        SpaceId::HOST,
                    )
                })
            }
            Self::Device(tensor, strides_bytes) => {
                // SAFETY: the tensor is kept here, row-major with the strides beside it; whoever runs orders the
                // stream behind the work that produces it.
                Input::Tensor(unsafe {
                    TensorInput::new(
                        tensor.address().as_ptr(),
                        tensor.dtype(),
                        tensor.sizes(),
                        strides_bytes,
                        tensor.space(),
                    )
                })
            }
            Self::Foreign(foreign) => {
                // SAFETY: the producer keeps the elements valid until `foreign` is dropped.
                Input::Tensor(unsafe {
                    TensorInput::new(
                        foreign.address,
                        foreign.dtype,
                        &foreign.sizes,
                        &foreign.strides_bytes,
                        foreign.space,
                    )
                })
            }
        })
    }
}

/// An iterator over a sequence that is neither list nor tuple.
#[cold]
fn sequence<'py>(
    inputs: &Bound<'py, PyAny>,
    expected: &impl Expectation,
) -> PyResult<Bound<'py, PyIterator>> {
    let lone = inputs.is_instance_of::<PyString>()
        || inputs.cast::<PyUntypedArray>().is_ok()
        || inputs.cast::<PySequence>().is_err();
    if !lone {
        return inputs.try_iter();
    }
    let (method, count) = (expected.method(), expected.len());
    let items = if count == 1 { "value" } else { "values" };
    let text = format!(
        "{method}: expected a list of {count} {items}, got {}. Write execute([x]), also for a single input",
        type_name(inputs)
    );
    let facts = Facts { code: INVALID_ARGUMENT, method: Some(method), details: Vec::new() };
    Err(error::new(inputs.py(), Class::InputError, &text, facts))
}

/// The class of `object`, as Python prints it; `None` for `None`.
pub(crate) fn type_name(object: &Bound<'_, PyAny>) -> String {
    if object.is_none() {
        return "None".into();
    }
    object.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string())
}

/// Whether an array of a derived class masks some of its elements, which its memory does not tell.
#[cold]
fn hides_elements(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = array.py();
    let Some(mask) = array.getattr_opt("mask")? else { return Ok(false) };
    py.import("numpy")?.call_method1("any", (mask,))?.is_truthy()
}

/// What `item` is.
fn take<'py>(
    item: Bound<'py, PyAny>,
    index: usize,
    expected: &impl Expectation,
    seen: &mut Seen,
) -> PyResult<Arg<'py>> {
    if let Ok(array) = item.cast::<PyUntypedArray>() {
        if item.cast_exact::<PyUntypedArray>().is_err() && hides_elements(&item)? {
            return Err(refuse(&item, "a masked array. Fill it: x.filled(0)", index, expected));
        }
        return match ndarray::view(array) {
            Ok(view) => Ok(Arg::Array(view, item)),
            Err(refused) => Err(refuse_array(&item, refused, index, expected)),
        };
    }
    if ndarray::is_scalar(&item) && expected.is_tensor(index) {
        // A scalar of NumPy is a tensor without dimensions where a tensor is taken, else a number.
        let made = item.call_method0("__array__")?;
        let view = made.cast::<PyUntypedArray>().map(ndarray::view);
        return match view {
            Ok(Ok(view)) => Ok(Arg::Array(view, made)),
            Ok(Err(refused)) => Err(refuse_array(&made, refused, index, expected)),
            Err(_) => Err(refuse(&item, &type_name(&item), index, expected)),
        };
    }
    if item.is_none() {
        return Ok(Arg::None);
    }
    if let Ok(value) = item.cast::<PyBool>() {
        return Ok(Arg::Bool(value.is_true()));
    }
    if item.is_instance_of::<PyInt>() {
        let value = item.extract::<i64>();
        return value.map(Arg::Int).map_err(|_| refuse(&item, "an int beyond 64 bits", index, expected));
    }
    if let Ok(value) = item.cast::<PyFloat>() {
        return Ok(Arg::Double(value.value()));
    }
    if let Ok(text) = item.cast::<PyString>() {
        return Ok(Arg::Text(text.clone()));
    }
    if let Ok(tensor) = item.cast::<Tensor>() {
        seen.device |= tensor.get().device().is_some();
        return tensor.get().as_arg(item.py(), &item);
    }
    if ndarray::is_scalar(&item) {
        // Some scalars, such as longdouble, have no Python number and give themselves.
        let number = item.call_method0("item")?;
        if ndarray::is_scalar(&number) && number.get_type().is(item.get_type()) {
            return Err(refuse(&item, &type_name(&item), index, expected));
        }
        return take(number, index, expected, seen);
    }
    exchange(&item, index, expected, seen)
}

/// A tensor of another framework, through DLPack.
fn exchange<'py>(
    item: &Bound<'py, PyAny>,
    index: usize,
    expected: &impl Expectation,
    seen: &mut Seen,
) -> PyResult<Arg<'py>> {
    let stream = |space| expected.stream(space);
    let taken = if crate::torch::is_tensor(item) {
        seen.torch = true;
        crate::torch::take(item, &stream, expected.names_stream())
    } else if item.hasattr("__dlpack__").unwrap_or(true) {
        dlpack::take(item, &stream).map(|foreign| (foreign, None))
    } else {
        return Err(refuse(item, &type_name(item), index, expected));
    };
    let noted = |(foreign, current): (Foreign, Option<usize>)| {
        if !foreign.space.is_host() {
            seen.device = true;
            seen.torch_stream = seen.torch_stream.or(current);
            seen.foreign |= current.is_none();
        }
        Arg::Foreign(foreign)
    };
    taken.map(noted).map_err(|reason| {
        // An interrupt or exit is no word about the input.
        if !reason.is_instance_of::<PyException>(item.py()) {
            return reason;
        }
        let got = format!("{}, which DLPack cannot pass on ({})", type_name(item), reason.value(item.py()));
        let error = refuse(item, &got, index, expected);
        error.set_cause(item.py(), Some(reason));
        error
    })
}

#[cold]
fn refuse(item: &Bound<'_, PyAny>, got: &str, index: usize, expected: &impl Expectation) -> PyErr {
    let problem = format!(
        "expected {}, got {got}. Pass a NumPy array, a tensor that has __dlpack__, or a Python scalar",
        expected.describe(index)
    );
    let (role, name) = expected.place(index);
    error::input(item.py(), expected.method(), (role, &name), &problem)
}

#[cold]
fn refuse_array(
    array: &Bound<'_, PyAny>,
    refused: Refused,
    index: usize,
    expected: &impl Expectation,
) -> PyErr {
    let dtype = array.getattr("dtype").map_or_else(|_| "?".into(), |dtype| dtype.to_string());
    let (got, advice) = match refused {
        Refused::ByteOrder => (
            format!("an array in the byte order of another machine ({dtype})"),
            "Convert it: x.astype(x.dtype.newbyteorder('='))",
        ),
        Refused::Kind => (format!("an array of {dtype}"), "Convert it with x.astype"),
        Refused::Rank => ("an array of more than 16 dimensions".into(), "Reshape it"),
    };
    let problem = format!("expected {}, got {got}. {advice}", expected.describe(index));
    let (role, name) = expected.place(index);
    error::input(array.py(), expected.method(), (role, &name), &problem)
}
