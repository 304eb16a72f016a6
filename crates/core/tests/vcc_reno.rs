//! A guest whose port translates may send what a guest with ECN beside it sends: segment by segment, whatever marks and
//! acknowledgements come.
//!
//! The other guest is Linux's Reno, written down here from its source (`tcp_enter_cwr`, `tcp_cwnd_reduction`,
//! `tcp_end_cwnd_reduction`, `tcp_cong_avoid_ai`), in segments. Without a window scale, so that no window is rounded.

use proptest::prelude::*;
use weir_core::vcc::{ACK, ECE, Flow, SYN, Segment, Terms, Translation, Way};

const MSS: u32 = 1_460;

/// A sender with ECN, whose window is full.
#[derive(Debug)]
struct Reno {
    una: u32,
    nxt: u32,
    cwnd: u32,
    ssthresh: u32,
    /// Acknowledged since cwnd last grew.
    count: u32,
    cwr: Option<Cwr>,
}

/// The state CWR.
#[derive(Debug)]
struct Cwr {
    high_seq: u32,
    prior_cwnd: u32,
    delivered: u32,
    out: u32,
}

impl Reno {
    /// Past slow start, with so many in flight.
    fn new(cwnd: u32) -> Self {
        Self { una: 0, nxt: cwnd, cwnd, ssthresh: cwnd, count: 0, cwr: None }
    }

    /// Whether with `acked` more it has more in flight than its window was: it skipped what ends CWR.
    fn is_over(&self, acked: u32) -> bool {
        let window = match &self.cwr {
            Some(cwr) if self.una + acked > cwr.high_seq => self.ssthresh,
            Some(_) => u32::MAX,
            None => self.cwnd,
        };
        self.nxt - self.una > window
    }

    fn on_ack(&mut self, acked: u32, has_echo: bool) {
        self.una += acked;
        if self.cwr.as_ref().is_some_and(|cwr| self.una > cwr.high_seq) {
            self.cwnd = self.ssthresh;
            self.cwr = None;
        }
        if has_echo && self.cwr.is_none() {
            let (high_seq, prior_cwnd) = (self.nxt, self.cwnd);
            self.cwr = Some(Cwr { high_seq, prior_cwnd, delivered: 0, out: 0 });
            self.ssthresh = (self.cwnd / 2).max(2);
            self.count = 0;
        }
        let flight = self.nxt - self.una;
        if let Some(cwr) = &mut self.cwr {
            cwr.delivered += acked;
            let goes = if flight > self.ssthresh {
                let due = (self.ssthresh * cwr.delivered).div_ceil(cwr.prior_cwnd);
                due.saturating_sub(cwr.out)
            } else {
                let goes = cwr.delivered.saturating_sub(cwr.out).max(acked) + 1;
                goes.min(self.ssthresh - flight)
            };
            self.cwnd = flight + goes.max(u32::from(cwr.out == 0));
        } else {
            self.count += acked;
            let more = self.count / self.cwnd;
            self.count -= more * self.cwnd;
            self.cwnd += more;
        }
        let goes = self.cwnd.saturating_sub(flight);
        self.nxt += goes;
        if let Some(cwr) = &mut self.cwr {
            cwr.out += goes;
        }
    }
}

/// A guest without ECN that sends whatever it may, at a port that translates.
struct Guest {
    flow: Flow,
    terms: Terms,
    una: u32,
    nxt: u32,
}

impl Guest {
    /// With so many in flight.
    fn new(segments: u32) -> Self {
        let terms = Terms::new(Translation::VirtualEcn);
        let mut guest = Self { flow: Flow::default(), terms, una: 1, nxt: 1 };
        // The handshake promises what is in flight, and no more.
        let window = (segments * MSS) as u16;
        let syn = Segment { mss: MSS as u16, window, ..Segment::default() };
        guest.pass(Segment { flags: SYN, ..syn });
        guest.pass(Segment { flags: SYN | ACK | ECE, ack: 1, way: Way::In, ..syn });
        (0..segments).for_each(|_| guest.send());
        guest
    }

    fn pass(&mut self, segment: Segment) -> u32 {
        self.flow.handle(&segment, &self.terms).window.into()
    }

    fn send(&mut self) {
        self.pass(Segment { seq: self.nxt, octets: MSS, flags: ACK, ..Segment::default() });
        self.nxt += MSS;
    }

    fn on_ack(&mut self, acked: u32, has_echo: bool) {
        self.una += acked * MSS;
        let flags = ACK | if has_echo { ECE } else { 0 };
        let segment =
            Segment { ack: self.una, flags, window: u16::MAX, way: Way::In, ..Segment::default() };
        let edge = self.una + self.pass(segment);
        while self.nxt + MSS <= edge {
            self.send();
        }
    }
}

proptest! {
    #[test]
    fn a_translated_guest_sends_what_linux_with_ecn_sends(
        // As much as fits a window without scale.
        segments in 2u32..44,
        steps in prop::collection::vec(
            (
                prop_oneof![8 => Just(1u32), 8 => Just(2), 1 => Just(3)],
                prop::bool::weighted(0.1),
            ),
            1..500,
        ),
    ) {
        let (mut reno, mut guest) = (Reno::new(segments), Guest::new(segments));
        // The first mark gives the guest its window.
        for (step, (acked, has_echo)) in [(1, true)].iter().chain(&steps).enumerate() {
            let acked = (*acked).min(reno.nxt - reno.una);
            // Linux then lets one more go, once: not worth a word of the flow.
            let has_echo = *has_echo && !reno.is_over(acked);
            reno.on_ack(acked, has_echo);
            guest.on_ack(acked, has_echo);
            let sent = (guest.nxt - 1) / MSS;
            prop_assert_eq!(sent, reno.nxt, "step {}: {} acknowledged, {:?}", step, acked, reno);
        }
    }
}
