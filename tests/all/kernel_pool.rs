//! Pooling.

use crate::golden;
use crate::support::kernel::{Call, Data};
use arenite::tensor::DType;

#[test]
fn averages_agree_with_torch() {
    golden::check(&["avg_pool2d.out", "_adaptive_avg_pool2d.out"]);
}

#[test]
fn maxima_and_their_places_agree_with_torch() {
    golden::check(&["max_pool2d_with_indices.out"]);
}

#[test]
fn what_does_not_fit_is_named() {
    let call = |sizes: &[usize], kernel: &[i64], padding: &[i64]| {
        let x = Data::new(sizes, &vec![0.0_f32; sizes.iter().product()]);
        Call::new("aten::max_pool2d_with_indices.out")
            .tensor(&x)
            .ints(kernel)
            .ints(&[])
            .ints(padding)
            .ints(&[1])
            .bool(false)
            .out(DType::Float32, &[1, 1, 1])
            .out(DType::Int64, &[1, 1, 1])
            .run()
            .unwrap_err()
            .to_string()
    };
    assert_eq!(call(&[2, 3], &[2], &[0]), "max_pool2d: input is (2, 3), expected rank 3 or 4");
    assert_eq!(call(&[1, 3, 3], &[2], &[2]), "max_pool2d: padding 2 is more than half of kernel size 2");
    assert_eq!(call(&[1, 3, 3], &[2, 2, 2], &[0]), "max_pool2d: kernel size has 3 items, expected 1 or 2");
    assert_eq!(
        call(&[1, 3, 3], &[5], &[0]),
        "max_pool2d: 3 positions with kernel size 5, stride 5, padding 0 and dilation 1 give 0, expected at least 1"
    );
    let error = Call::new("aten::avg_pool2d.out")
        .tensor(&Data::new(&[1, 2, 2], &[0.0_f32; 4]))
        .ints(&[2])
        .ints(&[])
        .ints(&[0])
        .bool(false)
        .bool(true)
        .int(0)
        .out(DType::Float32, &[1, 1, 1])
        .run()
        .unwrap_err();
    assert_eq!(error.to_string(), "avg_pool2d: the divisor is 0");
}
