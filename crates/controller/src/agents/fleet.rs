//! Drives the plan: changes of objects come in, conditions and records go out, streams are woken.

use super::plan::{InForce, Next, Plan, Stranger};
use crate::accounts::Books;
use crate::clock::Clock;
use crate::engine::Engine;
use crate::problem::Problem;
use crate::state::{Action, Actor, Observation, Request, Role, Rooms};
use crate::store::{Table, Write};
use crate::view::View;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use weir_model::objects::{HostMode, Kind, Spec};
use weir_rpc::messages::{Answer, Hello, Tenant, Used};
use weir_wire::Keyring;

/// How often the plan is asked what time asks for.
const TICK: Duration = Duration::from_millis(500);
/// Conditions are gathered for this long, so that a tenant's VMs are one write.
const GATHER: Duration = Duration::from_millis(20);
/// Most conditions of one request to the engine.
const MOST: usize = 1000;
/// How long nothing is tried after the store failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Objects that agents hear of, those first on which others depend.
const KINDS: [Kind; 3] = [Kind::Host, Kind::Tenant, Kind::Vm];

/// All agents.
pub(crate) struct Fleet {
    plan: Mutex<Plan>,
    bells: Mutex<BTreeMap<String, Arc<Notify>>>,
    /// Version of the objects up to which the plan is.
    reached: watch::Sender<u64>,
    /// There are conditions or records to be written.
    news: Notify,
    view: Arc<View>,
    engine: Engine,
    clock: Clock,
    /// Another process leads: streams have to end.
    closed: AtomicBool,
    /// Orders of queues came into force.
    in_force: Notify,
    usage: Mutex<BTreeMap<String, Report>>,
    /// How often agents tell what tenants use, ms; 0: never.
    usage_every_ms: AtomicU32,
}

/// What a host said that its tenants used: when, by its own clock, and each tenant's octets out and in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Report {
    pub(crate) at_ms: u64,
    pub(crate) used: BTreeMap<String, [u64; 2]>,
}

/// The fleet, while this process leads.
#[derive(Default)]
pub(crate) struct Slot(watch::Sender<Option<Arc<Fleet>>>);

impl Slot {
    pub(crate) fn set(&self, fleet: Option<Arc<Fleet>>) {
        self.0.send_replace(fleet);
    }

    /// The fleet, if it is there within this time.
    pub(crate) async fn get(&self, patience: Duration) -> Option<Arc<Fleet>> {
        let mut slot = self.0.subscribe();
        let found = tokio::time::timeout(patience, slot.wait_for(Option::is_some)).await;
        found.ok()?.ok()?.clone()
    }
}

/// A host's open stream.
pub(crate) struct Attached {
    pub(crate) id: u64,
    pub(crate) bell: Arc<Notify>,
}

impl Fleet {
    /// Makes the plan of all objects.
    ///
    /// # Errors
    ///
    /// The store cannot be read, or has records that make no sense.
    pub(crate) async fn new(
        ring: Keyring,
        view: Arc<View>,
        engine: Engine,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let snapshot = engine.snapshot().await.map_err(|p| anyhow::anyhow!("{}", p.detail))?;
        // A store in etcd waits for its answers: not on a thread that drives tasks.
        let read = move || {
            let mut may = Vec::new();
            let scanned = snapshot.scan(Table::Force, "", &mut |key, value| {
                may.push((key.to_owned(), value.to_vec()));
                true
            });
            scanned.map(|()| may)
        };
        let may = tokio::task::spawn_blocking(read).await??;
        let (objects, revision) = view.all(&KINDS);
        let plan = Plan::new(ring, &objects, may, revision, clock.now());
        let plan = plan.map_err(|what| anyhow::anyhow!("the store is damaged: {what}"))?;
        Ok(Self {
            plan: Mutex::new(plan),
            bells: Mutex::default(),
            reached: watch::Sender::new(revision),
            news: Notify::new(),
            view,
            engine,
            clock,
            closed: AtomicBool::new(false),
            in_force: Notify::new(),
            usage: Mutex::default(),
            usage_every_ms: AtomicU32::new(0),
        })
    }

    /// Follows the objects and time until the task is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let following = Arc::clone(&self).follow();
        let writing = Arc::clone(&self).write_down();
        let ticking = async {
            loop {
                tokio::time::sleep(TICK).await;
                self.with(|plan| plan.tick(self.clock.now()));
            }
        };
        tokio::join!(following, writing, ticking);
    }

    /// Gives the plan each change.
    async fn follow(self: Arc<Self>) {
        let mut newest = self.view.newest();
        loop {
            let from = self.lock().revision();
            let now = self.clock.now();
            let is_ours = |stored: &crate::state::Stored| KINDS.contains(&stored.object.kind());
            let reached = match self.view.after(from, is_ours) {
                Ok((events, reached)) => {
                    self.with(|plan| {
                        for event in &events {
                            plan.change(event.revision, event.kind, &event.stored, now);
                        }
                        plan.reached(reached);
                    });
                    for event in
                        events.iter().filter(|event| event.stored.object.kind() == Kind::Host)
                    {
                        self.ring(event.stored.object.name());
                    }
                    reached
                }
                Err(_) => {
                    tracing::warn!("changes came faster than agents are told: starting over");
                    let (objects, revision) = self.view.all(&KINDS);
                    self.with(|plan| plan.reload(&objects, revision, now));
                    revision
                }
            };
            self.reached.send_replace(reached);
            if reached == from && newest.changed().await.is_err() {
                return;
            }
        }
    }

    /// A host's stream looks at what has changed.
    fn ring(&self, host: &str) {
        let bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bell) = bells.get(host) {
            bell.notify_one();
        }
    }

    /// The mode of a host, as messages have it.
    pub(crate) fn mode_of(&self, host: &str) -> String {
        let stored = self.view.get(Kind::Host, host);
        let mode = stored.and_then(|stored| match &stored.object.spec {
            Spec::Host(spec) => spec.mode,
            _ => None,
        });
        match mode {
            None | Some(HostMode::File) => "",
            Some(HostMode::Enforce) => "enforce",
            Some(HostMode::Observe) => "observe",
        }
        .into()
    }

    /// Writes conditions and smaller records.
    async fn write_down(self: Arc<Self>) {
        loop {
            self.news.notified().await;
            tokio::time::sleep(GATHER).await;
            let (observations, writes) =
                self.with(|plan| (plan.take_observations(), plan.take_writes()));
            if !writes.is_empty() {
                self.until_written(writes).await;
            }
            let latest = latest(observations);
            for part in latest.chunks(MOST) {
                while let Err(problem) = self.engine.ask(observe(part.to_vec())).await {
                    tracing::warn!("what agents say is not written down: {}", problem.detail);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn until_written(&self, writes: Vec<Write>) {
        while let Err(problem) = self.engine.note(writes.clone()).await {
            tracing::warn!("what hosts enforce is not written down: {}", problem.detail);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Ends all streams.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.values().for_each(|bell| bell.notify_one());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// A host opens its stream.
    pub(crate) fn attach(
        &self,
        host: &str,
        enrolment: u64,
        hello: &Hello,
    ) -> Result<Attached, Stranger> {
        // The certificate may be of a join that the plan has not seen yet.
        let id = self.with(|plan| plan.attach(host, enrolment, hello))?;
        let bell = Arc::new(Notify::new());
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        // Who has the former one finds that its stream is no longer the present one.
        if let Some(former) = bells.insert(host.into(), Arc::clone(&bell)) {
            former.notify_one();
        }
        bell.notify_one();
        Ok(Attached { id, bell })
    }

    /// Waits until the plan has seen what is published now.
    pub(crate) async fn catch_up(&self) {
        let published = self.view.revision();
        drop(self.reached.subscribe().wait_for(|reached| *reached >= published).await);
    }

    pub(crate) fn is_present(&self, host: &str, id: u64, enrolment: u64) -> bool {
        self.lock().is_present(host, id, enrolment)
    }

    /// Whether a certificate of this enrolment is the host's present one.
    pub(crate) fn check(&self, host: &str, enrolment: u64) -> Result<(), Stranger> {
        self.lock().check(host, enrolment)
    }

    pub(crate) fn detach(&self, host: &str, attached: &Attached) {
        self.with(|plan| plan.detach(host, attached.id, self.clock.now()));
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        if bells.get(host).is_some_and(|bell| Arc::ptr_eq(bell, &attached.bell)) {
            bells.remove(host);
            // What a silent host used is not known.
            self.usage.lock().unwrap_or_else(PoisonError::into_inner).remove(host);
        }
    }

    /// A host says whether it only observes.
    pub(crate) fn says_mode(&self, host: &str, observes: bool) {
        self.with(|plan| plan.says_mode(host, observes));
    }

    pub(crate) fn answered(&self, host: &str, id: u64, answers: &[Answer]) {
        let now = self.clock.now();
        self.with(|plan| {
            for answer in answers {
                plan.answered(host, id, answer, now);
            }
        });
    }

    /// What is to be sent to a host next, once its records are on the disk; nothing until the bell rings.
    ///
    /// # Errors
    ///
    /// The store failed: ask again later.
    pub(crate) async fn next(&self, host: &str, id: u64) -> Result<Vec<Tenant>, Problem> {
        let told = self.told(|plan, rooms| plan.next(host, rooms)).await;
        if told.is_err() {
            self.unsent(host, id);
        }
        told
    }

    /// What a host that joined begins with, once its records are on the disk.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub(crate) async fn begin(&self, host: &str) -> Result<Vec<Tenant>, Problem> {
        self.catch_up().await;
        self.told(|plan, rooms| plan.begin(host, rooms)).await
    }

    /// Does what the plan asks for until it has something to send, or nothing.
    async fn told(
        &self,
        next: impl Fn(&mut Plan, Option<&Rooms>) -> Next,
    ) -> Result<Vec<Tenant>, Problem> {
        let mut rooms = None;
        loop {
            match self.with(|plan| next(plan, rooms.as_ref())) {
                Next::Nothing => return Ok(Vec::new()),
                Next::Rooms(tenants) => {
                    let asked = move |state: &crate::state::State| {
                        state.rooms(tenants.iter().map(String::as_str))
                    };
                    let found = self.engine.look(asked).await?;
                    let revision = found.revision;
                    drop(self.reached.subscribe().wait_for(|reached| *reached >= revision).await);
                    rooms = Some(found);
                }
                Next::Send(writes, tenants) => {
                    if !writes.is_empty()
                        && let Err(problem) = self.engine.note(writes.clone()).await
                    {
                        self.with(|plan| plan.unwritten(writes));
                        return Err(problem);
                    }
                    return Ok(tenants);
                }
            }
        }
    }

    pub(crate) fn unsent(&self, host: &str, id: u64) {
        self.with(|plan| plan.unsent(host, id));
    }

    // -- queues of tenants ----------------------------------------------------------------------

    /// From now on agents tell what tenants use, so often; 0: no more.
    pub(crate) fn want_usage(&self, every_ms: u32) {
        if self.usage_every_ms.swap(every_ms, Ordering::Relaxed) != every_ms {
            let bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
            bells.values().for_each(|bell| bell.notify_one());
        }
    }

    pub(crate) fn usage_every_ms(&self) -> u32 {
        self.usage_every_ms.load(Ordering::Relaxed)
    }

    /// How often agents tell how floors were kept, ms.
    pub(crate) fn accounts_every_ms(&self) -> u32 {
        let bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        Books::every_ms(bells.len())
    }

    /// A host says what its tenants used.
    pub(crate) fn used(&self, host: &str, at_ms: u64, used: &[Used]) {
        let of = |used: &Used| (used.tenant.clone(), [used.sent, used.received]);
        let report = Report { at_ms, used: used.iter().map(of).collect() };
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        usage.insert(host.into(), report);
    }

    /// What hosts said last, by host.
    pub(crate) fn usage(&self) -> BTreeMap<String, Report> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until orders of queues have come into force.
    pub(crate) async fn has_in_force(&self) {
        self.in_force.notified().await;
    }

    /// Those since the last call; with `all` everything that is in force.
    pub(crate) fn take_in_force(&self, all: bool) -> Vec<InForce> {
        let mut plan = self.lock();
        if all { plan.all_in_force() } else { plan.take_in_force() }
    }

    /// Tenants: hosts know newer orders of their queues than this controller.
    pub(crate) fn take_ahead(&self) -> BTreeSet<String> {
        self.lock().take_ahead()
    }

    /// Hosts with agents that cannot tag with one of these code points.
    pub(crate) fn cannot_tag(&self, points: &BTreeSet<u8>) -> BTreeSet<String> {
        self.lock().cannot_tag(points)
    }

    /// Does something with the plan, and passes on what came of it.
    fn with<T>(&self, act: impl FnOnce(&mut Plan) -> T) -> T {
        let mut plan = self.lock();
        let out = act(&mut plan);
        let woken = plan.take_woken();
        let has_news = plan.has_news();
        let has_queues = plan.has_in_force();
        drop(plan);
        if has_queues {
            self.in_force.notify_one();
        }
        if !woken.is_empty() {
            let bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
            for host in woken {
                if let Some(bell) = bells.get(&host) {
                    bell.notify_one();
                }
            }
        }
        if has_news {
            self.news.notify_one();
        }
        out
    }

    // Nobody panics while it is held.
    fn lock(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The latest of each condition.
fn latest(observations: Vec<Observation>) -> Vec<Observation> {
    let mut latest = BTreeMap::new();
    for mut seen in observations {
        let key = (seen.kind, seen.name.clone(), seen.condition);
        let former: Option<Observation> = latest.remove(&key);
        seen.agent = seen.agent.or(former.and_then(|former| former.agent));
        latest.insert(key, seen);
    }
    latest.into_values().collect()
}

fn observe(observations: Vec<Observation>) -> Request {
    let actor = Actor { name: "agents".into(), role: Role::Operator, tenant: None };
    let action = Action::Observe(observations);
    Request { actor, dry_run: false, idempotency: None, action }
}
