//! What goes into a [`HostMachine`](super::HostMachine), whatever its mechanism.

use super::orders::Setting;
use super::policy::Policy;
use crate::message::Message;
use serde::{Deserialize, Serialize};
use std::fmt;
use weir_units::{HostId, PairId, PathId, Rate, Time, VmId};

/// The only things that ever happen to a host's machine.
pub type Input<'a> = Given<&'a Observed, &'a Policy>;

/// [`Input`], over references to what is large (`&Observed`, `&Policy`), or over boxes where it is read from a file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Given<O, P> {
    /// The first packet of a pair passed this host.
    Seen(PairId, Direction),
    /// A pair that an earlier life of this agent left with these levels, still in force.
    Adopt(PairId, Setting),
    /// A pair that an earlier life of this agent received on, and its source's host. That host is greeted, for its
    /// sender holds an offer of that life, and is given until the next partitioning to tell
    /// ([`Input::PeerRestarted`] there).
    Found(PairId, HostId),
    /// A peer's agent has a new life, and is believed: it does not know what its senders here hold.
    PeerRestarted(HostId),
    /// What the data plane has counted and decided: of all pairs of a direction, or of none. Also shows pairs that
    /// were never `Seen`, for instance after a restart.
    Observed(O),
    /// An authenticated message from a peer's agent.
    Message(HostId, Message),
    /// The VMs of this host, their hoses, and the directory are these from now on; the rest of the policy is not
    /// looked at. An id that became another VM's is to be left out once first. Refused whole, and counted, if a
    /// tenant's version is older than what is in force, or if the mechanism cannot keep it.
    Policy(P),
    /// The deadline has passed.
    Tick,
}

impl Given<Box<Observed>, Box<Policy>> {
    /// The same over references.
    pub fn borrowed(&self) -> Input<'_> {
        match self {
            Self::Seen(pair, direction) => Given::Seen(*pair, *direction),
            Self::Adopt(pair, setting) => Given::Adopt(*pair, *setting),
            Self::Found(pair, host) => Given::Found(*pair, *host),
            Self::PeerRestarted(host) => Given::PeerRestarted(*host),
            Self::Observed(observed) => Given::Observed(observed),
            Self::Message(host, message) => Given::Message(*host, *message),
            Self::Policy(policy) => Given::Policy(policy),
            Self::Tick => Given::Tick,
        }
    }
}

/// Which end of a pair this host is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Direction {
    /// The source VM lives here: this host limits.
    Send,
    /// The destination VM lives here: this host offers and reports.
    Receive,
}

/// What a data plane has counted and decided. Counters are cumulative since it first saw the pair.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// Pairs whose source is here.
    pub send: Vec<(PairId, SendCount)>,
    /// Pairs whose destination is here.
    pub receive: Vec<(PairId, ReceiveCount)>,
    /// The same of single paths, of pairs that have several. Losses and marks of these are here, and not in
    /// `receive`, which has the rest of all their paths together.
    pub send_paths: Vec<(PairId, PathId, SendCount)>,
    /// Likewise.
    pub receive_paths: Vec<(PairId, PathId, ReceiveCount)>,
    /// VMs that the data plane meters by itself ([`super::Capabilities::meters`]).
    pub meters: Vec<(VmId, Part, Metered)>,
    /// What receivers told the data plane by itself, of pairs that were asked for
    /// ([`super::HostMachine::limits_wanted`]) or that spoke.
    pub limits: Vec<(PairId, Told)>,
    /// The least delayed timed packet from each host since the last reading, if there was one
    /// ([`super::Capabilities::timed`]).
    pub timed: Vec<(HostId, Timed)>,
    /// Live connections of VMs with a window budget, by class.
    pub connections: Vec<(VmId, Vec<u32>)>,
}

impl Observed {
    /// Empties it; the room stays.
    pub fn clear(&mut self) {
        self.send.clear();
        self.receive.clear();
        self.send_paths.clear();
        self.receive_paths.clear();
        self.meters.clear();
        self.limits.clear();
        self.timed.clear();
        self.connections.clear();
    }
}

/// What left a VM toward another, before shaping.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SendCount {
    /// Octets on layer 2 without FCS.
    pub octets: u64,
    /// Of these, TCP segments that only acknowledge.
    pub acks: u64,
    /// Octets that left with a number: the receiver sees when some are lost.
    pub numbered: u64,
    /// Octets that left without: IPv6 and fragments, in which only marks show congestion.
    pub unnumbered: u64,
    /// Segments that left with a number.
    pub segments: u64,
    /// Octets that wait on the host now, in the limiter or for the uplink. `None` where the data
    /// plane does not know.
    pub waiting: Option<u64>,
    /// Of these, what waits among the acknowledgements.
    pub waiting_acks: u64,
}

/// What arrived.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct ReceiveCount {
    /// Octets on layer 2 without FCS.
    pub octets: u64,
    /// Segments of at most one MTU.
    pub segments: u64,
    /// Of these, with a number; absent where the data plane does not count them.
    pub numbered: Option<u64>,
    /// Segments missing in the sequence.
    pub lost: u64,
    /// Segments marked CE.
    pub marked: u64,
}

/// The least delayed timed packet of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Timed {
    /// When it left the sending host's shaper, by that host's clock: microseconds, modulo 2¹⁶.
    pub sent: u16,
    /// When it came, by this host's clock.
    pub came: Time,
}

impl Timed {
    /// Whether it was delayed less than `other`, of the same sender. Delays modulo 2¹⁶ µs, that differ by less
    /// than half of that.
    pub const fn is_before(&self, other: &Self) -> bool {
        (self.delay().wrapping_sub(other.delay()) as i16) < 0
    }

    /// This clock less the sender's, µs, modulo 2¹⁶.
    pub const fn delay(&self) -> u16 {
        ((self.came.as_nanos() / 1000) as u16).wrapping_sub(self.sent)
    }
}

/// Whose traffic to a VM a meter counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Part {
    /// VMs of the same tenant.
    Own,
    /// All others: VMs of other tenants, and traffic from outside.
    Strangers,
}

impl Part {
    /// Both, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Own, Self::Strangers];
}

/// What a meter of the data plane has counted, cumulative, and what it tells.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Metered {
    /// Octets received from other hosts.
    pub octets: u64,
    /// Times that the rate was computed.
    pub steps: u64,
    /// The rate that senders are told.
    pub advertised: Rate,
}

/// What a receiver told the data plane of a pair that sends from here.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Told {
    /// What the pair may send.
    pub rate: Rate,
    /// How often the receiver has spoken so far; 0: never.
    pub times: u64,
}

/// The directions whose counters are to be read before a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Of pairs that send from here.
    pub send: bool,
    /// Of pairs that receive here.
    pub receive: bool,
}

/// Why the machine wants to be woken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Why {
    /// ElasticSwitch: receivers look for losses.
    Sample,
    /// ElasticSwitch: the rate allocation period is over.
    Rate,
    /// ElasticSwitch: the guarantee partitioning period is over.
    Partition,
    /// ElasticSwitch: new pairs appeared: their hoses are divided again, and the new parts are offered.
    NewPairs,
    /// EyeQ: a period of the receiver module is over: rates are computed and told.
    Receive,
    /// EyeQ: a period of the sender module is over: the uplink is shared anew.
    Send,
    /// Level: a measuring period is over.
    Level,
    /// Reservation: idle pairs are looked for.
    Idle,
    /// Any mechanism: the lease on what is borrowed is to be renewed ([`super::HostLoop`]).
    Heartbeat,
}

impl Wanted {
    /// The counters of all pairs.
    pub const ALL: Self = Self { send: true, receive: true };
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sample => "receivers look for losses",
            Self::Rate => "the rate allocation period ends",
            Self::Partition => "the guarantee partitioning period ends",
            Self::NewPairs => "new pairs share their hoses",
            Self::Receive => "EyeQ's receivers compute rates",
            Self::Send => "EyeQ's senders look for silent receivers",
            Self::Level => "Level's receivers look at their windows",
            Self::Idle => "idle pairs are looked for",
            Self::Heartbeat => "the lease is renewed",
        })
    }
}

/// What a host's machine counts about itself.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// Messages that were believed.
    pub messages: u64,
    /// Messages about a pair whose other end is not on the host they came from, or not here; or of another mechanism.
    pub misdirected: u64,
    /// Messages about a pair that is not active here (any more).
    pub strayed: u64,
    /// Sightings of pairs that found no room: they stay in their VM's default queue.
    pub refused_pairs: u64,
    /// Sightings of pairs whose VM the directory does not know.
    pub unknown_pairs: u64,
    /// Policies that promised too much, or were older than what is in force, and changed nothing.
    pub refused_policies: u64,
}
