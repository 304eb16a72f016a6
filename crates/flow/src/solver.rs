//! Ideal rates while flows come and go.
//!
//! Problem   A workload is a hundred thousand arrivals and departures; each touches few rates much.
//! Approach  Three layers, one above the other: hoses give flows their F, links hold flows with an
//!           F, what these leave of the links holds the others. An event enters at the top; changed
//!           parts of hoses are new weights below, changed loads are new capacities below that.
//! Promises  After [`Solver::settle`] the rates are the ideal of a network whose links differ by at
//!           most the [`Tolerance`] from the world's. Floors that fit are kept exactly. Same
//!           events, same rates, to the last bit.
//! Not here  How a layer settles: see `layer` and `settle`. When flows come and go: see `play`.
//! Source    Semantics: `weir_core::oracle`.

use crate::allocate::{Allocation, Bottleneck, whole};
use crate::layer::Layer;
use crate::settle::{Cost, Scratch};
use crate::world::{AllocationError, Floor, Flow, Flows, World, fits, real};
use weir_units::Rate;

/// How far the load of a full link may be from its capacity, as a part of it.
///
/// The exact rates of a connected network all change with every event, most by less than can be
/// measured. A rate within the tolerance stays, which makes an event cheap.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Tolerance(f64);

impl Tolerance {
    /// As exact as floating point allows: 10⁻⁹ of a link.
    pub const LEAST: Self = Self(1e-9);

    /// `part` of each link; `None` unless 10⁻⁹ ≤ `part` ≤ 0.1.
    pub fn from_fraction(part: f64) -> Option<Self> {
        (Self::LEAST.0..=0.1).contains(&part).then_some(Self(part))
    }

    /// The part of each link.
    pub const fn fraction(self) -> f64 {
        self.0
    }
}

impl Default for Tolerance {
    /// 10⁻⁴. With 100 000 flows in a fat tree of 1024 hosts (`benches/flow.rs`) an event then costs
    /// a twentieth of a filling or less, and rates are off by 10⁻⁴ on average; a single one by half
    /// a percent, and by more where those without a floor get next to nothing.
    fn default() -> Self {
        Self(1e-4)
    }
}

/// A flow of a [`Solver`]; given to another flow once it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct FlowId(pub u32);

/// What a solver did, in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Times that [`Solver::settle`] was called.
    pub settled: u64,
    /// Links that got a new level.
    pub links: u64,
    /// Times that a layer was filled anew, because that was cheaper.
    pub fillings: u64,
}

/// Where a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    /// Has a floor; its place among those.
    Floored(u32),
    /// Has none.
    Rest(u32),
}

#[derive(Clone, Copy, Debug)]
struct State {
    place: Place,
    /// Place among the flows of hoses.
    hose: Option<u32>,
    floor: Floor,
    weight: u32,
    demand: f64,
    /// What is counted as promised, in bit/s: the weight of those with a floor.
    owed: f64,
}

/// Layers, by index.
const HOSES: usize = 0;
const FLOORED: usize = 1;
const REST: usize = 2;

/// Ideal rates while flows come and go: [`Solver::insert`] and [`Solver::remove`] as many as there
/// are at one moment, then [`Solver::settle`], then [`Solver::rate`].
pub struct Solver {
    world: World,
    tolerance: Tolerance,
    layers: [Layer; 3],
    /// Per layer and slot: whose it is.
    owners: [Vec<u32>; 3],
    flows: Vec<State>,
    free: Vec<u32>,
    /// Per link: what the floors on it sum to, in bit/s.
    owed: Vec<f64>,
    overbooked: u32,
    cost: Cost,
    settled: u64,
    scratch: Scratch,
    list: Vec<u32>,
    changed: Vec<FlowId>,
}

impl Solver {
    /// A world without flows.
    pub fn new(world: World, tolerance: Tolerance) -> Self {
        let part = tolerance.0;
        let layer = |rates: &[Rate], follow| {
            Layer::new(rates.iter().map(|rate| (rate.as_f64(), rate.as_f64() * part)), follow)
        };
        let [hoses, links] = [&world.hoses, &world.links];
        Self {
            layers: [layer(hoses, false), layer(links, true), layer(links, false)],
            owed: vec![0.0; world.links.len()],
            world,
            tolerance,
            owners: [Vec::new(), Vec::new(), Vec::new()],
            flows: Vec::new(),
            free: Vec::new(),
            overbooked: 0,
            cost: Cost::default(),
            settled: 0,
            scratch: Scratch::default(),
            list: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Links and hoses.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Flows that are there.
    pub fn len(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    /// Whether no flow is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was done so far.
    pub fn work(&self) -> Work {
        let Cost { links, fillings } = self.cost;
        Work { settled: self.settled, links, fillings }
    }

    /// Links on which the floors sum to more than they carry. While there is one, flows on it have
    /// less than their floors, in proportion.
    pub fn overbooked(&self) -> u32 {
        self.overbooked
    }

    /// A flow comes. It sends from the next [`Solver::settle`] on.
    ///
    /// # Errors
    /// The flow makes no sense in this world; it is named 0 in the error, and not there.
    pub fn insert(&mut self, flow: &Flow) -> Result<FlowId, AllocationError> {
        let demand = real(flow.demand);
        fits(&self.world, 0, &flow.path, flow.floor, flow.weight, demand)?;
        let id = self.free.pop().unwrap_or(self.flows.len() as u32);
        let state = State {
            place: Place::Nowhere,
            hose: None,
            floor: flow.floor,
            weight: flow.weight,
            demand,
            owed: 0.0,
        };
        match self.flows.get_mut(id as usize) {
            Some(place) => *place = state,
            None => self.flows.push(state),
        }
        let owed = match flow.floor {
            Floor::Fixed(rate) => rate.as_f64().min(demand),
            Floor::Hose { out, into } => {
                let slot = self.enter(HOSES, id, &[out, into], 1.0, demand);
                self.flows[id as usize].hose = Some(slot);
                0.0
            }
        };
        self.put(id, &flow.path, owed);
        Ok(FlowId(id))
    }

    /// A flow goes.
    ///
    /// # Panics
    /// There is no such flow.
    pub fn remove(&mut self, id: FlowId) {
        let state = self.flows[id.0 as usize];
        if let Some(slot) = state.hose {
            self.layers[HOSES].remove(slot);
        }
        self.take_out(id.0);
        self.free.push(id.0);
    }

    /// Follows what came and went since the last time. Gives the flows whose rates may have
    /// changed, ascending.
    pub fn settle(&mut self) -> &[FlowId] {
        self.settled += 1;
        self.changed.clear();
        let mut list = std::mem::take(&mut self.list);
        self.settle_layer(HOSES);
        self.layers[HOSES].take_changed(&mut list);
        for &slot in &list {
            let part = self.layers[HOSES].slots[slot as usize];
            let id = self.owners[HOSES][slot as usize];
            // A slot that was left may be in the list, too.
            if part.weight > 0.0 && self.flows[id as usize].hose == Some(slot) {
                self.promise(id, whole(part.rate()));
            }
        }
        self.settle_layer(FLOORED);
        self.layers[FLOORED].take_moved(&mut list);
        for &link in &list {
            let there = self.layers[FLOORED].links[link as usize];
            // What a link that holds flows with floors seems to have left is its slack.
            let left = if there.level.is_finite() { 0.0 } else { there.capacity - there.load };
            let beyond = (there.load - there.capacity).max(0.0);
            let slack = (there.slack - beyond).max(there.capacity * Tolerance::LEAST.0);
            self.layers[REST].set_capacity(link, left.max(0.0), slack);
        }
        self.settle_layer(REST);
        for (layer, place) in
            [(FLOORED, Place::Floored as fn(u32) -> Place), (REST, Place::Rest as fn(u32) -> Place)]
        {
            self.layers[layer].take_changed(&mut list);
            let id = |slot: &u32| FlowId(self.owners[layer][*slot as usize]);
            let here = |slot: &&u32| self.flows[id(slot).0 as usize].place == place(**slot);
            self.changed.extend(list.iter().filter(here).map(id));
        }
        self.list = list;
        self.changed.sort_unstable();
        &self.changed
    }

    /// What the last [`Solver::settle`] gave.
    pub fn changed(&self) -> &[FlowId] {
        &self.changed
    }

    /// What a flow has, in bit/s.
    ///
    /// # Panics
    /// There is no such flow.
    pub fn rate(&self, id: FlowId) -> f64 {
        let state = self.flows[id.0 as usize];
        let slot = match state.place {
            Place::Floored(slot) => self.layers[FLOORED].slots[slot as usize],
            Place::Rest(slot) => self.layers[REST].slots[slot as usize],
            Place::Nowhere => panic!("there is no flow {}", id.0),
        };
        // Not weight × (demand / weight), which may miss it by a rounding.
        if slot.level == slot.cap { state.demand } else { slot.rate() }
    }

    /// All flows that are there, ascending, and their rates: for checks, and for a look at the
    /// whole.
    pub fn snapshot(&self) -> (Vec<FlowId>, Flows, Allocation) {
        let (mut ids, mut flows, mut now) = (Vec::new(), Flows::new(), Allocation::default());
        for (id, state) in (0u32..).zip(&self.flows) {
            let (layer, slot) = match state.place {
                Place::Floored(slot) => (&self.layers[FLOORED], slot),
                Place::Rest(slot) => (&self.layers[REST], slot),
                Place::Nowhere => continue,
            };
            flows.paths.extend_from_slice(layer.path(slot));
            flows.ends.push(flows.paths.len() as u32);
            flows.floors.push(state.floor);
            flows.weights.push(state.weight);
            flows.demands.push(state.demand);
            ids.push(FlowId(id));
            now.rates.push(self.rate(FlowId(id)));
            now.floors.push(state.owed);
            let level = layer.slots[slot as usize].level;
            let holds = |link: &&u32| layer.links[**link as usize].level <= level * (1.0 + 1e-12);
            let held = layer.path(slot).iter().find(holds);
            now.bottlenecks.push(match held {
                Some(&link) if level < layer.slots[slot as usize].cap => Bottleneck::Link(link),
                _ => Bottleneck::Demand,
            });
        }
        (ids, flows, now)
    }

    /// Verifies what is promised after [`Solver::settle`], by [`Allocation::check`].
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn check(&self) -> Result<(), crate::Violation> {
        let (_, flows, now) = self.snapshot();
        now.check(&self.world, &flows, self.tolerance.0)
    }

    /// Fills everything anew: what a settled world costs from scratch.
    pub fn refill(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.refill(&mut self.cost));
        self.settle();
    }

    fn settle_layer(&mut self, layer: usize) {
        let most = self.layers[layer].crossings / 4 + 64;
        self.layers[layer].settle(most, &mut self.scratch, &mut self.cost);
    }

    /// Another F for a flow of a hose.
    fn promise(&mut self, id: u32, owed: f64) {
        let state = self.flows[id as usize];
        if state.owed == owed {
            return;
        }
        match state.place {
            Place::Floored(slot) if owed > 0.0 => {
                self.owe(id, slot, owed);
                self.layers[FLOORED].set_weight(slot, owed, state.demand);
            }
            Place::Floored(slot) => self.put_anew(id, FLOORED, slot, owed),
            Place::Rest(slot) => self.put_anew(id, REST, slot, owed),
            Place::Nowhere => {}
        }
    }

    fn put_anew(&mut self, id: u32, layer: usize, slot: u32, owed: f64) {
        let path = self.layers[layer].path(slot).to_vec();
        self.take_out(id);
        self.put(id, &path, owed);
    }

    fn put(&mut self, id: u32, path: &[u32], owed: f64) {
        let state = self.flows[id as usize];
        let place = if owed > 0.0 {
            let slot = self.enter(FLOORED, id, path, owed, state.demand);
            self.owe(id, slot, owed);
            Place::Floored(slot)
        } else {
            Place::Rest(self.enter(REST, id, path, f64::from(state.weight), state.demand))
        };
        self.flows[id as usize].place = place;
    }

    fn take_out(&mut self, id: u32) {
        match self.flows[id as usize].place {
            Place::Floored(slot) => {
                self.owe(id, slot, 0.0);
                self.layers[FLOORED].remove(slot);
            }
            Place::Rest(slot) => self.layers[REST].remove(slot),
            Place::Nowhere => panic!("there is no flow {id}"),
        }
        self.flows[id as usize].place = Place::Nowhere;
    }

    fn enter(&mut self, layer: usize, id: u32, path: &[u32], weight: f64, demand: f64) -> u32 {
        let slot = self.layers[layer].insert(path, weight, demand);
        let owners = &mut self.owners[layer];
        owners.resize(owners.len().max(slot as usize + 1), 0);
        owners[slot as usize] = id;
        slot
    }

    /// Counts what is promised to the flow with this slot among those with a floor.
    fn owe(&mut self, id: u32, slot: u32, owed: f64) {
        let more = owed - self.flows[id as usize].owed;
        self.flows[id as usize].owed = owed;
        for &link in self.layers[FLOORED].path(slot) {
            let capacity = self.world.links[link as usize].as_f64();
            let sum = &mut self.owed[link as usize];
            self.overbooked -= u32::from(*sum > capacity);
            *sum += more;
            self.overbooked += u32::from(*sum > capacity);
        }
    }
}
