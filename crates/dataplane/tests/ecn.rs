//! The ECN field on its way out of one host and into another, read back by a parser that is not
//! ours. Needs root, and fails without.

use crate::bench::{Bench, MINE, MINE6, NEIGHBOUR, NEVER, PEER, PEER6, TO_PEER, UNKNOWN};
use crate::frame::{Packet, packet, tcp, udp};
use etherparse::{NetHeaders, PacketHeaders};
use std::net::IpAddr;
use weir_dataplane::intf::{self, Flow, Tx};
use weir_dataplane::programs::Program::{Meter, Stamp};

const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;
/// A DSCP of the guest's own: EF.
const DSCP: u8 = 46;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;

fn with_ecn() -> Bench {
    Bench::new(intf::ECN, NEVER)
}

fn plain(src: &str, dst: &str, ecn: u8) -> Packet {
    let mut p = packet(src, dst, 17, udp(9, 100));
    p.tos = DSCP << 2 | ecn;
    p.id = 0xabcd;
    p
}

/// A TCP packet from port 40000 of the client to port 80 of the server, or back.
fn connection(src: &str, dst: &str, to_server: bool, flags: u8, ecn: u8) -> Packet {
    let mut body = tcp(20);
    let (from, to) = if to_server { (40_000u16, 80u16) } else { (80, 40_000) };
    body[..2].copy_from_slice(&from.to_be_bytes());
    body[2..4].copy_from_slice(&to.to_be_bytes());
    body[13] = flags;
    let mut p = packet(src, dst, 6, body);
    p.tos = DSCP << 2 | ecn;
    p
}

/// DSCP and ECN as the parser sees them, once everything else has been found valid.
#[track_caller]
fn fields(octets: &[u8]) -> (u8, u8) {
    let headers = PacketHeaders::from_ethernet_slice(octets).expect("a valid packet");
    match headers.net.expect("a network header") {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "the header's checksum");
            (ip.dscp.value(), ip.ecn.value())
        }
        NetHeaders::Ipv6(ip, _) => (ip.traffic_class >> 2, ip.traffic_class & 3),
        other => panic!("neither IPv4 nor IPv6: {other:?}"),
    }
}

/// The packet with this identification and ECN, as it would have been made.
fn remade(p: &Packet, ran: &[u8], ecn: u8) -> Vec<u8> {
    let id = u16::from_be_bytes([ran[18], ran[19]]);
    let id = if matches!(p.src, IpAddr::V4(_)) { id } else { p.id };
    Packet { id, tos: p.tos & !3 | ecn, ..p.clone() }.octets()
}

/// Meters a packet; returns the ECN field that the guest sees. Nothing else may have changed.
#[track_caller]
fn seen(bench: &Bench, p: &Packet) -> u8 {
    let ran = bench.run(Meter, &p.octets(), 1);
    let (dscp, ecn) = fields(&ran.octets);
    assert_eq!(dscp, DSCP, "the guest's own");
    assert_eq!(ran.octets, remade(p, &ran.octets, ecn));
    ecn
}

/// The same for what leaves.
#[track_caller]
fn sent(bench: &Bench, p: &Packet) -> u8 {
    let ran = bench.run(Stamp, &p.octets(), 1);
    let (dscp, ecn) = fields(&ran.octets);
    assert_eq!(dscp, DSCP, "the guest's own");
    assert_eq!(ran.octets, remade(p, &ran.octets, ecn));
    ecn
}

#[test]
fn all_packets_of_a_pair_leave_ecn_capable_whatever_the_guest_made_them() {
    let bench = with_ecn();
    for (src, dst) in [(MINE, PEER), (MINE6, PEER6)] {
        for (ecn, leaves) in [(NOT_ECT, ECT_0), (ECT_0, ECT_0), (ECT_1, ECT_1), (CE, CE)] {
            assert_eq!(sent(&bench, &plain(src, dst, ecn)), leaves, "{src}: {ecn}");
            let data = connection(src, dst, true, ACK, ecn);
            assert_eq!(sent(&bench, &data), leaves, "{src}: TCP, {ecn}");
        }
        let mut fragment = plain(src, dst, NOT_ECT);
        fragment.fragment = 0x2000;
        assert_eq!(sent(&bench, &fragment), ECT_0, "{src}: a fragment");
        assert_eq!(sent(&bench, &connection(src, dst, true, SYN, NOT_ECT)), ECT_0, "{src}: a SYN");
    }
}

#[test]
fn what_a_vm_of_best_effort_sends_leaves_with_lower_effort_whatever_it_said() {
    const LOWER_EFFORT: u8 = 1;
    let bench = Bench::new(0, NEVER);
    let flags = intf::LOCAL | intf::BEST_EFFORT;
    for address in [MINE, MINE6] {
        let address: IpAddr = address.parse().unwrap();
        let endpoint = intf::Endpoint { vm: 1, tenant: 1, flags, ..intf::Endpoint::default() };
        bench.0.endpoints.put(address.into(), endpoint).unwrap();
    }
    let leaves = |p: &Packet| fields(&bench.run(Stamp, &p.octets(), 1).octets);
    for (src, dst) in [(MINE, PEER), (MINE6, PEER6), (MINE, UNKNOWN)] {
        for ecn in [NOT_ECT, ECT_0, ECT_1, CE] {
            assert_eq!(leaves(&plain(src, dst, ecn)), (LOWER_EFFORT, ecn), "{src} to {dst}");
        }
        let ran = bench.run(Stamp, &plain(src, dst, CE).octets(), 1);
        let expected = Packet { tos: LOWER_EFFORT << 2 | CE, ..plain(src, dst, CE) };
        assert_eq!(remade(&expected, &ran.octets, CE), ran.octets, "nothing else changes");
    }
    // What goes to it, and what a neighbour sends, is the others' own.
    assert_eq!(leaves(&plain(PEER, MINE, CE)), (DSCP, CE));
    assert_eq!(leaves(&plain(NEIGHBOUR, PEER, CE)), (DSCP, CE));
}

#[test]
fn checksums_stay_right_whatever_the_rest_of_the_header_is() {
    let bench = with_ecn();
    for id in [0, 1, 0x7fff, 0xfffe, 0xffff] {
        for sequence in [0, 0xfffd, 0xfffe, 0xffff] {
            bench.0.tx.put(TO_PEER, Tx { sequence, ..Tx::default() }).unwrap();
            for ttl in [1, 63, 255] {
                let mut p = plain(MINE, PEER, NOT_ECT);
                (p.id, p.ttl) = (id, ttl);
                assert_eq!(sent(&bench, &p), ECT_0, "id {id:#x}, sequence {sequence:#x}");
                let mut p = plain(PEER, MINE, CE);
                (p.id, p.ttl) = (id, ttl);
                assert_eq!(seen(&bench, &p), NOT_ECT, "id {id:#x}");
            }
        }
    }
}

#[test]
fn where_marks_are_no_signal_the_field_is_left_alone_and_marks_are_counted_all_the_same() {
    let bench = Bench::new(0, NEVER);
    for (mine, peer) in [(MINE, PEER), (MINE6, PEER6)] {
        for ecn in [NOT_ECT, ECT_1, ECT_0, CE] {
            assert_eq!(sent(&bench, &plain(mine, peer, ecn)), ecn);
            assert_eq!(seen(&bench, &plain(peer, mine, ecn)), ecn);
        }
    }
    assert_eq!(bench.rx().ce, 2);
}

#[test]
fn what_is_of_no_pair_or_stays_within_the_host_keeps_its_ecn() {
    let bench = with_ecn();
    for ecn in [NOT_ECT, ECT_1, ECT_0, CE] {
        assert_eq!(sent(&bench, &plain(MINE, UNKNOWN, ecn)), ecn, "to a stranger");
        assert_eq!(sent(&bench, &plain(PEER, MINE, ecn)), ecn, "in transit");
        assert_eq!(seen(&bench, &plain(UNKNOWN, MINE, ecn)), ecn, "from a stranger");
        assert_eq!(seen(&bench, &plain(NEIGHBOUR, MINE, ecn)), ecn, "from a neighbour");
    }
}

#[test]
fn guests_that_agreed_on_nothing_see_no_ecn_and_their_marks_are_counted() {
    let bench = with_ecn();
    for (src, dst) in [(PEER, MINE), (PEER6, MINE6)] {
        for ecn in [NOT_ECT, ECT_1, ECT_0, CE] {
            assert_eq!(seen(&bench, &plain(src, dst, ecn)), NOT_ECT, "{src}: UDP, {ecn}");
            let data = connection(src, dst, true, ACK, ecn);
            assert_eq!(seen(&bench, &data), NOT_ECT, "{src}: TCP, {ecn}");
        }
        let mut fragment = plain(src, dst, CE);
        fragment.fragment = 185;
        assert_eq!(seen(&bench, &fragment), NOT_ECT, "{src}: a fragment");
    }
    assert_eq!(bench.rx().ce, 6, "three of each family");
}

#[test]
fn marks_are_counted_per_segment_in_both_families() {
    let bench = with_ecn();
    for (src, dst, ecn) in
        [(PEER, MINE, CE), (PEER, MINE, ECT_1), (PEER6, MINE6, CE), (PEER6, MINE6, ECT_0)]
    {
        bench.run(Meter, &connection(src, dst, true, ACK, ecn).octets(), 2);
    }
    assert_eq!((bench.rx().segments, bench.rx().ce), (8, 4));
}

/// Data in both directions of a connection whose server is here (true) or whose client is.
fn data(server_is_here: bool, six: bool, ecn: u8) -> Packet {
    let (mine, peer) = if six { (MINE6, PEER6) } else { (MINE, PEER) };
    connection(peer, mine, server_is_here, ACK, ecn)
}

#[test]
fn connections_that_agreed_on_ecn_see_ect_0_and_never_a_mark() {
    for six in [false, true] {
        let (mine, peer) = if six { (MINE6, PEER6) } else { (MINE, PEER) };
        // The server is here: the SYN that asks comes in, the SYN-ACK that agrees goes out.
        let bench = with_ecn();
        let syn = connection(peer, mine, true, SYN | ECE | CWR, ECT_0);
        assert_eq!(seen(&bench, &syn), NOT_ECT, "or the server would refuse ECN");
        assert_eq!(seen(&bench, &data(true, six, ECT_0)), NOT_ECT, "not agreed yet");
        assert_eq!(sent(&bench, &connection(mine, peer, false, SYN | ACK | ECE, 0)), ECT_0);
        for (ecn, sees) in [(CE, ECT_0), (ECT_0, ECT_0), (ECT_1, ECT_1), (NOT_ECT, NOT_ECT)] {
            assert_eq!(seen(&bench, &data(true, six, ecn)), sees, "server, IPv6 {six}: {ecn}");
        }
        // The client is here: the SYN-ACK comes in.
        let bench = with_ecn();
        let answer = connection(peer, mine, false, SYN | ACK | ECE, CE);
        assert_eq!(seen(&bench, &answer), NOT_ECT, "a SYN-ACK is never ECN-capable");
        for (ecn, sees) in [(CE, ECT_0), (ECT_0, ECT_0), (ECT_1, ECT_1), (NOT_ECT, NOT_ECT)] {
            assert_eq!(seen(&bench, &data(false, six, ecn)), sees, "client, IPv6 {six}: {ecn}");
        }
        assert_eq!(seen(&bench, &data(true, six, CE)), NOT_ECT, "another connection");
        assert_eq!(seen(&bench, &plain(peer, mine, CE)), NOT_ECT, "another protocol");
    }
}

#[test]
fn an_answer_that_does_not_agree_ends_what_an_earlier_connection_agreed_on() {
    // Without ECE; with both bits, from a server that only reflects them; AccECN's.
    for flags in [SYN | ACK, SYN | ACK | ECE | CWR, SYN | ACK | CWR] {
        let bench = with_ecn();
        bench.run(Meter, &connection(PEER, MINE, false, SYN | ACK | ECE, 0).octets(), 1);
        assert_eq!(seen(&bench, &data(false, false, CE)), ECT_0);
        bench.run(Meter, &connection(PEER, MINE, false, flags, 0).octets(), 1);
        assert_eq!(seen(&bench, &data(false, false, CE)), NOT_ECT, "{flags:#x}");
        bench.run(Stamp, &connection(MINE, PEER, false, SYN | ACK | ECE, 0).octets(), 1);
        assert_eq!(seen(&bench, &data(true, false, CE)), ECT_0);
        bench.run(Stamp, &connection(MINE, PEER, false, flags, 0).octets(), 1);
        assert_eq!(seen(&bench, &data(true, false, CE)), NOT_ECT, "{flags:#x}");
    }
}

#[test]
fn no_flag_of_a_packet_without_a_handshake_agrees_to_anything() {
    let bench = with_ecn();
    for flags in [ACK | ECE, ACK | CWR, SYN | ECE | CWR, SYN | ECE, ECE] {
        bench.run(Meter, &connection(PEER, MINE, false, flags, ECT_0).octets(), 1);
        bench.run(Stamp, &connection(MINE, PEER, true, flags, ECT_0).octets(), 1);
    }
    let mut cut = connection(PEER, MINE, false, SYN | ACK | ECE, ECT_0);
    cut.body.truncate(13);
    bench.run(Meter, &cut.octets(), 1);
    let mut fragment = connection(PEER, MINE, false, SYN | ACK | ECE, ECT_0);
    fragment.fragment = 0x2000;
    bench.run(Meter, &fragment.octets(), 1);
    assert_eq!(seen(&bench, &data(false, false, CE)), NOT_ECT);
    assert_eq!(seen(&bench, &data(true, false, CE)), NOT_ECT);
}

#[test]
fn connections_without_end_are_forgotten_not_collected() {
    let mut bench = with_ecn();
    let mut answer = connection(PEER, MINE, false, SYN | ACK | ECE, ECT_0);
    for port in 0..20_000u16 {
        answer.body[2..4].copy_from_slice(&port.to_be_bytes());
        bench.run(Meter, &answer.octets(), 1);
    }
    let flows: Vec<Flow> = bench.0.flows.read().unwrap().map(|(flow, _)| flow).collect();
    assert!(flows.len() <= 8192, "{}", flows.len());
    assert!(flows.iter().any(|f| f.dst_port == 19_999u16.to_be_bytes()), "the youngest is there");
}
