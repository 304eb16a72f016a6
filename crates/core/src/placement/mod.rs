//! Where a tenant's VMs go.
//!
//! Problem   Many places can hold a tenant; some leave less for later tenants, some put too many
//!           tenants on one port for its few queues.
//! Approach  QShare's Algorithm 1: layer by layer, every tenant routing (a tree) is tried; the first
//!           layer with any that fits ends the search, and of its trees the cheapest is taken.
//! Promises  What is returned fits every link for all traffic that the hoses allow, every host's slots,
//!           and the tenant's survival. Deterministic: ties go to fewer links, then to the tree that
//!           comes first.
//! Not here  Who holds what: see `ledger`. Switch queues themselves.
//! Source    QShare §4; Oktopus §4.2 as a baseline. Departs: `docs/algorithms/placement.md`.

mod exact;
mod greedy;
pub(crate) mod sketch;
pub(crate) mod spec;

use crate::ledger::book::Book;
use crate::ledger::request::{Need, Refusal, Routing};
use crate::ledger::topology::SwitchId;
use crate::ledger::trees::{Shape, Tree};
use sketch::{Located, Scratch, Sketch, Stop};
use spec::Spec;
use weir_units::HostId;

/// How a place is chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Policy {
    /// QShare: of all trees of the lowest layer that fit, the one with the least cost.
    Balanced(Weight),
    /// Oktopus: the first tree of the lowest layer that fits.
    Oktopus,
    /// The first tree in which hosts, filled in their order, hold the tenant.
    FirstFit,
}

/// The part of bandwidth in QShare's cost L·c_b/c_max + (1 − L)·c_q/Q.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Weight {
    /// L is the part of the datacenter's slots that is taken.
    Load,
    /// A fixed L, from 0 (queues only) to 1 (bandwidth only). The paper's stress test: 0.1.
    Fixed(f64),
}

/// Queues of a switch's port: Q in QShare's cost.
pub const QUEUES: u32 = 8;

/// A place that fits.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// Index of the tree; none if all VMs are on one host and nothing leaves it.
    pub(crate) tree: Option<usize>,
    pub(crate) routing: Routing,
    /// Class, host, number of VMs: those that were not located before.
    pub(crate) placed: Vec<(usize, u32, u32)>,
    pub(crate) needs: Vec<Need>,
}

/// What was nearest to fitting, for the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Nearest {
    /// VMs that had a place.
    placed: u32,
    pub(crate) stop: Stop,
}

/// A tenant that looks for a place.
pub(crate) struct Search<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) book: &'a Book,
    pub(crate) spec: &'a Spec,
    /// VMs that have a host.
    pub(crate) located: &'a [Located],
    /// VMs per class that have none.
    pub(crate) wanted: &'a [u32],
    pub(crate) policy: Policy,
    /// Steps of the exhaustive search after the greedy one; 0 for none.
    pub(crate) effort: u64,
}

impl Search<'_> {
    /// A place, or what was nearest to one. A `preferred` tree is taken if it fits.
    pub(crate) fn run(
        &self,
        preferred: Option<usize>,
        scratch: &mut Scratch,
    ) -> Result<Solution, Nearest> {
        let mut nearest = None;
        if let Some(tree) = preferred
            && let Ok(solution) = self.evaluate(tree, scratch)
        {
            return Ok(solution);
        }
        if let Some(solution) = self.on_one_host() {
            return Ok(solution);
        }
        for layer in 0..self.shape.layers.len() {
            if let Some(solution) = self.layer(layer, &mut nearest, scratch) {
                return Ok(solution);
            }
        }
        self.or_exhaust(nearest.unwrap_or(Nearest { placed: 0, stop: Stop::Route }), scratch)
    }

    /// The hypervisor layer of Algorithm 1: every such place costs nothing, so the first is taken.
    fn on_one_host(&self) -> Option<Solution> {
        let vms = self.spec.vms();
        if self.spec.has_outside || self.spec.most.iter().any(|most| vms > *most) {
            return None;
        }
        let slots = |class: usize| u64::from(self.spec.slots[class]);
        let wanted: u64 = (0..).zip(self.wanted).map(|(c, n)| slots(c) * u64::from(*n)).sum();
        let host = match self.located.first() {
            Some(first) => {
                let alone = self.located.iter().all(|vm| vm.host == first.host);
                let held: u64 = self.located.iter().map(|vm| slots(vm.class)).sum();
                let account = &self.book.hosts[first.host as usize];
                let may_grow = wanted == 0 || !account.is_closed;
                (alone && may_grow && held + wanted <= u64::from(account.free()))
                    .then_some(first.host)
            }
            None if wanted == 0 => None,
            None => self.book.first_with(u32::try_from(wanted).ok()?),
        }?;
        let placed = (0..).zip(self.wanted).filter(|(_, n)| **n > 0);
        Some(Solution {
            tree: None,
            routing: Routing::Host(HostId(host)),
            placed: placed.map(|(class, n)| (class, host, *n)).collect(),
            needs: Vec::new(),
        })
    }

    /// The best of a layer's trees.
    fn layer(
        &self,
        layer: usize,
        nearest: &mut Option<Nearest>,
        scratch: &mut Scratch,
    ) -> Option<Solution> {
        let mut candidates: Vec<(Cost, Solution)> = Vec::new();
        for tree in self.shape.layer(layer) {
            match self.evaluate(tree, scratch) {
                Ok(solution) => {
                    let Policy::Balanced(_) = self.policy else { return Some(solution) };
                    candidates.push((self.cost(&solution), solution));
                }
                Err(near) => {
                    if nearest.is_none_or(|n: Nearest| self.rank(near) >= self.rank(n)) {
                        *nearest = Some(near);
                    }
                }
            }
        }
        self.elect(candidates)
    }

    /// How near to a place, and how much the reason tells.
    fn rank(&self, near: Nearest) -> (u32, u8) {
        let reason = match near.stop {
            Stop::Route => 0,
            Stop::Link { link, .. } if self.book.is_useless(link) => 1,
            Stop::Slots { .. } => 2,
            Stop::Survival => 3,
            Stop::Link { .. } => 4,
        };
        (near.placed, reason)
    }

    /// QShare §4.2: c_b is the sum of reservations, c_q the most tenants on any link of the tree.
    fn cost(&self, solution: &Solution) -> Cost {
        let mut cost = Cost { bandwidth: 0, queues: 0, links: solution.needs.len() };
        for need in &solution.needs {
            cost.bandwidth += need.forward.as_bps() + need.backward.as_bps();
            let tenants = self.book.links[need.link.0 as usize].tenants.len() as u32 + 1;
            cost.queues = cost.queues.max(tenants);
        }
        cost
    }

    fn elect(&self, candidates: Vec<(Cost, Solution)>) -> Option<Solution> {
        let most = candidates.iter().map(|(cost, _)| cost.bandwidth).max()?.max(1) as f64;
        let weight = match self.policy {
            Policy::Balanced(Weight::Fixed(weight)) => weight,
            _ => self.book.used as f64 / self.book.slots.max(1) as f64,
        };
        let value = |cost: &Cost| {
            let bandwidth = cost.bandwidth as f64 / most;
            weight * bandwidth + (1.0 - weight) * f64::from(cost.queues) / f64::from(QUEUES)
        };
        let order = |(a, _): &(Cost, Solution), (b, _): &(Cost, Solution)| {
            value(a).total_cmp(&value(b)).then(a.links.cmp(&b.links))
        };
        candidates.into_iter().min_by(order).map(|(_, solution)| solution)
    }

    /// `evaluate_TR` of Algorithm 1.
    pub(crate) fn evaluate(&self, tree: usize, scratch: &mut Scratch) -> Result<Solution, Nearest> {
        let at = &self.shape.trees[tree];
        let mut sketch = Sketch::new((self.shape, self.book), at, self.spec, scratch);
        sketch.locate(self.located).map_err(|stop| Nearest { placed: 0, stop })?;
        let placed = self.fill(at, &mut sketch)?;
        let needs = sketch.needs();
        Ok(Solution { tree: Some(tree), routing: routing(at), placed, needs })
    }
}

/// What QShare compares candidates by.
#[derive(Clone, Copy, Debug)]
struct Cost {
    bandwidth: u64,
    queues: u32,
    links: usize,
}

pub(crate) fn routing(tree: &Tree) -> Routing {
    Routing::Tree { root: SwitchId(tree.root()), rank: tree.rank }
}

impl Nearest {
    /// Whether a link was in the way.
    pub(crate) fn refusal_without_link(self, free: u64, needed: u64) -> Refusal {
        match self.stop {
            Stop::Survival => Refusal::Survival,
            Stop::Route => Refusal::NoRoute,
            Stop::Slots { .. } | Stop::Link { .. } => Refusal::Slots { host: None, needed, free },
        }
    }
}
