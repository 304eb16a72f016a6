//! What becomes of a clone: a message of 60 octets, or nothing. Needs root, and fails without.
#![allow(unsafe_code)]

use crate::eyeq_bench as bench;

use crate::frame::{Packet, arp, checksum, packet, tcp, udp};
use crate::random::Random;
use bench::{
    Bench, DROP, FROM_PEER, HERE, HOMELESS, MINE, MINE6, PASS, PEER, PEER6, REDIRECT, SLOT, THERE,
    UNIT, key, settings,
};
use weir_dataplane::eyeq::Program;
use weir_dataplane::eyeq::intf::{
    self as eyeq, CLONE_MARK, FRAME, Meter, Mouth, PROTOCOL, Settings,
};
use weir_dataplane::programs::{Frame, Ran};
use weir_wire::{FEEDBACK_PACKET, FEEDBACK_PROTOCOL, FeedbackPacket, KeyId, Told, encode_feedback};

const ETHERNET: usize = 14;

/// Gives `tell` a clone, of a super-packet if `segments` is more than one.
fn tell(bench: &Bench, octets: &[u8], segments: u32) -> Ran {
    let gso_size = if segments > 1 { 100 } else { 0 };
    let gso_segs = if segments > 1 { segments } else { 0 };
    let frame = Frame { octets, mark: CLONE_MARK, gso_size, gso_segs, ..Frame::default() };
    bench.0.run(Program::Tell, &frame).unwrap()
}

/// The message that a clone has become, with its sequence.
#[track_caller]
fn message(ran: &Ran, sequence: u64) -> Told {
    assert_eq!((ran.verdict, ran.octets.len()), (REDIRECT, FRAME));
    assert_eq!(ran.octets[..ETHERNET], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
    assert_eq!(checksum(&ran.octets[ETHERNET..ETHERNET + 20]), 0, "the header's checksum is right");
    let packet = FeedbackPacket::parse(&ran.octets[ETHERNET..]).unwrap();
    assert_eq!(packet.sequence(), sequence as u32);
    assert!(packet.is_signed_by(&key(HERE, THERE, packet.key_id().0), sequence));
    packet.told()
}

fn rate(bench: &Bench, rate_bps: u64) {
    bench.0.meters.put(SLOT, Meter { rate_bps, ..Meter::default() }).unwrap();
}

fn ip4(protocol: u8, body: Vec<u8>) -> Packet {
    packet(PEER, MINE, protocol, body)
}

#[test]
fn both_sides_mean_the_same_message() {
    assert_eq!((PROTOCOL, FRAME), (FEEDBACK_PROTOCOL, ETHERNET + FEEDBACK_PACKET));
    let bench = Bench::new();
    rate(&bench, 450 * UNIT + 999_999);
    let told = Told { from: HERE, to: THERE, pair: FROM_PEER, units: 450 };
    let ran = tell(&bench, &ip4(17, udp(9, 1472)).octets(), 1);
    assert_eq!(message(&ran, 1), told, "whole units, rounded down");
    let expected = encode_feedback(&told, &key(HERE, THERE, 0), 1);
    assert_eq!(ran.octets[ETHERNET..], expected, "to the bit");
}

#[test]
fn whatever_fills_ten_kilobytes_becomes_the_same_message() {
    let bench = Bench::new();
    rate(&bench, 7 * UNIT);
    let with_options = |protocol, body: Vec<u8>| {
        let mut octets = ip4(protocol, body).octets();
        // Eight octets of no operation.
        octets[ETHERNET] = 0x47;
        let total = (octets.len() - ETHERNET + 8) as u16;
        octets[ETHERNET + 2..ETHERNET + 4].copy_from_slice(&total.to_be_bytes());
        drop(octets.splice(ETHERNET + 20..ETHERNET + 20, [1; 8]));
        octets
    };
    let behind = |next: u8, body: Vec<u8>| [&[next, 0, 1, 4, 0, 0, 0, 0][..], &body].concat();
    let ip6 = |protocol, body| packet(PEER6, MINE6, protocol, body).octets();
    let frames = [
        ("a full UDP packet", ip4(17, udp(9, 1472)).octets(), 1),
        ("a small one, which must grow", ip4(17, udp(9, 0)).octets(), 1),
        ("TCP", ip4(6, tcp(1448)).octets(), 1),
        ("a super-packet", ip4(6, tcp(1400)).octets(), 20),
        ("with options", with_options(6, tcp(500)), 1),
        ("another protocol, without anything", ip4(47, vec![]).octets(), 1),
        ("IPv6", ip6(17, udp(9, 1000)), 1),
        ("a small one of IPv6", ip6(17, udp(9, 0)), 1),
        ("a super-packet of IPv6", ip6(6, tcp(1300)), 9),
        ("IPv6 with an extension header", ip6(0, behind(6, tcp(900))), 1),
        ("with two", ip6(0, behind(60, behind(17, udp(9, 40)))), 1),
        ("a fragment", ip6(44, [&[17, 0, 0, 1, 0, 0, 0, 9][..], &udp(9, 400)].concat()), 1),
    ];
    let count = frames.len() as u64;
    for (n, (what, octets, segments)) in frames.into_iter().enumerate() {
        let sequence = n as u64 + 1;
        let ran = tell(&bench, &octets, segments);
        assert_eq!(ran.verdict, REDIRECT, "{what}: {:?}", bench.0.counters());
        let told = Told { from: HERE, to: THERE, pair: FROM_PEER, units: 7 };
        assert_eq!(message(&ran, sequence), told, "{what}");
    }
    let counters = bench.0.counters();
    assert_eq!((counters.told, counters.unfit, counters.unknown), (count, 0, 0));
}

/// Frames with some octets changed and their ends cut off, as VMs can send them.
#[test]
fn whatever_a_vm_sends_becomes_a_sound_message_or_nothing() {
    let bench = Bench::new();
    rate(&bench, 7 * UNIT);
    let frames = [
        ip4(17, udp(9, 300)).octets(),
        ip4(6, tcp(300)).octets(),
        packet(PEER6, MINE6, 6, tcp(300)).octets(),
        packet(PEER6, MINE6, 0, [&[6, 1, 1, 12][..], &[0; 12], &tcp(90)].concat()).octets(),
    ];
    let mut random = Random(11);
    let (mut told, mut dropped) = (0, 0);
    for step in 0..4_000 {
        let mut octets = frames[random.below(4) as usize].clone();
        for _ in 0..random.below(4) {
            let at = random.below(90.min(octets.len() as u64)) as usize;
            octets[at] = random.next() as u8;
        }
        if random.below(4) == 0 {
            octets.truncate(40 + random.below(octets.len() as u64 - 40) as usize);
        }
        let segments = if random.below(4) == 0 { 4 } else { 1 };
        let gso_size = if segments > 1 { 100 } else { 0 };
        let frame = Frame { octets: &octets, mark: CLONE_MARK, gso_size, ..Frame::default() };
        // The kernel refuses to make some frames at all.
        let Ok(ran) = bench.0.run(Program::Tell, &frame) else { continue };
        if ran.verdict == REDIRECT {
            let sequence = bench.0.mouths.get(eyeq::address(THERE)).unwrap().unwrap().sequence;
            assert_eq!(message(&ran, sequence).units, 7, "step {step}: {octets:02x?}");
            told += 1;
        } else {
            assert_eq!(ran.verdict, DROP, "step {step}: {octets:02x?}");
            dropped += 1;
        }
    }
    let counters = bench.0.counters();
    assert_eq!((counters.told, counters.unfit + counters.unknown), (told, dropped));
    assert!(told > 500 && dropped > 200, "{told} messages, {dropped} dropped");
}

#[test]
fn nothing_but_clones_is_touched() {
    let bench = Bench::new();
    let octets = ip4(17, udp(9, 1472)).octets();
    for mark in [0, 1, CLONE_MARK - 1, CLONE_MARK.swap_bytes()] {
        let frame = Frame { octets: &octets, mark, ..Frame::default() };
        let ran = bench.0.run(Program::Tell, &frame).unwrap();
        assert_eq!((ran.verdict, &ran.octets), (PASS, &octets));
    }
    assert_eq!(bench.0.counters(), eyeq::Counters::default());
}

#[test]
fn a_clone_that_cannot_be_a_message_is_dropped_and_counted() {
    let bench = Bench::new();
    rate(&bench, 7 * UNIT);
    let dropped = |octets: &[u8]| assert_eq!(tell(&bench, octets, 1).verdict, DROP);
    dropped(&arp(std::net::Ipv4Addr::new(10, 0, 0, 2)));
    dropped(&packet("192.0.2.99", MINE, 17, udp(9, 9)).octets());
    let mut tagged = ip4(17, udp(9, 99));
    tagged.tags = vec![5];
    dropped(&tagged.octets());
    assert_eq!((bench.0.counters().unfit, bench.0.counters().unknown), (3, 0));
    dropped(&packet(HOMELESS, MINE, 17, udp(9, 9)).octets());
    assert!(bench.0.mouths.delete(eyeq::address(THERE)).unwrap());
    dropped(&ip4(17, udp(9, 9)).octets());
    assert_eq!((bench.0.counters().unfit, bench.0.counters().unknown), (3, 2));
    assert_eq!(bench.0.counters().told, 0);
}

#[test]
fn a_rate_is_told_in_whole_units_of_at_least_one_and_never_above_the_share() {
    let bench = Bench::new();
    let mut sequence = 0;
    let mut told = |rate_bps| {
        rate(&bench, rate_bps);
        sequence += 1;
        message(&tell(&bench, &ip4(17, udp(9, 9)).octets(), 1), sequence).units
    };
    assert_eq!([told(1), told(UNIT), told(2 * UNIT - 1), told(1_000 * UNIT)], [1, 1, 1, 1_000]);
    assert_eq!(told(2_000 * UNIT), 1_000, "the share has shrunk since");
    bench.share(100_000 * UNIT);
    assert_eq!(told(100_000 * UNIT), u16::MAX);
    bench.0.set(Settings { unit_bps: 10 * UNIT, ..settings() }).unwrap();
    assert_eq!(told(100_000 * UNIT), 10_000);
}

#[test]
fn all_64_bits_of_the_sequence_are_signed_and_a_new_key_begins_anew() {
    let bench = Bench::new();
    rate(&bench, UNIT);
    let before = (1 << 48) - 2;
    let mouth = Mouth { sequence: before, ..Mouth::new(0, key(HERE, THERE, 0).halves()) };
    bench.0.mouths.put(eyeq::address(THERE), mouth).unwrap();
    let clone = ip4(17, udp(9, 9)).octets();
    for sequence in before + 1..before + 4 {
        message(&tell(&bench, &clone, 1), sequence);
    }
    let next = Mouth::new(200, key(HERE, THERE, 200).halves());
    bench.0.mouths.put(eyeq::address(THERE), next).unwrap();
    let ran = tell(&bench, &clone, 1);
    message(&ran, 1);
    assert_eq!(FeedbackPacket::parse(&ran.octets[ETHERNET..]).unwrap().key_id(), KeyId(200));
}
