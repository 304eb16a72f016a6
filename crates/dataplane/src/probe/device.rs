//! The uplink and the VMs' ports: whether programs and queues can work on them.

use super::bypass::{Way, way_of};
use super::offload::offloads;
use super::{Finding, Roots, State, datapath, text};
use crate::nl::Socket;
use crate::nl::link::{self, Link};
use crate::surroundings;
use weir_units::Rate;

/// The uplink, its rate as configured, and the ports behind it.
pub fn uplink(roots: &Roots, name: &str, rate: Rate, ports: &[&str]) -> Vec<Finding> {
    let what = format!("uplink {name}");
    let device = roots.device(name);
    if !device.exists() {
        return vec![Finding::new(
            what,
            State::Cannot,
            "there is no such interface",
            "nothing can be enforced",
            "correct `uplink.interface`, or run it in the agent's network namespace",
        )];
    }
    let way = match way_of(&device) {
        Way::Through(kind) => Finding::fine(&what, kind),
        Way::Past(why) => Finding::new(
            &what,
            State::Cannot,
            why,
            "no queue and no program sees all that leaves this host",
            "name the physical device, or the bond or bridge that carries the VMs' traffic",
        ),
    };
    let mut findings = vec![
        way,
        speed(&what, text(&device.join("speed")).as_deref(), rate),
        mtu(roots, &what, name, ports),
        offloaded(&what, name),
    ];
    findings.extend(datapath::others(&what, name, datapath::Side::Uplink));
    findings
}

/// What the host itself sends by the uplink, with its floor if the configuration has one.
pub fn host_traffic(name: &str, floor: Option<Rate>) -> Finding {
    let what = format!("uplink {name}, the host's own traffic");
    match floor {
        Some(floor) => Finding::fine(what, format!("its floor is {floor}")),
        None => Finding::new(
            what,
            State::Costs,
            "it has neither floor nor limit",
            "storage or migration by this interface may take VMs' floors, and VMs may take all that \
             they leave",
            "a port of its own for its storage (docs/networks.md), or uplink.host_floor, unless the host sends \
             little by this interface",
        ),
    }
}

/// Each VM's port: name of the VM, name of the interface. `tunnels` are those that the configuration names.
pub fn ports(roots: &Roots, ports: &[(&str, &str)], tunnels: &[String]) -> Vec<Finding> {
    let links = Socket::open().and_then(|mut socket| link::list(&mut socket));
    let mut findings: Vec<Finding> =
        ports.iter().flat_map(|(vm, port)| self::port(roots, vm, port)).collect();
    match links {
        Ok(links) => findings.extend(around(&links, ports, tunnels)),
        Err(e) => findings.push(Finding::new(
            "what is around the ports",
            State::Unknown,
            e.to_string(),
            "a tunnel or a switch beside a port may carry its packets past our programs",
            "run it as root",
        )),
    }
    findings
}

/// What stands beside ports that keeps floors from being enforced.
fn around(links: &[Link], ports: &[(&str, &str)], tunnels: &[String]) -> Vec<Finding> {
    let names: Vec<&str> = ports.iter().map(|(_, port)| *port).collect();
    let told = surroundings::judge(links, &names, tunnels).into_iter().map(|trouble| {
        let vm = ports.iter().find(|(_, port)| *port == trouble.port).map_or("", |(vm, _)| vm);
        Finding::new(
            format!("port {} of {vm}, surroundings", trouble.port),
            State::Unenforced,
            trouble.found,
            "its losses do not show or its packets pass our programs by: its pairs keep to their floors, and \
             what passes by may take others'",
            trouble.remedy,
        )
    });
    told.collect()
}

fn port(roots: &Roots, vm: &str, name: &str) -> Vec<Finding> {
    let what = format!("port {name} of {vm}");
    let device = roots.device(name);
    if !device.exists() {
        return vec![Finding::new(
            what,
            State::Unenforced,
            "there is no such interface: the VM is not there, or has a device of its own \
             (vhost-user, vDPA, passthrough)",
            "none of its traffic is seen: it has no floor, and may take others'",
            "give the VM a tap or a veth on this host",
        )];
    }
    let mut findings = vec![match way_of(&device) {
        Way::Through(kind) => Finding::fine(&what, kind),
        Way::Past(why) => Finding::new(
            &what,
            State::Unenforced,
            why,
            "its packets pass no program and no queue of this host: it has no floor, and may take \
             others'",
            "give the VM a tap or a veth on this host",
        ),
    }];
    findings.extend(datapath::others(&what, name, datapath::Side::Port));
    findings
}

/// `speed` is sysfs's, in Mbit/s.
fn speed(what: &str, speed: Option<&str>, rate: Rate) -> Finding {
    let what = format!("{what}, rate");
    let known = speed.and_then(|s| s.parse::<i64>().ok()).filter(|mbps| *mbps > 0);
    let Some(mbps) = known else {
        let costs = "a rate above the line's promises more than there is";
        let remedy = "see that `uplink.rate` is the line's";
        return Finding::new(what, State::Unknown, "the device does not say", costs, remedy);
    };
    let line = Rate::from_mbps(mbps as u64);
    let found = format!("the line has {line}, the configuration says {rate}");
    if rate > line {
        let costs = "queues form where no floor is kept";
        let remedy = format!("uplink.rate = \"{mbps}Mbit\"");
        Finding::new(what, State::Cannot, found, costs, remedy)
    } else if rate < line {
        let remedy =
            format!("uplink.rate = \"{mbps}Mbit\", unless something else limits this host");
        Finding::new(what, State::Costs, found, "the rest of the line stays empty", remedy)
    } else {
        Finding::fine(what, found)
    }
}

fn mtu(roots: &Roots, what: &str, name: &str, ports: &[&str]) -> Finding {
    let what = format!("{what}, MTU");
    let of = |name: &str| text(&roots.device(name).join("mtu"))?.parse::<u32>().ok();
    let Some(own) = of(name) else {
        return Finding::new(what, State::Unknown, "not told", "", "");
    };
    let larger: Vec<String> = ports
        .iter()
        .filter_map(|port| of(port).filter(|mtu| *mtu > own).map(|mtu| format!("{port} {mtu}")))
        .collect();
    if larger.is_empty() {
        return Finding::fine(what, own.to_string());
    }
    Finding::new(
        what,
        State::Costs,
        format!("{own}; larger at {}", larger.join(", ")),
        "larger packets of these VMs are lost, or cut: fragments carry no sequence, their losses \
         go unseen",
        format!("ip link set dev {name} mtu …, or lower the ports'"),
    )
}

fn offloaded(what: &str, name: &str) -> Finding {
    let what = format!("{what}, offloads");
    let Ok(found) = offloads(name) else {
        return Finding::new(what, State::Unknown, "the device does not say", "", "");
    };
    if found.lro {
        return Finding::new(
            what,
            State::Costs,
            "LRO is on",
            "packets are merged beyond recognition: losses are counted wrongly, and bridged packets \
             may be lost",
            format!("ethtool -K {name} lro off"),
        );
    }
    match (found.gro, found.tso) {
        (true, true) => Finding::fine(what, "GRO and TSO are on"),
        (gro, _) => Finding::new(
            what,
            State::Costs,
            if gro { "TSO is off" } else { "GRO is off" },
            "the CPU cuts or counts each packet by itself",
            format!("ethtool -K {name} {} on", if gro { "tso" } else { "gro" }),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bypass::testing::Sysfs;
    use super::*;

    #[test]
    fn a_rate_beyond_the_line_cannot_be_kept_and_one_below_leaves_it_empty() {
        let rate = Rate::from_mbps(10_000);
        assert_eq!(speed("u", Some("10000"), rate).state, State::Fine);
        let slow = speed("u", Some("1000"), rate);
        assert_eq!(
            (slow.state, slow.remedy.as_str()),
            (State::Cannot, "uplink.rate = \"1000Mbit\"")
        );
        assert_eq!(speed("u", Some("25000"), rate).state, State::Costs);
        assert_eq!(speed("u", Some("-1"), rate).state, State::Unknown);
        assert_eq!(speed("u", None, rate).state, State::Unknown);
    }

    #[test]
    fn a_port_with_larger_packets_than_the_uplink_is_named() {
        let sysfs = Sysfs::new("mtu");
        for (name, mtu) in [("up0", "1500\n"), ("tap0", "9000\n"), ("tap1", "1500\n")] {
            sysfs.file(&format!("class/net/{name}/mtu"), mtu);
        }
        let found = mtu(&sysfs.roots(), "uplink up0", "up0", &["tap0", "tap1"]);
        assert_eq!(found.state, State::Costs);
        assert_eq!(found.found, "1500; larger at tap0 9000");
        assert_eq!(mtu(&sysfs.roots(), "u", "up0", &["tap1"]).state, State::Fine);
    }

    #[test]
    fn a_port_that_is_not_there_is_unenforced_and_says_what_it_may_be() {
        let sysfs = Sysfs::new("absent");
        let found = ports(&sysfs.roots(), &[("a", "vhost-user-1")], &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].state, State::Unenforced);
        assert!(found[0].what.contains("vhost-user-1 of a"), "{found:?}");
        assert!(found[0].found.contains("passthrough"), "{found:?}");
    }

    #[test]
    fn a_tunnel_beside_a_port_is_unenforced_by_the_vms_name_with_the_remedy() {
        let link = |index, name: &str, kind: &str, master| Link {
            device: crate::nl::Device { name: name.into(), index },
            kind: kind.into(),
            alias: String::new(),
            alternatives: Vec::new(),
            up: true,
            queue_length: 0,
            mtu: 0,
            master,
            carries: true,
            received: 0,
            unsent: 0,
        };
        let links =
            [link(1, "br", "bridge", 0), link(2, "tap0", "tun", 1), link(3, "gnv0", "geneve", 1)];
        let found = around(&links, &[("b", "tap9"), ("a", "tap0")], &[]);
        assert_eq!((found.len(), found[0].state), (1, State::Unenforced));
        assert_eq!(found[0].what, "port tap0 of a, surroundings");
        assert!(found[0].found.contains("gnv0") && found[0].remedy.contains("uplink.tunnels"));
        assert_eq!(around(&links, &[("a", "tap0")], &["gnv0".into()]), []);
    }

    #[test]
    fn a_virtual_function_as_a_port_is_unenforced_with_its_reason() {
        let sysfs = Sysfs::new("vf-port");
        sysfs.ethernet("eth0v3");
        sysfs.link("class/net/eth0v3/device/physfn", "../0000:3b:00.0");
        let found = ports(&sysfs.roots(), &[("a", "eth0v3")], &[]);
        assert_eq!(found[0].state, State::Unenforced);
        assert!(found[0].found.contains("SR-IOV"), "{found:?}");
    }
}
