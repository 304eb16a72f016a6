//! DCTCP: falls in proportion to how much was marked.
//!
//! Source    RFC 8257 §3.3: α ← (1 − g)·α + g·M once per window, cwnd ← cwnd·(1 − α/2) at most once
//!           per window; g = 1/16, α begins at 1 (§4.2). Counted in segments.

use super::{Acked, Window};

/// Weight of the newest window.
const G: f64 = 1.0 / 16.0;

#[derive(Clone, Debug)]
pub(in crate::tcp) struct Dctcp {
    alpha: f64,
    acked: u32,
    marked: u32,
    /// The window that is observed ends when this segment is acknowledged.
    end: u32,
}

impl Default for Dctcp {
    fn default() -> Self {
        Self { alpha: 1.0, acked: 0, marked: 0, end: 0 }
    }
}

impl Dctcp {
    #[inline]
    pub(super) fn count(&mut self, ack: &Acked) {
        self.acked += ack.acked;
        self.marked += if ack.echo { ack.acked } else { 0 };
        if ack.una > self.end {
            let share = f64::from(self.marked) / f64::from(self.acked.max(1));
            self.alpha += G * (share - self.alpha);
            (self.acked, self.marked, self.end) = (0, 0, ack.next);
        }
    }

    pub(super) fn fall(&mut self, window: &mut Window) {
        let cwnd = f64::from(window.cwnd);
        window.fall((cwnd * (1.0 - self.alpha / 2.0)) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of ten segments, of which the first `marked` are echoed.
    fn window_of(dctcp: &mut Dctcp, first: u32, marked: u32) {
        for i in 0..10 {
            dctcp.count(&Acked {
                now: 0,
                acked: 1,
                echo: i < marked,
                una: first + i + 1,
                next: first + i + 11,
                rtt: 1000,
                sample: 0,
                may_grow: false,
            });
        }
    }

    #[test]
    fn alpha_follows_the_share_of_marks() {
        let mut dctcp = Dctcp::default();
        (0..200).for_each(|i| window_of(&mut dctcp, i * 10, 0));
        assert!(dctcp.alpha < 0.01, "{}", dctcp.alpha);
        (200..400).for_each(|i| window_of(&mut dctcp, i * 10, 3));
        assert!((dctcp.alpha - 0.3).abs() < 0.03, "{}", dctcp.alpha);
    }

    #[test]
    fn it_falls_by_half_of_alpha_and_never_below_two() {
        let mut window = Window::new(100);
        Dctcp { alpha: 0.2, ..Dctcp::default() }.fall(&mut window);
        assert_eq!((window.cwnd, window.ssthresh), (90, 90));
        let mut window = Window::new(3);
        Dctcp::default().fall(&mut window);
        assert_eq!(window.cwnd, 2);
    }
}
