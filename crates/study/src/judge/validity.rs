//! Decides whether a run may be used as a result at all.

use super::case::Case;
use weir_model::observed::Observed;
use weir_model::record::Failure;
use weir_model::results::Run;
use weir_model::scenario::Scenario;

/// A CPU with less idle time than this is saturated.
const IDLE_LEAST: f64 = 0.05;
/// The share of samples in which some CPU may be saturated.
const SATURATED_MOST: f64 = 0.10;

/// What a machine that loses less of a CPU within a sample is not worth a word.
const STOLEN_LEAST: f64 = 0.10;

/// The share of a CPU's time that a hypervisor may take before a floor that broke is not the network's fault: a
/// connection that loses one packet by it needs seconds to come back.
const STOLEN_MOST: f64 = 0.01;

/// What to know before a bad half second is called the network's. Such a run is a result all the
/// same.
pub(super) fn notes(case: &Case<'_>) -> Vec<String> {
    let stolen = || case.observed.stolen.iter().copied();
    let samples = stolen().filter(|&share| share >= STOLEN_LEAST).count();
    if samples == 0 {
        return Vec::new();
    }
    let most = 100.0 * stolen().fold(0.0, f64::max);
    vec![format!(
        "in {samples} of {} samples the machine below took away 10 % of a CPU or more, at most {most:.0} %: \
         what plays here stood still meanwhile (`perf.stolen` says when)",
        case.observed.stolen.len()
    )]
}

/// What failed and when, in one sentence.
pub fn failed(failure: &Failure) -> String {
    format!("failed {:.1} s after traffic began: {}", failure.at.as_secs_f64(), failure.why)
}

/// Why the run itself may not be used. Empty = it may.
pub(super) fn reasons(case: &Case<'_>) -> Vec<String> {
    let mut reasons = of_world(case.observed, case.scenario);
    if case.measured.is_empty() {
        reasons.push("nothing was measured: the warmup is as long as the run".into());
    }
    reasons
}

/// Whether the machine disturbed a sample: a CPU was saturated, or a hypervisor took a part of it.
pub fn is_disturbed(observed: &Observed, sample: usize) -> bool {
    let stolen = observed.stolen.get(sample).copied().unwrap_or_default();
    observed.idle.get(sample).is_none_or(|idle| *idle < IDLE_LEAST) || stolen >= STOLEN_LEAST
}

/// Why what a world observed of `scenario` may not be used, however it is judged. Empty = it may.
pub fn of_world(observed: &Observed, scenario: &Scenario) -> Vec<String> {
    let mut reasons: Vec<String> = observed.failure.iter().map(failed).collect();
    let samples = observed.idle.len();
    let saturated = saturated(&observed.idle);
    if saturated > SATURATED_MOST {
        let percent = 100.0 * saturated;
        reasons.push(format!(
            "a CPU was under 5 % idle in {percent:.0} % of the samples: the machine, not the network, \
             was the limit"
        ));
    }
    let taken = observed.samples();
    if samples < taken {
        reasons.push(format!(
            "how busy the machine was is known of {samples} of {taken} samples only"
        ));
    }
    let planned = scenario.duration.as_secs_f64() / observed.sample.as_secs_f64();
    if taken as f64 + 1.0 < planned {
        reasons.push(format!("the run ended early: {taken} of {planned:.0} samples"));
    }
    reasons
}

/// The share of samples in which some CPU had next to no idle time; none of no sample.
pub(super) fn saturated(idle: &[f64]) -> f64 {
    let saturated = idle.iter().filter(|&&idle| idle < IDLE_LEAST).count();
    saturated as f64 / idle.len().max(1) as f64
}

/// Why a floor that broke in `run` may be the fault of a hypervisor, which stopped the machine while it was measured.
pub fn stopped(run: &Run) -> Option<String> {
    let from = (run.warmup_s / run.sample_s).ceil() as usize;
    let measured = run.perf.stolen.get(from..).filter(|measured| !measured.is_empty())?;
    let share = measured.iter().sum::<f64>() / measured.len() as f64;
    (share > STOLEN_MOST).then(|| {
        format!(
            "the machine below took away {:.0} % of a CPU's time: a connection that loses a packet by it needs \
             seconds to come back",
            100.0 * share
        )
    })
}

/// Whether the only thing that is wrong with a run is that something else had a CPU.
pub fn is_merely_busy(run: &Run) -> bool {
    // Each reason is one sentence, and the one about saturation is always said.
    let is_of_cpus =
        run.perf.saturated > SATURATED_MOST || stopped(run).as_ref() == run.reasons.first();
    !run.valid && run.reasons.len() == 1 && is_of_cpus
}

/// Marks all runs of a point invalid whose `none` run shows neither a drop nor a mark where the
/// scenario says that the network is congested at this point: then nothing was there to protect
/// against. `runs` are those of one point.
pub fn without_congestion(scenario: &Scenario, runs: &mut [Run]) {
    let is_none = |run: &Run| {
        let kind = |m: &&weir_model::scenario::Mechanism| m.label == run.mechanism;
        scenario.mechanisms.iter().find(kind).is_some_and(|m| m.is_none())
    };
    let mut reasons = Vec::new();
    for run in runs.iter().filter(|run| is_none(run)) {
        for name in &scenario.congested {
            let here = |link: &&weir_model::results::LinkResult| {
                link.link.rsplit_once(':').is_some_and(|(of, _)| of == name)
            };
            let from = (run.warmup_s / run.sample_s).ceil() as usize;
            let struck = |l: &weir_model::results::LinkResult| -> f64 {
                [&l.drops, &l.marks].into_iter().flat_map(|series| series.iter().skip(from)).sum()
            };
            if run.links.iter().filter(here).all(|link| struck(link) == 0.0) {
                reasons.push(format!(
                    "link {name} should be congested, and without protection (repeat {}) nothing \
                     was dropped or marked there",
                    run.repeat
                ));
            }
        }
    }
    for run in runs.iter_mut().filter(|_| !reasons.is_empty()) {
        run.valid = false;
        run.reasons.extend(reasons.iter().cloned());
    }
}
