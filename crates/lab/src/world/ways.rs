//! Which way packets go: entries of switches' bridges, and equal paths.
//!
//! Problem   Bridges flood what they do not know, and have one port per destination. A fabric has
//!           loops, and several ports per destination.
//! Approach  All destinations are written in. Where links form a loop, switches flood nothing. Where
//!           several paths are equal, a program before the bridge chooses one (`spread`). Where
//!           tenants are bound to queues, a VM's entry is the next link on its tenant's tree.
//! Promises  Where tenants are bound, all packets to a tenant's VMs stay on its tree, whatever their
//!           code point: what is reserved for the shared queue is reserved there, too.
//! Not here  Which tree: `weir_model`. What went astray all the same: `binding::astray`.

use super::{Floods, World, forward, neighbour};
use crate::plan::{self, BRIDGE, Plan};
use crate::{Error, netlink};
use netlink::Batch;
use weir_dataplane::spread::{Spread, Ways};
use weir_model::scenario::{Ecmp, Scenario};
use weir_units::SortedMap;

/// What a node's bridge sends to a port of a link.
pub(super) fn floods(scenario: &Scenario, plan: &Plan, node: usize) -> Floods {
    let is_switch = node >= scenario.topology.hosts.len();
    if is_switch && plan.has_loop { Floods::Nothing } else { Floods::All }
}

impl World {
    /// Forwarding entries on switches, and neighbours of hosts. A host's bridge needs none: what
    /// is not one of its VMs is flooded to its uplink alone.
    pub(super) fn write_in_where_everybody_is(
        &mut self,
        scenario: &Scenario,
        plan: &Plan,
        is_bound: bool,
    ) -> Result<(), Error> {
        let hosts = scenario.topology.hosts.len();
        let trees = if is_bound { trees(scenario) } else { SortedMap::new() };
        for (switch, ways) in plan.ways.iter().enumerate() {
            let node = hosts + switch;
            let port = |link: usize| plan::link_port(scenario, node, link).1;
            let mut batch = Batch::default();
            let mut several = Vec::new();
            for (host, links) in ways.iter().enumerate() {
                forward(&mut batch, port(links[0]), plan::host_mac(host));
                several.push((plan::host_mac(host), links, false));
            }
            for (vm, placed) in scenario.vms.iter().enumerate() {
                let tree = trees.get(&(placed.tenant, placed.host)).map(|next| next[switch]);
                let first = tree.unwrap_or(ways[placed.host][0]);
                forward(&mut batch, port(first), plan::vm_mac(vm));
                if tree.is_none() {
                    let by_packet = scenario.topology.ecmp == Some(Ecmp::Packet);
                    several.push((plan::vm_mac(vm), &ways[placed.host], by_packet));
                }
            }
            netlink::send(&mut self.nodes[node].netlink, &batch)?;
            several.retain(|(_, links, _)| links.len() > 1);
            let several: Vec<Ways> = several
                .into_iter()
                .map(|(to, links, by_packet)| Ways {
                    to,
                    ports: links.iter().map(|link| port(*link)).collect(),
                    by_packet,
                })
                .collect();
            if !several.is_empty() {
                let links = scenario.topology.links.iter().enumerate();
                let own = links.filter(|(_, link)| link.a == node || link.b == node);
                let ports: Vec<u32> = own.map(|(link, _)| port(link)).collect();
                self.nodes[node].enter()?;
                let spread = Spread::open(&ports, &several, switch as u32);
                self.spreads.push(spread.map_err(Error::Dataplane)?);
            }
        }
        for (host, peers) in plan.host_peers.iter().enumerate() {
            let mut batch = Batch::default();
            for &peer in peers {
                let address = plan::host_address(peer).into();
                neighbour(&mut batch, BRIDGE, address, plan::host_mac(peer));
            }
            netlink::send(&mut self.nodes[host].netlink, &batch)?;
        }
        Ok(())
    }
}

/// By tenant and host of one of its VMs: each switch's next link to that host on the tenant's tree.
fn trees(scenario: &Scenario) -> SortedMap<(usize, usize), Vec<usize>> {
    let hosts = scenario.topology.hosts.len();
    let mut trees = SortedMap::new();
    for vm in &scenario.vms {
        trees.entry((vm.tenant, vm.host)).or_insert_with(|| {
            let next = scenario.topology.tree_routes_to(vm.host, vm.tenant).split_off(hosts);
            next.iter().map(|link| link.expect("planned: all hosts are reached").link).collect()
        });
    }
    trees
}
