//! How floors were kept: what agents count, gathered and kept.
//!
//! Problem   An operator asks for a tenant and a day; agents know seconds and their own senders. Agents, controllers and
//!           messages end at any time, and nothing may count twice.
//! Approach  Agents send counters that only grow ([`weir_rpc::messages::Accounts`]). What they grew by goes to the VM and
//!           direction, into the present ten seconds and the present five minutes. The latter are kept on the disk
//!           ([`keep`]), with the stretches of broken floors.
//! Promises  A message that is lost or repeated changes no sum. What an agent counted while no controller listened is
//!           lost; of a controller that is killed, the last half minute.
//! Not here  When a floor is broken: see [`weir_core::accounts`].

mod alerts;
mod course;
mod keep;
mod numbers;
mod queues;
mod sum;
mod survey;
mod told;

pub(crate) use alerts::{Alert, alerts};
pub(crate) use course::{COLUMN, COLUMNS, Columns, Tested};
pub(crate) use numbers::Numbers;
pub(crate) use queues::{HOUR, Own};
pub(crate) use sum::Sum;
pub(crate) use told::{Asked, FloorTold, PairTold, Report, Series, StretchTold};

use crate::clock::Clock;
use crate::engine::Engine;
use crate::state::{State, Stored, Ways};
use crate::view::View;
use course::Course;
use keep::Keep;
use queues::Queues;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use survey::{Placed, Survey};
use weir_model::moment::Moment;
use weir_model::objects::{Kind, Spec};
use weir_rpc::messages::{Accounts, BrokenFloor, FloorAccount, PairNow, Trouble};
use weir_units::Rate;

/// Length of what is shown as a course, ms.
const STEP: u64 = 10_000;
/// Steps that are kept in memory: ten minutes.
const STEPS: usize = 60;
/// Length of what is kept on the disk, ms.
const BUCKET: u64 = 300_000;
/// How often the present bucket is written.
const WRITTEN: Duration = Duration::from_secs(30);
/// How often all pairs are laid over all links, and the part of the time that it may take.
const SURVEYED: Duration = Duration::from_secs(2);
const SURVEY_PART: u32 = 10;
/// More pairs are not laid over links: they would take more than a hundred megabytes.
const SURVEY_MOST: usize = 300_000;
/// What a survey shows is not compared with a stretch that ended longer ago, ms.
const RECENT: u64 = 10_000;
/// Stretches of broken floors that are kept in memory.
const LISTED: usize = 1000;
/// A host of which nothing is heard for this long counts as silent, ms, and at least three of its reports.
const SILENT: u64 = 30_000;
/// How often agents tell, ms, where there are few.
const EVERY: u64 = 2000;
/// Reports in a second, at most, of all agents together.
const REPORTS: u64 = 500;

/// Of one message: pairs, troubles and stretches. An agent tells of no more.
const PAIRS_MOST: usize = 256;
const TROUBLES_MOST: usize = 256;
const BROKEN_MOST: usize = 128;
/// Characters of a word and of a sentence of an agent.
const WORD: usize = 40;
pub(crate) const SENTENCE: usize = 500;

/// A VM's key, a direction, and what its sums grew by.
type Grown = (String, usize, Sum);

/// Out of a VM, and into it.
const OUT: usize = 0;
const IN: usize = 1;

/// All accounts.
pub(crate) struct Books {
    inner: Mutex<Inner>,
    keep: Mutex<Keep>,
    survey: Mutex<Arc<Survey>>,
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Inner {
    /// When the first host spoke.
    begun: Option<Moment>,
    hosts: BTreeMap<String, Host>,
    /// By [`key`].
    vms: BTreeMap<String, Vm>,
    /// The latest stretches, by the time at which they were first heard of.
    broken: VecDeque<Stretch>,
    /// Stretches that changed since they were written.
    unwritten: BTreeMap<(String, u64, u64), Stretch>,
    course: Course,
}

/// What a host said last.
struct Host {
    life: u64,
    heard: Moment,
    observing: bool,
    counted: BTreeMap<(String, usize), Sum>,
    pairs: Arc<[PairNow]>,
    troubles: Vec<Trouble>,
    /// The stretches that it told, by number, as they are kept.
    stretches: BTreeMap<u64, Stretch>,
}

/// A VM's sums.
#[derive(Default)]
struct Vm {
    steps: VecDeque<(u64, [Sum; 2])>,
    bucket: Option<(u64, [Sum; 2])>,
    is_unwritten: bool,
    /// Since this controller began.
    total: [Sum; 2],
    /// By step: what would have left it ideally, bit/s, by the step's last survey.
    ideals: VecDeque<(u64, u64)>,
}

/// A stretch of time in which a floor was broken.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stretch {
    /// The host that sends.
    pub(crate) host: String,
    /// Of its agent's start, and of the stretch in it.
    pub(crate) life: u64,
    pub(crate) id: u64,
    pub(crate) tenant: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) begin: Moment,
    pub(crate) end: Moment,
    /// Octets.
    pub(crate) owed: u64,
    pub(crate) got: u64,
    /// Segments.
    pub(crate) lost: u64,
    pub(crate) cause: String,
    /// The tenant that borrowed most on the way at that time, if any did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) took: Option<String>,
}

/// Under which a VM's numbers are kept: a name that another tenant uses later begins anew.
pub(crate) fn key(tenant: &str, vm: &str) -> String {
    format!("{tenant}/{vm}")
}

/// What is known of a VM's place.
struct Place {
    tenant: String,
    host: String,
    /// All its floors together, out and in, bit/s.
    promised: [u64; 2],
}

impl Books {
    /// Those of a folder. If the file cannot be read, it is put aside and another begun.
    pub(crate) fn open(folder: &Path, days: u32) -> Self {
        let keep = Mutex::new(Keep::open(folder, days));
        Self { inner: Mutex::default(), keep, survey: Mutex::default(), queues: Mutex::default() }
    }

    /// How often so many agents are to tell, ms.
    pub(crate) fn every_ms(agents: usize) -> u32 {
        let spread = agents as u64 * 1000 / REPORTS;
        u32::try_from(spread.max(EVERY)).unwrap_or(u32::MAX)
    }

    /// A host says how its senders had their floors. It speaks for what its own VMs send, and for nothing else.
    pub(crate) fn take(&self, host: &str, said: Accounts, now: Moment, view: &View) {
        let said = Said::of(host, said, view);
        let survey = self.latest();
        let (grown, stretches, is_first) = {
            let mut inner = self.lock();
            inner.begun.get_or_insert(now);
            inner.course.hear(now);
            inner.hear(host, said, &survey, now)
        };
        // Nothing waits for the disk while it holds what all hosts share.
        let bucket = now.as_millis() / BUCKET * BUCKET;
        let begun = self.begun(grown.iter().map(|(key, ..)| key), bucket);
        // Before its first message to this controller, a former one may have kept it.
        let keep = is_first.then(|| self.keeper());
        let kept = |stretch: &Stretch| keep.as_ref().and_then(|keep| keep.stretch_like(stretch));
        let kept: Vec<Option<Stretch>> = stretches.iter().map(kept).collect();
        drop(keep);
        let mut inner = self.lock();
        let mut over = Vec::new();
        for (key, way, sum) in grown {
            over.extend(inner.add(&key, way, sum, now, &begun));
        }
        for (stretch, kept) in stretches.into_iter().zip(kept) {
            inner.list(host, stretch, kept);
        }
        drop(inner);
        if !over.is_empty() {
            let mut keep = self.keeper();
            over.into_iter().for_each(|(key, at, sums)| keep.later(&key, at, sums));
        }
    }

    /// What a former controller, or this one before the VM was silent, wrote of five minutes that begin for these.
    fn begun<'a>(
        &self,
        keys: impl Iterator<Item = &'a String>,
        bucket: u64,
    ) -> BTreeMap<String, [Sum; 2]> {
        let missing: BTreeSet<String> = {
            let inner = self.lock();
            let has = |key: &String| inner.vms.get(key).and_then(|vm| vm.bucket);
            keys.filter(|key| has(key).is_none_or(|(at, _)| at != bucket)).cloned().collect()
        };
        if missing.is_empty() {
            return BTreeMap::new();
        }
        let keep = self.keeper();
        missing.into_iter().map(|key| (key.clone(), keep.read_one(&key, bucket))).collect()
    }

    /// The host's stream ended: what its pairs do is not known.
    pub(crate) fn detach(&self, host: &str) {
        if let Some(host) = self.lock().hosts.get_mut(host) {
            host.pairs = Arc::default();
        }
    }

    /// Writes what changed, and drops what is too old.
    pub(crate) fn write(&self, now: Moment, view: &View) {
        self.recall(now);
        let (stored, _) = view.all(&[Kind::Vm]);
        let of = |stored: &Arc<Stored>| Some(key(stored.object.owner()?, stored.object.name()));
        let present: BTreeSet<String> = stored.iter().filter_map(of).collect();
        let mut inner = self.lock();
        inner.hosts.retain(|host, _| view.get(Kind::Host, host).is_some());
        let mut rows = Vec::new();
        for (name, vm) in inner.vms.iter_mut().filter(|(_, vm)| vm.is_unwritten) {
            vm.is_unwritten = false;
            rows.extend(vm.bucket.map(|(at, sums)| (name.clone(), at, sums)));
        }
        let stretches = std::mem::take(&mut inner.unwritten);
        let course = inner.course.take_unwritten(now);
        let oldest = now.as_millis().saturating_sub(STEP * STEPS as u64);
        inner.vms.retain(|name, vm| {
            vm.steps.retain(|(at, _)| *at >= oldest);
            vm.ideals.retain(|(at, _)| *at >= oldest);
            // A counter that has begun goes on while there is a VM of that name.
            vm.is_unwritten || !vm.steps.is_empty() || present.contains(name)
        });
        drop(inner);
        if self.keeper().write(&rows, stretches.values(), &course, now) {
            return;
        }
        // They are written with the next ones, but for those that changed since.
        let mut inner = self.lock();
        inner.course.put_back(&course);
        let left = LISTED.saturating_sub(inner.unwritten.len());
        for (key, stretch) in stretches.into_iter().take(left) {
            inner.unwritten.entry(key).or_insert(stretch);
        }
    }

    /// Writes for ever.
    pub(crate) async fn run(self: Arc<Self>, clock: Clock, view: Arc<View>) {
        let books = Arc::clone(&self);
        drop(tokio::task::spawn_blocking(move || books.recall(clock.now())).await);
        loop {
            tokio::time::sleep(WRITTEN).await;
            let (books, view) = (Arc::clone(&self), Arc::clone(&view));
            drop(tokio::task::spawn_blocking(move || books.write(clock.now(), &view)).await);
        }
    }

    /// Lays all pairs over all links for ever. Hosts tell the leader alone, so others have nothing to lay.
    pub(crate) async fn survey_all(self: Arc<Self>, clock: Clock, view: Arc<View>, engine: Engine) {
        let (mut ways, mut seen) = (Arc::new(Ways::default()), None);
        loop {
            let began = clock.running();
            let revision = view.revision();
            if seen != Some(revision)
                && let Ok(found) = engine.look(State::ways).await
            {
                (ways, seen) = (Arc::new(found), Some(revision));
            }
            let (books, view, known) = (Arc::clone(&self), Arc::clone(&view), Arc::clone(&ways));
            let survey = move || {
                books.note_queues(&view, clock.now());
                books.survey(known, &view, clock.now());
            };
            if tokio::task::spawn_blocking(survey).await.is_err() {
                // Nothing is better than what was.
                self.publish(Survey::default());
            }
            let took = clock.running().saturating_sub(began);
            tokio::time::sleep(SURVEYED.max(took * (SURVEY_PART - 1))).await;
        }
    }

    /// Lays all pairs over all links.
    fn survey(&self, ways: Arc<Ways>, view: &View, now: Moment) {
        // Agents wait for this lock: nothing is copied but references.
        let hosts: Vec<(String, Arc<[PairNow]>)> = {
            let inner = self.lock();
            let of = |(name, host): (&String, &Host)| (name.clone(), Arc::clone(&host.pairs));
            inner.hosts.iter().map(of).collect()
        };
        if hosts.iter().map(|(_, pairs)| pairs.len()).sum::<usize>() > SURVEY_MOST {
            return self.publish(Survey::default());
        }
        let mut placed: BTreeMap<(&str, &str), Placed> = BTreeMap::new();
        for (host, pairs) in &hosts {
            for pair in pairs.iter() {
                let (Some(from), Some(to)) = (place_of(view, &pair.from), place_of(view, &pair.to))
                else {
                    continue;
                };
                let promised = from.promised[OUT].min(to.promised[IN]);
                let (tenants, hosts) = ([from.tenant, to.tenant], [host.clone(), to.host]);
                let one = Placed { pair: pair.clone(), tenants, hosts, promised };
                // The same pair twice would count twice.
                placed.entry((&pair.from, &pair.to)).or_insert(one);
            }
        }
        let survey = Survey::of(placed.into_values().collect(), ways, now);
        let step = now.as_millis() / STEP * STEP;
        let mut inner = self.lock();
        for (key, ideal) in survey.out() {
            let Some(vm) = inner.vms.get_mut(key) else { continue };
            match vm.ideals.back_mut() {
                Some((at, last)) if *at == step => *last = ideal,
                _ => vm.ideals.push_back((step, ideal)),
            }
            while vm.ideals.len() > STEPS {
                vm.ideals.pop_front();
            }
        }
        drop(inner);
        self.publish(survey);
    }

    fn publish(&self, survey: Survey) {
        *self.survey.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(survey);
    }

    fn note_queues(&self, view: &View, now: Moment) {
        let queue = |stored: &Arc<Stored>| {
            let tag = stored.object.status.queue.map_or(0, |queue| queue.tag);
            (stored.object.name().to_owned(), tag)
        };
        let present = view.all(&[Kind::Tenant]).0.iter().map(queue).collect();
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.note(now.as_millis(), &present);
    }

    /// The times of the last hour in which a tenant had a queue of its own.
    pub(crate) fn own_queues(&self, tenant: &str, now: Moment) -> Vec<Own> {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.own(tenant, now.as_millis())
    }

    /// The latest survey.
    pub(crate) fn latest(&self) -> Arc<Survey> {
        Arc::clone(&self.survey.lock().unwrap_or_else(PoisonError::into_inner))
    }

    // Nothing panics while they are held.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keeper(&self) -> MutexGuard<'_, Keep> {
        self.keep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place_of(view: &View, vm: &str) -> Option<Place> {
    let stored = view.get(Kind::Vm, vm)?;
    let Spec::Vm(spec) = &stored.object.spec else { return None };
    let host = stored.object.status.host.clone().unwrap_or_default();
    let floors = || [spec.floor].into_iter().chain(spec.hoses.iter().map(|hose| hose.floor));
    let out: Rate = floors().map(|floor| floor.out.0).sum();
    let inward: Rate = floors().map(|floor| floor.inward.0).sum();
    let promised = [out.as_bps(), inward.as_bps()];
    Some(Place { tenant: spec.tenant.clone(), host, promised })
}

/// What a host says, as far as it may say it, without what has no place here.
struct Said {
    life: u64,
    at_ms: u64,
    observing: bool,
    counted: BTreeMap<(String, usize), Sum>,
    /// Of these, what VMs on other hosts sent: one that comes back goes on where it was.
    foreign: BTreeSet<(String, usize)>,
    pairs: Vec<PairNow>,
    troubles: Vec<Trouble>,
    /// With the place of the sender and the receiver's host.
    broken: Vec<(BrokenFloor, Place, String)>,
}

impl Said {
    fn of(host: &str, said: Accounts, view: &View) -> Self {
        let own = |vm: &str| place_of(view, vm).filter(|place| place.host == host);
        let (mut counted, mut foreign) = (BTreeMap::new(), BTreeSet::new());
        for floor in &said.floors {
            let Some(place) = place_of(view, &floor.vm) else { continue };
            let key = (key(&place.tenant, &floor.vm), if floor.out { OUT } else { IN });
            if floor.out && place.host != host {
                foreign.insert(key.clone());
            }
            counted.insert(key, sum_of(floor));
        }
        let is_pair =
            |pair: &PairNow| own(&pair.from).is_some() && place_of(view, &pair.to).is_some();
        let pairs = said.pairs.into_iter().filter(is_pair).take(PAIRS_MOST);
        let pairs: Vec<PairNow> =
            pairs.map(|pair| PairNow { phase: plain(&pair.phase, WORD), ..pair }).collect();
        let is_here = |trouble: &Trouble| trouble.vm.is_empty() || own(&trouble.vm).is_some();
        let troubles = said.troubles.into_iter().filter(is_here).take(TROUBLES_MOST);
        let troubles = troubles.map(|trouble| Trouble {
            kind: plain(&trouble.kind, WORD),
            message: plain(&trouble.message, SENTENCE),
            ..trouble
        });
        let broken = said.broken.into_iter().filter_map(|one| {
            let (from, to) = (own(&one.from)?, place_of(view, &one.to)?.host);
            let cause = plain(&one.cause, WORD);
            Some((BrokenFloor { cause, ..one }, from, to))
        });
        Self {
            life: said.life,
            at_ms: said.at_ms,
            observing: said.observing,
            counted,
            foreign,
            pairs,
            troubles: troubles.collect(),
            broken: broken.take(BROKEN_MOST).collect(),
        }
    }
}

/// Words of an agent: without what terminals obey, of bounded length.
pub(crate) fn plain(text: &str, most: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(most).collect()
}

const fn sum_of(floor: &FloorAccount) -> Sum {
    let FloorAccount { windows, held, owed, got, all, borrowed, .. } = floor;
    Sum { windows: *windows, held: *held, owed: *owed, got: *got, all: *all, borrowed: *borrowed }
}

impl Inner {
    /// Takes what a host says: what its sums grew by, its stretches, and whether it is its first word.
    fn hear(
        &mut self,
        host: &str,
        mut said: Said,
        survey: &Survey,
        now: Moment,
    ) -> (Vec<Grown>, Vec<Stretch>, bool) {
        let before = self.hosts.remove(host).filter(|before| before.life == said.life);
        let mut grown = Vec::new();
        // What an agent counted before it was known is lost.
        if let Some(before) = &before {
            for ((key, way), sum) in &said.counted {
                let had = before.counted.get(&(key.clone(), *way)).copied().unwrap_or_default();
                let more = sum.since(had);
                if more != Sum::default() && !said.foreign.contains(&(key.clone(), *way)) {
                    grown.push((key.clone(), *way, more));
                }
            }
        }
        let is_first = before.is_none();
        let broken = mem::take(&mut said.broken);
        let heard = Host {
            life: said.life,
            heard: now,
            observing: said.observing,
            counted: mem::take(&mut said.counted),
            pairs: mem::take(&mut said.pairs).into(),
            troubles: mem::take(&mut said.troubles),
            stretches: before.map(|before| before.stretches).unwrap_or_default(),
        };
        self.hosts.insert(host.into(), heard);
        let of = |(broken, from, to): (BrokenFloor, Place, String)| {
            let mut stretch = stretch(host, &said, broken, &from, now);
            if stretch.end.plus_millis(RECENT) >= now && survey.is_of(now, RECENT) {
                stretch.took = survey.borrower(&from.tenant, &from.host, &to);
            }
            stretch
        };
        (grown, broken.into_iter().map(of).collect(), is_first)
    }

    /// Adds to a VM's sums. Returns five minutes that are over and have to be written.
    fn add(
        &mut self,
        key: &str,
        way: usize,
        grown: Sum,
        now: Moment,
        begun: &BTreeMap<String, [Sum; 2]>,
    ) -> Option<(String, u64, [Sum; 2])> {
        let vm = self.vms.entry(key.to_owned()).or_default();
        let (step, bucket) = (now.as_millis() / STEP * STEP, now.as_millis() / BUCKET * BUCKET);
        if vm.steps.back().is_none_or(|(at, _)| *at != step) {
            vm.steps.push_back((step, <[Sum; 2]>::default()));
            if vm.steps.len() > STEPS {
                vm.steps.pop_front();
            }
        }
        self.course.count(key, now, grown);
        vm.total[way].add(grown);
        vm.steps.back_mut().expect("it has one").1[way].add(grown);
        let mut over = None;
        if vm.bucket.is_none_or(|(at, _)| at != bucket) {
            let former = vm.bucket.filter(|_| vm.is_unwritten);
            over = former.map(|(at, sums)| (key.to_owned(), at, sums));
            vm.bucket = Some((bucket, begun.get(key).copied().unwrap_or_default()));
        }
        vm.bucket.as_mut().expect("it was begun").1[way].add(grown);
        vm.is_unwritten = true;
        over
    }

    /// A stretch that is known grows: its beginning and what took the bandwidth stay.
    fn list(&mut self, host: &str, mut stretch: Stretch, kept: Option<Stretch>) {
        let known = self.hosts.get(host).and_then(|host| host.stretches.get(&stretch.id));
        let former = known.cloned().or(kept);
        let has_grown = former.as_ref().is_none_or(|former| former.owed != stretch.owed);
        if let Some(former) = former {
            if !has_grown && (former.took.is_some() || stretch.took.is_none()) {
                return self.note(host, former);
            }
            stretch.took = former.took.or(stretch.took);
            stretch.begin = former.begin;
        }
        let key = (stretch.host.clone(), stretch.life, stretch.id);
        self.broken.retain(|b| b.host != key.0 || b.life != key.1 || b.id != key.2);
        self.broken.push_back(stretch.clone());
        if self.broken.len() > LISTED {
            self.broken.pop_front();
        }
        self.unwritten.insert(key, stretch.clone());
        self.note(host, stretch);
    }

    fn note(&mut self, host: &str, stretch: Stretch) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.stretches.insert(stretch.id, stretch);
            // An agent tells of the latest ones.
            while host.stretches.len() > BROKEN_MOST {
                host.stretches.pop_first();
            }
        }
    }
}

fn stretch(host: &str, said: &Said, broken: BrokenFloor, from: &Place, now: Moment) -> Stretch {
    // The agent's clock says how long ago it was.
    let ago = |at: u64| {
        let ago = said.at_ms.saturating_sub(at);
        Moment::from_millis(now.as_millis().saturating_sub(ago))
    };
    Stretch {
        host: host.into(),
        life: said.life,
        id: broken.id,
        tenant: from.tenant.clone(),
        begin: ago(broken.from_ms),
        end: ago(broken.until_ms),
        from: broken.from,
        to: broken.to,
        owed: broken.owed,
        got: broken.got,
        lost: broken.lost,
        cause: broken.cause,
        took: None,
    }
}

#[cfg(test)]
mod tests;
