//! Decides how far a pair may exceed its floor.
//!
//! Problem   A floor that is not used, and capacity that is not reserved, should go to the pairs
//!           that can use it. But a host sees neither the link nor its rivals, only its own losses.
//! Approach  A weighted, TCP-like law per pair: cut on loss, hold in inverse proportion to the
//!           floor (Hold-Increase), return to the rate of the last loss, then probe beyond it, the
//!           slower the further above the floor (Rate-Caution). Applied rate = max(floor, this
//!           rate). Beyond the paper, and off by default: a loss soon after a hold takes more, and
//!           a pair without losses for seconds probes ever faster.
//! Promises  The rate lies between the floor and the limit, whatever the order of the inputs; one
//!           cut per period; no growth while held; hold time in inverse proportion to the floor.
//! Not here  The floor: see `partition`. Losses and marks: the data plane detects them.
//! Source    ElasticSwitch §5 and §7 (constants). Departs: see [`RateConfig`], field by field.

mod config;
mod hold;
mod view;

pub use config::{DeltaTFrom, DeltaTUnit, HoldForm, RateConfig, Signal};
pub use view::RateView;

use crate::classes::FRAME;
use hold::Hold;
use std::fmt;
use weir_units::{Bytes, Rate, Span, Time};

/// State of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Phase {
    /// No congestion was ever seen: probing from the floor.
    Starting,
    /// After a loss: the rate stays where the cut left it (Hold-Increase).
    Holding,
    /// Below the rate of the last loss: returning to it (the concave part of Seawall's law).
    Regaining,
    /// Exploring, above that rate or where the time to return to it is over (the convex part).
    Probing,
    /// The receiver is silent: what was borrowed is given back.
    Decaying,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Starting, Self::Holding, Self::Regaining, Self::Probing, Self::Decaying];

    /// What it means for the pair, for people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Starting => "no congestion was seen yet, it grows from its floor",
            Self::Holding => "after a loss, it stays where the cut left it",
            Self::Regaining => "it returns to the rate at which it lost",
            Self::Probing => "it looks for more than it had when it lost",
            Self::Decaying => "its receiver is silent, it gives back what it borrowed",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Holding => "holding",
            Self::Regaining => "regaining",
            Self::Probing => "probing",
            Self::Decaying => "decaying",
        })
    }
}

/// One pair's rate. Fed once per period.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct PairRate {
    /// bit/s; never below the floor it was last stepped with.
    rate: f64,
    /// The rate at which congestion was last seen, bit/s.
    goal: f64,
    /// n: convex steps since the last congestion, up to its bound.
    steps: u32,
    congested_at: Option<Time>,
    held_until: Option<Time>,
    /// Time since which the pair may grow without having seen congestion.
    quiet_since: Option<Time>,
    hold: Hold,
    phase: Phase,
    /// Segments lost at the last congestion.
    congestion: u32,
    cuts: u64,
    /// Octets sent since the rate last grew.
    sent: Bytes,
    /// The most that the pair used in a period lately, bit/s: halves in
    /// [`RateConfig::used_half_life`].
    used: f64,
    /// What a loss costs on this path, if it is long.
    long: Option<LongPath>,
}

/// Feedback of one period for a pair.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Feedback {
    /// Weight of the receiver's reports ([`Signal::weigh`]): lost segments, or reports of marks.
    pub lost: u32,
    /// Part of it that was reported so soon after the last cut that it precedes the cut.
    pub late: u32,
    /// Everything but the late part is marks: nothing was lost.
    pub only_marks: bool,
    /// Used part of the rate, if the law needs it: bit/s on the wire.
    pub used: Option<Rate>,
    /// The path's round trip, if it is known.
    pub round_trip: Option<Span>,
    /// A pair of the same two hosts has lost. Their packets take the same way.
    pub path_lost: bool,
}

impl PairRate {
    /// A pair that starts at its floor.
    pub fn new(floor: Rate) -> Self {
        Self {
            rate: floor.as_f64(),
            goal: 0.0,
            steps: 0,
            congested_at: None,
            held_until: None,
            quiet_since: None,
            hold: Hold::default(),
            phase: Phase::Starting,
            congestion: 0,
            cuts: 0,
            sent: Bytes::new(0),
            used: 0.0,
            long: None,
        }
    }

    /// One period of the law: R = max(B, R_W_TCP(B, F)) (ElasticSwitch §5).
    ///
    /// `floor` is B, `limit` the most that can make sense (the line rate).
    pub fn step(
        &mut self,
        config: &RateConfig,
        now: Time,
        floor: Rate,
        limit: Rate,
        feedback: Feedback,
    ) -> Rate {
        self.step_weighted(config, now, (floor, floor), limit, feedback)
    }

    /// The same where the weight is not the floor (Seawall): `standing` is the floor, and the rate
    /// that stands for the weight.
    pub fn step_weighted(
        &mut self,
        config: &RateConfig,
        now: Time,
        standing: (Rate, Rate),
        limit: Rate,
        feedback: Feedback,
    ) -> Rate {
        // B = 0 would mean no weight and no growth: a pair without any floor still gets out of
        // zero.
        let least = config.least_floor.as_f64();
        let floor_bps = standing.0.as_f64().max(least);
        let weight = standing.1.as_f64().max(least) / config.reference.as_f64();
        self.rate = self.rate.max(floor_bps);

        self.long = LongPath::of(config, feedback.round_trip, limit);
        let limit = self.limit(config, limit, feedback.used);
        let (hold, least) = self.hold_time(config, weight);
        self.hold.decay(config, weight);
        self.quiet_since.get_or_insert(now);
        self.sent +=
            feedback.used.map_or(config.growth_needs_sent, |used| used.bytes_in(config.period));
        if feedback.lost > feedback.late {
            let alpha = match config.alpha_again {
                _ if feedback.only_marks => config.alpha_marked,
                Some(again) if self.grew_hardly(config, now, hold) => again,
                _ => config.alpha,
            };
            self.cut(alpha, now);
            self.congestion = feedback.lost;
            self.hold.congested(config, now, (hold, least), feedback.lost);
        } else if feedback.late > 0 {
            self.hold.congested(config, now, (hold, least), feedback.late);
            self.quiet_since = Some(now);
        } else if self.hold.holds(config, now) {
            self.enter(Phase::Holding);
            self.held_until = Some(now);
            self.quiet_since = Some(now);
            if let Some(long) = self.long {
                // What is held for seconds must not be what another connection has to regain. Not at
                // once: floors come and go with demands, and what waits was let in at this rate.
                let part = (config.period.as_secs_f64() / long.regain).min(1.0);
                self.rate -= (self.rate - floor_bps) * part;
            }
        } else if feedback.path_lost && self.long.is_some() && config.hold == HoldForm::Linear {
            self.cut(config.alpha, now);
            self.hold.congested(config, now, (hold, least), 0);
        } else if self.sent >= config.growth_needs_sent {
            self.sent = Bytes::new(0);
            self.grow(config, now, weight, floor_bps);
        }
        self.rate = self.rate.clamp(floor_bps, limit.as_f64().max(floor_bps));
        self.rate()
    }

    /// Upper bound of the rate: the line's rate, and a multiple of the pair's recent use. A rate
    /// that is not used was never tested, and the pair may burst at it.
    fn limit(&mut self, config: &RateConfig, line: Rate, used: Option<Rate>) -> Rate {
        let (Some(times), Some(used)) = (config.keeps_used, used) else { return line };
        let halves = config.period.as_secs_f64() / config.used_half_life.as_secs_f64();
        self.used = (self.used * (-halves).exp2()).max(used.as_f64());
        line.min(Rate::from_bps_f64(times * self.used))
    }

    /// By how much a loss holds a pair of this weight longer (linear form), and how long it does in
    /// any case. Seconds.
    fn hold_time(&self, config: &RateConfig, weight: f64) -> (f64, f64) {
        let time = config.hold_base.as_secs_f64() / weight;
        self.long.map_or((time, 0.0), |long| (time * long.stretch, long.regain * long.part))
    }

    /// Gives back so much of what is borrowed that a `part` of it stays.
    pub fn keep_part(&mut self, floor: Rate, part: f64) {
        let floor = floor.as_f64();
        self.rate = floor + (self.rate - floor).max(0.0) * part;
    }

    /// All changes of phase pass here; the machine tells of them ([`crate::host::Event`]).
    fn enter(&mut self, to: Phase) {
        self.phase = to;
    }

    /// Multiplicative decrease.
    fn cut(&mut self, alpha: f64, now: Time) {
        self.goal = self.rate;
        self.rate *= 1.0 - alpha;
        self.steps = 0;
        self.congested_at = Some(now);
        self.held_until = Some(now);
        self.quiet_since = Some(now);
        self.enter(Phase::Holding);
        self.cuts += 1;
    }

    fn grow(&mut self, config: &RateConfig, now: Time, weight: f64, floor: f64) {
        let caution = self.caution(config, floor);
        // Close to the goal the concave step vanishes and would never arrive.
        let below_goal = self.rate < 0.99 * self.goal;
        match self.delta_t(config, now) {
            Some(dt) if dt < 1.0 && below_goal => {
                // Floors above the reference would pass from the cut to the goal in one period, and
                // lose there again before others have regained what they lost.
                let v =
                    weight.min(1.0) * config.delta * (self.goal - self.rate) * (1.0 - dt).powi(3);
                self.rate = (self.rate + v * caution).min(self.goal);
                self.enter(Phase::Regaining);
            }
            _ => {
                let bound = self.steps_bound(config, now, self.hold_time(config, weight).0);
                self.steps = self.steps.saturating_add(1).min(bound);
                let v = f64::from(self.steps) * weight * config.a.as_f64();
                self.rate += v * caution;
                let is_first = self.congested_at.is_none();
                self.enter(if is_first { Phase::Starting } else { Phase::Probing });
            }
        }
    }

    /// Rate-Caution: the further above the floor, the slower (ElasticSwitch §5).
    fn caution(&self, config: &RateConfig, floor: f64) -> f64 {
        (1.0 - config.caution * (self.rate - floor) / floor).clamp(config.caution_min, 1.0)
    }

    /// Seconds that the pair has been free to grow without seeing congestion.
    fn quiet(&self, now: Time) -> Option<f64> {
        self.quiet_since.map(|since| now.since(since).as_secs_f64())
    }

    /// Whether this is another congestion than the last one, and the hold that followed that ended
    /// less than a hold time ago, or has not ended.
    fn grew_hardly(&self, config: &RateConfig, now: Time, hold: f64) -> bool {
        let is_another = |cut: Time| now.since(cut) >= config.again_after;
        let soon = |end: Time| now.since(end).as_secs_f64() < hold;
        self.congested_at.is_some_and(is_another) && self.held_until.is_some_and(soon)
    }

    /// The most convex steps at this moment.
    fn steps_bound(&self, config: &RateConfig, now: Time, hold: f64) -> u32 {
        let (Some(patience), Some(quiet)) = (config.steps_patience, self.quiet(now)) else {
            return config.steps_max;
        };
        let beyond = quiet - hold / 2.0;
        let doublings = (beyond / patience.as_secs_f64() - 1.0).max(0.0);
        (f64::from(config.steps_max) * doublings.exp2()) as u32
    }

    /// Δt of the concave part: scaled time since the last congestion, `None` if there was none.
    fn delta_t(&self, config: &RateConfig, now: Time) -> Option<f64> {
        let from = match config.delta_t_from {
            DeltaTFrom::Congestion => self.congested_at,
            DeltaTFrom::HoldEnd => self.held_until,
        }?;
        let unit = match config.delta_t_unit {
            DeltaTUnit::Period => config.period.as_secs_f64(),
            DeltaTUnit::Second => 1.0,
        };
        Some(now.since(from).as_secs_f64() / unit / config.time_scale)
    }

    /// Gives back part of what is borrowed: halves the distance to the floor.
    pub fn decay(&mut self, floor: Rate) -> Rate {
        let floor = floor.as_f64();
        self.rate = if self.rate > floor { floor + (self.rate - floor) / 2.0 } else { floor };
        self.steps = 0;
        self.quiet_since = None;
        self.enter(Phase::Decaying);
        self.rate()
    }

    /// The rate now.
    pub fn rate(&self) -> Rate {
        Rate::from_bps_f64(self.rate)
    }

    /// Whether the pair's path is long, as of the last step ([`RateConfig::long_path`]).
    pub const fn is_long(&self) -> bool {
        self.long.is_some()
    }

    /// State of the pair.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// The rate at which congestion was last seen, if ever.
    pub fn goal(&self) -> Option<Rate> {
        self.congested_at.map(|_| Rate::from_bps_f64(self.goal))
    }

    /// When congestion was last seen.
    pub const fn congested_at(&self) -> Option<Time> {
        self.congested_at
    }

    /// How often the rate was cut.
    pub const fn cuts(&self) -> u64 {
        self.cuts
    }
}

/// A path that is longer by more than this counts as one that is longer by this: a hold of hours
/// ends.
const MOST_STRETCH: f64 = 100.0;

/// What a loss costs a TCP connection on a long path, and so how long pairs wait after one.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
struct LongPath {
    /// How many times longer a loss holds. A connection regains what one loss took in a time that
    /// grows with the square of the round trip (Reno).
    stretch: f64,
    /// In which one connection that fills the link has its window again, in seconds (CUBIC, RFC
    /// 9438 §4.2). A small pair's losses are a large one's, too.
    regain: f64,
    /// The part of that for which a loss holds any pair: nothing at the bound, all at twice that.
    part: f64,
}

impl LongPath {
    /// Of a path of this round trip, over a host's link of `line`.
    fn of(config: &RateConfig, round_trip: Option<Span>, line: Rate) -> Option<Self> {
        let (long, time) = config.long_path.zip(round_trip)?;
        if !config.is_long(round_trip) {
            return None;
        }
        let stretch = (time.as_secs_f64() / long.as_secs_f64()).min(MOST_STRETCH).powi(2);
        let window = line.bytes_in(time).get() as f64 / FRAME as f64;
        let part = (time.as_secs_f64() / long.as_secs_f64() - 1.0).min(1.0);
        // K = ∛(W·(1 − β) / C) with β = 0.7, C = 0.4.
        Some(Self { stretch, regain: (0.75 * window).cbrt(), part })
    }
}

#[cfg(test)]
mod tests;
