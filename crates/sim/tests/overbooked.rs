//! Hosts on which VMs are promised more among each other than the host's link carries.

use std::sync::atomic::AtomicBool;
use weir_model::scenario::{File, Mechanism};
use weir_sim::scenario::{Setup, play};

/// Six VMs on one host talk to each other, with floors beyond its link; one talks to another host,
/// too.
const TEXT: &str = "{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {name: t}, spec: {duration: 8s, \
    warmup: 3s, topology: {single-switch: {hosts: 2, link: 100Mbit}}, tenants: [\
    {name: t, vms: [{name: a, host: host-0, floor: 72Mbit}, {name: b, host: host-0, floor: 72Mbit}, \
    {name: c, host: host-1, floor: 72Mbit}, {name: d, host: host-0, floor: 90Mbit}]}, \
    {name: u, vms: [{name: e, host: host-0, floor: 60Mbit}, {name: f, host: host-0, floor: 60Mbit}, \
    {name: g, host: host-0, floor: 60Mbit}]}], mechanisms: none, traffic: [\
    {group: g, from: a, to: b, tcp: {congestion: dctcp}}, \
    {group: g, from: a, to: d, tcp: {connections: 2, congestion: dctcp}}, \
    {group: g, from: a, to: c, udp: {rate: 150Mbit}}, \
    {group: g, from: e, to: f, tcp: {congestion: cubic}}, \
    {group: g, from: e, to: g, tcp: {congestion: cubic}}, \
    {group: g, from: f, to: g, tcp: {congestion: dctcp}}]}}";

/// The least part of its scaled floor that a pair gets, as goodput: floors are what the hoses
/// divide to.
fn worst(preset: &str, seed: u64) -> f64 {
    let file = File::parse("t.yaml", TEXT, &[]).unwrap_or_else(|e| panic!("{e}"));
    let scenario = file.points().unwrap_or_else(|e| panic!("{e}")).remove(0);
    let mechanism = Mechanism::parse(preset).expect("known");
    let setup = Setup { seed, ..Setup::default() };
    let record = play(&scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false))
        .expect("playable");
    // a divides 72 Mbit/s by three, e 60 by two; g takes 60 from two.
    let floors = [24.0, 24.0, 24.0, 30.0, 30.0, 30.0];
    let fit = 100.0 / floors.iter().sum::<f64>();
    let mbps = |octets: &[u64]| octets.iter().sum::<u64>() as f64 * 8.0 / 1e6;
    let parts = record.observed.flows.iter().zip(floors).map(|(flow, floor)| {
        let seconds = (flow.octets.len() - 30) as f64 / 10.0;
        mbps(&flow.octets[30..]) / seconds / (floor * fit * 1448.0 / 1514.0)
    });
    parts.fold(f64::MAX, f64::min)
}

#[test]
fn who_gets_a_scaled_floor_and_uses_it_does_not_count_as_wanting_less() {
    for seed in 1..=3 {
        let worst = worst("elasticswitch:steady", seed);
        assert!(worst > 0.8, "seed {seed}: {worst} of a scaled floor");
    }
}
