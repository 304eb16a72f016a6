//! From a scenario and a mechanism to an agent on each host.
//!
//! Problem   Hoses, directories, constants and classes must be those that the lab writes into each
//!           agent's configuration.
//! Approach  The same settings that `weir-lab` writes and `weir-agent` reads, without the text
//!           between them. Constants that are rates follow the scenario's scale, and each VM's
//!           class is guaranteed the sum of what its pairs may be promised.
//! Promises  All pairs that may send are known: those of the traffic and, for ACKs, their reverse.
//! Source    `weir-lab`'s `agents.rs`, `weir-agent`'s `config.rs` and `driver.rs` (`guaranteed`).

use super::build::{Part, Plan};
use super::{Failure, Setup, Unsupported};
use crate::host::{Guard, GuardedHost, GuardedPair, Lists, PathLinks, Share, Trouble};
use std::collections::{BTreeMap, BTreeSet};
use weir_core::eyeq::HostConfig as EyeqConfig;
use weir_core::host::{ElasticSwitch, Hose, HostConfig, Location, Mechanism as Law};
use weir_core::path::MAX_PATHS;
use weir_model::scenario::{Ecmp, Fault, FaultKind, Mechanism, MechanismKind, Scenario};
use weir_units::{HostId, PairId, Rate, TenantId, VmId};

/// The agents of a run; `None` without a mechanism.
pub(super) fn guard(
    scenario: &Scenario,
    mechanism: &Mechanism,
    plan: &Plan,
    setup: &Setup,
) -> Result<Option<Guard>, Failure> {
    if mechanism.kind == MechanismKind::None {
        return Ok(None);
    }
    let paths = paths(scenario, mechanism, plan)?;
    let count = paths.values().next().map_or(1, Vec::len);
    let hosts: Vec<GuardedHost> = if mechanism.kind == MechanismKind::EyeQ {
        let configs = super::eyeq::configs(scenario, mechanism, setup)?;
        configs.into_iter().enumerate().map(|(host, c)| by_eyeq(scenario, host, c)).collect()
    } else {
        let hosts = (0..scenario.topology.hosts.len()).map(|host| -> Result<_, Failure> {
            let line = line(scenario, host)?;
            Ok(guarded(scenario, host, line, law(scenario, mechanism, setup, (line, count))?))
        });
        hosts.collect::<Result<Vec<_>, _>>()?
    };
    let pair = |t: &weir_model::scenario::Traffic| PairId::new(vm_id(t.from), vm_id(t.to));
    let ids: BTreeSet<PairId> =
        scenario.traffic.iter().flat_map(|t| [pair(t), pair(t).reversed()]).collect();
    let host_of = |vm: VmId| scenario.vms[vm.0 as usize].host as u32;
    let guarded = |id: &PairId| GuardedPair { id: *id, from: host_of(id.src), to: host_of(id.dst) };
    let numbers: BTreeMap<PairId, u32> = ids.iter().copied().zip(0..).collect();
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
) -> Result<PathLinks, Unsupported> {
    let preset = ElasticSwitch::preset(&mechanism.preset);
    let divides = preset.is_some_and(|es| es.paths.count > 1);
    if mechanism.kind != MechanismKind::ElasticSwitch || !divides {
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

/// The law with the constants it has at this scale, for hosts with so many paths to each other.
fn law(
    scenario: &Scenario,
    mechanism: &Mechanism,
    setup: &Setup,
    (line, paths): (Rate, usize),
) -> Result<Law, Failure> {
    let elastic = |es: ElasticSwitch| {
        let es = setup.law.clone().unwrap_or_else(|| es.scaled(scenario.scale));
        Law::ElasticSwitch(Box::new(es.with_paths(paths)))
    };
    match mechanism.kind {
        MechanismKind::ElasticSwitch => {
            let preset = ElasticSwitch::preset(&mechanism.preset).ok_or_else(|| {
                let what = format!("the preset `{}`", mechanism.preset);
                let known = format!("there are {}", ElasticSwitch::ALL_PRESETS.join(", "));
                Unsupported::new("spec.mechanisms", what, known)
            })?;
            Ok(elastic(preset))
        }
        MechanismKind::Seawall => Ok(elastic(ElasticSwitch::seawall())),
        // EyeQ has its own, and nothing has none.
        MechanismKind::Reservation | MechanismKind::None | MechanismKind::EyeQ => {
            Ok(Law::Reservation {
                rates: setup.reserve.iter().copied().collect(),
                other: setup.unreserved.unwrap_or_else(|| Law::unforeseen(scenario.scale, line)),
            })
        }
    }
}

/// A host with EyeQ's machine, which itself decides the sum of its VMs' rates.
fn by_eyeq(scenario: &Scenario, host: usize, config: EyeqConfig) -> GuardedHost {
    let here = scenario.vms.iter().filter(|vm| vm.host == host);
    GuardedHost {
        shares: here.map(|vm| Share { floor: vm.floor_out, cap: vm.cap_out }).collect(),
        troubles: troubles(scenario, host),
        lists: Lists::EyeQ(config),
    }
}

fn guarded(scenario: &Scenario, host: usize, line: Rate, law: Law) -> GuardedHost {
    let here = || scenario.vms.iter().enumerate().filter(|(_, vm)| vm.host == host);
    let share = |(number, vm): (usize, &weir_model::scenario::Vm)| Share {
        floor: law.promised(vm_id(number), vm.floor_out),
        cap: vm.cap_out,
    };
    let hose = |(number, vm): (usize, &weir_model::scenario::Vm)| {
        (vm_id(number), Hose { floor_out: vm.floor_out, floor_in: vm.floor_in })
    };
    let location = |(number, vm): (usize, &weir_model::scenario::Vm)| {
        let (tenant, host) = (TenantId(vm.tenant as u32), HostId(vm.host as u32));
        (vm_id(number), Location { tenant, host })
    };
    GuardedHost {
        shares: here().map(share).collect(),
        troubles: troubles(scenario, host),
        lists: Lists::Pairs(HostConfig {
            host: HostId(host as u32),
            line,
            vms: here().map(hose).collect(),
            directory: scenario.vms.iter().enumerate().map(location).collect(),
            mechanism: law,
        }),
    }
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
