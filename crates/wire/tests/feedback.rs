//! EyeQ's feedback: its layout, its keys, and the packets that are not believed.

use crate::common::*;
use std::net::Ipv4Addr;
use weir_core::message::Feedback;
use weir_units::{PairId, Rate, VmId};
use weir_wire::{
    FeedbackCounters, FeedbackError, FeedbackKey, FeedbackPacket, FeedbackRejected, Inbox, KeyId,
    Keyring, Lives, MAX_FEEDBACK_KEYS, Told, encode_feedback,
};

const HOST1: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const HOST2: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const UNIT: Rate = Rate::from_mbps(1);

/// Key 000102…0f of the fleet; keys and tags were computed by another implementation of
/// SipHash-2-4.
const GOLDEN: &str = "
45 c0 002e                  # IPv4, CS6, 46 octets
0304 4000                   # the low half of the sequence; not to be cut
40 fd SUM                   # 64 hops, protocol 253, checksum
c0000201 c0000202           # from 192.0.2.1 to 192.0.2.2

01 00 0dac                  # version, key id, 3500 units
0102 0000                   # bits 16 to 31 of the sequence
000000c8                    # to vm200
0000012c 0000               # from vm300
TAG
";
const SEQUENCE: u64 = 0x0908_0706_0102_0304;

fn lives() -> Lives {
    Lives { from: (A, incarnation(1, 0)), to: (B, incarnation(2, 0)) }
}

fn derived() -> FeedbackKey {
    FeedbackKey::derive(KeyId(0), &key(), lives())
}

fn told(units: u16) -> Told {
    Told { from: HOST1, to: HOST2, pair: PairId::new(VmId(200), VmId(300)), units }
}

fn golden() -> Vec<u8> {
    unhex(&GOLDEN.replace("SUM", GOLDEN_SUM).replace("TAG", GOLDEN_TAG))
}

const GOLDEN_SUM: &str = "b20b";
const GOLDEN_TAG: &str = "c2eb47bdd46f0f36";
const GOLDEN_HALVES: [u64; 2] = [0x14ed_5716_4d46_7cfc, 0xf356_5e49_70e3_2b25];

/// Host 2, which believes host 1.
fn host2() -> Inbox {
    let mut inbox = Inbox::new(HOST2);
    assert!(inbox.accept(HOST1, derived()));
    inbox
}

#[test]
fn keys_and_packets_are_exactly_these() {
    assert_eq!(derived().halves(), GOLDEN_HALVES);
    assert_eq!(encode_feedback(&told(3500), &derived(), SEQUENCE)[..], golden());
    let octets = golden();
    let packet = FeedbackPacket::parse(&octets).unwrap();
    assert_eq!((packet.told(), packet.key_id()), (told(3500), KeyId(0)));
    assert_eq!(packet.sequence(), SEQUENCE as u32);
    assert!(packet.is_signed_by(&derived(), SEQUENCE));
    assert!(!packet.is_signed_by(&derived(), SEQUENCE + (1 << 32)), "all 64 bits are signed");
}

#[test]
fn a_rate_goes_as_a_whole_number_of_units_or_not_at_all() {
    let pair = told(1).pair;
    let feedback = |bps| Feedback { pair, rate: Rate::from_bps(bps) };
    let sent = |bps| Told::new(HOST1, HOST2, feedback(bps), UNIT);
    assert_eq!(sent(3_500_000_000), Some(told(3500)));
    assert_eq!(sent(65_535_000_000), Some(told(65_535)));
    for bps in [0, 999_999, 1_000_001, 65_536_000_000, u64::MAX] {
        assert_eq!(sent(bps), None, "{bps}");
    }
    assert_eq!(Told::new(HOST1, HOST2, feedback(1), Rate::ZERO), None);
    assert_eq!(told(3500).feedback(UNIT), feedback(3_500_000_000));
}

#[test]
fn two_sessions_derive_the_same_key_and_each_direction_and_life_has_its_own() {
    let (a, b) = confirmed();
    let there = a.feedback_key(B).unwrap();
    assert_eq!(b.feedback_keys_from(A), [there]);
    assert_eq!(there, derived(), "made of both incarnations");
    let back = b.feedback_key(A).unwrap();
    assert_eq!(a.feedback_keys_from(B), [back]);
    assert_ne!(there.halves(), back.halves());

    let fresh = at_a(1);
    assert_eq!((fresh.feedback_key(B), fresh.feedback_keys_from(B)), (None, vec![]));
    assert_eq!(fresh.feedback_key(A), None, "not a peer");
    let mut restarted = at_a(1);
    let mut b = b;
    let mut octets = greeting(&mut restarted, B);
    // Three greetings and all is confirmed.
    for to_b in [true, false, true] {
        let (to, other) = if to_b { (&mut b, A) } else { (&mut restarted, B) };
        assert!(to.open(&octets).is_ok());
        octets = greeting(to, other);
    }
    let anew = restarted.feedback_key(B).unwrap();
    assert_eq!(b.feedback_keys_from(A), [anew]);
    assert_ne!(anew, there, "what the former life said is worth nothing");
}

#[test]
fn a_key_of_the_fleet_that_is_replaced_has_no_gap() {
    let (mut a, mut b) = confirmed();
    let second = "22222222222222222222222222222222".parse().unwrap();
    let mut ring = Keyring::new(KeyId(0), key());
    ring.accept(KeyId(7), second).unwrap();
    b.set_keys(ring.clone());
    ring.sign_with(KeyId(7)).unwrap();
    let old = a.feedback_key(B).unwrap();
    a.set_keys(ring);
    let new = a.feedback_key(B).unwrap();
    assert_eq!((old.id(), new.id()), (KeyId(0), KeyId(7)));
    assert_eq!(b.feedback_keys_from(A), [old, new]);
    let mut inbox = Inbox::new(HOST2);
    for key in b.feedback_keys_from(A) {
        assert!(inbox.accept(HOST1, key));
    }
    // Each has sequences of its own, and either is believed while both are accepted.
    for key in [old, new, old] {
        let sequence = inbox.counters().believed + 1;
        assert!(inbox.open(&encode_feedback(&told(1), &key, sequence)).is_ok());
    }
    inbox.forget(HOST1, KeyId(0));
    let late = inbox.open(&encode_feedback(&told(1), &old, 9));
    assert_eq!(late, Err(FeedbackRejected::Stranger { from: HOST1, id: 0 }));
}

#[test]
fn what_is_believed_is_believed_once() {
    let mut inbox = host2();
    let packet = |sequence| encode_feedback(&told(3), &derived(), sequence);
    assert_eq!(inbox.open(&packet(1)), Ok((told(3), 1)));
    assert_eq!(inbox.open(&packet(1)), Err(FeedbackRejected::Replayed { sequence: 1 }));
    assert!(inbox.open(&packet(100)).is_ok());
    assert!(inbox.open(&packet(99)).is_ok(), "late, and not seen");
    assert_eq!(inbox.open(&packet(99)), Err(FeedbackRejected::Replayed { sequence: 99 }));
    assert_eq!(inbox.open(&packet(36)), Err(FeedbackRejected::Replayed { sequence: 36 }));
    // The same key again changes nothing; another one begins anew.
    assert!(inbox.accept(HOST1, derived()));
    assert!(inbox.open(&packet(100)).is_err());
    let counted = *inbox.counters();
    assert_eq!(counted, FeedbackCounters { believed: 3, replayed: 4, ..Default::default() });
}

#[test]
fn a_sequence_may_pass_what_its_low_half_can_say() {
    let mut inbox = host2();
    let mut sequence = 1;
    // Each step is a little less than half of what the low bits say.
    for _ in 0..9 {
        let packet = encode_feedback(&told(1), &derived(), sequence);
        assert_eq!(inbox.open(&packet).map(|(_, whole)| whole), Ok(sequence));
        sequence += (1 << 31) - 1;
    }
    assert!(sequence > 1 << 34);
    let lost_too_many = encode_feedback(&told(1), &derived(), sequence + (1 << 31));
    assert_eq!(inbox.open(&lost_too_many), Err(FeedbackRejected::Tag));
}

#[test]
fn a_packet_with_any_bit_changed_is_refused_unless_the_bit_means_nothing() {
    let sound = encode_feedback(&told(3500), &derived(), 77);
    // Service, hops, checksum, the bits that say "do not cut", and two places that the network may
    // fill.
    let idle = |at: usize| matches!(at, 1 | 8 | 10 | 11 | 26 | 27 | 36 | 37);
    for at in 0..sound.len() {
        for bit in 0..8 {
            let mut packet = sound;
            packet[at] ^= 1 << bit;
            let mut inbox = host2();
            let opened = inbox.open(&packet);
            let is_idle = idle(at) || (at == 6 && bit >= 6);
            assert_eq!(opened.is_ok(), is_idle, "octet {at}, bit {bit}: {opened:?}");
            let counted = inbox.counters();
            assert_eq!((counted.all(), counted.believed), (1, u64::from(is_idle)));
            let sound = inbox.open(&sound);
            assert_eq!(sound.is_ok(), !is_idle, "what is refused changes nothing else");
        }
    }
}

#[test]
fn what_is_cut_too_long_or_from_elsewhere_is_counted_as_what_it_is() {
    let mut inbox = host2();
    let sound = encode_feedback(&told(5), &derived(), 1);
    for length in 0..sound.len() {
        let refused = inbox.open(&sound[..length]);
        assert_eq!(refused, Err(FeedbackRejected::Malformed(FeedbackError::Packet)));
    }
    assert!(inbox.open(&[&sound[..], &[0]].concat()).is_err());
    let mut newer = sound;
    newer[20] = 2;
    let version = FeedbackError::Version { got: 2 };
    assert_eq!(inbox.open(&newer), Err(FeedbackRejected::Malformed(version)));
    let to_host1 = encode_feedback(&Told { to: HOST1, ..told(5) }, &derived(), 1);
    assert_eq!(inbox.open(&to_host1), Err(FeedbackRejected::NotForUs { to: HOST1 }));
    let stranger = encode_feedback(&Told { from: HOST2, ..told(5) }, &derived(), 1);
    assert_eq!(inbox.open(&stranger), Err(FeedbackRejected::Stranger { from: HOST2, id: 0 }));
    assert_eq!(inbox.open(&encode_feedback(&told(0), &derived(), 2)), Err(FeedbackRejected::Zero));
    let malformed = sound.len() as u64 + 2;
    let expected =
        FeedbackCounters { malformed, not_for_us: 1, strangers: 1, zero: 1, ..Default::default() };
    assert_eq!(*inbox.counters(), expected);
}

#[test]
fn an_inbox_has_a_bound() {
    let mut inbox = Inbox::new(HOST2);
    for n in 0..MAX_FEEDBACK_KEYS {
        assert!(inbox.accept(Ipv4Addr::from_bits(n as u32), derived()));
    }
    assert!(!inbox.accept(Ipv4Addr::BROADCAST, derived()));
    assert!(inbox.accept(Ipv4Addr::from_bits(1), derived()), "it is there already");
}

#[test]
fn a_feedback_key_is_not_printed() {
    assert_eq!(format!("{:?}", derived()), "FeedbackKey(0, not shown)");
}
