//! Weighted progressive filling over links, in floating point.
//!
//! Problem   All flows grow at weight × level until their demand is met or a link of theirs is
//!           full; a hundred thousand flows over eight links each leave 20 ns for each crossing.
//! Approach  One heap of links, ordered by the level at which each would be full if no other flow
//!           stopped before. It only rises while others stop, so a stale entry is too early, never
//!           too late: on top, it is raised in place. Demands are sorted once and merged.
//! Promises  O(i + e·log l) for i crossings and e entries of l links that are seen on top, and
//!           n·log n for n demands. Demands before links, then in the order of their numbers.
//! Not here  What the weights mean: see `allocate` and `layer`. Exactness: `weir_core::oracle`.
//! Source    Bertsekas & Gallager, Data Networks §6.5.2; the oracle's `fill`, which is the same in
//!           exact arithmetic. Weights are whole numbers, so that their sums are exact up to 2⁵³.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// What stopped a flow, where no link did.
pub(crate) const BY_DEMAND: u32 = u32::MAX;

/// The flows on each link.
pub(crate) trait Graph {
    /// Flows have numbers below this.
    fn flows(&self) -> u32;
    /// The links that `flow` crosses; one named twice is crossed twice.
    fn path(&self, flow: u32) -> &[u32];
    /// The flows on `link`, once or more for each crossing.
    fn members(&self, link: u32) -> impl Iterator<Item = u32>;
    /// Grows in proportion to this whole number; 0 = takes no part.
    fn weight(&self, flow: u32) -> f64;
    /// The level at which it has all it wants; infinite = never.
    fn cap(&self, flow: u32) -> f64;
}

/// How high the water rose.
pub(crate) struct Filled {
    /// Per flow: rate / weight. 0 for flows that took no part.
    pub(crate) levels: Vec<f64>,
    /// Per flow: the link that stopped it, or [`BY_DEMAND`].
    pub(crate) stops: Vec<u32>,
    /// Per link: the level at which it was full; infinite if it stopped no flow.
    pub(crate) links: Vec<f64>,
}

/// Has not stopped yet. Levels are not negative.
const GROWS: f64 = -1.0;

#[derive(Clone, Copy, Default)]
struct Pool {
    /// What is left, in bit/s.
    room: f64,
    /// Sum of the weights that still grow, once per crossing.
    weight: f64,
}

impl Pool {
    fn level(self) -> f64 {
        self.room.max(0.0) / self.weight
    }
}

/// Order of levels as integers: the bits of non-negative reals sort as the reals do.
pub(crate) fn key(level: f64) -> u64 {
    debug_assert!(level >= 0.0, "levels are not negative");
    // + 0.0 makes of a negative zero a positive one.
    (level + 0.0).to_bits()
}

struct Filling<'a, G> {
    graph: &'a G,
    pools: Vec<Pool>,
    filled: Filled,
}

/// Fills links of which `room` (bit/s per link) is left.
///
/// A flow that takes part and has no cap must have a path: that is the callers' to check.
pub(crate) fn fill<G: Graph>(graph: &G, room: impl Iterator<Item = f64>) -> Filled {
    let flows = graph.flows() as usize;
    let pools: Vec<Pool> = room.map(|room| Pool { room, weight: 0.0 }).collect();
    let links = vec![f64::INFINITY; pools.len()];
    let filled = Filled { levels: vec![0.0; flows], stops: vec![BY_DEMAND; flows], links };
    let mut filling = Filling { graph, pools, filled };
    let demands = filling.start();
    filling.run(&demands);
    debug_assert!(filling.filled.levels.iter().all(|&level| level >= 0.0), "everybody stops");
    filling.filled
}

impl<G: Graph> Filling<'_, G> {
    /// Sums the weights of each link; gives the caps, ascending.
    fn start(&mut self) -> Vec<(u64, u32)> {
        let mut demands = Vec::new();
        for flow in 0..self.graph.flows() {
            let weight = self.graph.weight(flow);
            if weight == 0.0 {
                continue;
            }
            self.filled.levels[flow as usize] = GROWS;
            for &link in self.graph.path(flow) {
                self.pools[link as usize].weight += weight;
            }
            let cap = self.graph.cap(flow);
            if cap.is_finite() {
                demands.push((key(cap), flow));
            }
        }
        demands.sort_unstable();
        demands
    }

    fn run(&mut self, demands: &[(u64, u32)]) {
        let entry = |(link, pool): (usize, &Pool)| {
            (pool.weight > 0.0).then(|| Reverse((key(pool.level()), link as u32)))
        };
        // From a vector: building a heap at once is linear, pushing is not.
        let heap: Vec<_> = self.pools.iter().enumerate().filter_map(entry).collect();
        let mut heap = BinaryHeap::from(heap);
        let mut met = 0;
        while let Some(mut top) = heap.peek_mut() {
            let Reverse((level, link)) = *top;
            let pool = self.pools[link as usize];
            if pool.weight <= 0.0 {
                PeekMut::pop(top); // all flows on it have stopped already
                continue;
            }
            let now = key(pool.level());
            if now > level {
                *top = Reverse((now, link));
                continue;
            }
            // No link stops a flow below this level, so all demands up to it are met.
            let before = met;
            while let Some(&(_, flow)) = demands.get(met).filter(|(cap, _)| *cap <= now) {
                self.stop(flow, self.graph.cap(flow), BY_DEMAND);
                met += 1;
            }
            if met == before {
                PeekMut::pop(top);
                self.saturate(link, pool.level());
            }
        }
        // What is left crosses no link, or only links that are never full.
        for &(_, flow) in &demands[met..] {
            self.stop(flow, self.graph.cap(flow), BY_DEMAND);
        }
    }

    fn saturate(&mut self, link: u32, level: f64) {
        self.filled.links[link as usize] = level;
        let graph = self.graph;
        for flow in graph.members(link) {
            self.stop(flow, level, link);
        }
    }

    /// The only way to stop: the first reason counts.
    #[inline]
    fn stop(&mut self, flow: u32, level: f64, by: u32) {
        let at = flow as usize;
        if self.filled.levels[at] != GROWS {
            return;
        }
        self.filled.levels[at] = level;
        self.filled.stops[at] = by;
        let weight = self.graph.weight(flow);
        let rate = weight * level;
        for &link in self.graph.path(flow) {
            let pool = &mut self.pools[link as usize];
            pool.room -= rate;
            pool.weight -= weight;
        }
    }
}
