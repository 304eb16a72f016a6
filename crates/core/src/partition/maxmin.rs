//! The static split of a hose: max-min over demands, equal weights, in whole bits per second.
//!
//! Problem   A few demands are known, the others are without limit. The hose must not be exceeded,
//!           and must not be idle while a pair waits.
//! Approach  Sort the bounded demands; those below the fair share of the rest are met, the others
//!           share equally. O(n log n), buffers are reused.
//! Promises  Sum ≤ pool; all bounded demands met or the pool exhausted; those not met are equal ± 1
//!           bit/s, and no met demand is above them.
//! Not here  Where demands come from: see `estimate`.
//! Source    ElasticSwitch §4, "GP in a static context" and "if all flows have bounded demands".

use weir_units::Rate;

/// Demand of a pair.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize,
)]
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

/// Splits `pool` max-min over `demands`, with equal weights. What exceeds all demands is left over.
pub fn max_min(pool: Rate, demands: &[Demand]) -> Vec<Rate> {
    let mut split = Split::default();
    split.demands.extend_from_slice(demands);
    split.max_min(pool);
    split.shares
}

/// Gives what a max-min split left of `pool` to all, in proportion to their demands (equally if
/// there is no demand), so that the entire pool is allocated (ElasticSwitch §4). Nothing is left,
/// and nothing happens, if any demand was not met.
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

/// The sums of all demands of a hose.
#[derive(Clone, Copy, Default, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Claims {
    /// With guesses in full.
    all: Rate,
    /// Without what is not sure.
    sure: Rate,
}

impl Claims {
    /// Adds a demand, of which `sure` is sure.
    pub(super) fn add(&mut self, demand: Demand, sure: Demand) {
        self.all += demand.limit();
        self.sure += sure.limit();
    }

    /// The floor of a new pair, the last of `pairs`, before the next division. That gives the pair
    /// no less, if these are the claims of all pairs by their estimates.
    pub(super) fn first(self, pool: Rate, start: Rate, pairs: usize) -> Rate {
        match self.all <= pool {
            true => start,
            false => self.unsure(pool, start).split(pairs).min(start),
        }
    }

    /// What all guesses together get of `pool`, which has no room for all demands.
    fn unsure(self, pool: Rate, least: Rate) -> Rate {
        pool.saturating_sub(self.sure).max(least)
    }
}

/// The split with its buffers: a hose divides again and again without a new allocation.
#[derive(Clone, Default, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Split {
    /// In: fill before [`Split::max_min`], one per pair.
    pub(super) demands: Vec<Demand>,
    /// In: what is sure of each, for [`Split::hold_guesses`].
    sure: Vec<Demand>,
    /// Out: one per demand.
    pub(super) shares: Vec<Rate>,
    sorted: Vec<u64>,
    /// Sums of the smallest demands: `sums[n]` is that of the first `n` of `sorted`.
    sums: Vec<u128>,
}

impl Split {
    /// Forgets all demands.
    pub(super) fn clear(&mut self) {
        self.demands.clear();
        self.sure.clear();
    }

    /// Adds a demand, of which `sure` is sure.
    pub(super) fn add(&mut self, demand: Demand, sure: Demand) {
        self.demands.push(demand);
        self.sure.push(sure);
    }

    /// Where the pool has no room for all demands, lowers those that are not entirely sure: together
    /// they get what all sure demands leave, or `least` if that is more, divided equally.
    pub(super) fn hold_guesses(&mut self, pool: Rate, least: Rate) {
        let Self { demands, sure, .. } = self;
        let mut claims = Claims::default();
        demands.iter().zip(sure.iter()).for_each(|(demand, sure)| claims.add(*demand, *sure));
        if claims.all <= pool {
            return;
        }
        let is_guess = |(demand, sure): &(&mut Demand, &Demand)| **demand > **sure;
        let guesses = demands.iter_mut().zip(sure.iter()).filter(is_guess).count();
        let each = claims.unsure(pool, least).split(guesses);
        for (demand, sure) in demands.iter_mut().zip(sure.iter()).filter(is_guess) {
            *demand = (*demand).min(Demand::Bounded(sure.limit() + each));
        }
    }

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

    /// For each demand, in order: what it would get of `pool` if it alone were without limit. Call
    /// it after [`Split::max_min`] with the same demands and pool. O(log n) for each.
    pub(super) fn most(&mut self, pool: Rate) -> impl Iterator<Item = Rate> + '_ {
        self.sums.clear();
        self.sums.push(0);
        for demand in &self.sorted {
            let sum = self.sums.last().copied().unwrap_or(0) + u128::from(*demand);
            self.sums.push(sum);
        }
        let Self { demands, shares, sorted, sums, .. } = &*self;
        demands.iter().zip(shares).map(move |(demand, share)| {
            if *share < demand.limit() {
                return *share;
            }
            // The demand is met. It stays among the claims, one without limit joins them, and the
            // pool grows by it: the level is the same as without the demand.
            let pool = u128::from(pool.as_bps()) + u128::from(demand.limit().as_bps());
            let claims = demands.len() + 1;
            let level = |met: usize| pool.saturating_sub(sums[met]) / (claims - met) as u128;
            let (mut low, mut high) = (0, sorted.len());
            while low < high {
                let middle = low.midpoint(high);
                let is_met = u128::from(sorted[middle]) <= level(middle);
                (low, high) = if is_met { (middle + 1, high) } else { (low, middle) };
            }
            bps(level(low))
        })
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

    /// Checks the promises of the split.
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
    fn the_most_of_a_pair_is_what_it_gets_when_it_alone_wants_everything() {
        let pools = [0, 1, 7, 100, 1000, 12_345];
        let demands = [
            vec![Demand::Unbounded],
            vec![Demand::Bounded(Rate::from_bps(5)), Demand::Bounded(Rate::from_bps(5))],
            [3, 40, 40, 500, 0].map(|n| Demand::Bounded(Rate::from_bps(n))).to_vec(),
            vec![Demand::Bounded(Rate::from_bps(90)), Demand::Unbounded, Demand::Unbounded],
        ];
        for (pool, demands) in
            pools.iter().flat_map(|p| demands.iter().map(|d| (Rate::from_bps(*p), d)))
        {
            let mut split = Split { demands: demands.clone(), ..Split::default() };
            if split.max_min(pool).is_none() {
                split.hand_out(pool);
            }
            let most: Vec<Rate> = split.most(pool).collect();
            for (i, most) in most.iter().enumerate() {
                let mut others = demands.clone();
                others[i] = Demand::Unbounded;
                let alone = max_min(pool, &others)[i].as_bps();
                // The odd bits of a division go to one claim or another.
                assert!(most.as_bps().abs_diff(alone) <= 1, "{pool:?} {demands:?} {i}: {most:?}");
            }
        }
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
