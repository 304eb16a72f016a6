//! What may wait in a pair's queue, and of which flows.
//!
//! Problem   A pair's queue has two FIFOs that take turns: data and acknowledgements. What a VM
//!           sends to a peer in bulk delays its own requests to that peer, and a flood leaves no
//!           room for a TCP connection beside it.
//! Approach  A model of the queue stands before the queue: octets that wait in each of the two, in
//!           [`PARTS`] parts by a hash of the flow. A packet that is let in carries a [`mark`]: what
//!           was let in so far. When it leaves the host, all before it has left the queue. What has
//!           drained is taken in equal parts from all flows, as if each had a queue of its own. A packet waits for what is before it in its own
//!           FIFO, and for as many octets of the other. While that is no more than the limit, every
//!           flow is let in. Up to a half more, only flows are let in that have less than an equal
//!           part of what waits in their FIFO. The limit is a time at the rate at which the queue
//!           drains, whether that is the class's ceiling or what others leave of the uplink.
//! Promises  What is let in waits for no longer than the limit and a half of it, but for a
//!           super-packet, and for a limit's length after the rate has changed. A flow that always
//!           waits is let in at an equal part of the rate or more, unless its hash is that of
//!           another. Work is conserved: nothing is dropped while less than the limit waits.
//! Not here  How long the limit is: [`longest_wait`](crate::classes::longest_wait). The order of packets, and which
//!           are acknowledgements: the queue's.
//! Source    The equal parts are those of fair queueing (Demers, Keshav, Shenker 1989), the drop at
//!           arrival of what is beyond an equal part is that of AFD (Pan et al. 2003).
//!
//! The same law in C is `bpf/backlog_law.h`. A change of one needs the same change of the other.

use crate::classes::{most_waiting, shortest_queue};
use weir_units::{Bytes, Rate};

/// Parts by which flows are told apart. With fewer, more flows share a part with another.
pub const PARTS: usize = 16;

/// A full Ethernet frame without FCS, octets.
const FRAME: u64 = 1514;
/// An octet in bit/s times nanoseconds.
const OCTET: u64 = 8_000_000_000;
/// A longer pause empties every queue: 128 kB at 64 kbit/s last as long. Nanoseconds.
const PAUSE_MOST: u64 = 16_000_000_000;
/// Rounds in which what has drained is taken from the flows. What is left then is owed until the
/// next packet.
const ROUNDS: u32 = 3;
/// Beyond the limit there is room for so much of it (a half), for flows with little that waits.
/// With less, the bursts of a window do not find room beside a flood.
const RESERVE: u64 = 2;
/// More octets than that in one measurement of a rate would not fit it.
const PASSED_MOST: u32 = 1 << 30;
/// No clock of a queue is faster, bit/s: its product with the longest pause fits 64 bits.
const CLOCK_MOST: u64 = 1 << 30;
/// While data waits, acknowledgements may take this part of the class's floor, and what the class
/// gets beyond its floor. A receiver acknowledges every second segment of what it may borrow, and a
/// tenth as many serve TCP as well. Where only one direction is congested, its floor would pay
/// for what the other borrows.
const ACKS_PART: u64 = 12;
/// Acknowledgements are taken from their flows no faster, bit/s, and for no longer than that at once.
const ACKS_MOST: u64 = 1 << 33;
const ACKS_PAUSE: u64 = 1 << 30;
/// A mark counts these octets, in 15 bits.
const UNIT: u32 = 256;
const MARKS: u32 = 0x7fff;

/// What a pair's queue goes by.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bound {
    /// The ceiling of its class, bit/s; not zero, and the product with `limit_ns` fits 64 bits.
    pub bps: u64,
    /// What waits shall last no longer, if there is room for as much. Nanoseconds.
    pub limit_ns: u64,
    /// Octets that each FIFO has room for.
    pub room: u64,
    /// What the class sends in any case while something waits, bit/s.
    pub floor: u64,
    /// Octets that the class may send ahead of its ceiling. A queue of which nothing is seen to
    /// leave holds so many more by this model.
    pub ahead: u64,
}

/// A packet that comes, or a super-packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrival {
    /// When, nanoseconds.
    pub now: u64,
    /// On the wire.
    pub octets: u32,
    /// The flow's hash; the part is the hash modulo [`PARTS`].
    pub hash: u32,
    /// Whether it waits with the acknowledgements.
    pub is_ack: bool,
    /// The marks of the packets that left the host last, of data in the low 16 bits, of
    /// acknowledgements in the high ones; [`UNSEEN`] if nothing looks at what leaves.
    pub left: u32,
}

/// Nothing has seen the pair leave: it is within a host, or hidden. Its queue drains at the ceiling.
pub const UNSEEN: u32 = u32::MAX;

/// What a packet carries that was let in as the last of so many octets: 0 to 0x7fff.
const fn mark(octets: u32) -> u32 {
    (octets / UNIT) & MARKS
}

/// Octets that wait in a FIFO, by flows.
type Fifo = [u32; PARTS];

/// The octets that wait in a pair's queue, as far as is known. Plain numbers, in the order of a C
/// struct without holes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// What has drained by then is taken off; or where that is seen, when something last left.
    /// Nanoseconds.
    pub seen: u64,
    /// When each FIFO was last empty or seen to move.
    pub moved: [u64; 2],
    /// At which what waits drains in any case since then, bit/s: the floor; or where nothing looks
    /// at what leaves, the ceiling. 0: nothing waits.
    pub bps: u64,
    /// Since when `passed` octets have left, nanoseconds.
    pub since: u64,
    /// At which something left in such a time before, bit/s; 0: not known, the ceiling.
    pub rate: u64,
    /// At which acknowledgements are taken from their flows while data waits, bit/s.
    pub acks_bps: u64,
    /// Up to when they were.
    pub acks_seen: u64,
    /// See `since`.
    pub passed: u32,
    /// What the last packet was told of what has left.
    pub left: u32,
    /// Octets let in ever, of data and of acknowledgements.
    pub let_in: [u32; 2],
    /// Octets of data that wait, by flows.
    pub data: [u32; PARTS],
    /// The same of acknowledgements.
    pub acks: [u32; PARTS],
    /// Octets of each FIFO that wait: data and acknowledgements.
    pub waits: [u32; 2],
    /// Octets of each that have drained and were not taken from a flow yet. Acknowledgements that
    /// take more than their part are taken from their flows at that, whenever they leave.
    pub owed: [u32; 2],
}

const _: () = assert!(size_of::<Backlog>() == Backlog::OCTETS);

impl Backlog {
    /// Its size.
    pub const OCTETS: usize = 96 + 8 * PARTS;

    /// Whether a packet is let in. If it is, it waits, too, unless the queue itself has no room for
    /// it. A pair that `is_new` waits for its floor: everything is let in.
    pub fn admits(&mut self, bound: &Bound, arrival: &Arrival, is_new: bool) -> bool {
        self.drain(arrival.now, arrival.left);
        let is_seen = arrival.left != UNSEEN;
        self.bps = if is_seen { bound.floor.max(1) } else { bound.bps }.min(CLOCK_MOST);
        let limit = self.limit(bound, arrival.now);
        // What is seen to leave has done so when its time begins, and the next waits for that.
        let (limit, ahead) = match is_seen {
            true => (limit.saturating_sub(FRAME), 0),
            false => (limit + bound.ahead, bound.ahead),
        };
        let which = usize::from(arrival.is_ack);
        let [total, other] = [self.waits[which], self.waits[1 - which]].map(u64::from);
        let total = total + u64::from(self.owed[which]);
        let fifo = if arrival.is_ack { &mut self.acks } else { &mut self.data };
        let part = arrival.hash as usize % PARTS;
        let octets = u64::from(arrival.octets);
        // A small packet finds room where a full frame does not, also beside one or two that were
        // just let in of a flow that has its hash; a super-packet finds less.
        let spare = 2 * FRAME.saturating_sub(octets);
        let own = u64::from(fifo[part]);
        let before = total + octets.saturating_sub(FRAME).min(limit / 2);
        let (after, limit) = (before + before.min(other), limit + spare);
        let rest = |octets: u64| octets.saturating_sub(spare);
        let has_less = || own == 0 || rest(own) * flows(fifo) < rest(total);
        let fits = after <= limit || (after <= limit + limit / RESERVE && has_less());
        if !is_new && !fits {
            return false;
        }
        if total + octets <= bound.room + ahead {
            fifo[part] += arrival.octets;
            self.waits[which] += arrival.octets;
            self.let_in[which] = self.let_in[which].wrapping_add(arrival.octets);
        }
        true
    }

    /// What the packet carries that was let in last, which waits with the acknowledgements or not.
    pub fn mark(&self, is_ack: bool) -> u16 {
        mark(self.let_in[usize::from(is_ack)]) as u16
    }

    /// Octets that wait at `now`, nanoseconds, when these marks have `left`. Where nothing looks at
    /// what leaves, those are among them that the class ran ahead by.
    pub fn waiting(mut self, now: u64, left: u32) -> u64 {
        self.drain(now, if self.is_seen() { left } else { UNSEEN });
        self.octets()
    }

    /// Whether what leaves is seen.
    pub fn is_seen(&self) -> bool {
        self.left != UNSEEN
    }

    /// Octets that waited when the last packet came, with it.
    pub fn octets(&self) -> u64 {
        self.waits.into_iter().map(u64::from).sum()
    }

    /// As the kernel holds it.
    pub fn to_octets(&self) -> [u8; Self::OCTETS] {
        let Self { seen, moved, bps, since, rate, acks_bps, acks_seen, .. } = *self;
        let Self { passed, left, let_in, data, acks, waits, owed, .. } = *self;
        let halves = [passed, left].into_iter().chain(let_in).chain(data).chain(acks);
        let halves = halves.chain(waits).chain(owed);
        let octets = [seen, moved[0], moved[1], bps, since, rate, acks_bps, acks_seen]
            .into_iter()
            .flat_map(u64::to_ne_bytes);
        let mut all = [0; Self::OCTETS];
        all.iter_mut()
            .zip(octets.chain(halves.flat_map(u32::to_ne_bytes)))
            .for_each(|(to, from)| *to = from);
        all
    }

    /// Octets that may wait, at the rate at which the queue drained of late. Divides that rate
    /// between data and acknowledgements, too.
    fn limit(&mut self, bound: &Bound, now: u64) -> u64 {
        let span = now.saturating_sub(self.since);
        // From one that leaves to one that leaves: in between, a large one is under way.
        if self.passed > 0 && self.seen == now && span >= bound.limit_ns {
            self.rate = u64::from(self.passed) * OCTET / span;
            (self.since, self.passed) = (now, 0);
        }
        let rate = if self.rate == 0 { bound.bps } else { self.rate.max(bound.floor) };
        let rate = rate.min(bound.bps);
        // A measured rate is too high by a packet now and then.
        let beyond = rate.saturating_sub(bound.floor + bound.floor / 16);
        self.acks_bps = (bound.floor / ACKS_PART + beyond).min(ACKS_MOST);
        let least = shortest_queue(Rate::from_bps(rate)).get();
        let limit =
            (bound.limit_ns * rate / OCTET).max(least.min(bound.limit_ns * bound.bps / OCTET));
        limit.min(most_waiting(Bytes::new(bound.room)).get())
    }

    /// Takes off what has left since it was last looked at.
    fn drain(&mut self, now: u64, left: u32) {
        self.left = left;
        if self.bps == 0 {
            return self.clear(now);
        }
        let span = now.saturating_sub(self.seen).min(PAUSE_MOST);
        let by_clock = span * self.bps / OCTET;
        let [data, acks] = self.waits;
        let total = self.octets();
        let drained = if left == UNSEEN {
            if by_clock >= total {
                return self.clear(now);
            }
            // Half each; what one does not need is the other's.
            let [data, acks] = self.waits.map(u64::from);
            let of_acks = acks.min((by_clock / 2).max(by_clock.saturating_sub(data)));
            self.seen = now.max(self.seen) - span + by_clock * OCTET / self.bps;
            [by_clock - of_acks, of_acks].map(|octets| octets as u32)
        } else {
            let span = |moved: u64| now.saturating_sub(moved).min(PAUSE_MOST);
            let mut drained = [0; 2];
            for (which, drained) in drained.iter_mut().enumerate() {
                let waits = self.waits[which];
                let behind = behind(self.let_in[which], left >> (16 * which) & MARKS);
                *drained = waits - waits.min(behind);
                self.passed = (self.passed + *drained).min(PASSED_MOST);
                if *drained > 0 || waits == 0 {
                    self.seen = if *drained > 0 { now } else { self.seen };
                    self.moved[which] = now;
                } else if span(self.moved[which]) * self.bps / OCTET >= total {
                    // The floor would have sent all by now: it was dropped elsewhere.
                    *drained = waits;
                }
            }
            if drained == self.waits {
                return self.clear(now);
            }
            drained
        };
        self.waits = [data - drained[0], acks - drained[1]];
        self.owed[0] = take(&mut self.data, u64::from(drained[0]) + u64::from(self.owed[0]));
        let due = u64::from(drained[1]) + u64::from(self.owed[1]);
        let may = self.due_acks(now, due);
        self.owed[1] = take(&mut self.acks, may) + (due - may) as u32;
    }

    /// How many of the acknowledgements that have drained are taken from their flows now.
    fn due_acks(&mut self, now: u64, due: u64) -> u64 {
        let span = now.saturating_sub(self.acks_seen).min(ACKS_PAUSE);
        let part = span * self.acks_bps / OCTET;
        if self.waits[0] == 0 || part >= due {
            self.acks_seen = now;
            return due;
        }
        // With less, what does not divide by the number of flows would add up.
        let part = if part < u64::from(UNIT) { 0 } else { part };
        self.acks_seen = now.max(self.acks_seen) - span + part * OCTET / self.acks_bps.max(1);
        part
    }

    /// Nothing waits any more.
    fn clear(&mut self, now: u64) {
        let Self { bps, acks_bps, left, let_in, .. } = *self;
        let (seen, moved, since, acks_seen) = (now, [now; 2], now, now);
        let old = Self::default();
        *self = Self { seen, moved, since, acks_seen, bps, acks_bps, left, let_in, ..old };
    }
}

/// Octets that were let in after those with a mark; all, if the mark is older than all that waits.
fn behind(let_in: u32, left: u32) -> u32 {
    match mark(let_in).wrapping_sub(left) & MARKS {
        0 => 0,
        units if units > MARKS / 2 => u32::MAX,
        units => units * UNIT + let_in % UNIT,
    }
}

/// How many flows wait.
fn flows(fifo: &Fifo) -> u64 {
    fifo.iter().filter(|part| **part > 0).count() as u64
}

/// Takes these octets from the flows in equal parts, and returns what the rounds left.
fn take(fifo: &mut Fifo, mut left: u64) -> u32 {
    for _ in 0..ROUNDS {
        let each = left / flows(fifo).max(1);
        if each == 0 {
            break;
        }
        for part in fifo.iter_mut() {
            let taken = u64::from(*part).min(each);
            *part -= taken as u32;
            left -= taken;
        }
    }
    left as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const MS: u64 = 1_000_000;
    /// 10 Mbit/s: a full frame lasts 1.21 ms, and twelve 14.5 ms.
    const SLOW: Bound =
        Bound { bps: 10_000_000, limit_ns: 14_533_000, room: 131_072, floor: 1_000_000, ahead: 0 };

    /// A queue at whose end packets come.
    #[derive(Default)]
    struct Queue(Backlog);

    impl Queue {
        fn send(&mut self, now: u64, hash: u32, octets: u32) -> bool {
            self.0.admits(&SLOW, &Arrival { now, octets, hash, is_ack: false, left: UNSEEN }, false)
        }

        fn acknowledge(&mut self, now: u64, hash: u32) -> bool {
            self.0.admits(
                &SLOW,
                &Arrival { now, octets: 66, hash, is_ack: true, left: UNSEEN },
                false,
            )
        }

        /// How many of so many full frames are let in.
        fn let_in(&mut self, now: u64, hash: u32, n: usize) -> usize {
            (0..n).filter(|_| self.send(now, hash, 1514)).count()
        }
    }

    #[test]
    fn one_flow_may_fill_the_limit_and_no_more() {
        let mut queue = Queue::default();
        assert_eq!(queue.let_in(0, 1, 100), 12);
        assert_eq!(queue.let_in(MS, 1, 100), 1, "behind no more than the limit");
        assert_eq!(queue.let_in(MS + MS / 10, 1, 100), 0);
        assert_eq!(queue.let_in(3 * MS, 1, 100), 2);
        assert_eq!(queue.let_in(1000 * MS, 1, 100), 12, "nothing was saved");
    }

    #[test]
    fn a_flow_with_little_that_waits_finds_room_where_a_flood_does_not() {
        let mut queue = Queue::default();
        assert_eq!(queue.let_in(0, 1, 100), 12);
        assert_eq!(queue.let_in(0, 2, 100), 6, "half of the limit");
        assert_eq!(queue.let_in(0, 1, 100), 0);
        assert_eq!(queue.let_in(0, 3, 100), 0, "there is an end for all");
        assert!(queue.send(0, 3, 66), "but an acknowledgement finds room");
    }

    #[test]
    fn a_flow_that_always_waits_gets_an_equal_part_beside_a_flood() {
        let mut queue = Queue::default();
        let (mut flood, mut other) = (0, 0);
        for step in 0..100_000 {
            // A frame each 20 µs, sixty times the rate, and one each 2 ms.
            let now = step * MS / 50;
            flood += queue.let_in(now, 1, 1);
            other += if step % 100 == 0 { queue.let_in(now, 2, 1) } else { 0 };
        }
        // 1651 frames in two seconds.
        assert!((1645..=1690).contains(&(flood + other)), "{}", flood + other);
        assert!((815..=850).contains(&other), "{other} of 1000");
    }

    #[test]
    fn acknowledgements_have_half_of_the_rate_and_none_is_dropped_for_data() {
        let mut queue = Queue::default();
        let (mut data, mut acks, mut floods) = (0, 0, 0);
        for step in 0..100_000 {
            // Data of sixteen flows at sixty times the rate; an acknowledgement each 240 µs is a
            // fifth of it; from the middle on a flow that calls all it sends one, at 1.3 times.
            let now = step * MS / 50;
            data += queue.let_in(now, step as u32, 1) * 1514;
            acks += if step % 12 == 0 { 66 * usize::from(queue.acknowledge(now, 7)) } else { 0 };
            let has_flood = step > 50_000 && step % 2 == 0;
            floods += if has_flood { 66 * usize::from(queue.acknowledge(now, 8)) } else { 0 };
        }
        // Of 2.5 MB in two seconds.
        assert_eq!(acks, 8334 * 66);
        assert!((325_000..=352_000).contains(&floods), "{floods}");
        assert!((1_590_000..=1_650_000).contains(&data), "{data}");
    }

    #[test]
    fn what_waits_beside_data_is_counted_once_in_each_direction() {
        let mut queue = Queue::default();
        assert_eq!(queue.let_in(0, 1, 100), 12);
        // Each waits for one frame of data and those before it, twice.
        let acks = (0..400).filter(|_| queue.acknowledge(0, 2)).count();
        assert!((155..=165).contains(&acks), "{acks}");
        assert_eq!(queue.let_in(0, 3, 100), 0, "data waits for them as well");
        assert!((1..10).all(|_| !queue.acknowledge(0, 2)));
        // In 14.5 ms half of what was drained was theirs.
        let others = queue.0.waiting(14_533_000, 0);
        assert!(others.abs_diff(acks as u64 * 66) <= 3000, "{others}");
    }

    #[test]
    fn a_super_packet_waits_whole_behind_half_of_the_limit() {
        let mut queue = Queue::default();
        assert_eq!(queue.let_in(0, 1, 7), 7);
        assert!(!queue.send(0, 1, 65_000), "seven frames wait, the limit's half is six");
        assert!(queue.send(2 * MS, 1, 65_000));
        assert_eq!(queue.let_in(2 * MS, 1, 1), 0);
    }

    #[test]
    fn octets_wait_and_last_as_long_as_the_ceiling_of_the_moment_says() {
        let mut queue = Queue::default();
        assert_eq!(queue.let_in(0, 1, 12), 12);
        let fast = Bound { bps: 20_000_000, ..SLOW };
        let full = Arrival { now: 0, octets: 1514, hash: 1, is_ack: false, left: UNSEEN };
        let let_in = (0..100).filter(|_| queue.0.admits(&fast, &full, false)).count();
        assert_eq!(let_in, 12, "the same time at twice the rate is twice as much");
        assert_eq!(queue.let_in(6 * MS, 1, 1), 0, "ten of 24 have left, and fourteen wait");
        assert_eq!(queue.let_in(9 * MS, 1, 1), 1);
    }

    #[test]
    fn what_waits_at_a_moment_is_what_has_not_drained_by_then() {
        let mut queue = Queue::default();
        assert_eq!(queue.let_in(MS, 1, 12), 12);
        // At 10 Mbit/s 1250 octets drain in a millisecond.
        let at = |ms: u64| queue.0.waiting(ms * MS, 0);
        assert_eq!([1, 2, 11].map(at), [12 * 1514, 12 * 1514 - 1250, 12 * 1514 - 12_500]);
        assert_eq!([16, 1000].map(at), [0, 0]);
    }

    #[test]
    fn what_the_queue_has_no_room_for_does_not_wait() {
        let mut backlog = Backlog::default();
        let full = Arrival { now: 0, octets: 1514, hash: 1, is_ack: false, left: UNSEEN };
        assert_eq!((0..200).filter(|_| backlog.admits(&SLOW, &full, true)).count(), 200);
        assert_eq!(backlog.octets(), 86 * 1514);
    }

    #[test]
    fn what_drains_is_never_more_or_less_than_the_ceiling_carries() {
        let (mut backlog, mut let_in) = (Backlog::default(), 0);
        let mut state = 1u64;
        let mut next = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % most
        };
        let mut now = 0;
        for _ in 0..200_000 {
            now += next(300_000);
            let octets = 66 + next(1449);
            let (octets, is_ack) = if next(3) == 0 { (66, true) } else { (octets, false) };
            let hash = next(40) as u32;
            let arrival = Arrival { now, octets: octets as u32, hash, is_ack, left: UNSEEN };
            let_in += if backlog.admits(&SLOW, &arrival, false) { octets } else { 0 };
        }
        let carried = now * SLOW.bps / OCTET;
        let sent = let_in - backlog.octets();
        assert!(sent.abs_diff(carried) < carried / 1000, "{sent} octets, and {carried} fit");
    }

    /// 100 Mbit/s at most and 10 in any case; what leaves is seen.
    const SHARED: Bound = Bound {
        bps: 100_000_000,
        limit_ns: 10_000_000,
        room: 131_072,
        floor: 10_000_000,
        ahead: 0,
    };

    /// A queue from which packets of one size leave at a rate of its own.
    struct Seen {
        backlog: Backlog,
        bps: u64,
        size: u64,
        /// Marks of the packets that wait, and when the next may leave.
        waits: VecDeque<u16>,
        next: u64,
        /// The last marks that left, and octets ever.
        mark: u32,
        left: u64,
    }

    impl Seen {
        fn new(bps: u64, size: u64) -> Self {
            let backlog = Backlog::default();
            Self { backlog, bps, size, waits: VecDeque::new(), next: 0, mark: 0, left: 0 }
        }

        fn waits(&self) -> u64 {
            self.waits.len() as u64 * self.size
        }

        fn send(&mut self, now: u64, hash: u32) -> bool {
            if self.waits.is_empty() {
                self.next = self.next.max(now);
            }
            while self.next <= now {
                let Some(mark) = self.waits.pop_front() else { break };
                self.mark = self.mark & !0xffff | u32::from(mark);
                self.left += self.size;
                self.next += self.size * OCTET / self.bps;
            }
            let (octets, left) = (self.size as u32, self.mark);
            let arrival = Arrival { now, octets, hash, is_ack: false, left };
            let is_in = self.backlog.admits(&SHARED, &arrival, false);
            if is_in {
                self.waits.push_back(self.backlog.mark(false));
            }
            is_in
        }

        /// An acknowledgement that was let in leaves at once, and what waits leaves later.
        fn acknowledge(&mut self) {
            self.next += 66 * OCTET / self.bps;
            self.mark = self.mark & 0xffff | u32::from(self.backlog.mark(true)) << 16;
        }

        /// How many octets left in so many milliseconds of a flood, and the most that waited after
        /// the first quarter.
        fn flood(&mut self, from: u64, ms: u64) -> (u64, u64) {
            let (before, mut most) = (self.left, 0);
            for step in 0..ms * 50 {
                self.send(from * MS + step * MS / 50, 1);
                most = most.max(if step > ms * 50 / 4 { self.waits() } else { 0 });
            }
            (self.left - before, most)
        }
    }

    #[test]
    fn what_waits_lasts_as_long_at_the_rate_that_others_leave() {
        for bps in [100_000_000, 40_000_000, 20_000_000, 12_000_000] {
            let mut queue = Seen::new(bps, 1514);
            let (left, most) = queue.flood(0, 1000);
            // 10 ms, and three quarters of the room at most.
            let (carried, limit) = (bps / 8, (bps / 800).min(98_304));
            assert!(left.abs_diff(carried) < carried / 50, "{bps}: {left} octets");
            assert!(
                (limit * 9 / 10..limit.max(15_140) + limit / 5).contains(&most),
                "{bps}: {most}"
            );
            let (now, left) = (1000 * MS, queue.mark);
            let small = Arrival { now, octets: 200, hash: 2, is_ack: false, left };
            assert!(queue.backlog.admits(&SHARED, &small, false), "{bps}: a request");
        }
    }

    #[test]
    fn what_the_queue_lost_is_forgotten() {
        let mut queue = Seen::new(40_000_000, 1514);
        queue.flood(0, 100);
        queue.waits.clear();
        let (left, _) = queue.flood(100, 300);
        // All 50 kB last 40 ms at the floor.
        assert!(left > 40_000_000 / 8 * 255 / 1000, "{left}");
        // What comes after some that is gone says so at once.
        queue.waits.drain(..queue.waits.len() - 1);
        let (left, _) = queue.flood(400, 200);
        assert!(left > 40_000_000 / 8 * 195 / 1000, "{left}");
    }

    #[test]
    fn data_that_was_lost_is_forgotten_though_acknowledgements_leave() {
        let mut queue = Seen::new(40_000_000, 1514);
        queue.flood(0, 100);
        queue.waits.clear();
        let before = queue.left;
        for step in 0..10_000 {
            let now = 100 * MS + step * MS / 50;
            queue.send(now, 1);
            if step % 50 == 0 {
                let left = queue.mark;
                let ack = Arrival { now, octets: 66, hash: 2, is_ack: true, left };
                assert!(queue.backlog.admits(&SHARED, &ack, false));
                queue.acknowledge();
            }
        }
        // Of 200 ms no more than what 50 kB last at the floor.
        let left = queue.left - before;
        assert!(left > 40_000_000 / 8 * 150 / 1000, "{left}");
    }

    #[test]
    fn nothing_is_lost_by_rounding_or_where_marks_wrap_around() {
        for size in [60, 66, 255, 257, 1514, 9000] {
            let mut queue = Seen::new(80_000_000, size);
            let mut now = 0;
            while queue.left < 3 * u64::from(MARKS * UNIT) {
                now += size * OCTET / 100_000_000;
                queue.send(now, 1);
                let waits = queue.backlog.waiting(now, queue.mark);
                assert!(
                    waits.abs_diff(queue.waits()) <= UNIT.into(),
                    "{size}: {waits} of {}",
                    queue.waits()
                );
            }
        }
    }

    #[test]
    fn acknowledgements_and_data_leave_each_by_its_own_mark() {
        let mut backlog = Backlog::default();
        let mut admit = |now, is_ack, left| {
            let octets = if is_ack { 66 } else { 1514 };
            assert!(backlog.admits(
                &SHARED,
                &Arrival { now, octets, hash: 1, is_ack, left },
                false
            ));
            (backlog.waits, u32::from(backlog.mark(is_ack)))
        };
        let (_, data) = admit(MS, false, 0);
        for _ in 0..100 {
            admit(MS, true, 0);
        }
        let (waits, acks) = admit(MS, true, 0);
        // The first three are less than a unit, which a mark does not tell from nothing.
        assert_eq!(waits, [1514, 98 * 66]);
        assert_eq!(admit(2 * MS, false, data).0, [1514, 98 * 66], "data has left");
        assert_eq!(admit(2 * MS, true, data | acks << 16).0, [1514, 66], "all before have left");
        assert_eq!(admit(2 * MS, true, data).0, [1514, 132], "an older mark says nothing");
    }

    #[test]
    fn a_super_packet_waits_for_its_turn() {
        let mut queue = Seen::new(20_000_000, 65_000);
        let (left, most) = queue.flood(0, 2000);
        assert!(left > 2_500_000 * 2 * 9 / 10, "{left}");
        assert!(most <= 2 * 65_000, "{most}");
    }

    #[test]
    fn acknowledgements_of_what_the_other_direction_borrows_take_no_floor() {
        // A class at its floor of 10 Mbit/s, data without end, and acknowledgements of 400 Mbit/s.
        let mut queue = Seen::new(10_000_000, 1514);
        let (mut acks, mut late) = (0, 0);
        for step in 0..100_000 {
            let now = step * MS / 50;
            queue.send(now, 1);
            let left = queue.mark;
            for (hash, every) in [(2, 2), (3, 500)] {
                if step % every == 0 {
                    let ack = Arrival { now, octets: 66, hash, is_ack: true, left };
                    let is_in = queue.backlog.admits(&SHARED, &ack, false);
                    acks += if is_in { 66 } else { 0 };
                    late += u32::from(!is_in && hash == 3);
                    if is_in {
                        queue.acknowledge();
                    }
                }
            }
        }
        // A twelfth of 2.5 MB, and what finds room in the beginning.
        assert!((190_000..=250_000).contains(&acks), "{acks}");
        assert_eq!(late, 0, "one that asks for little has its part");
    }
}
