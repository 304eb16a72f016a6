//! What can be seen of a run at one moment by somebody who sees all of it.
//!
//! Problem   A promise that spans several hosts, as that no hose is promised twice, can be checked by
//!           none of them.
//! Approach  Plain data, taken between two events: what is in force in every shaper beside what every
//!           agent believes, and where all packets are.
//! Promises  Looking changes nothing: a run that was looked at has the digest of one that was not.
//! Not here  What ought to be seen: see `weir-swarm`.

use crate::outcome::{LinkOutcome, Packets};
use std::collections::BTreeMap;
use weir_core::host::{Counters, Ends, Setting};
use weir_units::{HostId, PairId, Time};

/// All of a run at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// When.
    pub at: Time,
    /// Where all packets are.
    pub packets: Packets,
    /// What links did so far: two per link of the scenario (a>b, b>a), then those within hosts.
    pub links: Vec<LinkOutcome>,
    /// Control messages that were lost on their way so far, by ports and cables, from one host to
    /// another.
    pub letters_lost: BTreeMap<(HostId, HostId), u64>,
    /// Senders of the TCP connections that last, in the order of their traffic entries.
    pub connections: Vec<ConnectionLook>,
    /// By number; none without agents.
    pub hosts: Vec<HostLook>,
    /// All pairs that may come to life, in the order of their ids; none without agents.
    pub pairs: Vec<PairLook>,
}

/// The sender of a TCP connection, in segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLook {
    /// Congestion window.
    pub cwnd: u32,
    /// What may be in flight by what it was told last: its receiver's window, or what its port made of that.
    pub rwnd: u32,
    /// In flight.
    pub flight: u32,
    /// Acknowledged so far.
    pub acked: u32,
    /// Sent again so far.
    pub again: u64,
}

/// A host with an agent.
#[derive(Clone, Debug)]
pub struct HostLook {
    /// Whether its agent runs. What follows is of the last one that did.
    pub is_alive: bool,
    /// How many lives its agent has had before.
    pub lives: u32,
    /// What the agent's clock shows.
    pub clock: Time,
    /// Pairs that the agent knows: whose source is here, and whose destination is.
    pub known: (usize, usize),
    /// What the agent counted about itself.
    pub counters: Counters,
    /// Messages that found no room in its outbox.
    pub unsent: u64,
    /// Queues of its shaper, those of its VMs for what has none included.
    pub queues: usize,
    /// Packets that found no room there, or were in a queue that was removed.
    pub shaper_drops: u64,
}

/// A pair that may come to life.
#[derive(Clone, Debug)]
pub struct PairLook {
    /// Which.
    pub id: PairId,
    /// The hosts of its ends.
    pub hosts: (HostId, HostId),
    /// Floor and ceiling in force, over all its paths, whether or not an agent lives; none without a
    /// queue of its own.
    pub in_force: Option<Setting>,
    /// Octets that wait in its queue of the shaper, over all its paths.
    pub waiting: u64,
    /// Octets that have left the shaper for the network since the pair came to life.
    pub left: u64,
    /// A packet has arrived since its destination's host knows of no pair.
    pub is_met: bool,
    /// What the agent of its source's host holds.
    pub source: Ends,
    /// What the agent of its destination's host holds.
    pub destination: Ends,
}
