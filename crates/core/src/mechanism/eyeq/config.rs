//! The constants of EyeQ. Defaults are the paper's (EyeQ §3, §4, §5), for links of 10 Gb/s.

use super::headroom::Headroom;
use super::law::{ONE, RATE_MOST, RcpInput};
use super::rate_meter::MeterRules;
use super::refusal::Refusal;
use super::stability::{Loop, bound};
use weir_units::{Bytes, Rate, Span};

/// Constants of EyeQ. The default is the preset `eyeq-final`.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct EyeQ {
    /// How often receivers compute rates and senders share their uplink. Paper: 200 µs.
    pub period: Span,
    /// α, the gain of the rate control law. Paper: 0.5.
    pub alpha: f64,
    /// The least that one step multiplies a rate by. The paper keeps R positive and does not say
    /// how.
    pub least_factor: f64,
    /// No advertised rate is below this part of the endpoint's capacity, 1 / n. The authors' code
    /// has 10 Mb/s at 10 Gb/s, which eleven senders to an endpoint of 100 Mb/s overrun.
    pub least_divisor: u32,
    /// The part of the receiving link that is left idle, so that contention shows before queues
    /// grow, and that is not promised either. Paper: 10 %.
    pub headroom: Headroom,
    /// How the link is divided into endpoints' capacities.
    pub capacity: Capacity,
    /// How marks count. Paper: R falls by half the marked fraction.
    pub ecn: Ecn,
    /// What was lost on the way counts as arrived: it was sent, and a full link hides how much more
    /// it was asked for. RCP's y is the load, EyeQ's what is received. Paper: no.
    pub counts_losses: bool,
    /// A VM that received nothing for so long is not active. Paper: silent; the authors' code has
    /// 10 ms.
    pub idle_after: Span,
    /// Where half of C_i or more arrives, R changes only once the senders of this part of it know
    /// the last R. At 10 kB per message a round over a hundred senders of 4.5 Gb/s takes nine
    /// periods, and steps that no sender has heard of make a loop of d = 9. Ours: 7/8. 0: never
    /// wait, the paper.
    pub told_part: f64,
    /// One feedback message for so many octets that an endpoint receives. Paper: 10 kB.
    pub feedback_octets: Bytes,
    /// The unit of the 16 bits in which a rate is told. Paper: silent; the authors' code has
    /// 1 Mb/s.
    pub feedback_unit: Rate,
    /// A limiter whose receiver is silent for so long halves its rate. Paper: 100 ms.
    pub silence: Span,
    /// Octets sent unanswered before a silent receiver's limiter halves. A VM that sends little is
    /// not told often. Ours: 20 kB, twice `feedback_octets`. Paper: no such condition.
    pub silent_octets: Bytes,
    /// A silent receiver's limiter does not fall below this. Paper: 1 Mb/s.
    pub silent_least: Rate,
    /// A limiter that passed nothing for so long is given up. Paper: "every few seconds".
    pub limiter_idle: Span,
    /// Octets of one MTU on layer 2 without FCS.
    pub mtu: Bytes,
    /// Bound of a limiter's queue; beyond, it pushes back. Paper: 128 kB.
    pub queue: Bytes,
    /// Sources that one VM answers, and destinations that it is limited towards, at most.
    pub peers_most: usize,
    /// What traffic without a floor gets: pairs of a VM that has none, and packets of no pair.
    /// Ours; the paper is silent.
    pub default_floor: Rate,
    /// How late feedback takes effect, of the topology and of what sets the limiters.
    pub loop_delay: Loop,
    /// What waits keeps the departure that it was given, and none is further ahead than this.
    /// `None`: a limiter takes up a rate for what waits already, as HTB and the paper's do.
    pub departs_within: Option<Span>,
}

/// How the receiving link is divided into endpoints' capacities C_i.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Capacity {
    /// C_i = B_i·C / Σ B over the active VMs: the printed formula (§3.2). What an active VM does
    /// not use of its part is lost to the others.
    Formula,
    /// C_i = B_i·λ, where one λ for all follows from the whole link's load by the same law, as in
    /// the authors' later code: what a slow VM leaves goes to the others.
    Outer(Outer),
}

/// Constants of the outer loop.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Outer {
    /// How often λ is computed. The authors' code: 1 ms.
    pub period: Span,
    /// Its gain. The authors' code: ½.
    pub alpha: f64,
    /// λ times the smallest floor is not below this part of the link, 1 / n. The authors' code:
    /// 10 Mb/s of 10 Gb/s.
    pub least_divisor: u32,
    /// Once so much of the headroom stays in use, λ falls at once to where the active VMs' parts
    /// fill the link (the printed formula): a full link shows at most 1/0.9 of C however much it is
    /// asked for, and from that alone λ would need a dozen steps to halve. Two periods of a full
    /// link suffice, or one in which a member is new. Ours: 0.6. `None`: the authors' code, which
    /// does not hold newcomers either (see `newcomers`).
    pub fall_at: Option<f64>,
}

/// How marks count (EyeQ §3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Ecn {
    /// R ← R·(1 − β/2), β the marked fraction: the paper.
    Fraction,
    /// y ← y + K·(1 + β)/period where anything was marked: the authors' code, with K = 45 kB.
    Queue(Bytes),
}

/// What sets the limiters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Backend {
    /// An agent sets classes, not more than once a millisecond.
    Agent,
    /// A BPF program sets departure times.
    Kernel,
}

/// The link for which the paper's constants are.
const PAPERS_LINK: Rate = Rate::from_mbps(10_000);
/// Least packets in a period; fewer measure nothing: one more or less is 5 %.
const PACKETS_LEAST: u64 = 20;
/// α where feedback is later than two periods.
pub(super) const GENTLE: f64 = 0.2;
/// Periods that a departure may be ahead at most, however small the gains.
const DEPARTURES_MOST: u64 = 64;

impl Default for Outer {
    fn default() -> Self {
        Self { period: Span::from_millis(1), alpha: 0.5, least_divisor: 1_000, fall_at: Some(0.6) }
    }
}

impl Default for EyeQ {
    fn default() -> Self {
        Self {
            period: Span::from_micros(200),
            alpha: 0.5,
            least_factor: 0.1,
            least_divisor: 10_000,
            headroom: Headroom::default(),
            capacity: Capacity::Outer(Outer::default()),
            ecn: Ecn::Fraction,
            counts_losses: false,
            idle_after: Span::from_millis(10),
            told_part: 0.875,
            feedback_octets: Bytes::new(10_000),
            feedback_unit: Rate::from_mbps(1),
            silence: Span::from_millis(100),
            silent_octets: Bytes::new(20_000),
            silent_least: Rate::from_mbps(1),
            limiter_idle: Span::from_secs(3),
            mtu: Bytes::new(1514),
            queue: Bytes::new(128_000),
            peers_most: 4096,
            default_floor: Rate::from_mbps(1),
            loop_delay: Loop { round_trip: Span::from_micros(100), actuation: Span::ZERO },
            departs_within: None,
        }
    }
}

impl EyeQ {
    /// The named sets of constants.
    pub const PRESETS: &[&str] = &["eyeq-final", "eyeq-paper"];
    /// The same where `eyeq` stands before them.
    pub const SHORT_PRESETS: [&str; 2] = ["final", "paper"];

    /// A named set of constants, for links of 10 Gb/s; see docs/algorithms/eyeq.md.
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "eyeq-final" => Some(Self::default()),
            "eyeq-paper" => {
                let (capacity, told_part) = (Capacity::Formula, 0.0);
                Some(Self { capacity, told_part, ..Self::default() })
            }
            _ => None,
        }
    }

    /// The same for a link of `line`, a round trip, and what sets the limiters.
    ///
    /// The period follows both: it holds as many octets as 200 µs of 10 Gb/s (200 µs of 200 Mb/s
    /// would be three packets), is no shorter than the round trip, and where an agent acts once a
    /// millisecond no shorter than that. All times that count in periods follow it, and α is 0.2
    /// where feedback is then later than two periods.
    pub fn for_link(&self, line: Rate, round_trip: Span, backend: Backend) -> Self {
        let actuation = match backend {
            Backend::Agent => Span::from_millis(1),
            Backend::Kernel => Span::ZERO,
        };
        let loop_delay = Loop { round_trip, actuation };
        let slower = PAPERS_LINK.as_f64() / line.as_f64().max(1.0);
        let by_rate = Span::from_secs_f64(self.period.as_secs_f64() * slower);
        let period = by_rate.max(actuation).max(round_trip).max(Span::from_micros(200));
        let times = period.as_secs_f64() / self.period.as_secs_f64();
        let longer = |span: Span| Span::from_secs_f64(span.as_secs_f64() * times).max(span);
        let capacity = match self.capacity {
            Capacity::Formula => Capacity::Formula,
            Capacity::Outer(o) => Capacity::Outer(Outer { period: longer(o.period), ..o }),
        };
        let unit = |rate: Rate| rate.scale(1.0 / slower).max(Rate::from_bps(1_000));
        Self {
            alpha: if loop_delay.delay(period) <= 2 { self.alpha } else { self.alpha.min(GENTLE) },
            period,
            capacity,
            idle_after: longer(self.idle_after),
            silence: self.silence.max(period * 10),
            feedback_unit: unit(self.feedback_unit),
            silent_least: unit(self.silent_least),
            default_floor: self.default_floor.min(line.split(1000)),
            loop_delay,
            ..self.clone()
        }
    }

    /// The same where what waits keeps its departure: a sender that fills its queue answers to
    /// rates as old as that is long, so departures are no further ahead than the gains bear, in
    /// whole periods, and one at least.
    pub fn departing(&self) -> Self {
        let within = |periods| Self { departs_within: Some(self.period * periods), ..self.clone() };
        let rests = |periods: &u64| within(*periods).check_gains().is_ok();
        within((1..=DEPARTURES_MOST).rev().find(rests).unwrap_or(1))
    }

    /// What endpoints may receive together on a link of `line`: C.
    pub fn capacity_of(&self, line: Rate) -> Rate {
        self.headroom.available(line)
    }

    /// Whether the constants can work together, and be stable, on a link of `line`.
    ///
    /// # Errors
    /// The first that cannot, with what could.
    pub fn check(&self, line: Rate) -> Result<(), Refusal> {
        let within = |name: &'static str, value: f64, from: f64, to: f64| {
            let fits = (from..=to).contains(&value);
            fits.then_some(()).ok_or(Refusal::Range { name, value, from, to })
        };
        within("line in bit/s", line.as_f64(), 1e6, RATE_MOST as f64)?;
        within("period in us", us(self.period), 1.0, 1e6)?;
        within("alpha", self.alpha, 1e-3, 2.0)?;
        within("told_part", self.told_part, 0.0, 1.0)?;
        within("least_factor", self.least_factor, 0.0, 0.9)?;
        within("least_divisor", self.least_divisor.into(), 1.0, 1e6)?;
        let promised = self.capacity_of(line).as_f64() / line.as_f64();
        within("headroom", 1.0 - promised, 0.0, 0.9)?;
        within("feedback_octets", self.feedback_octets.get() as f64, 64.0, 1e9)?;
        // 16 bits have to hold the line.
        let least_unit = line.as_f64() / f64::from(u16::MAX);
        within("feedback_unit in bit/s", self.feedback_unit.as_f64(), least_unit, line.as_f64())?;
        within("silence in us", us(self.silence), us(self.period), 1e9)?;
        within("idle_after in us", us(self.idle_after), us(self.period), 1e9)?;
        within("mtu in octets", self.mtu.get() as f64, 64.0, 65_535.0)?;
        let mtu = self.mtu.get() as f64;
        within("queue in octets", self.queue.get() as f64, mtu, 1e9)?;
        if let Capacity::Outer(outer) = self.capacity {
            within("outer period in us", us(outer.period), us(self.period), 1e6)?;
            within("outer alpha", outer.alpha, 1e-3, 2.0)?;
            within("outer least_divisor", outer.least_divisor.into(), 1.0, 1e6)?;
            within("outer fall_at", outer.fall_at.unwrap_or(0.5), 0.0, 1.0)?;
        }
        self.check_loops(line)
    }

    fn check_loops(&self, line: Rate) -> Result<(), Refusal> {
        let packets = line.bytes_in(self.period).get() / self.mtu.get();
        if packets < PACKETS_LEAST {
            let least = line.time_for(self.mtu * PACKETS_LEAST);
            return Err(Refusal::ShortPeriod { period: self.period, packets, least });
        }
        self.check_gains()
    }

    fn check_gains(&self) -> Result<(), Refusal> {
        let departs_within = self.departs_within.unwrap_or(Span::ZERO);
        let actuation = self.loop_delay.actuation + departs_within;
        let loop_delay = Loop { actuation, ..self.loop_delay };
        let stable = |name, alpha: f64, period: Span, loop_delay: Loop| {
            let delay = loop_delay.delay(period);
            if alpha < bound(delay) {
                return Ok(());
            }
            // Departures are so many periods ahead: a longer one changes nothing.
            let least_period = match self.departs_within {
                None => loop_delay.least_period(alpha),
                Some(_) => None,
            };
            let bound = bound(delay);
            Err(Refusal::Unstable { name, alpha, delay, bound, period, least_period })
        };
        stable("alpha", self.alpha, self.period, loop_delay)?;
        if let Capacity::Outer(outer) = self.capacity {
            // Between λ and the load that shows it lies a period of the inner loop, too.
            let around = Loop { actuation: loop_delay.actuation + self.period, ..loop_delay };
            stable("outer alpha", outer.alpha, outer.period, around)?;
        }
        Ok(())
    }

    /// The constants of the law as one step takes them, for code that makes the step elsewhere.
    pub fn law(&self) -> RcpInput {
        RcpInput {
            alpha: fraction(self.alpha),
            least_factor: fraction(self.least_factor),
            queue_octets: self.queue_octets(),
            ..RcpInput::default()
        }
    }

    /// Whether `told` of all `octets` are enough for the next step.
    pub(super) fn is_enough(&self, told: u64, octets: u64) -> bool {
        told as f64 >= self.told_part * octets as f64
    }

    /// What meters go by.
    pub fn meter_rules(&self) -> MeterRules {
        MeterRules {
            period_ns: self.period.as_nanos().max(1),
            feedback_octets: self.feedback_octets.get(),
            alpha: fraction(self.alpha),
            least_factor: fraction(self.least_factor),
            queue_octets: self.queue_octets(),
            told_part: fraction(self.told_part),
        }
    }

    /// The octets of queue that marks stand for, as the law takes them.
    pub(super) fn queue_octets(&self) -> u32 {
        match self.ecn {
            Ecn::Fraction => 0,
            Ecn::Queue(octets) => u32::try_from(octets.get()).unwrap_or(u32::MAX).max(1),
        }
    }
}

/// A part of one as the law takes it, to the nearest 1/65536.
pub(super) fn fraction(part: f64) -> u32 {
    (part * f64::from(ONE)).round() as u32
}

fn us(span: Span) -> f64 {
    span.as_secs_f64() * 1e6
}
