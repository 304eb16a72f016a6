//! Names, addresses and paths of a world: decided before anything is made.
//!
//! Problem   Thousands of devices need names, indices, addresses and forwarding entries that agree.
//! Approach  All of them follow from positions in the scenario, so nothing is looked up afterwards.
//! Promises  Deterministic. A topology that the lab cannot carry (a host with two uplinks, or one that
//!           cannot be reached) is refused here, before anything exists.
//! Not here  Making it: see `world`.

use crate::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_model::net::Prefix;
use weir_model::scenario::{AttackKind, Attacker, IpVersion, Scenario, TrafficKind};
use weir_units::SortedSet;

/// Interface index of the bridge in every host and switch.
pub(crate) const BRIDGE: u32 = 2;
/// Interface index of a host's uplink, and of a VM's `eth0`.
pub(crate) const UPLINK: u32 = 3;
/// Interface index of the port of VM 0 on its host, and of link 0 on a switch.
const FIRST_PORT: u32 = 16;
/// Port of the agents' control messages, in each host's own namespace.
pub(crate) const CONTROL_PORT: u16 = 7001;
/// What addresses and interface names have room for.
const MAX_VMS: usize = 60_000;
const MAX_TENANTS: usize = 250;

/// Where traffic of a scenario goes in its world.
pub(crate) struct Plan {
    /// `ways[switch][host]`: the links on which a switch forwards to a host; several where paths are
    /// equal.
    pub(crate) ways: Vec<Vec<Vec<usize>>>,
    /// Whether links form a loop: what a switch floods would go round in it.
    pub(crate) has_loop: bool,
    /// `uplink[host]`: the host's only link.
    pub(crate) uplink: Vec<usize>,
    /// VMs that exchange packets with a VM: `peers[vm]`.
    pub(crate) peers: Vec<SortedSet<usize>>,
    /// The same for the hosts of these VMs.
    pub(crate) host_peers: Vec<SortedSet<usize>>,
    /// Hosts that a VM attacks: it knows where they are.
    pub(crate) attacked: Vec<SortedSet<usize>>,
}

impl Plan {
    /// Plans a world for `scenario`, or says what cannot be done.
    pub(crate) fn new(scenario: &Scenario) -> Result<Self, Error> {
        refuse_what_is_not_supported(scenario)?;
        let hosts = scenario.topology.hosts.len();
        let uplink = uplinks(scenario)?;
        let ways = ways(scenario)?;
        // All is connected.
        let has_loop = scenario.topology.links.len() >= scenario.topology.nodes();
        let mut peers = vec![SortedSet::new(); scenario.vms.len()];
        let mut host_peers = vec![SortedSet::new(); hosts];
        for traffic in &scenario.traffic {
            peers[traffic.from].insert(traffic.to);
            peers[traffic.to].insert(traffic.from);
            let (a, b) = (scenario.vms[traffic.from].host, scenario.vms[traffic.to].host);
            if a != b {
                host_peers[a].insert(b);
                host_peers[b].insert(a);
            }
        }
        let mut attacked = vec![SortedSet::new(); scenario.vms.len()];
        for attack in &scenario.attacks {
            match (attack.from, attack.kind) {
                (Attacker::Vm(vm), AttackKind::Forge { to, .. }) => _ = peers[vm].insert(to),
                (Attacker::Vm(vm), AttackKind::Control { to, .. }) => _ = attacked[vm].insert(to),
                (Attacker::Host(host), AttackKind::Control { to, .. }) => {
                    host_peers[host].insert(to);
                }
                (_, AttackKind::Frames { .. }) => {}
                (Attacker::Host(_), AttackKind::Forge { .. }) => {}
            }
        }
        Ok(Self { ways, has_loop, uplink, peers, host_peers, attacked })
    }
}

/// A VM's address. It is unique over all tenants, because all VMs share one layer 2. The outside
/// has one of the addresses of its prefixes.
pub(crate) fn vm_address(scenario: &Scenario, vm: usize) -> Ipv4Addr {
    let tenant = scenario.vms[vm].tenant as u8 + 1;
    let (high, low) = ((vm / 250) as u8, (vm % 250) as u8 + 1);
    let inside = Ipv4Addr::new(10, tenant, high, low);
    let first = |p: &Prefix| match p.first() {
        IpAddr::V4(first) => Some(first.to_bits()),
        IpAddr::V6(_) => None,
    };
    let Some((prefix, first)) = scenario.vms[vm].outside.iter().find_map(|p| Some((*p, first(p)?)))
    else {
        return inside;
    };
    // The network of benchmarks (RFC 2544), if it may be that; else one near the first.
    let usual = Ipv4Addr::new(198, 18, high, low);
    let near = [vm as u32 + 1, 1].map(|n| Ipv4Addr::from_bits(first.saturating_add(n)));
    let mut wishes = [usual, near[0], near[1]].into_iter();
    wishes.find(|a| prefix.contains((*a).into())).unwrap_or(Ipv4Addr::from_bits(first))
}

/// The same for IPv6.
pub(crate) fn vm_address6(scenario: &Scenario, vm: usize) -> Ipv6Addr {
    let tenant = scenario.vms[vm].tenant as u16 + 1;
    let number = vm as u16 + 1;
    let inside = Ipv6Addr::new(0xfd57, 0, 0, tenant, 0, 0, 0, number);
    let first = |p: &Prefix| match p.first() {
        IpAddr::V6(first) => Some(first.to_bits()),
        IpAddr::V4(_) => None,
    };
    let Some((prefix, first)) = scenario.vms[vm].outside.iter().find_map(|p| Some((*p, first(p)?)))
    else {
        return inside;
    };
    // The network of documentation (RFC 3849).
    let usual = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number);
    let near = [u128::from(number), 1].map(|n| Ipv6Addr::from_bits(first.saturating_add(n)));
    let mut wishes = [usual, near[0], near[1]].into_iter();
    wishes.find(|a| prefix.contains((*a).into())).unwrap_or(Ipv6Addr::from_bits(first))
}

/// A VM's address of one version of IP.
pub(crate) fn vm_ip(scenario: &Scenario, vm: usize, ip: IpVersion) -> IpAddr {
    match ip {
        IpVersion::V4 => vm_address(scenario, vm).into(),
        IpVersion::V6 => vm_address6(scenario, vm).into(),
    }
}

/// Whether VMs have IPv6 addresses: only where the scenario uses IPv6, because IPv6 sends packets
/// of its own.
pub(crate) fn has_ip6(scenario: &Scenario) -> bool {
    scenario.traffic.iter().any(|traffic| traffic.ip == IpVersion::V6)
}

/// Whether some VM is not in the one network of all VMs.
pub(crate) fn has_outside(scenario: &Scenario) -> bool {
    scenario.vms.iter().any(|vm| !vm.outside.is_empty())
}

/// The address of a host's agent.
pub(crate) fn host_address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 255, (host / 250) as u8, (host % 250) as u8 + 1)
}

/// A locally administered hardware address of a VM (kind 1).
pub(crate) fn vm_mac(vm: usize) -> [u8; 6] {
    [0x02, 0x57, 0, 1, (vm >> 8) as u8, vm as u8]
}

/// A locally administered hardware address of a host (kind 2).
pub(crate) fn host_mac(host: usize) -> [u8; 6] {
    [0x02, 0x57, 0, 2, (host >> 8) as u8, host as u8]
}

/// Interface name of a VM's port on its host.
pub(crate) fn vm_port(vm: usize) -> String {
    format!("p{vm}")
}

/// Interface index of a VM's port on its host.
pub(crate) fn vm_port_index(vm: usize) -> u32 {
    FIRST_PORT + vm as u32
}

/// Name and index of the interface at `node`'s end of a link.
pub(crate) fn link_port(scenario: &Scenario, node: usize, link: usize) -> (String, u32) {
    if node < scenario.topology.hosts.len() {
        ("up0".into(), UPLINK)
    } else {
        (format!("l{link}"), FIRST_PORT + link as u32)
    }
}

fn unsupported(what: impl Into<String>, instead: impl Into<String>) -> Error {
    Error::Unsupported { what: what.into(), instead: instead.into() }
}

fn refuse_what_is_not_supported(scenario: &Scenario) -> Result<(), Error> {
    if let Some(link) = scenario.topology.links.iter().find(|link| link.rate.is_zero()) {
        return Err(unsupported(
            format!("link {} has a rate of zero", link.name),
            "give it a rate, such as 200Mbit",
        ));
    }
    if scenario.vms.len() > MAX_VMS || scenario.tenants.len() > MAX_TENANTS {
        return Err(unsupported(
            format!("{} VMs of {} tenants", scenario.vms.len(), scenario.tenants.len()),
            format!("at most {MAX_VMS} VMs of {MAX_TENANTS} tenants have room on one machine"),
        ));
    }
    for traffic in &scenario.traffic {
        if let TrafficKind::Udp { payload, .. } = &traffic.kind
            && !(1..=traffic.ip.udp_payload()).contains(&payload.get())
        {
            return Err(unsupported(
                format!("a UDP payload of {payload} in traffic {}", traffic.group),
                format!("use 1 to {} B: larger ones would be fragmented", traffic.ip.udp_payload()),
            ));
        }
    }
    Ok(())
}

fn uplinks(scenario: &Scenario) -> Result<Vec<usize>, Error> {
    let topology = &scenario.topology;
    let one = |host: usize| {
        let mut links = (0..topology.links.len())
            .filter(|&l| topology.links[l].a == host || topology.links[l].b == host);
        match (links.next(), links.next()) {
            (Some(link), None) => Ok(link),
            (first, _) => Err(unsupported(
                format!(
                    "host {} has {} links",
                    topology.hosts[host],
                    if first.is_some() { "several" } else { "no" }
                ),
                "give each host exactly one link",
            )),
        }
    };
    (0..topology.hosts.len()).map(one).collect()
}

/// For each switch and host the links on shortest paths to it.
fn ways(scenario: &Scenario) -> Result<Vec<Vec<Vec<usize>>>, Error> {
    let topology = &scenario.topology;
    let hosts = topology.hosts.len();
    let mut ways = vec![Vec::new(); topology.switches.len()];
    for (host, name) in topology.hosts.iter().enumerate() {
        let next = topology.forwarding_to(host).split_off(hosts);
        if next.iter().any(Vec::is_empty) {
            let what = format!("host {name} cannot be reached by all switches");
            return Err(unsupported(what, "connect all hosts and switches by links"));
        }
        for (to, links) in ways.iter_mut().zip(next) {
            to.push(links.iter().map(|link| link.link).collect());
        }
    }
    Ok(ways)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use weir_model::scenario::{Link, Topology};
    use weir_units::{Bytes, Rate, Span};

    /// A network without VMs or traffic.
    pub(crate) fn scenario(hosts: usize, switches: usize, links: &[(usize, usize)]) -> Scenario {
        let link = |(i, &(a, b)): (usize, &(usize, usize))| Link {
            name: format!("l{i}"),
            a,
            b,
            rate: Rate::from_mbps(100),
            buffer: Bytes::new(128_000),
            delay: Span::ZERO,
            queueing: Default::default(),
        };
        Scenario {
            name: "t".into(),
            title: String::new(),
            point: vec![],
            duration: Span::from_secs(1),
            warmup: Span::ZERO,
            sample: Span::from_millis(100),
            scale: 1.0,
            topology: Topology {
                hosts: (0..hosts).map(|h| format!("h{h}")).collect(),
                switches: (0..switches).map(|s| format!("s{s}")).collect(),
                links: links.iter().enumerate().map(link).collect(),
                ecmp: None,
            },
            vms: vec![],
            tenants: vec![],
            hoses: vec![],
            clock_drift: 0,
            lab: Default::default(),
            traffic: vec![],
            attacks: vec![],
            faults: vec![],
            mechanisms: vec![],
            binding: Default::default(),
            congested: vec![],
            expect: vec![],
        }
    }

    #[test]
    fn a_switch_forwards_to_each_host_by_the_first_link_of_the_way() {
        // h0, h1 - s0 - s1 - h2
        let plan = Plan::new(&scenario(3, 2, &[(0, 3), (1, 3), (3, 4), (4, 2)])).expect("a tree");
        assert_eq!(plan.ways, [[[0], [1], [2]], [[2], [2], [3]]]);
        assert_eq!((plan.uplink, plan.has_loop), (vec![0, 1, 3], false));
    }

    #[test]
    fn of_equal_links_a_switch_has_all_where_the_topology_uses_them_and_else_the_first() {
        // h0 - s0 = s1 - h1
        let mut two = scenario(2, 2, &[(0, 2), (2, 3), (2, 3), (3, 1)]);
        let plan = Plan::new(&two).expect("the first of two");
        assert_eq!(plan.ways, [[vec![0], vec![1]], [vec![1], vec![3]]]);
        assert!(plan.has_loop);
        two.topology.ecmp = Some(weir_model::scenario::Ecmp::Flow);
        let plan = Plan::new(&two).expect("both");
        assert_eq!(plan.ways, [[vec![0], vec![1, 2]], [vec![1, 2], vec![3]]]);
    }

    #[test]
    fn what_the_lab_cannot_carry_is_refused_by_name() {
        let text = |s: &Scenario| Plan::new(s).err().expect("refused").to_string();
        assert!(text(&scenario(1, 2, &[(0, 1), (0, 2)])).contains("h0 has several links"));
        assert!(text(&scenario(2, 1, &[(0, 2)])).contains("h1 has no links"));
        assert!(text(&scenario(2, 2, &[(0, 2), (1, 3)])).contains("h0 cannot be reached"));
    }

    #[test]
    fn no_two_vms_share_an_address() {
        let mut s = scenario(0, 0, &[]);
        let vm = |i: usize| weir_model::scenario::Vm {
            name: format!("v{i}"),
            tenant: i % 3,
            host: 0,
            floor_out: Rate::ZERO,
            floor_in: Rate::ZERO,
            cap_out: None,
            external: weir_model::scenario::External::default(),
            outside: Vec::new(),
            ecn: None,
            deaf: false,
            translated: true,
            policing: None,
            rack: true,
            backpressure: false,
            hoses: Vec::new(),
            budget: None,
        };
        s.vms = (0..1000).map(vm).collect();
        let addresses: SortedSet<_> = (0..1000)
            .flat_map(|vm| [IpVersion::V4, IpVersion::V6].map(|ip| vm_ip(&s, vm, ip)))
            .collect();
        assert_eq!(addresses.len(), 2000);
    }

    #[test]
    fn what_is_outside_has_an_address_that_it_stands_for() {
        let mut s = scenario(1, 0, &[]);
        let outside = |prefixes: &[&str]| {
            let outside = prefixes.iter().map(|p| p.parse().expect("a prefix")).collect();
            weir_model::scenario::Vm {
                name: "out".into(),
                tenant: 0,
                host: 0,
                floor_out: Rate::ZERO,
                floor_in: Rate::ZERO,
                cap_out: None,
                external: weir_model::scenario::External::default(),
                outside,
                ecn: None,
                deaf: false,
                translated: true,
                policing: None,
                rack: true,
                backpressure: false,
                hoses: Vec::new(),
                budget: None,
            }
        };
        for (prefixes, v4, v6) in [
            (&["0.0.0.0/0"][..], "198.18.0.1", "fd57:0:0:1::1"),
            (&["203.0.113.0/24", "::/0"], "203.0.113.1", "2001:db8::1"),
            (&["2001:db8:7::/48", "192.0.2.9/32"], "192.0.2.9", "2001:db8:7::1"),
        ] {
            s.vms = vec![outside(prefixes)];
            assert_eq!(vm_address(&s, 0).to_string(), v4);
            assert_eq!(vm_address6(&s, 0).to_string(), v6);
        }
    }
}
