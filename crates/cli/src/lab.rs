//! The lab as a world: from what `weir-lab` records to what the judge reads.

use crate::constants::Constants;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use weir_lab::{Error, Frame, Options, Phase};
use weir_model::scenario::{Mechanism, Scenario};
use weir_study::judge::{self, Observed};
use weir_study::world::{Cut, Moment, World};

/// Real Linux on this machine.
pub(crate) struct Lab {
    /// This very binary: the lab starts it as `weir agent`.
    agent: PathBuf,
    /// Constants of the mechanism that all agents are told.
    constants: Constants,
    /// Whether HTB sends by bursts.
    htb_by_bursts: bool,
    /// Where agents write journals, and how many runs have been played.
    journal: Option<PathBuf>,
    runs: u32,
}

impl Lab {
    /// # Errors
    /// The path of the running binary cannot be found.
    pub(crate) fn new(constants: Constants) -> anyhow::Result<Self> {
        Ok(Self {
            agent: std::env::current_exe()?,
            constants,
            htb_by_bursts: false,
            journal: None,
            runs: 0,
        })
    }

    /// With HTB that sends by bursts, or not.
    pub(crate) fn by_bursts(self, htb_by_bursts: bool) -> Self {
        Self { htb_by_bursts, ..self }
    }

    /// With journals of all agents in this folder, a folder for each run.
    pub(crate) fn recorded(self, journal: Option<PathBuf>) -> Self {
        Self { journal, ..self }
    }

    fn options(&self, scenario: &Scenario, mechanism: &Mechanism) -> Options {
        let mut options = Options::new(&self.agent);
        options.mechanism_set = self.constants.at_scale_of(scenario);
        options.htb_by_bursts = self.htb_by_bursts;
        let label = mechanism.label.replace([':', '+', '@'], "-");
        let run = |dir: &PathBuf| dir.join(format!("run-{:03}-{label}", self.runs));
        options.journal = self.journal.as_ref().map(run);
        if mechanism.reserves() {
            let index = |vm: weir_units::VmId| vm.0 as usize;
            options.reserve = judge::reservations(scenario)
                .into_iter()
                .map(|(pair, rate)| (index(pair.src), index(pair.dst), rate))
                .collect();
        }
        options
    }
}

impl World for Lab {
    fn play(
        &mut self,
        scenario: &Scenario,
        mechanism: &Mechanism,
        watch: &mut dyn FnMut(&Moment),
        stop: &AtomicBool,
    ) -> Result<Observed, Cut> {
        self.runs += 1;
        let options = self.options(scenario, mechanism);
        let mut show = |frame: &Frame<'_>| watch(&moment(frame));
        match weir_lab::play(scenario, mechanism, &options, &mut show, stop) {
            Ok(observed) => Ok(observed),
            Err(Error::Stopped) => Err(Cut::Stopped),
            Err(error) => Err(Cut::Failed(error.into())),
        }
    }
}

fn moment(frame: &Frame<'_>) -> Moment {
    Moment {
        doing: match frame.phase {
            Phase::Building { done, total } => format!("making {done} of {total} namespaces"),
            Phase::StartingAgents => "starting agents".into(),
            Phase::Running => String::new(),
            Phase::TearingDown => "removing everything".into(),
        },
        at_s: frame.at.as_secs_f64(),
        flows_bps: frame.flows_bps.to_vec(),
        links_bps: frame.links_bps.to_vec(),
    }
}
