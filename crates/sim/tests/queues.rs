//! What flows of one pair do to each other: `scenarios/floors/`, played whole in short.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use weir_model::scenario::{File, Mechanism, Scenario};
use weir_sim::scenario::{Record, Setup, play};

const SECONDS: f64 = 6.0;

fn load(file: &str, set: &[(&str, &str)]) -> Scenario {
    let path = format!("{}/../../scenarios/floors/{file}", env!("CARGO_MANIFEST_DIR"));
    let short = [("duration", "8s"), ("warmup", "2s")];
    let set =
        short.iter().chain(set).map(|(k, v)| (k.to_string(), v.to_string())).collect::<Vec<_>>();
    let file = File::load(path.as_ref(), &set).unwrap_or_else(|e| panic!("{e}"));
    file.points().unwrap_or_else(|e| panic!("{e}")).remove(0)
}

fn run(scenario: &Scenario, mechanism: &str) -> Record {
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let setup = Setup { seed: 1, ..Setup::default() };
    play(scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false)).expect("playable")
}

/// Mbit/s of payload after the warmup of a group.
fn goodput(scenario: &Scenario, record: &Record, group: &str) -> f64 {
    goodput_in(scenario, record, group, 20..80)
}

/// The same in six seconds, by their tenths.
fn goodput_in(scenario: &Scenario, record: &Record, group: &str, tenths: Range<usize>) -> f64 {
    let flows =
        scenario.traffic.iter().zip(&record.observed.flows).filter(|(of, _)| of.group == group);
    let octets: u64 = flows.flat_map(|(_, flow)| &flow.octets[tenths.clone()]).sum();
    octets as f64 * 8.0 / SECONDS / 1e6
}

/// Of a floor on the wire.
fn payload(floor: f64) -> f64 {
    floor * 1448.0 / 1514.0
}

#[test]
fn tcp_in_both_directions_between_two_vms_has_its_floor_each_way() {
    for floor in [10.0, 50.0] {
        let set = [("flood", "0"), ("floor", &*format!("{floor}Mbit"))];
        let scenario = load("two-way.yaml", &set);
        let record = run(&scenario, "elasticswitch:steady");
        for group in ["there", "back"] {
            let part = goodput(&scenario, &record, group) / payload(floor);
            assert!(part >= 0.9, "{floor} Mbit/s: {group} has {part:.3} of its floor");
        }
    }
}

#[test]
fn tcp_both_ways_with_floors_that_differ_has_both() {
    // One connection of 20 floors of the other direction needs acknowledgements that it lacks.
    let points =
        [("5Mbit", "1", 0.88), ("5Mbit", "12", 0.9), ("20Mbit", "1", 0.95), ("20Mbit", "12", 0.95)];
    for (back, connections, at_least) in points {
        let set = [("back", back), ("connections", connections)];
        let scenario = load("two-way-unequal.yaml", &set);
        let record = run(&scenario, "elasticswitch:steady");
        let there = goodput(&scenario, &record, "there") / payload(100.0);
        let floor = back.trim_end_matches("Mbit").parse::<f64>().unwrap();
        let part = goodput(&scenario, &record, "back") / payload(floor);
        let held = there >= at_least && part >= 0.9;
        assert!(held, "{back}, {connections} back: {there:.3} there, {part:.3} back");
    }
}

#[test]
fn what_the_other_direction_borrows_takes_no_floor() {
    for (floor, back) in [(20.0, "1"), (50.0, "1"), (20.0, "3")] {
        let set = [("back", back), ("floor", &*format!("{floor}Mbit")), ("duration", "20s")];
        let scenario = load("two-way-one-way.yaml", &set);
        let record = run(&scenario, "elasticswitch:steady");
        // When the other direction has learned to borrow.
        let of = |group| goodput_in(&scenario, &record, group, 140..200) / payload(floor);
        let (there, back) = (of("there"), of("back"));
        assert!(there >= 0.9, "{floor} Mbit/s: {there:.3} there");
        assert!(back >= 3.0, "{floor} Mbit/s: {back:.3} back");
    }
}

#[test]
fn acknowledgements_of_what_is_borrowed_take_no_floor_of_other_pairs() {
    for (floor, borrowers) in [(20.0, "8"), (50.0, "1")] {
        let floor_is = format!("{floor}Mbit");
        let set = [("floor", &*floor_is), ("borrowers", borrowers), ("duration", "12s")];
        let scenario = load("acknowledged.yaml", &set);
        let record = run(&scenario, "elasticswitch:steady");
        // After the warmup: nine pairs of small floors begin at once.
        let part = |group| goodput_in(&scenario, &record, group, 60..120) / payload(floor);
        let (sent, got, borrowed) = (part("sent"), part("got"), part("borrowed"));
        let held = sent >= 0.95 && got >= 0.95;
        assert!(held, "{floor} Mbit/s, {borrowers}: {sent:.3} sent, {got:.3} got");
        assert!(borrowed >= 1.5, "{floor} Mbit/s, {borrowers}: {borrowed:.3} borrowed");
    }
}

#[test]
fn requests_beside_bulk_of_their_pair_wait_no_longer_where_the_hosts_own_link_is_full() {
    for (floor, bulk) in [("10Mbit", "3"), ("40Mbit", "2"), ("80Mbit", "3")] {
        let scenario = load("own-link.yaml", &[("floor", floor), ("bulk", bulk)]);
        let record = run(&scenario, "elasticswitch:steady");
        let p99 = p99(&scenario, &record, "requests");
        assert!(p99 <= 25.0, "{floor}: {p99:.1} ms");
    }
}

#[test]
fn a_flood_of_the_same_pair_leaves_tcp_room_there_and_its_floor_back() {
    for floor in [10.0, 50.0] {
        let set = [("flood", "1"), ("floor", &*format!("{floor}Mbit"))];
        let scenario = load("two-way.yaml", &set);
        let record = run(&scenario, "elasticswitch:steady");
        let part = |group| goodput(&scenario, &record, group) / payload(floor);
        let (there, back) = (part("there"), part("back"));
        assert!(there >= 0.44 && back >= 0.9, "{floor} Mbit/s: {there:.3} there, {back:.3} back");
    }
}

/// The 99th percentile of a group's requests, in milliseconds.
fn p99(scenario: &Scenario, record: &Record, group: &str) -> f64 {
    let works = scenario.traffic.iter().zip(&record.works).filter(|(of, _)| of.group == group);
    let work = works.filter_map(|(_, work)| work.as_ref());
    let mut times: Vec<u64> =
        work.flat_map(|work| &work.times).map(|time| time.as_nanos()).collect();
    times.sort_unstable();
    assert!(times.len() > 500, "{} requests", times.len());
    times[times.len() * 99 / 100] as f64 / 1e6
}

#[test]
fn bulk_and_floods_of_the_same_pair_delay_requests_by_twenty_milliseconds_at_most() {
    for floor in ["10Mbit", "50Mbit"] {
        let p99 = |bulk| {
            let scenario = load("bulk-and-requests.yaml", &[("floor", floor), ("bulk", bulk)]);
            p99(&scenario, &run(&scenario, "elasticswitch:steady"), "requests")
        };
        let alone = p99("0");
        for bulk in ["1", "2", "3"] {
            let beside = p99(bulk);
            assert!(beside <= alone + 20.0, "{floor}, {bulk}: {beside} ms, alone {alone}");
        }
    }
}

#[test]
fn a_translation_takes_no_floor_away() {
    // The last two: one guest speaks ECN, and its peer's port answers in the peer's place.
    let points =
        [("100Mbit", "0", "0"), ("10Mbit", "0", "0"), ("80Mbit", "1", "0"), ("30Mbit", "0", "1")];
    for (floor, asks, answers) in points {
        let (threshold, ends) = ("20kB", [("asks", asks), ("answers", answers)]);
        let set = [("guests", "1"), ("floor", floor), ("threshold", threshold)];
        let scenario = load("translated.yaml", &[&set[..], &[("delay", "250us")], &ends].concat());
        for translation in ["virtual-ecn", "dctcp", "cubic-ecn"] {
            let record = run(&scenario, &format!("elasticswitch:steady+{translation}"));
            let mbps: f64 = floor.trim_end_matches("Mbit").parse().unwrap();
            let part = goodput(&scenario, &record, "x") / payload(mbps);
            assert!(
                part >= 0.95,
                "{translation}, {floor}, {asks}{answers}: {part:.3} of the floor"
            );
        }
    }
}

#[test]
fn guests_that_speak_ecn_have_their_floor_whether_or_not_marks_are_the_signal() {
    let (marks, losses) = ("elasticswitch:steady-ecn", "elasticswitch:steady");
    // Not promised: a small floor where losses are the signal (limit 6).
    for (floor, mechanisms) in [("100Mbit", &[marks, losses][..]), ("10Mbit", &[marks][..])] {
        let (threshold, delay) = ("20kB", ("delay", "250us"));
        let set = [("guests", "1"), ("floor", floor), ("threshold", threshold), delay];
        let scenario = load("ecn-guests.yaml", &set);
        for mechanism in mechanisms {
            let record = run(&scenario, mechanism);
            let mbps: f64 = floor.trim_end_matches("Mbit").parse().unwrap();
            let part = goodput(&scenario, &record, "x") / payload(mbps);
            assert!(part >= 0.95, "{mechanism}, {floor}, {threshold}: {part:.3} of the floor");
        }
    }
}
