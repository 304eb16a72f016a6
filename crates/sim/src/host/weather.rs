//! Faults of control messages on their last step to a host's agent.
//!
//! Approach  As the lab's relay at the door of each agent: a letter is lost, or held back so that
//!           later ones overtake it, each by its own draw; all come later by the delay, each copy
//!           by its own part of the jitter. Of two copies the first is read: the session of the
//!           receiving agent has seen the other's number.
//! Source    `weir-lab`'s `relay.rs`; what is counted, `weir-wire`'s `session.rs`.

use crate::rng::Rng;
use weir_model::record::ControlRecord;
use weir_units::{HostId, SortedMap, Span};

/// A letter that is held back comes so much later, in ns: two agents write every 50 to 70 ms.
const HELD_BACK: u64 = 100_000_000;
/// Streams of chance from this one on are the weather's.
const STREAM: u64 = 1 << 42;

/// What happens to letters for one host from `from` to `until`, in ns, unless a later one replaces
/// it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Trouble {
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    pub(crate) delay: u64,
    /// Not larger than `delay`.
    pub(crate) jitter: u64,
}

/// A host's troubles, in the order of time.
#[derive(Debug)]
pub(super) struct Weather {
    troubles: Vec<Trouble>,
    rng: Rng,
    /// Copies that came second.
    repeated: u64,
    /// Copies that passed, and how late they were together, in ns.
    passed: u64,
    late: u64,
}

impl Weather {
    pub(super) fn new(troubles: &[Trouble], seed: u64, host: u32) -> Self {
        let rng = Rng::new(seed, STREAM + u64::from(host));
        Self { troubles: troubles.to_vec(), rng, repeated: 0, passed: 0, late: 0 }
    }

    /// By how much a letter that comes at `now` is late; `None` if it is lost.
    pub(super) fn late(&mut self, now: u64) -> Option<u64> {
        let last = self.troubles.iter().rfind(|trouble| trouble.from <= now);
        let Some(&trouble) = last.filter(|trouble| now < trouble.until) else {
            self.passed += 1;
            return Some(0);
        };
        // `unit` is never zero: a chance of zero is none. Always so many draws: a change of one
        // part does not shift the others' luck.
        let [lost, doubled, held, first, second] = std::array::from_fn(|_| self.rng.unit());
        if lost <= trouble.loss {
            return None;
        }
        let held = if held <= trouble.reorder { HELD_BACK } else { 0 };
        let late = |draw: f64| {
            trouble.delay - trouble.jitter + held + (2.0 * trouble.jitter as f64 * draw) as u64
        };
        self.passed += 1;
        self.late += late(first);
        if doubled > trouble.duplicate {
            return Some(late(first));
        }
        self.passed += 1;
        self.late += late(second);
        self.repeated += 1;
        Some(late(first).min(late(second)))
    }
}

/// What a host has heard from each other one: the highest number, and how many letters.
#[derive(Debug, Default)]
pub(super) struct Heard {
    from: SortedMap<HostId, (u64, u64)>,
    overtaken: u64,
}

impl Heard {
    /// Letter `number` of `from` is read. Senders count from 1.
    pub(super) fn hear(&mut self, from: HostId, number: u64) {
        let (highest, letters) = self.from.entry(from).or_default();
        self.overtaken += u64::from(number < *highest);
        *highest = number.max(*highest);
        *letters += 1;
    }
}

/// What became of letters, as the agents' sessions would count it: the sums over all hosts.
pub(super) fn record<'a>(hosts: impl Iterator<Item = (&'a Heard, &'a Weather)>) -> ControlRecord {
    let mut sum = ControlRecord::default();
    let (mut passed, mut late) = (0, 0u64);
    for (heard, weather) in hosts {
        for (highest, letters) in heard.from.values() {
            sum.believed += letters;
            sum.lost += highest - letters;
        }
        sum.overtaken += heard.overtaken;
        sum.repeated += weather.repeated;
        passed += weather.passed;
        late += weather.late;
    }
    sum.delay = late.checked_div(passed).map(Span::from_nanos);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_lost_and_held_back_by_chance_and_only_in_their_time() {
        let trouble =
            Trouble { from: 100, until: 200, loss: 0.3, reorder: 0.2, delay: 5, ..ALWAYS };
        let mut weather = Weather::new(&[trouble], 1, 0);
        assert_eq!([weather.late(99), weather.late(200)], [Some(0); 2]);
        let all: Vec<_> = (0..10_000).map(|_| weather.late(150)).collect();
        let part = |late: Option<u64>| all.iter().filter(|l| **l == late).count() as f64 / 1e4;
        assert!((part(None) - 0.3).abs() < 0.02, "{}", part(None));
        assert!((part(Some(5 + HELD_BACK)) - 0.7 * 0.2).abs() < 0.02);
        assert!((part(Some(5)) - 0.7 * 0.8).abs() < 0.02);
    }

    #[test]
    fn a_later_trouble_replaces_an_earlier_one() {
        let first = Trouble { loss: 1.0, ..ALWAYS };
        let second = Trouble { from: 10, until: 20, ..ALWAYS };
        let mut weather = Weather::new(&[first, second], 1, 0);
        assert_eq!([5, 15, 25].map(|now| weather.late(now)), [None, Some(0), Some(0)]);
    }

    #[test]
    fn jitter_spreads_letters_around_the_delay_and_of_two_copies_the_first_is_read() {
        let jittered = Trouble { delay: 500, jitter: 300, ..ALWAYS };
        let doubled = Trouble { duplicate: 1.0, ..jittered };
        let mut means = Vec::new();
        for trouble in [jittered, doubled] {
            let mut weather = Weather::new(&[trouble], 1, 0);
            let all: Vec<_> = (0..10_000).filter_map(|now| weather.late(now)).collect();
            assert!(all.iter().all(|late| (200..=800).contains(late)));
            means.push(all.iter().sum::<u64>() / 10_000);
            let record = record([(&Heard::default(), &weather)].into_iter());
            let copies = record.delay.expect("some came").as_nanos();
            assert!(copies.abs_diff(500) < 10, "{copies}");
            assert_eq!(record.repeated, if trouble == doubled { 10_000 } else { 0 });
        }
        // The smaller of two even draws is a third of the way on average.
        assert!(means[0].abs_diff(500) < 10 && means[1].abs_diff(400) < 10, "{means:?}");
    }

    #[test]
    fn what_is_heard_late_was_not_lost() {
        let mut heard = Heard::default();
        for number in [1, 4, 2, 6] {
            heard.hear(HostId(7), number);
        }
        heard.hear(HostId(8), 1);
        let got = record([(&heard, &Weather::new(&[], 1, 0))].into_iter());
        assert_eq!((got.believed, got.overtaken, got.lost, got.delay), (5, 1, 2, None));
    }

    const ALWAYS: Trouble = Trouble {
        from: 0,
        until: u64::MAX,
        loss: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        delay: 0,
        jitter: 0,
    };
}
