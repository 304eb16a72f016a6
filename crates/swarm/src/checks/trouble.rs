//! When messages between two hosts could not do their work.
//!
//! Only where a promise says "unless its messages are lost" it is asked for; see `hoses`.

use weir_model::scenario::{FaultKind, Scenario};
use weir_sim::Look;
use weir_units::{HostId, SortedMap, Span, Time};

/// A letter that is overtaken comes so much later (docs/scenarios.md, `reorder`).
const HELD_BACK: Span = Span::from_millis(100);

/// A time in which a host is not heard, does not hear, or hears late.
#[derive(Debug)]
struct Deaf {
    /// All hosts if none.
    host: Option<usize>,
    from: Time,
    until: Time,
}

/// All trouble of a run, as far as it was seen.
#[derive(Debug)]
pub(super) struct Trouble {
    deaf: Vec<Deaf>,
    /// Letters lost on their way, and when that was seen.
    lost: SortedMap<(HostId, HostId), (u64, Time)>,
}

impl Trouble {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self { deaf: deaf(scenario), lost: SortedMap::new() }
    }

    pub(super) fn look(&mut self, look: &Look) {
        for (ends, count) in &look.letters_lost {
            let known = self.lost.entry(*ends).or_insert((0, look.at));
            if *count > known.0 {
                *known = (*count, look.at);
            }
        }
    }

    /// The last moment up to `now` at which a letter between two hosts may not have arrived.
    pub(super) fn last(&self, (a, b): (HostId, HostId), now: Time) -> Time {
        let touches = |deaf: &&Deaf| {
            let host = |id: HostId| deaf.host.is_none_or(|host| host == id.0 as usize);
            deaf.from <= now && (host(a) || host(b))
        };
        let until = self.deaf.iter().filter(touches).map(|deaf| deaf.until.min(now));
        let lost = [(a, b), (b, a)].into_iter().filter_map(|ends| Some(self.lost.get(&ends)?.1));
        until.chain(lost).max().unwrap_or(Time::ZERO)
    }
}

fn deaf(scenario: &Scenario) -> Vec<Deaf> {
    let mut all = Vec::new();
    let end = Time::ZERO + scenario.duration;
    for (number, fault) in scenario.faults.iter().enumerate() {
        let from = Time::ZERO + fault.at;
        let healed = |heals: &dyn Fn(&FaultKind) -> bool| {
            let later = &scenario.faults[number + 1..];
            later.iter().find(|f| heals(&f.kind)).map_or(end, |f| Time::ZERO + f.at)
        };
        match &fault.kind {
            FaultKind::KillAgent { host, .. } => {
                let starts = |kind: &FaultKind| matches!(kind, FaultKind::StartAgent { host: h } if h == host);
                all.push(Deaf { host: Some(*host), from, until: healed(&starts) });
            }
            FaultKind::LinkDown { link } => {
                let up =
                    |kind: &FaultKind| matches!(kind, FaultKind::LinkUp { link: l } if l == link);
                all.push(Deaf { host: None, from, until: healed(&up) });
            }
            FaultKind::Control(control) => {
                let late = control.delay + control.jitter + HELD_BACK;
                let until = Time::ZERO + control.until + late;
                all.extend(control.hosts.iter().map(|h| Deaf { host: Some(*h), from, until }));
            }
            FaultKind::PauseHost { host, until } => {
                all.push(Deaf { host: Some(*host), from, until: Time::ZERO + *until });
            }
            FaultKind::RestartAgent { host } | FaultKind::StepClock { host, .. } => {
                all.push(Deaf { host: Some(*host), from, until: from });
            }
            FaultKind::StartAgent { .. }
            | FaultKind::LinkUp { .. }
            | FaultKind::StopVm { .. }
            | FaultKind::StartVm { .. }
            | FaultKind::BreakPort { .. } => {}
        }
    }
    all
}
