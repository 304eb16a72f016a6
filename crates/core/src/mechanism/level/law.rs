//! The constants of Level, and what follows from them on a host.
//!
//! Promises  All thresholds follow from the period, the loop's delay, the noise and the host's line.
//!           A loop that would swing is refused with the bound.
//! Source    docs/algorithms/level.md says what each one means.

use super::value::UNIT;
use crate::mechanism::constants::{Entry, Take};
use crate::mechanism::elasticswitch::ElasticSwitch;
use serde::{Deserialize, Serialize};
use weir_units::{Bytes, Rate, Span};

/// A full frame on layer 2 without FCS.
const FRAME: Bytes = Bytes::new(1514);
/// The loop's delay (period and actuation) in periods above which the law swings. It is unstable from
/// about four on; at three a phase margin is left.
const MOST_DELAY: u64 = 3;

/// The constants of Level.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LevelLaw {
    /// T: receivers measure and decide this often. Longer: floors come back later. Shorter: fewer
    /// samples per window.
    pub period: Span,
    /// L: from a measurement to the first packets at the new level. Too small a value makes the law
    /// act twice on one queue.
    pub loop_delay: Span,
    /// σ: standard deviation of what hosts add to the least delay of a window. Larger: a longer queue
    /// at rest.
    pub noise: Span,
    /// Time of a full frame on the host's line.
    pub frame: Span,
    /// α: gain of the small steps around the queue at rest, in 4096ths.
    pub alpha: u32,
    /// a: what a level grows by in a small step, in 4096ths. It makes levels equal in the end.
    pub add: u32,
    /// How old the base delay may be before a receiver empties the queue to see it.
    pub base_lives: Span,
    /// Guarantee partitioning. Its rate allocation lends nothing.
    pub partition: ElasticSwitch,
}

/// Constants as they are set, before the host is known.
#[derive(Clone, PartialEq, Debug)]
pub struct Draft {
    /// The period, if it is set. Else it follows from the round trip.
    pub period: Option<Span>,
    /// The loop's delay, if it is set.
    pub loop_delay: Option<Span>,
    /// All others.
    pub law: LevelLaw,
}

impl Default for LevelLaw {
    fn default() -> Self {
        Self {
            period: Span::from_millis(1),
            loop_delay: Span::from_millis(1),
            noise: Span::from_micros(40),
            frame: Rate::from_mbps(1000).time_for(FRAME),
            alpha: (UNIT * 3 / 10) as u32,
            add: (UNIT / 100) as u32,
            base_lives: Span::from_secs(1),
            partition: ElasticSwitch::fast_floors(),
        }
    }
}

const fn entry(name: &'static str, take: Take<Draft>) -> Entry<Draft> {
    Entry { name, take }
}

/// In 4096ths.
fn ratio(real: f64) -> u32 {
    (real * UNIT as f64).round() as u32
}

impl Draft {
    /// All constants that can be set by name.
    pub const CONSTANTS: &[Entry<Self>] = &[
        entry("period", Take::Span(|draft, span| draft.period = Some(span))),
        entry("loop_delay", Take::Span(|draft, span| draft.loop_delay = Some(span))),
        entry("noise", Take::Span(|draft, span| draft.law.noise = span)),
        entry("gain", Take::Real(|draft, gain| draft.law.alpha = ratio(gain))),
        entry("add", Take::Real(|draft, add| draft.law.add = ratio(add))),
        entry("base_lives", Take::Span(|draft, span| draft.law.base_lives = span)),
        entry("partition_period", Take::Span(|d, span| d.law.partition.partition_period = span)),
        entry("default_floor", Take::Rate(|d, rate| d.law.partition.default_floor = rate)),
    ];

    /// The default constants.
    pub fn new() -> Self {
        Self { period: None, loop_delay: None, law: LevelLaw::default() }
    }

    /// The same on links `factor` times as fast.
    pub fn scaled(mut self, factor: f64) -> Self {
        self.law.partition = self.law.partition.scaled(factor);
        self
    }

    /// The law on a host with this line, whose farthest peer is so far away. The period is a
    /// millisecond, or as long as the loop if that is longer.
    ///
    /// # Errors
    /// The loop would swing, or a constant cannot work, with what could.
    pub fn on(&self, line: Rate, round_trip: Span) -> Result<LevelLaw, String> {
        let least = LevelLaw::default();
        // A message is half a round trip late, and what it frees or costs shows half of one later.
        let loop_delay = self.loop_delay.unwrap_or(least.loop_delay.max(round_trip));
        let period = self.period.unwrap_or(least.period.max(loop_delay));
        let law = LevelLaw { period, loop_delay, frame: line.time_for(FRAME), ..self.law.clone() };
        law.check()?;
        Ok(law)
    }
}

impl Default for Draft {
    fn default() -> Self {
        Self::new()
    }
}

impl LevelLaw {
    /// Whether the constants can work together; says which cannot, and what could.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self) -> Result<(), String> {
        let us = |span: Span| span.as_nanos() / 1000;
        if !(200..=20_000).contains(&us(self.period)) {
            return Err(format!(
                "set.period is {} µs; it should lie between 200 µs and 20 ms",
                us(self.period)
            ));
        }
        if self.loop_delay + self.period > self.period * MOST_DELAY {
            return Err(format!(
                "set.loop_delay is {} µs, which with a period of {} µs makes the loop swing; it may be {} µs, or \
                 the period at least {} µs",
                us(self.loop_delay),
                us(self.period),
                us(self.period * (MOST_DELAY - 1)),
                us(self.loop_delay).div_ceil(MOST_DELAY - 1),
            ));
        }
        if !(1..=UNIT as u32 / 2).contains(&self.alpha) {
            return Err("set.gain should lie above 0 and at most at 0.5".into());
        }
        if self.add > UNIT as u32 / 10 {
            return Err("set.add should be at most 0.1".into());
        }
        if self.base_lives < self.period * 50 {
            return Err("set.base_lives should be at least 50 periods".into());
        }
        self.partition.check().map_err(|error| format!("set.{error}"))
    }

    /// ε: a queue below this is none.
    pub fn least_queue(&self) -> Span {
        (self.frame * 2).max(self.noise * 2)
    }

    /// q*: the queue at rest.
    pub fn queue_at_rest(&self) -> Span {
        (self.frame * 10).max(self.noise * 5)
    }

    /// θ: a stretch that differs from 1 by more is no noise. In 4096ths.
    pub fn clear(&self) -> u64 {
        let noise = self.noise.as_nanos() * 3 * UNIT / self.period.as_nanos().max(1);
        noise.max(UNIT * 15 / 100)
    }

    /// Without anything sent for so long a pair, or a pair of hosts, is asleep.
    pub fn asleep_after(&self) -> Span {
        self.period * 4
    }

    /// At most one packet of a pair of hosts in this time carries its departure time: eight in a window
    /// are enough for one that no host delayed.
    pub fn timed_every(&self) -> Span {
        Span::from_nanos(self.period.as_nanos() / 8)
    }

    /// A receiver repeats itself this often.
    pub fn told_every(&self) -> Span {
        self.period * 4
    }

    /// What a receiver said holds for so long: two of its messages in a row may be lost.
    pub fn lease(&self) -> Span {
        self.period * 12
    }

    /// The weight of a pair: its floor, and of one with next to none a thousandth of the line.
    pub fn weight(&self, floor: Rate, line: Rate) -> Rate {
        floor.max(line.split(1000))
    }
}
