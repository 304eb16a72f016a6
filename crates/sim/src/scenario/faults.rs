//! From a scenario's faults to events of the network.
//!
//! Promises  Faults of agents have no effect where no agent runs.
//! Not here  Faults of control messages: see `guard`.

use crate::world::Fault;
use weir_model::scenario::{FaultKind, Mechanism, Scenario};
use weir_units::Time;

/// What breaks, and when, in the order of time.
pub(super) fn faults(scenario: &Scenario, mechanism: &Mechanism) -> Vec<(Time, Fault)> {
    let has_agents = mechanism.row.is_some();
    let happens = |kind: &FaultKind| has_agents || !kind.is_of_agents();
    let all = scenario.faults.iter().filter(|fault| happens(&fault.kind));
    all.flat_map(|fault| of(&fault.kind).into_iter().map(|f| (Time::ZERO + fault.at, f))).collect()
}

fn of(kind: &FaultKind) -> Vec<Fault> {
    let node = |host: &usize| *host as u32;
    // Both directions of the cable.
    let cable = |link: &usize, down| {
        [0, 1].map(|way| Fault::Link { link: (2 * link + way) as u32, down }).to_vec()
    };
    match kind {
        FaultKind::KillAgent { host, guardian } => {
            vec![Fault::Kill { host: node(host), guardian: *guardian }]
        }
        FaultKind::StartAgent { host } => vec![Fault::Start { host: node(host) }],
        FaultKind::RestartAgent { host } => vec![Fault::Restart { host: node(host) }],
        FaultKind::StopVm { vm } => vec![Fault::Vm { vm: *vm as u32, plugged: false }],
        FaultKind::StartVm { vm } => vec![Fault::Vm { vm: *vm as u32, plugged: true }],
        FaultKind::BreakPort { .. } => unreachable!("refused before anything was built"),
        // Control faults are the letters' weather.
        FaultKind::Control(_) => Vec::new(),
        FaultKind::LinkDown { link } => cable(link, true),
        FaultKind::LinkUp { link } => cable(link, false),
        FaultKind::PauseHost { host, until } => {
            vec![Fault::Pause { host: node(host), until: until.as_nanos() }]
        }
        FaultKind::StepClock { host, by } => {
            vec![Fault::Clock { host: node(host), by: by.as_nanos() }]
        }
    }
}
