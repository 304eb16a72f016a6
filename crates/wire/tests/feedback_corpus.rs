//! Replays `feedback-corpus/`: one file per packet, named by the verdict it must get; as
//! `corpus.rs` does for datagrams.
//!
//! Each is opened by 192.0.2.2, host2 in its life 0, which believes host1 in its life 0 at
//! 192.0.2.1 and has heard its sequences 1 and 9.

use crate::common::*;
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use weir_units::{PairId, VmId};
use weir_wire::{FeedbackRejected, Inbox, KeyId, Told, encode_feedback};

const HOST1: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const HOST2: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const VERDICTS: [&str; 7] =
    ["believed", "malformed", "not-for-us", "replayed", "stranger", "tag", "zero"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("feedback-corpus")
}

fn told() -> Told {
    Told { from: HOST1, to: HOST2, pair: PairId::new(VmId(5), VmId(6)), units: 450 }
}

fn by(told: Told, sequence: u64) -> Vec<u8> {
    let (a, _) = confirmed();
    encode_feedback(&told, &a.feedback_key(B).unwrap(), sequence).to_vec()
}

/// Host2 as each file finds it.
fn host2() -> Inbox {
    let (_, b) = confirmed();
    let mut inbox = Inbox::new(HOST2);
    for key in b.feedback_keys_from(A) {
        assert!(inbox.accept(HOST1, key));
    }
    for sequence in [1, 9] {
        assert!(inbox.open(&by(told(), sequence)).is_ok());
    }
    inbox
}

fn verdict(octets: &[u8]) -> &'static str {
    match host2().open(octets) {
        Ok(_) => "believed",
        Err(FeedbackRejected::Malformed(_)) => "malformed",
        Err(FeedbackRejected::NotForUs { .. }) => "not-for-us",
        Err(FeedbackRejected::Stranger { .. }) => "stranger",
        Err(FeedbackRejected::Tag) => "tag",
        Err(FeedbackRejected::Replayed { .. }) => "replayed",
        Err(FeedbackRejected::Zero) => "zero",
    }
}

#[test]
fn every_packet_of_the_corpus_gets_the_verdict_in_its_name() {
    let mut met = BTreeSet::new();
    for entry in fs::read_dir(folder()).expect("the corpus is part of the crate") {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().expect("names are ASCII");
        let (expected, _) = name.split_once("--").expect("<verdict>--<what>.hex");
        assert_eq!(verdict(&unhex(&fs::read_to_string(&path).unwrap())), expected, "{name}");
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
            fs::create_dir_all(folder()).unwrap();
            fs::write(&file, &text).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "{name}");
    }
}

fn entries() -> Vec<(&'static str, Vec<u8>)> {
    let whole = by(told(), 10);
    let with = |at: usize, new: &[u8]| {
        let mut octets = whole.clone();
        octets[at..at + new.len()].copy_from_slice(new);
        octets
    };
    let (_, b) = confirmed();
    let backwards = b.feedback_key(A).unwrap();
    assert_eq!(backwards.id(), KeyId(0));
    vec![
        ("believed--the-next", whole.clone()),
        ("believed--late-but-unseen", by(told(), 5)),
        ("believed--the-largest-rate", by(Told { units: u16::MAX, ..told() }, 10)),
        ("believed--checksums-where-others-were", {
            let mut octets = with(26, &[0xab, 0xcd]);
            octets[36..38].copy_from_slice(&[0x12, 0x34]);
            octets
        }),
        ("believed--beyond-what-travels", by(told(), 10 + (1 << 31) - 2)),
        ("tag--beyond-that-too", by(told(), 10 + (1 << 31))),
        ("tag--a-lap-ahead", by(told(), 10 + (1 << 32))),
        ("tag--the-other-direction", encode_feedback(&told(), &backwards, 10).to_vec()),
        ("tag--a-higher-rate", with(22, &[255, 255])),
        ("tag--another-pair", with(31, &[7])),
        ("tag--another-sequence", with(5, &[11])),
        ("tag--zeros", with(38, &[0; 8])),
        ("replayed--the-newest-again", by(told(), 9)),
        ("replayed--the-first-again", by(told(), 1)),
        ("stranger--host3", by(Told { from: Ipv4Addr::new(192, 0, 2, 3), ..told() }, 10)),
        ("stranger--another-key", with(21, &[1])),
        ("not-for-us--to-its-sender", by(Told { to: HOST1, ..told() }, 10)),
        ("zero--no-rate", by(Told { units: 0, ..told() }, 10)),
        ("malformed--empty", vec![]),
        ("malformed--without-the-tag", whole[..38].to_vec()),
        ("malformed--an-octet-too-many", [&whole[..], &[0]].concat()),
        ("malformed--version-2", with(20, &[2])),
        ("malformed--options", with(0, &[0x46])),
        ("malformed--ipv6", with(0, &[0x60])),
        ("malformed--a-first-fragment", with(6, &[0x20])),
        ("malformed--a-later-fragment", with(7, &[1])),
        ("malformed--udp", with(9, &[17])),
        ("malformed--another-length", with(3, &[47])),
    ]
}
