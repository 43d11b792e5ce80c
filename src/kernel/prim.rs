#![forbid(unsafe_code)]
//! Primitive operators: arithmetic on sizes and counters, and two moves that need no element kind.
//!
//! A result is written into the value of the last argument; there is no return slot after it.
//! Where the reference runtime would wrap, abort or divide by zero, these give an error.
//!
//! Deliberately absent: anything that computes on elements.

use super::walk::{Source, Target};
use super::{Arg, Kernel, KernelCall, KernelError, Scalar, fail};
use crate::tensor::shape::display_sizes;
use crate::tensor::{Bool, DType, Dims, Element, Tensor, copy_cells};
use crate::value::Value;
use half::{bf16, f16};

const UNARY: &[Arg] = &[Arg::Scalar, Arg::Result];
const BINARY: &[Arg] = &[Arg::Scalar, Arg::Scalar, Arg::Result];
const INT_BINARY: &[Arg] = &[Arg::Int, Arg::Int, Arg::Result];
const ROUNDING: &[Arg] = &[Arg::Float, Arg::Result];

/// The primitive operators.
pub(super) const KERNELS: &[Kernel] = &[
    Kernel { name: "aten::sym_size.int", args: &[Arg::Tensor, Arg::Int, Arg::Result], run: sym_size },
    Kernel { name: "aten::sym_numel", args: &[Arg::Tensor, Arg::Result], run: sym_numel },
    Kernel { name: "aten::_local_scalar_dense", args: &[Arg::Tensor, Arg::Result], run: local_scalar },
    Kernel {
        name: "executorch_prim::add.Scalar",
        args: BINARY,
        run: |call| arithmetic(call, "+", i64::checked_add, |a, b| a + b),
    },
    Kernel {
        name: "executorch_prim::sub.Scalar",
        args: BINARY,
        run: |call| arithmetic(call, "-", i64::checked_sub, |a, b| a - b),
    },
    Kernel {
        name: "executorch_prim::mul.Scalar",
        args: BINARY,
        run: |call| arithmetic(call, "*", i64::checked_mul, |a, b| a * b),
    },
    Kernel {
        name: "executorch_prim::floordiv.Scalar",
        args: BINARY,
        run: |call| arithmetic(call, "//", floor_division, |a, b| (a / b).floor()),
    },
    Kernel { name: "executorch_prim::truediv.Scalar", args: BINARY, run: true_division },
    Kernel {
        name: "executorch_prim::mod.Scalar",
        args: BINARY,
        run: |call| int_arithmetic(call, "%", i64::checked_rem),
    },
    Kernel {
        name: "executorch_prim::floordiv.int",
        args: INT_BINARY,
        run: |call| int_arithmetic(call, "//", i64::checked_div),
    },
    Kernel {
        name: "executorch_prim::mod.int",
        args: INT_BINARY,
        run: |call| int_arithmetic(call, "%", i64::checked_rem),
    },
    Kernel {
        name: "executorch_prim::eq.Scalar",
        args: BINARY,
        run: |call| comparison(call, |a, b| a == b, same, |a, b| a == b),
    },
    Kernel {
        name: "executorch_prim::gt.Scalar",
        args: BINARY,
        run: |call| comparison(call, |a, b| a > b, |a, b| a > b, |a, b| a && !b),
    },
    Kernel {
        name: "executorch_prim::lt.Scalar",
        args: BINARY,
        run: |call| comparison(call, |a, b| a < b, |a, b| a < b, |a, b| !a && b),
    },
    Kernel {
        name: "executorch_prim::ge.Scalar",
        args: BINARY,
        run: |call| comparison(call, |a, b| a >= b, |a, b| a >= b, |a, b| a || !b),
    },
    Kernel {
        name: "executorch_prim::le.Scalar",
        args: BINARY,
        run: |call| comparison(call, |a, b| a <= b, |a, b| a <= b, |a, b| !a || b),
    },
    Kernel { name: "executorch_prim::neg.Scalar", args: UNARY, run: negation },
    Kernel { name: "executorch_prim::sym_not.Scalar", args: &[Arg::Bool, Arg::Result], run: not },
    Kernel {
        name: "executorch_prim::sym_ite.Scalar",
        args: &[Arg::Bool, Arg::Scalar, Arg::Scalar, Arg::Result],
        run: choice,
    },
    Kernel {
        name: "executorch_prim::sym_max.Scalar",
        args: INT_BINARY,
        run: |call| int_arithmetic(call, "max", |a, b| Some(a.max(b))),
    },
    Kernel {
        name: "executorch_prim::sym_min.Scalar",
        args: INT_BINARY,
        run: |call| int_arithmetic(call, "min", |a, b| Some(a.min(b))),
    },
    Kernel { name: "executorch_prim::sym_float.Scalar", args: UNARY, run: to_float },
    Kernel { name: "executorch_prim::sym_int.Scalar", args: UNARY, run: to_int },
    Kernel { name: "executorch_prim::ceil.Scalar", args: ROUNDING, run: |call| rounding(call, f64::ceil) },
    Kernel {
        name: "executorch_prim::round.Scalar",
        args: ROUNDING,
        run: |call| rounding(call, f64::round_ties_even),
    },
    Kernel { name: "executorch_prim::trunc.Scalar", args: ROUNDING, run: |call| rounding(call, f64::trunc) },
    Kernel {
        // A loop writes the target item by item, from the first: what it held before does not matter.
        name: "executorch_prim::et_copy_index.tensor",
        args: &[Arg::Out, Arg::Tensor, Arg::Int],
        run: copy_index,
    },
    Kernel {
        name: "executorch_prim::et_view.default",
        args: &[Arg::Tensor, Arg::IntList, Arg::Out],
        run: view,
    },
];

fn int_of(size: usize) -> Result<Value, KernelError> {
    match i64::try_from(size) {
        Ok(size) => Ok(Value::Int(size)),
        Err(_) => fail!(Range, "size {size} does not fit an int"),
    }
}

fn sym_size(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (sizes, dim) = (call.tensor(0)?.sizes(), call.int(1)?);
    match usize::try_from(dim).ok().and_then(|dim| sizes.get(dim)) {
        Some(&size) => call.set(2, int_of(size)?),
        None => fail!(Range, "dimension {dim} of a tensor of sizes {}", display_sizes(sizes)),
    }
}

fn sym_numel(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let numel = int_of(call.tensor(0)?.numel())?;
    call.set(1, numel)
}

fn local_scalar(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    fn first<T: Element>(tensor: &Tensor) -> Result<T, KernelError> {
        let cells = tensor.read::<T>().map_err(|source| KernelError::Tensor { index: 0, source })?;
        match cells.first() {
            Some(cell) => Ok(cell.get()),
            None => {
                fail!(Shape, "a tensor of sizes {} has no element to read", display_sizes(tensor.sizes()))
            }
        }
    }
    let tensor = call.tensor(0)?;
    let value = match tensor.dtype() {
        DType::Bool => Value::Bool(first::<Bool>(tensor)?.get()),
        DType::UInt8 => Value::Int(first::<u8>(tensor)?.into()),
        DType::Int8 => Value::Int(first::<i8>(tensor)?.into()),
        DType::UInt16 => Value::Int(first::<u16>(tensor)?.into()),
        DType::Int16 => Value::Int(first::<i16>(tensor)?.into()),
        DType::UInt32 => Value::Int(first::<u32>(tensor)?.into()),
        DType::Int32 => Value::Int(first::<i32>(tensor)?.into()),
        DType::Int64 => Value::Int(first::<i64>(tensor)?),
        DType::Float16 => Value::Double(first::<f16>(tensor)?.into()),
        DType::BFloat16 => Value::Double(first::<bf16>(tensor)?.into()),
        DType::Float32 => Value::Double(first::<f32>(tensor)?.into()),
        DType::Float64 => Value::Double(first::<f64>(tensor)?),
        other => fail!(DType, "a {other} element cannot become an int, float or bool"),
    };
    call.set(1, value)
}

/// A number that is not a truth value.
#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    Double(f64),
}

impl Number {
    fn to_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Double(value) => value,
        }
    }
}

fn number(call: &KernelCall<'_>, index: usize) -> Result<Number, KernelError> {
    match call.scalar(index)? {
        Scalar::Int(value) => Ok(Number::Int(value)),
        Scalar::Double(value) => Ok(Number::Double(value)),
        Scalar::Bool(_) => Err(KernelError::Argument { index, expected: "int or float", got: "bool" }),
    }
}

fn checked(symbol: &str, a: i64, b: i64, act: fn(i64, i64) -> Option<i64>) -> Result<Value, KernelError> {
    match act(a, b) {
        Some(value) => Ok(Value::Int(value)),
        None if b == 0 => fail!(Range, "{a} {symbol} 0: division by zero"),
        None => fail!(Range, "{a} {symbol} {b} does not fit an int"),
    }
}

fn arithmetic(
    call: &mut KernelCall<'_>,
    symbol: &str,
    ints: fn(i64, i64) -> Option<i64>,
    doubles: fn(f64, f64) -> f64,
) -> Result<(), KernelError> {
    let value = match (number(call, 0)?, number(call, 1)?) {
        (Number::Int(a), Number::Int(b)) => checked(symbol, a, b, ints)?,
        (a, b) => Value::Double(doubles(a.to_f64(), b.to_f64())),
    };
    call.set(2, value)
}

fn int_arithmetic(
    call: &mut KernelCall<'_>,
    symbol: &str,
    act: fn(i64, i64) -> Option<i64>,
) -> Result<(), KernelError> {
    let value = checked(symbol, call.int(0)?, call.int(1)?, act)?;
    call.set(2, value)
}

/// Division that rounds down, as in Python.
fn floor_division(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

fn true_division(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let value = number(call, 0)?.to_f64() / number(call, 1)?.to_f64();
    call.set(2, Value::Double(value))
}

#[expect(clippy::float_cmp, reason = "the operator asks whether two numbers are equal")]
fn same(a: f64, b: f64) -> bool {
    a == b
}

fn comparison(
    call: &mut KernelCall<'_>,
    ints: fn(i64, i64) -> bool,
    doubles: fn(f64, f64) -> bool,
    bools: fn(bool, bool) -> bool,
) -> Result<(), KernelError> {
    let value = match (call.scalar(0)?, call.scalar(1)?) {
        (Scalar::Bool(a), Scalar::Bool(b)) => bools(a, b),
        (Scalar::Int(a), Scalar::Int(b)) => ints(a, b),
        _ => doubles(number(call, 0)?.to_f64(), number(call, 1)?.to_f64()),
    };
    call.set(2, Value::Bool(value))
}

fn negation(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let value = match number(call, 0)? {
        Number::Int(value) => checked("-", 0, value, i64::checked_sub)?,
        Number::Double(value) => Value::Double(-value),
    };
    call.set(1, value)
}

fn not(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let value = !call.bool(0)?;
    call.set(1, Value::Bool(value))
}

fn choice(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let chosen = if call.bool(0)? { 1 } else { 2 };
    call.set(3, call.value(chosen))
}

fn to_float(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let value = number(call, 0)?.to_f64();
    call.set(1, Value::Double(value))
}

/// A whole real number as an int, where it fits.
fn whole(value: f64) -> Result<Value, KernelError> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&value) {
        #[expect(clippy::cast_possible_truncation, reason = "just compared with the ends of an int")]
        return Ok(Value::Int(value as i64));
    }
    fail!(Range, "{value} does not fit an int")
}

fn to_int(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let value = match number(call, 0)? {
        Number::Int(value) => Value::Int(value),
        Number::Double(value) => whole(value.trunc())?,
    };
    call.set(1, value)
}

fn rounding(call: &mut KernelCall<'_>, round: fn(f64) -> f64) -> Result<(), KernelError> {
    let value = whole(round(call.float(0)?))?;
    call.set(1, value)
}

/// Appends the result of one turn of a loop: item `index` along dimension 0.
///
/// # Source
/// `et_copy_index` of the ExecuTorch runtime: the target grows to `index + 1` items.
fn copy_index(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (to, from, index) = (call.tensor(0)?, call.tensor(1)?, call.int(2)?);
    if to.dtype() != from.dtype() {
        fail!(DType, "items of {} cannot go into a tensor of {}", from.dtype(), to.dtype());
    }
    let fits = to.sizes().get(1..) == Some(from.sizes());
    let first = index == 0 && to.is_dynamic() && to.rank() == from.rank() + 1;
    if !fits && !first {
        fail!(
            Shape,
            "an item of sizes {} does not fit a tensor of sizes {}",
            display_sizes(from.sizes()),
            display_sizes(to.sizes())
        );
    }
    let Some(item) = usize::try_from(index).ok().filter(|&item| item < isize::MAX as usize) else {
        fail!(Range, "index {index} is negative or too large");
    };
    if !to.is_dynamic() && item >= to.sizes()[0] {
        fail!(Range, "index {index} of a tensor of sizes {}", display_sizes(to.sizes()));
    }
    if to.order().first() != Some(&0) && to.is_dynamic() {
        fail!(Layout, "items are stored in order {:?}, growing needs dimension 0 outermost", to.order());
    }
    if to.is_dynamic() {
        let mut sizes = Dims::new(from.sizes()).unwrap_or_else(Dims::empty);
        // The target has one dimension more, so there is room.
        sizes.insert(0, item + 1);
        call.resize(0, &sizes)?;
    }
    let (to, from) = (Target::of(call, 0)?, Source::of(call, 1)?);
    if to.tensor.is_row_major() && from.tensor.is_row_major() {
        let size_bytes = from.bytes.len();
        copy_cells(&to.bytes[item * size_bytes..][..size_bytes], from.bytes);
        return Ok(());
    }
    let strides = super::walk::signed(&to.tensor.strides());
    to.scatter(&from, item as isize * strides[0], &strides[1..])
}

fn view(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let sizes = super::view::target_sizes(call.tensor(0)?, &call.ints(1)?)?;
    if call.tensor(0)?.is_row_major() && call.alias(2, 0, &sizes)? {
        return Ok(());
    }
    super::view::reshape(call, 0, 2, &sizes)
}
