//! What is offered, carried, dropped and received agrees. As root.

mod common;

use common::{alone, dumbbell, flow, none, tcp, udp};
use std::sync::atomic::AtomicBool;
use weir_lab::{Options, Record, play};
use weir_model::scenario::Scenario;
use weir_units::Span;

/// The core link from left to right.
const CORE: usize = 0;

fn run(scenario: &Scenario) -> Record {
    let record =
        play(scenario, &none(), &Options::new("weir"), &mut |_| {}, &AtomicBool::new(false))
            .expect("plays; these tests need root");
    println!("idle {:.2?} notes {:?} wall {}", record.idle, record.notes, record.wall);
    record
}

/// Mean goodput after the warm-up, in Mb/s.
fn goodput(scenario: &Scenario, record: &Record, flow: usize) -> f64 {
    mbps(scenario, record, &record.flows[flow].octets)
}

fn mbps(scenario: &Scenario, record: &Record, series: &[u64]) -> f64 {
    let skip = scenario.warmup.div_span(record.sample) as usize;
    let octets: u64 = series[skip..].iter().sum();
    let seconds = record.sample.as_secs_f64() * (series.len() - skip) as f64;
    octets as f64 * 8.0 / seconds / 1e6
}

#[test]
fn one_tcp_flow_fills_the_core_link() {
    let _alone = alone();
    let mut scenario = dumbbell(1, 1, 100);
    flow(&mut scenario, 0, 1, tcp(1));
    let record = run(&scenario);
    let got = goodput(&scenario, &record, 0);
    assert!((0.93 * 100.0 * 1448.0 / 1514.0..96.0).contains(&got), "{got} Mb/s");
    let carried = mbps(&scenario, &record, &record.links[CORE].octets);
    let share = got / carried;
    // Packets of one segment: super-packets would be counted with fewer headers.
    assert!((0.94..0.965).contains(&share), "{got} of {carried} Mb/s");
}

#[test]
fn udp_below_the_link_rate_arrives_whole() {
    let _alone = alone();
    let mut scenario = dumbbell(1, 1, 100);
    flow(&mut scenario, 0, 1, udp(20.0));
    let record = run(&scenario);
    let got = goodput(&scenario, &record, 0) / (20.0 * 1472.0 / 1514.0);
    assert!((got - 1.0).abs() < 0.02, "{got} of what was offered");
    assert_eq!(record.links.iter().flat_map(|link| &link.drops).sum::<u64>(), 0);
}

#[test]
fn twice_the_link_rate_is_half_dropped_and_every_packet_is_accounted_for() {
    let _alone = alone();
    let mut scenario = dumbbell(2, 1, 50);
    flow(&mut scenario, 0, 2, udp(49.0));
    flow(&mut scenario, 1, 2, udp(49.0));
    let record = run(&scenario);
    let carried = mbps(&scenario, &record, &record.links[CORE].octets);
    assert!((49.0..51.0).contains(&carried), "{carried} Mb/s on a link of 50");
    let seconds = scenario.duration.as_secs_f64();
    let dropped = record.links[CORE].drops.iter().sum::<u64>() as f64 / seconds;
    let expected = 48e6 / 8.0 / 1514.0;
    assert!((dropped / expected - 1.0).abs() < 0.05, "{dropped} of {expected} packets/s");
    let (a, b) = (goodput(&scenario, &record, 0), goodput(&scenario, &record, 1));
    assert!((0.8..1.25).contains(&(a / b)), "nobody is favoured: {a} and {b} Mb/s");
}

#[test]
fn one_tcp_flow_starves_among_a_hundred() {
    let _alone = alone();
    let mut scenario = dumbbell(11, 2, 100);
    scenario.duration = Span::from_secs(5);
    scenario.warmup = Span::from_secs(1);
    flow(&mut scenario, 0, 11, tcp(1));
    for sender in 1..11 {
        flow(&mut scenario, sender, 12, tcp(10));
    }
    let record = run(&scenario);
    let got = goodput(&scenario, &record, 0);
    assert!(got <= 2.0 / 101.0 * 100.0, "{got} Mb/s");
    let carried = mbps(&scenario, &record, &record.links[CORE].octets);
    assert!(carried > 97.0, "{carried} Mb/s");
    assert!(record.links[CORE].drops.iter().sum::<u64>() > 100);
}

#[test]
fn one_tcp_flow_starves_among_udp_blasters() {
    let _alone = alone();
    let mut scenario = dumbbell(3, 2, 100);
    flow(&mut scenario, 0, 3, tcp(1));
    flow(&mut scenario, 1, 4, udp(100.0));
    flow(&mut scenario, 2, 4, udp(100.0));
    let record = run(&scenario);
    let got = goodput(&scenario, &record, 0);
    assert!(got <= 2.0, "{got} Mb/s");
}

#[test]
fn traffic_keeps_to_its_times() {
    let _alone = alone();
    let mut scenario = dumbbell(2, 2, 100);
    flow(&mut scenario, 0, 2, tcp(3));
    flow(&mut scenario, 1, 3, udp(10.0));
    for traffic in &mut scenario.traffic {
        traffic.start = Span::from_millis(500);
        traffic.stop = Span::from_millis(1500);
    }
    let record = run(&scenario);
    for flow in &record.flows {
        let sum = |range: std::ops::Range<usize>| flow.octets[range].iter().sum::<u64>();
        assert_eq!(sum(0..5), 0, "silent before its start");
        assert!(sum(6..14) > 500_000, "then it flows");
        assert_eq!(sum(17..20), 0, "silent after its stop");
    }
}
