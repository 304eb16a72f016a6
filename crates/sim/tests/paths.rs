//! Two uneven paths: floors fail where flows are spread evenly, and hold where they are divided.

use std::sync::atomic::AtomicBool;
use weir_core::elasticswitch::ElasticSwitch;
use weir_core::mechanism::Draft;
use weir_model::observed::ObservedFlow;
use weir_model::scenario::{Ecmp, Fault, FaultKind, File, Mechanism, Scenario, Traffic};
use weir_sim::PairLook;
use weir_sim::scenario::{Failure, Record, Run, Setup, play};
use weir_units::Span;

fn scenario(duration: &str) -> Scenario {
    let path =
        format!("{}/../../scenarios/elasticswitch/two-paths.yaml", env!("CARGO_MANIFEST_DIR"));
    let set = [("duration".to_owned(), duration.to_owned())];
    let file = File::load(path.as_ref(), &set).expect("a scenario of ours");
    file.points().expect("sound").remove(0)
}

fn run(scenario: &Scenario, mechanism: &str, seed: u64) -> Result<Record, Failure> {
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let setup = Setup { seed, ..Setup::default() };
    play(scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false))
}

/// Goodput of X and of Z from `from` on, as a part of what their floors give full frames.
fn of_floors(scenario: &Scenario, record: &Record, from: Span) -> [f64; 2] {
    let first = from.div_span(record.observed.sample) as usize;
    let seconds = (scenario.duration - from).as_secs_f64();
    [("x", 1472.0), ("z", 1448.0)].map(|(group, payload)| {
        let mine = |(traffic, _): &(&Traffic, &ObservedFlow)| traffic.group == group;
        let flows: Vec<_> =
            scenario.traffic.iter().zip(&record.observed.flows).filter(mine).collect();
        let octets: u64 = flows.iter().flat_map(|(_, flow)| &flow.octets[first..]).sum();
        let floor = scenario.vms[flows[0].0.from].floor_out.as_f64() * payload / 1514.0;
        octets as f64 * 8.0 / seconds / floor
    })
}

#[test]
fn floors_fail_on_the_narrow_path_and_hold_when_they_are_divided() {
    let scenario = scenario("20s");
    for seed in [1, 2, 3] {
        let [even, divided] = ["elasticswitch:steady", "elasticswitch:steady-paths"].map(|name| {
            let record = run(&scenario, name, seed).expect("playable");
            of_floors(&scenario, &record, scenario.warmup)
        });
        assert!(even[0] < 0.85, "seed {seed}: {even:?}");
        assert!(divided.iter().all(|part| *part > 0.95), "seed {seed}: {divided:?}");
    }
}

/// A UDP sender that offers twice its floor loses every second packet in its host's shaper. Ways
/// are chosen behind the shaper, so both carry what is left.
#[test]
fn packets_that_a_shaper_dropped_take_no_turn_among_the_ways() {
    let text = "\
apiVersion: weir/v1alpha1
kind: Scenario
metadata: {name: turns, title: Every second packet is dropped}
spec:
  duration: 4s
  warmup: 2s
  mechanisms: [\"elasticswitch:steady\"]
  topology:
    leaf-spine: {leaves: 2, spines: 2, hosts_per_leaf: 1, link: 100Mbit, oversubscription: 2, ecmp: packet}
  tenants:
    - {name: x, vms: [{name: x-0, host: host-1-0, floor: 45Mbit}, {name: x-1, host: host-0-0, floor: 45Mbit}]}
  traffic:
    - {group: x, from: x-0, to: x-1, udp: {rate: 90Mbit}}
";
    let file = File::parse("turns.yaml", text, &[]).expect("sound");
    let scenario = file.points().expect("sound").remove(0);
    let record = run(&scenario, "elasticswitch:steady", 1).expect("playable");
    let first = scenario.warmup.div_span(record.observed.sample) as usize;
    let octets: u64 = record.observed.flows[0].octets[first..].iter().sum();
    let rate = octets as f64 * 8.0 / 2.0 * 1514.0 / 1472.0;
    assert!(rate >= 0.95 * 45e6, "{rate}");
}

#[test]
fn floors_hold_again_after_agents_were_started_again() {
    let mut scenario = scenario("25s");
    let at = |at: u64, kind| Fault { at: Span::from_secs(at), kind };
    let all = 0..scenario.topology.hosts.len();
    scenario.faults.extend(all.clone().map(|host| at(3, FaultKind::RestartAgent { host })));
    scenario
        .faults
        .extend(all.clone().map(|host| at(6, FaultKind::KillAgent { host, guardian: false })));
    scenario.faults.extend(all.map(|host| at(8, FaultKind::StartAgent { host })));
    let [one, again] =
        [7, 7].map(|seed| run(&scenario, "elasticswitch:steady-paths", seed).expect("playable"));
    assert_eq!(one.digest, again.digest, "the same seed is the same run");
    let parts = of_floors(&scenario, &one, Span::from_secs(15));
    assert!(parts.iter().all(|part| *part > 0.95), "{parts:?}");
}

/// X's source goes and comes, and once more while its agent is dead: until that lives again, no
/// agent guards its port or divides anything.
#[test]
fn floors_hold_again_after_a_vm_came_back_and_nothing_stays_of_one_that_went() {
    let mut scenario = scenario("25s");
    let at = |ms: u64, kind| Fault { at: Span::from_millis(ms), kind };
    let (vm, host) = (0, scenario.vms[0].host);
    scenario.faults = vec![
        at(3000, FaultKind::StopVm { vm }),
        at(5000, FaultKind::StartVm { vm }),
        at(6000, FaultKind::KillAgent { host, guardian: false }),
        at(6500, FaultKind::StopVm { vm }),
        at(7000, FaultKind::StartVm { vm }),
        at(9000, FaultKind::StartAgent { host }),
    ];
    let record = run(&scenario, "elasticswitch:steady-paths", 1).expect("playable");
    let parts = of_floors(&scenario, &record, Span::from_secs(18));
    assert!(parts.iter().all(|part| *part > 0.95), "{parts:?}");
    // Of a pair with several paths there is one; TCP has one back, too.
    assert_eq!(record.observed.agent_pairs, [1, 1, 2, 2]);
    scenario.faults.truncate(1);
    let gone = run(&scenario, "elasticswitch:steady-paths", 1).expect("playable");
    assert_eq!(of_floors(&scenario, &gone, Span::from_secs(18))[0].to_bits(), 0);
    assert_eq!(gone.observed.agent_pairs, [0, 0, 2, 2]);
}

/// The global view has one pair, however many paths it has.
#[test]
fn a_look_shows_what_all_paths_of_a_pair_have_together() {
    let scenario = scenario("20s");
    let mechanism = Mechanism::parse("elasticswitch:steady-paths").expect("known");
    let setup = Setup { seed: 1, ..Setup::default() };
    let mut run = Run::new(&scenario, &mechanism, &setup).expect("playable");
    run.play_until(Span::from_secs(3));
    let look = run.look();
    let is_x = |pair: &&PairLook| (pair.id.src.0, pair.id.dst.0) == (0, 1);
    let [x] = look.pairs.iter().filter(is_x).collect::<Vec<_>>()[..] else { panic!("{look:?}") };
    let floor = x.in_force.expect("it has queues").floor.as_f64() / 140e6;
    assert!((0.98..=1.0).contains(&floor), "{floor} of its hose");
    // Full frames of 140 Mbit/s, to within what is lost and waits at first.
    let left = x.left as f64 * 8.0 / 3.0 / 140e6;
    assert!((0.8..1.01).contains(&left), "{left} of what it sends");
    assert!(x.is_met && x.source.send.is_some() && x.destination.receive.is_some());
}

/// The network decides the number of paths, whatever constants are set.
#[test]
fn constants_that_were_set_are_those_of_all_paths() {
    let mut scenario = scenario("12s");
    (scenario.duration, scenario.warmup) = (Span::from_secs(3), Span::from_secs(1));
    let mechanism = Mechanism::parse("elasticswitch:steady-paths").expect("known");
    let usual = ElasticSwitch::preset("steady-paths").expect("known").scaled(scenario.scale);
    let mut other = usual.clone();
    other.rate.period = Span::from_millis(30);
    let digests = [None, Some(usual.with_paths(5)), Some(other)].map(|law| {
        let draft = law.map(|law| Draft::ElasticSwitch(Box::new(law)));
        let setup = Setup { seed: 1, draft, ..Setup::default() };
        let never = AtomicBool::new(false);
        play(&scenario, &mechanism, &setup, &mut |_| {}, &never).expect("playable").digest
    });
    assert_eq!(digests[0], digests[1]);
    assert_ne!(digests[0], digests[2]);
}

#[test]
fn path_partitioning_is_refused_where_hosts_cannot_choose() {
    let mut scenario = scenario("20s");
    scenario.topology.ecmp = Some(Ecmp::Flow);
    let refused = run(&scenario, "elasticswitch:steady-paths", 1).expect_err("no choice");
    assert!(refused.to_string().contains("`ecmp: host`"), "{refused}");
}
