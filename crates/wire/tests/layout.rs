//! The layout, octet by octet, and what it costs: other implementations are held to this file.

use crate::common::*;
use weir_core::level::{Level, UNIT};
use weir_core::message::{Backlog, Congestion, Echo, LevelWord, Message, Offer};
use weir_units::{HostId, PairId, PathId, Rate, Span, VmId};
use weir_wire::{Header, Heard, Incarnation, KeyId, ParseError, RecordError, encode, parse};

/// Key 000102…0f; the tag was computed by another implementation of SipHash-2-4.
const GOLDEN: &str = "
03 05 03 03                 # version, key id, highest version, count
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
0000 0000 00009c40          # level: reserved; a round trip of 40 ms

02 14 0000 0000000c         # echo that says the most and that packets waited sometimes, serial 12
0000012c 000000c8           # vm300 to vm200
000009184e72a000            # 10 Tbit/s
0000000002faf080            # the most: 50 Mbit/s

03 00 0000 00000005         # congestion, 5 lost
000000c8 0000012c           # vm200 to vm300
00000002 000000fa           # 2 marked, 250 received
0000 000000000000           # level: reserved

0e37d5bddadaac09            # SipHash-2-4
";

/// What version 4 adds; the tag as above.
const LEVELS: &str = "
04 05 04 02                 # version, key id, highest version, count
0000002a                    # epoch 42
00000007                    # from host7
00000009                    # to host9
1122334455667788            # sender's incarnation
0000000000000102            # sequence 258
99aabbccddeeff00            # echo: receiver's incarnation
0000000000000057            # echo: heard up to 87

05 000000 00002800          # senders may send 2.5 times their floors
000000000000000000000000000000000000000000000000

06 000000 40000000          # the highest level that there is is in use
000000000000000000000000000000000000000000000000

3e145caec5c75f20            # SipHash-2-4
";

/// The same in the second version, which does not say what waits.
const SECOND: &str = "
02 05 02 03                 # version, key id, highest version, count
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
0000 0000 00009c40          # level: reserved; a round trip of 40 ms

02 04 0000 0000000c         # echo that says the most, serial 12
0000012c 000000c8           # vm300 to vm200
000009184e72a000            # 10 Tbit/s
0000000002faf080            # the most: 50 Mbit/s

03 00 0000 00000005         # congestion, 5 lost
000000c8 0000012c           # vm200 to vm300
00000002 000000fa           # 2 marked, 250 received
0000 000000000000           # level: reserved

e5ea95de687ff48b            # SipHash-2-4
";

/// The same in the first version, which has no room for the most either.
const FIRST: &str = "
01 05 00 03                 # version, key id, flags, count
02 00002a                   # highest version, epoch 42
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

a5ebe1626c916bbd            # SipHash-2-4
";

fn golden() -> (Header, [Message; 3]) {
    let incarnation = |n| Incarnation::new(n).unwrap();
    let header = Header {
        version: 3,
        speaks: 3,
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
        Message::Offer(Offer {
            pair,
            serial: 11,
            floor,
            unbounded: true,
            confirm: true,
            round_trip: Some(Span::from_millis(40)),
        }),
        Message::Echo(Echo {
            pair: pair.reversed(),
            serial: 12,
            floor: weir_wire::MAX_RATE,
            most: Some(Rate::from_mbps(50)),
            backlog: Backlog::Sometimes,
        }),
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
fn the_first_version_has_the_same_values_but_for_the_most() {
    let (header, messages) = golden();
    let header = Header { version: weir_wire::FIRST, speaks: 2, ..header };
    let octets = encode(&header, &key(), &messages);
    assert_eq!(octets, unhex(FIRST));
    let datagram = parse(&octets).unwrap();
    assert_eq!(datagram.header, header);
    let Message::Echo(echo) = messages[1] else { panic!("the golden echo") };
    let Message::Offer(offer) = messages[0] else { panic!("the golden offer") };
    let offer = Message::Offer(Offer { round_trip: None, ..offer });
    let echo = Echo { most: None, backlog: Backlog::Unknown, ..echo };
    let without = [offer, Message::Echo(echo), messages[2]];
    assert!(datagram.messages.eq(without));
}

#[test]
fn the_second_version_has_the_same_values_but_for_what_waits() {
    let (header, mut messages) = golden();
    let header = Header { version: weir_wire::SECOND, speaks: 2, ..header };
    let octets = encode(&header, &key(), &messages);
    assert_eq!(octets, unhex(SECOND));
    let Message::Echo(echo) = &mut messages[1] else { panic!("the golden echo") };
    echo.backlog = Backlog::Unknown;
    let datagram = parse(&octets).unwrap();
    assert_eq!(datagram.header, header);
    assert!(datagram.messages.eq(messages));
    let mut waits = octets;
    waits[48 + 32 + 1] |= 0b1000;
    let why = RecordError::ReservedBits;
    assert_eq!(parse(&waits).unwrap_err(), ParseError::Record { index: 1, why });
}

#[test]
fn levels_of_two_hosts_are_said_in_the_fourth_version_and_in_no_other_form() {
    let (header, _) = golden();
    let messages = [
        Message::Level(LevelWord::May(Level::from_raw(UNIT * 5 / 2))),
        Message::Level(LevelWord::Uses(Level::MAX)),
    ];
    let header = Header { version: 4, speaks: 4, ..header };
    let octets = encode(&header, &key(), &messages);
    assert_eq!(octets, unhex(LEVELS));
    assert!(parse(&octets).unwrap().messages.eq(messages));
    let refused = |at: usize, octet: u8| {
        let mut octets = octets.clone();
        octets[48 + at] = octet;
        match parse(&octets) {
            Err(ParseError::Record { index: 0, why }) => why,
            other => panic!("octet {at} is {octet}: {other:?}"),
        }
    };
    for at in (1..4).chain(8..32) {
        assert_eq!(refused(at, 1), RecordError::ReservedBits, "octet {at}");
    }
    assert_eq!(refused(6, 0x0f), RecordError::NoLevel { raw: 0x0f00 }, "below 1");
    assert_eq!(refused(4, 0x40), RecordError::NoLevel { raw: 0x4000_2800 }, "above the highest");
    // To the versions before these kinds are unknown.
    let mut before = octets;
    (before[0], before[2]) = (3, 3);
    let why = RecordError::UnknownKind { got: 5 };
    assert_eq!(parse(&before).unwrap_err(), ParseError::Record { index: 0, why });
}

#[test]
fn what_an_agent_of_the_first_version_made_is_read_as_it_was_meant() {
    let (header, messages) = golden();
    let header = Header { version: 1, speaks: 1, epoch: 0, ..header };
    let octets = encode(&header, &key(), &messages[..1]);
    assert_eq!(octets[4..8], [0; 4], "it knew nothing of other versions");
    assert_eq!(parse(&octets).unwrap().header, header);
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
    let record = |message: Message| encode(&header, &key(), &[message])[48..80].to_vec();
    let mut expected = record(messages[2]);
    (expected[0], expected[26]) = (4, 13);
    let message = Message::PathCongestion(PathId(13), report);
    assert_eq!(record(message), expected);
    let octets = encode(&header, &key(), &[message]);
    assert!(parse(&octets).unwrap().messages.eq([message]));
    let mut beyond = octets;
    beyond[48 + 26] = 16;
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
    assert_eq!(on_the_wire(1), 130);
    assert_eq!(kbps(on_the_wire(1)).round(), 17.0);
    assert_eq!(kbps(100 * on_the_wire(1)).round(), 1733.0);
    assert_eq!(on_the_wire(4), 226);
    assert_eq!(kbps(25 * on_the_wire(4)).round(), 753.0);
    assert_eq!(on_the_wire(42), 1442);
    assert_eq!(on_the_wire(100), 3494);
    assert_eq!(kbps(on_the_wire(100)).round(), 466.0);
    assert_eq!(AROUND + greeting(&mut at_a(0), B).len(), 98);
}

#[test]
fn from_four_pairs_per_peer_on_batching_pays_for_the_tag() {
    // The paper's packet is 64 octets with an FCS of 4.
    let with_fcs = |pairs| on_the_wire(pairs) + 4;
    assert!(with_fcs(3) > 3 * 64);
    assert!((4..=56).all(|pairs| with_fcs(pairs) < 64 * pairs as usize));
}
