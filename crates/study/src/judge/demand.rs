//! What each traffic entry wants at each moment, from the scenario alone.

use weir_model::scenario::{Scenario, Traffic, TrafficKind};
use weir_units::{Rate, Span};

/// A piece of time in which no demand changes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Piece {
    /// Seconds from the start of the run.
    pub(super) start: f64,
    /// Seconds from the start of the run.
    pub(super) end: f64,
    /// Demand of each traffic entry on the wire; [`Rate::MAX`] for TCP, zero while it is silent.
    pub(super) demand: Vec<Rate>,
}

/// The run, cut at every start, stop and burst edge.
pub(super) fn pieces(scenario: &Scenario) -> Vec<Piece> {
    let end = scenario.duration.as_nanos();
    let mut cuts = vec![0, end];
    for traffic in &scenario.traffic {
        cuts.extend(edges(traffic, end));
    }
    cuts.retain(|&cut| cut <= end);
    cuts.sort_unstable();
    cuts.dedup();
    let piece = |pair: &[u64]| {
        let middle = Span::from_nanos(pair[0] + (pair[1] - pair[0]) / 2);
        Piece {
            start: pair[0] as f64 / 1e9,
            end: pair[1] as f64 / 1e9,
            demand: scenario.traffic.iter().map(|t| at(t, middle)).collect(),
        }
    };
    cuts.windows(2).map(piece).collect()
}

/// Instants (ns) at which `traffic` changes its demand, up to `end`.
fn edges(traffic: &Traffic, end: u64) -> Vec<u64> {
    let (start, stop) = (traffic.start.as_nanos(), traffic.stop.as_nanos().min(end));
    let mut edges = vec![start, stop];
    if let Some((on, off)) = bursts(traffic) {
        let mut at = start;
        while at < stop {
            edges.push(at);
            edges.push((at + on).min(stop));
            at = at.saturating_add(on + off);
        }
    }
    edges
}

/// Burst and pause in ns; `None` if it never pauses.
fn bursts(traffic: &Traffic) -> Option<(u64, u64)> {
    match traffic.kind {
        TrafficKind::Udp { on: Some(on), off: Some(off), .. } if off > Span::ZERO => {
            Some((on.as_nanos().max(1), off.as_nanos()))
        }
        _ => None,
    }
}

fn at(traffic: &Traffic, moment: Span) -> Rate {
    if moment < traffic.start || moment >= traffic.stop {
        return Rate::ZERO;
    }
    let into = (moment - traffic.start).as_nanos();
    let sends = bursts(traffic).is_none_or(|(on, off)| into % (on + off) < on);
    if sends { traffic.kind.offers().unwrap_or(Rate::MAX) } else { Rate::ZERO }
}
