//! A constant window for all flows of a tenant together, divided by class.
//!
//! Problem   A tenant's bulk flows fill queues in which its urgent ones wait; dropping and queueing
//!           cost both.
//! Approach  The windows of all live flows together are one number. Each flow's share is its
//!           class's weight among the weights of all live flows; so urgent flows that come lower
//!           what the others may have, and nothing is reserved for flows that are not there. What
//!           the shares are is a level: read it after each change, and put it into
//!           [`Terms::share`](super::Terms::share).
//! Promises  Shares sum to the budget at most, and stand as the weights do (rounded down to
//!           octets). None is below two segments while no more than `flows_most` live: a budget
//!           that could not keep that is refused. No flow is in two classes: classes that overlap
//!           are refused, by name.
//! Not here  Which flows live: the driver's, by [`Flow::is_spent`](super::Flow::is_spent). That a
//!           share that fell takes nothing back that a guest was shown: the law's.
//! Source    vCC §4, Fig. 12 (weights 3 : 1, by port).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use weir_units::Bytes;

/// Which flows: those that match all fields. Local is the guest's end.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Match {
    /// By these ports of the guest's.
    pub local_ports: Option<RangeInclusive<u16>>,
    /// By these ports of the other end's.
    pub remote_ports: Option<RangeInclusive<u16>>,
}

impl Match {
    /// Whether a flow is one of these.
    pub fn has(&self, local_port: u16, remote_port: u16) -> bool {
        self.local_ports.as_ref().is_none_or(|p| p.contains(&local_port))
            && self.remote_ports.as_ref().is_none_or(|p| p.contains(&remote_port))
    }

    /// Whether one flow could be of both.
    fn overlaps(&self, other: &Self) -> bool {
        let both = |a: &Option<RangeInclusive<u16>>, b: &Option<RangeInclusive<u16>>| match (a, b) {
            (Some(a), Some(b)) => a.start() <= b.end() && b.start() <= a.end(),
            _ => true,
        };
        both(&self.local_ports, &other.local_ports) && both(&self.remote_ports, &other.remote_ports)
    }
}

/// Flows of one weight.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Class {
    /// What people call it.
    pub name: String,
    /// Its flows.
    pub flows: Match,
    /// A flow's part, beside flows of other weights.
    pub weight: u32,
}

/// What somebody wrote.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BudgetConfig {
    /// The windows of all live flows together.
    pub total: Bytes,
    /// Flows that may share it.
    pub flows_most: u32,
    /// The largest segment of these flows, options of TCP included.
    pub segment: Bytes,
    /// Flows in none have no share, and are not throttled.
    pub classes: Vec<Class>,
}

/// Why a budget is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Two classes that one flow could be in.
    Overlap {
        /// One's name.
        one: String,
        /// The other's.
        other: String,
    },
    /// A weight, a segment or a number of flows of nothing; or ports from a greater to a smaller
    /// one.
    Nothing {
        /// Which.
        name: String,
    },
    /// Less than two segments for the flow of the least weight, when all others have the greatest.
    Small {
        /// The budget.
        total: Bytes,
        /// What would do.
        least: Bytes,
        /// Number of flows that may share the total.
        flows: u32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { one, other } => write!(
                f,
                "classes {one} and {other} overlap: one flow could be in both; make them differ in \
                 ports"
            ),
            Self::Nothing { name } => write!(f, "{name} is nothing; it should be one or more"),
            Self::Small { total, least, flows } => write!(
                f,
                "a window budget of {total} leaves some of {flows} flows less than two segments; \
                 take {least} or more, or fewer flows"
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// A budget and the flows that live on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Budget {
    config: BudgetConfig,
    /// Live flows per class.
    live: Vec<u32>,
}

impl Budget {
    /// A budget without a live flow.
    ///
    /// # Errors
    /// It could not keep what it promises.
    pub fn new(config: BudgetConfig) -> Result<Self, Refusal> {
        config.check()?;
        let live = vec![0; config.classes.len()];
        Ok(Self { config, live })
    }

    /// Sets how many flows of each class live. More than may share the budget count as well, or the
    /// sum would not hold: shares may then be less than two segments, below which the law lowers no
    /// window.
    ///
    /// # Panics
    /// Not a number for each class.
    pub fn recount(&mut self, live: &[u32]) {
        self.live.copy_from_slice(live);
    }

    /// What somebody wrote.
    pub const fn config(&self) -> &BudgetConfig {
        &self.config
    }

    /// How many flows share it.
    pub fn live(&self) -> u64 {
        self.live.iter().copied().map(u64::from).sum()
    }

    /// What each flow of this class may have now; what one would have, if there is none. Rounded
    /// down, so that the sum is the budget at most.
    ///
    /// # Panics
    /// There is no such class.
    pub fn share(&self, class: usize) -> Bytes {
        let classes = self.config.classes.iter().map(|c| u128::from(c.weight));
        let weights: u128 = classes.zip(&self.live).map(|(w, n)| w * u128::from(*n)).sum();
        let weight = u128::from(self.config.classes[class].weight);
        let among = if self.live[class] == 0 { weights + weight } else { weights };
        let share = u128::from(self.config.total.get()) * weight / among;
        Bytes::new(u64::try_from(share).expect("a part of the total"))
    }
}

impl Budget {
    /// The shares of all classes, in octets.
    pub fn shares(&self) -> Vec<u32> {
        let octets = |class| u32::try_from(self.share(class).get()).unwrap_or(u32::MAX);
        (0..self.live.len()).map(octets).collect()
    }
}

impl BudgetConfig {
    /// Of classes (name, weight, ports of the other end), for guests whose frames are Ethernet's.
    pub fn by_remote_ports(
        total: Bytes,
        flows_most: u32,
        classes: impl Iterator<Item = (String, u32, RangeInclusive<u16>)>,
    ) -> Self {
        let class = |(name, weight, ports)| {
            let flows = Match { remote_ports: Some(ports), ..Match::default() };
            Class { name, flows, weight }
        };
        Self {
            total,
            flows_most,
            segment: Bytes::new(1_460),
            classes: classes.map(class).collect(),
        }
    }

    /// Whether the budget can keep what it promises.
    ///
    /// # Errors
    /// The first thing that it cannot.
    pub fn check(&self) -> Result<(), Refusal> {
        let nothing = |name: &str| Err(Refusal::Nothing { name: name.to_owned() });
        if self.flows_most == 0 {
            return nothing("the number of flows");
        }
        if self.segment == Bytes::ZERO {
            return nothing("the segment");
        }
        if self.classes.is_empty() {
            return nothing("the number of classes");
        }
        for class in &self.classes {
            if class.weight == 0 {
                return nothing(&format!("the weight of class {}", class.name));
            }
            let ports = [&class.flows.local_ports, &class.flows.remote_ports];
            if ports.into_iter().flatten().any(RangeInclusive::is_empty) {
                return nothing(&format!("the number of ports of class {}", class.name));
            }
        }
        for (n, one) in self.classes.iter().enumerate() {
            let mut others = self.classes[n + 1..].iter();
            if let Some(other) = others.find(|c| c.flows.overlaps(&one.flows)) {
                let (one, other) = (one.name.clone(), other.name.clone());
                return Err(Refusal::Overlap { one, other });
            }
        }
        let least = self.least();
        if self.total < least {
            return Err(Refusal::Small { total: self.total, least, flows: self.flows_most });
        }
        Ok(())
    }

    /// The least total with which a flow of the least weight has two segments beside as many as may
    /// be of the greatest.
    fn least(&self) -> Bytes {
        let weights = self.classes.iter().map(|class| u128::from(class.weight));
        let (low, high) = (weights.clone().min().unwrap_or(1), weights.max().unwrap_or(1));
        let all = low + high * u128::from(self.flows_most - 1);
        let least = (2 * u128::from(self.segment.get())).saturating_mul(all).div_ceil(low);
        Bytes::new(u64::try_from(least).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEGMENT: u64 = 1_460;

    /// The paper's: two preferred flows, three unpreferred ones.
    fn paper(total: u64) -> BudgetConfig {
        let classes = [("bulk", 1, 5001..=5003), ("urgent", 3, 5004..=5005)];
        let classes = classes.map(|(name, weight, ports)| (name.to_owned(), weight, ports));
        BudgetConfig::by_remote_ports(Bytes::new(total), 5, classes.into_iter())
    }

    #[test]
    fn urgent_flows_have_three_times_as_much_and_the_sum_stays_also_of_more_than_may_be() {
        let mut budget = Budget::new(paper(90_000)).expect("enough");
        for (live, shares) in [
            ([3, 0], [30_000, 45_000]),
            ([3, 2], [10_000, 30_000]),
            ([0, 2], [12_857, 45_000]),
            ([30, 20], [1_000, 3_000]),
            ([3, 0], [30_000, 45_000]),
        ] {
            budget.recount(&live);
            assert_eq!([budget.share(0), budget.share(1)], shares.map(Bytes::new), "{live:?}");
        }
    }

    #[test]
    fn less_than_two_segments_for_some_flow_is_refused() {
        // 2 segments × (1 + 4 × 3).
        let least = 2 * SEGMENT * 13;
        assert!(Budget::new(paper(least)).is_ok());
        let refused = Budget::new(paper(least - 1)).expect_err("an octet too few");
        let (total, least) = (Bytes::new(least - 1), Bytes::new(least));
        assert_eq!(refused, Refusal::Small { total, least, flows: 5 });
        assert!(refused.to_string().contains("take 37960 B or more"), "{refused}");
    }

    #[test]
    fn classes_that_one_flow_could_be_in_are_refused_by_name() {
        let mut config = paper(1_000_000);
        config.classes[1].flows.remote_ports = Some(5003..=5004);
        let refused = config.check().expect_err("5003 is in both");
        assert_eq!(refused, Refusal::Overlap { one: "bulk".into(), other: "urgent".into() });
        // Ports of different ends do not tell flows apart.
        config.classes[1].flows.local_ports = config.classes[1].flows.remote_ports.take();
        assert!(config.check().is_err());
    }

    #[test]
    fn nothing_is_refused_by_name() {
        type Change = fn(&mut BudgetConfig);
        let change: [(&str, Change); 4] = [
            ("flows", |c| c.flows_most = 0),
            ("segment", |c| c.segment = Bytes::ZERO),
            ("classes", |c| c.classes.clear()),
            ("weight of class urgent", |c| c.classes[1].weight = 0),
        ];
        for (name, change) in change {
            let mut config = paper(1_000_000);
            change(&mut config);
            let refused = config.check().expect_err(name).to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn shares_sum_to_the_budget_at_most_and_none_is_below_two_segments(
            weights in prop::collection::vec(1u32..50, 1..6),
            steps in prop::collection::vec(prop::collection::vec(0u32..7, 6), 0..50),
            spare in 0u64..1_000_000,
        ) {
            let class = |(n, weight): (usize, &u32)| (n.to_string(), *weight, n as u16..=n as u16);
            let classes = weights.iter().enumerate().map(class);
            let mut config = BudgetConfig::by_remote_ports(Bytes::ZERO, 40, classes);
            config.total = config.least() + Bytes::new(spare);
            let mut budget = Budget::new(config.clone()).expect("enough");
            for live in steps {
                // Forty may live, and six of each of five classes do at most.
                let live = &live[..weights.len()];
                budget.recount(live);
                let held = |c: usize| u64::from(live[c]) * budget.share(c).get();
                let sum: u64 = (0..weights.len()).map(held).sum();
                prop_assert!(sum <= config.total.get());
                let all: u64 = live.iter().copied().map(u64::from).sum();
                prop_assert!(all == 0 || sum + all > config.total.get(), "only rounding is lost");
                for (c, n) in live.iter().enumerate() {
                    prop_assert!(*n == 0 || budget.share(c).get() >= 2 * SEGMENT);
                }
            }
        }
    }
}
