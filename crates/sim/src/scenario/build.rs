//! From a scenario to a network: nodes, links, flows and their routes.
//!
//! Problem   Links, ways and flows of a run must be those that the lab builds and that the judge
//!           counts on.
//! Approach  Node and link numbers are the scenario's: link `2·l` is a>b of link `l`, `2·l + 1` is b>a.
//!           Ways are the scenario's own: one per pair of hosts, one drawn per connection if equal ways
//!           are used by flow, all in turn if by packet. A traffic entry becomes one flow per connection. What starts
//!           together starts within a millisecond, drawn from the seed, as programs do.
//! Promises  Frames are Ethernet's without FCS, so that rates and floors mean what they mean in the lab.
//!           Only ports of switches mark, above a threshold or by RED.
//! Not here  Agents: see `guard`.

use super::Failure;
use super::ways::Ways;
use crate::network::{
    Bursts, Discipline, Flaw, FlowSpec, LinkSpec, Network, Port, RedSpec, Traffic, Way,
};
use crate::rng::Rng;
use crate::tcp::Algorithm;
use std::collections::BTreeMap;
use std::ops::Range;
use weir_model::scenario::{LinkDir, PathBy, Scenario, TrafficKind};
use weir_units::{Rate, Span, Time};

/// Ethernet, IPv4 and UDP headers.
const UDP_HEADERS: u64 = 14 + 20 + 8;
/// TCP connections that start together do so within this time.
const START: Span = Span::from_millis(1);
/// Streams of chance from this one on are the starts'.
const STREAM: u64 = 1 << 41;
/// And from these on the ways', of pairs of hosts and of flows, where several are equal.
const WAYS: u64 = 1 << 44;
const FLOW_WAYS: u64 = 1 << 45;

/// A scenario as a network.
pub(super) struct Plan {
    pub(super) network: Network,
    /// The flows of each traffic entry.
    pub(super) entries: Vec<Range<usize>>,
    /// The links from one host to another, for those that exchange traffic.
    pub(super) ways: BTreeMap<(usize, usize), Vec<u32>>,
}

/// The congestion control of this name, if there is one.
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "reno" => Some(Algorithm::Reno),
        "cubic" => Some(Algorithm::Cubic),
        "dctcp" => Some(Algorithm::Dctcp),
        _ => None,
    }
}

/// Builds the network of a scenario that can be played.
pub(super) fn plan(scenario: &Scenario, seed: u64) -> Result<Plan, Failure> {
    let topology = &scenario.topology;
    let at = |field: String| move |flaw: Flaw| Failure::Flaw { field, flaw };
    let until = Time::ZERO + scenario.duration;
    let mut network =
        Network::ethernet(topology.nodes() as u32, until).map_err(at("spec.duration".into()))?;
    for index in 0..2 * topology.links.len() {
        let direction = LinkDir::from_index(index);
        let link = &topology.links[direction.link];
        let from = direction.from(topology);
        let spec = LinkSpec {
            from: from as u32,
            to: direction.to(topology) as u32,
            rate: link.rate,
            delay: link.delay,
            buffer: link.buffer,
            mark_above: link.queueing.ecn.filter(|_| from >= topology.hosts.len()),
            loss: link.queueing.loss,
        };
        let field = format!("spec.topology (link {})", link.name);
        let number = network.add_link(spec).map_err(at(field.clone()))?;
        if let Some(red) = link.queueing.red.filter(|_| from >= topology.hosts.len()) {
            let discipline = Discipline::Red(RedSpec {
                min: red.min,
                max: red.max,
                probability: red.probability,
                weight: red.weight,
                gentle: false,
            });
            network.set_port(number, Port { discipline, pool: None }).map_err(at(field))?;
        }
    }
    let mut ways = BTreeMap::new();
    let mut known = Ways::new(topology);
    let mut entries = Vec::new();
    let mut flows = 0;
    for entry in &scenario.traffic {
        let ends = [entry.from, entry.to].map(|vm| scenario.vms[vm].host);
        for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            let stream = WAYS + ((from as u64) << 20) + to as u64;
            let mut draw = || known.draw(from, to, &mut Rng::new(seed, stream));
            ways.entry((from, to)).or_insert_with(&mut draw);
        }
        let first = flows;
        let sources = sources(&entry.kind);
        for (traffic, spread) in sources {
            let late = Rng::new(seed, STREAM + flows as u64).next() % spread.as_nanos().max(1);
            let mut rng = Rng::new(seed, FLOW_WAYS + flows as u64);
            let mut way = |from: usize, to: usize| match topology.ecmp {
                None => vec![ways[&(from, to)].clone()],
                Some(PathBy::Flow) => vec![known.draw(from, to, &mut rng)],
                Some(PathBy::Packet) => known.all(from, to),
            };
            let mut there = way(ends[0], ends[1]).into_iter();
            let mut back = way(ends[1], ends[0]).into_iter();
            let spec = FlowSpec {
                src: ends[0] as u32,
                dst: ends[1] as u32,
                start: Time::ZERO + entry.start + Span::from_nanos(late),
                traffic,
                forward: there.next().unwrap_or_default(),
                reverse: back.next().unwrap_or_default(),
            };
            let field = format!("spec.traffic (group {})", entry.group);
            let flow = network.add_flow(spec).map_err(at(field.clone()))?;
            for (way, more) in [(Way::Forward, there), (Way::Reverse, back)] {
                for links in more {
                    network.add_way(flow, way, links).map_err(at(field.clone()))?;
                }
            }
            if entry.stop < scenario.duration {
                network.stop_flow(flow, Time::ZERO + entry.stop).map_err(at(field))?;
            }
            flows += 1;
        }
        entries.push(first..flows);
    }
    Ok(Plan { network, entries, ways })
}

/// The flows of a traffic entry, each with the time within which it starts.
fn sources(kind: &TrafficKind) -> Vec<(Traffic, Span)> {
    match kind {
        TrafficKind::Tcp { connections, congestion } => {
            let one = Traffic::Tcp { octets: None, algorithm: algorithm(congestion) };
            vec![(one, START); *connections as usize]
        }
        TrafficKind::Udp { rate, on, off, payload } => {
            let size = (payload.get() + UDP_HEADERS) as u16;
            let bursts = match (on, off) {
                (Some(on), Some(off)) if *off > Span::ZERO => {
                    Some(Bursts { on: *on, off: *off, random: false })
                }
                _ => None,
            };
            vec![(Traffic::Udp { rate: *rate, size, bursts }, packet(*rate, size))]
        }
        // Refused before.
        _ => Vec::new(),
    }
}

/// Time of a packet at a rate: three hundred sources that start together do not fire together.
fn packet(rate: Rate, size: u16) -> Span {
    rate.time_for(weir_units::Bytes::new(size.into()))
}
