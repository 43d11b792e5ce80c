#![forbid(unsafe_code)]
//! Comparison and logic: 0 or 1, in an output of any real kind, `bool` as a rule.

use super::convert::Compute;
use super::engine::{map1, map2, run};
use super::real::Real;
use super::rules::{by_class, promote_scalar, promote_tensors, rounded_to};
use super::{TENSOR_SCALAR, TENSOR_TENSOR, row};
use crate::kernel::{Kernel, KernelCall, KernelError, fail};
use crate::tensor::{DType, Element};

/// The kernels of this family.
pub(in crate::kernel) const KERNELS: &[Kernel] = &[
    row("aten::eq.Tensor_out", TENSOR_TENSOR, |call| tensors(call, Eq)),
    row("aten::eq.Scalar_out", TENSOR_SCALAR, |call| scalar(call, Eq)),
    row("aten::ne.Tensor_out", TENSOR_TENSOR, |call| tensors(call, Ne)),
    row("aten::ne.Scalar_out", TENSOR_SCALAR, |call| scalar(call, Ne)),
    row("aten::ge.Tensor_out", TENSOR_TENSOR, |call| tensors(call, Ge)),
    row("aten::ge.Scalar_out", TENSOR_SCALAR, |call| scalar(call, Ge)),
    row("aten::gt.Tensor_out", TENSOR_TENSOR, |call| tensors(call, Gt)),
    row("aten::gt.Scalar_out", TENSOR_SCALAR, |call| scalar(call, Gt)),
    row("aten::le.Tensor_out", TENSOR_TENSOR, |call| tensors(call, Le)),
    row("aten::le.Scalar_out", TENSOR_SCALAR, |call| scalar(call, Le)),
    row("aten::lt.Tensor_out", TENSOR_TENSOR, |call| tensors(call, Lt)),
    row("aten::lt.Scalar_out", TENSOR_SCALAR, |call| scalar(call, Lt)),
    row("aten::logical_and.out", TENSOR_TENSOR, |call| tensors(call, And)),
    row("aten::logical_or.out", TENSOR_TENSOR, |call| tensors(call, Or)),
    row("aten::logical_xor.out", TENSOR_TENSOR, |call| tensors(call, Xor)),
];

/// A question about two real operands of one kind.
trait Question: Copy {
    fn holds<C: Real>(self, a: C, b: C) -> bool;
}

macro_rules! questions {
    ($($name:ident, $a:ident, $b:ident => $value:expr;)+) => {
        $(#[derive(Clone, Copy)]
        struct $name;
        impl Question for $name {
            #[inline(always)]
            fn holds<C: Real>(self, $a: C, $b: C) -> bool {
                $value
            }
        })+
    };
}

questions! {
    Eq, a, b => a == b;
    Ne, a, b => a != b;
    Ge, a, b => a >= b;
    Gt, a, b => a > b;
    Le, a, b => a <= b;
    Lt, a, b => a < b;
    And, a, b => a.is_true() && b.is_true();
    Or, a, b => a.is_true() || b.is_true();
    Xor, a, b => a.is_true() != b.is_true();
}

/// Refuses an output that cannot hold 0 and 1.
fn check_answer(call: &KernelCall<'_>, out: usize) -> Result<(), KernelError> {
    let dtype = call.tensor(out)?.dtype();
    if !(dtype == DType::Bool || dtype.is_integer() || dtype.is_float()) {
        fail!(DType, "the output (argument {out}) is {dtype}, expected bool or a real kind");
    }
    Ok(())
}

fn tensors<Q: Question>(call: &mut KernelCall<'_>, question: Q) -> Result<(), KernelError> {
    let common = promote_tensors(call, 0, 1)?;
    check_answer(call, 2)?;
    by_class!(common, C => {
        run::<C, 2>(call, [0, 1], 2, C::DTYPE, map2(move |a: C, b: C| C::truth(question.holds(a, b))))
    })
}

fn scalar<Q: Question>(call: &mut KernelCall<'_>, question: Q) -> Result<(), KernelError> {
    let b = call.scalar(1)?;
    let common = promote_scalar(call.tensor(0)?.dtype(), b);
    check_answer(call, 2)?;
    let b = rounded_to(common, b);
    by_class!(common, C => {
        let b = C::of_scalar(b);
        run::<C, 1>(call, [0], 2, C::DTYPE, map1(move |a: C| C::truth(question.holds(a, b))))
    })
}
