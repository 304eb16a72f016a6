//! Tenants' tags on real hosts: set, moved and taken away by reloads, told and counted. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common::{Agent, UPLINK, World};
use std::fs;
use std::net::UdpSocket;
use std::time::Instant;
use weir_agent::client;
use weir_model::status::{Reply, Request, TenantUse};

const EACH: u64 = 10;
/// With Ethernet, IP and UDP.
const FRAME: u64 = 500 + 42;

/// Files of both hosts with this section on the tenant.
fn write(world: &World, tenant: &str) {
    for n in [1, 2] {
        let path = world.dir.join(format!("host{n}.toml"));
        let text = fs::read_to_string(&path).unwrap();
        let before = text.split("[[tenant]]").next().unwrap().trim_end().to_owned();
        let points = if before.contains("code_points") { "" } else { "code_points = [10, 12]\n" };
        let tenant =
            if tenant.is_empty() { String::new() } else { format!("[[tenant]]\n{tenant}\n") };
        fs::write(&path, format!("{points}{before}\n{tenant}")).unwrap();
    }
}

fn reload(world: &World, n: u32) -> Reply {
    let socket = client::socket_path(&world.dir.join("run"), &format!("host{n}"));
    client::ask(&socket, &Request::Reload).expect("it answers")
}

/// Queues for both code points at the switch's port toward host 2.
fn queues(world: &World) {
    world.tc("switch", "qdisc add dev sw2 root handle 1: htb default 1");
    for class in [1, 10, 12] {
        world.tc(
            "switch",
            &format!("class add dev sw2 parent 1: classid 1:{class} htb rate 100mbit burst 64k"),
        );
    }
    for point in [10, 12] {
        let to = format!("u32 match ip dsfield {:#x} 0xfc flowid 1:{point}", point << 2);
        world.tc("switch", &format!("filter add dev sw2 parent 1: protocol ip {to}"));
    }
}

/// Packets that passed the two queues.
fn passed(world: &World) -> [u64; 2] {
    let text = world.tc("switch", "-s class show dev sw2");
    [10, 12].map(|point| {
        let name = format!("class htb 1:{point} ");
        let of = text.lines().skip_while(|line| !line.starts_with(&name)).nth(1);
        of.unwrap().split_whitespace().nth(3).unwrap().parse().unwrap()
    })
}

/// Sends some, and waits until they are there: the uplinks and the switch have let them pass then.
fn send(from: &UdpSocket, to: &UdpSocket) {
    for _ in 0..EACH {
        from.send_to(&[0; 500], "10.0.0.2:9000").unwrap();
    }
    (0..EACH).for_each(|_| assert_eq!(to.recv(&mut [0; 600]).unwrap(), 500));
}

/// Classes of host 1's shaper that may use all of the uplink.
fn at_line(world: &World) -> usize {
    world.ceilings(1).matches(&format!("ceil {UPLINK}Mbit")).count()
}

fn of(agent: &Agent<'_>) -> TenantUse {
    let mut all = agent.top().tenants;
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn queue_of(agent: &Agent<'_>, from: &UdpSocket, to: &UdpSocket) -> String {
    let reasons = agent.explain_while(|| send(from, to));
    let told = reasons.iter().find(|reason| reason.starts_with("Queue on switches")).cloned();
    told.unwrap_or_else(|| panic!("{reasons:?}"))
}

/// Answers echo requests to host 2 with this code point, in the kernel's place, until the end.
fn answer_with(world: &World, point: u8, end: &std::sync::atomic::AtomicBool) {
    use rustix::net::{
        AddressFamily as Family, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto,
    };
    world.inside("host2", || {
        fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1").unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let icmp =
            rustix::net::socket_with(Family::INET, SocketType::RAW, flags, Some(ipproto::ICMP));
        let icmp = icmp.unwrap();
        rustix::net::sockopt::set_ip_tos(&icmp, point << 2).unwrap();
        while !end.load(std::sync::atomic::Ordering::Relaxed) {
            let mut octets = [0; 256];
            let got = rustix::net::recvfrom(&icmp, &mut octets[..], RecvFlags::empty());
            let Ok((got, _, Some(from))) = got else {
                crate::common::pause(1);
                continue;
            };
            let mut reply = octets[20..got].to_vec();
            if reply[0] != 8 {
                continue;
            }
            // A reply has another type, which the sum has in its first octet.
            reply[0] = 0;
            let sum = u16::from_be_bytes([reply[2], reply[3]]);
            let (sum, over) = sum.overflowing_add(0x0800);
            reply[2..4].copy_from_slice(&(sum + u16::from(over)).to_be_bytes());
            rustix::net::sendto(&icmp, &reply, SendFlags::empty(), &from).unwrap();
        }
    });
}

#[test]
fn code_points_that_do_not_survive_the_way_are_found() {
    let world = World::new();
    write(&world, "");
    let file = world.dir.join("host1.toml");
    let ways = || world.inside("host1", || weir_agent::try_ways(&file).unwrap());
    let [way] = &ways()[..] else { panic!("one other host") };
    assert_eq!((way.host.as_str(), way.survived.clone()), ("host2", [10, 12].into()));
    assert!(way.changed.is_empty() && way.silent.is_empty(), "{way:?}");
    let end = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = crate::common::StopAtEnd(&end);
        scope.spawn(|| answer_with(&world, 12, &end));
        crate::common::until("the other answers", 20, || !ways()[0].changed.is_empty());
        let way = ways().remove(0);
        assert_eq!((way.changed, way.survived), ([(10, 12)].into(), [12].into()));
    });
    let way = ways().remove(0);
    assert_eq!((way.silent, way.survived), ([10, 12].into(), [].into()));
}

#[test]
fn a_tenant_is_retagged_by_a_reload_and_its_queue_and_use_are_told() {
    let world = World::new();
    queues(&world);
    write(&world, "");
    let (one, two) = (world.start(1), world.start(2));
    let (from, to) = (world.udp(1), world.udp(2));
    to.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    send(&from, &to);
    assert_eq!(passed(&world), [0, 0], "the shared queue");
    let told = queue_of(&one, &from, &to);
    assert_eq!(told, "Queue on switches: the shared one.");

    write(&world, "name = \"t\"\nversion = 2\ncode_point = 10\nwhy = \"score 3.5, rank 1\"");
    let begun = Instant::now();
    assert!(matches!(reload(&world, 1), Reply::Done { .. }));
    send(&from, &to);
    let took = begun.elapsed();
    assert_eq!(passed(&world), [EACH, 0], "whoever sends tags, and nothing of before is late");
    eprintln!("reloaded, and the tag seen behind the switch, in {} ms", took.as_millis());
    let told = queue_of(&one, &from, &to);
    let own = "Queue on switches: tenant t's own, by code point 10 (score 3.5, rank 1).";
    assert_eq!(told, own);
    assert_eq!(of(&one).code_point, 10);
    assert_eq!(of(&two).code_point, 0, "it was not told yet");

    let before_free = at_line(&world);
    // Free, so that its only limit is the uplink; what is older changes nothing.
    write(&world, "name = \"t\"\nversion = 4\ncode_point = 12\nfree = true");
    assert!(matches!(reload(&world, 1), Reply::Done { .. }));
    let [before, _] = passed(&world);
    send(&from, &to);
    assert_eq!(passed(&world), [before, EACH]);
    assert!(queue_of(&one, &from, &to).contains("by code point 12; this host's uplink alone"));
    assert_eq!(at_line(&world), before_free + 1, "the pair's class: {}", world.ceilings(1));
    write(&world, "name = \"t\"\nversion = 3\ncode_point = 10");
    let Reply::Error { message } = reload(&world, 1) else { panic!("older than what is in force") };
    assert!(message.contains("version 3 of tenant `t` is older than 4, in force"), "{message}");
    let [before, sent] = passed(&world);
    send(&from, &to);
    assert_eq!(passed(&world), [before, sent + EACH]);

    // A successor has the tag of before until it knows better.
    write(&world, "name = \"t\"\nversion = 5");
    one.kill();
    let one = world.start(1);
    let counts = passed(&world);
    send(&from, &to);
    assert_eq!(passed(&world), counts, "the shared queue again");

    // What crossed the card, and not what the machine made of it, is the use.
    let (sent, received) = (of(&one).sent, of(&two).received);
    send(&from, &to);
    let grown = EACH * FRAME;
    assert_eq!((of(&one).sent - sent, of(&two).received - received), (grown, grown));
    assert_eq!((of(&one).received, of(&two).sent), (0, 0));
}
