//! What a solver is told: links, hoses, and flows over them.

use thiserror::Error;
use weir_units::Rate;

/// What links carry and what hoses promise. Flows come and go; this stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// Capacity per link and direction, on the wire. Its index is the link's name here. A VM's cap
    /// is one more link, which only the VM's flows cross.
    pub links: Vec<Rate>,
    /// The floors of VMs, one entry per VM and direction; [`Floor::Hose`] names two of them.
    pub hoses: Vec<Rate>,
}

/// What a flow is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// This rate, whichever other flows exist; [`Rate::ZERO`] = nothing.
    Fixed(Rate),
    /// Its part of two hoses: the sender's floor out and the receiver's floor in, by hose max-min
    /// of the demands of all flows that are there. The flow is all traffic of its pair.
    Hose {
        /// Index into [`World::hoses`].
        out: u32,
        /// Index into [`World::hoses`].
        into: u32,
    },
}

impl Floor {
    /// Nothing is promised: the flow shares what those with a floor leave.
    pub const NONE: Self = Self::Fixed(Rate::ZERO);
}

/// All traffic of a pair, or one of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Indices into [`World::links`]. One named twice is crossed twice and carries the flow twice.
    pub path: Vec<u32>,
    /// What it is promised. What exceeds the demand is not counted.
    pub floor: Floor,
    /// Its share beside other flows without a floor, above zero; 1 in the oracle. Flows with a
    /// floor share in proportion to their floors, whatever this says.
    pub weight: u32,
    /// What it would send if it were alone, on the wire; `None` = without limit.
    pub demand: Option<Rate>,
}

impl Flow {
    /// A flow over `path` that takes what it gets: no floor, no limit, weight 1.
    pub fn greedy(path: Vec<u32>) -> Self {
        Self { path, floor: Floor::NONE, weight: 1, demand: None }
    }
}

/// Why flows have no ideal allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AllocationError {
    /// The floors are not admissible: more is owed on this link than it carries.
    #[error("link {link} carries {capacity}, but the floors on it sum to {owed}")]
    FloorsExceedLink {
        /// Index into [`World::links`].
        link: u32,
        /// Sum of min(demand, F) over the flows that cross it.
        owed: Rate,
        /// What it carries.
        capacity: Rate,
    },
    /// The flow wants everything and crosses nothing that could stop it.
    #[error("flow {flow} has neither a demand nor a link that could limit it")]
    Unlimited {
        /// Position among the flows.
        flow: u32,
    },
    /// A path names a link that the world does not have.
    #[error("the path of flow {flow} names link {link}, which does not exist")]
    NoSuchLink {
        /// Position among the flows.
        flow: u32,
        /// What its path names.
        link: u32,
    },
    /// A floor names a hose that the world does not have.
    #[error("the floor of flow {flow} names hose {hose}, which does not exist")]
    NoSuchHose {
        /// Position among the flows.
        flow: u32,
        /// What its floor names.
        hose: u32,
    },
    /// A flow without weight would get nothing, and never end.
    #[error("flow {flow} has weight 0")]
    NoWeight {
        /// Position among the flows.
        flow: u32,
    },
}

/// Flows in columns: one array per property, paths one after the other.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    pub(crate) paths: Vec<u32>,
    /// Where in `paths` each flow's path ends.
    pub(crate) ends: Vec<u32>,
    pub(crate) floors: Vec<Floor>,
    pub(crate) weights: Vec<u32>,
    /// In bit/s; infinite = without limit.
    pub(crate) demands: Vec<f64>,
}

impl Flows {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a flow; its position is its name in an [`crate::Allocation`].
    ///
    /// # Panics
    /// More than 2³² crossings of links in all.
    pub fn push(&mut self, flow: &Flow) {
        self.paths.extend_from_slice(&flow.path);
        self.ends.push(u32::try_from(self.paths.len()).expect("fewer than 2^32 crossings"));
        self.floors.push(flow.floor);
        self.weights.push(flow.weight);
        self.demands.push(real(flow.demand));
    }

    /// The links that flow `at` crosses.
    ///
    /// # Panics
    /// There is no such flow.
    pub fn path(&self, at: u32) -> &[u32] {
        let at = at as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.paths[start as usize..self.ends[at] as usize]
    }

    /// Whether every flow makes sense in `world`.
    pub(crate) fn check(&self, world: &World) -> Result<(), AllocationError> {
        for flow in 0..self.ends.len() as u32 {
            let at = flow as usize;
            let (floor, weight, demand) = (self.floors[at], self.weights[at], self.demands[at]);
            fits(world, flow, self.path(flow), floor, weight, demand)?;
        }
        Ok(())
    }
}

impl<'a> FromIterator<&'a Flow> for Flows {
    fn from_iter<I: IntoIterator<Item = &'a Flow>>(flows: I) -> Self {
        let mut all = Self::new();
        flows.into_iter().for_each(|flow| all.push(flow));
        all
    }
}

/// Bit/s as a real; infinite = without limit.
pub(crate) fn real(demand: Option<Rate>) -> f64 {
    demand.map_or(f64::INFINITY, Rate::as_f64)
}

/// Whether one flow makes sense in `world`; `flow` is its name in the error.
pub(crate) fn fits(
    world: &World,
    flow: u32,
    path: &[u32],
    floor: Floor,
    weight: u32,
    demand: f64,
) -> Result<(), AllocationError> {
    if let Some(&link) = path.iter().find(|&&link| link as usize >= world.links.len()) {
        return Err(AllocationError::NoSuchLink { flow, link });
    }
    if path.is_empty() && demand.is_infinite() {
        return Err(AllocationError::Unlimited { flow });
    }
    if weight == 0 {
        return Err(AllocationError::NoWeight { flow });
    }
    if let Floor::Hose { out, into } = floor
        && out.max(into) as usize >= world.hoses.len()
    {
        return Err(AllocationError::NoSuchHose { flow, hose: out.max(into) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_in_columns_keep_their_paths() {
        let flows: Flows = [Flow::greedy(vec![3, 1]), Flow::greedy(vec![]), Flow::greedy(vec![2])]
            .iter()
            .collect();
        let paths: Vec<&[u32]> = (0..3).map(|at| flows.path(at)).collect();
        assert_eq!(paths, [&[3, 1][..], &[], &[2]]);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let world = World { links: vec![Rate::from_bps(1)], hoses: vec![Rate::ZERO] };
        let check = |flow: Flow| [flow].iter().collect::<Flows>().check(&world);
        let some = Flow::greedy(vec![0]);
        assert_eq!(check(some.clone()), Ok(()));
        let error = check(Flow { path: vec![0, 7], ..some.clone() });
        assert_eq!(error, Err(AllocationError::NoSuchLink { flow: 0, link: 7 }));
        let error = check(Flow { path: vec![], ..some.clone() });
        assert_eq!(error, Err(AllocationError::Unlimited { flow: 0 }));
        let error = check(Flow { weight: 0, ..some.clone() });
        assert_eq!(error, Err(AllocationError::NoWeight { flow: 0 }));
        let error = check(Flow { floor: Floor::Hose { out: 0, into: 1 }, ..some });
        assert_eq!(error, Err(AllocationError::NoSuchHose { flow: 0, hose: 1 }));
    }
}
