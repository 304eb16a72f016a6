//! The agent's own configuration (`agent.toml`) and the directory of VMs and hosts.
//!
//! An agent knows its NIC's rate, its VMs' hoses, and the directory (address → VM → host); not the
//! traffic matrix, not the topology, not other hosts' load.

mod budget;
mod mechanism;
mod queue;

pub use budget::{Ports, WindowBudget, WindowClass};
pub use mechanism::AGENTS_CAN;
pub use queue::{GuestDscp, TenantConfig};

use crate::net::{Mac, Prefix};
use crate::text::{RateText, SizeText};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use weir_core::mechanism::registry;
pub use weir_core::vcc::Translation;
use weir_units::{HostId, VmId};

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
    /// Address and port of the control channel. It is an address of this host, and its port is
    /// closed to VMs.
    pub listen: SocketAddr,
    /// File with the keys of the control channel: see docs/keys.md. The first key of a peer signs,
    /// all are accepted. The agent reads the file again when it changes. Not with a controller.
    #[serde(default, skip_serializing_if = "is_nowhere")]
    pub key_file: PathBuf,
    /// YAML file with all VMs and hosts. Not with a controller.
    #[serde(default, skip_serializing_if = "is_nowhere")]
    pub directory: PathBuf,
    /// The controller that this host has joined. It gives the VMs, the directory and the keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<Followed>,
    /// Directory of the socket, the lock and the heartbeat. Default `/run/weir`.
    #[serde(default = "default_run_dir")]
    pub run_dir: PathBuf,
    /// Directory for pinned BPF objects: a mounted bpffs. Default `/sys/fs/bpf`.
    #[serde(default = "default_bpffs")]
    pub bpffs: PathBuf,
    /// The interface toward the network.
    pub uplink: Uplink,
    /// Whether the agent enforces floors or only reports what it would do. Default `enforce`.
    #[serde(default)]
    pub mode: Mode,
    /// How the shaper limits pairs. Default `auto`.
    #[serde(default)]
    pub shaper: ShaperChoice,
    /// The mechanism that decides rates.
    pub mechanism: MechanismConfig,
    /// Number of pairs on which one VM may send, and of pairs on which it may receive. Traffic
    /// beyond them has no floor. Default 512.
    #[serde(default = "default_pairs_per_vm")]
    pub pairs_per_vm: u32,
    /// Number of connections of one VM in its translation's table. When the table is full, the
    /// connection that was silent longest loses its place and is no longer translated. Default
    /// 8192, about 1.4 MB for each VM with a table.
    #[serde(default = "default_flows_per_vm")]
    pub flows_per_vm: u32,
    /// Code points (DSCP) that tenants may be tagged with, equal on all hosts. No packet of a guest
    /// carries one of them. Default: none, and all tenants share one queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code_points: Vec<u8>,
    /// Tenants with a queue of their own on switches.
    #[serde(default, rename = "tenant", skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantConfig>,
    /// This host's VMs.
    #[serde(default, rename = "vm")]
    pub vms: Vec<VmConfig>,
}

/// The controller that a host follows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Followed {
    /// `NAME:PORT` of its API; of several controllers, all of them with commas between.
    pub address: String,
    /// Folder with the host's key and certificate and with what the controller said last, readable by
    /// the agent alone. `weir agent join` makes it. Default `/var/lib/weir/agent`.
    #[serde(default = "default_state_dir")]
    pub state_dir: PathBuf,
}

fn default_state_dir() -> PathBuf {
    "/var/lib/weir/agent".into()
}

fn is_nowhere(path: &std::path::Path) -> bool {
    path.as_os_str().is_empty()
}

/// Role of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The host has VMs.
    #[default]
    Host,
    /// The host joins the cloud to the outside and has one endpoint per tenant for it
    /// (ElasticSwitch §3, external traffic). It may have VMs, too.
    Gateway,
}

/// Default number of pairs on which a VM may send, and of pairs on which it may receive.
pub const PAIRS_PER_VM: u32 = 512;

const fn default_pairs_per_vm() -> u32 {
    PAIRS_PER_VM
}

/// Default number of connections of one VM in its translation's table.
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

/// Whether an agent enforces floors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The agent enforces floors.
    #[default]
    Enforce,
    /// The agent classifies and counts packets and reports the rates that it would set. It changes,
    /// delays or drops no packet.
    Observe,
}

/// How pairs are limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShaperChoice {
    /// Departure times if the uplink is faster than HTB can carry and the host can do them, else
    /// HTB.
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
    /// sends may use what they leave, and no more. Without it the host's traffic is not limited.
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
    /// The VM's port: the host's end of its veth, or its tap. For an endpoint with prefixes it is
    /// the interface toward the outside, which several endpoints may share.
    pub port: String,
    /// The only MAC address that may send on the port. Any address if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Minimum rate to anyone of its tenant.
    pub floor_out: RateText,
    /// Minimum rate from anyone of its tenant.
    pub floor_in: RateText,
    /// Maximum rate out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_out: Option<RateText>,
    /// Floor for traffic to addresses that no directory lists, beside `floor_out`. Default: a
    /// twentieth of `floor_out`, as far as the uplink has room beside all floors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_floor: Option<RateText>,
    /// Ceiling for the same traffic. A ceiling above the floor may take other VMs' floors where the
    /// network has no room, because no receiver reports the losses. Default: `external_floor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ceiling: Option<RateText>,
    /// Congestion control that the VM's connections show to the network, whatever the guest has.
    /// Default `none`.
    #[serde(default, skip_serializing_if = "Translation::is_none")]
    pub translation: Translation,
    /// How far beyond the window that it was shown its guest may send on a translated connection,
    /// before what goes further is dropped (AC/DC). Any if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policing: Option<SizeText>,
    /// What the windows of its connections may be together; any if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<WindowBudget>,
    /// What becomes of the code points (DSCP) that its guest writes. Default `clear`.
    #[serde(default, skip_serializing_if = "GuestDscp::is_usual")]
    pub dscp: GuestDscp,
    /// Further hoses, beside the one toward all VMs of its tenant. The directory lists them too.
    #[serde(default, rename = "hose", skip_serializing_if = "Vec::is_empty")]
    pub hoses: Vec<HoseConfig>,
}

/// A hose that only some VMs of a tenant share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoseConfig {
    /// Its name within the tenant.
    pub name: String,
    /// Minimum rate to the VMs that receive in it. Default 0.
    #[serde(default)]
    pub floor_out: RateText,
    /// Minimum rate from the VMs that send in it. Default 0.
    #[serde(default)]
    pub floor_in: RateText,
}

/// No policing may allow more beyond a window, octets: it is more than any window.
pub const POLICING_MOST: u32 = 1 << 30;

/// The mechanism that decides rates, and its constants.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MechanismConfig {
    /// A name of the registry ([`weir_core::mechanism::registry`]).
    pub name: String,
    /// Named set of constants of the mechanism; see [`MechanismConfig::preset`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Constants that differ from the preset, by the names of docs/algorithms/elasticswitch.md or
    /// eyeq.md. Rates and spans as text (`"0.1Mbit"`, `"15ms"`), the rest as numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, toml::Value>,
    /// `reservation` only: the rate of each pair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserve: Vec<Reserve>,
}

impl MechanismConfig {
    /// The named preset. Default: for `elasticswitch` the preset for which GUARANTEES.md promises
    /// floors, for other mechanisms their usual one.
    pub fn preset(&self) -> &str {
        let usual = registry::row(&self.name).map_or("paper", |row| row.agents);
        self.preset.as_deref().unwrap_or(usual)
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

/// The directory: address → VM → host. It has no floors; messages bring those of remote VMs.
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
    /// Address and port of its agent.
    pub control: SocketAddr,
    /// Number that agents use for the host, unique. Default: its position in the list.
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
    /// The hoses in which it sends and receives, if it has others than that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hoses: Option<DirectoryHoses>,
    /// Name of its host.
    pub host: String,
    /// Number that agents use for the VM, unique. Default: its position in the list. A list from
    /// which entries are removed while agents run needs it, because the numbers of the other VMs
    /// must stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// Its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Hardware address at which other VMs reach the VM if all share a bridge. Their port drops
    /// packets to the VM's addresses at another hardware address. Absent where a router is between
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Only for the endpoint that stands for the outside of the cloud: the prefixes that it covers
    /// for its tenant. The longest prefix of an address counts. An address of a VM is never
    /// outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<Prefix>,
}

/// The hoses of a VM. Both hosts of a pair find its hose by them: the first by name in which the source
/// sends and the destination receives, else that of the tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectoryHoses {
    /// Names of the hoses of its tenant in which it sends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out: Vec<String>,
    /// Names of those in which it receives.
    #[serde(default, rename = "in", skip_serializing_if = "Vec::is_empty")]
    pub in_: Vec<String>,
    /// Whether it sends in the hose of all VMs of its tenant. Default true; false where it has no floor
    /// there.
    #[serde(default = "yes")]
    pub tenant_out: bool,
    /// Whether it receives there, likewise.
    #[serde(default = "yes")]
    pub tenant_in: bool,
}

const fn yes() -> bool {
    true
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
/// A mistake in the text, with its line.
pub fn parse_directory(text: &str) -> Result<Directory, String> {
    let options = serde_saphyr::options! { budget: Some(crate::yaml::budget(text)) };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| match e.location() {
        Some(_) => e.to_string(),
        // The error of a missing or empty document.
        None => format!("line 1: {e}"),
    })
}
