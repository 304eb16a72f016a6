//! The flow that ends next: a heap in which each flow is at most once, and can be moved.
//!
//! Problem   Each event moves the ends of many flows; a heap that only grows until stale entries
//!           are on top has no bound.
//! Approach  A binary heap of (time, number), with each flow's position in it.
//! Promises  As many entries as flows under way. Total order: time, then number.

use weir_units::Time;

/// Its position is unknown: it is not in the heap.
const OUT: u32 = u32::MAX;

/// An end, as the heap orders it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    pub(crate) at: Time,
    /// Of the arrival: decides ties.
    pub(crate) number: u64,
    /// Whose.
    pub(crate) flow: u32,
}

/// Ends in order.
#[derive(Default)]
pub(crate) struct Ends {
    heap: Vec<End>,
    /// Per flow: its position.
    places: Vec<u32>,
}

impl Ends {
    pub(crate) fn first(&self) -> Option<End> {
        self.heap.first().copied()
    }

    /// Adds an end, or moves it.
    pub(crate) fn set(&mut self, end: End) {
        let flow = end.flow as usize;
        if flow >= self.places.len() {
            self.places.resize(flow + 1, OUT);
        }
        if self.places[flow] == OUT {
            self.places[flow] = self.heap.len() as u32;
            self.heap.push(end);
        }
        let at = self.places[flow] as usize;
        self.heap[at] = end;
        self.place(at);
    }

    /// Removes the end of `flow`, if there is one.
    pub(crate) fn remove(&mut self, flow: u32) {
        let Some(at) = self.places.get(flow as usize).copied().filter(|&at| at != OUT) else {
            return;
        };
        self.places[flow as usize] = OUT;
        self.heap.swap_remove(at as usize);
        if (at as usize) < self.heap.len() {
            self.places[self.heap[at as usize].flow as usize] = at;
            self.place(at as usize);
        }
    }

    /// Moves what is at `at` to where it belongs.
    fn place(&mut self, mut at: usize) {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        loop {
            let children = 2 * at + 1..(2 * at + 3).min(self.heap.len());
            let Some(least) = children.min_by_key(|&child| self.heap[child]) else { return };
            if self.heap[at] <= self.heap[least] {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.places[self.heap[a].flow as usize] = a as u32;
        self.places[self.heap[b].flow as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_an_ordered_map_of_flows(steps in vec((0..20u32, 0..30u64, any::<bool>()), 0..200)) {
            let (mut ends, mut model) = (Ends::default(), BTreeMap::new());
            for (flow, at, set) in steps {
                if set {
                    let number = u64::from(flow ^ 5);
                    let end = End { at: Time::from_nanos(at), number, flow };
                    ends.set(end);
                    model.insert(flow, end);
                } else {
                    ends.remove(flow);
                    model.remove(&flow);
                }
                prop_assert_eq!(ends.first(), model.values().min().copied());
                prop_assert_eq!(ends.heap.len(), model.len());
            }
        }
    }
}
