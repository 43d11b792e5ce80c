#![forbid(unsafe_code)]
//! Elementwise kernels against golden values.
//!
//! `tests/data/kernels_elementwise.json.z` holds one call per line, computed by PyTorch:
//! `[operator, [argument, …], kind, sizes, order, bytes in row-major order]`.

use crate::support::kernel::{Call, Data};
use arenite::SpaceId;
use arenite::kernel::{Arg, Kernel, KernelError};
use arenite::tensor::{Bool, DType, copy_cells};
use half::{bf16, f16};
use num_complex::Complex;
use serde_json::Value as Json;
use std::io::Read;

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn numbers<T: TryFrom<u64>>(json: &Json) -> Vec<T>
where
    T::Error: std::fmt::Debug,
{
    json.as_array().unwrap().iter().map(|n| n.as_u64().unwrap().try_into().unwrap()).collect()
}

fn tensor(kind: &Json, sizes: &Json, order: &Json, hex: &Json) -> Data {
    let dtype = DType::from_name(kind.as_str().unwrap()).unwrap();
    Data::of_bytes(dtype, &numbers::<usize>(sizes), &bytes(hex.as_str().unwrap())).in_order(&numbers(order))
}

/// Every element as one or two `f64`s; integers beyond 2⁵³ are compared as bytes instead.
fn reals(data: &Data) -> Vec<f64> {
    fn all<T: arenite::tensor::Element>(data: &Data, f: impl Fn(T) -> f64) -> Vec<f64> {
        data.get::<T>().into_iter().map(f).collect()
    }
    match data.dtype {
        DType::Float16 => all(data, f16::to_f64),
        DType::BFloat16 => all(data, bf16::to_f64),
        DType::Float32 => all(data, f64::from),
        DType::Float64 => all(data, |x: f64| x),
        DType::Complex64 => {
            data.get::<Complex<f32>>().iter().flat_map(|c| [f64::from(c.re), f64::from(c.im)]).collect()
        }
        DType::Complex128 => data.get::<Complex<f64>>().iter().flat_map(|c| [c.re, c.im]).collect(),
        other => panic!("{other} is no float kind"),
    }
}

/// How far a result may be from PyTorch's, relative to its size: two units in the last place.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::Float16 => 1.0 / 1024.0,
        DType::BFloat16 => 1.0 / 128.0,
        DType::Float32 | DType::Complex64 => 1e-6,
        _ => 1e-14,
    }
}

fn same(got: &Data, want: &Data) -> bool {
    if got.dtype != want.dtype || got.sizes != want.sizes {
        return false;
    }
    if !(want.dtype.is_float() || want.dtype.is_complex()) {
        return got.in_order(&want.order).bytes == want.bytes;
    }
    let tolerance = tolerance(want.dtype);
    reals(got).iter().zip(reals(want)).all(|(&got, want)| {
        got == want
            || (got.is_nan() && want.is_nan())
            || (got - want).abs() <= tolerance * want.abs().max(1e-7)
    })
}

fn golden() -> String {
    let packed = include_bytes!("../data/kernels_elementwise.json.z");
    let mut text = String::new();
    flate2::read::ZlibDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    text
}

fn call(operator: &str, args: &[Json]) -> Call {
    args.iter().fold(Call::new(operator), |call, arg| match arg[0].as_str().unwrap() {
        "T" => call.tensor(&tensor(&arg[1], &arg[2], &arg[3], &arg[4])),
        "N" => call.none(),
        "B" => call.bool(arg[1].as_bool().unwrap()),
        "I" => call.int(arg[1].as_i64().unwrap()),
        "D" => call.double(arg[1].as_str().unwrap().parse().unwrap()),
        "S" => call.text(arg[1].as_str().unwrap()),
        _ => call.ints(&arg[1].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect::<Vec<_>>()),
    })
}

#[test]
fn every_golden_call_gives_the_values_of_pytorch() {
    let (mut failed, mut count) = (vec![], 0);
    for line in golden().lines() {
        let case: Vec<Json> = serde_json::from_str(line).unwrap();
        let operator = case[0].as_str().unwrap();
        let want = tensor(&case[2], &case[3], &case[4], &case[5]);
        let outcome = call(operator, case[1].as_array().unwrap())
            .out_like(&Data::stale(want.dtype, &want.sizes).in_order(&want.order))
            .run();
        count += 1;
        match outcome {
            Ok(outcome) if same(outcome.tensor(0), &want) => {}
            Ok(outcome) => {
                let got = outcome.tensor(0);
                let shown = |data: &Data| {
                    if data.dtype.is_float() {
                        format!("{:?}", reals(data))
                    } else {
                        format!("{:?}", data.bytes)
                    }
                };
                failed.push(format!("{line}\n  got  {}\n  want {}", shown(got), shown(&want)));
            }
            Err(error) => failed.push(format!("{line}\n  {error}")),
        }
    }
    assert!(count > 3000, "the golden file is whole");
    assert!(failed.is_empty(), "{} of {count} calls differ:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn a_kernel_reads_and_writes_through_the_harness() {
    let copy = Kernel {
        name: "test::copy",
        args: &[Arg::Tensor, Arg::IntList, Arg::Out],
        run: |call| {
            assert_eq!(*call.ints(1)?, [7, 8]);
            copy_cells(call.tensor(2)?.write::<f32>().unwrap(), call.tensor(0)?.read::<f32>().unwrap());
            Ok(())
        },
    };
    let data = Data::new(&[2, 2], &[1.0_f32, 2.0, 3.0, 4.0]).in_order(&[1, 0]);
    let out = Call::of(copy).tensor(&data).ints(&[7, 8]).out(DType::Float32, &[2, 2]).run().unwrap();
    assert_eq!(out.get::<f32>(), [1.0, 3.0, 2.0, 4.0]);
}
