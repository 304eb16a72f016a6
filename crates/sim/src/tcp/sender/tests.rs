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
    /// Segments that are marked when sent first.
    marked: Vec<u32>,
}

impl Ends {
    fn new(algorithm: Algorithm, end: u32, lost: &[usize]) -> Self {
        let config = TcpConfig { ack_every: 1, ..TcpConfig::default() };
        Self {
            now: 0,
            sender: Sender::new(&config, algorithm, end, 1000, 0),
            receiver: Receiver::new(&config, algorithm, end, 1000, 0),
            log: Vec::new(),
            acks: VecDeque::new(),
            lost: lost.to_vec(),
            marked: Vec::new(),
        }
    }

    fn pump(&mut self) {
        while let Some(Segment { seq, reduced, .. }) = self.sender.poll(self.now) {
            let lost = self.lost.contains(&self.log.len());
            let first = !self.log.iter().any(|sent| sent.1 == seq);
            self.log.push((self.now, seq, lost));
            if lost {
                continue;
            }
            let marked = first && self.marked.contains(&seq);
            let (early, ack) = self.receiver.on_data(self.now, seq, marked, reduced, false);
            for ack in [early, ack].into_iter().flatten() {
                let blocks = self.receiver.blocks().to_vec();
                self.acks.push_back((self.now + RTT, ack.expected, ack.echo, blocks));
            }
        }
    }

    /// Until all is acknowledged, or nothing moves any more.
    fn play(&mut self) {
        self.pump();
        loop {
            let ack = self.acks.front().map_or(NEVER, |ack| ack.0);
            self.now = ack.min(self.sender.resend_at);
            if self.now == NEVER {
                return;
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
        end in 1u32..200,
        which in 0usize..3,
    ) {
        let algorithm = [Algorithm::Reno, Algorithm::Cubic, Algorithm::Dctcp][which];
        let mut ends = Ends::new(algorithm, end, &lost.into_iter().collect::<Vec<_>>());
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
        let mut sender = Sender::new(&TcpConfig::default(), Algorithm::Reno, 9, 1000, 0);
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
        let config = TcpConfig { timestamps, ..TcpConfig::default() };
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
    let config = TcpConfig { timestamps: true, ..TcpConfig::default() };
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
