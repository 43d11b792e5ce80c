//! Results of torch for many calls of an operator, and how they are compared.
//!
//! `tests/data/kernels/golden.json` holds tensors (kind, sizes, bytes in hexadecimal) and calls: operator,
//! arguments, results, whether every order of elements is taken, and a tolerance of its own, if any.

use crate::support::kernel::{Call, Data};
use arenite::tensor::{Bool, DType, Element};
use half::{bf16, f16};
use serde_json::Value;
use std::sync::LazyLock;

static GOLDEN: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../data/kernels/golden.json")).unwrap());

fn tensor(at: &Value) -> Data {
    let row = &GOLDEN["tensors"][usize::try_from(at.as_u64().unwrap()).unwrap()];
    let sizes: Vec<usize> = row[1].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect();
    let text = row[2].as_str().unwrap();
    let bytes: Vec<u8> =
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..][..2], 16).unwrap()).collect();
    Data::of_bytes(DType::from_name(row[0].as_str().unwrap()).unwrap(), &sizes, &bytes)
}

fn values(data: &Data) -> Vec<f64> {
    fn of<T: Element>(data: &Data, to: impl Fn(T) -> f64) -> Vec<f64> {
        data.get::<T>().into_iter().map(to).collect()
    }
    match data.dtype {
        DType::Float32 => of::<f32>(data, f64::from),
        DType::Float64 => of::<f64>(data, |v| v),
        DType::Float16 => of::<f16>(data, f64::from),
        DType::BFloat16 => of::<bf16>(data, f64::from),
        DType::Int64 => of::<i64>(data, |v| v as f64),
        DType::Int32 => of::<i32>(data, f64::from),
        DType::Int16 => of::<i16>(data, f64::from),
        DType::Int8 => of::<i8>(data, f64::from),
        DType::UInt8 => of::<u8>(data, f64::from),
        DType::Bool => of::<Bool>(data, |v| f64::from(u8::from(v.get()))),
        other => panic!("{other}"),
    }
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::Float32 => 2e-6,
        DType::Float64 => 1e-12,
        DType::Float16 => 2e-3,
        DType::BFloat16 => 1.6e-2,
        _ => 0.0,
    }
}

/// The dimensions back to front.
fn reversed(rank: usize) -> Vec<u8> {
    (0..u8::try_from(rank).unwrap()).rev().collect()
}

fn run(row: &Value, turn_input: bool, turn_out: bool) {
    let turn = |data: Data, turn: bool| if turn { data.in_order(&reversed(data.sizes.len())) } else { data };
    let mut call = Call::new(&format!("aten::{}", row[0].as_str().unwrap()));
    for (at, arg) in row[1].as_array().unwrap().iter().enumerate() {
        call = if arg.is_null() {
            call.none()
        } else if arg.is_u64() {
            call.tensor(&turn(tensor(arg), at == 0 && turn_input))
        } else if let Some(value) = arg["i"].as_i64() {
            call.int(value)
        } else if let Some(value) = arg["d"].as_f64() {
            call.double(value)
        } else if let Some(value) = arg["b"].as_bool() {
            call.bool(value)
        } else {
            call.ints(&arg["l"].as_array().unwrap().iter().map(|v| v.as_i64().unwrap()).collect::<Vec<_>>())
        };
    }
    let wants: Vec<Data> = row[2].as_array().unwrap().iter().map(tensor).collect();
    for (at, want) in wants.iter().enumerate() {
        call = call.out_like(&turn(Data::stale(want.dtype, &want.sizes), at == 0 && turn_out));
    }
    let got = call.run().unwrap_or_else(|error| panic!("{row}: {error}"));
    for (at, want) in wants.iter().enumerate() {
        assert_eq!(got.tensor(at).sizes, want.sizes, "{row}");
        let own = row[4].as_f64().unwrap();
        let tolerance = if own > 0.0 { own } else { tolerance(want.dtype) };
        for (place, (got, want)) in values(got.tensor(at)).into_iter().zip(values(want)).enumerate() {
            let same = got == want
                || (got.is_nan() && want.is_nan())
                || (got - want).abs() <= tolerance * (1.0 + want.abs());
            assert!(
                same,
                "{row}, turned {turn_input} {turn_out}, result {at}, element {place}: {got} for {want}"
            );
        }
    }
}

/// Runs every stored call of these operators, in every order of elements where that is taken.
///
/// # Panics
/// Where a result differs, or an operator has no calls.
pub fn check(operators: &[&str]) {
    for operator in operators {
        let rows = GOLDEN["cases"].as_array().unwrap().iter().filter(|row| row[0] == **operator);
        let mut count = 0;
        for row in rows {
            count += 1;
            run(row, false, false);
            if row[3] == 1 {
                run(row, true, true);
                if !operator.contains("batch_norm") {
                    run(row, true, false);
                    run(row, false, true);
                }
            }
        }
        assert!(count > 0, "calls of {operator}");
    }
}
