//! How much of what the ideal allocation carries was carried.

use super::case::Case;
use super::floors::{SHORT_S, windows};
use crate::numbers::{mean, percentile};
use std::collections::BTreeMap;
use weir_model::observed::Observed;
use weir_model::record::QueueRecord;
use weir_model::results::LinkResult;
use weir_model::scenario::LinkDir;

/// One result per directed link, and into `summary`: `optimum_ratio`, `link_utilisation`,
/// `total_of_link`, how full tenths of a second are, and what was lost.
pub(super) fn judge(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) -> Vec<LinkResult> {
    if let Some(ratio) = optimum_ratio(case) {
        summary.insert("optimum_ratio".into(), ratio);
    }
    if let Some(link) = reference(case, None) {
        let rate = rate(case, link);
        let carried = mean(case.measured.clone().map(|s| carried(case, link, s)));
        summary.insert("link_utilisation".into(), carried / rate);
        let crossing: Vec<usize> =
            (0..case.routes.len()).filter(|&f| case.routes[f].contains(&link)).collect();
        let all = |s: usize| crossing.iter().map(|&f| case.on_wire(f, s)).sum::<f64>();
        summary.insert("total_of_link".into(), mean(case.measured.clone().map(all)) / rate);
    }
    bins(case, summary);
    losses(case, summary);
    queues(case, summary);
    (0..case.observed.links.len()).map(|link| result(case, link)).collect()
}

/// How full the reference link is in each tenth of a second:
/// `link_100ms_p1`, `link_100ms_p5`, `link_100ms_p15`, parts of its rate.
fn bins(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) {
    let Some(link) = reference(case, None) else { return };
    let samples: Vec<usize> = case.measured.clone().collect();
    let used = |window: &[usize]| {
        case.mean(window.iter().copied(), |s| carried(case, link, s)) / rate(case, link)
    };
    let bins: Vec<f64> = windows(case, &samples, SHORT_S).into_iter().map(used).collect();
    for (name, part) in [("p1", 0.01), ("p5", 0.05), ("p15", 0.15)] {
        if let Some(value) = percentile(&bins, part) {
            summary.insert(format!("link_100ms_{name}"), value);
        }
    }
}

/// What the network did to packets from the first to the last sample, at all ports together, and
/// what the mechanism says it did: `drops`, `marks`, `overtaken`, `reordered`,
/// `starved_s`, `losses_reported`, `false_losses`.
fn losses(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) {
    let links = &case.observed.links;
    let drops: u64 = links.iter().flat_map(|link| &link.drops).sum();
    let marks: u64 = links.iter().flat_map(|link| &link.marks).sum();
    summary.insert("drops".into(), drops as f64);
    summary.insert("marks".into(), marks as f64);
    // A port cannot tell; a link box can.
    if case.scenario.topology.links.iter().any(|link| link.is_more_than_a_queue()) {
        summary.insert("overtaken".into(), case.observed.overtaken as f64);
    }
    if let Some((reordered, starved)) = case.observed.disorder {
        summary.insert("reordered".into(), reordered);
        summary.insert("starved_s".into(), starved.as_secs_f64());
    }
    if let Some(reported) = case.observed.losses_reported {
        summary.insert("losses_reported".into(), reported as f64);
        summary.insert("false_losses".into(), reported.saturating_sub(drops) as f64);
    }
}

/// What switches' ports dropped from the first to the last sample, and what waited in them, before
/// hosts (edge) and between switches (core): `drops_edge`, `drops_core`, `queue_edge_p99`,
/// `queue_edge_max`, `queue_core_p99`, `queue_core_max`, as far as there are such ports and the
/// world looked.
fn queues(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) {
    let topology = &case.scenario.topology;
    let is_host = |node: usize| node < topology.hosts.len();
    let Observed { queue_edge, queue_core, .. } = case.observed;
    for (kind, before_host, queue) in [("edge", true, queue_edge), ("core", false, queue_core)] {
        let is_one = |link: &usize| {
            let direction = LinkDir::from_index(*link);
            !is_host(direction.from(topology)) && is_host(direction.to(topology)) == before_host
        };
        let ports: Vec<usize> = (0..case.observed.links.len()).filter(is_one).collect();
        if ports.is_empty() {
            continue;
        }
        let drops: u64 = ports.iter().flat_map(|port| &case.observed.links[*port].drops).sum();
        summary.insert(format!("drops_{kind}"), drops as f64);
        if let Some(QueueRecord { p99, max }) = queue {
            summary.insert(format!("queue_{kind}_p99"), *p99 as f64);
            summary.insert(format!("queue_{kind}_max"), *max as f64);
        }
    }
}

/// For each link that limits a flow in the ideal allocation: octets carried / octets the ideal
/// carries, over the samples in which it does so; the smallest of these, never above 1. `None`
/// where no link limits a flow.
fn optimum_ratio(case: &Case<'_>) -> Option<f64> {
    let mut worst: Option<f64> = None;
    for link in 0..case.observed.links.len() {
        let (mut got, mut ideal) = (0.0, 0.0);
        for sample in case.measured.clone() {
            let (from, to) = case.bounds(sample);
            if case.ideal.all(from, to, |s| s.bottleneck[link]) {
                got += carried(case, link, sample);
                ideal += case.ideal.mean(from, to, |s| s.carried[link]);
            }
        }
        if ideal > 0.0 {
            worst = Some(worst.unwrap_or(1.0).min(got / ideal));
        }
    }
    worst
}

/// The directed link that shares "of the link" are of: among those on the way of `flow` (of any
/// flow if `None`), one the scenario names as congested, else one that limits a flow in the ideal
/// allocation, else any; of several the one most entries cross, then the slowest.
pub(super) fn reference(case: &Case<'_>, flow: Option<usize>) -> Option<usize> {
    let topology = &case.scenario.topology;
    let crossed = |link: usize| case.routes.iter().filter(|way| way.contains(&link)).count();
    let on_way = |link: &usize| match flow {
        Some(f) => case.routes[f].contains(link),
        None => crossed(*link) > 0,
    };
    let named = |link: usize| case.scenario.congested.contains(&topology.links[link / 2].name);
    let limits = |link: usize| case.ideal.pieces().any(|(_, _, s)| s.bottleneck[link]);
    (0..2 * topology.links.len()).filter(on_way).max_by_key(|&link| {
        let slow = std::cmp::Reverse(topology.links[link / 2].rate);
        (named(link), limits(link), crossed(link), slow, std::cmp::Reverse(link))
    })
}

/// Rate of a directed link, bit/s.
pub(super) fn rate(case: &Case<'_>, link: usize) -> f64 {
    case.scenario.topology.links[link / 2].rate.as_f64()
}

fn carried(case: &Case<'_>, link: usize, sample: usize) -> f64 {
    let octets = case.observed.links[link].octets.get(sample).copied().unwrap_or(0);
    octets as f64 * 8.0 / case.width(sample)
}

fn result(case: &Case<'_>, link: usize) -> LinkResult {
    let observed = &case.observed.links[link];
    let ideal = |s: usize| {
        let (from, to) = case.bounds(s);
        case.ideal.mean(from, to, |solution| solution.carried[link])
    };
    LinkResult {
        link: LinkDir::from_index(link).name(&case.scenario.topology),
        rate_bps: rate(case, link),
        ideal_bps: mean(case.measured.clone().map(ideal)).round(),
        series_bps: (0..observed.octets.len()).map(|s| carried(case, link, s).round()).collect(),
        drops: observed.drops.iter().map(|&d| d as f64).collect(),
        marks: observed.marks.iter().map(|&m| m as f64).collect(),
    }
}
