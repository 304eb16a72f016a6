//! Queue lengths in ports, sampled every millisecond.
//!
//! Problem   Queue lengths change faster than samples of the run are taken.
//! Approach  Between samples the run pauses every millisecond, which changes nothing in it. Ports
//!           of switches before hosts are the edge, those between switches the core. Lengths are
//!           counted in steps of 64 octets.
//! Promises  The maximum is exact for all samples, a percentile is less than a step too high.
//! Not here  Hosts' own ports: their packets wait in shapers, too.

use crate::Sim;
use weir_model::record::QueueRecord;
use weir_model::scenario::{LinkDir, Topology};
use weir_units::{SortedMap, Span, Time};

/// Between two looks.
const EVERY: Span = Span::from_millis(1);
/// Octets of a step.
const STEP: u64 = 64;

/// What was found in ports of one kind.
#[derive(Default)]
struct Found {
    /// The ports, by their links.
    links: Vec<u32>,
    /// How many looks found so many steps, the last one begun.
    steps: SortedMap<u64, u64>,
    looks: u64,
    max: u64,
}

/// What was found in all ports of switches.
#[derive(Default)]
pub(super) struct Queues {
    edge: Found,
    core: Found,
}

impl Queues {
    pub(super) fn new(topology: &Topology) -> Self {
        let mut queues = Self::default();
        let is_host = |node: usize| node < topology.hosts.len();
        for index in 0..2 * topology.links.len() {
            let direction = LinkDir::from_index(index);
            match (is_host(direction.from(topology)), is_host(direction.to(topology))) {
                (true, _) => {}
                (false, true) => queues.edge.links.push(index as u32),
                (false, false) => queues.core.links.push(index as u32),
            }
        }
        queues
    }

    /// Plays from `begin`, where the run is, to `end`, and looks on the way.
    pub(super) fn play(&mut self, sim: &mut Sim, begin: Time, end: Time) {
        let mut at = begin;
        while at < end {
            at = (at + EVERY).min(end);
            sim.run_until(at);
            for found in [&mut self.edge, &mut self.core] {
                found.look(sim);
            }
        }
    }

    /// Edge and core, as far as there are such ports.
    pub(super) fn records(&self) -> (Option<QueueRecord>, Option<QueueRecord>) {
        (self.edge.record(), self.core.record())
    }
}

impl Found {
    fn look(&mut self, sim: &Sim) {
        for link in &self.links {
            let octets = sim.queued(*link).expect("it is one of the network's").get();
            *self.steps.entry(octets.div_ceil(STEP)).or_default() += 1;
            self.looks += 1;
            self.max = self.max.max(octets);
        }
    }

    fn record(&self) -> Option<QueueRecord> {
        let enough = (self.looks * 99).div_ceil(100);
        let mut seen = 0;
        let reached = self.steps.iter().find(|(_, looks)| {
            seen += **looks;
            seen >= enough
        });
        let max = self.max;
        reached.map(|(steps, _)| QueueRecord { p99: (steps * STEP).min(max), max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_hundred_looks_may_find_more_than_the_percentile() {
        let mut found = Found { looks: 200, max: 9_001, ..Found::default() };
        found.steps.extend([(0, 190), (10, 8), (141, 2)]);
        assert_eq!(found.record(), Some(QueueRecord { p99: 640, max: 9_001 }));
        found.steps.extend([(10, 7), (141, 3)]);
        assert_eq!(found.record(), Some(QueueRecord { p99: 9_001, max: 9_001 }));
        assert_eq!(Found::default().record(), None, "no such ports");
    }
}
