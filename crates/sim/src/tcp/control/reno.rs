//! NewReno's answer to congestion: half the window.
//!
//! Source    RFC 5681 §3.1 eq. 4, on cwnd instead of FlightSize, as Linux does: the window only
//!           grew while it was full.

use super::Window;

pub(super) fn halve(window: &mut Window) {
    window.fall(window.cwnd / 2);
}
