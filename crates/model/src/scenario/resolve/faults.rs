//! Faults with their hosts, VMs and times: in order, and each of something that is there to break.
//!
//! Problem   "Start the agent" of a host whose agent runs is a slip that no measurement shows.
//! Approach  The steps are walked through in the order of time, with who is alive.
//! Promises  Steps come sorted by time, those of one time in the order of the file; whoever is killed
//!           restarted or stopped lives, whoever is started does not.

use super::{Placement, Word};
use crate::scenario::error::Error;
use crate::scenario::expr::Scope;
use crate::scenario::formula::Formula;
use crate::scenario::spec::Spec;
use crate::scenario::spec::faults::{ControlSpec, FaultKindSpec, FaultSpec};
use crate::scenario::{ControlFault, Fault, FaultKind};
use std::collections::BTreeSet;
use weir_units::Span;

/// A resolved step with the word of its file that named the host, for errors.
type Step<'a> = (Fault, Option<&'a Word>);

/// The faults that hold at this point.
pub(super) fn faults(
    spec: &Spec,
    place: &Placement<'_>,
    scope: &Scope,
    duration: Span,
) -> Result<Vec<Fault>, Error> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for entry in &spec.faults {
        if entry.when.as_ref().map_or(Ok(true), |when| when.holds(scope))? {
            steps.extend(one(entry, place, scope, duration)?);
        }
    }
    steps.sort_by_key(|(fault, _)| fault.at);
    let mut dead: BTreeSet<usize> = BTreeSet::new();
    let mut away: BTreeSet<usize> = BTreeSet::new();
    for (fault, word) in &steps {
        let (host, is_start) = match fault.kind {
            FaultKind::KillAgent { host, .. } => (host, false),
            FaultKind::RestartAgent { host } => (host, false),
            FaultKind::StartAgent { host } => (host, true),
            FaultKind::StopVm { vm } | FaultKind::StartVm { vm } => {
                let is_start = matches!(fault.kind, FaultKind::StartVm { .. });
                let done = if is_start { away.remove(&vm) } else { away.insert(vm) };
                if let (Some(word), false) = (word, done) {
                    let (state, help) = match is_start {
                        true => ("runs already", "stop it before: `{at: 10s, stop-vm: …}`"),
                        false => ("is gone by then", "start it before: `{at: 10s, start-vm: …}`"),
                    };
                    let message = format!("at {} VM {} {state}", fault.at, place.vms[vm].name);
                    return Err(word.error(message, help));
                }
                continue;
            }
            FaultKind::Control(_) => continue,
        };
        if let (Some(word), true) = (word, is_start != dead.contains(&host)) {
            let (state, help) = match is_start {
                true => ("runs already", "kill it before: `{at: 10s, kill-agent: …}`"),
                false => ("is dead by then", "start it before: `{at: 10s, start-agent: …}`"),
            };
            let message = format!("at {} the agent of {} {state}", fault.at, place.hosts[host]);
            return Err(word.error(message, help));
        }
        match fault.kind {
            FaultKind::KillAgent { .. } => dead.insert(host),
            _ => dead.remove(&host),
        };
    }
    Ok(steps.into_iter().map(|(fault, _)| fault).collect())
}

fn one<'a>(
    spec: &'a FaultSpec,
    place: &Placement<'_>,
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
        FaultKindSpec::Kill { hosts, guardian } => {
            each(hosts, &|host| FaultKind::KillAgent { host, guardian: *guardian })
        }
        FaultKindSpec::Start { hosts } => each(hosts, &|host| FaultKind::StartAgent { host }),
        FaultKindSpec::Restart { hosts } => each(hosts, &|host| FaultKind::RestartAgent { host }),
        FaultKindSpec::Control(spec) => {
            let control = control(spec, place, scope, at, duration)?;
            Ok(vec![(Fault { at, kind: FaultKind::Control(control) }, None)])
        }
    }
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
