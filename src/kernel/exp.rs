#![forbid(unsafe_code)]
//! The exponential function of whole rows, in a form that compilers turn into vector code.
//!
//! ```text
//! e^x = 2^n · e^r,   n = round(x / ln 2),   r = x − n · ln 2 in (−0.35, 0.35): a polynomial
//! ```
//!
//! Deliberately absent: results below the least normal number, which become 0.

/// 1.5 · 2²³: adding it rounds to a whole number, which then stands in the low bits.
const ROUND: f32 = 12_582_912.0;
/// Below this the result is 0.
const LEAST: f32 = -87.336_54;
/// Above this the result is infinite.
const MOST: f32 = 88.722_84;

/// e to the power of `x`, within 2 units in the last place; a NaN stays.
#[inline(always)]
pub(crate) fn exp_f32(x: f32) -> f32 {
    let clamped = if x > MOST { MOST } else { x };
    let rounded = clamped * core::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    // ln 2 in two parts, the first short enough that its product with n is exact.
    let r = clamped - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 0.166_666_65;
    p = p * r + 0.5;
    let p = p * r * r + r + 1.0;
    // 2^n in two factors, since n may be 128.
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23).cast_unsigned());
    let result = p * power(half) * power(n.wrapping_sub(half));
    let result = if x > MOST { f32::INFINITY } else { result };
    if x < LEAST { 0.0 } else { result }
}

#[cfg(test)]
mod tests {
    use super::exp_f32;

    #[test]
    fn exp_is_close_everywhere_and_exact_at_the_ends() {
        let mut x = -87.3_f32;
        while x < 88.7 {
            let (got, want) = (f64::from(exp_f32(x)), f64::from(x).exp());
            assert!((got / want - 1.0).abs() < 2.5e-7, "{x}: {got} for {want}");
            x += 0.003_7;
        }
        assert_eq!(exp_f32(0.0), 1.0);
        assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_f32(-200.0), 0.0);
        assert_eq!(exp_f32(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp_f32(89.0), f32::INFINITY);
        assert!(exp_f32(88.72).is_finite());
        assert!(exp_f32(f32::NAN).is_nan());
    }
}
