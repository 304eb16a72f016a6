//! Tells running agents that VMs came or went, as an operator does: new lists, then SIGHUP.

use super::usage::ask;
use super::{Agent, Agents, Life, TAKE, directory_of, write};
use crate::Error;
use nix::sys::signal::Signal;
use std::fs;
use std::path::Path;
use std::time::Instant;
use weir_model::agent::AgentConfig;
use weir_model::scenario::Scenario;
use weir_units::SortedSet;

impl Agents {
    /// All VMs but those that are `away`. VMs keep their numbers.
    pub(crate) fn populate(
        &mut self,
        scenario: &Scenario,
        away: &SortedSet<usize>,
    ) -> Result<(), Error> {
        if self.agents.is_empty() {
            return Ok(());
        }
        let is_away = |name: &str| away.iter().any(|vm| scenario.vms[*vm].name == name);
        let mut directory = directory_of(scenario);
        // A static reservation names all of its VMs, also those that are away.
        let reserves = self.agents.iter().any(|agent| !agent.setup.mechanism.reserve.is_empty());
        directory.vms.retain(|vm| reserves || !is_away(&vm.name));
        let text = serde_json::to_string_pretty(&directory).expect("a directory is plain data");
        replace(&self.place.join("directory.yaml"), &text)?;
        for agent in &mut self.agents {
            let vms = agent.setup.vms.iter().filter(|vm| !is_away(&vm.name)).cloned().collect();
            let config = AgentConfig { vms, ..agent.setup.clone() };
            let text = toml::to_string(&config).expect("a configuration is plain data");
            replace(&agent.config, &text)?;
            agent.is_stale = true;
        }
        // SIGHUP comes only after all files are written, because an agent refuses half of a list.
        self.agents.iter_mut().for_each(Agent::tell_if_stale);
        self.ask_at = Some(Instant::now() + TAKE);
        Ok(())
    }
}

impl Agents {
    /// Fails if an agent refused a list, because then another population was played than the
    /// scenario's.
    pub(crate) fn check_reloads(&self) -> Result<(), Error> {
        self.agents.iter().try_for_each(|agent| {
            let counters = ask(&agent.socket).map_or_else(Vec::new, |top| top.counters);
            let refused =
                counters.iter().find(|(name, n)| name == "agent.reload_failures" && *n > 0);
            refused.map_or(Ok(()), |(_, n)| {
                Err(agent.error(format!("refused {n} lists of VMs that came or went")))
            })
        })
    }
}

impl Agent {
    /// An agent that starts may not handle SIGHUP yet, which would end it. It is told when it
    /// answers.
    pub(super) fn tell_if_stale(&mut self) {
        if self.is_stale && self.life == Life::Runs {
            self.signal(Signal::SIGHUP);
            self.is_stale = false;
        }
    }
}

/// A reader sees the old file or the new one, never a part.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let beside = path.with_extension("new");
    write(&beside, text)?;
    fs::rename(&beside, path).map_err(Error::io(format!("replace {}", path.display())))
}
