//! From a scenario to a network: nodes, links, flows and their routes.
//!
//! Problem   Links, ways and flows of a run must be those that the lab builds and that the judge
//!           counts on.
//! Approach  Node and link numbers are the scenario's: link `2·l` is a>b of link `l`, `2·l + 1` is
//!           b>a. Ways are the scenario's own: one per pair of hosts, one drawn per connection if
//!           equal ways are used by flow, all in turn if by packet. A traffic entry becomes one
//!           flow per connection. What starts together starts within a millisecond, drawn from the
//!           seed, as programs do.
//! Promises  Frames are Ethernet's without FCS, so that rates and floors mean what they mean in the
//!           lab. Only ports of switches mark, above a threshold or by RED, and have more than one
//!           queue.
//! Not here  Agents: see `guard`. When requests and short flows begin: the model says.

use super::ways::Ways;
use super::{Failure, Unsupported};
use crate::exchange::{ClientSpec, ExchangeSpec, Guests};
use crate::host::{Claim, Speaker};
use crate::network::{
    Bursts, CLASSES, Discipline, Flaw, FlowSpec, LinkSpec, Network, Port, QueueSpec, RedSpec,
    Traffic, Way,
};
use crate::rng::Rng;
use crate::tcp::Algorithm;
use std::ops::Range;
use weir_core::path::{MAX_PATHS, place, point};
use weir_core::vcc::{Budget, BudgetConfig};
use weir_model::scenario::{
    BudgetClass, Connections, Ecmp, LinkDir, Load, Mechanism, Scenario, Traffic as Entry,
    TrafficKind, open_loop,
};
use weir_units::{Bytes, PairId, Rate, SortedMap, Span, Time, VmId};

/// A full Ethernet frame without FCS.
const MTU: u16 = 1514;
/// Ethernet, IPv4 and UDP headers.
const UDP_HEADERS: u64 = 14 + 20 + 8;
/// TCP connections that start together begin within this time.
const START: Span = Span::from_millis(1);
/// Random streams from this number on belong to starts.
const STREAM: u64 = 1 << 41;
/// Streams from these numbers on belong to the choice of equal paths, of pairs of hosts and of
/// flows.
const WAYS: u64 = 1 << 44;
const FLOW_WAYS: u64 = 1 << 45;
/// Streams from this number on belong to guests.
const GUESTS: u64 = 1 << 47;

/// A scenario as a network.
pub(super) struct Plan {
    pub(super) network: Network,
    /// Simulated traffic of each traffic entry.
    pub(super) entries: Vec<Part>,
    /// Of each flow.
    pub(super) guests: Vec<Guests>,
    /// Requests, flows and shuffles.
    pub(super) exchanges: Vec<ExchangeSpec>,
    /// The links from one host to another, for those that exchange traffic.
    pub(super) ways: SortedMap<(usize, usize), Vec<u32>>,
    /// All ways between them, where hosts choose.
    pub(super) paths: SortedMap<(usize, usize), Vec<Vec<u32>>>,
}

/// Simulated traffic of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// These flows.
    Flows(Range<usize>),
    /// The exchange of this number: what goes there, or what comes back.
    There(usize),
    Back(usize),
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

/// Whether switches serve the mechanism's packets by two priorities.
pub(super) fn has_priorities(mechanism: &Mechanism) -> bool {
    mechanism.row.is_some() && mechanism.draft().is_some_and(|draft| draft.has_priorities())
}

/// Builds the network of a scenario that can be played.
pub(super) fn plan(scenario: &Scenario, mechanism: &Mechanism, seed: u64) -> Result<Plan, Failure> {
    let topology = &scenario.topology;
    let at = |field: String| move |flaw: Flaw| Failure::Flaw { field, flaw };
    let until = Time::ZERO + scenario.duration;
    let has_priorities = has_priorities(mechanism);
    let mut network =
        Network::ethernet(topology.nodes() as u32, until).map_err(at("spec.duration".into()))?;
    for index in 0..2 * topology.links.len() {
        let direction = LinkDir::from_index(index);
        let link = &topology.links[direction.link];
        let from = direction.from(topology);
        let is_switch = from >= topology.hosts.len();
        let mark_above = link.queueing.ecn.filter(|_| is_switch);
        let has_classes = (link.queueing.priorities || has_priorities) && is_switch;
        let is_bound = mechanism.bound.is_some() && is_switch;
        let spec = LinkSpec {
            from: from as u32,
            to: direction.to(topology) as u32,
            rate: link.rate,
            delay: link.delay,
            // Each of several queues has the whole buffer.
            buffer: if is_bound { link.buffer * u64::from(CLASSES) } else { link.buffer },
            mark_above: mark_above.filter(|_| !has_classes && !is_bound),
            loss: link.queueing.loss,
        };
        let field = format!("spec.topology (link {})", link.name);
        let late = uneven(&spec, topology.hosts.len());
        let number = network.add_link(spec).map_err(at(field.clone()))?;
        network.add_jitter(number, late).map_err(at(field.clone()))?;
        if has_classes {
            let queue = |buffer| QueueSpec { weight: 1, buffer, mark_above };
            let half = Bytes::new(link.buffer.get() / 2);
            let discipline = Discipline::Priority(vec![queue(link.buffer), queue(half)]);
            network.set_port(number, Port { discipline, pool: None }).map_err(at(field.clone()))?;
        }
        if is_bound {
            let queue = QueueSpec { weight: 1, buffer: link.buffer, mark_above };
            let discipline = Discipline::Wfq(vec![queue; CLASSES.into()]);
            network.set_port(number, Port { discipline, pool: None }).map_err(at(field.clone()))?;
        }
        if let Some(red) = link.queueing.red.filter(|_| is_switch) {
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
    let local = local_links(scenario, &mut network)?;
    let mut ways = SortedMap::new();
    let mut known = Ways::new(topology);
    let mut entries = Vec::new();
    let (mut exchanges, mut guests) = (Vec::new(), Vec::new());
    let mut paths = SortedMap::new();
    let mut of_pairs: SortedMap<PairId, u32> = SortedMap::new();
    let mut flows = 0;
    let at_a_time = open_loop(&scenario.traffic);
    for entry in &scenario.traffic {
        let ends = [entry.from, entry.to].map(|vm| scenario.vms[vm].host);
        for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            let stream = WAYS + ((from as u64) << 20) + to as u64;
            let mut draw = || match local.get(&from) {
                Some(&link) if from == to => vec![link],
                _ => known.draw(from, to, &mut Rng::new(seed, stream)),
            };
            ways.entry((from, to)).or_insert_with(&mut draw);
            if topology.ecmp == Some(Ecmp::Host) && from != to {
                paths.entry((from, to)).or_insert_with(|| {
                    let mut all = known.all(from, to);
                    all.truncate(MAX_PATHS);
                    all
                });
            }
        }
        if let TrafficKind::Reply { .. } = entry.kind {
            entries.push(Part::Back(exchanges.len() - 1));
            continue;
        }
        let ours = Guests {
            vms: (entry.from as u32, entry.to as u32),
            booted: (boot(seed, entry.from), boot(seed, entry.to)),
            speakers: Some(speakers(scenario, entry)),
            old: (!scenario.vms[entry.from].rack, !scenario.vms[entry.to].rack),
            deaf: (scenario.vms[entry.from].deaf, scenario.vms[entry.to].deaf),
            own: (scenario.vms[entry.from].backpressure, scenario.vms[entry.to].backpressure),
        };
        // A bound tenant's packets stay on its tree.
        let tenant = scenario.vms[entry.from].tenant;
        let is_steered = mechanism.bound.is_some() && topology.ecmp.is_some();
        let tree = |from: usize, to: usize| -> Vec<Vec<u32>> {
            let path = scenario.tree_path(tenant, from, to);
            vec![path.iter().map(|link| link.index() as u32).collect()]
        };
        let mut every = |from: usize, to: usize| match topology.ecmp {
            Some(_) if from != to && is_steered => tree(from, to),
            Some(_) if from != to => known.all(from, to),
            _ => vec![ways[&(from, to)].clone()],
        };
        let all = (every(ends[0], ends[1]), every(ends[1], ends[0]));
        if let Some(spec) = exchange(scenario, entry, ours, all, at_a_time) {
            entries.push(Part::There(exchanges.len()));
            exchanges.push(spec);
            continue;
        }
        let first = flows;
        for (traffic, spread) in sources(&entry.kind) {
            let late = Rng::new(seed, STREAM + flows as u64).next() % spread.as_nanos().max(1);
            let mut rng = Rng::new(seed, FLOW_WAYS + flows as u64);
            let pair = PairId::new(VmId(entry.from as u32), VmId(entry.to as u32));
            let nth = of_pairs.entry(pair).or_default();
            let mut way = |from: usize, to: usize, pair: PairId| match topology.ecmp {
                Some(_) if from != to && is_steered => tree(from, to),
                Some(Ecmp::Flow) if from != to => vec![known.draw(from, to, &mut rng)],
                Some(Ecmp::Packet) if from != to => known.all(from, to),
                Some(Ecmp::Host) if from != to => {
                    let all = &paths[&(from, to)];
                    let path = place(&vec![Rate::ZERO; all.len()], point(pair, *nth), None);
                    vec![all[path.0 as usize].clone()]
                }
                _ => vec![ways[&(from, to)].clone()],
            };
            let mut there = way(ends[0], ends[1], pair).into_iter();
            let mut back = way(ends[1], ends[0], pair.reversed()).into_iter();
            *nth += 1;
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
            guests.push(ours);
            flows += 1;
        }
        entries.push(Part::Flows(first..flows));
    }
    Ok(Plan { network, entries, guests, exchanges, ways, paths })
}

/// The link within each host whose VMs exchange traffic with each other: ten times as fast as its
/// uplink, with room for a thousand packets, as its kernel.
fn local_links(
    scenario: &Scenario,
    network: &mut Network,
) -> Result<SortedMap<usize, u32>, Failure> {
    let mut local = SortedMap::new();
    for entry in &scenario.traffic {
        let [host, other] = [entry.from, entry.to].map(|vm| scenario.vms[vm].host);
        if host != other || local.contains_key(&host) {
            continue;
        }
        let link = scenario.topology.links.iter().find(|link| link.a == host || link.b == host);
        let spec = LinkSpec {
            from: host as u32,
            to: host as u32,
            rate: link.map_or(Rate::from_mbps(10_000), |link| link.rate * 10),
            delay: Span::ZERO,
            buffer: Bytes::new(1000 * u64::from(MTU)),
            mark_above: None,
            loss: 0.0,
        };
        let field = format!("spec.topology (inside {})", scenario.topology.hosts[host]);
        let number = network.add_link(spec).map_err(|flaw| Failure::Flaw { field, flaw })?;
        local.insert(host, number);
    }
    Ok(local)
}

/// An entry of requests, flows or shuffles; `None` for other kinds. `at_a_time`: most connections,
/// if its starts do not wait for answers.
fn exchange(
    scenario: &Scenario,
    entry: &Entry,
    guests: Guests,
    ways: (Vec<Vec<u32>>, Vec<Vec<u32>>),
    at_a_time: usize,
) -> Option<ExchangeSpec> {
    let start = entry.start;
    let at = move |(at, size): (Span, Bytes)| ((start + at).as_nanos(), size.get());
    let mut spec = ExchangeSpec {
        ends: (scenario.vms[entry.from].host as u32, scenario.vms[entry.to].host as u32),
        guests,
        ways,
        by_packet: scenario.topology.ecmp == Some(Ecmp::Packet),
        algorithm: algorithm(entry.kind.congestion()?)?,
        starts: Box::new(std::iter::empty()),
        stop: entry.stop.as_nanos(),
        warmup: scenario.warmup.as_nanos(),
        response: 0,
        follows: None,
        keeps: false,
        client: None,
        most: at_a_time,
    };
    match &entry.kind {
        TrafficKind::Flows(flows) => match flows.closed {
            None => spec.starts = Box::new(flows.starts().map(at)),
            Some(pauses) => {
                spec.keeps = true;
                spec.client = Some(ClientSpec {
                    start: entry.start.as_nanos(),
                    pause: pauses.most.as_nanos(),
                    chance: pauses.chance,
                    sizes: flows.sizes.clone(),
                    seed: flows.arrivals.seed,
                });
            }
        },
        TrafficKind::Request(request) => {
            let size = request.size;
            spec.response = request.response.get();
            spec.keeps = request.connections == Connections::Kept;
            match &request.load {
                Load::Open(arrivals) => {
                    spec.starts = Box::new(arrivals.starts().map(move |on| at((on, size))));
                }
                Load::Closed { outstanding } => {
                    let first = at((Span::ZERO, size));
                    spec.starts = Box::new(std::iter::repeat_n(first, *outstanding as usize));
                    spec.follows = Some(size.get());
                    spec.most = *outstanding as usize;
                }
            }
        }
        TrafficKind::Shuffle { octets, .. } => {
            spec.starts = Box::new(std::iter::once(at((Span::ZERO, *octets))));
            // Judged whenever it began, because it has only one start.
            (spec.most, spec.warmup) = (1, 0);
        }
        _ => return None,
    }
    Some(spec)
}

/// ECN of the guests at both ends. Linux accepts ECN, and asks for it if its congestion control
/// needs it.
fn speakers(scenario: &Scenario, entry: &Entry) -> (Speaker, Speaker) {
    let needs = entry.kind.congestion().and_then(algorithm) == Some(Algorithm::Dctcp);
    let speaker = |vm: usize| {
        let vm = &scenario.vms[vm];
        let asks = needs || vm.ecn == Some(true);
        let (agrees, translated) = (vm.ecn != Some(false), vm.translated);
        Speaker { asks, agrees, translated, claim: None }
    };
    let budget = scenario.vms[entry.from].budget.as_ref();
    let class = budget.and_then(|b| b.classes.iter().position(|c| c.group == entry.group));
    let claim = class.map(|class| Claim { vm: entry.from as u32, class });
    (Speaker { claim, ..speaker(entry.from) }, speaker(entry.to))
}

/// VMs' window budgets.
///
/// # Errors
/// A budget cannot keep its promise.
pub(super) fn budgets(scenario: &Scenario) -> Result<SortedMap<u32, Budget>, Unsupported> {
    let mut budgets = SortedMap::new();
    for (number, vm) in (0..).zip(&scenario.vms) {
        let Some(asked) = &vm.budget else { continue };
        // The class of a connection is known here by its group: a class's place stands for its
        // ports.
        let class = |(place, class): (u16, &BudgetClass)| {
            (class.group.clone(), class.weight, place..=place)
        };
        let classes = (0..).zip(&asked.classes).map(class);
        let config = BudgetConfig::by_remote_ports(asked.total, asked.flows_most, classes);
        let budget = Budget::new(config).map_err(|refused| {
            let field = format!("spec.tenants ({}, budget)", vm.name);
            Unsupported::new(field, refused.to_string(), "change it, or leave it out")
        })?;
        budgets.insert(number, budget);
    }
    Ok(budgets)
}

/// How long before the run a guest's kernel was started, in ns: up to 18 minutes.
fn boot(seed: u64, vm: usize) -> u64 {
    Rng::new(seed, GUESTS + vm as u64).next() >> 24
}

/// Jitter of hosts: a packet of a host arrives at its switch up to the transmission time of a full
/// packet later. Without jitter, sources of equal rates keep the order of their first packets for
/// ever, and at a full queue the same one is dropped each time.
fn uneven(link: &LinkSpec, hosts: usize) -> Span {
    if link.from as usize >= hosts { Span::ZERO } else { packet(link.rate, MTU) }
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
        // An exchange, or refused before.
        _ => Vec::new(),
    }
}

/// Time of a packet at a rate: three hundred sources that start together do not fire together.
fn packet(rate: Rate, size: u16) -> Span {
    rate.time_for(Bytes::new(size.into()))
}
