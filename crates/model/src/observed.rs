//! A run as a world measured it: what lab and simulator hand to the judge.

use crate::record::{
    AttackRecord, ControlRecord, Failure, LinkRecord, QueueRecord, Windows, WrittenRecord,
};
use hdrhistogram::Histogram;
use weir_units::Span;

/// One run as a world measured it. Nothing is interpreted yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Which world: `lab` or `sim`.
    pub world: &'static str,
    /// All chance was drawn from this, where that can be said.
    pub seed: u64,
    /// Width of one sample of every series, as planned.
    pub sample: Span,
    /// When each sample was read, since traffic began; empty where that is exactly as planned. A
    /// thread wakes late, so a rate is the octets divided by the measured time.
    pub ends: Vec<Span>,
    /// One per traffic entry of the scenario.
    pub flows: Vec<ObservedFlow>,
    /// Two per link of the scenario: a>b, b>a.
    pub links: Vec<LinkRecord>,
    /// The smallest idle share (0 to 1) of any CPU, per sample; without it nothing is a result.
    pub idle: Vec<f64>,
    /// The largest share (0 to 1) that any CPU lost to the machine below, per sample.
    pub stolen: Vec<f64>,
    /// User and system CPU of all agents together.
    pub agents_cpu: Span,
    /// The same of each agent.
    pub agent_cpu: Vec<Span>,
    /// Octets of memory of each agent at the end of the warmup.
    pub agent_memory_before: Vec<u64>,
    /// The same at the end.
    pub agent_memory: Vec<u64>,
    /// Pairs that each agent knows at the end.
    pub agent_pairs: Vec<u64>,
    /// User CPU of the whole world.
    pub user_cpu: Span,
    /// Segments that the mechanism says the network lost; `None` if there is none that says.
    pub losses_reported: Option<u64>,
    /// Stretches of time in which agents say that a floor was broken; `None` if there is no agent that says.
    pub reports: Option<Vec<Report>>,
    /// Packets that link boxes delivered after a later one of the same pair of addresses.
    pub overtaken: u64,
    /// Links crossed by packets, where the world counts them.
    pub packet_hops: u64,
    /// Events that the simulator played.
    pub events: u64,
    /// How long it took.
    pub wall: Span,
    /// What became of the scenario's attacks.
    pub attacks: Option<AttackRecord>,
    /// What became of control messages, where the scenario breaks them.
    pub control: Option<ControlRecord>,
    /// What agents wrote to each other, where the world counts it.
    pub written: Option<WrittenRecord>,
    /// What waited in switches' ports before hosts, and between switches, where the world looks.
    pub queue_edge: Option<QueueRecord>,
    /// Queues of ports between switches, where the world measures them.
    pub queue_core: Option<QueueRecord>,
    /// Octets that carried the code point of a queue to a port without it, where tenants are bound.
    pub unbound: Option<u64>,
    /// Where packets have two priorities: the part of them that came after a later one of their pair,
    /// and the longest time for which a queue had packets and none of them left.
    pub disorder: Option<(f64, Span)>,
    /// What ended the run early or made it another one than the scenario's, with its time.
    pub failure: Option<Failure>,
    /// What a reader should know; does not make the run invalid.
    pub notes: Vec<String>,
}

/// One traffic entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedFlow {
    /// Application octets received per sample.
    pub octets: Vec<u64>,
    /// Application octets of each connection over the measured interval.
    pub connections: Vec<u64>,
    /// Of traffic that comes and goes.
    pub work: Option<Work>,
    /// Of traffic with a trace: each connection over time.
    pub windows: Vec<Vec<Windows>>,
}

/// A stretch of time in which a pair had less than its floor, as the agent of its sender says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The VM that sends.
    pub from: String,
    /// The VM that receives.
    pub to: String,
    /// Its beginning, since traffic started.
    pub from_at: Span,
    /// Its end.
    pub until: Span,
}

/// Requests, flows or a shuffle that should have begun in the measured interval (a shuffle: ever).
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// How many.
    pub due: u64,
    /// How many of these were done.
    pub done: u64,
    /// When the last of them was done, since traffic started.
    pub last: Span,
    /// Nanoseconds from the intended start to the last octet, three digits exact.
    pub times: Histogram<u32>,
}

impl Default for Work {
    fn default() -> Self {
        let times = Histogram::new(3).expect("three digits are allowed");
        Self { due: 0, done: 0, last: Span::ZERO, times }
    }
}

impl Work {
    /// Whether everything that was due is done.
    pub fn is_done(&self) -> bool {
        self.due > 0 && self.done == self.due
    }
}

impl Observed {
    /// Samples that every flow and link has.
    pub fn samples(&self) -> usize {
        let flows = self.flows.iter().map(|f| f.octets.len());
        let links = self.links.iter().map(|l| l.octets.len());
        flows.chain(links).min().unwrap_or(0)
    }
}
