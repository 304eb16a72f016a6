//! From a scenario to what the controller of a run knows: links, ports of switches, tenants.
//!
//! Promises  Only what the lab can play: anything else is refused before anything is made.
//! Not here  The law: `weir_core::binding`. The same for virtual time: `weir_sim`.

use crate::{Error, plan};
use std::collections::BTreeMap;
use weir_core::binding::control::{Config, Member, Provision};
use weir_core::binding::switch::{Abilities, PortAbilities, PortName, PortQueues, SwitchConfig};
use weir_core::binding::{Binder, Fabric, LinkPorts, MostWeight, Provisioned, SHARED};
use weir_core::ledger::{Direction, LinkId, SwitchId};
use weir_model::scenario::{Bound, Link, LinkDir, Mechanism, Scenario};
use weir_units::{Bytes, HostId, Span};

/// No packet is under way for longer: a full queue of every port on its way, at its weight.
const LINGER: Span = Span::from_millis(500);
/// A switch that has not answered for so long has failed.
const PATIENCE: Span = Span::from_secs(2);
/// How often static queues are read.
const READ: Span = Span::from_secs(4);

/// What a run's controller knows.
pub(super) struct Known {
    pub(super) config: Config,
    pub(super) binder: Binder,
    pub(super) members: Vec<Member>,
    /// What switches are given before any packet.
    pub(super) initial: BTreeMap<SwitchId, SwitchConfig>,
    /// Octets that a queue of each switch may hold.
    pub(super) buffers: BTreeMap<SwitchId, Bytes>,
    /// Each host's link, and the direction that leaves the host.
    pub(super) cards: BTreeMap<HostId, (LinkId, Direction)>,
}

const fn way(direction: LinkDir) -> Direction {
    if direction.reverse { Direction::Backward } else { Direction::Forward }
}

/// Refuses what cannot be played beside bound tenants.
pub(crate) fn check(scenario: &Scenario, mechanism: &Mechanism) -> Result<(), Error> {
    let Some(bound) = mechanism.bound else { return Ok(()) };
    let refuse =
        |what: String, instead: &str| Err(Error::Unsupported { what, instead: instead.to_owned() });
    if mechanism.name() == "eyeq" {
        let what =
            format!("spec.mechanisms has `{}`: EyeQ has code points of its own", mechanism.label);
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
    if !scenario.faults.is_empty() {
        let what = format!("spec.faults beside `{}`", mechanism.label);
        return refuse(what, "leave one of them out, or play it with `weir sim`");
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
    let (topology, asked) = (&scenario.topology, &scenario.binding);
    let hosts = topology.hosts.len();
    let fabric = Fabric {
        links: topology
            .links
            .iter()
            .map(|link| LinkPorts { rate: link.rate, queues: asked.queues })
            .collect(),
        codepoints: scenario.code_points(),
        most_weight: MostWeight::new(asked.most_weight),
        last_queue: asked.last_queue,
    };
    let mut ports = BTreeMap::new();
    let mut switches: BTreeMap<SwitchId, Abilities> = BTreeMap::new();
    let mut initial: BTreeMap<SwitchId, SwitchConfig> = BTreeMap::new();
    let mut buffers: BTreeMap<SwitchId, Bytes> = BTreeMap::new();
    for index in 0..2 * topology.links.len() {
        let direction = LinkDir::from_index(index);
        let node = direction.from(topology);
        let Some(switch) = node.checked_sub(hosts) else { continue };
        let switch = SwitchId(switch as u32);
        let link = &topology.links[direction.link];
        let name = PortName::from(plan::link_port(scenario, node, direction.link).0.as_str());
        let able = switches.entry(switch).or_insert_with(|| Abilities {
            ports: BTreeMap::new(),
            classes: None,
            most_weight: fabric.most_weight,
            reserved_codepoints: Default::default(),
        });
        let has =
            PortAbilities { rate: link.rate, queues: asked.queues, reserved: Default::default() };
        able.ports.insert(name.clone(), has);
        let first = match bound {
            Bound::Loop => PortQueues::shared_alone(link.rate, SHARED),
            Bound::Static => scenario.provisioned(link.rate),
        };
        initial.entry(switch).or_default().ports.insert(name.clone(), first);
        let buffer = buffers.entry(switch).or_insert(link.buffer);
        *buffer = (*buffer).max(link.buffer);
        ports.insert((LinkId(direction.link as u32), way(direction)), (switch, name));
    }
    let (interval, provision) = match bound {
        Bound::Loop => (asked.interval, Provision::Loop),
        Bound::Static => (asked.rebind, Provision::Static { read: READ }),
    };
    let binder = match bound {
        Bound::Loop => Binder::new(fabric.clone()),
        Bound::Static => {
            let own = fabric.codepoints.iter().map(|point| (*point, 1)).collect();
            Binder::provisioned(fabric.clone(), Provisioned { shared: asked.shared_weight, own })
        }
    };
    let config = Config {
        fabric,
        ports,
        switches,
        provision,
        interval,
        linger: LINGER,
        patience: PATIENCE,
        seed: 1,
    };
    Known { config, binder, members: scenario.members(), initial, buffers, cards: cards(scenario) }
}

/// Each host's only link.
fn cards(scenario: &Scenario) -> BTreeMap<HostId, (LinkId, Direction)> {
    let links = || scenario.topology.links.iter().enumerate();
    let card = |host: usize| {
        let (at, link) = links().find(|(_, link)| link.a == host || link.b == host)?;
        let out = if link.a == host { Direction::Forward } else { Direction::Backward };
        Some((HostId(host as u32), (LinkId(at as u32), out)))
    };
    (0..scenario.topology.hosts.len()).filter_map(card).collect()
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
    fn a_runs_controller_knows_all_ports_of_switches_and_no_port_of_a_host() {
        let scenario = scenario(", binding: {queues: 3, shared_weight: 8}", "");
        let known = known(&scenario, Bound::Static);
        // Two switches: each has a port to the other and two to hosts.
        assert_eq!(known.config.ports.len(), 6);
        assert!(known.initial.values().all(|switch| switch.ports.len() == 3));
        let port = known.initial[&SwitchId(0)].ports.values().next().expect("three");
        assert_eq!(port.weights, BTreeMap::from([(0, 8), (1, 1), (2, 1)]));
        assert_eq!(port.queue_of, BTreeMap::from([(1, 1), (2, 2)]));
        assert_eq!(known.cards.len(), 4);
        let hosts: Vec<u32> = known.members[0].hosts.iter().map(|host| host.0).collect();
        assert_eq!((known.members.len(), hosts), (1, vec![0, 1, 2, 3]));
        let alone = super::known(&scenario, Bound::Loop);
        assert!(alone.initial[&SwitchId(1)].ports.values().all(|port| port.queue_of.is_empty()));
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
        ] {
            assert!(got.contains(wanted), "{got}");
        }
        let mechanism = Mechanism::parse(floors).expect("known");
        check(&scenario("", ""), &mechanism).expect("it can");
    }
}
