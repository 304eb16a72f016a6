//! The static split of a hose: max-min over demands, equal weights, in whole bits per second.
//!
//! Problem   A few demands are known, the others are without limit; the hose must not be exceeded,
//!           and not be left idle while somebody waits.
//! Approach  Sort the bounded demands; those below the fair share of the rest are met, the others
//!           share equally. O(n log n), buffers are reused.
//! Promises  Sum ≤ pool; all bounded demands met or the pool exhausted; those not met are equal ± 1
//!           bit/s, and no met demand is above them.
//! Not here  Where demands come from: see `estimate`.
//! Source    ElasticSwitch §4, "GP in a static context" and "if all flows have bounded demands".

use weir_units::Rate;

/// What a pair could use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Demand {
    /// This much and no more.
    Bounded(Rate),
    /// As much as it gets.
    Unbounded,
}

impl Demand {
    /// The demand as a rate; without limit = [`Rate::MAX`].
    pub const fn limit(self) -> Rate {
        match self {
            Self::Bounded(rate) => rate,
            Self::Unbounded => Rate::MAX,
        }
    }
}

/// Splits `pool` max-min over `demands`, with equal weights; what nobody wants is left over.
pub fn max_min(pool: Rate, demands: &[Demand]) -> Vec<Rate> {
    let mut split = Split::default();
    split.demands.extend_from_slice(demands);
    split.max_min(pool);
    split.shares
}

/// Gives what a max-min split left of `pool` to all, in proportion to their demands (equally if there
/// is no demand), so that the entire pool is allocated (ElasticSwitch §4). Nothing is left, and
/// nothing happens, if any demand was not met.
pub fn hand_out(pool: Rate, demands: &[Demand], shares: &mut [Rate]) {
    assert_eq!(demands.len(), shares.len(), "one share per demand");
    let given: u128 = shares.iter().map(|s| u128::from(s.as_bps())).sum();
    let left = u128::from(pool.as_bps()).saturating_sub(given);
    if left == 0 || shares.is_empty() {
        return;
    }
    let weight = |d: &Demand| u128::from(d.limit().as_bps());
    let total: u128 = demands.iter().map(weight).sum();
    let mut rest = left;
    for (share, demand) in shares.iter_mut().zip(demands) {
        let part =
            (left * weight(demand)).checked_div(total).unwrap_or(left / demands.len() as u128);
        rest -= part;
        *share += bps(part);
    }
    // Rounding down left less than one bit/s for each.
    for share in shares.iter_mut().take(usize::try_from(rest).unwrap_or(usize::MAX)) {
        *share += Rate::from_bps(1);
    }
    let after: u128 = shares.iter().map(|s| u128::from(s.as_bps())).sum();
    assert_eq!(after, u128::from(pool.as_bps()), "the entire hose is allocated");
}

fn bps(n: u128) -> Rate {
    Rate::from_bps(u64::try_from(n).expect("a part of a rate is a rate"))
}

/// The split with its buffers: a hose divides again and again without a new allocation.
#[derive(Clone, Default, Debug)]
pub(super) struct Split {
    /// In: fill before [`Split::max_min`], one per pair.
    pub(super) demands: Vec<Demand>,
    /// Out: one per demand.
    pub(super) shares: Vec<Rate>,
    sorted: Vec<u64>,
}

impl Split {
    /// Fills `shares`. Returns the fair share of those that were not met, or `None` if all were.
    pub(super) fn max_min(&mut self, pool: Rate) -> Option<Rate> {
        self.shares.clear();
        let level = self.level(pool);
        let Some((level, mut odd)) = level else {
            self.shares.extend(self.demands.iter().map(|d| d.limit()));
            self.check(pool, None);
            return None;
        };
        for demand in &self.demands {
            let limit = demand.limit().as_bps();
            let extra = u64::from(limit > level && odd > 0);
            odd -= extra;
            self.shares.push(Rate::from_bps(limit.min(level + extra)));
        }
        self.check(pool, Some(level));
        Some(Rate::from_bps(level))
    }

    /// As [`hand_out`].
    pub(super) fn hand_out(&mut self, pool: Rate) {
        hand_out(pool, &self.demands, &mut self.shares);
    }

    /// The water level in bit/s, and how many of those above it get one bit/s more.
    fn level(&mut self, pool: Rate) -> Option<(u64, u64)> {
        self.sorted.clear();
        let bounded = self.demands.iter().filter_map(|d| match d {
            Demand::Bounded(rate) => Some(rate.as_bps()),
            Demand::Unbounded => None,
        });
        self.sorted.extend(bounded);
        self.sorted.sort_unstable();
        let mut rest = pool.as_bps();
        let mut waiting = self.demands.len() as u64;
        for demand in &self.sorted {
            if *demand > rest / waiting {
                break;
            }
            rest -= demand;
            waiting -= 1;
        }
        (waiting > 0).then(|| (rest / waiting, rest % waiting))
    }

    /// What the split owes.
    fn check(&self, pool: Rate, level: Option<u64>) {
        let mut given = 0u128;
        for (share, demand) in self.shares.iter().zip(&self.demands) {
            given += u128::from(share.as_bps());
            let met = share == &demand.limit();
            let fair =
                level.is_some_and(|l| share.as_bps() == l || share.as_bps() == l.saturating_add(1));
            assert!(met || fair, "neither met nor at the fair share");
        }
        assert!(given <= u128::from(pool.as_bps()), "more than the hose");
        assert!(
            level.is_none() || given == u128::from(pool.as_bps()),
            "hose left over while somebody waits"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn mbps(n: u64) -> Demand {
        Demand::Bounded(Rate::from_mbps(n))
    }

    #[test]
    fn the_example_of_the_paper_gives_20_40_40() {
        let shares =
            max_min(Rate::from_mbps(100), &[mbps(20), Demand::Unbounded, Demand::Unbounded]);
        assert_eq!(shares, [20, 40, 40].map(Rate::from_mbps));
    }

    #[test]
    fn an_odd_bit_goes_to_the_first_that_wait() {
        let shares = max_min(Rate::from_bps(8), &[Demand::Unbounded; 3]);
        assert_eq!(shares, [3, 3, 2].map(Rate::from_bps));
    }

    #[test]
    fn what_all_bounded_leave_is_handed_out_in_proportion() {
        let demands = [mbps(10), mbps(20)];
        let pool = Rate::from_mbps(90);
        let mut shares = max_min(pool, &demands);
        assert_eq!(shares, [10, 20].map(Rate::from_mbps));
        hand_out(pool, &demands, &mut shares);
        assert_eq!(shares, [30, 60].map(Rate::from_mbps));
    }

    #[test]
    fn without_any_demand_the_hose_is_handed_out_equally() {
        let demands = [mbps(0); 3];
        let mut shares = max_min(Rate::from_bps(10), &demands);
        hand_out(Rate::from_bps(10), &demands, &mut shares);
        assert_eq!(shares, [4, 3, 3].map(Rate::from_bps));
    }

    #[test]
    fn nothing_is_handed_out_while_somebody_waits() {
        let demands = [mbps(10), Demand::Unbounded];
        let mut shares = max_min(Rate::from_mbps(30), &demands);
        let before = shares.clone();
        hand_out(Rate::from_mbps(30), &demands, &mut shares);
        assert_eq!(shares, before);
    }

    #[test]
    fn no_pair_and_no_hose_are_no_trouble() {
        assert!(max_min(Rate::MAX, &[]).is_empty());
        assert_eq!(max_min(Rate::ZERO, &[Demand::Unbounded; 2]), [Rate::ZERO; 2]);
        let demands = [Demand::Bounded(Rate::MAX); 3];
        assert_eq!(
            max_min(Rate::MAX, &demands).iter().map(|r| r.as_bps()).max(),
            Some(u64::MAX / 3)
        );
        hand_out(Rate::MAX, &[], &mut []);
    }
}
