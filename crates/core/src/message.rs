//! The messages between hosts. Values only: octets, keys and replay protection are `weir-wire`'s.
//!
//! Every message but Level's is about one pair, and travels between the host of the pair's destination (which
//! offers and reports) and the host of its source (which limits). None is needed for safety: a
//! lost, late or repeated one costs efficiency, not floors (ElasticSwitch §9).

use crate::mechanism::level::Level;
use weir_units::{PairId, PathId, Rate, Span};

/// One message between the two hosts of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Message {
    /// Destination host → source host: the receiver's part of the pair's floor (ElasticSwitch §4,
    /// "remote-guarantee control packets"). Sent every partitioning period and when a pair appears.
    Offer(Offer),
    /// Source    host → destination host: "I now hold this offer, and my own hose has this much for
    ///           the pair". Until it arrives, the receiver counts an older, larger offer as spent.
    Echo(Echo),
    /// Destination host → source host: losses seen since the last such message (ElasticSwitch §6).
    Congestion(Congestion),
    /// The same for one of several paths of the pair. Only pairs that have several have such
    /// reports.
    PathCongestion(PathId, Congestion),
    /// EyeQ, destination host → source host: "at this rate you may send to this VM". Where data
    /// planes tell each other by themselves, no agent sends it.
    Feedback(Feedback),
    /// Level, between two hosts: it is about no single pair.
    Level(LevelWord),
}

/// What a host says to another about levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum LevelWord {
    /// Receiver → sender: "your pairs may send this many times their floors".
    May(Level),
    /// Sender → receiver: "this is the highest level that one of my pairs uses, or would use".
    Uses(Level),
}

/// The receiver's part of a pair's floor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Offer {
    /// Whose floor.
    pub pair: PairId,
    /// Grows (modulo 2³²) with every division of the receiver's hose: a sender takes no offer older
    /// than the one it holds, so that late and repeated ones do no harm.
    pub serial: u32,
    /// What the destination can spare of its hose for this pair.
    pub floor: Rate,
    /// The pair gets its full fair share at the receiver: the sender should take `floor` as the
    /// pair's demand and use the rest of its own hose elsewhere.
    pub unbounded: bool,
    /// An [`Echo`] is asked for, at once: the receiver waits for one of this value before it gives
    /// the difference to others, or has not heard from the sender for a while.
    pub confirm: bool,
    /// The least time that lately passed between an offer and its echo, in whole microseconds and
    /// never zero. `None`: not known.
    pub round_trip: Option<Span>,
}

/// The sender's confirmation of an [`Offer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Echo {
    /// Whose floor.
    pub pair: PairId,
    /// The serial of the offer the sender holds now: equal values are not equal offers.
    pub serial: u32,
    /// The offer the sender holds now.
    pub floor: Rate,
    /// The most that the sender's own hose can give the pair, however much the pair wants. What the
    /// pair sends beyond it is borrowed: the receiver keeps no part of its hose for that. `None`:
    /// not said (a host of the first wire version); the receiver goes by what arrives.
    pub most: Option<Rate>,
    /// What waits of the pair at its sender, where the receiver sees only what arrives. Hosts of the
    /// first two wire versions do not say.
    pub backlog: Backlog,
}

/// Whether packets of a pair waited at their sender in the last partitioning period.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub enum Backlog {
    /// It is not known.
    #[default]
    Unknown,
    /// They did not: the pair had what it wants.
    Free,
    /// Some of the time: the pair could have used what it had, and did.
    Sometimes,
    /// All the time: the pair wants more than it has.
    Always,
}

/// Congestion that the destination host saw on a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Congestion {
    /// On which pair.
    pub pair: PairId,
    /// MTU-sized segments lost since the last report.
    pub lost: u32,
    /// Segments that arrived marked CE since the last report.
    pub marked: u32,
    /// Segments that arrived since the last report, so that a law can form a fraction.
    pub received: u32,
}

/// What EyeQ's paper calls a host-ACK, or HACK (EyeQ §3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Feedback {
    /// The pair that may send at the rate.
    pub pair: PairId,
    /// R, a whole number of [`crate::eyeq::EyeQ::feedback_unit`].
    pub rate: Rate,
}

impl Message {
    /// The pair that this message is about; `None`: two hosts.
    pub const fn pair(&self) -> Option<PairId> {
        match self {
            Self::Offer(m) => Some(m.pair),
            Self::Echo(m) => Some(m.pair),
            Self::Feedback(m) => Some(m.pair),
            Self::Congestion(m) | Self::PathCongestion(_, m) => Some(m.pair),
            Self::Level(_) => None,
        }
    }
}
