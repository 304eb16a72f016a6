//! Binds tenants to queues of switches: drives the loop of `weir_core::binding::control`.
//!
//! Problem   The loop has no clock and no I/O. A decision changes switches, hosts and what is written
//!           down, and each of them may fail, or this process may die in between.
//! Approach  While this process leads, one task has the loop. Switches have a thread each (`switches`).
//!           Hosts are told by their tenant's state: the order is written into the Tenant's status, the
//!           plan of agents sends what is written, and their answers come back to the loop. Objects say
//!           which links and switches there are (`network`); places become conditions (`tell`).
//! Promises  No host is told of a tag that is not on the disk. A new leader goes on from what was written
//!           and what switches have. A switch is written to by the leader alone.
//! Not here  Who gets a queue, and in which order things happen: `weir_core::binding`. How a switch is
//!           written to: `weir-switch`.

mod network;
mod start;
mod switches;
mod tell;
#[cfg(test)]
mod tests;
mod usage;

pub(crate) use switches::Common;
pub use switches::{Drivers, LIMIT, Real};

use crate::agents::Fleet;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::problem::Problem;
use crate::state::{Action as Asked, Actor, Bounds, Observation, Request, Role};
use crate::view::View;
use network::{Names, Network, Seen};
use std::sync::Arc;
use std::time::Duration;
use switches::{Desk, Heard};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use usage::Counted;
use weir_core::binding::control::{
    Action, Control, Due, Event, Input, Member, Outcome, Phase, Provision,
};
use weir_core::binding::switch::PortName;
use weir_core::binding::{Place, Why, Wish};
use weir_core::host::Version;
use weir_core::ledger::SwitchId;
use weir_model::objects::{Kind, QueueWish, TenantQueue, Truth};
use weir_units::{HostId, SortedMap, SortedSet, Span, TenantId, Time};

/// Changes of objects are looked at no more often than this.
const GATHER: Duration = Duration::from_millis(50);
/// How long nothing is tried after the store failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Most conditions of one request to the engine.
const MOST: usize = 1000;

/// What an interval asks agents for: this many reports of what tenants use.
const REPORTS: u64 = 4;
/// Shortest time between two reports, ms. Shorter: agents do little but read counters. Longer: no two
/// reports in the shortest interval.
const REPORT_LEAST: u64 = 50;

type Key = (Kind, String, &'static str);

/// What the controller binds with.
pub(crate) struct Binding {
    fleet: Arc<Fleet>,
    view: Arc<View>,
    engine: Engine,
    clock: Clock,
    common: Common,
    names: Names,
    /// None while no queues are wanted.
    loop_: Option<Loop>,
    desks: SortedMap<SwitchId, Desk>,
    threads: u64,
    say: mpsc::UnboundedSender<Heard>,
    heard: mpsc::UnboundedReceiver<Heard>,
    seen: SortedMap<String, Seen>,
    bounds: Bounds,
    /// Version of the objects up to which `bounds` and the network are.
    looked: u64,
    looked_at: Duration,
    /// How long it waits for the next look.
    gather: Duration,
    /// The last look found that no queues are wanted and no tenant has one.
    is_idle: bool,
    counted: Counted,
    /// What was written down last of each tenant's queue.
    records: SortedMap<TenantId, TenantQueue>,
    /// By tenant: a host that cannot tag.
    cannot_tag: SortedMap<TenantId, String>,
    /// Conditions that are to be written, and those that were.
    pending: SortedMap<Key, Observation>,
    told: SortedMap<Key, (Truth, String, String)>,
    writing: Option<JoinHandle<Result<(), Problem>>>,
    in_flight: Vec<Observation>,
    write_at: Duration,
}

/// The loop and what it was told.
struct Loop {
    control: Control,
    network: Network,
    members: Vec<Member>,
    /// What failed at each switch, in words.
    failures: SortedMap<SwitchId, String>,
    written: SortedSet<SwitchId>,
}

impl Binding {
    pub(crate) fn new(
        fleet: Arc<Fleet>,
        view: Arc<View>,
        engine: Engine,
        clock: Clock,
        common: Common,
    ) -> Self {
        let (say, heard) = mpsc::unbounded_channel();
        Self {
            fleet,
            view,
            engine,
            clock,
            common,
            names: Names::default(),
            loop_: None,
            desks: SortedMap::new(),
            threads: 0,
            say,
            heard,
            seen: SortedMap::new(),
            bounds: Bounds::default(),
            looked: u64::MAX,
            looked_at: Duration::ZERO,
            gather: GATHER,
            is_idle: false,
            counted: Counted::default(),
            records: SortedMap::new(),
            cannot_tag: SortedMap::new(),
            pending: SortedMap::new(),
            told: SortedMap::new(),
            writing: None,
            in_flight: Vec::new(),
            write_at: Duration::ZERO,
        }
    }

    /// Binds until the task is dropped, which ends the threads of switches.
    pub(crate) async fn run(mut self) {
        let mut newest = self.view.newest();
        loop {
            if let Err(problem) = self.look().await {
                tracing::warn!("tenants are not bound: {}", problem.detail);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            self.write_down();
            let wait = self.wait();
            tokio::select! {
                heard = self.heard.recv() => {
                    if let Some(heard) = heard {
                        self.hear(heard);
                    }
                }
                () = self.fleet.has_in_force() => self.take_in_force(false),
                changed = newest.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                done = ended(&mut self.writing) => self.written(done),
                () = tokio::time::sleep(wait) => self.tick(),
            }
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + Span::from(self.clock.running())
    }

    /// Our mark on switches; none where nothing is written.
    fn mark(&self) -> Option<String> {
        let is_static =
            self.loop_.as_ref().is_some_and(|bound| bound.network.provisioned.is_some());
        (!is_static).then(|| self.common.owner.to_string())
    }

    /// Until something is due.
    fn wait(&self) -> Duration {
        let mut wait = PAUSE;
        if let Some(bound) = &self.loop_ {
            let (due, _) = bound.control.next_deadline();
            wait = wait.min(Duration::from(due.since(self.now())));
        }
        if self.looked != self.view.revision() {
            wait = wait.min((self.looked_at + self.gather).saturating_sub(self.clock.running()));
        }
        wait
    }

    fn tick(&mut self) {
        let now = self.now();
        let Some(bound) = &mut self.loop_ else { return };
        let (due, why) = bound.control.next_deadline();
        if due > now {
            return;
        }
        if why != Due::Interval {
            let outcome = bound.control.handle(now, Input::Tick);
            self.follow(outcome);
            return;
        }
        let interval = bound.control.config().interval;
        let usage = self.counted.since(self.fleet.usage(), interval, &self.names);
        let members = std::mem::take(&mut bound.members);
        let outcome = bound.control.handle(now, Input::Interval(&members, &usage));
        bound.members = members;
        self.follow(outcome);
        self.tell_places();
        // Also what no object says may be another: what agents can do, and whether tenants have left.
        self.looked = u64::MAX;
    }

    /// A switch said something.
    fn hear(&mut self, heard: Heard) {
        let now = self.now();
        let Some(desk) = self.desks.get(&heard.switch).filter(|it| it.thread == heard.thread)
        else {
            return;
        };
        let name = desk.described.name.clone();
        if let Some(found) = &heard.found {
            let seen = Seen::of(found, &desk.described, self.mark().as_deref());
            if self.seen.get(&name) != Some(&seen) {
                self.seen.insert(name.clone(), seen);
                // The network is another.
                self.looked = u64::MAX;
            }
        }
        let Some(bound) = &mut self.loop_ else { return };
        let is_read = heard.found.is_some();
        match heard.failure {
            Some(why) => _ = bound.failures.insert(heard.switch, why),
            None if !is_read => {
                bound.failures.remove(&heard.switch);
                match heard.is_written {
                    true => bound.written.insert(heard.switch),
                    false => bound.written.remove(&heard.switch),
                };
            }
            None => {}
        }
        let answer = Input::Answer(heard.switch, heard.ticket, heard.answer);
        let outcome = bound.control.handle(now, answer);
        let is_written = outcome.actions.iter().any(
            |action| matches!(action, Action::Apply { switch, .. } if *switch == heard.switch),
        );
        // What failed is told until it was done, or is wanted no more.
        if is_read && !is_written {
            bound.failures.remove(&heard.switch);
        }
        self.follow(outcome);
        self.tell_switch(heard.switch, &name);
    }

    /// Says what is so of a switch.
    fn tell_switch(&mut self, id: SwitchId, name: &str) {
        let Some(bound) = &self.loop_ else { return };
        let is_static = bound.control.config().provision != Provision::Loop;
        let trouble = self.seen.get(name).and_then(|seen| seen.trouble.clone());
        let lacking = if is_static { bound.lacking(id) } else { SortedSet::new() };
        let said = if let Some(why) = bound.failures.get(&id) {
            let message = format!("{why}; tenants that wait for it are in the shared queue");
            (Truth::False, "Failed", message)
        } else if let Some((reason, what)) = trouble {
            (Truth::False, reason, what)
        } else if let Some(why) = bound.network.astray.get(name) {
            (Truth::False, "LeadsNowhere", why.clone())
        } else if !lacking.is_empty() {
            let points = network::listed(&lacking);
            let message = format!("a port has no queue of its own for the code points {points}");
            (Truth::False, "Unprovisioned", message)
        } else {
            tell::fine(is_static, bound.written.contains(&id))
        };
        self.say(tell::of_switch(name, None, said));
    }

    /// Orders came into force on hosts.
    fn take_in_force(&mut self, all: bool) {
        for (host, tenant, version) in self.fleet.take_in_force(all) {
            let host = HostId(self.names.hosts.of(&host));
            let Some(tenant) = self.names.tenants.known(&tenant).map(TenantId) else { continue };
            let now = self.now();
            let Some(bound) = &mut self.loop_ else { continue };
            let input = Input::InForce(host, tenant, Version(version));
            let outcome = bound.control.handle(now, input);
            self.follow(outcome);
        }
        for name in self.fleet.take_ahead() {
            let Some(tenant) = self.names.tenants.known(&name).map(TenantId) else { continue };
            let Some(bound) = &mut self.loop_ else { continue };
            tracing::warn!("tenant {name}: hosts know a newer order than the store: told again");
            let outcome = bound.control.tell_again(tenant);
            self.follow(outcome);
        }
    }

    /// Does what the loop wants.
    fn follow(&mut self, outcome: Outcome) {
        for action in outcome.actions {
            match action {
                Action::Read { switch, ticket } => {
                    if let Some(desk) = self.desks.get(&switch) {
                        desk.read(ticket);
                    }
                }
                Action::Apply { switch, ticket, config } => {
                    if let Some(desk) = self.desks.get(&switch) {
                        desk.apply(ticket, config);
                    }
                }
                // The record below is what hosts are told.
                Action::Tell { .. } => {}
            }
        }
        let mut failed = Vec::new();
        for event in outcome.events {
            match event {
                Event::Moved(tenant, phase) => {
                    tracing::debug!("tenant {}: {phase:?}", self.names.tenants.name(tenant.0));
                    self.tell_place(tenant);
                }
                Event::Failed(switch) => failed.push(switch),
                other => {
                    if let Some((switch, said)) = tell::others(&other) {
                        let name = self.names.switches.name(switch.0).to_owned();
                        tracing::info!("switch {name}: {}", said.2);
                        self.say(tell::of_switch(&name, Some(tell::OTHERS), said));
                    }
                }
            }
        }
        for switch in failed {
            let name = self.names.switches.name(switch.0).to_owned();
            if let Some(bound) = &mut self.loop_ {
                let late = || "it did not answer in time".to_owned();
                let why = bound.failures.entry(switch).or_insert_with(late);
                tracing::warn!("switch {name}: {why}");
            }
            self.tell_switch(switch, &name);
            // Why::Switch concerns others than those that moved.
            self.tell_places();
        }
    }

    fn tell_places(&mut self) {
        let Some(bound) = &self.loop_ else { return };
        let all: Vec<TenantId> = bound.members.iter().map(|member| member.tenant).collect();
        all.into_iter().for_each(|tenant| self.tell_place(tenant));
    }

    /// Writes down what hosts are told of a tenant, where it is, and why.
    fn tell_place(&mut self, tenant: TenantId) {
        let Some(bound) = &self.loop_ else { return };
        let Some(held) = bound.control.held(tenant) else {
            self.records.remove(&tenant);
            return;
        };
        let queue = TenantQueue {
            code_point: held.codepoint,
            tag: held.order.codepoint,
            free: held.order.is_free,
            version: held.version.0,
        };
        // A tenant that never had a queue needs no record.
        let is_news = self.records.get(&tenant).copied().unwrap_or_default() != queue;
        if is_news {
            self.records.insert(tenant, queue);
        }
        let place = bound.control.place(tenant).unwrap_or(Place::Shared(Why::New));
        let said = match (bound.network.is_bound, place) {
            (Err(why), Place::Shared(_)) => {
                (Truth::True, "NotBound", format!("the shared queue: {why}"))
            }
            _ => {
                let host = self.cannot_tag.get(&tenant).map(String::as_str);
                tell::place(place, &self.names, host)
            }
        };
        let name = self.names.tenants.name(tenant.0).to_owned();
        self.say(tell::of_tenant(&name, said, is_news.then_some(queue)));
    }

    // -- what is written down --------------------------------------------------------------------

    /// A condition is to be written, if it is news.
    fn say(&mut self, seen: Observation) {
        let key = (seen.kind, seen.name.clone(), seen.condition);
        let said = (seen.status, seen.reason.clone(), seen.message.clone());
        if seen.queue.is_none() && self.told.get(&key) == Some(&said) {
            return;
        }
        self.told.insert(key.clone(), said);
        let before = self.pending.remove(&key).and_then(|before| before.queue);
        let queue = seen.queue.or(before);
        self.pending.insert(key, Observation { queue, ..seen });
    }

    /// Gives the engine what is to be written, one request at a time.
    fn write_down(&mut self) {
        let is_due = self.clock.running() >= self.write_at;
        if self.writing.is_some() || self.pending.is_empty() || !is_due {
            return;
        }
        let keys: Vec<Key> = self.pending.keys().take(MOST).cloned().collect();
        let taken = keys.iter().filter_map(|key| self.pending.remove(key));
        self.in_flight = taken.collect();
        let request = observe(self.in_flight.clone());
        let engine = self.engine.clone();
        self.writing = Some(tokio::spawn(async move { engine.ask(request).await.map(drop) }));
    }

    fn written(&mut self, done: Result<(), Problem>) {
        self.writing = None;
        let sent = std::mem::take(&mut self.in_flight);
        let Err(problem) = done else { return };
        tracing::warn!("what is bound is not written down: {}", problem.detail);
        self.write_at = self.clock.running() + PAUSE;
        for seen in sent {
            let key = (seen.kind, seen.name.clone(), seen.condition);
            // A newer one stays, with the order if it has none.
            let queue = seen.queue;
            let entry = self.pending.entry(key).or_insert(seen);
            entry.queue = entry.queue.or(queue);
        }
    }

    /// Members as the loop knows them, ascending.
    fn members(&mut self, is_bound: bool, points: &SortedSet<u8>) -> Vec<Member> {
        let unable = self.fleet.cannot_tag(&points.iter().copied().collect());
        self.cannot_tag.clear();
        let links: Vec<u32> =
            self.bounds.links.iter().map(|name| self.names.links.of(name)).collect();
        let mut members = Vec::with_capacity(self.bounds.tenants.len());
        for bound in &self.bounds.tenants {
            let tenant = TenantId(self.names.tenants.of(&bound.name));
            let mut needs = bound.needs.clone();
            for need in &mut needs {
                need.link.0 = links.get(need.link.0 as usize).copied().unwrap_or(u32::MAX);
            }
            needs.sort_by_key(|need| need.link);
            let host = bound.hosts.iter().find(|host| unable.contains(*host));
            let wish = match bound.wish {
                _ if !is_bound => Wish::Excluded,
                QueueWish::Excluded => Wish::Excluded,
                _ if host.is_some() => Wish::Excluded,
                QueueWish::Pinned => Wish::Pinned,
                QueueWish::Auto => Wish::ByScore,
            };
            if let Some(host) = host.filter(|_| bound.wish != QueueWish::Excluded) {
                self.cannot_tag.insert(tenant, host.clone());
            }
            let hosts = bound.hosts.iter().map(|host| HostId(self.names.hosts.of(host)));
            let hosts = hosts.collect();
            members.push(Member { tenant, needs, payment: bound.payment, wish, hosts });
        }
        members.sort_by_key(|member| member.tenant);
        members
    }
}

impl Loop {
    /// Code points for which a switch that others provision is not known to have a queue on each port.
    fn lacking(&self, id: SwitchId) -> SortedSet<u8> {
        let config = self.control.config();
        let known = self.control.known(id);
        let ports = || config.ports.values().filter(|(switch, _)| *switch == id);
        let lacks = |point: &u8| {
            let has = |name: &PortName| {
                let port = known.and_then(|known| known.ports.get(name));
                port.is_some_and(|port| port.queue_of.contains_key(point))
            };
            !ports().all(|(_, name)| has(name))
        };
        config.fabric.codepoints.iter().copied().filter(lacks).collect()
    }

    /// Whether no tenant uses a queue of its own, on no switch and no host.
    fn is_left(&self) -> bool {
        let is_in_shared = |member: &Member| {
            matches!(self.control.phase(member.tenant), None | Some(Phase::Shared))
        };
        self.members.iter().all(is_in_shared)
    }
}

/// The end of a request, if one is under way.
async fn ended(writing: &mut Option<JoinHandle<Result<(), Problem>>>) -> Result<(), Problem> {
    match writing {
        None => std::future::pending().await,
        Some(writing) => writing.await.unwrap_or_else(|error| {
            Err(Problem::new(503, "Stopping", "request", format!("the request ended: {error}")))
        }),
    }
}

fn observe(observations: Vec<Observation>) -> Request {
    let actor = Actor { name: "binding".into(), role: Role::Operator, tenant: None };
    let action = Asked::Observe(observations);
    Request { actor, dry_run: false, idempotency: None, action }
}
