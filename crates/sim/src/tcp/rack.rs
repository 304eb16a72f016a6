//! Finds lost segments by time: recent acknowledgement (RACK).
//!
//! Problem   Three SACKed segments above a hole are no proof where packets overtake each other, and
//!           never come where the hole is near the end, or is of a segment sent again.
//! Approach  What was sent before something that has arrived, and has not arrived a reordering
//!           window after it could have, is lost. Segments sent once are in the order of their
//!           sending, so that the scoreboard's edge moves on; those sent again stand in a queue.
//!           Both are looked at from the oldest on, and no further than the first that is not lost.
//! Promises  Nothing to do while nothing is missing. Each segment is passed once each time it is
//!           sent.
//! Not here  Setting the timer: see `sender`. Probes: see `sender/probe`.
//! Source    RFC 8985 §6; Linux, net/ipv4/tcp_recovery.c (`tcp_rack_detect_loss`,
//!           `tcp_rack_reo_wnd`, `tcp_rack_update_reo_wnd`). Departs: the timer waits for the
//!           latest instant at which anything sent before the newest arrival could be lost, which
//!           may be a little later than that of the last hole. Linux forgets the shortest round
//!           trip after five minutes.

use super::Block;
use super::board::Board;
use super::stamps::{Stamps, instant};
use std::collections::VecDeque;

/// A reordering window that has grown stays so for this many recoveries (§6.2, step 4).
const KEPT: u8 = 16;

/// What is known beside what arrives.
pub(super) struct View<'a> {
    /// ns.
    pub(super) now: u64,
    pub(super) stamps: &'a Stamps,
    /// The shortest round-trip time, and the smoothed one, ns.
    pub(super) shortest: u64,
    pub(super) smoothed: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Rack {
    /// The order of what was sent last of all that has arrived.
    newest: u64,
    /// The round-trip time of what arrived last, ns.
    rtt: u64,
    /// Something has been overtaken.
    reordered: bool,
    /// Quarters of the shortest round-trip time that make the reordering window.
    quarters: u8,
    /// Further recoveries for which `quarters` stays.
    kept: u8,
    /// `quarters` does not grow before this segment is acknowledged.
    settled: u32,
    /// What was sent again, the oldest first; some of it has arrived since.
    resent: VecDeque<u32>,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            newest: 0,
            rtt: 0,
            reordered: false,
            quarters: 1,
            kept: 0,
            settled: 0,
            resent: VecDeque::new(),
        }
    }
}

impl Rack {
    /// A segment that was lost is sent again.
    pub(super) fn on_resend(&mut self, seq: u32) {
        self.resent.push_back(seq);
    }

    /// All is taken for lost.
    pub(super) fn forget(&mut self) {
        self.resent.clear();
    }

    /// Nothing is in flight, nor will be.
    pub(super) fn release(&mut self) {
        self.resent = VecDeque::new();
    }

    /// Whether it holds memory.
    #[cfg(test)]
    pub(super) fn keeps(&self) -> bool {
        self.resent.capacity() > 0
    }

    /// An ACK tells of segments `from` to `to`; the scoreboard does not know yet. `probe` was sent
    /// twice without having been lost.
    pub(super) fn hear(
        &mut self,
        view: &View<'_>,
        board: &Board,
        (from, to): Block,
        probe: Option<u32>,
    ) {
        let mut seq = board.missing(from, to);
        while seq < to {
            let again = board.is_resent(seq) || probe == Some(seq);
            self.on_arrival(view, seq, again, seq < board.high());
            seq = board.missing(seq + 1, to);
        }
    }

    fn on_arrival(&mut self, view: &View<'_>, seq: u32, again: bool, overtaken: bool) {
        let sent_at = view.stamps.get(seq);
        let took = view.now - sent_at;
        if again && took < view.shortest {
            // It must have been the copy before.
            return;
        }
        self.reordered |= overtaken && !again;
        self.rtt = took;
        self.newest = self.newest.max(view.stamps.order(seq));
    }

    /// A segment came in vain that no probe had sent: too little patience, if packets overtake each
    /// other. Counts once per window.
    pub(super) fn on_vain(&mut self, una: u32, next: u32) {
        if self.reordered && una >= self.settled {
            self.quarters = self.quarters.saturating_add(1);
            self.kept = KEPT;
            self.settled = next;
        }
    }

    /// A recovery is over.
    pub(super) fn on_recovered(&mut self) {
        self.kept = self.kept.saturating_sub(1);
        if self.kept == 0 {
            self.quarters = 1;
        }
    }

    /// Finds what is lost of `una` to `next`. Returns when to look again, if more may turn out to
    /// be lost by time alone. `hasty`: no extra time for a segment that was never overtaken before.
    pub(super) fn judge(
        &mut self,
        view: &View<'_>,
        board: &mut Board,
        (una, next): Block,
        hasty: bool,
    ) -> Option<u64> {
        let (newest, wait) = (self.newest, self.rtt + self.window(view, hasty));
        let sent_before = |seq: u32| view.stamps.order(seq) < newest;
        let is_lost = |seq: u32| sent_before(seq) && view.stamps.get(seq) + wait <= view.now;
        let mut edge = board.edge();
        // What has arrived is no reason to stop: it may have been sent again, later than what
        // follows it.
        while edge < next && (board.is_sacked(edge) || is_lost(edge)) {
            edge += 1;
        }
        board.lose_below(edge);
        while let Some(&seq) = self.resent.front() {
            if seq >= una && board.is_awaited(seq) {
                if !is_lost(seq) {
                    break;
                }
                board.lose_again(seq);
            }
            self.resent.pop_front();
        }
        let again = self.resent.front().is_some_and(|seq| sent_before(*seq));
        // One sent again that is awaited, and of which the scoreboard does not know that, hides
        // what is due behind it: that is found when it arrives, or by the timeout.
        let more = again || board.hole(next).is_some_and(sent_before);
        more.then_some(instant(newest) + wait).filter(|at| *at > view.now)
    }

    /// The reordering window, ns.
    fn window(&self, view: &View<'_>, hasty: bool) -> u64 {
        if hasty && !self.reordered {
            return 0;
        }
        (view.shortest / 4).saturating_mul(self.quarters.into()).min(view.smoothed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: u64 = 1000;

    /// Segments 0 to 7 are in flight, one every ten ns.
    struct Sent {
        stamps: Stamps,
        board: Board,
        rack: Rack,
    }

    impl Sent {
        fn new() -> Self {
            let mut stamps = Stamps::default();
            (0..8).for_each(|seq| stamps.put(0, seq, u64::from(seq) * 10));
            Self { stamps, board: Board::new(100, 0), rack: Rack::default() }
        }

        /// These segments have been SACKed.
        fn hear(&mut self, now: u64, (from, to): Block) {
            let view = View { now, stamps: &self.stamps, shortest: RTT, smoothed: RTT };
            self.rack.hear(&view, &self.board, (from, to), None);
            self.board.sack(from, to);
        }

        fn judge(&mut self, now: u64, hasty: bool) -> (u32, Option<u64>) {
            let view = View { now, stamps: &self.stamps, shortest: RTT, smoothed: RTT };
            let again_at = self.rack.judge(&view, &mut self.board, (0, 8), hasty);
            (self.board.lost(), again_at)
        }

        /// All that is lost is sent again.
        fn repair(&mut self, now: u64) {
            while let Some(seq) = self.board.resend(8) {
                self.stamps.put(0, seq, now);
                self.rack.on_resend(seq);
            }
        }
    }

    #[test]
    fn what_was_sent_before_an_arrival_is_lost_a_quarter_of_a_round_trip_later() {
        let mut sent = Sent::new();
        sent.hear(30 + RTT, (3, 4));
        assert_eq!(sent.judge(30 + RTT, false), (0, Some(30 + RTT + RTT / 4)));
        assert_eq!(sent.judge(10 + RTT + RTT / 4, false), (2, Some(30 + RTT + RTT / 4)));
        assert_eq!(sent.judge(30 + RTT + RTT / 4, false), (3, None), "4 to 7 were sent later");
    }

    #[test]
    fn without_reordering_three_sacked_segments_are_enough() {
        let mut sent = Sent::new();
        sent.hear(30 + RTT, (3, 4));
        assert_eq!(sent.judge(30 + RTT, true), (3, None));
        let mut sent = Sent::new();
        sent.hear(30 + RTT, (3, 4));
        sent.hear(31 + RTT, (2, 3));
        assert_eq!(sent.judge(31 + RTT, true).0, 0, "2 was overtaken by 3");
    }

    #[test]
    fn what_was_sent_again_is_lost_again_when_something_later_arrives() {
        let mut sent = Sent::new();
        sent.hear(30 + RTT, (3, 4));
        sent.judge(30 + RTT, true);
        sent.repair(1050);
        sent.hear(70 + RTT, (7, 8));
        assert_eq!(sent.judge(70 + RTT, true), (3, None), "4 to 6; 0 to 2 were sent later than 7");
        sent.repair(1100);
        sent.hear(1100 + RTT, (5, 6));
        assert_eq!(sent.judge(1100 + RTT, true), (4, None), "0 to 2, and 4");
    }

    #[test]
    fn one_that_was_sent_again_and_has_arrived_hides_nothing_behind_it() {
        let mut sent = Sent::new();
        // After a timeout, of which the scoreboard knows nothing any more.
        sent.stamps.put(0, 2, 500);
        sent.hear(500 + RTT, (2, 3));
        assert_eq!(sent.judge(500 + RTT, true), (7, None));
    }

    #[test]
    fn an_arrival_too_early_to_be_of_the_second_copy_tells_nothing() {
        let mut sent = Sent::new();
        sent.hear(30 + RTT, (3, 4));
        sent.judge(30 + RTT, true);
        sent.repair(2000);
        sent.hear(2000 + RTT / 2, (2, 3));
        assert_eq!(sent.judge(2000 + RTT / 2, true), (0, None));
    }

    #[test]
    fn the_window_grows_once_per_window_with_what_came_in_vain_and_is_kept_for_16_recoveries() {
        let mut sent = Sent::new();
        sent.rack.on_vain(0, 8);
        assert_eq!(sent.rack.quarters, 1, "nothing was overtaken yet");
        sent.rack.reordered = true;
        let quarters = [0, 3, 8, 30].map(|una| {
            sent.rack.on_vain(una, una + 8);
            sent.rack.quarters
        });
        assert_eq!(quarters, [2, 2, 3, 4]);
        let view = View { now: 0, stamps: &sent.stamps, shortest: RTT, smoothed: 900 };
        assert_eq!(sent.rack.window(&view, true), 900, "the smoothed round trip at most");
        (0..15).for_each(|_| sent.rack.on_recovered());
        assert_eq!(sent.rack.quarters, 4);
        sent.rack.on_recovered();
        assert_eq!(sent.rack.quarters, 1);
    }
}
