//! `get_optimal_allocation` of Algorithm 1: the host with the most usable slots takes as many VMs as
//! fit, again and again. First-fit is the same with hosts in their order.

use super::sketch::{Sketch, Stop};
use super::{Nearest, Policy, Search};
use crate::ledger::trees::Tree;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

impl Search<'_> {
    /// Places all VMs that have no host: class, host, number.
    pub(super) fn fill(
        &self,
        tree: &Tree,
        sketch: &mut Sketch<'_>,
    ) -> Result<Vec<(usize, u32, u32)>, Nearest> {
        let group = &self.book.groups[tree.group as usize];
        let slots = |class: usize| u64::from(self.spec.slots[class]);
        let needed: u64 = (0..).zip(self.wanted).map(|(c, n)| slots(c) * u64::from(*n)).sum();
        if needed > group.free {
            let stop = Stop::Slots { host: u32::MAX };
            return Err(Nearest { placed: 0, stop });
        }
        let mut placed = Vec::new();
        let mut before = 0;
        for &class in &self.spec.order {
            let wanted = self.wanted[class];
            let left = match self.policy {
                Policy::FirstFit => self.in_order(tree, sketch, class, wanted, &mut placed),
                _ => self.largest_first(tree, sketch, class, wanted, &mut placed),
            };
            if let Err((left, stop)) = left {
                return Err(Nearest { placed: before + wanted - left, stop });
            }
            before += wanted;
        }
        Ok(placed)
    }

    /// `Err` says how many are left, and what stopped them.
    fn largest_first(
        &self,
        tree: &Tree,
        sketch: &mut Sketch<'_>,
        class: usize,
        mut left: u32,
        placed: &mut Vec<(usize, u32, u32)>,
    ) -> Result<(), (u32, Stop)> {
        let slots = self.spec.slots[class];
        let most = |free: u32| free.checked_div(slots).unwrap_or(u32::MAX);
        let mut fresh = self.book.groups[tree.group as usize].hosts.iter().peekable();
        // Hosts that were looked at and are worth less than their slots promised.
        let mut known: BinaryHeap<(u32, Reverse<u32>)> = BinaryHeap::new();
        let mut stopped = Stop::Slots { host: u32::MAX };
        while left > 0 {
            let next = fresh.peek().map(|(free, host)| (most(free.0).min(left), Reverse(*host)));
            let host = match (next, known.peek()) {
                (None, None) => return Err((left, stopped)),
                (Some(next), top) if top.is_none_or(|top| next >= *top) => {
                    fresh.next();
                    next.1.0
                }
                _ => known.pop().expect("peeked").1.0,
            };
            let (usable, stop) = sketch.usable(host, class, left);
            if usable == 0 {
                if let Some(stop @ Stop::Link { .. }) = stop {
                    stopped = stop;
                } else if let (Some(stop), Stop::Slots { .. }) = (stop, stopped) {
                    stopped = stop;
                }
                continue;
            }
            let worth = (usable, Reverse(host));
            let beats = |other: Option<(u32, Reverse<u32>)>| other.is_none_or(|o| worth >= o);
            let next = fresh.peek().map(|(free, host)| (most(free.0).min(left), Reverse(*host)));
            if beats(next) && beats(known.peek().copied()) {
                sketch.place(host, class, usable);
                placed.push((class, host, usable));
                left -= usable;
            } else {
                known.push(worth);
            }
        }
        Ok(())
    }

    fn in_order(
        &self,
        tree: &Tree,
        sketch: &mut Sketch<'_>,
        class: usize,
        mut left: u32,
        placed: &mut Vec<(usize, u32, u32)>,
    ) -> Result<(), (u32, Stop)> {
        let mut stopped = Stop::Slots { host: u32::MAX };
        for &host in &self.shape.groups[tree.group as usize] {
            if left == 0 {
                break;
            }
            if self.book.hosts[host as usize].is_closed {
                continue;
            }
            let (usable, stop) = sketch.usable(host, class, left);
            if usable == 0 {
                stopped = stop.unwrap_or(stopped);
                continue;
            }
            sketch.place(host, class, usable);
            placed.push((class, host, usable));
            left -= usable;
        }
        if left == 0 { Ok(()) } else { Err((left, stopped)) }
    }
}
