//! What fails, is drained or comes back, and which floors fall.
//!
//! Approach  A part that is out of service takes capacity. Tenants that no longer fit are taken out of
//!           the sums and come back in the order of their priority, then of their admission, each on
//!           any tree that joins its hosts. One that does not fit takes the place of lower priorities
//!           in its way; these come back, or fall, when it is their turn.
//! Promises  No tenant falls while one of a lower priority holds the link that it lacks. A tenant that
//!           fell keeps its slots, and is tried again whenever capacity returns.

use super::request::{Refusal, Routing};
use super::topology::{Direction, LinkId, Node, SwitchId};
use super::trees::NONE;
use super::{Ledger, Survival, Tenant, wired};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use weir_units::{HostId, TenantId, VmId};

/// A part of the network that is out of service: failed, or drained before its repair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Element {
    /// A link with all its members.
    Link(LinkId),
    /// That many members of a generalized link.
    Members(LinkId, u16),
    /// A switch with all its links.
    Switch(SwitchId),
}

/// Whether a host takes VMs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostState {
    /// It does.
    Open,
    /// No new ones; those that it has keep their floors.
    Drained,
    /// It does not answer: no new ones, and those that it has keep their reservations until it is
    /// declared dead.
    Silent,
    /// Its VMs were lost.
    Dead,
}

/// What a change of capacity does to tenants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Consequence {
    /// Floors that no longer hold, and why.
    pub fallen: Vec<(TenantId, Refusal)>,
    /// Tenants on another tree than before.
    pub rerouted: Vec<(TenantId, Option<Routing>, Option<Routing>)>,
    /// Floors that hold again.
    pub returned: Vec<TenantId>,
    /// VMs of a host that was declared dead.
    pub lost: Vec<(TenantId, VmId)>,
}

/// Order of re-admission.
type Rank = (Reverse<u8>, u64, TenantId);

impl Ledger {
    /// Takes parts out of service, because they failed or are to be repaired. Says at once which
    /// floors fall.
    pub fn fail(&mut self, elements: &[Element]) -> Consequence {
        self.down.extend(elements);
        self.reassess(false)
    }

    /// Puts parts back into service. Floors that fell are tried again.
    pub fn repair(&mut self, elements: &[Element]) -> Consequence {
        elements.iter().for_each(|element| {
            self.down.remove(element);
        });
        self.reassess(true)
    }

    /// What [`fail`](Self::fail) would answer. Changes nothing.
    pub fn without(&self, elements: &[Element]) -> Consequence {
        self.clone().fail(elements)
    }

    /// What is out of service.
    pub fn down(&self) -> impl Iterator<Item = Element> + '_ {
        self.down.iter().copied()
    }

    /// Opens, drains or silences a host, or declares it dead: then its VMs are lost. A dead host
    /// that is opened is empty.
    ///
    /// # Errors
    /// There is no such host.
    pub fn set_host(&mut self, host: HostId, state: HostState) -> Result<Consequence, Refusal> {
        if host.0 as usize >= self.book.hosts.len() {
            return Err(Refusal::NoSuchHost(host));
        }
        self.book.close(&self.shape, host.0, state != HostState::Open);
        self.host_states.insert(host, state);
        if state == HostState::Dead { Ok(self.lose(host)) } else { Ok(Consequence::default()) }
    }

    /// A host's state.
    pub fn host(&self, host: HostId) -> HostState {
        self.host_states.get(&host).copied().unwrap_or(HostState::Open)
    }

    fn lose(&mut self, host: HostId) -> Consequence {
        let mut lost = Vec::new();
        let ids: Vec<TenantId> = self.tenants.keys().copied().collect();
        for id in ids {
            let tenant = &self.tenants[&id];
            if tenant.vms.iter().all(|vm| vm.host != host.0 && vm.other != host.0) {
                continue;
            }
            let mut draft = tenant.clone();
            for vm in &mut draft.vms {
                if vm.other == host.0 {
                    vm.other = NONE;
                } else if vm.host == host.0 && vm.other != NONE {
                    // It may have arrived where it was going.
                    (vm.host, vm.other) = (vm.other, NONE);
                }
            }
            let gone = draft.vms.iter().filter(|vm| vm.host == host.0);
            lost.extend(gone.map(|vm| (id, vm.id)));
            draft.vms.retain(|vm| vm.host != host.0);
            self.shrink(id, draft);
        }
        self.keys.abort_lost(&self.tenants);
        self.keys.bound(self.config.ended_keys);
        // What the lost VMs reserved is free again.
        Consequence { lost, ..self.reassess(true) }
    }

    /// Sets all links' capacities anew, and finds a place for whoever no longer fits and, if
    /// capacity may have returned, for whoever fell before.
    fn reassess(&mut self, has_grown: bool) -> Consequence {
        for link in 0..self.book.links.len() {
            self.book.links[link].capacity = [self.capacity(link); 2];
        }
        let mut affected: BTreeSet<TenantId> = BTreeSet::new();
        for link in (0..self.book.links.len()).filter(|link| self.book.is_over(*link)) {
            affected.extend(self.book.links[link].tenants.iter());
        }
        if has_grown {
            let fallen = self.tenants.iter().filter(|(_, tenant)| tenant.fallen.is_some());
            affected.extend(fallen.map(|(id, _)| *id));
        }
        self.readmit(&affected)
    }

    fn capacity(&self, link: usize) -> u64 {
        let wire = &self.shape.topology.links[link];
        let id = LinkId(link as u32);
        let is_down = |node: Node| match node {
            Node::Switch(switch) => self.down.contains(&Element::Switch(switch)),
            Node::Host(_) => false,
        };
        if self.down.contains(&Element::Link(id)) || is_down(wire.a) || is_down(wire.b) {
            return 0;
        }
        let members = self.down.range(Element::Members(id, 0)..=Element::Members(id, u16::MAX));
        let down = members.map(|element| match element {
            Element::Members(_, down) => *down,
            Element::Link(_) | Element::Switch(_) => 0,
        });
        wired(wire, down.fold(0, u16::saturating_add), self.config.headroom)
    }

    fn readmit(&mut self, affected: &BTreeSet<TenantId>) -> Consequence {
        let mut before: BTreeMap<TenantId, Tenant> = BTreeMap::new();
        let mut queue: BTreeSet<Rank> = BTreeSet::new();
        for &id in affected {
            self.take_out(id, &mut before, &mut queue);
        }
        let mut waiting = before.clone();
        let mut said = Consequence::default();
        while let Some(rank) = queue.pop_first() {
            let id = rank.2;
            let tenant = waiting.remove(&id).expect("who is queued waits");
            let new = loop {
                let refusal = match self.fit_again(&tenant) {
                    Ok(new) => break new,
                    Err(refusal) => refusal,
                };
                let Some(victim) = self.victim(&refusal, tenant.priority) else {
                    let fallen = Some(refusal);
                    let none = Vec::new();
                    break Tenant {
                        fallen,
                        needs: none,
                        tree: None,
                        routing: None,
                        ..tenant.clone()
                    };
                };
                self.take_out(victim, &mut before, &mut queue);
                waiting.insert(victim, before[&victim].clone());
            };
            let old = &before[&id];
            match (&old.fallen, &new.fallen) {
                (None, Some(refusal)) => said.fallen.push((id, refusal.clone())),
                (Some(_), None) => said.returned.push(id),
                (None, None) if old.routing != new.routing => {
                    said.rerouted.push((id, old.routing, new.routing));
                }
                _ => {}
            }
            self.put(id, new);
        }
        said
    }

    fn take_out(
        &mut self,
        id: TenantId,
        before: &mut BTreeMap<TenantId, Tenant>,
        queue: &mut BTreeSet<Rank>,
    ) {
        let tenant = self.lift(id).expect("who is taken out is there");
        queue.insert((Reverse(tenant.priority), tenant.sequence, id));
        before.insert(id, tenant);
    }

    /// A place for a tenant's VMs where they are. Survival is a matter of hosts, which stay.
    fn fit_again(&mut self, tenant: &Tenant) -> Result<Tenant, Refusal> {
        let survival = tenant.survival;
        let draft = Tenant { survival: Survival::default(), ..tenant.clone() };
        self.fit(draft).map(|new| Tenant { survival, ..new })
    }

    /// Of the tenants in the way, the one with the lowest priority below `priority`, the last
    /// admitted among equals.
    fn victim(&self, refusal: &Refusal, priority: u8) -> Option<TenantId> {
        let Refusal::Link(full) = refusal else { return None };
        let direction: Direction = full.direction;
        let others = self.in_the_way(full.link, direction, usize::MAX).into_iter();
        let rank = |id: &TenantId| (self.tenants[id].priority, Reverse(self.tenants[id].sequence));
        others.map(|(id, _)| id).filter(|id| self.tenants[id].priority < priority).min_by_key(rank)
    }
}
