//! Making, changing and removing objects.

use super::command::{Action, Actor, Draft, Mode, Request, Role};
use super::{State, Stored, Undo};
use crate::problem::Problem;
use weir_model::moment::Moment;
use weir_model::objects::{
    Condition, Kind, Metadata, Object, Spec, Status, TenantSpec, Truth, VmSpec, Wish,
};

impl State {
    pub(super) fn act(&mut self, now: Moment, request: &Request) -> Result<Draft, Problem> {
        let actor = &request.actor;
        match &request.action {
            Action::Put { wish, mode, seen } => {
                let (kind, name, new) = self.put(now, actor, wish, *mode, *seen)?;
                Ok(Draft::Object(kind, name, new))
            }
            Action::Batch(wishes) => {
                let before = self.pending.events.len();
                let mut names = Vec::with_capacity(wishes.len());
                // What others refer to comes first, whatever the order of the file.
                let mut order: Vec<usize> = (0..wishes.len()).collect();
                order.sort_by_key(|n| wishes[*n].spec.kind());
                for n in order {
                    let in_item = |mut problem: Problem| {
                        problem.field = format!("items[{n}].{}", problem.field);
                        let wish = &wishes[n];
                        let who = format!("{} `{}`", wish.spec.kind(), wish.metadata.name);
                        problem.detail = format!("{who}: {}", problem.detail);
                        problem.with("item", n)
                    };
                    let done = self.put(now, actor, &wishes[n], Mode::Apply, None);
                    let (kind, name, _) = done.map_err(in_item)?;
                    names.push((kind, name));
                }
                Ok(Draft::Batch(names, before))
            }
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
        let owner = wish.spec.tenant();
        actor.may_write(kind, owner)?;
        if let Some(old) = &old {
            // Also whose it was until now.
            actor.may_write(kind, old.object.owner())?;
            if mode == Mode::Create {
                let detail = format!("a {kind} with the name `{name}` exists: choose another name");
                return Err(Problem::new(409, "AlreadyExists", "metadata.name", detail));
            }
        }
        check_version(wish.metadata.resource_version.as_deref(), seen, old.as_deref())?;
        if let Some(old) = &old
            && old.object.spec == wish.spec
            && old.object.metadata.labels == wish.metadata.labels
        {
            return Ok((kind, name, false));
        }
        let mut object = begin(now, wish, old.as_deref());
        match &wish.spec {
            Spec::Topology(_) | Spec::Host(_) | Spec::Link(_) => {
                self.set_stale(true);
                // Of a host that has joined, its agent says whether it is ready.
                if object.status.agent.is_none() {
                    object.status.set(ready(now));
                }
            }
            Spec::Tenant(spec) => self.check_tenant(&name, spec)?,
            Spec::Vm(spec) => self.put_vm(now, actor, spec, old.as_deref(), &mut object)?,
            Spec::Reservation(_) => self.reserve(now, old.as_deref(), &mut object)?,
        }
        if kind == Kind::Tenant {
            object.status.set(ready(now));
        }
        self.put_object(object);
        Ok((kind, name, old.is_none()))
    }

    fn put_vm(
        &mut self,
        now: Moment,
        actor: &Actor,
        spec: &VmSpec,
        old: Option<&Stored>,
        object: &mut Object,
    ) -> Result<(), Problem> {
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
        if let Some(reservation) = self.reserved.get(object.name()) {
            let detail = format!(
                "the reservation `{reservation}` has room for a VM of this name: confirm or release it"
            );
            return Err(Problem::new(409, "Reserved", "metadata.name", detail));
        }
        self.settle(now)?;
        self.admit_vm(now, spec, object)?;
        self.await_agent(now, object);
        Ok(())
    }

    fn check_tenant(&self, name: &str, spec: &TenantSpec) -> Result<(), Problem> {
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
            Kind::Topology | Kind::Host | Kind::Link => self.set_stale(true),
            Kind::Vm => {
                self.release_claim(&vm_claim(name));
                self.set_fallen(name, false);
            }
            Kind::Reservation => self.forget_reservation(name),
            Kind::Tenant => {}
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
                    stored.object.spec.tenant() == Some(name) && !self.is_over(stored)
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

    pub(super) fn set_stale(&mut self, stale: bool) {
        self.pending.undo.push(Undo::Stale(self.stale));
        self.stale = stale;
    }
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
fn begin(now: Moment, wish: &Wish, old: Option<&Stored>) -> Object {
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
