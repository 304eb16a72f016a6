//! The controller as a state machine: requests in, answers and changed records out.
//!
//! Problem   What is promised has to be the same after every crash, and a refused request must change
//!           nothing. Neither can be tested where sockets and disks are.
//! Approach  [`State::handle`] is the only way in for requests, [`State::tick`] for time. Both change the
//!           state, note how to take each change back, and note what is to be written. The driver gives
//!           the records to a store and then calls [`State::keep`], or [`State::undo`] if the store fails.
//! Promises  A refused request or a dry run changes nothing. After `undo` the state is that of the last
//!           `keep`. The objects alone give the state: [`State::load`] makes it again.
//! Not here  Clocks, sockets, disks: see `engine` and `http`. Whether a floor fits: see `core::ledger`.

mod admit;
mod book;
mod change;
mod command;
mod components;
mod drain;
mod hosts;
mod network;
mod numbers;
mod published;
mod records;
mod reserve;
mod room;
#[cfg(test)]
mod tests;
mod tokens;
mod ways;

pub use command::{Action, Actor, Answer, Idempotency, Mode, Request, Role};
pub(crate) use hosts::{APPLIED, QUEUE, READY, enrolment};
pub use hosts::{Bound, Bounds, Observation, Rooms};
pub(crate) use network::nic_of;
pub(crate) use published::published;
pub(crate) use records::audit_key;
pub use records::{Event, EventKind, Stored};
pub use tokens::{NewToken, Token};
pub(crate) use ways::{LinkWay, Ways};

use crate::problem::Problem;
use crate::store::{REVISION, Snapshot, StoreError, Table, Write};
use book::Book;
pub(crate) use book::LinkUse;
use numbers::Numbers;
use records::AnswerRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_model::moment::Moment;
use weir_model::objects::{Kind, Object, Phase};

/// Bounds of what the state keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries of the audit log.
    pub audit: u64,
    /// Milliseconds for which a reservation in its last phase stays visible.
    pub keep_reservations: u64,
    /// Milliseconds for which an answer is remembered by its idempotency key.
    pub keep_answers: u64,
    /// Number of remembered answers; the oldest are forgotten first.
    pub answers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            audit: 100_000,
            keep_reservations: 3_600_000,
            keep_answers: 86_400_000,
            answers: 100_000,
        }
    }
}

/// What the controller knows.
pub struct State {
    limits: Limits,
    /// By kind, then by name.
    objects: [BTreeMap<String, Arc<Stored>>; Kind::ALL.len()],
    /// What is promised on each link.
    book: Book,
    /// What changed since `book` was made.
    stale: Stale,
    /// VMs that exist and whose floors do not hold, by name.
    fallen: BTreeSet<String>,
    /// Tenants whose status may not yet say on which tree they are.
    touched: BTreeSet<String>,
    /// Tenant → the links that drain and that its tree has.
    stuck: BTreeMap<String, Vec<String>>,
    /// What objects say about draining may not be so any more.
    drain_is_news: bool,
    /// VM → the held reservation that has room for it.
    reserved: BTreeMap<String, String>,
    /// When something has to be done, and about which reservation.
    deadlines: BTreeSet<(Moment, String)>,
    tokens: BTreeMap<String, Arc<Token>>,
    answers: BTreeMap<String, Arc<AnswerRecord>>,
    /// The keys of `answers` by age.
    answers_by_age: BTreeSet<(Moment, String)>,
    /// Counts changes of objects.
    revision: u64,
    /// Numbers by which agents know hosts and VMs.
    numbers: Numbers,
    /// Number of the next entry of the audit log, and of the oldest one.
    audit: (u64, u64),
    pending: Pending,
}

/// What happened since the last `keep`.
#[derive(Default)]
struct Pending {
    undo: Vec<Undo>,
    events: Vec<Event>,
    tokens: Vec<(String, Option<Arc<Token>>)>,
    writes: Vec<Write>,
}

/// Whether the book is of the network as it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stale {
    No,
    /// Only what drains is different: all floors that hold stay.
    Drain,
    /// Priorities decide again.
    Network,
}

/// How one change is taken back.
enum Undo {
    Object(Kind, String, Option<Arc<Stored>>),
    Token(String, Option<Arc<Token>>),
    Answer(String, Option<Arc<AnswerRecord>>),
    /// Claims of a tenant were made, changed or given back.
    Claims(Box<book::Before>),
    /// A claim got another name: now, before, and what it counted for.
    Renamed(String, String, book::Usage),
    /// The whole book was made anew.
    Book(Box<Book>),
    Stale(Stale),
    Fallen(String, bool),
    Stuck(String, Option<Vec<String>>),
    Reserved(String, Option<String>),
    Deadline((Moment, String), bool),
    /// Kind, number, and which object had it before.
    Number(Kind, u32, Option<String>),
}

/// A point to which changes can be taken back.
#[derive(Clone, Copy)]
struct Mark {
    undo: usize,
    events: usize,
    tokens: usize,
    writes: usize,
    revision: u64,
    audit: (u64, u64),
}

/// What the driver does with changes that are on the disk.
#[derive(Default)]
pub struct Published {
    /// Changes of objects, in order.
    pub events: Vec<Event>,
    /// Changes of tokens, by hash.
    pub tokens: Vec<(String, Option<Arc<Token>>)>,
}

impl State {
    /// A state without objects.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            objects: Default::default(),
            book: Book::default(),
            stale: Stale::No,
            fallen: BTreeSet::new(),
            touched: BTreeSet::new(),
            stuck: BTreeMap::new(),
            drain_is_news: false,
            reserved: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            tokens: BTreeMap::new(),
            answers: BTreeMap::new(),
            answers_by_age: BTreeSet::new(),
            revision: 0,
            numbers: Numbers::default(),
            audit: (0, 0),
            pending: Pending::default(),
        }
    }

    /// The state of a store. The clock may have jumped since it was written: a reservation is held no
    /// longer than it asked for, from now on.
    ///
    /// # Errors
    ///
    /// The store cannot be read, or its records make no sense.
    pub fn load(snapshot: &dyn Snapshot, limits: Limits, now: Moment) -> Result<Self, StoreError> {
        let mut state = Self::new(limits);
        records::load(&mut state, snapshot, now)?;
        state.admit_again();
        state.pending = Pending::default();
        Ok(state)
    }

    /// Handles one request. `now` never decreases.
    ///
    /// # Errors
    ///
    /// The request is refused, and nothing changed.
    pub fn handle(&mut self, now: Moment, request: &Request) -> Result<Answer, Problem> {
        if let Some(answer) = self.remembered(request)? {
            return Ok(answer);
        }
        let mark = self.mark();
        let touched = self.touched.clone();
        let done = self.act(now, request).and_then(|answer| {
            self.refresh(now)?;
            Ok(answer)
        });
        match done {
            Ok(answer) if !request.dry_run => {
                let is_news = !matches!(request.action, Action::Observe(_));
                if is_news && self.changed_since(mark) {
                    self.note(now, request);
                }
                let answer = answer.finish(self);
                self.remember(now, request, &answer);
                Ok(answer)
            }
            Ok(answer) => {
                let answer = answer.finish(self).of_dry_run();
                self.undo_to(mark);
                self.touched = touched;
                Ok(answer)
            }
            Err(problem) => {
                self.undo_to(mark);
                self.touched = touched;
                Err(problem)
            }
        }
    }

    /// Does what time asks for: ends reservations that nobody confirmed, forgets old ones and old
    /// answers. To be called when [`State::next_deadline`] has come.
    pub fn tick(&mut self, now: Moment) {
        while let Some((at, name)) = self.deadlines.first().cloned() {
            if at > now {
                break;
            }
            self.set_deadline((at, name.clone()), false);
            self.reservation_is_due(now, &name);
        }
        while let Some((at, key)) = self.answers_by_age.first().cloned() {
            if at.plus_millis(self.limits.keep_answers) > now {
                break;
            }
            self.set_answer(&key, None);
        }
        self.admit_fallen(now);
        self.say_trees();
        if let Err(problem) = self.say_draining(now) {
            tracing::error!("it cannot be said what falls without what drains: {}", problem.detail);
        }
    }

    /// When [`State::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Moment> {
        let keep = self.limits.keep_answers;
        let answers = self.answers_by_age.first().map(|(at, _)| at.plus_millis(keep));
        let reservations = self.deadlines.first().map(|(at, _)| *at);
        answers.into_iter().chain(reservations).min()
    }

    /// Records that have to be written before anybody hears of the changes.
    pub fn writes(&self) -> &[Write] {
        &self.pending.writes
    }

    /// The changes are on the disk: gives them out for publication.
    pub fn keep(&mut self) -> Published {
        let Pending { events, tokens, .. } = std::mem::take(&mut self.pending);
        Published { events, tokens }
    }

    /// Takes back all changes since the last [`State::keep`].
    pub fn undo(&mut self, to: (u64, (u64, u64))) {
        let mark = Mark { undo: 0, events: 0, tokens: 0, writes: 0, revision: to.0, audit: to.1 };
        self.undo_to(mark);
    }

    /// Counters that [`State::undo`] needs. To be asked for right after [`State::keep`].
    pub const fn counters(&self) -> (u64, (u64, u64)) {
        (self.revision, self.audit)
    }

    /// Version of the newest change.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Stored>> {
        self.objects.iter().flat_map(BTreeMap::values)
    }

    /// All tokens by their hashes.
    pub const fn tokens(&self) -> &BTreeMap<String, Arc<Token>> {
        &self.tokens
    }

    /// Number of VMs whose floors do not hold.
    pub fn fallen(&self) -> usize {
        self.fallen.len()
    }

    /// Finds an object.
    pub fn get(&self, kind: Kind, name: &str) -> Option<&Arc<Stored>> {
        self.objects[kind as usize].get(name)
    }

    /// Checks everything that must hold between requests: for tests, and once at every start.
    ///
    /// # Panics
    ///
    /// It does not hold.
    pub fn check(&self) {
        self.book.check();
        self.check_claims();
        self.check_draining();
    }

    fn mark(&self) -> Mark {
        let pending = &self.pending;
        Mark {
            undo: pending.undo.len(),
            events: pending.events.len(),
            tokens: pending.tokens.len(),
            writes: pending.writes.len(),
            revision: self.revision,
            audit: self.audit,
        }
    }

    fn changed_since(&self, mark: Mark) -> bool {
        self.pending.writes.len() > mark.writes
    }

    fn undo_to(&mut self, mark: Mark) {
        while self.pending.undo.len() > mark.undo {
            let change = self.pending.undo.pop().expect("it is longer than that");
            self.take_back(change);
        }
        self.pending.events.truncate(mark.events);
        self.pending.tokens.truncate(mark.tokens);
        self.pending.writes.truncate(mark.writes);
        (self.revision, self.audit) = (mark.revision, mark.audit);
    }

    fn take_back(&mut self, change: Undo) {
        match change {
            Undo::Object(kind, name, old) => set(&mut self.objects[kind as usize], name, old),
            Undo::Token(hash, old) => set(&mut self.tokens, hash, old),
            Undo::Answer(key, old) => {
                if let Some(now) = self.answers.get(&key) {
                    self.answers_by_age.remove(&(now.at, key.clone()));
                }
                if let Some(old) = &old {
                    self.answers_by_age.insert((old.at, key.clone()));
                }
                set(&mut self.answers, key, old);
            }
            Undo::Claims(before) => self.book.take_back(*before),
            Undo::Renamed(now, before, counted) => self.book.rename(&now, &before, counted),
            Undo::Book(book) => self.book = *book,
            Undo::Stale(stale) => self.stale = stale,
            Undo::Fallen(name, true) => {
                self.fallen.insert(name);
            }
            Undo::Fallen(name, false) => {
                self.fallen.remove(&name);
            }
            Undo::Stuck(tenant, old) => set(&mut self.stuck, tenant, old),
            Undo::Reserved(vm, old) => set(&mut self.reserved, vm, old),
            Undo::Number(kind, number, old) => self.numbers.set(kind, number, old),
            Undo::Deadline(deadline, true) => {
                self.deadlines.insert(deadline);
            }
            Undo::Deadline(deadline, false) => {
                self.deadlines.remove(&deadline);
            }
        }
    }

    /// All changes of objects pass here: the object gets its version, the record is noted.
    fn put_object(&mut self, mut object: Object) -> Arc<Stored> {
        let (kind, name) = (object.kind(), object.name().to_owned());
        self.give_number(&mut object);
        self.revision += 1;
        object.metadata.resource_version = Some(self.revision.to_string());
        let stored = Arc::new(Stored::new(object, self.revision));
        let old = self.objects[kind as usize].insert(name.clone(), Arc::clone(&stored));
        let event = if old.is_some() { EventKind::Modified } else { EventKind::Added };
        let key = records::object_key(kind, &name);
        self.pending.writes.push(Write::put(Table::Objects, key, stored.json.as_bytes()));
        self.pending.undo.push(Undo::Object(kind, name, old));
        self.event(event, Arc::clone(&stored));
        stored
    }

    fn remove_object(&mut self, kind: Kind, name: &str) {
        let Some(old) = self.objects[kind as usize].remove(name) else { return };
        if let Some(number) = old.object.status.number {
            self.set_number(kind, number, None);
        }
        self.revision += 1;
        let key = records::object_key(kind, name);
        self.pending.writes.push(Write::delete(Table::Objects, key));
        let mut object = old.object.clone();
        object.metadata.resource_version = Some(self.revision.to_string());
        let last = Arc::new(Stored::new(object, self.revision));
        self.pending.undo.push(Undo::Object(kind, name.into(), Some(old)));
        self.event(EventKind::Deleted, last);
    }

    fn event(&mut self, kind: EventKind, stored: Arc<Stored>) {
        let revision = self.revision.to_string();
        self.pending.writes.push(Write::put(Table::Meta, REVISION, revision));
        self.pending.events.push(Event { revision: self.revision, kind, stored });
    }

    fn set_fallen(&mut self, name: &str, fallen: bool) {
        let was =
            if fallen { !self.fallen.insert(name.to_owned()) } else { self.fallen.remove(name) };
        self.pending.undo.push(Undo::Fallen(name.into(), was));
    }

    fn set_reserved(&mut self, vm: &str, reservation: Option<String>) {
        let old = self.reserved.get(vm).cloned();
        set(&mut self.reserved, vm.into(), reservation);
        self.pending.undo.push(Undo::Reserved(vm.into(), old));
    }

    fn set_deadline(&mut self, deadline: (Moment, String), armed: bool) {
        let was = if armed {
            !self.deadlines.insert(deadline.clone())
        } else {
            self.deadlines.remove(&deadline)
        };
        self.pending.undo.push(Undo::Deadline(deadline, was));
    }

    /// Name of a reservation that is held, with its object.
    fn held(&self, name: &str) -> Option<&Arc<Stored>> {
        let stored = self.get(Kind::Reservation, name)?;
        (stored.object.status.phase == Some(Phase::Held)).then_some(stored)
    }
}

/// Sets or removes an entry.
fn set<T>(map: &mut BTreeMap<String, T>, key: String, value: Option<T>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}
