//! The loop: waits for the first of five things, and passes each to the machine.

mod accounts;
mod adoption;
mod budget;
mod events;
mod external;
mod eyeq;
mod handed;
mod journal;
mod orders;
mod plumbing;
mod population;
mod ports;
mod refused;
mod tags;
mod translation;

pub(crate) use budget::sound_ones as sound_budgets;

use crate::config::Setup;
use crate::follow::Link;
use crate::handed::Stamps;
use crate::keys::KeyFile;
use crate::notify::Notifier;
use crate::server::{Question, Server};
use crate::{client, control, explain, fitness, hoses, overbooked};
use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_core::accounts::Accounts;
use weir_core::host::{
    Call, Direction, HostLoop, Input, Observed, Outcome, ReceiveCount, SendCount, Setting, Wanted,
    Work,
};
use weir_core::mechanism::explain::Facts;
use weir_core::message::Message;
use weir_dataplane::{Counters, Dataplane, PairRate, PortCounters};
use weir_journal::Kept;
use weir_model::agent::VmConfig;
use weir_model::status::{Reply, Request, Top};
use weir_units::{Bytes, HostId, PairId, Rate, Span, Time, VmId};
use weir_wire::{Incarnation, Opened, Session};

/// More datagrams than this wait for the next turn of the loop: rates come first.
const DATAGRAMS_PER_TURN: usize = 256;
/// After messages others wait for so long: the peers of a busy host would wake it thousands of times a second.
const DEAF: Span = Span::from_micros(500);
/// Pairs that the data plane and the machine hold at most.
const MAX_PAIRS: u32 = 4096;
/// Readings in a row that may fail before the agent ends.
const MAX_FAILED_READS: u32 = 200;
/// A guardian that ends is replaced, but not in a loop.
const GUARDIAN_GAP: Span = Span::from_secs(1);

/// Runs the agent until SIGTERM or SIGINT, then restores the host. What happens to its machine is
/// recorded in the folder `journal`, if there is one.
///
/// # Errors
///
/// Bad configuration, a process without the privileges it needs, a host that cannot be set up (it is
/// then as it was), or counters that cannot be read for long: then floors stay in force, and the next
/// agent of this instance takes over.
pub fn run(config: &Path, journal: Option<&Path>) -> Result<()> {
    let setup = Setup::load(config).map_err(fitness::or_unprivileged)?;
    fitness::privileges()?;
    keep_keys_out_of_dumps();
    for warning in overbooked::warnings(&setup).into_iter().chain(hoses::warning(&setup)) {
        tracing::warn!("{}: {warning}", config.display());
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let hang_up = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&hang_up))?;
    let mut driver = Driver::start(config, setup, hang_up, journal)?;
    // An error ends the agent as a crash would: floors stand, and the guardian takes back the rest.
    driver.turn_until(&stop)?;
    driver.close()
}

/// A crash leaves no file with keys in it. Both, for a collector of dumps that the kernel pipes them to
/// asks for the second only.
fn keep_keys_out_of_dumps() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit};
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let limited = rustix::process::setrlimit(Resource::Core, none);
    let marked = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if let Err(e) = limited.and(marked) {
        tracing::warn!("a core dump of the agent could hold keys: {e}");
    }
}

/// Takes back what the VMs of this host borrow, at once: for the service manager to call when the agent
/// has ended, however it did (its guardian may have ended with it). Says how many pairs had borrowed.
///
/// # Errors
///
/// Bad configuration, or whatever the kernel refuses.
pub fn reclaim(config: &Path) -> Result<usize> {
    let file = crate::config::read(config).map_err(fitness::or_unprivileged)?;
    fitness::privileges()?;
    Ok(weir_dataplane::guardian::reclaim(&file.instance, &file.bpffs, &file.run_dir)?)
}

struct Driver {
    /// `agent.toml`.
    config: PathBuf,
    setup: Setup,
    /// VMs of this host whose port is not there.
    gone: BTreeSet<VmId>,
    reloads: population::Reloads,
    /// What was handed over and could not be taken up.
    untaken: Option<(Stamps, ports::Refusal)>,
    plumbing: plumbing::Plumbing,
    /// Translations that are refused, as the log has them.
    untranslated: refused::Refused,
    budgets: budget::Budgets,
    host: Kept,
    changes: events::Changes,
    past: events::Past,
    /// The journal that was asked for could not be begun.
    has_no_journal: bool,
    dataplane: Dataplane,
    session: Session,
    /// The keys that EyeQ's programs have.
    spoken: eyeq::Keys,
    keys: KeyFile,
    /// To the controller, if the host follows one.
    link: Option<Link>,
    /// Set by SIGHUP: all files are to be read again.
    hang_up: Arc<AtomicBool>,
    socket: UdpSocket,
    /// When the last of the messages that had come was taken.
    heard: Time,
    peers: BTreeMap<HostId, SocketAddr>,
    server: Server,
    guardian: Child,
    started: Time,
    renewed: Time,
    counters: Counters,
    sample: Observed,
    unsent: u64,
    failed_writes: u64,
    /// Readings that failed, one after the other.
    failed_reads: u32,
    /// When the guardian was last started.
    guardian_at: Time,
    /// Guardians that ended by themselves.
    guardians_lost: u64,
    notifier: Notifier,
    overbooking: overbooked::Teller,
    usage: tags::Usage,
    accounts: Accounts,
    /// Some tag in force is not the one that was ordered.
    has_untagged: bool,
}

impl Driver {
    fn start(
        config: &Path,
        setup: Setup,
        hang_up: Arc<AtomicBool>,
        journal: Option<&Path>,
    ) -> Result<Self> {
        let file = &setup.file;
        let run_dir = file.run_dir.join(&file.instance);
        std::fs::create_dir_all(&run_dir).with_context(|| {
            format!("run_dir: {} cannot be made; name a directory that can", run_dir.display())
        })?;
        // First: who comes second is told so, not that some address is taken.
        weir_dataplane::refuse_running(&file.instance, &file.bpffs, &file.run_dir)?;
        let (keys, shared) = KeyFile::open(&file.key_file, setup.key_reader())?;
        let socket = control::open(file.listen)?;
        let link = Link::start(&setup)?;
        let peers = population::peers(&setup);
        let mut incarnation = [0; 8];
        getrandom::fill(&mut incarnation)
            .map_err(|e| anyhow::anyhow!("no random incarnation: {e}"))?;
        let incarnation = Incarnation::new(u64::from_ne_bytes(incarnation).max(1))
            .context("an incarnation is not zero")?;
        let others: Vec<HostId> = peers.keys().copied().filter(|h| *h != setup.host.host).collect();
        let mut session = Session::new(setup.host.host, incarnation, shared);
        for host in others {
            session.add_peer(host)?;
        }

        handed::tell(&[], &setup.handed.refused);
        let gone = population::gone_at_start(&setup)?;
        let (dataplane, gone) =
            handed::open(&setup, gone).map_err(|e| fitness::or_unfit(e, &file.bpffs))?;
        let (dataplane, server, guardian) = attend(&setup, dataplane)?;
        if let Some(why) = dataplane.replaced() {
            tracing::warn!("what an earlier agent left was not taken over: {why}");
        } else if dataplane.adopted() {
            tracing::info!("took over what an earlier agent left");
        }
        if let Some(why) = dataplane.replaced_translations() {
            tracing::warn!("translated connections of before are left alone: {why}");
        }
        // Not before: loading programs takes longer than a period, and the first one is when peers say
        // what they hold.
        let now = now();
        let host = HostLoop::new(population::policy(&setup, &gone), now)?.with_heartbeat(now);
        let log = journal.and_then(journal::begin);
        let has_no_journal = journal.is_some() && log.is_none();
        tracing::info!(
            "host {} guards {} VMs on {} at {} with {}",
            file.host,
            file.vms.len(),
            file.uplink.interface,
            file.uplink.rate.0,
            dataplane.shaper()
        );
        let mut driver = Self {
            config: config.to_owned(),
            gone,
            reloads: population::Reloads::default(),
            untaken: None,
            plumbing: plumbing::Plumbing::default(),
            untranslated: refused::Refused::default(),
            budgets: budget::Budgets::default(),
            host: Kept::new(host, log),
            changes: events::Changes::default(),
            past: events::Past::default(),
            has_no_journal,
            dataplane,
            session,
            spoken: eyeq::Keys::default(),
            keys,
            link,
            hang_up,
            socket,
            heard: now,
            peers,
            server,
            guardian,
            started: now,
            renewed: now,
            counters: Counters::default(),
            sample: Observed::default(),
            unsent: 0,
            failed_writes: 0,
            failed_reads: 0,
            guardian_at: now,
            guardians_lost: 0,
            notifier: Notifier::new(now),
            overbooking: overbooked::Teller::default(),
            usage: tags::Usage::default(),
            accounts: Accounts::default(),
            has_untagged: false,
            setup,
        };
        if driver.setup.observes() {
            tracing::warn!("{}", population::OBSERVING);
        }
        driver.tell_of_keys();
        driver.renew(now);
        driver.tend_feedback(now);
        driver.tell_of_translations_here();
        driver.take_up_budgets(now);
        driver.adopt_tags();
        driver.adopt(now);
        driver.carry_out(now);
        driver.notifier.ready(&driver.status());
        Ok(driver)
    }

    fn turn_until(&mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let (events, messages, questions) = self.wait()?;
            let now = now();
            if self.hang_up.swap(false, Ordering::Relaxed) {
                drop(self.reload(now));
                // Afterwards: the file's lines name hosts of the directory.
                self.look_at_keys(true);
            }
            if self.link.as_ref().is_some_and(Link::has_news) {
                self.take_orders(now);
            }
            if events {
                self.take_events(now);
            }
            if messages {
                self.take_messages(now);
            }
            if let Some((wanted, why)) = self.host.due(now) {
                tracing::trace!("the machine is woken: {why}");
                self.read_counters(now, wanted);
                ensure!(
                    self.failed_reads < MAX_FAILED_READS,
                    "counters could not be read {MAX_FAILED_READS} times in a row; floors stay in force"
                );
                self.host.handle(now, Call::Input(Input::Tick));
            }
            self.carry_out(now);
            if self.next_count().is_some_and(|at| at <= now) {
                self.tend_windows(now);
            }
            if questions {
                self.answer(now);
            }
            // Controllers may ask for more reports than there are beats.
            if !self.host.is_beat_due(now) && self.next_report().is_some_and(|at| at <= now) {
                self.count_use(now);
                self.tell_use(now);
            }
            if self.host.is_beat_due(now) {
                // Also a first sight that got lost in the ring shows here.
                self.count_use(now);
                self.tell_use(now);
                self.close_accounts(now);
                self.tell_accounts(now);
                self.renew(now);
                self.look_at_keys(false);
                self.tend_feedback(now);
                self.host.handle(now, Call::Beat);
                self.tell_of_journal();
                self.look_at_plumbing(now);
                self.look_at_handed(now);
                self.look_at_ports(now);
                self.dataplane.tend_translations(now.as_nanos());
                self.tell_of_translations_here();
                self.tell_of_budgets();
                // What the heartbeat wants is done now: greetings, and what is tried again.
                self.carry_out(now);
            }
            if self.notifier.due().is_some_and(|due| due <= now) {
                let status = self.status();
                self.notifier.beat(now, &status);
            }
        }
        tracing::info!("asked to stop");
        Ok(())
    }

    /// Sleeps until something happens; says what.
    fn wait(&self) -> Result<(bool, bool, bool)> {
        let next = self.host.next_deadline().map(|(at, _)| at);
        let next = next.into_iter().chain(self.next_count()).chain(self.notifier.due());
        let next = next.chain(self.next_report());
        let hears_at = self.heard + DEAF;
        let is_deaf = now() < hears_at;
        let next = next.chain(is_deaf.then_some(hears_at));
        let until = next.min().expect("there is a heartbeat");
        let nanos = until.since(now()).as_nanos();
        let timeout = Timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as i64,
        };
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.dataplane.event_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.server.bell(), PollFlags::IN),
        ];
        if !is_deaf {
            fds.push(PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN));
        }
        let link =
            self.link.as_ref().map(|link| PollFd::from_borrowed_fd(link.bell(), PollFlags::IN));
        fds.extend(link);
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e).context("poll"),
        }
        let ready = |i: usize| !fds[i].revents().is_empty();
        let messages = if is_deaf { now() >= hears_at } else { ready(2) };
        Ok((ready(0), messages, ready(1)))
    }

    fn take_events(&mut self, now: Time) {
        for event in self.dataplane.take_events() {
            let direction = match event.direction {
                weir_dataplane::Direction::Tx => Direction::Send,
                weir_dataplane::Direction::Rx => Direction::Receive,
            };
            self.host.handle(now, Call::Input(Input::Seen(event.pair, direction)));
        }
        self.take_limits(now);
    }

    fn take_messages(&mut self, now: Time) {
        let mut octets = [0; 2048];
        for taken in 0..DATAGRAMS_PER_TURN {
            let Ok((len, _)) = self.socket.recv_from(&mut octets) else {
                if taken > 0 {
                    self.heard = now;
                }
                return;
            };
            match self.session.open(&octets[..len]) {
                // The epoch is a controller's: messages are obeyed whatever it is.
                Ok(Opened::Believed { from, messages, greet, epoch: _ }) => {
                    if greet {
                        // Before it is offered anything anew: see `Input::Found`.
                        self.host.handle(now, Call::Input(Input::PeerRestarted(from)));
                        self.give_keys(from);
                    }
                    for message in messages {
                        self.host.handle(now, Call::Input(Input::Message(from, message)));
                    }
                    if self.host.machine().eyeq().is_some() {
                        self.remind(from);
                    }
                }
                Ok(Opened::Greet(from)) => self.host.handle(now, Call::Doubted(from)),
                Err(rejected) => tracing::debug!("dropped a control message: {rejected}"),
            }
        }
    }

    /// Takes up other keys if the key file has changed; peers stay believed.
    fn look_at_keys(&mut self, asked: bool) {
        match self.keys.look(asked, self.setup.key_reader()) {
            Ok(None) => {}
            Ok(Some(keys)) => {
                self.session.set_keys(keys);
                self.tell_of_keys();
                self.give_all_keys();
            }
            Err(e) => tracing::error!("{e:#}"),
        }
    }

    /// Logs which keys are in use, and what is wrong with them.
    fn tell_of_keys(&self) {
        let keys = self.session.keys();
        let ids: Vec<String> = keys.iter().map(|key| key.id.0.to_string()).collect();
        if !ids.is_empty() {
            tracing::info!("keys accepted: {}; the first signs", ids.join(", "));
        }
        if let Some(shared) = keys.iter().find(|key| key.shared) {
            tracing::warn!(
                "all hosts have key {}: whoever takes over one of them can speak for every other; \
                 make a file for each host with `weir keys make`",
                shared.id.0
            );
        }
        let without = self.without_keys();
        if !without.is_empty() {
            tracing::warn!(
                "{}: no key for {}: floors are not agreed with these hosts; make new files with \
                 `weir keys make`",
                self.setup.file.key_file.display(),
                without.join(", ")
            );
        }
    }

    /// The names of peers that share no key with this host.
    fn without_keys(&self) -> Vec<String> {
        let name = |host| self.setup.hosts.get(&host).map(|(name, _)| name.clone());
        self.session.without_keys().filter_map(name).collect()
    }

    /// Reads what is wanted and passes it on.
    fn read_counters(&mut self, now: Time, wanted: Wanted) {
        self.sample.clear();
        if let Err(e) = self.read_tables(now, wanted) {
            self.failed_reads += 1;
            if self.failed_reads == 1 {
                tracing::error!("counters could not be read: {e}");
            }
            return;
        }
        self.failed_reads = 0;
        self.accounts.look(now, &self.sample.send);
        self.host.handle(now, Call::Input(Input::Observed(&self.sample)));
    }

    fn read_tables(&mut self, now: Time, wanted: Wanted) -> Result<(), weir_dataplane::Error> {
        if wanted.send {
            self.dataplane.read_sending(now.as_nanos(), &mut self.counters)?;
            self.sample.send.extend(self.counters.tx.iter().map(|(pair, c)| {
                let (numbered, unnumbered) = (c.numbered.get(), c.unnumbered.get());
                let segments = c.left;
                let (octets, acks) = (c.octets.get(), c.acks.get());
                let (waiting, waiting_acks) = (c.waiting.map(Bytes::get), c.waiting_acks.get());
                let count = SendCount {
                    octets,
                    acks,
                    numbered,
                    unnumbered,
                    segments,
                    waiting,
                    waiting_acks,
                };
                (*pair, count)
            }));
        }
        if wanted.receive {
            self.dataplane.read_receiving(now.as_nanos(), &mut self.counters)?;
            self.sample.receive.extend(self.counters.rx.iter().map(|(pair, c)| {
                let (octets, segments) = (c.octets.get(), c.segments);
                let numbered = Some(c.numbered);
                (*pair, ReceiveCount { octets, segments, numbered, lost: c.lost, marked: c.ce })
            }));
        }
        self.dataplane.read_times(&mut self.sample.timed);
        self.dataplane.read_ports(&mut self.counters);
        self.read_feedback()
    }

    /// Does what the loop wants now, and tells it what could not be done.
    fn carry_out(&mut self, now: Time) {
        let work = self.host.work(now);
        let writes = work.writes();
        let Work { forgotten, pairs, tags, meters, windows, .. } = work;
        let (offers, rooms, brakes) = (work.offers, work.rooms, work.brakes);
        self.tell_of_events(now, &work.events);
        work.greetings.into_iter().for_each(|peer| self.greet(peer));
        let mut outcome = Outcome::default();
        // First what is over: its floor is what others are raised by.
        if !forgotten.is_empty()
            && let Err(e) = self.dataplane.forget(&forgotten.iter().map(end).collect::<Vec<_>>())
        {
            tracing::error!("idle pairs were not removed: {e}");
            outcome.kept = forgotten;
        }
        self.write_rates(&pairs, &mut outcome);
        self.write_tags(&tags, &mut outcome);
        for (vm, brake) in brakes {
            if let Err(error) = self.dataplane.brake_strays(vm, brake) {
                tracing::error!(
                    "{vm}: the rate of its pairs without a class was not written: {error}"
                );
                outcome.unbraked.push(vm);
            }
        }
        if writes {
            self.host.handle(now, Call::Written(outcome));
        }
        self.write_shares(meters);
        for (pair, offer) in offers {
            // The next offer is written, too: until then a guest sees too many marks or too few.
            if let Err(error) = self.dataplane.spare_marks(pair, offer) {
                tracing::debug!("{pair}: its offer was not written: {error}");
            }
        }
        for (pair, room) in rooms {
            // It has a queue as others have, until its floor changes by much.
            if let Err(error) = self.dataplane.set_room(pair, room) {
                tracing::debug!("{pair}: the room of its queue was not written: {error}");
            }
        }
        if !windows.is_empty() {
            self.dataplane.share_windows(windows);
        }
        if let Some(said) = self.overbooking.look(now, self.dataplane.overbooked()) {
            tracing::warn!("{said}");
        }
        self.post(work.messages);
    }

    /// One batch; if the kernel refuses it, pair by pair, so that one pair's trouble is its own.
    fn write_rates(&mut self, changed: &[(PairId, Setting)], outcome: &mut Outcome) {
        if changed.is_empty() {
            return;
        }
        let rate = |(pair, s): &(PairId, Setting)| PairRate {
            pair: *pair,
            floor: s.floor,
            ceiling: s.ceiling,
        };
        let mut left: Vec<PairRate> = changed.iter().map(rate).collect();
        let error = match self.dataplane.set(&left) {
            Ok(left_out) => {
                outcome.classless = left_out;
                return;
            }
            Err(error) => error,
        };
        self.failed_writes += 1;
        // Twice: what the first pass lowers makes room for what the second raises.
        for _ in 0..2 {
            left.retain(|rate| self.dataplane.set(std::slice::from_ref(rate)).is_err());
        }
        // A pair that finds no class stays in its VM's default queue: no rate of it is wrong.
        let left = left.iter().map(|rate| rate.pair);
        (outcome.unwritten, outcome.classless) =
            left.partition(|pair| self.dataplane.has_class(*pair));
        if !outcome.unwritten.is_empty() && !self.host.has_unwritten() {
            tracing::error!("{} rates were not written: {error}", outcome.unwritten.len());
        }
    }

    fn post(&mut self, messages: Vec<(HostId, Message)>) {
        let mut datagrams = Vec::new();
        for batch in messages.chunk_by(|a, b| a.0 == b.0) {
            let peer = batch[0].0;
            let messages: Vec<_> = batch.iter().map(|(_, m)| *m).collect();
            match self.session.seal(peer, &messages, &mut datagrams) {
                Ok(()) => self.send(peer, &mut datagrams),
                // Said when the keys were read, and shown in `weir top`.
                Err(weir_wire::Untold::NoKey(_)) => self.unsent += 1,
                Err(e) => tracing::error!("a message to nobody: {e}"),
            }
        }
    }

    /// A datagram without messages, by which a peer learns of this life.
    fn greet(&mut self, peer: HostId) {
        let mut datagrams = Vec::new();
        if self.session.greet(peer, &mut datagrams).is_ok() {
            self.send(peer, &mut datagrams);
        }
    }

    fn send(&mut self, peer: HostId, datagrams: &mut Vec<Vec<u8>>) {
        let Some(address) = self.peers.get(&peer) else { return };
        for datagram in datagrams.drain(..) {
            if self.socket.send_to(&datagram, address).is_err() {
                self.unsent += 1;
            }
        }
    }

    /// Renews the lease on what is borrowed, unless what should have been lowered is not.
    fn renew(&mut self, now: Time) {
        if self.host.may_renew(now) {
            match self.dataplane.renew_lease(now.as_nanos()) {
                Ok(false) => self.renewed = now,
                Ok(true) => {
                    self.renewed = now;
                    tracing::warn!("the guardian had taken back what was borrowed");
                    self.host.handle(now, Call::Rewrite);
                }
                Err(e) => tracing::error!("the queues could not be read: {e}"),
            }
        }
        if matches!(self.guardian.try_wait(), Ok(Some(_)))
            && now.since(self.guardian_at) > GUARDIAN_GAP
        {
            tracing::error!("the guardian ended; starting another");
            self.guardian_at = now;
            self.guardians_lost += 1;
            match spawn_guardian(&self.setup) {
                Ok(guardian) => self.guardian = guardian,
                Err(e) => tracing::error!("no guardian: {e:#}"),
            }
        }
    }

    // -- questions ----------------------------------------------------------------------------

    fn answer(&mut self, now: Time) {
        let questions: Vec<Question> = self.server.questions().collect();
        for question in questions {
            let reply = match &question.request {
                Request::Top => {
                    self.count_use(now);
                    Reply::Top(Box::new(self.top(now)))
                }
                Request::Events { after } => Reply::Events(self.told_events(now, *after)),
                Request::Reload => self.reload(now),
                Request::Explain { from, to } => self.explain(now, from, to),
            };
            question.answer(reply);
        }
    }

    fn explain(&mut self, now: Time, from: &str, to: &str) -> Reply {
        let names = &self.setup.names;
        let (Some(src), Some(dst)) = (names.id(from), names.id(to)) else {
            let unknown = if names.id(from).is_none() { from } else { to };
            return Reply::Error { message: format!("no VM `{unknown}` in the directory") };
        };
        if let Some(message) = self.why_unguarded(&[src, dst]) {
            return Reply::Error { message };
        }
        let pair = PairId::new(src, dst);
        let levels = self.dataplane.levels().unwrap_or_default();
        let level = levels.into_iter().find(|level| level.pair == pair);
        let facts = Facts {
            now,
            cap: self.setup.file.vms.iter().find(|vm| vm.name == from).and_then(cap),
            kernel: level.map(|l| Setting { floor: l.floor, ceiling: l.ceiling }),
            renewed: self.renewed,
            lease: Span::from(weir_dataplane::guardian::LEASE),
            overbooked: self.dataplane.overbooked(),
            changed: self.changes.last(pair),
            next: self.host.machine().next_deadline(),
        };
        match self.host.pair(now, pair) {
            Some(view) => {
                let mut told = explain::explain(&view, names, &facts);
                let observing = "observing: nothing is enforced, this is what would be";
                told.reasons.extend(self.setup.observes().then(|| observing.to_owned()));
                told.reasons.extend(self.explain_queue(src, dst));
                told.reasons.extend(self.why_unenforced(&[src, dst]));
                told.reasons.extend(self.explain_translations(&[src, dst]));
                told.reasons.extend(self.explain_budgets(&[src, dst]));
                Reply::Explain(told)
            }
            None => Reply::Error {
                message: format!(
                    "{from} → {to} is not active on host {}: nothing was sent for a while, or \
                     neither VM is here",
                    self.setup.file.host
                ),
            },
        }
    }

    fn top(&mut self, now: Time) -> Top {
        let counters = self.all_counters();
        let externals = self.told_externals();
        let names = &self.setup.names;
        let pairs = self.host.pairs(now);
        let pairs = pairs.iter().map(|view| explain::row(view, names)).collect();
        let mechanism = &self.setup.file.mechanism;
        Top {
            host: self.setup.file.host.clone(),
            mechanism: format!("{} ({})", mechanism.name, mechanism.preset()),
            observing: self.setup.observes(),
            up_s: now.since(self.started).as_secs_f64(),
            pairs,
            counters,
            keys: self.session.keys().into_iter().map(key).collect(),
            keyless: self.without_keys(),
            cpu_s: cpu_seconds(),
            overbooked: self.dataplane.overbooked().map(overbooked::of),
            gone: self.told_gone(),
            externals,
            unenforced: self.told_unenforced(),
            guardian_down: !matches!(self.guardian.try_wait(), Ok(None)),
            renamed: self.told_renamed(),
            meters: self.meters(),
            translations: self.told_translations(),
            budgets: self.told_budgets(),
            tenants: self.told_tenants(),
            floors: self.kept_floors(),
            broken: self.broken_floors(now),
        }
    }

    fn all_counters(&mut self) -> Vec<(String, u64)> {
        let late_drops = self.dataplane.late_drops().unwrap_or_else(|e| {
            tracing::error!("the uplink's queue could not be read: {e}");
            0
        });
        let host = self.dataplane.host_traffic().ok().flatten();
        let own = self.machine_counters().into_iter().chain(self.feedback_counters());
        let mut all: Vec<(String, u64)> = own.map(|(name, n)| (name.to_owned(), n)).collect();
        all.extend([
            ("agent.outbox_dropped".to_owned(), self.host.dropped()),
            ("agent.unsent_datagrams".to_owned(), self.unsent),
            ("agent.failed_writes".to_owned(), self.failed_writes),
            ("agent.control_queue_full".to_owned(), control::dropped(&self.socket).unwrap_or(0)),
            ("agent.clients_turned_away".to_owned(), self.server.turned_away()),
            ("agent.key_reloads".to_owned(), self.keys.reloads),
            ("agent.key_failures".to_owned(), self.keys.failures),
            ("agent.reloads".to_owned(), self.reloads.taken),
            ("agent.reload_failures".to_owned(), self.reloads.refused),
            ("agent.ports_lost".to_owned(), self.reloads.ports_lost),
            ("agent.plumbing_mended".to_owned(), self.plumbing.mended),
            ("agent.plumbing_unseen".to_owned(), self.plumbing.blind),
            ("agent.ports_renamed".to_owned(), self.plumbing.renames),
            ("agent.pairs_without_class".to_owned(), self.host.classless() as u64),
            ("agent.vms_with_braked_strays".to_owned(), self.host.braked() as u64),
            ("agent.guardians_lost".to_owned(), self.guardians_lost),
            ("agent.vms_unenforced".to_owned(), self.plumbing.unenforced() as u64),
            ("shaper.late_drops".to_owned(), late_drops),
            (
                "pairs.unnumbered_packets".to_owned(),
                self.counters.rx.iter().map(|(_, rx)| rx.strange).sum(),
            ),
        ]);
        all.extend(self.journal_counters());
        all.extend(self.link.iter().flat_map(Link::counters));
        if let Some(host) = host {
            all.push(("host.floor_bps".into(), host.floor.as_bps()));
            all.push(("host.sent_octets".into(), host.octets.get()));
            all.push(("host.dropped_segments".into(), host.dropped));
        }
        for (name, value) in self.session.counters().rows() {
            all.push((format!("wire.{name}"), value));
        }
        let wire = self.session.counters();
        all.push(("wire.late".into(), wire.late));
        all.push(("wire.lost".into(), wire.lost()));
        all.push(("wire.rejected".into(), wire.rejected()));
        for (vm, port) in &self.counters.ports {
            for (name, value) in port_rows(port) {
                all.push((format!("port.{}.{name}", self.setup.names.name(*vm)), value));
            }
        }
        all
    }

    /// One line for the service manager.
    fn status(&self) -> String {
        let (pairs, vms) =
            (self.counters.tx.len() + self.counters.rx.len(), self.setup.file.vms.len());
        let over = self.dataplane.overbooked().map_or_else(String::new, |over| {
            format!("; overbooked: floors are scaled to {:.1} %", over.factor() * 100.0)
        });
        let gone = match self.gone.len() {
            0 => String::new(),
            n => format!("; ports of {n} VMs are gone"),
        };
        let unenforced = match self.plumbing.unenforced() {
            0 => String::new(),
            n => format!("; {n} VMs are UNENFORCED"),
        };
        let verb = if self.setup.observes() { "observes" } else { "guards" };
        let vms = vms - self.gone.len().min(vms);
        let alone = self.untranslated.status("translations");
        let unbounded = self.budgets.refused.status("window budgets");
        format!(
            "{verb} {vms} VMs, {pairs} ends of pairs are active{over}{gone}{unenforced}{alone}{unbounded}"
        )
    }

    fn close(mut self) -> Result<()> {
        self.notifier.stopping();
        // The guardian sees the lease end cleanly and leaves by itself; if not, it is ended.
        let result = self.dataplane.close();
        end_guardian(&mut self.guardian);
        result.map_err(Into::into)
    }
}

/// What stands beside the data plane; if it cannot be had, a host that was set up is restored, and one
/// that was taken over stays as it was.
fn attend(setup: &Setup, dataplane: Dataplane) -> Result<(Dataplane, Server, Child)> {
    let file = &setup.file;
    let path = client::socket_path(&file.run_dir, &file.instance);
    let attended = Server::listen(&path).and_then(|server| Ok((server, spawn_guardian(setup)?)));
    match attended {
        Ok((server, guardian)) => Ok((dataplane, server, guardian)),
        Err(e) if dataplane.adopted() => Err(e),
        Err(e) => match dataplane.close() {
            Ok(()) => Err(e),
            Err(also) => Err(e.context(format!("and the host could not be restored: {also}"))),
        },
    }
}

fn cap(vm: &VmConfig) -> Option<Rate> {
    vm.cap_out.map(|cap| cap.0)
}

fn end_guardian(guardian: &mut Child) {
    for _ in 0..20 {
        if matches!(guardian.try_wait(), Ok(Some(_))) {
            return;
        }
        rest();
    }
    drop(guardian.kill());
    drop(guardian.wait());
}

/// A key, as the status tells it.
fn key(key: weir_wire::KeyUse) -> weir_model::status::Key {
    let weir_wire::KeyUse { id, shared, signs, accepted, seen } = key;
    weir_model::status::Key { id: id.0, shared, signs, accepted, seen }
}

/// A pair's end, as the data plane calls it.
fn end((pair, direction): &(PairId, Direction)) -> (PairId, weir_dataplane::Direction) {
    let direction = match direction {
        Direction::Send => weir_dataplane::Direction::Tx,
        Direction::Receive => weir_dataplane::Direction::Rx,
    };
    (*pair, direction)
}

/// What a port saw that should not have been there, or found no room.
fn port_rows(c: &PortCounters) -> [(&'static str, u64); 18] {
    [
        ("tx_octets", c.tx_octets.get()),
        ("rx_octets", c.rx_octets.get()),
        ("spoofed", c.spoofed),
        ("spoofed_mac", c.spoofed_mac),
        ("control_denied", c.control_denied),
        ("stray", c.stray),
        ("unpaired", c.unpaired),
        ("rogue", c.rogue),
        ("misdirected", c.misdirected),
        ("external_tx", c.external_tx.get()),
        ("external_rx", c.external_rx.get()),
        ("unleased", c.unleased),
        ("malformed", c.malformed),
        ("unclassified", c.unclassified),
        ("foreign", c.foreign),
        ("tx_full", c.tx_full),
        ("rx_full", c.rx_full),
        ("events_lost", c.events_lost),
    ]
}

/// The guardian is a process of its own, so that it outlives the agent.
fn spawn_guardian(setup: &Setup) -> Result<Child> {
    let file = &setup.file;
    let name = std::env::args_os().next().unwrap_or_else(|| "weir".into());
    // Not by its path: the file there may be another by now, or none.
    Command::new("/proc/self/exe")
        .arg0(name)
        .arg("guardian")
        .args(["--instance", &file.instance])
        .arg("--bpffs")
        .arg(&file.bpffs)
        .arg("--run-dir")
        .arg(&file.run_dir)
        // The service manager listens to the agent, not to whom it starts.
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        .stdin(Stdio::null())
        .spawn()
        .context("the guardian could not be started")
}

#[expect(clippy::disallowed_methods, reason = "the driver's only wait outside `poll`")]
fn rest() {
    std::thread::sleep(std::time::Duration::from_millis(50));
}

/// The driver's clock: monotonic, nanoseconds since boot; the guardian reads the same.
pub(crate) fn now() -> Time {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Time::from_nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// CPU time of the driver itself.
fn thread_cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn cpu_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
