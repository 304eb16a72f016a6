//! Takes over from an agent that died: its pairs go on.
//!
//! Problem   Floors and what was borrowed must outlive an agent, and nothing else may.
//! Approach  The machine is told what is in force, pair by pair, and takes what it has room for; the rest
//!           is given back.
//! Promises  Every class is some pair's of the machine afterwards.
//! Not here  What the data plane gives up by itself: see its `adoption`.

use super::{ALL, Driver};
use std::collections::BTreeSet;
use weir_core::host::{Input, Setting};
use weir_dataplane::Counters;
use weir_units::{PairId, Time};

impl Driver {
    /// What an earlier agent of this instance left in force goes on: floors, and what was borrowed.
    pub(super) fn adopt(&mut self, now: Time) {
        let levels = self.dataplane.levels().unwrap_or_else(|e| {
            tracing::error!("the levels of an earlier agent could not be read: {e}");
            Vec::new()
        });
        for level in &levels {
            let setting = Setting { floor: level.floor, ceiling: level.ceiling };
            self.agent.handle(now, Input::Adopt(level.pair, setting), &mut self.outbox);
        }
        let mut found = Counters::default();
        if let Err(e) = self.dataplane.read(now.as_nanos(), &mut found) {
            tracing::error!("the counters of an earlier agent could not be read: {e}");
        }
        let mut peers = BTreeSet::new();
        let directory = &self.setup.host.directory;
        for (pair, _) in &found.rx {
            peers.extend(directory.get(&pair.src).map(|location| location.host));
            self.agent.handle(now, Input::Found(*pair), &mut self.outbox);
        }
        // They tell what they hold once they believe us.
        peers.into_iter().for_each(|peer| self.greet(now, peer));
        self.read_counters(now, ALL);
        self.give_up(now, levels.iter().map(|level| level.pair));
    }

    /// Classes for which the machine has no pair: nobody would ever lower their floors, and the others
    /// could not have what is kept for them.
    fn give_up(&mut self, now: Time, bound: impl Iterator<Item = PairId>) {
        let own: BTreeSet<PairId> =
            self.agent.orders(now).pairs.iter().map(|(pair, _)| pair).collect();
        let over: Vec<_> = bound
            .filter(|pair| !own.contains(pair))
            .map(|pair| (pair, weir_dataplane::Direction::Tx))
            .collect();
        if let Err(e) = self.dataplane.forget(&over) {
            tracing::error!("what an earlier agent kept for pairs that are over stays: {e}");
        }
    }
}
