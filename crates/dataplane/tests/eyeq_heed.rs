//! What a host makes of feedback: what it believes, and what it drops and counts. Needs root, and
//! fails without.
#![allow(unsafe_code)]

use crate::eyeq_bench as bench;
use crate::frame;

use crate::frame::{packet, udp};
use crate::random::Random;
use bench::{Bench, DROP, HERE, MOST_UNITS, PASS, THERE, TO_PEER, UNIT, key, now_ns};
use std::net::Ipv4Addr;
use weir_dataplane::eyeq::Program;
use weir_dataplane::eyeq::intf::{self as eyeq, Counters, Limit, Voice};
use weir_dataplane::intf::{Level, Pair, Tx};
use weir_units::{PairId, VmId};
use weir_wire::{FeedbackKey, FeedbackRejected, Inbox, Told, encode_feedback};

const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);
const NONE: Counters = Counters {
    sampled: 0,
    uncloned: 0,
    told: 0,
    unknown: 0,
    unfit: 0,
    heard: 0,
    malformed: 0,
    strangers: 0,
    forged: 0,
    replayed: 0,
    impossible: 0,
    strayed: 0,
    late: 0,
    full: 0,
    unrung: 0,
};

fn told(units: u16) -> Told {
    Told { from: THERE, to: HERE, pair: TO_PEER, units }
}

fn there() -> FeedbackKey {
    key(THERE, HERE, 0)
}

/// An IPv4 packet in a frame, filled up to what Ethernet asks.
fn framed(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend(packet);
    frame.resize(frame.len().max(eyeq::FRAME), 0);
    frame
}

fn heed(bench: &Bench, packet: &[u8]) -> i32 {
    let frame = framed(packet);
    let ran = bench.run(Program::Heed, &frame, 1);
    assert_eq!(ran.octets, frame, "heed changes no octet");
    ran.verdict
}

fn say(bench: &Bench, told: &Told, sequence: u64) {
    assert_eq!(heed(bench, &encode_feedback(told, &there(), sequence)), DROP);
}

fn limit(bench: &Bench) -> Option<Limit> {
    bench.0.limits.get(TO_PEER.into()).unwrap()
}

#[test]
fn what_is_believed_becomes_a_limit_and_the_newest_stands() {
    let bench = Bench::new();
    let before = now_ns();
    say(&bench, &told(450), 1);
    let first = limit(&bench).unwrap();
    assert_eq!((first.rate_bps, first.sequence, first.told), (450 * UNIT, 1, 1));
    assert!((before..=now_ns()).contains(&first.heard_ns));
    say(&bench, &told(300), 9);
    say(&bench, &told(999), 8);
    let second = limit(&bench).unwrap();
    assert_eq!((second.rate_bps, second.sequence, second.told), (300 * UNIT, 9, 2));
    assert_eq!(bench.0.counters(), Counters { heard: 2, late: 1, ..NONE });
}

#[test]
fn a_change_of_more_than_a_64th_since_the_last_wakes_the_agent_and_less_is_written_down() {
    let bench = Bench::new();
    let mut sequence = 0;
    let mut woken_at = |units: u16| {
        sequence += 1;
        say(&bench, &told(units), sequence);
        let limit = limit(&bench).unwrap();
        assert_eq!(limit.rate_bps, u64::from(units) * UNIT);
        limit.rung_bps / UNIT
    };
    assert_eq!(woken_at(640), 640, "the first");
    assert_eq!([650, 630, 649].map(&mut woken_at), [640; 3], "up to a 64th");
    assert_eq!(woken_at(651), 651, "small steps that have become a large one");
    assert_eq!([646, 641].map(&mut woken_at), [651; 2]);
    assert_eq!(woken_at(640), 640, "so it is downwards");
    assert_eq!([1, 2].map(&mut woken_at), [1, 2], "where a unit is more");
}

#[test]
fn departure_times_go_by_a_limit_at_once_and_classes_do_not() {
    let bench = Bench::new();
    let (class, node) = (0x1_1003, 0x1003);
    let of_pair = Level { floor: 100 * UNIT, ceiling: 10_000 * UNIT, ..Level::default() };
    let levels = bench.0.levels.as_ref().expect("by itself it has levels");
    levels.put(node, of_pair);
    bench.0.classes.put(TO_PEER.into(), class).unwrap();
    // Without a level of the uplink, levels are there for other things.
    say(&bench, &told(450), 1);
    assert_eq!(levels.get(node), of_pair);
    levels.put(1, Level { ceiling: 10_000 * UNIT, ..Level::default() });
    say(&bench, &told(300), 2);
    assert_eq!(levels.get(node), Level { ceiling: 300 * UNIT, ..of_pair });
    // The agent halved it, for the receiver was silent; then it says the same again.
    levels.put(node, Level { ceiling: 150 * UNIT, ..of_pair });
    say(&bench, &told(300), 3);
    assert_eq!(levels.get(node), Level { ceiling: 300 * UNIT, ..of_pair });
    // What is late, forged or too much changes nothing.
    say(&bench, &told(20), 1);
    say(&bench, &told(MOST_UNITS as u16 + 1), 4);
    let forged = encode_feedback(&told(10), &key(ELSEWHERE, HERE, 0), 5);
    assert_eq!(heed(&bench, &forged), DROP);
    assert_eq!(levels.get(node).ceiling, 300 * UNIT);
    // A node without a pair stays so.
    levels.put(node, Level::default());
    say(&bench, &told(40), 6);
    assert_eq!(levels.get(node), Level::default());
    assert!(bench.0.classes.delete(TO_PEER.into()).unwrap());
    say(&bench, &told(50), 7);
    assert_eq!(limit(&bench).unwrap().rate_bps, 50 * UNIT);
}

#[test]
fn a_new_key_begins_anew_whatever_was_heard_by_the_old_one() {
    let bench = Bench::new();
    say(&bench, &told(450), 1_000_000);
    bench.believe(THERE, 9);
    let anew = encode_feedback(&told(20), &key(THERE, HERE, 9), 1);
    assert_eq!(heed(&bench, &anew), DROP);
    assert_eq!(limit(&bench).unwrap().rate_bps, 20 * UNIT);
    // The same id with another key is another life: the recording of the former one is forged now.
    let voice = Voice { address: eyeq::address(THERE), key_id: 9 };
    let other = key(THERE, ELSEWHERE, 9);
    bench.0.ears.put(voice, eyeq::Ear::new(other.halves())).unwrap();
    assert_eq!(heed(&bench, &anew), DROP);
    assert_eq!(heed(&bench, &encode_feedback(&told(30), &other, 1)), DROP);
    assert_eq!(limit(&bench).unwrap().rate_bps, 30 * UNIT);
    assert_eq!(bench.0.counters(), Counters { heard: 3, forged: 1, ..NONE });
}

#[test]
fn what_makes_no_sense_is_dropped_and_counted_and_changes_no_limit() {
    let bench = Bench::new();
    let mut sequence = 0;
    let mut next = |told: Told| {
        sequence += 1;
        say(&bench, &told, sequence);
    };
    next(told(0));
    next(told(MOST_UNITS as u16 + 1));
    // VM 1 is here, VM 5 nowhere, VM 4 has no pair.
    for (src, dst) in [(1, 1), (1, 5), (1, 0)] {
        next(Told { pair: PairId::new(VmId(src), VmId(dst)), ..told(5) });
    }
    for src in [4, 77, u32::MAX] {
        next(Told { pair: PairId::new(VmId(src), VmId(2)), ..told(5) });
    }
    let counted = Counters { impossible: 2, strangers: 3, strayed: 3, ..NONE };
    assert_eq!(bench.0.counters(), counted);
    assert_eq!(limit(&bench), None);
    // The host of another VM speaks for its own alone.
    bench.believe(ELSEWHERE, 0);
    let other = encode_feedback(&Told { from: ELSEWHERE, ..told(5) }, &key(ELSEWHERE, HERE, 0), 1);
    assert_eq!(heed(&bench, &other), DROP);
    assert_eq!(bench.0.counters(), Counters { strangers: 4, ..counted });
    next(told(MOST_UNITS as u16));
    assert_eq!(limit(&bench).unwrap().rate_bps, MOST_UNITS * UNIT);
}

#[test]
fn limits_have_a_bound_and_who_finds_no_room_is_counted() {
    let bench = Bench::new();
    for n in 0..17 {
        let pair = Pair { src: 1, dst: 100 + n };
        bench.0.vms.put(pair.dst, eyeq::Vm { host: eyeq::address(THERE), slot: 0 }).unwrap();
        // Sixteen places for pairs, too: the first goes when the next comes.
        assert!(
            bench
                .0
                .tx
                .delete(if n == 0 { TO_PEER.into() } else { Pair { dst: 99 + n, ..pair } })
                .unwrap()
        );
        bench.0.tx.put(pair, Tx::default()).unwrap();
        say(&bench, &Told { pair: pair.into(), ..told(5) }, u64::from(n) + 1);
    }
    assert_eq!(bench.0.counters(), Counters { heard: 16, full: 1, ..NONE });
}

#[test]
fn what_is_not_feedback_for_this_host_passes() {
    let bench = Bench::new();
    let elsewhere = encode_feedback(&Told { to: ELSEWHERE, ..told(5) }, &there(), 1);
    let passes = [
        framed(&elsewhere),
        packet("192.0.2.2", "192.0.2.1", 17, udp(9, 18)).octets(),
        packet("10.0.0.2", "10.0.0.1", 253, vec![1; 26]).octets(),
        packet("fd00::2", "fd00::1", 253, vec![1; 26]).octets(),
        frame::alien(),
    ];
    for frame in passes {
        let ran = bench.run(Program::Heed, &frame, 1);
        assert_eq!((ran.verdict, ran.octets), (PASS, frame));
    }
    assert_eq!(bench.0.counters(), NONE);
}

#[test]
fn what_is_cut_short_is_dropped_and_counted() {
    let bench = Bench::new();
    let sound = encode_feedback(&told(5), &there(), 1);
    for length in 20..sound.len() {
        let mut frame = framed(&[]);
        frame.truncate(14);
        frame.extend(&sound[..length]);
        assert_eq!(bench.run(Program::Heed, &frame, 1).verdict, DROP, "{length} octets");
    }
    let malformed = sound.len() as u64 - 20;
    assert_eq!(bench.0.counters(), Counters { malformed, ..NONE });
}

/// The kernel's counters that the verdicts of `Inbox` come to.
fn counters_of(verdict: &Result<(Told, u64), FeedbackRejected>) -> &'static str {
    match verdict {
        Ok(_) => "heard or late",
        Err(FeedbackRejected::Malformed(_)) => "malformed",
        Err(FeedbackRejected::NotForUs { .. }) => "passed",
        Err(FeedbackRejected::Stranger { .. }) => "strangers",
        Err(FeedbackRejected::Tag) => "forged",
        Err(FeedbackRejected::Replayed { .. }) => "replayed",
        Err(FeedbackRejected::Zero) => "impossible",
    }
}

fn moved(before: &Counters, after: &Counters) -> &'static str {
    let rows = [
        ("heard or late", before.heard + before.late, after.heard + after.late),
        ("malformed", before.malformed, after.malformed),
        ("strangers", before.strangers, after.strangers),
        ("forged", before.forged, after.forged),
        ("replayed", before.replayed, after.replayed),
        ("impossible", before.impossible, after.impossible),
    ];
    let all: Vec<_> = rows.iter().filter(|(_, before, after)| before != after).collect();
    match all[..] {
        [] => "passed",
        [(name, before, after)] if *after == before + 1 => name,
        _ => panic!("one packet moved {all:?}"),
    }
}

/// The kernel and `weir_wire::Inbox` on the same packets: sound ones in any order, leaps,
/// repetitions, damage.
#[test]
fn the_kernel_believes_exactly_what_the_crate_believes() {
    let bench = Bench::new();
    let mut inbox = Inbox::new(HERE);
    assert!(inbox.accept(THERE, there()));
    let mut random = Random(3);
    let mut next = 1u64;
    let mut recorded: Vec<[u8; 46]> = Vec::new();
    let mut met = std::collections::BTreeMap::new();
    for step in 0..20_000 {
        let packet = match random.below(8) {
            0..=2 => {
                let sequence = (next + random.below(140)).saturating_sub(70).max(1);
                encode_feedback(&told(random.below(20) as u16 + 1), &there(), sequence)
            }
            3 => {
                next += 1 << random.below(31);
                encode_feedback(&told(7), &there(), next)
            }
            4 => encode_feedback(&told(0), &there(), next + random.below(3)),
            5 if !recorded.is_empty() => recorded[random.below(recorded.len() as u64) as usize],
            _ if !recorded.is_empty() => {
                let mut packet = recorded[random.below(recorded.len() as u64) as usize];
                let bit = random.below(46 * 8) as usize;
                packet[bit / 8] ^= 1 << (bit % 8);
                packet
            }
            _ => continue,
        };
        next += random.below(3);
        // What is not IPv4, or of another protocol, never comes to be judged in the kernel.
        if packet[9] != eyeq::PROTOCOL {
            continue;
        }
        let before = bench.0.counters();
        let verdict = heed(&bench, &packet);
        let wanted = inbox.open(&packet);
        let is_other = packet[16..20] != HERE.octets();
        let wanted = if is_other { "passed" } else { counters_of(&wanted) };
        let got = moved(&before, &bench.0.counters());
        assert_eq!(got, wanted, "step {step}: {packet:02x?}");
        assert_eq!(verdict, if is_other { PASS } else { DROP });
        *met.entry(got).or_insert(0) += 1;
        recorded.push(packet);
        if recorded.len() > 300 {
            recorded.remove(0);
        }
    }
    assert_eq!(met.len(), 7, "{met:?}");
    assert!(met.values().all(|n| *n > 20), "{met:?}");
}
