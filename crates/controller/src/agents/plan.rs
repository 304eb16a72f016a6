//! What each host shall have, what it was sent, and what it may still enforce.
//!
//! Problem   Two hosts change at different times. If one raises a floor before another has lowered its
//!           own, a link between them promises more than it has for a while, or for ever if the other one
//!           is silent.
//! Approach  For each VM there is a bound of what its host may enforce: the most of what it acknowledged
//!           and what it was sent since. Lowers are sent at once. What a host may enforce beyond what is
//!           wanted is its *excess*. A raise is sent if, on every link of its tenant, all excesses that
//!           may cross the link fit beside what is promised there; else it waits, and says for whom. The
//!           bound is on the disk before a host is told of more.
//! Promises  At any instant no link carries floors of more than it may promise, if hosts do as they are
//!           told. Per host at most one message is unanswered; later changes are coalesced. A tenant is
//!           sent to its own hosts alone, and so are the keys of a pair of hosts.
//! Not here  Sockets, clocks, the disk: see `fleet`. What is free on a link: see `core::ledger`.

mod bounds;
mod queues;
mod sending;
mod states;

use super::floors::Floors;
use crate::state::{EventKind, Observation, Stored, enrolment};
use crate::store::{Table, Write};
use queues::order_of;
use states::row_of;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use weir_model::moment::Moment;
use weir_model::objects::{HostState, Kind, Spec, Truth, VmSpec};
use weir_model::text::show_rate;
use weir_rpc::messages::{Hello, NETWORKS, Queue, Tenant};
use weir_units::Rate;
use weir_wire::Keyring;

/// A host is shown as silent after this time without a stream, milliseconds. Renewals are shorter.
const GRACE: u64 = 5_000;
/// The same for a host that has not been seen since this controller began: all come back at once.
const RETURN: u64 = 30_000;
/// A state that a host refused is sent again after this time, milliseconds: its port may be there now.
/// Raises that wait are tried as often while objects change.
const AGAIN: u64 = 10_000;

/// A VM, as far as agents are concerned.
#[derive(Clone, PartialEq, Debug)]
struct VmRow {
    tenant: String,
    host: String,
    number: u32,
    generation: u64,
    wanted: Floors,
    spec: VmSpec,
}

#[derive(Debug, Default)]
struct TenantRow {
    version: u64,
    vms: BTreeSet<String>,
    /// What its hosts are to do for its queue on switches, once it had one of its own.
    queue: Option<Queue>,
}

/// What a host may enforce for a VM.
#[derive(Clone, PartialEq, Debug)]
struct May {
    tenant: String,
    most: Floors,
    acknowledged: Floors,
}

/// A state that was sent and is not answered.
#[derive(Debug)]
struct Sent {
    version: u64,
    /// Version of what it says of the tenant's queue.
    queue: u64,
    /// Floors, the generation of the spec, and why a raise waits.
    vms: BTreeMap<String, (Floors, u64, Option<String>)>,
}

/// A stream.
#[derive(Debug)]
struct Stream {
    id: u64,
    dirty: BTreeSet<String>,
    sent: BTreeMap<String, Sent>,
    /// Tenants of which a raise waits.
    waiting: BTreeSet<String>,
    /// States that the host refused, and when.
    refused: BTreeMap<String, Moment>,
}

/// What is declared of a host, and what its agent says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Facts {
    /// Of its uplink.
    rate: Rate,
    /// Floor of what the host itself sends. Agents of before do not say it.
    own_out: Option<Rate>,
}

#[derive(Debug)]
struct HostRow {
    number: u32,
    declared: Facts,
    /// The same as its agent said it last.
    said: Option<Facts>,
    control: Option<SocketAddr>,
    dead: bool,
    /// Which certificates are good: none of a host that was revoked.
    enrolment: Option<u64>,
    /// It has joined, whatever became of its certificates.
    joined: bool,
    /// Tenants with VMs here, and how many.
    tenants: BTreeMap<String, usize>,
    stream: Option<Stream>,
    silent_since: Moment,
    told_silent: bool,
    /// It had a stream since this controller began.
    was_seen: bool,
    /// Its agent knows all of a VM's `spec.network`.
    knows_networks: bool,
    /// Its agent said last that it only observes.
    observes: bool,
    /// Code points that its agent can tag with, as it said last. None: it does not tag.
    code_points: BTreeSet<u8>,
    /// By tenant: the version of the queue's order that the host has in force.
    queues: BTreeMap<String, u64>,
}

/// Why a stream is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stranger(pub(crate) String);

/// What a stream does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// It waits until it is woken.
    Nothing,
    /// It asks what is free on the links of these tenants, and comes back.
    Rooms(Vec<String>),
    /// It writes these records and then sends these states.
    Send(Vec<Write>, Vec<Tenant>),
}

/// The plan.
pub(crate) struct Plan {
    ring: Keyring,
    hosts: BTreeMap<String, HostRow>,
    vms: BTreeMap<String, VmRow>,
    tenants: BTreeMap<String, TenantRow>,
    /// Host → VM → what it may enforce. Also of hosts that are no more.
    may: BTreeMap<String, BTreeMap<String, May>>,
    /// Keys of records of these that the store refused. They have to be on the disk before a host is told.
    unrecorded: BTreeSet<String>,
    /// (host, VM) → by how much that is more than what is wanted.
    excess: BTreeMap<(String, String), Rate>,
    revision: u64,
    next_id: u64,
    /// Tenants whose hosts have to hear of them. A tenant changes by one VM after the other, and its hosts
    /// are looked for once.
    touched: BTreeSet<String>,
    woken: BTreeSet<String>,
    observations: Vec<Observation>,
    writes: Vec<Write>,
    /// Orders of queues that came into force: host, tenant, version.
    in_force: Vec<InForce>,
    /// Tenants: a host knows a newer order of their queues than this controller: it is of a store that was
    /// restored.
    ahead: BTreeSet<String>,
    /// When raises that wait were tried, and at which version of the objects.
    tried: (Moment, u64),
}

/// A host has an order of a tenant's queue in force: host, tenant, version.
pub(crate) type InForce = (String, String, u64);

impl Plan {
    /// The plan of these objects; `may` are the records of what hosts may enforce.
    pub(crate) fn new(
        ring: Keyring,
        objects: &[Arc<Stored>],
        may: Vec<(String, Vec<u8>)>,
        revision: u64,
        now: Moment,
    ) -> Result<Self, String> {
        let mut plan = Self {
            ring,
            hosts: BTreeMap::new(),
            vms: BTreeMap::new(),
            tenants: BTreeMap::new(),
            may: BTreeMap::new(),
            unrecorded: BTreeSet::new(),
            excess: BTreeMap::new(),
            revision,
            next_id: 0,
            touched: BTreeSet::new(),
            woken: BTreeSet::new(),
            observations: Vec::new(),
            writes: Vec::new(),
            in_force: Vec::new(),
            ahead: BTreeSet::new(),
            tried: (now, revision),
        };
        for (key, value) in may {
            let (host, vm) = key.split_once('/').ok_or_else(|| format!("force/{key}: no host"))?;
            let (tenant, most) =
                Floors::read(&value).map_err(|error| format!("force/{key}: {error}"))?;
            let may = May { tenant, acknowledged: most.clone(), most };
            plan.may.entry(host.into()).or_default().insert(vm.into(), may);
        }
        for stored in objects {
            plan.change(revision, EventKind::Added, stored, now);
        }
        plan.refresh_all_excess();
        // No host has a stream yet.
        plan.touched.clear();
        plan.observations.clear();
        Ok(plan)
    }

    /// Takes up all objects anew; streams stay.
    pub(crate) fn reload(&mut self, objects: &[Arc<Stored>], revision: u64, now: Moment) {
        let of = |kind| {
            let these = objects.iter().filter(move |stored| stored.object.kind() == kind);
            these.map(|stored| stored.object.name()).collect::<BTreeSet<_>>()
        };
        let (hosts, vms, tenants) = (of(Kind::Host), of(Kind::Vm), of(Kind::Tenant));
        let gone = |known: &mut dyn Iterator<Item = &String>, now: &BTreeSet<&str>| {
            known.filter(|name| !now.contains(name.as_str())).cloned().collect::<Vec<_>>()
        };
        for name in gone(&mut self.vms.keys(), &vms) {
            self.set_vm(revision, &name, None, now);
        }
        for name in gone(&mut self.hosts.keys(), &hosts) {
            self.remove_host(revision, &name);
        }
        for name in gone(&mut self.tenants.keys(), &tenants) {
            self.set_queue(revision, &name, None);
        }
        for stored in objects {
            self.change(revision, EventKind::Modified, stored, now);
        }
        self.revision = self.revision.max(revision);
    }

    /// Version of the objects up to which the plan is.
    pub(crate) const fn revision(&self) -> u64 {
        self.revision
    }

    /// All changes up to a version were given.
    pub(crate) fn reached(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Hosts whose streams have something to do.
    pub(crate) fn take_woken(&mut self) -> BTreeSet<String> {
        self.tell_touched();
        std::mem::take(&mut self.woken)
    }

    /// What was seen, for the objects' conditions.
    pub(crate) fn take_observations(&mut self) -> Vec<Observation> {
        std::mem::take(&mut self.observations)
    }

    /// Records that became smaller: they may be written at any time.
    pub(crate) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }

    /// Whether there is something to take.
    pub(crate) fn has_news(&self) -> bool {
        !self.observations.is_empty() || !self.writes.is_empty()
    }

    /// An object changed.
    pub(crate) fn change(&mut self, revision: u64, kind: EventKind, stored: &Stored, now: Moment) {
        let name = stored.object.name();
        let gone = kind == EventKind::Deleted;
        match &stored.object.spec {
            Spec::Host(_) if gone => self.remove_host(revision, name),
            Spec::Host(_) => self.change_host(revision, stored, now),
            Spec::Vm(_) => {
                let row = if gone { None } else { row_of(stored) };
                self.set_vm(revision, name, row, now);
            }
            Spec::Tenant(_) => {
                let queue = stored.object.status.queue.filter(|_| !gone);
                self.set_queue(revision, name, queue.map(order_of));
            }
            _ => {}
        }
        self.reached(revision);
    }

    fn change_host(&mut self, revision: u64, stored: &Stored, now: Moment) {
        let (name, status) = (stored.object.name(), &stored.object.status);
        let Spec::Host(spec) = &stored.object.spec else { return };
        let told = status.agent.as_ref().and_then(|agent| agent.control);
        let (control, dead) = (spec.control.or(told), spec.state == HostState::Dead);
        let enrolment = enrolment(status);
        let declared = Facts { rate: spec.rate.0, own_out: Some(spec.own.out.0) };
        let row = self.hosts.entry(name.into()).or_insert_with(|| HostRow {
            number: status.number.unwrap_or_default(),
            declared,
            said: None,
            control: None,
            dead,
            enrolment: None,
            joined: false,
            tenants: BTreeMap::new(),
            stream: None,
            silent_since: now,
            told_silent: false,
            was_seen: false,
            knows_networks: true,
            observes: false,
            code_points: BTreeSet::new(),
            queues: BTreeMap::new(),
        });
        row.joined = status.agent.is_some();
        let corrected = std::mem::replace(&mut row.declared, declared) != declared;
        let died = std::mem::replace(&mut row.dead, dead) != dead;
        if std::mem::replace(&mut row.enrolment, enrolment) != enrolment {
            // Its stream was opened on a certificate that is worthless now.
            row.told_silent = false;
            self.woken.insert(name.into());
        }
        let moved = std::mem::replace(&mut row.control, control) != control;
        let tenants: Vec<String> = row.tenants.keys().cloned().collect();
        if moved {
            for tenant in tenants {
                self.touch(revision, &tenant);
            }
        }
        if died {
            self.refresh_excess_of(name);
        }
        if corrected {
            self.compare(name);
        }
    }

    fn remove_host(&mut self, revision: u64, name: &str) {
        let Some(row) = self.hosts.remove(name) else { return };
        self.woken.insert(name.into());
        for tenant in row.tenants.keys() {
            self.touch(revision, tenant);
        }
        for (vm, _) in self.may.remove(name).unwrap_or_default() {
            self.writes.push(Write::delete(Table::Force, format!("{name}/{vm}")));
            self.excess.remove(&(name.to_owned(), vm));
        }
    }

    fn set_vm(&mut self, revision: u64, name: &str, row: Option<VmRow>, now: Moment) {
        let before = self.vms.get(name);
        if before == row.as_ref() {
            return;
        }
        let before = match &row {
            Some(row) => self.vms.insert(name.into(), row.clone()),
            None => self.vms.remove(name),
        };
        if let Some(before) = &before {
            self.count(&before.host, &before.tenant, false);
            let tenant = self.tenants.entry(before.tenant.clone()).or_default();
            tenant.vms.remove(name);
            self.touch(revision, &before.tenant);
            // Also where it is no longer.
            self.dirty(&before.host, &before.tenant);
        }
        if let Some(row) = &row {
            self.count(&row.host, &row.tenant, true);
            self.tenants.entry(row.tenant.clone()).or_default().vms.insert(name.into());
            self.touch(revision, &row.tenant);
            self.tell_if_silent(name, row, now);
        }
        for host in before.iter().chain(&row).map(|row| row.host.clone()).collect::<Vec<_>>() {
            self.refresh_excess(&host, name);
        }
    }

    fn count(&mut self, host: &str, tenant: &str, more: bool) {
        let Some(row) = self.hosts.get_mut(host) else { return };
        let count = row.tenants.entry(tenant.into()).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            row.tenants.remove(tenant);
            row.queues.remove(tenant);
        }
    }

    /// A tenant's state is another: its hosts have to hear of it.
    fn touch(&mut self, revision: u64, tenant: &str) {
        let row = self.tenants.entry(tenant.into()).or_default();
        row.version = row.version.max(revision);
        self.touched.insert(tenant.into());
    }

    fn tell_touched(&mut self) {
        for tenant in std::mem::take(&mut self.touched) {
            let vms = self.tenants.get(&tenant).into_iter().flat_map(|row| &row.vms);
            let hosts: BTreeSet<String> =
                vms.filter_map(|vm| Some(self.vms.get(vm)?.host.clone())).collect();
            for host in hosts {
                self.dirty(&host, &tenant);
            }
        }
    }

    fn dirty(&mut self, host: &str, tenant: &str) {
        let row = self.hosts.get_mut(host);
        if let Some(stream) = row.and_then(|row| row.stream.as_mut()) {
            stream.dirty.insert(tenant.into());
            stream.refused.remove(tenant);
            self.woken.insert(host.into());
        }
    }

    fn tell_if_silent(&mut self, vm: &str, row: &VmRow, now: Moment) {
        let Some(host) = self.hosts.get(&row.host) else { return };
        if !host.joined || host.stream.is_some() {
            return;
        }
        let since = host.silent_since.min(now);
        let message =
            format!("host `{}` is silent since {since}: it has not heard of this", row.host);
        self.observe_vm(vm, row.generation, Truth::Unknown, "HostSilent", message);
    }

    fn observe_vm(
        &mut self,
        vm: &str,
        generation: u64,
        status: Truth,
        reason: &str,
        message: String,
    ) {
        self.observations.push(Observation {
            kind: Kind::Vm,
            name: vm.into(),
            generation: Some(generation),
            condition: crate::state::APPLIED,
            status,
            reason: reason.into(),
            message,
            agent: None,
            queue: None,
        });
    }

    fn observe_host(
        &mut self,
        host: &str,
        condition: &'static str,
        status: Truth,
        reason: &str,
        message: String,
        agent: Option<(String, Option<SocketAddr>)>,
    ) {
        self.observations.push(Observation {
            kind: Kind::Host,
            name: host.into(),
            generation: None,
            condition,
            status,
            reason: reason.into(),
            message,
            agent,
            queue: None,
        });
    }

    // -- streams ------------------------------------------------------------------------------

    /// Whether a certificate of this enrolment is the host's present one.
    ///
    /// # Errors
    ///
    /// It is not; what to do.
    pub(crate) fn check(&self, host: &str, enrolment: u64) -> Result<(), Stranger> {
        let Some(row) = self.hosts.get(host) else {
            return Err(Stranger(format!("there is no Host with the name `{host}`")));
        };
        match row.enrolment {
            Some(present) if present == enrolment => Ok(()),
            _ => Err(Stranger(format!(
                "the certificate of host `{host}` was revoked, or the host joined again: get a token \
                 with `weir host token` and join again"
            ))),
        }
    }

    /// A host opens its stream; a former one ends. Returns the stream's number.
    ///
    /// # Errors
    ///
    /// The certificate is not the host's present one.
    pub(crate) fn attach(
        &mut self,
        host: &str,
        enrolment: u64,
        hello: &Hello,
    ) -> Result<u64, Stranger> {
        self.check(host, enrolment)?;
        self.tell_touched();
        self.next_id += 1;
        let id = self.next_id;
        if let Some(row) = self.hosts.get_mut(host) {
            row.knows_networks = hello.features.iter().any(|feature| feature == NETWORKS);
        }
        let mut dirty = BTreeSet::new();
        let row = self.hosts.get_mut(host).expect("it was checked");
        let points = hello.code_points.iter();
        row.code_points = points.filter_map(|point| u8::try_from(*point).ok()).collect();
        row.queues.clear();
        let here: Vec<String> = row.tenants.keys().cloned().collect();
        self.note_ahead(&hello.known);
        let known: BTreeMap<&str, u64> =
            hello.known.iter().map(|known| (known.tenant.as_str(), known.digest)).collect();
        for tenant in &here {
            let state = self.state_of(host, tenant, &|_, row| row.wanted.clone());
            match known.get(tenant.as_str()) == Some(&state.digest()) {
                true => {
                    let vms = self.local_vms(host, tenant);
                    let has = vms.into_iter().map(|(vm, row)| (vm, row.wanted)).collect();
                    self.holds(host, tenant, &has);
                    self.tell_applied(host, tenant);
                    self.has_queue(host, tenant, self.queue_version(host, tenant));
                }
                false => drop(dirty.insert(tenant.clone())),
            }
        }
        dirty.extend(
            known.keys().filter(|tenant| !here.iter().any(|t| t == *tenant)).map(|t| (*t).into()),
        );
        // A tenant of which the host knows nothing is not enforced there.
        let unknown: BTreeSet<String> = self
            .may
            .get(host)
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter(|may| !known.contains_key(may.tenant.as_str()))
            .map(|may| may.tenant.clone())
            .collect();
        for tenant in unknown {
            self.holds(host, &tenant, &BTreeMap::new());
        }
        self.leave_unanswered(host);
        let row = self.hosts.get_mut(host).expect("it was checked");
        row.stream = Some(Stream {
            id,
            dirty,
            sent: BTreeMap::new(),
            waiting: BTreeSet::new(),
            refused: BTreeMap::new(),
        });
        (row.told_silent, row.was_seen) = (false, true);
        let own_out = hello.own_out.map(Rate::from_bps);
        row.said = Some(Facts { rate: Rate::from_bps(hello.rate), own_out });
        self.woken.insert(host.into());
        self.look_at(host, hello);
        Ok(id)
    }

    fn look_at(&mut self, host: &str, hello: &Hello) {
        let agent = (hello.program.clone(), hello.control.parse().ok());
        self.observe_host(
            host,
            crate::state::READY,
            Truth::True,
            "Connected",
            String::new(),
            Some(agent),
        );
        self.compare(host);
    }

    /// Compares what a host says of itself with what was declared.
    fn compare(&mut self, host: &str) {
        let Some(row) = self.hosts.get(host) else { return };
        let (declared, Some(said)) = (row.declared, row.said) else { return };
        let (shown, wanted) = (show_rate(said.rate), show_rate(declared.rate));
        let message = format!(
            "the host says that its uplink has {shown}, declared is {wanted}: correct spec.rate or \
             uplink.rate"
        );
        self.observe_match(host, "RateMatches", "RateDiffers", said.rate == declared.rate, message);
        let (Some(own), Some(wanted)) = (said.own_out, declared.own_out) else { return };
        let message = format!(
            "the host keeps {} for what it sends itself, declared is {}: correct spec.own.out or \
             uplink.host_floor",
            show_rate(own),
            show_rate(wanted)
        );
        self.observe_match(host, "OwnFloorMatches", "OwnFloorDiffers", own == wanted, message);
    }

    fn observe_match(
        &mut self,
        host: &str,
        condition: &'static str,
        differs: &str,
        is_same: bool,
        message: String,
    ) {
        let (status, reason, message) = match is_same {
            true => (Truth::True, "AsDeclared", String::new()),
            false => (Truth::False, differs, message),
        };
        self.observe_host(host, condition, status, reason, message, None);
    }

    /// Whether a stream is the present one of its host, on a certificate that is still good.
    pub(crate) fn is_present(&self, host: &str, id: u64, enrolment: u64) -> bool {
        self.check(host, enrolment).is_ok()
            && self.hosts[host].stream.as_ref().is_some_and(|stream| stream.id == id)
    }

    /// A stream ended.
    pub(crate) fn detach(&mut self, host: &str, id: u64, now: Moment) {
        let is_it = |row: &&HostRow| row.stream.as_ref().is_some_and(|stream| stream.id == id);
        if self.hosts.get(host).filter(is_it).is_none() {
            return;
        }
        self.leave_unanswered(host);
        let row = self.hosts.get_mut(host).expect("it was found");
        row.stream = None;
        row.silent_since = now;
    }

    /// What time asks for.
    pub(crate) fn tick(&mut self, now: Moment) {
        let mut silent = Vec::new();
        for (name, row) in &mut self.hosts {
            if let Some(stream) = &mut row.stream {
                let due = |at: &Moment| at.plus_millis(AGAIN) <= now;
                let again: Vec<String> = stream
                    .refused
                    .iter()
                    .filter(|(_, at)| due(at))
                    .map(|(tenant, _)| tenant.clone())
                    .collect();
                for tenant in again {
                    stream.refused.remove(&tenant);
                    stream.dirty.insert(tenant);
                    self.woken.insert(name.clone());
                }
            } else if row.enrolment.is_some()
                && !row.told_silent
                && row.silent_since.plus_millis(if row.was_seen { GRACE } else { RETURN }) <= now
            {
                row.told_silent = true;
                silent.push((name.clone(), row.silent_since));
            }
        }
        // Links may have room that no host's answer gave: what was removed, expired or built.
        if self.tried.0.plus_millis(AGAIN) <= now && self.tried.1 < self.revision {
            self.tried = (now, self.revision);
            self.try_waiting();
        }
        for (host, since) in silent {
            let message =
                format!("no word from its agent since {since}; its floors stay as they are");
            self.observe_host(&host, crate::state::READY, Truth::Unknown, "Silent", message, None);
        }
    }
}

#[cfg(test)]
mod tests;
