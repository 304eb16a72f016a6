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
mod keep;
mod numbers;
mod sum;
mod told;

pub(crate) use alerts::{Alert, alerts};
pub(crate) use numbers::Numbers;
pub(crate) use sum::Sum;
pub(crate) use told::{Asked, FloorTold, PairTold, Report, Series, StretchTold};

use crate::clock::Clock;
use crate::view::View;
use keep::Keep;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_model::moment::Moment;
use weir_model::objects::{Kind, Spec};
use weir_rpc::messages::{Accounts, BrokenFloor, FloorAccount, PairNow, Trouble};

/// Length of what is shown as a course, ms.
const STEP: u64 = 10_000;
/// Steps that are kept in memory: ten minutes.
const STEPS: usize = 60;
/// Length of what is kept on the disk, ms.
const BUCKET: u64 = 300_000;
/// How often the present bucket is written.
const WRITTEN: Duration = Duration::from_secs(30);
/// Stretches of broken floors that are kept in memory.
const LISTED: usize = 1000;
/// A host of which nothing is heard for this long counts as silent, ms, and at least three of its reports.
const SILENT: u64 = 30_000;
/// How often agents tell, ms, where there are few.
const EVERY: u64 = 2000;
/// Reports in a second, at most, of all agents together.
const REPORTS: u64 = 500;

/// Out of a VM, and into it.
const OUT: usize = 0;
const IN: usize = 1;

/// All accounts.
pub(crate) struct Books {
    inner: Mutex<Inner>,
    keep: Mutex<Keep>,
}

#[derive(Default)]
struct Inner {
    /// When the first host spoke.
    begun: Option<Moment>,
    hosts: BTreeMap<String, Host>,
    vms: BTreeMap<String, Vm>,
    /// The latest stretches, by the time at which they were first heard of.
    broken: VecDeque<Stretch>,
    /// Stretches that changed since they were written.
    unwritten: BTreeMap<(String, u64, u64), Stretch>,
}

/// What a host said last.
struct Host {
    life: u64,
    heard: Moment,
    observing: bool,
    counted: BTreeMap<(String, usize), Sum>,
    pairs: Vec<PairNow>,
    troubles: Vec<Trouble>,
    /// What tenants borrow toward a host, bit/s.
    borrowed: BTreeMap<(String, String), u64>,
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

/// What is known of a VM's place.
struct Place {
    tenant: String,
    host: String,
}

impl Books {
    /// Those of a folder. If the file cannot be read, it is put aside and another begun.
    pub(crate) fn open(folder: &Path, days: u32) -> Self {
        Self { inner: Mutex::default(), keep: Mutex::new(Keep::open(folder, days)) }
    }

    /// How often so many agents are to tell, ms.
    pub(crate) fn every_ms(agents: usize) -> u32 {
        let spread = agents as u64 * 1000 / REPORTS;
        u32::try_from(spread.max(EVERY)).unwrap_or(u32::MAX)
    }

    /// A host says how its senders had their floors.
    pub(crate) fn take(&self, host: &str, said: Accounts, now: Moment, view: &View) {
        let place = |vm: &str| place_of(view, vm);
        let mut borrowed = BTreeMap::new();
        for pair in &said.pairs {
            let beyond = pair.sent.saturating_sub(pair.floor);
            if let Some(place) = place(&pair.to).filter(|_| beyond > 0) {
                *borrowed.entry((place.host, place.tenant)).or_default() += beyond;
            }
        }
        let mut inner = self.lock();
        inner.begun.get_or_insert(now);
        let before = inner.hosts.remove(host);
        let before = before.filter(|before| before.life == said.life);
        let mut counted = BTreeMap::new();
        for floor in &said.floors {
            let key = (floor.vm.clone(), if floor.out { OUT } else { IN });
            let sum = sum_of(floor);
            // What an agent counted before it was known is lost.
            if let Some(before) = &before {
                let grown = sum.since(before.counted.get(&key).copied().unwrap_or_default());
                inner.add(&key.0, key.1, grown, now, &self.keep);
            }
            counted.insert(key, sum);
        }
        let Accounts { life, at_ms, observing, pairs, troubles, broken, .. } = said;
        let is_first = before.is_none();
        let mut known = before.map(|before| before.stretches).unwrap_or_default();
        let mut stretches = BTreeMap::new();
        for one in broken {
            let Some(place) = place(&one.from) else { continue };
            let id = one.id;
            let to = place_of(view, &one.to).map(|to| to.host);
            let stretch = inner.stretch(host, life, at_ms, one, place, to, now);
            // Before its first message to this controller, a former one may have kept it.
            let kept = || is_first.then(|| self.keeper().stretch_like(&stretch)).flatten();
            let former = known.remove(&id).or_else(kept);
            stretches.insert(id, inner.list(stretch, former));
        }
        let told =
            Host { life, heard: now, observing, counted, pairs, troubles, borrowed, stretches };
        inner.hosts.insert(host.into(), told);
    }

    /// The host's stream ended: what its pairs do is not known.
    pub(crate) fn detach(&self, host: &str) {
        if let Some(host) = self.lock().hosts.get_mut(host) {
            host.pairs.clear();
            host.borrowed.clear();
        }
    }

    /// Writes what changed, and drops what is too old.
    pub(crate) fn write(&self, now: Moment, view: &View) {
        let mut inner = self.lock();
        inner.hosts.retain(|host, _| view.get(Kind::Host, host).is_some());
        let mut rows = Vec::new();
        for (name, vm) in inner.vms.iter_mut().filter(|(_, vm)| vm.is_unwritten) {
            vm.is_unwritten = false;
            rows.extend(vm.bucket.map(|(at, sums)| (name.clone(), at, sums)));
        }
        let stretches = std::mem::take(&mut inner.unwritten);
        let oldest = now.as_millis().saturating_sub(STEP * STEPS as u64);
        inner.vms.retain(|name, vm| {
            vm.steps.retain(|(at, _)| *at >= oldest);
            // A counter that has begun goes on while there is a VM of that name.
            vm.is_unwritten || !vm.steps.is_empty() || view.get(Kind::Vm, name).is_some()
        });
        drop(inner);
        self.keeper().write(&rows, stretches.values(), now);
    }

    /// Writes for ever.
    pub(crate) async fn run(self: Arc<Self>, clock: Clock, view: Arc<View>) {
        loop {
            tokio::time::sleep(WRITTEN).await;
            let (books, view) = (Arc::clone(&self), Arc::clone(&view));
            drop(tokio::task::spawn_blocking(move || books.write(clock.now(), &view)).await);
        }
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
    Some(Place { tenant: spec.tenant.clone(), host })
}

const fn sum_of(floor: &FloorAccount) -> Sum {
    let FloorAccount { windows, held, owed, got, all, borrowed, .. } = floor;
    Sum { windows: *windows, held: *held, owed: *owed, got: *got, all: *all, borrowed: *borrowed }
}

impl Inner {
    fn add(&mut self, name: &str, way: usize, grown: Sum, now: Moment, keep: &Mutex<Keep>) {
        if grown == Sum::default() {
            return;
        }
        if !self.vms.contains_key(name) {
            self.vms.insert(name.into(), Vm::default());
        }
        let vm = self.vms.get_mut(name).expect("it is there");
        let (step, bucket) = (now.as_millis() / STEP * STEP, now.as_millis() / BUCKET * BUCKET);
        if vm.steps.back().is_none_or(|(at, _)| *at != step) {
            vm.steps.push_back((step, <[Sum; 2]>::default()));
            if vm.steps.len() > STEPS {
                vm.steps.pop_front();
            }
        }
        vm.total[way].add(grown);
        vm.steps.back_mut().expect("it has one").1[way].add(grown);
        if vm.bucket.is_none_or(|(at, _)| at != bucket) {
            let mut keep = keep.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, sums)) = vm.bucket.filter(|_| vm.is_unwritten) {
                keep.later(name, at, sums);
            }
            // A former controller, or this one before the VM was silent, may have begun it.
            vm.bucket = Some((bucket, keep.read_one(name, bucket)));
        }
        vm.bucket.as_mut().expect("it was begun").1[way].add(grown);
        vm.is_unwritten = true;
    }

    #[expect(clippy::too_many_arguments, reason = "two ends of a pair, and when")]
    fn stretch(
        &self,
        host: &str,
        life: u64,
        at_ms: u64,
        said: BrokenFloor,
        from: Place,
        to: Option<String>,
        now: Moment,
    ) -> Stretch {
        // The agent's clock says how long ago it was.
        let ago =
            |at: u64| Moment::from_millis(now.as_millis().saturating_sub(at_ms.saturating_sub(at)));
        let took = self.borrower(&from, to.as_deref());
        Stretch {
            host: host.into(),
            life,
            id: said.id,
            tenant: from.tenant,
            begin: ago(said.from_ms),
            end: ago(said.until_ms),
            from: said.from,
            to: said.to,
            owed: said.owed,
            got: said.got,
            lost: said.lost,
            cause: said.cause,
            took,
        }
    }

    /// The tenant that borrows most of the links that both ends of a pair have in common with others: the sender's
    /// host sends, or the receiver's host receives.
    fn borrower(&self, from: &Place, to: Option<&str>) -> Option<String> {
        let mut tenants: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, host) in &self.hosts {
            for ((toward, tenant), rate) in &host.borrowed {
                if *name == from.host || Some(toward.as_str()) == to {
                    *tenants.entry(tenant).or_default() += rate;
                }
            }
        }
        let most = tenants.into_iter().max_by_key(|(_, rate)| *rate)?;
        Some(most.0.to_owned())
    }

    /// A stretch that is known grows: its beginning and what took the bandwidth stay. Returns it as it is kept.
    fn list(&mut self, mut stretch: Stretch, former: Option<Stretch>) -> Stretch {
        let has_grown = former.as_ref().is_none_or(|former| former.owed != stretch.owed);
        if let Some(former) = former {
            if !has_grown {
                return former;
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
        stretch
    }
}

#[cfg(test)]
mod tests;
