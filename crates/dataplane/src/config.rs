//! The agent's configuration of the datapath, and the datapath's answers.

use crate::attach::Mode;
use crate::error::Error;
use crate::eyeq::intf::Settings;
use crate::shaper::{External, Kind, MAX_PAIRS};
use crate::tags::{CodePoints, GuestDscp};
use crate::vcc::budget::Class;
use crate::vcc::{self, Law};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use weir_units::{Bytes, HostId, PairId, Rate, Span, TenantId, VmId};

/// The largest tables of pairs: about 20 MB of the kernel's memory.
const MAX_ENTRIES: u32 = 1 << 16;
/// The largest table of connections of one VM: some 200 MB.
const MAX_FLOWS: u32 = 1 << 20;

/// Configuration of one agent's datapath.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the agent on this machine: letters, digits and hyphens, at most 32.
    pub instance: String,
    /// A mounted bpffs. Pins go under `weir/<instance>/`.
    pub bpffs: PathBuf,
    /// Lock, journal and heartbeat go under `<instance>/` here. A tmpfs is best.
    pub run_dir: PathBuf,
    /// The interface toward the network, in this thread's network namespace.
    pub uplink: String,
    /// Its line rate, on layer 2 without FCS.
    pub uplink_rate: Rate,
    /// The floor of what this host itself sends by the uplink; zero: it has none, and no limit
    /// either.
    pub host_floor: Rate,
    /// What carries VMs' packets to other hosts, if not the uplink as they are.
    pub tunnels: Tunnels,
    /// This host's VMs.
    pub ports: Vec<Port>,
    /// The directory: addresses of all VMs of all hosts.
    pub endpoints: Vec<Endpoint>,
    /// The directory: endpoints that stand for addresses outside the cloud.
    pub outside: Vec<Outside>,
    /// Addresses and ports of the agents of all hosts, which are closed to VMs.
    pub controls: Vec<SocketAddr>,
    /// Floor of each VM's traffic without a pair floor.
    pub default_rate: Rate,
    /// Bound on pairs that send from here and have a class. The tables of pairs have room for as
    /// many at least.
    pub max_pairs: u32,
    /// Bound on the pairs on which one VM sends, and on those on which it receives.
    pub pairs_per_vm: u32,
    /// How programs are attached; `None` takes TCX where the kernel has it.
    pub attach: Option<Mode>,
    /// ECN marks are a signal: pairs leave ECN-capable, and guests get their own ECN back. Equal on
    /// all hosts.
    pub ecn: bool,
    /// A gap in a pair's sequence that stays open for so long is a loss.
    pub reorder_window: Span,
    /// One packet to each other host in this time carries the time at which it leaves; `None`: none does.
    pub timed_every: Option<Span>,
    /// Choice of the shaper. `None` takes departure times if the uplink is faster than
    /// [`HTB_CARRIES`](crate::shaper::HTB_CARRIES), the kernel has fq, and the uplink's root qdisc
    /// is the kernel's default. Otherwise it takes HTB.
    pub shaper: Option<Kind>,
    /// Observe mode: packets are counted and levels are kept, but no packet is changed, delayed or
    /// dropped. May change while an agent runs.
    pub observe: bool,
    /// EyeQ's programs meter, send and read feedback. Without them only losses and marks are
    /// counted.
    pub eyeq: Option<EyeQ>,
    /// VMs of this host whose connections are translated. A translation that the host cannot do is
    /// reported ([`Dataplane::translations`](crate::Dataplane::translations)) and stops nothing
    /// else.
    pub translations: BTreeMap<VmId, Law>,
    /// Policing: octets that these VMs' guests may send beyond the window that they were shown.
    pub policing: BTreeMap<VmId, u32>,
    /// Window budgets of this host's VMs: their classes, with the shares that they have until their
    /// connections are counted. What cannot be had is told
    /// ([`Dataplane::budgets`](crate::Dataplane::budgets)), and stops nothing else.
    pub budgets: BTreeMap<VmId, Vec<Class>>,
    /// Bound on connections of one VM that are known to its translation and its budget.
    pub flows_per_vm: u32,
    /// Code points that tenants may be tagged with: no guest's packet carries one. Equal on all
    /// hosts.
    pub code_points: CodePoints,
}

/// Tunnels between the VMs' ports and the uplink: packets have the VMs' headers where they enter
/// these devices, and none of theirs on the uplink.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tunnels {
    /// Devices that put an outer header before each packet (VXLAN), in this thread's network
    /// namespace.
    pub interfaces: Vec<String>,
    /// Octets of that header, with its Ethernet header: VXLAN has 50 over IPv4 and 70 over IPv6.
    pub overhead: u32,
}

/// Code points that EyeQ's packets carry, and whose they are.
const LOWER_EFFORT: u8 = 1;
const LOW: &str = "that of VMs of best effort under EyeQ";
const CONTROL: u8 = 48;
const FEEDBACK: &str = "that of EyeQ's feedback";

/// More octets than any tunnel adds.
const MAX_OVERHEAD: u32 = 512;

/// What became of a VM's window budget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bounded {
    /// The VM.
    pub vm: VmId,
    /// Why its connections are not bounded.
    pub refused: Option<String>,
    /// Live connections by class, and what each of them may have, octets; empty if it is refused.
    pub classes: Vec<(u32, u32)>,
    /// What its port did so far, while it has a budget.
    pub counters: Option<vcc::intf::Counters>,
}

/// What became of a VM's wish for a translation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Translated {
    /// The VM.
    pub vm: VmId,
    /// Translation of new connections; `None` where only older connections are still translated.
    pub asked: Option<Law>,
    /// Reason why new connections are not translated.
    pub refused: Option<String>,
    /// Counters of its port, while it has programs.
    pub counters: Option<vcc::intf::Counters>,
}

/// EyeQ's configuration of this host and its peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EyeQ {
    /// This host's address, to and from which feedback goes. The interface that has it sends.
    pub address: Ipv4Addr,
    /// Settings of meters and messages; `via` and `address` are filled in here.
    pub settings: Settings,
    /// With departure times: how far ahead a pair's packet may be scheduled. At most, and by
    /// default, 250 ms.
    pub departs_within: Option<Span>,
    /// Host of each VM of the directory, by address.
    pub hosts: BTreeMap<VmId, Ipv4Addr>,
}

/// A VM's port: the host's end of its veth, or its tap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The VM.
    pub vm: VmId,
    /// Its tenant.
    pub tenant: TenantId,
    /// The interface, in this thread's network namespace. An endpoint for the outside has the
    /// interface that leads there, which several such endpoints may share.
    pub interface: String,
    /// The only MAC address that may send there; any if absent.
    pub mac: Option<[u8; 6]>,
    /// The VM's floor toward the network, on layer 2 without FCS.
    pub floor_out: Rate,
    /// Its maximum; the uplink's rate if absent.
    pub cap_out: Option<Rate>,
    /// Its hose for addresses that no directory lists.
    pub external: External,
    /// Best effort: switches let its packets wait for all others (EyeQ §3.5).
    pub best_effort: bool,
    /// What becomes of the code points that its guest writes.
    pub dscp: GuestDscp,
}

/// An address of a VM. It is local if the VM has a port here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The address; one per VM and network, unique in the directory.
    pub address: IpAddr,
    /// The VM.
    pub vm: VmId,
    /// The VM's tenant.
    pub tenant: TenantId,
    /// The VM's host.
    pub host: HostId,
    /// Hardware address at which VMs reach it if they share a bridge. Packets to its address at
    /// another hardware address are dropped.
    pub mac: Option<[u8; 6]>,
}

/// A prefix outside the cloud, and the endpoint of one tenant that stands for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outside {
    /// The first of them; what follows the prefix is ignored.
    pub address: IpAddr,
    /// Length of the prefix in bits. The longest one that fits counts.
    pub length: u8,
    /// The endpoint.
    pub vm: VmId,
    /// Its tenant: other tenants do not see it.
    pub tenant: TenantId,
}

/// The levels of one pair that sends from here, on layer 2 without FCS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PairRate {
    /// The pair.
    pub pair: PairId,
    /// Its floor, which also stands when the agent dies.
    pub floor: Rate,
    /// Its ceiling. What exceeds the floor is a lease of one second.
    pub ceiling: Rate,
}

/// End of a pair that is on this host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// The source.
    Tx,
    /// The destination.
    Rx,
}

/// First packet of a pair, or of a pair that was forgotten. The counters show the same later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The pair.
    pub pair: PairId,
    /// Which end is here. Two VMs of one host give one event each.
    pub direction: Direction,
    /// Whether the two share a hose.
    pub same_tenant: bool,
}

/// Counters of a pair that sends from here, cumulative since it appeared or reappeared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxCounters {
    /// On the wire, layer 2 without FCS, before the shaper.
    pub octets: Bytes,
    /// Of these, TCP segments that only acknowledge.
    pub acks: Bytes,
    /// How many segments all are.
    pub segments: u64,
    /// Octets that left the host with a number, after the shaper: their losses show.
    pub numbered: Bytes,
    /// Octets that left without a number, IPv6 and fragments: their losses do not show. Both
    /// counters stay zero within a host.
    pub unnumbered: Bytes,
    /// Segments that left with a number.
    pub left: u64,
    /// Octets that wait in its queue now; `None` if it is not known whether any do.
    pub waiting: Option<Bytes>,
    /// Of these, acknowledgements and what is as small.
    pub waiting_acks: Bytes,
}

/// Counters of a pair that receives here, cumulative since it appeared or reappeared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxCounters {
    /// On the wire, layer 2 without FCS.
    pub octets: Bytes,
    /// The same in segments.
    pub segments: u64,
    /// Of these, with a number. Wraps around at 2³².
    pub numbered: u64,
    /// Segments that the network lost: missing in the sequence for longer than the reorder window
    /// (IPv4, from other hosts). Never falls.
    pub lost: u64,
    /// Segments with the congestion mark.
    pub ce: u64,
    /// Segments that came after later ones (or twice).
    pub reordered: u64,
    /// Jumps of the sequence: the sending host began anew, or all segments between were lost.
    pub resyncs: u64,
    /// Packets without a number, told from numbered ones.
    pub strange: u64,
}

/// Counters of a port, cumulative.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Octets from the VM that passed.
    pub tx_octets: Bytes,
    /// The same in segments.
    pub tx_segments: u64,
    /// To the VM.
    pub rx_octets: Bytes,
    /// The same in segments.
    pub rx_segments: u64,
    /// Packets dropped because their source is not the VM's.
    pub spoofed: u64,
    /// Packets dropped because they are truncated or not what they say.
    pub malformed: u64,
    /// Packets to the default class that belong to no pair and go to no place: not IP, or addressed
    /// to the VM itself, the link or all hosts.
    pub unclassified: u64,
    /// Packets to the control class: ARP, neighbour discovery and DHCP requests.
    pub control: u64,
    /// Packets to the VM that belong to no pair and are not from outside.
    pub foreign: u64,
    /// Packets of pairs that found the table full. Alarm on these two.
    pub tx_full: u64,
    /// The same toward the VM.
    pub rx_full: u64,
    /// Events that found the ring full: late, not lost.
    pub events_lost: u64,
    /// Packets dropped because they came from another MAC address than the VM's.
    pub spoofed_mac: u64,
    /// Packets dropped because they went to an agent.
    pub control_denied: u64,
    /// Packets dropped because their pairs have no class and the rate that the VM's strays share is
    /// used up.
    pub stray: u64,
    /// Strays of no pair that were dropped because the same rate is used up.
    pub unpaired: u64,
    /// Packets dropped that only a router or a DHCP server may send.
    pub rogue: u64,
    /// Packets dropped that go to a VM's address at another VM's hardware address.
    pub misdirected: u64,
    /// From the VM to addresses that no directory lists, passed on.
    pub external_tx: Bytes,
    /// To the VM from such addresses.
    pub external_rx: Bytes,
    /// Segments dropped because they exceeded their pair's floor while no agent renewed its lease,
    /// or while packets might have missed the shaper.
    pub unleased: u64,
}

/// What the host itself sends by the uplink, if that has a floor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostTraffic {
    /// The rate that the host has in any case.
    pub floor: Rate,
    /// Octets sent so far, on layer 2 without FCS.
    pub octets: Bytes,
    /// Segments dropped because they would have waited too long; with HTB a super-packet counts once.
    pub dropped: u64,
}

/// A VM's external hose, as the kernel has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExternalHose {
    /// The VM.
    pub vm: VmId,
    /// Floor.
    pub floor: Rate,
    /// Ceiling.
    pub ceiling: Rate,
    /// Packets that its full queue dropped.
    pub dropped: u64,
}

/// All counters at one moment, in a buffer to be reused.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Pairs that send from here, in no order.
    pub tx: Vec<(PairId, TxCounters)>,
    /// Pairs that receive here, in no order.
    pub rx: Vec<(PairId, RxCounters)>,
    /// Ports, in the order of the configuration; one that several share goes by the first.
    pub ports: Vec<(VmId, PortCounters)>,
}

impl Config {
    /// Refuses an impossible configuration before anything is changed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Config(why));
        if self.max_pairs == 0 || self.max_pairs as usize > MAX_PAIRS {
            return refuse(format!("max_pairs is {}; 1 to {MAX_PAIRS} work", self.max_pairs));
        }
        if self.ports.len() > crate::programs::MAX_PORTS as usize {
            return refuse(format!("{} ports are more than a host can have", self.ports.len()));
        }
        if self.pairs_per_vm == 0 || self.pairs_per_vm > MAX_ENTRIES {
            let wrong = self.pairs_per_vm;
            return refuse(format!("pairs_per_vm is {wrong}; 1 to {MAX_ENTRIES} work"));
        }
        if self.flows_per_vm == 0 || self.flows_per_vm > MAX_FLOWS {
            let wrong = self.flows_per_vm;
            return refuse(format!("flows_per_vm is {wrong}; 1 to {MAX_FLOWS} work"));
        }
        if self.eyeq.is_some() && self.shaper.is_none() {
            return refuse("EyeQ's periods follow the shaper: choose one".into());
        }
        for (point, whose) in [(0, "the shared queue's"), (LOWER_EFFORT, LOW), (CONTROL, FEEDBACK)]
        {
            if self.code_points.has(point) && (point == 0 || self.eyeq.is_some()) {
                return refuse(format!("code point {point} cannot be a tag: it is {whose}"));
            }
        }
        let mut vms = BTreeSet::new();
        // Interfaces, with whether each leads outside.
        let mut interfaces = BTreeMap::from([(self.uplink.as_str(), false)]);
        for tunnel in &self.tunnels.interfaces {
            if interfaces.insert(tunnel, false).is_some() {
                return refuse(format!("interface {tunnel} is named twice"));
            }
        }
        if self.tunnels.overhead > MAX_OVERHEAD {
            let wrong = self.tunnels.overhead;
            return refuse(format!(
                "a tunnel's overhead is {wrong} octets; {MAX_OVERHEAD} is more than any has"
            ));
        }
        for port in &self.ports {
            if !vms.insert(port.vm) {
                return refuse(format!("{} has two ports", port.vm));
            }
            let outward = self.is_outward(port.vm);
            let before = interfaces.insert(&port.interface, outward);
            if before.is_some_and(|before| !(before && outward)) {
                return refuse(format!("interface {} is named twice", port.interface));
            }
            if !outward && !self.endpoints.iter().any(|e| e.vm == port.vm) {
                return refuse(format!("{} has a port but no address", port.vm));
            }
        }
        self.check_addresses()
    }

    /// Whether a VM stands for the outside, so that its port leads there.
    pub(crate) fn is_outward(&self, vm: VmId) -> bool {
        self.outside.iter().any(|o| o.vm == vm)
    }

    /// How many entries the tables of pairs have: enough for all VMs' places, in powers of two, so
    /// that one more VM seldom means new tables.
    pub(crate) fn table_size(&self) -> u32 {
        let wanted = self.pairs_per_vm.saturating_mul(self.ports.len() as u32);
        let size = wanted.min(MAX_ENTRIES).next_power_of_two().min(MAX_ENTRIES);
        if wanted <= self.max_pairs { self.max_pairs } else { size.max(self.max_pairs) }
    }

    fn check_addresses(&self) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Config(why));
        let mut addresses = BTreeSet::new();
        for endpoint in &self.endpoints {
            let mapped = matches!(endpoint.address, IpAddr::V6(a) if a.to_ipv4_mapped().is_some());
            if mapped || endpoint.address.is_unspecified() || endpoint.address.is_multicast() {
                return refuse(format!("{} is no address of a VM", endpoint.address));
            }
            if !addresses.insert(endpoint.address) {
                return refuse(format!("address {} is in the directory twice", endpoint.address));
            }
        }
        if let Some(host) = self.controls.iter().find(|c| addresses.contains(&c.ip())) {
            return refuse(format!("{} is the address of a host and of a VM", host.ip()));
        }
        let mut prefixes = BTreeSet::new();
        for outside in &self.outside {
            let shown = format!("{}/{}", outside.address, outside.length);
            let most = if outside.address.is_ipv4() { 32 } else { 128 };
            if outside.length > most {
                return refuse(format!("{shown} is no prefix: its length is at most {most}"));
            }
            if let Some(vm) = self.endpoints.iter().find(|e| e.vm == outside.vm) {
                let (vm, address) = (vm.vm, vm.address);
                return refuse(format!("{vm} stands for {shown} and has {address} inside"));
            }
            if !prefixes.insert(crate::outside::key(outside)) {
                let tenant = outside.tenant;
                return refuse(format!("{shown} is there twice for {tenant}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let port = |n: u32| Port {
            vm: VmId(n),
            tenant: TenantId(1),
            interface: format!("port{n}"),
            mac: None,
            floor_out: Rate::from_mbps(1),
            cap_out: None,
            external: External::default(),
            best_effort: false,
            dscp: GuestDscp::Clear,
        };
        let endpoint = |n: u32| Endpoint {
            address: Ipv4Addr::new(10, 0, 0, n as u8).into(),
            vm: VmId(n),
            tenant: TenantId(1),
            host: HostId(0),
            mac: None,
        };
        Config {
            instance: "test".into(),
            bpffs: "/sys/fs/bpf".into(),
            run_dir: "/run/weir".into(),
            uplink: "uplink".into(),
            uplink_rate: Rate::from_mbps(100),
            host_floor: Rate::ZERO,
            tunnels: Tunnels::default(),
            ports: vec![port(1), port(2)],
            endpoints: vec![endpoint(1), endpoint(2), endpoint(3)],
            outside: vec![outside(4, "0.0.0.0", 0), outside(4, "2001:db8::", 32)],
            controls: vec![(Ipv4Addr::new(10, 255, 0, 1), 7001).into()],
            default_rate: Rate::from_mbps(1),
            max_pairs: 16,
            pairs_per_vm: 8,
            attach: None,
            ecn: false,
            reorder_window: Span::from_millis(1),
            timed_every: None,
            shaper: None,
            observe: false,
            eyeq: None,
            translations: BTreeMap::new(),
            policing: BTreeMap::new(),
            budgets: BTreeMap::new(),
            flows_per_vm: 64,
            code_points: CodePoints::of([10, 12]),
        }
    }

    fn outside(vm: u32, address: &str, length: u8) -> Outside {
        let address = address.parse().unwrap();
        Outside { address, length, vm: VmId(vm), tenant: TenantId(1) }
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut Config)) -> String {
        let mut changed = config();
        change(&mut changed);
        changed.check().unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        config().check().unwrap();
        let message = |rest: &str| format!("datapath configuration: {rest}");
        let cases = [
            (refused(|c| c.max_pairs = 0), "max_pairs is 0; 1 to 4096 work"),
            (refused(|c| c.max_pairs = 5000), "max_pairs is 5000; 1 to 4096 work"),
            (refused(|c| c.flows_per_vm = 0), "flows_per_vm is 0; 1 to 1048576 work"),
            (refused(|c| c.ports[1].vm = VmId(1)), "vm1 has two ports"),
            (refused(|c| c.ports[1].interface = "port1".into()), "interface port1 is named twice"),
            (refused(|c| c.uplink = "port2".into()), "interface port2 is named twice"),
            (refused(|c| c.ports[1].vm = VmId(9)), "vm9 has a port but no address"),
            (
                refused(|c| c.endpoints[2].address = c.endpoints[0].address),
                "address 10.0.0.1 is in the directory twice",
            ),
            (
                refused(|c| c.endpoints[2].address = "::ffff:10.0.0.9".parse().unwrap()),
                "::ffff:10.0.0.9 is no address of a VM",
            ),
            (
                refused(|c| c.endpoints[2].address = "239.1.1.1".parse().unwrap()),
                "239.1.1.1 is no address of a VM",
            ),
            (refused(|c| c.pairs_per_vm = 0), "pairs_per_vm is 0; 1 to 65536 work"),
            (
                refused(|c| {
                    let address = Ipv4Addr::new(10, 255, 0, 1);
                    let (settings, hosts) = (Settings::default(), BTreeMap::new());
                    c.eyeq = Some(EyeQ { address, settings, departs_within: None, hosts });
                }),
                "EyeQ's periods follow the shaper: choose one",
            ),
            (
                refused(|c| c.controls[0] = "10.0.0.3:7001".parse().unwrap()),
                "10.0.0.3 is the address of a host and of a VM",
            ),
            (
                refused(|c| c.outside[0].length = 33),
                "0.0.0.0/33 is no prefix: its length is at most 32",
            ),
            (
                refused(|c| c.outside[0].vm = VmId(3)),
                "vm3 stands for 0.0.0.0/0 and has 10.0.0.3 inside",
            ),
            (
                refused(|c| c.outside.push(outside(5, "9.9.9.9", 0))),
                "9.9.9.9/0 is there twice for tenant1",
            ),
        ];
        for (got, want) in cases {
            assert_eq!(got, message(want));
        }
    }

    #[test]
    fn only_ports_that_lead_outside_are_shared() {
        let mut shared = config();
        shared.outside.push(outside(5, "192.0.2.0", 24));
        for vm in [4, 5] {
            let port = Port { vm: VmId(vm), interface: "out".into(), ..shared.ports[0].clone() };
            shared.ports.push(port);
        }
        shared.check().unwrap();
        shared.ports[2].interface = "port1".into();
        assert!(shared.check().is_err());
    }

    #[test]
    fn tables_have_room_for_all_vms_and_grow_seldom() {
        let mut config = config();
        let mut size = |pairs_per_vm, max_pairs| {
            (config.pairs_per_vm, config.max_pairs) = (pairs_per_vm, max_pairs);
            config.table_size()
        };
        assert_eq!(size(8, 16), 16);
        assert_eq!(size(8, 15), 16);
        assert_eq!(size(9, 16), 32);
        assert_eq!(size(512, 4096), 4096);
        assert_eq!(size(1 << 16, 4096), 1 << 16);
    }
}
