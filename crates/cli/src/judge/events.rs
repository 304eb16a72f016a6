//! What a scenario changes while it is played, for the pictures.

use std::collections::{BTreeMap, BTreeSet};
use weir_model::results::Event;
use weir_model::scenario::{Scenario, TrafficKind};
use weir_units::Span;

/// What a group does at one moment: kinds of traffic that stop and that start.
#[derive(Default)]
struct Change {
    stops: BTreeSet<&'static str>,
    starts: BTreeSet<&'static str>,
}

/// Starts and stops of groups' traffic within the run; bursts are not told.
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
    changes.into_iter().map(event).collect()
}
