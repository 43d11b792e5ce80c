#![forbid(unsafe_code)]
//! Arithmetic of the kinds that are computed in, as PyTorch defines it.

use super::convert::{Compute, Wide};

/// Sums and products.
pub(super) trait Ring: Compute {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

/// The arithmetic of real kinds.
pub(super) trait Real: Ring + PartialOrd {
    fn truth(value: bool) -> Self;
    fn is_nan(self) -> bool;
    fn is_infinite(self) -> bool;
    fn absolute(self) -> Self;
    fn negated(self) -> Self;
    /// −1, 0 or 1; 0 for NaN.
    fn sign(self) -> Self;
    fn ceil(self) -> Self;
    fn floor(self) -> Self;
    fn trunc(self) -> Self;
    /// To the nearest whole number, halves to the even one.
    fn round(self) -> Self;
    /// The quotient rounded down. Integers: `other` is not 0.
    fn divided_down(self, other: Self) -> Self;
    /// The quotient rounded toward 0. Integers: `other` is not 0.
    fn divided_toward_zero(self, other: Self) -> Self;
    /// The remainder with the sign of `self`, as `fmod` of C. Integers: `other` is not 0.
    fn remainder_toward_zero(self, other: Self) -> Self;
    /// The remainder with the sign of `other`, as `%` of Python. Integers: `other` is not 0.
    fn remainder_down(self, other: Self) -> Self;
    fn power(self, exponent: Self) -> Self;

    /// The larger; NaN where either is.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if self > other || self.is_nan() { self } else { other }
    }

    /// The smaller; NaN where either is.
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        if self < other || self.is_nan() { self } else { other }
    }

    fn is_true(self) -> bool {
        self != Self::ZERO
    }
}

macro_rules! floats {
    ($($kind:ty)+) => {
        $(impl Ring for $kind {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
        }

        impl Real for $kind {
            #[inline(always)]
            fn truth(value: bool) -> Self {
                if value { 1.0 } else { 0.0 }
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.is_nan()
            }
            #[inline(always)]
            fn is_infinite(self) -> bool {
                self.is_infinite()
            }
            #[inline(always)]
            fn absolute(self) -> Self {
                self.abs()
            }
            #[inline(always)]
            fn negated(self) -> Self {
                -self
            }
            #[inline(always)]
            fn sign(self) -> Self {
                if self > 0.0 {
                    1.0
                } else if self < 0.0 {
                    -1.0
                } else {
                    0.0
                }
            }
            #[inline(always)]
            fn ceil(self) -> Self {
                self.ceil()
            }
            #[inline(always)]
            fn floor(self) -> Self {
                self.floor()
            }
            #[inline(always)]
            fn trunc(self) -> Self {
                self.trunc()
            }
            #[inline(always)]
            fn round(self) -> Self {
                self.round_ties_even()
            }
            fn divided_down(self, other: Self) -> Self {
                if other == 0.0 {
                    return self / other;
                }
                let rest = self % other;
                let mut quotient = (self - rest) / other;
                if rest != 0.0 && (other < 0.0) != (rest < 0.0) {
                    quotient -= 1.0;
                }
                if quotient == 0.0 {
                    return Self::copysign(0.0, self / other);
                }
                let down = quotient.floor();
                if quotient - down > 0.5 { down + 1.0 } else { down }
            }
            #[inline(always)]
            fn divided_toward_zero(self, other: Self) -> Self {
                (self / other).trunc()
            }
            #[inline(always)]
            fn remainder_toward_zero(self, other: Self) -> Self {
                self % other
            }
            #[inline(always)]
            fn remainder_down(self, other: Self) -> Self {
                let rest = self % other;
                if rest != 0.0 && (other < 0.0) != (rest < 0.0) { rest + other } else { rest }
            }
            #[inline(always)]
            fn power(self, exponent: Self) -> Self {
                self.powf(exponent)
            }
        })+
    };
}

floats! { f32 f64 }

impl Ring for i64 {
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn minus(self, other: Self) -> Self {
        self.wrapping_sub(other)
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
}

impl Real for i64 {
    #[inline(always)]
    fn truth(value: bool) -> Self {
        Self::from(value)
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        false
    }
    #[inline(always)]
    fn is_infinite(self) -> bool {
        false
    }
    #[inline(always)]
    fn absolute(self) -> Self {
        self.wrapping_abs()
    }
    #[inline(always)]
    fn negated(self) -> Self {
        self.wrapping_neg()
    }
    #[inline(always)]
    fn sign(self) -> Self {
        self.signum()
    }
    #[inline(always)]
    fn ceil(self) -> Self {
        self
    }
    #[inline(always)]
    fn floor(self) -> Self {
        self
    }
    #[inline(always)]
    fn trunc(self) -> Self {
        self
    }
    #[inline(always)]
    fn round(self) -> Self {
        self
    }
    fn divided_down(self, other: Self) -> Self {
        let quotient = self.wrapping_div(other);
        let rest = self.wrapping_rem(other);
        if rest != 0 && (rest < 0) != (other < 0) { quotient - 1 } else { quotient }
    }
    fn divided_toward_zero(self, other: Self) -> Self {
        self.wrapping_div(other)
    }
    fn remainder_toward_zero(self, other: Self) -> Self {
        self.wrapping_rem(other)
    }
    fn remainder_down(self, other: Self) -> Self {
        let rest = self.wrapping_rem(other);
        if rest != 0 && (rest < 0) != (other < 0) { rest + other } else { rest }
    }
    /// A negative exponent gives the whole part: 0 but for bases 1 and −1.
    fn power(self, exponent: Self) -> Self {
        if exponent < 0 {
            return match self {
                1 => 1,
                -1 if exponent % 2 == 0 => 1,
                -1 => -1,
                _ => 0,
            };
        }
        let (mut base, mut rest, mut out) = (self, exponent, 1_i64);
        while rest > 0 {
            if rest & 1 == 1 {
                out = out.wrapping_mul(base);
            }
            base = base.wrapping_mul(base);
            rest >>= 1;
        }
        out
    }
}

impl Ring for Wide {
    fn plus(self, other: Self) -> Self {
        self + other
    }
    fn minus(self, other: Self) -> Self {
        self - other
    }
    fn times(self, other: Self) -> Self {
        self * other
    }
}
