//! From a scenario to the controller that binds its tenants to queues.
//!
//! Promises  Each tenant's packets are steered onto one tree, and all of it is reserved. A code point
//!           is a class of packets here, of which there are eight: seven tenants that share links can
//!           have a queue.
//! Source    The model's `binding`.

use super::Unsupported;
use super::build::has_priorities;
use super::guard::line;
use crate::world::BindingSpec;
use weir_core::binding::switch::PortName;
use weir_model::scenario::{Bound, LinkDir, Mechanism, Pace, Scenario};
use weir_units::{HostId, SortedMap, Span, TenantId, VmId};

/// No packet is under way for longer: full queues of a path at a hundredth of a link, and some more.
const LINGER: Span = Span::from_millis(20);
/// A switch that has not answered for so long has failed, beside the time that a config takes.
const PATIENCE: Span = Span::from_millis(500);

/// The controller of a run; `None` if the mechanism binds no tenants.
pub(super) fn binding(
    scenario: &Scenario,
    mechanism: &Mechanism,
    seed: u64,
) -> Result<Option<BindingSpec>, Unsupported> {
    let Some(bound) = mechanism.bound else { return Ok(None) };
    check(scenario, mechanism, bound)?;
    let topology = &scenario.topology;
    (0..topology.hosts.len()).try_for_each(|host| line(scenario, host).map(drop))?;
    let apply = scenario.binding.apply;
    let pace = Pace { linger: LINGER, patience: PATIENCE + apply, seed };
    let name = |into: LinkDir| PortName::from(into.name(topology).as_str());
    let run = scenario.bound_run(bound, pace, name);
    let mut vms: SortedMap<(HostId, TenantId), Vec<VmId>> = SortedMap::new();
    for (number, vm) in (0..).zip(&scenario.vms) {
        let at = (HostId(vm.host as u32), TenantId(vm.tenant as u32));
        vms.entry(at).or_default().push(VmId(number));
    }
    let index = |(port, into): (_, LinkDir)| (port, into.index() as u32);
    Ok(Some(BindingSpec {
        config: run.config,
        binder: run.binder,
        members: run.members,
        switches: run.initial,
        links: run.sends_into.into_iter().map(index).collect(),
        cards: run.cards,
        vms,
        tenant_of: scenario.vms.iter().map(|vm| vm.tenant as u32).collect(),
        tenants: scenario.tenants.len(),
        apply,
    }))
}

/// What cannot be played beside bound tenants.
fn check(scenario: &Scenario, mechanism: &Mechanism, bound: Bound) -> Result<(), Unsupported> {
    let refuse = |field: String, what: &str, instead: &str| {
        Err(Unsupported::new(field, what.to_owned(), instead.to_owned()))
    };
    let label = || format!("spec.mechanisms ({})", mechanism.label);
    if let Some(row) = mechanism.row.filter(|row| row.own_code_points) {
        let what = format!("{} among bound tenants", row.title);
        return refuse(label(), &what, "write `elasticswitch`: both use tags");
    }
    if has_priorities(mechanism) {
        let what = "two priorities among bound tenants";
        return refuse(label(), what, "write `elasticswitch`: both use a switch's queues");
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
