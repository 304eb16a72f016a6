//! Where the thread that speaks to the controller and the loop of the agent meet.
//!
//! Problem   Neither may wait for the other: the loop has floors to keep, and the controller may send
//!           faster than a host takes up.
//! Approach  What is wanted lies here, one state per tenant: a newer one replaces an older one that
//!           nobody took. The loop takes all, and puts down what became of each. A bell wakes the loop.
//! Promises  At most one state per tenant waits in each direction.

use crate::messages::{Accounts, Tenant, Used};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use weir_model::agent::Mode;

/// Why a state was not taken up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// One word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// What became of a tenant's state.
pub type Done = (Tenant, Result<(), Refusal>);

/// What became of a tenant's states since it was last asked.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The last one.
    pub(super) last: Done,
    /// The one that is in force, if that is a newer one than before: it may not be the last one.
    pub(super) taken: Option<Tenant>,
}

/// What tenants used of the network card.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// When it was counted, by a clock that only grows, ms.
    pub at_ms: u64,
    /// All tenants with VMs here.
    pub used: Vec<Used>,
}

/// How it stands with the controller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Whether there is a stream.
    pub connected: bool,
    /// Streams so far.
    pub streams: u64,
    /// Attempts that failed and streams that broke off.
    pub failures: u64,
    /// Why there is none.
    pub trouble: Option<String>,
    /// Seconds for which the certificate is valid still.
    pub certificate_s: u64,
}

/// The place.
pub struct Desk {
    inner: Mutex<Inner>,
    bell: Box<dyn Fn() + Send + Sync>,
    pub(super) answered: Notify,
    pub(super) reported: Notify,
}

#[derive(Default)]
struct Inner {
    wanted: BTreeMap<String, Tenant>,
    /// Tenants whose states the loop has and has not answered for.
    in_hand: BTreeSet<String>,
    done: BTreeMap<String, Outcome>,
    standing: Standing,
    /// How often the controller wants to hear what tenants use, ms; 0: never.
    usage_every_ms: u32,
    used: Option<Report>,
    /// How often it wants to hear how floors were kept, ms; 0: never.
    accounts_every_ms: u32,
    accounts: Option<Accounts>,
    /// What the controller said of the mode; absent: nothing yet.
    mode: Option<Option<Mode>>,
    /// The one that was taken up since it was last asked.
    mode_taken: Option<Option<Mode>>,
}

impl Desk {
    /// A place with nothing on it. `bell` wakes the loop.
    pub fn new(bell: impl Fn() + Send + Sync + 'static) -> Self {
        let (answered, reported) = (Notify::new(), Notify::new());
        Self { inner: Mutex::default(), bell: Box::new(bell), answered, reported }
    }

    /// Puts down what is wanted.
    pub fn want(&self, tenants: Vec<Tenant>) {
        let mut inner = self.lock();
        inner.wanted.extend(tenants.into_iter().map(|tenant| (tenant.name.clone(), tenant)));
        drop(inner);
        (self.bell)();
    }

    /// Takes what is wanted.
    pub fn take(&self) -> Vec<Tenant> {
        let mut inner = self.lock();
        let taken = std::mem::take(&mut inner.wanted);
        inner.in_hand.extend(taken.keys().cloned());
        taken.into_values().collect()
    }

    /// Puts down what became of it.
    pub fn answer(&self, done: impl IntoIterator<Item = Done>) {
        let mut inner = self.lock();
        for last in done {
            let name = last.0.name.clone();
            inner.in_hand.remove(&name);
            let before = inner.done.remove(&name).and_then(|before| before.taken);
            let taken = if last.1.is_ok() { Some(last.0.clone()) } else { before };
            inner.done.insert(name, Outcome { last, taken });
        }
        drop(inner);
        self.answered.notify_one();
    }

    pub(super) fn answers(&self) -> Vec<Outcome> {
        std::mem::take(&mut self.lock().done).into_values().collect()
    }

    /// Tenants of which it is open what is in force: their states wait, are in hand, or were not written down.
    pub(super) fn open(&self) -> BTreeSet<String> {
        let inner = self.lock();
        let names = inner.wanted.keys().chain(&inner.in_hand).chain(inner.done.keys());
        names.cloned().collect()
    }

    /// How often the controller wants to hear what tenants use, ms; 0: never.
    pub fn usage_every_ms(&self) -> u32 {
        self.lock().usage_every_ms
    }

    pub(super) fn want_usage(&self, every_ms: u32) {
        self.lock().usage_every_ms = every_ms;
    }

    /// Puts down what tenants used; a report that was not sent yet is replaced.
    pub fn report(&self, report: Report) {
        self.lock().used = Some(report);
        self.reported.notify_one();
    }

    pub(super) fn take_report(&self) -> Option<Report> {
        self.lock().used.take()
    }

    /// How often the controller wants to hear how floors were kept, ms; 0: never.
    pub fn accounts_every_ms(&self) -> u32 {
        self.lock().accounts_every_ms
    }

    pub(super) fn want_accounts(&self, every_ms: u32) {
        self.lock().accounts_every_ms = every_ms;
    }

    /// Whether the agent is to enforce, if the controller said something; inside, nothing means that the host's own
    /// file decides.
    pub fn mode(&self) -> Option<Option<Mode>> {
        self.lock().mode
    }

    pub(super) fn want_mode(&self, mode: Option<Mode>) {
        self.lock().mode = Some(mode);
        (self.bell)();
    }

    /// This mode is in force.
    pub fn answer_mode(&self, mode: Option<Mode>) {
        self.lock().mode_taken = Some(mode);
        self.answered.notify_one();
    }

    pub(super) fn mode_taken(&self) -> Option<Option<Mode>> {
        self.lock().mode_taken.take()
    }

    /// Puts down how floors were kept; accounts that were not sent yet are replaced.
    pub fn account(&self, accounts: Accounts) {
        self.lock().accounts = Some(accounts);
        self.reported.notify_one();
    }

    pub(super) fn take_accounts(&self) -> Option<Accounts> {
        self.lock().accounts.take()
    }

    /// How it stands with the controller.
    pub fn standing(&self) -> Standing {
        self.lock().standing.clone()
    }

    pub(super) fn stand(&self, change: impl FnOnce(&mut Standing)) {
        change(&mut self.lock().standing);
    }

    // Nobody panics while it is held.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_newer_state_replaces_one_that_nobody_took() {
        let rung = Arc::new(AtomicU32::new(0));
        let bell = Arc::clone(&rung);
        let desk = Desk::new(move || {
            bell.fetch_add(1, Ordering::Relaxed);
        });
        let state =
            |name: &str, version| Tenant { name: name.into(), version, ..Tenant::default() };
        desk.want(vec![state("red", 1), state("blue", 1)]);
        desk.want(vec![state("red", 2)]);
        let taken: Vec<_> = desk.take().into_iter().map(|t| (t.name, t.version)).collect();
        assert_eq!(taken, [("blue".into(), 1), ("red".into(), 2)]);
        assert!(desk.take().is_empty());
        assert_eq!(rung.load(Ordering::Relaxed), 2);
        assert_eq!(desk.open().len(), 2, "both are in hand");
        desk.answer([(state("red", 2), Ok(()))]);
        assert_eq!(desk.open().len(), 2, "and one is not written down");
        assert_eq!(desk.answers().len(), 1);
        assert!(desk.answers().is_empty());
        assert_eq!(desk.open(), BTreeSet::from(["blue".to_owned()]));
    }

    #[test]
    fn what_was_taken_up_is_known_also_if_the_next_state_is_refused() {
        let desk = Desk::new(|| {});
        let state = |version| Tenant { name: "red".into(), version, ..Tenant::default() };
        let refusal = || Refusal { reason: "No".into(), message: String::new() };
        desk.answer([(state(1), Ok(()))]);
        desk.answer([(state(2), Err(refusal()))]);
        desk.answer([(state(3), Err(refusal()))]);
        let answers = desk.answers();
        let [Outcome { last, taken }] = &answers[..] else { panic!("one tenant") };
        assert_eq!((last.0.version, taken.as_ref().map(|taken| taken.version)), (3, Some(1)));
        desk.answer([(state(4), Err(refusal()))]);
        assert!(desk.answers()[0].taken.is_none(), "it was said before");
    }
}
