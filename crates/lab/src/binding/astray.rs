//! Tagged packets that left by another queue than their tenant's, or off its tree.
//!
//! Approach  Counters among the filters of switches' ports ([`weir_dataplane::astray`]). A tenant's
//!           tree is what the scenario's admission has reserved on.
//! Promises  What is counted is an octet that met the shared queue with a tenant's code point, or a
//!           port that its tree does not have. Each is counted once per port.

use crate::plan;
use weir_dataplane::astray::{Astray, Counter};
use weir_model::scenario::{LinkDir, Scenario};
use weir_units::{SortedMap, SortedSet};

/// No more places are told one by one.
const PLACES: usize = 8;

/// VMs' hardware addresses, with their tenants.
pub(super) fn vms(scenario: &Scenario) -> Vec<([u8; 6], u32)> {
    let vms = scenario.vms.iter().enumerate();
    vms.map(|(vm, placed)| (plan::vm_mac(vm), placed.tenant as u32)).collect()
}

/// By switch: its ports, and the tenants whose trees have them.
pub(super) fn trees(scenario: &Scenario) -> Vec<SortedMap<u32, SortedSet<u32>>> {
    let topology = &scenario.topology;
    let hosts = topology.hosts.len();
    let mut ports = vec![SortedMap::new(); topology.switches.len()];
    for direction in (0..2 * topology.links.len()).map(LinkDir::from_index) {
        let from = direction.from(topology);
        if let Some(switch) = from.checked_sub(hosts) {
            let port = plan::link_port(scenario, from, direction.link).1;
            ports[switch].insert(port, SortedSet::new());
        }
    }
    for tenant in 0..scenario.tenants.len() {
        let its = scenario.vms.iter().filter(|vm| vm.tenant == tenant);
        let its: SortedSet<usize> = its.map(|vm| vm.host).collect();
        let pairs = its.iter().flat_map(|from| its.iter().map(move |to| (*from, *to)));
        for direction in pairs.flat_map(|(from, to)| scenario.tree_path(tenant, from, to)) {
            let from = direction.from(topology);
            if let Some(switch) = from.checked_sub(hosts) {
                let port = plan::link_port(scenario, from, direction.link).1;
                ports[switch].entry(port).or_default().insert(tenant as u32);
            }
        }
    }
    ports
}

/// All octets that went astray, if all counters can be read, and what is to be said of them.
pub(super) fn read(
    scenario: &Scenario,
    switches: &[(usize, Counter)],
) -> (Option<u64>, Vec<String>) {
    let (topology, hosts) = (&scenario.topology, scenario.topology.hosts.len());
    let (mut total, mut notes) = (0, Vec::new());
    for direction in (0..2 * topology.links.len()).map(LinkDir::from_index) {
        let from = direction.from(topology);
        let of = |(switch, _): &&(usize, Counter)| hosts + switch == from;
        let Some((_, counter)) = switches.iter().find(of) else { continue };
        let port = plan::link_port(scenario, from, direction.link).1;
        for (tenant, name) in scenario.tenants.iter().enumerate() {
            let Astray { unbound, off_tree } = match counter.astray(port, tenant as u32) {
                Ok(astray) => astray,
                Err(error) => {
                    return (None, vec![format!("unbound octets are not known: {error}")]);
                }
            };
            total += unbound + off_tree;
            let place = direction.name(topology);
            let note = |octets: u64, what: &str| {
                (octets > 0)
                    .then(|| format!("Unenforced: {octets} octets of {name} {what} {place}"))
            };
            notes.extend(note(unbound, "met no queue of their own at"));
            notes.extend(note(off_tree, "left their tree at"));
        }
    }
    let more = notes.len().saturating_sub(PLACES);
    notes.truncate(PLACES);
    notes.extend((more > 0).then(|| format!("Unenforced: and at {more} more places")));
    (Some(total), notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::scenario::File;

    #[test]
    fn a_port_is_on_the_trees_that_its_spine_is_on_and_on_none_without_vms_behind_it() {
        let text = "{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {name: t}, spec: {duration: 9s, \
                    topology: {leaf-spine: {leaves: 2, spines: 2, hosts_per_leaf: 2, link: 100Mbit, \
                    uplink: 100Mbit}}, mechanisms: none, tenants: [\
                    {name: a, vms: [{name: a, hosts: [host-0-0, host-1-0], count: 2}]}, \
                    {name: b, vms: [{name: b, hosts: [host-0-0, host-1-0], count: 2}]}]}}";
        let file = File::parse("t.yaml", text, &[]).expect("sound");
        let scenario = file.points().expect("sound").remove(0);
        let topology = &scenario.topology;
        let trees = trees(&scenario);
        let node = |name: &str| topology.switches.iter().position(|s| s == name).expect("known");
        let at = |switch: &str, link: &str| {
            let link = topology.links.iter().position(|l| l.name == link).expect("known");
            let node = topology.hosts.len() + node(switch);
            let port = plan::link_port(&scenario, node, link).1;
            Vec::from_iter(trees[node - topology.hosts.len()][&port].iter().copied())
        };
        assert_eq!(at("leaf-0", "leaf-0-spine-0"), [0]);
        assert_eq!(at("leaf-0", "leaf-0-spine-1"), [1]);
        assert_eq!(at("spine-1", "leaf-1-spine-1"), [1]);
        assert_eq!(at("leaf-1", "host-1-0"), [0, 1], "both have VMs there");
        assert_eq!(at("leaf-1", "host-1-1"), [0; 0], "nobody has");
    }
}
