//! Numbers that look random and are the same in every run.
//!
//! Promises  Same seed, same numbers, on every machine. Not for secrets.
//! Source    SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[inline]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Even over the whole numbers below `n`, as far as 64 bits can be; 0 if `n` is 0.
    #[inline]
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next() as u128 * n as u128) >> 64) as u64
    }

    /// Even over (0, 1]: never zero, so that its logarithm is finite.
    #[inline]
    pub const fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A number that stands for another one: the same each time, and unlike those of its neighbours.
    pub const fn mix(number: u64) -> u64 {
        Self(number).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_generator() {
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
        assert_eq!(SplitMix64::mix(1_234_567), 6_457_827_717_110_365_317);
    }

    #[test]
    fn draws_lie_in_their_range_and_cover_it() {
        let mut random = SplitMix64::new(1);
        let mut seen = [0u32; 7];
        let mut sum = 0.0;
        for _ in 0..70_000 {
            let unit = random.unit();
            assert!(unit > 0.0 && unit <= 1.0);
            sum += unit;
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (9_700..10_300).contains(n)), "{seen:?}");
        assert!((sum / 70_000.0 - 0.5).abs() < 0.005, "{sum}");
        assert_eq!(random.below(0), 0);
    }
}
