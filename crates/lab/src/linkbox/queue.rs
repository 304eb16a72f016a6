//! One direction of a link, exactly: a queue, a wire, and what happens on them.
//!
//! Problem   Some experiments need a queue of which every octet is known, a wire with a length, or
//!           a network that loses and reorders.
//! Approach  A FIFO of bounded octets is served at the link's rate. When a packet's last octet has
//!           left, it travels for the delay, and longer on a longer path. All of this follows from
//!           the time of arrival, so a packet's fate is decided when it comes.
//! Promises  Between any two departures from the queue no more passes than the rate allows, and the
//!           link is never idle while a packet waits. The queue never exceeds the buffer. Packets
//!           of one path stay in order. The same seed gives the same run.
//! Not here  Frames and clocks: see `packet` and `thread`.
//! Source    RED: Floyd and Jacobson 1993, with ECN as in RFC 3168 §7.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use weir_model::scenario::{Link, PathBy, Paths, Queueing, Red};
use weir_units::{Bytes, Rate, Span, SplitMix64, Time};

/// Size of a packet by which RED's average ages while the queue is idle.
const RED_PACKET: Bytes = Bytes::new(1000);

/// Properties of a packet that the queue uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Size on layer 2 without FCS.
    pub(crate) size: Bytes,
    /// Whether it may be marked.
    pub(crate) ecn_capable: bool,
    /// Equal for packets of one flow.
    pub(crate) flow: u64,
    /// Equal for packets between the same two addresses.
    pub(crate) pair: u64,
}

/// Counters so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Octets that arrived at the far end.
    pub(crate) octets: u64,
    /// Packets that arrived there.
    pub(crate) packets: u64,
    /// Packets dropped: no room, early, or at random.
    pub(crate) drops: u64,
    /// Packets marked.
    pub(crate) marks: u64,
    /// Packets that arrived at the far end after a later one of their pair.
    pub(crate) overtaken: u64,
}

/// Number of places for pairs whose order is checked. Of two pairs that share a place, the one that
/// sent last has it. So each packet that counts as overtaken was overtaken, but some may be missed.
const PAIRS: usize = 1024;

/// One direction of a link. `T` is the type of a packet.
pub(crate) struct Queue<T> {
    rate: Rate,
    buffer: Bytes,
    delay: Span,
    queueing: Queueing,
    /// Time at which the last waiting octet will have left.
    free_at: Time,
    /// Departure time and size of each waiting packet.
    waiting: VecDeque<(Time, Bytes)>,
    backlog: Bytes,
    red: Average,
    /// The path of the next packet, if packets take turns.
    turn: u64,
    random: SplitMix64,
    /// Packets with a known time of arrival at the far end. Bounded by the buffer and the octets on
    /// the wire.
    flying: BinaryHeap<Reverse<Flight<T>>>,
    sequence: u64,
    /// By a pair's place: the pair, and the latest of its packets that arrived at the far end.
    latest: Vec<(u64, u64)>,
    counts: Counts,
}

/// RED's average, and how many packets passed since it last struck.
#[derive(Default)]
struct Average {
    octets: f64,
    since: u64,
}

struct Flight<T> {
    at: Time,
    sequence: u64,
    size: Bytes,
    pair: u64,
    packet: T,
}

impl<T> PartialEq for Flight<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Flight<T> {}

impl<T> PartialOrd for Flight<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Flight<T> {
    /// Ties go to the packet that came first: the order is total.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl<T> Queue<T> {
    /// A direction of `link`. A switch at its beginning marks and has RED, a host does neither.
    /// `seed` decides all random choices.
    pub(crate) fn new(link: &Link, by_switch: bool, seed: u64) -> Self {
        let marking = if by_switch { (link.queueing.ecn, link.queueing.red) } else { (None, None) };
        Self {
            rate: link.rate,
            buffer: link.buffer,
            delay: link.delay,
            queueing: Queueing { ecn: marking.0, red: marking.1, ..link.queueing },
            free_at: Time::ZERO,
            waiting: VecDeque::new(),
            backlog: Bytes::ZERO,
            red: Average::default(),
            turn: 0,
            random: SplitMix64::new(seed),
            flying: BinaryHeap::new(),
            sequence: 0,
            latest: vec![(0, 0); PAIRS],
            counts: Counts::default(),
        }
    }

    /// Accepts a packet. `mark` is called if it gets the congestion mark. A dropped packet is given
    /// back.
    pub(crate) fn offer(
        &mut self,
        now: Time,
        arrival: Arrival,
        mut packet: T,
        mark: impl FnOnce(&mut T),
    ) -> Option<T> {
        let idle = self.drain(now);
        let struck = match self.queueing.red {
            Some(red) => self.red_strikes(&red, idle),
            None => self.queueing.ecn.is_some_and(|threshold| self.backlog > threshold),
        };
        let early = struck && !arrival.ecn_capable && self.queueing.red.is_some();
        if early || self.backlog + arrival.size > self.buffer {
            self.counts.drops += 1;
            return Some(packet);
        }
        if struck && arrival.ecn_capable {
            self.counts.marks += 1;
            mark(&mut packet);
        }
        self.free_at = self.free_at.max(now) + self.rate.time_for(arrival.size);
        self.waiting.push_back((self.free_at, arrival.size));
        self.backlog += arrival.size;
        let longer = self.longer_way(arrival.flow);
        // Lost on the wire: it used its time on the link and never arrives.
        if self.queueing.loss > 0.0 && part(&mut self.random) < self.queueing.loss {
            self.counts.drops += 1;
            return Some(packet);
        }
        let at = self.free_at + self.delay + longer;
        let (sequence, size, pair) = (self.sequence, arrival.size, arrival.pair);
        self.sequence += 1;
        self.flying.push(Reverse(Flight { at, sequence, size, pair, packet }));
        None
    }

    /// When the next packet arrives at the far end.
    pub(crate) fn next(&self) -> Option<Time> {
        self.flying.peek().map(|Reverse(flight)| flight.at)
    }

    /// The next packet, if it arrives at the far end at `now` or before; and when it should have.
    pub(crate) fn pop(&mut self, now: Time) -> Option<(Time, T)> {
        self.next().filter(|at| *at <= now)?;
        let Reverse(flight) = self.flying.pop()?;
        self.counts.octets += flight.size.get();
        self.counts.packets += 1;
        self.counts.overtaken += u64::from(self.is_overtaken(flight.pair, flight.sequence));
        Some((flight.at, flight.packet))
    }

    /// Whether a later packet of `pair` than this one has arrived before it.
    fn is_overtaken(&mut self, pair: u64, sequence: u64) -> bool {
        let latest = &mut self.latest[pair as usize % PAIRS];
        if latest.0 == pair && sequence < latest.1 {
            return true;
        }
        *latest = (pair, sequence);
        false
    }

    /// What happened so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Removes the packets that have left by `now`. If none waits, it also gives the idle time.
    fn drain(&mut self, now: Time) -> Span {
        while let Some(&(gone, size)) = self.waiting.front() {
            if gone > now {
                return Span::ZERO;
            }
            self.waiting.pop_front();
            self.backlog = self.backlog - size;
        }
        now.since(self.free_at)
    }

    /// How much longer than the shortest the packet's path is.
    fn longer_way(&mut self, flow: u64) -> Span {
        let Some(Paths { count, skew, by }) = self.queueing.paths else { return Span::ZERO };
        let path = match by {
            PathBy::Flow => flow % u64::from(count),
            PathBy::Packet => {
                self.turn += 1;
                (self.turn - 1) % u64::from(count)
            }
        };
        skew * path
    }

    /// Updates the average; whether this packet is to be marked or dropped.
    fn red_strikes(&mut self, red: &Red, idle: Span) -> bool {
        let average = &mut self.red;
        // While nothing came, small packets would have found an empty queue.
        let missed = idle.as_nanos() as f64 / self.rate.time_for(RED_PACKET).as_nanos() as f64;
        average.octets *= (1.0 - red.weight).powf(missed);
        average.octets += red.weight * (self.backlog.get() as f64 - average.octets);
        let (min, max) = (red.min.get() as f64, red.max.get() as f64);
        if average.octets < min {
            average.since = 0;
            return false;
        }
        average.since += 1;
        if average.octets < max {
            let chance = red.probability * (average.octets - min) / (max - min);
            // Strikes are spread evenly rather than in bunches.
            let spread = 1.0 - (average.since - 1) as f64 * chance;
            if spread > 0.0 && part(&mut self.random) >= chance / spread {
                return false;
            }
        }
        average.since = 0;
        true
    }
}

/// From 0 to below 1.
fn part(random: &mut SplitMix64) -> f64 {
    (random.next() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
