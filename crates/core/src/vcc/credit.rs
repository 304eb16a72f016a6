//! Whether a pair sends no more than its floor.
//!
//! Problem   Where traffic that cannot be marked keeps a port's queue above its threshold, every
//!           packet of a translated connection is marked. The law halves its window until two
//!           segments are left, and the pair's floor is lost.
//! Approach  A clock for each pair runs at the pair's floor: it is the moment by which the floor
//!           would have carried what was sent. While the clock is not ahead of now, the pair has
//!           sent no more than its floor, and marks are not answered by smaller windows. On average
//!           windows are then no less than floor × round trip, without a round trip to measure,
//!           however many connections the pair has.
//! Promises  A pair that is held by marks alone sends its floor on average. What it sends beyond is
//!           answered to marks at once: what was borrowed is a debt of [`DEBT_MOST`] at most, and
//!           what was not used is saved for [`SAVED_MOST`].
//! Not here  What a mark does: see `sending`. The limiter, which bounds the pair all the same.
//!
//! The same in C is `bpf/vcc_floor.h`. A change of one needs the same change of the other.

use weir_units::{Bytes, Rate};

/// What a pair sent less than its floor is saved for so long, nanoseconds. With less, a window that
/// grows by a segment in a round trip of 10 ms does not get back what a cut has cost.
const SAVED_MOST: u64 = 250_000_000;
/// What a pair borrowed counts for so long, nanoseconds. With more, a pair that has borrowed falls
/// below its floor before marks stop to count.
const DEBT_MOST: u64 = 10_000_000;

/// The clock of one pair: by when its floor would have carried what was sent, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credit(u64);

impl Credit {
    /// The pair, whose floor is not zero, sends so much.
    pub fn spend(&mut self, now: u64, octets: Bytes, floor: Rate) {
        let from = self.0.max(now.saturating_sub(SAVED_MOST));
        self.0 = (from + floor.time_for(octets).as_nanos()).min(now + DEBT_MOST);
    }

    /// Whether it has sent no more than its floor.
    pub const fn is_left(self, now: u64) -> bool {
        self.0 <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const FLOOR: Rate = Rate::from_mbps(10);

    /// Sends frames of 1250 octets, a millisecond of the floor each, as long as there is credit;
    /// how many.
    fn sends(credit: &mut Credit, now: u64) -> u64 {
        let mut frames = 0;
        while credit.is_left(now) {
            credit.spend(now, Bytes::new(1250), FLOOR);
            frames += 1;
        }
        frames
    }

    #[test]
    fn a_pair_has_credit_for_its_floor_and_for_a_quarter_of_a_second_that_it_did_not_use() {
        let mut credit = Credit::default();
        assert_eq!(sends(&mut credit, 10_000 * MS), 251);
        assert_eq!(sends(&mut credit, 10_000 * MS), 0);
        let frames: u64 = (1..=1000).map(|ms| sends(&mut credit, (10_000 + ms) * MS)).sum();
        assert_eq!(frames, 1000);
        assert_eq!(sends(&mut credit, 11_100 * MS), 100);
    }

    #[test]
    fn what_was_borrowed_is_no_debt_for_long() {
        let mut credit = Credit::default();
        for ms in 0..1000 {
            credit.spend((10_000 + ms) * MS, Bytes::new(12_500), FLOOR);
        }
        assert!(!credit.is_left(11_008 * MS));
        assert!(credit.is_left(11_009 * MS));
    }

    #[test]
    fn the_kernel_has_the_same_bounds() {
        let kernel = include_str!("../../../../bpf/vcc_floor.h");
        assert!(kernel.contains(&format!("#define CREDIT_SAVED_NS {SAVED_MOST}ull\n")));
        assert!(kernel.contains(&format!("#define CREDIT_DEBT_NS {DEBT_MOST}ull\n")));
    }
}
