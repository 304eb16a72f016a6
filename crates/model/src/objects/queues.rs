//! Tenants' queues on switches, as objects have them.
//!
//! Promises  A switch that was read names each port and each queue once, and has a queue at least.
//! Not here  What queues are for: `docs/algorithms/qshare.md`. Whether the ports are there: the controller
//!           finds that out.

use super::FieldError;
use crate::text::{SpanText, show_span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use weir_units::Span;

/// Shortest control interval. A shorter one would write to a switch that still does the last change.
const INTERVAL_LEAST: Span = Span::from_secs(1);
/// The same where no switch is written to. Shorter: agents would tell their use more often than they read
/// it.
const INTERVAL_LEAST_STATIC: Span = Span::from_millis(100);
/// Longest control interval.
const INTERVAL_MOST: Span = Span::from_secs(600);
/// Most ports of a switch.
const PORTS_MOST: usize = 1024;
/// Most queues of a port, and the largest weight of one.
const QUEUES_MOST: u8 = 16;
const WEIGHT_MOST: u16 = 100;
/// The largest code point, and the most classes.
const CODE_POINT_MOST: u8 = 63;
const CLASS_MOST: u8 = 15;

/// How tenants are bound to queues of switches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct QueuesSpec {
    /// Code points (DSCP) that tenants may have, from 1 to 63: those of `code_points` in all hosts'
    /// `agent.toml`.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<u8>, min_items = 1, max_items = 63, example = json!([10, 12, 14])))]
    pub code_points: Vec<u8>,
    /// Who configures queues. Default `managed`.
    #[serde(default)]
    pub mode: QueueMode,
    /// How often tenants are bound, from 1 s to 10 min; with the mode `static` from 100 ms. Switches are
    /// read as often, but no more often than every 4 s with the mode `static`. Default `4s`.
    #[serde(default = "four_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "4s"))]
    pub interval: SpanText,
    /// With the mode `static`: weight of the shared queues; all others weigh 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 100))]
    pub shared_weight: Option<u16>,
    /// Whether the network itself keeps each tenant's traffic on the tree that `status.routing` of the
    /// Tenant names. With several ways between hosts tenants are bound only if it does. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confined: bool,
}

const fn four_seconds() -> SpanText {
    SpanText(Span::from_secs(4))
}

/// Who configures the switches' queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum QueueMode {
    /// The controller does, in each interval.
    #[default]
    Managed,
    /// An operator did, once. The controller reads, compares, and never writes.
    Static,
}

/// What an operator wants for a tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum QueueWish {
    /// It has a queue of its own if it uses its floors more than others do.
    #[default]
    Auto,
    /// It has one before all others, and keeps it.
    Pinned,
    /// It never has one.
    Excluded,
}

/// How a switch is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum SwitchDriver {
    /// A network namespace of the machine on which the controller runs.
    LinuxTc,
    /// SONiC, by the redis of its CONFIG_DB.
    Sonic,
}

impl SwitchDriver {
    /// As objects name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LinuxTc => "linux-tc",
            Self::Sonic => "sonic",
        }
    }
}

/// A port of a switch, and the cable at it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SwitchPort {
    /// Its name on the switch.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 64, example = "Ethernet0"))]
    pub name: String,
    /// Name of the Host to which it leads, or else `link`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Name of the Link of which it is an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// A switch with queues for tenants. Its name is the one that Hosts and Links have for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SwitchSpec {
    /// How it is spoken to.
    pub driver: SwitchDriver,
    /// Where it is: `redis://192.0.2.7:6379` of a SONiC switch; of `linux-tc` the path of a network
    /// namespace, default the controller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(example = "redis://192.0.2.7:6379"))]
    pub address: Option<String>,
    /// Its ports, as far as tenants' traffic leaves by them. Others stay as they are.
    #[cfg_attr(feature = "schema", schema(min_items = 1, max_items = 1024))]
    pub ports: Vec<SwitchPort>,
    /// Number of queues of each port, from 1 to 16. Default 8.
    #[serde(default = "eight")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 16))]
    pub queues: u8,
    /// Queues that tenants may have; the least is the shared one. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<u8>, example = json!([0, 1, 2, 5])))]
    pub free: Vec<u8>,
    /// Traffic classes that tenants may have, of a SONiC switch; the least is that of shared queues.
    /// Default: those with the numbers of `free`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<u8>))]
    pub classes: Vec<u8>,
    /// Code points of others, which no tenant has in the whole network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<u8>, example = json!([46, 48])))]
    pub reserved_code_points: Vec<u8>,
    /// Its largest weight, from 1 to 100. Default 15 of `linux-tc`, 100 of `sonic`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 100))]
    pub most_weight: Option<u16>,
}

const fn eight() -> u8 {
    8
}

impl SwitchSpec {
    /// Queues that tenants may have, ascending.
    pub fn free_queues(&self) -> BTreeSet<u8> {
        match self.free.is_empty() {
            true => (0..self.queues).collect(),
            false => self.free.iter().copied().collect(),
        }
    }

    /// Classes that tenants may have; none where ports lead code points to queues by themselves.
    pub fn tenant_classes(&self) -> Option<BTreeSet<u8>> {
        match (self.driver, self.classes.is_empty()) {
            (SwitchDriver::LinuxTc, _) => None,
            (SwitchDriver::Sonic, true) => Some(self.free_queues()),
            (SwitchDriver::Sonic, false) => Some(self.classes.iter().copied().collect()),
        }
    }
}

/// What hosts are told of a tenant's queue, and may still have in force. Only the controller writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantQueue {
    /// The code point that some of its hosts may tag with; 0: none of them does.
    #[serde(default)]
    pub code_point: u8,
    /// The code point that its hosts are to tag with; 0 is the shared queue's.
    #[serde(default)]
    pub tag: u8,
    /// Whether its VMs may send as much as they like to each other.
    #[serde(default)]
    pub free: bool,
    /// Version of this order.
    #[serde(default)]
    pub version: u64,
}

type Checked = Result<(), FieldError>;

/// Numbers that stand once each, within bounds.
fn check_numbers(field: &str, numbers: &[u8], least: u8, most: u8) -> Checked {
    let mut seen = BTreeSet::new();
    for (n, number) in numbers.iter().enumerate() {
        let at = format!("spec.{field}[{n}]");
        if !(least..=most).contains(number) {
            return Err(FieldError::new(at, format!("{number}: write {least} to {most}")));
        }
        if !seen.insert(number) {
            return Err(FieldError::new(at, format!("{number} is listed twice")));
        }
    }
    Ok(())
}

fn within<T: PartialOrd + fmt::Display>(field: &str, value: &T, least: &T, most: &T) -> Checked {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(FieldError::new(format!("spec.{field}"), format!("{value}: write {least} to {most}")))
}

pub(super) fn check_queues(queues: &QueuesSpec) -> Checked {
    if queues.code_points.is_empty() {
        let reason = "none are named: write those of `code_points` in the hosts' agent.toml";
        return Err(FieldError::new("spec.queues.codePoints", reason));
    }
    check_numbers("queues.codePoints", &queues.code_points, 1, CODE_POINT_MOST)?;
    let interval = queues.interval.0;
    let least = match queues.mode {
        QueueMode::Managed => INTERVAL_LEAST,
        QueueMode::Static => INTERVAL_LEAST_STATIC,
    };
    if interval < least || interval > INTERVAL_MOST {
        let mode = match queues.mode {
            QueueMode::Managed => "managed",
            QueueMode::Static => "static",
        };
        let (least, most) = (show_span(least), show_span(INTERVAL_MOST));
        let reason =
            format!("{} is not between {least} and {most} (mode `{mode}`)", show_span(interval));
        return Err(FieldError::new("spec.queues.interval", reason));
    }
    match (queues.mode, queues.shared_weight) {
        (QueueMode::Static, None) => {
            let reason = "the mode `static` needs it: write the weight of the shared queues; all others \
                          weigh 1";
            Err(FieldError::new("spec.queues.sharedWeight", reason))
        }
        (QueueMode::Managed, Some(_)) => {
            let reason =
                "the controller chooses weights itself: leave it out, or write `mode: static`";
            Err(FieldError::new("spec.queues.sharedWeight", reason))
        }
        (_, Some(weight)) => within("queues.sharedWeight", &weight, &1, &WEIGHT_MOST),
        (QueueMode::Managed, None) => Ok(()),
    }
}

pub(super) fn check_switch(spec: &SwitchSpec, name: impl Fn(&str, &str) -> Checked) -> Checked {
    within("queues", &spec.queues, &1, &QUEUES_MOST)?;
    check_numbers("free", &spec.free, 0, spec.queues - 1)?;
    check_numbers("classes", &spec.classes, 0, CLASS_MOST)?;
    check_numbers("reservedCodePoints", &spec.reserved_code_points, 0, CODE_POINT_MOST)?;
    if let Some(weight) = spec.most_weight {
        within("mostWeight", &weight, &1, &WEIGHT_MOST)?;
    }
    match (spec.driver, spec.address.as_deref()) {
        (SwitchDriver::Sonic, None) => {
            let reason = "missing field `address`: write redis://HOST:PORT of its CONFIG_DB";
            return Err(FieldError::new("spec.address", reason));
        }
        (SwitchDriver::Sonic, Some(at))
            if !at.starts_with("redis://") && !at.starts_with("unix://") =>
        {
            let reason = format!("`{at}`: write redis://HOST:PORT of its CONFIG_DB");
            return Err(FieldError::new("spec.address", reason));
        }
        (SwitchDriver::LinuxTc, Some(at)) if !at.starts_with('/') => {
            let reason = format!("`{at}`: write the path of a namespace, as /run/netns/leaf1");
            return Err(FieldError::new("spec.address", reason));
        }
        _ => {}
    }
    if spec.ports.is_empty() || spec.ports.len() > PORTS_MOST {
        let reason = format!("{} ports: a switch has 1 to {PORTS_MOST}", spec.ports.len());
        return Err(FieldError::new("spec.ports", reason));
    }
    let (mut names, mut ends) = (BTreeSet::new(), BTreeSet::new());
    for (n, port) in spec.ports.iter().enumerate() {
        let at = |field: &str| format!("spec.ports[{n}].{field}");
        if port.name.is_empty() || port.name.len() > 64 || port.name.contains(char::is_whitespace) {
            let reason = format!("`{}` is no name of a port", port.name);
            return Err(FieldError::new(at("name"), reason));
        }
        if !names.insert(&port.name) {
            return Err(FieldError::new(at("name"), format!("`{}` is listed twice", port.name)));
        }
        let (field, end) = match (&port.host, &port.link) {
            (Some(host), None) => ("host", host),
            (None, Some(link)) => ("link", link),
            (None, None) => {
                let reason = "it leads nowhere: write `host` or `link`";
                return Err(FieldError::new(at("host"), reason));
            }
            (Some(_), Some(_)) => {
                let reason = "it leads to a host already: leave out `host` or `link`";
                return Err(FieldError::new(at("link"), reason));
            }
        };
        name(&at(field), end)?;
        if !ends.insert((field, end)) {
            let reason =
                format!("another port leads to {field} `{end}`: several cables have no queues");
            return Err(FieldError::new(at(field), reason));
        }
    }
    Ok(())
}
