//! Random numbers that are the same in every run.
//!
//! Source    SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).

/// A seeded generator. Each user of chance has its own, so that one more draw here changes nothing
/// there.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator numbered `stream` of a run seeded with `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Even over the whole numbers below `n`, as far as 64 bits can be; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Even over (0, 1]: never zero, so that its logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
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
    fn whole_numbers_below_a_bound_are_even() {
        let mut rng = Rng::new(5, 0);
        let mut seen = [0u32; 7];
        (0..70_000).for_each(|_| seen[rng.below(7) as usize] += 1);
        assert!(seen.iter().all(|n| (9_700..10_300).contains(n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn logarithms_are_right() {
        for x in [1e-300f64, 1.1e-16, 0.1, 0.5, 0.999_999, 1.0, 2.0, 12345.0] {
            assert!((ln(x) - x.ln()).abs() <= 1e-15 + 1e-14 * x.ln().abs(), "{x}");
        }
    }

    #[test]
    fn the_mean_of_many_units_is_a_half() {
        let mut rng = Rng::new(3, 0);
        let sum: f64 = (0..100_000).map(|_| rng.unit()).sum();
        assert!((sum / 100_000.0 - 0.5).abs() < 0.005, "{sum}");
    }
}
