//! Agenda of one traffic entry: what it sends, and when.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::net::SocketAddr;
use weir_model::scenario::{Connections, Load, Request, Scenario, TrafficKind};
use weir_units::{Bytes, Span};

/// Most things that may wait for a connection. Any further one counts as never finished.
const WAITING: usize = 100_000;

/// Starts and sizes, ascending.
type Starts = Peekable<Box<dyn Iterator<Item = (Span, Bytes)> + Send>>;

/// How many connections an entry of this kind has at most at a time, if its starts wait for
/// answers.
pub(super) const fn bound(kind: &TrafficKind) -> Option<usize> {
    match kind {
        TrafficKind::Request(Request { load: Load::Closed { outstanding }, .. }) => {
            Some(*outstanding as usize)
        }
        TrafficKind::Shuffle { .. } => Some(1),
        _ => None,
    }
}

/// An entry's action at a moment of its agenda.
pub(super) enum Next {
    /// Something with this intended start and size is to be sent.
    Begin(Span, u64),
    Nothing,
}

/// One traffic entry.
pub(super) struct Entry {
    /// Its position in the scenario; the answers are the one behind.
    pub(super) traffic: usize,
    /// For messages.
    pub(super) name: String,
    pub(super) from: usize,
    pub(super) to: SocketAddr,
    pub(super) congestion: String,
    pub(super) stop: Span,
    /// Start of judging: earlier intended starts do not count.
    warmup: Span,
    /// Octets of an answer.
    pub(super) response: u64,
    /// Whether connections are used again.
    pub(super) keeps: bool,
    /// Connections at a time.
    pub(super) most: usize,
    starts: Starts,
    /// With a closed loop: the size of the request after an answer.
    follows: Option<u64>,
    /// Intended starts and sizes of what waits for a connection.
    pub(super) waiting: VecDeque<(Span, u64)>,
    /// Slots of idle connections.
    pub(super) idle: Vec<usize>,
    /// Connections that exist.
    pub(super) open: usize,
    pub(super) over: bool,
}

impl Entry {
    /// `open_loop`: as the model has it for the whole scenario.
    pub(super) fn new(scenario: &Scenario, index: usize, to: SocketAddr, open_loop: usize) -> Self {
        let traffic = &scenario.traffic[index];
        let kind = &traffic.kind;
        let start = traffic.start;
        let (response, keeps, follows) = match kind {
            TrafficKind::Request(request) => {
                let follows = matches!(request.load, Load::Closed { .. });
                let keeps = request.connections == Connections::Kept;
                (request.response.get(), keeps, follows.then(|| request.size.get()))
            }
            _ => (0, false, None),
        };
        // A shuffle is judged whenever it began: it has only one start.
        let warmup = match kind {
            TrafficKind::Shuffle { .. } => Span::ZERO,
            _ => scenario.warmup,
        };
        let name = |vm: usize| &scenario.vms[vm].name;
        Self {
            traffic: index,
            name: format!("{} → {}", name(traffic.from), name(traffic.to)),
            from: traffic.from,
            to,
            congestion: kind.congestion().unwrap_or("cubic").into(),
            stop: traffic.stop,
            warmup,
            response,
            keeps,
            most: bound(kind).unwrap_or(open_loop),
            starts: starts(kind, start).peekable(),
            follows,
            waiting: VecDeque::new(),
            idle: Vec::new(),
            open: 0,
            over: false,
        }
    }

    /// Time of the next start that does not wait for an answer.
    pub(super) fn when(&mut self) -> Span {
        self.starts.peek().map_or(self.stop, |(at, _)| *at)
    }

    /// The next thing, if it is not one that waits for an answer.
    pub(super) fn next(&mut self) -> Next {
        match self.starts.next() {
            Some((at, size)) => Next::Begin(at, size.get()),
            None => Next::Nothing,
        }
    }

    /// Size of the next request of a closed loop after an answer.
    pub(super) fn follows(&self, now: Span) -> Option<u64> {
        self.follows.filter(|_| now < self.stop)
    }

    /// Whether a start at this time is judged.
    pub(super) fn is_judged(&self, intended: Span) -> bool {
        intended >= self.warmup
    }

    /// Keeps something for later.
    pub(super) fn wait(&mut self, intended: Span, size: u64) {
        if self.waiting.len() < WAITING {
            self.waiting.push_back((intended, size));
        }
    }
}

/// What begins by itself, in time since the start of the scenario.
fn starts(kind: &TrafficKind, start: Span) -> Box<dyn Iterator<Item = (Span, Bytes)> + Send> {
    match kind {
        TrafficKind::Flows(flows) => {
            Box::new(flows.starts().map(move |(at, size)| (start + at, size)))
        }
        TrafficKind::Request(request) => {
            let size = request.size;
            match &request.load {
                Load::Open(arrivals) => {
                    Box::new(arrivals.starts().map(move |at| (start + at, size)))
                }
                Load::Closed { outstanding } => {
                    Box::new(std::iter::repeat_n((start, size), *outstanding as usize))
                }
            }
        }
        TrafficKind::Shuffle { octets, .. } => Box::new(std::iter::once((start, *octets))),
        _ => Box::new(std::iter::empty()),
    }
}
