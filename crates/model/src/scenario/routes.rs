//! Which way packets go: shortest paths, hosts never in the middle.
//!
//! Problem   Admission, the oracle, the simulator and the lab's static routes must agree on every
//!           path.
//! Approach  Breadth first from the destination; among equals the link that comes first in the file
//!           or, if the topology says so, all of them alike.
//! Promises  A node's next hops depend on the destination alone, and paths have no loops.

use super::{Ecmp, Scenario, Topology};
use std::collections::{BTreeMap, VecDeque};

/// One direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkDir {
    /// Index into `topology.links`.
    pub link: usize,
    /// `false`: from `a` to `b`; `true`: from `b` to `a`.
    pub reverse: bool,
}

impl LinkDir {
    /// Position among all directions: two per link, `a>b` first. Results list links in this order.
    pub const fn index(self) -> usize {
        2 * self.link + self.reverse as usize
    }

    /// The direction with this [`index`](Self::index).
    pub const fn from_index(index: usize) -> Self {
        Self { link: index / 2, reverse: index % 2 == 1 }
    }

    /// The node that sends into it.
    pub fn from(self, topology: &Topology) -> usize {
        let link = &topology.links[self.link];
        if self.reverse { link.b } else { link.a }
    }

    /// The node that receives from it.
    pub fn to(self, topology: &Topology) -> usize {
        let link = &topology.links[self.link];
        if self.reverse { link.a } else { link.b }
    }

    /// `NAME:a>b` with the names of the nodes.
    pub fn name(self, topology: &Topology) -> String {
        let (from, to) = (self.from(topology), self.to(topology));
        let link = &topology.links[self.link].name;
        format!("{link}:{}>{}", topology.node_name(from), topology.node_name(to))
    }
}

impl Topology {
    /// Number of nodes: hosts first, then switches.
    pub fn nodes(&self) -> usize {
        self.hosts.len() + self.switches.len()
    }

    /// Name of the host or switch with this node index. Panics if there is none.
    pub fn node_name(&self, node: usize) -> &str {
        match node.checked_sub(self.hosts.len()) {
            None => &self.hosts[node],
            Some(switch) => &self.switches[switch],
        }
    }

    /// For each node the link it sends packets for `host` into; `None` for `host` itself and for
    /// nodes that cannot reach it. Shortest paths; among equals the link that comes first in the
    /// file. Forwarding by destination, as static routes do it. Hosts do not forward for others.
    pub fn routes_to(&self, host: usize) -> Vec<Option<LinkDir>> {
        self.equal_routes_to(host).iter().map(|links| links.first().copied()).collect()
    }

    /// For each node all links that it may send packets for `host` into: one, or all on shortest
    /// paths if equal ways are used.
    pub fn forwarding_to(&self, host: usize) -> Vec<Vec<LinkDir>> {
        let mut routes = self.equal_routes_to(host);
        if self.ecmp.is_none() {
            routes.iter_mut().for_each(|links| links.truncate(1));
        }
        routes
    }

    /// For each node all links on shortest paths to `host`, in the file's order.
    fn equal_routes_to(&self, host: usize) -> Vec<Vec<LinkDir>> {
        let mut ways = vec![Vec::new(); self.nodes()];
        for (index, link) in self.links.iter().enumerate() {
            ways[link.a].push((LinkDir { link: index, reverse: true }, link.b));
            ways[link.b].push((LinkDir { link: index, reverse: false }, link.a));
        }
        let mut distance = vec![usize::MAX; self.nodes()];
        let mut routes: Vec<Vec<LinkDir>> = vec![Vec::new(); self.nodes()];
        distance[host] = 0;
        let mut queue = VecDeque::from([host]);
        while let Some(node) = queue.pop_front() {
            if node != host && node < self.hosts.len() {
                continue;
            }
            for &(toward_node, neighbour) in &ways[node] {
                let longer = distance[node] + 1;
                if longer < distance[neighbour] {
                    distance[neighbour] = longer;
                    routes[neighbour].push(toward_node);
                    queue.push_back(neighbour);
                } else if longer == distance[neighbour] {
                    routes[neighbour].push(toward_node);
                }
            }
        }
        routes.iter_mut().for_each(|links| links.sort_unstable());
        routes
    }

    /// What of the traffic from a node to a host crosses each link if every node uses its links
    /// alike, or in proportion to their rates if hosts choose ([`Ecmp::Host`]): the links that
    /// packets may cross first, those they may cross second, and so on, each with its part of one.
    /// Links of one step are one generalized link (ElasticSwitch §9). `routes` are as
    /// [`forwarding_to`](Self::forwarding_to) gives them.
    pub fn stages(&self, routes: &[Vec<LinkDir>], from: usize) -> Vec<Vec<(LinkDir, f64)>> {
        let mut stages = Vec::new();
        let mut here = BTreeMap::from([(from, 1.0)]);
        loop {
            let (mut stage, mut next) = (Vec::new(), BTreeMap::new());
            for (&node, part) in &here {
                let links = &routes[node];
                let rate = |link: &LinkDir| match self.ecmp {
                    Some(Ecmp::Host) => self.links[link.link].rate.as_f64(),
                    _ => 1.0,
                };
                let all: f64 = links.iter().map(rate).sum();
                for &link in links {
                    let part = part * rate(&link) / all;
                    stage.push((link, part));
                    *next.entry(link.to(self)).or_insert(0.0) += part;
                }
            }
            if stage.is_empty() {
                return stages;
            }
            stages.push(stage);
            here = next;
        }
    }

    /// Follows `routes`, as [`routes_to`](Self::routes_to) gives them, from a node to their host.
    pub(crate) fn follow(&self, routes: &[Option<LinkDir>], from: usize) -> Vec<LinkDir> {
        let mut path = Vec::new();
        let mut node = from;
        while let Some(step) = routes[node] {
            path.push(step);
            node = step.to(self);
        }
        path
    }
}

impl Scenario {
    /// The directed links from one host to another (indices into `topology.hosts`), first to last;
    /// empty within one host. For many paths to one host, [`Topology::routes_to`] is cheaper.
    pub fn path(&self, from_host: usize, to_host: usize) -> Vec<LinkDir> {
        self.topology.follow(&self.topology.routes_to(to_host), from_host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Link;
    use weir_units::{Bytes, Rate, Span};

    fn link(name: &str, a: usize, b: usize) -> Link {
        let (rate, buffer) = (Rate::from_mbps(1), Bytes::new(1));
        Link {
            name: name.into(),
            a,
            b,
            rate,
            buffer,
            delay: Span::ZERO,
            queueing: Default::default(),
        }
    }

    /// Two hosts (0, 1), switches 2 and 3 between them, and two equal links between the switches.
    fn topology() -> Topology {
        Topology {
            hosts: vec!["h0".into(), "h1".into()],
            switches: vec!["s0".into(), "s1".into()],
            links: vec![
                link("up", 0, 2),
                link("core", 3, 2),
                link("spare", 2, 3),
                link("down", 1, 3),
            ],
            ecmp: None,
        }
    }

    #[test]
    fn equal_ways_are_used_alike_if_the_topology_says_so() {
        let mut topology = topology();
        let stages = |topology: &Topology| -> Vec<Vec<(String, f64)>> {
            let named = |(link, part): (LinkDir, f64)| (link.name(topology), part);
            let stages = topology.stages(&topology.forwarding_to(1), 0);
            stages.into_iter().map(|stage| stage.into_iter().map(named).collect()).collect()
        };
        let one = |name: &str, part: f64| (name.to_owned(), part);
        let (up, down) = (vec![one("up:h0>s0", 1.0)], vec![one("down:s1>h1", 1.0)]);
        let core = vec![one("core:s0>s1", 1.0)];
        assert_eq!(stages(&topology), [up.clone(), core, down.clone()]);
        topology.ecmp = Some(Ecmp::Packet);
        let both = vec![one("core:s0>s1", 0.5), one("spare:s0>s1", 0.5)];
        assert_eq!(stages(&topology), [up.clone(), both, down.clone()]);
        // Hosts may put three quarters on the faster one, where switches would put half.
        topology.links[2].rate = Rate::from_mbps(3);
        topology.ecmp = Some(Ecmp::Host);
        let both = vec![one("core:s0>s1", 0.25), one("spare:s0>s1", 0.75)];
        assert_eq!(stages(&topology), [up, both, down]);
        assert!(topology.stages(&topology.forwarding_to(0), 0).is_empty());
        assert_eq!(topology.routes_to(1)[2].map(|link| link.link), Some(1), "the first, as ever");
    }

    #[test]
    fn a_path_has_directions_and_takes_the_first_of_equal_links() {
        let topology = topology();
        let names = |from: usize, to: usize| -> Vec<String> {
            let path = topology.follow(&topology.routes_to(to), from);
            path.iter().map(|step| step.name(&topology)).collect()
        };
        assert_eq!(names(0, 1), ["up:h0>s0", "core:s0>s1", "down:s1>h1"]);
        assert_eq!(names(1, 0), ["down:h1>s1", "core:s1>s0", "up:s0>h0"]);
        assert!(names(0, 0).is_empty());
    }

    #[test]
    fn a_host_does_not_forward() {
        let mut topology = topology();
        topology.hosts.push("middle".into());
        topology.links = vec![link("a", 0, 2), link("b", 1, 2)];
        // Nodes moved by one: the third host stands between the others.
        assert_eq!(topology.routes_to(1)[0], None);
    }

    #[test]
    fn a_direction_and_its_index_are_one_to_one() {
        for index in 0..8 {
            assert_eq!(LinkDir::from_index(index).index(), index);
        }
    }
}
