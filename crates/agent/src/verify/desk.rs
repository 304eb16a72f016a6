//! The server's state: which probers it believes, and what it answers.
//!
//! Problem   A server that answers datagrams can be made to send to others, by a forged source, and
//!           must survive whatever comes.
//! Approach  A hello is answered with a token, which only the owner of the source address gets to see. All
//!           else needs the token. State is kept for a prober that has shown it, for few of them.
//! Promises  No answer is longer than its question. A stream back takes no more octets than the prober's
//!           own stream brought. Answers per second, probers and streams are bounded; a stream
//!           stops when its prober is silent.
//! Not here  Sockets and threads: see `serve`.

use super::flow::{Arrivals, Order, Progress};
use super::header::{Came, Marks, build};
use super::keys::Greeter;
use super::note::{
    Body, HEAD, HELLO, Judged, KIND_AT, Note, Phase, Probe, SIGHTS, Start, Stream, VERSION,
    Welcome, encode, parse,
};
use super::probes::NUMBERS;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_units::{Span, Time};

/// Probers at a time. More are not answered until one has been silent for [`FORGET`].
const PROBERS: usize = 64;
/// A prober that is silent for so long may lose its place to another one.
const FORGET: Span = Span::from_secs(5);
/// A stream ends when its prober is silent for so long.
const SILENCE: Span = Span::from_millis(1000);
/// Answers per second, and at once. One prober asks at most 2000 per second.
const ANSWERS: u64 = 10_000;
const AT_ONCE: u64 = 2_000;
/// Addresses that are named when they ask first. A forged source has a line, too.
const TOLD: usize = 1000;
/// A stream lasts no longer.
const LONGEST: u32 = 60_000;

/// A prober: its address, and its session's number.
type Asker = (IpAddr, u64);

/// A stream back that is to be sent, and where its sender says how far it is.
type Begun = (Order, Arc<Progress>);

/// The state of `weir verify serve`.
pub(crate) struct Desk {
    /// Makes tokens; drawn at the start.
    secret: RandomState,
    port: u16,
    mtu: u16,
    has_agent: bool,
    greeter: Option<Greeter>,
    probers: BTreeMap<Asker, Prober>,
    /// The asker of the stream that runs, and the sender of a stream back.
    stream: Option<(Asker, Option<Arc<Progress>>)>,
    allowance: Allowance,
    /// Addresses that have asked.
    asked: BTreeSet<IpAddr>,
    /// The last of them, until it is told.
    newcomer: Option<IpAddr>,
    /// Datagrams that got no answer, because they were nonsense or too many.
    ignored: u64,
}

struct Prober {
    heard: Time,
    sights: Vec<Option<Marks>>,
    /// Of its own stream.
    arrivals: Arrivals,
    /// Octets of its own stream less those of streams back.
    earned: u64,
    /// What the socket had dropped when the stream began.
    dropped: u64,
}

/// An answer, and a stream that begins with it.
pub(crate) struct Answer {
    pub(crate) octets: Vec<u8>,
    pub(crate) order: Option<Begun>,
}

impl Desk {
    pub(crate) fn new(
        secret: RandomState,
        (port, mtu): (u16, u16),
        has_agent: bool,
        greeter: Option<Greeter>,
    ) -> Self {
        Self {
            secret,
            port,
            mtu,
            has_agent,
            greeter,
            probers: BTreeMap::new(),
            stream: None,
            allowance: Allowance { left: AT_ONCE, at: Time::from_nanos(0) },
            asked: BTreeSet::new(),
            newcomer: None,
            ignored: 0,
        }
    }

    /// A datagram that came to the socket. `dropped` tells how many found no room there.
    pub(crate) fn hear(
        &mut self,
        at: Time,
        from: SocketAddr,
        octets: &[u8],
        dropped: &dyn Fn() -> u64,
    ) -> Option<Answer> {
        let answer = self.judge(at, from, octets, dropped);
        self.ignored += u64::from(answer.is_err());
        answer.ok().flatten()
    }

    /// `Err`: it deserves no answer. `Ok(None)`: it needs none.
    fn judge(
        &mut self,
        at: Time,
        from: SocketAddr,
        octets: &[u8],
        dropped: &dyn Fn() -> u64,
    ) -> Result<Option<Answer>, ()> {
        let note = parse(octets).ok_or(())?;
        let asker = (from.ip(), note.session);
        let is_known = note.token == self.token(asker);
        let reply = |body: Body| Some(Note { body, ..note.clone() });
        let mut order = None;
        let reply = match &note.body {
            Body::Hello => {
                let welcome = Welcome {
                    seen: from,
                    mtu: self.mtu,
                    has_agent: self.has_agent,
                    release: env!("CARGO_PKG_VERSION").into(),
                };
                let token = self.token(asker);
                if self.asked.len() < TOLD && self.asked.insert(asker.0) {
                    self.newcomer = Some(asker.0);
                }
                Some(Note { token, body: Body::Welcome(welcome), ..note.clone() })
            }
            Body::Other(_) if octets[KIND_AT] == HELLO => reply(Body::Other(VERSION)),
            _ if !is_known => return Err(()),
            Body::Flow => {
                let prober = self.prober(at, asker).ok_or(())?;
                prober.arrivals.add(at);
                prober.earned = prober.earned.saturating_add(octets.len() as u64);
                None
            }
            // The raw socket has it as well.
            Body::Probe(_) => None,
            Body::Ask => {
                let prober = self.prober(at, asker).ok_or(())?;
                let first = (note.number as usize).min(NUMBERS);
                let mut sights = prober.sights[first..].to_vec();
                sights.resize(SIGHTS, None);
                reply(Body::Report(sights))
            }
            Body::Greet(greeting) => {
                self.prober(at, asker).ok_or(())?;
                let (judged, greeting) = self.greet(from.ip(), greeting);
                reply(Body::Greeted { judged, greeting })
            }
            Body::Start(start) => {
                let (stream, begun) =
                    self.start(at, asker, &note, from, start, dropped()).ok_or(())?;
                order = begun;
                reply(Body::Stream(stream))
            }
            Body::Stream(_) => {
                self.prober(at, asker).ok_or(())?;
                reply(Body::Stream(self.progress(asker, dropped())))
            }
            Body::Bye => {
                self.end(asker);
                self.probers.remove(&asker);
                None
            }
            _ => return Err(()),
        };
        let Some(reply) = reply else { return Ok(None) };
        let octets = self.answer(at, &reply, octets.len()).ok_or(())?;
        Ok(Some(Answer { octets, order }))
    }

    /// A probe that came to the raw socket. Gives a whole packet, and where it goes.
    pub(crate) fn look(
        &mut self,
        at: Time,
        wall: u64,
        came: &Came,
        octets: &[u8],
    ) -> Option<(Vec<u8>, SocketAddr)> {
        let note = parse(octets)?;
        let asker = (came.from.ip(), note.session);
        let Body::Probe(Probe { back, is_outer, sent }) = note.body else { return None };
        let is_known = note.token == self.token(asker);
        // Answers to other ports than the prober's go to tunnels' ports alone.
        if !is_known || (came.to.port() != self.port && !is_outer) {
            self.ignored += 1;
            return None;
        }
        let sight = self.prober(at, asker)?.sights.get_mut(note.number as usize)?;
        sight.get_or_insert(came.marks);
        let body = Body::Back { sent, came: wall, left: wall };
        let answer = self.answer(at, &Note { body, ..note }, octets.len())?;
        let (mut from, mut to) = (came.to, came.from);
        if is_outer {
            from.set_port(came.from.port());
            to.set_port(came.to.port());
        }
        Some((build(from, to, back, &answer), to))
    }

    /// An address that has asked for the first time.
    pub(crate) fn newcomer(&mut self) -> Option<IpAddr> {
        self.newcomer.take()
    }

    /// Datagrams without an answer.
    pub(crate) const fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Ends the stream of a prober that is silent.
    pub(crate) fn turn(&mut self, at: Time) {
        let silent = |asker: &Asker| {
            self.probers.get(asker).is_none_or(|prober| at.since(prober.heard) > SILENCE)
        };
        if let Some(asker) = self.stream.as_ref().map(|(asker, _)| *asker).filter(silent) {
            self.end(asker);
        }
    }

    /// Ends the stream that runs.
    pub(crate) fn stop(&mut self) {
        if let Some((asker, _)) = self.stream {
            self.end(asker);
        }
    }

    fn token(&self, asker: Asker) -> u64 {
        self.secret.hash_one(asker).max(1)
    }

    /// Octets of an answer, as many as its question had. None if there are too many answers.
    fn answer(&mut self, at: Time, note: &Note, question: usize) -> Option<Vec<u8>> {
        let octets = encode(note, question);
        (octets.len() <= question && self.allowance.take(at)).then_some(octets)
    }

    /// A prober that has shown its token.
    fn prober(&mut self, at: Time, asker: Asker) -> Option<&mut Prober> {
        if !self.probers.contains_key(&asker) && self.probers.len() >= PROBERS {
            let (oldest, prober) = self.probers.iter().min_by_key(|(_, p)| p.heard)?;
            if at.since(prober.heard) < FORGET {
                return None;
            }
            let oldest = *oldest;
            self.end(oldest);
            self.probers.remove(&oldest);
        }
        let prober = self.probers.entry(asker).or_insert_with(|| Prober {
            heard: at,
            sights: vec![None; NUMBERS],
            arrivals: Arrivals::default(),
            earned: 0,
            dropped: 0,
        });
        prober.heard = at;
        Some(prober)
    }

    fn greet(&self, from: IpAddr, greeting: &[u8]) -> (Judged, Vec<u8>) {
        let Some(greeter) = &self.greeter else { return (Judged::Unconfigured, Vec::new()) };
        let Some(host) = greeter.host_at(from) else {
            let why = format!("no host of the directory there has {from}");
            return (Judged::Refused(why), Vec::new());
        };
        (greeter.judge(host, greeting), greeter.greeting(host).unwrap_or_default())
    }

    fn start(
        &mut self,
        at: Time,
        asker: Asker,
        note: &Note,
        from: SocketAddr,
        start: &Start,
        dropped: u64,
    ) -> Option<(Stream, Option<Begun>)> {
        self.turn(at);
        let prober = self.prober(at, asker)?;
        let is_sound = start.rate > 0 && start.millis <= LONGEST && usize::from(start.size) >= HEAD;
        if !is_sound {
            return None;
        }
        let earned = prober.earned;
        match &self.stream {
            Some((other, _)) if *other != asker => {
                let stream = Stream { phase: Phase::Busy, ..Stream::default() };
                return Some((stream, None));
            }
            // The question came twice: its answer was lost.
            Some((_, Some(_))) if start.is_back => {
                return Some((self.progress(asker, dropped), None));
            }
            _ => {}
        }
        // One that runs back gives way to a new one there.
        self.end(asker);
        let prober = self.prober(at, asker)?;
        let running = Stream { phase: Phase::Running, ..Stream::default() };
        if !start.is_back {
            (prober.arrivals, prober.dropped) = (Arrivals::default(), dropped);
            self.stream = Some((asker, None));
            return Some((running, None));
        }
        prober.earned = 0;
        let progress = Arc::new(Progress::default());
        self.stream = Some((asker, Some(Arc::clone(&progress))));
        let note = Note { body: Body::Flow, ..note.clone() };
        let order = Order { to: from, start: *start, note, budget: earned };
        Some((running, Some((order, progress))))
    }

    /// What became of a prober's stream.
    fn progress(&self, asker: Asker, dropped: u64) -> Stream {
        let own = self.stream.as_ref().filter(|(other, _)| *other == asker);
        if let Some((_, Some(sender))) = own {
            let is_done = sender.is_done.load(Ordering::Acquire);
            return Stream {
                phase: if is_done { Phase::Done } else { Phase::Running },
                datagrams: sender.datagrams.load(Ordering::Relaxed),
                lasted: sender.lasted.load(Ordering::Relaxed),
                dropped: 0,
            };
        }
        let Some(prober) = self.probers.get(&asker) else { return Stream::default() };
        Stream {
            phase: if own.is_some() { Phase::Running } else { Phase::None },
            datagrams: prober.arrivals.datagrams,
            lasted: prober.arrivals.lasted().as_nanos(),
            dropped: dropped.saturating_sub(prober.dropped),
        }
    }

    fn end(&mut self, asker: Asker) {
        if let Some((_, Some(sender))) = self.stream.take_if(|(other, _)| *other == asker) {
            sender.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Bounds the answers.
struct Allowance {
    left: u64,
    at: Time,
}

impl Allowance {
    fn take(&mut self, at: Time) -> bool {
        let span = at.since(self.at);
        let more = u128::from(span.as_nanos()) * u128::from(ANSWERS) / 1_000_000_000;
        if more > 0 {
            self.left = AT_ONCE.min(self.left + u64::try_from(more).unwrap_or(AT_ONCE));
            self.at = at;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::super::note::{QUESTION, REPORT};
    use super::*;

    const PORT: u16 = 7001;

    fn desk() -> Desk {
        Desk::new(RandomState::new(), (PORT, 1500), false, None)
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn from(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 9000))
    }

    fn ask(desk: &mut Desk, ms: u64, host: u8, note: &Note, length: usize) -> Option<Note> {
        let octets = encode(note, length);
        let answer = desk.hear(at(ms), from(host), &octets, &|| 0)?;
        assert!(answer.octets.len() <= octets.len(), "{note:?} is amplified");
        parse(&answer.octets)
    }

    fn note(session: u64, token: u64, body: Body) -> Note {
        Note { session, token, number: 0, body }
    }

    fn token(desk: &mut Desk, ms: u64, host: u8, session: u64) -> u64 {
        let hello = note(session, 0, Body::Hello);
        let welcome = ask(desk, ms, host, &hello, QUESTION).expect("a hello is answered");
        assert!(
            matches!(welcome.body, Body::Welcome(ref w) if w.seen == from(host)),
            "{welcome:?}"
        );
        welcome.token
    }

    fn begin(is_back: bool) -> Body {
        Body::Start(Start { is_back, rate: 1_000_000, millis: 1000, size: 1000 })
    }

    fn state(note: Option<Note>) -> Stream {
        match note.expect("an answer").body {
            Body::Stream(stream) => stream,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_its_address_token_nothing_is_answered_and_nothing_is_kept() {
        let mut desk = desk();
        let stolen = token(&mut desk, 0, 1, 5);
        for (host, session, token) in [(1, 5, 0), (1, 6, stolen), (2, 5, stolen)] {
            for body in [Body::Ask, begin(false), begin(true), Body::Greet(vec![]), Body::Flow] {
                let ask = ask(&mut desk, 1, host, &note(session, token, body), REPORT);
                assert!(ask.is_none(), "{ask:?}");
            }
        }
        assert!(desk.probers.is_empty());
        assert_eq!((desk.ignored(), desk.newcomer()), (15, Some(from(1).ip())));
        token(&mut desk, 1, 1, 6);
        assert_eq!(desk.newcomer(), None, "it has asked before");
        assert!(ask(&mut desk, 1, 1, &note(5, stolen, Body::Ask), REPORT).is_some());
    }

    #[test]
    fn a_question_that_is_shorter_than_its_answer_gets_none() {
        let mut desk = desk();
        let token = token(&mut desk, 0, 1, 5);
        assert!(ask(&mut desk, 0, 1, &note(5, 0, Body::Hello), HEAD).is_none());
        assert!(ask(&mut desk, 0, 1, &note(5, token, Body::Ask), QUESTION).is_none());
        let report = ask(&mut desk, 0, 1, &note(5, token, Body::Ask), REPORT);
        assert!(matches!(report.map(|n| n.body), Some(Body::Report(s)) if s.len() == SIGHTS));
        let last = Note { number: u32::MAX, ..note(5, token, Body::Ask) };
        assert!(ask(&mut desk, 0, 1, &last, REPORT).is_some(), "a number beyond all");
    }

    #[test]
    fn a_probe_is_remembered_and_its_answer_has_the_headers_that_were_asked_for() {
        let mut desk = desk();
        let token = token(&mut desk, 0, 1, 5);
        let back = Marks { tos: 0x28, dont_fragment: true, reserved: true, id: 77 };
        let seen = Marks { tos: 0, ..back };
        let probe = |is_outer| Body::Probe(Probe { back, is_outer, sent: 3 });
        let octets = encode(&Note { number: 9, ..note(5, token, probe(false)) }, 200);
        let to = |port| SocketAddr::from(([10, 0, 0, 9], port));
        let came = Came { from: from(1), to: to(PORT), marks: seen };
        let (packet, sent_to) = desk.look(at(1), 40, &came, &octets).expect("an answer");
        let (answer, payload) = super::super::header::read4(&packet).expect("a packet");
        assert_eq!((answer.from, answer.to, sent_to), (to(PORT), from(1), from(1)));
        assert_eq!((answer.marks, payload.len()), (back, octets.len()));
        let body = parse(payload).expect("a note").body;
        assert_eq!(body, Body::Back { sent: 3, came: 40, left: 40 });
        let report = ask(&mut desk, 2, 1, &note(5, token, Body::Ask), REPORT);
        let Some(Note { body: Body::Report(sights), .. }) = report else { panic!("{report:?}") };
        assert_eq!(sights.iter().position(Option::is_some), Some(9));
        assert_eq!(sights[9], Some(seen));
        // A tunnel's packets go to the tunnel's port in both directions.
        let outer = Came { to: to(4789), ..came };
        assert!(desk.look(at(1), 0, &outer, &octets).is_none(), "a port that is not ours");
        let octets = encode(&Note { number: 10, ..note(5, token, probe(true)) }, 200);
        let (packet, _) = desk.look(at(1), 0, &outer, &octets).expect("an answer");
        let (answer, _) = super::super::header::read4(&packet).expect("a packet");
        assert_eq!((answer.from.port(), answer.to.port()), (9000, 4789));
    }

    #[test]
    fn a_stream_back_has_no_more_octets_than_the_stream_there_and_stops_with_its_prober() {
        let mut desk = desk();
        let token = token(&mut desk, 0, 1, 5);
        let started = ask(&mut desk, 0, 1, &note(5, token, begin(false)), QUESTION);
        assert_eq!(state(started).phase, Phase::Running);
        for ms in 1..=7 {
            assert!(ask(&mut desk, ms, 1, &note(5, token, Body::Flow), 1000).is_none());
        }
        let asked = note(5, token, Body::Stream(Stream::default()));
        let seen = state(ask(&mut desk, 8, 1, &asked, QUESTION));
        assert_eq!((seen.datagrams, seen.lasted), (7, 6_000_000));
        let octets = encode(&note(5, token, begin(true)), QUESTION);
        let order = desk.hear(at(9), from(1), &octets, &|| 0).and_then(|answer| answer.order);
        let (order, progress) = order.expect("a stream");
        assert_eq!((order.budget, order.to), (7000, from(1)));
        let again = desk.hear(at(9), from(1), &octets, &|| 0).expect("an answer");
        assert!(again.order.is_none(), "it runs");
        desk.turn(at(900));
        assert!(!progress.stop.load(Ordering::Relaxed));
        desk.turn(at(1100));
        assert!(progress.stop.load(Ordering::Relaxed), "its prober is silent");
        let order = desk.hear(at(1101), from(1), &octets, &|| 0).and_then(|answer| answer.order);
        let (order, progress) = order.expect("a stream");
        assert_eq!(order.budget, 0, "it is used up");
        ask(&mut desk, 1102, 1, &note(5, token, begin(false)), QUESTION).expect("an answer");
        assert!(progress.stop.load(Ordering::Relaxed), "two would run");
    }

    #[test]
    fn one_stream_runs_at_a_time() {
        let mut desk = desk();
        let (first, second) = (token(&mut desk, 0, 1, 5), token(&mut desk, 0, 2, 6));
        let mut start = |ms, host, session, token| {
            state(ask(&mut desk, ms, host, &note(session, token, begin(false)), QUESTION)).phase
        };
        assert_eq!(start(0, 1, 5, first), Phase::Running);
        assert_eq!(start(1, 2, 6, second), Phase::Busy);
        assert_eq!(start(1200, 2, 6, second), Phase::Running, "the first was silent");
        assert_eq!(start(1200, 1, 5, first), Phase::Busy);
        assert!(ask(&mut desk, 1201, 2, &note(6, second, Body::Bye), QUESTION).is_none());
        assert!(desk.stream.is_none());
    }

    #[test]
    fn answers_and_probers_are_bounded() {
        let mut desk = desk();
        let hello = encode(&note(5, 0, Body::Hello), QUESTION);
        let answered = |desk: &mut Desk, ms: u64| {
            (0..5000).filter(|_| desk.hear(at(ms), from(1), &hello, &|| 0).is_some()).count() as u64
        };
        assert_eq!(answered(&mut desk, 1000), AT_ONCE);
        assert_eq!(answered(&mut desk, 1100), ANSWERS / 10);
        for session in 0..=PROBERS as u64 {
            let token = token(&mut desk, 3000 + session, 1, session);
            let is_answered =
                ask(&mut desk, 3000 + session, 1, &note(session, token, Body::Ask), REPORT);
            assert_eq!(is_answered.is_some(), session < PROBERS as u64, "{session}");
        }
        let token = token(&mut desk, 9000, 1, 999);
        assert!(ask(&mut desk, 9000, 1, &note(999, token, Body::Ask), REPORT).is_some());
        assert_eq!(desk.probers.len(), PROBERS);
    }

    #[test]
    fn noise_is_ignored_and_another_version_is_told_ours() {
        let mut desk = desk();
        let mut chance = weir_units::SplitMix64::new(3);
        for _ in 0..5000 {
            let mut noise = encode(&note(5, 0, begin(true)), HEAD);
            noise.truncate(chance.below(80) as usize);
            noise.iter_mut().skip(9).for_each(|octet| *octet = chance.next() as u8);
            assert!(desk.hear(at(1), from(1), &noise, &|| 0).is_none_or(|a| a.order.is_none()));
        }
        let mut octets = encode(&note(5, 0, Body::Hello), QUESTION);
        octets[8] = VERSION + 1;
        let answer = desk.hear(at(3), from(1), &octets, &|| 0).expect("an answer");
        assert_eq!(answer.octets[8], VERSION);
        assert_eq!(parse(&answer.octets).map(|n| n.body), Some(Body::Other(VERSION)));
        let mut echo = answer.octets;
        echo[8] = VERSION + 1;
        assert!(desk.hear(at(3), from(1), &echo, &|| 0).is_none(), "servers would go on for ever");
    }
}
