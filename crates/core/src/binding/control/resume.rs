//! A loop that follows one that ended, and a loop whose network changed.
//!
//! Problem   A controller dies at any step of a change. Hosts tag and switches have queues, and the next
//!           loop has made none of it.
//! Approach  What was told to hosts was written down before ([`Held`]); what switches have is read. A
//!           tenant whose queue is found on all ports of its tree goes on from the phase that its last
//!           order says, and waits again for its hosts. Otherwise it is limited, and leaves its queues
//!           as in a demotion: after shared queues have the weight for it. What one end of a link still
//!           has keeps its number, and the other end is mended.
//! Promises  As those of the loop: what hosts may tag keeps its queue until they do so no more.

use super::{
    Action, Config, Control, Direction, Event, Input, Member, Order, Outcome, Phase, Provision,
    SwitchConfig, Tenant,
};
use crate::binding::SHARED;
use crate::host::Version;
use crate::ledger::{LinkId, SwitchId};
use weir_units::{SortedMap, SortedSet, TenantId, Time};

/// What hosts may do for a tenant, by what an earlier loop wrote down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The tenant.
    pub tenant: TenantId,
    /// The code point that some of its hosts may tag with. 0: none of them does.
    pub codepoint: u8,
    /// The last order, and its version: hosts may have an earlier one in force.
    pub order: Order,
    /// See `order`.
    pub version: Version,
}

impl Control {
    /// Takes up what an earlier loop left, before the first interval: `found` are the switches that could
    /// be read, `held` the records of tenants, ascending. Tenants of a switch that is not in `found` are
    /// limited, and keep their queues until it was read.
    ///
    /// A tenant with a record that is no member is gone: its hosts have no VMs of it.
    pub fn resume(
        &mut self,
        now: Time,
        members: &[Member],
        held: &[Held],
        found: &SortedMap<SwitchId, SwitchConfig>,
    ) -> Outcome {
        for (id, config) in found {
            if let Some(switch) = self.switches.get_mut(id) {
                (switch.known, switch.before) = (Some(config.clone()), Some(config.clone()));
                self.dirty.insert(*id);
            }
        }
        let mut out = Outcome::default();
        for held in held {
            let at = members.binary_search_by_key(&held.tenant, |member| member.tenant);
            let Ok(at) = at else { continue };
            self.take_up(&members[at], held, &mut out);
        }
        // After all queues that were found: a lost one takes none of those.
        self.replace_slots();
        let rest = self.handle(now, Input::Tenants(members));
        out.actions.extend(rest.actions);
        out.events.extend(rest.events);
        out
    }

    fn take_up(&mut self, member: &Member, held: &Held, out: &mut Outcome) {
        let mut tenant = Tenant::new(member.clone());
        (tenant.version, tenant.order) = (held.version, held.order);
        let id = held.tenant;
        if held.codepoint == SHARED {
            self.tenants.insert(id, tenant);
            self.index(id);
            return;
        }
        tenant.codepoint = held.codepoint;
        let links = member.needs.iter().map(|need| need.link);
        let found = links.filter_map(|link| Some((link, self.slot_found(link, held.codepoint)?)));
        tenant.slots = found.collect();
        let is_whole = !tenant.has_moved() && self.has_queues(&tenant).is_ok();
        let is_tagging = held.order.codepoint == held.codepoint;
        if is_whole && is_tagging {
            tenant.wanted = Some(held.codepoint);
            self.binder.adopt(id, held.codepoint);
        }
        self.tenants.insert(id, tenant);
        self.index(id);
        let phase = match () {
            () if !is_tagging => Phase::Untagging,
            // Hosts may tag for the shared queue only when it has the weight for them.
            () if !is_whole => Phase::Clamping,
            () if held.order.is_free => Phase::Freeing,
            () => Phase::Tagging,
        };
        self.enter(id, phase, out);
    }

    /// The number of the queue that a code point has on the ports of a link, for it alone. A port that is
    /// unknown or has lost the queue says nothing: hosts may still tag, so the other end keeps it.
    fn slot_found(&self, link: LinkId, codepoint: u8) -> Option<u8> {
        let found = |direction| {
            let (switch, name) = self.config.ports.get(&(link, direction))?;
            let port = self.switches.get(switch)?.known.as_ref()?.ports.get(name)?;
            let able = self.config.switches.get(switch)?.ports.get(name)?;
            let queue = *port.queue_of.get(&codepoint)?;
            let slot = match self.config.provision {
                Provision::Loop => able.free().position(|free| free == queue)? as u8,
                // Queues that others provisioned have numbers that mean nothing to the loop.
                Provision::Static { .. } => self.find_slot(link, codepoint)?,
            };
            self.leads(port, codepoint, Some(queue)).then_some(slot)
        };
        let slots: SortedSet<u8> =
            [Direction::Forward, Direction::Backward].into_iter().filter_map(found).collect();
        let slot = slots.first().copied().filter(|_| slots.len() == 1);
        let is_taken = |slot: &u8| self.on(link).any(|on| on.slots.get(&link) == Some(slot));
        slot.filter(|slot| !is_taken(slot))
    }

    /// Whether what the ports of a link have is known.
    fn is_read(&self, link: LinkId) -> bool {
        let on = |direction| self.config.ports.get(&(link, direction));
        let mut ports = [Direction::Forward, Direction::Backward].into_iter().filter_map(on);
        ports
            .all(|(switch, _)| self.switches.get(switch).is_some_and(|state| state.known.is_some()))
    }

    /// Gives tenants that hosts may still tag for, and that are on their way to the shared queue, a queue
    /// on each link whose ports have both lost theirs.
    fn replace_slots(&mut self) {
        if self.config.provision != Provision::Loop {
            return;
        }
        let is_leaving =
            |tenant: &&Tenant| matches!(tenant.phase, Phase::Clamping | Phase::Untagging);
        let lacking: Vec<(TenantId, u8, LinkId)> = self
            .tenants
            .values()
            .filter(is_leaving)
            .flat_map(|tenant| {
                let links = tenant.member.needs.iter().map(|need| need.link);
                let lacks = |link: &LinkId| !tenant.slots.contains_key(link);
                links.filter(lacks).map(|link| (tenant.member.tenant, tenant.codepoint, link))
            })
            .collect();
        for (id, codepoint, link) in lacking {
            if !self.is_read(link) {
                continue;
            }
            if let Some(slot) = self.find_slot(link, codepoint) {
                let tenant = self.tenants.get_mut(&id).expect("it is listed");
                tenant.slots.insert(link, slot);
                self.index(id);
                let tenant = &self.tenants[&id];
                self.dirty.extend(self.switches_of(tenant));
            }
        }
    }

    /// A switch that could not be read when the loop began was read now: what hosts tag still keeps its
    /// queues there until they do so no more.
    pub(super) fn recover_slots(&mut self, switch: SwitchId) {
        let links: Vec<LinkId> =
            self.ports.get(&switch).into_iter().flatten().map(|(link, ..)| *link).collect();
        for link in links {
            let lacks =
                |tenant: &&Tenant| tenant.phase.is_tagged() && !tenant.slots.contains_key(&link);
            let lacking: Vec<(TenantId, u8)> = self
                .on(link)
                .filter(lacks)
                .map(|tenant| (tenant.member.tenant, tenant.codepoint))
                .collect();
            for (id, codepoint) in lacking {
                if let Some(slot) = self.slot_found(link, codepoint) {
                    let tenant = self.tenants.get_mut(&id).expect("it is on the link");
                    tenant.slots.insert(link, slot);
                    self.index(id);
                }
            }
        }
        self.replace_slots();
    }

    /// Gives a tenant's order a version that is newer than any that hosts may know from a loop of which no
    /// record is left: a host refuses older ones.
    pub fn tell_again(&mut self, id: TenantId) -> Outcome {
        let mut out = Outcome::default();
        let Some(tenant) = self.tenants.get_mut(&id) else { return out };
        tenant.version.0 = (tenant.version.0 + 1).max(self.first_version);
        let (version, order) = (tenant.version, tenant.order);
        out.actions.push(Action::Tell { tenant: id, version, order });
        // It is written down as if the tenant had moved.
        out.events.push(Event::Moved(id, tenant.phase));
        out
    }

    /// What hosts may do for a tenant: to be written down before they are told, and when it has left its
    /// queue.
    pub fn held(&self, tenant: TenantId) -> Option<Held> {
        let state = self.tenants.get(&tenant)?;
        let codepoint = if state.phase.is_tagged() { state.codepoint } else { SHARED };
        Some(Held { tenant, codepoint, order: state.order, version: state.version })
    }

    /// Replaces the network: links, switches, ports and code points come and go. Numbers of those that stay
    /// are the same as before. Who configures the switches stays, too: that needs another loop.
    ///
    /// Switches that are gone keep what they have.
    pub fn set_config(&mut self, config: Config) {
        debug_assert_eq!(self.config.provision, config.provision, "that needs another loop");
        self.binder.set_fabric(config.fabric.clone());
        self.switches.retain(|switch, _| config.switches.contains_key(switch));
        for switch in config.switches.keys() {
            self.switches.entry(*switch).or_default();
        }
        self.ports = super::ports_of(&config);
        self.config = config;
        for tenant in self.tenants.values_mut() {
            let config = &self.config;
            let has = |link: LinkId, direction, slot: u8| {
                let Some((switch, name)) = config.ports.get(&(link, direction)) else {
                    return true;
                };
                let port = config.switches.get(switch).and_then(|able| able.ports.get(name));
                port.is_some_and(|port| port.free().nth(slot.into()).is_some())
            };
            // A queue that is no longer Weir's: its tenant looks for another one.
            tenant.slots.retain(|link, slot| {
                has(*link, Direction::Forward, *slot) && has(*link, Direction::Backward, *slot)
            });
        }
        for id in self.tenants.keys().copied().collect::<Vec<_>>() {
            self.index(id);
        }
        self.dirty.extend(self.switches.keys());
    }
}
