//! `bpf/vcc.h` and the state of `bpf/vcc_law.h` in Rust: what vCC's programs and whoever loads them share. The
//! meaning of each field is said there; sizes are asserted on both sides.

use crate::intf::{Plain, shared};

/// Without a bound on what a guest sends beyond its window.
pub const ANY_SLACK: u32 = u32::MAX;

shared!(
    /// A port whose guest's connections are translated. The first five fields are `weir_core::vcc::Terms`.
    Port, 24, {
        /// Octets of window that each connection may have at most; all ones: no budget.
        share: u32,
        /// What is sent again after so many ticks of 2²⁰ ns without progress was sent again by a timer.
        patience: u32,
        /// The congestion control, as `weir_core::vcc::Translation` numbers them; 0: none.
        translation: u8,
        /// Unused.
        spare: [u8; 3],
        /// Octets beyond its window that a guest may send before what goes further is dropped, super-packets
        /// whole; or [`ANY_SLACK`].
        slack: u32,
        /// Index of its counters.
        slot: u32,
        /// Unused.
        more: u32,
    }
);
/// 200 ms in ticks of 2²⁰ ns: Linux's least retransmission time-out.
const PATIENCE: u32 = 191;

impl Port {
    /// Whose connections are translated by `law`, without a budget and without policing; its counters are
    /// those of `slot`.
    pub const fn new(law: super::Law, slot: u32) -> Self {
        let (share, spare, slack, more) = (u32::MAX, [0; 3], ANY_SLACK, 0);
        Self { share, patience: PATIENCE, translation: law as u8, spare, slack, slot, more }
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
shared!(
    /// What a port did.
    Counters, 64, {
        /// Segments of connections that are known, super-packets as one.
        segments: u64,
        /// Of these, changed in anything.
        edited: u64,
        /// Of these, in their window.
        lowered: u64,
        /// TCP of connections whose beginning was not seen, or that were pushed out.
        unknown: u64,
        /// TCP that no host could read; passed as it was.
        malformed: u64,
        /// Connections that found no place.
        full: u64,
        /// Dropped: beyond window and slack.
        policed: u64,
        /// Was to be changed, and could not be.
        unedited: u64,
    }
);
