//! Packets to an address that is translated after the VM's port: a virtual service address, on the
//! host and on a gateway. The sender's agent cannot know where they go, so they use the VM's
//! external hose. Needs root.
#![allow(clippy::disallowed_methods)]

use crate::common::{Agent, StopAtEnd, World, pause, sh, until};
use std::fs;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_model::status::External;

/// An address that the directory does not have: RFC 5737 keeps it for examples.
const SERVICE: &str = "198.51.100.9";
const PAYLOAD: usize = 972;
/// With Ethernet, IP and UDP.
const FRAME: u64 = PAYLOAD as u64 + 42;
/// Mbit/s. The rate of strays is 2 % of the uplink: 2.
const FLOOR_MBPS: u64 = 4;
const CEILING_MBPS: u64 = 6;

/// Sends a's packets for [`SERVICE`] to b, in this namespace, whose bridge gets an address of the
/// VMs' network.
fn translate_in(world: &World, ns: &str) {
    world.ip(ns, "addr add 10.0.0.254/24 dev br");
    world.ip("vm1", &format!("route add {SERVICE} via 10.0.0.254"));
    let rules = world.dir.join("nat.nft");
    let text = format!(
        "table ip nat {{ chain before {{ type nat hook prerouting priority dstnat; \
         ip daddr {SERVICE} dnat to 10.0.0.2; }}; }}\n"
    );
    fs::write(&rules, text).unwrap();
    let netns = world.ns(ns);
    sh(&format!(
        "ip netns exec {netns} sysctl -q -w net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.br.send_redirects=0"
    ));
    sh(&format!("ip netns exec {netns} nft -f {}", rules.display()));
}

fn of_a(agent: &Agent<'_>) -> External {
    let all = agent.top().externals;
    all.iter().find(|one| one.vm == "a").unwrap_or_else(|| panic!("a in {all:?}")).clone()
}

/// 20 Mbit/s, of which the hose carries a part.
fn blast(socket: &UdpSocket, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..25 {
            let _ = socket.send_to(&[7; PAYLOAD], (SERVICE, 9000));
        }
        pause(10);
    }
}

fn receive(socket: &UdpSocket, came: &AtomicU64, stop: &AtomicBool) {
    let mut octets = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((size, from)) = socket.recv_from(&mut octets) {
            assert_eq!((size, from.ip().to_string().as_str()), (PAYLOAD, "10.0.0.1"));
            came.fetch_add(FRAME, Ordering::Relaxed);
        }
    }
}

fn a_service_address_has_the_external_hose(ns: &str) {
    let world = World::new();
    let file = world.dir.join("host1.toml");
    let text = fs::read_to_string(&file).unwrap();
    let more = format!(
        "external_floor = \"{FLOOR_MBPS}Mbit\"\nexternal_ceiling = \"{CEILING_MBPS}Mbit\"\n"
    );
    fs::write(&file, text + &more).unwrap();
    translate_in(&world, ns);
    let (one, two) = (world.start(1), world.start(2));
    let (from, to) = (world.udp(1), world.udp(2));
    to.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (stop, came) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| blast(&from, &stop));
        scope.spawn(|| receive(&to, &came, &stop));
        let _stop = StopAtEnd(&stop);
        until("it arrives", 10, || came.load(Ordering::Relaxed) > 100 * FRAME);
        let (mut best, mut most) = (0, 0);
        for _ in 0..3 {
            let (began, before) = (Instant::now(), came.load(Ordering::Relaxed));
            pause(2000);
            let octets = came.load(Ordering::Relaxed) - before;
            let bps = octets * 8_000 / began.elapsed().as_millis() as u64;
            (best, most) = (best.max(bps), most.max(bps));
        }
        assert!(most < CEILING_MBPS * 1_100_000, "{most} bit/s beyond the ceiling");
        // Strays would have 2 Mbit/s. How much more a busy machine sends is not asked.
        assert!(best > 3_000_000, "{best} bit/s: strangled");
        let told = of_a(&one);
        assert_eq!(
            (told.floor_bps, told.ceiling_bps),
            (FLOOR_MBPS * 1_000_000, CEILING_MBPS * 1_000_000)
        );
        assert!(told.sent > 500 * FRAME, "{told:?}");
        assert_eq!((told.unpaired, told.misdirected), (0, 0), "no stray");
        assert_eq!(one.pair(), None, "its host knows no pair");
        let received = two.pair().expect("b's host counts it in b's hose");
        assert_eq!(received.lost, 0, "nobody numbered it: {received:?}");
    });
    one.stop();
    two.stop();
}

#[test]
fn an_address_that_the_host_translates_has_the_external_hose() {
    a_service_address_has_the_external_hose("host1");
}

#[test]
fn an_address_that_a_gateway_translates_has_the_external_hose() {
    a_service_address_has_the_external_hose("switch");
}
