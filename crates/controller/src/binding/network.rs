//! From objects to what the loop is told once: links, ports, switches, code points.
//!
//! Problem   The ledger numbers links anew with every change of the network. A tenant on its way through
//!           phases needs numbers that stay.
//! Approach  Everything has a number of its own by its name, from its first sight on. A link has as many
//!           queues as the poorest of its switches' ports. What a switch was found to have is less than
//!           what its object says, or the same.
//! Promises  Same objects and numbers, same network. A port of which nothing can be used is in no config.

use crate::state::{Stored, nic_of};
use std::sync::Arc;
use weir_core::binding::control::{Config, Provision};
use weir_core::binding::switch::{Abilities, PortAbilities, PortName};
use weir_core::binding::{Fabric, LastQueue, LinkPorts, MostWeight, Provisioned};
use weir_core::ledger::{Direction, LinkId, SwitchId};
use weir_model::objects::{
    HostSpec, HostState, LinkSpec, QueueMode, QueuesSpec, Routing, Spec, SwitchPort, SwitchSpec,
    TopologySpec,
};
use weir_model::text::show_rate;
use weir_switch::Found;
use weir_switch::object::usual_weight;
use weir_units::{Rate, SortedMap, SortedSet, Span};

/// A packet of a tenant is under way no longer: a full queue of every port on its way, at its weight.
const LINGER: Span = Span::from_millis(500);
/// The same for queues that stay. A packet that its host has sent finds the queue whatever becomes of the
/// tenant: its successor's packets come after it. So only what hosts' shapers hold with the old tag is
/// waited for, and as much again for the way to the first switch. Shorter: late packets come between the
/// successor's.
const LINGER_STATIC: Span = Span::from_millis(20);
/// Queues that stay are read no more often: whoever provisioned them seldom changes them.
const READ_STATIC: Span = Span::from_secs(4);
/// A switch that has not answered for so long has failed. More than a call may take.
const PATIENCE: Span = Span::from_secs(3);

/// Numbers by name, from 0 in the order of the first sight.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    by_name: SortedMap<String, u32>,
    names: SortedMap<u32, String>,
    next: u32,
}

impl Numbers {
    pub(super) fn of(&mut self, name: &str) -> u32 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        self.by_name.insert(name.into(), number);
        self.names.insert(number, name.into());
        number
    }

    pub(super) fn known(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(&number).map_or("?", String::as_str)
    }

    /// Forgets all names but these. Their numbers are never used again.
    pub(super) fn retain(&mut self, keep: impl Fn(&str, u32) -> bool) {
        self.by_name.retain(|name, number| keep(name, *number));
        self.names.retain(|number, name| keep(name, *number));
    }
}

/// Numbers of all that the loop knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) links: Numbers,
    pub(super) switches: Numbers,
    pub(super) hosts: Numbers,
    pub(super) tenants: Numbers,
}

/// What a switch was found to have.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Seen {
    able: Abilities,
    /// Ports that others configured, or all of them if another controller has the switch.
    barred: SortedSet<PortName>,
    /// What is not as the object says, in words.
    pub(super) trouble: Option<(&'static str, String)>,
}

/// A switch and how it is spoken to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Described {
    pub(super) name: String,
    pub(super) spec: SwitchSpec,
    pub(super) rates: SortedMap<PortName, Rate>,
    pub(super) code_points: SortedSet<u8>,
}

/// What the loop is told.
#[derive(Clone, Debug)]
pub(super) struct Network {
    pub(super) config: Config,
    /// Weights that others provisioned.
    pub(super) provisioned: Option<Provisioned>,
    pub(super) switches: SortedMap<SwitchId, Described>,
    /// By switch: ports of its object that lead nowhere.
    pub(super) astray: SortedMap<String, String>,
    /// Tenants are bound. Otherwise why not.
    pub(super) is_bound: Result<(), &'static str>,
}

/// Objects of one kind, by name.
#[derive(Default)]
struct Objects<'a> {
    topology: TopologySpec,
    hosts: SortedMap<&'a str, &'a HostSpec>,
    links: SortedMap<&'a str, &'a LinkSpec>,
    switches: SortedMap<&'a str, &'a SwitchSpec>,
}

impl<'a> Objects<'a> {
    fn of(objects: &'a [Arc<Stored>]) -> Self {
        let mut all = Self::default();
        for object in objects.iter().map(|stored| &stored.object) {
            let name = object.name();
            match &object.spec {
                Spec::Topology(spec) => all.topology = spec.clone(),
                Spec::Host(spec) if spec.state != HostState::Dead => {
                    _ = all.hosts.insert(name, spec)
                }
                Spec::Link(spec) => _ = all.links.insert(name, spec),
                Spec::Switch(spec) => _ = all.switches.insert(name, spec),
                _ => {}
            }
        }
        all
    }

    /// The link at a port, the direction into which the port sends, and the link's rate.
    fn at(&self, switch: &str, port: &SwitchPort) -> Result<(String, Direction, Rate), String> {
        let name = &port.name;
        if let Some(host) = &port.host {
            return match self.hosts.get(host.as_str()) {
                Some(spec) if spec.switch == switch => {
                    Ok((nic_of(host), Direction::Backward, spec.rate.0))
                }
                Some(spec) => {
                    Err(format!("port {name}: host `{host}` is at switch `{}`", spec.switch))
                }
                None => Err(format!("port {name}: there is no Host `{host}`")),
            };
        }
        let link = port.link.as_deref().unwrap_or_default();
        match self.links.get(link) {
            Some(spec) if spec.members > 1 => {
                Err(format!("port {name}: link `{link}` has several cables, which have no queues"))
            }
            Some(spec) if spec.lower == switch => {
                Ok((link.to_owned(), Direction::Forward, spec.rate.0))
            }
            Some(spec) if spec.upper == switch => {
                Ok((link.to_owned(), Direction::Backward, spec.rate.0))
            }
            Some(_) => Err(format!("port {name}: link `{link}` does not end at this switch")),
            None => Err(format!("port {name}: there is no Link `{link}`")),
        }
    }
}

impl Network {
    /// None if no queues are wanted, and no tenant has one: `held` are their code points.
    pub(super) fn of(
        objects: &[Arc<Stored>],
        names: &mut Names,
        seen: &SortedMap<String, Seen>,
        held: &SortedSet<u8>,
    ) -> Option<Self> {
        let all = Objects::of(objects);
        let is_wanted = all.topology.queues.is_some();
        let queues = all.topology.queues.clone().or_else(|| leaving(held))?;
        let codepoints = usable(&queues, &all);
        let mut network = Self {
            config: config(&queues, codepoints.clone()),
            provisioned: provisioned(&queues, &codepoints),
            switches: SortedMap::new(),
            astray: SortedMap::new(),
            is_bound: match all.topology.routing {
                _ if !is_wanted => Err("spec.queues of the Topology was removed"),
                Routing::Tree => Ok(()),
                _ if queues.confined => Ok(()),
                _ => {
                    Err("there are several ways between hosts, and nothing keeps tenants on their \
                          trees: write `confined: true` into spec.queues if the network does")
                }
            },
        };
        let ends = all.hosts.iter().map(|(name, host)| (nic_of(name), host.rate.0, 1));
        let cables = all.links.iter().map(|(name, link)| ((*name).to_owned(), link.rate.0, 2));
        for (name, rate, ends) in ends.chain(cables) {
            let at = names.links.of(&name) as usize;
            let links = &mut network.config.fabric.links;
            if links.len() <= at {
                links.resize(at + 1, LinkPorts { rate: Rate::from_bps(1), queues: 0 });
            }
            // The number of ports that it still lacks, until all were looked at.
            links[at] = LinkPorts { rate, queues: ends };
        }
        let mut lacking: SortedMap<u32, u8> = SortedMap::new();
        for (at, link) in (0..).zip(&mut network.config.fabric.links) {
            lacking.insert(at, std::mem::replace(&mut link.queues, u8::MAX));
        }
        for (name, spec) in &all.switches {
            network.add(name, spec, &all, names, seen.get(*name), &mut lacking);
        }
        for (at, link) in (0..).zip(&mut network.config.fabric.links) {
            let is_whole = lacking.get(&at) == Some(&0) && link.queues < u8::MAX;
            link.queues = if is_whole { link.queues } else { 0 };
            // Others made no more queues. A spare one without a code point would keep tenants from taking
            // the place of those that use theirs less.
            if let Some(provisioned) = &network.provisioned {
                link.queues = link.queues.min(1 + provisioned.own.len() as u8);
            }
        }
        Some(network)
    }

    fn add(
        &mut self,
        name: &str,
        spec: &SwitchSpec,
        all: &Objects<'_>,
        names: &mut Names,
        seen: Option<&Seen>,
        lacking: &mut SortedMap<u32, u8>,
    ) {
        let id = SwitchId(names.switches.of(name));
        let free = spec.free_queues();
        let reserved: SortedSet<u8> = (0..spec.queues).filter(|at| !free.contains(at)).collect();
        let mut able = Abilities {
            ports: SortedMap::new(),
            classes: spec.tenant_classes().map(|classes| classes.into_iter().collect()),
            most_weight: most_weight(spec),
            reserved_codepoints: spec.reserved_code_points.iter().copied().collect(),
        };
        let (mut rates, mut astray) = (SortedMap::new(), None);
        for port in &spec.ports {
            let (link, direction, rate) = match all.at(name, port) {
                Ok(found) => found,
                Err(why) => {
                    astray.get_or_insert(why);
                    continue;
                }
            };
            let link = names.links.of(&link);
            let port_name = PortName::from(port.name.as_str());
            rates.insert(port_name.clone(), rate);
            let said = PortAbilities { rate, queues: spec.queues, reserved: reserved.clone() };
            let Some(has) = lesser(&port_name, said, seen) else { continue };
            let of_link = &mut self.config.fabric.links[link as usize];
            of_link.rate = of_link.rate.min(has.rate);
            of_link.queues = of_link.queues.min(has.free().count() as u8);
            if let Some(lacks) = lacking.get_mut(&link) {
                *lacks = lacks.saturating_sub(1);
            }
            let at = (LinkId(link), direction);
            self.config.ports.insert(at, (id, port_name.clone()));
            able.ports.insert(port_name, has);
        }
        self.config.fabric.most_weight = self.config.fabric.most_weight.min(able.most_weight);
        self.config.switches.insert(id, able);
        self.astray.extend(astray.map(|why| (name.to_owned(), why)));
        let code_points = self.config.fabric.codepoints.iter().copied().collect();
        let described = Described { name: name.to_owned(), spec: spec.clone(), rates, code_points };
        self.switches.insert(id, described);
    }
}

fn most_weight(spec: &SwitchSpec) -> MostWeight {
    spec.most_weight.map_or(usual_weight(spec.driver), MostWeight::new)
}

/// What the object says of a port, or less, if less was found. None: nothing of it can be used.
fn lesser(name: &PortName, said: PortAbilities, seen: Option<&Seen>) -> Option<PortAbilities> {
    let Some(seen) = seen else { return Some(said) };
    if seen.barred.contains(name) {
        return None;
    }
    let found = seen.able.ports.get(name)?;
    Some(PortAbilities {
        rate: found.rate,
        queues: said.queues.min(found.queues),
        reserved: said.reserved.iter().chain(&found.reserved).copied().collect(),
    })
}

/// Queues that are wanted no more, but are there.
fn leaving(held: &SortedSet<u8>) -> Option<QueuesSpec> {
    let code_points: Vec<u8> = held.iter().copied().filter(|point| *point > 0).collect();
    (!code_points.is_empty()).then(|| QueuesSpec {
        code_points,
        mode: QueueMode::Managed,
        interval: weir_model::text::SpanText(Span::from_secs(4)),
        shared_weight: None,
        confined: false,
    })
}

/// Code points that no switch keeps for others, and no more of them than every switch has classes for,
/// so that each can have one of its own.
fn usable(queues: &QueuesSpec, all: &Objects<'_>) -> Vec<u8> {
    let reserved = |point: &u8| {
        all.switches.values().any(|switch| switch.reserved_code_points.contains(point))
    };
    let classes = all.switches.values().filter_map(|switch| switch.tenant_classes());
    let most = classes.map(|classes| classes.len().saturating_sub(1)).min();
    let points = queues.code_points.iter().copied().filter(|point| !reserved(point));
    points.take(most.unwrap_or(usize::MAX)).collect()
}

fn provisioned(queues: &QueuesSpec, codepoints: &[u8]) -> Option<Provisioned> {
    let shared = queues.shared_weight.filter(|_| queues.mode == QueueMode::Static)?;
    Some(Provisioned { shared, own: codepoints.iter().map(|point| (*point, 1)).collect() })
}

fn config(queues: &QueuesSpec, codepoints: Vec<u8>) -> Config {
    let interval = queues.interval.0;
    let (provision, linger) = match queues.mode {
        QueueMode::Managed => (Provision::Loop, LINGER),
        QueueMode::Static => (Provision::Static { read: interval.max(READ_STATIC) }, LINGER_STATIC),
    };
    let fabric = Fabric {
        links: Vec::new(),
        codepoints,
        most_weight: MostWeight::new(100),
        last_queue: LastQueue::AlwaysShared,
    };
    Config {
        fabric,
        ports: SortedMap::new(),
        switches: SortedMap::new(),
        provision,
        interval,
        linger,
        patience: PATIENCE,
        seed: 1,
    }
}

impl Seen {
    /// What was read, beside what the object says. `us` is our mark; none where nothing is written, for
    /// then it is the operator's that is there.
    pub(super) fn of(found: &Found, described: &Described, us: Option<&str>) -> Self {
        let is_other = |owner: &&String| us.is_some_and(|us| *owner != us);
        let other = found.owners.iter().find(is_other);
        let mut barred: SortedSet<PortName> = found.barred.keys().cloned().collect();
        if other.is_some() {
            barred.extend(described.rates.keys().cloned());
        }
        let trouble = other
            .map(|owner| {
                let what = format!(
                    "the controller `{owner}` has this switch, and nothing is written: let it roll back \
                     first, or remove the object"
                );
                ("Owned", what)
            })
            .or_else(|| {
                let (port, why) = found.barred.iter().next()?;
                Some(("Barred", format!("port {port} is configured by others: {why}")))
            })
            .or_else(|| Some(("Differs", differs(found, described)?)));
        Self { able: found.able.clone(), barred, trouble }
    }
}

/// In which way a switch has less than its object says.
fn differs(found: &Found, described: &Described) -> Option<String> {
    let free = described.spec.free_queues();
    described.rates.iter().find_map(|(name, rate)| {
        let Some(port) = found.able.ports.get(name) else {
            return Some(format!("it has no port {name}: correct spec.ports"));
        };
        let has: SortedSet<u8> = port.free().collect();
        if let Some(queue) = free.iter().find(|queue| !has.contains(queue)) {
            return Some(format!(
                "queue {queue} of port {name} is not for tenants, those are {}: correct spec.free",
                listed(&has)
            ));
        }
        (port.rate < *rate).then(|| {
            let (has, said) = (show_rate(port.rate), show_rate(*rate));
            format!("port {name} has {has}, and the object at its other end says {said}")
        })
    })
}

/// Numbers as people read them.
pub(super) fn listed(numbers: &SortedSet<u8>) -> String {
    let all: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}
