//! The window by which a pair's TCP keeps to the pair's rate without a queue.
//!
//! Problem   A limiter makes TCP keep to its rate by a queue, which is filled until something is dropped: what shares
//!           the pair with a bulk transfer waits behind it.
//! Approach  Who has rate × round trip in flight sends at that rate and queues nothing. So a round trip in which the wanted
//!           queue is counted is said beforehand, and the pair's windows are what its rate carries in that time, divided
//!           equally among its live connections.
//! Promises  The windows of a pair sum to no more than that, but for a segment on top of each, and for what the law adds: it
//!           lowers none below two segments, and rounds up to what a window's scale can say. There the limiter's queue
//!           shapes, as it does all else.
//! Not here  That, and what a window does: see `sending`. Who is alive: whoever has the connections.
//! Source    vCC §4: windows instead of queues.

use super::flow::WINDOW_MOST;
use weir_units::{Rate, Span};

/// Guests send whole segments: what is beyond the last one of a window is left unused. That is less than one of these, octets,
/// which is on top of each window. (With larger segments it may be more.)
const SEGMENT: u64 = 1_460;

/// What each of `live` connections of a pair may have in flight, octets, so that all of them together send at `rate` if
/// a round trip, with all that waits, takes `round_trip`.
pub fn window(rate: Rate, round_trip: Span, live: u32) -> u32 {
    let octets = rate.bytes_in(round_trip).get() / u64::from(live.max(1)) + SEGMENT;
    u32::try_from(octets).unwrap_or(u32::MAX).min(WINDOW_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_what_the_rate_carries_in_a_round_trip_divided_by_connections() {
        let (rate, time) = (Rate::from_mbps(80), Span::from_millis(3));
        assert_eq!(window(rate, time, 1), 31_460);
        assert_eq!(
            window(rate, time, 7),
            4_285 + 1_460,
            "never more than the whole, and a segment each"
        );
        assert_eq!(window(rate, time, 0), 31_460, "as for the one that comes");
        assert_eq!(window(Rate::ZERO, time, 3), 1_460, "the law lowers none below two segments");
        let most = window(Rate::from_mbps(400_000), Span::from_secs(1), 1);
        assert_eq!(most, WINDOW_MOST, "no window of TCP is larger");
    }
}
