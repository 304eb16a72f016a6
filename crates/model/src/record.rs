//! Raw measurements that all worlds take alike. The judge evaluates them.

use weir_units::Span;

/// One direction of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkRecord {
    /// Octets carried per sample, layer 2 without FCS.
    pub octets: Vec<u64>,
    /// Packets dropped at its port per sample.
    pub drops: Vec<u64>,
    /// Packets that got the congestion mark at its port per sample.
    pub marks: Vec<u64>,
}

/// A TCP connection at one moment, from the sender's kernel or model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Time since traffic started.
    pub at: Span,
    /// Congestion window, octets.
    pub cwnd: u64,
    /// Octets that may be in flight by the last window that the sender was shown: its receiver's,
    /// or what its port made of it.
    pub shown: u64,
    /// Octets acknowledged so far.
    pub acked: u64,
    /// Segments sent again so far.
    pub again: u64,
}

/// Counters of control messages, summed over all agents at the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlRecord {
    /// Messages that were believed.
    pub believed: u64,
    /// Messages that did not come, although later ones of the same sender did.
    pub lost: u64,
    /// Messages that were refused because they had been seen, or are older than the window.
    pub repeated: u64,
    /// Messages that were believed after a later one of the same sender; `believed` includes them.
    pub overtaken: u64,
    /// Mean time for which the world held a message back; `None` if none passed.
    pub delay: Option<Span>,
}

/// Queue lengths of one kind of port, sampled from the end of the warmup on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueRecord {
    /// 99th percentile of the samples, octets.
    pub p99: u64,
    /// Largest sample, octets.
    pub max: u64,
}

/// Control traffic of all agents from the end of the warmup on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenRecord {
    /// Octets on the wire, layer 2 without FCS.
    pub octets: u64,
    /// Octets of congestion reports; the total includes them.
    pub reports: u64,
    /// Offers of floors.
    pub offers: u64,
    /// Pairs whose receiving ends the agents knew at the end.
    pub pairs: u64,
    /// Length of that time.
    pub over: Span,
}

/// Why a run is not the run that the scenario asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// When the lab saw it, since traffic started.
    pub at: Span,
    /// What happened to which object, on one line.
    pub why: String,
    /// The last lines of the agent's log; empty if no agent is involved.
    pub log: String,
}

/// What attackers sent, what arrived, and what the agents' counters say of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttackRecord {
    /// Packets with another VM's source.
    pub forged: u64,
    /// The part of these that their victim read.
    pub delivered: u64,
    /// Control messages from VMs.
    pub control_of_vms: u64,
    /// Control messages from hosts or the network between them.
    pub control_of_hosts: u64,
    /// Frames that belong to no pair of VMs, or go astray.
    pub frames: u64,
    /// What all agents said; `None` if there are none.
    pub agents: Option<AgentCounts>,
}

/// Sums over all agents, from their status at the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounts {
    /// Packets that ports dropped because of a forged source or a forbidden destination.
    pub dropped: u64,
    /// Frames that ports dropped because they go to no place (beyond the strays' rate) or astray.
    pub astray: u64,
    /// Control messages for which an agent's full queue had no room.
    pub unread: u64,
    /// Control messages that were refused, or not believed and answered by a greeting.
    pub refused: u64,
    /// Control messages that were believed.
    pub believed: u64,
    /// Control messages that agents sent: at least as many as were believed, if no forged one was.
    pub sent: u64,
}
