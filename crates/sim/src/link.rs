//! A port and its link: a FIFO queue that needs no event of its own.
//!
//! Problem   A queue simulated packet by packet costs two events per hop: one for leaving the
//!           queue, one for arriving. On a FIFO port the first tells nothing that was not known at
//!           enqueue.
//! Approach  A port stores until when it is busy. A packet leaves at max(now, busy) + its own time
//!           on the wire. The queue is (busy − now) × rate. Bounds on the queue are stored as
//!           times, so that a hop needs no division.
//! Promises  A packet that does not fit is dropped whole; one that finds more than K octets queued
//!           is marked; no link carries more than its rate. One cache line per port.
//! Not here  Ports with further functions: see [`special`]. Ports that decide the order of service
//!           later need an event per departure: see `queues`. Propagation without a queue is a link
//!           with a high rate.
//! Source    The marking rule: DCTCP (SIGCOMM 2010) §3.1, instantaneous queue at arrival.
//!
//! Instants of the simulation are whole nanoseconds, as everywhere in Weir: a packet of 1500 octets
//! takes 1200 of them at 10 Gb/s, and a second is far from the end of 64 bits. But one of 64 octets
//! takes 51.2: so a port counts in 2⁻¹⁶ ns, a link is late by less than 3 in a million up to
//! 400 Gb/s, and only the arrival of the last bit is rounded, to the nearest nanosecond.
//! A packet on the wire counts as queued with the octets of it that have not left.

mod extra;
mod queues;
mod red;
mod special;

pub(crate) use special::{Fate, Pool, Special};

use crate::network::LinkSpec;

/// Fine time units in a nanosecond, as a shift.
const FINE: u32 = 16;
/// Further fractional bits of the time of an octet.
const PACE: u32 = 8;

/// Result of a packet at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It arrives at the far end at `at` ns, with a mark or without.
    Sent {
        at: u64,
        mark: bool,
    },
    Dropped,
}

/// One direction of a cable, and the port before it.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Link {
    /// The last octet queued leaves at this instant, in 2⁻¹⁶ ns.
    busy: u64,
    /// Time of an octet, in 2⁻²⁴ ns. Rounded up: a link may run late, never early.
    pace: u64,
    /// Time it takes to empty the full buffer, in 2⁻¹⁶ ns.
    room: u64,
    /// A packet that finds more than this queued is marked, in 2⁻¹⁶ ns.
    knee: u64,
    pub(crate) octets: u64,
    pub(crate) packets: u64,
    /// Propagation, in ns.
    delay: u32,
    /// Number of this port among the special ones, plus one; 0 for an ordinary port.
    pub(crate) special: u32,
    pub(crate) drops: u32,
    pub(crate) marks: u32,
}

const _: () = assert!(size_of::<Link>() == 64, "a port is one cache line");

impl Link {
    pub(crate) fn new(spec: &LinkSpec) -> Self {
        let bps = u128::from(spec.rate.as_bps().max(1));
        let pace = (8_000_000_000u128 << (FINE + PACE)).div_ceil(bps) as u64;
        // Half an octet more, so that rounding decides nothing.
        let time = |octets: u64| {
            let halves = 2 * u128::from(octets) + 1;
            ((halves * u128::from(pace)) >> (PACE + 1)).try_into().unwrap_or(u64::MAX)
        };
        Self {
            busy: 0,
            pace,
            room: time(spec.buffer.get()),
            knee: spec.mark_above.map_or(u64::MAX, |k| time(k.get())),
            octets: 0,
            packets: 0,
            delay: spec.delay.as_nanos() as u32,
            special: 0,
            drops: 0,
            marks: 0,
        }
    }

    /// A packet of `size` octets comes to the port at `now` ns.
    #[inline]
    pub(crate) fn offer(&mut self, now: u64, size: u16, capable: bool) -> Verdict {
        let now = now << FINE;
        let busy = self.busy.max(now);
        let wait = busy - now;
        let wire = self.wire(size);
        if wait + wire > self.room {
            self.drops += 1;
            return Verdict::Dropped;
        }
        let mark = capable & (wait > self.knee);
        self.marks += u32::from(mark);
        self.busy = busy + wire;
        self.octets += u64::from(size);
        self.packets += 1;
        Verdict::Sent { at: self.arrival(self.busy), mark }
    }

    /// Octets in the port at `now` ns, including the octets of the packet on the wire that have not
    /// left, to the nearest octet. With several queues only the packet on the wire counts.
    pub(crate) fn queued(&self, now: u64) -> u64 {
        let wait = self.busy.saturating_sub(now << FINE);
        if wait < 1 << (63 - PACE) {
            return ((wait << PACE) + self.pace / 2) / self.pace;
        }
        let pace = u128::from(self.pace);
        (((u128::from(wait) << PACE) + pace / 2) / pace) as u64
    }

    /// Octets that could have been sent since the port became idle; zero if it is not.
    fn idle(&self, now: u64) -> u64 {
        let idle = u128::from((now << FINE).saturating_sub(self.busy));
        ((idle << PACE) / u128::from(self.pace)) as u64
    }

    /// A packet goes on the wire at an instant in 2⁻¹⁶ ns; returns when it arrives at the far end.
    fn transmit(&mut self, from: u64, size: u16) -> u64 {
        self.busy = from + self.wire(size);
        self.arrival(self.busy)
    }

    /// When the wire is free, rounded up to ns.
    fn free_at(&self) -> u64 {
        self.busy.div_ceil(1 << FINE)
    }

    /// Time on the wire.
    #[inline]
    fn wire(&self, size: u16) -> u64 {
        (u64::from(size) * self.pace + (1 << PACE) - 1) >> PACE
    }

    /// When a packet arrives whose last octet leaves at `end`.
    #[inline]
    fn arrival(&self, end: u64) -> u64 {
        ((end + (1 << (FINE - 1))) >> FINE) + u64::from(self.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::{Bytes, Rate, Span};

    fn link(mbps: u64, buffer: u64, mark_above: Option<u64>) -> Link {
        Link::new(&LinkSpec {
            from: 0,
            to: 1,
            rate: Rate::from_mbps(mbps),
            delay: Span::from_nanos(500),
            buffer: Bytes::new(buffer),
            mark_above: mark_above.map(Bytes::new),
            loss: 0.0,
        })
    }

    #[test]
    fn a_packet_leaves_after_those_before_it() {
        let mut link = link(10_000, 1_000_000, None);
        let sent = |at| Verdict::Sent { at, mark: false };
        assert_eq!(link.offer(100, 1500, true), sent(100 + 1200 + 500));
        assert_eq!(link.offer(100, 1500, true), sent(100 + 2400 + 500));
        assert_eq!(link.queued(100), 3000);
        assert_eq!(link.queued(700), 2250, "half of the first packet has left");
        assert_eq!(link.queued(9_000), 0);
        assert_eq!(
            link.offer(9_000, 1500, true),
            sent(9_000 + 1200 + 500),
            "idle links start anew"
        );
    }

    #[test]
    fn small_packets_fill_a_fast_link_exactly() {
        let mut link = link(10_000, 1_000_000_000, None);
        let mut last = 0;
        for _ in 0..1_000_000 {
            if let Verdict::Sent { at, .. } = link.offer(0, 64, false) {
                last = at;
            }
        }
        // 51.2 ns each, never early.
        assert!((51_200_500..=51_200_520).contains(&last), "{last}");
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_only_that() {
        let mut link = link(1_000, 3000, None);
        assert!(matches!(link.offer(0, 1500, false), Verdict::Sent { .. }));
        assert!(matches!(link.offer(0, 1500, false), Verdict::Sent { .. }));
        assert_eq!(link.offer(0, 1, false), Verdict::Dropped);
        assert_eq!((link.packets, link.octets, link.drops), (2, 3000, 1));
        assert_eq!(link.offer(11_990, 1500, false), Verdict::Dropped, "not all of it has left");
        assert!(matches!(link.offer(12_000, 1500, false), Verdict::Sent { .. }));
    }

    #[test]
    fn a_mark_needs_more_than_k_octets_and_a_capable_packet() {
        let mut link = link(10_000, 1_000_000, Some(3000));
        let mut marked =
            |capable| matches!(link.offer(0, 1500, capable), Verdict::Sent { mark: true, .. });
        assert_eq!(
            [marked(true), marked(true), marked(true)],
            [false; 3],
            "the third finds exactly K"
        );
        assert!(!marked(false));
        assert!(marked(true));
        assert_eq!(link.marks, 1);
    }
}
