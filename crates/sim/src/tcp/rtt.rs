//! When to give up waiting: smoothed round-trip time and retransmission timeout.
//!
//! Problem   Guests that lose their first windows together would try again together, at every
//!           doubling, for ever: to the nanosecond, which no two kernels do.
//! Approach  A kernel's timers expire on a grid that is the coarser the later they are, and begins when
//!           that kernel was started.
//! Source    Linux, kernel/time/timer.c: 64 buckets a level, each level eight times as coarse.
//!           RFC 6298 §2 (α = 1/8, β = 1/4), §5.5 (back-off). Karn's rule is the sender's: it times
//!           no segment that was sent twice, unless timestamps tell the copies apart.

use super::TcpConfig;
use crate::network::LONGEST;
use weir_units::Span;

/// A timer this many grains ahead is one level up.
const BUCKETS: u64 = 63;

#[derive(Clone, Debug)]
pub(super) struct Rtt {
    /// All in ns. Zero: no sample yet.
    smoothed: u64,
    deviation: u64,
    /// Without back-off.
    timeout: u64,
    least: u64,
    most: u64,
    /// Timeouts in a row.
    backed_off: u32,
    /// Length of a tick, and how long ago ticks began when the run did; ns. Zero: no grid.
    tick: u64,
    booted: u64,
}

impl Rtt {
    pub(super) fn new(config: &TcpConfig) -> Self {
        let bounded = |span: Span| span.as_nanos().clamp(1, LONGEST.as_nanos());
        let least = bounded(config.min_rto);
        let most = bounded(config.max_rto).max(least);
        Self {
            smoothed: 0,
            deviation: 0,
            timeout: bounded(config.initial_rto).clamp(least, most),
            least,
            most,
            backed_off: 0,
            tick: config.tick.as_nanos(),
            booted: 0,
        }
    }

    /// Its kernel was started so many ns before the run.
    pub(super) fn booted(&mut self, before: u64) {
        self.booted = before;
    }

    /// When a timer expires that is set for `at` ns: then or later.
    pub(super) fn expires(&self, at: u64) -> u64 {
        if self.tick == 0 {
            return at;
        }
        let mut grain = self.tick;
        while self.timeout() / grain >= BUCKETS {
            grain *= 8;
        }
        (at + self.booted).div_ceil(grain) * grain - self.booted
    }

    pub(super) fn sample(&mut self, rtt: u64) {
        if self.smoothed == 0 {
            self.smoothed = rtt.max(1);
            self.deviation = rtt / 2;
        } else {
            self.deviation = (3 * self.deviation + self.smoothed.abs_diff(rtt)) / 4;
            self.smoothed = ((7 * self.smoothed + rtt) / 8).max(1);
        }
        self.timeout = (self.smoothed + 4 * self.deviation).clamp(self.least, self.most);
        self.backed_off = 0;
    }

    /// ns; zero before the first sample.
    pub(super) fn smoothed(&self) -> u64 {
        self.smoothed
    }

    pub(super) fn back_off(&mut self) {
        self.backed_off += 1;
    }

    /// ns, back-off included.
    #[inline]
    pub(super) fn timeout(&self) -> u64 {
        if self.backed_off == 0 {
            return self.timeout;
        }
        self.timeout.saturating_mul(1 << self.backed_off.min(32)).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtt(least_ms: u64) -> Rtt {
        Rtt::new(&TcpConfig { min_rto: Span::from_millis(least_ms), ..TcpConfig::default() })
    }

    #[test]
    fn the_first_sample_counts_whole_and_later_ones_an_eighth() {
        let mut rtt = rtt(0);
        rtt.sample(800);
        assert_eq!((rtt.smoothed(), rtt.timeout()), (800, 800 + 4 * 400));
        rtt.sample(1600);
        assert_eq!((rtt.smoothed(), rtt.deviation), (900, (3 * 400 + 800) / 4));
    }

    #[test]
    fn timers_are_late_by_up_to_an_eighth_on_a_grid_of_their_own() {
        let config = TcpConfig { tick: Span::from_millis(4), ..TcpConfig::default() };
        let (mut rtt, ms) = (Rtt::new(&config), 1_000_000);
        rtt.sample(1000);
        rtt.booted(3 * ms);
        // From 200 ms on, each twice the one before: a grain of 4 ms, of 32 and of 256.
        for grain in [4, 32, 32, 32, 256, 256, 256, 2048] {
            assert!(rtt.timeout() >= 7 * grain * ms);
            let expires = rtt.expires(10_000 * ms + 1);
            assert_eq!((expires + 3 * ms) % (grain * ms), 0);
            assert!(expires > 10_000 * ms && expires <= 10_000 * ms + grain * ms);
            assert_eq!(rtt.expires(expires), expires, "once");
            rtt.back_off();
        }
        assert_eq!(self::rtt(200).expires(12_345), 12_345, "without ticks");
    }

    #[test]
    fn the_timeout_doubles_each_time_until_the_most_and_a_sample_ends_that() {
        let mut rtt = rtt(200);
        rtt.sample(1000);
        let mut seen = vec![rtt.timeout() / 1_000_000];
        for _ in 0..10 {
            rtt.back_off();
            seen.push(rtt.timeout() / 1_000_000);
        }
        assert_eq!(seen, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000, 60000]);
        rtt.sample(1000);
        assert_eq!(rtt.timeout(), 200_000_000);
    }
}
