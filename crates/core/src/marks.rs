//! Which congestion marks a guest need not see.
//!
//! Problem   Where losses are the signal, marks are left to guests. Traffic that no mark slows down
//!           keeps a port's queue above its threshold, so every packet of a guest that speaks ECN
//!           is marked. The guest cuts its window with each round trip, down to two segments, and
//!           its floor is lost; no host can tell that from a guest that wants less.
//! Approach  A clock for each pair at its receiving host runs at the pair's offer: it is the moment
//!           by which the offer would have carried what arrived. While the clock is not ahead of
//!           now, the pair has got no more than its offer, and a mark is taken off. Only marked
//!           packets move the clock, by all that arrived since the one before: others cost nothing.
//! Promises  A pair that is held by marks alone gets its offer on average. What it gets beyond is
//!           marked as before: what it borrowed is a debt of [`DEBT_MOST`] at most, and what it did
//!           not use is saved for [`SAVED_MOST`].
//! Not here  Marks that hosts answer: where these are the signal, guests see none. Translated
//!           guests: `vcc::credit` has a clock of the same kind at the sender.
//!
//! The same in C is `bpf/marks.h`. A change of one needs the same change of the other.

use weir_units::{Bytes, Rate};

/// What a pair got less than its offer is saved for so long, nanoseconds. With less, a window that
/// grows by a segment in a round trip of 10 ms does not get back what a cut has cost.
const SAVED_MOST: u64 = 250_000_000;
/// What a pair borrowed counts for so long, nanoseconds. With more, a pair that has borrowed falls
/// below its floor before its guest sees no marks.
const DEBT_MOST: u64 = 10_000_000;
/// Octets that one step counts at most. As much lasts a second at 17 Gbit/s, and more could overflow
/// the kernel's 64 bits.
const STEP_MOST: u64 = 1 << 31;
/// Time that one step counts at most: the clock is far below it, so their sum fits 64 bits.
const TOOK_MOST: u64 = u64::MAX >> 2;

/// The clock of one pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spared {
    /// By when the offer would have carried what arrived, nanoseconds.
    pub due: u64,
    /// What had arrived of the pair at the last marked packet.
    pub octets: u64,
}

impl Spared {
    /// A marked packet arrives at `now`; with it, `octets` have arrived of the pair. Returns whether
    /// the mark is taken off. Nothing is offered: it stays.
    pub fn takes_off(&mut self, now: u64, octets: u64, offer: Rate) -> bool {
        let since = octets.wrapping_sub(self.octets).min(STEP_MOST);
        self.octets = octets;
        if offer.is_zero() {
            return false;
        }
        let took = offer.time_for(Bytes::new(since)).as_nanos().min(TOOK_MOST);
        self.due = (self.due + took).clamp(now.saturating_sub(SAVED_MOST), now + DEBT_MOST);
        self.due <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const OFFER: Rate = Rate::from_mbps(10);
    /// A frame, a millisecond of the offer.
    const FRAME: u64 = 1250;

    /// A pair all of whose packets are marked.
    struct Pair {
        spared: Spared,
        octets: u64,
    }

    impl Pair {
        fn new() -> Self {
            Self { spared: Spared::default(), octets: 0 }
        }

        fn arrive(&mut self, ms: u64, octets: u64) -> bool {
            self.octets += octets;
            self.spared.takes_off(ms * MS, self.octets, OFFER)
        }

        /// How many of `of` frames that come each millisecond keep their mark.
        fn shown(&mut self, from: u64, of: u64, octets: u64) -> usize {
            (from..from + of).filter(|ms| !self.arrive(*ms, octets)).count()
        }
    }

    #[test]
    fn a_pair_that_gets_no_more_than_its_offer_sees_no_mark() {
        let mut pair = Pair::new();
        assert_eq!(pair.shown(10_000, 5000, FRAME), 0);
    }

    #[test]
    fn a_pair_that_borrows_sees_its_marks_once_it_has_used_what_it_saved() {
        let mut pair = Pair::new();
        // Twice the offer uses up 250 ms of it in a quarter of a second.
        assert_eq!(pair.shown(10_000, 240, 2 * FRAME), 0);
        let shown = pair.shown(10_240, 1000, 2 * FRAME);
        assert!(shown > 980, "{shown} of 1000");
    }

    #[test]
    fn what_was_borrowed_is_no_debt_for_long() {
        let mut pair = Pair::new();
        pair.shown(10_000, 5000, 10 * FRAME);
        // At half its offer a pair pays 10 ms back in 20.
        let shown = pair.shown(15_000, 100, FRAME / 2);
        assert!((15..=21).contains(&shown), "{shown}");
    }

    #[test]
    fn what_came_without_a_mark_counts_when_the_next_mark_comes() {
        let mut pair = Pair::new();
        pair.shown(10_000, 1000, FRAME);
        // A second at half the offer: nothing is owed.
        assert!(pair.arrive(12_000, 500 * FRAME));
        // A tenth of a second at four times the offer.
        assert!(!pair.arrive(12_100, 400 * FRAME));
    }

    #[test]
    fn a_pair_without_an_offer_keeps_its_marks_and_loses_no_count() {
        let mut spared = Spared::default();
        assert!(!spared.takes_off(10_000 * MS, 5000, Rate::ZERO));
        assert_eq!(spared.octets, 5000);
        assert!(
            spared.takes_off(10_001 * MS, u64::MAX, Rate::from_mbps(100_000)),
            "of 2 GB at most"
        );
    }
}
