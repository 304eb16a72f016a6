//! DSCP of packets on their way out of a VM and into another, read back by a parser that is not
//! ours. Needs root, and fails without.

use crate::bench::{Bench, FROM_PEER, MINE, MINE6, NEIGHBOUR, NEVER, PEER, PEER6, UNKNOWN};
use crate::frame::{Packet, checksum, packet, tcp, udp};
use etherparse::{NetHeaders, PacketHeaders};
use std::net::IpAddr;
use weir_dataplane::intf::{self, Rx};
use weir_dataplane::programs::Program::{Classify, Meter, Stamp};
use weir_dataplane::programs::{Frame, Program, Ran};

/// Code points that tenants may have: that of the VM's tenant, and others'.
const OWN: u8 = 10;
const OTHERS: [u8; 2] = [12, 46];
/// A code point that no tenant may have.
const FREE: u8 = 34;
const TENANT: u32 = 1;
const STRANGER: &str = "10.0.0.3";
/// `skb->priority` of the class, and of what has departed into a tunnel.
const CLASS: u32 = 0x1_0011;
const DEPARTED: u32 = 0x1_0040;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

fn settings(flags: u32, overhead: u32) -> intf::Settings {
    let code_points = OTHERS.iter().fold(1 << OWN, |all, point| all | 1 << point);
    intf::Settings { reorder_ns: NEVER, flags, overhead, code_points, ..intf::Settings::default() }
}

/// A host whose VM has this policy; its tenant is tagged.
fn host(policy: u32) -> Bench {
    let bench = Bench::new(0, NEVER);
    bench.0.set(settings(0, 0)).unwrap();
    let stranger: IpAddr = STRANGER.parse().unwrap();
    let endpoint = intf::Endpoint { vm: 3, tenant: 2, ..intf::Endpoint::default() };
    bench.0.endpoints.put(stranger.into(), endpoint).unwrap();
    bench.0.tenant_tags.put(TENANT, OWN.into()).unwrap();
    let port = intf::Port {
        vm: 1,
        tenant: TENANT,
        default_class: CLASS,
        max_pairs: 16,
        ..intf::Port::default()
    };
    bench.0.ports.put(1, intf::Port { flags: policy, ..port }).unwrap();
    bench
}

fn plain(src: &str, dst: &str, dscp: u8, ecn: u8) -> Packet {
    Packet { tos: dscp << 2 | ecn, id: 0xabcd, ..packet(src, dst, 17, udp(9, 100)) }
}

/// A segment from port 40000 of the client to port 80 of the server.
fn segment(src: &str, dst: &str, flags: u8, dscp: u8) -> Packet {
    let mut body = tcp(20);
    body[..4].copy_from_slice(&[40_000u16.to_be_bytes(), 80u16.to_be_bytes()].concat());
    body[13] = flags;
    Packet { tos: dscp << 2, ..packet(src, dst, 6, body) }
}

/// The DSCP of a valid packet.
#[track_caller]
fn dscp(octets: &[u8]) -> u8 {
    let headers = PacketHeaders::from_ethernet_slice(octets).expect("a valid packet");
    match headers.net.expect("a network header") {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "the header's checksum");
            ip.dscp.value()
        }
        NetHeaders::Ipv6(ip, _) => ip.traffic_class >> 2,
        other => panic!("neither IPv4 nor IPv6: {other:?}"),
    }
}

/// The DSCP after a program; no other bit has changed.
#[track_caller]
fn after(bench: &Bench, program: Program, p: &Packet) -> u8 {
    let ran = bench.run(program, &p.octets(), 1);
    let found = dscp(&ran.octets);
    let remade = Packet { tos: found << 2 | p.tos & 3, ..p.clone() };
    assert_eq!(ran.octets, remade.octets(), "nothing but the DSCP");
    found
}

#[track_caller]
fn sent(bench: &Bench, p: &Packet) -> u8 {
    after(bench, Classify, p)
}

#[track_caller]
fn seen(bench: &Bench, p: &Packet) -> u8 {
    let found = after(bench, Meter, p);
    bench.0.rx.put(FROM_PEER, Rx::default()).unwrap();
    found
}

const POLICIES: [u32; 3] = [0, intf::KEEP_DSCP, intf::RESTORE_DSCP];

#[test]
fn what_goes_to_its_tenant_carries_its_tag_whatever_the_guest_wrote() {
    for policy in POLICIES {
        let bench = host(policy);
        for (src, dst) in [(MINE, PEER), (MINE6, PEER6)] {
            for guest in 0..64 {
                for ecn in 0..4 {
                    let p = plain(src, dst, guest, ecn);
                    assert_eq!(sent(&bench, &p), OWN, "{src}, policy {policy}: {guest}");
                }
                let data = segment(src, dst, ACK, guest);
                assert_eq!(sent(&bench, &data), OWN, "{src}, policy {policy}: {guest}");
            }
            for fragment in [0x2000, 0x2001, 0x0004] {
                let p = Packet { fragment, ..plain(src, dst, FREE, 1) };
                assert_eq!(sent(&bench, &p), OWN, "{src}: fragment {fragment:#x}");
            }
        }
        let mut tagged = plain(MINE, PEER, FREE, 0);
        tagged.tags = vec![100];
        assert_eq!(sent(&bench, &tagged), OWN, "behind a VLAN tag in the octets");
    }
}

/// REVIEW S13: a guest that writes another tenant's code point, or its own tenant's.
#[test]
fn no_code_point_of_a_guest_leads_into_a_tenants_queue() {
    let is_tag = |point: u8| point == OWN || OTHERS.contains(&point);
    for policy in POLICIES {
        for tag in [Some(OWN), None] {
            let bench = host(policy);
            if tag.is_none() {
                bench.0.tenant_tags.delete(TENANT).unwrap();
            }
            for guest in 0..64 {
                let expected = if policy == 0 || is_tag(guest) { 0 } else { guest };
                let multicast = packet(MINE, "224.0.0.251", 17, udp(9, 100));
                let mut solicitation = packet("fe80::1", "ff02::1", 58, vec![135; 24]);
                solicitation.ttl = 255;
                for p in [
                    plain(MINE, STRANGER, guest, 0),
                    plain(MINE, UNKNOWN, guest, 2),
                    plain(MINE, NEIGHBOUR, guest, 1),
                    segment(MINE, STRANGER, SYN, guest),
                    Packet { tos: guest << 2, ..multicast },
                    Packet { tos: guest << 2, ..solicitation },
                ] {
                    let found = sent(&bench, &p);
                    assert_eq!(found, expected, "policy {policy}, to {}: {guest}", p.dst);
                }
                let first = segment(MINE, PEER, SYN, guest);
                let found = sent(&bench, &first);
                assert!(!is_tag(found) || Some(found) == tag, "policy {policy}: {guest}");
                if tag.is_none() {
                    assert_eq!(sent(&bench, &plain(MINE, PEER, guest, 0)), expected);
                }
            }
        }
    }
}

#[test]
fn a_tag_that_is_no_code_point_of_weirs_is_not_written() {
    let bench = host(0);
    for wrong in [u32::from(FREE), 64 + u32::from(OWN), 255, u32::MAX] {
        bench.0.tenant_tags.put(TENANT, wrong).unwrap();
        let found = sent(&bench, &plain(MINE, PEER, 0, 0));
        assert!(found == 0 || found == OWN, "{wrong}: {found}");
    }
    bench.0.set(intf::Settings { code_points: 0, ..settings(0, 0) }).unwrap();
    bench.0.tenant_tags.put(TENANT, OWN.into()).unwrap();
    assert_eq!(sent(&bench, &plain(MINE, PEER, FREE, 0)), 0, "cleared, without any tags");
}

#[test]
fn a_super_packet_is_tagged_whole() {
    let bench = host(0);
    let p = Packet { tos: FREE << 2, ..packet(MINE, PEER, 6, tcp(1000)) };
    let ran = bench.run(Classify, &p.octets(), 10);
    assert_eq!((dscp(&ran.octets), checksum(&ran.octets[14..34])), (OWN, 0));
}

#[test]
fn a_guest_never_sees_a_tag() {
    for policy in POLICIES {
        let bench = host(policy);
        for (src, dst) in [(PEER, MINE), (PEER6, MINE6), (UNKNOWN, MINE), (NEIGHBOUR, MINE)] {
            for point in 0..64 {
                let is_tag = point == OWN || OTHERS.contains(&point);
                let expected = if is_tag { 0 } else { point };
                let found = seen(&bench, &plain(src, dst, point, 3));
                assert_eq!(found, expected, "from {src}, policy {policy}: {point}");
            }
            let p = Packet { fragment: 0x2001, ..plain(src, dst, OWN, 2) };
            assert_eq!(seen(&bench, &p), 0, "a fragment from {src}");
        }
    }
}

#[test]
fn a_connection_between_ends_that_restore_has_its_syns_code_point_again() {
    let sender = host(intf::RESTORE_DSCP);
    let receiver = host(intf::RESTORE_DSCP);
    for (mine, peer) in [(MINE, PEER), (MINE6, PEER6)] {
        let through = |flags, point| {
            let on_wire = sent(&sender, &segment(mine, peer, flags, point));
            let at = segment(peer, mine, flags, on_wire);
            (on_wire, seen(&receiver, &at))
        };
        assert_eq!(through(ACK, FREE), (OWN, 0), "nothing is known yet");
        assert_eq!(through(SYN, FREE), (FREE, FREE), "a SYN says it itself");
        assert_eq!(through(ACK, FREE), (OWN, FREE));
        assert_eq!(through(ACK, 0), (OWN, FREE), "a change within a connection does not show");
        // Datagrams of the same addresses have nothing that says it.
        assert_eq!(seen(&receiver, &plain(peer, mine, OWN, 0)), 0);
        for point in [OTHERS[0], 0] {
            assert_eq!(through(SYN, FREE), (FREE, FREE));
            let (on_wire, _) = through(SYN, point);
            assert!(on_wire == OWN || on_wire == 0, "{point}: {on_wire}");
            assert_eq!(through(ACK, point), (OWN, 0), "a new connection without any: {point}");
        }
    }
    // Without the policy at the receiver nothing is learned.
    let other = host(intf::KEEP_DSCP);
    assert_eq!(seen(&other, &segment(PEER, MINE, SYN, FREE)), FREE);
    assert_eq!(seen(&other, &segment(PEER, MINE, ACK, OWN)), 0);
}

#[test]
fn one_that_observes_changes_no_code_point() {
    let bench = host(0);
    bench.0.set(settings(intf::OBSERVE, 0)).unwrap();
    for point in [OWN, OTHERS[0], FREE] {
        assert_eq!(sent(&bench, &plain(MINE, PEER, point, 0)), point);
        assert_eq!(seen(&bench, &plain(PEER, MINE, point, 0)), point);
    }
}

fn run(bench: &Bench, priority: u32, octets: &[u8]) -> Ran {
    bench.0.run(Stamp, &Frame { octets, priority, ..Frame::default() }).unwrap()
}

#[test]
fn behind_a_tunnel_the_outer_header_has_the_tag_and_the_guests_own_stays_within() {
    for (policy, guest, inner) in [
        (0, FREE, 0),
        (intf::KEEP_DSCP, FREE, FREE),
        (intf::RESTORE_DSCP, FREE, FREE),
        (intf::KEEP_DSCP, OTHERS[0], 0),
        (intf::RESTORE_DSCP, OWN, 0),
    ] {
        let bench = host(policy);
        bench.0.set(settings(0, 50)).unwrap();
        for (src, dst) in [(MINE, PEER), (MINE6, PEER6)] {
            assert_eq!(sent(&bench, &plain(src, dst, guest, 1)), inner, "policy {policy}");
        }
        // What arrives has none of Weir's: it is the guest's.
        assert_eq!(seen(&bench, &plain(PEER, MINE, inner, 1)), inner);
    }
    let bench = host(0);
    bench.0.set(settings(0, 50)).unwrap();
    let entering = |dst| run(&bench, CLASS, &plain(MINE, dst, 0, 0).octets()).priority;
    assert_eq!(entering(PEER), DEPARTED + u32::from(OWN));
    assert_eq!(entering(STRANGER), DEPARTED);
    assert_eq!(entering(UNKNOWN), DEPARTED);
    // On the uplink: what the tunnel wrote stays unless it is a tenant's, or a tag takes its place.
    let outers = [("192.168.7.1", "192.168.7.2"), ("fd77::1", "fd77::2")];
    for (src, dst) in outers {
        for ecn in 0..4 {
            for (tag, before, leaves) in [
                (OWN, 0, OWN),
                (OWN, FREE, OWN),
                (OWN, OTHERS[1], OWN),
                (0, FREE, FREE),
                (0, OTHERS[0], 0),
                (0, 0, 0),
            ] {
                let p = plain(src, dst, before, ecn);
                let ran = run(&bench, DEPARTED + u32::from(tag), &p.octets());
                let expected = Packet { tos: leaves << 2 | ecn, ..p };
                assert_eq!((ran.priority, ran.octets), (0, expected.octets()), "{before}");
            }
        }
    }
    bench.0.set(settings(intf::OBSERVE, 50)).unwrap();
    let p = plain("192.168.7.1", "192.168.7.2", OTHERS[0], 0).octets();
    assert_eq!(run(&bench, DEPARTED, &p).octets, p, "it only looks");
}
