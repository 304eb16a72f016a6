//! Which directed links a traffic entry crosses: the shortest way, first link of the file on a tie.

use std::collections::VecDeque;
use weir_model::scenario::{Scenario, Topology};

/// Directed links (2 × link for a>b, 2 × link + 1 for b>a) of each traffic entry, in order.
/// Empty between two VMs of one host.
pub(super) fn routes(scenario: &Scenario) -> Vec<Vec<usize>> {
    let host = |vm: usize| scenario.vms[vm].host;
    let route = |from, to| shortest(&scenario.topology, from, to);
    scenario.traffic.iter().map(|t| route(host(t.from), host(t.to))).collect()
}

fn shortest(topology: &Topology, from: usize, to: usize) -> Vec<usize> {
    let nodes = topology.hosts.len() + topology.switches.len();
    let mut came_by: Vec<Option<(usize, usize)>> = vec![None; nodes];
    let mut queue = VecDeque::from([from]);
    while let Some(node) = queue.pop_front() {
        for (index, link) in topology.links.iter().enumerate() {
            let (next, directed) = match node {
                n if n == link.a => (link.b, 2 * index),
                n if n == link.b => (link.a, 2 * index + 1),
                _ => continue,
            };
            if next != from && came_by[next].is_none() {
                came_by[next] = Some((node, directed));
                queue.push_back(next);
            }
        }
    }
    let mut way = Vec::new();
    let mut node = to;
    while node != from {
        let (previous, directed) = came_by[node].expect("the loader refuses a split topology");
        way.push(directed);
        node = previous;
    }
    way.reverse();
    way
}

/// `NAME:a>b`.
pub(super) fn name(topology: &Topology, directed: usize) -> String {
    let link = &topology.links[directed / 2];
    let (from, to) = if directed % 2 == 0 { (link.a, link.b) } else { (link.b, link.a) };
    let node = |n: usize| {
        topology.hosts.get(n).or_else(|| topology.switches.get(n - topology.hosts.len()))
    };
    let text = |n| node(n).map_or("?", String::as_str);
    format!("{}:{}>{}", link.name, text(from), text(to))
}
