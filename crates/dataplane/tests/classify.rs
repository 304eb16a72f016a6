//! Sources and destinations, and what is allowed: the outside of the cloud, agents, extension
//! headers, MAC addresses and places in the tables, on golden packets. Needs root, and fails
//! without.

use crate::frame;

use crate::frame::{Packet, arp, discovery, packet, tcp, udp};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv6Addr};
use weir_dataplane::intf::{self, Address, Pair, PortCounters};
use weir_dataplane::programs::{Frame, Program, Programs, Ran, Sizes};

const PASS: i32 = -1;
const DROP: i32 = 2;
const LOOPBACK: u32 = 1;
const DEFAULT: u32 = 0x1_0011;
const CONTROL: u32 = 0x1_0012;
const EXTERNAL: u32 = 0x1_0013;
/// The default classes of the endpoints for the outside.
const GOLD_DEFAULT: u32 = 0x1_0021;
const BULK_DEFAULT: u32 = 0x1_0022;

const GOLD: u32 = 1;
const BULK: u32 = 2;
const MINE: &str = "10.0.0.1";
const MINE6: &str = "fd00::1";
const PEER: &str = "10.0.0.2";
const PEER6: &str = "fd00::2";
const STRANGER: &str = "10.0.0.3";
/// Addresses that no directory has.
const INTERNET: &str = "198.51.100.7";
const OFFICE: &str = "203.0.113.9";
const INTERNET6: &str = "2001:db8::7";
const AGENT: &str = "10.255.0.1";
const AGENT6: &str = "fd00:ff::1";
const AGENT_PORT: u16 = 7001;

/// Stands for all of gold's IPv4 outside (slot 1), for its office, and for all of bulk's (slot 2).
const GOLD_OUT: u32 = 9;
const GOLD_OFFICE: u32 = 10;
const BULK_OUT: u32 = 11;

/// A port on the loopback: that of VM 1 of gold, or one that leads outside. In the directory: VM 2
/// of gold, VM 3 of bulk, one agent.
struct Host(Programs);

impl Host {
    fn with_port(flags: u32) -> Self {
        let programs =
            Programs::load(Sizes { pairs: 64, endpoints: 64, nodes: 1, queues: 1, hosts: 1 }, None)
                .expect("these tests load BPF programs: run them as root");
        let host = Self(programs);
        host.port(intf::Port {
            vm: if flags & intf::OUTWARD == 0 { 1 } else { GOLD_OUT },
            tenant: GOLD,
            default_class: DEFAULT,
            control_class: CONTROL,
            external_class: EXTERNAL,
            flags,
            max_pairs: 64,
            ..intf::Port::default()
        });
        for (address, vm, tenant) in [
            (MINE, 1, GOLD),
            (MINE6, 1, GOLD),
            (PEER, 2, GOLD),
            (PEER6, 2, GOLD),
            (STRANGER, 3, BULK),
        ] {
            host.endpoint(
                address,
                intf::Endpoint { vm, tenant, flags: 0, ..intf::Endpoint::default() },
            );
        }
        host.outside("0.0.0.0", 0, GOLD, GOLD_OUT);
        host.outside("203.0.113.0", 24, GOLD, GOLD_OFFICE);
        host.outside("0.0.0.0", 0, BULK, BULK_OUT);
        for agent in [AGENT, AGENT6] {
            for port in [0, AGENT_PORT.to_be()] {
                let key = intf::Control { address: address(agent), port: port.into() };
                host.0.controls.put(key, 1).unwrap();
            }
        }
        host
    }

    fn of_a_vm() -> Self {
        Self::with_port(0)
    }

    fn outward() -> Self {
        Self::with_port(intf::OUTWARD)
    }

    fn port(&self, port: intf::Port) {
        self.0.ports.put(LOOPBACK, port).unwrap();
    }

    fn change_port(&self, change: impl FnOnce(&mut intf::Port)) {
        let mut port = self.0.ports.get(LOOPBACK).unwrap().unwrap();
        change(&mut port);
        self.port(port);
    }

    fn endpoint(&self, text: &str, endpoint: intf::Endpoint) {
        self.0.endpoints.put(address(text), endpoint).unwrap();
    }

    /// All but the office are on this host.
    fn outside(&self, first: &str, length: u32, tenant: u32, vm: u32) {
        let (family, head) = if first.contains(':') { (6, 0) } else { (4, 96) };
        let key = intf::Prefix {
            bits: intf::PREFIX_HEAD + head + length,
            tenant,
            family,
            address: address(first),
        };
        let (slot, default_class) =
            if tenant == GOLD { (1, GOLD_DEFAULT) } else { (2, BULK_DEFAULT) };
        let flags = if vm == GOLD_OFFICE { 0 } else { intf::LOCAL };
        let endpoint = intf::Endpoint { vm, tenant, flags, ..intf::Endpoint::default() };
        self.0.outside.put(key, intf::Outside { endpoint, slot, default_class }).unwrap();
    }

    fn run(&self, program: Program, octets: &[u8]) -> Ran {
        self.0.run(program, &Frame { octets, ..Frame::default() }).unwrap()
    }

    /// Classifies; returns verdict and priority.
    fn classify(&self, octets: &[u8]) -> (i32, u32) {
        let ran = self.run(Program::Classify, octets);
        assert_eq!(ran.octets, octets, "classify changes no octet");
        (ran.verdict, ran.priority)
    }

    /// What the port counted but for octets and segments.
    fn counted(&self) -> PortCounters {
        let all = self.0.port_counters.get(0);
        PortCounters { tx_octets: 0, tx_segments: 0, rx_octets: 0, rx_segments: 0, ..all }
    }

    /// Packets sent and received by pair.
    fn pairs(&mut self) -> (BTreeMap<Pair, u64>, BTreeMap<Pair, u64>) {
        let tx = self.0.tx.read().unwrap().map(|(p, t)| (p, t.segments)).collect();
        let rx = self.0.rx.read().unwrap().map(|(p, r)| (p, r.segments)).collect();
        (tx, rx)
    }
}

fn address(text: &str) -> Address {
    text.parse::<IpAddr>().unwrap().into()
}

fn pair(src: u32, dst: u32) -> Pair {
    Pair { src, dst }
}

fn plain(src: &str, dst: &str) -> Packet {
    packet(src, dst, 17, udp(9, 100))
}

/// A datagram to a UDP port.
fn to_port(src: &str, dst: &str, port: u16) -> Packet {
    packet(src, dst, 17, udp(port, 100))
}

/// The same packet with its transport behind an extension header of eight octets: `header` is its
/// kind, and `third` what its third and fourth octet say (a fragment's offset).
fn behind(header: u8, third: u16, mut p: Packet) -> Packet {
    let mut body = vec![p.protocol, 0];
    body.extend(third.to_be_bytes());
    body.extend([0; 4]);
    body.append(&mut p.body);
    Packet { protocol: header, body, ..p }
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const OPTIONS: u8 = 60;

/// Neighbour discovery as it comes from a neighbour.
fn neighbour(src: &str, kind: u8, target: &str) -> Packet {
    Packet { ttl: 255, ..packet(src, "ff02::1", 58, discovery(kind, target)) }
}

/// What one packet of VM 1 becomes on a fresh host.
#[track_caller]
fn expect(octets: &[u8], outcome: (i32, u32), counted: PortCounters) {
    let host = Host::of_a_vm();
    assert_eq!(host.classify(octets), outcome);
    assert_eq!(host.counted(), counted);
}

fn unclassified() -> PortCounters {
    PortCounters { unclassified: 1, ..PortCounters::default() }
}

/// What is counted of frames that go to addresses which no directory lists.
fn external(frames: &[Vec<u8>]) -> PortCounters {
    let external_tx = frames.iter().map(|frame| frame.len() as u64).sum();
    PortCounters { external_tx, ..PortCounters::default() }
}

fn malformed() -> PortCounters {
    PortCounters { malformed: 1, ..PortCounters::default() }
}

fn spoofed() -> PortCounters {
    PortCounters { spoofed: 1, ..PortCounters::default() }
}

fn denied() -> PortCounters {
    PortCounters { control_denied: 1, ..PortCounters::default() }
}

// -- the outside ------------------------------------------------------------------------------

#[test]
fn what_goes_outside_belongs_to_the_longest_prefix_of_the_senders_tenant() {
    let mut host = Host::of_a_vm();
    host.0.classes.put(pair(1, GOLD_OFFICE), 0x1_0123).unwrap();
    assert_eq!(host.classify(&plain(MINE, INTERNET).octets()), (PASS, DEFAULT));
    assert_eq!(host.classify(&plain(MINE, OFFICE).octets()), (PASS, 0x1_0123));
    // No endpoint stands for gold's IPv6 outside: 0.0.0.0/0 is IPv4 alone.
    let unlisted = plain(MINE6, INTERNET6).octets();
    assert_eq!(host.classify(&unlisted), (PASS, EXTERNAL));
    let sent = BTreeMap::from([(pair(1, GOLD_OUT), 1), (pair(1, GOLD_OFFICE), 1)]);
    assert_eq!(host.pairs(), (sent, BTreeMap::new()));
    assert_eq!(host.counted(), external(&[unlisted]));

    let mut host = Host::of_a_vm();
    host.outside("::", 0, GOLD, GOLD_OUT);
    host.classify(&plain(MINE6, INTERNET6).octets());
    assert_eq!(host.pairs().0, BTreeMap::from([(pair(1, GOLD_OUT), 1)]));
    // And ::/0 is IPv6 alone.
    host.change_port(|port| (port.vm, port.tenant) = (3, 77));
    host.outside("::", 0, 77, BULK_OUT);
    let unlisted = plain(STRANGER, INTERNET).octets();
    host.classify(&unlisted);
    assert_eq!(host.counted(), external(&[unlisted]));
}

#[test]
fn what_stays_on_the_link_is_not_outside() {
    for dst in ["255.255.255.255", "224.0.0.251", "169.254.1.1", "127.0.0.1", "0.0.0.0"] {
        expect(&plain(MINE, dst).octets(), (PASS, DEFAULT), unclassified());
    }
    for dst in ["ff0e::1", "fe80::1", "::"] {
        let host = Host::of_a_vm();
        host.outside("::", 0, GOLD, GOLD_OUT);
        assert_eq!(host.classify(&plain(MINE6, dst).octets()), (PASS, DEFAULT));
        assert_eq!(host.counted(), unclassified(), "{dst}");
    }
}

#[test]
fn tenants_share_a_port_to_the_outside_and_each_sends_for_itself() {
    let mut host = Host::outward();
    host.0.classes.put(pair(GOLD_OUT, 2), 0x1_0123).unwrap();
    assert_eq!(host.classify(&plain(INTERNET, PEER).octets()), (PASS, 0x1_0123));
    assert_eq!(host.classify(&plain(INTERNET, MINE).octets()), (PASS, GOLD_DEFAULT));
    assert_eq!(host.classify(&plain(INTERNET, STRANGER).octets()), (PASS, BULK_DEFAULT));
    let sent = [(pair(GOLD_OUT, 2), 1), (pair(GOLD_OUT, 1), 1), (pair(BULK_OUT, 3), 1)];
    assert_eq!(host.pairs(), (BTreeMap::from(sent), BTreeMap::new()));
    assert_eq!(host.counted(), PortCounters::default());
    // Each takes its own places.
    let places = host.0.places().unwrap();
    assert_eq!([0, 1, 2].map(|slot| places.get(slot).tx_made), [0, 2, 1]);
}

#[test]
fn whoever_is_outside_cannot_pass_for_somebody_inside() {
    let host = Host::outward();
    for octets in [
        plain(MINE, PEER).octets(),
        plain(PEER6, MINE6).octets(),
        plain(AGENT, PEER).octets(),
        arp(MINE.parse().unwrap()),
        neighbour("fe80::1", 136, MINE6).octets(),
        neighbour(PEER6, 135, MINE6).octets(),
    ] {
        assert_eq!(host.classify(&octets).0, DROP);
    }
    assert_eq!(host.counted(), PortCounters { spoofed: 6, ..PortCounters::default() });
    // Its own neighbours it must find.
    assert_eq!(host.classify(&arp(INTERNET.parse().unwrap())), (PASS, CONTROL));
    assert_eq!(host.classify(&neighbour(INTERNET6, 135, MINE6).octets()), (PASS, CONTROL));
    let octets = neighbour(INTERNET6, 136, INTERNET6).octets();
    assert_eq!(host.classify(&octets), (PASS, CONTROL));
}

#[test]
fn what_comes_from_outside_for_nobody_or_by_the_wrong_host_has_no_pair() {
    let mut host = Host::outward();
    // No VM; a tenant whose endpoint for this address is on another host; one without an endpoint.
    let unlisted = [(INTERNET, "10.0.0.99"), (OFFICE, PEER), (INTERNET6, PEER6)]
        .map(|(src, dst)| plain(src, dst).octets());
    for octets in &unlisted {
        assert_eq!(host.classify(octets), (PASS, EXTERNAL));
    }
    assert_eq!(host.pairs(), Default::default());
    assert_eq!(host.counted(), external(&unlisted));
}

#[test]
fn traffic_with_the_outside_is_metered_and_stamped_like_any_other() {
    let mut host = Host::of_a_vm();
    host.run(Program::Meter, &plain(INTERNET, MINE).octets());
    host.run(Program::Meter, &plain(INTERNET, PEER).octets());
    assert_eq!(host.pairs().1, BTreeMap::from([(pair(GOLD_OUT, 1), 1)]));
    assert_eq!(host.counted().foreign, 1, "a bridge floods");

    let mut host = Host::outward();
    for (src, dst) in [(MINE, INTERNET), (STRANGER, INTERNET), (MINE, OFFICE), (MINE, PEER)] {
        host.run(Program::Meter, &plain(src, dst).octets());
    }
    let received = BTreeMap::from([(pair(1, GOLD_OUT), 1), (pair(3, BULK_OUT), 1)]);
    assert_eq!(host.pairs().1, received);
    assert_eq!(host.counted().foreign, 2);
    let places = host.0.places().unwrap();
    assert_eq!([0, 1, 2].map(|slot| places.get(slot).rx_made), [0, 1, 1]);

    let local =
        intf::Endpoint { vm: 1, tenant: GOLD, flags: intf::LOCAL, ..intf::Endpoint::default() };
    host.endpoint(MINE, local);
    for (pair, src, dst) in
        [(pair(1, GOLD_OUT), MINE, INTERNET), (pair(GOLD_OUT, 2), INTERNET, PEER)]
    {
        host.0.tx.put(pair, intf::Tx { sequence: 5, ..intf::Tx::default() }).unwrap();
        host.run(Program::Stamp, &plain(src, dst).octets());
        assert_eq!(host.0.tx.get(pair).unwrap().unwrap().sequence, 6, "{src} to {dst}");
    }
}

// -- agents -----------------------------------------------------------------------------------

#[test]
fn agents_are_closed_to_vms_and_to_the_outside() {
    for (src, dst) in [(MINE, AGENT), (MINE6, AGENT6), ("fe80::1", AGENT6), (PEER, AGENT)] {
        expect(&to_port(src, dst, AGENT_PORT).octets(), (DROP, 0), denied());
    }
    let mut tagged = to_port(MINE, AGENT, AGENT_PORT);
    tagged.tags = vec![100];
    expect(&tagged.octets(), (DROP, 0), denied());
    let host = Host::outward();
    assert_eq!(host.classify(&to_port(INTERNET, AGENT, AGENT_PORT).octets()).0, DROP);
    assert_eq!(host.counted(), denied());
}

#[test]
fn what_else_an_agents_host_offers_stays_open() {
    let mut host = Host::of_a_vm();
    let mut segment = packet(MINE, AGENT, 6, tcp(100));
    segment.body[2..4].copy_from_slice(&AGENT_PORT.to_be_bytes());
    for (octets, class) in [
        (to_port(MINE, AGENT, AGENT_PORT + 1).octets(), DEFAULT),
        (to_port(MINE, AGENT, 0).octets(), DEFAULT),
        (segment.octets(), DEFAULT),
        (packet(MINE, AGENT, 1, vec![8; 40]).octets(), DEFAULT),
        (to_port(MINE, INTERNET, AGENT_PORT).octets(), DEFAULT),
        (to_port(MINE, PEER, AGENT_PORT).octets(), DEFAULT),
        (to_port(MINE6, AGENT6, AGENT_PORT + 1).octets(), EXTERNAL),
    ] {
        assert_eq!(host.classify(&octets), (PASS, class));
    }
    assert_eq!(host.counted().control_denied, 0);
    assert_eq!(host.pairs().0.len(), 2);
}

#[test]
fn fragments_are_no_way_to_an_agent() {
    let fragment =
        |at, protocol, body| Packet { fragment: at, ..packet(MINE, AGENT, protocol, body) };
    let first = fragment(0x2000, 17, udp(AGENT_PORT, 100)).octets();
    expect(&first, (DROP, 0), denied());
    expect(&fragment(0x2000 | 4, 17, vec![0; 32]).octets(), (DROP, 0), denied());
    expect(&fragment(13, 17, vec![0; 32]).octets(), (DROP, 0), denied());
    // Too short to say its port.
    expect(&fragment(0x2000, 17, vec![0; 3]).octets(), (DROP, 0), denied());
    for allowed in [fragment(13, 6, vec![0; 32]), fragment(0x2000, 17, udp(9, 100))] {
        let host = Host::of_a_vm();
        assert_eq!(host.classify(&allowed.octets()), (PASS, DEFAULT));
        assert_eq!(host.counted().control_denied, 0);
    }

    let control = || to_port(MINE6, AGENT6, AGENT_PORT);
    let rest = |protocol| packet(MINE6, AGENT6, protocol, vec![0; 32]);
    for octets in [
        behind(FRAGMENT, 1, control()).octets(),
        behind(FRAGMENT, 0, behind(OPTIONS, 0, control())).octets(),
        behind(FRAGMENT, 8 << 3, rest(17)).octets(),
        // The rest may begin anywhere, also before the transport.
        behind(FRAGMENT, 1 << 3 | 1, rest(OPTIONS)).octets(),
        behind(HOP_BY_HOP, 0, behind(ROUTING, 0, control())).octets(),
    ] {
        expect(&octets, (DROP, 0), denied());
    }
    let host = Host::of_a_vm();
    let allowed = behind(FRAGMENT, 8 << 3, rest(6)).octets();
    assert_eq!(host.classify(&allowed), (PASS, EXTERNAL));
    assert_eq!(host.counted(), external(&[allowed]));
}

// -- extension headers ------------------------------------------------------------------------

#[test]
fn extension_headers_are_looked_through_and_bounded() {
    let times = |n: usize| (0..n).fold(plain(MINE6, PEER6), |p, _| behind(OPTIONS, 0, p));
    let mut host = Host::of_a_vm();
    assert_eq!(host.classify(&times(6).octets()), (PASS, DEFAULT));
    assert_eq!(host.classify(&behind(FRAGMENT, 8 << 3, plain(MINE6, PEER6)).octets()).0, PASS);
    // Encrypted: the transport cannot be read.
    assert_eq!(host.classify(&packet(MINE6, PEER6, 50, vec![0; 40]).octets()).0, PASS);
    assert_eq!(host.pairs().0, BTreeMap::from([(pair(1, 2), 3)]));
    assert_eq!(host.counted(), PortCounters::default());

    expect(&times(7).octets(), (DROP, 0), malformed());
    let mut long = times(1);
    long.body[1] = 200;
    expect(&long.octets(), (DROP, 0), malformed());
    let cut = Packet { body: vec![17, 0, 0], ..times(1) };
    expect(&cut.octets(), (DROP, 0), malformed());
}

#[test]
fn the_segments_of_a_super_packet_have_its_extension_headers() {
    let mut host = Host::of_a_vm();
    let octets = behind(HOP_BY_HOP, 0, packet(MINE6, PEER6, 6, tcp(1440))).octets();
    let frame = Frame { octets: &octets, gso_segs: 10, gso_size: 144, ..Frame::default() };
    host.0.run(Program::Classify, &frame).unwrap();
    let (_, sent) = host.0.tx.read().unwrap().next().unwrap();
    assert_eq!((sent.segments, sent.octets), (10, 1440 + 10 * (14 + 40 + 8 + 32)));
}

#[test]
fn neighbours_cannot_be_misled_behind_extension_headers() {
    for header in [HOP_BY_HOP, ROUTING, OPTIONS] {
        let behind = |p: Packet| behind(header, 0, behind(OPTIONS, 0, p)).octets();
        let control = PortCounters { control: 1, ..PortCounters::default() };
        expect(&behind(neighbour(MINE6, 136, MINE6)), (PASS, CONTROL), control);
        expect(&behind(neighbour(MINE6, 136, PEER6)), (DROP, 0), spoofed());
        expect(&behind(neighbour("fe80::1", 136, PEER6)), (DROP, 0), spoofed());
        expect(&behind(neighbour(PEER6, 135, MINE6)), (DROP, 0), spoofed());
    }
    // In fragments, the address could stand in the next one.
    for (kind, target) in [(136, PEER6), (136, MINE6), (135, PEER6)] {
        for at in [0, 1] {
            let octets = behind(FRAGMENT, at, neighbour(MINE6, kind, target)).octets();
            expect(&octets, (DROP, 0), malformed());
        }
    }
    // Cut before the message says what it is.
    let empty = Packet { body: vec![], ..neighbour(MINE6, 136, PEER6) };
    expect(&behind(FRAGMENT, 1, behind(OPTIONS, 0, empty)).octets(), (DROP, 0), malformed());
    // A later fragment: no receiver uses it without the first one.
    let rest = behind(FRAGMENT, 8 << 3, neighbour(MINE6, 136, PEER6)).octets();
    expect(&rest, (PASS, DEFAULT), unclassified());
}

// -- MAC addresses ----------------------------------------------------------------------------

#[test]
fn only_the_vms_own_mac_address_may_send_if_it_is_known() {
    // That of all frames here.
    let mac = [2, 0, 0, 0, 0, 1, 0, 0];
    let host = Host::of_a_vm();
    host.change_port(|port| (port.flags, port.mac) = (intf::FIXED_MAC, mac));
    assert_eq!(host.classify(&plain(MINE, PEER).octets()), (PASS, DEFAULT));
    assert_eq!(host.counted(), PortCounters::default());
    for wrong in 0..6 {
        let mut other = mac;
        other[wrong] ^= 1;
        host.change_port(|port| port.mac = other);
        for octets in [plain(MINE, PEER).octets(), arp(MINE.parse().unwrap()), frame::alien()] {
            assert_eq!(host.classify(&octets).0, DROP);
        }
    }
    assert_eq!(host.counted(), PortCounters { spoofed_mac: 18, ..PortCounters::default() });
    host.change_port(|port| port.flags = 0);
    assert_eq!(host.classify(&plain(MINE, PEER).octets()), (PASS, DEFAULT), "not known");
}

// -- places -----------------------------------------------------------------------------------

/// VM `n` of `tenant` in a directory of ten thousand.
fn crowd(n: u32) -> Ipv6Addr {
    Ipv6Addr::from(0xfd00_0000_0000_0000_0000_0000_0001_0000_u128 + u128::from(n))
}

#[test]
fn a_vm_that_talks_to_ten_thousand_leaves_its_neighbours_their_places() {
    const CROWD: u32 = 10_000;
    let mut programs = Programs::load(
        Sizes { pairs: 1024, endpoints: 16_384, nodes: 1, queues: 1, hosts: 1 },
        None,
    )
    .unwrap();
    for n in 0..CROWD {
        let tenant = if n % 2 == 0 { GOLD } else { BULK };
        let endpoint =
            intf::Endpoint { vm: 100 + n, tenant, flags: 0, ..intf::Endpoint::default() };
        programs.endpoints.put(IpAddr::from(crowd(n)).into(), endpoint).unwrap();
    }
    for (address, vm) in [(MINE6, 1), (PEER6, 2)] {
        let endpoint =
            intf::Endpoint { vm, tenant: GOLD, flags: intf::LOCAL, ..intf::Endpoint::default() };
        programs.endpoints.put(self::address(address), endpoint).unwrap();
    }
    let port = |vm, slot| intf::Port {
        vm,
        tenant: GOLD,
        slot,
        default_class: DEFAULT,
        max_pairs: 512,
        ..intf::Port::default()
    };
    let send = |programs: &Programs, src: &str, n| {
        let octets = plain(src, &crowd(n).to_string()).octets();
        let ran = programs.run(Program::Classify, &Frame { octets: &octets, ..Frame::default() });
        assert_eq!(ran.unwrap().verdict, PASS);
    };
    programs.ports.put(LOOPBACK, port(1, 0)).unwrap();
    (0..CROWD).for_each(|n| send(&programs, MINE6, n));
    let counted = programs.port_counters.get(0);
    assert_eq!((counted.tx_segments, counted.tx_full), (10_000, 10_000 - 512));
    let strangers = programs.tx.read().unwrap().filter(|(pair, _)| pair.dst % 2 == 1).count();
    assert_eq!(strangers, 512 * 3 / 8, "they were half of the first three quarters");

    programs.ports.put(LOOPBACK, port(2, 1)).unwrap();
    (0..512).for_each(|n| send(&programs, PEER6, 2 * n));
    assert_eq!(programs.port_counters.get(1).tx_full, 0);
    assert_eq!(programs.tx.read().unwrap().filter(|(pair, _)| pair.src == 2).count(), 512);
}

#[test]
fn places_are_bounded_for_senders_and_receivers_and_given_back() {
    let mut host = Host::of_a_vm();
    host.change_port(|port| port.max_pairs = 4);
    for n in 20..26 {
        let endpoint =
            intf::Endpoint { vm: n, tenant: GOLD, flags: 0, ..intf::Endpoint::default() };
        host.endpoint(&format!("10.0.0.{n}"), endpoint);
    }
    let run = |host: &Host, program, n: u32| {
        let vm = format!("10.0.0.{n}");
        let (src, dst) = match program {
            Program::Classify => (MINE, vm.as_str()),
            _ => (vm.as_str(), MINE),
        };
        host.run(program, &plain(src, dst).octets());
    };
    let gone = [
        (Program::Classify, offset_of!(intf::Places, tx_gone) / 8),
        (Program::Meter, offset_of!(intf::Places, rx_gone) / 8),
    ];
    for (program, word) in gone {
        (20..26).for_each(|n| run(&host, program, n));
        host.0.places().unwrap().set(0, word, 1);
        (20..26).for_each(|n| run(&host, program, n));
    }
    let (tx, rx) = host.pairs();
    assert_eq!((tx.len(), rx.len()), (5, 5));
    let counted = host.counted();
    assert_eq!((counted.tx_full, counted.rx_full), (3, 3));
    let made = host.0.places().unwrap().get(0);
    assert_eq!((made.tx_made, made.rx_made), (5, 5));
}

#[test]
fn strangers_leave_a_quarter_of_the_places_to_the_tenant() {
    let mut host = Host::of_a_vm();
    host.change_port(|port| port.max_pairs = 4);
    for n in 20..26 {
        host.endpoint(
            &format!("10.0.0.{n}"),
            intf::Endpoint { vm: n, tenant: BULK, flags: 0, ..intf::Endpoint::default() },
        );
        host.run(Program::Meter, &plain(&format!("10.0.0.{n}"), MINE).octets());
    }
    assert_eq!((host.pairs().1.len(), host.counted().rx_full), (3, 3));
    host.run(Program::Meter, &plain(PEER, MINE).octets());
    assert_eq!(host.pairs().1[&pair(2, 1)], 1);
    assert_eq!(host.counted().rx_full, 3);
}
