//! Requests and answers, short flows, shuffles.
//!
//! Problem   Hundreds of short connections a second between hundreds of VMs, each timed from the
//!           moment at which it should have begun.
//! Approach  A thread of its own, so that bulk traffic cannot make a clock late, holds both ends of
//!           every connection. The client's address at a listener identifies the connection, so the
//!           stream needs no header with its length. Sockets are opened when they are needed, in
//!           the VM's namespace. A timer is set to the next start.
//! Promises  A time counts from the intended start, also if the request had to wait for a
//!           connection. Otherwise a slow network would be asked less often, and look fast. The
//!           numbers of connections and of waiting requests are bounded. What is not done at the
//!           end is counted.
//! Not here  When things start and how large they are: see `weir_model::scenario`.
//! Source    Open and closed loops: Schroeder, Wierman, Harchol-Balter (NSDI'06).

mod connection;
mod entry;

use super::Tally;
use crate::Error;
use connection::{Connection, Event, Side};
use entry::{Entry, Next};
use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, setns};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_model::scenario::{Scenario, Traffic, TrafficKind, open_loop};
use weir_units::Span;

/// One `recv` takes at most this.
const TAKEN: usize = 1 << 20;
/// One `send` offers at most this.
const OFFERED: usize = 32 * 1024;
/// The timer's mark in epoll.
const TIMER: u64 = u64::MAX;
/// Marks of listeners begin here; those of connections are 2 × slot, and one more at the server.
const LISTENERS: u64 = 1 << 40;
/// Closing resets the connection: an orderly close would keep ports and namespaces for a minute.
const RESET: libc::linger = libc::linger { l_onoff: 1, l_linger: 0 };

/// Sockets that are opened before anything is played.
#[derive(Default)]
pub(crate) struct Opened {
    /// Traffic entry, its listener, and the listener's address.
    pub(crate) listeners: Vec<(usize, TcpListener, SocketAddr)>,
    /// The namespace of each VM that will connect.
    pub(crate) namespaces: BTreeMap<usize, File>,
}

impl Opened {
    /// Whether there is nothing to play.
    pub(crate) fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }
}

/// Whether this module plays the traffic.
pub(crate) fn plays(kind: &TrafficKind) -> bool {
    matches!(kind, TrafficKind::Request(_) | TrafficKind::Flows(_) | TrafficKind::Shuffle { .. })
}

/// Descriptors that the entries played here may need at a time.
pub(crate) fn descriptors(traffic: &[Traffic]) -> usize {
    let open_loop = open_loop(traffic);
    let played = traffic.iter().filter(|t| plays(&t.kind));
    played.map(|t| 2 * entry::bound(&t.kind).unwrap_or(open_loop) + 1).sum()
}

/// State of the playing thread.
pub(crate) struct Exchanges {
    origin: Instant,
    tally: Arc<Tally>,
    epoll: Epoll,
    timer: TimerFd,
    listeners: Vec<TcpListener>,
    namespaces: BTreeMap<usize, File>,
    /// The VM in whose namespace the thread is.
    inside: Option<usize>,
    entries: Vec<Entry>,
    /// Times at which something begins or ends, with their entries.
    agenda: BinaryHeap<Reverse<(Span, usize)>>,
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Connections that wait to be accepted, by entry and client address. The kernel gives one
    /// address to several connections at a time if they go to different destinations.
    expected: BTreeMap<(usize, SocketAddr), usize>,
}

impl Exchanges {
    /// Registers the listeners; everything else begins when its time comes.
    pub(crate) fn new(
        scenario: &Scenario,
        opened: Opened,
        tally: Arc<Tally>,
        origin: Instant,
    ) -> Result<Self, Error> {
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::kernel("make an epoll"))?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let readable = |mark| EpollEvent::new(EpollFlags::EPOLLIN, mark);
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)
            .and_then(|timer| epoll.add(&timer, readable(TIMER)).map(|()| timer))
            .map_err(Error::kernel("make a timer"))?;
        let mut exchanges = Self {
            origin,
            tally,
            epoll,
            timer,
            listeners: Vec::new(),
            namespaces: opened.namespaces,
            inside: None,
            entries: Vec::new(),
            agenda: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            expected: BTreeMap::new(),
        };
        let open_loop = open_loop(&scenario.traffic);
        for (number, (index, listener, to)) in opened.listeners.into_iter().enumerate() {
            exchanges
                .epoll
                .add(listener.as_fd(), readable(LISTENERS + number as u64))
                .map_err(Error::kernel("watch a listener"))?;
            exchanges.listeners.push(listener);
            let mut entry = Entry::new(scenario, index, to, open_loop);
            exchanges.agenda.push(Reverse((entry.when().min(entry.stop), number)));
            exchanges.entries.push(entry);
        }
        Ok(exchanges)
    }

    /// Plays until told to stop.
    pub(crate) fn run(&mut self) {
        let mut buffer = vec![0; TAKEN];
        let zeros = vec![0; OFFERED];
        let mut events = vec![EpollEvent::empty(); 512];
        while !self.tally.stop.load(Ordering::Relaxed) {
            self.set_timer();
            let ready = match self.epoll.wait(&mut events, EpollTimeout::from(10u8)) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => 0,
                Err(errno) => panic!("epoll is always valid: {errno}"),
            };
            for event in &events[..ready] {
                match event.data() {
                    // Reading clears it; what is due is looked up in any case.
                    TIMER => {
                        let _ = self.timer.wait();
                    }
                    mark if mark >= LISTENERS => self.accept((mark - LISTENERS) as usize),
                    mark => {
                        let side = if mark % 2 == 0 { Side::Client } else { Side::Server };
                        self.serve((mark / 2) as usize, side, &mut buffer, &zeros);
                    }
                }
            }
            self.keep_the_agenda();
        }
    }

    fn now(&self) -> Span {
        Span::from(self.origin.elapsed())
    }

    /// Sets the timer to the next thing on the agenda.
    fn set_timer(&self) {
        let Some(&Reverse((next, _))) = self.agenda.peek() else { return };
        let wait = Duration::from(next - self.now()).max(Duration::from_micros(1));
        let once = Expiration::OneShot(TimeSpec::from_duration(wait));
        if self.timer.set(once, TimerSetTimeFlags::empty()).is_err() {
            self.tally.complain(|| "the timer of short flows could not be set".into());
        }
    }

    /// Begins and ends what is due.
    fn keep_the_agenda(&mut self) {
        let now = self.now();
        while let Some(&Reverse((at, number))) = self.agenda.peek().filter(|next| next.0.0 <= now) {
            self.agenda.pop();
            if at >= self.entries[number].stop {
                self.end(number);
                continue;
            }
            match self.entries[number].next() {
                Next::Begin(intended, size) => self.ask(number, intended, size),
                Next::Nothing => {}
            }
            let next = self.entries[number].when().min(self.entries[number].stop);
            self.agenda.push(Reverse((next, number)));
        }
    }

    /// Closes the rest of an entry that has ended.
    fn end(&mut self, number: usize) {
        self.entries[number].over = true;
        self.entries[number].waiting.clear();
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(|c| c.entry == number) {
                self.close(slot);
            }
        }
    }

    /// Sends something now if there is a connection or room for one, else later.
    fn ask(&mut self, number: usize, intended: Span, size: u64) {
        let entry = &mut self.entries[number];
        if entry.is_judged(intended) {
            self.tally.due(entry.traffic);
        }
        if let Some(slot) = entry.idle.pop() {
            self.begin(slot, intended, size);
        } else if entry.open < entry.most {
            self.connect(number, intended, size);
        } else {
            entry.wait(intended, size);
        }
    }

    fn connect(&mut self, number: usize, intended: Span, size: u64) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        match self.try_connect(number, slot) {
            Ok(connection) => {
                self.expected.insert((number, connection.address), slot);
                self.slots[slot] = Some(connection);
                self.entries[number].open += 1;
                self.begin(slot, intended, size);
            }
            Err(errno) => {
                self.free.push(slot);
                self.failed(number, errno);
            }
        }
    }

    fn try_connect(&mut self, number: usize, slot: usize) -> Result<Connection, Errno> {
        let entry = &self.entries[number];
        if self.inside != Some(entry.from) {
            setns(&self.namespaces[&entry.from], CloneFlags::CLONE_NEWNET)?;
            self.inside = Some(entry.from);
        }
        let connection = Connection::open(number, entry.to, &entry.congestion)?;
        let writable = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT, 2 * slot as u64);
        self.epoll.add(connection.client.as_fd(), writable)?;
        Ok(connection)
    }

    /// Gives a connection something to do.
    fn begin(&mut self, slot: usize, intended: Span, size: u64) {
        let Some(connection) = &mut self.slots[slot] else { return };
        let answer = self.entries[connection.entry].response;
        connection.begin(intended, size, answer);
        self.watch(slot);
    }

    /// Registers with epoll the events that the connection waits for.
    fn watch(&mut self, slot: usize) {
        let Some(connection) = &mut self.slots[slot] else { return };
        for (side, offset) in [(Side::Client, 0), (Side::Server, 1)] {
            let Some((fd, flags)) = connection.changed(side) else { continue };
            let mut event = EpollEvent::new(flags, 2 * slot as u64 + offset);
            if let Err(errno) = self.epoll.modify(fd, &mut event) {
                let number = connection.entry;
                self.failed(number, errno);
                return;
            }
        }
    }

    fn accept(&mut self, number: usize) {
        while let Ok((stream, address)) = self.listeners[number].accept() {
            let stream = OwnedFd::from(stream);
            // A connection that was closed meanwhile is not expected any more.
            let Some(slot) = self.expected.remove(&(number, address)) else { continue };
            let mark = EpollEvent::new(EpollFlags::EPOLLIN, 2 * slot as u64 + 1);
            match (&mut self.slots[slot], self.epoll.add(stream.as_fd(), mark)) {
                (Some(connection), Ok(())) => connection.accepted(stream),
                (_, Err(errno)) => self.failed(number, errno),
                (None, Ok(())) => {}
            }
        }
    }

    /// Serves one end of a connection that is ready.
    fn serve(&mut self, slot: usize, side: Side, buffer: &mut [u8], zeros: &[u8]) {
        let Some(connection) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let number = connection.entry;
        let traffic = self.entries[number].traffic;
        let arrived = |side: Side, octets: usize| {
            // Octets that arrive at the client belong to the next entry, the answers.
            let of = if side == Side::Client { traffic + 1 } else { traffic };
            self.tally.add(of, 0, octets);
        };
        match connection.serve(side, buffer, zeros, arrived) {
            Ok(Event::Busy) => self.watch(slot),
            Ok(Event::Done(intended)) => self.done(slot, number, intended),
            Err(errno) => {
                self.close(slot);
                self.failed(number, errno);
                self.take_turns(number);
            }
        }
    }

    /// Handles a connection that has finished its work.
    fn done(&mut self, slot: usize, number: usize, intended: Span) {
        let now = self.now();
        let entry = &mut self.entries[number];
        if entry.is_judged(intended) {
            self.tally.done(entry.traffic, now - intended, now);
        }
        let next = if entry.over { None } else { entry.follows(now) };
        if entry.keeps && !entry.over {
            entry.idle.push(slot);
            self.watch(slot);
        } else {
            self.close(slot);
        }
        if let Some(size) = next {
            self.ask(number, now, size);
        }
        self.take_turns(number);
    }

    /// Gives a waiting request a connection, if there is one now.
    fn take_turns(&mut self, number: usize) {
        loop {
            let entry = &mut self.entries[number];
            if entry.over || (entry.idle.is_empty() && entry.open >= entry.most) {
                return;
            }
            let Some((intended, size)) = entry.waiting.pop_front() else { return };
            match entry.idle.pop() {
                Some(slot) => self.begin(slot, intended, size),
                None => self.connect(number, intended, size),
            }
        }
    }

    fn close(&mut self, slot: usize) {
        let Some(connection) = self.slots[slot].take() else { return };
        self.expected.remove(&(connection.entry, connection.address));
        let entry = &mut self.entries[connection.entry];
        entry.open -= 1;
        entry.idle.retain(|&idle| idle != slot);
        self.free.push(slot);
    }

    fn failed(&self, number: usize, errno: Errno) {
        let name = &self.entries[number].name;
        self.tally.complain(|| format!("a connection {name} failed: {}", errno.desc()));
    }
}
