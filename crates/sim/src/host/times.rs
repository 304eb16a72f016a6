//! Departure times in packets, and the least delayed of each window.
//!
//! Problem   Hosts' clocks agree neither on the time nor on its pace, and there is room for 16 bits.
//! Approach  A clock of its own stamps what leaves the shaper, as `stamp` will, and what arrives, as
//!           `meter` will. Of each other host the least delayed packet since the last reading stays.
//! Promises  Nothing but these 16 bits passes between hosts.
//! Not here  A field of the packet: times stand beside packets, so a timed packet keeps its number.

use crate::rng::Rng;
use weir_core::host::Timed;
use weir_units::{HostId, SortedMap, Time};

/// Streams of chance from this one on are the clocks' drifts.
const STREAM: u64 = 1 << 50;

/// One host's clock for packets, and what it saw.
#[derive(Debug)]
pub(super) struct Times {
    origin: u64,
    /// In 10⁻⁹.
    drift: i64,
    /// When the last timed packet to each host left, by the network's clock, ns.
    left: SortedMap<u32, u64>,
    least: SortedMap<HostId, Timed>,
}

impl Times {
    /// With a drift of at most so many millionths, drawn from the seed.
    pub(super) fn new(seed: u64, host: u32, most_drift: u32, origin: u64) -> Self {
        let width = u64::from(most_drift) * 2000 + 1;
        let drawn = Rng::new(seed, STREAM + u64::from(host)).next() % width;
        let drift = drawn as i64 - i64::from(most_drift) * 1000;
        Self { origin, drift, left: SortedMap::new(), least: SortedMap::new() }
    }

    fn clock(&self, now: u64) -> u64 {
        let gained = i128::from(now) * i128::from(self.drift) / 1_000_000_000;
        (now + self.origin).saturating_add_signed(gained as i64)
    }

    /// A packet leaves for another host: its departure time, if it is to carry one.
    pub(super) fn leave(&mut self, now: u64, to: u32, every: u64) -> Option<u16> {
        if self.left.get(&to).is_some_and(|last| now < last + every) {
            return None;
        }
        self.left.insert(to, now);
        Some((self.clock(now) / 1000) as u16)
    }

    /// A timed packet comes from another host.
    pub(super) fn come(&mut self, now: u64, from: HostId, sent: u16) {
        let came = self.clock(now);
        let new = Timed { sent, came: Time::from_nanos(came) };
        let least = self.least.entry(from).or_insert(new);
        if new.is_before(least) {
            *least = new;
        }
    }

    /// The least delayed packets since the last call.
    pub(super) fn take(&mut self) -> Vec<(HostId, Timed)> {
        std::mem::take(&mut self.least).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_delayed_packet_of_a_window_stays_whatever_the_clocks_show() {
        for origin in [0, 65_530_000, 14_999_999] {
            let mut sender = Times::new(7, 0, 100, 3_000_000);
            let mut receiver = Times::new(7, 1, 100, origin);
            let ms = 1_000_000;
            for (leaves, delay) in [(10 * ms, 900_000), (11 * ms, 200_000), (12 * ms, 300_000)] {
                let sent = sender.leave(leaves, 1, 125_000).expect("long enough after the last");
                assert_eq!(sender.leave(leaves + 1000, 1, 125_000), None);
                receiver.come(leaves + delay, HostId(0), sent);
            }
            let least = receiver.take();
            assert_eq!(least.len(), 1);
            // The second, which the sender's clock stamps with 14 ms but for its drift.
            assert!(least[0].1.sent.abs_diff(14_000) <= 2, "{least:?}");
            assert!(receiver.take().is_empty());
        }
    }
}
