//! Losses that the reports of a pair's receiver leave out.
//!
//! Problem   A receiver reports the gaps that it sees in a sequence of 16 bits. A guest that sends
//!           its packets to another VM's hardware address, and one in 65 536 to its receiver, takes
//!           what it likes of the network, and no receiver reports a loss.
//! Approach  Receivers report what arrived also where nothing was lost. The sender adds that up,
//!           with the losses reported, and compares it with what it numbered. What left within the
//!           last [`LATE`] is not expected yet.
//! Promises  Traffic of which an eighth is accounted for is honest: reports that are lost or late
//!           make no finding unless nearly all of them are.
//! Not here  Gaps that do show: receivers report these as losses. What follows: the pair does not
//!           borrow while its packets are hidden.

use weir_units::{Span, Time};

/// Interval in which receivers without losses report what arrived.
pub(super) const REPORT_AGAIN: Span = Span::from_millis(250);
/// What left earlier than this has arrived, or is lost: longer than any queue on the way.
const LATE: Span = Span::from_millis(250);
/// Sixteen reports at least are compared with what was sent: one that is lost means little. A
/// longer window lets what is hidden be borrowed for longer.
const WINDOW: Span = Span::from_secs(4);
/// Segments in a window, at least. A gap that no receiver sees has 65 536.
const MANY: u64 = 32_768;
/// The same until a pair that was found to hide its losses is believed again.
const SOME: u64 = 1024;
/// One in this many segments sent has to be accounted for.
const ACCOUNTED: u64 = 8;

/// What was sent of a pair against what its receiver says.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Ledger {
    began: Option<Time>,
    /// Segments that had left when the window began, and at two moments since, of which the first
    /// is [`LATE`] ago at least.
    at_begin: u64,
    earlier: u64,
    later: (Time, u64),
    /// Arrived or reported lost in this window.
    accounted: u64,
    /// A report without losses came: the receiver reports what arrives in any case.
    reports_always: bool,
    /// Most of what was sent in the last window is neither reported as arrived nor as lost.
    pub(super) hides: bool,
    /// Segments that no report accounts for.
    pub(super) hidden: u64,
}

impl Ledger {
    /// Takes the total of segments that have left.
    pub(super) fn sent(&mut self, now: Time, sent: u64) {
        if now.since(self.later.0) >= LATE {
            self.earlier = self.later.1;
            self.later = (now, sent);
        }
    }

    /// A report that speaks of so many segments, when so many had left in all.
    pub(super) fn reported(&mut self, now: Time, sent: u64, lost: u32, arrived: u32) {
        let Some(began) = self.began else {
            self.begin(now, sent);
            return;
        };
        self.accounted += u64::from(lost) + u64::from(arrived);
        self.reports_always |= lost == 0;
        // The counters of the data plane may begin anew.
        let expected = self.earlier.saturating_sub(self.at_begin);
        let enough = if self.hides { SOME } else { MANY };
        if now.since(began) < WINDOW || expected < enough {
            return;
        }
        if self.reports_always {
            self.hides = self.accounted < expected / ACCOUNTED;
            if self.hides {
                self.hidden += expected - self.accounted;
            }
        }
        self.begin(now, sent);
    }

    fn begin(&mut self, now: Time, sent: u64) {
        let Self { hides, hidden, .. } = *self;
        let (earlier, later) = (sent, (now, sent));
        *self = Self {
            began: Some(now),
            at_begin: sent,
            earlier,
            later,
            hides,
            hidden,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `seconds` at 10 000 segments a second, of which one in `one_in` arrives; reports come
    /// each 250 ms, but for those that `is_lost` says are lost.
    fn played(seconds: u64, one_in: u64, is_lost: impl Fn(u64) -> bool) -> Ledger {
        let mut ledger = Ledger::default();
        for n in 1..=seconds * 4 {
            let arrived = n * 2500 / one_in - (n - 1) * 2500 / one_in;
            let now = Time::ZERO + REPORT_AGAIN * n;
            ledger.sent(now, n * 2500);
            if arrived > 0 && !is_lost(n) {
                ledger.reported(now, n * 2500, 0, arrived as u32);
            }
        }
        ledger
    }

    #[test]
    fn a_pair_of_which_one_in_65536_arrives_hides_its_losses() {
        let ledger = played(30, 65_536, |_| false);
        assert!(ledger.hides && ledger.hidden > 100_000, "{ledger:?}");
        assert!(!played(30, 1, |_| false).hides);
        assert!(!played(30, 4, |_| false).hides, "three in four are lost, and reported");
    }

    #[test]
    fn reports_that_are_lost_are_no_losses_of_the_pairs() {
        for one_in in [2, 3, 5] {
            let ledger = played(60, 1, |n| n % one_in != 0);
            assert_eq!((ledger.hides, ledger.hidden), (false, 0), "one report in {one_in} comes");
        }
    }

    #[test]
    fn what_has_just_left_is_not_expected_yet() {
        let mut ledger = Ledger::default();
        // Bursts of 50 000 segments: reports of them come when they have left.
        for n in 0..100u64 {
            let now = Time::ZERO + Span::from_secs(1) * n;
            ledger.sent(now, (n + 1) * 50_000);
            ledger.reported(now, (n + 1) * 50_000, 0, if n == 0 { 0 } else { 50_000 });
        }
        assert!(!ledger.hides && ledger.hidden == 0, "{ledger:?}");
    }

    #[test]
    fn a_receiver_that_reports_losses_only_is_not_held_against_its_silence() {
        let mut ledger = Ledger::default();
        for n in 0..20u64 {
            let now = Time::ZERO + Span::from_secs(5) * n;
            ledger.sent(now, n * 100_000);
            ledger.reported(now, n * 100_000, 1, 10);
        }
        assert!(!ledger.hides);
    }

    #[test]
    fn counters_that_begin_anew_and_honest_traffic_end_a_finding() {
        let mut ledger = played(30, 65_536, |_| false);
        let after = Time::ZERO + Span::from_secs(31);
        for n in 0..40u64 {
            ledger.sent(after + REPORT_AGAIN * n, n * 250);
            ledger.reported(after + REPORT_AGAIN * n, n * 250, 0, 250);
        }
        assert!(!ledger.hides, "{ledger:?}");
    }
}
