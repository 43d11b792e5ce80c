//! View-like copies give what PyTorch gives, for any element width and any layout.

use crate::support::golden::{INDEX, run, same_bytes};
use crate::support::kernel::{Call, Data};
use arenite::kernel::KernelError;
use arenite::tensor::DType;

const NAMES: &[&str] = &[
    "aten::view_copy.out",
    "aten::squeeze_copy.dim_out",
    "aten::squeeze_copy.dims_out",
    "aten::unsqueeze_copy.out",
    "aten::permute_copy.out",
    "aten::transpose_copy.int_out",
    "aten::t_copy.out",
    "aten::expand_copy.out",
    "aten::select_copy.int_out",
    "aten::slice_copy.Tensor_out",
    "aten::narrow_copy.out",
    "aten::unfold_copy.out",
    "aten::as_strided_copy.out",
    "aten::diagonal_copy.out",
    "aten::view_as_real_copy.out",
    "aten::split_copy.Tensor_out",
    "aten::split_with_sizes_copy.out",
    "aten::unbind_copy.int_out",
];

#[test]
fn view_like_copies_give_what_pytorch_gives() {
    for name in NAMES {
        assert!(run(INDEX, &[name], same_bytes) > 0, "{name} has no case");
    }
}

/// Values 0, 1, 2, … of 32 bits.
fn counted(sizes: &[usize]) -> Data {
    let numel: i32 = sizes.iter().product::<usize>().try_into().unwrap();
    Data::new(sizes, &(0..numel).collect::<Vec<_>>())
}

#[test]
fn every_permutation_moves_each_element_to_its_place() {
    let sizes = [9, 2, 17, 11];
    let input = counted(&sizes);
    let values = input.get::<i32>();
    for code in 0..24_usize {
        let mut left = vec![0, 1, 2, 3];
        let dims: Vec<usize> =
            [code / 6, code / 2 % 3, code % 2, 0].into_iter().map(|at| left.remove(at)).collect();
        let out: Vec<usize> = dims.iter().map(|&dim| sizes[dim]).collect();
        let wanted: Vec<i32> = (0..values.len())
            .map(|mut position| {
                let mut index = [0; 4];
                for at in (0..4).rev() {
                    index[dims[at]] = position % out[at];
                    position /= out[at];
                }
                values[((index[0] * 2 + index[1]) * 17 + index[2]) * 11 + index[3]]
            })
            .collect();
        let ints: Vec<i64> = dims.iter().map(|&dim| dim.try_into().unwrap()).collect();
        for order in [[0, 1, 2, 3], [0, 2, 3, 1]] {
            let stale = Data::stale(DType::Int32, &out).in_order(&order);
            let call = Call::new("aten::permute_copy.out").tensor(&input).ints(&ints).out_like(&stale);
            assert_eq!(call.run().unwrap().get::<i32>(), wanted, "{dims:?} stored {order:?}");
        }
    }
}

#[test]
fn an_output_over_its_input_is_defined() {
    let input = counted(&[4]);
    let call = Call::new("aten::view_copy.out").tensor(&input).ints(&[2, 2]);
    assert_eq!(call.out_over(0, 0, DType::Int32, &[2, 2]).run().unwrap().get::<i32>(), [0, 1, 2, 3]);
    let call = Call::new("aten::flip.out").tensor(&input).ints(&[0]);
    assert_eq!(call.out_over(0, 0, DType::Int32, &[4]).run().unwrap().get::<i32>().len(), 4);
}

#[test]
fn opaque_elements_move_like_any_of_their_width() {
    let input = Data::of_bytes(DType::QUInt8, &[2, 2], &[1, 2, 3, 4]);
    let out = Call::new("aten::t_copy.out").tensor(&input).out(DType::QUInt8, &[2, 2]).run().unwrap();
    assert_eq!(out.tensor(0).bytes, [1, 3, 2, 4]);
}

#[test]
fn a_bounded_output_takes_the_sizes_of_the_result() {
    let call = Call::new("aten::slice_copy.Tensor_out").tensor(&counted(&[5, 2])).int(0).int(1).int(4).int(2);
    let out = call.out_dynamic(DType::Int32, &[5, 2], &[5, 2]).run().unwrap();
    assert_eq!(out.sizes(), [2, 2]);
    assert_eq!(out.get::<i32>(), [2, 3, 6, 7]);
}

#[test]
fn a_view_of_other_size_names_both_shapes() {
    let call = Call::new("aten::view_copy.out").tensor(&counted(&[2, 3])).ints(&[4, -1]);
    let error = call.out(DType::Int32, &[4, 2]).run().unwrap_err();
    assert_eq!(error.to_string(), "a tensor of sizes (2, 3) cannot be viewed as (4, -1)");
    let call = Call::new("aten::view_copy.out").tensor(&counted(&[2, 3])).ints(&[-1, -1]);
    assert!(matches!(call.out(DType::Int32, &[6]).run(), Err(KernelError::Shape(_))));
    let call = Call::new("aten::view_copy.out").tensor(&counted(&[2, 3])).ints(&[i64::MAX, i64::MAX, 4]);
    assert!(matches!(call.out(DType::Int32, &[6]).run(), Err(KernelError::Shape(_))));
}

#[test]
fn an_output_of_other_sizes_is_refused_with_both() {
    let call = Call::new("aten::t_copy.out").tensor(&counted(&[2, 3])).out(DType::Int32, &[2, 3]);
    assert_eq!(call.run().unwrap_err().to_string(), "argument 1: sizes (3, 2), fixed at (2, 3)");
}

#[test]
fn an_output_of_another_kind_is_refused() {
    let call = Call::new("aten::t_copy.out").tensor(&counted(&[2, 3])).out(DType::Float32, &[3, 2]);
    let wanted = "argument 0 is int32 and argument 1 is float32, they must be of one kind";
    assert_eq!(call.run().unwrap_err().to_string(), wanted);
}

#[test]
fn dimensions_and_indices_out_of_range_are_named() {
    let x = counted(&[2, 3]);
    let out = |call: Call| call.out(DType::Int32, &[2]).run().unwrap_err().to_string();
    let select = |dim, index| out(Call::new("aten::select_copy.int_out").tensor(&x).int(dim).int(index));
    assert_eq!(select(2, 0), "dimension 2 is outside [-2, 2)");
    assert_eq!(select(1, -4), "index -4 is outside [-3, 3)");
    assert_eq!(select(1, i64::MIN), format!("index {} is outside [-3, 3)", i64::MIN));
    let permute = out(Call::new("aten::permute_copy.out").tensor(&x).ints(&[1, -1]));
    assert_eq!(permute, "dimension -1 is named twice in (1, -1)");
    let narrow = out(Call::new("aten::narrow_copy.out").tensor(&x).int(1).int(2).int(2));
    assert_eq!(narrow, "start 2 and length 2 leave dimension 1 of size 3");
    let slice = out(Call::new("aten::slice_copy.Tensor_out").tensor(&x).int(0).none().none().int(0));
    assert_eq!(slice, "step 0, expected at least 1");
    let unfold = out(Call::new("aten::unfold_copy.out").tensor(&x).int(1).int(4).int(1));
    assert_eq!(unfold, "a window of 4 is larger than dimension 1 of size 3");
    let diagonal = out(Call::new("aten::diagonal_copy.out").tensor(&x).int(0).int(1).int(-1));
    assert_eq!(diagonal, "a diagonal needs two dimensions, both are 1");
    let expand = out(Call::new("aten::expand_copy.out").tensor(&x).ints(&[2, 6]).bool(false));
    assert_eq!(expand, "a tensor of sizes (2, 3) cannot be expanded to (2, 6)");
}

#[test]
fn strides_that_leave_the_tensor_are_refused() {
    let call = |sizes: &[i64], strides: &[i64], start| {
        let call = Call::new("aten::as_strided_copy.out").tensor(&counted(&[2, 3]));
        call.ints(sizes).ints(strides).int(start).out(DType::Int32, &[2, 2]).run()
    };
    assert_eq!(call(&[2, 2], &[3, 1], 1).unwrap().get::<i32>(), [1, 2, 4, 5]);
    for (strides, start) in
        [([3, 1], 2), ([i64::MAX, i64::MAX], 0), ([-1, 1], 2), ([1, 1], -1), ([1, 1], i64::MAX)]
    {
        assert!(matches!(call(&[2, 2], &strides, start), Err(KernelError::Range(_))), "{strides:?} {start}");
    }
}

#[test]
fn splits_must_match_their_outputs() {
    let x = counted(&[2, 3]);
    let outs = [Data::stale(DType::Int32, &[2, 1]), Data::stale(DType::Int32, &[2, 2])];
    let error =
        Call::new("aten::split_with_sizes_copy.out").tensor(&x).ints(&[1, 1]).int(1).outs(&outs).run();
    assert_eq!(error.unwrap_err().to_string(), "parts (1, 1) do not add up to dimension 1 of sizes (2, 3)");
    let error = Call::new("aten::unbind_copy.int_out").tensor(&x).int(1).outs(&outs).run();
    assert_eq!(error.unwrap_err().to_string(), "2 outputs for 3 parts of sizes (2, 3)");
    let error = Call::new("aten::split_copy.Tensor_out").tensor(&x).int(0).int(1).outs(&outs).run();
    assert_eq!(error.unwrap_err().to_string(), "split size 0 of dimension 1 of size 3");
}
