//! Did every VM get its floor, on the whole and in every half second?

use super::{Case, percentile};
use std::collections::BTreeMap;
use weir_model::results::VmResult;
use weir_units::Rate;

/// Width of the windows in which a floor must hold, too.
const WINDOW_S: f64 = 0.5;

/// One result per VM and direction that is backlogged for at least one window, and into `summary` the
/// worst of them: `worst_floor_ratio`, `worst_window_ratio`, `worst_window_p1`.
pub(super) fn judge(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) -> Vec<VmResult> {
    let mut results = Vec::new();
    for vm in 0..case.scenario.vms.len() {
        results.extend(one(case, vm, Direction::Out));
        results.extend(one(case, vm, Direction::In));
    }
    let mut keep_worst = |name: &str, value: fn(&VmResult) -> f64| {
        if let Some(worst) = results.iter().map(value).min_by(f64::total_cmp) {
            summary.insert(name.into(), worst);
        }
    };
    keep_worst("worst_floor_ratio", |r| r.ratio);
    keep_worst("worst_window_ratio", |r| r.window_min);
    keep_worst("worst_window_p1", |r| r.window_p1);
    results
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Out,
    In,
}

fn one(case: &Case<'_>, vm: usize, direction: Direction) -> Option<VmResult> {
    let scenario = case.scenario;
    let tenant = |v: usize| scenario.vms[v].tenant;
    let (floor, name) = match direction {
        Direction::Out => (scenario.vms[vm].floor_out, "out"),
        Direction::In => (scenario.vms[vm].floor_in, "in"),
    };
    let mine = |f: &usize| {
        let traffic = &scenario.traffic[*f];
        let end = if direction == Direction::Out { traffic.from } else { traffic.to };
        end == vm && tenant(traffic.from) == tenant(traffic.to)
    };
    let flows: Vec<usize> = (0..scenario.traffic.len()).filter(mine).collect();
    if floor.is_zero() || flows.is_empty() {
        return None;
    }
    let backlogged = |sample: &usize| {
        let (from, to) = case.bounds(*sample);
        let wants = |d: &[Rate]| flows.iter().map(|&f| d[f]).sum::<Rate>() >= floor;
        case.ideal.all(from, to, |s| wants(&s.demand))
    };
    let samples: Vec<usize> = case.measured.clone().filter(backlogged).collect();
    let whole = ratio(case, &flows, &samples)?;
    let windows = window_ratios(case, &flows, &samples);
    let span = samples.len() as f64;
    let goodput = |f: usize| samples.iter().map(|&s| case.goodput(f, s)).sum::<f64>();
    Some(VmResult {
        vm: scenario.vms[vm].name.clone(),
        direction: name.into(),
        promised_bps: (promised(case, &flows, &samples) / span).round(),
        goodput_bps: (flows.iter().map(|&f| goodput(f)).sum::<f64>() / span).round(),
        ratio: whole,
        window_min: windows.iter().copied().min_by(f64::total_cmp)?,
        window_p1: percentile(&windows, 0.01)?,
    })
}

/// Sum over `samples` of what the floors promise `flows`, on the wire.
fn promised(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> f64 {
    let in_sample = |&s: &usize| {
        let (from, to) = case.bounds(s);
        case.ideal.mean(from, to, |solution| flows.iter().map(|&f| solution.promised[f]).sum())
    };
    samples.iter().map(in_sample).sum()
}

/// What `flows` got over `samples` / what the floors promise them, both on the wire. `None` if
/// nothing is promised.
pub(super) fn ratio(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Option<f64> {
    let promised = promised(case, flows, samples);
    let got: f64 = samples
        .iter()
        .flat_map(|&s| flows.iter().map(move |&f| (f, s)))
        .fold(0.0, |sum, (f, s)| sum + case.on_wire(f, s));
    (promised > 0.0).then_some(got / promised)
}

/// The same per tumbling window of half a second; windows that are not wholly in `samples` are out.
pub(super) fn window_ratios(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Vec<f64> {
    windows(case, samples).filter_map(|window| ratio(case, flows, window)).collect()
}

/// How much the goodput of `flows` varies: the standard deviation of its windows of half a second / their
/// mean. `None` if there are fewer than two windows, or nothing arrived.
pub(super) fn goodput_std(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Option<f64> {
    let values = window_goodputs(case, flows, samples);
    let mean = super::mean(values.iter().copied());
    if values.len() < 2 || mean <= 0.0 {
        return None;
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt() / mean)
}

/// The goodput of `flows` together in each window of half a second, bit/s.
fn window_goodputs(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Vec<f64> {
    let goodput = |window: &[usize]| -> f64 {
        let in_sample = |&s: &usize| flows.iter().map(|&f| case.goodput(f, s)).sum::<f64>();
        window.iter().map(in_sample).sum::<f64>() / window.len() as f64
    };
    windows(case, samples).map(goodput).collect()
}

/// The least and the most that all groups together get in half a second, as parts of the mean: whether the total
/// stays when somebody comes or goes.
pub(super) fn total(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) {
    let flows: Vec<usize> = (0..case.scenario.traffic.len()).collect();
    let samples: Vec<usize> = case.measured.clone().collect();
    let values = window_goodputs(case, &flows, &samples);
    let mean = super::mean(values.iter().copied());
    let ends = [
        ("min", values.iter().copied().min_by(f64::total_cmp)),
        ("max", values.iter().copied().max_by(f64::total_cmp)),
    ];
    for (name, value) in ends {
        if let Some(value) = value.filter(|_| mean > 0.0) {
            summary.insert(format!("total_window_{name}"), value / mean);
        }
    }
}

/// Tumbling windows of half a second, as samples; those that are not wholly in `samples` are out.
fn windows<'a>(case: &Case<'_>, samples: &'a [usize]) -> impl Iterator<Item = &'a [usize]> {
    let width = (WINDOW_S / case.sample_s).round().max(1.0) as usize;
    case.measured.clone().step_by(width).filter_map(move |start| {
        let first = samples.binary_search(&start).ok()?;
        let window = samples.get(first..first + width)?;
        (window[width - 1] == start + width - 1).then_some(window)
    })
}
