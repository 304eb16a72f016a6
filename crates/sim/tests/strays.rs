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
