//! The simulation: hosts at the ends of routes, and the loop.
//!
//! Problem   Everything that happens is one of a few kinds of event, and nearly all are packets in
//!           the middle of their route.
//! Approach  The loop forwards those at once. What arrives at the end of its route goes to its
//!           flow's end there: a pure machine that says what to send. A flow has at most two
//!           wake-ups waiting, for its two timers; each is looked at when it comes, and sleeps
//!           again if the timer has moved.
//! Promises  Same network, same options: same outcome, in one go or in many.
//! Not here  What stands between a host's flows and its first link, where something does: see
//!           [`edge`]. It is called in [`Sim::pump`], [`Sim::emit`] and [`Sim::arrive`].

mod binding;
mod edge;
mod exchange;
mod faults;
mod view;

use binding::Binding;
pub(crate) use binding::BindingSpec;
pub(crate) use faults::Fault;

use crate::exchange::{Entry, ExchangeSpec, Exchanges, Guests};
use crate::host::{Guard, Shares, Shim, Translator};
use crate::net::{END, Net};
use crate::network::{FlowSpec, LONGEST, Network, Traffic, Way};
use crate::outcome::Outcome;
use crate::packet::{AGAIN, CE, CLASS, CWR, ECT, Kind, LAST, NIL, Packet};
use crate::rng::Rng;
use crate::tcp::{NEVER, Receiver, Sender, TcpConfig};
use crate::udp::Source;
use edge::Edge;
use faults::Pauses;
pub(crate) use view::GuardedView;
use weir_core::vcc::{Budget, Translation};
use weir_units::{SortedMap, Time};

/// Octets on the wire of a SYN, with Ethernet's and IP's headers and TCP's options.
const SYN: u16 = 14 + 20 + 40;
/// Streams of chance from this one on are those of flows with several ways.
const WAYS: u64 = 1 << 43;
/// Streams of chance from this one on are those of entries whose connections come and go.
const EXCHANGE_WAYS: u64 = 1 << 48;

/// What a run needs beside its network.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    /// How TCP behaves.
    pub tcp: TcpConfig,
    /// All chance is drawn from this.
    pub seed: u64,
}

/// Plays a network to its end.
pub fn play(network: &Network, options: &Options) -> Outcome {
    let mut sim = Sim::new(network, options);
    sim.run_until(network.until());
    sim.outcome()
}

/// A network that is being played.
#[derive(Debug)]
pub struct Sim {
    net: Net,
    senders: Vec<Sender>,
    receivers: Vec<Receiver>,
    sources: Vec<Source>,
    /// Octets on the wire of each TCP flow's last segment, and of a full one.
    tails: Vec<u16>,
    mtu: u16,
    /// Octets of a TCP segment and of a datagram that are not payload.
    headers: (u16, u16),
    /// What stands between guests and their hosts' uplinks.
    edge: Edge,
    flows: Vec<Flow>,
    /// Flows in the order of their starts, and how many of them have started.
    starts: Vec<u32>,
    started: usize,
    events: u64,
    hops: u64,
    /// Packets that arrived at the end of their route.
    delivered: u64,
    /// TCP flows from this one on come and go.
    dynamic: u32,
    exchanges: Exchanges,
    tcp: TcpConfig,
    /// Receive window, in segments.
    window: u32,
    faults: Vec<Fault>,
    /// Hosts that stand still, if any ever will.
    pauses: Option<Box<Pauses>>,
    /// Who binds tenants to queues, if anybody.
    binding: Option<Box<Binding>>,
}

/// What happens in a run beside its network and its flows.
#[derive(Default)]
pub(crate) struct Stage {
    /// Agents and shapers on its hosts.
    pub(crate) guard: Option<Guard>,
    /// What breaks, and when.
    pub(crate) faults: Vec<(Time, Fault)>,
    /// Traffic that comes and goes.
    pub(crate) exchanges: Vec<ExchangeSpec>,
    /// Of each flow; those behind the end have no names.
    pub(crate) guests: Vec<Guests>,
    /// What VMs' ports translate their guests' congestion control into.
    pub(crate) translation: Option<Translation>,
    /// VMs' window budgets.
    pub(crate) budgets: SortedMap<u32, Budget>,
    /// Who binds tenants to queues.
    pub(crate) binding: Option<BindingSpec>,
    /// Long-lived connections were opened while the network was idle: they know its round trip.
    pub(crate) established: bool,
}

/// A flow's place among its kind.
#[derive(Clone, Copy, Debug)]
enum End {
    Tcp(u32),
    Udp(u32),
}

#[derive(Debug)]
pub(crate) struct Flow {
    end: End,
    start: u64,
    octets: Option<u64>,
}

impl Sim {
    /// `network` before its first event.
    pub fn new(network: &Network, options: &Options) -> Self {
        Self::staged(network, options, Stage::default())
    }

    /// The same with what happens beside it.
    pub(crate) fn staged(network: &Network, options: &Options, mut stage: Stage) -> Self {
        let mut net = Net::new(network, options.seed);
        let guard = stage.guard.as_mut();
        let shim = guard.map(|guard| Shim::new(guard, &mut net, options.seed));
        let guard = stage.guard.as_ref();
        let all = stage.guests.iter().chain(stage.exchanges.iter().map(|spec| &spec.guests));
        if shim.is_some() && all.into_iter().any(|guests| guests.own.0 || guests.own.1) {
            net.sockets = Some(Box::default());
        }
        let window = options.tcp.receive_window.get() / u64::from(network.segment());
        let window = window.clamp(1, 1 << 16) as u32;
        let budgets = std::mem::take(&mut stage.budgets);
        let is_asked = stage.translation.is_some() || !budgets.is_empty();
        let translator = is_asked.then(|| {
            let translation = stage.translation.unwrap_or_default();
            Translator::new(translation, Shares::new(budgets), (network.segment(), window))
        });
        let mut sim = Self {
            net,
            senders: Vec::new(),
            receivers: Vec::new(),
            sources: Vec::new(),
            tails: Vec::new(),
            mtu: network.mtu(),
            headers: network.headers(),
            edge: Edge::new(shim, translator, &stage.faults),
            flows: Vec::with_capacity(network.flows().len()),
            starts: (0..network.flows().len() as u32).collect(),
            started: 0,
            events: 0,
            hops: 0,
            delivered: 0,
            dynamic: u32::MAX,
            exchanges: Exchanges::default(),
            tcp: options.tcp.clone(),
            window,
            faults: stage.faults.iter().map(|(_, fault)| *fault).collect(),
            pauses: Pauses::new(network, &stage.faults).map(Box::new),
            binding: None,
        };
        if let Some(spec) = stage.binding.take() {
            if let Some(shim) = &mut sim.edge.shim {
                shim.count_tenants(spec.tenant_of.clone(), spec.tenants);
            }
            sim.binding = Some(Box::new(Binding::new(spec, &mut sim.net)));
        }
        for number in 0..network.flows().len() {
            sim.add_flow(network, options, &stage, number);
        }
        sim.starts.sort_by_key(|flow| sim.flows[*flow as usize].start);
        sim.announce();
        for &(flow, at) in network.stops() {
            sim.net.wake(at.as_nanos(), Kind::Halt, flow);
        }
        for (number, (at, _)) in (0..).zip(&stage.faults) {
            sim.net.wake(at.as_nanos(), Kind::Fault, number);
        }
        let entry = |(number, spec): (usize, ExchangeSpec)| {
            let mut rng = Rng::new(options.seed, EXCHANGE_WAYS + number as u64);
            let mut routes = |ways: &[Vec<u32>]| -> Vec<u32> {
                if spec.by_packet {
                    let ways: Vec<_> = ways.iter().map(Vec::as_slice).collect();
                    return vec![sim.net.add_ways(&ways, rng.next())];
                }
                ways.iter().map(|way| sim.net.add_route(way)).collect()
            };
            let routes = (routes(&spec.ways.0), routes(&spec.ways.1));
            let pairs = guard.map_or((0, 0), |guard| guard.exchanges[number]);
            Entry::new(spec, routes, rng, pairs)
        };
        let entries = stage.exchanges.into_iter().enumerate().map(entry).collect();
        sim.exchange(entries);
        sim
    }

    /// Takes up the flow of this number: routes, both ends, and its pairs.
    fn add_flow(&mut self, network: &Network, options: &Options, stage: &Stage, number: usize) {
        let spec = &network.flows()[number];
        let payload = u64::from(network.segment());
        let class = network.class(number as u32) << CLASS;
        let mut route = |way: Way, route: &[u32]| {
            let mut ways = vec![route];
            ways.extend(network.ways(number as u32, way).iter().map(Vec::as_slice));
            let stream = WAYS + 2 * number as u64 + u64::from(way == Way::Reverse);
            self.net.add_ways(&ways, Rng::new(options.seed, stream).next())
        };
        let forward = route(Way::Forward, &spec.forward);
        let pairs = stage.guard.as_ref().map_or((0, 0), |guard| guard.flows[number]);
        let guests = stage.guests.get(number).copied().unwrap_or_default();
        let is_tcp = matches!(spec.traffic, Traffic::Tcp { .. });
        self.edge.add(is_tcp, pairs, guests.vms);
        if let Some(pauses) = &mut self.pauses {
            pauses.ends.add(is_tcp, (spec.src, spec.dst));
        }
        let (end, octets) = match spec.traffic {
            Traffic::Tcp { octets, algorithm } => {
                let reverse = route(Way::Reverse, &spec.reverse);
                let octets = octets.map(std::num::NonZero::get);
                let segments = octets.map_or(u32::MAX, |o| o.div_ceil(payload) as u32);
                let tail = octets.map_or(payload, |o| (o - 1) % payload + 1) as u16;
                let (tcp, cc) = (&options.tcp, algorithm.unwrap_or(options.tcp.algorithm));
                self.tails.push(tail + self.headers.0);
                if let Some(sockets) = &mut self.net.sockets {
                    sockets.add(guests.own.0);
                }
                let mut sender = Sender::new(tcp, cc, segments, self.window, forward);
                sender.booted(guests.booted.0);
                if guests.old.0 {
                    sender.forget_rack();
                }
                sender.deaf = guests.deaf.0;
                if let Some(speakers) = guests.speakers {
                    sender.bits = if self.edge.open(speakers) { ECT } else { 0 };
                }
                if !network.ways(number as u32, Way::Forward).is_empty() {
                    sender.sprayed();
                }
                if stage.established {
                    sender.knows(handshake(network, spec));
                }
                let mut receiver = Receiver::new(tcp, cc, segments, self.window, reverse);
                receiver.booted(guests.booted.1);
                sender.bits |= class;
                receiver.bits |= class;
                self.senders.push(sender);
                self.receivers.push(receiver);
                (End::Tcp(self.senders.len() as u32 - 1), octets)
            }
            Traffic::Udp { rate, size, bursts } => {
                let stream = !(number as u64);
                let bursts = bursts.map(|bursts| (bursts, Rng::new(options.seed, stream)));
                let start = spec.start.as_nanos();
                let mut source = Source::new((rate, size), bursts, start, forward);
                source.bits = class;
                self.sources.push(source);
                (End::Udp(self.sources.len() as u32 - 1), None)
            }
        };
        self.flows.push(Flow { end, start: spec.start.as_nanos(), octets });
    }

    /// Plays all that happens until `until`, that instant included; at most a day.
    pub fn run_until(&mut self, until: Time) {
        let until = until.as_nanos().min(LONGEST.as_nanos());
        if until < self.net.now {
            return;
        }
        self.net.wake(until, Kind::Stop, 0);
        let mut stopping = false;
        while let Some(id) = self.net.wheel.pop(&mut self.net.slab.cells) {
            self.net.look_ahead();
            let packet = &self.net.slab.cells[id as usize];
            self.net.now = packet.at;
            let link = self.net.routes[packet.hop as usize];
            if link != END {
                self.hops += 1;
                stopping = false;
                self.net.forward(id, link);
            } else if packet.kind != Kind::Stop {
                stopping = false;
                self.arrive(id);
            } else if stopping {
                // Nothing came between two stops: nothing else happens at this instant.
                self.net.slab.free(id);
                self.net.asleep -= 1;
                return;
            } else {
                stopping = true;
                self.net.wheel.schedule(&mut self.net.slab.cells, id);
            }
        }
    }

    /// A packet at the end of its route, or a wake-up.
    #[inline]
    fn arrive(&mut self, id: u32) {
        if self.pauses.is_some() && self.hold_back(id) {
            return;
        }
        let Some(packet) = self.edge.arrive(&mut self.net, id) else { return };
        let flow = packet.flow as usize;
        match packet.kind {
            Kind::Data => self.on_data(&packet),
            Kind::Ack => self.on_ack(&packet),
            Kind::Datagram => {
                self.delivered += 1;
                self.sources[flow].arrived += 1;
            }
            Kind::Letter => {
                self.delivered += 1;
                if let Some(shim) = &mut self.edge.shim {
                    shim.receive(&mut self.net, packet.seq);
                }
            }
            _ => self.on_wake(&packet),
        }
    }

    #[inline]
    fn on_data(&mut self, packet: &Packet) {
        self.delivered += 1;
        let is_dynamic = packet.flow >= self.dynamic;
        if is_dynamic && self.is_closed(packet.flow) {
            return;
        }
        let (now, has) = (self.net.now, |bit| packet.bits & bit != 0);
        let receiver = &mut self.receivers[packet.flow as usize];
        if has(AGAIN) | (receiver.stamp != 0) {
            receiver.stamp(packet.seq, has(AGAIN));
        }
        let (early, ack) = receiver.on_data(now, packet.seq, has(CE), has(CWR), has(LAST));
        if let Some(early) = early {
            self.edge.answer(&mut self.net, self.headers.0, receiver, packet.flow, early);
        }
        if let Some(ack) = ack {
            self.edge.answer(&mut self.net, self.headers.0, receiver, packet.flow, ack);
        } else if receiver.ack_at.max(now) < receiver.looks_at {
            receiver.looks_at = receiver.ack_at.max(now);
            self.net.wake(receiver.looks_at, Kind::AckDue, packet.flow);
        }
        if is_dynamic {
            self.arrived(packet.flow);
        }
    }

    #[inline]
    fn on_ack(&mut self, packet: &Packet) {
        self.delivered += 1;
        let sender = &mut self.senders[packet.flow as usize];
        if let Some(edge) = self.edge.bound(packet.flow) {
            sender.edge = edge;
        }
        if packet.sack == NIL {
            sender.on_ack(self.net.now, packet.seq, packet.bits, &[]);
        } else {
            let (blocks, count) = self.net.blocks.take(packet.sack);
            sender.on_ack(self.net.now, packet.seq, packet.bits, &blocks[..count]);
        }
        if packet.flow >= self.dynamic {
            self.opened(packet.flow);
        }
        self.pump(packet.flow);
    }

    /// Sends what a TCP flow may send now.
    #[inline]
    fn pump(&mut self, flow: u32) {
        let sender = &mut self.senders[flow as usize];
        let always = sender.bits;
        loop {
            if let Some(sockets) = &mut self.net.sockets
                && !sockets.has_room(flow, sender.small_queue())
            {
                sender.keep_probe();
                break;
            }
            let Some(segment) = sender.poll(self.net.now) else { break };
            let last = segment.seq + 1 == sender.end;
            let size = if last { self.tails[flow as usize] } else { self.mtu };
            let bits = always | if last { LAST } else { 0 } | if segment.reduced { CWR } else { 0 };
            let bits = bits | if segment.again { AGAIN } else { 0 };
            let (hop, seq) = (sender.route, segment.seq);
            let at = self.net.now;
            let kind = Kind::Data;
            let packet = Packet { at, next: NIL, hop, flow, seq, sack: NIL, size, kind, bits };
            self.edge.send(&mut self.net, packet);
        }
        // A timer that expired while its host stood still is looked at when that goes on: now.
        let at = sender.resend_at.max(self.net.now);
        if at < sender.looks_at {
            sender.looks_at = at;
            self.net.wake(at, Kind::Timeout, flow);
        }
    }

    #[cold]
    fn on_wake(&mut self, wake: &Packet) {
        self.net.asleep -= 1;
        self.events += 1;
        let flow = wake.flow;
        match wake.kind {
            Kind::Start => self.start(flow),
            Kind::Timeout => {
                let sender = &mut self.senders[flow as usize];
                // Another wake-up has been set since for an earlier instant: this one is void.
                if sender.looks_at == wake.at {
                    sender.looks_at = NEVER;
                    sender.on_timer(self.net.now);
                    self.pump(flow);
                }
            }
            Kind::Resume => self.pump(flow),
            Kind::AckDue => {
                let receiver = &mut self.receivers[flow as usize];
                if receiver.looks_at == wake.at {
                    receiver.looks_at = NEVER;
                    if let Some(ack) = receiver.on_timer(self.net.now) {
                        self.edge.answer(&mut self.net, self.headers.0, receiver, flow, ack);
                    } else if receiver.ack_at != NEVER {
                        receiver.looks_at = receiver.ack_at;
                        self.net.wake(receiver.ack_at, Kind::AckDue, flow);
                    }
                }
            }
            Kind::Emit => self.emit(flow),
            Kind::Halt => match self.flows[flow as usize].end {
                End::Tcp(tcp) => {
                    self.senders[tcp as usize].halt();
                    self.edge.end(tcp);
                }
                End::Udp(udp) => self.sources[udp as usize].halted = true,
            },
            Kind::Late => self.begin(flow),
            Kind::Fault => self.strike(flow),
            Kind::Agenda => self.keep_agenda(flow),
            Kind::Port => self.net.serve(flow),
            Kind::Bind => self.bind(),
            Kind::Mail | Kind::Agent | Kind::Shaper | Kind::Guardian | Kind::Told => {
                if let Some(shim) = &mut self.edge.shim {
                    shim.on_wake(&mut self.net, wake);
                }
            }
            Kind::Data | Kind::Ack | Kind::Datagram | Kind::Letter | Kind::Stop => {
                unreachable!("not a wake-up of a flow")
            }
        }
    }

    /// Schedules the start of the next flow that has not started.
    fn announce(&mut self) {
        if let Some(&flow) = self.starts.get(self.started) {
            self.started += 1;
            self.net.wake(self.flows[flow as usize].start, Kind::Start, flow);
        }
    }

    fn start(&mut self, flow: u32) {
        self.announce();
        if let Some(until) = self.stands_still(flow) {
            return self.net.wake(until, Kind::Late, flow);
        }
        self.begin(flow);
    }

    fn begin(&mut self, flow: u32) {
        match self.flows[flow as usize].end {
            End::Tcp(tcp) => {
                self.edge.begin(tcp);
                self.pump(tcp);
            }
            End::Udp(udp) => self.emit(udp),
        }
    }

    fn emit(&mut self, flow: u32) {
        let source = &mut self.sources[flow as usize];
        if source.halted {
            return;
        }
        let (size, hop, bits) = (source.size, source.route, source.bits);
        let mut at = source.next();
        while at < self.net.now {
            // Its host stood still: what should have been sent then is not sent.
            at = source.skip();
        }
        self.net.wake(at, Kind::Emit, flow);
        let kind = Kind::Datagram;
        let packet = Packet { size, hop, kind, bits, ..Packet::wake(kind, flow) };
        self.edge.send(&mut self.net, packet);
    }
}

/// The time of a SYN and its answer through an idle network, ns.
fn handshake(network: &Network, spec: &FlowSpec) -> u64 {
    let ways = spec.forward.iter().chain(&spec.reverse);
    let links = ways.map(|link| &network.links()[*link as usize]);
    let size = weir_units::Bytes::new(SYN.into());
    links.map(|link| (link.delay + link.rate.time_for(size)).as_nanos()).sum()
}
