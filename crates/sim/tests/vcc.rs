//! vCC's scenario files, played whole: what guests without ECN get, alone and translated, and that
//! a run is the same each time.

use std::sync::atomic::AtomicBool;
use weir_model::scenario::{File, Mechanism, Scenario};
use weir_sim::scenario::{Record, Run, Setup, play};
use weir_units::{Rate, Span};

fn load(file: &str, set: &[(&str, &str)]) -> Scenario {
    let path = format!("{}/../../scenarios/vcc/{file}", env!("CARGO_MANIFEST_DIR"));
    let set: Vec<_> = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let file = File::load(path.as_ref(), &set).expect("a scenario of ours");
    file.points().expect("sound").remove(0)
}

fn run(scenario: &Scenario, mechanism: &str, seed: u64) -> Record {
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let setup = Setup { seed, ..Setup::default() };
    play(scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false)).expect("playable")
}

/// Octets after the warmup of each connection of a group.
fn octets(scenario: &Scenario, record: &Record, group: &str) -> Vec<f64> {
    let entries = scenario.traffic.iter().zip(&record.observed.flows);
    let ours = entries.filter(|(traffic, _)| traffic.group == group);
    ours.flat_map(|(_, flow)| flow.connections.iter().map(|octets| *octets as f64)).collect()
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

/// What a connection of `one` gets, as a part of one of `other`: the median of five seeds.
fn ratio(scenario: &Scenario, mechanism: &str, one: &str, other: &str) -> f64 {
    let of = |seed| {
        let record = run(scenario, mechanism, seed);
        mean(&octets(scenario, &record, one)) / mean(&octets(scenario, &record, other))
    };
    let mut all: Vec<f64> = (1..=5).map(of).collect();
    all.sort_by(f64::total_cmp);
    println!("{mechanism}: {all:.3?}");
    all[2]
}

fn drops(record: &Record) -> u64 {
    record.observed.links.iter().flat_map(|link| &link.drops).sum()
}

fn marks(record: &Record) -> u64 {
    record.observed.links.iter().flat_map(|link| &link.marks).sum()
}

#[test]
fn a_guest_without_ecn_starves_and_translated_has_its_part() {
    for link in ["10Mbit", "100Mbit"] {
        let scenario = load("fig11.yaml", &[("link", link)]);
        let alone = ratio(&scenario, "none", "old", "new");
        assert!(alone <= 0.3, "{link}: {alone}");
        let translated = ratio(&scenario, "none+virtual-ecn", "old", "new");
        assert!((0.9..=1.25).contains(&translated), "{link}: {translated}");
    }
}

#[test]
fn of_two_alike_the_one_whose_port_translates_has_its_part() {
    let scenario = load("fig01.yaml", &[]);
    let translated = ratio(&scenario, "none+virtual-ecn", "virtual", "new");
    assert!((0.95..=1.3).contains(&translated), "{translated}");
    let other = ratio(&scenario, "none+virtual-ecn", "old", "new");
    assert!(other <= 0.3, "{other}");
}

/// Of windows of some three segments one more or less for a moment is much.
#[test]
fn where_windows_are_small_a_translated_guest_has_no_more_than_one_with_ecn() {
    for new in ["1", "5", "9"] {
        let scenario = load("fig07.yaml", &[("threshold", "50kB"), ("new", new)]);
        let translated = ratio(&scenario, "none+virtual-ecn", "old", "new");
        assert!((0.95..=1.05).contains(&translated), "{new} of ten: {translated}");
    }
}

#[test]
fn ten_translated_guests_lose_nothing_once_they_have_begun() {
    let scenario = load("fig10.yaml", &[("ecn", "0")]);
    let alone = run(&scenario, "none", 1);
    assert!(drops(&alone) > 280, "{} of some 28900", drops(&alone));
    for mechanism in ["none+virtual-ecn", "none+dctcp", "none+cubic-ecn"] {
        let record = run(&scenario, mechanism, 1);
        assert!(drops(&record) <= 29, "{mechanism}: {}", drops(&record));
        assert!(marks(&record) > 100, "{mechanism}: {}", marks(&record));
        let all = octets(&scenario, &record, "guests");
        let before = mean(&octets(&scenario, &alone, "guests"));
        assert!(mean(&all) >= 0.97 * before, "{mechanism}: {} of {before}", mean(&all));
    }
}

/// The smaller of both windows of the only connection, and whether that is its receiver's, each
/// millisecond after the warmup.
fn windows(scenario: &Scenario, mechanism: &str) -> Vec<(f64, bool)> {
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let mut run = Run::new(scenario, &mechanism, &Setup::default()).expect("playable");
    let ms = |span: Span| span.div_span(Span::from_millis(1));
    let (from, to) = (ms(scenario.warmup), ms(scenario.duration));
    let at = |ms| {
        run.play_until(Span::from_millis(ms));
        let look = run.look().connections[0];
        (f64::from(look.cwnd.min(look.rwnd)), look.rwnd <= look.cwnd)
    };
    (from..to).map(at).collect()
}

/// The mean time from one tooth of a saw to the next, ms; 0 if there are less than two.
fn period(saw: &[(f64, bool)]) -> f64 {
    let most = saw.iter().map(|(window, _)| *window).fold(0.0, f64::max);
    let is_up = |pair: &[(f64, bool)]| pair[0].0 < 0.75 * most && pair[1].0 >= 0.75 * most;
    let ups: Vec<usize> = (1..saw.len()).filter(|n| is_up(&saw[n - 1..=*n])).collect();
    match ups[..] {
        [first, .., last] => (last - first) as f64 / (ups.len() - 1) as f64,
        _ => 0.0,
    }
}

#[test]
fn the_window_of_a_translated_guest_is_the_saw_that_it_would_make_itself() {
    let translated = windows(&load("fig09.yaml", &[("ecn", "0")]), "none+virtual-ecn");
    let own = windows(&load("fig09.yaml", &[("ecn", "1")]), "none");
    let ends = |saw: &[(f64, bool)]| {
        let windows = || saw.iter().map(|(window, _)| *window);
        (windows().fold(f64::MAX, f64::min), windows().fold(0.0, f64::max))
    };
    // Both fall to a quarter: the answer to a mark goes at once, while the queue is still above its
    // threshold, and is marked itself.
    let ((low, high), (own_low, own_high)) = (ends(&translated), ends(&own));
    println!("{low} to {high} segments, by itself {own_low} to {own_high}");
    assert!((0.9..=1.1).contains(&(high / own_high)), "{high}, and {own_high} by itself");
    assert!((low - own_low).abs() <= 2.0, "{low}, and {own_low} by itself");
    let by_port = translated.iter().filter(|(_, is_receivers)| *is_receivers).count();
    assert!(by_port as f64 >= 0.95 * translated.len() as f64, "{by_port} of {}", translated.len());
    let (ours, wanted) = (period(&translated), period(&own));
    assert!(wanted > 100.0, "a saw: {wanted}");
    assert!((0.75..=1.25).contains(&(ours / wanted)), "{ours} ms, and {wanted} ms by itself");
    let record = run(&load("fig09.yaml", &[]), "none+virtual-ecn", 1);
    assert_eq!(drops(&record), 0);
}

#[test]
fn a_trace_sees_what_a_look_sees_and_changes_nothing() {
    let scenario = load("fig09.yaml", &[("ecn", "0")]);
    let record = run(&scenario, "none+virtual-ecn", 0);
    let [looks] = &record.observed.flows[0].windows[..] else { panic!("one connection") };
    assert_eq!(looks.len(), 3_500, "each 10 ms of 35 s");
    let traced = looks.iter().filter(|look| look.at > scenario.warmup);
    let traced: Vec<u64> = traced.map(|look| look.cwnd.min(look.shown)).collect();
    let seen = windows(&scenario, "none+virtual-ecn");
    // The k-th look after the warmup is at 10 (k + 1) ms of those that are a millisecond apart.
    let same = (0..2_999).all(|k| traced[k] as f64 == 1448.0 * seen[10 * (k + 1)].0);
    assert!(same, "at the same moments the same");
    let mut blind = scenario.clone();
    blind.traffic[0].trace = None;
    let unseen = run(&blind, "none+virtual-ecn", 0);
    assert_eq!((unseen.digest, unseen.observed.links), (record.digest, record.observed.links));
    assert!(unseen.observed.flows[0].windows.is_empty());
}

#[test]
fn guests_with_ecn_are_left_alone_whatever_their_ports_do() {
    let scenario = load("fig10.yaml", &[("ecn", "1"), ("duration", "10s")]);
    let alone = run(&scenario, "none", 1);
    assert!(marks(&alone) > 0);
    assert_eq!(run(&scenario, "none+virtual-ecn", 1), alone);
    assert_eq!(run(&scenario, "none+auto", 1), alone, "whoever heeds marks is not found deaf");
}

#[test]
fn a_guest_that_agrees_on_ecn_and_does_not_heed_it_is_found_by_auto_alone() {
    for link in ["10Mbit", "100Mbit"] {
        let scenario = load("auto.yaml", &[("link", link)]);
        for mechanism in ["none", "none+virtual-ecn"] {
            let greedy = ratio(&scenario, mechanism, "deaf", "new");
            assert!(greedy > 3.0, "{link}, {mechanism}: {greedy}");
        }
        let found = ratio(&scenario, "none+auto", "deaf", "new");
        assert!((0.9..=1.25).contains(&found), "{link}: {found}");
        // For a guest that does not ask, the port asks, as with `virtual-ecn`.
        let scenario = load("fig11.yaml", &[("link", link)]);
        let asked = ratio(&scenario, "none+auto", "old", "new");
        assert!((0.9..=1.25).contains(&asked), "{link}: {asked}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let scenario = load("fig11.yaml", &[("duration", "8s")]);
    let digest = |seed| run(&scenario, "none+virtual-ecn", seed).digest;
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

#[test]
fn a_translation_stands_beside_agents() {
    let mut scenario = load("fig11.yaml", &[("duration", "8s"), ("warmup", "4s")]);
    for vm in &mut scenario.vms {
        let share = if vm.name == "sink" { 10 } else { 1 };
        (vm.floor_in, vm.floor_out) = (Rate::from_bps(900_000 * share), Rate::from_bps(900_000));
    }
    // A floor's goodput for four seconds, three times.
    let floor = 3.0 * 900_000.0 * 1448.0 / 1514.0 * 4.0 / 8.0;
    let part = |mechanism| {
        let old = |seed| {
            let played = run(&scenario, mechanism, seed);
            assert!(played.observed.agent_pairs.iter().sum::<u64>() >= 10);
            octets(&scenario, &played, "old")[0]
        };
        [1, 2, 3].map(old).iter().sum::<f64>() / floor
    };
    let both = part("elasticswitch:steady+virtual-ecn");
    assert!(both >= 0.95, "{both} of its floor");
    let alone = part("elasticswitch:steady");
    assert!(alone <= 0.5, "without it {alone}: it does something");
}

/// Goodput of both groups, unpreferred first, from one second to another, bit/s.
fn goodputs(run: &mut Run, from: u64, to: u64) -> [f64; 2] {
    let mut octets = |second| {
        run.play_until(Span::from_secs(second));
        run.octets()
    };
    let (before, after) = (octets(from), octets(to));
    [0, 1].map(|group| (after[group] - before[group]) as f64 * 8.0 / (to - from) as f64)
}

#[test]
fn preferred_connections_get_three_times_as_much_while_they_last_and_the_total_stays() {
    for (link, mechanism) in [("10Mbit", "none"), ("100Mbit", "none"), ("10Mbit", "none+cubic-ecn")]
    {
        let scenario = load("fig12.yaml", &[("link", link)]);
        let mechanism = Mechanism::parse(mechanism).expect("known");
        let mut run = Run::new(&scenario, &mechanism, &Setup::default()).expect("playable");
        let all = [(4, 10), (11, 40), (41, 50)].map(|(from, to)| goodputs(&mut run, from, to));
        println!("{link}, {}: {all:.0?}", mechanism.label);
        let [before, during, after] = all;
        assert!(before[1] == 0.0 && after[1] == 0.0, "{all:?}");
        let ratio = during[1] / 2.0 / (during[0] / 3.0);
        assert!((2.85..=3.15).contains(&ratio), "{link}: {ratio}");
        let totals = all.map(|groups| groups[0] + groups[1]);
        for total in totals {
            assert!((total / totals[0] - 1.0).abs() < 0.02, "{link}: {totals:?}");
        }
        let full = scenario.topology.links[0].rate.as_f64() * 1448.0 / 1514.0;
        assert!(totals[0] > 0.98 * full, "{link}: {totals:?} of {full}");
    }
}

#[test]
fn without_a_budget_preferred_connections_are_as_others() {
    let mut scenario = load("fig12.yaml", &[]);
    scenario.vms[0].budget = None;
    let mechanism = Mechanism::parse("none").expect("known");
    let mut run = Run::new(&scenario, &mechanism, &Setup::default()).expect("playable");
    let during = goodputs(&mut run, 11, 40);
    let ratio = during[1] / 2.0 / (during[0] / 3.0);
    assert!(ratio < 1.5, "{ratio}");
}
