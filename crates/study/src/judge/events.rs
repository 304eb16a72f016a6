//! What a scenario changes while it is played, for the pictures.

use std::collections::{BTreeMap, BTreeSet};
use weir_model::results::Event;
use weir_model::scenario::{Fault, FaultKind, Scenario, TrafficKind};
use weir_units::Span;

/// What a group does at one moment: kinds of traffic that stop and that start.
#[derive(Default)]
struct Change {
    stops: BTreeSet<&'static str>,
    starts: BTreeSet<&'static str>,
}

/// Starts and stops of groups' traffic within the run, and what breaks; bursts are not told.
pub(super) fn of(scenario: &Scenario) -> Vec<Event> {
    let mut changes: BTreeMap<(Span, &str), Change> = BTreeMap::new();
    for traffic in &scenario.traffic {
        let kind = match traffic.kind {
            TrafficKind::Tcp { .. } => "TCP",
            TrafficKind::Udp { .. } => "UDP",
            TrafficKind::Request(_) => "requests",
            TrafficKind::Reply { .. } => "answers",
            TrafficKind::Flows(_) => "short flows",
            TrafficKind::Shuffle { .. } => "a shuffle",
            TrafficKind::Memcached(_) => "requests to memcached",
            TrafficKind::Exec(_) => "a program",
        };
        if traffic.start > Span::ZERO {
            let change = changes.entry((traffic.start, &traffic.group)).or_default();
            change.starts.insert(kind);
        }
        if traffic.stop < scenario.duration {
            changes.entry((traffic.stop, &traffic.group)).or_default().stops.insert(kind);
        }
    }
    let list = |kinds: BTreeSet<&str>| kinds.into_iter().collect::<Vec<_>>().join(" and ");
    let event = |((at, group), change): ((Span, &str), Change)| Event {
        at_s: at.as_secs_f64(),
        says: match (change.stops.is_empty(), change.starts.is_empty()) {
            (true, _) => format!("{group} starts {}", list(change.starts)),
            (_, true) => format!("{group} stops {}", list(change.stops)),
            _ => format!("{group} turns from {} to {}", list(change.stops), list(change.starts)),
        },
    };
    let mut events: Vec<Event> = changes.into_iter().map(event).collect();
    events.extend(scenario.faults.iter().map(|fault| broken(scenario, fault)));
    events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    events
}

/// What breaks, in a few words.
fn broken(scenario: &Scenario, fault: &Fault) -> Event {
    let name = |host: &usize| scenario.topology.hosts[*host].clone();
    let cable = |link: &usize| scenario.topology.links[*link].name.clone();
    let says = match &fault.kind {
        FaultKind::KillAgent { host, guardian: false } => format!("{}: agent killed", name(host)),
        FaultKind::KillAgent { host, guardian: true } => {
            format!("{}: agent and guardian killed", name(host))
        }
        FaultKind::StartAgent { host } => format!("{}: agent starts", name(host)),
        FaultKind::RestartAgent { host } => format!("{}: agent restarts", name(host)),
        FaultKind::StopVm { vm } => format!("VM {} goes", scenario.vms[*vm].name),
        FaultKind::StartVm { vm } => format!("VM {} comes", scenario.vms[*vm].name),
        FaultKind::BreakPort { vm, part } => {
            format!("port of VM {}: {} breaks", scenario.vms[*vm].name, part.name())
        }
        FaultKind::Control(control) => {
            let parts = [
                (control.loss, "lost"),
                (control.duplicate, "doubled"),
                (control.reorder, "overtaken"),
            ];
            let mut words: Vec<String> = parts
                .iter()
                .filter(|(part, _)| *part > 0.0)
                .map(|(part, what)| format!("{:.0} % {what}", part * 100.0))
                .collect();
            if control.delay > Span::ZERO {
                words.push(match control.jitter {
                    Span::ZERO => format!("{} late", control.delay),
                    jitter => format!("{} ± {jitter} late", control.delay),
                });
            }
            if words.is_empty() {
                words.push("all well".into());
            }
            format!("control messages: {}", words.join(", "))
        }
        FaultKind::LinkDown { link } => format!("{}: link down", cable(link)),
        FaultKind::LinkUp { link } => format!("{}: link up", cable(link)),
        FaultKind::PauseHost { host, until } => {
            format!("{}: host pauses for {}", name(host), *until - fault.at)
        }
        FaultKind::StepClock { host, by } => format!("{}: clock steps by {by}", name(host)),
    };
    Event { at_s: fault.at.as_secs_f64(), says }
}
