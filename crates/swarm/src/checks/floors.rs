//! When everything has healed and settled, every VM that wants its floor gets it.
//!
//! Approach  The yardstick of DESIGN is the oracle's F, hose max-min of the demands. A VM is judged in a
//!           direction in which its own hose is what binds: F is all of its floor. It is owed 0.95
//!           (GUARANTEES.md 1.1) of what partitioning gives its pairs whatever their siblings do: the
//!           equal parts of both hoses, as far as they are wanted. That is less than F where a receiver
//!           takes what others borrow for what they want (`weir_core::partition`, departures).
//! Not here  Presets that promise no goodput: GUARANTEES.md 1.1 names `steady`. VMs of a tenant in which
//!           demands vary: what they are owed at a moment nobody can measure; others whom they disturb
//!           are judged. Networks with several equal ways: admission counts on packets that use them
//!           alike. Pairs from a host whose pairs are owed more than its link carries: their floors are
//!           scaled (GUARANTEES.md 6.2); counted. TCP whose acknowledgements share a queue with data of the other direction, and VMs
//!           that a peer's hose holds below their own: see docs/swarm.md, "What is not owed yet".

use crate::breach::Breaches;
use crate::terms::Terms;
use std::collections::BTreeMap;
use weir_core::oracle::{Hose, PairDemand, TCP_PAYLOAD, hose_max_min, udp_payload};
use weir_model::scenario::{Scenario, Traffic, TrafficKind};
use weir_sim::Look;
use weir_units::{HostId, PairId, Rate, Time, VmId};

const CHECK: &str = "floor";
/// What of its floor a VM is owed.
const OWED: f64 = 0.95;
/// A pair of which its hose has less finds no place in it (docs/algorithms/elasticswitch.md).
const LEAST: Rate = Rate::from_bps(64_000);

/// VMs whose floors are judged.
#[derive(Debug)]
pub(crate) struct Floors {
    /// Of each VM: whether its demand and those of all whom it is bound to by hoses are steady.
    judged: Vec<bool>,
    /// Of each VM: whether what its host's pairs are owed is more than its link carries.
    overbooked: Vec<bool>,
    /// F, and what is owed, per pair that sends while floors are judged.
    promised: BTreeMap<(usize, usize), (Rate, Rate)>,
    /// Since when.
    pub(crate) since: Option<Time>,
    /// Directions of VMs that were judged, and what the worst of them got of what it is owed.
    pub(crate) count: usize,
    pub(crate) worst: Option<f64>,
    /// Directions that would have been judged, had their hosts' links carried all floors.
    pub(crate) overbooked_count: usize,
}

impl Floors {
    pub(super) fn new(terms: &Terms) -> Self {
        let scenario = &terms.scenario;
        let active: Vec<&Traffic> = scenario.traffic.iter().filter(|t| sends(terms, t)).collect();
        let mut judged = vec![terms.is_steady && has_single_ways(scenario); scenario.vms.len()];
        let groups = groups(scenario, &active);
        for traffic in &active {
            let of_src = active.iter().filter(|t| t.from == traffic.from).count();
            let room = scenario.vms[traffic.from].floor_out.split(2 * of_src + 1) >= LEAST;
            if demand(traffic).is_none() || !room {
                let group = groups[traffic.from];
                judged
                    .iter_mut()
                    .zip(&groups)
                    .filter(|(_, g)| **g == group)
                    .for_each(|j| *j.0 = false);
            }
        }
        let promised = promised(scenario, &active);
        for (vm, is_judged) in judged.iter_mut().enumerate() {
            let is_mine = |t: &&&Traffic| (t.from == vm || t.to == vm) && is_tcp(t);
            let is_crossed = |t: &&Traffic| active.iter().any(|o| (o.from, o.to) == (t.to, t.from));
            *is_judged &= !active.iter().filter(is_mine).any(is_crossed);
        }
        let overbooked = overbooked(terms, &active, &promised);
        Self {
            judged,
            overbooked,
            promised,
            since: None,
            count: 0,
            worst: None,
            overbooked_count: 0,
        }
    }

    pub(super) fn end(
        &mut self,
        terms: &Terms,
        look: &Look,
        octets: &[u64],
        breaches: &mut Breaches,
    ) {
        let Some(since) = self.since.filter(|since| *since < look.at) else { return };
        let seconds = look.at.since(since).as_secs_f64();
        for (vm, is_judged) in self.judged.clone().into_iter().enumerate() {
            let floors = [terms.scenario.vms[vm].floor_out, terms.scenario.vms[vm].floor_in];
            for (floor, end) in floors.into_iter().zip([End::Out, End::In]) {
                let (mut wants, mut got) = (Rate::ZERO, 0.0);
                for (traffic, octets) in terms.scenario.traffic.iter().zip(octets) {
                    if end.is_of(vm, traffic) && sends(terms, traffic) {
                        wants += demand(traffic).unwrap_or_default();
                        got += *octets as f64 * 8.0 / payload(traffic) / seconds;
                    }
                }
                let mine = self.promised.iter().filter(|((from, to), _)| end.of(*from, *to) == vm);
                let (mut promised, mut owed) = (Rate::ZERO, Rate::ZERO);
                for (_, (f, part)) in mine {
                    promised += *f;
                    owed += *part;
                }
                // Rounded to a whole bit/s per pair.
                let binds = promised + Rate::from_bps(100) >= floor;
                if !is_judged || floor.is_zero() || !binds || wants < floor {
                    continue;
                }
                if self.is_overbooked(vm, end) {
                    self.overbooked_count += 1;
                    continue;
                }
                let part = got / owed.as_f64();
                self.count += 1;
                self.worst = Some(self.worst.map_or(part, |worst| worst.min(part)));
                let of = format!("{}, {}", terms.name(VmId(vm as u32)), end.name());
                breaches.unless(part >= OWED, (look.at, CHECK), &of, || {
                    let got = Rate::from_bps_f64(got);
                    format!("{got} of {owed} on the wire, of a floor of {floor}: {part:.3}")
                });
            }
        }
    }
}

impl Floors {
    /// Whether a pair of the VM in this direction comes from a host with an overbooked link.
    fn is_overbooked(&self, vm: usize, end: End) -> bool {
        let mut mine = self.promised.keys().filter(|(from, to)| end.of(*from, *to) == vm);
        mine.any(|(from, _)| self.overbooked[*from])
    }
}

#[derive(Clone, Copy)]
enum End {
    Out,
    In,
}

impl End {
    fn of<T>(self, from: T, to: T) -> T {
        match self {
            Self::Out => from,
            Self::In => to,
        }
    }

    fn is_of(self, vm: usize, traffic: &Traffic) -> bool {
        self.of(traffic.from, traffic.to) == vm
    }

    fn name(self) -> &'static str {
        self.of("out", "in")
    }
}

/// Whether a traffic entry under a hose sends while floors are judged.
fn sends(terms: &Terms, traffic: &Traffic) -> bool {
    let vms = [traffic.from, traffic.to].map(|vm| terms.scenario.vms[vm].tenant);
    vms[0] == vms[1] && Time::ZERO + traffic.stop > terms.judged_from()
}

/// What an entry wants at every moment; `None` if that varies.
fn demand(traffic: &Traffic) -> Option<Rate> {
    match &traffic.kind {
        TrafficKind::Tcp { .. } => Some(Rate::MAX),
        TrafficKind::Udp { rate, off: None, .. } => Some(*rate),
        _ => None,
    }
}

/// Application octets per octet on the wire.
fn payload(traffic: &Traffic) -> f64 {
    match &traffic.kind {
        TrafficKind::Udp { payload, .. } => udp_payload(*payload),
        _ => TCP_PAYLOAD,
    }
}

/// Of each VM the least VM that it is bound to by hoses.
fn groups(scenario: &Scenario, active: &[&Traffic]) -> Vec<usize> {
    let mut groups: Vec<usize> = (0..scenario.vms.len()).collect();
    // Each round binds at least one more VM.
    for _ in 0..groups.len() {
        for traffic in active {
            let least = groups[traffic.from].min(groups[traffic.to]);
            (groups[traffic.from], groups[traffic.to]) = (least, least);
        }
    }
    groups
}

fn is_tcp(traffic: &Traffic) -> bool {
    matches!(traffic.kind, TrafficKind::Tcp { .. })
}

/// F, and the equal parts of both hoses as far as they are wanted.
fn promised(scenario: &Scenario, active: &[&Traffic]) -> BTreeMap<(usize, usize), (Rate, Rate)> {
    let mut wants: BTreeMap<(usize, usize), Rate> = BTreeMap::new();
    for traffic in active {
        *wants.entry((traffic.from, traffic.to)).or_default() +=
            demand(traffic).unwrap_or_default();
    }
    let hose =
        |vm: &weir_model::scenario::Vm| Hose { floor_out: vm.floor_out, floor_in: vm.floor_in };
    let hoses: Vec<Hose> = scenario.vms.iter().map(hose).collect();
    let demand = |((from, to), rate): (&(usize, usize), &Rate)| PairDemand {
        pair: PairId::new(VmId(*from as u32), VmId(*to as u32)),
        demand: (*rate < Rate::MAX).then_some(*rate),
        shares_hose: true,
    };
    let demands: Vec<PairDemand> = wants.iter().map(demand).collect();
    let all: Vec<(usize, usize)> = wants.keys().copied().collect();
    let part = |(&(from, to), &wants): (&(usize, usize), &Rate)| {
        let peers =
            |of: fn(&(usize, usize)) -> usize, vm| all.iter().filter(|p| of(p) == vm).count();
        let out = scenario.vms[from].floor_out.split(peers(|pair| pair.0, from));
        wants.min(out).min(scenario.vms[to].floor_in.split(peers(|pair| pair.1, to)))
    };
    let parts = wants.iter().map(part);
    let both = hose_max_min(&hoses, &demands).into_iter().zip(parts);
    wants.keys().copied().zip(both).collect()
}

/// Of each VM: whether what its host's pairs are owed, those within the host among them, is more than the
/// host's link carries. All of it passes the uplink's shaper. Where demands vary, answers among them, a VM
/// may be owed all of its hose at some moments.
fn overbooked(
    terms: &Terms,
    active: &[&Traffic],
    promised: &BTreeMap<(usize, usize), (Rate, Rate)>,
) -> Vec<bool> {
    let vms = &terms.scenario.vms;
    let mut of_vms = vec![Rate::ZERO; vms.len()];
    for ((from, _), (f, _)) in promised {
        of_vms[*from] += *f;
    }
    for traffic in active.iter().filter(|traffic| demand(traffic).is_none()) {
        for vm in [traffic.from, traffic.to] {
            of_vms[vm] = vms[vm].floor_out;
        }
    }
    let mut of_hosts: BTreeMap<usize, Rate> = BTreeMap::new();
    for (vm, owed) in vms.iter().zip(of_vms) {
        *of_hosts.entry(vm.host).or_default() += owed;
    }
    vms.iter().map(|vm| of_hosts[&vm.host] > terms.line(HostId(vm.host as u32))).collect()
}

/// Whether there is one way between any two hosts.
fn has_single_ways(scenario: &Scenario) -> bool {
    let topology = &scenario.topology;
    let hosts = 0..topology.hosts.len();
    topology.ecmp.is_none()
        || hosts.into_iter().all(|to| topology.forwarding_to(to).iter().all(|ways| ways.len() <= 1))
}
