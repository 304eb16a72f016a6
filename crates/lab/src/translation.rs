//! vCC on the ports of VMs where no agent is: what a scenario's `none+TRANSLATION` asks for.
//!
//! Problem   A guest's congestion control is translated at its port, also where nothing else is done.
//! Approach  One object of programs per host that has such ports.
//! Promises  Gone with its owner, or with its namespaces on kernels without TCX.
//! Not here  The law and the programs: `weir_dataplane::vcc`. Beside other mechanisms their agents translate.

use crate::world::World;
use crate::{Error, plan};
use std::os::fd::OwnedFd;
use weir_dataplane::vcc::intf::{ANY_SLACK, Port};
use weir_dataplane::vcc::{Law, Program, Programs};
use weir_model::agent::POLICING_MOST;
use weir_model::scenario::{Scenario, Translation, Vm};

/// Connections of one VM that are known at the same time.
const FLOWS: u32 = 8192;

/// The translated ports of all hosts.
pub(crate) struct Translators {
    hosts: Vec<Host>,
}

struct Host {
    name: String,
    programs: Programs,
    /// Names of VMs, by the slots of their counters.
    vms: Vec<String>,
    _links: Vec<OwnedFd>,
}

impl Translators {
    /// Attaches the programs to the ports of all VMs that are to be translated.
    pub(crate) fn start(
        scenario: &Scenario,
        translation: Translation,
        world: &World,
    ) -> Result<Self, Error> {
        let law = match translation {
            Translation::VirtualEcn => Law::VirtualEcn,
            Translation::Dctcp => Law::Dctcp,
            Translation::CubicEcn => Law::CubicEcn,
            Translation::Auto => Law::Auto,
        };
        let mut hosts = Vec::new();
        for (host, name) in scenario.topology.hosts.iter().enumerate() {
            let vms: Vec<usize> = (0..scenario.vms.len())
                .filter(|&vm| scenario.vms[vm].host == host && scenario.vms[vm].translated)
                .collect();
            if !vms.is_empty() {
                let names = vms.iter().map(|&vm| scenario.vms[vm].name.clone()).collect();
                let slack = |&vm: &usize| slack(&scenario.vms[vm]);
                let ports: Vec<_> = vms.iter().map(|vm| (*vm, slack(vm))).collect();
                let (programs, _links) = world.on_host(host, || attach(law, &ports))?;
                hosts.push(Host { name: name.clone(), programs, vms: names, _links });
            }
        }
        Ok(Self { hosts })
    }

    /// What a reader of the results should know: connections that were not translated as they should be.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for host in &self.hosts {
            for (slot, vm) in host.vms.iter().enumerate() {
                let counted = host.programs.counters(slot as u32);
                let bad = [
                    (counted.full, "connections found no place in the table"),
                    (counted.unknown, "segments were of connections that the table does not have"),
                    (counted.malformed, "segments could not be read"),
                    (counted.unedited, "segments could not be changed"),
                    (counted.policed, "segments beyond their window were dropped"),
                ];
                for (count, what) in bad.into_iter().filter(|(count, _)| *count > 0) {
                    notes.push(format!("translation at {} on {}: {count} {what}", vm, host.name));
                }
            }
        }
        notes
    }
}

/// How far beyond its window a VM's guest may send.
fn slack(vm: &Vm) -> u32 {
    vm.policing.map_or(ANY_SLACK, |slack| u32::try_from(slack.get()).unwrap_or(POLICING_MOST))
}

/// In the host's namespace, on the ports of these VMs, with their policing.
fn attach(law: Law, vms: &[(usize, u32)]) -> Result<(Programs, Vec<OwnedFd>), Error> {
    let programs = Programs::load().map_err(Error::Dataplane)?;
    let mut links = Vec::new();
    for (slot, &(vm, slack)) in vms.iter().enumerate() {
        let interface = plan::vm_port_index(vm);
        let port = Port::new(law, slot as u32).policed(slack);
        programs.make_table(slot as u32, FLOWS).map_err(Error::Dataplane)?;
        programs.ports.put(interface, port).map_err(Error::Dataplane)?;
        for program in Program::ALL {
            links.extend(programs.attach(program, interface).map_err(Error::Dataplane)?);
        }
    }
    Ok((programs, links))
}
