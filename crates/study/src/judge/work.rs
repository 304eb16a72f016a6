//! The durations of requests, short flows and shuffles.

use super::case::Case;
use crate::numbers::median;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use weir_model::observed::{Observed, Work};
use weir_model::results::Times;
use weir_model::scenario::{Scenario, TrafficKind};
use weir_units::Span;

/// Nanoseconds.
const SECOND: f64 = 1e9;

/// Whether a kind of traffic counts.
type Wanted = fn(&TrafficKind) -> bool;

/// `scenario` as far as it was wanted: a shuffle that has all its octets wants nothing more.
pub(super) fn ended(scenario: &Scenario, observed: &Observed) -> Scenario {
    let mut scenario = scenario.clone();
    for (traffic, flow) in scenario.traffic.iter_mut().zip(&observed.flows) {
        if let (TrafficKind::Shuffle { .. }, Some(work)) = (&traffic.kind, &flow.work)
            && work.is_done()
        {
            traffic.stop = traffic.stop.min(work.last).max(traffic.start + Span::from_nanos(1));
        }
    }
    scenario
}

/// The times of some traffic entries of one kind together; `None` if nothing of them was due.
pub(super) fn times<'a>(works: impl Iterator<Item = &'a Work>) -> Option<Times> {
    let (mut due, mut done) = (0, 0);
    let mut all: Option<Histogram<u32>> = None;
    for work in works {
        due += work.due;
        done += work.done;
        match &mut all {
            // It grows as needed, so that any other can be added.
            Some(all) => all.add(&work.times).expect("a histogram that resizes takes all values"),
            None => all = Some(work.times.clone()),
        }
    }
    let all = all.filter(|_| due > 0)?;
    let at =
        |quantile: f64| (!all.is_empty()).then(|| all.value_at_quantile(quantile) as f64 / SECOND);
    Some(Times {
        due,
        done,
        mean_s: (!all.is_empty()).then(|| all.mean() / SECOND),
        p50_s: at(0.5),
        p99_s: at(0.99),
        p999_s: at(0.999),
        max_s: at(1.0),
    })
}

/// The numbers of one group into `summary`, and its times if it has any: of its requests, or else
/// of its flows.
pub(super) fn judge(
    case: &Case<'_>,
    name: &str,
    flows: &[usize],
    summary: &mut BTreeMap<String, f64>,
) -> Option<Times> {
    let works = |is_wanted: Wanted| {
        let wanted = move |f: &&usize| is_wanted(&case.scenario.traffic[**f].kind);
        flows.iter().filter(wanted).filter_map(|&f| case.observed.flows[f].work.as_ref())
    };
    let mut shown = None;
    let kinds: [(&str, Wanted); 2] = [
        ("latency", |kind| matches!(kind, TrafficKind::Request(_) | TrafficKind::Memcached(_))),
        ("fct", |kind| matches!(kind, TrafficKind::Flows(_))),
    ];
    for (metric, is_wanted) in kinds {
        let Some(times) = times(works(is_wanted)) else { continue };
        let mut put = |statistic: &str, value: Option<f64>| {
            if let Some(value) = value {
                summary.insert(format!("{metric}.{name}.{statistic}"), value);
            }
        };
        put("mean", times.mean_s);
        put("p50", times.p50_s);
        put("p99", times.p99_s);
        put("p999", times.p999_s);
        shown = shown.or(Some(times));
    }
    if let Some(all) = times(works(|_| true)) {
        let unfinished = 1.0 - all.done as f64 / all.due as f64;
        summary.insert(format!("unfinished.{name}"), unfinished);
    }
    if let Some(seconds) = shuffle(case, flows) {
        summary.insert(format!("shuffle_s.{name}"), seconds);
    }
    if let Some(seconds) = shuffle_worst(case, flows) {
        summary.insert(format!("shuffle_worst_s.{name}"), seconds);
    }
    shown
}

/// From the first start of a group's shuffles to their last end; `None` if one did not end.
fn shuffle(case: &Case<'_>, flows: &[usize]) -> Option<f64> {
    let traffic = &case.scenario.traffic;
    let is_shuffle = |f: &&usize| matches!(traffic[**f].kind, TrafficKind::Shuffle { .. });
    let mut ends = Vec::new();
    for &f in flows.iter().filter(is_shuffle) {
        let work = case.observed.flows[f].work.as_ref().filter(|work| work.is_done())?;
        ends.push((traffic[f].start, work.last));
    }
    let first = ends.iter().map(|(start, _)| *start).min()?;
    let last = ends.iter().map(|(_, end)| *end).max()?;
    Some((last - first).as_secs_f64())
}

/// How long a group's shuffles would take if everything else went on as in the measured interval:
/// until its slowest receiver had all (ElasticSwitch Fig 8b, "worst-case completion time"). `None`
/// if one of them ended, or receives nothing.
fn shuffle_worst(case: &Case<'_>, flows: &[usize]) -> Option<f64> {
    let traffic = &case.scenario.traffic;
    let mut receivers: BTreeMap<usize, (u64, f64)> = BTreeMap::new();
    for &f in flows {
        let TrafficKind::Shuffle { octets, .. } = &traffic[f].kind else { continue };
        if case.observed.flows[f].work.as_ref().is_some_and(Work::is_done) {
            return None;
        }
        let receiver = receivers.entry(traffic[f].to).or_default();
        receiver.0 += octets.get();
        receiver.1 += case.mean_goodput(&[f], case.measured.clone());
    }
    let seconds = receivers.values().map(|(octets, bps)| *octets as f64 * 8.0 / bps);
    seconds.max_by(f64::total_cmp).filter(|seconds| seconds.is_finite())
}

/// The medians over `groups`, which shuffle, of how long that took and of how long it would take,
/// and how long it took the last; none if a group has no such number: the others alone would
/// flatter.
pub(super) fn all_shuffles(groups: &[&str], summary: &mut BTreeMap<String, f64>) {
    for (each, all) in [("shuffle_s", "shuffle_p50_s"), ("shuffle_worst_s", "shuffle_worst_p50_s")]
    {
        let took = |name: &&str| summary.get(&format!("{each}.{name}")).copied();
        let Some(mut seconds) = groups.iter().map(took).collect::<Option<Vec<f64>>>() else {
            continue;
        };
        seconds.sort_by(f64::total_cmp);
        if let Some(middle) = median(&seconds) {
            summary.insert(all.into(), middle);
        }
        if let Some(last) = seconds.last().filter(|_| each == "shuffle_s") {
            summary.insert("shuffle_last_s".into(), *last);
        }
    }
}
