//! VMs that come and go while a run goes on.

use std::sync::atomic::AtomicBool;
use weir_model::scenario::{Fault, FaultKind, File, Mechanism, Scenario};
use weir_sim::scenario::{Record, Setup, play};
use weir_units::Span;

/// Two senders on hosts of their own and one receiver, whose floor of 40 Mbit/s they share. Each
/// sends as much as its host's link carries; the core carries half of that. A third VM sends
/// nothing.
fn scenario(faults: &[(u64, FaultKind)]) -> Scenario {
    let text = "{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {name: t}, spec: {duration: 9s, \
                warmup: 1s, topology: {dumbbell: {left: 2, right: 1, edge: 200Mbit, core: 100Mbit}}, \
                tenants: [{name: a, vms: [{name: s, hosts: [left-0..left-1], count: 2, floor: 40Mbit}, \
                {name: d, host: right-0, floor: 40Mbit}]}], mechanisms: none, traffic: [\
                {group: g, from: s-0, to: d, udp: {rate: 200Mbit}}, \
                {group: h, from: s-1, to: d, udp: {rate: 200Mbit}}]}}";
    let file = File::parse("t.yaml", text, &[]).unwrap_or_else(|e| panic!("{e}"));
    let mut scenario = file.points().unwrap_or_else(|e| panic!("{e}")).remove(0);
    let fault =
        |(ms, kind): &(u64, FaultKind)| Fault { at: Span::from_millis(*ms), kind: kind.clone() };
    scenario.faults = faults.iter().map(fault).collect();
    scenario
}

const S0: usize = 0;
const D: usize = 2;

fn run(scenario: &Scenario, mechanism: &str) -> Record {
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let setup = Setup { seed: 1, ..Setup::default() };
    play(scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false)).expect("playable")
}

/// Goodput of a sender between two instants in tenths of a second, Mbit/s on the wire.
fn rate(record: &Record, sender: usize, from: usize, to: usize) -> f64 {
    let octets: u64 = record.observed.flows[sender].octets[from..to].iter().sum();
    octets as f64 * 8.0 / 1e6 * 1514.0 / 1472.0 / ((to - from) as f64 / 10.0)
}

#[test]
fn a_vm_that_goes_leaves_its_part_to_others_and_has_it_again_when_it_comes() {
    let scenario =
        scenario(&[(3000, FaultKind::StopVm { vm: S0 }), (5000, FaultKind::StartVm { vm: S0 })]);
    for mechanism in ["none", "elasticswitch:steady"] {
        let record = run(&scenario, mechanism);
        let parts = [(20, 30), (31, 50), (70, 90)]
            .map(|(from, to)| [0, 1].map(|sender| rate(&record, sender, from, to)));
        let [before, away, after] = parts;
        let seen = format!("{mechanism}: {parts:?}");
        assert!(before.iter().chain(&after).all(|part| *part > 19.0), "{seen}");
        assert!(away[0].abs() < 1e-9 && away[1] > 1.3 * before[1], "{seen}");
    }
    // The sender's agent has its pair and that of the way back; so has the receiver's, of both.
    let record = run(&scenario, "elasticswitch:steady");
    assert_eq!(record.observed.agent_pairs, [1, 1, 2]);
}

#[test]
fn a_receiver_that_goes_takes_all_pairs_along() {
    let gone = scenario(&[(3000, FaultKind::StopVm { vm: D })]);
    let record = run(&gone, "elasticswitch:steady");
    assert!(rate(&record, 0, 20, 30) > 19.0);
    assert_eq!([0, 1].map(|sender| rate(&record, sender, 31, 90)), [0.0; 2]);
    assert_eq!(record.observed.agent_pairs, [0; 3], "also where packets still come to it");
    let back =
        scenario(&[(3000, FaultKind::StopVm { vm: D }), (4000, FaultKind::StartVm { vm: D })]);
    let record = run(&back, "elasticswitch:steady");
    assert!([0, 1].iter().all(|sender| rate(&record, *sender, 60, 90) > 19.0));
}

/// No agent guards a new port while its agent is dead: its packets bypass the shaper, and
/// the other floor is not held. When the agent lives again it is.
#[test]
fn a_port_that_comes_while_its_agent_is_dead_is_unguarded_until_that_lives() {
    let faults = |vm_goes: bool| {
        let mut faults = vec![(2000, FaultKind::KillAgent { host: 0, guardian: false })];
        if vm_goes {
            faults.push((3000, FaultKind::StopVm { vm: S0 }));
            faults.push((3500, FaultKind::StartVm { vm: S0 }));
        }
        faults.push((6000, FaultKind::StartAgent { host: 0 }));
        faults
    };
    let other = |record: &Record, from, to| rate(record, 1, from, to);
    let stays = run(&scenario(&faults(false)), "elasticswitch:steady");
    assert!(other(&stays, 40, 60) > 19.0, "its queues stand: {}", other(&stays, 40, 60));
    let goes = run(&scenario(&faults(true)), "elasticswitch:steady");
    assert!(other(&goes, 40, 60) < 16.0, "{}", other(&goes, 40, 60));
    assert!(rate(&goes, 0, 40, 60) > 70.0, "{}", rate(&goes, 0, 40, 60));
    assert!(other(&goes, 70, 90) > 19.0, "{}", other(&goes, 70, 90));
}

/// A host that stands still is told when it goes on.
#[test]
fn who_stands_still_hears_of_it_later_and_nothing_breaks() {
    let until = Span::from_millis(4000);
    let scenario = scenario(&[
        (2900, FaultKind::PauseHost { host: 2, until }),
        (3000, FaultKind::StopVm { vm: S0 }),
        (3500, FaultKind::StartVm { vm: S0 }),
        (5000, FaultKind::StopVm { vm: S0 }),
        (5000, FaultKind::StartVm { vm: S0 }),
    ]);
    for mechanism in ["none", "elasticswitch:steady"] {
        let record = run(&scenario, mechanism);
        assert!(rate(&record, 0, 30, 39).abs() < 1e-9, "{mechanism}: nothing is received");
        let after = [0, 1].map(|sender| rate(&record, sender, 60, 90));
        assert!(after.iter().all(|part| *part > 19.0), "{mechanism}: {after:?}");
    }
}

#[test]
fn a_floor_holds_while_neighbours_come_and_go_and_it_is_the_same_each_time() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/elasticswitch/");
    let path = format!("{root}vms-come-and-go.yaml");
    let set = [("greedy", "10"), ("duration", "20s"), ("warmup", "5s")];
    let set = set.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let file = File::load(path.as_ref(), &set).expect("a scenario of ours");
    let scenario = file.points().expect("sound").remove(0);
    let record = run(&scenario, "elasticswitch:steady");
    let octets: u64 = record.observed.flows[0].octets[50..].iter().sum();
    let part = octets as f64 * 8.0 / 15.0 / (90e6 * 1448.0 / 1514.0);
    assert!(part >= 0.95, "X has {part} of its floor");
    // X's and the guests' pairs, and ten greedy ones: there, and of their ACKs.
    assert!(
        record.observed.agent_pairs.iter().all(|pairs| *pairs <= 2 * (1 + 4 + 10)),
        "{record:?}"
    );
    let guests: u64 = record.observed.flows[1..5].iter().flat_map(|flow| &flow.octets[50..]).sum();
    assert!(guests > 0, "they are back each time");
    assert_eq!(run(&scenario, "elasticswitch:steady"), record);
}
