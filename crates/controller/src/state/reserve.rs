//! Reservations: room on hosts that something else has chosen, held until it confirms.
//!
//! Problem   OpenStack, Kubernetes and libvirt place VMs themselves. Between their choice and the VM's
//!           start nobody else may take the room, and a scheduler that dies must not keep it.
//! Approach  Reserve, confirm, release. A held reservation has claims of its own; confirming turns them
//!           into the VMs' claims without a new admission. A reservation of a VM that exists is a
//!           migration: both hosts have room until it is confirmed (the old one is given back) or ends.
//! Promises  All VMs of a reservation or none. Confirming twice is confirming once. What ended never
//!           comes back.

use super::book::{Change, Promise, Terms, Wanted};
use super::change::{named, not_found, ready, vm_claim};
use super::command::{Actor, Draft};
use super::{State, Stored};
use crate::problem::Problem;
use weir_model::moment::Moment;
use weir_model::objects::{
    Condition, Kind, Metadata, Object, Phase, ReservationSpec, ReservedVm, Spec, Status, Truth,
    VmSpec,
};
use weir_units::Span;

impl State {
    pub(super) fn reserve(
        &mut self,
        now: Moment,
        old: Option<&Stored>,
        object: &mut Object,
    ) -> Result<(), Problem> {
        if let Some(old) = old {
            if old.object.spec == object.spec {
                return Ok(());
            }
            let detail = "a reservation cannot change: release it and make another";
            return Err(Problem::new(422, "Immutable", "spec", detail));
        }
        let name = object.name().to_owned();
        let Spec::Reservation(spec) = object.spec.clone() else { unreachable!("its kind says so") };
        self.settle(now)?;
        let mut changes = Vec::with_capacity(spec.vms.len());
        for (n, vm) in spec.vms.iter().enumerate() {
            self.check_vm_name(&spec, n, vm)?;
            self.check_host(&vm.host).map_err(|problem| of_vm(&spec, n, problem))?;
            let promise = Promise::of(&wish_of(&spec, vm));
            let counted = self.counted(&vm.name, &promise);
            let wanted = Wanted { host: Some(vm.host.clone()), promise, counted };
            changes.push(Change { id: reserved_claim(&name, &vm.name), to: Some(wanted) });
        }
        let admitted = self.admit(&spec.tenant, Terms::of, &changes);
        admitted.map_err(|(n, problem)| match problem.reason {
            "NoSuchTenant" => problem,
            _ => of_vm(&spec, n, problem),
        })?;
        for vm in &spec.vms {
            self.set_reserved(&vm.name, Some(name.clone()));
        }
        let until = now.plus_millis(millis(spec.hold_for.0));
        object.status.phase = Some(Phase::Held);
        object.status.expires_at = Some(until);
        object.status.set(ready(now));
        object.status.set(condition(now, Phase::Held, ""));
        self.set_deadline((until, name), true);
        Ok(())
    }

    /// A name that nobody else has, or a VM of the same tenant that moves.
    fn check_vm_name(
        &self,
        spec: &ReservationSpec,
        n: usize,
        vm: &ReservedVm,
    ) -> Result<(), Problem> {
        let field = format!("spec.vms[{n}].name");
        if let Some(other) = self.reserved.get(&vm.name) {
            let detail = format!("the reservation `{other}` has room for a VM of this name");
            return Err(Problem::new(409, "Reserved", field, detail));
        }
        let Some(stored) = self.get(Kind::Vm, &vm.name) else { return Ok(()) };
        if stored.object.owner() != Some(spec.tenant.as_str()) {
            let detail = format!("a VM with the name `{}` exists: choose another name", vm.name);
            return Err(Problem::new(409, "AlreadyExists", field, detail));
        }
        if stored.object.status.host.as_deref() == Some(vm.host.as_str()) {
            let detail = format!(
                "the VM `{}` is on host `{}` already; to change its floor, apply the VM",
                vm.name, vm.host
            );
            return Err(Problem::new(409, "AlreadyThere", format!("spec.vms[{n}].host"), detail));
        }
        if let Spec::Vm(old) = &stored.object.spec
            && let Some(component) = &old.component
            && Promise::of(old) != Promise::of(&wish_of(spec, vm))
        {
            let detail = format!(
                "the VM `{}` has the floors of the component `{component}`, also when it moves",
                vm.name
            );
            return Err(Problem::new(409, "Managed", format!("spec.vms[{n}].floor"), detail));
        }
        Ok(())
    }

    pub(super) fn confirm(
        &mut self,
        now: Moment,
        actor: &Actor,
        name: &str,
    ) -> Result<Draft, Problem> {
        self.settle(now)?;
        let stored = self.reservation(actor, name)?;
        match stored.object.status.phase {
            Some(Phase::Held) => {}
            Some(Phase::Confirmed) => {
                return Ok(Draft::Object(Kind::Reservation, name.into(), false));
            }
            other => return Err(too_late(&stored, other)),
        }
        let Spec::Reservation(spec) = &stored.object.spec else { unreachable!("its kind says so") };
        let from: Vec<String> = spec.vms.iter().map(|vm| vm_claim(&vm.name)).collect();
        let moved = from.iter().any(|id| self.book.claim(id).is_some());
        self.release_claims(&spec.tenant, from);
        for vm in &spec.vms {
            self.move_in(now, name, spec, vm);
        }
        self.end(now, &stored.object, Phase::Confirmed, "");
        if moved {
            self.admit_fallen(now);
        }
        Ok(Draft::Object(Kind::Reservation, name.into(), false))
    }

    /// Makes the VM of a reservation, or moves it.
    fn move_in(&mut self, now: Moment, name: &str, spec: &ReservationSpec, vm: &ReservedVm) {
        let old = self.get(Kind::Vm, &vm.name).map(|stored| stored.object.clone());
        self.set_fallen(&vm.name, false);
        let mut wish = wish_of(spec, vm);
        if let Some(Spec::Vm(old)) = old.as_ref().map(|old| &old.spec) {
            wish.component.clone_from(&old.component);
            wish.cap = old.cap;
            wish.number = old.number;
            wish.network = wish.network.or_else(|| old.network.clone());
        }
        let counted = Promise::of(&wish).usage();
        self.rename_claim(&reserved_claim(name, &vm.name), &vm_claim(&vm.name), counted);
        self.set_reserved(&vm.name, None);
        let wish = Spec::Vm(wish);
        let generation = old.as_ref().map_or(0, |old| old.metadata.generation) + 1;
        let mut object = Object {
            metadata: Metadata {
                name: vm.name.clone(),
                labels: old.as_ref().map(|old| old.metadata.labels.clone()).unwrap_or_default(),
                generation,
                resource_version: None,
                creation_timestamp: old
                    .as_ref()
                    .map_or(Some(now), |old| old.metadata.creation_timestamp),
            },
            spec: wish,
            status: old.map_or_else(Status::default, |old| old.status),
        };
        object.status.observed_generation = generation;
        object.status.host = Some(vm.host.clone());
        object.status.set(super::admit::admitted(now));
        self.await_agent(now, &mut object);
        self.put_object(object);
    }

    pub(super) fn release(
        &mut self,
        now: Moment,
        actor: &Actor,
        name: &str,
    ) -> Result<Draft, Problem> {
        let stored = self.reservation(actor, name)?;
        match stored.object.status.phase {
            Some(Phase::Held) => {
                self.give_back(&stored.object);
                self.end(now, &stored.object, Phase::Released, "");
                self.admit_fallen(now);
            }
            Some(Phase::Confirmed) => {
                let detail = format!(
                    "the reservation `{name}` is confirmed, its VMs exist: delete the VMs instead"
                );
                return Err(Problem::new(409, "Confirmed", "metadata.name", detail));
            }
            // Its room was given back before.
            _ => {}
        }
        Ok(Draft::Object(Kind::Reservation, name.into(), false))
    }

    /// A deadline has come: a held reservation expires, one that ended goes out of sight.
    pub(super) fn reservation_is_due(&mut self, now: Moment, name: &str) {
        if let Some(held) = self.held(name).cloned() {
            self.give_back(&held.object);
            self.end(now, &held.object, Phase::Expired, "nobody confirmed it in time");
        } else {
            self.remove_object(Kind::Reservation, name);
        }
    }

    /// Gives the claims of a held reservation back.
    pub(super) fn give_back(&mut self, object: &Object) {
        let Spec::Reservation(spec) = &object.spec else { return };
        let ids = spec.vms.iter().map(|vm| reserved_claim(object.name(), &vm.name));
        self.release_claims(&spec.tenant, ids);
        for vm in &spec.vms {
            self.set_reserved(&vm.name, None);
        }
    }

    /// After a VM was removed: a reservation that would have moved it makes it, and counts whole.
    pub(super) fn count_reserved(&mut self, vm: &str) {
        let Some(reservation) = self.reserved.get(vm) else { return };
        let id = reserved_claim(reservation, vm);
        if let Some(counted) = self.book.claim(&id).map(|claim| claim.promise.usage()) {
            self.rename_claim(&id, &id, counted);
        }
    }

    /// Enters the last phase of a held reservation.
    pub(super) fn end(&mut self, now: Moment, object: &Object, phase: Phase, why: &str) {
        let name = object.name().to_owned();
        self.disarm(&name);
        self.set_deadline((now.plus_millis(self.limits.keep_reservations), name), true);
        let mut object = object.clone();
        object.status.phase = Some(phase);
        object.status.expires_at = Some(now);
        object.status.set(condition(now, phase, why));
        self.put_object(object);
    }

    /// Before the object of a reservation is removed.
    pub(super) fn forget_reservation(&mut self, name: &str) {
        if let Some(held) = self.held(name).cloned() {
            self.give_back(&held.object);
        }
        self.disarm(name);
    }

    fn disarm(&mut self, name: &str) {
        let stored = self.get(Kind::Reservation, name);
        let ends = stored.and_then(|stored| {
            let at = stored.object.status.expires_at?;
            let keep = if self.is_over(stored) { self.limits.keep_reservations } else { 0 };
            Some((at.plus_millis(keep), name.to_owned()))
        });
        // After a clock that jumped, the deadline is earlier than the object says.
        let known = ends.filter(|ends| self.deadlines.contains(ends));
        let due = known.or_else(|| self.deadlines.iter().find(|(_, of)| of == name).cloned());
        if let Some(deadline) = due {
            self.set_deadline(deadline, false);
        }
    }

    /// Whether an object is a reservation that has ended: it needs nothing any more.
    pub(super) fn is_over(&self, stored: &Stored) -> bool {
        let phase = stored.object.status.phase;
        stored.object.kind() == Kind::Reservation && phase.is_some_and(|phase| phase != Phase::Held)
    }

    fn reservation(&self, actor: &Actor, name: &str) -> Result<std::sync::Arc<Stored>, Problem> {
        let stored = self.get(Kind::Reservation, name).cloned();
        let owner = stored.as_deref().and_then(|stored| stored.object.owner());
        actor.may_write(Kind::Reservation, owner)?;
        stored.ok_or_else(|| not_found(Kind::Reservation, name))
    }
}

/// Name of the claim of one VM of a reservation.
pub(super) fn reserved_claim(reservation: &str, vm: &str) -> String {
    format!("Reservation:{reservation}/{vm}")
}

pub(super) fn wish_of(spec: &ReservationSpec, vm: &ReservedVm) -> VmSpec {
    VmSpec {
        tenant: spec.tenant.clone(),
        host: Some(vm.host.clone()),
        floor: vm.floor,
        hoses: vm.hoses.clone(),
        external: vm.external,
        component: None,
        cap: None,
        network: vm.network.clone(),
        number: None,
    }
}

/// A problem with the `n`-th VM of a reservation.
fn of_vm(spec: &ReservationSpec, n: usize, mut problem: Problem) -> Problem {
    let name = spec.vms[n].name.as_str();
    problem.field = format!("spec.vms[{n}].{}", problem.field.replacen("spec.", "", 1));
    problem.detail = format!("VM `{name}`: {}", problem.detail);
    problem.with("vm", name)
}

fn too_late(stored: &Stored, phase: Option<Phase>) -> Problem {
    let (reason, how) = match phase {
        Some(Phase::Expired) => ("Expired", "expired"),
        Some(Phase::Released) => ("Released", "was released"),
        _ => ("Failed", "failed"),
    };
    let why = stored.object.status.condition("Confirmed").map(|c| c.message.as_str());
    let why = why.filter(|why| !why.is_empty()).map(|why| format!(" ({why})")).unwrap_or_default();
    let detail = format!("{} {how}{why}: make another one", named(&stored.object));
    Problem::new(409, reason, "metadata.name", detail)
}

fn condition(now: Moment, phase: Phase, why: &str) -> Condition {
    let (status, reason) = match phase {
        Phase::Held => (Truth::Unknown, "Held"),
        Phase::Confirmed => (Truth::True, "Confirmed"),
        Phase::Released => (Truth::False, "Released"),
        Phase::Expired => (Truth::False, "Expired"),
        Phase::Failed => (Truth::False, "Failed"),
    };
    Condition {
        name: "Confirmed".into(),
        status,
        reason: reason.into(),
        message: why.into(),
        last_transition_time: now,
    }
}

pub(super) const fn millis(span: Span) -> u64 {
    span.as_nanos() / 1_000_000
}
