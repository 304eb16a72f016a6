//! The ways of tenants' traffic: every link, and each tenant's tree over them.
//!
//! Approach  A copy of what the ledger has: looking at all pairs must not keep the ledger busy.
//! Promises  A way in a tree is the only one, so it needs no search: both ends climb until they meet.

use super::State;
use super::book::Book;
use std::collections::BTreeMap;
use weir_core::ledger::{Direction, LinkId, Node, SwitchId};
use weir_model::objects::TreeName;
use weir_units::Rate;

/// A link in one direction: 2 × its number, and 1 more for the way down.
pub(crate) type LinkWay = usize;

/// All links and trees, as they are now.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// Name and rate of each link.
    pub(crate) links: Vec<(String, Rate)>,
    /// By host: its link, and the switch at the other end.
    hosts: BTreeMap<String, (LinkId, SwitchId)>,
    trees: Vec<BTreeMap<SwitchId, Step>>,
    /// By tenant, its tree. A tenant with all its VMs on one host has none.
    tenants: BTreeMap<String, usize>,
}

/// A step toward the root of a tree.
#[derive(Clone, Copy, Debug)]
struct Step {
    link: LinkId,
    to: SwitchId,
    /// Up the tree is down the link, where links have no layers.
    is_down: bool,
}

impl State {
    /// All links and tenants' trees.
    pub(crate) fn ways(&self) -> Ways {
        self.book.ways()
    }
}

impl Book {
    fn ways(&self) -> Ways {
        let Some(ledger) = self.ledger() else { return Ways::default() };
        let topology = ledger.topology();
        let mut ways = Ways::default();
        for (link, number) in topology.links.iter().zip(0..) {
            ways.links.push((link.name.clone(), link.rate * u64::from(link.members)));
            if let (Node::Host(host), Node::Switch(switch)) = (link.a, link.b) {
                let name = topology.hosts[host.0 as usize].name.clone();
                ways.hosts.insert(name, (LinkId(number), switch));
            }
        }
        let step = |(switch, link): (SwitchId, Option<LinkId>)| {
            let link = link?;
            let cable = &topology.links[link.0 as usize];
            let (Node::Switch(a), Node::Switch(b)) = (cable.a, cable.b) else { return None };
            let is_down = b == switch;
            Some((switch, Step { link, to: if is_down { a } else { b }, is_down }))
        };
        let mut known: BTreeMap<TreeName, usize> = BTreeMap::new();
        for (tenant, tree) in self.trees() {
            let at = known.entry(tree).or_insert_with_key(|tree| {
                let nodes = self.routing_of(tree).and_then(|routing| ledger.tree(routing));
                let nodes = nodes.unwrap_or_default();
                ways.trees.push(nodes.into_iter().filter_map(step).collect());
                ways.trees.len() - 1
            });
            ways.tenants.insert(tenant, *at);
        }
        ways
    }
}

impl Ways {
    /// The rate of a host's link.
    pub(crate) fn card(&self, host: &str) -> Option<Rate> {
        let (link, _) = self.hosts.get(host)?;
        Some(self.links[link.0 as usize].1)
    }

    /// The way of a tenant's traffic from one host to another, empty within a host. `None` if one of the hosts is not
    /// known. Where the tenant's tree does not lead to both, it has the hosts' own links only.
    pub(crate) fn way(&self, tenant: &str, from: &str, to: &str) -> Option<Vec<LinkWay>> {
        let ((out, first), (into, last)) = (*self.hosts.get(from)?, *self.hosts.get(to)?);
        if from == to {
            return Some(Vec::new());
        }
        let own = |link: LinkId, direction| at(link, direction == Direction::Backward);
        let mut way = vec![own(out, Direction::Forward)];
        let tree = self.tenants.get(tenant).map(|tree| &self.trees[*tree]);
        way.extend(tree.and_then(|tree| between(tree, first, last)).unwrap_or_default());
        way.push(own(into, Direction::Backward));
        Some(way)
    }
}

const fn at(link: LinkId, is_down: bool) -> LinkWay {
    2 * link.0 as usize + is_down as usize
}

/// The links of a tree between two of its switches.
fn between(
    tree: &BTreeMap<SwitchId, Step>,
    first: SwitchId,
    last: SwitchId,
) -> Option<Vec<LinkWay>> {
    let climb = |from: SwitchId| {
        std::iter::successors(Some((from, None)), |(at, _)| {
            tree.get(at).map(|step| (step.to, Some(*step)))
        })
        // No tree is deeper than it has switches.
        .take(tree.len() + 1)
    };
    let met: Vec<SwitchId> = climb(first).map(|(at, _)| at).collect();
    let top = climb(last).find(|(at, _)| met.contains(at))?.0;
    let up_to = |from: SwitchId| {
        let steps = climb(from).skip(1).filter_map(|(_, step)| step);
        let length = climb(from).take_while(|(at, _)| *at != top).count();
        steps.take(length)
    };
    let mut way: Vec<LinkWay> = up_to(first).map(|step| at(step.link, step.is_down)).collect();
    let mut down: Vec<LinkWay> = up_to(last).map(|step| at(step.link, !step.is_down)).collect();
    down.reverse();
    way.append(&mut down);
    Some(way)
}
