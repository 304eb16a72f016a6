//! Divides a pair's floor among the paths to its receiver: a third layer, between guarantee
//! partitioning and rate allocation.
//!
//! Problem   Where ways of different capacity lead to a host and traffic is spread over them
//!           evenly, the narrow one cannot keep its part of the floors, though all of them together
//!           could. A host knows neither the links of a path nor the other traffic on them.
//! Approach  The floor is divided in proportion to what each path was seen to hold of it
//!           ([`PathPartition`]): what passed, where segments were lost although the pair kept to
//!           its part; slowly, what passed beyond the part or was left of it. Rate allocation then
//!           runs per path, with that path's part as floor and weight. Flows go to the paths by the
//!           same parts ([`place()`]).
//! Promises  The parts sum to the pair's floor, at any instant. No path is left without a part: it
//!           can show that it is free again. A pair with one path has no such layer.
//! Not here  Which links a path has. Pairs of a single flow, which cannot be divided: what such a
//!           flow loses looks like less demand to guarantee partitioning. A path on which nothing
//!           arrives any more: no receiver reports losses there, so the routing has to notice that
//!           and remove the path.
//! Source    ElasticSwitch §9: "Path partitioning would divide the guarantee between two VMs among
//!           multiple paths. The other layers would operate unmodified." No law is given; this one
//!           is ours.
//!
//! # Why this converges
//!
//! While all pairs lose on a path, its parts fall by the lost share and rise elsewhere by the same
//! amount. With floors S on a narrow path of capacity C, and T ≤ what they carry on the others, one
//! period leaves S' = (S + T)·C / (C + T): what is too much, S − C, shrinks by C / (C + T), so it
//! is gone within a few periods. Losses that all paths have alike cancel.

mod place;

pub use place::{place, point};

use crate::partition::{Demand, PartitionConfig, hand_out};
use weir_units::Rate;

/// The most paths that two hosts may have.
pub const MAX_PATHS: usize = 16;
/// Rooms are weights: parts of this.
const WHOLE: Rate = Rate::from_mbps(1_000_000);

/// Constants of path partitioning. None is the paper's, which gives no law.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct PathConfig {
    /// Paths to every other host that this one can tell apart. With one there is no third layer.
    pub count: usize,
    /// A path's rate is at its part up to this many times of it: losses there say that floors do
    /// not fit. Losses at higher rates are rate allocation's.
    pub near: f64,
    /// What is used beyond a part, or not used of it, moves this fraction of it per period: a
    /// second in all at 60 ms, so that the sawtooth of rate allocation is no reason to move floors.
    pub slowness: f64,
    /// No path has less than half of this fraction of an even share.
    pub least_divisor: u64,
    /// Periods after a path was short in which what the pair does not use elsewhere is no sign:
    /// its flows are on the short path, and are to leave it.
    pub patience: u32,
}

impl Default for PathConfig {
    fn default() -> Self {
        Self { count: 1, near: 1.0625, slowness: 16.0, least_divisor: 64, patience: 16 }
    }
}

/// What a path of a pair showed in one period.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Seen {
    /// What the pair sent over it, at most what it was allowed.
    pub used: Rate,
    /// Segments lost while its rate was at its part.
    pub lost: u64,
    /// Segments that arrived in the same time, as far as reports say.
    pub arrived: u64,
}

/// One pair's floor over its paths.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct PathPartition {
    /// What each path is thought to hold, in relation to the others.
    rooms: Vec<Rate>,
    /// Periods for which what is not used is no sign.
    patience: u32,
}

impl PathPartition {
    /// Over `paths` paths, of which nothing is known: evenly.
    ///
    /// # Panics
    /// There is no path, or more than [`MAX_PATHS`].
    pub fn new(paths: usize) -> Self {
        assert!((1..=MAX_PATHS).contains(&paths), "{paths} paths");
        Self { rooms: vec![WHOLE.split(paths); paths], patience: 0 }
    }

    /// The parts of a floor of `floor`. They sum to it.
    pub fn parts(&self, floor: Rate) -> Vec<Rate> {
        let rooms: Vec<Demand> = self.rooms.iter().map(|room| Demand::Bounded(*room)).collect();
        let mut parts = vec![Rate::ZERO; rooms.len()];
        hand_out(floor, &rooms, &mut parts);
        parts
    }

    /// The periodic step. `seen` is what each path showed while `parts` were in force; `margins`
    /// are guarantee partitioning's.
    ///
    /// # Panics
    /// `parts` or `seen` is not one per path.
    pub fn step(
        &mut self,
        config: &PathConfig,
        margins: &PartitionConfig,
        parts: &[Rate],
        seen: &[Seen],
    ) {
        let paths = self.rooms.len();
        assert_eq!((parts.len(), seen.len()), (paths, paths), "one per path");
        if parts.iter().all(|part| part.is_zero()) {
            return;
        }
        let shown: Vec<Shown> =
            parts.iter().zip(seen).map(|(part, seen)| Shown::new(*part, *seen)).collect();
        self.patience = self.patience.saturating_sub(1);
        if shown.iter().any(|path| path.is_short(margins)) {
            self.patience = config.patience;
        }
        let least = WHOLE.split(paths).mul_ratio(1, config.least_divisor);
        let is_patient = self.patience > 0;
        let rooms = self.rooms.iter().zip(&shown).map(|(room, path)| {
            let room = room.scale(path.factor(config, margins, is_patient));
            Demand::Bounded(room.max(least))
        });
        let rooms: Vec<Demand> = rooms.collect();
        self.rooms.fill(Rate::ZERO);
        hand_out(WHOLE, &rooms, &mut self.rooms);
    }
}

/// A path's period in units of its part.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Shown {
    /// Sent.
    used: f64,
    /// Arrived, of what was sent at the part.
    passed: f64,
    /// Something was lost at the part.
    is_lossy: bool,
}

impl Shown {
    fn new(part: Rate, seen: Seen) -> Self {
        let used = seen.used.as_f64() / part.as_f64().max(1.0);
        let (lost, arrived) = (seen.lost as f64, seen.arrived as f64);
        let passed = if seen.lost > 0 { arrived / (lost + arrived) } else { 1.0 };
        Self { used, passed, is_lossy: seen.lost > 0 }
    }

    /// What the path held of the part.
    fn held(self) -> f64 {
        self.used.min(1.0) * self.passed
    }

    /// The pair kept to its part, lost, and had too little of it: its floor is not held here.
    fn is_short(self, margins: &PartitionConfig) -> bool {
        self.is_lossy && self.held() < margins.margin_bounded
    }

    /// By how much the path's room changes.
    fn factor(self, config: &PathConfig, margins: &PartitionConfig, is_patient: bool) -> f64 {
        if self.is_short(margins) {
            // A connection that has lost sends less than it wants: what it did not send was no room
            // either, but one bad period proves little.
            return self.passed - (self.passed - self.held()) / config.slowness;
        }
        if self.is_lossy {
            return self.passed;
        }
        if self.used >= margins.margin_bounded {
            let beyond = self.used.min(margins.growth) - 1.0;
            return 1.0 + beyond.max(0.0) / config.slowness;
        }
        if is_patient {
            return 1.0;
        }
        let unused = 1.0 - margins.margin_estimate * self.used;
        1.0 - unused.max(0.0) / config.slowness
    }
}

#[cfg(test)]
mod tests;
