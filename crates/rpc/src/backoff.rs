//! How long an agent waits before it tries again.
//!
//! Problem   A controller that comes back must not meet ten thousand agents in one moment.
//! Approach  Each wait is drawn evenly from nothing to a bound that doubles with each failure (full
//!           jitter).
//! Source    Brooker, "Exponential backoff and jitter" (2015).

use std::time::Duration;

/// Bound of the first wait. Larger means a gentler return and a later one.
pub const FIRST: Duration = Duration::from_secs(1);
/// The largest bound. An agent is back at most this long after its controller, and the handshakes.
pub const MOST: Duration = Duration::from_secs(10);

/// Waits of one agent.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The next wait. `random` is drawn anew from all 64 bits.
    pub fn next(&mut self, random: u64) -> Duration {
        let bound = FIRST.saturating_mul(1 << self.failures.min(16)).min(MOST);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(random as f64 / u64::MAX as f64)
    }

    /// It worked.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_are_spread_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let bounds: Vec<Duration> = (0..6).map(|_| backoff.next(u64::MAX)).collect();
        let seconds = [1, 2, 4, 8, 10, 10].map(Duration::from_secs);
        assert_eq!(bounds, seconds);
        assert_eq!(backoff.next(0), Duration::ZERO);
        assert_eq!(backoff.next(u64::MAX / 2).as_secs_f64().round(), 5.0);
        backoff.reset();
        assert_eq!(backoff.next(u64::MAX), FIRST);
    }
}
