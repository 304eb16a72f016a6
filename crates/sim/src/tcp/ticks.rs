//! The time at which a kernel's timer really expires.
//!
//! Problem   Guests that lose their first windows together would try again together, at every
//!           doubling, for ever: to the nanosecond, which no two kernels do.
//! Approach  A kernel's timers expire on a grid that is the coarser the later they are, and begins
//!           when that kernel was started. A timer is set in whole ticks, counted from the tick in
//!           which it is set, and expires at the first mark of the grid after the last of them.
//! Promises  No timer expires early, none later than some eighth of its time, or two ticks.
//! Source    Linux, kernel/time/timer.c (`calc_wheel_index`): 64 buckets a level, each level eight
//!           times as coarse.

use weir_units::Span;

/// A timer so many grains ahead is one level up.
const BUCKETS: u64 = 63;

/// The ticks of one kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticks {
    /// Of one, ns. Zero: no grid.
    length: u64,
    /// How long ago they began when the run did, ns.
    booted: u64,
}

impl Ticks {
    pub(super) fn new(length: Span) -> Self {
        Self { length: length.as_nanos(), booted: 0 }
    }

    /// The kernel was started so many ns before the run.
    pub(super) fn booted(&mut self, before: u64) {
        self.booted = before;
    }

    /// When a timer expires that was set `ahead` ns before `at`, for `at`.
    pub(super) fn expires(&self, at: u64, ahead: u64) -> u64 {
        if self.length == 0 {
            return at;
        }
        let ticks = ahead.div_ceil(self.length);
        let last = (at.saturating_sub(ahead) + self.booted) / self.length + ticks;
        let mut grain = 1;
        while ticks / grain >= BUCKETS {
            grain *= 8;
        }
        (last / grain + 1) * grain * self.length - self.booted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn timers_are_late_by_up_to_an_eighth_on_a_grid_of_their_own() {
        let mut ticks = Ticks::new(Span::from_millis(4));
        ticks.booted(3 * MS);
        // A grain of 4 ms, of 32, of 256 and of 2048.
        for (ahead, grain) in
            [(200, 4), (248, 4), (252, 32), (1600, 32), (2016, 256), (25_600, 2048)]
        {
            for set in [10_000 * MS, 10_000 * MS + 1, 10_001 * MS, 10_003 * MS + 7] {
                let at = set + ahead * MS;
                let expires = ticks.expires(at, ahead * MS);
                assert_eq!((expires + 3 * MS) % (grain * MS), 0, "{ahead} ms");
                assert!(expires > at && expires <= at + grain * MS, "{ahead} ms, set at {set}");
            }
        }
        assert_eq!(Ticks::new(Span::ZERO).expires(12_345, 345), 12_345, "without ticks");
    }

    /// `jiffies` is 2500 from 10 000 ms on. 205 ms are 52 ticks (51.25), and the wheel adds one.
    #[test]
    fn a_timer_counts_whole_ticks_from_the_tick_in_which_it_is_set() {
        let ticks = Ticks::new(Span::from_millis(4));
        for set in [10_000 * MS, 10_000 * MS + 1, 10_004 * MS - 1] {
            assert_eq!(ticks.expires(set + 205 * MS, 205 * MS), (2500 + 52 + 1) * 4 * MS);
        }
        // 410 ms are 103 ticks: 2603 is in the grain of 8 from 2600 on, which ends at 2608.
        assert_eq!(ticks.expires(10_410 * MS, 410 * MS), 2608 * 4 * MS);
        // One whose last tick is a mark of the grid waits for the next.
        assert_eq!(ticks.expires(10_432 * MS, 416 * MS), (2504 + 104 + 8) * 4 * MS);
    }
}
