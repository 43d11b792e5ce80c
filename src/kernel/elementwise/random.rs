#![forbid(unsafe_code)]
//! Random numbers: `rand`, `randn`, `native_dropout`.
//!
//! The numbers come from one generator per process that always begins at the same seed: a program that runs
//! alone draws the same numbers each time it is started. They are not those that PyTorch draws.

use super::convert::{Stored, by_stored};
use super::create::sized;
use super::{at, row};
use crate::kernel::{Arg, Kernel, KernelCall, KernelError, Scalar, fail};
use crate::tensor::{Bool, Dims};
use core::sync::atomic::{AtomicU64, Ordering};

/// The kernels of this family.
pub(in crate::kernel) const KERNELS: &[Kernel] = &[
    row("aten::rand.out", &[Arg::IntList, Arg::Out], |call| random(call, uniform)),
    row("aten::randn.out", &[Arg::IntList, Arg::Out], |call| random(call, normal)),
    row(
        "aten::native_dropout.out",
        &[Arg::Tensor, Arg::Float, Arg::OptionalScalar, Arg::Out, Arg::Out],
        native_dropout,
    ),
];

/// The next 64 random bits: `SplitMix64`, whose state is a counter and may thus be shared.
fn next() -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut bits = COUNTER.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// In 0..1, with 24 bits: exact as `float32`, so that 1 is never reached by rounding.
fn uniform() -> f64 {
    (next() >> 40) as f64 / (1_u64 << 24) as f64
}

/// Normal, of mean 0 and variance 1, by the method of Box and Muller.
fn normal() -> f64 {
    let radius = (-2.0 * (1.0 - uniform()).ln()).sqrt();
    radius * (core::f64::consts::TAU * uniform()).cos()
}

fn random(call: &mut KernelCall<'_>, draw: fn() -> f64) -> Result<(), KernelError> {
    sized(call, 1)?;
    let target = call.tensor(1)?;
    if !target.dtype().is_float() {
        fail!(DType, "random numbers into {}, expected a float kind", target.dtype());
    }
    by_stored!(target.dtype(), S => {
        target.write::<S>().map_err(at(1))?.iter().for_each(|cell| cell.set(S::of_f64(draw())));
        Ok(())
    }, Err(KernelError::DType(format!("{} elements have no arithmetic", target.dtype()))))
}

/// In training each element is dropped with the probability given and the rest scaled up; else all stay.
/// The second output says which stayed.
fn native_dropout(call: &mut KernelCall<'_>) -> Result<(), KernelError> {
    let probability = call.float(1)?;
    let train = call.optional_scalar(2)?.is_none_or(|train| train != Scalar::Bool(false));
    let source = call.tensor(0)?;
    let kinds = [source.dtype(), call.tensor(3)?.dtype()];
    if !(0.0..=1.0).contains(&probability) {
        fail!(Range, "a dropout probability of {probability}, expected 0..=1");
    }
    if kinds[0] != kinds[1] || !kinds[0].is_float() {
        fail!(DType, "dropout of {} into {}, expected one float kind", kinds[0], kinds[1]);
    }
    let sizes = Dims::new(source.sizes()).unwrap_or_else(Dims::empty);
    call.resize(3, &sizes)?;
    call.resize(4, &sizes)?;
    let (source, target, kept) = (call.tensor(0)?, call.tensor(3)?, call.tensor(4)?);
    if !source.matches_layout(target) || !source.matches_layout(kept) {
        fail!(
            Layout,
            "dropout of order {:?} into {:?} and {:?}, expected one order",
            source.order(),
            target.order(),
            kept.order()
        );
    }
    let drops = train && probability > 0.0;
    let scale = if !drops {
        1.0
    } else if probability < 1.0 {
        1.0 / (1.0 - probability)
    } else {
        0.0
    };
    let kept = kept.write::<Bool>().map_err(at(4))?;
    by_stored!(kinds[0], S => {
        let items = source.read::<S>().map_err(at(0))?.iter();
        for ((item, cell), kept) in items.zip(target.write::<S>().map_err(at(3))?).zip(kept) {
            let keep = !drops || uniform() >= probability;
            kept.set(keep.into());
            cell.set(S::of_f64(if keep { item.get().to_f64() * scale } else { 0.0 }));
        }
        Ok(())
    }, Err(KernelError::DType(format!("{} elements have no arithmetic", kinds[0]))))
}
