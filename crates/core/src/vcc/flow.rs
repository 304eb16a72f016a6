//! The state of one TCP connection at one VM's port, in 64 octets.
//!
//! Both directions share it: the guest as sender (`sending`) and as receiver (`receiving`). Which
//! part sees a segment is decided here; so are all changes of phase, and when a flow may be
//! forgotten.

use super::segment::{Edit, FIN, RST, SYN, Segment, Way};
use super::{Terms, Translation, opening, receiving, sending, watch};

/// Where a flow is.
#[repr(u8)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// Nothing was seen.
    #[default]
    New,
    /// SYNs were seen, and not yet what ends the handshake.
    Opening,
    /// Seen from its middle, or unclear: never edited.
    Alone,
    /// Without a W: nothing was marked yet. The paper's mode 0.
    Open,
    /// What is shown falls from W to `target`. The paper's mode 2.
    Reduce,
    /// The window grows as its congestion control has it. The paper's mode 1.
    Avoid,
    /// The window grows to `target` after a time-out.
    SlowStart,
}

/// State of one flow. Plain numbers, in the order of a C struct without holes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// The first octet that the guest sent and that is not acknowledged.
    pub(super) una: u32,
    /// The octet after the last that the guest sent.
    pub(super) nxt: u32,
    /// The right edge of the window that the guest was shown. While opening: from the first octet
    /// on.
    pub(super) edge: u32,
    /// No second cut before something beyond is acknowledged. While opening: the peer's first
    /// number.
    pub(super) recover: u32,
    /// W, octets; while it falls, what it falls from. While open: the most that was ever in flight.
    pub(super) window: u32,
    /// What W falls to, or what slow start ends at, octets.
    pub(super) target: u32,
    /// Acknowledged since W last grew, or since it falls, octets.
    pub(super) acked: u32,
    /// When something was last acknowledged, or sent while nothing was outstanding; ticks.
    pub(super) progress: u32,
    /// The congestion control's own.
    pub(super) law: [u32; 5],
    /// DCTCP's α, in 1/32768. While opening: whether the peer's port reads reports.
    pub(super) alpha: u16,
    /// What a full segment holds: the smaller MSS of both SYNs, less timestamps.
    pub(super) mss: u16,
    /// When the last segment passed, in 1024 ticks.
    pub(super) seen: u16,
    /// A sum of the constants below.
    pub(super) flags: u16,
    /// Where it is.
    pub(super) phase: Phase,
    /// Duplicate acknowledgements, at most three. While opening: SYNs that asked for ECN.
    pub(super) dups: u8,
    /// By how many bits the windows that come in are shifted.
    pub(super) scale: u8,
    /// As the terms were when it began.
    pub(super) translation: Translation,
}

const _: () = assert!(size_of::<Flow>() == Flow::OCTETS);

/// The largest window that TCP can express is smaller.
pub(super) const WINDOW_MOST: u32 = 1 << 30;
/// A smaller MSS counts as this (RFC 9293 §3.7.1's default).
pub(super) const MSS_LEAST: u16 = 536;
/// How long a flow that was closed is remembered, in 1024 ticks.
const LINGER: u16 = 4;
/// How long one that was never established is, in 1024 ticks: longer than guests repeat SYNs.
const OPENING_MOST: u16 = 128;

/// Whether `a` is later in the sequence than `b`.
pub(super) const fn past(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

impl Flow {
    /// Its size.
    pub const OCTETS: usize = 64;

    /// The guest sent a SYN.
    pub(super) const SYN_OUT: u16 = 1 << 0;
    /// The peer sent one.
    pub(super) const SYN_IN: u16 = 1 << 1;
    /// The guest's had a window scale.
    pub(super) const SCALE_OUT: u16 = 1 << 2;
    /// The peer's had one.
    pub(super) const SCALE_IN: u16 = 1 << 3;
    /// The guest's SYN left as one that asks for ECN, and none without.
    pub(super) const ASKED: u16 = 1 << 4;
    /// The peer's SYN came as one that asks.
    pub(super) const PEER_ASKED: u16 = 1 << 5;
    /// The guest speaks ECN, or something like it: its own affair.
    pub(super) const SPEAKS: u16 = 1 << 6;
    /// ECN was agreed on in the guest's place.
    pub(super) const ECN: u16 = 1 << 7;
    /// A mark came in: acknowledgements carry ECE.
    pub(super) const ECHO: u16 = 1 << 8;
    /// W was cut: new data shall carry CWR.
    pub(super) const CWR_DUE: u16 = 1 << 9;
    /// The peer's host reports what came.
    pub(super) const REPORTED: u16 = 1 << 10;
    /// The same bit with `auto`, which hears no reports: the guest agreed on ECN by itself, and is
    /// watched.
    pub(super) const WATCHED: u16 = Self::REPORTED;
    /// W was cut, and `recover` is not passed yet.
    pub(super) const CUT: u16 = 1 << 11;
    /// The guest ended its direction, or either end both.
    pub(super) const FIN_OUT: u16 = 1 << 12;
    /// The peer ended its direction, or either end both.
    pub(super) const FIN_IN: u16 = 1 << 13;
    /// The guest's SYN had timestamps.
    pub(super) const STAMPS_OUT: u16 = 1 << 14;
    /// The peer's had.
    pub(super) const STAMPS_IN: u16 = 1 << 15;
    /// The same bit once established: the peer's port reads reports, and writes them.
    pub(super) const READS: u16 = Self::STAMPS_IN;

    /// The only way in: what `segment` shall become. Pure.
    pub fn handle(&mut self, segment: &Segment, terms: &Terms) -> Edit {
        let mut edit = Edit::none(segment);
        if segment.has(RST) {
            self.set(Self::FIN_OUT | Self::FIN_IN);
        } else if segment.has(SYN) {
            match segment.way {
                Way::Out => opening::asked(self, segment, terms, &mut edit),
                Way::In => opening::answered(self, segment, terms, &mut edit),
            }
        } else {
            self.carry_on(segment, terms, &mut edit);
        }
        // The last, since what begins anew forgets it.
        self.seen = (segment.at >> 10) as u16;
        edit.named(segment)
    }

    /// Whatever is neither SYN nor RST.
    fn carry_on(&mut self, segment: &Segment, terms: &Terms, edit: &mut Edit) {
        match self.phase {
            Phase::New => self.enter(Phase::Alone),
            Phase::Opening => opening::finished(self, segment),
            _ => {}
        }
        if self.is_established() {
            match segment.way {
                Way::Out => {
                    watch::sent(self, segment);
                    let is_fresh = sending::sent(self, segment, terms);
                    receiving::answer(self, segment, is_fresh, edit);
                }
                Way::In => {
                    watch::heard(self, segment);
                    receiving::came(self, segment, edit);
                    sending::acknowledged(self, segment, terms, edit);
                }
            }
        }
        if segment.has(FIN) {
            self.set(match segment.way {
                Way::Out => Self::FIN_OUT,
                Way::In => Self::FIN_IN,
            });
        }
    }

    /// Whether this flow is no longer needed: closed, never opened, or idle for so many 1024 ticks
    /// (1.07 s each, half of 65536 at most).
    pub fn is_spent(&self, at: u32, idle: u16) -> bool {
        let silent = ((at >> 10) as u16).wrapping_sub(self.seen);
        let most = match self.phase {
            _ if self.is_over() => LINGER,
            Phase::New | Phase::Opening => OPENING_MOST,
            _ => idle,
        };
        silent >= most
    }

    /// Where it is.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// W in octets, while the law has one; while it falls, what it falls from.
    pub fn window(&self) -> Option<u32> {
        self.is_throttled().then_some(self.window)
    }

    /// What W falls to, or slow start ends at, while the law has one.
    pub fn target(&self) -> Option<u32> {
        self.is_throttled().then_some(self.target)
    }

    /// Until something beyond this number is acknowledged, there is no further cut.
    pub fn recover(&self) -> Option<u32> {
        self.is(Self::CUT).then_some(self.recover)
    }

    /// The guest's sequence numbers: what is not acknowledged, and the next.
    pub const fn outstanding(&self) -> (u32, u32) {
        (self.una, self.nxt)
    }

    /// The right edge that the guest was shown, once the flow is established.
    pub fn edge(&self) -> Option<u32> {
        self.is_established().then_some(self.edge)
    }

    /// By how many bits incoming windows are shifted, once the flow is established.
    pub fn scale(&self) -> Option<u8> {
        self.is_established().then_some(self.scale)
    }

    /// Whether ECN was agreed on in the guest's place.
    pub const fn has_virtual_ecn(&self) -> bool {
        self.is(Self::ECN)
    }

    /// Whether the guest agreed on ECN by itself, and is watched.
    pub const fn is_watched(&self) -> bool {
        matches!(self.translation, Translation::Auto) && self.is(Self::WATCHED)
    }

    /// No window is below: two segments (vCC).
    pub fn floor(&self) -> u32 {
        2 * self.segment()
    }

    /// As the kernel holds it.
    pub fn to_octets(&self) -> [u8; Self::OCTETS] {
        let words =
            [self.una, self.nxt, self.edge, self.recover, self.window, self.target, self.acked];
        let words = words.into_iter().chain([self.progress]).chain(self.law);
        let halves = [self.alpha, self.mss, self.seen, self.flags];
        let last = [self.phase as u8, self.dups, self.scale, self.translation as u8];
        let octets = words.flat_map(u32::to_ne_bytes);
        let octets = octets.chain(halves.into_iter().flat_map(u16::to_ne_bytes)).chain(last);
        let mut all = [0; Self::OCTETS];
        all.iter_mut().zip(octets).for_each(|(to, from)| *to = from);
        all
    }

    pub(super) const fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(super) const fn set(&mut self, flags: u16) {
        self.flags |= flags;
    }

    pub(super) const fn unset(&mut self, flags: u16) {
        self.flags &= !flags;
    }

    /// All changes of phase pass here.
    pub(super) const fn enter(&mut self, to: Phase) {
        self.phase = to;
    }

    /// As if nothing had been seen.
    pub(super) fn begin(&mut self, terms: &Terms) {
        *self = Self { translation: terms.translation, ..Self::default() };
        self.enter(Phase::Opening);
    }

    /// Both ends are through, or one of them said so for both.
    pub(super) const fn is_over(&self) -> bool {
        self.is(Self::FIN_OUT) && self.is(Self::FIN_IN)
    }

    /// Whether the peer's port said in its SYN that it reads reports, for a law that has some.
    pub(super) const fn is_reading(&self) -> bool {
        if self.is_established() {
            return self.is(Self::READS);
        }
        matches!(self.translation, Translation::Dctcp) && self.alpha != 0
    }

    pub(super) const fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Open) || self.is_throttled()
    }

    /// Whether W counts.
    pub(super) const fn is_throttled(&self) -> bool {
        matches!(self.phase, Phase::Reduce | Phase::Avoid | Phase::SlowStart)
    }

    /// Whether this is new, and nothing that no window could allow.
    pub(super) const fn reaches(&self, end: u32) -> bool {
        past(end, self.nxt) && end.wrapping_sub(self.una) <= WINDOW_MOST
    }

    /// A full segment, octets.
    pub(super) fn segment(&self) -> u32 {
        self.mss.max(MSS_LEAST).into()
    }

    /// What of these octets is in whole segments: guests send no others, and count in them.
    pub(super) fn whole(&self, octets: u32) -> u32 {
        octets - octets % self.segment()
    }
}
