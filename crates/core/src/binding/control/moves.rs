//! How a tenant moves from phase to phase, and what switches answer.

use super::{
    Action, Answer, Control, Event, Order, Outcome, Pending, Phase, Provision, Tenant, Ticket,
};
use crate::binding::Why;
use crate::binding::switch::{SwitchConfig, diff};
use crate::ledger::SwitchId;
use weir_units::{TenantId, Time};

impl Control {
    /// All phase changes pass here: each is reported once, and hosts are told what follows from it.
    pub(super) fn enter(&mut self, id: TenantId, phase: Phase, out: &mut Outcome) {
        let Some(tenant) = self.tenants.get(&id) else { return };
        self.dirty.extend(self.switches_of(tenant));
        let tenant = self.tenants.get_mut(&id).expect("it is there");
        tenant.phase = phase;
        out.events.push(Event::Moved(id, phase));
        let codepoint = tenant.codepoint;
        let order = match phase {
            Phase::Tagging | Phase::Clamping => Some(Order { codepoint, is_free: false }),
            Phase::Freeing => Some(Order { codepoint, is_free: true }),
            Phase::Untagging => Some(Order::default()),
            Phase::Shared | Phase::Preparing | Phase::Dedicated | Phase::Draining(_) => None,
        };
        if let Some(order) = order.filter(|order| *order != tenant.order) {
            tenant.version.0 = (tenant.version.0 + 1).max(self.first_version);
            tenant.order = order;
            out.actions.push(Action::Tell { tenant: id, version: tenant.version, order });
        }
        if phase == Phase::Shared {
            tenant.slots.clear();
            tenant.lost.clear();
            let is_gone = tenant.is_gone;
            self.index(id);
            if is_gone {
                self.tenants.remove(&id);
            }
        }
    }

    /// Takes every step that can be taken.
    pub(super) fn advance(&mut self, now: Time, out: &mut Outcome) {
        loop {
            let mut is_idle = true;
            let moving: Vec<TenantId> = self.moving().collect();
            for id in moving {
                if let Some(next) = self.next_phase(id, now) {
                    self.enter(id, next, out);
                    is_idle = false;
                }
            }
            is_idle &= !self.write(now, out);
            if is_idle {
                return;
            }
        }
    }

    /// Tenants that are not where they should be.
    fn moving(&self) -> impl Iterator<Item = TenantId> + '_ {
        let is_moving = |tenant: &Tenant| match tenant.phase {
            Phase::Shared => tenant.wanted.is_some() || tenant.is_gone,
            Phase::Dedicated => tenant.wanted != Some(tenant.codepoint) || tenant.has_moved(),
            _ => true,
        };
        self.tenants.iter().filter(move |(_, tenant)| is_moving(tenant)).map(|(id, _)| *id)
    }

    /// The edges: what a tenant waits for in each phase.
    fn next_phase(&mut self, id: TenantId, now: Time) -> Option<Phase> {
        let tenant = self.tenants.get(&id)?;
        let stays = tenant.wanted == Some(tenant.codepoint) && !tenant.has_moved();
        match tenant.phase {
            Phase::Shared if tenant.is_gone => {
                self.tenants.remove(&id);
                self.index(id);
                None
            }
            Phase::Shared => self.prepare(id),
            Phase::Preparing if !stays || tenant.failed.is_some() => Some(Phase::Shared),
            Phase::Preparing => self.has_queues(tenant).is_ok().then_some(Phase::Tagging),
            Phase::Tagging if !tenant.is_told() => None,
            Phase::Tagging => Some(if stays { Phase::Freeing } else { Phase::Clamping }),
            Phase::Freeing => tenant.is_told().then_some(Phase::Dedicated),
            // Where shared queues cannot hold one more beside those on their way, it waits for them.
            Phase::Dedicated if self.crowded(tenant).is_some_and(|(_, others)| others) => None,
            Phase::Dedicated => (!stays).then_some(Phase::Clamping),
            Phase::Clamping if !tenant.is_told() => None,
            Phase::Clamping if stays && self.has_queues(tenant).is_ok() => Some(Phase::Freeing),
            Phase::Clamping => self.shared_stands(tenant).then_some(Phase::Untagging),
            Phase::Untagging => {
                tenant.is_told().then_some(Phase::Draining(now + self.config.linger))
            }
            Phase::Draining(until) => (now >= until).then_some(Phase::Shared),
        }
    }

    fn prepare(&mut self, id: TenantId) -> Option<Phase> {
        let tenant = self.tenants.get(&id)?;
        let codepoint = tenant.wanted.filter(|_| tenant.failed.is_none())?;
        // A switch that was not read may have queues of tenants that an earlier loop bound.
        let is_known =
            |switch| self.switches.get(switch).is_some_and(|state| state.known.is_some());
        if !self.switches_of(tenant).iter().all(is_known) {
            return None;
        }
        let slots = self.find_slots(id, codepoint)?;
        let crowded = self.crowded(tenant);
        let tenant = self.tenants.get_mut(&id)?;
        if let Some((link, others)) = crowded {
            tenant.failed = (!others).then_some(Why::Weights(link));
            return None;
        }
        (tenant.codepoint, tenant.slots) = (codepoint, slots);
        self.index(id);
        Some(Phase::Preparing)
    }

    // -- switches -------------------------------------------------------------------------------

    /// Reads a switch, or tells it what to have. A switch has one question at a time.
    pub(super) fn ask(
        &mut self,
        switch: SwitchId,
        config: Option<SwitchConfig>,
        now: Time,
        out: &mut Outcome,
    ) {
        let Some(state) = self.switches.get_mut(&switch) else { return };
        if state.pending.is_some() {
            return;
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let until = now + self.config.patience;
        out.actions.push(match &config {
            None => Action::Read { switch, ticket },
            Some(config) => Action::Apply { switch, ticket, config: config.clone() },
        });
        state.pending = Some(Pending { ticket, until, config });
    }

    /// Tells switches what has changed. Whether one has turned out to need nothing.
    fn write(&mut self, now: Time, out: &mut Outcome) -> bool {
        let mut has_settled = false;
        for switch in self.dirty.clone() {
            let Some(state) = self.switches.get(&switch) else {
                has_settled |= self.dirty.remove(&switch);
                continue;
            };
            if state.pending.is_some() {
                continue;
            }
            if self.config.provision != Provision::Loop {
                has_settled |= self.dirty.remove(&switch);
                continue;
            }
            let Some(wanted) = self.wanted(switch) else { continue };
            if state.known.as_ref() == Some(&wanted) {
                has_settled |= self.dirty.remove(&switch);
            } else if !state.has_failed {
                self.ask(switch, Some(wanted), now, out);
            }
        }
        has_settled
    }

    /// A switch has answered. An answer to another question than the last one is void.
    pub(super) fn answered(
        &mut self,
        switch: SwitchId,
        ticket: Ticket,
        answer: Answer,
        out: &mut Outcome,
    ) {
        let Some(state) = self.switches.get_mut(&switch) else { return };
        let Some(pending) = state.pending.take_if(|pending| pending.ticket == ticket) else {
            return;
        };
        match (answer, pending.config) {
            (Answer::Found(found), None) => self.found(switch, found, out),
            (Answer::Applied, Some(config)) => state.known = Some(config),
            (Answer::Failed, config) => self.failed(switch, config.is_some(), out),
            // An answer to the other question: what the switch has is not known.
            (Answer::Found(_), Some(_)) => self.failed(switch, true, out),
            (Answer::Applied, None) => self.failed(switch, false, out),
        }
        self.dirty.insert(switch);
    }

    fn found(&mut self, switch: SwitchId, found: SwitchConfig, out: &mut Outcome) {
        let state = self.switches.get_mut(&switch).expect("it was asked");
        state.before.get_or_insert_with(|| found.clone());
        if let Some(known) = &state.known {
            let drift = diff(&found, known).len();
            if drift > 0 {
                out.events.push(Event::Drifted(switch, drift));
            }
        }
        let is_ours = |codepoint: &u8| self.config.fabric.codepoints.contains(codepoint);
        for (name, port) in &found.ports {
            let known = state.known.as_ref().and_then(|known| known.ports.get(name));
            for codepoint in port.queue_of.keys().filter(|codepoint| !is_ours(codepoint)) {
                if !known.is_some_and(|known| known.queue_of.contains_key(codepoint)) {
                    out.events.push(Event::Foreign(switch, name.clone(), *codepoint));
                }
            }
        }
        if self.config.provision != Provision::Loop {
            let ports = self.ports.get(&switch).into_iter().flatten();
            let lacks = |codepoint: &u8| {
                ports.clone().any(|(.., name)| {
                    !found.ports.get(name).is_some_and(|port| port.queue_of.contains_key(codepoint))
                })
            };
            let lacking: Vec<u8> =
                self.config.fabric.codepoints.iter().copied().filter(lacks).collect();
            if !lacking.is_empty() && state.known.as_ref() != Some(&found) {
                out.events.push(Event::Unprovisioned(switch, lacking));
            }
        }
        state.known = Some(found);
        self.recover_slots(switch);
    }

    /// A switch failed. Tenants that wait for a queue there stay in the shared one. Those whose queue it
    /// has lost go there.
    fn failed(&mut self, switch: SwitchId, was_written: bool, out: &mut Outcome) {
        out.events.push(Event::Failed(switch));
        let of_it: Vec<TenantId> = self
            .tenants
            .iter()
            .filter(|(_, tenant)| self.switches_of(tenant).contains(&switch))
            .map(|(id, _)| *id)
            .collect();
        for id in of_it {
            let is_lost = self.lacks(switch, &self.tenants[&id]);
            let tenant = self.tenants.get_mut(&id).expect("it is listed");
            let is_to_have = tenant.phase == Phase::Shared && tenant.wanted.is_some();
            if tenant.phase == Phase::Preparing || is_to_have {
                tenant.failed = Some(Why::Switch(switch));
            } else if tenant.phase.is_tagged() && was_written && is_lost {
                tenant.failed = Some(Why::Switch(switch));
                tenant.wanted = None;
                tenant.lost.insert(switch);
            }
        }
        let state = self.switches.get_mut(&switch).expect("it was asked");
        state.has_failed = true;
        if was_written {
            state.known = None;
        }
    }

    /// A switch that has not answered in time has failed.
    pub(super) fn lose_patience(&mut self, now: Time, out: &mut Outcome) {
        let late = self.switches.iter().filter_map(|(switch, state)| {
            let pending = state.pending.as_ref().filter(|pending| pending.until <= now)?;
            Some((*switch, pending.ticket))
        });
        for (switch, ticket) in late.collect::<Vec<_>>() {
            self.answered(switch, ticket, Answer::Failed, out);
        }
    }
}

impl Tenant {
    /// Whether all of its hosts have its last order in force.
    fn is_told(&self) -> bool {
        let is = |host| self.in_force.get(host).copied().unwrap_or_default() >= self.version;
        self.member.hosts.iter().all(is)
    }
}
