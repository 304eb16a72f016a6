//! The time that an offer and its echo take.
//!
//! Problem   A pair's path may be long. The law must know it, and hosts have no common clock.
//! Approach  A receiver asks for an echo now and then, and senders answer at once. The least time
//!           between an offer and its echo is the path's round trip, if queues were empty once.
//! Promises  The measured time is never less than the round trip, because an echo of a serial is
//!           sent after that serial came. The least of the last 10 s to 20 s is kept.
//!           serial came. The least of the last 10 s to 20 s is kept.
//! Not here  What follows from it: see `rate`.

use weir_units::{Span, Time};

/// How long a least value counts, at least; at most twice as long.
const WINDOW: Span = Span::from_secs(10);

/// The round trip of one pair's messages.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct RoundTrip {
    /// Since `since`, and in the window before.
    least: Option<Span>,
    before: Option<Span>,
    since: Time,
    /// An echo was asked for, with this serial, and has not come.
    asked: Option<(u32, Time)>,
}

impl RoundTrip {
    /// An echo of `serial` is asked for now. Another that is awaited goes on, unless it is so old
    /// that it must be lost.
    pub(super) fn ask(&mut self, now: Time, serial: u32, lost_after: Span) {
        if self.asked.is_none_or(|(_, at)| now.since(at) > lost_after) {
            self.asked = Some((serial, now));
        }
    }

    /// An echo of `serial` came.
    pub(super) fn echoed(&mut self, now: Time, serial: u32) {
        let Some((_, at)) = self.asked.take_if(|(asked, _)| *asked == serial) else { return };
        if now.since(self.since) >= WINDOW {
            (self.before, self.least, self.since) = (self.least, None, now);
        }
        // In whole microseconds, as it is said; a known one is never zero.
        let micros = now.since(at).as_nanos().div_ceil(1000).max(1);
        let measured = Span::from_micros(micros);
        self.least = Some(self.least.map_or(measured, |least| least.min(measured)));
    }

    /// The round trip, if it is known.
    pub(super) fn get(&self) -> Option<Span> {
        [self.least, self.before].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Span = Span::from_millis(600);

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::from_millis(n)
    }

    #[test]
    fn the_least_counts_and_is_forgotten_after_a_while() {
        let mut trip = RoundTrip::default();
        assert_eq!(trip.get(), None);
        let measured = [(0, 9, 9), (300, 4, 4), (600, 7, 4), (11_000, 30, 4), (22_000, 31, 30)];
        for (asked, took, least) in measured {
            trip.ask(ms(asked), asked as u32, LOST);
            trip.echoed(ms(asked + took), asked as u32);
            assert_eq!(trip.get(), Some(Span::from_millis(least)), "at {asked}");
        }
    }

    #[test]
    fn only_the_echo_that_was_asked_for_counts_and_a_lost_one_is_asked_for_again() {
        let mut trip = RoundTrip::default();
        trip.ask(ms(0), 5, LOST);
        trip.ask(ms(60), 6, LOST);
        trip.echoed(ms(61), 4);
        assert_eq!(trip.get(), None, "of an older offer");
        trip.echoed(ms(61), 6);
        assert_eq!(trip.get(), None, "of a later one: whether it was late is not known");
        trip.ask(ms(700), 16, LOST);
        trip.echoed(ms(740), 16);
        assert_eq!(trip.get(), Some(Span::from_millis(40)));
        trip.echoed(ms(741), 16);
        assert_eq!(trip.get(), Some(Span::from_millis(40)));
    }
}
