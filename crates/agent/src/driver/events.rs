//! What changed in the machine: in the log, and among the reasons of a pair.
//!
//! Promises  A line of the log for each event, at level debug. The last change of the law of every pair that sends from
//!           here is remembered until the pair is over.
//! Not here  What is an event: see `weir_core::host::Event`. Its sentence: `weir_core::mechanism::explain`.

use super::Driver;
use std::collections::BTreeMap;
use weir_core::host::{Direction, Event};
use weir_units::{PairId, Time};

/// The last change of the law of each pair.
#[derive(Debug, Default)]
pub(super) struct Changes(BTreeMap<PairId, (Time, Event)>);

impl Changes {
    fn take(&mut self, now: Time, event: &Event) {
        if event.is_of_law() {
            self.0.insert(event.pair(), (now, *event));
        } else if let Event::Ended(pair, Direction::Send) = event {
            self.0.remove(pair);
        }
    }

    /// The last change of a pair; none if its law is as it began.
    pub(super) fn last(&self, pair: PairId) -> Option<(Time, Event)> {
        self.0.get(&pair).copied()
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
    use weir_core::rate::Phase;
    use weir_units::{Span, VmId};

    #[test]
    fn the_last_change_is_remembered_until_the_pair_is_over() {
        let (pair, mut changes) = (PairId::new(VmId(1), VmId(2)), Changes::default());
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let phase = |from, to| Event::Phase { pair, path: None, from, to };
        changes.take(at(0), &Event::Began(pair, Direction::Send));
        assert_eq!(changes.last(pair), None);
        changes.take(at(10), &phase(Phase::Starting, Phase::Holding));
        let last = phase(Phase::Holding, Phase::Regaining);
        changes.take(at(40), &last);
        changes.take(at(600), &Event::Ended(pair, Direction::Receive));
        assert_eq!(changes.last(pair), Some((at(40), last)), "the other end");
        changes.take(at(600), &Event::Ended(pair, Direction::Send));
        assert_eq!(changes.last(pair), None);
    }
}
