//! Departure times by test run: packets through the stamp program, and when each may leave. No
//! qdisc is involved. Needs root, and fails without.
#![allow(unsafe_code, clippy::disallowed_methods, reason = "the programs read the kernel's clock")]

use crate::frame::{arp, packet, tcp, udp};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use weir_dataplane::intf::{self, Level, NODES, Pair, Queue};
use weir_dataplane::programs::{Departures, Frame, Program, Programs, Ran, Sizes};

const PASS: i32 = -1;
const DROP: i32 = 2;
/// Octets of a full frame.
const FULL: u64 = 1514;
const UPLINK: u16 = 1;
const UNSORTED: u16 = 2;
const VM: u16 = 1024;
/// Two pairs' queues.
const ONE: u16 = 4096;
const TWO: u16 = 4097;
const KBIT: u64 = 1000;
const MBIT: u64 = 1_000_000;
const MINE: &str = "10.0.0.1";
const PEER: &str = "10.0.0.2";

/// A host with VM 1 alone behind an uplink of 1 Gbit/s; its agent lives.
struct Host {
    programs: Programs,
    maps: Departures,
}

/// The kernel's monotonic clock.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live struct of the kernel's own shape.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn level(floor: u64, ceiling: u64, parent: u16) -> Level {
    let (limit_ns, limit) = (250_000_000, 128 * 1024);
    Level { floor, ceiling, fallback: floor, limit_ns, limit, parent: parent.into(), ahead: 0 }
}

/// What octets last at a rate, rounded up.
fn time_for(octets: u64, bps: u64) -> u64 {
    (octets * 8_000_000_000).div_ceil(bps)
}

fn class(node: u16) -> u32 {
    0x1_0000 | u32::from(node)
}

/// A full frame from VM 1 to VM 2.
fn full() -> Vec<u8> {
    let octets = packet(MINE, PEER, 17, udp(9, 1472)).octets();
    assert_eq!(octets.len() as u64, FULL);
    octets
}

impl Host {
    fn new() -> Self {
        let programs = Programs::load(
            Sizes { pairs: 16, endpoints: 64, nodes: NODES, queues: NODES, hosts: 1 },
            None,
        )
        .expect("these tests load BPF programs: run them as root");
        for (address, vm, flags) in [(MINE, 1, intf::LOCAL), (PEER, 2, 0)] {
            let address: IpAddr = address.parse().unwrap();
            programs
                .endpoints
                .put(
                    address.into(),
                    intf::Endpoint { vm, tenant: 1, flags, ..intf::Endpoint::default() },
                )
                .unwrap();
        }
        let pair = Pair { src: 1, dst: 2 };
        programs.tx.put(pair, intf::Tx::default()).unwrap();
        programs.classes.put(pair, class(ONE)).unwrap();
        let maps = programs.departures().unwrap();
        let host = Self { programs, maps };
        host.set(UPLINK, level(1000 * MBIT, 1000 * MBIT, 0));
        host.set(UNSORTED, level(MBIT, MBIT, UPLINK));
        host.set(VM, level(900 * MBIT, 1000 * MBIT, UPLINK));
        host.maps.lease.put(0, now());
        host
    }

    fn set(&self, node: u16, level: Level) {
        self.maps.levels.put(node.into(), level);
    }

    fn queue(&self, node: u16) -> Queue {
        self.maps.queues.get(node.into()).unwrap().unwrap()
    }

    fn run(&self, frame: &Frame<'_>) -> Ran {
        self.programs.run(Program::Stamp, frame).unwrap()
    }

    fn send(&self, octets: &[u8], priority: u32) -> Ran {
        self.run(&Frame { octets, priority, ..Frame::default() })
    }

    /// Sends a full frame through a node's queue: its departure if it was not dropped.
    fn depart(&self, node: u16) -> Option<u64> {
        let ran = self.send(&full(), class(node));
        assert_eq!(ran.priority, 0, "fq would read it as a band");
        assert!(ran.verdict == PASS || ran.verdict == DROP);
        (ran.verdict == PASS).then_some(ran.departs_ns)
    }

    /// Sends a full frame and expects it `span` after the one before; on a machine that was busy
    /// meanwhile, at once.
    #[track_caller]
    fn expect_after(&self, node: u16, last: u64, span: u64) -> u64 {
        let before = now();
        let departs = self.depart(node).expect("not dropped");
        let due = last + span;
        let is_late = due <= now() && (before..=now()).contains(&departs);
        assert!(departs == due || is_late, "{} ns after the last, not {span}", departs - last);
        departs
    }

    /// Sends a full frame and expects it to leave at once.
    #[track_caller]
    fn expect_now(&self, node: u16) -> u64 {
        let before = now();
        let departs = self.depart(node).expect("not dropped");
        assert!((before..=now()).contains(&departs), "{} ns from now", departs - before);
        departs
    }
}

#[test]
fn packets_depart_as_far_apart_as_they_last_to_the_nanosecond() {
    for bps in [300 * KBIT, 999_983, 1_700_001, 5 * MBIT, 10 * MBIT] {
        let host = Host::new();
        host.set(ONE, level(100 * KBIT, bps, VM));
        let mut last = host.expect_now(ONE);
        for _ in 0..5 {
            last = host.expect_after(ONE, last, time_for(FULL, bps));
        }
        let queue = host.queue(ONE);
        assert_eq!((queue.octets, queue.segments, queue.dropped), (6 * FULL, 6, 0));
    }
}

#[test]
fn a_super_packet_counts_with_the_headers_of_all_its_segments() {
    let host = Host::new();
    host.set(ONE, level(100 * KBIT, MBIT, VM));
    let octets = packet(MINE, PEER, 6, tcp(2000)).octets();
    let frame = Frame {
        octets: &octets,
        priority: class(ONE),
        gso_segs: 20,
        gso_size: 100,
        ..Frame::default()
    };
    let ran = host.run(&frame);
    let wire = octets.len() as u64 + 19 * (14 + 20 + 32);
    host.expect_after(ONE, ran.departs_ns, time_for(wire, MBIT));
    assert_eq!(host.queue(ONE).segments, 21);
    assert_eq!(host.queue(ONE).octets, wire + FULL);
}

#[test]
fn who_was_idle_has_saved_nothing() {
    let host = Host::new();
    host.set(ONE, level(100 * KBIT, MBIT, VM));
    host.expect_now(ONE);
    // As long as four packets last.
    std::thread::sleep(Duration::from_millis(50));
    let last = host.expect_now(ONE);
    let last = host.expect_after(ONE, last, time_for(FULL, MBIT));
    host.expect_after(ONE, last, time_for(FULL, MBIT));
}

#[test]
fn a_full_queue_drops_and_what_it_drops_has_no_number() {
    let host = Host::new();
    let ten = Level { limit: 10 * FULL, ..level(MBIT, 2 * MBIT, VM) };
    host.set(ONE, ten);
    let (mut ids, mut dropped) = (Vec::new(), 0);
    for _ in 0..40 {
        let ran = host.send(&full(), class(ONE));
        if ran.verdict == PASS {
            ids.push(u16::from_be_bytes([ran.octets[18], ran.octets[19]]));
        } else {
            assert_eq!(ran.verdict, DROP);
            dropped += 1;
        }
    }
    assert!(dropped >= 10, "{dropped} of 40");
    assert_eq!(ids, (0..ids.len() as u16).collect::<Vec<_>>(), "no gap: nothing was lost");
    let queue = host.queue(ONE);
    assert_eq!((queue.segments, queue.dropped), (ids.len() as u64, dropped));
    assert!(u64::from(queue.backlog) <= 11 * FULL, "{queue:?}");
}

#[test]
fn nobody_waits_beyond_the_horizon() {
    let host = Host::new();
    // A packet lasts 189 ms: the third would wait for 378.
    host.set(ONE, level(64 * KBIT, 64 * KBIT, VM));
    let last = host.expect_now(ONE);
    host.expect_after(ONE, last, time_for(FULL, 64 * KBIT));
    assert_eq!(host.depart(ONE), None);
    assert_eq!(host.queue(ONE).dropped, 1);
}

#[test]
fn a_bound_that_is_short_leaves_room_for_twelve_full_frames() {
    let host = Host::new();
    // A packet lasts 1.2 ms: as long as all that may wait.
    let bound = 1_200_000;
    host.set(ONE, Level { limit_ns: bound, ..level(10 * MBIT, 10 * MBIT, VM) });
    let first = host.expect_now(ONE);
    let passed = (0..40).map_while(|_| host.depart(ONE)).collect::<Vec<_>>();
    let ahead = passed.last().expect("more than one passed") - first;
    assert!((12..=16).contains(&passed.len()), "{} behind the first", passed.len());
    assert!(ahead > 10 * bound && ahead < 20_000_000, "{ahead} ns");
    assert_eq!(host.queue(ONE).dropped, 1);
}

#[test]
fn a_stale_heartbeat_limits_pairs_to_their_floors_and_nothing_else() {
    let host = Host::new();
    host.set(ONE, level(MBIT, 4 * MBIT, VM));
    host.set(TWO, Level { fallback: 4 * MBIT, ..level(MBIT, 4 * MBIT, VM) });
    let last = host.expect_now(ONE);
    let last = host.expect_after(ONE, last, time_for(FULL, 4 * MBIT));

    host.maps.lease.put(0, now() - 1_100_000_000);
    let last = host.expect_after(ONE, last, time_for(FULL, MBIT));
    let configured = host.expect_now(TWO);
    host.expect_after(TWO, configured, time_for(FULL, 4 * MBIT));

    host.maps.lease.put(0, now());
    host.expect_after(ONE, last, time_for(FULL, 4 * MBIT));
}

#[test]
fn a_raised_rate_is_felt_right_behind_the_last_departure() {
    let host = Host::new();
    host.set(ONE, level(100 * KBIT, 200 * KBIT, VM));
    let last = host.expect_now(ONE);
    let last = host.expect_after(ONE, last, time_for(FULL, 200 * KBIT));
    host.set(ONE, level(100 * KBIT, 20 * MBIT, VM));
    host.expect_after(ONE, last, time_for(FULL, 20 * MBIT));
}

#[test]
fn a_floor_holds_against_a_sibling_that_takes_all_that_is_lent() {
    let host = Host::new();
    let lends = Level { limit_ns: 50_000_000, ..level(2 * MBIT, 2 * MBIT, 0) };
    host.set(UPLINK, lends);
    host.set(VM, Level { parent: UPLINK.into(), ..lends });
    for node in [ONE, TWO] {
        host.set(node, level(800 * KBIT, 2 * MBIT, VM));
    }
    let start = now();
    // More than waits for what is lent and for its own floor together.
    let greedy: Vec<u64> = (0..150).filter_map(|_| host.depart(TWO)).collect();
    assert!(greedy.len() < 100, "{} packets: lent no more than 50 ms ahead", greedy.len());
    let modest: Vec<u64> = (0..12).filter_map(|_| host.depart(ONE)).collect();
    assert_eq!(modest.len(), 12);
    let due = now() + 11 * time_for(FULL, 800 * KBIT);
    assert!(modest[11] <= due, "{} ns later than by its floor", modest[11] - due);
    // And both together stay within the uplink, but for what it lent ahead.
    let end = modest[11].max(*greedy.last().unwrap());
    let octets = (greedy.len() + modest.len()) as u64 * FULL;
    let room = time_for(octets, 2 * MBIT);
    assert!(room <= end - start + 50_000_000, "{octets} octets in {} ns", end - start);
}

#[test]
fn a_vms_cap_bounds_what_its_pairs_get_together() {
    let host = Host::new();
    host.set(VM, Level { limit_ns: 100_000_000, ..level(3 * MBIT, 4 * MBIT, UPLINK) });
    for node in [ONE, TWO] {
        host.set(node, level(MBIT, 100 * MBIT, VM));
    }
    let start = now();
    let mut departures = Vec::new();
    for _ in 0..20 {
        departures.extend(host.depart(ONE));
        departures.extend(host.depart(TWO));
    }
    let end = *departures.iter().max().unwrap();
    let room = time_for(departures.len() as u64 * FULL, 4 * MBIT);
    // The two floors are half of the cap: no more than they go beside it.
    assert!(end - start >= room * 2 / 3, "{} packets in {} ns", departures.len(), end - start);
}

#[test]
fn what_is_not_ours_departs_as_it_is_and_what_lost_its_class_finds_it_again() {
    let host = Host::new();
    host.set(ONE, level(MBIT, 4 * MBIT, VM));
    let stranger = packet("192.0.2.1", PEER, 17, udp(9, 100)).octets();
    let ran = host.send(&stranger, 6);
    assert_eq!((ran.verdict, ran.departs_ns, ran.priority), (PASS, 0, 6));

    // Routing overwrites the priority; the addresses still tell the pair.
    let first = host.send(&full(), 6);
    assert_eq!(first.priority, 6);
    host.expect_after(ONE, first.departs_ns, time_for(FULL, 4 * MBIT));
    let elsewhere = packet(MINE, "192.0.2.1", 17, udp(9, 100)).octets();
    assert_ne!(host.send(&elsewhere, 0).departs_ns, 0);
    assert_eq!(host.queue(UNSORTED).segments, 1);

    // A pair that was forgotten while its packet was on the way; and what is not IP.
    assert!(host.depart(TWO).is_some());
    assert_eq!((host.queue(UNSORTED).segments, host.queue(TWO).segments), (2, 0));
    let question = arp(Ipv4Addr::new(10, 0, 0, 1));
    assert_ne!(host.send(&question, class(ONE)).departs_ns, 0);
    assert_eq!(host.queue(ONE).segments, 3);
}

#[test]
fn without_levels_nothing_is_delayed() {
    let programs =
        Programs::load(Sizes { pairs: 16, endpoints: 64, nodes: 1, queues: 1, hosts: 1 }, None)
            .unwrap();
    let octets = full();
    let frame = Frame { octets: &octets, priority: class(ONE), ..Frame::default() };
    let ran = programs.run(Program::Stamp, &frame).unwrap();
    assert_eq!((ran.verdict, ran.departs_ns, ran.priority), (PASS, 0, 0));
}

/// The address of the host itself, which no directory lists.
const OWN: &str = "10.255.0.1";
/// What its datagrams come from.
const OWN_PORT: u16 = 7001;
/// Its queue.
const HOST: u16 = 3;
/// No node: what has departed into a tunnel, without a tag.
const DEPARTED: u16 = 64;

/// A full frame from the host itself to another.
fn own() -> Vec<u8> {
    let mut body = udp(9, 1472);
    body[..2].copy_from_slice(&OWN_PORT.to_be_bytes());
    packet(OWN, "10.255.0.2", 17, body).octets()
}

#[test]
fn the_host_itself_keeps_its_floor_beside_vms_and_they_keep_theirs() {
    const FRAMES: u64 = 60;
    let host = Host::new();
    let (mine, theirs) = (100 * MBIT, 800 * MBIT);
    host.set(HOST, level(mine, 1000 * MBIT, UPLINK));
    host.set(ONE, level(theirs, 1000 * MBIT, VM));
    let (mut last_own, mut last_pair) = (0, 0);
    for _ in 0..FRAMES {
        // More than the uplink carries, from both.
        for _ in 0..4 {
            last_pair = host.depart(ONE).unwrap_or(last_pair);
        }
        let ran = host.send(&own(), 0);
        assert_eq!(ran.verdict, PASS);
        last_own = ran.departs_ns;
    }
    // A pair with a floor leaves no later than by it, from now on: however slow this machine was.
    let sent = host.queue(ONE).segments;
    let (own, pair) = (time_for(FULL, mine) * FRAMES, time_for(FULL, theirs) * sent);
    assert!(last_own <= now() + own, "the host's {} ns after", last_own.saturating_sub(now()));
    assert!(last_pair <= now() + pair, "the VM's {} ns after", last_pair.saturating_sub(now()));
    assert_eq!((host.queue(HOST).segments, host.queue(HOST).dropped), (FRAMES, 0));
    assert_eq!(host.queue(HOST).octets, FRAMES * FULL);
}

#[test]
fn what_the_host_sends_alone_has_the_line_and_keeps_to_what_vms_leave() {
    let host = Host::new();
    host.set(HOST, level(MBIT, 100 * MBIT, UPLINK));
    let mut last = host.send(&own(), 0).departs_ns;
    for _ in 0..5 {
        let departs = host.send(&own(), 0).departs_ns;
        let is_late = departs > last + time_for(FULL, 100 * MBIT);
        assert!(departs == last + time_for(FULL, 100 * MBIT) || (is_late && departs <= now()));
        last = departs;
    }
    // A line that VMs' floors have booked lends nothing: then its floor is all it has.
    host.set(HOST, level(MBIT, 1000 * MBIT, UPLINK));
    host.set(UPLINK, level(10 * MBIT, 10 * MBIT, 0));
    host.set(ONE, level(10 * MBIT, 10 * MBIT, VM));
    for _ in 0..300 {
        host.depart(ONE);
    }
    let (before, sent) = (host.send(&own(), 0).departs_ns, host.queue(HOST).segments);
    let after = host.send(&own(), 0).departs_ns;
    assert!(after >= before + time_for(FULL, MBIT), "{} ns after the last", after - before);
    assert_eq!(host.queue(HOST).segments, sent + 1);
}

#[test]
fn agents_and_a_host_without_a_floor_wait_for_nothing() {
    let host = Host::new();
    assert_eq!(host.send(&own(), 0).departs_ns, 0, "no floor, no limit");
    host.set(HOST, level(MBIT, MBIT, UPLINK));
    assert_ne!(host.send(&own(), 0).departs_ns, 0);
    let port = u32::from(OWN_PORT.to_be());
    let address: IpAddr = OWN.parse().unwrap();
    let at = |port| intf::Control { address: address.into(), port };
    for port in [0, port] {
        host.programs.controls.put(at(port), 0).unwrap();
    }
    assert_eq!(host.send(&own(), 0).departs_ns, 0, "an agent's");
    let feedback = packet(OWN, "10.255.0.2", 253, vec![0; 26]).octets();
    assert_eq!(host.send(&feedback, 0).departs_ns, 0, "EyeQ's");
    assert_eq!(host.queue(HOST).segments, 1);
}

#[test]
fn what_departed_into_a_tunnel_departs_only_once() {
    let host = Host::new();
    host.programs.set(intf::Settings { overhead: 50, ..intf::Settings::default() }).unwrap();
    host.set(HOST, level(MBIT, MBIT, UPLINK));
    host.set(ONE, level(MBIT, MBIT, VM));
    let inner = host.send(&full(), class(ONE));
    assert_eq!((inner.verdict, inner.priority), (PASS, class(DEPARTED)));
    assert_eq!(host.queue(ONE).octets, FULL + 50);
    let outer = host.send(&own(), inner.priority);
    assert_eq!((outer.verdict, outer.priority, outer.departs_ns), (PASS, 0, 0));
    assert_eq!(host.queue(HOST).segments, 0, "it is no packet of the host's");
}

/// The device on which programs run in tests.
const LOOPBACK: u32 = 1;

#[test]
fn where_htb_divides_the_uplink_each_packet_has_the_class_of_its_sender() {
    use intf::{UPLINK_HOST, UPLINK_URGENT, UPLINK_VMS};
    let sizes = Sizes { pairs: 16, endpoints: 64, nodes: NODES, queues: 1, hosts: 1 };
    let programs = Programs::load(sizes, None).unwrap();
    let endpoint = intf::Endpoint { vm: 1, tenant: 1, flags: intf::LOCAL, ..Default::default() };
    programs.endpoints.put(MINE.parse::<IpAddr>().unwrap().into(), endpoint).unwrap();
    let peer = intf::Endpoint { vm: 2, flags: 0, ..endpoint };
    programs.endpoints.put(PEER.parse::<IpAddr>().unwrap().into(), peer).unwrap();
    let address: IpAddr = OWN.parse().unwrap();
    for port in [0, u32::from(7002u16.to_be())] {
        let at = intf::Control { address: address.into(), port };
        programs.controls.put(at, 0).unwrap();
    }
    let message = || {
        let mut body = udp(9, 100);
        body[..2].copy_from_slice(&7002u16.to_be_bytes());
        packet(OWN, "10.255.0.2", 17, body).octets()
    };
    let discovery = || arp(Ipv4Addr::new(10, 255, 0, 1));
    let feedback = || packet(OWN, "10.255.0.2", 253, vec![0; 26]).octets();
    let stranger = || packet("192.0.2.1", PEER, 17, udp(9, 100)).octets();
    // What it came with, and its class where the uplink is divided and where it is not.
    let told: [(&str, Vec<u8>, u32, [u32; 2]); 9] = [
        ("a pair's", full(), 0x1_4000, [UPLINK_VMS, 0]),
        ("a VM's that was routed", full(), 6, [UPLINK_VMS, 6]),
        ("a VM's question for an address", discovery(), 0x1_3000, [UPLINK_VMS, 0]),
        ("from a tunnel", own(), class(DEPARTED), [UPLINK_VMS, 0]),
        ("the host's", own(), 0, [UPLINK_HOST, 0]),
        ("a container's", stranger(), 5, [UPLINK_HOST, 5]),
        ("an agent's", message(), 0, [UPLINK_URGENT, 0]),
        ("EyeQ's", feedback(), 0, [UPLINK_URGENT, 0]),
        ("the host's question for an address", discovery(), 0, [UPLINK_URGENT, 0]),
    ];
    for (divided, which) in [(LOOPBACK, 0), (0, 1), (LOOPBACK + 1, 1)] {
        programs.set(intf::Settings { divided, ..intf::Settings::default() }).unwrap();
        for (what, octets, priority, classes) in &told {
            let frame = Frame { octets, priority: *priority, ..Frame::default() };
            let ran = programs.run(Program::Stamp, &frame).unwrap();
            assert_eq!((ran.verdict, ran.departs_ns), (PASS, 0), "{what}");
            assert_eq!(ran.priority, classes[which], "{what}, divided: {divided}");
        }
    }
}
