#![forbid(unsafe_code)]
//! Activations and clamps.

use super::convert::Compute;
use super::engine::{Operand, Places, map1, map2, map3, run, run_blocks, wide1, wide2};
use super::real::{Real, Ring};
use super::rules::{by_class, check_out, check_same, promote, promote_scalar, refused};
use super::walk::Walk;
use super::{TENSOR, math, row};
use crate::kernel::{Arg, Kernel, KernelCall, KernelError, Scalar, fail};
use crate::tensor::shape::display_sizes;
use crate::tensor::{DType, Dims};
use crate::value::Value;

/// The kernels of this family.
pub(in crate::kernel) const KERNELS: &[Kernel] = &[
    row("aten::relu.out", TENSOR, relu),
    row("aten::gelu.out", &[Arg::Tensor, Arg::Text, Arg::Out], gelu),
    row("aten::elu.out", &[Arg::Tensor, Arg::Scalar, Arg::Scalar, Arg::Scalar, Arg::Out], elu),
    row("aten::leaky_relu.out", &[Arg::Tensor, Arg::Scalar, Arg::Out], leaky_relu),
    row("aten::hardtanh.out", &[Arg::Tensor, Arg::Scalar, Arg::Scalar, Arg::Out], hardtanh),
    row("aten::clamp.out", &[Arg::Tensor, Arg::OptionalScalar, Arg::OptionalScalar, Arg::Out], clamp),
    row(
        "aten::clamp.Tensor_out",
        &[Arg::Tensor, Arg::OptionalTensor, Arg::OptionalTensor, Arg::Out],
        clamp_tensor,
    ),
    row("aten::glu.out", &[Arg::Tensor, Arg::Int, Arg::Out], glu),
];

/// `max(x, 0)`; NaN stays.
fn relu(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let dtype = call.tensor(0)?.dtype();
    check_same(call, dtype, 1)?;
    if dtype == DType::Bool {
        return Err(refused(dtype));
    }
    by_class!(dtype, C => run::<C, 1>(call, [0], 1, dtype, wide1(|x: C| if x < C::ZERO { C::ZERO } else { x })))
}

/// The kind of argument 0, where it is a float kind and that of the output.
fn float_kind(call: &KernelCall<'_>, out: usize) -> Result<DType, KernelError> {
    let dtype = call.tensor(0)?.dtype();
    check_same(call, dtype, out)?;
    match dtype {
        DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64 => Ok(dtype),
        other => fail!(DType, "{other} operands are not taken; expected a float kind"),
    }
}

fn gelu(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let dtype = float_kind(call, 2)?;
    match call.text(1)? {
        "none" if dtype == DType::Float64 => run::<f64, 1>(call, [0], 2, dtype, map1(gelu_double)),
        "none" => run::<f32, 1>(call, [0], 2, dtype, wide1(math::gelu)),
        "tanh" if dtype == DType::Float64 => run::<f64, 1>(call, [0], 2, dtype, map1(gelu_tanh_double)),
        "tanh" => run::<f32, 1>(call, [0], 2, dtype, wide1(math::gelu_tanh)),
        other => fail!(Range, "gelu approximation \"{other}\", expected \"none\" or \"tanh\""),
    }
}

fn gelu_double(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        0.0
    } else {
        0.5 * x * (1.0 + libm::erf(x * core::f64::consts::FRAC_1_SQRT_2))
    }
}

fn gelu_tanh_double(x: f64) -> f64 {
    let inner =
        core::f64::consts::FRAC_2_SQRT_PI * core::f64::consts::FRAC_1_SQRT_2 * (x + 0.044_715 * x * x * x);
    if x == f64::NEG_INFINITY { 0.0 } else { 0.5 * x * (1.0 + inner.tanh()) }
}

/// Scale times: `x` where positive, else `alpha · (e^(input_scale · x) − 1)`.
fn elu(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let dtype = float_kind(call, 4)?;
    let numbers = [call.scalar(1)?, call.scalar(2)?, call.scalar(3)?];
    macro_rules! elu {
        ($C:ty) => {{
            let [alpha, scale, input_scale] = numbers.map(<$C>::of_scalar);
            let negative = alpha * scale;
            run::<$C, 1>(
                call,
                [0],
                4,
                dtype,
                map1(move |x: $C| if x <= 0.0 { (x * input_scale).exp_m1() * negative } else { x * scale }),
            )
        }};
    }
    if dtype == DType::Float64 { elu!(f64) } else { elu!(f32) }
}

/// `x` where positive, else `slope · x`.
fn leaky_relu(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let dtype = float_kind(call, 2)?;
    let slope = call.scalar(1)?;
    by_class!(dtype, C => {
        let slope = C::of_scalar(slope);
        run::<C, 1>(call, [0], 2, dtype, map1(move |x: C| {
            if x > C::ZERO { x } else { x.times(slope) }
        }))
    })
}

/// Refuses a bound that an integer kind cannot hold.
fn check_bound(dtype: DType, bound: Scalar) -> Result<(), KernelError> {
    let fits = match dtype {
        DType::UInt8 => within(bound, 0.0, f64::from(u8::MAX)),
        DType::Int8 => within(bound, f64::from(i8::MIN), f64::from(i8::MAX)),
        DType::Int16 => within(bound, f64::from(i16::MIN), f64::from(i16::MAX)),
        DType::UInt16 => within(bound, 0.0, f64::from(u16::MAX)),
        DType::Int32 => within(bound, f64::from(i32::MIN), f64::from(i32::MAX)),
        DType::UInt32 => within(bound, 0.0, f64::from(u32::MAX)),
        DType::Int64 => within(bound, i64::MIN as f64, i64::MAX as f64),
        _ => true,
    };
    if fits { Ok(()) } else { fail!(Range, "the bound {} is outside the range of {dtype}", bound.to_f64()) }
}

fn within(bound: Scalar, low: f64, high: f64) -> bool {
    (low..=high).contains(&bound.to_f64())
}

fn hardtanh(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let dtype = call.tensor(0)?.dtype();
    check_same(call, dtype, 3)?;
    if dtype == DType::Bool {
        return Err(refused(dtype));
    }
    clamp_between(call, dtype, Some(call.scalar(1)?), Some(call.scalar(2)?))
}

/// Where the lower bound is above the upper, the upper is the result; NaN stays.
fn clamp(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let (low, high) = (call.optional_scalar(1)?, call.optional_scalar(2)?);
    if low.is_none() && high.is_none() {
        fail!(Range, "clamp got neither a lower nor an upper bound, expected at least one");
    }
    let mut common = call.tensor(0)?.dtype();
    for bound in [low, high].into_iter().flatten() {
        common = promote_scalar(common, bound);
    }
    check_same(call, common, 3)?;
    clamp_between(call, common, low, high)
}

fn clamp_between(
    call: &mut KernelCall<'_>,
    common: DType,
    low: Option<Scalar>,
    high: Option<Scalar>,
) -> Result<(), KernelError> {
    for bound in [low, high].into_iter().flatten() {
        check_bound(common, bound)?;
    }
    by_class!(common, C => match (low.map(C::of_scalar), high.map(C::of_scalar)) {
        (Some(low), Some(high)) => {
            run::<C, 1>(call, [0], 3, common, wide1(move |x: C| x.larger(low).smaller(high)))
        }
        (Some(low), None) => run::<C, 1>(call, [0], 3, common, map1(move |x: C| x.larger(low))),
        (_, Some(high)) => run::<C, 1>(call, [0], 3, common, map1(move |x: C| x.smaller(high))),
        (None, None) => Ok(()),
    })
}

fn clamp_tensor(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let has = [1, 2].map(|index| call.value(index) != Value::None);
    let mut common = call.tensor(0)?.dtype();
    for index in [1, 2] {
        if let Some(bound) = call.optional_tensor(index)? {
            common = promote(common, bound.dtype())?;
        }
    }
    check_out(call, common, 3)?;
    by_class!(common, C => match has {
        [true, true] => run::<C, 3>(call, [0, 1, 2], 3, common, map3(|x: C, low, high| x.larger(low).smaller(high))),
        [true, false] => run::<C, 2>(call, [0, 1], 3, common, map2(|x: C, low| x.larger(low))),
        [false, true] => run::<C, 2>(call, [0, 2], 3, common, map2(|x: C, high| x.smaller(high))),
        [false, false] => fail!(Range, "clamp got neither a lower nor an upper bound, expected at least one"),
    })
}

/// `a · sigmoid(b)` of the two halves of a dimension.
fn glu(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let source = call.tensor(0)?;
    let (dtype, rank, asked) = (source.dtype(), source.rank(), call.int(1)?);
    let dim = if asked < 0 { asked.saturating_add(rank as i64) } else { asked };
    let Some(dim) = usize::try_from(dim).ok().filter(|&dim| dim < rank) else {
        fail!(Range, "dimension {asked} of a tensor of rank {rank}, expected {}..{rank}", -(rank as i64));
    };
    let mut sizes = Dims::new(source.sizes()).unwrap_or_else(Dims::empty);
    if !sizes[dim].is_multiple_of(2) {
        fail!(
            Shape,
            "sizes {}: dimension {dim} cannot be halved, expected an even size",
            display_sizes(&sizes)
        );
    }
    sizes.as_mut_slice()[dim] /= 2;
    if !(dtype.is_float() && call.tensor(2)?.dtype().is_float()) {
        fail!(DType, "{dtype} operands into {}, expected float kinds", call.tensor(2)?.dtype());
    }
    call.resize(2, &sizes)?;
    let (source, target) = (call.tensor(0)?, call.tensor(2)?);
    let offset = sizes[dim] * source.strides()[dim];
    let halves = [0, offset].map(|base| Walk::part(source, &sizes, base, &sizes, target.order()));
    macro_rules! glu {
        ($C:ty, $sigmoid:expr) => {{
            let [a, b] = halves.each_ref().map(|walk| Operand::<$C>::of(source, 0, Places::Strided(walk)));
            run_blocks([a?, b?], target, 2, dtype, &wide2(|a: $C, b: $C| a * $sigmoid(b)))
        }};
    }
    match dtype {
        DType::Float64 => glu!(f64, |x: f64| 1.0 / (1.0 + (-x).exp())),
        DType::Float32 | DType::Float16 | DType::BFloat16 => glu!(f32, math::sigmoid),
        other => Err(refused(other)),
    }
}
