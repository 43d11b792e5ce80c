//! Joining, repeating, turning and re-blocking give what PyTorch gives.

use crate::support::golden::{INDEX, run, same_bytes};
use crate::support::kernel::{Call, Data};
use arenite::kernel::KernelError;
use arenite::tensor::DType;

const NAMES: &[&str] = &[
    "aten::cat.out",
    "aten::stack.out",
    "aten::repeat.out",
    "aten::repeat_interleave.Tensor_out",
    "aten::flip.out",
    "aten::roll.out",
    "aten::pixel_shuffle.out",
    "aten::pixel_unshuffle.out",
    "aten::tril.out",
];

#[test]
fn rearrangements_give_what_pytorch_gives() {
    for name in NAMES {
        assert!(run(INDEX, &[name], same_bytes) > 0, "{name} has no case");
    }
}

#[test]
fn joined_integers_wrap_into_a_narrower_kind() {
    let list = [Data::new(&[2], &[300_i32, -1])];
    let out = Call::new("aten::cat.out").tensors(&list).int(0).out(DType::UInt8, &[2]).run().unwrap();
    assert_eq!(out.get::<u8>(), [44, 255]);
}

#[test]
fn tensors_that_do_not_join_are_named() {
    let list = [Data::new(&[1, 2], &[1.0_f32, 2.0]), Data::new(&[2, 1], &[1.0_f32, 2.0])];
    let cat = |dim, dtype| {
        Call::new("aten::cat.out").tensors(&list).int(dim).out(dtype, &[2, 2]).run().unwrap_err().to_string()
    };
    let wanted = "tensor 1 of sizes (2, 1) does not join one of (1, 2) along dimension 0";
    assert_eq!(cat(0, DType::Float32), wanted);
    assert_eq!(cat(2, DType::Float32), "dimension 2 is outside [-2, 2)");
    assert_eq!(cat(0, DType::Int64), "tensor 0 is float32, which cannot be stored as int64");
    let error = Call::new("aten::stack.out").tensors(&list).int(0).out(DType::Float32, &[2, 1, 2]).run();
    assert_eq!(error.unwrap_err().to_string(), "tensor 1 of sizes (2, 1) does not stack with one of (1, 2)");
    let none = Call::new("aten::cat.out").tensors(&[]).int(0).out(DType::Float32, &[0]).run();
    assert!(matches!(none, Err(KernelError::Shape(_))));
}

#[test]
fn repeats_are_checked() {
    let x = Data::new(&[2, 1], &[1.0_f32, 2.0]);
    let repeat = |repeats: &[i64]| {
        let call = Call::new("aten::repeat.out").tensor(&x).ints(repeats);
        call.out(DType::Float32, &[2, 1]).run().unwrap_err().to_string()
    };
    let wanted = "repeats (2,) are fewer than the dimensions of a tensor of sizes (2, 1)";
    assert_eq!(repeat(&[2]), wanted);
    assert_eq!(repeat(&[-1, 1]), "repeat -1 is negative");
    assert_eq!(repeat(&[i64::MAX, 1, 1]), "argument 2: rank 3, expected 2");
    let interleave = |repeats: &[i64], size| {
        let call = Call::new("aten::repeat_interleave.Tensor_out").tensor(&Data::new(&[2], repeats));
        call.int(size).out(DType::Int64, &[3]).run().unwrap_err().to_string()
    };
    assert_eq!(interleave(&[1, -1], 3), "repeat -1 is negative");
    assert_eq!(interleave(&[1, 1], 3), "repeats add up to 2, output_size is 3");
}

#[test]
fn blocks_that_do_not_fit_are_refused() {
    let x = Data::stale(DType::Float32, &[1, 6, 3, 3]);
    let call = |name, factor| {
        let call = Call::new(name).tensor(&x).int(factor).out(DType::Float32, &[1, 1, 1, 1]);
        call.run().unwrap_err().to_string()
    };
    assert_eq!(call("aten::pixel_shuffle.out", 2), "a depth of 6 is no multiple of 2 squared");
    assert_eq!(call("aten::pixel_shuffle.out", 0), "a factor of 0, expected at least 1");
    assert_eq!(call("aten::pixel_unshuffle.out", 2), "an image of 3 by 3 cannot be cut into blocks of 2");
}

#[test]
fn rolls_need_a_dimension_for_each_shift() {
    let x = Data::new(&[2], &[1_i8, 2]);
    let call = Call::new("aten::roll.out").tensor(&x).ints(&[1, 1]).ints(&[0]).out(DType::Int8, &[2]);
    assert_eq!(call.run().unwrap_err().to_string(), "2 shifts for 1 dimensions");
    let twice = Call::new("aten::roll.out").tensor(&x).ints(&[1, i64::MIN + 1]).ints(&[0, 0]);
    assert_eq!(twice.out(DType::Int8, &[2]).run().unwrap().get::<i8>(), [1, 2]);
    let call = Call::new("aten::flip.out").tensor(&x).ints(&[0, -1]).out(DType::Int8, &[2]);
    assert_eq!(call.run().unwrap_err().to_string(), "dimension -1 is named twice");
}
