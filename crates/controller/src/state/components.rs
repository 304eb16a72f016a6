//! Tenants whose VMs come, change and go with them.
//!
//! Problem   A tenant that is made VM by VM is placed VM by VM: no whole is ever chosen, and half of it
//!           may exist.
//! Approach  `spec.components` of a Tenant says how many VMs of which floors there are. The difference to
//!           those that exist is one change of the book.
//! Promises  All of a change of a tenant, or nothing. VMs that stay keep their hosts. Those that go are
//!           on the hosts with the most of the tenant's VMs.

use super::admit::Refused;
use super::book::{Change, Promise, Terms, Wanted};
use super::change::{begin, vm_claim};
use super::{Stale, State, Stored};
use crate::problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::moment::Moment;
use weir_model::objects::{Component, Kind, Metadata, Object, Spec, TenantSpec, VmSpec, Wish};

/// Longest name of a VM.
const NAME_MOST: usize = 253;

/// One VM that is to be made, changed or removed.
struct Step {
    /// Position of its component in the new spec; none if the component is gone.
    component: Option<usize>,
    name: String,
    /// Its new object; none if it goes.
    object: Option<Object>,
    change: Change,
}

impl State {
    /// After the object of a tenant was written: makes its VMs what it says, and asks its bounds.
    pub(super) fn put_tenant(
        &mut self,
        now: Moment,
        name: &str,
        spec: &TenantSpec,
        old: Option<&Stored>,
    ) -> Result<(), Problem> {
        let before = match old.map(|old| &old.object.spec) {
            Some(Spec::Tenant(before)) => before.clone(),
            _ => TenantSpec::default(),
        };
        if before.priority != spec.priority && !self.fallen.is_empty() {
            // Another tenant may have to give way.
            self.set_stale(Stale::Network);
        }
        // It may be another's floor that falls with what drains.
        self.drain_is_news |= before.priority != spec.priority;
        self.settle(now)?;
        let mut steps = Vec::new();
        if before.components != spec.components {
            steps = self.steps(now, name, spec)?;
        }
        if steps.is_empty() && before.survival == spec.survival {
            return self.check_tenant(name, spec);
        }
        let changes: Vec<Change> = steps.iter().map(|step| step.change.clone()).collect();
        self.admit(name, Terms::of, &changes).map_err(|refused| in_component(&steps, refused))?;
        let gave_back = steps.iter().any(|step| step.object.is_none());
        for step in steps {
            match step.object {
                Some(object) => self.put_admitted(now, object),
                None => self.drop_vm(&step.name),
            }
        }
        if gave_back || before.components != spec.components {
            self.admit_fallen(now);
        }
        self.check_tenant(name, spec)
    }

    /// Removes the VMs of a tenant's components: all of them go with it.
    pub(super) fn remove_components(&mut self, tenant: &str) {
        let names: Vec<String> = self.members(tenant).into_keys().collect();
        self.release_claims(tenant, names.iter().map(|name| vm_claim(name)));
        for name in names {
            self.drop_vm(&name);
        }
    }

    fn drop_vm(&mut self, name: &str) {
        self.set_fallen(name, false);
        self.remove_object(Kind::Vm, name);
    }

    /// VMs of a tenant's components, by name.
    fn members(&self, tenant: &str) -> BTreeMap<String, VmSpec> {
        let of = |(name, stored): (&String, &std::sync::Arc<Stored>)| match &stored.object.spec {
            Spec::Vm(spec) if spec.tenant == tenant && spec.component.is_some() => {
                Some((name.clone(), spec.clone()))
            }
            _ => None,
        };
        self.objects[Kind::Vm as usize].iter().filter_map(of).collect()
    }

    /// What has to happen to a tenant's VMs.
    fn steps(&self, now: Moment, tenant: &str, spec: &TenantSpec) -> Result<Vec<Step>, Problem> {
        let mut members: BTreeMap<String, BTreeMap<String, VmSpec>> = BTreeMap::new();
        let mut on_host: BTreeMap<String, usize> = BTreeMap::new();
        for (name, vm) in self.members(tenant) {
            *on_host.entry(self.host_of(&name)).or_default() += 1;
            let component = vm.component.clone().unwrap_or_default();
            members.entry(component).or_default().insert(name, vm);
        }
        let mut steps = Vec::new();
        for (n, component) in spec.components.iter().enumerate() {
            let mut there = members.remove(&component.name).unwrap_or_default();
            let most = component.vms as usize;
            for name in self.who_go(&there, &mut on_host, most) {
                there.remove(&name);
                steps.push(self.step_out(Some(n), name)?);
            }
            let new = component.vms as usize - there.len();
            for (name, vm) in there {
                let wanted = spec_of(tenant, component, Some(&vm));
                if wanted != vm {
                    steps.push(self.step_to(now, n, name, wanted)?);
                }
            }
            // A name that goes is not made anew in the same step.
            let is_taken = |name: &String| {
                let there = self.get(Kind::Vm, name).map(|stored| &stored.object.spec);
                matches!(there, Some(Spec::Vm(vm))
                    if vm.tenant == tenant && vm.component.as_ref() == Some(&component.name))
            };
            let free = (0..).map(|i| format!("{tenant}-{}-{i}", component.name));
            let names: Vec<String> = free.filter(|name| !is_taken(name)).take(new).collect();
            for name in names {
                let wanted = spec_of(tenant, component, None);
                steps.push(self.step_in(now, n, name, wanted)?);
            }
        }
        for (name, _) in members.into_values().flatten() {
            steps.push(self.step_out(None, name)?);
        }
        Ok(steps)
    }

    fn host_of(&self, vm: &str) -> String {
        let stored = self.get(Kind::Vm, vm);
        stored.and_then(|stored| stored.object.status.host.clone()).unwrap_or_default()
    }

    /// Those of a component's VMs that are more than `most`: each time one on the host with the most
    /// VMs of the tenant, there the last by name.
    fn who_go(
        &self,
        there: &BTreeMap<String, VmSpec>,
        on_host: &mut BTreeMap<String, usize>,
        most: usize,
    ) -> Vec<String> {
        let mut by_host: BTreeMap<String, Vec<&String>> = BTreeMap::new();
        for name in there.keys() {
            by_host.entry(self.host_of(name)).or_default().push(name);
        }
        by_host.values_mut().for_each(|names| names.sort_by_key(|name| (name.len(), *name)));
        let crowd = |host: &String| (on_host[host], host.clone());
        let mut crowds: BTreeSet<(usize, String)> = by_host.keys().map(crowd).collect();
        let mut gone = Vec::new();
        while there.len() - gone.len() > most {
            let (crowd, host) = crowds.pop_last().expect("VMs are on hosts");
            let names = by_host.get_mut(&host).expect("it has VMs");
            gone.push(names.pop().expect("it has VMs").clone());
            if !names.is_empty() {
                crowds.insert((crowd - 1, host.clone()));
            }
            on_host.insert(host, crowd - 1);
        }
        gone
    }

    fn step_out(&self, component: Option<usize>, name: String) -> Result<Step, Problem> {
        if let Some(reservation) = self.reserved.get(&name) {
            let detail = format!(
                "the VM `{name}` would go, and the reservation `{reservation}` moves it: confirm or \
                 release it"
            );
            return Err(Problem::new(409, "Reserved", field(component, "vms"), detail));
        }
        let change = Change { id: vm_claim(&name), to: None };
        Ok(Step { component, name, object: None, change })
    }

    /// A VM that exists gets other floors where it is.
    fn step_to(
        &self,
        now: Moment,
        n: usize,
        name: String,
        wanted: VmSpec,
    ) -> Result<Step, Problem> {
        if let Some(reservation) = self.reserved.get(&name) {
            let detail = format!(
                "the reservation `{reservation}` moves the VM `{name}`: confirm or release it"
            );
            return Err(Problem::new(409, "Reserved", field(Some(n), "floor"), detail));
        }
        let host = Some(self.host_of(&name)).filter(|host| self.takes_part(host));
        Ok(self.step(now, n, name, wanted, host))
    }

    fn step_in(
        &self,
        now: Moment,
        n: usize,
        name: String,
        wanted: VmSpec,
    ) -> Result<Step, Problem> {
        let refuse =
            |reason, detail| Err(Problem::new(409, reason, field(Some(n), "name"), detail));
        if name.len() > NAME_MOST {
            let detail = format!("the name `{name}` is longer than {NAME_MOST}: shorten it");
            return refuse("NameTooLong", detail);
        }
        if self.get(Kind::Vm, &name).is_some() {
            let detail =
                format!("a VM with the name `{name}` exists: name the component otherwise");
            return refuse("AlreadyExists", detail);
        }
        if let Some(reservation) = self.reserved.get(&name) {
            let detail = format!("the reservation `{reservation}` has room for a VM `{name}`");
            return refuse("Reserved", detail);
        }
        Ok(self.step(now, n, name, wanted, None))
    }

    fn step(
        &self,
        now: Moment,
        n: usize,
        name: String,
        wanted: VmSpec,
        host: Option<String>,
    ) -> Step {
        let promise = Promise::of(&wanted);
        let counted = promise.usage();
        let change = Change { id: vm_claim(&name), to: Some(Wanted { host, promise, counted }) };
        let old = self.get(Kind::Vm, &name).cloned();
        let labels = old.as_ref().map(|old| old.object.metadata.labels.clone());
        let metadata = Metadata {
            name: name.clone(),
            labels: labels.unwrap_or_default(),
            ..Metadata::default()
        };
        let wish = Wish { metadata, spec: Spec::Vm(wanted) };
        let object = Some(begin(now, &wish, old.as_deref()));
        Step { component: Some(n), name, object, change }
    }
}

/// What a VM of a component is to be; `old` is what it was.
fn spec_of(tenant: &str, component: &Component, old: Option<&VmSpec>) -> VmSpec {
    VmSpec {
        tenant: tenant.to_owned(),
        host: old.and_then(|old| old.host.clone()),
        floor: component.floor,
        hoses: component.hoses.clone(),
        external: component.external,
        component: Some(component.name.clone()),
        cap: old.and_then(|old| old.cap),
        network: old.and_then(|old| old.network.clone()),
        number: old.and_then(|old| old.number),
    }
}

fn field(component: Option<usize>, of: &str) -> String {
    component.map_or("spec.components".into(), |n| format!("spec.components[{n}].{of}"))
}

/// A refusal of a VM as one of its component.
fn in_component(steps: &[Step], (at, mut problem): Refused) -> Problem {
    let Some(step) = steps.get(at) else {
        problem.field = "spec.survival".into();
        return problem;
    };
    problem.field = match problem.reason {
        "Survival" => "spec.survival".into(),
        "QuotaExceeded" if problem.field == "spec.tenant" => field(step.component, "vms"),
        _ => field(step.component, problem.field.trim_start_matches("spec.")),
    };
    problem.detail = format!("VM `{}`: {}", step.name, problem.detail);
    problem
}
