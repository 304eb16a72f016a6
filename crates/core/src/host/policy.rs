//! What a host is told by its owner: a file, later a controller. Values only.

use super::hoses::Ties;
use super::tags::Tag;
use crate::mechanism::Law;
use crate::vcc::BudgetConfig;
use serde::{Deserialize, Serialize};
use weir_units::{HoseId, HostId, Rate, SortedMap, SortedSet, TenantId, VmId};

/// Everything that a host is told, and nothing more: no traffic matrix, no topology.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Policy {
    /// Which host this is.
    pub host: HostId,
    /// The uplink's line rate, each way: no pair's rate is ever above it.
    pub line: Rate,
    /// The fastest such link of the fleet: no receiver can mean a higher rate.
    pub fastest_line: Rate,
    /// The mechanism and its constants.
    pub law: Law,
    /// What the host's data plane can do.
    pub can: Capabilities,
    /// The version of each tenant's part of this policy. A policy in which one is older than what is in force is
    /// refused. A tenant that is not listed has version 0.
    pub tenants: SortedMap<TenantId, Version>,
    /// The tags of tenants' packets, each at its tenant's version. A tenant that is not listed is in the shared queue.
    pub tags: SortedMap<TenantId, Tag>,
    /// Tenants with a queue of their own on all switches, whose VMs nothing but this host's uplink limits when they
    /// send to each other, each at its tenant's version. All others have what the mechanism gives them.
    pub free: SortedSet<TenantId>,
    /// The hoses of this host's VMs toward all VMs of their tenants.
    pub hoses: SortedMap<VmId, Hose>,
    /// The further hoses of this host's VMs, where a VM has any.
    pub further: SortedMap<VmId, SortedMap<HoseId, Hose>>,
    /// The hoses in which VMs of the fleet send and receive, where a VM has further ones.
    pub ties: SortedMap<VmId, Ties>,
    /// Budgets of the windows of VMs' connections, where a VM of this host has one.
    pub windows: SortedMap<VmId, BudgetConfig>,
    /// All VMs of the fleet.
    pub directory: SortedMap<VmId, Location>,
}

impl Policy {
    /// A policy without VMs, on a data plane that only counts and limits.
    pub fn new(host: HostId, line: Rate, law: Law) -> Self {
        Self {
            host,
            line,
            fastest_line: line,
            law,
            can: Capabilities::default(),
            tenants: SortedMap::new(),
            tags: SortedMap::new(),
            free: SortedSet::new(),
            hoses: SortedMap::new(),
            further: SortedMap::new(),
            ties: SortedMap::new(),
            windows: SortedMap::new(),
            directory: SortedMap::new(),
        }
    }

    /// The same with these VMs on the host.
    pub fn with_vms(mut self, vms: impl IntoIterator<Item = (VmId, Hose)>) -> Self {
        self.hoses = vms.into_iter().collect();
        self
    }

    /// The same with this directory.
    pub fn with_directory(mut self, all: impl IntoIterator<Item = (VmId, Location)>) -> Self {
        self.directory = all.into_iter().collect();
        self
    }

    /// This host's VMs and their hoses toward their tenants, in the order of their ids.
    pub fn vms(&self) -> impl Iterator<Item = (VmId, &Hose)> + '_ {
        self.hoses.iter().map(|(vm, hose)| (*vm, hose))
    }

    /// The hose of a VM of this host toward all VMs of its tenant.
    pub fn hose(&self, vm: VmId) -> Option<&Hose> {
        self.hoses.get(&vm)
    }

    /// Whether a VM is on this host.
    pub fn is_here(&self, vm: VmId) -> bool {
        self.hoses.contains_key(&vm)
    }

    /// What VMs here are promised, out or in, to or from VMs elsewhere: what may cross the uplink.
    pub fn promised_elsewhere(&self, out: bool) -> Rate {
        self.law.promised_elsewhere(self, out)
    }

    /// Removes VMs from the host.
    pub fn retain_vms(&mut self, stays: impl Fn(VmId) -> bool) {
        self.hoses.retain(|vm, _| stays(*vm));
        self.further.retain(|vm, _| stays(*vm));
        self.windows.retain(|vm, _| stays(*vm));
    }
}

/// The version of a tenant's part of a policy. Grows with every change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Version(pub u64);

/// What a hose promises, and the most it allows, in each direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hose {
    /// What the VM sends.
    pub out: Bounds,
    /// What the VM receives.
    pub in_: Bounds,
}

impl Hose {
    /// Minimum rates out and in, no maximum.
    pub const fn of(out: Rate, in_: Rate) -> Self {
        Self { out: Bounds::at_least(out), in_: Bounds::at_least(in_) }
    }

    /// The same minimum in both directions, no maximum.
    pub const fn both(floor: Rate) -> Self {
        Self::of(floor, floor)
    }
}

/// The minimum and the maximum bandwidth of one VM in one direction (EyeQ §1, "The EyeQ model").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bounds {
    /// The minimum, and the weight. With EyeQ zero means best effort: the low-priority class.
    pub floor: Rate,
    /// The maximum. [`Rate::MAX`]: none but the link.
    pub most: Rate,
}

impl Bounds {
    /// A minimum and no maximum.
    pub const fn at_least(floor: Rate) -> Self {
        Self { floor, most: Rate::MAX }
    }

    /// Neither: whatever others leave.
    pub const BEST_EFFORT: Self = Self::at_least(Rate::ZERO);

    /// The class that the bounds put a VM in.
    pub const fn class(self) -> Class {
        if self.floor.is_zero() { Class::BestEffort } else { Class::Guaranteed }
    }
}

/// The class of a VM's packets in the network (EyeQ §3.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Class {
    /// The VM has a floor.
    Guaranteed,
    /// The VM has none: its packets are to be marked for the low-priority queue.
    BestEffort,
}

/// Where a VM is, and of which tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Location {
    /// VMs of one tenant share a hose.
    pub tenant: TenantId,
    /// The host whose agent is asked about it.
    pub host: HostId,
}

/// What a data plane does by itself, and what it can be told. Data, not another mechanism. By default
/// it counts pairs and limits pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Capabilities {
    /// It meters each receiving VM, computes EyeQ's rate and tells senders: the machine reads meters
    /// and limits ([`super::Observed`]), and orders only what each VM may receive.
    pub meters: bool,
    /// It applies limits in the moment they arrive (departure times), not when the agent writes them.
    pub limiter: bool,
    /// Paths to another host that it can tell apart.
    pub paths: usize,
    /// It writes departure times into packets and keeps the least delayed of each window
    /// ([`super::Observed::timed`]).
    pub timed: bool,
    /// It tells switches which packets are within their pair's floor, and these serve them first.
    pub colours: bool,
}

impl Default for Capabilities {
    /// It counts pairs and limits pairs.
    fn default() -> Self {
        Self { meters: false, limiter: false, paths: 1, timed: false, colours: false }
    }
}
