//! What a pair could use, guessed from what it used.
//!
//! Problem   Nobody tells the demand of a pair; its throughput is cut by the guarantee we gave it.
//! Approach  Start small. Used up: double, up to the fair share, and then it counts as without limit.
//!           Not used up: what was used, plus a margin. No octets: a trickle, and after a while over.
//! Promises  A steady demand below the fair share rests at 1.1 of itself. The estimate of an active
//!           pair is never below the trickle.
//! Not here  The split: see `maxmin`.
//! Source    ElasticSwitch §4, "GP in a dynamic context".

use super::{Demand, PartitionConfig};
use weir_units::{Rate, Span, Time};

/// How an estimate came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Not a full period old: the small start, whatever was measured.
    New,
    /// Used less than it could.
    Bounded,
    /// Used all, but is not yet at the fair share.
    Growing,
    /// Used its full fair share.
    Unbounded,
}

/// The estimate of one pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    want: Want,
    rate: Rate,
    active_at: Time,
}

/// The guarantee that a measurement is held against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    /// The smallest guarantee that was in force since the last step.
    pub(super) guarantee: Rate,
    /// The guarantee is 1.1 × an older measurement, at one of the two ends.
    pub(super) is_estimate: bool,
    /// This end's part.
    pub(super) share: Rate,
    /// The fair share of pairs without limit at this end.
    pub(super) fair: Rate,
}

/// The two small values of a hose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Small {
    pub(super) start: Rate,
    pub(super) trickle: Rate,
}

impl Small {
    pub(super) fn of(config: &PartitionConfig, hose: Rate) -> Self {
        Self { start: config.small_start_of(hose), trickle: config.trickle_of(hose) }
    }
}

impl Estimate {
    /// A new pair.
    pub(super) const fn new(now: Time, small: Small) -> Self {
        Self { want: Want::New, rate: small.start, active_at: now }
    }

    /// A pair that had `rate` in an earlier life of this host.
    pub(super) const fn adopted(now: Time, rate: Rate) -> Self {
        Self { want: Want::Growing, rate, active_at: now }
    }

    /// What the pair asks of the split.
    pub(super) const fn demand(&self) -> Demand {
        match self.want {
            Want::Unbounded => Demand::Unbounded,
            Want::New | Want::Bounded | Want::Growing => Demand::Bounded(self.rate),
        }
    }

    /// How it came about, and what it is.
    pub(super) const fn view(&self) -> (Want, Rate) {
        (self.want, self.rate)
    }

    /// Whether the pair is less than one period old.
    pub(super) fn is_new(&self) -> bool {
        self.want == Want::New
    }

    /// Whether this end thinks that the pair could not use more.
    pub(super) fn is_bounded(&self) -> bool {
        self.want == Want::Bounded
    }

    /// How long the pair had no octets.
    pub(super) const fn idle_for(&self, now: Time) -> Span {
        now.since(self.active_at)
    }

    /// The periodic step.
    pub(super) fn step(
        &mut self,
        now: Time,
        measured: Rate,
        epoch: Epoch,
        small: Small,
        config: &PartitionConfig,
    ) {
        if !measured.is_zero() {
            self.active_at = now;
        }
        let margin = if epoch.is_estimate { config.margin_steady } else { config.margin_bounded };
        if !measured.is_zero() && measured.as_f64() >= margin * epoch.guarantee.as_f64() {
            self.rate = epoch.share.scale(config.growth).max(small.start);
            self.want = if self.rate >= epoch.fair { Want::Unbounded } else { Want::Growing };
        } else if self.want == Want::New {
            // Measured over a part of a period only: too little proves nothing.
            self.want = Want::Growing;
        } else {
            self.rate = measured.scale(config.margin_estimate).max(small.trickle);
            self.want = Want::Bounded;
        }
    }
}
