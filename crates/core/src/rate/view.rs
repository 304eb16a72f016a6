//! State of the law for a pair, for people.
//!
//! Problem   "Why is it not faster?" has its answer in five private numbers.
//! Approach  A picture of them, taken with the constants that the next step will use.
//! Not here  Words: see `weir-agent`.

use super::{HoldForm, PairRate, Phase, RateConfig};
use weir_units::{Rate, Span, Time};

/// State of the law for a pair at one moment.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RateView {
    /// State of the pair.
    pub phase: Phase,
    /// The rate that the law allows; applied is the larger of this and the floor.
    pub rate: Rate,
    /// The rate at which congestion was last seen, if ever.
    pub goal: Option<Rate>,
    /// When that was.
    pub congested_at: Option<Time>,
    /// How many segments were lost or marked then.
    pub congestion: u32,
    /// When the hold will be over if nothing more is lost; `None` if the pair is not held.
    pub held_until: Option<Time>,
    /// n: convex steps since the last congestion, as far as its bound.
    pub steps: u32,
    /// w: the floor in units of the fleet's reference rate.
    pub weight: f64,
    /// Rate-Caution's factor on growth, 1 at the floor, falling with what is borrowed.
    pub caution: f64,
    /// How often the rate was cut.
    pub cuts: u64,
}

impl PairRate {
    /// The picture of this pair. `standing` is its floor, and the rate that stands for its weight,
    /// as for [`PairRate::step_weighted`].
    pub fn view(&self, config: &RateConfig, now: Time, standing: (Rate, Rate)) -> RateView {
        let least = config.least_floor.as_f64();
        let floor = standing.0.as_f64().max(least);
        let weight = standing.1.as_f64().max(least) / config.reference.as_f64();
        RateView {
            phase: self.phase,
            rate: self.rate(),
            goal: self.goal(),
            congested_at: self.congested_at,
            congestion: self.congestion,
            held_until: self.hold_end(config, now, weight),
            steps: self.steps,
            weight,
            caution: self.caution(config, floor),
            cuts: self.cuts,
        }
    }

    fn hold_end(&self, config: &RateConfig, now: Time, weight: f64) -> Option<Time> {
        let until = match config.hold {
            HoldForm::None => return None,
            HoldForm::Linear => self.hold.end()?,
            HoldForm::History => {
                // h·γ^(w·n) < 1 after n periods.
                let fading = -weight * config.gamma.ln();
                let periods = self.hold.history.ln() / fading;
                if !periods.is_finite() || periods < 0.0 {
                    return None;
                }
                now + Span::from_secs_f64(periods.floor().min(1e9) * config.period.as_secs_f64())
            }
        };
        (until > now || self.phase == Phase::Holding).then_some(until)
    }
}
