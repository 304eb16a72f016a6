//! Smoothed round-trip time and retransmission timeout.
//!
//! Approach  As Linux does it, which is not RFC 6298 to the letter. The floor lies under the
//!           deviation, not under the sum: the timeout is SRTT + max(4·RTTVAR, 200 ms). The
//!           deviation that counts is the largest of a window, and falls by a quarter of the
//!           difference per window. A round trip that is shorter than expected moves the deviation
//!           by an eighth of what a longer one does.
//! Promises  More than the floor beyond the smoothed round trip; at most `max_rto`, back-off
//!           included.
//! Not here  When the timer really expires: see `ticks`. Karn's rule is the sender's: it times no
//!           segment that was sent twice, unless timestamps tell the copies apart. Departs: one
//!           sample per round trip, where Linux has one per ACK.
//! Source    Linux, net/ipv4/tcp_input.c (`tcp_rtt_estimator`), include/net/tcp.h
//!           (`__tcp_set_rto`), net/ipv4/tcp_output.c (`tcp_schedule_loss_probe`); RFC 6298 §2 (α =
//!           1/8, β = 1/4), §5.5 (back-off).

use super::TcpConfig;
use crate::network::LONGEST;
use weir_units::Span;

/// A kernel whose timers have ticks waits so much longer for a probe (`TCP_TIMEOUT_MIN_US`), ns.
const COARSE: u64 = 2_000_000;

#[derive(Clone, Debug)]
pub(super) struct Rtt {
    /// Eight times the smoothed round-trip time, ns. Zero: no sample yet.
    srtt: u64,
    /// The shortest sample, ns.
    shortest: u64,
    /// Four times the mean deviation, the largest such of this window, and what counts of it; ns.
    mdev: u64,
    mdev_max: u64,
    rttvar: u64,
    /// The window is over when this segment is acknowledged.
    window_end: u32,
    initial: u64,
    least: u64,
    most: u64,
    coarse: u64,
    /// Timeouts in a row.
    backed_off: u32,
}

impl Rtt {
    pub(super) fn new(config: &TcpConfig) -> Self {
        let bounded = |span: Span| span.as_nanos().clamp(1, LONGEST.as_nanos());
        let most = bounded(config.max_rto);
        Self {
            srtt: 0,
            shortest: u64::MAX,
            mdev: 0,
            mdev_max: 0,
            rttvar: 0,
            window_end: 0,
            initial: bounded(config.initial_rto).min(most),
            least: bounded(config.min_rto).min(most),
            most,
            coarse: if config.tick > Span::ZERO { COARSE } else { 0 },
            backed_off: 0,
        }
    }

    /// A round trip took `rtt` ns. All before segment `una` has arrived, `next` is the next new
    /// one.
    pub(super) fn sample(&mut self, rtt: u64, (una, next): (u32, u32)) {
        self.backed_off = 0;
        self.shortest = self.shortest.min(rtt);
        if self.srtt == 0 {
            self.srtt = (8 * rtt).max(1);
            self.mdev = 2 * rtt;
            self.rttvar = self.mdev.max(self.least);
            self.mdev_max = self.rttvar;
            self.window_end = next;
            return;
        }
        let (expected, usual) = (self.srtt / 8, self.mdev / 4);
        self.srtt = (self.srtt - expected + rtt).max(1);
        let off = expected.abs_diff(rtt);
        if off <= usual {
            self.mdev -= usual - off;
        } else if rtt < expected {
            self.mdev += (off - usual) / 8;
        } else {
            self.mdev += off - usual;
        }
        self.mdev_max = self.mdev_max.max(self.mdev);
        self.rttvar = self.rttvar.max(self.mdev_max);
        if una > self.window_end {
            self.rttvar -= (self.rttvar - self.mdev_max) / 4;
            self.window_end = next;
            self.mdev_max = self.least;
        }
    }

    /// ns; zero before the first sample.
    pub(super) fn smoothed(&self) -> u64 {
        self.srtt / 8
    }

    /// The shortest sample, ns; endless before the first.
    pub(super) fn shortest(&self) -> u64 {
        self.shortest
    }

    /// How long a sender waits in silence before it sends a probe, ns: two round trips; if a
    /// `single` segment is in flight the receiver may be waiting for a second one. No longer than
    /// the timeout, which it is before the first sample.
    #[inline]
    pub(super) fn patience(&self, single: bool) -> u64 {
        let timeout = self.timeout();
        if self.srtt == 0 {
            return timeout;
        }
        let delayed = if single { self.least } else { 0 };
        (self.srtt / 4 + self.coarse + delayed).min(timeout)
    }

    pub(super) fn back_off(&mut self) {
        self.backed_off += 1;
    }

    /// ns, back-off included.
    #[inline]
    pub(super) fn timeout(&self) -> u64 {
        let once = if self.srtt == 0 { self.initial } else { self.srtt / 8 + self.rttvar };
        if self.backed_off == 0 {
            return once.min(self.most);
        }
        once.saturating_mul(1 << self.backed_off.min(32)).min(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn rtt(least_ms: u64) -> Rtt {
        Rtt::new(&TcpConfig { min_rto: Span::from_millis(least_ms), ..TcpConfig::default() })
    }

    #[test]
    fn the_first_sample_counts_whole_and_later_ones_an_eighth() {
        let mut rtt = rtt(0);
        rtt.sample(800, (0, 0));
        assert_eq!((rtt.smoothed(), rtt.timeout()), (800, 800 + 4 * 400));
        rtt.sample(1600, (1, 2));
        assert_eq!((rtt.smoothed(), rtt.mdev), (900, 3 * 400 + 800));
        assert_eq!(rtt.timeout(), 900 + 2000);
    }

    /// Computed by hand from `tcp_rtt_estimator` with `tcp_rto_min` = 200 ms; each sample ends a
    /// window.
    #[test]
    fn the_floor_lies_under_the_deviation_and_not_under_the_sum() {
        let mut rtt = rtt(200);
        // µs: the round trip, then SRTT, RTTVAR (four times the deviation) and their sum.
        for (n, (sample, srtt, rttvar)) in (1u32..).zip([
            (10_000, 10_000, 200_000),
            (90_000, 20_000, 200_000),
            // Longer by 390 ms: the deviation goes from 95 to 461.25 ms, above the floor.
            (410_000, 68_750, 461_250),
            // As expected: it falls to 345.9375 ms, and what counts by a quarter of the difference.
            (68_750, 68_750, 432_421),
        ]) {
            rtt.sample(sample * 1000, (2 * n, 2 * n));
            assert_eq!((rtt.smoothed() / 1000, rtt.rttvar / 1000), (srtt, rttvar), "sample {n}");
            assert_eq!(rtt.timeout(), rtt.smoothed() + rtt.rttvar, "sample {n}");
        }
    }

    /// From 100 ms with a deviation of 200 (of four) down to 10 ms: 90 are 40 more than the usual
    /// 50, of which an eighth counts. Up to 190 ms all of it does.
    #[test]
    fn a_shorter_round_trip_moves_the_deviation_by_an_eighth_of_what_a_longer_one_does() {
        for (sample, mdev) in [(10, 205), (190, 240)] {
            let mut rtt = rtt(200);
            rtt.sample(100 * MS, (0, 0));
            rtt.sample(sample * MS, (1, 2));
            assert_eq!((rtt.mdev, rtt.rttvar), (mdev * MS, mdev * MS));
        }
    }

    #[test]
    fn what_counts_is_the_largest_deviation_of_a_window() {
        let mut rtt = rtt(0);
        rtt.sample(8 * MS, (0, 10));
        // Within the window the deviation falls, and nothing that counts does.
        for una in 1..=10 {
            rtt.sample(8 * MS, (una, 20));
            assert_eq!(rtt.rttvar, 16 * MS, "segment {una}");
        }
        assert!(rtt.mdev < MS);
        rtt.sample(8 * MS, (11, 20));
        assert_eq!(rtt.rttvar, 16 * MS, "the window's largest was its first");
        rtt.sample(8 * MS, (21, 30));
        assert!(rtt.rttvar < 13 * MS, "{}", rtt.rttvar);
    }

    #[test]
    fn the_timeout_doubles_each_time_until_the_most_and_a_sample_ends_that() {
        let mut rtt = rtt(200);
        assert_eq!(rtt.timeout(), 1000 * MS, "before the first sample");
        rtt.sample(50 * MS, (0, 0));
        let mut seen = vec![rtt.timeout() / MS];
        for _ in 0..11 {
            rtt.back_off();
            seen.push(rtt.timeout() / MS);
        }
        let wanted = (0..9).map(|n| 250 << n).chain([120_000; 3]).collect::<Vec<u64>>();
        assert_eq!(seen, wanted);
        rtt.sample(50 * MS, (1, 1));
        assert_eq!(rtt.timeout(), 250 * MS);
    }

    #[test]
    fn a_probe_waits_for_two_round_trips_and_for_a_delayed_ack_of_one_segment() {
        let mut rtt = rtt(200);
        assert_eq!(rtt.patience(false), 1000 * MS, "before the first sample");
        rtt.sample(50 * MS, (0, 0));
        assert_eq!([false, true].map(|single| rtt.patience(single) / MS), [100, 250]);
        rtt.sample(300 * MS, (1, 1));
        assert!(rtt.patience(true) <= rtt.timeout() && rtt.shortest() == 50 * MS);
        let tick = Span::from_millis(4);
        let mut coarse = Rtt::new(&TcpConfig { tick, ..TcpConfig::default() });
        coarse.sample(50 * MS, (0, 0));
        assert_eq!(coarse.patience(false), 102 * MS);
    }
}
