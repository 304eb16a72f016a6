//! The layout, octet by octet, and what it costs: other implementations are held to this file.

mod common;

use common::*;
use weir_core::message::{Congestion, Echo, Message, Offer};
use weir_units::{HostId, PairId, PathId, Rate, VmId};
use weir_wire::{Header, Heard, Incarnation, KeyId, ParseError, RecordError, encode, parse};

/// Key 000102…0f; the tag was computed by another implementation of SipHash-2-4.
const GOLDEN: &str = "
01 05 00 03                 # version, key id, flags, count
0000002a                    # epoch 42
00000007                    # from host7
00000009                    # to host9
1122334455667788            # sender's incarnation
0000000000000102            # sequence 258
99aabbccddeeff00            # echo: receiver's incarnation
0000000000000057            # echo: heard up to 87

01 03 0000 0000000b         # offer, unbounded and confirm, serial 11
000000c8 0000012c           # vm200 to vm300
0000000005 5d4a80           # 90 Mbit/s

02 00 0000 0000000c         # echo, serial 12
0000012c 000000c8           # vm300 to vm200
000009184e72a000            # 10 Tbit/s

03 00 0000 00000005         # congestion, 5 lost
000000c8 0000012c           # vm200 to vm300
00000002 000000fa           # 2 marked, 250 received

e72e577b16eb738a            # SipHash-2-4
";

fn golden() -> (Header, [Message; 3]) {
    let incarnation = |n| Incarnation::new(n).unwrap();
    let header = Header {
        key_id: KeyId(5),
        epoch: 42,
        from: HostId(7),
        to: HostId(9),
        incarnation: incarnation(0x1122_3344_5566_7788),
        sequence: 258,
        echo: Some(Heard { incarnation: incarnation(0x99aa_bbcc_ddee_ff00), sequence: 87 }),
    };
    let pair = PairId::new(VmId(200), VmId(300));
    let floor = Rate::from_mbps(90);
    let messages = [
        Message::Offer(Offer { pair, serial: 11, floor, unbounded: true, confirm: true }),
        Message::Echo(Echo { pair: pair.reversed(), serial: 12, floor: weir_wire::MAX_RATE }),
        Message::Congestion(Congestion { pair, lost: 5, marked: 2, received: 250 }),
    ];
    (header, messages)
}

#[test]
fn values_become_exactly_these_octets() {
    let (header, messages) = golden();
    assert_eq!(encode(&header, &key(), &messages), unhex(GOLDEN));
}

#[test]
fn these_octets_become_exactly_the_values() {
    let octets = unhex(GOLDEN);
    let (header, messages) = golden();
    let datagram = parse(&octets).unwrap();
    assert_eq!(datagram.header, header);
    assert_eq!(datagram.messages.len(), 3);
    assert!(datagram.messages.eq(messages));
}

#[test]
fn a_report_about_a_path_is_one_about_the_pair_with_a_number() {
    let (header, messages) = golden();
    let Message::Congestion(report) = messages[2] else { panic!("the golden report") };
    let record = |message: Message| encode(&header, &key(), &[message])[48..72].to_vec();
    let mut expected = record(messages[2]);
    (expected[0], expected[3]) = (4, 13);
    let message = Message::PathCongestion(PathId(13), report);
    assert_eq!(record(message), expected);
    let octets = encode(&header, &key(), &[message]);
    assert!(parse(&octets).unwrap().messages.eq([message]));
    let mut beyond = octets;
    beyond[48 + 3] = 16;
    let why = RecordError::UnknownPath { path: PathId(16) };
    assert_eq!(parse(&beyond).unwrap_err(), ParseError::Record { index: 0, why });
    beyond[48] = 3;
    let why = RecordError::ReservedBits;
    assert_eq!(parse(&beyond).unwrap_err(), ParseError::Record { index: 0, why });
}

/// Octets of a frame without FCS around a datagram: Ethernet, IPv4, UDP.
const AROUND: usize = 14 + 20 + 8;

/// kb/s of control traffic if each period of 60 ms carries these octets.
fn kbps(octets: usize) -> f64 {
    octets as f64 * 8.0 / 0.060 / 1000.0
}

/// Octets on the wire of `pairs` offers to one peer.
fn on_the_wire(pairs: u32) -> usize {
    let (mut a, _) = confirmed();
    let mut out = Vec::new();
    a.seal(B, &(0..pairs).map(offer).collect::<Vec<_>>(), &mut out).unwrap();
    out.iter().map(|datagram| AROUND + datagram.len()).sum()
}

#[test]
fn control_traffic_is_what_the_crate_says() {
    assert_eq!(on_the_wire(1), 122);
    assert_eq!(kbps(on_the_wire(1)).round(), 16.0);
    assert_eq!(kbps(100 * on_the_wire(1)).round(), 1627.0);
    assert_eq!(on_the_wire(3), 170);
    assert_eq!(kbps(33 * on_the_wire(3)).round(), 748.0);
    assert_eq!(on_the_wire(56), 1442);
    assert_eq!(on_the_wire(100), 2596);
    assert_eq!(kbps(on_the_wire(100)).round(), 346.0);
    assert_eq!(AROUND + greeting(&mut at_a(0), B).len(), 98);
}

#[test]
fn from_three_pairs_per_peer_on_batching_pays_for_the_tag() {
    // The paper's packet is 64 octets with an FCS of 4.
    let with_fcs = |pairs| on_the_wire(pairs) + 4;
    assert!(with_fcs(2) > 2 * 64);
    assert!((3..=56).all(|pairs| with_fcs(pairs) < 64 * pairs as usize));
}
