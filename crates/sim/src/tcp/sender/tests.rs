use super::*;
use crate::tcp::Receiver;
use std::collections::VecDeque;

const RTT: u64 = 1_000_000;

/// A sender and a receiver with nothing but time between them.
struct Ends {
    now: u64,
    sender: Sender,
    receiver: Receiver,
    /// Every segment sent: when, which, and whether it got lost.
    log: Vec<(u64, u32, bool)>,
    acks: VecDeque<(u64, u32, bool, Vec<Block>)>,
    /// Transmissions that get lost, counted from 0.
    lost: Vec<usize>,
    /// Transmissions that arrive so much later than they should.
    late: Vec<(usize, u64)>,
    /// Those of them that are under way: when they arrive, and whether marked.
    held: Vec<(u64, Segment, bool)>,
    /// Segments that are marked when sent first.
    marked: Vec<u32>,
}

impl Ends {
    fn new(algorithm: Algorithm, end: u32, lost: &[usize]) -> Self {
        Self::of(rack(false), algorithm, end, lost)
    }

    fn of(config: TcpConfig, algorithm: Algorithm, end: u32, lost: &[usize]) -> Self {
        let config = TcpConfig { ack_every: 1, ..config };
        Self {
            now: 0,
            sender: Sender::new(&config, algorithm, end, 1000, 0),
            receiver: Receiver::new(&config, algorithm, end, 1000, 0),
            log: Vec::new(),
            acks: VecDeque::new(),
            lost: lost.to_vec(),
            late: Vec::new(),
            held: Vec::new(),
            marked: Vec::new(),
        }
    }

    fn pump(&mut self) {
        while let Some(segment) = self.sender.poll(self.now) {
            let (number, seq) = (self.log.len(), segment.seq);
            let lost = self.lost.contains(&number);
            let first = !self.log.iter().any(|sent| sent.1 == seq);
            self.log.push((self.now, seq, lost));
            if lost {
                continue;
            }
            let marked = first && self.marked.contains(&seq);
            let late = self.late.iter().find(|late| late.0 == number).map(|late| late.1);
            match late {
                Some(by) => self.held.push((self.now + by, segment, marked)),
                None => self.arrive(segment, marked),
            }
        }
    }

    fn arrive(&mut self, Segment { seq, reduced, .. }: Segment, marked: bool) {
        let (early, ack) = self.receiver.on_data(self.now, seq, marked, reduced, false);
        for ack in [early, ack].into_iter().flatten() {
            let (blocks, count) = self.receiver.blocks();
            let blocks = blocks[..count].to_vec();
            self.acks.push_back((self.now + RTT, ack.expected, ack.echo, blocks));
        }
    }

    /// Until all is acknowledged, or nothing moves any more.
    fn play(&mut self) {
        self.pump();
        loop {
            let ack = self.acks.front().map_or(NEVER, |ack| ack.0);
            let held = self.held.iter().map(|held| held.0).min().unwrap_or(NEVER);
            let next = ack.min(held).min(self.sender.resend_at);
            if next == NEVER {
                return;
            }
            self.now = next;
            if held == self.now {
                let first = self.held.iter().position(|of| of.0 == held).expect("it is there");
                let (_, segment, marked) = self.held.remove(first);
                self.arrive(segment, marked);
                continue;
            }
            if ack <= self.now {
                let (now, una, echo, blocks) = self.acks.pop_front().expect("it is there");
                self.sender.on_ack(now, una, if echo { ECE } else { 0 }, &blocks);
            } else {
                self.sender.on_timer(self.now);
            }
            self.pump();
        }
    }

    fn times(&self, seq: u32) -> Vec<u64> {
        self.log.iter().filter(|sent| sent.1 == seq).map(|sent| sent.0 / RTT).collect()
    }
}

/// With RACK, or without.
fn rack(rack: bool) -> TcpConfig {
    TcpConfig { rack, ..TcpConfig::default() }
}

#[test]
fn slow_start_doubles_each_round_trip() {
    let mut ends = Ends::new(Algorithm::Reno, 150, &[]);
    ends.play();
    let rounds: Vec<_> =
        (0..4).map(|rtt| ends.log.iter().filter(|sent| sent.0 / RTT == rtt).count()).collect();
    assert_eq!(rounds, [10, 20, 40, 80]);
    assert_eq!(ends.sender.resend_at, NEVER, "nothing is in flight");
}

#[test]
fn many_losses_of_a_window_are_repaired_in_one_round_trip() {
    // Of the 40 segments of the third round six get lost.
    let lost = [31, 33, 34, 40, 47, 50];
    let mut ends = Ends::new(Algorithm::Reno, 400, &lost);
    ends.play();
    for seq in lost {
        assert_eq!(ends.times(seq as u32), [2, 3], "{seq}");
    }
    assert_eq!(ends.sender.sent.timeouts, 0);
    assert_eq!((ends.sender.sent.repeats, ends.sender.sent.recoveries), (6, 1));
    assert_eq!(ends.receiver.repeats, 0, "nothing was sent in vain");
    assert_eq!(ends.receiver.expected(), 400);
}

#[test]
fn a_repair_that_is_lost_is_repaired_without_a_timeout() {
    // Transmission 30 is segment 30; its repair is found in the log, and lost as well.
    let mut first = Ends::new(Algorithm::Reno, 400, &[30]);
    first.play();
    let again = first.log.iter().rposition(|sent| sent.1 == 30).expect("it was repaired");
    let mut ends = Ends::new(Algorithm::Reno, 400, &[30, again]);
    ends.play();
    assert_eq!(ends.times(30).len(), 3);
    assert_eq!((ends.sender.sent.timeouts, ends.receiver.expected()), (0, 400));
}

#[test]
fn silence_is_broken_by_the_timer_which_doubles() {
    // The last ten segments and their first repairs get lost: no ACK tells of them.
    let lost: Vec<_> = (70..82).collect();
    let mut ends = Ends::new(Algorithm::Reno, 80, &lost);
    ends.play();
    let sent = &ends.sender.sent;
    assert_eq!((sent.timeouts, sent.recoveries, ends.receiver.expected()), (3, 0, 80));
    let times: Vec<_> = ends.log.iter().filter(|sent| sent.1 == 70).map(|sent| sent.0).collect();
    let gaps: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect();
    // 200 ms beyond the round trip of one.
    assert_eq!(gaps, [201, 402, 804]);
}

#[test]
fn after_a_timeout_what_was_sacked_is_not_sent_again() {
    // A window of ten, of which only the last two arrive: two SACKs prove nothing.
    let mut ends = Ends::new(Algorithm::Reno, 10, &[0, 1, 2, 3, 4, 5, 6, 7]);
    ends.play();
    assert_eq!((ends.sender.sent.timeouts, ends.receiver.expected()), (1, 10));
    assert_eq!((ends.times(8).len(), ends.times(9).len(), ends.receiver.repeats), (1, 1, 0));
}

#[test]
fn marks_of_one_window_are_one_signal_and_are_answered() {
    let mut ends = Ends::new(Algorithm::Reno, 200, &[]);
    ends.marked = vec![30, 31, 32, 45];
    ends.play();
    assert_eq!(ends.sender.sent.reductions, 1);
    assert_eq!(ends.sender.sent.repeats, 0);
    let mut ends = Ends::new(Algorithm::Reno, 400, &[]);
    ends.marked = vec![30, 150];
    ends.play();
    assert_eq!(ends.sender.sent.reductions, 2, "a later window is another signal");
}

#[test]
fn a_mark_is_answered_at_once_and_half_of_what_arrives_goes_until_the_window_is_reached() {
    let config = TcpConfig { rack: false, ..TcpConfig::default() };
    let mut sender = Sender::new(&config, Algorithm::Reno, u32::MAX, 1000, 0);
    let sent = |sender: &mut Sender| -> Vec<(u32, bool)> {
        std::iter::from_fn(|| sender.poll(0)).map(|s| (s.seq, s.reduced)).collect()
    };
    assert_eq!(sent(&mut sender).len(), 10);
    sender.on_ack(RTT, 1, ECE, &[]);
    assert_eq!(sent(&mut sender), [(10, true)], "the answer");
    let mut goes = |una| {
        sender.on_ack(RTT, una, 0, &[]);
        sent(&mut sender).len()
    };
    assert_eq!((2..=10).map(&mut goes).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1, 0, 0, 1]);
    assert_eq!(goes(11), 1, "five are in flight from now on");
    assert_eq!(sender.cwnd(), 5);
}

#[test]
fn a_window_of_three_answers_at_once_too() {
    let config = TcpConfig { rack: false, initial_window: 3, ..TcpConfig::default() };
    let mut sender = Sender::new(&config, Algorithm::Reno, u32::MAX, 1000, 0);
    let mut goes = |una, bits| {
        sender.on_ack(RTT, una, bits, &[]);
        std::iter::from_fn(|| sender.poll(RTT)).map(|s| s.reduced).collect::<Vec<_>>()
    };
    assert_eq!(goes(0, 0).len(), 3);
    assert_eq!(goes(1, ECE), [true], "though two are in flight, and two shall be");
    assert_eq!([2, 3, 4, 5].map(|una| goes(una, 0).len()), [0, 1, 1, 2], "two, then it grows");
}

#[test]
fn dctcp_reduces_each_window_that_has_marks() {
    let mut ends = Ends::new(Algorithm::Dctcp, 2000, &[]);
    ends.marked = (0..2000).collect();
    ends.play();
    let rounds = ends.log.last().expect("it sent").0 / RTT;
    let reductions = u64::from(ends.sender.sent.reductions);
    assert!(reductions >= rounds / 2 - 1 && reductions <= rounds + 1, "{reductions} in {rounds}");
    assert_eq!(ends.sender.cwnd(), 2, "all is marked: alpha stays 1");
}

#[test]
fn what_never_was_sent_cannot_be_acknowledged() {
    let mut ends = Ends::new(Algorithm::Reno, 100, &[]);
    ends.pump();
    ends.sender.on_ack(5, 11, 0, &[]);
    assert_eq!(ends.sender.una, 0);
    ends.sender.on_ack(5, 0, 0, &[(50, 90)]);
    assert_eq!(ends.sender.poll(5), None);
}

proptest::proptest! {
    /// Whatever gets lost, all arrives in the end, and no more than the window is in flight.
    #[test]
    fn everything_arrives_in_the_end(
        lost in proptest::collection::btree_set(0usize..300, 0..120),
        late in proptest::collection::vec((0usize..300, 0u64..3 * RTT), 0..9),
        end in 1u32..200,
        which in 0usize..3,
        with_rack in proptest::bool::ANY,
    ) {
        let algorithm = [Algorithm::Reno, Algorithm::Cubic, Algorithm::Dctcp][which];
        let lost = lost.into_iter().collect::<Vec<_>>();
        let mut ends = Ends::of(rack(with_rack), algorithm, end, &lost);
        ends.late = late;
        ends.play();
        proptest::prop_assert_eq!(ends.receiver.expected(), end);
        proptest::prop_assert_eq!((ends.sender.una, ends.sender.next), (end, end));
        proptest::prop_assert!(ends.sender.board.is_none() || ends.sender.phase != Phase::Open);
    }
}

/// All is sent and acknowledged, after which ten more segments are wanted.
fn again(idle: u64) -> Sender {
    let mut ends = Ends::new(Algorithm::Cubic, 100, &[]);
    ends.play();
    assert!(ends.sender.is_idle() && ends.sender.cwnd() > 20);
    ends.sender.rested(idle, 10);
    ends.sender
}

#[test]
fn after_a_timeouts_silence_the_window_is_that_of_the_beginning() {
    // The timeout is its least, 200 ms beyond the round trip of one.
    assert!(again(200_000_000).cwnd() > 20);
    assert_eq!(again(202_000_000).cwnd(), 10);
}

#[test]
fn a_window_is_not_made_greater_by_a_rest() {
    let mut ends = Ends::new(Algorithm::Cubic, 2, &[0, 1]);
    ends.play();
    assert!(ends.sender.cwnd() < 10, "{}", ends.sender.cwnd());
    ends.sender.rested(600_000_000_000, 10);
    assert!(ends.sender.cwnd() < 10, "{}", ends.sender.cwnd());
}

#[test]
fn a_known_round_trip_makes_the_first_timeout_short() {
    let first = |known: u64| {
        let mut sender = Sender::new(&rack(false), Algorithm::Reno, 9, 1000, 0);
        sender.knows(known);
        sender.poll(0);
        sender.resend_at
    };
    assert_eq!([first(0), first(RTT)], [1_000_000_000, 201_000_000]);
}

#[test]
fn an_abandoned_sender_sends_nothing_whatever_arrives() {
    let mut ends = Ends::new(Algorithm::Reno, 1000, &[3]);
    ends.pump();
    ends.sender.abandon();
    assert_eq!((ends.sender.resend_at, ends.sender.poll(RTT)), (NEVER, None));
    for (at, una, echo, blocks) in std::mem::take(&mut ends.acks) {
        ends.sender.on_ack(at, una, if echo { ECE } else { 0 }, &blocks);
        assert_eq!((ends.sender.resend_at, ends.sender.poll(at)), (NEVER, None));
    }
    ends.sender.on_timer(RTT * 1000);
    assert_eq!(ends.sender.poll(RTT * 1000), None);
}

#[test]
fn with_timestamps_what_was_sent_again_ends_the_back_off() {
    let next_timeout = |timestamps: bool, bits: u8| {
        let config = TcpConfig { timestamps, ..rack(false) };
        let mut sender = Sender::new(&config, Algorithm::Reno, 9, 1000, 0);
        sender.knows(RTT);
        while sender.poll(0).is_some() {}
        let lost = sender.resend_at;
        sender.on_timer(lost);
        assert_eq!(sender.poll(lost).map(|segment| (segment.seq, segment.again)), Some((0, true)));
        sender.on_ack(lost + RTT, 1, bits, &[]);
        sender.resend_at - (lost + RTT)
    };
    assert_eq!(next_timeout(false, OF_AGAIN), 402_000_000, "Karn's rule");
    assert_eq!(next_timeout(true, OF_AGAIN), 201_000_000);
    assert_eq!(
        next_timeout(true, 0),
        402_000_000,
        "an ACK of the first copy says nothing of this one"
    );
}

#[test]
fn with_timestamps_a_segment_lost_twice_is_timed_from_its_last_copy() {
    let config = TcpConfig { timestamps: true, ..rack(false) };
    let mut sender = Sender::new(&config, Algorithm::Reno, 9, 1000, 0);
    sender.knows(RTT);
    while sender.poll(0).is_some() {}
    for _ in 0..2 {
        let lost = sender.resend_at;
        sender.on_timer(lost);
        assert_eq!(sender.poll(lost).map(|segment| segment.seq), Some(0));
    }
    let sent = sender.resend_at - 804_000_000;
    sender.on_ack(sent + RTT, 1, OF_AGAIN, &[]);
    assert_eq!(sender.rtt(), RTT);
}

/// 30 segments go in two rounds, ten and twenty; transmissions are numbered as the segments are.
fn with_rack(end: u32, lost: &[usize]) -> Ends {
    Ends::of(rack(true), Algorithm::Reno, end, lost)
}

#[test]
fn a_connection_that_is_over_keeps_no_memory_for_its_segments() {
    let mut ends = with_rack(10_000, &[3, 4]);
    ends.pump();
    ends.sender.halt();
    let keeps = |sender: &Sender| {
        let stamps = sender.stamps.as_ref().is_some_and(Stamps::keeps);
        stamps || sender.rack.as_ref().is_some_and(Rack::keeps)
    };
    assert!(keeps(&ends.sender), "some are in flight");
    ends.play();
    assert!(ends.sender.is_idle() && ends.sender.end < 100, "{}", ends.sender.end);
    assert!(!keeps(&ends.sender));
    // What comes late finds nothing, and harms nothing.
    ends.sender.on_ack(ends.now, ends.sender.end, 0, &[(1, 3)]);
    assert!(!keeps(&ends.sender));
}

#[test]
fn a_lost_tail_is_found_by_a_probe_and_not_by_a_timeout() {
    let mut ends = with_rack(30, &[28, 29]);
    ends.play();
    // The last ACK came after two round trips. Two more, and the last segment goes again; its SACK
    // tells of the one before.
    assert_eq!((ends.times(29), ends.times(28)), (vec![1, 4], vec![1, 5]));
    let sent = &ends.sender.sent;
    assert_eq!((sent.probes, sent.timeouts, sent.recoveries), (1, 0, 1));
    assert_eq!((ends.now / RTT, ends.receiver.expected()), (6, 30));
}

#[test]
fn the_probe_is_a_new_segment_if_there_is_one() {
    let round: Vec<_> = (10..30).collect();
    let mut ends = with_rack(400, &round);
    ends.play();
    assert_eq!((ends.times(30), ends.times(10)), (vec![3], vec![1, 4]));
    let sent = &ends.sender.sent;
    assert_eq!((sent.probes, sent.timeouts, sent.recoveries), (1, 0, 1));
    assert_eq!((ends.receiver.expected(), ends.receiver.repeats), (400, 0));
}

#[test]
fn a_single_segment_is_probed_when_its_ack_cannot_be_merely_delayed() {
    let mut ends = with_rack(30, &[29]);
    ends.play();
    assert_eq!(ends.times(29), [1, 203], "a timeout after the last ACK");
    assert_eq!((ends.sender.sent.probes, ends.sender.sent.timeouts), (1, 0));
}

#[test]
fn there_is_one_probe_per_tail_and_then_the_timer() {
    let mut ends = with_rack(30, &[28, 29, 30]);
    ends.play();
    assert_eq!((ends.times(29), ends.times(28)), (vec![1, 4, 206], vec![1, 205]));
    assert_eq!((ends.sender.sent.probes, ends.sender.sent.timeouts), (1, 1));
    assert_eq!((ends.receiver.expected(), ends.receiver.repeats), (30, 0));
}

#[test]
fn a_needless_probe_changes_no_window() {
    let mut ends = with_rack(30, &[]);
    ends.late = vec![(28, 5 * RTT / 2), (29, 5 * RTT / 2)];
    ends.play();
    let window = ends.sender.cwnd();
    assert_eq!((ends.sender.sent.probes, ends.receiver.repeats), (1, 1), "it came in vain");
    assert_eq!(ends.sender.probe, None, "and that was told");
    ends.sender.end = 40;
    ends.play();
    assert_eq!((ends.sender.sent.recoveries, ends.sender.sent.timeouts), (0, 0));
    assert!(ends.sender.cwnd() >= window);
}

#[test]
fn a_probe_that_repaired_a_loss_counts_as_one() {
    let mut ends = with_rack(30, &[29]);
    ends.play();
    let window = ends.sender.cwnd();
    assert_eq!(ends.sender.sent.recoveries, 0, "its ACK may be of the first copy");
    ends.sender.end = 40;
    ends.play();
    assert_eq!((ends.sender.sent.recoveries, ends.sender.cwnd()), (1, window / 2));
}

#[test]
fn what_is_late_by_less_than_a_quarter_of_a_round_trip_is_not_lost() {
    let mut ends = with_rack(400, &[]);
    // The first is overtaken by one only, and shows that packets are; the second by many.
    ends.late = vec![(8, RTT / 5), (15, RTT / 5)];
    ends.play();
    let sent = &ends.sender.sent;
    assert_eq!((sent.repeats, sent.recoveries, sent.probes), (0, 0, 0));
    ends = with_rack(400, &[]);
    ends.late = vec![(8, RTT / 5), (15, RTT / 2)];
    ends.play();
    let sent = &ends.sender.sent;
    assert_eq!((sent.repeats, sent.recoveries, sent.timeouts), (1, 1, 0));
    assert_eq!(ends.log.iter().rfind(|sent| sent.1 == 15).map(|sent| sent.0), Some(RTT * 9 / 4));
    assert_eq!(ends.receiver.repeats, 1);
}

#[test]
fn without_rack_three_later_ones_or_as_many_as_said_make_a_loss() {
    let repeats = |dup_thresh, is_sprayed: bool| {
        let config = TcpConfig { dup_thresh, ..rack(false) };
        let mut ends = Ends::of(config, Algorithm::Reno, 400, &[]);
        if is_sprayed {
            ends.sender.sprayed();
        }
        ends.late = vec![(15, RTT / 5)];
        ends.play();
        ends.sender.sent.repeats
    };
    assert_eq!([repeats(3, false), repeats(30, false), repeats(3, true)], [1, 0, 0]);
}

#[test]
fn with_rack_a_repair_that_is_lost_is_repaired_a_round_trip_later() {
    let mut first = with_rack(400, &[30]);
    first.play();
    assert_eq!(first.times(30), [2, 3]);
    let again = first.log.iter().rposition(|sent| sent.1 == 30).expect("it was repaired");
    let mut ends = with_rack(400, &[30, again]);
    ends.play();
    assert_eq!(ends.times(30), [2, 3, 4]);
    assert_eq!((ends.sender.sent.timeouts, ends.receiver.repeats), (0, 0));
    assert_eq!(ends.receiver.expected(), 400);
}

#[test]
fn with_hystart_slow_start_ends_when_round_trips_grow() {
    let last = |hystart| {
        let config = TcpConfig { hystart, ..rack(false) };
        let mut sender = Sender::new(&config, Algorithm::Cubic, u32::MAX, 1000, 0);
        let (mut now, mut una) = (0, 0);
        let mut flight = std::iter::from_fn(|| sender.poll(now)).count();
        // Three of 10 ms, three of 15; all ACKs of one come at once.
        for trip in [10, 10, 10, 15, 15, 15] {
            now += trip * RTT;
            for _ in 0..std::mem::take(&mut flight) {
                una += 1;
                sender.on_ack(now, una, 0, &[]);
                flight += std::iter::from_fn(|| sender.poll(now)).count();
            }
        }
        sender.cwnd()
    };
    assert_eq!(last(false), 10 << 6);
    assert!(last(true) < 10 << 4, "{}", last(true));
}
