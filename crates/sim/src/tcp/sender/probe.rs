//! Silence and time: a sender's actions when no ACK comes.
//!
//! Problem   A segment lost at the end of a flight has no later segment whose SACK would show the
//!           loss. It waits for the retransmission timer, many round trips, and the window falls to
//!           one segment.
//! Approach  After two silent round trips the sender sends a probe: a new segment if there is one,
//!           else the last one again. The probe's SACK lets RACK (see `rack`) find losses before
//!           it. A segment that was only overtaken is checked when RACK's time would make it a
//!           loss.
//! Promises  One probe per tail: none while the result of the last one is unknown. The
//!           retransmission timer restarts with the probe, and is not later because of it. A
//!           needless probe changes no window; one that repaired a loss counts as a loss.
//! Source    RFC 8985 §7; Linux, net/ipv4/tcp_output.c (`tcp_schedule_loss_probe`,
//!           `tcp_send_loss_probe`), net/ipv4/tcp_input.c (`tcp_process_tlp_ack`),
//!           net/ipv4/tcp_recovery.c (`tcp_rack_reo_timeout`). Departs: no probe before the first
//!           round-trip time is known, which Linux has from the handshake; the 2 ms that Linux adds
//!           only where timers have ticks; at a timeout all is lost, however late it was sent.

use super::{Phase, Segment, Sender, Why};
use crate::tcp::Block;

/// A probe that was sent, while it is unknown what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Probe {
    /// The next new segment after it.
    end: u32,
    /// It was the last segment once more, not a new one.
    again: bool,
}

impl Probe {
    /// The segment that was sent again.
    pub(super) fn again(self) -> Option<u32> {
        self.again.then_some(self.end - 1)
    }
}

/// The segment that an ACK says came in vain: its first block, if that is of what it acknowledges
/// or of its second block (RFC 2883 §4). Receivers tell them one by one.
pub(super) fn in_vain(ack: u32, blocks: &[Block]) -> Option<u32> {
    let &(from, to) = blocks.first()?;
    let within = |around: &Block| around.0 <= from && to <= around.1;
    (to <= ack || blocks.get(1).is_some_and(within)).then_some(from)
}

impl Sender {
    /// The timer of a tail has come: when is its probe due, or is it the retransmission timer's?
    #[cold]
    pub(super) fn look_at_tail(&mut self) {
        let timeout = self.armed_at + self.rtt.timeout();
        let is_tail = self.phase == Phase::Open && self.board.is_none() && self.probe.is_none();
        match &self.stamps {
            Some(stamps) if is_tail && self.rtt.smoothed() > 0 => {
                let silent = stamps.get(self.next - 1).max(self.armed_at);
                let patience = self.rtt.patience(self.next - self.una == 1);
                self.resend_at = (silent + patience).min(timeout);
            }
            _ => (self.why, self.resend_at) = (Why::Resend, timeout),
        }
    }

    /// What was sent last still waits at the sender's own host: nothing is silent yet.
    pub(crate) fn keep_probe(&mut self) {
        self.probing = false;
    }

    /// The probe that is due.
    #[cold]
    pub(super) fn send_probe(&mut self, now: u64) -> Segment {
        self.probing = false;
        let end = self.end.min(self.edge);
        let again = self.next >= end || self.next - self.una >= self.limit;
        let segment = if again {
            let seq = self.next - 1;
            self.again(now, seq);
            Segment { seq, reduced: false, again: true }
        } else {
            self.fresh(now)
        };
        self.probe = Some(Probe { end: self.next, again });
        self.sent.probes += 1;
        segment
    }

    /// An ACK that expects `ack` may tell what became of the probe (RFC 8985 §7.4.2).
    #[cold]
    pub(super) fn on_probe_answer(&mut self, ack: u32, advanced: bool, blocks: &[Block]) {
        let Some(probe) = self.probe else { return };
        if ack < probe.end {
            return;
        }
        let Some(seq) = probe.again() else {
            self.probe = None;
            return;
        };
        // Both copies have arrived; without a word of it the second one is this very ACK's reason.
        let is_double = in_vain(ack, blocks) == Some(seq);
        if is_double || (!advanced && blocks.is_empty() && ack == probe.end) {
            self.probe = None;
        } else if ack > probe.end {
            self.probe = None;
            self.fall();
        }
    }

    /// What had been overtaken has had its time.
    #[cold]
    pub(super) fn settle(&mut self, now: u64) {
        self.rearm(now);
        if self.phase == Phase::Open {
            self.conclude(now, 0, false);
        } else {
            // The window stays, and what is lost makes room in it.
            let (_, again_at) = self.judge(now);
            self.look_again(now, again_at);
        }
    }

    /// The timer waits no longer than until `at`, when more may be lost.
    pub(super) fn look_again(&mut self, now: u64, at: Option<u64>) {
        if let Some(at) = at
            && at < self.resend_at
        {
            (self.why, self.armed_at, self.resend_at) = (Why::Reorder, now, at);
        }
    }
}
