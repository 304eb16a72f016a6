//! Traffic that comes and goes: requests, short flows, shuffles, memcached, programs.
//!
//! Problem   An application notices a time and not a rate: of an answer, of a short flow, of a
//!           whole shuffle. Every world must ask for the same things at the same moments.
//! Approach  When things start, how large they are and where they go follows from a seed alone,
//!           which follows from the entry's position in the file.
//! Promises  The same scenario gives the same starts, sizes and destinations, in every world, under
//!           every mechanism, in every repeat.
//! Not here  Keys (`spec::traffic`), tables of sizes (`sizes`), sockets.

mod memcached;
mod sizes;

pub use memcached::{Ask, Memcached, Operation};
pub use sizes::{Cdf, Sizes};

use super::{Traffic, TrafficKind};
use weir_units::{Bytes, Rate, Span, SplitMix64};

/// Payload of a full TCP segment at MTU 1500, with the timestamp option.
const SEGMENT: u64 = 1448;
/// Ethernet, IPv4 and TCP headers of a segment, without FCS.
const HEADERS: u64 = 14 + 20 + 32;

/// Layer 2 octets of `payload` sent over TCP in full segments: no handshake, no acknowledgements.
pub fn tcp_on_wire(payload: Bytes) -> Bytes {
    Bytes::new(payload.get() + HEADERS * payload.get().div_ceil(SEGMENT))
}

/// Parallel connections of an entry with open-loop starts, if the scenario has few such entries.
pub const OPEN_LOOP: usize = 64;
/// Parallel connections of all such entries together. Each needs two descriptors in the lab, and a
/// host has about 20,000.
const OPEN_LOOPS: usize = 4096;
/// Least number of connections of each such entry.
const LEAST_OPEN_LOOP: usize = 8;

/// Number of parallel connections that each entry with open-loop starts may have.
pub fn open_loop(traffic: &[Traffic]) -> usize {
    let waits_for_nobody = |entry: &&Traffic| match &entry.kind {
        TrafficKind::Flows(_) => true,
        TrafficKind::Request(request) => matches!(request.load, Load::Open(_)),
        _ => false,
    };
    let entries = traffic.iter().filter(waits_for_nobody).count();
    (OPEN_LOOPS / entries.max(1)).clamp(LEAST_OPEN_LOOP, OPEN_LOOP)
}

/// When things start.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    /// Starts per second, on average. Above zero.
    pub per_second: f64,
    /// How they are spaced.
    pub spacing: Spacing,
    /// Same seed, same moments.
    pub seed: u64,
}

/// How starts are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Independent of each other: exponential gaps.
    Poisson,
    /// Equal gaps; the first start lies somewhere in the first gap.
    Fixed,
}

impl Arrivals {
    /// Moments since the start of the traffic, ascending, without end.
    pub fn starts(&self) -> impl Iterator<Item = Span> + use<> {
        let mut draw = SplitMix64::new(self.seed);
        let gap = 1.0 / self.per_second;
        let spacing = self.spacing;
        let mut at = match spacing {
            Spacing::Poisson => 0.0,
            Spacing::Fixed => (draw.unit() - 1.0) * gap,
        };
        std::iter::repeat_with(move || {
            at += match spacing {
                Spacing::Poisson => -draw.unit().ln() * gap,
                Spacing::Fixed => gap,
            };
            Span::from_secs_f64(at)
        })
    }
}

/// Requests from one VM to another. The answers are the traffic entry behind this one
/// ([`TrafficKind::Reply`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Octets of a request.
    pub size: Bytes,
    /// Octets of its answer.
    pub response: Bytes,
    /// When they are sent.
    pub load: Load,
    /// Whether each request has a connection of its own.
    pub connections: Connections,
    /// Kernel name of the congestion control at both ends.
    pub congestion: String,
}

/// When requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// At their moments, however slow the answers are. A request's time counts from the moment at
    /// which it should have been sent.
    Open(Arrivals),
    /// A number at a time: the next one follows the answer to the last.
    Closed {
        /// Requests under way.
        outstanding: u32,
    },
}

/// Whether connections outlive a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connections {
    /// Each request opens one, and its time includes the handshake.
    New,
    /// Used again by later requests; one request at a time.
    Kept,
}

/// Short TCP flows from one VM to some others, as one destination sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct Flows {
    /// Starts of the sending VM, to all its destinations together. In a closed loop only its seed
    /// counts.
    pub arrivals: Arrivals,
    /// Pauses of a closed loop: the sender has one flow at a time.
    pub closed: Option<Pauses>,
    /// How large they are.
    pub sizes: Sizes,
    /// Which destination the next one goes to.
    pub pick: Pick,
    /// This destination's position among the sender's.
    pub mine: u32,
    /// How many destinations the sender has; above `mine`.
    pub of: u32,
    /// Kernel name of the congestion control.
    pub congestion: String,
}

/// What a sender does when a flow is done: it begins the next one at once, or after a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pauses {
    /// Pauses are spread evenly from zero to this.
    pub most: Span,
    /// Chance of a pause.
    pub chance: f64,
}

/// Which destination the next flow goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Any, whatever came before.
    Random,
    /// The one that was not talked to for longest.
    InTurn,
}

impl Flows {
    /// Starts and sizes of the flows to this destination, ascending, without end.
    pub fn starts(&self) -> impl Iterator<Item = (Span, Bytes)> + use<> {
        // Independent of the gaps, and the same for all destinations of the sender.
        let mut draw = SplitMix64::new(!self.arrivals.seed);
        let (sizes, pick, mine, of) = (self.sizes.clone(), self.pick, self.mine, self.of.max(1));
        self.arrivals.starts().enumerate().filter_map(move |(number, at)| {
            let size = sizes.at(draw.unit());
            let to = match pick {
                Pick::Random => draw.below(u64::from(of)) as u32,
                Pick::InTurn => (number % of as usize) as u32,
            };
            (to == mine).then_some((at, size))
        })
    }
}

/// Real programs in the VMs' namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// Command line in the receiving VM; runs before the traffic starts.
    pub server: String,
    /// Command line in the sending VM; runs from start to stop.
    pub client: String,
}

impl Exec {
    /// What a command line may name in braces.
    pub const NAMES: [&'static str; 4] = ["from", "to", "port", "seconds"];
}

impl TrafficKind {
    /// In one word, as in results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tcp { .. } => "tcp",
            Self::Udp { .. } => "udp",
            Self::Request(_) => "request",
            Self::Reply { .. } => "reply",
            Self::Flows(_) => "flows",
            Self::Shuffle { .. } => "shuffle",
            Self::Memcached(_) => "memcached",
            Self::Exec(_) => "exec",
        }
    }

    /// Whether it sends at its rate, or all it can, all the time. Only then its connections can be
    /// compared with each other.
    pub fn is_steady(&self) -> bool {
        matches!(self, Self::Tcp { .. } | Self::Udp { .. })
    }

    /// Kernel name of the congestion control that is pinned, if there is one.
    pub fn congestion(&self) -> Option<&str> {
        match self {
            Self::Tcp { congestion, .. }
            | Self::Reply { congestion, .. }
            | Self::Shuffle { congestion, .. } => Some(congestion),
            Self::Request(request) => Some(&request.congestion),
            Self::Flows(flows) => Some(&flows.congestion),
            Self::Memcached(memcached) => Some(&memcached.congestion),
            Self::Udp { .. } | Self::Exec(_) => None,
        }
    }

    /// Rate that it offers on the wire while on; `None` = unlimited.
    ///
    /// Requests, answers and flows at a rate offer rate × size with headers, on average. Requests
    /// that wait for answers offer a rate that is not known: zero. A shuffle is unlimited until it
    /// is done, and a program always.
    pub fn offers(&self) -> Option<Rate> {
        let of = |per_second: f64, octets: Bytes| {
            Some(Rate::from_bps_f64(per_second * tcp_on_wire(octets).get() as f64 * 8.0))
        };
        match self {
            Self::Udp { rate, .. } => Some(*rate),
            Self::Tcp { connections: 0, .. } => Some(Rate::ZERO),
            Self::Request(Request { size, load: Load::Open(at), .. }) => of(at.per_second, *size),
            Self::Reply { response, per_second: Some(rate), .. } => of(*rate, *response),
            Self::Memcached(memcached) => {
                of(memcached.arrivals.per_second, memcached.mean_request())
            }
            Self::Request(_) | Self::Reply { .. } => Some(Rate::ZERO),
            // As requests that wait for answers: what it sends depends on how fast it is sent.
            Self::Flows(Flows { closed: Some(_), .. }) => Some(Rate::ZERO),
            Self::Flows(flows) => {
                let all = flows.arrivals.per_second;
                of(all / f64::from(flows.of.max(1)), flows.sizes.mean())
            }
            Self::Tcp { .. } | Self::Shuffle { .. } | Self::Exec(_) => None,
        }
    }

    /// Multiplies what is offered by `scale`: rates of UDP, sizes of everything else that has one.
    /// Moments stay, as all times do.
    pub(crate) fn scale(&mut self, scale: f64) {
        let shrink = |size: &mut Bytes| {
            *size = Bytes::new(((size.get() as f64 * scale).round() as u64).max(1));
        };
        match self {
            Self::Udp { rate, .. } => *rate = rate.scale(scale),
            Self::Request(request) => {
                shrink(&mut request.size);
                shrink(&mut request.response);
            }
            Self::Reply { response, .. } => shrink(response),
            Self::Flows(flows) => flows.sizes.scale(scale),
            Self::Memcached(memcached) => shrink(&mut memcached.value),
            Self::Shuffle { octets, .. } => shrink(octets),
            Self::Tcp { .. } | Self::Exec(_) => {}
        }
    }
}

/// Completes the traffic of one entry of a file, in place: seeds, each destination's position, and
/// the answers to requests. `entry` is the entry's position in the file.
pub(crate) fn complete(flows: &mut Vec<Traffic>, entry: usize) {
    let seed = |from: usize, to: usize| mixed([entry as u64, from as u64, to as u64]);
    let mut destinations = std::collections::BTreeMap::<usize, u32>::new();
    for flow in flows.iter_mut() {
        let (from, to) = (flow.from, flow.to);
        match &mut flow.kind {
            TrafficKind::Flows(flows) => {
                let place = destinations.entry(from).or_default();
                flows.mine = *place;
                flows.arrivals.seed = seed(from, usize::MAX);
                *place += 1;
            }
            TrafficKind::Request(Request { load: Load::Open(at), .. }) => at.seed = seed(from, to),
            TrafficKind::Memcached(memcached) => memcached.arrivals.seed = seed(from, to),
            _ => {}
        }
    }
    for flow in flows.iter_mut() {
        if let TrafficKind::Flows(flows) = &mut flow.kind {
            flows.of = destinations[&flow.from];
        }
    }
    let with_answers = flows.drain(..).flat_map(|flow| {
        let answer = answer(&flow);
        std::iter::once(flow).chain(answer)
    });
    *flows = with_answers.collect();
}

/// The answers to a request.
fn answer(flow: &Traffic) -> Option<Traffic> {
    let (response, per_second, congestion) = match &flow.kind {
        TrafficKind::Request(request) => {
            let per_second = match &request.load {
                Load::Open(at) => Some(at.per_second),
                Load::Closed { .. } => None,
            };
            (request.response, per_second, request.congestion.clone())
        }
        TrafficKind::Memcached(memcached) => {
            let per_second = Some(memcached.arrivals.per_second);
            (memcached.mean_answer(), per_second, memcached.congestion.clone())
        }
        _ => return None,
    };
    let kind = TrafficKind::Reply { response, per_second, congestion };
    Some(Traffic { from: flow.to, to: flow.from, kind, trace: None, ..flow.clone() })
}

/// One seed from several numbers, all of which count.
fn mixed(parts: [u64; 3]) -> u64 {
    parts.into_iter().fold(0, |seed, part| SplitMix64::mix(seed ^ part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(per_second: f64, spacing: Spacing, seed: u64) -> Arrivals {
        Arrivals { per_second, spacing, seed }
    }

    fn flows(pick: Pick, mine: u32, of: u32) -> Flows {
        Flows {
            arrivals: arrivals(100.0, Spacing::Poisson, 7),
            closed: None,
            sizes: Sizes::Fixed(Bytes::new(20_000)),
            pick,
            mine,
            of,
            congestion: "cubic".into(),
        }
    }

    #[test]
    fn poisson_starts_have_their_rate_and_their_spread() {
        let starts: Vec<f64> = arrivals(50.0, Spacing::Poisson, 3)
            .starts()
            .map(Span::as_secs_f64)
            .take_while(|at| *at < 200.0)
            .collect();
        assert!((9_600..10_400).contains(&starts.len()), "{}", starts.len());
        let gaps: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let spread = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((spread.sqrt() / mean - 1.0).abs() < 0.05, "{spread} around {mean}");
    }

    #[test]
    fn fixed_starts_are_equally_far_apart_and_sources_are_out_of_step() {
        let first =
            |seed| arrivals(10.0, Spacing::Fixed, seed).starts().take(3).collect::<Vec<_>>();
        let starts = first(1);
        assert_eq!((starts[2] - starts[1]).as_nanos().abs_diff(100_000_000) / 10, 0);
        assert!(starts[0] < Span::from_millis(100));
        assert_ne!(starts[0], first(2)[0]);
    }

    #[test]
    fn the_same_seed_gives_the_same_flows() {
        let some = |f: &Flows| f.starts().take(50).collect::<Vec<_>>();
        assert_eq!(some(&flows(Pick::Random, 2, 5)), some(&flows(Pick::Random, 2, 5)));
    }

    #[test]
    fn each_flow_of_a_sender_goes_to_exactly_one_destination() {
        for pick in [Pick::Random, Pick::InTurn] {
            let one = flows(pick, 0, 1).starts().map(|(at, _)| at).take(400).collect::<Vec<_>>();
            let last = one[399];
            let mut all: Vec<Span> = (0..8)
                .flat_map(|mine| {
                    flows(pick, mine, 8)
                        .starts()
                        .map(|(at, _)| at)
                        .take_while(move |at| *at <= last)
                })
                .collect();
            all.sort_unstable();
            assert_eq!(all, one, "{pick:?}");
        }
    }

    #[test]
    fn in_turn_comes_back_to_a_destination_as_late_as_it_can() {
        let all: Vec<Span> =
            flows(Pick::InTurn, 0, 1).starts().map(|(at, _)| at).take(40).collect();
        let mine: Vec<Span> =
            flows(Pick::InTurn, 3, 10).starts().map(|(at, _)| at).take(4).collect();
        assert_eq!(mine, [all[3], all[13], all[23], all[33]]);
    }

    #[test]
    fn a_demand_counts_headers_and_the_senders_share_of_starts() {
        // 20 kB are 14 segments: 20 924 octets; 100 per second to ten destinations.
        let one = TrafficKind::Flows(flows(Pick::Random, 0, 10));
        assert_eq!(one.offers(), Some(Rate::from_bps(20_924 * 8 * 10)));
        let mut shrunk = one.clone();
        shrunk.scale(0.5);
        assert_eq!(shrunk.offers(), Some(Rate::from_bps((10_000 + 7 * 66) * 8 * 10)));
        let shuffle = TrafficKind::Shuffle { octets: Bytes::new(1), congestion: "cubic".into() };
        assert_eq!(shuffle.offers(), None);
    }

    #[test]
    fn a_request_is_followed_by_its_answers() {
        let request = Request {
            size: Bytes::new(100),
            response: Bytes::new(20_000),
            load: Load::Open(arrivals(10.0, Spacing::Poisson, 0)),
            connections: Connections::Kept,
            congestion: "cubic".into(),
        };
        let flow = Traffic {
            group: "web".into(),
            from: 3,
            to: 5,
            start: Span::ZERO,
            stop: Span::from_secs(9),
            ip: crate::scenario::IpVersion::V4,
            trace: None,
            kind: TrafficKind::Request(request),
        };
        let mut flows = vec![flow.clone(), Traffic { to: 6, ..flow }];
        complete(&mut flows, 4);
        let ends: Vec<_> = flows.iter().map(|f| (f.from, f.to, f.kind.name())).collect();
        assert_eq!(ends, [(3, 5, "request"), (5, 3, "reply"), (3, 6, "request"), (6, 3, "reply")]);
        assert_eq!(flows[0].kind.offers(), Some(Rate::from_bps(166 * 8 * 10)));
        assert_eq!(flows[1].kind.offers(), Some(Rate::from_bps(20_924 * 8 * 10)));
        let seed = |f: &Traffic| match &f.kind {
            TrafficKind::Request(Request { load: Load::Open(at), .. }) => at.seed,
            _ => 0,
        };
        assert_ne!(seed(&flows[0]), seed(&flows[2]));
    }
}
