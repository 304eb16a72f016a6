//! Constants that a user set, and the law that they give on a link.
//!
//! Problem   Presets are for links of 10 Gb/s and follow the link ([`EyeQ::for_link`]); a constant
//!           that a user sets is meant as it is written, on whatever link.
//! Approach  What was set is kept beside the preset, and put in its place when the link is known.
//! Not here  How they are written: the parser of the text. Whether they can work together:
//!           [`EyeQ::check`].

use super::config::{Backend, Capacity, EyeQ, GENTLE, Outer};
use crate::mechanism::constants::{Entry, Take, Word};
use weir_units::{Bytes, Rate, Span};

/// One constant as a user set it; see the fields of [`EyeQ`] and [`Outer`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Constant {
    /// [`EyeQ::period`].
    Period(Span),
    /// [`EyeQ::alpha`].
    Alpha(f64),
    /// [`EyeQ::least_factor`].
    LeastFactor(f64),
    /// [`EyeQ::least_divisor`].
    LeastDivisor(u32),
    /// [`EyeQ::counts_losses`].
    CountsLosses(bool),
    /// [`EyeQ::idle_after`].
    IdleAfter(Span),
    /// [`EyeQ::told_part`].
    ToldPart(f64),
    /// [`EyeQ::feedback_octets`].
    FeedbackOctets(Bytes),
    /// [`EyeQ::feedback_unit`].
    FeedbackUnit(Rate),
    /// [`EyeQ::silence`].
    Silence(Span),
    /// [`EyeQ::silent_octets`].
    SilentOctets(Bytes),
    /// [`EyeQ::silent_least`].
    SilentLeast(Rate),
    /// [`EyeQ::limiter_idle`].
    LimiterIdle(Span),
    /// [`Outer::period`]: the outer loop takes the place of the printed formula.
    OuterPeriod(Span),
    /// [`Outer::alpha`]; likewise.
    OuterAlpha(f64),
    /// [`Outer::fall_at`]; likewise. `None`: it never falls at once.
    FallAt(Option<f64>),
}

/// A preset and what differs from it, before they know their link.
#[derive(Clone, PartialEq, Debug)]
pub struct Tuned {
    /// For links of 10 Gb/s.
    pub preset: EyeQ,
    /// What sets the limiters.
    pub backend: Backend,
    /// In the order in which they take effect.
    pub set: Vec<Constant>,
}

const BACKEND: &[Word<Tuned>] = &[
    ("kernel", |tuned| tuned.backend = Backend::Kernel),
    ("agent", |tuned| tuned.backend = Backend::Agent),
];
const COUNTS_LOSSES: &[Word<Tuned>] = &[
    ("yes", |tuned| tuned.put(Constant::CountsLosses(true))),
    ("no", |tuned| tuned.put(Constant::CountsLosses(false))),
];

const fn entry(name: &'static str, take: Take<Tuned>) -> Entry<Tuned> {
    Entry { name, take }
}

impl Tuned {
    /// All constants that can be set by name. docs/algorithms/eyeq.md says what each one means.
    pub const CONSTANTS: &[Entry<Self>] = &[
        entry("backend", Take::Word(BACKEND)),
        entry("period", Take::Span(|tuned, v| tuned.put(Constant::Period(v)))),
        entry("alpha", Take::Real(|tuned, v| tuned.put(Constant::Alpha(v)))),
        entry("least_factor", Take::Real(|tuned, v| tuned.put(Constant::LeastFactor(v)))),
        entry("least_divisor", Take::Real(|tuned, v| tuned.put(Constant::LeastDivisor(v as u32)))),
        entry("counts_losses", Take::Word(COUNTS_LOSSES)),
        entry("idle_after", Take::Span(|tuned, v| tuned.put(Constant::IdleAfter(v)))),
        entry("told_part", Take::Real(|tuned, v| tuned.put(Constant::ToldPart(v)))),
        entry("feedback_octets", Take::Octets(|tuned, v| tuned.put(Constant::FeedbackOctets(v)))),
        entry("feedback_unit", Take::Rate(|tuned, v| tuned.put(Constant::FeedbackUnit(v)))),
        entry("silence", Take::Span(|tuned, v| tuned.put(Constant::Silence(v)))),
        entry("silent_octets", Take::Octets(|tuned, v| tuned.put(Constant::SilentOctets(v)))),
        entry("silent_least", Take::Rate(|tuned, v| tuned.put(Constant::SilentLeast(v)))),
        entry("limiter_idle", Take::Span(|tuned, v| tuned.put(Constant::LimiterIdle(v)))),
        entry("outer_period", Take::Span(|tuned, v| tuned.put(Constant::OuterPeriod(v)))),
        entry("outer_alpha", Take::Real(|tuned, v| tuned.put(Constant::OuterAlpha(v)))),
        entry("fall_at", Take::RealOr("never", |tuned, v| tuned.put(Constant::FallAt(v)))),
    ];

    fn put(&mut self, constant: Constant) {
        self.set.push(constant);
    }

    /// A preset as it is.
    pub const fn new(preset: EyeQ, backend: Backend) -> Self {
        Self { preset, backend, set: Vec::new() }
    }

    /// The law on a link of `line`, with this round trip.
    pub fn on(&self, line: Rate, round_trip: Span) -> EyeQ {
        let mut eyeq = self.preset.for_link(line, round_trip, self.backend);
        self.set.iter().for_each(|constant| constant.put(&mut eyeq));
        eyeq
    }

    /// The same where departure times limit ([`EyeQ::departing`]). With the paper's α departures
    /// could be one period ahead, which is less than a super-packet of 64 kB lasts: unless it is
    /// set, it is 0.2.
    pub fn departing_on(&self, line: Rate, round_trip: Span) -> EyeQ {
        let eyeq = self.on(line, round_trip);
        let is_set = self.set.iter().any(|constant| matches!(constant, Constant::Alpha(_)));
        let alpha = if is_set { eyeq.alpha } else { eyeq.alpha.min(GENTLE) };
        EyeQ { alpha, ..eyeq }.departing()
    }
}

impl Constant {
    fn put(self, eyeq: &mut EyeQ) {
        match self {
            Self::Period(span) => eyeq.period = span,
            Self::Alpha(alpha) => eyeq.alpha = alpha,
            Self::LeastFactor(part) => eyeq.least_factor = part,
            Self::LeastDivisor(n) => eyeq.least_divisor = n,
            Self::CountsLosses(yes) => eyeq.counts_losses = yes,
            Self::IdleAfter(span) => eyeq.idle_after = span,
            Self::ToldPart(part) => eyeq.told_part = part,
            Self::FeedbackOctets(octets) => eyeq.feedback_octets = octets,
            Self::FeedbackUnit(rate) => eyeq.feedback_unit = rate,
            Self::Silence(span) => eyeq.silence = span,
            Self::SilentOctets(octets) => eyeq.silent_octets = octets,
            Self::SilentLeast(rate) => eyeq.silent_least = rate,
            Self::LimiterIdle(span) => eyeq.limiter_idle = span,
            Self::OuterPeriod(period) => outer(eyeq, |o| Outer { period, ..o }),
            Self::OuterAlpha(alpha) => outer(eyeq, |o| Outer { alpha, ..o }),
            Self::FallAt(fall_at) => outer(eyeq, |o| Outer { fall_at, ..o }),
        }
    }
}

fn outer(eyeq: &mut EyeQ, change: impl FnOnce(Outer) -> Outer) {
    let before = match eyeq.capacity {
        Capacity::Outer(outer) => outer,
        Capacity::Formula => Outer::default(),
    };
    eyeq.capacity = Capacity::Outer(change(before));
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_micros(100);

    #[test]
    fn departures_are_as_far_ahead_as_the_gain_bears() {
        let line = Rate::from_mbps(10_000);
        let within = |set: Vec<Constant>| {
            let tuned = Tuned { set, ..Tuned::new(EyeQ::default(), Backend::Kernel) };
            let eyeq = tuned.departing_on(line, RTT);
            assert_eq!(eyeq.check(line), Ok(()), "{eyeq:?}");
            (eyeq.alpha, eyeq.departs_within.expect("departures have a bound"))
        };
        let us = Span::from_micros;
        assert_eq!(within(vec![]), (0.2, us(1200)), "with them feedback is seven periods late");
        assert_eq!(within(vec![Constant::Alpha(0.5)]), (0.5, us(200)));
        assert_eq!(within(vec![Constant::Alpha(0.4)]), (0.4, us(400)));
        // The outer loop has its own gain, and a period that is five of the inner one's.
        let (_, small) = within(vec![Constant::Alpha(0.001)]);
        assert!(small > us(1200) && small < Span::from_millis(3), "{small}");
        let wild = Tuned {
            set: vec![Constant::Alpha(0.7)],
            ..Tuned::new(EyeQ::default(), Backend::Kernel)
        };
        assert_eq!(wild.on(line, RTT).check(line), Ok(()), "where limits are in force at once");
        let refusal = wild.departing_on(line, RTT).check(line).expect_err("it swings");
        assert_eq!(
            refusal.to_string(),
            "alpha = 0.7 oscillates: feedback is 2 periods of 200 µs late, and only gains below \
             0.618 come to rest then; lower it"
        );
    }

    #[test]
    fn what_is_set_is_meant_as_it_is_and_all_else_follows_the_link() {
        let slow = Rate::from_mbps(1_000);
        let set = vec![Constant::Alpha(0.3), Constant::Period(Span::from_micros(400))];
        let tuned = Tuned { set, ..Tuned::new(EyeQ::default(), Backend::Kernel) };
        let usual = EyeQ::default().for_link(slow, RTT, Backend::Kernel);
        let got = tuned.on(slow, RTT);
        assert_eq!((got.alpha, got.period), (0.3, Span::from_micros(400)));
        assert_eq!(usual.period, Span::from_millis(2));
        assert_eq!((got.idle_after, got.feedback_unit), (usual.idle_after, usual.feedback_unit));
        assert_eq!(Tuned::new(EyeQ::default(), Backend::Kernel).on(slow, RTT), usual);
    }

    #[test]
    fn a_constant_of_the_outer_loop_brings_the_loop() {
        let paper = EyeQ::preset("eyeq-paper").expect("known");
        let set = vec![Constant::OuterAlpha(0.4), Constant::FallAt(None)];
        let tuned = Tuned { set, ..Tuned::new(paper, Backend::Kernel) };
        let Capacity::Outer(outer) = tuned.on(Rate::from_mbps(10_000), RTT).capacity else {
            panic!("no outer loop")
        };
        assert_eq!(
            (outer.alpha, outer.fall_at, outer.period),
            (0.4, None, Outer::default().period)
        );
    }
}
