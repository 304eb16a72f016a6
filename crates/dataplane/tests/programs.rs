//! The programs on golden packets: every packet is judged by its verdict, its class, and by all
//! counters: what is not named must not have moved. Needs root, and fails without.

use crate::frame::{Packet, alien, arp, checksum, discovery, packet, tcp, udp};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use weir_dataplane::intf::{self, Pair, PortCounters, Rx, Tx};
use weir_dataplane::programs::{Frame, Program, Programs, Ran, Sizes};

const PASS: i32 = -1;
const DROP: i32 = 2;
const LOOPBACK: u32 = 1;
const DEFAULT: u32 = 0x1_0011;
const CONTROL: u32 = 0x1_0012;
const EXTERNAL: u32 = 0x1_0013;
/// What a packet's priority is before: nothing that we would write.
const UNTOUCHED: u32 = 7;
/// More than any test takes that is not about it.
const PLACES: u32 = 512;
const MINE: &str = "10.0.0.1";
const MINE6: &str = "fd00::1";
const PEER: &str = "10.0.0.2";
const PEER6: &str = "fd00::2";
const STRANGER: &str = "10.0.0.3";
const NEIGHBOUR: &str = "10.0.0.4";
const UNKNOWN: &str = "192.0.2.1";
const TO_PEER: Pair = Pair { src: 1, dst: 2 };
const FROM_PEER: Pair = Pair { src: 2, dst: 1 };

/// Everything that is counted anywhere.
#[derive(Clone, PartialEq, Debug, Default)]
struct Counted {
    port: PortCounters,
    tx: BTreeMap<Pair, Tx>,
    rx: BTreeMap<Pair, Rx>,
}

/// A host with one VM (1, tenant 1) on the loopback as its port. In the directory: VM 2 of the
/// same tenant, VM 3 of another, and VM 4 on this host too.
struct Host(Programs);

impl Host {
    fn new(pairs: u32) -> Self {
        let programs =
            Programs::load(Sizes { pairs, endpoints: 64, nodes: 1, queues: 1, hosts: 1 }, None)
                .expect("these tests load BPF programs: run them as root");
        let port = intf::Port {
            vm: 1,
            tenant: 1,
            slot: 0,
            default_class: DEFAULT,
            control_class: CONTROL,
            external_class: EXTERNAL,
            flags: 0,
            max_pairs: PLACES,
            stray_bps: 0,
            moment: 0,
            mac: [0; 8],
        };
        programs.ports.put(LOOPBACK, port).unwrap();
        let directory = [
            (MINE, 1, 1, intf::LOCAL),
            (MINE6, 1, 1, intf::LOCAL),
            (PEER, 2, 1, 0),
            (PEER6, 2, 1, 0),
            (STRANGER, 3, 2, 0),
            (NEIGHBOUR, 4, 1, intf::LOCAL),
        ];
        for (address, vm, tenant, flags) in directory {
            let address: IpAddr = address.parse().unwrap();
            let endpoint = intf::Endpoint { vm, tenant, flags, ..intf::Endpoint::default() };
            programs.endpoints.put(address.into(), endpoint).unwrap();
        }
        Self(programs)
    }

    /// All counters, without the instants.
    fn counted(&mut self) -> Counted {
        Counted {
            port: self.0.port_counters.get(0),
            tx: self
                .0
                .tx
                .read()
                .unwrap()
                .map(|(p, t)| (p, Tx { told_ns: 0, stray_ns: 0, ..t }))
                .collect(),
            rx: self.0.rx.read().unwrap().collect(),
        }
    }

    fn run_frame(&self, program: Program, frame: &Frame<'_>) -> Ran {
        self.0.run(program, frame).unwrap()
    }

    fn run(&self, program: Program, octets: &[u8]) -> Ran {
        self.run_frame(program, &Frame { octets, priority: UNTOUCHED, ..Frame::default() })
    }

    /// Classifies; returns verdict and priority.
    fn classify(&self, octets: &[u8]) -> (i32, u32) {
        let ran = self.run(Program::Classify, octets);
        assert_eq!(ran.octets, octets, "classify changes no octet");
        (ran.verdict, ran.priority)
    }

    fn meter(&self, octets: &[u8]) {
        let ran = self.run(Program::Meter, octets);
        assert_eq!((ran.verdict, ran.priority), (PASS, UNTOUCHED), "meter drops nothing");
        assert_eq!(ran.octets, octets, "meter changes no octet");
    }
}

/// What the port counts for packets passed on from the VM.
fn passed(octets: u64, segments: u64) -> PortCounters {
    PortCounters { tx_octets: octets, tx_segments: segments, ..PortCounters::default() }
}

fn sent(pair: Pair, octets: u64, segments: u64) -> BTreeMap<Pair, Tx> {
    BTreeMap::from([(pair, Tx { octets, segments, ..Tx::default() })])
}

fn plain(src: &str, dst: &str) -> Packet {
    packet(src, dst, 17, udp(9, 100))
}

/// The first `left` octets of the network layer. Under a tag, for the kernel's test run refuses to
/// make an untagged packet so short.
fn cut(mut whole: Packet, left: usize) -> Vec<u8> {
    whole.tags = vec![100];
    let mut octets = whole.octets();
    octets.truncate(18 + left);
    octets
}

/// Classifies one packet on a fresh host and compares all that is counted.
#[track_caller]
fn expect(octets: &[u8], outcome: (i32, u32), port: PortCounters, tx: BTreeMap<Pair, Tx>) {
    let mut host = Host::new(16);
    assert_eq!(host.classify(octets), outcome);
    assert_eq!(host.counted(), Counted { port, tx, rx: BTreeMap::new() });
}

#[track_caller]
fn expect_spoofed(octets: &[u8]) {
    let port = PortCounters { spoofed: 1, ..PortCounters::default() };
    expect(octets, (DROP, UNTOUCHED), port, BTreeMap::new());
}

#[track_caller]
fn expect_malformed(octets: &[u8]) {
    let port = PortCounters { malformed: 1, ..PortCounters::default() };
    expect(octets, (DROP, UNTOUCHED), port, BTreeMap::new());
}

#[track_caller]
fn expect_unclassified(octets: &[u8]) {
    let port = PortCounters { unclassified: 1, ..passed(octets.len() as u64, 1) };
    expect(octets, (PASS, DEFAULT), port, BTreeMap::new());
}

#[track_caller]
fn expect_external(octets: &[u8]) {
    let external_tx = octets.len() as u64;
    let port = PortCounters { external_tx, ..passed(external_tx, 1) };
    expect(octets, (PASS, EXTERNAL), port, BTreeMap::new());
}

#[track_caller]
fn expect_rogue(octets: &[u8]) {
    let port = PortCounters { rogue: 1, ..PortCounters::default() };
    expect(octets, (DROP, UNTOUCHED), port, BTreeMap::new());
}

#[track_caller]
fn expect_control(octets: &[u8]) {
    let port = PortCounters { control: 1, ..passed(octets.len() as u64, 1) };
    expect(octets, (PASS, CONTROL), port, BTreeMap::new());
}

#[test]
fn a_new_pair_is_counted_and_takes_the_default_class_until_it_has_its_own() {
    let mut host = Host::new(16);
    let octets = plain(MINE, PEER).octets();
    assert_eq!(octets.len(), 142);
    assert_eq!(host.classify(&octets), (PASS, DEFAULT));
    host.0.classes.put(TO_PEER, 0x1_0123).unwrap();
    assert_eq!(host.classify(&octets), (PASS, 0x1_0123));
    let expected = Counted { port: passed(284, 2), tx: sent(TO_PEER, 284, 2), rx: BTreeMap::new() };
    assert_eq!(host.counted(), expected);
}

#[test]
fn ipv6_is_classified_like_ipv4() {
    let octets = plain(MINE6, PEER6).octets();
    expect(&octets, (PASS, DEFAULT), passed(162, 1), sent(TO_PEER, 162, 1));
}

#[test]
fn a_vm_of_another_tenant_is_a_pair_too() {
    let octets = plain(MINE, STRANGER).octets();
    let pair = Pair { src: 1, dst: 3 };
    expect(&octets, (PASS, DEFAULT), passed(142, 1), sent(pair, 142, 1));
}

#[test]
fn a_vlan_tag_is_looked_through_and_counted() {
    // The kernel takes one tag out of the octets at the door; a second stays in them.
    let mut tagged = plain(MINE, PEER);
    tagged.tags = vec![100, 200];
    let octets = tagged.octets();
    assert_eq!(octets.len(), 150);
    expect(&octets, (PASS, DEFAULT), passed(150, 1), sent(TO_PEER, 150, 1));
    let mut forged = plain(PEER, STRANGER);
    forged.tags = vec![100];
    expect_spoofed(&forged.octets());
}

#[test]
fn more_tags_than_are_looked_through_hide_nothing() {
    let mut stacked = plain(PEER, STRANGER);
    stacked.tags = vec![0, 0, 0, 0];
    expect_malformed(&stacked.octets());
}

#[test]
fn fragments_belong_to_the_pair_of_their_addresses() {
    let mut later = plain(MINE, PEER);
    later.fragment = 0x2000 | 185;
    expect(&later.octets(), (PASS, DEFAULT), passed(142, 1), sent(TO_PEER, 142, 1));
}

#[test]
fn tcp_segments_that_only_acknowledge_are_counted_as_such() {
    const ACK: u8 = 0x10;
    let segment = |(src, dst): (&str, &str), payload, flags: u8| {
        let mut body = tcp(payload);
        body[13] = flags;
        packet(src, dst, 6, body)
    };
    let padded = |mut octets: Vec<u8>| {
        octets.resize(octets.len() + 6, 0);
        octets
    };
    let (ip4, ip6) = ((MINE, PEER), (MINE6, PEER6));
    let mut tagged = segment(ip4, 0, ACK);
    tagged.tags = vec![100];
    let mut fragment = segment(ip4, 0, ACK);
    fragment.fragment = 0x2000;
    let cases = [
        (segment(ip4, 0, ACK).octets(), true),
        (segment(ip6, 0, ACK).octets(), true),
        (padded(segment(ip4, 0, ACK).octets()), true),
        (padded(segment(ip6, 0, ACK).octets()), true),
        (tagged.octets(), true),
        // Data, however little; what begins or ends a connection; what has no such header.
        (segment(ip4, 1, ACK).octets(), false),
        (segment(ip6, 1, ACK | 8).octets(), false),
        (segment(ip4, 0, ACK | 1).octets(), false),
        (segment(ip4, 0, ACK | 2).octets(), false),
        (segment(ip4, 0, 4).octets(), false),
        (segment(ip4, 0, 0).octets(), false),
        (segment(ip4, 1400, ACK).octets(), false),
        (fragment.octets(), false),
        (packet(MINE, PEER, 17, udp(9, 0)).octets(), false),
    ];
    for (n, (octets, is_one)) in cases.iter().enumerate() {
        let mut host = Host::new(16);
        assert_eq!(host.classify(octets), (PASS, DEFAULT));
        let tx = host.counted().tx[&TO_PEER];
        assert_eq!(tx.octets, octets.len() as u64, "case {n}");
        assert_eq!(tx.acks_octets, if *is_one { tx.octets } else { 0 }, "case {n}");
    }
}

#[test]
fn a_super_packet_counts_as_its_segments_with_all_their_headers() {
    // 10 segments of 144: 14 + 20 + 32 octets of headers each.
    let tcp4 = packet(MINE, PEER, 6, tcp(1440)).octets();
    // 3 segments of 1000, the last of 500: 14 + 40 + 8 octets of headers each.
    let udp6 = packet(MINE6, PEER6, 17, udp(9, 2500)).octets();
    for (octets, size, payload, segments, headers) in
        [(tcp4, 144, 1440, 10, 66), (udp6, 1000, 2500, 3, 62)]
    {
        // Told by the driver, and (0) not told, as from a guest's own driver.
        for told in [segments, 0] {
            let mut host = Host::new(16);
            let frame =
                Frame { octets: &octets, gso_segs: told, gso_size: size, ..Frame::default() };
            let ran = host.run_frame(Program::Classify, &frame);
            assert_eq!((ran.verdict, ran.priority), (PASS, DEFAULT));
            let wire = u64::from(payload + segments * headers);
            let expected = Counted {
                port: passed(wire, segments.into()),
                tx: sent(TO_PEER, wire, segments.into()),
                rx: BTreeMap::new(),
            };
            assert_eq!(host.counted(), expected, "told {told}");
        }
    }
}

#[test]
fn forged_sources_are_dropped_and_counted() {
    expect_spoofed(&plain(PEER, STRANGER).octets());
    expect_spoofed(&plain(NEIGHBOUR, PEER).octets());
    expect_spoofed(&plain(UNKNOWN, PEER).octets());
    expect_spoofed(&plain(PEER6, MINE6).octets());
    expect_spoofed(&plain("fd00::99", PEER6).octets());
    expect_spoofed(&plain("0.0.0.0", PEER).octets());
    expect_spoofed(&plain("fe80::1", PEER6).octets());
    expect_spoofed(&arp(PEER.parse().unwrap()));
    expect_spoofed(&arp(UNKNOWN.parse().unwrap()));
}

#[test]
fn an_ipv4_address_in_an_ipv6_header_does_not_pass_for_the_endpoint() {
    expect_malformed(&plain("::ffff:10.0.0.1", PEER6).octets());
    expect_malformed(&plain(MINE6, "::ffff:10.0.0.2").octets());
}

#[test]
fn truncated_and_contradictory_packets_are_dropped_and_counted() {
    let whole = plain(MINE, PEER).octets();
    expect_malformed(&cut(plain(MINE, PEER), 0));
    expect_malformed(&cut(plain(MINE, PEER), 19));
    expect_malformed(&whole[..whole.len() - 1]);
    expect_malformed(&cut(plain(MINE6, PEER6), 39));
    expect_malformed(&arp(MINE.parse().unwrap())[..14 + 27]);
    let mut version = whole.clone();
    version[14] = 0x65;
    expect_malformed(&version);
    let mut header = whole.clone();
    header[14] = 0x44;
    expect_malformed(&header);
    let mut length = whole;
    length[16..18].copy_from_slice(&19u16.to_be_bytes());
    expect_malformed(&length);
}

#[test]
fn padding_behind_a_short_packet_is_fine() {
    let mut octets = packet(MINE, PEER, 17, udp(9, 1)).octets();
    octets.resize(60, 0);
    expect(&octets, (PASS, DEFAULT), passed(60, 1), sent(TO_PEER, 60, 1));
}

#[test]
fn arp_of_the_vms_own_address_and_probes_come_first() {
    expect_control(&arp(MINE.parse().unwrap()));
    expect_control(&arp(Ipv4Addr::UNSPECIFIED));
}

#[test]
fn neighbour_discovery_comes_first_if_it_speaks_of_the_vm() {
    let nd = |src, kind, target| {
        let mut p = packet(src, "ff02::1", 58, discovery(kind, target));
        p.ttl = 255;
        p
    };
    expect_control(&nd(MINE6, 135, PEER6).octets());
    expect_control(&nd("fe80::1", 135, PEER6).octets());
    expect_control(&nd("::", 135, MINE6).octets());
    expect_control(&nd("fe80::1", 136, MINE6).octets());
    expect_control(&nd(MINE6, 136, "fe80::1").octets());
    expect_spoofed(&nd(MINE6, 136, PEER6).octets());
    expect_spoofed(&nd(PEER6, 135, PEER6).octets());
    // Through a router: no discovery at all, but an ordinary packet to all nodes on the link.
    let mut routed = nd(MINE6, 136, PEER6);
    routed.ttl = 254;
    expect_unclassified(&routed.octets());
}

#[test]
fn what_no_directory_lists_has_a_class_of_its_own() {
    expect_external(&plain(MINE, UNKNOWN).octets());
    expect_external(&plain(MINE6, "2001:db8::1").octets());
}

/// The test is what translates: no packet filter of the kernel's is needed.
#[test]
fn what_is_translated_behind_the_port_keeps_its_external_class_and_gets_no_number() {
    let mut host = Host::new(16);
    let written = plain(MINE, UNKNOWN).octets();
    assert_eq!(host.classify(&written), (PASS, EXTERNAL));
    // On its way it becomes a packet to a VM, with its class.
    let translated = plain(MINE, PEER).octets();
    let frame = Frame { octets: &translated, priority: EXTERNAL, ..Frame::default() };
    let ran = host.run_frame(Program::Stamp, &frame);
    assert_eq!(
        (ran.verdict, &ran.octets),
        (PASS, &translated),
        "its identification is the guest's"
    );
    let port =
        PortCounters { external_tx: written.len() as u64, ..passed(written.len() as u64, 1) };
    assert_eq!(host.counted(), Counted { port, ..Counted::default() }, "no pair is made of it");
}

#[test]
fn what_goes_to_no_place_takes_the_default_class() {
    expect_unclassified(&plain(MINE, MINE).octets());
    for nowhere in ["255.255.255.255", "239.1.1.1", "224.0.0.1", "169.254.1.1", "127.0.0.1"] {
        expect_unclassified(&plain(MINE, nowhere).octets());
    }
    expect_unclassified(&plain(MINE6, "ff0e::1").octets());
    expect_unclassified(&plain("fe80::1", "fe80::2").octets());
    expect_unclassified(&alien());
}

#[test]
fn only_routers_and_dhcp_servers_speak_for_themselves() {
    let router = |kind: u8| {
        let mut p = packet("fe80::1", "ff02::1", 58, vec![kind, 0, 0, 0, 0, 0, 0, 0]);
        p.ttl = 255;
        p
    };
    expect_rogue(&router(134).octets());
    expect_rogue(&router(137).octets());
    expect_control(&router(133).octets());
    let mut unheeded = router(134);
    unheeded.ttl = 254;
    expect_unclassified(&unheeded.octets());

    let from_to = |src: u16, dst: u16| {
        let mut datagram = udp(dst, 300);
        datagram[..2].copy_from_slice(&src.to_be_bytes());
        datagram
    };
    expect_rogue(&packet(MINE, "255.255.255.255", 17, from_to(67, 68)).octets());
    expect_rogue(&packet(MINE, PEER, 17, from_to(67, 68)).octets());
    expect_rogue(&packet("fe80::1", "fe80::2", 17, from_to(547, 546)).octets());
    expect_external(&packet(MINE, UNKNOWN, 17, from_to(67, 67)).octets());
}

#[test]
fn a_frame_to_another_hardware_address_than_its_packets_is_dropped_and_counted() {
    let mut host = Host::new(16);
    let frame = plain(MINE, PEER).octets();
    let mac = |first: u8| {
        let mut mac = [0; 8];
        mac[..6].copy_from_slice(&frame[..6]);
        mac[0] ^= first;
        mac
    };
    let bind = |host: &Host, mac| {
        let endpoint = intf::Endpoint { vm: 2, tenant: 1, flags: intf::AT_MAC, mac, host: 0 };
        let peer: IpAddr = PEER.parse().unwrap();
        host.0.endpoints.put(peer.into(), endpoint).unwrap();
    };
    bind(&host, mac(2));
    assert_eq!(host.classify(&frame), (DROP, UNTOUCHED));
    let port = PortCounters { misdirected: 1, ..PortCounters::default() };
    assert_eq!(host.counted(), Counted { port, ..Counted::default() });
    bind(&host, mac(0));
    assert_eq!(host.classify(&frame), (PASS, DEFAULT));
    assert_eq!(host.classify(&plain(MINE, UNKNOWN).octets()), (PASS, EXTERNAL));
}

#[test]
fn a_vm_without_an_address_may_ask_for_one() {
    expect_control(&packet("0.0.0.0", "255.255.255.255", 17, udp(67, 300)).octets());
    expect_spoofed(&packet("0.0.0.0", "255.255.255.255", 17, udp(68, 300)).octets());
    expect_control(&packet("fe80::1", "ff02::1:2", 17, udp(547, 100)).octets());
    expect_unclassified(&packet("::", "ff02::16", 58, vec![143, 0, 0, 0, 0, 0, 0, 0]).octets());
    expect_spoofed(&packet("::", PEER6, 17, udp(9, 100)).octets());
}

#[test]
fn a_full_table_is_counted_and_its_packets_pass_by_the_default_class() {
    let mut host = Host::new(1);
    let octets = plain(MINE, PEER).octets();
    assert_eq!(host.classify(&octets), (PASS, DEFAULT));
    assert_eq!(host.classify(&plain(MINE, STRANGER).octets()), (PASS, DEFAULT));
    assert_eq!(host.classify(&octets), (PASS, DEFAULT));
    let expected = Counted {
        port: PortCounters { tx_full: 1, ..passed(426, 3) },
        tx: sent(TO_PEER, 284, 2),
        rx: BTreeMap::new(),
    };
    assert_eq!(host.counted(), expected);

    let mut host = Host::new(1);
    host.meter(&plain(PEER, MINE).octets());
    host.meter(&plain(STRANGER, MINE).octets());
    let counted = host.counted();
    assert_eq!(counted.rx.keys().collect::<Vec<_>>(), [&FROM_PEER]);
    let port = PortCounters { rx_octets: 284, rx_segments: 2, rx_full: 1, ..Default::default() };
    assert_eq!(counted.port, port);
}

#[test]
fn an_interface_that_is_no_port_is_left_alone() {
    let mut host = Host::new(16);
    host.0.ports.delete(LOOPBACK).unwrap();
    let octets = plain(PEER, STRANGER).octets();
    assert_eq!(host.classify(&octets), (PASS, UNTOUCHED));
    host.meter(&octets);
    assert_eq!(host.counted(), Counted::default());
}

#[test]
fn stamps_count_segments_per_pair_and_keep_the_checksum_right() {
    let mut host = Host::new(16);
    let mut original = packet(MINE, PEER, 6, tcp(2896));
    original.id = 0xabcd;
    let octets = original.octets();
    // No pair yet: nothing to number.
    assert_eq!(host.run(Program::Stamp, &octets).octets, octets);
    host.0.tx.put(TO_PEER, Tx { sequence: 0xffff, ..Tx::default() }).unwrap();
    let frame = Frame { octets: &octets, gso_segs: 2, gso_size: 1448, ..Frame::default() };
    let mut numbers = Vec::new();
    for frame in [Frame { gso_segs: 0, gso_size: 0, ..frame.clone() }, frame.clone(), frame] {
        let ran = host.run_frame(Program::Stamp, &frame);
        assert_eq!(ran.verdict, PASS);
        assert_eq!(checksum(&ran.octets[14..34]), 0);
        numbers.push(u16::from_be_bytes([ran.octets[18], ran.octets[19]]));
        let mut restored = ran.octets;
        restored[18..20].copy_from_slice(&octets[18..20]);
        restored[24..26].copy_from_slice(&octets[24..26]);
        assert_eq!(restored, octets, "nothing else changes");
    }
    assert_eq!(numbers, [0xffff, 0, 2]);
    // One of 2962 octets, and two of two segments, 66 octets of headers each.
    let numbered = 2962 + 2 * (2896 + 2 * 66);
    let state = Tx { sequence: 0x1_0004, numbered, ..Tx::default() };
    let expected = Counted { tx: BTreeMap::from([(TO_PEER, state)]), ..Counted::default() };
    assert_eq!(host.counted(), expected);
}

#[test]
fn fragments_ipv6_transit_and_malformed_packets_are_not_stamped() {
    let mut host = Host::new(16);
    for pair in [TO_PEER, FROM_PEER] {
        host.0.tx.put(pair, Tx { sequence: 5, ..Tx::default() }).unwrap();
    }
    let before = host.counted();
    let mut first = plain(MINE, PEER);
    first.fragment = 0x2000;
    let mut last = plain(MINE, PEER);
    last.fragment = 185;
    for octets in [
        first.octets(),
        last.octets(),
        plain(MINE6, PEER6).octets(),
        plain(PEER, MINE).octets(),
        plain(MINE, UNKNOWN).octets(),
        arp(MINE.parse().unwrap()),
        cut(plain(MINE, PEER), 19),
    ] {
        let ran = host.run(Program::Stamp, &octets);
        assert_eq!((ran.verdict, ran.priority), (PASS, UNTOUCHED));
        assert_eq!(ran.octets, octets);
    }
    // But it is counted what leaves without a number: two fragments and the IPv6 packet.
    let state = Tx { sequence: 5, unnumbered: 142 + 142 + 162, ..Tx::default() };
    let tx = BTreeMap::from([(TO_PEER, state), (FROM_PEER, before.tx[&FROM_PEER])]);
    assert_eq!(host.counted(), Counted { tx, ..before });
}

#[test]
fn a_class_is_taken_out_of_the_priority_before_the_uplinks_own_qdisc_sees_it() {
    let host = Host::new(16);
    let octets = plain(MINE, UNKNOWN).octets();
    for program in [Program::Stamp, Program::Meter] {
        let frame = Frame { octets: &octets, priority: DEFAULT, ..Frame::default() };
        assert_eq!(host.run_frame(program, &frame).priority, 0);
    }
}

#[test]
fn what_a_bridge_floods_or_a_stranger_sends_is_foreign() {
    let mut host = Host::new(16);
    let frames = [
        plain(PEER, STRANGER).octets(),
        plain("169.254.1.1", MINE).octets(),
        plain(PEER, "255.255.255.255").octets(),
        arp(PEER.parse().unwrap()),
        alien(),
        cut(plain(PEER, MINE), 19),
    ];
    let octets = frames.iter().map(|f| f.len() as u64).sum();
    for frame in &frames {
        host.meter(frame);
    }
    let port =
        PortCounters { rx_octets: octets, rx_segments: 6, foreign: 6, ..PortCounters::default() };
    assert_eq!(host.counted(), Counted { port, ..Counted::default() });
}

#[test]
fn what_comes_from_addresses_that_no_directory_lists_is_counted() {
    let mut host = Host::new(16);
    let frames = [plain(UNKNOWN, MINE), plain("2001:db8::1", MINE6)].map(|f| f.octets());
    let octets = frames.iter().map(|f| f.len() as u64).sum();
    for frame in &frames {
        host.meter(frame);
    }
    // Not to this VM, and from no place.
    host.meter(&plain(UNKNOWN, NEIGHBOUR).octets());
    host.meter(&plain("169.254.1.1", MINE).octets());
    let port = PortCounters {
        rx_octets: octets + 2 * 142,
        rx_segments: 4,
        foreign: 2,
        external_rx: octets,
        ..PortCounters::default()
    };
    assert_eq!(host.counted(), Counted { port, ..Counted::default() });
}
