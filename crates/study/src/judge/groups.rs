//! What each flow group got: of the link, of its floors, of the ideal; and how evenly.

use super::case::{Case, SLACK_S};
use super::ideal::pairs_of;
use super::{convergence, floors, links, windows, work};
use crate::numbers::{mean, percentile};
use std::collections::{BTreeMap, BTreeSet};
use weir_model::results::Group;
use weir_model::scenario::{Fault, FaultKind, Scenario, TrafficKind};

/// How long after an agent went down `window_min_settled` does not look: by then what was borrowed is
/// given back. Where a port breaks, by then it is mended.
const SETTLE_S: f64 = 2.0;

/// What a group's floors are worth over time, for those who watch.
#[derive(Clone, Debug, Default)]
pub struct GroupFloor {
    /// Start (s) and promised goodput (bit/s), in the order of time.
    pieces: Vec<(f64, f64)>,
}

impl GroupFloor {
    /// The promised goodput at a moment, bit/s; zero if nothing is promised.
    pub fn at(&self, seconds: f64) -> f64 {
        // The end of the run belongs to its last piece.
        let here = self.pieces.iter().rev().find(|(start, _)| *start <= seconds);
        here.map_or(0.0, |piece| piece.1)
    }
}

/// What the floors promise these traffic entries over time. Nothing if the scenario has no solution:
/// the judge will say so.
pub fn group_floor(scenario: &Scenario, flows: &[usize]) -> GroupFloor {
    let Ok(ideal) = super::ideal::Ideal::new(scenario) else {
        return GroupFloor::default();
    };
    let share = |f: usize| super::payload::share(&scenario.traffic[f]);
    let promised =
        |x: &super::ideal::Solution| flows.iter().map(|&f| x.promised[f] * share(f)).sum();
    let piece =
        |(start, _, solution): (f64, f64, &super::ideal::Solution)| (start, promised(solution));
    GroupFloor { pieces: ideal.pieces().map(piece).collect() }
}

/// One result per group, and the groups' numbers into `summary`.
pub(super) fn judge(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) -> Vec<Group> {
    let mut largest = (1, None);
    let mut all: Vec<f64> = Vec::new();
    let mut results = Vec::new();
    for (name, flows) in members(case) {
        let samples = case.active(&flows);
        let mut group = result(case, &name, &flows, &samples);
        group.times = work::judge(case, &name, &flows, summary);
        let mut put = |metric: &str, value: Option<f64>| {
            if let Some(value) = value {
                summary.insert(format!("{metric}.{name}"), value);
            }
        };
        let windows = floors::window_ratios(case, &flows, &samples);
        let short = floors::short_ratios(case, &flows, &samples);
        let settled = floors::window_ratios(case, &flows, &settled(case, &samples));
        let judged = !samples.is_empty();
        put("goodput", judged.then_some(group.goodput_bps));
        put("share", (group.ideal_bps > 0.0).then(|| group.goodput_bps / group.ideal_bps));
        put("goodput_of_link", judged.then(|| of_link(case, &flows, &samples)).flatten());
        put("goodput_of_floor", floors::ratio(case, &flows, &samples));
        put("goodput_std", floors::goodput_std(case, &flows, &samples));
        for (metric, value) in windows::judge(case, &flows) {
            put(metric, value);
        }
        put("convergence_s", convergence::seconds(case, &flows, &samples));
        put("recovery_s", convergence::recovery(case, &flows, &samples));
        put("window_min", windows.iter().copied().min_by(f64::total_cmp));
        put("window_p1", percentile(&windows, 0.01));
        put("window_100ms_min", short.iter().copied().min_by(f64::total_cmp));
        put("window_100ms_p1", percentile(&short, 0.01));
        put("window_min_settled", settled.iter().copied().min_by(f64::total_cmp));
        let steady = flows.iter().filter(|&&f| case.scenario.traffic[f].kind.is_steady());
        let rates: Vec<f64> = steady.flat_map(|&f| connection_rates(case, f)).collect();
        all.extend(&rates);
        if rates.len() > 1 {
            let jain = weir_core::oracle::jain(&rates);
            put("jain", Some(jain));
            if rates.len() > largest.0 {
                largest = (rates.len(), Some(jain));
            }
        }
        results.push(group);
    }
    let shuffles = |g: &&Group| g.kind.split('+').any(|kind| kind == "shuffle");
    let shuffled: Vec<&str> = results.iter().filter(shuffles).map(|g| g.group.as_str()).collect();
    work::all_shuffles(&shuffled, summary);
    if let Some(jain) = largest.1 {
        summary.insert("jain".into(), jain);
    }
    if all.len() > 1 {
        summary.insert("jain_all".into(), weir_core::oracle::jain(&all));
    }
    if let Some(worst) = min_flow_ratio(case) {
        summary.insert("min_flow_ratio".into(), worst);
    }
    results
}

/// What each group gets while another one sends that does not send all the time.
pub(super) fn beside(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) {
    let all = members(case);
    for (name, flows) in &all {
        let own = case.active(flows);
        for (other, others) in all.iter().filter(|(other, _)| other != name) {
            let both: Vec<usize> =
                case.active(others).into_iter().filter(|s| own.binary_search(s).is_ok()).collect();
            if both.is_empty() || both.len() == own.len() {
                continue;
            }
            let mean = case.mean_goodput(flows, both.into_iter()).round();
            summary.insert(format!("goodput_beside.{name}.{other}"), mean);
        }
    }
}

/// Samples that are not within the time that what survives may take after an agent went down.
fn settled(case: &Case<'_>, samples: &[usize]) -> Vec<usize> {
    let down = |fault: &Fault| match fault.kind {
        FaultKind::KillAgent { .. }
        | FaultKind::RestartAgent { .. }
        | FaultKind::BreakPort { .. } => Some(fault.at.as_secs_f64()),
        _ => None,
    };
    let downs: Vec<f64> = case.scenario.faults.iter().filter_map(down).collect();
    let is_settled = |&sample: &usize| {
        let (from, to) = case.bounds(sample);
        downs.iter().all(|&at| to <= at + SLACK_S || from + SLACK_S >= at + SETTLE_S)
    };
    samples.iter().copied().filter(is_settled).collect()
}

/// Groups in the order of their first appearance, with their traffic entries.
fn members(case: &Case<'_>) -> Vec<(String, Vec<usize>)> {
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for (index, traffic) in case.scenario.traffic.iter().enumerate() {
        match groups.iter_mut().find(|(name, _)| *name == traffic.group) {
            Some((_, flows)) => flows.push(index),
            None => groups.push((traffic.group.clone(), vec![index])),
        }
    }
    groups
}

fn result(case: &Case<'_>, name: &str, flows: &[usize], samples: &[usize]) -> Group {
    let per_sample = |s: usize, value: &dyn Fn(&super::ideal::Solution, usize) -> f64| {
        let (from, to) = case.bounds(s);
        case.ideal.mean(from, to, |x| flows.iter().map(|&f| value(x, f) * case.share(f)).sum())
    };
    let promised = |s: usize| per_sample(s, &|x, f| x.promised[f]);
    let ideal = |s: usize| per_sample(s, &|x, f| x.rate[f]);
    let goodput = |s: usize| flows.iter().map(|&f| case.goodput(f, s)).sum::<f64>();
    let kinds: BTreeSet<&str> =
        flows.iter().map(|&f| case.scenario.traffic[f].kind.name()).collect();
    Group {
        group: name.into(),
        kind: kinds.into_iter().collect::<Vec<_>>().join("+"),
        connections: flows.iter().map(|&f| planned_connections(case, f)).sum(),
        promised_bps: case.mean(samples.iter().copied(), promised).round(),
        ideal_bps: case.mean(samples.iter().copied(), ideal).round(),
        goodput_bps: case.mean(samples.iter().copied(), goodput).round(),
        series_bps: (0..case.observed.samples()).map(|s| goodput(s).round()).collect(),
        promised_series_bps: (0..case.observed.samples()).map(|s| promised(s).round()).collect(),
        times: None,
    }
}

fn planned_connections(case: &Case<'_>, flow: usize) -> u32 {
    match case.scenario.traffic[flow].kind {
        TrafficKind::Tcp { connections, .. } => connections,
        _ => 1,
    }
}

/// Rate of each connection of a traffic entry while the entry is active, octets per sample; one that
/// never came up counts as zero. None if the entry is not active in the measured interval.
fn connection_rates(case: &Case<'_>, flow: usize) -> Vec<f64> {
    let active = case.active(&[flow]).len();
    if active == 0 {
        return Vec::new();
    }
    let mut octets = case.observed.flows[flow].connections.clone();
    octets.resize(octets.len().max(planned_connections(case, flow) as usize), 0);
    octets.into_iter().map(|octets| octets as f64 / active as f64).collect()
}

/// On-wire rate of the group / rate of the link it is measured against.
fn of_link(case: &Case<'_>, flows: &[usize], samples: &[usize]) -> Option<f64> {
    let link = links::reference(case, flows.first().copied())?;
    // Answers to requests go the other way.
    let crossing = || flows.iter().filter(|&&f| case.routes[f].contains(&link));
    let got = |s: usize| crossing().map(|&f| case.on_wire(f, s)).sum::<f64>();
    Some(case.mean(samples.iter().copied(), got) / links::rate(case, link))
}

/// The smallest share that any traffic entry got of what the ideal gives it.
fn min_flow_ratio(case: &Case<'_>) -> Option<f64> {
    let steady = |f: &usize| case.scenario.traffic[*f].kind.is_steady();
    let ratios = (0..case.routes.len()).filter(steady).filter_map(|f| ratio_to_ideal(case, &[f]));
    ratios.min_by(f64::total_cmp)
}

/// What `flows` got in the measured interval / what the ideal gives them. `None` if it gives them nothing.
fn ratio_to_ideal(case: &Case<'_>, flows: &[usize]) -> Option<f64> {
    let sum = |value: &dyn Fn(usize) -> f64| flows.iter().map(|&f| value(f)).sum::<f64>();
    let got = case.mean(case.measured.clone(), |s| sum(&|f| case.on_wire(f, s)));
    let ideal = case.mean(case.measured.clone(), |s| {
        let (from, to) = case.bounds(s);
        case.ideal.mean(from, to, |solution| sum(&|f| solution.rate[f]))
    });
    (ideal > 0.0).then_some(got / ideal)
}

/// What pairs of VMs got / what the ideal gives them, into `summary`: the mean over pairs, and the first
/// percentile, for a mean of many hides the few that starve.
pub(super) fn of_ideal(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) {
    let steady = |flows: &[usize]| flows.iter().all(|&f| case.scenario.traffic[f].kind.is_steady());
    let pairs = pairs_of(case.scenario).into_iter().filter(|pair| steady(&pair.flows));
    let ratios: Vec<f64> = pairs.filter_map(|pair| ratio_to_ideal(case, &pair.flows)).collect();
    if let Some(first) = percentile(&ratios, 0.01) {
        summary.insert("pairs_of_ideal_mean".into(), mean(ratios.iter().copied()));
        summary.insert("pairs_of_ideal_p1".into(), first);
    }
}
