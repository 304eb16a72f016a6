//! Claims: what is promised to whom, and what happens when the network changes beneath the promises.

use super::book::{Book, Claim, NoRoom};
use super::change::{named, vm_claim};
use super::reserve::{reserved_claim, wish_of};
use super::{State, Undo};
use crate::problem::Problem;
use weir_model::moment::Moment;
use weir_model::objects::{
    Condition, HostState, Kind, Object, Phase, Spec, TenantSpec, TopologySpec, Truth, VmSpec,
};

/// Name of the condition.
const ADMITTED: &str = "Admitted";

impl State {
    /// Admits a VM, or changes what it was admitted for. Refused, everything stays as it was.
    pub(super) fn admit_vm(
        &mut self,
        now: Moment,
        spec: &VmSpec,
        object: &mut Object,
    ) -> Result<(), Problem> {
        let name = object.name().to_owned();
        let id = vm_claim(&name);
        // A VM that the controller placed stays where it is.
        let here = object.status.host.clone();
        let host = spec.host.clone().or(here.filter(|host| self.takes_part(host)));
        let had = self.book.claim(&id).cloned();
        let stays = had.as_ref().is_some_and(|had| host.as_deref() == Some(had.host.as_str()));
        if let (Some(host), false) = (&host, stays) {
            self.check_host(host)?;
        }
        self.release_claim(&id);
        object.status.host = Some(self.claim(&id, spec, host.as_deref())?);
        object.status.set(admitted(now));
        self.set_fallen(&name, false);
        if had.is_some() {
            self.admit_fallen(now);
        }
        Ok(())
    }

    /// Makes a claim on a host, or on one that the placement chooses. Returns the host.
    pub(super) fn claim(
        &mut self,
        id: &str,
        spec: &VmSpec,
        host: Option<&str>,
    ) -> Result<String, Problem> {
        let tenant = self.get(Kind::Tenant, &spec.tenant).ok_or_else(|| {
            let detail =
                format!("there is no Tenant with the name `{}`: apply it first", spec.tenant);
            Problem::new(422, "NoSuchTenant", "spec.tenant", detail)
        })?;
        let Spec::Tenant(tenant) = &tenant.object.spec else { unreachable!("its kind says so") };
        let external = spec.external.unwrap_or_default();
        let claim = Claim {
            tenant: spec.tenant.clone(),
            host: host.unwrap_or_default().into(),
            out: spec.floor.out.0,
            inward: spec.floor.inward.0,
            external_out: external.out.0,
            external_in: external.inward.0,
        };
        self.check_quota(tenant, &claim)?;
        let placed = self.book.admit(id, claim, host).map_err(|no| no_room(&no, host.is_some()))?;
        self.pending.undo.push(Undo::Admitted(id.into()));
        Ok(placed)
    }

    fn check_quota(&self, tenant: &TenantSpec, claim: &Claim) -> Result<(), Problem> {
        let Some(quota) = tenant.quota else { return Ok(()) };
        let used = self.book.usage(&claim.tenant);
        let over = quota.excess(used.vms + 1, used.out + claim.out, used.inward + claim.inward);
        let Some((what, wanted, most)) = over else { return Ok(()) };
        let field = match what {
            "vms" => "spec.tenant".to_owned(),
            direction => format!("spec.floor.{direction}"),
        };
        let detail = format!(
            "tenant `{}` would have {wanted}, its quota is {most}: ask an operator for a larger one",
            claim.tenant
        );
        Err(Problem::new(409, "QuotaExceeded", field, detail)
            .with("quota", format!("quota.{what}")))
    }

    pub(super) fn check_host(&self, name: &str) -> Result<(), Problem> {
        let refuse = |reason, detail| Err(Problem::new(409, reason, "spec.host", detail));
        match self.host_state(name) {
            None => {
                let detail = format!("there is no Host with the name `{name}`: apply it first");
                Err(Problem::new(422, "NoSuchHost", "spec.host", detail))
            }
            Some(HostState::Active) => Ok(()),
            Some(HostState::Draining) => {
                refuse("HostDraining", format!("host `{name}` takes no new VMs: choose another"))
            }
            Some(HostState::Dead) => {
                refuse("HostDead", format!("host `{name}` is declared dead: choose another"))
            }
        }
    }

    fn host_state(&self, name: &str) -> Option<HostState> {
        match &self.get(Kind::Host, name)?.object.spec {
            Spec::Host(spec) => Some(spec.state),
            _ => None,
        }
    }

    /// Whether a host has its VMs still.
    fn takes_part(&self, host: &str) -> bool {
        self.host_state(host).is_some_and(|state| state != HostState::Dead)
    }

    pub(super) fn release_claim(&mut self, id: &str) {
        if let Some(claim) = self.book.release(id) {
            self.pending.undo.push(Undo::Released(id.into(), claim));
        }
    }

    pub(super) fn rename_claim(&mut self, before: &str, now: &str) {
        self.book.rename(before, now);
        self.pending.undo.push(Undo::Renamed(now.into(), before.into()));
    }

    /// At the end of a request: adds up again if the network changed.
    pub(super) fn refresh(&mut self, now: Moment) -> Result<(), Problem> {
        self.settle(now)
    }

    /// Makes the book anew if the network changed, and decides which floors fall.
    pub(super) fn settle(&mut self, now: Moment) -> Result<(), Problem> {
        if !self.stale {
            return Ok(());
        }
        let book = self.make_book()?;
        let old = std::mem::replace(&mut self.book, book);
        self.pending.undo.push(Undo::Book(Box::new(old)));
        self.set_stale(false);
        self.claim_all(Some(now));
        Ok(())
    }

    /// At a start: the book of the objects as they are.
    pub(super) fn admit_again(&mut self) {
        self.book = self.make_book().unwrap_or_else(|problem| {
            // It was admitted once, so only a change of the rules can refuse it now.
            tracing::error!("the stored network is refused: {}", problem.detail);
            Book::empty()
        });
        self.claim_all(None);
    }

    fn make_book(&self) -> Result<Book, Problem> {
        let of = |kind: Kind| self.objects[kind as usize].values().map(|stored| &stored.object);
        let topology = of(Kind::Topology).find_map(|object| match &object.spec {
            Spec::Topology(spec) => Some(spec.clone()),
            _ => None,
        });
        let hosts = of(Kind::Host).filter_map(|object| match &object.spec {
            Spec::Host(spec) => Some((object.name(), spec)),
            _ => None,
        });
        let links = of(Kind::Link).filter_map(|object| match &object.spec {
            Spec::Link(spec) => Some((object.name(), spec)),
            _ => None,
        });
        let topology: TopologySpec = topology.unwrap_or_default();
        Book::new(&topology, hosts, links)
    }

    /// Claims what was claimed, those of the highest priority first. With a time, what does not fit any
    /// more falls, and its object says so; without, the objects are believed.
    fn claim_all(&mut self, now: Option<Moment>) {
        for (_, _, object) in self.claimants() {
            match &object.spec {
                Spec::Vm(spec) => self.claim_again(now, &object, spec),
                Spec::Reservation(_) => self.hold_again(now, &object),
                _ => {}
            }
        }
    }

    /// VMs and held reservations in the order in which they keep their floors.
    fn claimants(&self) -> Vec<(u32, u64, Object)> {
        let priority = |tenant: &str| match self.get(Kind::Tenant, tenant).map(|t| &t.object.spec) {
            Some(Spec::Tenant(spec)) => spec.priority,
            _ => 0,
        };
        let mut found = Vec::new();
        for kind in [Kind::Vm, Kind::Reservation] {
            for stored in self.objects[kind as usize].values() {
                let object = &stored.object;
                if kind == Kind::Vm || object.status.phase == Some(Phase::Held) {
                    let priority = priority(object.owner().unwrap_or_default());
                    let made = object.metadata.creation_timestamp.unwrap_or_default();
                    found.push((priority, made.as_millis(), object.clone()));
                }
            }
        }
        found.sort_by(|a, b| {
            (b.0, a.1, a.2.kind(), a.2.name()).cmp(&(a.0, b.1, b.2.kind(), b.2.name()))
        });
        found
    }

    fn claim_again(&mut self, now: Option<Moment>, object: &Object, spec: &VmSpec) {
        let (name, id) = (object.name().to_owned(), vm_claim(object.name()));
        let Some(now) = now else {
            let stands = object.status.condition(ADMITTED).map(|c| c.status) == Some(Truth::True);
            if !stands || self.claim(&id, spec, object.status.host.as_deref()).is_err() {
                self.fallen.insert(name);
            }
            return;
        };
        let host = object.status.host.clone().filter(|host| self.takes_part(host));
        let claimed = match (&host, &spec.host) {
            // Whether the host takes new VMs is no question for one that is there.
            (Some(host), _) => self.claim(&id, spec, Some(host)),
            (None, None) => self.claim(&id, spec, None),
            (None, Some(gone)) => {
                let detail = format!("host `{gone}` is dead or was deleted");
                Err(Problem::new(409, "HostDead", "spec.host", detail))
            }
        };
        self.say_admitted(now, object, claimed);
    }

    /// Writes into a VM's status whether its floor holds, if that is news.
    fn say_admitted(&mut self, now: Moment, object: &Object, claimed: Result<String, Problem>) {
        let mut new = object.clone();
        let fallen = claimed.is_err();
        match claimed {
            Ok(host) => {
                new.status.host = Some(host);
                new.status.set(admitted(now));
            }
            Err(problem) => new.status.set(Condition {
                name: ADMITTED.into(),
                status: Truth::False,
                reason: problem.reason.into(),
                message: problem.detail,
                last_transition_time: now,
            }),
        }
        self.set_fallen(object.name(), fallen);
        if new.status != object.status {
            self.put_object(new);
        }
    }

    fn hold_again(&mut self, now: Option<Moment>, object: &Object) {
        let Spec::Reservation(spec) = &object.spec else { return };
        for vm in &spec.vms {
            let wish = wish_of(spec, vm);
            let id = reserved_claim(object.name(), &vm.name);
            let alive = now.is_none() || self.takes_part(&vm.host);
            let claimed = match alive {
                true => self.claim(&id, &wish, Some(&vm.host)).map(drop),
                false => {
                    let detail = format!("host `{}` is dead or was deleted", vm.host);
                    Err(Problem::new(409, "HostDead", "spec.host", detail))
                }
            };
            match (claimed, now) {
                (Ok(()), _) => self.set_reserved(&vm.name, Some(object.name().into())),
                (Err(problem), Some(now)) => {
                    self.give_back(object);
                    self.end(now, object, Phase::Failed, &problem.detail);
                    return;
                }
                (Err(problem), None) => {
                    tracing::error!("{} does not fit any more: {}", named(object), problem.detail);
                }
            }
        }
    }

    /// Room was given back: floors that had fallen may hold again, those of the highest priority first.
    pub(super) fn admit_fallen(&mut self, now: Moment) {
        if self.fallen.is_empty() {
            return;
        }
        let fallen = self.claimants().into_iter().filter(|(_, _, object)| {
            object.kind() == Kind::Vm && self.fallen.contains(object.name())
        });
        for (_, _, object) in fallen.collect::<Vec<_>>() {
            let Spec::Vm(spec) = &object.spec else { continue };
            self.claim_again(Some(now), &object, spec);
        }
    }

    pub(super) fn check_claims(&self) {
        let mut expected = std::collections::BTreeSet::new();
        for stored in self.objects() {
            let object = &stored.object;
            match &object.spec {
                Spec::Vm(_) if !self.fallen.contains(object.name()) => {
                    expected.insert(vm_claim(object.name()));
                }
                Spec::Reservation(spec) if object.status.phase == Some(Phase::Held) => {
                    let claims = spec.vms.iter().map(|vm| reserved_claim(object.name(), &vm.name));
                    expected.extend(claims);
                }
                _ => {}
            }
        }
        let claimed: std::collections::BTreeSet<String> =
            self.book.claims().map(|(id, _)| id.to_owned()).collect();
        assert_eq!(claimed, expected, "claims are those of VMs and held reservations");
        for vm in &self.fallen {
            assert!(self.get(Kind::Vm, vm).is_some(), "{vm} has fallen and does not exist");
        }
    }
}

pub(super) fn admitted(now: Moment) -> Condition {
    Condition {
        name: ADMITTED.into(),
        status: Truth::True,
        reason: "Fits".into(),
        message: String::new(),
        last_transition_time: now,
    }
}

/// A refusal by the book, for whoever asked.
fn no_room(no: &NoRoom, host_given: bool) -> Problem {
    let field = match (no.reason, host_given) {
        ("HostFull", true) => "spec.host",
        _ => "spec.floor",
    };
    let mut problem = Problem::new(409, no.reason, field, no.detail.clone());
    if let Some(link) = &no.link {
        problem = problem.with("link", link.as_str());
    }
    if let Some(missing) = no.missing {
        problem = problem.with("missing", weir_model::text::show_rate(missing));
    }
    if !no.tenants.is_empty() {
        problem = problem.with("tenants", no.tenants.clone());
    }
    problem
}
