//! Bounds a pair's queue in time and by flows, before the queue.
//!
//! Problem   128 kB are seconds at a low rate, and the real shaper does not let that much wait.
//! Approach  The law of `weir-core`, by what leaves the host, and by the floor and the ceiling of
//!           the pair's class and what that may run ahead.
//! Promises  Nothing is dropped that would have left in time.
//! Not here  The queue itself: see `htb`. A guardian that lowers a ceiling leaves the real rule
//!           with the higher one, until an agent looks; here the rule sees it at once.
//! Source    `bpf/backlog.h`; limits: `weir-dataplane`'s `waits.rs`.

use super::htb::Class;
use crate::packet::{Kind, Packet};
use weir_core::backlog::{Arrival, Backlog as Law, Bound};

/// An octet in bit/s times nanoseconds.
const OCTET: u64 = 8_000_000_000;

/// Nanoseconds for which a pair is new: it has its small start, and its floor after the first
/// partitioning. What comes meanwhile may wait for that.
const YOUTH: u64 = 120_000_000;

/// The hash of a packet's flow. A TCP connection's data and its ACKs are two flows, as in the
/// kernel.
pub(super) fn hash(packet: &Packet) -> u32 {
    let kind = match packet.kind {
        Kind::Data => 0,
        Kind::Ack => 1,
        _ => 2,
    };
    let name = u64::from(packet.flow) * 3 + kind + 1;
    (name.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// What waits, by the clock of its class's ceiling.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    law: Law,
    /// Since when the pair sends, ns.
    since: Option<u64>,
}

impl Backlog {
    /// What a packet carries if it is let in; `None` if the queue is too long for it.
    pub(super) fn admits(&mut self, arrival: &Arrival, class: &Class) -> Option<u16> {
        let now = arrival.now;
        let since = *self.since.get_or_insert(now);
        let Some(longest) = class.wait else {
            self.law = Law::default();
            return Some(0);
        };
        // What is sent ahead does not wait.
        let ahead = class.cburst.max(0).unsigned_abs();
        let bound = Bound {
            bps: class.ceil,
            limit_ns: longest,
            room: class.room,
            floor: class.rate,
            ahead: ahead * class.ceil / OCTET,
        };
        let is_in = self.law.admits(&bound, arrival, now - since < YOUTH);
        is_in.then(|| self.law.mark(arrival.is_ack))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::classes::{FRAME, QUEUE};
    use weir_core::backlog::UNSEEN;

    const MS: u64 = 1_000_000;

    /// Without a burst; a frame lasts 34.6 ms at 350 kbit/s.
    fn class(ceil: u64) -> Class {
        Class {
            rate: 64_000,
            ceil,
            burst: 0,
            cburst: 0,
            quantum: 1514,
            wait: Some(250 * MS),
            room: QUEUE,
        }
    }

    /// How many of so many frames are let in at once.
    fn let_in(backlog: &mut Backlog, now: u64, n: usize, class: &Class) -> usize {
        let arrival = Arrival { now, octets: FRAME as u32, hash: 1, is_ack: false, left: UNSEEN };
        (0..n).filter(|_| backlog.admits(&arrival, class).is_some()).count()
    }

    #[test]
    fn a_pair_is_new_for_as_long_as_in_the_kernel() {
        let kernel = include_str!("../../../../bpf/backlog.h");
        assert!(kernel.contains(&format!("#define YOUTH_NS {YOUTH}ull\n")));
    }

    #[test]
    fn what_comes_while_a_pair_is_new_may_wait() {
        let (mut backlog, class) = (Backlog::default(), class(350_000));
        let mut let_in = |now| let_in(&mut backlog, now, 20, &class);
        assert_eq!((let_in(MS), let_in(YOUTH), let_in(YOUTH + MS)), (20, 20, 0));
    }

    #[test]
    fn what_is_sent_ahead_does_not_wait() {
        let class = class(350_000);
        let two = (2 * FRAME * OCTET / class.ceil) as i64;
        let old = || Backlog { since: Some(0), ..Backlog::default() };
        assert_eq!(let_in(&mut old(), YOUTH, 20, &class), 8, "the eighth finds 242 ms");
        let ahead = Class { cburst: two, ..class };
        assert_eq!(let_in(&mut old(), YOUTH, 20, &ahead), 8 + 2);
    }

    #[test]
    fn a_class_without_a_limit_remembers_nothing() {
        let class = class(350_000);
        let mut backlog = Backlog { since: Some(0), ..Backlog::default() };
        assert_eq!(let_in(&mut backlog, YOUTH, 20, &class), 8);
        let unbounded = Class { wait: None, ..class };
        assert_eq!(let_in(&mut backlog, YOUTH, 200, &unbounded), 200);
        assert_eq!(let_in(&mut backlog, YOUTH, 20, &class), 8);
    }

    #[test]
    fn flows_of_a_pair_fall_into_different_parts() {
        let packet = |kind, flow| Packet { flow, ..Packet::wake(kind, 0) };
        let part = |packet: Packet| hash(&packet) as usize % weir_core::backlog::PARTS;
        let parts = [Kind::Data, Kind::Ack, Kind::Datagram].map(|kind| part(packet(kind, 0)));
        assert!(parts[0] != parts[1] && parts[1] != parts[2] && parts[0] != parts[2]);
    }
}
