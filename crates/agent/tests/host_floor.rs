//! The host's own traffic beside its VMs', with real agents and HTB. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common::guest::{counter, reload};
use crate::common::{FLOOR, StopAtEnd, World, pause, until};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The host's floor, Mbit/s, where the uplink has 100 and the VM's floor is 20.
const OWN: u64 = 30;

/// Gives host 1 a floor of its own.
fn configure(world: &World) {
    let file = world.dir.join("host1.toml");
    let text = fs::read_to_string(&file).unwrap();
    let with = format!("rate = \"100Mbit\", host_floor = \"{OWN}Mbit\" }}");
    fs::write(&file, text.replace("rate = \"100Mbit\" }", &with)).unwrap();
}

fn root(world: &World) -> String {
    let text = world.tc("host1", "qdisc show dev up");
    text.lines().find(|line| line.contains(" root ")).unwrap_or_default().to_owned()
}

/// Sends as much as is said until the flag is set.
fn flood(from: &UdpSocket, to: &str, mbps: u64, stop: &AtomicBool) {
    let (start, mut sent) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        let due = start.elapsed().as_secs_f64() * mbps as f64 * 1e6 / (1514.0 * 8.0);
        while f64::from(sent) < due {
            let _ = from.send_to(&[0; 1472], to);
            sent += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Octets that came to an interface.
fn received(world: &World, ns: &str, device: &str) -> u64 {
    let text = world.ip(ns, &format!("-s -j link show dev {device}"));
    let (_, rx) = text.split_once("\"rx\":{\"bytes\":").expect("counters");
    rx.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn a_host_with_htb_has_its_floor_beside_a_vm_that_borrows_and_is_told_of_it() {
    let world = World::new();
    configure(&world);
    let before = root(&world);
    let (one, two) = (world.start(1), world.start(2));
    assert!(root(&world).contains("htb 3e1: root"), "{}", root(&world));
    assert_eq!(counter(&one, "host.floor_bps"), OWN * 1_000_000);
    let stop = AtomicBool::new(false);
    let own = |host: &str| world.inside(host, || UdpSocket::bind("0.0.0.0:9000").unwrap());
    let (vm, host) = (world.udp(1), own("host1"));
    let (_vm_sink, _sink) = (world.udp(2), own("host2"));
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&vm, "10.0.0.2:9000", 80, &stop));
        let _stop = StopAtEnd(&stop);
        until("the pair borrows", 20, || one.pair().is_some_and(|pair| pair.rate_bps > 45_000_000));
        scope.spawn(|| flood(&host, "10.255.0.2:9000", 80, &stop));
        pause(3000);
        // Three seconds in which the machine had something else to do say nothing.
        let mut got = [0.0; 2];
        let holds = |[vm, own]: [f64; 2]| vm > 0.95 * FLOOR as f64 && own > 0.95 * OWN as f64;
        for _ in 0..3 {
            let read = || [received(&world, "vm2", "eth0"), counter(&one, "host.sent_octets")];
            let (start, before) = (Instant::now(), read());
            pause(3000);
            let (took, after) = (start.elapsed().as_secs_f64(), read());
            got = [0, 1].map(|i| (after[i] - before[i]) as f64 * 8.0 / took / 1e6);
            println!("the VM {:.1} Mbit/s, the host {:.1}", got[0], got[1]);
            if holds(got) {
                break;
            }
        }
        assert!(holds(got), "{got:?}");
        assert!(got.iter().sum::<f64>() < 103.0, "{got:?}");
    });
    assert!(counter(&one, "host.dropped_segments") > 0);
    assert_eq!(counter(&one, "shaper.late_drops"), 0);
    world.tc("host1", "qdisc del dev up root");
    until("its root is back", 3, || root(&world).contains("htb 3e1: root"));
    reload(&one);
    assert_eq!(counter(&one, "agent.reload_failures"), 0, "{}", one.log());
    assert_eq!(one.top().unenforced, [], "{}", one.log());
    // A crash, and a successor that takes over.
    one.kill();
    assert!(root(&world).contains("htb 3e1: root"), "in force without an agent");
    let one = world.start(1);
    one.stop();
    assert_eq!(root(&world), before, "as the operator had it");
    two.stop();
}

#[test]
fn a_host_whose_uplink_has_a_root_of_the_operators_is_refused_its_floor_by_name() {
    let world = World::new();
    configure(&world);
    world.tc("host1", "qdisc add dev up root handle 7: pfifo limit 100");
    let before = world.snapshot("host1");
    let refused = world.run(1, "agent", "host1.toml");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    let why = "root qdisc pfifo 7:0 of up exists already and does not belong to this agent: remove it, \
               or leave out uplink.host_floor";
    assert!(said.contains(why), "{said}");
    assert_eq!(world.snapshot("host1"), before);
}

#[test]
fn a_floor_of_the_host_that_leaves_its_vms_nothing_is_refused_with_its_line() {
    let world = World::new();
    configure(&world);
    let file = world.dir.join("host1.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"30Mbit\"", "\"98Mbit\"")).unwrap();
    let refused = world.run(1, "agent", "host1.toml");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(said.contains("host1.toml:8: uplink.host_floor: "), "{said}");
}

/// What host `n`'s own address is promised, Mbit/s.
const DISK: u64 = 30;

/// Gives both hosts an address of their own behind a port like a VM's, as for storage, and link 2 as
/// little as host 2 says that it has.
fn add_disks(world: &World) {
    let directory = world.dir.join("directory.yaml");
    let mut names = fs::read_to_string(&directory).unwrap();
    for n in [1, 2] {
        let host = format!("host{n}");
        world.ip(&host, "link add name disk type veth peer name diskport");
        world.ip(&host, &format!("addr add 10.1.0.{n}/24 dev disk"));
        world.ip(&host, "link set dev disk gso_max_segs 1 up");
        world.ip(&host, "link set dev diskport master br up");
        // Else the bridge answers for this address, and what comes takes no port.
        let own = "/proc/sys/net/ipv4/conf/all/arp_ignore";
        world.inside(&host, || fs::write(own, "1").unwrap());
        let id = n + 1;
        names += &format!(
            "  - {{name: disk{n}, id: {id}, tenant: disks, host: {host}, addresses: [10.1.0.{n}]}}\n"
        );
        let file = world.dir.join(format!("{host}.toml"));
        let text = fs::read_to_string(&file).unwrap();
        // Both together may send four times what comes in at host 2.
        let text = if n == 1 { text.replace("100Mbit", "400Mbit") } else { text };
        let vm = format!(
            "[[vm]]\nname = \"disk{n}\"\nport = \"diskport\"\nfloor_out = \"{DISK}Mbit\"\n\
             floor_in = \"{DISK}Mbit\"\n"
        );
        fs::write(&file, text + &vm).unwrap();
    }
    fs::write(&directory, names).unwrap();
    world.tc("switch", "qdisc add dev sw2 root tbf rate 100mbit burst 32k limit 128k");
}

/// Where an end of a flow is: its namespace, and the address there.
type End = (&'static str, &'static str);
const VMS: [End; 2] = [("vm1", "10.0.0.1"), ("vm2", "10.0.0.2")];
const DISKS: [End; 2] = [("host1", "10.1.0.1"), ("host2", "10.1.0.2")];

/// What TCP between two ends gets beside a flood between two others, and what the flood gets,
/// Mbit/s of payload and on the wire.
fn beside_a_flood(world: &World, tcp: [End; 2], flood_ends: [End; 2]) -> [f64; 2] {
    let bind = |(ns, at): End| world.inside(ns, || UdpSocket::bind((at, 9000)).unwrap());
    let (from, _sink) = (bind(flood_ends[0]), bind(flood_ends[1]));
    let listener = world.inside(tcp[1].0, || TcpListener::bind((tcp[1].1, 9001)).unwrap());
    let mut sender = world.inside(tcp[0].0, || TcpStream::connect((tcp[1].1, 9001)).unwrap());
    let (mut receiver, _) = listener.accept().unwrap();
    sender.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let (stop, came) = (AtomicBool::new(false), AtomicU64::new(0));
    let device = if flood_ends[1].0 == "vm2" { "eth0" } else { "disk" };
    let to = format!("{}:9000", flood_ends[1].1);
    let mut got = [0.0; 2];
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        scope.spawn(|| flood(&from, &to, 150, &stop));
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = sender.write(&[0; 16_384]);
            }
        });
        scope.spawn(|| {
            let mut octets = vec![0; 65_536];
            while !stop.load(Ordering::Relaxed) {
                let n = receiver.read(&mut octets).unwrap_or(0);
                came.fetch_add(n as u64, Ordering::Relaxed);
            }
        });
        pause(3000);
        let read = || [came.load(Ordering::Relaxed), received(world, flood_ends[1].0, device)];
        let (start, before) = (Instant::now(), read());
        pause(4000);
        let (took, after) = (start.elapsed().as_secs_f64(), read());
        got = [0, 1].map(|i| (after[i] - before[i]) as f64 * 8.0 / took / 1e6);
    });
    got
}

#[test]
fn an_address_of_the_host_behind_a_port_has_floors_in_both_directions_as_a_vm_has() {
    let world = World::new();
    add_disks(&world);
    let (one, two) = (world.start(1), world.start(2));
    // A full segment has 1448 octets of 1514 on the wire.
    let payload = |floor: u64| floor as f64 * 1448.0 / 1514.0;
    for (tcp, promised, beside, others) in [(VMS, FLOOR, DISKS, DISK), (DISKS, DISK, VMS, FLOOR)] {
        let mut got = [0.0; 2];
        // Seconds in which the machine had something else to do say nothing.
        let holds = |[stream, flood]: [f64; 2]| {
            stream > 0.9 * payload(promised) && flood > 0.95 * others as f64
        };
        for _ in 0..3 {
            got = beside_a_flood(&world, tcp, beside);
            println!("{}: TCP {:.1} Mbit/s beside a flood of {:.1}", tcp[0].0, got[0], got[1]);
            if holds(got) {
                break;
            }
        }
        assert!(holds(got), "TCP of {} and the flood beside it: {got:?}", tcp[0].0);
    }
    one.stop();
    two.stop();
}
