//! The oracle's answer for every moment of a scenario.
//!
//! All traffic of a pair of VMs is one flow to the oracle; its rate is divided among the pair's
//! traffic entries max-min by their demands.

use super::bundles::{self, Bundles};
use super::case::SLACK_S;
use super::demand::{self, Piece};
use std::collections::BTreeMap;
use std::rc::Rc;
use weir_core::oracle::{Flow, PairDemand, World, allocate, hose_max_min};
use weir_model::scenario::{Hoses, Scenario};
use weir_units::{PairId, Rate, VmId};

/// What is promised and what is ideal while no demand changes. Rates in bit/s on the wire.
#[derive(Clone, Debug, Default)]
pub(super) struct Solution {
    /// What each traffic entry wants.
    pub(super) demand: Vec<Rate>,
    /// F per traffic entry.
    pub(super) promised: Vec<f64>,
    /// The ideal rate per traffic entry.
    pub(super) rate: Vec<f64>,
    /// What each directed link carries in the ideal allocation.
    pub(super) carried: Vec<f64>,
    /// Whether the directed link stops a flow in the ideal allocation.
    pub(super) bottleneck: Vec<bool>,
}

/// The run as pieces of constant demand, each with its solution.
pub(super) struct Ideal {
    pieces: Vec<(f64, f64, Rc<Solution>)>,
}

impl Ideal {
    /// Solves `scenario`. Equal demands are solved once, however often a burst repeats them.
    ///
    /// # Errors
    /// The floors do not fit the links.
    pub(super) fn new(scenario: &Scenario) -> Result<Self, String> {
        let (routes, bundles) = bundles::routes(scenario);
        let mut solved: BTreeMap<Vec<Rate>, Rc<Solution>> = BTreeMap::new();
        let mut pieces = Vec::new();
        for Piece { start, end, demand } in demand::pieces(scenario) {
            let solution = match solved.get(&demand) {
                Some(known) => Rc::clone(known),
                None => Rc::new(solve(scenario, (&routes, &bundles), &demand)?),
            };
            solved.insert(demand, Rc::clone(&solution));
            pieces.push((start, end, solution));
        }
        Ok(Self { pieces })
    }

    /// Mean of `value` over the time from `from` to `to` (seconds); zero outside the run.
    pub(super) fn mean(&self, from: f64, to: f64, value: impl Fn(&Solution) -> f64) -> f64 {
        let part = |&(start, end, ref solution): &(f64, f64, Rc<Solution>)| {
            let span = end.min(to) - start.max(from);
            if span > 0.0 { span * value(solution) } else { 0.0 }
        };
        self.between(from, to).iter().map(part).sum::<f64>() / (to - from)
    }

    /// Whether `holds` is true at every moment from `from` to `to` (seconds).
    pub(super) fn all(&self, from: f64, to: f64, holds: impl Fn(&Solution) -> bool) -> bool {
        self.between(from, to).iter().all(|(start, end, solution)| {
            end.min(to) - start.max(from) < SLACK_S || holds(solution)
        })
    }

    /// Start, end (seconds) and solution of each piece, in the order of time.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (f64, f64, &Solution)> {
        self.pieces.iter().map(|(start, end, solution)| (*start, *end, solution.as_ref()))
    }

    fn between(&self, from: f64, to: f64) -> &[(f64, f64, Rc<Solution>)] {
        let first = self.pieces.partition_point(|&(_, end, _)| end <= from);
        let last = self.pieces.partition_point(|&(start, _, _)| start < to);
        &self.pieces[first.min(last)..last]
    }
}

/// All traffic entries from one VM to another.
pub(super) struct Pair {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) flows: Vec<usize>,
}

/// The pairs of the traffic matrix, in the order of their VMs.
pub(super) fn pairs_of(scenario: &Scenario) -> Vec<Pair> {
    let mut pairs: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (index, traffic) in scenario.traffic.iter().enumerate() {
        pairs.entry((traffic.from, traffic.to)).or_default().push(index);
    }
    pairs.into_iter().map(|((from, to), flows)| Pair { from, to, flows }).collect()
}

/// F of each pair for these demands of the pairs.
pub(super) fn promises(scenario: &Scenario, pairs: &[Pair], demands: &[Rate]) -> Vec<Rate> {
    let hoses = Hoses::of(scenario);
    let demand = |(pair, &demand): (&Pair, &Rate)| PairDemand {
        pair: PairId::new(VmId(pair.from as u32), VmId(pair.to as u32)),
        demand: limited(demand),
        hoses: hoses.places(pair.from, pair.to),
    };
    hose_max_min(hoses.list(), &pairs.iter().zip(demands).map(demand).collect::<Vec<_>>())
}

fn limited(demand: Rate) -> Option<Rate> {
    (demand < Rate::MAX).then_some(demand)
}

fn solve(
    scenario: &Scenario,
    (routes, bundles): (&[Vec<usize>], &Bundles),
    demand: &[Rate],
) -> Result<Solution, String> {
    let pairs = pairs_of(scenario);
    let wants = |pair: &Pair| pair.flows.iter().map(|&f| demand[f]).sum::<Rate>();
    let demands: Vec<Rate> = pairs.iter().map(wants).collect();
    let promises = promises(scenario, &pairs, &demands);

    let mut links: Vec<Rate> =
        scenario.topology.links.iter().flat_map(|link| [link.rate, link.rate]).collect();
    let real = links.len();
    links.extend(&bundles.rates);
    let caps: Vec<usize> = scenario.vms.iter().map(|vm| add_cap(&mut links, vm.cap_out)).collect();
    let flow = |((pair, &demand), &floor): ((&Pair, &Rate), &Rate)| {
        let mut path = routes[pair.flows[0]].clone();
        path.extend(bundles.of[pair.flows[0]].iter().map(|bundle| real + bundle));
        path.extend(Some(caps[pair.from]).filter(|&cap| cap >= real));
        // Nothing could limit unlimited traffic within one host; it counts as satisfied at F.
        let demand = if path.is_empty() { Some(demand.min(floor)) } else { limited(demand) };
        Flow { path, demand, floor }
    };
    let flows: Vec<Flow> = pairs.iter().zip(&demands).zip(&promises).map(flow).collect();
    let ideal = allocate(&World { links, flows }).map_err(|e| named(scenario, &e))?;

    let mut solution = Solution {
        demand: demand.to_vec(),
        promised: vec![0.0; demand.len()],
        rate: vec![0.0; demand.len()],
        carried: ideal.loads[..real].iter().map(|load| load.as_f64()).collect(),
        bottleneck: vec![false; real],
    };
    for (bundle, links) in bundles.links.iter().enumerate() {
        for (link, part) in links {
            solution.carried[*link] += ideal.loads[real + bundle].as_f64() * part;
        }
    }
    for link in ideal.bottleneck_links().into_iter().filter(|&link| link < real) {
        solution.bottleneck[link] = true;
    }
    for ((pair, &promise), &rate) in pairs.iter().zip(&promises).zip(&ideal.rates) {
        let wants: Vec<f64> = pair.flows.iter().map(|&f| demand[f].as_f64()).collect();
        let promised = divide(promise.as_f64(), &wants);
        let rates = divide(rate.as_f64(), &wants);
        for ((&f, promised), rate) in pair.flows.iter().zip(promised).zip(rates) {
            solution.promised[f] = promised;
            solution.rate[f] = rate;
        }
    }
    Ok(solution)
}

/// A VM's cap is a link that only it crosses. Returns its index; 0 (a real link) if there is none.
fn add_cap(links: &mut Vec<Rate>, cap: Option<Rate>) -> usize {
    match cap {
        None => 0,
        Some(cap) => {
            links.push(cap);
            links.len() - 1
        }
    }
}

fn named(scenario: &Scenario, error: &weir_core::oracle::AllocationError) -> String {
    use weir_core::oracle::AllocationError as E;
    match *error {
        E::FloorsExceedLink { link, owed, capacity } => format!(
            "{}: the floors need {owed} of link {}, which carries {capacity}: lower the floors",
            scenario.name,
            scenario
                .topology
                .links
                .get(link / 2)
                .map_or("of equal ways, or a VM's cap", |l| &l.name),
        ),
        E::Unlimited { .. } | E::NoSuchLink { .. } => format!("{}: {error}", scenario.name),
    }
}

/// `pool` divided max-min among the demands `wants`.
fn divide(pool: f64, wants: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|&a, &b| wants[a].total_cmp(&wants[b]));
    let mut parts = vec![0.0; wants.len()];
    let mut left = pool;
    for (done, &index) in order.iter().enumerate() {
        parts[index] = wants[index].min(left / (wants.len() - done) as f64);
        left -= parts[index];
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::divide;

    #[test]
    fn a_pair_is_divided_among_its_entries_by_demand() {
        assert_eq!(divide(90.0, &[f64::MAX, 20.0, f64::MAX]), vec![35.0, 20.0, 35.0]);
        assert_eq!(divide(10.0, &[0.0, 30.0]), vec![0.0, 10.0]);
    }
}
