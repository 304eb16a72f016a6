//! Requests and answers, short flows, shuffles.
//!
//! Problem   An application notices a time, counted from the moment at which something should have
//!           begun. Most of its connections live for milliseconds.
//! Approach  An entry has an agenda of starts. A line is the place of a connection: two flows,
//!           there and back. Their numbers are used again when no packet of the former connection
//!           can be under way. A connection opens with a segment of its own (the handshake) and
//!           carries one message at a time. The receiver decides when a message has arrived.
//! Promises  A time counts from the intended start, also if the message waited for a connection.
//!           The numbers of connections and of waiting messages are bounded. What is not done at
//!           the end is counted.
//! Not here  Starts and sizes: see `weir_model::scenario`. Closing: both ends forget the connection
//!           at once, like a reset.
//! Source    `weir-lab`'s `traffic/exchange`, which has the same rules and bounds.

use crate::host::Speaker;
use crate::rng::Rng;
use crate::tcp::Algorithm;
use std::collections::VecDeque;
use std::iter::Peekable;
use weir_model::observed;
use weir_model::scenario::Sizes;
use weir_units::{SortedMap, Span, SplitMix64, Time};

/// Most messages that wait for a connection. Any further one counts as never finished.
const WAITING: usize = 100_000;
/// Longest time in ns for which a packet may be under way after its connection's end.
pub(crate) const QUARANTINE: u64 = 30_000_000_000;

/// Starts in ns and sizes in octets, ascending.
type Starts = Box<dyn Iterator<Item = (u64, u64)> + Send>;

/// Guests at both ends of a flow, the data's source first.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Guests {
    pub(crate) vms: (u32, u32),
    /// Start of their kernels, in ns before the run.
    pub(crate) booted: (u64, u64),
    /// Their ECN; `None`: as the run's TCP.
    pub(crate) speakers: Option<(Speaker, Speaker)>,
    /// Whether the packets in their hosts' shapers still belong to their sockets.
    pub(crate) own: (bool, bool),
    /// Whether their kernels lack RACK-TLP.
    pub(crate) old: (bool, bool),
    /// Whether they ignore the ECN that they agreed on.
    pub(crate) deaf: (bool, bool),
}

/// Traffic of one entry.
pub(crate) struct ExchangeSpec {
    /// Nodes of the client and of the server.
    pub(crate) ends: (u32, u32),
    pub(crate) guests: Guests,
    /// Links there and back, for all equal paths.
    pub(crate) ways: (Vec<Vec<u32>>, Vec<Vec<u32>>),
    /// Whether packets take all paths in turn. Otherwise each connection takes one, drawn from the
    /// seed.
    pub(crate) by_packet: bool,
    pub(crate) algorithm: Algorithm,
    /// What begins by itself.
    pub(crate) starts: Starts,
    /// End of the traffic, in ns, and the time before which nothing is judged.
    pub(crate) stop: u64,
    pub(crate) warmup: u64,
    /// Octets of an answer; none if zero.
    pub(crate) response: u64,
    /// Octets of the next request after an answer, in a closed loop.
    pub(crate) follows: Option<u64>,
    /// Whether connections are used again.
    pub(crate) keeps: bool,
    /// What begins flows, if not `starts`.
    pub(crate) client: Option<ClientSpec>,
    /// Most connections at a time.
    pub(crate) most: usize,
}

/// A sender that has one flow at a time, to any of its entries' destinations.
#[derive(Clone, Debug)]
pub(crate) struct ClientSpec {
    pub(crate) start: u64,
    /// Longest pause, ns, and its chance.
    pub(crate) pause: u64,
    pub(crate) chance: f64,
    pub(crate) sizes: Sizes,
    /// Entries of one sender have the same.
    pub(crate) seed: u64,
}

/// The same at work.
#[derive(Debug)]
pub(crate) struct Client {
    spec: ClientSpec,
    /// The entries among which it chooses.
    entries: Vec<u32>,
    draw: SplitMix64,
}

impl Client {
    /// The next flow, when the last one was done at `now`: its entry, start and size.
    fn next(&mut self, now: u64) -> (u32, u64, u64) {
        let Self { spec, entries, draw } = self;
        let is_pause = draw.unit() <= spec.chance;
        let pause = if is_pause { draw.below(spec.pause.max(1)) } else { 0 };
        let entry = entries[draw.below(entries.len() as u64) as usize];
        (entry, now + pause, spec.sizes.at(draw.unit()).get())
    }
}

/// Result of everything that was due in one entry.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Work {
    /// Number that should have begun in the measured time.
    pub due: u64,
    /// Number of these that were done.
    pub done: u64,
    /// When the last of them was done.
    pub last: Time,
    /// Duration of each, in the order of their ends.
    pub times: Vec<Span>,
}

impl Work {
    /// The same as every world tells it.
    pub(crate) fn rounded(&self) -> observed::Work {
        let (due, done, last) = (self.due, self.done, self.last.since(Time::ZERO));
        let mut told = observed::Work { due, done, last, ..observed::Work::default() };
        for took in &self.times {
            // A histogram that grows by itself takes every value.
            told.times.record(took.as_nanos().max(1)).expect("it grows");
        }
        told
    }
}

/// One traffic entry.
pub(crate) struct Entry {
    pub(crate) ends: (u32, u32),
    pub(crate) guests: Guests,
    /// Where its routes begin.
    routes: (Vec<u32>, Vec<u32>),
    /// Packets take several ways in turn, there and back.
    pub(crate) sprayed: (bool, bool),
    chance: Rng,
    /// Pairs of its data there and back, if there are agents.
    pub(crate) pairs: (u32, u32),
    pub(crate) algorithm: Algorithm,
    starts: Peekable<Starts>,
    /// Starts and sizes that its client has decided, ascending.
    decided: VecDeque<(u64, u64)>,
    pub(crate) client: Option<u32>,
    asked: Option<ClientSpec>,
    pub(crate) stop: u64,
    warmup: u64,
    pub(crate) response: u64,
    pub(crate) follows: Option<u64>,
    pub(crate) keeps: bool,
    pub(crate) most: usize,
    /// Intended starts and sizes of the messages that wait for a connection.
    waiting: VecDeque<(u64, u64)>,
    /// Lines that are connected and idle.
    pub(crate) idle: Vec<u32>,
    /// Lines that were closed, with the time.
    closed: VecDeque<(u64, u32)>,
    /// Connections that exist.
    pub(crate) open: usize,
    pub(crate) over: bool,
    /// Octets of messages that are complete, or whose connections have ended: there and back.
    pub(crate) octets: [u64; 2],
    pub(crate) work: Work,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { ends, open, octets, work, .. } = self;
        write!(f, "Entry {{ ends: {ends:?}, open: {open}, octets: {octets:?}, {work:?} }}")
    }
}

/// A message under way: its octets, and the segments from the first to one more than its last.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) octets: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
}

impl Message {
    /// Octets of it that have arrived when `expected` comes next.
    pub(crate) fn arrived(&self, expected: u32, segment: u64) -> u64 {
        (u64::from(expected.saturating_sub(self.from)) * segment).min(self.octets)
    }
}

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Closed,
    /// It is being opened, for a message of so many octets.
    Opening(u64),
    Idle,
    Asking(Message),
    Answering(Message),
}

/// The place of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) entry: u32,
    pub(crate) state: State,
    /// Intended start of its present message, ns.
    pub(crate) intended: u64,
    /// Time of its last activity, ns.
    pub(crate) used_at: u64,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    pub(crate) entries: Vec<Entry>,
    pub(crate) lines: Vec<Line>,
    pub(crate) clients: Vec<Client>,
}

impl Exchanges {
    /// Entries, and the clients of those that have one.
    pub(crate) fn new(mut entries: Vec<Entry>) -> Self {
        let mut clients: Vec<Client> = Vec::new();
        let mut numbers: SortedMap<u64, u32> = SortedMap::new();
        for (place, entry) in (0..).zip(&mut entries) {
            let Some(spec) = entry.asked.take() else { continue };
            let client = *numbers.entry(spec.seed).or_insert_with(|| {
                let draw = SplitMix64::new(spec.seed);
                clients.push(Client { spec, entries: Vec::new(), draw });
                clients.len() as u32 - 1
            });
            clients[client as usize].entries.push(place);
            entry.client = Some(client);
        }
        let mut all = Self { entries, lines: Vec::new(), clients };
        for client in 0..all.clients.len() as u32 {
            let start = all.clients[client as usize].spec.start;
            all.decide(client, start);
        }
        all
    }

    /// A client decides on its next flow; returns the entry and the start.
    pub(crate) fn decide(&mut self, client: u32, now: u64) -> (u32, u64) {
        let (entry, at, size) = self.clients[client as usize].next(now);
        self.entries[entry as usize].decided.push_back((at, size));
        (entry, at)
    }
}

impl Entry {
    pub(crate) fn new(
        spec: ExchangeSpec,
        routes: (Vec<u32>, Vec<u32>),
        chance: Rng,
        pairs: (u32, u32),
    ) -> Self {
        Self {
            ends: spec.ends,
            guests: spec.guests,
            routes,
            sprayed: (
                spec.by_packet && spec.ways.0.len() > 1,
                spec.by_packet && spec.ways.1.len() > 1,
            ),
            chance,
            pairs,
            algorithm: spec.algorithm,
            starts: spec.starts.peekable(),
            decided: VecDeque::new(),
            client: None,
            asked: spec.client,
            stop: spec.stop,
            warmup: spec.warmup,
            response: spec.response,
            follows: spec.follows,
            keeps: spec.keeps,
            most: spec.most,
            waiting: VecDeque::new(),
            idle: Vec::new(),
            closed: VecDeque::new(),
            open: 0,
            over: false,
            octets: [0; 2],
            work: Work::default(),
        }
    }

    /// The routes of a new connection, there and back.
    pub(crate) fn route(&mut self) -> (u32, u32) {
        let Self { routes, chance, .. } = self;
        let mut one = |routes: &[u32]| match *routes {
            [one] => one,
            ref several => several[(chance.next() % several.len() as u64) as usize],
        };
        (one(&routes.0), one(&routes.1))
    }

    /// Time of the next start, or of the end.
    pub(crate) fn when(&mut self) -> u64 {
        let decided = self.decided.front().map(|(at, _)| *at);
        let starts = self.starts.peek().map(|(at, _)| *at);
        decided.into_iter().chain(starts).min().map_or(self.stop, |at| at.min(self.stop))
    }

    /// The next message that should have begun by `now`.
    pub(crate) fn next(&mut self, now: u64) -> Option<(u64, u64)> {
        if self.decided.front().is_some_and(|(at, _)| *at <= now) {
            return self.decided.pop_front();
        }
        self.starts.next_if(|(at, _)| *at <= now)
    }

    /// Whether a start at this time is judged.
    fn is_judged(&self, intended: u64) -> bool {
        intended >= self.warmup
    }

    pub(crate) fn due(&mut self, intended: u64) {
        self.work.due += u64::from(self.is_judged(intended));
    }

    pub(crate) fn done(&mut self, intended: u64, now: u64) {
        if self.is_judged(intended) {
            self.work.done += 1;
            self.work.last = Time::from_nanos(now);
            self.work.times.push(Span::from_nanos(now - intended));
        }
    }

    /// Keeps something for later.
    pub(crate) fn wait(&mut self, intended: u64, size: u64) {
        if self.waiting.len() < WAITING {
            self.waiting.push_back((intended, size));
        }
    }

    /// The message that has waited longest.
    pub(crate) fn turn(&mut self) -> Option<(u64, u64)> {
        self.waiting.pop_front()
    }

    /// Nothing begins any more.
    pub(crate) fn end(&mut self) {
        self.over = true;
        self.waiting.clear();
    }

    /// A line that was closed long ago.
    pub(crate) fn reuse(&mut self, now: u64) -> Option<u32> {
        let &(at, line) = self.closed.front()?;
        if now < at + QUARANTINE {
            return None;
        }
        self.closed.pop_front();
        Some(line)
    }

    /// A line is closed at `now`.
    pub(crate) fn closed(&mut self, now: u64, line: u32) {
        self.open -= 1;
        self.idle.retain(|idle| *idle != line);
        self.closed.push_back((now, line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(starts: &[(u64, u64)]) -> Entry {
        let starts = starts.to_vec();
        let spec = ExchangeSpec {
            ends: (0, 1),
            guests: Guests::default(),
            ways: (vec![vec![0]], vec![vec![1]]),
            by_packet: false,
            algorithm: Algorithm::Cubic,
            starts: Box::new(starts.into_iter()),
            stop: 1000,
            warmup: 100,
            response: 0,
            follows: None,
            keeps: false,
            client: None,
            most: 1,
        };
        Entry::new(spec, (vec![4, 5, 6], vec![9]), Rng::new(1, 1), (0, 0))
    }

    #[test]
    fn what_should_have_begun_before_the_warmup_is_over_is_not_judged() {
        let mut entry = entry(&[]);
        for (intended, end) in [(99, 400), (100, 160), (500, 700)] {
            entry.due(intended);
            entry.done(intended, end);
        }
        entry.due(900);
        let times = [60, 200].map(Span::from_nanos).to_vec();
        let last = Time::from_nanos(700);
        assert_eq!(entry.work, Work { due: 3, done: 2, last, times });
    }

    #[test]
    fn things_begin_when_they_should_and_nothing_after_the_stop() {
        let mut entry = entry(&[(5, 1), (5, 2), (9, 3), (2000, 4)]);
        assert_eq!(entry.when(), 5);
        assert_eq!(
            [entry.next(5), entry.next(5), entry.next(5)],
            [Some((5, 1)), Some((5, 2)), None]
        );
        assert_eq!(entry.next(100), Some((9, 3)));
        assert_eq!(entry.when(), 1000);
    }

    #[test]
    fn a_line_is_used_again_only_when_nothing_of_it_can_be_under_way() {
        let mut entry = entry(&[]);
        entry.open = 2;
        entry.closed(10, 7);
        entry.closed(20, 8);
        assert_eq!(entry.reuse(QUARANTINE), None);
        assert_eq!(entry.reuse(QUARANTINE + 10), Some(7));
        assert_eq!((entry.reuse(QUARANTINE + 10), entry.open), (None, 0));
    }

    #[test]
    fn each_connection_takes_one_of_the_ways() {
        let mut entry = entry(&[]);
        let mut taken = [0; 3];
        for (there, back) in (0..300).map(|_| entry.route()) {
            taken[there as usize - 4] += 1;
            assert_eq!(back, 9);
        }
        assert!(taken.iter().all(|n| (70..130).contains(n)), "{taken:?}");
    }

    #[test]
    fn of_a_message_no_more_arrives_than_it_has() {
        let message = Message { octets: 2000, from: 3, to: 5 };
        let arrived = [2, 3, 4, 5, 6].map(|expected| message.arrived(expected, 1448));
        assert_eq!(arrived, [0, 0, 1448, 2000, 2000]);
    }
}
