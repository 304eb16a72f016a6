//! Each check complains of what it is there for: agents, networks and traffic that are not what was
//! promised.
//!
//! Approach  What is played differs in one point from the scenario that the promises are taken from.

use std::sync::atomic::AtomicBool;
use weir_model::scenario::{File, Mechanism, Scenario};
use weir_swarm::{Breach, Subject, watch};
use weir_units::Span;

/// X beside three blasters of Y, of which one stops early, and one has a cap.
const TEXT: &str = "
apiVersion: weir/v1alpha1
kind: Scenario
metadata: {name: mutants}
spec:
  duration: 6s
  warmup: 3s
  scale: 0.1
  mechanisms: [\"elasticswitch:steady\"]
  topology: {single-switch: {hosts: 4, link: 1Gbit}}
  tenants:
    - {name: x, vms: [{name: x-src, host: host-0, floor: 400Mbit}, {name: x-dst, host: host-3, floor: 400Mbit}]}
    - name: y
      vms:
        - {name: y-src, hosts: [host-0..host-2], count: 3, floor: 160Mbit}
        - {name: y-dst, host: host-3, floor: 480Mbit}
        - {name: capped, host: host-1, floor: 100Mbit, cap: 150Mbit}
        - {name: other, host: host-2, floor: 100Mbit}
  traffic:
    - {group: x, from: x-src, to: x-dst, tcp: {connections: 1}}
    - {group: y, from: y-src, to: y-dst, udp: {rate: 900Mbit}}
    - {group: c, from: capped, to: other, udp: {rate: 300Mbit}}
    - {group: d, from: other, to: y-src-1, udp: {rate: 50Mbit}, stop: 500ms}
";

/// X sends to two VMs, to one of them little, beside three blasters of Y. Its hose owes the other one all
/// that is left; the equal parts of both hoses are 62 % of the hose.
const UNEQUAL: &str = "
apiVersion: weir/v1alpha1
kind: Scenario
metadata: {name: unequal}
spec:
  duration: 6s
  warmup: 3s
  scale: 0.1
  mechanisms: [\"elasticswitch:steady\"]
  topology: {single-switch: {hosts: 4, link: 1Gbit}}
  tenants:
    - name: x
      vms:
        - {name: x-src, host: host-0, floor: 400Mbit}
        - {name: x-much, host: host-3, floor: 400Mbit}
        - {name: x-little, host: host-2, floor: 100Mbit}
    - name: y
      vms:
        - {name: y-src, hosts: [host-0..host-2], count: 3, floor: 160Mbit}
        - {name: y-dst, host: host-3, floor: 480Mbit}
  traffic:
    - {group: much, from: x-src, to: x-much, tcp: {connections: 1}}
    - {group: little, from: x-src, to: x-little, udp: {rate: 50Mbit}}
    - {group: y, from: y-src, to: y-dst, udp: {rate: 900Mbit}}
";

/// Two VMs that send to each other, beside a blaster into each of their hosts; one of the two has a
/// burst to send now and then.
const OTHERS: &str = "
apiVersion: weir/v1alpha1
kind: Scenario
metadata: {name: others}
spec:
  duration: 6s
  warmup: 3s
  scale: 0.1
  mechanisms: [\"elasticswitch:steady\"]
  topology: {leaf-spine: {leaves: 2, spines: 2, hosts_per_leaf: 2, link: 1Gbit, oversubscription: 1, ecmp: flow}}
  tenants:
    - name: x
      vms:
        - {name: a, host: host-0-0, floor: 300Mbit}
        - {name: b, host: host-1-0, floor: 300Mbit}
        - {name: c, host: host-1-1, floor: 300Mbit}
    - name: y
      vms:
        - {name: y-left, host: host-0-0, floor: 300Mbit}
        - {name: y-right, host: host-1-0, floor: 300Mbit}
  traffic:
    - {group: there, from: a, to: b, tcp: {connections: 1}}
    - {group: back, from: b, to: a, tcp: {connections: 1}}
    - {group: burst, from: c, to: a, udp: {rate: 300Mbit, on: 20ms, off: 200ms}}
    - {group: y, from: y-left, to: y-right, udp: {rate: 900Mbit}}
    - {group: z, from: y-right, to: y-left, udp: {rate: 900Mbit}}
";

fn scenario(set: &[(&str, &str)]) -> Scenario {
    scenario_of(TEXT, set)
}

fn scenario_of(text: &str, set: &[(&str, &str)]) -> Scenario {
    let set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let file = File::parse("mutants.yaml", text, &set).expect("sound");
    file.points().expect("sound").swap_remove(0)
}

/// What is found when `change` is made to what is played, or not made to what is promised.
fn found(change: impl Fn(&mut Scenario)) -> Vec<Breach> {
    let (promised, mut played) = (scenario(&[]), scenario(&[]));
    change(&mut played);
    watched(&played, &played.mechanisms[0], &promised)
}

fn watched(played: &Scenario, mechanism: &Mechanism, promised: &Scenario) -> Vec<Breach> {
    let subject = Subject { played, mechanism, promised, seed: 1 };
    watch(&subject, &AtomicBool::new(false)).expect("nobody stops it").breaches
}

/// Fails unless `check` complains of `of`, with words that contain `says`.
fn complains(breaches: &[Breach], check: &str, of: &str, says: &str) {
    let is = |b: &&Breach| b.check == check && b.of.contains(of) && b.what.contains(says);
    assert!(breaches.iter().any(|b| is(&b)), "no `{check}` of {of} ({says}) in {breaches:#?}");
}

fn vm<'a>(scenario: &'a mut Scenario, name: &str) -> &'a mut weir_model::scenario::Vm {
    scenario.vms.iter_mut().find(|vm| vm.name == name).expect("it is there")
}

#[test]
fn what_is_played_as_promised_keeps_every_promise() {
    let breaches = found(|_| {});
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn an_agent_that_promises_more_out_than_the_hose_is_found() {
    let breaches = found(|s| {
        let src = vm(s, "x-src");
        src.floor_out = src.floor_out.scale(2.0);
        let dst = vm(s, "x-dst");
        dst.floor_in = dst.floor_in.scale(2.0);
    });
    complains(&breaches, "hose", "x-src, out", "floors of");
}

#[test]
fn an_agent_that_offers_more_than_its_hose_in_is_found_at_both_ends() {
    let breaches = found(|s| {
        let dst = vm(s, "y-dst");
        dst.floor_in = dst.floor_in.scale(2.0);
        (0..3).for_each(|n| {
            let src = vm(s, &format!("y-src-{n}"));
            src.floor_out = src.floor_out.scale(1.5);
        });
    });
    complains(&breaches, "hose", "y-dst, in", "counts");
    let breaches: Vec<_> = breaches.into_iter().filter(|b| b.what.contains("floors of")).collect();
    complains(&breaches, "hose", "y-src-0, out", "floors of");
}

#[test]
fn a_shaper_without_the_cap_is_found() {
    let breaches = found(|s| vm(s, "capped").cap_out = None);
    complains(&breaches, "limit", "capped", "ahead of its cap");
}

#[test]
fn a_link_that_is_faster_than_it_should_be_is_found_and_so_are_pairs_that_use_it() {
    let breaches = found(|s| {
        s.topology.links.iter_mut().for_each(|link| link.rate = link.rate * 2);
    });
    complains(&breaches, "limit", "host-3", "carried");
    // A third: less than X's floor, which is the least that its pair may send.
    let (mut promised, played) = (scenario(&[]), scenario(&[]));
    promised.topology.links.iter_mut().for_each(|link| link.rate = link.rate.split(3));
    let breaches = watched(&played, &played.mechanisms[0], &promised);
    complains(&breaches, "limit", "x-src to x-dst", "on a line of");
}

#[test]
fn a_longer_queue_than_the_buffer_is_found() {
    let breaches = found(|s| {
        s.topology
            .links
            .iter_mut()
            .for_each(|link| link.buffer = weir_units::Bytes::new(1_000_000));
    });
    complains(&breaches, "limit", "host-3", "in a buffer of");
}

#[test]
fn a_floor_that_nobody_keeps_is_found() {
    let promised = scenario(&[]);
    let none = Mechanism::parse("none").expect("known");
    let breaches = watched(&promised, &none, &promised);
    complains(&breaches, "floor", "x-src, out", "on the wire");
    complains(&breaches, "floor", "x-dst, in", "on the wire");
}

/// What a `floor` breach says that it got of what is owed.
fn part_of(breaches: &[Breach], of: &str) -> f64 {
    let breach = breaches.iter().find(|breach| breach.of == of).expect("a breach of it");
    let part = breach.what.rsplit(' ').next().expect("words");
    part.parse().expect("a part")
}

#[test]
fn a_hose_that_is_divided_into_equal_parts_and_not_by_what_is_wanted_is_found() {
    let promised = scenario_of(UNEQUAL, &[]);
    let mechanism = &promised.mechanisms[0];
    let breaches = watched(&promised, mechanism, &promised);
    assert!(breaches.is_empty(), "{breaches:#?}");
    // Its equal part of both hoses for each, as if both wanted much: 50 and 200 of 400 Mbit/s.
    let mut played = promised.clone();
    vm(&mut played, "x-src").floor_out = vm(&mut played, "x-src").floor_out.scale(0.65);
    let breaches = watched(&played, mechanism, &promised);
    complains(&breaches, "floor", "x-src, out", "on the wire");
    assert!(breaches.iter().all(|breach| breach.check == "floor"), "{breaches:#?}");
    // What owed no more than equal parts, 0.625 of F, found nothing.
    let part = part_of(&breaches, "x-src, out");
    assert!(part > 0.625, "{part}");
}

#[test]
fn two_way_tcp_over_equal_ways_in_a_tenant_that_varies_is_judged_too() {
    let promised = scenario_of(OTHERS, &[]);
    let breaches = watched(&promised, &promised.mechanisms[0], &promised);
    assert!(breaches.is_empty(), "{breaches:#?}");
    let none = Mechanism::parse("none").expect("known");
    let breaches = watched(&promised, &none, &promised);
    for of in ["a, out", "a, in", "b, out", "b, in"] {
        complains(&breaches, "floor", of, "on the wire");
    }
}

#[test]
fn an_agent_that_never_comes_back_is_found() {
    let promised = scenario(&[]);
    let kill = [("faults", "[{at: 1s, kill-agent: host-3}]")];
    let played = scenario(&kill);
    let breaches = watched(&played, &played.mechanisms[0], &promised);
    complains(&breaches, "agreement", "x-src to x-dst", "has heard nothing");
}

#[test]
fn a_dead_pair_of_which_something_is_left_is_found() {
    let breaches = found(|s| s.traffic.iter_mut().for_each(|t| t.stop = Span::from_secs(6)));
    complains(&breaches, "agreement", "other to y-src-1", "it is dead, and still known to a queue");
}

#[test]
fn a_pair_that_should_live_and_does_not_is_found() {
    let breaches = found(|s| s.traffic.iter_mut().for_each(|t| t.stop = Span::from_millis(500)));
    complains(&breaches, "agreement", "y-src-0 to y-dst", "does not know it");
}

#[test]
fn a_panic_is_a_breach_with_its_text_and_time() {
    let played = scenario(&[]);
    let mut promised = scenario(&[]);
    promised.vms.truncate(1);
    promised.traffic.clear();
    let breaches = watched(&played, &played.mechanisms[0], &promised);
    complains(&breaches, "panic", "the run", "index out of bounds");
}
