//! The prober: asks another host's server about the ways there and back.
//!
//! Problem   A way has two directions and several equal paths, each of which may lose, change or delay
//!           packets in its own manner; the questions themselves may be lost.
//! Approach  Questions in plain datagrams, repeated until they are answered. Probes by raw sockets,
//!           repeated where nothing came of them. Then, if a rate was given, a stream in each
//!           direction.
//! Promises  Each step has a bound in time. Nothing is left behind here or there.
//! Not here  What the answers mean: see `verdict`.

use super::flow::{self, Arrivals, Order, Progress};
use super::header::{Marks, UDP_HEADER, build, ip_header};
use super::keys::Greeter;
use super::note::{
    BACK, Body, HEAD, Judged, Note, Phase, Probe, QUESTION, REPORT, SIGHTS, Start, Stream, Welcome,
    encode, parse,
};
use super::probes::{self, PINGS, SIZES, Sort, WAYS};
use super::sockets::{self, BUFFER, Raw};
use super::verdict::{Carried, Facts, Greeting, Largest, Trips};
use super::wall;
use crate::control;
use crate::driver::now;
use anyhow::{Result, bail, ensure};
use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_units::{Rate, Span, Time};

/// A question is repeated so often.
const TRIES: u64 = 5;
/// Wait for the first answer; the n-th takes n times as long. All together: 2.25 s.
const PATIENCE: Span = Span::from_millis(150);
/// Probes without an answer are sent again so often.
const ROUNDS: usize = 3;
/// Wait after the last probe of a round, beside the round trip.
const ROUND: Span = Span::from_millis(100);
/// Between two probes: 2000 per second are below what servers answer.
const GAP: Span = Span::from_micros(500);
/// Octets of a probe's payload.
const SMALL: usize = 100;
/// Lengths tried at a time, for each direction.
const RUNGS: usize = 16;
/// Every IPv4 and IPv6 way carries packets of this length, by the standards.
const LEAST: [u16; 2] = [576, 1280];
/// Probes of time, and what is between them.
const TIMES: usize = 64;
const BETWEEN: Span = Span::from_millis(5);
/// Between two questions while a stream runs. The server takes a prober for gone after five of them.
const ALIVE: Span = Span::from_millis(200);
/// Numbers of questions about streams, so that no answer that comes late is taken for another question's:
/// while a stream runs, its start there and back, and its end.
const RUNS: usize = 0;
const STARTS: [usize; 2] = [1, 2];
const ENDED: usize = 3;
/// Longest wait for another prober's stream.
const QUEUE: Span = Span::from_secs(120);

/// What is asked for beside the headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asking {
    /// A stream at this rate in each direction.
    pub rate: Option<Rate>,
    /// How long each stream lasts.
    pub lasts: Span,
    /// Also send what looks like the packets of a tunnel with this UDP port.
    pub outer: Option<u16>,
}

/// A probe's answer.
struct Back {
    marks: Marks,
    sent: u64,
    came: u64,
    left: u64,
    here: u64,
}

pub(crate) struct Prober<'a> {
    at: SocketAddr,
    local: IpAddr,
    /// The first is connected: questions and streams pass it. The others hold their ports.
    ways: Vec<UdpSocket>,
    ports: Vec<u16>,
    raw: Raw,
    session: u64,
    token: u64,
    round_trip: Span,
    /// By number.
    backs: BTreeMap<usize, Back>,
    /// Of the stream back.
    arrivals: Arrivals,
    stop: &'a AtomicBool,
}

/// Why there is no answer at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Silence {
    /// Nothing came.
    Nothing,
    /// The host says that nothing listens there.
    Refused,
    /// The server speaks another version.
    Version(u8),
}

impl<'a> Prober<'a> {
    pub(crate) fn new(at: SocketAddr, stop: &'a AtomicBool) -> Result<Self> {
        let local = sockets::local_address(at)?;
        let raw = Raw::open(local, BACK)?;
        // As agents do, if none runs here.
        let first =
            sockets::bind((local, at.port()).into()).or_else(|_| sockets::bind((local, 0).into()));
        let mut ways = vec![first?];
        for _ in 1..WAYS {
            ways.push(UdpSocket::bind((local, 0))?);
        }
        ways[0].connect(at)?;
        let ports = ways.iter().map(|way| Ok(way.local_addr()?.port())).collect::<Result<_>>()?;
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|e| anyhow::anyhow!("no random session: {e}"))?;
        let session = u64::from_ne_bytes(random);
        let (token, round_trip, backs) = (0, PATIENCE, BTreeMap::new());
        let arrivals = Arrivals::default();
        Ok(Self { at, local, ways, ports, raw, session, token, round_trip, backs, arrivals, stop })
    }

    /// Where questions are sent from.
    pub(crate) fn port(&self) -> u16 {
        self.ports[0]
    }

    /// The first question.
    pub(crate) fn hello(&mut self) -> Result<Result<Welcome, Silence>> {
        let begun = now();
        match self.question(Body::Hello, 0, QUESTION)? {
            Err(silence) => Ok(Err(silence)),
            Ok(Note { body: Body::Welcome(welcome), token, .. }) => {
                self.token = token;
                self.round_trip = now().since(begun);
                Ok(Ok(welcome))
            }
            Ok(Note { body: Body::Other(version), .. }) => Ok(Err(Silence::Version(version))),
            Ok(_) => Ok(Err(Silence::Nothing)),
        }
    }

    /// All that follows.
    pub(crate) fn measure(
        &mut self,
        welcome: Welcome,
        asking: &Asking,
        greeter: Option<&Greeter>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Facts> {
        let is_v6 = self.at.is_ipv6();
        let greeting = self.greet(greeter)?;
        say("headers");
        let headers = self.headers(None)?;
        let outer = match asking.outer {
            None => None,
            Some(port) => {
                say("headers of a tunnel's packets");
                Some((port, self.headers(Some(port))?))
            }
        };
        say("length");
        let largest = self.largest(welcome.mtu)?;
        say("time");
        let trips = self.trips()?;
        let (mut there, mut back) = (None, None);
        if let Some(rate) = asking.rate {
            let start = |is_back, mtu: Option<u16>| {
                let mtu = mtu.unwrap_or(LEAST[usize::from(is_v6)]);
                let size = mtu - (ip_header(is_v6) + UDP_HEADER) as u16;
                let millis = u32::try_from(asking.lasts.as_nanos() / 1_000_000).unwrap_or(u32::MAX);
                Start { is_back, rate: rate.as_bps(), millis, size }
            };
            say(&format!("{rate} there"));
            there = Some(self.stream_there(&start(false, largest.there), say)?);
            say(&format!("{rate} back"));
            back = Some(self.stream_back(&start(true, largest.back))?);
        }
        Ok(Facts {
            local: SocketAddr::new(self.local, self.ports[0]),
            welcome,
            greeting,
            headers,
            outer,
            largest,
            trips,
            rate: asking.rate,
            there,
            back,
        })
    }

    fn is_stopped(&self) -> Result<()> {
        ensure!(!self.stop.load(Ordering::Relaxed), super::INTERRUPTED);
        Ok(())
    }

    fn note(&self, body: Body, number: usize) -> Note {
        Note { session: self.session, token: self.token, number: number as u32, body }
    }

    /// Asks until there is an answer.
    fn question(
        &mut self,
        body: Body,
        number: usize,
        length: usize,
    ) -> Result<Result<Note, Silence>> {
        let octets = encode(&self.note(body, number), length);
        let mut silence = Silence::Nothing;
        for attempt in 1..=TRIES {
            self.is_stopped()?;
            // What an earlier packet met shows here, or when the answer is read.
            if let Err(error) = self.ways[0].send(&octets) {
                silence = refused(error.raw_os_error()).unwrap_or(silence);
            }
            let until = now() + Span::from_nanos(PATIENCE.as_nanos() * attempt);
            match self.answer(until, number) {
                Ok(note) => return Ok(Ok(note)),
                Err(why) if why != Silence::Nothing => silence = why,
                Err(_) => {}
            }
        }
        Ok(Err(silence))
    }

    /// The next answer until then. Answers to probes come to this socket, too, and are none. A stream back may
    /// begin before its answer comes.
    fn answer(&mut self, until: Time, number: usize) -> Result<Note, Silence> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let left = until.since(now());
            if left == Span::ZERO {
                return Err(Silence::Nothing);
            }
            let mut socket = [PollFd::from_borrowed_fd(self.ways[0].as_fd(), PollFlags::IN)];
            sockets::wait(&mut socket, left);
            let got = match sockets::receive(self.ways[0].as_fd(), &mut buffer) {
                Ok(got) => got,
                Err(Errno::ECONNREFUSED) => return Err(Silence::Refused),
                Err(_) => continue,
            };
            for datagram in buffer[..got.octets].chunks(got.segment) {
                match parse(datagram) {
                    Some(note) if matches!(note.body, Body::Other(_)) => return Ok(note),
                    Some(note) if note.session != self.session => {}
                    Some(Note { body: Body::Flow, .. }) => self.arrivals.add(now()),
                    Some(Note { body: Body::Back { .. }, .. }) => {}
                    Some(note) if note.number == number as u32 => return Ok(note),
                    _ => {}
                }
            }
        }
    }

    /// As [`question`](Self::question), of a server that has answered before.
    fn further(&mut self, body: Body, number: usize, length: usize) -> Result<Body> {
        match self.question(body, number, length)? {
            Ok(note) => Ok(note.body),
            Err(_) => bail!("{}: the server has stopped to answer", self.at),
        }
    }

    fn greet(&mut self, greeter: Option<&Greeter>) -> Result<Greeting> {
        let Some(greeter) = greeter else { return Ok(Greeting::Unconfigured) };
        let Some(host) = greeter.host_at(self.at.ip()) else { return Ok(Greeting::Unlisted) };
        let (octets, untold) = match greeter.greeting(host) {
            Ok(octets) => (octets, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let answer = self.further(Body::Greet(octets), 0, QUESTION)?;
        let Body::Greeted { judged, greeting } = answer else { return Ok(Greeting::Unlisted) };
        let there = untold.map_or(judged, Judged::Refused);
        let back = match greeting.is_empty() {
            true => Judged::Unconfigured,
            false => greeter.judge(host, &greeting),
        };
        Ok(Greeting::Judged { there, back })
    }

    /// Sends one probe. Nothing if the host here refuses it.
    fn probe(&self, number: usize, marks: Marks, way: usize, to: SocketAddr, payload: usize) {
        let is_outer = to.port() != self.at.port();
        let probe = Probe { back: marks, is_outer, sent: wall() };
        let octets = encode(&self.note(Body::Probe(probe), number), payload);
        let from = SocketAddr::new(self.local, self.ports[way]);
        let _ = self.raw.send(&build(from, to, marks, &octets), to);
    }

    /// Takes answers until then.
    fn listen(&mut self, until: Time) -> Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            self.is_stopped()?;
            while let Some((came, octets)) = self.raw.receive(&mut buffer) {
                let here = wall();
                let Some(note) = parse(octets) else { continue };
                let is_ours = (note.session, note.token) == (self.session, self.token);
                let Body::Back { sent, came: arrived, left } = note.body else { continue };
                if is_ours && came.from.ip() == self.at.ip() {
                    let back = Back { marks: came.marks, sent, came: arrived, left, here };
                    self.backs.entry(note.number as usize).or_insert(back);
                }
            }
            let left = until.since(now());
            if left == Span::ZERO {
                return Ok(());
            }
            let mut socket = [PollFd::from_borrowed_fd(self.raw.as_fd(), PollFlags::IN)];
            sockets::wait(&mut socket, left.min(PATIENCE));
        }
    }

    /// What the server saw of the numbers of a range. Its answers to them came before this one.
    fn seen(&mut self, from: usize, to: usize) -> Result<BTreeMap<usize, Marks>> {
        let mut seen = BTreeMap::new();
        for first in (from..to).step_by(SIGHTS) {
            let Body::Report(sights) = self.further(Body::Ask, first, REPORT)? else { continue };
            let came =
                sights.into_iter().enumerate().filter_map(|(n, came)| Some((first + n, came?)));
            seen.extend(came);
        }
        self.listen(now())?;
        Ok(seen)
    }

    /// Sends a probe of each sort on each way, to the server's port or a tunnel's.
    fn headers(&mut self, outer: Option<u16>) -> Result<Vec<probes::Probed>> {
        let (is_v6, is_outer) = (self.at.is_ipv6(), outer.is_some());
        let mut to = self.at;
        to.set_port(outer.unwrap_or(to.port()));
        let all =
            || Sort::all(is_v6).into_iter().flat_map(|sort| (0..WAYS).map(move |way| (sort, way)));
        let numbers: Vec<usize> = all().map(|(sort, way)| sort.number(way, is_outer)).collect();
        let first = numbers[0];
        let mut seen = BTreeMap::new();
        for _ in 0..ROUNDS {
            for (sort, way) in all() {
                let number = sort.number(way, is_outer);
                if !self.backs.contains_key(&number) {
                    self.probe(number, sort.marks(number, is_v6), way, to, SMALL);
                    self.listen(now() + GAP)?;
                }
            }
            self.listen(now() + ROUND + self.round_trip)?;
            seen = self.seen(first, first + numbers.len())?;
            if numbers.iter().all(|number| self.backs.contains_key(number)) {
                break;
            }
        }
        let back = self.backs.iter().map(|(number, back)| (*number, back.marks)).collect();
        Ok(probes::put_together(is_v6, is_outer, &seen, &back))
    }

    /// The longest packets that pass, with DF.
    fn largest(&mut self, peer: u16) -> Result<Largest> {
        let is_v6 = self.at.is_ipv6();
        let (own, least) = (sockets::device_mtu(self.local)?, LEAST[usize::from(is_v6)]);
        let mut tried: Vec<u16> = Vec::new();
        // By direction: the largest that passed, and the least that did not.
        let mut bounds = [(None, own.saturating_add(1)); 2];
        let mut sizes = vec![own];
        while !sizes.is_empty() {
            let first = tried.len();
            tried.extend(&sizes);
            for _ in 0..2 {
                for (n, size) in sizes.iter().enumerate() {
                    let number = SIZES + first + n;
                    let marks = Marks {
                        id: probes::identification(number),
                        dont_fragment: true,
                        ..Marks::default()
                    };
                    let payload = usize::from(*size).saturating_sub(ip_header(is_v6) + UDP_HEADER);
                    self.probe(number, marks, 0, self.at, payload);
                    self.listen(now() + GAP)?;
                }
                self.listen(now() + ROUND + self.round_trip)?;
            }
            let seen = self.seen(SIZES + first, SIZES + tried.len())?;
            for (n, size) in sizes.iter().enumerate() {
                let number = SIZES + first + n;
                let back = self.backs.contains_key(&number);
                let passed = [back || seen.contains_key(&number), back];
                for (bound, passed) in bounds.iter_mut().zip(passed) {
                    if passed {
                        bound.0 = bound.0.max(Some(*size));
                    } else {
                        bound.1 = bound.1.min(*size);
                    }
                }
            }
            // A longer question than those that arrive gets no answer.
            bounds[1].1 = bounds[1].1.min(bounds[0].1);
            sizes = bounds.iter().flat_map(|bound| rungs(*bound, least)).collect();
            sizes.sort_unstable();
            sizes.dedup();
            sizes.truncate(PINGS - SIZES - tried.len());
        }
        Ok(Largest { own, peer, there: bounds[0].0, back: bounds[1].0 })
    }

    fn trips(&mut self) -> Result<Trips> {
        let marks =
            |n| Marks { id: probes::identification(n), dont_fragment: true, ..Marks::default() };
        for n in PINGS..PINGS + TIMES {
            self.probe(n, marks(n), 0, self.at, SMALL);
            self.listen(now() + BETWEEN)?;
        }
        self.listen(now() + ROUND + self.round_trip)?;
        let backs = self.backs.range(PINGS..PINGS + TIMES);
        // A server may say any time.
        let there = |back: &Back| (back.came as i64).saturating_sub(back.sent as i64);
        let home = |back: &Back| (back.here as i64).saturating_sub(back.left as i64);
        Ok(Trips::of(backs.map(|(_, back)| (there(back), home(back))).collect()))
    }

    fn state(&mut self) -> Result<Stream> {
        match self.further(Body::Stream(Stream::default()), ENDED, QUESTION)? {
            Body::Stream(stream) => Ok(stream),
            _ => bail!("{}: the server says something else than asked", self.at),
        }
    }

    /// Begins a stream, after those of others.
    fn start(&mut self, start: &Start, say: &mut dyn FnMut(&str)) -> Result<()> {
        let end = now() + QUEUE;
        let number = STARTS[usize::from(start.is_back)];
        let mut is_told = false;
        loop {
            let Body::Stream(stream) = self.further(Body::Start(*start), number, QUESTION)? else {
                bail!("{}: the server does not know streams", self.at)
            };
            if stream.phase != Phase::Busy {
                return Ok(());
            }
            ensure!(now() < end, "{}: another host's streams do not end", self.at);
            if !is_told {
                say("another host's stream runs there: waits");
                is_told = true;
            }
            self.listen(now() + ALIVE)?;
        }
    }

    fn stream_there(&mut self, start: &Start, say: &mut dyn FnMut(&str)) -> Result<Carried> {
        self.start(start, say)?;
        let note = self.note(Body::Flow, 0);
        let order = Order { to: self.at, start: *start, note, budget: u64::MAX };
        let (progress, socket) = (Progress::default(), self.ways[0].try_clone()?);
        std::thread::scope(|scope| {
            scope.spawn(|| flow::send(&socket, &order, &progress));
            let watched = self.watch(&progress);
            progress.stop.store(true, Ordering::Relaxed);
            watched
        })?;
        self.listen(now() + ROUND + self.round_trip)?;
        let got = self.state()?;
        Ok(Carried {
            frame: flow::frame(start.size.into(), self.at.is_ipv6()),
            sent: progress.datagrams.load(Ordering::Relaxed),
            sent_in: Span::from_nanos(progress.lasted.load(Ordering::Relaxed)),
            got: got.datagrams,
            got_in: Span::from_nanos(got.lasted),
            dropped: got.dropped,
        })
    }

    /// Waits for a sender, and lets the server know meanwhile that it is meant.
    fn watch(&mut self, progress: &Progress) -> Result<()> {
        let alive = encode(&self.note(Body::Stream(Stream::default()), RUNS), QUESTION);
        while !progress.is_done.load(Ordering::Acquire) {
            let _ = self.ways[0].send(&alive);
            self.listen(now() + ALIVE)?;
        }
        Ok(())
    }

    fn stream_back(&mut self, start: &Start) -> Result<Carried> {
        let dropped = control::dropped(&self.ways[0]).unwrap_or(0);
        self.arrivals = Arrivals::default();
        self.start(start, &mut |_| {})?;
        let alive = encode(&self.note(Body::Stream(Stream::default()), RUNS), QUESTION);
        let end = now() + Span::from_millis(start.millis.into()) + Span::from_secs(3);
        let mut state = Stream::default();
        let (mut asked, mut done) = (Time::from_nanos(0), None);
        let mut buffer = vec![0; BUFFER];
        // What is on the way when the server is done still counts.
        while now() < end && done.is_none_or(|at| now() < at + ROUND + self.round_trip) {
            self.is_stopped()?;
            if now().since(asked) >= ALIVE {
                asked = now();
                let _ = self.ways[0].send(&alive);
            }
            let mut socket = [PollFd::from_borrowed_fd(self.ways[0].as_fd(), PollFlags::IN)];
            sockets::wait(&mut socket, ALIVE);
            while let Ok(got) = sockets::receive(self.ways[0].as_fd(), &mut buffer) {
                for note in buffer[..got.octets].chunks(got.segment).filter_map(parse) {
                    match note.body {
                        _ if note.session != self.session => {}
                        Body::Flow => self.arrivals.add(now()),
                        Body::Stream(stream) => state = stream,
                        _ => {}
                    }
                }
                if now().since(asked) >= ALIVE {
                    break;
                }
            }
            if state.phase == Phase::Done && done.is_none() {
                done = Some(now());
            }
        }
        ensure!(done.is_some(), "{}: the server has stopped to answer", self.at);
        Ok(Carried {
            frame: flow::frame(start.size.into(), self.at.is_ipv6()),
            sent: state.datagrams,
            sent_in: Span::from_nanos(state.lasted),
            got: self.arrivals.datagrams,
            got_in: self.arrivals.lasted(),
            dropped: control::dropped(&self.ways[0]).unwrap_or(0).saturating_sub(dropped),
        })
    }
}

impl Drop for Prober<'_> {
    fn drop(&mut self) {
        // Else another prober waits a second for its turn.
        let _ = self.ways[0].send(&encode(&self.note(Body::Bye, 0), HEAD));
    }
}

fn refused(error: Option<i32>) -> Option<Silence> {
    (error.map(Errno::from_raw) == Some(Errno::ECONNREFUSED)).then_some(Silence::Refused)
}

/// The lengths to try between the largest that passed and the least that did not. None if these are
/// neighbours.
fn rungs((passed, failed): (Option<u16>, u16), least: u16) -> Vec<u16> {
    // What every way carries is tried, too.
    let below = passed.unwrap_or(least - 1);
    let gap = u32::from(failed.saturating_sub(below));
    let rung = |n: usize| below + (gap * n as u32 / (RUNGS as u32 + 1)) as u16;
    let mut sizes: Vec<u16> = (1..=RUNGS).map(rung).chain([below + 1]).collect();
    sizes.retain(|size| *size > below && *size < failed);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_close_in_on_the_largest_that_passes() {
        for (own, truth) in [(1500, 1450), (9000, 1500), (9000, 8999), (65_534, 1280), (1500, 1499)]
        {
            let mut bound = (None, own + 1);
            let (mut sizes, mut rounds, mut tried) = (vec![own], 0, 0);
            while !sizes.is_empty() {
                tried += sizes.len();
                for size in sizes {
                    match size <= truth {
                        true => bound.0 = bound.0.max(Some(size)),
                        false => bound.1 = bound.1.min(size),
                    }
                }
                rounds += 1;
                sizes = rungs(bound, LEAST[0]);
            }
            assert_eq!(bound.0, Some(truth), "of {own}");
            assert!(rounds <= 6 && 2 * tried <= PINGS - SIZES, "{rounds} rounds, {tried} sizes");
        }
    }

    #[test]
    fn a_way_that_carries_nothing_comes_to_an_end() {
        let mut bound = (None, 1501);
        let mut rounds = 0;
        while let Some(least) = rungs(bound, LEAST[0]).first() {
            bound.1 = *least;
            rounds += 1;
        }
        assert!(rounds <= 2 && bound == (None, LEAST[0]));
    }
}
