//! Random early detection: marks or drops packets by the average queue.
//!
//! Approach  The average moves at each arrival, and ages while the queue is empty as if small
//!           packets had come; between two strikes packets are counted, so that strikes are spread
//!           evenly.
//! Promises  As the lab's link box, so that both worlds mark alike. From + − × ÷ alone: the same on
//!           every machine.
//! Source    Floyd and Jacobson 1993: §4 (average, idle time), §7 (method 2: uniform gaps); Floyd
//!           2000 (gentle).

use crate::network::RedSpec;
use crate::rng::Rng;

/// Size of a packet by which the average ages while the queue is idle.
const SMALL: u64 = 1000;

#[derive(Debug)]
pub(super) struct Red {
    min: f64,
    max: f64,
    probability: f64,
    weight: f64,
    gentle: bool,
    /// Average of the queue, octets.
    average: f64,
    /// Packets since one was struck, this one included.
    since: u64,
    rng: Rng,
}

impl Red {
    pub(super) fn new(spec: &RedSpec, rng: Rng) -> Self {
        Self {
            min: spec.min.get() as f64,
            max: spec.max.get() as f64,
            probability: spec.probability,
            weight: spec.weight,
            gentle: spec.gentle,
            average: 0.0,
            since: 0,
            rng,
        }
    }

    /// A packet comes and finds `queued` octets, after the port has been idle for as long as it
    /// takes to send `idle` octets. True if it is struck: to be marked, or dropped.
    pub(super) fn strikes(&mut self, queued: u64, idle: u64) -> bool {
        if idle > 0 {
            self.average *= power(1.0 - self.weight, idle / SMALL);
        }
        self.average += self.weight * (queued as f64 - self.average);
        if self.average < self.min {
            self.since = 0;
            return false;
        }
        self.since += 1;
        let chance = self.chance();
        if chance < 1.0 {
            let spread = 1.0 - (self.since - 1) as f64 * chance;
            if spread > 0.0 && self.rng.unit() > chance / spread {
                return false;
            }
        }
        self.since = 0;
        true
    }

    /// By the average alone, at `min` or above.
    fn chance(&self) -> f64 {
        let beyond = self.average - self.max;
        if beyond < 0.0 {
            return self.probability * (self.average - self.min) / (self.max - self.min);
        }
        if self.gentle {
            self.probability + (1.0 - self.probability) * beyond / self.max
        } else {
            1.0
        }
    }
}

/// `base` to a power, by squaring.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut product = 1.0;
    while exponent > 0 && product > 0.0 {
        if exponent & 1 == 1 {
            product *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::Bytes;

    fn red(probability: f64, weight: f64, gentle: bool) -> Red {
        let (min, max) = (Bytes::new(10_000), Bytes::new(30_000));
        Red::new(&RedSpec { min, max, probability, weight, gentle }, Rng::new(5, 5))
    }

    /// The gaps between strikes while `queued` octets are found each time.
    fn gaps(red: &mut Red, queued: u64, packets: u32) -> Vec<u32> {
        let mut gap = 0;
        let mut gaps = Vec::new();
        for _ in 0..packets {
            gap += 1;
            if red.strikes(queued, 0) {
                gaps.push(gap);
                gap = 0;
            }
        }
        gaps
    }

    fn mean(gaps: &[u32]) -> f64 {
        gaps.iter().sum::<u32>() as f64 / gaps.len() as f64
    }

    #[test]
    fn the_average_follows_the_queue_with_its_weight() {
        let mut red = red(0.1, 0.25, false);
        (0..2).for_each(|_| _ = red.strikes(8000, 0));
        assert_eq!(red.average, 2000.0 + 0.25 * 6000.0);
        // 2999 octets of silence are two small packets.
        red.strikes(0, 2999);
        assert_eq!(red.average, 3500.0 * 0.75 * 0.75 * 0.75);
        red.strikes(0, 1 << 60);
        assert_eq!(red.average, 0.0);
    }

    /// Method 2: the gap is uniform from 1 to 1/p.
    #[test]
    fn gaps_between_strikes_are_uniform() {
        // Half way: p = 0.05, gaps from 1 to 20.
        let gaps = gaps(&mut red(0.1, 1.0, false), 20_000, 200_000);
        assert!((mean(&gaps) / 10.5 - 1.0).abs() < 0.02, "{}", mean(&gaps));
        assert_eq!((gaps.iter().min(), gaps.iter().max()), (Some(&1), Some(&20)));
        for length in 1..=20 {
            let share =
                gaps.iter().filter(|gap| **gap == length).count() as f64 / gaps.len() as f64;
            assert!((share * 20.0 - 1.0).abs() < 0.1, "{length}: {share}");
        }
    }

    #[test]
    fn nothing_is_struck_below_min_and_everything_from_max_on() {
        let mut red = red(0.02, 1.0, false);
        assert!(gaps(&mut red, 9_999, 1000).is_empty());
        assert_eq!(gaps(&mut red, 30_000, 1000).len(), 1000);
        assert!(gaps(&mut red, 10_000, 1000).is_empty(), "a chance of zero at min itself");
    }

    #[test]
    fn gently_the_chance_grows_from_max_to_twice_max() {
        let mut red = red(0.1, 1.0, true);
        // 0.1 + 0.9/3: gaps 1 and 2 with 0.4 each, 3 with the rest.
        let mean = mean(&gaps(&mut red, 40_000, 100_000));
        assert!((mean - 1.8).abs() < 0.02, "{mean}");
        assert_eq!(gaps(&mut red, 60_000, 100).len(), 100);
    }

    #[test]
    fn powers_are_right() {
        for (base, exponent) in
            [(0.998, 0), (0.998, 1), (0.998, 1000), (0.5, 77), (1.0, 9), (0.0, 3)]
        {
            let expected = f64::powi(base, exponent);
            let got = power(base, exponent as u64);
            assert!((got - expected).abs() <= 1e-12 * expected, "{base}^{exponent}: {got}");
        }
    }
}
