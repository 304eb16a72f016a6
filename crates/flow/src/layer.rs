//! Flows of one kind over links, and the levels at which links hold them.
//!
//! Problem   One flow that comes or goes changes a few rates much and, through shared links, most
//!           others by a hair: exact rates of a connected network are all new after each event.
//! Approach  Each link has a level, infinite if it holds no flow. A flow's rate is its weight × the
//!           least level of its links and of its demand: always, so the levels are all there is to
//!           know. A link is *settled* if its load is its capacity, or below it at infinite level,
//!           up to a slack. `settle` works on links that are not, until there is none.
//! Promises  When settled, the rates are the exact max-min of a network whose capacities differ by
//!           no more than the slack. A flow costs 32 octets and 16 per crossing, reused when it
//!           goes.
//! Not here  How a link settles: see `settle`. Floors, hoses: see `solver`.
//! Source    That levels decide everything: Bertsekas & Gallager, Data Networks §6.5.2 (a flow has
//!           a bottleneck link where no flow has more); links that compute their own level from
//!           what others allow: Charny, Clark & Jain, ICC 1995.

use crate::fill::{Graph, key};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Not decided yet: the flow sends nothing. Levels are not negative.
pub(crate) const UNDECIDED: f64 = -1.0;

/// Largest drift of a load, in slacks: then rounding took less than a fiftieth of a slack from it.
const DRIFT: f64 = 1e14;

/// One direction of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// In bit/s.
    pub(crate) capacity: f64,
    /// What the flows put on it, as far as `drift` allows.
    pub(crate) load: f64,
    /// What was added to the load and taken from it since it was summed. A flow may have an absurd
    /// rate until the link that will hold it is worked on, and leave its rounding here.
    pub(crate) drift: f64,
    /// No flow on it is above; infinite if it holds no flow.
    pub(crate) level: f64,
    /// How far a settled link's load may be from its capacity.
    pub(crate) slack: f64,
}

impl Link {
    pub(crate) fn settled(&self) -> bool {
        let excess = self.load - self.capacity;
        let held = excess <= self.slack && (self.level.is_infinite() || excess >= -self.slack);
        held && self.drift <= self.slack * DRIFT
    }
}

/// A flow's place in a layer.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    /// Rate / weight, or [`UNDECIDED`].
    pub(crate) level: f64,
    /// Whole; 0 = the slot is free.
    pub(crate) weight: f64,
    /// Demand / weight.
    pub(crate) cap: f64,
    /// Its crossings.
    start: u32,
    len: u32,
}

impl Slot {
    /// In bit/s.
    pub(crate) fn rate(&self) -> f64 {
        self.weight * self.level.max(0.0)
    }

    fn crossings(&self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

/// One crossing of a link by a flow, as the link sees it.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    pub(crate) flow: u32,
    crossing: u32,
}

/// Flows of one kind over links.
pub(crate) struct Layer {
    pub(crate) links: Vec<Link>,
    pub(crate) members: Vec<Vec<Member>>,
    pub(crate) slots: Vec<Slot>,
    free: Vec<u32>,
    /// Per crossing: the link.
    paths: Vec<u32>,
    /// Per crossing: its position among the link's members.
    places: Vec<u32>,
    /// Starts of unused runs of crossings, by their length.
    holes: Vec<Vec<u32>>,
    /// Crossings in use.
    pub(crate) crossings: usize,
    /// Links to look at, lowest level first.
    pub(crate) dirty: BinaryHeap<Reverse<(u64, u32)>>,
    queued: Vec<bool>,
    /// Links to work on whatever their load says: some flow there is undecided.
    pub(crate) forced: Vec<u32>,
    changed: Marked,
    moved: Option<Marked>,
}

/// A list of numbers, each at most once.
#[derive(Default)]
struct Marked {
    list: Vec<u32>,
    listed: Vec<bool>,
}

impl Marked {
    fn mark(&mut self, number: u32) {
        let at = number as usize;
        if at >= self.listed.len() {
            self.listed.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.listed[at], true) {
            self.list.push(number);
        }
    }

    fn take(&mut self, into: &mut Vec<u32>) {
        into.clear();
        std::mem::swap(&mut self.list, into);
        into.iter().for_each(|&number| self.listed[number as usize] = false);
    }
}

impl Layer {
    /// Links with capacities (bit/s) and slacks. `follow`: whether [`Layer::take_moved`] is asked.
    pub(crate) fn new(links: impl Iterator<Item = (f64, f64)>, follow: bool) -> Self {
        let (load, drift, level) = (0.0, 0.0, f64::INFINITY);
        let link = |(capacity, slack)| Link { capacity, load, drift, level, slack };
        let links: Vec<Link> = links.map(link).collect();
        Self {
            members: vec![Vec::new(); links.len()],
            queued: vec![false; links.len()],
            links,
            slots: Vec::new(),
            free: Vec::new(),
            paths: Vec::new(),
            places: Vec::new(),
            holes: Vec::new(),
            crossings: 0,
            dirty: BinaryHeap::new(),
            forced: Vec::new(),
            changed: Marked::default(),
            moved: follow.then(Marked::default),
        }
    }

    /// The flows whose rates changed since the last time this was asked.
    pub(crate) fn take_changed(&mut self, into: &mut Vec<u32>) {
        self.changed.take(into);
    }

    /// The links whose loads changed since the last time this was asked.
    pub(crate) fn take_moved(&mut self, into: &mut Vec<u32>) {
        self.moved.as_mut().expect("followed").take(into);
    }

    pub(crate) fn path(&self, flow: u32) -> &[u32] {
        &self.paths[self.slots[flow as usize].crossings()]
    }

    /// Adds a flow of a whole weight above zero, which wants no more than `demand` bit/s. Its
    /// number may have been another's before.
    pub(crate) fn insert(&mut self, path: &[u32], weight: f64, demand: f64) -> u32 {
        let flow = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { level: UNDECIDED, weight: 0.0, cap: 0.0, start: 0, len: 0 });
            (self.slots.len() - 1) as u32
        });
        let start = self.store(path);
        for (crossing, &link) in (start..).zip(path) {
            let members = &mut self.members[link as usize];
            self.places[crossing as usize] = members.len() as u32;
            members.push(Member { flow, crossing });
        }
        let (cap, len) = (demand / weight, path.len() as u32);
        self.slots[flow as usize] = Slot { level: UNDECIDED, weight, cap, start, len };
        let level = path.iter().fold(cap, |level, &l| level.min(self.links[l as usize].level));
        if level.is_finite() {
            self.set_level(flow, level);
        } else {
            self.force(flow);
        }
        self.changed.mark(flow);
        flow
    }

    /// Removes a flow; its number is free.
    pub(crate) fn remove(&mut self, flow: u32) {
        self.set_level(flow, 0.0);
        let slot = self.slots[flow as usize];
        for crossing in slot.crossings() {
            let members = &mut self.members[self.paths[crossing] as usize];
            let place = self.places[crossing];
            members.swap_remove(place as usize);
            if let Some(other) = members.get(place as usize) {
                self.places[other.crossing as usize] = place;
            }
        }
        self.crossings -= slot.len as usize;
        self.holes[slot.len as usize].push(slot.start);
        self.slots[flow as usize] =
            Slot { level: UNDECIDED, weight: 0.0, cap: 0.0, start: 0, len: 0 };
        self.free.push(flow);
    }

    /// Another weight for a flow that wants `demand` bit/s: its level stays, unless its demand held
    /// it or now does.
    pub(crate) fn set_weight(&mut self, flow: u32, weight: f64, demand: f64) {
        let mut slot = self.slots[flow as usize];
        let before = slot.rate();
        (slot.weight, slot.cap) = (weight, demand / weight);
        let bound = self.bound(flow, slot.cap, u32::MAX);
        slot.level = if bound.is_finite() { bound } else { UNDECIDED };
        self.slots[flow as usize] = slot;
        self.moved_by(flow, slot.rate() - before, slot.level.max(0.0), u32::MAX);
        if bound.is_infinite() {
            self.force(flow);
        }
        self.changed.mark(flow);
    }

    /// Has a link worked on that will hold `flow`: the one with the least room. The others follow
    /// if they must.
    fn force(&mut self, flow: u32) {
        let room = |link: u32| self.links[link as usize].capacity - self.links[link as usize].load;
        let path = self.path(flow).iter().copied();
        let tightest = path.min_by(|&a, &b| room(a).total_cmp(&room(b)));
        self.forced.push(tightest.expect("who has no demand has a path"));
    }

    /// Another capacity and slack for a link, in bit/s.
    pub(crate) fn set_capacity(&mut self, link: u32, capacity: f64, slack: f64) {
        let there = &mut self.links[link as usize];
        (there.capacity, there.slack) = (capacity, slack);
        let level = if there.level.is_finite() { there.level } else { 0.0 };
        self.look_at(link, level);
    }

    /// The least level of a flow's links, without `but`, and of its demand.
    pub(crate) fn bound(&self, flow: u32, cap: f64, but: u32) -> f64 {
        let path = self.path(flow).iter().filter(|&&link| link != but);
        path.fold(cap, |level, &link| level.min(self.links[link as usize].level))
    }

    /// Another level for a flow; links that it unsettles are noted.
    pub(crate) fn set_level(&mut self, flow: u32, level: f64) {
        self.set_level_but(flow, level, u32::MAX);
    }

    /// The same, with the load of link `but` left as it is.
    pub(crate) fn set_level_but(&mut self, flow: u32, level: f64, but: u32) {
        let slot = &mut self.slots[flow as usize];
        let change = slot.weight * (level - slot.level.max(0.0));
        slot.level = level;
        self.changed.mark(flow);
        self.moved_by(flow, change, level, but);
    }

    fn moved_by(&mut self, flow: u32, change: f64, level: f64, but: u32) {
        for crossing in self.slots[flow as usize].crossings() {
            let link = self.paths[crossing];
            if link != but {
                let there = &mut self.links[link as usize];
                there.load += change;
                there.drift += change.abs();
                self.mark_moved(link);
                self.look_at(link, level);
            }
        }
    }

    /// Notes `link` if it is not settled; `level` is roughly where it will hold a flow, if it
    /// holds none yet.
    fn look_at(&mut self, link: u32, level: f64) {
        let there = &self.links[link as usize];
        if !there.settled() && !self.queued[link as usize] {
            self.queued[link as usize] = true;
            let level = if there.level.is_finite() { there.level } else { level };
            self.dirty.push(Reverse((key(level), link)));
        }
    }

    /// The lowest link to look at.
    pub(crate) fn next_dirty(&mut self) -> Option<u32> {
        let Reverse((_, link)) = self.dirty.pop()?;
        self.queued[link as usize] = false;
        Some(link)
    }

    /// Adds to the loads of a flow's links, without a look at them.
    pub(crate) fn add_load(&mut self, flow: u32, rate: f64) {
        for crossing in self.slots[flow as usize].crossings() {
            self.links[self.paths[crossing] as usize].load += rate;
        }
    }

    /// Notes that a link's load was summed anew.
    pub(crate) fn mark_moved(&mut self, link: u32) {
        if let Some(moved) = &mut self.moved {
            moved.mark(link);
        }
    }

    /// Room for a path, and its crossings.
    fn store(&mut self, path: &[u32]) -> u32 {
        if self.holes.len() <= path.len() {
            self.holes.resize(path.len() + 1, Vec::new());
        }
        self.crossings += path.len();
        if let Some(start) = self.holes[path.len()].pop() {
            self.paths[start as usize..start as usize + path.len()].copy_from_slice(path);
            return start;
        }
        let start = u32::try_from(self.paths.len()).expect("fewer than 2^32 crossings");
        self.paths.extend_from_slice(path);
        self.places.resize(self.paths.len(), 0);
        start
    }
}

impl Graph for Layer {
    fn flows(&self) -> u32 {
        self.slots.len() as u32
    }

    fn path(&self, flow: u32) -> &[u32] {
        Layer::path(self, flow)
    }

    fn members(&self, link: u32) -> impl Iterator<Item = u32> {
        self.members[link as usize].iter().map(|member| member.flow)
    }

    fn weight(&self, flow: u32) -> f64 {
        self.slots[flow as usize].weight
    }

    fn cap(&self, flow: u32) -> f64 {
        self.slots[flow as usize].cap
    }
}
