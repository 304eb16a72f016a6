//! Weighted progressive filling over links, in whole numbers.
//!
//! Problem   All claims grow at weight × level until their demand is met or a link of theirs is
//!           full. Rounds over all claims cost O(claims · links).
//! Approach  One heap of what can stop a claim, ordered by level: a demand stops its claim, a full
//!           link stops all claims on it. A link's level only rises while others stop, so a stale
//!           entry is too early, never too late: popped, it is put back at its present level.
//! Promises  O(i·log i) for i crossings of links. Same input, same output; demands before links,
//!           then in the order of their numbers.
//! Not here  What the weights mean, and whether they fit: see `oracle`, `eyeq`.
//! Source    Bertsekas & Gallager, Data Networks §6.5.2.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Amounts inside a filling: 2⁻³² bit/s, so that what is rounded off on the way never adds up to a
/// bit/s.
pub(crate) type Fine = u128;

/// `bps` in the unit of a filling.
pub(crate) const fn fine(bps: u64) -> Fine {
    (bps as Fine) << 32
}

/// Whole bit/s of `amount`, rounded down.
pub(crate) const fn whole(amount: Fine) -> u64 {
    (amount >> 32) as u64
}

/// One that wants a part of every link on its path.
pub(crate) struct Claim<'a> {
    /// Grows in proportion to this. Not zero.
    pub(crate) weight: u64,
    /// Wants no more than this, in bit/s.
    pub(crate) demand: Option<u64>,
    /// Links it crosses; one named twice is crossed twice.
    pub(crate) path: &'a [usize],
}

/// What stopped a claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stop {
    /// It has what it wants.
    Demand,
    /// This link is full.
    Link(usize),
}

/// What a claim got, and why no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) rate: Fine,
    pub(crate) stop: Stop,
}

/// A level of the water: `num / den`, in [`Fine`] per unit of weight. `den` is not zero.
#[derive(Clone, Copy, Debug)]
struct Level {
    num: Fine,
    den: u64,
}

impl Level {
    /// `weight` at this level, rounded down. `weight` ≤ `den`, or the result must fit otherwise.
    fn times(self, weight: u64) -> Fine {
        let (den, weight) = (Fine::from(self.den), Fine::from(weight));
        self.num / den * weight + self.num % den * weight / den
    }
}

impl Ord for Level {
    fn cmp(&self, other: &Self) -> Ordering {
        wide_mul(self.num, other.den).cmp(&wide_mul(other.num, self.den))
    }
}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Level {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Level {}

/// `a × b` as (upper 128 bits, lower 64 bits): 96 bits of rate times 64 of weight outgrow a u128.
fn wide_mul(a: u128, b: u64) -> (u128, u64) {
    let low = u128::from(a as u64) * u128::from(b);
    ((a >> 64) * u128::from(b) + (low >> 64), low as u64)
}

/// Whose turn it is when the level reaches what it carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Demand(usize),
    Full(usize),
}

struct Filling<'a, 'r> {
    claims: &'a [Claim<'a>],
    grants: Vec<Option<Grant>>,
    /// Per link: what is left, in whole.
    room: &'r mut [Fine],
    /// Per link: sum of the weights that still grow, once per crossing.
    weight: Vec<u64>,
}

/// Fills `room` (per link) with `claims` and leaves in it what remains. One grant per claim.
///
/// The weights on a link must sum to no more than a u64, and a claim without a demand must have a
/// path: both are the callers' to check.
pub(crate) fn fill(room: &mut [Fine], claims: &[Claim<'_>]) -> Vec<Grant> {
    let members = Members::new(room.len(), claims);
    let mut filling = Filling {
        claims,
        grants: vec![None; claims.len()],
        weight: weights(room.len(), claims),
        room,
    };
    let mut events = filling.first_events();
    while let Some(Reverse((level, event))) = events.pop() {
        match event {
            Event::Demand(c) => filling.satisfy(c),
            Event::Full(link) => match filling.level(link) {
                None => {} // all claims on it have stopped already
                Some(now) if now > level => events.push(Reverse((now, event))),
                Some(now) => filling.saturate(link, now, members.of(link)),
            },
        }
    }
    let stopped = "every claim ends at its demand or at a link";
    filling.grants.into_iter().map(|g| g.expect(stopped)).collect()
}

fn weights(links: usize, claims: &[Claim<'_>]) -> Vec<u64> {
    let mut weight = vec![0u64; links];
    for claim in claims {
        for &link in claim.path {
            weight[link] =
                weight[link].checked_add(claim.weight).expect("weights of a link sum to a u64");
        }
    }
    weight
}

impl Filling<'_, '_> {
    fn first_events(&self) -> BinaryHeap<Reverse<(Level, Event)>> {
        let demands = self.claims.iter().enumerate().filter_map(|(c, claim)| {
            let level = Level { num: fine(claim.demand?), den: claim.weight };
            Some(Reverse((level, Event::Demand(c))))
        });
        let links = (0..self.room.len())
            .filter_map(|link| Some(Reverse((self.level(link)?, Event::Full(link)))));
        // From a vector: building a heap at once is linear, pushing is not.
        demands.chain(links).collect::<Vec<_>>().into()
    }

    /// The level at which `link` would be full if no other claim stopped before; `None` if no claim
    /// on it grows.
    fn level(&self, link: usize) -> Option<Level> {
        (self.weight[link] > 0).then(|| Level { num: self.room[link], den: self.weight[link] })
    }

    fn satisfy(&mut self, c: usize) {
        let demand = self.claims[c].demand.expect("an event of a demand");
        self.stop(c, Grant { rate: fine(demand), stop: Stop::Demand });
    }

    fn saturate(&mut self, link: usize, level: Level, members: &[u32]) {
        for &c in members {
            let rate = level.times(self.claims[c as usize].weight);
            self.stop(c as usize, Grant { rate, stop: Stop::Link(link) });
        }
    }

    /// The only way to stop: the first reason counts.
    fn stop(&mut self, c: usize, grant: Grant) {
        if self.grants[c].is_some() {
            return;
        }
        self.grants[c] = Some(grant);
        let claim = &self.claims[c];
        for &link in claim.path {
            let room = self.room[link].checked_sub(grant.rate);
            self.room[link] = room.expect("a level that passed no full link");
            self.weight[link] -= claim.weight;
        }
    }
}

/// The claims on each link: one flat list, cut by link.
struct Members {
    start: Vec<usize>,
    claims: Vec<u32>,
}

impl Members {
    fn new(links: usize, claims: &[Claim<'_>]) -> Self {
        let mut start = vec![0; links + 1];
        for &link in claims.iter().flat_map(|c| c.path) {
            start[link + 1] += 1;
        }
        for link in 0..links {
            start[link + 1] += start[link];
        }
        let mut next = start.clone();
        let mut list = vec![0; start[links]];
        for (c, claim) in claims.iter().enumerate() {
            for &link in claim.path {
                list[next[link]] = u32::try_from(c).expect("fewer than 2^32 claims");
                next[link] += 1;
            }
        }
        Self { start, claims: list }
    }

    fn of(&self, link: usize) -> &[u32] {
        &self.claims[self.start[link]..self.start[link + 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_compare_exactly_where_a_u128_would_overflow() {
        let top = fine(u64::MAX);
        let level = |num, den| Level { num, den };
        assert!(level(top, u64::MAX) > level(top - 1, u64::MAX));
        assert!(level(top, u64::MAX) < level(top, u64::MAX - 1));
        assert_eq!(level(fine(2), 6), level(fine(1), 3));
        assert_eq!(level(top, u64::MAX), level(fine(1), 1));
        assert_eq!(level(top, u64::MAX).times(u64::MAX), top);
    }

    #[test]
    fn a_demand_met_just_when_the_link_fills_counts_as_a_demand() {
        let path = [0];
        let claim = |demand| Claim { weight: 1, demand, path: &path };
        let mut room = [fine(10)];
        let grants = fill(&mut room, &[claim(None), claim(Some(5))]);
        assert_eq!(grants[0].stop, Stop::Link(0));
        assert_eq!(grants[1].stop, Stop::Demand);
        assert_eq!([whole(grants[0].rate), whole(grants[1].rate)], [5, 5]);
        assert_eq!(room, [0]);
    }
}
