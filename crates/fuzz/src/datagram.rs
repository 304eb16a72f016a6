//! Datagrams of the control channel, as anyone on the network can send them.

use crate::Target;
use weir_core::message::{Backlog, Congestion, Echo, Message, Offer};
use weir_units::{HostId, PairId, Rate, VmId};
use weir_wire::packet::records_in;
use weir_wire::{
    FIRST, Header, Heard, Incarnation, Key, KeyId, Keyring, MAX_RATE, MAX_RECORDS, ParseError,
    SECOND, Session, VERSION, encode, parse,
};

/// Octets are either refused, or a value that has exactly this form; without the key nothing is
/// believed, and each refusal moves one counter.
pub(crate) const TARGET: Target = Target { name: "datagram", run, reaches, words: &[], seeds };

const TAG: usize = 8;

/// The key with which the corpus was made: not the host's.
fn others_key() -> Key {
    Key::from_hex("000102030405060708090a0b0c0d0e0f").expect("a key")
}

pub(crate) fn incarnation(n: u64) -> Incarnation {
    Incarnation::new(n).expect("not zero")
}

/// Whether it has a datagram's length and version.
fn reaches(octets: &[u8]) -> bool {
    !matches!(parse(octets), Err(ParseError::Length { .. } | ParseError::Version { .. }))
}

fn run(octets: &[u8]) {
    if let Ok(datagram) = parse(octets) {
        let messages: Vec<Message> = datagram.messages.clone().collect();
        assert!(messages.len() <= records_in(FIRST), "more records than a datagram has room for");
        assert_eq!(messages.len(), datagram.messages.len(), "the length that was announced");
        let again = encode(&datagram.header, &others_key(), &messages);
        let signed = octets.len() - TAG;
        assert_eq!(again[..signed], octets[..signed], "one value has one form");
        let parsed = parse(&again).expect("what is encoded is parsed");
        assert_eq!(parsed.header, datagram.header);
    }
    let key = Key::from_hex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff").expect("a key");
    let mut host = Session::new(HostId(2), incarnation(7), Keyring::new(KeyId(0), key));
    host.add_peer(HostId(1)).expect("room for one");
    assert!(host.open(octets).is_err(), "believed or greeted without the key");
    assert_eq!(host.counters().rejected(), 1);
    assert_eq!(host.counters().rows().iter().map(|(_, n)| n).sum::<u64>(), 1, "one counter");
    assert!(!host.is_confirmed(HostId(1)));
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let header = Header {
        version: VERSION,
        speaks: VERSION,
        key_id: KeyId(0),
        epoch: 3,
        from: HostId(1),
        to: HostId(2),
        incarnation: incarnation(9),
        sequence: 10,
        echo: Some(Heard { incarnation: incarnation(7), sequence: 1 }),
    };
    let pair = PairId::new(VmId(5), VmId(6));
    let kinds = [
        Message::Offer(Offer {
            pair,
            serial: 4,
            floor: MAX_RATE,
            unbounded: true,
            confirm: true,
            round_trip: None,
        }),
        Message::Echo(Echo {
            pair,
            serial: 7,
            floor: Rate::ZERO,
            most: Some(MAX_RATE),
            backlog: Backlog::Always,
        }),
        Message::Congestion(Congestion { pair, lost: u32::MAX, marked: 0, received: 9 }),
    ];
    let by = |header: Header, messages: &[Message]| encode(&header, &others_key(), messages);
    let whole = by(header, &kinds);
    let other_key = Header { key_id: KeyId(255), ..header };
    vec![
        ("each-kind", whole.clone()),
        ("greeting", by(header, &[])),
        ("knows-nobody", by(Header { echo: None, ..header }, &kinds[..1])),
        ("full", by(header, &vec![kinds[0]; MAX_RECORDS])),
        ("of-another-key", by(other_key, &kinds)),
        ("to-another-host", by(Header { to: HostId(3), ..header }, &kinds)),
        ("cut-in-the-tag", whole[..whole.len() - 1].to_vec()),
        ("cut-in-the-header", whole[..30].to_vec()),
        ("each-kind-second-version", by(Header { version: SECOND, ..header }, &kinds)),
        ("each-kind-first-version", by(Header { version: FIRST, ..header }, &kinds)),
        ("of-an-older-agent", by(Header { version: FIRST, speaks: FIRST, ..header }, &kinds)),
        ("another-version", [&[9], &whole[1..]].concat()),
        ("too-many-octets", [&whole[..], &[0; 24]].concat()),
        ("text", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("zeros", vec![0; 80]),
    ]
}
