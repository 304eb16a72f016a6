//! How much a sender may send for each ACK while it recovers: proportional rate reduction.
//!
//! Problem   With cwnd = ssthresh at once a sender is silent for half a round trip and then sends
//!           in bursts; and if ssthresh is more than the path holds (CUBIC after slow start), what
//!           it repairs is lost again, round after round.
//! Approach  While the pipe is above ssthresh, ssthresh/flight segments go for each delivered;
//!           below, no more than were delivered, and one more if this ACK told of no new loss.
//! Source    RFC 6937 §3.1; the choice between its two bounds is Linux's and RFC 9937's SafeACK.

#[derive(Clone, Debug, Default)]
pub(super) struct Prr {
    /// In flight when recovery began, in segments.
    flight: u32,
    /// Delivered since then, and sent.
    delivered: u32,
    sent: u32,
}

impl Prr {
    /// Recovery begins with `flight` segments outstanding.
    pub(super) fn begin(flight: u32) -> Self {
        Self { flight: flight.max(1), delivered: 0, sent: 0 }
    }

    pub(super) fn on_sent(&mut self) {
        self.sent += 1;
    }

    /// Nothing was sent since it began.
    pub(super) fn is_silent(&self) -> bool {
        self.sent == 0
    }

    /// An ACK told of `delivered` more; `safe` if it advanced and told of no new loss. Returns how
    /// many segments may go now.
    pub(super) fn on_ack(&mut self, delivered: u32, safe: bool, pipe: u32, ssthresh: u32) -> u32 {
        self.delivered += delivered;
        if pipe > ssthresh {
            let due = u64::from(self.delivered) * u64::from(ssthresh);
            let due = due.div_ceil(self.flight.into()) as u32;
            return due.saturating_sub(self.sent);
        }
        let unanswered = self.delivered.saturating_sub(self.sent);
        let bound = if safe { unanswered.max(delivered) + 1 } else { unanswered };
        bound.min(ssthresh - pipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 in flight, of which `lost` are lost; each ACK delivers one. How many go.
    fn play(lost: u32, ssthresh: u32) -> (u32, u32) {
        let mut prr = Prr::begin(100);
        let (mut pipe, mut most) = (100 - lost, 0);
        for _ in lost..100 {
            pipe -= 1;
            let may = prr.on_ack(1, false, pipe, ssthresh);
            most = most.max(may);
            (0..may).for_each(|_| prr.on_sent());
            pipe += may;
        }
        (pipe, most)
    }

    #[test]
    fn after_a_round_trip_the_pipe_is_ssthresh_without_a_burst() {
        let (pipe, most) = play(1, 50);
        assert!((49..=50).contains(&pipe) && most <= 1, "{pipe} {most}");
    }

    #[test]
    fn after_many_losses_no_more_goes_than_was_delivered() {
        let (pipe, most) = play(60, 70);
        assert_eq!((pipe, most), (40, 1));
    }

    #[test]
    fn a_safe_ack_lets_the_pipe_grow_to_ssthresh() {
        let mut prr = Prr::begin(100);
        assert_eq!(prr.on_ack(1, true, 30, 50), 2);
        assert_eq!(prr.on_ack(1, true, 49, 50), 1);
    }
}
