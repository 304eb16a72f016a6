//! Hold-Increase: after congestion a pair waits, in inverse proportion to its floor (ElasticSwitch
//! §5).

use super::{HoldForm, RateConfig};
use weir_units::{Span, Time};

/// What a pair remembers of its losses.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Hold {
    /// Decayed count of lost segments ([`HoldForm::History`]).
    pub(super) history: f64,
    /// End of the hold ([`HoldForm::Linear`]).
    pub(super) until: Option<Time>,
}

impl Hold {
    /// Once per period, before the period's losses are added.
    pub(super) fn decay(&mut self, config: &RateConfig, weight: f64) {
        self.history *= config.gamma.powf(weight);
    }

    /// A loss. `base` is how long one holds the pair in the linear form, in seconds.
    pub(super) fn congested(&mut self, config: &RateConfig, now: Time, base: f64, lost: u32) {
        self.history += f64::from(lost);
        if config.hold != HoldForm::Linear {
            return;
        }
        // A second loss during a hold adds to it: both wait their time.
        let from = self.until.map_or(now, |until| until.max(now));
        self.until = Some(from + Span::from_secs_f64(base));
    }

    pub(super) fn holds(&self, config: &RateConfig, now: Time) -> bool {
        match config.hold {
            HoldForm::None => false,
            HoldForm::History => self.history >= 1.0,
            HoldForm::Linear => self.until.is_some_and(|t| now < t),
        }
    }
}
