//! From a scenario and a mechanism to an agent on each host.
//!
//! Problem   Hoses, directories, constants and classes must be those that the lab writes into each
//!           agent's configuration.
//! Approach  The same settings that `weir-lab` writes and `weir-agent` reads, without the text
//!           between them. Constants that are rates follow the scenario's scale, and each VM's
//!           class is guaranteed the sum of what its pairs may be promised.
//! Promises  All pairs that may send are known: those of the traffic and, for ACKs, their reverse.
//! Source    `weir-lab`'s `agents.rs`, `weir-agent`'s `config.rs` and `driver.rs` (`guaranteed`).

use super::build::{Part, Plan, has_priorities};
use super::ways::Ways;
use super::{Failure, Setup, Unsupported};
use crate::host::{Guard, GuardedHost, GuardedPair, PathLinks, Share, Trouble};
use crate::rng::Rng;
use std::path::Path;
use weir_core::host::{Bounds, Capabilities, Hose, Location, Policy};
use weir_core::mechanism::{Draft, Place};
use weir_core::path::MAX_PATHS;
use weir_journal::{Log, Options, Pace};
use weir_model::scenario::{Ecmp, Fault, FaultKind, LinkDir, Mechanism, Scenario, Vm, VmHose};
use weir_units::{Bytes, HostId, PairId, Rate, SortedMap, SortedSet, Span, TenantId, VmId};

/// A full Ethernet frame without FCS.
const FRAME: Bytes = Bytes::new(1514);

/// The agents of a run; `None` without a mechanism.
pub(super) fn guard(
    scenario: &Scenario,
    mechanism: &Mechanism,
    plan: &Plan,
    setup: &Setup,
) -> Result<Option<Guard>, Failure> {
    if mechanism.row.is_none() {
        return Ok(None);
    }
    check_red(scenario, mechanism)?;
    let paths = paths(scenario, mechanism, plan, setup)?;
    let count = paths.values().next().map_or(1, Vec::len);
    let policies = policies(scenario, mechanism, setup, count)?;
    let guard = |policy| guarded(scenario, policy, setup.journal.as_deref());
    let hosts: Result<_, Failure> = policies.into_iter().map(guard).collect();
    let hosts = hosts?;
    let pair = |t: &weir_model::scenario::Traffic| PairId::new(vm_id(t.from), vm_id(t.to));
    let ids: SortedSet<PairId> =
        scenario.traffic.iter().flat_map(|t| [pair(t), pair(t).reversed()]).collect();
    let host_of = |vm: VmId| scenario.vms[vm.0 as usize].host as u32;
    let guarded = |id: &PairId| GuardedPair { id: *id, from: host_of(id.src), to: host_of(id.dst) };
    let numbers: SortedMap<PairId, u32> = ids.iter().copied().zip(0..).collect();
    let (mut flows, mut exchanges) = (Vec::new(), Vec::new());
    for (t, part) in scenario.traffic.iter().zip(&plan.entries) {
        let ends = (numbers[&pair(t)], numbers[&pair(t).reversed()]);
        match part {
            Part::Flows(range) => flows.extend(std::iter::repeat_n(ends, range.len())),
            Part::There(_) => exchanges.push(ends),
            Part::Back(_) => {}
        }
    }
    let host = |number: usize| HostId(number as u32);
    Ok(Some(Guard {
        hosts,
        pairs: ids.iter().map(guarded).collect(),
        flows,
        exchanges,
        ways: plan.ways.iter().map(|((a, b), way)| ((host(*a), host(*b)), way.clone())).collect(),
        paths,
    }))
}

/// The paths among which hosts choose, the same number between any two hosts; none without a third
/// layer. If there are fewer ways than paths, several paths share a way.
fn paths(
    scenario: &Scenario,
    mechanism: &Mechanism,
    plan: &Plan,
    setup: &Setup,
) -> Result<PathLinks, Unsupported> {
    if !draft(scenario, mechanism, setup)?.divides_paths() {
        return Ok(PathLinks::new());
    }
    if scenario.topology.ecmp != Some(Ecmp::Host) {
        let what = format!("`{}` where hosts cannot choose among paths", mechanism.label);
        return Err(Unsupported::new(
            "spec.mechanisms",
            what,
            "write `ecmp: host` in the topology",
        ));
    }
    let most = plan.paths.values().map(Vec::len).max().unwrap_or(1).clamp(2, MAX_PATHS);
    let all = |((from, to), ways): (&(usize, usize), &Vec<Vec<u32>>)| {
        let paths = ways.iter().cycle().take(most).cloned().collect();
        ((HostId(*from as u32), HostId(*to as u32)), paths)
    };
    Ok(plan.paths.iter().map(all).collect())
}

fn vm_id(vm: usize) -> VmId {
    VmId(vm as u32)
}

/// The rate of a host's uplink.
pub(super) fn line(scenario: &Scenario, host: usize) -> Result<Rate, Unsupported> {
    let mut links = scenario.topology.links.iter().filter(|l| l.a == host || l.b == host);
    match (links.next(), links.next()) {
        (Some(link), None) => Ok(link.rate),
        _ => {
            let field = format!("spec.topology (host {})", scenario.topology.hosts[host]);
            let what = "a host that has not exactly one link";
            Err(Unsupported::new(field, what, "give each host one link"))
        }
    }
}

/// What each host's machine is told, where hosts have so many paths to each other.
pub(super) fn policies(
    scenario: &Scenario,
    mechanism: &Mechanism,
    setup: &Setup,
    paths: usize,
) -> Result<Vec<Policy>, Failure> {
    let hosts = scenario.topology.hosts.len();
    let lines = (0..hosts).map(|host| line(scenario, host)).collect::<Result<Vec<_>, _>>()?;
    let fastest_line = lines.iter().copied().max().unwrap_or_default();
    let location = |(number, vm): (usize, &Vm)| {
        let (tenant, host) = (TenantId(vm.tenant as u32), HostId(vm.host as u32));
        (vm_id(number), Location { tenant, host })
    };
    let directory: SortedMap<_, _> = scenario.vms.iter().enumerate().map(location).collect();
    let hose = |(number, vm): (usize, &Vm)| {
        let out = Bounds { floor: vm.floor_out, most: vm.cap_out.unwrap_or(Rate::MAX) };
        (vm_id(number), Hose { out, in_: Bounds::at_least(vm.floor_in) })
    };
    let further = |(number, vm): (usize, &Vm)| {
        let one = |hose: &VmHose| (hose.id(), Hose::of(hose.floor_out, hose.floor_in));
        (vm_id(number), vm.hoses.iter().map(one).collect())
    };
    let ties = |(number, vm): (usize, &Vm)| Some((vm_id(number), vm.ties()?));
    let ties: SortedMap<_, _> = scenario.vms.iter().enumerate().filter_map(ties).collect();
    let mut draft = draft(scenario, mechanism, setup)?;
    draft.reserve(setup.reserve.iter().copied());
    let round_trip = round_trip(scenario);
    let can = Capabilities {
        limiter: true,
        timed: true,
        colours: true,
        paths,
        ..Capabilities::default()
    };
    let one = |(host, line): (usize, Rate)| {
        let here = scenario.vms.iter().enumerate().filter(|(_, vm)| vm.host == host);
        let law = draft.on(&Place { line, round_trip, can }).map_err(|what| {
            let advice = "change it, or leave it out";
            Unsupported::new("spec.mechanisms", what, advice)
        })?;
        let here_too = here.clone();
        let policy = Policy::new(HostId(host as u32), line, law).with_vms(here.map(hose));
        let further = here_too.filter(|(_, vm)| !vm.hoses.is_empty()).map(further).collect();
        let (directory, ties) = (directory.clone(), ties.clone());
        let policy = Policy { fastest_line, can, directory, further, ties, ..policy };
        policy.law.check(&policy).map_err(|refusal| {
            let name = &scenario.topology.hosts[host];
            let field = format!("spec.mechanisms ({}, host {name})", mechanism.label);
            Failure::Refused { field, refusal }
        })?;
        Ok(policy)
    };
    lines.into_iter().enumerate().map(one).collect()
}

/// The mechanism's constants at this scale.
fn draft(scenario: &Scenario, mechanism: &Mechanism, setup: &Setup) -> Result<Draft, Unsupported> {
    if let Some(draft) = &setup.draft {
        return Ok(draft.clone());
    }
    let row = mechanism.row.expect("there are no agents without a mechanism");
    let draft = mechanism.draft().map(|draft| draft.scaled(scenario.scale));
    draft.ok_or_else(|| {
        let what = format!("the preset `{}`", mechanism.preset);
        Unsupported::new("spec.mechanisms", what, row.no_preset(&mechanism.preset))
    })
}

/// Whether the mechanism can be played here: a user must learn that it cannot before an hour of
/// playing.
///
/// # Errors
///
/// The reason: the place in the file, and what would be right.
pub(super) fn check(
    scenario: &Scenario,
    mechanism: &Mechanism,
    setup: &Setup,
) -> Result<(), Failure> {
    let Some(row) = mechanism.row else { return Ok(()) };
    check_red(scenario, mechanism)?;
    let dies = scenario.faults.iter().find(|fault| fault.kind.is_of_agents());
    if let Some(fault) = dies.filter(|_| !row.returns) {
        let field = format!("spec.faults ({} at {})", fault.kind.name(), fault.at);
        let what = format!("an agent of `{}` that dies", mechanism.label);
        let advice = "leave the fault out, or play `elasticswitch`";
        return Err(Unsupported::new(field, what, advice).into());
    }
    policies(scenario, mechanism, setup, MAX_PATHS).map(drop)
}

/// RED's queue takes the place of the two that priorities need.
fn check_red(scenario: &Scenario, mechanism: &Mechanism) -> Result<(), Unsupported> {
    let red = scenario.topology.links.iter().find(|link| link.queueing.red.is_some());
    let Some(link) = red.filter(|_| has_priorities(mechanism)) else { return Ok(()) };
    let field = format!("spec.topology (link {}, red)", link.name);
    let what = format!("`red` beside the two priorities of `{}`", mechanism.label);
    Err(Unsupported::new(field, what, "leave it out"))
}

/// The longest round trip between hosts that talk, of the idle network: at rest queues are empty.
fn round_trip(scenario: &Scenario) -> Span {
    let topology = &scenario.topology;
    let mut ways = Ways::new(topology);
    let host = |vm: usize| scenario.vms[vm].host;
    let ends: SortedSet<(usize, usize)> = scenario
        .traffic
        .iter()
        .flat_map(|t| [(host(t.from), host(t.to)), (host(t.to), host(t.from))])
        .filter(|(from, to)| from != to)
        .collect();
    let link = |number: &u32| &topology.links[LinkDir::from_index(*number as usize).link];
    let mut pass = |(from, to): (usize, usize)| {
        // Equal ways have as many links; of what is drawn nothing else follows.
        let way = ways.draw(from, to, &mut Rng::new(0, 0));
        let cross = |n: &u32| link(n).delay + link(n).rate.time_for(FRAME);
        way.iter().map(cross).fold(Span::ZERO, |sum, span| sum + span)
    };
    let both = |(from, to): (usize, usize)| pass((from, to)) + pass((to, from));
    ends.into_iter().map(both).max().unwrap_or_default()
}

fn guarded(
    scenario: &Scenario,
    policy: Policy,
    journal: Option<&Path>,
) -> Result<GuardedHost, Failure> {
    let host = policy.host.0 as usize;
    let here = scenario.vms.iter().enumerate().filter(|(_, vm)| vm.host == host);
    let share = |(number, vm): (usize, &Vm)| {
        let floor = policy.law.promised(vm_id(number), vm.floors_out());
        Share { floor, cap: vm.cap_out }
    };
    let open = |dir: &Path| {
        let path = dir.join(&scenario.topology.hosts[host]);
        let log = Log::open_in(&path, Options::new(Pace::Waits));
        log.map_err(|error| Failure::Journal { path, error })
    };
    Ok(GuardedHost {
        shares: here.map(share).collect(),
        log: journal.map(open).transpose()?,
        troubles: troubles(scenario, host),
        drift: scenario.clock_drift,
        policy,
    })
}

fn troubles(scenario: &Scenario, host: usize) -> Vec<Trouble> {
    scenario.faults.iter().filter_map(|fault| trouble(fault, host)).collect()
}

/// Faults of a host's control messages, if a fault is of that kind.
fn trouble(fault: &Fault, host: usize) -> Option<Trouble> {
    let FaultKind::Control(control) = &fault.kind else { return None };
    control.hosts.contains(&host).then(|| Trouble {
        from: fault.at.as_nanos(),
        until: control.until.as_nanos(),
        loss: control.loss,
        duplicate: control.duplicate,
        reorder: control.reorder,
        delay: control.delay.as_nanos(),
        jitter: control.jitter.as_nanos(),
    })
}

#[cfg(test)]
mod tests;
