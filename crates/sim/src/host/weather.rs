//! Trouble for letters on their last step to a host's agent.
//!
//! Approach  As the lab's relay at the door of each agent: a letter is lost, or held back so that later
//!           ones overtake it, each by its own draw; all come later by the delay. A second copy is not
//!           read: the session of the receiving agent has seen its number.
//! Source    `weir-lab`'s `relay.rs`.

use crate::rng::Rng;

/// A letter that is held back comes so much later, in ns.
const HELD_BACK: u64 = 10_000_000;
/// Streams of chance from this one on are the weather's.
const STREAM: u64 = 1 << 42;

/// What happens to letters for one host from `from` to `until`, in ns, unless a later one replaces it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Trouble {
    pub(crate) from: u64,
    pub(crate) until: u64,
    pub(crate) loss: f64,
    pub(crate) reorder: f64,
    pub(crate) delay: u64,
}

/// A host's troubles, in the order of time.
#[derive(Debug)]
pub(super) struct Weather {
    troubles: Vec<Trouble>,
    rng: Rng,
}

impl Weather {
    pub(super) fn new(troubles: &[Trouble], seed: u64, host: u32) -> Self {
        let rng = Rng::new(seed, STREAM + u64::from(host));
        Self { troubles: troubles.to_vec(), rng }
    }

    /// By how much a letter that comes at `now` is late; `None` if it is lost.
    pub(super) fn late(&mut self, now: u64) -> Option<u64> {
        let last = self.troubles.iter().rfind(|trouble| trouble.from <= now);
        let Some(trouble) = last.filter(|trouble| now < trouble.until) else { return Some(0) };
        // `unit` is never zero: a chance of zero is none.
        let [lost, held] = [self.rng.unit() <= trouble.loss, self.rng.unit() <= trouble.reorder];
        let held = if held { HELD_BACK } else { 0 };
        (!lost).then_some(trouble.delay + held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_lost_and_held_back_by_chance_and_only_in_their_time() {
        let trouble = Trouble { from: 100, until: 200, loss: 0.3, reorder: 0.2, delay: 5 };
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
        let first = Trouble { from: 0, until: u64::MAX, loss: 1.0, reorder: 0.0, delay: 0 };
        let second = Trouble { from: 10, until: 20, loss: 0.0, ..first };
        let mut weather = Weather::new(&[first, second], 1, 0);
        assert_eq!([5, 15, 25].map(|now| weather.late(now)), [None, Some(0), Some(0)]);
    }
}
