//! What any world hands to the judge.

use weir_lab::{AttackRecord, Failure, Histogram};
use weir_model::record::{ControlRecord, LinkRecord, QueueRecord, Windows, WrittenRecord};
use weir_units::Span;

/// One run as a world measured it. Nothing is interpreted yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// Which world: `lab` or `sim`.
    pub(crate) world: &'static str,
    /// All chance was drawn from this, where that can be said.
    pub(crate) seed: u64,
    /// Width of one sample of every series, as planned.
    pub(crate) sample: Span,
    /// When each sample was read, since traffic began; empty where that is exactly as planned.
    pub(crate) ends: Vec<Span>,
    /// One per traffic entry of the scenario.
    pub(crate) flows: Vec<ObservedFlow>,
    /// Two per link of the scenario: a>b, b>a.
    pub(crate) links: Vec<LinkRecord>,
    /// The smallest idle share (0 to 1) of any CPU, per sample; without it nothing is a result.
    pub(crate) idle: Vec<f64>,
    /// The largest share (0 to 1) that any CPU lost to the machine below, per sample.
    pub(crate) stolen: Vec<f64>,
    /// User and system CPU of all agents together.
    pub(crate) agents_cpu: Span,
    /// The same of each agent.
    pub(crate) agent_cpu: Vec<Span>,
    /// Octets of memory of each agent at the end of the warmup, and at the end.
    pub(crate) agent_memory_before: Vec<u64>,
    pub(crate) agent_memory: Vec<u64>,
    /// Pairs that each agent knows at the end.
    pub(crate) agent_pairs: Vec<u64>,
    /// User CPU of the whole world.
    pub(crate) user_cpu: Span,
    /// Segments that the mechanism says the network lost; `None` if there is none that says.
    pub(crate) losses_reported: Option<u64>,
    /// Packets that link boxes delivered after a later one of the same pair of addresses.
    pub(crate) overtaken: u64,
    /// Links crossed by packets and events played, where somebody counts them.
    pub(crate) packet_hops: u64,
    pub(crate) events: u64,
    /// How long it took.
    pub(crate) wall: Span,
    /// What became of the scenario's attacks.
    pub(crate) attacks: Option<AttackRecord>,
    /// What became of control messages, where the scenario breaks them.
    pub(crate) control: Option<ControlRecord>,
    /// What agents wrote to each other, where somebody counts it.
    pub(crate) written: Option<WrittenRecord>,
    /// What waited in switches' ports before hosts, and between switches, where somebody looks.
    pub(crate) queue_edge: Option<QueueRecord>,
    pub(crate) queue_core: Option<QueueRecord>,
    /// What ended the run early or made it another one than the scenario's, with its time.
    pub(crate) failure: Option<Failure>,
    /// What a reader should know; does not make the run invalid.
    pub(crate) notes: Vec<String>,
}

/// One traffic entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObservedFlow {
    /// Application octets received per sample.
    pub(crate) octets: Vec<u64>,
    /// Application octets of each connection over the measured interval.
    pub(crate) connections: Vec<u64>,
    /// Of traffic that comes and goes.
    pub(crate) work: Option<Work>,
    /// Of traffic with a trace: each connection over time.
    pub(crate) windows: Vec<Vec<Windows>>,
}

/// Requests, flows or a shuffle that should have begun in the measured interval (a shuffle: ever).
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// How many.
    pub(crate) due: u64,
    /// How many of these were done.
    pub(crate) done: u64,
    /// When the last of them was done, since traffic started.
    pub(crate) last: Span,
    /// Nanoseconds each took.
    pub(crate) times: Histogram<u32>,
}

impl Work {
    /// Whether everything that was due is done.
    pub(crate) fn is_done(&self) -> bool {
        self.due > 0 && self.done == self.due
    }
}

impl Observed {
    /// Samples that every flow and link has.
    pub(crate) fn samples(&self) -> usize {
        let flows = self.flows.iter().map(|f| f.octets.len());
        let links = self.links.iter().map(|l| l.octets.len());
        flows.chain(links).min().unwrap_or(0)
    }
}
