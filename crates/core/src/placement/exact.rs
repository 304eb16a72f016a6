//! Every way of dividing a tenant over a tree, at bounded cost.
//!
//! Problem   Taking the largest host first refuses tenants that another division would fit.
//! Approach  Oktopus' dynamic program with a vector of counts, one per class: for each link of the tree
//!           the set of counts below it that fit; a switch's set is the sums of its children's.
//! Promises  Within its bounds it finds a division if the tree has one. Work is counted, and the search
//!           ends when its budget is spent.
//! Source    Oktopus (SIGCOMM 2011) §4.2; departs: vectors of counts, and hoses of several kinds.

use super::sketch::{Sketch, Stop};
use super::{Nearest, Search, Solution, routing};
use crate::ledger::trees::NONE;

/// Largest number of count vectors. With more, tenants of several classes are searched exactly more
/// often; memory per link grows alike.
const STATES: usize = 4096;

/// Count vectors as a set of numbers.
#[derive(Clone, PartialEq, Eq)]
struct Set(Vec<u64>);

impl Set {
    fn none(states: usize) -> Self {
        Self(vec![0; states.div_ceil(64)])
    }

    fn zero(states: usize) -> Self {
        let mut set = Self::none(states);
        set.insert(0);
        set
    }

    fn insert(&mut self, state: usize) {
        self.0[state / 64] |= 1 << (state % 64);
    }

    fn contains(&self, state: usize) -> bool {
        self.0[state / 64] >> (state % 64) & 1 == 1
    }

    fn states(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        (0..self.0.len() * 64).filter(|state| self.contains(*state))
    }
}

/// Numbers for vectors of counts up to `most`, class 0 in the lowest place.
struct Vectors {
    most: Vec<u32>,
    states: usize,
}

impl Vectors {
    fn new(most: &[u32]) -> Option<Self> {
        let size = |n: &u32| *n as usize + 1;
        let states = most.iter().map(size).try_fold(1usize, usize::checked_mul)?;
        (states <= STATES).then(|| Self { most: most.to_vec(), states })
    }

    fn counts(&self, mut state: usize) -> Vec<u32> {
        let digit = |most: &u32| {
            let size = *most as usize + 1;
            let count = (state % size) as u32;
            state /= size;
            count
        };
        self.most.iter().map(digit).collect()
    }

    /// Whether adding the vectors exceeds no class, so that their numbers may be added.
    fn may_add(&self, mut a: usize, mut b: usize) -> bool {
        self.most.iter().all(|most| {
            let size = *most as usize + 1;
            let fits = a % size + b % size < size;
            (a, b) = (a / size, b / size);
            fits
        })
    }

    fn sums(&self, a: &Set, b: &Set, budget: &mut u64) -> Set {
        let mut sums = Set::none(self.states);
        let second: Vec<usize> = b.states().collect();
        for first in a.states() {
            *budget = budget.saturating_sub(second.len() as u64);
            for &other in &second {
                if self.may_add(first, other) {
                    sums.insert(first + other);
                }
            }
        }
        sums
    }
}

impl Search<'_> {
    /// The first division of the lowest layer that has any, or `None`.
    pub(super) fn exhaust(&self, scratch: &mut super::Scratch) -> Option<Solution> {
        let mut budget = self.effort;
        let vectors = Vectors::new(self.wanted)?;
        for tree in 0..self.shape.trees.len() {
            if budget == 0 {
                return None;
            }
            let at = &self.shape.trees[tree];
            let mut sketch = Sketch::new((self.shape, self.book), at, self.spec, scratch);
            if sketch.locate(self.located).is_err() {
                continue;
            }
            let hosts = self.book.groups[at.group as usize].hosts.iter().map(|(_, host)| *host);
            let hosts: Vec<u32> = hosts.collect();
            let Some(placed) = divide(&vectors, &mut sketch, &hosts, &mut budget) else { continue };
            for &(class, host, vms) in &placed {
                sketch.place(host, class, vms);
            }
            let needs = sketch.needs();
            return Some(Solution { tree: Some(tree), routing: routing(at), placed, needs });
        }
        None
    }

    /// The greedy answer, or one of the exhaustive search.
    pub(super) fn or_exhaust(
        &self,
        near: Nearest,
        scratch: &mut super::Scratch,
    ) -> Result<Solution, Nearest> {
        if self.effort == 0 || matches!(near.stop, Stop::Route) {
            return Err(near);
        }
        self.exhaust(scratch).ok_or(near)
    }
}

/// Class, host and number of VMs for each host that gets some.
fn divide(
    vectors: &Vectors,
    sketch: &mut Sketch<'_>,
    hosts: &[u32],
    budget: &mut u64,
) -> Option<Vec<(usize, u32, u32)>> {
    let all = vectors.states - 1;
    for &host in hosts {
        sketch.draw_host(host);
    }
    let entries = sketch.entries();
    // Index `entries` is the root.
    let mut below = vec![Set::zero(vectors.states); entries + 1];
    let mut merges: Vec<(usize, usize, Set)> = Vec::new();
    let mut host_of = vec![NONE; entries];
    for &host in hosts {
        let entry = sketch.draw_host(host)?;
        host_of[entry] = host;
        let mut fits = Set::none(vectors.states);
        (0..=all)
            .filter(|s| sketch.has_slots(host, &vectors.counts(*s)))
            .for_each(|s| fits.insert(s));
        *budget = budget.saturating_sub(all as u64 + 1);
        below[entry] = fits;
    }
    // Entries come after those above them.
    for entry in (0..entries).rev() {
        let mut fits = Set::none(vectors.states);
        for state in below[entry].states() {
            *budget = budget.saturating_sub(1);
            if sketch.fits(entry, &vectors.counts(state)) {
                fits.insert(state);
            }
        }
        if *budget == 0 {
            return None;
        }
        let parent = sketch.parent(entry).unwrap_or(entries);
        let sums = vectors.sums(&below[parent], &fits, budget);
        merges.push((parent, entry, std::mem::replace(&mut below[parent], sums)));
        below[entry] = fits;
    }
    if !below[entries].contains(all) {
        return None;
    }
    let mut target = vec![0; entries + 1];
    target[entries] = all;
    let mut placed = Vec::new();
    for (parent, entry, before) in merges.iter().rev() {
        let wanted = target[*parent];
        let split = below[*entry].states().rev().find(|own| {
            *own <= wanted && before.contains(wanted - own) && vectors.may_add(wanted - own, *own)
        });
        let own = split.expect("a sum has its parts");
        target[*parent] = wanted - own;
        target[*entry] = own;
        if host_of[*entry] != NONE {
            let counts = vectors.counts(own);
            let some = (0..).zip(counts).filter(|(_, vms)| *vms > 0);
            placed.extend(some.map(|(class, vms)| (class, host_of[*entry], vms)));
        }
    }
    Some(placed)
}
