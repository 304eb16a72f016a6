//! How long a pair's queue in HTB may be, by test run: packets through the classify program, and
//! which of them are dropped before the queue. Rates are so low that a busy machine makes no
//! difference. Needs root, and fails without.
#![allow(clippy::disallowed_methods, reason = "the program reads the kernel's clock")]

use crate::frame::{acknowledgements, packet, tcp, udp};
use std::net::IpAddr;
use std::time::Duration;
use weir_dataplane::intf::{self, FIRST_PAIR, Level, NODES, Pair, PortCounters, Tx};
use weir_dataplane::programs::{Frame, Program, Programs, Ran, Sizes};
use weir_dataplane::table::CounterArray;

const PASS: i32 = -1;
const DROP: i32 = 2;
const LOOPBACK: u32 = 1;
const DEFAULT: u32 = 0x1_2000;
/// Two pairs' classes in HTB, and a queue of departure times.
const ONE: u32 = 0x1_4000;
const TWO: u32 = 0x1_4001;
const DEPARTING: u32 = 0x1_1000;
const MINE: &str = "10.0.0.1";
const PEER: &str = "10.0.0.2";
const OTHER: &str = "10.0.0.3";
const TO_PEER: Pair = Pair { src: 1, dst: 2 };
const TO_OTHER: Pair = Pair { src: 1, dst: 3 };
/// Octets of a full frame.
const FULL: u64 = 1514;
/// bit/s. A full frame lasts 1.2112 s.
const SLOW: u64 = 10_000;
const MS: u64 = 1_000_000;

/// A host with VM 1 on the loopback; VMs 2 and 3 elsewhere.
struct Host {
    programs: Programs,
    levels: CounterArray<Level>,
}

/// A level at which 128 kB have room, and six frames at [`SLOW`], 7.27 s, may wait.
fn level(ceiling: u64) -> Level {
    Level { ceiling, limit_ns: 7300 * MS, limit: 128 * 1024, ..Level::default() }
}

fn full(dst: &str) -> Vec<u8> {
    let octets = packet(MINE, dst, 17, udp(9, 1472)).octets();
    assert_eq!(octets.len() as u64, FULL);
    octets
}

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

impl Host {
    fn new() -> Self {
        let sizes = Sizes { pairs: 16, endpoints: 64, nodes: NODES, queues: 1, hosts: 1 };
        let programs =
            Programs::load(sizes, None).expect("these tests load BPF programs: run them as root");
        let (default_class, max_pairs) = (DEFAULT, 16);
        let port =
            intf::Port { vm: 1, tenant: 1, default_class, max_pairs, ..intf::Port::default() };
        programs.ports.put(LOOPBACK, port).unwrap();
        programs.classes.put(TO_PEER, ONE).unwrap();
        for pair in [TO_PEER, TO_OTHER] {
            // They asked for a class long ago.
            programs.tx.put(pair, Tx::default()).unwrap();
        }
        let levels = programs.levels().unwrap();
        let host = Self { programs, levels };
        for (address, vm, flags) in [(MINE, 1, intf::LOCAL), (PEER, 2, 0), (OTHER, 3, 0)] {
            host.know(address, vm, flags);
        }
        host
    }

    /// Adds a VM's address to the directory.
    fn know(&self, address: &str, vm: u32, flags: u32) {
        let address: IpAddr = address.parse().unwrap();
        let endpoint = intf::Endpoint { vm, tenant: 1, flags, ..intf::Endpoint::default() };
        self.programs.endpoints.put(address.into(), endpoint).unwrap();
    }

    fn set(&self, class: u32, level: Level) {
        self.levels.put((FIRST_PAIR + class - ONE) as usize, level);
    }

    fn run(&self, frame: &Frame<'_>) -> Ran {
        let ran = self.programs.run(Program::Classify, frame).unwrap();
        assert!(ran.verdict == PASS || ran.verdict == DROP);
        assert!(ran.verdict == PASS || ran.priority == frame.priority, "dropped as it was");
        ran
    }

    /// Sends a full frame; its class if it was not dropped.
    fn send(&self, dst: &str) -> Option<u32> {
        let octets = full(dst);
        let ran = self.run(&Frame { octets: &octets, priority: 7, ..Frame::default() });
        (ran.verdict == PASS).then_some(ran.priority)
    }

    /// Sends so many full frames to the peer; how many passed.
    fn passed(&self, n: usize) -> usize {
        (0..n).filter(|_| self.send(PEER).is_some()).count()
    }

    fn tx(&self, pair: Pair) -> Tx {
        self.programs.tx.get(pair).unwrap().unwrap()
    }

    fn port(&self) -> PortCounters {
        self.programs.port_counters.get(0)
    }
}

#[test]
fn what_would_wait_for_too_long_is_dropped_and_counted_as_the_pairs_own() {
    let host = Host::new();
    host.set(ONE, level(SLOW));
    assert_eq!(host.passed(10), 7, "six wait, and the one that found only six");
    let Tx { octets, segments, dropped, sequence, .. } = host.tx(TO_PEER);
    assert_eq!((octets, segments, dropped), (10 * FULL, 10, 3), "the pair wanted to send them all");
    assert_eq!(sequence, 0, "no number");
    // What a queue of the shaper drops was passed on to it.
    let (tx_octets, tx_segments) = (10 * FULL, 10);
    assert_eq!(host.port(), PortCounters { tx_octets, tx_segments, ..PortCounters::default() });
}

#[test]
fn a_new_pair_may_keep_waiting_what_will_have_room_when_it_has_its_floor() {
    let host = Host::new();
    host.set(ONE, level(SLOW));
    host.programs.classes.delete(TO_PEER).unwrap();
    assert_eq!(host.send(PEER), Some(DEFAULT), "it asks for a class");
    host.programs.classes.put(TO_PEER, ONE).unwrap();
    assert_eq!(host.passed(20), 20);
    pause(130);
    assert_eq!(host.passed(20), 0, "twenty wait, and it is no longer new");
}

#[test]
fn full_frames_leave_room_for_the_acknowledgements_beside_them() {
    let host = Host::new();
    host.set(ONE, level(SLOW));
    assert_eq!(host.passed(20), 7);
    let octets = packet(MINE, PEER, 17, udp(9, 20)).octets();
    let small = || host.run(&Frame { octets: &octets, ..Frame::default() }).verdict == PASS;
    // 8.48 s waited; a small packet may find 9.6, and lasts 50 ms.
    pause(200);
    assert_eq!(host.passed(1), 0, "a full frame finds no room for another second");
    assert!((0..60).filter(|_| small()).count() >= 3, "a small one does");
    assert!(!small(), "but not for ever");
}

#[test]
fn what_waits_beside_the_data_is_what_the_queue_takes_for_acknowledgements() {
    const V6: [&str; 2] = ["fd00::1", "fd00::2"];
    let host = Host::new();
    host.know(V6[0], 1, intf::LOCAL);
    host.know(V6[1], 2, 0);
    host.set(ONE, level(SLOW));
    for (name, is_ack, frame) in acknowledgements([MINE, PEER], V6) {
        // Nothing waits with the same flow.
        host.programs.tx.put(TO_PEER, Tx::default()).unwrap();
        host.run(&Frame { octets: &frame.octets(), ..Frame::default() });
        let Tx { data, acks, .. } = host.tx(TO_PEER);
        let waits = [data, acks].map(|parts| parts.iter().sum::<u32>() > 0);
        assert_eq!(waits, [!is_ack, is_ack], "what {name}");
    }
}

#[test]
fn acknowledgements_find_room_beside_data_that_has_none() {
    let host = Host::new();
    host.set(ONE, level(SLOW));
    assert_eq!(host.passed(20), 7);
    let mut ack = packet(MINE, PEER, 6, tcp(0));
    ack.body[13] = 0x10;
    let octets = ack.octets();
    let send = || host.run(&Frame { octets: &octets, ..Frame::default() }).verdict == PASS;
    // Each of them waits for as much data: half of 9.6 s, of which one lasts 53 ms. In two seconds,
    // should the machine stand still so long, there is room for 38 more.
    let passed = (0..200).filter(|_| send()).count();
    assert!((92..=130).contains(&passed), "{passed}");
}

#[test]
fn what_waits_gets_less_as_time_goes_by_but_who_was_idle_has_saved_nothing() {
    let host = Host::new();
    // Forty times as fast: a frame lasts 30 ms.
    let fast = Level { limit_ns: 190 * MS, ..level(40 * SLOW) };
    host.set(ONE, fast);
    assert!(host.passed(10) >= 7);
    for _ in 0..2 {
        // More than all of them last.
        pause(320);
        let passed = host.passed(10);
        assert!(passed >= 7, "{passed} into an empty queue");
    }
    pause(500);
    host.set(ONE, level(SLOW));
    assert_eq!(host.passed(10), 7);
}

#[test]
fn a_super_packet_is_let_in_whole_where_a_packet_is() {
    let octets = packet(MINE, PEER, 6, tcp(2896)).octets();
    // 46 segments, with their headers 5932 octets: 4.7 s.
    let frame = Frame { octets: &octets, gso_size: 64, gso_segs: 46, ..Frame::default() };
    let host = Host::new();
    host.set(ONE, Level { limit_ns: 250 * MS, ..level(SLOW) });
    assert_eq!(host.run(&frame).verdict, PASS, "nothing waits");
    assert_eq!(host.send(PEER), None, "4.7 s wait");
    assert_eq!(host.run(&frame).verdict, DROP);
    assert_eq!(host.tx(TO_PEER).dropped, 1 + 46, "segments");

    let host = Host::new();
    host.set(ONE, level(SLOW));
    assert_eq!(host.passed(7), 7);
    assert_eq!(host.run(&frame).verdict, DROP, "it counts itself, but for a frame");
    let host = Host::new();
    host.set(ONE, level(SLOW));
    assert_eq!(host.passed(3), 3);
    assert_eq!(host.run(&frame).verdict, PASS, "7.2 s with it, without its first frame");
}

#[test]
fn a_flow_with_little_that_waits_finds_room_beside_a_flood_of_its_pair() {
    let host = Host::new();
    host.set(ONE, level(SLOW));
    assert_eq!(host.passed(20), 7);
    // Some of them share the flood's part, for the kernel's hash is another after each boot; never
    // all.
    let is_let_in = |port: &u16| {
        let octets = packet(MINE, PEER, 17, udp(*port, 1472)).octets();
        host.run(&Frame { octets: &octets, ..Frame::default() }).verdict == PASS
    };
    let others = (10..50).filter(is_let_in).count();
    assert_eq!(others, 3, "8.5 s wait, and up to 10.9 may; with three frames it is more");
    assert_eq!(host.passed(5), 0);
    let Tx { dropped, data, .. } = host.tx(TO_PEER);
    assert_eq!(dropped, 13 + 37 + 5);
    assert!(data.iter().filter(|part| **part > 0).count() > 1);
}

#[test]
fn what_the_queue_itself_has_no_room_for_does_not_wait() {
    let host = Host::new();
    // Room for eight frames, of which six may wait.
    let eight = Level { limit: 8 * FULL + 100, limit_ns: 60_000 * MS, ..level(SLOW) };
    host.set(ONE, eight);
    assert_eq!(host.passed(20), 7);
    // While the pair is new all are passed on, and the queue drops them.
    host.programs.classes.delete(TO_PEER).unwrap();
    assert_eq!(host.send(PEER), Some(DEFAULT), "it asks for a class");
    host.programs.classes.put(TO_PEER, ONE).unwrap();
    assert_eq!(host.passed(40), 40);
    assert_eq!(u64::from(host.tx(TO_PEER).waits[0]), 8 * FULL, "and no more than eight wait");
}

#[test]
fn octets_wait_and_last_as_long_as_the_rate_of_the_moment_says() {
    let host = Host::new();
    host.set(ONE, level(10 * SLOW));
    // They last 6.1 s, and then 61.
    assert_eq!(host.passed(50), 50);
    host.set(ONE, level(SLOW));
    assert_eq!(host.passed(5), 0);
    host.set(ONE, level(10 * SLOW));
    assert_eq!(host.passed(5), 5);

    let host = Host::new();
    host.set(ONE, level(SLOW));
    assert_eq!(host.passed(10), 7);
    // Seven last 4.24 s, and each further one 0.61.
    host.set(ONE, level(2 * SLOW));
    assert_eq!(host.passed(10), 6);
}

#[test]
fn a_lowered_rate_counts_from_the_first_packet_on_though_it_is_dropped() {
    let host = Host::new();
    // 727 ms.
    host.set(ONE, level(100 * SLOW));
    assert_eq!(host.passed(60), 60);
    host.set(ONE, level(SLOW));
    assert_eq!(host.send(PEER), None);
    pause(800);
    assert_eq!(host.send(PEER), None, "at the former rate all would have left");
}

#[test]
fn a_class_that_goes_to_another_pair_has_an_empty_queue() {
    let host = Host::new();
    host.set(ONE, level(SLOW));
    assert_eq!(host.passed(10), 7);
    host.programs.classes.delete(TO_PEER).unwrap();
    host.programs.classes.put(TO_OTHER, ONE).unwrap();
    let passed = (0..10).filter(|_| host.send(OTHER) == Some(ONE)).count();
    assert_eq!((passed, host.tx(TO_OTHER).dropped), (7, 3));

    // Without a class of its own a pair has no bound of its own, and with another it begins anew.
    assert!((0..20).all(|_| host.send(PEER) == Some(DEFAULT)));
    host.set(TWO, level(SLOW));
    host.programs.classes.put(TO_PEER, TWO).unwrap();
    pause(130);
    assert_eq!(host.passed(10), 7);
    assert_eq!(host.tx(TO_PEER).dropped, 3 + 3);
}

#[test]
fn a_class_without_a_limit_in_time_bounds_nothing_and_what_it_did_is_not_remembered() {
    let host = Host::new();
    host.set(ONE, level(SLOW));
    assert_eq!(host.passed(20), 7, "six wait, and the seventh finds them");
    host.set(ONE, Level { limit_ns: 0, ..level(100 * SLOW) });
    assert_eq!(host.passed(200), 200);
    assert_eq!(host.tx(TO_PEER).bps, 0);
    host.set(ONE, level(SLOW));
    assert_eq!(host.passed(20), 7);
}

#[test]
fn where_there_is_no_level_and_with_departure_times_nothing_is_dropped_here() {
    let host = Host::new();
    assert_eq!(host.passed(200), 200, "a class without a level");
    // The first pair's node, in either shaper.
    host.set(ONE, level(SLOW));
    host.programs.classes.put(TO_PEER, DEPARTING).unwrap();
    assert_eq!(host.passed(200), 200);
    let Tx { bps, dropped, data, acks, .. } = host.tx(TO_PEER);
    assert_eq!((bps, dropped), (0, 0));
    assert_eq!([data, acks], [[0; intf::PARTS]; 2]);
}
