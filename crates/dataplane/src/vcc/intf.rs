//! `bpf/vcc.h` and the state of `bpf/vcc_law.h` in Rust: what vCC's programs and their loader
//! share. The headers explain each field. Sizes are asserted on both sides.

use crate::intf::{Plain, shared};

/// Without a bound on what a guest sends beyond its window.
pub const ANY_SLACK: u32 = u32::MAX;

shared!(
    /// A port whose guest's connections are translated. The first fields are
    /// `weir_core::vcc::Terms`.
    Port, 24, {
        /// Octets of window that each connection may have at most; all ones: no budget.
        share: u32,
        /// Ticks of 2²⁰ ns without progress after which a retransmission counts as one by a timer.
        patience: u32,
        /// The congestion control, as `weir_core::vcc::Translation` numbers them; 0: none.
        translation: u8,
        /// Only in the kernel's own copy: whether the pair sends no more than its floor.
        is_within: u8,
        /// Unused.
        spare: [u8; 2],
        /// Octets beyond its window that a guest may send before packets are dropped, super-packets
        /// whole; or [`ANY_SLACK`].
        slack: u32,
        /// Index of its counters and of its table.
        slot: u32,
        /// The VM; for the loader only.
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
/// `phase` of a connection that opens, and before that; and of one that is not translated.
const OPENING: u8 = 1;
const ALONE: u8 = 2;
/// `flags` of a connection that both ends have closed.
const OVER: u16 = 3 << 12;

impl Port {
    /// A port whose connections `law` translates, without a budget and without policing. `slot` has
    /// its counters and its table.
    pub const fn new(law: super::Law, slot: u32) -> Self {
        Self { translation: law as u8, ..Self::idle(slot) }
    }

    /// The same with policing: the guest may send this many octets beyond its window.
    #[must_use]
    pub const fn policed(self, slack: u32) -> Self {
        Self { slack, ..self }
    }

    /// The same without a translation: connections with a place keep what they began with, no
    /// others take one.
    pub const fn idle(slot: u32) -> Self {
        let (share, slack, vm) = (u32::MAX, ANY_SLACK, 0);
        let (patience, translation, is_within, spare) = (PATIENCE, 0, 0, [0; 2]);
        Self { share, patience, translation, is_within, spare, slack, slot, vm }
    }
}

shared!(
    /// State of one connection: `weir_core::vcc::Flow`.
    State, 64, {
        /// The first octet that the guest sent and that is not acknowledged.
        una: u32,
        /// The octet after the last that the guest sent.
        nxt: u32,
        /// The right edge of the window that the guest was shown.
        edge: u32,
        /// No second cut before something beyond is acknowledged.
        recover: u32,
        /// W, octets; counts in phases 4 to 6.
        window: u32,
        /// W after a cut, or at the end of slow start, octets.
        target: u32,
        /// Acknowledged since W last grew, octets.
        acked: u32,
        /// Time of the last progress; ticks.
        progress: u32,
        /// The congestion control's own.
        law: [u32; 5],
        /// DCTCP's α, in 1/32768.
        alpha: u16,
        /// The largest segment that both ends agreed on.
        mss: u16,
        /// Time of the last segment, in 1024 ticks.
        seen: u16,
        /// See `vcc_law.h`.
        flags: u16,
        /// See `vcc_law.h`.
        phase: u8,
        /// Duplicate acknowledgements.
        dups: u8,
        /// Shift of the windows that come in.
        scale: u8,
        /// Translation of the terms at its beginning.
        translation: u8,
    }
);
impl State {
    /// Whether it is translated and may still need that: neither closed, nor never opened, nor
    /// silent for hours (ticks of 2²⁰ ns).
    pub fn is_live(&self, now: u32) -> bool {
        let most = match self.phase {
            _ if self.flags & OVER == OVER => LINGER,
            0..=OPENING => OPENING_MOST,
            _ => IDLE_MOST,
        };
        self.translation != 0 && self.phase != ALONE && self.silent(now) < most
    }

    /// Time for which it was silent, in 1024 ticks, modulo 2¹⁶.
    pub(super) const fn silent(&self, now: u32) -> u16 {
        ((now >> 10) as u16).wrapping_sub(self.seen)
    }

    /// Whether both ends opened it.
    pub(super) const fn is_open(&self) -> bool {
        self.phase > ALONE
    }

    /// Whether both ends have closed it, or a RST came.
    pub(super) const fn is_over(&self) -> bool {
        self.flags & OVER == OVER
    }
}

shared!(
    /// Counters of a port. A super-packet counts as one segment.
    Counters, 152, {
        /// Segments of connections that are known.
        segments: u64,
        /// Of these, changed in anything.
        edited: u64,
        /// Of these, segments whose window was changed.
        lowered: u64,
        /// Of these, segments that came with a mark that the guest was not shown.
        hidden: u64,
        /// TCP of connections whose beginning was not seen, or that were pushed out.
        unknown: u64,
        /// TCP that no host can parse, passed unchanged; or a guest's own report, dropped.
        malformed: u64,
        /// Dropped: beyond window and slack.
        policed: u64,
        /// Segments that could not be changed as they should.
        unedited: u64,
        /// Connections that took a place.
        begun: u64,
        /// Connections that found none.
        full: u64,
        /// Connections that agreed on ECN in the guest's place.
        agreed: u64,
        /// Connections that opened without ECN: the other end has none, or none was asked for.
        deaf: u64,
        /// Connections of guests that speak ECN themselves.
        speaking: u64,
        /// Connections that are not translated: the port did not see both SYNs, or they disagree.
        alone: u64,
        /// Connections of guests that speak ECN, did not answer marks, and are translated since.
        found: u64,
        /// Reports of `dctcp` that came from the peer's port and were removed.
        reports: u64,
        /// Of the connections begun, those by a peer, which have a place apart until they are
        /// established.
        asked: u64,
        /// Fragments of TCP from a guest that is policed, dropped.
        fragments: u64,
        /// SYNs of a guest that is policed, that would have changed an agreed window.
        repeated: u64,
    }
);
