#![forbid(unsafe_code)]
//! Choice by a mask: `where`, `masked_fill`.

use super::convert::Compute;
use super::engine::{map2, map3, run};
use super::row;
use super::rules::{by_moved_class, check_out, check_same, promote_tensors};
use crate::kernel::{Arg, Kernel, KernelCall, KernelError, fail};
use crate::tensor::DType;

/// The kernels of this family.
pub(in crate::kernel) const KERNELS: &[Kernel] = &[
    row("aten::where.self_out", &[Arg::Tensor, Arg::Tensor, Arg::Tensor, Arg::Out], where_self),
    row("aten::masked_fill.Scalar_out", &[Arg::Tensor, Arg::Tensor, Arg::Scalar, Arg::Out], masked_fill),
];

fn check_mask(call: &KernelCall<'_>, index: usize) -> Result<(), KernelError> {
    let dtype = call.tensor(index)?.dtype();
    if !matches!(dtype, DType::Bool | DType::UInt8) {
        fail!(DType, "the mask (argument {index}) is {dtype}, expected bool or uint8");
    }
    Ok(())
}

/// `self` where the condition is true, else `other`.
fn where_self(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    check_mask(call, 0)?;
    let common = promote_tensors(call, 1, 2)?;
    check_out(call, common, 3)?;
    by_moved_class!(common, C => run::<C, 3>(call, [0, 1, 2], 3, common, map3(|mask: C, a, b| {
        if mask == C::ZERO { b } else { a }
    })))
}

/// A number where the mask is true, else `self`.
fn masked_fill(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    check_mask(call, 1)?;
    let dtype = call.tensor(0)?.dtype();
    check_same(call, dtype, 3)?;
    let value = call.scalar(2)?;
    by_moved_class!(dtype, C => {
        let value = C::of_scalar(value);
        run::<C, 2>(call, [0, 1], 3, dtype, map2(move |a: C, mask| if mask == C::ZERO { a } else { value }))
    })
}
