//! The ledger by names: what each VM claims, and what that makes on each link.
//!
//! Approach  `core::ledger` adds up whole tenants by number. This keeps the claims of each tenant by name,
//!           and gives the ledger the tenant anew with one claim more or less. All hosts but that of a
//!           claim without one are given, so nothing moves.

use crate::problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::ledger::{
    Attachment, Class, Config, Direction, Exploration, Floors, Host, Ledger, Link, LinkFull, Node,
    Refusal, Survival, Switch, SwitchId, TenantRequest, Topology, VmRequest,
};
use weir_model::objects::{HostSpec, HostState, LinkSpec, LinkState, TopologySpec};
use weir_model::text::show_rate;
use weir_units::{HostId, Rate, TenantId, VmId};

/// What one VM is promised, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Claim {
    pub(super) tenant: String,
    pub(super) host: String,
    pub(super) out: Rate,
    pub(super) inward: Rate,
    pub(super) external_out: Rate,
    pub(super) external_in: Rate,
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

/// Sums of one tenant's claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Usage {
    pub(super) vms: u32,
    pub(super) out: Rate,
    pub(super) inward: Rate,
}

/// A tenant in the ledger.
#[derive(Clone, Debug, Default)]
struct Member {
    number: TenantId,
    /// Claims with their numbers.
    claims: BTreeMap<String, VmId>,
    usage: Usage,
}

/// All claims and what they make on each link.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// None without a host.
    ledger: Option<Ledger>,
    hosts: BTreeMap<String, HostId>,
    host_names: Vec<String>,
    /// Hosts that take new VMs.
    open: BTreeSet<String>,
    claims: BTreeMap<String, Claim>,
    by_host: BTreeMap<String, BTreeSet<String>>,
    tenants: BTreeMap<String, Member>,
    tenant_names: Vec<String>,
    next_vm: u32,
}

impl Book {
    pub(super) fn empty() -> Self {
        Self::default()
    }

    /// The book of a network without claims.
    pub(super) fn new<'a>(
        topology: &TopologySpec,
        hosts: impl Iterator<Item = (&'a str, &'a HostSpec)>,
        links: impl Iterator<Item = (&'a str, &'a LinkSpec)>,
    ) -> Result<Self, Problem> {
        let hosts: Vec<_> = hosts.filter(|(_, host)| host.state != HostState::Dead).collect();
        let mut book = Self::default();
        if hosts.is_empty() {
            return Ok(book);
        }
        for (n, (name, host)) in (0..).zip(&hosts) {
            book.hosts.insert((*name).into(), HostId(n));
            book.host_names.push((*name).into());
            if host.state == HostState::Active {
                book.open.insert((*name).into());
            }
        }
        let network = network(topology, &hosts, &links.collect::<Vec<_>>())?;
        let headroom = f64::from(topology.headroom_percent) / 100.0;
        let config = Config { headroom, ..Config::default() };
        let refuse = |error: weir_core::ledger::TopologyError| {
            Problem::new(422, "BadTopology", "spec", error.to_string())
        };
        book.ledger = Some(Ledger::new(network, config).map_err(refuse)?);
        Ok(book)
    }

    /// Makes a claim, on the given host or on one that the placement chooses. Returns the host.
    pub(super) fn admit(
        &mut self,
        id: &str,
        mut claim: Claim,
        host: Option<&str>,
    ) -> Result<String, NoRoom> {
        let placed = self.place(id, &claim, host)?;
        if host.is_none() && !self.open.contains(&placed) {
            // The placement does not know which hosts drain: take the first open one that has room.
            self.unplace(id, &claim);
            let open: Vec<String> = self.open.iter().cloned().collect();
            let first = open.iter().find_map(|host| self.place(id, &claim, Some(host)).ok());
            claim.host = first.ok_or_else(|| nowhere("no host that takes new VMs has room"))?;
        } else {
            claim.host = placed;
        }
        let host = claim.host.clone();
        self.enter(id, claim);
        Ok(host)
    }

    /// Gives the ledger the tenant with one claim more.
    fn place(&mut self, id: &str, claim: &Claim, host: Option<&str>) -> Result<String, NoRoom> {
        let Some(ledger) = &mut self.ledger else {
            return Err(nowhere("there is no host: apply one first"));
        };
        let host = match host.map(|name| (name, self.hosts.get(name))) {
            None => None,
            Some((_, Some(number))) => Some(*number),
            Some((name, None)) => return Err(nowhere(&format!("host `{name}` takes no part"))),
        };
        let names = &mut self.tenant_names;
        let member = self.tenants.entry(claim.tenant.clone()).or_insert_with(|| {
            names.push(claim.tenant.clone());
            let number = TenantId(u32::try_from(names.len() - 1).expect("fewer tenants than that"));
            Member { number, ..Member::default() }
        });
        let number = VmId(self.next_vm);
        let mut request = request_of(member, &self.claims, &self.hosts);
        add(&mut request, number, claim, host);
        let answer = match member.claims.is_empty() {
            true => ledger.place(&request),
            false => ledger.resize(&request),
        };
        let placement = answer.map_err(|refusal| self.explain(&refusal))?;
        let at = placement.vms.iter().find(|(vm, _)| *vm == number).expect("it was placed").1;
        self.next_vm += 1;
        let member = self.tenants.get_mut(&claim.tenant).expect("it was entered");
        member.claims.insert(id.into(), number);
        Ok(self.host_names[at.0 as usize].clone())
    }

    /// Takes a claim out of the ledger. That always works.
    fn unplace(&mut self, id: &str, claim: &Claim) {
        let (Some(ledger), Some(member)) = (&mut self.ledger, self.tenants.get_mut(&claim.tenant))
        else {
            return;
        };
        let number = member.claims.remove(id).expect("it was placed");
        match member.claims.is_empty() {
            true => drop(ledger.remove(member.number)),
            false => drop(ledger.release(member.number, &[number]).expect("less always fits")),
        }
    }

    /// Writes down a claim that the ledger has.
    fn enter(&mut self, id: &str, claim: Claim) {
        let usage = &mut self.tenants.get_mut(&claim.tenant).expect("it was placed").usage;
        usage.vms += 1;
        usage.out += claim.out;
        usage.inward += claim.inward;
        self.by_host.entry(claim.host.clone()).or_default().insert(id.into());
        let before = self.claims.insert(id.into(), claim);
        assert!(before.is_none(), "{id} is claimed twice");
    }

    /// Makes a claim that is known to fit.
    pub(super) fn put_back(&mut self, id: &str, claim: Claim) {
        let host = claim.host.clone();
        let placed = self.place(id, &claim, Some(&host));
        assert!(placed.is_ok(), "{id} fitted before: {placed:?}");
        self.enter(id, claim);
    }

    /// Gives a claim back, if it is there.
    pub(super) fn release(&mut self, id: &str) -> Option<Claim> {
        let claim = self.claims.remove(id)?;
        self.unplace(id, &claim);
        let usage = &mut self.tenants.get_mut(&claim.tenant).expect("it has a claim").usage;
        usage.vms -= 1;
        usage.out = usage.out - claim.out;
        usage.inward = usage.inward - claim.inward;
        if let Some(on) = self.by_host.get_mut(&claim.host) {
            on.remove(id);
        }
        Some(claim)
    }

    pub(super) fn rename(&mut self, before: &str, now: &str) {
        let claim = self.claims.remove(before).expect("it was claimed");
        let on = self.by_host.entry(claim.host.clone()).or_default();
        on.remove(before);
        on.insert(now.into());
        let member = self.tenants.get_mut(&claim.tenant).expect("it has a claim");
        let number = member.claims.remove(before).expect("it was claimed");
        member.claims.insert(now.into(), number);
        let taken = self.claims.insert(now.into(), claim);
        assert!(taken.is_none(), "{now} is claimed twice");
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

    /// What is free on each link that a tenant uses: the least of both directions. `None` if the ledger
    /// does not have the tenant.
    pub(super) fn room(&self, tenant: &str) -> Option<BTreeMap<u32, Rate>> {
        let ledger = self.ledger.as_ref()?;
        let number = self.tenants.get(tenant).filter(|member| !member.claims.is_empty())?.number;
        let free = |link| {
            let free = |direction| {
                let (capacity, reserved) = ledger.link(link, direction);
                capacity.saturating_sub(reserved)
            };
            free(Direction::Forward).min(free(Direction::Backward))
        };
        Some(ledger.tree_links(number).into_iter().map(|link| (link.0, free(link))).collect())
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
            (of.vms, of.out, of.inward) =
                (of.vms + 1, of.out + claim.out, of.inward + claim.inward);
            let member = &self.tenants[&claim.tenant];
            let number = member.claims[id];
            let placement = ledger.placement(member.number).expect("it has a claim");
            let at = placement.vms.iter().find(|(vm, _)| *vm == number).expect("it is placed").1;
            assert_eq!(self.host_names[at.0 as usize], claim.host, "{id}");
        }
        for (name, member) in &self.tenants {
            assert_eq!(
                member.usage,
                usage.get(name.as_str()).copied().unwrap_or_default(),
                "{name}"
            );
        }
    }

    fn explain(&self, refusal: &Refusal) -> NoRoom {
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
            Refusal::NoRoute => {
                let detail = "no tree of links joins the hosts of the tenant (and the outside, if the VM \
                              has floors to it): apply the missing links";
                plain("NoRoute", detail.into())
            }
            other => plain("DoesNotFit", other.to_string()),
        }
    }

    fn link_full(&self, full: &LinkFull) -> NoRoom {
        let topology = self.ledger.as_ref().expect("it refused").topology();
        let link = topology.direction_name(full.link, full.direction);
        let missing = full.missing();
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

/// A tenant with all its claims.
fn request_of(
    member: &Member,
    claims: &BTreeMap<String, Claim>,
    hosts: &BTreeMap<String, HostId>,
) -> TenantRequest {
    let mut request = TenantRequest {
        tenant: member.number,
        priority: 0,
        survival: Survival::default(),
        classes: Vec::new(),
        vms: Vec::with_capacity(member.claims.len() + 1),
    };
    for (id, number) in &member.claims {
        let claim = &claims[id];
        add(&mut request, *number, claim, Some(hosts[&claim.host]));
    }
    request
}

fn add(request: &mut TenantRequest, vm: VmId, claim: &Claim, host: Option<HostId>) {
    let floors = Floors { out: claim.out, into: claim.inward };
    let external = Floors { out: claim.external_out, into: claim.external_in };
    let class = Class { slots: 1, hoses: vec![Attachment { hose: 0, floors }], external };
    let known = request.classes.iter().position(|one| *one == class);
    let class = known.unwrap_or_else(|| {
        request.classes.push(class);
        request.classes.len() - 1
    });
    let class = u16::try_from(class).expect("a tenant has fewer different floors than that");
    request.vms.push(VmRequest { vm, class, host });
}

/// The network as the ledger counts it: each host's NIC is a link named after it.
fn network(
    topology: &TopologySpec,
    hosts: &[(&str, &HostSpec)],
    links: &[(&str, &LinkSpec)],
) -> Result<Topology, Problem> {
    let mut above: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    let mut switches: BTreeSet<&str> = hosts.iter().map(|(_, host)| host.switch.as_str()).collect();
    for (name, link) in links {
        switches.extend([link.lower.as_str(), link.upper.as_str()]);
        if let Some((other, _)) = above.insert(&link.lower, (name, &link.upper)) {
            let detail = format!(
                "`{}` has two links upward, `{other}` and `{name}`, and the routing is tree: remove one",
                link.lower
            );
            return Err(Problem::new(422, "NoTree", "spec.lower", detail));
        }
    }
    let mut layers: BTreeMap<&str, u8> = switches.iter().map(|name| (*name, 1)).collect();
    for start in &switches {
        let (mut at, mut layer) = (*start, 1_u8);
        while let Some((name, up)) = above.get(at) {
            layer = layer.saturating_add(1);
            if usize::from(layer) > switches.len() || layer > 60 {
                let detail =
                    format!("the link `{name}` closes a ring, or the tree is higher than 60");
                return Err(Problem::new(422, "NoTree", "spec.upper", detail));
            }
            let of = layers.entry(up).or_default();
            *of = layer.max(*of);
            at = up;
        }
    }
    let numbers: BTreeMap<&str, SwitchId> =
        switches.iter().copied().zip((0..).map(SwitchId)).collect();
    let node = |name: &str| Node::Switch(numbers[name]);
    let nics = (0..).zip(hosts).map(|(n, (name, host))| {
        let rate = nic(host, topology.headroom_percent);
        let (a, b) = (Node::Host(HostId(n)), node(&host.switch));
        Link { name: format!("nic of {name}"), a, b, rate, members: 1 }
    });
    let cables = links.iter().map(|(name, link)| {
        // Of one bit per second nothing can be promised.
        let rate = if link.state == LinkState::Up { link.rate.0 } else { Rate::from_bps(1) };
        Link { name: (*name).into(), a: node(&link.lower), b: node(&link.upper), rate, members: 1 }
    });
    Ok(Topology {
        hosts: hosts
            .iter()
            .map(|(name, host)| Host { name: (*name).into(), slots: host.slots })
            .collect(),
        links: nics.chain(cables).collect(),
        gateways: switches
            .iter()
            .filter(|name| !above.contains_key(*name))
            .map(|name| numbers[name])
            .collect(),
        switches: switches
            .iter()
            .map(|name| Switch { name: (*name).into(), layer: layers[name] })
            .collect(),
        exploration: Exploration::Layers,
    })
}

/// The rate of a host's NIC beside the host's own floors, of which the headroom is not taken.
fn nic(host: &HostSpec, headroom_percent: u8) -> Rate {
    let own = host.own.out.0.max(host.own.inward.0);
    let part = u64::from(100 - headroom_percent.min(99));
    let taken = own.as_bps().saturating_mul(100).div_ceil(part);
    Rate::from_bps(host.rate.0.as_bps().saturating_sub(taken).max(1))
}
