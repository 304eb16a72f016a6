//! Verifies an allocation from scratch: each flow's bottleneck is its witness.

use super::allocate::{Allocation, Bottleneck, Flow, World, clamp, sums};
use std::fmt;
use weir_units::Rate;

/// A promise that an allocation does not keep. Indices are those of the [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Not one rate and bottleneck per flow, or not one load per link, or a path that leads
    /// nowhere.
    Shape,
    /// The load noted for a link is not what the rates put on it.
    WrongLoad {
        /// The link.
        link: usize,
        /// Load that the allocation claims.
        noted: Rate,
        /// Sum of the rates.
        actual: Rate,
    },
    /// More than a link's capacity.
    Overload {
        /// The link.
        link: usize,
        /// Sum of the rates.
        load: Rate,
        /// Its capacity.
        capacity: Rate,
    },
    /// Less than promised.
    BelowFloor {
        /// The flow.
        flow: usize,
        /// Its rate.
        rate: Rate,
        /// min(demand, F).
        owed: Rate,
    },
    /// More than the demand.
    AboveDemand {
        /// The flow.
        flow: usize,
        /// Its rate.
        rate: Rate,
        /// Its demand.
        demand: Rate,
    },
    /// The flow's bottleneck is its demand, but it has less, or it has no demand.
    DemandUnmet {
        /// The flow.
        flow: usize,
        /// Its rate.
        rate: Rate,
    },
    /// The flow's bottleneck is a link that it does not cross.
    NotOnPath {
        /// The flow.
        flow: usize,
        /// The link.
        link: usize,
    },
    /// The flow's bottleneck is a link that still has room. For a flow with a floor, the rates of
    /// flows without one count as room.
    NotFull {
        /// The flow.
        flow: usize,
        /// The link.
        link: usize,
        /// Rates that count as taken.
        taken: Rate,
        /// Its capacity.
        capacity: Rate,
    },
    /// The flow's bottleneck is a link where another flow has a greater rate / F. (Among flows
    /// without a floor: a greater rate.)
    NotGreatest {
        /// The flow.
        flow: usize,
        /// The link.
        link: usize,
        /// The other flow.
        other: usize,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape => write!(f, "the allocation does not have the shape of its world"),
            Self::WrongLoad { link, noted, actual } => {
                write!(f, "link {link} is said to carry {noted}, and carries {actual}")
            }
            Self::Overload { link, load, capacity } => {
                write!(f, "link {link} carries {load}, more than its {capacity}")
            }
            Self::BelowFloor { flow, rate, owed } => {
                write!(f, "flow {flow} has {rate}, less than the {owed} it was promised")
            }
            Self::AboveDemand { flow, rate, demand } => {
                write!(f, "flow {flow} has {rate}, more than the {demand} it wants")
            }
            Self::DemandUnmet { flow, rate } => {
                write!(f, "flow {flow} wants more than its {rate}, and no link is said to limit it")
            }
            Self::NotOnPath { flow, link } => {
                write!(
                    f,
                    "flow {flow} is said to be limited by link {link}, which it never crosses"
                )
            }
            Self::NotFull { flow, link, taken, capacity } => {
                write!(f, "flow {flow} waits at link {link}, where {taken} of {capacity} are taken")
            }
            Self::NotGreatest { flow, link, other } => {
                write!(
                    f,
                    "flow {flow} waits at link {link}, where flow {other} has a greater share"
                )
            }
        }
    }
}

impl std::error::Error for Violation {}

/// What flows of one kind (with or without a floor) do on one link.
#[derive(Clone, Copy, Default)]
struct Use {
    /// How often it is crossed: each crossing may have lost less than 1 bit/s to rounding.
    crossings: u64,
    /// The flow with the greatest rate / weight.
    greatest: Option<usize>,
}

impl Allocation {
    /// Whether this is the ideal allocation of `world`: feasible, no floor broken, no demand
    /// exceeded, and a bottleneck for every flow. Up to the rounding of whole bit/s: a full link
    /// may miss less than one per crossing, a share one.
    ///
    /// The floors are assumed to be admissible; with others, a violation is found.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn check(&self, world: &World) -> Result<(), Violation> {
        self.check_shape(world)?;
        self.check_loads(world)?;
        self.check_rates(world)?;
        self.check_bottlenecks(world)
    }

    fn check_shape(&self, world: &World) -> Result<(), Violation> {
        let flows = world.flows.len();
        let links = world.links.len();
        let fits = self.rates.len() == flows
            && self.bottlenecks.len() == flows
            && self.loads.len() == links;
        let paths = world.flows.iter().flat_map(|flow| &flow.path).all(|&link| link < links);
        if fits && paths { Ok(()) } else { Err(Violation::Shape) }
    }

    fn check_loads(&self, world: &World) -> Result<(), Violation> {
        let loads = sums(world, |i, _| self.rates[i]);
        for (link, (load, &capacity)) in loads.into_iter().zip(&world.links).enumerate() {
            if load > u128::from(capacity.as_bps()) {
                return Err(Violation::Overload { link, load: clamp(load), capacity });
            }
            let (noted, actual) = (self.loads[link], clamp(load));
            if noted != actual {
                return Err(Violation::WrongLoad { link, noted, actual });
            }
        }
        Ok(())
    }

    fn check_rates(&self, world: &World) -> Result<(), Violation> {
        for (i, (flow, &rate)) in world.flows.iter().zip(&self.rates).enumerate() {
            if rate < flow.owed() {
                return Err(Violation::BelowFloor { flow: i, rate, owed: flow.owed() });
            }
            if let Some(demand) = flow.demand.filter(|&demand| rate > demand) {
                return Err(Violation::AboveDemand { flow: i, rate, demand });
            }
        }
        Ok(())
    }

    fn check_bottlenecks(&self, world: &World) -> Result<(), Violation> {
        let floored = |flow: &Flow| !flow.owed().is_zero();
        let (with, without) = (self.uses(world, floored), self.uses(world, |f| !floored(f)));
        // Flows without a floor come last: they are no reason for others to have less.
        let taken_with =
            sums(world, |i, flow| if floored(flow) { self.rates[i] } else { Rate::ZERO });

        for (i, flow) in world.flows.iter().enumerate() {
            let link = match self.bottlenecks[i] {
                Bottleneck::Demand if flow.demand == Some(self.rates[i]) => continue,
                Bottleneck::Demand => {
                    return Err(Violation::DemandUnmet { flow: i, rate: self.rates[i] });
                }
                Bottleneck::Link(link) if flow.path.contains(&link) => link,
                Bottleneck::Link(link) => return Err(Violation::NotOnPath { flow: i, link }),
            };
            let capacity = world.links[link];
            let (taken, crossings, peers) = if floored(flow) {
                (clamp(taken_with[link]), with[link].crossings, with[link])
            } else {
                // The rounding losses of both fillings add up here.
                let crossings = with[link].crossings + without[link].crossings;
                (self.loads[link], crossings, without[link])
            };
            if capacity.saturating_sub(taken).as_bps() > crossings {
                return Err(Violation::NotFull { flow: i, link, taken, capacity });
            }
            let other = peers.greatest.expect("at least this flow crosses it");
            if self.clearly_less(world, i, other) {
                return Err(Violation::NotGreatest { flow: i, link, other });
            }
        }
        Ok(())
    }

    fn uses(&self, world: &World, kind: impl Fn(&Flow) -> bool) -> Vec<Use> {
        let mut uses = vec![Use::default(); world.links.len()];
        for (i, flow) in world.flows.iter().enumerate().filter(|(_, flow)| kind(flow)) {
            for &link in &flow.path {
                let on = &mut uses[link];
                on.crossings += 1;
                on.greatest = Some(on.greatest.map_or(i, |g| self.greater(world, g, i)));
            }
        }
        uses
    }

    /// Which of two flows of one kind has the greater rate / weight; `a` if equal.
    fn greater(&self, world: &World, a: usize, b: usize) -> usize {
        let ours = u128::from(self.rates[a].as_bps()) * weight(&world.flows[b]);
        let theirs = u128::from(self.rates[b].as_bps()) * weight(&world.flows[a]);
        if theirs > ours { b } else { a }
    }

    /// Whether `a` would have less than `b` per weight even with the bit/s that rounding may have
    /// taken from it.
    fn clearly_less(&self, world: &World, a: usize, b: usize) -> bool {
        let ours = (u128::from(self.rates[a].as_bps()) + 1) * weight(&world.flows[b]);
        ours < u128::from(self.rates[b].as_bps()) * weight(&world.flows[a])
    }
}

fn weight(flow: &Flow) -> u128 {
    u128::from(flow.owed().as_bps()).max(1)
}
