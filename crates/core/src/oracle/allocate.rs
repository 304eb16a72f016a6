//! Rates F·(1+λ) over the links of a network, and the rest for those without a floor.

use crate::fill::{Claim, Fine, Grant, Stop, fill, fine, whole};
use std::fmt;
use weir_units::Rate;

/// A network at one moment: the links' capacities, and the traffic of all pairs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct World {
    /// Capacity per link and direction, on the wire. Its index is the link's name here. A VM's cap
    /// is one more link, which only the VM's flows cross.
    pub links: Vec<Rate>,
    /// All traffic between two VMs is one flow, whatever its connections.
    pub flows: Vec<Flow>,
}

/// All traffic of a pair at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    /// Indices into [`World::links`]. One named twice is crossed twice and carries the flow twice.
    pub path: Vec<usize>,
    /// Demand of the pair on the wire; `None` = without limit.
    pub demand: Option<Rate>,
    /// F: rate that the floors promise this pair (see [`super::hose_max_min`]); zero if they
    /// promise nothing. F above the demand has no effect.
    pub floor: Rate,
}

impl Flow {
    /// Rate that this flow is owed: min(demand, F).
    pub fn owed(&self) -> Rate {
        self.demand.map_or(self.floor, |demand| demand.min(self.floor))
    }
}

/// Reason why a flow has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Its demand is met.
    Demand,
    /// This link is full, and no flow on it has a greater rate / F.
    Link(usize),
}

/// The ideal rates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// Per flow, on the wire; rounded down.
    pub rates: Vec<Rate>,
    /// Per flow.
    pub bottlenecks: Vec<Bottleneck>,
    /// Per link: sum of the flows' rates.
    pub loads: Vec<Rate>,
}

impl Allocation {
    /// Links that limit some flow, ascending. These are worth measuring.
    pub fn bottleneck_links(&self) -> Vec<usize> {
        let mut links: Vec<usize> = self
            .bottlenecks
            .iter()
            .filter_map(|b| match b {
                Bottleneck::Demand => None,
                Bottleneck::Link(link) => Some(*link),
            })
            .collect();
        links.sort_unstable();
        links.dedup();
        links
    }
}

/// Reason why a world has no ideal allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationError {
    /// The floors are not admissible: more is owed on this link than it carries.
    FloorsExceedLink {
        /// Index into [`World::links`].
        link: usize,
        /// Sum of min(demand, F) over the flows that cross it.
        owed: Rate,
        /// Its capacity.
        capacity: Rate,
    },
    /// The flow has no limit and crosses no link. If both VMs are on one host, give the flow a
    /// demand or a link.
    Unlimited {
        /// Index into [`World::flows`].
        flow: usize,
    },
    /// A path names a link that the world does not have.
    NoSuchLink {
        /// Index into [`World::flows`].
        flow: usize,
        /// What its path names.
        link: usize,
    },
}

impl fmt::Display for AllocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FloorsExceedLink { link, owed, capacity } => {
                write!(f, "link {link} carries {capacity}, but the floors on it sum to {owed}")
            }
            Self::Unlimited { flow } => {
                write!(f, "flow {flow} has neither a demand nor a link that could limit it")
            }
            Self::NoSuchLink { flow, link } => {
                write!(f, "the path of flow {flow} names link {link}, which does not exist")
            }
        }
    }
}

impl std::error::Error for AllocationError {}

/// The ideal allocation of `world`: every flow with a floor grows at F·(1+λ) until its demand is
/// met or a link is full; flows without a floor then share what remains, max-min with equal
/// weights.
///
/// Exact to 1 bit/s, rounded down; the same world always gives the same result. For i crossings of
/// links by flows it takes O(i·log i). Ends in [`Allocation::check`].
///
/// # Errors
/// The floors do not fit, or the world is no world: see [`AllocationError`].
pub fn allocate(world: &World) -> Result<Allocation, AllocationError> {
    check_paths(world)?;
    check_floors(world)?;

    let mut room: Vec<Fine> = world.links.iter().map(|c| fine(c.as_bps())).collect();
    let mut allocation = Allocation {
        rates: vec![Rate::ZERO; world.flows.len()],
        bottlenecks: vec![Bottleneck::Demand; world.flows.len()],
        loads: Vec::new(),
    };
    // Weights are what is owed, not F: an F above the demand changes no rate, and so the weights of
    // a link sum to no more than its capacity.
    fill_some(world, |flow| flow.owed().as_bps(), &mut room, &mut allocation);
    fill_some(world, |flow| u64::from(flow.owed().is_zero()), &mut room, &mut allocation);
    allocation.loads = loads(world, &allocation.rates);

    if let Err(violation) = allocation.check(world) {
        panic!("the oracle broke its own promise: {violation}");
    }
    Ok(allocation)
}

/// Fills with the flows whose weight is not zero, and notes what they got.
fn fill_some(
    world: &World,
    weight: impl Fn(&Flow) -> u64,
    room: &mut [Fine],
    allocation: &mut Allocation,
) {
    let (indices, claims): (Vec<usize>, Vec<Claim<'_>>) = world
        .flows
        .iter()
        .enumerate()
        .map(|(i, flow)| {
            let demand = flow.demand.map(Rate::as_bps);
            (i, Claim { weight: weight(flow), demand, path: &flow.path })
        })
        .filter(|(_, claim)| claim.weight > 0)
        .unzip();
    for (i, Grant { rate, stop }) in indices.into_iter().zip(fill(room, &claims)) {
        allocation.rates[i] = Rate::from_bps(whole(rate));
        allocation.bottlenecks[i] = match stop {
            Stop::Demand => Bottleneck::Demand,
            Stop::Link(link) => Bottleneck::Link(link),
        };
    }
}

fn check_paths(world: &World) -> Result<(), AllocationError> {
    for (i, flow) in world.flows.iter().enumerate() {
        if let Some(&link) = flow.path.iter().find(|&&link| link >= world.links.len()) {
            return Err(AllocationError::NoSuchLink { flow: i, link });
        }
        if flow.path.is_empty() && flow.demand.is_none() {
            return Err(AllocationError::Unlimited { flow: i });
        }
    }
    Ok(())
}

fn check_floors(world: &World) -> Result<(), AllocationError> {
    let owed = sums(world, |_, flow| flow.owed());
    for (link, (owed, &capacity)) in owed.into_iter().zip(&world.links).enumerate() {
        if owed > u128::from(capacity.as_bps()) {
            return Err(AllocationError::FloorsExceedLink { link, owed: clamp(owed), capacity });
        }
    }
    Ok(())
}

fn loads(world: &World, rates: &[Rate]) -> Vec<Rate> {
    sums(world, |i, _| rates[i]).into_iter().map(clamp).collect()
}

/// Per link, the sum of `part` over the flows that cross it, once per crossing, in bit/s.
pub(super) fn sums(world: &World, part: impl Fn(usize, &Flow) -> Rate) -> Vec<u128> {
    let mut sums = vec![0u128; world.links.len()];
    for (i, flow) in world.flows.iter().enumerate() {
        let part = u128::from(part(i, flow).as_bps());
        for &link in &flow.path {
            sums[link] += part;
        }
    }
    sums
}

pub(super) fn clamp(bps: u128) -> Rate {
    Rate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
}
