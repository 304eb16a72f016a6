//! The one thread that changes anything: requests → state → store → readers.
//!
//! Problem   A sync of the disk costs more than a request. A disk that is full must not take the answers
//!           to readers with it, and must not leave the memory ahead of the disk.
//! Approach  Requests wait in a bounded queue. The thread takes what is there, handles it, writes all
//!           records in one commit, publishes, and only then answers. After a failed commit all of it is
//!           taken back; before the next attempt the store is compared with the memory.
//!           Of several controllers with one store, one leads. It alone has a state; the others publish
//!           what it commits, and send requests to it. When it is gone, another makes the state anew.
//! Promises  What was answered is on the disk. What readers see is on the disk.

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::state::{Answer, Limits, Request, State, published};
use crate::store::{Changes, SCHEMA, Snapshot, Standing, Store, StoreError, Write};
use crate::view::View;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use weir_model::moment::Moment;

/// Requests that wait. More are told to come back.
const QUEUE: usize = 4096;
/// Requests of one commit. Larger means more throughput beside a slow disk, and longer waits.
const GROUP: usize = 256;
/// How long no write is tried after the store failed, milliseconds.
const PAUSE: u64 = 1000;
/// The longest wait for nothing.
const IDLE: Duration = Duration::from_secs(60);

type Reply = oneshot::Sender<Result<Answer, Problem>>;

/// Looks at the state, if this process has one.
type Look = Box<dyn FnOnce(Result<&State, Problem>) + Send>;

enum Job {
    Request(Box<Request>, Reply),
    Snapshot(oneshot::Sender<Result<Box<dyn Snapshot>, Problem>>),
    Look(Look),
    Note(Vec<Write>, oneshot::Sender<Result<(), Problem>>),
    /// The store has news.
    Wake,
    Stop,
}

/// What one commit is for.
#[derive(Default)]
struct Group {
    requests: Vec<(Box<Request>, Reply)>,
    notes: Vec<Write>,
    noted: Vec<oneshot::Sender<Result<(), Problem>>>,
}

/// How others reach the thread.
#[derive(Clone)]
pub struct Engine {
    jobs: SyncSender<Job>,
    metrics: Arc<Metrics>,
    standing: watch::Receiver<Standing>,
}

/// The thread.
pub struct Running {
    jobs: SyncSender<Job>,
    thread: JoinHandle<Result<(), StoreError>>,
}

impl Running {
    /// Ends the thread after the requests that wait.
    ///
    /// # Errors
    ///
    /// Why it had ended before.
    pub fn stop(self) -> Result<(), StoreError> {
        // A thread that is gone needs no message.
        drop(self.jobs.send(Job::Stop));
        self.thread.join().unwrap_or_else(|_| {
            tracing::error!("the writing thread panicked");
            Ok(())
        })
    }
}

/// Reads the store, publishes it, and starts the thread. Blocks.
///
/// # Errors
///
/// The store cannot be read.
pub fn start(
    mut store: Box<dyn Store>,
    limits: Limits,
    history: usize,
    clock: Clock,
    metrics: Arc<Metrics>,
) -> Result<(Engine, Arc<View>, Running), StoreError> {
    let state = State::load(&*store.follow()?, limits, clock.now())?;
    state.check();
    let view = Arc::new(View::new(&state, history));
    let (jobs, inbox) = sync_channel(QUEUE);
    let bell = jobs.clone();
    // A thread that has something to do looks at the store anyway.
    store.on_change(Box::new(move || drop(bell.try_send(Job::Wake))));
    metrics.fallen.set(state.fallen() as i64);
    // Where others may write, the state is made when this process leads.
    let alone = Standing::Leads { term: 0 };
    let (standing, lead) = match store.standing() {
        leads if leads == alone => (leads, Some(Lead { term: 0, state })),
        _ => (Standing::Follows { leader: None, why: "it has just started".into() }, None),
    };
    metrics.leads.set(i64::from(lead.is_some()));
    let (standing, told) = watch::channel(standing);
    let engine = Engine { jobs: jobs.clone(), metrics: Arc::clone(&metrics), standing: told };
    let writer = Writer {
        lead,
        store,
        limits,
        clock,
        metrics,
        view: Arc::clone(&view),
        standing,
        trouble: None,
        lost: false,
        again: clock.now(),
    };
    let spawned = std::thread::Builder::new().name("writer".into()).spawn(|| writer.run(inbox));
    let thread = spawned.map_err(|source| StoreError::Io { path: "a thread".into(), source })?;
    Ok((engine, view, Running { jobs, thread }))
}

impl Engine {
    /// Handles one request. The answer comes when it is on the disk.
    ///
    /// # Errors
    ///
    /// The request is refused, or the controller cannot take it now.
    pub async fn ask(&self, request: Request) -> Result<Answer, Problem> {
        self.may_ask()?;
        let (reply, answer) = oneshot::channel();
        self.send(Job::Request(Box::new(request), reply))?;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// What is in the store now.
    ///
    /// # Errors
    ///
    /// The store cannot be read, or the controller is ending.
    pub async fn snapshot(&self) -> Result<Box<dyn Snapshot>, Problem> {
        self.may_ask()?;
        let (reply, answer) = oneshot::channel();
        self.send(Job::Snapshot(reply))?;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Looks at the state that is on the disk.
    ///
    /// # Errors
    ///
    /// The controller is ending or has too much to do.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        self.may_ask()?;
        let (reply, answer) = oneshot::channel();
        // If the reply cannot be sent, the request was given up.
        self.send(Job::Look(Box::new(move |state| drop(reply.send(state.map(look))))))?;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Whether this process leads, and which one does. The channel ends with the thread.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Who follows sends requests to its leader.
    fn may_ask(&self) -> Result<(), Problem> {
        match &*self.standing.borrow() {
            Standing::Leads { .. } => Ok(()),
            follows => Err(not_leading(follows)),
        }
    }

    /// Writes records that are not the state's. Returns when they are on the disk.
    ///
    /// # Errors
    ///
    /// They may not be there: write them again.
    pub async fn note(&self, writes: Vec<Write>) -> Result<(), Problem> {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Note(writes, reply))?;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    fn send(&self, job: Job) -> Result<(), Problem> {
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => {
                self.metrics.queue_full.inc();
                let detail = format!("{QUEUE} requests wait already: try again in a second");
                Problem::new(503, "Busy", "request", detail)
            }
            TrySendError::Disconnected(_) => stopping(),
        })
    }
}

/// What a client is told by a controller that does not lead.
fn not_leading(standing: &Standing) -> Problem {
    match standing {
        Standing::Follows { leader: Some(leader), .. } => {
            let detail = format!(
                "this controller does not lead: `{}` does, send the request to {}",
                leader.name, leader.url
            );
            Problem::new(307, "NotLeader", "request", detail).with("leader", leader.url.as_str())
        }
        Standing::Follows { why, .. } => {
            let detail = format!(
                "no controller leads at present ({why}): nothing was changed; try again in a moment"
            );
            Problem::new(503, "NoLeader", "request", detail)
        }
        Standing::Leads { .. } => {
            Problem::new(503, "NoLeader", "request", "the leader has just changed: try again")
        }
    }
}

fn stopping() -> Problem {
    Problem::new(503, "Stopping", "request", "the controller is ending: try again in a moment")
}

/// What a client is told about the store.
pub(crate) fn of_store(error: &StoreError) -> Problem {
    match error {
        StoreError::Full { .. } | StoreError::Quota { .. } => {
            Problem::new(507, "DiskFull", "request", error.to_string())
        }
        StoreError::Unreachable { .. } => in_doubt(error),
        _ => Problem::new(503, "StoreFailed", "request", error.to_string()),
    }
}

/// What clients are told when their changes could not be committed. A leader that another one has taken over from does
/// not know either: an attempt may have been done, and its answer lost.
fn of_commit(error: &StoreError) -> Problem {
    match error {
        StoreError::Full { .. } | StoreError::Quota { .. } => of_store(error),
        _ => in_doubt(error),
    }
}

fn in_doubt(error: &StoreError) -> Problem {
    let detail = format!(
        "{error}; a change that was under way may have been done: repeat it with the same Idempotency-Key"
    );
    Problem::new(503, "StoreFailed", "request", detail)
}

/// What a process has while it leads.
struct Lead {
    term: u64,
    state: State,
}

struct Writer {
    /// None while another process leads.
    lead: Option<Lead>,
    store: Box<dyn Store>,
    limits: Limits,
    clock: Clock,
    metrics: Arc<Metrics>,
    view: Arc<View>,
    standing: watch::Sender<Standing>,
    /// The store failed: what clients are told, and when the next attempt is due.
    trouble: Option<(Problem, Moment)>,
    /// What others committed is no longer known in full: all has to be read again.
    lost: bool,
    /// When the next attempt to lead, or to read all, is due.
    again: Moment,
}

impl Writer {
    fn run(mut self, inbox: Receiver<Job>) -> Result<(), StoreError> {
        loop {
            self.look()?;
            let deadline = self.lead.as_ref().and_then(|lead| lead.state.next_deadline());
            let wait = deadline.map_or(IDLE, |at| self.clock.until(at).min(IDLE));
            // With a store that fails, what is due stays due: no busy loop.
            let wait =
                if self.trouble.is_some() { wait.max(Duration::from_millis(PAUSE)) } else { wait };
            let wait = if self.is_behind() { self.clock.until(self.again) } else { wait };
            let (mut group, mut stop) = (Group::default(), false);
            match inbox.recv_timeout(wait) {
                Ok(job) => stop = self.sort(job, &mut group),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => stop = true,
            }
            while group.requests.len() < GROUP && !stop {
                match inbox.try_recv() {
                    Ok(job) => stop = self.sort(job, &mut group),
                    Err(_) => break,
                }
            }
            self.turn(group);
            if stop {
                return Ok(());
            }
        }
    }

    /// Answers what needs no write at once. True means that the thread has to end.
    fn sort(&mut self, job: Job, group: &mut Group) -> bool {
        let state = match &self.lead {
            Some(lead) => Ok(&lead.state),
            None => Err(not_leading(&self.standing.borrow())),
        };
        match job {
            Job::Request(request, reply) => group.requests.push((request, reply)),
            Job::Note(writes, reply) => {
                group.notes.extend(writes);
                group.noted.push(reply);
            }
            Job::Look(look) => look(state),
            Job::Snapshot(reply) => {
                let snapshot = state
                    .map(drop)
                    .and_then(|()| self.store.snapshot().map_err(|error| of_store(&error)));
                // If the reply cannot be sent, the request was given up.
                drop(reply.send(snapshot));
            }
            Job::Wake => {}
            Job::Stop => return true,
        }
        false
    }

    // -- leadership ----------------------------------------------------------------------------

    /// Whether something has to be tried again soon.
    fn is_behind(&mut self) -> bool {
        self.lost
            || (self.lead.is_none() && matches!(self.store.standing(), Standing::Leads { .. }))
    }

    /// Takes up which process leads, and what other processes committed.
    ///
    /// # Errors
    ///
    /// This program must not go on with this store.
    fn look(&mut self) -> Result<(), StoreError> {
        let standing = self.store.standing();
        let term = match standing {
            Standing::Leads { term } => Some(term),
            Standing::Follows { .. } => None,
        };
        if self.lead.as_ref().is_some_and(|lead| Some(lead.term) != term) {
            self.step_down();
        }
        match term {
            None => self.tell(standing),
            Some(term) if self.lead.is_none() && self.clock.now() >= self.again => {
                match self.take_over(term) {
                    Ok(()) => self.tell(standing),
                    Err(error @ StoreError::Newer { .. }) => return Err(error),
                    Err(error) => {
                        tracing::warn!("cannot lead yet: {error}");
                        self.again = self.clock.now().plus_millis(PAUSE);
                        self.tell(Standing::Follows { leader: None, why: error.to_string() });
                    }
                }
            }
            Some(_) => {}
        }
        self.take_changes()
    }

    fn tell(&self, standing: Standing) {
        self.metrics.leads.set(i64::from(self.lead.is_some()));
        self.standing.send_if_modified(|told| {
            let is_news = *told != standing;
            *told = standing;
            is_news
        });
    }

    fn step_down(&mut self) {
        (self.lead, self.trouble) = (None, None);
        let why = "this controller led until a moment ago".into();
        self.tell(Standing::Follows { leader: None, why });
    }

    /// Makes the state. Readers' history goes on if they have seen all that the former leader committed.
    fn take_over(&mut self, term: u64) -> Result<(), StoreError> {
        self.store.begin()?;
        let mut state = State::load(&*self.store.snapshot()?, self.limits, self.clock.now())?;
        self.take_changes()?;
        while self.store.await_changes() {
            self.take_changes()?;
        }
        if !self.view.is_that_of(&state) {
            state = State::load(&*self.store.follow()?, self.limits, self.clock.now())?;
            self.view.reset(&state);
        }
        state.check();
        self.lost = false;
        self.metrics.fallen.set(state.fallen() as i64);
        self.lead = Some(Lead { term, state });
        Ok(())
    }

    /// Publishes what others committed.
    fn take_changes(&mut self) -> Result<(), StoreError> {
        loop {
            if self.lost && self.clock.now() >= self.again {
                self.read_again();
            }
            match self.store.changes() {
                Ok(Some(Changes::Commit(commit))) => self.take_commit(commit)?,
                Ok(Some(Changes::Lost)) => self.lost = true,
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::warn!("what other controllers do is not seen: {error}");
                    return Ok(());
                }
            }
        }
    }

    fn take_commit(&mut self, commit: Vec<(Write, u64)>) -> Result<(), StoreError> {
        let schema = commit.iter().find_map(|(write, _)| write.schema());
        if let Some(found) = schema.filter(|found| *found > SCHEMA) {
            return Err(StoreError::Newer { path: "the store".into(), found, known: SCHEMA });
        }
        match published(commit, &|kind, name| self.view.get(kind, name)) {
            Ok(news) => self.view.publish(news),
            Err(what) => {
                tracing::error!("a record of another controller makes no sense: {what}");
                self.lost = true;
            }
        }
        Ok(())
    }

    fn read_again(&mut self) {
        let read = self.store.follow().and_then(|snapshot| match &self.lead {
            // It knows all of its own changes.
            Some(_) => Ok(None),
            None => State::load(&*snapshot, self.limits, self.clock.now()).map(Some),
        });
        match read {
            Ok(state) => {
                self.lost = false;
                if let Some(state) = state {
                    self.view.reset(&state);
                }
            }
            Err(error) => {
                tracing::warn!("the store cannot be read again: {error}");
                self.again = self.clock.now().plus_millis(PAUSE);
            }
        }
    }

    // -- writing ------------------------------------------------------------------------------

    /// One commit.
    fn turn(&mut self, group: Group) {
        let now = self.clock.now();
        if let Err(problem) = self.recover(now) {
            return self.refuse(group, &problem);
        }
        let Some(Lead { state, .. }) = &mut self.lead else { return };
        let Group { requests, notes, noted } = group;
        let counters = state.counters();
        state.tick(now);
        let answers: Vec<_> =
            requests.iter().map(|(request, _)| state.handle(now, request)).collect();
        let is_empty = state.writes().is_empty() && notes.is_empty();
        let done = match is_empty {
            true => self.check_leads(),
            false => self.commit(notes),
        };
        match done {
            Ok(()) => {
                for reply in noted {
                    drop(reply.send(Ok(())));
                }
                for ((_, reply), answer) in requests.into_iter().zip(answers) {
                    drop(reply.send(answer));
                }
            }
            Err(error) => {
                let problem = match is_empty {
                    true => self.failed(&error, now),
                    false => {
                        tracing::error!("a change is in doubt: {error}");
                        self.failed(&error, now);
                        of_commit(&error)
                    }
                };
                if let Some(Lead { state, .. }) = &mut self.lead {
                    state.undo(counters);
                }
                self.refuse_all(requests, noted, &problem);
            }
        }
    }

    /// Refuses everything but what changes nothing.
    fn refuse(&mut self, group: Group, problem: &Problem) {
        let Group { requests, noted, .. } = group;
        let now = self.clock.now();
        let (dry, rest): (Vec<_>, Vec<_>) =
            requests.into_iter().partition(|(request, _)| request.dry_run);
        for (request, reply) in dry {
            let answer = match &mut self.lead {
                Some(lead) => lead.state.handle(now, &request),
                None => Err(problem.clone()),
            };
            drop(reply.send(answer));
        }
        self.refuse_all(rest, noted, problem);
    }

    fn refuse_all(
        &self,
        requests: Vec<(Box<Request>, Reply)>,
        noted: Vec<oneshot::Sender<Result<(), Problem>>>,
        problem: &Problem,
    ) {
        for reply in noted {
            drop(reply.send(Err(problem.clone())));
        }
        for (_, reply) in requests {
            drop(reply.send(Err(problem.clone())));
        }
    }

    /// The store failed. What clients are told.
    fn failed(&mut self, error: &StoreError, now: Moment) -> Problem {
        if matches!(error, StoreError::Fenced) {
            self.step_down();
            return not_leading(&self.standing.borrow());
        }
        let problem = of_store(error);
        self.trouble = Some((problem.clone(), now.plus_millis(PAUSE)));
        problem
    }

    /// Answers from memory are right only while no other controller can have written.
    fn check_leads(&mut self) -> Result<(), StoreError> {
        match (&self.lead, self.store.standing()) {
            (Some(lead), Standing::Leads { term }) if lead.term == term => Ok(()),
            _ => Err(StoreError::Fenced),
        }
    }

    fn commit(&mut self, notes: Vec<Write>) -> Result<(), StoreError> {
        let Some(Lead { state, .. }) = &mut self.lead else { return Err(StoreError::Fenced) };
        let began = self.clock.running();
        let written = match notes.is_empty() {
            true => self.store.commit(state.writes()),
            false => self.store.commit(&[state.writes(), &notes].concat()),
        };
        self.metrics.committed(self.clock.running().saturating_sub(began), &written);
        written?;
        self.view.publish(state.keep());
        self.metrics.fallen.set(state.fallen() as i64);
        Ok(())
    }

    /// Whether writing may be tried: this process leads, and after a failed commit the store was compared
    /// with the memory, because a commit that failed may have reached the disk.
    fn recover(&mut self, now: Moment) -> Result<(), Problem> {
        if self.lead.is_none() {
            return Err(not_leading(&self.standing.borrow()));
        }
        let Some((problem, again)) = &self.trouble else { return Ok(()) };
        if now < *again {
            return Err(problem.clone());
        }
        // Only the leader's look at the store ends what may still come.
        if let Err(error) = self.check_leads() {
            return Err(self.failed(&error, now));
        }
        let Some(Lead { state, .. }) = &self.lead else { return Ok(()) };
        let read =
            self.store.snapshot().and_then(|snapshot| match state.is_that_of(&*snapshot)? {
                true => Ok(None),
                false => State::load(&*self.store.follow()?, self.limits, now).map(Some),
            });
        match read {
            Ok(None) => {}
            Ok(Some(found)) => {
                tracing::warn!(
                    "a commit that failed is on the disk after all: the store was read again"
                );
                self.view.reset(&found);
                if let Some(Lead { state, .. }) = &mut self.lead {
                    *state = found;
                }
            }
            Err(error) => return Err(self.failed(&error, now)),
        }
        self.trouble = None;
        Ok(())
    }
}
