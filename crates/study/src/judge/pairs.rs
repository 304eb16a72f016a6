//! What each pair of VMs got: of its floor and of the ideal.
//!
//! Not here  Pairs with traffic whose demand the scenario does not tell at every moment (requests, short
//!           flows, shuffles).

use super::case::Case;
use super::ideal::{Solution, pairs_of};
use crate::numbers::mean;
use std::collections::BTreeMap;
use weir_model::results::PairResult;

/// One result per pair, and into `summary` the worst of their floors (`worst_pair_ratio`).
pub(super) fn judge(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) -> Vec<PairResult> {
    let is_steady = |flow: &usize| case.scenario.traffic[*flow].kind.is_steady();
    let pairs = pairs_of(case.scenario);
    let steady = pairs.iter().filter(|pair| pair.flows.iter().all(is_steady));
    let results: Vec<PairResult> =
        steady.filter_map(|pair| one(case, (pair.from, pair.to), &pair.flows)).collect();
    if let Some(worst) = results.iter().filter_map(of_floor).min_by(f64::total_cmp) {
        summary.insert("worst_pair_ratio".into(), worst);
    }
    results
}

/// What a pair got of its floor; `None` without one.
pub fn of_floor(pair: &PairResult) -> Option<f64> {
    (pair.promised_bps > 0.0).then(|| pair.got_bps / pair.promised_bps)
}

/// What a pair got of the ideal, at most 1: what one pair has too much is no gain of the others.
pub fn of_ideal(pair: &PairResult) -> Option<f64> {
    (pair.ideal_bps > 0.0).then(|| (pair.got_bps / pair.ideal_bps).min(1.0))
}

fn one(case: &Case<'_>, (from, to): (usize, usize), flows: &[usize]) -> Option<PairResult> {
    let samples = case.active(flows);
    let sum = |s: usize, rates: &dyn Fn(&Solution) -> &[f64]| {
        let (from, to) = case.bounds(s);
        case.ideal.mean(from, to, |solution| flows.iter().map(|&f| rates(solution)[f]).sum())
    };
    let over = |value: &dyn Fn(usize) -> f64| mean(samples.iter().map(|&s| value(s))).round();
    let name = |vm: usize| case.scenario.vms[vm].name.clone();
    (!samples.is_empty()).then(|| PairResult {
        from: name(from),
        to: name(to),
        promised_bps: over(&|s| sum(s, &|solution| &solution.promised)),
        ideal_bps: over(&|s| sum(s, &|solution| &solution.rate)),
        got_bps: over(&|s| flows.iter().map(|&f| case.on_wire(f, s)).sum()),
    })
}
