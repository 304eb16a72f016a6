//! The sending end: what may go now, and what an ACK or a silence means.
//!
//! Approach  While nothing is missing an ACK moves two numbers and lets the window grow; the
//!           scoreboard exists only from the first SACK block until all is repaired.
//! Promises  Never more than min(cwnd, receive window) in flight, but for what the window had
//!           already let out. A congestion signal counts once per window. The timer runs exactly
//!           while something is in flight.
//! Source    RFC 5681, 6298 §5 (5.1-5.6) with Karn's rule, 6675 §5 (recovery by the pipe), 3168
//!           §6.1.2 (one reduction per window, CWR), 6937 (see `prr`). Departs: at a timeout what
//!           was SACKed stays so, as in Linux (our receivers never renege).

use super::board::Board;
use super::control::{Acked, Algorithm, Control, Window};
use super::prr::Prr;
use super::rtt::Rtt;
use super::{Block, NEVER, TcpConfig};

/// A segment to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    /// It answers ECN-Echo.
    pub(crate) reduced: bool,
}

/// What a sender is doing about losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing is missing.
    Open,
    /// Losses are repaired until `recover` is acknowledged.
    Recovery,
    /// The same after a timeout: slow start.
    Loss,
}

/// What a sender counts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    /// Segments sent again.
    pub(crate) repeats: u64,
    /// Expired retransmission timers.
    pub(crate) timeouts: u32,
    /// Fast recoveries.
    pub(crate) recoveries: u32,
    /// Reductions because of marks.
    pub(crate) reductions: u32,
}

#[derive(Debug)]
pub(crate) struct Sender {
    /// The first segment not acknowledged, and the next new one.
    una: u32,
    next: u32,
    /// One more than the last segment there will ever be.
    pub(crate) end: u32,
    /// The receiver's window, in segments.
    limit: u32,
    window: Window,
    phase: Phase,
    /// Its answer to ECN-Echo has not been sent.
    reduced: bool,
    /// The first repair of a recovery waits for no room in the window (RFC 6675 §5, step 4.3).
    prompt: bool,
    pub(crate) capable: bool,
    /// Repaired when this one is acknowledged.
    recover: u32,
    /// No other reduction before this one is acknowledged.
    settled: u32,
    /// This segment, sent once, measures the round-trip time, from `timed_at`, if that is not never.
    timed: u32,
    timed_at: u64,
    /// When the retransmission timer expires.
    pub(crate) resend_at: u64,
    /// When the wheel will look at `resend_at`; written by the world.
    pub(crate) looks_at: u64,
    pub(crate) route: u32,
    rtt: Rtt,
    control: Control,
    prr: Prr,
    board: Option<Box<Board>>,
    pub(crate) sent: Sent,
}

impl Sender {
    /// Sends segments 0 to `end`, the last not included; at most `limit` in flight.
    pub(crate) fn new(
        config: &TcpConfig,
        algorithm: Algorithm,
        end: u32,
        limit: u32,
        route: u32,
    ) -> Self {
        Self {
            una: 0,
            next: 0,
            end,
            limit,
            window: Window::new(config.initial_window),
            phase: Phase::Open,
            reduced: false,
            prompt: false,
            capable: config.ecn || algorithm == Algorithm::Dctcp,
            recover: 0,
            settled: 0,
            timed: 0,
            timed_at: NEVER,
            resend_at: NEVER,
            looks_at: NEVER,
            route,
            rtt: Rtt::new(config),
            control: Control::new(algorithm),
            prr: Prr::default(),
            board: None,
            sent: Sent::default(),
        }
    }

    /// The next segment that may go now; to be called until there is none.
    #[inline]
    pub(crate) fn poll(&mut self, now: u64) -> Option<Segment> {
        let mut flight = self.next - self.una;
        if let Some(board) = &self.board {
            flight -= board.absent();
        }
        if flight >= self.window.cwnd && !std::mem::take(&mut self.prompt) {
            return None;
        }
        if self.board.is_some()
            && let Some(seq) = self.repair()
        {
            return Some(Segment { seq, reduced: false });
        }
        if self.next >= self.end || self.next - self.una >= self.limit {
            return self.suspect();
        }
        let seq = self.next;
        self.next += 1;
        if self.phase == Phase::Recovery {
            self.prr.on_sent();
        }
        if self.timed_at == NEVER {
            (self.timed, self.timed_at) = (seq, now);
        }
        if self.resend_at == NEVER {
            self.resend_at = now + self.rtt.timeout();
        }
        Some(Segment { seq, reduced: std::mem::take(&mut self.reduced) })
    }

    /// All before `una` has arrived, and `blocks`.
    #[inline]
    pub(crate) fn on_ack(&mut self, now: u64, una: u32, echo: bool, blocks: &[Block]) {
        if una > self.next {
            return;
        }
        let flight = self.next - self.una;
        let acked = una.saturating_sub(self.una);
        if self.timed_at != NEVER && una > self.timed {
            self.rtt.sample(now - self.timed_at);
            self.timed_at = NEVER;
        }
        let first = self.una;
        self.una += acked;
        if self.board.is_some() || !blocks.is_empty() {
            self.repaired(first, blocks);
        }
        if acked > 0 {
            self.resend_at = if self.una == self.next { NEVER } else { now + self.rtt.timeout() };
            let growing = matches!(self.phase, Phase::Open) & (flight >= self.window.cwnd) & !echo;
            let ack = Acked {
                now,
                acked,
                echo,
                una: self.una,
                next: self.next,
                rtt: self.rtt.smoothed(),
                may_grow: growing | matches!(self.phase, Phase::Loss),
            };
            self.control.on_ack(&mut self.window, &ack);
        }
        if echo && self.una >= self.settled && self.phase == Phase::Open {
            self.control.on_mark(&mut self.window);
            self.settled = self.next + 1;
            self.reduced = true;
            self.sent.reductions += 1;
        }
        if self.board.is_some() {
            self.conclude(now);
        }
    }

    /// The timer was looked at: if it has expired, everything in flight is lost.
    pub(crate) fn on_timer(&mut self, now: u64) {
        if now < self.resend_at {
            return;
        }
        debug_assert!(self.una < self.next, "the timer runs while something is in flight");
        self.sent.timeouts += 1;
        self.control.on_timeout(&mut self.window, self.phase == Phase::Open);
        let (una, next, limit) = (self.una, self.next, self.limit);
        let board = self.board.get_or_insert_with(|| Box::new(Board::new(limit, una)));
        board.give_up(una, next);
        self.phase = Phase::Loss;
        (self.recover, self.settled) = (self.next, self.next);
        self.rtt.back_off();
        self.timed_at = NEVER;
        self.resend_at = now + self.rtt.timeout();
    }

    /// Congestion window, in segments.
    pub(crate) fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    /// Smoothed round-trip time in ns; zero before the first sample.
    pub(crate) fn rtt(&self) -> u64 {
        self.rtt.smoothed()
    }

    /// NextSeg rule 1.
    #[cold]
    fn repair(&mut self) -> Option<u32> {
        let next = self.next;
        let seq = self.board.as_mut()?.resend(next)?;
        self.again();
        Some(seq)
    }

    /// NextSeg rule 3, when there is nothing else to send.
    #[inline]
    fn suspect(&mut self) -> Option<Segment> {
        if self.phase != Phase::Recovery {
            return None;
        }
        let next = self.next;
        let seq = self.board.as_mut()?.suspect(next)?;
        self.again();
        Some(Segment { seq, reduced: false })
    }

    /// Karn's rule: what is in flight now measures nothing.
    fn again(&mut self) {
        self.timed_at = NEVER;
        self.prr.on_sent();
        self.sent.repeats += 1;
    }

    /// Brings the scoreboard up to date; `first` was the first segment not acknowledged.
    #[cold]
    fn repaired(&mut self, first: u32, blocks: &[Block]) {
        let (una, next, limit) = (self.una, self.next, self.limit);
        let board = self.board.get_or_insert_with(|| Box::new(Board::new(limit, first)));
        let mut delivered = board.advance(first, una);
        for &(from, to) in blocks {
            let (from, to) = (from.max(una), to.min(next));
            if from < to {
                delivered += board.sack(from, to);
            }
        }
        let lost = board.judge(una);
        if self.phase != Phase::Open && una >= self.recover {
            if self.phase == Phase::Recovery {
                self.window.cwnd = self.window.ssthresh;
            }
            self.phase = Phase::Open;
        }
        if self.phase == Phase::Recovery {
            let pipe = next - una - board.absent();
            let safe = una > first && !lost;
            self.window.cwnd = pipe + self.prr.on_ack(delivered, safe, pipe, self.window.ssthresh);
        }
    }

    /// Enters recovery if something is lost; drops the scoreboard if it says nothing.
    #[cold]
    fn conclude(&mut self, now: u64) {
        let Some(board) = &self.board else { return };
        if self.phase == Phase::Open {
            if board.lost() > 0 {
                // Marks and losses of one window are one signal, but not to DCTCP (RFC 8257 §3.5).
                if self.una >= self.settled || matches!(self.control, Control::Dctcp(_)) {
                    self.control.on_loss(&mut self.window);
                    self.settled = self.next;
                }
                self.phase = Phase::Recovery;
                self.prompt = true;
                self.prr = Prr::begin(self.next - self.una);
                self.window.cwnd = self.next - self.una - board.absent();
                self.recover = self.next;
                self.resend_at = now + self.rtt.timeout();
                self.sent.recoveries += 1;
            } else if board.is_blank() {
                self.board = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Receiver;
    use super::*;
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
            while let Some(Segment { seq, reduced }) = self.sender.poll(self.now) {
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
                    self.sender.on_ack(now, una, echo, &blocks);
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
        let times: Vec<_> =
            ends.log.iter().filter(|sent| sent.1 == 70).map(|sent| sent.0).collect();
        let gaps: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect();
        assert_eq!(gaps, [200, 400, 800]);
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
        assert!(
            reductions >= rounds / 2 - 1 && reductions <= rounds + 1,
            "{reductions} in {rounds}"
        );
        assert_eq!(ends.sender.cwnd(), 2, "all is marked: alpha stays 1");
    }

    #[test]
    fn what_never_was_sent_cannot_be_acknowledged() {
        let mut ends = Ends::new(Algorithm::Reno, 100, &[]);
        ends.pump();
        ends.sender.on_ack(5, 11, false, &[]);
        assert_eq!(ends.sender.una, 0);
        ends.sender.on_ack(5, 0, false, &[(50, 90)]);
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
}
