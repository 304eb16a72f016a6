//! The agent's own configuration (`agent.toml`) and the directory of VMs and hosts.
//!
//! An agent knows its NIC's rate, its VMs' hoses, and the directory (address → VM → host); not the
//! traffic matrix, not the topology, not other hosts' load.

mod budget;

pub use budget::{Ports, WindowBudget, WindowClass};

use crate::net::{Mac, Prefix};
use crate::scenario;
use crate::text::{RateText, SizeText, SpanText};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use weir_units::{HostId, Span, VmId};

/// `agent.toml`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    /// Name of this agent on this machine: every pin, socket and lock carries it.
    pub instance: String,
    /// This host's name in the directory.
    pub host: String,
    /// What this host is: a gateway has ports that lead out of the cloud.
    #[serde(default)]
    pub role: Role,
    /// Where control messages arrive, and the address they are sent from: one of the host's own, which
    /// is closed to VMs.
    pub listen: SocketAddr,
    /// File with the keys that all agents share, one per line: `ID KEY`, a key being 32 hexadecimal
    /// digits (128 bits). The first signs, all are accepted; read again when it changes.
    pub key_file: PathBuf,
    /// YAML file with all VMs and hosts.
    pub directory: PathBuf,
    /// Where the socket, the lock and the heartbeat live. Default `/run/weir`.
    #[serde(default = "default_run_dir")]
    pub run_dir: PathBuf,
    /// Where BPF objects are pinned: a mounted bpffs. Default `/sys/fs/bpf`.
    #[serde(default = "default_bpffs")]
    pub bpffs: PathBuf,
    /// The interface toward the network.
    pub uplink: Uplink,
    /// Whether floors are enforced, or only what would be done is said. Default `enforce`.
    #[serde(default)]
    pub mode: Mode,
    /// How pairs are limited. Default `auto`.
    #[serde(default)]
    pub shaper: ShaperChoice,
    /// How rates are decided.
    pub mechanism: MechanismConfig,
    /// How many pairs one VM may send on, and as many to receive on; beyond it traffic goes without a
    /// floor. Default 512.
    #[serde(default = "default_pairs_per_vm")]
    pub pairs_per_vm: u32,
    /// How many connections of one VM are known to its translation at the same time; who is silent longest
    /// gives way, and is left alone from then on. Default 8192, some 1.4 MB for each VM that has one.
    #[serde(default = "default_flows_per_vm")]
    pub flows_per_vm: u32,
    /// Window budgets that VMs share, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub budgets: BTreeMap<String, WindowBudget>,
    /// This host's VMs.
    #[serde(default, rename = "vm")]
    pub vms: Vec<VmConfig>,
}

/// What a host is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It has VMs.
    #[default]
    Host,
    /// It joins the cloud to the outside, for which it has one endpoint per tenant (ElasticSwitch §3,
    /// external traffic). It may have VMs, too.
    Gateway,
}

/// How many pairs a VM may send on, and as many to receive on, if the file does not say.
pub const PAIRS_PER_VM: u32 = 512;

const fn default_pairs_per_vm() -> u32 {
    PAIRS_PER_VM
}

/// How many connections of one VM are known to its translation, if the file does not say.
pub const FLOWS_PER_VM: u32 = 8192;

const fn default_flows_per_vm() -> u32 {
    FLOWS_PER_VM
}

fn default_run_dir() -> PathBuf {
    "/run/weir".into()
}

fn default_bpffs() -> PathBuf {
    "/sys/fs/bpf".into()
}

/// Whether an agent enforces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Floors are enforced.
    #[default]
    Enforce,
    /// Packets are classified and counted, rates are decided and told, and no packet is changed,
    /// delayed or dropped.
    Observe,
}

/// How pairs are limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShaperChoice {
    /// Departure times where the uplink is faster than HTB can carry and the host has what they need,
    /// else HTB.
    #[default]
    Auto,
    /// HTB classes on an IFB device.
    Htb,
    /// Departure times, kept by the uplink's fq qdisc.
    DepartureTime,
}

/// The interface toward the network.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uplink {
    /// Interface name.
    pub interface: String,
    /// Its line rate, on layer 2 without FCS.
    pub rate: RateText,
    /// Tunnel devices (VXLAN) between the VMs' ports and this interface: losses show in what enters them. All traffic to
    /// other hosts is taken to pass one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tunnels: Vec<String>,
    /// Octets that a tunnel adds to each packet, Ethernet header included: rates count them. Default 50 with tunnels
    /// (VXLAN over IPv4; over IPv6 it has 70).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_overhead: Option<u32>,
    /// The floor of what this host itself sends by this interface (storage, migration), whatever its VMs do. What it
    /// sends may use what they leave, and no more. Needs departure times; without it the host's traffic is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_floor: Option<RateText>,
}

/// What VXLAN over IPv4 puts before a packet: Ethernet, IPv4, UDP, VXLAN.
pub const VXLAN_OVERHEAD: u32 = 50;

/// One VM of this host and its hose.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmConfig {
    /// The VM's name in the directory.
    pub name: String,
    /// The VM's port: the host's end of its veth, or its tap. For one with prefixes, the interface
    /// toward the outside, which several may share.
    pub port: String,
    /// The only MAC address that may send there; any if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Minimum rate to anyone of its tenant.
    pub floor_out: RateText,
    /// Minimum rate from anyone of its tenant.
    pub floor_in: RateText,
    /// Maximum rate out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_out: Option<RateText>,
    /// What it may send in any case to addresses that no directory lists, beside `floor_out`. A twentieth
    /// of that if left out, as long as the uplink has room beside all floors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_floor: Option<RateText>,
    /// The most it may send there while others leave it. Nobody says what the network loses of it: where
    /// that has not so much to spare, it takes others' floors. `external_floor` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ceiling: Option<RateText>,
    /// The congestion control that its connections shall follow, whatever its guest's is. Default `none`.
    #[serde(default, skip_serializing_if = "Translation::is_none")]
    pub translation: Translation,
    /// How far beyond the window that it was shown its guest may send on a translated connection, before what goes
    /// further is dropped (AC/DC). Any if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policing: Option<SizeText>,
    /// What the windows of its connections may be together; any if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<WindowBudget>,
    /// Instead: the one of `budgets` on which its connections live with those of all other VMs that name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_budget: Option<String>,
    /// Its connections keep to their pairs' rates by their windows, which are what a pair's rate carries in this time:
    /// the round trip between hosts, and what may wait. No shorter than the round trip. By the limiter's queue alone if
    /// left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_shaping: Option<SpanText>,
}

/// What waits of a pair lasts so long at most at its limiter: windows for longer shape nothing.
pub const WINDOW_SHAPING_MOST: Span = Span::from_millis(250);

/// No policing may allow more beyond a window, octets: it is more than any window.
pub const POLICING_MOST: u32 = 1 << 30;

/// What guests' congestion control is translated into (vCC).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Translation {
    /// Nothing: new connections are as the guest makes them.
    #[default]
    None,
    /// Reacts to marks as Reno does to losses.
    VirtualEcn,
    /// Reacts to the part that is marked.
    Dctcp,
    /// CUBIC, with marks for losses.
    CubicEcn,
    /// As `virtual-ecn`, and also for guests that agree on ECN by themselves and do not heed it.
    Auto,
}

impl Translation {
    /// Its name in files.
    pub fn name(self) -> &'static str {
        self.of_scenario().map_or("none", scenario::Translation::name)
    }

    /// Whether nothing is translated.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    const fn of_scenario(self) -> Option<scenario::Translation> {
        match self {
            Self::None => None,
            Self::VirtualEcn => Some(scenario::Translation::VirtualEcn),
            Self::Dctcp => Some(scenario::Translation::Dctcp),
            Self::CubicEcn => Some(scenario::Translation::CubicEcn),
            Self::Auto => Some(scenario::Translation::Auto),
        }
    }
}

impl From<Option<scenario::Translation>> for Translation {
    fn from(translation: Option<scenario::Translation>) -> Self {
        match translation {
            None => Self::None,
            Some(scenario::Translation::VirtualEcn) => Self::VirtualEcn,
            Some(scenario::Translation::Dctcp) => Self::Dctcp,
            Some(scenario::Translation::CubicEcn) => Self::CubicEcn,
            Some(scenario::Translation::Auto) => Self::Auto,
        }
    }
}

/// How rates are decided.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MechanismConfig {
    /// `elasticswitch`, `eyeq`, `reservation`, `seawall`.
    pub name: String,
    /// Named set of constants of `elasticswitch` or `eyeq`; see [`MechanismConfig::preset`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Constants that differ from the preset, by the names of docs/algorithms/elasticswitch.md or eyeq.md.
    /// Rates and spans as text (`"0.1Mbit"`, `"15ms"`), the rest as numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, toml::Value>,
    /// `reservation` only: the rate of each pair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserve: Vec<Reserve>,
}

impl MechanismConfig {
    /// The preset that is named. Without one: of `elasticswitch` the one that keeps what GUARANTEES.md
    /// promises, of the others their usual one.
    pub fn preset(&self) -> &str {
        match (&self.preset, self.name.as_str()) {
            (Some(preset), _) => preset,
            (None, "elasticswitch") => "steady",
            (None, "eyeq") => scenario::MechanismKind::EyeQ.usual_preset(),
            (None, _) => scenario::MechanismKind::None.usual_preset(),
        }
    }
}

/// One statically reserved pair.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserve {
    /// Sending VM.
    pub from: String,
    /// Receiving VM.
    pub to: String,
    /// Its rate: both floor and ceiling.
    pub rate: RateText,
}

/// The directory: address → VM → host. No floors: those of remote VMs arrive by message.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// All hosts.
    pub hosts: Vec<DirectoryHost>,
    /// All VMs.
    pub vms: Vec<DirectoryVm>,
}

/// One host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectoryHost {
    /// Unique.
    pub name: String,
    /// Where its agent listens.
    pub control: SocketAddr,
    /// The number that agents call it by, unique; its position in the list if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
}

/// One VM.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectoryVm {
    /// Unique.
    pub name: String,
    /// VMs of one tenant share a hose.
    pub tenant: String,
    /// Name of its host.
    pub host: String,
    /// The number that agents call it by, unique; its position in the list if left out. A list from
    /// which entries are removed while agents run needs it: numbers of others must stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// Its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// The hardware address at which other VMs reach it, if all share a bridge: what they send to its
    /// addresses goes there, or is dropped. Left out where a router is between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// For the one endpoint that stands for what is outside the cloud: which addresses that is for
    /// its tenant. Of several prefixes with an address the longest counts. An address of a VM is
    /// never outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<Prefix>,
}

impl Directory {
    /// All hosts with their numbers.
    pub fn numbered_hosts(&self) -> impl Iterator<Item = (HostId, &DirectoryHost)> {
        let number = |host: &DirectoryHost, place| HostId(host.id.unwrap_or(place));
        (0..).zip(&self.hosts).map(move |(place, host)| (number(host, place), host))
    }

    /// All VMs with their numbers.
    pub fn numbered_vms(&self) -> impl Iterator<Item = (VmId, &DirectoryVm)> {
        let number = |vm: &DirectoryVm, place| VmId(vm.id.unwrap_or(place));
        (0..).zip(&self.vms).map(move |(place, vm)| (number(vm, place), vm))
    }
}

/// Reads a directory file's text.
///
/// # Errors
///
/// What is wrong, with its line.
pub fn parse_directory(text: &str) -> Result<Directory, String> {
    serde_saphyr::from_str(text).map_err(|e| match e.location() {
        Some(_) => e.to_string(),
        // Of a document that is not there, or empty.
        None => format!("line 1: {e}"),
    })
}
