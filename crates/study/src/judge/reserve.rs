//! What `reservation` reserves: it is the one mechanism that is told the traffic matrix.

use super::demand;
use super::ideal::{pairs_of, promises};
use std::collections::BTreeMap;
use weir_model::scenario::{Scenario, TrafficKind};
use weir_units::{PairId, Rate, VmId};

/// Acknowledgements take less than this part of what they acknowledge.
const ACKNOWLEDGEMENTS: (u64, u64) = (5, 100);
/// Smallest reservation for acknowledgements, before `scale`.
const ACKNOWLEDGEMENTS_LEAST: Rate = Rate::from_mbps(1);

/// The static rate of each pair: the oracle's F for the largest demands of the whole run, and for TCP
/// a small rate for the reverse pair. Requests and short flows are bursts: while one is sent it wants
/// all it can get, whatever they offer on average.
pub fn reservations(scenario: &Scenario) -> Vec<(PairId, Rate)> {
    let pairs = pairs_of(scenario);
    let mut demands = vec![Rate::ZERO; pairs.len()];
    for piece in demand::pieces(scenario) {
        for (most, pair) in demands.iter_mut().zip(&pairs) {
            let wants = |&f: &usize| at_most(&scenario.traffic[f].kind, piece.demand[f]);
            *most = (*most).max(pair.flows.iter().map(wants).sum());
        }
    }
    let mut reserved: BTreeMap<PairId, Rate> = BTreeMap::new();
    for (pair, rate) in pairs.iter().zip(promises(scenario, &pairs, &demands)) {
        let id = PairId::new(VmId(pair.from as u32), VmId(pair.to as u32));
        *reserved.entry(id).or_default() += rate;
        let is_tcp = |&f: &usize| !matches!(scenario.traffic[f].kind, TrafficKind::Udp { .. });
        if pair.flows.iter().any(is_tcp) {
            let least = ACKNOWLEDGEMENTS_LEAST.scale(scenario.scale);
            let back = rate.mul_ratio(ACKNOWLEDGEMENTS.0, ACKNOWLEDGEMENTS.1).max(least);
            *reserved.entry(id.reversed()).or_default() += back;
        }
    }
    reserved.into_iter().collect()
}

/// What a traffic entry wants at its busiest moment within a time in which it offers `demand`.
fn at_most(kind: &TrafficKind, demand: Rate) -> Rate {
    match kind {
        TrafficKind::Request(_)
        | TrafficKind::Reply { .. }
        | TrafficKind::Flows(_)
        | TrafficKind::Memcached(_) => Rate::MAX,
        _ => demand,
    }
}
