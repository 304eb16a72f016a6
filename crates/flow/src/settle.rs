//! Works on links until each one's load is its capacity, or no flow there wants more.
//!
//! Problem   After an event a few links carry too much or too little. What one of them takes or
//!           leaves its flows lose or gain at the others.
//! Approach  The lowest link first: a link's level depends only on lower ones, as in progressive
//!           filling. Its new level follows from its flows alone: each takes weight × level, but no
//!           more than its other links and its demand allow. Work beyond a bound means that
//!           filling everything anew is cheaper, and that is done.
//! Promises  Ends, with every link settled. Work is at most that of one filling more than the
//!           cheapest of both ways. Loads are summed anew whenever a link is worked on.
//! Not here  What a level is: see `layer`.
//! Source    As `layer`. Departs: sequential and ordered by level, so that one pass mostly
//!           suffices.

use crate::fill::fill;
use crate::layer::{Layer, UNDECIDED};

/// What settling cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Links that got a new level.
    pub(crate) links: u64,
    /// Times that everything was filled anew.
    pub(crate) fillings: u64,
}

/// A flow on the link that is worked on.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    /// What its other links and its demand allow; infinite = anything.
    bound: f64,
    weight: f64,
}

/// Memory that settling uses again and again.
#[derive(Default)]
pub(crate) struct Scratch {
    claims: Vec<Claim>,
}

impl Layer {
    /// Settles all links. Work beyond `most` (members looked at) fills everything anew.
    pub(crate) fn settle(&mut self, most: usize, scratch: &mut Scratch, cost: &mut Cost) {
        let mut work = 0;
        while let Some(link) = self.forced.pop() {
            work += self.members[link as usize].len();
            if work > most {
                return self.refill(cost);
            }
            self.work_on(link, scratch);
            cost.links += 1;
        }
        while let Some(link) = self.next_dirty() {
            if self.links[link as usize].settled() {
                continue;
            }
            work += self.members[link as usize].len();
            if work > most {
                return self.refill(cost);
            }
            self.work_on(link, scratch);
            cost.links += 1;
        }
        debug_assert!(self.links.iter().all(|link| link.settled()), "some link is not settled");
    }

    /// Fills everything anew.
    pub(crate) fn refill(&mut self, cost: &mut Cost) {
        cost.fillings += 1;
        self.forced.clear();
        let filled = fill(&*self, self.links.iter().map(|link| link.capacity));
        for (link, level) in (0..).zip(filled.links) {
            self.links[link as usize].level = level;
        }
        for (flow, level) in (0..).zip(filled.levels) {
            let slot = self.slots[flow as usize];
            if slot.weight > 0.0 && slot.level != level {
                self.set_level(flow, level);
            }
        }
        // Changes were added one by one; what rounding left of them goes.
        self.links.iter_mut().for_each(|link| (link.load, link.drift) = (0.0, 0.0));
        for flow in 0..self.slots.len() as u32 {
            let rate = self.slots[flow as usize].rate();
            self.add_load(flow, rate);
        }
        while self.next_dirty().is_some() {}
    }

    /// A new level for `link`, given what its flows may have elsewhere.
    fn work_on(&mut self, link: u32, scratch: &mut Scratch) {
        let there = self.links[link as usize];
        scratch.claims.clear();
        for member in &self.members[link as usize] {
            let slot = &self.slots[member.flow as usize];
            // A flow below this link's level is held elsewhere, at just that level.
            let elsewhere = slot.level < there.level && slot.level != UNDECIDED;
            let bound =
                if elsewhere { slot.level } else { self.bound(member.flow, slot.cap, link) };
            scratch.claims.push(Claim { bound, weight: slot.weight });
        }
        let level = share(there.capacity, &scratch.claims, there.level);
        self.links[link as usize].level = level;
        let mut load = 0.0;
        for (place, claim) in scratch.claims.iter().enumerate() {
            let flow = self.members[link as usize][place].flow;
            let new = claim.bound.min(level);
            load += claim.weight * new;
            if new != self.slots[flow as usize].level {
                self.set_level_but(flow, new, link);
            }
        }
        let there = &mut self.links[link as usize];
        (there.load, there.drift) = (load, 0.0);
        self.mark_moved(link);
    }
}

/// The level at which `claims` fill `capacity`; infinite if they never do. `guess` only saves time.
///
/// What is taken at a level is concave in it, so a step of Newton's method from anywhere ends at or
/// below the level sought, and further steps only rise; each but the last passes a bound.
fn share(capacity: f64, claims: &[Claim], guess: f64) -> f64 {
    let mut level = if guess.is_finite() { guess } else { 0.0 };
    let mut below = usize::MAX;
    // A bound that rounding puts on either side of the level could be passed again and again.
    for _ in 0..claims.len() + 4 {
        // No branches: which flow is held below the level elsewhere is as good as random.
        let (mut held, mut weight, mut count) = (0.0, 0.0, 0);
        for claim in claims {
            let less = claim.bound < level;
            held += if less { claim.weight * claim.bound } else { 0.0 };
            weight += if less { 0.0 } else { claim.weight };
            count += usize::from(less);
        }
        if weight > 0.0 {
            if count == below {
                return level;
            }
            below = count;
            level = (capacity - held).max(0.0) / weight;
        } else if held <= capacity {
            return f64::INFINITY;
        } else {
            // The guess was above all flows; start from below.
            (level, below) = (0.0, usize::MAX);
        }
    }
    level
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(capacity: f64, claims: &[(f64, f64)]) -> f64 {
        let claims: Vec<Claim> =
            claims.iter().map(|&(bound, weight)| Claim { bound, weight }).collect();
        let from = |guess| share(capacity, &claims, guess);
        let level = from(f64::INFINITY);
        assert_eq!([from(0.0), from(20.0), from(30.5), from(1e9)], [level; 4]);
        level
    }

    #[test]
    fn what_some_leave_the_others_share_by_weight() {
        let any = f64::INFINITY;
        assert_eq!(level(100.0, &[(any, 1.0), (any, 3.0)]), 25.0);
        assert_eq!(level(100.0, &[(10.0, 1.0), (any, 2.0), (any, 1.0)]), 30.0);
        assert_eq!(level(100.0, &[(10.0, 1.0), (29.0, 2.0), (31.0, 1.0)]), f64::INFINITY);
        assert_eq!(level(0.0, &[(any, 1.0), (5.0, 1.0)]), 0.0);
        assert_eq!(level(100.0, &[]), f64::INFINITY);
    }

    /// Three links of 100; each of n flows crosses two.
    fn layer() -> (Layer, Scratch, Cost) {
        let layer = Layer::new([(100.0, 1e-9); 3].into_iter(), false);
        (layer, Scratch::default(), Cost::default())
    }

    fn rates(layer: &Layer) -> Vec<f64> {
        layer.slots.iter().map(|slot| slot.rate()).collect()
    }

    #[test]
    fn a_change_goes_on_over_shared_links_and_back() {
        let (mut layer, mut scratch, mut cost) = layer();
        let any = f64::INFINITY;
        layer.insert(&[0, 1], 1.0, any);
        layer.insert(&[1, 2], 1.0, any);
        layer.insert(&[2], 1.0, any);
        layer.settle(1000, &mut scratch, &mut cost);
        assert_eq!(rates(&layer), [50.0, 50.0, 50.0]);
        layer.insert(&[0], 4.0, any);
        layer.settle(1000, &mut scratch, &mut cost);
        assert_eq!(rates(&layer), [20.0, 50.0, 50.0, 80.0]);
        layer.insert(&[2], 3.0, any);
        layer.settle(1000, &mut scratch, &mut cost);
        assert_eq!(rates(&layer), [20.0, 20.0, 20.0, 80.0, 60.0]);
        layer.remove(3);
        layer.remove(4);
        layer.settle(1000, &mut scratch, &mut cost);
        assert_eq!(rates(&layer), [50.0, 50.0, 50.0, 0.0, 0.0]);
        assert_eq!(cost.fillings, 0);
        assert!(layer.links.iter().all(|link| link.settled()));
    }

    #[test]
    fn too_much_work_fills_everything_anew_with_the_same_result() {
        let results = [0, 1000].map(|most| {
            let (mut layer, mut scratch, mut cost) = layer();
            for (path, weight, demand) in
                [(&[0, 1][..], 1.0, 30.0), (&[1, 2], 2.0, 1e9), (&[1, 1], 1.0, f64::INFINITY)]
            {
                layer.insert(path, weight, demand);
            }
            layer.settle(most, &mut scratch, &mut cost);
            assert_eq!(cost.fillings, u64::from(most == 0));
            assert!(layer.links.iter().all(|link| link.settled()));
            rates(&layer)
        });
        assert_eq!(results[0], results[1]);
        assert_eq!(results[0], [20.0, 40.0, 20.0]);
    }

    #[test]
    fn slots_and_paths_are_used_again() {
        let (mut layer, mut scratch, mut cost) = layer();
        for _ in 0..1000 {
            let a = layer.insert(&[0, 1, 2], 1.0, f64::INFINITY);
            let b = layer.insert(&[0], 1.0, 7.0);
            layer.settle(1000, &mut scratch, &mut cost);
            assert_eq!(layer.slots[a as usize].rate(), 93.0);
            layer.remove(a);
            layer.remove(b);
        }
        assert_eq!((layer.slots.len(), layer.crossings), (2, 0));
        assert!(layer.members.iter().all(Vec::is_empty));
    }
}
