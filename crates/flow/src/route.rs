//! Shortest paths through an imported topology.
//!
//! Problem   The files of other simulators have nodes and links; flows here have lists of links.
//! Approach  Distances to a destination by breadth-first search, kept; on the way each hop picks one
//!           of the links that lead nearer, by a hash of the flow's number, as ECMP does.
//! Promises  Same number, same path. Only switches forward. All shortest paths occur.
//! Not here  Weights, failures, the hash of any real switch.

use crate::import::{Node, Topology};
use crate::world::World;
use weir_units::SplitMix64;

/// A topology with distances.
#[derive(Clone, Debug)]
pub struct Routes<'a> {
    topology: &'a Topology,
    /// Per node: its links out, as indices.
    out: Vec<Vec<u32>>,
    /// Per node: its links in, as indices.
    into: Vec<Vec<u32>>,
    /// Per destination, once asked for: hops from each node.
    hops: Vec<Option<Box<[u32]>>>,
}

/// Cannot be reached.
const FAR: u32 = u32::MAX;

impl<'a> Routes<'a> {
    /// No distance is known yet.
    pub fn new(topology: &'a Topology) -> Self {
        let nodes = topology.nodes.len();
        let (mut out, mut into) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
        for (number, link) in (0u32..).zip(&topology.links) {
            out[link.from as usize].push(number);
            into[link.to as usize].push(number);
        }
        Self { topology, out, into, hops: vec![None; nodes] }
    }

    /// The topology's links, in its order, as a world without hoses.
    pub fn world(&self) -> World {
        let links = self.topology.links.iter().map(|link| link.rate).collect();
        World { links, hoses: Vec::new() }
    }

    /// Links from node `from` to node `to`, as indices; `choice` picks among shortest paths. `None`
    /// if there is no path. Takes 4 octets per node for each new destination.
    ///
    /// # Panics
    /// There is no such node.
    pub fn path(&mut self, from: u32, to: u32, choice: u64) -> Option<Vec<u32>> {
        let hops = self.hops[to as usize].take().unwrap_or_else(|| self.search(to));
        let path = self.walk(from, &hops, choice);
        self.hops[to as usize] = Some(hops);
        path
    }

    fn search(&self, to: u32) -> Box<[u32]> {
        let mut hops = vec![FAR; self.out.len()].into_boxed_slice();
        hops[to as usize] = 0;
        let (mut queue, mut next) = (vec![to], 0);
        while let Some(&node) = queue.get(next) {
            next += 1;
            if node != to && self.topology.nodes[node as usize] == Node::Host {
                continue;
            }
            for &link in &self.into[node as usize] {
                let before = self.topology.links[link as usize].from;
                if hops[before as usize] == FAR {
                    hops[before as usize] = hops[node as usize] + 1;
                    queue.push(before);
                }
            }
        }
        hops
    }

    fn walk(&self, from: u32, hops: &[u32], choice: u64) -> Option<Vec<u32>> {
        let mut left = Some(hops[from as usize]).filter(|&left| left != FAR)?;
        let (mut node, mut path) = (from, Vec::with_capacity(left as usize));
        while left > 0 {
            left -= 1;
            // A host that is nearer is no way, unless it is the end.
            let nearer = |link: &&u32| {
                let to = self.topology.links[**link as usize].to;
                let forwards = left == 0 || self.topology.nodes[to as usize] == Node::Switch;
                hops[to as usize] == left && forwards
            };
            let ways = self.out[node as usize].iter().filter(nearer);
            let count = ways.clone().count() as u64;
            let pick =
                SplitMix64::mix(choice ^ SplitMix64::mix(u64::from(node))).checked_rem(count)?;
            let link = *ways.clone().nth(pick as usize)?;
            path.push(link);
            node = self.topology.links[link as usize].to;
        }
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::hpcc_topology;
    use std::collections::BTreeSet;

    /// Hosts 0 and 1; switches 2, 3, 4, 5: 0 - 2 - {3, 4} - 5 - 1. Host 6 between 2 and 5.
    const DIAMOND: &str = "7 4 8\n2 3 4 5\n0 2 1Gbps 1us 0\n2 3 1Gbps 1us 0\n2 4 1Gbps 1us 0\n\
        3 5 1Gbps 1us 0\n4 5 1Gbps 1us 0\n5 1 1Gbps 1us 0\n2 6 1Gbps 1us 0\n6 5 1Gbps 1us 0\n";

    #[test]
    fn all_shortest_paths_occur_and_none_leads_through_a_host() {
        let (topology, _) = hpcc_topology("t", DIAMOND).expect("right");
        let mut routes = Routes::new(&topology);
        let paths: BTreeSet<Vec<u32>> =
            (0..50).map(|choice| routes.path(0, 1, choice).expect("connected")).collect();
        assert_eq!(paths, BTreeSet::from([vec![0, 2, 6, 10], vec![0, 4, 8, 10]]));
        assert_eq!(routes.path(0, 6, 0), Some(vec![0, 12]));
        assert_eq!(routes.path(3, 3, 0), Some(vec![]));
        assert_eq!(routes.world().links.len(), 16);
    }

    #[test]
    fn what_is_not_connected_has_no_path() {
        let (topology, _) = hpcc_topology("t", "3 0 1\n0 1 1Gbps 1us 0\n").expect("right");
        assert_eq!(Routes::new(&topology).path(0, 2, 0), None);
    }
}
