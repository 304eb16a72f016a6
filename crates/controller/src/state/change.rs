//! Making, changing and removing objects.

use super::admit::Refused;
use super::book::{Change, Promise, Terms, Wanted};
use super::command::{Action, Actor, Draft, Mode, Request, Role};
use super::{Stale, State, Stored, Undo, drain};
use crate::problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::moment::Moment;
use weir_model::objects::{
    Condition, HostSpec, Kind, Metadata, Object, Spec, Status, TenantSpec, Truth, VmSpec, Wish,
};

/// A Host without a mode, with the mode that it has: who applies a file does not mean to end floors.
fn with_mode(wish: &Wish, old: Option<&Stored>) -> Option<Wish> {
    let (Spec::Host(wanted), Some(Spec::Host(old))) = (&wish.spec, old.map(|old| &old.object.spec))
    else {
        return None;
    };
    let mode = old.mode.filter(|_| wanted.mode.is_none())?;
    let spec = Spec::Host(HostSpec { mode: Some(mode), ..wanted.clone() });
    Some(Wish { spec, ..wish.clone() })
}

impl State {
    pub(super) fn act(&mut self, now: Moment, request: &Request) -> Result<Draft, Problem> {
        let actor = &request.actor;
        match &request.action {
            Action::Put { wish, mode, seen } => {
                let (kind, name, new) = self.put(now, actor, wish, *mode, *seen)?;
                Ok(Draft::Object(kind, name, new))
            }
            Action::Batch(wishes) => self.put_all(now, actor, wishes),
            Action::Delete { kind, name, seen } => self.delete(now, actor, *kind, name, *seen),
            Action::Confirm(name) => self.confirm(now, actor, name),
            Action::Release(name) => self.release(now, actor, name),
            Action::AddToken(token) => self.add_token(now, actor, token),
            Action::RemoveToken(name) => self.remove_token(actor, name),
            Action::Join { token, host } => self.join(now, token, host),
            Action::Revoke(host) => self.revoke(now, actor, host),
            Action::Observe(observations) => Ok(self.observe(now, observations)),
        }
    }

    fn put_all(&mut self, now: Moment, actor: &Actor, wishes: &[Wish]) -> Result<Draft, Problem> {
        let before = self.pending.events.len();
        let mut names = Vec::with_capacity(wishes.len());
        // What others refer to comes first, whatever the order of the file.
        let mut order: Vec<usize> = (0..wishes.len()).collect();
        order.sort_by_key(|n| wishes[*n].spec.kind());
        let in_item = |n: usize, mut problem: Problem| {
            problem.field = format!("items[{n}].{}", problem.field);
            let wish = &wishes[n];
            let who = format!("{} `{}`", wish.spec.kind(), wish.metadata.name);
            problem.detail = format!("{who}: {}", problem.detail);
            problem.with("item", n)
        };
        let vms = order.partition_point(|n| wishes[*n].spec.kind() < Kind::Vm);
        let later = order.partition_point(|n| wishes[*n].spec.kind() <= Kind::Vm);
        for &n in &order[..vms] {
            let (kind, name, _) = self
                .put(now, actor, &wishes[n], Mode::Apply, None)
                .map_err(|problem| in_item(n, problem))?;
            names.push((kind, name));
        }
        for run in without_repetition(&order[vms..later], wishes) {
            let of_run: Vec<&Wish> = run.iter().map(|n| &wishes[*n]).collect();
            self.put_vms(now, actor, &of_run, Mode::Apply, None)
                .map_err(|(n, problem)| in_item(run[n], problem))?;
            names.extend(of_run.iter().map(|wish| (Kind::Vm, wish.metadata.name.clone())));
        }
        for &n in &order[later..] {
            let (kind, name, _) = self
                .put(now, actor, &wishes[n], Mode::Apply, None)
                .map_err(|problem| in_item(n, problem))?;
            names.push((kind, name));
        }
        Ok(Draft::Batch(names, before))
    }

    /// Makes or changes an object. Returns its kind and name, and whether it is new.
    fn put(
        &mut self,
        now: Moment,
        actor: &Actor,
        wish: &Wish,
        mode: Mode,
        seen: Option<u64>,
    ) -> Result<(Kind, String, bool), Problem> {
        let (kind, name) = (wish.spec.kind(), wish.metadata.name.clone());
        let old = self.get(kind, &name).cloned();
        let whole = with_mode(wish, old.as_deref());
        let wish = whole.as_ref().unwrap_or(wish);
        if kind == Kind::Vm {
            self.put_vms(now, actor, &[wish], mode, seen).map_err(|(_, problem)| problem)?;
            return Ok((kind, name, old.is_none()));
        }
        if self.is_as_wanted(actor, wish, mode, seen, old.as_deref())? {
            return Ok((kind, name, false));
        }
        let mut object = begin(now, wish, old.as_deref());
        if let Spec::Host(spec) = &wish.spec {
            self.claim_number(actor, spec.number, &object)?;
        }
        match &wish.spec {
            Spec::Topology(_) | Spec::Host(_) | Spec::Link(_) => {
                let drains = drain::is_all(old.as_deref().map(|old| &old.object.spec), &wish.spec);
                self.set_stale(if drains { Stale::Drain } else { Stale::Network });
            }
            Spec::Vm(_) | Spec::Tenant(_) | Spec::Switch(_) => {}
            Spec::Reservation(_) => self.reserve(now, old.as_deref(), &mut object)?,
        }
        // Of a host that has joined, its agent says whether it is ready.
        if kind == Kind::Switch {
            object.status.set(Condition {
                status: Truth::Unknown,
                reason: "NotRead".into(),
                ..ready(now)
            });
        } else if kind != Kind::Reservation && object.status.agent.is_none() {
            object.status.set(ready(now));
        }
        self.put_object(object);
        if let Spec::Tenant(spec) = &wish.spec {
            self.put_tenant(now, &name, spec, old.as_deref())?;
        }
        Ok((kind, name, old.is_none()))
    }

    /// Whether an object may be written, and need not be.
    fn is_as_wanted(
        &self,
        actor: &Actor,
        wish: &Wish,
        mode: Mode,
        seen: Option<u64>,
        old: Option<&Stored>,
    ) -> Result<bool, Problem> {
        let (kind, name) = (wish.spec.kind(), &wish.metadata.name);
        actor.may_write(kind, wish.spec.tenant())?;
        if let Some(old) = old {
            // Also whose it was until now.
            actor.may_write(kind, old.object.owner())?;
            if mode == Mode::Create {
                let detail = format!("a {kind} with the name `{name}` exists: choose another name");
                return Err(Problem::new(409, "AlreadyExists", "metadata.name", detail));
            }
        }
        check_version(wish.metadata.resource_version.as_deref(), seen, old)?;
        Ok(old.is_some_and(|old| {
            old.object.spec == wish.spec && old.object.metadata.labels == wish.metadata.labels
        }))
    }

    /// Makes or changes VMs: those of one tenant are placed together. The number of a refusal is that of
    /// the wish.
    fn put_vms(
        &mut self,
        now: Moment,
        actor: &Actor,
        wishes: &[&Wish],
        mode: Mode,
        seen: Option<u64>,
    ) -> Result<(), Refused> {
        self.settle(now).map_err(|problem| (0, problem))?;
        let mut tenants: BTreeMap<&str, Vec<(usize, Object, Change)>> = BTreeMap::new();
        for (n, wish) in wishes.iter().enumerate() {
            let Spec::Vm(spec) = &wish.spec else { unreachable!("the caller has VMs") };
            let old = self.get(Kind::Vm, &wish.metadata.name).cloned();
            let at = |problem: Problem| (n, problem);
            if self.is_as_wanted(actor, wish, mode, seen, old.as_deref()).map_err(at)? {
                continue;
            }
            let object = begin(now, wish, old.as_deref());
            let change = self.check_vm(actor, spec, old.as_deref(), &object).map_err(at)?;
            self.claim_number(actor, spec.number, &object).map_err(at)?;
            tenants.entry(&spec.tenant).or_default().push((n, object, change));
        }
        for (tenant, group) in tenants {
            let (mut objects, mut changes) = (Vec::new(), Vec::new());
            for (n, object, change) in group {
                objects.push((n, object));
                changes.push(change);
            }
            let had = changes.iter().any(|change| self.book.claim(&change.id).is_some());
            self.admit(tenant, Terms::of, &changes)
                .map_err(|(i, problem)| (objects[i].0, problem))?;
            for (_, object) in objects {
                self.put_admitted(now, object);
            }
            if had {
                self.admit_fallen(now);
            }
        }
        Ok(())
    }

    /// Writes a VM whose claim is made.
    pub(super) fn put_admitted(&mut self, now: Moment, mut object: Object) {
        let claim = self.book.claim(&vm_claim(object.name())).expect("it was admitted");
        object.status.host = Some(claim.host.clone());
        object.status.set(super::admit::admitted(now));
        self.await_agent(now, &mut object);
        self.set_fallen(object.name(), false);
        self.put_object(object);
    }

    /// The claim that a VM's wish asks for.
    fn check_vm(
        &self,
        actor: &Actor,
        spec: &VmSpec,
        old: Option<&Stored>,
        object: &Object,
    ) -> Result<Change, Problem> {
        if actor.role == Role::Tenant && spec.host.is_some() {
            let detail = "only an operator chooses hosts: leave the field out";
            return Err(Problem::new(403, "Forbidden", "spec.host", detail));
        }
        if let Some(Spec::Vm(before)) = old.map(|old| &old.object.spec)
            && before.tenant != spec.tenant
        {
            let detail = format!(
                "the VM belongs to `{}`, and a VM keeps its tenant: delete it and make a new one",
                before.tenant
            );
            return Err(Problem::new(422, "Immutable", "spec.tenant", detail));
        }
        if !is_connected(spec, old) {
            managed(spec.component.as_deref(), &spec.tenant, "spec.component")?;
            if let Some(Spec::Vm(before)) = old.map(|old| &old.object.spec) {
                managed(before.component.as_deref(), &before.tenant, "spec.component")?;
            }
        }
        if let Some(reservation) = self.reserved.get(object.name()) {
            let detail = format!(
                "the reservation `{reservation}` has room for a VM of this name: confirm or release it"
            );
            return Err(Problem::new(409, "Reserved", "metadata.name", detail));
        }
        // A VM that the controller placed stays where it is.
        let here = object.status.host.clone();
        let host = spec.host.clone().or(here.filter(|host| self.takes_part(host)));
        let id = vm_claim(object.name());
        let had = self.book.claim(&id);
        let stays = had.is_some_and(|had| host.as_deref() == Some(had.host.as_str()));
        if let (Some(host), false) = (&host, stays) {
            self.check_host(host)?;
        }
        let promise = Promise::of(spec);
        let counted = promise.usage();
        Ok(Change { id, to: Some(Wanted { host, promise, counted }) })
    }

    pub(super) fn check_tenant(&self, name: &str, spec: &TenantSpec) -> Result<(), Problem> {
        let Some(quota) = spec.quota else { return Ok(()) };
        let used = self.book.usage(name);
        let over = quota.excess(used.vms, used.out, used.inward);
        let Some((field, used, most)) = over else { return Ok(()) };
        let detail =
            format!("the tenant has {used} already, more than {most}: shrink its VMs first");
        Err(Problem::new(409, "QuotaBelowUse", format!("spec.quota.{field}"), detail))
    }

    fn delete(
        &mut self,
        now: Moment,
        actor: &Actor,
        kind: Kind,
        name: &str,
        seen: Option<u64>,
    ) -> Result<Draft, Problem> {
        let old = self.get(kind, name).cloned();
        // A stranger does not learn whether the object exists.
        let owner = old.as_deref().and_then(|old| old.object.owner());
        actor.may_write(kind, owner)?;
        let old = old.ok_or_else(|| not_found(kind, name))?;
        check_version(None, seen, Some(&old))?;
        self.check_unused(kind, name)?;
        match kind {
            Kind::Topology | Kind::Host | Kind::Link => self.set_stale(Stale::Network),
            Kind::Vm => {
                if let Spec::Vm(spec) = &old.object.spec {
                    managed(spec.component.as_deref(), &spec.tenant, "metadata.name")?;
                    self.release_claims(&spec.tenant, [vm_claim(name)]);
                }
                self.set_fallen(name, false);
                self.count_reserved(name);
            }
            Kind::Reservation => self.forget_reservation(name),
            Kind::Switch => {}
            Kind::Tenant => self.remove_components(name),
        }
        self.remove_object(kind, name);
        self.admit_fallen(now);
        Ok(Draft::Gone(old))
    }

    /// Whether anything refers to an object.
    fn check_unused(&self, kind: Kind, name: &str) -> Result<(), Problem> {
        let users: Vec<String> = match kind {
            Kind::Tenant => {
                let owned = self.objects().filter(|stored| {
                    let is_managed = matches!(&stored.object.spec,
                        Spec::Vm(spec) if spec.component.is_some());
                    stored.object.spec.tenant() == Some(name)
                        && !self.is_over(stored)
                        && !is_managed
                });
                owned.map(|stored| named(&stored.object)).take(4).collect()
            }
            Kind::Host => {
                let claims = self.book.claims_on(name);
                claims.map(|id| id.replace(':', " ")).take(4).collect()
            }
            _ => return Ok(()),
        };
        if users.is_empty() {
            return Ok(());
        }
        let more = if users.len() > 3 { ", …" } else { "" };
        let list = users.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        let advice = match kind {
            Kind::Host => "; move them away, or set spec.state to `dead` if the host is gone",
            _ => "; delete them first",
        };
        let detail = format!("{kind} `{name}` is in use by {list}{more}{advice}");
        Err(Problem::new(409, "InUse", "metadata.name", detail))
    }

    /// The book is not of the network any more, at least so much.
    pub(super) fn set_stale(&mut self, stale: Stale) {
        self.pending.undo.push(Undo::Stale(self.stale));
        self.stale = self.stale.max(stale);
    }
}

/// Whether a VM of a component only gets another network or cap: these its tenant does not say.
fn is_connected(spec: &VmSpec, old: Option<&Stored>) -> bool {
    let Some(Spec::Vm(before)) = old.map(|old| &old.object.spec) else { return false };
    let (network, cap) = (spec.network.clone(), spec.cap);
    before.component.is_some() && *spec == VmSpec { network, cap, ..before.clone() }
}

/// Refuses a VM that comes, changes and goes with its tenant.
fn managed(component: Option<&str>, tenant: &str, field: &str) -> Result<(), Problem> {
    let Some(component) = component else { return Ok(()) };
    let detail = format!(
        "a VM of the component `{component}` comes, changes and goes with the Tenant `{tenant}`, but for \
         spec.network and spec.cap: change spec.components there"
    );
    Err(Problem::new(409, "Managed", field, detail))
}

/// Parts of a list of VMs in each of which every name stands once.
fn without_repetition<'a>(order: &'a [usize], wishes: &[Wish]) -> Vec<&'a [usize]> {
    let (mut runs, mut begin, mut names) = (Vec::new(), 0, BTreeSet::new());
    for (at, n) in order.iter().enumerate() {
        if !names.insert(&wishes[*n].metadata.name) {
            runs.push(&order[begin..at]);
            (begin, names) = (at, BTreeSet::from([&wishes[*n].metadata.name]));
        }
    }
    runs.push(&order[begin..]);
    runs
}

/// Name of a VM's claim in the book.
pub(super) fn vm_claim(name: &str) -> String {
    format!("VM:{name}")
}

pub(super) fn named(object: &Object) -> String {
    format!("{} {}", object.kind(), object.name())
}

pub(super) fn not_found(kind: Kind, name: &str) -> Problem {
    let detail = format!("there is no {kind} with the name `{name}`");
    Problem::new(404, "NotFound", "metadata.name", detail)
}

/// The object with the new wish and the status of before.
pub(super) fn begin(now: Moment, wish: &Wish, old: Option<&Stored>) -> Object {
    let before = old.map(|old| &old.object);
    let same = before.is_some_and(|old| old.spec == wish.spec);
    let generation = before.map_or(0, |old| old.metadata.generation) + u64::from(!same);
    let made = before.and_then(|old| old.metadata.creation_timestamp).unwrap_or(now);
    let metadata = Metadata {
        name: wish.metadata.name.clone(),
        labels: wish.metadata.labels.clone(),
        generation,
        resource_version: None,
        creation_timestamp: Some(made),
    };
    let status = before.map_or_else(Status::default, |old| old.status.clone());
    let status = Status { observed_generation: generation, ..status };
    Object { metadata, spec: wish.spec.clone(), status }
}

pub(super) fn ready(now: Moment) -> Condition {
    Condition {
        name: "Ready".into(),
        status: Truth::True,
        reason: "Accepted".into(),
        message: String::new(),
        last_transition_time: now,
    }
}

/// Whether the sender has seen the newest version, if it says what it has seen.
fn check_version(
    in_body: Option<&str>,
    in_header: Option<u64>,
    old: Option<&Stored>,
) -> Result<(), Problem> {
    let now = old.map(|old| old.revision);
    let state = now.map_or("it does not exist".into(), |now| format!("its version is {now}"));
    let advice = "read the object again and repeat the change";
    if let Some(seen) = in_header
        && now != Some(seen)
    {
        let detail = format!("version {seen} of the object was seen, but {state}: {advice}");
        return Err(Problem::new(412, "Stale", "If-Match", detail));
    }
    if let Some(seen) = in_body
        && now.map(|now| now.to_string()).as_deref() != Some(seen)
    {
        let detail = format!("version {seen} of the object was seen, but {state}: {advice}");
        return Err(Problem::new(409, "Stale", "metadata.resourceVersion", detail));
    }
    Ok(())
}
