//! vCC: congestion control for guests that cannot change theirs, by what their port rewrites.
//!
//! Problem   In a fabric that marks, a guest that ignores ECN loses packets where others only lower
//!           their rate: a seventh of their goodput is left to it. And a tenant's own bulk flows
//!           stand in the way of its urgent ones.
//! Approach  The host speaks ECN in the guest's place and keeps a window W for the flow, by a
//!           congestion control of its own. The guest obeys it, for every acknowledgement tells it
//!           min(advertised, W) as the receiver's window. A budget of window ([`Budget`]) is one
//!           more bound, divided over a VM's flows. Marks do not lower a window while its pair
//!           sends no more than its floor ([`Credit`]): beside traffic that cannot be marked they
//!           would lower it for ever.
//! Promises  A flow whose beginning was not seen is never edited. A window is only ever lowered,
//!           never below two segments (or what the receiver has), and the right edge that the guest
//!           was shown moves back only if the receiver moves it. One cut per window of data. 64
//!           octets per flow. No segment in any order panics. Sequence numbers, payload and options
//!           (but for reports) stay as they are. A guest that speaks ECN by itself is not edited,
//!           but with `auto` once it was found not to heed it.
//! Not here  Headers, checksums, the table of flows, clocks: the driver, `weir-sim` or a port in
//!           the lab.
//! Source    vCC §3 to §5, the authors' patch; AC/DC for `dctcp`. What they leave open:
//!           docs/algorithms/vcc.md.
//!
//! # How to drive it
//!
//! | when | call |
//! | --- | --- |
//! | a TCP segment passes a VM's port | find the flow, or [`Flow::default`]; [`Flow::handle`]; write what [`Edit::what`] names |
//! | the table is swept | drop what [`Flow::is_spent`] |
//! | a flow that a budget covers comes or goes | [`Budget::recount`]; [`Terms::share`] follows |
//!
//! Nothing is due by itself: W matters only when an acknowledgement is written, so time-outs are
//! noticed when the guest sends again. The same law in C is `bpf/vcc_law.h`. A change of one needs
//! the same change of the other.

mod budget;
mod control;
mod credit;
mod flow;
mod opening;
mod receiving;
mod segment;
mod sending;
#[cfg(test)]
mod tests;
mod watch;

pub use budget::{Budget, BudgetConfig, Class, Match, Refusal};
pub use credit::Credit;
pub use flow::{Flow, Phase};
pub use segment::{ACK, AE, CE, CWR, ECE, ECT_0, Edit, FIN, NOT_ECT, RST, SYN, Segment, Way};

use weir_units::Time;

/// The congestion control that a guest's flows are translated to.
#[repr(u8)]
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Debug,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Translation {
    /// By none: ECN is the guest's affair. A share of a budget counts all the same.
    #[default]
    None,
    /// Halves for marks, as Reno would (the paper).
    VirtualEcn,
    /// Falls by half of the marked part (AC/DC).
    Dctcp,
    /// Falls to 0.7 and grows as CUBIC does.
    CubicEcn,
    /// As `VirtualEcn`, and also for guests that agree on ECN by themselves and then do not heed
    /// it.
    Auto,
}

impl Translation {
    /// Those that translate, by their names in files and on command lines.
    const KNOWN: [(&'static str, Self); 4] = [
        ("virtual-ecn", Self::VirtualEcn),
        ("dctcp", Self::Dctcp),
        ("cubic-ecn", Self::CubicEcn),
        ("auto", Self::Auto),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let known = Self::KNOWN.iter().find(|(_, translation)| *translation == self);
        known.map_or("none", |(name, _)| name)
    }

    /// The names of those that translate.
    pub fn names() -> Vec<&'static str> {
        Self::KNOWN.iter().map(|(name, _)| *name).collect()
    }

    /// The one of this name that translates.
    pub fn named(name: &str) -> Option<Self> {
        Self::KNOWN.iter().find(|(known, _)| *known == name).map(|(_, translation)| *translation)
    }

    /// Whether nothing is translated.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// What a flow goes by. Plain numbers, in the order of a C struct without holes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Its part of a window budget, octets; `u32::MAX`: no bound. May change at any
    /// time.
    pub share: u32,
    /// What is sent again after so many ticks without progress was sent again by a timer.
    pub patience: u32,
    /// Counts when the flow begins.
    pub translation: Translation,
    /// 1: its pair sends no more than its floor (see [`Credit`]), and marks are not answered by
    /// smaller windows.
    pub is_within: u8,
    /// Nothing; keeps the size a multiple of four.
    pub spare: [u8; 2],
}

const _: () = assert!(size_of::<Terms>() == 12);

impl Terms {
    /// 200 ms: Linux's least retransmission time-out, and less than that of most others.
    pub const PATIENCE: u32 = 191;

    /// Without a budget.
    pub const fn new(translation: Translation) -> Self {
        let (share, patience) = (u32::MAX, Self::PATIENCE);
        Self { share, patience, translation, is_within: 0, spare: [0; 2] }
    }
}

/// A time as the law has it: in ticks of 2²⁰ ns (1.049 ms), modulo 2³².
pub const fn ticks(now: Time) -> u32 {
    (now.as_nanos() >> 20) as u32
}
