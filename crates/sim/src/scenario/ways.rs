//! Paths of packets between two hosts of a scenario.
//!
//! Approach  Each node forwards by destination: into one link or, if equal paths are used, into one
//!           of several. A path is drawn link by link; all paths are listed in the order of their
//!           links.
//! Promises  The same seed draws the same paths.

use crate::rng::Rng;
use weir_model::scenario::{LinkDir, Topology};
use weir_units::SortedMap;

/// Most paths that are listed. If there are more, packets take these in turn.
const LISTED: usize = 256;

/// The ways of a topology.
pub(super) struct Ways<'a> {
    topology: &'a Topology,
    /// By destination.
    routes: SortedMap<usize, Vec<Vec<LinkDir>>>,
}

impl<'a> Ways<'a> {
    pub(super) fn new(topology: &'a Topology) -> Self {
        Self { topology, routes: SortedMap::new() }
    }

    /// One way, drawn if there are several.
    pub(super) fn draw(&mut self, from: usize, to: usize, rng: &mut Rng) -> Vec<u32> {
        let topology = self.topology;
        let routes = self.to(to);
        let (mut way, mut node) = (Vec::new(), from);
        loop {
            let link = match routes[node][..] {
                [] => return way,
                [one] => one,
                ref several => several[(rng.next() % several.len() as u64) as usize],
            };
            way.push(link.index() as u32);
            node = link.to(topology);
        }
    }

    /// All ways, or the first of very many.
    pub(super) fn all(&mut self, from: usize, to: usize) -> Vec<Vec<u32>> {
        let topology = self.topology;
        let routes = self.to(to);
        let mut ways = vec![(from, Vec::new())];
        while ways.iter().any(|(node, _)| *node != to) {
            let longer = |(node, way): (usize, Vec<u32>)| {
                routes[node].iter().map(move |link| {
                    (link.to(topology), [&way[..], &[link.index() as u32]].concat())
                })
            };
            ways = ways.into_iter().flat_map(longer).take(LISTED).collect();
        }
        ways.into_iter().map(|(_, way)| way).collect()
    }

    fn to(&mut self, to: usize) -> &[Vec<LinkDir>] {
        self.routes.entry(to).or_insert_with(|| self.topology.forwarding_to(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::scenario::File;

    fn topology(text: &str) -> Topology {
        let text = format!(
            "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: {{duration: 9s, \
             topology: {text}, tenants: [{{name: a, vms: [{{name: v, host: host-0-0-0}}]}}], \
             mechanisms: none}}}}"
        );
        let file = File::parse("t.yaml", &text, &[]).expect("sound");
        file.points().expect("sound").remove(0).topology
    }

    fn host(topology: &Topology, name: &str) -> usize {
        topology.hosts.iter().position(|host| host == name).expect("a host")
    }

    #[test]
    fn a_fat_tree_has_a_way_for_each_core_and_flows_are_drawn_over_all() {
        let tree = topology("{fat-tree: {k: 4, link: 1G}}");
        let mut ways = Ways::new(&tree);
        let ends = ["host-0-0-0", "host-3-1-1", "host-0-1-0", "host-0-0-1"].map(|n| host(&tree, n));
        let all = ways.all(ends[0], ends[1]);
        assert_eq!((all.len(), all.iter().all(|way| way.len() == 6)), (4, true));
        assert_eq!(ways.all(ends[0], ends[2]).len(), 2, "within a pod");
        assert_eq!(ways.all(ends[0], ends[3]).len(), 1, "under one switch");
        let mut seen = [0; 4];
        let mut rng = Rng::new(3, 3);
        for _ in 0..4000 {
            let drawn = ways.draw(ends[0], ends[1], &mut rng);
            seen[all.iter().position(|way| *way == drawn).expect("one of them")] += 1;
        }
        assert!(seen.iter().all(|n| (900..1100).contains(n)), "{seen:?}");
        let alone = topology("{fat-tree: {k: 4, link: 1G, ecmp: none}}");
        assert_eq!(Ways::new(&alone).all(ends[0], ends[1]), all[..1]);
    }
}
