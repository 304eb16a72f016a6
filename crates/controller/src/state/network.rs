//! The network as the ledger counts it, from the objects that describe it.
//!
//! Approach  Each host's NIC is a link that is named after it. With the routings `tree` and `layers` a
//!           switch's layer is the longest way up to it. A link that is down has no room there, so that
//!           a refusal can name it; with `paths` it is left out, so that trees are found around it.

use crate::problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use weir_core::ledger::{
    Config, Exploration, Host, Link, LinkId, Node, Switch, SwitchId, Topology,
};
use weir_model::objects::{HostSpec, HostState, LinkSpec, LinkState, Routing, TopologySpec};
use weir_units::{HostId, Rate};

/// Largest layer of a switch.
const LAYERS: usize = 60;

/// What the ledger is made from.
pub(super) struct Network {
    /// None without a host.
    pub(super) topology: Option<Topology>,
    pub(super) config: Config,
    /// Links that carry nothing.
    pub(super) down: Vec<LinkId>,
    /// Links that take no new floors: those that drain, and those of a switch that drains.
    pub(super) draining_links: Vec<LinkId>,
    /// Hosts that take no new VMs.
    pub(super) draining: Vec<HostId>,
}

type Named<'a, T> = (&'a str, &'a T);

impl Network {
    pub(super) fn new<'a>(
        spec: &TopologySpec,
        hosts: impl Iterator<Item = Named<'a, HostSpec>>,
        links: impl Iterator<Item = Named<'a, LinkSpec>>,
    ) -> Result<Self, Problem> {
        let hosts: Vec<_> = hosts.filter(|(_, host)| host.state != HostState::Dead).collect();
        let is_there = |link: &LinkSpec| match spec.routing {
            Routing::Tree | Routing::Layers => true,
            Routing::Paths => link.state != LinkState::Down,
        };
        let links: Vec<_> = links.filter(|(_, link)| is_there(link)).collect();
        let headroom = f64::from(spec.headroom_percent) / 100.0;
        let config = Config { headroom, effort: spec.search_steps.into(), ..Config::default() };
        let nics = hosts.len() as u32;
        let is_down = |(n, (_, link)): (u32, &Named<LinkSpec>)| {
            (link.state == LinkState::Down).then_some(LinkId(nics + n))
        };
        let drains = |switch: &String| spec.draining.contains(switch);
        let is_closed = |(n, (_, link)): (u32, &Named<LinkSpec>)| {
            let ends = drains(&link.lower) || drains(&link.upper);
            let is_closed = match link.state {
                LinkState::Up => ends,
                LinkState::Draining => true,
                LinkState::Down => false,
            };
            is_closed.then_some(LinkId(nics + n))
        };
        let nic =
            |(n, (_, host)): (u32, &Named<HostSpec>)| drains(&host.switch).then_some(LinkId(n));
        let is_draining = |(n, (_, host)): (u32, &Named<HostSpec>)| {
            (host.state == HostState::Draining || drains(&host.switch)).then_some(HostId(n))
        };
        let closed = (0..).zip(&links).filter_map(is_closed);
        Ok(Self {
            topology: topology(spec, &hosts, &links)?,
            config,
            down: (0..).zip(&links).filter_map(is_down).collect(),
            draining_links: (0..).zip(&hosts).filter_map(nic).chain(closed).collect(),
            draining: (0..).zip(&hosts).filter_map(is_draining).collect(),
        })
    }
}

fn topology(
    spec: &TopologySpec,
    hosts: &[Named<HostSpec>],
    links: &[Named<LinkSpec>],
) -> Result<Option<Topology>, Problem> {
    let mut switches: BTreeSet<&str> = hosts.iter().map(|(_, host)| host.switch.as_str()).collect();
    for (_, link) in links {
        switches.extend([link.lower.as_str(), link.upper.as_str()]);
    }
    let layers = match spec.routing {
        Routing::Paths => switches.iter().map(|name| (*name, 1)).collect(),
        Routing::Tree | Routing::Layers => layers(spec.routing, &switches, links)?,
    };
    let numbers: BTreeMap<&str, SwitchId> =
        switches.iter().copied().zip((0..).map(SwitchId)).collect();
    known(&switches, "spec.gateways", &spec.gateways)?;
    known(&switches, "spec.draining", &spec.draining)?;
    let gateways = gateways(spec, &switches, links);
    if hosts.is_empty() {
        return Ok(None);
    }
    let node = |name: &str| Node::Switch(numbers[name]);
    let nics = (0..).zip(hosts).map(|(n, (name, host))| {
        let rate = nic(host, spec.headroom_percent);
        let (a, b) = (Node::Host(HostId(n)), node(&host.switch));
        Link { name: nic_of(name), a, b, rate, members: 1 }
    });
    let cables = links.iter().map(|(name, link)| Link {
        name: (*name).into(),
        a: node(&link.lower),
        b: node(&link.upper),
        rate: link.rate.0,
        members: link.members,
    });
    let host = |(name, host): &Named<HostSpec>| Host { name: (*name).into(), slots: host.slots };
    let switch = |name: &&str| Switch { name: (*name).into(), layer: layers[*name] };
    Ok(Some(Topology {
        hosts: hosts.iter().map(host).collect(),
        links: nics.chain(cables).collect(),
        gateways: gateways.iter().map(|name| numbers[name]).collect(),
        switches: switches.iter().map(switch).collect(),
        exploration: match spec.routing {
            Routing::Tree | Routing::Layers => Exploration::Layers,
            Routing::Paths => Exploration::Paths { k: spec.trees_per_switch },
        },
    }))
}

/// Name of the link that a host's NIC is. No Link has it, for there are spaces in it.
pub(crate) fn nic_of(host: &str) -> String {
    format!("nic of {host}")
}

/// The layer of each switch: 1 at the bottom, else one above the highest that it is joined to below.
fn layers<'a>(
    routing: Routing,
    switches: &BTreeSet<&'a str>,
    links: &[Named<'a, LinkSpec>],
) -> Result<BTreeMap<&'a str, u8>, Problem> {
    let mut above: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    let mut below: BTreeMap<&str, usize> = switches.iter().map(|name| (*name, 0)).collect();
    for (name, link) in links {
        let up = above.entry(&link.lower).or_default();
        if let (Routing::Tree, Some((other, _))) = (routing, up.first()) {
            let detail = format!(
                "`{}` has two links upward, `{other}` and `{name}`, and spec.routing of the Topology is \
                 tree: remove one, or set the routing to layers",
                link.lower
            );
            return Err(Problem::new(422, "NoTree", "spec.lower", detail));
        }
        up.push((name, &link.upper));
        *below.entry(&link.upper).or_default() += 1;
    }
    let mut layers: BTreeMap<&str, u8> = switches.iter().map(|name| (*name, 1)).collect();
    let mut ready: Vec<&str> = switches.iter().copied().filter(|name| below[name] == 0).collect();
    while let Some(at) = ready.pop() {
        for (_, up) in above.get(at).into_iter().flatten() {
            layers.insert(up, layers[up].max(layers[at].saturating_add(1)));
            let waits = below.get_mut(up).expect("it is a switch");
            *waits -= 1;
            if *waits == 0 {
                ready.push(up);
            }
        }
    }
    let ring = links.iter().find(|(_, link)| below[link.upper.as_str()] > 0);
    let high = links.iter().find(|(_, link)| usize::from(layers[link.upper.as_str()]) > LAYERS);
    if let Some((name, _)) = ring.or(high) {
        let detail = format!(
            "the link `{name}` is part of a ring of links upward, or above one, or above {LAYERS} layers: \
             exchange its ends, or set spec.routing of the Topology to paths"
        );
        return Err(Problem::new(422, "NoTree", "spec.upper", detail));
    }
    Ok(layers)
}

/// Switches behind which the outside lies.
fn gateways<'a>(
    spec: &'a TopologySpec,
    switches: &BTreeSet<&'a str>,
    links: &[Named<'a, LinkSpec>],
) -> BTreeSet<&'a str> {
    let named: BTreeSet<&str> = spec.gateways.iter().map(String::as_str).collect();
    if !named.is_empty() || spec.routing == Routing::Paths {
        return named;
    }
    let lower: BTreeSet<&str> = links.iter().map(|(_, link)| link.lower.as_str()).collect();
    switches.difference(&lower).copied().collect()
}

/// Whether there are switches with these names.
fn known(switches: &BTreeSet<&str>, field: &str, names: &[String]) -> Result<(), Problem> {
    let Some(n) = names.iter().position(|name| !switches.contains(name.as_str())) else {
        return Ok(());
    };
    let detail = format!(
        "no Host and no Link has a switch with the name `{}`: apply it together with the Topology",
        names[n]
    );
    Err(Problem::new(422, "NoSuchSwitch", format!("{field}[{n}]"), detail))
}

/// The rate of a host's NIC beside the host's own floors, of which the headroom is not taken.
fn nic(host: &HostSpec, headroom_percent: u8) -> Rate {
    let own = host.own.out.0.max(host.own.inward.0);
    let part = u64::from(100 - headroom_percent.min(99));
    let taken = own.as_bps().saturating_mul(100).div_ceil(part);
    Rate::from_bps(host.rate.0.as_bps().saturating_sub(taken).max(1))
}
