//! DCTCP: falls in proportion to how much was marked.
//!
//! Words of [`Flow::law`]: 0 and 1 octets and marked octets of the window that is observed (of reports: the totals at
//! its beginning), 2 its end, 3 and 4 the receiver's counts (see `receiving`).
//!
//! Source    AC/DC; RFC 8257 §3.3: α ← (1 − g)·α + g·M once per window, W ← W·(1 − α/2); g = 1/16, α begins at 1.
//!           A loss halves W (RFC 8257 §3.5; AC/DC sets α to 1 first, which is the same for W). α is in 1/32768;
//!           what is taken off is rounded up, so that it comes to 0. Where the peer's host does not report, M is
//!           what was acknowledged with ECE: too much, for ECE stays until CWR.

use super::{Control, linear};
use crate::vcc::flow::{Flow, past};
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
