//! What the agent tells the datapath, and what it is told back.

use crate::attach::Mode;
use crate::error::Error;
use crate::shaper::MAX_PAIRS;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use weir_units::{Bytes, PairId, Rate, TenantId, VmId};

/// All that one agent's datapath needs to know of its host.
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
    /// This host's VMs.
    pub ports: Vec<Port>,
    /// The directory: addresses of all VMs of all hosts.
    pub endpoints: Vec<Endpoint>,
    /// Floor of each VM's traffic without a pair floor.
    pub default_rate: Rate,
    /// Bound on pairs that send from here, and on pairs that receive here.
    pub max_pairs: u32,
    /// How programs are attached; `None` takes TCX where the kernel has it.
    pub attach: Option<Mode>,
}

/// A VM's port: the host's end of its veth, or its tap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// The VM.
    pub vm: VmId,
    /// Its tenant.
    pub tenant: TenantId,
    /// The interface, in this thread's network namespace.
    pub interface: String,
    /// The VM's floor toward the network, on layer 2 without FCS.
    pub floor_out: Rate,
    /// Its maximum; the uplink's rate if absent.
    pub cap_out: Option<Rate>,
}

/// An address of a VM. Local is what belongs to a port's VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The address; one per VM and network, unique in the directory.
    pub address: IpAddr,
    /// Whose it is.
    pub vm: VmId,
    /// The VM's tenant.
    pub tenant: TenantId,
}

/// The levels of one pair that sends from here, on layer 2 without FCS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PairRate {
    /// Which pair.
    pub pair: PairId,
    /// What it gets in any case. Stands also when the agent dies.
    pub floor: Rate,
    /// What it may use while others leave it: a lease of one second.
    pub ceiling: Rate,
}

/// Which end of a pair is here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// The source.
    Tx,
    /// The destination.
    Rx,
}

/// A pair that speaks for the first time, or again after it was forgotten. Its counters say the
/// same; this only comes at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Which pair.
    pub pair: PairId,
    /// Which end is here. Two VMs of one host give one event each.
    pub direction: Direction,
    /// Whether the two share a hose.
    pub same_tenant: bool,
}

/// What a pair sent from here, cumulative since it appeared or reappeared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxCounters {
    /// On the wire, layer 2 without FCS, before the shaper.
    pub octets: Bytes,
    /// The same in segments.
    pub segments: u64,
}

/// What a pair received here, cumulative since it appeared or reappeared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxCounters {
    /// On the wire, layer 2 without FCS.
    pub octets: Bytes,
    /// The same in segments.
    pub segments: u64,
    /// Segments that the network lost: missing in the sequence, and not come since (IPv4, from
    /// other hosts). One that was only overtaken may be among them for a moment; then the next
    /// lost one adds nothing. Never falls.
    pub lost: u64,
    /// Segments with the congestion mark.
    pub ce: u64,
    /// Segments that came after all, late (or twice).
    pub reordered: u64,
    /// Jumps of the sequence that are no loss: the sending host began anew.
    pub resyncs: u64,
}

/// What a port saw, cumulative.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// From the VM, passed on.
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
    /// Packets to the default class that belong to no pair.
    pub unclassified: u64,
    /// Packets to the control class: ARP and neighbour discovery.
    pub control: u64,
    /// Packets to the VM that belong to no pair.
    pub foreign: u64,
    /// Packets of pairs that found the table full. Alarm on these two.
    pub tx_full: u64,
    /// The same toward the VM.
    pub rx_full: u64,
    /// Events that found the ring full: late, not lost.
    pub events_lost: u64,
}

/// Everything at one moment, in a buffer to be reused.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Pairs that send from here, in no order.
    pub tx: Vec<(PairId, TxCounters)>,
    /// Pairs that receive here, in no order.
    pub rx: Vec<(PairId, RxCounters)>,
    /// Ports, in the order of the configuration.
    pub ports: Vec<(VmId, PortCounters)>,
}

impl Config {
    /// Refuses what cannot be meant, before anything is touched.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Config(why));
        if self.max_pairs == 0 || self.max_pairs as usize > MAX_PAIRS {
            return refuse(format!("max_pairs is {}; 1 to {MAX_PAIRS} work", self.max_pairs));
        }
        if self.ports.len() > crate::programs::MAX_PORTS as usize {
            return refuse(format!("{} ports are more than a host can have", self.ports.len()));
        }
        let (mut vms, mut interfaces) = (BTreeSet::new(), BTreeSet::from([self.uplink.as_str()]));
        for port in &self.ports {
            if !vms.insert(port.vm) {
                return refuse(format!("{} has two ports", port.vm));
            }
            if !interfaces.insert(&port.interface) {
                return refuse(format!("interface {} is named twice", port.interface));
            }
            if !self.endpoints.iter().any(|e| e.vm == port.vm) {
                return refuse(format!("{} has a port but no address", port.vm));
            }
        }
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn config() -> Config {
        let port = |n: u32| Port {
            vm: VmId(n),
            tenant: TenantId(1),
            interface: format!("port{n}"),
            floor_out: Rate::from_mbps(1),
            cap_out: None,
        };
        let endpoint = |n: u32| Endpoint {
            address: Ipv4Addr::new(10, 0, 0, n as u8).into(),
            vm: VmId(n),
            tenant: TenantId(1),
        };
        Config {
            instance: "test".into(),
            bpffs: "/sys/fs/bpf".into(),
            run_dir: "/run/weir".into(),
            uplink: "uplink".into(),
            uplink_rate: Rate::from_mbps(100),
            ports: vec![port(1), port(2)],
            endpoints: vec![endpoint(1), endpoint(2), endpoint(3)],
            default_rate: Rate::from_mbps(1),
            max_pairs: 16,
            attach: None,
        }
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
        ];
        for (got, want) in cases {
            assert_eq!(got, message(want));
        }
    }
}
