//! What every world measures alike, raw: how to judge it is not decided here.

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

/// A TCP connection at one moment, as its sender's system has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Since traffic started.
    pub at: Span,
    /// Congestion window, octets.
    pub cwnd: u64,
    /// What may be in flight by what the sender was told last, octets: its receiver's window, or what its port made
    /// of that.
    pub shown: u64,
    /// Octets acknowledged so far.
    pub acked: u64,
    /// Segments sent again so far.
    pub again: u64,
}

/// What became of control messages: sums over all agents, as they count at the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlRecord {
    /// Were believed.
    pub believed: u64,
    /// Did not come, though later ones of the same sender did.
    pub lost: u64,
    /// Were refused because they had been seen, or are older than what is remembered.
    pub repeated: u64,
    /// Were believed after a later one of the same sender: a part of `believed`.
    pub overtaken: u64,
    /// How long the world held each back, on average; `None` if none came to its doors.
    pub delay: Option<Span>,
}

/// What waited in ports of one kind, as it was looked at from the end of the warmup on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueRecord {
    /// Octets that 99 of 100 looks did not find exceeded.
    pub p99: u64,
    /// The most octets that any look found.
    pub max: u64,
}

/// What agents wrote to each other from the end of the warmup on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrittenRecord {
    /// Octets on the wire, layer 2 without FCS.
    pub octets: u64,
    /// Of these, what reports of congestion took.
    pub reports: u64,
    /// Offers of floors.
    pub offers: u64,
    /// Pairs whose receiving ends the agents knew at the end.
    pub pairs: u64,
    /// How long that was.
    pub over: Span,
}

/// What attackers sent, what arrived, and what the agents' counters say of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttackRecord {
    /// Packets with another VM's source.
    pub forged: u64,
    /// Of these, read by their victim.
    pub delivered: u64,
    /// Control messages from VMs.
    pub control_of_vms: u64,
    /// Control messages from hosts or the network between them.
    pub control_of_hosts: u64,
    /// Frames that belong to no pair of VMs.
    pub frames: u64,
    /// What all agents said; `None` if there are none.
    pub agents: Option<AgentCounts>,
}

/// Sums over all agents, from their status at the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounts {
    /// Packets that ports dropped because of who they said they were, or where they went.
    pub dropped: u64,
    /// Control messages that were refused, or not believed and answered by a greeting.
    pub refused: u64,
    /// Control messages that were believed.
    pub believed: u64,
    /// Control messages that agents sent: not fewer than were believed, if nobody else was.
    pub sent: u64,
}
