//! Replays `corpus/`: one file per datagram, named by the verdict it must get.
//!
//! Files hold hexadecimal digits; white space and `#` comments are ignored. Each is opened by host2
//! in its life 0, which has confirmed host1 in its life 0 and believed its sequences 2 and 9, and
//! has sent sequence 2 since. To add what a fuzzer or a log has found, write its octets to
//! `<verdict>--<what>.hex`.

use crate::common::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use weir_core::message::{Backlog, Congestion, Echo, Message};
use weir_units::{HostId, PairId, Rate, VmId};
use weir_wire::{Header, Heard, KeyId, Opened, Rejected, Session, encode};

const VERDICTS: [&str; 12] = [
    "believed",
    "greet",
    "header",
    "key",
    "length",
    "not-for-us",
    "record",
    "replayed",
    "stale",
    "tag",
    "unknown-peer",
    "version",
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Host2 as each file finds it.
fn host2() -> Session {
    let (_, mut b) = confirmed();
    believed(&mut b, &encode(&header(9), &key(), &[]));
    let _second = greeting(&mut b, A);
    b
}

/// What host1 in its life 0 would send, in the second version.
fn header(sequence: u64) -> Header {
    Header {
        version: 2,
        speaks: 2,
        key_id: KeyId(0),
        epoch: 3,
        from: A,
        to: B,
        incarnation: incarnation(1, 0),
        sequence,
        echo: Some(Heard { incarnation: incarnation(2, 0), sequence: 1 }),
    }
}

fn verdict(octets: &[u8]) -> &'static str {
    match host2().open(octets) {
        Ok(Opened::Believed { .. }) => "believed",
        Ok(Opened::Greet(_)) => "greet",
        Err(Rejected::Length { .. }) => "length",
        Err(Rejected::Version { .. }) => "version",
        Err(Rejected::Key { .. }) => "key",
        Err(Rejected::Tag) => "tag",
        Err(Rejected::NotForUs { .. }) => "not-for-us",
        Err(Rejected::UnknownPeer { .. }) => "unknown-peer",
        Err(Rejected::Header { .. }) => "header",
        Err(Rejected::Record { .. }) => "record",
        Err(Rejected::Stale { .. }) => "stale",
        Err(Rejected::Replayed { .. }) => "replayed",
    }
}

#[test]
fn every_datagram_of_the_corpus_gets_the_verdict_in_its_name() {
    let mut met = BTreeSet::new();
    for entry in fs::read_dir(folder()).expect("the corpus is part of the crate") {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().expect("names are ASCII");
        let (expected, _) = name.split_once("--").expect("<verdict>--<what>.hex");
        let octets = unhex(&fs::read_to_string(&path).unwrap());
        assert_eq!(verdict(&octets), expected, "{name}");
        met.insert(expected.to_owned());
    }
    assert!(met.iter().map(String::as_str).eq(VERDICTS), "{met:?}");
}

/// For a change of the layout before its first release: `WEIR_WRITE_CORPUS=1` writes all files
/// anew.
#[test]
fn the_corpus_is_what_its_entries_say() {
    for (name, octets) in entries() {
        let mut text = String::new();
        for line in octets.chunks(8) {
            text.extend(line.iter().map(|octet| format!("{octet:02x}")));
            text.push('\n');
        }
        let file = folder().join(format!("{name}.hex"));
        if std::env::var_os("WEIR_WRITE_CORPUS").is_some() {
            fs::write(&file, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "{name}");
    }
}

fn entries() -> Vec<(&'static str, Vec<u8>)> {
    let by = |header: Header, messages: &[Message]| encode(&header, &key(), messages);
    let whole = by(header(10), &[offer(1), offer(2)]);
    let signed = |at: usize, new: &[u8]| {
        let mut octets = whole.clone();
        octets[at..at + new.len()].copy_from_slice(new);
        resign(&mut octets);
        octets
    };
    let forged = |at: usize| {
        let mut octets = whole.clone();
        octets[at] ^= 1;
        octets
    };
    let pair = PairId::new(VmId(5), VmId(6));
    let of_each_kind = [
        offer(1),
        Message::Echo(Echo {
            pair,
            serial: 7,
            floor: Rate::ZERO,
            most: Some(Rate::ZERO),
            backlog: Backlog::Always,
        }),
        Message::Congestion(Congestion { pair, lost: u32::MAX, marked: 0, received: 0 }),
    ];
    let heard = |life, sequence| Some(Heard { incarnation: incarnation(2, life), sequence });
    let restarted = Header { incarnation: incarnation(1, 1), ..header(1) };
    let third = Header { version: 3, speaks: 3, ..header(10) };
    let mut third_waits = by(third, &[offer(1)]);
    third_waits[49] |= 8;
    resign(&mut third_waits);
    let first = Header { version: 1, ..header(10) };
    let first_whole = by(first, &[offer(1), offer(2)]);
    let first_signed = |at: usize, new: &[u8]| {
        let mut octets = first_whole.clone();
        octets[at..at + new.len()].copy_from_slice(new);
        resign(&mut octets);
        octets
    };
    let mut entries = plain(&whole);
    entries.extend([
        ("believed--a-record-of-each-kind", by(header(10), &of_each_kind)),
        ("believed--a-full-datagram", by(header(10), &vec![offer(3); 42])),
        ("believed--a-greeting", by(header(10), &[])),
        ("believed--each-kind-in-the-third-version", by(third, &of_each_kind)),
        ("record--what-waits-of-an-offer", third_waits),
        ("believed--each-kind-in-the-first-version", by(first, &of_each_kind)),
        ("believed--a-full-datagram-of-the-first-version", by(first, &vec![offer(3); 56])),
        ("believed--of-an-agent-of-the-first-version", by(Header { speaks: 1, ..first }, &[])),
        ("believed--late-but-unseen", by(header(5), &[offer(1)])),
        ("believed--the-last-sequence", by(header(u64::MAX), &[offer(1)])),
        ("believed--a-restart-that-heard-us", by(Header { echo: heard(0, 2), ..restarted }, &[])),
        ("greet--a-restart-that-knows-nobody", by(Header { echo: None, ..restarted }, &[offer(1)])),
        (
            "greet--a-restart-that-heard-us-long-ago",
            by(Header { echo: heard(0, 1), ..restarted }, &[]),
        ),
        (
            "greet--it-heard-what-was-never-said",
            by(Header { echo: heard(0, 99), ..header(10) }, &[]),
        ),
        ("greet--it-knows-our-last-life", by(Header { echo: heard(1, 1), ..header(10) }, &[])),
        ("stale--from-our-last-life", by(Header { echo: heard(1, 1), ..header(4) }, &[offer(1)])),
        ("replayed--the-highest-again", by(header(9), &[offer(1)])),
        ("replayed--another-seen-one", by(header(2), &[offer(1)])),
        ("not-for-us--to-itself", by(Header { to: A, ..header(10) }, &[])),
        ("not-for-us--from-us-to-another", by(Header { from: B, to: A, ..header(10) }, &[])),
        ("unknown-peer--host3", by(Header { from: HostId(3), ..header(10) }, &[])),
        ("unknown-peer--ourselves", by(Header { from: B, ..header(10) }, &[])),
        ("version--9", signed(0, &[9])),
        ("key--id-1", signed(1, &[1])),
        ("header--speaks-less-than-it-says", signed(2, &[1])),
        ("header--a-flag-of-the-first-version", first_signed(2, &[0x80])),
        ("header--speaks-the-first-version-only-in-two-forms", first_signed(4, &[1])),
        ("record--a-path-of-an-offer-in-the-first-version", first_signed(51, &[1])),
        ("record--a-hose-of-the-source", signed(50, &[1])),
        ("record--a-level", signed(72, &[0, 1])),
        ("record--a-path-of-an-offer", signed(74, &[1])),
        ("record--the-most-of-an-offer", signed(49, &[4])),
        ("header--incarnation-0", signed(16, &[0; 8])),
        ("header--sequence-0", signed(24, &[0; 8])),
        ("header--echo-of-nobody", signed(32, &[0; 8])),
        ("header--echo-of-sequence-0", signed(40, &[0; 8])),
        ("record--kind-0", signed(48, &[0])),
        ("record--kind-255", signed(80, &[255])),
        ("record--an-unused-flag", signed(49, &[8])),
        ("record--unused-octets", signed(50, &[0, 1])),
        ("record--a-vm-and-itself", signed(56, &[255; 4])),
        ("record--beyond-any-link", signed(64, &[255; 8])),
        ("tag--a-bit-of-the-tag", forged(whole.len() - 1)),
        ("tag--a-bit-of-the-floor", forged(71)),
        ("tag--a-bit-of-the-sequence", forged(31)),
    ]);
    entries
}

/// What needs no key.
fn plain(whole: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let count = |n| {
        let mut octets = whole.to_vec();
        octets[3] = n;
        octets
    };
    let mut oversized = vec![0; 56 + 43 * 32];
    oversized[0] = 2;
    oversized[3] = 43;
    vec![
        ("length--empty", vec![]),
        ("length--one-octet", vec![1]),
        ("length--cut-within-the-header", whole[..47].to_vec()),
        ("length--cut-within-a-record", whole[..60].to_vec()),
        ("length--without-the-tag", whole[..whole.len() - 8].to_vec()),
        ("length--an-octet-too-many", [whole, &[0]].concat()),
        ("length--count-too-small", count(1)),
        ("length--count-255", count(255)),
        ("length--43-records", oversized),
        ("version--0", vec![0; 64]),
        ("version--text", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("tag--zeros", [&[2][..], &[0; 55]].concat()),
    ]
}
