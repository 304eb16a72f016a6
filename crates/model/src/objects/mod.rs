//! Objects that people declare and the controller keeps: tenants, VMs, hosts, links, switches,
//! the topology, reservations.
//!
//! Problem   A file, a request, a stored record and an answer must not be four schemas of one thing.
//! Approach  One type for all: `apiVersion`, `kind`, `metadata`, `spec` (what is wanted) and `status`
//!           (what is so), as the Kubernetes API conventions have them. `status.conditions` name the
//!           reason; `metadata.generation` and `status.observedGeneration` say which wish was seen.
//! Promises  An object that was read has a valid name and a spec of its kind. A mistake names the field
//!           and the reason. What is written is read back to the same value.
//! Not here  Whether an object fits: see `weir-controller`.

mod network;
mod queues;
mod read;
mod spec;

pub use network::{Budget, BudgetClass, Network};
pub use queues::{
    QueueMode, QueueWish, QueuesSpec, SwitchDriver, SwitchPort, SwitchSpec, TenantQueue,
};
pub use read::{FieldError, Wish, read, read_spec};
pub use spec::{
    Component, Floors, Hose, HostMode, HostSpec, HostState, LinkSpec, LinkState, Quota,
    ReservationSpec, ReservedVm, Routing, SpecRate, Strategy, Survival, TenantSpec, TopologySpec,
    VmSpec,
};

use crate::moment::Moment;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// `apiVersion` of all objects.
pub const API_VERSION: &str = "weir/v1";

/// The only name that a topology may have.
pub const TOPOLOGY: &str = "default";

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Kind {
    /// How links are laid out, and what admission keeps free of them.
    Topology,
    /// A machine that runs VMs, with its NIC.
    Host,
    /// A cable between two nodes of the network.
    Link,
    /// A switch with queues for tenants.
    Switch,
    /// The owner of VMs, with its quota and its priority.
    Tenant,
    /// A VM with its hose.
    #[serde(rename = "VM")]
    Vm,
    /// Room for VMs on given hosts, held for a limited time.
    Reservation,
}

impl Kind {
    /// All kinds, those first on which others depend.
    pub const ALL: [Self; 7] = [
        Self::Topology,
        Self::Host,
        Self::Link,
        Self::Switch,
        Self::Tenant,
        Self::Vm,
        Self::Reservation,
    ];

    /// The kind as objects name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Topology => "Topology",
            Self::Host => "Host",
            Self::Link => "Link",
            Self::Switch => "Switch",
            Self::Tenant => "Tenant",
            Self::Vm => "VM",
            Self::Reservation => "Reservation",
        }
    }

    /// The kind as paths of the API name it.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Topology => "topologies",
            Self::Host => "hosts",
            Self::Link => "links",
            Self::Switch => "switches",
            Self::Tenant => "tenants",
            Self::Vm => "vms",
            Self::Reservation => "reservations",
        }
    }

    /// The kind that people mean: `VM`, `vm` or `vms`.
    pub fn named(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|kind| text == kind.plural() || text == kind.name().to_ascii_lowercase())
    }

    /// All names, for messages.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What all objects have.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Metadata {
    /// Unique among the objects of its kind: letters, digits, `-`, `_` and `.`, at most 253 of them, a
    /// letter or digit first.
    #[cfg_attr(feature = "schema", schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"))]
    pub name: String,
    /// Words of the owner, which the controller keeps and does not read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Counts the changes of `spec`. The controller sets it.
    #[serde(default)]
    pub generation: u64,
    /// Version of the object: it changes with every change. In a request it is the version that the
    /// sender has seen; the controller refuses the request if there is a newer one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// When the object was made. The controller sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub creation_timestamp: Option<Moment>,
}

/// What is wanted of an object.
#[derive(Clone, PartialEq, Debug)]
pub enum Spec {
    /// Of a [`Kind::Topology`].
    Topology(TopologySpec),
    /// Of a [`Kind::Host`].
    Host(HostSpec),
    /// Of a [`Kind::Link`].
    Link(LinkSpec),
    /// Of a [`Kind::Switch`].
    Switch(SwitchSpec),
    /// Of a [`Kind::Tenant`].
    Tenant(TenantSpec),
    /// Of a [`Kind::Vm`].
    Vm(VmSpec),
    /// Of a [`Kind::Reservation`].
    Reservation(ReservationSpec),
}

impl Spec {
    /// The kind of object that has this spec.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Topology(_) => Kind::Topology,
            Self::Host(_) => Kind::Host,
            Self::Link(_) => Kind::Link,
            Self::Switch(_) => Kind::Switch,
            Self::Tenant(_) => Kind::Tenant,
            Self::Vm(_) => Kind::Vm,
            Self::Reservation(_) => Kind::Reservation,
        }
    }

    /// The tenant to whom the object belongs. `None` for what only operators own; a tenant's own
    /// object belongs to the tenant, but its spec does not say so.
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Self::Vm(vm) => Some(&vm.tenant),
            Self::Reservation(reservation) => Some(&reservation.tenant),
            _ => None,
        }
    }
}

impl Serialize for Spec {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Topology(spec) => spec.serialize(s),
            Self::Host(spec) => spec.serialize(s),
            Self::Link(spec) => spec.serialize(s),
            Self::Switch(spec) => spec.serialize(s),
            Self::Tenant(spec) => spec.serialize(s),
            Self::Vm(spec) => spec.serialize(s),
            Self::Reservation(spec) => spec.serialize(s),
        }
    }
}

/// Whether a condition holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Truth {
    /// It holds.
    True,
    /// It does not; the reason and the message say why.
    False,
    /// The controller does not know yet.
    Unknown,
}

/// One fact about an object, with its reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Condition {
    /// Name of the fact, unique in the object: `Admitted`, `Ready`, `Confirmed`.
    #[serde(rename = "type")]
    pub name: String,
    /// Whether it holds.
    pub status: Truth,
    /// One word for programs: `Fits`, `LinkFull`, `HostDead`.
    pub reason: String,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When `status` changed last.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub last_transition_time: Moment,
}

/// State of a reservation. All changes are one way: held → confirmed, released, expired or failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Phase {
    /// The room is kept until `expiresAt`.
    Held,
    /// The VMs of the reservation exist as objects and own the room.
    Confirmed,
    /// The room was given back on request.
    Released,
    /// Nobody confirmed in time; the room was given back.
    Expired,
    /// A host of the reservation died or a link shrank; the room was given back.
    Failed,
}

/// The tree that a tenant's traffic is confined to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TreeName {
    /// The switch at its root.
    pub root: String,
    /// Which of the root's trees; 0 unless the topology has `treesPerSwitch`.
    #[serde(default)]
    pub rank: u8,
}

/// What is so, as the controller sees it. Only the controller writes it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Status {
    /// The generation of `spec` that the rest of the status is about.
    #[serde(default)]
    pub observed_generation: u64,
    /// Host of a VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Tree of a tenant. None while all its VMs are on one host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing: Option<TreeName>,
    /// Queue of a tenant, once it had one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<TenantQueue>,
    /// State of a reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// When a held reservation ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub expires_at: Option<Moment>,
    /// Number by which agents know a host or a VM. It stays with the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// Agent of a host, once it has joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentStatus>,
    /// Facts with their reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The agent of a host, as the controller knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AgentStatus {
    /// Version of the objects at which the host joined. Certificates of an earlier one are refused. 0: it
    /// was revoked, and all are.
    pub enrolment: u64,
    /// Version of its program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
    /// Address and port at which it listens for other agents, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "192.0.2.1:7001"))]
    pub control: Option<std::net::SocketAddr>,
}

impl Status {
    /// The condition with this name.
    pub fn condition(&self, name: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.name == name)
    }

    /// Sets a condition. The time of its last transition changes only with `status`.
    pub fn set(&mut self, mut new: Condition) {
        match self.conditions.iter_mut().find(|old| old.name == new.name) {
            Some(old) => {
                if old.status == new.status {
                    new.last_transition_time = old.last_transition_time;
                }
                *old = new;
            }
            None => self.conditions.push(new),
        }
    }
}

/// One object.
#[derive(Clone, PartialEq, Debug)]
pub struct Object {
    /// Name, labels and versions.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: Spec,
    /// What is so.
    pub status: Status,
}

impl Object {
    /// Its kind.
    pub const fn kind(&self) -> Kind {
        self.spec.kind()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Tenant to whom it belongs: a tenant's own object belongs to the tenant.
    pub fn owner(&self) -> Option<&str> {
        match self.spec {
            Spec::Tenant(_) => Some(&self.metadata.name),
            _ => self.spec.tenant(),
        }
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut fields = s.serialize_struct("Object", 5)?;
        fields.serialize_field("apiVersion", API_VERSION)?;
        fields.serialize_field("kind", &self.kind())?;
        fields.serialize_field("metadata", &self.metadata)?;
        fields.serialize_field("spec", &self.spec)?;
        fields.serialize_field("status", &self.status)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests;
