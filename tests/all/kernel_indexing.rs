//! Indexing gives what PyTorch gives, and an index outside its bound is named before anything is written.

use crate::support::golden::{INDEX, run, same_bytes};
use crate::support::kernel::{Call, Data};
use arenite::kernel::KernelError;
use arenite::tensor::{Bool, DType};

const NAMES: &[&str] = &[
    "aten::embedding.out",
    "aten::index.Tensor_out",
    "aten::index_put.out",
    "aten::index_put_",
    "aten::index_select.out",
    "aten::gather.out",
    "aten::scatter.src_out",
    "aten::scatter.value_out",
    "aten::scatter_add.out",
    "aten::select_scatter.out",
    "aten::slice_scatter.out",
    "aten::masked_scatter.out",
    "aten::masked_select.out",
    "aten::nonzero.out",
];

#[test]
fn indexing_gives_what_pytorch_gives() {
    for name in NAMES {
        assert!(run(INDEX, &[name], same_bytes) > 0, "{name} has no case");
    }
}

fn table() -> Data {
    Data::new(&[3, 2], &[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0])
}

fn longs(sizes: &[usize], values: &[i64]) -> Data {
    Data::new(sizes, values)
}

fn message(call: Call) -> String {
    match call.run() {
        Err(error @ (KernelError::Range(_) | KernelError::Shape(_) | KernelError::DType(_))) => {
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_embedding_refuses_indices_outside_its_table() {
    let call = |index| {
        let call = Call::new("aten::embedding.out").tensor(&table()).tensor(&longs(&[2], &[0, index]));
        message(call.int(-1).bool(false).bool(false).out(DType::Float32, &[2, 2]))
    };
    assert_eq!(call(3), "index 3 is outside [0, 3)");
    assert_eq!(call(-1), "index -1 is outside [0, 3)");
    let floats = Call::new("aten::embedding.out").tensor(&table()).tensor(&table());
    let floats = message(floats.int(-1).bool(false).bool(false).out(DType::Float32, &[3, 2, 2]));
    assert_eq!(floats, "argument 1 is float32, indices are int32 or int64");
}

#[test]
fn index_put_wraps_once_and_refuses_the_rest() {
    let call = |index| {
        let call = Call::new("aten::index_put.out").tensor(&table());
        let call = call.optional_tensors(&[Some(longs(&[1], &[index]))]);
        call.tensor(&Data::new(&[1], &[9.0_f32])).bool(false).out(DType::Float32, &[3, 2])
    };
    assert_eq!(call(-3).run().unwrap().get::<f32>(), [9.0, 9.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(message(call(-4)), "index -4 is outside [-3, 3)");
    assert_eq!(message(call(3)), "index 3 is outside [-3, 3)");
    assert_eq!(message(call(i64::MIN)), format!("index {} is outside [-3, 3)", i64::MIN));
}

#[test]
fn the_last_of_equal_indices_wins() {
    let call = Call::new("aten::index_put_").out_like(&table());
    let call = call.optional_tensors(&[Some(longs(&[3], &[1, 1, -2])), None]);
    let call = call.tensor(&Data::new(&[3, 1], &[7.0_f32, 8.0, 9.0])).bool(false);
    assert_eq!(call.run().unwrap().get::<f32>(), [0.0, 1.0, 9.0, 9.0, 4.0, 5.0]);
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    let index = |indices: &[Option<Data>]| {
        message(
            Call::new("aten::index.Tensor_out")
                .tensor(&table())
                .optional_tensors(indices)
                .out(DType::Float32, &[1]),
        )
    };
    let (two, three) = (longs(&[2], &[0, 0]), longs(&[3], &[0, 0, 0]));
    let apart = index(&[Some(two.clone()), Some(three.clone())]);
    assert_eq!(apart, "indices of sizes (3,) and (2,) do not stretch to each other");
    let many = index(&[Some(two.clone()), None, Some(three)]);
    assert_eq!(many, "more indices than dimensions of a tensor of sizes (3, 2)");
    let mask = index(&[Some(Data::new(&[2], &[Bool::from(true); 2]))]);
    assert_eq!(mask, "a mask of sizes (2,) over dimensions of sizes (3,)");
    let put = Call::new("aten::index_put.out").tensor(&table()).optional_tensors(&[Some(two)]);
    let put = message(put.tensor(&Data::new(&[3], &[0.0_f32; 3])).bool(false).out(DType::Float32, &[3, 2]));
    assert_eq!(put, "values of sizes (3,) do not stretch to the (2, 2) places that the indices pick");
}

#[test]
fn gather_and_scatter_refuse_indices_outside() {
    let gather = Call::new("aten::gather.out").tensor(&table()).int(0).tensor(&longs(&[1, 2], &[0, 3]));
    assert_eq!(message(gather.bool(false).out(DType::Float32, &[1, 2])), "index 3 is outside [0, 3)");
    let scatter = |indices: &Data| {
        let call = Call::new("aten::scatter.src_out").tensor(&table()).int(1).tensor(indices);
        message(call.tensor(&table()).out(DType::Float32, &[3, 2]))
    };
    assert_eq!(scatter(&longs(&[1, 1], &[-1])), "index -1 is outside [0, 2)");
    assert_eq!(scatter(&longs(&[4, 1], &[0; 4])), "indices of sizes (4, 1) leave a tensor of sizes (3, 2)");
    assert_eq!(scatter(&longs(&[1, 3], &[0; 3])), "indices of sizes (1, 3) leave a source of sizes (3, 2)");
    let value = Call::new("aten::scatter.value_out").tensor(&Data::new(&[1], &[1_u8])).int(0);
    let value = value.tensor(&longs(&[1], &[0])).int(256).out(DType::UInt8, &[1]);
    assert_eq!(message(value), "Int(256) does not fit uint8");
}

#[test]
fn index_select_takes_one_dimension_of_indices() {
    let call = |indices: &Data| {
        let call = Call::new("aten::index_select.out").tensor(&table()).int(1).tensor(indices);
        message(call.out(DType::Float32, &[3, 1]))
    };
    assert_eq!(call(&longs(&[1, 1], &[0])), "indices of sizes (1, 1), expected one dimension");
    assert_eq!(call(&longs(&[1], &[2])), "index 2 is outside [0, 2)");
}

#[test]
fn masks_are_of_bool_and_their_source_is_long_enough() {
    let mask = Data::new(&[3, 2], &[Bool::from(true); 6]);
    let call = Call::new("aten::masked_scatter.out").tensor(&table()).tensor(&mask);
    let short = message(call.tensor(&Data::new(&[5], &[0.0_f32; 5])).out(DType::Float32, &[3, 2]));
    assert_eq!(short, "the mask places 6 elements, the source has 5");
    let call =
        Call::new("aten::masked_select.out").tensor(&table()).tensor(&table()).out(DType::Float32, &[6]);
    assert_eq!(message(call), "the mask is float32, expected bool");
}

#[test]
fn a_bounded_output_takes_as_many_rows_as_there_are() {
    let x = Data::new(&[2, 2], &[0_i16, 5, 0, 7]);
    let out =
        Call::new("aten::nonzero.out").tensor(&x).out_dynamic(DType::Int64, &[4, 2], &[4, 2]).run().unwrap();
    assert_eq!(out.sizes(), [2, 2]);
    assert_eq!(out.get::<i64>(), [0, 1, 1, 1]);
}

#[test]
fn select_and_slice_scatter_name_the_sizes_that_differ() {
    let call = Call::new("aten::select_scatter.out").tensor(&table()).tensor(&table()).int(0).int(0);
    let wanted = "the source has sizes (3, 2), the part of (3, 2) that it goes to has (2,)";
    assert_eq!(message(call.out(DType::Float32, &[3, 2])), wanted);
}
