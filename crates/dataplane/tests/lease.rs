//! What a pair in HTB may send without a heartbeat, by test run: packets through the classify
//! program, and which of them are dropped before the queue. Needs root, and fails without.
#![allow(clippy::disallowed_methods, reason = "the program reads the kernel's clock")]

use crate::frame::{packet, udp};
use std::net::IpAddr;
use weir_dataplane::intf::{self, FIRST_PAIR, Level, NODES, Pair};
use weir_dataplane::programs::{Frame, Program, Programs, Sizes};

const PASS: i32 = -1;
const LOOPBACK: u32 = 1;
const OWN: u32 = 0x1_4000;
const TO_PEER: Pair = Pair { src: 1, dst: 2 };
/// bit/s. A full frame lasts 1.2112 s, so that a busy machine makes no difference.
const SLOW: u64 = 10_000;
/// Frames that may be sent ahead at that rate, and the one that finds only these.
const AHEAD: usize = 13;

/// A host with VM 1 on the loopback and VM 2 elsewhere. Their pair has a class with a floor of SLOW
/// and the ceiling of a fast line.
fn host(flags: u32) -> Programs {
    let sizes = Sizes { pairs: 16, endpoints: 64, nodes: NODES, queues: 1, hosts: 1 };
    let programs =
        Programs::load(sizes, None).expect("these tests load BPF programs: run them as root");
    let port = intf::Port { vm: 1, tenant: 1, max_pairs: 16, flags, ..intf::Port::default() };
    programs.ports.put(LOOPBACK, port).unwrap();
    for (address, vm, flags) in [("10.0.0.1", 1, intf::LOCAL), ("10.0.0.2", 2, 0)] {
        let address: IpAddr = address.parse().unwrap();
        let endpoint = intf::Endpoint { vm, tenant: 1, flags, ..intf::Endpoint::default() };
        programs.endpoints.put(address.into(), endpoint).unwrap();
    }
    programs.classes.put(TO_PEER, OWN).unwrap();
    let level = Level { floor: SLOW, ceiling: 10_000_000_000, ..Level::default() };
    programs.levels().unwrap().put(FIRST_PAIR as usize, level);
    programs
}

/// How many of so many full frames pass.
fn passed(host: &Programs, n: usize) -> usize {
    let octets = packet("10.0.0.1", "10.0.0.2", 17, udp(9, 1472)).octets();
    let frame = Frame { octets: &octets, ..Frame::default() };
    let ran = || host.run(Program::Classify, &frame).unwrap().verdict;
    (0..n).filter(|_| ran() == PASS).count()
}

/// Nanoseconds since boot, as the kernel counts them.
fn now_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = text.split_whitespace().next().unwrap().parse().unwrap();
    (seconds * 1e9) as u64
}

#[test]
fn without_a_heartbeat_a_pair_in_htb_gets_its_floor_and_no_more() {
    let host = host(0);
    let lease = host.lease().unwrap();
    assert_eq!(passed(&host, 50), 50, "no agent has begun: nothing was lent");
    // An hour ahead: no pause of this machine makes it stale.
    lease.put(0, now_ns() + 3_600_000_000_000);
    assert_eq!(passed(&host, 50), 50, "the agent lives");
    // A minute ago, and never 0.
    lease.put(0, now_ns().saturating_sub(60_000_000_000).max(1));
    assert_eq!(passed(&host, 50), AHEAD);
    assert_eq!(passed(&host, 20), 0);
    let counters = host.port_counters.get(0);
    assert_eq!(counters.unleased, 50 + 20 - AHEAD as u64);
    assert_eq!(counters.tx_segments, 170, "as what a queue drops, it was passed on");
    assert_eq!(host.tx.get(TO_PEER).unwrap().unwrap().segments, 170, "the pair wanted them sent");
    lease.put(0, now_ns() + 3_600_000_000_000);
    assert_eq!(passed(&host, 50), 50, "an agent has come back");
}

#[test]
fn a_port_that_may_miss_the_shaper_gives_pairs_their_floors_and_no_more() {
    let host = host(intf::BARE);
    host.lease().unwrap().put(0, now_ns() + 3_600_000_000_000);
    assert_eq!(passed(&host, 50), AHEAD);
    assert_eq!(host.port_counters.get(0).unleased, 50 - AHEAD as u64);
}

#[test]
fn a_pair_whose_class_has_no_level_is_not_bounded_here() {
    let host = host(0);
    host.lease().unwrap().put(0, 1);
    host.levels().unwrap().put(FIRST_PAIR as usize, Level::default());
    assert_eq!(passed(&host, 50), 50);
}
