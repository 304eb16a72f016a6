//! The trait of a world that plays scenarios, as an experiment needs it.

use crate::judge::Observed;
use std::sync::atomic::AtomicBool;
use weir_model::record::Failure;
use weir_model::scenario::{Mechanism, Scenario};

/// What a run looks like at one moment, for people who watch.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// What the world does while no traffic is played; empty while it is.
    pub doing: String,
    /// Seconds since traffic started.
    pub at_s: f64,
    /// Goodput of each traffic entry of the scenario, bit/s.
    pub flows_bps: Vec<f64>,
    /// Carried by each directed link (a>b, b>a per link), bit/s.
    pub links_bps: Vec<f64>,
}

/// Why no more runs are played.
#[derive(Debug)]
pub enum Cut {
    /// The user asked to stop.
    Stopped,
    /// The world could not play it.
    Failed(anyhow::Error),
    /// Something failed while the last run was measured: what it measured until then is kept, and
    /// invalid.
    Broke(Failure),
}

/// Plays a scenario once. Leaves nothing behind, however it ends.
pub trait World {
    /// `watch` is called about ten times a second of the run's own time; `stop` ends the run early.
    fn play(
        &mut self,
        scenario: &Scenario,
        mechanism: &Mechanism,
        watch: &mut dyn FnMut(&Moment),
        stop: &AtomicBool,
    ) -> Result<Observed, Cut>;
}
