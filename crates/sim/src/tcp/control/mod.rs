//! Congestion control: the octets that a sender may have in flight.
//!
//! Problem   Three laws, one window, and a call per ACK that must cost nearly nothing.
//! Approach  The window and slow start are the same for all. Each law is a file beside this one:
//!           how the window grows in congestion avoidance, and to what it falls. An enum, not a
//!           trait object, so that the call is inlined.
//! Promises  cwnd ≥ 1 segment, ssthresh ≥ 2. The window grows only while it limits the sender.
//! Not here  Detection of losses: see `board`. Reaction to marks once per window: see `sender`.
//! Source    RFC 5681 §3.1 (slow start, counted in segments acknowledged, RFC 3465 without its
//!           bound as Linux does), §4.1; RFC 7661 in its simplest form.

mod cubic;
mod dctcp;
mod hystart;
mod reno;

use cubic::Cubic;
use dctcp::Dctcp;
use weir_units::Span;

/// Which congestion control a sender uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// RFC 5681, RFC 6582.
    Reno,
    /// RFC 9438.
    Cubic,
    /// RFC 8257.
    Dctcp,
}

/// What all laws share. In segments.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) cwnd: u32,
    pub(super) ssthresh: u32,
    /// Acknowledged since cwnd last grew in congestion avoidance.
    credit: u32,
}

impl Window {
    pub(super) fn new(initial: u32) -> Self {
        Self { cwnd: initial.max(1), ssthresh: u32::MAX, credit: 0 }
    }

    /// Slow start; returns what of `acked` is left for congestion avoidance.
    #[inline]
    fn slow_start(&mut self, acked: u32) -> u32 {
        let grown = self.cwnd.saturating_add(acked).min(self.ssthresh).max(self.cwnd);
        let used = grown - self.cwnd;
        self.cwnd = grown;
        acked - used
    }

    /// A segment for each window acknowledged.
    #[inline]
    fn linear(&mut self, acked: u32) {
        self.credit += acked;
        while self.credit >= self.cwnd {
            self.credit -= self.cwnd;
            self.cwnd += 1;
        }
    }

    /// Falls to `to` segments, and to no less than two.
    fn fall(&mut self, to: u32) {
        self.ssthresh = to.max(2);
        self.cwnd = self.ssthresh;
        self.credit = 0;
    }
}

/// An ACK that acknowledges something new.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    /// ns.
    pub(super) now: u64,
    /// Segments.
    pub(super) acked: u32,
    /// It carried ECN-Echo.
    pub(super) echo: bool,
    /// The first segment not acknowledged, and the next new one.
    pub(super) una: u32,
    pub(super) next: u32,
    /// Smoothed round-trip time, ns.
    pub(super) rtt: u64,
    /// The round-trip time of the last segment of those, ns; zero if it is not asked for or not
    /// known.
    pub(super) sample: u64,
    /// The window may grow: it was full, and nothing is being repaired.
    pub(super) may_grow: bool,
}

/// One of the laws, with its state.
#[derive(Clone, Debug)]
pub(super) enum Control {
    Reno,
    Cubic(Cubic),
    Dctcp(Dctcp),
}

impl Control {
    /// CUBIC may leave slow start by HyStart.
    pub(super) fn new(algorithm: Algorithm, hystart: bool) -> Self {
        match algorithm {
            Algorithm::Reno => Self::Reno,
            Algorithm::Cubic => Self::Cubic(Cubic::new(hystart)),
            Algorithm::Dctcp => Self::Dctcp(Dctcp::default()),
        }
    }

    /// Counts, and grows the window if it may.
    #[inline]
    pub(super) fn on_ack(&mut self, window: &mut Window, ack: &Acked) {
        match self {
            Self::Reno => {}
            Self::Cubic(cubic) => cubic.watch(window, ack),
            Self::Dctcp(dctcp) => dctcp.count(ack),
        }
        if !ack.may_grow {
            return;
        }
        let mut acked = ack.acked;
        if window.cwnd < window.ssthresh {
            acked = window.slow_start(acked);
            if acked == 0 {
                return;
            }
        }
        match self {
            Self::Reno | Self::Dctcp(_) => window.linear(acked),
            Self::Cubic(cubic) => cubic.grow(window, acked, ack.now, ack.rtt),
        }
    }

    /// Segments were lost: once per recovery.
    pub(super) fn on_loss(&mut self, window: &mut Window) {
        match self {
            // RFC 8257 §3.5: as conventional TCP.
            Self::Reno | Self::Dctcp(_) => reno::halve(window),
            Self::Cubic(cubic) => cubic.fall(window),
        }
    }

    /// Packets were marked: once per window.
    pub(super) fn on_mark(&mut self, window: &mut Window) {
        match self {
            Self::Reno => reno::halve(window),
            Self::Cubic(cubic) => cubic.fall(window),
            Self::Dctcp(dctcp) => dctcp.fall(window),
        }
    }

    /// The retransmission timer expired; `first` unless the window has fallen already.
    pub(super) fn on_timeout(&mut self, window: &mut Window, first: bool) {
        if first {
            self.on_loss(window);
        }
        if let Self::Cubic(cubic) = self {
            cubic.restart();
        }
        window.cwnd = 1;
        window.credit = 0;
    }
}

/// A span in seconds: only inside the laws.
fn seconds(ns: u64) -> f64 {
    Span::from_nanos(ns).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(acked: u32) -> Acked {
        let (now, echo, una, next, rtt, sample, may_grow) = (0, false, 10, 20, 1000, 0, true);
        Acked { now, acked, echo, una, next, rtt, sample, may_grow }
    }

    #[test]
    fn slow_start_doubles_and_ends_at_ssthresh_exactly() {
        let (mut window, mut reno) = (Window::new(10), Control::Reno);
        for _ in 0..5 {
            reno.on_ack(&mut window, &ack(2));
        }
        assert_eq!(window.cwnd, 20);
        window.ssthresh = 21;
        reno.on_ack(&mut window, &ack(2));
        assert_eq!((window.cwnd, window.credit), (21, 1), "one for slow start, one beyond");
    }

    #[test]
    fn congestion_avoidance_adds_one_segment_per_window() {
        let (mut window, mut reno) = (Window::new(10), Control::Reno);
        window.ssthresh = 10;
        let mut seen = Vec::new();
        for acks in [9, 1, 10, 1] {
            (0..acks).for_each(|_| reno.on_ack(&mut window, &ack(1)));
            seen.push(window.cwnd);
        }
        assert_eq!(seen, [10, 11, 11, 12]);
    }

    #[test]
    fn a_window_that_is_not_full_does_not_grow() {
        for algorithm in [Algorithm::Reno, Algorithm::Cubic, Algorithm::Dctcp] {
            let (mut window, mut control) = (Window::new(10), Control::new(algorithm, true));
            control.on_ack(&mut window, &Acked { may_grow: false, ..ack(5) });
            assert_eq!(window.cwnd, 10);
        }
    }

    #[test]
    fn a_timeout_leaves_one_segment_and_halves_ssthresh_once() {
        let (mut window, mut reno) = (Window::new(40), Control::Reno);
        reno.on_timeout(&mut window, true);
        assert_eq!((window.cwnd, window.ssthresh), (1, 20));
        reno.on_timeout(&mut window, false);
        assert_eq!((window.cwnd, window.ssthresh), (1, 20));
    }
}
