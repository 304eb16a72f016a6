//! A real memcached in the receiving VM, and our own client in the sending VM.
//!
//! Problem   The value of a mechanism shows in the tail of a real service's answers, and no load
//!           generator of Debian reports percentiles in an open loop.
//! Approach  The server is a program of the run (`exec`). The client has a thread of its own for
//!           all entries: connections that are opened before anything is played, a timer set to the
//!           next request, a histogram per entry.
//! Promises  A request's time counts from the moment at which it was due (`client`). Requests that
//!           are not answered at the end, and requests on a broken connection, are counted and
//!           reported. An octet of a request counts once the request was answered, since it has
//!           arrived then.
//! Not here  Moments and kinds of requests: see `weir_model::scenario`.

mod client;
mod connection;
mod protocol;

use super::Tally;
use super::sockets::TCP_SEND_BUFFER;
use crate::{Error, plan};
use client::Client;
use connection::{Broken, Connection};
use nix::errno::Errno;
use nix::libc;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use protocol::Answer;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_model::scenario::{Ask, Memcached, Operation, Scenario, Traffic, TrafficKind};
use weir_units::Span;

/// Name of the program in Debian.
pub(crate) const PROGRAM: &str = "memcached";
/// How long a server may take until it accepts connections.
const READY: Duration = Duration::from_secs(5);
/// How long to wait before the next try.
const AGAIN: Duration = Duration::from_millis(50);
/// How long one call may take before anything is played.
const PATIENCE: Duration = Duration::from_secs(10);
/// One `recv` takes at most this.
const TAKEN: usize = 64 * 1024;
/// The timer's mark in epoll; those of connections are their entry's position and their own.
const TIMER: u64 = u64::MAX;

/// The traffic that asks a memcached, with the position of its entry.
pub(crate) fn of(scenario: &Scenario) -> impl Iterator<Item = (usize, &Traffic, &Memcached)> {
    scenario.traffic.iter().enumerate().filter_map(|(i, traffic)| match &traffic.kind {
        TrafficKind::Memcached(memcached) => Some((i, traffic, memcached)),
        _ => None,
    })
}

/// The command that starts the server of traffic entry `i`. It has one thread, and memory for twice
/// the values.
pub(crate) fn server(scenario: &Scenario, i: usize, memcached: &Memcached) -> Vec<String> {
    let traffic = &scenario.traffic[i];
    // Overhead of an item beside key and value. The server allocates memory in pieces of up to a
    // quarter more.
    let item = memcached.key.get() + memcached.value.get() + 100;
    let megabytes = (2 * item * u64::from(memcached.keys)).div_ceil(1 << 20).max(64);
    let address = plan::vm_ip(scenario, traffic.to, traffic.ip);
    let words = format!(
        "{PROGRAM} -l {address} -p {} -U 0 -t 1 -m {megabytes} -c {}",
        super::port(i),
        memcached.connections + 16
    );
    words.split(' ').map(Into::into).collect()
}

/// Sockets that are opened before anything is played.
pub(crate) struct Opened {
    entry: usize,
    sockets: Vec<TcpStream>,
}

impl Opened {
    /// Connects from the namespace the thread is in to the memcached of traffic entry `entry`, and
    /// stores all keys there.
    ///
    /// # Errors
    /// The server does not listen, or does not store.
    pub(crate) fn connect(entry: usize, of: &Memcached, to: SocketAddr) -> io::Result<Self> {
        let until = Instant::now() + READY;
        let open = || loop {
            match TcpStream::connect_timeout(&to, PATIENCE) {
                Err(error)
                    if error.kind() == io::ErrorKind::ConnectionRefused
                        && Instant::now() < until =>
                {
                    std::thread::sleep(AGAIN);
                }
                other => return other,
            }
        };
        let mut sockets = Vec::new();
        for _ in 0..of.connections {
            let socket = open()?;
            // An orderly close would keep ports and namespaces for a minute.
            setsockopt(&socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
            setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(&of.congestion))?;
            setsockopt(&socket, sockopt::SndBufForce, &TCP_SEND_BUFFER)?;
            socket.set_nodelay(true)?;
            sockets.push(socket);
        }
        if let Some(first) = sockets.first_mut().filter(|_| of.sets < 1.0) {
            fill(first, of)?;
        }
        sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        Ok(Self { entry, sockets })
    }
}

/// Stores a value for every key. Only the last one is answered, which then is the last one stored.
fn fill(socket: &mut TcpStream, of: &Memcached) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut out = Vec::new();
    for key in 0..of.keys {
        protocol::write_silently(of, key, &mut out);
        if out.len() > TAKEN {
            socket.write_all(&out)?;
            out.clear();
        }
    }
    let last = Ask { operation: Operation::Set, key: 0 };
    protocol::write(of, last, &mut out);
    socket.write_all(&out)?;
    let mut answer = Answer::to(of, last);
    let mut buffer = [0; 512];
    loop {
        let octets = match socket.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            octets => octets,
        };
        if answer.read(&buffer[..octets]).map_err(io::Error::other)? {
            return Ok(());
        }
    }
}

/// A traffic entry while it is played.
struct Entry {
    /// Its position in the scenario; the answers are the one behind.
    traffic: usize,
    /// For messages.
    name: String,
    memcached: Memcached,
    client: Client,
    /// `None` are broken; all of them once it is over.
    connections: Vec<Option<Connection>>,
    over: bool,
}

/// State of the playing thread.
pub(crate) struct Clients {
    origin: Instant,
    tally: Arc<Tally>,
    epoll: Epoll,
    timer: TimerFd,
    entries: Vec<Entry>,
}

impl Clients {
    /// Watches the connections; requests begin when their time comes.
    pub(crate) fn new(
        scenario: &Scenario,
        opened: Vec<Opened>,
        tally: Arc<Tally>,
        origin: Instant,
    ) -> Result<Self, Error> {
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::kernel("make an epoll"))?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)
            .and_then(|timer| {
                let readable = EpollEvent::new(EpollFlags::EPOLLIN, TIMER);
                epoll.add(&timer, readable).map(|()| timer)
            })
            .map_err(Error::kernel("make a timer"))?;
        let mut entries = Vec::new();
        for Opened { entry, sockets } in opened {
            let traffic = &scenario.traffic[entry];
            let TrafficKind::Memcached(memcached) = &traffic.kind else {
                unreachable!("only such entries were opened")
            };
            for (number, socket) in sockets.iter().enumerate() {
                let event = EpollEvent::new(EpollFlags::EPOLLIN, mark(entries.len(), number));
                epoll.add(socket.as_fd(), event).map_err(Error::kernel("watch a socket"))?;
            }
            let name = |vm: usize| &scenario.vms[vm].name;
            let times = (traffic.start, traffic.stop);
            entries.push(Entry {
                traffic: entry,
                name: format!("{} → {}", name(traffic.from), name(traffic.to)),
                memcached: memcached.clone(),
                client: Client::new(memcached, times, scenario.warmup),
                connections: sockets.into_iter().map(|s| Some(Connection::new(s))).collect(),
                over: false,
            });
        }
        Ok(Self { origin, tally, epoll, timer, entries })
    }

    /// Plays until told to stop.
    pub(crate) fn run(&mut self) {
        let mut buffer = vec![0; TAKEN];
        let mut events = vec![EpollEvent::empty(); 256];
        while !self.tally.stop.load(Ordering::Relaxed) {
            self.set_timer();
            let ready = match self.epoll.wait(&mut events, EpollTimeout::from(10u8)) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => 0,
                Err(errno) => panic!("epoll is always valid: {errno}"),
            };
            for event in &events[..ready] {
                if event.data() == TIMER {
                    // Reading clears it; what is due is looked up in any case.
                    let _ = self.timer.wait();
                } else {
                    let (entry, number) = (event.data() >> 32, event.data() & 0xffff_ffff);
                    self.serve(entry as usize, number as usize, &mut buffer);
                }
            }
            for entry in 0..self.entries.len() {
                self.ask(entry, &mut buffer);
            }
        }
    }

    fn now(&self) -> Span {
        Span::from(self.origin.elapsed())
    }

    /// Sets the timer to the next due request or the next end.
    fn set_timer(&mut self) {
        let lasting = self.entries.iter_mut().filter(|entry| !entry.over);
        let Some(next) = lasting.map(|entry| entry.client.when()).min() else { return };
        let wait = Duration::from(next - self.now()).max(Duration::from_micros(1));
        let once = Expiration::OneShot(TimeSpec::from_duration(wait));
        if self.timer.set(once, TimerSetTimeFlags::empty()).is_err() {
            self.tally.complain(|| "the timer of requests to memcached could not be set".into());
        }
    }

    /// Sends due requests that have a connection; closes all connections when the traffic has
    /// ended.
    fn ask(&mut self, index: usize, buffer: &mut [u8]) {
        let now = self.now();
        let entry = &mut self.entries[index];
        if entry.over {
            return;
        }
        for _ in 0..entry.client.take_up(now) {
            self.tally.due(entry.traffic);
        }
        if entry.client.is_over(now) {
            entry.over = true;
            entry.connections.iter_mut().for_each(|connection| *connection = None);
            return;
        }
        while let Some((number, ask)) = self.entries[index].client.next() {
            let entry = &mut self.entries[index];
            let Some(connection) = &mut entry.connections[number] else { continue };
            connection.begin(&entry.memcached, ask);
            self.serve(index, number, buffer);
        }
    }

    /// Serves one connection that is ready.
    fn serve(&mut self, index: usize, number: usize, buffer: &mut [u8]) {
        let entry = &mut self.entries[index];
        let Some(connection) = &mut entry.connections[number] else { return };
        let turn = match connection.serve(buffer) {
            Ok(turn) => turn,
            Err(broken) => return self.broke(index, number, &broken),
        };
        if turn.come > 0 {
            self.tally.add(entry.traffic + 1, 0, turn.come);
        }
        if let Some(octets) = turn.answered {
            let now = Span::from(self.origin.elapsed());
            self.tally.add(entry.traffic, 0, octets);
            if let Some(took) = entry.client.answered(number, now) {
                self.tally.done(entry.traffic, took, now);
            }
        }
        if let Some(flags) = connection.changed() {
            let mut event = EpollEvent::new(flags, mark(index, number));
            if let Err(errno) = self.epoll.modify(connection.socket.as_fd(), &mut event) {
                self.broke(index, number, &Broken::Socket(errno));
            }
        }
    }

    /// Handles a failed connection.
    fn broke(&mut self, index: usize, number: usize, broken: &Broken) {
        let entry = &mut self.entries[index];
        entry.connections[number] = None;
        entry.client.broke(number);
        let name = &entry.name;
        self.tally.complain(|| format!("a connection {name} failed: {broken}"));
    }
}

/// Mark of a connection in epoll.
fn mark(entry: usize, number: usize) -> u64 {
    (entry as u64) << 32 | number as u64
}
