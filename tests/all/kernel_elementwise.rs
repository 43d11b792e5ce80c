#![forbid(unsafe_code)]
//! Elementwise kernels against golden values.

use crate::support::kernel::{Call, Data};
use arenite::kernel::{Arg, Kernel};
use arenite::tensor::{DType, copy_cells};

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
