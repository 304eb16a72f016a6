//! Links and switches that an operator takes out of service without hurry.
//!
//! Approach  The ledger closes the links that drain: a tenant keeps what it has of them and gets no
//!           more. Tenants with such a link on their tree move to another one where others leave room,
//!           those of the highest priority first. Then the network without all that drains is played
//!           and taken back, and the VMs that lost their floors in it are told.
//! Promises  Draining takes no floor away. What is foretold is what `down` and `dead` would do now.
//! Not here  VMs do not move: whoever placed them moves them away from a switch that drains.

use super::{Stale, State, Undo};
use crate::problem::Problem;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use weir_model::moment::Moment;
use weir_model::objects::{
    Condition, HostSpec, HostState, Kind, LinkSpec, LinkState, Object, Spec, TopologySpec, Truth,
};

/// Name of the condition of links, and of the Topology for its switches.
const DRAINED: &str = "Drained";
/// Reason of `Admitted` of a VM that keeps its floor only as long as what drains still works.
const DRAINING: &str = "Draining";
/// Names of tenants in a message.
const MOST: usize = 4;

impl State {
    /// Notes which links that drain a tenant uses.
    pub(super) fn note_draining(&mut self, tenant: &str) {
        let now = self.book.draining_of(tenant);
        let before = self.stuck.get(tenant);
        if before.map_or(&[][..], Vec::as_slice) == now {
            return;
        }
        let now = (!now.is_empty()).then_some(now);
        let before = before.cloned();
        super::set(&mut self.stuck, tenant.to_owned(), now);
        self.pending.undo.push(Undo::Stuck(tenant.to_owned(), before));
        self.drain_is_news = true;
    }

    /// Moves tenants to trees without links that drain, as long as one finds room.
    pub(super) fn leave_draining(&mut self) {
        loop {
            let mut has_moved = false;
            for tenant in self.stuck_by_rank() {
                let Some(before) = self.book.leave(&tenant) else { continue };
                self.pending.undo.push(Undo::Claims(Box::new(before)));
                self.touched.insert(tenant.clone());
                self.note_draining(&tenant);
                has_moved = true;
            }
            if !has_moved {
                return;
            }
        }
    }

    fn stuck_by_rank(&self) -> Vec<String> {
        let rank = |name: &&String| {
            let stored = self.get(Kind::Tenant, name);
            let priority = stored.map_or(0, |stored| match &stored.object.spec {
                Spec::Tenant(spec) => spec.priority,
                _ => 0,
            });
            let made = stored.and_then(|stored| stored.object.metadata.creation_timestamp);
            (Reverse(priority), made)
        };
        let mut names: Vec<&String> = self.stuck.keys().collect();
        names.sort_by_key(rank);
        names.into_iter().cloned().collect()
    }

    /// Says on links and the Topology what keeps them from being drained, and on VMs which would fall.
    pub(super) fn say_draining(&mut self, now: Moment) -> Result<(), Problem> {
        if !std::mem::take(&mut self.drain_is_news) {
            return Ok(());
        }
        let mut on: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (tenant, links) in &self.stuck {
            for link in links {
                on.entry(link).or_default().insert(tenant);
            }
        }
        let of = |kind: Kind| self.objects[kind as usize].values().map(|stored| &stored.object);
        let mut news = Vec::new();
        for object in of(Kind::Link) {
            let drains = self.book.is_draining(object.name());
            let users = on.get(object.name()).into_iter().flatten().copied().collect();
            news.extend(told(now, object, drains.then_some(users), object.name()));
        }
        for object in of(Kind::Topology) {
            let Spec::Topology(spec) = &object.spec else { continue };
            let users = on
                .iter()
                .filter(|(link, _)| self.ends_at(link, &spec.draining))
                .flat_map(|(_, users)| users.iter().copied())
                .collect();
            let drains = !spec.draining.is_empty();
            news.extend(told(now, object, drains.then_some(users), &spec.draining.join(", ")));
        }
        for object in news {
            self.put_object(object);
        }
        self.foretell(now)
    }

    /// Whether a link, or the NIC of a host, ends at one of the switches.
    fn ends_at(&self, link: &str, switches: &[String]) -> bool {
        let is_there = |name: &String| switches.contains(name);
        match self.get(Kind::Link, link).map(|stored| &stored.object.spec) {
            Some(Spec::Link(spec)) => is_there(&spec.lower) || is_there(&spec.upper),
            // The NIC of a host drains only with its switch.
            _ => true,
        }
    }

    /// Plays the network without all that drains, and tells the VMs that lose their floors in it.
    fn foretell(&mut self, now: Moment) -> Result<(), Problem> {
        let drains = self.book.drains();
        let fall = if drains { self.fall_without(now)? } else { BTreeMap::new() };
        let mut news = Vec::new();
        for stored in self.objects[Kind::Vm as usize].values() {
            let object = &stored.object;
            let Some(said) = object.status.condition(super::admit::ADMITTED) else { continue };
            let why = fall.get(object.name());
            if said.status != Truth::True || (why.is_none() && said.reason != DRAINING) {
                continue;
            }
            let mut new = object.clone();
            new.status.set(match why {
                None => super::admit::admitted(now),
                Some(why) => Condition {
                    reason: DRAINING.into(),
                    message: format!("the floor falls when what drains is gone: {why}"),
                    ..super::admit::admitted(now)
                },
            });
            if new.status != object.status {
                news.push(new);
            }
        }
        for object in news {
            self.put_object(object);
        }
        Ok(())
    }

    /// VMs that would lose their floors without all that drains, and why.
    fn fall_without(&mut self, now: Moment) -> Result<BTreeMap<String, String>, Problem> {
        let mark = self.mark();
        let touched = self.touched.clone();
        let before = self.fallen.clone();
        for object in self.without_draining() {
            self.put_object(object);
        }
        self.set_stale(Stale::Network);
        let settled = self.add_up(now);
        let why = |vm: &String| {
            let stored = self.get(Kind::Vm, vm)?;
            Some((
                vm.clone(),
                stored.object.status.condition(super::admit::ADMITTED)?.message.clone(),
            ))
        };
        let fall = self.fallen.difference(&before).filter_map(why).collect();
        self.undo_to(mark);
        self.touched = touched;
        settled.map(|()| fall)
    }

    /// Links and hosts as they are when all that drains is gone.
    fn without_draining(&self) -> Vec<Object> {
        let links = self.objects[Kind::Link as usize].values();
        let hosts = self.objects[Kind::Host as usize].values();
        let gone = |stored: &std::sync::Arc<super::Stored>| {
            let mut object = stored.object.clone();
            match &mut object.spec {
                Spec::Link(spec) if self.book.is_draining(&stored.object.metadata.name) => {
                    spec.state = LinkState::Down;
                }
                Spec::Host(spec)
                    if self.book.is_draining(&super::nic_of(&stored.object.metadata.name)) =>
                {
                    spec.state = HostState::Dead;
                }
                _ => return None,
            }
            Some(object)
        };
        links.chain(hosts).filter_map(gone).collect()
    }

    /// What is noted of draining is what the book has.
    pub(super) fn check_draining(&self) {
        for tenant in self.objects[Kind::Tenant as usize].keys() {
            let noted = self.stuck.get(tenant).cloned().unwrap_or_default();
            assert_eq!(noted, self.book.draining_of(tenant), "{tenant}");
        }
        for (tenant, links) in &self.stuck {
            assert!(!links.is_empty() && self.get(Kind::Tenant, tenant).is_some(), "{tenant}");
        }
    }
}

/// Whether a change of the network is only about what drains: then all floors that hold stay.
pub(super) fn is_all(old: Option<&Spec>, new: &Spec) -> bool {
    match (old, new) {
        (Some(Spec::Link(old)), Spec::Link(new)) => {
            let is_up = old.state != LinkState::Down && new.state != LinkState::Down;
            is_up && LinkSpec { state: new.state, ..old.clone() } == *new
        }
        (Some(Spec::Host(old)), Spec::Host(new)) => {
            let is_there = old.state != HostState::Dead && new.state != HostState::Dead;
            is_there && HostSpec { state: new.state, ..old.clone() } == *new
        }
        (Some(Spec::Topology(old)), Spec::Topology(new)) => {
            TopologySpec { draining: new.draining.clone(), ..old.clone() } == *new
        }
        (None, Spec::Topology(new)) => {
            TopologySpec { draining: new.draining.clone(), ..TopologySpec::default() } == *new
        }
        _ => false,
    }
}

/// The object with its condition `Drained`, if that is news. `users` are the tenants on what drains.
fn told(now: Moment, object: &Object, users: Option<BTreeSet<&str>>, what: &str) -> Option<Object> {
    let mut new = object.clone();
    let condition = |status, reason: &str, message| Condition {
        name: DRAINED.into(),
        status,
        reason: reason.into(),
        message,
        last_transition_time: now,
    };
    match users {
        None => new.status.conditions.retain(|condition| condition.name != DRAINED),
        Some(users) if users.is_empty() => {
            new.status.set(condition(Truth::True, "NotUsed", String::new()));
        }
        Some(users) => {
            let names: Vec<&str> = users.iter().take(MOST).copied().collect();
            let more = if users.len() > MOST { ", …" } else { "" };
            let message = format!(
                "{what}: {} tenants keep floors there, for which no other way has room: {}{more}. Move VMs \
                 or add links; `weir plan --without` says which floors fall",
                users.len(),
                names.join(", ")
            );
            new.status.set(condition(Truth::False, "InUse", message));
        }
    }
    (new.status != object.status).then_some(new)
}
