//! The demand of a pair, estimated from what the pair used.
//!
//! Problem   A pair's demand is not known, and the guarantee that we gave it cuts its throughput.
//! Approach  Start small. If the guarantee is used up, the estimate doubles, up to the fair share;
//!           from there the demand counts as without limit. If not, the estimate is what was used,
//!           plus a margin. Without octets the estimate is a trickle, and after a while the pair is
//!           over. At 0.35 Mb/s a period of 60 ms has one packet or two, and one is no proof of
//!           less demand: a slow pair is measured over several periods before it counts as bounded.
//! Promises  A steady demand below the fair share rests at 1.1 of itself. The estimate of an active
//!           pair is never below the trickle.
//! Not here  The split: see `maxmin`.
//! Source    ElasticSwitch §4, "GP in a dynamic context".

use super::{Demand, PartitionConfig};
use weir_units::{Bytes, Rate, Span, Time};

/// Reason of an estimate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Want {
    /// Not a full period old: the small start, whatever was measured.
    New,
    /// Used less than it could.
    Bounded,
    /// Used all, but is not yet at the fair share.
    Growing,
    /// Used its full fair share.
    Unbounded,
}

/// The estimate of one pair.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Estimate {
    want: Want,
    rate: Rate,
    active_at: Time,
    read_at: Time,
    open: Option<Open>,
}

/// Measurement of a slow pair since it was last judged.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Open {
    since: Time,
    octets: Bytes,
    /// The smallest guarantee meanwhile.
    guarantee: Rate,
}

/// The guarantee with which a measurement is compared.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Epoch {
    /// The smallest guarantee that was in force since the last step.
    pub(super) guarantee: Rate,
    /// The guarantee is 1.1 × an older measurement, at one of the two ends.
    pub(super) is_estimate: bool,
    /// This end's part.
    pub(super) share: Rate,
    /// The fair share of pairs without limit at this end.
    pub(super) fair: Rate,
}

/// The two small values of a hose.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Small {
    pub(super) start: Rate,
    pub(super) trickle: Rate,
}

impl Small {
    pub(super) fn of(config: &PartitionConfig, hose: Rate) -> Self {
        Self { start: config.small_start_of(hose), trickle: config.trickle_of(hose) }
    }
}

impl Estimate {
    /// A new pair.
    pub(super) const fn new(now: Time, small: Small) -> Self {
        Self { want: Want::New, rate: small.start, active_at: now, read_at: now, open: None }
    }

    /// A pair that had `rate` in an earlier incarnation of this host.
    pub(super) const fn adopted(now: Time, rate: Rate) -> Self {
        Self { want: Want::Growing, rate, active_at: now, read_at: now, open: None }
    }

    /// Demand of the pair in the split.
    pub(super) const fn demand(&self) -> Demand {
        match self.want {
            Want::Unbounded => Demand::Unbounded,
            Want::New | Want::Bounded | Want::Growing => Demand::Bounded(self.rate),
        }
    }

    /// Reason and value of the estimate.
    pub(super) const fn view(&self) -> (Want, Rate) {
        (self.want, self.rate)
    }

    /// Whether the pair is less than one period old.
    pub(super) fn is_new(&self) -> bool {
        self.want == Want::New
    }

    /// Whether this end estimates that the pair could not use more.
    pub(super) fn is_bounded(&self) -> bool {
        self.want == Want::Bounded
    }

    /// Time for which the pair had no octets.
    pub(super) const fn idle_for(&self, now: Time) -> Span {
        now.since(self.active_at)
    }

    /// The periodic step.
    pub(super) fn step(
        &mut self,
        now: Time,
        measured: Rate,
        epoch: Epoch,
        small: Small,
        config: &PartitionConfig,
    ) {
        if !measured.is_zero() {
            self.active_at = now;
        }
        let mut octets = measured.bytes_in(now.since(self.read_at));
        let (mut used, mut guarantee, mut since) = (measured, epoch.guarantee, self.read_at);
        self.read_at = now;
        if let Some(open) = self.open.take() {
            since = open.since;
            octets += open.octets;
            guarantee = guarantee.min(open.guarantee);
            used = Rate::of(octets, now.since(since));
        }
        let span = now.since(since);
        let margin = if epoch.is_estimate { config.margin_steady } else { config.margin_bounded };
        if !used.is_zero() && used.as_f64() >= margin * guarantee.as_f64() {
            self.rate = epoch.share.scale(config.growth).max(small.start);
            self.want = if self.rate >= epoch.fair { Want::Unbounded } else { Want::Growing };
        } else if self.want == Want::New {
            // Measured over a part of a period only: too little proves nothing.
            self.want = Want::Growing;
        } else if guarantee.bytes_in(span) < config.least_judged && span < config.judged_within {
            self.open = Some(Open { since, octets, guarantee });
        } else {
            self.rate = used.scale(config.margin_estimate).max(small.trickle);
            self.want = Want::Bounded;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Span = Span::from_millis(60);
    const FRAME: u64 = 1514;

    /// An estimate that is told of so many packets in each period, under one guarantee.
    struct Pair {
        estimate: Estimate,
        guarantee: Rate,
        now: Time,
    }

    impl Pair {
        fn of(kbit: u64) -> Self {
            let guarantee = Rate::from_bps(kbit * 1000);
            let estimate = Estimate::adopted(Time::ZERO, guarantee);
            Self { estimate, guarantee, now: Time::ZERO }
        }

        fn step(&mut self, packets: u64) -> (Want, u64) {
            self.now += PERIOD;
            let (share, fair) = (self.guarantee, self.guarantee);
            let epoch = Epoch { guarantee: self.guarantee, is_estimate: false, share, fair };
            let small = Small { start: Rate::from_bps(200_000), trickle: Rate::from_bps(12_500) };
            let measured = Rate::of(Bytes::new(packets * FRAME), PERIOD);
            self.estimate.step(self.now, measured, epoch, small, &PartitionConfig::default());
            let (want, rate) = self.estimate.view();
            (want, rate.as_bps() / 1000)
        }
    }

    #[test]
    fn a_pair_of_two_packets_a_period_is_not_bounded_by_one_that_comes_late() {
        let mut pair = Pair::of(350);
        for packets in [1, 2, 2, 2, 1, 2, 1, 3, 2, 0, 3, 2] {
            let (want, rate) = pair.step(packets);
            assert_ne!(want, Want::Bounded);
            assert!(rate >= 350, "{rate} kbit/s");
        }
    }

    #[test]
    fn a_slow_pair_that_wants_less_is_bounded_when_eight_packets_could_have_come() {
        let mut pair = Pair::of(350);
        // 277 ms at its guarantee: five periods.
        for packets in [0, 1, 0, 1] {
            assert_eq!(pair.step(packets).0, Want::Growing, "not yet judged");
        }
        // Three in 300 ms are 121 kbit/s.
        assert_eq!(pair.step(1), (Want::Bounded, 133));
        assert_eq!(pair.step(2), (Want::Unbounded, 700), "but what it wants, it has at once");
    }

    #[test]
    fn no_pair_is_left_unjudged_for_longer_than_half_a_second() {
        let mut pair = Pair::of(20);
        let steps = (1..).find(|_| pair.step(0).0 == Want::Bounded);
        assert_eq!(steps, Some(9), "540 ms");
    }

    #[test]
    fn a_fast_pair_is_judged_in_each_period() {
        let mut pair = Pair::of(10_000);
        let (want, rate) = pair.step(24);
        assert_eq!((want, rate), (Want::Bounded, 5329), "1.1 of 4.84 Mbit/s");
        assert_eq!(pair.step(50).0, Want::Unbounded);
        assert_eq!(pair.step(0), (Want::Bounded, 12));
    }

    #[test]
    fn while_a_slow_pair_is_measured_the_smallest_guarantee_counts() {
        let mut pair = Pair::of(100);
        assert_eq!(pair.step(0).0, Want::Growing);
        pair.guarantee = Rate::from_mbps(10);
        // One packet in two periods is all of 100 kbit/s, and a hundredth of what it has now.
        assert_eq!(pair.step(1).0, Want::Unbounded);
    }
}
