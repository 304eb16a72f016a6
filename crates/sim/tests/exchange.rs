//! Requests, short flows and shuffles, and traffic within a host.

use std::sync::atomic::AtomicBool;
use weir_model::scenario::{File, Load, Mechanism, Scenario, TrafficKind};
use weir_sim::Work;
use weir_sim::scenario::{Record, Setup, play};
use weir_units::Span;

/// Three hosts at one switch, 1 Gbit/s, a millisecond per link: 4 ms there and back.
fn scenario(traffic: &str) -> Scenario {
    let text = format!(
        "apiVersion: weir/v1alpha1\n\
         kind: Scenario\n\
         metadata: {{name: t}}\n\
         spec:\n  \
           duration: 10s\n  \
           warmup: 2s\n  \
           topology:\n    \
             single-switch: {{hosts: 3, link: 1Gbit, delay: 1ms}}\n  \
           tenants:\n    \
             - name: a\n      \
               vms:\n        \
                 - {{name: c, host: host-0, floor: 100Mbit}}\n        \
                 - {{name: s, hosts: [host-1..host-2], count: 2, floor: 100Mbit}}\n        \
                 - {{name: w, host: host-0, floor: 100Mbit}}\n  \
           mechanisms: [none]\n  \
           traffic:\n{traffic}"
    );
    let file = File::parse("t.yaml", &text, &[]).unwrap_or_else(|e| panic!("{e}"));
    file.points().unwrap_or_else(|e| panic!("{e}")).remove(0)
}

fn run(scenario: &Scenario, mechanism: &str) -> Record {
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let setup = Setup { seed: 1, ..Setup::default() };
    play(scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false)).expect("playable")
}

fn work(record: &Record, entry: usize) -> &Work {
    record.works[entry].as_ref().expect("it has beginnings and ends")
}

/// The time that a part of all took at most, in ms.
fn quantile(work: &Work, part: f64) -> f64 {
    let mut times = work.times.clone();
    times.sort_unstable();
    times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3
}

#[test]
fn a_request_takes_a_round_trip_and_the_time_of_its_answer() {
    let text = |how: &str| {
        scenario(&format!(
            "    - {{group: g, from: c, to: s-0, \
             request: {{size: 100B, response: 20kB, rate: 20, connections: {how}}}}}\n"
        ))
    };
    // Two links of 14 segments, the second one segment behind: 182 µs; what hosts add: two times up
    // to 12 µs, in the mean 12.
    let kept = run(&text("kept"), "none");
    let median = quantile(work(&kept, 0), 0.5);
    assert!((4.18..4.25).contains(&median), "{median} ms");
    // A handshake, and a window of ten segments for fourteen.
    let new = run(&text("new"), "none");
    let median = quantile(work(&new, 0), 0.5);
    assert!((12.05..12.15).contains(&median), "{median} ms");
    for record in [kept, new] {
        let (work, answers) = (work(&record, 0), &record.observed.flows[1]);
        assert!(work.due >= 120 && work.due - work.done <= 1, "{work:?}");
        let all: u64 = answers.octets[20..].iter().sum();
        assert!((work.done * 20_000).abs_diff(all) <= 40_000, "{all} octets of {work:?}");
        assert_eq!(answers.work, None);
    }
}

#[test]
fn what_is_due_begins_when_the_scenario_says_under_every_mechanism() {
    let scenario = scenario(
        "    - {group: g, from: c, to: s-0, request: {size: 1kB, response: 1kB, rate: 50}}\n",
    );
    let TrafficKind::Request(request) = &scenario.traffic[0].kind else { panic!("a request") };
    let Load::Open(arrivals) = &request.load else { panic!("an open loop") };
    let measured = Span::from_secs(2)..Span::from_secs(10);
    let due = arrivals.starts().take_while(|at| *at < measured.end);
    let due = due.filter(|at| measured.contains(at)).count() as u64;
    for mechanism in ["none", "elasticswitch:steady"] {
        assert_eq!(work(&run(&scenario, mechanism), 0).due, due, "{mechanism}");
    }
}

#[test]
fn an_answer_is_followed_by_the_next_request_in_a_closed_loop() {
    let scenario = scenario(
        "    - {group: g, from: c, to: s-0, \
         request: {size: 100B, response: 1kB, outstanding: 3}}\n",
    );
    let record = run(&scenario, "none");
    // Three at a time, each a round trip and 40 µs or so.
    let per_second = work(&record, 0).done as f64 / 8.0;
    assert!((0.98..1.0).contains(&(per_second / (3.0 / 0.004))), "{per_second}");
}

#[test]
fn short_flows_arrive_whole_each_on_a_connection_of_its_own() {
    let scenario = scenario("    - {group: g, from: c, to: s, flows: {rate: 40, size: 3kB}}\n");
    let record = run(&scenario, "none");
    for (entry, traffic) in scenario.traffic.iter().enumerate() {
        let TrafficKind::Flows(flows) = &traffic.kind else { panic!("flows") };
        // What begins in the last 20 ms may not be done.
        let until = |end: Span| flows.starts().take_while(move |(at, _)| *at < end);
        let sum = |end: Span| until(end).map(|(_, size)| size.get()).sum::<u64>();
        let got: u64 = record.observed.flows[entry].octets.iter().sum();
        let (least, most) = (sum(Span::from_millis(9980)), sum(Span::from_secs(10)));
        assert!((least..=most).contains(&got), "{got} of {least} to {most}");
        // A handshake, and half a round trip; three segments.
        let median = quantile(work(&record, entry), 0.5);
        assert!((6.0..6.15).contains(&median), "{median} ms");
    }
}

#[test]
fn a_time_counts_from_when_it_should_have_begun() {
    // 1.6 Gbit/s of answers on a link of 1.
    let scenario = scenario(
        "    - {group: g, from: c, to: s-0, request: {size: 100B, response: 1MB, rate: 200}}\n",
    );
    let record = run(&scenario, "none");
    let work = work(&record, 0);
    let left = 1.0 - work.done as f64 / work.due as f64;
    // After 10 s of 8 Mbit requests at 200/s, 0.95 Gbit/s have been carried: 120 a second. Those
    // that should have begun in the measured time are the last ones.
    assert!((0.4..0.6).contains(&left), "{left} is left");
    assert!(quantile(work, 1.0) > 3000.0, "the last one waited for {} ms", quantile(work, 1.0));
}

#[test]
fn a_shuffle_ends_when_all_has_arrived() {
    let scenario =
        scenario("    - {group: g, from: s, to: c, start: 1s, shuffle: {octets: 50MB}}\n");
    let record = run(&scenario, "none");
    let ends: Vec<f64> =
        (0..2).map(|entry| work(&record, entry).last.as_nanos() as f64 / 1e9 - 1.0).collect();
    let last = ends.iter().copied().fold(0.0, f64::max);
    // Both together fill the link: 100 MB at 1448 of 1514 of 1 Gbit/s; slow starts and losses cost
    // something.
    let least = 0.1 * 8.0 * 1514.0 / 1448.0;
    assert!((least..least * 1.25).contains(&last), "{ends:?}, at least {least}");
    for entry in 0..2 {
        assert_eq!((work(&record, entry).due, work(&record, entry).done), (1, 1));
        assert_eq!(record.observed.flows[entry].octets.iter().sum::<u64>(), 50_000_000);
    }
}

#[test]
fn what_comes_and_goes_is_the_same_each_time() {
    let scenario = scenario(
        "    - {group: g, from: c, to: s, flows: {rate: 400, size: 30kB}}\n    \
         - {group: h, from: s-0, to: s-1, request: {size: 1kB, response: 99kB, rate: 300}}\n    \
         - {group: i, from: c, to: s-1, tcp: {connections: 2}}\n",
    );
    for mechanism in ["none", "elasticswitch:steady"] {
        let [one, two] = [0, 1].map(|_| run(&scenario, mechanism));
        assert_eq!(one, two);
        assert!(work(&one, 0).done > 1000, "{:?}", work(&one, 0).done);
    }
}

#[test]
fn an_entry_that_stops_sends_nothing_more() {
    let scenario = scenario(
        "    - {group: g, from: c, to: s-0, stop: 5s, \
         request: {size: 1kB, response: 1MB, outstanding: 2}}\n    \
         - {group: h, from: c, to: s-1, stop: 5s, flows: {rate: 100, size: 9kB}}\n",
    );
    let record = run(&scenario, "none");
    for flow in &record.observed.flows {
        assert!(flow.octets[40..50].iter().sum::<u64>() > 0);
        assert_eq!(flow.octets[50..].iter().sum::<u64>(), 0);
    }
    let links: u64 =
        record.observed.links.iter().map(|link| link.octets[52..].iter().sum::<u64>()).sum();
    assert_eq!(links, 0, "nor does anybody send again");
}

#[test]
fn traffic_within_a_host_takes_no_link_but_its_shaper() {
    let scenario = scenario("    - {group: g, from: c, to: w, tcp: {connections: 1}}\n");
    let rate = |record: &Record| {
        record.observed.flows[0].octets[50..].iter().sum::<u64>() as f64 * 8.0 / 5.0 / 1e9
    };
    let free = run(&scenario, "none");
    assert!((9.0..9.6).contains(&rate(&free)), "{} Gbit/s", rate(&free));
    let shaped = run(&scenario, "elasticswitch:steady");
    // The shaper is the uplink's, for any destination.
    assert!((0.1..0.96).contains(&rate(&shaped)), "{} Gbit/s", rate(&shaped));
    for record in [free, shaped] {
        assert!(record.observed.links.iter().all(|link| link.octets.iter().sum::<u64>() == 0));
    }
}

/// Two leaves, four spines, an uplink each of a tenth of a host's link.
fn spread(ecmp: &str) -> Vec<u64> {
    let text = format!(
        "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: {{duration: 2s, warmup: 0s, \
         topology: {{leaf-spine: {{leaves: 2, spines: 4, hosts_per_leaf: 1, link: 1Gbit, \
         uplink: 100Mbit, ecmp: {ecmp}}}}}, mechanisms: none, tenants: [{{name: a, vms: [\
         {{name: c, host: host-0-0}}, {{name: s, host: host-1-0}}]}}], traffic: [{{group: g, from: c, \
         to: s, request: {{size: 10kB, response: 100B, rate: 400, connections: new}}}}]}}}}"
    );
    let file = File::parse("t.yaml", &text, &[]).unwrap_or_else(|e| panic!("{e}"));
    let scenario = file.points().unwrap_or_else(|e| panic!("{e}")).remove(0);
    let record = run(&scenario, "none");
    assert!(work(&record, 0).done + 5 > work(&record, 0).due, "but for the last ones");
    let links = scenario.topology.links.iter().zip(record.observed.links.chunks(2));
    let up = links.filter(|(link, _)| link.name.starts_with("leaf-0-spine"));
    up.map(|(_, ways)| ways.iter().map(|way| way.octets.iter().sum::<u64>()).max().unwrap_or(0))
        .collect()
}

#[test]
fn connections_that_come_and_go_use_all_equal_ways() {
    for (ecmp, least) in [("packet", 0.24), ("flow", 0.2)] {
        let carried = spread(ecmp);
        let all = carried.iter().sum::<u64>() as f64;
        assert_eq!(carried.len(), 4);
        assert!(carried.iter().all(|octets| *octets as f64 > least * all), "{ecmp}: {carried:?}");
    }
    assert_eq!(spread("none").iter().filter(|octets| **octets > 0).count(), 1);
}
