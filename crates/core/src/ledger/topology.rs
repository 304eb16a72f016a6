//! Hosts, switches and links, as the ledger knows them.

use std::fmt;
use weir_units::{HostId, Rate};

/// A switch: its index in [`Topology::switches`].
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
pub struct SwitchId(pub u32);

/// A link: its index in [`Topology::links`].
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
pub struct LinkId(pub u32);

/// One end of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Node {
    /// A host: its index in [`Topology::hosts`].
    Host(HostId),
    /// A switch.
    Switch(SwitchId),
}

/// A direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From `a` to `b`.
    Forward,
    /// From `b` to `a`.
    Backward,
}

/// A host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// The name that people gave it.
    pub name: String,
    /// VM slots.
    pub slots: u32,
}

/// A switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switch {
    /// The name that people gave it.
    pub name: String,
    /// 1 above hosts, 2 above racks, and so on. Unused with [`Exploration::Paths`].
    pub layer: u8,
}

/// A cable, or several that count as one (a generalized link, ElasticSwitch §9): traffic is spread
/// evenly over the members, so that it carries `members` × `rate` in each direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The name that people gave it.
    pub name: String,
    /// The end that [`Direction::Forward`] leaves.
    pub a: Node,
    /// The other end.
    pub b: Node,
    /// Rate of the slowest member.
    pub rate: Rate,
    /// Number of members, 1 or more.
    pub members: u16,
}

/// How tenant routings are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exploration {
    /// By layers: a routing is a switch with the hosts that its downward links reach (QShare §4.1).
    Layers,
    /// Any graph: for each switch up to `k` trees of shortest paths from the hosts (QShare §4.1,
    /// "Random Topology"). `k` = 1 gives one tree per switch.
    Paths {
        /// Trees per root. More trees accept more tenants, and take more memory.
        k: u8,
    },
}

/// A datacenter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// All hosts; [`HostId`] is the index.
    pub hosts: Vec<Host>,
    /// All switches.
    pub switches: Vec<Switch>,
    /// All links.
    pub links: Vec<Link>,
    /// Switches behind which everything outside lies. Floors to the outside reach one of them.
    pub gateways: Vec<SwitchId>,
    /// How tenant routings are found.
    pub exploration: Exploration,
}

/// Why a topology is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TopologyError {
    /// An end of the link does not exist.
    NoSuchNode {
        /// The link's name.
        link: String,
    },
    /// Both ends are hosts, or the same switch.
    BadEnds {
        /// The link's name.
        link: String,
    },
    /// The link has no rate or no member.
    NoCapacity {
        /// The link's name.
        link: String,
    },
    /// The host has no link.
    Unconnected {
        /// The host's name.
        host: String,
    },
    /// A gateway that is no switch of the topology.
    NoSuchGateway(SwitchId),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchNode { link } => write!(f, "an end of link `{link}` does not exist"),
            Self::BadEnds { link } => {
                write!(f, "link `{link}` must join a host and a switch, or two switches")
            }
            Self::NoCapacity { link } => write!(f, "link `{link}` has no rate or no member"),
            Self::Unconnected { host } => write!(f, "host `{host}` has no link"),
            Self::NoSuchGateway(switch) => write!(f, "gateway {} does not exist", switch.0),
        }
    }
}

impl std::error::Error for TopologyError {}

/// A fat tree's shape (Al-Fares et al., SIGCOMM 2008).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FatTreeShape {
    /// Ports per switch: even. Has k³/4 hosts.
    pub k: u32,
    /// VM slots per host.
    pub slots: u32,
    /// Rate of hosts' links.
    pub host_rate: Rate,
    /// Rate of links between switches.
    pub port_rate: Rate,
    /// Uplinks in use per edge switch, 1 to k/2.
    pub edge_uplinks: u32,
    /// Uplinks in use per aggregation switch, 1 to k/2.
    pub aggregation_uplinks: u32,
    /// Switches spread packets over all equal paths: parallel uplinks are one generalized link.
    /// Else each tenant is confined to one tree (QShare).
    pub spread: bool,
}

/// A leaf-spine network's shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafSpineShape {
    /// Number of leaves.
    pub leaves: u32,
    /// Number of spines.
    pub spines: u32,
    /// Hosts below each leaf.
    pub hosts_per_leaf: u32,
    /// VM slots per host.
    pub slots: u32,
    /// Rate of hosts' links.
    pub host_rate: Rate,
    /// Rate of each link from a leaf to a spine.
    pub uplink_rate: Rate,
    /// Whether the spines count as one: see [`FatTreeShape::spread`].
    pub spread: bool,
}

/// Collects nodes and links.
#[derive(Default)]
struct Builder {
    hosts: Vec<Host>,
    switches: Vec<Switch>,
    links: Vec<Link>,
}

impl Builder {
    fn host(&mut self, slots: u32, below: Node, rate: Rate) {
        let id = HostId(self.hosts.len() as u32);
        let name = format!("host-{}", id.0);
        self.links.push(Link {
            name: format!("{name}-up"),
            a: Node::Host(id),
            b: below,
            rate,
            members: 1,
        });
        self.hosts.push(Host { name, slots });
    }

    fn switch(&mut self, name: String, layer: u8) -> Node {
        self.switches.push(Switch { name, layer });
        Node::Switch(SwitchId(self.switches.len() as u32 - 1))
    }

    fn link(&mut self, a: Node, b: Node, rate: Rate, members: u32) {
        let of = |node: Node, s: &Self| match node {
            Node::Host(h) => s.hosts[h.0 as usize].name.clone(),
            Node::Switch(w) => s.switches[w.0 as usize].name.clone(),
        };
        let name = format!("{}-{}", of(a, self), of(b, self));
        self.links.push(Link { name, a, b, rate, members: members as u16 });
    }

    fn finish(self) -> Topology {
        let top = self.switches.iter().map(|s| s.layer).max().unwrap_or(0);
        let gateways = (0..self.switches.len() as u32).map(SwitchId);
        let gateways = gateways.filter(|s| self.switches[s.0 as usize].layer == top).collect();
        Topology {
            hosts: self.hosts,
            switches: self.switches,
            links: self.links,
            gateways,
            exploration: Exploration::Layers,
        }
    }
}

impl Topology {
    /// Racks below one root. The root is the gateway.
    pub fn two_tier(
        racks: u32,
        hosts_per_rack: u32,
        slots: u32,
        host_rate: Rate,
        uplink: Rate,
    ) -> Self {
        Self::tree(&[racks, hosts_per_rack], slots, &[uplink, host_rate])
    }

    /// A tree: `fan_out[0]` children of the root, each with `fan_out[1]` children, and so on down to
    /// hosts; `rates[i]` is the rate of the links above the nodes of `fan_out[i]`.
    ///
    /// # Panics
    /// The lists are empty or differ in length.
    pub fn tree(fan_out: &[u32], slots: u32, rates: &[Rate]) -> Self {
        assert!(!fan_out.is_empty() && fan_out.len() == rates.len(), "a rate for each level");
        let mut builder = Builder::default();
        let depth = fan_out.len();
        let mut above = vec![builder.switch("root".to_owned(), depth as u8)];
        for (level, (&children, &rate)) in fan_out.iter().zip(rates).enumerate() {
            let mut here = Vec::new();
            for parent in above {
                for _ in 0..children {
                    if level + 1 == depth {
                        builder.host(slots, parent, rate);
                    } else {
                        let layer = (depth - level - 1) as u8;
                        let name = format!("switch-{layer}-{}", here.len());
                        let child = builder.switch(name, layer);
                        builder.link(child, parent, rate, 1);
                        here.push(child);
                    }
                }
            }
            above = here;
        }
        builder.finish()
    }

    /// A leaf-spine network. The spines are gateways.
    pub fn leaf_spine(shape: LeafSpineShape) -> Self {
        let mut builder = Builder::default();
        let spines = if shape.spread { 1 } else { shape.spines };
        let members = if shape.spread { shape.spines } else { 1 };
        let leaves: Vec<Node> =
            (0..shape.leaves).map(|leaf| builder.switch(format!("leaf-{leaf}"), 1)).collect();
        let spines: Vec<Node> =
            (0..spines).map(|spine| builder.switch(format!("spine-{spine}"), 2)).collect();
        for &leaf in &leaves {
            (0..shape.hosts_per_leaf)
                .for_each(|_| builder.host(shape.slots, leaf, shape.host_rate));
        }
        for &leaf in &leaves {
            for &spine in &spines {
                builder.link(leaf, spine, shape.uplink_rate, members);
            }
        }
        builder.finish()
    }

    /// A fat tree. Core switches are gateways.
    ///
    /// # Panics
    /// `k` is odd or less than 2, or more uplinks are in use than there are.
    pub fn fat_tree(shape: FatTreeShape) -> Self {
        let half = shape.k / 2;
        assert!(shape.k >= 2 && shape.k.is_multiple_of(2), "an even number of ports");
        let within = |n: u32| (1..=half).contains(&n);
        assert!(within(shape.edge_uplinks) && within(shape.aggregation_uplinks), "ports exist");
        let (planes, members) =
            if shape.spread { (1, shape.edge_uplinks) } else { (shape.edge_uplinks, 1) };
        let per_plane = if shape.spread { 1 } else { shape.aggregation_uplinks };
        let core_members =
            if shape.spread { shape.edge_uplinks * shape.aggregation_uplinks } else { 1 };
        let mut builder = Builder::default();
        let cores: Vec<Node> =
            (0..planes * per_plane).map(|c| builder.switch(format!("core-{c}"), 3)).collect();
        for pod in 0..shape.k {
            let aggregations: Vec<Node> =
                (0..planes).map(|a| builder.switch(format!("agg-{pod}-{a}"), 2)).collect();
            for edge in 0..half {
                let rack = builder.switch(format!("edge-{pod}-{edge}"), 1);
                (0..half).for_each(|_| builder.host(shape.slots, rack, shape.host_rate));
                for &aggregation in &aggregations {
                    builder.link(rack, aggregation, shape.port_rate, members);
                }
            }
            for (plane, &aggregation) in aggregations.iter().enumerate() {
                for core in cores.iter().skip(plane * per_plane as usize).take(per_plane as usize) {
                    builder.link(aggregation, *core, shape.port_rate, core_members);
                }
            }
        }
        builder.finish()
    }

    /// Whether every index exists, every link carries something, and every host has a link.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn check(&self) -> Result<(), TopologyError> {
        let exists = |node: Node| match node {
            Node::Host(h) => (h.0 as usize) < self.hosts.len(),
            Node::Switch(s) => (s.0 as usize) < self.switches.len(),
        };
        let mut connected = vec![false; self.hosts.len()];
        for link in &self.links {
            let name = || link.name.clone();
            if !exists(link.a) || !exists(link.b) {
                return Err(TopologyError::NoSuchNode { link: name() });
            }
            if link.a == link.b || matches!((link.a, link.b), (Node::Host(_), Node::Host(_))) {
                return Err(TopologyError::BadEnds { link: name() });
            }
            if link.rate.is_zero() || link.members == 0 {
                return Err(TopologyError::NoCapacity { link: name() });
            }
            for node in [link.a, link.b] {
                if let Node::Host(h) = node {
                    connected[h.0 as usize] = true;
                }
            }
        }
        if let Some(host) = connected.iter().position(|c| !c) {
            return Err(TopologyError::Unconnected { host: self.hosts[host].name.clone() });
        }
        let missing = |s: &&SwitchId| s.0 as usize >= self.switches.len();
        self.gateways.iter().find(missing).map_or(Ok(()), |s| Err(TopologyError::NoSuchGateway(*s)))
    }

    /// `NAME:a>b` with the names of the nodes.
    ///
    /// # Panics
    /// There is no such link.
    pub fn direction_name(&self, link: LinkId, direction: Direction) -> String {
        let link = &self.links[link.0 as usize];
        let name = |node: Node| match node {
            Node::Host(h) => &self.hosts[h.0 as usize].name,
            Node::Switch(s) => &self.switches[s.0 as usize].name,
        };
        let (from, to) = match direction {
            Direction::Forward => (link.a, link.b),
            Direction::Backward => (link.b, link.a),
        };
        format!("{}:{}>{}", link.name, name(from), name(to))
    }
}
