//! Whether every VM got its floor: on the whole, in every half second and in every tenth of a
//! second.
//!
//! Problem   A mean hides half a second without anything, and half a second hides a tenth of one. A
//!           VM that sends for 300 ms and rests is never backlogged for half a second.
//! Approach  Windows of two widths, cut from each unbroken time in which the VM is backlogged, by
//!           the times at which samples were read. Short ones count where the floor is worth enough
//!           frames.
//! Promises  A VM that is backlogged for a sample is judged. One whose demand reaches its floor,
//!           but for no whole sample, is counted in `floors_unjudged`.

use super::case::{Case, SLACK_S};
use crate::numbers::{mean, percentile};
use std::collections::BTreeMap;
use weir_core::host::HoseKey;
use weir_model::results::VmResult;
use weir_model::scenario::Hoses;
use weir_units::Rate;

/// Widths of the windows in which a floor must hold, too.
pub(super) const WINDOW_S: f64 = 0.5;
pub(super) const SHORT_S: f64 = 0.1;
/// Frames that a floor must be worth in a short window: of fewer, one frame before or after the
/// window's end is more than 2 %.
const FRAMES_LEAST: f64 = 50.0;
/// Bits of a full frame on layer 2 without FCS.
const FRAME_BITS: f64 = 8.0 * 1514.0;

/// One result per hose and direction that is backlogged for at least one sample, and into `summary`
/// the worst of them: `worst_floor_ratio`, `worst_window_ratio`, `worst_window_p1`,
/// `worst_100ms_ratio`, `worst_100ms_p1`; and `floors_unjudged`.
pub(super) fn judge(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) -> Vec<VmResult> {
    let mut results = Vec::new();
    let mut unjudged = 0;
    let hoses = Hoses::of(case.scenario);
    for (vm, spec) in case.scenario.vms.iter().enumerate() {
        let further = spec.hoses.iter().map(|hose| HoseKey::Further(hose.id()));
        let keys: Vec<HoseKey> = std::iter::once(HoseKey::Tenant).chain(further).collect();
        for direction in [Direction::Out, Direction::In] {
            for key in &keys {
                match one(case, &hoses, (vm, *key), direction) {
                    Judged::Result(result) => results.push(result),
                    Judged::TooShort => unjudged += 1,
                    Judged::Nothing => {}
                }
            }
        }
    }
    let mut keep_worst = |name: &str, value: fn(&VmResult) -> Option<f64>| {
        if let Some(worst) = results.iter().filter_map(value).min_by(f64::total_cmp) {
            summary.insert(name.into(), worst);
        }
    };
    keep_worst("worst_floor_ratio", |r| Some(r.ratio));
    keep_worst("worst_window_ratio", |r| r.window_min);
    keep_worst("worst_window_p1", |r| r.window_p1);
    keep_worst("worst_100ms_ratio", |r| r.window_100ms_min);
    keep_worst("worst_100ms_p1", |r| r.window_100ms_p1);
    if unjudged > 0 || !results.is_empty() {
        summary.insert("floors_unjudged".into(), f64::from(unjudged));
    }
    results
}

/// What can be said of one hose of a VM in one direction.
enum Judged {
    Result(VmResult),
    /// Its demand reaches its floor, but never for a whole sample.
    TooShort,
    /// It has no floor here, or never asks for it.
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Out,
    In,
}

fn one(case: &Case<'_>, hoses: &Hoses, of: (usize, HoseKey), direction: Direction) -> Judged {
    let ((vm, key), scenario) = (of, case.scenario);
    let hose = hoses.get(vm, key).unwrap_or_default();
    let (floor, name) = match direction {
        Direction::Out => (hose.floor_out, "out"),
        Direction::In => (hose.floor_in, "in"),
    };
    let mine = |f: &usize| {
        let traffic = &scenario.traffic[*f];
        let end = if direction == Direction::Out { traffic.from } else { traffic.to };
        end == vm && hoses.of_pair(traffic.from, traffic.to) == key
    };
    let flows: Vec<usize> = (0..scenario.traffic.len()).filter(mine).collect();
    if floor.is_zero() || flows.is_empty() {
        return Judged::Nothing;
    }
    let wants = |d: &[Rate]| flows.iter().map(|&f| d[f]).sum::<Rate>() >= floor;
    let backlogged = |sample: &usize| {
        let (from, to) = case.core_of(*sample);
        case.ideal.all(from, to, |s| wants(&s.demand))
    };
    let samples: Vec<usize> = case.measured.clone().filter(backlogged).collect();
    let Some(whole) = ratio(case, &flows, &samples) else {
        let (from, to) = (case.measured.start, case.measured.end);
        let over = (case.bounds(from).0, case.bounds(to.max(from + 1) - 1).1);
        let never = case.ideal.all(over.0, over.1, |s| !wants(&s.demand));
        return if samples.is_empty() && !never { Judged::TooShort } else { Judged::Nothing };
    };
    let windows = window_ratios(case, &flows, &samples);
    let short = short_ratios(case, &flows, &samples);
    let smallest = |ratios: &[f64]| ratios.iter().copied().min_by(f64::total_cmp);
    Judged::Result(VmResult {
        vm: match key {
            HoseKey::Further(id) => {
                format!("{}/{}", scenario.vms[vm].name, scenario.hoses[id.0 as usize].name)
            }
            HoseKey::Tenant | HoseKey::Default => scenario.vms[vm].name.clone(),
        },
        direction: name.into(),
        promised_bps: case.mean(samples.iter().copied(), |s| promised(case, &flows, s)).round(),
        goodput_bps: case.mean_goodput(&flows, samples.iter().copied()).round(),
        ratio: whole,
        window_min: smallest(&windows),
        window_p1: percentile(&windows, 0.01),
        window_100ms_min: smallest(&short),
        window_100ms_p1: percentile(&short, 0.01),
    })
}

/// What the floors promise `flows` in a sample, bit/s on the wire.
fn promised(case: &Case<'_>, flows: &[usize], sample: usize) -> f64 {
    let (from, to) = case.bounds(sample);
    case.ideal.mean(from, to, |solution| flows.iter().map(|&f| solution.promised[f]).sum())
}

/// What `flows` got over `samples` / what the floors promise them, both on the wire. `None` if
/// nothing is promised.
pub(super) fn ratio(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Option<f64> {
    let promised = case.mean(samples.iter().copied(), |s| promised(case, flows, s));
    let on_wire = |s: usize| flows.iter().map(|&f| case.on_wire(f, s)).sum();
    let got = case.mean(samples.iter().copied(), on_wire);
    (promised > 0.0).then_some(got / promised)
}

/// The same per window of half a second.
pub(super) fn window_ratios(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Vec<f64> {
    let windows = windows(case, samples, WINDOW_S).into_iter();
    windows.filter_map(|window| ratio(case, flows, window)).collect()
}

/// The same per window of a tenth of a second, where the floors of `flows` are worth enough frames.
pub(super) fn short_ratios(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Vec<f64> {
    let is_worth_it = |window: &&[usize]| {
        let bits: f64 = window.iter().map(|&s| case.width(s) * promised(case, flows, s)).sum();
        bits + SLACK_S >= FRAMES_LEAST * FRAME_BITS
    };
    let windows = windows(case, samples, SHORT_S).into_iter();
    windows.filter(is_worth_it).filter_map(|window| ratio(case, flows, window)).collect()
}

/// How much the goodput of `flows` varies: the standard deviation of its windows of half a second /
/// their mean. `None` if there are fewer than two windows, or nothing arrived.
pub(super) fn goodput_std(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Option<f64> {
    let values = window_goodputs(case, flows, samples);
    let mean = mean(values.iter().copied());
    if values.len() < 2 || mean <= 0.0 {
        return None;
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt() / mean)
}

/// The goodput of `flows` together in each window of half a second, bit/s.
fn window_goodputs(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Vec<f64> {
    let goodput = |window: &[usize]| case.mean_goodput(flows, window.iter().copied());
    windows(case, samples, WINDOW_S).into_iter().map(goodput).collect()
}

/// The least and the most that all groups together get in half a second, as parts of the mean:
/// whether the total stays when a flow comes or goes.
pub(super) fn total(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) {
    let flows: Vec<usize> = (0..case.scenario.traffic.len()).collect();
    let samples: Vec<usize> = case.measured.clone().collect();
    let values = window_goodputs(case, &flows, &samples);
    let mean = mean(values.iter().copied());
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

/// Tumbling windows of `width_s`, as samples, by the times at which these were read. Each unbroken
/// stretch of `samples` begins a window; what is left at its end is out.
pub(super) fn windows<'a>(case: &Case<'_>, samples: &'a [usize], width_s: f64) -> Vec<&'a [usize]> {
    // The end that is nearest to the width: the next one would be off by more.
    let least = width_s - case.sample_s / 2.0;
    let mut windows = Vec::new();
    for stretch in samples.chunk_by(|a, b| a + 1 == *b) {
        let mut first = 0;
        for last in 0..stretch.len() {
            let (begin, end) = (case.bounds(stretch[first]).0, case.bounds(stretch[last]).1);
            if end - begin + SLACK_S >= least {
                windows.push(&stretch[first..=last]);
                first = last + 1;
            }
        }
    }
    windows
}

#[cfg(test)]
mod tests;
