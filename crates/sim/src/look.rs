//! Global view of a run at one moment.
//!
//! Problem   No host can check a promise about several hosts, such as that no hose is promised
//!           twice.
//! Approach  Plain data, taken between two events: the rates in force in every shaper, the state of
//!           every agent, and the places of all packets.
//! Promises  Looking changes nothing: a run with looks has the same digest as one without.
//! Not here  What should be seen: see `weir-swarm`.

use crate::outcome::{LinkOutcome, Packets};
use weir_core::elasticswitch::Ends;
use weir_core::host::{Counters, Setting};
use weir_units::{HostId, PairId, SortedMap, Time};

/// All of a run at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// When.
    pub at: Time,
    /// Where all packets are.
    pub packets: Packets,
    /// Counters of links so far: two per link of the scenario (a>b, b>a), then those within hosts.
    pub links: Vec<LinkOutcome>,
    /// Control messages between hosts that were lost so far, at ports and cables.
    pub letters_lost: SortedMap<(HostId, HostId), u64>,
    /// Senders of the long-lived TCP connections, in the order of their traffic entries.
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
    /// Segments that may be in flight by the last window that the sender was shown: its receiver's,
    /// or what its port made of it.
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
    /// Whether its agent runs. The other fields describe the last agent that did.
    pub is_alive: bool,
    /// Number of its agent's earlier incarnations.
    pub lives: u32,
    /// Time on the agent's clock.
    pub clock: Time,
    /// Pairs that the agent knows: those with their source here, and those with their destination
    /// here.
    pub known: (usize, usize),
    /// The agent's counters of itself.
    pub counters: Counters,
    /// Messages that found no room in its outbox.
    pub unsent: u64,
    /// Queues of its shaper, including its VMs' default queues.
    pub queues: usize,
    /// Packets that found no room there, or that were in a queue that was removed.
    pub shaper_drops: u64,
}

/// A pair that may come to life.
#[derive(Clone, Debug)]
pub struct PairLook {
    /// The pair.
    pub id: PairId,
    /// The hosts of its ends.
    pub hosts: (HostId, HostId),
    /// Floor and ceiling in force, over all its paths, with or without an agent; none without a
    /// queue of its own.
    pub in_force: Option<Setting>,
    /// Octets that wait in its queue of the shaper, over all its paths.
    pub waiting: u64,
    /// Octets that have left the shaper for the network since the pair came to life.
    pub left: u64,
    /// Octets that have arrived since the destination's host forgot the pair.
    pub arrived: u64,
    /// Whether a packet has arrived since the destination's host forgot the pair.
    pub is_met: bool,
    /// State of the agent at its source.
    pub source: Ends,
    /// State of the agent at its destination.
    pub destination: Ends,
}
