//! The demand of a pair, estimated from what the pair used.
//!
//! Problem   A pair's demand is not known, and the guarantee that we gave it cuts its throughput.
//! Approach  Start small. If the guarantee is used up, the estimate doubles, up to the fair share;
//!           from there the demand counts as without limit. If not, the estimate is what was used,
//!           plus a margin. Without octets the estimate is a trickle, and after a while the pair is
//!           over. At 0.35 Mb/s a period of 60 ms has one packet or two, and one is no proof of
//!           less demand: a slow pair is measured over several periods before it counts as bounded.
//!           Likewise one packet too many is no proof of more: a bounded pair is measured until the
//!           count is certain. After some steady judgements the margin is smaller, because other
//!           pairs pay for it. A pair whose queue is never empty wants more than it has; one whose
//!           queue was not empty once wants no less.
//!           A pair that used up less than the small start may have sent one burst. Its estimate is
//!           a guess: the part that it proved to use is sure, and the rest, up to the small start, is
//!           what it may want beyond. So is the estimate of a new pair, of which nothing is sure. A
//!           pair that used its guarantee up in two periods in a row and had more to send all the
//!           time is no guess. If that is not known, what is sure doubles, or is the smaller use of
//!           the two periods.
//! Promises  A steady demand below the fair share rests at 1.05 of itself. The estimate of an active
//!           pair is never below the trickle.
//! Not here  The split, which holds guesses back where a hose has no room: see `maxmin`.
//! Source    ElasticSwitch §4, "GP in a dynamic context".

use super::{Demand, PartitionConfig};
use crate::message::Backlog;
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
    guess: Option<Guess>,
    /// Judgements in a row that found the pair bounded, and the most that it used in them.
    steady: u32,
    most_used: Rate,
}

/// What is known of a pair if its rate may be due to one burst.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Guess {
    /// The part of the rate that the pair has proved to use. The rest is guessed.
    sure: Rate,
    /// What the pair used in the last period, if it used its guarantee up then.
    used: Option<Rate>,
}

/// Measurement of a slow pair since it was last judged.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct Open {
    since: Time,
    octets: Bytes,
    /// The smallest guarantee meanwhile.
    guarantee: Rate,
}

/// Octets of a packet, by which a count may be wrong.
const PACKET: u64 = 1514;
/// A pair that uses so many times its guarantee wants more, however few packets that are.
const CLEARLY: f64 = 1.5;
/// Judgements in a row that find a pair bounded before its margin is the smaller one. More: others
/// wait longer for what it does not use. Fewer: a demand that varies counts as steady.
const STEADY: u32 = 8;

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
    /// What waited in the pair's queue since the last step.
    pub(super) backlog: Backlog,
    /// The pair always had more to send, as far as its sender told this end.
    pub(super) is_held: bool,
    /// The pair sent more than it wants a floor for, and what was measured is what it wants.
    pub(super) exceeds: bool,
}

/// The small values of a hose.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(super) struct Small {
    pub(super) start: Rate,
    pub(super) trickle: Rate,
    /// The small start, or an equal part of the hose if that is less. A pair that uses up so much
    /// is no guess.
    pub(super) proof: Rate,
}

impl Small {
    /// Those of a hose that `pairs` share.
    pub(super) fn of(config: &PartitionConfig, hose: Rate, pairs: usize) -> Self {
        let (start, trickle) = (config.small_start_of(hose), config.trickle_of(hose, pairs));
        Self { start, trickle, proof: start.min(hose.split(pairs)) }
    }
}

impl Estimate {
    /// A new pair.
    pub(super) const fn new(now: Time, small: Small) -> Self {
        let guess = Some(Guess { sure: Rate::ZERO, used: None });
        Self { guess, ..Self::at(now, Want::New, small.start) }
    }

    /// A pair that had `rate` in an earlier incarnation of this host.
    pub(super) const fn adopted(now: Time, rate: Rate) -> Self {
        Self::at(now, Want::Growing, rate)
    }

    const fn at(now: Time, want: Want, rate: Rate) -> Self {
        let (active_at, read_at, open, guess) = (now, now, None, None);
        Self { want, rate, active_at, read_at, open, guess, steady: 0, most_used: Rate::ZERO }
    }

    /// Demand of the pair in the split.
    pub(super) const fn demand(&self) -> Demand {
        match self.want {
            Want::Unbounded => Demand::Unbounded,
            Want::New | Want::Bounded | Want::Growing => Demand::Bounded(self.rate),
        }
    }

    /// The part of the demand that is sure: less than all of it if the estimate is a guess.
    pub(super) fn sure(&self) -> Demand {
        let sure = self.guess.map_or(Demand::Unbounded, |guess| Demand::Bounded(guess.sure));
        sure.min(self.demand())
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
        let spans_periods = self.open.is_some();
        if let Some(open) = self.open.take() {
            since = open.since;
            octets += open.octets;
            guarantee = guarantee.min(open.guarantee);
            used = Rate::of(octets, now.since(since));
        }
        let span = now.since(since);
        let margin = if epoch.is_estimate { config.margin_steady } else { config.margin_bounded };
        let enough = self.enough(margin, guarantee);
        let has_enough = !used.is_zero() && used.as_f64() >= enough && !epoch.exceeds;
        // Of a pair that hardly sent, each packet is more.
        let sends = self.most_used.bytes_in(span).get() >= PACKET;
        let is_bounded = self.want == Want::Bounded && epoch.is_estimate && sends;
        let is_backlogged = epoch.backlog == Backlog::Always;
        if has_enough && is_bounded && !is_backlogged && span < config.judged_within {
            // A count is uncertain by a packet: one too many is no proof.
            let certain = octets.get().saturating_sub(PACKET) as f64 * 8.0 / span.as_secs_f64();
            if certain < enough && used.as_f64() < CLEARLY * guarantee.as_f64() {
                self.open = Some(Open { since, octets, guarantee });
                return;
            }
        }
        let guess = self.guess.take();
        // It sent nothing, nothing waited, and this end kept a part for it that others could use.
        let is_over = measured.is_zero()
            && epoch.backlog == Backlog::Free
            && self.rate.bytes_in(span) >= config.least_judged;
        let is_open = guarantee.bytes_in(span) < config.least_judged && !is_over;
        if has_enough || is_backlogged {
            let doubled = epoch.share.scale(config.growth);
            // One period may be one burst. What was used over several is a mean.
            let sure = if spans_periods { used.max(guarantee) } else { guarantee };
            self.guess = match guess.and_then(|guess| guess.used) {
                _ if epoch.share >= small.proof => None,
                None => Some(Guess { sure, used: Some(used) }),
                Some(_) if epoch.is_held => None,
                Some(before) => {
                    Some(Guess { sure: doubled.max(used.min(before)), used: Some(used) })
                }
            };
            self.rate = doubled.max(small.start);
            self.want = if self.rate >= epoch.fair { Want::Unbounded } else { Want::Growing };
            (self.steady, self.most_used) = (0, Rate::ZERO);
        } else if self.want == Want::New {
            // Measured over a part of a period only: too little proves nothing.
            (self.want, self.guess) = (Want::Growing, guess);
        } else if epoch.backlog == Backlog::Sometimes {
            // It waited for its turn, or for acknowledgements between: no proof that it wants less.
            self.rate = used.scale(config.margin_estimate).max(guarantee).max(small.trickle);
            self.want = Want::Growing;
            (self.steady, self.most_used) = (0, Rate::ZERO);
        } else if is_open && span < config.judged_within {
            self.open = Some(Open { since, octets, guarantee });
            self.guess = guess.map(|guess| Guess { used: None, ..guess });
        } else {
            let is_steady = used.as_f64() >= config.margin_bounded * self.most_used.as_f64();
            (self.steady, self.most_used) = match is_steady {
                true => (self.steady.saturating_add(1), self.most_used.max(used)),
                false => (0, used),
            };
            let is_rest = self.steady >= STEADY;
            let margin = if is_rest { config.margin_rest } else { config.margin_estimate };
            let of = if is_rest { self.most_used } else { used };
            self.rate = of.scale(margin).max(small.trickle);
            self.want = Want::Bounded;
        }
    }

    /// What a pair has to use of `guarantee` to count as using it up. Of a guarantee that is hardly
    /// more than what a bounded pair used, it is the middle between the two.
    fn enough(&self, margin: f64, guarantee: Rate) -> f64 {
        let (guarantee, used) = (guarantee.as_f64(), self.most_used.as_f64());
        let is_close = self.want == Want::Bounded && used < guarantee;
        let middle = if is_close { f64::midpoint(used, guarantee) } else { 0.0 };
        middle.max(margin * guarantee)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Span = Span::from_millis(60);
    const FRAME: u64 = 1514;
    const SMALL: Small = Small {
        start: Rate::from_bps(200_000),
        trickle: Rate::from_bps(12_500),
        proof: Rate::from_bps(200_000),
    };

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
            let guarantee = self.guarantee;
            let epoch = Epoch {
                guarantee,
                is_estimate: false,
                share,
                fair,
                backlog: Backlog::Unknown,
                is_held: false,
                exceeds: false,
            };
            let small = SMALL;
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

    /// As [`Pair::step`], of a pair whose guarantee is its estimate.
    fn settle(pair: &mut Pair, packets: u64, backlog: Backlog) -> (Want, u64) {
        pair.now += PERIOD;
        let fair = Rate::from_mbps(50);
        let guarantee = pair.guarantee;
        let epoch = Epoch {
            guarantee,
            is_estimate: true,
            share: guarantee,
            fair,
            backlog,
            is_held: false,
            exceeds: false,
        };
        let small = SMALL;
        let measured = Rate::of(Bytes::new(packets * FRAME), PERIOD);
        pair.estimate.step(pair.now, measured, epoch, small, &PartitionConfig::default());
        let (want, rate) = pair.estimate.view();
        pair.guarantee = rate;
        (want, rate.as_bps() / 1000)
    }

    #[test]
    fn one_packet_more_is_no_proof_that_a_bounded_pair_wants_more() {
        let mut pair = Pair::of(2000);
        for packets in [5, 5, 6, 5, 4, 6, 5, 5, 6, 4, 5, 5] {
            let (want, rate) = settle(&mut pair, packets, Backlog::Unknown);
            assert_eq!(want, Want::Bounded, "{rate} kbit/s");
        }
        let wants_more = (1..).find(|_| settle(&mut pair, 6, Backlog::Unknown).0 != Want::Bounded);
        assert!(wants_more.is_some_and(|after| after <= 8), "{wants_more:?} periods");
    }

    #[test]
    fn a_steady_pair_rests_at_a_twentieth_more_than_it_uses() {
        let mut pair = Pair::of(10_000);
        // 25 packets are 5.05 Mbit/s.
        let first = settle(&mut pair, 25, Backlog::Unknown);
        assert_eq!(first, (Want::Bounded, 5551), "1.1 of it");
        for _ in 0..12 {
            assert_eq!(settle(&mut pair, 25, Backlog::Unknown).0, Want::Bounded);
        }
        assert_eq!(settle(&mut pair, 25, Backlog::Unknown), (Want::Bounded, 5298), "1.05 of it");
        assert_ne!(
            settle(&mut pair, 40, Backlog::Unknown).0,
            Want::Bounded,
            "clearly more, at once"
        );
    }

    /// A pair that used `packets` in each period of 60 ms under a guarantee of 20 kbit/s, below a
    /// small start of 200: what is sure of its demand after each, in kbit/s.
    fn sure(packets: [u64; 4], is_held: bool) -> [u64; 4] {
        let mut pair = Pair::of(20);
        packets.map(|packets| {
            pair.now += PERIOD;
            let (guarantee, fair) = (pair.guarantee, Rate::from_mbps(50));
            let backlog = Backlog::Unknown;
            let epoch = Epoch {
                guarantee,
                is_estimate: false,
                share: guarantee,
                fair,
                backlog,
                is_held,
                exceeds: false,
            };
            let measured = Rate::of(Bytes::new(packets * FRAME), PERIOD);
            pair.estimate.step(pair.now, measured, epoch, SMALL, &PartitionConfig::default());
            let limit = |demand: Demand| demand.limit().as_bps() / 1000;
            assert!(limit(pair.estimate.demand()) >= limit(pair.estimate.sure()));
            limit(pair.estimate.sure())
        })
    }

    #[test]
    fn of_a_burst_only_the_guarantee_is_sure_and_of_a_second_one_what_both_used() {
        // A packet in 60 ms is 201 kbit/s.
        assert_eq!(sure([1, 0, 1, 0], false), [20, 20, 100, 100], "a mean over two periods");
        assert_eq!(sure([3, 0, 0, 0], true), [20, 20, 20, 20]);
        assert_eq!(sure([2, 1, 0, 0], false), [20, 200, 200, 200], "all of the small start");
        assert_eq!(sure([1, 1, 1, 1], true)[..2], [20, 200], "it waited all the time");
    }

    #[test]
    fn a_pair_that_sends_more_than_it_wants_rests_at_what_it_wants() {
        let mut pair = Pair::of(10_000);
        let exceeds = |pair: &mut Pair, packets, backlog| {
            pair.now += PERIOD;
            let (guarantee, fair) = (pair.guarantee, Rate::from_mbps(50));
            let (is_estimate, share, is_held, exceeds) = (true, guarantee, false, true);
            let epoch = Epoch { guarantee, is_estimate, share, fair, backlog, is_held, exceeds };
            let measured = Rate::of(Bytes::new(packets * FRAME), PERIOD);
            pair.estimate.step(pair.now, measured, epoch, SMALL, &PartitionConfig::default());
            let (want, rate) = pair.estimate.view();
            pair.guarantee = rate;
            (want, rate.as_bps() / 1000)
        };
        for _ in 0..12 {
            assert_eq!(exceeds(&mut pair, 25, Backlog::Unknown).0, Want::Bounded);
        }
        // It has no more than it wants. Another pair's estimate would double.
        pair.guarantee = Rate::from_mbps(5);
        assert_eq!(exceeds(&mut pair, 25, Backlog::Unknown), (Want::Bounded, 5298), "1.05 of it");
        assert_eq!(exceeds(&mut pair, 25, Backlog::Always), (Want::Growing, 10_597), "data waits");
    }

    #[test]
    fn what_waits_tells_what_a_pair_wants() {
        let mut pair = Pair::of(10_000);
        assert_eq!(settle(&mut pair, 25, Backlog::Sometimes), (Want::Growing, 10_000), "no less");
        assert_eq!(settle(&mut pair, 25, Backlog::Unknown).0, Want::Bounded);
        assert_eq!(settle(&mut pair, 1, Backlog::Always).0, Want::Growing, "more than it has");
    }
}
