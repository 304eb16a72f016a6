//! A mechanism is played as it is set, or refused with the host and the reason.

use super::*;
use weir_core::eyeq::{self, Backend, EyeQ, Tuned};
use weir_core::mechanism::constants::Value;
use weir_core::mechanism::{Law, Refusal};
use weir_model::scenario::File;

fn scenario(rest: &str) -> Scenario {
    let text = format!(
        "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: {{duration: 9s, \
         mechanisms: eyeq, tenants: [{{name: a, vms: [{{name: v, host: host-0, floor: 4.5Gbit}}, \
         {{name: w, host: host-1, floor: 4.5Gbit}}]}}], {rest}}}}}"
    );
    let file = File::parse("t.yaml", &text, &[]).expect("sound");
    file.points().expect("sound").remove(0)
}

const TRAFFIC: &str = "traffic: [{group: g, from: v, to: w, tcp: {}}]";

fn play(scenario: &Scenario, setup: &Setup) -> Result<Vec<EyeQ>, Failure> {
    let policies = policies(scenario, &scenario.mechanisms[0], setup, 1)?;
    let law = |policy: Policy| match policy.law {
        Law::EyeQ(eyeq) => *eyeq,
        other => panic!("{other:?}"),
    };
    Ok(policies.into_iter().map(law).collect())
}

#[test]
fn periods_follow_the_link_and_the_round_trip() {
    let on = |link: &str| {
        let topology = format!("topology: {{single-switch: {{hosts: 2, {link}}}}}, {TRAFFIC}");
        let scenario = scenario(&topology);
        let configs = play(&scenario, &Setup::default()).expect("sound");
        (configs[0].period, configs[1].loop_delay.round_trip)
    };
    // Four links of 1.2 µs each.
    let (period, round_trip) = on("link: 10Gbit");
    assert_eq!(period, Span::from_micros(200));
    assert!((round_trip.as_secs_f64() * 1e6 - 4.85).abs() < 0.01, "{round_trip}");
    assert_eq!(on("link: 100Gbit").0, Span::from_micros(200));
    let (period, round_trip) = on("link: 10Gbit, delay: 500us");
    assert!(period == round_trip && period > Span::from_millis(2), "{period}");
}

#[test]
fn what_cannot_work_is_refused_with_the_host_and_the_reason() {
    let sound =
        scenario(&format!("topology: {{single-switch: {{hosts: 2, link: 10Gbit}}}}, {TRAFFIC}"));
    let tuned = |constant| {
        let preset = Tuned::new(EyeQ::default(), Backend::Kernel);
        let draft = Draft::EyeQ(Box::new(Tuned { set: vec![constant], ..preset }));
        Setup { draft: Some(draft), ..Setup::default() }
    };
    let refused = play(&sound, &tuned(("alpha", Value::Real(1.5)))).expect_err("oscillates");
    let text = refused.to_string();
    assert!(
        text.starts_with("spec.mechanisms (eyeq, host host-0): alpha = 1.5 oscillates"),
        "{text}"
    );
    let short = play(&sound, &tuned(("period", Value::Span(Span::from_micros(20)))));
    let is_short = matches!(
        short,
        Err(Failure::Refused { refusal: Refusal::EyeQ(eyeq::Refusal::ShortPeriod { .. }), .. })
    );
    assert!(is_short);
    assert!(play(&sound, &Setup::default()).is_ok());
}

/// The other side of a tenant's hose may be smaller: the file's admission allows it.
#[test]
fn floors_above_nine_tenths_of_a_hosts_link_are_refused() {
    let rest = format!("topology: {{single-switch: {{hosts: 2, link: 10Gbit}}}}, {TRAFFIC}");
    let mut tight = scenario(&rest);
    tight.vms[0].floor_in = Rate::from_mbps(9_100);
    let refused = play(&tight, &Setup::default()).expect_err("too much");
    let text = refused.to_string();
    assert!(text.contains("floors in are 9.1 Gb/s together") && text.contains("9 Gb/s"), "{text}");
}

#[test]
fn an_agent_that_dies_is_refused() {
    let rest = "topology: {single-switch: {hosts: 2, link: 10Gbit}}, \
                faults: [{at: 1s, kill-agent: host-0}], ";
    let scenario = scenario(&format!("{rest}{TRAFFIC}"));
    let refused = check(&scenario, &scenario.mechanisms[0], &Setup::default());
    let text = refused.expect_err("not there yet").to_string();
    assert!(text.starts_with("spec.faults (kill-agent at 1 s)"), "{text}");
}
