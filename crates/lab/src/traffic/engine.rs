//! The thread that serves all sockets.

use super::Tally;
use super::sockets::{Entry, Receiver};
use super::udp::Pacer;
use crate::Error;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrStorage, connect, getsockopt, recv, send, sendmmsg, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use std::io::IoSlice;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_model::scenario::{Scenario, TrafficKind};
use weir_units::Span;

/// UDP packets of one source handed to the kernel in one call, before it is another one's turn.
const IN_TURN: usize = 8;
/// Reads from one socket before it is another one's turn.
const READS: usize = 64;
/// One `recv` takes at most this.
const TAKEN: usize = 1 << 20;
/// One `send` offers at most this: three hundred senders that start together take turns.
const OFFERED: usize = 32 * 1024;
/// A tick sends about this many UDP packets: a burst of more would leave the queue half empty until
/// the next one, and whoever sends in between would find room that a steady stream leaves nobody.
const PER_TICK: f64 = 6.0;
const FASTEST_TICK: Duration = Duration::from_micros(200);
const SLOWEST_TICK: Duration = Duration::from_millis(1);
/// Without UDP the tick only looks for starts, stops and the end.
const IDLE_TICK: Duration = Duration::from_millis(2);
/// The timer's mark in epoll; all others are positions in `Engine::sockets`.
const TIMER: u64 = u64::MAX;

/// What a socket that epoll watches is for.
enum Socket {
    Listener { entry: usize, listener: TcpListener, accepted: usize },
    Connecting { entry: usize, fd: OwnedFd },
    Sender { entry: usize, fd: OwnedFd },
    Receiver { entry: usize, connection: usize, fd: OwnedFd },
    Closed,
}

/// A UDP source; it is driven by the tick alone.
struct Source {
    fd: OwnedFd,
    pacer: Pacer,
    payload: usize,
    start: Span,
    stop: Span,
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

/// Everything the playing thread owns.
pub(crate) struct Engine {
    origin: Instant,
    tally: Arc<Tally>,
    epoll: Epoll,
    timer: TimerFd,
    tick: Duration,
    sockets: Vec<Socket>,
    sources: Vec<Source>,
    bulks: Vec<Bulk>,
    /// Who goes first in a tick: rotates, because in a full queue the first finds room.
    turn: usize,
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
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::kernel("make an epoll"))?;
        let timer = TimerFd::new(
            ClockId::CLOCK_MONOTONIC,
            TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
        )
        .and_then(|timer| {
            epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER)).map(|()| timer)
        })
        .map_err(Error::kernel("make a timer"))?;
        let names = scenario
            .traffic
            .iter()
            .map(|t| format!("{} → {}", scenario.vms[t.from].name, scenario.vms[t.to].name))
            .collect();
        let mut engine = Self {
            origin,
            tally,
            epoll,
            timer,
            tick: Duration::ZERO,
            sockets: Vec::new(),
            sources: Vec::new(),
            bulks: Vec::new(),
            turn: 0,
            names,
        };
        for (i, entry) in entries {
            engine.add_entry(scenario, i, entry).map_err(Error::kernel("watch a socket"))?;
        }
        engine.set_tick(IDLE_TICK).map_err(Error::kernel("set a timer"))?;
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
                self.watch(Socket::Receiver { entry: i, connection: 0, fd }, EpollFlags::EPOLLIN)?;
            }
        }
        let traffic = &scenario.traffic[i];
        let (start, stop) = (traffic.start, traffic.stop);
        match &traffic.kind {
            TrafficKind::Tcp { .. } => self.bulks.push(Bulk {
                entry: i,
                to: entry.to,
                waiting: entry.senders,
                start,
                stop,
                over: false,
            }),
            TrafficKind::Udp { rate, on, off, payload } => {
                let pacer =
                    Pacer::new(*rate, (traffic.ip, *payload), *on, *off, self.sources.len());
                let payload = payload.get() as usize;
                let source = |fd| Source { fd, pacer: pacer.clone(), payload, start, stop };
                self.sources.extend(entry.senders.into_iter().map(source));
            }
            other => unreachable!("{} is not long-lived", other.name()),
        }
        Ok(())
    }

    /// Plays until told to stop.
    pub(crate) fn run(&mut self) {
        let mut buffer = vec![0; TAKEN];
        let zeros = vec![0; OFFERED];
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(IN_TURN, None);
        let mut events = vec![EpollEvent::empty(); 512];
        while !self.tally.stop.load(Ordering::Relaxed) {
            let ready = match self.epoll.wait(&mut events, EpollTimeout::from(10u8)) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => 0,
                Err(errno) => panic!("epoll is always valid: {errno}"),
            };
            for event in &events[..ready] {
                if event.data() == TIMER {
                    // Reading clears it; how many ticks passed does not matter.
                    let _ = self.timer.wait();
                    let now = Span::from(self.origin.elapsed());
                    self.start_and_stop(now);
                    self.send_udp(now, &zeros, &mut headers);
                } else {
                    self.serve(event.data() as usize, &mut buffer, &zeros);
                }
            }
        }
    }

    /// Begins and ends flows whose time has come, and adapts the tick to who is left.
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
        self.sources.retain(|source| now < source.stop);
        let packets: f64 = self
            .sources
            .iter()
            .filter(|source| source.start <= now)
            .map(|source| source.pacer.packets_per_second())
            .sum();
        let tick = if self.sources.is_empty() {
            IDLE_TICK
        } else {
            Duration::from_secs_f64((PER_TICK / packets.max(1.0)).min(1.0))
                .clamp(FASTEST_TICK, SLOWEST_TICK)
        };
        if tick != self.tick && self.set_tick(tick).is_err() {
            self.tally.complain(|| "the traffic's timer could not be set".into());
        }
    }

    fn set_tick(&mut self, tick: Duration) -> Result<(), Errno> {
        self.tick = tick;
        let interval = Expiration::Interval(TimeSpec::from_duration(tick));
        self.timer.set(interval, TimerSetTimeFlags::empty())
    }

    fn connect(&mut self, entry: usize, to: SocketAddr, fd: OwnedFd) {
        let result = match connect(fd.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {
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
                    // The sender's way to stop.
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

    /// Sends what is due of every source, a few packets at a time in turn, each tick beginning with
    /// another one: several senders' packets mix, also after the thread came late.
    fn send_udp(&mut self, now: Span, zeros: &[u8], headers: &mut MultiHeaders<SockaddrStorage>) {
        if self.sources.is_empty() {
            return;
        }
        let count = self.sources.len();
        self.turn = (self.turn + 1) % count;
        let mut waiting = Vec::new();
        for i in (0..count).map(|i| (self.turn + i) % count) {
            let source = &mut self.sources[i];
            if now < source.start {
                continue;
            }
            let due = source.pacer.due(now - source.start);
            if due.now + due.late > 0 {
                self.tally.due.fetch_add(due.now + due.late, Ordering::Relaxed);
                self.tally.late.fetch_add(due.late, Ordering::Relaxed);
                waiting.push((i, due.now as usize));
            }
        }
        while !waiting.is_empty() {
            for (i, left) in &mut waiting {
                let some = (*left).min(IN_TURN);
                let sent = send_packets(&self.sources[*i], some, zeros, headers);
                self.tally.refused.fetch_add((some - sent) as u64, Ordering::Relaxed);
                *left -= some;
            }
            waiting.retain(|&(_, left)| left > 0);
        }
    }
}

/// Counts what has arrived, without copying it; an error is the end of a connection. Takes several
/// packets or stretches of a stream at a time, but not all: others wait too.
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

/// Sends up to `IN_TURN` packets; gives how many the socket took.
fn send_packets(
    source: &Source,
    count: usize,
    zeros: &[u8],
    headers: &mut MultiHeaders<SockaddrStorage>,
) -> usize {
    let packet = [IoSlice::new(&zeros[..source.payload])];
    let addresses = [None; IN_TURN];
    let fd = source.fd.as_raw_fd();
    let packets = std::iter::repeat_n(&packet, count);
    sendmmsg(fd, headers, packets, &addresses[..count], [], MsgFlags::MSG_DONTWAIT)
        .map_or(0, Iterator::count)
}
