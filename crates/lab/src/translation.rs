//! vCC on the ports of VMs without an agent, for a scenario's `none+TRANSLATION` and its budgets.
//!
//! Problem   A guest's congestion control is translated at its port, also where no mechanism runs.
//! Approach  One object of programs per host that has such ports. The lab divides budgets here.
//! Promises  The programs go with their owner, or with their namespaces on kernels without TCX.
//! Not here  The law and the programs: `weir_dataplane::vcc`. Beside other mechanisms, agents
//!           translate.

use crate::world::World;
use crate::{Error, budget, plan};
use nix::time::{ClockId, clock_gettime};
use std::os::fd::OwnedFd;
use weir_dataplane::vcc::budget::LOOK_NS;
use weir_dataplane::vcc::intf::{ANY_SLACK, Port};
use weir_dataplane::vcc::{Law, Program, Programs};
use weir_model::agent::POLICING_MOST;
use weir_model::scenario::{Scenario, Translation, Vm};

/// Connections of one VM in the table.
const FLOWS: u32 = 8192;

/// The translated ports of all hosts.
pub(crate) struct Translators {
    hosts: Vec<Host>,
    /// When budgets were last looked at, on the kernel's clock.
    looked_ns: u64,
}

struct Host {
    name: String,
    programs: Programs,
    /// By the slots of their counters.
    vms: Vec<Translated>,
    _links: Vec<OwnedFd>,
}

struct Translated {
    name: String,
    /// Whether it is: it may have a budget alone.
    is_translated: bool,
    budget: Option<budget::Own>,
}

impl Translators {
    /// Attaches the programs to the ports of all VMs that are to be translated or have a budget.
    pub(crate) fn start(
        scenario: &Scenario,
        translation: Option<Translation>,
        world: &World,
    ) -> Result<Self, Error> {
        let law_of = |vm: usize| translation.filter(|_| scenario.vms[vm].translated);
        let mut hosts = Vec::new();
        for (host, name) in scenario.topology.hosts.iter().enumerate() {
            let vms: Vec<(usize, Option<Law>)> = (0..scenario.vms.len())
                .filter(|&vm| scenario.vms[vm].host == host)
                .map(|vm| (vm, law_of(vm)))
                .filter(|&(vm, law)| law.is_some() || scenario.vms[vm].budget.is_some())
                .collect();
            if !vms.is_empty() {
                let attach = || attach(scenario, &vms);
                let (programs, vms, _links) = world.on_host(host, attach)?;
                hosts.push(Host { name: name.clone(), programs, vms, _links });
            }
        }
        Ok(Self { hosts, looked_ns: 0 })
    }

    /// Divides budgets when it is time. The caller calls it often.
    pub(crate) fn tend(&mut self) -> Result<(), Error> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC)
            .map_err(Error::kernel("read the kernel's clock"))?;
        let now_ns = now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64;
        if now_ns < self.looked_ns + LOOK_NS {
            return Ok(());
        }
        self.looked_ns = now_ns;
        for host in &mut self.hosts {
            for budget in host.vms.iter_mut().filter_map(|vm| vm.budget.as_mut()) {
                budget.tend(&host.programs, now_ns, &thread_cpu_ns)?;
            }
        }
        Ok(())
    }

    /// Notes for a reader of the results: connections that were not translated as they should be.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for host in &self.hosts {
            for (slot, vm) in host.vms.iter().enumerate() {
                notes.extend(vm.budget.as_ref().and_then(|budget| budget.note(&vm.name)));
                let counted = host.programs.counters(slot as u32);
                // Where only some groups have shares, others' connections have no place.
                let unknown = if vm.is_translated { counted.unknown } else { 0 };
                let bad = [
                    (counted.full, "connections found no place in the table"),
                    (unknown, "segments were of connections that the table does not have"),
                    (counted.malformed, "segments could not be read"),
                    (counted.unedited, "segments could not be changed"),
                    (counted.policed, "segments beyond their window were dropped"),
                ];
                for (count, what) in bad.into_iter().filter(|(count, _)| *count > 0) {
                    notes.push(format!(
                        "translation at {} on {}: {count} {what}",
                        vm.name, host.name
                    ));
                }
            }
        }
        notes
    }
}

/// CPU time of the lab's own thread.
fn thread_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    t.map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}

/// Octets that a VM's guest may send beyond its window.
fn slack(vm: &Vm) -> u32 {
    vm.policing.map_or(ANY_SLACK, |slack| u32::try_from(slack.get()).unwrap_or(POLICING_MOST))
}

/// In the host's namespace, on the ports of these VMs, with their policing and their budgets.
fn attach(
    scenario: &Scenario,
    vms: &[(usize, Option<Law>)],
) -> Result<(Programs, Vec<Translated>, Vec<OwnedFd>), Error> {
    let programs = Programs::load().map_err(Error::Dataplane)?;
    let (mut translated, mut links) = (Vec::new(), Vec::new());
    for (slot, &(vm, law)) in (0..).zip(vms) {
        let interface = plan::vm_port_index(vm);
        let policed = |law| Port::new(law, slot).policed(slack(&scenario.vms[vm]));
        let port = law.map_or(Port::idle(slot), policed);
        programs.make_table(slot, FLOWS).map_err(Error::Dataplane)?;
        let budget = budget::Own::begin(scenario, vm, &programs, slot)?;
        programs.ports.put(interface, port).map_err(Error::Dataplane)?;
        for program in Program::ALL {
            links.extend(programs.attach(program, interface).map_err(Error::Dataplane)?);
        }
        let (name, is_translated) = (scenario.vms[vm].name.clone(), law.is_some());
        translated.push(Translated { name, is_translated, budget });
    }
    Ok((programs, translated, links))
}
