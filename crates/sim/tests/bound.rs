//! Tenants bound to switches' queues: `scenarios/qshare/`, and what must hold on the way.

use std::sync::atomic::AtomicBool;
use weir_core::binding::control::{Event, Phase};
use weir_model::scenario::{File, Mechanism, Scenario};
use weir_sim::scenario::{Record, Run, Setup, play};
use weir_units::{Span, TenantId};

const LOOP: &str = "elasticswitch:floors@loop";

fn load(file: &str, set: &[(&str, &str)]) -> Scenario {
    let path = format!("{}/../../scenarios/qshare/{file}", env!("CARGO_MANIFEST_DIR"));
    let set = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect::<Vec<_>>();
    let file = File::load(path.as_ref(), &set).unwrap_or_else(|e| panic!("{e}"));
    file.points().unwrap_or_else(|e| panic!("{e}")).remove(0)
}

/// A and the others, whose guests lose nothing at their hosts, for so many seconds.
fn short(seconds: u64) -> Scenario {
    let mut scenario = load("fig03c.yaml", &[("together", "0"), ("waits", "1")]);
    (scenario.duration, scenario.warmup) = (Span::from_secs(seconds), Span::from_secs(1));
    scenario
}

fn record(scenario: &Scenario, mechanism: &str) -> Record {
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let setup = Setup { seed: 1, ..Setup::default() };
    play(scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false)).expect("playable")
}

/// Mbit/s on the wire of a group between two times.
fn rate(scenario: &Scenario, record: &Record, group: &str, from: f64, to: f64) -> f64 {
    let sample = scenario.sample.as_secs_f64();
    let samples = (from / sample).round() as usize..(to / sample).round() as usize;
    let flows =
        scenario.traffic.iter().zip(&record.observed.flows).filter(|(of, _)| of.group == group);
    let octets: u64 = flows.flat_map(|(_, flow)| &flow.octets[samples.clone()]).sum();
    octets as f64 * 8.0 / (to - from) / 1e6 * 1514.0 / 1448.0
}

/// When each tenant entered each phase.
fn phases(scenario: &Scenario, mechanism: &str) -> Vec<(f64, u32, Phase)> {
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let mut run = Run::new(scenario, &mechanism, &Setup::default()).expect("playable");
    run.play_until(scenario.duration);
    let moved = |(at, event): &(weir_units::Time, Event)| match event {
        Event::Moved(TenantId(tenant), phase) => Some((at.as_secs_f64(), *tenant, *phase)),
        _ => None,
    };
    run.binding_events().iter().filter_map(moved).collect()
}

#[test]
fn a_tenant_with_a_queue_has_the_link_and_two_others_have_their_floors_at_once() {
    let scenario = load("fig03c.yaml", &[("together", "0"), ("waits", "1")]);
    let record = record(&scenario, LOOP);
    let of = |group, from, to| rate(&scenario, &record, group, from, to);
    let alone = of("alone", 5.0, 8.5);
    assert!(alone >= 970.0, "A alone has {alone:.0} Mbit/s");
    for group in ["b", "c"] {
        for tenth in 86..120 {
            let (from, to) = (f64::from(tenth) / 10.0, f64::from(tenth + 1) / 10.0);
            let rate = of(group, from, to);
            assert!(rate >= 0.97 * 300.0, "{group} has {rate:.0} Mbit/s from {from} s on");
        }
    }
    assert_eq!(record.observed.unbound, Some(0), "no packet met a port without its queue");
}

#[test]
fn without_a_queue_of_its_own_a_tenant_is_held_to_its_floor() {
    let scenario = short(4);
    let record = record(&scenario, LOOP);
    let alone = rate(&scenario, &record, "alone", 1.0, 4.0);
    assert!((285.0..=306.0).contains(&alone), "A has {alone:.0} Mbit/s in the first interval");
}

#[test]
fn a_tenant_passes_all_phases_and_none_is_in_a_queue_before_the_first_interval_ends() {
    let scenario = short(6);
    let phases = phases(&scenario, LOOP);
    let of_a: Vec<Phase> =
        phases.iter().filter(|(_, tenant, _)| *tenant == 0).map(|(.., phase)| *phase).collect();
    let expected = [Phase::Preparing, Phase::Tagging, Phase::Freeing, Phase::Dedicated];
    assert_eq!(of_a, expected);
    let (first, last) = (phases[0].0, phases[phases.len() - 1].0);
    // Read in 1 ms, configured in 50, and two orders to hosts of 1 ms each.
    assert!(first >= 4.0 && last <= 4.06, "from {first} to {last} s");
}

#[test]
fn tenants_of_a_fat_tree_stay_on_their_trees() {
    let text = "{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {name: tree}, spec: {\
        duration: 3s, warmup: 1s, topology: {fat-tree: {k: 4, link: 100Mbit}}, tenants: [\
        {name: a, vms: [{name: a, hosts: [host-0-0-0, host-1-0-0, host-2-1-0], count: 3, floor: 20Mbit}]}, \
        {name: b, vms: [{name: b, hosts: [host-0-0-1, host-1-0-1, host-2-1-1], count: 3, floor: 20Mbit}]}], \
        traffic: [{group: a, from: a-0, to: a-1, tcp: {connections: 4}}, \
        {group: a, from: a-2, to: a-1, tcp: {connections: 4}}, \
        {group: b, from: b-0, to: b-1, tcp: {connections: 4}}], \
        mechanisms: ['elasticswitch:floors@loop'], binding: {interval: 500ms}}}";
    let file = File::parse("tree.yaml", text, &[]).unwrap_or_else(|e| panic!("{e}"));
    let scenario = file.points().unwrap_or_else(|e| panic!("{e}")).remove(0);
    let record = record(&scenario, LOOP);
    assert_eq!(record.observed.unbound, Some(0), "octets off the trees, or before their queues");
    let a = rate(&scenario, &record, "a", 1.5, 3.0);
    assert!(a > 90.0, "two senders share the receiver's link, whole: {a:.0} Mbit/s");
    // No tenant's packets are on two ways up.
    for tenant in [0, 1] {
        let path = |to: usize| scenario.tree_path(tenant, scenario.vms[0].host, to);
        let (one, other) = (path(scenario.vms[1].host), path(scenario.vms[2].host));
        assert_eq!(one[..2], other[..2], "the same uplinks");
    }
}

#[test]
fn hosts_alone_rebind_tenants_within_a_tenth_of_a_second() {
    let mut scenario = short(3);
    scenario.binding.shared_weight = 2;
    let at = phases(&scenario, "elasticswitch:floors@static")[0].0;
    assert!(at <= 0.11, "A is bound at {at} s");
    let record = record(&scenario, "elasticswitch:floors@static");
    let alone = rate(&scenario, &record, "alone", 1.0, 3.0);
    assert!(alone >= 970.0, "A alone has {alone:.0} Mbit/s");
    assert_eq!(record.observed.unbound, Some(0));
    scenario.duration = Span::from_secs(2);
    scenario.binding.shared_weight = 0;
    let mechanism = Mechanism::parse("elasticswitch:floors@static").expect("known");
    let refused =
        Run::new(&scenario, &mechanism, &Setup::default()).map(drop).expect_err("no weight");
    assert!(refused.to_string().contains("shared_weight"), "{refused}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = short(5);
    assert_eq!(record(&scenario, LOOP), record(&scenario, LOOP));
}
