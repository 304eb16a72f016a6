//! What the controller of a run knows that binds tenants to queues: links, ports, switches, tenants.
//!
//! Promises  The simulator and the lab play the same controller: only times and the names of ports are
//!           their own.
//! Not here  What a world cannot play: each world refuses that itself.

use super::{Bound, LinkDir, Scenario};
use weir_core::binding::control::{Config, Member, Provision};
use weir_core::binding::switch::{Abilities, PortAbilities, PortName, PortQueues, SwitchConfig};
use weir_core::binding::{Binder, Fabric, LinkPorts, MostWeight, Provisioned, SHARED};
use weir_core::ledger::{Direction, LinkId, SwitchId};
use weir_units::{HostId, SortedMap, Span};

/// How often static queues are read.
const READ: Span = Span::from_secs(4);

/// A run's controller before it begins.
#[derive(Clone, Debug)]
pub struct BoundRun {
    /// What the loop is told once.
    pub config: Config,
    /// Which tenant has which queue: none yet.
    pub binder: Binder,
    /// All tenants.
    pub members: Vec<Member>,
    /// What switches are given before any packet.
    pub initial: SortedMap<SwitchId, SwitchConfig>,
    /// The direction of a link into which a switch's port sends.
    pub sends_into: SortedMap<(SwitchId, PortName), LinkDir>,
    /// Each host's link, and the direction that leaves the host.
    pub cards: SortedMap<HostId, (LinkId, Direction)>,
}

/// What differs between worlds.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// See [`Config::linger`].
    pub linger: Span,
    /// See [`Config::patience`].
    pub patience: Span,
    /// Breaks ties.
    pub seed: u64,
}

impl LinkDir {
    /// The same in the ledger's words.
    pub const fn way(self) -> (LinkId, Direction) {
        let direction = if self.reverse { Direction::Backward } else { Direction::Forward };
        (LinkId(self.link as u32), direction)
    }
}

impl Scenario {
    /// The controller of a run. `port` names the port of a switch that sends into a link's direction.
    pub fn bound_run(
        &self,
        bound: Bound,
        pace: Pace,
        port: impl Fn(LinkDir) -> PortName,
    ) -> BoundRun {
        let (topology, asked) = (&self.topology, &self.binding);
        let ports_of = |link: &super::Link| LinkPorts { rate: link.rate, queues: asked.queues };
        let fabric = Fabric {
            links: topology.links.iter().map(ports_of).collect(),
            codepoints: self.code_points(),
            most_weight: MostWeight::new(asked.most_weight),
            last_queue: asked.last_queue,
        };
        let mut sends_into = SortedMap::new();
        let mut ports = SortedMap::new();
        let mut switches: SortedMap<SwitchId, Abilities> = SortedMap::new();
        let mut initial: SortedMap<SwitchId, SwitchConfig> = SortedMap::new();
        for direction in (0..2 * topology.links.len()).map(LinkDir::from_index) {
            let node = direction.from(topology);
            let Some(switch) = node.checked_sub(topology.hosts.len()) else { continue };
            let (switch, name) = (SwitchId(switch as u32), port(direction));
            let rate = topology.links[direction.link].rate;
            let able = switches.entry(switch).or_insert_with(|| Abilities {
                ports: SortedMap::new(),
                classes: None,
                most_weight: fabric.most_weight,
                reserved_codepoints: Default::default(),
            });
            let has = PortAbilities { rate, queues: asked.queues, reserved: Default::default() };
            able.ports.insert(name.clone(), has);
            let first = match bound {
                Bound::Loop => PortQueues::shared_alone(rate, SHARED),
                Bound::Static => self.provisioned(rate),
            };
            initial.entry(switch).or_default().ports.insert(name.clone(), first);
            ports.insert(direction.way(), (switch, name.clone()));
            sends_into.insert((switch, name), direction);
        }
        let (interval, provision) = match bound {
            Bound::Loop => (asked.interval, Provision::Loop),
            Bound::Static => (asked.rebind, Provision::Static { read: READ }),
        };
        let binder = match bound {
            Bound::Loop => Binder::new(fabric.clone()),
            Bound::Static => {
                let own = fabric.codepoints.iter().map(|point| (*point, 1)).collect();
                let provisioned = Provisioned { shared: asked.shared_weight, own };
                Binder::provisioned(fabric.clone(), provisioned)
            }
        };
        let Pace { linger, patience, seed } = pace;
        let config =
            Config { fabric, ports, switches, provision, interval, linger, patience, seed };
        let members = self.members();
        BoundRun { config, binder, members, initial, sends_into, cards: self.cards() }
    }

    /// The first link of each host, and the direction that leaves the host.
    fn cards(&self) -> SortedMap<HostId, (LinkId, Direction)> {
        let topology = &self.topology;
        let card = |host: usize| {
            let link = topology.links.iter().position(|link| link.a == host || link.b == host)?;
            let reverse = topology.links[link].a != host;
            Some((HostId(host as u32), LinkDir { link, reverse }.way()))
        };
        (0..topology.hosts.len()).filter_map(card).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::File;

    #[test]
    fn a_runs_controller_knows_all_ports_of_switches_and_no_port_of_a_host() {
        let text = "{apiVersion: weir/v1alpha1, kind: Scenario, metadata: {name: t}, spec: {duration: \
                    9s, topology: {dumbbell: {left: 2, right: 2, edge: 100Mbit, core: 100Mbit}}, \
                    tenants: [{name: a, vms: [{name: l, hosts: [left-0, left-1], count: 2, floor: \
                    10Mbit}, {name: r, hosts: [right-0, right-1], count: 2, floor: 10Mbit}]}], \
                    mechanisms: none, binding: {queues: 3, shared_weight: 8}}}";
        let file = File::parse("t.yaml", text, &[]).expect("sound");
        let scenario = file.points().expect("sound").remove(0);
        let span = Span::from_millis(20);
        let pace = Pace { linger: span, patience: span, seed: 7 };
        let port = |into: LinkDir| {
            PortName::from(format!("{}-{}", into.link, u8::from(into.reverse)).as_str())
        };
        let run = scenario.bound_run(Bound::Static, pace, port);
        // Two switches: each has a port to the other and two to hosts.
        assert_eq!((run.config.ports.len(), run.sends_into.len()), (6, 6));
        assert!(run.initial.values().all(|switch| switch.ports.len() == 3));
        for (at, (switch, name)) in &run.config.ports {
            assert_eq!(run.sends_into[&(*switch, name.clone())].way(), *at);
        }
        let first = run.initial[&SwitchId(0)].ports.values().next().expect("three");
        assert_eq!(first.weights, SortedMap::from([(0, 8), (1, 1), (2, 1)]));
        assert_eq!(first.queue_of, SortedMap::from([(1, 1), (2, 2)]));
        assert_eq!(run.cards.len(), 4);
        let leads_away = |(_, direction): &(LinkId, Direction)| *direction == Direction::Forward;
        assert!(run.cards.values().all(leads_away), "a dumbbell's links begin at hosts");
        let hosts: Vec<u32> = run.members[0].hosts.iter().map(|host| host.0).collect();
        assert_eq!((run.members.len(), hosts), (1, vec![0, 1, 2, 3]));
        assert_eq!((run.config.interval, run.config.seed), (scenario.binding.rebind, 7));
        let alone = scenario.bound_run(Bound::Loop, pace, port);
        assert!(alone.initial[&SwitchId(1)].ports.values().all(|port| port.queue_of.is_empty()));
    }
}
