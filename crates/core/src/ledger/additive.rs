//! What is free per host and rack, for schedulers that can only add.
//!
//! Problem   The hose cut is the smaller of two sums, and a scheduler of others keeps one counter per
//!           place and adds to it.
//! Approach  Each VM counts with its whole floors on every link that leaves a place it is in, whichever
//!           of them its tenant uses. No cut needs more than either of its sums, so a place whose
//!           floors all fit its links is safe, whatever is added elsewhere. A place whose floors exceed
//!           a link fits only as long as the other side of the cut is small: what the link has left
//!           bounds what may be added in the whole network. So does a gateway's link, which the
//!           outside's floors of all VMs pass.
//! Promises  VMs whose floors and slots fit all places that contain them are accepted by the ledger,
//!           but for quotas and survival.
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
    /// All hosts.
    Network,
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
    /// The room of every host, of every switch with links upward, and of the network. `None` where
    /// trees are not found by layers: then a switch has no upward side.
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
        let mut everywhere = [u64::MAX; 2];
        for (host, ports) in (0u32..).zip(&self.shape.ports) {
            let links = ports.iter().map(|port| (port.link, port.is_forward_up));
            let account = &self.book.hosts[host as usize];
            let slots = if account.is_closed { 0 } else { account.free().into() };
            let domain = Domain::Host(HostId(host));
            let floors = self.room(links, on_host[host as usize], None, &mut everywhere);
            rooms.push(AdditiveRoom { domain, floors, slots });
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
            let hosts = &self.shape.groups[tree.group as usize];
            let mut charged = [0, 0];
            for host in hosts {
                (0..2).for_each(|d| charged[d] += on_host[*host as usize][d]);
            }
            // What VMs send to the outside comes in at the gateway.
            let passing = tree.has_gateway.then_some(Passing {
                charged: [outside[1], outside[0]],
                is_alone: hosts.is_empty(),
            });
            // Not even a VM without floors may come to use a link that drains.
            let drains = links.iter().any(|(link, _)| self.book.links[*link as usize].is_draining);
            let slots = if drains { 0 } else { self.book.groups[tree.group as usize].free };
            let domain = Domain::Switch(SwitchId(tree.root()));
            let floors = self.room(links.into_iter(), charged, passing, &mut everywhere);
            rooms.push(AdditiveRoom { domain, floors, slots });
        }
        let hosts = rooms.iter().filter(|room| matches!(room.domain, Domain::Host(_)));
        let all = hosts.fold(([0u64; 2], 0), |(sum, slots), room| {
            let [out, into] = [room.floors.out, room.floors.into].map(|rate| rate.as_bps());
            ([sum[0].saturating_add(out), sum[1].saturating_add(into)], slots + room.slots)
        });
        let floors = Floors {
            out: Rate::from_bps(everywhere[0].min(all.0[0])),
            into: Rate::from_bps(everywhere[1].min(all.0[1])),
        };
        rooms.push(AdditiveRoom { domain: Domain::Network, floors, slots: all.1 });
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
            Domain::Network => (0..self.shape.ports.len() as u32).map(HostId).collect(),
        }
    }

    /// The room of a place with these links upward, whose VMs have the floors `charged`. Lowers what
    /// may be added everywhere to what the links bear.
    fn room(
        &self,
        links: impl Iterator<Item = (u32, bool)>,
        charged: [u64; 2],
        passing: Option<Passing>,
        everywhere: &mut [u64; 2],
    ) -> Floors {
        // Of the links: the least that may be promised, and the least that is left.
        let (mut least, mut left) = ([u64::MAX; 2], [u64::MAX; 2]);
        for (link, is_forward_up) in links {
            let account = &self.book.links[link as usize];
            let capacity = if account.is_draining { [0, 0] } else { account.capacity };
            let room = self.book.room(link);
            let up = |of: [u64; 2]| if is_forward_up { of } else { [of[1], of[0]] };
            let (capacity, room) = (up(capacity), up(room));
            (0..2).for_each(|d| {
                least[d] = least[d].min(capacity[d]);
                left[d] = left[d].min(room[d]);
            });
        }
        let [out, into] = [0, 1].map(|d| {
            let other = &mut everywhere[1 - d];
            let whole = charged[d] + passing.map_or(0, |passing| passing.charged[d]);
            let Some(fits) = least[d].checked_sub(whole) else {
                *other = (*other).min(left[d]);
                return Rate::ZERO;
            };
            // A VM below may take its floor of it, and a VM anywhere what it has with the outside.
            let below = match passing {
                None => fits,
                Some(Passing { is_alone, .. }) => {
                    let below = if is_alone { 0 } else { fits / 2 };
                    *other = (*other).min(fits - below);
                    below
                }
            };
            Rate::from_bps(below)
        });
        Floors { out, into }
    }
}

/// What passes the links of a place with a gateway on its way to and from the outside.
#[derive(Clone, Copy)]
struct Passing {
    charged: [u64; 2],
    /// Whether no host is below.
    is_alone: bool,
}

/// Adds a tenant's floors where its VMs are.
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
        (0..2).for_each(|d| on_host[vm.host as usize][d] += sums[class][d]);
        outside[0] += tenant.classes[class].external.out.as_bps();
        outside[1] += tenant.classes[class].external.into.as_bps();
    }
}
