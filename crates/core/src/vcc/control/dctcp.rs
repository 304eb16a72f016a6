//! DCTCP: falls in proportion to how much was marked.
//!
//! Words of [`Flow::law`]: 0 and 1 octets and marked octets of the window that is observed (of reports: the totals at
//! its beginning), 2 its end, 3 and 4 the receiver's counts (see `receiving`).
//!
//! Source    AC/DC; RFC 8257 §3.3: α ← (1 − g)·α + g·M once per window, W ← W·(1 − α/2); g = 1/16, α begins at 1.
//!           A loss halves W (RFC 8257 §3.5; AC/DC sets α to 1 first, which is the same for W). α is in 1/32768;
//!           what is taken off is rounded up, so that it comes to 0. Where the peer's host does not report, M is
//!           what was acknowledged with ECE: too much, for ECE stays until CWR. So it is where reports stay out for
//!           more than a window, for want of room: then acknowledgement by acknowledgement, each for its part of
//!           what was in flight. The totals at the last report stay, and the next one counts from there.

use super::{Control, linear};
use crate::vcc::flow::{Flow, WINDOW_MOST, past};
use crate::vcc::segment::{ECE, Segment};

const OCTETS: usize = 0;
const MARKED: usize = 1;
const END: usize = 2;

/// One, in the fractions of α.
const ONE: u16 = 1 << 15;

pub(super) struct Dctcp;

impl Control for Dctcp {
    fn begin(&self, flow: &mut Flow) {
        flow.alpha = ONE;
        flow.law[END] = flow.nxt;
    }

    fn observe(&self, flow: &mut Flow, segment: &Segment, acked: u32) {
        let comes = segment.told != 0 && flow.is(Flow::READS);
        if comes && !flow.is(Flow::REPORTED) {
            flow.set(Flow::REPORTED);
            (flow.law[OCTETS], flow.law[MARKED]) = (0, 0);
        }
        let is_told = flow.is(Flow::REPORTED);
        let (octets, marked) = if is_told {
            let octets = segment.told_octets.wrapping_sub(flow.law[OCTETS]);
            (octets, segment.told_marked.wrapping_sub(flow.law[MARKED]))
        } else {
            let echoed = if segment.has(ECE) { acked } else { 0 };
            flow.law[OCTETS] = flow.law[OCTETS].saturating_add(acked);
            flow.law[MARKED] = flow.law[MARKED].saturating_add(echoed);
            (flow.law[OCTETS], flow.law[MARKED])
        };
        // No report, or one that was overtaken.
        if is_told && (!comes || octets >> 31 != 0) {
            let flight = flow.nxt.wrapping_sub(flow.una).wrapping_add(acked);
            // A whole window more than one that a report would have ended; and so is whatever comes next.
            if past(segment.ack, flow.law[END].wrapping_add(flight)) {
                untold(flow, acked, flight, segment.has(ECE));
                flow.law[END] = flow.una.wrapping_sub(WINDOW_MOST);
            }
            return;
        }
        if !past(segment.ack, flow.law[END]) {
            return;
        }
        let part = if octets == 0 {
            0
        } else {
            ((u64::from(marked.min(octets)) << 15) / u64::from(octets)) as u16
        };
        flow.alpha = flow.alpha - flow.alpha.div_ceil(16) + part / 16;
        flow.law[OCTETS] = if is_told { segment.told_octets } else { 0 };
        flow.law[MARKED] = if is_told { segment.told_marked } else { 0 };
        flow.law[END] = flow.nxt;
    }

    fn after_mark(&self, flow: &mut Flow) -> u32 {
        // As in Linux less than a segment is not taken off.
        let less = (u64::from(flow.window) * u64::from(flow.alpha)) >> 16;
        flow.whole(flow.window) - flow.whole(less as u32)
    }

    fn after_loss(&self, flow: &mut Flow) -> u32 {
        flow.whole(flow.window / 2)
    }

    fn grow(&self, flow: &mut Flow, acked: u32, _at: u32) {
        linear(flow, acked);
    }

    fn marks_all(&self) -> bool {
        true
    }
}

/// Of what was in flight `acked` octets were acknowledged, and no report says what of them was marked.
fn untold(flow: &mut Flow, acked: u32, flight: u32, is_echo: bool) {
    let (away, all) = (u64::from(acked), u64::from(flight) * 16);
    if is_echo {
        flow.alpha += (u64::from(ONE - flow.alpha) * away / all) as u16;
    } else {
        flow.alpha -= (u64::from(flow.alpha) * away).div_ceil(all) as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vcc::segment::Way;

    /// A window of ten segments acknowledged one by one, of which the first `marked` carry ECE.
    fn window_of(flow: &mut Flow, marked: u32) {
        for i in 0..10 {
            flow.una = flow.una.wrapping_add(1_000);
            flow.nxt = flow.una.wrapping_add(9_000);
            let flags = if i < marked { ECE } else { 0 };
            let segment = Segment { ack: flow.una, flags, way: Way::In, ..Segment::default() };
            Dctcp.observe(flow, &segment, 1_000);
        }
    }

    fn part(flow: &Flow) -> f64 {
        f64::from(flow.alpha) / f64::from(ONE)
    }

    #[test]
    fn alpha_begins_at_one_and_follows_the_marked_part() {
        let mut flow = Flow::default();
        Dctcp.begin(&mut flow);
        assert_eq!(flow.alpha, ONE);
        (0..400).for_each(|_| window_of(&mut flow, 0));
        assert_eq!(flow.alpha, 0, "and comes to nothing");
        (0..200).for_each(|_| window_of(&mut flow, 3));
        assert!((part(&flow) - 0.3).abs() < 0.03, "{}", part(&flow));
        (0..200).for_each(|_| window_of(&mut flow, 10));
        assert!(part(&flow) > 0.99, "{}", part(&flow));
    }

    #[test]
    fn reports_count_in_place_of_echoes_and_lost_ones_lose_nothing() {
        let mut flow = Flow { flags: Flow::READS, ..Flow::default() };
        Dctcp.begin(&mut flow);
        let (mut octets, mut marked) = (0, 0);
        for n in 1..=400u32 {
            octets += 10_000;
            marked += 2_500;
            flow.una = n * 10_000;
            flow.nxt = flow.una + 10_000;
            let told = u8::from(n % 3 != 0);
            let segment = Segment {
                ack: flow.una,
                told,
                told_octets: octets,
                told_marked: marked,
                flags: ECE,
                ..Segment::default()
            };
            Dctcp.observe(&mut flow, &segment, 10_000);
        }
        assert!((part(&flow) - 0.25).abs() < 0.01, "{}", part(&flow));
    }

    /// A window of ten segments, acknowledged one by one after a report in the last one.
    fn told_window(flow: &mut Flow, totals: &mut [u32; 2], marked: u32) {
        let [octets, all_marked] = totals;
        *octets += 10_000;
        *all_marked += marked * 1_000;
        flow.una = flow.una.wrapping_add(10_000);
        flow.nxt = flow.una.wrapping_add(10_000);
        let (told_octets, told_marked) = (*octets, *all_marked);
        let segment =
            Segment { ack: flow.una, told: 1, told_octets, told_marked, ..Segment::default() };
        Dctcp.observe(flow, &segment, 10_000);
    }

    #[test]
    fn where_reports_stay_out_echoes_count_until_they_come_again() {
        let mut flow = Flow { flags: Flow::READS, ..Flow::default() };
        Dctcp.begin(&mut flow);
        let mut totals = [0; 2];
        (0..400).for_each(|_| told_window(&mut flow, &mut totals, 0));
        assert_eq!(flow.alpha, 0);
        // The window after the last report waits for the next one, and so does one more.
        flow.nxt = flow.law[END];
        flow.una = flow.nxt.wrapping_sub(10_000);
        (0..2).for_each(|_| window_of(&mut flow, 10));
        assert_eq!(flow.alpha, 0, "{:?}", flow.law);
        (0..11).for_each(|_| window_of(&mut flow, 10));
        assert!((part(&flow) - 0.5).abs() < 0.03, "as in eleven windows: {}", part(&flow));
        (0..200).for_each(|_| window_of(&mut flow, 3));
        assert!((part(&flow) - 0.3).abs() < 0.03, "{}", part(&flow));
        (0..400).for_each(|_| window_of(&mut flow, 0));
        assert_eq!(flow.alpha, 0, "it comes to nothing again");
        // The next report tells of all that came since the one before: half of it marked is one step.
        totals = [totals[0] + 6_000_000, totals[1] + 3_000_000];
        flow.alpha = ONE;
        told_window(&mut flow, &mut totals, 0);
        assert!((part(&flow) - (15.0 + 0.5) / 16.0).abs() < 0.001, "{}", part(&flow));
        // And its window counts by reports alone.
        (0..200).for_each(|_| told_window(&mut flow, &mut totals, 2));
        assert!((part(&flow) - 0.2).abs() < 0.01, "{}", part(&flow));
    }

    #[test]
    fn alpha_stays_a_part_however_much_is_acknowledged_at_once() {
        for (flight, acked) in [(1, 1), (1 << 30, 1), (1 << 30, 1 << 30), (u32::MAX >> 1, 9)] {
            for alpha in [0, 1, 5, ONE - 1, ONE] {
                for flags in [0, ECE] {
                    let mut flow = Flow { alpha, ..Flow::default() };
                    untold(&mut flow, acked, flight, flags != 0);
                    let moved = flow.alpha.abs_diff(alpha);
                    assert!(flow.alpha <= ONE && moved <= ONE / 16, "{alpha}: {}", flow.alpha);
                    assert!(moved == 0 || (flow.alpha > alpha) == (flags != 0), "{}", flow.alpha);
                }
            }
        }
    }

    #[test]
    fn it_falls_by_half_of_alpha() {
        let mut flow = Flow { window: 100_000, alpha: ONE, mss: 1_000, ..Flow::default() };
        assert_eq!(Dctcp.after_mark(&mut flow), 50_000);
        flow.alpha = ONE / 4;
        assert_eq!(Dctcp.after_mark(&mut flow), 88_000, "an eighth, in whole segments");
        flow.alpha = 0;
        assert_eq!(Dctcp.after_mark(&mut flow), 100_000);
    }
}
