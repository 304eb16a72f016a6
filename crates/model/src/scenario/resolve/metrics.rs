//! Which numbers an expectation can be about, and what they measure.

use super::Word;
use crate::scenario::error::{Error, did_you_mean};
use std::collections::BTreeSet;

/// Metrics of a whole run.
const RUN: [&str; 69] = [
    "worst_floor_ratio",
    "worst_window_ratio",
    "worst_window_p1",
    "worst_100ms_ratio",
    "worst_100ms_p1",
    "floors_unjudged",
    "worst_pair_ratio",
    "optimum_ratio",
    "min_flow_ratio",
    "pairs_of_ideal_mean",
    "pairs_of_ideal_p1",
    "jain",
    "jain_all",
    "link_utilisation",
    "total_of_link",
    "link_100ms_p1",
    "link_100ms_p5",
    "link_100ms_p15",
    "tenant_floor_ratio",
    "tenant_floor_p1",
    "tenant_floor_p10",
    "tenant_floor_100ms_p1",
    "unbound_octets",
    "total_window_min",
    "total_window_max",
    "receiver_floor_min",
    "receivers_below",
    "receiver_goodput_mean",
    "receiver_network_mean",
    "shuffle_p50_s",
    "shuffle_last_s",
    "shuffle_worst_p50_s",
    "agents_cpu_cores",
    "agent_cpu_cores",
    "agents_memory",
    "agents_memory_growth",
    "agents_pairs",
    "spoofed_delivered",
    "spoofed_counted",
    "control_sent",
    "control_believed",
    "control_refused",
    "control_unread",
    "frames_counted",
    "frames_sent",
    "control_lost",
    "control_repeated",
    "control_overtaken",
    "control_delay",
    "control_rate",
    "control_report_rate",
    "control_offers",
    "drops",
    "drops_edge",
    "drops_core",
    "queue_edge_p99",
    "queue_edge_max",
    "queue_core_p99",
    "queue_core_max",
    "marks",
    "overtaken",
    "reordered",
    "starved_s",
    "losses_reported",
    "false_losses",
    "broken_seconds",
    "broken_found",
    "reported_stretches",
    "reported_true",
];
/// Metrics of a datacenter of tenants, which has no traffic: see [`crate::scenario::Datacenter`].
const DATACENTER: [&str; 36] = [
    "tenants",
    "tenants_refused",
    "slots_used",
    "demand_accepted",
    "ports_below_9",
    "ports_9_to_12",
    "ports_above_12",
    "port_tenants_max",
    "port_circles",
    "tenants_permanent",
    "tenants_dedicated",
    "tenants_ever",
    "tenants_always",
    "codepoints_used",
    "gain_mean",
    "gain_p50",
    "gain_dedicated",
    "link_use_mean",
    "link_use_p50",
    "links_full",
    "link_use_p50_over_static",
    "static_link_use_mean",
    "static_link_use_p50",
    "static_links_full",
    "of_need_liars",
    "of_need_honest",
    "dedicated_liars",
    "dedicated_honest",
    "lies_tried",
    "lies_refused",
    "lies_won",
    "lies_won_by_weights",
    "lies_lost",
    "placement_mean_s",
    "placement_max_s",
    "binding_max_s",
];
/// The same by reason, or by part of the links.
const DATACENTER_BY: [&str; 2] = ["link_use", "without_queue"];
/// Metrics of a group: `METRIC.GROUP`.
const GROUP: [&str; 21] = [
    "goodput",
    "goodput_std",
    "share",
    "goodput_of_link",
    "goodput_of_floor",
    "window_min",
    "window_p1",
    "window_100ms_min",
    "window_100ms_p1",
    "window_min_settled",
    "convergence_s",
    "recovery_s",
    "jain",
    "shuffle_s",
    "shuffle_worst_s",
    "unfinished",
    "ack_pauses",
    "window_low",
    "window_period_s",
    "window_by_port",
    "resent",
];
/// Metrics of a group that has a trace.
const TRACED: [&str; 5] =
    ["ack_pauses", "window_low", "window_period_s", "window_by_port", "resent"];
/// Numbers of a group while another one sends: `METRIC.GROUP.OTHER`.
const BESIDE: [&str; 1] = ["goodput_beside"];
/// Times of a group's requests or flows: `METRIC.GROUP.STATISTIC`.
const TIMES: [&str; 2] = ["latency", "fct"];
const STATISTICS: [&str; 4] = ["mean", "p50", "p99", "p999"];

/// What a bound is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    None,
    Rate,
    Time,
    Octets,
}

/// Whether `word` begins like a metric: mechanisms' names do not.
pub(super) fn is_one(word: &str) -> bool {
    let name = word.split('.').next().unwrap_or_default();
    let sets = [&RUN[..], &GROUP, &BESIDE, &TIMES];
    sets.iter().any(|set| set.contains(&name))
}

/// Whether `metric` is the full name of one, of whatever group.
pub fn is_metric(metric: &str) -> bool {
    groups_of(metric).is_some() || is_of_datacenter(metric)
}

/// Whether `metric` is a number of a datacenter of tenants, which has no groups.
pub fn is_of_datacenter(metric: &str) -> bool {
    let is_by = |(name, _): (&str, &str)| DATACENTER_BY.contains(&name);
    DATACENTER.contains(&metric) || metric.split_once('.').is_some_and(is_by)
}

/// The groups of a metric, of which the first is the one that it is about; `None` if there is no
/// such metric.
fn groups_of(metric: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = metric.split('.').collect();
    match parts[..] {
        [name] if RUN.contains(&name) => Some(Vec::new()),
        [name, group] if GROUP.contains(&name) => Some(vec![group]),
        [name, group, other] if BESIDE.contains(&name) => Some(vec![group, other]),
        [name, group, statistic] if TIMES.contains(&name) && STATISTICS.contains(&statistic) => {
            Some(vec![group])
        }
        _ => None,
    }
}

/// The unit of `metric`; a ratio to the same number of another mechanism has none.
pub(super) fn unit(metric: &str, is_ratio: bool) -> Unit {
    match metric.split('.').next().unwrap_or_default() {
        _ if is_ratio => Unit::None,
        "goodput" | "goodput_beside" | "receiver_goodput_mean" => Unit::Rate,
        "receiver_network_mean" => Unit::Rate,
        "control_rate" | "control_report_rate" => Unit::Rate,
        "latency" | "fct" | "control_delay" => Unit::Time,
        "convergence_s" | "starved_s" | "recovery_s" | "window_period_s" => Unit::Time,
        "shuffle_s" | "shuffle_p50_s" | "shuffle_last_s" => Unit::Time,
        "shuffle_worst_s" | "shuffle_worst_p50_s" => Unit::Time,
        "agents_memory" => Unit::Octets,
        "queue_edge_p99" | "queue_edge_max" => Unit::Octets,
        "queue_core_p99" | "queue_core_max" => Unit::Octets,
        _ => Unit::None,
    }
}

/// What only a trace tells cannot be asked of a group without one.
pub(super) fn check_trace(
    metric: &Word,
    group: Option<&str>,
    traced: &BTreeSet<&str>,
) -> Result<(), Error> {
    let name = metric.text.split('.').next().unwrap_or_default();
    match group {
        Some(group) if TRACED.contains(&name) && !traced.contains(group) => {
            let message = format!("no connection of `{group}` is traced");
            Err(metric.error(message, "write `trace: 10ms` in its entry of `traffic`"))
        }
        _ => Ok(()),
    }
}

/// The group of a metric, if it has one; an error if metric or group are not known.
pub(super) fn group<'a>(
    metric: &'a Word,
    groups: &BTreeSet<&str>,
) -> Result<Option<&'a str>, Error> {
    let Some(named) = groups_of(&metric.text) else {
        let of_group = GROUP.map(|name| format!("{name}.GROUP"));
        let beside = BESIDE.map(|name| format!("{name}.GROUP.OTHER"));
        let times = TIMES.map(|name| format!("{name}.GROUP.STATISTIC"));
        let of_groups = of_group.into_iter().chain(beside).chain(times);
        let known: Vec<String> = of_groups.chain(RUN.map(String::from)).collect();
        let message = format!("unknown metric `{}`", metric.text);
        let help = did_you_mean(&metric.text, known.iter().map(String::as_str));
        return Err(metric.error(message, help));
    };
    for group in &named {
        if !groups.contains(group) {
            let message = format!("there is no group `{group}` in `traffic`");
            return Err(metric.error(message, did_you_mean(group, groups.iter().copied())));
        }
    }
    Ok(named.first().copied())
}
