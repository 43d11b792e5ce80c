#![forbid(unsafe_code)]
//! Functions of `f32` that a compiler can run on many lanes at once: no branches, no tables, no calls.
//!
//! Errors, in units in the last place of the result, are held by the tests below against `f64`:
//! `exp` 1, `tanh` 2, `sigmoid` 2, `erf` 1.

/// Adding this to a float of at most 2²² rounds it to a whole number, halves to even; the sum's low bits
/// are the number.
const ROUNDER: f32 = 12_582_912.0;

/// 2 to the power of a whole number in −126..=127.
#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// `e` to the power of `x`.
#[inline(always)]
pub(in crate::kernel) fn exp(x: f32) -> f32 {
    // ln 2 in two parts: the first has so few bits that its products below are exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Past these the result is 0 or infinite. Comparisons, not `clamp`: NaN stays.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * core::f32::consts::LOG2_E + ROUNDER;
    let count = shifted - ROUNDER;
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
    let rest = x - count * LN2_HIGH - count * LN2_LOW;
    let tail = 1.987_569_2e-4;
    let tail = tail * rest + 1.398_199_9e-3;
    let tail = tail * rest + 8.333_452e-3;
    let tail = tail * rest + 4.166_579_6e-2;
    let tail = tail * rest + 1.666_666_6e-1;
    let tail = tail * rest + 5e-1;
    let near_one = tail * (rest * rest) + rest + 1.0;
    // Two steps, for the whole range: each power is a normal float. NaN's bits give any powers at all.
    let half = (exponent >> 1).clamp(-126, 127);
    let other = exponent.wrapping_sub(half).clamp(-126, 127);
    near_one * power_of_two(half) * power_of_two(other)
}

/// The hyperbolic tangent.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let square = x * x;
    let tail = -5.704_988_7e-3;
    let tail = tail * square + 2.063_909e-2;
    let tail = tail * square - 5.373_971_5e-2;
    let tail = tail * square + 1.333_144_2e-1;
    let tail = tail * square - 3.333_328e-1;
    let near_zero = x + x * (square * tail);
    let far = 1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0);
    // The sign also of −0, which the sum above loses.
    (if x.abs() < 0.625 { near_zero } else { far }).copysign(x)
}

/// `1 / (1 + e⁻ˣ)`, exact for small results too.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// `erf(x)` for `f32` accuracy, in `f64`: a polynomial of `x²` by Chebyshev interpolation on |x| ≤ 3.95,
/// past which the result rounds to ±1.
#[inline(always)]
fn erf_wide(x: f64) -> f64 {
    const LIMIT: f64 = 3.95;
    const TERMS: [f64; 21] = [
        3.580_007_695_938_632e-1,
        -1.787_695_053_093_242_3e-1,
        1.331_765_549_415_122_3e-1,
        -1.086_385_990_626_659_7e-1,
        9.049_139_765_450_163e-2,
        -7.431_591_633_348_438e-2,
        5.885_737_649_115_271e-2,
        -4.432_805_687_021_819e-2,
        3.148_733_108_920_626e-2,
        -2.100_428_147_705_884_4e-2,
        1.314_799_536_233_471_2e-2,
        -7.739_067_189_851_743e-3,
        4.266_707_075_946_242e-3,
        -2.180_707_671_834_510_4e-3,
        1.074_239_706_273_342_2e-3,
        -5.440_693_390_455_728e-4,
        2.339_532_293_640_261_3e-4,
        -6.062_230_224_760_524e-5,
        2.644_132_088_112_012_3e-5,
        -2.648_244_666_568_703_8e-5,
        9.092_623_900_795_918e-6,
    ];
    let at = x * x * (2.0 / (LIMIT * LIMIT)) - 1.0;
    let value = x * TERMS.iter().rev().fold(0.0, |sum, term| sum * at + term);
    if x.abs() > LIMIT { 1.0_f64.copysign(x) } else { value }
}

/// The error function.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounds once")]
pub(super) fn erf(x: f32) -> f32 {
    erf_wide(f64::from(x)) as f32
}

/// `x · Φ(x)`, with Φ the normal distribution.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounds once")]
pub(super) fn gelu(x: f32) -> f32 {
    let wide = f64::from(x);
    let value = 0.5 * wide * (1.0 + erf_wide(wide * core::f64::consts::FRAC_1_SQRT_2));
    if x == f32::NEG_INFINITY { 0.0 } else { value as f32 }
}

/// The approximation of [`gelu`] with `tanh`: `½ x (1 + tanh u) = x · sigmoid(2u)`.
#[inline(always)]
pub(super) fn gelu_tanh(x: f32) -> f32 {
    const SCALE: f32 = 0.797_884_6; // √(2/π)
    let value = x * sigmoid(2.0 * SCALE * (x + 0.044_715 * x * x * x));
    if x == f32::NEG_INFINITY { 0.0 } else { value }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "rounds once")]
#[expect(clippy::float_cmp, reason = "limits are exact")]
mod tests {
    use super::*;

    /// The largest error over the finite floats of a range, in units in the last place of the true value.
    fn ulps(range: (f32, f32), f: impl Fn(f32) -> f32, truth: impl Fn(f64) -> f64) -> f64 {
        let mut worst = 0.0_f64;
        let steps = 40_000;
        for step in 0..=steps {
            let x = range.0 + (range.1 - range.0) * (step as f32 / steps as f32);
            let expected = truth(f64::from(x));
            let rounded = expected as f32;
            let ulp = f64::from(rounded.abs().next_up()) - f64::from(rounded.abs());
            worst = worst.max((f64::from(f(x)) - expected).abs() / ulp);
        }
        worst
    }

    #[test]
    fn exp_is_within_one_ulp() {
        assert!(ulps((-87.0, 88.7), exp, f64::exp) < 1.0);
        assert!(ulps((-103.0, -87.0), exp, f64::exp) < 1.0);
        assert!(ulps((-1.0, 1.0), exp, f64::exp) < 1.0);
    }

    #[test]
    fn exp_ends_in_zero_infinity_and_nan() {
        assert_eq!([exp(0.0), exp(-0.0), exp(f32::NEG_INFINITY), exp(-200.0)], [1.0, 1.0, 0.0, 0.0]);
        assert_eq!([exp(f32::INFINITY), exp(88.8)], [f32::INFINITY; 2]);
        assert!(exp(f32::NAN).is_nan() && exp(-f32::NAN).is_nan());
    }

    #[test]
    fn tanh_sigmoid_and_erf_are_within_two_ulp() {
        for range in [(-12.0, 12.0), (-1.0, 1.0), (-1e-3, 1e-3)] {
            assert!(ulps(range, tanh, f64::tanh) < 2.0, "tanh {range:?}");
            assert!(ulps(range, sigmoid, |x| 1.0 / (1.0 + (-x).exp())) < 2.0, "sigmoid {range:?}");
            assert!(ulps(range, erf, libm::erf) < 1.0, "erf {range:?}");
        }
        assert!(ulps((-87.0, -12.0), sigmoid, |x| 1.0 / (1.0 + (-x).exp())) < 2.5);
    }

    #[test]
    fn the_ends_of_tanh_sigmoid_erf_and_gelu_are_exact() {
        let ends = [f32::NEG_INFINITY, f32::INFINITY];
        assert_eq!(ends.map(tanh), [-1.0, 1.0]);
        assert_eq!(ends.map(sigmoid), [0.0, 1.0]);
        assert_eq!(ends.map(erf), [-1.0, 1.0]);
        assert_eq!(ends.map(gelu), [0.0, f32::INFINITY]);
        assert_eq!(ends.map(gelu_tanh), [0.0, f32::INFINITY]);
        for f in [tanh, sigmoid, erf, gelu, gelu_tanh] {
            assert!(f(f32::NAN).is_nan());
        }
        assert!(tanh(-0.0).is_sign_negative() && erf(-0.0).is_sign_negative());
        assert_eq!([gelu(-1e30), gelu_tanh(-1e10)], [0.0, 0.0]);
    }
}
