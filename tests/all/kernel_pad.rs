//! Padding and resampling give what PyTorch gives.

use crate::support::golden::{INDEX, run, same_bytes};
use crate::support::kernel::{Call, Data};
use arenite::kernel::KernelError;
use arenite::tensor::DType;
use half::{bf16, f16};

const NAMES: &[&str] = &[
    "aten::constant_pad_nd.out",
    "aten::reflection_pad1d.out",
    "aten::reflection_pad2d.out",
    "aten::reflection_pad3d.out",
    "aten::replication_pad1d.out",
    "aten::replication_pad2d.out",
    "aten::replication_pad3d.out",
    "aten::upsample_nearest2d.vec_out",
];

#[test]
fn padding_gives_what_pytorch_gives() {
    for name in NAMES {
        assert!(run(INDEX, &[name], same_bytes) > 0, "{name} has no case");
    }
}

fn reals(data: &Data) -> Vec<f64> {
    match data.dtype {
        DType::Float16 => data.get::<f16>().into_iter().map(f64::from).collect(),
        DType::BFloat16 => data.get::<bf16>().into_iter().map(f64::from).collect(),
        DType::Float32 => data.get::<f32>().into_iter().map(f64::from).collect(),
        _ => data.get::<f64>(),
    }
}

/// Equal up to the last bits of the element kind.
fn nearly(got: &Data, wanted: &Data) -> bool {
    let step = match got.dtype {
        DType::BFloat16 => 8e-3,
        DType::Float16 => 1e-3,
        DType::Float32 => 2e-6,
        _ => 1e-14,
    };
    got.dtype == wanted.dtype
        && got.sizes == wanted.sizes
        && reals(got).iter().zip(reals(wanted)).all(|(a, b)| (a - b).abs() <= step * b.abs().max(1.0))
}

#[test]
fn bilinear_resampling_gives_what_pytorch_gives() {
    assert!(run(INDEX, &["aten::upsample_bilinear2d.vec_out"], nearly) > 0);
}

fn message(call: Call) -> String {
    match call.run() {
        Err(error @ (KernelError::Range(_) | KernelError::Shape(_))) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn padding_that_does_not_fit_is_refused() {
    let x = Data::new(&[1, 3], &[1_u8, 2, 3]);
    let constant = |pad: &[i64], value| {
        let call = Call::new("aten::constant_pad_nd.out").tensor(&x).ints(pad).int(value);
        message(call.out(DType::UInt8, &[1, 4]))
    };
    assert_eq!(
        constant(&[-2, -2], 0),
        "padding (-2, -2) of sizes (1, 3): a size would be negative or too large"
    );
    let pairs = "padding (1,) of sizes (1, 3): one pair of amounts for each dimension at most";
    assert_eq!(constant(&[1], 0), pairs);
    assert_eq!(constant(&[1, 0], 300), "Int(300) does not fit uint8");
    let reflect = Call::new("aten::reflection_pad1d.out").tensor(&x).ints(&[3, 0]).out(DType::UInt8, &[1, 6]);
    assert_eq!(message(reflect), "padding 3 and 0 is more than dimension 1 of size 3 gives");
    let ranks = Call::new("aten::replication_pad2d.out").tensor(&x).ints(&[0; 4]).out(DType::UInt8, &[1, 3]);
    assert_eq!(
        message(ranks),
        "padding (0, 0, 0, 0) of sizes (1, 3), expected 4 amounts and 3 or 4 dimensions"
    );
}

#[test]
fn resampling_needs_either_sizes_or_factors() {
    let x = Data::stale(DType::Float32, &[1, 1, 2, 2]);
    let call = |sizes: Option<&[i64]>, factors: Option<&[f64]>| {
        let call = Call::new("aten::upsample_nearest2d.vec_out").tensor(&x);
        let call = match sizes {
            Some(sizes) => call.ints(sizes),
            None => call.none(),
        };
        let call = match factors {
            Some(factors) => call.doubles(factors),
            None => call.none(),
        };
        message(call.out(DType::Float32, &[1, 1, 4, 4]))
    };
    assert_eq!(call(None, None), "either two output sizes or two factors are wanted");
    assert_eq!(call(Some(&[4, 4]), Some(&[2.0, 2.0])), "either two output sizes or two factors are wanted");
    assert_eq!(call(None, Some(&[f64::NAN, 2.0])), "a factor of NaN for size 2");
    assert_eq!(call(Some(&[0, 4]), None), "an image of (2, 2) resized to (0, 4), expected no size of 0");
}
