//! Whether a rate loop comes to rest, given how late its feedback is.
//!
//! Problem   R is set from what arrived, and what arrived was sent at an older R. A gain that is right at
//!           once oscillates for ever when its answer comes a few periods late.
//! Approach  Near its fixed point the law is x[n+1] = x[n] − α·x[n−d]. Its roots lie within the unit circle
//!           while α < 2·sin(π / (2·(2d + 1))): 2, 1, 0.618, 0.445, 0.347, 0.285 for d = 0 … 5.
//! Promises  Above the bound it says so, with the shortest period that would do.
//! Not here  Anything but the linear loop: what rests near the fixed point also gets there from
//!           everywhere, as far as it was tried (docs/algorithms/eyeq.md).
//! Source    EyeQ §3.4 gives d = 0. The bound for d > 0: Levin and May, 1976 (a delayed logistic map).

use std::f64::consts::PI;
use weir_units::Span;

/// What lies between a rate that is computed and the arrivals that show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Loop {
    /// From the receiver's word to the first packets at the new rate: one round trip, queues included.
    pub round_trip: Span,
    /// From the sender's hearing it to the limiter's having it: nothing where a BPF program sets
    /// departure times, a period of the agent where an agent sets classes.
    pub actuation: Span,
}

impl Loop {
    /// d: how many periods late the feedback is, rounded up.
    pub fn delay(self, period: Span) -> u64 {
        let late = (self.round_trip + self.actuation).as_nanos();
        late.div_ceil(period.as_nanos().max(1))
    }

    /// The shortest period with which a gain of `alpha` is stable, if any is.
    pub fn least_period(self, alpha: f64) -> Option<Span> {
        let d = (0..=DELAY_MOST).rev().find(|d| alpha < bound(*d))?;
        let late = (self.round_trip + self.actuation).as_nanos();
        match d {
            0 if late > 0 => None,
            0 => Some(Span::ZERO),
            d => Some(Span::from_nanos(late.div_ceil(d))),
        }
    }
}

/// No loop is looked at whose feedback is later than this many periods.
const DELAY_MOST: u64 = 64;

/// Gains below this are stable when feedback is `delay` periods late.
pub fn bound(delay: u64) -> f64 {
    2.0 * (PI / (2.0 * (2.0 * delay as f64 + 1.0))).sin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_two_at_once_and_falls_with_each_period() {
        let want = [2.0, 1.0, 0.618, 0.445, 0.347, 0.285];
        for (d, want) in (0..).zip(want) {
            assert!((bound(d) - want).abs() < 0.001, "{d}: {}", bound(d));
        }
    }

    #[test]
    fn what_comes_within_a_period_is_one_period_late() {
        let us = Span::from_micros;
        let kernel = Loop { round_trip: us(100), actuation: Span::ZERO };
        assert_eq!(kernel.delay(us(200)), 1);
        assert_eq!(kernel.delay(us(50)), 2);
        // An agent that sets limiters once a millisecond.
        let agent = Loop { round_trip: us(100), actuation: us(1000) };
        assert_eq!(agent.delay(us(200)), 6);
        assert_eq!(agent.delay(us(1000)), 2);
        assert_eq!(agent.least_period(0.5), Some(us(550)));
        assert_eq!(agent.least_period(0.2).map(|p| p < us(200)), Some(true));
        assert_eq!(agent.least_period(1.5), None, "only without any delay");
    }
}
