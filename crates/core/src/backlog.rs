//! What may wait in a pair's queue, and of which flows.
//!
//! Problem   A pair's queue has two FIFOs that take turns: data and acknowledgements. What a VM
//!           sends to a peer in bulk delays its own requests to that peer, and a flood leaves no
//!           room for a TCP connection beside it.
//! Approach  A model of the queue stands before the queue: octets that wait in each of the two, in
//!           [`PARTS`] parts by a hash of the flow. A packet that is let in carries a mark: how much
//!           was let in so far ([`Backlog::mark`]). When it leaves the host, all before it has left
//!           the queue. What has drained is taken in equal parts from all flows, as if each had a
//!           queue of its own. A packet waits for what is before it in its own FIFO, and for as
//!           many octets of the other. While that is no more than the limit, every flow is let in.
//!           Up to a half more, only flows are let in that have less than an equal part of what
//!           waits in their FIFO. The limit is a time at the rate at which the queue drains,
//!           whether that is the class's ceiling or what others leave of the uplink. While data
//!           waits, acknowledgements are taken from their flows at a part of the rate, so more than
//!           that of them find no room.
//! Promises  What is let in waits for no longer than the limit and a half of it, but for a
//!           super-packet, and for a limit's length after the rate has changed. A flow that always
//!           waits is let in at an equal part of the rate or more, unless its hash is that of
//!           another. Work is conserved: nothing is dropped while less than the limit waits.
//! Not here  How long the limit is: [`longest_wait`](crate::classes::longest_wait). The order of
//!           packets, and which are acknowledgements: the queue's.
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
/// Acknowledgements are taken from their flows no faster, bit/s, and for no longer at once.
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

/// Nothing has seen the pair leave: it is within a host, or hidden. Its queue drains at the
/// ceiling.
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

    /// Octets that wait at `now`, nanoseconds, when these marks have `left`: of data and of
    /// acknowledgements. Where nothing looks at what leaves, those are among them that the class
    /// ran ahead by.
    pub fn waiting(mut self, now: u64, left: u32) -> [u64; 2] {
        self.drain(now, if self.is_seen() { left } else { UNSEEN });
        self.waits.map(u64::from)
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
#[path = "backlog_tests.rs"]
mod tests;
