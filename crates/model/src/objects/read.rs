//! From a document to an object, with the field and the reason of what is wrong.

use super::queues::{check_queues, check_switch};
use super::{API_VERSION, Kind, Metadata, Object, Spec, Status, TOPOLOGY};
use crate::text::{show_rate, show_span};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;
use weir_units::{Rate, Span};

/// Longest name.
const NAME_MOST: usize = 253;
/// Most labels of an object, and the longest key or value of one.
const LABELS_MOST: usize = 64;
const LABEL_MOST: usize = 253;
/// The most VMs of one reservation: they are admitted in one step.
const RESERVED_MOST: usize = 1000;
/// No link is faster, bit/s. Larger numbers are mistakes, and sums of them would not fit.
const RATE_MOST: Rate = Rate::from_mbps(100_000_000);
const HOLD_LEAST: Span = Span::from_secs(1);
const HOLD_MOST: Span = Span::from_secs(3600);
/// Most hoses of a VM beside its floor: admission sums each of them on every link of the tenant.
const HOSES_MOST: usize = 16;
/// Most components of a tenant, and most VMs of them all: they are placed in one step.
const COMPONENTS_MOST: usize = 64;
const COMPONENT_VMS_MOST: u64 = 10_000;
/// The largest number that may be asked for, of a host or a VM. Those that the controller gives begin
/// behind the largest that there was, so as many are left.
const NUMBER_MOST: u32 = i32::MAX.unsigned_abs();
/// Most trees per switch.
const TREES_MOST: u8 = 16;
/// Most switches that a list of a topology names.
const SWITCHES_MOST: usize = 1024;
/// Most cables of a link.
const MEMBERS_MOST: u16 = 1024;
/// Most steps of a search: about 50 ms, for which every other request waits.
const STEPS_MOST: u32 = 10_000_000;
/// A failure that leaves all VMs would ask for none on any host.
const SURVIVAL_MOST: u8 = 99;

/// What is wrong with a document, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldError {
    /// Path of the field: `spec.floor.out`. `.` is the whole document.
    pub field: String,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl FieldError {
    /// An error at `field`.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl std::error::Error for FieldError {}

/// What a person or a program asks for. A status in the document is read past: only the controller
/// writes it, and what `weir get` prints may be applied as it is.
#[derive(Clone, PartialEq, Debug)]
pub struct Wish {
    /// Name and labels, and the version that was seen.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: Spec,
}

/// Reads what a person or a program asks for.
///
/// # Errors
///
/// The first mistake.
pub fn read(document: Value) -> Result<Wish, FieldError> {
    let (kind, metadata, spec, _) = take_apart(document)?;
    let spec = read_spec(kind, spec)?;
    if kind == Kind::Topology && metadata.name != TOPOLOGY {
        let reason = format!("`{}`: the only topology has the name `{TOPOLOGY}`", metadata.name);
        return Err(FieldError::new("metadata.name", reason));
    }
    Ok(Wish { metadata, spec })
}

impl Object {
    /// Reads an object that a controller wrote, with its status.
    ///
    /// # Errors
    ///
    /// The first mistake.
    pub fn read(document: Value) -> Result<Self, FieldError> {
        let (kind, metadata, spec, status) = take_apart(document)?;
        let spec = read_spec(kind, spec)?;
        let status: Status = typed("status", status.unwrap_or_else(|| Value::Object(Map::new())))?;
        Ok(Self { metadata, spec, status })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    kind: String,
    metadata: Value,
    #[serde(default)]
    spec: Option<Value>,
    #[serde(default)]
    status: Option<Value>,
}

fn take_apart(document: Value) -> Result<(Kind, Metadata, Value, Option<Value>), FieldError> {
    let document: Document = typed("", document)?;
    if document.api_version != API_VERSION {
        let reason = format!("`{}` is not known: write {API_VERSION}", document.api_version);
        return Err(FieldError::new("apiVersion", reason));
    }
    let kind =
        Kind::ALL.into_iter().find(|kind| kind.name() == document.kind).ok_or_else(|| {
            let reason = format!("`{}` is no kind: write one of {}", document.kind, Kind::names());
            FieldError::new("kind", reason)
        })?;
    let metadata: Metadata = typed("metadata", document.metadata)?;
    check_metadata(&metadata)?;
    // A spec of defaults alone may be left out.
    let spec = document.spec.unwrap_or_else(|| Value::Object(Map::new()));
    Ok((kind, metadata, spec, document.status))
}

fn check_metadata(metadata: &Metadata) -> Result<(), FieldError> {
    check_name("metadata.name", &metadata.name)?;
    if metadata.labels.len() > LABELS_MOST {
        let reason = format!("{} labels: at most {LABELS_MOST}", metadata.labels.len());
        return Err(FieldError::new("metadata.labels", reason));
    }
    for (key, value) in &metadata.labels {
        if key.is_empty() || key.len() > LABEL_MOST || value.len() > LABEL_MOST {
            let reason = format!("a key or value is empty or longer than {LABEL_MOST} octets");
            return Err(FieldError::new("metadata.labels", reason));
        }
    }
    Ok(())
}

/// Whether `name` may name an object: it stands in paths, tables and logs as it is.
fn check_name(field: &str, name: &str) -> Result<(), FieldError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fine = name.len() <= NAME_MOST
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(allowed);
    if fine {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    let reason = format!(
        "`{shown}` is not a name: write letters, digits, `-`, `_` and `.`, at most {NAME_MOST}, a \
         letter or digit first"
    );
    Err(FieldError::new(field, reason))
}

/// Reads and checks the spec of an object of this kind.
///
/// # Errors
///
/// The first mistake.
pub fn read_spec(kind: Kind, value: Value) -> Result<Spec, FieldError> {
    let spec = match kind {
        Kind::Topology => Spec::Topology(typed("spec", value)?),
        Kind::Host => Spec::Host(typed("spec", value)?),
        Kind::Link => Spec::Link(typed("spec", value)?),
        Kind::Switch => Spec::Switch(typed("spec", value)?),
        Kind::Tenant => Spec::Tenant(typed("spec", value)?),
        Kind::Vm => Spec::Vm(typed("spec", value)?),
        Kind::Reservation => Spec::Reservation(typed("spec", value)?),
    };
    check_spec(&spec)?;
    Ok(spec)
}

fn check_spec(spec: &Spec) -> Result<(), FieldError> {
    match spec {
        Spec::Topology(spec) => check_topology(spec),
        Spec::Host(spec) => {
            check_name("spec.switch", &spec.switch)?;
            check_capacity("spec.rate", spec.rate.0)?;
            check_floors("spec.own", &spec.own)?;
            check_number(spec.number)
        }
        Spec::Link(spec) => {
            check_name("spec.lower", &spec.lower)?;
            check_name("spec.upper", &spec.upper)?;
            if spec.lower == spec.upper {
                let reason = format!("`{}` is at both ends of the link", spec.upper);
                return Err(FieldError::new("spec.upper", reason));
            }
            if spec.members == 0 || spec.members > MEMBERS_MOST {
                let reason = format!("{} cables: write 1 to {MEMBERS_MOST}", spec.members);
                return Err(FieldError::new("spec.members", reason));
            }
            check_capacity("spec.rate", spec.rate.0)
        }
        Spec::Switch(spec) => check_switch(spec, check_name),
        Spec::Tenant(spec) => check_tenant(spec),
        Spec::Vm(spec) => {
            check_name("spec.tenant", &spec.tenant)?;
            if let Some(host) = &spec.host {
                check_name("spec.host", host)?;
            }
            check_hoses("spec", &spec.floor, &spec.hoses, spec.external)?;
            check_rate("spec.cap", spec.cap.unwrap_or_default().0)?;
            check_network("spec.network", spec.network.as_ref())?;
            check_number(spec.number)
        }
        Spec::Reservation(spec) => check_reservation(spec),
    }
}

fn check_topology(spec: &super::TopologySpec) -> Result<(), FieldError> {
    if spec.headroom_percent > 90 {
        let reason = format!("{} %: at most 90", spec.headroom_percent);
        return Err(FieldError::new("spec.headroomPercent", reason));
    }
    if spec.trees_per_switch == 0 || spec.trees_per_switch > TREES_MOST {
        let reason = format!("{}: write 1 to {TREES_MOST}", spec.trees_per_switch);
        return Err(FieldError::new("spec.treesPerSwitch", reason));
    }
    if spec.search_steps > STEPS_MOST {
        let reason = format!("{}: at most {STEPS_MOST}", spec.search_steps);
        return Err(FieldError::new("spec.searchSteps", reason));
    }
    spec.queues.as_ref().map_or(Ok(()), check_queues)?;
    check_switches("gateways", &spec.gateways)?;
    check_switches("draining", &spec.draining)
}

fn check_switches(field: &str, names: &[String]) -> Result<(), FieldError> {
    if names.len() > SWITCHES_MOST {
        let reason = format!("{} {field}: at most {SWITCHES_MOST}", names.len());
        return Err(FieldError::new(format!("spec.{field}"), reason));
    }
    let mut names = names.iter().enumerate();
    names.try_for_each(|(n, name)| check_name(&format!("spec.{field}[{n}]"), name))
}

fn check_tenant(spec: &super::TenantSpec) -> Result<(), FieldError> {
    let survival = spec.survival;
    for (field, percent) in
        [("hostPercent", survival.host_percent), ("rackPercent", survival.rack_percent)]
    {
        if percent > SURVIVAL_MOST {
            let reason = format!("{percent} %: at most {SURVIVAL_MOST}");
            return Err(FieldError::new(format!("spec.survival.{field}"), reason));
        }
    }
    if spec.components.len() > COMPONENTS_MOST {
        let reason = format!("{} components: at most {COMPONENTS_MOST}", spec.components.len());
        return Err(FieldError::new("spec.components", reason));
    }
    let (mut names, mut vms) = (std::collections::BTreeSet::new(), 0_u64);
    for (n, component) in spec.components.iter().enumerate() {
        let field = format!("spec.components[{n}]");
        check_name(&format!("{field}.name"), &component.name)?;
        if !names.insert(&component.name) {
            let reason = format!("`{}` is in the tenant twice", component.name);
            return Err(FieldError::new(format!("{field}.name"), reason));
        }
        check_hoses(&field, &component.floor, &component.hoses, component.external)?;
        vms += u64::from(component.vms);
        if vms > COMPONENT_VMS_MOST {
            let reason = format!("{vms} VMs up to here: at most {COMPONENT_VMS_MOST} in all");
            return Err(FieldError::new(format!("{field}.vms"), reason));
        }
    }
    Ok(())
}

/// All hoses of one VM, at `field`.
fn check_hoses(
    field: &str,
    floor: &super::Floors,
    hoses: &[super::Hose],
    external: Option<super::Floors>,
) -> Result<(), FieldError> {
    check_floors(&format!("{field}.floor"), floor)?;
    check_floors(&format!("{field}.external"), &external.unwrap_or_default())?;
    if hoses.len() > HOSES_MOST {
        let reason = format!("{} hoses: at most {HOSES_MOST}", hoses.len());
        return Err(FieldError::new(format!("{field}.hoses"), reason));
    }
    for (n, hose) in hoses.iter().enumerate() {
        check_name(&format!("{field}.hoses[{n}].name"), &hose.name)?;
        if hoses[..n].iter().any(|other| other.name == hose.name) {
            let reason = format!("`{}` is listed twice", hose.name);
            return Err(FieldError::new(format!("{field}.hoses[{n}].name"), reason));
        }
        check_floors(&format!("{field}.hoses[{n}].floor"), &hose.floor)?;
    }
    Ok(())
}

fn check_reservation(spec: &super::ReservationSpec) -> Result<(), FieldError> {
    check_name("spec.tenant", &spec.tenant)?;
    if spec.vms.is_empty() || spec.vms.len() > RESERVED_MOST {
        let reason = format!("{} VMs: a reservation has 1 to {RESERVED_MOST}", spec.vms.len());
        return Err(FieldError::new("spec.vms", reason));
    }
    let mut names = std::collections::BTreeSet::new();
    for (n, vm) in spec.vms.iter().enumerate() {
        check_name(&format!("spec.vms[{n}].name"), &vm.name)?;
        check_name(&format!("spec.vms[{n}].host"), &vm.host)?;
        check_hoses(&format!("spec.vms[{n}]"), &vm.floor, &vm.hoses, vm.external)?;
        check_network(&format!("spec.vms[{n}].network"), vm.network.as_ref())?;
        if !names.insert(&vm.name) {
            let reason = format!("`{}` is in the reservation twice", vm.name);
            return Err(FieldError::new(format!("spec.vms[{n}].name"), reason));
        }
    }
    let hold = spec.hold_for.0;
    if hold < HOLD_LEAST || hold > HOLD_MOST {
        let (least, most) = (show_span(HOLD_LEAST), show_span(HOLD_MOST));
        let reason = format!("{} is not between {least} and {most}", show_span(hold));
        return Err(FieldError::new("spec.holdFor", reason));
    }
    Ok(())
}

/// The network of a VM at `field`.
fn check_network(field: &str, network: Option<&super::Network>) -> Result<(), FieldError> {
    let Some(network) = network else { return Ok(()) };
    network.check(field)?;
    check_rate(&format!("{field}.externalCap"), network.external_cap.unwrap_or_default().0)
}

fn check_number(number: Option<u32>) -> Result<(), FieldError> {
    match number.filter(|number| *number > NUMBER_MOST) {
        Some(number) => {
            Err(FieldError::new("spec.number", format!("{number}: write 0 to {NUMBER_MOST}")))
        }
        None => Ok(()),
    }
}

fn check_capacity(field: &str, rate: Rate) -> Result<(), FieldError> {
    if rate.is_zero() {
        return Err(FieldError::new(
            field,
            "0: a link carries something; to take it out of service set its state",
        ));
    }
    check_rate(field, rate)
}

fn check_floors(field: &str, floors: &super::Floors) -> Result<(), FieldError> {
    check_rate(&format!("{field}.out"), floors.out.0)?;
    check_rate(&format!("{field}.in"), floors.inward.0)
}

fn check_rate(field: &str, rate: Rate) -> Result<(), FieldError> {
    if rate <= RATE_MOST {
        return Ok(());
    }
    let reason =
        format!("{} is more than any link has: at most {}", show_rate(rate), show_rate(RATE_MOST));
    Err(FieldError::new(field, reason))
}

/// A value of a type, or the path of the field that does not fit, below `root`.
fn typed<T: DeserializeOwned>(root: &str, value: Value) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, reason) = (error.path().to_string(), error.inner().to_string());
        let inner = if path == "." { "" } else { path.as_str() };
        // serde reports a missing field at the object in which it is missing.
        let missing =
            reason.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
        let parts = [root, inner, missing.unwrap_or_default()];
        let field = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".");
        FieldError::new(if field.is_empty() { ".".into() } else { field }, reason)
    })
}
