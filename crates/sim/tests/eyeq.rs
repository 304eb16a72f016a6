//! EyeQ's scenario files, played short: what its figures need, and that a run is the same each
//! time.

use std::sync::atomic::AtomicBool;
use weir_model::scenario::{File, LinkDir, Mechanism, Scenario};
use weir_sim::scenario::{Failure, Record, Setup, play};
use weir_units::Span;

fn load(file: &str, set: &[(&str, &str)]) -> Scenario {
    let path = format!("{}/../../scenarios/eyeq/{file}", env!("CARGO_MANIFEST_DIR"));
    let set: Vec<_> = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let file = File::load(path.as_ref(), &set).expect("a scenario of ours");
    file.points().expect("sound").remove(0)
}

fn try_run(scenario: &Scenario, mechanism: &str, seed: u64) -> Result<Record, Failure> {
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let setup = Setup { seed, ..Setup::default() };
    play(scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false))
}

fn run(scenario: &Scenario, mechanism: &str, seed: u64) -> Record {
    try_run(scenario, mechanism, seed).expect("playable")
}

/// Goodput of a group from one moment to another, bit/s.
fn goodput(scenario: &Scenario, record: &Record, group: &str, from: Span, to: Span) -> f64 {
    let at = |span: Span| span.div_span(record.observed.sample) as usize;
    let flows =
        scenario.traffic.iter().zip(&record.observed.flows).filter(|(t, _)| t.group == group);
    let octets: u64 = flows.flat_map(|(_, flow)| &flow.octets[at(from)..at(to)]).sum();
    octets as f64 * 8.0 / (to - from).as_secs_f64()
}

/// After the warmup.
fn mean(scenario: &Scenario, record: &Record, group: &str) -> f64 {
    goodput(scenario, record, group, scenario.warmup, scenario.duration)
}

/// Octets that a link carried from a moment on, by its name and direction.
fn carried(scenario: &Scenario, record: &Record, link: &str, from: Span) -> u64 {
    let all = 0..2 * scenario.topology.links.len();
    let name = |index: &usize| LinkDir::from_index(*index).name(&scenario.topology);
    let index = all.clone().find(|index| name(index) == link);
    let index = index.unwrap_or_else(|| panic!("{link}: {:?}", all.map(|i| name(&i))));
    record.observed.links[index].octets[from.div_span(record.observed.sample) as usize..]
        .iter()
        .sum()
}

const SHORT: [(&str, &str); 2] = [("duration", "400ms"), ("warmup", "200ms")];

#[test]
fn fig01_three_flows_get_what_the_figure_says() {
    for (flows, want) in [("1", &[9.0][..]), ("2", &[1.8, 7.2][..]), ("3", &[4.0, 5.0, 5.0][..])] {
        let set = [SHORT[0], SHORT[1], ("flows", flows)];
        let scenario = load("fig01.yaml", &set);
        let record = run(&scenario, "eyeq", 1);
        for (group, want) in ["f1", "f2", "f3"].into_iter().zip(want) {
            let got = mean(&scenario, &record, group) / 1e9 * 1514.0 / 1448.0;
            assert!((got / want - 1.0).abs() < 0.08, "{group} of {flows}: {got} for {want}");
        }
    }
}

/// Per millisecond: both are within a tenth of the half of 9 Gbit/s, from 5 ms on at the latest.
#[test]
fn fig06_an_incast_at_line_rate_is_down_to_its_share_within_milliseconds() {
    let set = [("duration", "200ms"), ("sweep", "[{tcp: 0}]")];
    let scenario = load("fig06.yaml", &set);
    let record = run(&scenario, "eyeq", 1);
    let ms = Span::from_millis;
    let of = |group, from, to| {
        goodput(&scenario, &record, group, ms(from), ms(to)) / 4.5e9 * 1514.0 / 1472.0
    };
    assert!(of("paced", 60, 100) > 2.0 * 8.8 / 9.0, "alone");
    for (group, at) in ["paced", "udp"].into_iter().flat_map(|g| (105..200).map(move |at| (g, at)))
    {
        let part = of(group, at, at + 1);
        assert!((part - 1.0).abs() < 0.1, "{group} at {at} ms: {part}");
    }
}

#[test]
fn best_effort_takes_what_is_left_and_nothing_else() {
    let play = |asks| {
        let scenario = load("best-effort.yaml", &[SHORT[0], SHORT[1], ("asks", asks)]);
        let record = run(&scenario, "eyeq", 1);
        ["gold", "rest"].map(|group| mean(&scenario, &record, group) / 1e9 * 1514.0 / 1472.0)
    };
    let [gold, rest] = play("4Gbit");
    assert!(gold > 0.99 * 4.0 && rest > 0.9 * 5.0, "{gold} {rest}");
    let [gold, rest] = play("10Gbit");
    assert!(gold > 0.95 * 9.0 && rest < 0.2, "{gold} {rest}");
    let [_, rest] = play("0Mbit");
    assert!(rest > 0.95 * 9.0, "{rest}");
}

/// One message of 64 octets for 10 kB that a VM receives, and none twice to one source in a period.
/// In 200 µs of 4.5 Gbit/s the incast's VM has 11.25 for its fourteen sources, the other one is
/// told once. All is UDP, so that nothing else leaves the receiver's host.
#[test]
fn feedback_takes_64_mbit_of_10_gbit_at_most() {
    let set = [("duration", "200ms"), ("sweep", "[{tcp: 0}]")];
    let scenario = load("fig06.yaml", &set);
    let record = run(&scenario, "eyeq", 1);
    let octets = carried(&scenario, &record, "host-15:host-15>switch", Span::from_millis(110));
    let rate = octets as f64 * 8.0 / 0.09;
    // No sender hears the rate of one step twice, and each of the fourteen hears every second
    // step's.
    let least = 14.0 / 2.0 / 200e-6 * 64.0 * 8.0;
    assert!(rate >= least && rate < 64e6, "{rate}");
}

#[test]
fn where_the_core_is_congested_all_get_alike_and_elasticswitch_holds_the_floor() {
    let set = [("duration", "4s"), ("warmup", "2s")];
    let scenario = load("core-congestion.yaml", &set);
    let of = |mechanism| {
        let record = run(&scenario, mechanism, 1);
        ["a", "b", "c", "d"].map(|group| mean(&scenario, &record, group) / 1e6)
    };
    let eyeq = of("eyeq");
    let (least, most) = eyeq.iter().fold((f64::MAX, 0.0f64), |(l, m), r| (l.min(*r), m.max(*r)));
    assert!(least / most >= 0.5, "{eyeq:?}");
    let elastic = of("elasticswitch:steady");
    assert!(elastic[0] > 0.95 * 600.0 * 1448.0 / 1514.0, "{elastic:?}");
    assert!(eyeq[0] < 0.6 * elastic[0], "{eyeq:?} {elastic:?}");
}

/// Messages pass the network as all packets do. A sender that hears nothing has no limiter.
#[test]
fn without_feedback_nobody_is_limited_and_with_half_of_it_all_are() {
    let set = [SHORT[0], SHORT[1], ("flows", "2")];
    let mut parts = Vec::new();
    for loss in ["0", "0.5", "1"] {
        let faults = format!("[{{at: 0s, control: {{loss: {loss}}}}}]");
        let mut set = set.to_vec();
        set.push(("faults", &faults));
        let scenario = load("fig01.yaml", if loss == "0" { &set[..3] } else { &set });
        let record = run(&scenario, "eyeq", 1);
        parts.push(mean(&scenario, &record, "f1") / 1.8e9 * 1514.0 / 1448.0);
        assert_eq!(record.observed.control.is_some(), loss != "0");
    }
    assert!((parts[0] - 1.0).abs() < 0.1 && (parts[1] - 1.0).abs() < 0.15, "{parts:?}");
    assert!(parts[2] > 1.5, "as if there were no mechanism: {parts:?}");
}

#[test]
fn fig02_requests_are_answered_beside_bursts_as_fast_as_without() {
    let p99 = |senders, mechanism| {
        let set = [("duration", "600ms"), ("warmup", "200ms"), ("senders", senders)];
        let record = run(&load("fig02.yaml", &set), mechanism, 1);
        let work = record.works[0].clone().expect("requests");
        let mut times = work.times;
        times.sort_unstable();
        times[times.len() * 99 / 100].as_secs_f64()
    };
    let (bare, with, without) = (p99("0", "eyeq"), p99("2", "eyeq"), p99("2", "none"));
    assert!(with < without, "{bare} {with} {without}");
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_another() {
    let mut scenario = load("fig06.yaml", &[("senders", "14")]);
    (scenario.duration, scenario.warmup) = (Span::from_millis(30), Span::from_millis(10));
    for entry in &mut scenario.traffic {
        (entry.start, entry.stop) = (Span::ZERO, scenario.duration);
    }
    let [a, b, c] = [1, 1, 2].map(|seed| run(&scenario, "eyeq", seed));
    assert_eq!(a, b);
    assert_ne!(a.digest, c.digest);
    assert_ne!(a.digest, run(&scenario, "eyeq:paper", 1).digest);
}

#[test]
fn what_eyeq_cannot_keep_is_refused_before_anything_is_played() {
    let mut scenario = load("fig01.yaml", &[("flows", "1")]);
    scenario.vms[0].floor_out = weir_units::Rate::from_mbps(9_100);
    let refused = try_run(&scenario, "eyeq", 1).expect_err("it promises too much");
    let text = refused.to_string();
    assert!(text.starts_with("spec.mechanisms (eyeq, host host-0): the VMs' floors out"), "{text}");
}

/// Before the first job ends: floors of 4:2:1 against 1, 2 and 4 connections per pair.
#[test]
fn fig08_floors_outweigh_connections() {
    let scenario = load("fig08.yaml", &[("duration", "100ms"), ("sample", "20ms")]);
    let record = run(&scenario, "eyeq", 1);
    let after = Span::from_millis(20);
    let of = |group| goodput(&scenario, &record, group, after, scenario.duration);
    let [p1, p2, p4] = ["p1", "p2", "p4"].map(of);
    assert!(p1 > 1.5 * p2 && p2 > 1.5 * p4, "{p1} {p2} {p4}");
}

/// Two of other tenants, one of which is promised nothing, and a third that fills the link beside
/// X.
#[test]
fn a_flood_of_strangers_takes_nothing_of_a_vms_floor() {
    let scenario = load("../attacks/strangers.yaml", &[]);
    let record = run(&scenario, "eyeq", 1);
    for (group, floor) in [("x", 90e6), ("y", 80e6)] {
        // Goodput of full frames is 0.956 of what is on the wire.
        let got = mean(&scenario, &record, group) / (0.956 * floor);
        assert!(got >= 0.95, "{group} has {got:.3} of its floor");
    }
    let left = mean(&scenario, &record, "evil") + mean(&scenario, &record, "poor");
    assert!(left > 0.0, "and nobody starves");
}
