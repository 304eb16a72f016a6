//! Decides when to leave slow start, before it overruns the path.
//!
//! Problem   Slow start doubles until a segment is lost, and by then a whole window too much is
//!           under way.
//! Approach  Two signs, evaluated anew in every round trip. The ACKs of a round come close behind
//!           each other for half a round trip: half the path is full. Or the round's first eight
//!           samples all exceed the shortest sample ever by an eighth.
//! Promises  At most one end of slow start until the next timeout; no window falls.
//! Source    Ha, Rhee: Taming the elephants (2011); Linux, net/ipv4/tcp_cubic.c (`hystart_update`,
//!           `cubictcp_acked`), and not RFC 9406. Departs: no allowance for segments that are sent
//!           and acknowledged in bursts of 64 KB (`hystart_ack_delay`), which there are none of
//!           here.

use super::{Acked, Window};

/// Smaller windows stay in slow start, segments.
const LOW: u32 = 16;
/// ACKs closer than this are a train, ns.
const CLOSE: u64 = 2_000_000;
/// Samples of a round before the shortest of them counts.
const SAMPLES: u32 = 8;
/// A round trip is longer by at least, and need not be by more than, ns.
const LONGER: (u64, u64) = (4_000_000, 16_000_000);

#[derive(Clone, Debug, Default)]
pub(super) struct HyStart {
    /// The shortest round trip, ns; zero before the first.
    shortest: u64,
    /// When this round began, and when the last ACK of its train came, ns.
    began: u64,
    last: u64,
    /// It is over when more than this is acknowledged.
    end: u32,
    /// Its shortest round trip so far, ns, and of how many.
    least: u64,
    samples: u32,
    /// Slow start has ended.
    found: bool,
}

impl HyStart {
    /// An ACK with a sample of the round trip; it may end slow start.
    pub(super) fn watch(&mut self, window: &mut Window, ack: &Acked) {
        if ack.sample == 0 {
            return;
        }
        if self.shortest == 0 || ack.sample < self.shortest {
            self.shortest = ack.sample;
        }
        if self.found || window.cwnd >= window.ssthresh {
            return;
        }
        if ack.una > self.end {
            (self.began, self.last, self.end) = (ack.now, ack.now, ack.next);
            (self.least, self.samples) = (u64::MAX, 0);
        }
        if window.cwnd >= LOW && (self.is_long_train(ack.now) || self.is_longer(ack.sample)) {
            self.found = true;
            window.ssthresh = window.cwnd;
        }
    }

    fn is_long_train(&mut self, now: u64) -> bool {
        if now - self.last > CLOSE {
            return false;
        }
        self.last = now;
        now - self.began > self.shortest / 2
    }

    fn is_longer(&mut self, sample: u64) -> bool {
        self.least = self.least.min(sample);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        self.least > self.shortest + (self.shortest / 8).clamp(LONGER.0, LONGER.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Rounds of 20 segments at a window of 20: their ACKs come `apart`, the first of each round
    /// 50 ms after the first of the one before. Samples are 40 ms in the first round and `sample`
    /// later. When it ended, in rounds and ACKs.
    fn ends(apart: u64, sample: u64) -> Option<(u32, u32)> {
        let (mut hystart, mut window) = (HyStart::default(), Window::new(20));
        for round in 0..4 {
            for n in 0..20 {
                let ack = Acked {
                    now: 50 * MS * u64::from(round) + apart * u64::from(n),
                    acked: 1,
                    echo: false,
                    una: 20 * round + n + 1,
                    next: 20 * round + 20,
                    rtt: 40 * MS,
                    sample: if round == 0 { 40 * MS } else { sample },
                    may_grow: true,
                };
                hystart.watch(&mut window, &ack);
                if window.ssthresh != u32::MAX {
                    assert_eq!(window.ssthresh, 20, "the window as it is");
                    return Some((round, n));
                }
            }
        }
        None
    }

    #[test]
    fn a_train_of_half_a_round_trip_ends_slow_start() {
        // 20 ms: after the tenth step of 2 ms comes the eleventh.
        assert_eq!(ends(2 * MS, 40 * MS), Some((0, 11)));
        assert_eq!(ends(MS / 2, 40 * MS), None, "ten ms are too short a train");
        assert_eq!(ends(9 * MS / 4, 40 * MS), None, "too far apart");
    }

    #[test]
    fn round_trips_longer_by_an_eighth_end_slow_start() {
        assert_eq!(ends(MS / 2, 45 * MS), None, "by an eighth exactly");
        assert_eq!(ends(MS / 2, 46 * MS), Some((1, 8)), "the ninth sample of the round");
    }

    #[test]
    fn small_windows_go_on() {
        let (mut hystart, mut window) = (HyStart::default(), Window::new(15));
        for n in 0..100 {
            let now = u64::from(n) * MS;
            let sample = 10 * MS * (1 + u64::from(n));
            let (una, next, rtt, may_grow) = (n + 1, n + 16, MS, true);
            let ack = Acked { now, acked: 1, echo: false, una, next, rtt, sample, may_grow };
            hystart.watch(&mut window, &ack);
        }
        assert_eq!(window.ssthresh, u32::MAX);
    }
}
