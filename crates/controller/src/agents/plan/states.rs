//! The state of a tenant, as one host is told it.

use super::super::floors::{Floors, HoseRates};
use super::{Plan, VmRow};
use crate::state::Stored;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use weir_model::agent::{Ports, WindowBudget, WindowClass};
use weir_model::objects::{self, Network, Spec, Truth, VmSpec};
use weir_rpc::messages::{Budget, BudgetClass, HoseEnd, HoseFloors, Local, Peer, Tenant, Vm};
use weir_units::Rate;
use weir_wire::host_file;

impl Plan {
    pub(super) fn local_vms(&self, host: &str, tenant: &str) -> Vec<(String, VmRow)> {
        let vms = self.tenants.get(tenant).into_iter().flat_map(|row| &row.vms);
        let here = vms.filter_map(|vm| Some((vm, self.vms.get(vm)?)));
        here.filter(|(_, row)| row.host == host)
            .map(|(vm, row)| (vm.clone(), row.clone()))
            .collect()
    }

    /// What a host has to know of a tenant, with these floors of its own VMs.
    pub(super) fn state_of(
        &self,
        host: &str,
        tenant: &str,
        floors: &dyn Fn(&str, &VmRow) -> Floors,
    ) -> Tenant {
        let row = self.tenants.get(tenant);
        let version = row.map_or(self.revision, |row| row.version);
        let mut state = Tenant { name: tenant.into(), version, ..Tenant::default() };
        let is_here = self.hosts.get(host).is_some_and(|row| row.tenants.contains_key(tenant));
        let Some(row) = row.filter(|_| is_here) else { return state };
        let knows = self.hosts.get(host).is_some_and(|row| row.knows_networks);
        state.queue = self.queue_for(host, tenant);
        let mut others = BTreeSet::new();
        for (name, vm) in row.vms.iter().filter_map(|vm| Some((vm, self.vms.get(vm)?))) {
            let Some(at) = self.hosts.get(&vm.host) else { continue };
            // Nobody can agree on floors with a host that has not joined.
            if vm.host != host && (at.control.is_none() || at.dead) {
                continue;
            }
            if vm.host != host {
                others.insert(vm.host.as_str());
            }
            let local = (vm.host == host).then(|| local_of(&vm.spec, floors(name, vm)));
            let listed = listed(name, vm, local);
            // The digest of an agent has no fields that it does not know.
            state.vms.push(if knows { listed } else { plain(listed) });
        }
        let peer = |name: &str| {
            let row = self.hosts.get(name)?;
            let control = row.control?.to_string();
            Some(Peer {
                name: name.into(),
                number: row.number,
                control,
                keys: self.keys(host, name),
            })
        };
        state.hosts = others.into_iter().filter_map(peer).collect();
        state
    }

    /// The lines `ID KEY` of the keys that two hosts share.
    pub(super) fn keys(&self, host: &str, other: &str) -> String {
        let file = host_file(&self.ring, host, [other]);
        let lines = file.lines().filter_map(|line| line.strip_prefix(other)?.strip_prefix(' '));
        lines.map(|line| format!("{line}\n")).collect()
    }

    pub(super) fn tell_applied(&mut self, host: &str, tenant: &str) {
        for (vm, row) in self.local_vms(host, tenant) {
            self.tell_in_force(host, &vm, row.generation);
        }
    }

    /// A host says whether it only observes. Of what it has not answered yet it is told with the answer.
    pub(crate) fn says_mode(&mut self, host: &str, observes: bool) {
        let Some(row) = self.hosts.get_mut(host) else { return };
        if std::mem::replace(&mut row.observes, observes) == observes {
            return;
        }
        let Some(stream) = &row.stream else { return };
        let is_open = |tenant: &&String| {
            stream.dirty.contains(*tenant)
                || stream.sent.contains_key(*tenant)
                || stream.waiting.contains(*tenant)
                || stream.refused.contains_key(*tenant)
        };
        let answered: Vec<String> = row.tenants.keys().filter(|t| !is_open(t)).cloned().collect();
        for tenant in answered {
            self.tell_applied(host, &tenant);
        }
    }

    /// A host has what it was sent of a VM, and enforces it unless it only observes.
    pub(super) fn tell_in_force(&mut self, host: &str, vm: &str, generation: u64) {
        if self.hosts.get(host).is_some_and(|row| row.observes) {
            let message = format!(
                "host `{host}` only observes: it has the floors, and does not enforce them; `weir host \
                 mode enforce {host}` begins"
            );
            return self.observe_vm(vm, generation, Truth::False, "Observing", message);
        }
        let network = self.vms.get(vm).and_then(|row| row.spec.network.as_ref());
        let is_extended = network.is_some_and(Network::is_extended);
        if !is_extended || self.hosts.get(host).is_some_and(|row| row.knows_networks) {
            return self.observe_vm(vm, generation, Truth::True, "InForce", String::new());
        }
        let message = format!(
            "the agent of host `{host}` holds the floors, and is too old for the rest of spec.network: \
             install a newer version of Weir there"
        );
        self.observe_vm(vm, generation, Truth::False, "AgentTooOld", message);
    }
}

pub(super) fn row_of(stored: &Stored) -> Option<VmRow> {
    let Spec::Vm(spec) = &stored.object.spec else { return None };
    let status = &stored.object.status;
    let admitted = status.condition("Admitted").is_some_and(|c| c.status == Truth::True);
    Some(VmRow {
        tenant: spec.tenant.clone(),
        host: status.host.clone()?,
        number: status.number?,
        generation: stored.object.metadata.generation,
        wanted: if admitted { Floors::of(spec) } else { Floors::default() },
        spec: spec.clone(),
    })
}

fn local_of(spec: &VmSpec, floors: Floors) -> Local {
    let network = spec.network.clone().unwrap_or_default();
    let hose = |(name, of): (&String, &HoseRates)| HoseFloors {
        name: name.clone(),
        floor_out: of.out.as_bps(),
        floor_in: of.inward.as_bps(),
    };
    // A floor that a maximum does not reach would be refused.
    let external_most = network.external_cap.filter(|_| spec.external.is_some());
    let external_most = external_most.map(|most| most.0.max(floors.external_out));
    Local {
        port: network.port.clone().unwrap_or_default(),
        floor_out: floors.out.as_bps(),
        floor_in: floors.inward.as_bps(),
        // Undeclared, the agent gives what its uplink has beside all floors.
        external_out: spec.external.map(|_| floors.external_out.as_bps()),
        cap_out: spec.cap.map(|cap| cap.0.as_bps()),
        hoses: floors.hoses.iter().map(hose).collect(),
        external_most: external_most.map(Rate::as_bps),
        translation: word(&network.translation),
        policing: network.policing.map(|slack| slack.0.get()),
        budget: network.budget.as_deref().map(budget),
        dscp: word(&network.dscp),
    }
}

/// The word that a setting is; nothing for its default.
fn word<T: Serialize + Default + PartialEq>(setting: &T) -> String {
    if *setting == T::default() {
        return String::new();
    }
    match serde_json::to_value(setting) {
        Ok(Value::String(word)) => word,
        other => unreachable!("a setting is one word, not {other:?}"),
    }
}

fn budget(budget: &objects::Budget) -> Budget {
    let budget = WindowBudget::from(budget);
    let ports = |ports: &Option<Ports>| ports.as_ref().map(ToString::to_string).unwrap_or_default();
    let class = |class: &WindowClass| BudgetClass {
        name: class.name.clone(),
        weight: class.weight,
        local_ports: ports(&class.local_ports),
        remote_ports: ports(&class.remote_ports),
    };
    Budget {
        total: budget.total.0.get(),
        flows_most: budget.flows_most,
        segment: budget.segment.0.get(),
        classes: budget.classes.iter().map(class).collect(),
    }
}

/// A VM as agents know it that have no [`NETWORKS`](weir_rpc::messages::NETWORKS).
fn plain(vm: Vm) -> Vm {
    let local = vm.local.map(|local| Local {
        external_most: None,
        translation: String::new(),
        policing: None,
        budget: None,
        dscp: String::new(),
        ..local
    });
    Vm { local, prefixes: Vec::new(), ..vm }
}

fn listed(name: &str, vm: &VmRow, local: Option<Local>) -> Vm {
    let network = vm.spec.network.clone().unwrap_or_default();
    Vm {
        name: name.into(),
        number: vm.number,
        host: vm.host.clone(),
        addresses: network.addresses.iter().map(ToString::to_string).collect(),
        mac: network.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        local,
        hoses: hoses(&vm.spec),
        prefixes: network.prefixes.iter().map(ToString::to_string).collect(),
    }
}

/// The hoses in which a VM sends and receives, by its spec: what its host enforces at the moment does not
/// say which hose a pair belongs to.
fn hoses(spec: &VmSpec) -> Vec<HoseEnd> {
    if spec.hoses.is_empty() {
        return Vec::new();
    }
    let end = |name: &str, floor: &objects::Floors| HoseEnd {
        name: name.into(),
        sends: !floor.out.0.is_zero(),
        receives: !floor.inward.0.is_zero(),
    };
    let further = spec.hoses.iter().map(|hose| end(&hose.name, &hose.floor));
    std::iter::once(end("", &spec.floor)).chain(further).collect()
}
