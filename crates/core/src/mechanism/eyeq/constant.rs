//! Constants that a user set, and the law that they give on a link.
//!
//! Problem   Presets are for links of 10 Gb/s and follow the link ([`EyeQ::for_link`]); a constant
//!           that a user sets is meant as it is written, on whatever link.
//! Approach  What was set is kept beside the preset, and put in its place when the link is known.
//! Not here  How they are written: the parser of the text. Whether they can work together:
//!           [`EyeQ::check`].

use super::config::{Backend, Capacity, EyeQ, GENTLE, Outer};
use crate::mechanism::constants::{Entry, Take, Value, Word, Written};
use weir_units::{Rate, Span};

/// A preset and what differs from it, before they know their link.
#[derive(Clone, PartialEq, Debug)]
pub struct Tuned {
    /// For links of 10 Gb/s.
    pub preset: EyeQ,
    /// What sets the limiters.
    pub backend: Backend,
    /// Names of [`Tuned::CONSTANTS`] and values, in the order in which they take effect.
    pub set: Vec<(&'static str, Value)>,
}

const BACKEND: &[Word<Tuned>] = &[
    ("kernel", |tuned| tuned.backend = Backend::Kernel),
    ("agent", |tuned| tuned.backend = Backend::Agent),
];
const COUNTS_LOSSES: &[Word<Tuned>] = &[
    ("yes", |tuned| tuned.preset.counts_losses = true),
    ("no", |tuned| tuned.preset.counts_losses = false),
];

const fn entry(name: &'static str, take: Take<Tuned>) -> Entry<Tuned> {
    Entry { name, take }
}

impl Tuned {
    /// All constants that can be set by name. docs/algorithms/eyeq.md says what each one means.
    pub const CONSTANTS: &[Entry<Self>] = &[
        entry("backend", Take::Word(BACKEND)),
        entry("period", Take::Span(|tuned, v| tuned.preset.period = v)),
        entry("alpha", Take::Real(|tuned, v| tuned.preset.alpha = v)),
        entry("least_factor", Take::Real(|tuned, v| tuned.preset.least_factor = v)),
        entry("least_divisor", Take::Real(|tuned, v| tuned.preset.least_divisor = v as u32)),
        entry("counts_losses", Take::Word(COUNTS_LOSSES)),
        entry("idle_after", Take::Span(|tuned, v| tuned.preset.idle_after = v)),
        entry("told_part", Take::Real(|tuned, v| tuned.preset.told_part = v)),
        entry("feedback_octets", Take::Octets(|tuned, v| tuned.preset.feedback_octets = v)),
        entry("feedback_unit", Take::Rate(|tuned, v| tuned.preset.feedback_unit = v)),
        entry("silence", Take::Span(|tuned, v| tuned.preset.silence = v)),
        entry("silent_octets", Take::Octets(|tuned, v| tuned.preset.silent_octets = v)),
        entry("silent_least", Take::Rate(|tuned, v| tuned.preset.silent_least = v)),
        entry("limiter_idle", Take::Span(|tuned, v| tuned.preset.limiter_idle = v)),
        // Any of these three brings the outer loop in the place of the printed formula.
        entry("outer_period", Take::Span(|tuned, v| tuned.outer().period = v)),
        entry("outer_alpha", Take::Real(|tuned, v| tuned.outer().alpha = v)),
        entry("fall_at", Take::RealOr("never", |tuned, v| tuned.outer().fall_at = v)),
    ];

    fn outer(&mut self) -> &mut Outer {
        if self.preset.capacity == Capacity::Formula {
            self.preset.capacity = Capacity::Outer(Outer::default());
        }
        match &mut self.preset.capacity {
            Capacity::Outer(outer) => outer,
            Capacity::Formula => unreachable!("it was just replaced"),
        }
    }

    /// Sets one constant by its name.
    ///
    /// # Errors
    /// There is no such constant, or the value is none of its kind.
    pub fn set(&mut self, name: &str, written: &dyn Written) -> Result<(), String> {
        let entry = Entry::find(name, Self::CONSTANTS)?;
        self.set.push((entry.name, entry.read(written)?));
        Ok(())
    }

    /// The word that a constant was set to, if it was.
    fn word(&self, name: &str) -> Option<&'static str> {
        self.set.iter().rev().find(|(set, _)| *set == name).and_then(|(_, value)| match value {
            Value::Word(word) => Some(*word),
            _ => None,
        })
    }

    /// A preset as it is.
    pub const fn new(preset: EyeQ, backend: Backend) -> Self {
        Self { preset, backend, set: Vec::new() }
    }

    /// The law on a link of `line`, with this round trip.
    pub fn on(&self, line: Rate, round_trip: Span) -> EyeQ {
        let backend = self.with_all_set(self.preset.clone()).backend;
        self.with_all_set(self.preset.for_link(line, round_trip, backend)).preset
    }

    fn with_all_set(&self, preset: EyeQ) -> Self {
        let mut tuned = Self { preset, ..self.clone() };
        for (name, value) in &self.set {
            let entry = Entry::find(name, Self::CONSTANTS).expect("it was found when it was set");
            entry.put(&mut tuned, *value).expect("every law of EyeQ has all constants");
        }
        tuned
    }

    /// The same where departure times limit ([`EyeQ::departing`]). With the paper's α departures
    /// could be one period ahead, which is less than a super-packet of 64 kB lasts: unless it is
    /// set, it is 0.2.
    pub fn departing_on(&self, line: Rate, round_trip: Span) -> EyeQ {
        let eyeq = self.on(line, round_trip);
        let is_set = self.set.iter().any(|(name, _)| *name == "alpha");
        let alpha = if is_set { eyeq.alpha } else { eyeq.alpha.min(GENTLE) };
        EyeQ { alpha, ..eyeq }.departing()
    }

    /// The law of an agent's host, whose kernel meters, and whose limits are in force at once
    /// (`is_kernel`) or when the agent has set them.
    ///
    /// # Errors
    /// A constant that only other worlds have, or a loop that would not come to rest here. Begins
    /// with the constant where one is to blame.
    pub fn on_host(&self, line: Rate, round_trip: Span, is_kernel: bool) -> Result<EyeQ, String> {
        let (backend, other, what) = if is_kernel {
            let what = "departure times go by limits without the agent; leave it out, or write \
                        shaper = \"htb\"";
            (Backend::Kernel, "agent", what)
        } else {
            let what =
                "the agent sets HTB's classes; leave it out, or write shaper = \"departure-time\"";
            (Backend::Agent, "kernel", what)
        };
        if self.word("backend") == Some(other) {
            return Err(format!("set.backend: {what}"));
        }
        if self.word("counts_losses") == Some("yes") {
            return Err(
                "set.counts_losses: the kernel's meters do not see losses; leave it out".into()
            );
        }
        let tuned = Self { backend, ..self.clone() };
        let eyeq = if is_kernel {
            tuned.departing_on(line, round_trip)
        } else {
            tuned.on(line, round_trip)
        };
        eyeq.check(line).map_err(|refusal| format!("set: {refusal}"))?;
        Ok(eyeq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_micros(100);

    #[test]
    fn departures_are_as_far_ahead_as_the_gain_bears() {
        let line = Rate::from_mbps(10_000);
        let within = |set: Vec<(&'static str, Value)>| {
            let tuned = Tuned { set, ..Tuned::new(EyeQ::default(), Backend::Kernel) };
            let eyeq = tuned.departing_on(line, RTT);
            assert_eq!(eyeq.check(line), Ok(()), "{eyeq:?}");
            (eyeq.alpha, eyeq.departs_within.expect("departures have a bound"))
        };
        let us = Span::from_micros;
        assert_eq!(within(vec![]), (0.2, us(1200)), "with them feedback is seven periods late");
        assert_eq!(within(vec![("alpha", Value::Real(0.5))]), (0.5, us(200)));
        assert_eq!(within(vec![("alpha", Value::Real(0.4))]), (0.4, us(400)));
        // The outer loop has its own gain, and a period that is five of the inner one's.
        let (_, small) = within(vec![("alpha", Value::Real(0.001))]);
        assert!(small > us(1200) && small < Span::from_millis(3), "{small}");
        let wild = Tuned {
            set: vec![("alpha", Value::Real(0.7))],
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
        let set =
            vec![("alpha", Value::Real(0.3)), ("period", Value::Span(Span::from_micros(400)))];
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
        let set = vec![("outer_alpha", Value::Real(0.4)), ("fall_at", Value::Word("never"))];
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
