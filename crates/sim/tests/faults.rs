//! What breaks in a scenario, and what stands meanwhile.

use std::sync::atomic::AtomicBool;
use weir_model::scenario::{Fault, FaultKind, File, Mechanism, Scenario, TrafficKind};
use weir_sim::scenario::{Record, Setup, play};
use weir_units::{Rate, Span};

/// Y's first sender has the core to itself for 10 s: it borrows. Its floor is 90 Mbit/s of 200.
fn borrower() -> Scenario {
    let path =
        format!("{}/../../scenarios/elasticswitch/agent-crash.yaml", env!("CARGO_MANIFEST_DIR"));
    let set = [("senders", "10"), ("duration", "10s"), ("warmup", "1s")];
    let set = set.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let file = File::load(path.as_ref(), &set).expect("a scenario of ours");
    let mut scenario = file.points().expect("sound").remove(3);
    // All others of its group start while one is dead.
    scenario.traffic.retain(|traffic| traffic.group == "y" && traffic.start == Span::ZERO);
    scenario.faults.clear();
    assert_eq!(scenario.traffic.len(), 1);
    scenario
}

fn host(scenario: &Scenario, name: &str) -> usize {
    scenario.topology.hosts.iter().position(|host| host == name).expect("it is there")
}

fn fault(ms: u64, kind: FaultKind) -> Fault {
    Fault { at: Span::from_millis(ms), kind }
}

fn run(scenario: &Scenario, mechanism: &str) -> Record {
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let setup = Setup { seed: 1, ..Setup::default() };
    play(scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false)).expect("playable")
}

/// A timer of TCP that expired while its host stood still is late, and time goes on:
/// acknowledgements that came meanwhile are heard first, and need not have moved it.
#[test]
fn a_timer_that_expired_in_a_pause_is_looked_at_when_the_host_goes_on() {
    let mut scenario = borrower();
    let left = host(&scenario, "left-1");
    scenario.topology.links.iter_mut().for_each(|link| link.queueing.loss = 0.05);
    // Many, of which some have just lost what is due next.
    if let TrafficKind::Tcp { connections, .. } = &mut scenario.traffic[0].kind {
        *connections = 64;
    }
    let pause =
        |at| fault(at, FaultKind::PauseHost { host: left, until: Span::from_millis(at + 400) });
    scenario.faults = (1..14).map(|number| pause(number * 700)).collect();
    let record = run(&scenario, "none");
    assert!(record.observed.flows[0].octets[95..].iter().sum::<u64>() > 0, "it goes on");
}

/// Goodput between two instants in tenths of a second, as a part of what the floor gives.
fn of_floor(record: &Record, from: usize, to: usize) -> f64 {
    let octets: u64 = record.observed.flows[0].octets[from..to].iter().sum();
    let floor = Rate::from_mbps(90).as_f64() * 1448.0 / 1514.0;
    octets as f64 * 8.0 / ((to - from) as f64 / 10.0) / floor
}

/// The same in the worst half second.
fn windows(record: &Record, samples: std::ops::Range<usize>) -> f64 {
    samples.step_by(5).map(|s| of_floor(record, s, s + 5)).fold(f64::MAX, f64::min)
}

#[test]
fn what_a_dead_agent_let_borrow_is_taken_back_and_its_floor_stands() {
    let mut scenario = borrower();
    let left = host(&scenario, "left-1");
    scenario.faults = vec![fault(4000, FaultKind::KillAgent { host: left, guardian: false })];
    let record = run(&scenario, "elasticswitch:steady");
    let (before, lease) = (of_floor(&record, 30, 40), of_floor(&record, 40, 47));
    assert!(before > 1.4, "it borrows: {before}");
    assert!(lease > before - 0.1, "its lease is not over: {lease} after {before}");
    let after = of_floor(&record, 55, 100);
    assert!((0.97..=1.05).contains(&after), "the floor, and no more: {after}");
}

#[test]
fn with_its_guardian_gone_too_nothing_is_taken_back() {
    let mut scenario = borrower();
    let left = host(&scenario, "left-1");
    scenario.faults = vec![fault(4000, FaultKind::KillAgent { host: left, guardian: true })];
    let record = run(&scenario, "elasticswitch:steady");
    assert!(of_floor(&record, 55, 100) > 1.4, "{}", of_floor(&record, 55, 100));
}

#[test]
fn one_that_returns_takes_over_without_a_gap_and_borrows_again() {
    let mut scenario = borrower();
    let left = host(&scenario, "left-1");
    scenario.faults = vec![
        fault(4000, FaultKind::KillAgent { host: left, guardian: false }),
        fault(5500, FaultKind::StartAgent { host: left }),
    ];
    let record = run(&scenario, "elasticswitch:steady");
    let least = windows(&record, 40..100);
    assert!(least > 0.9, "never less than the floor: {least}");
    assert!(of_floor(&record, 90, 100) > 1.5, "{}", of_floor(&record, 90, 100));
    assert_eq!(record.observed.agent_pairs[left], 2, "it knows both of its pairs' ends");
}

#[test]
fn an_agent_that_comes_back_before_its_lease_is_over_loses_nothing() {
    let mut scenario = borrower();
    let left = host(&scenario, "left-1");
    scenario.faults = vec![
        fault(4000, FaultKind::KillAgent { host: left, guardian: false }),
        fault(4500, FaultKind::StartAgent { host: left }),
    ];
    let record = run(&scenario, "elasticswitch:steady");
    let least = windows(&record, 40..80);
    assert!(least > 1.4, "{least}");
}

#[test]
fn a_restart_begins_anew() {
    let mut scenario = borrower();
    let left = host(&scenario, "left-1");
    scenario.faults = vec![fault(4000, FaultKind::RestartAgent { host: left })];
    let record = run(&scenario, "elasticswitch:steady");
    assert!(of_floor(&record, 38, 40) > 1.4);
    let least = windows(&record, 40..100);
    assert!(least > 0.9, "{least}");
    assert!(of_floor(&record, 90, 100) > 1.5, "{}", of_floor(&record, 90, 100));
    assert_eq!(record.observed.agent_pairs[left], 2);
}

#[test]
fn nothing_passes_a_link_that_is_down_under_any_mechanism() {
    let mut scenario = borrower();
    let link = scenario.topology.links.iter().position(|link| link.name == "core").expect("core");
    scenario.faults =
        vec![fault(4000, FaultKind::LinkDown { link }), fault(4600, FaultKind::LinkUp { link })];
    for mechanism in ["none", "elasticswitch:steady"] {
        let record = run(&scenario, mechanism);
        assert!(of_floor(&record, 35, 40) > 1.4, "{mechanism}");
        assert!(of_floor(&record, 41, 46) < 1e-9, "{mechanism}: {}", of_floor(&record, 41, 46));
        assert!(of_floor(&record, 80, 100) > 1.5, "{mechanism}: {}", of_floor(&record, 80, 100));
    }
}

#[test]
fn a_host_that_stands_still_sends_nothing_and_goes_on() {
    let mut scenario = borrower();
    for name in ["left-1", "right-1"] {
        let host = host(&scenario, name);
        let until = Span::from_millis(4700);
        scenario.faults = vec![fault(4000, FaultKind::PauseHost { host, until })];
        for mechanism in ["none", "elasticswitch:steady"] {
            let record = run(&scenario, mechanism);
            let during = of_floor(&record, 41, 46);
            assert!(during < 1e-9, "{name} {mechanism}: {during}");
            let after = of_floor(&record, 80, 100);
            assert!(after > 1.5, "{name} {mechanism}: {after}");
        }
    }
}

#[test]
fn what_a_source_should_have_sent_while_its_host_stood_still_is_not_sent() {
    let path = format!("{}/../../scenarios/elasticswitch/fig06.yaml", env!("CARGO_MANIFEST_DIR"));
    let set = [("senders", "2"), ("duration", "6s"), ("warmup", "1s")];
    let set = set.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let file = File::load(path.as_ref(), &set).expect("a scenario of ours");
    let mut scenario = file.points().expect("sound").remove(0);
    scenario.traffic.truncate(2);
    let host = scenario.vms[scenario.traffic[1].from].host;
    let until = Span::from_millis(3001);
    scenario.faults = vec![fault(2000, FaultKind::PauseHost { host, until })];
    let record = run(&scenario, "none");
    let sent = &record.observed.flows[1].octets;
    let usual = sent[10..20].iter().sum::<u64>();
    assert!(usual > 0 && sent[21..30].iter().sum::<u64>() == 0, "{sent:?}");
    let after = sent[31..41].iter().sum::<u64>();
    assert!(after.abs_diff(usual) < usual / 20, "{after} after {usual}");
}

#[test]
fn a_clock_that_jumps_harms_no_floor() {
    let mut scenario = borrower();
    let hosts = ["left-1", "right-1"].map(|name| host(&scenario, name));
    let step = |(n, host): (u64, usize)| {
        fault(4000 + 700 * n, FaultKind::StepClock { host, by: Span::from_secs(30) })
    };
    scenario.faults = (0..).zip(hosts).map(step).collect();
    let record = run(&scenario, "elasticswitch:steady");
    let least = windows(&record, 40..100);
    assert!(least > 0.9, "{least}");
    let calm = run(&borrower(), "elasticswitch:steady");
    assert_ne!(record.digest, calm.digest, "it was noticed");
}
