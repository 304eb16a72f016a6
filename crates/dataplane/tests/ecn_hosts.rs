//! Marks as the signal between two hosts, as the guests' own kernels see it. Needs root, and fails
//! without.
#![allow(unsafe_code, clippy::disallowed_methods)]

use crate::net::{PAIR, World, now_ns};
use std::io::{Read, Write};
use weir_dataplane::{Counters, Dataplane, Mode, PairRate, RxCounters, TxCounters};
use weir_units::Rate;

/// Octets of a connection, enough for some hundred packets.
const OCTETS: usize = 400_000;

/// What both hosts counted of a connection from VM 1 to VM 2, and what VM 2's kernel saw.
struct Seen {
    tx: TxCounters,
    rx: RxCounters,
    /// Packets that VM 2 saw ECN-capable, by ECT(0).
    ect_0: u64,
    /// Packets that it saw with a mark.
    ce: u64,
}

/// One of the counters that a VM's kernel keeps of packets by their ECN field.
fn ip_counter(world: &World, vm: &str, name: &str) -> u64 {
    let text = world.inside(vm, || std::fs::read_to_string("/proc/thread-self/net/netstat"));
    let text = text.unwrap();
    // Two lines each: names, then values.
    let mut lines = text.lines().filter(|l| l.starts_with("IpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split_whitespace().position(|n| n == name).expect("Linux counts it");
    values.split_whitespace().nth(at).unwrap().parse().unwrap()
}

/// A connection between guests whose sysctl tcp_ecn is `guests`: 1 asks for ECN, 0 refuses it.
fn connection(guests: &str, ecn: bool) -> Seen {
    let world = World::new();
    world.without_super_packets();
    for vm in ["vm1", "vm2"] {
        world.inside(vm, || std::fs::write("/proc/sys/net/ipv4/tcp_ecn", guests).unwrap());
    }
    let open = |n: u32| {
        let config = weir_dataplane::Config { ecn, ..world.config(n, Mode::Clsact) };
        world.inside(&format!("host{n}"), || Dataplane::open(config)).unwrap()
    };
    let (mut host1, mut host2) = (open(1), open(2));
    let rate = Rate::from_mbps(50);
    host1.set(&[PairRate { pair: PAIR, floor: rate, ceiling: rate }]).unwrap();
    let (mut sender, mut receiver) = world.tcp();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.write_all(&vec![7; OCTETS]).unwrap());
        receiver.read_exact(&mut vec![0; OCTETS]).unwrap();
    });
    let mut counters = Counters::default();
    host1.read(now_ns(), &mut counters).unwrap();
    let tx = counters.tx.iter().find(|(p, _)| *p == PAIR).expect("it sent").1;
    host2.read(now_ns(), &mut counters).unwrap();
    let rx = counters.rx.iter().find(|(p, _)| *p == PAIR).expect("it received").1;
    for (n, host) in [(1, host1), (2, host2)] {
        world.inside(&format!("host{n}"), || host.close()).unwrap();
    }
    let seen = |name| ip_counter(&world, "vm2", name);
    Seen { tx, rx, ect_0: seen("InECT0Pkts"), ce: seen("InCEPkts") }
}

#[test]
fn guests_that_speak_ecn_agree_on_it_through_weir_and_see_it() {
    let Seen { tx, rx, ect_0, ce } = connection("1", true);
    assert!(ect_0 > 200, "{ect_0} packets: they did not agree on ECN");
    assert_eq!(ce, 0);
    assert!(tx.numbered.get() > OCTETS as u64 && tx.unnumbered.get() == 0, "{tx:?}");
    assert_eq!((rx.lost, rx.ce, rx.resyncs), (0, 0, 0), "{rx:?}");
}

#[test]
fn guests_that_do_not_speak_ecn_never_see_it() {
    let Seen { rx, ect_0, ce, .. } = connection("0", true);
    assert_eq!((ect_0, ce), (0, 0), "all of it left ECN-capable, and none of it arrived so");
    assert_eq!((rx.lost, rx.resyncs), (0, 0), "{rx:?}");
}

#[test]
fn without_marks_as_the_signal_guests_keep_their_own_ecn() {
    assert!(connection("1", false).ect_0 > 200);
    assert_eq!(connection("0", false).ect_0, 0);
}
