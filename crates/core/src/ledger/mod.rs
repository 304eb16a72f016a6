//! The sum of all promises: what each tenant may have of each link and host.
//!
//! Problem   A floor is a promise only if it is added to all others on every link that it may need.
//! Approach  A tenant is confined to a tree. On each link of it and in each direction, each of its
//!           hoses needs the smaller of what the VMs on one side may send and those on the other may
//!           receive. A change takes the tenant out of the sums, looks for a place for all of it, and
//!           puts it back: as it shall be, or as it was.
//! Promises  The sums of links and hosts are those of the tenants in the ledger ([`Ledger::audit`]).
//!           No link promises more than its rate less the headroom. A refusal changes nothing. The
//!           same calls in the same order give the same answers.
//! Not here  Which place is best: see `placement`. Names, storage, time, quotas, reservations that end
//!           by themselves, and which floors fall when the network shrinks: `weir-controller`.
//! Source    ElasticSwitch §2 (hoses), §7 (headroom), §9 (generalized links); QShare §4; CloudMirror
//!           (TAG) for hoses between components.
//!
//! # Calls
//! - A tenant as a whole: [`place`](Ledger::place), [`resize`](Ledger::resize),
//!   [`remove`](Ledger::remove); some of its VMs: [`release`](Ledger::release).
//! - A caller that may have to take calls back: [`save`](Ledger::save), [`reset`](Ledger::reset).
//! - A network that changed is another ledger: [`without`](Ledger::without) leaves out links that
//!   failed, and [`restore`](Ledger::restore) puts each tenant back, those first that shall keep
//!   their floors.
//! - Links that drain: [`keep`](Ledger::keep) says that floors were promised before, and
//!   [`leave`](Ledger::leave) moves a tenant to a tree without such links.
//! - The rest reads.

mod additive;
pub(crate) mod book;
mod cut;
pub(crate) mod request;
mod tenant_room;
pub(crate) mod topology;
pub(crate) mod trees;

pub use additive::{AdditiveRoom, Domain};
pub use cut::{Cut, promisable};
pub use request::{
    Attachment, Class, Floors, Invalid, LinkFull, Need, Placement, Refusal, Routing, Survival,
    TenantRequest, VmRequest,
};
pub use tenant_room::{TenantPlace, TenantRoom};
pub use topology::{
    Direction, Exploration, FatTreeShape, Host, LeafSpineShape, Link, LinkId, Node, Switch,
    SwitchId, Topology, TopologyError,
};

use crate::placement::sketch::{Located, Scratch, Sketch, Stop};
use crate::placement::spec::Spec;
use crate::placement::{Nearest, Policy, Search, Weight};
use book::{Book, Grant, side};
use std::collections::BTreeMap;
use std::sync::Arc;
use trees::{NONE, Shape};
use weir_units::{HostId, Rate, TenantId, VmId};

/// What an operator sets for all tenants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// Part of each link that is not promised, of one. ElasticSwitch §7: a tenth.
    pub headroom: f64,
    /// How places are chosen.
    pub policy: Policy,
    /// Steps of an exhaustive search where the policy finds no place; 0 for none. With more, more
    /// tenants are admitted, and a refusal takes longer: about 5 ns a step.
    pub effort: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { headroom: 0.1, policy: Policy::Balanced(Weight::Load), effort: 0 }
    }
}

/// A VM in the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Vm {
    pub(crate) id: VmId,
    pub(crate) class: u16,
    /// [`NONE`] while a place is looked for.
    pub(crate) host: u32,
}

/// A tenant in the ledger.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Tenant {
    pub(crate) survival: Survival,
    pub(crate) classes: Arc<[Class]>,
    /// By number.
    pub(crate) vms: Vec<Vm>,
    pub(crate) tree: Option<usize>,
    pub(crate) routing: Option<Routing>,
    pub(crate) needs: Vec<Need>,
}

/// A tenant as [`Ledger::save`] found it.
#[derive(Clone, Debug)]
pub struct Saved {
    id: TenantId,
    tenant: Option<Tenant>,
}

/// The ledger.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub(crate) config: Config,
    pub(crate) shape: Arc<Shape>,
    pub(crate) book: Book,
    pub(crate) tenants: BTreeMap<TenantId, Tenant>,
    /// See [`Ledger::keep`].
    is_keeping: bool,
    has_draining: bool,
    scratch: Scratch,
}

impl Ledger {
    /// An empty ledger.
    ///
    /// # Errors
    /// The topology is none.
    pub fn new(topology: Topology, config: Config) -> Result<Self, TopologyError> {
        Self::without(&[], &[], topology, config)
    }

    /// The same with links that carry nothing, because they failed, and links that drain: a tenant may
    /// keep what it has of these, and gets nothing more.
    ///
    /// # Errors
    /// The topology is none.
    pub fn without(
        failed: &[LinkId],
        draining: &[LinkId],
        topology: Topology,
        config: Config,
    ) -> Result<Self, TopologyError> {
        topology.check()?;
        let shape = Shape::new(topology, draining);
        let capacity = |at: usize| {
            let link = &shape.topology.links[at];
            let is_down = failed.contains(&LinkId(at as u32));
            let rate = link.rate * u64::from(link.members);
            if is_down { 0 } else { promisable(rate, config.headroom).as_bps() }
        };
        let mut book = Book::new(&shape, capacity);
        for link in draining {
            book.links[link.0 as usize].is_draining = true;
        }
        Ok(Self {
            config,
            book,
            shape: Arc::new(shape),
            tenants: BTreeMap::new(),
            is_keeping: false,
            has_draining: !draining.is_empty(),
            scratch: Scratch::default(),
        })
    }

    /// Admits a tenant, and chooses hosts for those of its VMs that name none.
    ///
    /// # Errors
    /// It is there already, or does not fit.
    pub fn place(&mut self, request: &TenantRequest) -> Result<Placement, Refusal> {
        if self.tenants.contains_key(&request.tenant) {
            return Err(Refusal::TenantExists(request.tenant));
        }
        self.apply(request, None)
    }

    /// As [`place`](Self::place), on the tree that it had before, if it fits: for a ledger that is
    /// built again from what was stored. Survival is a matter of hosts: it is not asked for if every
    /// VM has one.
    ///
    /// # Errors
    /// As [`place`](Self::place).
    pub fn restore(
        &mut self,
        request: &TenantRequest,
        routing: Option<Routing>,
    ) -> Result<Placement, Refusal> {
        if self.tenants.contains_key(&request.tenant) {
            return Err(Refusal::TenantExists(request.tenant));
        }
        if request.vms.iter().any(|vm| vm.host.is_none()) {
            return self.apply(request, routing);
        }
        let anywhere = TenantRequest { survival: Survival::default(), ..request.clone() };
        let placement = self.apply(&anywhere, routing)?;
        let there = self.tenants.get_mut(&request.tenant).expect("it was placed");
        there.survival = request.survival;
        Ok(placement)
    }

    /// How places are chosen from now on. Nothing moves.
    pub fn set_policy(&mut self, policy: Policy) {
        self.config.policy = policy;
    }

    /// Whether the floors that come from now on were promised before. Then a tenant's tree is open to
    /// them, whichever of its links drain.
    pub fn keep(&mut self, is_keeping: bool) {
        self.is_keeping = is_keeping;
    }

    /// Moves a tenant to a tree without links that drain; its VMs stay where they are. Returns whether
    /// that worked; else the tenant is as it was.
    pub fn leave(&mut self, tenant: TenantId) -> bool {
        if !self.has_draining || self.draining_of(tenant).is_empty() {
            return false;
        }
        let old = self.lift(tenant).expect("it has links");
        let found = self.fit(Tenant { tree: None, ..old.clone() }, false);
        let has_left = found.is_ok();
        self.put(tenant, found.unwrap_or(old));
        has_left
    }

    /// The links that drain and that join a tenant's hosts or its gateway, by number.
    pub fn draining_of(&self, tenant: TenantId) -> Vec<LinkId> {
        let mut links = self.tree_links(tenant);
        links.retain(|link| self.is_draining(*link));
        links
    }

    /// Whether a link drains.
    ///
    /// # Panics
    /// There is no such link.
    pub fn is_draining(&self, link: LinkId) -> bool {
        self.book.links[link.0 as usize].is_draining
    }

    /// The switches of a tree, each with its link toward the root; `None` if there is no such tree.
    pub fn tree(&self, routing: Routing) -> Option<Vec<(SwitchId, Option<LinkId>)>> {
        let tree = &self.shape.trees[self.find_tree(routing)?];
        let link = |link: u32| (link != NONE).then_some(LinkId(link));
        Some(tree.nodes.iter().map(|node| (SwitchId(node.switch), link(node.link))).collect())
    }

    /// Which trees a root may have.
    pub fn ranks(&self) -> impl Iterator<Item = u8> + use<> {
        let most = self.shape.trees.iter().map(|tree| tree.rank).max();
        0..=most.unwrap_or(0)
    }

    fn find_tree(&self, routing: Routing) -> Option<usize> {
        let Routing::Tree { root, rank } = routing else { return None };
        self.shape.trees.iter().position(|tree| tree.root() == root.0 && tree.rank == rank)
    }

    /// A tenant as it is, or that it is not there.
    pub fn save(&self, tenant: TenantId) -> Saved {
        Saved { id: tenant, tenant: self.tenants.get(&tenant).cloned() }
    }

    /// Makes a tenant what it was. That always fits if later changes of all tenants were taken back
    /// before, the latest first.
    pub fn reset(&mut self, saved: Saved) {
        self.lift(saved.id);
        if let Some(tenant) = saved.tenant {
            self.put(saved.id, tenant);
        }
    }

    /// Changes a tenant to what the request says, all of it or nothing. VMs that it does not list
    /// are released; those that it lists without a host stay where they are; new ones are placed.
    ///
    /// # Errors
    /// It is unknown, or does not fit. Then it is as it was.
    pub fn resize(&mut self, request: &TenantRequest) -> Result<Placement, Refusal> {
        if !self.tenants.contains_key(&request.tenant) {
            return Err(Refusal::NoSuchTenant(request.tenant));
        }
        self.apply(request, None)
    }

    /// Releases all of a tenant. Returns whether it was there.
    pub fn remove(&mut self, tenant: TenantId) -> bool {
        self.lift(tenant).is_some()
    }

    /// Releases VMs. Those that are not there (any more) are left out: a repetition does nothing.
    ///
    /// # Errors
    /// The tenant is unknown.
    pub fn release(&mut self, tenant: TenantId, vms: &[VmId]) -> Result<Placement, Refusal> {
        let mut draft = self.lift(tenant).ok_or(Refusal::NoSuchTenant(tenant))?;
        draft.vms.retain(|vm| !vms.contains(&vm.id));
        if draft.vms.is_empty() {
            (draft.tree, draft.routing, draft.needs) = (None, None, Vec::new());
        } else {
            // Survival is not asked for: the owner chose which VMs go.
            draft.needs = draft.needs_anyhow(&self.shape, &self.book, &mut self.scratch);
        }
        let placement = draft.placement();
        self.put(tenant, draft);
        Ok(placement)
    }

    /// Whether a host takes new VMs. Those that it has keep their floors.
    ///
    /// # Panics
    /// There is no such host.
    pub fn close(&mut self, host: HostId, is_closed: bool) {
        self.book.close(&self.shape, host.0, is_closed);
    }

    /// What a tenant's traffic is confined to; `None` without VMs.
    pub fn routing(&self, tenant: TenantId) -> Option<Routing> {
        self.tenants.get(&tenant)?.routing
    }

    /// Where a tenant is.
    pub fn placement(&self, tenant: TenantId) -> Option<Placement> {
        self.tenants.get(&tenant).map(Tenant::placement)
    }

    /// A tenant as it is, each VM with its host: [`restore`](Self::restore) takes it back.
    pub fn request(&self, tenant: TenantId) -> Option<TenantRequest> {
        let there = self.tenants.get(&tenant)?;
        let vm = |vm: &Vm| VmRequest { vm: vm.id, class: vm.class, host: Some(HostId(vm.host)) };
        Some(TenantRequest {
            tenant,
            survival: there.survival,
            classes: there.classes.to_vec(),
            vms: there.vms.iter().map(vm).collect(),
        })
    }

    /// The links that join a tenant's hosts, and its gateway if it has floors to the outside, by
    /// number; those without a reservation too.
    pub fn tree_links(&self, tenant: TenantId) -> Vec<LinkId> {
        let Some(there) = self.tenants.get(&tenant) else { return Vec::new() };
        let Some(tree) = there.tree.map(|tree| &self.shape.trees[tree]) else { return Vec::new() };
        let mut links = Vec::new();
        let mut nodes: Vec<u32> = Vec::new();
        for host in there.vms.iter().map(|vm| vm.host) {
            let (port, node) = self.shape.port_in(tree, host).expect("its tree joins its hosts");
            links.push(LinkId(port.link));
            nodes.push(node);
        }
        nodes.extend(self.gateway_of(tenant).map(|_| tree.gateway));
        for mut node in nodes {
            while tree.nodes[node as usize].parent != NONE {
                links.push(LinkId(tree.nodes[node as usize].link));
                node = tree.nodes[node as usize].parent;
            }
        }
        links.sort_unstable();
        links.dedup();
        links
    }

    /// The switch by which a tenant's traffic to the outside leaves; `None` without such floors.
    pub fn gateway_of(&self, tenant: TenantId) -> Option<SwitchId> {
        let there = self.tenants.get(&tenant)?;
        let tree = &self.shape.trees[there.tree?];
        let has_outside = there.classes.iter().any(|class| class.external != Floors::default());
        has_outside.then(|| SwitchId(tree.nodes[tree.gateway as usize].switch))
    }

    /// All tenants, by number.
    pub fn tenants(&self) -> impl Iterator<Item = TenantId> + '_ {
        self.tenants.keys().copied()
    }

    /// The topology.
    pub fn topology(&self) -> &Topology {
        &self.shape.topology
    }

    /// What a direction of a link may promise, and what it has promised.
    ///
    /// # Panics
    /// There is no such link.
    pub fn link(&self, link: LinkId, direction: Direction) -> (Rate, Rate) {
        let account = &self.book.links[link.0 as usize];
        let side = side(direction);
        (Rate::from_bps(account.capacity[side]), Rate::from_bps(account.reserved[side]))
    }

    /// The tenants with a reservation on a link, by number.
    ///
    /// # Panics
    /// There is no such link.
    pub fn tenants_on(&self, link: LinkId) -> &[TenantId] {
        &self.book.links[link.0 as usize].tenants
    }

    /// A host's slots, and how many are taken.
    ///
    /// # Panics
    /// There is no such host.
    pub fn slots(&self, host: HostId) -> (u32, u32) {
        let account = &self.book.hosts[host.0 as usize];
        (account.slots, account.used)
    }

    fn apply(
        &mut self,
        request: &TenantRequest,
        routing: Option<Routing>,
    ) -> Result<Placement, Refusal> {
        let old = self.tenants.get(&request.tenant);
        let mut vms: Vec<Vm> = Vec::with_capacity(request.vms.len());
        let known = |id: VmId| {
            let vms = &old?.vms;
            vms.binary_search_by_key(&id, |vm| vm.id).ok().map(|i| vms[i])
        };
        for wanted in &request.vms {
            if usize::from(wanted.class) >= request.classes.len() {
                return Err(Refusal::Invalid(Invalid::NoSuchClass(wanted.vm)));
            }
            let before = known(wanted.vm);
            let host = match (wanted.host, before) {
                (Some(host), Some(vm)) if host.0 == vm.host => host.0,
                (Some(host), _) => self.open_host(host)?,
                (None, before) => before.map_or(NONE, |vm| vm.host),
            };
            vms.push(Vm { id: wanted.vm, class: wanted.class, host });
        }
        vms.sort_unstable_by_key(|vm| vm.id);
        if let Some(twice) = vms.windows(2).find(|two| two[0].id == two[1].id) {
            return Err(Refusal::Invalid(Invalid::VmTwice(twice[0].id)));
        }
        let tree = match routing {
            Some(routing @ Routing::Tree { .. }) => self.find_tree(routing),
            _ => old.and_then(|old| old.tree),
        };
        let draft = Tenant {
            survival: request.survival,
            classes: request.classes.clone().into(),
            vms,
            tree,
            routing: None,
            needs: Vec::new(),
        };
        self.exchange(request.tenant, draft)
    }

    /// The host, if it takes new VMs.
    fn open_host(&self, host: HostId) -> Result<u32, Refusal> {
        let account = self.book.hosts.get(host.0 as usize).ok_or(Refusal::NoSuchHost(host))?;
        if account.is_closed { Err(Refusal::HostClosed(host)) } else { Ok(host.0) }
    }

    /// Puts `draft` in the tenant's place if it fits; else all is as it was. Its tree is tried first.
    fn exchange(&mut self, tenant: TenantId, draft: Tenant) -> Result<Placement, Refusal> {
        let held = self.held(tenant);
        let old = self.lift(tenant);
        let kept = match draft.tree {
            Some(_) if self.is_keeping && self.has_draining => {
                self.book.grant = Grant::All;
                self.fit(draft.clone(), true).ok()
            }
            _ => None,
        };
        self.book.grant = Grant::Held(held);
        let found = kept.map_or_else(|| self.fit(draft, false), Ok);
        self.book.grant = Grant::Held(Vec::new());
        match found {
            Ok(new) => {
                let placement = new.placement();
                self.put(tenant, new);
                Ok(placement)
            }
            Err(refusal) => {
                if let Some(old) = old {
                    self.put(tenant, old);
                }
                Err(refusal)
            }
        }
    }

    /// What a tenant has of links that drain.
    fn held(&self, tenant: TenantId) -> Vec<(u32, [u64; 2])> {
        if !self.has_draining {
            return Vec::new();
        }
        let needs = self.tenants.get(&tenant).map_or(&[][..], |there| &there.needs);
        let held = |link: LinkId| {
            let at = needs.binary_search_by_key(&link, |need| need.link);
            let rates = |need: &Need| [need.forward.as_bps(), need.backward.as_bps()];
            (link.0, at.map_or([0; 2], |at| rates(&needs[at])))
        };
        self.draining_of(tenant).into_iter().map(held).collect()
    }

    /// Finds a place for a tenant that is not in the sums: on its tree only, or on any.
    fn fit(&mut self, mut draft: Tenant, only_there: bool) -> Result<Tenant, Refusal> {
        let spec = draft.spec()?;
        let mut wanted = vec![0; draft.classes.len()];
        let mut located = Vec::with_capacity(draft.vms.len());
        for vm in &draft.vms {
            let class = usize::from(vm.class);
            if vm.host == NONE {
                wanted[class] += 1;
            } else {
                located.push(Located { class, host: vm.host });
            }
        }
        if draft.vms.is_empty() {
            (draft.tree, draft.routing, draft.needs) = (None, None, Vec::new());
            return Ok(draft);
        }
        let search = Search {
            shape: &self.shape,
            book: &self.book,
            spec: &spec,
            located: &located,
            wanted: &wanted,
            policy: self.config.policy,
            effort: self.config.effort,
        };
        let found = match draft.tree {
            Some(tree) if only_there => search.evaluate(tree, &mut self.scratch),
            tree => search.run(tree, &mut self.scratch),
        };
        let solution = found.map_err(|near| self.refusal(near, &spec, &located, &wanted))?;
        let mut places: Vec<Vec<(u32, u32)>> = vec![Vec::new(); draft.classes.len()];
        for (class, host, vms) in solution.placed.into_iter().rev() {
            places[class].push((host, vms));
        }
        for vm in draft.vms.iter_mut().filter(|vm| vm.host == NONE) {
            let places = &mut places[usize::from(vm.class)];
            let (host, left) = places.last_mut().expect("a place for each VM");
            vm.host = *host;
            *left -= 1;
            if *left == 0 {
                places.pop();
            }
        }
        draft.tree = solution.tree;
        draft.routing = Some(solution.routing);
        draft.needs = solution.needs;
        Ok(draft)
    }

    fn refusal(&self, near: Nearest, spec: &Spec, located: &[Located], wanted: &[u32]) -> Refusal {
        let slots = |class: usize| u64::from(spec.slots[class]);
        match near.stop {
            Stop::Link { link, direction, needed } => {
                let available = Rate::from_bps(self.book.room(link)[side(direction)]);
                let needed = Rate::from_bps(needed);
                let link = LinkId(link);
                let in_the_way = self.in_the_way(link, direction, LinkFull::MOST);
                Refusal::Link(Box::new(LinkFull { link, direction, needed, available, in_the_way }))
            }
            Stop::Slots { host } if located.iter().any(|vm| vm.host == host) => {
                let here = located.iter().filter(|vm| vm.host == host);
                let needed = here.map(|vm| slots(vm.class)).sum();
                let free = self.book.hosts[host as usize].free().into();
                Refusal::Slots { host: Some(HostId(host)), needed, free }
            }
            _ => {
                let needed = (0..).zip(wanted).map(|(c, n)| slots(c) * u64::from(*n)).sum();
                near.refusal_without_link(self.book.slots - self.book.used, needed)
            }
        }
    }

    /// Tenants with a reservation in a direction of a link, the largest first.
    pub(crate) fn in_the_way(
        &self,
        link: LinkId,
        direction: Direction,
        most: usize,
    ) -> Vec<(TenantId, Rate)> {
        let on = |tenant: &TenantId| {
            let needs = &self.tenants[tenant].needs;
            let at = needs.binary_search_by_key(&link, |need| need.link).ok()?;
            let rate = match direction {
                Direction::Forward => needs[at].forward,
                Direction::Backward => needs[at].backward,
            };
            (!rate.is_zero()).then_some((*tenant, rate))
        };
        let tenants = &self.book.links[link.0 as usize].tenants;
        let mut others: Vec<(TenantId, Rate)> = tenants.iter().filter_map(on).collect();
        others.sort_by_key(|(_, rate)| std::cmp::Reverse(*rate));
        others.truncate(most);
        others
    }

    /// Takes a tenant out of all sums.
    pub(crate) fn lift(&mut self, id: TenantId) -> Option<Tenant> {
        let tenant = self.tenants.remove(&id)?;
        self.book.release(id, &tenant.needs);
        for (host, slots) in tenant.slots() {
            self.book.free_slots(&self.shape, host, slots);
        }
        Some(tenant)
    }

    /// Adds a tenant to all sums.
    pub(crate) fn put(&mut self, id: TenantId, tenant: Tenant) {
        self.book.reserve(id, &tenant.needs);
        for (host, slots) in tenant.slots() {
            self.book.take_slots(&self.shape, host, slots);
        }
        let before = self.tenants.insert(id, tenant);
        assert!(before.is_none(), "{id} was lifted before");
    }

    /// Computes all sums again from the tenants alone and compares: what differs, or `Ok`.
    ///
    /// # Errors
    /// The first sum or reservation that is wrong. That is a bug of ours.
    pub fn audit(&self) -> Result<(), String> {
        let mut fresh = Book::new(&self.shape, |_| 0);
        for (account, ours) in fresh.links.iter_mut().zip(&self.book.links) {
            (account.capacity, account.is_draining) = (ours.capacity, ours.is_draining);
        }
        for (host, ours) in (0u32..).zip(&self.book.hosts) {
            fresh.close(&self.shape, host, ours.is_closed);
        }
        let mut scratch = Scratch::default();
        for (id, tenant) in &self.tenants {
            let needs = tenant.needs_anyhow(&self.shape, &self.book, &mut scratch);
            if needs != tenant.needs {
                return Err(format!("{id} needs {needs:?}, not {:?}", tenant.needs));
            }
            fresh.reserve(*id, &tenant.needs);
            for (host, slots) in tenant.slots() {
                fresh.take_slots(&self.shape, host, slots);
            }
        }
        if let Some(link) = (0..fresh.links.len()).find(|l| fresh.links[*l] != self.book.links[*l])
        {
            let (found, right) = (&self.book.links[link], &fresh.links[link]);
            return Err(format!("link {link} has {found:?}, not {right:?}"));
        }
        if let Some(link) = (0..fresh.links.len()).find(|l| self.book.is_over(*l)) {
            return Err(format!("link {link} is over: {:?}", self.book.links[link]));
        }
        if fresh != self.book {
            return Err("sums of hosts differ".to_owned());
        }
        Ok(())
    }
}

impl Tenant {
    pub(crate) fn spec(&self) -> Result<Spec, Refusal> {
        let mut counts = vec![0; self.classes.len()];
        self.vms.iter().for_each(|vm| counts[usize::from(vm.class)] += 1);
        Spec::new(&self.classes, counts, self.survival)
    }

    /// What its links need, whatever they have left.
    fn needs_anyhow(&self, shape: &Shape, book: &Book, scratch: &mut Scratch) -> Vec<Need> {
        let Some(tree) = self.tree else { return Vec::new() };
        let spec = self.spec().expect("was read at admission");
        let mut sketch = Sketch::unbounded((shape, book), &shape.trees[tree], &spec, scratch);
        let located: Vec<Located> = self.located().collect();
        sketch.locate(&located).expect("its tree joins its hosts");
        sketch.needs()
    }

    fn located(&self) -> impl Iterator<Item = Located> + '_ {
        self.vms.iter().map(|vm| Located { class: vm.class.into(), host: vm.host })
    }

    fn placement(&self) -> Placement {
        Placement {
            vms: self.vms.iter().map(|vm| (vm.id, HostId(vm.host))).collect(),
            routing: self.routing,
            links: self.needs.clone(),
        }
    }

    /// Slots per host, by host.
    fn slots(&self) -> BTreeMap<u32, u32> {
        let mut slots = BTreeMap::new();
        for vm in &self.vms {
            let own = self.classes[usize::from(vm.class)].slots;
            if own > 0 {
                *slots.entry(vm.host).or_default() += own;
            }
        }
        slots
    }
}
