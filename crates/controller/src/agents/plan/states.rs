//! The state of a tenant, as one host is told it.

use super::super::floors::{Floors, HoseRates};
use super::{Plan, VmRow};
use crate::state::Stored;
use std::collections::BTreeSet;
use weir_model::objects::{self, Spec, Truth, VmSpec};
use weir_rpc::messages::{HoseEnd, HoseFloors, Local, Peer, Tenant, Vm};
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
            state.vms.push(listed(name, vm, local));
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
            self.observe_vm(&vm, row.generation, Truth::True, "InForce", String::new());
        }
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
    Local {
        port: network.port.unwrap_or_default(),
        floor_out: floors.out.as_bps(),
        floor_in: floors.inward.as_bps(),
        // Undeclared, the agent gives what its uplink has beside all floors.
        external_out: spec.external.map(|_| floors.external_out.as_bps()),
        cap_out: spec.cap.map(|cap| cap.0.as_bps()),
        hoses: floors.hoses.iter().map(hose).collect(),
    }
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
