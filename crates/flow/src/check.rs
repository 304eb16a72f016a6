//! What an allocation owes, verified from scratch: each flow's bottleneck is its witness.

use crate::allocate::{Allocation, Bottleneck};
use crate::world::{Flows, World};
use thiserror::Error;
use weir_units::show;

/// A promise that an allocation does not keep. Rates are in bit/s.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum Violation {
    /// Not one rate, floor and bottleneck per flow.
    #[error("the allocation does not have the shape of its flows")]
    Shape,
    /// More than a link carries.
    #[error("link {link} carries {}, more than its {}", show::rate(*load), show::rate(*capacity))]
    Overload {
        /// Where.
        link: u32,
        /// What the rates sum to.
        load: f64,
        /// What it carries.
        capacity: f64,
    },
    /// Less than promised.
    #[error("flow {flow} has {}, less than the {} it was promised", show::rate(*rate), show::rate(*owed))]
    BelowFloor {
        /// Whose.
        flow: u32,
        /// What it has.
        rate: f64,
        /// min(demand, F).
        owed: f64,
    },
    /// More than it wants, or said to be limited by its demand and it has less.
    #[error("flow {flow} has {} of a demand of {}", show::rate(*rate), show::rate(*demand))]
    Demand {
        /// Whose.
        flow: u32,
        /// What it has.
        rate: f64,
        /// What it wants; infinite = without limit.
        demand: f64,
    },
    /// Said to be limited by a link that it does not cross.
    #[error("flow {flow} is said to be limited by link {link}, which it never crosses")]
    NotOnPath {
        /// Whose.
        flow: u32,
        /// Which.
        link: u32,
    },
    /// Said to be limited by a link that still has room. For a flow with a floor, what those
    /// without one carry counts as room.
    #[error("flow {flow} waits at link {link}, where {} of {} are taken", show::rate(*taken), show::rate(*capacity))]
    NotFull {
        /// Whose.
        flow: u32,
        /// Which.
        link: u32,
        /// What counts as taken.
        taken: f64,
        /// What the link carries.
        capacity: f64,
    },
    /// Said to be limited by a link where another flow of its kind has a greater rate / F, or
    /// rate / weight.
    #[error("flow {flow} waits at link {link} at level {level}, where another has {greatest}")]
    NotGreatest {
        /// Whose.
        flow: u32,
        /// Where.
        link: u32,
        /// Its own.
        level: f64,
        /// The greatest there.
        greatest: f64,
    },
}

/// What floating point may lose: part of a link's capacity, of a rate, of a level.
const LOST: f64 = 1e-9;
/// The same in bit/s, where there is no capacity to take a part of.
const LEAST: f64 = 1e-3;

/// What those of one kind do on one link.
#[derive(Clone, Copy, Default)]
struct Use {
    load: f64,
    greatest: f64,
}

impl Allocation {
    /// Whether this is the ideal allocation of `flows` in a world whose links differ from `world`'s
    /// by at most `tolerance` (a part of each capacity; 0 = by what floating point loses): feasible,
    /// no floor broken, no demand exceeded, and a bottleneck for every flow.
    ///
    /// The floors are assumed to be admissible; with others, a violation is found.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn check(&self, world: &World, flows: &Flows, tolerance: f64) -> Result<(), Violation> {
        let count = flows.len();
        if [self.rates.len(), self.floors.len(), self.bottlenecks.len()] != [count; 3] {
            return Err(Violation::Shape);
        }
        let slack = |capacity: f64| capacity * (LOST + tolerance) + LEAST;
        // Those without a floor come last: they are no reason for others to have less.
        let uses = self.uses(world, flows);
        for (link, ([with, without], capacity)) in (0..).zip(uses.iter().zip(&world.links)) {
            let (load, capacity) = (with.load + without.load, capacity.as_f64());
            if load > capacity + slack(capacity) {
                return Err(Violation::Overload { link, load, capacity });
            }
        }
        for flow in 0..count as u32 {
            self.check_rate(flow, flows)?;
            let Bottleneck::Link(link) = self.bottlenecks[flow as usize] else { continue };
            if !flows.path(flow).contains(&link) {
                return Err(Violation::NotOnPath { flow, link });
            }
            let floored = self.floors[flow as usize] > 0.0;
            let [with, without] = uses[link as usize];
            let there = if floored { with } else { without };
            let taken = if floored { with.load } else { with.load + without.load };
            let capacity = world.links[link as usize].as_f64();
            if taken < capacity - slack(capacity) {
                return Err(Violation::NotFull { flow, link, taken, capacity });
            }
            let (level, greatest) = (self.level(flow, flows), there.greatest);
            let weight = if floored { self.floors[flow as usize] } else { 1.0 };
            if greatest > level * (1.0 + LOST) + LEAST / weight {
                return Err(Violation::NotGreatest { flow, link, level, greatest });
            }
        }
        Ok(())
    }

    fn check_rate(&self, flow: u32, flows: &Flows) -> Result<(), Violation> {
        let at = flow as usize;
        let (rate, owed, demand) = (self.rates[at], self.floors[at], flows.demands[at]);
        if rate < owed * (1.0 - LOST) || rate.is_nan() {
            return Err(Violation::BelowFloor { flow, rate, owed });
        }
        let unmet = self.bottlenecks[at] == Bottleneck::Demand && rate < demand * (1.0 - LOST);
        if unmet || rate > demand * (1.0 + LOST) || rate.is_infinite() {
            return Err(Violation::Demand { flow, rate, demand });
        }
        Ok(())
    }

    fn level(&self, flow: u32, flows: &Flows) -> f64 {
        let at = flow as usize;
        let floor = self.floors[at];
        self.rates[at] / if floor > 0.0 { floor } else { f64::from(flows.weights[at]) }
    }

    /// Per link, of those with a floor and of those without.
    fn uses(&self, world: &World, flows: &Flows) -> Vec<[Use; 2]> {
        let mut uses = vec![[Use::default(); 2]; world.links.len()];
        for (flow, (&rate, &floor)) in (0..).zip(self.rates.iter().zip(&self.floors)) {
            let level = self.level(flow, flows);
            let kind = usize::from(floor == 0.0);
            for &link in flows.path(flow) {
                let there = &mut uses[link as usize][kind];
                there.load += rate;
                there.greatest = there.greatest.max(level);
            }
        }
        uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocate::allocate;
    use crate::world::{Floor, Flow};
    use weir_units::Rate;

    /// Two links; one flow with a floor over both, one without over each, one with a demand.
    fn case() -> (World, Flows, Allocation) {
        let world = World { links: [1000, 600].map(Rate::from_bps).into(), hoses: vec![] };
        let floor = Floor::Fixed(Rate::from_bps(100));
        let demand = Some(Rate::from_bps(200));
        let flows = [
            Flow { floor, demand, ..Flow::greedy(vec![0, 1]) },
            Flow::greedy(vec![0]),
            Flow::greedy(vec![1]),
            Flow { demand: Some(Rate::from_bps(50)), ..Flow::greedy(vec![1]) },
        ];
        let flows = flows.iter().collect();
        let ideal = allocate(&world, &flows).expect("admissible");
        assert_eq!(ideal.rates, [200.0, 800.0, 350.0, 50.0]);
        (world, flows, ideal)
    }

    fn broken(change: impl Fn(&mut Allocation)) -> Violation {
        let (world, flows, mut ideal) = case();
        change(&mut ideal);
        ideal.check(&world, &flows, 0.0).expect_err("broken")
    }

    #[test]
    fn each_broken_promise_is_told() {
        let told = broken(|a| a.rates.truncate(3));
        assert_eq!(told, Violation::Shape);
        let told = broken(|a| a.rates[1] = 801.0);
        assert_eq!(told, Violation::Overload { link: 0, load: 1001.0, capacity: 1000.0 });
        let told = broken(|a| a.rates[0] = 99.0);
        assert_eq!(told, Violation::BelowFloor { flow: 0, rate: 99.0, owed: 100.0 });
        let told = broken(|a| (a.rates[3], a.rates[2]) = (49.0, 351.0));
        assert_eq!(told, Violation::Demand { flow: 3, rate: 49.0, demand: 50.0 });
        let told = broken(|a| (a.rates[3], a.rates[2]) = (51.0, 349.0));
        assert_eq!(told, Violation::Demand { flow: 3, rate: 51.0, demand: 50.0 });
        let told = broken(|a| a.bottlenecks[1] = Bottleneck::Link(1));
        assert_eq!(told, Violation::NotOnPath { flow: 1, link: 1 });
        let told = broken(|a| a.rates[1] = 799.0);
        let full = Violation::NotFull { flow: 1, link: 0, taken: 999.0, capacity: 1000.0 };
        assert_eq!(told, full);
    }

    #[test]
    fn whoever_has_less_than_another_at_its_bottleneck_is_told() {
        let world = World { links: vec![Rate::from_bps(1000)], hoses: vec![] };
        let flows = [Flow::greedy(vec![0]), Flow::greedy(vec![0])].iter().collect();
        let mut ideal = allocate(&world, &flows).expect("admissible");
        ideal.rates = vec![499.0, 501.0];
        let told = ideal.check(&world, &flows, 0.1).expect_err("unfair");
        let unfair = Violation::NotGreatest { flow: 0, link: 0, level: 499.0, greatest: 501.0 };
        assert_eq!(told, unfair);
    }

    #[test]
    fn a_tolerance_is_a_part_of_each_link() {
        let (world, flows, mut ideal) = case();
        ideal.rates[1] = 799.0;
        assert_eq!(ideal.check(&world, &flows, 1.1e-3), Ok(()));
        assert!(ideal.check(&world, &flows, 0.9e-3).is_err());
    }

    #[test]
    fn what_those_without_a_floor_carry_is_room_for_those_with_one() {
        let told = broken(|a| {
            (a.rates[0], a.bottlenecks[0]) = (150.0, Bottleneck::Link(0));
            a.rates[1] = 850.0;
        });
        let room = Violation::NotFull { flow: 0, link: 0, taken: 150.0, capacity: 1000.0 };
        assert_eq!(told, room);
    }
}
