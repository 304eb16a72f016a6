//! The ideal rates of many flows, from scratch.
//!
//! Problem   The oracle is exact and takes 128-bit fractions for it; a datacenter has a hundred
//!           thousand flows.
//! Approach  The same three fillings in floating point: hoses give each flow its F, flows with an F
//!           grow at F·(1+λ), those without share what then remains.
//! Promises  Within 1 bit/s or a millionth of the oracle's rates. Ends in [`Allocation::check`].
//! Not here  What changes when one flow comes or goes: see `solver`.
//! Source    `weir_core::oracle`, held equal by a differential test. Departs: flows without a floor
//!           have weights, and an F may be given or follow from hoses.

use crate::csr::Csr;
use crate::fill::{BY_DEMAND, Filled, fill};
use crate::world::{AllocationError, Floor, Flows, World};
use weir_units::Rate;

/// Why a flow has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// It has all it wants.
    Demand,
    /// This link is full, and no flow on it has a greater rate / F; or, among those without a
    /// floor, rate / weight.
    Link(u32),
}

/// The ideal rates of some [`Flows`], by their positions. In bit/s, as reals: what rounding to
/// whole numbers would hide is what sums over a hundred thousand flows are checked with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// Per flow, on the wire.
    pub rates: Vec<f64>,
    /// F per flow: min(demand, what its floor promises). A part of a hose is whole bit/s, rounded
    /// down.
    pub floors: Vec<f64>,
    /// Per flow.
    pub bottlenecks: Vec<Bottleneck>,
}

impl Allocation {
    /// The rate of flow `at`; rounds down.
    ///
    /// # Panics
    /// There is no such flow.
    pub fn rate(&self, at: u32) -> Rate {
        Rate::from_bps(self.rates[at as usize] as u64)
    }
}

/// The ideal allocation of `flows` in `world`: every flow with a floor grows at F·(1+λ) until its
/// demand is met or a link is full; flows without a floor then share what remains, max-min in
/// proportion to their weights.
///
/// For i crossings of links by n flows it takes O(i + n·log n), and a few times 4·i octets.
///
/// # Errors
/// The floors do not fit, or a flow makes no sense: see [`AllocationError`].
pub fn allocate(world: &World, flows: &Flows) -> Result<Allocation, AllocationError> {
    flows.check(world)?;
    let floors = owed(world, flows);
    admissible(world, flows, &floors)?;

    let capacity = || world.links.iter().map(|link| link.as_f64());
    let csr = Csr::new(world.links.len(), flows);
    let mut allocation = Allocation {
        rates: vec![0.0; flows.len()],
        bottlenecks: vec![Bottleneck::Demand; flows.len()],
        floors,
    };
    let mut taken = Vec::new();
    if allocation.floors.iter().any(|&floor| floor > 0.0) {
        let weights = allocation.floors.clone();
        let filled = fill(&csr.with(&weights, &flows.demands), capacity());
        allocation.note(&filled, &weights, flows);
        taken = loads(world, flows, &allocation.rates);
    }
    if allocation.floors.contains(&0.0) {
        let weight = |(floor, weight): (&f64, &u32)| {
            if *floor > 0.0 { 0.0 } else { f64::from(*weight) }
        };
        let weights: Vec<f64> = allocation.floors.iter().zip(&flows.weights).map(weight).collect();
        taken.resize(world.links.len(), 0.0);
        let room = capacity().zip(&taken).map(|(capacity, taken)| capacity - taken);
        let filled = fill(&csr.with(&weights, &flows.demands), room);
        allocation.note(&filled, &weights, flows);
    }

    if let Err(violation) = allocation.check(world, flows, 0.0) {
        panic!("the allocation breaks its own promise: {violation}");
    }
    Ok(allocation)
}

impl Allocation {
    /// Notes what those with a weight got.
    fn note(&mut self, filled: &Filled, weights: &[f64], flows: &Flows) {
        for (at, &weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            (self.rates[at], self.bottlenecks[at]) = match filled.stops[at] {
                BY_DEMAND => (flows.demands[at], Bottleneck::Demand),
                link => (weight * filled.levels[at], Bottleneck::Link(link)),
            };
        }
    }
}

/// Per link: what `rates` (per flow) put on it.
pub(crate) fn loads(world: &World, flows: &Flows, rates: &[f64]) -> Vec<f64> {
    let mut loads = vec![0.0; world.links.len()];
    for (flow, rate) in (0..).zip(rates) {
        for &link in flows.path(flow) {
            loads[link as usize] += rate;
        }
    }
    loads
}

/// F per flow, no more than its demand.
fn owed(world: &World, flows: &Flows) -> Vec<f64> {
    let parts = hose_parts(world, flows);
    let owed = |at: usize| match flows.floors[at] {
        Floor::Fixed(rate) => rate.as_f64().min(flows.demands[at]),
        Floor::Hose { .. } => whole(parts[at]),
    };
    (0..flows.len()).map(owed).collect()
}

/// Whole bit/s of a part of a hose, rounded down as the oracle does; what only rounding of reals
/// took from a whole number is given back.
pub(crate) fn whole(part: f64) -> f64 {
    (part * (1.0 + 1e-12) + 1e-9).floor()
}

/// Hose max-min of the demands: each hose is a link for all flows that name it.
fn hose_parts(world: &World, flows: &Flows) -> Vec<f64> {
    let mut hoses = Flows::new();
    let mut weights = Vec::with_capacity(flows.len());
    if flows.floors.iter().all(|floor| matches!(floor, Floor::Fixed(_))) {
        return Vec::new();
    }
    for floor in &flows.floors {
        if let Floor::Hose { out, into } = *floor {
            hoses.paths.extend([out, into]);
        }
        hoses.ends.push(hoses.paths.len() as u32);
        weights.push(if matches!(floor, Floor::Hose { .. }) { 1.0 } else { 0.0 });
    }
    let csr = Csr::new(world.hoses.len(), &hoses);
    let room = world.hoses.iter().map(|hose| hose.as_f64());
    fill(&csr.with(&weights, &flows.demands), room).levels
}

fn admissible(world: &World, flows: &Flows, floors: &[f64]) -> Result<(), AllocationError> {
    if floors.iter().all(|&floor| floor == 0.0) {
        return Ok(());
    }
    let owed = loads(world, flows, floors);
    match (0u32..)
        .zip(owed.iter().zip(&world.links))
        .find(|(_, (owed, link))| **owed > link.as_f64())
    {
        Some((link, (&owed, &capacity))) => {
            let owed = Rate::from_bps_f64(owed);
            Err(AllocationError::FloorsExceedLink { link, owed, capacity })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Flow;

    fn world(links: &[u64], hoses: &[u64]) -> World {
        let rates = |all: &[u64]| all.iter().map(|&bps| Rate::from_bps(bps)).collect();
        World { links: rates(links), hoses: rates(hoses) }
    }

    fn rates(world: &World, flows: &[Flow]) -> Vec<f64> {
        allocate(world, &flows.iter().collect()).expect("admissible").rates
    }

    #[test]
    fn those_without_a_floor_share_what_is_left_by_weight() {
        let fixed = |bps| Floor::Fixed(Rate::from_bps(bps));
        let limited =
            Flow { floor: fixed(300), demand: Some(Rate::from_bps(400)), ..Flow::greedy(vec![0]) };
        let heavy = Flow { weight: 3, ..Flow::greedy(vec![0]) };
        let flows = [limited, heavy, Flow::greedy(vec![0])];
        assert_eq!(rates(&world(&[1000], &[]), &flows), [400.0, 450.0, 150.0]);
    }

    #[test]
    fn surplus_is_shared_in_proportion_to_the_parts_of_the_hoses() {
        // Hose 0 is split in two; the second half is cut to 10 by the receiver's hose.
        let to = |into| Flow { floor: Floor::Hose { out: 0, into }, ..Flow::greedy(vec![0]) };
        let got = rates(&world(&[1000], &[100, 500, 10]), &[to(1), to(2)]);
        assert_eq!(got, [900.0, 100.0]);
    }

    #[test]
    fn a_demand_alone_limits_who_crosses_nothing() {
        let flow = Flow { demand: Some(Rate::from_bps(7)), ..Flow::greedy(vec![]) };
        assert_eq!(rates(&world(&[], &[]), &[flow]), [7.0]);
    }

    #[test]
    fn floors_beyond_a_link_are_refused() {
        let floor = Floor::Fixed(Rate::from_bps(6));
        let flow = Flow { floor, ..Flow::greedy(vec![0, 0]) };
        let error = allocate(&world(&[11], &[]), &[flow].iter().collect());
        let (owed, capacity) = (Rate::from_bps(12), Rate::from_bps(11));
        assert_eq!(error, Err(AllocationError::FloorsExceedLink { link: 0, owed, capacity }));
    }
}
