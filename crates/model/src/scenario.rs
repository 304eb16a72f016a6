//! A scenario: one file, played in every world.
//!
//! Problem   A figure of a paper is a topology, tenants, traffic and a claim; every world must play
//!           the same, and a slip in the file must be found before an hour of playing.
//! Approach  [`File`] reads YAML (docs/scenarios.md) and resolves it into one [`Scenario`] per
//!           point of its sweep: all text parsed, all parameters substituted, `scale` applied, all
//!           names resolved to indices.
//! Promises  An [`Error`] names file, line and field, what is wrong and what would be right. A
//!           resolved scenario needs no further checks: it is connected, and its floors fit its
//!           links.
//! Not here  Playing it, and judging what was measured.

mod admission;
mod binding;
mod bound_run;
mod datacenter;
mod error;
mod expr;
mod file;
mod formula;
mod hoses;
mod mechanism;
mod resolve;
mod routes;
mod set;
mod spec;
mod topology;
mod workload;
pub(crate) mod yaml;

pub use binding::{Binding, Bound};
pub use bound_run::{BoundRun, Pace};
pub use datacenter::{Datacenter, DatacenterFile, is_datacenter};
pub use error::{Error, Place};
pub use file::File;
pub use hoses::{Hoses, SharedHose, VmHose};
pub use mechanism::{Mechanism, Translation};
pub use resolve::{is_metric, is_of_datacenter};
pub use routes::LinkDir;
pub use workload::{
    Arrivals, Ask, Cdf, Connections, Exec, Flows, Load, Memcached, OPEN_LOOP, Operation, Pauses,
    Pick, Request, Sizes, Spacing, open_loop, tcp_on_wire,
};

use crate::net::Prefix;
use weir_units::{Bytes, Rate, Span};

/// One playable point of a scenario file.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The scenario's name (`metadata.name`).
    pub name: String,
    /// A title of one line.
    pub title: String,
    /// The sweep point and parameters that made it, in the order of the file.
    pub point: Vec<(String, f64)>,
    /// Length of the run.
    pub duration: Span,
    /// Time at the start of the run that the judge ignores.
    pub warmup: Span,
    /// Width of a sample.
    pub sample: Span,
    /// Factor that was applied to links, floors, offered rates and A.
    pub scale: f64,
    /// Hosts, switches, links.
    pub topology: Topology,
    /// VMs; index = `VmId`.
    pub vms: Vec<Vm>,
    /// Tenant names; index = `TenantId`.
    pub tenants: Vec<String>,
    /// Hoses that some VMs of a tenant share; index = `HoseId`. Those of a tenant are in the order of
    /// their names.
    pub hoses: Vec<SharedHose>,
    /// Traffic; one entry per flow group between two VMs.
    pub traffic: Vec<Traffic>,
    /// Attacks: packets and messages that must not be believed.
    pub attacks: Vec<Attack>,
    /// Faults, in the order of time. Faults of agents need a mechanism with agents.
    pub faults: Vec<Fault>,
    /// By how many millionths, at most, a host's clock for packets is fast or slow in the simulator. The
    /// lab's hosts share a clock.
    pub clock_drift: u32,
    /// How the lab plays it. The simulator does not look at it.
    pub lab: Lab,
    /// Which mechanisms to play, in order.
    pub mechanisms: Vec<Mechanism>,
    /// How tenants are bound to queues, where a mechanism's label asks for it.
    pub binding: Binding,
    /// Links that the scenario says are congested at this point: names; a `none` run without a drop
    /// or mark there is invalid.
    pub congested: Vec<String>,
    /// Expectations of a good run.
    pub expect: Vec<Expectation>,
}

/// How the lab plays a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lab {
    /// Whether agents follow a real controller, instead of reading files.
    pub controller: bool,
}

/// Nodes and links. Nodes are hosts first (`0..hosts.len()`), then switches.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Host names; index = `HostId`.
    pub hosts: Vec<String>,
    /// Switch names; node index = `hosts.len()` + position.
    pub switches: Vec<String>,
    /// Full-duplex links.
    pub links: Vec<Link>,
    /// Use of equal paths; `None`: the first of them, by destination alone.
    pub ecmp: Option<Ecmp>,
}

/// Node that chooses among equal paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecmp {
    /// Switches, by addresses, protocol and ports: packets of one flow stay in order.
    Flow,
    /// Switches: each packet takes the next way.
    Packet,
    /// The sending host chooses per flow, by a number in the packet that switches use. The host
    /// distinguishes the paths but knows nothing else of them.
    Host,
}

/// A full-duplex link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name, for people and results; a direction is `NAME:a>b` with the node names.
    pub name: String,
    /// Node index.
    pub a: usize,
    /// Node index.
    pub b: usize,
    /// In each direction, layer 2 without FCS.
    pub rate: Rate,
    /// Drop-tail buffer of the port at each end.
    pub buffer: Bytes,
    /// Delay in one direction.
    pub delay: Span,
    /// Further treatment of packets at its ports and on it.
    pub queueing: Queueing,
}

impl Link {
    /// Whether the link needs more than a rate, a buffer and a marking threshold: delay, random
    /// loss, RED or several paths.
    pub fn is_more_than_a_queue(&self) -> bool {
        let Queueing { ecn: _, priorities: _, red, loss, paths } = &self.queueing;
        self.delay > Span::ZERO || red.is_some() || *loss > 0.0 || paths.is_some()
    }
}

/// Treatment of packets on a link beside queueing. Only switches mark and do RED, so a host's end
/// of the link does neither.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Queueing {
    /// ECN-capable packets get the congestion mark if the queue is longer than this.
    pub ecn: Option<Bytes>,
    /// Two queues: packets of best effort wait for all others, if the mechanism distinguishes them.
    /// The second queue holds at most half of the buffer.
    pub priorities: bool,
    /// Random early detection.
    pub red: Option<Red>,
    /// Part of packets lost at random.
    pub loss: f64,
    /// The link is a bundle of paths of different lengths.
    pub paths: Option<Paths>,
}

/// Random early detection (Floyd and Jacobson 1993). It marks ECN-capable packets and drops others,
/// with a probability that grows with the average queue from `min` to `max`, and always above
/// `max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// Average queue at which RED begins.
    pub min: Bytes,
    /// Average queue above which every packet is marked or dropped.
    pub max: Bytes,
    /// Probability just below `max`.
    pub probability: f64,
    /// Weight of the newest queue length in the average.
    pub weight: f64,
}

/// Paths side by side that share the link's rate and queue; path `i` takes `i × skew` longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Number of paths, from 2.
    pub count: u32,
    /// Extra delay of each path over the one before it.
    pub skew: Span,
    /// Choice of the path.
    pub by: PathBy,
}

/// How a path is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathBy {
    /// By addresses, protocol and ports: packets of one flow stay in order.
    Flow,
    /// Each packet takes the next path.
    Packet,
}

/// Hose of a VM for addresses that no directory lists, beside its floor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct External {
    /// Floor; the agents' default if absent.
    pub floor: Option<Rate>,
    /// Ceiling; the floor if absent.
    pub ceiling: Option<Rate>,
}

/// One VM on one host.
#[derive(Clone, Debug, PartialEq)]
pub struct Vm {
    /// Unique in the scenario.
    pub name: String,
    /// Index into `tenants`.
    pub tenant: usize,
    /// Index into `topology.hosts`.
    pub host: usize,
    /// Minimum rate to anyone of its tenant.
    pub floor_out: Rate,
    /// Minimum rate from anyone of its tenant.
    pub floor_in: Rate,
    /// Its further hoses, in the order of their numbers.
    pub hoses: Vec<VmHose>,
    /// Maximum rate out, if any.
    pub cap_out: Option<Rate>,
    /// Hose for addresses that no directory lists.
    pub external: External,
    /// Prefixes, if this is not a VM but the outside of the cloud as its tenant sees it. Its host
    /// is the gateway then.
    pub outside: Vec<Prefix>,
    /// Whether its guest speaks ECN; `None`: as the world's guests do.
    pub ecn: Option<bool>,
    /// Whether the guest ignores the marks that it agreed to answer: it neither lowers its window
    /// nor sends CWR.
    pub deaf: bool,
    /// Whether its port translates, where a mechanism has a translation.
    pub translated: bool,
    /// Octets that the guest may send beyond its window where its port translates; `None`: any
    /// number.
    pub policing: Option<Bytes>,
    /// Whether its guest's TCP finds losses by time and by probes (RACK-TLP, RFC 8985).
    pub rack: bool,
    /// Whether the guest's sockets own the octets that wait in the host's shaper, so that they wait
    /// instead of losing packets.
    pub backpressure: bool,
    /// The windows of its connections together, if its port bounds them.
    pub budget: Option<Budget>,
}

/// A constant total of windows for what a VM sends, divided among its live connections by their
/// weights (vCC §4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// All windows together.
    pub total: Bytes,
    /// Connections that may share it.
    pub flows_most: u32,
    /// Connections of no class are not bounded.
    pub classes: Vec<BudgetClass>,
}

/// Connections of one weight: those in which the VM sends in a group of traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetClass {
    /// The group.
    pub group: String,
    /// A connection's part, beside those of other weights.
    pub weight: u32,
}

/// Traffic from one VM to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// The flow group's name: results are given per group and per VM.
    pub group: String,
    /// Index into `vms`.
    pub from: usize,
    /// Index into `vms`.
    pub to: usize,
    /// When it starts.
    pub start: Span,
    /// When it stops.
    pub stop: Span,
    /// Version of IP.
    pub ip: IpVersion,
    /// Interval at which each of its connections is sampled, if it has a trace; only for long-lived
    /// TCP.
    pub trace: Option<Span>,
    /// What is sent.
    pub kind: TrafficKind,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpVersion {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

impl IpVersion {
    /// Octets of its header, without options.
    pub const fn header(self) -> u64 {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }

    /// The largest UDP payload that fits an Ethernet frame of 1500 octets.
    pub const fn udp_payload(self) -> u64 {
        1500 - 8 - self.header()
    }
}

/// What a source sends.
#[derive(Clone, Debug, PartialEq)]
pub enum TrafficKind {
    /// Long-lived TCP connections with unlimited data.
    Tcp {
        /// How many in parallel.
        connections: u32,
        /// Kernel name of the congestion control: pinned per socket.
        congestion: String,
    },
    /// UDP that does not react to losses.
    Udp {
        /// Offered rate on the wire while on, layer 2 without FCS.
        rate: Rate,
        /// Length of a burst; `None` = always on.
        on: Option<Span>,
        /// Pause between bursts.
        off: Option<Span>,
        /// UDP payload.
        payload: Bytes,
    },
    /// Requests; the next traffic entry has their answers.
    Request(Request),
    /// Answers to the requests of the traffic entry before this one; sizes are means.
    Reply {
        /// Octets of an answer.
        response: Bytes,
        /// Requests per second, if known.
        per_second: Option<f64>,
        /// Kernel name of the congestion control.
        congestion: String,
    },
    /// Short TCP flows, each on a new connection.
    Flows(Flows),
    /// One TCP connection that ends after a number of octets.
    Shuffle {
        /// Octets.
        octets: Bytes,
        /// Kernel name of the congestion control.
        congestion: String,
    },
    /// Requests to a real memcached; the next traffic entry has their answers.
    Memcached(Memcached),
    /// A real program.
    Exec(Exec),
}

/// Number with which an expectation compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Against {
    /// Whether the bounds apply to the difference; otherwise they apply to the ratio.
    pub difference: bool,
    /// The other number.
    pub other: Other,
}

/// Another number of the same point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Other {
    /// The same number under the mechanism with this label: the median of its valid runs.
    Mechanism(String),
    /// Another number of the same run.
    Metric(String),
}

/// Packets or control messages that are not what they say.
#[derive(Clone, Debug, PartialEq)]
pub struct Attack {
    /// For people.
    pub name: String,
    /// The senders.
    pub from: Attacker,
    /// What.
    pub kind: AttackKind,
    /// How many in a second.
    pub per_second: u32,
    /// When it starts.
    pub start: Span,
    /// When it stops.
    pub stop: Span,
}

/// The attacker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attacker {
    /// A VM; index into `vms`.
    Vm(usize),
    /// An attacker on a host, or on the network between hosts, without a key; index into
    /// `topology.hosts`.
    Host(usize),
}

/// What an attacker sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttackKind {
    /// UDP packets with another VM's address as their source.
    Forge {
        /// Whose address; index into `vms`.
        source: usize,
        /// The receiver; index into `vms`.
        to: usize,
        /// UDP payload.
        payload: Bytes,
    },
    /// Ethernet frames that belong to no pair of VMs or to another one, to a VM's hardware address.
    Frames {
        /// What they carry.
        kind: FrameKind,
        /// To whose address, for [`FrameKind::Misdirected`]; index into `vms`.
        addressed: Option<usize>,
        /// Whose hardware address they have; index into `vms`.
        to: usize,
        /// On layer 2, without FCS.
        size: Bytes,
    },
    /// Control messages to an agent, in the name of other hosts' agents.
    Control {
        /// How they were made.
        how: ControlAttack,
        /// To whose agent; index into `topology.hosts`.
        to: usize,
    },
}

/// Frames that belong to no pair of VMs, or say what only a switch may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// An EtherType that no host knows.
    UnknownType,
    /// IPv4 from the attacker's own address to the same address.
    OwnAddress,
    /// IPv6 within the link, from `fe80::` to `fe80::`.
    LinkLocal,
    /// IPv4 to 255.255.255.255, in a broadcast frame: `to` receives it as every VM does.
    Broadcast,
    /// IPv4 to another VM's address: packets of that pair, which never arrive where they are
    /// addressed.
    Misdirected,
    /// IPv4 from the attacker to `to`, as any traffic between VMs, with the mark of congestion
    /// (CE).
    Marked,
}

/// How false control messages are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlAttack {
    /// Octets that are no message at all: no version, no key, no length of one.
    Garbage,
    /// Well formed, with a tag that was guessed.
    Forged,
    /// Recorded on their way to this agent, and sent again.
    Replayed,
}

/// A fault or its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Time since the start of traffic.
    pub at: Span,
    /// The fault.
    pub kind: FaultKind,
}

/// Kinds of faults. Hosts are indices into `topology.hosts`, links into `topology.links`.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// The host's agent is killed without a chance to do anything (SIGKILL).
    KillAgent {
        /// The host.
        host: usize,
        /// Whether its guardian is killed in the same moment.
        guardian: bool,
    },
    /// A dead agent is started again, with the configuration it had.
    StartAgent {
        /// The host.
        host: usize,
    },
    /// The agent is asked to stop, which restores its host, and is started again.
    RestartAgent {
        /// The host.
        host: usize,
    },
    /// A VM's port vanishes from its host, and the agents learn that the VM is gone.
    StopVm {
        /// Index into `vms`.
        vm: usize,
    },
    /// A VM that was stopped gets a new port, and the agents learn of it.
    StartVm {
        /// Index into `vms`.
        vm: usize,
    },
    /// A part of a VM's plumbing on its host is broken, as an operator's tools or another program
    /// would do it. The agent has to find and repair it, or to report that it cannot.
    BreakPort {
        /// Index into `vms`.
        vm: usize,
        /// The part.
        part: PortPart,
    },
    /// Control messages are lost, delayed, repeated or reordered. A later fault of this kind for
    /// the same host replaces it.
    Control(ControlFault),
    /// A cable is pulled: packets sent into either end are lost. Routes stay.
    LinkDown {
        /// The link.
        link: usize,
    },
    /// The cable is plugged in again.
    LinkUp {
        /// The link.
        link: usize,
    },
    /// A host stands still with its VMs and its agent, and then continues.
    PauseHost {
        /// The host.
        host: usize,
        /// Time at which it continues.
        until: Span,
    },
    /// The clock of a host's agent jumps forward.
    StepClock {
        /// The host.
        host: usize,
        /// Length of the jump.
        by: Span,
    },
}

impl FaultKind {
    /// Whether the fault needs something that exists only with a mechanism.
    pub const fn is_of_agents(&self) -> bool {
        match self {
            Self::KillAgent { .. }
            | Self::StartAgent { .. }
            | Self::RestartAgent { .. }
            | Self::BreakPort { .. }
            | Self::Control(_)
            | Self::StepClock { .. } => true,
            Self::StopVm { .. }
            | Self::StartVm { .. }
            | Self::LinkDown { .. }
            | Self::LinkUp { .. }
            | Self::PauseHost { .. } => false,
        }
    }

    /// Key of the fault in a file.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::KillAgent { .. } => "kill-agent",
            Self::StartAgent { .. } => "start-agent",
            Self::RestartAgent { .. } => "restart-agent",
            Self::StopVm { .. } => "stop-vm",
            Self::StartVm { .. } => "start-vm",
            Self::BreakPort { .. } => "break-port",
            Self::Control(_) => "control",
            Self::LinkDown { .. } => "link-down",
            Self::LinkUp { .. } => "link-up",
            Self::PauseHost { .. } => "pause-host",
            Self::StepClock { .. } => "step-clock",
        }
    }
}

/// Parts of a VM's plumbing on its host, where HTB shapes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortPart {
    /// The filter that redirects the port's packets to the shaper is deleted.
    Redirection,
    /// A filter that lets all packets pass is put before it.
    ForeignFilter,
    /// The shaper's device is set down.
    ShaperDown,
    /// The shaper's device is deleted.
    ShaperGone,
    /// The root of the shaper's classes is deleted.
    RootQdisc,
    /// The port gets another name.
    Name,
}

impl PortPart {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Redirection,
        Self::ForeignFilter,
        Self::ShaperDown,
        Self::ShaperGone,
        Self::RootQdisc,
        Self::Name,
    ];

    /// Word for it in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redirection => "redirection",
            Self::ForeignFilter => "foreign-filter",
            Self::ShaperDown => "shaper-down",
            Self::ShaperGone => "shaper-gone",
            Self::RootQdisc => "root-qdisc",
            Self::Name => "name",
        }
    }
}

/// Faults of control messages on their last hop to a host's agent. They are independent of each
/// other.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlFault {
    /// Hosts of the agents.
    pub hosts: Vec<usize>,
    /// Part of messages that is lost.
    pub loss: f64,
    /// Part that arrives twice.
    pub duplicate: f64,
    /// Part that is held back, so that later messages overtake it.
    pub reorder: f64,
    /// Mean extra delay.
    pub delay: Span,
    /// Jitter: each message's delay differs by at most this much; not larger than `delay`.
    pub jitter: Span,
    /// Time at which it ends.
    pub until: Span,
}

/// What a good run shows: `metric` of the runs of `mechanism` lies within the bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Label of the mechanism; `None` = every mechanism.
    pub mechanism: Option<String>,
    /// Name of a field of a run's summary: `worst_floor_ratio`, `goodput.GROUP` (bit/s), …; all are
    /// listed in docs/scenarios.md.
    pub metric: String,
    /// If given, the bounds apply to the comparison of the number with another one.
    pub against: Option<Against>,
    /// If given, the bounds apply to the ratio of the result to the same result at another point of
    /// the sweep, which these parameters name.
    pub at: Option<Vec<(String, f64)>>,
    /// Lower bound.
    pub at_least: Option<f64>,
    /// Upper bound.
    pub at_most: Option<f64>,
    /// The expectation in words, for the table.
    pub says: String,
}
