//! Topologies and flows of other simulators, as both engines take them.
//!
//! Problem   htsim and HPCC write the same things in four formats.
//! Approach  What a file is shows in its first word; after that a topology is nodes and links, and
//!           traffic is source, destination, size and start.
//! Promises  Flows keep the order of their file, and have a way there and, for packets, back. What
//!           a file asks for and nothing here does is refused, or noted: never dropped in silence.
//! Not here  The formats: see `weir_flow::import`. Playing: see `packets` and `flows`.

use super::room::{self, Need};
use crate::args;
use crate::input;
use anyhow::{Context as _, Result, anyhow, bail};
use std::collections::BTreeSet;
use std::path::Path;
use weir_flow::Routes;
use weir_flow::import::{
    Connection, ConnectionMatrix, HpccFlows, Layered, Node, Start, Topology, connection_matrix,
    hpcc_flows, hpcc_topology, htsim_topology,
};
use weir_units::{Bytes, Span, Time};

/// What two files say.
pub(super) struct Import {
    pub(super) topology: Topology,
    /// By link: how much its port holds, where the file says so.
    pub(super) buffers: Vec<Option<Bytes>>,
    /// In the order of the file.
    pub(super) flows: Vec<Sent>,
    /// What is not played as the files ask for.
    pub(super) notes: Vec<String>,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) start: Time,
    /// Octets of payload; without, it never ends.
    pub(super) size: Option<Bytes>,
    /// Links from its sender to its receiver.
    pub(super) forward: Vec<u32>,
    /// Links of the way back.
    pub(super) reverse: Vec<u32>,
}

impl Import {
    /// Reads both files, and finds each flow's ways: shortest ones, by a hash of its number.
    ///
    /// # Errors
    /// A file cannot be read, says something wrong, or asks for what nothing here does.
    pub(super) fn read(args: &args::Files) -> Result<Self> {
        let (topology, flows) = (path(args.topology.as_deref())?, path(args.flows.as_deref())?);
        let mut import = read_topology(topology)?;
        let text = text(flows)?;
        let file = flows.display().to_string();
        let nodes = import.topology.nodes.len() as u32;
        if is_numeric(&text) {
            let read = hpcc_flows(&file, &text, nodes)?;
            import.take_hpcc(&file, &read);
        } else {
            let read = connection_matrix(&file, &text)?;
            import.take_htsim(&file, &read)?;
        }
        if import.flows.is_empty() {
            bail!("{file}: has no flows: there is nothing to play");
        }
        import.check_memory(flows, args.flow_level)?;
        import.find_ways(&file, args.flow_level)?;
        if args.flow_level {
            let lossy = import.topology.links.iter().filter(|link| link.loss > 0.0).count();
            import.note(&topology.display().to_string(), lossy as u32, "links that lose packets");
        }
        Ok(import)
    }

    /// When to stop by default: a second after the last flow began.
    pub(super) fn end(&self) -> Time {
        let last = self.flows.iter().map(|flow| flow.start).max().unwrap_or(Time::ZERO);
        last + Span::from_secs(1)
    }

    fn take_hpcc(&mut self, file: &str, read: &HpccFlows) {
        self.note(file, read.ignored, "lines behind the last flow that its count names");
        let groups = read.flows.iter().filter(|flow| flow.group != read.flows[0].group).count();
        self.note(file, groups as u32, "flows of other priority groups than the first");
        let flow = |flow: &weir_flow::import::HpccFlow| Sent {
            from: flow.from,
            to: flow.to,
            start: flow.start,
            size: Some(flow.size),
            forward: Vec::new(),
            reverse: Vec::new(),
        };
        self.flows = read.flows.iter().map(flow).collect();
    }

    fn take_htsim(&mut self, file: &str, read: &ConnectionMatrix) -> Result<()> {
        if !read.failures.is_empty() {
            let count = read.failures.len();
            bail!(
                "{file}: asks for {count} links that are down, which cannot be played: remove them"
            );
        }
        let fires = |one: &&Connection| one.send_done.is_some() || one.recv_done.is_some();
        let firing = read.connections.iter().filter(fires).count();
        self.note(file, firing as u32, "connections that fire a trigger");
        let prioritized = read.connections.iter().filter(|one| one.priority.is_some()).count();
        self.note(file, prioritized as u32, "connections with a priority");
        for (number, one) in read.connections.iter().enumerate() {
            let Start::At(start) = one.start else {
                bail!(
                    "{file}: connection {number} ({}->{}) waits for a trigger, which cannot be played: \
                     give it a `start`",
                    one.from,
                    one.to
                );
            };
            self.flows.push(Sent {
                from: one.from,
                to: one.to,
                start,
                size: one.size,
                forward: Vec::new(),
                reverse: Vec::new(),
            });
        }
        Ok(())
    }

    fn note(&mut self, file: &str, count: u32, what: &str) {
        if count > 0 {
            self.notes.push(format!("{file}: {count} {what}: not played as such"));
        }
    }

    /// Distances to each destination take most of what is needed.
    fn check_memory(&self, file: &Path, one_way: bool) -> Result<()> {
        let ends = |flow: &Sent| [flow.to, if one_way { flow.to } else { flow.from }];
        let ends: BTreeSet<u32> = self.flows.iter().flat_map(ends).collect();
        let least = 4 * (ends.len() * self.topology.nodes.len()) as u64;
        room::check(file, Need { least, most: 0 }, "write flows to fewer hosts into it")
    }

    /// Without the ways back if they are not needed.
    fn find_ways(&mut self, file: &str, one_way: bool) -> Result<()> {
        let mut routes = Routes::new(&self.topology);
        for (number, flow) in self.flows.iter_mut().enumerate() {
            for node in [flow.from, flow.to] {
                match self.topology.nodes.get(node as usize) {
                    Some(Node::Host) => {}
                    Some(Node::Switch) => bail!("{file}: flow {number}: node {node} is a switch"),
                    None => bail!("{file}: flow {number}: the topology has no node {node}"),
                }
            }
            let (from, to) = (flow.from, flow.to);
            let mut way = |from, to| {
                routes.path(from, to, number as u64).filter(|way| !way.is_empty()).ok_or_else(
                    || {
                        anyhow!(
                            "{file}: flow {number}: no links lead from node {from} to node {to}"
                        )
                    },
                )
            };
            flow.forward = way(from, to)?;
            if !one_way {
                flow.reverse = way(to, from)?;
            }
        }
        Ok(())
    }
}

fn read_topology(file: &Path) -> Result<Import> {
    let text = text(file)?;
    let name = file.display().to_string();
    let mut import = Import {
        topology: Topology::default(),
        buffers: Vec::new(),
        flows: Vec::new(),
        notes: Vec::new(),
    };
    if is_numeric(&text) {
        let (topology, behind) = hpcc_topology(&name, &text)?;
        import.buffers = vec![None; topology.links.len()];
        import.topology = topology;
        import.note(&name, behind, "lines behind the last link that its count names");
    } else {
        let (layered, mut topology) = htsim_topology(&name, &text)?;
        import.buffers = settle_ports(&layered, &mut topology);
        import.topology = topology;
    }
    Ok(import)
}

/// How much each port of htsim's tree holds; and what a switch takes for itself becomes a part of
/// the delay of the links that it sends into.
fn settle_ports(layered: &Layered, topology: &mut Topology) -> Vec<Option<Bytes>> {
    let tors = layered.hosts / layered.tiers[0].radix_down.max(1);
    // Links of a tier come in pairs, up and down; the tiers one after the other.
    let ends = [2 * layered.hosts, 2 * (layered.hosts + tors * layered.tiers[0].radix_up)];
    let mut buffers = Vec::with_capacity(topology.links.len());
    for (number, link) in (0u32..).zip(&mut topology.links) {
        let tier = ends.iter().filter(|end| number >= **end).count();
        let up = number.is_multiple_of(2);
        // Up: the port is of the tier below, and below the first there are hosts.
        let (switch, buffer) = match (up, tier.checked_sub(1)) {
            (true, None) => (None, None),
            (true, Some(below)) => (Some(below), layered.tiers[below].queue_up),
            (false, _) => (Some(tier), layered.tiers[tier].queue_down),
        };
        if let Some(switch) = switch {
            link.delay = link.delay + layered.tiers[switch].switch_delay;
        }
        buffers.push(buffer);
    }
    buffers
}

fn path(named: Option<&Path>) -> Result<&Path> {
    named.context("name both, --topology and --flows")
}

fn text(file: &Path) -> Result<String> {
    input::read(file)
}

/// HPCC's files begin with a number, htsim's with a word.
fn is_numeric(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "Nodes 4\nTiers 2\nPodsize 4\nTier 0\nDownlink_speed_Gbps 10\nRadix_Down 2\n\
        Radix_Up 2\nQueue_Down 30000\nQueue_Up 20000\nDownlink_Latency_ns 1000\n\
        Switch_Latency_ns 300\nTier 1\nDownlink_speed_Gbps 10\nRadix_Down 2\nQueue_Down 40000\n\
        Downlink_Latency_ns 500\nSwitch_Latency_ns 70\n";

    #[test]
    fn ports_of_a_tree_hold_what_their_tier_says_and_switches_take_their_time() {
        let (layered, mut topology) = htsim_topology("a.topo", TREE).expect("right");
        let buffers = settle_ports(&layered, &mut topology);
        let octets: Vec<Option<u64>> = buffers.iter().map(|b| b.map(Bytes::get)).collect();
        // Four hosts with a link each; two switches of two links up each.
        assert_eq!(octets[..2], [None, Some(30_000)]);
        assert_eq!(octets[8..10], [Some(20_000), Some(40_000)]);
        assert_eq!(octets.len(), 16);
        let delays: Vec<u64> = topology.links.iter().map(|link| link.delay.as_nanos()).collect();
        assert_eq!(delays[..2], [1000, 1300]);
        assert_eq!(delays[8..10], [800, 570]);
    }

    #[test]
    fn the_first_word_says_whose_file_it_is() {
        assert!(is_numeric("# flows\n\n  2\n0 1 3 100 5 0\n"));
        assert!(!is_numeric("# from 3\nNodes 4\n"));
        assert!(!is_numeric(""));
    }
}
