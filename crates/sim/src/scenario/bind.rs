//! From a scenario to the controller that binds its tenants to queues.
//!
//! Promises  Each tenant's packets are steered onto one tree, and all of it is reserved. A code point
//!           is a class of packets here, of which there are eight: seven tenants that share links can
//!           have a queue.
//! Source    The model's `binding`.

use super::Unsupported;
use super::guard::line;
use crate::world::BindingSpec;
use std::collections::BTreeMap;
use weir_core::binding::control::{Config, Provision};
use weir_core::binding::switch::{Abilities, PortAbilities, PortName, PortQueues, SwitchConfig};
use weir_core::binding::{Binder, Fabric, LinkPorts, MostWeight, Provisioned, SHARED};
use weir_core::ledger::{Direction, LinkId, SwitchId};
use weir_model::scenario::{Bound, LinkDir, Mechanism, Scenario};
use weir_units::{HostId, Span, TenantId, VmId};

/// No packet is under way for longer: full queues of a path at a hundredth of a link, and some more.
const LINGER: Span = Span::from_millis(20);
/// A switch that has not answered for so long has failed, beside the time that a config takes.
const PATIENCE: Span = Span::from_millis(500);
/// How often static queues are read.
const READ: Span = Span::from_secs(4);

/// The controller of a run; `None` if nobody binds tenants.
pub(super) fn binding(
    scenario: &Scenario,
    mechanism: &Mechanism,
    seed: u64,
) -> Result<Option<BindingSpec>, Unsupported> {
    let Some(bound) = mechanism.bound else { return Ok(None) };
    check(scenario, mechanism, bound)?;
    let (topology, asked) = (&scenario.topology, &scenario.binding);
    let hosts = topology.hosts.len();
    let port =
        |link: &weir_model::scenario::Link| LinkPorts { rate: link.rate, queues: asked.queues };
    let fabric = Fabric {
        links: topology.links.iter().map(port).collect(),
        codepoints: scenario.code_points(),
        most_weight: MostWeight::new(asked.most_weight),
        last_queue: asked.last_queue,
    };
    let (mut ports, mut links) = (BTreeMap::new(), BTreeMap::new());
    let mut abilities: BTreeMap<SwitchId, Abilities> = BTreeMap::new();
    let mut switches: BTreeMap<SwitchId, SwitchConfig> = BTreeMap::new();
    for index in 0..2 * topology.links.len() {
        let direction = LinkDir::from_index(index);
        let Some(switch) = direction.from(topology).checked_sub(hosts) else { continue };
        let switch = SwitchId(switch as u32);
        let name = PortName::from(direction.name(topology).as_str());
        let rate = topology.links[direction.link].rate;
        let able = abilities.entry(switch).or_insert_with(|| Abilities {
            ports: BTreeMap::new(),
            classes: None,
            most_weight: fabric.most_weight,
            reserved_codepoints: Default::default(),
        });
        let has = PortAbilities { rate, queues: asked.queues, reserved: Default::default() };
        able.ports.insert(name.clone(), has);
        let found = match bound {
            Bound::Loop => PortQueues::shared_alone(rate, SHARED),
            Bound::Static => scenario.provisioned(rate),
        };
        switches.entry(switch).or_default().ports.insert(name.clone(), found);
        ports.insert((LinkId(direction.link as u32), way(direction)), (switch, name.clone()));
        links.insert((switch, name), index as u32);
    }
    let (interval, provision) = match bound {
        Bound::Loop => (asked.interval, Provision::Loop),
        Bound::Static => (asked.rebind, Provision::Static { read: READ }),
    };
    let binder = match bound {
        Bound::Loop => Binder::new(fabric.clone()),
        Bound::Static => {
            let own = fabric.codepoints.iter().map(|codepoint| (*codepoint, 1)).collect();
            Binder::provisioned(fabric.clone(), Provisioned { shared: asked.shared_weight, own })
        }
    };
    let mut vms: BTreeMap<(HostId, TenantId), Vec<VmId>> = BTreeMap::new();
    for (number, vm) in (0..).zip(&scenario.vms) {
        let at = (HostId(vm.host as u32), TenantId(vm.tenant as u32));
        vms.entry(at).or_default().push(VmId(number));
    }
    let config = Config {
        fabric,
        ports,
        switches: abilities,
        provision,
        interval,
        linger: LINGER,
        patience: PATIENCE + asked.apply,
        seed,
    };
    Ok(Some(BindingSpec {
        config,
        binder,
        members: scenario.members(),
        switches,
        links,
        cards: cards(scenario)?,
        vms,
        tenant_of: scenario.vms.iter().map(|vm| vm.tenant as u32).collect(),
        tenants: scenario.tenants.len(),
        apply: asked.apply,
    }))
}

/// What cannot be played beside bound tenants.
fn check(scenario: &Scenario, mechanism: &Mechanism, bound: Bound) -> Result<(), Unsupported> {
    let refuse = |field: String, what: &str, instead: &str| {
        Err(Unsupported::new(field, what.to_owned(), instead.to_owned()))
    };
    let label = || format!("spec.mechanisms ({})", mechanism.label);
    if mechanism.name() == "eyeq" {
        return refuse(label(), "EyeQ among bound tenants", "write `elasticswitch`: both use tags");
    }
    if bound == Bound::Static && scenario.binding.shared_weight == 0 {
        let what = "static queues without a weight";
        return refuse(label(), what, "write `binding: {shared_weight: 8}`: all others weigh 1");
    }
    for link in &scenario.topology.links {
        let what = if link.queueing.priorities { "priorities" } else { "red" };
        if link.queueing.priorities || link.queueing.red.is_some() {
            let field = format!("spec.topology (link {}, {what})", link.name);
            return refuse(field, "weighted queues beside it", "leave it out");
        }
    }
    Ok(())
}

const fn way(direction: LinkDir) -> Direction {
    if direction.reverse { Direction::Backward } else { Direction::Forward }
}

/// Each host's only link.
fn cards(scenario: &Scenario) -> Result<BTreeMap<HostId, (LinkId, Direction)>, Unsupported> {
    let topology = &scenario.topology;
    let card = |host: usize| {
        line(scenario, host)?;
        let at = topology.links.iter().position(|link| link.a == host || link.b == host);
        let at = at.expect("a host has one link");
        let leaves = topology.links[at].a == host;
        let out = if leaves { Direction::Forward } else { Direction::Backward };
        Ok((HostId(host as u32), (LinkId(at as u32), out)))
    };
    (0..topology.hosts.len()).map(card).collect()
}
