//! Reductions.

use crate::golden;
use crate::support::kernel::{Call, Data};
use arenite::tensor::DType;

#[test]
fn sums_means_and_products_agree_with_torch() {
    golden::check(&["sum.IntList_out", "mean.out", "mean.dtype_out", "prod.out", "prod.int_out"]);
}

#[test]
fn extremes_agree_with_torch() {
    golden::check(&["amax.out", "amin.out", "max.unary_out", "min.unary_out"]);
}

#[test]
fn places_of_extremes_agree_with_torch() {
    golden::check(&["argmax.out", "argmin.out", "max.dim_max", "min.dim_min", "topk.values"]);
}

#[test]
fn truth_agrees_with_torch() {
    golden::check(&["any.out", "any.dims_out", "any.all_out", "all.out", "all.dims_out", "all.all_out"]);
}

#[test]
fn variances_agree_with_torch() {
    golden::check(&["var.out", "var.correction_out", "var_mean.correction_out"]);
}

#[test]
fn running_sums_agree_with_torch() {
    golden::check(&["cumsum.out"]);
}

#[test]
fn of_equal_elements_the_first_counts() {
    let x = Data::new(&[5], &[1_i32, 3, 3, 0, 0]);
    let place = |name: &str| {
        Call::new(name).tensor(&x).none().bool(false).out(DType::Int64, &[]).run().unwrap().get::<i64>()
    };
    assert_eq!(place("aten::argmax.out"), [1]);
    assert_eq!(place("aten::argmin.out"), [3]);
    let got = Call::new("aten::topk.values")
        .tensor(&x)
        .int(3)
        .int(0)
        .bool(true)
        .bool(true)
        .out(DType::Int32, &[3])
        .out(DType::Int64, &[3])
        .run()
        .unwrap();
    assert_eq!(got.tensor(1).get::<i64>(), [1, 2, 0]);
}

#[test]
fn a_running_sum_over_its_own_input_is_right() {
    for offset_bytes in [0, 4] {
        let got = Call::new("aten::cumsum.out")
            .tensor(&Data::new(&[4], &[1.0_f32, 2.0, 3.0, 4.0]))
            .int(0)
            .none()
            .out_over(0, offset_bytes, DType::Float32, &[4])
            .run()
            .unwrap();
        assert_eq!(got.get::<f32>(), [1.0, 3.0, 6.0, 10.0]);
    }
}

#[test]
fn long_sums_keep_their_small_parts() {
    let mut values = vec![1.0e-3_f32; 1 << 18];
    values[0] = 1.0e6;
    let got = Call::new("aten::sum.IntList_out")
        .tensor(&Data::new(&[1 << 18], &values))
        .none()
        .bool(false)
        .none()
        .out(DType::Float32, &[])
        .run()
        .unwrap();
    assert_eq!(got.get::<f32>(), [1_000_262.1]);
}

#[test]
fn what_does_not_fit_is_named() {
    let x = Data::new(&[2, 2], &[0.0_f32; 4]);
    let sum = |dims: &[i64], dtype: Option<i64>| {
        let call = Call::new("aten::sum.IntList_out").tensor(&x).ints(dims).bool(false);
        let call = match dtype {
            Some(code) => call.int(code),
            None => call.none(),
        };
        call.out(DType::Float32, &[2]).run().unwrap_err().to_string()
    };
    assert_eq!(sum(&[2], None), "sum: dimension 2 is outside -2 to 1");
    assert_eq!(sum(&[1, -1], None), "sum: dimension -1 comes twice in (1, -1)");
    assert_eq!(sum(&[1], Some(7)), "sum: dtype is float64 and out float32, expected one kind");
    let whole = Data::new(&[2], &[1_i64, 2]);
    let error = Call::new("aten::mean.out")
        .tensor(&whole)
        .none()
        .bool(false)
        .none()
        .out(DType::Float32, &[])
        .run()
        .unwrap_err();
    assert_eq!(error.to_string(), "mean: elements are int64, expected float kinds");
    let empty = Data::new::<f32>(&[2, 0], &[]);
    let error = Call::new("aten::amax.out")
        .tensor(&empty)
        .ints(&[1])
        .bool(false)
        .out(DType::Float32, &[2])
        .run()
        .unwrap_err();
    assert_eq!(error.to_string(), "amax: input is (2, 0), expected an element in each group");
    let error = Call::new("aten::topk.values")
        .tensor(&x)
        .int(3)
        .int(-1)
        .bool(true)
        .bool(true)
        .out(DType::Float32, &[2, 3])
        .out(DType::Int64, &[2, 3])
        .run()
        .unwrap_err();
    assert_eq!(error.to_string(), "topk: k is 3, expected 0 to 2, the size of dimension 1");
}
