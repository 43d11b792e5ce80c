//! Softmax and its logarithm.

use crate::golden;
use crate::support::kernel::{Call, Data};
use arenite::tensor::DType;

#[test]
fn softmax_agrees_with_torch() {
    golden::check(&["_softmax.out"]);
}

#[test]
fn log_softmax_agrees_with_torch() {
    golden::check(&["_log_softmax.out"]);
}

#[test]
fn softmax_over_its_own_input_is_right() {
    let x = Data::new(&[2, 2], &[0.0_f32, 0.0, 1.0, 1.0]);
    for offset_bytes in [0, 4] {
        let got = Call::new("aten::_softmax.out")
            .tensor(&x)
            .int(1)
            .bool(false)
            .out_over(0, offset_bytes, DType::Float32, &[2, 2])
            .run()
            .unwrap();
        assert_eq!(got.get::<f32>(), [0.5; 4]);
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let call = |dim, half, dtype| {
        let x = Data::new(&[2], &[0.0_f32; 2]);
        Call::new("aten::_softmax.out")
            .tensor(&x)
            .int(dim)
            .bool(half)
            .out(dtype, &[2])
            .run()
            .unwrap_err()
            .to_string()
    };
    assert_eq!(call(1, false, DType::Float32), "softmax: dimension 1 is outside -1 to 0");
    assert_eq!(call(0, true, DType::Float32), "softmax: half_to_float is not supported");
    assert_eq!(
        call(0, false, DType::Float64),
        "softmax: input is float32 and out float64, expected one kind"
    );
}
