//! What may wait in a pair's queue, and of which flows.
//!
//! Problem   A pair's queue has two FIFOs that take turns: data and acknowledgements. What a VM
//!           sends to a peer in bulk delays its own requests to that peer, and a flood leaves no
//!           room for a TCP connection beside it.
//! Approach  A model of the queue stands before the queue: octets that wait in each of the two, in
//!           [`PARTS`] parts by a hash of the flow. The model drains at the class's ceiling, half
//!           of it from each of the two, and from each in equal parts of all its flows, as if each
//!           had a queue of its own. A packet waits for what is before it in its own FIFO, and for
//!           as many octets of the other. While that is no more than the limit, every flow is let
//!           in. Up to a half more, only flows are let in that have less than an equal part of what
//!           waits in their FIFO.
//! Promises  While the class gets its ceiling, what is let in waits for no longer than the limit
//!           and a half of it, but for a super-packet. A flow that always waits is let in at an
//!           equal part of the ceiling or more, unless its hash is that of another. Work is
//!           conserved: nothing is dropped while less than the limit waits.
//! Not here  How long the limit is: the shaper's `longest_wait`. The order of packets, and which
//!           are acknowledgements: the queue's.
//! Source    The equal parts are those of fair queueing (Demers, Keshav, Shenker 1989), the drop at
//!           arrival of what is beyond an equal part is that of AFD (Pan et al. 2003).
//!
//! The same law in C is `bpf/backlog_law.h`. A change of one needs the same change of the other.

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

/// What a pair's queue goes by.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bound {
    /// The ceiling of its class, bit/s; not zero, and the product with `limit_ns` fits 64 bits.
    pub bps: u64,
    /// What waits shall last no longer at the ceiling, with what the class runs ahead by.
    /// Nanoseconds.
    pub limit_ns: u64,
    /// Octets that each FIFO has room for, with what the class runs ahead by.
    pub room: u64,
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
}

/// Octets that wait in a FIFO, by flows.
type Fifo = [u32; PARTS];

/// The octets that wait in a pair's queue, as far as is known. Plain numbers, in the order of a C
/// struct without holes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// What has drained by then is taken off, nanoseconds.
    seen: u64,
    /// The ceiling since then, bit/s.
    bps: u64,
    data: Fifo,
    acks: Fifo,
    /// Octets of each FIFO that wait: data and acknowledgements.
    waits: [u32; 2],
    /// Octets of each that have drained and were not taken from a flow yet.
    owed: [u32; 2],
}

const _: () = assert!(size_of::<Backlog>() == Backlog::OCTETS);

impl Backlog {
    /// Its size.
    pub const OCTETS: usize = 32 + 8 * PARTS;

    /// Whether a packet is let in. If it is, it waits, too, unless the queue itself has no room for
    /// it. A pair that `is_new` waits for its floor: everything is let in.
    pub fn admits(&mut self, bound: &Bound, arrival: &Arrival, is_new: bool) -> bool {
        self.drain(arrival.now);
        self.bps = bound.bps;
        let which = usize::from(arrival.is_ack);
        let [total, other] = [self.waits[which], self.waits[1 - which]].map(u64::from);
        let fifo = if arrival.is_ack { &mut self.acks } else { &mut self.data };
        let part = arrival.hash as usize % PARTS;
        let octets = u64::from(arrival.octets);
        let limit = bound.limit_ns * bound.bps / OCTET;
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
        if total + octets <= bound.room {
            fifo[part] += arrival.octets;
            self.waits[which] += arrival.octets;
        }
        true
    }

    /// What the kernel holds: when it last looked, the ceiling since then, and octets of data and of
    /// acknowledgements: by flows, that wait, and that are owed.
    pub const fn held(
        seen: u64,
        bps: u64,
        [data, acks]: [[u32; PARTS]; 2],
        waits: [u32; 2],
        owed: [u32; 2],
    ) -> Self {
        Self { seen, bps, data, acks, waits, owed }
    }

    /// Octets that wait at `now`, nanoseconds.
    pub fn waiting(mut self, now: u64) -> u64 {
        self.drain(now);
        self.octets()
    }

    /// Octets that waited when the last packet came, with it.
    pub fn octets(&self) -> u64 {
        self.waits.into_iter().map(u64::from).sum()
    }

    /// As the kernel holds it.
    pub fn to_octets(&self) -> [u8; Self::OCTETS] {
        let Self { seen, bps, data, acks, waits, owed } = *self;
        let halves = data.into_iter().chain(acks).chain(waits).chain(owed);
        let octets = [seen, bps].into_iter().flat_map(u64::to_ne_bytes);
        let mut all = [0; Self::OCTETS];
        all.iter_mut()
            .zip(octets.chain(halves.flat_map(u32::to_ne_bytes)))
            .for_each(|(to, from)| *to = from);
        all
    }

    /// Takes off what has drained since it was last looked at.
    fn drain(&mut self, now: u64) {
        let span = now.saturating_sub(self.seen).min(PAUSE_MOST);
        let [data, acks] = self.waits.map(u64::from);
        let total = data + acks;
        let drained = if self.bps == 0 { total } else { span * self.bps / OCTET };
        if drained >= total {
            *self = Self { seen: now, bps: self.bps, ..Self::default() };
            return;
        }
        // Half each; what one does not need is the other's.
        let of_acks = acks.min((drained / 2).max(drained.saturating_sub(data)));
        let of_data = drained - of_acks;
        self.waits = [data - of_data, acks - of_acks].map(|octets| octets as u32);
        self.owed[0] = take(&mut self.data, of_data + u64::from(self.owed[0]));
        self.owed[1] = take(&mut self.acks, of_acks + u64::from(self.owed[1]));
        self.seen = now.max(self.seen) - span + drained * OCTET / self.bps;
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

    const MS: u64 = 1_000_000;
    /// 10 Mbit/s: a full frame lasts 1.21 ms, and twelve 14.5 ms.
    const SLOW: Bound = Bound { bps: 10_000_000, limit_ns: 14_533_000, room: 131_072 };

    /// A queue at whose end packets come.
    #[derive(Default)]
    struct Queue(Backlog);

    impl Queue {
        fn send(&mut self, now: u64, hash: u32, octets: u32) -> bool {
            self.0.admits(&SLOW, &Arrival { now, octets, hash, is_ack: false }, false)
        }

        fn acknowledge(&mut self, now: u64, hash: u32) -> bool {
            self.0.admits(&SLOW, &Arrival { now, octets: 66, hash, is_ack: true }, false)
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
        let others = queue.0.waiting(14_533_000);
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
        let full = Arrival { now: 0, octets: 1514, hash: 1, is_ack: false };
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
        let at = |ms: u64| queue.0.waiting(ms * MS);
        assert_eq!([1, 2, 11].map(at), [12 * 1514, 12 * 1514 - 1250, 12 * 1514 - 12_500]);
        assert_eq!([16, 1000].map(at), [0, 0]);
        let Backlog { seen, bps, data, acks, waits, owed } = queue.0;
        assert_eq!(Backlog::held(seen, bps, [data, acks], waits, owed), queue.0);
    }

    #[test]
    fn what_the_queue_has_no_room_for_does_not_wait() {
        let mut backlog = Backlog::default();
        let full = Arrival { now: 0, octets: 1514, hash: 1, is_ack: false };
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
            let arrival = Arrival { now, octets: octets as u32, hash: next(40) as u32, is_ack };
            let_in += if backlog.admits(&SLOW, &arrival, false) { octets } else { 0 };
        }
        let carried = now * SLOW.bps / OCTET;
        let sent = let_in - backlog.octets();
        assert!(sent.abs_diff(carried) < carried / 1000, "{sent} octets, and {carried} fit");
    }
}
