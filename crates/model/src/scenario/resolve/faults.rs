//! Faults with their hosts, VMs and times, in order. Each breaks something that exists.
//!
//! Problem   "Start the agent" of a host whose agent runs is a mistake that no measurement shows.
//! Approach  The steps are walked through in the order of time, with the state of all agents, VMs
//!           and links.
//! Promises  Steps are sorted by time, those of one time in the order of the file. Only a live
//!           agent is killed, restarted or stopped, and only a dead one is started. Links go down
//!           and up in turn.

use super::{Placement, Word};
use crate::scenario::error::Error;
use crate::scenario::error::did_you_mean;
use crate::scenario::expr::Scope;
use crate::scenario::formula::Formula;
use crate::scenario::spec::Spec;
use crate::scenario::spec::faults::{ControlSpec, FaultKindSpec, FaultSpec};
use crate::scenario::{ControlFault, Fault, FaultKind, PortPart, Topology};
use std::collections::BTreeSet;
use weir_units::Span;

/// A resolved step with the word of its file that named the host, for errors.
type Step<'a> = (Fault, Option<&'a Word>);

/// The faults that hold at this point.
pub(super) fn faults(
    spec: &Spec,
    (place, topology): (&Placement<'_>, &Topology),
    scope: &Scope,
    duration: Span,
) -> Result<Vec<Fault>, Error> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for entry in &spec.faults {
        if entry.when.as_ref().map_or(Ok(true), |when| when.holds(scope))? {
            steps.extend(one(entry, (place, topology), scope, duration)?);
        }
    }
    steps.sort_by_key(|(fault, _)| fault.at);
    in_turn(&steps, place, topology)?;
    Ok(steps.into_iter().map(|(fault, _)| fault).collect())
}

/// Refuses to kill what is dead and to start what is alive, for agents, VMs and links.
fn in_turn(steps: &[Step<'_>], place: &Placement<'_>, topology: &Topology) -> Result<(), Error> {
    let mut dead: BTreeSet<usize> = BTreeSet::new();
    let mut down: BTreeSet<usize> = BTreeSet::new();
    let mut away: BTreeSet<usize> = BTreeSet::new();
    for (fault, word) in steps {
        // What it breaks or mends, whether it mends, and whether that is broken then.
        let (broken, index, mends) = match fault.kind {
            FaultKind::KillAgent { host, .. } | FaultKind::RestartAgent { host } => {
                (&mut dead, host, false)
            }
            FaultKind::StartAgent { host } => (&mut dead, host, true),
            FaultKind::LinkDown { link } => (&mut down, link, false),
            FaultKind::LinkUp { link } => (&mut down, link, true),
            FaultKind::StopVm { vm } => (&mut away, vm, false),
            FaultKind::StartVm { vm } => (&mut away, vm, true),
            FaultKind::BreakPort { .. }
            | FaultKind::Control(_)
            | FaultKind::PauseHost { .. }
            | FaultKind::StepClock { .. } => continue,
        };
        if let (Some(word), true) = (word, mends != broken.contains(&index)) {
            let at = fault.at;
            let (message, help) = match fault.kind {
                FaultKind::LinkUp { link } => (
                    format!("at {at} the link {} is up already", topology.links[link].name),
                    "pull it before: `{at: 10s, link-down: …}`",
                ),
                FaultKind::LinkDown { link } => (
                    format!("at {at} the link {} is down already", topology.links[link].name),
                    "plug it in before: `{at: 10s, link-up: …}`",
                ),
                FaultKind::StopVm { vm } => (
                    format!("at {at} VM {} is gone by then", place.vms[vm].name),
                    "start it before: `{at: 10s, start-vm: …}`",
                ),
                FaultKind::StartVm { vm } => (
                    format!("at {at} VM {} runs already", place.vms[vm].name),
                    "stop it before: `{at: 10s, stop-vm: …}`",
                ),
                FaultKind::StartAgent { host } => (
                    format!("at {at} the agent of {} runs already", place.hosts[host]),
                    "kill it before: `{at: 10s, kill-agent: …}`",
                ),
                _ => (
                    format!("at {at} the agent of {} is dead by then", place.hosts[index]),
                    "start it before: `{at: 10s, start-agent: …}`",
                ),
            };
            return Err(word.error(message, help));
        }
        match fault.kind {
            FaultKind::KillAgent { .. } | FaultKind::LinkDown { .. } | FaultKind::StopVm { .. } => {
                broken.insert(index)
            }
            _ => broken.remove(&index),
        };
    }
    Ok(())
}

fn one<'a>(
    spec: &'a FaultSpec,
    (place, topology): (&Placement<'_>, &Topology),
    scope: &Scope,
    duration: Span,
) -> Result<Vec<Step<'a>>, Error> {
    let at = spec.at.span(scope)?;
    if at >= duration {
        let message = format!("at {at}, when the scenario of {duration} is over");
        return Err(spec
            .at
            .error(message, "let it happen earlier, or let the scenario last longer"));
    }
    let each = |words: &'a [Word], kind: &dyn Fn(usize) -> FaultKind| {
        let mut steps = Vec::new();
        for word in words {
            for host in place.hosts_named(word)? {
                steps.push((Fault { at, kind: kind(host) }, Some(word)));
            }
        }
        Ok(steps)
    };
    let each_vm = |words: &'a [Word], kind: &dyn Fn(usize) -> FaultKind| {
        let mut steps = Vec::new();
        for word in words {
            let vms = place.set(word)?.iter();
            steps.extend(vms.map(|vm| (Fault { at, kind: kind(*vm) }, Some(word))));
        }
        Ok(steps)
    };
    match &spec.kind {
        FaultKindSpec::StopVm { vms } => each_vm(vms, &|vm| FaultKind::StopVm { vm }),
        FaultKindSpec::StartVm { vms } => each_vm(vms, &|vm| FaultKind::StartVm { vm }),
        FaultKindSpec::BreakPort { vms, part } => {
            let names = || PortPart::ALL.iter().map(|part| part.name());
            let Some(part) = PortPart::ALL.into_iter().find(|one| one.name() == part.text) else {
                let message = format!("a port has no part `{}`", part.text);
                return Err(part.error(message, did_you_mean(&part.text, names())));
            };
            each_vm(vms, &|vm| FaultKind::BreakPort { vm, part })
        }
        FaultKindSpec::Kill { hosts, guardian } => {
            each(hosts, &|host| FaultKind::KillAgent { host, guardian: *guardian })
        }
        FaultKindSpec::Start { hosts } => each(hosts, &|host| FaultKind::StartAgent { host }),
        FaultKindSpec::Restart { hosts } => each(hosts, &|host| FaultKind::RestartAgent { host }),
        FaultKindSpec::Control(spec) => {
            let control = control(spec, place, scope, at, duration)?;
            Ok(vec![(Fault { at, kind: FaultKind::Control(control) }, None)])
        }
        FaultKindSpec::Pull { links } => {
            each_link(links, at, topology, &|link| FaultKind::LinkDown { link })
        }
        FaultKindSpec::Plug { links } => {
            each_link(links, at, topology, &|link| FaultKind::LinkUp { link })
        }
        FaultKindSpec::Pause { hosts, lasts } => {
            let until = at + positive(lasts, scope, "a pause", "500ms")?;
            each(hosts, &|host| FaultKind::PauseHost { host, until })
        }
        FaultKindSpec::Step { hosts, by } => {
            let by = positive(by, scope, "a step", "2s")?;
            each(hosts, &|host| FaultKind::StepClock { host, by })
        }
    }
}

fn each_link<'a>(
    words: &'a [Word],
    at: Span,
    topology: &Topology,
    kind: &dyn Fn(usize) -> FaultKind,
) -> Result<Vec<Step<'a>>, Error> {
    let step = |word: &'a Word| {
        let names = || topology.links.iter().map(|link| link.name.as_str());
        let Some(link) = names().position(|name| name == word.text) else {
            let message = format!("there is no link `{}`", word.text);
            return Err(word.error(message, did_you_mean(&word.text, names())));
        };
        Ok((Fault { at, kind: kind(link) }, Some(word)))
    };
    words.iter().map(step).collect()
}

/// A time above zero: monotonic clocks do not go back.
fn positive(formula: &Formula, scope: &Scope, what: &str, like: &str) -> Result<Span, Error> {
    let span = formula.span(scope)?;
    if span == Span::ZERO {
        return Err(formula.error(format!("{what} of zero"), format!("write how long: {like}")));
    }
    Ok(span)
}

fn control(
    spec: &ControlSpec,
    place: &Placement<'_>,
    scope: &Scope,
    at: Span,
    duration: Span,
) -> Result<ControlFault, Error> {
    let mut hosts: Vec<usize> = Vec::new();
    match &spec.hosts {
        None => hosts.extend(0..place.hosts.len()),
        Some(words) => {
            for word in words {
                hosts.extend(place.hosts_named(word)?);
            }
        }
    }
    let share = |formula: &Option<Formula>| formula.as_ref().map_or(Ok(0.0), |f| share(f, scope));
    let until = match &spec.lasts {
        Some(lasts) => (at + lasts.span(scope)?).min(duration),
        None => duration,
    };
    let span = |formula: &Option<Formula>| {
        formula.as_ref().map_or(Ok(Span::ZERO), |formula| formula.span(scope))
    };
    let (delay, jitter) = (span(&spec.delay)?, span(&spec.jitter)?);
    if let (Some(formula), true) = (&spec.jitter, jitter > delay) {
        let message =
            format!("{jitter} around a delay of {delay}: nothing comes before it is sent");
        let help = "write a delay that is no less: `{delay: 5ms, jitter: 5ms}`";
        return Err(formula.error(message, help));
    }
    let fault = ControlFault {
        hosts,
        loss: share(&spec.loss)?,
        duplicate: share(&spec.duplicate)?,
        reorder: share(&spec.reorder)?,
        delay,
        jitter,
        until,
    };
    let nothing = spec.loss.is_none()
        && spec.duplicate.is_none()
        && spec.reorder.is_none()
        && spec.delay.is_none()
        && spec.jitter.is_none();
    if nothing {
        let help = "write at least one of `loss`, `duplicate`, `reorder`, `delay`, `jitter`";
        return Err(spec.whole.error("does nothing to control messages", help));
    }
    Ok(fault)
}

/// A part of all messages.
fn share(formula: &Formula, scope: &Scope) -> Result<f64, Error> {
    let share = formula.number(scope)?;
    if !(0.0..=1.0).contains(&share) {
        let message = format!("a part of {share}");
        return Err(formula.error(message, "write a part of one: 0.1 means one message of ten"));
    }
    Ok(share)
}
