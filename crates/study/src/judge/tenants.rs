//! What tenants have of what is reserved for them on each link.
//!
//! Problem   The floor of a bound tenant is the tenant's, per link; VMs within it may share unfairly.
//! Approach  A tenant alone, on links that are as fast as what it has reserved there: what its traffic
//!           would carry in max-min fairness is promised. Only lasting traffic counts towards the
//!           promise (`tcp`, `udp`, shuffles): what comes and goes has no demand in a moment.
//! Promises  A tenant that asks for nothing on a link is not judged there. Nor is one on a link all of
//!           whose traffic meets more of the tenant's own on a link that is full, too: what it has
//!           there, the tenant itself decides.
//! Source    QShare §3 ("tenant-level bandwidth guarantees").

use super::case::Case;
use super::floors::{SHORT_S, WINDOW_S, windows};
use crate::numbers::percentile;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::oracle::{Flow, World, allocate};
use weir_model::scenario::{Bound, Scenario, TrafficKind};
use weir_units::Rate;

/// Part of a reservation from which on it is full: rates are rounded to bit/s.
const FULL: f64 = 0.999;

/// Into `summary`, the worst over tenants and directed links: `tenant_floor_ratio` of the whole time,
/// and percentiles of windows: `tenant_floor_p1`, `tenant_floor_p10`, `tenant_floor_100ms_p1`.
pub(super) fn judge(case: &Case<'_>, bound: Option<Bound>, summary: &mut BTreeMap<String, f64>) {
    if let Some(unbound) = case.observed.unbound.filter(|_| bound.is_some()) {
        summary.insert("unbound_octets".into(), unbound as f64);
    }
    let mut keep = |name: &str, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            let worst = summary.entry(name.into()).or_insert(value);
            *worst = worst.min(value);
        }
    };
    for tenant in 0..case.scenario.tenants.len() {
        let tenant = Tenant::new(case, tenant);
        let links: BTreeSet<usize> =
            tenant.promised.iter().flat_map(|(_, _, links)| links.keys().copied()).collect();
        for link in &links {
            let samples: Vec<usize> =
                case.measured.clone().filter(|sample| tenant.asks(case, *link, *sample)).collect();
            let ratio = |samples: &[usize]| {
                let promised = |s: usize| tenant.promise(case.bounds(s), *link);
                let got = |s: usize| tenant.got(case, *link, s);
                let promised = case.mean(samples.iter().copied(), promised);
                (promised > 0.0).then(|| case.mean(samples.iter().copied(), got) / promised)
            };
            keep("tenant_floor_ratio", ratio(&samples));
            let ratios = |width: f64| -> Vec<f64> {
                windows(case, &samples, width).into_iter().filter_map(ratio).collect()
            };
            let (halves, tenths) = (ratios(WINDOW_S), ratios(SHORT_S));
            keep("tenant_floor_p1", percentile(&halves, 0.01));
            keep("tenant_floor_p10", percentile(&halves, 0.1));
            keep("tenant_floor_100ms_p1", percentile(&tenths, 0.01));
        }
    }
}

/// A tenant's traffic, and what is promised to it.
struct Tenant {
    /// Its traffic entries between hosts, each with the directed links of its way.
    flows: Vec<(usize, Vec<usize>)>,
    /// Start, end, and what is promised on each directed link, bit/s.
    promised: Vec<(f64, f64, BTreeMap<usize, f64>)>,
}

impl Tenant {
    fn new(case: &Case<'_>, tenant: usize) -> Self {
        let scenario = case.scenario;
        let of = |vm: usize| &scenario.vms[vm];
        let is_its = |entry: &&usize| {
            let traffic = &scenario.traffic[**entry];
            let ends = [of(traffic.from), of(traffic.to)];
            ends.iter().all(|vm| vm.tenant == tenant) && ends[0].host != ends[1].host
        };
        let way = |entry: usize| {
            let traffic = &scenario.traffic[entry];
            let path = scenario.tree_path(tenant, of(traffic.from).host, of(traffic.to).host);
            (entry, path.iter().map(|link| link.index()).collect())
        };
        let entries: Vec<usize> = (0..scenario.traffic.len()).collect();
        let flows: Vec<(usize, Vec<usize>)> =
            entries.iter().filter(is_its).map(|e| way(*e)).collect();
        let reserved = reserved(scenario, tenant);
        let piece = |(start, end, solution): (f64, f64, &super::ideal::Solution)| {
            (start, end, promise(scenario, &flows, &reserved, &solution.demand))
        };
        let promised = case.ideal.pieces().map(piece).collect();
        Self { flows, promised }
    }

    /// Whether something is promised on a link all the time of a sample.
    fn asks(&self, case: &Case<'_>, link: usize, sample: usize) -> bool {
        let (from, to) = case.core_of(sample);
        let mut within = self.promised.iter().filter(|(start, end, _)| *end > from && *start < to);
        within.all(|(.., links)| links.get(&link).is_some_and(|rate| *rate > 0.0))
    }

    /// Mean of what is promised on a link.
    fn promise(&self, (from, to): (f64, f64), link: usize) -> f64 {
        let part = |(start, end, links): &(f64, f64, BTreeMap<usize, f64>)| {
            let span = (end.min(to) - start.max(from)).max(0.0);
            span * links.get(&link).copied().unwrap_or(0.0)
        };
        self.promised.iter().map(part).sum::<f64>() / (to - from)
    }

    /// What it has on a link in a sample, on the wire.
    fn got(&self, case: &Case<'_>, link: usize, sample: usize) -> f64 {
        let crossing = self.flows.iter().filter(|(_, way)| way.contains(&link));
        crossing.map(|(entry, _)| case.on_wire(*entry, sample)).sum()
    }
}

/// What a tenant has reserved on all directed links.
fn reserved(scenario: &Scenario, tenant: usize) -> Vec<Rate> {
    let mut links = vec![Rate::ZERO; 2 * scenario.topology.links.len()];
    for need in scenario.needs(tenant) {
        let at = 2 * need.link.0 as usize;
        (links[at], links[at + 1]) = (need.forward, need.backward);
    }
    links
}

/// What lasting traffic would carry on each link if the links were the reservation.
fn promise(
    scenario: &Scenario,
    flows: &[(usize, Vec<usize>)],
    reserved: &[Rate],
    demand: &[Rate],
) -> BTreeMap<usize, f64> {
    let lasts = |entry: usize| {
        let kind = &scenario.traffic[entry].kind;
        matches!(
            kind,
            TrafficKind::Tcp { .. } | TrafficKind::Udp { .. } | TrafficKind::Shuffle { .. }
        )
    };
    let wanted: Vec<&(usize, Vec<usize>)> =
        flows.iter().filter(|(entry, _)| lasts(*entry) && !demand[*entry].is_zero()).collect();
    let flow = |(entry, way): &&(usize, Vec<usize>)| Flow {
        path: way.clone(),
        demand: (demand[*entry] < Rate::MAX).then_some(demand[*entry]),
        floor: Rate::ZERO,
    };
    let world = World { links: reserved.to_vec(), flows: wanted.iter().map(flow).collect() };
    let mut promised: BTreeMap<usize, f64> = BTreeMap::new();
    let mut crossing: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    if let Ok(found) = allocate(&world) {
        for ((entry, way), rate) in wanted.iter().zip(&found.rates) {
            for link in way {
                *promised.entry(*link).or_insert(0.0) += rate.as_f64();
                crossing.entry(*link).or_default().insert(*entry);
            }
        }
    }
    let is_full = |link: &usize| promised[link] >= FULL * reserved[*link].as_f64();
    let is_part = |link: usize, of: usize| {
        crossing[&link] != crossing[&of] && crossing[&link].is_subset(&crossing[&of])
    };
    let full: Vec<usize> = promised.keys().copied().filter(is_full).collect();
    let mut judged = promised.clone();
    judged.retain(|link, _| !full.iter().any(|of| is_part(*link, *of)));
    judged
}
