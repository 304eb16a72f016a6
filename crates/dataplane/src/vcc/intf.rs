//! `bpf/vcc.h` and the state of `bpf/vcc_law.h` in Rust: what vCC's programs and whoever loads them
//! share. The meaning of each field is said there; sizes are asserted on both sides.

use crate::intf::{Plain, shared};

/// Without a bound on what a guest sends beyond its window.
pub const ANY_SLACK: u32 = u32::MAX;

shared!(
    /// A port whose guest's connections are translated. The first fields are
    /// `weir_core::vcc::Terms`.
    Port, 24, {
        /// Octets of window that each connection may have at most; all ones: no budget.
        share: u32,
        /// What is sent again after so many ticks of 2²⁰ ns without progress was sent again by a
        /// timer.
        patience: u32,
        /// The congestion control, as `weir_core::vcc::Translation` numbers them; 0: none.
        translation: u8,
        /// Of the kernel's own copy alone: whether the pair sends no more than its floor.
        is_within: u8,
        /// Unused.
        spare: [u8; 2],
        /// Octets beyond its window that a guest may send before what goes further is dropped,
        /// super-packets whole; or [`ANY_SLACK`].
        slack: u32,
        /// Index of its counters and of its table.
        slot: u32,
        /// Whose port it is; for the loader alone.
        vm: u32,
    }
);
/// 200 ms in ticks of 2²⁰ ns: Linux's least retransmission time-out.
const PATIENCE: u32 = 191;

/// After both ends are through, a flow is kept for so many 1024 ticks, as `weir_core::vcc` has it;
const LINGER: u16 = 4;
/// after its last SYN, if it never opened;
const OPENING_MOST: u16 = 128;
/// and after its last segment: two hours and four minutes, as address translators owe it to
/// connections (RFC 5382).
const IDLE_MOST: u16 = 6929;
/// A guest that had nothing acknowledged for so many ticks, half a second, does not send.
const SENDS_WITHIN: u32 = 477;
/// A segment may be later than the count by so much, ticks.
const AHEAD: u32 = 100;
/// A smaller MSS counts as this (RFC 9293 §3.7.1's default).
const MSS_LEAST: u16 = 536;
/// `phase` of what opens, and before that; and of what is left alone.
const OPENING: u8 = 1;
const ALONE: u8 = 2;
/// `flags` of a connection both ends of which are through.
const OVER: u16 = 3 << 12;

impl Port {
    /// Whose connections are translated by `law`, without a budget and without policing; its
    /// counters and its table are those of `slot`.
    pub const fn new(law: super::Law, slot: u32) -> Self {
        Self { translation: law as u8, ..Self::idle(slot) }
    }

    /// Whose guest may send so many octets beyond its window, and no more.
    #[must_use]
    pub const fn policed(self, slack: u32) -> Self {
        Self { slack, ..self }
    }

    /// Which asks for nothing: connections that have a place keep what they began with, no others
    /// take one.
    pub const fn idle(slot: u32) -> Self {
        let (share, slack, vm) = (u32::MAX, ANY_SLACK, 0);
        let (patience, translation, is_within, spare) = (PATIENCE, 0, 0, [0; 2]);
        Self { share, patience, translation, is_within, spare, slack, slot, vm }
    }
}

shared!(
    /// What is known of one connection: `weir_core::vcc::Flow`.
    State, 64, {
        /// The first octet that the guest sent and nobody acknowledged.
        una: u32,
        /// The octet after the last that the guest sent.
        nxt: u32,
        /// The right edge of the window that the guest was shown.
        edge: u32,
        /// No second cut before something beyond is acknowledged.
        recover: u32,
        /// W, octets; counts in phases 4 to 6.
        window: u32,
        /// What W falls to, or slow start ends at, octets.
        target: u32,
        /// Acknowledged since W last grew, octets.
        acked: u32,
        /// When something was last acknowledged; ticks.
        progress: u32,
        /// The congestion control's own.
        law: [u32; 5],
        /// DCTCP's α, in 1/32768.
        alpha: u16,
        /// The largest segment that both ends agreed on.
        mss: u16,
        /// When the last segment passed, in 1024 ticks.
        seen: u16,
        /// See `vcc_law.h`.
        flags: u16,
        /// See `vcc_law.h`.
        phase: u8,
        /// Duplicate acknowledgements.
        dups: u8,
        /// By how many bits the windows that come in are shifted.
        scale: u8,
        /// As the terms were when it began.
        translation: u8,
    }
);
impl State {
    /// Whether it is translated, and somebody may still need that: neither closed, nor never
    /// opened, nor silent for hours by now (ticks of 2²⁰ ns).
    pub fn is_live(&self, now: u32) -> bool {
        let most = match self.phase {
            _ if self.flags & OVER == OVER => LINGER,
            0..=OPENING => OPENING_MOST,
            _ => IDLE_MOST,
        };
        self.translation != 0 && self.phase != ALONE && self.silent(now) < most
    }

    /// For how many 1024 ticks nothing was heard of it, modulo 2¹⁶.
    pub(super) const fn silent(&self, now: u32) -> u16 {
        ((now >> 10) as u16).wrapping_sub(self.seen)
    }

    /// Whether both ends opened it.
    pub(super) const fn is_open(&self) -> bool {
        self.phase > ALONE
    }

    /// Whether the guest sends: something is under way, or was acknowledged in the last half second
    /// (ticks of 2²⁰ ns). A segment may pass while the table is read: then it is later than `now`.
    pub(super) const fn sends(&self, now: u32) -> bool {
        let passed = now.wrapping_add(AHEAD).wrapping_sub(self.progress);
        self.nxt != self.una || passed < SENDS_WITHIN + AHEAD
    }

    /// Whether the guest has sent what a window of so many octets allows, or nearly: a quarter may
    /// be what was acknowledged a moment ago, or is held back for a super-packet. A smaller window
    /// than that is the peer's own.
    pub(super) fn has_used(&self, window: u32) -> bool {
        let shown = self.shown();
        shown >= window && self.room() < self.segment().max(shown / 4)
    }

    /// The largest segment of the guest's, octets, as the law has it.
    fn segment(&self) -> u32 {
        u32::from(self.mss.max(MSS_LEAST))
    }

    /// The window that the guest has been shown, octets: from what nobody acknowledged to its right
    /// edge.
    const fn shown(&self) -> u32 {
        self.edge.wrapping_sub(self.una)
    }

    /// What it may still send, octets; none if it is beyond its window.
    const fn room(&self) -> u32 {
        let ahead = self.edge.wrapping_sub(self.nxt);
        if ahead >> 31 == 0 { ahead } else { 0 }
    }

    /// Whether both ends are through with it, or somebody sent a RST.
    pub(super) const fn is_over(&self) -> bool {
        self.flags & OVER == OVER
    }
}

shared!(
    /// What a port did. Segments are counted with super-packets as one.
    Counters, 152, {
        /// Segments of connections that are known.
        segments: u64,
        /// Of these, changed in anything.
        edited: u64,
        /// Of these, in their window.
        lowered: u64,
        /// Of these, came with a mark that the guest was not shown.
        hidden: u64,
        /// TCP of connections whose beginning was not seen, or that were pushed out.
        unknown: u64,
        /// TCP that no host could read, passed as it was; or a guest's own report, dropped.
        malformed: u64,
        /// Dropped: beyond window and slack.
        policed: u64,
        /// Was to be changed, and could not be.
        unedited: u64,
        /// Connections that took a place.
        begun: u64,
        /// Connections that found none.
        full: u64,
        /// Connections that agreed on ECN in the guest's place.
        agreed: u64,
        /// Connections that opened without: the other end knows none, or none was asked for.
        deaf: u64,
        /// Connections of guests that speak ECN themselves.
        speaking: u64,
        /// Connections left alone: their SYNs are not both known, or disagree.
        alone: u64,
        /// Connections of guests that speak ECN, found not to heed it, and translated from then on.
        found: u64,
        /// Reports of `dctcp` that came from the peer's port and were taken out.
        reports: u64,
        /// Of those begun, by a peer: they have a place apart until they are established.
        asked: u64,
        /// Fragments of TCP from a guest that is policed, dropped.
        fragments: u64,
        /// SYNs of a guest that is policed, that would have changed an agreed window.
        repeated: u64,
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_has_something_under_way_or_had_it_acknowledged_lately() {
        let quiet = State { una: 7, nxt: 7, progress: 10_000, ..State::default() };
        assert!(quiet.sends(10_000) && quiet.sends(10_000 + SENDS_WITHIN - 1));
        assert!(!quiet.sends(10_000 + SENDS_WITHIN));
        assert!(quiet.sends(10_000 - 20), "acknowledged while the table is read");
        let times = State { progress: 5, ..quiet };
        assert!(times.sends(u32::MAX - 5) && times.sends(100), "where ticks begin anew");
        assert!(State { nxt: 8, ..quiet }.sends(90_000), "under way");
    }

    #[test]
    fn a_window_is_used_when_less_than_a_quarter_is_left_and_it_is_ours() {
        let sent =
            |nxt| State { una: u32::MAX - 999, nxt, edge: 19_000, mss: 1_448, ..State::default() };
        assert!(sent(19_000).has_used(20_000) && sent(14_001).has_used(20_000));
        assert!(!sent(14_000).has_used(20_000), "a quarter is left");
        assert!(sent(20_000).has_used(20_000), "beyond it");
        assert!(!sent(19_000).has_used(20_001), "the peer has shown less than we allow");
        let small = State { una: 0, nxt: 1_500, edge: 2_896, mss: 1_448, ..State::default() };
        assert!(small.has_used(2_000), "no whole segment has room");
        assert!(State { mss: 0, nxt: 2_500, ..small }.has_used(2_000));
    }
}
