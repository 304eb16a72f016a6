//! Equal ways as one: links that share traffic alike are one link to the oracle.
//!
//! Problem   The oracle knows one way per pair; with equal-cost multipath a pair's traffic is on many
//!           links, on each with a part.
//! Approach  The links that packets of an entry may cross as their n-th are one link, as fast as all of
//!           them while they share alike. Entries that may cross the same ones share it.
//! Promises  Exact in leaf-spines and fat trees, where the links that two entries may cross are the
//!           same or have none in common.
//! Not here  Luck: that two flows drawn onto one link get less than this says.

use std::collections::BTreeMap;
use weir_model::scenario::{Scenario, Topology};
use weir_units::Rate;

/// Links of the traffic entries that are more than one at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Bundles {
    /// By traffic entry.
    pub(super) of: Vec<Vec<usize>>,
    /// What each bundle carries while its links share alike.
    pub(super) rates: Vec<Rate>,
    /// The directed links of each bundle, with their parts of what it carries.
    pub(super) links: Vec<Vec<(usize, f64)>>,
}

/// Directed links that each traffic entry crosses with all its traffic, in order, and bundles of those
/// that it crosses with a part.
pub(super) fn routes(scenario: &Scenario) -> (Vec<Vec<usize>>, Bundles) {
    let topology = &scenario.topology;
    let mut bundles = Bundles::default();
    let mut numbers: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    let mut known: BTreeMap<usize, Vec<Vec<_>>> = BTreeMap::new();
    let mut whole = Vec::new();
    for entry in &scenario.traffic {
        let [from, to] = [entry.from, entry.to].map(|vm| scenario.vms[vm].host);
        let routes = known.entry(to).or_insert_with(|| topology.forwarding_to(to));
        let (mut alone, mut shared) = (Vec::new(), Vec::new());
        for stage in topology.stages(routes, from) {
            let links: Vec<(usize, f64)> =
                stage.iter().map(|(l, part)| (l.index(), *part)).collect();
            if let [(link, _)] = links[..] {
                alone.push(link);
                continue;
            }
            let key: Vec<usize> = links.iter().map(|(link, _)| *link).collect();
            let number = *numbers.entry(key).or_insert_with(|| {
                bundles.rates.push(together(topology, &links));
                bundles.links.push(links);
                bundles.rates.len() - 1
            });
            shared.push(number);
        }
        whole.push(alone);
        bundles.of.push(shared);
    }
    (whole, bundles)
}

/// What these links carry while each has its part: as much as fills the first.
fn together(topology: &Topology, links: &[(usize, f64)]) -> Rate {
    let all = links.iter().map(|(link, part)| topology.links[link / 2].rate.scale(1.0 / part));
    all.min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::scenario::File;

    /// Two hosts on each of two leaves under four spines of 100 Mb/s per link.
    fn scenario(ecmp: &str) -> Scenario {
        let text = format!(
            "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: {{duration: 9s, \
             topology: {{leaf-spine: {{leaves: 2, spines: 4, hosts_per_leaf: 2, link: 1G, \
             uplink: 100M, ecmp: {ecmp}}}}}, mechanisms: none, tenants: [{{name: a, vms: [\
             {{name: s, hosts: [host-0-0, host-0-1], count: 2}}, \
             {{name: r, hosts: [host-1-0, host-1-1], count: 2}}]}}], \
             traffic: [{{group: g, from: s-0, to: r-0, tcp: {{}}}}, \
             {{group: g, from: s-1, to: r-1, tcp: {{}}}}, \
             {{group: h, from: s-0, to: s-1, tcp: {{}}}}]}}}}"
        );
        let file = File::parse("t.yaml", &text, &[]).expect("sound");
        file.points().expect("sound").remove(0)
    }

    #[test]
    fn flows_between_two_leaves_share_all_their_spines() {
        let (whole, bundles) = routes(&scenario("flow"));
        assert_eq!(whole.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!(bundles.of, [vec![0, 1], vec![0, 1], vec![]]);
        assert_eq!(bundles.rates, [Rate::from_mbps(400); 2]);
        assert!(bundles.links.iter().all(|links| links.len() == 4 && links[0].1 == 0.25));
        let (whole, bundles) = routes(&scenario("none"));
        assert_eq!(whole.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
        assert!(bundles.rates.is_empty());
    }

    #[test]
    fn the_ideal_gives_them_the_spines_together() {
        for (ecmp, expected) in [("packet", 200e6), ("none", 50e6)] {
            let scenario = scenario(ecmp);
            let ideal = super::super::ideal::Ideal::new(&scenario).expect("it fits");
            let rate = ideal.mean(0.0, 9.0, |solution| solution.rate[0]);
            assert!((rate / expected - 1.0).abs() < 0.01, "{ecmp}: {rate}");
            let spine = scenario.topology.links.iter().position(|l| l.name == "leaf-0-spine-1");
            let carried = ideal.mean(0.0, 9.0, |s| s.carried[2 * spine.expect("a link")]);
            assert_eq!(carried > 0.0, ecmp == "packet", "{carried}");
        }
    }
}
