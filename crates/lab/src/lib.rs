//! A datacenter on one machine: network namespaces, the real kernel, the real agent binary.
//!
//! Problem   A mechanism that only ever met a simulator has not met TCP, timers or the kernel.
//! Approach  One namespace per host, switch and VM, joined by veths and bridges; HTB with a bounded
//!           FIFO gives every port its link's rate; one real `weir agent` per host; one thread with
//!           epoll plays long-lived traffic, another what comes and goes. Switch ports mark by a BPF
//!           program; a link with delay, RED, chance or several paths is carried by a thread between two
//!           TAPs. Goodput is read from the receivers' sockets, octets, drops and marks from the ports.
//! Promises  Whatever happens (success, error, stop, panic), namespaces and processes are gone when
//!           [`play`] returns; if the lab itself was killed, the next run removes what it left.
//! Not here  What a scenario means (`weir-model`), and whether a run is valid or good (`weir`).

#![expect(
    clippy::disallowed_methods,
    reason = "the lab is a driver: it reads clocks, waits and samples in real time"
)]

mod agents;
mod attack;
mod budget;
mod check;
mod child;
mod error;
mod exec;
mod faults;
mod linkbox;
mod machine;
mod netlink;
mod netns;
mod plan;
mod play;
mod ports;
mod relay;
mod sweep;
mod traffic;
mod translation;
mod world;

pub use agents::mechanism_config;
pub use error::Error;
pub use linkbox::packet as frames;
pub use play::play;
pub use sweep::sweep_stale;

pub use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_model::record::{ControlRecord, LinkRecord, Windows};
use weir_units::{Rate, Span};

/// How to play, beside what the scenario says.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weir` binary, started as `weir agent --config FILE` on every host.
    pub agent: PathBuf,
    /// For `reservation` only: the rate of each pair, as (sending VM, receiving VM, rate).
    pub reserve: Vec<(usize, usize, Rate)>,
    /// Where configurations and logs of the agents are kept; a temporary directory that is removed
    /// afterwards if `None`.
    pub run_dir: Option<PathBuf>,
    /// Constants for the agents; they take precedence over what follows from the scenario's scale.
    pub mechanism_set: BTreeMap<String, toml::Value>,
    /// Whether this machine's HTB sends by bursts meanwhile, in agents and in the ports of links
    /// ([`weir_dataplane::shaper::SendsByBursts`]); whatever the machine is set to otherwise.
    pub htb_by_bursts: bool,
}

impl Options {
    /// No reservations, nothing kept.
    pub fn new(agent: impl Into<PathBuf>) -> Self {
        Self {
            agent: agent.into(),
            reserve: Vec::new(),
            run_dir: None,
            mechanism_set: BTreeMap::new(),
            htb_by_bursts: false,
        }
    }
}

/// What the lab is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Making namespaces, devices and ports.
    Building {
        /// Nodes that are ready.
        done: usize,
        /// All nodes: hosts, switches and VMs.
        total: usize,
    },
    /// Waiting until every agent's socket answers.
    StartingAgents,
    /// Traffic is played.
    Running,
    /// Removing everything.
    TearingDown,
}

/// What a live view shows: what passed since the last one, 100 ms at least. Slices are empty unless the phase is `Running`.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What the lab is doing.
    pub phase: Phase,
    /// Time since traffic started.
    pub at: Span,
    /// Goodput in bit/s, one per traffic entry of the scenario.
    pub flows_bps: &'a [f64],
    /// Carried on layer 2 in bit/s: `2 × link` is a→b, `2 × link + 1` is b→a.
    pub links_bps: &'a [f64],
    /// Packets dropped meanwhile, indexed like `links_bps`.
    pub drops: &'a [u64],
    /// Packets marked meanwhile, indexed like `links_bps`.
    pub marks: &'a [u64],
    /// The smallest idle share of any CPU meanwhile.
    pub idle: f64,
}

/// What a run measured, raw: how to judge it is not decided here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Width of a sample, as planned.
    pub sample: Span,
    /// When each sample was read, since traffic began: a thread wakes late, and a rate is octets by the time
    /// in which they came.
    pub ends: Vec<Span>,
    /// One per traffic entry of the scenario, in its order.
    pub flows: Vec<FlowRecord>,
    /// Two per link: a→b, then b→a.
    pub links: Vec<LinkRecord>,
    /// Per sample: the smallest idle share of any CPU, 0 to 1, over the 100 ms that it lies in.
    pub idle: Vec<f64>,
    /// Per sample: the largest share of any CPU that the machine below took away, likewise.
    pub stolen: Vec<f64>,
    /// User and system CPU time of all agents together, from the first to the last sample.
    pub agents_cpu: Span,
    /// The same of each agent, in the order of the hosts.
    pub agent_cpu: Vec<Span>,
    /// Resident memory of each agent in octets at the end of the warmup, in the order of the hosts.
    pub agent_memory_before: Vec<u64>,
    /// The same at the end of the run.
    pub agent_memory: Vec<u64>,
    /// Pairs that each agent knows at the end of the run; of those that answered.
    pub agent_pairs: Vec<u64>,
    /// User CPU time of the lab and the agents, from the first to the last sample.
    pub user_cpu: Span,
    /// From the start of [`play`] to the end of teardown.
    pub wall: Span,
    /// What became of the scenario's attacks; `None` without attacks.
    pub attacks: Option<AttackRecord>,
    /// What became of control messages; `None` without agents, if one did not answer, and in scenarios
    /// whose faults do not break them.
    pub control: Option<ControlRecord>,
    /// Segments that all agents together said at the end that the network had lost, of the pairs that
    /// were active then. `None` without agents.
    pub losses_reported: Option<u64>,
    /// Packets that link boxes delivered after a later one of the same pair of addresses.
    pub overtaken: u64,
    /// What ended the run early, or made it another run than the scenario's. What the run measured until then
    /// is in the record; `None` if nothing failed.
    pub failure: Option<Failure>,
    /// What a reader of the results should know: stale state that was removed, an offered load that
    /// was not reached, packets lost inside this machine, connections that failed.
    pub notes: Vec<String>,
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

impl Failure {
    pub(crate) fn new(at: Span, error: Error) -> Self {
        match error {
            Error::Agent { host, what, tail, .. } => {
                Self { at, why: format!("the agent of {host} {what}"), log: tail }
            }
            other => Self { at, why: other.to_string(), log: String::new() },
        }
    }
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
    /// Frames that belong to no pair of VMs, or go astray.
    pub frames: u64,
    /// What all agents said; `None` if there are none.
    pub agents: Option<AgentCounts>,
}

/// Sums over all agents, from their status at the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounts {
    /// Packets that ports dropped because of who they said they were, or where they went.
    pub dropped: u64,
    /// Frames that ports dropped because they go to no place, beyond the rate of such, or astray.
    pub astray: u64,
    /// Control messages that an agent's full queue had no room for: nobody read them.
    pub unread: u64,
    /// Control messages that were refused, or not believed and answered by a greeting.
    pub refused: u64,
    /// Control messages that were believed.
    pub believed: u64,
    /// Control messages that agents sent: not fewer than were believed, if nobody else was.
    pub sent: u64,
}

/// One traffic entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowRecord {
    /// Application octets that arrived at the receiver's sockets, per sample.
    pub octets: Vec<u64>,
    /// Per connection (one unless the traffic is long-lived TCP), cumulative octets at two moments:
    /// `[at warmup, at the end]`.
    pub connections: Vec<Vec<u64>>,
    /// Of traffic that comes and goes: how long it took.
    pub work: Option<WorkRecord>,
    /// Of traffic with a trace: each connection over time.
    pub windows: Vec<Vec<Windows>>,
}

/// What became of requests, flows or a shuffle that should have begun after the warmup (of a shuffle:
/// at any time).
#[derive(Clone, Debug, PartialEq)]
pub struct WorkRecord {
    /// How many should have begun.
    pub due: u64,
    /// How many of these were done before the traffic's end.
    pub done: u64,
    /// When the last of them was done, since traffic started.
    pub last: Span,
    /// Nanoseconds from the intended start to the last octet, three digits exact.
    pub times: Histogram<u32>,
}

impl Default for WorkRecord {
    fn default() -> Self {
        let times = Histogram::new(3).expect("three digits are allowed");
        Self { due: 0, done: 0, last: Span::ZERO, times }
    }
}
