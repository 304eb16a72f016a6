//! What each port should have, and whether a tenant has its queues.

use super::{Control, Provision, Tenant, floor};
use crate::binding::switch::{PortAbilities, PortQueues, SwitchConfig};
use crate::binding::{LastQueue, MostWeight, SHARED, weigh};
use crate::ledger::{Direction, LinkId, SwitchId};
use weir_units::{Rate, SortedMap, SortedSet, TenantId};

/// A tenant's queue on a port.
struct Own {
    queue: u8,
    codepoint: u8,
    floor: Rate,
    /// Its packets may be in the shared queue too, which counts its floor.
    is_counted_twice: bool,
}

impl Control {
    /// What a switch should have, given what it has. `None`: that is not known.
    pub(super) fn wanted(&self, id: SwitchId) -> Option<SwitchConfig> {
        let known = self.switches.get(&id)?.known.as_ref()?;
        let able = self.config.switches.get(&id)?;
        let mut config = known.clone();
        for (link, direction, name) in self.ports.get(&id).into_iter().flatten() {
            let Some(has) = able.ports.get(name) else { continue };
            let at = (*link, *direction);
            if let Some(port) = self.port(at, has, able.most_weight, known.ports.get(name)) {
                config.ports.insert(name.clone(), port);
            }
        }
        Some(config)
    }

    /// What a port should have; `None`: nothing of it is Weir's.
    fn port(
        &self,
        (link, direction): (LinkId, Direction),
        has: &PortAbilities,
        most: MostWeight,
        known: Option<&PortQueues>,
    ) -> Option<PortQueues> {
        let free: Vec<u8> = has.free().collect();
        let shared = *free.first()?;
        let is_ours = |codepoint: &u8| self.config.fabric.codepoints.contains(codepoint);
        let mut own: Vec<Own> = Vec::new();
        let mut in_shared = Rate::ZERO;
        for tenant in self.on(link) {
            let floor = tenant.floor(link, direction);
            in_shared += if tenant.phase.is_in_shared() { floor } else { Rate::ZERO };
            let Some(slot) = tenant.slots.get(&link) else { continue };
            own.push(Own {
                queue: *free.get(usize::from(*slot))?,
                codepoint: tenant.codepoint,
                floor,
                is_counted_twice: tenant.phase.is_in_shared(),
            });
        }
        let has_ours = |port: &PortQueues| port.queue_of.keys().any(is_ours);
        // A change that was done in part may have left queues to which no code point leads.
        if own.is_empty() && !known.is_some_and(|port| has_ours(port) || starves(port, in_shared)) {
            return None;
        }
        // The last tenant of a port without a shared queue has that one's place.
        let in_place = own.iter().filter(|own| own.queue == shared && !own.is_counted_twice);
        in_shared += in_place.map(|own| own.floor).sum::<Rate>();
        let mut port = PortQueues {
            rate: has.rate,
            shared,
            weights: SortedMap::new(),
            queue_of: own.iter().map(|own| (own.codepoint, own.queue)).collect(),
        };
        own.retain(|own| own.queue != shared);
        let rate = self.config.fabric.links.get(link.0 as usize).map_or(has.rate, |link| link.rate);
        let mut floors: Vec<Rate> = vec![in_shared];
        floors.extend(own.iter().map(|own| own.floor));
        let mut found = weigh(&floors, rate, most);
        if !found.hold() {
            // A tenant on its way is limited to its floors. What its own queue takes of the link, the
            // shared one needs less: so its own weight, the least, does not count.
            own.sort_by_key(|own| own.is_counted_twice);
            let settled = own.iter().filter(|own| !own.is_counted_twice).map(|own| own.floor);
            let settled: Vec<Rate> = [in_shared].into_iter().chain(settled).collect();
            found = weigh(&settled, rate, most);
            found.weights.resize(own.len() + 1, 1);
        }
        let queues = [shared].into_iter().chain(own.iter().map(|own| own.queue));
        port.weights = queues.zip(found.weights).collect();
        if let Some(known) = known {
            let foreign = known.queue_of.iter().filter(|(codepoint, _)| !is_ours(codepoint));
            port.queue_of.extend(foreign.map(|(codepoint, queue)| (*codepoint, *queue)));
            let foreign = known.weights.iter().filter(|(queue, _)| !free.contains(queue));
            port.weights.extend(foreign.map(|(queue, weight)| (*queue, *weight)));
        }
        Some(port)
    }

    /// Tenants with a reservation or a queue on a link.
    pub(super) fn on(&self, link: LinkId) -> impl Iterator<Item = &Tenant> + '_ {
        let on = self.on_links.get(&link).into_iter().flatten();
        on.filter_map(|tenant| self.tenants.get(tenant))
    }

    /// Numbers of queues that this tenant may have with this code point, on all of its links; `None`
    /// while one of them has none free, or another tenant has the code point there.
    pub(super) fn find_slots(&self, id: TenantId, codepoint: u8) -> Option<SortedMap<LinkId, u8>> {
        let needs = &self.tenants.get(&id)?.member.needs;
        needs.iter().map(|need| Some((need.link, self.find_slot(need.link, codepoint)?))).collect()
    }

    pub(super) fn find_slot(&self, link: LinkId, codepoint: u8) -> Option<u8> {
        let others = || self.on(link).filter(|other| other.slots.contains_key(&link));
        if others().any(|other| other.codepoint == codepoint) {
            return None;
        }
        let taken: SortedSet<u8> =
            others().filter_map(|other| other.slots.get(&link)).copied().collect();
        let queues = self.config.fabric.links.get(link.0 as usize)?.queues;
        let own = (SHARED + 1..queues).find(|slot| !taken.contains(slot));
        let all_fit = || {
            self.config.fabric.last_queue == LastQueue::SharedIfCrowded
                && self.on(link).count() <= usize::from(queues)
                && !taken.contains(&SHARED)
        };
        own.or_else(|| all_fit().then_some(SHARED))
    }

    /// A link on which no weights hold the floors of the shared queue and of settled tenants, if this
    /// tenant has packets in the shared one; and whether others are on their way there.
    pub(super) fn crowded(&self, tenant: &Tenant) -> Option<(LinkId, bool)> {
        if self.config.provision != Provision::Loop {
            return None;
        }
        let is_this = |other: &&Tenant| other.member.tenant == tenant.member.tenant;
        tenant.member.needs.iter().find_map(|need| {
            let link = need.link;
            let others = || self.on(link).filter(|other| !is_this(other));
            let own = || others().filter(|other| other.slots.contains_key(&link));
            let rate = self.config.fabric.links.get(link.0 as usize)?.rate;
            let holds = |direction: Direction| {
                let shared = others().filter(|other| other.phase.is_in_shared());
                let shared: Rate = shared.map(|other| other.floor(link, direction)).sum();
                let mut floors = vec![shared + tenant.floor(link, direction)];
                let settled = own().filter(|other| !other.phase.is_in_shared());
                floors.extend(settled.map(|other| other.floor(link, direction)));
                weigh(&floors, rate, self.config.fabric.most_weight).hold()
            };
            let is_held = holds(Direction::Forward) && holds(Direction::Backward);
            (!is_held).then(|| (link, own().any(|other| other.phase.is_in_shared())))
        })
    }

    /// Whether all ports of a tenant's tree are known to have its queue, for it alone.
    ///
    /// # Errors
    /// The first switch that is not known to have it.
    pub(super) fn has_queues(&self, tenant: &Tenant) -> Result<(), SwitchId> {
        for (switch, is_known) in self.queues(tenant) {
            if !is_known {
                return Err(switch);
            }
        }
        Ok(())
    }

    /// Whether this switch is known to lack a queue of a tenant.
    pub(super) fn lacks(&self, switch: SwitchId, tenant: &Tenant) -> bool {
        self.switches.get(&switch).is_some_and(|state| state.known.is_some())
            && self.queues(tenant).any(|(other, is_known)| other == switch && !is_known)
    }

    /// The switches of a tenant's tree, each as often as it has ports there, and whether the tenant's
    /// queue is known to be on the port, also after the write that is under way.
    fn queues<'a>(&'a self, tenant: &'a Tenant) -> impl Iterator<Item = (SwitchId, bool)> + 'a {
        let directions = [Direction::Forward, Direction::Backward];
        let ports = tenant
            .slots
            .iter()
            .flat_map(move |(link, slot)| directions.map(|direction| ((*link, direction), *slot)));
        ports.filter_map(|(at, slot)| {
            let (switch, name) = self.config.ports.get(&at)?;
            let state = self.switches.get(switch)?;
            let able = self.config.switches.get(switch).and_then(|able| able.ports.get(name));
            let queue = able.and_then(|able| able.free().nth(usize::from(slot)));
            let has = |config: &SwitchConfig| {
                let port = config.ports.get(name);
                port.is_some_and(|port| self.leads(port, tenant.codepoint, queue))
            };
            // A write from before the tenant had its slots may remove what is there.
            let told = state.pending.as_ref().and_then(|pending| pending.config.as_ref());
            Some((*switch, state.known.as_ref().is_some_and(has) && told.is_none_or(has)))
        })
    }

    /// Whether a port leads a code point to a queue of its own: to this one, unless others chose it.
    pub(super) fn leads(&self, port: &PortQueues, codepoint: u8, queue: Option<u8>) -> bool {
        let Some(to) = port.queue_of.get(&codepoint) else { return false };
        let is_shared =
            *to == port.shared && self.config.fabric.last_queue == LastQueue::AlwaysShared;
        let is_right = match self.config.provision {
            Provision::Loop => Some(*to) == queue,
            Provision::Static { .. } => true,
        };
        let is_alone =
            port.queue_of.iter().all(|(other, queue)| *other == codepoint || queue != to);
        is_right && is_alone && !is_shared && port.weights.contains_key(to)
    }

    /// Whether the shared queues of a tenant's tree have the weight for it. A switch that has lost the
    /// tenant's queue and cannot be written to is not waited for: its packets are in the shared one.
    pub(super) fn shared_stands(&self, tenant: &Tenant) -> bool {
        if self.config.provision != Provision::Loop {
            return true;
        }
        self.switches_of(tenant).into_iter().all(|switch| {
            let has_failed = self.switches.get(&switch).is_some_and(|state| state.has_failed);
            !self.dirty.contains(&switch) || (has_failed && tenant.lost.contains(&switch))
        })
    }

    /// The switches with ports on a tenant's links, old and new ones.
    pub(super) fn switches_of(&self, tenant: &Tenant) -> SortedSet<SwitchId> {
        let needs = tenant.member.needs.iter().map(|need| need.link);
        let links = needs.chain(tenant.slots.keys().copied());
        let ports =
            links.flat_map(|link| [(link, Direction::Forward), (link, Direction::Backward)]);
        ports.filter_map(|at| Some(self.config.ports.get(&at)?.0)).collect()
    }
}

/// Whether the weights of a port give its shared queue less than is reserved in it.
fn starves(port: &PortQueues, in_shared: Rate) -> bool {
    let sum: u64 = port.weights.values().map(|weight| u64::from(*weight)).sum();
    let shared = port.weights.get(&port.shared).map_or(0, |weight| u64::from(*weight));
    sum > 0 && port.rate.mul_ratio(shared, sum) < in_shared
}

impl Tenant {
    /// What it has reserved on a link, in one direction.
    fn floor(&self, link: LinkId, direction: Direction) -> Rate {
        if self.is_gone {
            return Rate::ZERO;
        }
        let needs = &self.member.needs;
        let at = needs.binary_search_by_key(&link, |need| need.link);
        at.map_or(Rate::ZERO, |at| floor(&needs[at], direction))
    }

    /// Whether its queues are on other links than its tree.
    pub(super) fn has_moved(&self) -> bool {
        !self.slots.keys().copied().eq(self.member.needs.iter().map(|need| need.link))
    }
}
