//! Hold-Increase: after congestion a pair waits, in inverse proportion to its floor (ElasticSwitch
//! §5).

use super::{HoldForm, RateConfig};
use weir_units::{Span, Time};

/// What a pair remembers of its losses.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Hold {
    /// Decayed count of lost segments ([`HoldForm::History`]).
    pub(super) history: f64,
    /// End of the hold, of which each loss has its part ([`HoldForm::Linear`]).
    until: Option<Time>,
    /// Before that it does not end, whatever was lost before.
    least: Option<Time>,
}

impl Hold {
    /// Once per period, before the period's losses are added.
    pub(super) fn decay(&mut self, config: &RateConfig, weight: f64) {
        self.history *= config.gamma.powf(weight);
    }

    /// A loss. `base` is by how much one holds the pair longer in the linear form, and `least` for
    /// how long in any case, in seconds.
    pub(super) fn congested(
        &mut self,
        config: &RateConfig,
        now: Time,
        (base, least): (f64, f64),
        lost: u32,
    ) {
        self.history += f64::from(lost);
        if config.hold != HoldForm::Linear {
            return;
        }
        // A second loss during a hold adds to it: both wait their time.
        let from = self.until.map_or(now, |until| until.max(now));
        self.until = Some(from + Span::from_secs_f64(base));
        self.least = Some(now + Span::from_secs_f64(least));
    }

    pub(super) fn holds(&self, config: &RateConfig, now: Time) -> bool {
        match config.hold {
            HoldForm::None => false,
            HoldForm::History => self.history >= 1.0,
            HoldForm::Linear => self.end().is_some_and(|t| now < t),
        }
    }

    /// When it ends, if there was a loss ([`HoldForm::Linear`]).
    pub(super) fn end(&self) -> Option<Time> {
        self.until.max(self.least)
    }
}
