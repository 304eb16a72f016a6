//! Tenant routings: the trees that may confine a tenant, found once per topology.
//!
//! Approach  Trees hold switches only; a host hangs on the first of its links whose switch is in the
//!           tree. Trees with the same hosts share one group, in which hosts are ordered by free
//!           slots. This is the cache of topology searches that QShare §4.2 speaks of.

use super::topology::{Exploration, LinkId, Node, Topology};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// No node, no host.
pub(crate) const NONE: u32 = u32::MAX;

/// A switch in a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeNode {
    pub(crate) switch: u32,
    /// Index of the node above; [`NONE`] at the root.
    pub(crate) parent: u32,
    /// The link to the node above.
    pub(crate) link: u32,
    /// Whether `a` of that link is below.
    pub(crate) is_forward_up: bool,
    /// Whether the tree's gateway is at this node or below.
    pub(crate) is_above_gateway: bool,
}

/// A tree of switches; nodes come after their parents.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) rank: u8,
    /// Index into [`Shape::groups`].
    pub(crate) group: u32,
    pub(crate) has_gateway: bool,
    /// The node of its gateway, if it has one.
    pub(crate) gateway: u32,
    pub(crate) nodes: Vec<TreeNode>,
    /// Switch and index of its node, by switch.
    by_switch: Vec<(u32, u32)>,
}

impl Tree {
    /// Index of the switch's node.
    pub(crate) fn node_of(&self, switch: u32) -> Option<u32> {
        let found = self.by_switch.binary_search_by_key(&switch, |(s, _)| *s);
        found.ok().map(|i| self.by_switch[i].1)
    }

    pub(crate) fn root(&self) -> u32 {
        self.nodes[0].switch
    }
}

/// A host's link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) link: u32,
    pub(crate) switch: u32,
    /// Whether the host is `a`.
    pub(crate) is_forward_up: bool,
}

/// A topology and its trees. Never changes.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) topology: Topology,
    /// Per host.
    pub(crate) ports: Vec<Vec<Port>>,
    /// By layer, then by root.
    pub(crate) trees: Vec<Tree>,
    /// Ends of the layers in `trees`.
    pub(crate) layers: Vec<usize>,
    /// Hosts of each group, ascending.
    pub(crate) groups: Vec<Vec<u32>>,
    /// Groups of each host.
    pub(crate) groups_of: Vec<Vec<u32>>,
}

/// A way from a node: link, whether it leaves `a`, the other switch.
type Way = (u32, bool, u32);

impl Shape {
    /// With links that drain, any graph has trees without these, and after them those with them.
    pub(crate) fn new(topology: Topology, draining: &[LinkId]) -> Self {
        let mut ports = vec![Vec::new(); topology.hosts.len()];
        let mut ways: Vec<Vec<Way>> = vec![Vec::new(); topology.switches.len()];
        for (link, l) in (0u32..).zip(&topology.links) {
            match (l.a, l.b) {
                (Node::Host(h), Node::Switch(s)) => {
                    ports[h.0 as usize].push(Port { link, switch: s.0, is_forward_up: true });
                }
                (Node::Switch(s), Node::Host(h)) => {
                    ports[h.0 as usize].push(Port { link, switch: s.0, is_forward_up: false });
                }
                (Node::Switch(a), Node::Switch(b)) => {
                    ways[a.0 as usize].push((link, true, b.0));
                    ways[b.0 as usize].push((link, false, a.0));
                }
                (Node::Host(_), Node::Host(_)) => unreachable!("`Topology::check` refuses this"),
            }
        }
        let mut shape = Self {
            ports,
            trees: Vec::new(),
            layers: Vec::new(),
            groups: Vec::new(),
            groups_of: vec![Vec::new(); topology.hosts.len()],
            topology,
        };
        shape.grow(&ways, draining);
        shape
    }

    fn grow(&mut self, ways: &[Vec<Way>], draining: &[LinkId]) {
        let mut at: Vec<Vec<u32>> = vec![Vec::new(); self.topology.switches.len()];
        for (host, ports) in (0u32..).zip(&self.ports) {
            ports.iter().for_each(|port| at[port.switch as usize].push(host));
        }
        let mut groups = BTreeMap::new();
        let switches = 0..self.topology.switches.len() as u32;
        let layer = |s: u32| self.topology.switches[s as usize].layer;
        let mut rounds: Vec<(u8, Vec<Vec<TreeNode>>)> = Vec::new();
        match self.topology.exploration {
            Exploration::Layers => {
                let mut layers: Vec<u8> = self.topology.switches.iter().map(|s| s.layer).collect();
                layers.sort_unstable();
                layers.dedup();
                for wanted in layers {
                    let roots = switches.clone().filter(|s| layer(*s) == wanted);
                    let down = |from: u32, to: u32| layer(to) < layer(from);
                    rounds
                        .push((0, roots.map(|root| breadth_first(ways, root, 0, down)).collect()));
                }
            }
            Exploration::Paths { k } => {
                let k = k.max(1);
                let mut open = ways.to_vec();
                let drains = |way: &Way| draining.contains(&LinkId(way.0));
                open.iter_mut().for_each(|ways| ways.retain(|way| !drains(way)));
                let all = if draining.is_empty() { 0..0 } else { 0..k };
                let rounds_of =
                    (0..k).map(|n| (n, n, &open[..])).chain(all.map(|n| (k + n, n, ways)));
                for (rank, n, ways) in rounds_of {
                    let tree = |root| breadth_first(ways, root, n, |_, _| true);
                    rounds.push((rank, switches.clone().map(tree).collect()));
                }
            }
        }
        let mut seen: BTreeSet<Vec<(u32, u32)>> = BTreeSet::new();
        for (rank, round) in rounds {
            for nodes in round {
                let links = nodes.iter().map(|n| (n.switch, n.link)).collect();
                if rank > 0 && seen.contains(&links) {
                    continue;
                }
                if matches!(self.topology.exploration, Exploration::Paths { .. }) {
                    seen.insert(links);
                }
                self.add_tree(nodes, rank, &at, &mut groups);
            }
            self.layers.push(self.trees.len());
        }
    }

    fn add_tree(
        &mut self,
        mut nodes: Vec<TreeNode>,
        rank: u8,
        at: &[Vec<u32>],
        groups: &mut BTreeMap<Vec<u32>, u32>,
    ) {
        let mut hosts: Vec<u32> =
            nodes.iter().flat_map(|n| at[n.switch as usize].iter().copied()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        if hosts.is_empty() {
            return;
        }
        let is_gateway = |s: u32| self.topology.gateways.iter().any(|gateway| gateway.0 == s);
        let gateway = nodes.iter().position(|n| is_gateway(n.switch));
        let mut here = gateway.map_or(NONE, |i| i as u32);
        while here != NONE {
            nodes[here as usize].is_above_gateway = true;
            here = nodes[here as usize].parent;
        }
        let group = *groups.entry(hosts).or_insert_with_key(|hosts| {
            let group = self.groups.len() as u32;
            hosts.iter().for_each(|h| self.groups_of[*h as usize].push(group));
            self.groups.push(hosts.clone());
            group
        });
        let mut by_switch: Vec<(u32, u32)> = nodes.iter().map(|n| n.switch).zip(0..).collect();
        by_switch.sort_unstable();
        self.trees.push(Tree {
            rank,
            group,
            has_gateway: gateway.is_some(),
            gateway: gateway.map_or(NONE, |i| i as u32),
            nodes,
            by_switch,
        });
    }

    /// The host's link in a tree, and the tree's node above it.
    pub(crate) fn port_in(&self, tree: &Tree, host: u32) -> Option<(Port, u32)> {
        self.ports[host as usize]
            .iter()
            .find_map(|port| tree.node_of(port.switch).map(|node| (*port, node)))
    }

    /// Trees of a layer.
    pub(crate) fn layer(&self, layer: usize) -> std::ops::Range<usize> {
        let begin = layer.checked_sub(1).map_or(0, |below| self.layers[below]);
        begin..self.layers[layer]
    }
}

/// The tree of shortest paths to `root`. Among equally short ways a node takes the `rank`-th, in the
/// order of links, wrapping around. Ways are taken where `may(from, to)`, seen from the root.
fn breadth_first(
    ways: &[Vec<Way>],
    root: u32,
    rank: u8,
    may: impl Fn(u32, u32) -> bool,
) -> Vec<TreeNode> {
    let mut distance = BTreeMap::from([(root, 0u32)]);
    let mut order = VecDeque::from([root]);
    // Equally short ways up, per switch.
    let mut up: BTreeMap<u32, Vec<Way>> = BTreeMap::new();
    let mut sequence = vec![root];
    while let Some(here) = order.pop_front() {
        let longer = distance[&here] + 1;
        for &(link, is_from_a, there) in &ways[here as usize] {
            if !may(here, there) {
                continue;
            }
            let known = distance.get(&there).copied();
            if known.is_none() {
                distance.insert(there, longer);
                order.push_back(there);
                sequence.push(there);
            }
            if known.is_none_or(|d| d == longer) {
                up.entry(there).or_default().push((link, !is_from_a, here));
            }
        }
    }
    let index: BTreeMap<u32, u32> = sequence.iter().copied().zip(0..).collect();
    let node = |switch: &u32| {
        let (link, is_forward_up, parent) = up.get(switch).map_or((NONE, true, NONE), |ways| {
            let (link, forward, above) = ways[usize::from(rank) % ways.len()];
            (link, forward, index[&above])
        });
        TreeNode { switch: *switch, parent, link, is_forward_up, is_above_gateway: false }
    };
    sequence.iter().map(node).collect()
}
