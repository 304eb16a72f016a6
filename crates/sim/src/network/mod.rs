//! The simulated network: links, routes and flows, as plain data that has been checked.
//!
//! Problem   A route that is not connected, or a rate of zero, shows in the middle of a run, if at
//!           all.
//! Approach  A network is built piece by piece, by a caller or by the
//!           [reader](self::Network::parse). Each piece is checked against the others.
//! Promises  A network that was built can be played without further checks.
//! Not here  Names, tenants, topologies: see `weir-model`.

mod port;
mod read;
#[cfg(test)]
mod tests;
mod ways;

pub use port::{CLASSES, Discipline, PoolSpec, Port, QueueSpec, RedSpec};
pub use read::{ParseError, Problem};

use std::num::NonZero;
use std::ops::RangeInclusive;
use weir_units::{Bytes, Rate, SortedMap, Span, Time};

use crate::tcp::Algorithm;

/// Longest run, and longest time to empty a buffer: a day. So no sum overflows.
pub(crate) const LONGEST: Span = Span::from_secs(86_400);
/// Bounds of rates. Below, an octet takes too long; above, it takes no time.
const RATES: RangeInclusive<Rate> = Rate::from_bps(1_000)..=Rate::from_mbps(10_000_000);
/// Links of one route at most.
const LONGEST_ROUTE: usize = 64;
/// TCP and IP headers of a segment, without options; an ACK has nothing else.
const TCP_HEADER: u16 = 40;
/// UDP and IP headers of a datagram.
const UDP_HEADER: u16 = 28;
/// Ethernet's header, without FCS.
const ETHERNET: u16 = 14;
/// Octets of TCP's timestamps in a segment (RFC 7323 appendix A).
const TIMESTAMPS: u16 = 12;

/// One direction of a cable, with the port that sends into it: FIFO, drop-tail, unless
/// [`Network::set_port`] says something else.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkSpec {
    /// The node whose port it is.
    pub from: u32,
    /// The node at the far end.
    pub to: u32,
    /// From 1 kbit/s to 10 Tbit/s.
    pub rate: Rate,
    /// Propagation, at most 4 s.
    pub delay: Span,
    /// Octets that the port holds, including those of the packet on the wire that have not left.
    pub buffer: Bytes,
    /// ECN-capable packets that find more octets than this queued are marked. `None`: none.
    pub mark_above: Option<Bytes>,
    /// Probability that a packet is lost before the queue, from 0 to 1.
    pub loss: f64,
}

/// Traffic of a flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Traffic {
    /// TCP with this payload, `None` for ever, and an algorithm; the run's if `None`.
    Tcp {
        /// Octets of payload.
        octets: Option<NonZero<u64>>,
        /// Congestion control, if it is to differ from the run's.
        algorithm: Option<Algorithm>,
    },
    /// UDP: datagrams of `size` octets on the wire, at `rate` on the wire while it is on.
    Udp {
        /// Rate on the wire while it is on.
        rate: Rate,
        /// Octets of a datagram on the wire, headers included.
        size: u16,
        /// `None`: always on.
        bursts: Option<Bursts>,
    },
}

/// Times at which a UDP source sends and is silent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bursts {
    /// Time on, or its mean.
    pub on: Span,
    /// Time off, or its mean.
    pub off: Span,
    /// Times are drawn from the exponential distribution, from the run's seed. Otherwise they are
    /// always the same.
    pub random: bool,
}

/// One flow and its routes.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowSpec {
    /// Node that sends.
    pub src: u32,
    /// Node that receives.
    pub dst: u32,
    /// When it begins.
    pub start: Time,
    /// What it sends.
    pub traffic: Traffic,
    /// Links from `src` to `dst`, by number.
    pub forward: Vec<u32>,
    /// Links from `dst` to `src`, for ACKs. UDP needs none.
    pub reverse: Vec<u32>,
}

/// Reason why a piece does not fit into a network.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// The packets have no room beside their headers.
    #[error("packets of {0} octets: at least 64 are needed")]
    Mtu(u16),
    /// A node's number is too great.
    #[error("node {node} does not exist: there are {nodes}, counted from 0")]
    Node {
        /// The number.
        node: u32,
        /// How many there are.
        nodes: u32,
    },
    /// A link's number is too great.
    #[error("link {link} does not exist: there are {links}, counted from 0")]
    Link {
        /// The number.
        link: u32,
        /// How many there are.
        links: usize,
    },
    /// The rate is below or above the bounds.
    #[error("a rate of {}: from 1 kb/s to 10 Tb/s are possible", Rate::from_bps(*.0))]
    Rate(u64),
    /// The time is longer than the counters allow.
    #[error("a delay of {}: at most 4 s are possible", Span::from_nanos(*.0))]
    Delay(u64),
    /// A buffer that takes more than a day to empty.
    #[error("a buffer of {octets} octets takes more than a day to empty at {}", Rate::from_bps(*bps))]
    Buffer {
        /// Its size.
        octets: u64,
        /// The link's rate.
        bps: u64,
    },
    /// The value is no probability.
    #[error("a chance of loss of {0}: it has to be from 0 to 1")]
    Loss(f64),
    /// The flow has no route.
    #[error("the {0} route is empty: name at least one link")]
    NoRoute(Way),
    /// The route goes in circles.
    #[error("the {way} route has {links} links: at most {LONGEST_ROUTE} are possible")]
    LongRoute {
        /// Which one.
        way: Way,
        /// Its length.
        links: usize,
    },
    /// Two links of the route do not follow each other.
    #[error("the {way} route is broken: link {link} begins at node {begins}, not at {at}")]
    Broken {
        /// Which one.
        way: Way,
        /// The link that does not fit.
        link: u32,
        /// Where it begins.
        begins: u32,
        /// Where the route has got to.
        at: u32,
    },
    /// The route ends at another node than the flow.
    #[error("the {way} route ends at node {ends}, not at {wanted}")]
    Astray {
        /// Which one.
        way: Way,
        /// Where it ends.
        ends: u32,
        /// Where it should.
        wanted: u32,
    },
    /// The time is beyond the counters.
    #[error("{0} ns: at most a day can be simulated")]
    Late(u64),
    /// More segments than sequence numbers.
    #[error("{0} octets: a flow has at most 4294967294 segments")]
    Octets(u64),
    /// The datagram has no payload, or is larger than packets are.
    #[error("datagrams of {size} octets: from {least} to {mtu} are possible")]
    Datagram {
        /// Its size.
        size: u16,
        /// The smallest that carries something.
        least: u16,
        /// The largest packet.
        mtu: u16,
    },
    /// The source is never on, or its period is beyond the counters.
    #[error("bursts of {on} ns every {period} ns: on for at least 1 ns, at most a day in all")]
    Bursts {
        /// Time on, in ns.
        on: u64,
        /// Time on and off, in ns.
        period: u64,
    },
    /// A flow's number is too great.
    #[error("flow {flow} does not exist: there are {flows}, counted from 0")]
    Flow {
        /// The number.
        flow: u32,
        /// How many there are.
        flows: usize,
    },
    /// The class has no queue anywhere.
    #[error("class {0}: classes are 0 to 7")]
    Class(u8),
    /// The port has no queue, or more than there are classes.
    #[error("{0} queues: from 1 to 8 are possible")]
    Queues(usize),
    /// The queue would never be served, or is beyond the counters.
    #[error("a weight of {0}: from 1 to 65535 are possible")]
    Weight(u32),
    /// The paths have several lengths.
    #[error("a further {way} way of {links} links: it has to have {first} as the first has")]
    Uneven {
        /// Which one.
        way: Way,
        /// Its length.
        links: usize,
        /// The length of the flow's route.
        first: usize,
    },
    /// Both the queue and RED mark.
    #[error(
        "link {0} marks above a threshold of its own: let its port mark, or the link, not both"
    )]
    TwoThresholds(u32),
    /// RED's thresholds do not follow each other.
    #[error(
        "RED from {min} to {max} octets at a buffer of {buffer}: 0 < min < max <= buffer is needed"
    )]
    Red {
        /// Lower threshold.
        min: u64,
        /// Upper threshold.
        max: u64,
        /// The port's buffer.
        buffer: u64,
    },
    /// RED's probability or weight is not between 0 and 1.
    #[error("a probability or weight of {0}: more than 0 and at most 1 is possible")]
    RedPart(f64),
    /// A shared memory's number is too great.
    #[error("pool {pool} does not exist: there are {pools}, counted from 0")]
    Pool {
        /// The number.
        pool: u32,
        /// How many there are.
        pools: usize,
    },
    /// Ports of two switches share a memory.
    #[error("pool {pool} is memory of node {node}: a port of node {other} cannot share it")]
    Foreign {
        /// The memory.
        pool: u32,
        /// The switch that has it.
        node: u32,
        /// The other switch.
        other: u32,
    },
    /// The threshold would always or never apply.
    #[error("an alpha of {0}: more than 0 and at most 1024 is possible")]
    Alpha(f64),
}

/// One of a flow's two routes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    /// From source to destination.
    Forward,
    /// Back.
    Reverse,
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
        })
    }
}

/// Nodes, links and flows that fit together.
#[derive(Clone, PartialEq, Debug)]
pub struct Network {
    mtu: u16,
    /// Octets of a TCP segment and of a UDP datagram that are not payload.
    headers: (u16, u16),
    nodes: u32,
    until: Time,
    links: Vec<LinkSpec>,
    flows: Vec<FlowSpec>,
    stops: Vec<(u32, Time)>,
    /// Largest jitter of a link's packets, in the order of links.
    late: Vec<(u32, Span)>,
    /// By link.
    ports: SortedMap<u32, Port>,
    pools: Vec<PoolSpec>,
    /// By flow; those beyond the end are of class 0.
    classes: Vec<u8>,
    /// Further ways of flows.
    ways: SortedMap<(u32, Way), Vec<Vec<u32>>>,
}

impl Network {
    /// `nodes` nodes without links. Packets are up to `mtu` octets on the wire, TCP's headers of 40
    /// octets included; a run ends at `until`.
    pub fn new(nodes: u32, mtu: u16, until: Time) -> Result<Self, Flaw> {
        if mtu < 64 {
            return Err(Flaw::Mtu(mtu));
        }
        if until.since(Time::ZERO) > LONGEST {
            return Err(Flaw::Late(until.as_nanos()));
        }
        let headers = (TCP_HEADER, UDP_HEADER);
        Ok(Self {
            mtu,
            headers,
            nodes,
            until,
            links: Vec::new(),
            flows: Vec::new(),
            stops: Vec::new(),
            late: Vec::new(),
            ports: SortedMap::new(),
            pools: Vec::new(),
            classes: Vec::new(),
            ways: SortedMap::new(),
        })
    }

    /// A network without links whose packets are full Ethernet frames without FCS: 1514 octets, of
    /// which TCP with timestamps has 1448 and UDP 1472 for payload.
    pub fn ethernet(nodes: u32, until: Time) -> Result<Self, Flaw> {
        let mut network = Self::new(nodes, 1500 + ETHERNET, until)?;
        network.headers = (TCP_HEADER + TIMESTAMPS + ETHERNET, UDP_HEADER + ETHERNET);
        Ok(network)
    }

    /// A network without links whose packets are up to `mtu` octets on the wire; `framing` of these
    /// are the links' own header, beside TCP's of 40 or UDP's of 28, in ACKs too. PPP has 2.
    pub fn framed(nodes: u32, mtu: u16, framing: u16, until: Time) -> Result<Self, Flaw> {
        let mut network = Self::new(nodes, mtu, until)?;
        let inner = mtu.saturating_sub(framing);
        if inner < 64 {
            return Err(Flaw::Mtu(inner));
        }
        network.headers = (TCP_HEADER + framing, UDP_HEADER + framing);
        Ok(network)
    }

    /// Adds a link and returns its number.
    pub fn add_link(&mut self, link: LinkSpec) -> Result<u32, Flaw> {
        self.check_node(link.from)?;
        self.check_node(link.to)?;
        if !RATES.contains(&link.rate) {
            return Err(Flaw::Rate(link.rate.as_bps()));
        }
        if link.delay > Span::from_secs(4) {
            return Err(Flaw::Delay(link.delay.as_nanos()));
        }
        if link.rate.time_for(link.buffer) > LONGEST {
            let (octets, bps) = (link.buffer.get(), link.rate.as_bps());
            return Err(Flaw::Buffer { octets, bps });
        }
        if !(0.0..=1.0).contains(&link.loss) {
            return Err(Flaw::Loss(link.loss));
        }
        self.links.push(link);
        Ok(self.links.len() as u32 - 1)
    }

    /// Adds a flow and returns its number.
    pub fn add_flow(&mut self, flow: FlowSpec) -> Result<u32, Flaw> {
        self.check_node(flow.src)?;
        self.check_node(flow.dst)?;
        if flow.start.since(Time::ZERO) > LONGEST {
            return Err(Flaw::Late(flow.start.as_nanos()));
        }
        self.check_route(Way::Forward, &flow.forward, flow.src, flow.dst)?;
        match flow.traffic {
            Traffic::Tcp { octets, .. } => {
                self.check_route(Way::Reverse, &flow.reverse, flow.dst, flow.src)?;
                let most = u64::from(u32::MAX - 1) * u64::from(self.segment());
                if let Some(octets) = octets.filter(|octets| octets.get() > most) {
                    return Err(Flaw::Octets(octets.get()));
                }
            }
            Traffic::Udp { rate, size, bursts } => {
                if !RATES.contains(&rate) {
                    return Err(Flaw::Rate(rate.as_bps()));
                }
                if !(self.headers.1 + 1..=self.mtu).contains(&size) {
                    let (least, mtu) = (self.headers.1 + 1, self.mtu);
                    return Err(Flaw::Datagram { size, least, mtu });
                }
                if let Some(Bursts { on, off, .. }) = bursts {
                    let (on, period) =
                        (on.as_nanos(), on.as_nanos().saturating_add(off.as_nanos()));
                    if on == 0 || period > LONGEST.as_nanos() {
                        return Err(Flaw::Bursts { on, period });
                    }
                }
            }
        }
        self.flows.push(flow);
        Ok(self.flows.len() as u32 - 1)
    }

    /// A flow has no more to send from `at` on. Segments that were sent are still delivered, and
    /// retransmitted if lost. [`Network::add_flow`] returned the flow's number.
    pub fn stop_flow(&mut self, flow: u32, at: Time) -> Result<(), Flaw> {
        if at.since(Time::ZERO) > LONGEST {
            return Err(Flaw::Late(at.as_nanos()));
        }
        assert!((flow as usize) < self.flows.len(), "a flow is there before it stops");
        self.stops.push((flow, at));
        Ok(())
    }

    /// Flows that stop, and when.
    pub(crate) fn stops(&self) -> &[(u32, Time)] {
        &self.stops
    }

    /// The largest packet, in octets on the wire.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Octets of payload in a full TCP segment.
    pub fn segment(&self) -> u16 {
        self.mtu - self.headers.0
    }

    /// Octets of a TCP segment and of a UDP datagram that are not payload.
    pub(crate) fn headers(&self) -> (u16, u16) {
        self.headers
    }

    /// When a run ends.
    pub fn until(&self) -> Time {
        self.until
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// All links, by number.
    pub fn links(&self) -> &[LinkSpec] {
        &self.links
    }

    /// All flows, by number.
    pub fn flows(&self) -> &[FlowSpec] {
        &self.flows
    }

    fn check_node(&self, node: u32) -> Result<(), Flaw> {
        let nodes = self.nodes;
        if node < nodes { Ok(()) } else { Err(Flaw::Node { node, nodes }) }
    }

    fn check_route(&self, way: Way, route: &[u32], from: u32, to: u32) -> Result<(), Flaw> {
        if route.is_empty() {
            return Err(Flaw::NoRoute(way));
        }
        if route.len() > LONGEST_ROUTE {
            return Err(Flaw::LongRoute { way, links: route.len() });
        }
        let mut at = from;
        for &link in route {
            let links = self.links.len();
            let spec = self.links.get(link as usize).ok_or(Flaw::Link { link, links })?;
            if spec.from != at {
                return Err(Flaw::Broken { way, link, begins: spec.from, at });
            }
            at = spec.to;
        }
        if at == to { Ok(()) } else { Err(Flaw::Astray { way, ends: at, wanted: to }) }
    }
}
