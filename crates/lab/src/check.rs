//! Requirements of a run, checked before anything is made.

use crate::play::SAMPLE_LEAST;
use crate::traffic::memcached;
use crate::{Error, Options, binding, budget, exec, traffic};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{AccessFlags, Uid, access};
use std::fs;
use std::path::Path;
use weir_model::scenario::{
    Ecmp, Fault, FaultKind, Link, Mechanism, Memcached, Scenario, TrafficKind, Vm,
};

/// Fails with the remedy if this machine cannot play `scenario`.
pub(crate) fn machine(
    scenario: &Scenario,
    mechanism: &Mechanism,
    options: &Options,
) -> Result<(), Error> {
    faults(scenario)?;
    translation(scenario, mechanism)?;
    binding::check(scenario, mechanism)?;
    budgets(scenario)?;
    samples(scenario)?;
    priorities(scenario)?;
    paths(scenario)?;
    sockets(scenario)?;
    controlled(scenario, mechanism)?;
    if !Uid::effective().is_root() {
        return Err(Error::NotRoot);
    }
    if mechanism.row.is_some() {
        let path = &options.agent;
        if !path.is_file() {
            return Err(Error::NoAgent { path: path.clone(), why: "no such file".into() });
        }
        access(path, AccessFlags::X_OK)
            .map_err(|errno| Error::NoAgent { path: path.clone(), why: errno.desc().into() })?;
        beside_agents()?;
    }
    for (_, _, exec) in exec::of(scenario) {
        beside_agents()?;
        for command in [&exec.server, &exec.client] {
            let name = command.split_whitespace().next().unwrap_or_default();
            if !Path::new(name).is_file() {
                program(name, "install it, or write its whole path")?;
            }
        }
    }
    if memcached::of(scenario).next().is_some() {
        beside_agents()?;
        program(memcached::PROGRAM, "install it: `apt-get install memcached`")?;
    }
    if scenario.topology.links.iter().any(Link::is_more_than_a_queue) {
        let path = Path::new(weir_dataplane::tap::DEVICE);
        if !path.exists() {
            return Err(Error::Missing {
                what: format!("{}, for a link with delay, RED, loss or paths", path.display()),
                remedy: "load the module tun, or use a kernel with CONFIG_TUN".into(),
            });
        }
    }
    congestion_controls(scenario)?;
    files(scenario)
}

/// Least width of a sample: a process reads the sockets, and its timer is not more exact.
fn samples(scenario: &Scenario) -> Result<(), Error> {
    if scenario.sample >= SAMPLE_LEAST {
        return Ok(());
    }
    Err(Error::Unsupported {
        what: format!("spec.sample is {}, less than {SAMPLE_LEAST}", scenario.sample),
        instead: "set it to 10ms or more, or play it with `weir sim`".into(),
    })
}

/// Refuses a link box with priorities, since it has one queue, and a marking port with them, since
/// it reads one queue.
fn priorities(scenario: &Scenario) -> Result<(), Error> {
    let has_one = |link: &&Link| link.is_more_than_a_queue() || link.queueing.ecn.is_some();
    let mut links = scenario.topology.links.iter().filter(|link| link.queueing.priorities);
    let Some(link) = links.find(has_one) else { return Ok(()) };
    Err(Error::Unsupported {
        what: format!(
            "spec.topology has `priorities` at link {} beside `ecn`, `delay`, `red`, `loss` or `paths`",
            link.name
        ),
        instead: "leave one of them out, or play it with `weir sim`".into(),
    })
}

/// Refuses settings of guests' kernels, since all guests of the lab are sockets of this kernel.
fn sockets(scenario: &Scenario) -> Result<(), Error> {
    let other = |vm: &&Vm| vm.backpressure || vm.deaf;
    let Some(vm) = scenario.vms.iter().find(other) else { return Ok(()) };
    let key = if vm.deaf { "deaf" } else { "backpressure" };
    Err(Error::Unsupported {
        what: format!("spec.tenants has `{key}` at {}", vm.name),
        instead: "leave it out, or play it with `weir sim`".into(),
    })
}

/// Refuses faults that the lab cannot play. Namespaces share one clock and one kernel, so the lab
/// breaks agents, their messages and ports of VMs, nothing else.
fn faults(scenario: &Scenario) -> Result<(), Error> {
    let Some(fault) = scenario.faults.iter().find(|fault| {
        !matches!(
            fault.kind,
            FaultKind::KillAgent { .. }
                | FaultKind::StartAgent { .. }
                | FaultKind::RestartAgent { .. }
                | FaultKind::StopVm { .. }
                | FaultKind::StartVm { .. }
                | FaultKind::BreakPort { .. }
                | FaultKind::Control(_)
        )
    }) else {
        return Ok(());
    };
    Err(Error::Unsupported {
        what: format!("spec.faults has `{}` at {}", fault.kind.name(), fault.at),
        instead: "play it with `weir sim`".into(),
    })
}

/// Whether the lab itself translates or bounds windows, because no agent does it.
pub(crate) fn translates(scenario: &Scenario, mechanism: &Mechanism) -> bool {
    let is_asked = mechanism.translation.is_some() || has_budget(scenario).is_some();
    mechanism.row.is_none() && is_asked
}

fn has_budget(scenario: &Scenario) -> Option<&Vm> {
    scenario.vms.iter().find(|vm| vm.budget.is_some())
}

/// Without an agent, a port that is made anew has no program.
fn translation(scenario: &Scenario, mechanism: &Mechanism) -> Result<(), Error> {
    let mut faults =
        scenario.faults.iter().filter(|fault| !matches!(fault.kind, FaultKind::Control(_)));
    let Some(fault) = faults.next().filter(|_| translates(scenario, mechanism)) else {
        return Ok(());
    };
    let what = match has_budget(scenario).filter(|_| mechanism.translation.is_none()) {
        Some(vm) => format!("a budget at {} beside `{}`", vm.name, mechanism.label),
        None => format!("`{}`", mechanism.label),
    };
    Err(Error::Unsupported {
        what: format!("{what} with `{}` at {}", fault.kind.name(), fault.at),
        instead: "leave the translation, the budget or the fault out".into(),
    })
}

/// Refuses a budget whose groups ports do not distinguish.
fn budgets(scenario: &Scenario) -> Result<(), Error> {
    (0..scenario.vms.len()).try_for_each(|vm| budget::classes(scenario, vm).map(drop))
}

/// Refuses what a controller cannot tell a host.
fn controlled(scenario: &Scenario, mechanism: &Mechanism) -> Result<(), Error> {
    if !scenario.lab.controller || mechanism.row.is_none() {
        return Ok(());
    }
    let comes =
        |fault: &&Fault| matches!(fault.kind, FaultKind::StopVm { .. } | FaultKind::StartVm { .. });
    let dies =
        |fault: &&Fault| matches!(fault.kind, FaultKind::KillAgent { host: 0, guardian: true });
    let of_vm = |vm: &&Vm| vm.budget.is_some() || !vm.outside.is_empty();
    let what = if mechanism.translation.is_some() {
        "a translation".to_owned()
    } else if mechanism.reserves() {
        "a reservation, whose rates are in the agents' files".to_owned()
    } else if let Some(vm) = scenario.vms.iter().find(of_vm) {
        format!("`{}` with `{}`", vm.name, if vm.budget.is_some() { "budget" } else { "outside" })
    } else if let Some(vm) = scenario.vms.iter().find(|vm| vm.external.ceiling.is_some()) {
        format!("`{}` with `external_ceiling`", vm.name)
    } else if let Some(fault) = scenario.faults.iter().find(comes) {
        format!("`{}` at {}", fault.kind.name(), fault.at)
    } else if let Some(fault) = scenario.faults.iter().find(dies) {
        format!("a guardian of the controller's host that is killed at {}", fault.at)
    } else {
        return Ok(());
    };
    Err(Error::Unsupported {
        what: format!("spec.lab has `controller: true` beside {what}"),
        instead: "leave one of them out".into(),
    })
}

/// Refuses paths that hosts choose: the lab's switches do.
fn paths(scenario: &Scenario) -> Result<(), Error> {
    if scenario.topology.ecmp != Some(Ecmp::Host) {
        return Ok(());
    }
    Err(Error::Unsupported {
        what: "spec.topology has `ecmp: host`, and in the lab switches choose among equal paths"
            .into(),
        instead: "write `ecmp: flow`, or play it with `weir sim`".into(),
    })
}

/// Program that starts a process in a namespace, so that it ends with the lab.
fn beside_agents() -> Result<(), Error> {
    ["nsenter", "setpriv"]
        .into_iter()
        .try_for_each(|n| program(n, "install the package util-linux"))
}

fn program(name: &str, remedy: &str) -> Result<(), Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|directory| directory.join(name).is_file()) {
        return Ok(());
    }
    Err(Error::Missing { what: format!("the program `{name}`"), remedy: remedy.into() })
}

/// Root may use any congestion control that the kernel has, also one that is not allowed to users.
fn congestion_controls(scenario: &Scenario) -> Result<(), Error> {
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .map_err(Error::io("read the congestion controls of this kernel"))?;
    for traffic in &scenario.traffic {
        let Some(congestion) = traffic.kind.congestion() else { continue };
        let module = || loadable(congestion);
        if !available.split_whitespace().any(|name| name == congestion) && !module() {
            return Err(Error::Missing {
                what: format!("the TCP congestion control `{congestion}`"),
                remedy: format!(
                    "this kernel has {}: use one of them, or load tcp_{congestion}",
                    available.trim().replace(' ', ", ")
                ),
            });
        }
    }
    Ok(())
}

/// Whether a module of that name is installed: the kernel loads it when root asks for it.
fn loadable(congestion: &str) -> bool {
    let Ok(release) = fs::read_to_string("/proc/sys/kernel/osrelease") else { return false };
    let directory = Path::new("/lib/modules").join(release.trim()).join("kernel/net/ipv4");
    fs::read_dir(directory).is_ok_and(|entries| {
        let prefix = format!("tcp_{congestion}.ko");
        entries.flatten().any(|e| e.file_name().to_string_lossy().starts_with(&prefix))
    })
}

/// Descriptors that a play may need: one for each namespace and its routing socket, two or three
/// for each connection.
fn descriptors(scenario: &Scenario) -> u64 {
    let nodes =
        scenario.topology.hosts.len() + scenario.topology.switches.len() + scenario.vms.len();
    let sockets: usize = scenario
        .traffic
        .iter()
        .map(|t| match t.kind {
            TrafficKind::Tcp { connections, .. } => 2 * connections as usize + 1,
            TrafficKind::Udp { .. } => 2,
            TrafficKind::Memcached(Memcached { connections, .. }) => connections as usize,
            _ => 0,
        })
        .sum();
    (2 * nodes + sockets + traffic::descriptors(&scenario.traffic) + 200) as u64
}

fn files(scenario: &Scenario) -> Result<(), Error> {
    let needed = descriptors(scenario);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(Error::kernel("read the limit of open files"))?;
    if soft >= needed {
        return Ok(());
    }
    // Root may raise the hard limit too, unless a container forbids it.
    setrlimit(Resource::RLIMIT_NOFILE, needed, needed.max(hard)).map_err(|_| Error::Missing {
        what: format!("room for {needed} open files (the limit is {hard})"),
        remedy: "raise it with `ulimit -n`".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::scenario::{Fault, File};
    use weir_units::Span;

    #[test]
    fn a_fault_that_only_the_simulator_has_is_refused_by_name_even_where_nothing_protects() {
        let mut scenario = crate::plan::tests::scenario(2, 1, &[(0, 2), (1, 2)]);
        assert!(faults(&scenario).is_ok());
        let at = Span::from_secs(3);
        scenario.faults =
            vec![Fault { at, kind: FaultKind::KillAgent { host: 0, guardian: false } }];
        assert!(faults(&scenario).is_ok());
        scenario.faults.push(Fault { at, kind: FaultKind::LinkDown { link: 0 } });
        let text = faults(&scenario).expect_err("no such thing").to_string();
        assert!(text.contains("`link-down` at 3 s") && text.contains("weir sim"), "{text}");
    }

    #[test]
    fn a_translation_without_agents_beside_ports_that_come_anew_is_refused_by_name() {
        let mut scenario = crate::plan::tests::scenario(2, 1, &[(0, 2), (1, 2)]);
        let of = |label: &str| Mechanism::parse(label).expect("known");
        let at = Span::from_secs(3);
        scenario.faults = vec![Fault { at, kind: FaultKind::StopVm { vm: 0 } }];
        assert!(translation(&scenario, &of("none")).is_ok());
        let text = translation(&scenario, &of("none+dctcp")).expect_err("no port").to_string();
        assert!(text.contains("`none+dctcp` with `stop-vm` at 3 s"), "{text}");
        assert!(translation(&scenario, &of("elasticswitch:steady+dctcp")).is_ok(), "agents do it");
        scenario.faults.clear();
        assert!(translation(&scenario, &of("none+dctcp")).is_ok());
    }

    #[test]
    fn pairs_that_come_by_the_hundred_need_no_more_descriptors_than_a_container_has() {
        let text = include_str!("../../../scenarios/elasticswitch/churn.yaml");
        let file = File::parse("churn.yaml", text, &[]).expect("a shipped scenario");
        for scenario in file.points().expect("its points") {
            let needed = descriptors(&scenario);
            assert!((2_000..15_000).contains(&needed), "{needed}");
        }
    }

    #[test]
    fn samples_that_are_too_short_and_two_queues_beside_more_than_a_queue_are_refused_by_name() {
        let mut scenario = crate::plan::tests::scenario(2, 1, &[(0, 2), (1, 2)]);
        scenario.sample = SAMPLE_LEAST;
        scenario.topology.links[0].queueing.priorities = true;
        assert!(samples(&scenario).is_ok() && priorities(&scenario).is_ok());
        scenario.sample = Span::from_millis(1);
        let text = samples(&scenario).expect_err("too short").to_string();
        assert!(text.contains("spec.sample is 1 ms") && text.contains("10 ms"), "{text}");
        scenario.topology.links[0].delay = Span::from_micros(1);
        let text = priorities(&scenario).expect_err("a box").to_string();
        assert!(text.contains("`priorities` at link") && text.contains("`delay`"), "{text}");
    }

    #[test]
    fn paths_that_hosts_are_to_choose_from_are_refused_by_name() {
        let mut scenario = crate::plan::tests::scenario(2, 1, &[(0, 2), (1, 2)]);
        assert!(paths(&scenario).is_ok());
        scenario.topology.ecmp = Some(Ecmp::Host);
        let text = paths(&scenario).expect_err("no such thing").to_string();
        assert!(text.contains("`ecmp: host`") && text.contains("weir sim"), "{text}");
    }
}
