//! Files of other simulators: connections between nodes, and traffic.
//!
//! Problem   Researchers have topologies and traffic already, as htsim and HPCC (ns-3) write them.
//! Approach  One parser per format, from text to plain values; what the format leaves open is
//!           checked here, so that the values need no checks.
//! Promises  No input panics, and none takes memory beyond a multiple of its own size and the
//!           bounds below. An error names file, line and what is wrong. What a file asks for and
//!           this world cannot give is kept in the values, never dropped in silence.
//! Not here  Reading files. What triggers, priorities and failures mean to a simulator.
//! Source    The formats as the simulators' own loaders read them: `Broadcom/csg-htsim`
//!           sim/datacenter, `alibaba-edu/High-Precision-Congestion-Control` simulation.

mod cdf;
mod hpcc;
mod htsim;
mod text;
mod topo;

pub use cdf::cdf;
pub use hpcc::{HpccFlow, HpccFlows, hpcc_flows, hpcc_topology};
pub use htsim::{
    Connection, ConnectionMatrix, Failure, Start, Tier, Trigger, TriggerKind, connection_matrix,
};
pub use topo::{Layered, TierSpec, htsim_topology};

use thiserror::Error;
use weir_units::{Rate, Span};

/// Nodes of the largest topology.
pub const MOST_NODES: u32 = 1 << 20;
/// Links of the largest topology, each direction counted.
pub const MOST_LINKS: u32 = 1 << 24;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ImportError {
    /// As the caller named it.
    pub file: String,
    /// From 1; 0 if it is about the whole.
    pub line: u32,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl std::fmt::Display for ImportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.what),
            line => write!(f, "{}:{line}: {}", self.file, self.what),
        }
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// Sends and receives; forwards nothing.
    Host,
    /// Forwards.
    Switch,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Index into [`Topology::nodes`].
    pub from: u32,
    /// Index into [`Topology::nodes`].
    pub to: u32,
    /// What it carries.
    pub rate: Rate,
    /// How long it takes.
    pub delay: Span,
    /// Part of the packets that it loses, from 0 to 1.
    pub loss: f64,
}

/// The connections between nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// By number.
    pub nodes: Vec<Node>,
    /// Both directions of a link follow each other.
    pub links: Vec<Link>,
}

impl Topology {
    /// Adds both directions of a link.
    fn connect(&mut self, link: Link) {
        let Link { from, to, .. } = link;
        self.links.extend([link, Link { from: to, to: from, ..link }]);
    }
}
