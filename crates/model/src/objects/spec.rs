//! What is wanted of each kind of object.

use super::{Network, QueueWish, QueuesSpec};
use crate::text::{self, SpanText};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::net::SocketAddr;
use weir_units::{Rate, Span};

/// A rate in an object: text (`100Mbit`) outside, bit/s inside. It is written in its largest unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpecRate(pub Rate);

impl SpecRate {
    /// Whether it is nothing.
    pub const fn is_zero(&self) -> bool {
        self.0.is_zero()
    }
}

impl Serialize for SpecRate {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&text::show_rate(self.0))
    }
}

impl<'de> Deserialize<'de> for SpecRate {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(RateVisitor).map(Self)
    }
}

/// Reads text as a rate. A bare number is an error that says which unit is missing.
struct RateVisitor;

impl de::Visitor<'_> for RateVisitor {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string: a rate such as 450Mbit")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Rate, E> {
        text::rate(text).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Rate, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Rate, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Rate, E> {
        self.visit_str(&number.to_string())
    }
}

/// A hose: minimum rates out and in, to anyone of the tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Floors {
    /// Minimum rate out.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[0-9]+([.][0-9]+)? ?([kKMGT](bit|b/s)?|bit|b/s)$", example = "100Mbit"))]
    pub out: SpecRate,
    /// Minimum rate in.
    #[serde(default, rename = "in")]
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[0-9]+([.][0-9]+)? ?([kKMGT](bit|b/s)?|bit|b/s)$", example = "100Mbit"))]
    pub inward: SpecRate,
}

/// How the network is laid out. There is one object of this kind, with the name `default`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TopologySpec {
    /// How traffic between two hosts takes its way over the links. Default `tree`.
    #[serde(default)]
    pub routing: Routing,
    /// Percentage of each link that admission never promises. Default 10.
    #[serde(default = "ten")]
    #[cfg_attr(feature = "schema", schema(maximum = 90))]
    pub headroom_percent: u8,
    /// With the routing `paths`: trees of shortest paths per switch that a tenant may be confined to,
    /// from 1 to 16. More accept more tenants and take more memory. Default 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 16))]
    pub trees_per_switch: u8,
    /// Switches behind which everything outside lies. Default: all without a link upward; none with
    /// the routing `paths`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// Switches to be taken out of service: tenants keep what they have there, and new floors go
    /// elsewhere. It is as if all links of the switch were `draining`, and the hosts at it. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draining: Vec<String>,
    /// Steps of an exhaustive search where the strategy finds no place, about 5 ns each. Default 0:
    /// no such search.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schema(maximum = 10_000_000))]
    pub search_steps: u32,
    /// How tenants are bound to queues of switches. Default: they are not, and share one queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<QueuesSpec>,
}

const fn ten() -> u8 {
    10
}

const fn one() -> u8 {
    1
}

const fn one_member() -> u16 {
    1
}

// serde passes a reference.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_one(number: &u8) -> bool {
    *number == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_one_member(number: &u16) -> bool {
    *number == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for TopologySpec {
    fn default() -> Self {
        Self {
            routing: Routing::default(),
            headroom_percent: ten(),
            trees_per_switch: one(),
            gateways: Vec::new(),
            draining: Vec::new(),
            search_steps: 0,
            queues: None,
        }
    }
}

/// How traffic takes its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Routing {
    /// There is one way between any two hosts: a switch has one link upward at most.
    #[default]
    Tree,
    /// Links go up layer by layer, and a switch may have several upward (fat tree, leaf-spine). Each
    /// tenant is confined to the tree below one switch; `status.routing` of the tenant names it.
    Layers,
    /// Any graph. Each tenant is confined to a tree of shortest paths.
    Paths,
}

/// How a tenant's VMs are placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Strategy {
    /// QShare: of all trees of the lowest layer that fit, the one with the least cost of bandwidth
    /// and queues.
    #[default]
    Balanced,
    /// Oktopus: the first tree of the lowest layer that fits.
    Oktopus,
    /// The first tree in which hosts, filled in their order, hold the tenant.
    FirstFit,
}

/// What a host does with VMs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum HostState {
    /// It takes VMs.
    #[default]
    Active,
    /// It keeps its VMs and takes no new ones.
    Draining,
    /// It is gone. The room of its VMs is given back. A host that is only silent is not dead.
    Dead,
}

/// What a host's agent does with packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum HostMode {
    /// It enforces floors.
    Enforce,
    /// It counts, and says what it would do. It changes, delays or drops no packet.
    Observe,
    /// What its own `agent.toml` says.
    File,
}

/// A machine that runs VMs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HostSpec {
    /// Name of the switch to which its NIC leads.
    #[cfg_attr(feature = "schema", schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"))]
    pub switch: String,
    /// Rate of its NIC, in each direction.
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[0-9]+([.][0-9]+)? ?([kKMGT](bit|b/s)?|bit|b/s)$", example = "10Gbit"))]
    pub rate: SpecRate,
    /// Number of VMs that it has room for.
    pub slots: u32,
    /// Hose of the host itself: storage, migration, control. Default none.
    #[serde(default)]
    pub own: Floors,
    /// What it does with VMs. Default `active`.
    #[serde(default)]
    pub state: HostState,
    /// Whether its agent enforces floors, or only observes. Left out it stays as it was, for a new host `file`: floors
    /// do not end because a document does not name them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<HostMode>,
    /// Address and port at which the agents of other hosts reach its agent. Default: what its agent says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "192.0.2.1:7001"))]
    pub control: Option<SocketAddr>,
    /// Number by which agents know it: that of a directory from which it comes. It is unique among hosts
    /// and stays. Default: the controller gives it one. `status.number` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 2_147_483_647))]
    pub number: Option<u32>,
}

/// What a link carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum LinkState {
    /// It carries traffic.
    #[default]
    Up,
    /// It carries what is promised on it already, and takes no new floors: it is to be taken out of
    /// service. Tenants leave it where others have room.
    Draining,
    /// It carries nothing: it failed, or it is out of service.
    Down,
}

/// A cable between two switches. The NIC of a host is part of the host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LinkSpec {
    /// The switch at the lower end, toward the hosts.
    #[cfg_attr(feature = "schema", schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"))]
    pub lower: String,
    /// The switch at the upper end.
    #[cfg_attr(feature = "schema", schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"))]
    pub upper: String,
    /// Rate in each direction.
    #[cfg_attr(feature = "schema", schema(value_type = String, pattern = "^[0-9]+([.][0-9]+)? ?([kKMGT](bit|b/s)?|bit|b/s)$", example = "40Gbit"))]
    pub rate: SpecRate,
    /// What it carries. Default `up`.
    #[serde(default)]
    pub state: LinkState,
    /// Number of parallel cables of `rate` that traffic is spread over evenly, and that count as one
    /// link. Default 1.
    #[serde(default = "one_member", skip_serializing_if = "is_one_member")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1024))]
    pub members: u16,
}

/// Upper bounds of a tenant.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Quota {
    /// Number of VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vms: Option<u32>,
    /// Sum of the floors out of all VMs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "10Gbit"))]
    pub out: Option<SpecRate>,
    /// Sum of the floors in of all VMs.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "10Gbit"))]
    pub inward: Option<SpecRate>,
}

impl Quota {
    /// The first bound that a tenant with so many VMs and such sums of floors exceeds: the field, what it
    /// would have, and the bound.
    pub fn excess(
        &self,
        vms: u32,
        out: Rate,
        inward: Rate,
    ) -> Option<(&'static str, String, String)> {
        let rates = [("out", out, self.out), ("in", inward, self.inward)];
        let rate = |(field, rate, most): (&'static str, Rate, Option<SpecRate>)| {
            let most = most?.0;
            let direction = format!("floors {field} of {} in all", text::show_rate(rate));
            (rate > most).then(|| (field, direction, text::show_rate(most)))
        };
        match self.vms {
            Some(most) if vms > most => Some(("vms", format!("{vms} VMs"), most.to_string())),
            _ => rates.into_iter().find_map(rate),
        }
    }
}

/// Part of a tenant's VMs that survives any one failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Survival {
    /// Percentage of the VMs that is left when a host fails: with 50, a host has at most half of them.
    /// Default 0: no matter.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(maximum = 99))]
    pub host_percent: u8,
    /// The same when a switch above hosts fails. Default 0.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(maximum = 99))]
    pub rack_percent: u8,
}

/// A hose that only some VMs of a tenant are in: a floor between components.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Hose {
    /// Name of the hose within the tenant. It joins all VMs that name it.
    #[cfg_attr(feature = "schema", schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"))]
    pub name: String,
    /// Minimum rates to and from the others in the hose.
    #[serde(default)]
    pub floor: Floors,
}

/// VMs that are alike, which the controller makes, places and removes with their tenant.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Component {
    /// Name within the tenant. Its VMs are `TENANT-NAME-0`, `TENANT-NAME-1` and so on.
    #[cfg_attr(feature = "schema", schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"))]
    pub name: String,
    /// Number of VMs.
    #[cfg_attr(feature = "schema", schema(maximum = 10_000))]
    pub vms: u32,
    /// Hose of each VM toward all VMs of the tenant.
    #[serde(default, skip_serializing_if = "is_default")]
    pub floor: Floors,
    /// Further hoses of each VM. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub hoses: Vec<Hose>,
    /// Hose of each VM toward everything outside the cloud. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<Floors>,
}

/// The owner of VMs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantSpec {
    /// When the network shrinks, floors of tenants with a smaller number fall first. Default 100.
    #[serde(default = "hundred")]
    pub priority: u32,
    /// Upper bounds. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// How much of the tenant survives a failure. VMs that are applied one by one cannot survive the
    /// first one's host: apply them together, or name `components`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub survival: Survival,
    /// How VMs without a host are placed. Default `balanced`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub strategy: Strategy,
    /// Whether it has queues of its own on switches. Default `auto`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub queue: QueueWish,
    /// VMs that come, change and go with this object, all of them or none. At most 64 components and
    /// 10,000 VMs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 64))]
    pub components: Vec<Component>,
}

const fn hundred() -> u32 {
    100
}

impl Default for TenantSpec {
    fn default() -> Self {
        Self {
            priority: hundred(),
            quota: None,
            survival: Survival::default(),
            strategy: Strategy::default(),
            queue: QueueWish::default(),
            components: Vec::new(),
        }
    }
}

/// A VM with its hose.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct VmSpec {
    /// Name of its tenant. It cannot change.
    #[cfg_attr(feature = "schema", schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"))]
    pub tenant: String,
    /// Name of its host, if something else than the controller places VMs. Without it the controller
    /// chooses a host, and `status.host` says which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its hose toward VMs of its tenant.
    #[serde(default)]
    pub floor: Floors,
    /// Further hoses, each joining the VMs of the tenant that name it. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub hoses: Vec<Hose>,
    /// Its hose toward everything outside the cloud, beside `floor`. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<Floors>,
    /// The component of its tenant that it belongs to. The controller sets it, and makes, changes and
    /// removes such a VM with its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Maximum rate out. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "1Gbit"))]
    pub cap: Option<SpecRate>,
    /// How it is joined to the network. Agents need it, admission does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Number by which agents know it: that of a directory from which it comes. It is unique among VMs
    /// and stays. Default: the controller gives it one. `status.number` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 2_147_483_647))]
    pub number: Option<u32>,
}

/// One VM of a reservation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReservedVm {
    /// Name that the VM will have.
    #[cfg_attr(feature = "schema", schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"))]
    pub name: String,
    /// Name of its host.
    #[cfg_attr(feature = "schema", schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"))]
    pub host: String,
    /// Its hose toward VMs of its tenant.
    #[serde(default)]
    pub floor: Floors,
    /// Further hoses, each joining the VMs of the tenant that name it. At most 16.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 16))]
    pub hoses: Vec<Hose>,
    /// Its hose toward everything outside the cloud. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<Floors>,
    /// How it will be joined to the network. Default: as it is, if the VM exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
}

/// Room for VMs whose places something else has chosen. It cannot change: release it and make another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReservationSpec {
    /// Name of the tenant.
    #[cfg_attr(feature = "schema", schema(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"))]
    pub tenant: String,
    /// The VMs, all or none. At least one, at most 1000.
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 1000))]
    pub vms: Vec<ReservedVm>,
    /// How long the room is held without a confirmation, from 1 s to 1 h. Default `60s`.
    #[serde(default = "minute")]
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "60s"))]
    pub hold_for: SpanText,
}

const fn minute() -> SpanText {
    SpanText(Span::from_secs(60))
}
