//! The lab as a world: from what `weir-lab` records to what the judge reads.

use crate::constants::Constants;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use weir_lab::{Error, Frame, Options, Phase, Record, WorkRecord};
use weir_model::scenario::{Mechanism, Scenario};
use weir_study::judge::{self, Observed, ObservedFlow, Work};
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
            Ok(record) => Ok(observed(record)),
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

fn observed(record: Record) -> Observed {
    let connection = |totals: &Vec<u64>| match totals.as_slice() {
        [first, .., last] => last.saturating_sub(*first),
        _ => 0,
    };
    Observed {
        world: "lab",
        sample: record.sample,
        ends: record.ends,
        flows: record
            .flows
            .into_iter()
            .map(|flow| ObservedFlow {
                connections: flow.connections.iter().map(connection).collect(),
                octets: flow.octets,
                work: flow.work.map(work),
                windows: flow.windows,
            })
            .collect(),
        links: record.links,
        idle: record.idle,
        stolen: record.stolen,
        agents_cpu: record.agents_cpu,
        agent_cpu: record.agent_cpu,
        agent_memory_before: record.agent_memory_before,
        agent_memory: record.agent_memory,
        agent_pairs: record.agent_pairs,
        user_cpu: record.user_cpu,
        losses_reported: record.losses_reported,
        overtaken: record.overtaken,
        wall: record.wall,
        attacks: record.attacks,
        control: record.control,
        failure: record.failure,
        notes: record.notes,
        ..Observed::default()
    }
}

fn work(record: WorkRecord) -> Work {
    let WorkRecord { due, done, last, times } = record;
    Work { due, done, last, times }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::FlowRecord;

    #[test]
    fn a_connection_is_judged_on_what_it_got_after_the_warmup() {
        let connections = vec![vec![100, 350], vec![7, 7]];
        let flows = vec![FlowRecord { octets: vec![450], connections, ..FlowRecord::default() }];
        let seen = observed(Record { flows, ..Record::default() });
        assert_eq!(seen.flows[0].connections, [250, 0]);
    }
}
