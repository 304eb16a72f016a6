//! The thread that serves all sockets except those of UDP senders.

use super::Tally;
use super::sockets::{Entry, Receiver};
use super::trace::Tracer;
use crate::Error;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{MsgFlags, SockaddrStorage, connect, getsockopt, recv, send, sockopt};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_model::scenario::{Scenario, TrafficKind};
use weir_units::Span;

/// Reads from one socket before the next one's turn.
const READS: usize = 64;
/// Turns of each UDP socket in one tick.
const ROUNDS: usize = 20;
/// One `recv` takes at most this.
const TAKEN: usize = 1 << 20;
/// One `send` offers at most this: three hundred senders that start together take turns.
const OFFERED: usize = 32 * 1024;
/// The tick looks for starts, stops and the end, and takes the datagrams that have come.
const TICK: Duration = Duration::from_millis(2);
/// The timer's mark in epoll; all others are positions in `Engine::sockets`.
const TIMER: u64 = u64::MAX;

/// Purpose of a socket that epoll watches.
enum Socket {
    Listener { entry: usize, listener: TcpListener, accepted: usize },
    Connecting { entry: usize, fd: OwnedFd },
    Sender { entry: usize, fd: OwnedFd },
    Receiver { entry: usize, connection: usize, fd: OwnedFd },
    Closed,
}

/// TCP connections that wait for their start or, once started, for their stop.
struct Bulk {
    entry: usize,
    to: SocketAddr,
    waiting: Vec<OwnedFd>,
    start: Span,
    stop: Span,
    over: bool,
}

/// State of the playing thread.
pub(crate) struct Engine {
    origin: Instant,
    tally: Arc<Tally>,
    epoll: Epoll,
    /// UDP receivers. A sender's datagrams come one by one, and a wake-up for each would cost more
    /// than all else here. They gather in their sockets' buffers and are read once per tick.
    datagrams: Epoll,
    timer: TimerFd,
    sockets: Vec<Socket>,
    bulks: Vec<Bulk>,
    tracer: Tracer,
    names: Vec<String>,
}

impl Engine {
    /// Registers the receivers; senders begin when their time comes.
    pub(crate) fn new(
        scenario: &Scenario,
        entries: Vec<(usize, Entry)>,
        tally: Arc<Tally>,
        origin: Instant,
    ) -> Result<Self, Error> {
        let flags = EpollCreateFlags::EPOLL_CLOEXEC;
        let epoll = Epoll::new(flags).map_err(Error::kernel("make an epoll"))?;
        let datagrams = Epoll::new(flags).map_err(Error::kernel("make an epoll"))?;
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )
        .and_then(|timer| {
            let interval = Expiration::Interval(TimeSpec::from_duration(TICK));
            timer.set(interval, TimerSetTimeFlags::empty())?;
            epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER)).map(|()| timer)
        })
        .map_err(Error::kernel("make a timer"))?;
        let names = scenario
            .traffic
            .iter()
            .map(|t| format!("{} → {}", scenario.vms[t.from].name, scenario.vms[t.to].name))
            .collect();
        let (sockets, bulks) = (Vec::new(), Vec::new());
        let tracer = Tracer::new(scenario);
        let mut engine =
            Self { origin, tally, epoll, datagrams, timer, sockets, bulks, tracer, names };
        for (i, entry) in entries {
            engine.add_entry(scenario, i, entry).map_err(Error::kernel("watch a socket"))?;
        }
        Ok(engine)
    }

    fn add_entry(&mut self, scenario: &Scenario, i: usize, entry: Entry) -> Result<(), Errno> {
        match entry.receiver {
            Receiver::Tcp(listener) => {
                self.watch(
                    Socket::Listener { entry: i, listener, accepted: 0 },
                    EpollFlags::EPOLLIN,
                )?;
            }
            Receiver::Udp(fd) => {
                let event = EpollEvent::new(EpollFlags::EPOLLIN, self.sockets.len() as u64);
                self.datagrams.add(fd.as_fd(), event)?;
                self.sockets.push(Socket::Receiver { entry: i, connection: 0, fd });
            }
        }
        let traffic = &scenario.traffic[i];
        if let TrafficKind::Tcp { .. } = traffic.kind {
            self.bulks.push(Bulk {
                entry: i,
                to: entry.to,
                waiting: entry.senders,
                start: traffic.start,
                stop: traffic.stop,
                over: false,
            });
        }
        Ok(())
    }

    /// Plays until told to stop.
    pub(crate) fn run(&mut self) {
        let mut buffer = vec![0; TAKEN];
        let zeros = vec![0; OFFERED];
        let mut events = vec![EpollEvent::empty(); 512];
        while !self.tally.stop.load(Ordering::Relaxed) {
            let mut tick = false;
            let ready = wait(&self.epoll, &mut events, EpollTimeout::from(10u8));
            for event in &events[..ready] {
                if event.data() == TIMER {
                    // Reading clears it; how many ticks passed does not matter.
                    let _ = self.timer.wait();
                    let now = Span::from(self.origin.elapsed());
                    self.start_and_stop(now);
                    self.look(now);
                    tick = true;
                } else {
                    self.serve(event.data() as usize, &mut buffer, &zeros);
                }
            }
            // Some rounds, for one may leave some: as many datagrams as 8 Gb/s bring in a tick.
            for _ in 0..if tick { ROUNDS } else { 0 } {
                let ready = wait(&self.datagrams, &mut events, EpollTimeout::ZERO);
                if ready == 0 {
                    break;
                }
                for event in &events[..ready] {
                    self.serve(event.data() as usize, &mut buffer, &zeros);
                }
            }
        }
    }

    /// Begins and ends flows that are due.
    fn start_and_stop(&mut self, now: Span) {
        let mut begin = Vec::new();
        let mut end = Vec::new();
        for bulk in self.bulks.iter_mut().filter(|bulk| !bulk.over && bulk.start <= now) {
            let entry = bulk.entry;
            if now >= bulk.stop {
                bulk.over = true;
                bulk.waiting.clear();
                end.push(entry);
            } else {
                begin.extend(bulk.waiting.drain(..).map(|fd| (entry, bulk.to, fd)));
            }
        }
        for (entry, to, fd) in begin {
            self.connect(entry, to, fd);
        }
        let sockets = if end.is_empty() { &mut [] } else { &mut self.sockets[..] };
        for socket in sockets {
            if let Socket::Sender { entry, .. } | Socket::Connecting { entry, .. } = socket
                && end.contains(entry)
            {
                *socket = Socket::Closed;
            }
        }
    }

    /// Samples traced connections.
    fn look(&mut self, now: Span) {
        let sockets = &self.sockets;
        self.tracer.look(now, &self.tally, |position| match &sockets[position] {
            Socket::Sender { fd, .. } => Some(fd.as_fd()),
            _ => None,
        });
    }

    fn connect(&mut self, entry: usize, to: SocketAddr, fd: OwnedFd) {
        let result = match connect(fd.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {
                self.tracer.began(entry, self.sockets.len());
                self.watch(Socket::Connecting { entry, fd }, EpollFlags::EPOLLOUT)
            }
            Err(errno) => Err(errno),
        };
        if let Err(errno) = result {
            self.failed(entry, errno);
        }
    }

    fn failed(&self, entry: usize, errno: Errno) {
        let name = &self.names[entry];
        self.tally.complain(|| format!("a connection {name} failed: {}", errno.desc()));
    }

    fn watch(&mut self, socket: Socket, flags: EpollFlags) -> Result<(), Errno> {
        let event = EpollEvent::new(flags, self.sockets.len() as u64);
        match &socket {
            Socket::Listener { listener, .. } => self.epoll.add(listener.as_fd(), event)?,
            Socket::Connecting { fd, .. }
            | Socket::Sender { fd, .. }
            | Socket::Receiver { fd, .. } => self.epoll.add(fd.as_fd(), event)?,
            Socket::Closed => return Ok(()),
        }
        self.sockets.push(socket);
        Ok(())
    }

    /// Does what one socket is ready for.
    fn serve(&mut self, index: usize, buffer: &mut [u8], zeros: &[u8]) {
        let socket = &mut self.sockets[index];
        let fails = match socket {
            Socket::Listener { .. } => return self.accept(index),
            Socket::Connecting { entry, fd } => {
                let error = getsockopt(&*fd, sockopt::SocketError).unwrap_or(0);
                let entry = *entry;
                if error == 0 {
                    let Socket::Connecting { fd, .. } = std::mem::replace(socket, Socket::Closed)
                    else {
                        unreachable!("matched above")
                    };
                    *socket = Socket::Sender { entry, fd };
                    return;
                }
                Some((entry, Errno::from_raw(error)))
            }
            Socket::Sender { entry, fd } => {
                let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
                match send(fd.as_raw_fd(), zeros, flags) {
                    Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => None,
                    Err(errno) => Some((*entry, errno)),
                }
            }
            Socket::Receiver { entry, connection, fd } => {
                match drain(fd, buffer, |octets| self.tally.add(*entry, *connection, octets)) {
                    Ok(()) => {}
                    // End of the stream: the sender stops this way.
                    Err(_) => *socket = Socket::Closed,
                }
                return;
            }
            Socket::Closed => return,
        };
        if let Some((entry, errno)) = fails {
            self.sockets[index] = Socket::Closed;
            self.failed(entry, errno);
        }
    }

    fn accept(&mut self, index: usize) {
        loop {
            let Socket::Listener { entry, listener, accepted } = &mut self.sockets[index] else {
                return;
            };
            let Ok((stream, _)) = listener.accept() else { return };
            let (entry, connection) = (*entry, *accepted);
            *accepted += 1;
            if connection >= self.tally.received[entry].len() {
                continue;
            }
            let socket = Socket::Receiver { entry, connection, fd: OwnedFd::from(stream) };
            if let Err(errno) = self.watch(socket, EpollFlags::EPOLLIN) {
                self.failed(entry, errno);
            }
        }
    }
}

/// How many sockets are ready.
fn wait(epoll: &Epoll, events: &mut [EpollEvent], timeout: EpollTimeout) -> usize {
    match epoll.wait(events, timeout) {
        Ok(ready) => ready,
        Err(Errno::EINTR) => 0,
        Err(errno) => panic!("epoll is always valid: {errno}"),
    }
}

/// Counts the octets that have arrived, without copying them. An error is the end of a connection.
/// It reads several packets or stretches of a stream at a time, but not all, because other sockets
/// wait.
fn drain(fd: &OwnedFd, buffer: &mut [u8], mut count: impl FnMut(usize)) -> Result<(), Errno> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
    for _ in 0..READS {
        match recv(fd.as_raw_fd(), buffer, flags) {
            Ok(0) => return Err(Errno::ECONNRESET),
            Ok(octets) => count(octets),
            Err(Errno::EAGAIN | Errno::EINTR) => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
