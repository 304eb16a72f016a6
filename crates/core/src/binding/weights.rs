//! Integer weights of a port's queues.
//!
//! Problem   A queue's part of its link is its weight over the sum of weights, and switches take small
//!           integers (1 to 15). Rounding in proportion can leave a queue less than its floor.
//! Approach  The best weights make the worst ratio of a queue's part to its floor as large as it can
//!           be. They have the form w = ceil(θ·floor) for some θ, and the ratio only changes where
//!           θ·floor is an integer: so all θ that matter are tried, at most one per queue and weight.
//! Promises  No other weights in the range have a larger worst ratio. If it is below 1, none hold all
//!           floors.
//! Source    QShare §5.3; `docs/algorithms/qshare.md`, "Weights".

use weir_units::Rate;

/// Weights that a switch takes: from 1 to this.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MostWeight(u16);

impl MostWeight {
    /// The paper's switches.
    pub const PAPER: Self = Self(15);

    /// Weights from 1 to `most`; 0 counts as 1.
    pub const fn new(most: u16) -> Self {
        Self(if most == 0 { 1 } else { most })
    }

    /// The largest weight.
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// What a port's queues weigh.
#[derive(Clone, PartialEq, Debug)]
pub struct Weights {
    /// One per floor, in the order of the floors.
    pub weights: Vec<u16>,
    /// The least of all queues' (part of the link) / (floor); infinite if no queue has a floor.
    pub worst: f64,
}

impl Weights {
    /// Whether every queue's part of the link is at least its floor.
    pub fn hold(&self) -> bool {
        self.worst >= 1.0
    }
}

/// The best weights for queues with these floors on a link of this rate. A queue without a floor
/// has weight 1.
pub fn weigh(floors: &[Rate], link: Rate, most: MostWeight) -> Weights {
    let largest = floors.iter().copied().max().unwrap_or_default();
    if largest.is_zero() {
        return Weights { weights: vec![1; floors.len()], worst: f64::INFINITY };
    }
    let mut best = (Step { weight: most.0, floor: largest }, 0, 1);
    for floor in floors.iter().filter(|floor| !floor.is_zero()) {
        for weight in 1..=most.0 {
            let step = Step { weight, floor: *floor };
            if step.of(largest) > u64::from(most.0) {
                break;
            }
            let (num, den) = step.ratio(floors);
            if num * best.2 > best.1 * den {
                best = (step, num, den);
            }
        }
    }
    let (step, num, den) = best;
    let worst = num as f64 * link.as_f64() / den as f64;
    let weights = floors.iter().map(|floor| step.of(*floor) as u16).collect();
    Weights { weights, worst }
}

/// Whether some weights hold all these floors.
pub(super) fn can_hold(floors: &[Rate], link: Rate, most: MostWeight) -> bool {
    let Some(largest) = floors.iter().copied().max().filter(|floor| !floor.is_zero()) else {
        return true;
    };
    // Nearly always the first try does, in a hundredth of the time.
    let (num, den) = Step { weight: most.0, floor: largest }.ratio(floors);
    num * u128::from(link.as_bps()) >= den || weigh(floors, link, most).hold()
}

/// Whether this weight holds this floor, beside others that sum to `all` with it.
pub(super) fn holds(floor: Rate, weight: u16, all: u32, link: Rate) -> bool {
    u128::from(floor.as_bps()) * u128::from(all) <= u128::from(link.as_bps()) * u128::from(weight)
}

/// θ = weight / floor.
#[derive(Clone, Copy)]
struct Step {
    weight: u16,
    floor: Rate,
}

impl Step {
    /// The least weight that gives this floor its part.
    fn of(self, floor: Rate) -> u64 {
        let exact = u128::from(floor.as_bps()) * u128::from(self.weight);
        let up = exact.div_ceil(u128::from(self.floor.as_bps()));
        u64::try_from(up).unwrap_or(u64::MAX).max(1)
    }

    /// The worst (part of a link of 1 bit/s) / floor, as a fraction: θ over the sum of weights. No
    /// queue has less, and the one that θ is taken from has exactly that.
    fn ratio(self, floors: &[Rate]) -> (u128, u128) {
        let sum: u128 = floors.iter().map(|floor| u128::from(self.of(*floor))).sum();
        (u128::from(self.weight), u128::from(self.floor.as_bps()) * sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mbps(floors: &[u64]) -> Vec<Rate> {
        floors.iter().map(|floor| Rate::from_mbps(*floor)).collect()
    }

    #[test]
    fn floors_in_small_proportion_are_exact() {
        let found = weigh(&mbps(&[100, 200, 300]), Rate::from_mbps(900), MostWeight::PAPER);
        assert_eq!(found.weights, [1, 2, 3]);
        assert!((found.worst - 1.5).abs() < 1e-12, "{}", found.worst);
    }

    #[test]
    fn proportional_rounding_would_break_a_floor() {
        // In proportion to the largest: 15, 1, 1, 1: the large queue has 83.3 % of the link, and
        // needs 85 %. No weights up to 15 do better, so this is refused.
        let floors = mbps(&[850, 10, 10, 10]);
        let found = weigh(&floors, Rate::from_mbps(1000), MostWeight::PAPER);
        assert!(!found.hold(), "{found:?}");
        let finer = weigh(&floors, Rate::from_mbps(1000), MostWeight::new(100));
        assert!(finer.hold(), "{finer:?}");
    }

    #[test]
    fn queues_without_a_floor_weigh_one() {
        let found = weigh(&mbps(&[0, 400]), Rate::from_mbps(1000), MostWeight::PAPER);
        assert_eq!(found.weights, [1, 15]);
        assert_eq!(weigh(&mbps(&[0, 0]), Rate::from_mbps(1), MostWeight::PAPER).weights, [1, 1]);
    }

    /// The worst ratio of these weights, by its definition.
    fn worst(weights: &[u16], floors: &[Rate], link: Rate) -> f64 {
        let sum: u16 = weights.iter().sum();
        let queues = weights.iter().zip(floors).filter(|(_, floor)| !floor.is_zero());
        let ratios = queues.map(|(weight, floor)| {
            f64::from(*weight) * link.as_f64() / f64::from(sum) / floor.as_f64()
        });
        ratios.fold(f64::INFINITY, f64::min)
    }

    /// All weights from 1 to `most` for `n` queues.
    fn all(n: usize, most: u16) -> Vec<Vec<u16>> {
        let longer = |shorter: &Vec<u16>| {
            let with = |weight| shorter.iter().copied().chain([weight]).collect();
            (1..=most).map(with).collect::<Vec<Vec<u16>>>()
        };
        (0..n).fold(vec![Vec::new()], |all, _| all.iter().flat_map(longer).collect())
    }

    proptest! {
        #[test]
        fn no_weights_are_better(
            floors in proptest::collection::vec(0u64..400, 1..5),
            most in 1u16..8,
        ) {
            let link = Rate::from_mbps(1000);
            let floors = mbps(&floors);
            let found = weigh(&floors, link, MostWeight::new(most));
            prop_assert!(found.weights.iter().all(|weight| (1..=most).contains(weight)));
            let told = worst(&found.weights, &floors, link);
            prop_assert!(told == found.worst || (told - found.worst).abs() < 1e-9 * told);
            let best = all(floors.len(), most).iter().map(|w| worst(w, &floors, link)).fold(0.0, f64::max);
            prop_assert!(found.worst >= best * (1.0 - 1e-9), "{found:?}, but {best} is possible");
        }
    }
}
