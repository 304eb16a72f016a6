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

use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_model::record::Failure;
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

/// What the lab says of a run that `error` ended at `at`.
pub(crate) fn failure(at: Span, error: Error) -> Failure {
    match error {
        Error::Agent { host, what, tail, .. } => {
            Failure { at, why: format!("the agent of {host} {what}"), log: tail }
        }
        other => Failure { at, why: other.to_string(), log: String::new() },
    }
}
