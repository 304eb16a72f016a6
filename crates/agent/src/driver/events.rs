//! What changed in the machine: in the log, among the reasons of a pair, and for questions about what happened.
//!
//! Promises  A line of the log for each event, at level debug. The last change of the law of every pair that sends from
//!           here is remembered until the pair is over. Of all events the latest [`KEPT`] are kept, as the machine told
//!           them: words are made when a question comes.
//! Not here  What is an event: see `weir_core::host::Event`. Its sentence: `weir_core::mechanism::explain`.

use super::Driver;
use std::collections::{BTreeMap, VecDeque};
use weir_core::accounts::Broken;
use weir_core::host::{Direction, Event};
use weir_model::status::{EventTold, Events};
use weir_units::{PairId, Time};

/// Events that are kept. Larger: a reader may be slower; each takes some fifty octets.
const KEPT: usize = 4096;
/// Events in one answer.
const ANSWERED: usize = 256;

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

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Happened {
    Law(Event),
    /// A floor was not held in the window that ended.
    Broken(Broken),
}

/// The latest events.
#[derive(Debug, Default)]
pub(super) struct Past {
    kept: VecDeque<(Time, Happened)>,
    /// Number of the latest event.
    last: u64,
}

impl Past {
    fn add(&mut self, now: Time, what: Happened) {
        self.last += 1;
        self.kept.push_back((now, what));
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
    }

    /// How many events after one are lost, and the first ones that are kept, with their numbers.
    fn after(&self, number: u64) -> (u64, Vec<(u64, Time, Happened)>) {
        // Of an agent's former life.
        let number = if number > self.last { 0 } else { number };
        let oldest = self.last - self.kept.len() as u64;
        let from = number.max(oldest);
        let numbered = self.kept.iter().zip(oldest + 1..);
        let wanted = numbered.skip_while(|(_, n)| *n <= from).take(ANSWERED);
        (from - number, wanted.map(|((at, what), n)| (n, *at, *what)).collect())
    }
}

impl Driver {
    /// A floor was broken in a window.
    pub(super) fn note_broken(&mut self, now: Time, broken: Broken) {
        self.past.add(now, Happened::Broken(broken));
    }

    /// What happened after an event.
    pub(super) fn told_events(&mut self, now: Time, after: Option<u64>) -> Events {
        let Some(after) = after else {
            return Events { last: self.past.last, ..Events::default() };
        };
        let (lost, events) = self.past.after(after);
        let last = events.last().map_or(self.past.last, |(number, ..)| *number);
        let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let wall = wall.tv_sec as u64 * 1000 + wall.tv_nsec as u64 / 1_000_000;
        let events = events.into_iter().map(|(number, at, what)| {
            let (pair, word, says) = told(&what);
            let summary = self.host.pair(now, pair).map(|view| view.summary());
            let (floor, rate) = summary.map_or_else(Default::default, |s| (s.floor, s.rate));
            let from = self.setup.names.name(pair.src);
            let vm = self.setup.directory.vms.iter().find(|vm| vm.name == from);
            EventTold {
                number,
                at_ms: wall.saturating_sub(now.since(at).as_nanos() / 1_000_000),
                what: word.into(),
                tenant: vm.map(|vm| vm.tenant.clone()).unwrap_or_default(),
                from,
                to: self.setup.names.name(pair.dst),
                says,
                floor_bps: floor.as_bps(),
                rate_bps: rate.as_bps(),
            }
        });
        Events { last, lost, events: events.collect() }
    }

    /// Takes up what happened.
    pub(super) fn tell_of_events(&mut self, now: Time, events: &[Event]) {
        for event in events {
            let name = |vm| self.setup.names.name(vm);
            let pair = event.pair();
            tracing::debug!("{} → {}: {event}", name(pair.src), name(pair.dst));
            self.changes.take(now, event);
            self.past.add(now, Happened::Law(*event));
        }
    }
}

/// The pair of an event, a word for programs, and a sentence without its subject.
fn told(what: &Happened) -> (PairId, &'static str, String) {
    let event = match what {
        Happened::Broken(broken) => {
            let part = broken.got.get() as f64 / broken.owed.get().max(1) as f64;
            let says = format!("has {part:.2} of its floor: {}", broken.cause);
            return (broken.pair, "floor-broken", says);
        }
        Happened::Law(event) => event,
    };
    let pair = event.pair();
    let sentence = event.to_string();
    let says = sentence.strip_prefix(&format!("{pair} ")).unwrap_or(&sentence);
    match event {
        Event::Began(..) => (pair, "began", says.into()),
        Event::Ended(..) => (pair, "ended", says.into()),
        Event::Phase { to, .. } => (pair, "phase", format!("{says}: {}", to.meaning())),
        Event::Limit(..) => (pair, "limit", says.into()),
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

    #[test]
    fn a_reader_gets_each_event_once_and_learns_how_many_it_missed() {
        let (pair, mut past) = (PairId::new(VmId(1), VmId(2)), Past::default());
        let began = Happened::Law(Event::Began(pair, Direction::Send));
        assert_eq!(past.after(0), (0, Vec::new()));
        for n in 0..300 {
            past.add(Time::from_nanos(n), began);
        }
        let (lost, first) = past.after(0);
        assert_eq!((lost, first.len(), first[0].0, first[0].1), (0, ANSWERED, 1, Time::ZERO));
        let (lost, rest) = past.after(ANSWERED as u64);
        assert_eq!(
            (lost, rest.len(), rest.last().map(|one| one.0)),
            (0, 300 - ANSWERED, Some(300))
        );
        for n in 0..KEPT as u64 {
            past.add(Time::from_nanos(n), began);
        }
        let (lost, next) = past.after(250);
        assert_eq!((lost, next[0].0), (50, 301), "fifty were pushed out");
        assert_eq!(past.after(1 << 40).0, 300, "a reader of a former agent begins at the oldest");
    }

    #[test]
    fn an_event_is_a_sentence_with_its_meaning() {
        let pair = PairId::new(VmId(1), VmId(2));
        let phase = Event::Phase { pair, path: None, from: Phase::Holding, to: Phase::Regaining };
        let said = "goes from holding to regaining: it returns to the rate at which it lost";
        assert_eq!(told(&Happened::Law(phase)), (pair, "phase", said.to_owned()));
    }
}
