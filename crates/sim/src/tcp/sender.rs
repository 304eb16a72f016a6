//! The sending end: segments that may go now, and the reaction to ACKs and to silence.
//!
//! Approach  While nothing is missing, an ACK moves two numbers and lets the window grow. The
//!           scoreboard exists only from the first SACK block until all is repaired. There is one
//!           timer; its purpose is evaluated when it expires.
//! Promises  At most min(cwnd, receive window) is in flight, except for segments that an earlier,
//!           larger window allowed, and a probe. A congestion signal counts once per window. The
//!           timer runs exactly while something is in flight.
//! Not here  Probes, and losses found by time: see `probe`.
//! Source    RFC 5681, 6298 §5 (5.1-5.6) with Karn's rule or timestamps (7323), 6675 §5 (recovery
//!           by the pipe), 3168 §6.1.2 (one reduction per window, CWR), 6937 (see `prr`). Departs:
//!           at a timeout what was SACKed stays so, as in Linux (our receivers never renege).

mod probe;
#[cfg(test)]
mod tests;

use super::board::Board;
use super::control::{Acked, Algorithm, Control, Window};
use super::prr::Prr;
use super::rack::{Rack, View};
use super::rtt::Rtt;
use super::stamps::Stamps;
use super::ticks::Ticks;
use super::{Block, NEVER, TcpConfig};
use crate::look::ConnectionLook;
use crate::packet::{ECE, ECT, OF_AGAIN};
use probe::Probe;

/// SACKed segments above a hole that make it a loss, where packets overtake each other
/// (`tcp_max_reordering`).
const SPRAYED: u32 = 300;

/// A segment to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    /// It answers ECN-Echo.
    pub(crate) reduced: bool,
    /// It was sent before.
    pub(crate) again: bool,
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

/// What the timer waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// The retransmission timeout.
    Resend,
    /// The same, and before it, if there has been silence and nothing is missing, a probe.
    Tail,
    /// What has been overtaken is lost then.
    Reorder,
}

/// What a sender counts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    /// Segments sent again.
    pub(crate) repeats: u64,
    /// Probes, of new segments and of those sent again.
    pub(crate) probes: u32,
    /// Expired retransmission timers.
    pub(crate) timeouts: u32,
    /// Fast recoveries, and losses that a probe has repaired.
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
    /// The application will send no more.
    halted: bool,
    /// The receiver's window, in segments.
    limit: u32,
    /// One more than the last segment that a port lets it send, if one has a say; written by the
    /// world.
    pub(crate) edge: u32,
    window: Window,
    phase: Phase,
    /// Its answer to ECN-Echo has not been sent.
    reduced: bool,
    /// It does not heed ECN-Echo.
    pub(crate) deaf: bool,
    /// The first repair of a recovery waits for no room in the window (RFC 6675 §5, step 4.3).
    prompt: bool,
    /// Of each segment: ECN-capable or not. The world adds the class.
    pub(crate) bits: u8,
    /// Repaired when this one is acknowledged.
    recover: u32,
    /// No other reduction before this one is acknowledged.
    settled: u32,
    /// The window that a mark asked for, while it is being reached; 0: it is.
    goal: u32,
    /// This segment measures the round-trip time, from `timed_at`, if that is not never.
    timed: u32,
    timed_at: u64,
    /// With timestamps: it was sent before, and only an ACK of that copy measures.
    timed_again: bool,
    stamped: bool,
    /// When the timer expires, at the earliest; what it waits for; and since when.
    pub(crate) resend_at: u64,
    why: Why,
    armed_at: u64,
    /// The last such instant that its kernel's ticks have made later.
    ticked_at: u64,
    /// When the wheel will look at `resend_at`; written by the world.
    pub(crate) looks_at: u64,
    pub(crate) route: u32,
    ticks: Ticks,
    rtt: Rtt,
    control: Control,
    prr: Prr,
    board: Option<Box<Board>>,
    dup_thresh: u32,
    /// With RACK or HyStart: when each segment in flight was sent. What that tells RACK; congestion
    /// control wants to know it, too.
    stamps: Option<Stamps>,
    rack: Option<Rack>,
    samples: bool,
    /// A probe is to be sent now; one was sent, and it is not known what became of it.
    probing: bool,
    probe: Option<Probe>,
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
        let samples = config.hystart && algorithm == Algorithm::Cubic;
        Self {
            una: 0,
            next: 0,
            end,
            halted: false,
            limit,
            edge: u32::MAX,
            window: Window::new(config.initial_window),
            phase: Phase::Open,
            reduced: false,
            prompt: false,
            deaf: false,
            bits: if config.ecn || algorithm == Algorithm::Dctcp { ECT } else { 0 },
            recover: 0,
            settled: 0,
            goal: 0,
            timed: 0,
            timed_at: NEVER,
            timed_again: false,
            stamped: config.timestamps,
            resend_at: NEVER,
            why: Why::Resend,
            armed_at: 0,
            ticked_at: NEVER,
            looks_at: NEVER,
            route,
            ticks: Ticks::new(config.tick),
            rtt: Rtt::new(config),
            control: Control::new(algorithm, config.hystart),
            prr: Prr::default(),
            board: None,
            dup_thresh: config.dup_thresh.max(1),
            stamps: (config.rack | samples).then(Stamps::default),
            samples,
            rack: config.rack.then(Rack::default),
            probing: false,
            probe: None,
            sent: Sent::default(),
        }
    }

    /// The next segment that may go now; to be called until there is none.
    #[inline]
    pub(crate) fn poll(&mut self, now: u64) -> Option<Segment> {
        if self.probing {
            return Some(self.send_probe(now));
        }
        let mut flight = self.next - self.una;
        if let Some(board) = &self.board {
            flight -= board.absent();
        }
        if flight >= self.window.cwnd && !std::mem::take(&mut self.prompt) {
            return None;
        }
        if self.board.is_some()
            && let Some(seq) = self.repair(now)
        {
            return Some(Segment { seq, reduced: false, again: true });
        }
        if self.next >= self.end.min(self.edge) || self.next - self.una >= self.limit {
            return self.suspect(now);
        }
        Some(self.fresh(now))
    }

    /// The next new segment.
    #[inline]
    fn fresh(&mut self, now: u64) -> Segment {
        let seq = self.next;
        self.next += 1;
        if let Some(stamps) = &mut self.stamps {
            stamps.put(self.una, seq, now);
        }
        if self.phase == Phase::Recovery || self.goal > 0 {
            self.prr.on_sent();
        }
        if self.timed_at == NEVER {
            (self.timed, self.timed_at, self.timed_again) = (seq, now, false);
        }
        if self.resend_at == NEVER {
            self.arm(now);
        }
        Segment { seq, reduced: std::mem::take(&mut self.reduced), again: false }
    }

    /// All before `una` has arrived, and `blocks`. `bits` are the ACK's.
    #[inline]
    pub(crate) fn on_ack(&mut self, now: u64, una: u32, bits: u8, blocks: &[Block]) {
        if una > self.next {
            return;
        }
        let echo = (bits & ECE != 0) & !self.deaf;
        let flight = self.next - self.una;
        let acked = una.saturating_sub(self.una);
        if self.timed_at != NEVER && una > self.timed {
            if !self.timed_again | (bits & OF_AGAIN != 0) {
                self.rtt.sample(now - self.timed_at, (una, self.next));
            }
            self.timed_at = NEVER;
        }
        let first = self.una;
        self.una += acked;
        let mut delivered = acked;
        if self.board.is_some() || !blocks.is_empty() {
            delivered = self.learn(now, (first, una), blocks);
        }
        if self.goal > 0 && (self.una >= self.settled || self.phase != Phase::Open) {
            let goal = std::mem::take(&mut self.goal);
            if self.phase == Phase::Open {
                self.window.cwnd = goal;
            }
        }
        if acked > 0 {
            self.arm(now);
            let free = matches!(self.phase, Phase::Open) & (self.goal == 0) & !echo;
            let growing = free & (flight >= self.window.cwnd);
            let ack = Acked {
                now,
                acked,
                echo,
                una: self.una,
                next: self.next,
                rtt: self.rtt.smoothed(),
                sample: if self.samples { self.sample(now) } else { 0 },
                may_grow: growing | matches!(self.phase, Phase::Loss),
            };
            self.control.on_ack(&mut self.window, &ack);
        }
        if echo && self.una >= self.settled && self.phase == Phase::Open {
            let before = self.window.cwnd;
            self.control.on_mark(&mut self.window);
            self.settled = self.next + 1;
            self.reduced = true;
            self.sent.reductions += 1;
            if !matches!(self.control, Control::Dctcp(_)) {
                (self.goal, self.prr) = (self.window.cwnd, Prr::begin(before));
            }
        }
        if self.goal > 0 {
            self.reach(delivered);
        }
        if self.probe.is_some() {
            self.on_probe_answer(una, acked > 0, blocks);
        }
        if self.board.is_some() {
            self.conclude(now, delivered, acked > 0);
        }
        if self.halted && acked > 0 {
            self.rest();
        }
    }

    /// A mark asked for a smaller window: what is delivered lets so much less go that a round trip
    /// later it is reached, as in Linux. The answer to the mark goes at once, and not when all is
    /// drained, whatever the windows.
    #[cold]
    fn reach(&mut self, delivered: u32) {
        let absent = self.board.as_ref().map_or(0, |board| board.absent());
        let pipe = self.next - self.una - absent;
        let answer = u32::from(delivered > 0 && self.prr.is_silent());
        self.window.cwnd = pipe + self.prr.on_ack(delivered, true, pipe, self.goal).max(answer);
    }

    /// How many packets wait at most before its host's uplink, if its guest sees them there: so
    /// many as it paces in 2⁻¹⁰ s, two at least. Linux: `tcp_update_pacing_rate`,
    /// `tcp_small_queue_check`.
    pub(crate) fn small_queue(&self) -> u32 {
        let Window { cwnd, ssthresh, .. } = self.window;
        let (cwnd, is_starting) = (u64::from(cwnd), cwnd < ssthresh / 2);
        let paced = if is_starting { 2 * cwnd } else { cwnd * 6 / 5 };
        match (paced * (1_000_000_000 / 1024)).checked_div(self.rtt.smoothed()) {
            Some(packets) => packets.clamp(2, u32::MAX.into()) as u32,
            None => u32::MAX,
        }
    }

    /// The application has nothing more to send.
    pub(crate) fn halt(&mut self) {
        self.end = self.end.min(self.next);
        self.halted = true;
        self.rest();
    }

    /// Keeps no memory for segments once the last one is acknowledged: a run of hours has thousands of
    /// connections that are over.
    fn rest(&mut self) {
        if self.is_idle() {
            self.stamps = self.stamps.take().map(|_| Stamps::default());
            if let Some(rack) = &mut self.rack {
                rack.release();
            }
        }
    }

    /// Nothing is under way, and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.una == self.end
    }

    /// The time of a round trip is known from elsewhere.
    pub(crate) fn knows(&mut self, rtt: u64) {
        if rtt > 0 {
            self.rtt.sample(rtt, (self.una, self.next));
        }
    }

    /// Its kernel was started so many ns before the run.
    pub(crate) fn booted(&mut self, before: u64) {
        self.ticks.booted(before);
    }

    /// Its kernel is older than RACK-TLP. Before the first segment.
    pub(crate) fn forget_rack(&mut self) {
        self.rack = None;
        self.stamps = self.samples.then(Stamps::default);
    }

    /// Its packets take several ways in turn.
    pub(crate) fn sprayed(&mut self) {
        self.dup_thresh = self.dup_thresh.max(SPRAYED);
    }

    /// Nothing was sent for `idle` ns: after a timeout's time the window is that of the beginning,
    /// if it is not less (RFC 5681 §4.1).
    pub(crate) fn rested(&mut self, idle: u64, initial: u32) {
        if self.is_idle() && idle > self.rtt.timeout() {
            self.window.cwnd = self.window.cwnd.min(initial);
        }
    }

    /// The connection is no more.
    pub(crate) fn abandon(&mut self) {
        self.end = self.next;
        self.una = self.next;
        self.board = None;
        self.phase = Phase::Open;
        self.goal = 0;
        (self.probing, self.probe) = (false, None);
        self.resend_at = NEVER;
    }

    /// The timer was looked at: if it has expired, what it waited for has come.
    pub(crate) fn on_timer(&mut self, now: u64) {
        if now < self.resend_at {
            return;
        }
        // Only now: most timers are set again long before.
        if self.why == Why::Tail {
            self.look_at_tail();
            if now < self.resend_at {
                return;
            }
        }
        if self.resend_at != self.ticked_at {
            let ahead = match self.why {
                Why::Resend => self.rtt.timeout(),
                Why::Tail | Why::Reorder => self.resend_at - self.armed_at,
            };
            self.ticked_at = self.ticks.expires(self.resend_at, ahead);
            self.resend_at = self.ticked_at;
            if now < self.resend_at {
                return;
            }
        }
        match self.why {
            Why::Resend => self.give_up(now),
            Why::Tail => {
                self.probing = true;
                self.rearm(now);
            }
            Why::Reorder => self.settle(now),
        }
    }

    /// Everything in flight is lost.
    fn give_up(&mut self, now: u64) {
        debug_assert!(self.una < self.next, "the timer runs while something is in flight");
        self.sent.timeouts += 1;
        self.control.on_timeout(&mut self.window, self.phase == Phase::Open);
        let (una, next, limit) = (self.una, self.next, self.limit);
        let board = self.board.get_or_insert_with(|| Box::new(Board::new(limit, una)));
        board.give_up(una, next);
        self.phase = Phase::Loss;
        (self.recover, self.settled) = (self.next, self.next);
        self.goal = 0;
        self.rtt.back_off();
        self.timed_at = NEVER;
        self.probe = None;
        if let Some(rack) = &mut self.rack {
            rack.forget();
        }
        self.rearm(now);
    }

    /// Its windows, and what is in flight.
    pub(crate) fn look(&self) -> ConnectionLook {
        let rwnd = self.edge.saturating_sub(self.una).min(self.limit);
        ConnectionLook {
            cwnd: self.window.cwnd,
            rwnd,
            flight: self.next - self.una,
            acked: self.una,
            again: self.sent.repeats,
        }
    }

    /// Congestion window, in segments.
    pub(crate) fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    /// Smoothed round-trip time in ns; zero before the first sample.
    pub(crate) fn rtt(&self) -> u64 {
        self.rtt.smoothed()
    }

    /// The timer waits anew, if something is in flight.
    #[inline]
    fn arm(&mut self, now: u64) {
        if self.una == self.next {
            self.resend_at = NEVER;
        } else if self.rack.is_some() {
            (self.why, self.armed_at) = (Why::Tail, now);
            self.resend_at = now + self.rtt.patience(false);
        } else {
            self.rearm(now);
        }
    }

    /// The same, for the retransmission timeout.
    #[inline]
    fn rearm(&mut self, now: u64) {
        (self.why, self.armed_at) = (Why::Resend, now);
        self.resend_at = now + self.rtt.timeout();
    }

    /// NextSeg rule 1.
    #[cold]
    fn repair(&mut self, now: u64) -> Option<u32> {
        let next = self.next;
        let seq = self.board.as_mut()?.resend(next)?;
        if let Some(rack) = &mut self.rack {
            rack.on_resend(seq);
        }
        self.again(now, seq);
        Some(seq)
    }

    /// NextSeg rule 3, when there is nothing else to send. RACK waits for what it suspects.
    #[inline]
    fn suspect(&mut self, now: u64) -> Option<Segment> {
        if self.phase != Phase::Recovery || self.rack.is_some() {
            return None;
        }
        let next = self.next;
        let seq = self.board.as_mut()?.suspect(next)?;
        self.again(now, seq);
        Some(Segment { seq, reduced: false, again: true })
    }

    /// Karn's rule: what is in flight now measures nothing; with timestamps this copy does.
    fn again(&mut self, now: u64, seq: u32) {
        if !self.stamped {
            self.timed_at = NEVER;
        } else if self.timed_at == NEVER || !self.timed_again || seq == self.timed {
            (self.timed, self.timed_at, self.timed_again) = (seq, now, true);
        }
        if let Some(stamps) = &mut self.stamps {
            stamps.put(self.una, seq, now);
        }
        self.prompt = false;
        self.prr.on_sent();
        self.sent.repeats += 1;
    }

    /// Brings the scoreboard up to date; `first` was the first segment not acknowledged, `ack` is
    /// the one that this ACK expects. Returns how many segments were delivered.
    #[cold]
    fn learn(&mut self, now: u64, (first, ack): Block, blocks: &[Block]) -> u32 {
        let (una, next, limit) = (self.una, self.next, self.limit);
        let board = self.board.get_or_insert_with(|| Box::new(Board::new(limit, first)));
        if let (Some(rack), Some(stamps)) = (&mut self.rack, &self.stamps) {
            let (shortest, smoothed) = (self.rtt.shortest(), self.rtt.smoothed());
            let view = View { now, stamps, shortest, smoothed };
            let probe = self.probe.and_then(Probe::again);
            // The block told first is the newest.
            let told = blocks.iter().rev().map(|&(from, to)| (from.max(una), to.min(next)));
            for range in told.chain([(first, una)]) {
                rack.hear(&view, board, range, probe);
            }
            let vain = probe::in_vain(ack, blocks);
            if vain.is_some_and(|seq| Some(seq) != probe) {
                rack.on_vain(una, next);
            }
        }
        let mut delivered = board.advance(first, una);
        for &(from, to) in blocks {
            let (from, to) = (from.max(una), to.min(next));
            if from < to {
                delivered += board.sack(from, to);
            }
        }
        if self.phase != Phase::Open && una >= self.recover {
            if self.phase == Phase::Recovery {
                self.window.cwnd = self.window.ssthresh;
                if let Some(rack) = &mut self.rack {
                    rack.on_recovered();
                }
            }
            self.phase = Phase::Open;
        }
        delivered
    }

    /// Finds what is lost by now: whether that is more than was known, and when to look again.
    fn judge(&mut self, now: u64) -> (bool, Option<u64>) {
        let Some(board) = &mut self.board else { return (false, None) };
        let (Some(rack), Some(stamps)) = (&mut self.rack, &self.stamps) else {
            return (board.judge(self.una, self.dup_thresh), None);
        };
        let before = board.lost();
        let hasty = self.phase != Phase::Open || board.sacked() >= self.dup_thresh;
        let (shortest, smoothed) = (self.rtt.shortest(), self.rtt.smoothed());
        let view = View { now, stamps, shortest, smoothed };
        let again_at = rack.judge(&view, board, (self.una, self.next), hasty);
        (board.lost() > before, again_at)
    }

    /// How long ago the last segment acknowledged was sent, ns; zero if it may have been sent
    /// twice.
    fn sample(&self, now: u64) -> u64 {
        match &self.stamps {
            Some(stamps) if self.board.is_none() && self.probe.is_none() => {
                now - stamps.get(self.una - 1)
            }
            _ => 0,
        }
    }

    /// Segments were lost: the window falls.
    fn fall(&mut self) {
        // Marks and losses of one window are one signal, but not to DCTCP (RFC 8257 §3.5).
        if self.una >= self.settled || matches!(self.control, Control::Dctcp(_)) {
            self.control.on_loss(&mut self.window);
            self.settled = self.next;
        }
        self.sent.recoveries += 1;
    }

    /// Enters recovery if something is lost, says what may go during it, and drops the scoreboard
    /// if it says nothing.
    #[cold]
    fn conclude(&mut self, now: u64, delivered: u32, advanced: bool) {
        let (new_loss, again_at) = self.judge(now);
        let Some(board) = &self.board else { return };
        let (lost, absent, is_blank) = (board.lost(), board.absent(), board.is_blank());
        if self.phase == Phase::Open && lost > 0 {
            self.fall();
            self.goal = 0;
            self.phase = Phase::Recovery;
            self.prompt = true;
            self.prr = Prr::begin(self.next - self.una);
            self.recover = self.next;
            self.probe = None;
            self.rearm(now);
        }
        match self.phase {
            Phase::Recovery => {
                let pipe = self.next - self.una - absent;
                let safe = advanced && !new_loss;
                let may = self.prr.on_ack(delivered, safe, pipe, self.window.ssthresh);
                self.window.cwnd = (pipe + may).max(1);
            }
            Phase::Open if is_blank => self.board = None,
            Phase::Open | Phase::Loss => {}
        }
        self.look_again(now, again_at);
    }
}
