//! The controller that binds tenants to switches' queues, in real time: the loop of `weir-core`, the
//! lab's switches and its agents.
//!
//! Problem   The loop decides by what agents counted, and its decisions reach switches and hosts at
//!           different times. A simulator's times are made up.
//! Approach  One thread has the loop. One thread per switch has its driver, one per host writes
//!           `agent.toml` and asks the agent to reload: the same files that an operator would write.
//!           The threads answer when what was ordered is in force.
//! Promises  Switches have their first queues before any packet. The thread's end is waited for.
//! Not here  What is decided: `weir_core::binding`. How queues are made: `weir_switch`.

mod astray;
mod plan;
mod switches;

pub(crate) use plan::check;

use crate::Error;
use crate::agents::{Agents, Desk, TenantOrder};
use crate::world::World;
use plan::Known;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switches::Asked;
use weir_core::binding::control::{
    Action, Answer, Control, Due, Event, Input, Member, Outcome, Phase, Ticket, Usage,
};
use weir_core::host::Version;
use weir_core::ledger::{Direction, LinkId, SwitchId};
use weir_dataplane::astray::Counter;
use weir_model::scenario::{Bound, BoundRun, Scenario};
use weir_units::{Bytes, HostId, SortedMap, Span, TenantId, Time};

/// Longest wait between two looks at `stop`.
const NAP: Duration = Duration::from_millis(20);

/// An agent that refused, or did not answer, is told again after this time.
const AGAIN: Duration = Duration::from_millis(100);

/// What the loop's thread is told.
enum Heard {
    Answer(SwitchId, Ticket, Answer),
    InForce(HostId, TenantId, Version),
    Trouble(String),
}

/// A controller that runs.
pub(crate) struct Binding {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Story>>,
    /// Switches, by their positions in the scenario.
    counters: Vec<(usize, Counter)>,
}

impl Binding {
    /// Gives the switches their first queues, and starts the loop.
    pub(crate) fn start(
        scenario: &Scenario,
        bound: Bound,
        world: &World,
        agents: &Agents,
        folder: &Path,
    ) -> Result<Self, Error> {
        let known = plan::known(scenario, bound);
        let (tell, heard) = channel();
        let (mut threads, mut counters) = (Vec::new(), Vec::new());
        let mut ask = SortedMap::new();
        let trees = astray::trees(scenario);
        for (id, first) in known.run.initial.clone() {
            let node = scenario.topology.hosts.len() + id.0 as usize;
            let switch = switches::Box {
                id,
                name: scenario.topology.switches[id.0 as usize].clone(),
                namespace: world.host(node).path().to_owned(),
                ports: first.ports.iter().map(|(name, port)| (name.clone(), port.rate)).collect(),
                queues: scenario.binding.queues,
                most_weight: known.run.config.fabric.most_weight,
                buffer: known.buffers[&id],
                vms: astray::vms(scenario),
                trees: trees[id.0 as usize].clone(),
            };
            let opened = switches::open(switch, first, folder, tell.clone())?;
            ask.insert(id, opened.ask);
            threads.push(opened.thread);
            counters.push((id.0 as usize, opened.counter));
        }
        let desks = agents.desks();
        let mut order = SortedMap::new();
        for (host, desk) in (0..).map(HostId).zip(desks.clone()) {
            let (sender, orders) = channel();
            let (tell, names) = (tell.clone(), names(scenario));
            order.insert(host, sender);
            let work = move || obey(host, desk, &names, &orders, &tell);
            threads.push(spawn("orders", work)?);
        }
        drop(tell);
        let stop = Arc::new(AtomicBool::new(false));
        let runner = Runner {
            begun: Instant::now(),
            desks,
            ask,
            order,
            cards: known.run.cards.clone(),
            tenants: names(scenario),
            used: SortedMap::new(),
            story: Story::default(),
            stop: Arc::clone(&stop),
        };
        let thread = spawn("binding", move || {
            let story = runner.run(known, &heard);
            threads.into_iter().for_each(|thread| drop(thread.join()));
            story
        })?;
        Ok(Self { stop, thread: Some(thread), counters })
    }

    /// Octets of tenants with queues of their own that met another queue or left their trees so far,
    /// if that is known, and what is to be said of them.
    pub(crate) fn astray(&self, scenario: &Scenario) -> (Option<u64>, Vec<String>) {
        astray::read(scenario, &self.counters)
    }

    /// Ends the loop; what is to be said of it.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let story = self.thread.take().map(JoinHandle::join);
        match story {
            Some(Ok(story)) => story.notes(),
            _ => vec!["the controller that binds tenants ended by itself".into()],
        }
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map_err(Error::io("start a thread of the controller"))
}

fn names(scenario: &Scenario) -> Vec<String> {
    scenario.tenants.clone()
}

/// Tells one host's agent what it is ordered, all that waits at a time, until it has that in force.
fn obey(
    host: HostId,
    mut desk: Desk,
    names: &[String],
    orders: &Receiver<(TenantId, Version, TenantOrder)>,
    tell: &Sender<Heard>,
) {
    let mut pending = SortedMap::new();
    loop {
        let next = if pending.is_empty() {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            orders.recv_timeout(AGAIN)
        };
        match next {
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
            Ok(first) => {
                let all = [first].into_iter().chain(orders.try_iter());
                pending.extend(all.map(|(tenant, version, order)| (tenant, (version, order))));
            }
        }
        let named = pending.iter().map(|(id, (version, order))| {
            let name = names[id.0 as usize].as_str();
            (name, version.0, *order)
        });
        match desk.order(named) {
            Ok(()) => {
                for (tenant, (version, _)) in std::mem::take(&mut pending) {
                    let _ = tell.send(Heard::InForce(host, tenant, version));
                }
            }
            Err(why) => drop(tell.send(Heard::Trouble(why))),
        }
    }
}

/// What happened.
#[derive(Default)]
struct Story {
    intervals: u64,
    /// Tenants that got queues of their own, and that lost them.
    promoted: u64,
    demoted: u64,
    /// Configs that were written to switches, and the longest time that one took.
    applied: u64,
    apply: Span,
    /// Orders to hosts, and the longest time until one was in force.
    ordered: u64,
    order: Span,
    trouble: Vec<String>,
    asked_at: SortedMap<(SwitchId, Ticket), Time>,
    told_at: SortedMap<(HostId, TenantId, Version), Time>,
}

/// No more troubles are told one by one.
const TROUBLES: usize = 8;

impl Story {
    fn notes(self) -> Vec<String> {
        let mut notes = vec![format!(
            "binding: {} intervals, {} promotions, {} demotions; {} configs of switches, the longest \
             {:.1} ms; {} orders to hosts, the longest {:.1} ms",
            self.intervals,
            self.promoted,
            self.demoted,
            self.applied,
            self.apply.as_secs_f64() * 1e3,
            self.ordered,
            self.order.as_secs_f64() * 1e3,
        )];
        let more = self.trouble.len().saturating_sub(TROUBLES);
        notes
            .extend(self.trouble.into_iter().take(TROUBLES).map(|what| format!("binding: {what}")));
        notes.extend((more > 0).then(|| format!("binding: and {more} more troubles")));
        notes
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Moved(_, Phase::Dedicated) => self.promoted += 1,
            Event::Moved(_, Phase::Clamping) => self.demoted += 1,
            Event::Moved(..) => {}
            other => self.trouble.push(format!("{other:?}")),
        }
    }
}

struct Runner {
    begun: Instant,
    desks: Vec<Desk>,
    ask: SortedMap<SwitchId, Sender<Asked>>,
    order: SortedMap<HostId, Sender<(TenantId, Version, TenantOrder)>>,
    cards: SortedMap<HostId, (LinkId, Direction)>,
    tenants: Vec<String>,
    /// Octets out and in at the last interval.
    used: SortedMap<(HostId, TenantId), [u64; 2]>,
    story: Story,
    stop: Arc<AtomicBool>,
}

impl Runner {
    fn now(&self) -> Time {
        Time::ZERO + Span::from(self.begun.elapsed())
    }

    fn run(mut self, known: Known, heard: &Receiver<Heard>) -> Story {
        let BoundRun { config, binder, members, .. } = known.run;
        let mut control = Control::with_binder(binder, config, self.now());
        let outcome = control.handle(self.now(), Input::Tenants(&members));
        self.follow(outcome, &members);
        // Octets of before the first interval.
        self.usage();
        while !self.stop.load(Ordering::Relaxed) {
            let outcome = self.turn(&mut control, &members, heard);
            self.follow(outcome, &members);
        }
        self.story
    }

    /// Waits for what comes first.
    fn turn(
        &mut self,
        control: &mut Control,
        members: &[Member],
        heard: &Receiver<Heard>,
    ) -> Outcome {
        let (due, why) = control.next_deadline();
        let now = self.now();
        if due <= now {
            if why != Due::Interval {
                return control.handle(now, Input::Tick);
            }
            self.story.intervals += 1;
            let usage = self.usage();
            return control.handle(self.now(), Input::Interval(members, &usage));
        }
        let wait = Duration::from(due.since(now)).min(NAP);
        match heard.recv_timeout(wait) {
            Ok(Heard::Answer(switch, ticket, answer)) => {
                let now = self.now();
                let asked = self.story.asked_at.remove(&(switch, ticket));
                if let (Some(asked), Answer::Applied) = (asked, &answer) {
                    self.story.applied += 1;
                    self.story.apply = self.story.apply.max(now.since(asked));
                }
                control.handle(now, Input::Answer(switch, ticket, answer))
            }
            Ok(Heard::InForce(host, tenant, version)) => {
                let now = self.now();
                if let Some(told) = self.story.told_at.remove(&(host, tenant, version)) {
                    self.story.ordered += 1;
                    self.story.order = self.story.order.max(now.since(told));
                }
                control.handle(now, Input::InForce(host, tenant, version))
            }
            Ok(Heard::Trouble(what)) => {
                self.story.trouble.push(what);
                Outcome::default()
            }
            Err(RecvTimeoutError::Timeout) => Outcome::default(),
            Err(RecvTimeoutError::Disconnected) => {
                self.stop.store(true, Ordering::Relaxed);
                Outcome::default()
            }
        }
    }

    fn follow(&mut self, outcome: Outcome, members: &[Member]) {
        let now = self.now();
        outcome.events.into_iter().for_each(|event| self.story.event(event));
        for action in outcome.actions {
            match action {
                Action::Read { switch, ticket } => self.ask_of(switch, Asked::Read(ticket)),
                Action::Apply { switch, ticket, config } => {
                    self.story.asked_at.insert((switch, ticket), now);
                    self.ask_of(switch, Asked::Apply(ticket, config));
                }
                Action::Tell { tenant, version, order } => {
                    let hosts = members.iter().find(|member| member.tenant == tenant);
                    let order = TenantOrder { code_point: order.codepoint, is_free: order.is_free };
                    for host in hosts.iter().flat_map(|member| &member.hosts) {
                        self.story.told_at.insert((*host, tenant, version), now);
                        if let Some(desk) = self.order.get(host) {
                            let _ = desk.send((tenant, version, order));
                        }
                    }
                }
            }
        }
    }

    fn ask_of(&self, switch: SwitchId, asked: Asked) {
        if let Some(sender) = self.ask.get(&switch) {
            let _ = sender.send(asked);
        }
    }

    /// What tenants used since the last call, ascending by tenant. An agent that does not answer is
    /// told as one that counted nothing.
    fn usage(&mut self) -> Vec<Usage> {
        let all: Vec<_> = std::thread::scope(|scope| {
            let asked: Vec<_> = self.desks.iter().map(|desk| scope.spawn(|| desk.used())).collect();
            asked.into_iter().map(|asked| asked.join().ok().flatten()).collect()
        });
        let mut usage = Vec::new();
        for (host, told) in (0..).map(HostId).zip(all) {
            let Some(&(link, out)) = self.cards.get(&host) else { continue };
            let back = match out {
                Direction::Forward => Direction::Backward,
                Direction::Backward => Direction::Forward,
            };
            for told in told.into_iter().flatten() {
                let tenant = self.tenants.iter().position(|name| *name == told.tenant);
                let Some(tenant) = tenant.map(|at| TenantId(at as u32)) else { continue };
                let now = [told.sent, told.received];
                let before = self.used.insert((host, tenant), now).unwrap_or_default();
                for (way, direction) in [out, back].into_iter().enumerate() {
                    // One that is smaller began anew.
                    let grown = now[way].checked_sub(before[way]).unwrap_or(now[way]);
                    let card = (link, direction);
                    usage.push(Usage { tenant, card, octets: Bytes::new(grown) });
                }
            }
        }
        usage.sort_by_key(|usage| usage.tenant);
        usage
    }
}
