//! What is free per host and rack, for schedulers that can only add.
//!
//! Problem   The hose cut is the smaller of two sums, and a scheduler of others keeps one counter per
//!           place and adds to it.
//! Approach  Each VM counts with its whole floors on every link that leaves a place it is in, whichever
//!           of them its tenant uses.
//! Promises  VMs whose floors and slots fit all places that contain them are accepted by the ledger,
//!           but for quotas and survival: no cut needs more than either of its sums.
//! Not here  How much demand that refuses: see `docs/results/placement.md`.

use super::request::{Class, Floors};
use super::topology::{Exploration, SwitchId};
use super::trees::NONE;
use super::{Ledger, Tenant};
use weir_units::{HostId, Rate};

/// Hosts that share links to the rest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Domain {
    /// One host.
    Host(HostId),
    /// The hosts that a switch's downward links reach.
    Switch(SwitchId),
}

/// What VMs that are added in a domain may have together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdditiveRoom {
    /// Where.
    pub domain: Domain,
    /// Sum of floors, the outside's among them.
    pub floors: Floors,
    /// Slots.
    pub slots: u64,
}

impl Ledger {
    /// The room of every host, and of every switch with links upward. `None` where trees are not
    /// found by layers: then a switch has no upward side.
    pub fn additive(&self) -> Option<Vec<AdditiveRoom>> {
        if self.shape.topology.exploration != Exploration::Layers {
            return None;
        }
        let mut on_host = vec![[0u64; 2]; self.shape.ports.len()];
        let mut outside = [0u64; 2];
        for tenant in self.tenants.values() {
            charge(tenant, &mut on_host, &mut outside);
        }
        let mut rooms = Vec::new();
        for (host, ports) in (0u32..).zip(&self.shape.ports) {
            let links = ports.iter().map(|port| (port.link, port.is_forward_up));
            let account = &self.book.hosts[host as usize];
            let slots = if account.is_closed { 0 } else { account.free().into() };
            let domain = Domain::Host(HostId(host));
            rooms.push(self.room(domain, links, on_host[host as usize], slots));
        }
        for tree in &self.shape.trees {
            let mut links: Vec<(u32, bool)> = Vec::new();
            let of = |other: &super::trees::Tree| {
                let node = other.nodes[other.node_of(tree.root())? as usize];
                (node.parent != NONE).then_some((node.link, node.is_forward_up))
            };
            links.extend(self.shape.trees.iter().filter_map(of));
            links.sort_unstable();
            links.dedup();
            if links.is_empty() {
                continue;
            }
            let mut charged = if tree.has_gateway { [outside[1], outside[0]] } else { [0, 0] };
            for host in &self.shape.groups[tree.group as usize] {
                (0..2).for_each(|d| charged[d] += on_host[*host as usize][d]);
            }
            let slots = self.book.groups[tree.group as usize].free;
            let domain = Domain::Switch(SwitchId(tree.root()));
            rooms.push(self.room(domain, links.into_iter(), charged, slots));
        }
        Some(rooms)
    }

    /// The hosts of a domain.
    pub fn hosts_in(&self, domain: Domain) -> Vec<HostId> {
        match domain {
            Domain::Host(host) => vec![host],
            Domain::Switch(switch) => {
                let tree = self.shape.trees.iter().find(|tree| tree.root() == switch.0);
                let hosts = tree.map(|tree| &self.shape.groups[tree.group as usize]);
                hosts.into_iter().flatten().map(|host| HostId(*host)).collect()
            }
        }
    }

    fn room(
        &self,
        domain: Domain,
        links: impl Iterator<Item = (u32, bool)>,
        charged: [u64; 2],
        slots: u64,
    ) -> AdditiveRoom {
        let mut least = [u64::MAX; 2];
        for (link, is_forward_up) in links {
            let [forward, backward] = self.book.links[link as usize].capacity;
            let up = if is_forward_up { [forward, backward] } else { [backward, forward] };
            (0..2).for_each(|d| least[d] = least[d].min(up[d]));
        }
        let left = |d: usize| Rate::from_bps(least[d].saturating_sub(charged[d]));
        AdditiveRoom { domain, floors: Floors { out: left(0), into: left(1) }, slots }
    }
}

/// Adds a tenant's floors where its VMs are or may be.
fn charge(tenant: &Tenant, on_host: &mut [[u64; 2]], outside: &mut [u64; 2]) {
    let floors = |class: &Class| {
        let mut sum = [class.external.out, class.external.into].map(|rate| rate.as_bps());
        for attachment in &class.hoses {
            sum[0] += attachment.floors.out.as_bps();
            sum[1] += attachment.floors.into.as_bps();
        }
        sum
    };
    let sums: Vec<[u64; 2]> = tenant.classes.iter().map(floors).collect();
    for vm in &tenant.vms {
        let class = usize::from(vm.class);
        for host in [vm.host, vm.other].into_iter().filter(|host| *host != NONE) {
            (0..2).for_each(|d| on_host[host as usize][d] += sums[class][d]);
        }
        outside[0] += tenant.classes[class].external.out.as_bps();
        outside[1] += tenant.classes[class].external.into.as_bps();
    }
}
