//! The numbers at the ends: receivers beside each other, and the cost of agents.

use super::case::Case;
use crate::numbers::mean;
use std::collections::BTreeMap;
use weir_model::results::VmResult;

/// A receiver with less than this part of what its floor promises is below its floor.
const BELOW: f64 = 0.95;

/// The receivers' numbers into `summary`: `receiver_floor_min`, `receivers_below`,
/// `receiver_goodput_mean`; of those that are backlogged.
pub(super) fn receivers(vms: &[VmResult], summary: &mut BTreeMap<String, f64>) {
    let receivers: Vec<&VmResult> = vms.iter().filter(|vm| vm.direction == "in").collect();
    let Some(least) = receivers.iter().map(|vm| vm.ratio).min_by(f64::total_cmp) else { return };
    let count = receivers.len() as f64;
    let below = receivers.iter().filter(|vm| vm.ratio < BELOW).count() as f64;
    let goodput: f64 = receivers.iter().map(|vm| vm.goodput_bps).sum();
    summary.insert("receiver_floor_min".into(), least);
    summary.insert("receivers_below".into(), below / count);
    summary.insert("receiver_goodput_mean".into(), goodput / count);
}

/// Into `summary`: `receiver_network_mean`, what receivers get from other hosts on average, bit/s.
/// What stays on a host crosses no link, and without protection may have the host's inner rate.
pub(super) fn network(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) {
    let (vms, traffic) = (&case.scenario.vms, &case.scenario.traffic);
    let mut crossing: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (flow, entry) in traffic.iter().enumerate() {
        if vms[entry.from].host != vms[entry.to].host {
            crossing.entry(entry.to).or_default().push(flow);
        }
    }
    let goodput = |flows: &Vec<usize>| case.mean_goodput(flows, case.active(flows).into_iter());
    if !crossing.is_empty() {
        summary.insert("receiver_network_mean".into(), mean(crossing.values().map(goodput)));
    }
}

/// What the agents cost into `summary`: `agents_cpu_cores` of all together, and of the agent that
/// has most: `agent_cpu_cores`, `agents_memory`, `agents_memory_growth`, `agents_pairs`. Nothing
/// where there are none.
pub(super) fn agents(case: &Case<'_>, summary: &mut BTreeMap<String, f64>) {
    let observed = case.observed;
    let seconds = observed.samples() as f64 * case.sample_s;
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            summary.insert(name.into(), value);
        }
    };
    let most = |values: &[u64]| values.iter().copied().max().map(|most| most as f64);
    let busiest = observed.agent_cpu.iter().max();
    put("agent_cpu_cores", busiest.map(|busiest| busiest.as_secs_f64() / seconds));
    put("agents_cpu_cores", busiest.map(|_| observed.agents_cpu.as_secs_f64() / seconds));
    put("agents_memory", most(&observed.agent_memory));
    put("agents_pairs", most(&observed.agent_pairs));
    let growth = observed
        .agent_memory_before
        .iter()
        .zip(&observed.agent_memory)
        .filter(|(before, _)| **before > 0)
        .map(|(&before, &after)| after as f64 / before as f64);
    put("agents_memory_growth", growth.max_by(f64::total_cmp));
}
