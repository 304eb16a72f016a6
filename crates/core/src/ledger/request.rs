//! What callers ask of the ledger, and what it answers.

use super::topology::{Direction, LinkId, SwitchId};
use std::fmt;
use weir_units::{HostId, Rate, TenantId, VmId};

/// Two floors of one VM in one hose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Floors {
    /// Minimum rate to the other members.
    pub out: Rate,
    /// Minimum rate from the other members.
    pub into: Rate,
}

impl Floors {
    /// The same floor out and in.
    pub const fn both(rate: Rate) -> Self {
        Self { out: rate, into: rate }
    }
}

/// A VM's membership in a hose of its tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attachment {
    /// Number of the hose within the tenant. A hose joins all VMs that name it.
    pub hose: u16,
    /// The VM's floors in this hose.
    pub floors: Floors,
}

/// VMs that are alike. A tenant with one floor has one class; floors between components (TAG,
/// SIGCOMM 2014) are a class per component, and a hose per edge: senders have only a floor out,
/// receivers only a floor in. A host's own endpoint (storage, migration, control) is a VM of a class
/// without slots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Class {
    /// VM slots that each takes on its host.
    pub slots: u32,
    /// The hoses of each VM.
    pub hoses: Vec<Attachment>,
    /// Floors to and from everything outside the datacenter.
    pub external: Floors,
}

impl Class {
    /// One slot, and one hose (number 0) with the same floor in both directions.
    pub fn uniform(floor: Rate) -> Self {
        let hoses = vec![Attachment { hose: 0, floors: Floors::both(floor) }];
        Self { slots: 1, hoses, external: Floors::default() }
    }
}

/// A VM that a tenant wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmRequest {
    /// Its number, unique within the tenant.
    pub vm: VmId,
    /// Index into [`TenantRequest::classes`].
    pub class: u16,
    /// The host that somebody else chose; `None` lets the ledger choose, or keeps a VM where it is.
    pub host: Option<HostId>,
}

/// How much of a tenant must survive the loss of one host, and of one rack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Survival {
    /// Worst-case survival per host in 1/1000: a host has at most (1 − f)·N of the N VMs. 0 = any.
    pub host_permille: u16,
    /// The same per switch above hosts. 0 = any.
    pub rack_permille: u16,
}

/// A tenant as it shall be: the whole of it, for the first time and at every resize.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantRequest {
    /// The tenant.
    pub tenant: TenantId,
    /// Availability.
    pub survival: Survival,
    /// Kinds of VMs.
    pub classes: Vec<Class>,
    /// All VMs. May be empty.
    pub vms: Vec<VmRequest>,
}

impl TenantRequest {
    /// `vms` VMs with one floor, numbered from 0, anywhere.
    pub fn uniform(tenant: TenantId, vms: u32, floor: Rate) -> Self {
        let vm = |n| VmRequest { vm: VmId(n), class: 0, host: None };
        Self {
            tenant,
            survival: Survival::default(),
            classes: vec![Class::uniform(floor)],
            vms: (0..vms).map(vm).collect(),
        }
    }
}

/// Where a tenant's traffic is confined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Routing {
    /// All VMs are on one host, and nothing leaves it.
    Host(HostId),
    /// The tree below this switch.
    Tree {
        /// Its root.
        root: SwitchId,
        /// Which of the root's trees; 0 unless the topology has several per root.
        rank: u8,
    },
}

/// What a tenant has reserved on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// The link.
    pub link: LinkId,
    /// From `a` to `b`.
    pub forward: Rate,
    /// From `b` to `a`.
    pub backward: Rate,
}

/// Where a tenant is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Each VM's host, by VM.
    pub vms: Vec<(VmId, HostId)>,
    /// Its tree; `None` without VMs.
    pub routing: Option<Routing>,
    /// Reservations, by link; links without any are left out.
    pub links: Vec<Need>,
}

/// A link without room.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkFull {
    /// The link.
    pub link: LinkId,
    /// The direction.
    pub direction: Direction,
    /// What the tenant would need there.
    pub needed: Rate,
    /// What the others leave of what the link may promise.
    pub available: Rate,
    /// The others on this link, those with the largest reservation first, at most
    /// [`LinkFull::MOST`].
    pub in_the_way: Vec<(TenantId, Rate)>,
}

impl LinkFull {
    /// Most tenants that an answer names.
    pub const MOST: usize = 8;

    /// Bandwidth that is missing.
    pub fn missing(&self) -> Rate {
        self.needed.saturating_sub(self.available)
    }
}

/// Why the ledger says no. Nothing has changed then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The request is no request: says what is wrong with it.
    Invalid(Invalid),
    /// The tenant is not in the ledger.
    NoSuchTenant(TenantId),
    /// The tenant is already in the ledger: resize it instead.
    TenantExists(TenantId),
    /// The topology has no such host.
    NoSuchHost(HostId),
    /// The host takes no new VM.
    HostClosed(HostId),
    /// Slots are missing: on the host that was named, or in all places that were tried.
    Slots {
        /// The host that was named.
        host: Option<HostId>,
        /// Slots that are needed.
        needed: u64,
        /// Slots that are free.
        free: u64,
    },
    /// A link has too little room.
    Link(Box<LinkFull>),
    /// No distribution leaves enough of the tenant after a failure.
    Survival,
    /// No single tree joins these hosts (and a gateway, if there are floors to the outside).
    NoRoute,
}

/// What is wrong with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalid {
    /// A VM is listed twice.
    VmTwice(VmId),
    /// A VM names a class that the request does not have.
    NoSuchClass(VmId),
    /// A class names one hose twice.
    HoseTwice(u16),
    /// A share above 1000/1000.
    Survival,
    /// Floors sum to more than can be counted (2⁵⁶ bit/s).
    TooMuch,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(what) => match what {
                Invalid::VmTwice(vm) => write!(f, "{vm} is listed twice"),
                Invalid::NoSuchClass(vm) => write!(f, "{vm} names a class that does not exist"),
                Invalid::HoseTwice(hose) => write!(f, "a class names hose {hose} twice"),
                Invalid::Survival => f.write_str("survival is above 1000 permille"),
                Invalid::TooMuch => f.write_str("the floors sum to more than can be counted"),
            },
            Self::NoSuchTenant(tenant) => write!(f, "{tenant} does not exist"),
            Self::TenantExists(tenant) => write!(f, "{tenant} exists already"),
            Self::NoSuchHost(host) => write!(f, "{host} does not exist"),
            Self::HostClosed(host) => write!(f, "{host} takes no new VM"),
            Self::Slots { host: Some(host), needed, free } => {
                write!(f, "{host} has {free} free slots, and {needed} are needed")
            }
            Self::Slots { host: None, needed, free } => {
                write!(f, "{free} slots are free, and {needed} are needed")
            }
            Self::Link(full) => write!(
                f,
                "link {} has {} left of the {} that are needed: {} more",
                full.link.0,
                full.available,
                full.needed,
                full.missing()
            ),
            Self::Survival => f.write_str("no distribution leaves enough VMs after a failure"),
            Self::NoRoute => f.write_str("no tree joins these hosts"),
        }
    }
}

impl std::error::Error for Refusal {}
