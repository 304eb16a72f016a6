//! Algorithm 2: one control interval's decision.

use super::weights::can_hold;
use super::{Binder, Contender, Place, Ports, Why, Wish, holds};
use crate::ledger::{LinkId, Need};
use std::cmp::Reverse;
use weir_units::{Rate, SplitMix64, TenantId};

/// Contenders are known by their index here.
struct Round<'a> {
    binder: &'a mut Binder,
    contenders: &'a [Contender],
    /// Contenders in the order in which they are served.
    order: Vec<usize>,
    /// Place in the order, by contender.
    rank: Vec<usize>,
    places: Vec<Place>,
    /// Those that lost their queue in this round are not served again.
    has_lost: Vec<bool>,
}

pub(super) fn run(binder: &mut Binder, contenders: &[Contender], seed: u64) {
    debug_assert!(contenders.is_sorted_by_key(|contender| contender.tenant), "ascending");
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&contenders[*a], &contenders[*b]);
        let pinned = |c: &Contender| Reverse(c.wish == Wish::Pinned);
        let tie = |c: &Contender| SplitMix64::mix(seed ^ u64::from(c.tenant.0));
        let by_score = b.score.total_cmp(&a.score);
        pinned(a).cmp(&pinned(b)).then(by_score).then(tie(a).cmp(&tie(b)))
    });
    let mut rank = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, index)| rank[*index] = at);
    let before = |c: &Contender| binder.place(c.tenant).unwrap_or(Place::Shared(Why::New));
    let places = contenders.iter().map(before).collect();
    let has_lost = vec![false; contenders.len()];
    let mut round = Round { binder, contenders, order, rank, places, has_lost };
    round.count();
    round.keep();
    round.serve();
    round.hold_shared();
    round.pack();
    round.binder.places = contenders.iter().map(|c| c.tenant).zip(round.places).collect();
}

fn rates(need: &Need) -> [Rate; 2] {
    [need.forward, need.backward]
}

impl Round<'_> {
    fn index(&self, tenant: TenantId) -> Option<usize> {
        self.contenders.binary_search_by_key(&tenant, |contender| contender.tenant).ok()
    }

    fn ports(&mut self, need: &Need) -> Option<&mut Ports> {
        self.binder.ports.get_mut(need.link.0 as usize)
    }

    fn is_dedicated(&self, index: usize) -> bool {
        matches!(self.places[index], Place::Dedicated(_))
    }

    /// Adds up what is reserved. Tenants that left, or may have no queue, give theirs up.
    fn count(&mut self) {
        for ports in &mut self.binder.ports {
            (ports.reserved, ports.tenants) = ([Rate::ZERO; 2], 0);
        }
        for contender in self.contenders {
            for need in &contender.needs {
                let Some(ports) = self.ports(need) else { continue };
                ports.tenants += 1;
                let sums = ports.reserved.iter_mut().zip(rates(need));
                sums.for_each(|(sum, rate)| *sum += rate);
            }
        }
        for (index, contender) in self.contenders.iter().enumerate() {
            let none = match contender.wish {
                Wish::Excluded => Some(Why::Excluded),
                _ if contender.needs.is_empty() => Some(Why::NeedsNone),
                _ if contender.is_new => Some(Why::New),
                _ => None,
            };
            if let Some(why) = none {
                self.places[index] = Place::Shared(why);
            }
        }
        for link in 0..self.binder.ports.len() {
            let mut slots = std::mem::take(&mut self.binder.ports[link].slots);
            for slot in &mut slots {
                *slot = slot.and_then(|(tenant, _)| {
                    let index = self.index(tenant).filter(|index| self.is_dedicated(*index))?;
                    let needs = &self.contenders[index].needs;
                    let at = needs.binary_search_by_key(&link, |need| need.link.0 as usize).ok()?;
                    Some((tenant, rates(&needs[at])))
                });
            }
            self.binder.ports[link].slots = slots;
        }
    }

    /// Dedicated tenants keep their queues, and get one on links that are new to their trees, as far
    /// as queues, code points and weights allow: the last in the order loses first.
    fn keep(&mut self) {
        let order = self.order.iter().copied();
        let kept: Vec<usize> = order.filter(|index| self.is_dedicated(*index)).collect();
        for &index in &kept {
            self.take_slots(index);
        }
        for &index in kept.iter().rev() {
            if let Some(why) = self.why_not_kept(index) {
                self.give_up(index, why);
            }
        }
        self.pack();
    }

    /// Queues that are not there any more are left, and so is the shared one's place as soon as there
    /// are tenants to share it.
    fn pack(&mut self) {
        for (ports, link) in self.binder.ports.iter_mut().zip(&self.binder.fabric.links) {
            let queues = usize::from(link.queues);
            let is_all_dedicated = ports.dedicated().count() == queues;
            ports.pack(if is_all_dedicated { queues } else { queues.saturating_sub(1) });
        }
    }

    fn why_not_kept(&self, index: usize) -> Option<Why> {
        let Place::Dedicated(codepoint) = self.places[index] else { return None };
        if !self.binder.fabric.codepoints.contains(&codepoint) {
            return Some(Why::Codepoints);
        }
        for need in &self.contenders[index].needs {
            let link = need.link.0 as usize;
            let most = self.binder.most_dedicated(link);
            if self.binder.ports.get(link).is_none_or(|ports| ports.dedicated().count() > most) {
                return Some(Why::QueuesGone(need.link));
            }
            let is_taken = self
                .dedicated_on(link)
                .any(|other| other != index && self.places[other] == Place::Dedicated(codepoint));
            if is_taken {
                return Some(Why::Codepoints);
            }
            if !self.weights_hold(link, None, &[]) {
                return Some(Why::Weights(need.link));
            }
        }
        None
    }

    /// In the order of scores, tenants without a queue look for one.
    fn serve(&mut self) {
        for at in 0..self.order.len() {
            let index = self.order[at];
            let contender = &self.contenders[index];
            let may_not =
                contender.is_new || contender.needs.is_empty() || contender.wish == Wish::Excluded;
            if may_not || self.has_lost[index] || self.is_dedicated(index) {
                continue;
            }
            match self.find(index) {
                Ok((codepoint, victims)) => {
                    for (victim, link) in victims {
                        self.give_up(victim, Why::Preempted(link, contender.tenant));
                    }
                    self.places[index] = Place::Dedicated(codepoint);
                    self.take_slots(index);
                }
                Err(why) => self.places[index] = Place::Shared(why),
            }
        }
    }

    /// Weights that others provisioned hold the floors of the shared queue beside those that have a
    /// queue: otherwise the last of these loses it.
    fn hold_shared(&mut self) {
        let Some(provisioned) = self.binder.provisioned.clone() else { return };
        loop {
            let breaks = |link: &usize| {
                let ports = &self.binder.ports[*link];
                let own = self.dedicated_on(*link).filter_map(|index| match self.places[index] {
                    Place::Dedicated(codepoint) => Some(u32::from(provisioned.of(codepoint))),
                    Place::Shared(_) => None,
                });
                let all = u32::from(provisioned.shared) + own.sum::<u32>();
                let rate = self.binder.fabric.links[*link].rate;
                (0..2).any(|way| !holds(ports.shared(way), provisioned.shared, all, rate))
            };
            let broken = (0..self.binder.ports.len()).find(breaks);
            let Some(link) = broken else { return };
            let last = self.dedicated_on(link).max_by_key(|other| self.rank[*other]);
            let Some(last) = last else { return };
            self.give_up(last, Why::Weights(LinkId(link as u32)));
        }
    }

    /// A code point, and which tenants' queues to take on which links, so that this tenant has one everywhere.
    fn find(&self, index: usize) -> Result<(u8, Vec<(usize, LinkId)>), Why> {
        let needs = &self.contenders[index].needs;
        let mut victims: Vec<(usize, LinkId)> = Vec::new();
        for need in needs {
            let link = need.link.0 as usize;
            let most = self.binder.most_dedicated(link);
            if most == 0 {
                return Err(Why::NoQueues(need.link));
            }
            let is_victim = |other: &usize| victims.iter().any(|(victim, _)| victim == other);
            let others = self.dedicated_on(link).filter(|other| !is_victim(other));
            if others.clone().count() < most {
                continue;
            }
            // If the last in the order does not yield, none does.
            let last = others.max_by_key(|other| self.rank[*other]);
            let victim = last.filter(|last| self.yields(*last, index));
            victims.push((victim.ok_or(Why::Outscored(need.link))?, need.link));
        }
        let without: Vec<usize> = victims.iter().map(|(victim, _)| *victim).collect();
        let theirs = without.iter().flat_map(|victim| &self.contenders[*victim].needs);
        let changed = || needs.iter().chain(theirs.clone());
        let mut why = Why::Codepoints;
        for codepoint in self.codepoints(needs, &without) {
            let with = Some((index, codepoint));
            let breaks = |need: &&Need| !self.weights_hold(need.link.0 as usize, with, &without);
            match changed().find(breaks) {
                None => return Ok((codepoint, victims)),
                Some(need) => why = Why::Weights(need.link),
            }
            // Weights that follow floors are the same for every code point.
            if self.binder.provisioned.is_none() {
                break;
            }
        }
        Err(why)
    }

    /// Whether the one that has a queue must give it to the other.
    fn yields(&self, has: usize, wants: usize) -> bool {
        let (has, wants) = (&self.contenders[has], &self.contenders[wants]);
        has.wish != Wish::Pinned && (wants.wish == Wish::Pinned || has.score < wants.score)
    }

    /// The code points that no dedicated tenant has on any of these links.
    fn codepoints(&self, needs: &[Need], without: &[usize]) -> impl Iterator<Item = u8> + '_ {
        let mut taken = [false; 256];
        for need in needs {
            for other in self.dedicated_on(need.link.0 as usize) {
                if let Place::Dedicated(codepoint) = self.places[other]
                    && !without.contains(&other)
                {
                    taken[usize::from(codepoint)] = true;
                }
            }
        }
        let all = self.binder.fabric.codepoints.iter().copied();
        all.filter(move |point| !taken[usize::from(*point)])
    }

    fn dedicated_on(&self, link: usize) -> impl Iterator<Item = usize> + Clone + '_ {
        let slots = self.binder.ports.get(link).map_or(&[][..], |ports| &ports.slots);
        slots.iter().flatten().filter_map(|(tenant, _)| self.index(*tenant))
    }

    /// Whether some weights, or those that others provisioned, hold all floors of a link, with one
    /// more dedicated tenant (if the link is on its tree), and without others.
    fn weights_hold(&self, link: usize, with: Option<(usize, u8)>, without: &[usize]) -> bool {
        let fabric = &self.binder.fabric;
        let Some(ports) = self.binder.ports.get(link) else { return false };
        let mut dedicated: Vec<(u8, [Rate; 2])> = Vec::with_capacity(ports.slots.len() + 1);
        for (tenant, rates) in ports.dedicated() {
            let Some(index) = self.index(tenant).filter(|index| !without.contains(index)) else {
                continue;
            };
            if let Place::Dedicated(codepoint) = self.places[index] {
                dedicated.push((codepoint, rates));
            }
        }
        if let Some((with, codepoint)) = with {
            let needs = &self.contenders[with].needs;
            let at = needs.binary_search_by_key(&link, |need| need.link.0 as usize);
            dedicated.extend(at.ok().map(|at| (codepoint, rates(&needs[at]))));
        }
        (0..2).all(|way| {
            let mut floors: Vec<Rate> = dedicated.iter().map(|(_, rates)| rates[way]).collect();
            let of_dedicated: Rate = floors.iter().copied().sum();
            if let Some(provisioned) = &self.binder.provisioned {
                // Beside all others, whoever has them. For the shared queue see `hold_shared`.
                let all = provisioned.all();
                let holds = |(codepoint, rates): &(u8, [Rate; 2])| {
                    let weight = provisioned.of(*codepoint);
                    holds(rates[way], weight, all, fabric.links[link].rate)
                };
                return dedicated.iter().all(holds);
            }
            if floors.len() < usize::from(fabric.links[link].queues) {
                floors.push(ports.reserved[way].saturating_sub(of_dedicated));
            }
            can_hold(&floors, fabric.links[link].rate, fabric.most_weight)
        })
    }

    /// A queue on every link of the tenant where it has none.
    fn take_slots(&mut self, index: usize) {
        let contender = &self.contenders[index];
        for need in &contender.needs {
            if let Some(ports) = self.ports(need) {
                ports.put(contender.tenant, rates(need));
            }
        }
    }

    fn give_up(&mut self, index: usize, why: Why) {
        let contender = &self.contenders[index];
        for need in &contender.needs {
            if let Some(ports) = self.ports(need) {
                ports.remove(contender.tenant);
            }
        }
        self.places[index] = Place::Shared(why);
        self.has_lost[index] = true;
    }
}

impl Ports {
    fn put(&mut self, tenant: TenantId, rates: [Rate; 2]) {
        if self.dedicated().any(|(other, _)| other == tenant) {
            return;
        }
        match self.slots.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some((tenant, rates)),
            None => self.slots.push(Some((tenant, rates))),
        }
    }

    fn remove(&mut self, tenant: TenantId) {
        let is_its = |slot: &&mut Option<_>| slot.is_some_and(|(other, _)| other == tenant);
        if let Some(slot) = self.slots.iter_mut().find(is_its) {
            *slot = None;
        }
    }

    /// Moves what stands beyond the last queue to free ones. There are enough.
    fn pack(&mut self, most: usize) {
        let beyond: Vec<_> = self.slots.drain(most.min(self.slots.len())..).flatten().collect();
        beyond.into_iter().for_each(|(tenant, rates)| self.put(tenant, rates));
        while self.slots.last() == Some(&None) {
            self.slots.pop();
        }
    }
}
