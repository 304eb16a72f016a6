//! The messages between controller and agents. `agents.proto` describes the same for other programs; a
//! test compares the two.

use prost::Message;
use serde::{Deserialize, Serialize};

/// Path of the call by which a host gets its first certificate.
pub const JOIN: &str = "/weir.v1.Agents/Join";
/// Path of the call by which a host gets the next one.
pub const RENEW: &str = "/weir.v1.Agents/Renew";
/// Path of the stream.
pub const FOLLOW: &str = "/weir.v1.Agents/Follow";

/// A feature of agents: prefixes of gateways, translation, policing, window budgets, guests' code points
/// and the maximum rate to the outside, as a VM's `spec.network` has them.
pub const NETWORKS: &str = "networks";

/// A host asks for its first certificate.
#[derive(Clone, PartialEq, Message)]
pub struct JoinRequest {
    /// Version of these messages that the host speaks.
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// The token, which works once.
    #[prost(string, tag = "2")]
    pub token: String,
    /// Name of the host.
    #[prost(string, tag = "3")]
    pub host: String,
    /// Request of a certificate (PKCS#10, DER) for a key on the curve P-256.
    #[prost(bytes = "vec", tag = "4")]
    pub request: Vec<u8>,
}

/// A host asks for its next certificate, with the present one.
#[derive(Clone, PartialEq, Message)]
pub struct RenewRequest {
    /// Request of a certificate, as in `JoinRequest`.
    #[prost(bytes = "vec", tag = "1")]
    pub request: Vec<u8>,
}

/// A certificate of a host.
#[derive(Clone, PartialEq, Message)]
pub struct Certificate {
    /// The certificate, PEM.
    #[prost(string, tag = "1")]
    pub certificate: String,
    /// Certificates of all authorities that the host has to trust, PEM.
    #[prost(string, tag = "2")]
    pub roots: String,
    /// Number of the host, by which agents know it.
    #[prost(uint32, tag = "3")]
    pub number: u32,
    /// Tenants with VMs on the host, if it joins: it has their floors from its first start.
    #[prost(message, repeated, tag = "4")]
    pub tenants: Vec<Tenant>,
}

/// What an agent says.
#[derive(Clone, PartialEq, Message)]
pub struct FromAgent {
    /// Only in the first message.
    #[prost(message, optional, tag = "1")]
    pub hello: Option<Hello>,
    /// What became of tenants' states.
    #[prost(message, repeated, tag = "2")]
    pub answers: Vec<Answer>,
    /// What tenants with VMs here used of the network card, if the controller asked for it.
    #[prost(message, repeated, tag = "3")]
    pub used: Vec<Used>,
    /// When that was counted, by a clock of the agent that only grows, ms.
    #[prost(uint64, tag = "4")]
    pub used_at_ms: u64,
    /// How floors were kept, if the controller asked for it.
    #[prost(message, optional, tag = "5")]
    pub accounts: Option<Accounts>,
}

/// How a host's senders had their floors since its agent began, and what is wrong there now.
#[derive(Clone, PartialEq, Message)]
pub struct Accounts {
    /// Drawn when the agent began: with another one all counters began anew.
    #[prost(uint64, tag = "1")]
    pub life: u64,
    /// When it was counted, by a clock of the agent that only grows, ms.
    #[prost(uint64, tag = "2")]
    pub at_ms: u64,
    /// Whether the agent only observes: nothing is enforced.
    #[prost(bool, tag = "3")]
    pub observing: bool,
    /// One per VM and direction of which something was counted.
    #[prost(message, repeated, tag = "4")]
    pub floors: Vec<FloorAccount>,
    /// The latest stretches of time in which floors were broken.
    #[prost(message, repeated, tag = "5")]
    pub broken: Vec<BrokenFloor>,
    /// Pairs that send from here now, those with most traffic first.
    #[prost(message, repeated, tag = "6")]
    pub pairs: Vec<PairNow>,
    /// What is wrong now.
    #[prost(message, repeated, tag = "7")]
    pub troubles: Vec<Trouble>,
}

/// What was counted for a VM's floor in one direction, by the senders of one host. A window is a second of a
/// pair that wanted more than it had.
#[derive(Clone, PartialEq, Message)]
pub struct FloorAccount {
    /// Name of the VM; in the direction in it may be on another host.
    #[prost(string, tag = "1")]
    pub vm: String,
    /// Whether the direction is out of the VM; else it is in.
    #[prost(bool, tag = "2")]
    pub out: bool,
    /// Windows.
    #[prost(uint64, tag = "3")]
    pub windows: u64,
    /// Windows in which the pair had its floor.
    #[prost(uint64, tag = "4")]
    pub held: u64,
    /// Octets owed in the windows.
    #[prost(uint64, tag = "5")]
    pub owed: u64,
    /// Octets that arrived in the windows.
    #[prost(uint64, tag = "6")]
    pub got: u64,
    /// Octets that arrived at any time.
    #[prost(uint64, tag = "7")]
    pub all: u64,
    /// Octets that arrived beyond the floors.
    #[prost(uint64, tag = "8")]
    pub borrowed: u64,
}

/// A stretch of time in which a pair had less than its floor.
#[derive(Clone, PartialEq, Message)]
pub struct BrokenFloor {
    /// Counts up from 1 in an agent's life.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The VM that sends.
    #[prost(string, tag = "2")]
    pub from: String,
    /// The VM that receives.
    #[prost(string, tag = "3")]
    pub to: String,
    /// Its beginning, by the clock of `at_ms`.
    #[prost(uint64, tag = "4")]
    pub from_ms: u64,
    /// Its end so far.
    #[prost(uint64, tag = "5")]
    pub until_ms: u64,
    /// Octets owed.
    #[prost(uint64, tag = "6")]
    pub owed: u64,
    /// Octets that arrived.
    #[prost(uint64, tag = "7")]
    pub got: u64,
    /// Segments that the network lost.
    #[prost(uint64, tag = "8")]
    pub lost: u64,
    /// Why, as a word for programs.
    #[prost(string, tag = "9")]
    pub cause: String,
}

/// A pair that sends.
#[derive(Clone, PartialEq, Message)]
pub struct PairNow {
    /// The VM that sends.
    #[prost(string, tag = "1")]
    pub from: String,
    /// The VM that receives.
    #[prost(string, tag = "2")]
    pub to: String,
    /// Its floor, bit/s.
    #[prost(uint64, tag = "3")]
    pub floor: u64,
    /// The most it may send, bit/s.
    #[prost(uint64, tag = "4")]
    pub rate: u64,
    /// What it sent lately, bit/s.
    #[prost(uint64, tag = "5")]
    pub sent: u64,
    /// State of its law, in a word.
    #[prost(string, tag = "6")]
    pub phase: String,
    /// Segments that the network lost since the pair began.
    #[prost(uint64, tag = "7")]
    pub lost: u64,
    /// Whether it wanted more than it had, in the last second.
    #[prost(bool, tag = "8")]
    pub wants: bool,
}

/// Something that keeps floors from being kept.
#[derive(Clone, PartialEq, Message)]
pub struct Trouble {
    /// One word for programs.
    #[prost(string, tag = "1")]
    pub kind: String,
    /// The VM that it is about. Empty: the host.
    #[prost(string, tag = "2")]
    pub vm: String,
    /// A sentence for people.
    #[prost(string, tag = "3")]
    pub message: String,
}

/// What a tenant used of a host's network card since the agent began. It begins anew with the agent.
#[derive(Clone, PartialEq, Message)]
pub struct Used {
    /// Name of the tenant.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Octets that left the host.
    #[prost(uint64, tag = "2")]
    pub sent: u64,
    /// Octets that came.
    #[prost(uint64, tag = "3")]
    pub received: u64,
}

/// An agent introduces itself.
#[derive(Clone, PartialEq, Message)]
pub struct Hello {
    /// Version of these messages that the agent speaks.
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// Version of the agent's program.
    #[prost(string, tag = "2")]
    pub program: String,
    /// Rate of the uplink, bit/s.
    #[prost(uint64, tag = "3")]
    pub rate: u64,
    /// Address and port at which other agents reach it.
    #[prost(string, tag = "4")]
    pub control: String,
    /// What is in force there.
    #[prost(message, repeated, tag = "5")]
    pub known: Vec<Known>,
    /// What the agent knows beyond the first version of these messages. See `NETWORKS`.
    #[prost(string, repeated, tag = "40")]
    pub features: Vec<String>,
    /// Code points that tenants may be tagged with here. None: the agent does not tag.
    #[prost(uint32, repeated, tag = "6")]
    pub code_points: Vec<u32>,
    /// Floor of what the host itself sends, bit/s. Missing: an agent of before.
    #[prost(uint64, optional, tag = "7")]
    pub own_out: Option<u64>,
}

/// The state of a tenant that a host has in force.
#[derive(Clone, PartialEq, Message)]
pub struct Known {
    /// Name of the tenant.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Version of the state.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// FNV-1a of the state without its version.
    #[prost(fixed64, tag = "3")]
    pub digest: u64,
    /// Version of the order of the tenant's queue; 0: there is none.
    #[prost(uint64, tag = "4")]
    pub queue: u64,
}

/// What became of a tenant's state.
#[derive(Clone, PartialEq, Message)]
pub struct Answer {
    /// Name of the tenant.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Version of the state.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// Whether it is in force and on the host's disk. Else the former state stays in force.
    #[prost(bool, tag = "3")]
    pub applied: bool,
    /// One word for programs, if it is not.
    #[prost(string, tag = "4")]
    pub reason: String,
    /// A sentence for people, if it is not.
    #[prost(string, tag = "5")]
    pub message: String,
}

/// What the controller says.
#[derive(Clone, PartialEq, Message)]
pub struct FromController {
    /// Tenants of which something changed, each whole.
    #[prost(message, repeated, tag = "1")]
    pub tenants: Vec<Tenant>,
    /// Certificates of all authorities that the host has to trust, PEM. Empty if they are as before.
    #[prost(string, tag = "2")]
    pub roots: String,
    /// How often the host tells what tenants use, ms; 0: never. Absent: as before, at first never.
    #[prost(uint32, optional, tag = "3")]
    pub usage_every_ms: Option<u32>,
    /// How often the host tells how floors were kept, ms; 0: never. Absent: as before, at first never.
    #[prost(uint32, optional, tag = "4")]
    pub accounts_every_ms: Option<u32>,
    /// What the agent does with packets: `enforce` or `observe`. Empty: what its own file says. Absent: as before.
    #[prost(string, optional, tag = "5")]
    pub mode: Option<String>,
}

/// What one host has to know of a tenant. Without VMs: the tenant is no longer on the host.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct Tenant {
    /// Name of the tenant.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version of the state: it grows with each change.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// All VMs of the tenant.
    #[prost(message, repeated, tag = "3")]
    pub vms: Vec<Vm>,
    /// The other hosts of these VMs.
    #[prost(message, repeated, tag = "4")]
    pub hosts: Vec<Peer>,
    /// Its queue on switches. Absent: the shared one, as if the tenant never had another.
    #[prost(message, optional, tag = "5")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
}

/// What hosts do for a tenant's queue on switches.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct Queue {
    /// Version of the order: it grows.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// The code point of packets between VMs of the tenant; 0 is the shared queue's.
    #[prost(uint32, tag = "2")]
    pub code_point: u32,
    /// Whether its VMs may send to each other as much as the uplink lets them.
    #[prost(bool, tag = "3")]
    pub free: bool,
}

/// A VM.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct Vm {
    /// Name of the VM.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Number of the VM, by which agents know it.
    #[prost(uint32, tag = "2")]
    pub number: u32,
    /// Name of its host.
    #[prost(string, tag = "3")]
    pub host: String,
    /// Its addresses.
    #[prost(string, repeated, tag = "4")]
    pub addresses: Vec<String>,
    /// Its MAC address. Empty if any is right.
    #[prost(string, tag = "5")]
    pub mac: String,
    /// What only its own host has to know.
    #[prost(message, optional, tag = "6")]
    pub local: Option<Local>,
    /// The hoses in which it sends or receives. Empty: that of all VMs of its tenant alone, both ways.
    #[prost(message, repeated, tag = "7")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hoses: Vec<HoseEnd>,
    /// The prefixes that it covers for its tenant, if it stands for the outside of the cloud.
    #[prost(string, repeated, tag = "40")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<String>,
}

/// A VM's end of a hose.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct HoseEnd {
    /// Name of the hose. Empty: that of all VMs of the tenant.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Whether the VM sends in it.
    #[prost(bool, tag = "2")]
    pub sends: bool,
    /// Whether it receives in it.
    #[prost(bool, tag = "3")]
    pub receives: bool,
}

/// A VM on the host that is told of it.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct Local {
    /// Its network interface on the host.
    #[prost(string, tag = "1")]
    pub port: String,
    /// Floor out, bit/s.
    #[prost(uint64, tag = "2")]
    pub floor_out: u64,
    /// Floor in, bit/s.
    #[prost(uint64, tag = "3")]
    pub floor_in: u64,
    /// Floor toward the outside of the cloud, bit/s. Absent: what the agent gives by itself.
    #[prost(uint64, optional, tag = "4")]
    pub external_out: Option<u64>,
    /// Maximum rate out, bit/s. Absent: none.
    #[prost(uint64, optional, tag = "5")]
    pub cap_out: Option<u64>,
    /// Floors in further hoses.
    #[prost(message, repeated, tag = "6")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hoses: Vec<HoseFloors>,
    /// Maximum rate toward the outside, bit/s. Absent: the floor.
    #[prost(uint64, optional, tag = "40")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_most: Option<u64>,
    /// Congestion control that its connections show to the network. Empty: that of its guest.
    #[prost(string, tag = "41")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub translation: String,
    /// Octets beyond a window that its guest may send on a translated connection. Absent: any.
    #[prost(uint64, optional, tag = "42")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policing: Option<u64>,
    /// What the windows of its connections may be together. Absent: anything.
    #[prost(message, optional, tag = "43")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// What becomes of the code points that its guest writes. Empty: they are cleared.
    #[prost(string, tag = "44")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dscp: String,
}

/// A total of windows, divided among live connections by the weights of their classes.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct Budget {
    /// All windows together, octets.
    #[prost(uint64, tag = "1")]
    pub total: u64,
    /// Connections that may share it.
    #[prost(uint32, tag = "2")]
    pub flows_most: u32,
    /// The largest segment of these connections, octets.
    #[prost(uint64, tag = "3")]
    pub segment: u64,
    /// Connections of no class are not bounded.
    #[prost(message, repeated, tag = "4")]
    pub classes: Vec<BudgetClass>,
}

/// Connections of one weight.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct BudgetClass {
    /// What people call it.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A connection's part, beside those of other weights.
    #[prost(uint32, tag = "2")]
    pub weight: u32,
    /// Ports of the VM, such as 5001-5003. Empty: any.
    #[prost(string, tag = "3")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub local_ports: String,
    /// Ports of the other end. Empty: any.
    #[prost(string, tag = "4")]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remote_ports: String,
}

/// Floors of a VM in a hose that only some VMs of its tenant share.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct HoseFloors {
    /// Name of the hose.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Floor out, bit/s.
    #[prost(uint64, tag = "2")]
    pub floor_out: u64,
    /// Floor in, bit/s.
    #[prost(uint64, tag = "3")]
    pub floor_in: u64,
}

/// Another host.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub struct Peer {
    /// Name of the host.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Number of the host, by which agents know it.
    #[prost(uint32, tag = "2")]
    pub number: u32,
    /// Address and port of its agent.
    #[prost(string, tag = "3")]
    pub control: String,
    /// Keys that both hosts share, lines of `ID KEY`. The first signs.
    #[prost(string, tag = "4")]
    pub keys: String,
}

impl Tenant {
    /// FNV-1a of all but the version. Equal states have equal digests.
    pub fn digest(&self) -> u64 {
        let unversioned = Self { version: 0, ..self.clone() };
        unversioned.encode_to_vec().iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
            (hash ^ u64::from(*octet)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `.proto` of the messages in a Rust source: each struct, each field with its comment.
    fn proto_of(source: &str) -> String {
        let mut out = String::new();
        let mut attribute = "";
        for line in source.lines().map(str::trim) {
            if let Some(comment) = line.strip_prefix("/// ") {
                attribute = "";
                out.push_str(&format!("// {comment}\n"));
            } else if let Some(name) = line.strip_prefix("pub struct ") {
                out.push_str(&format!("message {name}\n"));
            } else if line.starts_with("#[prost") {
                attribute = line;
            } else if let Some((name, kind)) =
                line.strip_prefix("pub ").and_then(|f| f.split_once(": "))
            {
                out.push_str(&format!(
                    "  {}\n",
                    field(attribute, name, kind.trim_end_matches(','))
                ));
            } else if line == "}" {
                out.push_str("}\n\n");
            }
        }
        out
    }

    fn field(attribute: &str, name: &str, kind: &str) -> String {
        let inner = attribute.trim_start_matches("#[prost(").trim_end_matches(")]");
        let parts: Vec<&str> = inner.split(", ").collect();
        let tag = parts.last().and_then(|p| p.strip_prefix("tag = ")).expect("a tag");
        let tag = tag.trim_matches('"');
        let word = parts[0].trim_end_matches(" = \"vec\"");
        let held = kind.trim_start_matches("Option<").trim_start_matches("Vec<");
        let held = if word == "message" { held.trim_end_matches('>') } else { word };
        let label = match (parts.contains(&"repeated"), parts.contains(&"optional"), word) {
            (true, ..) => "repeated ",
            // A message is optional in any case.
            (_, true, kind) if kind != "message" => "optional ",
            _ => "",
        };
        format!("{label}{held} {name} = {tag};")
    }

    /// Without comments and with single spaces.
    fn bare(text: &str) -> String {
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_proto_file_says_what_the_types_say() {
        let source = include_str!("messages.rs");
        let (types, _) = source.split_once("\nimpl Tenant").expect("the types come first");
        let (_, types) = types.split_once("/// A host asks for its first").expect("the first");
        let made = bare(&proto_of(&format!("/// A{types}")));
        let file = include_str!("../agents.proto");
        let (head, messages) = file.split_once("\nmessage ").expect("messages");
        assert_eq!(made, bare(&format!("message {messages}")));
        for path in [JOIN, RENEW, FOLLOW] {
            let (service, call) = path.trim_start_matches('/').split_once('/').expect("a path");
            let (package, service) = service.rsplit_once('.').expect("a package");
            assert!(head.contains(&format!("package {package};")), "{head}");
            assert!(head.contains(&format!("service {service} {{")), "{head}");
            assert!(head.contains(&format!("rpc {call}(")), "{head}");
        }
    }

    #[test]
    fn a_digest_changes_with_anything_but_the_version() {
        let one = Tenant { name: "gold".into(), version: 7, ..Tenant::default() };
        let other = Tenant { version: 8, ..one.clone() };
        assert_eq!(one.digest(), other.digest());
        let vm = Vm { name: "a".into(), ..Vm::default() };
        assert_ne!(one.digest(), Tenant { vms: vec![vm], ..one.clone() }.digest());
        assert_ne!(one.digest(), Tenant { name: "bulk".into(), ..one.clone() }.digest());
    }
}
