//! Judges a run: what was promised, what the ideal is, what was got.
//!
//! Problem   "The floor held" must mean the same in every world, and must be able to be false.
//! Approach  A world hands over octets per sample ([`Observed`]); demands come from the scenario, not
//!           from observation; the oracle is solved once for each piece of time in which demands are
//!           constant; every number is a sum over samples, weighted with time.
//! Promises  A number that has no meaning in a run is absent, not 0 and not 1. A run that the machine
//!           was too slow for is invalid, with its reasons.
//! Not here  Whether a number is good enough: see [`crate::verdict`].

mod attacks;
mod bundles;
mod case;
mod control;
mod convergence;
mod demand;
mod ends;
mod events;
mod floors;
mod groups;
mod ideal;
mod links;
mod pairs;
pub(crate) mod payload;
mod reported;
mod reserve;
mod tenants;
#[cfg(test)]
mod tests;
mod validity;
mod windows;
mod work;

pub use groups::{GroupFloor, group_floor};
pub use pairs::{of_floor, of_ideal};
pub use reserve::reservations;
pub use validity::{failed, is_disturbed, is_merely_busy, of_world, stopped, without_congestion};
pub use weir_model::observed::{Observed, ObservedFlow, Work};

use case::Case;
use ideal::Ideal;
use std::collections::BTreeMap;
use std::ops::Range;
use weir_model::results::{Flow, Perf, Run};
use weir_model::scenario::{Mechanism, Scenario, Translation};

/// Judges one run of `scenario` under `mechanism`.
///
/// `observed` has one flow per traffic entry and two links (a>b, b>a) per link of the scenario, in the
/// scenario's order; octets of a flow are application octets received, those of a link are on layer 2
/// without FCS.
///
/// # Errors
/// The scenario's floors do not fit its links.
///
/// # Panics
/// `observed` has another shape.
pub fn judge(
    scenario: &Scenario,
    mechanism: &Mechanism,
    repeat: u32,
    observed: &Observed,
) -> Result<Run, String> {
    assert_eq!(observed.flows.len(), scenario.traffic.len(), "one observed flow per traffic entry");
    assert_eq!(observed.links.len(), 2 * scenario.topology.links.len(), "both directions of links");
    let planned = scenario;
    let scenario = &work::ended(planned, observed);
    let routes = bundles::routes(scenario).0;
    let sample_s = observed.sample.as_secs_f64();
    let case = Case {
        scenario,
        observed,
        ideal: Ideal::new(scenario)?,
        measured: measured(scenario, observed),
        routes,
        sample_s,
        ends: observed.ends.iter().map(|end| end.as_secs_f64()).collect(),
    };
    let mut summary = BTreeMap::new();
    let vms = floors::judge(&case, &mut summary);
    let pairs = pairs::judge(&case, &mut summary);
    let groups = groups::judge(&case, &mut summary);
    groups::beside(&case, &mut summary);
    groups::of_ideal(&case, &mut summary);
    floors::total(&case, &mut summary);
    let links = links::judge(&case, &mut summary);
    tenants::judge(&case, mechanism.bound, &mut summary);
    ends::receivers(&vms, &mut summary);
    ends::network(&case, &mut summary);
    ends::agents(&case, &mut summary);
    attacks::judge(observed, &mut summary);
    control::judge(observed, &mut summary);
    reported::judge(&case, &mut summary);
    summary.retain(|_, value| value.is_finite());
    let reasons = validity::reasons(&case);
    Ok(Run {
        scenario: scenario.name.clone(),
        world: observed.world.into(),
        mechanism: mechanism.label.clone(),
        translation: mechanism.translation.map_or("none", Translation::name).into(),
        seed: observed.seed,
        repeat,
        point: scenario.point.iter().cloned().collect(),
        valid: reasons.is_empty(),
        reasons,
        notes: [observed.notes.clone(), validity::notes(&case)].concat(),
        flows: (0..scenario.traffic.len()).map(|f| flow(&case, f)).collect(),
        groups,
        events: events::of(planned),
        pairs,
        vms,
        links,
        summary,
        perf: perf(&case),
        sample_s,
        warmup_s: scenario.warmup.as_secs_f64(),
    })
}

/// Whole samples between the end of the warmup and the end of the run, as far as they were taken.
fn measured(scenario: &Scenario, observed: &Observed) -> Range<usize> {
    let sample = observed.sample.as_nanos().max(1);
    let first = scenario.warmup.as_nanos().div_ceil(sample) as usize;
    let planned = (scenario.duration.as_nanos() / sample) as usize;
    let last = planned.min(observed.samples());
    first.min(last)..last
}

fn flow(case: &Case<'_>, index: usize) -> Flow {
    let traffic = &case.scenario.traffic[index];
    let observed = &case.observed.flows[index];
    let span: f64 = case.measured.clone().map(|sample| case.width(sample)).sum();
    let series: Vec<f64> =
        (0..observed.octets.len()).map(|s| case.goodput(index, s).round()).collect();
    Flow {
        group: traffic.group.clone(),
        from: case.scenario.vms[traffic.from].name.clone(),
        to: case.scenario.vms[traffic.to].name.clone(),
        kind: traffic.kind.name().into(),
        goodput_bps: case.mean_goodput(&[index], case.measured.clone()).round(),
        connections_bps: observed
            .connections
            .iter()
            .map(|&octets| if span > 0.0 { (octets as f64 * 8.0 / span).round() } else { 0.0 })
            .collect(),
        series_bps: series,
        times: work::times(observed.work.iter()),
        windows: observed.windows.iter().map(|looks| windows::result(looks)).collect(),
    }
}

fn perf(case: &Case<'_>) -> Perf {
    let observed = case.observed;
    Perf {
        packet_hops: observed.packet_hops,
        events: observed.events,
        user_cpu_s: observed.user_cpu.as_secs_f64(),
        wall_s: observed.wall.as_secs_f64(),
        worst_idle: observed.idle.iter().copied().fold(1.0, f64::min),
        idle: hundredths(&observed.idle),
        stolen: hundredths(&observed.stolen),
        saturated: validity::saturated(&observed.idle),
        agents_cpu_s: observed.agents_cpu.as_secs_f64(),
    }
}

fn hundredths(shares: &[f64]) -> Vec<f64> {
    shares.iter().map(|share| (share * 100.0).round() / 100.0).collect()
}
