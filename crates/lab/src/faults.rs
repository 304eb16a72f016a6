//! Plays the faults of a scenario, each at its time.
//!
//! Problem   In a datacenter the rest goes on while something breaks, so measuring must not wait
//!           for a fault.
//! Approach  A list of steps with times, looked at whenever the lab waits for its next sample. A
//!           step starts something; `agents` and `relay` see it through.
//! Promises  In the order of the scenario, none twice, at most one nap of the sampler late.
//! Not here  How an agent is killed, a message lost, or a VM stopped: see `agents`, `relay` and
//!           `world`.

use crate::agents::Agents;
use crate::plan::Plan;
use crate::relay::{Relay, Weather};
use crate::world::World;
use crate::{Error, Options};
use std::time::Duration;
use weir_model::scenario::{Fault, FaultKind, PortPart, Scenario};
use weir_units::{SortedSet, Span};

/// The faults of a run that are still to come.
pub(crate) struct Faults {
    /// Latest first.
    steps: Vec<(Span, Step)>,
    /// VMs that are stopped now.
    away: SortedSet<usize>,
}

/// Targets of faults.
pub(crate) struct Stage<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) plan: &'a Plan,
    pub(crate) agents: &'a mut Agents,
    pub(crate) world: &'a mut World,
    pub(crate) relay: Option<&'a Relay>,
    pub(crate) options: &'a Options,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Kill { host: usize, guardian: bool },
    Start(usize),
    Restart(usize),
    StopVm(usize),
    StartVm(usize),
    BreakPort(usize, PortPart),
    Weather { hosts: Vec<usize>, weather: Weather },
}

impl Faults {
    /// Without agents only VMs can break.
    pub(crate) fn of_vms(scenario: &Scenario) -> Self {
        let mut all = Self::new(scenario);
        all.steps.retain(|(_, step)| matches!(step, Step::StopVm(_) | Step::StartVm(_)));
        all
    }

    /// All faults of a scenario. The end of a control fault is a step of its own.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let mut steps = Vec::new();
        for (i, fault) in scenario.faults.iter().enumerate() {
            steps.push((fault.at, step(fault)));
            let FaultKind::Control(control) = &fault.kind else { continue };
            let mut hosts = control.hosts.clone();
            hosts.retain(|host| !is_replaced(scenario, (fault.at, i), control.until, *host));
            if control.until < scenario.duration && !hosts.is_empty() {
                steps.push((control.until, Step::Weather { hosts, weather: Weather::default() }));
            }
        }
        steps.sort_by_key(|(at, _)| *at);
        steps.reverse();
        Self { steps, away: SortedSet::new() }
    }

    /// Plays the steps that are due at `now`, the time since the start of traffic.
    pub(crate) fn play(&mut self, now: Span, stage: Stage<'_>) -> Result<(), Error> {
        let Stage { scenario, plan, agents, world, relay, options } = stage;
        let before = self.away.clone();
        while self.steps.last().is_some_and(|(at, _)| *at <= now) {
            match self.steps.pop().expect("it was there").1 {
                Step::Kill { host, guardian } => agents.kill(host, guardian),
                Step::Start(host) => agents.start_again(host, options)?,
                Step::Restart(host) => agents.restart(host),
                // The VM dies before the agents are told, as in reality. A port exists before an
                // agent is told to guard it.
                Step::StopVm(vm) => {
                    world.stop_vm(scenario, vm)?;
                    self.away.insert(vm);
                }
                Step::StartVm(vm) => {
                    world.start_vm(scenario, plan, vm)?;
                    self.away.remove(&vm);
                }
                Step::BreakPort(vm, part) => world.break_port(scenario, vm, part)?,
                Step::Weather { hosts, weather } => {
                    let relay = relay.expect("a scenario with weather has doors");
                    hosts.into_iter().for_each(|host| relay.set(host, weather));
                }
            }
        }
        if self.away == before { Ok(()) } else { agents.populate(scenario, &self.away) }
    }
}

fn step(fault: &Fault) -> Step {
    match &fault.kind {
        FaultKind::KillAgent { host, guardian } => Step::Kill { host: *host, guardian: *guardian },
        FaultKind::StartAgent { host } => Step::Start(*host),
        FaultKind::RestartAgent { host } => Step::Restart(*host),
        FaultKind::StopVm { vm } => Step::StopVm(*vm),
        FaultKind::StartVm { vm } => Step::StartVm(*vm),
        FaultKind::BreakPort { vm, part } => Step::BreakPort(*vm, *part),
        FaultKind::Control(control) => {
            let weather = Weather {
                loss: control.loss,
                duplicate: control.duplicate,
                reorder: control.reorder,
                delay: Duration::from(control.delay),
                jitter: Duration::from(control.jitter),
            };
            Step::Weather { hosts: control.hosts.clone(), weather }
        }
        other => unreachable!("`{}` was refused before anything was made", other.name()),
    }
}

/// Whether another control fault of `host` begins before this one ends, so that this end has no
/// effect there. Of two that begin at one time the later one in the list counts, as it is played.
fn is_replaced(scenario: &Scenario, this: (Span, usize), until: Span, host: usize) -> bool {
    scenario.faults.iter().enumerate().any(|(i, other)| match &other.kind {
        FaultKind::Control(control) => {
            (other.at, i) > this && other.at <= until && control.hosts.contains(&host)
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::scenario;
    use weir_model::scenario::ControlFault;

    /// All control faults as they are played: time, hosts, and the part that is lost.
    fn weather(faults: &[(u64, u64, &[usize], f64)]) -> Vec<(u64, Vec<usize>, f64)> {
        let control = |(at, until, hosts, loss): &(u64, u64, &[usize], f64)| Fault {
            at: Span::from_secs(*at),
            kind: FaultKind::Control(ControlFault {
                hosts: hosts.to_vec(),
                loss: *loss,
                duplicate: 0.0,
                reorder: 0.0,
                delay: Span::ZERO,
                jitter: Span::ZERO,
                until: Span::from_secs(*until),
            }),
        };
        let mut scenario = scenario(2, 1, &[(0, 2), (1, 2)]);
        scenario.duration = Span::from_secs(30);
        scenario.faults = faults.iter().map(control).collect();
        let mut steps = Faults::new(&scenario).steps;
        steps.reverse();
        let told = |(at, step): (Span, Step)| match step {
            Step::Weather { weather, hosts } => {
                (at.as_nanos() / 1_000_000_000, hosts, weather.loss)
            }
            other => panic!("{other:?}"),
        };
        steps.into_iter().map(told).collect()
    }

    #[test]
    fn weather_ends_unless_other_weather_came_meanwhile() {
        let told = weather(&[(1, 9, &[0], 0.1), (5, 20, &[0], 0.2), (25, 30, &[0], 0.3)]);
        let losses: Vec<_> = told.iter().map(|(at, _, loss)| (*at, *loss)).collect();
        assert_eq!(losses, [(1, 0.1), (5, 0.2), (20, 0.0), (25, 0.3)]);
    }

    #[test]
    fn weather_ends_for_each_host_by_itself() {
        let told = weather(&[(1, 9, &[0, 1], 0.1), (5, 20, &[1], 0.2)]);
        let both = vec![0, 1];
        let wanted = [(1, both, 0.1), (5, vec![1], 0.2), (9, vec![0], 0.0), (20, vec![1], 0.0)];
        assert_eq!(told, wanted, "host 0 does not keep it for ever");
    }

    #[test]
    fn of_two_that_begin_together_the_later_one_lasts() {
        let told = weather(&[(1, 5, &[0], 0.1), (1, 9, &[0], 0.2)]);
        assert_eq!(told, [(1, vec![0], 0.1), (1, vec![0], 0.2), (9, vec![0], 0.0)]);
    }
}
