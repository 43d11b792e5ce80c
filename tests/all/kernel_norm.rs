//! Batch, layer and group normalisation.

use crate::golden;
use crate::support::kernel::{Call, Data};
use arenite::tensor::DType;

#[test]
fn batch_norm_agrees_with_torch() {
    golden::check(&[
        "_native_batch_norm_legit_no_training.out",
        "_native_batch_norm_legit.out",
        "_native_batch_norm_legit.no_stats_out",
    ]);
}

#[test]
fn layer_norm_agrees_with_torch() {
    golden::check(&["native_layer_norm.out"]);
}

#[test]
fn group_norm_agrees_with_torch() {
    golden::check(&["native_group_norm.out"]);
}

fn layer_norm(x: &Data, shape: &[i64]) -> Call {
    Call::new("aten::native_layer_norm.out").tensor(x).ints(shape).none().none().double(0.0)
}

#[test]
fn an_empty_row_has_mean_zero_and_no_scale() {
    let got = layer_norm(&Data::new::<f32>(&[2, 0], &[]), &[0])
        .out(DType::Float32, &[2, 0])
        .out(DType::Float32, &[2, 1])
        .out(DType::Float32, &[2, 1])
        .run()
        .unwrap();
    assert_eq!(got.tensor(1).get::<f32>(), [0.0, 0.0]);
    assert!(got.tensor(2).get::<f32>().iter().all(|v| v.is_nan()));
}

#[test]
fn layer_norm_over_its_own_input_is_right() {
    let x = Data::new(&[2, 2], &[1.0_f32, 3.0, 5.0, 7.0]);
    for offset_bytes in [0, 8] {
        let got = layer_norm(&x, &[2])
            .out_over(0, offset_bytes, DType::Float32, &[2, 2])
            .out(DType::Float32, &[2, 1])
            .out(DType::Float32, &[2, 1])
            .run()
            .unwrap();
        assert_eq!(got.get::<f32>(), [-1.0, 1.0, -1.0, 1.0]);
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let x = Data::new(&[2, 3], &[0.0_f32; 6]);
    let outs = |call: Call| {
        call.out(DType::Float32, &[2, 3])
            .out(DType::Float32, &[2, 1])
            .out(DType::Float32, &[2, 1])
            .run()
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        outs(layer_norm(&x, &[2])),
        "layer_norm: normalized shape (2,) does not end the sizes (2, 3) of the input"
    );
    assert_eq!(
        outs(layer_norm(&x.in_order(&[1, 0]), &[3])),
        "layer_norm: argument 0 is in order (1, 0), expected row-major"
    );
    let call = Call::new("aten::native_layer_norm.out").tensor(&x).ints(&[3]);
    let weight = Data::new(&[2], &[0.0_f32; 2]);
    assert_eq!(
        outs(call.tensor(&weight).none().double(0.0)),
        "layer_norm: argument 2 is (2,), expected (3,)"
    );
    let one = Data::new(&[3], &[1.0_f32; 3]);
    let error = Call::new("aten::_native_batch_norm_legit.out")
        .tensor(&x)
        .none()
        .none()
        .tensor(&one)
        .tensor(&one)
        .bool(true)
        .double(0.1)
        .double(0.1)
        .out(DType::Float32, &[2, 3])
        .out(DType::Float32, &[0])
        .out(DType::Float32, &[0])
        .run()
        .unwrap_err();
    assert_eq!(error.to_string(), "batch_norm: training with running statistics is not supported");
    let error = Call::new("aten::native_group_norm.out")
        .tensor(&x)
        .none()
        .none()
        .int(2)
        .int(3)
        .int(1)
        .int(2)
        .double(0.1)
        .out(DType::Float32, &[2, 3])
        .out(DType::Float32, &[2, 2])
        .out(DType::Float32, &[2, 2])
        .run()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "group_norm: input is (2, 3), said to be 2 times 3 channels of 1 in 2 groups"
    );
}
