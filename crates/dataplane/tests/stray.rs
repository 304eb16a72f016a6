//! What pairs without a class may send, by test run: packets through the classify program, and
//! which of them are dropped before the queue. Needs root, and fails without.
#![allow(clippy::disallowed_methods, reason = "the program reads the kernel's clock")]

use crate::frame::{packet, udp};
use std::net::IpAddr;
use std::time::Duration;
use weir_dataplane::intf::{self, NODES, Pair, Places, PortCounters, Tx};
use weir_dataplane::programs::{Frame, Program, Programs, Sizes};

const PASS: i32 = -1;
const DROP: i32 = 2;
const LOOPBACK: u32 = 1;
const DEFAULT: u32 = 0x1_2000;
const CONTROL: u32 = 0x1_3000;
const OWN: u32 = 0x1_4000;
const MINE: &str = "10.0.0.1";
const PEER: &str = "10.0.0.2";
const OTHER: &str = "10.0.0.3";
const TO_PEER: Pair = Pair { src: 1, dst: 2 };
/// bit/s. A full frame lasts 1.2112 s, so that a busy machine makes no difference.
const SLOW: u32 = 10_000;
const SECOND: u64 = 1_000_000_000;
/// A moment in which a pair may wait for a class, and a bit.
const MOMENT: Duration = Duration::from_millis(260);

/// A host with VM 1 on the loopback; VMs 2 and 3 elsewhere. No agent gives a pair a class.
fn host(stray_bps: u32, max_pairs: u32) -> Programs {
    let sizes = Sizes { pairs: 16, endpoints: 64, nodes: NODES, queues: 1, hosts: 1 };
    let programs =
        Programs::load(sizes, None).expect("these tests load BPF programs: run them as root");
    let port = intf::Port {
        vm: 1,
        tenant: 1,
        default_class: DEFAULT,
        control_class: CONTROL,
        max_pairs,
        stray_bps,
        ..intf::Port::default()
    };
    programs.ports.put(LOOPBACK, port).unwrap();
    for (address, vm, flags) in [(MINE, 1, intf::LOCAL), (PEER, 2, 0), (OTHER, 3, 0)] {
        let address: IpAddr = address.parse().unwrap();
        let endpoint = intf::Endpoint { vm, tenant: 1, flags, ..intf::Endpoint::default() };
        programs.endpoints.put(address.into(), endpoint).unwrap();
    }
    programs
}

/// The class of a frame with so much payload, if it is not dropped.
fn send(host: &Programs, dst: &str, payload: usize) -> Option<u32> {
    let octets = packet(MINE, dst, 17, udp(9, payload)).octets();
    let frame = Frame { octets: &octets, priority: 7, ..Frame::default() };
    let ran = host.run(Program::Classify, &frame).unwrap();
    assert!(ran.verdict == PASS || (ran.verdict == DROP && ran.priority == 7));
    (ran.verdict == PASS).then_some(ran.priority)
}

/// How many of so many full frames pass by the default class.
fn passed(host: &Programs, dst: &str, n: usize) -> usize {
    (0..n)
        .filter(|_| send(host, dst, 1472).inspect(|class| assert_eq!(*class, DEFAULT)).is_some())
        .count()
}

#[test]
fn pairs_without_a_class_have_a_moment_and_then_the_vms_rate_together() {
    let host = host(SLOW, 16);
    assert_eq!(passed(&host, PEER, 100), 100, "an agent may be about to give it a class");
    std::thread::sleep(MOMENT);
    assert_eq!(passed(&host, OTHER, 50), 50, "this one is new");
    // Twelve frames may be sent ahead, and the one that found only twelve.
    assert_eq!(passed(&host, PEER, 20), 13);
    std::thread::sleep(MOMENT);
    assert_eq!(passed(&host, OTHER, 20), 0, "both are of one VM");
    let small = (0..100).filter(|_| send(&host, OTHER, 20).is_some()).count();
    assert!((3..30).contains(&small), "{small} small ones find room beside them");

    let tx: Tx = host.tx.get(TO_PEER).unwrap().unwrap();
    assert_eq!((tx.octets, tx.segments), (120 * 1514, 120), "the pair wanted to send them all");
    let PortCounters { stray, tx_segments, unclassified, .. } = host.port_counters.get(0);
    let all = 100 + 50 + 20 + 20 + 100;
    assert_eq!((stray, tx_segments), (all - 163 - small as u64, 163 + small as u64));
    assert_eq!(unclassified, 0, "they are pairs");
}

#[test]
fn the_moments_of_a_vms_pairs_share_what_it_may_send_ahead() {
    let mut host = host(SLOW, 16);
    let (_, mut port) = host.ports.read().unwrap().next().expect("the loopback");
    port.moment = 30 * 1514;
    host.ports.put(LOOPBACK, port).unwrap();
    // Thirty frames, and the one that found only thirty; each lasts longer than this test.
    assert_eq!(passed(&host, PEER, 20), 20);
    assert_eq!(passed(&host, OTHER, 20), 11, "this one is new, but its VM is the same");
    assert_eq!(host.port_counters.get(0).stray, 9);
    host.classes.put(TO_PEER, OWN).unwrap();
    assert_eq!(send(&host, PEER, 1472), Some(OWN), "who has a class pays for nobody's moment");
    std::thread::sleep(MOMENT);
    assert_eq!(passed(&host, OTHER, 20), 13, "after its moment it has the strays' rate");
}

#[test]
fn a_pair_that_gets_a_class_is_bound_by_nothing_else_and_begins_anew_without() {
    let host = host(SLOW, 16);
    assert_eq!(passed(&host, PEER, 1), 1);
    std::thread::sleep(MOMENT);
    assert_eq!(passed(&host, PEER, 20), 13);
    host.classes.put(TO_PEER, OWN).unwrap();
    for _ in 0..50 {
        assert_eq!(send(&host, PEER, 1472), Some(OWN));
    }
    host.classes.delete(TO_PEER).unwrap();
    assert_eq!(passed(&host, PEER, 50), 50);
}

#[test]
fn pairs_for_which_there_is_no_place_have_no_moment() {
    let host = host(SLOW, 1);
    assert_eq!(passed(&host, PEER, 1), 1);
    assert_eq!(passed(&host, OTHER, 20), 13);
    let PortCounters { tx_full, stray, .. } = host.port_counters.get(0);
    assert_eq!((tx_full, stray), (20, 7));
}

/// A frame lasts 12.1 ms: 250 ms ahead are 20 of them, the one that found these, and as many more
/// as left while this ran.
fn expect_ahead(host: &Programs, what: &str) {
    let begun = std::time::Instant::now();
    let n = passed(host, PEER, 100);
    let left = (begun.elapsed().as_nanos() / 12_112_000) as usize;
    assert!((21..=22 + left).contains(&n), "{what}: {n}, and {left} may have left");
}

#[test]
fn what_was_sent_leaves_at_the_rate_and_who_was_idle_has_saved_nothing() {
    let host = host(100 * SLOW, 16);
    assert_eq!(passed(&host, PEER, 1), 1);
    std::thread::sleep(MOMENT);
    expect_ahead(&host, "at first");
    std::thread::sleep(4 * MOMENT);
    expect_ahead(&host, "as many, after a second");
    let places = host.places().unwrap();
    let counted = places.get(0);
    assert!(counted.stray_ns > 0);
    places.put(0, Places { stray_ns: 0, ..counted });
    expect_ahead(&host, "that is where it is kept");
}

#[test]
fn without_a_rate_nothing_is_bound() {
    let host = host(0, 16);
    assert_eq!(passed(&host, PEER, 1), 1);
    std::thread::sleep(MOMENT);
    assert_eq!(passed(&host, PEER, 200), 200);
}

#[test]
fn who_sent_nothing_without_a_class_for_minutes_waits_anew() {
    let host = host(SLOW, 16);
    assert_eq!(passed(&host, PEER, 1), 1);
    let now = host.tx.get(TO_PEER).unwrap().unwrap().told_ns;
    assert!(now > 129 * SECOND, "the machine has not run for as long: try again");
    let told = |ns| Tx { told_ns: ns, stray_ns: ns, ..Tx::default() };
    host.tx.put(TO_PEER, told(now - 129 * SECOND)).unwrap();
    assert_eq!(passed(&host, PEER, 50), 50, "it may have had a class since");
    host.tx.put(TO_PEER, told(now - 100 * SECOND)).unwrap();
    assert_eq!(passed(&host, PEER, 50), 13);
}

#[test]
fn what_goes_to_no_place_has_the_vms_rate_and_its_own_counter() {
    let host = host(SLOW, 16);
    // To itself, to the link, to all hosts.
    assert_eq!(passed(&host, MINE, 20), 13);
    for nowhere in ["169.254.9.9", "255.255.255.255", "239.1.1.1"] {
        assert_eq!(passed(&host, nowhere, 10), 0, "{nowhere}");
    }
    // Neither IP nor ARP.
    let mut alien = packet(MINE, PEER, 17, udp(9, 1472)).octets();
    alien[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());
    let frame = Frame { octets: &alien, priority: 7, ..Frame::default() };
    assert_eq!(host.run(Program::Classify, &frame).unwrap().verdict, DROP);
    assert_eq!(passed(&host, PEER, 5), 5, "pairs have their own moment");
    // A VM without an address may ask for one, whatever else it sends.
    let asks = packet("0.0.0.0", "255.255.255.255", 17, udp(67, 300)).octets();
    let frame = Frame { octets: &asks, priority: 7, ..Frame::default() };
    let ran = host.run(Program::Classify, &frame).unwrap();
    assert_eq!((ran.verdict, ran.priority), (PASS, CONTROL));
    let PortCounters { unclassified, unpaired, stray, control, .. } = host.port_counters.get(0);
    assert_eq!((unclassified, unpaired, stray, control), (13, 7 + 30 + 1, 0, 1));
}

#[test]
fn a_pair_that_gets_no_class_asks_more_and_more_seldom() {
    let host = host(0, 16);
    let (mut asked, begun) = (Vec::new(), std::time::Instant::now());
    while begun.elapsed() < Duration::from_millis(1200) {
        assert_eq!(passed(&host, PEER, 1), 1);
        let Tx { told_ns, stray_ns, .. } = host.tx.get(TO_PEER).unwrap().unwrap();
        if asked.last().is_none_or(|(told, _)| *told != told_ns) {
            asked.push((told_ns, stray_ns));
        }
    }
    for two in asked.windows(2) {
        let [(before, _), (told, since)] = two else { unreachable!() };
        let pause = told - before;
        assert!(pause >= 10_000_000 && pause >= (told - since) / 4, "{asked:?}");
    }
    assert!(asked.len() > 3, "it goes on asking: {asked:?}");
}
