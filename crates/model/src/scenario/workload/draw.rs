//! Numbers that look random and are the same every time.
//!
//! Source    SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).

/// A generator.
#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One seed from several numbers, all of which count.
    pub(super) fn mix(parts: &[u64]) -> u64 {
        parts.iter().fold(0, |seed, part| Self(seed ^ part).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Above 0 and up to 1.
    pub(super) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// From 0 up to `n` - 1; `n` is not zero.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_generator() {
        let mut draw = Draw::new(1_234_567);
        assert_eq!(draw.next(), 6_457_827_717_110_365_317);
        assert_eq!(draw.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn draws_lie_in_their_range_and_cover_it() {
        let mut draw = Draw::new(1);
        let mut seen = [0u32; 7];
        for _ in 0..7_000 {
            let unit = draw.unit();
            assert!(unit > 0.0 && unit <= 1.0);
            seen[draw.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
    }
}
