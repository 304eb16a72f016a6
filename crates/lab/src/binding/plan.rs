//! From a scenario to what the controller of a run knows: links, ports of switches, tenants.
//!
//! Promises  Only what the lab can play: anything else is refused before anything is made.
//! Not here  The law: `weir_core::binding`. What the simulator's controller knows too:
//!           `weir_model::scenario::BoundRun`.

use crate::{Error, plan};
use weir_core::binding::switch::PortName;
use weir_core::ledger::SwitchId;
use weir_model::scenario::{Bound, BoundRun, FaultKind, Link, LinkDir, Mechanism, Pace, Scenario};
use weir_units::{Bytes, SortedMap, Span};

/// No packet is under way for longer: a full queue of every port on its way, at its weight.
const LINGER: Span = Span::from_millis(500);
/// The same for queues that stay: what hosts' shapers hold, and the way to the first switch. What is in the
/// ports' queues then passes before the successor's packets.
const LINGER_STATIC: Span = Span::from_millis(20);
/// A switch that has not answered for so long has failed.
const PATIENCE: Span = Span::from_secs(2);

/// What a run's controller knows.
pub(super) struct Known {
    pub(super) run: BoundRun,
    /// Octets that a queue of each switch may hold.
    pub(super) buffers: SortedMap<SwitchId, Bytes>,
}

/// Refuses what cannot be played beside bound tenants.
pub(crate) fn check(scenario: &Scenario, mechanism: &Mechanism) -> Result<(), Error> {
    let Some(bound) = mechanism.bound else { return Ok(()) };
    let refuse =
        |what: String, instead: &str| Err(Error::Unsupported { what, instead: instead.to_owned() });
    if let Some(row) = mechanism.row.filter(|row| row.own_code_points) {
        let what = format!(
            "spec.mechanisms has `{}`: {} has code points of its own",
            mechanism.label, row.title
        );
        return refuse(what, "bind tenants of `elasticswitch`");
    }
    if bound == Bound::Static && scenario.binding.shared_weight == 0 {
        let what = "spec.binding has no `shared_weight`, which static queues need".to_owned();
        return refuse(what, "write `binding: {shared_weight: 8}`: all others weigh 1");
    }
    if scenario.lab.controller {
        let what =
            format!("`spec.lab.controller` beside `{}`: it binds no tenants", mechanism.label);
        return refuse(what, "leave one of them out");
    }
    // Agents find their tenants' orders in their files again. VMs that come and go are written by another
    // hand into the same files.
    let is_of_agents = |kind: &FaultKind| {
        matches!(
            kind,
            FaultKind::KillAgent { .. }
                | FaultKind::StartAgent { .. }
                | FaultKind::RestartAgent { .. }
                | FaultKind::Control(_)
        )
    };
    if let Some(fault) = scenario.faults.iter().find(|fault| !is_of_agents(&fault.kind)) {
        let what = format!("spec.faults has `{}` beside `{}`", fault.kind.name(), mechanism.label);
        return refuse(what, "break agents or control messages only, or play it with `weir sim`");
    }
    let other = |link: &&Link| link.queueing.priorities || link.is_more_than_a_queue();
    if let Some(link) = scenario.topology.links.iter().find(other) {
        let what = format!(
            "spec.topology has `priorities`, `delay`, `red`, `loss` or `paths` at link {} beside \
             weighted queues",
            link.name
        );
        return refuse(what, "leave it out, or play it with `weir sim`");
    }
    Ok(())
}

pub(super) fn known(scenario: &Scenario, bound: Bound) -> Known {
    let topology = &scenario.topology;
    let name = |into: LinkDir| {
        let (name, _) = plan::link_port(scenario, into.from(topology), into.link);
        PortName::from(name.as_str())
    };
    let linger = match bound {
        Bound::Loop => LINGER,
        Bound::Static => LINGER_STATIC,
    };
    let pace = Pace { linger, patience: PATIENCE, seed: 1 };
    let run = scenario.bound_run(bound, pace, name);
    let mut buffers: SortedMap<SwitchId, Bytes> = SortedMap::new();
    for ((switch, _), into) in &run.sends_into {
        let buffer = buffers.entry(*switch).or_default();
        *buffer = (*buffer).max(topology.links[into.link].buffer);
    }
    Known { run, buffers }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::scenario::File;

    fn scenario(more: &str, edge: &str) -> Scenario {
        let vms = "[{name: l, hosts: [left-0, left-1], count: 2, floor: 10Mbit}, \
                    {name: r, hosts: [right-0, right-1], count: 2, floor: 10Mbit}]";
        let text = format!(
            "{{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {{name: t}}, spec: {{duration: 9s, \
             topology: {{dumbbell: {{left: 2, right: 2, edge: 100Mbit, core: 100Mbit{edge}}}}}, \
             tenants: [{{name: a, vms: {vms}}}], mechanisms: none{more}}}}}"
        );
        let file = File::parse("t.yaml", &text, &[]).expect("sound");
        file.points().expect("sound").remove(0)
    }

    #[test]
    fn a_queue_of_a_switch_holds_what_its_links_do_and_ports_have_the_labs_names() {
        let scenario = scenario(", binding: {queues: 3, shared_weight: 8}", "");
        let Known { run, buffers } = known(&scenario, Bound::Static);
        let most = scenario.topology.links.iter().map(|link| link.buffer).max();
        assert_eq!(buffers.values().copied().max(), most);
        assert_eq!(buffers.len(), 2);
        for ((switch, name), into) in &run.sends_into {
            let node = scenario.topology.hosts.len() + switch.0 as usize;
            assert_eq!(name.to_string(), plan::link_port(&scenario, node, into.link).0);
        }
    }

    #[test]
    fn what_cannot_be_played_beside_bound_tenants_is_refused_with_the_field() {
        let refused = |more: &str, edge: &str, label: &str| {
            let mechanism = Mechanism::parse(label).expect("known");
            let error = check(&scenario(more, edge), &mechanism).expect_err("refused");
            error.to_string()
        };
        let floors = "elasticswitch:floors@loop";
        for (got, wanted) in [
            (refused("", "", "elasticswitch:floors@static"), "spec.binding has no `shared_weight`"),
            (refused("", "", "eyeq@loop"), "EyeQ has code points of its own"),
            (refused("", ", delay: 1ms", floors), "spec.topology has `priorities`, `delay`"),
            (refused(", faults: [{at: 1s, stop-vm: l}]", "", floors), "spec.faults has `stop-vm`"),
        ] {
            assert!(got.contains(wanted), "{got}");
        }
        let mechanism = Mechanism::parse(floors).expect("known");
        check(&scenario("", ""), &mechanism).expect("it can");
        let agents = ", faults: [{at: 1s, kill-agent: left-0}, {at: 2s, start-agent: left-0}]";
        check(&scenario(agents, ""), &mechanism).expect("an agent finds its orders again");
    }
}
