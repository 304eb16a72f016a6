//! What may be added for one tenant, or for new ones, by a scheduler that can only add.
//!
//! Problem   A room that is safe whatever tenant a VM belongs to counts each VM with its whole floor on
//!           every link above it ([`additive`](Ledger::additive)). Most tenants need nothing of the links
//!           above their rack, so that room refuses nearly all demand.
//! Approach  A tenant has a *centre*: any place. On a link of its tree, the hose cut is at most the sum of
//!           floors on the side without the centre. So each VM counts with its floor on the way from its
//!           host to the centre, and on no other link. This is linear in the VMs, and safe for every
//!           choice. It is exact where the centre holds the larger part on both sides of no link, as the
//!           median of a tenant with equal floors out and in does. The tenants that are there count as
//!           the ledger has them.
//! Promises  VMs of one tenant that keep to its room are accepted, in any order. So are VMs of any number
//!           of new tenants that together keep to the room of new tenants. Exceptions: quotas, survival.
//!           If a tenant's floors toward the centre exceed what a link has for it, it has no room and
//!           no slots: there the smaller other side holds the cut, and any further VM may raise it.
//! Not here  Additions for several tenants that are there: read the room again after each.
//! Source    The bound is that of VPN trees with a centre (Kumar et al., SIGCOMM 2001).

use super::additive::{AdditiveRoom, Domain};
use super::request::{Class, Floors};
use super::topology::{LinkId, SwitchId};
use super::trees::{NONE, Tree};
use super::{Ledger, Tenant};
use weir_units::{HostId, Rate, TenantId};

/// Bit/s out of a place and into it.
type Sums = [u64; 2];

/// What may be added for one tenant, or for new ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantRoom {
    /// The root of the tree that the room is of.
    pub root: SwitchId,
    /// The place toward which the tenant's floors count: a host, or a switch of the tree. Of new tenants
    /// the root; a caller may choose another one for each of them.
    pub centre: Domain,
    /// The place toward which floors to the outside count; none where the tree has no gateway.
    pub gateway: Option<Domain>,
    /// Hosts and switches of the tree, the root left out.
    pub places: Vec<TenantPlace>,
}

/// A place of a tree, and what may pass its link upward.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantPlace {
    /// The room. `out` is what may leave the place.
    pub room: AdditiveRoom,
    /// Its hosts, ascending.
    pub hosts: Vec<HostId>,
    /// The switches of the tree that are in it, ascending.
    pub switches: Vec<SwitchId>,
}

impl TenantPlace {
    /// Whether a host or switch is in this place.
    pub fn contains(&self, place: Domain) -> bool {
        is_among(&self.hosts, &self.switches, place)
    }

    /// What a VM on `host` takes of this place: its floors if the way from its host to the centre leaves
    /// the place, the other way around if the way enters it, and nothing if it does neither.
    pub fn takes(&self, host: HostId, centre: Domain, floors: Floors) -> Floors {
        match (self.contains(Domain::Host(host)), self.contains(centre)) {
            (true, false) => floors,
            (false, true) => Floors { out: floors.into, into: floors.out },
            _ => Floors::default(),
        }
    }
}

impl Ledger {
    /// What may be added for a tenant, on the tree that it is confined to; for a new one, if there is no
    /// such tenant or it has no VM. `None` where no tree reaches its hosts.
    pub fn tenant_room(&self, tenant: Option<TenantId>) -> Option<TenantRoom> {
        let id = tenant.filter(|id| self.tenants.get(id).is_some_and(|one| !one.vms.is_empty()));
        let tenant = id.map(|id| &self.tenants[&id]);
        let tree = match tenant.and_then(|tenant| tenant.tree) {
            Some(tree) => &self.shape.trees[tree],
            None => self.roomiest(tenant)?,
        };
        let held = id.map_or_else(Vec::new, |id| self.draining_of(id));
        Some(Drawing::new(self, tree).room(tenant, &held))
    }

    /// The tree that reaches most hosts, if possible with a gateway, and has most room on the links
    /// between switches. It reaches the tenant's hosts.
    fn roomiest(&self, tenant: Option<&Tenant>) -> Option<&Tree> {
        let reaches = |tree: &&Tree| {
            let mut vms = tenant.into_iter().flat_map(|tenant| &tenant.vms);
            vms.all(|vm| self.shape.port_in(tree, vm.host).is_some())
        };
        let merit = |tree: &&Tree| {
            let links = tree.nodes.iter().filter(|node| node.parent != NONE).map(|node| node.link);
            let room: u128 = links
                .map(|link| u128::from(self.book.room(link).into_iter().min().unwrap_or(0)))
                .sum();
            (self.shape.groups[tree.group as usize].len(), tree.has_gateway, room)
        };
        // Of equals the first.
        self.shape.trees.iter().rev().filter(reaches).max_by_key(merit)
    }
}

/// A place, while sums are made.
struct Entry {
    domain: Domain,
    link: u32,
    is_forward_up: bool,
    hosts: Vec<HostId>,
    switches: Vec<SwitchId>,
    slots: u64,
    has_gateway: bool,
    /// Floors of the tenant's VMs inside.
    hoses: Sums,
    /// Their floors to the outside.
    external: Sums,
}

/// A tree as places: switches, then hosts.
struct Drawing<'a> {
    ledger: &'a Ledger,
    tree: &'a Tree,
    /// Of nodes of the tree, in their order without the root; then of hosts.
    entries: Vec<Entry>,
    /// Entry of each host, by the order of the tree's group.
    hosts: &'a [u32],
}

impl<'a> Drawing<'a> {
    fn new(ledger: &'a Ledger, tree: &'a Tree) -> Self {
        let hosts = &ledger.shape.groups[tree.group as usize];
        let mut drawing = Self { ledger, tree, entries: Vec::new(), hosts };
        for node in &tree.nodes[1..] {
            let domain = Domain::Switch(SwitchId(node.switch));
            drawing.draw(domain, node.link, node.is_forward_up, node.is_above_gateway);
        }
        for host in hosts {
            let (port, _) =
                ledger.shape.port_in(tree, *host).expect("the group has hosts of the tree");
            let domain = Domain::Host(HostId(*host));
            drawing.draw(domain, port.link, port.is_forward_up, false);
        }
        for at in 0..tree.nodes.len() as u32 {
            let switch = SwitchId(tree.nodes[at as usize].switch);
            for above in drawing.above_node(at) {
                drawing.entries[above].switches.push(switch);
            }
        }
        for (n, host) in hosts.iter().enumerate() {
            let account = &ledger.book.hosts[*host as usize];
            let slots = if account.is_closed { 0 } else { account.free().into() };
            for above in drawing.above(n) {
                drawing.entries[above].hosts.push(HostId(*host));
                drawing.entries[above].slots += slots;
            }
        }
        drawing.entries.iter_mut().for_each(|entry| entry.switches.sort_unstable());
        drawing
    }

    fn draw(&mut self, domain: Domain, link: u32, is_forward_up: bool, has_gateway: bool) {
        self.entries.push(Entry {
            domain,
            link,
            is_forward_up,
            hosts: Vec::new(),
            switches: Vec::new(),
            slots: 0,
            has_gateway,
            hoses: [0; 2],
            external: [0; 2],
        });
    }

    /// Entries of a node and of those above it, the root left out.
    fn above_node(&self, node: u32) -> Vec<usize> {
        let mut entries = Vec::new();
        let mut at = node;
        while at != 0 && at != NONE {
            entries.push(at as usize - 1);
            at = self.tree.nodes[at as usize].parent;
        }
        entries
    }

    /// Entries of the `n`-th host and of the nodes above it.
    fn above(&self, n: usize) -> Vec<usize> {
        let found = self.ledger.shape.port_in(self.tree, self.hosts[n]);
        let (_, node) = found.expect("the group has hosts of the tree");
        let mut entries = vec![self.tree.nodes.len() - 1 + n];
        entries.extend(self.above_node(node));
        entries
    }

    /// The tenant has the links `held` of those that drain.
    fn room(mut self, tenant: Option<&Tenant>, held: &[LinkId]) -> TenantRoom {
        let (total, outside) = tenant.map_or(([0; 2], [0; 2]), |tenant| self.add(tenant));
        let centre = self.centre(total);
        let root = SwitchId(self.tree.root());
        let gateway = self.tree.nodes.get(self.tree.gateway as usize);
        let gateway = gateway.map(|node| Domain::Switch(SwitchId(node.switch)));
        let has_centre = |entry: &Entry| is_among(&entry.hosts, &entry.switches, centre);
        let mut is_short = false;
        let places = self.entries.iter().map(|entry| {
            let internal = across(has_centre(entry), entry.hoses, total);
            let external = across(entry.has_gateway, entry.external, outside);
            let own = tenant.and_then(|tenant| {
                let at = tenant.needs.binary_search_by_key(&entry.link, |need| need.link.0).ok()?;
                Some([tenant.needs[at].forward, tenant.needs[at].backward].map(Rate::as_bps))
            });
            let (left, own) = (self.ledger.book.room(entry.link), own.unwrap_or([0; 2]));
            let mut rate = |d: usize| {
                let side = if entry.is_forward_up { d } else { 1 - d };
                let charged = internal[d] + external[d];
                is_short |= left[side] + own[side] < charged;
                Rate::from_bps((left[side] + own[side]).saturating_sub(charged))
            };
            let floors = Floors { out: rate(0), into: rate(1) };
            let link = LinkId(entry.link);
            // Not even a VM without floors may come to use a link that drains.
            let is_open = !self.ledger.is_draining(link) || held.contains(&link);
            let slots = if is_open { entry.slots } else { 0 };
            TenantPlace {
                room: AdditiveRoom { domain: entry.domain, floors, slots },
                hosts: entry.hosts.clone(),
                switches: entry.switches.clone(),
            }
        });
        let mut places: Vec<TenantPlace> = places.collect();
        if is_short {
            // The link holds the cut because its other side is small: VMs that count elsewhere may raise it,
            // and those at the centre, which take no floors of any place.
            for place in &mut places {
                (place.room.floors, place.room.slots) = (Floors::default(), 0);
            }
        }
        TenantRoom { root, centre, gateway, places }
    }

    /// Adds the floors of a tenant's VMs. Returns those of all, in its hoses and to the outside.
    fn add(&mut self, tenant: &Tenant) -> (Sums, Sums) {
        let (mut total, mut outside) = ([0; 2], [0; 2]);
        for vm in &tenant.vms {
            let class = &tenant.classes[usize::from(vm.class)];
            let (hoses, external) = sums_of(class);
            more(&mut total, hoses);
            more(&mut outside, external);
            let places = self.hosts.binary_search(&vm.host).map(|n| self.above(n));
            for at in places.unwrap_or_default() {
                more(&mut self.entries[at].hoses, hoses);
                more(&mut self.entries[at].external, external);
            }
        }
        (total, outside)
    }

    /// The smallest place with more than half of the floors; the root if there is none.
    fn centre(&self, total: Sums) -> Domain {
        let of = |sums: Sums| u128::from(sums[0]) + u128::from(sums[1]);
        let holds = |entry: &&Entry| 2 * of(entry.hoses) > of(total);
        // Such places contain each other.
        let smallest = self
            .entries
            .iter()
            .filter(holds)
            .min_by_key(|entry| (entry.hosts.len(), entry.switches.len()));
        smallest.map_or(Domain::Switch(SwitchId(self.tree.root())), |entry| entry.domain)
    }
}

/// Whether a place is one of these hosts or switches, which are in order.
fn is_among(hosts: &[HostId], switches: &[SwitchId], place: Domain) -> bool {
    match place {
        Domain::Host(host) => hosts.binary_search(&host).is_ok(),
        Domain::Switch(switch) => switches.binary_search(&switch).is_ok(),
        Domain::Network => false,
    }
}

/// What leaves a place and enters it on the ways of VMs to a centre that is inside or not.
fn across(is_inside: bool, inside: Sums, total: Sums) -> Sums {
    match is_inside {
        false => inside,
        true => [total[1] - inside[1], total[0] - inside[0]],
    }
}

fn more(sums: &mut Sums, by: Sums) {
    (0..2).for_each(|d| sums[d] += by[d]);
}

/// All floors of a VM: in its hoses, and to the outside.
fn sums_of(class: &Class) -> (Sums, Sums) {
    let mut hoses = [0; 2];
    for attachment in &class.hoses {
        more(&mut hoses, [attachment.floors.out, attachment.floors.into].map(Rate::as_bps));
    }
    (hoses, [class.external.out, class.external.into].map(Rate::as_bps))
}
