//! Pairs that never get a queue of their own.

use std::sync::atomic::AtomicBool;
use weir_model::scenario::{File, Mechanism};
use weir_sim::scenario::{Record, Setup, play};

/// A pair with a floor of 40 Mbit/s, and a VM without any floor that sends twice what the core
/// carries, to forty others.
fn run(mechanism: &str) -> Record {
    let text = "{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {name: t}, spec: {duration: 4s, \
                warmup: 1s, topology: {dumbbell: {left: 2, right: 2, edge: 400Mbit, core: 100Mbit}}, \
                tenants: [{name: a, vms: [{name: x, host: left-0, floor: 40Mbit}, \
                {name: y, host: right-0, floor: 40Mbit}]}, \
                {name: b, vms: [{name: many, host: left-1}, \
                {name: d, hosts: [right-1], count: 40}]}], mechanisms: none, traffic: [\
                {group: g, from: x, to: y, udp: {rate: 60Mbit}}, \
                {group: h, from: many, to: d, udp: {rate: 5Mbit}}]}}";
    let file = File::parse("t.yaml", text, &[]).unwrap_or_else(|e| panic!("{e}"));
    let scenario = file.points().unwrap_or_else(|e| panic!("{e}")).remove(0);
    assert_eq!(scenario.traffic.len(), 41);
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let setup = Setup { seed: 1, ..Setup::default() };
    play(&scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false)).expect("playable")
}

/// Mbit/s on the wire from the second second on: of the pair, and of all others together.
fn rates(record: &Record) -> (f64, f64) {
    let octets = |flows: &[weir_model::observed::ObservedFlow]| -> u64 {
        flows.iter().flat_map(|flow| &flow.octets[10..40]).sum()
    };
    let mbps = |octets: u64| octets as f64 * 8.0 / 3e6 * 1514.0 / 1472.0;
    (mbps(octets(&record.observed.flows[..1])), mbps(octets(&record.observed.flows[1..])))
}

#[test]
fn a_vm_with_more_pairs_than_get_queues_takes_nobodys_floor() {
    let (pair, strays) = rates(&run("none"));
    assert!(pair < 36.0 && strays > 60.0, "{pair} beside {strays}: nothing is congested");
    for preset in ["elasticswitch", "elasticswitch:steady"] {
        let (pair, strays) = rates(&run(preset));
        assert!(pair > 39.0, "{preset}: {pair} beside {strays}");
        assert!(strays > 0.4, "{preset}: {strays}: they are not shut out");
    }
}

/// Of a point of `scenarios/attacks/FILE`: parts of their floors that `x` and `y` got after the warmup.
fn parts(file: &str, point: usize, set: &[(&str, &str)]) -> [f64; 2] {
    let path = format!("{}/../../scenarios/attacks/{file}", env!("CARGO_MANIFEST_DIR"));
    let set: Vec<_> = set.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let file = File::load(path.as_ref(), &set).expect("a scenario of ours");
    let scenario = file.points().expect("sound").remove(point);
    let mechanism = Mechanism::parse("elasticswitch:steady").expect("known");
    let setup = Setup { seed: 2, ..Setup::default() };
    let record = play(&scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false));
    let observed = record.expect("playable").observed;
    let samples = |span: weir_units::Span| span.div_span(observed.sample) as usize;
    let (from, to) = (samples(scenario.warmup), samples(scenario.duration));
    ["x", "y"].map(|group| {
        let entry = scenario.traffic.iter().position(|t| t.group == group).expect("a group");
        let octets: u64 = observed.flows[entry].octets[from..to].iter().sum();
        let seconds = (scenario.duration - scenario.warmup).as_secs_f64();
        let floor = scenario.vms[scenario.traffic[entry].from].floor_out;
        octets as f64 * 8.0 / seconds * 1514.0 / 1448.0 / floor.as_f64()
    })
}

#[test]
fn strays_of_many_hosts_take_nobodys_floor_where_they_meet() {
    let [x, y] = parts("strays-of-many-hosts.yaml", 1, &[("duration", "8s")]);
    assert!(x >= 0.95 && y >= 0.93, "{x} and {y} of their floors");
}

#[test]
fn one_new_pair_after_another_takes_nobodys_floor() {
    let [x, y] = parts("pair-after-pair.yaml", 0, &[]);
    assert!(x >= 0.95 && y >= 0.95, "{x} and {y} of their floors");
}
