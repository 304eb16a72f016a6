//! Trinity: floors before all else, and what it costs.

use std::sync::atomic::AtomicBool;
use weir_model::scenario::{File, Mechanism, Scenario};
use weir_sim::scenario::{Failure, Record, Setup, play};
use weir_units::Span;

/// A has 300 Mbit/s of a link of 1 Gbit/s and sends over two connections. B has 100 and floods.
fn scenario(core: &str) -> Scenario {
    let vms = |name: &str, floor: u32| {
        format!(
            "{{name: {name}, vms: [{{name: {name}-l, host: left-{n}, floor: {floor}Mbit}}, \
             {{name: {name}-r, host: right-{n}, floor: {floor}Mbit}}]}}",
            n = u8::from(name == "b"),
        )
    };
    let text = format!(
        "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: {{duration: 6s, warmup: 2s, \
         topology: {{dumbbell: {{left: 2, right: 2, edge: 1Gbit, core: 1Gbit, buffer: 128kB{core}}}}}, \
         tenants: [{}, {}], traffic: [{{group: a, from: a-l, to: a-r, tcp: {{connections: 2}}}}, \
         {{group: b, from: b-l, to: b-r, udp: {{rate: 900Mbit}}}}], mechanisms: none}}}}",
        vms("a", 300),
        vms("b", 100),
    );
    let file = File::parse("t.yaml", &text, &[]).unwrap_or_else(|error| panic!("{error}"));
    file.points().unwrap_or_else(|error| panic!("{error}")).remove(0)
}

fn record(scenario: &Scenario, mechanism: &str) -> Result<Record, Failure> {
    let mechanism = Mechanism::parse(mechanism).expect("known");
    let setup = Setup { seed: 1, ..Setup::default() };
    play(scenario, &mechanism, &setup, &mut |_| {}, &AtomicBool::new(false))
}

/// Mbit/s of payload of a traffic entry after the warmup.
fn rate(scenario: &Scenario, record: &Record, entry: usize) -> f64 {
    let warm = (scenario.warmup.as_secs_f64() / scenario.sample.as_secs_f64()) as usize;
    let octets: u64 = record.observed.flows[entry].octets[warm..].iter().sum();
    octets as f64 * 8.0 / (scenario.duration - scenario.warmup).as_secs_f64() / 1e6
}

#[test]
fn a_floor_holds_beside_a_flood_that_has_the_rest_of_the_link() {
    let scenario = scenario("");
    let record = record(&scenario, "trinity").expect("playable");
    let (a, b) = (rate(&scenario, &record, 0), rate(&scenario, &record, 1));
    assert!(a >= 0.95 * 300.0 * 0.956, "A has {a:.0} Mbit/s");
    assert!(b >= 0.95 * 100.0 * 0.956, "B has {b:.0} Mbit/s");
    assert!(a + b >= 0.8 * 956.0, "both have {:.0} Mbit/s of the link", a + b);
    let (reordered, starved) = record.observed.disorder.expect("there are two priorities");
    assert!(reordered > 0.0 && reordered < 0.5, "{reordered} of the packets were overtaken");
    assert!(starved > Span::from_micros(12), "{starved:?}");
}

#[test]
fn only_two_priorities_are_said_to_overtake_and_starve() {
    let mut short = scenario("");
    (short.duration, short.warmup) = (Span::from_millis(300), Span::from_millis(100));
    assert_eq!(record(&short, "elasticswitch").expect("playable").observed.disorder, None);
    assert_eq!(record(&short, "none").expect("playable").observed.disorder, None);
}

#[test]
fn what_takes_the_queues_that_trinity_needs_is_refused() {
    for (core, mechanism, word) in [
        (", links: {core: {red: {min: 40kB, max: 80kB}}}", "trinity", "red"),
        ("", "trinity@loop", "two priorities among bound tenants"),
    ] {
        let error = record(&scenario(core), mechanism).expect_err("refused").to_string();
        assert!(error.contains(word), "{error}");
    }
}
