//! The ledger by names: what each VM claims, and what that makes on each link.
//!
//! Problem   `core::ledger` adds up whole tenants by number; people change VMs by name.
//! Approach  Each tenant's request is kept as the ledger has it. A change takes out, changes and adds
//!           some of its VMs, and gives the ledger the whole in one step.
//! Promises  All of a change or nothing. [`Book::take_back`] gives the state before a change, the latest
//!           change first.
//! Not here  Which floors fall: see `admit`. The network itself: see `network`.

use super::network::Network;
use crate::problem::Problem;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::ledger::{
    AdditiveRoom, Attachment, Class, Direction, Domain, Exploration, Floors, Ledger, LinkFull,
    LinkId, Need, Refusal, Routing, Saved, Survival, SwitchId, TenantRequest, TenantRoom,
    VmRequest,
};
use weir_core::placement::{Policy, Weight};
use weir_model::objects::{self, Hose, Strategy, TenantSpec, TreeName, VmSpec};
use weir_model::text::show_rate;
use weir_units::{HostId, Rate, TenantId, VmId};

/// What one VM is promised.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Promise {
    floor: objects::Floors,
    hoses: Vec<Hose>,
    external: objects::Floors,
}

impl Promise {
    pub(super) fn of(spec: &VmSpec) -> Self {
        let external = spec.external.unwrap_or_default();
        Self { floor: spec.floor, hoses: spec.hoses.clone(), external }
    }

    /// What it counts for in a quota.
    pub(super) fn usage(&self) -> Usage {
        let floors = || [self.floor].into_iter().chain(self.hoses.iter().map(|hose| hose.floor));
        Usage {
            vms: 1,
            out: floors().map(|floor| floor.out.0).sum(),
            inward: floors().map(|floor| floor.inward.0).sum(),
        }
    }
}

/// A VM's promise and its host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    pub(super) tenant: String,
    pub(super) host: String,
    pub(super) promise: Promise,
    /// What it counts for in the tenant's quota: a VM that moves has two claims and counts once.
    pub(super) counted: Usage,
}

/// A claim that is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// None: the placement chooses, or the VM stays where it is.
    pub(super) host: Option<String>,
    pub(super) promise: Promise,
    pub(super) counted: Usage,
}

/// One claim made, changed, or given back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    pub(super) id: String,
    pub(super) to: Option<Wanted>,
}

/// How a tenant's VMs are placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Terms {
    pub(super) survival: objects::Survival,
    pub(super) strategy: Strategy,
    /// Hosts that take no new VMs are open to those that the change names.
    pub(super) is_returning: bool,
    /// The floors held until now: on its tree, a tenant keeps them also where links drain.
    pub(super) is_kept: bool,
}

impl Terms {
    pub(super) fn of(spec: &TenantSpec) -> Self {
        Self { survival: spec.survival, strategy: spec.strategy, ..Self::default() }
    }

    /// For VMs that were placed before: they stay, whatever survives.
    pub(super) fn returning(spec: &TenantSpec) -> Self {
        Self { survival: objects::Survival::default(), is_returning: true, ..Self::of(spec) }
    }

    /// For VMs with floors that held before the network changed.
    pub(super) fn kept(spec: &TenantSpec) -> Self {
        Self { is_kept: true, ..Self::returning(spec) }
    }
}

/// Why a claim is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NoRoom {
    pub(super) reason: &'static str,
    pub(super) link: Option<String>,
    pub(super) missing: Option<Rate>,
    /// Those with the largest promises on the link.
    pub(super) tenants: Vec<String>,
    pub(super) detail: String,
}

/// A link's reservations. Up is away from the hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkUse {
    pub(crate) name: String,
    /// What it may promise, up and down.
    pub(crate) may: [Rate; 2],
    /// What it has promised.
    pub(crate) has: [Rate; 2],
    /// Tenants with a reservation.
    pub(crate) tenants: usize,
}

/// Sums of one tenant's claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Usage {
    pub(super) vms: u32,
    pub(super) out: Rate,
    pub(super) inward: Rate,
}

impl Usage {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            vms: self.vms + other.vms,
            out: self.out + other.out,
            inward: self.inward + other.inward,
        }
    }

    /// Never below nothing.
    pub(super) fn less(self, other: Self) -> Self {
        Self {
            vms: self.vms.saturating_sub(other.vms),
            out: self.out.saturating_sub(other.out),
            inward: self.inward.saturating_sub(other.inward),
        }
    }
}

/// A tenant in the ledger.
#[derive(Clone, Debug)]
struct Member {
    /// As the ledger has it: every VM with its host, ascending.
    request: TenantRequest,
    /// Claims with their numbers.
    vms: BTreeMap<String, VmId>,
    /// Names of its hoses; the first has the number 1. The floor is number 0.
    hoses: Vec<String>,
    usage: Usage,
}

/// How one change is taken back.
#[derive(Debug)]
pub(super) struct Before {
    tenant: String,
    saved: Option<Saved>,
    request: TenantRequest,
    hoses: Vec<String>,
    claims: Vec<(String, Option<(VmId, Claim)>)>,
}

/// What may be added in a part of the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Spare {
    /// Name of the host, or of the switch.
    pub(super) name: String,
    /// Hosts below a switch.
    pub(super) hosts: Vec<String>,
    pub(super) out: Rate,
    pub(super) inward: Rate,
    pub(super) slots: u64,
}

/// All claims and what they make on each link.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// None without a host.
    ledger: Option<Ledger>,
    hosts: BTreeMap<String, HostId>,
    host_names: Vec<String>,
    switches: BTreeMap<String, SwitchId>,
    /// Hosts that take no new VMs.
    draining: BTreeSet<HostId>,
    /// Links that take no new floors, by name.
    draining_links: BTreeSet<String>,
    claims: BTreeMap<String, Claim>,
    by_host: BTreeMap<String, BTreeSet<String>>,
    tenants: BTreeMap<String, Member>,
    tenant_names: Vec<String>,
    next_vm: u32,
    /// Trees of before the network changed: the first that are tried.
    earlier: BTreeMap<String, TreeName>,
}

impl Book {
    /// The book of a network without claims.
    pub(super) fn new(
        network: Network,
        earlier: BTreeMap<String, TreeName>,
    ) -> Result<Self, Problem> {
        let mut book = Self { earlier, ..Self::default() };
        let Some(topology) = network.topology else { return Ok(book) };
        for (n, host) in (0..).zip(&topology.hosts) {
            book.hosts.insert(host.name.clone(), HostId(n));
            book.host_names.push(host.name.clone());
        }
        for (n, switch) in (0..).zip(&topology.switches) {
            book.switches.insert(switch.name.clone(), SwitchId(n));
        }
        let name = |link: &LinkId| topology.links[link.0 as usize].name.clone();
        book.draining_links = network.draining_links.iter().map(name).collect();
        let refuse = |error: weir_core::ledger::TopologyError| {
            Problem::new(422, "BadTopology", "spec", error.to_string())
        };
        let ledger =
            Ledger::without(&network.down, &network.draining_links, topology, network.config);
        let mut ledger = ledger.map_err(refuse)?;
        for host in network.draining {
            ledger.close(host, true);
            book.draining.insert(host);
        }
        book.ledger = Some(ledger);
        Ok(book)
    }

    /// Changes some claims of a tenant, all or none.
    pub(super) fn change(
        &mut self,
        tenant: &str,
        terms: Terms,
        changes: &[Change],
    ) -> Result<Before, NoRoom> {
        let before = self.before(tenant, changes);
        let (request, hoses, numbers) = self.wanted(tenant, terms, changes)?;
        let there = !before.request.vms.is_empty();
        let gone: Vec<VmId> =
            before.claims.iter().filter_map(|(_, had)| had.as_ref().map(|(vm, _)| *vm)).collect();
        let only_less = !gone.is_empty() && changes.iter().all(|change| change.to.is_none());
        let number = request.tenant;
        let earlier = self.earlier_of(tenant).filter(|_| terms.is_returning);
        if let Some(ledger) = &mut self.ledger {
            ledger.set_policy(policy(terms.strategy));
            ledger.keep(terms.is_kept);
            let opened = match terms.is_returning {
                true => open(ledger, &self.draining, &request),
                false => Vec::new(),
            };
            let answer = match (there, request.vms.is_empty()) {
                (false, true) => Ok(()),
                (false, false) if earlier.is_some() => ledger.restore(&request, earlier).map(drop),
                (false, false) => ledger.place(&request).map(drop),
                (true, true) => {
                    ledger.remove(number);
                    Ok(())
                }
                // Less always fits, and its owner chose which VMs go.
                (true, false) if only_less => ledger.release(number, &gone).map(drop),
                (true, false) => ledger.resize(&request).map(drop),
            };
            ledger.keep(false);
            opened.into_iter().for_each(|host| ledger.close(host, true));
            answer.map_err(|refusal| self.explain(&refusal, terms))?;
        }
        self.enter(tenant, request, hoses, changes, &numbers);
        Ok(before)
    }

    /// Makes claims whose places are known, on the tree of before if that fits.
    pub(super) fn restore(
        &mut self,
        tenant: &str,
        claims: Vec<(String, Claim)>,
    ) -> Result<(), NoRoom> {
        let change = |(id, claim): (String, Claim)| {
            let Claim { host, promise, counted, .. } = claim;
            Change { id, to: Some(Wanted { host: Some(host), promise, counted }) }
        };
        let changes: Vec<Change> = claims.into_iter().map(change).collect();
        let routing = self.earlier_of(tenant);
        let (request, hoses, numbers) = self.wanted(tenant, Terms::default(), &changes)?;
        let Some(ledger) = &mut self.ledger else { return Err(no_host()) };
        let opened = open(ledger, &self.draining, &request);
        ledger.keep(true);
        let answer = ledger.restore(&request, routing).map(drop);
        ledger.keep(false);
        opened.into_iter().for_each(|host| ledger.close(host, true));
        answer.map_err(|refusal| self.explain(&refusal, Terms::default()))?;
        self.enter(tenant, request, hoses, &changes, &numbers);
        Ok(())
    }

    /// Moves a tenant to a tree without links that drain, if that works.
    pub(super) fn leave(&mut self, tenant: &str) -> Option<Before> {
        let before = self.before(tenant, &[]);
        self.ledger.as_mut()?.leave(before.request.tenant).then_some(before)
    }

    /// Takes a change back.
    pub(super) fn take_back(&mut self, before: Before) {
        let Before { tenant, saved, request, hoses, claims } = before;
        if let (Some(ledger), Some(saved)) = (&mut self.ledger, saved) {
            ledger.reset(saved);
        }
        for (id, _) in &claims {
            self.strike(id);
        }
        let member = self.tenants.get_mut(&tenant).expect("it was changed");
        (member.request, member.hoses) = (request, hoses);
        for (id, had) in claims {
            if let Some((vm, claim)) = had {
                self.write(&id, vm, claim);
            }
        }
    }

    fn before(&mut self, tenant: &str, changes: &[Change]) -> Before {
        let (names, count) = (&mut self.tenant_names, self.tenants.len());
        if !self.tenants.contains_key(tenant) {
            names.push(tenant.to_owned());
            let number = TenantId(u32::try_from(count).expect("fewer tenants than that"));
            let mut request = TenantRequest::uniform(number, 0, Rate::ZERO);
            request.classes.clear();
            let (vms, hoses) = (BTreeMap::new(), Vec::new());
            let member = Member { request, vms, hoses, usage: Usage::default() };
            self.tenants.insert(tenant.to_owned(), member);
        }
        let member = &self.tenants[tenant];
        let had = |id: &str| Some((*member.vms.get(id)?, self.claims.get(id)?.clone()));
        Before {
            tenant: tenant.to_owned(),
            saved: self.ledger.as_ref().map(|ledger| ledger.save(member.request.tenant)),
            request: member.request.clone(),
            hoses: member.hoses.clone(),
            claims: changes.iter().map(|change| (change.id.clone(), had(&change.id))).collect(),
        }
    }

    /// The tenant's request after the changes, the names of its hoses, and the number of each change's
    /// VM.
    fn wanted(
        &mut self,
        tenant: &str,
        terms: Terms,
        changes: &[Change],
    ) -> Result<(TenantRequest, Vec<String>, Vec<VmId>), NoRoom> {
        if !self.tenants.contains_key(tenant) {
            self.before(tenant, &[]);
        }
        let member = &self.tenants[tenant];
        let (mut request, mut hoses) = (member.request.clone(), member.hoses.clone());
        request.survival = Survival {
            host_permille: u16::from(terms.survival.host_percent) * 10,
            rack_permille: u16::from(terms.survival.rack_percent) * 10,
        };
        let mut known: BTreeMap<Vec<u64>, u16> =
            (0..).zip(&request.classes).map(|(n, class)| (key_of(class), n)).collect();
        let mut numbers = Vec::with_capacity(changes.len());
        let mut next = self.next_vm;
        for change in changes {
            let had = member.vms.get(&change.id).copied();
            let vm = had.unwrap_or(VmId(next));
            numbers.push(vm);
            next += u32::from(had.is_none());
            let at = request.vms.binary_search_by_key(&vm, |one| one.vm);
            let Some(wanted) = &change.to else {
                if let Ok(at) = at {
                    request.vms.remove(at);
                }
                continue;
            };
            let host = match &wanted.host {
                None => had.and_then(|_| self.hosts.get(&self.claims[&change.id].host).copied()),
                Some(name) => match self.hosts.get(name) {
                    Some(host) => Some(*host),
                    None if self.hosts.is_empty() => return Err(no_host()),
                    None => return Err(nowhere(&format!("host `{name}` takes no part"))),
                },
            };
            if self.ledger.is_none() {
                return Err(no_host());
            }
            let class = class_of(&mut hoses, &wanted.promise)?;
            let class = match known.entry(key_of(&class)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let number = u16::try_from(request.classes.len()).map_err(|_| too_many())?;
                    request.classes.push(class);
                    *new.insert(number)
                }
            };
            let wanted = VmRequest { vm, class, host };
            match at {
                Ok(at) => request.vms[at] = wanted,
                Err(at) => request.vms.insert(at, wanted),
            }
        }
        drop_unused(&mut request);
        Ok((request, hoses, numbers))
    }

    /// Writes down what the ledger has.
    fn enter(
        &mut self,
        tenant: &str,
        mut request: TenantRequest,
        hoses: Vec<String>,
        changes: &[Change],
        numbers: &[VmId],
    ) {
        if let Some(ledger) = &self.ledger
            && request.vms.iter().any(|vm| vm.host.is_none())
        {
            let placement = ledger.placement(request.tenant).expect("it was placed");
            for (vm, (number, host)) in request.vms.iter_mut().zip(&placement.vms) {
                assert_eq!(vm.vm, *number, "the ledger has the VMs of the request");
                vm.host = Some(*host);
            }
        }
        for (change, vm) in changes.iter().zip(numbers) {
            self.strike(&change.id);
            let Some(wanted) = &change.to else { continue };
            let at = request.vms.binary_search_by_key(vm, |one| one.vm).expect("it is wanted");
            let host = request.vms[at].host.expect("it was placed");
            let claim = Claim {
                tenant: tenant.to_owned(),
                host: self.host_names[host.0 as usize].clone(),
                promise: wanted.promise.clone(),
                counted: wanted.counted,
            };
            self.write(&change.id, *vm, claim);
            self.next_vm = self.next_vm.max(vm.0 + 1);
        }
        let member = self.tenants.get_mut(tenant).expect("it was changed");
        (member.request, member.hoses) = (request, hoses);
    }

    fn write(&mut self, id: &str, vm: VmId, claim: Claim) {
        let member = self.tenants.get_mut(&claim.tenant).expect("it was entered");
        member.usage = member.usage.plus(claim.counted);
        member.vms.insert(id.to_owned(), vm);
        self.by_host.entry(claim.host.clone()).or_default().insert(id.to_owned());
        let before = self.claims.insert(id.to_owned(), claim);
        assert!(before.is_none(), "{id} is claimed twice");
    }

    fn strike(&mut self, id: &str) {
        let Some(claim) = self.claims.remove(id) else { return };
        let member = self.tenants.get_mut(&claim.tenant).expect("it has a claim");
        member.usage = member.usage.less(claim.counted);
        member.vms.remove(id);
        if let Some(on) = self.by_host.get_mut(&claim.host) {
            on.remove(id);
        }
    }

    /// Gives a claim another name: from now on it counts as it is.
    pub(super) fn rename(&mut self, before: &str, now: &str, counted: Usage) {
        let vm = self.tenants[&self.claims[before].tenant].vms[before];
        let claim = Claim { counted, ..self.claims[before].clone() };
        self.strike(before);
        self.write(now, vm, claim);
    }

    pub(super) fn claim(&self, id: &str) -> Option<&Claim> {
        self.claims.get(id)
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = (&str, &Claim)> {
        self.claims.iter().map(|(id, claim)| (id.as_str(), claim))
    }

    pub(super) fn claims_on(&self, host: &str) -> impl Iterator<Item = &str> {
        self.by_host.get(host).into_iter().flatten().map(String::as_str)
    }

    pub(super) fn usage(&self, tenant: &str) -> Usage {
        self.tenants.get(tenant).map(|member| member.usage).unwrap_or_default()
    }

    /// The tree that a tenant is confined to.
    pub(super) fn tree(&self, tenant: &str) -> Option<TreeName> {
        let ledger = self.ledger.as_ref()?;
        match ledger.routing(self.tenants.get(tenant)?.request.tenant)? {
            Routing::Host(_) => None,
            Routing::Tree { root, rank } => {
                let root = ledger.topology().switches[root.0 as usize].name.clone();
                Some(TreeName { root, rank })
            }
        }
    }

    /// Names of the links that drain and that a tenant's tree has, and of the NICs of its hosts at a
    /// switch that drains.
    pub(super) fn draining_of(&self, tenant: &str) -> Vec<String> {
        let (Some(ledger), Some(member)) = (&self.ledger, self.tenants.get(tenant)) else {
            return Vec::new();
        };
        let mut links: BTreeSet<LinkId> =
            ledger.draining_of(member.request.tenant).into_iter().collect();
        // The NICs are the first links.
        let nics = member.request.vms.iter().filter_map(|vm| Some(LinkId(vm.host?.0)));
        links.extend(nics.filter(|nic| ledger.is_draining(*nic)));
        let names = &ledger.topology().links;
        links.into_iter().map(|link| names[link.0 as usize].name.clone()).collect()
    }

    /// Whether any link drains.
    pub(super) fn drains(&self) -> bool {
        !self.draining_links.is_empty()
    }

    /// Whether a link drains.
    pub(super) fn is_draining(&self, link: &str) -> bool {
        self.draining_links.contains(link)
    }

    /// Takes the names of trees from the book of before. In any graph, trees get other names when a link
    /// begins or ends to drain: then a tenant's tree is the one with the same links.
    pub(super) fn follow(&mut self, before: &Self) {
        let (Some(ours), Some(theirs)) = (&self.ledger, &before.ledger) else { return };
        if matches!(ours.topology().exploration, Exploration::Layers) {
            return;
        }
        let mut known: BTreeMap<TreeName, TreeName> = BTreeMap::new();
        let mut earlier = self.earlier.clone();
        for tree in earlier.values_mut() {
            let now = known.entry(tree.clone()).or_insert_with(|| {
                let had = before.shape_of(theirs, tree);
                let same = |rank: &u8| {
                    let tree = TreeName { root: tree.root.clone(), rank: *rank };
                    had.is_some() && self.shape_of(ours, &tree) == had
                };
                let rank = ours.ranks().find(same).unwrap_or(tree.rank);
                TreeName { root: tree.root.clone(), rank }
            });
            *tree = now.clone();
        }
        self.earlier = earlier;
    }

    /// Switches of a tree with their links toward the root, by names.
    fn shape_of(&self, ledger: &Ledger, tree: &TreeName) -> Option<BTreeSet<(String, String)>> {
        let root = *self.switches.get(&tree.root)?;
        let topology = ledger.topology();
        let names = |(switch, link): (SwitchId, Option<LinkId>)| {
            let link = link.map(|link| topology.links[link.0 as usize].name.clone());
            (topology.switches[switch.0 as usize].name.clone(), link.unwrap_or_default())
        };
        let nodes = ledger.tree(Routing::Tree { root, rank: tree.rank })?;
        Some(nodes.into_iter().map(names).collect())
    }

    /// What a tenant has reserved on which links, the sum of its floors, and the hosts of its VMs.
    pub(super) fn reserved(&self, tenant: &str) -> (Vec<Need>, Rate, BTreeSet<String>) {
        let member = self.tenants.get(tenant);
        let (Some(ledger), Some(member)) = (&self.ledger, member) else {
            return Default::default();
        };
        let placement = ledger.placement(member.request.tenant);
        let needs = placement.map_or_else(Vec::new, |placement| placement.links);
        let claims = member.vms.keys().filter_map(|id| self.claims.get(id));
        let payment = claims.clone().map(|claim| {
            let usage = claim.promise.usage();
            usage.out.max(usage.inward)
        });
        let payment = payment.sum();
        (needs, payment, claims.map(|claim| claim.host.clone()).collect())
    }

    /// Names of all links, by number.
    pub(super) fn link_names(&self) -> Vec<String> {
        let links = self.ledger.iter().flat_map(|ledger| &ledger.topology().links);
        links.map(|link| link.name.clone()).collect()
    }

    /// Trees of all tenants, and those of before that are not in use.
    pub(super) fn trees(&self) -> BTreeMap<String, TreeName> {
        let mut trees = self.earlier.clone();
        for tenant in self.tenants.keys() {
            trees.extend(self.tree(tenant).map(|tree| (tenant.clone(), tree)));
        }
        trees
    }

    fn earlier_of(&self, tenant: &str) -> Option<Routing> {
        self.routing_of(self.earlier.get(tenant)?)
    }

    /// The tree of that name, by the ledger's numbers.
    pub(super) fn routing_of(&self, tree: &TreeName) -> Option<Routing> {
        let root = *self.switches.get(&tree.root)?;
        Some(Routing::Tree { root, rank: tree.rank })
    }

    /// The ledger, once there is a host.
    pub(super) const fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    /// What may be added per host, per switch with links upward, and in all: whoever keeps to the
    /// three adds nothing that a link refuses. None with a routing of which a switch has no upper side.
    pub(super) fn additive(&self) -> Option<[Vec<Spare>; 3]> {
        let mut rooms: [Vec<Spare>; 3] = Default::default();
        let Some(ledger) = &self.ledger else { return Some(rooms) };
        let [hosts, switches, network] = &mut rooms;
        for AdditiveRoom { domain, floors, slots } in ledger.additive()? {
            let name_of = |host: &HostId| self.host_names[host.0 as usize].clone();
            let (name, below, into) = match domain {
                Domain::Host(host) => (name_of(&host), Vec::new(), &mut *hosts),
                Domain::Switch(switch) => {
                    let name = ledger.topology().switches[switch.0 as usize].name.clone();
                    let below = ledger.hosts_in(domain).iter().map(name_of).collect();
                    (name, below, &mut *switches)
                }
                Domain::Network => ("all".to_owned(), Vec::new(), &mut *network),
            };
            let (out, inward) = (floors.out, floors.into);
            into.push(Spare { name, hosts: below, out, inward, slots });
        }
        Some(rooms)
    }

    /// Every link with what it may promise and what it has promised, up and down.
    pub(super) fn links(&self) -> Vec<LinkUse> {
        let Some(ledger) = &self.ledger else { return Vec::new() };
        let links = ledger.topology().links.iter().zip(0..);
        let told = links.map(|(link, number)| {
            let of = |direction| ledger.link(LinkId(number), direction);
            let (up, down) = (of(Direction::Forward), of(Direction::Backward));
            let tenants = ledger.tenants_on(LinkId(number)).len();
            LinkUse { name: link.name.clone(), may: [up.0, down.0], has: [up.1, down.1], tenants }
        });
        told.collect()
    }

    /// The names of the tenants with a reservation on a link; `None` if there is no such link.
    pub(super) fn tenants_on(&self, link: &str) -> Option<Vec<String>> {
        let ledger = self.ledger.as_ref()?;
        let number = ledger.topology().links.iter().position(|it| it.name == link)?;
        let tenants = ledger.tenants_on(LinkId(number as u32)).iter();
        Some(tenants.map(|tenant| self.tenant_names[tenant.0 as usize].clone()).collect())
    }

    /// What may be added for a tenant, or for one that is not there yet.
    pub(super) fn tenant_room(&self, tenant: &str) -> Option<TenantRoom> {
        let number = self.tenants.get(tenant).map(|member| member.request.tenant);
        self.ledger.as_ref()?.tenant_room(number)
    }

    /// The name of a host or switch.
    pub(super) fn name_of(&self, place: Domain) -> String {
        let switches = self.ledger.as_ref().map(|ledger| &ledger.topology().switches);
        match (place, switches) {
            (Domain::Host(host), _) => self.host_names[host.0 as usize].clone(),
            (Domain::Switch(switch), Some(all)) => all[switch.0 as usize].name.clone(),
            _ => "all".to_owned(),
        }
    }

    /// What is free on each link that a tenant uses: the least of both directions. `None` if the ledger
    /// does not have the tenant.
    pub(super) fn free_on_links(&self, tenant: &str) -> Option<BTreeMap<u32, Rate>> {
        let ledger = self.ledger.as_ref()?;
        let member = self.tenants.get(tenant).filter(|member| !member.vms.is_empty())?;
        let free = |link| {
            let free = |direction| {
                let (capacity, reserved) = ledger.link(link, direction);
                capacity.saturating_sub(reserved)
            };
            free(Direction::Forward).min(free(Direction::Backward))
        };
        let links = ledger.tree_links(member.request.tenant);
        Some(links.into_iter().map(|link| (link.0, free(link))).collect())
    }

    /// No link promises more than it may, and the sums are those of the claims.
    pub(super) fn check(&self) {
        let Some(ledger) = &self.ledger else {
            assert!(self.claims.is_empty(), "claims without a host");
            return;
        };
        if let Err(what) = ledger.audit() {
            panic!("the ledger does not add up: {what}");
        }
        let mut usage: BTreeMap<&str, Usage> = BTreeMap::new();
        for (id, claim) in &self.claims {
            let of = usage.entry(&claim.tenant).or_default();
            *of = of.plus(claim.counted);
            let member = &self.tenants[&claim.tenant];
            let vms = &member.request.vms;
            let at = vms.binary_search_by_key(&member.vms[id], |vm| vm.vm);
            let host = vms[at.expect("it is wanted")].host.expect("it was placed");
            assert_eq!(self.host_names[host.0 as usize], claim.host, "{id}");
        }
        for (name, member) in &self.tenants {
            let expected = usage.get(name.as_str()).copied().unwrap_or_default();
            assert_eq!(member.usage, expected, "{name}");
            assert_eq!(member.vms.len(), member.request.vms.len(), "{name}");
            let has = ledger.placement(member.request.tenant);
            let has: Vec<_> = has.into_iter().flat_map(|placement| placement.vms).collect();
            let wanted = member.request.vms.iter();
            let wanted: Vec<_> =
                wanted.map(|vm| (vm.vm, vm.host.expect("it was placed"))).collect();
            assert_eq!(has, wanted, "{name}: the ledger has the VMs of the book");
        }
    }

    fn explain(&self, refusal: &Refusal, terms: Terms) -> NoRoom {
        let plain = |reason, detail: String| NoRoom { reason, ..nowhere(&detail) };
        match refusal {
            Refusal::Link(full) => self.link_full(full),
            Refusal::Slots { host: Some(host), .. } => {
                let name = &self.host_names[host.0 as usize];
                plain("HostFull", format!("host `{name}` has no slot left: choose another"))
            }
            Refusal::Slots { host: None, .. } => {
                plain("NoSlot", "no host has a slot left: add hosts or remove VMs".into())
            }
            Refusal::HostClosed(host) => {
                let name = &self.host_names[host.0 as usize];
                let detail = format!("host `{name}` takes no new VMs: choose another");
                plain("HostDraining", detail)
            }
            Refusal::NoRoute => {
                let detail = "no tree of links joins the hosts of the tenant (and the outside, if the VM \
                              has floors to it): apply the missing links, or name `spec.gateways` in the \
                              Topology";
                plain("NoRoute", detail.into())
            }
            Refusal::Survival => {
                let objects::Survival { host_percent, rack_percent } = terms.survival;
                let detail = format!(
                    "no hosts hold the tenant so that {host_percent} % of its VMs survive a host and \
                     {rack_percent} % a rack: apply its VMs together, or ask for less in spec.survival \
                     of the Tenant"
                );
                plain("Survival", detail)
            }
            other => plain("DoesNotFit", other.to_string()),
        }
    }

    fn link_full(&self, full: &LinkFull) -> NoRoom {
        let ledger = self.ledger.as_ref().expect("it refused");
        let link = ledger.topology().direction_name(full.link, full.direction);
        let missing = full.missing();
        if ledger.is_draining(full.link) {
            let detail = format!(
                "{link} drains and takes no new floors: choose hosts that other links join, or set its                  state to `up`"
            );
            return NoRoom { reason: "LinkDraining", link: Some(link), ..nowhere(&detail) };
        }
        let name = |(tenant, _): &(TenantId, Rate)| self.tenant_names[tenant.0 as usize].clone();
        NoRoom {
            reason: "LinkFull",
            detail: format!("{link} is full: it needs {} more", show_rate(missing)),
            link: Some(link),
            missing: Some(missing),
            tenants: full.in_the_way.iter().map(name).collect(),
        }
    }
}

fn nowhere(detail: &str) -> NoRoom {
    let detail = detail.to_owned();
    NoRoom { reason: "NoHost", link: None, missing: None, tenants: Vec::new(), detail }
}

fn no_host() -> NoRoom {
    nowhere("there is no host: apply one first")
}

fn policy(strategy: Strategy) -> Policy {
    match strategy {
        Strategy::Balanced => Policy::Balanced(Weight::Load),
        Strategy::Oktopus => Policy::Oktopus,
        Strategy::FirstFit => Policy::FirstFit,
    }
}

/// Opens the draining hosts that a request names: those.
fn open(ledger: &mut Ledger, draining: &BTreeSet<HostId>, request: &TenantRequest) -> Vec<HostId> {
    if draining.is_empty() {
        return Vec::new();
    }
    let named: BTreeSet<HostId> = request.vms.iter().filter_map(|vm| vm.host).collect();
    let opened: Vec<HostId> = named.intersection(draining).copied().collect();
    opened.iter().for_each(|host| ledger.close(*host, false));
    opened
}

fn too_many() -> NoRoom {
    nowhere("the tenant has more than 65,000 different floors or hoses")
}

/// The class with these floors. Names of hoses that are new get the next numbers.
fn class_of(hoses: &mut Vec<String>, promise: &Promise) -> Result<Class, NoRoom> {
    let floors = |of: &objects::Floors| Floors { out: of.out.0, into: of.inward.0 };
    let mut attachments = vec![Attachment { hose: 0, floors: floors(&promise.floor) }];
    for hose in &promise.hoses {
        let known = hoses.iter().position(|name| *name == hose.name);
        let number = known.unwrap_or_else(|| {
            hoses.push(hose.name.clone());
            hoses.len() - 1
        });
        let number = u16::try_from(number + 1).map_err(|_| too_many())?;
        attachments.push(Attachment { hose: number, floors: floors(&hose.floor) });
    }
    Ok(Class { slots: 1, hoses: attachments, external: floors(&promise.external) })
}

/// Equal for equal classes.
fn key_of(class: &Class) -> Vec<u64> {
    let floors = |of: &Floors| [of.out.as_bps(), of.into.as_bps()];
    let hoses = class
        .hoses
        .iter()
        .flat_map(|hose| [u64::from(hose.hose)].into_iter().chain(floors(&hose.floors)));
    floors(&class.external).into_iter().chain(hoses).collect()
}

/// Drops classes that no VM has, once they are many.
fn drop_unused(request: &mut TenantRequest) {
    if request.classes.len() <= 2 * request.vms.len() + 8 {
        return;
    }
    let mut now = vec![None; request.classes.len()];
    let mut kept = Vec::new();
    for vm in &mut request.vms {
        let class = usize::from(vm.class);
        vm.class = *now[class].get_or_insert_with(|| {
            kept.push(request.classes[class].clone());
            // There were no more before.
            (kept.len() - 1) as u16
        });
    }
    request.classes = kept;
}
