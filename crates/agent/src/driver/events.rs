//! What changed in the machine: in the log, and among the reasons of a pair.
//!
//! Promises  A line of the log for each event, at level debug. The last change of phase of every pair that sends from
//!           here is remembered until the pair is over.
//! Not here  What is an event: see `weir_core::host::Event`.

use super::Driver;
use std::collections::BTreeMap;
use weir_core::host::{Direction, Event};
use weir_core::rate::Phase;
use weir_units::{PairId, Time};

/// The last change of phase of each pair.
#[derive(Debug, Default)]
pub(super) struct Changes(BTreeMap<PairId, (Time, Phase, Phase)>);

impl Changes {
    fn take(&mut self, now: Time, event: &Event) {
        match event {
            Event::Phase { pair, from, to } => drop(self.0.insert(*pair, (now, *from, *to))),
            Event::Ended(pair, Direction::Send) => drop(self.0.remove(pair)),
            Event::Began(..) | Event::Ended(..) => {}
        }
    }

    /// A sentence for `weir explain`; none if the pair is in its first phase.
    pub(super) fn explain(&self, now: Time, pair: PairId) -> Option<String> {
        let (at, from, to) = self.0.get(&pair)?;
        let ago = now.since(*at).as_secs_f64();
        Some(format!("It went from {from} to {to} {ago:.2} s ago."))
    }
}

impl Driver {
    /// Takes up what happened.
    pub(super) fn tell_of_events(&mut self, now: Time, events: &[Event]) {
        for event in events {
            let name = |vm| self.setup.names.name(vm);
            let pair = event.pair();
            tracing::debug!("{} → {}: {event}", name(pair.src), name(pair.dst));
            self.changes.take(now, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::{Span, VmId};

    #[test]
    fn the_last_change_of_phase_is_told_until_the_pair_is_over() {
        let (pair, mut changes) = (PairId::new(VmId(1), VmId(2)), Changes::default());
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let phase = |from, to| Event::Phase { pair, from, to };
        changes.take(at(0), &Event::Began(pair, Direction::Send));
        assert_eq!(changes.explain(at(1), pair), None);
        changes.take(at(10), &phase(Phase::Starting, Phase::Holding));
        changes.take(at(40), &phase(Phase::Holding, Phase::Regaining));
        let said = changes.explain(at(540), pair);
        assert_eq!(said.as_deref(), Some("It went from holding to regaining 0.50 s ago."));
        changes.take(at(600), &Event::Ended(pair, Direction::Receive));
        assert!(changes.explain(at(600), pair).is_some(), "the other end");
        changes.take(at(600), &Event::Ended(pair, Direction::Send));
        assert_eq!(changes.explain(at(600), pair), None);
    }
}
