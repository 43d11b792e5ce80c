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
        DType::Float32 => all(data, |x: f32| f64::from(x)),
        DType::Float64 => all(data, |x: f64| x),
        DType::Complex64 => {
            data.get::<Complex<f32>>().iter().flat_map(|c| [f64::from(c.re), f64::from(c.im)]).collect()
        }
        DType::Complex128 => data.get::<Complex<f64>>().iter().flat_map(|c| [c.re, c.im]).collect(),
        other => panic!("{other} is no float kind"),
    }
}

/// How far a result may be from PyTorch's: relative to its size, and the size below which it counts as that.
fn tolerance(operator: &str, dtype: DType) -> (f64, f64) {
    // In its tails `gelu` is a difference of numbers that are nearly equal.
    let small: f64 = if operator == "aten::gelu.out" { 0.1 } else { 1e-7 };
    match dtype {
        DType::Float16 => (1.0 / 1024.0, small.max(1.3e-4)),
        DType::BFloat16 => (1.0 / 128.0, small),
        DType::Float32 | DType::Complex64 => (1e-6, small),
        _ => (1e-14, small),
    }
}

fn same(operator: &str, got: &Data, want: &Data) -> bool {
    if got.dtype != want.dtype || got.sizes != want.sizes {
        return false;
    }
    if !(want.dtype.is_float() || want.dtype.is_complex()) {
        return got.in_order(&want.order).bytes == want.bytes;
    }
    let (tolerance, small) = tolerance(operator, want.dtype);
    reals(got).iter().zip(reals(want)).all(|(&got, want)| {
        got == want
            || (got.is_nan() && want.is_nan())
            || (got - want).abs() <= tolerance * want.abs().max(small)
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
            Ok(outcome) if same(operator, outcome.tensor(0), &want) => {}
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

fn f32s(values: &[f32]) -> Data {
    Data::new(&[values.len()], values)
}

fn refusal(call: Call) -> String {
    call.run().unwrap_err().to_string()
}

#[test]
fn kinds_that_do_not_fit_are_refused_by_name() {
    let (floats, ints) = (f32s(&[1.0]), Data::new(&[1], &[1_i32]));
    let bools = Data::new(&[1], &[Bool::from(true)]);
    let add = || Call::new("aten::add.out");
    assert_eq!(
        refusal(add().tensor(&floats).tensor(&ints).int(1).out(DType::Int32, &[1])),
        "a result of float32 cannot be stored in the int32 output (argument 3)"
    );
    assert_eq!(
        refusal(add().tensor(&ints).tensor(&ints).double(1.5).out(DType::Int32, &[1])),
        "alpha is a real number, which does not fit int32 operands"
    );
    assert_eq!(
        refusal(Call::new("aten::sub.out").tensor(&bools).tensor(&bools).bool(true).out(DType::Bool, &[1])),
        "subtraction is not defined for bool operands"
    );
    assert_eq!(
        refusal(Call::new("aten::exp.out").tensor(&ints).out(DType::Int32, &[1])),
        "argument 1 is int32, expected a float kind"
    );
    assert_eq!(
        refusal(Call::new("aten::relu.out").tensor(&floats).out(DType::Float64, &[1])),
        "the output (argument 1) is float64, expected float32"
    );
    assert_eq!(
        refusal(Call::new("aten::bitwise_not.out").tensor(&floats).out(DType::Float32, &[1])),
        "float32 operands have no bits to turn over; expected bool or integers"
    );
    let quantised = Data::of_bytes(DType::QInt8, &[1], &[3]);
    assert!(add().tensor(&quantised).tensor(&quantised).int(1).out(DType::QInt8, &[1]).run().is_err());
}

#[test]
fn sizes_that_do_not_broadcast_are_both_named() {
    let call =
        Call::new("aten::mul.out").tensor(&Data::new(&[2, 3], &[0.0_f32; 6])).tensor(&f32s(&[1.0, 2.0]));
    assert_eq!(refusal(call.out(DType::Float32, &[2, 3])), "sizes (2, 3) and (2,) do not broadcast");
    let call =
        Call::new("aten::copy_").out_like(&f32s(&[0.0, 0.0])).tensor(&Data::new(&[3, 2], &[0.0_f32; 6]));
    assert_eq!(refusal(call.bool(false)), "sizes (3, 2) do not broadcast to (2,)");
}

#[test]
fn integers_divided_by_zero_are_an_error_and_floats_are_not() {
    let (ints, zero) = (Data::new(&[2], &[4_i16, -4]), Data::new(&[2], &[2_i16, 0]));
    for operator in ["aten::floor_divide.out", "aten::fmod.Tensor_out", "aten::remainder.Tensor_out"] {
        let error =
            Call::new(operator).tensor(&ints).tensor(&zero).out(DType::Int16, &[2]).run().unwrap_err();
        assert!(matches!(error, KernelError::Range(_)), "{operator}: {error}");
    }
    let call = Call::new("aten::fmod.Scalar_out").tensor(&ints).int(0).out(DType::Int16, &[2]);
    assert_eq!(refusal(call), "fmod of integers by 0");
    let lowest = Data::new(&[1], &[i64::MIN]);
    let minus_one = Data::new(&[1], &[-1_i64]);
    let out = Call::new("aten::floor_divide.out").tensor(&lowest).tensor(&minus_one).out(DType::Int64, &[1]);
    assert_eq!(out.run().unwrap().get::<i64>(), [i64::MIN]);
}

#[test]
fn options_outside_their_range_are_refused() {
    let floats = f32s(&[1.0]);
    let bytes = Data::new(&[1], &[1_u8]);
    let gelu = Call::new("aten::gelu.out").tensor(&floats).text("erf").out(DType::Float32, &[1]);
    assert_eq!(refusal(gelu), "gelu approximation \"erf\", expected \"none\" or \"tanh\"");
    let clamp = Call::new("aten::clamp.out").tensor(&floats).none().none().out(DType::Float32, &[1]);
    assert!(refusal(clamp).starts_with("clamp got neither"));
    let clamp = Call::new("aten::clamp.out").tensor(&bytes).int(-1).none().out(DType::UInt8, &[1]);
    assert_eq!(refusal(clamp), "the bound -1 is outside the range of uint8");
    let glu = Call::new("aten::glu.out").tensor(&floats).int(0).out(DType::Float32, &[0]);
    assert!(refusal(glu).contains("cannot be halved"));
    let glu = Call::new("aten::glu.out").tensor(&floats).int(2).out(DType::Float32, &[0]);
    assert_eq!(refusal(glu), "dimension 2 of a tensor of rank 1, expected -1..1");
    let full = Call::new("aten::full.out").ints(&[2, -1]).int(0).out(DType::Float32, &[2, 1]);
    assert_eq!(refusal(full), "a size of -1 was asked for, expected 0 or more");
    for (start, end, step) in [(0, 5, 0), (0, 5, -1), (5, 0, 1)] {
        let arange = Call::new("aten::arange.start_out").int(start).int(end).int(step);
        assert!(matches!(arange.out(DType::Int64, &[5]).run(), Err(KernelError::Range(_))));
    }
    let endless = Call::new("aten::arange.out").double(f64::INFINITY).out(DType::Float32, &[5]);
    assert!(matches!(endless.run(), Err(KernelError::Range(_))));
}

#[test]
fn outputs_take_their_sizes_from_the_operands_within_their_bound() {
    let (a, b) = (Data::new(&[2, 1], &[1.0_f32, 2.0]), f32s(&[10.0, 20.0, 30.0]));
    let add = || Call::new("aten::add.out").tensor(&a).tensor(&b).int(1);
    let out = add().out_dynamic(DType::Float32, &[1, 1], &[4, 4]).run().unwrap();
    assert_eq!(out.sizes(), [2, 3]);
    assert_eq!(out.get::<f32>(), [11.0, 21.0, 31.0, 12.0, 22.0, 32.0]);
    assert!(matches!(add().out(DType::Float32, &[3, 3]).run(), Err(KernelError::Tensor { index: 3, .. })));
    assert!(matches!(
        add().out_dynamic(DType::Float32, &[1, 1], &[2, 2]).run(),
        Err(KernelError::Tensor { index: 3, .. })
    ));
}

#[test]
fn an_output_may_lie_over_an_operand() {
    let numbers: Vec<f32> = (0_u16..600).map(f32::from).collect();
    let data = f32s(&numbers);
    // In place: exactly the same bytes.
    let out = Call::new("aten::mul.out").tensor(&data).tensor(&data).out_over(0, 0, DType::Float32, &[600]);
    let squares: Vec<f32> = numbers.iter().map(|x| x * x).collect();
    assert_eq!(out.run().unwrap().get::<f32>(), squares);
    // Shifted or of another width: any numbers, but the call ends.
    for (offset, dtype) in [(4, DType::Float32), (0, DType::Float64), (8, DType::Float16)] {
        let out =
            Call::new("aten::add.out").tensor(&data).tensor(&data).int(1).out_over(0, offset, dtype, &[600]);
        assert_eq!(out.run().unwrap().sizes(), [600]);
    }
}

#[test]
fn copies_on_the_host_refuse_tensors_of_other_spaces_by_name() {
    let data = f32s(&[1.5, 2.5]);
    for operator in ["et_copy::_h2d_copy.out", "et_copy::_d2h_copy.out"] {
        let out = Call::new(operator).tensor(&data).out(DType::Float32, &[2]).run().unwrap();
        assert_eq!(out.get::<f32>(), [1.5, 2.5]);
        let far = data.clone().in_space(SpaceId::cuda(0));
        assert!(refusal(Call::new(operator).tensor(&far).out(DType::Float32, &[2])).contains("cuda:0"));
    }
    let far = data.in_space(SpaceId::cuda(1));
    assert!(refusal(Call::new("aten::exp.out").tensor(&far).out(DType::Float32, &[2])).contains("cuda:1"));
}

#[test]
fn a_copy_in_place_converts_and_broadcasts() {
    let target = Data::new(&[2, 2], &[0_i32; 4]).in_order(&[1, 0]);
    let out =
        Call::new("aten::copy_").out_like(&target).tensor(&f32s(&[1.9, -2.9])).bool(false).run().unwrap();
    assert_eq!(out.get::<i32>(), [1, -2, 1, -2]);
}

#[test]
fn opaque_kinds_are_copied_into_another_order() {
    let data = Data::of_bytes(DType::QInt8, &[2, 3], &[1, 2, 3, 4, 5, 6]);
    let out = Call::new("aten::clone.out").tensor(&data).none();
    let out = out.out_like(&Data::stale(DType::QInt8, &[2, 3]).in_order(&[1, 0])).run().unwrap();
    assert_eq!(out.tensor(0).bytes, [1, 4, 2, 5, 3, 6]);
}

#[test]
fn dim_order_copies_hold_to_the_order_asked_for() {
    let data = Data::new(&[1, 2, 2, 1], &[1.0_f32, 2.0, 3.0, 4.0]);
    let copy = |order: &[i64], out: &[u8]| {
        let out = Data::stale(DType::Float32, &[1, 2, 2, 1]).in_order(out);
        Call::new("dim_order_ops::_to_dim_order_copy.out")
            .tensor(&data)
            .bool(false)
            .ints(order)
            .out_like(&out)
            .run()
    };
    assert_eq!(copy(&[0, 2, 3, 1], &[0, 2, 3, 1]).unwrap().get::<f32>(), [1.0, 2.0, 3.0, 4.0]);
    assert!(matches!(copy(&[0, 1, 2, 3], &[0, 2, 3, 1]), Err(KernelError::Layout(_))));
    assert!(matches!(copy(&[3, 2, 1, 0], &[3, 2, 1, 0]), Err(KernelError::Layout(_))));
}

#[test]
fn floats_beyond_an_integers_range_convert_to_defined_values() {
    let data = f32s(&[f32::NAN, 1e30, -1e30, -1.5]);
    let cast = |dtype| {
        Call::new("aten::_to_copy.out").tensor(&data).bool(false).none().out(dtype, &[4]).run().unwrap()
    };
    assert_eq!(cast(DType::Int64).get::<i64>(), [0, i64::MAX, i64::MIN, -1]);
    assert_eq!(cast(DType::UInt8).get::<u8>(), [0, 255, 0, 255]);
    assert_eq!(cast(DType::Bool).get::<Bool>(), [true.into(); 4]);
}

#[test]
fn random_numbers_lie_in_their_range_and_dropout_keeps_or_scales() {
    let out = Call::new("aten::rand.out").ints(&[1000]).out(DType::Float32, &[1000]).run().unwrap();
    let values = out.get::<f32>();
    assert!(values.iter().all(|x| (0.0..1.0).contains(x)));
    assert!((values.iter().sum::<f32>() / 1000.0 - 0.5).abs() < 0.05);
    let out = Call::new("aten::randn.out").ints(&[1000]).out(DType::Float32, &[1000]).run().unwrap();
    assert!((out.get::<f32>().iter().map(|x| x * x).sum::<f32>() / 1000.0 - 1.0).abs() < 0.2);
    let data = f32s(&[2.0; 100]);
    let drop = |train: bool| {
        let call = Call::new("aten::native_dropout.out").tensor(&data).double(0.5).bool(train);
        call.out(DType::Float32, &[100]).out(DType::Bool, &[100]).run().unwrap()
    };
    assert_eq!(drop(false).get::<f32>(), [2.0; 100]);
    let trained = drop(true);
    let kept = trained.tensor(1).get::<Bool>();
    let expected: Vec<f32> = kept.iter().map(|kept| if kept.get() { 4.0 } else { 0.0 }).collect();
    assert_eq!(trained.get::<f32>(), expected);
    assert!(kept.iter().any(|kept| kept.get()) && kept.iter().any(|kept| !kept.get()));
}
