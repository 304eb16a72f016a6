//! The one thread that changes anything: requests → state → store → readers.
//!
//! Problem   A sync of the disk costs more than a request. A disk that is full must not take the answers
//!           to readers with it, and must not leave the memory ahead of the disk.
//! Approach  Requests wait in a bounded queue. The thread takes what is there, handles it, writes all
//!           records in one commit, publishes, and only then answers. After a failed commit all of it is
//!           taken back; before the next attempt the store is compared with the memory.
//! Promises  What was answered is on the disk. What readers see is on the disk.

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::state::{Answer, Limits, Request, State};
use crate::store::{Snapshot, Store, StoreError, Write};
use crate::view::View;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
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

enum Job {
    Request(Box<Request>, Reply),
    Snapshot(oneshot::Sender<Result<Box<dyn Snapshot>, StoreError>>),
    Look(Box<dyn FnOnce(&State) + Send>),
    Note(Vec<Write>, oneshot::Sender<Result<(), Problem>>),
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
}

/// The thread.
pub struct Running {
    jobs: SyncSender<Job>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Ends the thread after the requests that wait.
    pub fn stop(self) {
        // A thread that is gone needs no message.
        drop(self.jobs.send(Job::Stop));
        if self.thread.join().is_err() {
            tracing::error!("the writing thread panicked");
        }
    }
}

/// Reads the store, publishes it, and starts the thread.
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
    let state = State::load(&*store.snapshot()?, limits, clock.now())?;
    state.check();
    let view = Arc::new(View::new(&state, history));
    let (jobs, inbox) = sync_channel(QUEUE);
    let engine = Engine { jobs: jobs.clone(), metrics: Arc::clone(&metrics) };
    metrics.fallen.set(state.fallen() as i64);
    let writer =
        Writer { state, store, limits, clock, metrics, view: Arc::clone(&view), trouble: None };
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
        let (reply, answer) = oneshot::channel();
        self.send(Job::Snapshot(reply))?;
        let snapshot = answer.await.unwrap_or(Err(StoreError::Fenced));
        snapshot.map_err(|error| of_store(&error))
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
        let (reply, answer) = oneshot::channel();
        // If the reply cannot be sent, the request was given up.
        self.send(Job::Look(Box::new(move |state| drop(reply.send(look(state))))))?;
        answer.await.map_err(|_| stopping())
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

fn stopping() -> Problem {
    Problem::new(503, "Stopping", "request", "the controller is ending: try again in a moment")
}

/// What a client is told about the store.
pub(crate) fn of_store(error: &StoreError) -> Problem {
    let status = if matches!(error, StoreError::Full { .. }) { 507 } else { 503 };
    let reason = if status == 507 { "DiskFull" } else { "StoreFailed" };
    Problem::new(status, reason, "request", error.to_string())
}

struct Writer {
    state: State,
    store: Box<dyn Store>,
    limits: Limits,
    clock: Clock,
    metrics: Arc<Metrics>,
    view: Arc<View>,
    /// The store failed: what clients are told, and when the next attempt is due.
    trouble: Option<(Problem, Moment)>,
}

impl Writer {
    fn run(mut self, inbox: Receiver<Job>) {
        loop {
            let wait = self.state.next_deadline().map_or(IDLE, |at| self.clock.until(at).min(IDLE));
            // With a store that fails, what is due stays due: no busy loop.
            let wait =
                if self.trouble.is_some() { wait.max(Duration::from_millis(PAUSE)) } else { wait };
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
                return;
            }
        }
    }

    /// Answers what needs no write at once. True means that the thread has to end.
    fn sort(&mut self, job: Job, group: &mut Group) -> bool {
        match job {
            Job::Request(request, reply) => group.requests.push((request, reply)),
            Job::Note(writes, reply) => {
                group.notes.extend(writes);
                group.noted.push(reply);
            }
            Job::Look(look) => look(&self.state),
            // If the reply cannot be sent, the request was given up.
            Job::Snapshot(reply) => drop(reply.send(self.store.snapshot())),
            Job::Stop => return true,
        }
        false
    }

    /// One commit.
    fn turn(&mut self, group: Group) {
        let Group { requests: group, notes, noted } = group;
        let now = self.clock.now();
        if let Err(problem) = self.recover(now) {
            for reply in noted {
                drop(reply.send(Err(problem.clone())));
            }
            for (request, reply) in group {
                let answer = match request.dry_run {
                    true => self.state.handle(now, &request),
                    false => Err(problem.clone()),
                };
                drop(reply.send(answer));
            }
            return;
        }
        let counters = self.state.counters();
        self.state.tick(now);
        let answers: Vec<_> =
            group.iter().map(|(request, _)| self.state.handle(now, request)).collect();
        match self.commit(notes) {
            Ok(()) => {
                for reply in noted {
                    drop(reply.send(Ok(())));
                }
                for ((_, reply), answer) in group.into_iter().zip(answers) {
                    drop(reply.send(answer));
                }
            }
            Err(error) => {
                tracing::error!("nothing was changed: {error}");
                self.state.undo(counters);
                let problem = of_store(&error);
                for reply in noted {
                    drop(reply.send(Err(problem.clone())));
                }
                for (_, reply) in group {
                    drop(reply.send(Err(problem.clone())));
                }
                self.trouble = Some((problem, now.plus_millis(PAUSE)));
            }
        }
    }

    fn commit(&mut self, notes: Vec<Write>) -> Result<(), StoreError> {
        if self.state.writes().is_empty() && notes.is_empty() {
            return Ok(());
        }
        let began = self.clock.running();
        let written = match notes.is_empty() {
            true => self.store.commit(self.state.writes()),
            false => self.store.commit(&[self.state.writes(), &notes].concat()),
        };
        self.metrics.committed(self.clock.running().saturating_sub(began), &written);
        written?;
        self.view.publish(self.state.keep());
        self.metrics.fallen.set(self.state.fallen() as i64);
        Ok(())
    }

    /// After a failed commit: whether writing may be tried again. The store is compared with the memory
    /// first, because a commit that failed may have reached the disk.
    fn recover(&mut self, now: Moment) -> Result<(), Problem> {
        let Some((problem, again)) = &self.trouble else { return Ok(()) };
        if now < *again {
            return Err(problem.clone());
        }
        let read = self.store.snapshot().and_then(|snapshot| {
            let same = self.state.is_that_of(&*snapshot)?;
            match same {
                true => Ok(None),
                false => State::load(&*snapshot, self.limits, now).map(Some),
            }
        });
        match read {
            Ok(None) => {}
            Ok(Some(state)) => {
                tracing::warn!(
                    "a commit that failed is on the disk after all: the store was read again"
                );
                self.state = state;
                self.view.reset(&self.state);
            }
            Err(error) => {
                let problem = of_store(&error);
                self.trouble = Some((problem.clone(), now.plus_millis(PAUSE)));
                return Err(problem);
            }
        }
        self.trouble = None;
        Ok(())
    }
}
