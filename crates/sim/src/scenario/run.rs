//! A scenario that is being played and can be inspected in between.

use super::refuse::translation;
use super::{Failure, Part, Seen, Setup, bind, build, check, faults, guard};
use crate::look::Look;
use crate::tcp::TcpConfig;
use crate::world::Stage;
use crate::{Options, Sim};
use weir_model::scenario::{Mechanism, Scenario};
use weir_units::{Span, Time};

/// A scenario that is being played.
pub struct Run {
    pub(super) plan: build::Plan,
    pub(super) sim: Sim,
}

impl Run {
    /// `scenario` before its first event.
    ///
    /// # Errors
    ///
    /// The simulator lacks something that the file asks for, or cannot play a number of it.
    pub fn new(scenario: &Scenario, mechanism: &Mechanism, setup: &Setup) -> Result<Self, Failure> {
        check(scenario)?;
        let translation = translation(scenario, mechanism)?;
        let mut plan = build::plan(scenario, mechanism, setup.seed)?;
        let stage = Stage {
            guard: guard::guard(scenario, mechanism, &plan, setup)?,
            faults: faults::faults(scenario, mechanism),
            exchanges: std::mem::take(&mut plan.exchanges),
            guests: std::mem::take(&mut plan.guests),
            translation,
            budgets: build::budgets(scenario)?,
            binding: bind::binding(scenario, mechanism, setup.seed)?,
            established: true,
        };
        // Usual guests: no ECN unless the congestion control needs it, timestamps, RACK-TLP, and
        // 250 ticks a second.
        let tick = Span::from_millis(4);
        let (ecn, timestamps) = (false, true);
        let tcp = TcpConfig { ecn, timestamps, tick, ..TcpConfig::default() };
        let options = Options { tcp, seed: setup.seed };
        let sim = Sim::staged(&plan.network, &options, stage);
        Ok(Self { plan, sim })
    }

    /// Plays all that happens until `until`, that instant included.
    pub fn play_until(&mut self, until: Span) {
        self.sim.run_until(Time::ZERO + until);
    }

    /// Global view at this moment.
    pub fn look(&self) -> Look {
        self.sim.look()
    }

    /// Application octets that have arrived so far, per traffic entry of the scenario.
    pub fn octets(&self) -> Vec<u64> {
        let seen = Seen::of(&self.sim);
        let sum = |part: &Part| seen.octets(part).iter().sum();
        self.plan.entries.iter().map(sum).collect()
    }

    /// Links of each traffic entry's connections, one list per connection and path; none for
    /// traffic that comes and goes.
    pub fn ways(&self) -> Vec<Vec<Vec<u32>>> {
        let of = |part: &Part| match part {
            Part::Flows(range) => {
                range.clone().flat_map(|f| self.plan.network.forward(f)).collect()
            }
            Part::There(_) | Part::Back(_) => Vec::new(),
        };
        self.plan.entries.iter().map(of).collect()
    }

    /// What happened to the binding of tenants to queues so far, and when.
    pub fn binding_events(&self) -> &[(Time, weir_core::binding::control::Event)] {
        self.sim.binding_events()
    }

    /// Links crossed by packets so far.
    pub fn packet_hops(&self) -> u64 {
        self.sim.packet_hops()
    }

    /// Digest of the results so far: see [`crate::Outcome::digest`].
    pub fn digest(&self) -> u64 {
        self.sim.outcome().digest()
    }
}
