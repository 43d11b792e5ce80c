#![forbid(unsafe_code)]
//! Whether inputs fit what the file declares; nothing is touched until all do.
//!
//! Deliberately absent: copying; see [`super::transfer`].

use super::error::InputProblem;
use super::input::{Input, TensorInput};
use crate::program::MethodPlan;
use crate::tensor::Tensor;
use crate::value::Value;

/// How far a real input may be from the one frozen at export: absolute, and relative to it.
const FROZEN_TOLERANCE: (f64, f64) = (1e-4, 1e-5);

/// Whether a tensor input fits: space, kind, rank, and each dimension.
#[inline]
pub(super) fn check_tensor(declared: &Tensor, input: &TensorInput<'_>) -> Result<(), Box<InputProblem>> {
    if declared.dtype() == input.dtype() && declared.sizes() == input.sizes() && !declared.is_dynamic() {
        return Ok(());
    }
    check_other_tensor(declared, input).map_err(Box::new)
}

#[cold]
fn check_other_tensor(declared: &Tensor, input: &TensorInput<'_>) -> Result<(), InputProblem> {
    let (bound, sizes) = (declared.bound(), input.sizes());
    if declared.dtype() != input.dtype() {
        return Err(InputProblem::DType { expected: declared.dtype(), got: input.dtype() });
    }
    if bound.len() != sizes.len() {
        return Err(InputProblem::Rank { expected: bound.into(), got: sizes.into() });
    }
    if !declared.is_dynamic() && bound != sizes {
        return Err(InputProblem::Shape { expected: bound.into(), got: sizes.into() });
    }
    let over = (0..bound.len()).find(|&dim| sizes[dim] > bound[dim]);
    match over {
        Some(dim) => Err(InputProblem::Bound {
            dim,
            maximum: bound[dim],
            got: sizes[dim],
            bounds: bound.into(),
            sizes: sizes.into(),
        }),
        None => Ok(()),
    }
}

/// Whether a value that was frozen at export came again.
#[cold]
pub(super) fn check_frozen(plan: &MethodPlan, value: Value, input: &Input<'_>) -> Result<(), InputProblem> {
    let frozen = |same: bool, expected: String, got: String| {
        if same { Ok(()) } else { Err(InputProblem::Frozen { expected, got }) }
    };
    match (value, *input) {
        (Value::None, Input::None) => Ok(()),
        (Value::Int(want), Input::Int(got)) => frozen(want == got, want.to_string(), got.to_string()),
        (Value::Bool(want), Input::Bool(got)) => frozen(want == got, want.to_string(), got.to_string()),
        (Value::Double(want), Input::Double(got)) => {
            // Infinities of one sign have no distance; `total_cmp` calls them equal.
            let near = (want - got).abs() <= FROZEN_TOLERANCE.0 + FROZEN_TOLERANCE.1 * want.abs();
            let same = near || want.total_cmp(&got).is_eq() || (want.is_nan() && got.is_nan());
            frozen(same, format!("{want:?}"), format!("{got:?}"))
        }
        (Value::Text(span), Input::Text(got)) => {
            let want = plan.lists.text(span);
            frozen(want == got, format!("{want:?}"), format!("{got:?}"))
        }
        (want, got) => {
            let expected = match want {
                Value::Int(value) => format!("int {value}, frozen at export"),
                Value::Bool(value) => format!("bool {value}, frozen at export"),
                Value::Double(value) => format!("float {value:?}, frozen at export"),
                other => other.kind().into(),
            };
            let got = match got {
                Input::Tensor(tensor) => format!("tensor of {}", tensor.dtype()),
                other => other.kind().into(),
            };
            Err(InputProblem::Kind { expected, got })
        }
    }
}
