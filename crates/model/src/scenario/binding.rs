//! Tenants bound to switches' weighted queues: what a scenario says of it, and what each tenant has
//! reserved.
//!
//! Problem   Which tenants have a queue is a question of its own: a scenario plays the same mechanism
//!           with and without, by a controller that writes to switches and by one that never does.
//! Approach  A mechanism's label says whether ([`Bound`]), the block `binding` says how ([`Binding`]).
//!           The mechanism before the `@` is that of tenants in the shared queue.
//! Promises  A tenant's packets stay on one tree, also where there are several ways.
//! Not here  The law: `weir_core::binding`. Playing it.

use super::{LinkDir, Scenario, Topology, Vm};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::binding::control::Member;
use weir_core::binding::switch::PortQueues;
use weir_core::binding::{LastQueue, SHARED, Wish};
use weir_core::ledger::{Cut, LinkId, Need};
use weir_units::{HostId, Rate, Span, TenantId};

/// How queues are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The controller's loop does, in each interval.
    Loop,
    /// They are provisioned once. Hosts alone rebind tenants.
    Static,
}

impl Bound {
    /// What a label ends with, after `@`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Static => "static",
        }
    }

    /// All of them.
    pub const ALL: [Self; 2] = [Self::Loop, Self::Static];
}

/// How tenants are bound where a mechanism's label asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// Control interval of the loop.
    pub interval: Span,
    /// Control interval where queues are static.
    pub rebind: Span,
    /// Queues of a port that tenants may have, the shared one among them.
    pub queues: u8,
    /// Weight of the shared queue where queues are static; all others weigh 1. 0: not said.
    pub shared_weight: u16,
    /// The largest weight of a queue.
    pub most_weight: u16,
    /// When the last queue of a port is shared.
    pub last_queue: LastQueue,
    /// Time in which a switch puts a config into effect.
    pub apply: Span,
    /// Tenants that have a queue before all others, and keep it: indices.
    pub pinned: BTreeSet<usize>,
    /// Tenants that never have one.
    pub excluded: BTreeSet<usize>,
}

impl Default for Binding {
    /// QShare's: 4 s, eight queues of weights up to 15, and 50 ms for the ports of a switch.
    fn default() -> Self {
        Self {
            interval: Span::from_secs(4),
            rebind: Span::from_millis(100),
            queues: 8,
            shared_weight: 0,
            most_weight: 15,
            last_queue: LastQueue::AlwaysShared,
            apply: Span::from_millis(50),
            pinned: BTreeSet::new(),
            excluded: BTreeSet::new(),
        }
    }
}

impl Topology {
    /// For each node the link that a tenant's packets for `host` take, as
    /// [`routes_to`](Self::routes_to). Of equal links, switches with hosts take one by the tenant's
    /// number, and switches above by the rest of it: so all of its packets stay on one tree where the
    /// links of switches of one layer are listed in one order.
    pub fn tree_routes_to(&self, host: usize, tenant: usize) -> Vec<Option<LinkDir>> {
        let mut is_edge = vec![false; self.nodes()];
        for link in &self.links {
            for (end, other) in [(link.a, link.b), (link.b, link.a)] {
                is_edge[end] |= other < self.hosts.len();
            }
        }
        let most = self.forwarding_to(host);
        let choose = |(node, links): (usize, Vec<LinkDir>)| {
            let number = if is_edge[node] { tenant } else { tenant / links.len().max(1) };
            links.get(number % links.len().max(1)).copied()
        };
        most.into_iter().enumerate().map(choose).collect()
    }
}

impl Scenario {
    /// The links from one host to another on a tenant's tree.
    pub fn tree_path(&self, tenant: usize, from: usize, to: usize) -> Vec<LinkDir> {
        self.topology.follow(&self.topology.tree_routes_to(to, tenant), from)
    }

    /// What a tenant has reserved on the links of its tree: on each the smaller of what its VMs on one
    /// side may send and those on the other may receive.
    pub fn needs(&self, tenant: usize) -> Vec<Need> {
        let vms = || self.vms.iter().filter(|vm| vm.tenant == tenant);
        let hosts: BTreeSet<usize> = vms().map(|vm| vm.host).collect();
        let mut sides: BTreeMap<LinkDir, [BTreeSet<usize>; 2]> = BTreeMap::new();
        for &to in &hosts {
            let routes = self.topology.tree_routes_to(to, tenant);
            for &from in hosts.iter().filter(|from| **from != to) {
                for link in self.topology.follow(&routes, from) {
                    let [senders, receivers] = sides.entry(link).or_default();
                    senders.insert(from);
                    receivers.insert(to);
                }
            }
        }
        // Each further hose has a cut of its own.
        let further: BTreeSet<usize> = vms().flat_map(|vm| &vm.hoses).map(|own| own.hose).collect();
        let of = |vm: &Vm, hose: Option<usize>| match hose {
            None => (vm.floor_out, vm.floor_in),
            Some(hose) => {
                let own = vm.hoses.iter().find(|own| own.hose == hose);
                own.map_or((Rate::ZERO, Rate::ZERO), |own| (own.floor_out, own.floor_in))
            }
        };
        let cut = |[senders, receivers]: &[BTreeSet<usize>; 2], hose: Option<usize>| {
            let on = |side: &BTreeSet<usize>, vm: &&Vm| side.contains(&vm.host);
            Cut {
                senders: vms().filter(|vm| on(senders, vm)).map(|vm| of(vm, hose).0).sum(),
                receivers: vms().filter(|vm| on(receivers, vm)).map(|vm| of(vm, hose).1).sum(),
            }
        };
        let hoses = || [None].into_iter().chain(further.iter().copied().map(Some));
        let mut needs: BTreeMap<usize, [Rate; 2]> = BTreeMap::new();
        for (link, sides) in &sides {
            let need = hoses().map(|hose| cut(sides, hose).need()).sum();
            needs.entry(link.link).or_default()[usize::from(link.reverse)] = need;
        }
        let need = |(link, [forward, backward]): (usize, [Rate; 2])| Need {
            link: LinkId(link as u32),
            forward,
            backward,
        };
        let all = needs.into_iter().map(need);
        all.filter(|need| !(need.forward.is_zero() && need.backward.is_zero())).collect()
    }
}

impl Scenario {
    /// The tenants as a controller knows them that binds them to queues, in their order.
    pub fn members(&self) -> Vec<Member> {
        (0..self.tenants.len()).map(|tenant| self.member(tenant)).collect()
    }

    fn member(&self, tenant: usize) -> Member {
        let vms = || self.vms.iter().filter(|vm| vm.tenant == tenant);
        let wish = match () {
            () if self.binding.pinned.contains(&tenant) => Wish::Pinned,
            () if self.binding.excluded.contains(&tenant) => Wish::Excluded,
            () => Wish::ByScore,
        };
        Member {
            tenant: TenantId(tenant as u32),
            needs: self.needs(tenant),
            payment: vms().map(|vm| vm.floors_out().max(vm.floors_in())).sum(),
            wish,
            hosts: vms().map(|vm| HostId(vm.host as u32)).collect(),
        }
    }

    /// The code points that tenants may have: one per queue beside the shared one.
    pub fn code_points(&self) -> Vec<u8> {
        (SHARED + 1..self.binding.queues).collect()
    }

    /// A port as an operator provisions it once, for static queues.
    pub fn provisioned(&self, rate: Rate) -> PortQueues {
        let own = self.code_points();
        let mut port = PortQueues::shared_alone(rate, SHARED);
        port.weights.insert(SHARED, self.binding.shared_weight);
        port.weights.extend(own.iter().map(|queue| (*queue, 1)));
        port.queue_of.extend(own.iter().map(|queue| (*queue, *queue)));
        port
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::File;

    fn scenario(topology: &str, vms: &str) -> Scenario {
        let text = format!(
            "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: {{duration: 9s, \
             topology: {topology}, tenants: [{vms}], mechanisms: none}}}}"
        );
        let file = File::parse("t.yaml", &text, &[]).expect("sound");
        file.points().expect("sound").remove(0)
    }

    #[test]
    fn a_link_is_reserved_for_the_smaller_side() {
        let two = "{dumbbell: {left: 2, right: 2, edge: 1Gbit, core: 1Gbit}}";
        let vms = "{name: a, vms: [{name: l, hosts: [left-0, left-1], count: 3, floor_in: 50Mbit, \
                   floor_out: 40Mbit}, {name: r, host: right-0, floor_in: 90Mbit, floor_out: 80Mbit}]}";
        let scenario = scenario(two, vms);
        let needs = scenario.needs(0);
        let of = |name: &str| {
            let link = scenario.topology.links.iter().position(|link| link.name == name);
            let need = needs.iter().find(|need| Some(need.link.0 as usize) == link);
            need.map(|need| (need.forward, need.backward))
        };
        let mbps = Rate::from_mbps;
        assert_eq!(of("core"), Some((mbps(90), mbps(80))), "left to right, and back");
        assert_eq!(of("left-0"), Some((mbps(80), mbps(100))), "two of the three are there");
        assert_eq!(of("right-1"), None, "no VM is there");
    }

    #[test]
    fn a_tenants_packets_stay_on_one_tree() {
        for topology in [
            "{fat-tree: {k: 4, link: 1G}}",
            "{fat-tree: {k: 6, link: 1G}}",
            "{leaf-spine: {leaves: 3, spines: 4, hosts_per_leaf: 2, link: 1G, uplink: 1G}}",
        ] {
            let one = scenario(
                topology,
                "{name: a, vms: [{name: v, host: HOST}]}"
                    .replace(
                        "HOST",
                        if topology.contains("leaf") { "host-1-1" } else { "host-0-0-0" },
                    )
                    .as_str(),
            );
            let (mut trees, topology) = (BTreeSet::new(), &one.topology);
            for tenant in 0..9 {
                let mut links = BTreeSet::new();
                for to in 0..topology.hosts.len() {
                    let routes = topology.tree_routes_to(to, tenant);
                    for from in (0..topology.hosts.len()).filter(|from| *from != to) {
                        let path = topology.follow(&routes, from);
                        links.extend(path.iter().map(|link| link.link));
                    }
                }
                let ends = links.iter().flat_map(|l| [topology.links[*l].a, topology.links[*l].b]);
                let nodes: BTreeSet<usize> = ends.collect();
                assert_eq!(links.len() + 1, nodes.len(), "a tree: tenant {tenant}");
                trees.insert(links);
            }
            assert!(trees.len() >= 4, "tenants are spread over {} trees", trees.len());
        }
    }
}
