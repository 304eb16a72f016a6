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
        self.0.admits(&SLOW, &Arrival { now, octets: 66, hash, is_ack: true, left: UNSEEN }, false)
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
    let others = queue.0.waiting(14_533_000, 0).iter().sum::<u64>();
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
    let at = |ms: u64| queue.0.waiting(ms * MS, 0).iter().sum::<u64>();
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
const SHARED: Bound =
    Bound { bps: 100_000_000, limit_ns: 10_000_000, room: 131_072, floor: 10_000_000, ahead: 0 };

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
        assert!((limit * 9 / 10..limit.max(15_140) + limit / 5).contains(&most), "{bps}: {most}");
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
            let waits = queue.backlog.waiting(now, queue.mark).iter().sum::<u64>();
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
        assert!(backlog.admits(&SHARED, &Arrival { now, octets, hash: 1, is_ack, left }, false));
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
