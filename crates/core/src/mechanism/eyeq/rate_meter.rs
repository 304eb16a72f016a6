//! Meters one part of a VM's traffic, makes the law's steps, and chooses the source that is told.
//!
//! Problem   One rate for all senders must change only once most of them know the last one, or the
//!           loop is as slow as a round of feedback; and where packets are, only a packet runs the
//!           program.
//! Approach  A packet closes the periods that are over. A period ends in a step of the law
//!           ([`rcp_step`]) if those that sent most since the last step were told its rate, or if
//!           the part is half idle; else in nothing but the bounds of the rate. For every 10 kB the
//!           source whose packet fills them is told, unless it knows the rate: then the next source
//!           that does not.
//! Promises  `bpf/eyeq_count.h` computes the same, to the bit:
//!           `crates/dataplane/tests/eyeq_count.rs` holds the two equal: a change of one needs the
//!           same change of the other. No input panics or divides by zero.
//! Not here  What the part may receive: `shares`. Where feedback goes: `receiver`,
//!           `bpf/eyeq_tell.bpf.c`.
//! Source    EyeQ §3.2, §3.4, §4.1. Departs: R waits until senders know it
//!           ([`MeterRules::told_part`]).

use super::law::{ELAPSED_MOST_NS, ONE, RATE_MOST, RcpInput, octets_in, rcp_step};
use serde::{Deserialize, Serialize};

/// A part that received nothing for so many whole periods begins anew: with all it may have.
pub const IDLE_PERIODS: u64 = 64;
/// Sums of octets count up to this where parts of them are compared.
const OCTETS_MOST: u64 = 1 << 40;

/// What all meters go by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterRules {
    /// The period of the law, ns. Not 0.
    pub period_ns: u64,
    /// One source is told for so many octets; 0: none.
    pub feedback_octets: u64,
    /// As in [`RcpInput`].
    pub alpha: u32,
    /// As in [`RcpInput`].
    pub least_factor: u32,
    /// As in [`RcpInput`].
    pub queue_octets: u32,
    /// The part of what was sent since the last step whose sources must know its rate before the
    /// next step, in 1/65536. 0: no step waits.
    pub told_part: u32,
}

/// What a part may receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MeterShare {
    /// C, bit/s; 0: the meter stands still.
    pub capacity_bps: u64,
    /// R is not below, bit/s.
    pub floor_bps: u64,
}

/// Packets of one source that arrive together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packets {
    /// Octets of layer 2 without FCS.
    pub octets: u64,
    /// Segments.
    pub segments: u64,
    /// Of these, marked CE.
    pub marked: u64,
}

/// The meter of one part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RateMeter {
    /// Octets received, all of them.
    pub octets: u64,
    /// When the running period began, ns; 0: none did yet.
    pub since_ns: u64,
    /// Octets since then.
    pub arrived: u64,
    /// Segments since the last step.
    pub segments: u64,
    /// Of these, marked.
    pub marked: u64,
    /// R, bit/s.
    pub rate_bps: u64,
    /// y / C in the last period, in 1/65536; 0 if that made no step.
    pub load: u64,
    /// Steps of the law. A rate is known by the step that made it.
    pub steps: u64,
    /// Octets for which no source was told yet.
    pub untold: u64,
    /// Octets since the last step.
    pub sent: u64,
    /// Of these, from sources that were told its rate.
    pub heard: u64,
}

/// What a meter remembers of one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Heeder {
    /// The step of which the rest is.
    pub round: u64,
    /// Octets since that step.
    pub octets: u64,
    /// Whether it was told that step's rate: 0 or 1.
    pub is_told: u64,
}

/// What packets ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// Their source is to be told the rate.
    pub tells: bool,
    /// They are the first ones after [`IDLE_PERIODS`], or at all.
    pub begins: bool,
}

impl RateMeter {
    /// Counts packets at `now_ns`, as the kernel's program does for each.
    pub fn count(
        &mut self,
        rules: &MeterRules,
        share: MeterShare,
        source: &mut Heeder,
        now_ns: u64,
        packets: Packets,
    ) -> Asked {
        let is_metered = share.capacity_bps > 0;
        let begins = is_metered
            && (self.since_ns == 0
                || now_ns
                    >= self.since_ns.wrapping_add(IDLE_PERIODS.wrapping_mul(rules.period_ns)));
        if is_metered {
            self.close(rules, share, now_ns);
            self.take(source, packets);
        } else {
            self.octets = self.octets.wrapping_add(packets.octets);
        }
        Asked { tells: self.ask(rules, source), begins }
    }

    /// Adds packets to the running period.
    pub(super) fn take(&mut self, source: &mut Heeder, packets: Packets) {
        self.attend(source);
        let Packets { octets, segments, marked } = packets;
        for sum in [&mut self.octets, &mut self.arrived, &mut self.untold, &mut self.sent] {
            *sum = sum.wrapping_add(octets);
        }
        self.segments = self.segments.wrapping_add(segments);
        self.marked = self.marked.wrapping_add(marked);
        source.octets = source.octets.wrapping_add(octets);
        if source.is_told != 0 {
            self.heard = self.heard.wrapping_add(octets);
        }
    }

    /// What a source sent before the last step, and that it was told, says nothing of this one.
    fn attend(&self, source: &mut Heeder) {
        if source.round != self.steps {
            *source = Heeder { round: self.steps, octets: 0, is_told: 0 };
        }
    }

    /// Whether 10 kB are full, and this source does not know the rate. It does from now on.
    pub(super) fn ask(&mut self, rules: &MeterRules, source: &mut Heeder) -> bool {
        self.attend(source);
        let each = rules.feedback_octets;
        if each == 0 || self.untold < each {
            return false;
        }
        if source.is_told != 0 {
            // Nothing is saved up.
            self.untold = each;
            return false;
        }
        self.untold %= each;
        source.is_told = 1;
        self.heard = self.heard.wrapping_add(source.octets);
        true
    }

    /// Closes the periods that are over at `now_ns`.
    pub(super) fn close(&mut self, rules: &MeterRules, share: MeterShare, now_ns: u64) {
        let (period, capacity) = (rules.period_ns, share.capacity_bps.min(RATE_MOST));
        if self.since_ns == 0 {
            self.since_ns = now_ns;
            self.rate_bps = capacity;
            return;
        }
        // Another CPU may have looked at its clock later, and been here before.
        if now_ns < self.since_ns.wrapping_add(period) {
            return;
        }
        let passed = now_ns.wrapping_sub(self.since_ns) / period;
        self.since_ns = self.since_ns.wrapping_add(passed.wrapping_mul(period));
        self.close_one(rules, share);
        let empty = passed.wrapping_sub(1);
        if empty == 0 {
            return;
        }
        self.load = 0;
        self.next_round(empty);
        self.rate_bps = if empty >= IDLE_PERIODS {
            capacity
        } else {
            idle(self.rate_bps, capacity, rules, empty)
        };
    }

    fn close_one(&mut self, rules: &MeterRules, share: MeterShare) {
        let is_due = self.is_due(rules, share);
        let out = rcp_step(RcpInput {
            rate_bps: self.rate_bps,
            capacity_bps: share.capacity_bps,
            floor_bps: share.floor_bps,
            elapsed_ns: if is_due { rules.period_ns } else { 0 },
            received_octets: self.arrived,
            segments: self.segments,
            marked: self.marked,
            alpha: rules.alpha,
            least_factor: rules.least_factor,
            queue_octets: rules.queue_octets,
            spare: 0,
        });
        (self.rate_bps, self.load, self.arrived) = (out.rate_bps, out.load, 0);
        if is_due {
            self.next_round(1);
        }
    }

    fn next_round(&mut self, steps: u64) {
        self.steps = self.steps.wrapping_add(steps);
        (self.segments, self.marked, self.sent, self.heard) = (0, 0, 0, 0);
    }

    /// Whether the rate may change: most of what arrives comes from sources that know it, or so
    /// little arrives that a higher rate does no harm.
    fn is_due(&self, rules: &MeterRules, share: MeterShare) -> bool {
        let heard = self.heard.min(OCTETS_MOST) << 16;
        let needed = self.sent.min(OCTETS_MOST) * u64::from(rules.told_part.min(ONE));
        let budget = octets_in(share.capacity_bps.min(RATE_MOST), rules.period_ns);
        heard >= needed || self.arrived < budget / 2
    }
}

/// What so many further steps make of a rate while nothing arrives.
fn idle(mut rate: u64, capacity: u64, rules: &MeterRules, steps: u64) -> u64 {
    if octets_in(capacity, rules.period_ns.min(ELAPSED_MOST_NS)) == 0 {
        return rate;
    }
    let grown = u64::from(ONE) + u64::from(rules.alpha.min(super::law::ALPHA_MOST));
    for _ in 0..steps {
        rate = capacity.min((rate * grown) >> 16);
    }
    rate
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 200_000;
    /// Octets that 9 Gb/s carry in a period.
    const FULL: u64 = 225_000;
    const SHARE: MeterShare = MeterShare { capacity_bps: 9_000_000_000, floor_bps: 900_000 };

    fn rules(told_part: u32) -> MeterRules {
        MeterRules {
            period_ns: PERIOD,
            feedback_octets: 10_000,
            alpha: ONE / 2,
            least_factor: ONE / 10,
            queue_octets: 0,
            told_part,
        }
    }

    /// Sources that send `each` in every period, packet by packet; the steps after so many periods.
    fn steps(told_part: u32, sources: u64, each: u64, periods: u64) -> u64 {
        let (rules, mut meter) = (rules(told_part), RateMeter::default());
        let mut heeders = vec![Heeder::default(); sources as usize];
        let packets = each / 1_500;
        for n in 0..periods * packets * sources {
            let now = 1 + n * PERIOD / (packets * sources);
            let one = Packets { octets: 1_500, segments: 1, marked: 0 };
            let heeder = &mut heeders[(n % sources) as usize];
            meter.count(&rules, SHARE, heeder, now, one);
        }
        meter.steps
    }

    #[test]
    fn a_step_waits_until_most_of_what_arrives_is_from_sources_that_know_the_last_one() {
        let part = ONE / 8 * 7;
        assert_eq!(steps(0, 100, FULL / 100 + 1_500, 100), 99, "the paper's does not wait");
        assert_eq!(steps(part, 1, FULL, 100), 99, "one source is told within the period");
        // Thirty messages in a period: most of a hundred sources are told in three.
        let slow = steps(part, 100, 3_000, 100);
        assert!((25..45).contains(&slow), "{slow} steps");
    }

    #[test]
    fn a_part_that_is_half_idle_does_not_wait() {
        let half = FULL / 2 / 1_500 / 30;
        let few = steps(ONE, 30, (half - 1) * 1_500, 50);
        assert_eq!(few, 49);
    }

    #[test]
    fn a_source_that_knows_the_rate_is_not_told_again_and_nothing_is_saved_up() {
        let (rules, mut meter) = (rules(0), RateMeter::default());
        let (mut a, mut b) = (Heeder::default(), Heeder::default());
        let packet = Packets { octets: 5_000, segments: 1, marked: 0 };
        let mut count = |source: &mut Heeder, now| meter.count(&rules, SHARE, source, now, packet);
        assert_eq!(count(&mut a, 1), Asked { tells: false, begins: true });
        assert_eq!(count(&mut a, 2), Asked { tells: true, begins: false });
        let again: Vec<bool> = (3..20).map(|now| count(&mut a, now).tells).collect();
        assert!(again.iter().all(|tells| !tells), "{again:?}");
        assert!(count(&mut b, 20).tells, "its turn");
        assert!(!count(&mut b, 21).tells);
        assert!(count(&mut a, PERIOD + 1).tells, "a new rate");
    }

    #[test]
    fn a_part_without_a_share_is_counted_and_stands_still() {
        let (mut meter, mut source) = (RateMeter::default(), Heeder::default());
        let packet = Packets { octets: 50_000, segments: 1, marked: 1 };
        let none = MeterShare::default();
        let asked = meter.count(&rules(0), none, &mut source, 9, packet);
        assert_eq!(asked, Asked::default());
        assert_eq!(meter, RateMeter { octets: 50_000, ..RateMeter::default() });
    }
}
