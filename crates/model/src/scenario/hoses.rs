//! The hoses of a scenario's VMs, in one list, and those that a pair uses.
//!
//! Problem   Worlds, admission and judge have to agree on the hose of a pair.
//! Approach  The law is that of the agents ([`weir_core::host::shared`]). The list begins with each
//!           VM's hose toward its tenant, at the VM's index; the further hoses of all VMs follow.
//! Not here  How hoses are written: see `spec::hoses`.

use super::{Scenario, Vm};
use std::collections::BTreeMap;
use weir_core::host::{HoseKey, Ties, shared};
use weir_core::oracle::Hose;
use weir_units::HoseId;

/// A hose that some VMs of a tenant share, beside the one that all of them share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedHose {
    /// Index into `tenants`.
    pub tenant: usize,
    /// Unique in the tenant.
    pub name: String,
}

/// A VM's end of a [`SharedHose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmHose {
    /// Index into the scenario's `hoses`.
    pub hose: usize,
    /// Minimum rate to the VMs that share the hose.
    pub floor_out: weir_units::Rate,
    /// Minimum rate from them.
    pub floor_in: weir_units::Rate,
}

impl VmHose {
    /// Its number, by which hosts know it.
    pub fn id(&self) -> HoseId {
        HoseId(self.hose as u32)
    }
}

impl Vm {
    /// The hoses in which the VM sends and receives, if it has further ones.
    pub fn ties(&self) -> Option<Ties> {
        let of = |floor: fn(&VmHose) -> weir_units::Rate| {
            self.hoses.iter().filter(move |hose| !floor(hose).is_zero()).map(VmHose::id).collect()
        };
        (!self.hoses.is_empty()).then(|| Ties {
            out: of(|hose| hose.floor_out),
            in_: of(|hose| hose.floor_in),
            tenant_out: !self.floor_out.is_zero(),
            tenant_in: !self.floor_in.is_zero(),
        })
    }

    /// The floors out of all its hoses.
    pub fn floors_out(&self) -> weir_units::Rate {
        self.hoses.iter().fold(self.floor_out, |sum, hose| sum + hose.floor_out)
    }

    /// The floors in of all its hoses.
    pub fn floors_in(&self) -> weir_units::Rate {
        self.hoses.iter().fold(self.floor_in, |sum, hose| sum + hose.floor_in)
    }
}

/// All hoses of a scenario's VMs.
#[derive(Clone, Debug)]
pub struct Hoses {
    list: Vec<Hose>,
    /// (VM, shared hose) → its place in the list.
    further: BTreeMap<(usize, HoseId), usize>,
    ties: Vec<Option<Ties>>,
    tenants: Vec<usize>,
}

impl Hoses {
    /// Those of a scenario.
    pub fn of(scenario: &Scenario) -> Self {
        let own = |vm: &Vm| Hose { floor_out: vm.floor_out, floor_in: vm.floor_in };
        let mut list: Vec<Hose> = scenario.vms.iter().map(own).collect();
        let mut further = BTreeMap::new();
        for (number, vm) in scenario.vms.iter().enumerate() {
            for hose in &vm.hoses {
                further.insert((number, hose.id()), list.len());
                list.push(Hose { floor_out: hose.floor_out, floor_in: hose.floor_in });
            }
        }
        let ties = scenario.vms.iter().map(Vm::ties).collect();
        let tenants = scenario.vms.iter().map(|vm| vm.tenant).collect();
        Self { list, further, ties, tenants }
    }

    /// Each VM's hose toward its tenant, at the VM's index; then all further ones.
    pub fn list(&self) -> &[Hose] {
        &self.list
    }

    /// One hose of a VM; `None` if it has no such hose.
    pub fn get(&self, vm: usize, key: HoseKey) -> Option<Hose> {
        match key {
            HoseKey::Tenant => Some(self.list[vm]),
            HoseKey::Default => None,
            HoseKey::Further(id) => self.further.get(&(vm, id)).map(|place| self.list[*place]),
        }
    }

    /// The hose of the pair of two VMs.
    pub fn of_pair(&self, from: usize, to: usize) -> HoseKey {
        match self.tenants[from] == self.tenants[to] {
            true => shared(self.ties[from].as_ref(), self.ties[to].as_ref()),
            false => HoseKey::Default,
        }
    }

    /// The places in the list of the hoses that a pair uses, at its source and at its destination.
    /// `None`: no hose of a tenant covers it.
    pub fn places(&self, from: usize, to: usize) -> Option<(usize, usize)> {
        match self.of_pair(from, to) {
            HoseKey::Tenant => Some((from, to)),
            HoseKey::Default => None,
            HoseKey::Further(id) => Some((self.further[&(from, id)], self.further[&(to, id)])),
        }
    }
}
