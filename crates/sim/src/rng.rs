//! Streams of random numbers that are the same in every run.

use weir_units::SplitMix64;

/// A seeded generator. Each user of chance has its own, so that one more draw here changes nothing
/// there.
#[derive(Clone, Debug)]
pub struct Rng(SplitMix64);

impl Rng {
    /// The generator numbered `stream` of a run seeded with `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = SplitMix64::new(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        rng.next();
        Self(rng)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// As [`SplitMix64::below`].
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    /// As [`SplitMix64::unit`].
    #[inline]
    pub fn unit(&mut self) -> f64 {
        self.0.unit()
    }

    /// Exponentially distributed, rounded down.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        (-ln(self.unit()) * mean as f64) as u64
    }
}

/// The natural logarithm of a positive normal number, from + − × ÷ alone: the same on every
/// machine, which a library's need not be.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i32 - 1023;
    let m = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // ln m = 2·artanh s, with s ≤ 1/3.
    let s = (m - 1.0) / (m + 1.0);
    let (mut sum, mut power) = (0.0, s);
    for odd in (1..36).step_by(2) {
        sum += power / f64::from(odd);
        power *= s * s;
    }
    f64::from(exponent) * std::f64::consts::LN_2 + 2.0 * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let draw = |seed, stream| Rng::new(seed, stream).next();
        assert_eq!(draw(1, 1), draw(1, 1));
        assert_ne!(draw(1, 1), draw(1, 2));
        assert_ne!(draw(1, 1), draw(2, 1));
    }

    #[test]
    fn logarithms_are_right() {
        for x in [1e-300f64, 1.1e-16, 0.1, 0.5, 0.999_999, 1.0, 2.0, 12345.0] {
            assert!((ln(x) - x.ln()).abs() <= 1e-15 + 1e-14 * x.ln().abs(), "{x}");
        }
    }
}
