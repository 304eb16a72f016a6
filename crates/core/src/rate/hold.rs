//! Hold-Increase: after congestion a pair waits, in inverse proportion to its floor (ElasticSwitch §5).

use super::{HoldForm, RateConfig};
use weir_units::{Span, Time};

/// What a pair remembers of its losses.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Hold {
    /// Decayed count of lost segments ([`HoldForm::History`]).
    pub(super) history: f64,
    /// End of the hold (the other forms).
    pub(super) until: Option<Time>,
    /// When the present hold began, for the cap.
    pub(super) since: Option<Time>,
}

impl Hold {
    /// Once per period, before the period's losses are added.
    pub(super) fn decay(&mut self, config: &RateConfig, weight: f64) {
        self.history *= config.gamma.powf(weight);
    }

    /// A loss. `base` is how long one holds the pair in the linear form, in seconds.
    pub(super) fn congested(&mut self, config: &RateConfig, now: Time, base: f64, lost: u32) {
        self.history += f64::from(lost);
        self.since = Some(now);
        let span = match config.hold {
            HoldForm::None | HoldForm::History => return,
            HoldForm::Linear => base,
            HoldForm::Logarithmic => base * (1.0 + f64::from(lost).ln()),
        };
        // A second loss during a hold adds to it: both wait their time.
        let from = self.until.map_or(now, |until| until.max(now));
        self.until = Some(from + Span::from_secs_f64(span));
    }

    pub(super) fn holds(&mut self, config: &RateConfig, now: Time) -> bool {
        let held = match config.hold {
            HoldForm::None => false,
            HoldForm::History => self.history >= 1.0,
            HoldForm::Linear | HoldForm::Logarithmic => self.until.is_some_and(|t| now < t),
        };
        if !held {
            return false;
        }
        match (config.hold_cap, self.since) {
            (Some(cap), Some(since)) if now.since(since) >= cap => {
                *self = Self::default();
                false
            }
            _ => true,
        }
    }
}
