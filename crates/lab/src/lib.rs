//! A datacenter on one machine: network namespaces, the real kernel, the real agent binary.
//!
//! Problem   A mechanism that was only simulated has not met the kernel's TCP and timers.
//! Approach  One namespace per host, switch and VM, joined by veths and bridges. HTB with a bounded
//!           FIFO gives every port its link's rate. One real `weir agent` per host. One thread with
//!           epoll plays long-lived traffic, another plays requests and flows. A BPF program marks
//!           at switch ports. A thread between two TAPs carries a link with delay, RED, random loss
//!           or several paths. Goodput is read from the receivers' sockets, octets, drops and marks
//!           from the ports.
//! Promises  Whatever happens (success, error, stop, panic), namespaces and processes are gone when
//!           [`play`] returns; if the lab itself was killed, the next run removes what it left.
//! Not here  What a scenario means (`weir-model`), and whether a run is valid or good (`weir`).

#![expect(
    clippy::disallowed_methods,
    reason = "the lab is a driver: it reads clocks, waits and samples in real time"
)]

mod agents;
mod attack;
mod binding;
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
use weir_model::record::{AttackRecord, ControlRecord, Failure, LinkRecord, Windows};
use weir_units::{Rate, Span};

/// Options of a run beside the scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `weir` binary, started as `weir agent --config FILE` on every host.
    pub agent: PathBuf,
    /// For `reservation` only: the rate of each pair, as (sending VM, receiving VM, rate).
    pub reserve: Vec<(usize, usize, Rate)>,
    /// Directory for configurations and logs of the agents; `None`: a temporary directory that is
    /// removed afterwards.
    pub run_dir: Option<PathBuf>,
    /// A folder in which each agent writes its journal into a folder with its host's name.
    pub journal: Option<PathBuf>,
    /// Constants for the agents. They take precedence over those of the scenario's scale.
    pub mechanism_set: BTreeMap<String, toml::Value>,
    /// Whether this machine's HTB sends by bursts during the run, in agents and in the ports of
    /// links ([`weir_dataplane::shaper::SendsByBursts`]), whatever the machine's setting is
    /// otherwise.
    pub htb_by_bursts: bool,
}

impl Options {
    /// No reservations, nothing kept.
    pub fn new(agent: impl Into<PathBuf>) -> Self {
        Self {
            agent: agent.into(),
            reserve: Vec::new(),
            run_dir: None,
            journal: None,
            mechanism_set: BTreeMap::new(),
            htb_by_bursts: false,
        }
    }
}

/// Phase of a run.
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

/// One update for a live view, over the last 100 ms or more. Slices are empty unless the phase is
/// `Running`.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Phase of the run.
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
    /// Time of each sample's reading since traffic began. A thread wakes late, so a rate is the
    /// octets divided by the measured time.
    pub ends: Vec<Span>,
    /// One per traffic entry of the scenario, in its order.
    pub flows: Vec<FlowRecord>,
    /// Two per link: a→b, then b→a.
    pub links: Vec<LinkRecord>,
    /// Per sample: the smallest idle share of any CPU, 0 to 1, over the 100 ms that it lies in.
    pub idle: Vec<f64>,
    /// Per sample: the largest share of any CPU that the hypervisor took away (steal), over the
    /// same 100 ms.
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
    /// Result of the scenario's attacks; `None` without attacks.
    pub attacks: Option<AttackRecord>,
    /// Result of control messages; `None` without agents, if one did not answer, and in scenarios
    /// whose faults do not break messages.
    pub control: Option<ControlRecord>,
    /// Segments that all agents reported as lost at the end, of the pairs that were active then.
    /// `None` without agents.
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

/// What the lab says of a run that `error` ended at `at`.
pub(crate) fn failure(at: Span, error: Error) -> Failure {
    match error {
        Error::Agent { host, what, tail, .. } => {
            Failure { at, why: format!("the agent of {host} {what}"), log: tail }
        }
        other => Failure { at, why: other.to_string(), log: String::new() },
    }
}

/// One traffic entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowRecord {
    /// Application octets that arrived at the receiver's sockets, per sample.
    pub octets: Vec<u64>,
    /// Per connection (one unless the traffic is long-lived TCP), cumulative octets at two moments:
    /// `[at warmup, at the end]`.
    pub connections: Vec<Vec<u64>>,
    /// Durations, for requests, flows and shuffles.
    pub work: Option<WorkRecord>,
    /// Samples of each connection, for traffic with a trace.
    pub windows: Vec<Vec<Windows>>,
}

/// Durations of requests or flows that should have begun after the warmup, or of a shuffle.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkRecord {
    /// Number that should have begun.
    pub due: u64,
    /// Number that finished before the traffic's end.
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
