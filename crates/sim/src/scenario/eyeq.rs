//! EyeQ on the hosts of a scenario: its constants, its lists, and the reasons to refuse it.
//!
//! Problem   Its periods follow the link and the round trip, and some configurations cannot work.
//!           The user must learn that before an hour of playing.
//! Approach  The constants are fitted to each host's link ([`Tuned::on`]), then the machine's own
//!           check decides. The round trip is that of the idle network. At rest queues are empty,
//!           since a tenth of the link is headroom, and the check is about stability at rest.
//! Promises  A configuration that passes [`check`] is played. A refusal names the place and the
//!           reason.
//! Not here  Admission of racks' uplinks: a congested core is a scenario of its own
//!           (`core-congestion.yaml`).
//! Source    `weir-core`'s `eyeq`; docs/algorithms/eyeq.md, "Stability".

use super::guard::policies;
use super::ways::Ways;
use super::{Failure, Setup, Unsupported};
use crate::rng::Rng;
use std::collections::BTreeSet;
use weir_core::eyeq::{Backend, EyeQ, Tuned};
use weir_core::host::Policy;
use weir_core::mechanism::Law;
use weir_model::scenario::{FaultKind, LinkDir, Mechanism, MechanismKind, Scenario};
use weir_units::{Bytes, Rate, Span};

/// A full Ethernet frame without FCS.
const FRAME: Bytes = Bytes::new(1514);

/// Checks whether EyeQ can be played here, if this is EyeQ.
///
/// # Errors
///
/// The reason: the place in the file, and what would be right.
pub(super) fn check(
    scenario: &Scenario,
    mechanism: &Mechanism,
    setup: &Setup,
) -> Result<(), Failure> {
    if mechanism.kind == MechanismKind::EyeQ {
        policies(scenario, mechanism, setup, 1)?;
    }
    Ok(())
}

/// Its constants on a host with a link of `line`.
pub(super) fn law(
    scenario: &Scenario,
    mechanism: &Mechanism,
    setup: &Setup,
    line: Rate,
) -> Result<EyeQ, Failure> {
    faults(scenario, mechanism)?;
    let tuned = match &setup.eyeq {
        Some(tuned) => tuned.clone(),
        None => Tuned::new(preset(mechanism)?, Backend::Kernel),
    };
    Ok(tuned.on(line, round_trip(scenario)))
}

/// Whether a host can keep what it is told.
pub(super) fn fits(
    scenario: &Scenario,
    mechanism: &Mechanism,
    policy: &Policy,
) -> Result<(), Failure> {
    let Law::EyeQ(eyeq) = &policy.law else { return Ok(()) };
    weir_core::eyeq::check(policy, eyeq).map_err(|refusal| {
        let name = &scenario.topology.hosts[policy.host.0 as usize];
        Failure::Refused {
            field: format!("spec.mechanisms ({}, host {name})", mechanism.label),
            refusal,
        }
    })
}

fn preset(mechanism: &Mechanism) -> Result<EyeQ, Unsupported> {
    EyeQ::preset(&format!("eyeq-{}", mechanism.preset)).ok_or_else(|| {
        let what = format!("the preset `{}`", mechanism.preset);
        Unsupported::new(
            "spec.mechanisms",
            what,
            format!("there are {}", EyeQ::SHORT_PRESETS.join(", ")),
        )
    })
}

/// Adoption of another incarnation's state is not implemented.
fn faults(scenario: &Scenario, mechanism: &Mechanism) -> Result<(), Unsupported> {
    let is_death = |kind: &FaultKind| {
        matches!(
            kind,
            FaultKind::KillAgent { .. }
                | FaultKind::StartAgent { .. }
                | FaultKind::RestartAgent { .. }
        )
    };
    let Some(fault) = scenario.faults.iter().find(|fault| is_death(&fault.kind)) else {
        return Ok(());
    };
    let field = format!("spec.faults ({} at {})", fault.kind.name(), fault.at);
    let what = format!("an agent of `{}` that dies", mechanism.label);
    Err(Unsupported::new(field, what, "leave the fault out, or play `elasticswitch`"))
}

/// The longest round trip between hosts that talk.
fn round_trip(scenario: &Scenario) -> Span {
    let topology = &scenario.topology;
    let mut ways = Ways::new(topology);
    let host = |vm: usize| scenario.vms[vm].host;
    let ends: BTreeSet<(usize, usize)> = scenario
        .traffic
        .iter()
        .flat_map(|t| [(host(t.from), host(t.to)), (host(t.to), host(t.from))])
        .filter(|(from, to)| from != to)
        .collect();
    let link = |number: &u32| &topology.links[LinkDir::from_index(*number as usize).link];
    let mut pass = |(from, to): (usize, usize)| {
        // Equal ways have as many links; of what is drawn nothing else follows.
        let way = ways.draw(from, to, &mut Rng::new(0, 0));
        let cross = |n: &u32| link(n).delay + link(n).rate.time_for(FRAME);
        way.iter().map(cross).fold(Span::ZERO, |sum, span| sum + span)
    };
    let both = |(from, to): (usize, usize)| pass((from, to)) + pass((to, from));
    ends.into_iter().map(both).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::eyeq::{Constant, Refusal};
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
        let sound = scenario(&format!(
            "topology: {{single-switch: {{hosts: 2, link: 10Gbit}}}}, {TRAFFIC}"
        ));
        let tuned = |constant| {
            let preset = Tuned::new(EyeQ::default(), Backend::Kernel);
            Setup { eyeq: Some(Tuned { set: vec![constant], ..preset }), ..Setup::default() }
        };
        let refused = play(&sound, &tuned(Constant::Alpha(1.5))).expect_err("oscillates");
        let text = refused.to_string();
        assert!(
            text.starts_with("spec.mechanisms (eyeq, host host-0): alpha = 1.5 oscillates"),
            "{text}"
        );
        let short = play(&sound, &tuned(Constant::Period(Span::from_micros(20))));
        let is_short =
            matches!(short, Err(Failure::Refused { refusal: Refusal::ShortPeriod { .. }, .. }));
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
        assert!(
            text.contains("floors in are 9.1 Gb/s together") && text.contains("9 Gb/s"),
            "{text}"
        );
    }

    #[test]
    fn an_agent_that_dies_is_refused() {
        let rest = "topology: {single-switch: {hosts: 2, link: 10Gbit}}, \
                    faults: [{at: 1s, kill-agent: host-0}], ";
        let refused = play(&scenario(&format!("{rest}{TRAFFIC}")), &Setup::default());
        let text = refused.expect_err("not there yet").to_string();
        assert!(text.starts_with("spec.faults (kill-agent at 1 s)"), "{text}");
    }
}
